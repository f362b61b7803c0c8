package gputest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// testSampleKeys samples keys of every width. The sample has all of up to SampledKeys rows, unless
// a device has little fast memory. Of more rows it has some.
func testSampleKeys(t *testing.T, open Open) {
	b := setUp(t, open)
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint64), gpu.DecimalOf(15, 2), gpu.Of(gpu.Date)} {
		for _, n := range []int{0, 1, 2, 33, 5000, gpu.SampledKeys/3 + 1, 3*gpu.SampledKeys + 5} {
			for _, d := range []distribution{{}, {distinct: 1}, {distinct: 40}, {distinct: 3000, zipf: true}} {
				keys := b.random(typ, n, d)
				if d.distinct == 3000 { // what a table has in a slot without a key: once of 33 rows, often of more
					for i := range (n + 67) / 100 {
						if typ.IsUnsigned() {
							keys[i*90].Int.Lo = ^uint64(0)
						} else {
							keys[i*90] = gpu.IntScalar(typ, -1)
						}
					}
				}
				counts := map[string]int{}
				for _, k := range keys {
					counts[label(k)]++
				}
				once := 0
				for _, c := range counts {
					if c == 1 {
						once++
					}
				}
				got, err := b.q.SampleKeys(b.l, b.up(gpu.ColumnOf(typ, keys))[0])
				require.NoError(t, err)
				if n <= gpu.SampledKeys/2 {
					require.Equal(t, gpu.KeySample{Rows: n, Keys: len(counts), Once: once}, got, "%d rows of %v, %v", n,
						typ, d)
					continue
				}
				require.LessOrEqual(t, got.Rows, gpu.SampledKeys)
				require.Greater(t, got.Rows, gpu.SampledKeys/3)
				require.LessOrEqual(t, got.Keys, min(len(counts), got.Rows))
				require.LessOrEqual(t, got.Once, got.Keys)
				if d.distinct > 0 && d.distinct <= 40 {
					require.Equal(t, gpu.KeySample{Rows: got.Rows, Keys: len(counts)}, got, "%d rows of %v, %v", n, typ,
						d)
				}
			}
		}
	}
	// Rows are in runs, as in a sorted table: the sample has keys of all runs.
	runs := make([]int32, 8*gpu.SampledKeys)
	for i := range runs {
		runs[i] = int32(i / (len(runs) / 1000))
	}
	got, err := b.q.SampleKeys(b.l, b.ids(runs))
	require.NoError(t, err)
	require.Equal(t, int(runs[len(runs)-1])+1, got.Keys)
}
