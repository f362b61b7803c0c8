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
//  2. A stage ends after its upstream stages have ended, and it releases what
//     they still sent. So when the last stage has ended, nothing is in flight.
//  3. The first error cancels every stage and is the error of the run.
//  4. An output appears only if no stage failed.
package pipeline
