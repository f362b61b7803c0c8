package logical

import (
	"slices"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/source"
)

// pushDown moves conditions toward the sources, where they drop rows before any other
// work.
//
// A conjunct that may fail on a row never sees a row that it would not see where it was
// written. So it moves below a node only if the node has every row of its input, with the same
// values, and if all conjuncts before it move there too. A conjunct that cannot fail moves
// past those that may.
func pushDown(n Node) Node {
	p := pushing{left: mostMoves}
	p.rewritten = remembered(func(n Node, _ func(Node) Node) Node { return p.push(n, nil) })
	return p.rewritten(n)
}

// mostMoves is the most times that a condition of a plan moves below a node. The others stay where they are then: each
// of thousands of conditions may move below thousands of nodes.
const mostMoves = 1 << 18

// pushing moves conditions. It remembers nodes to which none move.
type pushing struct {
	rewritten func(Node) Node
	left      int // moves
}

// below returns a node with all of some conjuncts over its columns applied.
func (down *pushing) below(n Node, preds []*expr.Expr) Node {
	if down.left -= len(preds); len(preds) == 0 || down.left < 0 {
		return newFilter(n.Rel().Step, down.rewritten(n), preds)
	}
	return down.push(n, preds)
}

func (down *pushing) push(n Node, preds []*expr.Expr) Node {
	r := n.Rel()
	switch n := n.(type) {
	case *Scan:
		s := *n
		for _, p := range preds {
			list := prunable(p)
			s.Prune, s.Hidden = append(s.Prune, list...),
				append(s.Hidden, slices.Repeat([]bool{p.Hidden()}, len(list))...)
		}
		return newFilter(r.Step, &s, preds)
	case *Filter:
		preds = slices.DeleteFunc(slices.Clone(preds),
			func(p *expr.Expr) bool { return slices.ContainsFunc(n.Conjuncts, p.Equal) })
		lists := [][]*expr.Expr{preds}
		in := Node(n)
		for f, ok := in.(*Filter); ok; f, ok = in.(*Filter) {
			in, lists = f.In, append(lists, f.Conjuncts)
		}
		slices.Reverse(lists)
		return down.below(in, slices.Concat(lists...))
	case *Project:
		below, above := movable(preds, func(p *expr.Expr) bool { return n.isBare(p.Columns()) })
		for i, p := range below {
			below[i] = p.Remap(n.Source)
		}
		if j, ok := n.In.(*Join); ok && j.reduced(below) == join.Full {
			return down.full(n, j, preds)
		}
		in := down.below(n.In, below)
		return newFilter(r.Step, newProject(r.Step, in, n.Exprs, n.Schema.Names(), n.tables), above)
	case *Join:
		return down.join(n, preds)
	case *Expand:
		below, above := movable(preds, func(p *expr.Expr) bool { return n.keeps(p.Columns()) })
		return newFilter(r.Step, newExpand(r.Step, down.below(n.In, below), n.Variants, n.Numbered), above)
	case *Group:
		// A condition on keys keeps or drops whole groups.
		nkeys := len(n.Keys)
		below, above := movable(preds, func(p *expr.Expr) bool {
			cols := p.Columns()
			return len(cols) > 0 && cols[len(cols)-1] < nkeys
		})
		if len(n.Always) > 0 {
			above = preds // it may drop all rows, but not the groups of no rows
		}
		for i, p := range below {
			below[i] = p.Remap(func(c int) int { return n.Keys[c] })
		}
		in := down.below(n.In, below)
		return newFilter(r.Step, n.over(in), above)
	case *Window:
		// A condition on the keys of the partitions keeps or drops whole partitions.
		below, above := movable(preds, func(p *expr.Expr) bool {
			cols := p.Columns()
			return len(cols) > 0 && !slices.ContainsFunc(cols,
				func(c int) bool { return !slices.Contains(n.Partition, c) })
		})
		in := down.below(n.In, below)
		return newFilter(r.Step, newWindow(r.Step, in, n.Partition, n.Order, n.Functions,
			n.Schema.Names()[in.Rel().Schema.Len():]), above)
	case *Sort:
		if n.Limit >= 0 || n.Offset > 0 {
			return newFilter(r.Step, newSort(r.Step, down.below(n.In, nil), n.Keys, n.Offset, n.Limit), preds)
		}
		return newSort(r.Step, down.below(n.In, preds), n.Keys, n.Offset, n.Limit)
	case *Limit:
		return newFilter(r.Step, newLimit(r.Step, down.below(n.In, nil), n.Offset, n.Count), preds)
	case *Union:
		ins := make([]Node, len(n.Ins))
		for i, in := range n.Ins {
			ins[i] = down.below(in, slices.Clone(preds))
		}
		return newUnion(r.Step, ins)
	case *Held:
		return newFilter(r.Step, newHeld(down.below(n.In, nil), n.Share), preds)
	}
	panic("logical: unknown node")
}

