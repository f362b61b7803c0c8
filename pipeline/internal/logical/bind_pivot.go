package logical

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// columnsOf returns the columns that COLUMNS stands for, in the order of the tables.
func (s *selecting) columnsOf(n *syntax.StarExpr) ([]output, error) {
	if n.Pattern == nil {
		star := *n
		star.Columns = false
		return s.star(&star)
	}
	text, ok := n.Pattern.(*syntax.StringLiteral)
	if !ok {
		return nil, mistake(n.Pattern, "COLUMNS takes * or a regular expression in quotes, as in COLUMNS('price.*')")
	}
	pattern, err := regexp.Compile(text.Text)
	if err != nil {
		return nil, mistake(n.Pattern, "COLUMNS: %v", err)
	}
	all, err := s.star(&syntax.StarExpr{Base: n.Base})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(o output) bool { return !pattern.MatchString(o.name) })
	if len(all) == 0 {
		return nil, mistake(n.Pattern, "no column matches %q", text.Text)
	}
	return all, nil
}

// columnsIn returns a COLUMNS of an expression, nil for none.
func columnsIn(n syntax.Node) (found *syntax.StarExpr) {
	_, _ = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		if star, ok := n.(*syntax.StarExpr); ok && star.Columns {
			found = star
		}
		return nil, nil
	})
	return found
}

// eachColumn returns an expression once for each column of its COLUMNS. All of them in an expression have the same
// columns.
func (s *selecting) eachColumn(x syntax.Node, star *syntax.StarExpr) ([]output, error) {
	columns, err := s.columnsOf(star)
	if err != nil {
		return nil, err
	}
	out := make([]output, len(columns))
	for i, c := range columns {
		out[i] = output{name: c.name}
		if out[i].x, err = syntax.Replace(x, func(n syntax.Node) (syntax.Node, error) {
			other, ok := n.(*syntax.StarExpr)
			if !ok || !other.Columns {
				return nil, nil
			}
			if other.String() != star.String() {
				return nil, mistake(other, "two COLUMNS of an expression must be the same")
			}
			return c.x, nil
		}); err != nil {
			return nil, err
		}
		if x == syntax.Node(star) {
			out[i].tables = c.tables
		}
	}
	return out, nil
}

// pivot binds a PIVOT: a group-by with an aggregate of the rows of each value.
func (b *queryBinder) pivot(t *syntax.Pivot, l *level) (*Relation, error) {
	in, _, err := b.tableRef(t.Table, l, nil)
	if err != nil {
		return nil, err
	}
	used := map[int]bool{}
	use := func(n syntax.Node) {
		_, _ = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
			if name, ok := n.(*syntax.Name); ok {
				if e, err := expr.Bind(name, b.scope(in)); err == nil {
					if id, column := e.IsColumn(); column {
						used[in.index(id)] = true
					}
				}
			}
			return nil, nil
		})
	}
	n := &syntax.Select{Base: t.Base}
	for _, a := range t.Aggregates {
		use(a.X)
	}
	for _, on := range t.On {
		use(on.X)
		if len(on.In) == 0 {
			return nil, mistake(on.X, "PIVOT needs the values that become columns, as in FOR %s IN ('a', 'b')", on.X)
		}
	}
	if len(t.Aggregates) == 0 {
		return nil, mistake(&syntax.WordLiteral{Base: t.Base}, "PIVOT needs an aggregate, as in USING sum(x)")
	}
	keys := t.Group
	if len(keys) == 0 && len(t.On) > 0 {
		scope := b.scope(in)
		for i := range in.columns {
			if !used[i] {
				keys = append(keys, &syntax.Resolved{Base: t.Base, Value: expr.Column(scope, i)})
			}
		}
	}
	for _, k := range keys {
		item := syntax.SelectItem{X: k}
		if r, ok := k.(*syntax.Resolved); ok {
			id, _ := r.Value.(*expr.Expr).IsColumn()
			item.Alias = in.name(in.index(id))
		}
		n.Items = append(n.Items, item)
		n.Group = append(n.Group, syntax.GroupItem{Base: t.Base, X: k})
	}
	items, err := pivotItems(t, 0, nil, nil)
	if err != nil {
		return nil, err
	}
	n.Items = append(n.Items, items...)
	return b.selectFrom(n, nil, &level{outer: l.outer, catalog: l.catalog, free: l.free}, in)
}

