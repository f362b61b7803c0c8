// Package expand repeats the rows of its input in several variants, for grouping sets and for
// aggregates of distinct values. The columns that a variant keeps are passed on without a copy; the
// others are constants.
package expand

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// Variant computes the columns of one variant. Inputs are the schema positions of the
// program's inputs.
type Variant struct {
	Program *gpu.Program
	Inputs  []int
}

// New returns the operator that emits each stride once for each variant. out names the
// columns.
func New(out *gpu.Schema, variants []Variant) operators.Streaming {
	return &expand{out, variants}
}

type expand struct {
	schema   *gpu.Schema
	variants []Variant
}

func (o *expand) Schema() *gpu.Schema { return o.schema }
func (o *expand) NewLane(t operators.Task) (operators.Lane, error) {
	return &lane{expand: o, task: t}, nil
}
func (o *expand) Close() error { return nil }

type lane struct {
	operators.NoFlush
	*expand
	task operators.Task
}

func (l *lane) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	defer s.Release()
	for _, v := range l.variants {
		cols, err := l.task.Queue.Eval(l.task.Lease, v.Program, operators.Pick(s.Cols, v.Inputs), s.Rows)
		if err != nil {
			return err
		}
		if err := emit(&gpu.Stride{Schema: l.schema, Cols: cols, Rows: s.Rows}); err != nil {
			return err
		}
	}
	return nil
}
