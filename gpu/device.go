package gpu

import (
	"context"
	"fmt"
	"slices"
)

// Properties describe a device to people and to the planner.
type Properties struct {
	Name    string `json:"name"`              // as the vendor writes it
	Kind    string `json:"kind"`              // "host" or "cuda"
	ID      string `json:"id"`                // by which a job asks for it: "host", "cuda:0"
	Cores   int    `json:"cores"`             // CPU cores in use, or multiprocessors
	Memory  int64  `json:"memory"`            // bytes in all
	Free    int64  `json:"free"`              // bytes free when the device was opened
	Details string `json:"details,omitempty"` // one line more
}

// Device runs primitives. Implementations are safe for concurrent use; a Queue
// is not.
type Device interface {
	Properties() Properties
	// Budget is the device's memory; HostBudget the page-locked host memory
	// that strides are decoded into. They are one and the same on the host.
	Budget() *Budget
	HostBudget() *Budget
	// NewQueue opens an ordered stream of primitives, each of which may use the
	// whole device. One goroutine owns it.
	NewQueue(name string) (Queue, error)
	// Lanes is how many lanes a pipeline should have on this device, and
	// NewLaneQueue opens the queue of one of them: on the CPU its primitives use
	// one core, so that a lane a core keeps all of them busy.
	Lanes() int
	NewLaneQueue(name string) (Queue, error)
	// StrideRows is the number of rows a stride should have on this device
	// when a row takes rowBytes bytes.
	StrideRows(rowBytes int) int
	Close() error
}

