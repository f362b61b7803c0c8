package parquet

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/hosttest"
)

// devicePage is the body of a page, and the bytes to which it decompresses.
type devicePage struct {
	name   string
	body   []byte
	raw    []byte
	stored bool // without compression
}

// columnOfPages returns a column of 8-byte values with the pages. ok is false if the host would not hand it over.
func columnOfPages(t testing.TB, l *gpu.Lease, codec format.CompressionCodec,
	pages []devicePage) (c gpu.Column, ok bool) {
	x := gpu.Pages{Stored: 8, Least: math.MinInt64, Most: math.MaxInt64}
	c = gpu.Column{Type: gpu.Of(gpu.Int64), Pages: &x}
	at := int64(0)
	for _, p := range pages {
		g := gpu.Page{At: at, Size: len(p.body), Raw: len(p.raw), Values: len(p.raw) / 8, Rows: len(p.raw) / 8,
			Codec: deviceCodecs[codec]}
		if p.stored {
			g.Codec = gpu.PageUncompressed
		} else if g.Raw/maxExpansion(codec) > len(p.body) || !walk(&x, &g, p.body) {
			return c, false
		}
		x.Data = append(x.Data, g)
		at += int64(len(p.body))
		c.Len += g.Rows
	}
	data, err := l.Alloc(at + slack)
	require.NoError(t, err)
	b := data.Bytes()
	for _, p := range pages {
		b = b[copy(b, p.body):]
	}
	clear(b)
	c.Data = data.View(0, at)
	data.Release()
	return c, true
}

// decompressOnDevice decompresses pages as columns of one stride. It returns nil for a page that the device leaves to
// the CPU. Pages that the host would not hand over are nil too.
func decompressOnDevice(t *testing.T, codec format.CompressionCodec, pages []devicePage) (out [][]byte) {
	lease := hosttest.Budget(t, 0).Lease("pages")
	defer func() { require.NoError(t, lease.Close()) }()
	rows := 0
	for _, p := range pages {
		rows = max(rows, len(p.raw)/8)
	}
	s := &gpu.Stride{Schema: &gpu.Schema{}, Rows: rows}
	var left []bool
	var at []int
	out = make([][]byte, len(pages))
	for i, p := range pages {
		rest := make([]byte, 8*rows-len(p.raw)) // all columns of a stride have as many rows
		c, ok := columnOfPages(t, lease, codec, []devicePage{p, {body: rest, raw: rest, stored: true}})
		if !ok {
			continue
		}
		k := len(at)
		c.Pages.Decode = func(reason string) (gpu.Column, error) {
			require.NotEmpty(t, reason)
			left[k] = true
			return gpu.ColumnOf(c.Type, make([]gpu.Scalar, rows)), nil
		}
		s.Cols = append(s.Cols, c)
		s.Schema.Fields = append(s.Schema.Fields, gpu.Field{Name: fmt.Sprint(i), Type: c.Type})
		at, left = append(at, i), append(left, false)
	}
	if len(at) == 0 {
		return out
	}
	require.NoError(t, s.Check())
	q, err := decoder(t).NewQueue("decompress")
	require.NoError(t, err)
	got, err := throughDevice(t, q, s)
	require.NoError(t, err)
	for k, i := range at {
		if !left[k] {
			out[i] = []byte{}
			for row := range len(pages[i].raw) / 8 {
				out[i] = binary.LittleEndian.AppendUint64(out[i], got.Cols[k].ScalarAt(row).Int.Lo)
			}
		}
	}
	got.Release()
	return out
}

