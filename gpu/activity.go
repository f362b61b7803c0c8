package gpu

import "time"

// Activity is what was done on a device for the holder of a lease, by the
// device's own clock.
type Activity struct {
	Launches int64         // kernels
	Busy     time.Duration // from the start to the end of each primitive, summed
	// BytesUp and BytesDown crossed the link, in Up and Down of device time.
	BytesUp, BytesDown int64
	Up, Down           time.Duration
}

// Add adds another activity.
func (a *Activity) Add(b Activity) {
	a.Launches += b.Launches
	a.Busy += b.Busy
	a.BytesUp += b.BytesUp
	a.BytesDown += b.BytesDown
	a.Up += b.Up
	a.Down += b.Down
}

// Span is one piece of a device's work in time.
type Span struct {
	Lane  string // "set up" of the device and its memory, "copy up", "kernels" or "copy down"
	Stage string // name of the lease it was done for
	Name  string // the primitive
	// Start and End count from the start of the device's clock, which runs once the
	// device is open.
	Start, End time.Duration
	Bytes      int64 // over the link, 0 for kernels
}

// Profiled is a Device that measures what it does.
type Profiled interface {
	Device
	// Activity returns what was done for the leases of a name, up to now: work
	// that is under way may be missing.
	Activity(lease string) Activity
	// Settle waits until everything launched so far has been measured.
	Settle()
	// Spans returns the work done since the device was opened, and its opening, in
	// order of start; the newest are missing when there were too many to keep.
	Spans() []Span
	// Clock returns the device's clock now, to relate spans to other times.
	Clock() time.Duration
	// Link measures the link to the host, once.
	Link() (Link, error)
}

// Link is what was measured between page-locked host memory and a device.
type Link struct {
	// Up, Down and Both are bytes a second: one direction alone, the other, and
	// the sum of both at once.
	Up, Down, Both float64
	// Copy is bytes a second of a copy within device memory, read and written.
	Copy float64
}
