package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// output is an expression of a select list, of ORDER BY, HAVING or QUALIFY, on its way to a column.
type output struct {
	x      syntax.Node
	name   string
	tables *expr.Tables
	e      *expr.Expr // once bound
}

// selecting binds one SELECT, in the order of SQL: FROM, WHERE, GROUP BY, HAVING, the window functions, QUALIFY, the
// list, DISTINCT, ORDER BY.
type selecting struct {
	*queryBinder
	*level
	sel     *syntax.Select
	outputs []output // of the list, then of ORDER BY
	visible int      // outputs of the list
	calls   []expr.AggregateCall
}

// selected binds a SELECT. q has its ORDER BY; nil is none.
func (b *queryBinder) selected(n *syntax.Select, q *syntax.Query, around *level) (*Relation, error) {
	n, q, err := withWindows(n, q)
	if err != nil {
		return nil, err
	}
	l := &level{outer: around, catalog: around.catalog, free: map[rel.ID]bool{}}
	in, err := b.from(n, l)
	if err != nil {
		return nil, err
	}
	return b.selectFrom(n, q, l, in)
}

// selectFrom binds a SELECT over the rows of its FROM.
func (b *queryBinder) selectFrom(n *syntax.Select, q *syntax.Query, l *level, in *Relation) (*Relation, error) {
	s := &selecting{queryBinder: b, sel: n, level: l}
	s.names, s.node, s.aliases = in, in.node, map[string]*selectAlias{}
	for _, x := range n.Items {
		if name := folded(x.Alias); name != "" && s.aliases[name] == nil {
			s.aliases[name] = &selectAlias{x: x.X}
		}
	}
	if n.Sample != nil { // of the rows before WHERE
		var err error
		if s.node, err = b.sampled(s.node, n.Sample); err != nil {
			return nil, err
		}
	}
	if n.Where != nil {
		if err := s.filtered(n.Where, "WHERE"); err != nil {
			return nil, err
		}
	}
	if err := s.list(); err != nil {
		return nil, err
	}
	s.visible = len(s.outputs)
	sort, err := s.orderKeys(q)
	if err != nil {
		return nil, err
	}
	on, err := s.distinctOn()
	if err != nil {
		return nil, err
	}
	every := func(int) bool { return true }
	grouped := s.isGrouped()
	if grouped {
		err = s.unnestedKeys()
	} else {
		err = s.unnested(every)
	}
	if err != nil {
		return nil, err
	}
	having, qualify := n.Having, n.Qualify
	if err := s.grouped(&having, &qualify); err != nil {
		return nil, err
	}
	if having != nil {
		if err := s.filtered(having, "HAVING"); err != nil {
			return nil, err
		}
	}
	if grouped {
		if err := s.unnested(every); err != nil {
			return nil, err
		}
	}
	if err := s.windows(qualify); err != nil {
		return nil, err
	}
	return s.result(sort, on), nil
}

// withWindows replaces the names of the windows of a SELECT by what they stand for.
func withWindows(n *syntax.Select, q *syntax.Query) (*syntax.Select, *syntax.Query, error) {
	windows := map[string]*syntax.Window{}
	whole := func(at syntax.Node, w *syntax.Window) (*syntax.Window, error) {
		if w.Name == "" {
			return w, nil
		}
		base, ok := windows[folded(w.Name)]
		if !ok {
			return nil, mistake(at, "there is no window %q", w.Name)
		}
		c := *base
		switch {
		case len(w.Partition) > 0:
			return nil, mistake(at, "the window %q has its partitions already", w.Name)
		case len(w.Order) > 0 && len(c.Order) > 0:
			return nil, mistake(at, "the window %q has its order already", w.Name)
		case len(w.Order) > 0:
			c.Order = w.Order
		}
		if w.Frame != nil {
			c.Frame = w.Frame
		}
		return &c, nil
	}
	for i := range n.Windows {
		w, err := whole(&syntax.WordLiteral{Base: n.Windows[i].Base}, n.Windows[i].Window)
		if err != nil {
			return nil, nil, err
		}
		windows[folded(n.Windows[i].Name)] = w
	}
	named := func(x syntax.Node) (syntax.Node, error) {
		if x == nil {
			return nil, nil
		}
		return syntax.Replace(x, func(x syntax.Node) (syntax.Node, error) {
			call, ok := x.(*syntax.Call)
			if !ok || call.Over == nil || call.Over.Name == "" {
				return nil, nil
			}
			w, err := whole(call, call.Over)
			c := *call
			c.Over = w
			return &c, err
		})
	}
	c := *n
	c.Items = slices.Clone(n.Items)
	var err error
	for i := range c.Items {
		if c.Items[i].X, err = named(c.Items[i].X); err != nil {
			return nil, nil, err
		}
	}
	if c.Qualify, err = named(n.Qualify); err != nil {
		return nil, nil, err
	}
	if q != nil && len(q.Order) > 0 {
		o := *q
		o.Order, q = slices.Clone(q.Order), &o
		for i := range o.Order {
			if o.Order[i].X, err = named(o.Order[i].X); err != nil {
				return nil, nil, err
			}
		}
	}
	return &c, q, nil
}

