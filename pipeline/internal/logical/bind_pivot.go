package logical

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// columnsOf returns the columns that COLUMNS stands for, in the order of the tables.
func (s *selecting) columnsOf(n *syntax.StarExpr) ([]output, error) {
	if n.Pattern == nil || n.Like != "" {
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
	var columns []pivotColumn
	for _, on := range t.On {
		use(on.X)
		c, err := b.pivotColumn(on, in, l)
		if err != nil {
			return nil, err
		}
		columns = append(columns, c)
	}
	if len(t.Aggregates) == 0 && len(t.On) > 0 {
		c := *t
		c.Aggregates = []syntax.SelectItem{{X: &syntax.Call{Base: t.Base, Name: "count", Star: true}}}
		t = &c
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
	width, read := len(t.Aggregates), false
	for i, c := range columns {
		read = read || len(t.On[i].In) == 0
		if width *= len(c.values); width > maxPivoted && read {
			return nil, mistake(c.on, "PIVOT makes more than %d columns from the values of the table; write those "+
				"that matter after IN", maxPivoted)
		}
	}
	items, err := pivotItems(t, columns, nil, nil)
	if err != nil {
		return nil, err
	}
	if n.Items = append(n.Items, items...); len(n.Items) == 0 {
		return nil, mistake(&syntax.WordLiteral{Base: t.Base}, "PIVOT makes no column: there is no value, and no "+
			"other column")
	}
	return b.selectFrom(n, nil, &level{outer: l.outer, catalog: l.catalog, free: l.free}, in)
}

// maxPivoted bounds the columns that PIVOT makes of the values of a table: planning takes a second for as many.
const maxPivoted = 2000

// pivotColumn is an ON column of a PIVOT, and its values as text, in which they are compared.
type pivotColumn struct {
	on     syntax.Node
	values []pivotValue
}

// pivotValue is the condition of the rows that have a value, and the name of its column.
type pivotValue struct {
	condition syntax.Node
	name      string
}

// pivotColumn binds an ON column over the rows of the table, and finds its values.
func (b *queryBinder) pivotColumn(on syntax.PivotColumn, in *Relation, l *level) (c pivotColumn, err error) {
	inner := &level{outer: l.outer, catalog: l.catalog, free: l.free, names: in, node: in.node}
	x, err := b.bound(inner, on.X)
	if err != nil {
		return c, err
	}
	c.on = on.X
	add := func(text, name string) error {
		condition, err := b.hasText(on.X, x, text)
		c.values = append(c.values, pivotValue{condition, name})
		return err
	}
	if len(on.In) == 0 {
		texts, err := b.pivotTexts(on, in, l)
		if err != nil {
			return c, err
		}
		for _, text := range texts {
			if err := add(text, text); err != nil {
				return c, err
			}
		}
		return c, nil
	}
	seen := map[string]bool{}
	for _, v := range on.In {
		text, null := "NULL", isNullLiteral(v.X)
		if name, ok := v.X.(*syntax.Name); ok && len(name.Parts) == 1 {
			text = name.Parts[0]
		} else if !null {
			e, err := b.constant(v.X)
			if err == nil {
				e, err = expr.Cast(e, gpu.Of(gpu.String), host.Fold)
			}
			if err != nil {
				return c, mistake(v.X, "a value of PIVOT: %v", plain(err))
			}
			value, _ := e.Constant()
			if text, null = value.Str, !value.Valid; null {
				text = "NULL"
			}
		}
		if seen[text] {
			return c, mistake(v.X, "the value %s is there twice after IN", text)
		}
		seen[text] = true
		name := cmp.Or(v.Alias, text)
		if !null {
			if err := add(text, name); err != nil {
				return c, err
			}
			continue
		}
		is := &syntax.Is{Base: syntax.At(v.X, on.X), X: on.X, What: "NULL"}
		c.values = append(c.values, pivotValue{is, name})
	}
	return c, nil
}

// plain is an error without its place.
func plain(err error) error {
	var m *syntax.Error
	if errors.As(err, &m) {
		return errors.New(m.Msg)
	}
	return err
}

// hasText is the condition that the text of a value, such as 2020-01-31, is this one. As far as a type has one text for
// each value, the values themselves are compared.
func (b *queryBinder) hasText(n syntax.Node, x *expr.Expr, text string) (syntax.Node, error) {
	is := &syntax.Is{Base: syntax.At(n, n), X: n, What: "DISTINCT", Not: true}
	literal := expr.Literal(gpu.StringScalar(text))
	switch t := x.Type(); {
	case t.Kind == gpu.String:
		is.Y = &syntax.Resolved{Base: syntax.At(n), Value: literal}
	case t.IsFloat():
		is.X = &syntax.Cast{Base: syntax.At(n, n), X: n, Type: gpu.Of(gpu.String)}
		is.Y = &syntax.Resolved{Base: syntax.At(n), Value: literal}
	default:
		value, err := expr.Cast(literal, t, host.Fold)
		if err == nil {
			var back *expr.Expr
			if back, err = expr.Cast(value, gpu.Of(gpu.String), host.Fold); err == nil && !back.Equal(literal) {
				err = errors.ErrUnsupported
			}
		}
		if err != nil { // no value has this text
			return &syntax.WordLiteral{Base: syntax.At(n), Word: "FALSE"}, nil
		}
		is.Y = &syntax.Resolved{Base: syntax.At(n), Value: value}
	}
	return is, nil
}

// pivotTexts reads the values of an ON column: those of the query after IN, in its order, or the distinct values of the
// table, in the order of their texts.
func (b *queryBinder) pivotTexts(on syntax.PivotColumn, in *Relation, l *level) (texts []string, err error) {
	column := func(x syntax.Node) []syntax.SelectItem {
		return []syntax.SelectItem{{X: &syntax.Cast{Base: syntax.At(x, x), X: x, Type: gpu.Of(gpu.String)}, Alias: "v"}}
	}
	there := func(x syntax.Node) syntax.Node {
		return &syntax.Is{Base: syntax.At(x, x), X: x, What: "NULL", Not: true}
	}
	s := &syntax.Select{Base: syntax.At(on.X), Items: column(on.X), Where: there(on.X), Distinct: true}
	q := &syntax.Query{Base: syntax.At(on.X), OrderAll: &syntax.OrderKey{}}
	if on.Query != nil {
		if in, err = b.boundQuery(on.Query, &level{catalog: l.catalog, free: map[rel.ID]bool{}}); err != nil {
			return nil, err
		}
		if len(in.columns) != 1 {
			return nil, mistake(on.Query, "the query of the values of PIVOT must have one column, and this one has %d",
				len(in.columns))
		}
		x := &syntax.Resolved{Base: syntax.At(on.X), Value: expr.Column(b.scope(in), 0)}
		s, q = &syntax.Select{Base: s.Base, Items: column(x), Where: there(x)}, nil
	}
	r, err := b.selectFrom(s, q, &level{catalog: l.catalog, free: map[rel.ID]bool{}}, in)
	if err != nil {
		return nil, err
	}
	if isOpen(r.node) {
		return nil, mistake(on.X, "PIVOT in a subquery that uses columns around it needs its values, as in ON %s IN "+
			"('a', 'b')", on.X)
	}
	most := int64(maxPivoted + 1)
	if on.Query != nil {
		most = 1 << 20 // of which some are the same
	}
	r = r.over(rel.NewLimit(b.here(), r.node, 0, most))
	if b.query.Texts == nil {
		return nil, errFaulty
	}
	list, err := b.query.Texts(r.Output())
	switch {
	case errors.Is(err, ErrNoRows):
		return nil, errFaulty
	case err != nil:
		return nil, mistake(on.X, "the values of PIVOT could not be read: %v", err)
	}
	seen := map[string]bool{}
	for _, text := range list {
		if !seen[text] {
			seen[text], texts = true, append(texts, text)
		}
	}
	return texts, nil
}

// pivotItems returns the columns of the values of the ON columns. conditions and names are those of the columns before.
func pivotItems(t *syntax.Pivot, columns []pivotColumn, conditions []syntax.Node,
	names []string) (items []syntax.SelectItem, err error) {
	if len(columns) > 0 {
		for _, v := range columns[0].values {
			more, err := pivotItems(t, columns[1:], append(slices.Clone(conditions), v.condition),
				append(slices.Clone(names), v.name))
			if err != nil {
				return nil, err
			}
			items = append(items, more...)
		}
		return items, nil
	}
	for _, a := range t.Aggregates {
		found := false
		x, err := syntax.Replace(a.X, func(n syntax.Node) (syntax.Node, error) {
			call, ok := n.(*syntax.Call)
			switch {
			case ok && call.Over != nil:
				return nil, mistake(n, "PIVOT takes aggregates, and no window functions")
			case !ok || !expr.IsAggregate(call.Name):
				return nil, nil
			}
			c, all := *call, conditions
			if found = true; c.Filter != nil {
				all = append(slices.Clone(conditions), c.Filter)
			}
			if len(all) > 0 { // without ON there is none
				c.Filter = logic(all[0], "AND", all...)
			}
			return &c, nil
		})
		if err == nil && !found {
			err = mistake(a.X, "PIVOT takes aggregates, found %s", a.X)
		}
		if err != nil {
			return nil, err
		}
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
		items = append(items, syntax.SelectItem{X: x, Alias: name})
	}
	return items, nil
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
			all := *star
			all.Columns = true
			more, err := s.columnsOf(&all)
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
