package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/source"
)

// planTable is a table that only has metadata.
type planTable struct {
	schema *gpu.Schema
	rows   int64
	stats  []source.ColumnStats
	inside []source.Inside
}

// Inside implements source.Nested.
func (t *planTable) Inside() []source.Inside { return t.inside }

func (t *planTable) Schema() *gpu.Schema            { return t.schema }
func (t *planTable) Rows() int64                    { return t.rows }
func (t *planTable) Stats(i int) source.ColumnStats { return t.stats[i] }

func (t *planTable) Unreadable() []source.Unreadable      { return nil }
func (t *planTable) LeastMemory(source.ScanOptions) int64 { return 0 }
func (t *planTable) Describe() string                     { return "fake" }
func (t *planTable) Close() error                         { return nil }
func (t *planTable) Scan(context.Context, source.ScanOptions) (source.Reader, error) {
	return nil, errors.New("a plan reads no rows")
}

// column adds an integer-like column with values between lo and hi.
func (t *planTable) column(name string, typ gpu.Type, lo, hi int64) *planTable {
	t.schema.Fields = append(t.schema.Fields, gpu.Field{Name: name, Type: typ})
	t.stats = append(t.stats, source.ColumnStats{HasRange: hi > lo, Min: gpu.IntScalar(typ, lo),
		Max: gpu.IntScalar(typ, hi)})
	return t
}

// field adds a column inside of the last column, a struct.
func (t *planTable) field(name string, typ gpu.Type, lo, hi int64) *planTable {
	of := len(t.schema.Fields) - 1
	t.inside = append(t.inside, source.Inside{Column: of, Path: []string{name},
		Field: gpu.Field{Name: t.schema.Fields[of].Name + "." + name, Type: typ, Nullable: true}})
	t.stats = append(t.stats, source.ColumnStats{HasRange: true, Min: gpu.IntScalar(typ, lo),
		Max: gpu.IntScalar(typ, hi)})
	return t
}

// element adds a field of the elements of a column, a list of structs.
func (t *planTable) element(of, name string, typ gpu.Type) *planTable {
	t.inside = append(t.inside, source.Inside{Column: t.schema.Index(of), Path: []string{gpu.PathElements, name},
		Field: gpu.Field{Name: of + "[]." + name, Type: gpu.ListOf(typ), Nullable: true}})
	t.stats = append(t.stats, source.ColumnStats{})
	return t
}

func newPlanTable(rows int64) *planTable { return &planTable{schema: &gpu.Schema{}, rows: rows} }

// planTables are a star schema: many facts, some items, few kinds.
func planTables() map[string]source.Table {
	integer, text, money := gpu.Of(gpu.Int64), gpu.Of(gpu.String), gpu.DecimalOf(15, 2)
	return map[string]source.Table{
		"facts": newPlanTable(1e6).column("item", integer, 1, 10000).column("day", gpu.Of(gpu.Date), 8000, 9000).
			column("price", money, 0, 1e6).column("discount", money, 0, 10).column("note", text, 0, 0),
		"items": newPlanTable(1e4).column("id", integer, 1, 10000).column("kind", integer, 1, 10).column("label", text,
			0, 0),
		"kinds": newPlanTable(10).column("id", integer, 1, 10).column("title", text, 0, 0),
		"sales": newPlanTable(1e4).column("id", integer, 1, 10000).column("lines", gpu.ListOf(gpu.StructOf(
			gpu.Field{Name: "part", Type: text}, gpu.Field{Name: "price", Type: integer})), 0, 0).column("buyer",
			gpu.StructOf(gpu.Field{Name: "age", Type: integer}, gpu.Field{Name: "city", Type: integer}), 0, 0).
			field("age", integer, 0, 100).field("city", integer, 1, 1000).element("lines", "part", text).
			element("lines", "price", integer),
	}
}

// planJob returns a job of the steps in a file, over planTables.
func planJob(t testing.TB, file string) *Job {
	steps, err := os.ReadFile(file)
	require.NoError(t, err)
	src := string(steps) + "\noutput: {parquet: out.parquet}\nsources: {facts: f, items: i, kinds: k}\n"
	if strings.Contains(src, "sales") {
		src = strings.Replace(src, "kinds: k", "sales: s", 1)
	}
	job, err := Parse(filepath.Base(file), []byte(src), LoadOptions{})
	require.NoError(t, err)
	return job
}

// TestPlans compares the explanation of every testdata/plans/*.yaml over the tables
// above, or its faults, with the .txt next to it. -update writes them.
func TestPlans(t *testing.T) {
	files, err := filepath.Glob("testdata/plans/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, err := newPlan(t.Context(), planJob(t, file), planTables(), nil)
			var got string
			if err != nil {
				got = err.Error() + "\n"
			} else {
				got = p.Explain("host").String()
			}
			want := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(want, []byte(got), 0o644))
			}
			text, err := os.ReadFile(want)
			require.NoError(t, err)
			assert.Equal(t, string(text), got)
		})
	}
}

