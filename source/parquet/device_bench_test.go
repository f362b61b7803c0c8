package parquet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/operators/transfer"
	"github.com/gstream/gstream/source"
)

// benchValues returns n bytes as a column of lineitem has them.
func benchValues(column string, n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	words := bytes.Fields([]byte("furiously ironic deposits sleep quickly above the carefully final packages among" +
		" regular accounts pending blithely express requests haggle slyly bold foxes instructions nag even " +
		"theodolites"))
	var b bytes.Buffer
	for key := int64(1); b.Len() < n; {
		switch column {
		case "orderkey":
			for range 1 + r.IntN(7) {
				_ = binary.Write(&b, binary.LittleEndian, key)
			}
			key += 1 + int64(r.IntN(8))/7*24
		case "price":
			_ = binary.Write(&b, binary.LittleEndian, (1+r.Int64N(50))*(90000+r.Int64N(100000)))
		case "codes":
			_ = binary.Write(&b, binary.LittleEndian, r.Uint64()>>4&0x0fffffffffffffff)
		case "comment":
			size := 10 + r.IntN(34)
			_ = binary.Write(&b, binary.LittleEndian, int32(size))
			for to := b.Len() + size; b.Len() < to; {
				b.Write(words[r.IntN(len(words))])
				b.WriteByte(' ')
				b.Truncate(min(b.Len(), to))
			}
		}
	}
	return b.Bytes()[:n]
}

// benchCodecs compress as writers do.
var benchCodecs = []struct {
	name     string
	codec    format.CompressionCodec
	compress func(raw []byte) []byte
}{
	{"none", format.Uncompressed, bytes.Clone},
	{"snappy", format.Snappy, func(raw []byte) []byte { return snappy.Encode(nil, raw) }},
	{"zstd-1", format.Zstd, zstdBench(zstd.SpeedFastest)},
	{"zstd-3", format.Zstd, zstdBench(zstd.SpeedDefault)},
	{"lz4", format.Lz4Raw, func(raw []byte) []byte {
		out := make([]byte, lz4.CompressBlockBound(len(raw)))
		n, _ := lz4.CompressBlock(raw, out, nil)
		return out[:n]
	}},
	{"gzip", format.Gzip, func(raw []byte) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(raw)
		_ = w.Close()
		return b.Bytes()
	}},
}

func zstdBench(level zstd.EncoderLevel) func([]byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(false),
		zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return func(raw []byte) []byte { return w.EncodeAll(raw, nil) }
}

// BenchmarkDeviceCodecs decodes strides of 32 columns of 8 MB of pages, four of them at a time. It reports the GB/s of
// values and of the bytes of the file.
func BenchmarkDeviceCodecs(b *testing.B) {
	d, err := cuda.Open(cuda.Options{Library: cudatest.Library(b), HostMemory: 1 << 30})
	require.NoError(b, err)
	defer func() { require.NoError(b, d.Close()) }()
	const columns, column, strides = 32, 8 << 20, 4
	for _, name := range []string{"orderkey", "price", "codes", "comment"} {
		values := benchValues(name, column)
		for _, size := range []int{64 << 10, 1 << 20} {
			for _, x := range benchCodecs {
				if _, ok := deviceCodecs[x.codec]; !ok {
					continue
				}
				b.Run(fmt.Sprintf("%s/%s/%dK", name, x.name, size>>10), func(b *testing.B) {
					var pages []devicePage
					for from := 0; from < column; from += size {
						raw := values[from : from+size]
						pages = append(pages, devicePage{raw: raw, body: x.compress(raw)})
					}
					lease, host := d.Budget().Lease("values"), d.HostBudget().Lease("pages")
					c, ok := columnOfPages(b, host, x.codec, pages)
					require.True(b, ok)
					c.Pages.Decode = func(string) (gpu.Column, error) { panic("a page is bad") }
					s := &gpu.Stride{Schema: &gpu.Schema{}, Rows: c.Len}
					for range columns {
						name := fmt.Sprint(len(s.Cols))
						s.Schema.Fields = append(s.Schema.Fields, gpu.Field{Name: name, Type: c.Type})
						s.Cols = append(s.Cols, c)
					}
					q, err := d.NewQueue("decode")
					require.NoError(b, err)
					run := func() {
						var up [strides]*gpu.Stride
						for i := range up {
							for range columns {
								c.Retain()
							}
							up[i], err = q.UploadAhead(lease, &gpu.Stride{Schema: s.Schema, Cols: s.Cols, Rows: s.Rows})
							require.NoError(b, err)
						}
						for _, u := range up {
							require.NoError(b, q.Wait(u))
							u.Release()
						}
					}
					run()
					for b.Loop() {
						run()
					}
					seconds := b.Elapsed().Seconds() / float64(b.N) * 1e9
					b.ReportMetric(strides*columns*column/seconds, "GB/s")
					b.ReportMetric(float64(strides*columns*c.Data.Size())/seconds, "GB/s-file")
					b.ReportMetric(0, "ns/op")
					c.Release()
					require.NoError(b, q.Close())
					require.NoError(b, lease.Close())
					require.NoError(b, host.Close())
				})
			}
		}
	}
}

