package pipeline

import (
	"io"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/runner"
	"github.com/gstream/gstream/pipeline/job"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// The job file and its parts, from package job. They are here too, so that a program
// needs only one package to build, plan and run a job.
type (
	Job          = job.Job
	Var          = job.Var
	Memory       = job.Memory
	Source       = job.Source
	CSVOptions   = job.CSVOptions
	TextOptions  = job.TextOptions
	ColumnTypes  = job.ColumnTypes
	Schema       = job.Schema
	Partitions   = job.Partitions
	SchemaColumn = job.SchemaColumn
	Step         = job.Step
	Join         = job.Join
	Group        = job.Group
	Limit        = job.Limit
	Unnest       = job.Unnest
	Output       = job.Output
	Expectation  = job.Expectation
	Values       = job.Values
	RowBounds    = job.RowBounds
	Path         = job.Path
	Paths        = job.Paths
	Size         = job.Size
	Column       = job.Column
	Columns      = job.Columns
	Location     = job.Location
	Diagnostic   = job.Diagnostic
	Diagnostics  = job.Diagnostics
	LoadOptions  = job.LoadOptions
)

// ParquetOptions configure how Builder.Write writes Parquet; the zero value has the
// defaults.
type ParquetOptions = sinkparquet.Options

// Load reads a job file. The error is Diagnostics if the content is wrong, or the operating
// system's error if the file cannot be read.
func Load(path string, opt LoadOptions) (*Job, error) { return job.Load(path, opt) }

// Parse parses the bytes of a job file. path names the file in errors and is the base of relative
// paths. The error is Diagnostics.
func Parse(path string, src []byte, opt LoadOptions) (*Job, error) { return job.Parse(path, src, opt) }

// ParseSize parses a number of bytes such as 512MiB, 8GB or 1048576.
func ParseSize(s string) (Size, error) { return job.ParseSize(s) }

// JSONSchema describes job files to editors, as JSON Schema (draft 2020-12).
func JSONSchema() map[string]any { return job.JSONSchema() }

// A run: its options, its report and the target of its rows. Package execution has their
// fields and methods.
type (
	// RunOptions configure a run. The zero value uses the whole machine.
	RunOptions = execution.Options
	// Report describes a run, finished or in progress.
	Report = execution.Report
	// StageReport is one stage of a Report.
	StageReport = execution.StageReport
	// ExpectationReport tells how many rows do not meet an expectation.
	ExpectationReport = execution.ExpectationReport
	// OutputReport describes what the sink has written.
	OutputReport = execution.OutputReport
	// DeviceReport is the part of one of several devices in a run.
	DeviceReport = execution.DeviceReport
	// ActivityReport is the use of a GPU by a stage or a run.
	ActivityReport = execution.ActivityReport
	// LinkReport has the speeds of the link to the GPU, measured in the run, in bytes per second.
	LinkReport = execution.LinkReport
	// FragmentReport describes the tasks of a fragment, and TasksForecast what is expected of a run in tasks.
	FragmentReport   = execution.FragmentReport
	TasksForecast    = execution.TasksForecast
	FragmentForecast = execution.FragmentForecast

	// Check is the memory that a run is expected to need and to spill. StageCheck is that of one
	// stage, TierCheck that of one tier, and Problem is a reason why the run would fail.
	Check      = execution.Check
	StageCheck = execution.StageCheck
	TierCheck  = execution.TierCheck
	Problem    = execution.Problem
	// Choice is the device of a run, and the reason.
	Choice = execution.Choice
	// Target creates the sink of a run. A Collector is a target.
	Target = execution.Target
	// TargetOptions configure the sink that a target creates.
	TargetOptions = execution.TargetOptions
)

// The names of the devices that a run can ask for.
const (
	Auto = execution.Auto // the device that Plan.ChooseDevice returns
	Host = execution.Host // the CPU
	All  = execution.All  // after "cuda:": all GPUs
	CUDA = execution.CUDA // the first GPU, or an error if there is none; "cuda:1" is the second
	// WithHost after Auto or the name of a GPU, as in "auto+host", lets lanes of the CPU take
	// partitions of joins and group-bys, too.
	WithHost = execution.WithHost
)

// The values of RunOptions.HostTakes, for tests.
const (
	HostTakesAny = execution.HostTakesAny
	HostTakesAll = execution.HostTakesAll
)

// The tiers of a Check.
const (
	TierDevice = execution.TierDevice
	TierHost   = execution.TierHost
	TierDisk   = execution.TierDisk
)

// The values of RunOptions.JoinFilters besides Auto.
const (
	Always = execution.Always
	Never  = execution.Never
)

// CheckDevice returns an error if the name is not that of a device. Whether the machine has the
// device is known only when a run opens it.
func CheckDevice(name string) error { return runner.CheckDevice(name) }

// OpenDevice opens the device that the options describe by Use, Threads, HostMemory, DeviceMemory
// and StrideSize. Auto means the first GPU if there is a driver; call Plan.ChooseDevice first to
// choose by the plan. A GPU starts in the background, unless a run has left it open. If it does not
// start, the first queue returns the error. The caller closes the device. Runs with it as
// RunOptions.Device share its memory and its kernels, also at the same time.
func OpenDevice(opt RunOptions) (gpu.Device, error) { return runner.OpenDevice(opt) }

// CloseIdle closes the GPUs that runs have left open. A run without RunOptions.Device leaves its GPU
// open for ten seconds, for a next run with the same options: with its page-locked memory and its
// loaded kernels. No two runs use it at the same time.
func CloseIdle() error { return runner.CloseIdle() }

// WriteTimeline draws the spans of a report as a self-contained HTML page: queues as
// rows, time across.
func WriteTimeline(w io.Writer, r *Report) error { return runner.WriteTimeline(w, r) }
