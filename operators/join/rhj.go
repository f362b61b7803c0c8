package join

import (
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// rhj is the radix hash join of Rui & Tu (SSDBM 2017, §3.2): both sides are partitioned in
// two passes, whole rows by histograms in shared memory, into partitions of some hundred to
// two thousand rows. A block has the table of one in shared memory, and its threads hold
// probe rows in registers. It is PHJ-TR but for the size of its partitions and the way in
// which its pairs are written, row ids first and columns gathered by them:
//
//   - rhj-double: the pairs of a work item are counted, then written (double probe).
//   - rhj-pages: each thread writes into pages of its own.
//   - rhj-direct: each block writes into room of its own, by a pointer in shared memory.
//   - rhj-whole: rhj-direct, but one block has all probe rows of a partition. The others
//     split large partitions into work items (§3.2.3), which is what makes them bear skew.
//
// The CPU has no blocks, and one way to write pairs, that of PHJ-TR.
func rhj(how gpu.Probing) func(*Spec) algorithm {
	return func(s *Spec) algorithm { return phj{Spec: s, transform: true, collect: true, bits: rhjBits, how: how} }
}

// rhjBits returns how many bits of a hash make partitions of at most 2,048 rows, as far as
// two passes do. Those of Rui & Tu have 512; a block has more threads and more shared memory
// today.
func rhjBits(_ gpu.Properties, rows, _ int) uint {
	return uint(min(bits.Len(uint(max(rows-1, 0)/2048)), 16))
}
