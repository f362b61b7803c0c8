package parquet

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/sink"
	reader "github.com/gstream/gstream/source/parquet"
)

// twoGPUs opens two GPUs as a group.
func twoGPUs(t *testing.T) *cuda.Group {
	library := cudatest.Library(t)
	if n, err := cuda.Count(library); err != nil || n < 2 {
		t.Skip("this machine has one GPU")
	}
	g, err := cuda.OpenGroup(cuda.Options{Library: library, Memory: 64 << 20, HostMemory: 256 << 20}, []int{0, 1})
	require.NoError(t, err)
	return g
}

// writeInTurn writes strides that lie in memory of the GPUs in turn. Each host-th one lies in memory of the host, if
// host is not 0. It returns the bytes that the GPUs have encoded.
func (tab table) writeInTurn(t *testing.T, g *cuda.Group, path string, opt Options, host int) int64 {
	opt.Lease = g.HostBudget().Lease("sink")
	var queues []gpu.Queue
	var up []*gpu.Lease
	for _, d := range g.Devices {
		opt.Devices = append(opt.Devices, sink.OnDevice{Device: d, Lease: d.Budget().Lease("output")})
		up = append(up, d.Budget().Lease("strides"))
		q, err := d.NewQueue("up")
		require.NoError(t, err)
		queues = append(queues, q)
	}
	w, err := Create(path, tab.schema, opt)
	require.NoError(t, err)
	for i, s := range tab.strides {
		on, at := s.Retain(), i%len(queues)
		if host == 0 || i%host > 0 {
			on, err = queues[at].Upload(up[at], on)
			require.NoError(t, err)
			require.NotContains(t, w.Keeps(on), false)
		}
		require.NoError(t, w.Write(context.Background(), on))
	}
	require.NoError(t, w.Commit(context.Background()))
	for i, q := range queues {
		require.NoError(t, q.Close())
		require.Positive(t, opt.Devices[i].Lease.Activity().Launches)
		require.NoError(t, opt.Devices[i].Lease.Close())
		require.NoError(t, up[i].Close())
	}
	require.NoError(t, opt.Lease.Close())
	return w.Stats().BytesOfDevice
}

// TestSeveralDevicesEncode writes strides that lie in memory of two devices in turn. In order, the CPU encodes the row
// groups with rows of both; in any order, each device encodes row groups of its own rows.
func TestSeveralDevicesEncode(t *testing.T) {
	g := twoGPUs(t)
	const perStride, perGroup = 100, 150
	tab := randomTable(rand.New(rand.NewPCG(8, 8)), 2000, 0.2, gpu.Of(gpu.Int64), gpu.Of(gpu.String), gpu.Of(gpu.Bool))
	tab.strides = tab.cut(perStride)
	for _, anyOrder := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "out")
		ofDevice := tab.writeInTurn(t, g, path, Options{RowGroupRows: perGroup, Threads: 2, AnyOrder: anyOrder}, 0)
		var waiting [2][]int // rows, by device
		var order []int      // rows of the file
		next := 0
		for i, s := range tab.strides {
			at := i % 2
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
		want := table{schema: tab.schema}
		for _, v := range tab.values {
			var column []gpu.Scalar
			for _, row := range order {
				column = append(column, v[row])
			}
			want.values = append(want.values, column)
		}
		want.requireRead(t, path, 0)
		all := readFile(t, path).columnBytes()
		if anyOrder {
			require.Greater(t, ofDevice, all*9/10, "all but a row group that has the last rows of both")
		} else {
			require.Positive(t, ofDevice)
			require.Less(t, ofDevice, all)
		}
	}
	require.NoError(t, g.Close())
}

// TestSeveralDevicesDivide writes strides that lie in memory of two devices in turn, and of the host, to folders.
func TestSeveralDevicesDivide(t *testing.T) {
	g := twoGPUs(t)
	tab := partitioned(rand.New(rand.NewPCG(9, 9)), 4000, gpu.Of(gpu.Int64), 6)
	cpu := filepath.Join(t.TempDir(), "cpu")
	opt := Options{PartitionBy: []string{"k"}, RowGroupRows: 70, Threads: 2, AnyOrder: true}
	tab.write(t, cpu, opt)
	rows := func(path string) []string {
		list := rowsInOrder(t, path, reader.OpenOptions{}, "k", "s", "b", "d")
		slices.Sort(list)
		return list
	}
	want, encoded := rows(cpu), [2]int64{}
	for i, host := range []int{0, 3} {
		path := filepath.Join(t.TempDir(), "out")
		encoded[i] = tab.writeInTurn(t, g, path, opt, host)
		require.Equal(t, want, rows(path))
	}
	require.Greater(t, encoded[0], encoded[1])
	require.Positive(t, encoded[1])
	require.NoError(t, g.Close())
}
