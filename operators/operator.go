// Package operators defines what the steps of a pipeline run. An Operator is
// what the lanes of a pipeline share; each lane has a local state of its own, so
// that lanes do not wait for each other (Leis et al., Morsel-driven parallelism,
// SIGMOD 2014). The algorithms live in sub-packages (expr, join, groupby, sort
// …), each a composition of the primitives of package gpu, so that they run
// unchanged on every device. Operators never see files, goroutines or CUDA.
package operators

import (
	"context"

	"github.com/gstream/gstream/gpu"
)

// Task is what a part of an operator works with. Its Queue belongs to one lane.
type Task struct {
	Device gpu.Device
	Queue  gpu.Queue
	// Lease pays for everything the operator keeps or emits. Lanes share it.
	Lease *gpu.Lease
	// StrideRows is the number of rows an emitted stride should have at most.
	StrideRows int
	// Lanes is how many lanes the pipeline has.
	Lanes int
}

// Emit hands a stride downstream and gives it away. It blocks for
// back-pressure; after an error (a stop, or a cancelled context) the operator
// returns that error.
type Emit func(*gpu.Stride) error

// Operator is the state of an operator that lanes share. It is Streaming,
// Blocking, or both, as a join is: Blocking for its build side and Streaming for
// its probe side. Close comes last, also after an error, and releases everything.
type Operator interface {
	// Schema is the schema of the emitted strides.
	Schema() *gpu.Schema
	Close() error
}

// Streaming is an Operator that strides stream through.
type Streaming interface {
	Operator
	// NewLane makes the local state of a lane.
	NewLane(t Task) (Lane, error)
}

// Lane is the part of a Streaming operator that one lane has. One goroutine calls
// Push for every stride of the lane and then Close.
type Lane interface {
	// Push takes the stride over.
	Push(ctx context.Context, s *gpu.Stride, emit Emit) error
	Close() error
}

// Blocking is an Operator that must see all rows before it gives any. Lanes
// collect rows into local states; once all of these are combined, Finalize makes
// the result of them.
type Blocking interface {
	Operator
	// NewLocal makes the local state of a lane.
	NewLocal(t Task) (Local, error)
	// Finalize is called once, after every Combine. Its queue uses all cores.
	Finalize(ctx context.Context, t Task) error
}

// Local is what one lane has collected for a Blocking operator. One goroutine
// calls Push for every stride of the lane, then Combine, unless there was an
// error, and then Close.
type Local interface {
	// Push takes the stride over. The number is that of the morsel it comes of:
	// numbers ascend in the order of the input, and strides of one morsel come
	// in order.
	Push(ctx context.Context, number int, s *gpu.Stride) error
	// Combine hands what was collected to the operator. Lanes combine at the
	// same time.
	Combine(ctx context.Context) error
	Close() error
}

// Source is a finalised Blocking operator that gives rows. Its parts, in order,
// are the result; lanes emit different parts at the same time.
type Source interface {
	Parts() int
	Emit(ctx context.Context, t Task, part int, emit Emit) error
}

// Stopper is a Streaming operator that can tell that it needs no more input, as
// a limit does. It has one lane, which gets the strides in order. The runner
// asks after every Push and then stops what is upstream.
type Stopper interface {
	Done() bool
}

// Stateless makes a Streaming operator of a function from a stride to a stride,
// nil for none. The function borrows its input.
func Stateless(schema *gpu.Schema, apply func(t Task, s *gpu.Stride) (*gpu.Stride, error)) Streaming {
	return &stateless{schema, apply}
}

type stateless struct {
	schema *gpu.Schema
	apply  func(t Task, s *gpu.Stride) (*gpu.Stride, error)
}

func (o *stateless) Schema() *gpu.Schema          { return o.schema }
func (o *stateless) NewLane(t Task) (Lane, error) { return &statelessLane{o, t}, nil }
func (o *stateless) Close() error                 { return nil }

type statelessLane struct {
	*stateless
	task Task
}

func (l *statelessLane) Push(_ context.Context, s *gpu.Stride, emit Emit) error {
	out, err := l.apply(l.task, s)
	s.Release()
	if err != nil || out == nil {
		return err
	}
	return emit(out)
}
