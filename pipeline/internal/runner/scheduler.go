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

// share counts the parts of an operator's source that one processor has processed.
type share struct{ items, bytes, rows, busy atomic.Int64 }

// add counts the parts of some items, and the time that they took.
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

// pace is the time that a processor takes per byte of parts. It is an average of the time that was
// measured before the run, which counts as priorBytes, and the time of the parts of this run.
type pace struct {
	mu             sync.Mutex
	seconds, bytes float64
}

const priorBytes = 64 << 20

// The paces at the start of a run, in seconds per byte of both sides of a join. A GPU joins as fast
// as the link delivers the rows, here 50 GB/s (examples/bench/h200-spill.md). One core of an AMD
// EPYC took 3.6 ns of processor time, and 4.6 ns and more while other work ran, with pairs of 400
// KB of rows of two 8-byte columns.
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

// of returns the expected seconds for a number of bytes.
func (p *pace) of(bytes int64) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seconds / p.bytes * float64(bytes)
}

// errNoHelp ends the lanes of the CPU.
var errNoHelp = errors.New("the lane of the device needs no more help")

// helpers are lanes of the CPU that work on the parts of a source together with the lane of a
// device. The device takes parts from the first one on. The CPU splits pieces off at the end. It
// takes one if it will probably have finished it before the device has finished all parts that
// nobody has begun. Both times are measured in this run, so they adapt to a CPU that slows the
// device down, and to a slow link.
//
// The rows of a piece are published once it is complete, or once they are too large to be kept.
// Until then nobody has seen them. Once the device has finished everything else, it takes back the
// pieces that it would finish sooner than the CPU. So a CPU that is slower than expected delays
// nothing.
//
// The lane of the device passes on the rows that the CPU publishes, between its own strides. The
// strides are copied up before that, unless they go to the output.
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
	parts   int                // parts that the device has finished
	worked  time.Duration      // time of the device for these parts
	waited  time.Duration      // time during which the device waited for the output
	over    bool               // the device has taken all parts
	working map[*attempt]bool  // the pieces on which lanes of the CPU work
	back    []*operators.Piece // the pieces that the device has to process
}

// attempt is a piece on which a lane of the CPU works.
type attempt struct {
	*operators.Piece
	begin  time.Time
	cancel context.CancelCauseFunc
	kept   []*gpu.Stride // not yet published
	bytes  int64         // bytes of kept

	// The lock of the helpers guards the following fields.
	published bool
	takenBack bool
}

// errTakenBack ends an attempt.
var errTakenBack = errors.New("the device takes the piece back")

// mostKept bounds the bytes of rows that are kept before they are published, as a multiple of the
// bytes of the piece.
const mostKept = 2

// madeStride is a stride of the CPU, on its way up to the device or in host memory.
type madeStride struct {
	*gpu.Stride
	onDevice bool
}

// helperShare is the share of the threads that become lanes of the CPU. The others read the input
// of the device, encode, and serve the device.
const helperShare = 0.75

// help starts lanes of the CPU for operator i of the lane.
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

// try processes a piece on the CPU. The error is errTakenBack if the device has to process it.
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
		defer m.idle(h.op, &h.op.waitOut, h.lane.reader)()
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

// begin records an attempt. It returns false if the device has finished everything else: the device
// then processes this piece too.
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

// publish sends the rows that an attempt has kept. Afterwards the device no longer takes the
// attempt back. If it has already taken it back, publish returns an error, unless the attempt is
// complete: then the source has released the rows.
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

// takeBack ends the attempts whose pieces the device will finish sooner than the CPU.
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

// sooner reports whether the device will finish a piece of some bytes before the CPU, which has
// worked on it for some time.
func (h *helpers) sooner(bytes int64, been time.Duration) bool {
	return h.takes == execution.HostTakesAny || h.device.of(bytes) < h.core.of(bytes)-been.Seconds() ||
		been.Seconds() > h.core.of(bytes)
}

// want reports whether a lane of the CPU should take a piece. left is the number of bytes that
// nobody has begun. A lane should not take a piece before the pace of the device has been measured,
// nor while the device waits for the output: then the output needs the cores to encode rows.
func (h *helpers) want(left, piece int64) bool {
	return h.takes != "" || h.inNeed() && h.core.of(piece) < h.device.of(left)
}

// outputBound bounds the time that the device waits for the output, as a share of the time that it
// works. Above it, the output is the bottleneck.
const outputBound = 0.25

func (h *helpers) inNeed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parts > 0 && h.waited.Seconds() <= outputBound*h.worked.Seconds()
}

// done returns the number of parts that the device has finished.
func (h *helpers) done() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parts
}

// await waits until the device has finished more parts than seen. By then its pace may have
// changed, or more memory may be free. It returns false if no part is left for the CPU.
func (h *helpers) await(seen int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.parts == seen && !h.over && h.ctx.Err() == nil && h.takes != execution.HostTakesAll {
		h.changed.Wait()
	}
	return h.parts != seen && !h.over && h.ctx.Err() == nil
}

// send passes a stride to the lane of the device. The stride is copied up ahead if there is a queue
// for it and enough memory.
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

// pass passes on a stride of the CPU, in the lane of the device.
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

// passReady passes on the strides that have been sent. passAll does so until the lanes of the CPU
// have ended.
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

// did records a part that the device has finished. took is the time of the device for it, waited
// the share of this time during which it waited for the output.
func (h *helpers) did(n operators.Items, took, waited time.Duration) {
	h.device.add(n.Bytes, took-waited)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts++
	h.worked += took - waited
	h.waited += waited
	h.changed.Broadcast()
}

// finish waits for the lanes of the CPU once the device has finished all its parts, and processes
// the pieces that they returned.
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
