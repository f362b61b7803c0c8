package runner

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/source"
)

// pipelineRun is a pipeline of a run: operators that strides stream through, from a feed
// to an operator that must see all rows, or to a merge queue that carries them to another
// pipeline. It runs in lanes.
type pipelineRun struct {
	run    *run
	feed   feed
	from   *opRun         // the feed's operator; nil for a channel
	ops    []*opRun       // streaming operators
	into   *opRun         // the blocking operator that collects the rows, or nil
	out    *mergeQueue    // the merge queue for the strides, without into
	to     *pipelineRun   // that reads the merge queue; nil for the output
	builds []*pipelineRun // build sides of the joins, which end before the lanes start
	inputs int            // see orderedInputs
	// For a pipeline that collects a build side: joins is the number of build sides that are still
	// to be collected, including this one. resident is the number of bytes of this build side that
	// may stay in memory. earlier is the number of bytes that earlier build sides have taken.
	joins             int
	resident, earlier int64
	serial            bool // one lane, because an operator counts rows in order
	// byOrder numbers the morsels of into by their positions in the order of the plan's input, among all devices.
	byOrder   bool
	lanes     int
	rows      int  // rows of a stride
	pages     bool // the scan leaves all its columns in pages
	slowPages bool // source.Paged
	// taken counts the morsels that lanes have taken. taking lets one lane take at a
	// time.
	taking sync.Mutex
	taken  int
	// stopped says that an operator needs no more input.
	stopped atomic.Bool
}

// opRun is an operator, a scan or a union in a run, with its memory and counters.
type opRun struct {
	*physical.Stage
	*account
	scan *physical.Scan // nil for other stages
	op   operators.Operator
	// devices is the number of devices that have rows of the plan.
	devices int
	run     *run
	crew    *crew // of the parts of its source; nil if the device has all of them
	closed  atomic.Bool
	keeper  *recursion                    // that keeps the operator for later iterations if it can; nil for none
	reader  atomic.Pointer[source.Reader] // of a scan, once it is open
	// flushed is where lanes wait before they take parts of a streaming operator's rows.
	flushed barrier
}

// account has the memory and the counters of a stage: of all iterations, if it is in the step of a recursion.
type account struct {
	lease  *gpu.Lease // of device memory
	decode *gpu.Lease // of a scan: host memory of the decoded strides
	// hostLease pays for lanes of the CPU that work together with GPUs; nil if there are none. shares counts the parts
	// of rows that operators have kept back, by processor.
	hostLease *gpu.Lease
	shares    [processors]share
	pace      *pace // of the device
	metrics
}

// done reports whether the operator needs no more input.
func (o *opRun) done() bool {
	s, ok := o.op.(operators.Stopper)
	return ok && s.Done()
}

// close closes the operator, once.
func (o *opRun) close() error {
	o.state.Store(stateDone)
	if o.op == nil || o.closed.Swap(true) || o.keeper.keep(o) {
		return nil
	}
	return o.op.Close()
}

// prepare cuts the stages of a plan into pipelines, without starting any. It returns the
// pipeline whose last operator is st. The caller gives that pipeline an end.
func (r *run) prepare(st *physical.Stage) (*pipelineRun, error) {
	switch spec := st.Spec.(type) {
	case *physical.Scan, *physical.Values:
		o, err := r.newOp(st)
		if err != nil {
			return nil, err
		}
		p := &pipelineRun{run: r, from: o}
		p.feed = newScanFeed(p, o)
		r.scans = append(r.scans, p)
		return p, nil
	case *physical.Union:
		return r.prepareUnion(st, spec)
	case *physical.Materialize:
		return r.prepareMaterialize(st)
	case *physical.Materialized:
		o, err := r.newOp(st)
		if err != nil {
			return nil, err
		}
		return r.materializedOf(spec.By).readIn(r, o), nil
	case *physical.Recursive:
		return r.prepareRecursion(st, spec)
	case *physical.Working:
		return r.prepareWorking(st, spec)
	case *physical.Exchange:
		return r.prepareExchange(st, spec)
	}
	p, err := r.prepare(st.Inputs[0])
	if err != nil {
		return nil, err
	}
	var build *pipelineRun
	keeper := r.keeper(st)
	kept := keeper.keeps(st)
	if len(st.Inputs) > 1 && kept == nil {
		if build, err = r.prepare(st.Inputs[1]); err != nil {
			return nil, err
		}
	}
	o, err := r.newOp(st)
	if err != nil {
		return nil, err
	}
	if build != nil {
		p.builds = append(p.builds, r.collect(build, o))
	}
	if o.keeper = keeper; kept != nil {
		o.op = kept
		p.earlier += kept.(operators.Resident).ResidentBytes()
	}
	switch o.op.(type) {
	case operators.Stopper:
		p = p.channel()
		p.ops, p.serial = append(p.ops, o), true
		return p.channel(), nil
	case operators.Streaming:
		p.ops = append(p.ops, o)
		return p, nil
	}
	p = r.collect(p, o)
	return &pipelineRun{run: r, feed: &resultFeed{p, parts{src: o.op.(operators.Source), op: o}}, from: o}, nil
}

