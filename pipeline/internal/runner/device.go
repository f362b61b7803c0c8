package runner

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/job"
)

// wanted is the device that a run asks for.
type wanted struct {
	kind     string // Auto, Host or CUDA
	numbers  []int  // of the GPUs; nil for the first one, or the first ones of Options.GPUs
	all      bool   // all GPUs
	withHost bool   // lanes of the CPU work together with a GPU
}

// parseDevice returns the device of a name.
func parseDevice(name string) (wanted, error) {
	first, withHost := strings.CutSuffix(name, execution.WithHost)
	kind, list, numbered := strings.Cut(first, ":")
	w := wanted{kind: kind, withHost: withHost}
	switch {
	case name == "":
		return wanted{kind: execution.Auto}, nil
	case !numbered && (kind == execution.Auto || kind == execution.CUDA || kind == execution.Host && !withHost):
		return w, nil
	case numbered && kind == execution.CUDA && list == execution.All:
		w.all = true
		return w, nil
	case numbered && kind == execution.CUDA:
		for number := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseUint(number, 10, 16)
			if err != nil || strconv.FormatUint(n, 10) != number || slices.Contains(w.numbers, int(n)) {
				w.numbers = nil
				break
			}
			w.numbers = append(w.numbers, int(n))
		}
		if len(w.numbers) > 0 {
			return w, nil
		}
	}
	return wanted{},
		&job.Diagnostic{Msg: fmt.Sprintf("device %s: must be %s, %s, %s or, for other GPUs than the first, %s:N as "+
			"in %s:1, several as in %s:0,2, or %s:%s; %s behind GPUs or %s, as in %s, lets the CPU help", name,
			execution.Auto, execution.Host, execution.CUDA, execution.CUDA, execution.CUDA, execution.CUDA,
			execution.CUDA, execution.All, execution.WithHost, execution.Auto, execution.Auto+execution.WithHost)}
}

// gpus returns the numbers of the GPUs of a run, at least one.
func (w wanted) gpus(opt execution.Options) ([]int, error) {
	n := max(opt.GPUs, 1)
	switch {
	case opt.GPUs != 0 && w.kind == execution.Host:
		return nil, fmt.Errorf("%d GPUs of the device %s, which has none", opt.GPUs, w.kind)
	case opt.GPUs < 0 || opt.GPUs > cuda.MostGPUs:
		return nil, fmt.Errorf("%d GPUs: must be from 1 to %d", opt.GPUs, cuda.MostGPUs)
	case opt.GPUs > 0 && (w.numbers != nil || w.all):
		return nil, fmt.Errorf("%d GPUs of the device %s: name the GPUs, or give their number, but not both", opt.GPUs,
			opt.Use)
	case w.numbers != nil:
		return w.numbers, nil
	case w.all:
		census, err := cuda.Look("")
		if err != nil {
			return nil, err
		}
		if n = census.Visible; !census.Counted {
			if n, err = cuda.Count(""); err != nil {
				return nil, err
			}
		}
		if n == 0 {
			return nil, fmt.Errorf("device %s: this process sees no GPU", opt.Use)
		}
	}
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers, nil
}

// optionsOf returns the options by which the GPUs of a run are opened.
func optionsOf(opt execution.Options) cuda.Options {
	return cuda.Options{Alone: opt.Alone, Memory: opt.DeviceMemory, HostMemory: opt.HostMemory,
		StrideBytes: opt.StrideSize, Ahead: true}
}

// Unopened returns what is known of the device of a name before it is opened.
func Unopened(name string) gpu.Properties {
	if want, err := parseDevice(name); err == nil && want.kind == execution.Host {
		return host.Unopened()
	}
	return cuda.Unopened()
}

// CheckThreads returns an error if a number of threads is not possible.
func CheckThreads(n int) error { return host.CheckThreads(n) }

// CheckDevice returns an error when no run can ask for a device by this name. Whether the
// machine has the device is known only when a run opens it.
func CheckDevice(name string) error {
	_, err := parseDevice(name)
	return err
}

// warnOfCPU logs that there is a GPU that is not used: nothing falls back to the CPU
// silently.
func warnOfCPU(err error) {
	slog.Warn("the GPU cannot be used, so the job runs on the CPU", "error", err)
}

// OpenDevice opens the device that options ask for: by Use, Threads, HostMemory,
// DeviceMemory and StrideSize. Auto is the first GPU if there is a driver; call
// ChooseDevice first to choose by the plan. A GPU that a run has left open is taken. Another one
// starts in the background. If that fails, the first queue returns the error.
func OpenDevice(opt execution.Options) (gpu.Device, error) {
	if err := host.CheckThreads(opt.Threads); err != nil {
		return nil, &job.Diagnostic{Msg: err.Error()}
	}
	want, err := parseDevice(opt.Use)
	if err != nil {
		return nil, err
	}
	if want.kind != execution.Host {
		numbers, err := want.gpus(opt)
		if err == nil {
			var d gpu.Device
			if d, err = gpus.take(optionsOf(opt), numbers); err == nil {
				return d, nil
			}
		}
		noDriver := errors.Is(err, cuda.ErrNoDriver)
		if want.kind == execution.CUDA {
			if noDriver {
				err = fmt.Errorf("%w; install one, or run with %v", err, gpu.UseHost)
			}
			return nil, &job.Diagnostic{Msg: err.Error()}
		}
		if !noDriver {
			warnOfCPU(err)
		}
	}
	// On the CPU, device memory and host memory are the same.
	d, err := host.Open(host.Options{Threads: opt.Threads, Memory: cmp.Or(opt.HostMemory, opt.DeviceMemory),
		StrideRows: int(opt.StrideSize / 8)})
	if err != nil {
		return nil, &job.Diagnostic{Msg: err.Error()}
	}
	return d, nil
}

// openCoprocessor opens the CPU as a device that works together with another device, on strides in the host
// memory of that device. It returns nil unless options ask for it and the other device has memory of its own.
func openCoprocessor(d gpu.Device, opt execution.Options) (gpu.Device, error) {
	if want, err := parseDevice(opt.Use); err != nil || !want.withHost || !discrete(d) {
		return nil, err
	}
	return host.Open(host.Options{Threads: opt.Threads, Budget: d.HostBudget()})
}

// discrete reports whether a device has memory of its own, to and from which strides are
// copied.
func discrete(d gpu.Device) bool { return d.Budget() != d.HostBudget() }

// GPUs returns the numbers of the GPUs that a run asks for.
func GPUs(opt execution.Options) ([]int, error) {
	want, err := parseDevice(opt.Use)
	if err != nil {
		return nil, err
	}
	return want.gpus(opt)
}

// FreeHostMemory returns the budget of host memory of a run on the CPU: half of the memory that is free.
func FreeHostMemory() int64 { return host.FreeMemory() / 2 }
