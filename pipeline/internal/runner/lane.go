package runner

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/execution"
)

// lane is one of the lanes of a pipeline: a goroutine with a queue, and its local state
// of each operator. It takes morsels from the pipeline's feed and passes their strides
// through the operators by direct calls.
type lane struct {
	*pipelineRun
	*meter
	queue  gpu.Queue
	ops    []operators.Lane // for the streaming operators
	local  operators.Local  // for the blocking operator at the end
	number int              // number of the lane's morsel
	order  int              // its position in the order of the plan's input, among the morsels of all devices
}

// task returns the task of an operator in the lane.
func (l *lane) task(o *opRun) operators.Task {
	r := l.pipelineRun.run
	return operators.Task{Device: r.device, Queue: l.queue, Lease: o.lease,
		StrideRows: l.strideRows(o.Schema.RowBytes()), Lanes: l.lanes, Grant: l.grant(o, len(l.builds)), Spill: r.spill}
}

// work runs the lane until the feed has no more morsels.
func (l *lane) work(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(l.where(l.pipelineRun), p)
		}
	}()
	defer func() {
		if closeErr := l.close(); err == nil {
			err = closeErr
		}
	}()
	if err := l.open(ctx); err != nil {
		return err
	}
	for !l.stopped.Load() {
		l.turn(l.first())
		resume := l.idle(l.first(), &l.first().waitIn, l.feeder)
		m, err := l.take(ctx)
		resume()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		l.order = 0
		if err := m(ctx, l, l.emit(ctx, -1)); err != nil && (err != errStop || !l.stopped.Load()) {
			return err
		}
		l.end()
	}
	if err := l.flush(ctx); err != nil {
		return err
	}
	if l.into == nil {
		return nil
	}
	l.turn(l.into)
	return l.into.explain(l.local.Combine(ctx))
}

// flush flushes the operators, except those that need no more rows. The rows that they emit are a
// morsel after all others: the feed has no more morsels, and each lane numbers its last morsel as
// it ends.
func (l *lane) flush(ctx context.Context) error {
	l.begin()
	l.order = l.orderedInputs()<<inputBits - 1 // after all others
	for i, o := range l.pipelineRun.ops {
		if slices.ContainsFunc(l.pipelineRun.ops[i:], (*opRun).done) {
			continue
		}
		l.turn(o)
		err := l.ops[i].Flush(ctx, l.emit(ctx, i))
		if d, ok := o.op.(operators.Deferring); ok && err == nil {
			err = l.deferred(ctx, i, d.Deferred())
		}
		if err != nil && (err != errStop || !l.stopped.Load()) {
			return o.explain(err)
		}
	}
	l.end()
	return nil
}

// deferred emits parts of the rows that an operator has kept back, once all lanes have flushed it.
// src is nil if there are none.
func (l *lane) deferred(ctx context.Context, i int, src operators.Source) error {
	o := l.pipelineRun.ops[i]
	if src == nil {
		o.crew.join(o)
		return nil
	}
	// Strides of other lanes come after the lane's morsel, so it must have ended before the wait.
	l.end()
	defer l.begin()
	if err := o.flushed.wait(ctx, l.lanes); err != nil {
		return err
	}
	return l.share(ctx, i, o, src, l.emit(ctx, i), func() int { return int(o.flushed.parts.Add(1)) - 1 })
}

// share emits parts of the source of operator i. next numbers them. Each part is a separate morsel.
// Other processors may help. Afterwards a GPU helps others.
func (l *lane) share(ctx context.Context, i int, o *opRun, src operators.Source, emit operators.Emit,
	next func() int) (err error) {
	var h *offer
	parts, divisible := src.(operators.Divisible)
	defer func() {
		if err == nil {
			o.crew.join(o)
		}
	}()
	if divisible && o.crew != nil && src.Parts() > 0 && parts.Items(0).N > 0 {
		h = l.offer(ctx, i, o, parts, emit)
		ctx = h.ctx
		defer func() { err = h.end(err) }()
		if h.takes == execution.HostTakesAll && h.lanes > 0 {
			if err := h.passUntil(h.dry); err != nil {
				return err
			}
		}
	}
	if divisible {
		emit = o.shares[byDevice].counted(emit)
	}
	for context.Cause(ctx) == nil {
		part := next()
		if part >= src.Parts() {
			break
		}
		if h != nil {
			h.take(part)
		}
		begin, idled := time.Now(), l.idled
		l.begin()
		err := src.Emit(ctx, l.task(o), part, func(s *gpu.Stride) error {
			if err := emit(s); err != nil || h == nil {
				return err
			}
			return h.passReady()
		})
		l.end()
		if err != nil {
			return err
		}
		if divisible {
			n, took := parts.Items(part), time.Since(begin)
			o.shares[byDevice].add(n, took)
			if h != nil {
				h.did(n, took, l.idled-idled)
			}
		}
	}
	if h != nil {
		return h.finish(emit)
	}
	return context.Cause(ctx)
}

