// Package window has window functions: a value for each row from the rows of its partition,
// in an order.
//
// Rows are collected, and partitioned by a hash of the partition keys. Each part of the
// result is some of these partitions, which one lane sorts by the partition keys and the
// order. Runs of equal keys then give, for each row, where its partition and its peers begin
// and end. From these bounds come ranks, rows to gather, and frames, whose aggregates are
// folds of ranges of rows (Leis et al., Efficient Processing of Window Functions, VLDB 2015).
//
// # Where rows are computed
//
// A part of the result is some partitions with together as many rows as half a stride. A lane sorts
// it by the keys of the window. A part with most of the rows is computed by all cores. Rows that do
// not fit spill by a hash of the partition keys, and some partitions are computed at a time
// (spilled.go). Rows without partition keys that do not fit go through a sort out of core, or
// without an order through operators/hold. Functions are then computed batch by batch: of the rows
// so far, of nearby rows, or of all rows in a pass before (streamed.go).
//
// # How functions are computed
//
// Runs of equal keys give the positions where the partition and the peers of each row begin and end
// (calculation.go). Ranks are differences of these positions; lag, lead and first_value gather rows. The
// bounds of frames are positions too, and the primitives Fold and Extreme give the aggregates
// between them.
//
// Aggregates that need the rows of a group together, such as median and string_agg, are computed in
// the same way: a group is a partition, and each order of its rows takes a sort (groups.go).
package window
