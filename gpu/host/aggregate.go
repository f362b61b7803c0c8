package host

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/aggregate"
)

// AggregatePartitions implements gpu.Queue. It ignores partitions and uses one table.
func (q *queue) AggregatePartitions(l *gpu.Lease, rows gpu.Partitioned, list []gpu.Aggregate, values []gpu.Column,
	hint gpu.GroupHint) (out []gpu.Column, err error) {
	if err := q.check(append([]gpu.Column{rows.Key, rows.Offsets}, values...)); err != nil {
		return nil, err
	}
	if err := gpu.CheckAggregation(rows, list, values); err != nil {
		return nil, err
	}
	groups, err := q.NewGroups(l, []gpu.Type{rows.Key.Type}, hint)
	if err != nil {
		return nil, err
	}
	defer groups.Release()
	to, err := groups.Assign(q, l, []gpu.Column{rows.Key}, rows.Key.Len)
	if err != nil {
		return nil, err
	}
	defer to.Release()
	n := groups.Len()
	if out, err = groups.Keys(q, l, 0, n); err != nil {
		return nil, err
	}
	for i, a := range list {
		c, err := q.aggregate(l, a, to, values[i], n)
		if err != nil {
			gpu.ReleaseColumns(out)
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// aggregate returns an aggregate of rows by their groups.
func (q *queue) aggregate(l *gpu.Lease, a gpu.Aggregate, to gpu.Assignment, values gpu.Column,
	groups int) (gpu.Column, error) {
	acc, err := q.NewAccumulator(l, a)
	if err != nil {
		return gpu.Column{}, err
	}
	defer acc.Release()
	if err := acc.Update(q, to, values, groups); err != nil {
		return gpu.Column{}, err
	}
	return acc.Result(q, l, 0, groups)
}

// accumulator implements gpu.Accumulator.
type accumulator struct {
	dev *Device
	*aggregate.Accumulator
}

// NewAccumulator implements gpu.Queue.
func (q *queue) NewAccumulator(l *gpu.Lease, a gpu.Aggregate) (gpu.Accumulator, error) {
	if q.err != nil {
		return nil, q.err
	}
	x, err := aggregate.New(l, a)
	if err != nil {
		return nil, err
	}
	return &accumulator{q.dev.device(), x}, nil
}

// Update implements gpu.Accumulator.
func (x *accumulator) Update(gq gpu.Queue, a gpu.Assignment, values gpu.Column, groups int) error {
	q, err := x.dev.queue(gq, []gpu.Column{a.IDs(), values})
	if err != nil {
		return err
	}
	return q.fail(x.Accumulator.Update(q.dev.cores, ints(a.IDs()), values, groups))
}

// Result implements gpu.Accumulator.
func (x *accumulator) Result(gq gpu.Queue, l *gpu.Lease, from, to int) (gpu.Column, error) {
	q, err := x.dev.queue(gq)
	if err != nil {
		return gpu.Column{}, err
	}
	out, err := x.Accumulator.Result(l, from, to)
	return out, q.fail(err)
}

// argMinMaxState implements gpu.ArgMinMaxState.
type argMinMaxState struct {
	dev *Device
	*aggregate.ArgMinMax
}

// NewArgMinMax implements gpu.Queue.
func (q *queue) NewArgMinMax(l *gpu.Lease, spec gpu.ArgMinMax) (gpu.ArgMinMaxState, error) {
	if q.err != nil {
		return nil, q.err
	}
	x, err := aggregate.NewArgMinMax(l, spec)
	if err != nil {
		return nil, err
	}
	return &argMinMaxState{q.dev.device(), x}, nil
}

// Update implements gpu.ArgMinMaxState.
func (x *argMinMaxState) Update(gq gpu.Queue, a gpu.Assignment, cols []gpu.Column, groups int) error {
	q, err := x.dev.queue(gq, []gpu.Column{a.IDs()}, cols)
	if err != nil {
		return err
	}
	return q.fail(x.ArgMinMax.Update(q.dev.cores, ints(a.IDs()), cols, groups))
}

// Result implements gpu.ArgMinMaxState.
func (x *argMinMaxState) Result(gq gpu.Queue, l *gpu.Lease, column, from, to int) (gpu.Column, error) {
	q, err := x.dev.queue(gq)
	if err != nil {
		return gpu.Column{}, err
	}
	out, err := x.ArgMinMax.Result(l, column, from, to)
	return out, q.fail(err)
}

// Fold implements gpu.Queue.
func (q *queue) Fold(l *gpu.Lease, a gpu.Aggregate, values, from, to gpu.Column) (gpu.Column, error) {
	if err := q.check([]gpu.Column{values, from, to}); err != nil {
		return gpu.Column{}, err
	}
	if err := gpu.CheckFold(a, values, from, to); err != nil {
		return gpu.Column{}, err
	}
	out, err := aggregate.Fold(q.dev.cores, l, a, values, ints(from), ints(to))
	return out, q.fail(err)
}

// Extreme implements gpu.Queue.
func (q *queue) Extreme(l *gpu.Lease, key gpu.SortKey, last bool, from, to gpu.Column) (gpu.Column, error) {
	if err := q.check([]gpu.Column{key.Column, from, to}); err != nil {
		return gpu.Column{}, err
	}
	if err := gpu.CheckExtreme(key, from, to); err != nil {
		return gpu.Column{}, err
	}
	out, err := aggregate.Extreme(q.dev.cores, l, key, last, ints(from), ints(to))
	return out, q.fail(err)
}
