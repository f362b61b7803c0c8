package join

import (
	"sort"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/codec"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/sorting"
)

// MatchRange returns a matcher for the build rows between the bounds of each probe row. The build
// rows are sorted.
func MatchRange(cores parallel.Cores, l *gpu.Lease, build gpu.Column, lower, upper *gpu.Bound) (*Matcher, error) {
	bounds := gpu.BoundColumns(lower, upper)
	rows := bounds[0].Len
	// Nulls are last.
	keys := sort.Search(build.Len, func(i int) bool { return !build.IsValid(i) })
	begin := bounded(build, lower, lower != nil && lower.Strict)
	end := bounded(build, upper, upper != nil && !upper.Strict)
	dead, err := codec.NullRows(l, bounds, nil, rows)
	defer dead.Release()
	var m spans
	if err == nil {
		m, err = newSpans(l, rows)
	}
	if err == nil {
		err = cores.For(rows, probeGrain, func(from, to int) error {
			for r := from; r < to; r++ {
				first, count := 0, 0
				if dead.V == nil || dead.V[r/64]>>(r%64)&1 == 0 {
					if begin != nil {
						first = sort.Search(keys, func(i int) bool { return begin(i, r) })
					}
					if count = keys - first; end != nil {
						count = sort.Search(count, func(i int) bool { return end(first+i, r) })
					}
				}
				m.first.V[r], m.count.V[r] = int32(first), int32(count)
			}
			return nil
		})
	}
	if err != nil {
		m.release()
		return nil, err
	}
	return &Matcher{lookup: &m, rows: rows, to: rows}, nil
}

// bounded returns a function that reports whether build row i is after the bound of probe row r.
// With equal, a row that equals the bound is not after it. It returns nil if there is no bound.
func bounded(build gpu.Column, b *gpu.Bound, equal bool) func(i, r int) bool {
	if b == nil {
		return nil
	}
	compare := sorting.CompareColumns(build, b.Column)
	return func(i, r int) bool {
		c := compare(i, r)
		return c > 0 || c == 0 && !equal
	}
}
