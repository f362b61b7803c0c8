package pipeline

import "github.com/gstream/gstream/pipeline/job"

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
