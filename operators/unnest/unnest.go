// Package unnest repeats the rows of its input for each element of a list. Rows whose list is empty or null have no
// rows in the result.
package unnest

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// Spec configures the operator.
type Spec struct {
	Out  *gpu.Schema
	List int   // position of the list in the input
	Keep []int // of each column of Out its position in the input, -1 for the element
}

// New returns the operator.
func New(s Spec, list gpu.Type) operators.Streaming {
	p := &gpu.Program{Inputs: []gpu.Type{list}, Outputs: []int{2}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: gpu.Of(gpu.Int64), Value: gpu.IntScalar(gpu.Of(gpu.Int64), 1), Mask: -1},
		{Op: gpu.OpElement, Type: list.Element(), Args: []int{0, 1}, Mask: -1, Text: "unnest"}}}
	return &unnest{Spec: s, program: p}
}

type unnest struct {
	Spec
	program *gpu.Program
}

func (o *unnest) Schema() *gpu.Schema { return o.Out }
func (o *unnest) Close() error        { return nil }
func (o *unnest) NewLane(t operators.Task) (operators.Lane, error) {
	return &lane{unnest: o, task: t}, nil
}

type lane struct {
	operators.NoFlush
	*unnest
	task operators.Task
}

func (l *lane) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	defer s.Release()
	e, err := l.task.Queue.Elements(l.task.Lease, s.Cols[l.List])
	if err != nil {
		return err
	}
	defer e.Release()
	most := max(l.task.StrideRows, 1)
	for from := 0; from < e.Rows.Len; from += most {
		out, err := l.rows(s, e.Rows, e.Values, from, min(from+most, e.Rows.Len))
		if err != nil {
			return err
		}
		if err := emit(out); err != nil {
			return err
		}
	}
	return nil
}

// rows returns the rows of some elements.
func (l *lane) rows(s *gpu.Stride, ids, elements gpu.Column, from, to int) (*gpu.Stride, error) {
	q, lease := l.task.Queue, l.task.Lease
	parts, err := q.Cut(lease, []gpu.Column{ids, elements}, []int{from, to})
	if err != nil {
		return nil, err
	}
	defer gpu.ReleaseColumns(parts[0])
	var kept []gpu.Column
	for _, c := range l.Keep {
		if c >= 0 {
			kept = append(kept, s.Cols[c])
		}
	}
	if len(kept) > 0 {
		if kept, err = q.Gather(lease, kept, parts[0][0], false); err != nil {
			return nil, err
		}
	}
	element, err := q.Eval(lease, l.program, parts[0][1:], to-from)
	if err != nil {
		gpu.ReleaseColumns(kept)
		return nil, err
	}
	out := &gpu.Stride{Schema: l.Out, Rows: to - from}
	used := false
	for _, c := range l.Keep {
		if c >= 0 {
			out.Cols, kept = append(out.Cols, kept[0]), kept[1:]
			continue
		}
		out.Cols, used = append(out.Cols, element[0]), true
	}
	if !used {
		gpu.ReleaseColumns(element)
	}
	return out, nil
}
