package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source/store/storetest"
)

// TestSourcesInAStore gives addresses to each command that takes a path of a source, and compares what it prints with
// that for the files themselves. No output has a credential, or the query of an address.
func TestSourcesInAStore(t *testing.T) {
	data, err := filepath.Abs(filepath.Join("..", "..", "examples", "quickstart", "data"))
	require.NoError(t, err)
	endpoint := storetest.Folder(t, data)
	storetest.Use(t, endpoint)
	s3, signed := "s3://"+storetest.Bucket+"/", endpoint+"/web/nation.parquet?X-Amz-Signature=5ec7e7signature"
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := gstream(args...)
		require.Equal(t, want, code, "%v: %s", args, stderr)
		for _, text := range []string{stdout, stderr} {
			require.NotContains(t, text, "5ec7e7", "%v", args)
			require.NotContains(t, text, storetest.Key, "%v", args)
		}
		return stdout, stderr
	}
	for _, args := range [][]string{
		{"show", "DIR/nation.parquet"},
		{"show", "DIR/nat*.parquet"},
		{"show", "DIR/nation.parquet", "--format", "csv"},
		{"sql", "SELECT o_orderstatus, count(*) AS n FROM 'DIR/orders.parquet' GROUP BY ALL ORDER BY ALL"},
		{"sql", "SELECT count(*) AS n FROM read_parquet(['DIR/nation.parquet', 'DIR/nat*n.parquet'])"},
		{"sql", "SELECT file FROM glob('DIR/*.parquet')"},
		{"sql", "SUMMARIZE 'DIR/nation.parquet'"},
		{"inspect", "DIR/nation.parquet"},
		{"inspect", "DIR/"},
	} {
		var answers [2]string
		for i, dir := range []string{data + "/", s3} {
			in := slices.Clone(args)
			for k := range in {
				in[k] = strings.ReplaceAll(in[k], "DIR/", dir)
			}
			answers[i], _ = run(0, in...)
		}
		spaces := regexp.MustCompile(`[ ─]+`) // the width of a column depends on the path
		require.Equal(t, spaces.ReplaceAllString(strings.ReplaceAll(answers[0], data+"/", s3), " "),
			spaces.ReplaceAllString(answers[1], " "), "%v", args)
	}

	dir := t.TempDir()
	job, report := filepath.Join(dir, "job.yaml"), filepath.Join(dir, "report.json")
	text := fmt.Sprintf("sources:\n  orders: %s\n  nation: [%q]\nsteps:\n  - sql: |\n      SELECT r.n_name, count(*) "+
		"AS n FROM orders JOIN nation ON o_custkey %% 25 = n_nationkey "+
		"JOIN '%s' r ON r.n_nationkey = nation.n_nationkey "+
		"GROUP BY ALL ORDER BY ALL\noutput: {parquet: out.parquet, overwrite: true}\n", s3+"ord*.parquet", signed,
		signed+"2")
	require.NoError(t, os.WriteFile(job, []byte(text), 0o666))
	run(0, "lint", job)
	run(0, "check", job)
	run(0, "explain", job, "--rules")
	run(0, "explain", job, "--format", "json")
	run(0, "explain", job, "--analyze")
	run(0, "run", job, "--report", report)
	b, err := os.ReadFile(report)
	require.NoError(t, err)
	require.NotContains(t, string(b), "5ec7e7")
	shown, _ := run(0, "show", filepath.Join(dir, "out.parquet"), "--format", "csv", "--rows", "1")
	require.Contains(t, shown, "ALGERIA,")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitIO, "there is no such bucket at", []string{"inspect", "s3://" + storetest.Bucket + "x/none.parquet"}},
		{exitIO, "no object matches this pattern", []string{"show", s3 + "none*"}},
		{exitIO, "404 Not Found (NoSuchKey): check the address", []string{"show",
			endpoint + "/web/none.parquet?X=5ec7e7"}},
		{exitJob, "there is no column", []string{"sql", "SELECT nope FROM '" + signed + "'"}},
		{exitJob, "expected", []string{"sql", "FROM '" + signed + "' SELECTT x"}},
		{exitJob, "", []string{"sql", "SELECT 1 + '" + signed + "' x y"}},
		{exitJob, "an output is not yet written to an address", []string{"sql",
			"COPY (SELECT 1 AS a) TO '" + s3 + "x.parquet'"}},
		{exitJob, "a password", []string{"show", strings.Replace(signed, "http://", "http://u:5ec7e7@", 1)}},
	} {
		_, stderr := run(c.code, c.args...)
		require.Contains(t, stderr, c.want)
	}
}
