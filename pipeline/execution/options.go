// Package execution has the interface of a run: its options, the target of its rows, and
// its report. Package pipeline has all of it under names of its own.
package execution

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/job"
)

// Options configure a run. The zero value uses the whole machine.
type Options struct {
	// Device runs the stages. If it is nil, the run opens a device of its own, which Use
	// names: Auto, Host, CUDA, or another GPU as "cuda:1". "" is Auto. With BesideHost behind the name of a
	// GPU or Auto, also if Device is set, lanes of the CPU take partitions of joins and group-bys that went out of
	// core, when that is faster by what was measured in the run.
	Device gpu.Device
	Use    string
	// Alone says that the process uses no other GPU than that of its runs: of several, only this one is made visible to
	// the driver, by CUDA_VISIBLE_DEVICES, because the driver takes some 0.3 s to start each. It changes nothing if the
	// driver has started.
	Alone bool
	// StrideSize is the bytes of a column of 8-byte values in a stride of the run's own
	// device; 0 means the default.
	StrideSize int64
	// Threads bounds the cores of the run's own device and of decoding and
	// encoding; 0 means GOMAXPROCS. At most four for each core of the machine are possible, or 64.
	Threads int
	// HostMemory is the budget of the run's own device in bytes. 0 means the job's
	// setting, or else half of the free memory.
	HostMemory int64
	// DeviceMemory is the budget of the run's own device if it has memory of its own, as
	// a GPU has. 0 means the job's setting, or else the default of the device.
	DeviceMemory int64
	// SpillDir is the folder for the files of rows that do not fit memory: "" is the job's
	// setting, or else $TMPDIR or /var/tmp; spill.None makes none, and what does not fit is
	// refused. SpillLimit is the most bytes of these files; 0 is the job's setting, or else
	// four fifths of the free space. SpillCompression is "lz4" or "none"; "" is the job's
	// setting, or else lz4.
	SpillDir         string
	SpillLimit       int64
	SpillCompression string
	// SpillAlways spills all rows that can, as soon as there are some. It is for tests.
	SpillAlways bool
	// JoinFilters says which joins drop rows of the scans of their probe sides, once their
	// build sides are complete: those of which the plan expects a gain (Auto, the default), all
	// that can (Always), or none (Never).
	JoinFilters string
	// BesideTakes says what lanes of the CPU take when they work with a GPU: "" by measured times; BesideAny partitions
	// whenever a lane is free, which the GPU takes back when it has nothing else to do; BesideAll all that they can,
	// before the GPU takes any. The others are for tests.
	BesideTakes string
	// Timeline keeps the spans of work for Report.Spans.
	Timeline bool
	// Discard runs everything, including encoding and writing, and then removes the
	// output instead of giving it its name. It is for measurements.
	Discard bool
	// Overwrite replaces an existing output, whatever the job says.
	Overwrite bool
	// Leftover, when set, is called with a function for every file and folder that the
	// run makes and would remove after an error. A caller that ends the process in the
	// middle of a run can call these functions, the last one first.
	Leftover func(remove func() error)
	// Progress, when set, is called with the state of the run every Interval (0 means a
	// second), on a goroutine of its own.
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
	CUDA = "cuda" // the first GPU, "cuda:1" the second and so on; an error where there is none
)

// BesideHost behind the name of a device lets lanes of the CPU work together with a GPU, as in "auto+host".
const BesideHost = "+" + Host

// The values of Options.BesideTakes for tests.
const (
	BesideAny = "any"
	BesideAll = "all"
)

// Chooses reports whether the plan chooses the device of a run (Auto).
func (o Options) Chooses() bool {
	return o.Device == nil && (o.Use == "" || o.Use == Auto || o.Use == Auto+BesideHost)
}

// The values of Options.JoinFilters besides Auto.
const (
	Always = "always"
	Never  = "never"
)

// Choice is the device of a run, and the reason.
type Choice struct {
	Device string `json:"device"` // as Options.Use names it: "host", "cuda"
	Why    string `json:"why"`
	// Host and CUDA are the estimates of the run's time on each device, if they decided.
	Host time.Duration `json:"host_estimate_ns,omitempty"`
	CUDA time.Duration `json:"cuda_estimate_ns,omitempty"`
}

// String returns a line for people.
func (c *Choice) String() string { return fmt.Sprintf("device %s: %s", c.Device, c.Why) }
