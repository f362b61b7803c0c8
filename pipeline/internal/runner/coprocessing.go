package runner

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/execution"
)

// The processors that share the parts of a source.
const (
	byDevice = iota
	byCPU
	processors
)

// share is what one processor did of the parts of an operator's source.
type share struct{ items, bytes, rows, busy atomic.Int64 }

// add counts the parts of some items that took a time.
func (s *share) add(n operators.Items, took time.Duration) {
	s.items.Add(int64(n.N))
	s.bytes.Add(n.Bytes)
	s.busy.Add(int64(took))
}

// counted returns an Emit that counts rows.
func (s *share) counted(emit operators.Emit) operators.Emit {
	return func(st *gpu.Stride) error {
		s.rows.Add(int64(st.Rows))
		return emit(st)
	}
}

// pace is the time that a processor takes for a byte of parts: by what was measured before the run, which
// counts as much as the first priorBytes, and by the parts of this run.
type pace struct {
	mu             sync.Mutex
	seconds, bytes float64
}

const priorBytes = 64 << 20

// The paces before the run has its own, in seconds a byte of both sides of a join. A GPU joins as fast as the link
// brings the rows, here 50 GB/s (examples/bench/h200-spill.md). One core of an AMD EPYC took 3.6 ns of processor time
// and, beside other work, 4.6 ns and more, with pairs of 400 KB of rows of two columns of 8 bytes.
const (
	priorDevice = 1 / 50e9
	priorCore   = 4e-9
)

func newPace(prior float64) *pace { return &pace{seconds: prior * priorBytes, bytes: priorBytes} }

func (p *pace) add(bytes int64, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seconds += took.Seconds()
	p.bytes += float64(bytes)
}

// of returns the expected seconds of some bytes.
func (p *pace) of(bytes int64) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seconds / p.bytes * float64(bytes)
}

// errNoHelp ends the lanes of the CPU.
var errNoHelp = errors.New("the lane of the device needs no more help")

// helpers are lanes of the CPU that work beside the lane of a device on the parts of a source. The device takes parts
// from the first one on, and the CPU splits pieces off from the end: one whenever a lane of the CPU will probably
// have it done before the device is through with all that nobody has begun. Both times are those of this
// run, so that a CPU that holds up the device, or a slow link, change what is taken next.
//
// The rows of a piece are published when it is complete, or too large to be kept. Until then nobody has seen them: when
// the device is through with all else, it takes back the pieces that it will have done sooner itself, so a CPU that
// is slower than expected holds nothing up.
//
// What the CPU publishes is passed on by the lane of the device, between its own strides. Strides are copied up
// before, unless they go to the output.
type helpers struct {
	lane   *lane
	op     *opRun
	src    operators.Divisible
	emit   operators.Emit
	takes  string // Options.HostTakes
	up     bool
	ctx    context.Context
	stop   context.CancelCauseFunc
	made   chan madeStride
	wg     sync.WaitGroup
	device *pace
	core   *pace

	mu      sync.Mutex
	changed sync.Cond
	parts   int                // that the device has done
	worked  time.Duration      // of the device, on these
	waited  time.Duration      // of the device for the output, between
	over    bool               // the device has taken all parts
	working map[*attempt]bool  // the pieces that lanes of the CPU are at
	back    []*operators.Piece // those that the device has to do
}

// attempt is a piece that a lane of the CPU is at.
type attempt struct {
	*operators.Piece
	begin  time.Time
	cancel context.CancelCauseFunc
	kept   []*gpu.Stride // not yet published
	bytes  int64         // of them

	// The lock of the helpers guards what follows.
	published bool
	takenBack bool
}

// errTakenBack ends an attempt.
var errTakenBack = errors.New("the device takes the piece back")

// mostKept is the bytes of rows, as a multiple of those of the piece, that are kept before they are published.
const mostKept = 2

// madeStride is a stride of the CPU, on its way up to the device or in host memory.
type madeStride struct {
	*gpu.Stride
	onDevice bool
}

// helperShare is the share of the threads that are lanes of the CPU: the others read what the device joins, encode,
// and serve the device.
const helperShare = 0.75

