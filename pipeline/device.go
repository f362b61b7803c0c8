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

// OpenDevice opens the device that options ask for: by Use, Threads, HostMemory,
// DeviceMemory and StrideSize. Where a GPU is there but cannot be used, an automatic
// choice says so and takes the CPU.
func OpenDevice(opt RunOptions) (gpu.Device, error) {
	kind, err := ChooseDevice(opt.Use)
	if err != nil {
		return nil, err
	}
	if kind == CUDA {
		d, err := cuda.Open(cuda.Options{Memory: opt.DeviceMemory, HostMemory: opt.HostMemory, StrideBytes: opt.StrideSize, Warm: true})
		if err == nil {
			return d, nil
		}
		if opt.Use == CUDA {
			if errors.Is(err, cuda.ErrNoDriver) {
				err = fmt.Errorf("%w; install one, or run with --device host", err)
			}
			return nil, &Fault{Msg: err.Error()}
		}
		slog.Warn("the GPU cannot be used, so the job runs on the CPU", "error", err)
	}
	// Device and host memory are one on the CPU.
	d, err := host.Open(host.Options{Threads: opt.Threads, Memory: cmp.Or(opt.HostMemory, opt.DeviceMemory), StrideRows: int(opt.StrideSize / 8)})
	if err != nil {
		return nil, &Fault{Msg: err.Error()}
	}
	return d, nil
}

// apart says whether a device has memory of its own, which strides are copied to
// and from.
func apart(d gpu.Device) bool { return d.Budget() != d.HostBudget() }
