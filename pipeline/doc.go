// Package pipeline plans and runs jobs.
//
// A Job names sources, steps and an output. Load reads it from a YAML file, and New builds it in
// Go; both fill the same structure. NewPlan binds and optimises a job. The Plan is immutable and
// can be explained. Plan.Run executes it and returns a Report. ArrowTable is a source of Arrow
// records, and a Collector is a target for Arrow records.
//
// Each level from a job to a run is a package, which imports only those before it:
//
//   - job: the job file, its variables and locations, and the checks that need no table
//   - execution: the options of a run and its report
//   - internal/rel: the tree of relations of a query, whose columns have stable IDs
//   - internal/logical: the binder of jobs to tables, the estimator, and the rules
//   - internal/physical: stages with their operators
//   - internal/runner: the run of the stages on a device
//
// This package opens the tables and connects these packages. It owns the public interface: names of
// the other packages that a program needs are aliases here. It never looks at values: expressions
// belong to package expr, algorithms to the operators, bytes to sources and sinks.
package pipeline
