package logical

import (
	"slices"

	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/source"
)

// pushDown moves conditions toward the sources, where they drop rows before any other work.
//
// A conjunct that may fail must not see a row that it would not see where it was written. So it
// moves below a node only if the node has every row of its input with the same values, and only if
// all conjuncts before it move there too. A conjunct that cannot fail moves past those that may.
func pushDown(n rel.Node) rel.Node {
	p := pushing{left: mostMoves}
	p.rewritten = rel.Remembered(func(n rel.Node, _ func(rel.Node) rel.Node) rel.Node { return p.push(n, nil) })
	return p.intoShared(p.rewritten(n))
}

// mostMoves is the number of moves of a condition below a node after which the other conditions of
// a plan stay where they are: each of thousands of conditions may move below thousands of nodes.
const mostMoves = 1 << 18

// pushing moves conditions. It remembers the nodes to which no condition moves.
type pushing struct {
	rewritten func(rel.Node) rel.Node
	left      int // moves
}

// below returns a node with conditions on its columns applied. A node of which no row passes is not computed.
func (down *pushing) below(n rel.Node, preds []*expr.Expr) rel.Node {
	if slices.ContainsFunc(preds, never) {
		return rel.NewValues(n.Rel().Metadata, n.Rel().Origin, n.Rel().Columns, nil)
	}
	if down.left -= len(preds); len(preds) == 0 || down.left < 0 {
		return rel.NewFilter(n.Rel().Origin, down.rewritten(n), preds)
	}
	return down.push(n, preds)
}

func (down *pushing) push(n rel.Node, preds []*expr.Expr) rel.Node {
	origin := n.Rel().Origin
	switch n := n.(type) {
	case *rel.Scan:
		s := *n
		s.Prune, s.Hidden = nil, nil // the conditions include those of an earlier pass
		for _, p := range preds {
			list := prunable(n, p)
			s.Prune, s.Hidden = append(s.Prune, list...),
				append(s.Hidden, slices.Repeat([]bool{p.Hidden()}, len(list))...)
		}
		return rel.NewFilter(origin, &s, preds)
	case *rel.Filter:
		preds = slices.DeleteFunc(slices.Clone(preds),
			func(p *expr.Expr) bool { return slices.ContainsFunc(n.Conjuncts, p.Equal) })
		lists := [][]*expr.Expr{preds}
		in := rel.Node(n)
		for f, ok := in.(*rel.Filter); ok; f, ok = in.(*rel.Filter) {
			in, lists = f.In, append(lists, factored(f.Conjuncts))
		}
		slices.Reverse(lists)
		return down.below(in, slices.Concat(lists...))
	case *rel.Project:
		below, above := movable(preds, func(p *expr.Expr) bool { return isPlain(n, p.Columns()) })
		for i, p := range below {
			below[i] = p.Substitute(n.Expr).Folded(host.Fold)
		}
		below = factored(below)
		if j, ok := n.In.(*rel.Join); ok && reduced(j, below) == join.Full {
			return down.full(n, j, preds)
		}
		return rel.NewFilter(origin, rel.NewProject(origin, down.below(n.In, below), n.Columns, n.Exprs), above)
	case *rel.Join:
		return down.join(n, preds)
	case *rel.Group:
		// A condition on keys keeps or drops whole groups.
		below, above := movable(preds, func(p *expr.Expr) bool { return amongst(p, n.Keys) })
		if len(n.Always) > 0 {
			above = preds // it may drop all rows, but not the groups of no rows
		}
		return down.through(n, below, above)
	case *rel.Window:
		// A condition on the keys of the partitions keeps or drops whole partitions.
		below, above := movable(preds, func(p *expr.Expr) bool { return amongst(p, n.Partition) })
		return down.through(n, below, above)
	case *rel.Unnest:
		below, above := movable(preds, func(p *expr.Expr) bool { return n.In.Rel().HasAll(p.Columns()) })
		return down.through(n, below, above)
	case *rel.Expand:
		below, above := movable(preds, func(p *expr.Expr) bool { return n.In.Rel().HasAll(p.Columns()) })
		return down.through(n, below, above)
	case *rel.Sort:
		if n.Limit >= 0 || n.Offset > 0 {
			return down.through(n, nil, preds)
		}
		return down.through(n, preds, nil)
	case *rel.Union:
		ins := make([]rel.Node, len(n.Ins))
		for i, in := range n.Ins {
			var below []*expr.Expr
			for _, p := range preds {
				below = append(below, p.Remap(func(c rel.ID) rel.ID { return n.From[i][slices.Index(n.Columns, c)] }))
			}
			ins[i] = down.below(in, below)
		}
		return rel.NewUnion(origin, ins, n.From, n.Columns)
	case *rel.Limit, *rel.Materialized, *rel.Values, *rel.SetOperation, *rel.Apply, *rel.Recursive, *rel.Working,
		*rel.Outputs:
		return down.through(n, nil, preds)
	}
	panic("logical: unknown node")
}

