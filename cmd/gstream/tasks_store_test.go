package main

import (
	"bytes"
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/source/store/storetest"
)

// TestTasksExchangeRowsThroughAStore runs jobs in tasks whose work folder is a prefix of an object store: one that
// succeeds, one that fails and one that is interrupted. None leaves an object or an upload.
func TestTasksExchangeRowsThroughAStore(t *testing.T) {
	storetest.Use(t, storetest.Gateway(t, t.TempDir()))
	t.Setenv("GSTREAM_TEST_MAIN", "1") // for the processes of tasks
	work := "s3://" + storetest.Bucket + "/work"
	flags := []string{"--device", "host", "--workers", "3", "--work-dir", work, "--task-size", "64KiB"}
	const steps = "  - group: {by: [o_custkey], aggregates: {n: count(*), p: sum(o_totalprice)}}\n  - sort: [o_custkey]"
	job, out := jobFile(t, steps, ", overwrite: true")
	rows := func(more ...string) string {
		code, _, stderr := gstream(append([]string{"run", job}, more...)...)
		require.Equal(t, exitOK, code, stderr)
		code, text, stderr := gstream("show", out, "--format", "csv", "--rows", "100000")
		require.Equal(t, exitOK, code, stderr)
		return text
	}
	require.True(t, rows("--device", "host") == rows(flags...), "other rows")
	require.Empty(t, objectsIn(t, work))

	wrong, out := jobFile(t, "  - group: {by: [o_custkey], aggregates: {n: sum(cast(o_comment as integer))}}", "")
	code, _, stderr := gstream(append([]string{"run", wrong}, flags...)...)
	require.Equal(t, exitData, code, stderr)
	require.Empty(t, objectsIn(t, work))
	require.NoFileExists(t, out)

	job = linesJob(t, sortedLines)
	interrupted := func(began func() bool) {
		var said bytes.Buffer
		c := start(t, &said, append([]string{"run", job}, flags...)...)
		require.Eventually(t, began, time.Minute, 5*time.Millisecond)
		require.NoError(t, c.Process.Signal(os.Interrupt))
		_ = c.Wait()
		require.Equal(t, 128+int(syscall.SIGINT), c.ProcessState.ExitCode(), said.String())
		require.Empty(t, objectsIn(t, work))
	}
	interrupted(func() bool { return countObjects(work) > 1 })
	leavesNothing(t, job)

	// Tasks write an output that is in the store too.
	lake := "s3://" + storetest.Bucket + "/out/"
	uploads := func() (n int) {
		_ = store.Uploads(context.Background(), lake, func(store.Pending) error { n++; return nil })
		return n
	}
	text, err := os.ReadFile(job)
	require.NoError(t, err)
	text = bytes.Replace(text, []byte("out.parquet"), []byte(lake), 1)
	require.Contains(t, string(text), lake)
	require.NoError(t, os.WriteFile(job, text, 0o600))
	interrupted(func() bool { return uploads() > 0 })
	require.Zero(t, uploads())
	require.Empty(t, objectsIn(t, lake))
	count := func(more ...string) string {
		code, _, stderr := gstream(append([]string{"run", job, "--overwrite", "--report", "-"}, more...)...)
		require.Equal(t, exitOK, code, stderr)
		_, text, _ := gstream("sql", "SELECT count(*) AS n, sum(l_partkey) AS p, sum(l_extendedprice) AS e FROM '"+lake+
			"*.parquet'", "--format", "csv")
		return text
	}
	require.Equal(t, count("--device", "host"), count(flags...))
	require.Greater(t, countObjects(lake), 2)
	require.Zero(t, uploads())
	require.Empty(t, objectsIn(t, work))
}

// countObjects counts the objects whose names begin with a prefix.
func countObjects(prefix string) (n int) {
	_ = store.List(context.Background(), prefix, func(string, store.Version) error { n++; return nil })
	return n
}
