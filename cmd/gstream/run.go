package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/pipeline/ranks"
	"github.com/gstream/gstream/pipeline/telemetry"
)

// runFlags are the flags of gstream run.
type runFlags struct {
	withoutRules []string
	jobFlags
	device, progress, report               string
	gpus                                   int
	cpuProfile, timeline                   string
	hostMemory, deviceMemory               string
	spillDir, spillLimit, spillCompression string
	strideSize, joinFilters                string
	threads                                int
	overwrite, endOnLostGPU                bool
	telemetry                              []string
	resumeFrom, each                       string // --resume, --each
	workers                                int
	workFolder, on, launch                 string // --work-dir, --on, --launch
	taskSize                               string
	ranks                                  string       // --ranks
	world                                  *ranks.World // of --ranks
	left                                   *leftovers
	session                                *pipeline.Session // of gstream sql
}

func newRun(left *leftovers) *cobra.Command {
	f := runFlags{left: left}
	cmd := &cobra.Command{
		Use:   "run JOB...",
		Short: "Run jobs",
		Long: `run executes one or several job files, one after the other. It stops at the first job
that fails. It opens the device once; the memory settings of the first job apply to all.
An output appears only when its run has succeeded; an error or an interrupt leaves nothing
behind. At the end run prints a report of every stage to standard error.

A source is Parquet files, folders (every *.parquet in them, at any depth) and
patterns: * and ? within a name, [a-z], and ** for any number of folders, as in
data/**/*.parquet. Hidden names (.name, and _name in a folder) are skipped.

The job runs on an NVIDIA GPU if there is one and the job is large enough for it; the
report says why. The rows are the same. The CPU reads and writes files, and kernels do the
rest: they also decode most pages, and the report says how many bytes. With --device
auto+host the CPU helps with joins and group-bys that do not fit the GPU: it takes
partitions when that is faster by the times measured so far. Several GPUs do so for each
other. The report says how many.

--device-memory is the budget of the GPU's memory. --host-memory is the budget of
page-locked memory next to a GPU, and of all memory on the CPU. Build sides of joins,
groups and rows to sort that do not fit go to files in --spill-dir. These files have no
names, are compressed, and vanish with the process. --spill-limit bounds them, and the
report says how much was spilled. A folder that --spill-dir names is tested at the start.

With --progress json, standard error is a stream of records, one per line: a report of
type progress every second, messages of type log, and at the end a report of type done
with exit_code and, after a failure, error. --report writes that last report to a file,
even after a failure.

With --each, run runs the jobs for each value of a variable. With --resume FILE, a run that
was cut can be started again by the same command: what is done is not done again, as long
as the sources, the job and the outputs are unchanged. It knows jobs over Parquet files.

With --workers the plan is cut into fragments at the places where rows have to meet, and
tasks compute each fragment: see docs/scale.md. A task that is lost runs again.

With --ranks a launcher such as torchrun or srun starts the same command on each machine, for
each GPU. Each process reads a share of the tables, they exchange rows over the network, and
the first one writes the output: see docs/scale.md.

The environment variables GSTREAM_HOST_MEMORY, GSTREAM_DEVICE_MEMORY, GSTREAM_THREADS,
GSTREAM_SPILL_DIR and GSTREAM_SPILL_LIMIT replace the flags of these names.`,
		Example: `  gstream run job.yaml
  gstream run job.yaml --set data=/data/tpch --set out=/tmp/result.parquet --overwrite
  gstream run load.yaml monthly.yaml daily.yaml
  gstream run daily.yaml --each day=2026-01-01..2026-01-31 --resume january.jsonl
  gstream run job.yaml --threads 8 --host-memory 16GiB --report report.json
  gstream run job.yaml --host-memory 2GiB --spill-dir /nvme --spill-limit 100GiB
  gstream run job.yaml --device cuda --device-memory 8GiB --timeline timeline.html
  gstream run job.yaml --workers 4 --work-dir /nvme
  gstream run job.yaml --launch "srun --ntasks=1 --exclusive" --workers 64 --work-dir /shared/work
  gstream run job.yaml --on temporal://host:7233 --workers 64 --work-dir s3://bucket/work
  torchrun --no-python --nproc-per-node 8 gstream run job.yaml --ranks nccl`,
		Args: someFiles("job file"),

		ValidArgsFunction: completeFiles("yaml", "yml"),
		RunE:              f.run,
	}
	f.register(cmd)
	f.registerMachine(cmd)
	f.registerRun(cmd)
	cmd.Flags().StringVar(&f.resumeFrom, "resume", "", "skip jobs that this file says are done, with the same sources "+
		"and outputs as now, and add those that succeed; it is made if it is missing")
	f.registerTasks(cmd)
	cmd.Flags().StringVar(&f.workFolder, "work-dir", "", "folder or prefix, as in s3://bucket/work, for the rows that "+
		"tasks exchange (default: the folder of spilled rows)")
	cmd.Flags().StringVar(&f.on, "on", "", "run the tasks on an engine, as in temporal://host:7233/namespace, "+
		"whose workers see the sources and --work-dir (see gstream worker --help); --workers is the number of tasks "+
		"at a time")
	cmd.Flags().StringVar(&f.launch, "launch", "", "start each task by this command, as in \"srun --ntasks=1 "+
		"--exclusive\": words before gstream task FILE FLAGS; --workers is the number of tasks at a time, and "+
		"all tasks see the sources and --work-dir")
	cmd.Flags().StringVar(&f.ranks, "ranks", "", "run the job together with the other processes that a launcher has "+
		"started: nccl sends rows from GPU to GPU by NCCL, tcp through host memory. RANK, WORLD_SIZE, MASTER_ADDR and "+
		"MASTER_PORT, or the variables of Slurm or MPI, say which one this is")
	complete(cmd, "ranks", ranks.NCCL, ranks.TCP)
	cmd.Flags().StringVar(&f.each, "each", "", "run each job for several values of a variable, as in "+
		"day=2026-01-01..2026-01-31 (days) or region=eu,us")
	return cmd
}

