package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	jobs "github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/source"
)

// Builder builds a job in Go. Each step reads the previous step, unless From names another input.
// Mistakes are reported when the job is planned or run. A Builder is not safe for concurrent use.
type Builder struct {
	job    Job
	tables map[string]source.Table
	shared map[string]bool // of tables, those that the caller closes
	target Target
	given  map[string]Source // sources of a job that may still be replaced
	from   string
	errs   []error
	set    settings // of an SQL text
}

// New starts a job.
func New(name string) *Builder {
	return &Builder{job: Job{Name: name, Sources: map[string]Source{}}, tables: map[string]source.Table{},
		shared: map[string]bool{}}
}

// FromJob starts with a job that Load returned, for example to run a job file into a Collector.
// ReadTable and Read replace a source of the job that has the same name. The job itself does not
// change.
func FromJob(j *Job) *Builder {
	b := New(j.Name)
	b.job = *j
	b.job.Sources = map[string]Source{}
	maps.Copy(b.job.Sources, j.Sources)
	b.job.Steps = slices.Clone(j.Steps)
	b.given = maps.Clone(j.Sources)
	return b
}

// Read adds a source of Parquet files, folders and patterns such as dir/**/*.parquet, of CSV if all paths end in .csv
// or .tsv, and of JSON lines if they end in .jsonl, .ndjson or .json, also before .gz or .zst. Parquet files may have
// addresses such as s3://bucket/dir/*.parquet and https://host/x.parquet. The first step reads the first source, unless
// From names another input.
func (b *Builder) Read(name string, paths ...string) *Builder {
	return b.source(name, jobs.SourceOf(paths...))
}

// ReadWith adds the source that s describes, for example one with a schema, or of CSV files with a delimiter.
func (b *Builder) ReadWith(name string, s Source) *Builder { return b.source(name, s) }

// ReadTable adds a source that the caller provides, for example an ArrowTable. The plan
// closes it.
func (b *Builder) ReadTable(name string, t source.Table) *Builder {
	delete(b.shared, name)
	return b.table(name, t)
}

func (b *Builder) table(name string, t source.Table) *Builder {
	b.tables[name] = t
	return b.source(name, Source{})
}

// ReadShared adds a source that the caller provides and closes. Plans do not close it, so several plans can read it,
// also at the same time.
func (b *Builder) ReadShared(name string, t source.Table) *Builder {
	b.shared[name] = true
	return b.table(name, t)
}

func (b *Builder) source(name string, s Source) *Builder {
	if _, ok := b.given[name]; ok {
		delete(b.given, name)
		b.job.Sources[name] = s
		return b
	}
	if _, ok := b.job.Sources[name]; ok {
		b.errs = append(b.errs, fmt.Errorf("two sources are named %q", name))
	}
	b.job.Sources[name] = s
	if len(b.job.Sources) == 1 && len(b.job.Steps) == 0 {
		b.from = name
	}
	return b
}

// From makes the next step read a source or an earlier step.
func (b *Builder) From(name string) *Builder {
	b.from = name
	return b
}

func (b *Builder) step(s Step) *Builder {
	s.From, b.from = b.from, ""
	b.job.Steps = append(b.job.Steps, s)
	return b
}

// As names the last step.
func (b *Builder) As(name string) *Builder {
	if len(b.job.Steps) == 0 {
		b.errs = append(b.errs, fmt.Errorf("As(%q): there is no step to name", name))
		return b
	}
	b.job.Steps[len(b.job.Steps)-1].Name = name
	return b
}

// SQL makes a step of an SQL query. Its tables are the sources, the earlier steps, and Parquet files by their paths in
// quotes.
func (b *Builder) SQL(query string) *Builder { return b.step(Step{SQL: query}) }

// Filter keeps the rows on which an SQL condition is true.
func (b *Builder) Filter(condition string) *Builder { return b.step(Step{Filter: condition}) }

// Select computes columns: "a", "a + b as c", "*".
func (b *Builder) Select(columns ...string) *Builder { return b.step(Step{Select: toColumns(columns)}) }

// Qualify keeps the rows on which an SQL condition over window functions is true, as in
// "row_number() over (partition by a order by b) <= 3".
func (b *Builder) Qualify(condition string) *Builder { return b.step(Step{Qualify: condition}) }

