package pipeline

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
)

// clusteredTable writes n rows with their numbers and with columns that take most of the bytes: one half to a file with
// row groups of a third of its rows, the other half to one with row groups of a sixth. It returns a maker of builders.
func clusteredTable(t *testing.T, n, page int) func() *Builder {
	dir := t.TempDir()
	fields := []arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int32},
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "w", Type: arrow.BinaryTypes.String},
		{Name: "f", Type: arrow.PrimitiveTypes.Float64}, {Name: "h", Type: arrow.PrimitiveTypes.Int64}}
	for half := range 2 {
		var text strings.Builder
		for i := half * n / 2; i < (half+1)*n/2; i++ {
			number, s := fmt.Sprint(i*977), fmt.Sprintf(`"%d%s"`, i*7919, strings.Repeat("x", i%30))
			if i%7 == 0 {
				number, s = "null", "null"
			}
			fmt.Fprintf(&text, `,{"k": %d, "n": %s, "s": %s, "w": "word %d", "f": %d.5, "h": %d}`, i, number, s, i%5, i*31,
				i*7919%n)
		}
		_, err := New("table").ReadTable("t", record(t, fields, "["+text.String()[1:]+"]")).Write(
			filepath.Join(dir, fmt.Sprintf("%d.parquet", half)),
			sinkparquet.Options{RowGroupRows: n / 2 / (3 + 3*half), PageRows: page}).Run(t.Context(),
			RunOptions{Use: Host, Threads: 1})
		require.NoError(t, err)
	}
	return func() *Builder { return New("clusters").Read("p", filepath.Join(dir, "*.parquet")) }
}

// firstRun runs a job and returns its rows and report.
func firstRun(t *testing.T, b func() *Builder, filter string, opt RunOptions) ([]string, *Report) {
	t.Helper()
	var c Collector
	report, err := b().From("p").Filter(filter).WriteTo(&c).Run(t.Context(), opt)
	require.NoError(t, err, filter)
	return textOf(&c), report
}

// TestAFilterDecidesFirst compares rows, and the bytes that cross the link to a GPU.
func TestAFilterDecidesFirst(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	b := clusteredTable(t, 6000, 100)
	for _, c := range []struct {
		filter string
		reads  float64 // most bytes that are left, as a share of all
	}{
		{"k // 500 % 6 = 3", 0.25}, {"k % 1000 < 100 and f > 0", 0.4}, {"k < 0 or k % 5000 = 4999", 0.1},
		{"w like 'w%' and k % 3000 = 17", 0.2}, {"n is null and k // 100 % 10 = 0", 0.3},
		{"k % 10 = 3", 1}, {"k >= 0 or n is null", 1}, {"k % 2 = 5", 0},
	} {
		want, never := firstRun(t, b, c.filter, RunOptions{Use: Host, Threads: 1, FilterFirst: Never})
		require.Zero(t, never.Stages[0].Scan.BytesFirst)
		require.NotContains(t, never.String(), "a filter read")
		all := never.Stages[0].Scan.BytesRead
		got, host := firstRun(t, b, c.filter, RunOptions{Use: Host, Threads: 2, FilterFirst: Always})
		require.Equal(t, want, got, c.filter)
		_, never = firstRun(t, b, c.filter, RunOptions{Device: d, FilterFirst: Never})
		got, device := firstRun(t, b, c.filter, RunOptions{Device: d, FilterFirst: Always})
		require.Equal(t, want, got, c.filter)
		for _, report := range []*Report{host, device} {
			scan := report.Stages[0].Scan
			require.Positive(t, scan.BytesFirst, c.filter)
			require.LessOrEqual(t, float64(scan.BytesRead), c.reads*float64(all), c.filter)
			require.Equal(t, all, scan.BytesRead+scan.BytesFiltered, c.filter)
			require.EqualValues(t, 6000, scan.RowsRead+scan.RowsFiltered, c.filter)
			require.Contains(t, report.String(), "p: a filter read ")
		}
		if up := device.Activity.BytesUp; c.reads < 0.3 {
			require.Less(t, float64(up), (c.reads+0.3)*float64(never.Activity.BytesUp), c.filter)
		}
	}
}

