package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline"
)

func TestRunTakesSeveralJobs(t *testing.T) {
	first, one := jobFile(t, "  - limit: 1", "")
	second, two := jobFile(t, "  - limit: 2", "")
	code, stdout, stderr := gstream("run", first, second, "--report", "-", "--threads", "1")
	require.Equal(t, exitOK, code, stderr)
	assert.FileExists(t, one)
	assert.FileExists(t, two)
	reports := json.NewDecoder(strings.NewReader(stdout))
	for rows := int64(1); rows <= 2; rows++ {
		var r pipeline.Report
		require.NoError(t, reports.Decode(&r))
		assert.Equal(t, rows, r.Output.Rows)
	}
	assert.Equal(t, 2, strings.Count(stderr, "wrote "))
}

func TestRunStopsAtTheFirstJobThatFails(t *testing.T) {
	good, out := jobFile(t, "  - limit: 1", "")
	bad, _ := jobFile(t, "  - select: [o_orderkey // (o_orderkey - o_orderkey) as x]", "")
	code, _, stderr := gstream("run", bad, good)
	assert.Equal(t, exitData, code, stderr)
	assert.NoFileExists(t, out)
	code, _, stderr = gstream("run", good, bad, "--report", filepath.Join(t.TempDir(), "r.json"))
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, "a file holds the result of one job, not of 2")
	code, _, stderr = gstream("run")
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, "takes one or more job files")
}

func TestAnErrorOfValuesHasTheLineOfItsStep(t *testing.T) {
	path,
		_ := jobFile(t, "  - limit: 10\n  - name: quotient\n    select: [o_orderkey // (o_orderkey - o_orderkey) as x]",
		"")
	report := filepath.Join(t.TempDir(), "r.json")
	code, _, stderr := gstream("run", path, "--report", report)
	assert.Equal(t, exitData, code)
	assert.Contains(t, stderr, "job.yaml:6:14: quotient: ")
	assert.Contains(t, stderr, "is divided by zero")
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	assert.Contains(t, string(text), "job.yaml:6:14: quotient: ")
}

func TestLintChecksSeveralFilesAndNeedsNoData(t *testing.T) {
	good, _ := jobFile(t, "  - limit: 1", "")
	bad, _ := jobFile(t, "  - filter: o_orderkey >", "")
	worse, _ := jobFile(t, "  - from: nobody\n    filter: nosuch(o_orderkey) > 1", ", dictionary_columns: [nope]")
	code, _, stderr := gstream("lint", good, bad, worse)
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, bad+":4:")
	assert.Contains(t, stderr, worse+":4:")
	text, err := os.ReadFile(good)
	require.NoError(t, err)
	away := filepath.Join(t.TempDir(), "away.yaml")
	require.NoError(t, os.WriteFile(away, []byte(strings.Replace(string(text), "orders.parquet", "nothing.parquet", 1)),
		0o666))
	code, _, stderr = gstream("lint", away)
	assert.Equal(t, exitIO, code, stderr)
	code, _, stderr = gstream("lint", away, good, "--no-data")
	assert.Equal(t, exitOK, code, stderr)
	code, _, stderr = gstream("lint", bad, worse, "--no-data")
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, "found the end of the expression")
	assert.Contains(t, stderr, `there is no source or earlier step named "nobody"`)
	assert.Contains(t, stderr, `there is no function "nosuch"`)
}

func TestLintChecksTheColumnsOfTheOutput(t *testing.T) {
	path, _ := jobFile(t, "  - select: [o_orderkey as k]", ", dictionary_columns: [nope]")
	code, _, stderr := gstream("lint", path)
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, `dictionary_columns names "nope", which is not a column; the columns are k`)
}

func TestPathsThatAreNoFilesAreRefused(t *testing.T) {
	for path, want := range map[string]struct{ output, source string }{
		"ftp://bucket/a.parquet": {"addresses that begin with ftp:// are not supported",
			"addresses that begin with ftp:// are not supported"},
		"file:///a.parquet": {"write the path without file://", "write the path without file://"},
		"-":                 {"standard output cannot take the rows", ""},
	} {
		job, _ := jobFile(t, "  - limit: 1", "")
		text, err := os.ReadFile(job)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(job, []byte(strings.Replace(string(text), "out.parquet", path, 1)), 0o666))
		code, _, stderr := gstream("run", job)
		assert.Equal(t, exitJob, code, stderr)
		assert.Contains(t, stderr, want.output)
		leavesNothing(t, job)
		if path == "-" {
			continue
		}
		require.NoError(t,
			os.WriteFile(job, []byte("sources: {a: '"+path+"'}\nsteps: [{limit: 1}]\noutput: {parquet: out.parquet}\n"),
				0o666))
		code, _, stderr = gstream("lint", job)
		assert.Equal(t, exitJob, code, stderr)
		assert.Contains(t, stderr, want.source)
	}
}

