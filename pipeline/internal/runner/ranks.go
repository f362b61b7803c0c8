package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/class"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/pipeline/ranks"
	"github.com/gstream/gstream/source"
	sourceexchange "github.com/gstream/gstream/source/exchange"
)

// world is the part of a run in one of several processes that run the same plan: its rank. It has one device. Rank 0
// gives the plan, and writes the outputs, as the first device of a group does. Each rank reads a share of the tables.
// The exchanges of the ranks are those of a group, but inboxes of other ranks are reached by messages (package ranks).
type world struct {
	*ranks.World
	run    *run
	joined *ranks.Run
	id     []byte // of the communicator; nil for TCP
	// at has the positions of the stages in the plan, by which ranks name them. exchanges are those with rows of this
	// rank.
	at        map[*physical.Stage]int
	exchanges map[int]*exchange
	reports   []rankReport // of other ranks, on rank 0, at the end
	lease     *gpu.Lease   // of host memory: rows that are sent and received through it
	handling  sync.WaitGroup
	stopTell  func() bool
	mu        sync.Mutex
	keys      map[int][]rankSample // samples that have arrived, by exchange
	arrived   sync.Cond
}

// rankSample is the sample of one rank.
type rankSample struct {
	rank int
	keys []sort.Keys
}

// rankStart is what rank 0 gives the others.
type rankStart struct {
	Plan *physical.Plan
	Seed uint64
	ID   []byte           // of the communicator
	Rows map[string]int64 // of the tables
}

// meetRanks makes a run one of several ranks, if its options say so. It receives the plan of rank 0.
func (r *run) meetRanks() error {
	w := r.opt.Ranks
	if w == nil || w.Size() == 1 {
		return nil
	}
	if r.group != nil {
		return &job.Diagnostic{Msg: fmt.Sprintf("each of several ranks has one device, and this one has %d: start a "+
			"rank for each GPU", len(r.group.runs))}
	}
	x := &world{World: w, run: r, exchanges: map[int]*exchange{}, at: map[*physical.Stage]int{},
		keys: map[int][]rankSample{}}
	x.arrived.L = &x.mu
	start, known := rankStart{Seed: rand.Uint64()}, map[string]int64{}
	tables := map[string]source.Table{}
	r.plan.Visit(func(s *physical.Stage) {
		if scan := s.Scan(); scan != nil {
			tables[scan.Source] = scan.Table
			known[scan.Source] = scan.Table.Rows()
		}
	})
	if w.Rank() == 0 {
		all := func(int, bool) string { return "the first rank writes the output" }
		start.Rows = known
		start.Plan = r.plan.Distribute(w.Size(), all, exchangesOf(r.opt))
		r.plan = start.Plan
		if w.Plane() == ranks.NCCL {
			var err error
			if start.ID, err = cuda.CommunicatorID(r.device); err != nil {
				return x.tell(err)
			}
		}
	}
	joined, err := w.Begin(r.ctx, &start)
	if err != nil {
		return x.tell(x.heard(err))
	}
	x.joined, x.id = joined, start.ID
	if w.Rank() > 0 {
		for name, rows := range start.Rows {
			if tables[name] == nil || known[name] != rows {
				return x.tell(fmt.Errorf("%w: the table %q has %d rows here and %d on rank 0: all ranks must see the "+
					"same files", class.ErrJob, name, known[name], rows))
			}
		}
		if err := start.Plan.Bind(tables); err != nil {
			return x.tell(err)
		}
		r.plan = start.Plan
	}
	r.plan.Visit(func(s *physical.Stage) { x.at[s] = len(x.at) })
	r.at = w.Rank()
	r.group = &group{runs: make([]*run, w.Size()), world: x, scans: map[*physical.Stage]*sharedScan{},
		exchanges: map[*physical.Stage]*exchange{}, seed: start.Seed}
	r.group.runs[r.at] = r
	x.lease = r.device.HostBudget().Lease("rows of other ranks")
	x.stopTell = context.AfterFunc(r.ctx, func() { _ = x.tell(context.Cause(r.ctx)) })
	return nil
}

