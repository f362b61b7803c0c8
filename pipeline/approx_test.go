package pipeline

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/source"
)

// numbers is a table of the numbers of rows, its column i.
func numbers(t *testing.T, rows int) source.Table {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	for i := range rows {
		b.Append(int64(i))
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int64}}, nil)
	table, err := ArrowTable(schema, array.NewRecord(schema, []arrow.Array{b.NewArray()}, int64(rows)))
	require.NoError(t, err)
	return table
}

// numbered has columns of all kinds, made of the numbers of rows.
func numbered(t *testing.T, rows int) *Builder {
	return New("estimates").ReadTable("t", numbers(t, rows)).Select("i", "nullif(i % 5, 4)::integer as g",
		"(i % 97)::utinyint as few", "nullif('word ' || (i * 7 % 6007)::varchar, 'word 11') as word",
		"CASE i % 3 WHEN 0 THEN 0e0 WHEN 1 THEN -0e0 ELSE 'nan'::double END as zeros", "(i % 701)::float / 4 as real",
		"(i % 4001)::decimal(38,2) as wide", "i::hugeint * 1000000007 as huge",
		"DATE '2020-01-01' + (i % 903)::integer as day", "epoch_ms(i // 2) as at", "nullif(i % 7 = 0, true) as no",
		"encode('b' || (i % 800)::varchar) as bytes", "nullif(i, i) as none")
}

// TestEstimatesOfDistinctValues compares approx_count_distinct with count(distinct …), for all kinds of values and
// together with other aggregates. The estimate is one number on every device, however the rows are cut and spilled.
func TestEstimatesOfDistinctValues(t *testing.T) {
	const rows = 10_000
	library := cudatest.Library(t)
	values := strings.Fields("i g few word zeros real wide huge day at no bytes none")
	var each Columns
	for _, x := range values {
		each = append(each, Column{Name: x, Expr: "approx_count_distinct(" + x + ")"})
	}
	column := func(list ...string) (out Columns) {
		for i, x := range list {
			out = append(out, Column{Name: "x" + strconv.Itoa(i), Expr: x})
		}
		return out
	}
	byG := Columns{{Expr: "g"}}
	for name, group := range map[string]Group{
		"every type":     {Aggregates: each},
		"one, in groups": {By: byG, Aggregates: column("approx_count_distinct(i)")},
		"two, in groups": {By: byG,
			Aggregates: column("approx_count_distinct(word)", "approx_count_distinct(i % 11) + 3")},
		"every row alone": {By: Columns{{Expr: "i // 3"}},
			Aggregates: column("approx_count_distinct(i)")},
		"of the key": {By: byG,
			Aggregates: column("approx_count_distinct(g)", "approx_count_distinct(5)", "approx_count_distinct(null)")},
		"filtered": {By: byG,
			Aggregates: column("approx_count_distinct(i) filter (where i % 2 = 0)",
				"approx_count_distinct(10 // (i - 5)) filter (where i <> 5)",
				"approx_count_distinct(word) filter (where i < 0)")},
		"beside others": {By: byG,
			Aggregates: column("approx_count_distinct(word)", "count(*)", "sum(i)", "avg(few)", "min(word)", "max(day)",
				"count(distinct few)", "sum(distinct few)", "approx_count_distinct(distinct few)")},
		"beside sums that cannot be merged": {By: byG,
			Aggregates: column("approx_count_distinct(at)", "sum(wide)", "sum(huge)", "count(no)", "sum(real)")},
		"beside the median": {By: byG, Aggregates: column("approx_count_distinct(word)", "median(i)")},
		"sets": {By: Columns{{Expr: "g"}, {Name: "h", Expr: "i % 3"}}, Cube: true,
			Aggregates: column("approx_count_distinct(word)", "approx_count_distinct(i)", "count(*)",
				"grouping(g, h)")},
		"the empty set": {By: byG, Sets: [][]string{{"g"}, {}},
			Aggregates: column("approx_count_distinct(i) filter (where i > 100000)")},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(g Group, d gpu.Device, opt RunOptions) []string {
				var keys []string
				b := numbered(t, rows).GroupWith(g)
				for i := range len(g.By) + len(g.Aggregates) {
					keys = append(keys, strconv.Itoa(i+1))
				}
				var out Collector
				opt.Device = d
				_, err := b.Sort(keys...).WriteTo(&out).Run(context.Background(), opt)
				require.NoError(t, err)
				return textOf(&out)
			}
			open := func(threads int) gpu.Device {
				d, err := host.Open(host.Options{Threads: threads, Memory: 1 << 28})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, d.Close()) })
				return d
			}
			exact := group
			exact.Aggregates = nil
			for _, a := range group.Aggregates {
				a.Expr = strings.Replace(strings.Replace(a.Expr, "approx_count_distinct(distinct ", "count(distinct ",
					1), "approx_count_distinct(", "count(distinct ", 1)
				exact.Aggregates = append(exact.Aggregates, a)
			}
			got := run(group, open(1), RunOptions{Threads: 1})
			want := run(exact, open(2), RunOptions{Threads: 2})
			require.Len(t, got, len(want))
			estimates, numbers := 0.0, 0.0
			for r := range got {
				have, should := strings.Split(got[r], "|"), strings.Split(want[r], "|")
				for k := range have {
					if e, err := strconv.ParseFloat(should[k], 64); err == nil && k >= len(group.By) {
						n, err := strconv.ParseFloat(have[k], 64)
						require.NoError(t, err)
						// Two of a few values may share a register.
						require.InDelta(t, e, n, max(min(e, 1), 5.0/64*e), "column %d of %s, exactly %s", k, got[r],
							want[r])
						estimates, numbers = estimates+n, numbers+e
						continue
					}
					require.Equal(t, should[k], have[k])
				}
			}
			require.InDelta(t, numbers, estimates, 0.03*numbers)
			require.Equal(t, got, run(group, smallStrides{open(3), 777}, RunOptions{Threads: 3}))
			require.Equal(t, got, run(group, smallStrides{open(2), 3000},
				RunOptions{Threads: 2, SpillAlways: true, SpillDir: t.TempDir()}))
			d, err := cuda.Open(cuda.Options{Memory: 256 << 20, HostMemory: 256 << 20, Library: library})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			require.Equal(t, got, run(group, smallStrides{d, 9000}, RunOptions{}))
		})
	}
}

// TestEstimatesOfAnyNumber counts 0 to a million values. Of few values the estimate is their number, unless
// two of them share a register.
func TestEstimatesOfAnyNumber(t *testing.T) {
	for _, n := range []int{0, 1, 2, 5, 10, 30, 100, 300, 1000, 3000, 4096, 10_000, 30_000, 100_000, 1_000_000} {
		_, rows := cells(t, numbered(t, n).Group(nil, "approx_count_distinct(i) as n"))
		got, err := strconv.Atoi(rows[0][0])
		require.NoError(t, err)
		off := 3 * float64(n) / 64
		switch {
		case n <= 10:
			off = 0
		case n <= 300:
			off = 0.02 * float64(n)
		}
		require.InDelta(t, n, got, off)
	}
}