// join splits conditions over a join by side. Conditions over both sides of an inner
// join become part of it.
func (down *pushing) join(n *Join, preds []*expr.Expr) Node {
	nleft := n.Left.Rel().Schema.Len()
	toRight := func(c int) int { return c - nleft }
	spec := n.JoinSpec
	if kind := n.reduced(preds); kind != n.Kind {
		spec.Kind, spec.kept = kind, append(spec.kept, n.Kind)
		n = newJoin(n.Step, n.Left, n.Right, spec)
	}
	inner := n.Kind == join.Inner
	if inner {
		preds = append(slices.Clone(spec.Residual), preds...)
		spec.Residual = nil
		if j := n.equated(preds); j != nil {
			return down.below(j, nil)
		}
	}
	var left, right, above []*expr.Expr
	for _, p := range preds {
		l, r := sides(p, nleft)
		mayFail := p.MayFail()
		switch {
		case mayFail && len(above) > 0:
			above = append(above, p)
		case !r && !keepsRight(n.Kind) && (!mayFail || n.Kind == join.Left || n.Kind == join.Mark):
			left = append(left, p)
			if l {
				right = append(right, n.mirror(p)...)
			}
		case r && !l && n.Kind.Pairs() && !keepsLeft(n.Kind) && (!mayFail || n.Kind == join.Right):
			right = append(right, p.Remap(toRight))
			left = append(left, n.mirrorLeft(p.Remap(toRight))...)
		case inner && !(mayFail && l != r):
			spec.Residual = append(spec.Residual, p)
			onLeft, onRight := implied(p, nleft)
			left = append(left, onLeft...)
			right = append(right, onRight...)
		default:
			above = append(above, p)
		}
	}
	l, r := down.below(n.Left, left), down.below(n.Right, right)
	return newFilter(n.Step, newJoin(n.Step, l, r, spec), above)
}

// equated returns an inner join of all pairs under conditions as a join by the equalities
// that are among them, or nil if there are none.
func (n *Join) equated(preds []*expr.Expr) Node {
	if !n.AllPairs {
		return nil
	}
	c := &joinCondition{}
	for _, p := range preds {
		// What may fail must see only the pairs that the conditions before it leave.
		mayFail := p.MayFail()
		if x, y, _, ok := expr.Equality(p); ok {
			x, y, err := sameType(x, y)
			mayFail = err != nil || x.MayFail() || y.MayFail()
		}
		if mayFail {
			c.residual = append(c.residual, p)
		} else {
			c.add(p, n.Left.Rel().Schema.Len())
		}
	}
	if len(c.left) == 0 {
		return nil
	}
	spec := n.JoinSpec
	spec.LeftKeys, spec.RightKeys, spec.Residual, spec.AllPairs = nil, nil, nil, false
	j, err := c.build(n.Step, n.Left, n.Right, spec)
	if err != nil {
		return nil
	}
	return j
}

// full moves conditions on columns of USING below a full join. Such a column is the
// key of the side that has the row, and the keys of both sides in a pair are equal.
func (down *pushing) full(n *Project, j *Join, preds []*expr.Expr) Node {
	nleft := j.Left.Rel().Schema.Len()
	var left, right, above []*expr.Expr
	for _, p := range preds {
		cols := p.Columns()
		key := -1
		for i, l := range j.LeftKeys {
			if len(cols) == 1 && !j.NullSafe[i] && n.isKeyOf(cols[0], l, nleft+j.RightKeys[i]) {
				key = i
			}
		}
		if key < 0 || p.MayFail() && len(above) > 0 {
			above = append(above, p)
			continue
		}
		left = append(left, p.Remap(func(int) int { return j.LeftKeys[key] }))
		right = append(right, p.Remap(func(int) int { return j.RightKeys[key] }))
	}
	in := newJoin(j.Step, down.below(j.Left, left), down.below(j.Right, right), j.JoinSpec)
	return newFilter(n.Step, newProject(n.Step, in, n.Exprs, n.Schema.Names(), n.tables), above)
}

// isKeyOf reports whether a column is the first of two columns of the input, or the second
// where that is null.
func (n *Project) isKeyOf(column, first, second int) bool {
	x, y, ok := expr.Coalesced(n.Exprs[column])
	if !ok {
		return false
	}
	a, bareA := x.IsColumn()
	b, bareB := y.IsColumn()
	return bareA && bareB && a == first && b == second
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
// answer, and which cannot fail.
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
// or b on the left and x or y on the right. What may fail is left out of a, b, x and y.
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
				if only(c, nleft, isLeft) && !c.MayFail() {
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

// movable splits conjuncts into those that move below a node, which has every row of its
// input, and the others. can tells which ones the columns of the input allow to move.
func movable(preds []*expr.Expr, can func(*expr.Expr) bool) (below, above []*expr.Expr) {
	for _, p := range preds {
		if can(p) && !(p.MayFail() && len(above) > 0) {
			below = append(below, p)
		} else {
			above = append(above, p)
		}
	}
	return below, above
}