// samples are bytes with the patterns that compressors treat in different ways. Their lengths are multiples of 8.
func samples(r *rand.Rand, large bool) map[string][]byte {
	n := 3000
	if large {
		n = 150000
	}
	fill := func(n int, f func(i int) byte) []byte {
		b := make([]byte, n/8*8)
		for i := range b {
			b[i] = f(i)
		}
		return b
	}
	words := strings.Fields("furiously ironic deposits sleep quickly above the carefully final packages among accounts")
	var text bytes.Buffer
	for text.Len() < 2*n {
		text.WriteString(words[r.IntN(len(words))] + " ")
	}
	var ints bytes.Buffer
	for i := range n / 4 {
		_ = binary.Write(&ints, binary.LittleEndian, int64(i*3+r.IntN(5)))
	}
	far := fill(n, func(int) byte { return byte(r.Uint32()) })
	mixed := fill(n, func(i int) byte { return byte(r.IntN(1 + i*250/n)) })
	return map[string][]byte{
		"none":     {},
		"tiny":     []byte("abcdefgh"),
		"zeros":    make([]byte, n),
		"random":   fill(n, func(int) byte { return byte(r.Uint32()) }),
		"skewed":   fill(2*n, func(int) byte { return byte(r.IntN(6) * r.IntN(6)) }),
		"period":   fill(n, func(i int) byte { return byte(i % 7) }),
		"text":     text.Bytes()[:text.Len()/8*8],
		"integers": ints.Bytes(),
		"far":      append(append(append([]byte{}, far...), mixed...), far...),
		"mixed":    append(append(mixed, make([]byte, n)...), text.Bytes()[:n]...),
	}
}

// zstdPages compresses samples with each level of the Go encoder.
func zstdPages(t *testing.T, r *rand.Rand, large bool) (pages []devicePage) {
	for name, raw := range samples(r, large) {
		for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBestCompression} {
			for _, checksum := range []bool{false, true} {
				w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(checksum),
					zstd.WithEncoderConcurrency(1))
				require.NoError(t, err)
				pages = append(pages, devicePage{name: fmt.Sprint(name, " ", level, " ", checksum),
					body: w.EncodeAll(raw, nil), raw: raw})
				half := len(raw) / 2
				two := w.EncodeAll(raw[half:], w.EncodeAll(raw[:half], nil))
				pages = append(pages, devicePage{name: fmt.Sprint(name, " ", level, " in two frames"), body: two,
					raw: raw})
			}
		}
	}
	return pages
}

// pythonPages compresses samples with PyArrow, whose codecs are those of most other writers.
func pythonPages(t *testing.T, r *rand.Rand, codec string, levels []int) []devicePage {
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(levels), " ", ","), "[]")
	return pythonBodies(t, r, len(levels), "level of PyArrow", `
import sys, base64, pyarrow as pa
codec, levels = sys.argv[1], sys.argv[2].split(",")
for line in sys.stdin:
    raw = base64.b64decode(line)
    for level in levels:
        c = pa.Codec(codec, int(level)) if level != "0" else pa.Codec(codec)
        print(base64.b64encode(c.compress(raw, asbytes=True)).decode())
`, codec, list)
}

// pythonBodies compresses samples with a script, in a number of ways each.
func pythonBodies(t *testing.T, r *rand.Rand, ways int, what, script string, args ...string) (pages []devicePage) {
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		return nil
	}
	var in strings.Builder
	for name, raw := range samples(r, true) {
		in.WriteString(base64.StdEncoding.EncodeToString(raw) + "\n")
		for k := range ways {
			pages = append(pages, devicePage{name: fmt.Sprint(name, ", ", what, " ", k), raw: raw})
		}
	}
	cmd := exec.Command(python, append([]string{"-c", script}, args...)...)
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	for i, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		pages[i].body, err = base64.StdEncoding.DecodeString(line)
		require.NoError(t, err)
	}
	return pages
}

func TestADeviceDecompressesZstd(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	r := rand.New(rand.NewPCG(gputest.Seed(t), 1))
	requireDecompressed(t, format.Zstd, append(zstdPages(t, r, false), zstdPages(t, r, true)...))
	requireDecompressed(t, format.Zstd, pythonPages(t, r, "zstd", []int{1, 3, 9, 19, -5}))
}

