package codec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// TestKeysComeBackFromTheirWords packs rows of random keys of few values, and unpacks them: with the narrow and the
// wide layout, and from the wide words that the narrow ones are repacked to. Words are equal if the keys are.
func TestKeysComeBackFromTheirWords(t *testing.T) {
	const rows = 200
	all := []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.Int32), gpu.Of(gpu.String), gpu.Of(gpu.Int16), gpu.Of(gpu.Uint64),
		gpu.Of(gpu.HugeInt), gpu.Of(gpu.Bool), gpu.Of(gpu.Int8), gpu.Of(gpu.Float64)}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		var types []gpu.Type
		var cols []gpu.Column
		for range 1 + r.IntN(5) {
			typ := all[r.IntN(len(all))]
			values := make([]gpu.Scalar, rows)
			for i := range values {
				switch v := r.IntN(3); {
				case typ.IsVar():
					values[i] = gpu.StringScalar(fmt.Sprint(v))
				case typ.IsFloat():
					values[i] = gpu.FloatScalar(typ, float64(v)+0.5)
				case typ.Kind == gpu.Bool:
					values[i] = gpu.BoolScalar(v == 0)
				case typ.IsUnsigned():
					values[i] = gpu.IntScalar(typ, int64(v))
				default:
					values[i] = gpu.IntScalar(typ, int64(v-1))
				}
			}
			types, cols = append(types, typ), append(cols, gpu.ColumnOf(typ, values))
		}
		l := memory.HeapLease("test", 0)
		key := func(i int) (k []string) {
			for _, c := range cols {
				k = append(k, c.ScalarAt(i).String())
			}
			return k
		}
		check := func(c *Codec, words [][]uint64) {
			for i, col := range cols {
				out := gpu.Column{Type: col.Type, Len: rows}
				require.NoError(t, c.Unpack(l, &out, i, words, 0))
				for row := range rows {
					require.Equal(t, col.ScalarAt(row).String(), out.ScalarAt(row).String(),
						"seed %d, column %d of %v, row %d", seed, i, types, row)
				}
				out.Release()
			}
			for a := range rows {
				same := true
				for _, w := range words {
					same = same && w[a] == w[0]
				}
				require.Equal(t, slices.Equal(key(a), key(0)), same, "seed %d, rows 0 and %d", seed, a)
			}
		}
		for _, c := range []*Codec{New(l, types), NewNarrow(l, types)} {
			k, err := c.Prepare(parallel.Cores{Threads: 1}, l, cols, rows, true)
			require.NoError(t, err)
			require.True(t, c.Fits(cols))
			words := Block(c.Words)
			c.Pack(k, 0, rows, words)
			check(c, words)
			wide := c.Wide()
			more := Block(wide.Words)
			c.Repack(wide, more, words, rows)
			check(wide, more)
			k.Release()
			c.Release()
		}
		require.NoError(t, l.Close())
	}
}

// TestLargeIntegersDoNotFitANarrowCodec has a value that needs more than 32 bits: it counts unless it is under a null.
func TestLargeIntegersDoNotFitANarrowCodec(t *testing.T) {
	long := gpu.Of(gpu.Int64)
	l := memory.HeapLease("test", 0)
	c := NewNarrow(l, []gpu.Type{long, long})
	require.Equal(t, 1, c.Words)
	require.Equal(t, 2, c.Wide().Words)
	small := gpu.ColumnOf(long, []gpu.Scalar{gpu.IntScalar(long, -1<<31), gpu.IntScalar(long, 1<<31-1)})
	large := gpu.ColumnOf(long, []gpu.Scalar{gpu.IntScalar(long, 1), gpu.IntScalar(long, 1<<31)})
	require.True(t, c.Fits([]gpu.Column{small, small}))
	require.False(t, c.Fits([]gpu.Column{small, large}))
	hidden := gpu.ColumnOf(long, []gpu.Scalar{gpu.IntScalar(long, 1), gpu.Null(long)})
	gpu.Values[int64](hidden.Data, 2)[1] = 1 << 31
	require.True(t, c.Fits([]gpu.Column{hidden, small}))
	require.True(t, c.Wide().Fits([]gpu.Column{small, large}))
	c.Release()
	require.NoError(t, l.Close())
}
