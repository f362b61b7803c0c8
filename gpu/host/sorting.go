package host

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/sorting"
)

// Sort implements gpu.Queue.
func (q *queue) Sort(l *gpu.Lease, keys []gpu.SortKey) (gpu.Column, error) {
	if err := q.check(gpu.KeyColumns(keys)); err != nil {
		return gpu.Column{}, err
	}
	if err := gpu.CheckSort(keys); err != nil {
		return gpu.Column{}, err
	}
	out, err := sorting.Sort(q.dev.cores, l, keys)
	return out, q.fail(err)
}

// MergeSort implements gpu.Queue.
func (q *queue) MergeSort(l *gpu.Lease, keys []gpu.SortKey) (gpu.Column, error) {
	if err := q.check(gpu.KeyColumns(keys)); err != nil {
		return gpu.Column{}, err
	}
	if err := gpu.CheckSort(keys); err != nil {
		return gpu.Column{}, err
	}
	out, err := sorting.MergeSort(q.dev.cores, l, keys)
	return out, q.fail(err)
}

// Runs implements gpu.Queue.
func (q *queue) Runs(l *gpu.Lease, keys []gpu.Column) (gpu.Assignment, gpu.Column, error) {
	if err := q.check(keys); err != nil {
		return nil, gpu.Column{}, err
	}
	if err := gpu.CheckKeys(keys); err != nil {
		return nil, gpu.Column{}, err
	}
	ids, firsts, err := sorting.Runs(q.dev.cores, l, keys)
	if err != nil {
		return nil, gpu.Column{}, q.fail(err)
	}
	return assignment{ids}, firsts, nil
}
