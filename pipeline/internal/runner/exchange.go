package runner

import (
	"context"
	"math/bits"
	"sync"

	"github.com/gstream/gstream/gpu"
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
	stage *physical.Stage
	spec  *physical.Exchange
	runs  []*run
	ops   []*opRun       // by run; of the senders and receivers
	feeds []*channelFeed // by run; nil for one that does not send
	seed  uint64

	begin   sync.Once
	begun   bool
	ctx     context.Context
	stop    context.CancelCauseFunc
	inboxes []*inbox
	sending sync.WaitGroup

	mu        sync.Mutex
	receivers int // that have not ended
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
	x.receivers++
	return &pipelineRun{run: r, feed: &exchangeFeed{exchange: x, op: o, at: r.at}, from: o}, nil
}

// exchange returns the exchange of a stage. It prepares the pipelines of the senders.
func (g *group) exchange(st *physical.Stage, spec *physical.Exchange) (*exchange, error) {
	if x := g.exchanges[st]; x != nil {
		return x, nil
	}
	n := len(g.runs)
	x := &exchange{stage: st, spec: spec, runs: g.runs, ops: make([]*opRun, n), feeds: make([]*channelFeed, n),
		seed: g.seed}
	g.exchanges[st] = x
	for range n {
		x.inboxes = append(x.inboxes, newInbox(n))
	}
	for i, r := range g.runs {
		if !r.has(st.Inputs[0]) {
			for _, in := range x.inboxes {
				in.end(i)
			}
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
		x.ctx, x.stop = context.WithCancelCause(x.runs[0].ctx)
		x.begun = true
		for i, f := range x.feeds {
			if f == nil {
				continue
			}
			x.sending.Go(func() {
				_ = x.send(i, f)               // the error has ended the run
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
	if !x.begun {
		return
	}
	x.stop(errStop)
	for _, in := range x.inboxes {
		in.stop(errStop)
	}
	x.sending.Wait()
}

// ended is called by each receiver.
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

// send is the sender of a run.
func (x *exchange) send(from int, f *channelFeed) (err error) {
	o := x.ops[from]
	defer func() {
		x.fail(from, err) // before its pipelines end for want of a receiver
		x.fail(from, f.end())
	}()
	defer recoverInto(&err, o.Name())
	f.start(x.ctx)
	r := x.runs[from]
	m := r.newMeter()
	defer m.stop()
	var q gpu.Queue
	defer func() {
		if q != nil {
			err = with(err, q.Close())
		}
	}()
	for {
		resume := m.idle(o, &o.waitIn, f.from.name)
		s, ok := f.from.out.receive(x.ctx)
		resume()
		if !ok {
			return nil // the rows have ended, or the run has
		}
		if !x.spec.Ordered {
			s.order = 0
		}
		for _, in := range x.inboxes {
			in.pass(from, s.order)
		}
		if s.Stride == nil {
			continue
		}
		o.rowsIn.Add(int64(s.Rows))
		o.state.Store(stateRunning)
		if q == nil && x.spec.Kind == physical.Hash {
			if q, err = r.newQueue(o.Name(), false); err != nil {
				s.Release()
				return o.failed(err)
			}
			q.Until(x.ctx)
		}
		m.turn(o)
		parts, err := x.route(operators.Task{Device: r.device, Queue: q, Lease: o.lease}, s.Stride)
		m.turn(nil)
		if err != nil {
			return o.explain(err)
		}
		if err := x.put(m, from, s.order, parts); err != nil {
			return err
		}
	}
}

// fail ends the run with the error of a sender, unless the exchange has ended.
func (x *exchange) fail(from int, err error) {
	if err != nil && context.Cause(x.ctx) != errStop {
		x.runs[from].cancel(err)
	}
}

// put puts a part of a stride into each inbox. Parts may be nil. It takes them over.
func (x *exchange) put(m *meter, from, order int, parts []*gpu.Stride) (err error) {
	o := x.ops[from]
	defer m.idle(o, &o.waitOut, func() string { return o.Name() })()
	for to, part := range parts {
		switch {
		case part == nil:
		case err != nil || part.Rows == 0:
			part.Release()
		default:
			part.SetReady(x.runs[from].device)
			// An inbox whose receiver needs no more rows releases them.
			if sent := x.inboxes[to].send(x.ctx, from, queued{part, order}); sent != errStop {
				err = sent
			}
		}
	}
	return err
}

// route returns the rows of a stride for each device. It takes the stride over.
func (x *exchange) route(t operators.Task, s *gpu.Stride) ([]*gpu.Stride, error) {
	parts := make([]*gpu.Stride, len(x.runs))
	switch x.spec.Kind {
	case physical.Gather:
		parts[0] = s
		return parts, nil
	case physical.Broadcast:
		for i := range parts[1:] {
			parts[i] = s.Retain()
		}
		parts[len(parts)-1] = s
		return parts, nil
	}
	defer s.Release()
	hash, err := t.Queue.Hash(t.Lease, operators.Pick(s.Cols, x.spec.Keys), x.seed)
	if err != nil {
		return nil, err
	}
	to, err := t.Queue.Eval(t.Lease, remainder(len(parts)), []gpu.Column{hash}, s.Rows)
	hash.Release()
	if err != nil {
		return nil, err
	}
	defer to[0].Release()
	rows, offsets, err := operators.PartitionStride(t, s, to[0], gpu.Digit{Bits: uint(bits.Len(uint(len(parts) - 1)))})
	if err != nil {
		return nil, err
	}
	defer rows.Release()
	return operators.CutStride(t, rows, offsets[:len(parts)+1])
}

// remainder returns the program that divides a hash by a number and returns the remainder.
func remainder(n int) *gpu.Program {
	t := gpu.Of(gpu.Uint64)
	return &gpu.Program{Inputs: []gpu.Type{t}, Outputs: []int{2}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: t, Value: gpu.IntScalar(t, int64(n)), Mask: -1},
		{Op: gpu.OpMod, Type: t, Args: []int{0, 1}, Mask: -1, Text: "exchange"}}}
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
	return f.op.explain(ahead.Copy(ctx, q, f.op.lease, f.inboxes[f.at].receive))
}

func (f *exchangeFeed) take(ctx context.Context) (morsel, error) {
	if f.ahead == nil {
		s, err := f.inboxes[f.at].receive(ctx)
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
	return err
}
