package logical

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// reduced returns the kind of an outer join below conditions. If a condition is not true of rows in
// which all columns of one side are null, it drops the unmatched rows of the other side, and the
// join need not keep them.
func reduced(n *rel.Join, preds []*expr.Expr) join.Kind {
	kind := n.Kind
	if kind != join.Left && kind != join.Right && kind != join.Full {
		return kind
	}
	rejects := func(side rel.Node) bool {
		for _, p := range preds {
			if rejectsNulls(p, side.Rel()) {
				return true
			}
		}
		return false
	}
	if rel.KeepsLeft(kind) && rejects(n.Right) { // left rows without a match have nulls on the right
		kind = map[join.Kind]join.Kind{join.Left: join.Inner, join.Full: join.Right}[kind]
	}
	if rel.KeepsRight(kind) && rejects(n.Left) {
		kind = map[join.Kind]join.Kind{join.Right: join.Inner, join.Full: join.Left}[kind]
	}
	return kind
}

// rejectsNulls reports whether a condition over the rows of a join is not true if all columns of a
// side are null. It is false if that is unknown.
func rejectsNulls(p *expr.Expr, side *rel.Relation) bool {
	if p.MayFail() {
		return false
	}
	if terms := expr.Disjuncts(p); len(terms) > 1 {
		for _, t := range terms {
			if !rejectsNulls(t, side) {
				return false
			}
		}
		return true
	}
	if v, ok := withNulls(p, side); ok {
		return !v.Valid || v.Int.Sign() == 0
	}
	x, y, nullSafe, ok := expr.Equality(p)
	if !ok || nullSafe {
		if x, y, _, ok = expr.Inequality(p); !ok {
			return false
		}
	}
	for _, e := range []*expr.Expr{x, y} {
		if v, ok := withNulls(e, side); ok && !v.Valid {
			return true
		}
	}
	return false
}

// withNulls returns the value of an expression if all columns of a side are null. It is false if the expression needs
// other columns, or none.
func withNulls(e *expr.Expr, side *rel.Relation) (v gpu.Scalar, ok bool) {
	columns := e.Columns()
	if len(columns) == 0 || !side.HasAll(columns) {
		return v, false
	}
	filled := e.Substitute(func(c rel.ID) *expr.Expr { return expr.Null(side.Field(c)) })
	program, _, err := expr.Compile(&gpu.Schema{}, filled)
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
