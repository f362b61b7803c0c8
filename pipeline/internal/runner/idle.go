package runner

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/pipeline/execution"
)

// idleTime is how long a GPU that a run has opened stays open for the next run.
const idleTime = 10 * time.Second

// idleGPUs has the GPUs that runs have opened and ended with. Opening and closing one takes a third
// of a second, and its page-locked memory and its loaded kernels go with it. A run takes a GPU out,
// so that two runs never share its budgets.
type idleGPUs struct {
	open func(cuda.Options) (*cuda.Device, error)
	keep time.Duration

	mu   sync.Mutex
	gpus map[int]*idleGPU // by number
}

// idleGPU is a GPU that no run uses.
type idleGPU struct {
	device *cuda.Device
	sizes  gpuSizes
	expiry *time.Timer
}

// gpuSizes are the options by which open GPUs differ.
type gpuSizes struct{ device, host, stride int64 }

func sizesOf(o cuda.Options) gpuSizes { return gpuSizes{o.Memory, o.HostMemory, o.StrideBytes} }

// gpus are the GPUs of the process.
var gpus = &idleGPUs{open: cuda.Open, keep: idleTime}

// take returns an open GPU with these sizes, or opens it. An idle one with other sizes is
// closed first, as it has memory.
func (g *idleGPUs) take(opt cuda.Options) (*cuda.Device, error) {
	if idle := g.remove(opt.Ordinal); idle != nil {
		if idle.sizes == sizesOf(opt) {
			return idle.device, nil
		}
		warnOfClose(idle.device.Close())
	}
	return g.open(opt)
}

// remove takes an idle GPU out, and returns nil if there is none.
func (g *idleGPUs) remove(number int) *idleGPU {
	g.mu.Lock()
	defer g.mu.Unlock()
	idle := g.gpus[number]
	if idle == nil || !idle.expiry.Stop() {
		return nil // or it is being closed
	}
	delete(g.gpus, number)
	return idle
}

// put keeps a GPU for the next run, or closes it if it failed or there is one already.
func (g *idleGPUs) put(device *cuda.Device, opt cuda.Options) error {
	g.mu.Lock()
	if !device.Works() || g.gpus[opt.Ordinal] != nil {
		g.mu.Unlock()
		return device.Close()
	}
	defer g.mu.Unlock()
	idle := &idleGPU{device: device, sizes: sizesOf(opt)}
	idle.expiry = time.AfterFunc(g.keep, func() {
		warnOfClose(device.Close())
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.gpus, opt.Ordinal)
	})
	if g.gpus == nil {
		g.gpus = map[int]*idleGPU{}
	}
	g.gpus[opt.Ordinal] = idle
	return nil
}

// close closes all idle GPUs.
func (g *idleGPUs) close() error {
	g.mu.Lock()
	var numbers []int
	for number := range g.gpus {
		numbers = append(numbers, number)
	}
	g.mu.Unlock()
	var errs []error
	for _, number := range numbers {
		if idle := g.remove(number); idle != nil {
			errs = append(errs, idle.device.Close())
		}
	}
	return errors.Join(errs...)
}

// warnOfClose logs that an idle GPU could not be closed: no run is there to return the error.
func warnOfClose(err error) {
	if err != nil {
		slog.Warn("an idle GPU could not be closed", "error", err)
	}
}

// CloseIdle closes the GPUs that runs have left open for the next run.
func CloseIdle() error { return gpus.close() }

// keepOrClose ends a run's use of its own device. whole says that nothing leaks.
func keepOrClose(d gpu.Device, opt execution.Options, whole bool) error {
	c, ok := d.(*cuda.Device)
	if !ok || !whole {
		return d.Close()
	}
	want, err := parseDevice(opt.Use)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	return gpus.put(c, want.gpu(opt))
}
