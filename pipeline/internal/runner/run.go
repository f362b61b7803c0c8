package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/transfer"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/class"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/sink"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/spill"
)

// channelDepth is the number of strides that may wait between two goroutines of a run.
const channelDepth = 1

// run is one execution of a plan.
type run struct {
	plan         *physical.Plan
	targets      []execution.Target // of the outputs that are written
	opt          execution.Options
	device       gpu.Device
	group        *group            // of the runs of several devices; nil for a run on one
	at           int               // position in the group
	opened       gpu.Device        // to close at the end; nil for a device of the caller
	coprocessor  gpu.Device        // the CPU, if its lanes work together with GPUs; otherwise nil
	choice       *execution.Choice // nil for a device of the caller
	started      time.Time
	ctx          context.Context
	cancel       context.CancelCauseFunc
	ops          []*opRun // inputs before their consumers
	scans        []*pipelineRun
	materialized map[*physical.Stage]*materialized // by the stages that hold rows
	recursions   []*recursion
	iteration    *iteration // that this is the run of; nil for the run of a plan
	// loops are the recursions on which stages depend. accounts has those of the stages of iterations.
	loops    map[*physical.Stage]map[*physical.Stage]bool
	accounts map[*physical.Stage]*account
	spill    *spill.Store
	frugal   bool  // see frugal.go
	denied   error // of the run before a frugal one
	// slots bounds the decoding threads of scans. With more threads, decoding would keep the
	// goroutine that feeds the GPU from running.
	slots   chan struct{}
	sinks   []*sinkRun // of the plan's outputs, once there is one
	crewsMu sync.Mutex
	crews   map[*physical.Stage]*crew
	// meters of the goroutines at work.
	metersMu sync.Mutex
	metered  int // meters so far
	meters   map[*meter]struct{}
	// link and spans are read at the end from a device that measures. wall is the time
	// until then.
	wall  time.Duration
	ready time.Duration // when the device was ready, by the run's clock
	// The processor time of the process and the bytes that it has read from disks: until the run began, then since.
	processor time.Duration
	fromDisks int64
	link      *execution.LinkReport
	spans     []gpu.Span
	host      hostSpans
}

// Run executes a plan and writes the rows of its outputs to targets. It returns when every goroutine has ended
// and all memory is released. After a success all outputs are complete. After an error there is none, and the report
// tells how far the run got. Errors match their class by errors.Is.
//
// If there is a GPU that cannot be started, a run that does not ask for a particular device logs a
// warning and uses the CPU. A run that is denied memory logs a warning and starts again as a frugal
// run, and a run that loses a GPU starts again without it.
func Run(ctx context.Context, p *physical.Plan, targets []execution.Target,
	opt execution.Options) (*execution.Report, error) {
	if opt.Ranks != nil { // all ranks would have to start again
		report, err := runOnce(ctx, p, targets, opt, nil)
		return report, class.Mark(ctx, err)
	}
	report, err := runOnTheRest(ctx, p, targets, opt)
	if !errors.Is(err, cuda.ErrUnusable) {
		return report, class.Mark(ctx, err)
	}
	if want, _ := parseDevice(opt.Use); want.kind == execution.CUDA {
		return report, &job.Diagnostic{Msg: err.Error()}
	}
	warnOfCPU(err)
	opt.Device, opt.Use = nil, execution.Host
	if report, err = runOrAgain(ctx, p, targets, opt); report != nil {
		report.Choice = &execution.Choice{Device: execution.Host, Why: "the GPU cannot be used"}
	}
	return report, class.Mark(ctx, err)
}

