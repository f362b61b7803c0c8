package logical

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// asof is an ASOF join: each left row with the nearest right row whose time is not after that of the left row (for >=),
// among those of equal keys.
//
// The right rows of a key are numbered in the order of their times. In the order of the times of both sides, the number
// of right rows so far is that of the nearest one. So a window over the rows of both sides finds it, and a join by the
// keys and the number fetches it: the cost is that of two sorts and a join, whatever the distances of the rows.
type asof struct {
	*queryBinder
	at          *syntax.JoinedTable
	left, right *Relation
	kind        join.Kind
	keys        joinCondition
	op          string     // of left and right time
	time, other *expr.Expr // of the left and the right side
}

// asofJoin splits the conditions of an ASOF join.
func (b *queryBinder) asofJoin(t *syntax.JoinedTable, left, right *Relation, conditions []*expr.Expr,
	using int) (*Relation, error) {
	a := &asof{queryBinder: b, at: t, left: left, right: right, kind: sqlJoins[t.Kind]}
	if a.kind != join.Inner && a.kind != join.Left {
		return nil, mistake(t, "an ASOF join is INNER or LEFT, found %s", t.Kind)
	}
	for i, e := range conditions {
		l, r, op, ok := expr.Inequality(e)
		if using > 0 && i == using-1 { // the last column of USING is the time
			l, r, _, _ = expr.Equality(e)
			op, ok = expr.Ge, true
		}
		if !ok {
			a.keys.add(e, left.node, right.node)
			continue
		}
		name := map[expr.ComparisonOp]string{expr.Lt: "<", expr.Le: "<=", expr.Gt: ">", expr.Ge: ">="}[op]
		if only(l, left.node, false) && only(r, left.node, true) {
			l, r = r, l
			name = map[string]string{"<": ">", "<=": ">=", ">": "<", ">=": "<="}[name]
		}
		if a.time != nil || !only(l, left.node, true) || !only(r, left.node, false) {
			return nil, mistake(t, "an ASOF join has one inequality of a left and a right value, as in l.t >= r.t")
		}
		var err error
		if a.time, a.other, err = sameType(l, r); err != nil {
			return nil, mistake(t, "%v", err)
		}
		a.op = name
	}
	if a.time == nil {
		return nil, mistake(t, "an ASOF join needs an inequality of a left and a right value, as in l.t >= r.t")
	}
	if len(a.keys.onLeft)+len(a.keys.onRight)+len(a.keys.residual) > 0 {
		return nil, mistake(t, "besides its inequality, an ASOF join has equalities of left and right values only")
	}
	return a.join()
}

// join makes the nodes.
func (a *asof) join() (*Relation, error) {
	descending := a.op[0] == '<'
	for i := range a.keys.left {
		var err error
		if a.keys.left[i], a.keys.right[i], err = sameType(a.keys.left[i], a.keys.right[i]); err != nil {
			return nil, mistake(a.at, "%v", err)
		}
	}
	there, err := a.expression(&syntax.WordLiteral{Base: a.at.Base}, "%s IS NOT NULL", a.other)
	if err != nil {
		return nil, err
	}
	right := rel.NewFilter(a.here(), a.right.node, []*expr.Expr{there})
	right, ids := rel.Extend(right, append(slices.Clone(a.keys.right), a.other), nil)
	rightKeys, rightTime := ids[:len(ids)-1], ids[len(ids)-1]
	right, number := ranked(a.here(), right, distinctIDs(rightKeys),
		[]rel.SortKey{{Column: rightTime, Descending: descending}})
	if worthHolding(right) {
		right = rel.NewMaterialized(right, &rel.Share{Step: a.name})
	}
	counted, columns, keys, time, so := a.window(right, rightKeys, rightTime, descending)
	c := joinCondition{}
	for i := range rightKeys {
		c.left, c.right = append(c.left, counted.Rel().Expr(keys[i])), append(c.right, right.Rel().Expr(rightKeys[i]))
		c.nullSafe = append(c.nullSafe, a.keys.nullSafe[i])
	}
	known, err := a.expression(&syntax.WordLiteral{Base: a.at.Base}, "CASE WHEN %s IS NOT NULL THEN %s END",
		counted.Rel().Expr(time), counted.Rel().Expr(so))
	if err != nil {
		return nil, err
	}
	x, y, err := sameType(known, right.Rel().Expr(number))
	if err != nil {
		return nil, err
	}
	c.left, c.right, c.nullSafe = append(c.left, x), append(c.right, y), append(c.nullSafe, false)
	n, err := c.build(a.here(), counted, right, rel.JoinSpec{Kind: a.kind})
	if err != nil {
		return nil, err
	}
	out := &Relation{node: n, unreadable: slices.Concat(a.left.unreadable, a.right.unreadable)}
	for i, col := range a.left.columns {
		out.columns = append(out.columns, column{columns[i], col.tables})
	}
	out.columns = append(out.columns, a.right.columns...)
	return out, nil
}

