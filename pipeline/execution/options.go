// Package execution has the interface of a run: its options, the target of its rows, and its
// report. Package pipeline has aliases of all of it.
package execution

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/pipeline/ranks"
)

// Options configure a run. The zero value uses the whole machine.
type Options struct {
	// Device runs the stages. If it is nil, the run opens a device of its own, or takes a GPU that an
	// earlier run with the same options has left open (pipeline.CloseIdle). Use names that
	// device: Auto (also ""), Host, CUDA, or another GPU as "cuda:1". With WithHost after the
	// name of GPUs or Auto, lanes of the CPU take partitions of joins and group-bys that went out
	// of core, when that is faster by the times measured in the run. This applies even if Device is
	// set. GPUs of a group do so for each other in any case.
	Device gpu.Device
	Use    string
	// GPUs is the number of GPUs of a run that opens its own: the first ones in the driver's numbering. 0 means those
	// that Use names, as "cuda:0,2" or "cuda:all", with Auto as many as pay by estimate, or else one. Device may be a
	// gpu.Group.
	GPUs int
	// Ranks are the processes that run the plan together, this one among them. Each has the same plan, and one device.
	// The first one gives the plan, and writes the outputs; the others ignore their targets. Every failure ends the run
	// of all. Nil means this process alone.
	Ranks *ranks.World
	// Alone says that the process uses only the GPU of its runs. The run then makes only this GPU
	// visible to the driver, by CUDA_VISIBLE_DEVICES, because the driver takes some 0.3 s to start
	// each visible GPU. It has no effect if the driver has started already.
	Alone bool
	// StrideSize is the bytes of a column of 8-byte values in a stride of the run's own
	// device; 0 means the default.
	StrideSize int64
	// Threads bounds the cores of the run's own device and of decoding and encoding; 0 means
	// GOMAXPROCS. The maximum is 64, or four times the cores of the machine if that is more.
	Threads int
	// HostMemory is the budget of the run's own device in bytes. 0 means the job's
	// setting, or else half of the free memory.
	HostMemory int64
	// DeviceMemory is the budget of the run's own device if that has memory of its own, as a GPU
	// has. 0 means the job's setting, or else the default of the device.
	DeviceMemory int64
	// SpillDir is the folder for the files of rows that do not fit memory. "" means the job's
	// setting, or else $TMPDIR or /var/tmp. With spill.None there are no files, and what does not
	// fit is an error. SpillLimit bounds the bytes of these files; 0 means the job's setting, or
	// else four fifths of the free space. SpillCompression is "lz4" or "none"; "" means the job's
	// setting, or else lz4.
	SpillDir         string
	SpillLimit       int64
	SpillCompression string
	// SpillAlways spills all rows that can spill, as soon as they arrive. It is for tests.
	SpillAlways bool
	// JoinFilters says which joins drop rows while their probe sides are scanned, once their build
	// sides are complete: those for which the plan expects a gain (Auto, the default), all that can
	// (Always), or none (Never).
	JoinFilters string
	// FilterFirst says which filters on scans decide first (source.First): those for which the plan expects a gain
	// (Auto, the default), as long as there is one; for tests all (Always), or none (Never).
	FilterFirst string
	// HostTakes says which partitions of a GPU lanes of the CPU, and GPUs that have finished, take. "" decides
	// by measured times. The others are for tests: with HostTakesAny they take a partition whenever
	// they are free, and the GPU takes it back when it has nothing else to do; with HostTakesAll the
	// lanes take all that they can before the GPU takes any.
	HostTakes string
	// Exchanges says how a run on several devices brings rows together: a build side goes to all devices, or both
	// sides of a join go where their keys belong, and rows are exchanged before or after they are aggregated, whichever
	// moves fewer bytes by the plan's estimates (Auto, the default). For tests rows are exchanged by keys wherever
	// that is possible (Always), or nowhere if another way is possible (Never).
	Exchanges string
	// EndOnLostGPU ends a run with an error when a GPU fails. Otherwise the run starts again without this GPU: on the
	// others, and with Auto on the CPU after the last one. It does so only before outputs become complete, rows of a
	// stream are read, or rows of an Irrevocable target are written. Of a gpu.Group in Device the first GPU must be
	// left.
	EndOnLostGPU bool
	// Timeline records the spans of work in Report.Spans.
	Timeline bool
	// Discard runs everything, including encoding and writing, and then removes the output instead
	// of renaming it. It is for measurements.
	Discard bool
	// Overwrite replaces an existing output, whatever the job says.
	Overwrite bool
	// Leftover, if set, is called for every file and folder that the run creates and would remove
	// after an error, with a function that removes it. A caller that ends the process in the middle
	// of a run can call these functions, the last one first.
	Leftover func(remove func() error)
	// Progress, if set, is called with the state of the run every Interval (0 means a second), on a
	// goroutine of its own.
	Progress func(*Report)
	Interval time.Duration
}

// For returns the options, completed with the job's settings.
func (o Options) For(m job.Memory) Options {
	o.HostMemory = cmp.Or(o.HostMemory, int64(m.Host))
	o.DeviceMemory = cmp.Or(o.DeviceMemory, int64(m.Device))
	o.SpillDir = cmp.Or(o.SpillDir, m.Spill.Dir)
	o.SpillLimit = cmp.Or(o.SpillLimit, int64(m.Spill.Limit))
	o.SpillCompression = cmp.Or(o.SpillCompression, m.Spill.Compression)
	return o
}

// The names of the devices that a run can ask for.
const (
	Auto = "auto" // the device that pipeline.Plan.ChooseDevice returns
	Host = "host" // the CPU
	CUDA = "cuda" // the first GPU, or an error if there is none; "cuda:1" is the second
)

// All after "cuda:" means all GPUs.
const All = "all"

// WithHost after the name of a device, as in "auto+host", lets lanes of the CPU work together
// with GPUs.
const WithHost = "+" + Host

// The values of Options.HostTakes for tests.
const (
	HostTakesAny = "any"
	HostTakesAll = "all"
)

// Chooses reports whether the plan chooses the device of a run (Auto).
func (o Options) Chooses() bool {
	return o.Device == nil && (o.Use == "" || o.Use == Auto || o.Use == Auto+WithHost)
}

// The values of Options.JoinFilters, Options.FilterFirst and Options.Exchanges besides Auto.
const (
	Always = "always"
	Never  = "never"
)

// Choice is the device of a run, and the reason.
type Choice struct {
	Device string `json:"device"` // as Options.Use names it: "host", "cuda"
	// GPUs is the number of GPUs if the run uses several, otherwise 0.
	GPUs int    `json:"gpus,omitempty"`
	Why  string `json:"why"`
	// Host and CUDA are the estimated times of the run on each device, if the choice depended on
	// them.
	Host time.Duration `json:"host_estimate_ns,omitempty"`
	CUDA time.Duration `json:"cuda_estimate_ns,omitempty"`
}

// Of returns options that ask for the device of the choice, where they leave it open.
func (c *Choice) Of(o Options) Options {
	switch {
	case !o.Chooses():
	case c.Device == Host:
		o.Use, o.GPUs = Host, 0
	case c.GPUs > 0:
		o.GPUs = c.GPUs
	}
	return o
}

// String returns a line for people.
func (c *Choice) String() string { return fmt.Sprintf("device %s: %s", c.Device, c.Why) }
