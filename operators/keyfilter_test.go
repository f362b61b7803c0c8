package operators_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/operators"
)

func TestAFilterOfFewKeysKeepsNoMemoryOfItsCopies(t *testing.T) {
	text := gpu.Of(gpu.String)
	entries := []gpu.Scalar{{Type: text, Valid: true, Str: "a"}, {Type: text, Valid: true, Str: "b"}}
	codes := []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int32), 0), gpu.IntScalar(gpu.Of(gpu.Int32), 1)}
	for _, dev := range []gpu.Device{hosttest.Open(t), cudatest.Open(t, cuda.Options{Memory: 8 << 20})} {
		for _, coded := range []bool{false, true} {
			q, err := dev.NewQueue("build")
			require.NoError(t, err)
			l := dev.Budget().Lease("build")
			key := gpu.ColumnOf(text, entries)
			if coded {
				dict := &gpu.Dictionary{Values: key}
				key = gpu.ColumnOf(codes[0].Type, codes)
				key.Type, key.Dict = text, dict
			}
			s, err := q.Upload(l, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "key", Type: text}),
				Cols: []gpu.Column{key}, Rows: len(entries)})
			require.NoError(t, err)
			for range 2 {
				_, err = operators.NewKeyFilter(operators.Task{Device: dev, Queue: q, Lease: l,
					Filter: operators.BoundsFilter}, s.Cols, s.Rows)
				require.NoError(t, err, "coded %v", coded)
			}
			s.Release()
			require.NoError(t, q.Close())
			require.NoError(t, l.Close())
		}
	}
}
