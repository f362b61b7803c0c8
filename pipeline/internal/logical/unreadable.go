package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/source"
)

// unreadable is a column of a source that cannot be read. It goes through the plan next to
// the other columns, so that no step drops it silently.
type unreadable struct {
	source.Unreadable
	source string       // its name
	tables *expr.Tables // as of a readable column
}

// in reports whether the column is in a table; every column is in "".
func (u unreadable) in(table string) bool {
	return table == "" || u.tables.Has(table)
}

func (u unreadable) String() string {
	return fmt.Sprintf("column %q (%s) of %s cannot be read: %s", u.Name, u.Type, u.source, u.Reason)
}

// describeUnreadable returns one sentence about columns. There is at least one.
func describeUnreadable(list []unreadable) string {
	texts := make([]string, len(list))
	for i, u := range list {
		texts[i] = u.String()
	}
	return phrase.Some(texts, 5, "; ")
}

// suggestColumns lists the readable columns in the form of a select step.
func suggestColumns(r *Relation) string {
	if len(r.columns) == 0 {
		return ""
	}
	return ", as in select: [" + phrase.Some(r.names(), 10, ", ") + "]"
}

// findUnreadable finds a column by its name and a table, which may be "".
func (r *Relation) findUnreadable(table, name string) (unreadable, bool) {
	i := slices.IndexFunc(r.unreadable, func(u unreadable) bool {
		return strings.EqualFold(u.Name, name) && u.in(table)
	})
	if i < 0 {
		return unreadable{}, false
	}
	return r.unreadable[i], true
}

// unreadableFor finds the column that an expression misses. nil misses none.
func (r *Relation) unreadableFor(m *syntax.Missing) (unreadable, bool) {
	if m == nil {
		return unreadable{}, false
	}
	last := len(m.Name) - 1
	if m.NoTable {
		// In the name of a field, the name of the struct is taken for a table.
		return r.findUnreadable("", m.Name[last-1])
	}
	return r.findUnreadable(strings.Join(m.Name[:last], "."), m.Name[last])
}

// unmatched lists the unreadable columns that only one of two relations has.
func unmatched(a, b *Relation) (list []unreadable) {
	for _, sides := range [][2]*Relation{{a, b}, {b, a}} {
		for _, u := range sides[0].unreadable {
			if _, ok := sides[1].findUnreadable("", u.Name); !ok {
				list = append(list, u)
			}
		}
	}
	return list
}