// lz4Pages compresses samples with LZ4, with and without Hadoop's frames.
func lz4Pages(t *testing.T, r *rand.Rand, large, framed bool) (pages []devicePage) {
	for name, raw := range samples(r, large) {
		for _, best := range []bool{false, true} {
			if best && large {
				continue // it takes seconds for a repeated byte
			}
			compress := func(raw []byte) []byte {
				out := make([]byte, lz4.CompressBlockBound(len(raw)))
				var n int
				var err error
				if best {
					n, err = new(lz4.CompressorHC).CompressBlock(raw, out)
				} else {
					n, err = new(lz4.Compressor).CompressBlock(raw, out)
				}
				require.NoError(t, err)
				return out[:n]
			}
			body := compress(raw)
			if framed && len(raw) > 0 {
				half := len(raw) / 2
				first, second := compress(raw[:half]), compress(raw[half:])
				body = binary.BigEndian.AppendUint32(nil, uint32(half))
				body = append(binary.BigEndian.AppendUint32(body, uint32(len(first))), first...)
				body = binary.BigEndian.AppendUint32(body, uint32(len(raw)-half))
				body = append(binary.BigEndian.AppendUint32(body, uint32(len(second))), second...)
				one := binary.BigEndian.AppendUint32(nil, uint32(len(raw)))
				one = append(binary.BigEndian.AppendUint32(one, uint32(len(first))), first...)
				one = append(binary.BigEndian.AppendUint32(one, uint32(len(second))), second...)
				pages = append(pages, devicePage{name: fmt.Sprint(name, " in one frame"), body: one, raw: raw})
			}
			pages = append(pages, devicePage{name: fmt.Sprint(name, " ", best, " ", framed), body: body, raw: raw})
		}
	}
	return pages
}

func TestADeviceDecompressesLZ4(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	r := rand.New(rand.NewPCG(gputest.Seed(t), 1))
	pages := append(lz4Pages(t, r, false, false), lz4Pages(t, r, true, false)...)
	requireDecompressed(t, format.Lz4Raw, append(pages, pythonPages(t, r, "lz4_raw", []int{0})...))
	pages = append(pages, lz4Pages(t, r, false, true)...)
	requireDecompressed(t, format.Lz4, append(pages, lz4Pages(t, r, true, true)...))
}

func TestADeviceFindsDamagedLZ4(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	r := rand.New(rand.NewPCG(gputest.Seed(t), 1))
	requireDamageFound(t, r, format.Lz4Raw, lz4Pages(t, r, false, false))
	requireDamageFound(t, r, format.Lz4, lz4Pages(t, r, false, true))
}

// gzipPages compresses samples with GZIP at several levels: as one member, with all fields of a header, and as two
// members of several blocks each.
func gzipPages(t *testing.T, r *rand.Rand, large bool) (pages []devicePage) {
	levels := []int{gzip.NoCompression, gzip.HuffmanOnly, 1, 4, 6, 9}
	for name, raw := range samples(r, large) {
		for _, level := range levels {
			compress := func(head gzip.Header, parts ...[]byte) []byte {
				var b bytes.Buffer
				w, err := gzip.NewWriterLevel(&b, level)
				require.NoError(t, err)
				w.Header = head
				for _, p := range parts {
					_, err = w.Write(p)
					require.NoError(t, err)
					require.NoError(t, w.Flush())
				}
				require.NoError(t, w.Close())
				return b.Bytes()
			}
			of := fmt.Sprint(name, ", level ", level)
			head := gzip.Header{Name: "a name", Comment: "a comment", Extra: []byte{1, 0, 2}}
			pages = append(pages, devicePage{name: of, body: compress(gzip.Header{}, raw), raw: raw},
				devicePage{name: of + " with a checksum of the header", raw: raw,
					body: withHeaderChecksum(compress(head, raw), 10+2+3+7+10)})
			k, half := len(raw)/3, len(raw)/2
			pages = append(pages, devicePage{name: of + " in two members", raw: raw,
				body: append(compress(head, raw[:k], raw[k:half]), compress(gzip.Header{}, raw[half:], nil)...)})
		}
	}
	return pages
}

// withHeaderChecksum adds the checksum of a header of n bytes to a member.
func withHeaderChecksum(b []byte, n int) []byte {
	head := bytes.Clone(b[:n])
	head[3] |= 2
	return append(binary.LittleEndian.AppendUint16(head, uint16(crc32.ChecksumIEEE(head))), b[n:]...)
}

