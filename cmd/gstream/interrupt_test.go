package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
)

// TestMain turns the test binary into gstream if the environment says so, for tests that
// need a process of their own.
func TestMain(m *testing.M) {
	if os.Getenv("GSTREAM_TEST_MAIN") != "" {
		main()
	}
	os.Exit(m.Run())
}

// start runs a command line as a process of its own.
func start(t *testing.T, stderr io.Writer, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "GSTREAM_TEST_MAIN=1")
	cmd.Stderr = stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// endlessJob is a job that writes until it is stopped.
func endlessJob(t *testing.T, options string) (path string) {
	dir := t.TempDir()
	abs, err := filepath.Abs(data)
	require.NoError(t, err)
	path = filepath.Join(dir, "job.yaml")
	job := `sources: {a: ` + abs + `/orders.parquet, b: ` + abs + `/orders.parquet, c: ` + abs + `/orders.parquet}
steps:
  - {from: a, join: {with: b, on: a.o_shippriority = b.o_shippriority}}
  - join: {with: c, on: a.o_shippriority = c.o_shippriority}
  - select: [a.o_orderkey as x]
output: {parquet: new/folder/out` + options + `}
`
	require.NoError(t, os.WriteFile(path, []byte(job), 0o644))
	return path
}

func TestInterruptStopsARunInTheMiddleAndLeavesNothing(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, options := range []string{"", ", rows_per_file: 100000"} {
			path := endlessJob(t, options)
			var stderr bytes.Buffer
			cmd := start(t, &stderr, "run", path)
			// It is writing as soon as its temporary file exists.
			require.Eventually(t, func() bool {
				left, _ := filepath.Glob(filepath.Dir(path) + "/new/folder/.*")
				return len(left) > 0
			}, time.Minute, 5*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(signal))
			_ = cmd.Wait()
			assert.Equal(t, 128+int(signal), cmd.ProcessState.ExitCode(), stderr.String())
			assert.Contains(t, stderr.String(), "interrupted; nothing was written")
			leavesNothing(t, path)
		}
	}
}

func TestAnInterruptIsARecordToo(t *testing.T) {
	path := endlessJob(t, "")
	var stderr bytes.Buffer
	cmd := start(t, &stderr, "run", path, "--progress", "json")
	require.Eventually(t, func() bool {
		left, _ := filepath.Glob(filepath.Dir(path) + "/new/folder/.*")
		return len(left) > 0
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	assert.Equal(t, 143, cmd.ProcessState.ExitCode(), stderr.String())
	all := records(t, stderr.String())
	last := all[len(all)-1]
	assert.Equal(t, []any{"done", 143.0, "interrupted; nothing was written"},
		[]any{last["type"], last["exit_code"], last["error"]})
	leavesNothing(t, path)
}

func TestSecondInterruptEndsAtOnceAndLeavesNothing(t *testing.T) {
	path := endlessJob(t, "")
	left := &leftovers{}
	exited := make(chan int, 1)
	var notice bytes.Buffer
	ctx, stop := interruptible(&notice, left, func(code int) { exited <- code })
	defer stop()
	// The run does not notice the first interrupt, as if it hung.
	hung, cancel := context.WithCancel(context.Background())
	ended := make(chan int)
	go func() {
		ended <- run(hung, []string{"run", path, "--progress", "none"}, &bytes.Buffer{}, &bytes.Buffer{}, left)
	}()
	require.Eventually(t, func() bool {
		left, _ := filepath.Glob(filepath.Dir(path) + "/new/folder/.*")
		return len(left) > 0
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	<-ctx.Done()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	assert.Equal(t, exitInterrupted, <-exited)
	leavesNothing(t, path)
	assert.Contains(t, notice.String(), "interrupt again")
	cancel()
	assert.Equal(t, exitInterrupted, <-ended)
}

func TestInterruptBeforeTheRunLeavesNothing(t *testing.T) {
	path, _ := jobFile(t, "  - sort: o_comment", "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stdout, stderr strings.Builder
	assert.Equal(t, exitInterrupted, run(ctx, []string{"run", path}, &stdout, &stderr, &leftovers{}))
	leavesNothing(t, path)
}

// onDisk returns the bytes that a process has in files of a folder.
func onDisk(process int, folder string) (bytes int64) {
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", process))
	for _, fd := range open {
		if name, err := os.Readlink(fd); err != nil || !strings.HasPrefix(name, folder+"/") {
			continue
		}
		if file, err := os.Stat(fd); err == nil {
			bytes += file.Size()
		}
	}
	return bytes
}

// TestAKilledRunThatSpillsLeavesNoFilesAndCanBeRepeated kills a sort while its rows are on disk.
func TestAKilledRunThatSpillsLeavesNoFilesAndCanBeRepeated(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	path, folder := linesJob(t, sortedLines), t.TempDir()
	out := filepath.Join(filepath.Dir(path), "out.parquet")
	nothingSpilled := func() {
		left, err := os.ReadDir(folder)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	spilling := []string{"run", path, "--device", "host", "--threads", "2", "--host-memory", "20MiB", "--spill-dir",
		folder}
	cmd := start(t, io.Discard, spilling...)
	require.Eventually(t, func() bool { return onDisk(cmd.Process.Pid, folder) >= 1<<20 }, time.Minute,
		time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	require.Equal(t, -1, cmd.ProcessState.ExitCode(), "it ended before it was killed")
	nothingSpilled()
	require.NoFileExists(t, out)

	code, _, stderr := gstream(spilling...)
	require.Equal(t, exitOK, code, stderr)
	nothingSpilled()
	again := sortedRows(t, out)
	require.NoError(t, os.Remove(out))
	leavesNothing(t, path)

	code, _, stderr = gstream("run", path, "--device", "host", "--threads", "2", "--host-memory", "1GiB", "--spill-dir",
		"none")
	require.Equal(t, exitOK, code, stderr)
	require.True(t, slices.Equal(sortedRows(t, out), again), "the rows are those of a run that spills nothing")
}

// sortedRows returns the rows of a file as sorted text.
func sortedRows(t *testing.T, file string) []string {
	code, stdout, stderr := gstream("show", file, "--format", "csv", "--rows", "1000000")
	require.Equal(t, exitOK, code, stderr)
	rows := strings.Split(stdout, "\n")
	require.Greater(t, len(rows), 400_000)
	slices.Sort(rows)
	return rows
}
