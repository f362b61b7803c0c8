package logical

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// queryBinder binds the SQL text of a step. Its functions return the first mistake, a *syntax.Error.
type queryBinder struct {
	*stepBinder
	depth  int                            // of queries in queries
	binds  []*namedQuery                  // that are being bound, the innermost last
	macros map[string]*syntax.CreateMacro // by folded names
}

// maxQueryDepth bounds how deep queries, views and aliases may stand in each other.
const maxQueryDepth = 200

// sql binds a step of SQL: views, macros and temporary tables, and a query at the end, whose rows are those of the
// step.
func (s *stepBinder) sql() *Relation {
	statements, err := s.query.Values.ParseStatements(s.step.SQL)
	if err == nil {
		b := &queryBinder{stepBinder: s}
		var r *Relation
		if r, err = b.statements(statements); err == nil {
			return r
		}
		if errors.Is(err, errFaulty) {
			return nil
		}
	}
	s.exprDiagnostic(nil, ".sql", s.step.SQL, err, "")
	return nil
}

// placed is a node of a text.
type placed interface {
	Pos() int
	Source() string
}

// mistake is an error at a node of a text.
func mistake(n placed, format string, args ...any) error {
	return syntax.NewError(n.Source(), n.Pos(), format, args...)
}

// catalog has the tables that queries can name besides sources and steps. Those of an inner catalog hide others of the
// same name.
type catalog struct {
	outer  *catalog
	tables map[string]*namedQuery // by folded names
}

// namedQuery is a common table expression, a view or a temporary table.
type namedQuery struct {
	*syntax.CTE
	around  *catalog // has the tables that the query can name
	level   *level   // around the query
	readers int
	bound   *Relation // nil before the first reader
	free    map[rel.ID]bool
	// union is the body of a query of WITH RECURSIVE that reads itself, nil for another query. recursion is set while
	// its right side is bound.
	union     *syntax.SetOperation
	recursion *recursion
}

func (c *catalog) find(name string) *namedQuery {
	for ; c != nil; c = c.outer {
		if q, ok := c.tables[folded(name)]; ok {
			return q
		}
	}
	return nil
}

// level is what the names of a query can mean. Names that it does not have may be those of outer levels.
type level struct {
	outer   *level
	names   *Relation       // columns and their tables; nil while there are none
	node    rel.Node        // the rows so far
	groups  *grouping       // after the group-by of the query, nil before
	free    map[rel.ID]bool // columns of outer levels that are used
	aliases map[string]*selectAlias
	catalog *catalog
}

// selectAlias is an expression of a select list, by its name.
type selectAlias struct {
	x    syntax.Node
	open bool // it is being bound
}

func (b *queryBinder) statements(list []syntax.Statement) (*Relation, error) {
	c := &catalog{tables: map[string]*namedQuery{}}
	for i, st := range list {
		st, err := b.withMacros(st)
		if err != nil {
			return nil, err
		}
		switch st := st.(type) {
		case *syntax.Query:
			return b.lastQuery(st, list[i+1:], c)
		case *syntax.Copy:
			return b.lastQuery(st.Query, list[i+1:], c)
		case *syntax.Describe:
			return b.lastQuery(&syntax.Query{Base: st.Base, Body: st}, list[i+1:], c)
		case *syntax.CreateView:
			c = &catalog{outer: c, tables: map[string]*namedQuery{folded(st.Name): {
				CTE:    &syntax.CTE{Base: st.Base, Name: st.Name, Columns: st.Columns, Query: st.Query},
				around: c, level: &level{catalog: c, free: map[rel.ID]bool{}}, readers: readersIn(st.Name,
					list[i+1:]...)}}}
		case *syntax.CreateMacro:
			if b.macros == nil {
				b.macros = map[string]*syntax.CreateMacro{}
			}
			b.macros[folded(st.Name)] = st
		case *syntax.CreateType: // the others have it already
		default:
			return nil, syntax.NewError(b.step.SQL, st.Pos(), "this statement is not possible in a step; write a query")
		}
	}
	return nil, syntax.NewError(b.step.SQL, len(b.step.SQL),
		"there is no query; the rows of the last one are those of the step")
}

