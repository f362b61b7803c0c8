package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/pipeline/temporal"
)

// temporalServer starts Temporal's development server on a port, with a file for its state.
func temporalServer(t *testing.T, port int, db string) *exec.Cmd {
	program := os.Getenv("GSTREAM_TEMPORAL")
	if program == "" {
		t.Skip("GSTREAM_TEMPORAL does not name Temporal's command-line program")
	}
	cmd := exec.Command(program, "server", "start-dev", "--headless", "--db-filename", db, "--port",
		strconv.Itoa(port), "--log-level", "error")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// freePort returns a port of this machine that nothing uses.
func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// filesIn returns the files under a folder.
func filesIn(t *testing.T, folder string) (files []string) {
	require.NoError(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return nil // files vanish meanwhile
	}))
	return files
}

// sendSignal sends a signal to a process and waits until it has ended.
func sendSignal(t *testing.T, c *exec.Cmd, s syscall.Signal) {
	require.NoError(t, c.Process.Signal(s))
	_ = c.Wait()
}

// TestTasksOnTemporal runs a job on workers of Temporal, loses a worker and the server in mid-run, interrupts a run,
// and gives a worker a task of another version.
func TestTasksOnTemporal(t *testing.T) {
	port, db := freePort(t), filepath.Join(t.TempDir(), "t.db")
	server := temporalServer(t, port, db)
	on := fmt.Sprintf("temporal://127.0.0.1:%d?silence=2s", port)
	address, err := temporal.ParseAddress(on)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		e, err := temporal.NewEngine(address)
		if err == nil {
			e.Close()
		}
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	var log bytes.Buffer
	newWorker := func(to io.Writer) *exec.Cmd {
		return start(t, to, "worker", "--on", on, "--device", "host", "--threads", "1", "--host-memory", "200MiB",
			"--spill-dir", t.TempDir())
	}
	first, second := newWorker(&log), newWorker(io.Discard)

	job, work := linesJob(t, sortedLines), t.TempDir()
	out := filepath.Join(filepath.Dir(job), "out.parquet")
	code, _, stderr := gstream("run", job, "--device", "host")
	require.Equal(t, exitOK, code, stderr)
	rows := func() string {
		_, text, _ := gstream("sql", "SELECT count(*) AS n, sum(l_partkey) AS p, sum(l_extendedprice) AS e FROM '"+
			out+"'", "--format", "csv")
		require.NoError(t, os.Remove(out))
		return text
	}
	want := rows()
	require.Contains(t, want, ",")
	check := func(c *exec.Cmd, said *bytes.Buffer) {
		t.Helper()
		require.NoError(t, c.Wait(), said.String())
		require.Equal(t, want, rows())
		require.Empty(t, filesIn(t, work))
	}
	begin := func() (*exec.Cmd, *bytes.Buffer) {
		said := &bytes.Buffer{}
		c := start(t, said, "run", job, "--device", "host", "--on", on, "--work-dir", work, "--workers", "2")
		return c, said
	}
	tasksBegan := func() {
		require.Eventually(t, func() bool { return len(filesIn(t, work)) > 1 }, time.Minute, time.Millisecond)
	}
	check(begin())

	c, said := begin()
	tasksBegan()
	sendSignal(t, second, syscall.SIGKILL)
	sendSignal(t, server, syscall.SIGKILL)
	temporalServer(t, port, db)
	check(c, said)

	c, said = begin()
	tasksBegan()
	sendSignal(t, c, syscall.SIGINT)
	require.Equal(t, exitInterrupted, c.ProcessState.ExitCode(), said.String())
	require.Empty(t, filesIn(t, work))
	require.NoFileExists(t, out)

	// The only worker is of another version than this task.
	other, err := json.Marshal(map[string]int{"task_version": 1000})
	require.NoError(t, err)
	path := filepath.Join(work, "other.task.json")
	require.NoError(t, os.WriteFile(path, other, 0o666))
	e, err := temporal.NewEngine(address)
	require.NoError(t, err)
	defer e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = e.Run(ctx, 0, path)
	require.ErrorIs(t, err, pipeline.ErrJob)
	require.ErrorContains(t, err, "use one version of gstream on all machines")
	sendSignal(t, first, syscall.SIGTERM)
	require.NotContains(t, log.String(), "panic")
}
