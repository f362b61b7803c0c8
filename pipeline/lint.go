package pipeline

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/source"
	sourceparquet "github.com/gstream/gstream/source/parquet"
)

// LintOptions configure Lint.
type LintOptions struct {
	// NoData opens no file.
	NoData bool
}

// Lint checks a job without running it. A source with a schema may be missing. With NoData, the
// columns of sources without a schema are unknown. Of whatever depends on such a source, Lint
// checks only the structure, the syntax of expressions, and the names of functions and steps. The
// error is Diagnostics.
func Lint(j *Job, opt LintOptions) error {
	j = j.WithFiles().WithChecks()
	own, faults := map[string]source.Table{}, Diagnostics(nil)
	for _, name := range slices.Sorted(maps.Keys(j.Sources)) {
		s := j.Sources[name]
		if len(s.Schema.Columns) == 0 || !opt.NoData && !absent(context.Background(), s.Files()) {
			continue
		}
		fields, wrong := fieldsOf(j, name, "schema", s.Schema.Columns)
		if faults = append(faults, wrong...); len(wrong) == 0 {
			for i := range fields {
				fields[i].Nullable = true
			}
			own[name] = declaredTable{&gpu.Schema{Fields: fields}}
		}
	}
	if len(faults) == 0 && (!opt.NoData || len(own) == len(j.Sources)) {
		p, err := newPlan(context.Background(), j, own, nil)
		if err == nil {
			return p.Close()
		}
		if !errors.As(err, &faults) && !errors.Is(err, logical.ErrNoRows) {
			return err
		}
		// Planning stops at the first kind of mistakes, and at the first step that has one.
		faults = slices.Clone(faults)
	}
	query := logical.Query{Sources: slices.Sorted(maps.Keys(j.Sources)), Steps: j.Steps, Text: j, Values: j.Values(),
		Written: j.WrittenSteps()}
	more := slices.Concat(j.Check(slices.Collect(maps.Keys(own))), j.CheckOutput(), logical.CheckForm(query))
	_, bound := logical.Bind(logical.NewEstimator(context.Background()), query, own)
	for _, d := range append(more, bound...) {
		same := func(o *Diagnostic) bool { return o.Location == d.Location && o.Msg == d.Msg }
		if !slices.ContainsFunc(faults, same) {
			faults = append(faults, d)
		}
	}
	if len(faults) == 0 {
		faults = j.CheckRead()
	}
	if len(faults) == 0 {
		return nil
	}
	return byPlace(faults)
}

// absent reports whether one of the paths matches no file.
func absent(ctx context.Context, paths Paths) bool {
	for _, path := range paths {
		if _, err := sourceparquet.Files(ctx, []string{string(path)}); errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// declaredTable has the columns of a source's schema in the job, and no rows.
type declaredTable struct{ schema *gpu.Schema }

func (t declaredTable) Schema() *gpu.Schema                  { return t.schema }
func (t declaredTable) Unreadable() []source.Unreadable      { return nil }
func (t declaredTable) Rows() int64                          { return 0 }
func (t declaredTable) Stats(int) source.ColumnStats         { return source.ColumnStats{Nulls: -1} }
func (t declaredTable) LeastMemory(source.ScanOptions) int64 { return 0 }
func (t declaredTable) Describe() string                     { return "a table that is not there" }
func (t declaredTable) Close() error                         { return nil }
func (t declaredTable) Scan(context.Context, source.ScanOptions) (source.Reader, error) {
	return nil, errors.New("internal error: a table that is not there is read; please report it")
}
