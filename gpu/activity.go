package gpu

import (
	"sync"
	"time"
)

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

// activityCounter is an activity that several goroutines add to.
type activityCounter struct {
	mu  sync.Mutex
	sum Activity
}

// AddActivity counts what a device has done for the holder of the lease. Only devices
// call it.
func (l *Lease) AddActivity(a Activity) {
	l.activity.mu.Lock()
	defer l.activity.mu.Unlock()
	l.activity.sum.Add(a)
}

// Activity returns what was done for the holder of the lease, up to now: work that
// is under way may be missing. It is zero on a device that does not measure.
func (l *Lease) Activity() Activity {
	l.activity.mu.Lock()
	defer l.activity.mu.Unlock()
	return l.activity.sum
}

// Span is one piece of a device's work in time.
type Span struct {
	Lane  string // "set up" of the device and its memory, "copy up", "kernels" or "copy down"
	Stage string // name of the lease it was done for
	Name  string // the primitive, or a piece of it as "partition, move"
	// Start and End count from the start of the device's clock, which runs once the
	// device is open.
	Start, End time.Duration
	Bytes      int64 // over the link, 0 for kernels
}

// Profiled is a Device that measures what it does.
type Profiled interface {
	Device
	// Activity returns what was done for all leases together since the device was
	// opened; Lease.Activity has the share of each.
	Activity() Activity
	// Settle waits until everything launched so far has been measured.
	Settle()
	// Spans returns the work done for some leases, for all when none is named, and
	// the set-up of the device, in order of start. The oldest are missing when there
	// were too many to keep.
	Spans(of ...*Lease) []Span
	// Clock returns the device's clock now, to relate spans to other times.
	Clock() time.Duration
	// Link measures the link to the host, once.
	Link() (Link, error)
}

// Link is what was measured between page-locked host memory and a device.
type Link struct {
	// Up, Down and Both are bytes a second: one direction alone, the other, and
	// the sum of both at once.
	Up   float64 `json:"up"`
	Down float64 `json:"down"`
	Both float64 `json:"both"`
	// Copy is bytes a second of a copy within device memory, read and written.
	Copy float64 `json:"copy"`
}
