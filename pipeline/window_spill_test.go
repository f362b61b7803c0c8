package pipeline

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
)

// TestAWindowOverAllRowsSpills compares functions over rows that come back batch by batch with
// those over rows in memory. Peers are from one row to most of the table.
func TestAWindowOverAllRowsSpills(t *testing.T) {
	fields := []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "o", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "d", Type: &arrow.Decimal128Type{Precision: 9, Scale: 2}}}
	lists := map[string][]string{} // by the keys of the order
	call := func(order, frame string, functions ...string) {
		for _, f := range functions {
			lists[order] = append(lists[order],
				fmt.Sprintf("%s over (%s %s) as c%d", f, order, frame, len(lists[order])))
		}
	}
	const toHere, desc, total, peers = "rows between unbounded preceding and current row",
		"order by o desc nulls first", "order by o, id", "order by o"
	whole := []string{"sum(x)", "sum(d)", "sum(f)", "count(s)", "count(*) filter (where x > 50)", "min(s)", "max(s)",
		"max(f)", "avg(x)", "avg(d)", "product(case when x > 50 then -1e0 end)",
		"bit_and(x)", "bit_or(x)", "bit_xor(x)", "bool_or(x > 98)", "any_value(s)", "var_pop(d)", "first_value(s)",
		"last_value(s)", "last_value(s ignore nulls)"}
	selects := []string{"nth_value(s, 3)", "nth_value(s, 200 ignore nulls)", "nth_value(x, 0)", "nth_value(x, null)",
		"nth_value(s, cast(x % 50 - 2 as tinyint))", "nth_value(s, cast(x as tinyint) ignore nulls)", "arg_min(s, x)",
		"arg_max(s, f)", "arg_max(x, s) filter (where f > 0)"}
	whole = append(whole, selects...)
	call(desc, "", whole...)
	call(desc, "", "row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(7)", "min(x)",
		"min(f)")
	call(total, toHere, whole...)
	call(total, "", "ntile(1000)", "lag(s)", "lead(s, 3, 'none')", "lag(x, -40)", "lag(x, null)",
		"lag(s ignore nulls)", "lead(s ignore nulls)", "lag(x, 100, -1 ignore nulls)", "lead(x, 100, -1 ignore nulls)",
		"lag(s, -3 ignore nulls)", "lead(s, 0, 'none' ignore nulls)", "lag(x, null ignore nulls)",
		"lag(s, cast(x % 10 - 5 as tinyint))", "lead(s, cast(x as tinyint), 'none')",
		"lead(s, abs(cast(x % 7 as tinyint)) ignore nulls)", "lag(s, cast(x as utinyint), 'none' ignore nulls)")
	near := []string{"sum(x)", "avg(d)", "count(*)", "min(s)", "last_value(s ignore nulls)", "nth_value(s, 2)",
		"arg_min(s, f)"}
	for _, frame := range []string{"3 preceding and current row", "100 preceding and 1 preceding",
		"2 following and 120 following", "3 preceding and 1 following exclude current row",
		"100 preceding and current row exclude group"} {
		call(total, "rows between "+frame, near...)
	}
	for _, frame := range []string{"range between 5 preceding and 2 following",
		"range between current row and current row", "groups between 2 preceding and 1 following",
		"range between 3 preceding and current row", "groups between 2 preceding and 1 following exclude group",
		"range between 3 preceding and 1 following exclude current row"} {
		call(peers, frame, near...)
	}
	const fromHere = "rows between current row and unbounded following"
	call(total, fromHere, whole...)
	call(peers, "range between current row and unbounded following", whole...)
	call(peers, "groups between current row and unbounded following", "sum(x)", "min(s)", "first_value(s ignore nulls)")
	call(peers, "range between unbounded preceding and unbounded following", "sum(x)", "avg(d)", "max(s)", "count(*)")
	call(total, "rows between unbounded preceding and unbounded following", whole...)
	far := []string{"sum(x)", "avg(d)", "count(*)", "min(s)", "first_value(s)", "last_value(s)",
		"first_value(s ignore nulls)", "last_value(s ignore nulls)"}
	far = append(far, selects...)
	for _, frame := range []string{"rows between unbounded preceding and 3 preceding",
		"rows between unbounded preceding and 120 following",
		"rows between 100 preceding and unbounded following", "rows between 120 following and unbounded following"} {
		call(total, frame, far...)
	}
	for _, frame := range []string{"range between unbounded preceding and 2 preceding",
		"range between 3 preceding and unbounded following",
		"groups between unbounded preceding and 3 following", "groups between unbounded preceding and 2 preceding",
		"groups between 2 following and unbounded following"} {
		call(peers, frame, far...)
	}
	call("", "rows between unbounded preceding and 50 following", far...)
	call("", "rows between 50 preceding and unbounded following", far...)
	call("", "", whole...)
	call("", toHere, whole...)
	call("", fromHere, whole...)
	// Few rows have a value, none in most strides.
	for _, value := range []string{"case when id between 290 and 300 then s end", "case when id < 0 then s end"} {
		call("", "", "first_value("+value+" ignore nulls)", "nth_value("+value+", 2 ignore nulls)",
			"lag("+value+", 2 ignore nulls)", "lead("+value+" ignore nulls)", "arg_min("+value+", x)")
		for _, frame := range []string{toHere, fromHere, "rows between unbounded preceding and 50 following"} {
			call("", frame, "first_value("+value+" ignore nulls)", "last_value("+value+" ignore nulls)",
				"nth_value("+value+", 2 ignore nulls)", "arg_max("+value+", x)", "max("+value+")")
		}
	}
	call("", "", "row_number()", "lag(s, 200)", "ntile(3)", "sum(x)", "rank()", "dense_rank()", "percent_rank()",
		"cume_dist()")
	for _, frame := range []string{"groups between 2 preceding and 1 following",
		"groups between 0 following and unbounded following", "groups between unbounded preceding and 1 preceding",
		"groups between 1 following and 3 following"} {
		call("", frame, "sum(x)", "avg(d)", "count(*)", "min(s)", "last_value(s ignore nulls)")
	}
	emulator := cudatest.Open(t, cuda.Options{Memory: 64 << 20})
	thin, cases := gputest.ThinOr(t, 6), 0
	for _, values := range []int{1, 3, 40, 100000} {
		r := rand.New(rand.NewPCG(uint64(values), 1))
		var rows []string
		value := func(v string) string {
			if r.IntN(5) == 0 {
				return "null"
			}
			return v
		}
		for i := range 700 {
			rows = append(rows, fmt.Sprintf(`{"id": %d, "o": %s, "x": %s, "f": %s, "s": %s, "d": "%d.%02d"}`, i,
				value(fmt.Sprint(r.IntN(values))), value(fmt.Sprint(r.IntN(100))),
				value(fmt.Sprint(float64(r.IntN(100)-50)/4)), value(fmt.Sprintf(`"text %d"`, r.IntN(1000))),
				r.IntN(100000), r.IntN(100)))
		}
		run := func(list []string, d gpu.Device, stride int, always bool) (string, int64) {
			var out Collector
			report, err := New("window").ReadTable("t",
				record(t, fields, "["+strings.Join(rows, ",")+"]")).Select(append([]string{"id"},
				list...)...).Sort("id").WriteTo(&out).
				Run(t.Context(), RunOptions{Device: smallStrides{d, stride}, SpillAlways: always,
					SpillDir: t.TempDir()})
			require.NoError(t, err)
			var text strings.Builder
			for _, rec := range out.Records() {
				b, err := rec.MarshalJSON()
				require.NoError(t, err)
				text.Write(b)
			}
			spilled := int64(0)
			for _, s := range report.Stages {
				if s.Kind == "window" {
					spilled += s.Spill.Disk.In
				}
			}
			return strings.ReplaceAll(text.String(), "][", ","), spilled
		}
		open := func(threads int) gpu.Device {
			d, err := host.Open(host.Options{Threads: threads, Memory: 64 << 20})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			return d
		}
		one := open(1)
		same := func(order string, list []string, d gpu.Device, stride int) {
			want, _ := run(list, one, stride, false)
			got, spilled := run(list, d, stride, true)
			require.Equal(t, want, got, "%d values, %s, %d lanes, %s", values, d.Properties().Name, d.Lanes(), order)
			require.Positive(t, spilled)
		}
		three := open(3)
		for _, order := range slices.Sorted(maps.Keys(lists)) {
			list := lists[order]
			if cases++; !gputest.Takes(thin, cases) {
				continue
			}
			same(order, list, one, 90)
			same(order, list, three, 90)
			if values != 40 {
				continue
			}
			// The emulator is slow, and has the primitives from their own tests: it takes some functions, in few
			// strides.
			var some []string
			for i := len(order) % 4; i < len(list); i += 4 {
				some = append(some, list[i])
			}
			same(order, some, emulator, 250)
		}
	}
}

