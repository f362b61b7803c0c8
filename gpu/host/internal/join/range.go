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
	begin := finder(build, lower, lower != nil && lower.Strict)
	end := finder(build, upper, upper != nil && !upper.Strict)
	dead, err := codec.NullRows(l, bounds, nil, rows)
	defer dead.Release()
	var m spans
	if err == nil {
		m, err = newSpans(l, rows)
	}
	if err == nil {
		err = cores.For(rows, probeGrain, func(from, to int) error {
			for r := from; r < to; r++ {
				first, last := 0, 0
				if dead.V == nil || dead.V[r/64]>>(r%64)&1 == 0 {
					if begin != nil {
						first = begin(0, keys, r)
					}
					if last = keys; end != nil {
						last = end(first, keys, r)
					}
				}
				m.first.V[r], m.count.V[r] = int32(first), int32(last-first)
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

// finder returns a function that finds the bound of probe row r among the build rows [from, to), which have no null:
// the first row that is not before it or, with after, the first row after it. It returns nil if there is no bound.
func finder(build gpu.Column, b *gpu.Bound, after bool) func(from, to, r int) int {
	if b == nil {
		return nil
	}
	bound := b.Column
	build.Valid, bound.Valid = nil, nil // rows with a null bound are not searched
	return sorting.Finder(gpu.SortKey{Column: build}, bound, after)
}
