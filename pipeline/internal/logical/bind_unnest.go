package logical

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
)

// unnested replaces unnest(list) in some of the outputs by a column of the elements. Several lists are taken apart side
// by side: a list of their elements together becomes rows.
func (s *selecting) unnested(which func(output int) bool) error {
	var calls []*syntax.Call
	each := func(f func(at int, call *syntax.Call) (syntax.Node, error)) error {
		for i := range s.outputs {
			if !which(i) {
				continue
			}
			x, err := syntax.Replace(s.outputs[i].x, func(n syntax.Node) (syntax.Node, error) {
				call, ok := n.(*syntax.Call)
				if !ok || call.Name != "unnest" {
					return nil, nil
				}
				same := func(other *syntax.Call) bool { return other.String() == call.String() }
				if at := slices.IndexFunc(calls, same); at >= 0 {
					return f(at, call)
				}
				calls = append(calls, call)
				return f(len(calls)-1, call)
			})
			if err != nil {
				return err
			}
			s.outputs[i].x = x
		}
		return nil
	}
	var lists []syntax.Node
	err := each(func(_ int, call *syntax.Call) (syntax.Node, error) {
		if len(call.Args) != 1 || call.Star || call.Distinct || call.Filter != nil || call.Over != nil ||
			len(call.Order) > 0 {
			return nil, mistake(call, "unnest takes 1 argument, a LIST")
		}
		for len(lists) < len(calls) {
			lists = append(lists, call.Args[0])
		}
		return call, nil
	})
	if err != nil || len(calls) == 0 {
		return err
	}
	list, part := lists[0], func(x syntax.Node, _ int) syntax.Node { return x }
	if len(lists) > 1 {
		list, part = expr.Zipped(calls[0], lists...)
	}
	e, err := s.bound(s.level, list)
	if err != nil {
		return err
	}
	if e.Type().Kind != gpu.List {
		return mistake(calls[0], "unnest takes a LIST, found %v", e.Type())
	}
	var element rel.ID
	s.node, element = s.elements(s.node, e, list.String(), calls[0].String())
	return each(func(at int, call *syntax.Call) (syntax.Node, error) {
		return part(&syntax.Resolved{Base: syntax.At(call), Value: s.node.Rel().Expr(element)}, at), nil
	})
}

// isGrouped reports whether the SELECT has groups.
func (s *selecting) isGrouped() bool {
	return len(s.sel.Group) > 0 || s.sel.GroupAll || s.sel.Having != nil || s.aggregates()
}

// unnestedKeys is unnested for the outputs that are unnest(list) and a key of GROUP BY, before the rows are grouped.
func (s *selecting) unnestedKeys() error {
	keys := map[int][]int{} // the elements of GROUP BY that an output is
	for i, o := range s.outputs[:s.visible] {
		call, ok := o.x.(*syntax.Call)
		if !ok || call.Name != "unnest" {
			continue
		}
		if s.sel.GroupAll && !s.hasAggregate(call, 0) {
			keys[i] = nil
		}
		for k, g := range s.sel.Group {
			if g.X == nil {
				continue
			}
			at, err := positionOf(g.X, s.visible, "GROUP BY")
			if err != nil {
				return err
			}
			name, isName := g.X.(*syntax.Name)
			alias := isName && s.alias(name) != nil && s.alias(name).x.String() == call.String()
			if at == i || alias || g.X.String() == call.String() {
				keys[i] = append(keys[i], k)
			}
		}
	}
	err := s.unnested(func(i int) bool {
		_, ok := keys[i]
		return ok
	})
	if err != nil {
		return err
	}
	sel := *s.sel
	sel.Group = slices.Clone(sel.Group)
	for i, all := range keys {
		for _, k := range all {
			sel.Group[k].X = s.outputs[i].x
		}
	}
	s.sel = &sel
	return nil
}

// elements repeats the rows of a node for the elements of a list. names are those of the columns of the list and of
// its elements.
func (s *stepBinder) elements(n rel.Node, e *expr.Expr, list, name string) (rel.Node, rel.ID) {
	in := n.Rel()
	id := s.md.Add(rel.Column{Field: gpu.Field{Name: list, Type: e.Type(), Nullable: e.Nullable()}})
	columns := append(in.Columns[:len(in.Columns):len(in.Columns)], id)
	n = rel.NewProject(s.here(), n, columns, append(in.Exprs(in.Columns), e))
	element := s.md.Add(rel.Column{Field: gpu.Field{Name: name, Type: e.Type().Element(), Nullable: true}})
	return rel.NewUnnest(s.here(), n, []rel.ID{id}, []rel.ID{element}), element
}

