// Package pipeline turns a job into a running graph of stages.
//
// A Job says what is wanted: sources, steps, an output. It is read from a YAML
// file by Load or built in Go by New; both fill the same structure. NewPlan
// binds and optimises a job into a Plan, which is immutable and can be explained.
// Plan.Run executes it: pipelines in lanes, exchanges of strides between them,
// memory from the budgets of a device, and a Report at the end.
//
// The package owns the graph, the planner, the runner and the lifetime of
// everything that a run opens. It never looks at values: expressions belong to
// package expr, algorithms to the operators, bytes to sources and sinks.
//
// # Invariants of a run
//
//  1. A stride in an exchange belongs to the exchange; whoever receives it owns it.
//  2. A pipeline runs what it needs first: the build sides of its joins, then the
//     pipeline whose result it is fed from. A pipeline that it is fed from by an
//     exchange runs at the same time. It ends after them and releases what they
//     still sent. So when the last pipeline has ended, nothing is in flight.
//  3. The first error cancels every pipeline and is the error of the run.
//  4. An output appears only if no pipeline failed.
package pipeline
