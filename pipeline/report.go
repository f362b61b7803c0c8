package pipeline

import (
	"time"

	"github.com/gstream/gstream/source"
)

// Report says what a run did, or how far it has come.
type Report struct {
	Job     string        `json:"job,omitempty"`
	Device  string        `json:"device"`
	Threads int           `json:"threads"`
	Wall    time.Duration `json:"wall_ns"`
	// PeakHost and PeakDevice are the most bytes reserved from the budgets;
	// PeakRSS is the most memory the whole process has held.
	PeakHost   int64         `json:"peak_host_bytes"`
	PeakDevice int64         `json:"peak_device_bytes"`
	PeakRSS    int64         `json:"peak_rss_bytes"`
	Done       bool          `json:"done"` // the output is complete
	Stages     []StageReport `json:"stages"`
	Output     OutputReport  `json:"output"`
}

// StageReport is one stage; inputs come before their consumers.
type StageReport struct {
	Step     string        `json:"step"`
	Kind     string        `json:"kind"`
	Device   string        `json:"device"`
	State    string        `json:"state"` // "waiting", "running" or "done"
	RowsIn   int64         `json:"rows_in"`
	RowsOut  int64         `json:"rows_out"`
	BytesOut int64         `json:"bytes_out"`
	Busy     time.Duration `json:"busy_ns"`
	// Wait is the time without input, or for a scan the time until decoders had
	// a stride; Blocked the time until the next stage took one.
	Wait     time.Duration `json:"wait_ns"`
	Blocked  time.Duration `json:"blocked_ns"`
	Peak     int64         `json:"peak_bytes"`
	Estimate float64       `json:"estimated_rows"`
	// Scan is the progress of a scan, nil for other stages. Until the scan has
	// begun its totals are estimates.
	Scan *source.Progress `json:"scan,omitempty"`
}

// OutputReport is what the sink has written.
type OutputReport struct {
	Target string        `json:"target"`
	Rows   int64         `json:"rows"`
	Bytes  int64         `json:"bytes"`
	Files  int64         `json:"files"`
	Busy   time.Duration `json:"busy_ns"`
	Wait   time.Duration `json:"wait_ns"`
	Peak   int64         `json:"peak_bytes"`
}

var stateNames = map[int32]string{stateWaiting: "waiting", stateRunning: "running", stateDone: "done"}

// report takes a snapshot of the run. It may be called while the run goes on.
func (r *run) report() *Report {
	props := r.device.Properties()
	out := &Report{Job: r.plan.job.Name, Device: props.Name, Threads: props.Cores, Wall: time.Since(r.started), PeakRSS: peakRSS()}
	_, out.PeakHost = r.device.HostBudget().Used()
	if r.device.HostBudget() != r.device.Budget() {
		_, out.PeakDevice = r.device.Budget().Used()
	}
	for _, t := range r.ops {
		m := &t.metrics
		s := StageReport{
			Step: t.step, Kind: t.kind, Device: props.Kind, State: stateNames[m.state.Load()],
			RowsIn: m.rowsIn.Load(), RowsOut: m.rowsOut.Load(), BytesOut: m.bytesOut.Load(),
			Busy: m.busyTime(out.Wall), Wait: time.Duration(m.waitIn.Load()), Blocked: time.Duration(m.waitOut.Load()),
			Estimate: t.rows,
		}
		_, s.Peak = t.lease.Used()
		if rd := t.reader.Load(); rd != nil {
			p := (*rd).Progress()
			s.Scan = &p
			s.RowsIn = p.RowsRead
		} else if t.table != nil {
			p := t.unread()
			s.Scan = &p
		}
		out.Stages = append(out.Stages, s)
	}
	out.Output.Target = r.plan.output.Describe()
	if r.sink != nil && r.sink.sink != nil {
		st := r.sink.sink.Stats()
		m := &r.sink.metrics
		out.Output.Rows, out.Output.Bytes, out.Output.Files = st.Rows, st.Bytes, st.Files
		out.Output.Busy, out.Output.Wait = time.Duration(m.busy.Load()), time.Duration(m.waitIn.Load())
		_, out.Output.Peak = r.sink.lease.Used()
	}
	return out
}

// unread is the progress of a scan that has not begun: everything is to be read.
func (s *stage) unread() source.Progress {
	p := source.Progress{RowsTotal: s.table.Rows()}
	for _, c := range s.columns {
		p.BytesTotal += s.table.Stats(c).Bytes
	}
	return p
}

// watch calls the progress function until the returned function is called,
// which waits for a call that is under way.
func (r *run) watch() (stop func()) {
	if r.opt.Progress == nil {
		return func() {}
	}
	interval := r.opt.Interval
	if interval <= 0 {
		interval = time.Second
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.opt.Progress(r.report())
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}