// registerRun registers the flags for the output, the progress and the reports of a run.
func (f *runFlags) registerRun(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.progress, "progress", "auto",
		"progress on standard error: auto (on a terminal), plain, json or none")
	complete(cmd, "progress", "auto", "plain", "json", "none")
	cmd.Flags().StringVar(&f.report, "report", "", "write the report as JSON to this file; - is standard output")
	cmd.Flags().StringVar(&f.timeline, "timeline", "",
		"write an HTML page that shows what ran when to this file; - is standard output")
	cmd.Flags().StringArrayVar(&f.telemetry, "telemetry", nil, "send the report at the end: to a file FILE.prom, as "+
		"metrics for the textfile collector of Prometheus, or to a collector of OpenTelemetry, as spans, as in "+
		"http://localhost:4318 (repeatable)")
	cmd.Flags().StringVar(&f.cpuProfile, "cpu-profile", "", "write a CPU profile for go tool pprof to this file")
	cmd.Flags().BoolVar(&f.overwrite, "overwrite", false,
		"replace an existing output: a file, or a folder that contains only an earlier output")
}

// registerMachine registers the flags for the device, the cores, the memory and the disk of a run.
func (f *runFlags) registerMachine(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.withoutRules, "without-rule", nil,
		"leave out a rule of the planner, as gstream explain --rules names it, to find the one at fault (repeatable)")
	registerDevice(cmd, &f.device)
	cmd.Flags().IntVar(&f.gpus, "gpus", 0,
		"number of GPUs to use if the job runs on a GPU: the first ones in the driver's numbering (0: those that "+
			"--device names, with auto as many as pay by estimate, or else one)")
	cmd.Flags().BoolVar(&f.endOnLostGPU, "end-on-lost-gpu", false,
		"end the job with an error when a GPU fails; without it the job starts again without that GPU")
	cmd.Flags().IntVar(&f.threads, "threads", 0,
		"CPU cores to use, at most 64, or four times those of the machine if that is more (default: all)")
	cmd.Flags().StringVar(&f.hostMemory, "host-memory", "",
		"budget of host memory, as in 16GiB (default: half of free memory)")
	cmd.Flags().StringVar(&f.deviceMemory, "device-memory", "",
		"budget of device memory, as in 8GiB (default: 80 % of free memory)")
	cmd.Flags().StringVar(&f.spillDir, "spill-dir", "",
		"folder for rows that do not fit memory, or none (default: $TMPDIR, or else /var/tmp)")
	cmd.Flags().StringVar(&f.spillLimit, "spill-limit", "",
		"maximum size of all files in it, as in 100GiB (default: four fifths of the free space)")
	cmd.Flags().StringVar(&f.spillCompression, "spill-compression", "",
		"compression of these files: lz4 (default) or none")
	for flag, env := range variables {
		cmd.Flags().Lookup(flag).Usage += ", also " + env
	}
	complete(cmd, "spill-compression", "lz4", "none")
	cmd.Flags().StringVar(&f.strideSize, "stride-size", "",
		"size of a column of 8-byte values in a stride, as in 8MiB (default: depends on the device)")
	cmd.Flags().StringVar(&f.joinFilters, "join-filters", pipeline.Auto,
		"joins that drop rows without a match while their probe side is scanned: auto (where few rows are expected "+
			"to match), always or never")
	complete(cmd, "join-filters", pipeline.Auto, pipeline.Always, pipeline.Never)
}

