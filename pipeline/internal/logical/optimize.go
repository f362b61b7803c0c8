package logical

import (
	"slices"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/source"
)

// Optimize rewrites a logical plan into one that gives the same rows faster. Unused
// columns are dropped later, when nodes become operators.
func Optimize(n Node) Node {
	return sinkLimits(pushDown(n, nil))
}

// pushDown moves conditions toward the sources, where they drop rows before any other
// work. preds are conjuncts over n's columns that must hold for its rows. The result is n
// with all of them applied.
func pushDown(n Node, preds []*expr.Expr) Node {
	r := n.Rel()
	switch n := n.(type) {
	case *Scan:
		s := *n
		for _, p := range preds {
			s.Prune = append(s.Prune, prunable(p)...)
		}
		return newFilter(r.Step, &s, preds)
	case *Filter:
		return pushDown(n.In, append(slices.Clone(n.Conjuncts), preds...))
	case *Project:
		below, above := partition(preds, func(p *expr.Expr) bool { return n.isBare(p.Columns()) })
		for i, p := range below {
			below[i] = p.Remap(n.Source)
		}
		in := pushDown(n.In, below)
		return newFilter(r.Step, newProject(r.Step, in, n.Exprs, n.Schema.Names(), n.tables), above)
	case *Join:
		return n.pushDown(preds)
	case *Expand:
		below, above := partition(preds, func(p *expr.Expr) bool { return n.keeps(p.Columns()) })
		return newFilter(r.Step, newExpand(r.Step, pushDown(n.In, below), n.Variants, n.Numbered), above)
	case *Group:
		// A condition on keys keeps or drops whole groups.
		nkeys := len(n.Keys)
		below, above := partition(preds, func(p *expr.Expr) bool {
			cols := p.Columns()
			return len(cols) > 0 && cols[len(cols)-1] < nkeys
		})
		if len(n.Always) > 0 {
			above = preds // it may drop all rows, but not the groups of no rows
		}
		for i, p := range below {
			below[i] = p.Remap(func(c int) int { return n.Keys[c] })
		}
		in := pushDown(n.In, below)
		return newFilter(r.Step, newGroup(r.Step, in, n.Keys, n.Aggregates, n.Schema.Names(), n.Always), above)
	case *Sort:
		if n.Limit >= 0 || n.Offset > 0 {
			return newFilter(r.Step, newSort(r.Step, pushDown(n.In, nil), n.Keys, n.Offset, n.Limit), preds)
		}
		return newSort(r.Step, pushDown(n.In, preds), n.Keys, n.Offset, n.Limit)
	case *Limit:
		return newFilter(r.Step, newLimit(r.Step, pushDown(n.In, nil), n.Offset, n.Count), preds)
	case *Union:
		ins := make([]Node, len(n.Ins))
		for i, in := range n.Ins {
			ins[i] = pushDown(in, slices.Clone(preds))
		}
		return newUnion(r.Step, ins)
	}
	panic("logical: unknown node")
}

// pushDown splits conditions over a join by side.
func (n *Join) pushDown(preds []*expr.Expr) Node {
	nleft := n.Left.Rel().Schema.Len()
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
		case !l && n.Kind == join.Inner:
			right = append(right, p.Remap(toRight))
			left = append(left, n.mirrorLeft(p.Remap(toRight))...)
		default:
			above = append(above, p)
			if n.Kind == join.Inner {
				onLeft, onRight := implied(p, nleft)
				left = append(left, onLeft...)
				right = append(right, onRight...)
			}
		}
	}
	l, r := pushDown(n.Left, left), pushDown(n.Right, right)
	return newFilter(n.Step, newJoin(n.Step, l, r, n.JoinSpec), above)
}

// mirror returns the condition on the right keys that follows from a condition on the
// left keys. Rows of the right side for which it does not hold match only dropped rows.
func (n *Join) mirror(p *expr.Expr) []*expr.Expr {
	if n.Kind == join.Anti {
		// Only left rows that are dropped look for these rows. But nothing is gained
		// after the condition has thinned the left side.
		return nil
	}
	return translate(p, n.LeftKeys, n.RightKeys, n.NullSafe)
}

func (n *Join) mirrorLeft(p *expr.Expr) []*expr.Expr {
	return translate(p, n.RightKeys, n.LeftKeys, n.NullSafe)
}

// translate rewrites a condition over key columns of one side to those of the other side.
// It rewrites only comparisons of a single column with constants, which statistics can
// answer.
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

// implied derives from a condition over both sides a condition on each side alone. (a and
// x) or (b and y), with a and b over the left side and x and y over the right, implies a
// or b on the left and x or y on the right.
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

// keeps reports whether the given columns are in every variant those of the input.
func (n *Expand) keeps(cols []int) bool {
	if slices.ContainsFunc(cols, func(c int) bool { return c >= n.In.Rel().Schema.Len() }) {
		return false
	}
	return !slices.ContainsFunc(n.Variants, func(nulls []int) bool {
		return slices.ContainsFunc(cols, func(c int) bool { return slices.Contains(nulls, c) })
	})
}

// isBare reports whether the given columns of a projection are all columns of its input.
func (n *Project) isBare(cols []int) bool {
	for _, c := range cols {
		if _, ok := n.Exprs[c].IsColumn(); !ok {
			return false
		}
	}
	return true
}

// Source returns the input column of a bare column of a projection.
func (n *Project) Source(c int) int {
	in, _ := n.Exprs[c].IsColumn()
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

// sinkLimits moves limits below projections, and merges a limit over a sort into a top-k.
func sinkLimits(n Node) Node {
	r := n.Rel()
	switch n := n.(type) {
	case *Filter:
		return newFilter(r.Step, sinkLimits(n.In), n.Conjuncts)
	case *Project:
		return newProject(r.Step, sinkLimits(n.In), n.Exprs, n.Schema.Names(), n.tables)
	case *Join:
		return newJoin(r.Step, sinkLimits(n.Left), sinkLimits(n.Right), n.JoinSpec)
	case *Expand:
		return newExpand(r.Step, sinkLimits(n.In), n.Variants, n.Numbered)
	case *Group:
		return newGroup(r.Step, sinkLimits(n.In), n.Keys, n.Aggregates, n.Schema.Names(), n.Always)
	case *Sort:
		return newSort(r.Step, sinkLimits(n.In), n.Keys, n.Offset, n.Limit)
	case *Union:
		ins := make([]Node, len(n.Ins))
		for i, in := range n.Ins {
			ins[i] = sinkLimits(in)
		}
		return newUnion(r.Step, ins)
	case *Limit:
		switch in := n.In.(type) {
		case *Project:
			p := in.Rel()
			return newProject(p.Step, sinkLimits(newLimit(r.Step, in.In, n.Offset, n.Count)), in.Exprs, in.Schema.Names(), in.tables)
		case *Sort:
			if in.Limit < 0 && in.Offset == 0 {
				return newSort(in.Step, sinkLimits(in.In), in.Keys, n.Offset, n.Count)
			}
		}
		return newLimit(r.Step, sinkLimits(n.In), n.Offset, n.Count)
	}
	return n
}
