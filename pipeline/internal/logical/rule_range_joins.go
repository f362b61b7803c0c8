package logical

import (
	"math"
	"slices"
	"strings"

	"github.com/gstream/gstream/operators/expr"
)

// Range is the condition of a join without an equality that a key of one side is between
// bounds of the other side. The side of the key is built.
type Range struct {
	Left                     bool // the key is on the left side
	Key                      int  // column of its side
	Lower, Upper             int  // columns of the other side; -1 for none
	LowerStrict, UpperStrict bool // the key does not equal the bound
	conditions               []*expr.Expr
	text                     string // such as "lo <= x < hi"
}

// joinRanges turns joins that compare all pairs of rows into joins by a range, where their
// conditions have one.
func joinRanges(n Node, again func(Node) Node) Node {
	n = withInputs(n, again)
	j, ok := n.(*Join)
	if !ok || !j.AllPairs || j.Algorithm != "" {
		return n
	}
	var best *interval
	least := math.Inf(1)
	for _, left := range []bool{j.BuildLeft, !j.BuildLeft} {
		if left != j.BuildLeft && (!j.Kind.Pairs() || j.build == "left" || j.build == "right") {
			continue
		}
		if i := j.interval(left); i != nil {
			if cost := j.rangeCost(i); cost < least {
				best, least = i, cost
			}
		}
	}
	if best == nil {
		return n
	}
	return j.joinRange(best)
}

// interval is the bounds of a key of one side by expressions of the other side, all over the
// columns of both.
type interval struct {
	left         bool // the key is on the left side
	lower, upper *inequality
}

// inequality is the condition that a key is below or above a bound.
type inequality struct {
	key, bound    *expr.Expr
	upper, strict bool
	condition     int // its place among the residual conditions
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

// interval returns the conditions of a join that bound one key of a side, those of the key
// with the most bounds. It returns nil if there are none.
func (n *Join) interval(left bool) (best *interval) {
	for at := range n.Residual {
		q := n.inequality(at, left)
		if q == nil {
			continue
		}
		if i := n.bounds(q.key, left); i != nil && (best == nil || len(i.list()) > len(best.list())) {
			best = i
		}
	}
	return best
}

// bounds returns the first bounds of a key, nil if there are none. Keys and bounds are
// computed for all rows of their sides. So one that may fail cannot be taken after a
// condition that is not: it would see rows that this condition keeps from it.
func (n *Join) bounds(key *expr.Expr, left bool) *interval {
	i, all := &interval{left: left}, true
	for at := range n.Residual {
		q := n.inequality(at, left)
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

// inequality returns a residual condition as a bound of a key of one side by the other side,
// or nil.
func (n *Join) inequality(at int, left bool) *inequality {
	x, y, op, ok := expr.Inequality(n.Residual[at])
	if !ok {
		return nil
	}
	nleft := n.Left.Rel().Schema.Len()
	q := &inequality{upper: op == expr.Lt || op == expr.Le, strict: op == expr.Lt || op == expr.Gt, condition: at}
	switch {
	case only(x, nleft, left) && only(y, nleft, !left):
	case only(y, nleft, left) && only(x, nleft, !left):
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

// conditions returns the residual conditions that an interval stands for, and the others.
func (n *Join) conditions(i *interval) (taken, others []*expr.Expr) {
	for at, p := range n.Residual {
		if slices.ContainsFunc(i.list(), func(q *inequality) bool { return q.condition == at }) {
			taken = append(taken, p)
		} else {
			others = append(others, p)
		}
	}
	return taken, others
}

// sortCost is how many times as long it takes to sort a row as to compare a pair of rows.
const sortCost = 16

// rangeCost estimates the work of a join by an interval, in pairs that are compared.
func (n *Join) rangeCost(i *interval) float64 {
	built := n.Right.Rel().Rows
	if i.left {
		built = n.Left.Rel().Rows
	}
	taken, _ := n.conditions(i)
	return built*sortCost + n.pairs(taken)
}

// pairs estimates the pairs of rows on which conditions are true.
func (n *Join) pairs(conditions []*expr.Expr) float64 {
	l, r := n.Left.Rel(), n.Right.Rel()
	kept, _ := selectivity(conditions, &Relation{Stats: slices.Concat(l.Stats, r.Stats)})
	return l.Rows * r.Rows * kept
}

// Compared estimates the pairs of rows that the join compares one by one: without an
// equality all of them, and by a range those that a binary search meets and, if there are
// other conditions, those in the range.
func (n *Join) Compared() float64 {
	switch {
	case n.AllPairs:
		return n.pairs(nil)
	case n.Range == nil:
		return 0
	}
	probe, build := n.Left.Rel().Rows, n.Right.Rel().Rows
	if n.BuildLeft {
		probe, build = build, probe
	}
	pairs := probe * math.Log2(build+1) * float64(len(n.Range.conditions))
	if len(n.Residual) > 0 {
		pairs += n.pairs(n.Range.conditions)
	}
	return pairs
}

// joinRange returns a join of all pairs as one by an interval. Keys and bounds become
// columns.
func (n *Join) joinRange(i *interval) Node {
	nleft := n.Left.Rel().Schema.Len()
	var keys, bounds []*expr.Expr
	for _, q := range i.list() {
		keys, bounds = []*expr.Expr{q.key}, append(bounds, q.bound)
	}
	ofLeft, ofRight := bounds, keys
	if i.left {
		ofLeft, ofRight = keys, bounds
	}
	for k, e := range ofRight {
		ofRight[k] = e.Remap(func(c int) int { return c - nleft })
	}
	l, key := extend(n.Left, ofLeft)
	r, at := extend(n.Right, ofRight)
	if !i.left {
		key, at = at, key
	}
	wide := l.Rel().Schema.Len()
	widened := func(list []*expr.Expr) (out []*expr.Expr) {
		for _, e := range list {
			out = append(out, e.Remap(func(c int) int {
				if c >= nleft {
					c += wide - nleft
				}
				return c
			}))
		}
		return out
	}
	g := &Range{Left: i.left, Key: key[0], Lower: -1, Upper: -1, text: i.String()}
	if q := i.lower; q != nil {
		g.Lower, g.LowerStrict, at = at[0], q.strict, at[1:]
	}
	if q := i.upper; q != nil {
		g.Upper, g.UpperStrict = at[0], q.strict
	}
	taken, others := n.conditions(i)
	g.conditions = widened(taken)
	spec := n.JoinSpec
	spec.Range, spec.Residual, spec.AllPairs = g, widened(others), false
	spec.LeftKeys, spec.RightKeys, spec.NullSafe = nil, nil, nil
	j := newJoin(n.Step, l, r, spec)
	if j.Schema.Len() == n.Schema.Len() {
		return j
	}
	var cols []int
	for c := range n.Schema.Len() {
		if c >= nleft {
			c += wide - nleft
		}
		cols = append(cols, c)
	}
	return pick(j, cols)
}

// String describes the range.
func (g *Range) String() string { return "range: " + g.text }
