package parquet

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/klauspost/compress/zstd"
	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"
)

var codecs = []compress.Codec{&pq.Snappy, &pq.Gzip, &pq.Brotli, &pq.Zstd, &pq.Lz4Raw}

// text returns a page that compresses, but not to a few bytes.
func text(n int) []byte {
	r := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefgh"[r.IntN(8)]
	}
	return b
}

func compressed(t *testing.T, c compress.Codec, page []byte) []byte {
	t.Helper()
	b, err := c.Encode(nil, page)
	require.NoError(t, err)
	return bytes.Clone(b)
}

func TestAChangedBitIsFoundByTheChecksumOfTheCodec(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	page, dst := text(3000), make([]byte, 3000)
	zstd, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true))
	require.NoError(t, err)
	for codec, b := range map[format.CompressionCodec][]byte{
		format.Gzip: compressed(t, &pq.Gzip, page),
		format.Zstd: zstd.EncodeAll(page, nil),
	} {
		for i := range 8 * len(b) {
			b[i/8] ^= 1 << (i % 8)
			// Some bits of the header have no meaning.
			if decompress(codec, dst, b) == nil {
				require.True(t, bytes.Equal(page, dst), "%v, bit %d", codec, i)
			}
			b[i/8] ^= 1 << (i % 8)
		}
		require.NoError(t, decompress(codec, dst, b))
	}
}

func TestAPageThatIsCutOrContinuedDoesNotDecompress(t *testing.T) {
	for _, n := range []int{0, 1, 3000} {
		page := text(n)
		for _, c := range codecs {
			b := compressed(t, c, page)
			codec := c.CompressionCodec()
			require.NoError(t, decompress(codec, make([]byte, n), b), "%v", codec)
			for _, behind := range [][]byte{{0}, {1}, {0xff}, []byte("behind the end")} {
				require.Error(t, decompress(codec, make([]byte, n), append(bytes.Clone(b), behind...)),
					"%v of %d bytes and %q", codec, n, behind)
			}
			if n > 0 {
				dst := make([]byte, n)
				if decompress(codec, dst, b[:len(b)-1]) == nil {
					// its last byte may carry no more than the header
					require.Equal(t, format.Brotli, codec, "%d bytes", n)
					require.Equal(t, page, dst)
				}
				require.Error(t, decompress(codec, make([]byte, n-1), b), "%v of %d bytes", codec, n)
			}
			require.Error(t, decompress(codec, make([]byte, n+1), b), "%v of %d bytes", codec, n)
		}
	}
}

func TestGzipMembersMakeOnePage(t *testing.T) {
	page := text(3000)
	b := append(compressed(t, &pq.Gzip, page[:1000]), compressed(t, &pq.Gzip, page[1000:])...)
	dst := make([]byte, 3000)
	require.NoError(t, decompress(format.Gzip, dst, b))
	require.Equal(t, page, dst)
}
