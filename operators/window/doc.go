// Package window has window functions: a value for each row from the rows of its partition,
// in an order.
//
// # Where rows are computed
//
// Rows are collected, and partitioned by a hash of the partition keys. A part of the result has one
// or several of these partitions, with about half a stride of rows together. One lane sorts a part
// by the partition keys and the order, and computes the functions. All cores compute a part that
// has most of the rows.
//
// Rows that exceed the memory spill, partitioned by the same hash, and some partitions are computed
// at a time (spilled.go). Rows without partition keys that exceed the memory go through an external
// sort, or without an order through operators/materialize. Functions are then computed batch by batch:
// over the rows so far, over nearby rows, or over all rows in a first pass (streamed.go).
//
// # How functions are computed
//
// Runs of equal keys give the positions where the partition and the peers of each row begin and end
// (calculation.go). Ranks are differences of these positions; lag, lead and first_value gather
// rows. The bounds of frames are positions, too. The primitives Fold and Extreme compute the
// aggregates of the rows between them (Leis et al., Efficient Processing of Window Functions, VLDB
// 2015).
//
// Aggregates that need all rows of a group at once, such as median and string_agg, are computed in
// the same way: a group is a partition, and each order of its rows takes a sort (groups.go).
package window