// tell tells all ranks of an error of this one, and returns it.
func (x *world) tell(err error) error {
	text := ""
	if of := class.Of(err); of != nil {
		text = of.Error()
	}
	x.Fail(err, text)
	return err
}

// heard gives an error of another rank its class.
func (x *world) heard(err error) error {
	var remote *ranks.Error
	if errors.As(err, &remote) {
		return class.Named(err, cmp.Or(remote.Class, class.ErrDevice.Error()))
	}
	return err
}

// share makes the scan of an operator one of a share of the table, if the ranks share it.
func (x *world) share(o *opRun) error {
	if x == nil || o.scan == nil || o.Distribution.Spread == physical.OnFirst {
		return nil
	}
	t, ok := o.scan.Table.(source.Shareable)
	if !ok {
		return nil
	}
	mine, err := t.ShareOf(x.Rank(), x.Size())
	if err != nil {
		return err
	}
	scan := *o.scan
	scan.Table = mine
	o.scan = &scan
	return nil
}

// scans returns what comes before the positions of this rank in a scan, and whether another rank reads the table.
func (x *world) scans(st *physical.Stage) (before int, none bool) {
	if x == nil || st.Distribution.Spread == physical.OnFirst {
		return 0, false
	}
	_, shared := st.Source().Table.(source.Shareable)
	return x.Rank() << partBits, x.Rank() > 0 && !shared
}

// prepare prepares the pipelines that end in exchanges of which this rank receives nothing. The receivers of others
// prepare theirs.
func (x *world) prepare(p *physical.Plan) (err error) {
	p.Visit(func(s *physical.Stage) {
		spec, ok := s.Spec.(*physical.Exchange)
		if ok && err == nil && !s.On(x.Rank()) && s.Inputs[0].On(x.Rank()) {
			_, err = x.run.group.exchange(s, spec)
		}
	})
	return err
}

// connect makes the inbox of this rank, and the ways to those of others.
func (x *world) connect(e *exchange) {
	e.number = x.at[e.stage]
	own := newInbox(x.Size())
	own.taken = func(from int) {
		if from != x.Rank() {
			x.joined.Send(from, &ranks.Message{Kind: ranks.Room, Exchange: e.number})
		}
	}
	for rank := range x.Size() {
		if e.stage.On(rank) {
			e.receivers++
		}
		if rank == x.Rank() {
			e.inboxes = append(e.inboxes, own)
			continue
		}
		far := &farInbox{x: e, to: rank}
		far.changed.L = &far.mu
		e.inboxes = append(e.inboxes, far)
	}
	x.exchanges[e.number] = e
}

// world returns the part of the run in several ranks; nil for a run in one process.
func (r *run) world() *world {
	if r.group == nil {
		return nil
	}
	return r.group.world
}

// begin waits until all ranks have prepared their pipelines.
func (x *world) begin() error {
	if x == nil {
		return nil
	}
	var c gpu.Communicator
	if x.id != nil {
		var err error
		if c, err = cuda.NewCommunicator(x.run.ctx, x.run.device, x.id, x.Rank(), x.Size()); err != nil {
			return x.tell(err)
		}
	}
	return x.heard(x.joined.Ready(x, c))
}

// serve waits, on a rank without outputs, until rank 0 needs no more rows and has written its outputs.
func (x *world) serve() error {
	if err := x.joined.Needed(); err != nil {
		return x.heard(err)
	}
	for _, e := range x.exchanges {
		e.end()
	}
	if _, err := x.joined.Quiet(x.report()); err != nil {
		return x.heard(err)
	}
	return x.heard(x.joined.Over())
}

// rankReport is the work of another rank.
type rankReport struct {
	Rank   int
	Stages map[int]execution.StageReport // by their positions in the plan
	Device execution.DeviceReport
}

