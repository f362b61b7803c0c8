package logical

import (
	"fmt"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// asofJoin makes an ASOF join: each left row with the nearest right row whose time is not after that of the left row
// (for >=), among those of equal keys. The conditions are one inequality, of the times, equalities of keys, and
// conditions on one side. The last column of USING is the time.
func (b *queryBinder) asofJoin(t *syntax.JoinedTable, left, right *Relation, conditions []*expr.Expr,
	using int) (*rel.Join, error) {
	var c joinCondition
	var times [2]*expr.Expr
	spec := rel.JoinSpec{Kind: sqlJoins[t.Kind], Fixed: true}
	for i, e := range conditions {
		l, r, op, ok := expr.Inequality(e)
		if using > 0 && i == using-1 {
			l, r, _, _ = expr.Equality(e)
			op, ok = expr.Ge, true
		}
		if ok && only(l, left.node, false) && only(r, left.node, true) {
			l, r = r, l
			op = map[expr.ComparisonOp]expr.ComparisonOp{expr.Lt: expr.Gt, expr.Le: expr.Ge, expr.Gt: expr.Lt,
				expr.Ge: expr.Le}[op]
		}
		if !ok || !only(l, left.node, true) || !only(r, left.node, false) {
			c.add(e, left.node, right.node)
			continue
		}
		if spec.AsOf != nil {
			return nil, mistake(t, "an ASOF join has one inequality of a left and a right value, as in l.t >= r.t")
		}
		var err error
		if times[0], times[1], err = sameType(l, r); err != nil {
			return nil, mistake(t, "%v", err)
		}
		spec.AsOf = &rel.AsOf{Forward: op == expr.Lt || op == expr.Le, Strict: op == expr.Lt || op == expr.Gt,
			Text: fmt.Sprintf("%v %s %v", l, map[expr.ComparisonOp]string{expr.Lt: "<", expr.Le: "<=", expr.Gt: ">",
				expr.Ge: ">="}[op], r)}
	}
	if spec.AsOf == nil {
		return nil, mistake(t, "an ASOF join needs an inequality of a left and a right value, as in l.t >= r.t")
	}
	if len(c.residual) > 0 {
		return nil, mistake(t, "besides its inequality, an ASOF join has equalities of left and right values, and "+
			"conditions on one table")
	}
	for i, side := range []struct {
		keeps bool
		on    *[]*expr.Expr
	}{{rel.KeepsLeft(spec.Kind), &c.onLeft}, {rel.KeepsRight(spec.Kind), &c.onRight}} {
		if !side.keeps || len(*side.on) == 0 {
			continue // conditions drop rows
		}
		var err error // a row that is kept has no match without a time
		if times[i], err = b.expression(&syntax.WordLiteral{Base: t.Base}, "CASE WHEN %s THEN %s END",
			expr.And(*side.on...), times[i]); err != nil {
			return nil, mistake(t, "%v", err)
		}
		*side.on = nil
	}
	l, id := rel.Extend(left.node, times[:1], nil)
	r, other := rel.Extend(right.node, times[1:], nil)
	spec.AsOf.Left, spec.AsOf.Right = id[0], other[0]
	n, err := c.build(b.here(), l, r, spec)
	if err != nil {
		return nil, mistake(t, "%v", err)
	}
	return n, nil
}
