// Package join has the joins by equal keys or by a range: inner, left, right, full, semi,
// anti and mark, on any number of key columns, one-to-many and many-to-many, with residual
// conditions.
// The probe side streams through a build side that stays on the device. If that does not fit,
// both sides are partitioned, and spill (out_of_core.go).
//
// An algorithm finds the pairs of rows with equal keys (algorithm.go), or with a key in the
// range of a row (range.go). The kinds are made
// of these pairs in one way for all algorithms (lane.go).
//
// # Algorithms
//
// A device has matchers: over a hash table, over partitions, over sorted rows, over ranges of
// sorted rows. A matcher gives the pairs of rows with equal keys, or with a key in a range, a
// limited number at a time. So a join of many to many needs no memory for all its pairs.
//
// An algorithm prepares the build side and makes a matcher for each stride of the probe side. It
// may reorder the columns of both sides. It may collect strides of the probe side until they have
// as many rows as the build side.
//
//   - NPJ (npj.go) matches by one table.
//   - PHJ and LARGE-S (phj.go, large_s.go) partition both sides.
//   - SMJ and MPJ (smj.go) sort both sides. MPJ sorts by comparisons.
//   - The variants TR move all columns; the variants UR move row ids, which translate the pairs
//     (reordered.go).
//   - BUCKET (bucket.go) appends row ids to chains of buckets.
//   - RHJ (rhj.go) is PHJ-TR with smaller partitions and three ways to write pairs, which only a
//     GPU has.
//
// Keys without bits to partition by are hashed, and a condition compares the keys of the pairs
// (onekey.go). The rules, the cost model and its rates are in choose.go. It chooses among
// algorithms that lose the order of the rows only where the planner says that nobody sees the order
// (Spec.AnyOrder). No plan chooses the sorting joins, BUCKET, RHJ or the Triton join: a job forces
// them to be measured.
//
// # Kinds
//
// Residual conditions, which are not equalities, filter the pairs first. Pairs set bits in match
// bitmaps. The rows without a bit come out of left, right and full joins: those of the probe side
// in their positions, those of the build side at the end, from the last lane that is flushed. Semi,
// anti and mark joins ask the matcher which rows have a match, or take the match bitmap if there is
// a residual condition.
//
// # Out of core
//
// A join goes out of core when its build side takes too much memory. The first partitions of the
// build side stay in memory, as the joins of up to four groups of them; the groups take turns to
// join the probe rows that have come. The other partitions are joined in pairs once all lanes have
// been flushed. Each pair is a join of its own, by another hash if it is too large. The Triton join
// (triton.go) is the same with another first pass.
package join
