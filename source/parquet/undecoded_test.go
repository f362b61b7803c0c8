package parquet

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/source"
)

// pagesCase is a file whose pages a device decodes.
type pagesCase struct {
	codec          compress.Codec
	version, bytes int // of pages
	dictionary     bool
	nulls          float64 // share of nulls; negative for a column that has none
	distinct       int
	rows           int
}

func (c pagesCase) String() string {
	return fmt.Sprintf("%v, version %d, pages of %d bytes, dictionary %v, nulls %g, %d distinct, %d rows", c.codec,
		c.version, c.bytes, c.dictionary, c.nulls, c.distinct, c.rows)
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
		"string": pq.String(), "binary": pq.Leaf(pq.ByteArrayType), "wide": pq.String(),
	}
	draw := map[string]func(k int) pq.Value{
		"int8":   func(k int) pq.Value { return pq.ValueOf(int32(int8(k))) },
		"uint16": func(k int) pq.Value { return pq.ValueOf(int32(uint16(k * 977))) },
		"int32":  func(k int) pq.Value { return pq.ValueOf(int32(k * 1234567)) },
		"int64":  func(k int) pq.Value { return pq.ValueOf(int64(k) * 0x1234567891) },
		"uint64": func(k int) pq.Value { return pq.ValueOf(int64(uint64(k) * 0x9e3779b97f4a7c15)) },
		"float":  func(k int) pq.Value { return pq.ValueOf(float32(k) / 3) },
		"double": func(k int) pq.Value { return pq.ValueOf(float64(k) / 7) },
		"date":   func(k int) pq.Value { return pq.ValueOf(int32(k)) },
		"time":   func(k int) pq.Value { return pq.ValueOf(int64(k) * 1000 % 86400e6) },
		"dec9":   func(k int) pq.Value { return pq.ValueOf(int32(k % 1e9)) },
		"dec18":  func(k int) pq.Value { return pq.ValueOf(-int64(k) * 1e9) },
		"bool":   func(k int) pq.Value { return pq.ValueOf(k%3 == 0) },
		"string": func(k int) pq.Value { return pq.ValueOf(strings.Repeat("ab", k%9) + fmt.Sprint(k)) },
		"binary": func(k int) pq.Value { return pq.ValueOf(bytes.Repeat([]byte{byte(k), 0xff}, k%5)) },
		"wide":   func(k int) pq.Value { return pq.ValueOf(strings.Repeat("é", k%70) + "字😀") },
	}
	for name, n := range nodes {
		if c.dictionary && name != "bool" {
			n = pq.Encoded(n, &pq.RLEDictionary)
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

func TestADeviceDecodesPagesLikeTheCPU(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	thin, i := gputest.ThinOr(t, 83), 0
	for _, codec := range []compress.Codec{&pq.Uncompressed, &pq.Snappy, &pq.Zstd, &pq.Lz4Raw} {
		for _, version := range []int{1, 2} {
			for _, size := range []int{100, 4 << 10, 200 << 10} {
				for _, dictionary := range []bool{false, true} {
					for _, nulls := range []float64{-1, 0, 0.2, 1} {
						for _, distinct := range []int{1, 60, 5000} {
							if i++; !gputest.Takes(thin, i) {
								continue
							}
							c := pagesCase{codec, version, size, dictionary, nulls, distinct, 300}
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
								require.Positive(t, p.BytesPages, c)
								require.Zero(t, decodesAgain.Swap(0), c)
								requireSame(t, want, got)
							}
						}
					}
				}
			}
		}
	}
}
