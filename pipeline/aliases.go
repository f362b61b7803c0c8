package pipeline

import (
	"io"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/runner"
	"github.com/gstream/gstream/pipeline/job"
)

// The job file and what it is made of, which package job has. They are here too, so
// that a program needs one package to build, plan and run a job.
type (
	Job         = job.Job
	Var         = job.Var
	Memory      = job.Memory
	Source      = job.Source
	Step        = job.Step
	Join        = job.Join
	Group       = job.Group
	Limit       = job.Limit
	Output      = job.Output
	Path        = job.Path
	Paths       = job.Paths
	Size        = job.Size
	Column      = job.Column
	Columns     = job.Columns
	Place       = job.Place
	Diagnostic  = job.Diagnostic
	Diagnostics = job.Diagnostics
	LoadOptions = job.LoadOptions
)

// ErrJob is the sentinel behind every error that the job itself causes: its
// file, its variables, its expressions. Match it with errors.Is.
var ErrJob = job.ErrInvalid

// Load reads a job file. The error is Diagnostics when the content is at fault, or
// the operating system's when the file cannot be read.
func Load(path string, opt LoadOptions) (*Job, error) { return job.Load(path, opt) }

// Parse reads a job from the bytes of a job file; path names it in errors and
// anchors its relative paths. The error is Diagnostics.
func Parse(path string, src []byte, opt LoadOptions) (*Job, error) { return job.Parse(path, src, opt) }

// ParseSize reads a number of bytes such as 512MiB, 8GB or 1048576.
func ParseSize(s string) (Size, error) { return job.ParseSize(s) }

// JSONSchema describes a job file to editors, as JSON Schema (draft 2020-12).
func JSONSchema() map[string]any { return job.JSONSchema() }

// A run: how it is asked for, what it reports and where its rows go. Package execution
// has their fields and methods.
type (
	// RunOptions say how to run a plan. The zero value uses the whole machine.
	RunOptions = execution.Options
	// Report says what a run did, or how far it has come.
	Report = execution.Report
	// StageReport is one stage of a Report.
	StageReport = execution.StageReport
	// OutputReport is what the sink has written.
	OutputReport = execution.OutputReport
	// ActivityReport is a stage's or a run's use of a GPU.
	ActivityReport = execution.ActivityReport
	// LinkReport is the link to the GPU as measured in the run, bytes a second.
	LinkReport = execution.LinkReport
	// Choice is the device that a run takes, and why.
	Choice = execution.Choice
	// Target makes the sink of a run, as a Collector does.
	Target = execution.Target
	// TargetOptions say how a target makes its sink.
	TargetOptions = execution.TargetOptions
)

// The devices that a run can ask for by name.
const (
	Auto = execution.Auto // what Plan.ChooseDevice says
	Host = execution.Host // the CPU
	CUDA = execution.CUDA // the first GPU, "cuda:1" the second and so on; an error where there is none
)

// ErrDefect is the sentinel behind errors that are not the job's nor the data's
// but gstream's own.
var ErrDefect = runner.ErrDefect

// ErrOutput is the sentinel behind every refusal to start an output, as one
// whose place is taken.
var ErrOutput = runner.ErrOutput

// CheckDevice says whether a run can ask for a device by this name. Whether the machine
// has it shows when the run opens it.
func CheckDevice(name string) error { return runner.CheckDevice(name) }

// OpenDevice opens the device that options ask for: by Use, Threads, HostMemory,
// DeviceMemory and StrideSize. Auto is the first GPU where there is a driver: to choose
// by what a plan does, ask Plan.ChooseDevice first. A GPU is started beside the caller;
// if it cannot be, the error comes with the first queue. The caller closes the device.
func OpenDevice(opt RunOptions) (gpu.Device, error) { return runner.OpenDevice(opt) }

// WriteTimeline draws the spans of a report as an HTML page that needs nothing
// but a browser: queues as rows, time across.
func WriteTimeline(w io.Writer, r *Report) error { return runner.WriteTimeline(w, r) }
