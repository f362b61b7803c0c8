// Package spill keeps the rows that operators must hold, in partitions, when these are more
// than memory has room for. Rows lie in one of three tiers: in the memory of a device, in
// page-locked host memory if the device has memory of its own, and on disk. They move down a
// tier when the budget of their tier needs room, and come back when they are read.
//
// The package knows strides, partitions, budgets and files. It knows nothing of joins.
//
// # Tiers
//
// Partitions keeps strides whose rows are ordered by partition. In the memory of the device, and in
// page-locked host memory, a stride is kept with a directory of its partitions. On disk the rows of
// many strides lie partition by partition, in blocks with a row count and a checksum, so a
// partition takes one read.
//
// Each tier registers a reclaimer with its budget. A goroutine moves strides down before a budget
// is full; a reservation that does not fit moves some itself. Goroutines read ahead and copy up
// while a lane works (Reader). The driver copies the pieces of a partition from host memory where
// they lie (gpu.Joined), 32 in one call, and a kernel gathers short pieces.
//
// # Who spills
//
//   - A group-by spills its flushed groups, and merges them part by part.
//   - A join out of core spills the partitions of both sides that do not stay in memory.
//   - A sort makes sorted runs, cut into pages. The first rows of the pages are the splitters: a
//     lane reads the rows between two splitters from all runs, and sorts them. The pages of all
//     runs are one Partitions, so that a reader copies those of several runs together.
//   - A window function spills its rows by a hash of the partition keys, and a sorted group by a
//     hash of the keys of the group.
//
// With --device auto+host the CPU takes partitions, or pairs of them, from the end of the queue of
// partitions, while the GPU takes them from its start.
package spill
