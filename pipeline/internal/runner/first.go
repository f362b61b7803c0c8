package runner

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/source"
)

// firstFilter evaluates filters on the columns that they read, before a scan reads its other columns (source.First).
// The rows that are left go through the operators of the filters all the same, so a wrong or missing answer costs only
// time.
type firstFilter struct {
	run      *run
	scan     *opRun
	columns  []int // of the scan, that the filters read
	programs []firstProgram
	tests    []firstTest
	always   bool

	mu   sync.Mutex
	idle []gpu.Queue
}

// firstProgram computes whether a row passes a filter.
type firstProgram struct {
	*gpu.Program
	inputs []int // positions in firstFilter.columns
}

// firstTest tests whether a row has a match in the build side of a join.
type firstTest struct {
	keys   *operators.KeyFilter
	inputs []int // positions in firstFilter.columns
}

// firstFilter returns the filters that decide first in a scan of the pipeline, or nil. They are the filter that follows
// the scan, and those of joins. The build sides of the joins must be complete.
func (p *pipelineRun) firstFilter(scan *opRun) *firstFilter {
	if p.run.frugal || p.run.opt.FilterFirst == execution.Never {
		return nil
	}
	f := &firstFilter{run: p.run, scan: scan, always: p.run.opt.FilterFirst == execution.Always}
	if len(p.ops) > 0 {
		if spec, ok := p.ops[0].Spec.(*physical.Filter); ok && (spec.First || f.always) {
			f.add(spec.Program, spec.Inputs)
		}
	}
	for _, j := range scan.Filters {
		if keys := p.keysOf(j); keys != nil && p.run.mayDecideFirst(j) {
			f.addKeys(keys, j.Columns)
		}
	}
	if len(f.programs)+len(f.tests) == 0 {
		return nil
	}
	return f
}

// addKeys adds the filter of a join whose keys are columns of the scan.
func (f *firstFilter) addKeys(keys *operators.KeyFilter, columns []int) {
	for i, c := range columns {
		values, ok := keys.Values(i)
		switch {
		case ok:
			f.add(isIn(f.scan.Schema.Fields[c].Type, values), []int{c})
		case keys.Decides():
			f.tests = append(f.tests, firstTest{keys, f.inputs(columns)})
			return
		}
	}
}

// add adds a filter that reads columns of the scan.
func (f *firstFilter) add(program *gpu.Program, columns []int) {
	f.programs = append(f.programs, firstProgram{program, f.inputs(columns)})
}

// inputs returns the positions in f.columns of columns of the scan, which it adds.
func (f *firstFilter) inputs(columns []int) (out []int) {
	for _, c := range columns {
		at := slices.Index(f.columns, c)
		if at < 0 {
			at = len(f.columns)
			f.columns = append(f.columns, c)
		}
		out = append(out, at)
	}
	return out
}

// isIn returns a program that computes whether a value is one of some values.
func isIn(t gpu.Type, values []gpu.Scalar) *gpu.Program {
	return &gpu.Program{Inputs: []gpu.Type{t}, Outputs: []int{1},
		Code: []gpu.Instr{{Op: gpu.OpIn, Type: gpu.Of(gpu.Bool), Args: []int{0}, Mask: -1, Set: values}}}
}

// in adds the filters, unless there are none, to the options of a scan.
func (f *firstFilter) in(opt *source.ScanOptions) {
	if f != nil {
		opt.First = &source.First{Columns: f.columns, Decide: f.decide, Always: f.always}
	}
}

// decide evaluates the filters on a stride. It returns nil if it is denied memory or fails: the operator of the filter
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

// evaluate returns a bit for each row of a stride, which is set if all filters are true. It takes the stride over.
func (f *firstFilter) evaluate(q gpu.Queue, s *gpu.Stride) ([]uint64, error) {
	up, err := q.Upload(f.scan.lease, s)
	if err != nil {
		s.Release()
		return nil, err
	}
	defer up.Release()
	truth := &gpu.Stride{Schema: &gpu.Schema{}, Rows: up.Rows}
	defer func() { truth.Release() }()
	add := func(c gpu.Column) {
		truth.Cols = append(truth.Cols, c)
		truth.Schema.Fields = append(truth.Schema.Fields, gpu.Field{Type: c.Type, Nullable: true})
	}
	for _, p := range f.programs {
		out, err := q.Eval(f.scan.lease, p.Program, operators.Pick(up.Cols, p.inputs), up.Rows)
		if err != nil {
			return nil, err
		}
		add(out[0])
	}
	for _, t := range f.tests {
		matched, err := t.keys.Matched(q, f.scan.lease, operators.Pick(up.Cols, t.inputs))
		if err != nil {
			return nil, err
		}
		add(matched)
	}
	down, err := q.Download(f.scan.decode, truth)
	if err != nil {
		return nil, err
	}
	truth = down
	bits := slices.Repeat([]uint64{math.MaxUint64}, (down.Rows+63)/64)
	for _, c := range down.Cols {
		for i, v := range gpu.Words(c.Data, c.Len) {
			bits[i] &= v
		}
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
