// Command gstream runs relational pipelines over Parquet files: job files in, Parquet
// out. It owns flags, the terminal and exit codes; everything else is in package
// pipeline.
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
	"strings"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/gpu/phrase"
)

// connections tells the driver how many connections to make to the GPU. Each one costs some
// 15 ms at the start and at the end of the process. With one, kernels wait for the copy
// that is under way; with two they do not.
const connections = "CUDA_DEVICE_MAX_CONNECTIONS"

// ballast is a block of the heap that nobody touches, so that it takes no memory. With it a heap of 3 MB is collected
// after 9 MB of garbage, and not after 2, which come in milliseconds. A run with --host-memory has none.
var ballast []byte

// ballastOf returns the size of the ballast. Garbage comes faster the more cores work, and each collection stops them
// all: 64 cores made 10 in 0.4 s, which took a fifth of the time. Half of the ballast is a small part of free memory.
func ballastOf(cores int, free int64) int64 {
	return min(16<<20+int64(max(cores-2, 0))*4<<20, max(free/16, 16<<20))
}

func main() {
	if os.Getenv(connections) == "" {
		_ = os.Setenv(connections, "2")
	}
	if os.Getenv("GOGC") == "" {
		// The bulk of memory is not in Go's heap: collecting it more often costs little, and keeps
		// the process nearer to --host-memory.
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
	root.SetArgs(args)
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
	for _, line := range strings.Split(message(err), "\n") {
		// A message of several lines has several faults, or a caret under an expression,
		// which is indented.
		if !strings.HasPrefix(line, " ") {
			line = "gstream: " + line
		}
		fmt.Fprintln(stderr, line)
	}
	return code
}

func newRoot(left *leftovers) *cobra.Command {
	phrase.UseFlags()
	var level string
	root := &cobra.Command{
		SuggestionsMinimumDistance: 2,

		Use:   "gstream",
		Short: "Run relational pipelines over Parquet files",
		Long: `gstream reads Parquet files, filters, joins, groups and sorts their rows as a
job file says, and writes Parquet. Data that is larger than memory streams
through in batches. It runs on an NVIDIA GPU where that is faster, else on the CPU.

Exit codes:
  0    done
  1    a defect in gstream, a failure of the GPU, or an error of no other kind;
       please report it
  2    the job or the command line is wrong
  3    the data: a damaged file, a value that an expression cannot take, more
       than a column or a file can hold
  4    a memory budget is too small
  5    a file cannot be read or written, or changed while it was read
  130  interrupted; 143 when by SIGTERM, 129 by SIGHUP

After 4, 5, 130, 143 and 129 the same command may succeed later, with more memory or
disk, or when the file can be read; after 2 and 3 it will not. Whatever the code, an
output that is not complete does not appear.`,
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
	root.AddCommand(newRun(left), newLint(), newExplain(left), newCheck(left), newShow(left), newInit(), newInspect(),
		newFunctions(), newDoctor(), newDevices(), newBench(left), newSchema(), newVersion())
	return root
}

// args checks the number of arguments. what describes them.
func args(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return usageError(fmt.Errorf("%s takes %s, not %d arguments; see %s --help", cmd.CommandPath(), what, len(args),
			cmd.CommandPath()))
	}
}

// someFiles checks that there is an argument. what names one.
func someFiles(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return usageError(fmt.Errorf("%s takes a %s or several, none is given; see %s --help", cmd.CommandPath(), what,
			cmd.CommandPath()))
	}
}
