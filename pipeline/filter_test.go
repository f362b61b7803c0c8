package pipeline

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// filterTables returns a builder with a table of 1,000 rows in row groups of 100, and a table
// of the even numbers from 200 on, below 240, and of a null. Columns of several types have the
// number of the row; n is null in each tenth row.
func filterTables(t *testing.T) *Builder {
	dir := t.TempDir()
	table := func(prefix string, numbers func(i int) bool) string {
		text := "["
		for i := range 1000 {
			if !numbers(i) {
				continue
			}
			n := fmt.Sprint(i)
			if i%10 == 0 {
				n = "null"
			}
			text += fmt.Sprintf(`{"%[1]sb": %[2]d, "%[1]si": %[3]d, "%[1]su": %[3]d, "%[1]sn": %[4]s, "%[1]ss": "text %[3]d", "%[1]sd": "%[3]d.25", "%[1]st": %[3]d, "%[1]sf": %[3]d.5},`, prefix, i%128, i, n)
		}
		text = text[:len(text)-1] + "]"
		fields := []arrow.Field{{Name: "b", Type: arrow.PrimitiveTypes.Int8},
			{Name: "i", Type: arrow.PrimitiveTypes.Int32}, {Name: "u", Type: arrow.PrimitiveTypes.Uint64},
			{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "s", Type: arrow.BinaryTypes.String},
			{Name: "d", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}},
			{Name: "t", Type: arrow.FixedWidthTypes.Date32}, {Name: "f", Type: arrow.PrimitiveTypes.Float64}}
		for i := range fields {
			fields[i].Name = prefix + fields[i].Name
		}
		path := filepath.Join(dir, prefix+".parquet")
		_, err := New("table").ReadTable("t", record(t, fields, text)).Write(path,
			sinkparquet.Options{RowGroupRows: 100, PageRows: 25}).Run(t.Context(), RunOptions{Use: Host, Threads: 1})
		require.NoError(t, err)
		return path
	}
	return New("filters").Read("p", table("p", func(int) bool { return true })).Read("q",
		table("q", func(i int) bool { return i >= 200 && i < 240 && i%2 == 0 }))
}

// runFilters runs a job and returns its rows, and the rows of its first scan that filters of
// joins have dropped, and that were skipped.
func runFilters(t *testing.T, b *Builder, filters string) (rows []string, dropped, skipped int64) {
	t.Helper()
	return runFiltersOn(t, b, RunOptions{Use: Host, Threads: 2, JoinFilters: filters})
}

func runFiltersOn(t *testing.T, b *Builder, opt RunOptions) (rows []string, dropped, skipped int64) {
	t.Helper()
	var c Collector
	report, err := b.WriteTo(&c).Run(t.Context(), opt)
	require.NoError(t, err)
	scan := slices.IndexFunc(report.Stages, func(s StageReport) bool { return s.Step == "p" })
	return textOf(&c), report.Stages[scan].Dropped, report.Stages[scan].Scan.RowsSkipped
}

func TestAJoinFiltersTheScanOfItsProbeSide(t *testing.T) {
	for i, c := range []struct {
		name   string
		steps  func(b *Builder) *Builder
		bounds bool // statistics of the keys rule out row groups
	}{
		{"bytes", joinQ("inner", "pb = qb"), true},
		{"integers", joinQ("inner", "pi = qi"), true},
		{"unsigned", joinQ("inner", "pu = qu"), true},
		{"nulls", joinQ("inner", "pn = qn"), true},
		{"text", joinQ("inner", "ps = qs"), true},
		{"decimals", joinQ("inner", "pd = qd"), true},
		{"dates", joinQ("inner", "pt = qt"), true},
		{"floats", joinQ("inner", "pf = qf"), false},
		{"several", joinQ("inner", "pn = qn", "ps = qs"), true},
		{"semi", joinQ("semi", "pi = qi"), true},
		{"right", joinQ("right", "pi = qi"), true},
		{"residual condition", joinQ("inner", "pi = qi", "pb < qi - 100"), true},
		{"right with a residual condition", joinQ("right", "pi = qi", "pb < qi - 100"), true},
		{"through a filter and a projection", func(b *Builder) *Builder {
			return joinQ("inner", "k = qi")(b.Filter("pi % 3 <> 1").Select("pi as k", "pi + pb as x", "ps"))
		}, true},
		{"through joins", func(b *Builder) *Builder {
			b = b.JoinWith(Join{With: "q", As: "left", Kind: "left", On: []string{"ps = left.qs"},
				Build: "right"}).JoinWith(Join{With: "q", As: "anti", Kind: "anti", On: []string{"pb = anti.qi"}})
			return b.JoinWith(Join{With: "q", As: "last", On: []string{"pi = last.qi"}, Build: "right"}).Select("p.*",
				"left.qs as l")
		}, true},
	} {
		if gputest.Race && !gputest.Takes(4, i) {
			continue // the types of keys have the same goroutines
		}
		t.Run(c.name, func(t *testing.T) {
			job := func() *Builder { return c.steps(filterTables(t).From("p")).Sort("ps") }
			want, dropped, skipped := runFilters(t, job(), Never)
			require.NotEmpty(t, want)
			require.Zero(t, dropped)
			require.Zero(t, skipped)
			got, dropped, skipped := runFilters(t, job(), Always)
			require.Equal(t, want, got)
			require.Equal(t, c.bounds, skipped > 0, "%d rows skipped", skipped)
			require.Positive(t, dropped)
			got, _, _ = runFilters(t, job(), Auto)
			require.Equal(t, want, got)
		})
	}
}