// TestAJoinWithFewKeysDecidesFirst joins by a column whose statistics rule out nothing, and by one in the order of the
// rows.
func TestAJoinWithFewKeysDecidesFirst(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	b := clusteredTable(t, 6000, 100)
	fields := []arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "y", Type: arrow.PrimitiveTypes.Int32}, {Name: "z", Type: arrow.BinaryTypes.String}}
	const few = `[{"x": 17, "y": 3000, "z": "word 1"}, {"x": 17, "y": 5998, "z": "word 3"}, {"x": 4711, "y": 2, "z": "word 4"},
		{"x": null, "y": -5, "z": "word 3"}, {"x": 6001, "y": 9, "z": "word 0"}]`
	for _, c := range []struct {
		on             []string
		filter         string
		ruled, decided bool // rows are left out by statistics, and by keys
	}{
		{[]string{"h = x"}, "", false, true},
		{[]string{"k = y"}, "", true, false}, // no page is left that could be left out
		{[]string{"k = y", "w = z"}, "", true, false},
		{[]string{"h = x"}, "k // 1000 % 2 = 0", false, true},
		{[]string{"w = z"}, "", false, false},
	} {
		run := func(opt RunOptions) ([]string, *source.Progress) {
			var out Collector
			job := b().ReadTable("few", record(t, fields, few)).From("p")
			if c.filter != "" {
				job = job.Filter(c.filter)
			}
			report, err := job.JoinWith(Join{With: "few", On: c.on, Build: "right"}).Sort("k", "y").WriteTo(&out).Run(
				t.Context(), opt)
			require.NoError(t, err)
			at := slices.IndexFunc(report.Stages, func(s StageReport) bool { return s.Step == "p" })
			return textOf(&out), report.Stages[at].Scan
		}
		want, scan := run(RunOptions{Use: Host, Threads: 1, JoinFilters: Never, FilterFirst: Never})
		require.NotEmpty(t, want)
		require.Zero(t, scan.RowsSkipped+scan.RowsFiltered)
		for _, opt := range []RunOptions{{Use: Host, Threads: 2}, {Device: d}} {
			opt.JoinFilters, opt.FilterFirst = Always, Always
			got, scan := run(opt)
			require.Equal(t, want, got, c)
			require.Equal(t, c.ruled, scan.RowsSkipped > 0, "%v: %d rows", c, scan.RowsSkipped)
			require.Equal(t, c.decided, scan.RowsFiltered > 0, "%v: %d rows", c, scan.RowsFiltered)
		}
	}
}

// TestAJoinWithManyKeysDecidesFirst joins with more keys than a filter knows by value. Those with a match lie in two
// parts of the table. The keys of the last case have matches everywhere.
func TestAJoinWithManyKeysDecidesFirst(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	b := clusteredTable(t, 2400, 100)
	together := func(i int) int { return []int{i, 2000 + i, -i}[min(i/100, 2)] }
	for _, c := range []struct {
		kind    string
		on      []string
		key     func(i int) int
		decided bool
	}{
		{"", []string{"k = y"}, together, true},
		{"semi", []string{"n = x"}, func(i int) int { return together(i) * 977 }, true},
		{"", []string{"k = y", "h = x"}, func(i int) int { return i }, false},
		{"", []string{"h = x"}, func(i int) int { return 2 * i }, false},
	} {
		var keys strings.Builder
		for i := range 1100 {
			fmt.Fprintf(&keys, `,{"x": %d, "y": %d}`, c.key(i), c.key(i))
		}
		fields := []arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
			{Name: "y", Type: arrow.PrimitiveTypes.Int32}}
		many := `[{"x": null, "y": 7000}` + keys.String() + "]"
		run := func(opt RunOptions) ([]string, *source.Progress) {
			var out Collector
			report, err := b().ReadTable("many", record(t, fields, many)).From("p").JoinWith(Join{With: "many",
				On: c.on, Kind: c.kind, Build: "right"}).Sort("k").WriteTo(&out).Run(t.Context(), opt)
			require.NoError(t, err)
			at := slices.IndexFunc(report.Stages, func(s StageReport) bool { return s.Step == "p" })
			return textOf(&out), report.Stages[at].Scan
		}
		want, scan := run(RunOptions{Use: Host, Threads: 1, JoinFilters: Never, FilterFirst: Never})
		require.NotEmpty(t, want)
		require.Zero(t, scan.RowsSkipped+scan.RowsFiltered)
		got, scan := run(RunOptions{Device: d, JoinFilters: Always, FilterFirst: Always})
		require.Equal(t, want, got, c.on)
		require.Equal(t, c.decided, scan.RowsFiltered > 1200, "%v: %d rows", c.on, scan.RowsFiltered)
	}
}

// TestAFilterThatFailsDecidesNothing divides by zero in some rows.
func TestAFilterThatFailsDecidesNothing(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	b := clusteredTable(t, 1200, 50)
	for _, opt := range []RunOptions{{Use: Host, Threads: 2}, {Device: d}} {
		var texts []string
		for _, first := range []string{Never, Always} {
			opt.FilterFirst = first
			var c Collector
			job := b().From("p").Filter("cast(w[6:] || 'x' as int) > 0 and k > 600 or k < 0").WriteTo(&c)
			_, err := job.Run(t.Context(), opt)
			require.Error(t, err)
			texts = append(texts, err.Error())
		}
		require.Equal(t, texts[0], texts[1])
	}
}

