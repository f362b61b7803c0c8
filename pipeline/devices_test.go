package pipeline

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/host"
)

// hosts returns a group of CPU devices with one budget, whose strides have so many rows.
func hosts(t testing.TB, n, threads int, memory int64, rows int) gpu.Device {
	first, err := host.Open(host.Options{Threads: threads, Memory: memory})
	require.NoError(t, err)
	devices := []gpu.Device{smallStrides{first, rows}}
	for range n - 1 {
		d, err := host.Open(host.Options{Threads: threads, Budget: first.Budget()})
		require.NoError(t, err)
		devices = append(devices, smallStrides{d, rows})
	}
	if n == 1 {
		return devices[0]
	}
	return gpu.NewGroup(devices)
}

// someHosts returns one CPU device, or a group of some.
func someHosts(t testing.TB, r *rand.Rand, rows int) gpu.Device {
	return hosts(t, []int{1, 1, 2, 3, 4, 8}[r.IntN(6)], 1+r.IntN(3), 1<<28, rows)
}

// someExchanges returns a value of RunOptions.Exchanges.
func someExchanges(r *rand.Rand) string { return []string{Auto, Always, Never}[r.IntN(3)] }

// gpus returns a group of GPUs, or one of CPU devices if the machine has fewer.
func gpus(t testing.TB, library string, n int, memory int64, rows int) gpu.Device {
	if there, err := cuda.Count(library); err != nil || there < n {
		return hosts(t, n, 1, memory, rows)
	}
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	g, err := cuda.OpenGroup(cuda.Options{Memory: memory, HostMemory: 16 << 20, Library: library}, numbers)
	require.NoError(t, err)
	for i, d := range g.Devices {
		g.Devices[i] = smallStrides{d, rows}
	}
	g.Device = g.Devices[0]
	return g
}
