package operators_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
)

func BenchmarkKeyFilter(b *testing.B) {
	dev, err := host.Open(host.Options{})
	require.NoError(b, err)
	q, err := dev.NewQueue("bench")
	require.NoError(b, err)
	const rows = 1 << 20
	l := dev.Budget().Lease("bench")
	buf, err := l.Alloc(rows * 8)
	require.NoError(b, err)
	for i, v := 0, gpu.Values[int64](buf, rows); i < rows; i++ {
		v[i] = int64(i) * 7919 % rows
	}
	key := gpu.Column{Type: gpu.Of(gpu.Int64), Len: rows, Data: buf}
	for name, kind := range map[string]operators.FilterKind{"bounds": operators.BoundsFilter,
		"bloom": operators.BloomFilter} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				f, err := operators.NewKeyFilter(operators.Task{Device: dev, Queue: q, Lease: l, Filter: kind},
					[]gpu.Column{key}, rows)
				require.NoError(b, err)
				f.Release()
			}
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}