// filtered keeps the rows on which a condition is true.
func (s *selecting) filtered(n syntax.Node, clause string) error {
	for _, c := range conjuncts(n) {
		done, err := s.semiJoined(s.level, c)
		if err != nil {
			return err
		}
		if done {
			continue
		}
		e, err := s.bound(s.level, c)
		if err != nil {
			return err
		}
		if e, err = truth(c, e, clause); err != nil {
			return err
		}
		s.node = rel.NewFilter(s.here(), s.node, expr.Conjuncts(e))
	}
	return nil
}

// truth returns a condition as a BOOLEAN: a number is true unless it is 0.
func truth(n syntax.Node, e *expr.Expr, clause string) (*expr.Expr, error) {
	if e.Type().Kind == gpu.Bool {
		return e, nil
	}
	if _, constant := e.Constant(); !constant && !e.Type().IsInteger() && e.Type().Kind != gpu.Float64 &&
		e.Type().Kind != gpu.Float32 && e.Type().Kind != gpu.Decimal {
		return nil, mistake(n, "the condition of %s is a value of type %v; it must be BOOLEAN", clause, e.Type())
	}
	e, err := expr.Cast(e, gpu.Of(gpu.Bool), host.Fold)
	if err != nil {
		return nil, mistake(n, "the condition of %s: %v", clause, err)
	}
	return e, nil
}

// conjuncts splits a condition at its ANDs.
func conjuncts(n syntax.Node) []syntax.Node {
	if l, ok := n.(*syntax.Logic); ok && l.Op == "AND" {
		var all []syntax.Node
		for _, a := range l.Args {
			all = append(all, conjuncts(a)...)
		}
		return all
	}
	return []syntax.Node{n}
}

// list expands stars, and names the columns of the select list.
func (s *selecting) list() error {
	items := s.sel.Items
	if len(items) == 0 { // FROM without SELECT
		items = []syntax.SelectItem{{X: &syntax.StarExpr{Base: s.sel.Base}}}
	}
	for _, x := range items {
		if star := columnsIn(x.X); star != nil {
			outputs, err := s.eachColumn(x.X, star)
			if err != nil {
				return err
			}
			for i := range outputs {
				if x.Alias != "" {
					outputs[i].name = x.Alias
				}
			}
			s.outputs = append(s.outputs, outputs...)
			continue
		}
		star, ok := x.X.(*syntax.StarExpr)
		if !ok {
			s.outputs = append(s.outputs, s.output(x))
			continue
		}
		outputs, err := s.star(star)
		if err != nil {
			return err
		}
		s.outputs = append(s.outputs, outputs...)
	}
	return nil
}

func (s *selecting) output(x syntax.SelectItem) output {
	o := output{x: x.X, name: x.Alias}
	name, bare := x.X.(*syntax.Name)
	if bare && (o.name == "" || o.name == name.Parts[len(name.Parts)-1]) {
		if e, err := expr.Bind(name, s.scope(s.names)); err == nil {
			if id, ok := e.IsColumn(); ok && s.names.index(id) >= 0 {
				at := s.names.index(id)
				o.name, o.tables = s.names.name(at), s.names.columns[at].tables
			}
		}
		if o.name == "" {
			o.name = name.Parts[len(name.Parts)-1]
		}
	}
	if o.name == "" {
		o.name = columnName(x.X)
	}
	return o
}

// columnName is the name of a computed column, as DuckDB names it.
func columnName(n syntax.Node) string {
	switch n := n.(type) {
	case *syntax.Call:
		if n.Star && n.Over == nil && n.Filter == nil {
			return "count_star()"
		}
	case *syntax.StringLiteral:
		return "'" + n.Text + "'"
	}
	return n.String()
}

