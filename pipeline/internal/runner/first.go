package runner

import (
	"context"
	"slices"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/source"
)

// firstFilter evaluates a filter on the columns that it reads, before a scan reads its other columns (source.First).
// The rows that are left go through the operator of the filter all the same, so a wrong or missing answer costs only
// time.
type firstFilter struct {
	run     *run
	scan    *opRun
	program *gpu.Program
	columns []int // of the scan, that the filter reads
	inputs  []int // of the program, as positions in columns
	always  bool

	mu   sync.Mutex
	idle []gpu.Queue
}

// firstFilter returns the filter that decides first in a scan of the pipeline, or nil.
func (p *pipelineRun) firstFilter(scan *opRun) *firstFilter {
	if len(p.ops) == 0 || p.run.frugal {
		return nil
	}
	spec, ok := p.ops[0].Spec.(*physical.Filter)
	always := p.run.opt.FilterFirst == execution.Always
	if !ok || p.run.opt.FilterFirst == execution.Never || !spec.First && !always {
		return nil
	}
	f := &firstFilter{run: p.run, scan: scan, program: spec.Program, always: always}
	for _, c := range spec.Inputs {
		at := slices.Index(f.columns, c)
		if at < 0 {
			at = len(f.columns)
			f.columns = append(f.columns, c)
		}
		f.inputs = append(f.inputs, at)
	}
	return f
}

// in adds the filter, unless it is nil, to the options of a scan.
func (f *firstFilter) in(opt *source.ScanOptions) {
	if f != nil {
		opt.First = &source.First{Columns: f.columns, Decide: f.decide, Always: f.always}
	}
}

// decide evaluates the filter on a stride. It returns nil if it is denied memory or fails: the operator of the filter
// reports errors of the values.
func (f *firstFilter) decide(ctx context.Context, s *gpu.Stride) []uint64 {
	if !discrete(f.run.device) { // the caller's goroutine works on the rows
		f.run.slots <- struct{}{}
		defer func() { <-f.run.slots }()
	}
	q, err := f.queue(ctx)
	if err != nil {
		s.Release()
		return nil
	}
	bits, err := f.evaluate(q, s)
	if err != nil {
		_ = q.Close()
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = append(f.idle, q)
	return bits
}

// queue returns a queue that nobody uses. All calls have the same context.
func (f *firstFilter) queue(ctx context.Context) (gpu.Queue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.idle); n > 0 {
		q := f.idle[n-1]
		f.idle = f.idle[:n-1]
		return q, nil
	}
	q, err := f.run.newQueue(f.scan.Name(), !discrete(f.run.device))
	if err == nil {
		q.Until(ctx)
	}
	return q, err
}

// evaluate returns a bit for each row of a stride, which is set if the filter is true. It takes the stride over.
func (f *firstFilter) evaluate(q gpu.Queue, s *gpu.Stride) ([]uint64, error) {
	up, err := q.Upload(f.scan.lease, s)
	if err != nil {
		s.Release()
		return nil, err
	}
	defer up.Release()
	truth, err := q.Eval(f.scan.lease, f.program, operators.Pick(up.Cols, f.inputs), up.Rows)
	if err != nil {
		return nil, err
	}
	one := &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "true", Type: truth[0].Type, Nullable: true}), Cols: truth,
		Rows: up.Rows}
	down, err := q.Download(f.scan.decode, one)
	if err != nil {
		one.Release()
		return nil, err
	}
	defer down.Release()
	c := down.Cols[0]
	bits := slices.Clone(gpu.Words(c.Data, c.Len))
	if c.Valid != nil {
		for i, v := range gpu.Words(c.Valid, c.Len) {
			bits[i] &= v
		}
	}
	return bits, nil
}

// close closes the queues, once the scan is closed. Their errors are errors of decisions that were not made.
func (f *firstFilter) close() {
	if f == nil {
		return
	}
	for _, q := range f.idle {
		_ = q.Close()
	}
	f.idle = nil
}