// withMacros replaces calls of macros in a statement. A macro has no calls of macros in its body: they are replaced
// where it is defined.
func (b *queryBinder) withMacros(st syntax.Statement) (syntax.Statement, error) {
	if len(b.macros) == 0 {
		return st, nil
	}
	var call func(n syntax.Node) (syntax.Node, error)
	call = func(n syntax.Node) (syntax.Node, error) {
		c, ok := n.(*syntax.Call)
		if !ok {
			return nil, nil
		}
		m, ok := b.macros[folded(c.Name)]
		if !ok {
			return nil, nil
		}
		if m.Query != nil {
			return nil, mistake(c, "the macro %s is a table: write it in FROM", m.Name)
		}
		if c.Over != nil || c.Filter != nil || c.Distinct || c.Star || len(c.Order) > 0 {
			return nil, mistake(c, "%s is a macro; it takes arguments only", m.Name)
		}
		args := slices.Clone(c.Args)
		for i := range args {
			var err error
			if args[i], err = syntax.ReplaceDeep(args[i], call); err != nil {
				return nil, err
			}
		}
		if has[*syntax.Subquery](m.X) {
			if err := withoutColumns(m, args); err != nil {
				return nil, err
			}
		}
		parameter, err := parametersOf(m, c, args, nil)
		if err != nil {
			return nil, err
		}
		return syntax.ReplaceDeep(m.X, parameter)
	}
	return syntax.ReplaceAll(st, call)
}

// has reports whether a tree has a node of a type.
func has[N syntax.Node](n syntax.Node) (found bool) {
	_, _ = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		_, is := n.(N)
		found = found || is
		return nil, nil
	})
	return found
}

// withoutColumns refuses arguments with columns: in a query inside the macro, their names could mean other columns.
func withoutColumns(m *syntax.CreateMacro, args []syntax.Node) error {
	for _, x := range args {
		if has[*syntax.Name](x) {
			return mistake(x, "the macro %s has a query, so its arguments are constants; write the query here", m.Name)
		}
	}
	return nil
}

// parametersOf returns the function that replaces the parameters of a macro by the arguments of a call.
func parametersOf(m *syntax.CreateMacro, at syntax.Node, args []syntax.Node,
	named []syntax.NamedArgument) (func(syntax.Node) (syntax.Node, error), error) {
	if len(args) > len(m.Parameters) {
		return nil, mistake(at, "the macro %s has %d parameters, found %d arguments", m.Name, len(m.Parameters),
			len(args))
	}
	values := map[string]syntax.Node{}
	for i, x := range args {
		values[folded(m.Parameters[i])] = x
	}
	for _, a := range named {
		name := folded(a.Name)
		if !slices.ContainsFunc(m.Parameters, func(p string) bool { return folded(p) == name }) || values[name] != nil {
			return nil, mistake(at, "the macro %s has no parameter %q, or it has a value already", m.Name, a.Name)
		}
		values[name] = a.Value
	}
	for _, d := range m.Defaults {
		if values[folded(d.Name)] == nil {
			values[folded(d.Name)] = d.Value
		}
	}
	for _, p := range m.Parameters {
		if values[folded(p)] == nil {
			return nil, mistake(at, "the macro %s needs a value of its parameter %q", m.Name, p)
		}
	}
	return func(n syntax.Node) (syntax.Node, error) {
		if name, ok := n.(*syntax.Name); ok && len(name.Parts) == 1 {
			return values[folded(name.Parts[0])], nil
		}
		return nil, nil
	}, nil
}

// tableMacro binds a call of a macro in FROM.
func (b *queryBinder) tableMacro(t *syntax.TableFunction, m *syntax.CreateMacro, l *level) (*Relation, error) {
	if m.Query == nil {
		return nil, mistake(t, "the macro %s is a value, and no table", m.Name)
	}
	args := slices.Clone(t.Call.Args)
	for _, a := range t.Named {
		args = append(args, a.Value)
	}
	if err := withoutColumns(m, args); err != nil {
		return nil, err
	}
	parameter, err := parametersOf(m, t.Call, t.Call.Args, t.Named)
	if err != nil {
		return nil, err
	}
	body, err := syntax.ReplaceAll(m.Query, parameter)
	if err != nil {
		return nil, err
	}
	r, err := b.boundQuery(body.(*syntax.Query), &level{outer: l.outer, free: l.free, catalog: l.catalog})
	if err != nil {
		return nil, err
	}
	return b.withAlias(t, r, m.Name, t.Alias)
}

