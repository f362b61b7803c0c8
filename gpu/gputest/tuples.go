package gputest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// testTuples partitions tuples by every algorithm, into all kinds of memory.
func testTuples(t *testing.T, open Open) {
	const factor = 0x9E3779B97F4A7C15
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.Uint32)} {
		t.Run(typ.String(), func(t *testing.T) {
			b := setUp(t, open)
			top := uint(8 * typ.Width())
			for _, c := range []struct {
				rows int
				distribution
				gpu.Digit
			}{
				{0, distribution{}, gpu.Digit{Bits: 3}},
				{1, distribution{}, gpu.Digit{}},
				{33, distribution{}, gpu.Digit{Shift: top - 1, Bits: 1, Factor: factor}},
				{4096, distribution{}, gpu.Digit{Shift: 3, Bits: 4}},
				{9001, distribution{distinct: 1}, gpu.Digit{Shift: top - 6, Bits: 6, Factor: factor}},
				{20011, distribution{distinct: 5}, gpu.Digit{Shift: top - 8, Bits: 8, Factor: factor}},
				{40001, distribution{distinct: 3000, zipf: true}, gpu.Digit{Shift: top - 9, Bits: 9, Factor: factor}},
				{30000, distribution{}, gpu.Digit{Shift: 7, Bits: 5}},
				{12289, distribution{distinct: 7}, gpu.Digit{Bits: 1}},
				{50003, distribution{}, gpu.Digit{Shift: top - 11, Bits: 11, Factor: factor}},
			} {
				for _, way := range gpu.WriteStrategies {
					for _, into := range []string{"device", "host", "interleaved"} {
						// Algorithms that buffer rows need many rows per partition.
						if b.takes() && (Thin == 0 || c.rows < 30000 || into == "host" ||
							way == gpu.WriteHierarchical) {
							b.checkTuples(typ, c.rows, c.distribution, c.Digit, gpu.TuplePass{Strategy: way}, into)
						}
					}
				}
			}
		})
	}
}

// tuples returns a column for n tuples.
func (b *bench) tuples(width, n int, into string) gpu.Column {
	b.t.Helper()
	size := int64(2 * width * n)
	var buf *gpu.Buffer
	var err error
	switch into {
	case "device":
		buf, err = b.l.Alloc(size)
	case "host":
		buf, err = b.h.Alloc(size)
	default:
		buf, err = b.dev.(gpu.Interleaver).Interleave(b.l, b.h, max(size, 3<<20), 0.5)
	}
	require.NoError(b.t, err)
	return gpu.Column{Type: gpu.TupleType(width), Len: n, Data: buf}
}

func (b *bench) checkTuples(typ gpu.Type, n int, dist distribution, d gpu.Digit, how gpu.TuplePass, into string) {
	t := b.t
	t.Helper()
	what := fmt.Sprintf("%d rows of %v, %+v, by %+v into %s memory, %v", n, typ, dist, d, into, how.Strategy)
	keys := b.random(typ, n, dist)
	value := make([]gpu.Scalar, n)
	for i := range value {
		value[i] = gpu.IntScalar(typ, int64(i))
	}
	cols := b.up(gpu.ColumnOf(typ, keys), gpu.ColumnOf(typ, value))
	var inHost *gpu.Stride
	if into == "host" { // the source too, whose partitions the CPU counts
		var err error
		inHost, err = b.q.Download(b.h,
			&gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "k", Type: typ}, gpu.Field{Name: "v", Type: typ}),
				Cols: []gpu.Column{cols[0].Retain(), cols[1].Retain()}, Rows: n})
		require.NoError(t, err)
		defer inHost.Release()
		cols, how.HostPrefix = inHost.Cols, true
	}
	to := b.tuples(typ.Width(), n, into)
	defer to.Release()
	offsets, err := experimental(b.q).PartitionTuples(b.l, to, cols[0], cols[1], d, how)
	require.NoError(t, err, what)
	require.Len(t, offsets, 1<<d.Bits+1, what)
	require.Equal(t, []int{0, n}, []int{offsets[0], offsets[len(offsets)-1]}, what)
	out, err := experimental(b.q).SplitTuples(b.l, to, typ, typ)
	require.NoError(t, err, what)
	defer gpu.ReleaseColumns(out)
	gotKeys, gotRows := b.down(out[0]), b.ints(out[1])
	found := make([]bool, n)
	for p := range 1 << d.Bits {
		for i := offsets[p]; i < offsets[p+1]; i++ {
			r := gotRows[i]
			if r < 0 || r >= n || found[r] || !same(keys[r], gotKeys[i]) || digitOf(typ, keys[r], d) != p {
				require.Failf(t, what, "tuple %d, %v of row %d, in partition %d", i, gotKeys[i], r, p)
			}
			found[r] = true
		}
	}
}
