package cuda

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
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

// TestPeersCopyFromEachOther sends strides around a group: each GPU copies them from the memory of the one before.
func TestPeersCopyFromEachOther(t *testing.T) {
	lib := library(t)
	n, err := Count(lib)
	require.NoError(t, err)
	if n < 2 {
		t.Skip("this machine has one GPU")
	}
	n = min(n, 3)
	g, err := OpenGroup(Options{Library: lib, Memory: 1 << 26, HostMemory: 32 << 20}, []int{0, 1, 2}[:n])
	require.NoError(t, err)
	require.True(t, g.Works())
	require.Same(t, g.devices[0].host, g.devices[1].host, "host memory belongs to the machine")
	const rows = 3000
	values := func(ty gpu.Type, value func(i int) gpu.Scalar) gpu.Column {
		list := make([]gpu.Scalar, rows)
		for i := range list {
			if list[i] = value(i); i%7 == 0 {
				list[i] = gpu.Null(ty)
			}
		}
		return gpu.ColumnOf(ty, list)
	}
	text := gpu.Of(gpu.String)
	cols := []gpu.Column{
		values(gpu.Of(gpu.Int64), func(i int) gpu.Scalar { return gpu.IntScalar(gpu.Of(gpu.Int64), int64(i)) }),
		values(text, func(i int) gpu.Scalar { return gpu.StringScalar(strings.Repeat(fmt.Sprint(i), i%5)) }),
		values(gpu.Of(gpu.Bool), func(i int) gpu.Scalar { return gpu.BoolScalar(i%3 == 0) }),
	}
	dictionary := &gpu.Dictionary{Values: gpu.ColumnOf(text,
		[]gpu.Scalar{gpu.StringScalar("a"), gpu.StringScalar("bc")})}
	codes := make([]gpu.Scalar, rows)
	for i := range codes {
		codes[i] = gpu.IntScalar(gpu.Of(gpu.Int32), int64(i%2))
	}
	coded := gpu.ColumnOf(gpu.Of(gpu.Int32), codes)
	coded.Type, coded.Dict = text, dictionary
	cols = append(cols, coded)
	schema := &gpu.Schema{}
	for i, c := range cols {
		schema.Fields = append(schema.Fields, gpu.Field{Name: fmt.Sprint("c", i), Type: c.Type, Nullable: true})
	}
	var leases []*gpu.Lease
	var queues []gpu.Queue
	for _, d := range g.devices {
		q, err := d.NewQueue("q")
		require.NoError(t, err)
		queues, leases = append(queues, q), append(leases, d.Budget().Lease("l"))
	}
	host := g.HostBudget().Lease("down")
	for round := range 4 {
		s := &gpu.Stride{Schema: schema, Rows: rows}
		for _, c := range cols {
			s.Cols = append(s.Cols, c.Retain())
		}
		s, err = queues[0].Upload(leases[0], s)
		require.NoError(t, err)
		for i := 1; i <= n; i++ {
			to := i % n
			s.SetReady(g.devices[(i-1)%n])
			ahead, err := queues[to].UploadAhead(leases[to], s)
			require.NoError(t, err)
			require.NoError(t, queues[to].Wait(ahead))
			same, err := queues[to].UploadAhead(leases[to], ahead)
			require.NoError(t, err)
			require.Same(t, ahead, same, "it is already there")
			ids, err := queues[to].Select(leases[to], ahead.Cols[2], false)
			require.NoError(t, err)
			ids.Release()
			s = ahead
		}
		down, err := queues[0].Download(host, s)
		require.NoError(t, err)
		for i, c := range cols {
			for k := range rows {
				require.Equal(t, c.ScalarAt(k), down.Cols[i].ScalarAt(k), "round %d, column %d, row %d", round, i, k)
			}
		}
		down.Release()
	}
	for _, q := range queues {
		require.NoError(t, q.Close()) // they keep dictionaries of peers
	}
	for i := range queues {
		require.Positive(t, g.devices[i].Activity().BytesIn)
		require.NoError(t, leases[i].Close())
	}
	require.NoError(t, host.Close())
	require.NoError(t, g.Close())
}

// TestPeerLinksTellTheAccess measures copies between two GPUs, of which one may refuse access.
func TestPeerLinksTellTheAccess(t *testing.T) {
	lib := library(t)
	if n, err := Count(lib); err != nil || n < 2 {
		t.Skip("this machine has one GPU")
	}
	for _, refuse := range []bool{false, true} {
		g, err := OpenGroup(Options{Library: lib, Memory: 1 << 24, HostMemory: 1 << 24,
			FaultOn: func(n int, call string) error {
				if refuse && n == 1 && call == "cuDeviceCanAccessPeer" {
					return errors.New("no access")
				}
				return nil
			}}, []int{0, 1})
		require.NoError(t, err)
		links, err := g.PeerLinks()
		require.NoError(t, err)
		require.Len(t, links, 2)
		for i, l := range links {
			require.Equal(t, []string{"cuda:1 to cuda:0", "cuda:0 to cuda:1"}[i], l.From+" to "+l.To)
			require.Equal(t, !refuse || l.From == "cuda:0", l.Direct, "refused %v: %v", refuse, l)
			require.Positive(t, l.Rate)
			require.False(t, l.Changed)
		}
		for _, d := range g.devices {
			require.Empty(t, d.Budget().Leaks())
		}
		require.Empty(t, g.HostBudget().Leaks())
		require.NoError(t, g.Close())
	}
}

func TestPeersExchangeTuples(t *testing.T) {
	lib := library(t)
	n, err := Count(lib)
	require.NoError(t, err)
	numbers := []int{0, 1, 2}[:min(n, 3)]
	g, err := OpenGroup(Options{Library: lib, Memory: 1 << 26, HostMemory: 32 << 20}, numbers)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	gputest.Exchange(t, g.Devices)
}