// star returns the columns of a star.
func (s *selecting) star(n *syntax.StarExpr) ([]output, error) {
	in, scope := s.names, s.scope(s.names)
	among := scope.All()
	if n.Table != "" {
		if among = scope.Table(n.Table); len(among) == 0 {
			return nil, mistake(n, "there is no table %q here%s", n.Table, syntax.Suggest(n.Table, scope.TableNames()))
		}
	}
	if len(among) == 0 && len(in.unreadable) == 0 {
		return nil, mistake(n, "* needs a FROM")
	}
	excluded, replaced, names := map[int]bool{}, map[int]syntax.Node{}, map[int]string{}
	find := func(name syntax.StarName, clause string) (int, error) {
		found := scope.Find(name, among)
		if len(found) == 1 || len(found) > 1 && clause == "EXCLUDE" {
			return found[0], nil
		}
		if len(found) > 1 {
			return 0, mistake(n, "%s: * has %d columns %q; write the name of a table before it", clause, len(found),
				name.Name)
		}
		if _, ok := in.findUnreadable(name.Table, name.Name); ok && clause == "EXCLUDE" {
			return -1, nil
		}
		return 0, mistake(n, "%s: * has no column %q%s", clause, name.Name, syntax.Suggest(name.Name, in.names()))
	}
	for _, x := range n.Exclude {
		if _, err := find(x, "EXCLUDE"); err != nil {
			return nil, err
		}
		for _, at := range scope.Find(x, among) {
			excluded[at] = true
		}
	}
	for _, x := range n.Replace {
		at, err := find(x.StarName, "REPLACE")
		if err != nil {
			return nil, err
		}
		replaced[at] = x.X
	}
	for _, x := range n.Rename {
		at, err := find(x.StarName, "RENAME")
		if err != nil {
			return nil, err
		}
		names[at] = x.As
	}
	for _, u := range in.unreadable {
		if u.in(n.Table) && !slices.ContainsFunc(n.Exclude,
			func(x syntax.StarName) bool { return strings.EqualFold(x.Name, u.Name) && u.in(x.Table) }) {
			return nil, mistake(n, "* has columns that cannot be read: %v; leave them out by EXCLUDE", u)
		}
	}
	var out []output
	for _, at := range among {
		o := output{x: &syntax.Resolved{Base: n.Base, Value: expr.Column(scope, at)}, name: in.name(at),
			tables: in.columns[at].tables}
		if x, ok := replaced[at]; ok {
			o.x, o.tables = x, nil
		}
		if name, ok := names[at]; ok {
			o.name, o.tables = name, nil
		}
		like, err := s.isLike(n, in.name(at))
		if err != nil {
			return nil, err
		}
		if !excluded[at] && like {
			out = append(out, o)
		}
	}
	if len(out) == 0 && n.Like != "" {
		return nil, mistake(n.Pattern, "* has no column whose name matches the pattern")
	}
	if len(out) == 0 {
		return nil, mistake(n, "EXCLUDE leaves no column")
	}
	return out, nil
}

// isLike reports whether a column of a star meets its LIKE, if it has one.
func (s *selecting) isLike(n *syntax.StarExpr, name string) (bool, error) {
	if n.Like == "" {
		return true, nil
	}
	x := &syntax.Resolved{Base: n.Base, Value: expr.Literal(gpu.StringScalar(name))}
	base := syntax.At(n, x, n.Pattern)
	var condition syntax.Node = &syntax.Like{Base: base, X: x, Pattern: n.Pattern, Fold: n.Like == "ILIKE"}
	if n.Like == "SIMILAR TO" {
		condition = &syntax.Call{Base: base, Name: "regexp_full_match", Args: []syntax.Node{x, n.Pattern}}
	}
	e, err := s.constant(condition)
	if err != nil {
		return false, err
	}
	v, _ := e.Constant()
	return v.Valid && (v == gpu.BoolScalar(true)) != n.Not, nil
}

// sortOutput is a key of ORDER BY: an output.
type sortOutput struct {
	output int
	rel.SortKey
}

