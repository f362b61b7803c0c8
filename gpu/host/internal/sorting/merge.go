package sorting

import (
	"slices"
	"sort"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// MergeSort returns the ids of rows in the order of keys; equal rows keep their order. Cores sort
// runs of rows, then merge pairs of runs. Diagonals cut the path of a merge, so that all cores take
// part in every merge.
func MergeSort(cores parallel.Cores, l *gpu.Lease, keys []gpu.SortKey) (gpu.Column, error) {
	n := keys[0].Column.Len
	from, err := memory.New[int32](l, n)
	if err != nil {
		return gpu.Column{}, err
	}
	to, err := memory.New[int32](l, n)
	if err != nil {
		from.Release()
		return gpu.Column{}, err
	}
	rows, other := from.V, to.V
	compare := CompareRows(keys, keys)
	run := max(parallel.Grain, (n+cores.Threads-1)/cores.Threads)
	err = cores.For(n, run, func(lo, hi int) error {
		for i := lo; i < hi; i++ {
			rows[i] = int32(i)
		}
		slices.SortFunc(rows[lo:hi], func(x, y int32) int {
			if c := compare(int(x), int(y)); c != 0 {
				return c
			}
			return int(x - y)
		})
		return nil
	})
	for ; err == nil && run < n; run *= 2 {
		err = cores.For(n, parallel.Grain, func(lo, hi int) error {
			for at := lo; at < hi; {
				first := at / (2 * run) * (2 * run)
				middle, end := min(first+run, n), min(first+2*run, n)
				stop := min(hi, end)
				mergeRuns(compare, rows[first:middle], rows[middle:end], other[at:stop], at-first)
				at = stop
			}
			return nil
		})
		rows, other, from, to = other, rows, to, from
	}
	to.Release()
	if err != nil {
		from.Release()
		return gpu.Column{}, err
	}
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: from.Buf}, nil
}

// mergeRuns writes a part of the merge of two runs, from a diagonal on. Among equal rows, those of
// the left run come first.
func mergeRuns(compare Comparison, left, right, out []int32, diagonal int) {
	low := max(diagonal-len(right), 0)
	x := low + sort.Search(min(diagonal, len(left))-low, func(k int) bool {
		return compare(int(right[diagonal-1-low-k]), int(left[low+k])) < 0
	})
	y := diagonal - x
	for i := range out {
		if y >= len(right) || x < len(left) && compare(int(right[y]), int(left[x])) >= 0 {
			out[i] = left[x]
			x++
		} else {
			out[i] = right[y]
			y++
		}
	}
}
