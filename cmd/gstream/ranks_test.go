package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
)

// startRanks starts a command in several processes, as a launcher does. It returns them and what each writes to
// standard error.
func startRanks(t *testing.T, n int, args ...string) (cmds []*exec.Cmd, stderr []*bytes.Buffer) {
	_, port, err := net.SplitHostPort(gputest.FreeAddress(t))
	require.NoError(t, err)
	for rank := range n {
		text := &bytes.Buffer{}
		t.Setenv("RANK", strconv.Itoa(rank))
		t.Setenv("WORLD_SIZE", strconv.Itoa(n))
		t.Setenv("MASTER_ADDR", "localhost")
		t.Setenv("MASTER_PORT", port)
		cmds, stderr = append(cmds, start(t, text, args...)), append(stderr, text)
	}
	return cmds, stderr
}

func TestRanksRunAJobTogether(t *testing.T) {
	path, out := tasksJob(t)
	code, _, text := gstream("run", path, "--device", "host")
	require.Zero(t, code, text)
	want := rowsOfTasksJob(t, out)
	require.NoError(t, os.RemoveAll(out))
	report := filepath.Join(t.TempDir(), "report.json")
	cmds, stderr := startRanks(t, 3, "run", path, "--device", "host", "--ranks", "tcp", "--report", report)
	for i, cmd := range cmds {
		require.NoError(t, cmd.Wait(), stderr[i].String())
	}
	require.Equal(t, want, rowsOfTasksJob(t, out))
	require.Contains(t, stderr[0].String(), "on rank 2, host: ")
	require.Empty(t, stderr[1].String())
	require.Empty(t, stderr[2].String())
	require.FileExists(t, report)

	cmds, stderr = startRanks(t, 2, "run", path, "--device", "host", "--ranks", "nccl", "--overwrite")
	for i, cmd := range cmds {
		require.Error(t, cmd.Wait())
		require.Contains(t, stderr[i].String(), "NCCL connects GPUs")
	}
	for _, args := range [][]string{{"--ranks", "udp"}, {"--ranks", "tcp", "--workers", "2"}} {
		code, _, text := gstream(append([]string{"run", path}, args...)...)
		require.Equal(t, exitJob, code, text)
		require.Contains(t, text, "--ranks")
	}
}

// TestAKilledRankEndsAllOthers kills one of several processes in the middle of a run, or interrupts it.
func TestAKilledRankEndsAllOthers(t *testing.T) {
	for i, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGKILL, syscall.SIGTERM} {
		path := endlessJob(t, "")
		cmds, stderr := startRanks(t, 3, "run", path, "--device", "host", "--threads", "1", "--ranks", "tcp")
		created := filepath.Join(filepath.Dir(path), "new")
		require.Eventually(t, func() bool { _, err := os.Stat(created); return err == nil }, time.Minute,
			5*time.Millisecond)
		time.Sleep(time.Duration(50*i) * time.Millisecond)
		victim := i % 3
		require.NoError(t, cmds[victim].Process.Signal(signal))
		begin := time.Now()
		for rank, cmd := range cmds {
			require.Error(t, cmd.Wait())
			switch {
			case signal != syscall.SIGKILL:
				require.Contains(t, stderr[rank].String(), "interrupted; nothing was written")
			case rank != victim:
				require.Contains(t, stderr[rank].String(), fmt.Sprintf("rank %d: the connection", victim))
			}
		}
		require.Less(t, time.Since(begin), 20*time.Second)
		if victim > 0 || signal != syscall.SIGKILL {
			require.NoDirExists(t, created)
		}
	}
}
