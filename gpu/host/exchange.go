package host

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/move"
)

var _ gpu.Exchanging = (*queue)(nil)

// arrived is the end of work that has ended.
type arrived struct{}

// Await implements gpu.Arrival.
func (arrived) Await(gpu.Queue) error { return nil }

// Release implements gpu.Arrival.
func (arrived) Release() {}

// Launched implements gpu.Exchanging.
func (q *queue) Launched() (gpu.Arrival, error) { return arrived{}, q.check() }

// SendTuples implements gpu.Exchanging.
func (q *queue) SendTuples(l *gpu.Lease, sources []gpu.TupleSource, by gpu.TupleRoute,
	regions []gpu.TupleRun) (counts gpu.Column, err error) {
	if err := q.check(); err != nil {
		return counts, err
	}
	if err := gpu.CheckSend(sources, by, regions); err != nil {
		return counts, err
	}
	counts, err = move.SendTuples(q.dev.cores, l, sources, by, regions)
	return counts, q.fail(err)
}

// Overruns implements gpu.Exchanging.
func (q *queue) Overruns(_ *gpu.Lease, counts []gpu.Column) (rows int, err error) {
	for _, c := range counts {
		rows += int(gpu.Values[uint32](c.Data, c.Len)[c.Len-1])
	}
	return rows, q.check()
}

// CopyTuples implements gpu.Exchanging. It copies at once.
func (q *queue) CopyTuples(_ *gpu.Lease, copies []gpu.TupleCopy, _ ...gpu.Arrival) (gpu.Arrival, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if err := gpu.CheckCopies(copies); err != nil {
		return nil, err
	}
	return arrived{}, q.fail(move.CopyTuples(q.dev.cores, copies))
}

// PartitionRuns implements gpu.Exchanging.
func (q *queue) PartitionRuns(l *gpu.Lease, to gpu.Column, runs []gpu.TupleRun,
	d gpu.Digit) (out gpu.PartitionedRuns, err error) {
	if err := q.check(); err != nil {
		return out, err
	}
	if err := gpu.CheckRuns(to, runs, d); err != nil {
		return out, err
	}
	out, err = move.PartitionRuns(q.dev.cores, l, to, runs, d)
	return out, q.fail(err)
}

// CountMatches implements gpu.Exchanging.
func (q *queue) CountMatches(l *gpu.Lease, build, probe []gpu.PartitionedRuns, perBin int,
	d gpu.Digit, out ...gpu.Column) (pairs, sum uint64, err error) {
	if err := q.check(); err != nil {
		return 0, 0, err
	}
	if err := gpu.CheckMatches(build, probe, perBin, d, out); err != nil {
		return 0, 0, err
	}
	pairs, sum, err = move.CountMatches(q.dev.cores, build, probe, perBin, d, out)
	return pairs, sum, q.fail(err)
}

// SumTuples implements gpu.Exchanging.
func (q *queue) SumTuples(_ *gpu.Lease, runs []gpu.TupleRun, regions []int, ways int,
	d gpu.Digit) (keys, values, wrong uint64, err error) {
	if err := q.check(); err != nil {
		return 0, 0, 0, err
	}
	if err := gpu.CheckSums(runs, regions); err != nil {
		return 0, 0, 0, err
	}
	keys, values, wrong, err = move.SumTuples(q.dev.cores, runs, regions, ways, d)
	return keys, values, wrong, q.fail(err)
}

// GroupTuples implements gpu.Exchanging.
func (q *queue) GroupTuples(_ *gpu.Lease, parts []gpu.PartitionedRuns, perBin int, d gpu.Digit,
	keys, sums, counts gpu.Column) (groups int, err error) {
	if err := q.check(); err != nil {
		return 0, err
	}
	if err := gpu.CheckGroupTuples(parts, perBin, d, keys, sums, counts); err != nil {
		return 0, err
	}
	groups, err = move.GroupTuples(q.dev.cores, parts, perBin, []gpu.Column{keys, sums, counts})
	return groups, q.fail(err)
}

// CollectTuples implements gpu.Exchanging.
func (q *queue) CollectTuples(l *gpu.Lease, runs []gpu.TupleRun) (keys, values gpu.Column, err error) {
	if err := q.check(); err != nil {
		return keys, values, err
	}
	if err := gpu.CheckCollect(runs); err != nil {
		return keys, values, err
	}
	keys, values, err = move.CollectTuples(q.dev.cores, l, runs)
	return keys, values, q.fail(err)
}
