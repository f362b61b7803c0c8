package main

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/pipeline"
)

func TestThreadsAreBounded(t *testing.T) {
	path, _ := jobFile(t, "  - limit: 1", "")
	tooMany := fmt.Sprint(host.MaxThreads() + 1)
	for _, command := range []string{"run", "check", "explain", "show"} {
		for _, n := range []string{"100000", tooMany, "-1"} {
			code, _, stderr := gstream(command, path, "--threads", n)
			require.Equal(t, exitJob, code, "%s: %s", command, stderr)
			require.Contains(t, stderr, "--threads: ")
		}
	}
	t.Setenv("GSTREAM_THREADS", "100000")
	code, _, stderr := gstream("run", path)
	require.Equal(t, exitJob, code)
	require.Contains(t, stderr,
		fmt.Sprintf("100000 threads are more than the %d that are possible on this machine, which has %d cores",
			host.MaxThreads(), runtime.NumCPU()))
	leavesNothing(t, path)
	for _, opt := range []pipeline.RunOptions{{Threads: 100000}, {Threads: -1}, {Threads: 100000, Use: pipeline.CUDA}} {
		_, err := pipeline.OpenDevice(opt)
		require.ErrorIs(t, err, pipeline.ErrJob)
		require.ErrorContains(t, err, "threads")
	}
	p, err := pipeline.New("threads").Read("orders", data+"/orders.parquet").WriteTo(&pipeline.Collector{}).Plan()
	require.NoError(t, err)
	defer p.Close()
	d, err := pipeline.OpenDevice(pipeline.RunOptions{Use: pipeline.Host})
	require.NoError(t, err)
	defer d.Close()
	_, err = p.Run(t.Context(), pipeline.RunOptions{Device: d, Threads: 100000})
	require.ErrorIs(t, err, pipeline.ErrJob)
}

func TestTheBallastGrowsWithCoresAndIsASmallPartOfMemory(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, c := range []struct {
		cores      int
		free, want int64
	}{
		{1, 16 * gib, 16 * mib}, {2, 16 * gib, 16 * mib}, {16, 64 * gib, 72 * mib}, {64, 256 * gib, 264 * mib},
		{128, 1 * gib, 64 * mib}, {128, 100 * mib, 16 * mib},
	} {
		require.Equal(t, c.want, ballastOf(c.cores, c.free), "%d cores", c.cores)
	}
	require.Positive(t, host.FreeMemory())
}
