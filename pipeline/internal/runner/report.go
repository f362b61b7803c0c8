package runner

import (
	"cmp"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/source"
)

func newActivityReport(a gpu.Activity, link *execution.LinkReport) *execution.ActivityReport {
	if a == (gpu.Activity{}) {
		return nil
	}
	out := &execution.ActivityReport{Launches: a.Launches, Kernels: a.Busy, BytesUp: a.BytesUp, BytesDown: a.BytesDown,
		CopyingUp: a.Up, CopyingDown: a.Down, Decoding: a.Decode, BytesIn: a.BytesIn, CopyingIn: a.In}
	if link != nil {
		out.FractionUp = fraction(a.BytesUp, a.Up, link.Up)
		out.FractionDown = fraction(a.BytesDown, a.Down, link.Down)
	}
	return out
}

// use returns what a finished run kept busy.
func (r *run) use(of gpu.Activity) *execution.Use {
	part := func(busy, whole time.Duration) float64 {
		return float64(busy) / float64(max(whole, 1))
	}
	after := (r.wall - r.ready) * time.Duration(len(r.runs())) // of all devices
	return &execution.Use{Start: r.ready, Cores: part(r.processor, r.wall*time.Duration(r.threads())),
		Decoding: part(of.Decode, after), Kernels: part(of.Busy, after), Up: part(of.Up, after),
		Down: part(of.Down, after), FromDisks: r.fromDisks}
}

func fraction(bytes int64, took time.Duration, rate float64) float64 {
	if took <= 0 || rate <= 0 {
		return 0
	}
	return float64(bytes) / took.Seconds() / rate
}

var stateNames = map[int32]string{stateWaiting: "waiting", stateRunning: "running", stateDone: "done"}

// report returns a snapshot of the run. It may be called while the run is in progress.
func (r *run) report() *execution.Report {
	props := r.device.Properties()
	out := &execution.Report{Job: r.plan.Name, Device: props.Name, Kind: props.Kind, Choice: r.choice,
		Threads: r.threads(), Wall: cmp.Or(r.wall, time.Since(r.started)), PeakRSS: peakRSS(), Link: r.link,
		Spans: r.spans, SpansLeftOut: r.host.leftOut}
	var total gpu.Activity
	activity := func(leases ...*gpu.Lease) *execution.ActivityReport {
		var sum gpu.Activity
		for _, l := range leases {
			if l != nil {
				sum.Add(l.Activity())
			}
		}
		total.Add(sum)
		return newActivityReport(sum, r.link)
	}
	_, out.PeakHost = r.device.HostBudget().Used()
	if r.device.HostBudget() != r.device.Budget() {
		_, out.PeakDevice = r.device.Budget().Used()
	}
	busy := r.busyTimes(out.Wall)
	others := map[*physical.Stage][]*opRun{} // of the other devices
	for _, each := range r.runs()[1:] {
		for _, o := range each.ops {
			others[o.Stage] = append(others[o.Stage], o)
		}
	}
	ranks := r.world().others()
	for _, t := range r.ops {
		s := r.stage(t, busy, activity)
		var cpu execution.Share
		if t.hostLease != nil {
			cpu = t.shares[byCPU].report(t.crew.cpu)
		}
		for _, o := range others[t.Stage] {
			s.Add(o.run.stage(o, busy, activity))
			if o.hostLease != nil {
				cpu.Add(o.shares[byCPU].report(o.crew.cpu))
			}
		}
		if t.hostLease != nil && len(s.Shares) > 0 {
			s.Shares = append(s.Shares, cpu)
		}
		for _, each := range ranks {
			each.addTo(&s, r.world().at[t.Stage])
		}
		out.Spill.Add(s.Spill)
		out.Stages = append(out.Stages, s)
	}
	if len(r.runs()) > 1 && discrete(r.device) {
		for _, each := range r.runs() {
			out.Devices = append(out.Devices, each.deviceReport())
		}
		shareRows(out.Devices)
	}
	if len(ranks) > 0 {
		out.Devices = append(out.Devices, r.deviceReport())
		for _, each := range ranks {
			out.Devices = append(out.Devices, each.Device)
		}
		shareRows(out.Devices)
	}
	for _, t := range r.targets {
		out.Outputs = append(out.Outputs, execution.OutputReport{Target: t.Describe()})
	}
	written := 0
	for _, s := range r.sinks {
		if s.Expect != nil {
			out.Expectations = append(out.Expectations, s.expectation())
			continue
		}
		o := &out.Outputs[written]
		if written++; s.sink == nil {
			continue
		}
		st, m := s.sink.Stats(), &s.metrics
		o.Rows, o.Bytes, o.Files = st.Rows, st.Bytes, st.Files
		o.Busy, o.Wait = time.Duration(m.busy.Load()), time.Duration(m.waitIn.Load())
		_, o.Peak = s.lease.Used()
		o.BytesOfDevice, o.ForCPU = st.BytesOfDevice, st.ForCPU
		leases := []*gpu.Lease{s.lease}
		for _, d := range s.devices {
			leases = append(leases, d.Lease)
		}
		o.Activity = activity(leases...)
	}
	out.Total()
	out.Activity = newActivityReport(total, r.link)
	if r.wall > 0 {
		out.Use = r.use(total)
	}
	return out
}

