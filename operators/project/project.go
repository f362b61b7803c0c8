// Package project computes the columns of a select list. Columns that are only renamed or
// reordered are passed on without a copy.
package project

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// New returns the operator that evaluates p over each stride. inputs are the schema
// positions of p's inputs; out names its outputs.
func New(out *gpu.Schema, p *gpu.Program, inputs []int) operators.Streaming {
	return operators.Stateless(out, func(t operators.Task, s *gpu.Stride) (*gpu.Stride, error) {
		cols, err := t.Queue.Eval(t.Lease, p, operators.Pick(s.Cols, inputs), s.Rows)
		if err != nil {
			return nil, err
		}
		return &gpu.Stride{Schema: out, Cols: cols, Rows: s.Rows}, nil
	})
}
