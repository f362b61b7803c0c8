// Package project computes the columns of a select list. Columns that are only
// renamed or reordered are passed on without a copy.
package project

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

type project struct {
	out    *gpu.Schema
	prog   *gpu.Program
	inputs []int
	task   operators.Task
}

// New returns the operator that evaluates p over each stride; inputs are the
// schema positions of p's inputs, out names its outputs.
func New(_ *gpu.Schema, out *gpu.Schema, p *gpu.Program, inputs []int) operators.Operator {
	return &project{out: out, prog: p, inputs: inputs}
}

func (o *project) Schema() *gpu.Schema { return o.out }

func (o *project) Open(t operators.Task) error {
	o.task = t
	return nil
}

func (o *project) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	cols, err := o.task.Queue.Eval(o.task.Lease, o.prog, operators.Pick(s.Cols, o.inputs), s.Rows)
	rows := s.Rows
	s.Release()
	if err != nil {
		return err
	}
	return emit(&gpu.Stride{Schema: o.out, Cols: cols, Rows: rows})
}

func (o *project) Finish(context.Context, operators.Emit) error { return nil }

func (o *project) Close() error { return nil }
