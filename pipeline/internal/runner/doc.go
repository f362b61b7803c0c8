// Package runner runs a physical plan. It cuts the stages into pipelines in lanes, with
// merge queues of strides between them, takes memory from the budgets of a device, and
// reports what it did. It owns the lifetime of everything that a run opens. It also opens
// devices by name, and chooses one by the work of a plan.
//
// # Invariants of a run
//
//  1. A stride in a merge queue belongs to the queue; whoever receives it owns it.
//  2. A pipeline first runs what it needs: the build sides of its joins, then the
//     pipeline whose result it reads. A pipeline that feeds it through a merge queue
//     runs at the same time. It ends after them and releases what they still sent.
//     So when the last pipeline has ended, nothing is in flight.
//  3. The first error cancels every pipeline and is the error of the run.
//  4. An output appears only if no pipeline failed.
//
// # Filters of joins
//
// A complete build side may rule out rows of the scan that feeds its probe side (filters.go). The
// bounds of the keys skip row groups and pages by their statistics. A Bloom filter over the hashes
// of the keys drops rows of decoded strides. The join must be inner, semi or right without
// null-safe keys, and the keys must come from the scan unchanged, through filters, projections and
// the probe sides of joins that are not right or full.
//
// Bounds are used if less than half of the rows are expected to match, and if the bounds are less
// than nine tenths of the range in the file. They cost a nanosecond a build row. On a CPU the Bloom
// filter costs about 15 ns a probe row, as the rows that pass are gathered. It is used if the
// estimated work on the rows that it drops is more. It ends when it drops less than a quarter of
// its first 524,288 rows. A scan for a GPU runs ahead of build sides; if less than a tenth of its
// rows are expected to match, it waits for the bounds of the keys instead. The host drops no rows
// for a GPU: that takes more of its time than the copies of the rows.
//
// # Memory of scans and outputs
//
// A scan decodes strides ahead only while a quarter of the budget is left to others, and it waits
// for memory as long as anybody gives some back. Its minimum, one stride, is known from the
// metadata before it starts. An output waits in the same way: with little memory it encodes one row
// group after the other. At the end of a run every lease must be empty, or the run reports a
// defect.
package runner