// lastQuery binds the query whose rows are those of the text.
func (b *queryBinder) lastQuery(q *syntax.Query, after []syntax.Statement, c *catalog) (*Relation, error) {
	if len(after) > 0 {
		return nil, mistake(q, "a query before the last statement has no effect; name it with CREATE VIEW")
	}
	r, err := b.boundQuery(q, &level{catalog: c, free: map[rel.ID]bool{}})
	if err != nil {
		return nil, err
	}
	return b.distinctColumns(r), nil
}

// distinctColumns gives columns of the same name a number, as DuckDB does in files that it writes.
func (b *queryBinder) distinctColumns(r *Relation) *Relation {
	names, taken := r.names(), map[string]bool{}
	for _, n := range names {
		taken[n] = true
	}
	seen, changed := map[string]bool{}, false
	for i, n := range names {
		if seen[n] {
			for k := 1; taken[names[i]]; k++ {
				names[i] = fmt.Sprintf("%s_%d", n, k)
			}
			taken[names[i]], changed = true, true
		}
		seen[names[i]] = true
	}
	if !changed {
		return r
	}
	return b.renamed(r, names)
}

// renamed returns a relation with other names of columns.
func (b *queryBinder) renamed(r *Relation, names []string) *Relation {
	items := r.items(b.estimator)
	for i := range items {
		if i < len(names) {
			items[i].name = names[i]
		}
	}
	return project(b.here(), r.node, items)
}

// boundQuery binds a query. Its level is between it and the queries around it, and takes note of the columns that it
// uses of these.
func (b *queryBinder) boundQuery(q *syntax.Query, around *level) (*Relation, error) {
	if b.depth++; b.depth > maxQueryDepth {
		return nil, mistake(q, "queries stand in each other more than %d levels deep", maxQueryDepth)
	}
	defer func() { b.depth-- }()
	l := *around
	if len(q.With) > 0 {
		l.catalog = &catalog{outer: l.catalog, tables: map[string]*namedQuery{}}
	}
	for i := range q.With {
		cte := &q.With[i]
		if _, ok := l.catalog.tables[folded(cte.Name)]; ok {
			return nil, mistake(cte, "there are two queries %q in this WITH", cte.Name)
		}
		before := &catalog{outer: l.catalog.outer, tables: maps.Clone(l.catalog.tables)}
		inner := l
		named := &namedQuery{CTE: cte, around: before, level: &inner, readers: readersIn(cte.Name, q)}
		l.catalog.tables[folded(cte.Name)] = named
		if q.Recursive && readersIn(cte.Name, cte.Query) > 0 {
			before.tables[folded(cte.Name)], named.union = named, recursive(cte)
		}
	}
	var r *Relation
	var err error
	if n := len(b.binds); n > 0 && b.binds[n-1].Query == q && b.binds[n-1].union != nil {
		return b.recursiveQuery(b.binds[n-1], &l)
	}
	if s, ok := q.Body.(*syntax.Select); ok {
		r, err = b.selected(s, q, &l)
	} else if r, err = b.body(q.Body, &l); err == nil {
		r, err = b.ordered(q, r)
	}
	if err != nil {
		return nil, err
	}
	return b.limited(q, r, l.catalog)
}

// body binds a part of a set operation, or a query in parentheses.
func (b *queryBinder) body(n syntax.QueryBody, l *level) (*Relation, error) {
	switch n := n.(type) {
	case *syntax.Select:
		return b.selected(n, nil, l)
	case *syntax.Query:
		return b.boundQuery(n, l)
	case *syntax.RowValues:
		return b.rowValues(n, l)
	case *syntax.SetOperation:
		return b.setOperation(n, l)
	case *syntax.Pivot:
		return b.pivot(n, &level{outer: l, catalog: l.catalog, free: map[rel.ID]bool{}})
	case *syntax.Unpivot:
		return b.unpivot(n, &level{outer: l, catalog: l.catalog, free: map[rel.ID]bool{}})
	case *syntax.Describe:
		return b.describe(n, l.catalog)
	}
	panic(fmt.Sprintf("logical: unknown body of a query: %T", n))
}

