package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/internal/runner"
	"github.com/gstream/gstream/pipeline/job"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source"
	sourceparquet "github.com/gstream/gstream/source/parquet"
)

// Plan is a job that has been bound to its tables and optimised. It is immutable. It may
// be explained and run any number of times until Close.
type Plan struct {
	job    *Job
	tables map[string]source.Table
	stages *physical.Plan
	output Target
	// partial are the tables of sources with partition columns, of which only the first file
	// is open until the query tells which ones it needs.
	partial map[string]*partialTable
}

// partialTable is a table whose files are listed, and not all open.
type partialTable struct {
	files *sourceparquet.Listing
	opt   sourceparquet.OpenOptions
}

// NewPlan opens the sources of a job, checks everything that can be checked without
// reading rows, and decides how to run it. The error is Diagnostics. Match it with
// errors.Is and ErrJob, source.ErrData or the operating system's errors.
func NewPlan(job *Job) (*Plan, error) { return newPlan(job, nil, nil) }

// newPlan also takes tables and a target that Go callers provide.
func newPlan(j *Job, own map[string]source.Table, target Target) (*Plan, error) {
	return newPlanOf(j, own, target, nil)
}

// newPlanOf is newPlan for a preview if there is one.
func newPlanOf(j *Job, own map[string]source.Table, target Target, preview *Preview) (_ *Plan, err error) {
	p := &Plan{job: j, tables: map[string]source.Table{}, output: target, partial: map[string]*partialTable{}}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	faults := j.Check(slices.Collect(maps.Keys(own)))
	var written *sourceparquet.Output
	if target == nil {
		written = outputOf(j)
		p.output = &parquetTarget{path: string(j.Output.Parquet), opt: j.Output.Options}
		faults = append(faults, j.CheckOutput()...)
	}
	faults = append(faults, p.open(own, written)...)
	query := logical.Query{Sources: slices.Sorted(maps.Keys(j.Sources)), Steps: j.Steps, Text: j, Values: j.Values()}
	last, unbound := logical.Bind(query, p.tables)
	if len(p.partial) > 0 {
		root := last
		switch {
		case len(faults)+len(unbound) > 0:
			root = nil
		case preview != nil:
			if root, err = preview.rowsOf(query, last); err != nil {
				root = nil
			}
		}
		faults = append(faults, p.openWanted(root)...)
		last, unbound = logical.Bind(query, p.tables)
	}
	if faults = append(faults, unbound...); len(faults) > 0 {
		return nil, byPlace(faults)
	}
	if faults := j.CheckRead(); len(faults) > 0 && (preview == nil || !preview.part) {
		return nil, faults
	}
	if preview == nil {
		last, err = query.Output(last)
	} else {
		last, err = preview.rowsOf(query, last)
	}
	if err != nil {
		return nil, query.Locate(err)
	}
	if target == nil {
		if err := sinkparquet.CheckColumns(last.Rel().Schema, j.Output.Options); err != nil {
			return nil, Diagnostics{{File: j.File(), Place: j.Place("output.dictionary_columns"), Step: "output", Msg: err.Error()}}
		}
	}
	if t, ok := p.output.(*parquetTarget); ok && target == nil {
		t.opt.Metadata = metadataOf(last, j.Output.Options)
	}
	if p.stages, err = physical.Lower(j.Name, logical.Optimize(last)); err != nil {
		return nil, query.Locate(err)
	}
	return p, nil
}