func runOnce(ctx context.Context, p *physical.Plan, targets []execution.Target, opt execution.Options,
	denied error) (*execution.Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if opt.SpillDir != "" {
		if err := spill.CheckDir(opt.SpillDir); err != nil {
			return nil, err
		}
	}
	r := &run{plan: p, targets: targets, opt: opt, device: opt.Device, frugal: denied != nil, denied: denied,
		started: time.Now(), ctx: ctx, cancel: cancel}
	r.processor, r.fromDisks = processUse()
	if r.device == nil {
		choice, err := ChooseDevice(p, targets, opt)
		if err != nil {
			return nil, err
		}
		r.choice = choice
		opt = choice.Of(opt)
		d, err := OpenDevice(opt)
		if err != nil {
			return nil, err
		}
		r.device, r.opened = d, d
	} else if _, err := ChooseDevice(p, targets, opt); err != nil {
		return nil, err
	}
	r.spread()
	var err error
	if err = r.meetRanks(); err != nil {
		return nil, errors.Join(err, r.release())
	}
	if r.coprocessor, err = openCoprocessor(r.device, opt); err != nil {
		return nil, errors.Join(err, r.release())
	}
	r.slots = make(chan struct{}, r.threads())
	limit := opt.SpillLimit
	if limit > 0 { // 0 would mean the default
		limit = max(limit/int64(len(r.runs())), 1)
	}
	for _, each := range r.runs() {
		each.slots = r.slots
		each.spill = spill.NewStore(each.device, spill.Options{Dir: opt.SpillDir, Limit: limit,
			Compress: opt.SpillCompression != "none", Always: opt.SpillAlways, Trace: r.traceSpill()})
	}
	err = r.execute(ctx)
	if err == nil {
		r.wall = time.Since(r.started)
		processor, fromDisks := processUse()
		r.processor, r.fromDisks = processor-r.processor, fromDisks-r.fromDisks
		err = r.measure()
	}
	attribute(r.plan, err)
	err = r.world().leave(err)
	if err != nil && r.final(err) {
		err = &finalError{err}
	} else {
		err = r.lose(err)
	}
	leaks := r.release()
	if err == nil {
		err = leaks
	}
	report := r.report()
	if report.Done = err == nil; !report.Done {
		report.Error = err.Error()
	}
	for _, s := range report.Stages {
		slog.Debug("stage", "job", report.Job, "step", s.Step, "kind", s.Kind, "rows_in", s.RowsIn, "rows_out",
			s.RowsOut, "busy", s.Busy, "wait", s.Wait, "blocked", s.Blocked, "spilled", s.Spill.Host.In+s.Spill.Disk.In)
	}
	slog.Debug("run", "job", report.Job, "done", report.Done, "wall", report.Wall, "rows", report.Output.Rows, "bytes",
		report.Output.Bytes)
	return report, err
}

// measure reads the work of a device that measures it, and the speed of its link.
func (r *run) measure() error {
	d, ok := r.device.(gpu.Profiled)
	if !ok {
		if r.opt.Timeline {
			r.spans = r.host.merge(nil)
		}
		return nil
	}
	l, err := d.Link()
	if err != nil {
		return err
	}
	r.link = &execution.LinkReport{Up: l.Up, Down: l.Down, Both: l.Both}
	r.ready = max(time.Since(r.started)-d.Clock(), 0)
	if r.opt.Timeline {
		r.spans = r.host.merge(r.deviceSpans())
	}
	return nil
}

// deviceSpans returns the spans of all devices on the clock of the run. Those of several devices have their names.
func (r *run) deviceSpans() (all []gpu.Span) {
	for _, each := range r.runs() {
		d, ok := each.device.(gpu.Profiled)
		if !ok {
			continue
		}
		prefix := ""
		if r.group != nil {
			prefix = d.Known().ID + " "
		}
		all = append(all, gpu.SpansSince(d, r.started, prefix, each.leases()...)...)
	}
	return all
}

