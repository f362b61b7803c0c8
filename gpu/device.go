package gpu

import (
	"context"
	"fmt"
)

// Properties describe a device to people and to the planner.
type Properties struct {
	Name   string `json:"name"`   // as the vendor writes it
	Kind   string `json:"kind"`   // "host" or "cuda"
	ID     string `json:"id"`     // by which a job asks for it: "host", "cuda:0"
	Cores  int    `json:"cores"`  // CPU cores in use, or multiprocessors of the GPU
	Memory int64  `json:"memory"` // bytes in total
	Free   int64  `json:"free"`   // bytes free when the device was opened
	// bytes of the second-level cache: of a CPU core, or of the whole GPU; 0 unknown
	L2           int64  `json:"l2,omitempty"`
	Shared       int64  `json:"shared,omitempty"`  // most bytes of shared memory of a block on a GPU
	Details      string `json:"details,omitempty"` // one more line for people
	Capabilities `json:"capabilities"`
}

// Capabilities say what a device can do. Code that chooses an algorithm uses them, and never asks
// which device it is. They are the same for all devices of a kind, and known before a device is
// opened.
type Capabilities struct {
	// BlockTables says that AggregatePartitions uses hash tables in the shared memory of thread
	// blocks. With few groups, or with partitioned rows, they are faster than one table in device
	// memory.
	BlockTables bool `json:"block_tables"`
	// PartitionedJoins says that a join of radix-partitioned sides may be faster than one with a
	// single hash table.
	PartitionedJoins bool `json:"partitioned_joins"`
	// PairOutputs says that MatchPartitions has every PairOutput. Otherwise each of them means
	// PairsFused.
	PairOutputs bool `json:"pair_outputs"`
	// SortedTables says that BuildTable sorts keys that are a single number of 4 or 8 bytes. It
	// then needs memory for a copy of the keys, and afterwards less than a hash table.
	SortedTables bool `json:"sorted_tables"`
	// DecodePages says that Upload decodes columns in pages (Pages) on the device.
	DecodePages bool `json:"decode_pages"`
	// EncodePages says that queues are PageEncoders.
	EncodePages bool `json:"encode_pages"`
	// ArgMinMax says that NewArgMinMax works.
	ArgMinMax bool `json:"leaders"`
}

// Device runs primitives. Implementations are safe for concurrent use; a Queue
// is not.
type Device interface {
	// Properties waits until the device has started. Known does not wait, and returns only what is
	// known before: kind, ID, capabilities, and a name for messages.
	Properties() Properties
	Known() Properties
	// Budget is the budget of device memory. HostBudget is the budget of the page-locked
	// host memory that strides are decoded into. On the host both are the same budget.
	Budget() *Budget
	HostBudget() *Budget
	// NewQueue opens an ordered stream of primitives. Each primitive may use the whole
	// device. One goroutine owns the queue.
	NewQueue(name string) (Queue, error)
	// Lanes is the number of lanes that a pipeline should have on this device.
	// NewLaneQueue opens the queue of one lane. On the CPU, primitives of such a queue
	// use one core, so a lane per core keeps all cores busy.
	Lanes() int
	NewLaneQueue(name string) (Queue, error)
	// StrideRows is the number of rows that a stride should have on this device if a row takes
	// rowBytes bytes.
	StrideRows(rowBytes int) int
	// PagesStrideRows is the same of strides whose columns arrive in pages, slow ones as source.Paged says. It waits
	// for the driver of the device, which knows the memory.
	PagesStrideRows(rowBytes int, slow bool) int
	Close() error
}

