package aggregate

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// TestSumsOfAnySize compares sums of groups with those of big integers: of values that stay small, that
// need the bound of the sums anew, and that leave 64 bits, in columns of 8 and of 16 bytes.
func TestSumsOfAnySize(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	_, l := open(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	const rows = parallel.Grain + 100
	for _, bits := range []int{1, 20, 44, 47, 50, 63, 64} {
		for _, groups := range []int{1, 2, 700} {
			for _, kind := range []gpu.Kind{gpu.Int64, gpu.Uint64, gpu.HugeInt} {
				s, want := &intSum{}, make([]big.Int, groups)
				for round := range 6 {
					ids, values := make([]int32, rows), make([]uint64, rows)
					wide, err := memory.New[gpu.Int128](l, rows)
					require.NoError(t, err)
					// Later rounds may have more groups.
					n := max(1, groups*min(round+1, 3)/3)
					for i := range ids {
						ids[i], values[i] = int32(rnd.IntN(n)), uint64(int64(rnd.Uint64())>>(64-bits))
						if round%2 == 0 {
							values[i] = values[i] & (1<<(bits-1) - 1) // positive
						}
						v := gpu.Int128From(int64(values[i]))
						if kind == gpu.Uint64 {
							v.Hi = 0
						}
						wide.V[i] = v
						x := new(big.Int).SetUint64(v.Lo)
						want[ids[i]].Add(&want[ids[i]], x.Add(x, new(big.Int).Lsh(big.NewInt(v.Hi), 64)))
					}
					c := gpu.Column{Type: gpu.Of(kind), Len: rows, Data: gpu.WrapBytes(gpu.BytesOf(values))}
					if kind == gpu.HugeInt {
						c.Data = wide.Buf
					}
					require.NoError(t, s.update(parallel.Cores{Threads: 2}, l, ids, c, n))
					wide.Release()
				}
				for g := range want {
					v := s.at(g)
					got := new(big.Int).SetUint64(v.Lo)
					require.Equal(t, want[g].String(), got.Add(got, new(big.Int).Lsh(big.NewInt(v.Hi), 64)).String(),
						"%d bits, %d groups, %v", bits, groups, kind)
				}
				s.release()
			}
		}
	}
	require.NoError(t, l.Close())
}

// TestSumBlock compares sums with those of big integers, among them sums at and just outside
// the range of 64 bits.
func TestSumBlock(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	blocks := [][]int64{nil, {math.MaxInt64}, {math.MinInt64}, {math.MaxInt64, 1}, {math.MaxInt64, 1, -1},
		{math.MinInt64, -1}, {math.MinInt64, -1, 1},
		{math.MinInt64, math.MaxInt64}, {-1, -1, -1}, {math.MaxInt64, math.MaxInt64, 2}, {math.MinInt64, math.MinInt64}}
	for range 200 {
		block := make([]int64, rnd.IntN(word.Block))
		for i := range block {
			block[i] = int64(rnd.Uint64()) >> rnd.IntN(64)
		}
		blocks = append(blocks, block)
	}
	outside := 0
	for _, block := range blocks {
		want, words := new(big.Int), make([]uint64, len(block))
		for i, v := range block {
			want.Add(want, big.NewInt(v))
			words[i] = uint64(v)
		}
		sum, wraps := sumBlock(words, 0)
		require.Equal(t, !want.IsInt64(), wraps < 0, "%v", block)
		if want.IsInt64() {
			require.Equal(t, want.Int64(), sum, "%v", block)
		} else {
			outside++
		}
	}
	require.Greater(t, outside, 10)
	_, wraps := sumBlock([]uint64{1, 1 << 63, 2}, -1)
	require.Negative(t, wraps, "2^63 as an unsigned value")
	_, wraps = sumBlock([]uint64{1, 1<<63 - 1}, -1)
	require.Negative(t, wraps)
	_, wraps = sumBlock([]uint64{1, 1<<63 - 2}, -1)
	require.GreaterOrEqual(t, wraps, int64(0))
}
