package logical

import (
	"slices"
	"strings"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// A column can be qualified by the names of tables: of the source that it comes from, and of the
// named steps that it went through. The latest name is the first in the list. A renamed or computed
// column has no table.

// withTables returns the same columns in other tables. change is called for each column.
func withTables(in *Relation, change func(*expr.Tables) *expr.Tables) *Relation {
	out := in.over(in.node)
	out.columns, out.unreadable = slices.Clone(in.columns), slices.Clone(in.unreadable)
	for i, c := range out.columns {
		out.columns[i].tables = change(c.tables)
	}
	for i, u := range out.unreadable {
		out.unreadable[i].tables = change(u.tables)
	}
	return out
}

// as returns a relation whose columns can be qualified by a name, before all other names.
func (b *binder) as(in *Relation, name string) *Relation {
	again := b.tables[folded(name)]
	b.table(name)
	return withTables(known(in, name), func(tables *expr.Tables) *expr.Tables {
		if again {
			tables = without(tables, name)
		}
		return tables.With(name)
	})
}

// known returns a relation whose columns have a table in their descriptions (rel.Column). Columns
// with another table get new IDs.
func known(in *Relation, name string) *Relation {
	r := in.node.Rel()
	if !slices.ContainsFunc(in.columns, func(c column) bool { return r.Metadata.Column(c.id).Table != name }) {
		return in
	}
	n, ids := rel.Renamed(in.node, in.ids(), name)
	return in.of(n, ids)
}

// table notes the name of a table.
func (b *binder) table(name string) { b.tables[folded(name)] = true }

// folded returns the same string for names that differ only in case.
func folded(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// aliased returns the two sides of a join, after the right side has got a name, so that qualified
// names are unambiguous. As in SQL, the name of a side hides where its rows come from: the right
// side loses its older names that the left side has, and the left side loses an older name that
// equals the new one. A name that comes first on both sides stays ambiguous.
func aliased(left, right *Relation, name string) (_, _ *Relation) {
	left = withTables(left, func(tables *expr.Tables) *expr.Tables {
		if tables == nil {
			return nil
		}
		return without(tables.Older(), name).With(tables.First())
	})
	var taken []string
	for _, c := range left.columns {
		taken = append(taken, c.tables.Names()...)
	}
	for _, u := range left.unreadable {
		taken = append(taken, u.tables.Names()...)
	}
	slices.Sort(taken)
	taken = append(slices.Compact(taken), name)
	right = known(right, name)
	if rel.Shares(left.node, right.node) { // the rows are read twice
		n, ids := rel.Renamed(right.node, right.ids(), name)
		right = right.of(n, ids)
	}
	right = withTables(right, func(tables *expr.Tables) *expr.Tables { return without(tables, taken...).With(name) })
	return left, right
}

// without returns a list without some names.
func without(tables *expr.Tables, names ...string) *expr.Tables {
	return expr.TablesOf(slices.DeleteFunc(tables.Names(), func(t string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(t, n) })
	})...)
}
