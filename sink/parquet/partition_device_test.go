package parquet

import (
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/sink"
	reader "github.com/gstream/gstream/source/parquet"
)

// requireSameParts compares the files of two folders, and the rows of each file.
func requireSameParts(t *testing.T, want, got string, columns ...string) {
	t.Helper()
	files := func(root string) map[string][]string {
		out := map[string][]string{}
		require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".parquet") {
				name, _ := filepath.Rel(root, path)
				out[name] = rowsInOrder(t, path, reader.OpenOptions{NoPartitions: true}, columns...)
			}
			return err
		}))
		return out
	}
	require.Equal(t, files(want), files(got))
}

// TestADeviceDividesRowsLikeTheCPU writes the same rows from memory of a device and from memory of the host: the files
// have the same names, and the same rows in the same order.
func TestADeviceDividesRowsLikeTheCPU(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
	for i, c := range []struct {
		key  gpu.Type
		by   []string
		keep bool
	}{
		{gpu.Of(gpu.Int64), []string{"k"}, false}, {gpu.Of(gpu.String), []string{"k", "b"}, false},
		{gpu.Of(gpu.Date), []string{"b", "k"}, true}, {gpu.DecimalOf(38, 4), []string{"k"}, false},
		{gpu.Of(gpu.Float64), []string{"k"}, false}, {gpu.Of(gpu.Bool), []string{"k"}, false},
	} {
		tab := partitioned(rand.New(rand.NewPCG(uint64(i), 7)), 400, c.key, 6)
		if i == 0 { // the CPU encodes numbers with a dictionary
			for _, s := range tab.strides {
				s.Cols[4], _ = randomColumn(rand.New(rand.NewPCG(1, 1)), s.Cols[4].Type, s.Rows, 9, 0, true)
			}
		}
		if c.key.IsFloat() { // -0 and 0 have two folders, all NaNs one
			odd := []float64{math.Copysign(0, -1), 0, math.NaN(), math.Float64frombits(0x7ff8000000000099)}
			for _, s := range tab.strides {
				keys := make([]gpu.Scalar, s.Rows)
				for k := range keys {
					keys[k] = gpu.FloatScalar(c.key, odd[k%len(odd)])
				}
				s.Cols[1] = gpu.ColumnOf(c.key, keys)
			}
		}
		opt := Options{PartitionBy: c.by, WritePartitionColumns: c.keep, RowGroupRows: 70, Threads: 2}
		if i%2 == 0 {
			opt.RowsPerFile = 45
		}
		cpu, device := filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "device")
		tab.write(t, cpu, opt)
		require.Positive(t, tab.writeOnDevice(t, d, device, opt))
		requireSameParts(t, cpu, device, "s", "d")
	}
}

// TestADeviceDividesAmongManyPartitions has few rows in each partition. The device has memory for all rows or for a
// part of them, some strides lie in memory of the host, or there are too many partitions for the device.
func TestADeviceDividesAmongManyPartitions(t *testing.T) {
	tab := partitioned(rand.New(rand.NewPCG(3, 3)), 400, gpu.Of(gpu.Int32), 25)
	cut := tab.cut(40)
	for _, c := range []struct {
		memory int64
		onHost int // one stride of so many
		most   int // partitions for the device
	}{{64 << 20, 3, maxDevicePartitions}, {1 << 20, 100, maxDevicePartitions}, {64 << 20, 100, 2}} {
		defer func(most int) { maxDevicePartitions = most }(maxDevicePartitions)
		maxDevicePartitions = c.most
		d := cudatest.Open(t, cuda.Options{Memory: c.memory})
		path := filepath.Join(t.TempDir(), "out")
		l, h, up := d.Budget().Lease("output"), d.HostBudget().Lease("sink"), d.Budget().Lease("strides")
		q, err := d.NewQueue("up")
		require.NoError(t, err)
		w, err := Create(path, tab.schema,
			Options{PartitionBy: []string{"k"}, Threads: 2, Lease: h, Devices: []sink.OnDevice{{Device: d, Lease: l}}})
		require.NoError(t, err)
		kept := 0
		for i, s := range cut {
			s = s.Retain()
			if i%c.onHost != 1 {
				on, err := q.Upload(up, s.Retain())
				require.NoError(t, err)
				if w.Keeps(on) == nil {
					on.Release()
				} else {
					s, kept = on, kept+1
				}
			}
			require.NoError(t, w.Write(t.Context(), s))
		}
		require.NoError(t, w.Commit(t.Context()))
		require.NoError(t, q.Close())
		for _, lease := range []*gpu.Lease{l, h, up} {
			require.NoError(t, lease.Close())
		}
		t.Log(kept, "of", len(cut), "strides on the device,", w.Stats())
		require.Positive(t, kept)
		require.Equal(t, c.most >= 25, w.Stats().BytesOfDevice > 0)
		require.Equal(t, tab.rows("k", "s", "b", "d"), readRows(t, path, reader.OpenOptions{}, "k", "s", "b", "d"))
	}
}