// variables maps flags to the variables of the environment that replace them.
var variables = map[string]string{
	"host-memory": "GSTREAM_HOST_MEMORY", "device-memory": "GSTREAM_DEVICE_MEMORY", "threads": "GSTREAM_THREADS",
	"spill-dir": "GSTREAM_SPILL_DIR", "spill-limit": "GSTREAM_SPILL_LIMIT",
}

// environment sets flags that were not given from the environment.
func (f *runFlags) environment(cmd *cobra.Command) error {
	for flag, env := range variables {
		if v := os.Getenv(env); v != "" && !cmd.Flags().Changed(flag) {
			if err := cmd.Flags().Set(flag, v); err != nil {
				return usageError(fmt.Errorf("environment variable %s: %w", env, err))
			}
		}
	}
	return nil
}

// options checks the flags and returns the options of a run.
func (f *runFlags) options(cmd *cobra.Command) (pipeline.RunOptions, error) {
	if err := f.environment(cmd); err != nil {
		return pipeline.RunOptions{}, err
	}
	opt := pipeline.RunOptions{Threads: f.threads, Overwrite: f.overwrite, Use: cmp.Or(f.device, pipeline.Auto),
		GPUs: f.gpus, EndOnLostGPU: f.endOnLostGPU,
		Alone: f.left.ends, JoinFilters: f.joinFilters, SpillDir: f.spillDir, SpillCompression: f.spillCompression}
	if err := checkDevice(f.device); err != nil {
		return opt, err
	}
	if !slices.Contains([]string{pipeline.Auto, pipeline.Always, pipeline.Never}, f.joinFilters) {
		return opt, usageError(fmt.Errorf("--join-filters %q: want auto, always or never", f.joinFilters))
	}
	if !slices.Contains([]string{"", "lz4", "none"}, f.spillCompression) {
		return opt, usageError(fmt.Errorf("--spill-compression %q: want lz4 or none", f.spillCompression))
	}
	if err := host.CheckThreads(f.threads); err != nil {
		return opt, usageError(fmt.Errorf("--threads: %w", err))
	}
	err := parseSizes(map[string]sizeFlag{
		"host-memory": {f.hostMemory, &opt.HostMemory}, "device-memory": {f.deviceMemory, &opt.DeviceMemory},
		"stride-size": {f.strideSize, &opt.StrideSize}, "spill-limit": {f.spillLimit, &opt.SpillLimit},
	})
	if f.session != nil {
		opt = f.session.Options(opt)
	}
	return opt, err
}

// sizeFlag is the text of a flag for a size, and the variable that receives its value.
type sizeFlag struct {
	text string
	into *int64
}