// rewritten returns a text with an expression in the place of _1.
func rewritten(text string, x syntax.Node) (syntax.Node, error) {
	tree, err := syntax.Parse(text)
	if err != nil {
		return nil, err
	}
	return syntax.Replace(tree, func(n syntax.Node) (syntax.Node, error) {
		if name, ok := n.(*syntax.Name); ok && name.Parts[0] == "_1" {
			return x, nil
		}
		return nil, nil
	})
}

// unnestTable binds unnest(list) in FROM. left are the tables before it, nil for none. outer is as in withElements.
func (b *queryBinder) unnestTable(t *syntax.TableFunction, left *Relation, outer bool) (_ *Relation, err error) {
	if left == nil {
		left = &Relation{node: b.oneRow()}
	}
	names := []string{"unnest", "ordinality"}
	if !t.Ordinality {
		names = names[:1]
	}
	switch {
	case len(t.Call.Args) != 1 || t.Call.Star || len(t.Named) > 0:
		return nil, mistake(t, "unnest takes 1 argument, a LIST")
	case t.Sample != nil || len(t.Columns) > len(names):
		return nil, mistake(t, "unnest has one column, or two WITH ORDINALITY, and no sample")
	}
	copy(names, t.Columns)
	e, err := expr.Bind(t.Call.Args[0], b.scopeAt(left, ".sql"))
	if err != nil {
		return nil, err
	}
	if e.Type().Kind != gpu.List {
		return nil, mistake(t, "unnest takes a LIST, found %v", e.Type())
	}
	table := "unnest"
	if t.Alias.Name != "" {
		table = t.Alias.Name
	}
	list := &syntax.Resolved{Base: syntax.At(t.Call), Value: e}
	return b.withElements(left, list, t.Call.Args[0].String(), names, outer, expr.TablesOf(table))
}

// unnest binds a step.
func (s *stepBinder) unnest(in *Relation, u *job.Unnest) *Relation {
	e := s.expr(u.List, in, ".unnest.list")
	if e == nil {
		return nil
	}
	if e.Type().Kind != gpu.List {
		s.faultf(".unnest.list", "unnest takes a LIST, found %v", e.Type())
		return nil
	}
	names := []string{cmp.Or(u.As, "unnest")}
	if u.Ordinality != "" {
		names = append(names, u.Ordinality)
	}
	out, err := s.withElements(in, &syntax.Resolved{Value: e}, u.List, names, u.Outer, nil)
	if err != nil {
		s.exprDiagnostic(in, ".unnest.list", u.List, err, "")
		return nil
	}
	for i, name := range names {
		for k := range len(in.columns) + i {
			if out.name(k) == name {
				key := []string{".unnest.as", ".unnest.ordinality"}[i]
				s.faultf(key, "there is a column %q already; choose another name for this one", name)
				return nil
			}
		}
	}
	return out
}

// withElements repeats the rows of a relation for the elements of a list, whose text is known. names are those of the
// column of the elements and, if there is a second one, of their positions; tables are the names of their table. With
// outer, a row whose list is empty or null stays, with a null.
func (s *stepBinder) withElements(in *Relation, list syntax.Node, text string, names []string, outer bool,
	tables *expr.Tables) (_ *Relation, err error) {
	scope := s.scopeAt(in, "")
	if len(names) > 1 {
		list, err = rewritten("list_transform(_1, lambda x, i: {'x': x, 'i': i})", list)
	}
	if err == nil && outer {
		list, err = rewritten("CASE WHEN len(_1) > 0 THEN _1 ELSE [NULL] END", list)
	}
	if err != nil {
		return nil, err
	}
	e, err := expr.Bind(list, scope)
	if err != nil {
		return nil, err
	}
	n, element := s.elements(in.node, e, text, names[0])
	ids := []rel.ID{element}
	if len(names) > 1 {
		rows := n.Rel()
		columns, exprs := slices.Clone(rows.Columns), rows.Exprs(rows.Columns)
		ids = nil
		for i, name := range names {
			part, err := rewritten([]string{"struct_extract(_1, 'x')", "struct_extract(_1, 'i')"}[i],
				&syntax.Resolved{Value: rows.Expr(element)})
			if err != nil {
				return nil, err
			}
			x, err := expr.Bind(part, scope)
			if err != nil {
				return nil, err
			}
			id := s.md.Add(rel.Column{Field: gpu.Field{Name: name, Type: x.Type(), Nullable: true}})
			columns, exprs, ids = append(columns, id), append(exprs, x), append(ids, id)
		}
		n = rel.NewProject(s.here(), n, columns, exprs)
	}
	out := in.over(n)
	out.columns = slices.Clone(in.columns)
	for _, id := range ids {
		out.columns = append(out.columns, column{id, tables})
	}
	return out, nil
}

