package recursive

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/materialize"
	"github.com/gstream/gstream/spill"
)

// Recursion collects the rows of one iteration after the other. It is a Blocking operator that is used again for each
// iteration, between Begin and Take. Iterations do not overlap.
type Recursion struct {
	schema   *gpu.Schema
	distinct *distinct // rows so far; nil if all rows count
	columns  []int
	rows     *materialize.Rows // of the iteration
}

// New returns the operator. all keeps rows that are equal to earlier ones.
func New(schema *gpu.Schema, all bool) *Recursion {
	o := &Recursion{schema: schema}
	if !all {
		o.distinct = newDistinct(schema)
	}
	return o
}

// Schema implements operators.Operator.
func (o *Recursion) Schema() *gpu.Schema { return o.schema }

// Begin begins an iteration, which is collected from strides that have the columns of the schema at these positions.
func (o *Recursion) Begin(columns []int) {
	o.columns, o.rows = columns, materialize.New(o.schema)
}

// Take returns the rows that the iteration has added, once it is finalized. The caller closes them.
func (o *Recursion) Take() *materialize.Rows {
	rows := o.rows
	o.rows = nil
	return rows
}

// NewLocal implements operators.Blocking.
func (o *Recursion) NewLocal(t operators.Task) (operators.Local, error) {
	rows, err := o.rows.NewLocal(t)
	return &local{rows, o, t}, err
}

// local collects the rows of a lane.
type local struct {
	operators.Local
	*Recursion
	task operators.Task
}

// Push takes the columns of a stride in their order. A stride that has become too long, as after a join, is cut: from
// iteration to iteration strides would become ever longer.
func (l *local) Push(ctx context.Context, number int, s *gpu.Stride) error {
	out := &gpu.Stride{Schema: l.schema, Rows: s.Rows, Cols: make([]gpu.Column, len(l.columns))}
	for i, c := range l.columns {
		out.Cols[i] = s.Cols[c].Retain()
	}
	s.Release()
	if out.Rows <= l.task.StrideRows {
		return l.Local.Push(ctx, number, out)
	}
	bounds := []int{0}
	for at := 0; at < out.Rows; {
		at = min(at+l.task.StrideRows, out.Rows)
		bounds = append(bounds, at)
	}
	parts, err := operators.CutStride(l.task, out, bounds)
	out.Release()
	if err != nil {
		return err
	}
	for i, part := range parts {
		if err := l.Local.Push(ctx, number, part); err != nil {
			for _, left := range parts[i+1:] {
				left.Release()
			}
			return err
		}
	}
	return nil
}

// Close ends the lane. The rows stay.
func (l *local) Close() error { return l.Local.Close() }

// Finalize implements operators.Blocking. Without UNION ALL it drops the rows that are not new.
func (o *Recursion) Finalize(ctx context.Context, t operators.Task) (err error) {
	if err := o.rows.Finalize(ctx, t); err != nil || o.distinct == nil {
		return err
	}
	all := o.rows
	o.rows = materialize.New(o.schema)
	defer func() {
		if closed := all.Close(); err == nil {
			err = closed
		}
	}()
	t.Lanes = 1
	kept, err := o.rows.NewLocal(t)
	if err != nil {
		return err
	}
	return o.distinct.add(ctx, t, all, func(s *gpu.Stride) error { return kept.Push(ctx, 0, s) })
}

// Close implements operators.Operator.
func (o *Recursion) Close() (err error) {
	if o.rows != nil {
		err = o.rows.Close()
	}
	if o.distinct != nil {
		if closed := o.distinct.close(); err == nil {
			err = closed
		}
	}
	return err
}

// Demand implements operators.Demanding: two iterations, of which one reads the other, and the distinct rows.
func (o *Recursion) Demand(e operators.Expected) operators.Demand {
	bytes := 2 * e.Bytes
	if o.distinct != nil {
		bytes += e.OutBytes
	}
	return operators.Demand{Bytes: bytes,
		Spilled: func(room float64) float64 { return max(0, bytes-spill.Room(room)) }}
}
