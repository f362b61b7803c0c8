package pipeline

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/source"
)

// optimize rewrites a logical plan into one that gives the same rows faster.
// Columns that nobody needs are left out later, where nodes become operators.
func optimize(n node) node {
	return sinkLimits(pushDown(n, nil))
}

// pushDown moves conditions toward the sources, where they drop rows before
// anything else is done to them. preds are conjuncts over n's columns that must
// hold for its rows; the result is n with all of them applied.
func pushDown(n node, preds []*expr.Expr) node {
	r := n.rel()
	switch n := n.(type) {
	case *scanNode:
		s := *n
		for _, p := range preds {
			s.prune = append(s.prune, prunable(p)...)
		}
		return newFilter(r.step, &s, preds)
	case *filterNode:
		return pushDown(n.in, append(slices.Clone(n.conjuncts), preds...))
	case *projectNode:
		below, above := partition(preds, func(p *expr.Expr) bool { return n.isBare(p.Columns()) })
		for i, p := range below {
			below[i] = p.Remap(n.source)
		}
		in := pushDown(n.in, below)
		return newFilter(r.step, newProject(r.step, in, n.exprs, n.schema.Names(), n.quals), above)
	case *joinNode:
		return n.pushDown(preds)
	case *groupNode:
		// A condition on keys keeps or drops whole groups.
		nkeys := len(n.keys)
		below, above := partition(preds, func(p *expr.Expr) bool {
			cols := p.Columns()
			return len(cols) > 0 && cols[len(cols)-1] < nkeys
		})
		for i, p := range below {
			below[i] = p.Remap(func(c int) int { return n.keys[c] })
		}
		in := pushDown(n.in, below)
		return newFilter(r.step, newGroup(r.step, in, n.keys, n.aggregates, n.schema.Names()), above)
	case *sortNode:
		if n.limit >= 0 || n.offset > 0 {
			return newFilter(r.step, newSort(r.step, pushDown(n.in, nil), n.keys, n.offset, n.limit), preds)
		}
		return newSort(r.step, pushDown(n.in, preds), n.keys, n.offset, n.limit)
	case *limitNode:
		return newFilter(r.step, newLimit(r.step, pushDown(n.in, nil), n.offset, n.count), preds)
	case *unionNode:
		ins := make([]node, len(n.ins))
		for i, in := range n.ins {
			ins[i] = pushDown(in, slices.Clone(preds))
		}
		return newUnion(r.step, ins)
	}
	panic("pipeline: unknown node")
}

// pushDown splits conditions over a join by side.
func (n *joinNode) pushDown(preds []*expr.Expr) node {
	nleft := n.left.rel().schema.Len()
	toRight := func(c int) int { return c - nleft }
	var left, right, above []*expr.Expr
	for _, p := range preds {
		l, r := sides(p, nleft)
		switch {
		case !r:
			left = append(left, p)
			if l {
				right = append(right, n.mirror(p)...)
			}
		case !l && n.kind == gpu.Inner:
			right = append(right, p.Remap(toRight))
			left = append(left, n.mirrorLeft(p.Remap(toRight))...)
		default:
			above = append(above, p)
			if n.kind == gpu.Inner {
				onLeft, onRight := implied(p, nleft)
				left = append(left, onLeft...)
				right = append(right, onRight...)
			}
		}
	}
	l, r := pushDown(n.left, left), pushDown(n.right, right)
	return newFilter(n.step, newJoin(n.step, l, r, n.joinSpec), above)
}

// mirror returns what a condition on the left keys says of the right keys: the
// rows of the right side for which it does not hold match nothing that is kept.
func (n *joinNode) mirror(p *expr.Expr) []*expr.Expr {
	if n.kind == gpu.Anti {
		// They are looked for only by left rows that are dropped anyway, but
		// nothing is gained where the condition has thinned the left side.
		return nil
	}
	return translate(p, n.leftKeys, n.rightKeys, n.nullSafe)
}

func (n *joinNode) mirrorLeft(p *expr.Expr) []*expr.Expr {
	return translate(p, n.rightKeys, n.leftKeys, n.nullSafe)
}

