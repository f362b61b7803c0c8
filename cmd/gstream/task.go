package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/pipeline/temporal"
)

func newTask(left *leftovers) *cobra.Command {
	f := runFlags{left: left, joinFilters: pipeline.Auto}
	var attended bool
	cmd := &cobra.Command{
		Use:   "task FILE",
		Short: "Run a task of a job that several workers run",
		Long: `task runs one task: a file that gstream run --workers has written. It reads a share of the
tables and the rows of earlier tasks, and writes rows for later ones. It prints the result
as one line of JSON.

A task may run any number of times, on any machine that sees the same files: the first
attempt that ends counts, and later ones return its result.

The exit code says whether the task may succeed when it runs again: 1 (the GPU or gstream
failed) and 5 (a file or a store failed) may pass; 2, 3 and 4 (the task, the data, memory)
will not.`,
		Example: `  gstream task /nvme/.gstream-tasks.5f1d/2-3.task.json
  gstream task s3://bucket/tasks/5f1d/2-3.task.json --device cuda`,
		Args: func(cmd *cobra.Command, list []string) error {
			if attended {
				return args(0, "no file: its paths come from standard input")(cmd, list)
			}
			return args(1, "one file of a task")(cmd, list)
		},

		ValidArgsFunction: completeFiles("json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opt, err := f.options(cmd)
			if err != nil {
				return err
			}
			if opt.Threads > 0 {
				runtime.GOMAXPROCS(opt.Threads)
			}
			opt.Leftover = left.add
			if attended {
				return runAttended(cmd, opt, left)
			}
			return runTask(cmd.Context(), cmd.OutOrStdout(), args[0], opt, left)
		},
	}
	f.registerMachine(cmd)
	cmd.Flags().BoolVar(&attended, "attended", false, "run the tasks whose paths come from standard input")
	if err := cmd.Flags().MarkHidden("attended"); err != nil {
		panic(err)
	}
	return cmd
}

// runTask runs a task and prints its outcome.
func runTask(ctx context.Context, w io.Writer, path string, opt pipeline.RunOptions, left *leftovers) error {
	defer left.clear()
	result, err := pipeline.RunTaskFile(ctx, path, opt)
	out := taskOutcome{TaskResult: result}
	if err != nil {
		out = taskOutcome{Error: message(err), ExitCode: exitCode(err), MayPass: pipeline.MayPass(err)}
	}
	if failed := json.NewEncoder(w).Encode(out); err == nil {
		err = failed
	}
	return err
}

// runAttended runs tasks one after the other on one device, up to one that fails. Their paths are lines of standard
// input. Its end ends the task that runs. An empty line of standard output says that the process is alive.
func runAttended(cmd *cobra.Command, opt pipeline.RunOptions, left *leftovers) (err error) {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	paths := make(chan string)
	go func() {
		defer cancel()
		in := bufio.NewScanner(cmd.InOrStdin())
		in.Buffer(nil, maxPath)
		for in.Scan() {
			select {
			case paths <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	out := &oneWriter{to: cmd.OutOrStdout()}
	go func() {
		alive := time.NewTicker(time.Second)
		defer alive.Stop()
		for {
			select {
			case <-alive.C:
				_, _ = out.Write([]byte("\n"))
			case <-ctx.Done():
				return
			}
		}
	}()
	device := &aheadDevice{}
	device.open(opt) // while the first path is made
	defer func() { err = errors.Join(err, device.close()) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case path := <-paths:
			if opt.Device, err = device.wait(); err != nil {
				opt.Device = nil // the task meets the same error, and says so
			}
			if err := runTask(ctx, out, path, opt, left); err != nil {
				return reported{err}
			}
		}
	}
}

// oneWriter lets one goroutine at a time write.
type oneWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *oneWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// maxPath bounds the bytes of the path of a task.
const maxPath = 64 << 10

// taskOutcome is what gstream task prints.
type taskOutcome struct {
	*pipeline.TaskResult
	Error    string `json:"error,omitempty"`
	ExitCode int    `json:"exit_code,omitempty"`
	MayPass  bool   `json:"may_pass,omitempty"`
}

// processes is an engine whose workers are processes of this machine, or that has each task started by a launcher.
type processes struct {
	launch  []string // the launcher and its arguments; none for processes of this machine
	program string
	workers []pipeline.RunOptions // a part of the machine for each
	running []*workerProcess      // by worker; nil if it has not begun, and for a launcher
}

// self returns the path of this program.
func self() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program, which runs the tasks: %w", err)
	}
	return program, nil
}

// newProcesses returns the engine of a run on so many workers.
func newProcesses(p *pipeline.Plan, opt pipeline.RunOptions, workers int) (*processes, error) {
	program, err := self()
	if err != nil {
		return nil, err
	}
	parts, err := p.DivideMachine(opt, workers)
	return &processes{program: program, workers: parts, running: make([]*workerProcess, workers)}, err
}

