package parquet

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/sink"
)

// TestSeveralDevicesEncode writes strides that lie in memory of two devices in turn. In order, the CPU encodes the row
// groups with rows of both; in any order, each device encodes row groups of its own rows.
func TestSeveralDevicesEncode(t *testing.T) {
	library := cudatest.Library(t)
	if n, err := cuda.Count(library); err != nil || n < 2 {
		t.Skip("this machine has one GPU")
	}
	g, err := cuda.OpenGroup(cuda.Options{Library: library, Memory: 64 << 20, HostMemory: 256 << 20}, []int{0, 1})
	require.NoError(t, err)
	const perStride, perGroup = 100, 150
	tab := randomTable(rand.New(rand.NewPCG(8, 8)), 2000, 0.2, gpu.Of(gpu.Int64), gpu.Of(gpu.String), gpu.Of(gpu.Bool))
	tab.strides = tab.cut(perStride)
	for _, anyOrder := range []bool{false, true} {
		h := g.HostBudget().Lease("sink")
		opt := Options{RowGroupRows: perGroup, Threads: 2, Lease: h, AnyOrder: anyOrder}
		var queues []gpu.Queue
		var up []*gpu.Lease
		for _, d := range g.Devices {
			opt.Devices = append(opt.Devices, sink.OnDevice{Device: d, Lease: d.Budget().Lease("output")})
			up = append(up, d.Budget().Lease("strides"))
			q, err := d.NewQueue("up")
			require.NoError(t, err)
			queues = append(queues, q)
		}
		path := filepath.Join(t.TempDir(), "out")
		w, err := Create(path, tab.schema, opt)
		require.NoError(t, err)
		var waiting [2][]int // rows, by device
		var order []int      // rows of the file
		next := 0
		for i, s := range tab.strides {
			at := i % 2
			on, err := queues[at].Upload(up[at], s.Retain())
			require.NoError(t, err)
			require.NotContains(t, w.Keeps(on), false)
			require.NoError(t, w.Write(context.Background(), on))
			if !anyOrder {
				at = 0
			}
			for range s.Rows {
				waiting[at] = append(waiting[at], next)
				next++
				if len(waiting[at]) == perGroup {
					order, waiting[at] = append(order, waiting[at]...), nil
				}
			}
		}
		order = append(append(order, waiting[0]...), waiting[1]...)
		require.NoError(t, w.Commit(context.Background()))
		want := table{schema: tab.schema}
		for _, v := range tab.values {
			var column []gpu.Scalar
			for _, row := range order {
				column = append(column, v[row])
			}
			want.values = append(want.values, column)
		}
		want.requireRead(t, path, 0)
		all, ofDevice := readFile(t, path).columnBytes(), w.Stats().BytesOfDevice
		if anyOrder {
			require.Greater(t, ofDevice, all*9/10, "all but a row group that has the last rows of both")
		} else {
			require.Positive(t, ofDevice)
			require.Less(t, ofDevice, all)
		}
		for i, q := range queues {
			require.NoError(t, q.Close())
			require.Positive(t, opt.Devices[i].Lease.Activity().Launches)
			require.NoError(t, opt.Devices[i].Lease.Close())
			require.NoError(t, up[i].Close())
		}
		require.NoError(t, h.Close())
	}
	require.NoError(t, g.Close())
}
