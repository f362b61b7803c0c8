package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// twoGPUs opens two GPUs. fault is called before each call of the driver for the second one.
func twoGPUs(t *testing.T, fault func(call string) error) gpu.Device {
	library := cudatest.Library(t)
	if n, err := cuda.Count(library); err != nil || n < 2 {
		t.Skip("this machine has one GPU")
	}
	g, err := cuda.OpenGroup(cuda.Options{Library: library, Memory: 64 << 20, HostMemory: 16 << 20,
		FaultOn: func(ordinal int, call string) error {
			if ordinal == 1 {
				return fault(call)
			}
			return nil
		}}, []int{0, 1})
	require.NoError(t, err)
	for i, d := range g.Devices {
		g.Devices[i] = smallStrides{d, 100}
	}
	g.Device = g.Devices[0]
	return g
}

// runOnTwo runs a job on two GPUs. After an error there is no output, and nothing is held in any case.
func runOnTwo(t *testing.T, ctx context.Context, data string, g gpu.Device) ([]string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "out.parquet")
	_, err := gpuJob(data, file, sinkparquet.Options{}).Run(ctx,
		RunOptions{Device: g, Exchanges: Always, Threads: 1, SpillDir: t.TempDir()})
	for _, d := range gpu.DevicesOf(g) {
		require.Empty(t, d.Budget().Leaks(), "%v", err)
	}
	require.Empty(t, g.HostBudget().Leaks(), "%v", err)
	if err != nil {
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		require.Empty(t, files, "%v", err)
		return nil, err
	}
	return rowsOf(t, file), nil
}

// ends matches the calls that wait for work or release something. The emulated GPU works on when it is lost, so these
// calls must not fail.
var ends = regexp.MustCompile("Synchronize|EventQuery|Free|Destroy|Unregister|Release")

// TestALostGPUEndsTheRunWithItsName lets calls for one of two GPUs fail from a moment on.
func TestALostGPUEndsTheRunWithItsName(t *testing.T) {
	defer goleak.VerifyNone(t)
	data := fewRows(t)
	var calls, from, lost atomic.Int64
	lose := func(call string) error {
		if n := calls.Add(1); from.Load() == 0 || n < from.Load() || ends.MatchString(call) {
			return nil
		}
		lost.CompareAndSwap(0, time.Now().UnixNano())
		return &cuda.Error{Call: call, Code: 719, Name: "CUDA_ERROR_LAUNCH_FAILED", Text: "lost"}
	}
	run := func(first int64) error {
		from.Store(0)
		g := twoGPUs(t, lose)
		defer func() { _ = g.Close() }()
		calls.Store(0)
		lost.Store(0)
		from.Store(first)
		_, err := runOnTwo(t, t.Context(), data, g)
		return err
	}
	require.NoError(t, run(0))
	all, failed := calls.Load(), 0
	for range 2 {
		err := run(1 + rand.Int64N(all/2))
		if err == nil {
			continue // the run needed fewer calls
		}
		failed++
		require.ErrorContains(t, err, "cuda:1: ")
		require.ErrorContains(t, err, "lost")
		require.NotContains(t, err.Error(), "\n", "one error, one line")
		// It takes some milliseconds, unless the machine is busy.
		require.Less(t, time.Since(time.Unix(0, lost.Load())), 30*time.Second, "the other GPU ends, too")
	}
	require.Positive(t, failed)
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
