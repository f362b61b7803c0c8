package gpu

import (
	"sync"
	"time"
)

// Activity is the work that a device did for a lease, measured by the device's own clock.
type Activity struct {
	Launches int64         // kernels
	Busy     time.Duration // sum over primitives of the time from start to end
	// BytesUp and BytesDown are the bytes copied over the link; Up and Down are the
	// device times of these copies.
	BytesUp, BytesDown int64
	Up, Down           time.Duration
	Decode             time.Duration // device time in which columns in pages were decoded
	// BytesIn are the bytes copied from other devices, In the device time of these copies.
	BytesIn int64
	In      time.Duration
}

// Add adds another activity.
func (a *Activity) Add(b Activity) {
	a.Launches += b.Launches
	a.Busy += b.Busy
	a.BytesUp += b.BytesUp
	a.BytesDown += b.BytesDown
	a.Up += b.Up
	a.Down += b.Down
	a.Decode += b.Decode
	a.BytesIn += b.BytesIn
	a.In += b.In
}

// activityCounter is an activity that several goroutines add to.
type activityCounter struct {
	mu  sync.Mutex
	sum Activity
}

// AddActivity adds work that a device did for the lease. Only devices call it.
func (l *Lease) AddActivity(a Activity) {
	l.activity.mu.Lock()
	defer l.activity.mu.Unlock()
	l.activity.sum.Add(a)
}

// Activity returns the work done for the lease so far. Work in progress may be missing. It is zero
// on a device that does not measure.
func (l *Lease) Activity() Activity {
	l.activity.mu.Lock()
	defer l.activity.mu.Unlock()
	return l.activity.sum
}

// Span is one interval of a device's work.
type Span struct {
	// Lane is "set up" of the device and its memory, "copy up", "decode pages", "kernels", "copy down", "copy from
	// peers", or "active kernels" that wait for memory to change.
	Lane  string
	Stage string // name of the lease
	Name  string // the primitive, or a part of it such as "partition, move"
	// Start and End count from the start of the device's clock, which runs once the
	// device is open.
	Start, End time.Duration
	Bytes      int64 // over the link, 0 for kernels
	// Worker numbers the goroutine that did the work, from 1; 0 if it does not matter. Rows are the rows that an
	// operator was given. For is what the goroutine waited for; it is empty for work.
	Worker int
	Rows   int64
	For    string
}

// Profiled is a Device that measures its work.
type Profiled interface {
	Device
	// Activity returns the work done for all leases since the device was opened.
	// Lease.Activity has the share of one lease.
	Activity() Activity
	// Settle waits until all work launched so far has been measured.
	Settle()
	// Spans returns the work done for the given leases, or for all leases if none is given, and the
	// set-up of the device, ordered by start. A device keeps a limited number of spans; the oldest
	// may be missing.
	Spans(of ...*Lease) []Span
	// Clock returns the current time of the device's clock, to relate spans to other
	// times.
	Clock() time.Duration
	// Link measures the link to the host. It measures once and caches the result.
	Link() (Link, error)
}

// Link has the measured speeds between page-locked host memory and a device.
type Link struct {
	// Up is the rate to the device and Down the rate from the device, each alone, in bytes per
	// second. Both is the sum of the rates in both directions at once.
	Up   float64 `json:"up"`
	Down float64 `json:"down"`
	Both float64 `json:"both"`
	// Copy is the rate of a copy within device memory, bytes read plus bytes written per second.
	Copy float64 `json:"copy"`
}

// SpansSince returns the spans of a device on a clock that started at a time (Profiled). Their lanes begin with prefix.
func SpansSince(d Profiled, start time.Time, prefix string, of ...*Lease) []Span {
	// The device's clock starts when the device is opened, before or after that time.
	offset := time.Since(start) - d.Clock()
	spans := d.Spans(of...)
	for i := range spans {
		s := &spans[i]
		s.Start, s.End, s.Lane = s.Start+offset, s.End+offset, prefix+s.Lane
	}
	return spans
}
