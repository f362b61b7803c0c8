// Package pipeline turns a job into a running graph of stages.
//
// A Job says what is wanted: sources, steps, an output. It is read from a YAML
// file by Load or built in Go by New; both fill the same structure. NewPlan
// binds and optimises a job into a Plan, which is immutable and can be explained.
// Plan.Run executes it: a goroutine a stage, bounded channels of strides
// between them, memory from the budgets of a device, and a Report at the end.
//
// The package owns the graph, the planner, the runner and the lifetime of
// everything that a run opens. It never looks at values: expressions belong to
// package expr, algorithms to the operators, bytes to sources and sinks.
//
// # Invariants of a run
//
//  1. A stride in a channel belongs to the channel; whoever receives it owns it.
//  2. A stage is a chain of operators on one goroutine: a scan, a union, or a
//     sort or group-by with the channel it reads, and the filters, projections,
//     limits and joins behind it. A stage starts its inputs when it needs them:
//     build sides before what streams past them. It ends after them and releases
//     what they still sent. So when the last stage has ended, nothing is in
//     flight.
//  3. The first error cancels every stage and is the error of the run.
//  4. An output appears only if no stage failed.
package pipeline