// newLauncher returns the engine of a run whose tasks a command starts.
func newLauncher(launch string, opt pipeline.RunOptions, workers int) (*processes, error) {
	program, err := self()
	if err != nil {
		return nil, err
	}
	e := &processes{launch: strings.Fields(launch), program: program,
		workers: slices.Repeat([]pipeline.RunOptions{opt}, workers)}
	if _, err := exec.LookPath(e.launch[0]); err != nil {
		return nil, usageError(fmt.Errorf("--launch: %w", err))
	}
	return e, nil
}

// Describe implements pipeline.Engine.
func (e *processes) Describe() string {
	if e.launch != nil {
		return fmt.Sprintf("%d processes by %s", len(e.workers), strings.Join(e.launch, " "))
	}
	return fmt.Sprintf("%d processes of this machine", len(e.workers))
}

// flagsOf returns the flags of a task on a part of the machine.
func flagsOf(opt pipeline.RunOptions) (flags []string) {
	add := func(flag, value string) {
		if value != "" && value != "0" {
			flags = append(flags, "--"+flag, value)
		}
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	add("device", opt.Use)
	add("threads", strconv.Itoa(opt.Threads))
	add("host-memory", number(opt.HostMemory))
	add("device-memory", number(opt.DeviceMemory))
	add("spill-dir", opt.SpillDir)
	add("spill-limit", number(opt.SpillLimit))
	add("spill-compression", opt.SpillCompression)
	add("stride-size", number(opt.StrideSize))
	add("join-filters", opt.JoinFilters)
	return flags
}

// workerProcess is a process that runs tasks one after the other: gstream task --attended. It ends when standard input
// does, so also with this process.
type workerProcess struct {
	*exec.Cmd
	stop   context.CancelFunc
	paths  io.WriteCloser
	out    *bufio.Reader
	stderr tail
}

// start starts the process of a worker.
func (e *processes) start(worker int) (*workerProcess, error) {
	ctx, stop := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, e.program, append([]string{"task", "--attended"}, flagsOf(e.workers[worker])...)...)
	p := &workerProcess{Cmd: c, stop: stop, stderr: tail{to: &bytes.Buffer{}}}
	c.Env, c.Stderr, c.WaitDelay = withoutSizes(os.Environ()), &p.stderr, 5*time.Second
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	out, err := c.StdoutPipe()
	if err == nil {
		p.out = bufio.NewReader(out)
		p.paths, err = c.StdinPipe()
	}
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		stop()
		return nil, err
	}
	return p, nil
}

// end ends the process, and returns the error with which it ended.
func (p *workerProcess) end() error {
	defer p.stop()
	_ = p.paths.Close()
	defer time.AfterFunc(p.WaitDelay, p.stop).Stop()
	return p.Wait()
}

// close ends the processes of all workers, together.
func (e *processes) close() {
	var ending sync.WaitGroup
	for _, p := range e.running {
		if p != nil {
			ending.Go(func() { _ = p.end() })
		}
	}
	ending.Wait()
}

// Run implements pipeline.Engine.
func (e *processes) Run(ctx context.Context, worker int, path string) (_ *pipeline.TaskResult, err error) {
	if e.launch != nil {
		return e.launched(ctx, worker, path)
	}
	p := e.running[worker]
	if e.running[worker] = nil; p == nil {
		if p, err = e.start(worker); err != nil {
			return nil, fmt.Errorf("%w: start its process: %w", pipeline.ErrLost, err)
		}
	}
	stay := context.AfterFunc(ctx, p.stop)
	silent := time.AfterFunc(silence, p.stop)
	var line []byte
	_, err = fmt.Fprintln(p.paths, path)
	for err == nil && len(bytes.TrimSpace(line)) == 0 {
		line, err = p.out.ReadBytes('\n')
		silent.Reset(silence)
	}
	silent.Stop()
	out := outcomeOf(line)
	if stay() && err == nil && out.TaskResult != nil && out.Error == "" {
		e.running[worker] = p // for the next task
		return out.TaskResult, nil
	}
	err = p.end() // the next task begins in a new process
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return e.outcome(ctx, path, out, err, p.stderr)
}

// launched runs a task by a launcher.
func (e *processes) launched(ctx context.Context, worker int, path string) (*pipeline.TaskResult, error) {
	args := slices.Concat(e.launch, []string{e.program, "task", path}, flagsOf(e.workers[worker]))
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	stdout, stderr := &bytes.Buffer{}, tail{to: &bytes.Buffer{}}
	c.Env, c.Stdout, c.Stderr, c.WaitDelay = withoutSizes(os.Environ()), stdout, &stderr, launcherWait
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // which launchers pass on
	err := c.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return e.outcome(ctx, path, outcomeOf(stdout.Bytes()), err, stderr)
}

// outcome returns the result of a task, or the error, once its process has ended.
func (e *processes) outcome(ctx context.Context, path string, out taskOutcome, ended error, stderr tail) (
	*pipeline.TaskResult, error) {
	if out.Error == "" && out.TaskResult == nil {
		// It may have ended, even if its launcher failed or passes on no output.
		if known, wrong := pipeline.ResultOfTask(ctx, path); known != nil || wrong != nil {
			return known, wrong
		}
		said := strings.TrimSpace(stderr.to.String())
		return nil, fmt.Errorf("%w: its process ended without a result (%v): %s", pipeline.ErrLost, ended, said)
	}
	if out.Error == "" {
		return out.TaskResult, nil
	}
	err := error(taskError{out.Error, out.ExitCode})
	if out.MayPass {
		err = fmt.Errorf("%w: %w", pipeline.ErrLost, err)
	}
	return nil, err
}

