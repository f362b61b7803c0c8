package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
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
	columns        []string // nil for all
}

func (c pagesCase) String() string {
	return fmt.Sprintf("%v, version %d, pages of %d bytes, dictionary %v, encoded %v, nulls %g, %d distinct, %d rows",
		c.codec, c.version, c.bytes, c.dictionary, c.encoded, c.nulls, c.distinct, c.rows)
}

// file writes a file with a column of each type that a device decodes.
func (c pagesCase) file(t *testing.T) []string {
	path := filepath.Join(t.TempDir(), "pages.parquet")
	c.write(t, path)
	return []string{path}
}

// write writes the file to a path.
func (c pagesCase) write(t testing.TB, path string) {
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
		"bytes9": pq.Decimal(2, 9, pq.ByteArrayType), "bytes30": pq.Decimal(3, 30, pq.ByteArrayType),
	}
	encodings := map[string][]encoding.Encoding{}
	integers := []encoding.Encoding{&pq.DeltaBinaryPacked, &pq.ByteStreamSplit}
	for _, name := range []string{"int8", "uint16", "int32", "int64", "uint64", "date", "time", "dec9", "dec18"} {
		encodings[name] = integers
	}
	for _, name := range []string{"string", "binary", "wide", "prefixed", "bytes9", "bytes30"} {
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
		"bytes9":  func(k int) pq.Value { return pq.ByteArrayValue(signed(2+k%17, 2)(k).ByteArray()) },
		"bytes30": func(k int) pq.Value { return pq.ByteArrayValue(signed(11+k%9, 11)(k).ByteArray()) },
		"int96": func(k int) pq.Value {
			return pq.ValueOf(deprecated.Int96{uint32(k) * 12345, uint32(k), 2440588 + uint32(k)})
		},
	}
	for name, n := range nodes {
		if c.columns != nil && !slices.Contains(c.columns, name) {
			delete(nodes, name)
			continue
		}
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
	decodesAgain.Store(0) // other tests count, too
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
							c := pagesCase{codec, version, size, kind == 1, kind == 2, nulls, distinct, 300, nil}
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
								require.Zero(t, decodesAgain.Swap(0), c)
								require.Equal(t, p.BytesRead, p.BytesPages, c)
								requireSame(t, want, got)
							}
						}
					}
				}
			}
		}
	}
}

