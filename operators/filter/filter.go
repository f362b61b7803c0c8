// Package filter keeps the rows for which a predicate is true.
package filter

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// New returns the operator that keeps the rows for which pred is true: not false and not
// null. pred is a program with one Bool output over the columns at inputs. keep are the
// schema positions of the columns that are passed on.
func New(in *gpu.Schema, pred *gpu.Program, inputs []int, keep []int) operators.Streaming {
	f := &filter{operators.PickFields(in, keep), pred, inputs, keep}
	return operators.Stateless(f.out, f.apply)
}

type filter struct {
	out    *gpu.Schema
	pred   *gpu.Program
	inputs []int
	keep   []int
}

func (f *filter) apply(t operators.Task, s *gpu.Stride) (*gpu.Stride, error) {
	truth, err := t.Queue.Eval(t.Lease, f.pred, operators.Pick(s.Cols, f.inputs), s.Rows)
	if err != nil {
		return nil, err
	}
	ids, err := t.Queue.Select(t.Lease, truth[0], true)
	gpu.ReleaseColumns(truth)
	if err != nil {
		return nil, err
	}
	defer ids.Release()
	if ids.Len == 0 {
		return nil, nil
	}
	if ids.Len == s.Rows {
		kept := operators.Pick(s.Cols, f.keep)
		for i := range kept {
			kept[i] = kept[i].Retain()
		}
		return &gpu.Stride{Schema: f.out, Cols: kept, Rows: s.Rows}, nil
	}
	cols, err := t.Queue.Gather(t.Lease, operators.Pick(s.Cols, f.keep), ids, false)
	if err != nil {
		return nil, err
	}
	return &gpu.Stride{Schema: f.out, Cols: cols, Rows: ids.Len}, nil
}