// never reports whether a condition is true of no row.
func never(p *expr.Expr) bool {
	v, ok := p.Constant()
	return ok && (!v.Valid || v.Int.Sign() == 0)
}

// factored takes out of each OR the conditions that all its terms have: they may be equalities for a join.
func factored(list []*expr.Expr) (out []*expr.Expr) {
	for _, e := range list {
		out = append(out, expr.Factor(e)...)
	}
	return out
}

// through puts conditions below and above a node with one input.
func (down *pushing) through(n rel.Node, below, above []*expr.Expr) rel.Node {
	n = rel.WithInputs(n, func(in rel.Node) rel.Node { return down.below(in, below) })
	return rel.NewFilter(n.Rel().Origin, n, above)
}

// amongst reports whether an expression has columns, and all of them are in a list.
func amongst(p *expr.Expr, list []rel.ID) bool {
	columns := p.Columns()
	return len(columns) > 0 && !slices.ContainsFunc(columns, func(c rel.ID) bool { return !slices.Contains(list, c) })
}

// join splits conditions over a join by side. Conditions over both sides of an inner
// join become part of it.
func (down *pushing) join(n *rel.Join, preds []*expr.Expr) rel.Node {
	spec := n.JoinSpec
	if kind := reduced(n, preds); kind != n.Kind {
		spec.Kind, spec.Kept = kind, append(spec.Kept, n.Kind)
		n = rel.NewJoin(n.Origin, n.Left, n.Right, spec)
	}
	inner := n.Kind == join.Inner
	if inner {
		preds = append(factored(spec.Residual), preds...)
		spec.Residual = nil
		if j := equated(n, preds); j != nil {
			return down.below(j, nil)
		}
	}
	var left, right, above []*expr.Expr
	for _, p := range preds {
		l, r := sides(p, n.Left)
		mayFail := p.MayFail()
		switch {
		case mayFail && len(above) > 0:
			above = append(above, p)
		case !r && !rel.KeepsRight(n.Kind) && (!mayFail || n.Kind == join.Left || n.Kind == join.Mark):
			left = append(left, p)
			if l && !spec.Unknown() {
				// Right rows that match only dropped rows are dropped too. Rows with a null in a key that may be
				// unknown are no match, but count.
				right = append(right, translate(p, n.LeftKeys, n.RightKeys)...)
			}
		case n.AsOf != nil && !amongst(p, n.RightKeys):
			above = append(above, p) // without the right rows that it drops, others would be the nearest
		case r && !l && n.Kind.Pairs() && !rel.KeepsLeft(n.Kind) && (!mayFail || n.Kind == join.Right):
			right = append(right, p)
			left = append(left, translate(p, n.RightKeys, n.LeftKeys)...)
		case inner && !(mayFail && l != r):
			spec.Residual = append(spec.Residual, p)
			left = append(left, implied(p, func(c *expr.Expr) bool { return only(c, n.Left, true) })...)
			right = append(right, implied(p, func(c *expr.Expr) bool { return only(c, n.Left, false) })...)
		default:
			above = append(above, p)
		}
	}
	l, r := down.below(n.Left, left), down.below(n.Right, right)
	return rel.NewFilter(n.Origin, rel.NewJoin(n.Origin, l, r, spec), above)
}

// equated returns an inner join of all pairs as a join by the equalities among its conditions, or
// nil if there are none.
func equated(n *rel.Join, preds []*expr.Expr) rel.Node {
	if !n.AllPairs {
		return nil
	}
	c := &joinCondition{}
	for _, p := range preds {
		// A condition that may fail must only see the pairs that pass the conditions before it.
		mayFail := p.MayFail()
		if x, y, _, ok := expr.Equality(p); ok {
			x, y, err := sameType(x, y)
			mayFail = err != nil || x.MayFail() || y.MayFail()
		}
		if mayFail {
			c.residual = append(c.residual, p)
		} else {
			c.add(p, n.Left, n.Right)
		}
	}
	if len(c.left) == 0 {
		return nil
	}
	spec := n.JoinSpec
	spec.LeftKeys, spec.RightKeys, spec.Residual, spec.AllPairs = nil, nil, nil, false
	j, err := c.build(n.Origin, n.Left, n.Right, spec)
	if err != nil {
		return nil
	}
	return j
}