// TestAFilterDecidesFirstOnAFailingGPU fails a call of the driver: then the rows are the same, or there is an error,
// and nothing is left.
func TestAFilterDecidesFirstOnAFailingGPU(t *testing.T) {
	b := clusteredTable(t, 1200, 50)
	decideOnAFailingGPU(t, func() *Builder { return b().From("p").Filter("k // 100 % 6 = 3") },
		"cuMemAllocFromPoolAsync", "cuMemcpyHtoDAsync", "cuLaunchKernel", "cuEventRecord", "cuMemcpyDtoHAsync",
		"cuMemcpyBatchAsync")
}

// TestAJoinDecidesFirstOnAFailingGPU is the same with a table of keys.
func TestAJoinDecidesFirstOnAFailingGPU(t *testing.T) {
	b := clusteredTable(t, 1200, 50)
	var keys strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&keys, `,{"y": %d}`, []int{i, -i}[min(i/100, 1)])
	}
	fields := []arrow.Field{{Name: "y", Type: arrow.PrimitiveTypes.Int32}}
	decideOnAFailingGPU(t, func() *Builder {
		return b().ReadTable("many", record(t, fields, "["+keys.String()[1:]+"]")).From("p").JoinWith(
			Join{With: "many", On: []string{"k = y"}, Build: "right"})
	}, "cuMemAllocFromPoolAsync", "cuLaunchKernel")
}

func decideOnAFailingGPU(t *testing.T, job func() *Builder, calls ...string) {
	library := cudatest.Library(t)
	var out Collector
	_, err := job().WriteTo(&out).Run(t.Context(), RunOptions{Use: Host, Threads: 1, FilterFirst: Never})
	require.NoError(t, err)
	want := textOf(&out)
	failed, succeeded := 0, 0
	for _, call := range calls {
		for n := int64(1); n < 60; n += 1 + n/2 {
			f := openFaultyGPU(t, library, 1<<26, 4000)
			f.armed.Store(&trap{call: call, at: n, happens: inject})
			var c Collector
			_, err := job().WriteTo(&c).Run(t.Context(), RunOptions{Device: f, Threads: 2, JoinFilters: Always,
				FilterFirst: Always})
			for _, budget := range []*gpu.Budget{f.Budget(), f.HostBudget()} {
				require.Empty(t, budget.Leaks(), "%v", err)
			}
			f.armed.Store(nil)
			if err == nil {
				succeeded++
				require.Equal(t, want, textOf(&c))
			} else {
				failed++
				require.ErrorIs(t, err, errInCall)
			}
			require.NoError(t, f.Close())
		}
	}
	require.Positive(t, failed)
	require.Positive(t, succeeded)
}

// TestThePlanSaysThatAFilterDecidesFirst explains filters of a table of some size.
func TestThePlanSaysThatAFilterDecidesFirst(t *testing.T) {
	var text strings.Builder
	const n = 40_000
	for i := range n {
		fmt.Fprintf(&text, `,{"k": %d}`, i)
	}
	path := filepath.Join(t.TempDir(), "t.parquet")
	_, err := New("t").ReadTable("t", record(t, []arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int32}},
		"["+text.String()[1:]+"]")).Select("k", "lpad(cast(k as varchar), 600, '0') as s").Write(path,
		sinkparquet.Options{RowGroupRows: 10_000, Compression: "none"}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	const line = "decides first: the scan reads its other columns where rows are left"
	for filter, first := range map[string]bool{
		"k % 20000 = 19999": true, "k % 20 = 3": false, "k >= 0": false, "length(s) = k": false,
	} {
		var c Collector
		p, err := New("first").Read("p", path).From("p").Filter(filter).Select("k", "s").WriteTo(&c).Plan()
		require.NoError(t, err)
		require.Equal(t, first, strings.Contains(p.Explain(Host).String(), line), filter)
		require.NoError(t, p.Close())
	}
	var c Collector
	p, err := New("first").Read("p", path).From("p").Filter("k % 20000 = 19999").WriteTo(&c).Plan()
	require.NoError(t, err)
	defer p.Close()
	report, err := p.Run(t.Context(), RunOptions{Use: Host, Threads: 2})
	require.NoError(t, err)
	require.Len(t, textOf(&c), 2)
	require.Positive(t, report.Stages[0].Scan.RowsFiltered)
	e := p.Explain(Host)
	e.Analyze(report)
	require.Contains(t, e.String(), "a filter read ")
}
