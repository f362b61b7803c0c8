package pipeline

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go"
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
	require.Equal(t, []string{TierDevice, TierHost, TierDisk},
		[]string{c.Tiers[0].Tier, c.Tiers[1].Tier, c.Tiers[2].Tier})
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
	require.Equal(t, TierDisk, c.Problems[len(c.Problems)-1].Tier)
}

// TestACheckOfSeveralGPUsHasATierOfEach checks a sort on two GPUs, of which one is smaller.
func TestACheckOfSeveralGPUsHasATierOfEach(t *testing.T) {
	g := twoGPUs(t, func(string) error { return nil })
	p, err := New("sort").Read("lineitem", "../examples/quickstart/data/lineitem.parquet").Sort("l_extendedprice").
		Write(filepath.Join(t.TempDir(), "out.parquet"), sinkparquet.Options{}).Plan()
	require.NoError(t, err)
	defer p.Close()
	for i, d := range gpu.DevicesOf(g) {
		d.Budget().SetLimit(64 << 20 >> (4 * i))
	}
	c, err := p.Check(RunOptions{Device: g, Exchanges: Always, SpillDir: t.TempDir()})
	require.NoError(t, err)
	require.Equal(t, []string{"cuda:0", "cuda:1", "", ""},
		[]string{c.Tiers[0].Device, c.Tiers[1].Device, c.Tiers[2].Device, c.Tiers[3].Device})
	require.Contains(t, c.Device, "2 × ")
	require.Contains(t, c.String(), "device memory of cuda:1: needs ")
	require.Zero(t, c.Tiers[0].Spilled)
	require.Positive(t, c.Tiers[1].Spilled)
	require.InDelta(t, c.Tiers[1].Spilled, c.LinkDown, 8, "rounding")
	kinds := map[string]int64{}
	for _, s := range c.Stages {
		kinds[s.Kind] = s.Holds
	}
	require.InDelta(t, kinds["hold"], kinds["sort"], float64(kinds["sort"])/10, "all rows")
	require.NoError(t, g.Close())
}

// TestACheckTellsWhetherARunEnds checks and runs random pipelines with budgets of all sizes, each three times: what the
// check allows ends every time. It refuses some that end, now and then or always: what little memory is enough for
// depends on what lanes need at a time.
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
			opt := RunOptions{Use: Host, HostMemory: int64(1) << (13 + r.IntN(10)), Threads: 1 + r.IntN(4),
				StrideSize: int64(1) << (10 + r.IntN(8)), SpillDir: dir}
			plan, err := b.Plan()
			require.NoError(t, err)
			c, err := plan.Check(opt)
			require.NoError(t, err)
			require.NoError(t, plan.Close())
			about := fmt.Sprintf("GSTREAM_SEED=%d, %+v\n%v", seed, opt, c.Problems)
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

