package logical

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// unnested replaces unnest(list) in the outputs by a column of the elements.
func (s *selecting) unnested() error {
	var list *syntax.Call
	element := rel.None
	for i := range s.outputs {
		x, err := syntax.Replace(s.outputs[i].x, func(n syntax.Node) (syntax.Node, error) {
			call, ok := n.(*syntax.Call)
			if !ok || call.Name != "unnest" {
				return nil, nil
			}
			if list != nil && list.String() != call.String() {
				return nil, mistake(call, "a SELECT has one unnest; take the second list apart in a query around this "+
					"one")
			}
			if list == nil {
				var err error
				if element, err = s.unnest(call); err != nil {
					return nil, err
				}
				list = call
			}
			return &syntax.Resolved{Base: syntax.At(call), Value: s.node.Rel().Expr(element)}, nil
		})
		if err != nil {
			return err
		}
		s.outputs[i].x = x
	}
	return nil
}

// unnest adds a column of the elements of a list, and repeats the rows.
func (s *selecting) unnest(call *syntax.Call) (rel.ID, error) {
	switch {
	case len(call.Args) != 1 || call.Star || call.Distinct || call.Filter != nil || call.Over != nil ||
		len(call.Order) > 0:
		return rel.None, mistake(call, "unnest takes 1 argument, a LIST")
	case len(s.sel.Group) > 0 || s.sel.GroupAll || s.sel.Having != nil || s.aggregates():
		return rel.None, mistake(call, "unnest is not possible in a SELECT with groups; take the list apart in a "+
			"query around it, or below it")
	}
	e, err := s.bound(s.level, call.Args[0])
	if err != nil {
		return rel.None, err
	}
	if e.Type().Kind != gpu.List {
		return rel.None, mistake(call, "unnest takes a LIST, found %v", e.Type())
	}
	var element rel.ID
	s.node, element = s.elements(s.node, e, call.Args[0].String(), call.String())
	return element, nil
}

// elements repeats the rows of a node for the elements of a list. names are those of the columns of the list and of
// its elements.
func (s *stepBinder) elements(n rel.Node, e *expr.Expr, list, name string) (rel.Node, rel.ID) {
	in := n.Rel()
	id := s.md.Add(rel.Column{Field: gpu.Field{Name: list, Type: e.Type(), Nullable: e.Nullable()}})
	columns := append(in.Columns[:len(in.Columns):len(in.Columns)], id)
	n = rel.NewProject(s.here(), n, columns, append(in.Exprs(in.Columns), e))
	element := s.md.Add(rel.Column{Field: gpu.Field{Name: name, Type: e.Type().Element(), Nullable: true}})
	return rel.NewUnnest(s.here(), n, id, element), element
}

// unnestTable binds unnest(list) in FROM. left are the tables before it, nil for none.
func (b *queryBinder) unnestTable(t *syntax.TableFunction, left *Relation) (*Relation, error) {
	if left == nil {
		left = &Relation{node: b.oneRow()}
	}
	switch {
	case len(t.Call.Args) != 1 || t.Call.Star || len(t.Named) > 0:
		return nil, mistake(t, "unnest takes 1 argument, a LIST")
	case t.Ordinality || t.Sample != nil || len(t.Columns) > 1:
		return nil, mistake(t, "unnest has one column, without WITH ORDINALITY and without a sample")
	}
	e, err := expr.Bind(t.Call.Args[0], b.scopeAt(left, ".sql"))
	if err != nil {
		return nil, err
	}
	if e.Type().Kind != gpu.List {
		return nil, mistake(t, "unnest takes a LIST, found %v", e.Type())
	}
	name, table := "unnest", "unnest"
	if len(t.Columns) > 0 {
		name = t.Columns[0]
	}
	if t.Alias.Name != "" {
		table = t.Alias.Name
	}
	n, element := b.elements(left.node, e, t.Call.Args[0].String(), name)
	out := left.over(n)
	out.columns = append(left.columns[:len(left.columns):len(left.columns)], column{element, expr.TablesOf(table)})
	return out, nil
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
