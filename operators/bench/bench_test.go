package bench_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/bench"
)

// TestEveryBenchmarkRunsOnEveryDevice runs the benchmarks on little data. The
// measurements then mean nothing, but every call must work and give everything back.
func TestEveryBenchmarkRunsOnEveryDevice(t *testing.T) {
	open := map[string]func(t *testing.T, memory, hostMemory int64) gpu.Device{
		"CPU": func(t *testing.T, memory, _ int64) gpu.Device {
			d, err := host.Open(host.Options{Threads: 2, Memory: memory})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			return d
		},
		"GPU": func(t *testing.T, memory, hostMemory int64) gpu.Device {
			return cudatest.Open(t, cuda.Options{Memory: memory, HostMemory: hostMemory})
		},
	}
	names, _ := bench.Names()
	for device, open := range open {
		for _, name := range names {
			if name == "figures" { // see TestFiguresAreMeasured
				continue
			}
			t.Run(name+" on the "+device, func(t *testing.T) {
				results := 0
				var cases []string
				opt := bench.Options{Rows: 3000, Runs: 1}
				memory, hostMemory := int64(256<<20), int64(0) // the bound is measured with a part of it
				switch name {
				case "spill":
					opt.Cases = []string{"all"}
				case "disk":
					memory = 64 << 20
					opt.Rows, hostMemory = int(2*memory/16), memory/4
				}
				d := open(t, memory, hostMemory)
				err := bench.Run(context.Background(), d, name, opt, func(r bench.Result) {
					results++
					cases = append(cases, r.Case)
					require.Positive(t, r.Time, r.Case)
					require.Positive(t, r.BoundRate, r.Case)
					require.GreaterOrEqual(t, 2*r.Wall, r.Time, r.Case) // the clocks differ
					if r.Benchmark == "sort" {
						require.Equal(t, 8*r.Rows, r.Bytes, "keys once and row ids once")
					}
				})
				if device == "CPU" && (name == "transfer" || name == "stream" || name == "spill") {
					require.ErrorIs(t, err, bench.ErrNoLink)
					return
				}
				if name == "gpus" { // see TestDevicesExchangeAndJoin
					require.ErrorIs(t, err, bench.ErrOneDevice)
					return
				}
				require.NoError(t, err)
				require.Positive(t, results)
				if device == "GPU" && name == "partition" {
					require.Contains(t, cases, "128 ways, 4+4+4 bytes, passes alone: 1")
					require.Contains(t, cases, "512 ways, 8+8+8 bytes, passes alone: 2")
				}
				require.Empty(t, d.Budget().Leaks())
				require.Empty(t, d.HostBudget().Leaks())
			})
		}
	}
}