// parseSizes parses flags that are sizes. An empty flag leaves its variable unchanged.
func parseSizes(flags map[string]sizeFlag) error {
	for name, f := range flags {
		if f.text == "" {
			continue
		}
		size, err := pipeline.ParseSize(f.text)
		if err != nil {
			return usageError(fmt.Errorf("--%s: %w", name, err))
		}
		*f.into = int64(size)
	}
	return nil
}

// aheadDevice is a device that is opened concurrently with other work. While a job is planned this
// is possible if the device does not depend on the plan. A GPU takes some tenths of a second to start.
type aheadDevice struct {
	sizes deviceSizes
	done  chan struct{} // nil until the device is being opened
	dev   gpu.Device
	err   error
}

func (a *aheadDevice) open(opt pipeline.RunOptions) {
	a.done = make(chan struct{})
	go func() {
		defer close(a.done)
		a.dev, a.err = pipeline.OpenDevice(opt)
	}()
}

func (a *aheadDevice) wait() (gpu.Device, error) {
	<-a.done
	return a.dev, a.err
}

func (a *aheadDevice) close() error {
	if a.done == nil {
		return nil
	}
	d, err := a.wait()
	if err != nil {
		return nil // wait has returned the error
	}
	return d.Close()
}

// deviceSizes are the sizes of a device that a job file may set.
type deviceSizes struct{ host, device, stride int64 }

// devicePool has the devices of several jobs by their names. A device is opened once for jobs with
// the same sizes.
type devicePool map[string]*aheadDevice

// open begins to open the device that the options name, unless it is open. It first closes one of
// that name with other sizes, as the jobs before have ended and it has memory.
func (p devicePool) open(opt pipeline.RunOptions) (*aheadDevice, error) {
	sizes := deviceSizes{opt.HostMemory, opt.DeviceMemory, opt.StrideSize}
	name := fmt.Sprint(opt.Use, opt.GPUs)
	d := p[name]
	if d != nil && d.sizes != sizes {
		if err := d.close(); err != nil {
			return nil, err
		}
		d = nil
	}
	if d == nil {
		d = &aheadDevice{sizes: sizes}
		p[name] = d
		d.open(opt)
	}
	return d, nil
}

