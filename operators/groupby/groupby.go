// Package groupby holds grouping and aggregation.
package groupby

import (
	"context"
	"errors"
	"fmt"

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

// hashGroupBy keeps the groups in one hash table and the aggregates in arrays by
// group id (HGB-G of Wu et al., SIGMOD 2025, §5; Karnagel et al., ADMS 2015).
// Its groups must fit the device's budget.
type hashGroupBy struct {
	Spec
	task   operators.Task
	groups gpu.Groups
	accs   []gpu.Accumulator
}

// New returns the group-by of a spec.
func New(s Spec) (operators.Operator, error) {
	if s.Out.Len() != len(s.Keys)+len(s.Aggregates) {
		return nil, fmt.Errorf("group-by returns %d columns under %d names", len(s.Keys)+len(s.Aggregates), s.Out.Len())
	}
	return &hashGroupBy{Spec: s}, nil
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
	for _, a := range o.Aggregates {
		spec := gpu.Aggregate{Kind: a.Kind, Output: a.Output}
		if a.Input >= 0 {
			spec.Input = o.In.Fields[a.Input].Type
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
	defer s.Release()
	q := o.task.Queue
	a, err := o.groups.Assign(q, o.task.Lease, operators.Pick(s.Cols, o.Keys), s.Rows)
	if err != nil {
		return o.explain(err)
	}
	defer a.Release()
	for i, acc := range o.accs {
		var values gpu.Column
		if in := o.Aggregates[i].Input; in >= 0 {
			values = s.Cols[in]
		}
		if err := acc.Update(q, a, values, o.groups.Len()); err != nil {
			return o.explain(fmt.Errorf("%s: %w", o.Out.Fields[len(o.Keys)+i].Name, err))
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
		for i, acc := range o.accs {
			c, err := acc.Result(q, l, from, to)
			if err != nil {
				out.Release()
				return fmt.Errorf("%s: %w", o.Out.Fields[len(o.Keys)+i].Name, err)
			}
			out.Cols = append(out.Cols, c)
		}
		if err := emit(out); err != nil {
			return err
		}
	}
	return nil
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