// silence is how long a process may say nothing before it is lost. It says every second that it is alive.
const silence = 30 * time.Second

// launcherWait is how long a launcher may take to end its task after SIGTERM.
const launcherWait = 30 * time.Second

// outcomeOf returns the outcome in the last line of an output that has one. Launchers may write other lines.
func outcomeOf(stdout []byte) (out taskOutcome) {
	lines := bytes.Split(stdout, []byte("\n"))
	for _, line := range slices.Backward(lines) {
		var one taskOutcome
		if json.Unmarshal(line, &one) == nil && (one.Error != "" || one.TaskResult != nil) {
			return one
		}
	}
	return out
}

// withoutSizes returns an environment without the variables that replace flags.
func withoutSizes(env []string) (out []string) {
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		keep := true
		for _, of := range variables {
			keep = keep && name != of
		}
		if keep {
			out = append(out, v)
		}
	}
	return out
}

// taskError is the error of a task in another process.
type taskError struct {
	text string
	code int
}

func (e taskError) Error() string { return e.text }

// Is makes the error match the classes of its exit code.
func (e taskError) Is(target error) bool {
	code, ok := exitCodes[target]
	return ok && code == e.code
}

// tail keeps the last bytes that are written to it.
type tail struct{ to *bytes.Buffer }

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.to.Write(p)
	if extra := t.to.Len() - tailBytes; extra > 0 {
		t.to.Next(extra)
	}
	return len(p), nil
}

// maxWorkers bounds the workers of a run. defaultWorkers is the number of tasks at a time on an engine.
const (
	maxWorkers     = 10_000
	defaultWorkers = 16
)

// inTasks reports whether the job runs in tasks.
func (f *runFlags) inTasks() bool { return f.workers != 0 || f.on != "" || f.launch != "" }

// registerTasks registers the flags that say how many workers run a job in tasks.
func (f *runFlags) registerTasks(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.workers, "workers", 0, "run the job in tasks, so many at a time, each in a process of its "+
		"own with its part of the machine (0: in this process)")
	cmd.Flags().StringVar(&f.taskSize, "task-size", "32MiB", "bytes of input from which --workers gives another task "+
		"a part of a fragment's work; a smaller size makes more and shorter tasks")
}

// taskOptions returns the options of tasks, without an engine. Workers is 1 or more if the job runs in tasks.
func (f *runFlags) taskOptions() (to pipeline.TaskOptions, err error) {
	to = pipeline.TaskOptions{Workers: f.workers, Folder: f.workFolder}
	if f.workers < 0 || f.workers > maxWorkers {
		return to, usageError(fmt.Errorf("--workers %d: must be from 1 to %d", f.workers, maxWorkers))
	}
	return to, parseSizes(map[string]sizeFlag{"task-size": {f.taskSize, &to.LeastBytes}})
}

// localTasks returns the options of tasks on processes of this machine, and that engine.
func (f *runFlags) localTasks(p *pipeline.Plan, opt pipeline.RunOptions) (to pipeline.TaskOptions, e *processes,
	err error) {
	if to, err = f.taskOptions(); err != nil {
		return to, nil, err
	}
	if e, err = newProcesses(p, opt, f.workers); err != nil {
		return to, nil, err
	}
	to.Engine, to.Local = e, true
	return to, e, nil
}

// runTasks runs a plan on workers.
func (f *runFlags) runTasks(ctx context.Context, p *pipeline.Plan, opt pipeline.RunOptions) (*pipeline.Report, error) {
	if f.launch == "" && f.on == "" {
		to, engine, err := f.localTasks(p, opt)
		if err != nil {
			return nil, err
		}
		defer engine.close()
		return p.RunTasks(ctx, opt, to)
	}
	to, err := f.taskOptions()
	if err != nil {
		return nil, err
	}
	if f.launch != "" {
		if f.on != "" || f.workers == 0 || f.workFolder == "" || len(strings.Fields(f.launch)) == 0 {
			return nil, usageError(errors.New("--launch needs a command, --workers, and --work-dir: a folder or " +
				"a prefix of objects that all tasks see; it excludes --on"))
		}
		engine, err := newLauncher(f.launch, opt, f.workers)
		if err != nil {
			return nil, err
		}
		to.Engine = engine
		return p.RunTasks(ctx, opt, to)
	}
	address, err := temporal.ParseAddress(f.on)
	if err != nil {
		return nil, usageError(fmt.Errorf("--on: %w", err))
	}
	if to.Folder == "" {
		return nil, usageError(errors.New("--on needs --work-dir: a folder or a prefix of objects that all workers " +
			"see"))
	}
	engine, err := temporal.NewEngine(address)
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	to.Engine, to.Workers = engine, cmp.Or(f.workers, defaultWorkers)
	return p.RunTasks(ctx, opt, to)
}
