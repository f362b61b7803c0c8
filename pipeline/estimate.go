package pipeline

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/source"
)

// maxDistinct is the width from which a range says nothing of how many values
// there are: it is no more than what the type can hold.
const maxDistinct = 1 << 40

// Selectivities of conditions that statistics say nothing about.
const (
	defaultSelectivity  = 0.2
	equalitySelectivity = 0.1
	notNullSelectivity  = 0.95
)

// scanStats turns a file's statistics into beliefs about a column.
func scanStats(t gpu.Type, s source.ColumnStats, rows float64) columnStats {
	c := columnStats{distinct: float64(s.Distinct), bytes: float64(t.Width())}
	if t.IsVar() && rows > 0 {
		c.bytes = float64(s.Bytes)/rows + 4
	}
	if s.HasRange && integerLike(t) && s.Min.Valid && s.Max.Valid {
		c.bound = &expr.Range{Lo: s.Min.Int, Hi: s.Max.Int}
		if c.distinct == 0 {
			c.distinct = min(rows, width(c.bound))
		}
	}
	return c
}

// integerLike says whether values of the type are integers underneath.
func integerLike(t gpu.Type) bool { return t.Kind != gpu.Invalid && !t.IsFloat() && !t.IsVar() }

// width is the number of integers in a range.
func width(r *expr.Range) float64 {
	return max(r.Hi.Float64()-r.Lo.Float64()+1, 1)
}

// union is what holds for the values of both columns together.
func (c columnStats) union(d columnStats) columnStats {
	out := columnStats{distinct: max(c.distinct, d.distinct), bytes: max(c.bytes, d.bytes)}
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

func exprStats(e *expr.Expr, in *relation) columnStats {
	if c, ok := e.IsColumn(); ok {
		return in.stats[c]
	}
	s := columnStats{bound: e.Range(), bytes: float64(e.Type().Width())}
	if e.Type().IsVar() {
		s.bytes = 16
	}
	// A function of columns has no more values than they have together.
	d := 1.0
	for _, c := range e.Columns() {
		d *= in.stats[c].distinct
	}
	if s.bound != nil && width(s.bound) < maxDistinct && (d == 0 || width(s.bound) < d) {
		d = width(s.bound)
	}
	s.distinct = d
	return s
}

func aggregateStats(a aggregate, in *relation) columnStats {
	s := columnStats{bytes: float64(a.output.Width())}
	switch a.kind {
	case gpu.Min, gpu.Max:
		s = in.stats[a.input]
	case gpu.CountAll, gpu.Count:
		s.distinct = 0
	}
	return s
}

// selectivity estimates the fraction of rows on which all conjuncts are true:
// their product, but the bounds on one column are one interval.
func selectivity(conjuncts []*expr.Expr, in *relation) float64 {
	f := 1.0
	type interval struct{ from, to float64 } // as fractions of the column's range
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
		f *= max(b.to-b.from, 1/width(in.stats[column].bound))
	}
	return f
}

// fractionBelow returns which fraction of a column's range lies below the
// constant that it is compared with by <, <=, > or >=.
func fractionBelow(c expr.Comparison, in *relation) (float64, bool) {
	bound := in.stats[c.Column].bound
	if c.Op == expr.Eq || c.Op > expr.Ge || bound == nil || len(c.Values) != 1 || !integerLike(c.Values[0].Type) {
		return 0, false
	}
	below := (c.Values[0].Int.Float64() - bound.Lo.Float64()) / width(bound)
	return min(max(below, 0), 1), true
}

func comparisonSelectivity(c expr.Comparison, in *relation) float64 {
	one := equalitySelectivity
	if st := in.stats[c.Column]; st.distinct > 0 {
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

// joinRows estimates the rows of a join. An equality keeps one pair in as many
// as the key has values; of both sides' counts the smaller is nearer the truth,
// because counts derived from ranges are too high.
func joinRows(l, r *relation, spec joinSpec) float64 {
	pairs := l.rows * r.rows
	matched := 1.0
	for i := range spec.leftKeys {
		a, b := l.stats[spec.leftKeys[i]].distinct, r.stats[spec.rightKeys[i]].distinct
		if a == 0 || b == 0 {
			a = max(a, b)
		} else {
			a = min(a, b)
		}
		if a == 0 {
			a = max(min(l.rows, r.rows), 1)
		}
		pairs /= a
		matched *= min(1, r.rows/a)
	}
	switch spec.kind {
	case gpu.Left:
		return max(pairs, l.rows)
	case gpu.Semi:
		return l.rows * matched
	case gpu.Anti:
		return l.rows * (1 - matched)
	}
	return pairs
}

// chooseBuild decides which side of a join is held in a hash table. The other
// side streams past it, so the side with fewer rows is the better one.
func chooseBuild(l, r *relation, spec joinSpec) (left bool, why string) {
	switch {
	case spec.kind != gpu.Inner:
		return false, fmt.Sprintf("a %v join streams its left side", spec.kind)
	case spec.build == "left" || spec.build == "right":
		return spec.build == "left", "the job says so"
	}
	left = l.rows < r.rows
	small, large := r.rows, l.rows
	if left {
		small, large = large, small
	}
	return left, fmt.Sprintf("about %s rows against %s", approximate(small), approximate(large))
}

// denseFactor bounds how many slots a directly indexed group table may have for
// every input row, denseSlots how many it may always have.
const (
	denseFactor = 8
	denseSlots  = 1 << 16
)

// estimateGroups estimates the rows of a group-by, and what its table may rely on.
func estimateGroups(in *relation, keys []int) (float64, gpu.GroupHint) {
	hint := gpu.GroupHint{Rows: toInt(in.rows)}
	groups := 1.0
	for _, k := range keys {
		groups *= in.stats[k].distinct
	}
	known := groups > 0
	if !known {
		groups = math.Sqrt(in.rows)
	}
	groups = min(groups, max(in.rows, 1))
	if known {
		hint.Groups = toInt(groups)
	}
	if len(keys) == 1 {
		b := in.stats[keys[0]].bound
		t := in.schema.Fields[keys[0]].Type
		if b != nil && integerLike(t) && !t.Wide && b.Lo.IsInt64() && b.Hi.IsInt64() && width(b) <= max(denseFactor*in.rows, denseSlots) {
			hint.Lo, hint.Hi, hint.Dense = b.Lo.Int64(), b.Hi.Int64(), true
		}
	}
	return groups, hint
}

func toInt(f float64) int { return int(min(math.Ceil(f), math.MaxInt32)) }

// approximate prints an estimate so that it reads as one.
func approximate(rows float64) string {
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