func (p devicePool) close() error {
	var errs []error
	for _, d := range p {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}

// run runs the jobs one after the other, up to the first that fails.
func (f *runFlags) run(cmd *cobra.Command, paths []string) (err error) {
	variable, values, err := f.values()
	if err != nil {
		return err
	}
	if err := f.checkReports(len(paths)*len(values), "job"); err != nil {
		return err
	}
	if f.hostMemory != "" {
		ballast = nil
	}
	if err := f.join(cmd.Context()); err != nil {
		return err
	}
	if f.world != nil {
		defer func() { f.world.Close(err) }()
	}
	devices := devicePool{}
	if !f.left.ends {
		defer func() { err = errors.Join(err, devices.close()) }()
	}
	given := f.set
	for i := range len(paths) * len(values) {
		path, name := paths[i%len(paths)], paths[i%len(paths)]
		if variable != "" {
			set := variable + "=" + values[i/len(paths)]
			f.set, name = append(slices.Clone(given), set), path+", "+set
		}
		load := func() (*pipeline.Job, error) { return f.load(path) }
		if err := f.runJob(cmd, name, load, devices); err != nil {
			if rest := len(paths)*len(values) - i - 1; rest > 0 {
				slog.Error("a job failed, so the remaining jobs do not run", "job", name, "left", rest)
			}
			return err
		}
	}
	return nil
}

// join waits for the other ranks, if the process is one of several. Only the first one shows and writes reports.
func (f *runFlags) join(ctx context.Context) error {
	if f.ranks == "" {
		return nil
	}
	if f.inTasks() || f.resumeFrom != "" {
		return usageError(errors.New("--ranks excludes --workers, --on, --launch and --resume"))
	}
	if f.ranks != ranks.NCCL && f.ranks != ranks.TCP {
		return usageError(fmt.Errorf("--ranks %q: want %s or %s", f.ranks, ranks.NCCL, ranks.TCP))
	}
	place, err := ranks.FromEnvironment(os.Getenv)
	if err != nil {
		return usageError(fmt.Errorf("--ranks: %w", err))
	}
	if f.world, err = ranks.Join(ctx, place, ranks.Options{Version: version(), Plane: f.ranks}); err != nil {
		return err
	}
	if place.Rank > 0 {
		f.progress, f.report, f.timeline, f.telemetry = "none", "", "", nil
	}
	return nil
}

// maxEach bounds the values of --each.
const maxEach = 100_000

// values returns the variable of --each and its values. Without the flag there is one run, of no variable.
func (f *runFlags) values() (variable string, values []string, err error) {
	if f.each == "" {
		return "", []string{""}, nil
	}
	name, list, ok := strings.Cut(f.each, "=")
	if !ok || name == "" || list == "" {
		return "", nil, usageError(fmt.Errorf("--each %s: must be name=value,value or name=day..day", f.each))
	}
	first, last, isRange := strings.Cut(list, "..")
	if !isRange {
		return name, strings.Split(list, ","), nil
	}
	from, err := time.Parse(time.DateOnly, first)
	to, wrong := time.Parse(time.DateOnly, last)
	if err = errors.Join(err, wrong); err != nil || to.Before(from) {
		return "", nil, usageError(fmt.Errorf("--each %s: a range is of days, the first one first, as in "+
			"2026-01-01..2026-01-31", f.each))
	}
	for day := from; !day.After(to); day = day.AddDate(0, 0, 1) {
		if values = append(values, day.Format(time.DateOnly)); len(values) > maxEach {
			return "", nil, usageError(fmt.Errorf("--each %s: has more than %d values", f.each, maxEach))
		}
	}
	return name, values, nil
}

// checkReports refuses one file for the reports of several runs of what.
func (f *runFlags) checkReports(runs int, what string) error {
	for _, to := range f.telemetry {
		if err := telemetry.Check(to); err != nil {
			return usageError(fmt.Errorf("--telemetry %w", err))
		}
		if strings.HasSuffix(to, ".prom") && runs > 1 {
			return usageError(fmt.Errorf("--telemetry %s: a file holds the metrics of one %s, not of %d", to, what,
				runs))
		}
	}
	for flag, path := range map[string]string{"--report": f.report, "--timeline": f.timeline} {
		if path != "" && path != "-" && runs > 1 {
			return usageError(fmt.Errorf("%s %s: a file holds the result of one %s, not of %d; - writes those of "+
				"all to standard output", flag, path, what, runs))
		}
	}
	return nil
}

// runJob runs a job, and shows its progress and its report. name is what logs call it.
func (f *runFlags) runJob(cmd *cobra.Command, name string, load func() (*pipeline.Job, error),
	devices devicePool) error {
	result, err := f.watched(cmd, f.progress, func(show progress) (*pipeline.Report, error) {
		return f.execute(cmd, name, load, show, devices)
	})
	f.tell(cmd.Context(), name, result, err)
	if err == nil && f.progress != "none" && f.progress != "json" {
		fmt.Fprintln(cmd.ErrOrStderr(), result)
	}
	return err
}

// tell sends the report of a run, which may have failed, to the destinations of --telemetry. An error there is logged,
// and is none of the run.
func (f *runFlags) tell(ctx context.Context, name string, r *pipeline.Report, err error) {
	for _, to := range f.telemetry {
		told := ended(r, err)
		told.Job = cmp.Or(told.Job, name)
		if failed := telemetry.Send(ctx, to, told, time.Now()); failed != nil {
			slog.Warn("the report was not sent", "to", to, "error", failed)
		}
	}
}

// watched runs run with a progress of a kind, which it ends.
func (f *runFlags) watched(cmd *cobra.Command, kind string,
	run func(progress) (*pipeline.Report, error)) (*pipeline.Report, error) {
	show, err := newProgress(kind, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	if kind == "json" {
		f.left.quiet.Store(true)
		logRecords(cmd)
	}
	result, err := run(show)
	show.end(result, err, codeOf(cmd.Context(), err))
	if kind == "json" && err != nil {
		err = reported{err}
	}
	return result, err
}

// reported is an error that was already shown to the user.
type reported struct{ error }

func (r reported) Unwrap() error { return r.error }

// logRecords turns log messages into records of type log.
func logRecords(cmd *cobra.Command) {
	level := slog.LevelError
	for _, l := range []slog.Level{slog.LevelWarn, slog.LevelInfo, slog.LevelDebug} {
		if slog.Default().Enabled(cmd.Context(), l) {
			level = l
		}
	}
	h := slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})
	slog.SetDefault(slog.New(h.WithAttrs([]slog.Attr{slog.String("type", "log")})))
}

