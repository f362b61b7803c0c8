package runner

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// The processors that share the parts of a source: the device of the run, and the CPU.
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

// report returns the share of a processor.
func (s *share) report(d gpu.Device) execution.Share {
	return execution.Share{Device: d.Known().ID, Partitions: s.items.Load(), Bytes: s.bytes.Load(),
		RowsOut: s.rows.Load(), Busy: time.Duration(s.busy.Load())}
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

// rate returns the expected bytes per second.
func (p *pace) rate() float64 { return 1 / p.of(1) }

// rateDuring is rate while the processor works on some bytes, and has taken some time for them. It is lower if that is
// longer than expected.
func (p *pace) rateDuring(bytes int64, been time.Duration) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(p.bytes/p.seconds, (p.bytes+float64(bytes))/(p.seconds+been.Seconds()))
}

var (
	// errNoHelp ends the work of helpers.
	errNoHelp = errors.New("the lane of the device needs no more help")
	// errTakenBack ends an attempt.
	errTakenBack = errors.New("the device takes the piece back")
)

// crew is the processors that work on the partitions of a stage that went out of core: the GPUs of the run, and lanes
// of the CPU if it helps. Each GPU has partitions of its own, since rows are there by the hash of other bits of the
// keys or where they were scanned. It offers them: it takes parts from the first one on, and helpers split pieces off
// at the end. Lanes of the CPU help from the first offer on, a GPU once it has finished its own parts. So a GPU that is
// slower than others, or that other processes use, gets less work.
//
// A helper takes a piece if it will probably have finished it before the processors at work on the offer have finished
// all parts that nobody has begun. It looks first at the offer that will end last. All times are measured in this run,
// so they adapt to a CPU that slows a GPU down, and to a slow link.
//
// Helpers work in goroutines of their own, which end when nothing is on offer. A lane never waits for another GPU,
// except for pieces of its own offer.
type crew struct {
	takes   string     // Options.HostTakes
	cpu     gpu.Device // nil if it does not help
	lanes   int        // of the CPU
	gpus    int        // that have the stage
	helping sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	events  int // that may change what a helper wants
	offers  []*offer
	idle    []*helper // that have no goroutine
}

// helper is a processor that works on offers: a GPU that has finished its own parts, or a lane of the CPU.
type helper struct {
	gpu  *opRun // the operator on the GPU; nil for a lane of the CPU
	pace *pace
}

// helperShare is the share of the threads that become lanes of the CPU. The others read the input
// of the devices, encode, and serve the devices.
const helperShare = 0.75

// crewOf returns the crew of an operator's stage, nil if there is only one processor for its parts. All iterations of a
// recursion have the same.
func (r *run) crewOf(o *opRun) *crew {
	first := r.whole().first()
	gpus := 0
	for _, each := range first.runs() {
		if each.has(o.Stage) {
			gpus++
		}
	}
	_, divisible := o.op.(operators.Divisible)
	if !divisible || !discrete(r.device) || first.coprocessor == nil && gpus == 1 {
		return nil
	}
	first.crewsMu.Lock()
	defer first.crewsMu.Unlock()
	c := first.crews[o.Stage]
	if c == nil {
		c = newCrew(first.coprocessor, gpus, r.opt.HostTakes)
		if first.crews == nil {
			first.crews = map[*physical.Stage]*crew{}
		}
		first.crews[o.Stage] = c
	}
	return c
}

func newCrew(cpu gpu.Device, gpus int, takes string) *crew {
	c := &crew{takes: takes, cpu: cpu, gpus: gpus}
	c.changed.L = &c.mu
	if cpu != nil {
		c.lanes = max(1, int(helperShare*float64(cpu.Lanes())))
	}
	core := newPace(priorCore)
	for range c.lanes {
		c.idle = append(c.idle, &helper{pace: core})
	}
	return c
}

// join makes the GPU of an operator, which has finished its own parts, a helper of the other GPUs. A nil crew needs no
// helpers. A frugal run leaves the memory to the stages.
func (c *crew) join(o *opRun) {
	if c == nil || c.gpus == 1 || o.run.frugal {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, &helper{gpu: o, pace: o.pace})
	c.recruit()
}

// recruit starts the idle helpers if anything is on offer. The caller holds the lock.
func (c *crew) recruit() {
	if len(c.offers) == 0 {
		return
	}
	for _, by := range c.idle {
		c.helping.Go(func() { c.help(by) })
	}
	c.idle = nil
}

// note says that something has happened that may change what a helper wants. The caller holds the lock.
func (c *crew) note() {
	c.events++
	c.changed.Broadcast()
}

