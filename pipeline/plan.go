package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
	sourceparquet "github.com/gstream/gstream/source/parquet"
)

// Plan is a job that has been bound to its tables and optimised. It is immutable
// and may be explained and run any number of times until Close.
type Plan struct {
	job    *Job
	tables map[string]source.Table
	root   *stage
	// permutation puts the root's columns into the order of the output.
	permutation []int
	schema      *gpu.Schema
	output      Target
}

// NewPlan opens the sources of a job, checks everything that can be checked
// without reading rows and decides how to run it. The error is Diagnostics; match it
// with errors.Is and ErrJob, source.ErrData or the operating system's errors.
func NewPlan(job *Job) (*Plan, error) { return newPlan(job, nil, nil) }

// newPlan also takes tables and a target that Go callers bring themselves.
func newPlan(job *Job, own map[string]source.Table, target Target) (_ *Plan, err error) {
	p := &Plan{job: job, tables: map[string]source.Table{}, output: target}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	faults := job.check(own)
	if target == nil {
		p.output = &parquetTarget{path: string(job.Output.Parquet), opt: job.Output.Options}
		faults = append(faults, job.checkOutput()...)
	}
	faults = append(faults, p.open(own)...)
	b := &binder{job: job}
	logical := b.bind(p.tables)
	if faults = append(faults, b.faults...); len(faults) > 0 {
		slices.SortStableFunc(faults, func(a, b *Diagnostic) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
		return nil, faults
	}
	if faults := job.checkRead(); len(faults) > 0 {
		return nil, faults
	}
	if f := job.checkColumns(logical); f != nil {
		return nil, Diagnostics{f}
	}
	if logical, err = storable(logical); err != nil {
		return nil, job.placed(asDiagnostics(err))
	}
	p.schema = logical.rel().schema
	if f := job.checkNames(p.schema); f != nil {
		return nil, Diagnostics{f}
	}
	root, lay, err := lower(optimize(logical), allOf(p.schema.Len()))
	if err != nil {
		return nil, job.placed(asDiagnostics(err))
	}
	p.root, p.permutation = root, lay
	return p, nil
}

// storable casts what Parquet and Arrow have no type for: HUGEINT, as sums of
// integers are, becomes DECIMAL(38,0), which holds all of its values or fails.
func storable(n node) (node, error) {
	fields := n.rel().schema.Fields
	types := make([]gpu.Type, len(fields))
	for i, f := range fields {
		if types[i] = f.Type; f.Type.Kind == gpu.HugeInt {
			types[i] = gpu.DecimalOf(gpu.MaxPrecision, 0)
		}
	}
	return castTo(n, types)
}

func allOf(n int) required { return slices.Repeat(required{true}, n) }

// open opens every source, all of them before it gives up.
func (p *Plan) open(own map[string]source.Table) (faults Diagnostics) {
	for name, t := range own {
		p.tables[name] = t
	}
	for _, name := range sortedKeys(p.job.Sources) {
		s := p.job.Sources[name]
		if own[name] != nil || len(s.Parquet) == 0 {
			continue
		}
		paths := make([]string, len(s.Parquet))
		for i, path := range s.Parquet {
			paths[i] = string(path)
		}
		t, err := sourceparquet.Open(paths, sourceparquet.OpenOptions{})
		if err != nil {
			faults = append(faults, &Diagnostic{File: p.job.file, Place: p.job.at("sources." + name), Step: name, Msg: err.Error(), Err: err})
			continue
		}
		p.tables[name] = t
	}
	return faults
}

// Close closes the sources.
func (p *Plan) Close() error {
	var errs []error
	for _, name := range sortedKeys(p.tables) {
		errs = append(errs, p.tables[name].Close())
	}
	p.tables = nil
	return errors.Join(errs...)
}

// Schema returns the columns of the result.
func (p *Plan) Schema() *gpu.Schema { return p.schema }

func (j *Job) checkOutput() (faults Diagnostics) {
	if j.Output.Parquet == "" {
		faults = append(faults, &Diagnostic{File: j.file, Place: j.at("output"), Msg: "the job has no output; give it output: {parquet: PATH}"})
	}
	opt := j.Output.Options
	opt.EnsureDefaults()
	if err := opt.Validate(); err != nil {
		faults = append(faults, &Diagnostic{File: j.file, Place: j.at("output"), Step: "output", Msg: err.Error()})
	}
	if err := sinkparquet.CheckTarget(string(j.Output.Parquet), opt); err != nil {
		faults = append(faults, &Diagnostic{File: j.file, Place: j.at("output.parquet"), Step: "output", Msg: err.Error(), Err: err})
	}
	return faults
}

// checkNames refuses an output with two columns of one name.
func (j *Job) checkNames(s *gpu.Schema) *Diagnostic {
	seen := map[string]bool{}
	for _, name := range s.Names() {
		if seen[name] {
			return &Diagnostic{File: j.file, Place: j.at(fmt.Sprintf("steps[%d]", len(j.Steps)-1)), Step: "output",
				Msg: fmt.Sprintf("two columns are named %q; name them apart in a select step", name)}
		}
		seen[name] = true
	}
	return nil
}

// placed adds to faults of steps where these stand in the job file.
func (j *Job) placed(faults Diagnostics) Diagnostics {
	for _, f := range faults {
		for i := range j.Steps {
			if f.File == "" && j.stepName(i) == f.Step {
				f.File, f.Place = j.file, j.at(fmt.Sprintf("steps[%d]", i))
			}
		}
	}
	return faults
}
