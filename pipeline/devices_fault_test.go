package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// someGPUs opens n GPUs with an amount of memory and strides of some rows. fault is called before each call of the
// driver.
func someGPUs(t *testing.T, n int, memory int64, rows int, fault func(ordinal int, call string) error) gpu.Device {
	library := cudatest.Library(t)
	if there, err := cuda.Count(library); err != nil || there < n {
		t.Skip("this machine has fewer GPUs")
	}
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	opt := cuda.Options{Library: library, Memory: memory, HostMemory: 16 << 20, FaultOn: fault}
	g, err := cuda.OpenGroup(opt, numbers)
	require.NoError(t, err)
	for i, d := range g.Devices {
		g.Devices[i] = smallStrides{d, rows}
	}
	g.Device = g.Devices[0]
	return g
}

// twoGPUs opens two GPUs. fault is called before each call of the driver for the second one.
func twoGPUs(t *testing.T, fault func(call string) error) gpu.Device {
	return someGPUs(t, 2, 64<<20, 100, func(ordinal int, call string) error {
		if ordinal == 1 {
			return fault(call)
		}
		return nil
	})
}

// runOn runs a job on several GPUs. After an error there is no output, and nothing is held in any case.
func runOn(t *testing.T, ctx context.Context, data string, g gpu.Device, opt RunOptions) ([]string, *Report, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "out.parquet")
	opt.Device, opt.Exchanges, opt.Threads, opt.SpillDir = g, Always, 1, t.TempDir()
	report, err := gpuJob(data, file, sinkparquet.Options{}).Run(ctx, opt)
	for _, d := range gpu.DevicesOf(g) {
		require.Empty(t, d.Budget().Leaks(), "%v", err)
	}
	require.Empty(t, g.HostBudget().Leaks(), "%v", err)
	if err != nil {
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		require.Empty(t, files, "%v", err)
		return nil, report, err
	}
	return rowsOf(t, file), report, nil
}

func runOnTwo(t *testing.T, ctx context.Context, data string, g gpu.Device) ([]string, error) {
	rows, _, err := runOn(t, ctx, data, g, RunOptions{})
	return rows, err
}

// ends matches the calls that wait for work or release something. The emulated GPU works on when it is lost, so these
// calls must not fail.
var ends = regexp.MustCompile("Synchronize|EventQuery|Free|Destroy|Unregister|Release")

// losing lets the calls for one GPU fail from the n-th call of one function on.
type losing struct {
	mu    sync.Mutex
	gpu   int
	call  string
	at    int            // 0 for never
	calls map[string]int // of that GPU
	lost  time.Time
}

func (l *losing) fault(ordinal int, call string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ordinal != l.gpu {
		return nil
	}
	if l.calls[call]++; l.at > 0 && call == l.call && l.calls[call] == l.at && l.lost.IsZero() {
		l.lost = time.Now()
	}
	if l.lost.IsZero() || ends.MatchString(call) {
		return nil
	}
	return &cuda.Error{Call: call, Code: 719, Name: "CUDA_ERROR_LAUNCH_FAILED", Text: "lost"}
}

// begin begins a run in which a GPU is lost at the n-th call of a function.
func (l *losing) begin(gpu int, call string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gpu, l.call, l.at, l.calls, l.lost = gpu, call, n, map[string]int{}, time.Time{}
}