// full moves conditions on columns of USING below a full join. Such a column is the key of the side
// that has the row. In a pair, the keys of both sides are equal.
func (down *pushing) full(n *rel.Project, j *rel.Join, preds []*expr.Expr) rel.Node {
	var left, right, above []*expr.Expr
	for _, p := range preds {
		cols := p.Columns()
		key := -1
		for i, l := range j.LeftKeys {
			if len(cols) == 1 && !j.NullSafe[i] && isKeyOf(n.Expr(cols[0]), l, j.RightKeys[i]) {
				key = i
			}
		}
		if key < 0 || p.MayFail() && len(above) > 0 {
			above = append(above, p)
			continue
		}
		left = append(left, p.Remap(func(rel.ID) rel.ID { return j.LeftKeys[key] }))
		right = append(right, p.Remap(func(rel.ID) rel.ID { return j.RightKeys[key] }))
	}
	in := rel.NewJoin(j.Origin, down.below(j.Left, left), down.below(j.Right, right), j.JoinSpec)
	return rel.NewFilter(n.Origin, rel.NewProject(n.Origin, in, n.Columns, n.Exprs), above)
}

// isKeyOf reports whether an expression is the first of two columns, or the second where that is null.
func isKeyOf(e *expr.Expr, first, second rel.ID) bool {
	x, y, ok := expr.Coalesced(e)
	if !ok {
		return false
	}
	a, bareA := x.IsColumn()
	b, bareB := y.IsColumn()
	return bareA && bareB && a == first && b == second
}

// translate rewrites a condition over key columns of one side to those of the other side.
// It rewrites only comparisons of a single column with constants, which statistics can
// answer, and which cannot fail. Keys that match have one value, also if null equals null.
func translate(p *expr.Expr, from, to []rel.ID) []*expr.Expr {
	if len(expr.Comparisons(p)) == 0 {
		return nil
	}
	for i, k := range from {
		if cols := p.Columns(); len(cols) == 1 && cols[0] == k {
			return []*expr.Expr{p.Remap(func(rel.ID) rel.ID { return to[i] })}
		}
	}
	return nil
}

// implied derives from a condition one over fewer columns: (a and x) or (b and y) implies a or b, and x or y. can tells
// which parts it may have. Parts that may fail are left out.
func implied(p *expr.Expr, can func(*expr.Expr) bool) []*expr.Expr {
	terms := expr.Disjuncts(p)
	if len(terms) < 2 {
		return nil
	}
	var ors []*expr.Expr
	for _, t := range terms {
		var ands []*expr.Expr
		for _, c := range expr.Conjuncts(t) {
			if can(c) && !c.MayFail() {
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

// isPlain reports whether the given columns of a projection are columns of its input or constants.
func isPlain(n *rel.Project, ids []rel.ID) bool {
	return !slices.ContainsFunc(ids, func(c rel.ID) bool {
		_, bare := n.Source(c)
		_, constant := n.Expr(c).Constant()
		return !bare && !constant
	})
}

var sourceOps = map[expr.ComparisonOp]source.Op{
	expr.Eq: source.Eq, expr.Lt: source.Lt, expr.Le: source.Le, expr.Gt: source.Gt, expr.Ge: source.Ge,
	expr.In: source.In, expr.IsNull: source.IsNull, expr.IsNotNull: source.IsNotNull,
}

// prunable returns the form of a condition on a table that statistics can answer.
func prunable(n *rel.Scan, p *expr.Expr) []source.Predicate {
	var out []source.Predicate
	for _, c := range expr.Comparisons(p) {
		out = append(out, source.Predicate{Column: n.At(c.Column), Op: sourceOps[c.Op], Values: c.Values})
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

// movable splits conjuncts into those that move below a node that has every row of its input, and
// the others. can reports whether the columns of a conjunct allow it to move. What one of the others implies moves too.
func movable(preds []*expr.Expr, can func(*expr.Expr) bool) (below, above []*expr.Expr) {
	for _, p := range preds {
		if can(p) && !(p.MayFail() && len(above) > 0) {
			below = append(below, p)
		} else {
			above, below = append(above, p), append(below, implied(p, can)...)
		}
	}
	return below, above
}
