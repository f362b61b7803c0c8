package gpu

// ArgMinMax describes the state of arg_min, arg_max, first and last. For each group the state keeps
// one row, the selected row: the first in an order among the rows that have a position. Columns are the
// types of the kept columns of this row: its position, the keys of the order, and values.
type ArgMinMax struct {
	Columns []Type
	// Order has the directions of the keys, which are the columns after the position. Of rows that
	// are equal in all keys, the one with the lowest position is selected or, with Last, the one with the
	// highest.
	Order []Direction
	Last  bool
}

// Direction is the order of the values of a key, as in a SortKey.
type Direction struct{ Descending, NullsFirst bool }

// ArgMinMaxState is the running state of an ArgMinMax for every group.
type ArgMinMaxState interface {
	// Update folds rows into the state. cols has the columns of the ArgMinMax, with a row for each id.
	// The position is a BIGINT, null for a row that cannot be selected. groups and errors are as in
	// Accumulator.Update.
	//
	// Cost: per row it reads 4 bytes of id, the position and the first key. It reads the other
	// columns only of rows that are selected, or have an equal first key.
	Update(q Queue, a Assignment, cols []Column, groups int) error
	// Result returns a column of the selected rows of groups [from, to), null for groups without one. See
	// Accumulator.Result.
	Result(q Queue, l *Lease, column, from, to int) (Column, error)
	Release()
}
