package parquet

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// prune returns the rows of a row group for which all predicates may be true, as ranges in order.
func (f *file) prune(ctx context.Context, group int, predicates []source.Predicate) []rowRange {
	g := &f.groups[group]
	if g.rows == 0 {
		return nil
	}
	// Statistics come first, because they are in memory. Page indexes and Bloom filters
	// are read from the file.
	for _, p := range predicates {
		if f.refuted(g, p) {
			return nil
		}
	}
	for _, p := range predicates {
		if f.absent(ctx, g, p) {
			return nil
		}
	}
	ranges := []rowRange{{0, g.rows}}
	for _, p := range predicates {
		if pages, ok := f.pageRanges(ctx, g, p); ok {
			ranges = intersect(ranges, pages)
		}
	}
	return ranges
}

// refuted reports whether the statistics of a row group prove that the predicate is true
// for none of its rows.
func (f *file) refuted(g *rowGroup, p source.Predicate) bool {
	s := &g.chunks[p.Column].stats
	switch {
	case p.Op == source.IsNull:
		return s.nulls == 0
	case s.nulls == g.rows:
		return true // all values are null, and no comparison with null is true
	case p.Op == source.IsNotNull || !s.hasRange:
		return false
	}
	lo, hi, ok := f.cols[p.Column].bounds(s.min, s.max)
	return ok && excludes(p, lo, hi)
}

// excludes reports whether the comparison is true for no value in [lo, hi].
func excludes(p source.Predicate, lo, hi gpu.Scalar) bool {
	for _, v := range p.Values {
		if !v.Valid {
			continue // a comparison with null is never true
		}
		if v.Type.Kind != lo.Type.Kind {
			return false
		}
		out := false
		switch p.Op {
		case source.Eq, source.In:
			out = v.Compare(lo) < 0 || v.Compare(hi) > 0
		case source.Lt:
			out = lo.Compare(v) >= 0
		case source.Le:
			out = lo.Compare(v) > 0
		case source.Gt:
			out = hi.Compare(v) <= 0
		case source.Ge:
			out = hi.Compare(v) < 0
		}
		if !out {
			return false
		}
	}
	return true
}