// Queue is an ordered stream of primitives on one device. One goroutine owns it.
//
// Ownership. The inputs of a primitive are borrowed and remain the caller's. The caller owns every
// column that a primitive returns, and releases it. A returned column may share the buffers of an
// input. The lease of a call pays for the result and for scratch memory; scratch memory is released
// before the call returns. After an error there is no result.
//
// Inputs. Columns are in the memory of the queue's device; on the CPU, any host memory is accepted.
// Tables, groups and accumulators were made on that device. Anything that belongs to another device
// is an error. Upload accepts strides that the host can address, or that are in memory of a device of the same Group.
// Row ids are Int32 columns without nulls. Unless a method says otherwise, the caller guarantees that every id is in
// [0, rows): a device does not check it.
//
// Errors. There are four kinds:
//
//   - Out of memory (IsOutOfMemory) means that memory was denied. It changes neither the inputs nor the state that the
//     call works on, and the same call works once there is memory. State keeps the memory that it has reserved
//     so far.
//   - A mistake of the caller (wrong types, lengths, ranges or devices) changes nothing either, and other calls
//     work.
//   - A result that row ids or string offsets of 32 bits cannot address is an error of this call only, but the
//     state that the call works on can then only be released.
//   - A failure (IsFailure) sticks to the queue: later calls return it without running. Failures are values that
//     fail (an overflow in Eval or a Sum) and a device that fails. After the end of the context of Until all
//     calls return its cause.
//
// Cost. n is the number of rows. A method names the bytes of memory that it reads and writes for
// columns of fixed width without nulls. Validity and Bool columns add a bit per row. On a GPU a
// call launches kernels and returns. It waits for the device only if it needs a count or a total,
// and then its comment says so.
type Queue interface {
	Device() Device

	// Until makes primitives fail with the cause of ctx once ctx ends. Later calls fail at once. On
	// the CPU, a running call fails too. Until is called before the first primitive.
	Until(ctx context.Context)

	// Upload copies a stride to the device; a lease of the Budget pays. Download copies a
	// stride to the host; a lease of the HostBudget pays. Each takes the stride over and
	// returns one that the caller owns, possibly the same. After an error the caller
	// still owns the stride, unchanged. Columns keep their dictionaries, and columns that
	// shared a dictionary share one afterwards. Upload turns encoded columns into
	// ordinary ones.
	//
	// Errors: out of memory, also if host memory cannot be page-locked; a stride that the host cannot
	// address.
	//
	// Cost: the bytes of the stride cross the link once. A dictionary crosses it only if the queue
	// has not copied the same dictionary, or an equal small one, before. Kernels wait for the
	// copies of Upload, the caller does not. The caller waits for the copies of Download. On the
	// CPU nothing is copied, except to widen encoded columns.
	Upload(l *Lease, s *Stride) (*Stride, error)
	Download(l *Lease, s *Stride) (*Stride, error)

	// UploadAhead is Upload before the turn of the stride: it starts the copies, and primitives
	// launched before Wait do not wait for them. Wait makes the stride usable, on this queue or
	// another queue of the device. It must be called before anything else is done with the stride,
	// including its release. If memory is denied, Wait may be called again, or the stride may be
	// released.
	UploadAhead(l *Lease, s *Stride) (*Stride, error)
	Wait(s *Stride) error

	// Eval evaluates an expression program over n rows. in has one column of n rows for
	// each of p.Inputs, of that type. Eval returns one column of n rows for each of
	// p.Outputs.
	//
	// Errors: the first row on which an operation fails, unless the row is masked
	// (Instr.Mask). The message names the expression and the value.
	//
	// Cost: one pass per instruction, which reads the arguments and writes the result. Operations
	// that depend on one dictionary-coded input may run once per value instead of once per row.
	Eval(l *Lease, p *Program, in []Column, n int) ([]Column, error)

	// Select returns the ascending ids of the rows where the Bool column is true or, if want is
	// false, of all other rows, where it is false or null.
	//
	// Cost: it reads the bitmaps twice (count, then list) and writes 4 bytes per selected row. It
	// waits for the count.
	Select(l *Lease, pred Column, want bool) (Column, error)

	// NewBitmap returns a bitmap: a Bool column of n rows without nulls, all false. SetBits sets the
	// rows at ids to true, in place. Several queues of the device may set bits of one column
	// concurrently. SetBits takes no memory. A primitive that starts later sees the bits of calls that
	// have returned.
	//
	// Errors: NewBitmap of fewer than 0 or more than MaxRows rows; SetBits of a column that is not a
	// plain Bool column without nulls.
	//
	// Cost: NewBitmap writes a bit per row. SetBits reads 4 bytes per id and changes a bit of a word,
	// in random order at worst.
	NewBitmap(l *Lease, n int) (Column, error)
	SetBits(l *Lease, bitmap, ids Column) error

	// AddUnmatched adds probe rows without a pair to pairs of rows, with -1 as the build row. probe
	// and build are the row ids of the pairs, and rest has the rows to add. The caller guarantees
	// that probe and rest ascend and have no row in common. The probe rows of the result ascend,
	// and the pairs of one row keep their order.
	//
	// Errors: probe and build of different lengths, more than MaxRows rows.
	//
	// Cost: per row, a search in the other list, and 8 bytes read and written.
	AddUnmatched(l *Lease, probe, build, rest Column) (outProbe, outBuild Column, err error)

	// Gather returns one column for each of cols: its rows at ids, in that order, ids.Len rows
	// long. All cols have the same length. With outer, an id may be -1, which means a null.
	// Dictionaries are kept.
	//
	// Errors: the strings of a result exceed 2 GiB.
	//
	// Cost: per column and id, 4 bytes of id, the value read and the value written. Ids in random
	// order read a whole sector of 32 bytes per value from device memory; clustered ids read little
	// more than the values. It waits for the sizes of strings.
	Gather(l *Lease, cols []Column, ids Column, outer bool) ([]Column, error)

	// GatherParts is Gather of one String or Binary column that consists of several parts, because
	// together the parts may have more bytes than int32 offsets can address. Ids count through all
	// parts, which together have at most MaxRows rows. A part may have a dictionary; the result has
	// none. Errors and cost are those of Gather, plus finding the part of each id.
	GatherParts(l *Lease, parts []Column, ids Column) (Column, error)

	// Scatter is the inverse of Gather: row i of every column becomes row ids[i] of a result of n
	// rows. cols are as long as ids. Rows of the result without an id are null. A row whose id is
	// outside [0, n) is dropped. If several rows have the same id, the last one counts.
	//
	// Errors: lengths that differ, n above MaxRows, strings as in Gather.
	//
	// Cost: it inverts the ids (4 bytes read per row, 8 written and read per row of the result),
	// then gathers n rows.
	Scatter(l *Lease, cols []Column, ids Column, n int) ([]Column, error)

	// Concat returns the rows of one or more parts of the same type, one part after the other. The
	// result may keep a dictionary if all parts have one.
	//
	// Errors: no part, types that differ, more than MaxRows rows, strings above 2 GiB.
	//
	// Cost: it reads and writes every byte once. It waits for the sizes of strings. A
	// single part is shared, not copied.
	Concat(l *Lease, parts []Column) (Column, error)

	// Slice returns rows [from, to) of a column and keeps its dictionary. The range must be within
	// the column. It reads and writes the bytes of the range once. If the range is the whole
	// column, the column is shared and not copied. It waits for the range of the bytes of strings.
	Slice(l *Lease, c Column, from, to int) (Column, error)

	// Elements takes lists or maps apart. A null has no elements.
	//
	// Errors: another type, more than MaxRows elements, more than 2 GiB of them.
	//
	// Cost: it passes the lists twice, and writes 14 bytes and the encoding per element. It waits for their number and
	// bytes.
	Elements(l *Lease, lists Column) (Elements, error)

	// Unnest takes rows [from, to) of columns of lists or maps apart: ids has the row of each element, ascending, and
	// elements the elements of each column. A null has no elements. In a row all columns have as many.
	//
	// Errors: another type or range, ErrUneven, more than MaxRows elements, more than 2 GiB of them.
	//
	// Cost: it passes the first column twice and the others once, and writes 4 bytes and the values per element. A GPU
	// does so by Elements and Eval, one column after the other.
	Unnest(l *Lease, lists []Column, from, to int) (ids Column, elements []Column, err error)

	// Cut returns rows [bounds[i], bounds[i+1]) of columns for each i: a Slice of each column and
	// part, with one kernel for all values of fixed width. There are at least two bounds, which
	// ascend and are within each column.
	Cut(l *Lease, cols []Column, bounds []int) ([][]Column, error)

	// Hash returns a Uint64 hash of every row over the key columns, which have the same length.
	// Equal rows have equal hashes across strides, dictionaries and storage widths, and on every
	// device, process and machine that uses the same seed. A null hashes like a distinct value.
	// Floats hash in a canonical form: -0 as +0, and all NaNs alike. A run uses a random seed, so
	// that nobody can construct a file whose keys all collide.
	//
	// Cost: one pass per key column, which reads the column, and reads and writes 8 bytes per row.
	// Values of a small dictionary are hashed once.
	Hash(l *Lease, keys []Column, seed uint64) (Column, error)

	// Partition is the stable radix partition of all columns by one digit of a key: row i goes to
	// partition d of key[i] (Digit). Rows keep their order within a partition. key is a plain
	// integer column of 4 or 8 bytes without nulls, whose bits are used as they are. cols are as
	// long as the key. RowNumbers may be among cols: it becomes the original row of each row.
	// Partition returns the partitioned columns and an Int32 column of 1<<bits + 1 offsets without
	// nulls; partition p is the rows [offsets[p], offsets[p+1]).
	//
	// Errors: a key of another form, more than 16 bits, bits beyond the width of the key, an even
	// factor, lengths that differ, strings as in Gather.
	//
	// Cost: on a GPU, a pass per 8 bits of the digit. A pass reads the digits twice, and reads and
	// writes every column once, in whole sectors. Strings are gathered after the last pass. On the
	// CPU, one pass computes the positions of rows, and the columns are scattered; if all rows are
	// already in order, the result shares them. It waits only for the sizes of strings. This is the
	// transformation of GFTR (Wu et al., SIGMOD 2025, §4.1.2 and §4.1.4).
	Partition(l *Lease, cols []Column, key Column, d Digit) (out []Column, offsets Column, err error)

	// Sort returns the ids that order the rows by the keys, the first key most significant. There
	// is at least one key, and all have the same length. The order is stable. Floats are ordered by
	// CompareFloat, strings by their bytes.
	//
	// Errors: no key, lengths that differ, more than MaxRows rows.
	//
	// Cost: O(n × bits of all keys). Keys are packed into words, each key with as few bits as its
	// values need. Every word takes one pass that packs it, and one pass per digit (8 bits on
	// data-centre GPUs) of a least-significant-digit radix sort over (word, row id). Strings are
	// ranked first, in rounds of 8 bytes; a round has only the strings that are equal in all
	// earlier rounds. It waits for the ranges of the keys.
	Sort(l *Lease, keys []SortKey) (Column, error)

	// BuildTable makes a hash table over the rows of the key columns, which have the same length.
	// nullSafe has one entry for each key. Rows with a null key are dropped, unless the key is
	// null-safe (IS NOT DISTINCT FROM). The table copies or retains what it needs: the caller may
	// release the columns. The lease must outlive the table, for which it pays until Release.
	//
	// Errors: no key, nullSafe of another length, more than 60 keys, more than MaxRows rows, and on
	// a GPU more than 671,088,640 distinct keys.
	//
	// Cost: expected O(n). A single integer key uses a bitmap of ranks, for which no keys are
	// compared, if the range of its values has at most ranks values. The bitmap has 2 bits per
	// value. Other keys use a hash table that is at most five eighths full. On a GPU a single
	// integer key of 8 bytes that is unique takes 5 bytes per row, and its column is retained. This
	// is the build of the non-partitioned join (Wu et al., SIGMOD 2025, §3.1.3).
	BuildTable(l *Lease, keys []Column, nullSafe []bool, ranks uint64) (Table, error)

	// MatchPartitions is the match finding of the partitioned hash join (Wu et al., SIGMOD 2025,
	// §3.1.2 and §4.1.4), for build sides that are too large for a cache. Both sides were
	// partitioned by the same bits of the same hash of their keys. Null keys match nothing. Offsets
	// may cover a part of the rows; rows outside have no match. The sides must outlive the matcher,
	// and so must the lease, which pays for its state.
	//
	// The pairs of a partition are consecutive, so that a Gather of the partitioned columns reads
	// rows that are close to each other. Otherwise pairs come in any order.
	//
	// Errors: those of CheckPartitions.
	//
	// how selects how a GPU writes pairs. It is ignored on the CPU, where tasks have lists of
	// pairs.
	//
	// Cost: on a GPU, Next reads the keys of both sides twice (count, then write). A work item has
	// at most 9,216 build rows, which fit shared memory, and 65,536 probe rows. Larger partitions
	// are split, so that skew does not delay a single block (Rui & Tu, SSDBM 2017, §3.2.3), but the
	// probe rows of a partition are read once for each 9,216 of its build rows. On the CPU, hash
	// tables of all partitions take 8 to 12 bytes per build row. It waits for the counts.
	MatchPartitions(l *Lease, build, probe Partitioned, how Probing) (Matcher, error)

	// PartitionUnordered is an unordered Partition with slack: the rows of a partition come in any
	// order, which differs between calls, and unused rows may follow them. Partition p is the rows
	// [offsets[p], ends[p]) of columns that may be longer than the key; other rows are unspecified.
	// Without ends, partition p is the rows [offsets[p], offsets[p+1]).
	//
	// Errors: those of Partition.
	//
	// Cost: on a GPU, without strings, one pass for up to 8 bits of the digit, which reads and
	// writes every column once; or two passes for up to 14 bits, if the key is one of the columns
	// and a partition has 512 rows on average. A sample of the rows determines the size of each
	// partition: for large partitions 5 to 30 % more than its estimated rows. If a partition turns
	// out larger, for which it waits, and in all other cases, it is Partition.
	PartitionUnordered(l *Lease, cols []Column, key Column, d Digit) (out []Column, offsets, ends Column, err error)

	// MatchRange finds for each probe row the build rows whose key is between two bounds of the
	// row. The key is one column, sorted ascending with nulls last, in the order of Sort; the
	// caller guarantees it, and a device does not check it. A nil bound means that keys are not
	// limited on that side; at least one bound is not nil. A null key or bound matches nothing, and
	// neither does a lower bound above the upper one. Pairs come in the order of the probe rows,
	// and for each probe row in the order of the build rows. The columns must outlive the matcher,
	// and so must the lease, which pays for its state.
	//
	// Errors: those of CheckRange.
	//
	// Cost: two binary searches per probe row, of log2(build rows) random reads each; 8 bytes
	// written per probe row, 12 on a GPU, which the matcher keeps. It does not wait.
	MatchRange(l *Lease, build Column, lower, upper *Bound) (Matcher, error)

	// Runs numbers the runs of consecutive rows with equal keys, in order from 0. As in Groups, a
	// null equals a null. It returns the run of every row, which accumulators use as its group, and
	// the Int32 id of the first row of every run, which serves to Gather the keys. The caller
	// releases both. Accumulators fold a run before they access its state: this is the reduction of
	// sort-based grouping (Wu et al., SIGMOD 2025, §3.2.2 and §4.1.3).
	//
	// Errors: those of CheckKeys.
	//
	// Cost: one comparison with the previous row per row, which reads the keys once, and 4 bytes
	// written per row. It waits for the number of runs.
	Runs(l *Lease, keys []Column) (runs Assignment, firsts Column, err error)

	// Fold aggregates ranges of rows: row i of the result is the aggregate of the values of the
	// rows [from[i], to[i]), in the type a.Output. For a range without non-null values it is null,
	// or 0 for Count. from and to are Int32 columns without nulls and of the same length; the
	// caller guarantees that they are within the rows of values. A range that ends before it begins
	// is empty. a.Kind is Count, Sum, Product, BitAnd, BitOr or BitXor.
	//
	// Errors: those of CheckFold; a sum that does not fit its type, even if the sums of other
	// ranges do.
	//
	// Cost: a tree over the values has a state of 16 to 32 bytes for every 16 values, and for every
	// 16 states of the level below. A range reads at most 30 states or values per level. On the CPU
	// a range is computed from the previous one if that is less work, as for frames that slide or
	// grow; then no tree is made. These are the segment trees of Leis et al., Efficient Processing
	// of Window Functions, VLDB 2015, §4.5.
	Fold(l *Lease, a Aggregate, values, from, to Column) (Column, error)

	// Extreme returns for each range of rows [from[i], to[i]) the id of the row that Sort would put
	// first, or -1 if all keys of the range are null. Of equal rows it is the first one, or the
	// last one if last is set. Gather with outer turns the ids into minima, maxima, or values of
	// other columns in these rows. Ranges are those of Fold.
	//
	// Errors: those of CheckKeys and CheckRanges.
	//
	// Cost: that of Fold, with row ids of 4 bytes as states and a comparison of rows per state.
	Extreme(l *Lease, key SortKey, last bool, from, to Column) (Column, error)

	// Search returns for each range of rows [from[i], to[i]) of a key the first row whose key is
	// not before bound[i] in the order of Sort, or with after set the first row whose key is after
	// it. If there is none, it is to[i]. The caller guarantees that the key has this order within
	// each range. Nulls are equal. Ranges are those of Fold.
	//
	// Errors: a bound of another type or another length than the ranges, those of CheckKeys and
	// CheckRanges.
	//
	// Cost: a binary search per range.
	Search(l *Lease, key SortKey, bound Column, after bool, from, to Column) (Column, error)

	// SampleKeys counts the distinct keys among at most SampledKeys evenly spread rows. The key is
	// one for AggregatePartitions.
	//
	// Errors: those of CheckSample.
	//
	// Cost: a sector of memory per row of the sample; some ten microseconds on a GPU. It waits for
	// the result.
	SampleKeys(l *Lease, key Column) (KeySample, error)

	// NewGroups makes an empty map from keys of the given types to group ids. The lease pays for
	// the map until Release. A hint sizes the first table; a wrong hint only costs time. More than
	// 60 types are an error.
	NewGroups(l *Lease, types []Type, hint GroupHint) (Groups, error)

	// NewPacking makes a packing of keys of the given types. The lease pays for it until Release.
	// More than 60 types are an error.
	NewPacking(l *Lease, types []Type) (Packing, error)

	// AggregatePartitions groups rows by a key and aggregates them: the partition-based group-by
	// or, with a single partition, the group-by with block-private tables (Wu et al., SIGMOD 2025,
	// §4.2 and §4.3; Karnagel et al., ADMS 2015, §5.1). All rows with the same key are in the same
	// partition; without offsets all rows are one partition. values has a column for each
	// aggregate, which CountAll ignores. The result has the key and the aggregates of each group,
	// once, in any order. A hint sizes tables; if it is dense, a single partition has a slot for
	// each key of its range. Nulls among the values are ignored; an aggregate without values is
	// null, except counts.
	//
	// Errors: those of CheckAggregation; ErrUnfit; and ErrManyGroups, if the groups of a partition
	// do not fit the fast memory of the device or, rarely, if a random hash function spreads their
	// keys badly. They change nothing.
	//
	// Cost: on a GPU it reads every column once. A row takes a lookup in shared memory, and an
	// atomic there for each 32-bit word of an aggregate. A count has 1 word, a minimum 1 or 2, a
	// sum 2, of 8-byte values 3, of floats and 16-byte values 6. If keys and aggregates together
	// exceed the memory of a block, it writes and reads 2 more bytes per row. Partitions with more
	// than 4 times the average number of rows are cut into slices, whose groups are merged in
	// device memory, so that skew does not delay a single block. It waits for the number of groups.
	// On the CPU it is Groups and Accumulators.
	AggregatePartitions(l *Lease, rows Partitioned, list []Aggregate, values []Column, hint GroupHint) ([]Column, error)

	// NewAccumulator makes the running state of one aggregate, without groups. The lease
	// pays for the state until Release. An aggregate that is not defined on its input
	// type is an error, and so is Avg.
	NewAccumulator(l *Lease, a Aggregate) (Accumulator, error)
	// NewArgMinMax makes the running state of an ArgMinMax, without groups. The lease pays for it until
	// Release. Without the capability it is an error.
	NewArgMinMax(l *Lease, spec ArgMinMax) (ArgMinMaxState, error)

	// Close ends the queue. It returns the failure that sticks to the queue, if any.
	Close() error
}

