package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/pipeline"
)

// jobFlags are the flags of every command that reads a job file.
type jobFlags struct{ set []string }

func (f *jobFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "give a variable of the job a value, as in --set day=2026-01-31 (repeatable)")
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
	return pipeline.Load(path, pipeline.LoadOptions{Set: set})
}

func (f *jobFlags) plan(path string) (*pipeline.Plan, error) {
	job, err := f.load(path)
	if err != nil {
		return nil, err
	}
	return pipeline.NewPlan(job)
}

func newLint() *cobra.Command {
	var flags jobFlags
	cmd := &cobra.Command{
		Use:   "lint JOB",
		Short: "Check a job file without running it",
		Long: `lint reads a job file, opens its sources and checks every key, variable, column
name, type and expression. It lists all faults with file, line and column.`,
		Example: "  gstream lint job.yaml\n  gstream lint job.yaml --set data=/data/tpch",
		Args:    args(1, "one job file"),

		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := flags.plan(args[0])
			if err != nil {
				return err
			}
			return p.Close()
		},
	}
	flags.register(cmd)
	return cmd
}

func newExplain(left *leftovers) *cobra.Command {
	var flags jobFlags
	var format, device string
	var analyze bool
	cmd := &cobra.Command{
		Use:   "explain JOB",
		Short: "Show how a job would run",
		Long: `explain plans a job and prints the stages that would run: what each one does,
the columns it reads, the conditions that skip data, the order of joins and why,
which side of a join is held in memory, and how many rows are expected. It reads
some thousand rows of a table if the statistics of its files do not tell.

With --analyze the job is run, all of it, and its output is removed at the end:
each stage then says what it did, beside the estimate, and on a GPU how many kernels it launched, the
time they took by the GPU's clock, and what crossed the link at which rate.`,
		Example: "  gstream explain job.yaml\n  gstream explain job.yaml --analyze\n  gstream explain job.yaml --format json | jq .plan",
		Args:    args(1, "one job file"),

		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDevice(device); err != nil {
				return err
			}
			p, err := flags.plan(args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			choice, err := p.ChooseDevice(pipeline.RunOptions{Use: device})
			if err != nil {
				return err
			}
			e := p.Explain(choice.Device)
			e.Choice = choice
			if analyze {
				r, err := p.Run(cmd.Context(), pipeline.RunOptions{Use: device, Discard: true, Leftover: left.add})
				left.clear()
				if err != nil {
					return err
				}
				e.Analyze(r)
			}
			return printValue(cmd.OutOrStdout(), format, e)
		},
	}
	flags.register(cmd)
	registerFormat(cmd, &format)
	registerDevice(cmd, &device)
	cmd.Flags().BoolVar(&analyze, "analyze", false, "run the job, remove its output, and say what every stage did")
	return cmd
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
	cmd.Flags().StringVar(device, "device", pipeline.Auto, "where to run: auto (the faster one, by estimates), host (the CPU), cuda (the first GPU) or cuda:1 and so on (another)")
	complete(cmd, "device", devices...)
}

// devices are the values of --device that completion offers.
var devices = []string{pipeline.Auto, pipeline.Host, pipeline.CUDA}

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
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	}
}