// TestAJoinFiltersAScanForAGPU rules out row groups by the bounds of keys on the GPU. The scan
// waits for the build side.
func TestAJoinFiltersAScanForAGPU(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	for _, c := range []struct {
		kind   string
		on     []string
		bounds bool
	}{{"inner", []string{"pi = qi"}, true}, {"inner", []string{"ps = qs"}, true},
		{"inner", []string{"pf = qf"}, false},
		{"inner", []string{"pn = qn", "ps = qs"}, true}, {"semi", []string{"pu = qu"}, true},
		{"right", []string{"pd = qd"}, true}} {
		job := func() *Builder { return joinQ(c.kind, c.on...)(filterTables(t).From("p")).Sort("ps") }
		want, _, _ := runFilters(t, job(), Never)
		got, dropped, skipped := runFiltersOn(t, job(), RunOptions{Device: d, JoinFilters: Always})
		require.Equal(t, want, got, c)
		require.Equal(t, c.bounds, skipped > 0, c)
		require.Zero(t, dropped, c)
		got, _, skipped = runFiltersOn(t, job(), RunOptions{Device: d, JoinFilters: Never})
		require.Equal(t, want, got, c)
		require.Zero(t, skipped, c)
	}
	// One row in fifty has a match, which the statistics of the keys tell.
	_, _, skipped := runFiltersOn(t, joinQ("inner", "pi = qi")(filterTables(t).From("p")), RunOptions{Device: d})
	require.Positive(t, skipped)
}

func joinQ(kind string, on ...string) func(*Builder) *Builder {
	return func(b *Builder) *Builder {
		j := Join{With: "q", Kind: kind, On: on}
		if kind == "inner" {
			j.Build = "right"
		}
		return b.JoinWith(j)
	}
}

func TestJoinsThatKeepRowsFilterNoScan(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	for name, steps := range map[string]func(b *Builder) *Builder{
		"left":      joinQ("left", "pi = qi"),
		"anti":      joinQ("anti", "pi = qi"),
		"full":      joinQ("full", "pi = qi"),
		"mark":      joinQ("mark", "pi = qi"),
		"pairs":     joinQ("inner", "pi < qi"),
		"null-safe": joinQ("inner", "pn is not distinct from qn"),
		"cast":      joinQ("inner", "pi = qn"), // the key is pi as a BIGINT
		"computed":  func(b *Builder) *Builder { return joinQ("inner", "k = qi")(b.Select("pi + 1 as k", "ps")) },
		"limit":     func(b *Builder) *Builder { return joinQ("inner", "pi = qi")(b.Sort("pi desc").Limit(790)) },
	} {
		t.Run(name, func(t *testing.T) {
			want, _, _ := runFilters(t, steps(filterTables(t).From("p")).Sort("ps"), Never)
			got, dropped, skipped := runFilters(t, steps(filterTables(t).From("p")).Sort("ps"), Always)
			require.Equal(t, want, got)
			require.NotEmpty(t, want)
			require.Zero(t, dropped)
			require.Zero(t, skipped)
		})
	}
}

func TestAnEmptyBuildSideSkipsTheWholeScan(t *testing.T) {
	for _, none := range []string{"qi < 0", "qn is null"} {
		b := filterTables(t).From("q").Filter(none).As("none").From("p").JoinWith(Join{With: "none",
			On: []string{"pn = qn"}, Build: "right"})
		got, _, skipped := runFilters(t, b, Always)
		require.Empty(t, got)
		require.EqualValues(t, 1000, skipped)
	}
}

// TestFiltersDropNullsBeforeWhatMayFail has conditions that are null on the rows on which
// later ones would fail.
func TestFiltersDropNullsBeforeWhatMayFail(t *testing.T) {
	table := func() *Builder {
		return New("nulls").ReadTable("t",
			record(t, []arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
				{Name: "y", Type: arrow.PrimitiveTypes.Int64}},
				`[{"x": null, "y": 0}, {"x": 1, "y": 2}, {"x": 9, "y": 0}]`))
	}
	const want = `[{"x":1,"y":2}]`
	requireRows(t, table().Filter("x < 5").Filter("6 // y = 3"), want)
	requireRows(t, table().Filter("x < 5 and 6 // y = 3"), want)
	requireRows(t, table().From("t").Select("x as a", "y as b").As("u").From("t").Select("*").
		JoinWith(Join{With: "u", On: []string{"y = b", "x + a < 10", "6 // (b + y) = 1"}}).Select("x", "y"), want)
	_, err := table().Filter("6 // y = 3").Filter("x < 5").WriteTo(&Collector{}).Run(t.Context(),
		RunOptions{Use: Host, Threads: 1})
	require.ErrorContains(t, err, "divided by zero")
}
