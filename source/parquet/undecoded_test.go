package parquet

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
)

// pagesCase is a file whose pages a device decodes.
type pagesCase struct {
	codec          compress.Codec
	version, bytes int // of pages
	dictionary     bool
	encoded        bool    // with the less frequent encodings
	nulls          float64 // share of nulls; negative for a column that has none
	distinct       int
	rows           int
}

func (c pagesCase) String() string {
	return fmt.Sprintf("%v, version %d, pages of %d bytes, dictionary %v, encoded %v, nulls %g, %d distinct, %d rows",
		c.codec, c.version, c.bytes, c.dictionary, c.encoded, c.nulls, c.distinct, c.rows)
}

// file writes a file with a column of each type that a device decodes.
func (c pagesCase) file(t *testing.T) []string {
	r := rand.New(rand.NewPCG(uint64(c.rows), uint64(c.distinct)))
	nodes := pq.Group{
		"int8": pq.Int(8), "uint16": pq.Uint(16), "int32": pq.Int(32), "int64": pq.Int(64), "uint64": pq.Uint(64),
		"float": pq.Leaf(pq.FloatType), "double": pq.Leaf(pq.DoubleType), "date": pq.Date(),
		"time": pq.Time(pq.Microsecond),
		"dec9": pq.Decimal(2, 9, pq.Int32Type), "dec18": pq.Decimal(4, 18, pq.Int64Type),
		"bool":   pq.Leaf(pq.BooleanType),
		"string": pq.String(), "binary": pq.Leaf(pq.ByteArrayType), "wide": pq.String(), "prefixed": pq.String(),
		"uuid": pq.UUID(), "fixed": pq.Leaf(pq.FixedLenByteArrayType(5)),
		"half": pq.Leaf(float16{pq.FixedLenByteArrayType(2)}),
		"dec5": pq.Decimal(2, 5, pq.FixedLenByteArrayType(3)), "dec30": pq.Decimal(3, 30, pq.FixedLenByteArrayType(13)),
		"dec20": pq.Decimal(3, 20, pq.FixedLenByteArrayType(20)), "int96": pq.Leaf(pq.Int96Type),
	}
	encodings := map[string][]encoding.Encoding{}
	integers := []encoding.Encoding{&pq.DeltaBinaryPacked, &pq.ByteStreamSplit}
	for _, name := range []string{"int8", "uint16", "int32", "int64", "uint64", "date", "time", "dec9", "dec18"} {
		encodings[name] = integers
	}
	for _, name := range []string{"string", "binary", "wide", "prefixed"} {
		encodings[name] = []encoding.Encoding{&pq.DeltaLengthByteArray, &pq.DeltaByteArray}
	}
	for _, name := range []string{"uuid", "fixed", "half", "dec5", "dec30", "dec20"} {
		encodings[name] = []encoding.Encoding{&pq.ByteStreamSplit, &pq.DeltaByteArray}
	}
	encodings["float"], encodings["double"] = integers[1:], integers[1:]
	draw := map[string]func(k int) pq.Value{
		"int8":     func(k int) pq.Value { return pq.ValueOf(int32(int8(k))) },
		"uint16":   func(k int) pq.Value { return pq.ValueOf(int32(uint16(k * 977))) },
		"int32":    func(k int) pq.Value { return pq.ValueOf(int32(k * 1234567)) },
		"int64":    func(k int) pq.Value { return pq.ValueOf(int64(k) * 0x1234567891) },
		"uint64":   func(k int) pq.Value { return pq.ValueOf(int64(uint64(k) * 0x9e3779b97f4a7c15)) },
		"float":    func(k int) pq.Value { return pq.ValueOf(float32(k) / 3) },
		"double":   func(k int) pq.Value { return pq.ValueOf(float64(k) / 7) },
		"date":     func(k int) pq.Value { return pq.ValueOf(int32(k)) },
		"time":     func(k int) pq.Value { return pq.ValueOf(int64(k) * 1000 % 86400e6) },
		"dec9":     func(k int) pq.Value { return pq.ValueOf(int32(k % 1e9)) },
		"dec18":    func(k int) pq.Value { return pq.ValueOf(-int64(k) * 1e9) },
		"bool":     func(k int) pq.Value { return pq.ValueOf(k%3 == 0) },
		"string":   func(k int) pq.Value { return pq.ValueOf(strings.Repeat("ab", k%9) + fmt.Sprint(k)) },
		"binary":   func(k int) pq.Value { return pq.ValueOf(bytes.Repeat([]byte{byte(k), 0xff}, k%5)) },
		"wide":     func(k int) pq.Value { return pq.ValueOf(strings.Repeat("é", k%70) + "字😀") },
		"prefixed": func(k int) pq.Value { return pq.ValueOf("https://example.com/" + strings.Repeat("a", k%50)) },
		"uuid":     fixedBytes(16), "fixed": fixedBytes(5), "half": fixedBytes(2), "dec20": signed(20, 7),
		"dec5": signed(3, 2), "dec30": signed(13, 11),
		"int96": func(k int) pq.Value {
			return pq.ValueOf(deprecated.Int96{uint32(k) * 12345, uint32(k), 2440588 + uint32(k)})
		},
	}
	for name, n := range nodes {
		if c.dictionary && name != "bool" {
			n = pq.Encoded(n, &pq.RLEDictionary)
		} else if list := encodings[name]; c.encoded && list != nil {
			n = pq.Encoded(n, list[(c.version+c.rows+c.distinct)%len(list)])
		}
		if c.nulls >= 0 {
			n = pq.Optional(n)
		}
		nodes[name] = n
	}
	schema := pq.NewSchema("pages", nodes)
	path := filepath.Join(t.TempDir(), "pages.parquet")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := pq.NewWriter(f, schema, pq.Compression(c.codec), pq.DataPageVersion(c.version), pq.PageBufferSize(c.bytes),
		pq.MaxRowsPerRowGroup(int64(c.rows*2/3+1)))
	for range c.rows {
		row := make(pq.Row, len(schema.Fields()))
		for i, field := range schema.Fields() {
			if r.Float64() < c.nulls {
				row[i] = pq.NullValue().Level(0, 0, i)
				continue
			}
			v := draw[field.Name()](r.IntN(c.distinct))
			level := 0
			if c.nulls >= 0 {
				level = 1
			}
			row[i] = v.Level(0, level, i)
		}
		_, err := w.WriteRows([]pq.Row{row})
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	return []string{path}
}

// float16 is the type of floats of 2 bytes.
type float16 struct{ pq.Type }

func (float16) LogicalType() *format.LogicalType {
	return &format.LogicalType{Value: &format.Float16Type{}}
}

func fixedBytes(n int) func(k int) pq.Value {
	return func(k int) pq.Value {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(k * (i + 1) * 2654435761 >> 7)
		}
		return pq.FixedLenByteArrayValue(b)
	}
}

