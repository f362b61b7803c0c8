package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline"
)

func newCheck(left *leftovers) *cobra.Command {
	f := runFlags{left: left, joinFilters: pipeline.Auto}
	var format string
	cmd := &cobra.Command{
		Use:   "check JOB",
		Short: "Tell whether a job fits the memory and the disk, without running it",
		Long: `check plans a job and adds up the memory that its stages would use at the same time:
build sides of joins, groups, and rows of sorts and window functions. It prints

  - for each stage, how much it uses, how much of that must fit because it cannot spill,
    and how much would spill to host memory and to disk under the budgets;
  - for each tier, how much is needed, and its limit;
  - what would not fit, and what to change.

With --workers it tells the memory of a task of each fragment, on its part of the machine, and
the bytes that tasks write for each other and read.

Use the flags of the run. All of it depends on the estimates of rows that explain shows,
so a run may need more or less memory: leave a margin for what must fit.

The exit code is 0 if the job is expected to finish, and 4 if a budget is too small.`,
		Example: `  gstream check job.yaml
  gstream check job.yaml --host-memory 2GiB --spill-dir /nvme --spill-limit 100GiB
  gstream check job.yaml --device cuda --device-memory 8GiB --host-memory 32GiB
  gstream check job.yaml --format json | jq .tiers`,
		Args: args(1, "one job file"),

		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opt, err := f.options(cmd)
			if err != nil {
				return err
			}
			if opt.Threads > 0 {
				runtime.GOMAXPROCS(opt.Threads)
			}
			p, err := f.plan(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			c, err := f.check(p, opt)
			if err = errors.Join(err, p.Close()); err != nil {
				return err
			}
			if err := printValue(cmd.OutOrStdout(), format, c); err != nil {
				return err
			}
			if !c.Finishes {
				return reported{fmt.Errorf("%s would not fit: %w", args[0], gpu.ErrBudget)}
			}
			return nil
		},
	}
	f.register(cmd)
	f.registerMachine(cmd)
	f.registerTasks(cmd)
	registerFormat(cmd, &format)
	return cmd
}

// check checks a run of a plan, which may be in tasks.
func (f *runFlags) check(p *pipeline.Plan, opt pipeline.RunOptions) (*pipeline.Check, error) {
	if !f.inTasks() {
		return p.Check(opt)
	}
	to, engine, err := f.localTasks(p, opt)
	if err != nil {
		return nil, err
	}
	return p.CheckTasks(opt, to, engine.workers[0])
}
