package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/pipeline/ranks"
)

// meet returns the worlds of n ranks in this process.
func meet(t testing.TB, n int, opt ranks.Options) []*ranks.World {
	address := gputest.FreeAddress(t)
	out, errs := make([]*ranks.World, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			out[i], errs[i] = ranks.Join(context.Background(), ranks.Place{Rank: i, Size: n, Address: address}, opt)
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	return out
}

// rankRun is what one of several ranks in this process runs.
type rankRun struct {
	plan   func() (*Plan, error)
	device gpu.Device
	opt    RunOptions
}

// runRanks runs a plan on ranks in this process, and returns the report of rank 0 and the errors of all.
func runRanks(t testing.TB, plane string, n int, rank func(i int) rankRun) (*Report, []error) {
	worlds := meet(t, n, ranks.Options{Plane: plane})
	reports, errs := make([]*Report, n), make([]error, n)
	var all sync.WaitGroup
	for i, w := range worlds {
		r := rank(i)
		all.Go(func() {
			defer func() { w.Close(errs[i]) }()
			defer func() { errs[i] = errors.Join(errs[i], r.device.Close()) }()
			p, err := r.plan()
			if err != nil {
				errs[i] = err
				return
			}
			defer p.Close()
			r.opt.Device, r.opt.Ranks = r.device, w
			reports[i], errs[i] = p.Run(context.Background(), r.opt)
		})
	}
	all.Wait()
	return reports[0], errs
}

// inRanks runs a plan on CPU devices, and returns the report and the error of rank 0. Other ranks must succeed or fail
// with it.
func inRanks(t testing.TB, n int, plan func() (*Plan, error), stride int, opt RunOptions) (*Report, error) {
	report, errs := runRanks(t, ranks.TCP, n, func(int) rankRun {
		return rankRun{plan, hosts(t, 1, 1+n%2, 1<<28, stride), opt}
	})
	for i, err := range errs {
		require.Equal(t, errs[0] == nil, err == nil, "rank 0: %v; rank %d: %v", errs[0], i, err)
	}
	return report, errs[0]
}

// rankQueries have each kind of exchange.
var rankQueries = map[string]string{
	"hash, range": `select u.g, count(*) as n, sum(t.k) as s, max(t.w) as w from t join u on t.g = u.k
		group by u.g order by s desc, u.g`,
	"gather in order": "select k, w from t where k % 7 = 3",
	"broadcast": "select t.k, v.w from t left join u as v on t.k = v.k and v.k < 100 where t.k < 3000 " +
		"order by t.k",
	"window": "select k, row_number() over (partition by g order by k desc) as n from t order by k " +
		"limit 700 offset 20",
	"held": "with a as (select g, count(*) as n from t group by g) select a.g, b.n from a join a b on " +
		"a.n = b.n order by all",
	"limit":   "select w from t limit 1200",
	"one row": "select count(*) as n, sum(k) as s from t union all select max(k), min(k) from u",
}

// writeRankTables writes the tables t and u.
func writeRankTables(t testing.TB, dir string) (tables [2]string) {
	for i, query := range []string{
		"select k, k * 7919 % 250 as g, 'word ' || (k % 90) as w from range(6000) t(k)",
		"select k, k % 11 as g, 'text ' || k as w from range(250) t(k)",
	} {
		tables[i] = filepath.Join(dir, "tu"[i:i+1]+".parquet")
		_, err := New("table").SQL(query).Write(tables[i], ParquetOptions{RowGroupRows: 900}).Run(context.Background(),
			RunOptions{Use: Host})
		require.NoError(t, err)
	}
	return tables
}

// rankPlan returns a function that plans a query over the tables.
func rankPlan(tables [2]string, query string, to func(*Builder) *Builder) func() (*Plan, error) {
	return func() (*Plan, error) {
		return to(New("job").Read("t", tables[0]).Read("u", tables[1]).SQL(query)).Plan()
	}
}

// toFile returns a function that makes a pipeline write a file.
func toFile(path string) func(*Builder) *Builder {
	return func(b *Builder) *Builder { return b.Write(path, ParquetOptions{}) }
}

func TestRanksGiveTheRowsOfOneProcess(t *testing.T) {
	t.Parallel()
	tables := writeRankTables(t, t.TempDir())
	library := cudatest.Library(t)
	gpus, err := cuda.Count(library)
	require.NoError(t, err)
	onCPU := func(int) gpu.Device { return hosts(t, 1, 2, 64<<20, 800) }
	onGPU := func(rank int) gpu.Device {
		d, err := cuda.Open(cuda.Options{Ordinal: rank % gpus, Memory: 64 << 20, HostMemory: 64 << 20,
			StrideBytes: 8 << 10, Library: library})
		require.NoError(t, err)
		return d
	}
	for name, query := range rankQueries {
		var want, got collected
		into := func(c *collected) func() (*Plan, error) {
			return rankPlan(tables, query, func(b *Builder) *Builder { return b.WriteTo(c) })
		}
		p, err := into(&want)()
		require.NoError(t, err)
		_, err = p.Run(t.Context(), RunOptions{Use: Host})
		require.NoError(t, err)
		require.NoError(t, p.Close())
		check := func(plane string, n int, device func(int) gpu.Device, exchanges string) {
			opt := RunOptions{Exchanges: exchanges, SpillDir: t.TempDir(), SpillAlways: exchanges == Always, Threads: 2}
			_, errs := runRanks(t, plane, n, func(rank int) rankRun { return rankRun{into(&got), device(rank), opt} })
			require.NoError(t, errors.Join(errs...), "%s by %s", name, plane)
			require.Equal(t, want, got, "%s by %s, exchanges %s", name, plane, exchanges)
		}
		check(ranks.TCP, 3, onCPU, Auto)
		check(ranks.TCP, 2, onCPU, Always)
		if slices.Contains([]string{"hash, range", "limit", "held"}, name) { // the emulator is slow
			check(ranks.TCP, 2, onGPU, Auto)
			if gpus > 1 {
				check(ranks.NCCL, 2, onGPU, Always)
			}
		}
	}
}

// TestAFailureOfARankEndsTheRun denies memory to one rank at some time, or ends it.
func TestAFailureOfARankEndsTheRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	tables := writeRankTables(t, dir)
	out := filepath.Join(dir, "out", "rows.parquet")
	require.NoError(t, os.Mkdir(filepath.Dir(out), 0o700))
	r := rand.New(rand.NewPCG(1, 1))
	failed := 0
	library := cudatest.Library(t)
	gpus, err := cuda.Count(library)
	require.NoError(t, err)
	for i := range 24 {
		denied := errors.New("the memory is taken")
		who, at := r.IntN(3), int64(1+r.IntN(150))
		plane := []string{ranks.TCP, ranks.TCP, ranks.NCCL}[i%3]
		if gpus < 3 {
			plane = ranks.TCP
		}
		query := []string{rankQueries["hash, range"], rankQueries["window"], rankQueries["gather in order"]}[r.IntN(3)]
		_, errs := runRanks(t, plane, 3, func(rank int) rankRun {
			var d gpu.Device = hosts(t, 1, 1, 64<<20, 800)
			if plane == ranks.NCCL {
				var err error
				d, err = cuda.Open(cuda.Options{Ordinal: rank, Memory: 64 << 20, HostMemory: 64 << 20,
					StrideBytes: 8 << 10, Library: library})
				require.NoError(t, err)
			}
			if rank == who {
				var asked atomic.Int64
				d.Budget().SetFault(func(bool) error {
					if asked.Add(1) >= at {
						return denied
					}
					return nil
				})
			}
			return rankRun{rankPlan(tables, query, toFile(out)), d, RunOptions{Exchanges: Always, SpillDir: t.TempDir(),
				Threads: 1}}
		})
		if errs[0] == nil { // it needed less
			require.NoError(t, errors.Join(errs...))
			require.NoError(t, os.Remove(out))
			continue
		}
		failed++
		left, err := os.ReadDir(filepath.Dir(out))
		require.NoError(t, err)
		require.Empty(t, left)
		for rank, err := range errs {
			require.ErrorIs(t, err, ErrBudget, "rank %d", rank)
			if rank != who {
				require.ErrorContains(t, err, fmt.Sprintf("rank %d: ", who))
			}
		}
	}
	require.Greater(t, failed, 5)
}

