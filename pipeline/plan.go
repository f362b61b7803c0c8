package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/class"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/internal/runner"
	"github.com/gstream/gstream/pipeline/job"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source"
	sourcearrow "github.com/gstream/gstream/source/arrow"
	sourceparquet "github.com/gstream/gstream/source/parquet"
	"github.com/gstream/gstream/source/store"
	sourcetext "github.com/gstream/gstream/source/text"
)

// Plan is a job, bound to its tables and optimised. It is immutable. It may be explained and run
// any number of times until Close.
type Plan struct {
	written written
	tables  map[string]source.Table
	shared  map[string]bool // of tables, those that the caller closes
	stages  *physical.Plan
	targets []Target // of the outputs that are written
	rules   []RuleApplied
	// unsampled is why a table could not be sampled, nil if all could.
	unsampled error
	// partial are the tables of sources with partition columns. Only the first file of each is
	// open, until the query tells which files it needs.
	partial map[string]*partialTable
}

// partialTable is a table whose files are listed, but not all open.
type partialTable struct {
	files *sourceparquet.Listing
	opt   sourceparquet.OpenOptions
}

// NewPlan opens the sources of a job, checks everything that can be checked without
// reading rows, and decides how to run it. The error is Diagnostics. Match it with
// errors.Is and ErrJob, source.ErrData or the operating system's errors.
func NewPlan(job *Job) (*Plan, error) { return NewPlanWith(context.Background(), job, PlanOptions{}) }

// PlanOptions configure NewPlanWith.
type PlanOptions struct {
	// WithoutRules names rules that the planner leaves out, to find the one that is at fault.
	WithoutRules []string
	// TraceRules records the plan after each rule, for Explain.
	TraceRules bool
	// Target, if set, receives the rows of the last step instead of the job's outputs.
	Target Target
	shared map[string]bool // tables that the plan does not close
	// applied is logical.Options.Applied, for tests.
	applied func(rule logical.Rule, before, after rel.Output)
}

// RuleApplied is what a rule of the planner did to a plan.
type RuleApplied struct {
	Rule    string `json:"rule"`
	Does    string `json:"does"`
	Changed bool   `json:"changed"`
	Plan    string `json:"plan"` // after the rule, one line per relation, above its inputs
}

// NewPlanWith is NewPlan with options, and with a context that ends it: the planner may read samples of the sources.
func NewPlanWith(ctx context.Context, job *Job, opt PlanOptions) (*Plan, error) {
	return newPlanOf(ctx, job, nil, opt.Target, nil, opt)
}

// newPlan is NewPlan with the caller's own tables and target.
func newPlan(ctx context.Context, j *Job, own map[string]source.Table, target Target) (*Plan, error) {
	return newPlanOf(ctx, j, own, target, nil, PlanOptions{})
}

