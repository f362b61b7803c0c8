// Package groupby has grouping and aggregation. A lane aggregates its rows in its own table, or
// passes them on (local.go). The partial aggregates of all lanes are partitioned, and merged part
// by part (parts.go) into the result (result.go).
//
// # Algorithms
//
// Each lane has a table of group ids and accumulators for any keys and aggregates. The other
// algorithms (algorithm.go) make rows of partial aggregates from a stride, one for each key:
//
//	HGB-G  hgb_g.go       the table of the lane
//	HGB    hgb.go         aggregates all rows in the shared memory of a GPU's blocks, without group ids
//	PGB    pgb.go         partitions rows by a hash, and aggregates each partition in a block
//	SGB    sgb.go         sorts rows, and aggregates runs of equal keys
//
// HGB and PGB use the primitive AggregatePartitions. It takes one key of 4 or 8 bytes, and counts,
// sums, minima and maxima of at most 8 bytes. Any other keys are packed into one of 8 bytes
// (gpu.Packing): value - minimum for numbers, dictionary codes for strings, a bit for nulls. Sums
// of 16-byte values are computed in two halves. Floats are added exactly, as integers of 128 bits,
// unless their exponents differ by more than 43.
//
// PGB needs no order within a partition, so a GPU partitions in one or two passes without counting
// (PartitionUnordered): a sample decides the space of each partition. If a partition has more rows than
// fit, the rows are partitioned again, in order.
//
// The partial aggregates of a stride wait for those of other strides. If there are none, they are
// the result. Otherwise a table merges them, or SGB-STRIDE (sgb_stride.go), which a job must force,
// merges them in their order. If a stride has too many groups for tables of blocks, or keys or
// values that they do not take, the next algorithm aggregates it.
//
// # Choice
//
// choose.go decides for each stride: first by the planner's estimate of the number of groups, then
// by the number of the stride before. If these are too many for HGB, a sample of the first stride
// may show that there are few groups, or that few groups have nearly all rows (sample.go). Strides
// of about two million rows use the table of the lane, because the table need not wait for the
// number of groups of each stride.
//
// # Large state
//
// Large tables are flushed, and the flushed groups are partitioned by a hash. If a table barely
// reduces the number of rows, by a sample of the first stride or by the last flush, rows bypass it
// and are partitioned as they are. The rows of the tables that the keys come from bound the groups: a
// lane that has many more rows keeps all groups, even if they come in turn. In the end one lane merges
// each partition. On a GPU, PGB-TR aggregates a partition whose rows have all bypassed the tables
// (raw.go); a table merges any other partition.
//
// # Texts of a build side
//
// A join passes on texts of its build side as a dictionary of all build rows, so texts repeat in it. On
// the CPU, the group-by numbers the distinct values of such a dictionary once (distinct.go). All lanes
// and partitions then group by these numbers, and the result has them as codes of one dictionary of
// distinct values, by which the next group-by of a ROLLUP groups again.
//
// # One row of a group
//
// Where one row of a group decides an aggregate, as in arg_max, a CPU keeps the row: its position
// in the input, its comparison key and its value are columns of the partial aggregates (arg_min_max.go).
// A GPU sorts the rows instead. Both devices sort rows for median (window.NewGroups).
package groupby