// orderKeys finds the outputs by which ORDER BY sorts, and adds those that the list does not have.
func (s *selecting) orderKeys(q *syntax.Query) (sort []sortOutput, err error) {
	if q == nil {
		return nil, nil
	}
	keys := q.Order
	if q.OrderAll != nil {
		keys = everyColumn(q.OrderAll, s.visible)
	}
	for _, k := range keys {
		at, err := positionOf(k.X, s.visible, "ORDER BY")
		if err != nil {
			return nil, err
		}
		if at < 0 {
			at = s.outputOf(k.X)
		}
		if at < 0 {
			if s.sel.Distinct && len(s.sel.DistinctOn) == 0 {
				return nil, mistake(k.X, "with DISTINCT, ORDER BY can use columns of the select list only")
			}
			at = len(s.outputs)
			s.outputs = append(s.outputs, output{x: k.X})
		}
		sort = append(sort, sortOutput{at, rel.SortKey{Descending: k.Descending, NullsFirst: k.NullsFirst}})
	}
	return sort, nil
}

// outputOf returns the column of the list that a key means: by its name, or by the same expression; -1 for none.
func (s *selecting) outputOf(n syntax.Node) int {
	list := s.outputs[:s.visible]
	if name, ok := n.(*syntax.Name); ok && len(name.Parts) == 1 {
		for i, x := range s.sel.Items {
			if x.Alias != "" && strings.EqualFold(x.Alias, name.Parts[0]) {
				return slices.IndexFunc(list, func(o output) bool { return o.x == s.sel.Items[i].X })
			}
		}
		if at := slices.IndexFunc(list, func(o output) bool {
			return strings.EqualFold(o.name,
				name.Parts[0])
		}); at >= 0 {
			return at
		}
	}
	text := n.String()
	return slices.IndexFunc(list, func(o output) bool { return o.x.String() == text })
}

// distinctOn returns the outputs of DISTINCT ON.
func (s *selecting) distinctOn() (on []int, err error) {
	for _, x := range s.sel.DistinctOn {
		at, err := positionOf(x, s.visible, "DISTINCT ON")
		if err != nil {
			return nil, err
		}
		if at < 0 {
			at = s.outputOf(x)
		}
		if at < 0 {
			at = len(s.outputs)
			s.outputs = append(s.outputs, output{x: x})
		}
		on = append(on, at)
	}
	return on, nil
}

// windows computes window functions, keeps the rows that QUALIFY wants, and binds the outputs.
func (s *selecting) windows(qualify syntax.Node) (err error) {
	list := make([]syntax.Node, len(s.outputs), len(s.outputs)+1) // nil for what is computed after QUALIFY
	for i, o := range s.outputs {
		if qualify == nil || s.hasWindow(o.x) {
			list[i] = o.x
		}
	}
	if qualify != nil {
		list = append(list, qualify)
	}
	for i, x := range list {
		if x == nil {
			continue
		}
		if list[i], err = s.resolved(s.level, x); err != nil {
			return err
		}
	}
	in := s.names.over(s.node)
	if s.groups != nil {
		in = &Relation{node: s.node}
	}
	w := &windows{stepBinder: s.stepBinder, in: in}
	for i, x := range list {
		if x == nil {
			continue
		}
		if list[i], err = w.add(x, s.scopeAt(in, ".sql")); err != nil {
			return err
		}
	}
	below := w.node()
	s.node = below.node
	below.scope.Origin = s.origin(".sql")
	for i, x := range list {
		if x == nil {
			continue
		}
		e, err := expr.Bind(x, below.scope)
		if err != nil {
			return err
		}
		if i < len(s.outputs) {
			s.outputs[i].e = e
			continue
		}
		if e, err = truth(qualify, e, "QUALIFY"); err != nil {
			return err
		}
		s.node = rel.NewFilter(s.here(), s.node, expr.Conjuncts(e))
	}
	for i := range s.outputs {
		o := &s.outputs[i]
		if list[i] == nil { // its subqueries see no row that QUALIFY drops
			if o.e, err = s.bound(s.level, o.x); err != nil {
				return err
			}
		}
		if isNullLiteral(o.x) { // its type is that of the values with which it is combined
			o.e = expr.Null(gpu.Field{Type: gpu.Of(gpu.Int32), Annotation: gpu.AllNull})
		}
	}
	return nil
}

