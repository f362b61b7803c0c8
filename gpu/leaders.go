package gpu

// Leader says which row of a group leads: the first in an order, of the rows that have a position. Columns
// are the types of what is kept of the row: its position, the keys of the order, and values.
type Leader struct {
	Columns []Type
	// Order has the directions of the keys, which are the columns after the position. A row that is equal
	// to another one in all keys leads if its position is lower or, with Last, if it is higher.
	Order []Direction
	Last  bool
}

// Direction is the order of the values of a key, as in a SortKey.
type Direction struct{ Descending, NullsFirst bool }

// Leaders is the running state of a Leader for every group.
type Leaders interface {
	// Update takes rows into account. cols has the columns of the Leader, with a row for each id. The
	// position is a BIGINT, null for a row that cannot lead. groups and errors are as in
	// Accumulator.Update.
	//
	// Cost: it reads 4 bytes of id, the position and the first key a row, and the other columns of rows that
	// lead when they come, or have an equal first key.
	Update(q Queue, a Assignment, cols []Column, groups int) error
	// Result returns a column of the leaders of groups [from, to), null where no row leads. See
	// Accumulator.Result.
	Result(q Queue, l *Lease, column, from, to int) (Column, error)
	Release()
}
