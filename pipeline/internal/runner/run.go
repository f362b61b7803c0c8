package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	output       execution.Target
	opt          execution.Options
	device       gpu.Device
	coprocessor  gpu.Device        // the CPU, if its lanes work together with a GPU; otherwise nil
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
	slots chan struct{}
	sink  *sinkRun
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

// Run executes a plan and writes its rows to an output. It returns when every goroutine has ended
// and all memory is released. After a success the output is complete. After an error there is no
// output, and the report tells how far the run got. Errors match their class by errors.Is.
//
// If there is a GPU that cannot be started, a run that does not ask for a particular device logs a
// warning and uses the CPU. A run that is denied memory logs a warning and starts again as a frugal
// run.
func Run(ctx context.Context, p *physical.Plan, output execution.Target,
	opt execution.Options) (*execution.Report, error) {
	report, err := runOrAgain(ctx, p, output, opt)
	if !errors.Is(err, cuda.ErrUnusable) {
		return report, class.Mark(ctx, err)
	}
	if want, _ := parseDevice(opt.Use); want.kind == execution.CUDA {
		return report, &job.Diagnostic{Msg: err.Error()}
	}
	warnOfCPU(err)
	opt.Device, opt.Use = nil, execution.Host
	if report, err = runOrAgain(ctx, p, output, opt); report != nil {
		report.Choice = &execution.Choice{Device: execution.Host, Why: "the GPU cannot be used"}
	}
	return report, class.Mark(ctx, err)
}

func runOnce(ctx context.Context, p *physical.Plan, output execution.Target, opt execution.Options,
	denied error) (*execution.Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if opt.SpillDir != "" {
		if err := spill.CheckDir(opt.SpillDir); err != nil {
			return nil, err
		}
	}
	r := &run{plan: p, output: output, opt: opt, device: opt.Device, frugal: denied != nil, denied: denied,
		started: time.Now(), ctx: ctx, cancel: cancel}
	r.processor, r.fromDisks = processUse()
	if r.device == nil {
		choice, err := ChooseDevice(p, output, opt)
		if err != nil {
			return nil, err
		}
		if r.choice = choice; choice.Device == execution.Host {
			opt.Use = execution.Host
		}
		d, err := OpenDevice(opt)
		if err != nil {
			return nil, err
		}
		r.device = d
	} else if _, err := ChooseDevice(p, output, opt); err != nil {
		return nil, err
	}
	var err error
	if r.coprocessor, err = openCoprocessor(r.device, opt); err != nil {
		return nil, errors.Join(err, r.release())
	}
	r.slots = make(chan struct{}, r.threads())
	r.spill = spill.NewStore(r.device, spill.Options{Dir: opt.SpillDir, Limit: opt.SpillLimit,
		Compress: opt.SpillCompression != "none", Always: opt.SpillAlways, Trace: r.traceSpill()})
	err = r.execute(ctx)
	if err == nil {
		r.wall = time.Since(r.started)
		processor, fromDisks := processUse()
		r.processor, r.fromDisks = processor-r.processor, fromDisks-r.fromDisks
		err = r.measure()
	}
	attribute(p, err)
	leaks := r.release()
	if err == nil {
		err = leaks
	}
	report := r.report()
	if report.Done = err == nil; !report.Done {
		report.Error = err.Error()
	}
	return report, err
}