// cut returns the rows in strides of at most n rows.
func (tab table) cut(n int) (out []*gpu.Stride) {
	for _, s := range tab.strides {
		for at := 0; at < s.Rows; at += n {
			short := &gpu.Stride{Schema: s.Schema, Rows: min(n, s.Rows-at)}
			for _, c := range s.Cols {
				var v []gpu.Scalar
				for i := range short.Rows {
					v = append(v, c.ScalarAt(at+i))
				}
				short.Cols = append(short.Cols, gpu.ColumnOf(c.Type, v))
			}
			out = append(out, short)
		}
	}
	return out
}

// TestADriverThatFailsWhileRowsAreDividedEndsTheOutput fails calls of the driver one by one, from the first stride on.
func TestADriverThatFailsWhileRowsAreDividedEndsTheOutput(t *testing.T) {
	var at, seen atomic.Int64
	var failing atomic.Pointer[string]
	injected := errors.New("injected")
	d := cudatest.Open(t, cuda.Options{Memory: 64 << 20, Fault: func(call string) error {
		if f := failing.Load(); f == nil || *f != call || seen.Add(1) != at.Load() {
			return nil
		}
		return injected
	}})
	tab := partitioned(rand.New(rand.NewPCG(6, 6)), 100, gpu.Of(gpu.Date), 3)
	for _, call := range []string{"cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"} {
		failures := 0
		for n, past := int64(1), false; !past; n += 1 + n/3 {
			at.Store(n)
			seen.Store(0)
			dir := t.TempDir()
			err := func() error {
				l, h, up := d.Budget().Lease("output"), d.HostBudget().Lease("sink"), d.Budget().Lease("strides")
				q, err := d.NewQueue("up")
				require.NoError(t, err)
				w, err := Create(filepath.Join(dir, "out"), tab.schema,
					Options{PartitionBy: []string{"k"}, Threads: 2, Lease: h,
						Devices: []sink.OnDevice{{Device: d, Lease: l}}})
				require.NoError(t, err)
				var on []*gpu.Stride
				for _, s := range tab.strides {
					s, err := q.Upload(up, s.Retain())
					require.NoError(t, err)
					on = append(on, s)
				}
				failing.Store(&call)
				for _, s := range on {
					if err == nil {
						err = w.Write(t.Context(), s)
					} else {
						s.Release()
					}
				}
				if err == nil {
					err = w.Commit(t.Context())
				} else {
					require.NoError(t, w.Abort())
				}
				failing.Store(nil)
				require.NoError(t, q.Close())
				for _, lease := range []*gpu.Lease{l, h, up} {
					require.NoError(t, lease.Close())
				}
				return err
			}()
			if past = seen.Load() < n; past {
				require.NoError(t, err)
				continue
			}
			failures++
			require.ErrorIs(t, err, injected)
			require.Regexp(t, "^output: ", err.Error())
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, entries)
		}
		require.Positive(t, failures, call)
	}
}

// TestTheCPUDividesWhatADeviceCannot denies each reservation of device memory in turn, and all of them.
func TestTheCPUDividesWhatADeviceCannot(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
	tab := partitioned(rand.New(rand.NewPCG(5, 5)), 250, gpu.Of(gpu.String), 3)
	want := tab.rows("k", "s", "b", "d")
	for at, past := int64(0), false; !past; at += 1 + at/2 {
		opt := Options{PartitionBy: []string{"k"}, Threads: 2, RowGroupRows: 60}
		path := filepath.Join(t.TempDir(), "out")
		past = tab.writeRefused(t, d, path, opt, at)
		require.Equal(t, want, readRows(t, path, reader.OpenOptions{}, "k", "s", "b", "d"), "reservation %d", at)
	}
}