// collect makes a pipeline end in a blocking operator. On a device with one lane, the
// operator collects in a pipeline of its own, so that one of the two pipelines can
// continue while the other waits for the device.
func (r *run) collect(p *pipelineRun, o *opRun) *pipelineRun {
	if r.device.Lanes() == 1 {
		p = p.channel()
	}
	p.into, p.byOrder = o, o.Positions()
	p.chooseLanes()
	return p
}

// channel makes a pipeline end in a merge queue, and returns a pipeline that reads from it.
func (p *pipelineRun) channel() *pipelineRun {
	from := p.merge()
	from.from.to = &pipelineRun{run: p.run, feed: from, inputs: from.from.inputs}
	return from.from.to
}

// orderedInputs returns how many scans follow each other in the order of the pipeline's rows.
func (p *pipelineRun) orderedInputs() int { return max(p.inputs, 1) }

// merge makes a pipeline end in a merge queue, and returns the feed that reads from it.
func (p *pipelineRun) merge() *channelFeed {
	if f, ok := p.feed.(*channelFeed); ok && len(p.ops) == 0 {
		return f // the pipeline is already only a merge queue
	}
	p.chooseLanes()
	p.out = newMergeQueue(channelDepth * p.lanes)
	return &channelFeed{from: p}
}

func (r *run) prepareUnion(st *physical.Stage, spec *physical.Union) (*pipelineRun, error) {
	u := &unionFeed{}
	out := &pipelineRun{run: r, feed: u}
	for i, in := range st.Inputs {
		before := out.inputs
		if out.inputs += in.OrderedInputs(); !r.has(in) {
			continue
		}
		p, err := r.prepare(in)
		if err != nil {
			return nil, err
		}
		from := p.merge()
		from.from.to = out
		u.feeds, u.columns = append(u.feeds, from), append(u.columns, spec.Columns[i])
		u.before = append(u.before, before)
	}
	o, err := r.newOp(st)
	if err != nil {
		return nil, err
	}
	u.op, out.from = o, o
	return out, nil
}

// newOp makes the state of a stage in the run. Stages come after their inputs.
func (r *run) newOp(st *physical.Stage) (_ *opRun, err error) {
	o := &opRun{Stage: st, run: r, scan: st.Source(), devices: 1}
	if r.group != nil {
		o.devices = len(r.group.runs)
	}
	if err := r.world().share(o); err != nil {
		return nil, o.explain(err)
	}
	if o.op, err = st.Spec.Operator(r.device.Known().Capabilities); err != nil {
		return nil, o.explain(err)
	}
	o.crew = r.crewOf(o)
	whole := r.whole()
	if r.iteration != nil {
		r.ops = append(r.ops, o)
		if o.account = whole.accounts[st]; o.account != nil {
			return o, nil
		}
	}
	o.account = &account{pace: newPace(priorDevice)}
	if whole.ops = append(whole.ops, o); r.iteration != nil {
		if whole.accounts == nil {
			whole.accounts = map[*physical.Stage]*account{}
		}
		whole.accounts[st] = o.account
	}
	o.lease = r.device.Budget().Lease(st.Name())
	o.decode = o.lease
	if o.scan != nil && discrete(r.device) {
		o.decode = r.device.HostBudget().Lease(st.Name() + ", decoding")
	}
	if o.crew != nil && o.crew.cpu != nil {
		o.hostLease = r.device.HostBudget().Lease(st.Name() + ", on the CPU")
	}
	return o, nil
}

// operator returns operator i of the pipeline. -1 is the feed's; the blocking operator,
// if there is one, comes after the streaming ones.
func (p *pipelineRun) operator(i int) *opRun {
	switch {
	case i < 0:
		return p.from
	case i < len(p.ops):
		return p.ops[i]
	}
	return p.into
}

