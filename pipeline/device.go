package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/host"
)

// The devices that a run can ask for by name.
const (
	Auto = "auto" // the GPU where there is one, the CPU otherwise
	Host = "host" // the CPU
	CUDA = "cuda" // the GPU; an error where there is none
)

// ChooseDevice says on which kind of device a run that asks for name runs on this
// machine: Host or CUDA.
func ChooseDevice(name string) (string, error) {
	switch name {
	case Host, CUDA:
		return name, nil
	case Auto, "":
		if n, err := cuda.Count(""); err == nil && n > 0 {
			return CUDA, nil
		}
		return Host, nil
	}
	return "", &Fault{Msg: fmt.Sprintf("device %q: must be %s, %s or %s", name, Auto, Host, CUDA)}
}

// openDevice opens the run's own device. Where a GPU is there but cannot be used,
// an automatic choice says so and takes the CPU.
func (r *run) openDevice() (gpu.Device, error) {
	kind, err := ChooseDevice(r.opt.Use)
	if err != nil {
		return nil, err
	}
	job := r.plan.job.Memory
	if kind == CUDA {
		d, err := cuda.Open(cuda.Options{
			Memory:      cmp.Or(r.opt.DeviceMemory, int64(job.Device)),
			HostMemory:  cmp.Or(r.opt.HostMemory, int64(job.Host)),
			StrideBytes: r.opt.StrideSize,
		})
		if err == nil {
			return d, nil
		}
		if r.opt.Use == CUDA {
			if errors.Is(err, cuda.ErrNoDriver) {
				err = fmt.Errorf("%w; install one, or run with --device host", err)
			}
			return nil, &Fault{Msg: err.Error()}
		}
		slog.Warn("the GPU cannot be used, so the job runs on the CPU", "error", err)
	}
	d, err := host.Open(host.Options{Threads: r.opt.Threads, Memory: r.hostMemory(), StrideRows: int(r.opt.StrideSize / 8)})
	if err != nil {
		return nil, &Fault{Msg: err.Error()}
	}
	return d, nil
}

// apart says whether a device has memory of its own, which strides are copied to
// and from.
func apart(d gpu.Device) bool { return d.Budget() != d.HostBudget() }
