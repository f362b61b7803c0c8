package logical

import (
	"errors"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// bound binds an expression over the rows of a level. Its subqueries become columns of these rows.
func (b *queryBinder) bound(l *level, n syntax.Node) (*expr.Expr, error) {
	n, err := b.resolved(l, n)
	if err != nil {
		return nil, err
	}
	in := l.names
	if in == nil || l.groups != nil {
		in = &Relation{node: l.node}
	}
	return expr.Bind(n, b.scopeAt(in, ".sql"))
}

// resolved replaces what only a query can have: names of outer levels, aliases, keys of the group-by, subqueries,
// parameters and rows.
func (b *queryBinder) resolved(l *level, n syntax.Node) (syntax.Node, error) {
	return syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		if l.groups != nil {
			if k := b.key(l, n); k != nil {
				return &syntax.Resolved{Base: syntax.At(n), Value: k}, nil
			}
		}
		switch n := n.(type) {
		case *syntax.Name:
			return b.meaning(l, n)
		case *syntax.Resolved:
			l.uses(n)
			return b.stillThere(l, n)
		case *syntax.Subquery:
			return b.subquery(l, n)
		case *syntax.Binary:
			return b.rowComparison(l, n, n.Op, n.L, n.R)
		case *syntax.Is:
			if n.What == "DISTINCT" {
				return b.rowComparison(l, n, map[bool]string{true: "=", false: "<>"}[n.Not], n.X, n.Y)
			}
		case *syntax.In:
			return b.rowIn(l, n)
		case *syntax.Row:
			return nil, mistake(n, "a row of several values is possible in comparisons and before IN only")
		case *syntax.StarExpr:
			return nil, mistake(n, "* is possible in a select list and in count(*) only")
		case *syntax.Call:
			if l.groups != nil && (n.Name == "grouping" || n.Name == "grouping_id") {
				return b.groupingCall(l, n)
			}
			if l.groups != nil { // otherwise its arguments would be said to be no keys
				return nil, expr.KnownFunction(n)
			}
		}
		return nil, nil
	})
}

// uses takes note of columns of outer levels, such as aggregates of a query around.
func (l *level) uses(n *syntax.Resolved) {
	e, ok := n.Value.(*expr.Expr)
	if !ok {
		return
	}
	for _, id := range e.Columns() {
		for at := l.outer; at != nil; at = at.outer {
			if at.node == nil || !at.node.Rel().Has(id) {
				continue
			}
			for inner := l; inner != at; inner = inner.outer {
				inner.free[id] = true
			}
			break
		}
	}
}

// stillThere refuses a column of the rows before a group-by, such as one of a star.
func (b *queryBinder) stillThere(l *level, n *syntax.Resolved) (syntax.Node, error) {
	e, ok := n.Value.(*expr.Expr)
	if !ok || l.groups == nil || l.names == nil {
		return n, nil
	}
	for _, id := range e.Columns() {
		if at := l.names.index(id); at >= 0 && !l.node.Rel().Has(id) {
			return nil, notGrouped(n, l.names.name(at))
		}
	}
	return n, nil
}

func notGrouped(n syntax.Node, name string) error {
	return mistake(n, "column %q is neither a key of GROUP BY nor inside an aggregate; add it to GROUP BY, or use "+
		"any_value(%s)", name, name)
}

// meaning returns what a name means: nil leaves a column of the level to the binder of expressions.
func (b *queryBinder) meaning(l *level, n *syntax.Name) (syntax.Node, error) {
	if strings.HasPrefix(n.Parts[0], "$window") || strings.HasPrefix(n.Parts[0], "$agg") {
		return n, nil
	}
	e, err := b.column(l, n)
	switch {
	case err == nil && l.groups == nil:
		return nil, nil
	case err == nil:
		return &syntax.Resolved{Base: n.Base, Value: e}, nil
	case !isMissing(err):
		return nil, err
	}
	if a := l.alias(b, n); a != nil {
		if a.open {
			return nil, mistake(n, "%q uses itself", n.Parts[0])
		}
		a.open = true
		defer func() { a.open = false }()
		return b.resolved(l, a.x)
	}
	for at := l.outer; at != nil; at = at.outer {
		if at.names == nil {
			continue
		}
		e, wrong := b.column(at, n)
		if isMissing(wrong) {
			continue
		}
		if wrong != nil {
			return nil, wrong
		}
		for inner := l; inner != at; inner = inner.outer {
			for _, id := range e.Columns() {
				inner.free[id] = true
			}
		}
		return &syntax.Resolved{Base: n.Base, Value: e}, nil
	}
	return nil, err
}

