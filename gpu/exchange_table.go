package gpu

import (
	"errors"
	"fmt"
)

// TupleTables has primitives for joins of tuples by a hash table in device memory, which may grow while tuples arrive
// (Thostrup et al., SIGMOD 2023, §4.2).
type TupleTables interface {
	// Zeros returns a column of n zeros, of a type of fixed width.
	Zeros(l *Lease, t Type, n int) (Column, error)

	// InsertTuples adds the tuples of runs to a table. Those without room are counted in Used only. Concurrent calls
	// are not safe.
	//
	// Errors: those of TupleTable.Check, and runs beyond their column.
	//
	// Cost: it reads each tuple once, writes 32 bytes, and exchanges 4 at a random place.
	InsertTuples(l *Lease, t TupleTable, runs []TupleRun) error

	// ProbeTuples joins the tuples of runs with a table. It adds the number of pairs, and the sum of the values of both
	// sides of each pair modulo 2^64, to the two Uint64 of result. It does not wait.
	//
	// Errors: those of InsertTuples, and a result of another type or length.
	//
	// Cost: it reads each tuple once, and at random places 4 bytes and 32 for each tuple in the chain of its slot.
	ProbeTuples(l *Lease, t TupleTable, runs []TupleRun, result Column) error

	// MarkTuples writes the marks of regions of SendTuples, from which ActiveJoin learns that their tuples have
	// arrived: TupleMarks of each. marks has where they go, with as many rows for each region; a mark has the type of a
	// tuple. Tuples and marks may be in memory of any device of the group.
	//
	// Errors: runs that are no regions, or marks beyond their column or too few.
	//
	// Cost: it reads the tuples.
	MarkTuples(l *Lease, regions, marks []TupleRun) error

	// NewActiveJoin returns a join of regions by a kernel that polls for them. The marks of all regions are zero before
	// anybody sends them. The columns must outlive the join. The table is empty. All regions of a side have one size.
	//
	// Errors: those of MarkTuples and TupleTable.Check.
	NewActiveJoin(l *Lease, t TupleTable, build, probe ActiveSide) (ActiveJoin, error)
}

// ActiveSide is the regions of a side of an ActiveJoin, without counts, and the marks of each.
type ActiveSide struct{ Regions, Marks []TupleRun }

// ActiveJoin is a join whose kernel waits for tuples that others write to memory of its device, instead of launches for
// each of them. The regions of a side may arrive in any order. Those of the probe side are joined once those of the
// build side have come.
type ActiveJoin interface {
	// Poll runs the kernel until all is joined, or until its next tuples do not come for some milliseconds: then Done
	// is below All, and the caller calls it again, or gives up. It overlaps with all other work of the device, for
	// which it leaves two fifths of the multiprocessors. One goroutine may call it, with a queue of its own.
	Poll(q Queue) (ActiveState, error)
	// Release releases the state.
	Release()
}

// ActiveState is what an ActiveJoin has done.
type ActiveState struct {
	Done, All  int    // pieces
	Pairs, Sum uint64 // as those of ProbeTuples
	// Mismatches are the pieces whose checksum was wrong: some of their tuples had not arrived.
	Mismatches int
}

// TupleTable is a chained hash table of tuples (NewTupleTable).
type TupleTable struct {
	Entries Column // two rows of TupleType(8) for each tuple
	Heads   Column // Uint32; 1 << Digit.Bits
	Used    Column // a Uint64: the tuples inserted
	// Digit selects the slot of a key.
	Digit Digit
}

// NewTupleTable returns an empty table in entries, memory of the queue's device for tuples twice as many as those that
// the table has room for. The caller releases it.
func NewTupleTable(x TupleTables, l *Lease, entries Column, d Digit) (t TupleTable, err error) {
	t = TupleTable{Entries: entries, Digit: d}
	if err := t.checkDigit(); err != nil {
		return TupleTable{}, err
	}
	if t.Heads, err = x.Zeros(l, Of(Uint32), 1<<d.Bits); err != nil {
		return TupleTable{}, err
	}
	if t.Used, err = x.Zeros(l, Of(Uint64), 1); err != nil {
		t.Heads.Release()
		return TupleTable{}, err
	}
	return t, nil
}

