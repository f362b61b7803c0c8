package logical

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/source"
)

// maxDistinct is the width from which a range no longer tells how many values there are,
// because it is close to the range of the type.
const maxDistinct = 1 << 40

// Selectivities of conditions for which there are no statistics.
const (
	defaultSelectivity  = 0.2
	equalitySelectivity = 0.1
	notNullSelectivity  = 0.95
)

// scanStats turns a file's statistics of a column into estimates.
func scanStats(t gpu.Type, s source.ColumnStats, rows float64) ColumnStats {
	c := ColumnStats{distinct: float64(s.Distinct), Bytes: float64(t.Width())}
	if t.IsVar() && rows > 0 {
		c.Bytes = float64(s.Bytes)/rows + 4
	}
	if s.HasRange && integerLike(t) && s.Min.Valid && s.Max.Valid {
		c.bound = &expr.Range{Lo: s.Min.Int, Hi: s.Max.Int}
		if c.distinct == 0 {
			c.distinct = min(rows, width(c.bound))
		}
	}
	return c
}

// integerLike reports whether values of the type are stored as integers.
func integerLike(t gpu.Type) bool { return t.Kind != gpu.Invalid && !t.IsFloat() && !t.IsVar() }

// width returns the number of integers in a range.
func width(r *expr.Range) float64 {
	return max(r.Hi.Float64()-r.Lo.Float64()+1, 1)
}

// union returns the statistics of the values of both columns together.
func (c ColumnStats) union(d ColumnStats) ColumnStats {
	out := ColumnStats{distinct: max(c.distinct, d.distinct), Bytes: max(c.Bytes, d.Bytes)}
	if c.bound != nil && d.bound != nil {
		r := *c.bound
		if d.bound.Lo.Less(r.Lo) {
			r.Lo = d.bound.Lo
		}
		if r.Hi.Less(d.bound.Hi) {
			r.Hi = d.bound.Hi
		}
		out.bound = &r
	}
	return out
}

func exprStats(e *expr.Expr, in *Relation) ColumnStats {
	if c, ok := e.IsColumn(); ok {
		return in.Stats[c]
	}
	s := ColumnStats{bound: e.Range(), Bytes: float64(e.Type().Width())}
	if e.Type().IsVar() {
		s.Bytes = 16
	}
	// A function of columns has at most as many values as the columns together.
	d := 1.0
	for _, c := range e.Columns() {
		d *= in.Stats[c].distinct
	}
	if s.bound != nil && width(s.bound) < maxDistinct && (d == 0 || width(s.bound) < d) {
		d = width(s.bound)
	}
	s.distinct = d
	return s
}

func aggregateStats(a Aggregate, in *Relation) ColumnStats {
	s := ColumnStats{Bytes: float64(a.Output.Width())}
	switch a.Kind {
	case gpu.Min, gpu.Max:
		s = in.Stats[a.Input]
	case gpu.CountAll, gpu.Count:
		s.distinct = 0
	}
	return s
}

// selectivity estimates the fraction of rows on which all conjuncts are true. It is the
// product of their selectivities, except that all bounds on one column are one interval.
func selectivity(conjuncts []*expr.Expr, in *Relation) float64 {
	f := 1.0
	type interval struct{ from, to float64 } // fractions of the column's range
	bounds := map[int]interval{}
	for _, conjunct := range conjuncts {
		if v, ok := conjunct.Constant(); ok {
			if !v.Valid || v.Int.Sign() == 0 {
				return 0
			}
			continue
		}
		comparisons := expr.Comparisons(conjunct)
		if len(comparisons) == 0 {
			f *= defaultSelectivity
		}
		for _, c := range comparisons {
			below, ok := fractionBelow(c, in)
			if !ok {
				f *= comparisonSelectivity(c, in)
				continue
			}
			b, ok := bounds[c.Column]
			if !ok {
				b.to = 1
			}
			if c.Op == expr.Gt || c.Op == expr.Ge {
				b.from = max(b.from, below)
			} else {
				b.to = min(b.to, below)
			}
			bounds[c.Column] = b
		}
	}
	for column, b := range bounds {
		f *= max(b.to-b.from, 1/width(in.Stats[column].bound))
	}
	return f
}

// fractionBelow returns the fraction of a column's range below the constant with which <,
// <=, > or >= compares it.
func fractionBelow(c expr.Comparison, in *Relation) (float64, bool) {
	bound := in.Stats[c.Column].bound
	if c.Op == expr.Eq || c.Op > expr.Ge || bound == nil || len(c.Values) != 1 || !integerLike(c.Values[0].Type) {
		return 0, false
	}
	below := (c.Values[0].Int.Float64() - bound.Lo.Float64()) / width(bound)
	return min(max(below, 0), 1), true
}