// measure reads the work of a device that measures it, and the speed of its link.
func (r *run) measure() error {
	d, ok := r.device.(gpu.Profiled)
	if !ok {
		if r.opt.Timeline {
			r.spans = r.host.merge(nil, 0)
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
		// The device's clock starts when the device is opened, before or after the run
		// starts.
		r.spans = r.host.merge(d.Spans(r.leases()...), time.Since(r.started)-d.Clock())
	}
	return nil
}

// execute runs all stages and the sink, and commits or aborts.
func (r *run) execute(ctx context.Context) (err error) {
	lease := r.device.HostBudget().Lease("output: row groups")
	r.sink = &sinkRun{lease: lease}
	device := r.encodes()
	if device != nil {
		r.sink.ofDevice = device.Budget().Lease("output: row groups on the device")
	}
	rows, err := r.admit()
	if err != nil {
		return err
	}
	out, err := r.output.Create(r.plan.Schema,
		execution.TargetOptions{Lease: lease, Device: device, DeviceLease: r.sink.ofDevice, Threads: r.threads(),
			Sorted: r.sorted(), Overwrite: r.opt.Overwrite, Trace: r.trace(laneEncode, lease.Name()),
			Discard: r.opt.Discard, Leftover: r.opt.Leftover})
	if err != nil {
		return &outputError{err}
	}
	r.sink.sink = out
	if err := r.pipelines(ctx, rows); err != nil {
		r.cancel(err)
	}
	if err := context.Cause(ctx); err != nil {
		return errors.Join(err, out.Abort())
	}
	return out.Commit(ctx)
}

// sorted returns nil unless the rows of the output come out of a sort. Otherwise it returns a
// function that returns how many rows there will be, once the first of them have arrived.
func (r *run) sorted() func() int64 {
	same := true // every row that comes out of the sort is a row of the output
	for st := r.plan.Root; ; {
		switch spec := st.Spec.(type) {
		case *physical.Sort:
			o := r.ops[slices.IndexFunc(r.ops, func(o *opRun) bool { return o.Stage == st })]
			return func() int64 {
				if !same {
					return int64(r.plan.Root.Rows)
				}
				n := max(o.rowsIn.Load()-spec.Offset, 0)
				if spec.Limit >= 0 {
					n = min(n, spec.Limit)
				}
				return n
			}
		case *physical.Project, *physical.Materialize:
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

// admit cuts the plan into pipelines. It returns an error if the scans need more memory than there
// is. At that time nothing has started, and there is no output yet.
func (r *run) admit() (rows *channelFeed, err error) {
	defer recoverInto(&err, "output")
	r.loops = r.plan.Loops()
	root, err := r.prepare(r.plan.Root)
	if err != nil {
		return nil, err
	}
	rows = root.merge()
	rows.from.out.toHost = true
	for _, p := range r.scans {
		if err := source.CheckMemory(p.from.scan.Table, p.scanOptions(p.from)); err != nil {
			return nil, err
		}
	}
	r.warnOfRestart()
	return rows, nil
}

// pipelines runs all pipelines and writes the strides of the last one.
func (r *run) pipelines(ctx context.Context, rows *channelFeed) (err error) {
	defer recoverInto(&err, "output")
	stopProgress := r.watch()
	defer stopProgress()
	rows.start(ctx)
	defer rows.end()
	m := &r.sink.metrics
	var unwritten error
	err = transfer.Behind(ctx, r.device, "output", r.sink.lease, func(ctx context.Context) (*gpu.Stride, error) {
		begin := time.Now()
		s, ok := rows.from.out.receive(ctx)
		m.waitIn.Add(int64(time.Since(begin)))
		r.traceOutput(begin, 0, rows.from.name())
		if !ok {
			return nil, io.EOF
		}
		return s, nil
	}, r.keeps(), func(s *gpu.Stride) error {
		begin, n := time.Now(), int64(s.Rows)
		unwritten = r.sink.sink.Write(ctx, rearrange(s, r.plan.Schema, r.plan.Permutation))
		m.busy.Add(int64(time.Since(begin)))
		r.traceOutput(begin, n, "")
		return unwritten
	})
	if err != nil && unwritten == nil {
		err = explain("output", err)
	}
	return err
}

// traceOutput adds a span of the goroutine that writes to the timeline: a wait if it has waited for something.
func (r *run) traceOutput(begin time.Time, rows int64, waited string) {
	took := time.Since(begin)
	if !r.opt.Timeline || waited != "" && took < shortest {
		return
	}
	end := time.Since(r.started)
	s := gpu.Span{Lane: laneWork, Stage: "output", Name: "write", For: waited, Start: end - took, End: end, Rows: rows,
		Worker: outputWorker}
	if waited != "" {
		s.Name = "wait"
	}
	r.keepSpan(s)
}

// outputWorker is the number of the goroutine that writes, on a timeline.
const outputWorker = 1 << 30

// encodes returns the device if the sink may have memory of it. A frugal run leaves it to the stages.
func (r *run) encodes() gpu.Device {
	if r.frugal || !r.device.Known().EncodePages {
		return nil
	}
	return r.device
}

// keeps returns the function that tells which columns of a stride the sink takes as they are, or nil.
func (r *run) keeps() func(*gpu.Stride) []bool {
	e := sink.EncoderOf(r.sink.sink)
	if e == nil || r.encodes() == nil {
		return nil
	}
	return func(s *gpu.Stride) []bool {
		// The sink has the columns in another order.
		ordered := &gpu.Stride{Schema: r.plan.Schema, Rows: s.Rows, Cols: make([]gpu.Column, len(r.plan.Permutation))}
		for i, c := range r.plan.Permutation {
			ordered.Cols[i] = s.Cols[c]
		}
		kept := e.Keeps(ordered)
		if kept == nil {
			return nil
		}
		out := make([]bool, len(s.Cols))
		for i, c := range r.plan.Permutation {
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
	var errs []error
	errs = append(errs, r.closeRows()...)
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
	if r.sink != nil {
		errs = append(errs, r.sink.lease.Close())
		if r.sink.ofDevice != nil {
			errs = append(errs, r.sink.ofDevice.Close())
		}
	}
	if r.opt.Device == nil {
		leaks := append(r.device.Budget().Leaks(), r.device.HostBudget().Leaks()...)
		for _, leak := range leaks {
			errs = append(errs, errors.New(leak))
		}
		errs = append(errs, keepOrClose(r.device, r.opt, len(leaks) == 0))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: memory was not given back at the end of the run: %w", class.ErrDefect, err)
	}
	return nil
}

// sinkRun is the output of a run.
type sinkRun struct {
	sink     sink.Sink
	lease    *gpu.Lease
	ofDevice *gpu.Lease // of its memory for the sink; nil if the sink has none
	metrics  metrics
}
