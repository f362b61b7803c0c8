package gpu

import (
	"cmp"
	"fmt"
	"slices"
)

// Exchanging has primitives for joins of tuples that are spread over the devices of a group (Thostrup et al., SIGMOD
// 2023). Benchmarks measure them; no plan chooses them. A Queue may have them; ExchangingOf returns them. Tuples have a
// key and a value of 8 bytes each (TupleType(8)), and are unsigned. SendTuples, PartitionRuns and CountMatches take
// tuples of other widths: see TupleWidths. The rules of Queue for ownership, errors and cost apply.
type Exchanging interface {
	Experimental
	TupleTables

	// SendTuples makes tuples of keys and values, and partitions those of each source by their digit into
	// n = len(regions) / len(sources) regions: those of digit d go to region d*n>>Bits of their source. The regions of
	// the first source come first. A region is in memory of any device of the group. Its tuples have no order, and
	// there is a hole among them: a TupleRun with the result as its Counts has them. The caller guarantees that no work
	// uses the regions. Overruns tells whether a region had no room for all. Tuples of heavy keys are not sent.
	//
	// Errors: those of CheckSend.
	//
	// Cost: it reads the columns once, and writes each tuple once, to where it belongs, in lines of 128 bytes. Sources
	// share the multiprocessors equally.
	SendTuples(l *Lease, sources []TupleSource, by TupleRoute, regions []TupleRun) (counts Column, err error)

	// Overruns returns the number of tuples that SendTuples had no room for, from its results. Cost: it waits for them.
	Overruns(l *Lease, counts []Column) (int, error)

	// CopyTuples starts copies of tuples, one after the other. One side of each copy is memory of this device, the
	// other one memory of any device of its group. The copies wait for the kernels that the queue has launched, and
	// for other work. The caller guarantees that no work uses the targets. They overlap kernels that are launched
	// later. After an error no copy is running.
	//
	// Cost: each tuple crosses the link between the two devices once, by copy engines.
	CopyTuples(l *Lease, copies []TupleCopy, after ...Arrival) (Arrival, error)

	// Launched returns the end of the kernels that the queue has launched.
	Launched() (Arrival, error)

	// PartitionRuns partitions each run of tuples by a digit, as a second pass. It writes them into to,
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
	//
	// With columns as out, it writes the pairs: their keys, the values of the build side, and those of the probe side,
	// in any order. They are Uint64 columns of one length. If there are more pairs than rows, those written are not
	// all, and the caller repeats the call with more rows.
	CountMatches(l *Lease, build, probe []PartitionedRuns, perBin int, digit Digit, out ...Column) (pairs, sum uint64,
		err error)

	// GroupTuples groups the tuples of parts by key, and writes the keys, the sums of their values modulo 2^64, and
	// the numbers of their tuples, in any order, into Uint64 columns of one length. The parts are as those of
	// CountMatches. If there are more groups than rows, those written are not all, and the caller repeats the call with
	// more rows.
	//
	// Errors: those of CheckGroupTuples.
	//
	// Cost: it reads the tuples once, if the groups of a partition, some thousand, fit the shared memory of a block;
	// otherwise several times. It waits for the result.
	GroupTuples(l *Lease, parts []PartitionedRuns, perBin int, d Digit, keys, sums, counts Column) (groups int,
		err error)

	// CollectTuples copies the tuples of runs, one after the other, to columns of keys and of values. Cost: it reads
	// and writes them once, and waits for their number.
	CollectTuples(l *Lease, runs []TupleRun) (keys, values Column, err error)

	// SumTuples adds up the keys and the values of runs, modulo 2^64, and counts the tuples of run i that do not belong
	// to region regions[i] of ways, as SendTuples numbers them. Cost: it reads the tuples, and waits for the result.
	SumTuples(l *Lease, runs []TupleRun, regions []int, ways int, d Digit) (keys, values, wrong uint64, err error)
}

// ExchangingOf returns the primitives of a queue for tuples that are spread over devices, or an error if its device has
// none.
func ExchangingOf(q Queue) (Exchanging, error) {
	if x, ok := q.(Exchanging); ok {
		return x, nil
	}
	return nil, fmt.Errorf("%s has no primitives to exchange tuples between devices", q.Device().Properties().Name)
}

// Arrival is the end of work of a device.
type Arrival interface {
	// Await makes work that is launched later on the kernels of a queue wait for the end. The queue may be of another
	// device of the group.
	Await(q Queue) error
	// Release ends the use of the arrival.
	Release()
}

