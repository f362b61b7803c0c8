package gpu

import "fmt"

// Exchanging has primitives for joins of tuples that are spread over the devices of a group (Thostrup et al., SIGMOD
// 2023). Benchmarks measure them; no plan chooses them. A Queue may have them; ExchangingOf returns them. Tuples have a
// key and a value of 8 bytes each (TupleType(8)), and are unsigned. The rules of Queue for ownership, errors and cost
// apply.
type Exchanging interface {
	Experimental

	// Fetch starts copies of tuples, one after the other. One side of each copy is memory of this device, the other one
	// memory of any device of its group. The caller guarantees that the sources are complete, and that no work uses
	// the targets. The copies overlap kernels, and Await of the result makes kernels that are launched later wait
	// for them. After an error no copy is running.
	//
	// Cost: each tuple crosses the link between the two devices once, by copy engines.
	Fetch(l *Lease, copies []TupleCopy) (Arrival, error)

	// PartitionRuns partitions each run of tuples by a digit of the key, as a second pass. It writes them into to,
	// which has TupleRoom of the runs, and which must outlive the result. The tuples of a partition have no order. One
	// block of a GPU partitions one run, so runs should be about as many as multiprocessors, and equally long.
	//
	// Errors: those of CheckRuns.
	//
	// Cost: it reads the tuples twice, and writes them once, in lines of 128 bytes.
	PartitionRuns(l *Lease, to Column, runs []TupleRun, d Digit) (PartitionedRuns, error)

	// CountMatches counts the pairs of equal keys of two sides, and adds up the values of both sides of each pair,
	// modulo 2^64. A side may have several parts. Consecutive runs of each part, perBin of them, have the keys of one
	// bin. digit is the digit of the runs' second pass; the bits below it select the slot of a hash table.
	//
	// Errors: those of CheckMatches.
	//
	// Cost: it reads both sides once, if the build tuples of a partition fit the shared memory of a block; otherwise
	// the probe tuples once for each part of the build tuples that fits. It waits for the result.
	CountMatches(l *Lease, build, probe []PartitionedRuns, perBin int, digit Digit) (pairs, sum uint64, err error)

	// SumTuples adds up the keys and the values of runs, modulo 2^64, and counts the tuples of run i whose digit is
	// not digits[i]. Cost: it reads the tuples, and waits for the result.
	SumTuples(l *Lease, runs []TupleRun, digits []int, d Digit) (keys, values, wrong uint64, err error)
}

// ExchangingOf returns the primitives of a queue for tuples that are spread over devices, or an error if its device has
// none.
func ExchangingOf(q Queue) (Exchanging, error) {
	if x, ok := q.(Exchanging); ok {
		return x, nil
	}
	return nil, fmt.Errorf("%s has no primitives to exchange tuples between devices", q.Device().Properties().Name)
}

// Arrival is the end of copies of Fetch.
type Arrival interface {
	// Await makes work that is launched later on the kernels of a queue wait for the copies. It is called once. The
	// queue may be of another device of the group.
	Await(q Queue) error
}

// TupleRun is consecutive tuples of a column.
type TupleRun struct {
	Tuples      Column
	Start, Rows int
}

// TupleCopy is a copy of tuples to consecutive tuples of a column from another one.
type TupleCopy struct {
	To Column
	At int // first tuple of the target
	TupleRun
}

// PartitionedRuns is runs of tuples that are partitioned by a digit. The tuples of digit d of run r begin at
// Starts[r<<Bits|d], and there are Counts[r<<Bits|d] of them. Release releases Starts and Counts.
type PartitionedRuns struct {
	Tuples         Column
	Starts, Counts Column // Uint32
	Runs           int
	Bits           uint
}

// Release releases the starts and the counts.
func (p PartitionedRuns) Release() { ReleaseColumns([]Column{p.Starts, p.Counts}) }

