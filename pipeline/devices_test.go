package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
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

func TestTheReportOfSeveralDevicesHasTheStagesOfTheirPlan(t *testing.T) {
	defer goleak.VerifyNone(t)
	d := hosts(t, 3, 1, 1<<28, 200)
	p, err := gpuJob(quickstart, filepath.Join(t.TempDir(), "out.parquet"), sinkparquet.Options{}).Plan()
	require.NoError(t, err)
	defer p.Close()
	r, err := p.Run(t.Context(), RunOptions{Device: d, Exchanges: Always, Threads: 1})
	require.NoError(t, err)
	e := p.ExplainChoice(&Choice{Device: CUDA, GPUs: 3})
	kinds := map[string]int{}
	for _, root := range e.roots() {
		root.visit(func(s *StageExplained) { kinds[s.Kind]++ })
	}
	require.Positive(t, kinds["exchange"]+kinds["broadcast"])
	require.Positive(t, kinds["gather"])
	var in, out int64
	for _, s := range r.Stages {
		if s.Kind == "exchange" {
			in, out = in+s.RowsIn, out+s.RowsOut
			require.Len(t, s.Shares, 3, "%s", s.Step)
		}
	}
	require.Positive(t, in)
	require.Equal(t, in, out, "rows that were sent arrived")
	require.NoError(t, d.Close())
}

func TestExplainSaysWhyOneDeviceHasAllRows(t *testing.T) {
	orders := quickstart + "orders.parquet"
	for query, want := range map[string]string{
		"SELECT row_number() OVER (ORDER BY o_orderkey) AS n FROM '" + orders + "'": "window functions without " +
			"PARTITION BY need all rows on one device",
		"SELECT o_orderkey FROM '" + orders + "' LIMIT 5": "one device counts the rows",
		"COPY (FROM '" + orders + "') TO 'o' (FORMAT parquet, PARTITION_BY (o_orderpriority))": "one device " +
			"divides the rows among folders",
	} {
		b := SQL(query, nil)
		if !strings.HasPrefix(query, "COPY") {
			b.WriteTo(&Collector{})
		}
		p, err := b.Plan()
		require.NoError(t, err, query)
		var why []string
		p.ExplainChoice(&Choice{Device: CUDA, GPUs: 2}).Root.visit(func(s *StageExplained) {
			if s.Kind == "gather" {
				why = append(why, s.Detail...)
			}
		})
		require.Contains(t, why, want, query)
		require.NoError(t, p.Close())
	}
}

// TestAFailureOfOneOfSeveralGPUsEndsTheRun lets a call of the driver fail, of any GPU and at random, and cancels runs.
func TestAFailureOfOneOfSeveralGPUsEndsTheRun(t *testing.T) {
	library := cudatest.Library(t)
	if n, err := cuda.Count(library); err != nil || n < 2 {
		t.Skip("this machine has one GPU")
	}
	defer goleak.VerifyNone(t)
	data := fewRows(t)
	var calls, failing atomic.Int64
	injected := errors.New("injected")
	g, err := cuda.OpenGroup(cuda.Options{Library: library, Memory: 64 << 20, HostMemory: 16 << 20,
		Fault: func(call string) error {
			if n := calls.Add(1); n == failing.Load() && call != "cuMemFreeAsync" && call != "cuEventQuery" {
				return injected
			}
			return nil
		}}, []int{0, 1})
	require.NoError(t, err)
	for i, d := range g.Devices {
		g.Devices[i] = smallStrides{d, 100}
	}
	g.Device = g.Devices[0]
	run := func(ctx context.Context) error {
		calls.Store(0)
		dir := t.TempDir()
		_, err := gpuJob(data, filepath.Join(dir, "out.parquet"), sinkparquet.Options{}).
			Run(ctx, RunOptions{Device: g, Exchanges: Always, Threads: 1})
		for _, d := range g.Devices {
			require.Empty(t, d.Budget().Leaks(), "%v", err)
		}
		require.Empty(t, g.HostBudget().Leaks(), "%v", err)
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); err != nil {
			require.Empty(t, files, "%v", err)
		}
		return err
	}
	require.NoError(t, run(t.Context()))
	all, failed := calls.Load(), 0
	for range 60 {
		if failed == 4 {
			break
		}
		failing.Store(1 + rand.Int64N(all))
		if err := run(t.Context()); err != nil {
			require.ErrorIs(t, err, injected)
			failed++
		}
	}
	require.Positive(t, failed)
	failing.Store(0)
	for range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(20))*time.Millisecond)
		begin := time.Now()
		if err := run(ctx); err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(begin), 10*time.Second)
		}
		cancel()
	}
	require.NoError(t, run(t.Context()), "the GPUs work again")
	require.NoError(t, g.Close())
}

func TestAReportAndATimelineHaveTheWorkOfEachGPU(t *testing.T) {
	library := cudatest.Library(t)
	if n, err := cuda.Count(library); err != nil || n < 2 {
		t.Skip("this machine has one GPU")
	}
	g, err := cuda.OpenGroup(cuda.Options{Library: library, Memory: 64 << 20, HostMemory: 16 << 20}, []int{0, 1})
	require.NoError(t, err)
	r, err := gpuJob(fewRows(t), filepath.Join(t.TempDir(), "out.parquet"), sinkparquet.Options{}).
		Run(t.Context(), RunOptions{Device: g, Exchanges: Always, Threads: 1, Timeline: true})
	require.NoError(t, err)
	kernels := map[string]int{}
	for _, s := range r.Spans {
		require.LessOrEqual(t, s.Start, s.End)
		kernels[s.Lane]++
	}
	var page strings.Builder
	require.NoError(t, WriteTimeline(&page, r))
	for _, lane := range []string{"cuda:0 kernels", "cuda:1 kernels", "cuda:0 copy from peers", "cuda:1 copy down"} {
		require.Positive(t, kernels[lane], "%s: %v", lane, kernels)
		require.Contains(t, page.String(), lane)
	}
	require.Zero(t, kernels["kernels"])
	for i, d := range r.Devices {
		require.Equal(t, fmt.Sprint("cuda:", i), d.Device)
		require.Positive(t, d.Rows)
		require.Positive(t, d.Peak)
		require.Positive(t, d.Activity.Launches)
	}
	require.Len(t, r.Devices, 2)
	require.Contains(t, r.String(), "\non cuda:1: ")
	require.NoError(t, g.Close())
}