// TupleSource is rows of a key and a value, Uint64 columns of equal length. Tuples of 8 bytes have Uint32 columns.
// Wider tuples have more values.
type TupleSource struct {
	Key, Value Column
	More       []Column // of Uint64: none, 2 or 6
}

// TupleWidths are the bytes of a tuple: a key and a value of half of them, or a key of 8 bytes and 1, 3 or 7 values.
var TupleWidths = []int{8, 16, 32, 64}

// columns returns the columns of a source, the key first.
func (s TupleSource) columns() []Column { return append([]Column{s.Key, s.Value}, s.More...) }

// Width returns the bytes of a tuple of a source.
func (s TupleSource) Width() int {
	if s.Key.Type == Of(Uint32) {
		return 8
	}
	return 8 * len(s.columns())
}

// TupleRoute says to which region SendTuples sends a tuple.
type TupleRoute struct {
	Digit
	// Splitters, unless empty, are 2^Bits - 1 ascending values of Uint64. The digit of a key is the number of splitters
	// that are not above it then, so that each region has a range of keys.
	Splitters Column
	Heavy     HeavyKeys
}

// HeavyKeys are keys that are joined where their tuples are, since too many tuples have them. SendTuples of the build
// side adds up their tuples on each device. SendTuples of the probe side joins them with the sums of all devices. The
// zero value has no keys.
type HeavyKeys struct {
	Keys Column // at most MostHeavyKeys of Uint64, all different
	// Own has two Uint64 for each key, 0 at first: SendTuples of the build side adds to them the number of its tuples
	// and the sum of their values.
	Own Column
	// All are Own of all devices, of the probe side. Result has two Uint64, to which SendTuples of the probe side adds
	// the number of pairs, and the sum of the values of both sides.
	All    []Column
	Result Column
}

// MostHeavyKeys bounds heavy keys, and HeavyGPUs the devices that have them.
const MostHeavyKeys, HeavyGPUs = 256, 16

// check returns an error if columns of heavy keys have wrong types or lengths.
func (h HeavyKeys) check() error {
	word, n := Of(Uint64), h.Keys.Len
	if n == 0 {
		return nil
	}
	if n > MostHeavyKeys || len(h.All) > HeavyGPUs || h.Keys.Type != word {
		return fmt.Errorf("%d heavy keys of %v of %d devices: want at most %d of %v, and %d devices", n, h.Keys.Type,
			len(h.All), MostHeavyKeys, word, HeavyGPUs)
	}
	sums := h.All
	if len(h.All) == 0 {
		sums = []Column{h.Own}
	} else if h.Result.Type != word || h.Result.Len != 2 {
		return fmt.Errorf("result of heavy keys has %d rows of %v, want 2 of %v", h.Result.Len, h.Result.Type, word)
	}
	for _, c := range sums {
		if c.Type != word || c.Len != 2*n {
			return fmt.Errorf("sums of %d heavy keys have %d rows of %v, want %d of %v", n, c.Len, c.Type, 2*n, word)
		}
	}
	return nil
}

// TupleRun is consecutive tuples of a column, or a region of SendTuples.
type TupleRun struct {
	Tuples      Column
	Start, Rows int
	// Counts is the result of SendTuples which wrote the run as its region Region. Rows is the room of the region then.
	// The zero value says that there are Rows tuples.
	Counts Column
	Region int
	// Width is the bytes of a tuple, of TupleWidths; 0 means 16. Start and Rows count tuples of this width. Tuples is a
	// column of TupleType(8) in any case.
	Width int
}

// Bytes returns the bytes of a tuple of the run.
func (r TupleRun) Bytes() int { return cmp.Or(r.Width, 16) }

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
	Width          int // as of TupleRun
}

// Release releases the starts and the counts.
func (p PartitionedRuns) Release() { ReleaseColumns([]Column{p.Starts, p.Counts}) }

