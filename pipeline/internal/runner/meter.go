package runner

import (
	"sync/atomic"
	"time"
)

// metrics count the rows that pass through an operator. Times are nanoseconds, summed
// over lanes.
type metrics struct {
	rowsIn, rowsOut, bytesOut atomic.Int64
	dropped                   atomic.Int64 // rows that filters of joins have dropped
	busy, waitIn, waitOut     atomic.Int64
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
}

// newMeter returns a meter. The run's reports include it until it is stopped.
func (r *run) newMeter() *meter {
	r = r.whole()
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

// turn charges the time from now on to an operator, or to none when o is nil. It returns
// the operator that was charged before.
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

// idle charges the time until resume is called to a counter, as time without work.
func (m *meter) idle(counter *atomic.Int64) (resume func()) {
	begin := time.Now()
	o := m.turn(nil)
	return func() {
		took := time.Since(begin)
		m.idled += took
		counter.Add(int64(took))
		m.turn(o)
	}
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
	for _, o := range r.ops {
		out[o.account] = time.Duration(o.busy.Load())
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