// RowNumbers is a column of the numbers of n rows that needs no memory. Only Partition accepts it.
func RowNumbers(n int) Column { return Column{Type: Of(Int32), Len: n} }

// IsRowNumbers reports whether a column is RowNumbers.
func (c Column) IsRowNumbers() bool {
	return c.Type == Of(Int32) && c.Data == nil && c.Dict == nil && c.Len > 0
}

// Digit is bits [Shift, Shift+Bits) of a key, where the least significant bit is bit 0. With a
// Factor, an odd number, they are bits of the key times Factor, truncated to the width of the key:
// the upper bits are a hash of the key (multiply-shift hashing, Dietzfelbinger et al., J.
// Algorithms 1997). A run uses a random factor, so that nobody can construct a file whose keys all
// collide.
type Digit struct {
	Shift, Bits uint
	Factor      uint64 // 0: the bits of the key
}

// Check returns an error if a column cannot be partitioned by the digit.
func (d Digit) Check(key Column) error {
	width := key.Type.Width()
	switch {
	case !key.Type.IsInteger() || width < 4 || width > 8 || key.Dict != nil || key.Valid != nil:
		return fmt.Errorf("partition by a column of %v: want a plain integer of 4 or 8 bytes without nulls", key.Type)
	case d.Bits > 16 || d.Shift+d.Bits > 8*uint(width):
		return fmt.Errorf("partition by %d bits from bit %d of a column of %v: want at most 16 that the column has",
			d.Bits, d.Shift, key.Type)
	case d.Factor != 0 && d.Factor%2 == 0:
		return fmt.Errorf("partition by a digit with the even factor %d", d.Factor)
	}
	return nil
}

