package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/pipeline"
)

// jobFlags are the flags of every command that reads a job file.
type jobFlags struct{ set []string }

func (f *jobFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.set, "set", nil,
		"set a variable of the job, as in --set day=2026-01-31 (repeatable)")
}

func (f *jobFlags) load(path string) (*pipeline.Job, error) {
	set := map[string]string{}
	for _, s := range f.set {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usageError(fmt.Errorf("--set %s: must be name=value", s))
		}
		set[name] = value
	}
	if ext := strings.ToLower(filepath.Ext(path)); ext == ".parquet" || namesData(path) ||
		slices.Contains(otherData, ext) {
		return nil,
			usageError(fmt.Errorf("%s: this command takes a job file, in YAML; gstream init writes one for "+
				"Parquet files", path))
	}
	return pipeline.Load(path, pipeline.LoadOptions{Set: set})
}

func (f *jobFlags) plan(ctx context.Context, path string) (*pipeline.Plan, error) {
	job, err := f.load(path)
	if err != nil {
		return nil, err
	}
	return pipeline.NewPlanWith(ctx, job, pipeline.PlanOptions{})
}

func (f *jobFlags) lint(path string, noData bool) error {
	job, err := f.load(path)
	if err != nil {
		return err
	}
	return pipeline.Lint(job, pipeline.LintOptions{NoData: noData})
}

func newLint() *cobra.Command {
	var flags jobFlags
	var noData bool
	cmd := &cobra.Command{
		Use:   "lint JOB...",
		Short: "Check job files without running them",
		Long: `lint reads job files, opens their sources and checks every key, variable, column
name, type and expression. It lists all faults with file, line and column. If the YAML or
its keys have faults, it lists only these. It omits faults that follow from others.

A source that has a schema in the job file, such as schema: {id: BIGINT}, may be missing:
columns are then checked against the schema.

With --no-data it opens no source, so it works where the data is missing. It then checks
keys, variables, the names of sources and steps, the syntax of expressions and the names
of functions, and columns and types of sources with a schema.`,
		Example: "  gstream lint job.yaml\n  gstream lint load.yaml monthly.yaml --no-data\n  gstream lint job.yaml " +
			"--set data=/data/tpch",
		Args: someFiles("job file"),

		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, path := range args {
				errs = append(errs, flags.lint(path, noData))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&noData, "no-data", false, "check what can be checked without opening the sources")
	flags.register(cmd)
	return cmd
}

// roomToPlan lets the heap grow until the caller calls planned. Nearly all memory that planning allocates stays in use
// until the plan is complete: collections took two fifths of the processor time of a plan of 10,000 steps.
func roomToPlan() (planned func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(400)
	return sync.OnceFunc(func() { debug.SetGCPercent(before) })
}

func newExplain(left *leftovers) *cobra.Command {
	flags := runFlags{left: left}
	var format string
	var analyze, rules bool
	cmd := &cobra.Command{
		Use:   "explain JOB",
		Short: "Show how a job would run",
		Long: `explain plans a job and prints the stages that would run: what each one does,
the columns it reads, the conditions that skip data, the order of joins and why,
the build side of each join, and how many rows are expected. It reads
some thousand rows of a table if the statistics of its files do not suffice.
Stages that several steps need alike are drawn once, as #1, although each step runs them.

With --analyze it runs the whole job and removes its output at the end. Each stage then
shows what it did, next to the estimate. On a GPU it also shows how many kernels it
launched, their time by the GPU's clock, and what crossed the link at which rate. The
flags of gstream run for the device, the cores, the memory and the disk apply to this run.

With --format html it writes a page for a browser: a graph of the stages with their rows,
estimated and true, their times, and what each stage was bound by.

With --workers it shows the fragments of a run in tasks: what each one reads of others, how
many tasks compute it, and what they write for each other.

With --rules it also prints the plan as written in the job, and the plan after each rule
of the planner that changed it. --without-rule leaves one out.`,
		Example: "  gstream explain job.yaml\n  gstream explain job.yaml --analyze\n  gstream explain job.yaml " +
			"--format json | jq .plan\n  gstream explain job.yaml --analyze --format html > plan.html",
		Args: args(1, "one job file"),

		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := flags.load(args[0])
			if err != nil {
				return err
			}
			return flags.explained(cmd, job, nil, format, analyze, rules)
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&format, "format", "text", "form of the output: text, json or html, a page with a graph of "+
		"the stages")
	complete(cmd, "format", "text", "json", "html")
	flags.registerMachine(cmd)
	flags.registerTasks(cmd)
	cmd.Flags().BoolVar(&rules, "rules", false, "show what each rule of the planner did")
	cmd.Flags().BoolVar(&analyze, "analyze", false, "run the job, remove its output, and show what every stage did")
	return cmd
}

// explained prints the plan of a job, and what a run did if analyze is set. target receives the rows; nil is the job's
// output, which is removed at the end.
func (f *runFlags) explained(cmd *cobra.Command, job *pipeline.Job, target pipeline.Target, format string, analyze,
	rules bool) error {
	planned := roomToPlan()
	defer planned()
	opt, err := f.options(cmd)
	if err != nil {
		return err
	}
	p, err := pipeline.NewPlanWith(cmd.Context(), job,
		pipeline.PlanOptions{WithoutRules: f.withoutRules, TraceRules: rules, Target: target})
	if err != nil {
		return err
	}
	defer p.Close()
	choice, err := p.ChooseDevice(opt)
	if err != nil {
		return err
	}
	e := p.ExplainChoice(choice)
	if f.inTasks() {
		if analyze || format == "html" {
			return usageError(errors.New("explain --workers draws a plan as text or JSON, and does not run it: leave " +
				"out --analyze and --format html, or --workers"))
		}
		to, _, err := f.localTasks(p, opt)
		if err != nil {
			return err
		}
		e = p.ExplainTasks(opt, to, choice)
	}
	e.Choice = choice
	if analyze {
		planned()
		opt.Discard, opt.Leftover = true, f.left.add
		if opt.Threads > 0 {
			runtime.GOMAXPROCS(opt.Threads)
		}
		r, err := p.Run(cmd.Context(), opt)
		f.left.clear()
		if err != nil {
			return err
		}
		e.Analyze(r)
	}
	if format == "html" {
		return e.WritePage(cmd.OutOrStdout())
	}
	return printValue(cmd.OutOrStdout(), format, e)
}

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of job files, for editors",
		Example: "  gstream schema > gstream.schema.json",
		Args:    args(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printJSON(cmd.OutOrStdout(), pipeline.JSONSchema())
		},
	}
}

