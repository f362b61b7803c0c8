// Package groupby holds grouping and aggregation.
package groupby

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// Aggregate is one aggregate of a group-by.
type Aggregate struct {
	Kind gpu.AggregateKind
	// Input is the column that is aggregated, -1 for count(*).
	Input int
	// Output is the type of the result, see gpu.Aggregate.
	Output gpu.Type
}

// Spec describes a group-by. Without keys there is one group, also over no rows.
type Spec struct {
	In         *gpu.Schema
	Keys       []int
	Aggregates []Aggregate
	// Out names the keys and then the aggregates.
	Out  *gpu.Schema
	Hint gpu.GroupHint
}

// measure is an aggregate that the device accumulates. Results share measures: an
// average is a sum over a count, and counts of a column without nulls are all
// the count of rows.
type measure struct {
	kind  gpu.AggregateKind
	input int // -1 for count(*)
}

// measures returns the distinct measures that a spec needs, and for each
// aggregate the one that is its result, or its sum and count.
func (s *Spec) measures() (list []measure, parts [][]int) {
	at := map[measure]int{}
	use := func(m measure) int {
		if m.kind == gpu.Count && !s.In.Fields[m.input].Nullable {
			m = measure{gpu.CountAll, -1}
		}
		i, ok := at[m]
		if !ok {
			i = len(list)
			at[m] = i
			list = append(list, m)
		}
		return i
	}
	for _, a := range s.Aggregates {
		if a.Kind == gpu.Avg {
			parts = append(parts, []int{use(measure{gpu.Sum, a.Input}), use(measure{gpu.Count, a.Input})})
		} else {
			parts = append(parts, []int{use(measure{a.Kind, a.Input})})
		}
	}
	return list, parts
}

// output is the type of a measure's result.
func (s *Spec) output(m measure) gpu.Type {
	switch {
	case m.kind == gpu.CountAll || m.kind == gpu.Count:
		return gpu.Of(gpu.Int64)
	case m.kind != gpu.Sum:
		return s.In.Fields[m.input].Type
	}
	return gpu.SumType(s.In.Fields[m.input].Type)
}

// quotient is the program of an average: a sum over a count, as DOUBLE.
func quotient(sum gpu.Type) *gpu.Program {
	double := gpu.Of(gpu.Float64)
	return &gpu.Program{
		Inputs: []gpu.Type{sum, gpu.Of(gpu.Int64)},
		Code: []gpu.Instr{
			{Op: gpu.OpCast, Type: double, Args: []int{0}, Mask: -1, Text: "avg"},
			{Op: gpu.OpCast, Type: double, Args: []int{1}, Mask: -1, Text: "avg"},
			{Op: gpu.OpDiv, Type: double, Args: []int{2, 3}, Mask: -1, Text: "avg"},
		},
		Outputs: []int{4},
	}
}

// hashGroupBy keeps the groups in one hash table and the aggregates in arrays by
// group id (HGB-G of Wu et al., SIGMOD 2025, §5; Karnagel et al., ADMS 2015).
// Its groups must fit the device's budget.
type hashGroupBy struct {
	Spec
	task     operators.Task
	groups   gpu.Groups
	measured []measure
	parts    [][]int // of each aggregate, into accs
	accs     []gpu.Accumulator
	few      []*gpu.Stride // of few rows, for one assignment
	rows     int           // of few
	bytes    int64         // of few
}

// Strides of few rows, as selective filters and joins leave them, wait for others: an
// assignment costs some dozens of launches, however few its rows. They wait until they
// have a quarter of a stride's rows, or so many bytes, or this part of the device's
// budget.
const (
	fewBytes  = 64 << 20
	fewBudget = 64
)

// New returns the group-by of a spec.
func New(s Spec) (operators.Operator, error) {
	if s.Out.Len() != len(s.Keys)+len(s.Aggregates) {
		return nil, fmt.Errorf("group-by returns %d columns under %d names", len(s.Keys)+len(s.Aggregates), s.Out.Len())
	}
	o := &hashGroupBy{Spec: s}
	o.measured, o.parts = s.measures()
	return o, nil
}

func (o *hashGroupBy) Schema() *gpu.Schema { return o.Out }

func (o *hashGroupBy) Open(t operators.Task) error {
	o.task = t
	types := make([]gpu.Type, len(o.Keys))
	for i, k := range o.Keys {
		types[i] = o.In.Fields[k].Type
	}
	var err error
	if o.groups, err = t.Queue.NewGroups(t.Lease, types, o.Hint); err != nil {
		return err
	}
	for _, m := range o.measured {
		spec := gpu.Aggregate{Kind: m.kind, Output: o.output(m)}
		if m.input >= 0 {
			spec.Input = o.In.Fields[m.input].Type
		}
		acc, err := t.Queue.NewAccumulator(t.Lease, spec)
		if err != nil {
			return err
		}
		o.accs = append(o.accs, acc)
	}
	return nil
}

func (o *hashGroupBy) Push(_ context.Context, s *gpu.Stride, _ operators.Emit) error {
	bytes := s.Bytes()
	enough := o.enough(s.Rows, bytes)
	if enough || len(o.few) > 0 && !oneCoding(o.few[0], s) {
		if err := o.takeFew(); err != nil {
			s.Release()
			return err
		}
	}
	if enough {
		return o.take(s)
	}
	o.few = append(o.few, s)
	o.rows += s.Rows
	o.bytes += bytes
	if o.enough(o.rows, o.bytes) {
		return o.takeFew()
	}
	return nil
}

