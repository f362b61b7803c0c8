package pipeline

import (
	"fmt"
	"runtime"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/runner"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/pipeline/ranks"
)

// DivideMachine returns options for some workers on this machine that run tasks of the plan at the same time: each has
// a part of the cores, of the memory and of the disk, and one of the GPUs. With Auto the device is the one that a run
// of the whole plan would take, and all GPUs are used.
func (p *Plan) DivideMachine(opt RunOptions, workers int) ([]RunOptions, error) {
	opt = p.written.options(opt)
	use, err := p.devicesOfWorkers(opt)
	if err != nil {
		return nil, err
	}
	n := int64(workers)
	memory := opt.HostMemory
	if memory == 0 {
		memory = runner.FreeHostMemory()
	}
	threads := opt.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	share := int64((workers + len(use) - 1) / len(use)) // of a GPU
	if use[0] != Host && share > 1 && opt.DeviceMemory == 0 {
		return nil, &job.Diagnostic{Msg: fmt.Sprintf("%d workers on %d GPUs: say how much memory of a GPU they have "+
			"together, with %v, or take as many workers as GPUs", workers, len(use), gpu.DeviceMemory)}
	}
	out := make([]RunOptions, workers)
	for i := range out {
		o := opt
		o.Device, o.GPUs, o.Use = nil, 0, use[i%len(use)]
		o.HostMemory, o.DeviceMemory, o.Threads = max(memory/n, 1), opt.DeviceMemory/share, max(threads/workers, 1)
		if o.SpillLimit > 0 {
			o.SpillLimit = max(o.SpillLimit/n, 1)
		}
		out[i] = o
	}
	return out, nil
}

// OptionsOfRank returns the options of one of several ranks (RunOptions.Ranks). Of what the options leave open, it has
// its part of its machine: of the cores and of host memory, and one of the GPUs that it sees. Rows that go by NCCL need
// a GPU.
func (p *Plan) OptionsOfRank(opt RunOptions, w *ranks.World) (RunOptions, error) {
	opt = p.written.options(opt)
	opt.Ranks = w
	before, n := w.Local()
	if opt.Chooses() && w.Plane() == ranks.NCCL {
		opt.Use = CUDA
	}
	if opt.Use == CUDA && opt.GPUs == 0 && n > 1 {
		all := opt
		all.Use = CUDA + ":" + execution.All
		numbers, err := runner.GPUs(all)
		if err != nil {
			return opt, p.written.place(&job.Diagnostic{Msg: err.Error()})
		}
		opt.Use = fmt.Sprintf("%s:%d", CUDA, numbers[before%len(numbers)])
	}
	if opt.HostMemory == 0 && n > 1 {
		opt.HostMemory = runner.FreeHostMemory() / int64(n)
	}
	if opt.Threads == 0 {
		opt.Threads = max(runtime.GOMAXPROCS(0)/n, 1)
	}
	return opt, nil
}

// devicesOfWorkers returns the names of the devices that workers take in turn.
func (p *Plan) devicesOfWorkers(opt RunOptions) ([]string, error) {
	if opt.Chooses() {
		choice, err := p.ChooseDevice(opt)
		if err != nil {
			return nil, err
		}
		if choice.Device == Host {
			return []string{Host}, nil
		}
		opt.Use, opt.GPUs = CUDA+":"+execution.All, 0
	}
	if opt.Use == Host {
		return []string{Host}, nil
	}
	numbers, err := runner.GPUs(opt)
	if err != nil {
		return nil, p.written.place(&job.Diagnostic{Msg: err.Error()})
	}
	var out []string
	for _, n := range numbers {
		out = append(out, fmt.Sprintf("%s:%d", CUDA, n))
	}
	return out, nil
}
