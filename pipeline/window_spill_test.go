package pipeline

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
)

// TestAWindowOverAllRowsSpills compares functions over rows that a sort out of core returns with
// those over rows in memory. Peers are from one row to most of the table.
func TestAWindowOverAllRowsSpills(t *testing.T) {
	fields := []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "o", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "d", Type: &arrow.Decimal128Type{Precision: 9, Scale: 2}}}
	over := " over (order by o desc nulls first)"
	var list []string
	for _, f := range []string{"row_number()", "rank()", "dense_rank()", "count(*)", "count(x)", "sum(x)", "sum(d)", "min(x)", "max(x)", "min(f)", "max(f)", "min(s)", "max(s)", "count(*) filter (where x > 50)"} {
		list = append(list, f+over+fmt.Sprintf(" as c%d", len(list)))
	}
	for _, f := range []string{"sum(x)", "count(s)", "min(s)"} {
		list = append(list, f+" over (order by o, id rows between unbounded preceding and current row)"+fmt.Sprintf(" as c%d", len(list)))
	}
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
			rows = append(rows, fmt.Sprintf(`{"id": %d, "o": %s, "x": %s, "f": %s, "s": %s, "d": "%d.%02d"}`, i, value(fmt.Sprint(r.IntN(values))), value(fmt.Sprint(r.IntN(100))),
				value(fmt.Sprint(float64(r.IntN(100)-50)/4)), value(fmt.Sprintf(`"text %d"`, r.IntN(1000))), r.IntN(100000), r.IntN(100)))
		}
		run := func(d gpu.Device, always bool) (string, int64) {
			var out Collector
			report, err := New("window").ReadTable("t", record(t, fields, "["+strings.Join(rows, ",")+"]")).Select(append([]string{"id"}, list...)...).Sort("id").WriteTo(&out).
				Run(t.Context(), RunOptions{Device: smallStrides{d, 90}, SpillAlways: always, SpillDir: t.TempDir()})
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
		want, _ := run(open(1), false)
		for _, d := range []gpu.Device{open(1), open(3), cudatest.Open(t, cuda.Options{Memory: 64 << 20})} {
			got, spilled := run(d, true)
			require.Equal(t, want, got, "%d values, %s, %d lanes", values, d.Properties().Name, d.Lanes())
			require.Positive(t, spilled)
		}
	}
}