// Queue is an ordered stream of primitives on one device. One goroutine owns
// it. Every method that allocates takes the lease that pays, and returns
// columns that the caller owns; inputs are borrowed and stay the caller's.
//
// The first error sticks: later calls return it without running. Refused memory
// (IsRefusal) does not: a call that was refused has changed neither its inputs nor
// the state that it works on, and the same call works once there is room. State
// keeps the room that it was given so far.
//
// Columns are in the memory of the queue's device, any host memory on the host, and
// tables, groups and accumulators were made on it: those of another device are refused
// with an error. Upload takes strides that the host can address.
//
// Row ids are Int32 columns without nulls; unless a method says otherwise every
// id is in [0, rows).
type Queue interface {
	Device() Device

	// Until makes primitives fail once ctx ends, with its cause: those called later,
	// and on the CPU those at work, too. It is called before the first primitive.
	Until(ctx context.Context)

	// Upload brings a stride to the device, whose lease pays, and Download to the host,
	// paid by a lease of the HostBudget. Each takes the stride over and returns one that
	// the caller owns, possibly the same; after an error the caller still has the stride,
	// as it was. Columns keep their dictionaries, and columns that shared one before
	// share one after; encoded columns become ordinary ones on their way up.
	Upload(l *Lease, s *Stride) (*Stride, error)
	Download(l *Lease, s *Stride) (*Stride, error)

	// UploadAhead is Upload for a stride that comes before its turn: the copies start, and
	// primitives that are launched meanwhile do not wait for them. Wait, on this
	// queue or another of the device, makes the stride usable; it is called before
	// anything else is done with the stride, its release included. Wait that was
	// refused may come again, or the stride be released.
	UploadAhead(l *Lease, s *Stride) (*Stride, error)
	Wait(s *Stride) error

	// Eval evaluates an expression program over n rows: one column an output
	// of the program. Inputs correspond to p.Inputs.
	Eval(l *Lease, p *Program, in []Column, n int) ([]Column, error)

	// Select returns the ids of the rows where the Bool column is true (not
	// false, not null), ascending.
	Select(l *Lease, pred Column) (Column, error)

	// Gather returns, for every column, its rows at ids, in that order. With
	// outer an id may be -1, which gives a null.
	Gather(l *Lease, cols []Column, ids Column, outer bool) ([]Column, error)

	// GatherParts is Gather of a String or Binary column that lies in parts,
	// because together they may hold more bytes than offsets reach. Ids count
	// through the parts, whose rows together are at most MaxRows; a part may have
	// a dictionary, the result has none.
	GatherParts(l *Lease, parts []Column, ids Column) (Column, error)

	// Scatter is the inverse of Gather: row i of every column goes to row ids[i] of
	// a result of n rows. Rows of the result that no id names are null. An id
	// outside [0, n) leaves its row out; of rows with the same id the last counts.
	Scatter(l *Lease, cols []Column, ids Column, n int) ([]Column, error)

	// Concat returns the rows of parts one after the other; every part has the
	// same type. Dictionaries survive where all parts have one. Release of the
	// parts stays with the caller.
	Concat(l *Lease, parts []Column) (Column, error)

	// Slice returns rows [from, to) of a column.
	Slice(l *Lease, c Column, from, to int) (Column, error)

	// Hash returns a Uint64 hash of every row over the key columns. Equal rows
	// have equal hashes across strides, dictionaries and storage widths, and on
	// every device, in every process and on every machine that is given the
	// same seed. A null hashes as a value of its own. Float keys are canonical:
	// -0 as +0, one NaN. A run draws a seed, so that no file can be made whose
	// keys all collide.
	Hash(l *Lease, keys []Column, seed uint64) (Column, error)

	// Partition is the stable radix partition of all columns in one go: row i
	// goes to partition hash[i] >> shift & (1<<bits - 1), rows keep their order
	// inside a partition. hash is a plain integer column of 4 or 8 bytes whose
	// bits are taken as they are: the result of Hash, or a key. It returns the
	// partitioned columns and the 1<<bits + 1 offsets. bits is at most 16, and
	// the bits [shift, shift+bits) are bits of the column.
	// (Wu et al., SIGMOD 2025, §4: the GFTR transform.)
	Partition(l *Lease, cols []Column, hash Column, shift, bits uint) ([]Column, []int, error)

	// Sort returns the permutation that orders the rows by the keys, the first
	// key most significant; rows with equal keys keep their order.
	Sort(l *Lease, keys []SortKey) (Column, error)

	// BuildTable makes a hash table over the rows of the key columns. The
	// table retains the columns. Rows with a null key are left out, unless the
	// key is null-safe (IS NOT DISTINCT FROM).
	BuildTable(l *Lease, keys []Column, nullSafe []bool) (Table, error)

	// MatchPartitions joins two sides that Partition cut by the same bits of the
	// same hash of their keys: the partitioned hash join (Wu et al., SIGMOD 2025,
	// §4), for build sides too large for a cache. Null keys match nothing. It
	// returns probe row ids and, for Inner and Left, build row ids (-1 without a
	// match), as Table.Probe does, but in an order of its own: pairs of a
	// partition stand together, so that a Gather of the partitioned columns reads
	// close rows; the matches of one probe row come in any order, and rows without
	// a match may come last. Offsets may name some of the partitions only; other
	// rows are left out.
	MatchPartitions(l *Lease, build, probe Partitioned, kind JoinKind) (probeIDs, buildIDs Column, err error)

	// MatchSorted finds the matches of two sides that are sorted by their keys, in
	// the order of Sort: the match finding of the sort-merge join, by merge path
	// (Rui & Tu, SSDBM 2017, §3.3.2). The keys of both
	// sides correspond in number, type and order. A null matches nothing, unless the
	// key is null-safe. It returns probe row ids, ascending, and for Inner and Left
	// build row ids (-1 without a match), ascending for each probe row. That the
	// sides are sorted is the caller's promise.
	MatchSorted(l *Lease, build, probe []SortKey, nullSafe []bool, kind JoinKind) (probeIDs, buildIDs Column, err error)

	// Runs numbers the runs of rows that follow each other with equal keys, in
	// order from 0; keys are equal as in Groups. It returns the run of every row,
	// which accumulators take as its group, and the first row of every run, at which
	// Gather gives the keys. Accumulators fold a run before they touch its state: the
	// reduction of sort-based grouping (Wu et al., SIGMOD 2025, §4.1.3).
	Runs(l *Lease, keys []Column) (runs Assignment, firsts Column, err error)

	// NewGroups makes an empty assignment of keys to group ids. Key types are
	// fixed; Hint helps to choose the table.
	NewGroups(l *Lease, types []Type, hint GroupHint) (Groups, error)

	// NewAccumulator makes the running state of one aggregate over groups.
	NewAccumulator(l *Lease, a Aggregate) (Accumulator, error)

	// Close ends the queue and returns its first error that was no refusal.
	Close() error
}

// SortKey is one column of a sort order.
type SortKey struct {
	Column     Column
	Descending bool
	NullsFirst bool
}

// Partitioned is the key of one side of a partitioned join. Partition p is the
// rows [Offsets[p], Offsets[p+1]).
type Partitioned struct {
	// Key is a plain column of integers, narrow decimals, dates, times or
	// timestamps, of 4 or 8 bytes a value.
	Key     Column
	Offsets []int
}

