package host

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSumBlock compares sums with those of big integers, among them sums at and just outside
// the range of 64 bits.
func TestSumBlock(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	blocks := [][]int64{nil, {math.MaxInt64}, {math.MinInt64}, {math.MaxInt64, 1}, {math.MaxInt64, 1, -1}, {math.MinInt64, -1}, {math.MinInt64, -1, 1},
		{math.MinInt64, math.MaxInt64}, {-1, -1, -1}, {math.MaxInt64, math.MaxInt64, 2}, {math.MinInt64, math.MinInt64}}
	for range 200 {
		block := make([]int64, rnd.IntN(probeBlock))
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
