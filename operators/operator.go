// Package operators defines the interface of the operators that pipelines run. An Operator is the
// state that the lanes of a pipeline share. Each lane also has a state of its own, so that lanes do
// not wait for each other (Leis et al., Morsel-driven parallelism, SIGMOD 2014). The algorithms are
// in sub-packages (expr, join, groupby, sort …). Each is composed of the primitives of package gpu,
// so it runs unchanged on every device. Operators never see files, goroutines or CUDA.
package operators

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/spill"
)

// Task has everything that an operator needs to run. Its Queue belongs to one lane.
type Task struct {
	Device gpu.Device
	Queue  gpu.Queue
	// Lease pays for everything that the operator keeps or emits. Lanes share it.
	Lease *gpu.Lease
	// StrideRows is the maximum number of rows that an emitted stride should have.
	StrideRows int
	// Lanes is the number of lanes of the pipeline.
	Lanes int
	// Grant is the memory that the operator may use of the budget of the Lease.
	Grant Grant
	// Spill keeps the rows that an operator collects. It may be nil: then they stay in device
	// memory.
	Spill *spill.Store
	// Filter asks Finalize of a Filtering operator for a filter.
	Filter FilterKind
}

// Emit passes a stride downstream, with its ownership. It blocks for back-pressure. After an error
// (a stop, or a cancelled context) the operator returns that error.
type Emit func(*gpu.Stride) error

// Operator is the state of an operator that lanes share. It is Streaming, Blocking or both: a join
// is Blocking for its build side and Streaming for its probe side. Close is the last call, even
// after an error, and releases everything.
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

// Choosing is an Operator that chooses its algorithm while it runs. Choice returns the chosen
// algorithm and the reason in one line; it is empty before the choice. It may be called at any
// time.
type Choosing interface {
	Operator
	Choice() string
}

// Lane is the local state of a Streaming operator in one lane. One goroutine calls Push
// for every stride of the lane, then Flush unless there was an error, then Close.
type Lane interface {
	// Push takes the stride over.
	Push(ctx context.Context, s *gpu.Stride, emit Emit) error
	// Flush emits the rows that the lane has kept back. Its strides come after those of all Push
	// calls of all lanes. Every lane of the pipeline is flushed once: the lanes of an operator in
	// any order, and the operators of a lane in their order. A lane is not flushed if no operator
	// downstream needs more rows.
	Flush(ctx context.Context, emit Emit) error
	Close() error
}

// NoFlush is the Flush of a Lane that keeps nothing back.
type NoFlush struct{}

// Flush implements Lane.
func (NoFlush) Flush(context.Context, Emit) error { return nil }

// Blocking is an Operator that must see all rows before it returns any. Lanes collect rows in local
// states. Once all local states are combined, Finalize computes the result.
type Blocking interface {
	Operator
	// NewLocal makes the local state of a lane.
	NewLocal(t Task) (Local, error)
	// Finalize is called once, after every Combine. Its queue uses all cores.
	Finalize(ctx context.Context, t Task) error
}

// Local has the rows that one lane has collected for a Blocking operator. One goroutine calls Push
// for every stride of the lane, then Combine unless there was an error, then Close.
type Local interface {
	// Push takes the stride over. number is the number of the stride's morsel. Numbers
	// ascend in the order of the input, and strides of one morsel come in order.
	Push(ctx context.Context, number int, s *gpu.Stride) error
	// Combine passes the collected rows to the operator. Lanes combine concurrently.
	Combine(ctx context.Context) error
	Close() error
}

// Source is a finalised Blocking operator that returns rows. The concatenation of its parts is the
// result. Lanes emit different parts concurrently.
type Source interface {
	Parts() int
	Emit(ctx context.Context, t Task, part int, emit Emit) error
}

// Divisible is a Source whose parts can be split: while lanes of a device take parts from the
// front, other devices and the CPU split pieces off from the back. The rows come in any order.
type Divisible interface {
	Source
	// Items returns how many partitions, or pairs of partitions, a part has now, and their bytes.
	Items(part int) Items
	// Split splits off some of the last partitions that no lane has begun, for a task on any
	// device. It first calls want with the bytes of all such partitions and with those of the
	// piece. It returns nil if want returns false, if no partition is left, or if the remaining
	// ones do not fit the task.
	Split(t Task, want func(left, piece int64) bool) *Piece
}

// Items is a number of partitions, or of pairs of them, and the bytes of their rows.
type Items struct {
	N     int
	Bytes int64
}

// Piece is a number of partitions that were split off from a Source. Emit computes and emits their
// result on the device of the task, and drops them. After an error they remain, and Emit may be
// called again, on another device.
type Piece struct {
	Items
	Emit func(ctx context.Context, t Task, emit Emit) error
}

// Deferring is a Streaming operator that may keep rows back until all its lanes have been flushed,
// such as a join that spills.
type Deferring interface {
	Streaming
	// Deferred returns the source of these rows, or nil if there are none. Lanes emit its parts
	// once all lanes have been flushed.
	Deferred() Source
}

// Stopper is a Streaming operator that may stop needing input, such as a limit. It has a single
// lane, which receives the strides in order. The runner calls Done after every Push, and if it
// returns true stops everything upstream.
type Stopper interface {
	Done() bool
}

// Stateless makes a Streaming operator from a function of strides. The function borrows its input.
// It may return nil if there are no rows.
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