// window returns the left rows with the number of right rows so far, so; and their columns, keys and time under new
// IDs.
func (a *asof) window(right rel.Node, rightKeys []rel.ID, rightTime rel.ID, descending bool) (n rel.Node,
	columns, keys []rel.ID, time, so rel.ID) {
	left, ids := rel.Extend(a.left.node, append(slices.Clone(a.keys.left), a.time), nil)
	small := func(v int64) *expr.Expr { return expr.Literal(gpu.IntScalar(gpu.Of(gpu.Int8), v)) }
	// At equal times the right rows come first if they match.
	first := int64(0)
	if len(a.op) == 1 {
		first = 2
	}
	left, marks := rel.Extend(left, []*expr.Expr{small(1)}, []string{"side"})
	from := slices.Concat(a.left.ids(), ids, marks)
	var exprs []*expr.Expr
	var names []rel.ID
	for i := range a.left.columns {
		f := a.left.field(i)
		f.Nullable = true
		exprs = append(exprs, expr.Null(f))
	}
	for _, k := range append(slices.Clone(rightKeys), rightTime) {
		exprs = append(exprs, right.Rel().Expr(k))
	}
	exprs = append(exprs, small(first))
	for i, e := range exprs {
		f := left.Rel().Field(from[i])
		f.Nullable = f.Nullable || e.Nullable()
		names = append(names, a.md.Add(rel.Column{Field: f}))
	}
	other := rel.NewProject(a.here(), right, names, exprs)
	made := make([]rel.ID, len(names))
	for i, id := range names {
		made[i] = a.md.Add(a.md.Column(id))
	}
	u := rel.NewUnion(a.here(), []rel.Node{left, other}, [][]rel.ID{from, names}, made)
	width := len(a.left.columns)
	keys, time = made[width:len(made)-2], made[len(made)-2]
	side := made[len(made)-1]
	w := &windows{stepBinder: a.stepBinder, in: &Relation{node: u}}
	w.calls = []expr.WindowCall{runningCount(u, side)}
	w.uses = []int{0}
	call := &w.calls[0]
	for _, k := range keys {
		call.Partition = append(call.Partition, u.Expr(k))
	}
	call.Order = []expr.WindowKey{{Expr: u.Expr(time), Descending: descending}, {Expr: u.Expr(side)}}
	counted := w.node()
	so = counted.scope.IDs[0]
	mine := computeOf("%s = 1", counted.node, side)
	return rel.NewFilter(a.here(), counted.node, []*expr.Expr{mine}), made[:width], keys, time, so
}

// runningCount counts the right rows up to each row.
func runningCount(in rel.Node, side rel.ID) expr.WindowCall {
	one := computeOf("CASE WHEN %s <> 1 THEN 1 END", in, side)
	return expr.WindowCall{Kind: window.Aggregate, Aggregate: gpu.Count, Value: one, Output: gpu.Of(gpu.Int64),
		Frame: expr.WindowFrame{Unit: window.Rows, From: expr.WindowBound{Kind: window.UnboundedPreceding},
			To: expr.WindowBound{Kind: window.CurrentRow}}}
}