// look returns the offers, first the one that would end last without the helper, and the number of events so far.
func (c *crew) look(by *helper) ([]*offer, int) {
	c.mu.Lock()
	events, offers := c.events, slices.Clone(c.offers)
	c.mu.Unlock()
	if len(offers) > 1 {
		ends := map[*offer]float64{}
		for _, h := range offers {
			if h.enter(by) {
				ends[h] = h.endOf(by, h.left())
				h.seeking.Done()
			}
		}
		slices.SortStableFunc(offers, func(x, y *offer) int { return cmp.Compare(ends[y], ends[x]) })
	}
	return offers, events
}

// help is the work of a helper. It ends when nothing is on offer.
func (c *crew) help(by *helper) {
	for {
		offers, events := c.look(by)
		took := slices.ContainsFunc(offers, func(h *offer) bool { return h.helped(by) })
		c.mu.Lock()
		for !took && c.events == events && len(c.offers) > 0 {
			c.changed.Wait()
		}
		over := len(c.offers) == 0
		if over {
			c.idle = append(c.idle, by)
		}
		c.mu.Unlock()
		if over {
			return
		}
	}
}

// close waits for the helpers.
func (c *crew) close() { c.helping.Wait() }

// offer is the parts of a source that a lane of a GPU, the owner, has or shares.
//
// The rows of a piece are published once it is complete, or once they are too large to be kept.
// Until then nobody has seen them. Once the owner has finished everything else, it takes back the
// pieces that it would finish sooner than their helpers. So a helper that is slower than expected delays
// nothing.
//
// The owner passes on the rows that helpers publish, between its own strides. The strides are copied to its GPU before
// that, unless the CPU made them and they go to the output.
type offer struct {
	*crew
	lane *lane
	op   *opRun
	src  operators.Divisible
	emit operators.Emit
	up   bool
	ctx  context.Context
	stop context.CancelCauseFunc
	made chan madeStride
	dry  chan struct{} // with HostTakesAll: closed once the CPU can take no more

	seeking sync.WaitGroup // of helpers that look for a piece or work on one

	// The lock of the crew guards the following fields.
	begun    int                // parts that the owner has begun
	since    time.Time          // the begin of the last of them
	now      int64              // its bytes; 0 once it is finished
	parts    int                // parts that it has finished
	worked   time.Duration      // time of the owner for these parts
	waited   time.Duration      // time during which the owner waited for the output
	over     bool               // the owner has taken all parts
	declined map[*helper]bool   // with HostTakesAll: lanes of the CPU that take no more
	working  map[*attempt]bool  // the pieces on which helpers work
	back     []*operators.Piece // the pieces that the owner has to process
	queues   []gpu.Queue        // of the owner's GPU, for copies of rows that helpers made
}

// attempt is a piece on which a helper works.
type attempt struct {
	*operators.Piece
	by     *helper
	begin  time.Time
	cancel context.CancelCauseFunc
	kept   []*gpu.Stride // not yet published
	bytes  int64         // bytes of kept

	// The lock of the crew guards the following fields.
	published bool
	takenBack bool
}

// mostKept bounds the bytes of rows that are kept before they are published, as a multiple of the
// bytes of the piece.
const mostKept = 2

// madeStride is a stride of a helper, on its way up to the owner's GPU or not yet.
type madeStride struct {
	*gpu.Stride
	sent bool // Wait makes it usable
	up   bool // it must be copied up
}

// offer offers the parts of a source of operator i of the lane.
func (l *lane) offer(ctx context.Context, i int, o *opRun, src operators.Divisible, emit operators.Emit) *offer {
	c := o.crew
	h := &offer{crew: c, lane: l, op: o, src: src, emit: emit, declined: map[*helper]bool{},
		working: map[*attempt]bool{}, dry: make(chan struct{}), made: make(chan madeStride, max(c.lanes, 1))}
	h.ctx, h.stop = context.WithCancelCause(ctx)
	h.up = l.operator(i+1) != nil || !l.out.toHost
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offers = append(c.offers, h)
	c.note()
	c.recruit()
	return h
}

// task returns the task of a helper, without a queue. A GPU works as one of two lanes, so that a piece leaves half of
// its free memory to the stages that follow.
func (h *offer) task(by *helper) operators.Task {
	d, l, lanes := h.cpu, h.op.hostLease, h.lanes
	if by.gpu != nil {
		d, l, lanes = by.gpu.run.device, by.gpu.lease, 2
	}
	width := h.op.Schema.RowBytes()
	return operators.Task{Device: d, Lease: l, Lanes: lanes,
		StrideRows: min(h.lane.strideRows(width), d.StrideRows(width)), Grant: operators.Grant{Budget: l.Limit()}}
}

// account returns the operator for which a helper works, and its share of the parts.
func (h *offer) account(by *helper) (*opRun, *share) {
	if by.gpu != nil {
		return by.gpu, &by.gpu.shares[byDevice]
	}
	return h.op, &h.op.shares[byCPU]
}