func TestADeviceDecodesDecimalsOfAnyLength(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	minus := func(n int, last byte) string { return strings.Repeat("\xff", n-1) + string([]byte{last}) }
	for _, c := range []struct {
		precision int32
		values    []string
		want      string // empty if the CPU must find the error
	}{
		{9, []string{"", "\x01", "\x00\x80", "\xff", "\x80", minus(4, 7), minus(17, 1), "\x3b\x9a\xc9\xff",
			strings.Repeat("\x00", 40) + "\x05"}, "0 1 128 -1 -128 -249 -255 999999999 5"},
		{38, []string{minus(16, 0), "\x4b\x3b\x4c\xa8\x5a\x86\xc4\x7a\x09\x8a\x22\x3f\xff\xff\xff\xff",
			minus(30, 3)}, "-256 99999999999999999999999999999999999999 -253"},
		{9, []string{"\x01", "\x3b\x9a\xca\x00"}, ""},
		{9, []string{"\xc4\x65\x36\x00", "\x01"}, ""},
		{38, []string{"\x4b\x3b\x4c\xa8\x5a\x86\xc4\x7a\x09\x8a\x22\x40\x00\x00\x00\x00"}, ""},
		{38, []string{"\x00\xff" + strings.Repeat("\x00", 15)}, ""},
		{38, []string{"\xff\x7f" + strings.Repeat("\x00", 15)}, ""},
		{38, []string{"\x01" + strings.Repeat("\x00", 16)}, ""},
	} {
		var body []byte
		for _, v := range c.values {
			body = append(binary.LittleEndian.AppendUint32(body, uint32(len(v))), v...)
		}
		e := schemaElement(format.ByteArray, format.Required)
		e.LogicalType.Value = &format.DecimalType{Precision: c.precision}
		codes := []byte{5} // codes of 5 bits, in runs of one value
		for k := range c.values {
			codes = append(codes, 1<<1, byte(k))
		}
		n := len(c.values)
		for _, pages := range [][]rawPage{{v1Page(n, format.Plain, body)},
			{dictionaryPage(n, body), v1Page(n, format.RLEDictionary, codes)}} {
			paths := rawFile(t, e, n, format.Uncompressed, pages...)
			want, _, err := scanOnce(t, 0, paths, source.ScanOptions{})
			opt := source.ScanOptions{Decode: source.DecodeOptions{Pages: true}}
			decodesAgain.Store(0)
			got, p, pagesErr := scanOnce(t, 0, paths, opt)
			if c.want == "" {
				require.Error(t, err)
				require.Equal(t, err, pagesErr)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, pagesErr)
			require.Zero(t, decodesAgain.Load())
			require.Equal(t, p.BytesRead, p.BytesPages)
			requireSame(t, want, got)
			var text []string
			for _, v := range got["c"] {
				text = append(text, v.Int.String())
			}
			require.Equal(t, c.want, strings.Join(text, " "))
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
			1 + r.IntN(300), 200, nil}
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
		"gzip": none, "decimal": none, "digits": "decimals of more than 38 digits",
		"wider": "files store the column in different ways", "lacks": "a file lacks the column",
		"later": "codec BROTLI"}
	planned, err := Open([]string{first, second}, OpenOptions{})
	require.NoError(t, err)
	for i, f := range planned.Schema().Fields {
		switch stats := planned.Stats(i); f.Name {
		case "brotli", "digits":
			require.Zero(t, stats.BytesInPages, f.Name)
			require.Positive(t, stats.Bytes, f.Name)
		case "later": // in one of the files
			require.Positive(t, stats.BytesInPages)
			require.Greater(t, stats.Bytes, stats.BytesInPages)
		default:
			require.Equal(t, stats.Bytes, stats.BytesInPages, f.Name)
		}
		require.Equal(t, f.Name == "zstd" || f.Name == "gzip", planned.SlowPages([]int{i}), f.Name)
	}
	require.NoError(t, planned.Close())
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
				if d.Column == "wider" && c.stride < 100 {
					want = none // strides of one file
				}
				if !c.pages {
					require.Equal(t, source.Decoded{Column: d.Column, ByCPU: d.ByCPU}, d)
					continue
				}
				mixed := d.Column == "lacks" || d.Column == "later"
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

// TestADeviceWidensLikeTheCPU reads a file with narrow types and one with wider types, in strides of their own.
func TestADeviceWidensLikeTheCPU(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	small := []int64{0, 1, -1, 99, -128, 127, 77}
	long := append(small[:7:7], math.MaxInt32, math.MinInt32, 123456789)
	columns := map[string]struct {
		narrow, wide pq.Node
		values       []int64
		cpu          bool // for the CPU because of the values
	}{
		"byte":     {pq.Int(8), pq.Int(64), small, false},
		"short":    {pq.Int(16), pq.Int(32), small, false},
		"int":      {pq.Int(32), pq.Int(64), long, false},
		"uint":     {pq.Uint(32), pq.Int(64), long, false}, // the bits of a negative value are a large one
		"ushort":   {pq.Uint(16), pq.Uint(64), []int64{0, 5, 65535}, false},
		"huge":     {pq.Int(64), pq.Uint(64), append(long[:10:10], math.MaxInt64, math.MinInt64), true},
		"large":    {pq.Uint(64), pq.Int(64), append(long[:10:10], math.MaxInt64), true},
		"double":   {pq.Int(64), pq.Leaf(pq.DoubleType), append(long[:10:10], 1<<60+1, math.MinInt64), false},
		"udouble":  {pq.Uint(32), pq.Leaf(pq.DoubleType), long, false},
		"single":   {pq.Int(16), pq.Leaf(pq.FloatType), small, false},
		"float":    {pq.Leaf(pq.FloatType), pq.Leaf(pq.DoubleType), long, false},
		"decimal":  {pq.Decimal(2, 9, pq.Int32Type), pq.Decimal(4, 18, pq.Int64Type), small, false},
		"integer":  {pq.Int(32), pq.Decimal(4, 30, pq.FixedLenByteArrayType(13)), long, false},
		"digits":   {pq.Decimal(2, 9, pq.Int32Type), pq.Decimal(2, 20, pq.FixedLenByteArrayType(9)), small, false},
		"bytes":    {pq.Decimal(2, 9, pq.ByteArrayType), pq.Decimal(2, 30, pq.FixedLenByteArrayType(13)), small, false},
		"date":     {pq.Date(), pq.Timestamp(pq.Microsecond), long[:7], false},
		"infinite": {pq.Date(), pq.Timestamp(pq.Microsecond), []int64{math.MaxInt32, 0, -math.MaxInt32}, true},
		"time":     {pq.Time(pq.Millisecond), pq.Time(pq.Microsecond), []int64{0, 86400000, 55}, false},
		"stamp":    {pq.Timestamp(pq.Millisecond), pq.Timestamp(pq.Microsecond), long, false},
		"end":      {pq.Timestamp(pq.Millisecond), pq.Timestamp(pq.Microsecond), []int64{1, math.MaxInt64}, true},
		"bool":     {pq.Leaf(pq.BooleanType), pq.Int(64), []int64{0, 1}, true},
	}
	value := func(k pq.Type, v int64) pq.Value {
		switch k.Kind() {
		case pq.Boolean:
			return pq.ValueOf(v != 0)
		case pq.Int32:
			return pq.ValueOf(int32(v))
		case pq.Int64:
			return pq.ValueOf(v)
		case pq.Float:
			f := float32(v) / 3
			switch v { // bits that need care
			case 99:
				f = float32(math.Inf(-1))
			case 77:
				f = math.Float32frombits(0x807fffff)
			case 1:
				f = math.Float32frombits(1)
			case -1:
				f = math.Float32frombits(0x7f800001)
			}
			return pq.ValueOf(f)
		case pq.Double:
			return pq.ValueOf(float64(v) / 3)
		case pq.ByteArray:
			return pq.ByteArrayValue(binary.BigEndian.AppendUint64(nil, uint64(v)))
		}
		b := bytes.Repeat([]byte{byte(v >> 63)}, k.Length())
		binary.BigEndian.PutUint64(b[k.Length()-8:], uint64(v))
		return pq.FixedLenByteArrayValue(b)
	}
	for _, c := range []struct {
		name     string
		encoding func(k pq.Kind) encoding.Encoding
	}{
		{"plain", func(pq.Kind) encoding.Encoding { return nil }},
		{"dictionary", func(pq.Kind) encoding.Encoding { return &pq.RLEDictionary }},
		{"split", func(k pq.Kind) encoding.Encoding {
			if k == pq.Boolean || k == pq.ByteArray {
				return nil
			}
			return &pq.ByteStreamSplit
		}},
		{"delta", func(k pq.Kind) encoding.Encoding {
			switch k {
			case pq.Int32, pq.Int64:
				return &pq.DeltaBinaryPacked
			case pq.ByteArray:
				return &pq.DeltaByteArray
			}
			return nil
		}},
	} {
		var paths []string
		for k := range 2 {
			nodes := pq.Group{}
			for name, x := range columns {
				node := x.narrow
				if k == 1 {
					node = x.wide
				}
				if e := c.encoding(node.Type().Kind()); e != nil && node.Type().Kind() != pq.Boolean {
					node = pq.Encoded(node, e)
				}
				nodes[name] = pq.Optional(node)
			}
			schema := pq.NewSchema("types", nodes)
			paths = append(paths, filepath.Join(t.TempDir(), fmt.Sprint(k)))
			f, err := os.Create(paths[k])
			require.NoError(t, err)
			w := pq.NewWriter(f, schema)
			for i := range 40 {
				row := make(pq.Row, len(schema.Fields()))
				for j, field := range schema.Fields() {
					values := columns[field.Name()].values
					row[j] = value(field.Type(), values[i%len(values)]).Level(0, 1, j)
					if i%7 == 3 || k == 1 && i > 2 {
						row[j] = pq.NullValue().Level(0, 0, j)
					}
				}
				_, err := w.WriteRows([]pq.Row{row})
				require.NoError(t, err)
			}
			require.NoError(t, w.Close())
			require.NoError(t, f.Close())
		}
		for name, x := range columns {
			opt := source.ScanOptions{StrideRows: 40}
			want, _, err := scanOnce(t, 0, paths, opt, name)
			opt.Decode.Pages = true
			decodesAgain.Store(0)
			got, p, pagesErr := scanOnce(t, 0, paths, opt, name)
			require.Equal(t, err, pagesErr, "%s, %s", name, c.name)
			if err != nil {
				continue
			}
			if !x.cpu {
				require.Zero(t, decodesAgain.Load(), "%s, %s", name, c.name)
				require.Equal(t, p.BytesRead, p.BytesPages, "%s, %s", name, c.name)
			}
			requireSame(t, want, got)
		}
	}
}

// TestTheColumnsOfAStrideAreReadAsOnePieceEach reads row groups whose dictionaries come before their pages.
func TestTheColumnsOfAStrideAreReadAsOnePieceEach(t *testing.T) {
	for _, threads := range []int{1, 4} {
		c := pagesCase{codec: &pq.Snappy, version: 1, bytes: 1000, dictionary: true, distinct: 50, rows: 3000}
		table, err := Open(c.file(t), OpenOptions{})
		require.NoError(t, err)
		var columns []int
		for i := range table.Schema().Fields {
			columns = append(columns, i)
		}
		l := hosttest.Budget(t, 0).Lease("scan")
		r, err := table.Scan(t.Context(), source.ScanOptions{Columns: columns, StrideRows: 1 << 20, Lease: l,
			Decode: source.DecodeOptions{Pages: true, Threads: threads}})
		require.NoError(t, err)
		s, err := r.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.rows, s.Rows)
		for i, col := range s.Cols {
			if name := s.Schema.Fields[i].Name; col.Pages != nil {
				require.Nil(t, col.Data.Pieces(), name)
			}
		}
		s.Release()
		require.NoError(t, r.Close())
		require.NoError(t, l.Close())
	}
}

