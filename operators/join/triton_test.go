package join

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
)

func TestTriton(t *testing.T) {
	cpu, err := host.Open(host.Options{Threads: 2})
	require.NoError(t, err)
	for _, dev := range []gpu.Device{cpu, cudatest.Open(t, cuda.Options{Memory: 256 << 20})} {
		kind, discrete := dev.Properties().Kind, dev.Budget() != dev.HostBudget()
		rnd := rand.New(rand.NewPCG(5, 6))
		for k := Inner; k <= RightAnti; k++ {
			for i, c := range []outOfCoreCase{{typ: gpu.Of(gpu.Int64)}, {typ: gpu.Of(gpu.Int32), key: 1, always: true},
				{typ: gpu.Of(gpu.Int64), nullable: true},
				{typ: gpu.Of(gpu.Int64), key: 1, rows: 1 << 40}} {
				if discrete && (int(k)+i)%3 == 2 { // an emulator is slow
					continue
				}
				c.kind, c.algorithm = k, tritonName
				probe, build := drawSides(rnd, 1500+i, 1000, 700)
				got, choice, spilled := c.run(t, dev, probe, build)
				what := fmt.Sprintf("%v on %s: %+v", k, kind, c)
				require.Equal(t, c.want(probe, build), got, what)
				switch {
				case c.nullable:
					require.Contains(t, choice, "out of core: 256 partitions, made in device memory", what)
				case c.always:
					require.Equal(t, spilled.Disk.In, spilled.Disk.Out, what)
					require.Positive(t, spilled.Disk.In, what)
				case discrete && c.rows > 0: // nearly nothing of so many rows stays
					require.Contains(t, choice, "tuples, 100 % of them written to host memory", what)
					require.Equal(t, int64(16*(len(probe)+len(build))), spilled.Host.In, what)
				case discrete:
					require.Contains(t, choice, "tuples, 0 % of them written to host memory", what)
				}
			}
		}
	}
	require.NoError(t, cpu.Close())
}

// TestTritonOfOneKey joins rows of one key that no hash separates, in little memory.
func TestTritonOfOneKey(t *testing.T) {
	dev, err := host.Open(host.Options{Threads: 1, Memory: 1 << 20})
	require.NoError(t, err)
	var probe, build [][2]int64
	for i := range int64(20000) {
		build = append(build, [2]int64{7, i})
	}
	probe = [][2]int64{{7, 1}, {8, 2}}
	for _, kind := range []Kind{Inner, Left} {
		c := outOfCoreCase{algorithm: tritonName, kind: kind, typ: gpu.Of(gpu.Int64)}
		got, choice, _ := c.run(t, dev, probe, build)
		require.Equal(t, c.want(probe, build), got)
		require.Contains(t, choice, "too large for memory, with many rows of one key")
	}
	require.NoError(t, dev.Close())
}
