package runner

import (
	"sync/atomic"
	"time"
)

// metrics count what passes through an operator. Times are nanoseconds, summed
// over lanes.
type metrics struct {
	rowsIn, rowsOut, bytesOut atomic.Int64
	busy, waitIn, waitOut     atomic.Int64
	state                     atomic.Int32
}

// The states of an operator.
const (
	stateWaiting int32 = iota
	stateRunning
	stateDone
)

// meter charges the time of one goroutine to the operators it works for.
type meter struct {
	run     *run
	current atomic.Pointer[opRun]
	since   atomic.Int64 // start of work that current is not charged for, on the run's clock
}

// newMeter returns a meter that the run's reports include until it is stopped.
func (r *run) newMeter() *meter {
	m := &meter{run: r}
	r.metersMu.Lock()
	defer r.metersMu.Unlock()
	if r.meters == nil {
		r.meters = map[*meter]struct{}{}
	}
	r.meters[m] = struct{}{}
	return m
}

// stop ends the last charge.
func (m *meter) stop() {
	m.turn(nil)
	m.run.metersMu.Lock()
	defer m.run.metersMu.Unlock()
	delete(m.run.meters, m)
}

// turn charges the time from now on to an operator, to none when o is nil, and
// returns the operator that was charged before.
func (m *meter) turn(o *opRun) (before *opRun) {
	now := int64(time.Since(m.run.started))
	before = m.current.Swap(nil)
	if before != nil {
		before.busy.Add(now - m.since.Load())
	}
	m.since.Store(now)
	m.current.Store(o)
	return before
}

// idle charges the time until the returned function is called to a counter, as
// time in which no work is done.
func (m *meter) idle(counter *atomic.Int64) (resume func()) {
	begin := time.Now()
	o := m.turn(nil)
	return func() {
		counter.Add(int64(time.Since(begin)))
		m.turn(o)
	}
}

// where names the operator at work, or else a pipeline.
func (m *meter) where(p *pipelineRun) string {
	if o := m.current.Load(); o != nil {
		return o.Name()
	}
	return p.name()
}

// busyTimes returns the time of work of each operator so far, at a time on the
// run's clock.
func (r *run) busyTimes(now time.Duration) map[*opRun]time.Duration {
	out := map[*opRun]time.Duration{}
	for _, o := range r.ops {
		out[o] = time.Duration(o.busy.Load())
	}
	r.metersMu.Lock()
	defer r.metersMu.Unlock()
	for m := range r.meters {
		since := m.since.Load()
		if o := m.current.Load(); o != nil {
			out[o] += max(now-time.Duration(since), 0)
		}
	}
	return out
}
