package logical

import (
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/source"
)

// Relation is what a name in a query stands for: a node, and the columns by which expressions know its rows. The node
// may have other columns too.
type Relation struct {
	node    rel.Node
	columns []column
	// unreadable are columns that would be here too. A step that takes all columns
	// refuses them; only a step that names its columns drops them.
	unreadable []unreadable
	known      *expr.Scope // see binder.scope
}

// column is a column of a relation, and the tables by whose names it can be qualified.
type column struct {
	id     rel.ID
	tables *expr.Tables
}

// Output returns the columns as the output of a plan.
func (r *Relation) Output() rel.Output { return rel.Output{Root: r.node, Columns: r.ids()} }

// Schema returns the schema of the columns.
func (r *Relation) Schema() *gpu.Schema { return r.node.Rel().Schema(r.ids()) }

func (r *Relation) ids() []rel.ID {
	ids := make([]rel.ID, len(r.columns))
	for i, c := range r.columns {
		ids[i] = c.id
	}
	return ids
}

func (r *Relation) field(i int) gpu.Field { return r.node.Rel().Field(r.columns[i].id) }

func (r *Relation) name(i int) string { return r.node.Rel().Name(r.columns[i].id) }

func (r *Relation) names() []string {
	names := make([]string, len(r.columns))
	for i := range names {
		names[i] = r.name(i)
	}
	return names
}

// index returns the position of a column in the relation, or -1.
func (r *Relation) index(id rel.ID) int {
	return slices.IndexFunc(r.columns, func(c column) bool { return c.id == id })
}

func (r *Relation) step() string { return r.node.Rel().Origin.Step }

// over returns a relation of the same columns of another node.
func (r *Relation) over(n rel.Node) *Relation {
	return &Relation{node: n, columns: r.columns, unreadable: r.unreadable}
}

// of returns a relation of some columns of a node by the same tables.
func (r *Relation) of(n rel.Node, ids []rel.ID) *Relation {
	out := r.over(n)
	out.columns = make([]column, len(ids))
	for i, id := range ids {
		out.columns[i] = column{id, r.columns[i].tables}
	}
	return out
}

// scopeOf returns the scope of expressions over the columns of a relation.
func scopeOf(e *Estimator, r *Relation) *expr.Scope {
	if r.known == nil {
		ids := r.ids()
		s := &expr.Scope{Schema: r.Schema(), IDs: ids, Fold: host.Fold, Names: &expr.NameIndex{},
			Range: func(column int) *expr.Range { return e.Column(r.node, ids[column]).bound }}
		for _, c := range r.columns {
			s.Qualifiers = append(s.Qualifiers, c.tables)
		}
		r.known = s
	}
	scope := *r.known
	return &scope
}

// item is a column of a projection.
type item struct {
	expr   *expr.Expr
	name   string
	tables *expr.Tables
}

// items returns the columns of a relation as those of a projection.
func (r *Relation) items(e *Estimator) []item {
	scope := scopeOf(e, r)
	items := make([]item, len(r.columns))
	for i, c := range r.columns {
		items[i] = item{expr.Column(scope, i), r.name(i), c.tables}
	}
	return items
}

// project computes columns. One that is a column of the input, by its name, stays that column.
func project(origin expr.Origin, in rel.Node, items []item) *Relation {
	r, out := in.Rel(), &Relation{}
	var ids []rel.ID
	var exprs []*expr.Expr
	seen := map[rel.ID]bool{}
	for _, x := range items {
		id, bare := x.expr.IsColumn()
		if !bare || seen[id] || r.Name(id) != x.name || !r.Has(id) { // it may be of the rows around a subquery
			id = r.Metadata.Add(rel.Computed(x.name, x.expr))
		}
		seen[id] = true
		ids, exprs = append(ids, id), append(exprs, x.expr)
		out.columns = append(out.columns, column{id, x.tables})
	}
	out.node = rel.NewProject(origin, in, ids, exprs)
	return out
}

// worthHolding reports whether the rows of a node cost more than reading and filtering tables in columns. A table of
// text is read as a whole for any of its columns.
func worthHolding(n rel.Node) bool {
	switch n := n.(type) {
	case *rel.Scan:
		_, text := n.Table.(source.Estimated)
		return text
	case *rel.Values, *rel.Materialized, *rel.Working:
		return false
	case *rel.Filter, *rel.Project, *rel.Union:
		return slices.ContainsFunc(rel.Inputs(n), worthHolding)
	}
	return true
}
