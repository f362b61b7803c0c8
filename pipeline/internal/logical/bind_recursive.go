package logical

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// recursion is a recursive query while its step is bound: the side of the UNION that reads the query itself.
type recursion struct {
	loop    *rel.Loop
	columns []rel.Column // of the working table
	read    bool         // the step reads it
}

// recursive returns the UNION of a query of WITH RECURSIVE that reads itself, nil if the query is none. Its left side
// is the anchor, and its right side the step.
func recursive(cte *syntax.CTE) *syntax.SetOperation {
	op, ok := cte.Query.Body.(*syntax.SetOperation)
	if !ok || op.Op != "UNION" || op.ByName || readersIn(cte.Name, cte.Query) == 0 {
		return nil
	}
	return op
}

// recursiveQuery binds the body of a recursive query. The anchor decides the types and the names of the columns, and
// the step is cast to them. Every column may be null, because the step is bound before it is known whether it makes
// nulls.
func (b *queryBinder) recursiveQuery(self *namedQuery, l *level) (*Relation, error) {
	q, op := self.Query, self.union
	if q.OrderAll != nil || len(q.Order) > 0 {
		return nil, mistake(op, "ORDER BY of the recursive query %q is not possible: order the rows of the query that "+
			"reads it, or put the SELECT after %s and its ORDER BY in parentheses", self.Name, op.Op)
	}
	if q.Limit != nil || q.Offset != nil {
		return nil, mistake(op, "LIMIT and OFFSET of the recursive query %q are not possible: limit the rows of the "+
			"query that reads it, or put the SELECT after %s and its LIMIT in parentheses", self.Name, op.Op)
	}
	anchor, err := b.body(op.Left, l)
	if err != nil {
		return nil, err
	}
	if err := self.checkNames(anchor); err != nil {
		return nil, err
	}
	if len(self.Columns) > 0 {
		anchor = b.renamed(anchor, self.Columns)
	}
	r := &recursion{loop: &rel.Loop{Name: self.Name, Rows: max(b.estimator.Rows(anchor.node), expectedWorking)}}
	for i, c := range anchor.columns {
		column := b.md.Column(c.id)
		column.Field, column.Table = anchor.field(i), self.Name
		if column.Nullable = true; column.Type.Kind == gpu.String {
			column.Annotation = gpu.NoAnnotation // the step may make any strings
		}
		r.columns = append(r.columns, column)
		r.loop.Bytes = append(r.loop.Bytes, b.estimator.Column(anchor.node, c.id).Bytes)
	}
	self.recursion = r
	step, err := b.body(op.Right, l)
	self.recursion = nil
	if err != nil {
		return nil, err
	}
	if !r.read { // it reads another table of the name
		return b.setOperation(op, l)
	}
	if step, err = b.castStep(self, step, r.columns); err != nil {
		return nil, err
	}
	ids := make([]rel.ID, len(r.columns))
	for i, c := range r.columns {
		ids[i] = b.md.Add(c)
	}
	n := rel.NewRecursive(b.here(), r.loop, op.All, anchor.node, step.node, anchor.ids(), step.ids(), ids)
	return withTables(anchor.of(n, ids), func(*expr.Tables) *expr.Tables { return nil }), nil
}

// castStep casts the rows of a step to the columns of the anchor.
func (b *queryBinder) castStep(self *namedQuery, step *Relation, columns []rel.Column) (*Relation, error) {
	op := self.union
	if got, want := len(step.columns), len(columns); got != want {
		return nil, mistake(op, "the recursive query %q has %d columns before %s and %d after it; both sides need as "+
			"many", self.Name, want, op.Op, got)
	}
	items := step.items(b.estimator)
	for i, c := range columns {
		f := step.field(i)
		switch {
		case f.Annotation == gpu.AllNull:
			items[i].expr = expr.Null(gpu.Field{Type: c.Type})
			continue
		case c.Annotation == gpu.AllNull:
			return nil, mistake(itemOf(op, i), "column %q of the recursive query %q is NULL before %s, and %s after "+
				"it; write CAST(NULL AS %s) before %s", c.Name, self.Name, op.Op, f.TypeName(), f.TypeName(), op.Op)
		case f.Type == c.Type && (c.Annotation == gpu.NoAnnotation || c.Annotation == f.Annotation):
			continue
		}
		cast, err := expr.Cast(items[i].expr, c.Type, host.Fold)
		if err == nil && c.Annotation != gpu.NoAnnotation && c.Annotation != f.Annotation {
			return nil, mistake(itemOf(op, i), "column %q of the recursive query %q is %s before %s, and %s after it; "+
				"cast the first one to %v", c.Name, self.Name, c.TypeName(), op.Op, f.TypeName(), f.Type)
		}
		if err != nil {
			return nil, mistake(itemOf(op, i), "column %q of the recursive query %q is %v, as before %s: %v", c.Name,
				self.Name, c.TypeName(), op.Op, err)
		}
		items[i].expr = cast.At(b.origin(".sql"))
	}
	return project(b.here(), step.node, items), nil
}

// itemOf returns where column i of the right side of a UNION is written.
func itemOf(op *syntax.SetOperation, i int) placed {
	s, ok := op.Right.(*syntax.Select)
	star := func(x syntax.SelectItem) bool { _, star := x.X.(*syntax.StarExpr); return star }
	if !ok || i >= len(s.Items) || slices.ContainsFunc(s.Items[:i+1], star) {
		return op
	}
	return s.Items[i].X
}

// readsItself is the error of a table that is not known, but is named like a query that is being bound; nil for others.
func (b *queryBinder) readsItself(at *syntax.TableName, name string) error {
	for i, q := range b.binds {
		self := folded(q.Name)
		switch last := b.binds[len(b.binds)-1]; {
		case folded(name) == "recurring."+self:
			return mistake(at, "%s, all rows of a recursive query so far, is not possible; read %s, the rows of the "+
				"last iteration", name, q.Name)
		case folded(name) == self && i == len(b.binds)-1:
			return mistake(at, "%q reads itself, which needs WITH RECURSIVE in place of WITH", q.Name)
		case folded(name) == self:
			return mistake(at, "%q and %q read each other; a query of WITH can read those before it, and itself",
				q.Name, last.Name)
		}
	}
	return nil
}

// workingTable returns the rows of the last iteration for one more reader.
func (b *queryBinder) workingTable(r *recursion) *Relation {
	r.read = true
	out := &Relation{}
	for _, c := range r.columns {
		out.columns = append(out.columns, column{id: b.md.Add(c)})
	}
	out.node = rel.NewWorking(b.md, b.here(), r.loop, out.ids())
	return out
}
