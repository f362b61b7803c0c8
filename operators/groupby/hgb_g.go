package groupby

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// table is a hash table of groups, with their aggregates in arrays by group id: HGB-G (Wu et al.,
// SIGMOD 2025, §3.2.1; Karnagel et al., ADMS 2015, §2.2). It grows with the strides that it takes.
// Few groups are aggregated in copies of the arrays: in shared memory, or per core.
type table struct {
	keys      []int // positions in the strides that it takes
	inputs    []int // of each accumulator, -1 for count(*)
	groups    gpu.Groups
	accs      []gpu.Accumulator // by partial aggregate, nil for those of argMinMax
	argMinMax []argMinMaxState
	rows      int // rows taken so far
}

// newTable makes a table for strides of a schema.
func (o *hashGroupBy) newTable(t operators.Task, in *gpu.Schema, keys []int, aggregates []gpu.Aggregate, inputs []int,
	hint gpu.GroupHint) (_ *table, err error) {
	x := &table{keys: keys, inputs: inputs}
	types := make([]gpu.Type, len(keys))
	for i, k := range keys {
		types[i] = in.Fields[k].Type
	}
	if x.groups, err = t.Queue.NewGroups(t.Lease, types, hint); err != nil {
		return nil, err
	}
	if err := o.accumulators(t, x, aggregates); err != nil {
		x.release()
		return nil, err
	}
	return x, nil
}

// accumulators gives a table the accumulators of some aggregates, and the states of
// arg_min and arg_max.
func (o *hashGroupBy) accumulators(t operators.Task, x *table, aggregates []gpu.Aggregate) (err error) {
	if x.accs, err = newAccumulators(t, aggregates); err == nil {
		x.argMinMax, err = o.newArgMinMax(t, x.inputs)
	}
	return err
}

func newAccumulators(t operators.Task, aggregates []gpu.Aggregate) ([]gpu.Accumulator, error) {
	var out []gpu.Accumulator
	for _, a := range aggregates {
		if a.Kind == gpu.ArgValue {
			out = append(out, nil)
			continue
		}
		acc, err := t.Queue.NewAccumulator(t.Lease, a)
		if err != nil {
			releaseAll(out)
			return nil, err
		}
		out = append(out, acc)
	}
	return out, nil
}

// take assigns the rows of a stride to groups and aggregates them. It borrows the stride.
// After an error of an accumulator, failed is its number; otherwise it is -1.
func (x *table) take(t operators.Task, s *gpu.Stride) (failed int, err error) {
	a, err := x.groups.Assign(t.Queue, t.Lease, operators.Pick(s.Cols, x.keys), s.Rows)
	if err != nil {
		return -1, err
	}
	defer a.Release()
	x.rows += s.Rows
	return x.update(t, s, a, x.groups.Len())
}

// update aggregates the rows of a stride, which are assigned to groups.
func (x *table) update(t operators.Task, s *gpu.Stride, a gpu.Assignment, groups int) (failed int, err error) {
	for i, acc := range x.accs {
		if acc == nil {
			continue
		}
		var values gpu.Column
		if x.inputs[i] >= 0 {
			values = s.Cols[x.inputs[i]]
		}
		if err := acc.Update(t.Queue, a, values, groups); err != nil {
			return i, err
		}
	}
	for _, l := range x.argMinMax {
		if err := l.Update(t.Queue, a, operators.Pick(s.Cols, l.cols), groups); err != nil {
			return l.at + len(l.cols) - 1, err
		}
	}
	return -1, nil
}

// release releases a table, if there is one.
func (x *table) release() {
	if x == nil {
		return
	}
	if x.groups != nil {
		x.groups.Release()
	}
	releaseAll(x.accs)
	for _, l := range x.argMinMax {
		l.Release()
	}
}

func releaseAll(accs []gpu.Accumulator) {
	for _, a := range accs {
		if a != nil {
			a.Release()
		}
	}
}

func (x *table) len() int {
	if x == nil {
		return 0
	}
	return x.groups.Len()
}

func (x *table) keyColumns(t operators.Task, from, to int) ([]gpu.Column, error) {
	return x.groups.Keys(t.Queue, t.Lease, from, to)
}

func (x *table) column(t operators.Task, i, from, to int) (gpu.Column, error) {
	if x.accs[i] != nil {
		return x.accs[i].Result(t.Queue, t.Lease, from, to)
	}
	at, _ := slices.BinarySearchFunc(x.argMinMax, i,
		func(l argMinMaxState, i int) int { return l.at + len(l.cols) - 1 - i })
	return x.argMinMax[at].Result(t.Queue, t.Lease, i-x.argMinMax[at].at, from, to)
}