// TestARankWithOtherFilesOrWithoutAPlanEndsTheRun also interrupts one.
func TestARankWithOtherFilesOrWithoutAPlanEndsTheRun(t *testing.T) {
	dir := t.TempDir()
	tables := writeRankTables(t, dir)
	out := filepath.Join(dir, "rows.parquet")
	other := [2]string{tables[0], tables[0]}
	for _, c := range []struct {
		plan func() (*Plan, error)
		text string
	}{
		{rankPlan(other, "select w from t union all select w from u", toFile(out)), `the table "u" has 6000 rows here`},
		{rankPlan([2]string{tables[0], "no.parquet"}, "select k from u", toFile(out)), "no.parquet"},
		{func() (*Plan, error) { return nil, context.Canceled }, "canceled"},
	} {
		_, errs := runRanks(t, ranks.TCP, 3, func(rank int) rankRun {
			r := rankRun{plan: rankPlan(tables, "select t.w from t, u", toFile(out)),
				device: hosts(t, 1, 1, 64<<20, 800)}
			if rank == 1 {
				r.plan = c.plan
			}
			return r
		})
		for rank, err := range errs {
			require.ErrorContains(t, err, c.text, "rank %d", rank)
			require.Equal(t, rank != 1, hasPrefix(err, "rank 1: "), "rank %d: %v", rank, err)
		}
		require.NoFileExists(t, out)
	}
}

func hasPrefix(err error, text string) bool {
	return len(err.Error()) > len(text) && err.Error()[:len(text)] == text
}