const (
	// TupleLine is the number of tuples of 16 bytes in a line of memory, in which a GPU writes them.
	TupleLine = 8
	// minRunBits and maxRunBits bound the bits of a digit of PartitionRuns.
	minRunBits, maxRunBits = 2, 9
	// maxMatchRuns bounds the runs of a partition and a side in CountMatches.
	maxMatchRuns = 512
)

// TupleRoom returns the number of tuples that a target of PartitionRuns must have: each partition begins at a line.
func TupleRoom(runs []TupleRun, bits uint) (n int) {
	for _, r := range runs {
		n += RunRoom(r.Rows, bits)
	}
	return n
}

// RunRoom is TupleRoom of one run.
func RunRoom(rows int, bits uint) int {
	return (rows+TupleLine-1)/TupleLine*TupleLine + TupleLine<<bits
}

// CheckRuns returns an error if PartitionRuns cannot partition runs: columns of another type than TupleType(8), runs
// beyond their column, a digit of fewer than 2 or more than 9 bits, or a target without room.
func CheckRuns(to Column, runs []TupleRun, d Digit) error {
	if d.Bits < minRunBits || d.Bits > maxRunBits || d.Shift+d.Bits > 64 {
		return fmt.Errorf("partition of runs by %d bits from bit %d: want %d to %d bits that the key has", d.Bits,
			d.Shift, minRunBits, maxRunBits)
	}
	if room := TupleRoom(runs, d.Bits); to.Type != TupleType(8) || to.Len < room || to.Len > MaxRows {
		return fmt.Errorf("partition of runs into a column of %d rows of %v: want %d of %v", to.Len, to.Type, room,
			TupleType(8))
	}
	return checkRuns(runs)
}

func checkRuns(runs []TupleRun) error {
	for i, r := range runs {
		if r.Tuples.Type != TupleType(8) || r.Start < 0 || r.Rows < 0 || r.Start > r.Tuples.Len-r.Rows {
			return fmt.Errorf("run %d has rows [%d, %d) of a column of %d rows of %v", i, r.Start, r.Start+r.Rows,
				r.Tuples.Len, r.Tuples.Type)
		}
	}
	return nil
}

// CheckSums returns an error if SumTuples cannot add up runs.
func CheckSums(runs []TupleRun, digits []int) error {
	if len(runs) != len(digits) {
		return fmt.Errorf("sums of %d runs of %d digits", len(runs), len(digits))
	}
	return checkRuns(runs)
}

// CheckCopies returns an error if Fetch cannot copy: runs beyond their columns, or targets beyond theirs.
func CheckCopies(copies []TupleCopy) error {
	for _, c := range copies {
		if err := checkRuns([]TupleRun{c.TupleRun, {c.To, c.At, c.Rows}}); err != nil {
			return fmt.Errorf("copy of tuples: %w", err)
		}
	}
	return nil
}

// CheckMatches returns an error if CountMatches cannot join sides: parts with different numbers of runs or bits, runs
// that are no multiple of those of a bin, or more than 512 runs of a bin.
func CheckMatches(build, probe []PartitionedRuns, perBin int, digit Digit) error {
	if len(build) == 0 || len(probe) == 0 {
		return fmt.Errorf("count of matches of %d and %d parts: want at least one", len(build), len(probe))
	}
	for _, side := range [][]PartitionedRuns{build, probe} {
		if perBin < 1 || len(side)*perBin > maxMatchRuns {
			return fmt.Errorf("count of matches of %d parts of %d runs: want 1 to %d runs of a bin", len(side), perBin,
				maxMatchRuns)
		}
		for _, p := range side {
			if p.Bits != digit.Bits || p.Runs != build[0].Runs || p.Runs%perBin != 0 {
				return fmt.Errorf("count of matches of %d runs of %d bits with %d runs of %d bits, %d a bin", p.Runs,
					p.Bits, build[0].Runs, digit.Bits, perBin)
			}
		}
	}
	return nil
}