// Distinct is Select that keeps one of each set of equal rows. Without arguments it selects all
// columns.
func (b *Builder) Distinct(columns ...string) *Builder {
	if len(columns) == 0 {
		columns = []string{"*"}
	}
	return b.step(Step{Distinct: toColumns(columns)})
}

// Join makes an inner join with another source or step on SQL conditions.
func (b *Builder) Join(with string, on ...string) *Builder {
	return b.JoinWith(Join{With: with, On: on})
}

// JoinWith makes the join that j describes. Inner joins that follow each other run in the order
// that produces the fewest rows, unless Order is "as written".
func (b *Builder) JoinWith(j Join) *Builder { return b.step(Step{Join: &j}) }

// Group makes one row for each group: the keys, then columns such as "sum(x) as total".
func (b *Builder) Group(by []string, aggregates ...string) *Builder {
	return b.GroupWith(Group{By: toColumns(by), Aggregates: toColumns(aggregates)})
}

// GroupWith makes the group that g describes, for example one with grouping sets.
func (b *Builder) GroupWith(g Group) *Builder { return b.step(Step{Group: &g}) }

// Sort orders the rows: "a", "b desc nulls first".
func (b *Builder) Sort(keys ...string) *Builder { return b.step(Step{Sort: keys}) }

// Limit keeps the first count rows.
func (b *Builder) Limit(count int64) *Builder { return b.step(Step{Limit: &Limit{Count: count}}) }

// Unnest makes one row for each element of a list, an SQL expression. The elements are the last column, as.
func (b *Builder) Unnest(list, as string) *Builder { return b.UnnestWith(Unnest{List: list, As: as}) }

// UnnestWith makes the rows that u describes, for example with the positions of the elements.
func (b *Builder) UnnestWith(u Unnest) *Builder { return b.step(Step{Unnest: &u}) }

// Union appends the rows of other sources or steps.
func (b *Builder) Union(names ...string) *Builder { return b.step(Step{Union: names}) }

// Write sends the result to a Parquet file.
func (b *Builder) Write(path string, opt ParquetOptions) *Builder {
	b.job.Output = Output{Parquet: Path(path), Options: opt}
	return b
}

// WriteWith sends the result to the output that o describes, for example a file of CSV.
func (b *Builder) WriteWith(o Output) *Builder {
	b.job.Output = o
	return b
}

// WriteAll sends the rows of several steps to the outputs that the list describes, by From. The outputs appear together
// or not at all.
func (b *Builder) WriteAll(outputs ...Output) *Builder {
	b.job.Outputs = append(b.job.Outputs, outputs...)
	return b
}

// Expect says what must be true of the rows of the last step. If it is not, the run fails with an error that matches
// ErrExpectation and ErrData, and nothing is written.
func (b *Builder) Expect(expectations ...Expectation) *Builder {
	if len(b.job.Steps) == 0 {
		b.errs = append(b.errs, errors.New("Expect: there is no step"))
		return b
	}
	last := &b.job.Steps[len(b.job.Steps)-1]
	last.Expect = append(last.Expect, expectations...)
	return b
}

// WriteTo sends the result to a target that the caller provides, for example a Collector.
func (b *Builder) WriteTo(t Target) *Builder {
	b.target = t
	return b
}

// Job returns the job as built so far.
func (b *Builder) Job() *Job { return &b.job }

// Plan binds and optimises the job.
func (b *Builder) Plan() (*Plan, error) { return b.plan(context.Background()) }

func (b *Builder) plan(ctx context.Context) (*Plan, error) {
	if err := errors.Join(b.errs...); err != nil {
		var located Diagnostics
		if errors.As(err, &located) {
			return nil, located
		}
		return nil, Diagnostics{{Msg: err.Error()}}
	}
	p, err := newPlanOf(ctx, &b.job, b.tables, b.target, nil, PlanOptions{shared: b.shared})
	if err != nil {
		return nil, err
	}
	p.written.Set = b.set
	return p, nil
}

// Run plans and executes the job.
func (b *Builder) Run(ctx context.Context, opt RunOptions) (*Report, error) {
	p, err := b.plan(ctx)
	if err != nil {
		return nil, err
	}
	report, err := p.Run(ctx, opt)
	return report, errors.Join(err, p.Close())
}

func toColumns(exprs []string) Columns {
	out := make(Columns, len(exprs))
	for i, e := range exprs {
		out[i].Expr = strings.TrimSpace(e)
	}
	return out
}