// isMissing reports whether an error is a name that a level does not have.
func isMissing(err error) bool {
	var m *syntax.Error
	return errors.As(err, &m) && m.Missing != nil
}

// column binds a name among the columns of a level.
func (b *queryBinder) column(l *level, n *syntax.Name) (*expr.Expr, error) {
	in := l.names
	if in == nil {
		in = &Relation{node: b.noRows()}
	}
	e, err := expr.Bind(n, b.scope(in))
	if err != nil {
		var m *syntax.Error
		if errors.As(err, &m) && m.Missing != nil {
			if u, ok := in.unreadableFor(m.Missing); ok {
				return nil, mistake(n, "%v", u)
			}
		}
		return nil, err
	}
	if l.groups == nil {
		return e, nil
	}
	if _, column := e.IsColumn(); !column {
		return e, nil
	}
	if k := b.key(l, n); k != nil {
		return k, nil
	}
	return nil, notGrouped(n, n.Parts[len(n.Parts)-1])
}

// noRows is the input of expressions that have no columns.
func (b *queryBinder) noRows() rel.Node { return rel.NewValues(b.md, b.here(), nil, nil) }

// alias returns the expression of a select list that a name means, unless a column has the name.
func (l *level) alias(b *queryBinder, n *syntax.Name) *selectAlias {
	if len(n.Parts) != 1 || l.aliases == nil {
		return nil
	}
	a := l.aliases[folded(n.Parts[0])]
	if a == nil || a.x == syntax.Node(n) {
		return nil
	}
	if l.names != nil && len(b.scope(l.names).Named(n.Parts[0])) > 0 {
		return nil
	}
	return a
}

func (s *selecting) alias(n *syntax.Name) *selectAlias { return s.level.alias(s.queryBinder, n) }

// inner binds a query inside an expression or a FROM, and returns the columns of the level that it uses.
func (b *queryBinder) inner(l *level, q *syntax.Query) (*Relation, []rel.ID, error) {
	around := &level{outer: l, free: map[rel.ID]bool{}, catalog: l.catalog}
	r, err := b.boundQuery(q, around)
	if err != nil {
		return nil, nil, err
	}
	var outer []rel.ID
	for id := range around.free {
		if l.node != nil && l.node.Rel().Has(id) {
			outer = append(outer, id)
		}
	}
	slices.Sort(outer)
	if rel.Shares(l.node, r.node) {
		r = b.copied(r)
	}
	return r, outer, nil
}

// subquery makes a subquery a column of the rows of a level.
func (b *queryBinder) subquery(l *level, n *syntax.Subquery) (syntax.Node, error) {
	if l.node == nil {
		return nil, mistake(n, "a subquery is not possible here")
	}
	var e *expr.Expr
	var err error
	switch n.Kind {
	case "":
		e, err = b.scalar(l, n)
	case "EXISTS":
		var r *Relation
		var outer []rel.ID
		if r, outer, err = b.inner(l, n.Query); err == nil {
			e = b.marked(l, r, outer, nil)
			if n.Not {
				e, err = b.expression(n, "NOT %s", e)
			}
		}
	default:
		e, err = b.quantified(l, n)
	}
	if err != nil {
		return nil, err
	}
	return &syntax.Resolved{Base: n.Base, Value: e}, nil
}

// scalar is a subquery of one column and at most one row.
func (b *queryBinder) scalar(l *level, n *syntax.Subquery) (*expr.Expr, error) {
	r, outer, err := b.inner(l, n.Query)
	if err != nil {
		return nil, err
	}
	if len(r.columns) != 1 {
		return nil, mistake(n, "a subquery that is a value must have one column, and this one has %d", len(r.columns))
	}
	right, columns := b.values(n, r)
	l.node = rel.NewApply(b.here(), join.Inner, l.node, right, outer, nil, rel.None)
	return l.node.Rel().Expr(columns[0]), nil
}