// first returns the first operator that works on strides of the feed. last returns the
// operator that names the pipeline.
func (p *pipelineRun) first() *opRun {
	if p.from != nil {
		return p.from
	}
	return p.operator(0)
}

func (p *pipelineRun) last() *opRun {
	switch {
	case p.into != nil:
		return p.into
	case len(p.ops) > 0:
		return p.ops[len(p.ops)-1]
	}
	return p.from
}

func (p *pipelineRun) name() string { return p.last().Name() }

// start starts work that may run before the pipeline does: its scan, and the pipeline
// that it needs first.
func (p *pipelineRun) start(ctx context.Context) {
	_, scan := p.feed.(*aheadFeed)
	if scan || len(p.builds) == 0 {
		p.feed.start(ctx)
	}
	if len(p.builds) > 0 {
		p.builds[0].start(ctx)
	}
}

// work runs the pipeline: the build sides of its joins, then the pipelines that it reads,
// then its lanes. Afterwards only the result of the blocking operator at its end is left.
func (p *pipelineRun) work(ctx context.Context) (err error) {
	m := p.run.newMeter()
	defer m.stop()
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(m.where(p), v)
		}
	}()
	defer func() {
		for _, o := range p.ops {
			err = with(err, o.close())
		}
		if err != nil && p.into != nil {
			err = with(err, p.into.close())
		}
	}()
	defer func() {
		if endErr := p.feed.end(); err == nil {
			err = endErr
		}
		if p.from != nil {
			p.from.state.Store(stateDone)
		}
	}()
	p.start(ctx)
	for i, b := range p.builds {
		if err := p.share(i); err != nil {
			return err
		}
		if err := b.work(ctx); err != nil {
			return err
		}
	}
	if err := p.feed.run(ctx); err != nil {
		return err
	}
	if err := p.runLanes(ctx); err != nil {
		return err
	}
	return p.finalize(ctx, m)
}

// grant returns the grant of an operator of the pipeline while some joins are in memory.
func (p *pipelineRun) grant(o *opRun, joins int) operators.Grant {
	return operators.Grant{Budget: o.lease.Limit(), Joins: joins}
}

// buildGrant returns the grant of the operator at the end of the pipeline.
func (p *pipelineRun) buildGrant() operators.Grant {
	g := p.grant(p.into, p.joins)
	g.Resident, g.Frugal = p.resident, p.run.frugal
	return g
}

// mostResident returns the bytes that build sides may keep from spilling. Those of a frugal run share a part of the
// budget with its strides and its scan.
func (p *pipelineRun) mostResident() float64 {
	limit := float64(p.run.device.Budget().Limit())
	most := grant.Resident.Part(limit)
	if !p.run.frugal {
		return most
	}
	others := p.streams()
	if o := p.from; o != nil && o.scan != nil && !discrete(p.run.device) {
		others += float64(o.scan.Table.LeastMemory(p.scanOptions(o)))
	}
	return min(most, max(grant.FrugalResident.Part(limit), grant.FrugalPipeline.Part(limit)-others))
}

// share sets what build side i may take. The build sides of a pipeline are in memory at the same
// time. First come those that keep the most bytes from spilling for each byte that stays in memory,
// according to the plan's estimates. As the estimates may be wrong, each build side may take half
// of an equal part, and whatever the others do not need.
func (p *pipelineRun) share(i int) error {
	b, waiting := p.builds[i], slices.Clone(p.builds[i:])
	b.joins, b.earlier = len(waiting), p.earlier
	for _, made := range p.builds[:i] {
		if op, ok := made.into.op.(operators.Resident); ok {
			b.earlier += op.ResidentBytes()
		}
	}
	if len(waiting) == 1 && b.earlier == 0 && !p.run.frugal {
		return nil
	}
	if err := p.run.awaitDevice(b.into.Name()); err != nil {
		return err
	}
	left := max(0, p.mostResident()-float64(b.earlier))
	least := left / float64(2*len(waiting))
	needs, gains := map[*pipelineRun]float64{}, map[*pipelineRun]float64{}
	for _, x := range waiting {
		e, d := demand(x.into, x.lanes)
		needs[x], gains[x] = d.Bytes, (e.Bytes+e.ProbeBytes)/max(d.Bytes, 1)
	}
	slices.SortStableFunc(waiting, func(x, y *pipelineRun) int { return cmp.Compare(gains[y], gains[x]) })
	mine := 0.0
	for _, x := range waiting {
		take := min(needs[x], left)
		left -= take
		if x == b {
			mine = take
		}
	}
	b.resident = int64(max(least, mine+left, 1))
	return nil
}

