package runner

import (
	"errors"
	"log/slog"
	"slices"
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
	open func(cuda.Options, []int) (openGPU, error)
	keep time.Duration

	mu   sync.Mutex
	idle []*idleGPU
}

// openGPU is a GPU, or a group of them.
type openGPU interface {
	gpu.Device
	Works() bool
}

// openGPUs opens GPUs by their numbers.
func openGPUs(opt cuda.Options, numbers []int) (openGPU, error) {
	if len(numbers) == 1 {
		opt.Ordinal = numbers[0]
		return cuda.Open(opt)
	}
	return cuda.OpenGroup(opt, numbers)
}

// idleGPU is a GPU, or a group, that no run uses.
type idleGPU struct {
	device  openGPU
	numbers []int
	sizes   gpuSizes
	expiry  *time.Timer
}

// gpuSizes are the options by which open GPUs differ.
type gpuSizes struct{ device, host, stride int64 }

func sizesOf(o cuda.Options) gpuSizes { return gpuSizes{o.Memory, o.HostMemory, o.StrideBytes} }

// gpus are the GPUs of the process.
var gpus = &idleGPUs{open: openGPUs, keep: idleTime}

// take returns the open GPUs of some numbers with these sizes, or opens them. Idle ones with other sizes, and groups
// that have some of them, are closed first, as they have memory.
func (g *idleGPUs) take(opt cuda.Options, numbers []int) (openGPU, error) {
	var found openGPU
	for _, idle := range g.remove(numbers) {
		if slices.Equal(idle.numbers, numbers) && idle.sizes == sizesOf(opt) {
			found = idle.device
			continue
		}
		warnOfClose(idle.device.Close())
	}
	if found != nil {
		return found, nil
	}
	return g.open(opt, numbers)
}

// remove takes the idle GPUs out that have one of some numbers, or all without numbers.
func (g *idleGPUs) remove(numbers []int) (out []*idleGPU) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = slices.DeleteFunc(g.idle, func(idle *idleGPU) bool {
		among := func(n int) bool { return slices.Contains(numbers, n) }
		if numbers != nil && !slices.ContainsFunc(idle.numbers, among) || !idle.expiry.Stop() { // or it is being closed
			return false
		}
		out = append(out, idle)
		return true
	})
	return out
}

// put keeps GPUs for the next run, or closes them if one failed or there is one already.
func (g *idleGPUs) put(device openGPU, opt cuda.Options, numbers []int) error {
	g.mu.Lock()
	taken := slices.ContainsFunc(g.idle, func(idle *idleGPU) bool {
		return slices.ContainsFunc(numbers, func(n int) bool { return slices.Contains(idle.numbers, n) })
	})
	if taken || !device.Works() {
		g.mu.Unlock()
		return device.Close()
	}
	defer g.mu.Unlock()
	idle := &idleGPU{device: device, numbers: numbers, sizes: sizesOf(opt)}
	idle.expiry = time.AfterFunc(g.keep, func() {
		warnOfClose(device.Close())
		g.mu.Lock()
		defer g.mu.Unlock()
		g.idle = slices.DeleteFunc(g.idle, func(x *idleGPU) bool { return x == idle })
	})
	g.idle = append(g.idle, idle)
	return nil
}

// close closes all idle GPUs.
func (g *idleGPUs) close() error {
	var errs []error
	for _, idle := range g.remove(nil) {
		errs = append(errs, idle.device.Close())
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
	open, ok := d.(openGPU)
	if !ok || !whole {
		return d.Close()
	}
	return gpus.put(open, optionsOf(opt), numbersOf(d))
}

// numbersOf returns the numbers of open GPUs.
func numbersOf(d gpu.Device) (numbers []int) {
	for _, each := range gpu.DevicesOf(d) {
		if c, ok := each.(*cuda.Device); ok {
			numbers = append(numbers, c.Ordinal())
		}
	}
	return numbers
}
