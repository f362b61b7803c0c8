package runner

import (
	"context"
	"sync"

	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/transfer"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// exchange moves the rows of a stage between the runs of the devices. Each run that has rows has a sender: a goroutine
// that takes the strides of the stage and decides to which devices their rows go. Each run that wants rows has an
// inbox, from which it copies them to its device. Rows that stay on a device are not copied.
//
// The exchange begins when the first receiver starts, and ends with the last. What is in flight is bounded: a sender
// waits while the inbox has inboxDepth strides of it. Receivers of an ordered exchange take the stride that comes first
// in the order of the plan's input. They know from marks how far the other senders are. A sender tells all receivers
// its position before it waits for one of them, so that two devices never wait for each other.
type exchange struct {
	stage  *physical.Stage
	spec   *physical.Exchange
	runs   []*run         // nil for those of other ranks
	ops    []*opRun       // by run; of the senders and receivers
	feeds  []*channelFeed // by run; nil for one that does not send here
	seed   uint64
	world  *world // of all ranks; nil for a run in one process
	number int    // among the exchanges of the plan, for other ranks
	// ranges are those of an exchange by ranges; nil for another one.
	ranges *ranges

	begin   sync.Once
	begun   bool
	parent  context.Context // of the run
	ctx     context.Context
	stop    context.CancelCauseFunc
	inboxes []outlet
	sending sync.WaitGroup

	mu        sync.Mutex
	receivers int // that have not ended
}

// outlet is where a sender puts rows for one receiver: an inbox, or the way to that of another rank.
type outlet interface {
	// send transfers ownership of a stride.
	send(ctx context.Context, from int, s queued) error
	pass(from, order int)
	end(from int)
	stop(err error)
}

// prepareExchange returns the pipeline by which a run receives the rows of an exchange.
func (r *run) prepareExchange(st *physical.Stage, spec *physical.Exchange) (*pipelineRun, error) {
	x, err := r.group.exchange(st, spec)
	if err != nil {
		return nil, err
	}
	o, err := x.op(r)
	if err != nil {
		return nil, err
	}
	if x.world == nil { // it knows all receivers
		x.receivers++
	}
	return &pipelineRun{run: r, feed: &exchangeFeed{exchange: x, op: o, at: r.at}, from: o}, nil
}

// exchange returns the exchange of a stage. It prepares the pipelines of the senders.
func (g *group) exchange(st *physical.Stage, spec *physical.Exchange) (*exchange, error) {
	if x := g.exchanges[st]; x != nil {
		return x, nil
	}
	n := len(g.runs)
	x := &exchange{stage: st, spec: spec, runs: g.runs, ops: make([]*opRun, n), feeds: make([]*channelFeed, n),
		seed: g.seed, world: g.world, parent: g.local()[0].ctx}
	g.exchanges[st] = x
	if g.world == nil {
		for range n {
			x.inboxes = append(x.inboxes, newInbox(n))
		}
	} else {
		g.world.connect(x)
	}
	for i, r := range g.runs {
		if !st.Inputs[0].On(i) {
			for _, in := range x.inboxes {
				if local, ok := in.(*inbox); ok {
					local.end(i)
				}
			}
			continue
		}
		if r == nil {
			continue
		}
		p, err := r.prepare(st.Inputs[0])
		if err != nil {
			return nil, err
		}
		if _, err := x.op(r); err != nil {
			return nil, err
		}
		x.feeds[i] = p.merge()
		x.feeds[i].from.out.marks = spec.Ordered
		if spec.Kind == physical.Range {
			if x.ranges == nil {
				x.ranges = newRanges(r.device.HostBudget().Lease(st.Name() + ": splitters"))
			}
			x.ranges.held[i] = r.materializedOf(st.Inputs[0])
		}
	}
	return x, nil
}

// op returns the account of the exchange in a run, for what it sends and receives.
func (x *exchange) op(r *run) (*opRun, error) {
	if x.ops[r.at] == nil {
		o, err := r.newOp(x.stage)
		if err != nil {
			return nil, err
		}
		x.ops[r.at] = o
	}
	return x.ops[r.at], nil
}

// start starts the senders, once.
func (x *exchange) start() {
	x.begin.Do(func() {
		x.ctx, x.stop = context.WithCancelCause(x.parent)
		x.begun = true
		x.world.started(x)
		for i, f := range x.feeds {
			if f == nil {
				continue
			}
			x.sending.Go(func() {
				_ = newSender(x, i).send(f)    // the error has ended the run
				for _, in := range x.inboxes { // after the error, or receivers would take it for the last row
					in.end(i)
				}
			})
		}
	})
}

// end stops the senders and waits for them.
func (x *exchange) end() {
	x.begin.Do(func() {})
	if x.begun {
		x.stop(errStop)
	}
	for _, in := range x.inboxes {
		in.stop(errStop)
	}
	x.sending.Wait()
}

// ended is called for each receiver.
func (x *exchange) ended(at int) {
	x.inboxes[at].stop(errStop)
	x.mu.Lock()
	x.receivers--
	last := x.receivers == 0
	x.mu.Unlock()
	if last {
		x.end()
	}
}

// exchangeFeed returns the rows that a run receives. A device with memory of its own copies them ahead.
type exchangeFeed struct {
	*exchange
	op    *opRun
	at    int
	ahead *transfer.Ahead
	over  bool
}

func (f *exchangeFeed) start(context.Context) { f.exchange.start() }

func (f *exchangeFeed) run(ctx context.Context) error {
	f.exchange.start()
	f.op.state.Store(stateRunning)
	if discrete(f.runs[f.at].device) {
		f.ahead = transfer.NewAhead(ctx, f.copyIn)
	}
	return nil
}

// copyIn copies the rows of the inbox to the device.
func (f *exchangeFeed) copyIn(ctx context.Context, ahead *transfer.Ahead) (err error) {
	defer recoverInto(&err, f.op.Name())
	q, err := f.runs[f.at].device.NewQueue(f.op.Name())
	if err != nil {
		return f.op.failed(err)
	}
	defer func() { err = with(err, q.Close()) }()
	return f.op.explain(ahead.Copy(ctx, q, f.op.lease, f.inbox().receive))
}

func (f *exchangeFeed) inbox() *inbox { return f.inboxes[f.at].(*inbox) }

func (f *exchangeFeed) take(ctx context.Context) (morsel, error) {
	if f.ahead == nil {
		s, err := f.inbox().receive(ctx)
		if err != nil {
			return nil, err
		}
		return oneStride(s, 0), nil
	}
	s, err := f.ahead.Take(ctx)
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, l *lane, emit operators.Emit) error {
		if err := l.queue.Wait(s); err != nil {
			s.Release()
			return f.op.failed(err)
		}
		return emit(s)
	}, nil
}

func (f *exchangeFeed) end() (err error) {
	if f.over {
		return nil
	}
	f.over = true
	if f.ahead != nil {
		err = f.ahead.End(errStop)
	}
	f.ended(f.at)
	f.world.ended(f.exchange)
	return err
}
