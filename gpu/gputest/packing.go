package gputest

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// testPacking packs keys of every type, in several batches per packing, and unpacks some of them.
func testPacking(t *testing.T, open Open) {
	for i, k := range keyCases() {
		if !Takes(min(Thin, 3), i) {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			setUp(t, open).checkPacking(k, 0, 1, 500, 3000, 64)
		})
	}
	i8, i16, truth := gpu.Of(gpu.Int8), gpu.Of(gpu.Int16), gpu.Of(gpu.Bool)
	dense, nulls := distribution{distinct: 5}, distribution{nulls: 0.2}
	for _, k := range []keyCase{
		{"all bits", []gpu.Type{i16, i8, i8, gpu.Of(gpu.Uint32)}, make([]bool, 4), make([]distribution, 4)},
		{"a bit too many", []gpu.Type{gpu.Of(gpu.Uint64), truth}, make([]bool, 2), make([]distribution, 2)},
		{"bits and nulls", []gpu.Type{truth, truth, i8}, make([]bool, 3), []distribution{nulls, {}, nulls}},
		{"codes", []gpu.Type{gpu.Of(gpu.String), gpu.Of(gpu.String)}, []bool{true, true},
			[]distribution{dense, {distinct: 3, nulls: 0.1}}},
		{"many strings", []gpu.Type{gpu.Of(gpu.String)}, []bool{false}, []distribution{{distinct: 4000}}},
		{"all null", []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.String)}, []bool{false, true},
			[]distribution{{nulls: 1}, {nulls: 1}}},
	} {
		t.Run(k.name, func(t *testing.T) {
			setUp(t, open).checkPacking(k, 3000, 2, 700)
		})
	}
}

func (b *bench) checkPacking(k keyCase, batches ...int) {
	t := b.t
	t.Helper()
	p, err := b.q.NewPacking(b.l, k.types)
	require.NoError(t, err)
	defer p.Release()
	for _, n := range batches {
		cols, labels, _ := b.draw(k, n)
		packed, err := p.Pack(b.q, b.l, cols, n)
		if errors.Is(err, gpu.ErrUnfit) {
			width := 0
			for _, t := range k.types {
				width += 8 * max(4, t.Width()) // at most
			}
			require.GreaterOrEqual(t, width, 64)
			require.True(t, b.dev.Properties().BlockTables, "only tables of blocks want keys of 64 bits")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, n, packed.Key().Len)
		byLabel, byKey := map[string]uint64{}, map[uint64]string{}
		var firsts []int32
		for r, s := range b.down(packed.Key()) {
			key := s.Int.Lo
			require.True(t, packed.Bits() == 64 || key>>packed.Bits() == 0, "%d bits have %d", packed.Bits(), key)
			old, ok := byLabel[labels[r]]
			if ok {
				require.Equal(t, old, key, "equal keys are packed alike")
				continue
			}
			require.NotContains(t, byKey, key, "different keys are packed alike: %q and %q", byKey[key], labels[r])
			byLabel[labels[r]], byKey[key] = key, labels[r]
			firsts = append(firsts, int32(r))
		}
		for _, at := range [][]int32{firsts, firsts[len(firsts)/3 : len(firsts)/2]} {
			keys, err := b.q.Gather(b.l, []gpu.Column{packed.Key()}, b.ids(at), false)
			require.NoError(t, err)
			out, err := packed.Unpack(b.q, b.l, keys[0])
			require.NoError(t, err)
			parts := make([][]string, len(at))
			for i, c := range out {
				require.Equal(t, k.types[i], c.Type)
				for r, v := range b.down(c) {
					parts[r] = append(parts[r], label(v))
				}
			}
			for r, row := range at {
				require.Equal(t, labels[row], strings.Join(parts[r], "\x01"))
			}
			gpu.ReleaseColumns(append(out, keys...))
		}
		packed.Release()
	}
}
