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

// stageRun is a stage in a run: its goroutine, channels, memory and counters.
type stageRun struct {
	*stage
	run     *run
	inputs  []input
	out     chan *gpu.Stride
	lease   *gpu.Lease
	reader  atomic.Pointer[source.Reader] // of a scan, once open
	metrics metrics
}

// input is the receiving end of another stage, and how to end that stage.
type input struct {
	rows <-chan *gpu.Stride
	stop context.CancelCauseFunc
}

// metrics count what passes through a stage. Times are nanoseconds.
type metrics struct {
	rowsIn, rowsOut, bytesOut atomic.Int64
	busy, waitIn, waitOut     atomic.Int64
	state                     atomic.Int32
}

// The states of a stage.
const (
	stateWaiting int32 = iota
	stateRunning
	stateDone
)

// run1 does the stage's work on its goroutine.
func (t *stageRun) run1(ctx context.Context) (err error) {
	defer recoverInto(&err, t.name())
	defer t.metrics.state.Store(stateDone)
	q, err := t.run.device.NewQueue(t.name())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	begin := time.Now()
	defer func() {
		m := &t.metrics
		m.busy.Store(int64(time.Since(begin)) - m.waitIn.Load() - m.waitOut.Load())
	}()
	switch {
	case t.table != nil:
		return t.scan(ctx, q)
	case t.arrange != nil:
		return t.union(ctx)
	}
	return t.operate(ctx, q)
}

// scan reads a table.
func (t *stageRun) scan(ctx context.Context, q gpu.Queue) (err error) {
	r, err := t.table.Scan(ctx, source.ScanOptions{
		Columns: t.columns, Prune: t.prune, Threads: t.run.opt.Threads, Lease: t.lease,
		StrideRows: t.run.device.StrideRows(int(t.rowBytes)),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t.reader.Store(&r)
	t.metrics.state.Store(stateRunning)
	for {
		begin := time.Now()
		s, err := r.Read(ctx)
		t.metrics.waitIn.Add(int64(time.Since(begin)))
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if s, err = q.Up(t.lease, s); err != nil {
			return err
		}
		if err := t.emit(ctx, s); err != nil {
			return err
		}
	}
}

// union passes its inputs on, one after the other.
func (t *stageRun) union(ctx context.Context) error {
	t.metrics.state.Store(stateRunning)
	for i, in := range t.inputs {
		for {
			s, ok := t.metrics.receive(ctx, in.rows)
			if !ok {
				break
			}
			if err := t.emit(ctx, rearrange(s, t.schema, t.arrange[i])); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// operate runs an operator over its input, after its build side if it has one.
func (t *stageRun) operate(ctx context.Context, q gpu.Queue) (err error) {
	op, err := t.make()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, op.Close()) }()
	task := operators.Task{Device: t.run.device, Queue: q, Lease: t.lease, StrideRows: t.run.device.StrideRows(rowBytes(t.schema))}
	if err := op.Open(task); err != nil {
		return err
	}
	if b, ok := op.(operators.Builder); ok {
		if err := t.build(ctx, b); err != nil {
			return err
		}
	}
	emit := func(s *gpu.Stride) error { return t.emit(ctx, s) }
	stopper, _ := op.(operators.Stopper)
	for stopper == nil || !stopper.Done() {
		s, ok := t.metrics.receive(ctx, t.inputs[0].rows)
		if !ok {
			break
		}
		t.metrics.state.Store(stateRunning)
		if err := op.Push(ctx, s, emit); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return op.Finish(ctx, emit)
}

// build gives an operator its second input, whole.
func (t *stageRun) build(ctx context.Context, b operators.Builder) error {
	t.metrics.state.Store(stateRunning)
	for {
		s, ok := t.metrics.receive(ctx, t.inputs[1].rows)
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

// emit hands a stride downstream, or releases it when nobody wants it.
func (t *stageRun) emit(ctx context.Context, s *gpu.Stride) error {
	if s.Rows == 0 {
		s.Release()
		return nil
	}
	rows, bytes := int64(s.Rows), s.Bytes()
	begin := time.Now()
	select {
	case t.out <- s:
	case <-ctx.Done():
		s.Release()
		return context.Cause(ctx)
	}
	t.metrics.waitOut.Add(int64(time.Since(begin)))
	t.metrics.rowsOut.Add(rows)
	t.metrics.bytesOut.Add(bytes)
	return nil
}

// receive waits for a stride; false when there are no more or ctx has ended.
func (m *metrics) receive(ctx context.Context, rows <-chan *gpu.Stride) (*gpu.Stride, bool) {
	begin := time.Now()
	defer func() { m.waitIn.Add(int64(time.Since(begin))) }()
	select {
	case s, ok := <-rows:
		if ok {
			m.rowsIn.Add(int64(s.Rows))
		}
		return s, ok
	case <-ctx.Done():
		return nil, false
	}
}

// explain names the stage in an error that does not name its place itself:
// files do, and so do refused reservations.
func (t *stageRun) explain(err error) error {
	var panicked *panicError
	if t.table != nil || errors.Is(err, gpu.ErrBudget) || errors.Is(err, context.Canceled) || errors.As(err, &panicked) {
		return err
	}
	return fmt.Errorf("%s: %w", t.name(), err)
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

// panicError is a defect of ours that a run survived.
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