// barrier makes lanes wait until all of them have reached it.
type barrier struct {
	mu    sync.Mutex
	here  int
	all   chan struct{}
	parts atomic.Int64 // parts taken after the barrier
}

// wait waits for all lanes of a number, or until ctx ends.
func (b *barrier) wait(ctx context.Context, lanes int) error {
	b.mu.Lock()
	if b.all == nil {
		b.all = make(chan struct{})
	}
	if b.here++; b.here == lanes {
		close(b.all)
	}
	b.mu.Unlock()
	select {
	case <-b.all:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin begins a morsel that the lane itself creates. end ends the lane's morsel.
func (l *lane) begin() {
	l.taking.Lock()
	defer l.taking.Unlock()
	l.number = l.taken
	l.taken++
}

func (l *lane) end() {
	if l.out != nil {
		l.out.end(l.number, l.order)
	}
}

// take returns the next morsel of the feed. Morsels are numbered in the order of the
// input.
func (l *lane) take(ctx context.Context) (morsel, error) {
	l.taking.Lock()
	defer l.taking.Unlock()
	m, err := l.feed.take(ctx)
	if err == nil {
		l.number = l.taken
		l.taken++
	}
	return m, err
}

// open makes the lane's queue and its local states.
func (l *lane) open(ctx context.Context) (err error) {
	r, name := l.pipelineRun.run, l.last().Name()
	if l.queue, err = r.newQueue(name, l.lanes > 1 || r.frugal); err != nil {
		return l.last().failed(err)
	}
	l.queue.Until(ctx)
	for _, o := range l.pipelineRun.ops {
		l.turn(o)
		op, err := o.op.(operators.Streaming).NewLane(l.task(o))
		if err != nil {
			return o.explain(err)
		}
		l.ops = append(l.ops, op)
		if o.done() {
			l.stopped.Store(true)
		}
	}
	if o := l.into; o != nil {
		l.turn(o)
		t := l.task(o)
		t.Grant = l.buildGrant()
		if l.local, err = o.op.(operators.Blocking).NewLocal(t); err != nil {
			return o.explain(err)
		}
	}
	return nil
}

// close closes the local states and the queue, even if one of them fails.
func (l *lane) close() (err error) {
	defer l.stop()
	for _, op := range l.ops {
		err = with(err, op.Close())
	}
	if l.local != nil {
		err = with(err, l.local.Close())
	}
	if l.queue != nil {
		err = with(err, l.queue.Close())
	}
	return err
}

// emit returns the Emit of operator i, or of the feed if i is -1.
func (l *lane) emit(ctx context.Context, i int) operators.Emit {
	return func(s *gpu.Stride) error { return l.pass(ctx, i, s) }
}

// pass passes on a stride of operator i: to the next operator, or to the end of the
// pipeline. The error is errStop when no more rows are needed.
func (l *lane) pass(ctx context.Context, i int, s *gpu.Stride) error {
	if s.Rows == 0 {
		s.Release()
		return nil
	}
	if ctx.Err() != nil {
		s.Release()
		return context.Cause(ctx)
	}
	if from := l.operator(i); from != nil {
		from.rowsOut.Add(int64(s.Rows))
		from.bytesOut.Add(s.Bytes())
	}
	to := l.operator(i + 1)
	if to == nil {
		defer l.idle(l.last(), &l.last().waitOut, l.reader)()
		if l.out.toHost {
			s.SetReady(l.pipelineRun.run.device)
		}
		return l.out.send(ctx, l.number, queued{s, l.order})
	}
	to.rowsIn.Add(int64(s.Rows))
	to.state.Store(stateRunning)
	defer l.turn(l.turn(to))
	l.worked += int64(s.Rows)
	if i+1 == len(l.ops) {
		number := l.number
		if l.byOrder {
			number = l.order
		}
		return to.explain(l.local.Push(ctx, number, s))
	}
	if err := l.ops[i+1].Push(ctx, s, l.emit(ctx, i+1)); err != nil {
		return to.explain(err)
	}
	if to.done() {
		l.stopped.Store(true)
		return errStop
	}
	return nil
}

// feeder returns the name of what the lanes of a pipeline wait for when they have no morsel.
func (p *pipelineRun) feeder() string {
	switch f := p.feed.(type) {
	case *channelFeed:
		return f.from.name()
	case *unionFeed:
		return p.first().Name()
	}
	if p.from != nil && p.from.scan != nil {
		return "decoding of " + p.from.Name()
	}
	return p.first().Name()
}

// reader returns the name of the operator that takes the rows of a pipeline.
func (p *pipelineRun) reader() string {
	for to := p.to; to != nil; to = to.to {
		if o := to.operator(0); o != nil {
			return o.Name()
		}
	}
	return "output"
}
