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

// Search implements gpu.Queue.
func (q *queue) Search(l *gpu.Lease, key gpu.SortKey, bound gpu.Column, after bool,
	from, to gpu.Column) (gpu.Column, error) {
	if err := q.check([]gpu.Column{key.Column, bound, from, to}); err != nil {
		return gpu.Column{}, err
	}
	if err := gpu.CheckSearch(key, bound, from, to); err != nil {
		return gpu.Column{}, err
	}
	out, err := sorting.Search(q.dev.cores, l, key, bound, after, ints(from), ints(to))
	return out, q.fail(err)
}