// Bound is a bound of keys, one for each probe row.
type Bound struct {
	Column Column
	Strict bool // a key that equals the bound is outside
}

// SortKey is one column of a sort order.
type SortKey struct {
	Column     Column
	Descending bool
	NullsFirst bool
}

// Partitioned is the keys of one side of a partitioned join. Partition p is the rows
// [Offsets[p], Offsets[p+1]).
type Partitioned struct {
	// Key is a plain column of integers, narrow decimals, dates, times or
	// timestamps, of 4 or 8 bytes per value.
	Key Column
	// Offsets are Int32 without nulls, as Partition returns them. The caller guarantees that they
	// ascend and are within the key.
	Offsets Column
	// Ends are the ends of partitions with slack, as PartitionUnordered returns them. A column without
	// rows means that each partition ends where the next begins. Only AggregatePartitions accepts
	// ends.
	Ends Column
	// Chain orders rows that are in buckets of BucketRows rows: row p of the order is row
	// p%BucketRows of bucket Chain[p/BucketRows]. Offsets refer to this order, and every bucket of
	// the key occurs once. A column without rows means that the rows are in order.
	Chain Column
	// Distinct says that all rows of a build side have different keys, which the caller guarantees:
	// further rows of a key may be ignored.
	Distinct bool
}

