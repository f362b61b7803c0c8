package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/pipeline/temporal"
)

func newWorker(left *leftovers) *cobra.Command {
	f := runFlags{left: left, joinFilters: pipeline.Auto}
	var on string
	atATime := 1
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Take tasks of jobs from an engine and run them",
		Long: `worker takes tasks from Temporal, and runs them on this machine until it is interrupted. Jobs
come from gstream run --on, with the same address. Workers and the run must see the sources
and --work-dir under the same names, and have the same version of gstream.

The address is temporal://HOST:PORT/NAMESPACE?queue=QUEUE. Workers of different machines may
have queues of their own, such as gpus; the namespace is "default" and the queue "gstream"
unless the address says otherwise.

A worker that is lost is noticed after 30 seconds, and its tasks begin on another worker;
silence=10s in the address that gstream run gets sets another time.
Heartbeats tell Temporal how many rows a task has written.`,
		Example: `  gstream worker --on temporal://host:7233
  gstream worker --on temporal://host:7233/etl?queue=gpus --device cuda --tasks 2 --device-memory 30GiB`,
		Args: args(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opt, err := f.options(cmd)
			if err != nil {
				return err
			}
			if opt.Threads > 0 {
				runtime.GOMAXPROCS(opt.Threads)
			}
			address, err := temporal.ParseAddress(on)
			if err != nil {
				return usageError(fmt.Errorf("--on: %w", err))
			}
			if atATime < 1 || atATime > maxWorkers {
				return usageError(fmt.Errorf("--tasks %d: must be from 1 to %d", atATime, maxWorkers))
			}
			return temporal.Work(cmd.Context(), address, opt, atATime)
		},
	}
	f.registerMachine(cmd)
	cmd.Flags().StringVar(&on, "on", "", "address of the engine, as in temporal://host:7233/namespace?queue=gpus")
	cmd.Flags().IntVar(&atATime, "tasks", atATime, "tasks at a time, each with the memory that the flags give")
	if err := cmd.MarkFlagRequired("on"); err != nil {
		panic(err)
	}
	return cmd
}
