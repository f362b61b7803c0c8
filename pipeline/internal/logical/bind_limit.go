package logical

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// limited applies LIMIT and OFFSET.
func (b *queryBinder) limited(q *syntax.Query, r *Relation, c *catalog) (*Relation, error) {
	if q.Percent || hasSubquery(q.Limit) || hasSubquery(q.Offset) {
		return b.numbered(q, r, c)
	}
	count, offset := int64(-1), int64(0)
	var err error
	if q.Limit != nil {
		if count, err = b.number(q.Limit, "LIMIT"); err != nil {
			return nil, err
		}
	}
	if q.Offset != nil {
		if offset, err = b.number(q.Offset, "OFFSET"); err != nil {
			return nil, err
		}
		offset = max(offset, 0)
	}
	if count < 0 && offset == 0 {
		return r, nil
	}
	if count < 0 {
		count = 1<<62 - 1
	}
	return r.over(rel.NewLimit(b.here(), r.node, offset, count)), nil
}

func hasSubquery(n syntax.Node) bool { return n != nil && has[*syntax.Subquery](n) }

// number evaluates a constant whole number that is not negative.
func (b *queryBinder) number(n syntax.Node, what string) (int64, error) {
	e, err := b.constant(n)
	if err != nil {
		return 0, err
	}
	v, _ := e.Constant()
	if !v.Valid {
		return -1, nil
	}
	if e, err = expr.Cast(e, gpu.Of(gpu.Int64), host.Fold); err != nil {
		return 0, mistake(n, "%s: %v", what, err)
	}
	if v, _ = e.Constant(); v.Int.Int64() < 0 {
		return 0, mistake(n, "%s cannot be negative", what)
	}
	return v.Int.Int64(), nil
}

// numbered applies a LIMIT and an OFFSET that only the run knows: a share of the rows, or the value of a subquery. The
// rows get their number in the order of the query, by which they are also sorted afterwards.
func (b *queryBinder) numbered(q *syntax.Query, r *Relation, c *catalog) (*Relation, error) {
	in, order := r.node, orderOf(r.node)
	if order != nil {
		in = in.(*rel.Sort).In
	}
	functions := []window.Function{{Kind: window.RowNumber, Value: -1, Offset: -1, Default: -1,
		Output: gpu.Of(gpu.Int64)}}
	names := []string{"row_number"}
	if q.Percent {
		functions = append(functions, window.Function{Kind: window.Aggregate, Aggregate: gpu.CountAll, Value: -1,
			Offset: -1, Default: -1, Output: gpu.Of(gpu.Int64),
			Frame: window.Frame{Unit: window.Rows, To: window.Bound{Kind: window.UnboundedFollowing}}})
		names = append(names, "rows")
	}
	var ids []rel.ID
	for i, f := range functions {
		ids = append(ids, b.md.Add(rel.Column{Field: gpu.Field{Name: names[i], Type: f.Output}}))
	}
	l := &level{node: rel.NewWindow(b.here(), in, nil, order, functions, ids), free: map[rel.ID]bool{}, catalog: c}
	number := l.node.Rel().Expr(ids[0])
	var conditions []*expr.Expr
	keep := func(at syntax.Node, format string, args ...*expr.Expr) error {
		e, err := b.expression(at, format, args...)
		if err == nil {
			conditions = append(conditions, expr.Conjuncts(e)...)
		}
		return err
	}
	offset := expr.Literal(gpu.IntScalar(gpu.Of(gpu.Int64), 0))
	if q.Offset != nil {
		n, err := b.rowsOf(l, q.Offset, "OFFSET")
		if err == nil {
			offset, err = b.expression(q.Offset, "coalesce(%s, 0)", n)
		}
		if err == nil {
			err = keep(q.Offset, "%s > %s", number, offset)
		}
		if err != nil {
			return nil, err
		}
	}
	if q.Limit != nil {
		var n *expr.Expr
		var err error
		if !q.Percent {
			n, err = b.rowsOf(l, q.Limit, "LIMIT")
		} else if n, err = b.share(l, q.Limit); err == nil {
			n, err = b.expression(q.Limit, "floor(%s / 100 * %s)", n, l.node.Rel().Expr(ids[1]))
		}
		if err == nil { // the difference does not overflow
			err = keep(q.Limit, "%s - %s <= coalesce(%s, %s)", number, offset, n, number)
		}
		if err != nil {
			return nil, err
		}
	}
	n := rel.NewFilter(b.here(), l.node, conditions)
	return r.over(rel.NewSort(b.here(), n, []rel.SortKey{{Column: ids[0]}}, 0, -1)), nil
}

// rowsOf binds a number of rows, which must not be negative.
func (b *queryBinder) rowsOf(l *level, n syntax.Node, clause string) (*expr.Expr, error) {
	return b.amount(l, n, gpu.Of(gpu.Int64), "%s >= 0", clause+" cannot be negative")
}

// share binds a percentage.
func (b *queryBinder) share(l *level, n syntax.Node) (*expr.Expr, error) {
	return b.amount(l, n, gpu.Of(gpu.Float64), "%s BETWEEN 0 AND 100", "LIMIT in percent is between 0 and 100")
}

// amount binds a value of LIMIT or OFFSET, on which a condition must hold unless it is null.
func (b *queryBinder) amount(l *level, n syntax.Node, t gpu.Type, condition, message string) (*expr.Expr, error) {
	e, err := b.bound(l, n)
	if err != nil {
		return nil, err
	}
	if e, err = expr.Cast(e, t, host.Fold); err != nil {
		return nil, mistake(n, "%v", err)
	}
	if _, constant := e.Constant(); !constant && !hasSubquery(n) {
		return nil, mistake(n, "this must be a constant")
	}
	holds, err := b.expression(n, "coalesce("+condition+", true)", e)
	if err != nil {
		return nil, err
	}
	if v, constant := holds.Constant(); constant {
		if v != gpu.BoolScalar(true) {
			return nil, mistake(n, "%s", message)
		}
		return e, nil
	}
	return expr.Required(holds, e, b.placed(n, message)), nil
}
