// Package spill keeps the rows of operators in partitions when they exceed the memory. Rows are in
// one of three tiers: the memory of a device; page-locked host memory, if the device has its own
// memory; and disk. They move to the next tier when the budget of their tier is nearly full, and
// come back when they are read.
//
// The package knows strides, partitions, budgets and files, but no operators.
//
// # Tiers
//
// Partitions keeps strides whose rows are ordered by partition. In the memory of the device, and in
// page-locked host memory, a stride has a directory of its partitions. On disk the rows of many
// strides are merged by partition, in blocks with a row count and a checksum, so a partition takes
// one read.
//
// Each tier registers a reclaimer with its budget. A goroutine moves strides to the next tier
// before a budget is full; a reservation that does not fit moves some itself. Goroutines read ahead
// and upload while a lane works (Reader). The driver copies the pieces of a partition directly from
// host memory (gpu.Joined), 32 in one call, and a kernel gathers short pieces.
//
// # Who spills
//
//   - A group-by spills its flushed groups, and merges them part by part.
//   - An external join spills the partitions of both sides that do not stay in memory.
//   - A sort makes sorted runs, cut into pages. The first rows of the pages are the splitters: a
//     lane reads the rows between two splitters from all runs, and sorts them. The pages of all
//     runs are in one Partitions, so that a reader copies pages of several runs at once.
//   - A window function spills its rows by a hash of the partition keys, and a sort-based group-by
//     by a hash of the group keys.
//
// With --device auto+host the CPU takes partitions, or pairs of them, from the end of the queue of
// partitions, while the GPU takes them from its start. So do other GPUs of the run.
package spill
