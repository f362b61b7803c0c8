// Package groupby has grouping and aggregation. A lane aggregates its rows in a table of its own, or passes them on
// (local.go). The partial aggregates of all lanes are partitioned, and merged part by part (parts.go) into the rows of
// the result (result.go).
//
// # Algorithms
//
// Each lane has a table of group ids and accumulators (hgb_g.go), which takes any keys and
// aggregates. An algorithm (algorithm.go) instead makes rows of partial aggregates of a stride, one
// for each key.
//
// HGB and PGB (hgb.go, pgb.go) aggregate by key, without group ids, in the shared memory of a GPU's
// blocks: all rows, or the rows of a partition by a hash. Both are the primitive
// AggregatePartitions. It takes one key of 4 or 8 bytes, and counts, sums, minima and maxima of at
// most 8 bytes. Any other keys are packed into one of 8 bytes (gpu.Packing): value - minimum for
// numbers, dictionary codes for strings, a bit for nulls. Sums of 16-byte values are made in two
// halves. Floats are added exactly, as integers of 128 bits, unless their exponents differ by more
// than 43.
//
// PGB needs no order within a partition, so a GPU makes the partitions in one or two passes without
// a count (PartitionLoose): a sample says how much room each partition gets. If one has more rows,
// they are partitioned once more in order.
//
// SGB (sgb.go) sorts the rows. The partial aggregates of a stride wait for those of other strides:
// if none come, they are the result. Otherwise they are merged in a table, or in their order by
// SGB-STRIDE (sgb_stride.go), which a job must force. If a stride has too many groups for tables of
// blocks, or other keys or values than they take, the next algorithm takes it.
//
// # Choice
//
// choose.go decides for each stride: first by the planner's number of groups, then by that of the
// stride before. If these are too many for HGB, a sample of the first stride may show that there
// are few groups, or that few groups have nearly all rows (sample.go). Strides of about two million
// rows go into the table of the lane, because the table need not wait for the number of groups of
// each stride.
//
// # Large state
//
// Large tables are flushed, and the flushed groups are partitioned by a hash. If a table barely
// reduces the rows, judged from a sample of the first stride or from the last flush, rows bypass it
// and are partitioned as they are. In the end one lane merges each partition. On a GPU, PGB-TR
// aggregates a partition whose rows have all bypassed the tables (raw.go); a table merges any other
// one.
//
// # One row of a group
//
// Where one row of a group decides an aggregate, as in arg_max, a CPU keeps that row: its position
// in the input, its comparison key and its value are columns of the partial aggregates (leader.go).
// A GPU sorts the rows instead. Both devices sort them for median (window.NewGroups).
package groupby
