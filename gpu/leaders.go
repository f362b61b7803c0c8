package gpu

// Leader describes the state of arg_min, arg_max, first and last. For each group the state keeps
// one row, the leader: the first in an order among the rows that have a position. Columns are the
// types of the kept columns of this row: its position, the keys of the order, and values.
type Leader struct {
	Columns []Type
	// Order has the directions of the keys, which are the columns after the position. Of rows that
	// are equal in all keys, the one with the lowest position leads or, with Last, the one with the
	// highest.
	Order []Direction
	Last  bool
}

// Direction is the order of the values of a key, as in a SortKey.
type Direction struct{ Descending, NullsFirst bool }

// Leaders is the running state of a Leader for every group.
type Leaders interface {
	// Update folds rows into the state. cols has the columns of the Leader, with a row for each id.
	// The position is a BIGINT, null for a row that cannot lead. groups and errors are as in
	// Accumulator.Update.
	//
	// Cost: per row it reads 4 bytes of id, the position and the first key. It reads the other
	// columns only of rows that become leaders, or have an equal first key.
	Update(q Queue, a Assignment, cols []Column, groups int) error
	// Result returns a column of the leaders of groups [from, to), null for groups without one. See
	// Accumulator.Result.
	Result(q Queue, l *Lease, column, from, to int) (Column, error)
	Release()
}
