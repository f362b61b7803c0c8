package parquet

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCodesOutsideOfTheDictionaryAreFound(t *testing.T) {
	t.Run("4 bytes", func(t *testing.T) { findsOutside[int32](t, math.MaxUint32, 1, 2, 3, 1000, 1<<20, math.MaxInt32) })
	t.Run("2 bytes", func(t *testing.T) {
		findsOutside[uint16](t, math.MaxUint16, 1, 2, 3, 255, 256, 257, 1000, 1<<15, 1<<16-1, 1<<16)
	})
	t.Run("1 byte", func(t *testing.T) { findsOutside[uint8](t, math.MaxUint8, 1, 2, 3, 127, 128, 129, 255, 256) })
}

// findsOutside puts codes up to most that are too large at every position.
func findsOutside[T code](t *testing.T, most uint32, sizes ...int) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range sizes {
		for length := range 40 {
			codes := make([]T, length)
			for i := range codes {
				codes[i] = T(r.IntN(n))
				if i%3 == 0 {
					codes[i] = T(n - 1)
				}
			}
			_, ok := outside(codes, n)
			require.True(t, ok, "%v in [0, %d)", codes, n)
			for i := range codes {
				for _, wrong := range []uint32{uint32(n), uint32(n) + 1, most/2 + 1, most - 1, most} {
					if int64(wrong) < int64(n) || wrong > most {
						continue
					}
					kept := codes[i]
					codes[i] = T(wrong)
					found, ok := outside(codes, n)
					require.False(t, ok, "%v in [0, %d)", codes, n)
					require.Equal(t, wrong, found)
					codes[i] = kept
				}
			}
		}
	}
	_, ok := outside([]T{0}, 0)
	require.False(t, ok)
	_, ok = outside[T](nil, 0)
	require.True(t, ok)
}

func TestPackedCodesAreUnpackedFromAnyPosition(t *testing.T) {
	t.Run("4 bytes", func(t *testing.T) { unpacks[int32](t, 32) })
	t.Run("2 bytes", func(t *testing.T) { unpacks[uint16](t, 16) })
	t.Run("1 byte", func(t *testing.T) { unpacks[uint8](t, 8) })
}

// unpacks takes values of each width in parts that begin anywhere in a group.
func unpacks[T code](t *testing.T, bits uint) {
	r := rand.New(rand.NewPCG(3, 4))
	for width := uint(1); width <= bits; width++ {
		want := make([]uint32, 8*30)
		packed := make([]byte, 30*int(width), 30*int(width)+slack)
		for i := range want {
			want[i] = r.Uint32() & uint32(1<<width-1)
			for b := range int(width) {
				putBit(packed, i*int(width)+b, want[i]>>b&1 != 0)
			}
		}
		src := append([]byte{30<<1 | 1}, packed...)
		src = append(src, make([]byte, slack)...)[:len(src)]
		for _, parts := range [][]int{{240}, {1, 239}, {7, 9, 8, 216}, {3, 3, 3, 64, 15, 152}} {
			h := hybrid{src: src, width: width}
			at := 0
			for _, n := range parts {
				got := make([]T, n)
				require.NoError(t, decode(&h, got))
				for i, v := range got {
					require.Equal(t, T(want[at+i]), v, "value %d of %d bits", at+i, width)
				}
				at += n
			}
		}
	}
}

func TestARepeatedCodeOfMoreBitsThanCodesHaveIsRefused(t *testing.T) {
	src := append([]byte{10 << 1, 8}, make([]byte, slack)...)[:2]
	h := hybrid{src: src, width: 3}
	require.ErrorContains(t, decode(&h, make([]uint8, 10)), "more than 3 bits")
}