// left returns the bytes of the parts that nobody has begun.
func (h *offer) left() (bytes int64) {
	h.mu.Lock()
	begun := h.begun
	h.mu.Unlock()
	for part := begun; part < h.src.Parts(); part++ {
		bytes += h.src.Items(part).Bytes
	}
	return bytes
}

// enter lets a helper look for a piece until it leaves. It returns false if there is none for it.
func (h *offer) enter(by *helper) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.declined[by] {
		return false
	}
	h.seeking.Add(1)
	return true
}

// helped lets a helper take a piece, if it wants one, and reports whether it has processed one.
func (h *offer) helped(by *helper) (took bool) {
	if !h.enter(by) {
		return false
	}
	defer h.seeking.Done()
	op, _ := h.account(by)
	var err error
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(h.op.Name(), v)
		}
		if err != nil && err != errTakenBack {
			h.stop(op.run.named(h.op.explain(err)))
		}
		took = took && err == nil
	}()
	piece := h.src.Split(h.task(by), func(left, piece int64) bool { return h.wants(by, left, piece) })
	if piece == nil {
		h.decline(by)
		return false
	}
	m := h.lane.pipelineRun.run.newMeter()
	defer m.stop()
	m.turn(op)
	if err = h.try(by, piece, m); err == errTakenBack {
		h.decline(by)
	}
	return true
}

// decline notes that a helper has not processed a piece. With HostTakesAll, a lane of the CPU then takes no more of the
// offer.
func (h *offer) decline(by *helper) {
	if h.takes != execution.HostTakesAll || by.gpu != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.declined[by] = true
	if len(h.declined) == h.lanes {
		close(h.dry)
	}
}

// try processes a piece. The error is errTakenBack if the owner has to process it.
func (h *offer) try(by *helper, piece *operators.Piece, m *meter) (err error) {
	t, name := h.task(by), h.op.Name()
	op, share := h.account(by)
	if t.Queue, err = t.Device.NewLaneQueue(name); err != nil {
		return err
	}
	defer func() { err = with(err, t.Queue.Close()) }()
	a := &attempt{Piece: piece, by: by, begin: time.Now()}
	var ctx context.Context
	ctx, a.cancel = context.WithCancelCause(h.ctx)
	defer a.cancel(nil)
	t.Queue.Until(ctx)
	if !h.begin(a) {
		return errTakenBack
	}
	rows := int64(0)
	send := func(s *gpu.Stride) error {
		defer m.idle(op, &op.waitOut, h.lane.reader)()
		return h.send(by, s)
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
	by.pace.add(piece.Bytes, took)
	share.add(piece.Items, took)
	share.rows.Add(rows)
	h.note()
	if by.gpu == nil {
		h.lane.pipelineRun.run.span(laneCPU, name, "partitions", a.begin, piece.Bytes)
	}
	return nil
}

// begin records an attempt. It returns false if the owner has finished everything else: it
// then processes this piece too.
func (h *offer) begin(a *attempt) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		h.back = append(h.back, a.Piece)
		return false
	}
	h.working[a] = true
	return true
}

// publish sends the rows that an attempt has kept. Afterwards the owner no longer takes the
// attempt back. If it has already taken it back, publish returns an error, unless the attempt is
// complete: then the source has released the rows.
func (h *offer) publish(a *attempt, complete bool, send func(*gpu.Stride) error) error {
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

// takeBack ends the attempts whose pieces the owner will finish sooner than their helpers.
func (h *offer) takeBack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for a := range h.working {
		if !a.published && h.sooner(a, time.Since(a.begin)) {
			a.takenBack = true
			a.cancel(errTakenBack)
		}
	}
}

// sooner reports whether the owner will finish the piece of an attempt before its helper, which has worked on it for
// some time.
func (h *offer) sooner(a *attempt, been time.Duration) bool {
	all := a.by.pace.of(a.Bytes)
	return h.takes == execution.HostTakesAny || h.op.pace.of(a.Bytes) < all-been.Seconds() || been.Seconds() > all
}

// wants reports whether a helper should take a piece. left is the number of bytes that nobody has begun. The CPU should
// not take a piece before the pace of the owner has been measured, nor while the owner waits for the output: then the
// output needs the cores to encode rows.
func (h *offer) wants(by *helper, left, piece int64) bool {
	return h.takes != "" || (by.gpu != nil || h.inNeed()) && by.pace.of(piece) < h.endOf(by, left)
}

// endOf returns the seconds in which the owner and the helpers at work on its parts would finish a number of bytes. An
// owner that has finished no part so far is expected to be no faster than the helper that asks.
func (h *offer) endOf(by *helper, bytes int64) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	rate := h.op.pace.rate()
	if h.now > 0 {
		rate = h.op.pace.rateDuring(h.now, time.Since(h.since))
	}
	if h.parts == 0 {
		rate = min(rate, by.pace.rate())
	}
	for a := range h.working {
		rate += a.by.pace.rate()
	}
	return float64(bytes) / rate
}