// signed draws integers of n bytes, most significant first, of which few are used.
func signed(n, used int) func(k int) pq.Value {
	return func(k int) pq.Value {
		b := bytes.Repeat([]byte{byte(-(k & 1))}, n)
		for i := range used {
			b[n-1-i] = byte(k * (i + 3) * 40503 >> 3)
		}
		if used == 2 {
			b[n-2] = byte(k % 100)
		}
		return pq.FixedLenByteArrayValue(b)
	}
}

func TestADeviceDecodesPagesLikeTheCPU(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	thin, i := gputest.ThinOr(t, 301), 0
	for _, codec := range []compress.Codec{&pq.Uncompressed, &pq.Snappy, &pq.Zstd, &pq.Lz4Raw, &pq.Gzip} {
		for _, version := range []int{1, 2} {
			for _, size := range []int{100, 4 << 10, 200 << 10} {
				for kind := range 3 {
					for _, nulls := range []float64{-1, 0, 0.2, 1} {
						for _, distinct := range []int{1, 60, 5000} {
							if i++; !gputest.Takes(thin, i) {
								continue
							}
							c := pagesCase{codec, version, size, kind == 1, kind == 2, nulls, distinct, 300}
							if size > 100 {
								c.rows = size / 6
							}
							for _, stride := range []int{0, c.rows/5 + 1} {
								paths, opt := c.file(t), source.ScanOptions{StrideRows: stride}
								want, _, err := scanOnce(t, 0, paths, opt)
								require.NoError(t, err)
								opt.Decode.Pages = true
								got, p, err := scanOnce(t, 0, paths, opt)
								require.NoError(t, err, c)
								// A device has no room for many strings of which only prefixes are stored.
								if again := decodesAgain.Swap(0); !c.encoded || c.distinct > 1 {
									require.Equal(t, p.BytesRead, p.BytesPages, c)
									require.Zero(t, again, c)
								}
								requireSame(t, want, got)
							}
						}
					}
				}
			}
		}
	}
}

