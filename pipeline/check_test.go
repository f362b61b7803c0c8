package pipeline

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
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

// TestACheckTellsWhetherARunEnds checks and runs random pipelines with budgets of all sizes, each three times: what the
// check allows ends every time. It refuses some that end, now and then or always: what little memory is enough for depends on
// what lanes need at a time.
func TestACheckTellsWhetherARunEnds(t *testing.T) {
	dir := t.TempDir()
	first, cases := gputest.Seed(t), gputest.Cases(t, 12)
	allowed, refused, ended := 0, 0, 0
	for seed := first; seed < first+uint64(cases); seed++ {
		r := rand.New(rand.NewPCG(seed, 23))
		p := newPipelineCase(r)
		b := New("checked")
		for _, name := range []string{"a", "b", "c"} {
			file := filepath.Join(dir, fmt.Sprintf("%s%d.parquet", name, seed))
			randomTable(t, r, name, file)
			b.Read(name, file)
		}
		b.Write(filepath.Join(dir, fmt.Sprintf("out%d.parquet", seed)), sinkparquet.Options{Overwrite: true})
		b.job.Steps = p.steps
		for range 3 {
			opt := RunOptions{Use: Host, HostMemory: int64(1) << (13 + r.IntN(10)), Threads: 1 + r.IntN(4), StrideSize: int64(1) << (10 + r.IntN(8)), SpillDir: dir}
			plan, err := b.Plan()
			require.NoError(t, err)
			c, err := plan.Check(opt)
			require.NoError(t, err)
			require.NoError(t, plan.Close())
			about := fmt.Sprintf("GSTREAM_SEED=%d, %+v\n%v", seed, opt, c.Refusals)
			ends := 0
			for range 3 {
				_, err := b.Run(t.Context(), opt)
				if c.Finishes {
					require.NoError(t, err, about)
				}
				if err == nil {
					ends++
					continue
				}
				require.ErrorIs(t, err, gpu.ErrBudget, about)
			}
			switch {
			case c.Finishes:
				allowed++
			case ends > 0:
				ended++
			default:
				refused++
			}
		}
	}
	t.Logf("%d allowed, %d refused, %d that the check refuses but end", allowed, refused, ended)
	require.Positive(t, allowed)
	if cases >= 12 {
		require.Positive(t, refused)
	}
}
