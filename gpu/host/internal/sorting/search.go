package sorting

import (
	"sort"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Search finds each bound in a range [from[i], to[i]) of rows, which are in the order of the key. It
// returns the first row that is not before the bound or, with after, the first row after it.
func Search(cores parallel.Cores, l *gpu.Lease, key gpu.SortKey, bound gpu.Column, after bool,
	from, to []int32) (gpu.Column, error) {
	n := len(from)
	out, err := memory.New[int32](l, n)
	if err != nil {
		return gpu.Column{}, err
	}
	compare, least := CompareKey(key, bound), 0
	if after {
		least = 1
	}
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		for i := lo; i < hi; i++ {
			at := int(from[i])
			out.V[i] = to[i]
			if rows := int(to[i]) - at; rows > 0 {
				out.V[i] = int32(at + sort.Search(rows, func(k int) bool { return compare(at+k, i) >= least }))
			}
		}
		return nil
	})
	if err != nil {
		out.Release()
		return gpu.Column{}, err
	}
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: out.Buf}, nil
}