// result projects the outputs, drops duplicates and sorts.
func (s *selecting) result(sort []sortOutput, on []int) *Relation {
	items := make([]item, len(s.outputs))
	for i, o := range s.outputs {
		items[i] = item{o.e, o.name, o.tables}
		if i >= s.visible {
			items[i].name = o.e.String()
		}
	}
	r := project(s.here(), s.node, items)
	all := r.columns
	switch {
	case len(on) > 0:
		r = s.firstOf(r, on, sort)
	case s.sel.Distinct:
		var ids []rel.ID
		for _, c := range all {
			ids = append(ids, c.id)
		}
		r = r.over(rel.NewGroup(s.here(), r.node, distinctIDs(ids), nil, nil, ""))
	}
	r.columns = all[:s.visible:s.visible]
	if len(sort) > 0 {
		var keys []rel.SortKey
		for _, k := range sort {
			if _, constant := s.outputs[k.output].e.Constant(); !constant {
				keys = append(keys, rel.SortKey{Column: all[k.output].id, Descending: k.Descending,
					NullsFirst: k.NullsFirst})
			}
		}
		if len(keys) > 0 {
			r = r.over(rel.NewSort(s.here(), r.node, keys, 0, -1))
		}
	}
	return r
}

// firstOf keeps the first row, in the order of ORDER BY, of those with equal values of DISTINCT ON.
func (s *selecting) firstOf(r *Relation, on []int, sort []sortOutput) *Relation {
	var partition []rel.ID
	for _, at := range on {
		partition = append(partition, r.columns[at].id)
	}
	var keys []rel.SortKey
	for _, k := range sort {
		keys = append(keys, rel.SortKey{Column: r.columns[k.output].id, Descending: k.Descending,
			NullsFirst: k.NullsFirst})
	}
	n, number := ranked(s.here(), r.node, distinctIDs(partition), keys)
	first := computeOf("%s = 1", n, number)
	return r.over(rel.NewFilter(s.here(), n, []*expr.Expr{first}))
}

// ranked numbers the rows of partitions in an order, from 1.
func ranked(origin expr.Origin, in rel.Node, partition []rel.ID, order []rel.SortKey) (rel.Node, rel.ID) {
	f := window.Function{Kind: window.RowNumber, Value: -1, Offset: -1, Default: -1, Output: gpu.Of(gpu.Int64)}
	id := in.Rel().Metadata.Add(rel.Column{Field: gpu.Field{Name: "row_number", Type: f.Output}})
	return rel.NewWindow(origin, in, partition, order, []window.Function{f}, []rel.ID{id}), id
}

// groupKey is a key of GROUP BY.
type groupKey struct {
	x       syntax.Node
	text    string     // of x
	e       *expr.Expr // over the rows before the group-by
	id      rel.ID     // after it
	aliases []string   // names of the select list by which GROUP BY has it
}

// grouping is what expressions can use after a group-by.
type grouping struct {
	keys   []groupKey
	sets   [][]bool
	number rel.ID // of the set
}

// pendingCall stands for an aggregate between the finding of all aggregates and the group-by.
type pendingCall struct {
	call int
	text string
}

func (p pendingCall) String() string { return p.text }