func TestInspectListsTheFilesOfAFolder(t *testing.T) {
	code, out, stderr := gstream("inspect", data)
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, out, "78,805 rows in 7 files")
	assert.Regexp(t, `orders.parquet +15,000 +1 `, out)
	assert.Contains(t, out, "another schema")
	assert.Regexp(t,
		`(?s)schema of .*customer.parquet\n.*schema of .*lineitem.parquet\n.*The files are not one table: .*lineitem.parquet has none of the columns`, out)
	code, out, _ = gstream("inspect", data+"/o*.parquet", "--format", "json")
	require.Equal(t, exitOK, code)
	var info filesInfo
	require.NoError(t, json.Unmarshal([]byte(out), &info))
	assert.Equal(t, int64(15000), info.Rows)
	code, _, _ = gstream("inspect", t.TempDir())
	assert.Equal(t, exitIO, code)
}

func TestLintChecksColumnsOfASchemaWithoutTheData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.yaml")
	lint := func(schema, filter string, args ...string) (int, string) {
		text := "sources:\n  a: {parquet: nowhere/a.parquet, schema: " + schema + "}\n  b: {parquet: " + mustAbs(t,
			data+"/nation.parquet") + "}\nsteps:\n  - {from: a, filter: " + filter +
			"}\n  - join: {with: b, on: id = n_nationkey}\noutput: {parquet: out.parquet}\n"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		code, _, stderr := gstream(append([]string{"lint", path}, args...)...)
		return code, stderr
	}
	for _, args := range [][]string{nil, {"--no-data"}} {
		code, stderr := lint("{id: BIGINT, price: 'DECIMAL(12,2)'}", "price > 1.5", args...)
		assert.Equal(t, exitOK, code, stderr)
		code, stderr = lint("{id: BIGINT, price: 'DECIMAL(12,2)'}", "prise > 1.5", args...)
		assert.Equal(t, exitJob, code)
		assert.Contains(t, stderr, `job.yaml:5:23: filter 1: there is no column "prise"`)
		code, stderr = lint("{id: BIGINT, price: NUMBER}", "price > 1.5", args...)
		assert.Equal(t, exitJob, code)
		assert.Contains(t, stderr, `column "price": unknown type "NUMBER"`)
	}
	code, _ := lint("{id: DATE}", "id is not null")
	assert.Equal(t, exitJob, code, "the join compares a DATE with a BIGINT")
	code, _, stderr := gstream("run", path)
	assert.Equal(t, exitIO, code)
	assert.Contains(t, stderr, "nowhere/a.parquet")
}

func mustAbs(t *testing.T, path string) string {
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	return abs
}

// TestFilesThatAFilterOnFoldersRulesOutAreNotOpened: they may even be no Parquet files.
func TestFilesThatAFilterOnFoldersRulesOutAreNotOpened(t *testing.T) {
	dir := t.TempDir()
	orders, err := os.ReadFile(data + "/orders.parquet")
	require.NoError(t, err)
	for name, content := range map[string][]byte{"y=2023/m=12": orders, "y=2024/m=3": orders,
		"y=2024/m=4": []byte("damaged")} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "d", name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "d", name, "part.parquet"), content, 0o644))
	}
	job := func(filter string) string {
		path := filepath.Join(dir, "job.yaml")
		require.NoError(t,
			os.WriteFile(path,
				[]byte("sources: {d: d}\nsteps:\n  - filter: "+filter+
					"\n  - group: {by: [y, m], aggregates: {n: count(*)}}\noutput: {parquet: out.parquet, "+
					"overwrite: true}\n"), 0o644))
		return path
	}
	code, out, stderr := gstream("explain", job("m = 3"))
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, out, "15,000 rows, 1 row groups")
	assert.Contains(t, out, "2 of 3 files not opened, by their folders")
	code, _, stderr = gstream("run", job("m * 2 = 6 and o_orderkey > 5"))
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stderr, "d: did not open 2 of 3 files, by their folders")
	code, out, stderr = gstream("show", job("y = 2023"), "--format", "csv")
	require.Equal(t, exitOK, code, stderr)
	assert.Equal(t, "y,m,n\n2023,12,15000\n", out)
	code, _, stderr = gstream("run", job("m >= 3"))
	assert.Equal(t, exitData, code)
	assert.Contains(t, stderr, "m=4/part.parquet")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "d", "y=2024", "m=4")))
	code, out, stderr = gstream("inspect", filepath.Join(dir, "d"))
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, out, "  m BIGINT, in the names of folders\n")
}

func TestVersionIsAFlagToo(t *testing.T) {
	_, command, _ := gstream("version")
	code, flag, _ := gstream("--version")
	assert.Equal(t, exitOK, code)
	assert.Equal(t, command, flag)
	assert.True(t, strings.HasPrefix(flag, "gstream "))
}

func TestExplainAnalyzeTakesTheFlagsOfRun(t *testing.T) {
	path, out := jobFile(t, "  - limit: 3", "")
	code, text, stderr := gstream("explain", path, "--analyze", "--threads", "1", "--host-memory", "1GiB", "--device",
		"host")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, text, "actual: ")
	assert.NoFileExists(t, out)
	code, _, stderr = gstream("explain", path, "--host-memory", "much")
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, "--host-memory")
}
