// Package join has the joins by equal keys, by a range, or by keys and the nearest time (ASOF):
// inner, left, right, full, semi, anti and mark, on any number of key columns, one-to-many and
// many-to-many, with residual conditions. The probe side streams past a build side that stays on
// the device. If that does not fit, both sides are partitioned, and spill (out_of_core.go).
//
// An algorithm finds the pairs of rows with equal keys (algorithm.go), with a key in the range of a
// row (range.go), or of equal keys and nearest in time (asof.go). From these pairs, lane.go computes
// all kinds of joins, in the same way for all algorithms.
//
// # Algorithms
//
// A device has matchers: over a hash table, over partitions, over sorted rows, over ranges of
// sorted rows. A matcher returns a limited number of pairs at a time. So a many-to-many join never
// needs memory for all its pairs.
//
// An algorithm prepares the build side and makes a matcher for each stride of the probe side. It
// may reorder the columns of both sides. It may collect strides of the probe side until they have
// as many rows as the build side.
//
//   - NPJ (npj.go) matches with one table.
//   - PHJ and LARGE-S (phj.go, large_s.go) partition both sides.
//   - SMJ and MPJ (smj.go) sort both sides. MPJ sorts by comparisons.
//   - The variants TR move all columns; the variants UR move row ids, which translate the pairs
//     (reordered.go).
//   - BUCKET (bucket.go) appends row ids to chains of buckets.
//   - RHJ (rhj.go) is PHJ-TR with smaller partitions and three ways to write pairs, which only a
//     GPU has.
//
// Keys without bits to partition by are hashed, and a condition compares the keys of the pairs
// (onekey.go). choose.go has the rules, the cost model and its rates. It chooses an algorithm that
// loses the order of the rows only if the planner says that the order does not matter
// (Spec.AnyOrder). No plan chooses the sorting joins, BUCKET, RHJ or the Triton join. A job can
// force them, to measure them.
//
// # Kinds
//
// Residual conditions, which are not equalities, filter the pairs first. Pairs set bits in match
// bitmaps. Left, right and full joins return the rows without a bit: probe rows in their positions,
// build rows at the end, from the last lane that is flushed. Right semi and right anti joins return
// only build rows, with or without a bit. Semi, anti and mark joins ask the matcher which rows have
// a match. With a residual condition they use the match bitmap.
//
// # Out of core
//
// A join goes out of core when its build side takes too much memory. The first partitions of the
// build side stay in memory. They form up to four groups, each a join, which take turns to join the
// probe rows that have arrived. The other partitions are joined in pairs once all lanes have been
// flushed. Each pair is a join of its own; if it is too large, it is partitioned again by another
// hash. The Triton join (triton.go) is the same with another first pass.
package join