// CheckPartitions says whether MatchPartitions can join two sides.
func CheckPartitions(build, probe Partitioned) error {
	t := build.Key.Type
	if w := t.Width(); build.Key.Dict != nil || probe.Key.Dict != nil || t.IsFloat() || w != 4 && w != 8 {
		return fmt.Errorf("partitioned join by a key of %v: want plain integers, decimals, dates or times of 4 or 8 bytes", t)
	}
	if probe.Key.Type != t {
		return fmt.Errorf("partitioned join of a key of %v with one of %v", t, probe.Key.Type)
	}
	if len(build.Offsets) != len(probe.Offsets) || len(build.Offsets) == 0 {
		return fmt.Errorf("partitioned join of %d and %d offsets", len(build.Offsets), len(probe.Offsets))
	}
	for _, s := range []Partitioned{build, probe} {
		if s.Key.Len > MaxRows || s.Offsets[0] < 0 || !slices.IsSorted(s.Offsets) || s.Offsets[len(s.Offsets)-1] > s.Key.Len {
			return fmt.Errorf("partitioned join: offsets do not fit a key of %d rows", s.Key.Len)
		}
	}
	return nil
}

// ErrTooManyPairs is the error of a join with more pairs than row ids can address.
func ErrTooManyPairs(n int64) error {
	return fmt.Errorf("a join gives %d pairs, more than the %d that row ids can address: join fewer rows at a time", n, MaxRows)
}

// JoinKind says which rows a probe returns.
type JoinKind uint8

// The kinds of joins; the probe side is the left side.
const (
	Inner JoinKind = iota
	Left           // probe rows without a match come with a null build side
	Semi           // probe rows with at least one match, once
	Anti           // probe rows without a match
)

// String returns the SQL word.
func (k JoinKind) String() string { return [...]string{"inner", "left", "semi", "anti"}[k] }

// Table is a hash table over the build side of a join. Probe may run on several
// queues of its device at a time.
type Table interface {
	// Probe matches rows [from, ...) of the key columns, whose types are those
	// of the build keys, and stops at a row boundary once it has at least
	// limit pairs. It returns the probe row ids, ascending, and for Inner and
	// Left the build row ids (-1 without a match, Left only; ascending for each
	// probe row), and the first
	// row not yet probed: call again from there until it is the row count.
	Probe(q Queue, l *Lease, keys []Column, kind JoinKind, from, limit int) (probe, build Column, next int, err error)
	// Rows returns the rows in the table.
	Rows() int
	Release()
}

// GroupHint is what the planner knows of the groups before they are seen.
// Wrong hints cost time, never rows.
type GroupHint struct {
	// Rows bounds the input, Groups estimates the groups; 0 when unknown.
	Rows, Groups int
	// Lo and Hi bound the value of a single integer-like key; used when Dense.
	Lo, Hi int64
	Dense  bool
}

// Groups maps keys to dense group ids 0, 1, 2 … in the order in which they first
// appear. Nulls are equal to each other.
type Groups interface {
	// Assign returns the groups of n rows, with new ids for keys not seen
	// before. Without key columns all rows are in group 0.
	Assign(q Queue, l *Lease, keys []Column, n int) (Assignment, error)
	// Len returns the number of groups.
	Len() int
	// Keys returns the key columns of groups [from, to).
	Keys(q Queue, l *Lease, from, to int) ([]Column, error)
	Release()
}

// Assignment is the group ids of one batch of rows, in the form the device's
// accumulators want.
type Assignment interface {
	// IDs returns the group id of every row, Int32. The column is borrowed.
	IDs() Column
	Release()
}

// AggregateKind is an aggregate function.
type AggregateKind uint8

// The aggregates. CountAll counts rows, Count values that are not null. Avg has
// no accumulator: the group-by divides a Sum by a Count.
const (
	CountAll AggregateKind = iota
	Count
	Sum
	Min
	Max
	Avg
)

// String returns the SQL name.
func (k AggregateKind) String() string {
	return [...]string{"count(*)", "count", "sum", "min", "max", "avg"}[k]
}

// Aggregate is one aggregate over a column of type Input, giving Output.
//
//	Sum   SumType. Exact for integers and decimals (128-bit), an overflow is an
//	      error.
//	Count BIGINT.
//	Min, Max  the type of the input.
type Aggregate struct {
	Kind   AggregateKind
	Input  Type // Invalid for CountAll
	Output Type
}

// SumType returns the type of a Sum over values of a numeric type: what holds
// every sum of floats and decimals, and HUGEINT of integers.
func SumType(t Type) Type {
	switch {
	case t.IsFloat():
		return Of(Float64)
	case t.IsInteger():
		return Of(HugeInt)
	}
	return DecimalOf(MaxPrecision, int(t.Scale))
}

// Accumulator is the running state of one aggregate for every group.
type Accumulator interface {
	// Update folds the rows of values into their groups; groups is the number
	// of groups after the assignment. values is ignored by CountAll.
	Update(q Queue, a Assignment, values Column, groups int) error
	// Result returns the aggregate of groups [from, to).
	Result(q Queue, l *Lease, from, to int) (Column, error)
	Release()
}
