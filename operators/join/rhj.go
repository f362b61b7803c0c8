package join

import (
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// rhj is the radix hash join of Rui & Tu (SSDBM 2017, §3.2). Both sides are partitioned in two
// passes, whole rows by histograms in shared memory, into partitions of some hundred to two
// thousand rows. A block has the table of one partition in shared memory, and its threads hold
// probe rows in registers. It differs from PHJ-TR in the size of its partitions and in the output
// of pairs: it writes row ids first, and then gathers columns by them.
//
//   - rhj-double: the pairs of a work item are counted, then written (double probe).
//   - rhj-pages: each thread writes into pages of its own.
//   - rhj-direct: each block writes into an area of its own, by a pointer in shared memory.
//   - rhj-whole: rhj-direct, but one block has all probe rows of a partition. The others split
//     large partitions into work items (§3.2.3), which makes them robust against skew.
//
// The CPU has no blocks, and writes pairs only as PHJ-TR does.
func rhj(how gpu.Probing) func(*Spec) algorithm {
	return func(s *Spec) algorithm { return phj{Spec: s, transform: true, collect: true, bits: rhjBits, how: how} }
}

// rhjBits returns the number of hash bits that makes partitions of at most 2,048 rows, up to the
// number of two passes. The partitions of Rui & Tu have 512 rows; today a block has more threads
// and more shared memory.
func rhjBits(_ gpu.Properties, rows, _ int) uint {
	return uint(min(bits.Len(uint(max(rows-1, 0)/2048)), 16))
}
