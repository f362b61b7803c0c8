package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

func TestTwoGPUsHaveMemoryOfTheirOwn(t *testing.T) {
	lib := library(t)
	n, err := Count(lib)
	require.NoError(t, err)
	if n < 2 {
		t.Skip("this machine has one GPU")
	}
	var devs [2]*Device
	var queues [2]gpu.Queue
	var leases [2]*gpu.Lease
	var ids [2]gpu.Column
	for i := range devs {
		devs[i], err = Open(Options{Library: lib, Ordinal: i, Memory: 1 << 26, HostMemory: 16 << 20})
		require.NoError(t, err)
		queues[i], err = devs[i].NewQueue("q")
		require.NoError(t, err)
		leases[i] = devs[i].Budget().Lease("l")
		values := make([]gpu.Scalar, 1000)
		for k := range values {
			values[k] = gpu.IntScalar(gpu.Of(gpu.Int32), int64(k))
		}
		c := gpu.ColumnOf(gpu.Of(gpu.Int32), values)
		s, err := queues[i].Upload(leases[i], &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type}),
			Cols: []gpu.Column{c}, Rows: c.Len})
		require.NoError(t, err)
		ids[i] = s.Cols[0]
	}
	for i := range devs {
		out, err := queues[i].Gather(leases[i], ids[i:i+1], ids[i], false)
		require.NoError(t, err, "its own memory")
		gpu.ReleaseColumns(out)
		_, err = queues[i].Gather(leases[i], ids[1-i:2-i], ids[i], false)
		require.ErrorContains(t, err, "not memory of this device")
	}
	for i, d := range devs {
		ids[i].Release()
		_ = queues[i].Close() // it returns the same error
		require.NoError(t, leases[i].Close())
		require.NoError(t, d.Close())
	}
}
