// Package filter keeps the rows for which a predicate is true.
package filter

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

type filter struct {
	out    *gpu.Schema
	pred   *gpu.Program
	inputs []int
	keep   []int
	task   operators.Task
}

// New returns the operator that keeps the rows for which pred, a program with
// one Bool output over the columns at inputs, is true: not false and not null.
// keep are the schema positions that go on.
func New(in *gpu.Schema, pred *gpu.Program, inputs []int, keep []int) operators.Operator {
	return &filter{out: operators.PickFields(in, keep), pred: pred, inputs: inputs, keep: keep}
}

func (o *filter) Schema() *gpu.Schema { return o.out }

func (o *filter) Open(t operators.Task) error {
	o.task = t
	return nil
}

func (o *filter) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	out, err := o.apply(s)
	s.Release()
	if err != nil || out == nil {
		return err
	}
	return emit(out)
}

func (o *filter) apply(s *gpu.Stride) (*gpu.Stride, error) {
	q, l := o.task.Queue, o.task.Lease
	truth, err := q.Eval(l, o.pred, operators.Pick(s.Cols, o.inputs), s.Rows)
	if err != nil {
		return nil, err
	}
	ids, err := q.Select(l, truth[0])
	gpu.ReleaseColumns(truth)
	if err != nil {
		return nil, err
	}
	defer ids.Release()
	if ids.Len == 0 {
		return nil, nil
	}
	if ids.Len == s.Rows {
		kept := operators.Pick(s.Cols, o.keep)
		for i := range kept {
			kept[i] = kept[i].Retain()
		}
		return &gpu.Stride{Schema: o.out, Cols: kept, Rows: s.Rows}, nil
	}
	cols, err := q.Gather(l, operators.Pick(s.Cols, o.keep), ids, false)
	if err != nil {
		return nil, err
	}
	return &gpu.Stride{Schema: o.out, Cols: cols, Rows: ids.Len}, nil
}

func (o *filter) Finish(context.Context, operators.Emit) error { return nil }

func (o *filter) Close() error { return nil }