// pivotItems returns the columns of the values of the ON columns from one on. conditions and names are those of the
// columns before.
func pivotItems(t *syntax.Pivot, at int, conditions []syntax.Node, names []string) (items []syntax.SelectItem,
	err error) {
	if at < len(t.On) {
		for _, v := range t.On[at].In {
			name := v.Alias
			if name == "" {
				name = pivotName(v.X)
			}
			is := &syntax.Is{Base: syntax.At(v.X, t.On[at].X, v.X), X: t.On[at].X, Y: v.X, What: "DISTINCT", Not: true}
			more, err := pivotItems(t, at+1, append(slices.Clone(conditions), is), append(slices.Clone(names), name))
			if err != nil {
				return nil, err
			}
			items = append(items, more...)
		}
		return items, nil
	}
	var condition syntax.Node // nil without ON
	if len(conditions) > 0 {
		condition = logic(conditions[0], "AND", conditions...)
	}
	for _, a := range t.Aggregates {
		call, ok := a.X.(*syntax.Call)
		if !ok || !expr.IsAggregate(call.Name) || call.Filter != nil {
			return nil, mistake(a.X, "PIVOT takes aggregates without FILTER, found %s", a.X)
		}
		c := *call
		c.Filter = condition
		name := strings.Join(names, "_")
		switch {
		case len(names) == 0 && a.Alias != "":
			name = a.Alias
		case len(names) == 0:
			name = columnName(a.X)
		case a.Alias != "":
			name += "_" + a.Alias
		case len(t.Aggregates) > 1:
			name += "_" + columnName(a.X)
		}
		items = append(items, syntax.SelectItem{X: &c, Alias: name})
	}
	return items, nil
}

// pivotName is the name of the column of a value.
func pivotName(n syntax.Node) string {
	if text, ok := n.(*syntax.StringLiteral); ok {
		return text.Text
	}
	return n.String()
}

// firstName is the name of the first column of an expression.
func firstName(n syntax.Node) (name string) {
	_, _ = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		if x, ok := n.(*syntax.Name); ok && name == "" {
			name = x.Parts[len(x.Parts)-1]
		}
		return nil, nil
	})
	if name == "" {
		return columnName(n)
	}
	return name
}

// unpivot binds an UNPIVOT: a union with the rows of each of the columns.
func (b *queryBinder) unpivot(t *syntax.Unpivot, l *level) (*Relation, error) {
	in, _, err := b.tableRef(t.Table, l, nil)
	if err != nil {
		return nil, err
	}
	s := &selecting{queryBinder: b, sel: &syntax.Select{Base: t.Base}, level: &level{outer: l.outer, catalog: l.catalog,
		free: l.free, names: in, node: in.node}}
	type row struct {
		columns []*expr.Expr
		name    string
	}
	var rows []row
	used := map[rel.ID]bool{}
	for _, c := range t.Columns {
		var columns []output
		for _, x := range c.Xs {
			star, ok := x.(*syntax.StarExpr)
			if !ok {
				columns = append(columns, output{x: x, name: firstName(x)})
				continue
			}
			star = &syntax.StarExpr{Base: star.Base, Star: star.Star, Pattern: star.Pattern, Columns: true}
			more, err := s.columnsOf(star)
			if err != nil {
				return nil, err
			}
			columns = append(columns, more...)
		}
		var exprs []*expr.Expr
		for i, o := range columns {
			e, err := b.bound(s.level, o.x)
			if err != nil {
				return nil, err
			}
			for _, id := range e.Columns() {
				used[id] = true
			}
			if id, column := e.IsColumn(); column {
				columns[i].name = in.name(in.index(id))
			}
			exprs = append(exprs, e)
		}
		if len(t.Values) == 1 { // each column is a row
			for i, e := range exprs {
				name := columns[i].name
				if c.Alias != "" && len(exprs) == 1 {
					name = c.Alias
				}
				rows = append(rows, row{[]*expr.Expr{e}, name})
			}
			continue
		}
		if len(exprs) != len(t.Values) {
			return nil, mistake(&syntax.WordLiteral{Base: t.Base},
				"UNPIVOT makes %d values and takes %d columns for them",
				len(t.Values), len(exprs))
		}
		name := c.Alias
		if name == "" {
			var names []string
			for _, o := range columns {
				names = append(names, o.name)
			}
			name = strings.Join(names, "_")
		}
		rows = append(rows, row{exprs, name})
	}
	if len(rows) == 0 {
		return nil, mistake(&syntax.WordLiteral{Base: t.Base}, "UNPIVOT needs columns")
	}
	node := in.node
	if worthHolding(node) && len(rows) > 1 {
		node = rel.NewMaterialized(node, &rel.Share{Step: b.name})
	}
	var sides []*Relation
	for _, r := range rows {
		var items []item
		for i, x := range in.items(b.estimator) {
			if !used[in.columns[i].id] {
				items = append(items, x)
			}
		}
		items = append(items, item{expr.Literal(gpu.StringScalar(r.name)), t.Name, nil})
		var values []*expr.Expr
		for i, e := range r.columns {
			values = append(values, e)
			items = append(items, item{e, t.Values[i], nil})
		}
		below := node
		if !t.IncludeNulls {
			var any []*expr.Expr
			for _, e := range values {
				x, err := b.expression(&syntax.WordLiteral{Base: t.Base}, "%s IS NOT NULL", e)
				if err != nil {
					return nil, err
				}
				any = append(any, x)
			}
			below = rel.NewFilter(b.here(), below, []*expr.Expr{expr.Or(any...)})
		}
		sides = append(sides, project(b.here(), below, items))
	}
	if len(sides) == 1 {
		return sides[0], nil
	}
	return b.combined(&syntax.SetOperation{Base: t.Base, Op: "UNION", All: true}, sides)
}