// shareRows tells the part of the rows of each device.
func shareRows(devices []execution.DeviceReport) {
	all := int64(0)
	for _, d := range devices {
		all += d.Rows
	}
	for i := range devices {
		devices[i].Share = float64(devices[i].Rows) / float64(max(all, 1))
	}
}

// deviceReport returns the part of the run's device, one of several.
func (r *run) deviceReport() execution.DeviceReport {
	out := execution.DeviceReport{Device: r.deviceName()}
	_, out.Peak = r.device.Budget().Used()
	var sum gpu.Activity
	for _, o := range r.ops {
		out.Rows += o.rowsOut.Load()
		for _, l := range []*gpu.Lease{o.lease, r.spill.Lease(o.lease)} {
			if l != nil {
				sum.Add(l.Activity())
			}
		}
	}
	for _, s := range r.first().sinks {
		for _, d := range s.devices {
			if d.Device == r.device {
				sum.Add(d.Lease.Activity())
			}
		}
	}
	out.Activity = newActivityReport(sum, r.link)
	return out
}

// stage returns the report of a stage on the device of the run.
func (r *run) stage(t *opRun, busy map[*account]time.Duration,
	activity func(...*gpu.Lease) *execution.ActivityReport) execution.StageReport {
	m, props := &t.metrics, r.device.Known()
	s := execution.StageReport{
		Step: t.Step, Kind: t.Kind(), Device: props.ID, State: stateNames[m.state.Load()],
		RowsIn: m.rowsIn.Load(), RowsOut: m.rowsOut.Load(), BytesOut: m.bytesOut.Load(),
		Busy: busy[t.account], Wait: time.Duration(m.waitIn.Load()), Blocked: time.Duration(m.waitOut.Load()),
		Estimate: t.Rows, Dropped: m.dropped.Load(), Iterations: m.iterations.Load(),
	}
	s.Began, s.Ended = time.Duration(m.began.Load()), time.Duration(m.ended.Load())
	_, s.Peak = t.lease.Used()
	s.Spill = r.spill.Stats(t.lease)
	s.Activity = activity(t.lease, t.hostLease, r.spill.Lease(t.lease))
	s.Shares = r.shares(t)
	if t.scan != nil && r.group == nil {
		s.Device = execution.Host // it decodes; the copies are in the activity
	}
	if c, ok := t.op.(operators.Choosing); ok {
		s.Choice = c.Choice()
	}
	if props.Kind != execution.Host {
		s.ByCPU = physical.Hosted(t.Spec)
	}
	if rd := t.reader.Load(); rd != nil {
		p := (*rd).Progress()
		s.Scan = &p
		s.RowsIn = p.RowsRead
		s.Busy += p.Decode
	} else if t.scan != nil && r.at == 0 {
		p := unread(t.scan)
		s.Scan = &p
	}
	return s
}

// shares returns the work of the device on the parts of an operator; nil if there were none, and no other device.
func (r *run) shares(o *opRun) []execution.Share {
	own := o.shares[byDevice].report(r.device)
	switch {
	case own.Partitions+o.shares[byCPU].items.Load() > 0:
		return []execution.Share{own}
	case r.group != nil:
		return []execution.Share{{Device: r.deviceName(), RowsOut: o.rowsOut.Load(),
			Busy: time.Duration(o.busy.Load())}}
	}
	return nil
}

// leases returns the leases that the work of the device in this run belongs to.
func (r *run) leases() []*gpu.Lease {
	var out []*gpu.Lease
	for _, s := range r.first().sinks {
		out = append(out, s.lease)
		for _, d := range s.devices {
			out = append(out, d.Lease)
		}
	}
	for _, o := range r.ops {
		out = append(out, o.lease)
		if o.hostLease != nil {
			out = append(out, o.hostLease)
		}
		if l := r.spill.Lease(o.lease); l != nil {
			out = append(out, l)
		}
	}
	return out
}

// unread returns the progress of a scan that has not begun: everything is left to read.
func unread(s *physical.Scan) source.Progress {
	p := source.Progress{RowsTotal: s.Table.Rows()}
	for _, c := range s.Columns {
		p.BytesTotal += s.Table.Stats(c).Bytes
	}
	return p
}

// watch calls the progress function at intervals until the returned function is called.
// That function waits for a call that is in progress.
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
