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

	"github.com/gstream/gstream/source/store"
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
		{exitJob, "cannot be written to a web server", []string{"sql",
			"COPY (SELECT 1 AS a) TO '" + endpoint + "/web/x.parquet?X-Amz-Signature=5ec7e7'"}},
		{exitJob, "a password", []string{"show", strings.Replace(signed, "http://", "http://u:5ec7e7@", 1)}},
	} {
		_, stderr := run(c.code, c.args...)
		require.Contains(t, stderr, c.want)
	}
}

// TestOutputsInAStore writes objects by jobs and by SQL, and reads them.
func TestOutputsInAStore(t *testing.T) {
	data, err := filepath.Abs(filepath.Join("..", "..", "examples", "quickstart", "data"))
	require.NoError(t, err)
	storetest.Use(t, storetest.Gateway(t, t.TempDir()))
	s3 := "s3://" + storetest.Bucket + "/"
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := gstream(args...)
		require.Equal(t, want, code, "%v: %s", args, stderr)
		return stdout, stderr
	}
	rows := func(from string) string {
		t.Helper()
		out, _ := run(0, "sql", "--format", "csv", "SELECT count(*) AS n, sum(o_totalprice) AS p FROM '"+from+"'")
		return out
	}
	want := rows(data + "/orders.parquet")
	for _, to := range []string{"one.parquet", "folder/", "days", "text/orders.csv.gz"} {
		options := "OVERWRITE false"
		if to == "days" {
			options = "PARTITION_BY (o_orderstatus)"
		}
		text := fmt.Sprintf("COPY (FROM '%s/orders.parquet') TO '%s' (%s)", data, s3+to, options)
		run(0, "explain", "--analyze", copyJob(t, data, s3+to))
		require.Empty(t, objectsIn(t, s3+to), "explain --analyze leaves nothing")
		run(0, "sql", text)
		require.NotEmpty(t, objectsIn(t, s3+to))
		require.Equal(t, want, rows(s3+to), to)
		_, stderr := run(exitIO, "sql", text)
		require.Contains(t, stderr, "already exists")
	}
	for _, options := range []string{"PARTITION_BY (o_orderstatus), OVERWRITE partitions",
		"ROWS_PER_FILE 5000, APPEND"} {
		to := s3 + "more"
		if strings.HasPrefix(options, "P") {
			to = s3 + "days"
		}
		for range 2 {
			run(0, "sql", fmt.Sprintf("COPY (FROM '%s/orders.parquet') TO '%s' (%s)", data, to, options))
		}
	}
	require.Equal(t, want, rows(s3+"days"), "each partition was replaced")
	require.Len(t, objectsIn(t, s3+"more/part-"), 6)
	_, stderr := run(exitJob, "sql", fmt.Sprintf("COPY (FROM '%s*.parquet') TO '%stwo.parquet'", s3, s3))
	require.Contains(t, stderr, "the output is among the files of the source")
	_, stderr = run(exitIO, "sql", "COPY (SELECT 1 AS a) TO 's3://none-of-ours/x.parquet'")
	require.Contains(t, stderr, "there is no such bucket")
}

// objectsIn lists the objects whose names begin with a prefix. There is no upload of one.
func objectsIn(t *testing.T, prefix string) (names []string) {
	require.NoError(t, store.List(t.Context(), prefix, func(path string, _ store.Version) error {
		names = append(names, path)
		return nil
	}))
	require.NoError(t, store.Uploads(t.Context(), prefix, func(p store.Pending) error {
		return fmt.Errorf("an upload of %s is left", p.Path)
	}))
	return names
}

// copyJob writes a job file that copies the orders to a path.
func copyJob(t *testing.T, data, to string) string {
	path, key := filepath.Join(t.TempDir(), "job.yaml"), "parquet"
	if strings.HasSuffix(to, ".csv.gz") {
		key = "csv"
	}
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil,
		"sources: {orders: %s/orders.parquet}\nsteps:\n  - limit: 100\noutput: {%s: '%s'}\n", data, key, to), 0o666))
	return path
}