// checkDigit returns an error if a table cannot have as many slots.
func (t TupleTable) checkDigit() error {
	if d := t.Digit; d.Bits < 1 || d.Bits > maxSlotBits || d.Shift+d.Bits > 64 {
		return fmt.Errorf("hash table of tuples by %d bits from bit %d: want 1 to %d bits that the key has", d.Bits,
			d.Shift, maxSlotBits)
	}
	return nil
}

// Check returns an error if the table has columns of wrong types or lengths.
func (t TupleTable) Check() error {
	if err := t.checkDigit(); err != nil {
		return err
	}
	if t.Entries.Type != TupleType(8) || t.Entries.Len > 2*MaxRows || t.Heads.Type != Of(Uint32) ||
		t.Heads.Len != 1<<t.Digit.Bits || t.Used.Type != Of(Uint64) || t.Used.Len != 1 {
		return fmt.Errorf("hash table of tuples with %d rows of %v, %d heads of %v and %d of %v: "+
			"NewTupleTable makes it", t.Entries.Len, t.Entries.Type, t.Heads.Len, t.Heads.Type, t.Used.Len, t.Used.Type)
	}
	return nil
}

// CheckTable returns an error if InsertTuples or ProbeTuples cannot read runs, or a table has columns of wrong types.
func CheckTable(t TupleTable, runs []TupleRun, result ...Column) error {
	for _, c := range result {
		if c.Type != Of(Uint64) || c.Len != 2 {
			return fmt.Errorf("result of a probe has %d rows of %v, want 2 of %v", c.Len, c.Type, Of(Uint64))
		}
	}
	if err := t.Check(); err != nil {
		return err
	}
	if err := sixteen(runs); err != nil {
		return err
	}
	return checkRuns(runs)
}

// CheckMarks returns an error if marks of regions have no room, or if runs are no regions. The regions have counts
// before they travel, and none where they arrive.
func CheckMarks(regions, marks []TupleRun, counted bool) error {
	if len(regions) != len(marks) {
		return fmt.Errorf("%d marks of %d regions", len(marks), len(regions))
	}
	for i, r := range regions {
		if r.Rows <= SendTail || (r.Counts.Len > 0) != counted || r.Rows != regions[0].Rows ||
			marks[i].Rows != TupleMarks(r.Rows) {
			return fmt.Errorf("region %d of %d tuples with %d counts and %d marks: want as many tuples as the first "+
				"one has, more than %d, and %d marks", i, r.Rows, r.Counts.Len, marks[i].Rows, SendTail,
				TupleMarks(regions[0].Rows))
		}
	}
	if err := errors.Join(sixteen(regions), checkRuns(regions)); err != nil {
		return err
	}
	return checkRuns(marks)
}

// CheckActive returns an error if a device cannot join sides whose regions arrive.
func CheckActive(t TupleTable, build, probe ActiveSide) error {
	if err := t.Check(); err != nil {
		return err
	}
	for _, s := range []ActiveSide{build, probe} {
		if err := CheckMarks(s.Regions, s.Marks, false); err != nil {
			return err
		}
	}
	return nil
}

// Release releases the heads and the number of entries.
func (t TupleTable) Release() { ReleaseColumns([]Column{t.Heads, t.Used}) }

// maxSlotBits bounds the bits of the slot of a hash table of tuples.
const maxSlotBits = 31

// TupleMarks returns the marks of a region: one for each 4,096 tuples.
func TupleMarks(room int) int { return (room + tuplePiece - 1) / tuplePiece }

// tuplePiece is the tuples of a piece, which has a mark.
const tuplePiece = 4096
