package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sqlOf runs gstream sql on the CPU.
func sqlOf(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := gstream(append([]string{"sql", "--device", "host"}, args...)...)
	require.Equal(t, exitOK, code, stderr)
	return stdout
}

func TestSQLPrintsRows(t *testing.T) {
	nation := "'" + data + "/nation.parquet'"
	require.Equal(t, "     r  n\nBIGINT  VARCHAR\n──────  ───────\n     1  it's\n\n1 row; 2 columns\n",
		sqlOf(t, "SELECT n_regionkey AS r, $name AS n FROM "+nation+" WHERE n_nationkey = $2 LIMIT 1", "--param",
			"name=it's",
			"--param", "2=1"))
	all := sqlOf(t, "SELECT a.n_name FROM "+nation+" a, "+nation+" b", "--format", "csv")
	require.Equal(t, 1+25*25, strings.Count(all, "\n"))
	require.Contains(t, sqlOf(t, "SELECT a.n_name FROM "+nation+" a, "+nation+" b"),
		"first 40 rows, and there are more")
	for _, comment := range []string{"-- a comment\n", "--\n", "--- \n", "/* a */"} {
		require.Equal(t, "a\n1\n", sqlOf(t, comment+"SELECT 1 AS a", "--format", "csv"))
	}
	require.Equal(t, "[{\"a\":1}]\n", sqlOf(t, "SELECT 1 AS a UNION ALL SELECT 2", "--rows", "1", "--format", "json"))
	require.Equal(t, "a\n1\n\nb\n2\n", sqlOf(t, "CREATE VIEW v AS SELECT 1 AS a; FROM v; SELECT a + 1 AS b FROM v;",
		"--format", "csv"))
}

func TestSQLParametersFromTheCommandLine(t *testing.T) {
	for value, want := range map[string]string{"5": "INTEGER,5", "-2.50": `"DECIMAL(3,2)",-2.50`, "1e3": "DOUBLE,1000.0",
		"true": "BOOLEAN,true", "null": "INTEGER,", "x": "VARCHAR,x", "'007'": "VARCHAR,007", "": `VARCHAR,""`,
		"2026-01-31": "VARCHAR,2026-01-31", "a=b": "VARCHAR,a=b"} {
		got := sqlOf(t, "SELECT typeof($v) AS t, $v AS v", "--format", "csv", "-p", "v="+value)
		if want == "INTEGER," { // the type of NULL has a name of its own
			_, got, _ = strings.Cut(got, ",v\n")
			require.True(t, strings.HasSuffix(got, ",\n"), got)
			continue
		}
		require.Equal(t, "t,v\n"+want+"\n", got)
	}
}

func TestSQLWritesWhatCopySays(t *testing.T) {
	dir := t.TempDir()
	out, report := filepath.Join(dir, "new", "out.parquet"), filepath.Join(dir, "report.json")
	text := "CREATE VIEW o AS FROM '" + data + "/orders.parquet'; SET threads = 2;\n" +
		"COPY (SELECT * FROM o WHERE o_orderkey < $most) TO '" + out +
		"' (COMPRESSION zstd);\nSELECT count(*) AS n FROM '" +
		out + "'"
	path := filepath.Join(dir, "query.sql")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	args := []string{"sql", "--device", "host", "-f", path, "--param", "most=100", "--report", report, "--format",
		"csv"}
	code, stdout, stderr := gstream(args...)
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "n\n27\n", stdout)
	require.Contains(t, stderr, "wrote 27 rows")
	written, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Contains(t, string(written), `"job": "query"`)
	code, _, stderr = gstream(args...)
	require.Equal(t, exitIO, code, stderr)
	require.Contains(t, stderr, "--overwrite")
	code, _, stderr = gstream(append(args, "--overwrite")...)
	require.Equal(t, exitOK, code, stderr)
}