// grouped computes the group-by of a SELECT, if there is one.
func (s *selecting) grouped(having, qualify *syntax.Node) (err error) {
	aggregates := s.sel.GroupAll || len(s.sel.Group) > 0 || *having != nil
	list := []*syntax.Node{having, qualify}
	for i := range s.outputs {
		list = append(list, &s.outputs[i].x)
	}
	for _, x := range list {
		if *x == nil {
			continue
		}
		if *x, err = s.withoutInnerAggregates(*x); err != nil {
			return err
		}
		aggregates = aggregates || s.hasAggregate(*x, 0)
	}
	aggregates = aggregates || len(s.calls) > 0
	if !aggregates {
		return nil
	}
	g := &grouping{number: rel.None}
	if err := s.groupKeys(g); err != nil {
		return err
	}
	for _, x := range list {
		if *x != nil {
			if *x, err = s.withoutAggregates(*x, 0); err != nil {
				return err
			}
		}
	}
	var exprs []*expr.Expr
	var names []string
	for _, k := range g.keys {
		name := k.text
		if id, bare := k.e.IsColumn(); bare {
			name = s.md.Column(id).Name
		}
		exprs, names = append(exprs, k.e), append(names, name)
	}
	made := s.groupBy(s.node, exprs, names, s.calls, g.sets)
	for i := range g.keys {
		g.keys[i].id = made.keys[i]
	}
	if g.sets != nil {
		g.number = made.keys[len(g.keys)]
	}
	s.node, s.groups = made.node, g
	for _, x := range list {
		if *x == nil {
			continue
		}
		*x, err = syntax.ReplaceDeep(*x, func(n syntax.Node) (syntax.Node, error) {
			if r, ok := n.(*syntax.Resolved); ok {
				if p, ok := r.Value.(pendingCall); ok {
					return &syntax.Resolved{Base: r.Base, Value: s.node.Rel().Expr(made.calls[p.call])}, nil
				}
			}
			return nil, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hasAggregate reports whether a tree has an aggregate of this SELECT, and hasWindow whether it has a window function,
// also behind an alias.
func (s *selecting) hasAggregate(n syntax.Node, depth int) bool {
	return s.hasCall(n, depth, func(c *syntax.Call) bool { return c.Over == nil && expr.IsAggregate(c.Name) })
}

func (s *selecting) hasWindow(n syntax.Node) bool {
	return s.hasCall(n, 0, func(c *syntax.Call) bool { return c.Over != nil })
}

// hasCall reports whether a tree has a call of a kind, also behind an alias. depth is the number of aliases above it.
func (s *selecting) hasCall(n syntax.Node, depth int, is func(*syntax.Call) bool) (found bool) {
	_, _ = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		switch n := n.(type) {
		case *syntax.Call:
			found = found || is(n)
		case *syntax.Name:
			if a := s.alias(n); a != nil && depth < maxAliases {
				found = found || s.hasCall(a.x, depth+1, is)
			}
		}
		return nil, nil
	})
	return found
}

// maxAliases bounds the chain of aliases that stand for each other.
const maxAliases = 20

// withoutAggregates binds the aggregates of a tree over the rows before the group-by.
func (s *selecting) withoutAggregates(n syntax.Node, depth int) (syntax.Node, error) {
	return syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		switch n := n.(type) {
		case *syntax.Name:
			if a := s.alias(n); a != nil && s.hasAggregate(a.x, depth) {
				if depth > maxAliases {
					return nil, mistake(n, "%q uses itself", n.Parts[0])
				}
				return s.withoutAggregates(a.x, depth+1)
			}
		case *syntax.Call:
			if n.Over == nil && expr.IsAggregate(n.Name) {
				return s.aggregateCall(n)
			}
		}
		return nil, nil
	})
}

// withoutInnerAggregates binds the aggregates in the subqueries of a tree that belong to this SELECT: all of their
// columns are columns of its tables, by the names of these.
func (s *selecting) withoutInnerAggregates(n syntax.Node) (syntax.Node, error) {
	return syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		sub, ok := n.(*syntax.Subquery)
		if !ok {
			return nil, nil
		}
		inner := map[string]bool{} // names of the tables in the subquery
		syntax.EachTable(sub.Query, func(t syntax.TableRef) {
			inner[folded(syntax.AliasOf(t).Name)] = true
			if t, ok := t.(*syntax.TableName); ok {
				inner[folded(t.Parts[len(t.Parts)-1])] = true
			}
		})
		found := false
		q, err := syntax.ReplaceAll(sub.Query, func(n syntax.Node) (syntax.Node, error) {
			if c, ok := n.(*syntax.Call); ok && c.Over == nil && expr.IsAggregate(c.Name) && s.belongs(c, inner) {
				found = true
				return s.aggregateCall(c)
			}
			return nil, nil
		})
		if err != nil || !found {
			return nil, err
		}
		c := *sub
		c.Query = q.(*syntax.Query)
		return &c, nil
	})
}

// belongs reports whether an aggregate in a subquery with tables of some names has columns, all of this SELECT.
func (s *selecting) belongs(c *syntax.Call, inner map[string]bool) bool {
	some, all := false, !has[*syntax.Subquery](c)
	_, _ = syntax.Replace(c, func(n syntax.Node) (syntax.Node, error) {
		name, ok := n.(*syntax.Name)
		if !ok {
			return nil, nil
		}
		_, err := expr.Bind(name, s.scope(s.names))
		some = true
		all = all && err == nil && (len(inner) == 0 || len(name.Parts) > 1 && !inner[folded(name.Parts[0])])
		return nil, nil
	})
	return some && all
}