// damagingCodec changes some bytes of pages before it compresses them, so that checksums are right.
type damagingCodec struct {
	compress.Codec
	r *rand.Rand
}

func (c damagingCodec) Encode(dst, src []byte) ([]byte, error) {
	src = bytes.Clone(src)
	for len(src) > 0 && c.r.IntN(3) == 0 {
		at := c.r.IntN(len(src))
		if c.r.IntN(2) == 0 {
			at = c.r.IntN(min(len(src), 16)) // levels, widths, and the heads of encodings
		}
		if c.r.IntN(2) == 0 {
			src[at] = byte(c.r.Uint32())
		} else {
			src[at] ^= 1 << c.r.IntN(8)
		}
	}
	return c.Codec.Encode(dst, src)
}

func TestADeviceFindsDamagedPages(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	seed := gputest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	same, failed := 0, 0
	for i := range gputest.Cases(t, 4) {
		c := pagesCase{damagingCodec{&pq.Snappy, r}, 1 + i%2, 500, i%3 == 1, i%3 != 1, []float64{-1, 0.2}[r.IntN(2)],
			1 + r.IntN(300), 200}
		paths := c.file(t)
		table, err := Open(paths, OpenOptions{})
		require.NoError(t, err)
		for _, name := range table.Schema().Names() {
			opt := source.ScanOptions{StrideRows: 60 + r.IntN(200)}
			want, _, err := scanOnce(t, 0, paths, opt, name)
			opt.Decode.Pages = true
			got, _, pagesErr := scanOnce(t, 0, paths, opt, name)
			require.Equal(t, err == nil, pagesErr == nil, "%s of %v: %v and %v", name, c, err, pagesErr)
			if err != nil { // the first of several, which goroutines find
				failed++
				continue
			}
			same++
			requireSame(t, want, got)
		}
	}
	require.Positive(t, same)
	require.Positive(t, failed)
}