// SampledKeys bounds the rows of a sample.
const SampledKeys = 1 << 14

// SampleStep divides n rows into as many parts as the sample has rows. It returns the rows per part
// times 1<<20.
func SampleStep(n, sampled int) uint64 { return uint64(n) << 20 / uint64(max(sampled, 1)) }

// SampledRow returns row i of a sample, a row of part i. It is not always the first row of the
// part: with periodic keys, the first rows may have only a few of the keys.
func SampledRow(i int, step uint64) int {
	lo, hi := uint64(i)*step>>20, uint64(i+1)*step>>20
	return int(lo + uint64(uint32(i)*0x9e3779b9)*(hi-lo)>>32)
}

// KeySample describes a sample of keys: the number of its rows, of distinct keys among them, and of
// keys that occur once.
type KeySample struct{ Rows, Keys, Once int }

// BucketRows is the number of rows of a bucket.
const BucketRows = 2048

// Buckets holds chains of rows. If a slot of a bucket has no row, Key is null, and both Key and
// Rows are 0. In other slots Rows has the id of the row.
type Buckets struct {
	Partitioned
	Rows Column
}

// Release releases the columns.
func (b Buckets) Release() { ReleaseColumns([]Column{b.Key, b.Offsets, b.Chain, b.Rows}) }

