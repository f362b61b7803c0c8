package parquet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"
)

// TestSnappyBlocksStandAlone decompresses each 64 KiB of a page by themselves, as a GPU does.
func TestSnappyBlocksStandAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 100, snappyBlock - 1, snappyBlock, snappyBlock + 1, 3*snappyBlock + 7, 500000} {
		random, words := make([]byte, n), []byte{}
		for i := range random {
			random[i] = byte(r.Uint32())
		}
		for len(words) < n {
			words = append(words, []string{"carefully ", "final ", "deposits ", "sleep "}[r.IntN(4)]...)
		}
		for _, src := range [][]byte{random, words[:n], make([]byte, n)} {
			out, err := snappy{}.Encode(nil, src)
			require.NoError(t, err)
			got, err := s2.Decode(nil, out)
			require.NoError(t, err)
			require.True(t, bytes.Equal(src, got))
			if n > snappyBlock {
				// What comes after the first block is a page of its own.
				tail, err := snappy{}.Encode(nil, src[snappyBlock:])
				require.NoError(t, err)
				_, skip := binary.Uvarint(tail)
				require.True(t, bytes.HasSuffix(out, tail[skip:]), n)
			}
		}
	}
}
