// Package operators defines the interface of the operators that pipelines run. An
// Operator is the state that the lanes of a pipeline share. Each lane also has a local
// state of its own, so that lanes do not wait for each other (Leis et al., Morsel-driven
// parallelism, SIGMOD 2014). The algorithms are in sub-packages (expr, join, groupby,
// sort …). Each is composed of the primitives of package gpu, so it runs unchanged on
// every device. Operators never see files, goroutines or CUDA.
package operators

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/spill"
)

// Task is what an operator needs to run. Its Queue belongs to one lane.
type Task struct {
	Device gpu.Device
	Queue  gpu.Queue
	// Lease pays for everything that the operator keeps or emits. Lanes share it.
	Lease *gpu.Lease
	// StrideRows is the most rows that an emitted stride should have.
	StrideRows int
	// Lanes is the number of lanes of the pipeline.
	Lanes int
	// Sharers is the number of joins of a pipeline that share memory, this one included; 0 is 1. While a
	// build side is made these are the joins that are not finalized, in a lane of the probe side all.
	Sharers int
	// Stays is the most bytes of a join out of core that may stay in memory; 0 is its part of Resident.
	Stays int64
	// Frugal is set in a run that was refused memory before. A join then keeps no more than Stays, even if it all fits.
	Frugal bool
	// Spill keeps rows that an operator must hold. It may be nil: then they stay in the
	// memory of the device.
	Spill *spill.Store
	// Filter asks Finalize of a Filtering operator for a filter.
	Filter FilterKind
}

// Emit passes a stride downstream and gives it away. It blocks for back-pressure. After
// an error (a stop, or a cancelled context) the operator returns that error.
type Emit func(*gpu.Stride) error

// Operator is the state of an operator that lanes share. It is Streaming, Blocking or
// both: a join is Blocking for its build side and Streaming for its probe side. Close is
// the last call, also after an error, and releases everything.
type Operator interface {
	// Schema is the schema of the emitted strides.
	Schema() *gpu.Schema
	Close() error
}

// Streaming is an Operator that handles one stride after the other.
type Streaming interface {
	Operator
	// NewLane makes the local state of a lane.
	NewLane(t Task) (Lane, error)
}

// Choosing is an Operator that chooses its algorithm while it runs. Choice says which one
// it chose and why, in one line; it is empty before. It may be called at any time.
type Choosing interface {
	Operator
	Choice() string
}

// Lane is the local state of a Streaming operator in one lane. One goroutine calls Push
// for every stride of the lane, then Flush unless there was an error, then Close.
type Lane interface {
	// Push takes the stride over.
	Push(ctx context.Context, s *gpu.Stride, emit Emit) error
	// Flush emits what the lane has kept back. Its strides come after those of all Push
	// calls of all lanes. Every lane of the pipeline is flushed once, an operator's lanes
	// in any order, and the operators of a lane in their order. A lane is not flushed if
	// no operator behind it needs more rows.
	Flush(ctx context.Context, emit Emit) error
	Close() error
}

// NoFlush is the Flush of a Lane that keeps nothing back.
type NoFlush struct{}

// Flush implements Lane.
func (NoFlush) Flush(context.Context, Emit) error { return nil }

// Blocking is an Operator that must see all rows before it returns any. Lanes collect
// rows into local states. Once all local states are combined, Finalize makes the result.
type Blocking interface {
	Operator
	// NewLocal makes the local state of a lane.
	NewLocal(t Task) (Local, error)
	// Finalize is called once, after every Combine. Its queue uses all cores.
	Finalize(ctx context.Context, t Task) error
}

// Local is the rows that one lane has collected for a Blocking operator. One goroutine
// calls Push for every stride of the lane, then Combine unless there was an error, then
// Close.
type Local interface {
	// Push takes the stride over. number is the number of the stride's morsel. Numbers
	// ascend in the order of the input, and strides of one morsel come in order.
	Push(ctx context.Context, number int, s *gpu.Stride) error
	// Combine hands the collected rows to the operator. Lanes combine concurrently.
	Combine(ctx context.Context) error
	Close() error
}

// Source is a finalised Blocking operator that returns rows. Its parts, in order, are the
// result. Lanes emit different parts concurrently.
type Source interface {
	Parts() int
	Emit(ctx context.Context, t Task, part int, emit Emit) error
}

// Divisible is a Source of rows that may be split: while lanes of a device take parts from the first one on, lanes of
// the CPU split pieces off from the end. The rows come in any order.
type Divisible interface {
	Source
	// Items returns how many partitions a part has now, or pairs of them, and their bytes.
	Items(part int) Items
	// Split splits off some of the last rows that no lane has begun, for a task of any device. None are left for
	// that device if they are empty. want is asked first, with the bytes of all such rows and those of the
	// piece. It returns nil if want returns false, if nothing is left or what is left does not fit the task.
	Split(t Task, want func(left, piece int64) bool) *Piece
}

// Items is a number of partitions, or of pairs of them, and the bytes of their rows.
type Items struct {
	N     int
	Bytes int64
}

// Piece is rows that were split off from a Source. Emit emits the result of them, on the device of the task, and drops
// them. After an error they stay, and it may be called again, on another device.
type Piece struct {
	Items
	Emit func(ctx context.Context, t Task, emit Emit) error
}

// Deferring is a Streaming operator that may keep rows back until all its lanes have been
// flushed, as a join does that spills.
type Deferring interface {
	Streaming
	// Deferred returns the source of these rows, or nil if there are none. Lanes ask for it
	// when they have been flushed, and emit its parts once all lanes have been.
	Deferred() Source
}

// Stopper is a Streaming operator that can need no more input, as a limit. It has a
// single lane, which gets the strides in order. The runner asks after every Push, and
// then stops everything upstream.
type Stopper interface {
	Done() bool
}

// Stateless makes a Streaming operator from a function of strides. The function borrows
// its input. It may return nil for no rows.
func Stateless(schema *gpu.Schema, apply func(t Task, s *gpu.Stride) (*gpu.Stride, error)) Streaming {
	return &stateless{schema, apply}
}

type stateless struct {
	schema *gpu.Schema
	apply  func(t Task, s *gpu.Stride) (*gpu.Stride, error)
}

func (o *stateless) Schema() *gpu.Schema          { return o.schema }
func (o *stateless) NewLane(t Task) (Lane, error) { return &statelessLane{stateless: o, task: t}, nil }
func (o *stateless) Close() error                 { return nil }

type statelessLane struct {
	NoFlush
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