// BenchmarkDeviceScan reads columns of lineitem of the example data, or of the file that GSTREAM_BENCH_FILE names, from
// the page cache to columns in device memory, which all stay there until the end. It reports the milliseconds of a
// scan, those in which kernels decode pages, and the GB/s of the file and of the columns.
func BenchmarkDeviceScan(b *testing.B) {
	path := cmp.Or(os.Getenv("GSTREAM_BENCH_FILE"), "../../examples/quickstart/data/lineitem.parquet")
	table, err := Open([]string{path}, OpenOptions{})
	require.NoError(b, err)
	d, err := cuda.Open(cuda.Options{Library: cudatest.Library(b)})
	require.NoError(b, err)
	defer func() { require.NoError(b, d.Close()) }()
	lease, pages := d.Budget().Lease("columns"), d.HostBudget().Lease("scan")
	q, err := d.NewQueue("scan")
	require.NoError(b, err)
	for _, columns := range [][]string{
		table.Schema().Names(),
		{"l_shipdate", "l_discount", "l_quantity", "l_extendedprice"},
		{"l_orderkey"}, {"l_extendedprice"}, {"l_shipdate"}, {"l_returnflag"}, {"l_comment"},
	} {
		opt := source.ScanOptions{Lease: pages, Decode: source.DecodeOptions{Pages: true, Encoded: true,
			Slots: make(chan struct{}, runtime.GOMAXPROCS(0)), Inflight: runtime.GOMAXPROCS(0) + 1,
			InflightBytes: 512 << 20}}
		width := 0
		for _, name := range columns {
			i := table.Schema().Index(name)
			opt.Columns = append(opt.Columns, i)
			width += max(table.Schema().Fields[i].Type.Width(), 16)
		}
		opt.StrideRows = d.PagesStrideRows(width, table.SlowPages(opt.Columns))
		name := columns[0]
		if len(columns) > 1 {
			name = fmt.Sprint(len(columns), " columns")
		}
		b.Run(name, func(b *testing.B) {
			file, values := int64(0), int64(0)
			before := d.Activity()
			scan := func() {
				r, err := table.Scan(context.Background(), opt)
				require.NoError(b, err)
				ahead := transfer.NewAhead(context.Background(), func(ctx context.Context, a *transfer.Ahead) error {
					return a.Copy(ctx, q, lease, r.Read)
				})
				var all []*gpu.Stride
				for {
					s, err := ahead.Take(context.Background())
					if err == io.EOF {
						break
					}
					require.NoError(b, err)
					require.NoError(b, q.Wait(s))
					values += s.Bytes()
					all = append(all, s)
				}
				require.NoError(b, ahead.End(nil))
				file += r.Progress().BytesRead
				for _, s := range all {
					s.Release()
				}
				require.NoError(b, r.Close())
			}
			scan() // page-locks memory
			file, values, before = 0, 0, d.Activity()
			for b.Loop() {
				scan()
			}
			seconds := b.Elapsed().Seconds()
			b.ReportMetric(seconds*1e3/float64(b.N), "ms")
			b.ReportMetric((d.Activity().Decode-before.Decode).Seconds()*1e3/float64(b.N), "ms-decoding")
			b.ReportMetric(float64(file)/seconds/1e9, "GB/s-file")
			b.ReportMetric(float64(values)/seconds/1e9, "GB/s")
			b.ReportMetric(0, "ns/op")
		})
	}
	require.NoError(b, q.Close())
	require.NoError(b, lease.Close())
	require.NoError(b, pages.Close())
}