// leastRows bounds the shortening of strides. Strides are shortened so that all lanes have work, or
// so that the strides fit the budget.
const leastRows = 1 << 13

// chooseLanes decides how many lanes the pipeline has and how long its strides are. A small table
// is cut so that no lane is idle. The strides of all lanes take at most grant.LaneStrides of the
// budget.
func (p *pipelineRun) chooseLanes() {
	d := p.run.device
	width := 1
	for i := -1; i <= len(p.ops); i++ {
		if o := p.operator(i); o != nil {
			width = max(width, o.Schema.RowBytes())
		}
	}
	if p.from != nil && p.from.scan != nil {
		p.pages, p.slowPages = p.run.leavesPages(p.from.scan)
	}
	p.lanes, p.rows = 1, math.MaxInt
	p.rows = p.strideRows(width)
	if p.run.frugal {
		p.rows = min(p.rows, p.run.frugalRows(width))
		p.shortenScan(leastFrugalRows)
		return
	}
	if p.serial || discrete(d) {
		return
	}
	p.lanes = d.Lanes()
	if f, ok := p.feed.(*workingFeed); ok && f.strides() > 0 {
		p.lanes = min(p.lanes, f.strides())
	}
	shorten := func(rows int64) { p.rows = int(min(int64(p.rows), max(rows, leastRows))) }
	if p.from != nil && p.from.scan != nil {
		shorten(p.from.scan.Table.Rows() / int64(2*p.lanes))
	}
	room := grant.LaneStrides.Of(d.Budget().Limit()) / int64(width*grant.StridesOfLane) // rows
	shorten(room / int64(p.lanes))
	p.shortenScan(leastRows / 8)
	p.lanes = int(max(1, min(int64(p.lanes), room/int64(p.rows))))
}

// shortenScan shortens the strides of a scan whose values are wider than expected, down to a number
// of rows, because a scan should leave most of the budget to other operators. It stops when a
// shorter stride would save less than an eighth, as with large pages.
func (p *pipelineRun) shortenScan(rows int) {
	o := p.from
	if o == nil || o.scan == nil {
		return
	}
	most := grant.ScanStride.Of(p.run.device.Budget().Limit())
	for least := o.scan.Table.LeastMemory(p.scanOptions(o)); p.rows > rows && least > most; {
		p.rows /= 2
		shorter := o.scan.Table.LeastMemory(p.scanOptions(o))
		if shorter > least-least/8 {
			p.rows *= 2
			return
		}
		least = shorter
	}
}

// strideRows returns the maximum number of rows of a stride of the pipeline, for rows of rowBytes
// bytes.
func (p *pipelineRun) strideRows(rowBytes int) int {
	d := p.run.device
	if p.pages {
		return min(d.PagesStrideRows(rowBytes, p.slowPages), p.rows)
	}
	return min(d.StrideRows(rowBytes), p.rows)
}

// runLanes runs all lanes to their ends. When one fails, the others stop, and runLanes
// returns its error.
func (p *pipelineRun) runLanes(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var lanes sync.WaitGroup
	for range p.lanes {
		lanes.Add(1)
		go func() {
			defer lanes.Done()
			l := &lane{pipelineRun: p, meter: p.run.newMeter()}
			if err := l.work(ctx); err != nil {
				cancel(err)
			}
		}()
	}
	lanes.Wait()
	return context.Cause(ctx)
}

// finalize computes the result of the blocking operator, using the whole device.
func (p *pipelineRun) finalize(ctx context.Context, m *meter) (err error) {
	o := p.into
	if o == nil {
		return nil
	}
	m.turn(o)
	r := p.run
	q, err := r.newQueue(o.Name(), r.frugal)
	if err != nil {
		return o.failed(err)
	}
	q.Until(ctx)
	defer func() { err = with(err, q.Close()) }()
	t := operators.Task{Device: r.device, Queue: q, Lease: o.lease, StrideRows: p.strideRows(o.Schema.RowBytes()),
		Lanes: p.lanes, Grant: p.buildGrant(), Spill: r.spill, Filter: r.filterOf(o)}
	return o.explain(o.op.(operators.Blocking).Finalize(ctx, t))
}