// execute runs all stages and the sinks, and commits or aborts.
func (r *run) execute(ctx context.Context) (err error) {
	rows, err := r.admit()
	if err != nil {
		return err
	}
	if err := r.world().begin(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			for _, s := range r.sinks {
				err = with(err, s.abort())
			}
		}
	}()
	for i, s := range r.sinks {
		if err := r.create(s); err != nil {
			r.sinks = r.sinks[:i+1] // the others have not begun
			return &outputError{err}
		}
	}
	stopProgress := r.watch()
	defer stopProgress()
	if r.at > 0 {
		return r.world().serve()
	}
	for i, s := range r.sinks {
		if s.Expect == nil && (i == 0 || r.sinks[i-1].Expect != nil) {
			if err := r.unmet(); err != nil {
				return err
			}
		}
		if err := r.pipelines(ctx, s, rows[i]); err != nil {
			r.cancel(err)
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	if err := r.world().end(); err != nil {
		return err
	}
	return r.commit(ctx)
}

// create starts the sink of an output.
func (r *run) create(s *sinkRun) (err error) {
	if s.Expect != nil {
		s.sink = &violations{schema: s.Schema}
		return nil
	}
	s.sink, err = s.target.Create(s.Schema, execution.TargetOptions{Lease: s.lease, Devices: s.devices,
		AnyOrder: s.anyOrder, Threads: r.threads(), Sorted: r.sorted(s.Root), Overwrite: r.opt.Overwrite,
		Trace: r.trace(laneEncode, s.lease.Name()), Discard: r.opt.Discard, Leftover: r.opt.Leftover})
	return err
}

// commit gives all outputs their names. Several get them together.
func (r *run) commit(ctx context.Context) error {
	var sinks []sink.Sink
	for _, s := range r.sinks {
		if s.ended = true; s.Expect == nil {
			sinks = append(sinks, s.sink)
		}
	}
	return sink.CommitAll(ctx, sinks)
}

// sorted returns nil unless the rows of an output come out of a sort. Otherwise it returns a
// function that returns how many rows there will be, once the first of them have arrived.
func (r *run) sorted(root *physical.Stage) func() int64 {
	if r.world() != nil {
		return nil // no rank knows the rows of all
	}
	same := true // every row that comes out of the sort is a row of the output
	for st := root; ; {
		switch spec := st.Spec.(type) {
		case *physical.Sort:
			rows := r.sortedRows(st)
			return func() int64 {
				if !same {
					return int64(root.Rows)
				}
				n := max(rows()-spec.Offset, 0)
				if spec.Limit >= 0 {
					n = min(n, spec.Limit)
				}
				return n
			}
		case *physical.Project, *physical.Materialize, *physical.Exchange:
			st = st.Inputs[0]
		case *physical.Filter, *physical.Limit, *physical.Join:
			st, same = st.Inputs[0], false
		case *physical.Materialized:
			st = spec.By
		default:
			return nil
		}
	}
}

// sortedRows returns a function that returns how many rows a sort has, once the first of them have come out of it: on
// all devices, which hold their rows below an exchange by ranges until then.
func (r *run) sortedRows(sort *physical.Stage) func() int64 {
	if x, ok := sort.Inputs[0].Spec.(*physical.Exchange); ok && x.Kind == physical.Range {
		sort = sort.Inputs[0].Inputs[0]
	}
	var all []*opRun
	for _, each := range r.runs() {
		for _, o := range each.ops {
			if o.Stage == sort {
				all = append(all, o)
			}
		}
	}
	return func() (n int64) {
		for _, o := range all {
			n += o.rowsIn.Load()
		}
		return n
	}
}

// admit cuts the plan into pipelines, and returns the last one of each output. It returns an error if the scans need
// more memory than there is. At that time nothing has started, and there is no output yet.
func (r *run) admit() (rows [][]*channelFeed, err error) {
	defer recoverInto(&err, "output")
	loops := r.plan.Loops()
	for _, each := range r.runs() {
		each.loops = loops
	}
	if r.at > 0 {
		err = r.world().prepare(r.plan)
	}
	written := 0
	for _, o := range r.plan.Outputs {
		if r.at > 0 {
			break // the first rank has the outputs
		}
		var feeds []*channelFeed
		for _, each := range r.runs() {
			if !each.has(o.Root) {
				break
			}
			root, err := each.prepare(o.Root)
			if err != nil {
				return nil, err
			}
			feed := root.merge()
			feed.from.out.toHost = true
			feeds = append(feeds, feed)
		}
		for _, feed := range feeds {
			feed.from.out.marks = len(feeds) > 1
		}
		rows = append(rows, feeds)
		s := &sinkRun{Output: o, name: "output"}
		if o.Expect != nil {
			s.name = o.Expect.Step + ": expect"
		} else {
			if s.target = r.targets[written]; len(r.targets) > 1 {
				s.name = "output " + s.target.Describe()
			}
			written++
			for _, each := range r.runs()[:len(feeds)] {
				if d := each.encodes(); d != nil {
					l := d.Budget().Lease(s.name + ": row groups on the device")
					s.devices = append(s.devices, sink.OnDevice{Device: d, Lease: l})
				}
			}
			s.anyOrder = len(feeds) > 1 && !o.Root.Distribution.Ordered
		}
		s.lease = r.device.HostBudget().Lease(s.name + ": row groups")
		r.sinks = append(r.sinks, s)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range r.scans {
		if err := source.CheckMemory(p.from.scan.Table, p.scanOptions(p.from)); err != nil {
			return nil, err
		}
	}
	r.warnOfRestart()
	return rows, nil
}

// pipelines runs the pipelines of an output, those of all devices that have rows, and writes the strides of the last
// ones.
func (r *run) pipelines(ctx context.Context, to *sinkRun, rows []*channelFeed) (err error) {
	defer recoverInto(&err, to.name)
	if len(rows) == 1 {
		var unwritten error
		err = r.copyDown(ctx, to, rows[0], func(queued) {}, func(s *gpu.Stride, _ int) error {
			unwritten = r.write(ctx, to, s)
			return unwritten
		})
		if err != nil && unwritten == nil {
			err = r.named(explain(to.name, err))
		}
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	in := newInbox(len(rows))
	var copying sync.WaitGroup
	defer copying.Wait()
	defer in.stop(errStop)
	defer stop(errStop)
	for i, feed := range rows {
		copying.Go(func() {
			defer in.end(i)
			each := r.runs()[i]
			err := each.copyDown(ctx, to, feed, func(mark queued) { in.pass(i, mark.order) },
				func(s *gpu.Stride, order int) error {
					in.pass(i, order)
					return in.send(ctx, i, queued{s, order})
				})
			if err != nil {
				stop(each.named(explain(to.name, err)))
			}
		})
	}
	for {
		s, err := in.receive(ctx)
		switch {
		case err == io.EOF && context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := r.write(ctx, to, s); err != nil {
			return err
		}
	}
}

// copyDown runs the pipelines of an output on one device, and calls take with the strides in host memory and their
// positions. pass is called with marks, in order with the strides.
func (r *run) copyDown(ctx context.Context, to *sinkRun, rows *channelFeed, pass func(queued),
	take func(*gpu.Stride, int) error) error {
	rows.start(ctx)
	defer rows.end()
	m := &to.metrics
	var sent marked
	return transfer.Behind(ctx, r.device, to.name, to.lease, func(ctx context.Context) (*gpu.Stride, error) {
		for {
			begin := time.Now()
			s, ok := rows.from.out.receive(ctx)
			m.waitIn.Add(int64(time.Since(begin)))
			r.first().traceOutput(to, begin, 0, rows.from.name())
			if !ok {
				return nil, io.EOF
			}
			if sent.add(s, pass); s.Stride != nil {
				return s.Stride, nil
			}
		}
	}, r.keeps(to), func(s *gpu.Stride) error {
		defer sent.taken(pass)
		return take(s, sent.next())
	})
}

// marked is the order of strides that are copied, and of the marks between them.
type marked struct {
	mu   sync.Mutex
	list []queued // the first one has a stride
}

// add adds a stride or a mark. A mark that no stride precedes has passed.
func (m *marked) add(s queued, pass func(queued)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Stride == nil && len(m.list) == 0 {
		pass(s)
		return
	}
	m.list = append(m.list, s)
}

// next returns the position of the first stride.
func (m *marked) next() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list[0].order
}

// taken removes the first stride, and passes the marks that follow it.
func (m *marked) taken(pass func(queued)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.list = m.list[1:]; len(m.list) > 0 && m.list[0].Stride == nil; m.list = m.list[1:] {
		pass(m.list[0])
	}
}

// write writes a stride to an output.
func (r *run) write(ctx context.Context, to *sinkRun, s *gpu.Stride) error {
	begin, n := time.Now(), int64(s.Rows)
	err := to.sink.Write(ctx, rearrange(s, to.Schema, to.Permutation))
	to.metrics.busy.Add(int64(time.Since(begin)))
	r.traceOutput(to, begin, n, "")
	return err
}

// traceOutput adds a span of the goroutine that writes to the timeline: a wait if it has waited for something.
func (r *run) traceOutput(to *sinkRun, begin time.Time, rows int64, waited string) {
	took := time.Since(begin)
	if !r.opt.Timeline || waited != "" && took < shortest {
		return
	}
	end := time.Since(r.started)
	s := gpu.Span{Lane: laneWork, Stage: to.name, Name: "write", For: waited, Start: end - took, End: end, Rows: rows,
		Worker: outputWorker + 2*slices.Index(r.sinks, to)}
	if waited != "" {
		s.Name, s.Worker = "wait", s.Worker+1 // of the goroutine that brings the rows
	}
	r.keepSpan(s)
}

// outputWorker is the number of the goroutine that writes the first output, on a timeline.
const outputWorker = 1 << 30

// encodes returns the device if the sink may have memory of it. A frugal run leaves it to the stages.
func (r *run) encodes() gpu.Device {
	if r.frugal || !r.device.Known().EncodePages {
		return nil
	}
	return r.device
}

// keeps returns the function that tells which columns of a stride a sink takes as they are, or nil.
func (r *run) keeps(to *sinkRun) func(*gpu.Stride) []bool {
	e := sink.EncoderOf(to.sink)
	if e == nil || r.encodes() == nil {
		return nil
	}
	return func(s *gpu.Stride) []bool {
		// The sink has the columns in another order.
		ordered := &gpu.Stride{Schema: to.Schema, Rows: s.Rows, Cols: make([]gpu.Column, len(to.Permutation))}
		for i, c := range to.Permutation {
			ordered.Cols[i] = s.Cols[c]
		}
		kept := e.Keeps(ordered)
		if kept == nil {
			return nil
		}
		out := make([]bool, len(s.Cols))
		for i, c := range to.Permutation {
			out[c] = kept[i]
		}
		return out
	}
}

func (r *run) threads() int {
	if r.frugal {
		return 1
	}
	return cmp.Or(r.opt.Threads, min(runtime.GOMAXPROCS(0), host.MaxThreads()))
}

// release releases everything. An error names what was still held, which is a defect of a stage.
func (r *run) release() error {
	errs := r.closeShared()
	for _, c := range r.crews {
		c.close()
	}
	for _, each := range r.runs() {
		errs = append(errs, each.releaseStages()...)
	}
	for _, s := range r.sinks {
		errs = append(errs, s.lease.Close())
		for _, d := range s.devices {
			errs = append(errs, d.Lease.Close())
		}
	}
	if r.opened != nil {
		var leaks []string
		for _, d := range gpu.DevicesOf(r.opened) {
			leaks = append(leaks, d.Budget().Leaks()...)
		}
		leaks = append(leaks, r.opened.HostBudget().Leaks()...)
		for _, leak := range leaks {
			errs = append(errs, errors.New(leak))
		}
		errs = append(errs, keepOrClose(r.opened, r.opt, len(leaks) == 0))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: memory was not given back at the end of the run: %w", class.ErrDefect, err)
	}
	return nil
}

// releaseStages releases what the stages hold on one device.
func (r *run) releaseStages() []error {
	errs := r.closeRows()
	for _, o := range r.ops {
		errs = append(errs, o.close())
	}
	// The store keeps copies of dictionaries, for which the stages' leases pay.
	errs = append(errs, r.spill.Close())
	for _, o := range r.ops {
		errs = append(errs, o.lease.Close())
		if o.decode != o.lease {
			errs = append(errs, o.decode.Close())
		}
		if o.hostLease != nil {
			errs = append(errs, o.hostLease.Close())
		}
	}
	return errs
}

// sinkRun is an output of a run.
type sinkRun struct {
	physical.Output
	name     string           // in errors
	target   execution.Target // nil for an expectation
	sink     sink.Sink        // nil before it is created
	ended    bool             // committed or aborted
	lease    *gpu.Lease
	devices  []sink.OnDevice // that encode rows for the sink, and its leases of their memory
	anyOrder bool            // the rows have no order
	metrics  metrics
}

// abort aborts the sink unless it has ended.
func (s *sinkRun) abort() error {
	if s.sink == nil || s.ended {
		return nil
	}
	s.ended = true
	return s.sink.Abort()
}
