// Package execution is what a run is asked for and what it tells: options, where the rows
// go, and the report. Package pipeline has all of it under its own names.
package execution

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/job"
)

// Options say how to run a plan. The zero value uses the whole machine.
type Options struct {
	// Device runs the stages. When it is nil the run opens one of its own: Use
	// says which, Auto, Host, CUDA or another GPU as "cuda:1"; "" is Auto.
	Device gpu.Device
	Use    string
	// StrideSize is the bytes of a column of 8-byte values in a stride of the
	// run's own device; 0 chooses.
	StrideSize int64
	// Threads bounds the cores of the run's own device and of decoding and
	// encoding; 0 means GOMAXPROCS.
	Threads int
	// HostMemory is the budget of the run's own device in bytes; 0 means what
	// the job says, or else half of what is free.
	HostMemory int64
	// DeviceMemory is the budget of the run's own device when it has memory
	// of its own, as a GPU has; 0 as for HostMemory.
	DeviceMemory int64
	// Timeline keeps the pieces of work for Report.Spans.
	Timeline bool
	// Discard runs everything, encoding and writing too, and then removes the
	// output instead of giving it its name: to measure.
	Discard bool
	// Overwrite replaces an existing output, whatever the job says.
	Overwrite bool
	// Leftover, when set, is given a function for every file and folder that
	// the run makes and would remove after an error, so that a caller who ends
	// the process in the middle of a run can call them, the last one first.
	Leftover func(remove func() error)
	// Progress, when set, is called with the state of the run every Interval
	// (a second when 0), on a goroutine of its own.
	Progress func(*Report)
	Interval time.Duration
}

// For returns the options with what the job says where they say nothing.
func (o Options) For(j *job.Job) Options {
	o.HostMemory = cmp.Or(o.HostMemory, int64(j.Memory.Host))
	o.DeviceMemory = cmp.Or(o.DeviceMemory, int64(j.Memory.Device))
	return o
}

// The devices that a run can ask for by name.
const (
	Auto = "auto" // what pipeline.Plan.ChooseDevice says
	Host = "host" // the CPU
	CUDA = "cuda" // the first GPU, "cuda:1" the second and so on; an error where there is none
)

// Choice is the device that a run takes, and why.
type Choice struct {
	Device string `json:"device"` // as Options.Use names it: "host", "cuda"
	Why    string `json:"why"`
	// Host and CUDA estimate what the run takes on either, where that decided.
	Host time.Duration `json:"host_estimate_ns,omitempty"`
	CUDA time.Duration `json:"cuda_estimate_ns,omitempty"`
}

// String is a line for people.
func (c *Choice) String() string { return fmt.Sprintf("device %s: %s", c.Device, c.Why) }
