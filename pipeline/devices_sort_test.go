package pipeline

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/source"
)

// rowsToSort returns a table with few and many values to sort by, and the number of each row.
func rowsToSort(r *rand.Rand, n int) source.Table {
	long, text, double := gpu.Of(gpu.Int64), gpu.Of(gpu.String), gpu.Of(gpu.Float64)
	schema := gpu.NewSchema(gpu.Field{Name: "few", Type: long, Nullable: true}, gpu.Field{Name: "text", Type: text,
		Nullable: true}, gpu.Field{Name: "x", Type: double, Nullable: true}, gpu.Field{Name: "row", Type: long})
	or := func(v gpu.Scalar) gpu.Scalar {
		if r.IntN(20) == 0 {
			return gpu.Null(v.Type)
		}
		return v
	}
	rows := make([][]gpu.Scalar, n)
	for i := range rows {
		rows[i] = []gpu.Scalar{or(gpu.IntScalar(long, r.Int64N(3))), or(gpu.StringScalar(fmt.Sprint(r.IntN(n)))),
			or(gpu.FloatScalar(double, float64(r.IntN(n))*float64(n-i))), gpu.IntScalar(long, int64(i))}
	}
	return source.NewValues(schema, rows)
}

// TestSeveralDevicesSortAsOne sorts rows with equal keys by one and by several devices, also if rows spill: all rows
// come in the same order, and all devices sort some of them.
func TestSeveralDevicesSortAsOne(t *testing.T) {
	defer goleak.VerifyNone(t)
	library := cudatest.Library(t)
	seed := gputest.Seed(t)
	for i := range gputest.Cases(t, 3) {
		r := rand.New(rand.NewPCG(seed+uint64(i), 1))
		table := rowsToSort(r, 500+r.IntN(4000))
		keys := [][]string{{"few"}, {"few desc nulls last", "x"}, {"x desc"}, {"text nulls first", "few"},
			{"few", "text desc", "x desc nulls last"}}[r.IntN(5)]
		limit, offset := []int64{-1, 0, 40, 900}[r.IntN(4)], r.Int64N(3)*20
		sorted := func(d gpu.Device, opt RunOptions) ([][]*string, *Report) {
			var out collected
			b := New("sort").ReadShared("t", table).Filter("row % 7 <> 3").Sort(keys...)
			if limit >= 0 {
				b.step(Step{Limit: &Limit{Count: limit, Offset: offset}})
			}
			opt.Device, opt.SpillDir = d, t.TempDir()
			report, err := b.Select("*").WriteTo(&out).Run(t.Context(), opt)
			require.NoError(t, err)
			for _, one := range gpu.DevicesOf(d) {
				require.Empty(t, one.Budget().Leaks())
			}
			require.NoError(t, d.Close())
			return out.rows, report
		}
		rows := 20 + r.IntN(200)
		want, _ := sorted(hosts(t, 1, 1, 1<<28, rows), RunOptions{Threads: 1})
		n := []int{2, 3, 8}[r.IntN(3)]
		d := hosts(t, n, 1+r.IntN(2), 1<<28, rows)
		if n == 2 {
			d = gpus(t, library, n, 64<<20, rows)
		}
		opt := RunOptions{Exchanges: Always, Threads: 1, SpillAlways: r.IntN(2) == 0}
		got, report := sorted(d, opt)
		about := fmt.Sprintf("%d devices sort by %v, limit %d, offset %d", n, keys, limit, offset)
		require.Equal(t, want, got, about)
		for _, s := range report.Stages {
			if s.Kind == "sort" && s.RowsIn > 0 && keys[0] != "few" {
				require.Len(t, s.Shares, n, about)
				for _, x := range s.Shares {
					require.InDelta(t, s.RowsIn/int64(n), x.RowsOut, float64(s.RowsIn)/4, "%s: %v", about, s.Shares)
				}
			}
		}
	}
}