// values returns a node with one row: the values of a query that is a value, or nulls if it has no row. They fail if it
// has several.
func (b *queryBinder) values(n syntax.Node, r *Relation) (rel.Node, []rel.ID) {
	if oneRow(r.node) {
		return r.node, r.ids()
	}
	aggs := &aggregates{queryBinder: b, in: r.node.Rel()}
	var least []rel.ID // of one value is the value
	for i, id := range r.ids() {
		least = append(least, aggs.add(r.name(i), gpu.Min, id, r.field(i).Type))
	}
	if first, ok := r.node.(*rel.Limit); ok && first.Count <= 1 {
		return aggs.of(r.node), least
	}
	rows := aggs.add("rows", gpu.CountAll, rel.None, gpu.Of(gpu.Int64))
	g := aggs.of(r.node)
	one := computeOf("%s <= 1", g, rows)
	message := b.placed(n, "a subquery that is a value has more than one row; aggregate its rows, or add LIMIT 1")
	var ids []rel.ID
	var exprs []*expr.Expr
	for i, id := range least {
		e := expr.Required(one, g.Expr(id), message)
		ids, exprs = append(ids, b.md.Add(rel.Computed(r.name(i), e))), append(exprs, e)
	}
	return rel.NewProject(b.here(), g, ids, exprs), ids
}

// placed returns a message for a run with its place in the text of the user.
func (b *queryBinder) placed(n syntax.Node, message string) string {
	m := syntax.NewError(n.Source(), n.Pos(), "%s", message)
	path := b.at + ".sql"
	if at, ok := b.query.Text.LocationIn(path, b.step.SQL, m.Pos); ok {
		m.Line, m.Col = at.Line, at.Column
	}
	return m.Error()
}

// oneRow reports whether a node always has one row.
func oneRow(n rel.Node) bool {
	switch n := n.(type) {
	case *rel.Group:
		return len(n.Keys) == 0 && len(n.Always) == 0
	case *rel.Project:
		return oneRow(n.In)
	case *rel.Sort:
		return n.Limit < 0 && n.Offset == 0 && oneRow(n.In)
	case *rel.Values:
		return len(n.Rows) == 1
	case *rel.Window:
		return oneRow(n.In)
	case *rel.Join:
		return n.Kind == join.Inner && n.AllPairs && len(n.Residual) == 0 && oneRow(n.Left) && oneRow(n.Right)
	}
	return false
}

// marked adds a column that says whether a subquery has a row on which conditions are true. It may be unknown.
func (b *queryBinder) marked(l *level, r *Relation, outer []rel.ID, conditions []*expr.Expr) *expr.Expr {
	nullable := slices.ContainsFunc(conditions, func(c *expr.Expr) bool { return c.Nullable() })
	mark := b.md.Add(rel.Column{Field: gpu.Field{Name: "matched", Type: gpu.Of(gpu.Bool), Nullable: nullable}})
	l.node = rel.NewApply(b.here(), join.Mark, l.node, r.node, outer, conditions, mark)
	return l.node.Rel().Expr(mark)
}

// expression binds a text in which each %s stands for an expression.
func (b *queryBinder) expression(at syntax.Node, format string, args ...*expr.Expr) (*expr.Expr, error) {
	parts := strings.Split(format, "%s")
	text := parts[0]
	for i := range args {
		text += `"$arg` + string(rune('a'+i)) + `"` + parts[i+1]
	}
	n, err := syntax.Parse(text)
	if err != nil {
		return nil, mistake(at, "%v", err)
	}
	n, err = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		if name, ok := n.(*syntax.Name); ok && strings.HasPrefix(name.Parts[0], "$arg") {
			return &syntax.Resolved{Base: name.Base, Value: args[name.Parts[0][4]-'a']}, nil
		}
		return nil, nil
	})
	if err == nil {
		var e *expr.Expr
		if e, err = expr.Bind(n, b.scopeAt(&Relation{node: b.noRows()}, ".sql")); err == nil {
			return e, nil
		}
	}
	var m *syntax.Error
	if errors.As(err, &m) {
		return nil, mistake(at, "%s", m.Msg)
	}
	return nil, mistake(at, "%v", err)
}