// constant binds an expression without columns to its value.
func (b *queryBinder) constant(n syntax.Node) (*expr.Expr, error) {
	e, err := expr.Bind(n, &expr.Scope{Schema: &gpu.Schema{}, Fold: host.Fold, Now: b.now})
	if err != nil {
		return nil, err
	}
	if _, ok := e.Constant(); !ok {
		return nil, mistake(n, "this must be a constant")
	}
	return e, nil
}

// ordered sorts rows of which only the columns of the result are known: those of a set operation.
func (b *queryBinder) ordered(q *syntax.Query, r *Relation) (*Relation, error) {
	keys := q.Order
	if q.OrderAll != nil {
		keys = everyColumn(q.OrderAll, len(r.columns))
	}
	if len(keys) == 0 {
		return r, nil
	}
	l := &level{names: withTables(r, func(*expr.Tables) *expr.Tables { return nil }), node: r.node,
		free: map[rel.ID]bool{}}
	var exprs []*expr.Expr
	var sort []rel.SortKey
	for _, k := range keys {
		at, err := positionOf(k.X, len(r.columns), "ORDER BY")
		if err != nil {
			return nil, err
		}
		sort = append(sort, rel.SortKey{Descending: k.Descending, NullsFirst: k.NullsFirst})
		if at >= 0 {
			exprs = append(exprs, expr.Column(b.scope(r), at))
			continue
		}
		e, err := b.bound(l, k.X)
		if err != nil {
			return nil, err
		}
		exprs = append(exprs, e)
	}
	return r.over(b.sorted(l.node, exprs, sort)), nil
}

// sorted sorts a node by expressions. Constants do not sort.
func (b *queryBinder) sorted(n rel.Node, exprs []*expr.Expr, keys []rel.SortKey) rel.Node {
	var used []*expr.Expr
	var sort []rel.SortKey
	for i, e := range exprs {
		if _, constant := e.Constant(); !constant {
			used, sort = append(used, e), append(sort, keys[i])
		}
	}
	if len(used) == 0 {
		return n
	}
	wide, ids := rel.Extend(n, used, nil)
	for i := range sort {
		sort[i].Column = ids[i]
	}
	return rel.NewSort(b.here(), wide, sort, 0, -1)
}

// everyColumn returns the keys that ORDER BY ALL stands for.
func everyColumn(k *syntax.OrderKey, columns int) (keys []syntax.OrderKey) {
	for i := range columns {
		key := *k
		key.X = &syntax.NumberLiteral{Text: fmt.Sprint(i + 1)}
		keys = append(keys, key)
	}
	return keys
}

// positionOf returns the position that a number in GROUP BY or ORDER BY means, from 0, and -1 for another expression,
// such as the value of a parameter.
func positionOf(n syntax.Node, columns int, clause string) (int, error) {
	number, ok := n.(*syntax.NumberLiteral)
	if !ok || strings.Trim(number.Text, "0123456789") != "" {
		return -1, nil
	}
	if src := number.Source(); src != "" && src[number.Pos()] != number.Text[0] {
		return -1, nil
	}
	var at int
	if _, err := fmt.Sscan(number.Text, &at); err != nil || at < 1 || at > columns {
		return 0, mistake(n, "%s %s is out of range: a number is the position of a column of the result, 1 to %d",
			clause,
			number.Text, columns)
	}
	return at - 1, nil
}

