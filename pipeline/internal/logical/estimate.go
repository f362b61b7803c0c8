package logical

import (
	"fmt"
	"maps"
	"math"
	"slices"

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

// fullRange is how many rows a column has for each integer of its range, from which we take
// it that it has all of them.
const fullRange = 8

// scanStats turns a file's statistics of a column into estimates.
func scanStats(t gpu.Type, s source.ColumnStats, rows float64) ColumnStats {
	c := ColumnStats{distinct: float64(s.Distinct), counted: s.Distinct > 0, Bytes: float64(t.Width())}
	if t.IsVar() && rows > 0 {
		c.Bytes = float64(s.Bytes)/rows + 4
	}
	if s.HasRange && integerLike(t) && s.Min.Valid && s.Max.Valid {
		c.bound = &expr.Range{Lo: s.Min.Int, Hi: s.Max.Int}
		if c.distinct == 0 {
			// A column of far more rows than its range has integers has nearly all of these.
			// One with as many rows has each once: it is a number that somebody has given out.
			w := width(c.bound)
			c.distinct, c.counted = min(rows, w), w == rows || w*fullRange <= rows && t.Scale == 0
		}
	}
	c.unique = c.counted && rows > 0 && c.distinct == rows
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
	if a.passesValues() {
		return in.Stats[a.Input]
	}
	return s
}

// filterSelectivity estimates the fraction of the rows of a node on which all conjuncts are
// true, and for columns that conditions compare with constants the fraction of their values
// that is left. Conditions on a table that statistics cannot answer are evaluated on a
// sample of its rows; sampled is the number of these rows.
func filterSelectivity(conjuncts []*expr.Expr, in Node) (kept float64, left map[int]float64, sampled int) {
	r := in.Rel()
	scan, ok := in.(*Scan)
	if !ok {
		kept, left = selectivity(conjuncts, r)
		return kept, left, 0
	}
	answered, others := partition(conjuncts, func(e *expr.Expr) bool { return inStatistics(e, r) })
	if len(others) > 0 {
		if f, rows, ok := scan.sample.selectivity(expr.And(others...)); ok {
			kept, left = selectivity(answered, r)
			return kept * f, left, rows
		}
	}
	kept, left = selectivity(conjuncts, r)
	return kept, left, 0
}

// inStatistics reports whether statistics tell the selectivity of a conjunct.
func inStatistics(e *expr.Expr, in *Relation) bool {
	if _, ok := e.Constant(); ok {
		return true
	}
	comparisons := expr.Comparisons(e)
	for _, c := range comparisons {
		if _, ok := fractionBelow(c, in); ok {
			continue
		}
		if c.Op != expr.Eq && c.Op != expr.In || in.Stats[c.Column].distinct == 0 {
			return false
		}
	}
	return len(comparisons) > 0
}

// selectivity estimates by statistics the fraction of rows on which all conjuncts are
// true, and for columns that conditions compare with constants the fraction of their values
// that is left. The first is the product of the selectivities, except that all bounds on one
// column are one interval.
func selectivity(conjuncts []*expr.Expr, in *Relation) (kept float64, left map[int]float64) {
	kept, left = 1, map[int]float64{}
	type interval struct{ from, to float64 } // fractions of the column's range
	bounds := map[int]interval{}
	for _, conjunct := range conjuncts {
		if v, ok := conjunct.Constant(); ok {
			if !v.Valid || v.Int.Sign() == 0 {
				return 0, nil
			}
			continue
		}
		comparisons := expr.Comparisons(conjunct)
		if len(comparisons) == 0 {
			kept *= defaultSelectivity
		}
		for _, c := range comparisons {
			below, ok := fractionBelow(c, in)
			if !ok {
				f := comparisonSelectivity(c, in)
				if kept *= f; c.Op == expr.Eq || c.Op == expr.In {
					left[c.Column] = f
				}
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
	for _, column := range slices.Sorted(maps.Keys(bounds)) {
		b := bounds[column]
		f := max(b.to-b.from, 1/width(in.Stats[column].bound))
		kept *= f
		left[column] = f
	}
	return kept, left
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

// keys returns the number of values of a column before any filter, 0 if it is unknown, and
// whether no two are equal. It may read a sample of the column.
func (c ColumnStats) keys() (distinct float64, unique bool) {
	if c.counted {
		return c.distinct, c.unique
	}
	k := c.sample.count(c.column)
	if k.distinct == 0 {
		return c.distinct, false
	}
	if c.bound != nil {
		w := width(c.bound)
		return min(k.distinct, w), k.unique && w >= k.distinct
	}
	return k.distinct, k.unique
}

// keyPair is the columns of the two sides of a join that an equality compares.
type keyPair struct{ left, right ColumnStats }

// values returns the number of values of each side of the pair, without those that filters
// of the columns rule out; 0 if they are unknown. If the values of one side alone are
// unique, they are the key of a table, and those of the other side refer to it.
func (p keyPair) values() (left, right float64) {
	left, uniqueLeft := p.left.keys()
	right, uniqueRight := p.right.keys()
	switch {
	case left == 0 || right == 0:
		left = max(left, right)
		right = left
	case uniqueLeft && !uniqueRight:
		right = min(right, left)
	case uniqueRight && !uniqueLeft:
		left = min(left, right)
	}
	return left * (1 - p.left.ruledOut), right * (1 - p.right.ruledOut)
}

// matching returns the number of pairs of key values, of which equalities keep one: the
// larger number of values of the two sides. Several columns of a table have at most as many
// values together as the table has rows.
func matching(pairs []keyPair, left, right float64) float64 {
	all, tableLeft, tableRight := 1.0, (*sample)(nil), (*sample)(nil)
	for i, p := range pairs {
		if i == 0 {
			tableLeft, tableRight = p.left.sample, p.right.sample
		}
		l, r := p.values()
		if l = max(l, r); l == 0 {
			if l = 1 / equalitySelectivity; len(pairs) == 1 {
				l = min(left, right)
			}
		}
		all *= max(l, 1)
		if p.left.sample != tableLeft {
			tableLeft = nil
		}
		if p.right.sample != tableRight {
			tableRight = nil
		}
	}
	if len(pairs) > 1 && tableLeft != nil && tableRight != nil {
		all = max(min(all, tableLeft.rows, tableRight.rows), 1)
	}
	return all
}

// matchKeys estimates the number of pairs of rows with equal keys, and the share of the left
// rows that are in one.
func matchKeys(l, r *Relation, leftKeys, rightKeys []int) (pairs, share float64) {
	var keys []keyPair
	values := 1.0 // of the right side
	for i := range leftKeys {
		p := keyPair{l.Stats[leftKeys[i]], r.Stats[rightKeys[i]]}
		keys = append(keys, p)
		_, n := p.values()
		values *= n
	}
	if values = min(values, r.Rows); values == 0 {
		values = r.Rows
	}
	all := matching(keys, l.Rows, r.Rows)
	return l.Rows * r.Rows / all, min(1, values/all)
}

// joinRows estimates the rows of a join.
func joinRows(l, r *Relation, spec JoinSpec) float64 {
	pairs, share := matchKeys(l, r, spec.LeftKeys, spec.RightKeys)
	conditions := spec.Residual
	if spec.Range != nil {
		conditions = slices.Concat(spec.Range.conditions, conditions)
	}
	kept, _ := selectivity(conditions, &Relation{Stats: slices.Concat(l.Stats, r.Stats)})
	pairs *= kept
	matched := min(l.Rows*share, pairs)
	switch spec.Kind {
	case join.Left:
		return pairs + l.Rows - matched
	case join.Right:
		return max(pairs, r.Rows)
	case join.Full:
		return max(pairs+l.Rows-matched, r.Rows)
	case join.Semi:
		return matched
	case join.Anti:
		return l.Rows - matched
	case join.Mark:
		return l.Rows
	}
	return pairs
}

// keptRows is how many times as many rows the other side must have so that a join builds
// the side that keeps its rows. Streaming that side is cheaper: it needs no notes of which
// rows had a match, and keeps their order.
const keptRows = 2

// chooseBuild decides which side of a join is held in memory. The other side streams past
// it, so the side with fewer rows is better.
func chooseBuild(l, r *Relation, spec JoinSpec) (left bool, why string) {
	switch {
	case !spec.Kind.Pairs():
		return false, fmt.Sprintf("a %v join streams its left side", spec.Kind)
	case spec.build == "left" || spec.build == "right":
		return spec.build == "left", "the job says so"
	}
	factorLeft, factorRight := 1.0, 1.0
	switch spec.Kind {
	case join.Left:
		factorLeft = keptRows
	case join.Right:
		factorRight = keptRows
	}
	if left = l.Rows*factorLeft < r.Rows*factorRight; spec.Range != nil {
		left = spec.Range.Left
	}
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
		if b != nil && integerLike(t) && !t.Wide && b.Lo.IsInt64() && b.Hi.IsInt64() &&
			width(b) <= max(denseFactor*in.Rows, denseSlots) {
			hint.Lo, hint.Hi, hint.Dense = b.Lo.Int64(), b.Hi.Int64(), true
		}
	}
	return groups, hint
}

// KeyRange returns the number of values from the least to the greatest of a single key that
// is an integer, a date or the like, or 0 if it is not known.
func KeyRange(n Node, keys []int) float64 {
	rel := n.Rel()
	if len(keys) != 1 || rel.Stats[keys[0]].bound == nil || !integerLike(rel.Schema.Fields[keys[0]].Type) {
		return 0
	}
	return width(rel.Stats[keys[0]].bound)
}

func toInt(f float64) int { return int(min(math.Ceil(f), math.MaxInt32)) }

// Approximate formats an estimate so that it reads like one.
func Approximate(rows float64) string {
	if rows < 1000 {
		return fmt.Sprintf("%.0f", math.Ceil(rows))
	}
	// Two digits and a half: 1.2k, 12k, 120k.
	v, unit := humanize.ComputeSI(rows)
	if v >= 999.5 {
		v, unit = humanize.ComputeSI(1.001 * rows)
	}
	if v < 10 {
		return fmt.Sprintf("%.1f%s", v, unit)
	}
	return fmt.Sprintf("%.0f%s", v, unit)
}
