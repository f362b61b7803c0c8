package runner

import (
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
)

// metrics count the rows that pass through an operator. Times are nanoseconds, summed
// over lanes.
type metrics struct {
	rowsIn, rowsOut, bytesOut atomic.Int64
	dropped                   atomic.Int64 // rows that filters of joins have dropped
	busy, waitIn, waitOut     atomic.Int64
	began, ended              atomic.Int64 // of the work, on the run's clock; began is 0 before
	state                     atomic.Int32
	iterations                atomic.Int64 // of a recursion
}

// The states of an operator.
const (
	stateWaiting int32 = iota
	stateRunning
	stateDone
)

// meter charges the time of one goroutine to the operators for which it works.
type meter struct {
	run     *run
	current atomic.Pointer[opRun]
	since   atomic.Int64  // start of the time that is not charged yet, on the run's clock
	idled   time.Duration // time without work so far
	// For a timeline: the number of the goroutine, the rows since the last turn, and the latest span, which may become
	// longer.
	worker int
	worked int64
	latest gpu.Span
}

// newMeter returns a meter. The run's reports include it until it is stopped.
func (r *run) newMeter() *meter {
	r = r.whole().first()
	m := &meter{run: r}
	r.metersMu.Lock()
	defer r.metersMu.Unlock()
	if r.meters == nil {
		r.meters = map[*meter]struct{}{}
	}
	r.metered++
	m.worker = r.metered
	r.meters[m] = struct{}{}
	return m
}

// stop ends the last charge.
func (m *meter) stop() {
	m.turn(nil)
	m.flush()
	m.run.metersMu.Lock()
	defer m.run.metersMu.Unlock()
	delete(m.run.meters, m)
}

// turn charges the time from now on to an operator, or to none when o is nil. It returns
// the operator that was charged before.
func (m *meter) turn(o *opRun) (before *opRun) {
	now := int64(time.Since(m.run.started))
	before = m.current.Swap(nil)
	if before != nil {
		before.busy.Add(now - m.since.Load())
		before.worked(m.since.Load(), now)
		m.trace(gpu.Span{Stage: before.Name(), Name: "work", Start: time.Duration(m.since.Load()),
			End: time.Duration(now), Rows: m.worked})
		m.worked = 0
	}
	m.since.Store(now)
	m.current.Store(o)
	return before
}

// worked records when an operator worked.
func (m *metrics) worked(from, to int64) {
	m.began.CompareAndSwap(0, max(from, 1))
	for {
		ended := m.ended.Load()
		if to <= ended || m.ended.CompareAndSwap(ended, to) {
			return
		}
	}
}

// idle charges the time until resume is called to a counter of an operator, as time without work. what is waited for
// is for a timeline.
func (m *meter) idle(o *opRun, counter *atomic.Int64, what func() string) (resume func()) {
	begin := time.Now()
	before := m.turn(nil)
	return func() {
		took := time.Since(begin)
		m.idled += took
		counter.Add(int64(took))
		if m.run.opt.Timeline && took >= shortest {
			end := time.Since(m.run.started)
			m.trace(gpu.Span{Stage: o.Name(), Name: "wait", For: what(), Start: end - took, End: end})
		}
		m.turn(before)
	}
}

// shortest is the least time of a wait on a timeline, and the longest pause between spans that become one.
const shortest = 50 * time.Microsecond

// trace adds a span of the goroutine to the timeline. Work of an operator on one stride after the other becomes one
// span.
func (m *meter) trace(s gpu.Span) {
	if !m.run.opt.Timeline {
		return
	}
	if l := &m.latest; l.Stage == s.Stage && l.For == s.For && s.Start-l.End <= shortest && l.End > 0 {
		l.End, l.Rows = s.End, l.Rows+s.Rows
		return
	}
	s.Start = max(s.Start, m.latest.End) // clocks of a wait are read apart from those of work
	m.flush()
	m.latest = s
}

// flush adds the last span to the timeline.
func (m *meter) flush() {
	if m.latest.End == 0 {
		return
	}
	m.latest.Lane, m.latest.Worker = laneWork, m.worker
	m.run.keepSpan(m.latest)
	m.latest = gpu.Span{}
}

// where returns the name of the operator at work, or of a pipeline.
func (m *meter) where(p *pipelineRun) string {
	if o := m.current.Load(); o != nil {
		return o.Name()
	}
	return p.name()
}

// busyTimes returns the time of work of each operator so far. now is on the run's clock.
func (r *run) busyTimes(now time.Duration) map[*account]time.Duration {
	out := map[*account]time.Duration{}
	for _, each := range r.runs() {
		for _, o := range each.ops {
			out[o.account] = time.Duration(o.busy.Load())
		}
	}
	r.metersMu.Lock()
	defer r.metersMu.Unlock()
	for m := range r.meters {
		since := m.since.Load()
		if o := m.current.Load(); o != nil {
			out[o.account] += max(now-time.Duration(since), 0)
		}
	}
	return out
}
