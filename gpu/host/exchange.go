package host

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/move"
)

var _ gpu.Exchanging = (*queue)(nil)

// arrived is the end of copies that have ended.
type arrived struct{}

// Await implements gpu.Arrival.
func (arrived) Await(gpu.Queue) error { return nil }

// Fetch implements gpu.Exchanging. It copies at once.
func (q *queue) Fetch(_ *gpu.Lease, copies []gpu.TupleCopy) (gpu.Arrival, error) {
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
	d gpu.Digit) (pairs, sum uint64, err error) {
	if err := q.check(); err != nil {
		return 0, 0, err
	}
	if err := gpu.CheckMatches(build, probe, perBin, d); err != nil {
		return 0, 0, err
	}
	pairs, sum, err = move.CountMatches(q.dev.cores, build, probe, perBin, d)
	return pairs, sum, q.fail(err)
}

// SumTuples implements gpu.Exchanging.
func (q *queue) SumTuples(_ *gpu.Lease, runs []gpu.TupleRun, digits []int,
	d gpu.Digit) (keys, values, wrong uint64, err error) {
	if err := q.check(); err != nil {
		return 0, 0, 0, err
	}
	if err := gpu.CheckSums(runs, digits); err != nil {
		return 0, 0, 0, err
	}
	keys, values, wrong, err = move.SumTuples(q.dev.cores, runs, digits, d)
	return keys, values, wrong, q.fail(err)
}
