// Package pipeline plans and runs jobs.
//
// A Job says what is wanted: sources, steps, an output. It is read from a YAML
// file by Load or built in Go by New; both fill the same structure. NewPlan
// binds and optimises a job into a Plan, which is immutable and can be explained.
// Plan.Run executes it and gives a Report. ArrowTable brings Arrow records into a
// job, and a Collector takes its result out as such.
//
// The way of a job goes through a package each, every one of which imports those
// before it only:
//
//   - job: the job file, its variables and places, and the checks that need no table
//   - execution: the options of a run and its report
//   - internal/logical: relations, bound to the tables' schemas, and rules that rewrite them
//   - internal/physical: stages with their operators
//   - internal/runner: the run of the stages on a device
//
// This package opens the tables, puts these together and owns the public names;
// those of the others that a program needs are here as aliases. It never looks at
// values: expressions belong to package expr, algorithms to the operators, bytes to
// sources and sinks.
package pipeline