func comparisonSelectivity(c expr.Comparison, in *Relation) float64 {
	one := equalitySelectivity
	if st := in.Stats[c.Column]; st.distinct > 0 {
		one = 1 / st.distinct
	}
	switch c.Op {
	case expr.Eq:
		return one
	case expr.In:
		return min(1, one*float64(len(c.Values)))
	case expr.IsNull:
		return 1 - notNullSelectivity
	case expr.IsNotNull:
		return notNullSelectivity
	}
	return defaultSelectivity
}

// joinRows estimates the rows of a join. An equality keeps one of as many pairs as the
// key has values. The two sides have different numbers of values, and the smaller is
// used: numbers that come from ranges are too high.
func joinRows(l, r *Relation, spec JoinSpec) float64 {
	pairs := l.Rows * r.Rows
	matched := 1.0
	for i := range spec.LeftKeys {
		a, b := l.Stats[spec.LeftKeys[i]].distinct, r.Stats[spec.RightKeys[i]].distinct
		if a == 0 || b == 0 {
			a = max(a, b)
		} else {
			a = min(a, b)
		}
		if a == 0 {
			a = max(min(l.Rows, r.Rows), 1)
		}
		pairs /= a
		matched *= min(1, r.Rows/a)
	}
	switch spec.Kind {
	case join.Left:
		return max(pairs, l.Rows)
	case join.Semi:
		return l.Rows * matched
	case join.Anti:
		return l.Rows * (1 - matched)
	}
	return pairs
}

// chooseBuild decides which side of a join is held in a hash table. The other side
// streams past it, so the side with fewer rows is better.
func chooseBuild(l, r *Relation, spec JoinSpec) (left bool, why string) {
	switch {
	case spec.Written == "right":
		return false, "a right join streams its right side, as a left join with the sides exchanged"
	case spec.Written == "full" && spec.Kind == join.Left:
		return false, "the first part of a full join streams its left side"
	case spec.Written == "full":
		return false, "the second part of a full join streams the right side again, for its rows without a match"
	case spec.Kind != join.Inner:
		return false, fmt.Sprintf("a %v join streams its left side", spec.Kind)
	case spec.build == "left" || spec.build == "right":
		return spec.build == "left", "the job says so"
	}
	left = l.Rows < r.Rows
	small, large := r.Rows, l.Rows
	if left {
		small, large = large, small
	}
	return left, fmt.Sprintf("about %s rows against %s", Approximate(small), Approximate(large))
}

// denseFactor bounds the slots of a directly indexed group table for every input row.
// denseSlots are always allowed.
const (
	denseFactor = 8
	denseSlots  = 1 << 16
)

// estimateGroups estimates the rows of a group-by, and returns the hint for its table. Keys
// whose number of values is unknown make at least as many groups as the others, and as
// many as the root of the rows.
func estimateGroups(in *Relation, keys []int) (float64, gpu.GroupHint) {
	hint := gpu.GroupHint{Rows: toInt(in.Rows)}
	groups, known := 1.0, true
	for _, k := range keys {
		if d := in.Stats[k].distinct; d > 0 {
			groups *= d
		} else {
			known = false
		}
	}
	if !known {
		groups = max(groups, math.Sqrt(in.Rows))
	}
	groups = min(groups, max(in.Rows, 1))
	if known {
		hint.Groups = toInt(groups)
	}
	if len(keys) == 1 {
		b := in.Stats[keys[0]].bound
		t := in.Schema.Fields[keys[0]].Type
		if b != nil && integerLike(t) && !t.Wide && b.Lo.IsInt64() && b.Hi.IsInt64() && width(b) <= max(denseFactor*in.Rows, denseSlots) {
			hint.Lo, hint.Hi, hint.Dense = b.Lo.Int64(), b.Hi.Int64(), true
		}
	}
	return groups, hint
}

func toInt(f float64) int { return int(min(math.Ceil(f), math.MaxInt32)) }

// Approximate formats an estimate so that it reads like one.
func Approximate(rows float64) string {
	if rows < 1000 {
		return fmt.Sprintf("%.0f", math.Ceil(rows))
	}
	// Two digits and a half: 1.2k, 12k, 120k.
	v, unit := humanize.ComputeSI(rows)
	if v < 10 {
		return fmt.Sprintf("%.1f%s", v, unit)
	}
	return fmt.Sprintf("%.0f%s", v, unit)
}