// aggregateCall binds a call of an aggregate, and returns a tree in which its results are pending.
func (s *selecting) aggregateCall(n *syntax.Call) (syntax.Node, error) {
	x, err := s.resolvedBelow(n)
	if err != nil {
		return nil, err
	}
	if s.onlyOuter(x) {
		return nil, mistake(n, "an aggregate of columns of the query around a subquery is an aggregate of that query; "+
			"write the names of the tables before the columns, as in max(t.a)")
	}
	found, post, err := expr.BindAggregates(x, s.scopeAt(s.names.over(s.node), ".sql"))
	if err != nil {
		return nil, err
	}
	pending := map[string]pendingCall{}
	for i, c := range found {
		at := slices.IndexFunc(s.calls, c.Equal)
		if at < 0 {
			at = len(s.calls)
			s.calls = append(s.calls, c)
		}
		pending[expr.AggregateColumn(i)] = pendingCall{at, c.String()}
	}
	return syntax.Replace(post, func(n syntax.Node) (syntax.Node, error) {
		if name, ok := n.(*syntax.Name); ok {
			if p, ok := pending[name.Parts[0]]; ok {
				return &syntax.Resolved{Base: name.Base, Value: p}, nil
			}
		}
		return nil, nil
	})
}

// onlyOuter reports whether a tree has columns of the queries around, and no other ones.
func (s *selecting) onlyOuter(n syntax.Node) bool {
	outer, own := false, false
	_, _ = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		switch n := n.(type) {
		case *syntax.Name:
			own = true
		case *syntax.Resolved:
			if e, ok := n.Value.(*expr.Expr); ok {
				for _, id := range e.Columns() {
					has := s.node.Rel().Has(id)
					outer, own = outer || !has, own || has
				}
			}
		}
		return nil, nil
	})
	return outer && !own
}

// resolvedBelow resolves what is inside a call.
func (s *selecting) resolvedBelow(n *syntax.Call) (syntax.Node, error) {
	return syntax.Replace(n, func(x syntax.Node) (syntax.Node, error) {
		if x == syntax.Node(n) {
			return nil, nil
		}
		return s.resolved(s.level, x)
	})
}

// groupKeys binds the keys of GROUP BY, and finds its grouping sets.
func (s *selecting) groupKeys(g *grouping) error {
	add := func(n syntax.Node) (int, error) {
		at, err := positionOf(n, s.visible, "GROUP BY")
		if err != nil {
			return 0, err
		}
		if at >= 0 {
			n = s.outputs[at].x
		}
		return s.groupKey(g, n)
	}
	if s.sel.GroupAll {
		for _, o := range s.outputs[:s.visible] {
			if !s.hasAggregate(o.x, 0) {
				if _, err := s.groupKey(g, o.x); err != nil {
					return err
				}
			}
		}
		return nil
	}
	sets := [][]int{{}} // the cross product of what the elements list
	several := false
	for i := range s.sel.Group {
		element, err := s.setsOf(&s.sel.Group[i], add)
		if err != nil {
			return err
		}
		several = several || s.sel.Group[i].Kind != ""
		var product [][]int
		for _, a := range sets {
			for _, b := range element {
				product = append(product, append(slices.Clone(a), b...))
			}
		}
		if sets = product; len(sets) > maxGroupingSets {
			return mistake(&s.sel.Group[i], "GROUP BY has more than %d grouping sets", maxGroupingSets)
		}
	}
	if !several {
		return nil
	}
	for _, set := range sets {
		has := make([]bool, len(g.keys))
		for _, k := range set {
			has[k] = true
		}
		g.sets = append(g.sets, has)
	}
	return nil
}

// maxGroupingSets bounds the grouping sets of a query: each row is read once for each.
const maxGroupingSets = 127

// setsOf returns the grouping sets of an element of GROUP BY, as lists of keys. add returns the number of a key.
func (s *selecting) setsOf(n *syntax.GroupItem, add func(syntax.Node) (int, error)) (sets [][]int, err error) {
	list := func(xs []syntax.Node) (keys []int, err error) {
		for _, x := range xs {
			k, err := add(x)
			if err != nil {
				return nil, err
			}
			keys = append(keys, k)
		}
		return keys, nil
	}
	var lists [][]int
	for _, xs := range n.Lists {
		keys, err := list(xs)
		if err != nil {
			return nil, err
		}
		lists = append(lists, keys)
	}
	switch n.Kind {
	case "ROLLUP":
		for size := len(lists); size >= 0; size-- {
			sets = append(sets, slices.Concat(lists[:size]...))
		}
	case "CUBE":
		if len(lists) > 6 {
			return nil, mistake(n, "CUBE has %d keys, and at most 6 are possible", len(lists))
		}
		for left := range 1 << len(lists) {
			var set []int
			for i, keys := range lists {
				if left>>(len(lists)-1-i)&1 == 0 {
					set = append(set, keys...)
				}
			}
			sets = append(sets, set)
		}
	case "GROUPING SETS":
		for i := range n.Sets {
			more, err := s.setsOf(&n.Sets[i], add)
			if err != nil {
				return nil, err
			}
			sets = append(sets, more...)
		}
	default:
		keys := slices.Concat(lists...)
		if n.X != nil {
			k, err := add(n.X)
			if err != nil {
				return nil, err
			}
			keys = []int{k}
		}
		sets = [][]int{keys}
	}
	return sets, nil
}

