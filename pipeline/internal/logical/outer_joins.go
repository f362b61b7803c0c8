package logical

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
)

// reduced returns the kind of an outer join whose rows must meet conditions. A condition that is not true of rows whose
// columns of one side are null drops the rows of the other side without a match, so these need not be kept.
func (n *Join) reduced(preds []*expr.Expr) join.Kind {
	kind, nleft := n.Kind, n.Left.Rel().Schema.Len()
	if kind != join.Left && kind != join.Right && kind != join.Full {
		return kind
	}
	rejects := func(left bool) bool {
		for _, p := range preds {
			if n.rejectsNulls(p, func(c int) bool { return c < nleft == left }) {
				return true
			}
		}
		return false
	}
	if keepsLeft(kind) && rejects(false) { // left rows without a match have nulls on the right
		kind = map[join.Kind]join.Kind{join.Left: join.Inner, join.Full: join.Right}[kind]
	}
	if keepsRight(kind) && rejects(true) {
		kind = map[join.Kind]join.Kind{join.Right: join.Inner, join.Full: join.Left}[kind]
	}
	return kind
}

// rejectsNulls reports whether a condition over the rows of the join is not true if all columns of a side are null. It
// is false if nobody knows.
func (n *Join) rejectsNulls(p *expr.Expr, side func(int) bool) bool {
	if p.MayFail() {
		return false
	}
	if terms := expr.Disjuncts(p); len(terms) > 1 {
		for _, t := range terms {
			if !n.rejectsNulls(t, side) {
				return false
			}
		}
		return true
	}
	if v, ok := n.withNulls(p, side); ok {
		return !v.Valid || v.Int.Sign() == 0
	}
	x, y, nullSafe, ok := expr.Equality(p)
	if !ok || nullSafe {
		if x, y, _, ok = expr.Inequality(p); !ok {
			return false
		}
	}
	for _, e := range []*expr.Expr{x, y} {
		if v, ok := n.withNulls(e, side); ok && !v.Valid {
			return true
		}
	}
	return false
}

// withNulls returns the value of an expression if all columns of a side are null. It is false if the expression needs
// other columns, or none.
func (n *Join) withNulls(e *expr.Expr, side func(int) bool) (v gpu.Scalar, ok bool) {
	fields := n.Schema.Fields
	nulls := make([]*expr.Expr, len(fields))
	columns := e.Columns()
	for _, c := range columns {
		if !side(c) {
			return v, false
		}
		nulls[c] = expr.Null(fields[c])
	}
	if len(columns) == 0 {
		return v, false
	}
	program, _, err := expr.Compile(&gpu.Schema{}, e.Substitute(nulls))
	if err != nil {
		return v, false
	}
	lease := host.HeapLease("nulls", 0)
	out, err := host.Evaluate(lease, program, nil, 1)
	if err != nil {
		return v, false
	}
	defer out[0].Release()
	return out[0].ScalarAt(0), true
}
