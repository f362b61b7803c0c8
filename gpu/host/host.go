// Package host runs the primitives of package gpu on CPU cores. It owns an arena of host memory
// outside of the Go heap, which it reuses because fresh pages cost more than the work on them. It
// knows nothing about files or operators.
//
// A queue checks the arguments of a primitive, calls a package of internal and notes a failure. Those
// packages know no queue: they take the cores that they may use and a lease that pays for memory.
package host

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/internal/machine"
)

// Options configure the host device; the zero value uses the whole machine.
type Options struct {
	// Threads bounds the cores that a primitive uses, at most MaxThreads; 0 means GOMAXPROCS.
	Threads int
	// Memory is the budget in bytes; 0 means half of the free memory.
	Memory int64
	// StrideRows is the number of rows of a stride; 0 means the default.
	StrideRows int
	// Budget, if set, is the host memory budget of another device, which replaces Memory. The CPU
	// then works together with that device, on strides in memory that both can access.
	Budget *gpu.Budget
}

// Device is the CPU as a gpu.Device. Its device memory is host memory, so both budgets
// are one.
type Device struct {
	cores  parallel.Cores
	rows   int // of a stride
	memory int64
	free   int64
	budget *gpu.Budget
	arena  *memory.Arena // nil if the budget is another device's
	// A queue may have a share of the device, represented by another Device, whose cores have the
	// queue's context. Then whole is the device itself.
	whole *Device
}

// MaxThreads is the maximum number of threads: 64, or four for each core of the machine if that is
// more.
func MaxThreads() int { return max(64, 4*runtime.NumCPU()) }

// FreeMemory returns the bytes of memory that are free, within the limits of the container.
func FreeMemory() int64 {
	_, free := machine.Memory()
	return free
}

// CheckThreads returns an error if a number of threads is not possible. 0 means the default.
func CheckThreads(n int) error {
	switch most := MaxThreads(); {
	case n < 0:
		return fmt.Errorf("threads must not be negative, is %d", n)
	case n > most:
		return fmt.Errorf("%d threads are more than the %d that are possible on this machine, which has %d cores", n,
			most, runtime.NumCPU())
	}
	return nil
}

// Open returns the host device.
func Open(opt Options) (*Device, error) {
	if err := CheckThreads(opt.Threads); err != nil {
		return nil, err
	}
	if opt.StrideRows < 0 {
		return nil, fmt.Errorf("rows of a stride must not be negative, are %d", opt.StrideRows)
	}
	if opt.Memory < 0 {
		return nil, fmt.Errorf("host memory must not be negative, is %s", humanize.IBytes(uint64(-opt.Memory)))
	}
	d := &Device{cores: parallel.Cores{Threads: opt.Threads}, rows: cmp.Or(opt.StrideRows, 1<<17)}
	if d.cores.Threads == 0 {
		d.cores.Threads = min(runtime.GOMAXPROCS(0), MaxThreads())
	}
	d.memory, d.free = machine.Memory()
	if d.budget = opt.Budget; d.budget != nil {
		return d, nil
	}
	limit := opt.Memory
	if limit == 0 {
		limit = grant.HostBudget.Of(d.free)
	}
	d.arena = memory.NewArena(d.cores.Threads)
	d.budget = gpu.NewBudget("host", gpu.HostMemory, limit, d.arena)
	d.arena.Register(d.budget)
	return d, nil
}

const deviceName = "host" // the kind and the only device of it

var capabilities = gpu.Capabilities{ArgMinMax: true}

// Unopened returns the properties of the CPU that are known before it is opened.
func Unopened() gpu.Properties {
	return gpu.Properties{Name: "the CPU", Kind: deviceName, ID: deviceName, Capabilities: capabilities}
}

// Known implements gpu.Device.
func (d *Device) Known() gpu.Properties { return d.Properties() }

// Properties implements gpu.Device.
func (d *Device) Properties() gpu.Properties {
	return gpu.Properties{Name: machine.CPU(), Kind: deviceName, ID: deviceName, Cores: d.cores.Threads,
		Memory: d.memory, Free: d.free, L2: machine.L2(), Capabilities: capabilities,
		Details: runtime.GOOS + "/" + runtime.GOARCH}
}

// Budget implements gpu.Device.
func (d *Device) Budget() *gpu.Budget { return d.budget }

// HostBudget implements gpu.Device; it is the same as Budget.
func (d *Device) HostBudget() *gpu.Budget { return d.budget }

// StrideRows implements gpu.Device. One column of a stride fits the L2 cache, and a stride is long
// enough to share among cores.
func (d *Device) StrideRows(int) int { return d.rows }

// PagesStrideRows implements gpu.Device.
func (d *Device) PagesStrideRows(int, bool) int { return d.rows }

// device returns the device of which this one is a share, or itself.
func (d *Device) device() *Device {
	if d.whole != nil {
		return d.whole
	}
	return d
}

// Lanes implements gpu.Device: one for each core.
func (d *Device) Lanes() int { return d.cores.Threads }

// NewQueue implements gpu.Device.
func (d *Device) NewQueue(name string) (gpu.Queue, error) { return &queue{dev: d, name: name}, nil }

// NewLaneQueue implements gpu.Device.
func (d *Device) NewLaneQueue(name string) (gpu.Queue, error) {
	lane := *d
	lane.cores.Threads, lane.whole = 1, d
	return &queue{dev: &lane, name: name}, nil
}

// Close returns the arena's memory to the system.
func (d *Device) Close() error {
	if d.arena != nil {
		d.arena.Close()
	}
	return nil
}