// sidesOf returns the values before ANY, ALL and IN, and as many columns of the subquery.
func (b *queryBinder) compared(l *level, n *syntax.Subquery, r *Relation) (values, columns []*expr.Expr, err error) {
	xs := []syntax.Node{n.X}
	if row, ok := n.X.(*syntax.Row); ok {
		xs = row.Items
	}
	if len(r.columns) != len(xs) {
		return nil, nil, mistake(n, "the subquery has %d columns, and is compared with %d", len(r.columns), len(xs))
	}
	for i, x := range xs {
		e, err := b.bound(l, x)
		if err != nil {
			return nil, nil, err
		}
		values, columns = append(values, e), append(columns, r.node.Rel().Expr(r.columns[i].id))
	}
	return values, columns, nil
}

// quantified is X op ANY (query) and X op ALL (query).
func (b *queryBinder) quantified(l *level, n *syntax.Subquery) (*expr.Expr, error) {
	op, negated := n.Op, n.Kind == "ALL"
	if negated { // X op ALL is NOT (X the opposite of op ANY)
		op = opposites[op]
	}
	var e *expr.Expr
	var err error
	if op == "=" {
		var conditions []*expr.Expr
		var r *Relation
		var outer []rel.ID
		if r, outer, conditions, err = b.equalTo(l, n); err == nil {
			e = b.marked(l, r, outer, conditions)
		}
	} else {
		e, err = b.comparedWithAny(l, n, op)
	}
	if err != nil || !negated {
		return e, err
	}
	return b.expression(n, "NOT %s", e)
}