// MostBuckets returns the maximum number of buckets for n rows in 1<<bits partitions.
func MostBuckets(n int, bits uint) int { return n/BucketRows + min(n, 1<<bits) }

// CheckBuckets returns an error if PartitionBuckets cannot partition a key: the errors of
// CheckPartitions and of Digit.Check, and more slots in buckets than MaxRows.
func CheckBuckets(key Column, d Digit) error {
	if !key.partitions() {
		return fmt.Errorf("partition into buckets by a key of %v: want plain integers, decimals, dates or times of "+
			"4 or 8 bytes", key.Type)
	}
	digits := Column{Type: Of(Uint32), Len: key.Len}
	if key.Type.Width() == 8 {
		digits.Type = Of(Uint64)
	}
	if err := d.Check(digits); err != nil {
		return err
	}
	if key.Len > MaxRows || MostBuckets(key.Len, d.Bits) > MaxRows/BucketRows {
		return Exceeded("%d rows in buckets of %d partitions may take more slots than the %d that row ids can address",
			key.Len, 1<<d.Bits, MaxRows)
	}
	return nil
}

// partitions reports whether a column is a key of Partitioned.
func (c Column) partitions() bool {
	w := c.Type.Width()
	return c.Dict == nil && !c.Type.IsFloat() && !c.Type.IsVar() && (w == 4 || w == 8)
}

