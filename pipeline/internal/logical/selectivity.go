package logical

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// maxDistinct is the width from which a range says nothing about the number of values, because it
// is close to the range of the type.
const maxDistinct = 1 << 40

// Selectivities of conditions for which there are no statistics.
const (
	defaultSelectivity  = 0.2
	equalitySelectivity = 0.1
	notNullSelectivity  = 0.95
)

// fullRange is the number of rows per integer of its range from which we assume that a column has
// every integer of the range.
const fullRange = 8

// integerLike reports whether values of the type are stored as integers.
func integerLike(t gpu.Type) bool { return t.Kind != gpu.Invalid && !t.IsFloat() && !t.IsVar() }

// width returns the number of integers in a range.
func width(r *expr.Range) float64 {
	return max(r.Hi.Float64()-r.Lo.Float64()+1, 1)
}

// inStatistics reports whether statistics suffice for the selectivity of a conjunct.
func inStatistics(e *expr.Expr, of statsOf) bool {
	if _, ok := e.Constant(); ok {
		return true
	}
	if terms := expr.Disjuncts(e); len(terms) > 1 {
		return !slices.ContainsFunc(terms, func(t *expr.Expr) bool {
			return slices.ContainsFunc(expr.Conjuncts(t), func(c *expr.Expr) bool { return !inStatistics(c, of) })
		})
	}
	comparisons := expr.Comparisons(e)
	for _, c := range comparisons {
		if _, ok := fractionBelow(c, of); ok {
			continue
		}
		if c.Op != expr.Eq && c.Op != expr.In || of(c.Column).distinct == 0 {
			return false
		}
	}
	return len(comparisons) > 0
}

// selectivity estimates by statistics the share of rows on which all conjuncts are true, and for
// columns that are compared with constants the share of their values that is left. The
// selectivities are multiplied, except that all bounds of a column make one interval.
func selectivity(conjuncts []*expr.Expr, of statsOf) (kept float64, left map[rel.ID]float64) {
	kept, left = 1, map[rel.ID]float64{}
	type interval struct{ from, to float64 } // fractions of the column's range
	bounds := map[rel.ID]interval{}
	for _, conjunct := range conjuncts {
		if v, ok := conjunct.Constant(); ok {
			if !v.Valid || v.Int.Sign() == 0 {
				return 0, nil
			}
			continue
		}
		if terms := expr.Disjuncts(conjunct); len(terms) > 1 {
			none := 1.0
			for _, t := range terms {
				f, _ := selectivity(expr.Conjuncts(t), of)
				none *= 1 - f
			}
			kept *= 1 - none
			continue
		}
		comparisons := expr.Comparisons(conjunct)
		if len(comparisons) == 0 {
			kept *= defaultSelectivity
		}
		for _, c := range comparisons {
			below, ok := fractionBelow(c, of)
			if !ok {
				f := comparisonSelectivity(c, of)
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
		f := max(b.to-b.from, 1/width(of(column).bound))
		kept *= f
		left[column] = f
	}
	return kept, left
}

// fractionBelow returns the part of the range of a column that is below the constant of a
// comparison with <, <=, > or >=.
func fractionBelow(c expr.Comparison, of statsOf) (float64, bool) {
	bound := of(c.Column).bound
	if c.Op == expr.Eq || c.Op > expr.Ge || bound == nil || len(c.Values) != 1 || !integerLike(c.Values[0].Type) {
		return 0, false
	}
	below := (c.Values[0].Int.Float64() - bound.Lo.Float64()) / width(bound)
	return min(max(below, 0), 1), true
}

func comparisonSelectivity(c expr.Comparison, of statsOf) float64 {
	one := equalitySelectivity
	if st := of(c.Column); st.distinct > 0 {
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

// keys returns the number of values of a column before any filter (0 means unknown), and whether no
// two are equal. It may read a sample of the column.
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

// keyPair holds the columns that an equality of a join compares.
type keyPair struct{ left, right ColumnStats }

// values returns the number of values of each side of the pair that are in the range of both, without
// those that filters of the columns exclude; 0 means unknown. If only one side is unique, it is the key
// of a table, and the other side refers to it. ofLeft and ofRight are the shares of the values of each
// side that are in the range of both.
func (p keyPair) values() (left, right, ofLeft, ofRight float64) {
	left, uniqueLeft := p.left.keys()
	right, uniqueRight := p.right.keys()
	ofLeft, ofRight = 1, 1
	if l, r := p.left.bound, p.right.bound; l != nil && r != nil {
		both := max(min(l.Hi.Float64(), r.Hi.Float64())-max(l.Lo.Float64(), r.Lo.Float64())+1, 1)
		ofLeft, ofRight = both/width(l), both/width(r)
		left, right = left*ofLeft, right*ofRight
	}
	switch {
	case left == 0 || right == 0:
		left = max(left, right)
		right = left
	case uniqueLeft && !uniqueRight:
		right = min(right, left)
	case uniqueRight && !uniqueLeft:
		left = min(left, right)
	}
	return left * (1 - p.left.ruledOut), right * (1 - p.right.ruledOut), ofLeft, ofRight
}

// matching returns the factor by which equalities reduce the pairs of rows: for each pair of
// columns the larger number of values. Several columns of one table have together at most as many
// values as the table has rows.
func matching(pairs []keyPair, left, right float64) float64 {
	all, tableLeft, tableRight := 1.0, (*sample)(nil), (*sample)(nil)
	for i, p := range pairs {
		if i == 0 {
			tableLeft, tableRight = p.left.sample, p.right.sample
		}
		l, r, ofLeft, ofRight := p.values()
		if l = max(l, r); l == 0 {
			if l = 1 / equalitySelectivity; len(pairs) == 1 {
				l = min(left, right)
			}
		}
		all *= max(l, 1) / (ofLeft * ofRight)
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
