package logical

import (
	"slices"
	"strings"
)

// Columns are qualified by the names of tables: the source that they come from, and the
// named steps that they went through, of which the last one is the first in a list. A
// rename or a computation makes a column of no table.

// withTables projects a node to the same columns in other tables. change is called for
// each column, and must not modify its argument.
func withTables(in Node, change func([]string) []string) Node {
	r := in.Rel()
	tables := make([][]string, len(r.tables))
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

// named returns a relation whose columns are in the table of a name first of all.
func named(in Node, name string) Node {
	return withTables(in, func(tables []string) []string { return append([]string{name}, without(tables, name)...) })
}

// apart returns the two sides of a join, of which the right one has a name, so that the
// names of tables tell their columns apart. As in SQL, the name of a side hides where its
// rows come from: the right side gives up its older names that the left side has, and the
// left side gives up an older name that is now that of the right side. Only a name that
// comes first on both sides stays ambiguous.
func apart(left, right Node, name string) (Node, Node) {
	left = withTables(left, func(tables []string) []string {
		if len(tables) == 0 {
			return nil
		}
		return append(tables[:1:1], without(tables[1:], name)...)
	})
	r := left.Rel()
	taken := slices.Concat(r.tables...)
	for _, u := range r.unreadable {
		taken = append(taken, u.tables...)
	}
	slices.Sort(taken)
	taken = append(slices.Compact(taken), name)
	right = withTables(right, func(tables []string) []string { return append([]string{name}, without(tables, taken...)...) })
	return left, right
}

// without returns a list without some names.
func without(tables []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(tables), func(t string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(t, n) })
	})
}