func TestSQLExplains(t *testing.T) {
	text := "SELECT count(*) AS n FROM '" + data + "/orders.parquet'"
	require.Contains(t, sqlOf(t, "EXPLAIN "+text), "└─ group (sql 1)  about 1 rows")
	require.Contains(t, sqlOf(t, "EXPLAIN ANALYZE "+text), "wrote 1 rows")
	require.Contains(t, sqlOf(t, "EXPLAIN "+text, "--format", "json"), `"kind": "group"`)
	out := filepath.Join(t.TempDir(), "out.parquet")
	require.Contains(t, sqlOf(t, "EXPLAIN ANALYZE COPY ("+text+") TO '"+out+"'"), "write "+out)
	require.NoFileExists(t, out)
	require.Equal(t, "column_name,column_type,null\nn,BIGINT,NO\n", sqlOf(t, "DESCRIBE "+text, "--format", "csv"))
	require.Contains(t, sqlOf(t, "SUMMARIZE "+text, "--format", "csv"),
		"\nn,BIGINT,15000,15000,1,15000.0,,15000,15000,15000,"+
			"1,0.00\n")
}

func TestSQLMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "q.sql")
	require.NoError(t, os.WriteFile(file, []byte("SELECT 1 AS a;\n\nSELECT b\nFROM (VALUES (1)) v(c)"), 0o644))
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no text":         {nil, exitJob, "give a query, or a file by --file"},
		"two texts":       {[]string{"SELECT 1", "-f", file}, exitJob, "give one of them"},
		"no file":         {[]string{"-f", file + "x"}, exitIO, "no such file"},
		"place in a file": {[]string{"-f", file}, exitJob, "gstream: " + file + ":3:8: there is no column \"b\""},
		"place in a text": {[]string{"SELECT 1 +"}, exitJob, "line 1, column 11: "},
		"a runtime error": {[]string{"SELECT 1 // (n_nationkey - 1) FROM '" + data + "/nation.parquet'"}, exitData,
			"1 is divided by zero"},
		"SHOW": {[]string{"SHOW TABLES"}, exitJob, "write DESCRIBE"},
		"no value": {[]string{"SELECT $a"}, exitJob, "the parameter $a has no value; give it one: --param " +
			"a=VALUE"},
		"unused value": {[]string{"SELECT $a", "-p", "a=1", "-p", "b=2"}, exitJob, `has no parameter $b (did you mean "a"?)`},
		"no name":      {[]string{"SELECT $a", "-p", "=1"}, exitJob, "--param =1: must be name=value"},
		"twice":        {[]string{"SELECT $a", "-p", "a=1", "-p", "$a=2"}, exitJob, "has a value already"},
		"format":       {[]string{"SELECT 1", "--format", "xml"}, exitJob, "must be table, csv"},
		"rows":         {[]string{"SELECT 1", "--rows", "-3"}, exitJob, "must not be negative"},
		"memory":       {[]string{"SET memory_limit = 'much'; SELECT 1"}, exitJob, "SET memory_limit:"},
		"device":       {[]string{"SET device = 'tpu'; SELECT 1"}, exitJob, "SET device tpu"},
		"explain a view": {[]string{"EXPLAIN CREATE VIEW v AS SELECT 1"}, exitJob,
			"EXPLAIN is possible before a query"},
		"report of a query": {[]string{"SELECT 1", "--report", "r"}, exitJob,
			"--report r: only the run of a COPY has one"},
		"progress": {[]string{"SELECT 1", "--progress", "x"}, exitJob, "must be auto, plain, json or none"},
		"file of two runs": {[]string{"COPY (SELECT 1) TO 'a'; COPY (SELECT 1) TO 'b'", "--report", "r"}, exitJob,
			"one COPY, not of 2"},
	} {
		code, stdout, stderr := gstream(append([]string{"sql", "--device", "host"}, c.args...)...)
		require.Equal(t, c.code, code, "%s: %s", name, stderr)
		require.Contains(t, stderr, c.want, name)
		if name != "place in a file" {
			require.Empty(t, stdout, name)
		}
	}
}

func TestSQLIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, err strings.Builder
	code := run(ctx, []string{"sql", "--device", "host", "SELECT count(*) FROM '" + data + "/orders.parquet'"}, &out,
		&err,
		&leftovers{})
	require.Equal(t, exitInterrupted, code, err.String())
	require.Empty(t, out.String())
}

func TestProgressOfSQLAsJSON(t *testing.T) {
	code, stdout, stderr := gstream("sql", "--device", "host", "--progress", "json", "--format", "csv",
		"SELECT 1 AS a; SELECT b")
	require.Equal(t, exitJob, code)
	require.Equal(t, "a\n1\n\n", stdout)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], `"type":"done","exit_code":0`)
	require.Contains(t, lines[1], `"type":"done","exit_code":2`)
	require.Contains(t, lines[1], `there is no column`)
}
