package pipeline

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// Target makes the sink of a run.
type Target interface {
	// Create starts the output. The lease pays for what the sink holds; threads
	// bounds its goroutines.
	Create(schema *gpu.Schema, lease *gpu.Lease, threads int, overwrite bool) (sink.Sink, error)
	// Describe is one line for plans and reports.
	Describe() string
}

// parquetTarget writes Parquet files.
type parquetTarget struct {
	path string
	opt  sinkparquet.Options
}

func (t *parquetTarget) Create(schema *gpu.Schema, lease *gpu.Lease, threads int, overwrite bool) (sink.Sink, error) {
	opt := t.opt
	opt.Lease, opt.Threads = lease, threads
	opt.Overwrite = opt.Overwrite || overwrite
	w, err := sinkparquet.Create(t.path, schema, opt)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (t *parquetTarget) Describe() string { return t.path }