// TestPagesThatTheMemoryHoldsAreNotRefused reads files with one page a row group, as DuckDB writes
// them, with the memory for one page in the file and decompressed, and with less.
func TestPagesThatTheMemoryHoldsAreNotRefused(t *testing.T) {
	const rows, page = 2000, 2 << 20
	dir := t.TempDir()
	file := filepath.Join(dir, "pages.parquet")
	f, err := os.Create(file)
	require.NoError(t, err)
	schema := parquet.NewSchema("rows", parquet.Group{"k": parquet.Int(64),
		"s": parquet.Compressed(parquet.Encoded(parquet.String(), &parquet.Plain), &parquet.Snappy)})
	w := parquet.NewWriter(f, schema, parquet.PageBufferSize(2*page), parquet.MaxRowsPerRowGroup(rows))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 2 * rows {
		text := make([]byte, page/rows)
		for k := range text {
			text[k] = byte('a' + r.IntN(26))
		}
		_,
			err := w.WriteRows([]parquet.Row{{parquet.Int64Value(int64(i)).Level(0, 0, 0),
			parquet.ByteArrayValue(text).Level(0, 0, 1)}})
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	b := New("pages").Read("t", file).Filter("length(s) > 0 and k % 1000 = 0")
	b.Write(filepath.Join(dir, "out.parquet"), sinkparquet.Options{Overwrite: true})
	for _, c := range []struct {
		memory int64
		ends   bool
	}{{7 << 20, true}, {3 << 20, false}} {
		for _, threads := range []int{1, 4} {
			opt := RunOptions{Use: Host, HostMemory: c.memory, Threads: threads, SpillDir: dir}
			plan, err := b.Plan()
			require.NoError(t, err)
			check, err := plan.Check(opt)
			require.NoError(t, err)
			require.NoError(t, plan.Close())
			require.Equal(t, c.ends, check.Finishes, check.Problems)
			report, err := b.Run(t.Context(), opt)
			if c.ends {
				require.NoError(t, err)
				require.EqualValues(t, 4, report.Output.Rows)
				continue
			}
			require.ErrorIs(t, err, gpu.ErrBudget)
			for _, message := range []string{err.Error(), check.Problems[0].Why} {
				require.Contains(t, message,
					`a page of column "s" of `+file+" takes 4.0 MiB of that while it is decoded")
				require.Contains(t, message, "rewrite the file with smaller pages or row groups")
				require.NotContains(t, message, "rows of the columns")
			}
		}
	}
}

// TestALeftJoinEndsWhereTheCheckSaysSo joins few wide rows with many: partitions of the build side
// that stay in memory must leave room for the scan and the rows of the probe side.
func TestALeftJoinEndsWhereTheCheckSaysSo(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(3, 4))
	write := func(name string, rows, columns, width int, key func(i int) int64) string {
		nodes := parquet.Group{"k": parquet.Int(64)}
		for c := range columns {
			nodes[fmt.Sprintf("s%d", c)] = parquet.Compressed(parquet.Encoded(parquet.String(), &parquet.Plain),
				&parquet.Snappy)
		}
		f, err := os.Create(filepath.Join(dir, name))
		require.NoError(t, err)
		w := parquet.NewWriter(f, parquet.NewSchema("rows", nodes), parquet.PageBufferSize(16<<20))
		text := make([]byte, width)
		for i := range rows {
			row := parquet.Row{parquet.Int64Value(key(i)).Level(0, 0, 0)}
			for c := range columns {
				for k := range text {
					text[k] = byte('a' + r.IntN(26))
				}
				row = append(row, parquet.ByteArrayValue(text).Level(0, 0, c+1).Clone())
			}
			_, err := w.WriteRows([]parquet.Row{row})
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		require.NoError(t, f.Close())
		return f.Name()
	}
	few := write("few.parquet", 4000, 4, 60, func(i int) int64 { return int64(i) })
	many := write("many.parquet", 40000, 2, 30, func(i int) int64 { return int64(i % 3000) })
	b := New("left").Read("few", few).Read("many", many)
	b.JoinWith(Join{With: "many", On: []string{"few.k = many.k"}, Kind: "left", Build: "right"})
	b.Select("few.k", "few.s0", "few.s1", "few.s2", "few.s3", "many.s0 as m0",
		"many.s1 as m1").Write(filepath.Join(dir, "out.parquet"), sinkparquet.Options{Overwrite: true})
	allowed := 0
	for memory := int64(4 << 20); memory <= 12<<20; memory += 1 << 20 {
		opt := RunOptions{Use: Host, HostMemory: memory, Threads: 2, SpillDir: dir}
		plan, err := b.Plan()
		require.NoError(t, err)
		check, err := plan.Check(opt)
		require.NoError(t, err)
		require.NoError(t, plan.Close())
		if !check.Finishes {
			continue
		}
		allowed++
		for range 2 {
			report, err := b.Run(t.Context(), opt)
			require.NoError(t, err, memory)
			require.EqualValues(t, 41000, report.Output.Rows)
		}
	}
	require.Positive(t, allowed)
}