// PairOutput says how the blocks of a GPU allocate space for pairs. All but the first are from Rui
// & Tu (SSDBM 2017, §3.2.2); they write row ids, by which Join gathers.
type PairOutput uint8

// The strategies.
const (
	// PairsFused counts the pairs of some thousand probe rows at a time, and writes columns.
	PairsFused PairOutput = iota
	// PairsCounted probes twice: it counts the pairs of each work item, then writes them.
	PairsCounted
	// PairsPaged allocates a page of 4 pairs for each thread, from a global pointer.
	PairsPaged
	// PairsDirect reserves an area for each block, with a pointer in shared memory.
	PairsDirect
)

// Probing says how a GPU matches partitions. The zero value is the fastest way. For sides in chains
// of buckets it means PairsDirect.
type Probing struct {
	Output PairOutput
	// Whole keeps all probe rows of a partition in one work item, so that one block processes them,
	// however many they are.
	Whole bool
}

// CheckPartitions returns an error if MatchPartitions cannot join two sides: keys that are coded,
// floats, or not of 4 or 8 bytes; types that differ; offsets of another type, or that differ in
// number; more than MaxRows rows; a chain that does not match the buckets of its key.
func CheckPartitions(build, probe Partitioned) error {
	t := build.Key.Type
	if !build.Key.partitions() || probe.Key.Dict != nil {
		return fmt.Errorf("partitioned join by a key of %v: want plain integers, decimals, dates or times of "+
			"4 or 8 bytes", t)
	}
	if probe.Key.Type != t {
		return fmt.Errorf("partitioned join of a key of %v with one of %v", t, probe.Key.Type)
	}
	if build.Offsets.Len != probe.Offsets.Len || build.Offsets.Len == 0 {
		return fmt.Errorf("partitioned join of %d and %d offsets", build.Offsets.Len, probe.Offsets.Len)
	}
	for _, s := range []Partitioned{build, probe} {
		if s.Ends.Len > 0 {
			return fmt.Errorf("partitioned join of partitions with room behind their rows")
		}
		if err := CheckIDs(s.Offsets); err != nil {
			return fmt.Errorf("partitioned join by offsets: %w", err)
		}
		if s.Key.Len > MaxRows {
			return TooManyRows(s.Key.Len)
		}
		if s.Chain.Len > 0 {
			if err := CheckIDs(s.Chain); err != nil {
				return fmt.Errorf("partitioned join by a chain of buckets: %w", err)
			}
			if s.Chain.Len*BucketRows != s.Key.Len {
				return fmt.Errorf("partitioned join by a chain of %d buckets with a key of %d rows", s.Chain.Len,
					s.Key.Len)
			}
		}
	}
	return nil
}

// GroupHint has the planner's knowledge about the groups. A wrong hint costs time, never rows.
type GroupHint struct {
	// Rows is an upper bound of the input rows, Groups an estimate of the groups, and Most an upper bound of the
	// groups, which may be far above them; 0 means unknown.
	Rows, Groups, Most int
	// Lo and Hi bound the values of a single integer-like key. They are used only if Dense is set.
	Lo, Hi int64
	Dense  bool
	// Private gives each thread of AggregatePartitions a copy of the aggregates, if the groups are
	// so few that it fits. It is ignored on the CPU.
	Private bool
	// Skewed says that nearly all rows belong to a few groups. AggregatePartitions then aggregates
	// the other rows in a table in device memory. It is ignored on the CPU.
	Skewed bool
}

// Groups maps keys to dense group ids 0, 1, 2 … in the order of first appearance. Nulls are equal
// to each other. This is the hash table of the hash-based group-by (Wu et al., SIGMOD 2025, §3.2.1;
// Karnagel et al., ADMS 2015, §2.2).
type Groups interface {
	// Assign returns the groups of n rows, and makes new groups for new keys. keys have n rows and
	// the types of NewGroups. Without key columns all rows are in group 0. The lease pays for the
	// assignment and scratch memory; the map grows on its own lease. The caller releases the
	// assignment.
	//
	// Errors: other types or lengths; more distinct keys than 32-bit ids or, on a GPU, the index
	// (671,088,640) can hold; key strings above 2 GiB. If memory is denied, the groups are unchanged.
	//
	// Cost: expected O(n): a lookup per row, and 4 bytes written. A table that is too small is
	// rebuilt with all its keys. It waits for the number of groups, usually once.
	Assign(q Queue, l *Lease, keys []Column, n int) (Assignment, error)
	// Len returns the number of groups so far.
	Len() int
	// Keys returns the key columns of groups [from, to), which must lie within the
	// groups. Cost: one pass over those groups.
	Keys(q Queue, l *Lease, from, to int) ([]Column, error)
	Release()
}

