package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnOutputWithoutRowsIsReadByTheNextJob(t *testing.T) {
	source, err := filepath.Abs(filepath.Join(data, "nation.parquet"))
	require.NoError(t, err)
	for _, options := range []string{"", ", rows_per_file: 10", ", files: 2", ", partition_by: n_regionkey",
		", partition_by: [n_regionkey], write_partition_columns: true"} {
		for _, as := range []string{"", ", partitions: {n_regionkey: INTEGER}",
			", schema: {n_name: VARCHAR, n_regionkey: INTEGER}"} {
			if as != "" && !strings.Contains(options, "partition_by") {
				continue
			}
			dir := t.TempDir()
			t.Chdir(dir)
			for rows, condition := range []string{"false", "n_nationkey = 3"} {
				require.NoError(t, os.WriteFile("first.yaml",
					[]byte("sources: {t: "+source+"}\nsteps:\n  - filter: "+condition+
						"\noutput: {parquet: out.parquet, overwrite: true"+options+"}\n"), 0o666))
				require.NoError(t, os.WriteFile("next.yaml",
					[]byte("sources: {t: {parquet: out.parquet"+as+
						"}}\nsteps:\n  - group: {by: [n_regionkey + 1 as k], aggregates: {n: count(*), m: "+
						"max(n_name)}}\n"+
						"output: {parquet: next.parquet, overwrite: true}\n"), 0o666))
				for _, job := range []string{"first.yaml", "next.yaml"} {
					code, _, stderr := gstream("run", job)
					require.Equal(t, exitOK, code, "%s %s: %s", options, as, stderr)
				}
				code, stdout, stderr := gstream("show", "next.parquet", "--format", "csv")
				require.Equal(t, exitOK, code, stderr)
				assert.Equal(t, []string{"k,n,m\n", "k,n,m\n2,1,CANADA\n"}[rows], stdout)
			}
		}
	}
}

func TestAnOptionalSourceMayHaveNoFiles(t *testing.T) {
	source, err := filepath.Abs(filepath.Join(data, "nation.parquet"))
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	job := func(extra string) {
		require.NoError(t, os.WriteFile("job.yaml",
			[]byte("sources:\n  late: {parquet: [late/*.parquet, missing/late.parquet], optional: true"+extra+"}\n"+
				"steps:\n  - group: {aggregates: {n: count(*), m: max(n_name)}}\noutput: {parquet: out.parquet, "+
				"overwrite: true}\n"), 0o666))
	}
	run := func() string {
		for _, command := range []string{"lint", "check", "explain", "run"} {
			code, _, stderr := gstream(command, "job.yaml")
			require.Equal(t, exitOK, code, stderr)
		}
		code, stdout, stderr := gstream("show", "out.parquet", "--format", "csv")
		require.Equal(t, exitOK, code, stderr)
		return stdout
	}
	job(", schema: {n_name: VARCHAR}")
	assert.Equal(t, "n,m\n0,\n", run())
	require.NoError(t, os.Mkdir("late", 0o777))
	assert.Equal(t, "n,m\n0,\n", run())
	content, err := os.ReadFile(source)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("late/a.parquet", content, 0o666))
	assert.Equal(t, "n,m\n25,VIETNAM\n", run())

	job("")
	code, _, stderr := gstream("run", "job.yaml")
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, "job.yaml:2:")
	assert.Contains(t, stderr, "give them by schema:")
}
