package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStarQueriesRunInOnePassOverTheFactTable runs the benchmark chain, which checks each result, on groups of devices.
func TestStarQueriesRunInOnePassOverTheFactTable(t *testing.T) {
	for name, c := range map[string]struct {
		devices int
		onGPU   bool
		rows    int
	}{
		"three CPUs": {3, false, 4000},
		"two GPUs":   {2, true, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			g := openGroup(t, c.devices, c.onGPU)
			found := map[int]int{}
			opt := Options{Rows: c.rows, Runs: 1, StrideRows: 300}
			require.NoError(t, Run(context.Background(), g, "chain", opt, func(r Result) {
				require.Positive(t, r.Time, r.Case)
				require.Positive(t, r.BoundRate, r.Case)
				require.Positive(t, r.Chain.Groups, r.Case)
				require.Equal(t, c.onGPU && r.Chain.Devices > 0, r.Chain.OverCPU > 0, r.Case)
				found[r.Chain.Devices]++
			}))
			want := map[int]int{1: 8, 2: 8}
			if c.onGPU {
				want[0] = 8
			} else {
				want[3] = 8
			}
			require.Equal(t, want, found)
			for _, d := range g.Devices {
				require.Empty(t, d.Budget().Leaks())
			}
			require.Empty(t, g.HostBudget().Leaks())
		})
	}
}
