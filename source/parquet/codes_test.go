package parquet

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCodesOutsideOfTheDictionaryAreFound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 1000, 1 << 20, math.MaxInt32} {
		for length := range 20 {
			codes := make([]int32, length)
			for i := range codes {
				codes[i] = int32(r.IntN(n))
				if i%3 == 0 {
					codes[i] = int32(n - 1)
				}
			}
			_, ok := outside(codes, n)
			require.True(t, ok, "%v in [0, %d)", codes, n)
			for i := range codes {
				for _, wrong := range []uint32{uint32(n), uint32(n) + 1, math.MaxInt32, 1 << 31, math.MaxUint32} {
					if int64(wrong) < int64(n) {
						continue
					}
					kept := codes[i]
					codes[i] = int32(wrong)
					found, ok := outside(codes, n)
					require.False(t, ok, "%v in [0, %d)", codes, n)
					require.Equal(t, wrong, found)
					codes[i] = kept
				}
			}
		}
	}
	_, ok := outside([]int32{0}, 0)
	require.False(t, ok)
	_, ok = outside(nil, 0)
	require.True(t, ok)
}