// TestARunGoesOnWithoutALostGPU loses one of two to four GPUs at calls of each function of the driver that a run calls.
// The run starts again without it, or ends with its name if it is told so.
func TestARunGoesOnWithoutALostGPU(t *testing.T) {
	defer goleak.VerifyNone(t)
	data := fewRows(t)
	l := losing{gpu: -1}
	var want []string
	thin, cases, lost, again := gputest.ThinOr(t, 7), 0, 0, 0
	for n := 2; n <= 4; n++ {
		g := someGPUs(t, n, 64<<20, 100, l.fault)
		l.begin(1, "", 0)
		rows, _, err := runOn(t, t.Context(), data, g, RunOptions{})
		require.NoError(t, err)
		if want == nil {
			want = rows
		}
		require.Equal(t, want, rows)
		counts := maps.Clone(l.calls)
		for _, call := range slices.Sorted(maps.Keys(counts)) {
			if cases++; ends.MatchString(call) || !gputest.Takes(thin, cases+n) {
				continue
			}
			at, victim, end := 1+rand.IntN(counts[call]), 1+rand.IntN(n-1), cases%4 == 0
			l.begin(victim, call, at)
			what := fmt.Sprintf("call %d of %s for cuda:%d of %d", at, call, victim, n)
			rows, report, err := runOn(t, t.Context(), data, g, RunOptions{EndOnLostGPU: end})
			name := fmt.Sprint("cuda:", victim)
			switch {
			case l.lost.IsZero():
				require.NoError(t, err, "%s: it was not made", what)
			case err != nil:
				require.True(t, end, "%s: %v", what, err)
				require.ErrorContains(t, err, name+": ", what)
				require.ErrorContains(t, err, "lost", what)
				require.NotContains(t, err.Error(), "\n", "one error, one line")
				// It takes some milliseconds, unless the machine is busy.
				require.Less(t, time.Since(l.lost), 30*time.Second, "the other GPUs end, too")
			default:
				require.Equal(t, want, rows, what)
				lost++
				if len(report.Lost) > 0 { // or an event was only for measurements
					again++
					require.False(t, end, what)
					require.Len(t, report.Lost, 1, what)
					require.Equal(t, name, report.Lost[0].Device, what)
					require.Contains(t, report.String(), name+" failed, so the run started again without it: ")
				}
			}
		}
		l.begin(1, "", 0)
		require.NoError(t, g.Close())
	}
	require.True(t, again > 0 || lost < 10, "none of %d runs that lost a GPU started again", lost)
}

// TestGPUsWithoutAccessToEachOtherGiveTheSameRows refuses the access to peers.
func TestGPUsWithoutAccessToEachOtherGiveTheSameRows(t *testing.T) {
	defer goleak.VerifyNone(t)
	data := fewRows(t)
	refused := 0
	var want []string
	for _, refuse := range []bool{false, true} {
		g := twoGPUs(t, func(call string) error {
			if refuse && call == "cuDeviceCanAccessPeer" {
				refused++
				return errors.New("no access")
			}
			return nil
		})
		rows, err := runOnTwo(t, t.Context(), data, g)
		require.NoError(t, err)
		if !refuse {
			want = rows
		}
		require.Equal(t, want, rows)
		require.NoError(t, g.Close())
	}
	require.Positive(t, refused)
}

// TestAGPUWithLittleMemoryEndsTheRunOrNot runs on two GPUs of which one has less memory than the other, as it is
// smaller or other processes use it.
func TestAGPUWithLittleMemoryEndsTheRunOrNot(t *testing.T) {
	defer goleak.VerifyNone(t)
	data := fewRows(t)
	g := twoGPUs(t, func(string) error { return nil })
	want, err := runOnTwo(t, t.Context(), data, g)
	require.NoError(t, err)
	budget := gpu.DevicesOf(g)[1].Budget()
	ended, refused := 0, 0
	check := func() {
		rows, err := runOnTwo(t, t.Context(), data, g)
		if err == nil {
			ended++
			require.Equal(t, want, rows)
			return
		}
		refused++
		require.ErrorIs(t, err, gpu.ErrBudget)
		require.ErrorContains(t, err, "cuda:1: ")
	}
	for _, limit := range []int64{2 << 20, 4 << 10} {
		budget.SetLimit(limit)
		check()
	}
	budget.SetLimit(64 << 20)
	budget.SetFault(func(bool) error { return errors.New("another process has it") })
	before := refused
	check()
	require.Greater(t, refused, before)
	budget.SetFault(nil)
	check()
	require.Positive(t, ended)
	require.Positive(t, refused)
	require.NoError(t, g.Close())
}