// groupKey returns the number of a key, which it adds unless there is an equal one.
func (s *selecting) groupKey(g *grouping, n syntax.Node) (int, error) {
	var aliases []string
	if name, ok := n.(*syntax.Name); ok {
		if a := s.alias(name); a != nil {
			n, aliases = a.x, name.Parts
		}
	}
	if s.hasAggregate(n, 0) {
		return 0, mistake(n, "GROUP BY cannot have an aggregate")
	}
	e, err := s.bound(s.level, n)
	if err != nil {
		return 0, err
	}
	if at := slices.IndexFunc(g.keys, func(k groupKey) bool { return k.e.Equal(e) }); at >= 0 {
		g.keys[at].aliases = append(g.keys[at].aliases, aliases...)
		return at, nil
	}
	g.keys = append(g.keys, groupKey{x: n, text: n.String(), e: e, aliases: aliases})
	return len(g.keys) - 1, nil
}

// key returns a tree as the key of the group-by that it is; nil if it is none.
func (b *queryBinder) key(l *level, n syntax.Node) *expr.Expr {
	plain := true // it has nothing that would have to be bound twice
	_, _ = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		switch n := n.(type) {
		case *syntax.Subquery, *syntax.Parameter, *syntax.Row:
			plain = false
		case *syntax.Resolved:
			_, bound := n.Value.(*expr.Expr)
			plain = plain && bound
		case *syntax.Call:
			plain = plain && n.Over == nil
		}
		return nil, nil
	})
	var e *expr.Expr
	if plain {
		e, _ = expr.Bind(n, b.scope(l.names))
	}
	for _, k := range l.groups.keys {
		if e != nil && k.e.Equal(e) || e == nil && k.text == n.String() {
			return l.node.Rel().Expr(k.id)
		}
	}
	return nil
}

// keyCalled returns the key that GROUP BY has under the name of a column of the select list; nil if there is none.
func keyCalled(l *level, n syntax.Node) *expr.Expr {
	name, ok := n.(*syntax.Name)
	if !ok || len(name.Parts) != 1 {
		return nil
	}
	for _, k := range l.groups.keys {
		if slices.ContainsFunc(k.aliases, func(a string) bool { return strings.EqualFold(a, name.Parts[0]) }) {
			return l.node.Rel().Expr(k.id)
		}
	}
	return nil
}

// groupingCall binds grouping(a, b, …).
func (b *queryBinder) groupingCall(l *level, n *syntax.Call) (syntax.Node, error) {
	g := l.groups
	scope := &expr.Scope{Schema: &gpu.Schema{}, Fold: host.Fold, Grouping: &expr.Grouping{Keys: len(g.keys),
		Sets: g.sets}}
	r := l.node.Rel()
	for i, k := range g.keys {
		f := r.Field(k.id)
		f.Name = fmt.Sprintf("$key%d", i)
		scope.Schema.Fields, scope.IDs = append(scope.Schema.Fields, f), append(scope.IDs, k.id)
	}
	if g.number != rel.None {
		f := r.Field(g.number)
		f.Name = expr.SetColumn
		scope.Schema.Fields, scope.IDs = append(scope.Schema.Fields, f), append(scope.IDs, g.number)
	}
	call := *n
	call.Args = nil
	for _, a := range n.Args {
		k := b.key(l, a)
		if k == nil {
			k = keyCalled(l, a)
		}
		if k == nil {
			return nil, mistake(a, "%s takes keys of the group, found another expression", n.Name)
		}
		call.Args = append(call.Args, &syntax.Resolved{Base: syntax.At(a), Value: k})
	}
	e, err := expr.Bind(&call, scope)
	if err != nil {
		return nil, err
	}
	return &syntax.Resolved{Base: n.Base, Value: e}, nil
}