// writeMixed writes a file with columns that a device decodes, and columns that it leaves to the CPU.
func writeMixed(t *testing.T, path string, nodes pq.Group) {
	schema := pq.NewSchema("mixed", nodes)
	f, err := os.Create(path)
	require.NoError(t, err)
	w := pq.NewWriter(f, schema, pq.MaxRowsPerRowGroup(60))
	for k := range 100 {
		row := make(pq.Row, len(schema.Fields()))
		for i, field := range schema.Fields() {
			switch t := field.Type(); t.Kind() {
			case pq.Int32:
				row[i] = pq.ValueOf(int32(k))
			case pq.Int64:
				row[i] = pq.ValueOf(int64(k))
			case pq.ByteArray:
				row[i] = pq.ByteArrayValue([]byte{byte(k)})
			default:
				row[i] = fixedBytes(t.Length())(0)
			}
			row[i] = row[i].Level(0, 0, i)
		}
		_, err := w.WriteRows([]pq.Row{row})
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
}

func TestProgressSaysWhoDecodedWhichColumn(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "1.parquet"), filepath.Join(dir, "2.parquet")
	number := pq.Leaf(pq.Int32Type)
	decimal := pq.Decimal(1, 5, pq.ByteArrayType)
	writeMixed(t, first, pq.Group{
		"snappy": pq.Compressed(number, &pq.Snappy), "zstd": pq.Compressed(pq.String(), &pq.Zstd),
		"brotli": pq.Compressed(number, &pq.Brotli), "gzip": pq.Compressed(pq.String(), &pq.Gzip),
		"decimal": decimal, "digits": pq.Decimal(2, 40, pq.FixedLenByteArrayType(17)),
		"wider": number, "lacks": number, "later": number, "plain": number,
	})
	writeMixed(t, second, pq.Group{
		"snappy": pq.Compressed(number, &pq.Snappy), "zstd": pq.Compressed(pq.String(), &pq.Zstd),
		"brotli": pq.Compressed(number, &pq.Brotli), "gzip": pq.Compressed(pq.String(), &pq.Gzip),
		"decimal": decimal, "digits": pq.Decimal(2, 40, pq.FixedLenByteArrayType(17)),
		"wider": pq.Leaf(pq.Int64Type), "later": pq.Compressed(number, &pq.Brotli), "plain": number,
	})
	const none = "" // the device decodes all
	reasons := map[string]string{"snappy": none, "zstd": none, "plain": none, "brotli": "codec BROTLI",
		"gzip": none, "decimal": "decimals in byte arrays", "digits": "decimals of more than 38 digits",
		"wider": "column type differs from the table's", "lacks": "a file lacks the column", "later": "codec BROTLI"}
	for _, c := range []struct {
		name   string
		pages  bool
		stride int
		again  string // reason why a device leaves pages of "plain" to the CPU later
	}{
		{"no device", false, 70, ""}, {"strides of a file", true, 60, ""}, {"strides of two files", true, 1000, ""},
		{"left later", true, 60, "device memory was short"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, err := Open([]string{first, second}, OpenOptions{})
			require.NoError(t, err)
			lease := hosttest.Budget(t, 0).Lease("scan")
			defer func() { require.NoError(t, lease.Close()) }()
			opt := source.ScanOptions{StrideRows: c.stride, Lease: lease, Decode: source.DecodeOptions{Pages: c.pages}}
			for i := range table.Schema().Len() {
				opt.Columns = append(opt.Columns, i)
			}
			r, err := table.Scan(t.Context(), opt)
			require.NoError(t, err)
			defer r.Close()
			for {
				s, err := r.Read(t.Context())
				if err == io.EOF {
					break
				}
				require.NoError(t, err)
				if p := s.Cols[s.Schema.Index("plain")].Pages; c.again != "" {
					for range 2 { // a device tries again after it was denied memory
						col, err := p.Decode(c.again)
						require.NoError(t, err)
						col.Release()
					}
				}
				s.Release()
			}
			p := r.Progress()
			require.Equal(t, p.BytesTotal, p.BytesRead)
			byDevice := int64(0)
			require.Len(t, p.Columns, len(reasons))
			for i, d := range p.Columns {
				byDevice += d.ByDevice
				require.Equal(t, table.Schema().Fields[i].Name, d.Column)
				require.Positive(t, d.ByDevice+d.ByCPU, d)
				want := reasons[d.Column]
				if d.Column == "plain" {
					want = c.again
				}
				if !c.pages {
					require.Equal(t, source.Decoded{Column: d.Column, ByCPU: d.ByCPU}, d)
					continue
				}
				mixed := d.Column == "wider" || d.Column == "lacks" || d.Column == "later"
				switch {
				case mixed && c.stride < 100: // the other file is decoded by the device
					require.Positive(t, d.ByDevice, d)
				case want == none:
					require.Zero(t, d.ByCPU, d)
				default:
					require.Zero(t, d.ByDevice, d)
				}
				if d.Column == "lacks" && c.stride < 100 {
					want = none // no bytes are missing
				}
				require.Equal(t, want, d.Reason, d)
			}
			require.Equal(t, p.BytesPages, byDevice)
		})
	}
}