// help starts lanes of the CPU for an operator, the i-th of the lane.
func (l *lane) help(ctx context.Context, i int, o *opRun, src operators.Divisible, emit operators.Emit) *helpers {
	r := l.pipelineRun.run
	h := &helpers{lane: l, op: o, src: src, emit: emit, takes: r.opt.HostTakes, device: newPace(priorDevice),
		core: newPace(priorCore), working: map[*attempt]bool{}}
	h.changed.L = &h.mu
	h.ctx, h.stop = context.WithCancelCause(ctx)
	h.up = l.operator(i+1) != nil || !l.out.toHost
	n := max(1, int(helperShare*float64(r.coprocessor.Lanes())))
	h.made = make(chan madeStride, n)
	for range n {
		h.wg.Go(func() {
			if err := h.work(n); err != nil {
				h.stop(err)
			}
		})
	}
	go func() {
		h.wg.Wait()
		close(h.made)
	}()
	context.AfterFunc(h.ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.changed.Broadcast()
	})
	return h
}

// work is one of n lanes of the CPU.
func (h *helpers) work(n int) (err error) {
	p := h.lane.pipelineRun
	r := p.run
	m := r.newMeter()
	defer m.stop()
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(h.op.Name(), v)
		}
	}()
	var up gpu.Queue
	if h.up {
		if up, err = r.device.NewQueue(h.op.Name()); err != nil {
			return h.op.explain(err)
		}
		defer func() { err = with(err, up.Close()) }()
	}
	width := h.op.Schema.RowBytes()
	t := operators.Task{Device: r.coprocessor, Lease: h.op.hostLease,
		StrideRows: min(p.strideRows(width), r.coprocessor.StrideRows(width)), Lanes: n,
		Grant: operators.Grant{Budget: h.op.hostLease.Limit()}}
	for {
		seen := h.done()
		piece := h.src.Split(t, h.want)
		if piece == nil {
			if !h.await(seen) {
				return nil
			}
			continue
		}
		m.turn(h.op)
		err := h.try(t, piece, up, m)
		m.turn(nil)
		switch {
		case err == errTakenBack:
			if !h.await(h.done()) {
				return nil
			}
		case err != nil:
			return h.op.explain(err)
		}
	}
}

// try emits a piece on the CPU. The error is errTakenBack if the device has to do it.
func (h *helpers) try(t operators.Task, piece *operators.Piece, up gpu.Queue, m *meter) (err error) {
	r := h.lane.pipelineRun.run
	if t.Queue, err = r.coprocessor.NewLaneQueue(h.op.Name()); err != nil {
		return err
	}
	defer func() { err = with(err, t.Queue.Close()) }()
	a := &attempt{Piece: piece, begin: time.Now()}
	var ctx context.Context
	ctx, a.cancel = context.WithCancelCause(h.ctx)
	defer a.cancel(nil)
	t.Queue.Until(ctx)
	if !h.begin(a) {
		return errTakenBack
	}
	rows := int64(0)
	send := func(s *gpu.Stride) error {
		defer m.idle(&h.op.waitOut)()
		return h.send(up, s)
	}
	err = piece.Emit(ctx, t, func(s *gpu.Stride) error {
		rows += int64(s.Rows)
		if a.published {
			return send(s)
		}
		a.kept, a.bytes = append(a.kept, s), a.bytes+s.Bytes()
		if a.bytes <= mostKept*a.Bytes {
			return nil
		}
		return h.publish(a, false, send)
	})
	took := time.Since(a.begin)
	if err == nil {
		err = h.publish(a, true, send)
	}
	for _, s := range a.kept {
		s.Release()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.working, a)
	switch {
	case err == nil:
	case !a.published && (a.takenBack || gpu.IsOutOfMemory(err)) && h.ctx.Err() == nil:
		h.back = append(h.back, piece)
		return errTakenBack
	default:
		return err
	}
	h.core.add(piece.Bytes, took)
	h.op.shares[byCPU].add(piece.Items, took)
	h.op.shares[byCPU].rows.Add(rows)
	r.span(laneCPU, h.op.Name(), "partitions", a.begin, piece.Bytes)
	return nil
}

// begin takes note of an attempt, unless the device is through with all else: then it does this piece too.
func (h *helpers) begin(a *attempt) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		h.back = append(h.back, a.Piece)
		return false
	}
	h.working[a] = true
	return true
}

// publish sends the rows that an attempt has kept. The device does not take it back any more. If it has already, that
// is an error unless the attempt is complete: then the rows of the source are gone.
func (h *helpers) publish(a *attempt, complete bool, send func(*gpu.Stride) error) error {
	h.mu.Lock()
	a.published = a.published || complete || !a.takenBack
	published := a.published
	h.mu.Unlock()
	if !published {
		return errTakenBack
	}
	for len(a.kept) > 0 {
		s := a.kept[0]
		a.kept = a.kept[1:]
		if err := send(s); err != nil {
			return err
		}
	}
	return nil
}