// zlibPages compresses samples with strategies of zlib that other writers do not use, such as blocks without codes.
func zlibPages(t *testing.T, r *rand.Rand) []devicePage {
	return pythonBodies(t, r, 5, "strategy", `
import sys, base64, zlib
for line in sys.stdin:
    raw = base64.b64decode(line)
    for strategy in range(5):
        c = zlib.compressobj(6, zlib.DEFLATED, 31, 9, strategy)
        print(base64.b64encode(c.compress(raw) + c.flush()).decode())
`)
}

func TestADeviceDecompressesGzip(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	r := rand.New(rand.NewPCG(gputest.Seed(t), 1))
	requireDecompressed(t, format.Gzip, append(gzipPages(t, r, false), gzipPages(t, r, true)...))
	requireDecompressed(t, format.Gzip, append(pythonPages(t, r, "gzip", []int{1, 4, 9}), zlibPages(t, r)...))
}

func TestADeviceFindsDamagedGzip(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	r := rand.New(rand.NewPCG(gputest.Seed(t), 1))
	requireDamageFound(t, r, format.Gzip, gzipPages(t, r, false))
}

// requireDecompressed checks that a device decompresses pages, in several strides.
func requireDecompressed(t *testing.T, codec format.CompressionCodec, pages []devicePage) {
	thin, i := gputest.ThinOr(t, 41), 0
	var some []devicePage
	for _, p := range pages {
		if i++; len(p.raw) < 10000 || gputest.Takes(thin, i) {
			some = append(some, p)
		}
	}
	for len(some) > 0 {
		n := min(len(some), 40)
		for k, got := range decompressOnDevice(t, codec, some[:n]) {
			want := make([]byte, len(some[k].raw))
			require.NoError(t, decompress(codec, want, some[k].body), some[k].name)
			require.NotNil(t, got, some[k].name)
			require.True(t, bytes.Equal(want, got), some[k].name)
		}
		some = some[n:]
	}
}

// requireDamageFound checks that a device leaves to the CPU what the CPU rejects, and otherwise finds the same bytes.
func requireDamageFound(t *testing.T, r *rand.Rand, codec format.CompressionCodec, pages []devicePage) {
	cases := gputest.Cases(t, 300)
	same, found := 0, 0
	for cases > 0 {
		var bad []devicePage
		for range 60 {
			p := pages[r.IntN(len(pages))]
			p.body = damaged(r, p.body, pages[r.IntN(len(pages))].body)
			if r.IntN(10) == 0 && len(p.raw) > 8 {
				p.raw = p.raw[:len(p.raw)-8]
			}
			bad = append(bad, p)
		}
		cases -= len(bad)
		for k, got := range decompressOnDevice(t, codec, bad) {
			p := bad[k]
			want := make([]byte, len(p.raw))
			err := decompress(codec, want, p.body)
			if len(p.raw) == 0 && len(p.body) == 0 {
				err = nil // a page of nulls
			}
			if got == nil {
				found++
				continue
			}
			same++
			require.NoError(t, err, "%s: %x", p.name, p.body)
			require.True(t, bytes.Equal(want, got), "%s: %x", p.name, p.body)
		}
	}
	require.Positive(t, found)
	require.Positive(t, same)
}

// damaged returns a copy of a page with some mistakes.
func damaged(r *rand.Rand, b, other []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + r.IntN(2) {
		if len(b) == 0 {
			return []byte{byte(r.Uint32())}
		}
		at := r.IntN(len(b))
		if r.IntN(2) == 0 {
			at = r.IntN(min(len(b), 24)) // headers
		}
		switch r.IntN(8) {
		case 0:
			b = b[:at]
		case 1:
			b = append(b[:at:at], b[min(len(b), at+1+r.IntN(8)):]...)
		case 2:
			b = append(b[:at:at], append(make([]byte, 1+r.IntN(4)), b[at:]...)...)
		case 3:
			b[at] = byte(r.Uint32())
		case 4:
			if len(other) > 0 {
				n := copy(b[at:], other[min(at, len(other)-1):])
				b = b[:at+n]
			}
		default:
			b[at] ^= 1 << r.IntN(8)
		}
	}
	return b
}

func TestADeviceFindsDamagedZstd(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	r := rand.New(rand.NewPCG(gputest.Seed(t), 1))
	requireDamageFound(t, r, format.Zstd, zstdPages(t, r, false))
}
