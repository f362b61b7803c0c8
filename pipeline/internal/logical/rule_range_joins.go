package logical

import (
	"math"
	"slices"
	"strings"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// joinRanges turns joins that compare all pairs of rows into joins by a range, where their
// conditions have one.
func joinRanges(e *Estimator, n rel.Node, again func(rel.Node) rel.Node) rel.Node {
	n = rel.WithInputs(n, again)
	j, ok := n.(*rel.Join)
	if !ok || !j.AllPairs || j.Algorithm != "" {
		return n
	}
	var best *interval
	least := math.Inf(1)
	first := e.Build(j).Side == rel.LeftSide
	for _, left := range []bool{first, !first} {
		if left != first && (!j.Kind.Pairs() || j.Build.Side != rel.NoSide) {
			continue
		}
		if i := intervalOf(j, left); i != nil {
			if cost := e.rangeCost(j, i); cost < least {
				best, least = i, cost
			}
		}
	}
	if best == nil {
		return n
	}
	return joinRange(j, best)
}

// interval holds the bounds that expressions of one side set to a key of the other side.
type interval struct {
	left         bool // the key is on the left side
	lower, upper *inequality
}

// inequality is the condition that a key is below or above a bound.
type inequality struct {
	key, bound    *expr.Expr
	upper, strict bool
	condition     int // its position among the residual conditions
}

// list returns the inequalities that there are.
func (i *interval) list() (list []*inequality) {
	for _, q := range []*inequality{i.lower, i.upper} {
		if q != nil {
			list = append(list, q)
		}
	}
	return list
}

// key returns what the interval bounds.
func (i *interval) key() *expr.Expr { return i.list()[0].key }

func (i *interval) String() string {
	var text strings.Builder
	operator := func(strict bool) string {
		if strict {
			return " < "
		}
		return " <= "
	}
	if q := i.lower; q != nil {
		text.WriteString(q.bound.String() + operator(q.strict))
	}
	text.WriteString(i.key().String())
	if q := i.upper; q != nil {
		text.WriteString(operator(q.strict) + q.bound.String())
	}
	return text.String()
}

// intervalOf returns the conditions of a join that bound one key of a side, those of the key
// with the most bounds. It returns nil if there are none.
func intervalOf(n *rel.Join, left bool) (best *interval) {
	for at := range n.Residual {
		q := inequalityOf(n, at, left)
		if q == nil {
			continue
		}
		if i := boundsOf(n, q.key, left); i != nil && (best == nil || len(i.list()) > len(best.list())) {
			best = i
		}
	}
	return best
}

// boundsOf returns the first bounds of a key, nil if there are none. Keys and bounds are computed
// for all rows of their sides, before residual conditions. So an expression that may fail is no key
// or bound after a condition that stays residual.
func boundsOf(n *rel.Join, key *expr.Expr, left bool) *interval {
	i, all := &interval{left: left}, true
	for at := range n.Residual {
		q := inequalityOf(n, at, left)
		if q == nil || !q.key.Equal(key) || !all && (q.key.MayFail() || q.bound.MayFail()) {
			all = false
			continue
		}
		side := &i.lower
		if q.upper {
			side = &i.upper
		}
		if *side != nil {
			all = false
			continue
		}
		*side = q
	}
	if len(i.list()) == 0 {
		return nil
	}
	return i
}

// inequalityOf returns a residual condition as a bound that one side sets to a key of the other
// side, nil if it is none.
func inequalityOf(n *rel.Join, at int, left bool) *inequality {
	x, y, op, ok := expr.Inequality(n.Residual[at])
	if !ok {
		return nil
	}
	q := &inequality{upper: op == expr.Lt || op == expr.Le, strict: op == expr.Lt || op == expr.Gt, condition: at}
	switch {
	case only(x, n.Left, left) && only(y, n.Left, !left):
	case only(y, n.Left, left) && only(x, n.Left, !left):
		x, y, q.upper = y, x, !q.upper
	default:
		return nil
	}
	var err error
	if q.key, q.bound, err = sameType(x, y); err != nil {
		return nil
	}
	return q
}

// split returns the residual conditions of a join that the interval stands for, and the others.
func (i *interval) split(n *rel.Join) (taken, others []*expr.Expr) {
	for at, p := range n.Residual {
		if slices.ContainsFunc(i.list(), func(q *inequality) bool { return q.condition == at }) {
			taken = append(taken, p)
		} else {
			others = append(others, p)
		}
	}
	return taken, others
}

// sortCost is the time to sort a row, divided by the time to compare a pair of rows.
const sortCost = 16

// rangeCost estimates the work of a join by an interval, in pairs that are compared.
func (e *Estimator) rangeCost(n *rel.Join, i *interval) float64 {
	built := n.Right
	if i.left {
		built = n.Left
	}
	taken, _ := i.split(n)
	return e.Rows(built)*sortCost + e.pairs(n, taken)
}

// pairs estimates the pairs of rows on which conditions are true.
func (e *Estimator) pairs(n *rel.Join, conditions []*expr.Expr) float64 {
	kept, _ := selectivity(conditions, e.sides(n))
	return e.Rows(n.Left) * e.Rows(n.Right) * kept
}

// Compared estimates the pairs of rows that the join compares one by one. Without an equality these
// are all pairs. With a range these are the pairs that the binary searches meet, and, if there are
// other conditions, the pairs in the range.
func (e *Estimator) Compared(n *rel.Join) float64 {
	switch {
	case n.AllPairs:
		return e.pairs(n, nil)
	case n.Range == nil:
		return 0
	}
	probe, build, _, _ := e.sidesOf(n)
	pairs := e.Rows(probe) * math.Log2(e.Rows(build)+1) * float64(len(n.Range.Conditions))
	if len(n.Residual) > 0 {
		pairs += e.pairs(n, n.Range.Conditions)
	}
	return pairs
}

// joinRange returns a join of all pairs as one by an interval. Keys and bounds become
// columns.
func joinRange(n *rel.Join, i *interval) rel.Node {
	var keys, bounds []*expr.Expr
	for _, q := range i.list() {
		keys, bounds = []*expr.Expr{q.key}, append(bounds, q.bound)
	}
	ofLeft, ofRight := bounds, keys
	if i.left {
		ofLeft, ofRight = keys, bounds
	}
	l, key := rel.Extend(n.Left, ofLeft, nil)
	r, at := rel.Extend(n.Right, ofRight, nil)
	if !i.left {
		key, at = at, key
	}
	g := &rel.Range{Left: i.left, Key: key[0], Lower: rel.None, Upper: rel.None, Text: i.String()}
	if q := i.lower; q != nil {
		g.Lower, g.LowerStrict, at = at[0], q.strict, at[1:]
	}
	if q := i.upper; q != nil {
		g.Upper, g.UpperStrict = at[0], q.strict
	}
	spec := n.JoinSpec
	g.Conditions, spec.Residual = i.split(n)
	spec.Range, spec.AllPairs = g, false
	spec.LeftKeys, spec.RightKeys, spec.NullSafe = nil, nil, nil
	return rel.NewJoin(n.Origin, l, r, spec)
}