// takeBack ends the attempts whose pieces the device will have done sooner than the CPU.
func (h *helpers) takeBack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.changed.Broadcast()
	for a := range h.working {
		if !a.published && h.sooner(a.Bytes, time.Since(a.begin)) {
			a.takenBack = true
			a.cancel(errTakenBack)
		}
	}
}

// sooner reports whether the device will have done a piece of some bytes before the CPU, which has been at it for some
// time.
func (h *helpers) sooner(bytes int64, been time.Duration) bool {
	return h.takes == execution.HostTakesAny || h.device.of(bytes) < h.core.of(bytes)-been.Seconds() ||
		been.Seconds() > h.core.of(bytes)
}

// want reports whether a lane of the CPU should take a piece, of so many bytes that nobody has begun. It should not
// before the device has shown its pace, nor when the output holds the device up: then it is the output that needs the
// cores, to encode rows.
func (h *helpers) want(left, piece int64) bool {
	return h.takes != "" || h.inNeed() && h.core.of(piece) < h.device.of(left)
}

// outputBound is the time that the device waits for the output, as a share of the time that it works, from which on the
// output is what limits both.
const outputBound = 0.25

func (h *helpers) inNeed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parts > 0 && h.waited.Seconds() <= outputBound*h.worked.Seconds()
}

// done returns how many parts the device has done.
func (h *helpers) done() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parts
}

// await waits until the device has done another part than those seen: its pace may be another one then, or there may be
// more memory. It returns false if no part is left for the CPU.
func (h *helpers) await(seen int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.parts == seen && !h.over && h.ctx.Err() == nil && h.takes != execution.HostTakesAll {
		h.changed.Wait()
	}
	return h.parts != seen && !h.over && h.ctx.Err() == nil
}

// send hands a stride to the lane of the device. It is copied up ahead if there is a queue for it and enough memory.
func (h *helpers) send(up gpu.Queue, s *gpu.Stride) error {
	m := madeStride{Stride: s}
	if l := h.op.lease; up != nil && l.Available() >= grant.HostStrides.Of(l.Limit()) {
		ahead, err := up.UploadAhead(l, s)
		switch {
		case err == nil:
			m = madeStride{ahead, true}
		case !gpu.IsOutOfMemory(err): // the lane of the device tries again
			s.Release()
			return err
		}
	}
	select {
	case h.made <- m:
		return nil
	case <-h.ctx.Done():
		h.forget(up, m)
		return context.Cause(h.ctx)
	}
}

// forget releases a stride that nobody takes.
func (h *helpers) forget(q gpu.Queue, m madeStride) {
	if m.onDevice {
		_ = q.Wait(m.Stride)
	}
	m.Release()
}

// pass passes a stride of the CPU on, on the lane of the device.
func (h *helpers) pass(m madeStride) error {
	s, q := m.Stride, h.lane.queue
	var err error
	switch {
	case m.onDevice:
		err = q.Wait(s)
	case h.up:
		var up *gpu.Stride
		if up, err = q.Upload(h.op.lease, s); err == nil {
			s = up
		}
	}
	if err != nil {
		s.Release()
		return err
	}
	return h.emit(s)
}

// passReady passes on what is there. passAll does until the lanes of the CPU have ended.
func (h *helpers) passReady() error {
	for {
		select {
		case m, ok := <-h.made:
			if !ok {
				return nil
			}
			if err := h.pass(m); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (h *helpers) passAll() error {
	h.lane.begin()
	defer h.lane.end()
	for m := range h.made {
		if err := h.pass(m); err != nil {
			return err
		}
	}
	return context.Cause(h.ctx)
}

// did takes note of a part that the device has done. For some of the time that it took, the device waited for the
// output.
func (h *helpers) did(n operators.Items, took, waited time.Duration) {
	h.device.add(n.Bytes, took-waited)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts++
	h.worked += took - waited
	h.waited += waited
	h.changed.Broadcast()
}

// finish waits for the lanes of the CPU when the device has done all its parts, and does what they gave back.
func (h *helpers) finish(emit operators.Emit) error {
	h.takeBack()
	if err := h.passAll(); err != nil {
		return err
	}
	for _, p := range h.back {
		begin := time.Now()
		h.lane.begin()
		err := p.Emit(h.ctx, h.lane.task(h.op), emit)
		h.lane.end()
		if err != nil {
			return err
		}
		h.op.shares[byDevice].add(p.Items, time.Since(begin))
	}
	return nil
}

// end ends the lanes of the CPU, with the error of the lane of the device.
func (h *helpers) end(err error) error {
	if err == nil {
		err = context.Cause(h.ctx)
	}
	h.stop(errNoHelp)
	for m := range h.made {
		h.forget(h.lane.queue, m)
	}
	return err
}
