package rel

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// ID identifies a column in all nodes of a query. Expressions refer to columns by it.
type ID = int

// None is the ID of no column.
const None ID = -1

// Column describes a column of a query.
type Column struct {
	gpu.Field // Nullable is that of the node that makes the column
	// Table is the source, the step or the alias that qualifies the column in messages; "" for none.
	Table string
}

// String returns the name of the column after that of its table.
func (c Column) String() string {
	parts := []string{c.Name}
	if c.Table != "" {
		parts = []string{c.Table, c.Name}
	}
	return (&syntax.Name{Parts: parts}).String()
}

// Metadata describes the columns of a query. A binder and rules add to it; nothing in it changes.
type Metadata struct{ columns []Column }

// Add makes a column.
func (m *Metadata) Add(c Column) ID {
	m.columns = append(m.columns, c)
	return len(m.columns) - 1
}

// Column returns the description of a column.
func (m *Metadata) Column(id ID) Column { return m.columns[id] }