// Packing packs keys of any types into one integer key, for primitives that partition and aggregate
// only by an integer. Each column has a field of the bits of value − minimum, and a bit for nulls.
type Packing interface {
	// Pack packs the keys of n rows. keys have the types of NewPacking, at least one. The lease
	// pays for the packed key and scratch memory; the packing's own lease pays for its dictionary
	// of strings.
	//
	// Errors: other types or lengths; ErrUnfit, if the values take more than 64 bits; key strings
	// above 2 GiB. If memory is denied, the packing is unchanged.
	//
	// Cost: on a GPU it reads every column twice, and writes 4 or 8 bytes per row. It waits for the
	// ranges of the values (BOOLEAN has none), and for the number of new strings. On the CPU it is
	// Groups, and the packed key is the group.
	Pack(q Queue, l *Lease, keys []Column, n int) (PackedKeys, error)
	Release()
}

// PackedKeys has the packed keys of a batch of rows.
type PackedKeys interface {
	// Key returns the packed key of every row: plain, Uint32 or Uint64, without nulls. Two packed
	// keys are equal if and only if the keys of the rows are, where nulls are equal to each other.
	// Floats are canonical. The column is borrowed: it lives until Release. Bits is the number of
	// low bits that are used.
	Key() Column
	Bits() int
	// Unpack returns the key columns of some of the packed keys, in their order. It is valid until
	// the Release of the packing.
	//
	// Cost: one pass over these keys per column.
	Unpack(q Queue, l *Lease, key Column) ([]Column, error)
	Release()
}

// Assignment has the group ids of one batch of rows, in the form that the accumulators of the
// device accept.
type Assignment interface {
	// IDs returns the group id of every row as an Int32 column. The column is borrowed:
	// it lives until Release.
	IDs() Column
	Release()
}

// AggregateKind is an aggregate function.
type AggregateKind uint8

// The aggregates. CountAll counts rows. Count counts values that are not null. Avg has no
// accumulator: the group-by divides a Sum by a Count. A GPU has Product only for Fold. ArgValue is
// a column of an ArgMinMaxState, and has no accumulator.
const (
	CountAll AggregateKind = iota
	Count
	Sum
	Min
	Max
	Avg
	Product
	BitAnd
	BitOr
	BitXor
	ArgValue
)

// String returns the SQL name.
func (k AggregateKind) String() string {
	return [...]string{"count(*)", "count", "sum", "min", "max", "avg", "product", "bit_and", "bit_or", "bit_xor",
		"arg_min"}[k]
}

// Aggregate is one aggregate over a column of type Input with a result of type Output. Nulls are
// ignored. The result of a group without values is null, or 0 for counts.
//
//	CountAll, Count  BIGINT.
//	Sum              SumType. Exact for integers and decimals (128 bits). A sum that
//	                 does not fit is an error of Update or of Result.
//	Min, Max         the type of the input, floats in the order of CompareFloat.
//	Product          DOUBLE, of DOUBLE.
//	BitAnd, BitOr, BitXor
//	                 the type of the input, an integer.
type Aggregate struct {
	Kind   AggregateKind
	Input  Type // Invalid for CountAll
	Output Type
}

// SumType returns the type of a Sum over values of a numeric type: DOUBLE for floats,
// HUGEINT for integers, and for decimals the widest decimal of their scale.
func SumType(t Type) Type {
	switch {
	case t.IsFloat():
		return Of(Float64)
	case t.IsInteger():
		return Of(HugeInt)
	}
	return DecimalOf(MaxPrecision, int(t.Scale))
}

// Takes reports whether an Accumulator accepts values of a type.
func (a Aggregate) Takes(t Type) bool {
	return t == a.Input || a.Kind == CountAll || a.Kind == Sum && a.Input.Kind == HugeInt && t.IsInteger()
}

// Accumulator is the running state of one aggregate for every group.
type Accumulator interface {
	// Update folds the rows of values into their groups. groups is the number of groups after the
	// assignment. values has a row for each id, and the type of the aggregate's input or, for a Sum
	// of HUGEINT, any integer type; CountAll ignores it. The queue belongs to the accumulator's
	// device; the accumulator's own lease pays. If memory is denied, the state is unchanged.
	//
	// Cost: per row it reads 4 bytes of id and the value. A few groups are folded in private copies
	// of the state (shared memory on a GPU, a copy per core on the CPU), many groups in place
	// (Karnagel et al., ADMS 2015, §5.1; Wu et al., SIGMOD 2025, §4.2). Rows of Runs are folded a
	// run at a time.
	Update(q Queue, a Assignment, values Column, groups int) error
	// Result returns the aggregate of groups [from, to), which must be within the groups of the
	// last Update. Cost: one pass over these groups.
	Result(q Queue, l *Lease, from, to int) (Column, error)
	Release()
}
