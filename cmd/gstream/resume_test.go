package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARunOverTextAndArrowIsResumed(t *testing.T) {
	dir := t.TempDir()
	in, job := filepath.Join(dir, "in.csv"), filepath.Join(dir, "job.yaml")
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o666)) }
	write(in, "a,b\n1,2\n")
	code, _, stderr := gstream("sql", "COPY (SELECT 1 AS a, 'x' AS s) TO '"+dir+"/s.arrow'")
	require.Equal(t, exitOK, code, stderr)
	text := "sources: {t: in.csv, s: s.arrow}\nsteps: [{sql: 'select a, b, s from t join s using (a)'}]\n" +
		"output: {json: out.jsonl, overwrite: true}\n"
	write(job, text)
	run := func() bool {
		code, _, stderr := gstream("run", job, "--resume", filepath.Join(dir, "state"))
		require.Equal(t, exitOK, code, stderr)
		return !strings.Contains(stderr, "nothing to do")
	}
	require.True(t, run())
	require.False(t, run())
	write(in, "a,b\n1,3\n")
	require.True(t, run(), "a source has changed")
	require.False(t, run())
	write(job, strings.Replace(text, "t: in.csv", "t: {csv: in.csv, types: {b: VARCHAR}}", 1))
	require.True(t, run(), "the source is read in another way")
	require.False(t, run())
	code, _, stderr = gstream("sql", "COPY (SELECT 1 AS a, 'y' AS s) TO '"+dir+"/s.arrow' (OVERWRITE)")
	require.Equal(t, exitOK, code, stderr)
	require.True(t, run(), "the other source has changed")
	require.NoError(t, os.Remove(filepath.Join(dir, "out.jsonl")))
	require.True(t, run(), "the output is missing")
	write(job, strings.Replace(text, "json: out.jsonl", "json: '-'", 1))
	require.True(t, run())
	require.True(t, run(), "standard output")
}

// TestARunOverManyDaysGoesOnWhereItWasCut runs a job for some days, one of which fails at first.
func TestARunOverManyDaysGoesOnWhereItWasCut(t *testing.T) {
	dir := t.TempDir()
	write := func(day string, n int) {
		text := fmt.Sprintf("COPY (SELECT range AS n FROM range(%d)) TO '%s/in-%s.parquet' (OVERWRITE)", n, dir, day)
		code, _, stderr := gstream("sql", text)
		require.Equal(t, exitOK, code, stderr)
	}
	job, state := filepath.Join(dir, "job.yaml"), filepath.Join(dir, "state.jsonl")
	require.NoError(t, os.WriteFile(job, []byte(`name: daily
vars: {day: {}}
sources: {t: "in-${day}.parquet"}
steps:
  - group: {aggregates: {n: count(*)}}
outputs:
  - {parquet: "out-${day}.parquet", overwrite: true}
  - {parquet: "days/${day}", rows_per_file: 10, overwrite: true}
  - {csv: "out-${day}.csv", overwrite: true}
  - {arrow: "out-${day}.arrow", overwrite: true}
`), 0o666))
	write("2026-02-27", 1)
	write("2026-02-28", 2)
	write("2026-03-02", 4)
	// run returns how many days were run, and skipped.
	run := func(want int) (ran, skipped int) {
		code, _, stderr := gstream("run", job, "--each", "day=2026-02-27..2026-03-02", "--resume", state)
		require.Equal(t, want, code, stderr)
		return strings.Count(stderr, "wrote "), strings.Count(stderr, "nothing to do")
	}
	counts := func(ran, skipped int) []int { return []int{ran, skipped} }
	require.Equal(t, []int{2, 0}, counts(run(exitIO)), "the third day has no file")
	write("2026-03-01", 3)
	require.Equal(t, []int{2, 2}, counts(run(exitOK)))
	require.Equal(t, []int{0, 4}, counts(run(exitOK)))
	write("2026-02-28", 5)
	require.Equal(t, []int{1, 3}, counts(run(exitOK)), "a source has changed")
	require.NoError(t, os.Remove(filepath.Join(dir, "out-2026-03-01.parquet")))
	require.Equal(t, []int{1, 3}, counts(run(exitOK)), "an output is missing")
	require.NoError(t, os.Remove(filepath.Join(dir, "days/2026-03-02/part-00000.parquet")))
	require.Equal(t, []int{1, 3}, counts(run(exitOK)), "a file of an output is missing")
	text, err := os.ReadFile(job)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(job, []byte(strings.Replace(string(text), "count(*)", "count(*) + 1", 1)), 0o666))
	ran, _ := run(exitOK)
	require.Equal(t, 4, ran, "the job has changed")

	// A killed run may leave a part of a line.
	f, err := os.OpenFile(state, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"job":"dai`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, []int{0, 4}, counts(run(exitOK)))
	write("2026-02-27", 7)
	require.Equal(t, []int{1, 3}, counts(run(exitOK)))
	require.NoError(t, os.WriteFile(state, []byte("notes\nof mine\n"), 0o666))
	_, _ = run(exitJob)
	for _, each := range []string{"day", "=1", "day=", "day=2026-03-02..2026-03-01", "day=1..3"} {
		code, _, stderr := gstream("run", job, "--each", each)
		require.Equal(t, exitJob, code, stderr)
	}
}