// newPlanOf is newPlan, for a preview if preview is not nil.
func newPlanOf(ctx context.Context, j *Job, own map[string]source.Table, target Target, preview *Preview,
	opt PlanOptions) (_ *Plan, err error) {
	j = j.WithFiles()
	if preview == nil {
		j = j.WithChecks()
	}
	p := &Plan{tables: map[string]source.Table{}, shared: opt.shared, partial: map[string]*partialTable{}}
	steps := j.WrittenSteps()
	if target != nil {
		p.targets, steps = []Target{target}, j.LastStep()
	}
	defer func() {
		if err != nil {
			p.Close()
			err = j.Whole(err)
		}
	}()
	faults := j.Check(slices.Collect(maps.Keys(own)))
	var written []*sourceparquet.Output
	if target == nil {
		for _, o := range j.Written() {
			written = append(written, outputOf(o))
			p.targets = append(p.targets, targetOf(o))
		}
		faults = append(faults, j.CheckOutput()...)
	}
	if preview == nil {
		recoverSources(j)
	}
	faults = append(faults, p.open(ctx, j, own, written, preview != nil && !j.IsStatement())...)
	query := logical.Query{Sources: slices.Sorted(maps.Keys(j.Sources)), Steps: j.Steps, Text: j, Values: j.Values(),
		Written: steps}
	query.Texts = func(o rel.Output) ([]string, error) { return p.texts(ctx, j, o) }
	query.Files = func(pattern string) ([]string, error) { return filesOf(ctx, j.PathInSQL(pattern)) }
	estimator := logical.NewEstimator(ctx)
	_, named, unbound := logical.BindAll(estimator, query, p.tables)
	if len(p.partial) > 0 {
		var wanting *rel.Output
		if len(faults)+len(unbound) == 0 {
			if o, _, err := outputsOf(estimator, query, j, steps, named, p.targets, preview); err == nil {
				wanting = &o
			}
		}
		faults = append(faults, p.openWanted(j, wanting)...)
		p.partial = nil
		estimator = logical.NewEstimator(ctx)
		_, named, unbound = logical.BindAll(estimator, query, p.tables)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, class.Mark(ctx, err)
	}
	if faults = append(faults, unbound...); len(faults) > 0 {
		return nil, byPlace(faults)
	}
	if faults := j.CheckRead(); len(faults) > 0 && (preview == nil || !preview.part) {
		return nil, faults
	}
	out, outs, err := outputsOf(estimator, query, j, steps, named, p.targets, preview)
	if err != nil {
		if errors.Is(err, logical.ErrNoRows) {
			return nil, err
		}
		return nil, query.Locate(err)
	}
	if target == nil {
		for i, o := range j.Written() {
			t, ok := p.targets[i].(*parquetTarget)
			if !ok {
				continue
			}
			if err := sinkparquet.CheckColumns(outs[i].Schema(), o.Options); err != nil {
				return nil, Diagnostics{{File: j.File(), Location: j.Location(j.OutputPath(i) + ".dictionary_columns"),
					Step: "output", Msg: err.Error()}}
			}
			t.opt.Metadata = metadataOf(outs[i], o.Options)
			p.noteRead(t)
		}
	}
	rules := logical.Options{Without: opt.WithoutRules, Applied: opt.applied}
	if err := rules.Check(); err != nil {
		return nil, query.Locate(err)
	}
	if opt.TraceRules {
		p.rules = append(p.rules, RuleApplied{"", "the job as it is written", true, rel.Print(out.Root)})
		rules.Applied = func(r logical.Rule, before, after rel.Output) {
			text := rel.Print(after.Root)
			p.rules = append(p.rules, RuleApplied{r.Name, r.Doc, text != rel.Print(before.Root), text})
		}
	}
	if p.stages, err = physical.Lower(j.Name, estimator, logical.Optimize(estimator, out, rules)); err != nil {
		return nil, query.Locate(err)
	}
	for i, c := range j.Checks() {
		if preview == nil {
			p.stages.Outputs[i].Expect = &physical.Expectation{Step: c.Of, Text: j.Values().Hide(c.Text), Warn: c.Warn}
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, class.Mark(ctx, err)
	}
	p.unsampled = estimator.Err()
	p.written = writtenOf(j, p.stages)
	return p, nil
}

// outputsOf returns the outputs of a query as one: the rows that do not meet the expectations, and then those of the
// steps that are written. It returns the latter alone, too. The error is logical.ErrNoRows if one is not known.
func outputsOf(e *logical.Estimator, q logical.Query, j *Job, steps []string, named map[string]*logical.Relation,
	targets []Target, preview *Preview) (all rel.Output, written []rel.Output, err error) {
	var list []rel.Output
	for _, c := range j.Checks() {
		r := named[c.Step]
		if r == nil {
			return all, nil, logical.ErrNoRows
		}
		if preview == nil {
			list = append(list, r.Output())
		}
	}
	for i, name := range steps {
		r := named[name]
		if r == nil {
			return all, nil, logical.ErrNoRows
		}
		if preview != nil {
			r, err = preview.rowsOf(e, q, r)
		} else {
			_, enums := targets[i].(enumTarget)
			r, err = q.Until(name).Output(e, r, enums)
		}
		if err != nil {
			return all, nil, err
		}
		written = append(written, r.Output())
	}
	if list = append(list, written...); len(list) == 1 {
		return list[0], written, nil
	}
	return rel.NewOutputs(list...), written, nil
}

// targetOf returns the target of an output.
func targetOf(o Output) Target {
	if opt, ok := o.Text(); ok {
		path, _ := o.Path()
		return &textTarget{path, opt}
	}
	if opt, ok := o.ArrowOptions(); ok {
		return &arrowTarget{string(o.Arrow), opt}
	}
	return &parquetTarget{path: string(o.Parquet), opt: o.Options}
}

// noteRead tells a target which files the plan reads, if it may replace them.
func (p *Plan) noteRead(t *parquetTarget) {
	if t.opt.OverwritePartitions || t.opt.OverwriteSources {
		t.opt.Read = p.filesRead()
	}
}

// filesRead returns the sizes of all files that the plan reads, by their paths without links.
func (p *Plan) filesRead() map[string]int64 {
	read := map[string]int64{}
	for _, t := range p.tables {
		if t, ok := t.(*sourceparquet.Table); ok {
			for path, size := range t.Files() {
				if real, err := filepath.EvalSymlinks(path); err == nil {
					if real, err = filepath.Abs(real); err == nil {
						read[real] = size
					}
				}
			}
		}
	}
	return read
}

// recoverSources completes or undoes the outputs of runs that were killed, in the folders of the sources.
func recoverSources(j *Job) {
	seen := map[string]bool{"": true}
	for _, s := range j.Sources {
		for _, p := range s.Files() {
			path := string(p)
			if store.Scheme(path) != "" || path == sourcetext.Standard {
				continue
			}
			if at := strings.IndexAny(path, "*?["); at >= 0 {
				path = path[:at] + "x" // a file in the folder of the pattern
			}
			for _, folder := range []string{path, filepath.Dir(filepath.Clean(path))} {
				if seen[folder] {
					continue
				}
				seen[folder] = true
				if err := staging.Recover(folder); err != nil {
					slog.Warn("outputs of a run that was killed are incomplete", "folder", folder, "error", err)
				}
			}
		}
	}
}

// filesOf returns the files that a pattern matches.
func filesOf(ctx context.Context, pattern string) ([]string, error) {
	files, err := sourceparquet.Files(ctx, []string{pattern})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return files, err
}

// texts runs a plan over the tables on the CPU, and returns the values of its only column.
func (p *Plan) texts(ctx context.Context, j *Job, o rel.Output) ([]string, error) {
	var err error
	rel.Visit(o.Root, func(n rel.Node) {
		if scan, ok := n.(*rel.Scan); ok {
			_, declared := scan.Table.(declaredTable)
			for name := range p.partial {
				declared = declared || p.tables[name] == scan.Table
			}
			if declared {
				err = logical.ErrNoRows
			}
		}
	})
	if err != nil {
		return nil, err
	}
	e, out := logical.NewEstimator(ctx), &Collector{}
	stages, err := physical.Lower(j.Name, e, logical.Optimize(e, o, logical.Options{}))
	if err != nil {
		return nil, err
	}
	of := &Plan{stages: stages, targets: []Target{out}, written: writtenOf(j, stages)}
	if _, err = of.Run(ctx, RunOptions{Use: Host}); err != nil {
		return nil, err
	}
	var texts []string
	for _, r := range out.Records() {
		column := r.Column(0)
		for i := range column.Len() {
			texts = append(texts, column.ValueStr(i))
		}
	}
	return texts, nil
}

// byPlace sorts faults by their locations in the job file.
func byPlace(faults Diagnostics) Diagnostics {
	slices.SortStableFunc(faults, func(a, b *Diagnostic) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return faults
}

// outputOf returns an output of a job for its sources. It follows links, as the writer does.
func outputOf(o Output) *sourceparquet.Output {
	name, key := o.Path()
	path, err := name, error(nil)
	if !staging.IsObject(name) {
		path, err = staging.Resolve(name)
	}
	if err != nil || name == "" || key != "parquet" && name == "-" {
		return nil // there is another error, or no file
	}
	return &sourceparquet.Output{Path: path, Folder: key == "parquet" && o.Directory(name), PartitionBy: o.PartitionBy}
}

// open opens every source, even if some fail. A source with files of the output is an error.
func (p *Plan) open(ctx context.Context, j *Job, own map[string]source.Table, written []*sourceparquet.Output,
	preview bool) (faults Diagnostics) {
	for name, t := range own {
		p.tables[name] = t
	}
	for _, name := range slices.Sorted(maps.Keys(j.Sources)) {
		s := j.Sources[name]
		if own[name] != nil || len(s.Files()) == 0 {
			continue
		}
		paths := make([]string, len(s.Parquet))
		for i, path := range s.Parquet {
			paths[i] = string(path)
		}
		if j.Unreadable(name) {
			continue // Check has reported it
		}
		if s.Text() != nil {
			faults = append(faults, p.openText(ctx, j, name, written, preview)...)
			continue
		}
		if s.Arrow != nil {
			faults = append(faults, p.openArrow(ctx, j, name, written)...)
			continue
		}
		opt := sourceparquet.OpenOptions{Context: ctx, Strict: s.Schema.Strict, NoPartitions: s.Partitions.None,
			Optional: s.Optional, Outputs: written}
		schema, wrong := fieldsOf(j, name, "schema", s.Schema.Columns)
		partitions, alsoWrong := fieldsOf(j, name, "partitions", s.Partitions.Types)
		if wrong = append(wrong, alsoWrong...); len(wrong) > 0 {
			faults = append(faults, wrong...)
			continue
		}
		if opt.Partitions = partitions; schema != nil {
			opt.Schema = &gpu.Schema{Fields: schema}
		}
		files, err := sourceparquet.List(paths, opt)
		if err != nil {
			faults = append(faults, sourceFault(j, name, err))
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
			faults = append(faults, sourceFault(j, name, err))
			delete(p.partial, name)
			continue
		}
		p.tables[name] = t
	}
	return faults
}

// openText opens a source of CSV or JSON lines. A preview writes no file of rejects.
func (p *Plan) openText(ctx context.Context, j *Job, name string, written []*sourceparquet.Output, preview bool) (
	faults Diagnostics) {
	s := j.Sources[name]
	types, faults := fieldsOf(j, name, "types", s.Types)
	schema, wrong := fieldsOf(j, name, "schema", s.Schema.Columns)
	faults = append(faults, wrong...)
	partitions, wrong := fieldsOf(j, name, "partitions", s.Partitions.Types)
	if faults = append(faults, wrong...); len(faults) > 0 {
		return faults
	}
	opt := s.ReadText(types, schema)
	if opt.Check() != nil {
		return nil // Check has reported it
	}
	opt.Preview, opt.Context = preview, ctx
	files, err := filesIn(s.Text(), sourceparquet.OpenOptions{Context: ctx, Outputs: written,
		NoPartitions: s.Partitions.None, Partitions: partitions, Schema: opt.Schema})
	if err != nil {
		return Diagnostics{sourceFault(j, name, err)}
	}
	for _, p := range files.Partitions {
		opt.Partitions = append(opt.Partitions, sourcetext.Partition(p))
	}
	t, err := sourcetext.Open(files.Paths, opt)
	if err != nil {
		return Diagnostics{sourceFault(j, name, err)}
	}
	p.tables[name] = t
	return nil
}

// openArrow opens a source of Arrow.
func (p *Plan) openArrow(ctx context.Context, j *Job, name string, written []*sourceparquet.Output) Diagnostics {
	files, err := filesIn(j.Sources[name].Arrow, sourceparquet.OpenOptions{Context: ctx, Outputs: written,
		NoPartitions: true})
	if err != nil {
		return Diagnostics{sourceFault(j, name, err)}
	}
	t, err := sourcearrow.Open(ctx, files.Paths)
	if err != nil {
		return Diagnostics{sourceFault(j, name, err)}
	}
	p.tables[name] = t
	return nil
}

// filesIn returns the files that the paths of a source name, which is of another format than Parquet.
func filesIn(paths job.Paths, opt sourceparquet.OpenOptions) (*sourceparquet.Listing, error) {
	all := make([]string, len(paths))
	for i, path := range paths {
		all[i] = string(path)
		if info, err := os.Stat(all[i]); err == nil && info.IsDir() && !staging.IsObject(all[i]) {
			return nil, fmt.Errorf("%s: a folder of such files is read by a pattern, as in %s/*", path,
				filepath.Clean(all[i]))
		}
	}
	if slices.Contains(all, sourcetext.Standard) {
		return &sourceparquet.Listing{Paths: all}, nil
	}
	return sourceparquet.List(all, opt)
}

func sourceFault(j *Job, name string, err error) *Diagnostic {
	path := job.SourcePath(name)
	d := &Diagnostic{File: j.FileOf(path), Location: j.Location(path), Step: name, Msg: err.Error(), Err: err}
	if errors.Is(err, sourceparquet.ErrOutput) {
		d.Err = nil // the mistake is in the job
	}
	return d
}

// openWanted opens the files that a bound query needs, of the tables that are only partly open. If
// root is nil, it opens all files.
func (p *Plan) openWanted(j *Job, root *rel.Output) (faults Diagnostics) {
	for _, name := range slices.Sorted(maps.Keys(p.partial)) {
		part := p.partial[name]
		var keep func(int) bool
		if root != nil {
			values := map[string][]gpu.Scalar{}
			for _, c := range part.files.Partitions {
				values[c.Field.Name] = c.Values
				for _, f := range p.tables[name].Schema().Fields {
					if strings.EqualFold(f.Name, c.Field.Name) {
						values[f.Name] = c.Values // the name as the file spells it
					}
				}
			}
			wanted := logical.Wanted(*root, p.tables[name], len(part.files.Paths), values)
			keep = func(i int) bool { return wanted[i] }
		}
		t, err := part.files.Open(keep, part.opt)
		if err != nil {
			faults = append(faults, sourceFault(j, name, err))
			continue
		}
		p.tables[name] = t
	}
	return faults
}

// fieldsOf returns the columns that the job sets for a source under a key.
func fieldsOf(j *Job, name, key string, columns []job.SchemaColumn) (fields []gpu.Field, faults Diagnostics) {
	for _, c := range columns {
		t, err := syntax.ParseType(c.Type)
		if err != nil {
			location, msg := j.Location(job.SourcePath(name)+"."+key+"."+c.Name), err.Error()
			var wrong *syntax.Error
			if errors.As(err, &wrong) {
				msg = wrong.Msg
			}
			faults = append(faults, &Diagnostic{File: j.File(), Location: location, Step: name,
				Msg: fmt.Sprintf("column %q: %s", c.Name, msg)})
		}
		fields = append(fields, gpu.Field{Name: c.Name, Type: t})
	}
	return fields, faults
}

// Close closes the sources.
func (p *Plan) Close() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p.tables)) {
		if !p.shared[name] {
			errs = append(errs, p.tables[name].Close())
		}
	}
	p.tables = nil
	return errors.Join(errs...)
}

