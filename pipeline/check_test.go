package pipeline

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

func TestACheckOfAGPUHasThreeTiers(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 30, HostMemory: 1 << 30})
	p, err := New("orders by price").Read("lineitem", "../examples/quickstart/data/lineitem.parquet").
		Select("l_orderkey", "l_partkey", "l_suppkey", "l_extendedprice").
		Sort("l_extendedprice").
		Write(filepath.Join(t.TempDir(), "out.parquet"), sinkparquet.Options{}).Plan()
	require.NoError(t, err)
	defer p.Close()
	fits, err := p.Check(RunOptions{Device: d, SpillDir: t.TempDir()})
	require.NoError(t, err)
	require.True(t, fits.Finishes)
	require.Zero(t, fits.LinkDown)
	require.Zero(t, fits.Tiers[1].Needs)

	// The budgets have room for half of the rows on the device and a quarter in host memory.
	held := fits.Stages[0].Holds
	d.Budget().SetLimit(held / 2)
	d.HostBudget().SetLimit(held / 4)
	c, err := p.Check(RunOptions{Device: d, SpillDir: t.TempDir(), SpillLimit: 1})
	require.NoError(t, err)
	require.Len(t, c.Tiers, 3)
	require.Equal(t, []string{TierDevice, TierHost, TierDisk}, []string{c.Tiers[0].Tier, c.Tiers[1].Tier, c.Tiers[2].Tier})
	sort := c.Stages[0]
	require.Equal(t, held, sort.Holds)
	require.Greater(t, sort.Host, sort.Disk)
	require.Positive(t, sort.Disk)
	require.Equal(t, sort.Host, c.LinkDown)
	require.Equal(t, sort.Host, c.LinkUp)
	require.Equal(t, sort.Host, c.Tiers[0].Spilled)
	require.Equal(t, sort.Disk, c.Tiers[1].Spilled)
	require.Equal(t, sort.Disk, c.Tiers[2].Needs)
	require.False(t, c.Finishes)
	require.Equal(t, TierDisk, c.Refusals[len(c.Refusals)-1].Tier)
}