// execute plans and runs a job. The report is nil if the run did not begin.
func (f *runFlags) execute(cmd *cobra.Command, name string, load func() (*pipeline.Job, error), show progress,
	devices devicePool) (result *pipeline.Report, err error) {
	begin := time.Now()
	opt, err := f.options(cmd)
	if err != nil {
		return nil, err
	}
	if opt.Threads > 0 {
		runtime.GOMAXPROCS(opt.Threads)
	}
	if f.cpuProfile != "" {
		file, err := os.Create(f.cpuProfile)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	report, err := openReport("--report", f.report, cmd.OutOrStdout())
	if err != nil {
		return nil, err
	}
	f.left.add(report.remove)
	defer func() {
		err = errors.Join(err, report.write(func(w io.Writer) error { return printJSON(w, ended(result, err)) }),
			report.close())
	}()
	timeline, err := openReport("--timeline", f.timeline, cmd.OutOrStdout())
	if err != nil {
		return nil, err
	}
	f.left.add(timeline.remove)
	defer func() { err = errors.Join(err, timeline.close()) }()
	job, err := load()
	if err != nil {
		return nil, err
	}
	var device *aheadDevice
	if !opt.Chooses() && !f.inTasks() && f.world == nil {
		if device, err = devices.open(opt.For(job.Memory)); err != nil {
			return nil, err
		}
	}
	p, err := pipeline.NewPlanWith(cmd.Context(), job, pipeline.PlanOptions{WithoutRules: f.withoutRules})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	again, err := f.resume(p, job)
	if err != nil {
		return nil, err
	}
	if again.done(cmd.Context()) {
		return &pipeline.Report{Job: job.Name, Done: true, Skipped: "an earlier run did the same, and neither its " +
			"sources nor its outputs have changed", Stages: []pipeline.StageReport{}}, nil
	}
	slog.Debug("planned", "after", time.Since(begin))
	if f.inTasks() {
		opt.Progress, opt.Interval, opt.Leftover = show.update, show.interval(), f.left.add
		defer f.left.clear()
		if result, err = f.runTasks(cmd.Context(), p, opt); err == nil {
			err = again.record(cmd.Context())
		}
		return result, err
	}
	if f.world != nil {
		if opt, err = p.OptionsOfRank(opt, f.world); err != nil {
			return nil, err
		}
		runtime.GOMAXPROCS(opt.Threads)
	}
	choice, err := p.ChooseDevice(opt)
	if err != nil {
		return nil, err
	}
	if opt.Chooses() || f.world != nil {
		if device, err = devices.open(choice.Of(opt.For(job.Memory))); err != nil {
			return nil, err
		}
	}
	if opt.Device, err = device.wait(); err != nil {
		return nil, err
	}
	slog.Debug("device open", "after", time.Since(begin))
	opt.Progress, opt.Interval = show.update, show.interval()
	opt.Leftover = f.left.add
	defer f.left.clear()
	slog.Info("run", "job", name, "threads", runtime.GOMAXPROCS(0))
	opt.Timeline = f.timeline != ""
	result, err = p.Run(cmd.Context(), opt)
	if result != nil && result.Choice == nil {
		result.Choice = choice
	}
	slog.Debug("run ended", "after", time.Since(begin))
	if err != nil {
		return result, err
	}
	if err := again.record(cmd.Context()); err != nil {
		return result, err
	}
	return result, timeline.write(func(w io.Writer) error { return pipeline.WriteTimeline(w, result) })
}
