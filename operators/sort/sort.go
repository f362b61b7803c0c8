// Package sort orders rows, all of them or the first few.
package sort

import (
	"context"
	"errors"
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// Key is one column of the order, the first most significant.
type Key struct {
	Column                 int
	Descending, NullsFirst bool
}

// Spec describes a sort. Rows with equal keys keep their order.
type Spec struct {
	In   *gpu.Schema
	Keys []Key
	// Offset rows are left out and then Limit rows are returned; a Limit of -1
	// returns all.
	Offset, Limit int64
}

// New returns the sort of a spec: a top-k while offset + limit are few enough to
// keep, a full sort otherwise.
func New(s Spec) (operators.Operator, error) {
	if len(s.Keys) == 0 {
		return nil, fmt.Errorf("sort wants at least one key")
	}
	o := &sorter{Spec: s, top: -1}
	if s.Limit >= 0 && s.Limit <= topRows && s.Offset <= topRows-s.Limit {
		o.top = int(s.Offset + s.Limit)
	}
	return o, nil
}

// topRows is the largest k for which a top-k keeps its candidates sorted.
const topRows = 1 << 20

// sorter collects all rows and sorts them at the end; as a top-k it sorts
// whenever it holds many more than it needs and lets the rest go.
type sorter struct {
	Spec
	top  int // rows to keep, -1 for all
	task operators.Task
	held []*gpu.Stride
	rows int
}

func (o *sorter) Schema() *gpu.Schema { return o.In }

func (o *sorter) Open(t operators.Task) error {
	o.task = t
	return nil
}

func (o *sorter) Push(_ context.Context, s *gpu.Stride, _ operators.Emit) error {
	if o.top == 0 {
		s.Release()
		return nil
	}
	o.held = append(o.held, s)
	o.rows += s.Rows
	// Cut when most rows of the stride are out of the running, or many wait.
	if o.top > 0 && (s.Rows > o.top || o.rows > 2*o.top+o.task.StrideRows) {
		return o.cut()
	}
	return nil
}

// cut sorts what is held and keeps the first rows.
func (o *sorter) cut() error {
	all, ids, err := o.sorted()
	if err != nil {
		return err
	}
	defer all.Release()
	defer ids.Release()
	first, err := o.task.Queue.Slice(o.task.Lease, ids, 0, min(o.top, ids.Len))
	if err != nil {
		return err
	}
	defer first.Release()
	s, err := all.Gather(o.task, first)
	if err != nil {
		return err
	}
	o.held = []*gpu.Stride{s}
	o.rows = s.Rows
	return nil
}

// sorted takes the held strides and returns their rows with their order.
func (o *sorter) sorted() (*operators.Rows, gpu.Column, error) {
	strides := o.held
	o.held = nil
	if o.rows > gpu.MaxRows {
		for _, s := range strides {
			s.Release()
		}
		return nil, gpu.Column{}, fmt.Errorf("sort of %d rows: in memory at most %d can be sorted", o.rows, gpu.MaxRows)
	}
	whole := make([]int, len(o.Keys))
	for i, k := range o.Keys {
		whole[i] = k.Column
	}
	all, err := operators.CollectRows(o.task, o.In, strides, whole)
	if err != nil {
		return nil, gpu.Column{}, o.explain(err)
	}
	keys := make([]gpu.SortKey, len(o.Keys))
	for i, k := range o.Keys {
		keys[i] = gpu.SortKey{Column: all.Cols[k.Column], Descending: k.Descending, NullsFirst: k.NullsFirst}
	}
	ids, err := o.task.Queue.Sort(o.task.Lease, keys)
	if err != nil {
		all.Release()
		return nil, gpu.Column{}, o.explain(err)
	}
	return all, ids, nil
}

// explain adds to a refusal of the budget what would help a sort.
func (o *sorter) explain(err error) error {
	var b *gpu.BudgetError
	if errors.As(err, &b) {
		b.Hint = fmt.Sprintf("the sort must hold all its %d rows: select fewer columns, filter first, or add a limit", o.rows)
	}
	return err
}

func (o *sorter) Finish(ctx context.Context, emit operators.Emit) error {
	if o.rows == 0 {
		return nil
	}
	all, ids, err := o.sorted()
	if err != nil {
		return err
	}
	defer all.Release()
	defer ids.Release()
	from := int(min(o.Offset, int64(ids.Len)))
	end := ids.Len
	if o.Limit >= 0 {
		end = from + int(min(o.Limit, int64(end-from)))
	}
	for ; from < end; from += o.task.StrideRows {
		if err := ctx.Err(); err != nil {
			return err
		}
		part, err := o.task.Queue.Slice(o.task.Lease, ids, from, min(from+o.task.StrideRows, end))
		if err != nil {
			return err
		}
		s, err := all.Gather(o.task, part)
		part.Release()
		if err != nil {
			return err
		}
		if err := emit(s); err != nil {
			return err
		}
	}
	return nil
}

func (o *sorter) Close() error {
	for _, s := range o.held {
		s.Release()
	}
	o.held = nil
	return nil
}
