package aggregate

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// TestExtremesOfTextsThatBeginAlike compares min and max of short strings of few bytes, zeros among
// them, with those that strings have: many are equal in their first eight bytes, or the begin of
// another one.
func TestExtremesOfTextsThatBeginAlike(t *testing.T) {
	_, l := open(t)
	rnd := rand.New(rand.NewPCG(5, 6))
	const rows, groups = 700, 60
	typ := gpu.Of(gpu.String)
	text := func() gpu.Scalar {
		if rnd.IntN(8) == 0 {
			return gpu.Null(typ)
		}
		b := make([]byte, rnd.IntN(12))
		for i := range b {
			b[i] = "\x00\x00\x00\x00a\xff"[rnd.IntN(6)]
		}
		return gpu.StringScalar(string(b))
	}
	for _, coded := range []bool{false, true} {
		least, most := &extremeBytes{}, &extremeBytes{max: true}
		low, high := map[int32]string{}, map[int32]string{}
		for range 3 {
			values, ids := make([]gpu.Scalar, rows), make([]int32, rows)
			for i := range values {
				values[i], ids[i] = text(), int32(rnd.IntN(groups))
			}
			c := gpu.ColumnOf(typ, values)
			if coded {
				codes := make([]gpu.Scalar, rows)
				for i := range codes {
					codes[i] = gpu.IntScalar(gpu.Of(gpu.Int32), int64(rows-1-i))
					if !values[rows-1-i].Valid {
						codes[i] = gpu.Null(codes[i].Type)
					}
				}
				dict := &gpu.Dictionary{Values: c}
				c = gpu.ColumnOf(gpu.Of(gpu.Int32), codes)
				c.Type, c.Dict = typ, dict
			}
			require.NoError(t, least.update(oneCore, l, ids, c, groups))
			require.NoError(t, most.update(oneCore, l, ids, c, groups))
			for i, id := range ids {
				if !c.IsValid(i) {
					continue
				}
				v := string(c.VarValue(i))
				if w, ok := low[id]; !ok || v < w {
					low[id] = v
				}
				if w, ok := high[id]; !ok || v > w {
					high[id] = v
				}
			}
		}
		require.Len(t, low, groups)
		for id := range int32(groups) {
			require.Equal(t, low[id], string(least.best.value(int(id))))
			require.Equal(t, high[id], string(most.best.value(int(id))))
		}
		least.release()
		most.release()
	}
	require.NoError(t, l.Close())
}
