package parquet

import (
	"cmp"
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/operators/transfer"
	"github.com/gstream/gstream/sink"
	"github.com/gstream/gstream/source"
	reader "github.com/gstream/gstream/source/parquet"
)

// BenchmarkDeviceWrite writes the columns of lineitem of the example data, or of the file that GSTREAM_BENCH_FILE
// names, to 16 files in a new folder, in the folder that GSTREAM_BENCH_OUT names. The columns lie in device memory
// before, and the output takes them as in a run. The case "encode" writes the bytes nowhere. It reports the
// milliseconds of an output, the GB/s of the columns, and the MB of the files, all of them and those that the device
// has encoded, and logs how long the GPU takes for what.
func BenchmarkDeviceWrite(b *testing.B) {
	path := cmp.Or(os.Getenv("GSTREAM_BENCH_FILE"), "../../examples/quickstart/data/lineitem.parquet")
	table, err := reader.Open([]string{path}, reader.OpenOptions{})
	require.NoError(b, err)
	d, err := cuda.Open(cuda.Options{Library: cudatest.Library(b)})
	require.NoError(b, err)
	defer func() { require.NoError(b, d.Close()) }()
	columns, host := d.Budget().Lease("columns"), d.HostBudget().Lease("sink")
	strides := onDevice(b, d, table, columns)
	values := int64(0)
	for _, s := range strides {
		values += s.Bytes()
	}
	for _, c := range []struct {
		name    string
		storage storage
	}{{"encode", nowhere{}}, {"files", disk{}}} {
		b.Run(c.name, func(b *testing.B) {
			folder := filepath.Join(cmp.Or(os.Getenv("GSTREAM_BENCH_OUT"), b.TempDir()), "device-write")
			var w *Writer
			write := func() {
				w, err = create(c.storage, folder, table.Schema(), Options{Files: 16, Lease: host,
					Devices: []sink.OnDevice{{Device: d, Lease: columns}}})
				require.NoError(b, err)
				next := 0
				err := transfer.Behind(context.Background(), d, "output", host,
					func(context.Context) (*gpu.Stride, error) {
						if next == len(strides) {
							return nil, io.EOF
						}
						next++
						return strides[next-1].Retain(), nil
					}, w.Keeps, func(s *gpu.Stride) error { return w.Write(context.Background(), s) })
				require.NoError(b, err)
				require.NoError(b, w.Commit(context.Background()))
			}
			write() // page-locks memory
			require.NoError(b, os.RemoveAll(folder))
			d.Settle()
			began := d.Clock()
			for b.Loop() {
				write()
				b.StopTimer()
				require.NoError(b, os.RemoveAll(folder))
				b.StartTimer()
			}
			seconds := b.Elapsed().Seconds() / float64(b.N)
			require.Equal(b, table.Rows(), w.Stats().Rows)
			b.ReportMetric(seconds*1e3, "ms")
			b.ReportMetric(float64(values)/seconds/1e9, "GB/s")
			b.ReportMetric(float64(w.Stats().Bytes)/1e6, "MB")
			b.ReportMetric(float64(w.Stats().BytesOfDevice)/1e6, "MB-of-device")
			b.ReportMetric(0, "ns/op")
			d.Settle()
			took := map[string]time.Duration{}
			times := map[string]int{}
			for _, p := range d.Spans(columns, host) {
				if p.Start >= began {
					took[p.Name] += p.End - p.Start
					times[p.Name]++
				}
			}
			for _, name := range slices.Sorted(maps.Keys(took)) {
				b.Logf("%s: %d times, %.1f ms", name, times[name]/b.N, took[name].Seconds()*1e3/float64(b.N))
			}
		})
	}
	for _, s := range strides {
		s.Release()
	}
	require.NoError(b, columns.Close())
	require.NoError(b, host.Close())
}

// onDevice reads all columns of a table to device memory.
func onDevice(b *testing.B, d *cuda.Device, table *reader.Table, columns *gpu.Lease) (out []*gpu.Stride) {
	ctx, pages := context.Background(), d.HostBudget().Lease("scan")
	opt := source.ScanOptions{Lease: pages, Decode: source.DecodeOptions{Pages: true, Encoded: true,
		Slots: make(chan struct{}, runtime.GOMAXPROCS(0)), Inflight: runtime.GOMAXPROCS(0) + 1,
		InflightBytes: 512 << 20}}
	width := 0
	for i, f := range table.Schema().Fields {
		opt.Columns = append(opt.Columns, i)
		width += max(f.Type.Width(), 16)
	}
	opt.StrideRows = d.PagesStrideRows(width, table.SlowPages(opt.Columns))
	q, err := d.NewQueue("scan")
	require.NoError(b, err)
	r, err := table.Scan(ctx, opt)
	require.NoError(b, err)
	ahead := transfer.NewAhead(ctx, func(ctx context.Context, a *transfer.Ahead) error {
		return a.Copy(ctx, q, columns, r.Read)
	})
	for {
		s, err := ahead.Take(ctx)
		if err == io.EOF {
			break
		}
		require.NoError(b, err)
		require.NoError(b, q.Wait(s))
		out = append(out, s)
	}
	require.NoError(b, ahead.End(nil))
	require.NoError(b, r.Close())
	require.NoError(b, q.Close())
	require.NoError(b, pages.Close())
	return out
}
