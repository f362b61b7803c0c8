package host

import "github.com/gstream/gstream/gpu"

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