// enough says whether so many rows, or bytes, need not wait for others.
func (o *hashGroupBy) enough(rows int, bytes int64) bool {
	return rows >= o.task.StrideRows/4 || bytes >= min(fewBytes, o.task.Device.Budget().Limit()/fewBudget)
}

// oneCoding says whether the columns of two strides have the same dictionaries, so that
// putting them together makes nothing larger than they are.
func oneCoding(a, b *gpu.Stride) bool {
	for i := range a.Cols {
		if a.Cols[i].Dict != b.Cols[i].Dict {
			return false
		}
	}
	return true
}

// takeFew takes the strides that wait, as one.
func (o *hashGroupBy) takeFew() error {
	if len(o.few) == 0 {
		return nil
	}
	few := o.few
	o.few, o.rows, o.bytes = nil, 0, 0
	s, err := operators.ConcatStrides(o.task, o.In, few)
	if err != nil {
		return o.explain(err)
	}
	return o.take(s)
}

// take assigns the rows of a stride to groups and aggregates them.
func (o *hashGroupBy) take(s *gpu.Stride) error {
	defer s.Release()
	q := o.task.Queue
	a, err := o.groups.Assign(q, o.task.Lease, operators.Pick(s.Cols, o.Keys), s.Rows)
	if err != nil {
		return o.explain(err)
	}
	defer a.Release()
	for i, acc := range o.accs {
		var values gpu.Column
		m := o.measured[i]
		if m.input >= 0 {
			values = s.Cols[m.input]
		}
		if err := acc.Update(q, a, values, o.groups.Len()); err != nil {
			return o.explain(o.naming(i, err))
		}
	}
	return nil
}

// explain adds to a refusal of the budget what would help a group-by.
func (o *hashGroupBy) explain(err error) error {
	var b *gpu.BudgetError
	if errors.As(err, &b) {
		b.Hint = fmt.Sprintf("the group-by's state must fit: it holds %d groups so far; filter its input or group by fewer keys", o.groups.Len())
	}
	return err
}

func (o *hashGroupBy) Finish(ctx context.Context, emit operators.Emit) error {
	if err := o.takeFew(); err != nil {
		return err
	}
	q, l := o.task.Queue, o.task.Lease
	if len(o.Keys) == 0 && o.groups.Len() == 0 {
		return o.finishEmpty(emit)
	}
	for from := 0; from < o.groups.Len(); from += o.task.StrideRows {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(from+o.task.StrideRows, o.groups.Len())
		out := &gpu.Stride{Schema: o.Out, Rows: to - from}
		cols, err := o.groups.Keys(q, l, from, to)
		if err != nil {
			return err
		}
		out.Cols = cols
		for i := range o.Aggregates {
			c, err := o.result(i, from, to)
			if err != nil {
				out.Release()
				return err
			}
			out.Cols = append(out.Cols, c)
		}
		if err := emit(out); err != nil {
			return err
		}
	}
	return nil
}

// result returns aggregate i of groups [from, to).
func (o *hashGroupBy) result(i, from, to int) (gpu.Column, error) {
	q, l, parts := o.task.Queue, o.task.Lease, o.parts[i]
	out, err := o.accs[parts[0]].Result(q, l, from, to)
	if err != nil || len(parts) == 1 {
		return out, o.naming(parts[0], err)
	}
	defer out.Release()
	n, err := o.accs[parts[1]].Result(q, l, from, to)
	if err != nil {
		return gpu.Column{}, o.naming(parts[1], err)
	}
	defer n.Release()
	avg, err := q.Eval(l, quotient(out.Type), []gpu.Column{out, n}, to-from)
	if err != nil {
		return gpu.Column{}, err
	}
	return avg[0], nil
}

// naming adds to an error of a measure the name of the first column it is for.
func (o *hashGroupBy) naming(measure int, err error) error {
	if err == nil {
		return nil
	}
	for i, parts := range o.parts {
		if slices.Contains(parts, measure) {
			return fmt.Errorf("%s: %w", o.Out.Fields[len(o.Keys)+i].Name, err)
		}
	}
	return err
}

// finishEmpty emits the one group of no rows: counts are 0, all else is null.
func (o *hashGroupBy) finishEmpty(emit operators.Emit) error {
	out := &gpu.Stride{Schema: o.Out, Rows: 1}
	for _, a := range o.Aggregates {
		v := gpu.Null(a.Output)
		if a.Kind == gpu.Count || a.Kind == gpu.CountAll {
			v = gpu.IntScalar(a.Output, 0)
		}
		out.Cols = append(out.Cols, gpu.ColumnOf(a.Output, []gpu.Scalar{v}))
	}
	out, err := o.task.Queue.Up(o.task.Lease, out)
	if err != nil {
		return err
	}
	return emit(out)
}

func (o *hashGroupBy) Close() error {
	for _, s := range o.few {
		s.Release()
	}
	o.few = nil
	if o.groups != nil {
		o.groups.Release()
		o.groups = nil
	}
	for _, a := range o.accs {
		a.Release()
	}
	o.accs = nil
	return nil
}
