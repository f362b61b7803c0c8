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
	return "", unknownDevice(name)
}

func unknownDevice(name string) error {
	return &Fault{Msg: fmt.Sprintf("device %q: must be %s, %s or %s", name, Auto, Host, CUDA)}
}

// warnOfCPU says that a GPU is there and not used: nothing falls back in silence.
func warnOfCPU(err error) {
	slog.Warn("the GPU cannot be used, so the job runs on the CPU", "error", err)
}

// OpenDevice opens the device that options ask for: by Use, Threads, HostMemory,
// DeviceMemory and StrideSize. A GPU is started beside the caller; if it cannot be,
// the error comes with the first queue.
func OpenDevice(opt RunOptions) (gpu.Device, error) {
	switch opt.Use {
	case Auto, "", CUDA:
		d, err := cuda.Open(cuda.Options{Memory: opt.DeviceMemory, HostMemory: opt.HostMemory, StrideBytes: opt.StrideSize, Ahead: true})
		if err == nil {
			return d, nil
		}
		noDriver := errors.Is(err, cuda.ErrNoDriver)
		if opt.Use == CUDA {
			if noDriver {
				err = fmt.Errorf("%w; install one, or run with --device host", err)
			}
			return nil, &Fault{Msg: err.Error()}
		}
		if !noDriver {
			warnOfCPU(err)
		}
	case Host:
	default:
		return nil, unknownDevice(opt.Use)
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
