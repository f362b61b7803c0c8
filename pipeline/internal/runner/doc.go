// Package runner runs a physical plan. It cuts the stages into pipelines in lanes, with
// exchanges of strides between them, takes memory from the budgets of a device, and
// reports what it did. It owns the lifetime of everything that a run opens. It also opens
// devices by name, and chooses one by the work of a plan.
//
// # Invariants of a run
//
//  1. A stride in an exchange belongs to the exchange; whoever receives it owns it.
//  2. A pipeline first runs what it needs: the build sides of its joins, then the
//     pipeline whose result it reads. A pipeline that feeds it through an exchange
//     runs at the same time. It ends after them and releases what they still sent.
//     So when the last pipeline has ended, nothing is in flight.
//  3. The first error cancels every pipeline and is the error of the run.
//  4. An output appears only if no pipeline failed.
package runner
