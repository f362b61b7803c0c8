package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
)

// openGroup opens devices as a group.
func openGroup(t *testing.T, n int, onGPU bool) *gpu.Group {
	if onGPU {
		numbers := make([]int, n)
		for i := range numbers {
			numbers[i] = i
		}
		g, err := cuda.OpenGroup(cuda.Options{Library: cudatest.Library(t), Memory: 64 << 20, HostMemory: 64 << 20},
			numbers)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close()) })
		return g.Group
	}
	var members []gpu.Device
	for range n {
		d, err := host.Open(host.Options{Threads: 1, Memory: 256 << 20})
		require.NoError(t, err)
		members = append(members, d)
	}
	g := gpu.NewGroup(members)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

// TestDevicesExchangeAndJoin runs the benchmark gpus, which checks each result, on groups of devices.
func TestDevicesExchangeAndJoin(t *testing.T) {
	for name, c := range map[string]struct {
		devices     int
		onGPU       bool
		build, rows int
	}{
		"three CPUs": {3, false, 700, 5000},
		"two GPUs":   {2, true, 300, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			g := openGroup(t, c.devices, c.onGPU)
			joins, exchanges := map[int]int{}, map[int]int{}
			opt := Options{Rows: c.rows, BuildRows: c.build, Runs: 1, TableMemory: int64(c.build) * 10}
			require.NoError(t, Run(context.Background(), g, "gpus", opt, func(r Result) {
				require.Positive(t, r.Time, r.Case)
				require.Positive(t, r.BoundRate, r.Case)
				n := r.Spread.Devices
				if r.Spread.Speedup > 0 {
					joins[n]++
					require.GreaterOrEqual(t, r.Rows, int64(n*c.rows))
				} else {
					exchanges[n]++
					require.Positive(t, r.Spread.Out)
				}
			}))
			streams := 0
			if c.onGPU {
				streams = 6
			}
			require.Equal(t, 13+streams, joins[1])
			require.Zero(t, exchanges[1])
			require.Equal(t, 15+streams, joins[c.devices])
			require.Equal(t, 6, exchanges[c.devices])
			for _, d := range g.Devices {
				require.Empty(t, d.Budget().Leaks())
			}
			require.Empty(t, g.HostBudget().Leaks())
		})
	}
}

// TestKernelsPollOnThreeGPUs runs the joins whose kernels poll, which an emulator launches many times.
func TestKernelsPollOnThreeGPUs(t *testing.T) {
	g := openGroup(t, 3, true)
	launches := 0
	require.NoError(t, Run(context.Background(), g, "gpus", Options{Rows: 200, Runs: 1, Cases: []string{"active"}},
		func(r Result) {
			if p := r.Spread.Polls; p != nil {
				launches++
				require.GreaterOrEqual(t, p.Launches, r.Spread.Devices)
			}
		}))
	require.Equal(t, 3, launches, "on 1, 2 and 3 devices")
}

// TestFiguresAreMeasured runs the benchmark figures, which checks each result, with few rows.
func TestFiguresAreMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		onGPU   bool
		figures []string
		results int
	}{
		"two CPUs": {false, nil, 88},
		"two GPUs": {true, []string{"13", "18"}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			g := openGroup(t, 2, c.onGPU)
			n := 0
			require.NoError(t, Run(context.Background(), g, "figures", Options{Rows: 3000, Runs: 1, Cases: c.figures},
				func(r Result) {
					n++
					require.Positive(t, r.Time, r.Case)
					require.Positive(t, r.Spread.Figure.Over, r.Case)
				}))
			require.Equal(t, c.results, n)
			for _, d := range g.Devices {
				require.Empty(t, d.Budget().Leaks())
			}
		})
	}
	require.ErrorContains(t, Options{Cases: []string{"8"}}.Check("figures"), "no figure \"8\"")
	require.ErrorContains(t, Options{Cases: []string{"figure"}}.Check("gpus"), "no case of gpus is named")
}
