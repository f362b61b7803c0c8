package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/source"
)

// stageRun is a stage of a run: one goroutine with a chain of operators. The
// first one is a scan, a union, or an operator that takes its strides from other
// stages; strides pass on to the rest by direct calls.
type stageRun struct {
	run     *run
	ops     []*opRun
	inputs  []*stageRun // of the first operator, when that is no scan
	out     chan *gpu.Stride
	begun   *input // once launched
	queue   gpu.Queue
	current *opRun // whose work the goroutine does now
	ahead   *ahead // the scan, for a device apart
	// stopped is the operator that needs no more input: those before it are
	// not finished.
	stopped int
}

// opRun is an operator, a scan or a union in a run: its memory and counters.
type opRun struct {
	*stage
	build  *stageRun  // the second input of a join
	lease  *gpu.Lease // of device memory
	decode *gpu.Lease // of a scan: the host memory it decodes into
	op     operators.Operator
	reader atomic.Pointer[source.Reader] // of a scan, once open
	metrics
}

// metrics count what passes through an operator. Times are nanoseconds.
type metrics struct {
	rowsIn, rowsOut, bytesOut atomic.Int64
	busy, waitIn, waitOut     atomic.Int64
	since                     atomic.Int64 // start of work that busy lacks, on the run's clock; 0 for none
	state                     atomic.Int32
}

// The states of an operator.
const (
	stateWaiting int32 = iota
	stateRunning
	stateDone
)

// input is the receiving end of another stage, and how to end that stage.
type input struct {
	rows <-chan *gpu.Stride
	stop context.CancelCauseFunc
}

// end makes the stage stop and releases what it still sends. After it nothing
// of the stage is left.
func (in input) end() {
	in.stop(errStop)
	release(in.rows)
}

// prepare makes the stages of a plan without starting any.
func (r *run) prepare(st *stage) *stageRun {
	t := &stageRun{run: r, out: make(chan *gpu.Stride, channelDepth)}
	var chain []*stage
	for ; st.fused; st = st.inputs[0] {
		chain = append(chain, st)
	}
	chain = append(chain, st)
	for i := len(chain) - 1; i >= 0; i-- {
		st := chain[i]
		o := &opRun{stage: st}
		from := st.inputs
		switch {
		case i < len(chain)-1:
			from = from[1:] // the first input is the operator before
		case st.arrange != nil:
			for _, in := range from {
				t.inputs = append(t.inputs, r.prepare(in))
			}
			from = nil
		case st.table == nil:
			t.inputs = []*stageRun{r.prepare(from[0])}
			from = from[1:]
		}
		if len(from) > 0 {
			o.build = r.prepare(from[0])
		}
		o.lease = r.device.Budget().Lease(st.name())
		o.decode = o.lease
		if st.table != nil && apart(r.device) {
			o.decode = r.device.HostBudget().Lease(st.name() + ", decoding")
		}
		t.ops = append(t.ops, o)
		r.ops = append(r.ops, o)
	}
	return t
}

// launch starts the stage's goroutine, unless it was launched before. The channel is
// closed when the stage has ended and released what it held.
func (t *stageRun) launch(ctx context.Context) input {
	if t.begun != nil {
		return *t.begun
	}
	ctx, stop := context.WithCancelCause(ctx)
	t.begun = &input{t.out, stop}
	t.run.wg.Add(1)
	go func() {
		defer t.run.wg.Done()
		defer stop(nil)
		defer close(t.out)
		if err := t.work(ctx); err != nil && context.Cause(ctx) != errStop {
			t.run.cancel(err)
		}
	}()
	return *t.begun
}

// first is the stage that this one takes strides from before any other, nil for none.
func (t *stageRun) first() *stageRun {
	for _, o := range t.ops {
		if o.build != nil {
			return o.build
		}
	}
	if len(t.inputs) > 0 {
		return t.inputs[0]
	}
	return nil
}