const (
	// TupleLine is the number of tuples of 16 bytes in a line of memory, in which a GPU writes them.
	TupleLine = 8
	// SendTail is the tuples at the end of a region that SendTuples uses for those that fill no line.
	SendTail = 192 * TupleLine
	// SendSources and SendRegions bound the sources and the regions of a call of SendTuples.
	SendSources, SendRegions = 16, 128
	// maxSendBits bounds the bits of a digit of SendTuples.
	maxSendBits = 7
	// minRunBits and MaxRunBits bound the bits of a digit of PartitionRuns.
	minRunBits, MaxRunBits = 2, 9
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
	if d.Bits < minRunBits || d.Bits > MaxRunBits || d.Shift+d.Bits > 64 {
		return fmt.Errorf("partition of runs by %d bits from bit %d: want %d to %d bits that the key has", d.Bits,
			d.Shift, minRunBits, MaxRunBits)
	}
	width := TupleRun{}.Bytes()
	for _, r := range runs {
		if width = r.Bytes(); width != runs[0].Bytes() {
			return fmt.Errorf("partition of runs of tuples of %d and %d bytes", runs[0].Bytes(), width)
		}
	}
	room := (TupleRoom(runs, d.Bits)*width + 15) / 16
	if to.Type != TupleType(8) || to.Len < room || to.Len > MaxRows {
		return fmt.Errorf("partition of runs into a column of %d rows of %v: want %d of %v", to.Len, to.Type, room,
			TupleType(8))
	}
	return checkRuns(runs)
}

// sixteen returns an error for runs of tuples that have not 16 bytes.
func sixteen(runs []TupleRun) error {
	for i, r := range runs {
		if r.Bytes() != 16 {
			return fmt.Errorf("run %d has tuples of %d bytes: want 16", i, r.Bytes())
		}
	}
	return nil
}

// CheckSend returns an error if SendTuples cannot send: columns that are not of Uint64, or of different lengths; a
// digit of more than 7 bits; more than 16 sources, 128 regions, or regions of a source than digits; splitters or heavy
// keys of wrong types or lengths; or regions with room for SendTail tuples or fewer, or that do not begin at a line.
func CheckSend(sources []TupleSource, by TupleRoute, regions []TupleRun) error {
	d := by.Digit
	for i, s := range sources {
		width, word := s.Width(), Of(Uint64)
		if width == 8 {
			word = Of(Uint32)
		}
		for _, c := range s.columns() {
			if c.Type != word || c.Len != s.Key.Len || c.Len > MaxRows {
				return fmt.Errorf("send %d keys of %v and %d values of %v of source %d: want equally many of %v",
					s.Key.Len, s.Key.Type, c.Len, c.Type, i, word)
			}
		}
		if !slices.Contains(TupleWidths, width) || width == 8 && len(s.More) > 0 || width != sources[0].Width() {
			return fmt.Errorf("send tuples of %d columns of %v of source %d: want equally wide ones of %v bytes",
				len(s.columns()), word, i, TupleWidths)
		}
	}
	if d.Bits < 1 || d.Bits > maxSendBits || d.Shift+d.Bits > 64 {
		return fmt.Errorf("send tuples by %d bits from bit %d: want 1 to %d bits that the key has", d.Bits, d.Shift,
			maxSendBits)
	}
	n := len(sources)
	if n == 0 || n > SendSources || len(regions)%n != 0 || len(regions) == 0 || len(regions) > SendRegions ||
		len(regions)/n > 1<<d.Bits {
		return fmt.Errorf("send tuples of %d sources to %d regions: want 1 to %d sources, equally many regions of "+
			"each, %d of all, and %d of each source at most", n, len(regions), SendSources, SendRegions, 1<<d.Bits)
	}
	for i, r := range regions {
		if n > 0 && r.Bytes() != sources[0].Width() {
			return fmt.Errorf("send tuples of %d bytes to region %d of tuples of %d", sources[0].Width(), i, r.Bytes())
		}
		if r.Rows <= SendTail || r.Start%TupleLine != 0 || r.Counts.Len > 0 {
			return fmt.Errorf("send tuples to rows [%d, %d) as region %d: want more than %d from a multiple of %d",
				r.Start, r.Start+r.Rows, i, SendTail, TupleLine)
		}
	}
	if s := by.Splitters; s.Len > 0 && (s.Type != Of(Uint64) || s.Len != 1<<d.Bits-1) {
		return fmt.Errorf("send tuples by %d splitters of %v: want %d of %v", s.Len, s.Type, 1<<d.Bits-1, Of(Uint64))
	}
	if err := by.Heavy.check(); err != nil {
		return err
	}
	return checkRuns(regions)
}

// SendCounts returns the length of the result of SendTuples: for each region the tuples at its beginning and those at
// its end, and at last the tuples without room.
func SendCounts(regions int) int { return 2*regions + 1 }