// TestStagesOfOneStepReportTheirSpillingEach has two windows over all rows in one step, of which both write all rows.
func TestStagesOfOneStepReportTheirSpillingEach(t *testing.T) {
	var rows []string
	for i := range 500 {
		rows = append(rows, fmt.Sprintf(`{"id": %d}`, i))
	}
	fields := []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}}
	d, err := host.Open(host.Options{Threads: 1, Memory: 64 << 20})
	require.NoError(t, err)
	defer d.Close()
	report, err := New("windows").ReadTable("t", record(t, fields, "["+strings.Join(rows, ",")+"]")).
		Select("sum(id) over (order by id) as a", "sum(id) over (order by id desc) as b").WriteTo(&Collector{}).
		Run(t.Context(), RunOptions{Device: smallStrides{d, 90}, SpillAlways: true, SpillCompression: "none",
			SpillDir: t.TempDir()})
	require.NoError(t, err)
	var names []string
	sum := int64(0)
	for _, s := range report.Stages {
		if s.Kind == "window" {
			names = append(names, s.Step)
			require.GreaterOrEqual(t, s.Spill.Disk.In, int64(500*8), "%d", len(names))
		}
		sum += s.Spill.Disk.In
	}
	require.Len(t, names, 2)
	require.Equal(t, names[0], names[1])
	require.Equal(t, report.Spill.Disk.In, sum)
}