// work runs the stage on its goroutine: first the build sides of its joins, then
// what streams past them.
func (t *stageRun) work(ctx context.Context) (err error) {
	defer func() {
		t.turn(nil)
		for _, o := range t.ops {
			o.state.Store(stateDone)
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(t.where(), p)
		}
	}()
	if o := t.ops[0]; o.table != nil && apart(t.run.device) {
		t.ahead = t.startAhead(ctx, o)
		defer func() {
			if endErr := t.ahead.end(); err == nil {
				err = endErr
			}
		}()
	}
	if first := t.first(); first != nil {
		// It decodes while the device may still be starting.
		defer first.launch(ctx).end()
	}
	if t.queue, err = t.run.device.NewQueue(t.ops[len(t.ops)-1].name()); err != nil {
		return explain(t.where(), err)
	}
	defer func() { err = with(err, t.queue.Close()) }()
	defer func() { err = errors.Join(err, t.close()) }()
	for i, o := range t.ops {
		if err := t.open(i); err != nil {
			return o.explain(err)
		}
	}
	for _, o := range t.ops {
		if err := t.buildSide(ctx, o); err != nil {
			return o.explain(err)
		}
	}
	if t.stopped == 0 {
		if err := t.feed(ctx); err != nil && err != errStop {
			return t.ops[0].explain(err)
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return t.finish(ctx)
}

// open makes operator i of the chain, if it is one.
func (t *stageRun) open(i int) (err error) {
	o := t.ops[i]
	if o.make == nil {
		return nil
	}
	if o.op, err = o.make(); err != nil {
		return err
	}
	t.turn(o)
	d := t.run.device
	if err := o.op.Open(operators.Task{Device: d, Queue: t.queue, Lease: o.lease, StrideRows: d.StrideRows(rowBytes(o.schema))}); err != nil {
		return err
	}
	if o.done() {
		t.stopped = i
	}
	return nil
}

// close closes the operators, each even when another fails.
func (t *stageRun) close() error {
	var errs []error
	for _, o := range t.ops {
		if o.op != nil {
			errs = append(errs, o.op.Close())
		}
	}
	return errors.Join(errs...)
}

// buildSide gives a join its second input, whole.
func (t *stageRun) buildSide(ctx context.Context, o *opRun) error {
	if o.build == nil {
		return nil
	}
	b, ok := o.op.(operators.Builder)
	if !ok {
		return fmt.Errorf("the operator %T takes no second input", o.op)
	}
	in := o.build.launch(ctx)
	defer in.end()
	for {
		s, ok := t.receive(ctx, o, in.rows)
		if !ok {
			break
		}
		if err := b.PushBuild(ctx, s); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return b.FinishBuild(ctx)
}

// feed brings all strides of the first operator into the chain.
func (t *stageRun) feed(ctx context.Context) error {
	o := t.ops[0]
	t.turn(o)
	if o.table != nil {
		return t.scan(ctx, o)
	}
	for i, from := range t.inputs {
		take := func(s *gpu.Stride) error { return t.push(ctx, 0, s) }
		if o.arrange != nil {
			take = func(s *gpu.Stride) error { return t.pass(ctx, 0, rearrange(s, o.schema, o.arrange[i])) }
		}
		if err := t.drain(ctx, from.launch(ctx), take); err != nil {
			return err
		}
	}
	return nil
}

// drain takes all strides of an input.
func (t *stageRun) drain(ctx context.Context, in input, take func(*gpu.Stride) error) error {
	defer in.end()
	for {
		s, ok := t.receive(ctx, t.ops[0], in.rows)
		if !ok {
			return context.Cause(ctx)
		}
		if err := take(s); err != nil {
			return err
		}
	}
}

// scan brings all strides of a table into the chain.
func (t *stageRun) scan(ctx context.Context, o *opRun) (err error) {
	if t.ahead != nil {
		return t.takeAhead(ctx, o)
	}
	r, err := t.reader(ctx, o)
	if err != nil {
		return err
	}
	defer closeReader(r, &err)
	o.state.Store(stateRunning)
	for {
		resume := t.idle(&o.waitIn)
		s, err := r.Read(ctx)
		resume()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.pass(ctx, 0, s); err != nil {
			return err
		}
	}
}

// reader starts to decode a table.
func (t *stageRun) reader(ctx context.Context, o *opRun) (source.Reader, error) {
	rows := t.run.device.StrideRows(int(o.rowBytes))
	r, err := o.table.Scan(ctx, source.ScanOptions{
		Columns: o.columns, Prune: o.prune, StrideRows: rows, Lease: o.decode,
		Decode: source.DecodeOptions{
			Threads: t.run.opt.Threads, Slots: t.run.slots,
			Inflight: t.inflight(o, rows), InflightBytes: t.inflightBytes(),
			Encoded: apart(t.run.device), Trace: t.run.trace(laneDecode, o.name()),
		},
	})
	if err == nil {
		o.reader.Store(&r)
	}
	return r, err
}

// closeReader closes a reader at the end of its scan. What goes wrong takes the place
// of no error, and of the stop of a scan that nobody needs any more.
func closeReader(r source.Reader, err *error) {
	if closeErr := r.Close(); *err == nil || *err == errStop && closeErr != nil {
		*err = closeErr
	}
}

// inflight is how many strides are decoded at a time: one a thread, because a
// column that takes longest is decoded by one thread a stride. For a device apart
// they are as many as page-locked memory allows: fewer, should compact columns not
// be small, and more once they are seen to be.
func (t *stageRun) inflight(o *opRun, rows int) int {
	n := t.run.threads() + 1
	if bytes := t.inflightBytes(); bytes > 0 {
		n = min(2*n, max(int(bytes/int64(max(rowBytes(o.schema), 1)*rows)), 3))
	}
	return n
}

// inflightBytes is what a scan for a device apart may decode ahead: the scans of a
// run, which may all decode at once, share half of the host budget. Pages that are
// being decoded and the output take of the other.
func (t *stageRun) inflightBytes() int64 {
	if !apart(t.run.device) {
		return 0
	}
	scans := int64(0)
	for _, o := range t.run.ops {
		if o.table != nil {
			scans++
		}
	}
	return min(decodeAhead, t.run.device.HostBudget().Limit()/2/max(scans, 1))
}

// decodeAhead bounds the strides of a scan that are decoded before they are copied
// to a device, in bytes.
const decodeAhead = 2 << 30

// aheadDepth is how many strides are copied to the device before their turn: the
// link is busy while kernels run.
const aheadDepth = 2

// ahead is a scan for a device apart. It decodes and copies up on goroutines of
// its own, and begins before the stage has a queue, as long as the device starts, and
// before it has the build sides of its joins, so that cores and link have work when
// those run out of it.
type ahead struct {
	strides chan *gpu.Stride
	stop    context.CancelCauseFunc
	ended   chan struct{}
	queue   gpu.Queue // of the copies, once there is a stride
	err     error     // once ended
}

func (t *stageRun) startAhead(ctx context.Context, o *opRun) *ahead {
	ctx, stop := context.WithCancelCause(ctx)
	a := &ahead{strides: make(chan *gpu.Stride, aheadDepth), stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		defer close(a.strides)
		a.err = t.copyUp(ctx, o, a)
	}()
	return a
}

// end stops the scan, releases what it has still copied up, and returns its error
// unless that is the stop.
func (a *ahead) end() error {
	a.stop(errStop)
	<-a.ended // the queue is the scan's until then
	err := a.err
	if err == errStop {
		err = nil
	}
	for s := range a.strides {
		// Only its copies must be over. That a closed queue makes no ordinary columns
		// of its compact ones hurts nobody.
		_ = a.queue.Arrive(s)
		s.Release()
	}
	return err
}

// takeAhead brings the strides that were copied up into the chain.
func (t *stageRun) takeAhead(ctx context.Context, o *opRun) error {
	o.state.Store(stateRunning)
	for {
		resume := t.idle(&o.waitIn)
		s, ok := receive(ctx, t.ahead.strides)
		resume()
		if !ok {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			<-t.ahead.ended
			return t.ahead.err
		}
		if err := t.queue.Arrive(s); err != nil {
			s.Release()
			return explain(o.name(), err)
		}
		if err := t.pass(ctx, 0, s); err != nil {
			return err
		}
	}
}

// copyUp decodes a table and brings all its strides to the device.
func (t *stageRun) copyUp(ctx context.Context, o *opRun, a *ahead) (err error) {
	defer recoverInto(&err, o.name())
	// The reader first: it decodes while the device may still be starting.
	r, err := t.reader(ctx, o)
	if err != nil {
		return err
	}
	defer closeReader(r, &err)
	q, err := t.run.device.NewQueue(o.name())
	if err != nil {
		return explain(o.name(), err)
	}
	a.queue = q
	defer func() { err = with(err, q.Close()) }()
	for {
		s, err := r.Read(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if s, err = q.UpAhead(o.lease, s); err != nil {
			return explain(o.name(), err)
		}
		select {
		case a.strides <- s:
		case <-ctx.Done():
			_ = q.Arrive(s)
			s.Release()
			return context.Cause(ctx)
		}
	}
}

// push gives a stride to operator i. The error is errStop when the operator
// needs no more.
func (t *stageRun) push(ctx context.Context, i int, s *gpu.Stride) error {
	o := t.ops[i]
	o.state.Store(stateRunning)
	if err := o.op.Push(ctx, s, t.emit(ctx, i)); err != nil {
		return o.explain(err)
	}
	if o.done() {
		t.stopped = i
		return errStop
	}
	return nil
}

func (t *stageRun) emit(ctx context.Context, i int) operators.Emit {
	return func(s *gpu.Stride) error { return t.pass(ctx, i, s) }
}

// pass hands on a stride that operator i has made: to the next one, or to the
// stage that waits for it.
func (t *stageRun) pass(ctx context.Context, i int, s *gpu.Stride) error {
	if s.Rows == 0 {
		s.Release()
		return nil
	}
	if ctx.Err() != nil {
		s.Release()
		return context.Cause(ctx)
	}
	o := t.ops[i]
	o.rowsOut.Add(int64(s.Rows))
	o.bytesOut.Add(s.Bytes())
	if i == len(t.ops)-1 {
		return t.send(ctx, o, s)
	}
	next := t.ops[i+1]
	next.rowsIn.Add(int64(s.Rows))
	t.turn(next)
	defer t.turn(o)
	return t.push(ctx, i+1, s)
}

// send hands a stride to another goroutine, or releases it when nobody wants it.
func (t *stageRun) send(ctx context.Context, o *opRun, s *gpu.Stride) error {
	defer t.idle(&o.waitOut)()
	select {
	case t.out <- s:
		return nil
	case <-ctx.Done():
		s.Release()
		return context.Cause(ctx)
	}
}

// finish ends the operators in their order.
func (t *stageRun) finish(ctx context.Context) error {
	for i, o := range t.ops {
		if o.op == nil || i < t.stopped {
			continue
		}
		t.turn(o)
		if err := o.op.Finish(ctx, t.emit(ctx, i)); err != nil && err != errStop {
			return o.explain(err)
		}
		o.state.Store(stateDone)
	}
	return nil
}

// receive waits for a stride for an operator; false when there are no more or
// ctx has ended.
func (t *stageRun) receive(ctx context.Context, o *opRun, rows <-chan *gpu.Stride) (*gpu.Stride, bool) {
	t.turn(o)
	defer t.idle(&o.waitIn)()
	s, ok := receive(ctx, rows)
	if ok {
		o.rowsIn.Add(int64(s.Rows))
		o.state.Store(stateRunning)
	}
	return s, ok
}

func receive(ctx context.Context, rows <-chan *gpu.Stride) (*gpu.Stride, bool) {
	select {
	case s, ok := <-rows:
		return s, ok
	case <-ctx.Done():
		return nil, false
	}
}

// turn charges the time from now on to an operator, to none when o is nil.
func (t *stageRun) turn(o *opRun) {
	now := max(int64(time.Since(t.run.started)), 1)
	if c := t.current; c != nil {
		c.busy.Add(now - c.since.Swap(0))
	}
	if t.current = o; o != nil {
		o.since.Store(now)
	}
}

// idle charges the time until the returned function is called to a counter, as
// time in which no work is done.
func (t *stageRun) idle(counter *atomic.Int64) (resume func()) {
	o, begin := t.current, time.Now()
	t.turn(nil)
	return func() {
		counter.Add(int64(time.Since(begin)))
		t.turn(o)
	}
}

// where names the operator at work.
func (t *stageRun) where() string {
	if t.current != nil {
		return t.current.name()
	}
	return t.ops[0].name()
}

// done says that the operator needs no more input.
func (o *opRun) done() bool {
	s, ok := o.op.(operators.Stopper)
	return ok && s.Done()
}

// busyTime is the time of work so far, at a time on the run's clock.
func (m *metrics) busyTime(now time.Duration) time.Duration {
	busy := time.Duration(m.busy.Load())
	if since := m.since.Load(); since > 0 {
		busy += max(now-time.Duration(since), 0)
	}
	return busy
}

// operatorError is an error with the name of the operator it comes from.
type operatorError struct {
	where string
	err   error
}

func (e *operatorError) Error() string { return e.where + ": " + e.err.Error() }
func (e *operatorError) Unwrap() error { return e.err }

// explain names the operator in an error, but for a scan, whose errors name files.
func (o *opRun) explain(err error) error {
	if o.table != nil {
		return err
	}
	return explain(o.name(), err)
}

// explain says where an error happened unless it does so itself: refused memory
// does, and operators further on in a chain.
func explain(where string, err error) error {
	var panicked *panicError
	var named *operatorError
	var refused *gpu.AllocError
	if err == errStop || errors.Is(err, gpu.ErrBudget) || errors.Is(err, context.Canceled) ||
		errors.As(err, &panicked) || errors.As(err, &named) || errors.As(err, &refused) {
		return err
	}
	return &operatorError{where, err}
}

// with adds the error of a close to err, unless err tells of it already: the first
// error of a queue is that of its Close too.
func with(err, closed error) error {
	if closed == nil || errors.Is(err, closed) {
		return err
	}
	return errors.Join(err, closed)
}

// rowBytes is the width of a row, strings counted as 16 bytes.
func rowBytes(s *gpu.Schema) int {
	n := 0
	for _, f := range s.Fields {
		if f.Type.IsVar() {
			n += 16
		}
		n += f.Type.Width()
	}
	return n
}

// ErrDefect is the sentinel behind errors that are not the job's nor the data's
// but gstream's own.
var ErrDefect = errors.New("defect in gstream")

// panicError is a defect that a run survived.
type panicError struct {
	where string
	value any
	stack []byte
}

func newPanicError(where string, value any) error {
	return &panicError{where, value, debug.Stack()}
}

func (e *panicError) Error() string {
	return fmt.Sprintf("%s: internal error: %v; please report it with this trace:\n%s", e.where, e.value, e.stack)
}

// Is makes errors.Is(err, ErrDefect) true.
func (e *panicError) Is(target error) bool { return target == ErrDefect }
