package gpu

// Table is the hash table over the build side of a join. Several queues of its device may
// match rows with it at the same time.
type Table interface {
	// Match returns the matcher of the rows of key columns with the rows of the table.
	// The columns have the number and the types of the build keys. Pairs come in order of
	// the probe rows, and for each probe row in order of the build rows. The table and the
	// columns must outlive the matcher, and so must the lease, which pays for its state.
	//
	// Errors: another number of keys, other types or lengths.
	//
	// Cost: strings are looked up in the dictionary of the table. On a GPU, a lookup a
	// row, which reads the key and one or two random sectors of the table, and 4 bytes
	// written a row, which the matcher keeps.
	Match(q Queue, l *Lease, keys []Column) (Matcher, error)
	// Rows returns the number of rows in the table, without those whose null key was left
	// out.
	Rows() int
	Release()
}

// Matcher gives the pairs of rows of a probe side and a build side whose keys are equal, or
// of which the key of one is in the range of the other.
// It gives every pair once, a part of them at a time. All kinds of joins are made of it.
//
// Calls may use any queue of the matcher's device, one call at a time. A refusal leaves
// the matcher as it was, and the same call gives the pairs once there is room. After
// another error it can only be released.
type Matcher interface {
	// Next returns the next pairs as two Int32 columns of row ids without nulls, of one
	// length. There are about limit pairs (at least 1): never more than limit and the
	// pairs of one probe row, and fewer at the end or where a device has to stop. The
	// matcher of partitions takes a limit below 131,072 as that many on a GPU. more
	// says that pairs may be left. Without more, every pair has been returned, and later
	// calls return none.
	//
	// Cost: on the CPU a lookup a row; 8 bytes written a pair; memory for the pairs of
	// the call alone. On a GPU the first call waits for the number of all pairs.
	Next(q Queue, l *Lease, limit int) (probe, build Column, more bool, err error)
	// Join is Next and Gather at once. It returns the columns of probe at the probe rows
	// of the next pairs, then the columns of build at their build rows, and the number of
	// pairs. probe and build have the lengths of the two sides. A device may do it without
	// writing the row ids.
	//
	// Errors: those of Gather.
	//
	// Cost: at most that of Next and Gather.
	Join(q Queue, l *Lease, probe, build []Column, limit int) (cols []Column, rows int, more bool, err error)
	// Matched returns a Bool column without nulls that has a row for each probe row:
	// whether it has a match. It does not change what Next returns.
	//
	// Cost: a lookup a row that ends at the first match, and a bit written. On a GPU, 4
	// bytes read a row where the matcher has looked the rows up. It does not wait.
	Matched(q Queue, l *Lease) (Column, error)
	// Release ends the matcher.
	Release()
}

// NextAndGather is Join for a matcher that does not fuse the two. After a refusal the
// caller puts the matcher back where it was.
func NextAndGather(m Matcher, q Queue, l *Lease, probe, build []Column,
	limit int) (cols []Column, rows int, more bool, err error) {
	probeIDs, buildIDs, more, err := m.Next(q, l, limit)
	if err != nil {
		return nil, 0, false, err
	}
	defer probeIDs.Release()
	defer buildIDs.Release()
	if cols, err = q.Gather(l, probe, probeIDs, false); err != nil {
		return nil, 0, false, err
	}
	matches, err := q.Gather(l, build, buildIDs, false)
	if err != nil {
		ReleaseColumns(cols)
		return nil, 0, false, err
	}
	return append(cols, matches...), probeIDs.Len, more, nil
}
