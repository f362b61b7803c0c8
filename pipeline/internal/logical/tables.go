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

// withTables returns the same columns in other tables. change is called once for each list: columns share lists.
func withTables(in *Relation, change func(*expr.Tables) *expr.Tables) *Relation {
	out := in.over(in.node)
	out.columns, out.unreadable = slices.Clone(in.columns), slices.Clone(in.unreadable)
	changed := map[*expr.Tables]*expr.Tables{}
	once := func(tables *expr.Tables) *expr.Tables {
		list, ok := changed[tables]
		if !ok {
			list = change(tables)
			changed[tables] = list
		}
		return list
	}
	for i, c := range out.columns {
		out.columns[i].tables = once(c.tables)
	}
	for i, u := range out.unreadable {
		out.unreadable[i].tables = once(u.tables)
	}
	return out
}

// as returns a relation whose columns can be qualified by a name, before all other names.
func (b *binder) as(in *Relation, name string) *Relation {
	again := b.tables[folded(name)]
	b.table(name)
	return withTables(known(in, name), func(tables *expr.Tables) *expr.Tables {
		if again {
			tables = tables.Without(func(t string) bool { return strings.EqualFold(t, name) })
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
		older := tables.Older()
		if kept := older.Without(func(t string) bool { return strings.EqualFold(t, name) }); kept != older {
			return kept.With(tables.First())
		}
		return tables
	})
	taken := namesOf(left)
	right = known(right, name)
	if rel.Shares(left.node, right.node) { // the rows are read twice
		n, ids := rel.Renamed(right.node, right.ids(), name)
		right = right.of(n, ids)
	}
	right = withTables(right, func(tables *expr.Tables) *expr.Tables {
		if taken.lists[tables] {
			return expr.TablesOf(name)
		}
		return tables.Without(func(t string) bool { return strings.EqualFold(t, name) || taken.has(t) }).With(name)
	})
	return left, right
}

// tableNames is the set of the names of all tables of a relation. Their lists have common tails, and may be long: a
// column has a name for each named step that it went through.
type tableNames struct {
	lists map[*expr.Tables]bool // of the columns
	names map[string]bool       // folded; nil until the first look-up
}

func namesOf(r *Relation) *tableNames {
	n := &tableNames{lists: map[*expr.Tables]bool{}}
	for _, c := range r.columns {
		n.lists[c.tables] = true
	}
	for _, u := range r.unreadable {
		n.lists[u.tables] = true
	}
	return n
}

func (n *tableNames) has(name string) bool {
	if n.names == nil {
		n.names = map[string]bool{}
		seen := map[*expr.Tables]bool{}
		for t := range n.lists {
			for ; t != nil && !seen[t]; t = t.Older() {
				seen[t], n.names[folded(t.First())] = true, true
			}
		}
	}
	return n.names[folded(name)]
}