// report returns the work of this rank.
func (x *world) report() rankReport {
	r := x.run
	whole := r.report()
	out := rankReport{Rank: x.Rank(), Stages: map[int]execution.StageReport{}, Device: r.deviceReport()}
	for i, o := range r.ops {
		out.Stages[x.at[o.Stage]] = whole.Stages[i]
	}
	return out
}

// addTo adds the work of the rank for the stage at a position.
func (o *rankReport) addTo(s *execution.StageReport, at int) {
	theirs, ok := o.Stages[at]
	if !ok {
		return
	}
	scan := s.Scan
	if s.Add(theirs); scan != nil && theirs.Scan != nil {
		scan.Add(*theirs.Scan)
		s.Scan = scan
	}
}

// others returns the work of other ranks, once it is known.
func (x *world) others() []rankReport {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.reports
}

// end tells the other ranks, on rank 0, that it has all rows, and waits until they send none.
func (x *world) end() error {
	if x == nil {
		return nil
	}
	for _, e := range x.exchanges {
		e.end()
	}
	x.joined.Enough()
	given, err := x.joined.Quiet(nil)
	if err != nil {
		return x.heard(err)
	}
	reports := make([]rankReport, len(given))
	for i, text := range given {
		if err := json.Unmarshal(text, &reports[i]); err != nil {
			return fmt.Errorf("the report of another rank: %w", err)
		}
	}
	slices.SortFunc(reports, func(a, b rankReport) int { return cmp.Compare(a.Rank, b.Rank) })
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reports = reports
	return nil
}

// leave ends the run of all ranks: with the error of this one, if there is one.
func (x *world) leave(err error) error {
	if x == nil {
		return err
	}
	x.stopTell()
	if err != nil {
		return x.tell(err)
	}
	if x.Rank() == 0 {
		return x.joined.Over()
	}
	return nil
}

// close ends the part of the rank, after its exchanges. A nil world is closed.
func (x *world) close() error {
	if x == nil {
		return nil
	}
	x.handling.Wait()
	return errors.Join(x.joined.End(), x.lease.Close())
}

// started tells other ranks that an exchange has begun. They begin it too.
func (x *world) started(e *exchange) {
	if x != nil {
		x.joined.SendAll(&ranks.Message{Kind: ranks.Start, Exchange: e.number})
	}
}

// ended tells other ranks that this one needs no more rows.
func (x *world) ended(e *exchange) {
	if x != nil {
		x.joined.SendAll(&ranks.Message{Kind: ranks.Stopped, Exchange: e.number})
	}
}

// Room implements ranks.Handler.
func (x *world) Room(number int) (*gpu.Schema, *gpu.Lease) {
	e := x.exchanges[number]
	if e == nil || !e.stage.On(x.Rank()) {
		return nil, nil
	}
	if x.id != nil {
		return e.stage.Schema, e.ops[x.Rank()].lease
	}
	return e.stage.Schema, x.lease
}

// Rows implements ranks.Handler.
func (x *world) Rows(from, number, order int, s *gpu.Stride) {
	e := x.exchanges[number]
	if e == nil {
		s.Release()
		return
	}
	// There is room, so this does not wait.
	_ = e.inboxes[x.Rank()].send(x.run.ctx, from, queued{s, order})
}

// Message implements ranks.Handler.
func (x *world) Message(from int, m *ranks.Message) {
	e := x.exchanges[m.Exchange]
	if e == nil {
		return
	}
	switch m.Kind {
	case ranks.Start:
		e.start()
	case ranks.Pass:
		e.inboxes[x.Rank()].pass(from, m.Order)
	case ranks.End:
		e.inboxes[x.Rank()].end(from)
	case ranks.Room:
		e.inboxes[from].(*farInbox).room()
	case ranks.Stopped:
		x.handling.Go(func() { e.ended(from) }) // the last one waits for senders
	case ranks.Sample:
		var keys []sort.Keys
		if err := json.Unmarshal(m.Data, &keys); err != nil {
			x.Lost(fmt.Errorf("the sample of rank %d: %w", from, err))
			return
		}
		x.addSample(m.Exchange, rankSample{from, keys})
	}
}

