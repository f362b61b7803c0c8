package cuda

import (
	"slices"
	"sort"
	"sync"
	"time"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// maxSpans bounds the spans that are kept.
var maxSpans = 1 << 17 // smaller in tests

// These are the lanes of the device's timeline.
const (
	laneSetUp   = "set up"
	laneUp      = "copy up"
	laneKernels = "kernels"
	laneDown    = "copy down"
	lanePages   = "decode pages"
	laneIn      = "copy from peers"
	laneActive  = "active kernels"
)

// trace measures the device's work with events. It adds up the work of each lease and of the
// device.
type trace struct {
	dev    *Device
	base   event     // zero of the device's clock
	opened time.Time // host time of base

	mu    sync.Mutex
	total gpu.Activity
	spans []leaseSpan // the newest spans; a ring once there are maxSpans
	added int         // total number of spans, including those that the ring has lost
}

// leaseSpan is a span of work, and the lease for which the work was done.
type leaseSpan struct {
	gpu.Span
	lease *gpu.Lease
}

func newTrace(d *Device) (*trace, error) {
	base, err := d.record(d.compute)
	if err != nil {
		return nil, err
	}
	if err := d.wait(base); err != nil {
		return nil, err
	}
	return &trace{dev: d, base: base, opened: time.Now()}, nil
}

// setUpSpan is a phase of the set-up of the device or its memory, measured with the host's clock.
type setUpSpan struct {
	name       string
	begin, end time.Time
}

// setsUp records the start of a phase of the set-up. It returns a function that records the end.
func (d *Device) setsUp(name string) func() {
	s := setUpSpan{name: name, begin: time.Now()}
	return func() {
		s.end = time.Now()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.setUp = append(d.setUp, s)
	}
}

// ran records the end of a phase of a primitive. The phase began with the event start.
func (t *trace) ran(o *op, start event) {
	stop, err := t.dev.record(t.dev.compute)
	if err != nil {
		t.dev.recycle(start)
		return
	}
	t.measure(start, stop, leaseSpan{gpu.Span{Lane: laneKernels, Name: o.span()}, o.lease}, o.launches, nil)
}

// decoded records the decoding of a stride's columns in pages, whose events are set.
func (t *trace) decoded(w *decoding) {
	t.measure(w.begin, w.end, leaseSpan{gpu.Span{Lane: lanePages, Name: "decode"}, w.lease}, 0, nil)
}

// moved records a transfer whose events are set. It calls done once the transfer has ended.
func (t *trace) moved(x *transfer, lane string, done func()) {
	t.measure(x.start, x.stop, leaseSpan{gpu.Span{Lane: lane, Name: x.name, Bytes: x.bytes}, x.lease}, 0, done)
}

// measure adds a span once its end has happened.
func (t *trace) measure(start, stop event, s leaseSpan, launches int64, done func()) {
	to := t.dev.later.kernels
	switch s.Lane {
	case laneUp, laneDown:
		to = t.dev.later.copies
	case laneIn:
		to = t.dev.later.received
	}
	after(to, stop, func(err error) {
		if done != nil {
			done()
		}
		if err == nil {
			s.Start = t.between(t.base, start)
			s.End = s.Start + t.between(start, stop)
			t.add(s, launches)
		}
		t.dev.recycle(start, stop)
	})
}

func (t *trace) between(from, to event) time.Duration {
	var ms float32
	if t.dev.ctx.do(cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), uintptr(from), uintptr(to)) != nil {
		return 0
	}
	return time.Duration(float64(ms) * float64(time.Millisecond))
}

func (t *trace) add(s leaseSpan, launches int64) {
	s.Stage = s.lease.Name()
	a := gpu.Activity{Launches: launches}
	switch took := s.End - s.Start; s.Lane {
	case laneUp:
		a.Up, a.BytesUp = took, s.Bytes
	case laneDown:
		a.Down, a.BytesDown = took, s.Bytes
	case lanePages:
		a.Decode = took
	case laneIn:
		a.In, a.BytesIn = took, s.Bytes
	default:
		a.Busy = took
	}
	s.lease.AddActivity(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total.Add(a)
	if len(t.spans) < maxSpans {
		t.spans = append(t.spans, s)
	} else {
		t.spans[t.added%len(t.spans)] = s
	}
	t.added++
}

func (t *trace) close() { t.dev.recycle(t.base) }

// Settle implements gpu.Profiled. It waits for all deferred calls.
func (d *Device) Settle() {
	if d.Wait() != nil {
		return
	}
	for _, to := range []chan deferred{d.later.copies, d.later.kernels, d.later.received} {
		done := make(chan struct{})
		after(to, 0, func(error) { close(done) })
		<-done
	}
}

// Activity implements gpu.Profiled.
func (d *Device) Activity() gpu.Activity {
	if d.Wait() != nil {
		return gpu.Activity{}
	}
	d.trace.mu.Lock()
	defer d.trace.mu.Unlock()
	return d.trace.total
}

// Spans implements gpu.Profiled.
func (d *Device) Spans(of ...*gpu.Lease) []gpu.Span {
	if d.Wait() != nil {
		return nil
	}
	d.Settle()
	var out []gpu.Span
	d.trace.mu.Lock()
	defer d.trace.mu.Unlock()
	for _, s := range d.trace.spans {
		if len(of) == 0 || slices.Contains(of, s.lease) {
			out = append(out, s.Span)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.setUp {
		out = append(out, gpu.Span{Lane: laneSetUp, Stage: laneSetUp, Name: s.name, Start: s.begin.Sub(d.trace.opened),
			End: s.end.Sub(d.trace.opened)})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Start < out[j].Start })
	return out
}

// Clock implements gpu.Profiled.
func (d *Device) Clock() time.Duration {
	if d.Wait() != nil {
		return 0
	}
	return time.Since(d.trace.opened)
}
