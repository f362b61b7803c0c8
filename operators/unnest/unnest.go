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
	Out *gpu.Schema
	// Lists are the positions of the lists in the input: one, or fields of the elements of one list, as lists of equal
	// lengths.
	Lists []int
	// Keep has the position in the input of each column of Out. -1 - k stands for the elements of list k.
	Keep []int
}

// New returns the operator.
func New(s Spec) operators.Streaming { return &unnest{s} }

type unnest struct{ Spec }

func (o *unnest) Schema() *gpu.Schema { return o.Out }
func (o *unnest) Close() error        { return nil }
func (o *unnest) NewLane(t operators.Task) (operators.Lane, error) {
	return &lane{unnest: o, task: t}, nil
}

type lane struct {
	operators.NoFlush
	*unnest
	task operators.Task
	in   int // rows of the input so far
	out  int // and their elements
}

func (l *lane) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	defer s.Release()
	for from := 0; from < s.Rows; {
		to := min(from+l.rows(), s.Rows)
		if err := l.part(s.Cols, from, to, emit); err != nil {
			return err
		}
		l.in, from = l.in+to-from, to
	}
	return nil
}

// rows returns the number of rows that probably have as many elements as a stride may have rows.
func (l *lane) rows() int {
	most := max(l.task.StrideRows, 1)
	if l.out == 0 {
		return max(most/8, 1)
	}
	return max(int(float64(most)*float64(l.in)/float64(l.out)), 1)
}

// part takes the lists of some rows of the input apart.
func (l *lane) part(cols []gpu.Column, from, to int, emit operators.Emit) error {
	q, lease := l.task.Queue, l.task.Lease
	lists := make([]gpu.Column, len(l.Lists))
	for k, at := range l.Lists {
		lists[k] = cols[at]
	}
	ids, elements, err := q.Unnest(lease, lists, from, to)
	if err != nil {
		return err
	}
	all := append(elements, ids)
	defer gpu.ReleaseColumns(all)
	l.out += ids.Len
	most := max(l.task.StrideRows, 1)
	for at := 0; at < ids.Len; at += most {
		parts, err := q.Cut(lease, all, []int{at, min(at+most, ids.Len)})
		if err != nil {
			return err
		}
		out, err := l.repeated(cols, parts[0])
		gpu.ReleaseColumns(parts[0])
		if err != nil {
			return err
		}
		if err := emit(out); err != nil {
			return err
		}
	}
	return nil
}

// repeated returns the rows of some elements, after which come the rows of the input that they belong to.
func (l *lane) repeated(cols, elements []gpu.Column) (*gpu.Stride, error) {
	ids := elements[len(elements)-1]
	var kept []gpu.Column
	for _, c := range l.Keep {
		if c >= 0 {
			kept = append(kept, cols[c])
		}
	}
	if len(kept) > 0 {
		var err error
		if kept, err = l.task.Queue.Gather(l.task.Lease, kept, ids, false); err != nil {
			return nil, err
		}
	}
	out := &gpu.Stride{Schema: l.Out, Rows: ids.Len}
	for _, c := range l.Keep {
		if c < 0 {
			out.Cols = append(out.Cols, elements[-1-c].Retain())
			continue
		}
		out.Cols, kept = append(out.Cols, kept[0]), kept[1:]
	}
	return out, nil
}