// Run executes the plan. It returns once every goroutine has ended and all memory is released.
// After success all outputs are complete. After an error there is none, and the report tells how
// far the run came. By errors.Is, errors match their classes, such as ErrData, and their causes,
// such as the operating system's errors.
//
// If a GPU cannot be started, a run with Auto logs a warning and uses the CPU.
func (p *Plan) Run(ctx context.Context, opt RunOptions) (*Report, error) {
	report, err := runner.Run(ctx, p.stages, p.targets, p.written.options(opt))
	if err == nil {
		return report, nil
	}
	if err = p.written.explain(err); report != nil {
		report.Error = err.Error()
	}
	return report, err
}

// ChooseDevice returns the device of a run with these options. For Auto, if there is an NVIDIA
// driver, it is the device that takes less time according to a cost model and the plan's estimates;
// the GPU is not started. The error is a *Diagnostic about the name of the device.
func (p *Plan) ChooseDevice(opt RunOptions) (*Choice, error) {
	choice, err := runner.ChooseDevice(p.stages, p.targets, p.written.Set.over(opt))
	return choice, p.written.place(err)
}

// Schema returns the columns of the result: of the first output.
func (p *Plan) Schema() *gpu.Schema { return p.stages.Written()[0].Schema }

// Check tells how much memory a run with these options would need, how much it would spill, and
// whether it would finish, by the plan's estimates. It runs nothing, but opens the device of the
// run to learn its budgets.
func (p *Plan) Check(opt RunOptions) (*Check, error) {
	check, err := runner.Check(p.stages, p.targets, p.written.options(opt))
	return check, p.written.place(err)
}
