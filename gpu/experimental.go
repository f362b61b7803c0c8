package gpu

import "fmt"

// Experimental has primitives for algorithms of papers that no plan chooses: the merge sort and the
// match by merge path of sort-merge joins, the tuples of the Triton join, and the chains of buckets
// of the bucket-chaining join. A job forces these algorithms by name, and benchmarks measure them.
// A Queue may have the primitives; ExperimentalOf returns them. The rules of Queue for ownership,
// errors and cost apply to them, too.
type Experimental interface {
	// MergeSort is Sort by comparisons only, for any keys that can be compared: the sort of the
	// sort-merge join of Rui & Tu (SSDBM 2017, §3.3.1). The order and the errors are those of Sort.
	//
	// Cost: O(n log n) comparisons. On a GPU, a pass for each doubling of 2,048 rows. A pass reads
	// and writes 4 bytes per row, plus the key if it is a single key of 4 or 8 bytes without nulls.
	// Other keys are read at random rows in every comparison.
	MergeSort(l *Lease, keys []SortKey) (Column, error)

	// MatchSorted is the match finding of the sort-merge join, by merge path (Rui & Tu, SSDBM 2017,
	// §3.3.2). Both sides are sorted by their keys in the order of Sort; the caller guarantees it,
	// and a device does not check it. The keys of both sides correspond in number, type and order.
	// A null matches nothing, unless the key is null-safe. Pairs come in the order of the probe
	// rows, and for each probe row in the order of the build rows. The keys must outlive the
	// matcher, and so must the lease, which pays for its state.
	//
	// Errors: those of CheckMerge.
	//
	// Cost: O(build rows + probe rows): it reads the keys of both sides once for the path, and on a
	// GPU those of the build side once more for its runs. It writes 4 bytes per probe row, 8 on the
	// CPU, which the matcher keeps. On a GPU it waits for the number of runs.
	MatchSorted(l *Lease, build, probe []SortKey, nullSafe []bool) (Matcher, error)

	// PartitionTuples partitions rows of a key and a value by a digit of the key, and writes them
	// as tuples into to. to is a column of TupleType of the key, and as long as the key. Its memory
	// may be device memory, page-locked host memory, or an interleaved array of both (Interleaver),
	// and so may be that of key and value. Key and value have the same width, 4 or 8 bytes, and no
	// nulls. The rows of a partition come in any order, which differs between calls. It returns the
	// 1<<bits + 1 offsets of the partitions, and waits until the tuples are written. how selects
	// the write strategy of a GPU (Lutz et al., SIGMOD 2022, §4); a CPU has only one. After an
	// error the contents of to are unspecified.
	//
	// Errors: those of CheckTuples.
	//
	// Cost: it reads the key twice, the value once, and writes the tuples. Data in host memory
	// crosses the link. WriteHierarchical takes scratch memory: buffers of at most 1 KiB for each
	// multiprocessor and partition, and writes and reads each tuple there.
	PartitionTuples(l *Lease, to, key, value Column, d Digit, how TuplePass) (offsets []int, err error)

	// SplitTuples returns the keys and values of tuples as columns of the types, which have half
	// the width of a tuple. The tuples may be in any memory into which PartitionTuples writes.
	//
	// Cost: it reads the tuples, and writes both columns. It waits if the tuples are in host memory.
	SplitTuples(l *Lease, tuples Column, key, value Type) ([]Column, error)

	// PartitionBuckets partitions the rows of a key by a digit, as Partition does, but appends them
	// to chains of buckets (Sioulas et al., ICDE 2019). The rows of a partition come in any order,
	// which differs between calls. Rows with a null are dropped. The caller releases the result.
	//
	// Errors: those of CheckBuckets.
	//
	// Cost: on a GPU, a pass per 8 bits of the digit. Each pass reads the key, the second one also
	// the row id, and writes both. Blocks append to a partition one after the other: if many rows
	// have only a few keys, the blocks wait for each other. On average half a bucket per partition
	// is wasted. It waits for the number of buckets. On the CPU it is Partition, and a copy into
	// buckets.
	PartitionBuckets(l *Lease, key Column, d Digit) (Buckets, error)
}

// ExperimentalOf returns the experimental primitives of a queue, or an error if its device has
// none.
func ExperimentalOf(q Queue) (Experimental, error) {
	if x, ok := q.(Experimental); ok {
		return x, nil
	}
	return nil, fmt.Errorf("%s has no primitives for experimental algorithms", q.Device().Properties().Name)
}

// Interleaver is a Device that makes buffers over device memory and host memory, for
// benchmarks.
type Interleaver interface {
	// Interleave makes a buffer of n bytes whose pages of 2 MiB alternate between device memory and
	// page-locked host memory, in one range of addresses (Lutz et al., SIGMOD 2022, §5.3). share is
	// the share of the pages in device memory, spread evenly; a lease of Budget pays for these, and
	// a lease of HostBudget for the others, until the last release. Columns in the buffer may be
	// inputs of all primitives, which read host pages over the link. If both budgets are the same,
	// the buffer is plain memory, for which device pays.
	//
	// Errors: out of memory; on a GPU, a driver that cannot map host memory.
	//
	// Cost: two calls of the driver for each run of pages of one kind. The last release waits
	// until the device is idle.
	Interleave(device, host *Lease, n int64, share float64) (*Buffer, error)
}
