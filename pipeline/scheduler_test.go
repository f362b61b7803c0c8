package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
)

// sideFields returns the columns of a side: a key, a number and a text.
func sideFields(name string) []arrow.Field {
	return []arrow.Field{{Name: name + "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: name + "v", Type: arrow.PrimitiveTypes.Int64},
		{Name: name + "s", Type: arrow.BinaryTypes.String, Nullable: true}}
}

// sidesOfAJoin draws the rows of two sides, a and b. hot of ten rows of the build side have one key.
func sidesOfAJoin(rows, hot int) (probe, build string) {
	r := rand.New(rand.NewPCG(3, 4))
	side := func(name string, n, keys, hot int) string {
		var list []string
		for i := range n {
			key, text := fmt.Sprint(r.IntN(keys)), fmt.Sprintf(`"text %d"`, r.IntN(50))
			if r.IntN(10) < hot {
				key = "7"
			}
			if r.IntN(20) == 0 {
				key = "null"
			}
			if r.IntN(9) == 0 {
				text = "null"
			}
			list = append(list, fmt.Sprintf(`{"%[1]sk": %[2]s, "%[1]sv": %[3]d, "%[1]ss": %[4]s}`, name, key, i, text))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	return side("a", 2*rows, rows, 0), side("b", rows, rows, hot)
}

// coprocessingCase is a join on a GPU with the CPU as co-processor.
type coprocessingCase struct {
	join   Join
	then   func(*Builder) *Builder // steps behind the join
	device gpu.Device
	opt    RunOptions
}

func (c coprocessingCase) run(t *testing.T, ctx context.Context,
	probe, build string) (rows []string, of StageReport, err error) {
	t.Helper()
	var out Collector
	j := c.join
	j.With, j.On = "b", []string{"ak = bk"}
	if !slices.Contains([]string{"semi", "anti", "mark"}, j.Kind) {
		j.Build = "right"
	}
	b := New("coprocessing").ReadTable("a", record(t, sideFields("a"), probe)).ReadTable("b",
		record(t, sideFields("b"), build)).From("a").JoinWith(j).As("both")
	if c.then != nil {
		b = c.then(b)
	}
	opt := c.opt
	opt.Device, opt.SpillDir = c.device, t.TempDir()
	report, err := b.WriteTo(&out).Run(ctx, opt)
	for _, d := range gpu.DevicesOf(c.device) {
		for _, b := range []*gpu.Budget{d.Budget(), d.HostBudget()} {
			require.Empty(t, b.Leaks(), "%v", err)
			used, _ := b.Used()
			require.Zero(t, used, "%v", err)
		}
	}
	if report != nil {
		for _, s := range report.Stages {
			if strings.HasSuffix(s.Kind, "join") {
				of = s
			}
		}
	}
	rows = textOf(&out)
	slices.Sort(rows)
	return rows, of, err
}

// TestPairsOfPartitionsAreJoinedOnEither joins all kinds on a GPU with the CPU as co-processor, and compares the rows
// with those of the CPU alone.
func TestPairsOfPartitionsAreJoinedOnEither(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	cpu, err := host.Open(host.Options{Threads: 1, Memory: 64 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, cpu.Close()) }()
	type size struct {
		memory, host int64
		rows, hot    int
		always       bool // all rows go to disk
	}
	all := []string{"inner", "left", "right", "full", "semi", "anti", "mark"}
	thin, cases := gputest.ThinOr(t, 23), 0
	for _, c := range []struct {
		size
		kinds []string
		then  []string
	}{
		{size{64 << 20, 16 << 20, 1500, 0, true}, all, []string{"output", "group", "filter"}},
		{size{1 << 20, 16 << 20, 24000, 0, false}, []string{"inner", "full"}, []string{"output"}},
		// Half of the build rows have one key: too many for the GPU, not for the CPU.
		{size{1 << 20, 16 << 20, 24000, 5, false}, []string{"left", "right"}, []string{"output"}},
		{size{1 << 20, 2 << 20, 24000, 5, false}, []string{"inner", "full"}, []string{"output"}}, // nor for the CPU
	} {
		d, err := cuda.Open(cuda.Options{Library: library, Memory: c.memory, HostMemory: c.host})
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		probe, build := sidesOfAJoin(c.rows, c.hot)
		for _, kind := range c.kinds {
			j := Join{Kind: kind}
			if !c.always {
				j.Algorithm = "npj" // the others need more memory
			}
			for _, name := range c.then {
				if name != "output" && (kind == "semi" || kind == "right") { // the other kinds will do
					continue
				}
				if cases++; !gputest.Takes(thin, cases) {
					continue
				}
				then := map[string]func(*Builder) *Builder{
					"group": func(b *Builder) *Builder {
						return b.Group([]string{"ak % 50 as m"}, "count(*) as n",
							"sum(av) as v")
					},
					"filter": func(b *Builder) *Builder { return b.Filter("av % 3 = 0") },
				}[name]
				want, _, err := coprocessingCase{join: j, then: then, device: cpu}.run(t, t.Context(), probe, build)
				require.NoError(t, err)
				for _, takes := range []string{HostTakesAll, HostTakesAny} {
					what := fmt.Sprintf("%s join, then %s, %s, %+v", kind, name, takes, c.size)
					got, stage, err := coprocessingCase{j, then, smallStrides{d, 500},
						RunOptions{Use: CUDA + WithHost, Threads: 3, HostTakes: takes, SpillAlways: c.always}}.
						run(t, t.Context(), probe, build)
					require.NoError(t, err, what)
					require.Equal(t, want, got, what)
					require.Len(t, stage.Shares, 2, what)
					gpu, cpu := stage.Shares[0], stage.Shares[1]
					require.Equal(t, "cuda:0", gpu.Device)
					require.Equal(t, "host", cpu.Device)
					if c.always {
						require.Equal(t, int64(256), gpu.Partitions+cpu.Partitions, what)
						require.Equal(t, stage.RowsOut, gpu.RowsOut+cpu.RowsOut, what)
					}
					if takes == HostTakesAll {
						if c.host == 16<<20 {
							require.Zero(t, gpu.Partitions, what)
						}
						require.Positive(t, cpu.Partitions, what)
						require.Positive(t, cpu.Bytes, what)
						require.Positive(t, cpu.Busy, what)
					}
				}
			}
		}
	}
}

// TestPartitionsOfAGroupByAreMergedOnEither groups on a GPU with the CPU as co-processor. Sums of floats stay on the
// GPU.
func TestPartitionsOfAGroupByAreMergedOnEither(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	cpu, err := host.Open(host.Options{Threads: 1, Memory: 64 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, cpu.Close()) }()
	rows, _ := sidesOfAJoin(6000, 0)
	thin, cases := gputest.ThinOr(t, 23), 0
	for _, c := range []struct {
		memory int64
		always bool
	}{{64 << 20, true}, {1 << 20, true}} {
		d, err := cuda.Open(cuda.Options{Library: library, Memory: c.memory, HostMemory: 16 << 20})
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		for _, sum := range []string{"sum(av)", "avg(av)", "sum(av / 4)"} {
			for _, after := range []bool{false, true} {
				if cases++; !gputest.Takes(thin, cases) {
					continue
				}
				run := func(d gpu.Device, opt RunOptions) ([]string, StageReport) {
					var out Collector
					b := New("coprocessing").ReadTable("a",
						record(t, sideFields("a"), rows)).Group([]string{"ak", "av % 3 as m"}, sum+" as x",
						"count(*) as n", `min("as") as s`)
					if after {
						b = b.Filter("n > 0 and m < 2")
					}
					opt.Device, opt.SpillDir = d, t.TempDir()
					report, err := b.WriteTo(&out).Run(t.Context(), opt)
					require.NoError(t, err)
					require.Empty(t, d.HostBudget().Leaks())
					require.Empty(t, d.Budget().Leaks())
					got := textOf(&out)
					slices.Sort(got)
					for _, s := range report.Stages {
						if s.Kind == "group" {
							return got, s
						}
					}
					return got, StageReport{}
				}
				want, _ := run(cpu, RunOptions{})
				for _, takes := range []string{HostTakesAll, HostTakesAny} {
					got, stage := run(smallStrides{d, 500},
						RunOptions{Use: CUDA + WithHost, Threads: 3, HostTakes: takes, SpillAlways: c.always})
					require.Equal(t, want, got)
					require.Len(t, stage.Shares, 2)
					gpu, cpu := stage.Shares[0], stage.Shares[1]
					require.Equal(t, int64(256), gpu.Partitions+cpu.Partitions)
					switch {
					case sum == "sum(av / 4)":
						require.Zero(t, cpu.Partitions)
					case takes == HostTakesAll:
						require.Zero(t, gpu.Partitions)
						require.Equal(t, stage.RowsOut, cpu.RowsOut)
					}
				}
			}
		}
	}
}

// TestPartitionsGoToAnyProcessor joins out of core on several GPUs, with and without the CPU. Each GPU has
// 256 pairs of partitions, and other processors take some of them.
func TestPartitionsGoToAnyProcessor(t *testing.T) {
	defer goleak.VerifyNone(t)
	cpu, err := host.Open(host.Options{Threads: 1, Memory: 64 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, cpu.Close()) }()
	probe, build := sidesOfAJoin(6000, 0)
	want, _, err := coprocessingCase{join: Join{Kind: "left"}, device: cpu}.run(t, t.Context(), probe, build)
	require.NoError(t, err)
	for _, c := range []struct {
		gpus       int
		use, takes string
	}{{2, CUDA, HostTakesAny}, {2, CUDA + WithHost, HostTakesAll}, {4, CUDA + WithHost, HostTakesAny}} {
		what := fmt.Sprintf("%+v", c)
		g := someGPUs(t, c.gpus, 512<<10, 1000, nil)
		got, stage, err := coprocessingCase{Join{Kind: "left", Algorithm: "npj"}, nil, g, RunOptions{Use: c.use,
			Threads: 3, HostTakes: c.takes, SpillAlways: true, Exchanges: Always}}.run(t, t.Context(), probe, build)
		require.NoError(t, err, what)
		require.Equal(t, want, got, what)
		var pairs, rows int64
		for _, s := range stage.Shares {
			pairs, rows = pairs+s.Partitions, rows+s.RowsOut
		}
		require.Equal(t, int64(256*c.gpus), pairs, what)
		require.Equal(t, stage.RowsOut, rows, what)
		shares := stage.Shares
		if c.use == CUDA {
			require.Len(t, shares, c.gpus, what)
		} else {
			require.Len(t, shares, c.gpus+1, what)
			require.Equal(t, "host", shares[c.gpus].Device)
			if c.takes == HostTakesAll {
				require.Positive(t, shares[c.gpus].Partitions, what)
			}
		}
		require.NoError(t, g.Close())
	}
}

// TestASlowGPUGetsLessWork lets copies to one of two GPUs take longer. The other one takes some of its partitions, of a
// join and of a group-by.
func TestASlowGPUGetsLessWork(t *testing.T) {
	defer goleak.VerifyNone(t)
	probe, build := sidesOfAJoin(8000, 0)
	g := someGPUs(t, 2, 512<<10, 2000, func(ordinal int, call string) error {
		if ordinal == 1 && call == "cuMemcpyHtoDAsync_v2" {
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	})
	var out Collector
	report, err := New("slow").ReadTable("a", record(t, sideFields("a"), probe)).
		ReadTable("b", record(t, sideFields("b"), build)).From("a").
		JoinWith(Join{Kind: "inner", With: "b", On: []string{"ak = bk"}, Build: "right", Algorithm: "npj"}).
		Group([]string{"av", "bv"}, "count(*) as n").WriteTo(&out).Run(t.Context(),
		RunOptions{Device: g, SpillDir: t.TempDir(), Threads: 2, SpillAlways: true, Exchanges: Always})
	require.NoError(t, err)
	stages := 0
	for _, s := range report.Stages {
		if s.Kind != "inner join" && s.Kind != "group" {
			continue
		}
		stages++
		require.Len(t, s.Shares, 2)
		fast, slow := s.Shares[0].Partitions, s.Shares[1].Partitions
		t.Log(s.Kind, fast, slow)
		require.Equal(t, int64(512), fast+slow)
		require.Greater(t, fast, int64(256), "all of its own, and some of the slow one")
	}
	require.Equal(t, 2, stages)
	require.NoError(t, g.Close())
}

// TestFaultsOfProcessorsThatHelpEachOtherEndARunCleanly lets a call of the driver fail, of either of two GPUs that help
// each other and that the CPU helps, loses a GPU, and cancels runs. An error has the name of the GPU. A run continues
// without the second GPU.
func TestFaultsOfProcessorsThatHelpEachOtherEndARunCleanly(t *testing.T) {
	defer goleak.VerifyNone(t)
	probe, build := sidesOfAJoin(4000, 0)
	var calls, at atomic.Int64
	failed := atomic.Int64{} // the number of the GPU; -1 before the call fails
	run := func(ctx context.Context, from int64, then func(call string) error, lost bool) ([]string, error) {
		calls.Store(0)
		at.Store(from)
		failed.Store(-1)
		g := someGPUs(t, 2, 512<<10, 1000, func(ordinal int, call string) error {
			now := calls.Add(1) >= at.Load() && from > 0 && !ends.MatchString(call)
			if now && failed.CompareAndSwap(-1, int64(ordinal)) || lost && now && failed.Load() == int64(ordinal) {
				return then(call)
			}
			return nil
		})
		rows, _, err := coprocessingCase{Join{Kind: "left", Algorithm: "npj"}, nil, g, RunOptions{Use: CUDA + WithHost,
			Threads: 2, HostTakes: HostTakesAny, SpillAlways: true, Exchanges: Always}}.run(t, ctx, probe, build)
		require.NoError(t, g.Close())
		return rows, err
	}
	want, err := run(t.Context(), 0, nil, false)
	require.NoError(t, err)
	all := calls.Load()
	for i := range gputest.Cases(t, 4) {
		ctx, cancel := context.WithCancel(t.Context())
		code, lost, then := 1, i%4 == 0, func(string) error { cancel(); return nil }
		if lost {
			code = 719
		}
		if i%4 != 3 {
			then = func(call string) error {
				return &cuda.Error{Call: call, Code: code, Name: "CUDA_ERROR", Text: "injected"}
			}
		}
		// Most calls are those of the pairs, in the second half.
		rows, err := run(ctx, all/2+rand.Int64N(all/2), then, lost)
		cancel()
		switch {
		case err == nil:
			require.Equal(t, want, rows)
		case i%4 == 3:
			require.ErrorIs(t, err, context.Canceled)
		default:
			require.False(t, lost && failed.Load() == 1, "%v", err)
			require.NotErrorIs(t, err, ErrDefect)
			require.True(t, strings.HasPrefix(err.Error(), fmt.Sprintf("cuda:%d: ", failed.Load())), "%v", err)
		}
	}
}

// coprocessingFaults runs a join whose pairs are joined on either, with a group-by behind it, on a
// GPU on which something happens. what says when.
func coprocessingFaults(t *testing.T, f *faultyGPU) (run func(ctx context.Context) ([]string, StageReport, error),
	want []string) {
	probe, build := sidesOfAJoin(10000, 0) // three groups of pairs
	then := func(b *Builder) *Builder { return b.Group([]string{"ak % 50 as m"}, "count(*) as n", "sum(bv) as v") }
	run = func(ctx context.Context) ([]string, StageReport, error) {
		return coprocessingCase{Join{Kind: "left", Algorithm: "npj"}, then, f,
			RunOptions{Use: CUDA + WithHost, Threads: 2, HostTakes: HostTakesAny, SpillAlways: true}}.run(t, ctx,
			probe, build)
	}
	for range 20 {
		var of StageReport
		var err error
		want, of, err = run(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(256), of.Shares[0].Partitions+of.Shares[1].Partitions)
		if of.Shares[0].Partitions > 0 && of.Shares[1].Partitions > 0 {
			return run, want
		}
	}
	require.Fail(t, "one of both has never taken a pair")
	return run, want
}

func TestFaultsOfEitherProcessorEndAJoinOfBothCleanly(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	d := openFaultyGPU(t, library, 1<<20, 4000)
	defer func() { require.NoError(t, d.Close()) }()
	run, want := coprocessingFaults(t, d)
	thin := int64(min(max(1, gputest.ThinOr(t, 4)), 4)) // with fewer faults none may come where one is wanted
	for i, call := range []string{"cuMemAllocFromPoolAsync", "cuMemcpyHtoDAsync_v2", "cuLaunchKernel",
		"cuEventSynchronize"} {
		if !gputest.Takes(int(thin), i) {
			continue
		}
		for n := int64(1); n < 3000; n = n*(1+2*thin) + 1 {
			a := &trap{call: call, at: n, happens: inject}
			d.armed.Store(a)
			got, _, err := run(t.Context())
			d.armed.Store(nil)
			if err != nil {
				require.ErrorIs(t, err, errInCall)
				require.NotErrorIs(t, err, ErrDefect)
				require.Equal(t, 1, strings.Count(err.Error(), call), err.Error())
			} else {
				require.Equal(t, want, got)
			}
			if a.seen.Load() < n {
				break
			}
		}
	}
	// Pairs for which the CPU is denied memory are joined by the GPU.
	refused, given := 0, 0
	for n := int64(1); n < 6000; n = n*(1+2*thin) + 1 {
		for _, b := range []*gpu.Budget{d.HostBudget(), d.Budget()} {
			var calls atomic.Int64
			b.SetFault(func(bool) error {
				if calls.Add(1) == n {
					return errInCall
				}
				return nil
			})
			got, _, err := run(t.Context())
			b.SetFault(nil)
			switch {
			case err == nil && calls.Load() >= n:
				given++
				require.Equal(t, want, got)
			case err == nil:
				require.Equal(t, want, got)
			default:
				refused++
				require.True(t, gpu.IsOutOfMemory(err), err)
				require.NotErrorIs(t, err, ErrDefect)
			}
		}
	}
	require.Positive(t, refused)
	require.Positive(t, given)
}

func TestAJoinOfBothProcessorsThatIsCancelledLeavesNothing(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	d := openFaultyGPU(t, library, 1<<20, 4000)
	defer func() { require.NoError(t, d.Close()) }()
	run, want := coprocessingFaults(t, d)
	for _, call := range []string{"cuMemcpyHtoDAsync_v2", "cuLaunchKernel"} {
		for n := int64(1); n < 2000; n = n*4 + 1 {
			ctx, cancel := context.WithCancel(t.Context())
			a := &trap{call: call, at: n, happens: func(string) error { cancel(); return nil }}
			d.armed.Store(a)
			_, _, err := run(ctx)
			d.armed.Store(nil)
			cancel()
			if a.seen.Load() < n {
				break
			}
			if err != nil { // the last calls come too late
				require.ErrorIs(t, err, context.Canceled)
			}
		}
	}
	got, _, err := run(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestALimitBehindAJoinOfBothProcessorsEndsIt stops the CPU in the middle of its pairs.
func TestALimitBehindAJoinOfBothProcessorsEndsIt(t *testing.T) {
	library := cudatest.Library(t)
	defer goleak.VerifyNone(t)
	d := openFaultyGPU(t, library, 0, 4000)
	defer func() { require.NoError(t, d.Close()) }()
	probe, build := sidesOfAJoin(600, 0)
	for _, takes := range []string{HostTakesAny, HostTakesAll} {
		got, _, err := coprocessingCase{Join{Kind: "inner"}, func(b *Builder) *Builder { return b.Limit(30) },
			smallStrides{d, 20},
			RunOptions{Use: CUDA + WithHost, Threads: 4, HostTakes: takes, SpillAlways: true}}.run(t, t.Context(),
			probe, build)
		require.NoError(t, err)
		require.Len(t, got, 30)
	}
}
