package gpu

// Table is the hash table over the build side of a join. Several queues of its device may match
// rows with it concurrently.
type Table interface {
	// Match returns the matcher of the rows of key columns with the rows of the table. The columns
	// have the number and the types of the build keys. Pairs come in the order of the probe rows,
	// and for each probe row in the order of the build rows. The table and the columns must outlive
	// the matcher, and so must the lease, which pays for its state.
	//
	// Errors: another number of keys, other types or lengths.
	//
	// Cost: strings are looked up in the dictionary of the table. On a GPU, a lookup per row, which
	// reads the key and one or two random sectors of the table, and 4 bytes written per row, which
	// the matcher keeps.
	Match(q Queue, l *Lease, keys []Column) (Matcher, error)
	// Rows returns the number of rows in the table, without those dropped for a null key.
	Rows() int
	Release()
}

// Matcher returns the pairs of rows of a probe side and a build side that match: their keys are
// equal, or the build key is in the range of the probe row. It returns every pair once, some pairs
// at a time. All kinds of joins are computed from these pairs.
//
// Calls may use any queue of the matcher's device, one call at a time. If memory is denied, the
// matcher is unchanged, and the same call returns the pairs once there is memory. After any other error the
// matcher can only be released.
type Matcher interface {
	// Next returns the next pairs as two Int32 columns of row ids without nulls, of the same
	// length. It returns about limit pairs, and at least 1: at most limit plus the pairs of one
	// probe row, and fewer at the end or where a device has to stop. On a GPU, the matcher of
	// partitions raises a lower limit to 131,072. more says that pairs may be left. If it is false,
	// every pair has been returned, and later calls return none.
	//
	// Cost: on the CPU a lookup per row; 8 bytes written per pair; memory only for the pairs of the
	// call. On a GPU the first call waits for the number of all pairs.
	Next(q Queue, l *Lease, limit int) (probe, build Column, more bool, err error)
	// Join combines Next and Gather. It returns the columns of probe at the probe rows of the next
	// pairs, followed by the columns of build at their build rows, and the number of pairs. probe
	// and build have the lengths of the two sides. A device may do this without writing row ids.
	//
	// Errors: those of Gather.
	//
	// Cost: at most that of Next and Gather.
	Join(q Queue, l *Lease, probe, build []Column, limit int) (cols []Column, rows int, more bool, err error)
	// Matched returns a Bool column without nulls that says for each probe row whether it has a
	// match. It does not affect Next.
	//
	// Cost: a lookup per row that ends at the first match, and a bit written. On a GPU, 4 bytes
	// read per row if the matcher has already looked up the rows. It does not wait.
	Matched(q Queue, l *Lease) (Column, error)
	// Release ends the matcher.
	Release()
}

// NextAndGather is Join for a matcher that does not fuse the two. If memory is denied, the caller
// must reset the matcher to its previous state.
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