// Lost implements ranks.Handler.
func (x *world) Lost(err error) { x.run.cancel(x.heard(err)) }

func (x *world) addSample(number int, s rankSample) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.keys[number] = append(x.keys[number], s)
	x.arrived.Broadcast()
}

// samples returns the samples of all ranks that send rows of an exchange, in the order of the ranks.
func (x *world) samples(s *sender, own []sort.Keys) (out []sourceexchange.Sample, err error) {
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	x.joined.SendAll(&ranks.Message{Kind: ranks.Sample, Exchange: s.number, Data: text})
	senders := 0
	for rank := range x.Size() {
		if s.stage.Inputs[0].On(rank) {
			senders++
		}
	}
	x.addSample(s.number, rankSample{x.Rank(), own})
	x.mu.Lock()
	defer x.mu.Unlock()
	defer context.AfterFunc(s.ctx, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.arrived.Broadcast()
	})()
	for len(x.keys[s.number]) < senders {
		if s.ctx.Err() != nil {
			return nil, context.Cause(s.ctx)
		}
		x.arrived.Wait()
	}
	for rank := range x.Size() {
		for _, each := range x.keys[s.number] {
			for _, k := range each.keys {
				if each.rank == rank {
					out = append(out, sourceexchange.Sample{Keys: k.Rows, Weight: k.Weight})
				}
			}
		}
	}
	return out, nil
}

// farInbox is the way to the inbox of another rank.
type farInbox struct {
	x  *exchange
	to int
	monitor
	under  int // strides on the way, and those that wait there
	passed int
	queue  gpu.Queue // to host memory
}

// send implements outlet. It waits until the inbox has room.
func (f *farInbox) send(ctx context.Context, _ int, s queued) error {
	f.mu.Lock()
	err := f.await(ctx, s, func() bool { return f.under >= inboxDepth })
	if err == nil {
		f.under++
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	rows, err := f.take(s.Stride)
	if err != nil {
		s.Release()
		return err
	}
	f.x.world.joined.SendRows(f.to, f.x.number, s.order, rows)
	return nil
}

// take returns rows where they can be sent from: in device memory by a communicator, or else in host memory.
func (f *farInbox) take(s *gpu.Stride) (_ *gpu.Stride, err error) {
	r := f.x.world.run
	o := f.x.ops[r.at]
	if f.queue == nil {
		if f.queue, err = r.newQueue(o.Name(), false); err != nil {
			return nil, o.failed(err)
		}
	}
	if f.x.world.id != nil {
		ready := s.Ready
		up, err := f.queue.Upload(o.lease, s) // nothing, unless the host has made it
		if err == nil && up == s {
			up.Ready = ready
		}
		return up, o.explain(err)
	}
	down, err := f.queue.Download(f.x.world.lease, s)
	return down, o.explain(err)
}

// room notes that the receiver has taken a stride.
func (f *farInbox) room() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.under--
	f.changed.Broadcast()
}

// pass implements outlet.
func (f *farInbox) pass(_, order int) {
	if order > f.passed {
		f.passed = order
		f.x.world.joined.Send(f.to, &ranks.Message{Kind: ranks.Pass, Exchange: f.x.number, Order: order})
	}
}

// end implements outlet.
func (f *farInbox) end(int) {
	if f.queue != nil {
		if err := f.queue.Close(); err != nil {
			f.x.world.run.fail(err)
		}
		f.queue = nil
	}
	f.x.world.joined.Send(f.to, &ranks.Message{Kind: ranks.End, Exchange: f.x.number})
}

// stop implements outlet.
func (f *farInbox) stop(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.changed.Broadcast()
}
