// Package operators defines what a stage of a pipeline runs: an Operator takes
// strides and emits strides. The algorithms live in sub-packages (expr, join,
// groupby, sort …), each a composition of the primitives of package gpu, so that
// they run unchanged on every device. Operators never see files, goroutines or
// CUDA.
package operators

import (
	"context"

	"github.com/gstream/gstream/gpu"
)

// Task is what an operator works with while it is open. Queue and Lease belong
// to its stage.
type Task struct {
	Device gpu.Device
	Queue  gpu.Queue
	// Lease pays for everything the operator keeps or emits.
	Lease *gpu.Lease
	// StrideRows is the number of rows an emitted stride should have at most.
	StrideRows int
}

// Emit hands a stride downstream and gives it away. It blocks for
// back-pressure; after an error (ErrStop, or a cancelled context) the operator
// returns that error.
type Emit func(*gpu.Stride) error

// Operator turns a stream of strides into another. One goroutine calls Open,
// then Push for every stride, then Finish, then Close; Close also after an
// error or in place of Finish, and it releases everything.
type Operator interface {
	// Schema is the schema of the emitted strides.
	Schema() *gpu.Schema
	Open(t Task) error
	// Push takes the stride over.
	Push(ctx context.Context, s *gpu.Stride, emit Emit) error
	// Finish emits what is left.
	Finish(ctx context.Context, emit Emit) error
	Close() error
}

// Builder is an Operator with a second input that it must see whole before its
// first Push: the build side of a join. The order is Open, PushBuild for every
// build stride, FinishBuild, then as an Operator.
type Builder interface {
	Operator
	PushBuild(ctx context.Context, s *gpu.Stride) error
	FinishBuild(ctx context.Context) error
}

// Stopper is an Operator that can tell that it needs no more input, as a limit
// does. The runner asks after every Push and then cancels what is upstream.
type Stopper interface {
	Done() bool
}