func registerFormat(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVar(format, "format", "text", "form of the output: text or json")
	complete(cmd, "format", "text", "json")
}

func registerDevice(cmd *cobra.Command, device *string) {
	cmd.Flags().StringVar(device, "device", pipeline.Auto,
		"device to run on: auto (the faster one, by estimate), host (the CPU), cuda (the first GPU), cuda:1 (the "+
			"second GPU) and so on, cuda:0,2 (two GPUs), cuda:all (all of them); +host after auto or GPUs, as in "+
			"auto+host, lets the CPU help with joins and group-bys that do not fit them")
	complete(cmd, "device", devices...)
}

// devices are the values of --device that completion offers.
var devices = []string{pipeline.Auto, pipeline.Host, pipeline.CUDA, pipeline.Auto + pipeline.WithHost,
	pipeline.CUDA + pipeline.WithHost, pipeline.CUDA + ":" + pipeline.All}

// checkDevice returns an error unless --device names a device.
func checkDevice(device string) error {
	if err := pipeline.CheckDevice(device); err != nil {
		return usageError(fmt.Errorf("--%w", err))
	}
	return nil
}

// printValue prints a value as text, by its String method, or as JSON.
func printValue(w io.Writer, format string, v fmt.Stringer) error {
	switch format {
	case "text":
		_, err := io.WriteString(w, v.String())
		return err
	case "json":
		return printJSON(w, v)
	}
	return usageError(fmt.Errorf("--format %s: must be text or json", format))
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// complete sets the values of a flag for shell completion.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag
	}
}

// completeFiles completes the argument with files of the given extensions.
func completeFiles(extensions ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !strings.HasSuffix(cmd.Use, "...") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	}
}