// outputBound bounds the time that the owner waits for the output, as a share of the time that it
// works. Above it, the output is the bottleneck.
const outputBound = 0.25

func (h *offer) inNeed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.parts > 0 && h.waited.Seconds() <= outputBound*h.worked.Seconds()
}

// copies returns a queue of the owner's GPU for copies. giveBack gives it back.
func (h *offer) copies() (q gpu.Queue, err error) {
	h.mu.Lock()
	if n := len(h.queues); n > 0 {
		q, h.queues = h.queues[n-1], h.queues[:n-1]
	}
	h.mu.Unlock()
	if q == nil {
		q, err = h.lane.pipelineRun.run.device.NewQueue(h.op.Name())
	}
	return q, err
}

func (h *offer) giveBack(q gpu.Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queues = append(h.queues, q)
}

// send passes a stride to the owner. It is copied up ahead if there is enough memory.
func (h *offer) send(by *helper, s *gpu.Stride) error {
	m := madeStride{Stride: s, up: h.up || by.gpu != nil}
	if by.gpu != nil {
		s.SetReady(by.gpu.run.device)
	}
	if l := h.op.lease; m.up && l.Available() >= grant.HostStrides.Of(l.Limit()) {
		q, err := h.copies()
		if err == nil {
			var ahead *gpu.Stride
			if ahead, err = q.UploadAhead(l, s); err == nil {
				m = madeStride{ahead, true, false}
			}
			h.giveBack(q)
		}
		if err != nil && !gpu.IsOutOfMemory(err) { // without memory, the owner tries again
			s.Release()
			return err
		}
	}
	select {
	case h.made <- m:
		return nil
	case <-h.ctx.Done():
		h.forget(m)
		return context.Cause(h.ctx)
	}
}

// forget releases a stride that nobody takes.
func (h *offer) forget(m madeStride) {
	if m.sent {
		if q, err := h.copies(); err == nil {
			_ = q.Wait(m.Stride)
			h.giveBack(q)
		}
	}
	m.Release()
}

// pass passes on a stride of a helper, in the lane of the owner.
func (h *offer) pass(m madeStride) error {
	s, q := m.Stride, h.lane.queue
	var err error
	switch {
	case m.sent:
		err = q.Wait(s)
	case m.up:
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

// passReady passes on the strides that have been sent.
func (h *offer) passReady() error {
	for {
		select {
		case m := <-h.made:
			if err := h.pass(m); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// passUntil passes on strides until a channel is closed.
func (h *offer) passUntil(done <-chan struct{}) error {
	h.lane.begin()
	defer h.lane.end()
	for {
		select {
		case m := <-h.made:
			if err := h.pass(m); err != nil {
				return err
			}
		case <-h.ctx.Done():
			return context.Cause(h.ctx)
		case <-done:
			return h.passReady()
		}
	}
}

// take records that the owner begins a part.
func (h *offer) take(part int) {
	items := h.src.Items(part) // outside of the lock, as it takes others
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun, h.now, h.since = part+1, items.Bytes, time.Now()
}

// did records a part that the owner has finished. took is the time of the owner for it, waited
// the share of this time during which it waited for the output.
func (h *offer) did(n operators.Items, took, waited time.Duration) {
	h.op.pace.add(n.Bytes, took-waited)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts++
	h.now = 0
	h.worked += took - waited
	h.waited += waited
	h.note()
}

// withdraw makes helpers take no more pieces. The channel is closed once they have left.
func (h *offer) withdraw() <-chan struct{} {
	h.mu.Lock()
	h.over = true
	h.offers = slices.DeleteFunc(h.offers, func(x *offer) bool { return x == h })
	h.note()
	h.mu.Unlock()
	left := make(chan struct{})
	go func() {
		h.seeking.Wait()
		close(left)
	}()
	return left
}

// finish waits for the helpers once the owner has finished all its parts, and processes
// the pieces that they returned.
func (h *offer) finish(emit operators.Emit) error {
	left := h.withdraw()
	h.takeBack()
	if err := h.passUntil(left); err != nil {
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
	return context.Cause(h.ctx)
}

// end ends the work of helpers, with the error of the owner.
func (h *offer) end(err error) error {
	if cause := context.Cause(h.ctx); err == nil && cause != nil {
		err = cause
	}
	h.stop(errNoHelp)
	for left := h.withdraw(); left != nil; {
		select {
		case m := <-h.made:
			h.forget(m)
		case <-left:
			left = nil
		}
	}
	for len(h.made) > 0 {
		h.forget(<-h.made)
	}
	for _, q := range h.queues {
		err = with(err, q.Close())
	}
	return err
}