// unnestJoin binds a join with unnest(list) of the rows to its left. ok is false for other joins.
func (b *queryBinder) unnestJoin(t *syntax.JoinedTable, l *level) (_ *Relation, ok bool, _ error) {
	f, ok := t.Right.(*syntax.TableFunction)
	if !ok || f.Call.Name != "unnest" || t.Natural || t.AsOf || len(t.Using) > 0 || t.Name != "" {
		return nil, false, nil
	}
	kind, known := sqlJoins[t.Kind]
	if !known || kind != join.Inner && kind != join.Left {
		return nil, false, nil
	}
	left, _, err := b.tableRef(t.Left, l, nil)
	if err != nil {
		return nil, true, err
	}
	if t.On != nil && !isTrue(t.On) && kind == join.Left {
		if f, err = unnestWhere(f, t.On); err != nil {
			return nil, true, err
		}
	}
	out, err := b.unnestTable(f, left, kind == join.Left)
	if err != nil || kind == join.Left || t.On == nil || isTrue(t.On) {
		return out, true, err
	}
	e, err := expr.Bind(t.On, b.scopeAt(out, ".sql"))
	if err == nil {
		e, err = truth(t.On, e, "ON")
	}
	if err != nil {
		return nil, true, err
	}
	return out.over(rel.NewFilter(b.here(), out.node, expr.Conjuncts(e))), true, nil
}

// unnestWhere returns the unnest of those elements of a list for which a condition of a LEFT JOIN is true. Names of the
// column of the elements become a parameter of a lambda.
func unnestWhere(f *syntax.TableFunction, on syntax.Node) (*syntax.TableFunction, error) {
	if f.Ordinality || len(f.Call.Args) != 1 {
		return nil, mistake(f, "LEFT JOIN unnest(…) WITH ORDINALITY has the condition ON TRUE; filter the list "+
			"before, as in unnest(list_filter(l, lambda x: x > 1))")
	}
	column, table := "unnest", cmp.Or(f.Alias.Name, "unnest")
	if len(f.Columns) > 0 {
		column = f.Columns[0]
	}
	const element = "$element"
	condition, err := syntax.Replace(on, func(node syntax.Node) (syntax.Node, error) {
		name, ok := node.(*syntax.Name)
		if !ok {
			return nil, nil
		}
		parts := name.Parts
		if len(parts) > 1 && strings.EqualFold(parts[0], table) {
			parts = parts[1:]
		}
		if !strings.EqualFold(parts[0], column) {
			return nil, nil
		}
		var out syntax.Node = &syntax.Param{Base: name.Base, Name: element}
		for _, field := range parts[1:] {
			out = &syntax.Call{Base: name.Base, Name: "struct_extract", Args: []syntax.Node{out,
				&syntax.StringLiteral{Base: name.Base, Text: field}}}
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	where, call := *f, *f.Call
	lambda := &syntax.Lambda{Base: syntax.At(f.Call, condition), Params: []string{element}, X: condition}
	call.Args = []syntax.Node{&syntax.Call{Base: call.Base, Name: "list_filter", Args: []syntax.Node{call.Args[0],
		lambda}}}
	where.Call = &call
	return &where, nil
}

// isTrue reports whether a condition is the word TRUE.
func isTrue(n syntax.Node) bool {
	word, ok := n.(*syntax.WordLiteral)
	return ok && word.Word == "TRUE"
}

// aggregates reports whether an output has an aggregate.
func (s *selecting) aggregates() bool {
	for _, o := range s.outputs {
		if s.hasAggregate(o.x, 0) {
			return true
		}
	}
	return false
}