// requirePlan requires that a job has a plan over tables, or that there is none because of
// a fault of the job that contains fault; it returns that.
func requirePlan(t *testing.T, job *Job, tables map[string]source.Table, fault string) error {
	t.Helper()
	p, err := newPlan(t.Context(), job, tables, nil)
	if fault == "" {
		require.NoError(t, err, job.Steps)
		require.NoError(t, p.Close())
		return nil
	}
	require.ErrorIs(t, err, ErrJob, job.Steps)
	require.ErrorContains(t, err, fault, job.Steps)
	return err
}

// TestStagesOfARunAreAllDrawn has a step that is computed for each reader. Its stages did different work.
func TestStagesOfARunAreAllDrawn(t *testing.T) {
	p, err := New("job").ReadTable("t", thousand(t)).Filter("k > 500").As("low").Union("low").
		WriteTo(&Collector{}).Plan()
	require.NoError(t, err)
	defer p.Close()
	r, err := p.Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	e := p.Explain(Host)
	require.Equal(t, 1, strings.Count(e.String(), "scan (t)"))
	e.Analyze(r)
	require.Equal(t, 2, strings.Count(e.String(), "scan (t)"))
}

// TestPlansOfManySteps has plans that would have 2^40 stages if steps were computed for each reader, and chains that
// take hours if a pass looks at all steps below a step.
func TestPlansOfManySteps(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	step := func(i int) string { return fmt.Sprintf("s%d", i) }
	for name, c := range map[string]struct {
		steps int
		add   func(b *Builder, i int)
	}{
		"unions":  {40, func(b *Builder, i int) { b.From(step(i - 1)).Union(step(i - 1)).As(step(i)) }},
		"filters": {40, func(b *Builder, i int) { b.From(step(i - 1)).Filter("k > 1").Union(step(i - 1)).As(step(i)) }},
		"joins": {40, func(b *Builder, i int) {
			b.From(step(i - 1)).JoinWith(Join{With: step(i - 1), Using: []string{"k"}, As: "r"}).Select("k").As(step(i))
		}},
		"groups": {40, func(b *Builder, i int) {
			b.From(step(i-1)).Group([]string{"k"}, "count(*) as n").Select("k").Union(step(i - 1)).As(step(i))
		}},
		"windows": {40, func(b *Builder, i int) {
			b.From(step(i-1)).Select("k",
				"row_number() over (order by k) as n").Select("k").Union(step(i - 1)).As(step(i))
		}},
		"long filter": {3000, func(b *Builder, i int) { b.Filter(fmt.Sprintf("k > %d", i)) }},
		"long select": {3000, func(b *Builder, i int) { b.Select("k + 1 as k") }},
		"long names":  {3000, func(b *Builder, i int) { b.Select("k").As(step(i)) }},
		"long mix": {3000, func(b *Builder, i int) {
			b.Filter(fmt.Sprintf("k > %d", i)).Select("k + 1 as k", "k as j").Limit(int64(5000 - i))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := New("steps").ReadTable("t", thousand(t)).Select("k").As(step(0))
			for i := range c.steps {
				c.add(b, i+1)
			}
			p, err := b.WriteTo(&Collector{}).Plan()
			require.NoError(t, err)
			defer p.Close()
			text := p.Explain(Host).String()
			assert.Less(t, len(text), 2500*c.steps)
			assert.Less(t, strings.Count(text, " (t)  "), 100*c.steps, "stages that scan the table")
		})
	}
}

// TestPlanningTakesMemoryInProportion plans jobs of different length. Plans that copy a list for each of its items
// take 16 times the memory for 4 times the items.
func TestPlanningTakesMemoryInProportion(t *testing.T) {
	for name, plan := range map[string]func(b *Builder, n int){
		"joins of a named step with itself": func(b *Builder, n int) {
			for i := range n {
				b.As(fmt.Sprint("s", i)).JoinWith(Join{With: fmt.Sprint("s", i), Using: []string{"k"}, As: "r"}).
					Select("k")
			}
		},
		"conjuncts": func(b *Builder, n int) {
			b.Filter(strings.Repeat("k > 1 and k < 9999 and ", n/2) + "k > 2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := thousand(t)
			allocated := func(n int) float64 {
				b := New("steps").ReadTable("t", table).Select("k")
				plan(b, n)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				p, err := b.WriteTo(&Collector{}).Plan()
				runtime.ReadMemStats(&after)
				require.NoError(t, err)
				require.NoError(t, p.Close())
				return float64(after.TotalAlloc - before.TotalAlloc)
			}
			allocated(10) // what is made once
			require.Less(t, allocated(2000)/allocated(500), 6.0)
		})
	}
}
