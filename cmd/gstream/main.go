// Command gstream runs job files: relational pipelines from Parquet to Parquet. It owns flags, the
// terminal and exit codes; everything else is in package pipeline.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

// connections is the variable for the number of connections that the driver makes to the GPU. Each
// one costs some 15 ms at the start and at the end of the process. With one connection, kernels wait
// for the current copy; with two they do not.
const connections = "CUDA_DEVICE_MAX_CONNECTIONS"

// ballast is a block of the heap that is never touched, so that it takes no memory. With it a heap of 3 MB is collected
// after 9 MB of garbage; without it after 2 MB, which accumulate in milliseconds. A run with --host-memory has none.
var ballast []byte

// ballastOf returns the size of the ballast. Garbage accumulates faster with more cores, and each collection stops all
// of them: 64 cores caused 10 collections in 0.4 s, a fifth of the time. Half of the ballast is small compared with
// free memory.
func ballastOf(cores int, free int64) int64 {
	return min(16<<20+int64(max(cores-2, 0))*4<<20, max(free/16, 16<<20))
}

func main() {
	if os.Getenv(connections) == "" {
		_ = os.Setenv(connections, "2")
	}
	if os.Getenv("GOGC") == "" {
		// Most memory is outside of Go's heap. Collecting the heap more often costs little, and keeps
		// the process closer to --host-memory.
		debug.SetGCPercent(50)
		ballast = make([]byte, ballastOf(runtime.GOMAXPROCS(0), host.FreeMemory()))
	}
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), host.MaxThreads())) // the environment may say anything
	left := &leftovers{ends: true}
	ctx, stop := interruptible(os.Stderr, left, os.Exit)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, left)
	stop()
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, left *leftovers) int {
	root := newRoot(left)
	root.SetArgs(withComments(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code := codeOf(ctx, err)
	if errors.As(err, new(reported)) {
		return code
	}
	printError(stderr, err)
	return code
}

// withComments lets an SQL text begin with a comment, which is otherwise taken for a flag: no flag has a blank, a line
// break or a third dash after its two dashes.
func withComments(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if text, ok := strings.CutPrefix(a, "--"); ok && text != "" && strings.ContainsAny(text[:1], " \t\n-") {
			out[i] = " " + a
		}
	}
	return out
}

// printError prints the message of an error.
func printError(stderr io.Writer, err error) {
	for _, line := range strings.Split(message(err), "\n") {
		// A message of several lines lists several faults, or has a caret under an expression. The line
		// of the caret is indented.
		if !strings.HasPrefix(line, " ") {
			line = "gstream: " + line
		}
		fmt.Fprintln(stderr, line)
	}
}

func newRoot(left *leftovers) *cobra.Command {
	gpu.NameSettings(flagOf)
	var level string
	root := &cobra.Command{
		SuggestionsMinimumDistance: 2,

		Use:   "gstream",
		Short: "Run relational pipelines over Parquet files",
		Long: `gstream reads Parquet files, filters, joins, groups and sorts their rows as a
job file says, and writes Parquet. Data that is larger than memory streams
through in batches. It runs on an NVIDIA GPU if that is faster, otherwise on the CPU.

Exit codes:
  0    success
  1    a defect in gstream, a failure of the GPU, or an error of no other kind;
       please report it
  2    the job or the command line is wrong
  3    the data is at fault: a damaged file, a value that an expression does not
       accept, or more than a column or a file can hold
  4    a budget of memory or spill files is too small
  5    a file cannot be read or written, or changed while it was read
  130  interrupted; 143 by SIGTERM, 129 by SIGHUP

After 4, 5, 130, 143 and 129 the same command may succeed later: with more memory or
disk, or once the file can be read. After 2 and 3 it fails again. Whatever the code, an
incomplete output never appears.`,
		Example: `  gstream init data/orders.parquet
  gstream run job.yaml
  gstream run job.yaml --set day=2026-01-31 --overwrite
  gstream explain job.yaml
  gstream check job.yaml --host-memory 2GiB
  gstream show job.yaml
  gstream inspect data/orders.parquet`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			var l slog.Level
			if err := l.UnmarshalText([]byte(level)); err != nil {
				return usageError(fmt.Errorf("--log-level %s: must be debug, info, warn or error", level))
			}
			slog.SetDefault(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: l})))
			return nil
		},
	}
	root.Version = version()
	root.SetVersionTemplate(versionLine() + "\n")
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q", args[0])
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			text += fmt.Sprintf(" (did you mean %q?)", near[0])
		}
		return usageError(fmt.Errorf("%s; see gstream --help", text))
	}
	root.PersistentFlags().StringVar(&level, "log-level", "warn",
		"least severe log messages to show: debug, info, warn or error")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	root.AddCommand(newRun(left), newTask(left), newWorker(left),
		newSQL(left), newLint(), newExplain(left), newCheck(left),
		newConvert(),
		newShow(left), newInit(),
		newInspect(),
		newRecover(), newFunctions(), newDoctor(), newDevices(), newBench(left), newSchema(), newMan(), newVersion())
	return root
}

// args checks the number of arguments; what describes the arguments.
func args(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return usageError(fmt.Errorf("%s takes %s, not %d arguments; see %s --help", cmd.CommandPath(), what, len(args),
			cmd.CommandPath()))
	}
}

// someFiles checks that there is at least one argument; what describes one argument.
func someFiles(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return usageError(fmt.Errorf("%s takes one or more %ss, none is given; see %s --help", cmd.CommandPath(), what,
			cmd.CommandPath()))
	}
}