// setOperation binds UNION, INTERSECT and EXCEPT. A chain of them is no recursion.
func (b *queryBinder) setOperation(n *syntax.SetOperation, l *level) (*Relation, error) {
	var chain []*syntax.SetOperation
	first := syntax.QueryBody(n)
	for {
		op, ok := first.(*syntax.SetOperation)
		if !ok {
			break
		}
		chain, first = append(chain, op), op.Left
	}
	slices.Reverse(chain)
	left, err := b.body(first, l)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(chain); {
		op := chain[i]
		sides := []*Relation{left}
		for ; i < len(chain) && chain[i].Op == op.Op && chain[i].All == op.All && chain[i].ByName == op.ByName; i++ {
			right, err := b.body(chain[i].Right, l)
			if err != nil {
				return nil, err
			}
			sides = append(sides, right)
			if op.Op != "UNION" { // only a union of many sides is one node
				i++
				break
			}
		}
		if op.ByName {
			sides = b.byName(sides)
		}
		if left, err = b.combined(op, sides); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// byName gives all sides the columns of any side, in the order of their first appearance.
func (b *queryBinder) byName(sides []*Relation) []*Relation {
	var names []string
	at := map[string]int{}
	for _, r := range sides {
		for _, n := range r.names() {
			if _, ok := at[folded(n)]; !ok {
				at[folded(n)] = len(names)
				names = append(names, n)
			}
		}
	}
	out := make([]*Relation, len(sides))
	for i, r := range sides {
		items := make([]item, len(names))
		for k, x := range r.items(b.estimator) {
			j := at[folded(r.name(k))]
			items[j] = item{x.expr, names[j], nil}
		}
		for j := range items {
			if items[j].expr == nil {
				f := gpu.Field{Name: names[j], Type: gpu.Of(gpu.Int32), Nullable: true, Annotation: gpu.AllNull}
				items[j] = item{expr.Null(f), names[j], nil}
			}
		}
		out[i] = project(b.here(), r.node, items)
	}
	return out
}

// combined is a set operation of sides that have as many columns.
func (b *queryBinder) combined(op *syntax.SetOperation, sides []*Relation) (*Relation, error) {
	for _, r := range sides[1:] {
		if got, want := len(r.columns), len(sides[0].columns); got != want {
			return nil, mistake(op, "%s needs as many columns on both sides, found %d and %d", op.Op, want, got)
		}
	}
	types, wrong := unionTypes(sides)
	if wrong != nil {
		return nil, mistake(op, "%s: %v", op.Op, wrong)
	}
	var err error
	for i, r := range sides {
		sides[i], err = castTo(b.estimator, r, types, b.origin(".sql"))
		if err != nil {
			return nil, mistake(op, "%s: %v", op.Op, err)
		}
		if i > 0 && rel.Shares(sides[0].node, sides[i].node) || repeats(sides[i].ids()) {
			sides[i] = b.copied(sides[i])
		}
	}
	if op.Op == "UNION" {
		r := b.concatenated(sides)
		if !op.All {
			r = r.over(rel.NewGroup(b.here(), r.node, r.ids(), nil, nil, ""))
		}
		return withTables(r, func(*expr.Tables) *expr.Tables { return nil }), nil
	}
	left, right := sides[0], sides[1]
	var ids []rel.ID
	for i, c := range left.columns {
		column := b.md.Column(c.id)
		column.Field = left.field(i)
		column.Nullable = column.Nullable || right.field(i).Nullable
		ids = append(ids, b.md.Add(column))
	}
	kind := rel.Intersect
	if op.Op == "EXCEPT" {
		kind = rel.Except
	}
	n := rel.NewSetOperation(b.here(), kind, op.All, left.node, right.node, left.ids(), right.ids(), ids)
	return withTables(left.of(n, ids), func(*expr.Tables) *expr.Tables { return nil }), nil
}

// repeats reports whether a column occurs twice.
func repeats(ids []rel.ID) bool { return len(distinctIDs(ids)) < len(ids) }

// copied returns the columns of a relation under IDs of their own.
func (b *queryBinder) copied(r *Relation) *Relation {
	n, ids := rel.Renamed(r.node, r.ids(), "")
	return r.of(n, ids)
}

// rowValues binds VALUES.
func (b *queryBinder) rowValues(n *syntax.RowValues, l *level) (*Relation, error) {
	width := len(n.Rows[0])
	rows := make([][]*expr.Expr, len(n.Rows))
	inner := &level{outer: l, node: b.oneRow(), free: map[rel.ID]bool{}, catalog: l.catalog}
	inner.names = &Relation{node: inner.node}
	constant := true
	for i, row := range n.Rows {
		if len(row) != width {
			return nil, mistake(n, "row %d of VALUES has %d values, and the first one has %d", i+1, len(row), width)
		}
		for _, x := range row {
			e, err := b.bound(inner, x)
			if err != nil {
				return nil, err
			}
			_, value := e.Constant()
			constant = constant && value
			rows[i] = append(rows[i], e)
		}
	}
	names := make([]string, width)
	fields := make([]gpu.Field, width)
	for c := range width {
		names[c] = fmt.Sprintf("col%d", c)
		var values []*expr.Expr
		for i := range rows {
			values = append(values, rows[i][c])
		}
		nulls, texts := make([]bool, len(rows)), make([]bool, len(rows))
		for i, row := range n.Rows {
			nulls[i] = isNullLiteral(row[c])
			_, texts[i] = row[c].(*syntax.StringLiteral)
		}
		f, err := sameTypes(values, nulls, texts)
		if err != nil {
			return nil, mistake(n, "column %d of VALUES: %v", c+1, err)
		}
		for i := range rows {
			rows[i][c] = values[i]
		}
		fields[c] = f
		fields[c].Name = names[c]
	}
	if !constant {
		var sides []*Relation
		for _, row := range rows {
			items := make([]item, width)
			for c, e := range row {
				items[c] = item{e, names[c], nil}
			}
			sides = append(sides, project(b.here(), inner.node, items))
		}
		if len(sides) == 1 {
			return sides[0], nil
		}
		return b.concatenated(sides), nil
	}
	out := &Relation{}
	for _, f := range fields {
		out.columns = append(out.columns, column{id: b.md.Add(rel.Column{Field: f})})
	}
	scalars := make([][]gpu.Scalar, len(rows))
	for i, row := range rows {
		scalars[i] = make([]gpu.Scalar, width)
		for c, e := range row {
			scalars[i][c], _ = e.Constant()
			scalars[i][c].Type = fields[c].Type // a decimal may be stored in fewer bytes
		}
	}
	out.node = rel.NewValues(b.md, b.here(), out.ids(), scalars)
	return out, nil
}

// oneRow is the input of a query without FROM.
func (b *queryBinder) oneRow() rel.Node {
	id := b.md.Add(rel.Column{Field: gpu.Field{Name: "$row", Type: gpu.Of(gpu.Bool)}})
	return rel.NewValues(b.md, b.here(), []rel.ID{id}, [][]gpu.Scalar{{gpu.BoolScalar(true)}})
}

func isNullLiteral(n syntax.Node) bool {
	w, ok := n.(*syntax.WordLiteral)
	return ok && w.Word == "NULL"
}

// sameTypes casts expressions to their common type, and returns it as a field. Values that are strings in quotes
// take the type of the others.
func sameTypes(exprs []*expr.Expr, nulls, texts []bool) (f gpu.Field, err error) {
	first := true
	for _, text := range []bool{false, true} {
		if text && !first {
			break
		}
		for i, e := range exprs {
			f.Nullable = f.Nullable || e.Nullable()
			if nulls[i] || texts[i] != text {
				continue
			}
			if first {
				f.Type, first = e.Type(), false
				continue
			}
			t, ok := commonType(f.Type, e.Type())
			if !ok {
				return f, fmt.Errorf("%v and %v have no common type; cast one of them", f.Type, e.Type())
			}
			f.Type = t
		}
	}
	if first { // nothing but NULL
		f.Type, f.Annotation = gpu.Of(gpu.Int32), gpu.AllNull
	}
	for i, e := range exprs {
		if nulls[i] {
			exprs[i] = expr.Null(gpu.Field{Type: f.Type})
			continue
		}
		if exprs[i], err = expr.Cast(e, f.Type, host.Fold); err != nil {
			return f, err
		}
	}
	return f, nil
}

// readersIn counts the tables of a name in statements. One that another table of the name hides counts too.
func readersIn(name string, list ...syntax.Statement) (n int) {
	for _, s := range list {
		syntax.EachTable(s, func(t syntax.TableRef) {
			if t, ok := t.(*syntax.TableName); ok && len(t.Parts) == 1 && folded(t.Parts[0]) == folded(name) {
				n++
			}
		})
	}
	return n
}
