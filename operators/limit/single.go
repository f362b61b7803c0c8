package limit

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// single is also its own lane, since it has only one.
type single struct {
	schema *gpu.Schema
	nulls  *gpu.Program
	found  bool
	task   operators.Task
}

// NewSingle returns the operator that passes on the only row of its input. It refuses a second one. If there is none,
// it emits the row that nulls computes. It is an operators.Stopper, so that it sees all rows in one lane.
func NewSingle(in *gpu.Schema, nulls *gpu.Program) operators.Streaming {
	return &single{schema: in, nulls: nulls}
}

func (o *single) Schema() *gpu.Schema { return o.schema }

func (o *single) NewLane(t operators.Task) (operators.Lane, error) {
	o.task = t
	return o, nil
}

// Done implements operators.Stopper. The rows after the first have to be looked for.
func (o *single) Done() bool { return false }

func (o *single) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	switch {
	case s.Rows == 0:
		s.Release()
		return nil
	case s.Rows > 1 || o.found:
		s.Release()
		return gpu.Exceeded("there is more than one row where a single value is needed; " +
			"aggregate the rows, or keep one with a limit")
	}
	o.found = true
	return emit(s)
}

func (o *single) Flush(_ context.Context, emit operators.Emit) error {
	if o.found {
		return nil
	}
	cols, err := o.task.Queue.Eval(o.task.Lease, o.nulls, nil, 1)
	if err != nil {
		return err
	}
	return emit(&gpu.Stride{Schema: o.schema, Cols: cols, Rows: 1})
}

func (o *single) Close() error { return nil }
