package logical

import (
	"slices"
	"strings"

	"github.com/gstream/gstream/operators/expr"
)

// Columns are qualified by the names of tables: the source that they come from, and the
// named steps that they went through, of which the last one is the first in a list. A
// rename or a computation makes a column of no table.

// withTables projects a node to the same columns in other tables. change is called for
// each column.
func withTables(in Node, change func(*expr.Tables) *expr.Tables) Node {
	r := in.Rel()
	tables := make([]*expr.Tables, len(r.tables))
	for i, t := range r.tables {
		tables[i] = change(t)
	}
	unread := slices.Clone(r.unreadable)
	for i, u := range unread {
		unread[i].tables = change(u.tables)
	}
	n := newProject(r.Step, in, columnsOf(in), r.Schema.Names(), tables)
	n.unreadable = unread
	return n
}

// as returns a relation whose columns are in the table of a name first of all.
func (b *binder) as(in Node, name string) Node {
	again := b.tables[folded(name)]
	b.table(name)
	return withTables(in, func(tables *expr.Tables) *expr.Tables {
		if again {
			tables = without(tables, name)
		}
		return tables.With(name)
	})
}

// table notes the name of a table.
func (b *binder) table(name string) { b.tables[folded(name)] = true }

// folded is equal for names that differ only in case.
func folded(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// apart returns the two sides of a join, of which the right one has a name, so that the
// names of tables tell their columns apart. As in SQL, the name of a side hides where its
// rows come from: the right side gives up its older names that the left side has, and the
// left side gives up an older name that is now that of the right side. Only a name that
// comes first on both sides stays ambiguous.
func apart(left, right Node, name string) (Node, Node) {
	left = withTables(left, func(tables *expr.Tables) *expr.Tables {
		if tables == nil {
			return nil
		}
		return without(tables.Older(), name).With(tables.First())
	})
	r := left.Rel()
	taken := scopeOf(left).TableNames()
	for _, u := range r.unreadable {
		taken = append(taken, u.tables.Names()...)
	}
	slices.Sort(taken)
	taken = append(slices.Compact(taken), name)
	right = withTables(right, func(tables *expr.Tables) *expr.Tables { return without(tables, taken...).With(name) })
	return left, right
}

// without returns a list without some names.
func without(tables *expr.Tables, names ...string) *expr.Tables {
	return expr.TablesOf(slices.DeleteFunc(tables.Names(), func(t string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(t, n) })
	})...)
}