// translate rewrites a condition over key columns of one side to the other's.
// A single column in a comparison with constants is rewritten only: it is what
// statistics can answer.
func translate(p *expr.Expr, from, to []int, nullSafe []bool) []*expr.Expr {
	if len(expr.Comparisons(p)) == 0 {
		return nil
	}
	for i, k := range from {
		if cols := p.Columns(); len(cols) == 1 && cols[0] == k && !nullSafe[i] {
			return []*expr.Expr{p.Remap(func(int) int { return to[i] })}
		}
	}
	return nil
}

// implied derives from a condition over both sides what it says of each alone:
// (a and x) or (b and y), with a and b over the left side and x and y over the
// right, implies a or b on the left and x or y on the right.
func implied(p *expr.Expr, nleft int) (left, right []*expr.Expr) {
	terms := expr.Disjuncts(p)
	if len(terms) < 2 {
		return nil, nil
	}
	side := func(isLeft bool) []*expr.Expr {
		var ors []*expr.Expr
		for _, t := range terms {
			var ands []*expr.Expr
			for _, c := range expr.Conjuncts(t) {
				if only(c, nleft, isLeft) {
					ands = append(ands, c)
				}
			}
			if len(ands) == 0 {
				return nil
			}
			ors = append(ors, expr.And(ands...))
		}
		return []*expr.Expr{expr.Or(ors...)}
	}
	left, right = side(true), side(false)
	for i, e := range right {
		right[i] = e.Remap(func(c int) int { return c - nleft })
	}
	return left, right
}

// isBare says whether all of some columns of a projection are columns of its input.
func (n *projectNode) isBare(cols []int) bool {
	for _, c := range cols {
		if _, ok := n.exprs[c].IsColumn(); !ok {
			return false
		}
	}
	return true
}

// source returns the input column that a bare column of a projection is.
func (n *projectNode) source(c int) int {
	in, _ := n.exprs[c].IsColumn()
	return in
}

var sourceOps = map[expr.ComparisonOp]source.Op{
	expr.Eq: source.Eq, expr.Lt: source.Lt, expr.Le: source.Le, expr.Gt: source.Gt, expr.Ge: source.Ge,
	expr.In: source.In, expr.IsNull: source.IsNull, expr.IsNotNull: source.IsNotNull,
}

// prunable returns the form of a condition that statistics can answer.
func prunable(p *expr.Expr) []source.Predicate {
	var out []source.Predicate
	for _, c := range expr.Comparisons(p) {
		out = append(out, source.Predicate{Column: c.Column, Op: sourceOps[c.Op], Values: c.Values})
	}
	return out
}

// partition splits a list by a condition.
func partition(list []*expr.Expr, cond func(*expr.Expr) bool) (yes, no []*expr.Expr) {
	for _, e := range list {
		if cond(e) {
			yes = append(yes, e)
		} else {
			no = append(no, e)
		}
	}
	return
}

// sinkLimits moves limits below projections and merges a limit over a sort into
// a top-k.
func sinkLimits(n node) node {
	r := n.rel()
	switch n := n.(type) {
	case *filterNode:
		return newFilter(r.step, sinkLimits(n.in), n.conjuncts)
	case *projectNode:
		return newProject(r.step, sinkLimits(n.in), n.exprs, n.schema.Names(), n.quals)
	case *joinNode:
		return newJoin(r.step, sinkLimits(n.left), sinkLimits(n.right), n.joinSpec)
	case *groupNode:
		return newGroup(r.step, sinkLimits(n.in), n.keys, n.aggregates, n.schema.Names())
	case *sortNode:
		return newSort(r.step, sinkLimits(n.in), n.keys, n.offset, n.limit)
	case *unionNode:
		ins := make([]node, len(n.ins))
		for i, in := range n.ins {
			ins[i] = sinkLimits(in)
		}
		return newUnion(r.step, ins)
	case *limitNode:
		switch in := n.in.(type) {
		case *projectNode:
			p := in.rel()
			return newProject(p.step, sinkLimits(newLimit(r.step, in.in, n.offset, n.count)), in.exprs, in.schema.Names(), in.quals)
		case *sortNode:
			if in.limit < 0 && in.offset == 0 {
				return newSort(in.step, sinkLimits(in.in), in.keys, n.offset, n.count)
			}
		}
		return newLimit(r.step, sinkLimits(n.in), n.offset, n.count)
	}
	return n
}