// TestADeviceMakesRoomForStringsThatSharePrefixes reads pages whose strings have hundreds of times their bytes.
func TestADeviceMakesRoomForStringsThatSharePrefixes(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	long := strings.Repeat("https://example.com/", 100)
	nodes := pq.Group{
		"long":  pq.Optional(pq.Encoded(pq.String(), &pq.DeltaByteArray)),
		"other": pq.Encoded(pq.Leaf(pq.ByteArrayType), &pq.DeltaByteArray),
		"short": pq.Encoded(pq.String(), &pq.DeltaByteArray),
		"plain": pq.String(),
	}
	schema := pq.NewSchema("prefixes", nodes)
	path := filepath.Join(t.TempDir(), "prefixes.parquet")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := pq.NewWriter(f, schema, pq.Compression(&pq.Snappy), pq.PageBufferSize(120_000))
	for k := range 60 {
		row := make(pq.Row, len(schema.Fields()))
		for i, field := range schema.Fields() {
			switch {
			case field.Name() == "long" && k%5 == 2:
				row[i] = pq.NullValue().Level(0, 0, i)
			case field.Name() == "long":
				row[i] = pq.ValueOf(long+fmt.Sprint(k)).Level(0, 1, i)
			case field.Name() == "other":
				row[i] = pq.ByteArrayValue([]byte(long[:1500+k%3])).Level(0, 0, i)
			default:
				row[i] = pq.ValueOf(fmt.Sprint("s", k)).Level(0, 0, i)
			}
		}
		_, err := w.WriteRows([]pq.Row{row})
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	var whole content
	for _, rows := range []int{40, 0} {
		opt := source.ScanOptions{StrideRows: rows}
		want, _, err := scanOnce(t, 0, []string{path}, opt)
		require.NoError(t, err)
		opt.Decode.Pages = true
		decodesAgain.Store(0)
		got, p, err := scanOnce(t, 0, []string{path}, opt)
		require.NoError(t, err)
		require.Zero(t, decodesAgain.Load())
		require.Equal(t, p.BytesRead, p.BytesPages)
		requireSame(t, want, got)
		whole = want
	}
	// Memory is denied once, each time a later piece.
	d := decoder(t)
	d.Budget().SetPatience(time.Millisecond)
	defer d.Budget().SetPatience(time.Second)
	denied := errors.New("denied")
	for k, failed := 0, true; failed; k++ { // until as many pieces are not needed
		for _, again := range []bool{true, false} {
			lease := hosttest.Budget(t, 0).Lease("scan")
			table, err := Open([]string{path}, OpenOptions{})
			require.NoError(t, err)
			r, err := table.Scan(t.Context(), source.ScanOptions{Columns: []int{0, 1, 2, 3}, Lease: lease,
				Decode: source.DecodeOptions{Pages: true}})
			require.NoError(t, err)
			s, err := r.Read(t.Context())
			require.NoError(t, err)
			q, err := d.NewQueue("decode")
			require.NoError(t, err)
			l := d.Budget().Lease("decode")
			up, err := q.UploadAhead(l, s)
			require.NoError(t, err)
			n := 0
			d.Budget().SetFault(func(allocate bool) error {
				if allocate {
					if n++; n == k+1 {
						return denied
					}
				}
				return nil
			})
			err = q.Wait(up)
			d.Budget().SetFault(nil)
			if failed = err != nil; failed {
				require.True(t, gpu.IsOutOfMemory(err), err)
				if again {
					require.NoError(t, q.Wait(up))
				}
			}
			if again {
				host := d.HostBudget().Lease("decoded")
				down, err := q.Download(host, up)
				require.NoError(t, err)
				for i, c := range down.Cols {
					for row := range down.Rows {
						require.Equal(t, whole[down.Schema.Fields[i].Name][row], c.ScalarAt(row))
					}
				}
				down.Release()
				require.NoError(t, host.Close())
			}
			up.Release()
			require.NoError(t, r.Close())
			require.NoError(t, q.Close())
			require.NoError(t, l.Close())
			d.Settle()
			require.NoError(t, lease.Close())
			require.Less(t, k, 50)
		}
	}
}

// TestADeviceReadsTheLastOfStringsThatSharePrefixes reads strings of the 8 bytes that kernels check at a time, in
// memory that nothing was written to before. With GSTREAM_EMULATOR_RACES=1 the emulator fails a read behind the last
// one.
func TestADeviceReadsTheLastOfStringsThatSharePrefixes(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	schema := pq.NewSchema("prefixes", pq.Group{"text": pq.Encoded(pq.String(), &pq.DeltaByteArray)})
	path := filepath.Join(t.TempDir(), "prefixes.parquet")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := pq.NewWriter(f, schema)
	for k := range 60 {
		_, err := w.WriteRows([]pq.Row{{pq.ValueOf(fmt.Sprintf("string%02d", k)).Level(0, 0, 0)}})
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	table, err := Open([]string{path}, OpenOptions{})
	require.NoError(t, err)
	lease := hosttest.Budget(t, 0).Lease("scan")
	r, err := table.Scan(t.Context(), source.ScanOptions{Columns: []int{0}, Lease: lease,
		Decode: source.DecodeOptions{Pages: true}})
	require.NoError(t, err)
	s, err := r.Read(t.Context())
	require.NoError(t, err)
	require.NotNil(t, s.Cols[0].Pages)
	q, err := cudatest.Open(t, cuda.Options{}).NewQueue("decode")
	require.NoError(t, err)
	got, err := throughDevice(t, q, s)
	require.NoError(t, err)
	for k := range got.Rows {
		require.Equal(t, fmt.Sprintf("string%02d", k), got.Cols[0].ScalarAt(k).Str)
	}
	require.Equal(t, 60, got.Rows)
	got.Release()
	require.NoError(t, r.Close())
	require.NoError(t, lease.Close())
}

// TestADeviceFindsStringsOfAnyLength reads PLAIN strings whose lengths are around those that kernels treat differently,
// and bytes that look like lengths.
func TestADeviceFindsStringsOfAnyLength(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	nodes := pq.Group{"text": pq.String(), "maybe": pq.Optional(pq.String()), "bytes": pq.Leaf(pq.ByteArrayType)}
	schema := pq.NewSchema("strings", nodes)
	for name, c := range map[string]struct{ rows, least, most, pages int }{
		"empty": {9000, 0, 0, 1 << 20}, "short": {6000, 0, 5, 1 << 20}, "text": {3000, 10, 60, 1 << 16},
		"a byte": {600, 250, 260, 1 << 20}, "a tile of many": {40, 4080, 4100, 1 << 20},
		"a tile": {12, 32_740, 32_780, 1 << 20}, "two bytes": {6, 65_520, 65_550, 1 << 20},
		"long": {3, 200_000, 200_100, 1 << 20}, "any": {200, 0, 3000, 1 << 17},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(c.rows), uint64(c.most)))
			path := filepath.Join(t.TempDir(), "strings.parquet")
			f, err := os.Create(path)
			require.NoError(t, err)
			w := pq.NewWriter(f, schema, pq.Compression(&pq.Snappy), pq.PageBufferSize(c.pages))
			for k := range c.rows {
				b := bytes.Repeat([]byte{'x'}, c.least+r.IntN(c.most-c.least+1))
				wide := strings.Repeat("é", len(b)/2)
				row := make(pq.Row, 3)
				for i, field := range schema.Fields() {
					switch {
					case field.Name() == "text" && k%500 == 77:
						row[i] = pq.ValueOf(wide).Level(0, 0, i)
					case field.Name() == "text":
						row[i] = pq.ValueOf(string(b)).Level(0, 0, i)
					case field.Name() == "maybe" && k%3 == 1:
						row[i] = pq.NullValue().Level(0, 0, i)
					case field.Name() == "maybe":
						row[i] = pq.ValueOf(wide).Level(0, 1, i)
					default:
						zeros := bytes.Clone(b)
						for j := range zeros {
							zeros[j] = byte(r.IntN(3) / 2)
						}
						row[i] = pq.ByteArrayValue(zeros).Level(0, 0, i)
					}
				}
				_, err := w.WriteRows([]pq.Row{row})
				require.NoError(t, err)
			}
			require.NoError(t, w.Close())
			require.NoError(t, f.Close())
			want, _, err := scanOnce(t, 0, []string{path}, source.ScanOptions{})
			require.NoError(t, err)
			decodesAgain.Store(0)
			got, p, err := scanOnce(t, 0, []string{path}, source.ScanOptions{Decode: source.DecodeOptions{Pages: true}})
			require.NoError(t, err)
			require.Zero(t, decodesAgain.Load())
			require.Equal(t, p.BytesRead, p.BytesPages)
			requireSame(t, want, got)
		})
	}
}