// byPlace sorts faults by their places in the job file.
func byPlace(faults Diagnostics) Diagnostics {
	slices.SortStableFunc(faults, func(a, b *Diagnostic) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return faults
}

// outputOf returns what a job writes. A link is followed, as by the writer.
func outputOf(j *Job) *sourceparquet.Output {
	path, err := staging.Resolve(string(j.Output.Parquet))
	if err != nil || j.Output.Parquet == "" {
		return nil // there is another error
	}
	return &sourceparquet.Output{Path: path, Folder: len(j.Output.PartitionBy) > 0 || j.Output.RowsPerFile > 0, PartitionBy: j.Output.PartitionBy}
}

// open opens every source, even if some fail. Files of the output are refused.
func (p *Plan) open(own map[string]source.Table, written *sourceparquet.Output) (faults Diagnostics) {
	for name, t := range own {
		p.tables[name] = t
	}
	for _, name := range slices.Sorted(maps.Keys(p.job.Sources)) {
		s := p.job.Sources[name]
		if own[name] != nil || len(s.Parquet) == 0 {
			continue
		}
		paths := make([]string, len(s.Parquet))
		for i, path := range s.Parquet {
			paths[i] = string(path)
		}
		if p.job.Elsewhere(name) {
			continue // Check has reported it
		}
		opt := sourceparquet.OpenOptions{Strict: s.Schema.Strict, NoPartitions: s.Partitions.None, Optional: s.Optional, Output: written}
		schema, wrong := fieldsOf(p.job, name, "schema", s.Schema.Columns)
		partitions, alsoWrong := fieldsOf(p.job, name, "partitions", s.Partitions.Types)
		if wrong = append(wrong, alsoWrong...); len(wrong) > 0 {
			faults = append(faults, wrong...)
			continue
		}
		if opt.Partitions = partitions; schema != nil {
			opt.Schema = &gpu.Schema{Fields: schema}
		}
		files, err := sourceparquet.List(paths, opt)
		if err != nil {
			faults = append(faults, p.sourceFault(name, err))
			continue
		}
		first := func(i int) bool { return i == 0 }
		if len(files.Partitions) > 0 && len(files.Paths) > 1 {
			p.partial[name] = &partialTable{files, opt}
		} else {
			first = nil
		}
		t, err := files.Open(first, opt)
		if err != nil {
			faults = append(faults, p.sourceFault(name, err))
			delete(p.partial, name)
			continue
		}
		p.tables[name] = t
	}
	return faults
}

func (p *Plan) sourceFault(name string, err error) *Diagnostic {
	d := &Diagnostic{File: p.job.File(), Place: p.job.Place("sources." + name), Step: name, Msg: err.Error(), Err: err}
	if errors.Is(err, sourceparquet.ErrOutput) {
		d.Err = nil // the mistake is in the job
	}
	return d
}

// openWanted opens the files that a bound query needs of the tables that are not open as a
// whole; all of them if root is nil.
func (p *Plan) openWanted(root logical.Node) (faults Diagnostics) {
	for _, name := range slices.Sorted(maps.Keys(p.partial)) {
		part := p.partial[name]
		var keep func(int) bool
		if root != nil {
			values := map[string][]gpu.Scalar{}
			for _, c := range part.files.Partitions {
				values[c.Field.Name] = c.Values
				for _, f := range p.tables[name].Schema().Fields {
					if strings.EqualFold(f.Name, c.Field.Name) {
						values[f.Name] = c.Values // the file's spelling of its name
					}
				}
			}
			wanted := logical.Wanted(root, p.tables[name], len(part.files.Paths), values)
			keep = func(i int) bool { return wanted[i] }
		}
		t, err := part.files.Open(keep, part.opt)
		if err != nil {
			faults = append(faults, p.sourceFault(name, err))
			continue
		}
		p.tables[name] = t
	}
	return faults
}

// fieldsOf returns columns that the job gives a source under a key.
func fieldsOf(j *Job, name, key string, columns []job.SchemaColumn) (fields []gpu.Field, faults Diagnostics) {
	for _, c := range columns {
		t, err := syntax.ParseType(c.Type)
		if err != nil {
			place, msg := j.Place("sources."+name+"."+key+"."+c.Name), err.Error()
			var wrong *syntax.Error
			if errors.As(err, &wrong) {
				msg = wrong.Msg
			}
			faults = append(faults, &Diagnostic{File: j.File(), Place: place, Step: name, Msg: fmt.Sprintf("column %q: %s", c.Name, msg)})
		}
		fields = append(fields, gpu.Field{Name: c.Name, Type: t})
	}
	return fields, faults
}

// Close closes the sources.
func (p *Plan) Close() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p.tables)) {
		errs = append(errs, p.tables[name].Close())
	}
	p.tables = nil
	return errors.Join(errs...)
}

// Run executes the plan. It returns when every goroutine has ended and all memory is
// given back. After a success the output is complete. After an error there is no output,
// and the report tells how far the run came. Errors match their classes, such as ErrData, and
// what caused them, such as the operating system's errors, by errors.Is.
//
// If there is a GPU that cannot be started, a run that does not ask for a particular
// device logs a warning and takes the CPU.
func (p *Plan) Run(ctx context.Context, opt RunOptions) (*Report, error) {
	report, err := runner.Run(ctx, p.stages, p.output, opt.For(p.job))
	if err == nil {
		return report, nil
	}
	if err = p.hide(p.place(p.locate(err))); report != nil {
		report.Error = err.Error()
	}
	return report, err
}

// hide takes values that are not shown out of an error: rows may have them, such as name || ${env:TOKEN}.
func (p *Plan) hide(err error) error {
	if err == nil {
		return nil
	}
	if text := p.job.Values().Hide(err.Error()); text != err.Error() {
		return shown{text, err}
	}
	return err
}

// shown is an error with another text.
type shown struct {
	text string
	error
}

func (s shown) Error() string { return s.text }
func (s shown) Unwrap() error { return s.error }

// place adds the place in the job file to a mistake of a step.
func (p *Plan) place(err error) error {
	if mistake := (*Diagnostic)(nil); errors.As(err, &mistake) && mistake.Step != "" {
		return logical.Query{Steps: p.job.Steps, Text: p.job}.Locate(err)
	}
	return err
}

// located is an error of values with the place of the step in the job file.
type located struct {
	place string
	error
}

func (l located) Error() string { return l.place + ": " + l.error.Error() }
func (l located) Unwrap() error { return l.error }

// locate adds the place of the step of an error of values.
func (p *Plan) locate(err error) error {
	step, o := runner.FailedAt(err)
	if !gpu.IsFailure(err) || p.job.File() == "" || step == "" {
		return err
	}
	var place job.Place
	if o != nil {
		place = p.job.Place(o.Path)
	}
	if _, ok := p.job.Sources[step]; ok {
		place = p.job.Place("sources." + step)
	}
	for i := range p.job.Steps {
		if place.Line == 0 && job.StepName(p.job.Steps, i) == step {
			place = p.job.Place(fmt.Sprintf("steps[%d]", i))
		}
	}
	if place.Line == 0 {
		return err
	}
	return located{fmt.Sprintf("%s:%d:%d", p.job.File(), place.Line, place.Column), err}
}

// ChooseDevice returns the device of a run with these options. If they leave it open
// (Auto) and there is an NVIDIA driver, it is the device that takes less time by a model
// of the plan's estimates; the GPU is not started. The error is a *Diagnostic about the
// name of the device.
func (p *Plan) ChooseDevice(opt RunOptions) (*Choice, error) {
	choice, err := runner.ChooseDevice(p.stages, opt)
	return choice, p.place(err)
}

// Schema returns the columns of the result.
func (p *Plan) Schema() *gpu.Schema { return p.stages.Schema }

// Check tells what a run with these options would hold, what it would spill, and whether it
// would finish, by the plan's estimates. It runs nothing, but opens the device of the run for
// its budgets.
func (p *Plan) Check(opt RunOptions) (*Check, error) {
	check, err := runner.Check(p.stages, opt.For(p.job))
	return check, p.place(err)
}