func checkRuns(runs []TupleRun) error {
	for i, r := range runs {
		if n := r.Counts.Len; n > 0 && (r.Counts.Type != Of(Uint32) || r.Region < 0 || SendCounts(r.Region+1) > n) {
			return fmt.Errorf("run %d is region %d of %d counts of %v", i, r.Region, n, r.Counts.Type)
		}
		if !slices.Contains(TupleWidths, r.Bytes()) {
			return fmt.Errorf("run %d has tuples of %d bytes: want %v", i, r.Width, TupleWidths)
		}
		have := r.Tuples.Len * 16 / r.Bytes()
		if r.Tuples.Type != TupleType(8) || r.Start < 0 || r.Rows < 0 || r.Start > have-r.Rows {
			return fmt.Errorf("run %d has rows [%d, %d) of a column of %d rows of %v", i, r.Start, r.Start+r.Rows,
				r.Tuples.Len, r.Tuples.Type)
		}
	}
	return nil
}

// CheckCollect returns an error if CollectTuples cannot copy runs: those of CheckRuns, or more tuples than a column can
// have.
func CheckCollect(runs []TupleRun) error {
	n := 0
	for _, r := range runs {
		n += r.Rows
	}
	if n > MaxRows {
		return fmt.Errorf("collect up to %d tuples: a column has %d at most", n, MaxRows)
	}
	if err := sixteen(runs); err != nil {
		return err
	}
	return checkRuns(runs)
}

// CheckSums returns an error if SumTuples cannot add up runs.
func CheckSums(runs []TupleRun, regions []int) error {
	if len(runs) != len(regions) {
		return fmt.Errorf("sums of %d runs of %d regions", len(runs), len(regions))
	}
	if err := sixteen(runs); err != nil {
		return err
	}
	return checkRuns(runs)
}

// CheckCopies returns an error if CopyTuples cannot copy: runs beyond their columns, or targets beyond theirs.
func CheckCopies(copies []TupleCopy) error {
	for _, c := range copies {
		if err := checkRuns([]TupleRun{c.TupleRun, {Tuples: c.To, Start: c.At, Rows: c.Rows,
			Width: c.Width}}); err != nil {
			return fmt.Errorf("copy of tuples: %w", err)
		}
	}
	return nil
}

// CheckGroupTuples returns an error if GroupTuples cannot group parts, as CheckMatches does for a join.
func CheckGroupTuples(parts []PartitionedRuns, perBin int, d Digit, out ...Column) error {
	for _, p := range parts {
		if err := sixteen([]TupleRun{{Width: p.Width}}); err != nil {
			return err
		}
	}
	return CheckMatches(parts, parts, perBin, d, out)
}

// CheckMatches returns an error if CountMatches cannot join sides: parts with different numbers of runs or bits, runs
// that are no multiple of those of a bin, or more than 512 runs of a bin.
func CheckMatches(build, probe []PartitionedRuns, perBin int, digit Digit, out []Column) error {
	if len(out) != 0 && len(out) != 3 {
		return fmt.Errorf("result of tuples as %d columns: want 3", len(out))
	}
	for _, c := range out {
		if c.Type != Of(Uint64) || c.Len != out[0].Len {
			return fmt.Errorf("result of tuples as %d rows of %v: want %d of %v", c.Len, c.Type, out[0].Len, Of(Uint64))
		}
	}
	if len(build) == 0 || len(probe) == 0 {
		return fmt.Errorf("count of matches of %d and %d parts: want at least one", len(build), len(probe))
	}
	for _, side := range [][]PartitionedRuns{build, probe} {
		if perBin < 1 || len(side)*perBin > maxMatchRuns {
			return fmt.Errorf("count of matches of %d parts of %d runs: want 1 to %d runs of a bin", len(side), perBin,
				maxMatchRuns)
		}
		for _, p := range side {
			if cmp.Or(p.Width, 16) != cmp.Or(build[0].Width, 16) {
				return fmt.Errorf("count of matches of tuples of %d bytes with tuples of %d", p.Width, build[0].Width)
			}
			if p.Bits != digit.Bits || p.Runs != build[0].Runs || p.Runs%perBin != 0 {
				return fmt.Errorf("count of matches of %d runs of %d bits with %d runs of %d bits, %d a bin", p.Runs,
					p.Bits, build[0].Runs, digit.Bits, perBin)
			}
		}
	}
	return nil
}
