package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// fewFiles lets the process open only some files more than it has open, until the test ends.
func fewFiles(t *testing.T, more int) {
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	open, err := os.ReadDir("/proc/self/fd") // and the folder itself
	require.NoError(t, err)
	few := before
	few.Cur = uint64(len(open) - 1 + more)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	t.Cleanup(func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) })
}

// TestRandomPipelinesEndWithFewFilesAndALittleDisk runs random pipelines with few descriptors and with
// little room on the disk. Each ends in time, with its rows or with an error that says what was short,
// and leaves nothing behind. GSTREAM_SMALL_DISK names a folder of a small file system to spill to.
func TestRandomPipelinesEndWithFewFilesAndALittleDisk(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	first, cases := gputest.Seed(t), gputest.Cases(t, 12)
	ended, short := 0, map[string]int{}
	for seed := first; seed < first+uint64(cases); seed++ {
		r := rand.New(rand.NewPCG(seed, 31))
		p := newPipelineCase(r)
		tables := map[string]string{}
		for _, name := range []string{"a", "b", "c"} {
			tables[name] = filepath.Join(dir, fmt.Sprintf("%s%d.parquet", name, seed))
			randomTable(t, r, name, tables[name])
		}
		want, _, err := p.run(t, tables, RunOptions{Use: Host, Threads: 1, JoinFilters: Never})
		require.NoError(t, err)
		out := filepath.Join(dir, fmt.Sprintf("out%d.parquet", seed))
		for i := range 4 {
			t.Run(fmt.Sprintf("%d/%d", seed, i), func(t *testing.T) {
				spillDir := os.Getenv("GSTREAM_SMALL_DISK")
				if spillDir == "" || r.IntN(4) == 0 {
					spillDir = t.TempDir()
				}
				opt := RunOptions{Use: Host, Threads: 1 + r.IntN(4), HostMemory: int64(1) << (15 + r.IntN(10)),
					StrideSize: int64(1) << (10 + r.IntN(6)), SpillDir: spillDir, SpillAlways: i%2 == 0}
				if r.IntN(2) == 0 {
					opt.SpillLimit = int64(1) << (10 + r.IntN(10))
				}
				if i > 1 {
					fewFiles(t, r.IntN(7))
				}
				about := fmt.Sprintf("GSTREAM_SEED=%d %+v", seed, opt)
				b := New("scarce").Read("a", tables["a"]).Read("b", tables["b"]).Read("c", tables["c"]).Write(out,
					sinkparquet.Options{})
				b.job.Steps = p.steps
				done := make(chan error, 1)
				go func() {
					_, err := b.Run(t.Context(), opt)
					done <- err
				}()
				select {
				case err = <-done:
				case <-time.After(2 * time.Minute):
					require.FailNow(t, "the run hangs", about)
				}
				left, readErr := os.ReadDir(spillDir)
				if readErr == nil { // not without a descriptor
					require.Empty(t, left, about)
				}
				switch {
				case err == nil:
					ended++
					require.NoError(t, os.Remove(out), about)
					got, spilled, err := p.run(t, tables, opt)
					if err == nil {
						require.ElementsMatch(t, want, got, "%v %s", spilled, about)
					}
					return
				case errors.Is(err, syscall.EMFILE):
					short["files"]++
				case errors.Is(err, syscall.ENOSPC):
					short["disk"]++
				default:
					require.ErrorIs(t, err, gpu.ErrBudget, about)
					short["budget"]++
				}
				names, globErr := filepath.Glob(filepath.Join(dir, "*out*"))
				require.NoError(t, globErr)
				require.Empty(t, names, "%v %s", err, about)
				require.False(t, strings.Contains(err.Error(), "report"), "%v %s", err, about)
			})
		}
	}
	t.Logf("%d runs ended; %v were short", ended, short)
	require.Positive(t, ended)
}