var opposites = map[string]string{"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

// equalTo binds a subquery, and the conditions that its columns equal values.
func (b *queryBinder) equalTo(l *level, n *syntax.Subquery) (*Relation, []rel.ID, []*expr.Expr, error) {
	r, outer, err := b.inner(l, n.Query)
	if err != nil {
		return nil, nil, nil, err
	}
	values, columns, err := b.compared(l, n, r)
	if err != nil {
		return nil, nil, nil, err
	}
	var conditions []*expr.Expr
	for i := range values {
		e, err := b.expression(n, "%s = %s", values[i], columns[i])
		if err != nil {
			return nil, nil, nil, err
		}
		conditions = append(conditions, expr.Conjuncts(e)...)
	}
	return r, outer, conditions, nil
}

// comparedWithAny is X op ANY (query) for an op other than =: the least and the greatest value of the query decide it.
// A row differs from some row if one of its values differs from some value of its column.
func (b *queryBinder) comparedWithAny(l *level, n *syntax.Subquery, op string) (*expr.Expr, error) {
	r, outer, err := b.inner(l, n.Query)
	if err != nil {
		return nil, err
	}
	values, _, err := b.compared(l, n, r)
	if err != nil {
		return nil, err
	}
	if row, ok := n.X.(*syntax.Row); ok && op != "<>" {
		return b.rowWithAny(l, n, op, row, r, outer)
	}
	aggs := &aggregates{queryBinder: b, in: r.node.Rel()}
	for _, id := range r.ids() {
		t := aggs.in.Field(id).Type
		aggs.add("least", gpu.Min, id, t)
		aggs.add("greatest", gpu.Max, id, t)
		aggs.add("values", gpu.Count, id, gpu.Of(gpu.Int64))
	}
	rows := aggs.add("rows", gpu.CountAll, rel.None, gpu.Of(gpu.Int64))
	l.node = rel.NewApply(b.here(), join.Inner, l.node, aggs.of(r.node), outer, nil, rel.None)
	of := func(id rel.ID) *expr.Expr { return l.node.Rel().Expr(id) }
	var any []*expr.Expr
	for i, x := range values {
		least, greatest, count := aggs.list[3*i].Out, aggs.list[3*i+1].Out, aggs.list[3*i+2].Out
		matches, args := "%s "+op+" %s", []*expr.Expr{x, of(least)}
		switch op {
		case "<", "<=":
			args[1] = of(greatest)
		case "<>":
			matches, args = "%s <> %s OR %s <> %s", []*expr.Expr{x, of(least), x, of(greatest)}
		}
		match, err := b.expression(n, matches, args...)
		if err != nil {
			return nil, err
		}
		e, err := b.expression(n, "CASE WHEN %s = 0 THEN false WHEN %s THEN true WHEN %s IS NULL OR %s < %s "+
			"THEN NULL ELSE false END", of(rows), match, x, of(count), of(rows))
		if err != nil {
			return nil, err
		}
		any = append(any, e)
	}
	if len(any) == 1 {
		return any[0], nil
	}
	return expr.Or(any...), nil
}

// rowWithAny compares a row with any row of a query: with the greatest one, or for > and >= with the least one. As in
// other comparisons of rows, null is greater than any other value.
func (b *queryBinder) rowWithAny(l *level, n *syntax.Subquery, op string, row *syntax.Row, r *Relation,
	outer []rel.ID) (*expr.Expr, error) {
	greatest := op[0] == '<'
	var keys []rel.SortKey
	for _, id := range r.ids() {
		keys = append(keys, rel.SortKey{Column: id, Descending: greatest, NullsFirst: greatest})
	}
	first := rel.NewSort(b.here(), r.node, keys, 0, 1)
	aggs := &aggregates{queryBinder: b, in: first.Rel()}
	other := &syntax.Row{Base: n.Base}
	for _, id := range r.ids() { // the least of one value
		aggs.add(first.Name(id), gpu.Min, id, first.Field(id).Type)
	}
	rows := aggs.add("rows", gpu.CountAll, rel.None, gpu.Of(gpu.Int64))
	l.node = rel.NewApply(b.here(), join.Inner, l.node, aggs.of(first), outer, nil, rel.None)
	for i := range r.columns {
		value := l.node.Rel().Expr(aggs.list[i].Out)
		other.Items = append(other.Items, &syntax.Resolved{Base: n.Base, Value: value})
	}
	compared, err := b.bound(l, &syntax.Binary{Base: syntax.At(n, row, other), Op: op, L: row, R: other})
	if err != nil {
		return nil, err
	}
	return b.expression(n, "%s > 0 AND %s", l.node.Rel().Expr(rows), compared)
}

// aggregates are those of all rows of a subquery.
type aggregates struct {
	*queryBinder
	in   *rel.Relation
	list []rel.Aggregate
}

func (a *aggregates) add(name string, kind gpu.AggregateKind, input rel.ID, t gpu.Type) rel.ID {
	x := rel.Aggregate{Kind: kind, Input: input, Output: t}
	x.Out = a.md.Add(rel.Column{Field: x.Field(name, a.in, 0, nil)})
	a.list = append(a.list, x)
	return x.Out
}

func (a *aggregates) of(in rel.Node) *rel.Group {
	return rel.NewGroup(a.here(), in, nil, a.list, nil, "")
}

// semiJoined computes a condition that keeps rows with a match, or without one, by a semi or an anti join. It is false
// for other conditions.
func (b *queryBinder) semiJoined(l *level, n syntax.Node) (bool, error) {
	not := false
	for {
		u, ok := n.(*syntax.Unary)
		if !ok || u.Op != "NOT" {
			break
		}
		n, not = u.X, !not
	}
	s, ok := n.(*syntax.Subquery)
	if !ok || s.Kind == "" || l.node == nil {
		return false, nil
	}
	kind := join.Semi
	var conditions []*expr.Expr
	var r *Relation
	var outer []rel.ID
	var err error
	switch {
	case s.Kind == "EXISTS":
		if not != s.Not {
			kind = join.Anti
		}
		r, outer, err = b.inner(l, s.Query)
	case s.Kind == "ANY" && s.Op == "=" && !not, s.Kind == "ALL" && s.Op == "<>" && not:
		r, outer, conditions, err = b.equalTo(l, s)
	default:
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.node = rel.NewApply(b.here(), kind, l.node, r.node, outer, conditions, rel.None)
	return true, nil
}

// rowComparison splits a comparison of rows into comparisons of their values. As in DuckDB, null equals null there, and
// is greater than any other value.
func (b *queryBinder) rowComparison(l *level, n syntax.Node, op string, x, y syntax.Node) (syntax.Node, error) {
	left, isRow := x.(*syntax.Row)
	right, both := y.(*syntax.Row)
	if !isRow && !both {
		return nil, nil
	}
	if s, ok := y.(*syntax.Subquery); ok && isRow && s.Kind == "" {
		return b.rowEqualsQuery(l, n, op, left, s)
	}
	if !isRow || !both || len(left.Items) != len(right.Items) {
		return nil, mistake(n, "a row can be compared with a row of as many values only")
	}
	distinct := func(i int, not bool) syntax.Node {
		x, y := left.Items[i], right.Items[i]
		return &syntax.Is{Base: syntax.At(n, x, y), X: x, Y: y, What: "DISTINCT", Not: not}
	}
	var all []syntax.Node
	switch op {
	case "=", "<>":
		for i := range left.Items {
			all = append(all, distinct(i, op == "="))
		}
		return b.resolved(l, logic(n, map[string]string{"=": "AND", "<>": "OR"}[op], all...))
	case "<", "<=", ">", ">=":
		strictly := func(i int) syntax.Node {
			x, y := left.Items[i], right.Items[i]
			value := x // is not null, and the other one is, if the comparison is null
			if op[0] == '>' {
				value = y
			}
			compared := &syntax.Binary{Base: syntax.At(n, x, y), Op: op[:1], L: x, R: y}
			notNull := &syntax.Is{Base: syntax.At(n, value), X: value, What: "NULL", Not: true}
			return &syntax.Call{Base: syntax.At(n, compared, notNull), Name: "coalesce",
				Args: []syntax.Node{compared, notNull}}
		}
		last := len(left.Items) - 1
		out := strictly(last)
		if len(op) == 2 {
			out = logic(n, "OR", out, distinct(last, true))
		}
		for i := last - 1; i >= 0; i-- {
			out = logic(n, "OR", strictly(i), logic(n, "AND", distinct(i, true), out))
		}
		return b.resolved(l, out)
	}
	return nil, mistake(n, "rows cannot be operands of %s", op)
}

// logic combines conditions.
func logic(at syntax.Node, op string, args ...syntax.Node) syntax.Node {
	if len(args) == 1 {
		return args[0]
	}
	return &syntax.Logic{Base: syntax.At(at, args...), Op: op, Args: args}
}

// rowEqualsQuery is (a, b) = (query): the query has at most one row. A comparison with null is null, as in IN.
func (b *queryBinder) rowEqualsQuery(l *level, n syntax.Node, op string, row *syntax.Row,
	s *syntax.Subquery) (syntax.Node, error) {
	if op != "=" && op != "<>" {
		return nil, mistake(n, "a row can be compared with a subquery by = and <> only")
	}
	r, outer, err := b.inner(l, s.Query)
	if err != nil {
		return nil, err
	}
	if len(r.columns) != len(row.Items) {
		return nil, mistake(s, "the subquery has %d columns, and is compared with %d", len(r.columns), len(row.Items))
	}
	right, columns := b.values(s, r)
	l.node = rel.NewApply(b.here(), join.Inner, l.node, right, outer, nil, rel.None)
	var all []syntax.Node
	for i, id := range columns {
		value := &syntax.Resolved{Base: s.Base, Value: l.node.Rel().Expr(id)}
		all = append(all, &syntax.Binary{Base: syntax.At(n, row.Items[i], value), Op: op, L: row.Items[i], R: value})
	}
	return b.resolved(l, logic(n, map[string]string{"=": "AND", "<>": "OR"}[op], all...))
}

// rowIn is (a, b) IN ((1, 2), …).
func (b *queryBinder) rowIn(l *level, n *syntax.In) (syntax.Node, error) {
	if _, ok := n.X.(*syntax.Row); !ok {
		return nil, nil
	}
	var any []syntax.Node
	for _, x := range n.List {
		any = append(any, &syntax.Binary{Base: syntax.At(n, n.X, x), Op: "=", L: n.X, R: x})
	}
	var out syntax.Node = any[0]
	if len(any) > 1 {
		out = &syntax.Logic{Base: syntax.At(n, any...), Op: "OR", Args: any}
	}
	if n.Not {
		out = &syntax.Unary{Base: syntax.At(n, out), Op: "NOT", X: out}
	}
	return b.resolved(l, out)
}
