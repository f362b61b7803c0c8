package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAJobWhoseSourceIncludesItsOutputIsRefused(t *testing.T) {
	nation, err := os.ReadFile(filepath.Join(data, "nation.parquet"))
	require.NoError(t, err)
	for _, c := range []struct {
		source, output string
		code           int
	}{
		{"in", "in/out.parquet", exitJob},
		{"in/*.parquet", "in/../in/out.parquet", exitJob},
		{"in/**/*.parquet", "in/new/out, partition_by: [n_regionkey]", exitJob},
		{"[in/nation.parquet, in]", "link/out, rows_per_file: 10", exitJob},
		{"[in/nation.parquet, in]", "link/out, files: 2", exitJob},
		{"[in/nation.parquet, in]", "link/out/", exitJob},
		{"in/nation.parquet", "in/out.parquet", exitOK},
		{"in/nation.parquet", "in/nation.parquet", exitOK}, // it replaces what it reads
		{"link/nation.parquet", "in/nation.parquet", exitOK},
	} {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "in"), 0o777))
		require.NoError(t, os.Symlink("in", filepath.Join(dir, "link")))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "in", "nation.parquet"), nation, 0o666))
		path := filepath.Join(dir, "job.yaml")
		require.NoError(t,
			os.WriteFile(path,
				[]byte("sources:\n  t: {parquet: "+c.source+"}\noutput: {parquet: "+c.output+", overwrite: true}\n"),
				0o666))
		for range 2 {
			code, _, stderr := gstream("run", path)
			require.Equal(t, c.code, code, "%s to %s: %s", c.source, c.output, stderr)
			if code != exitOK {
				assert.Contains(t, stderr, "job.yaml:2:")
				assert.Contains(t, stderr, "write it to another folder")
				entries, err := os.ReadDir(filepath.Join(dir, "in"))
				require.NoError(t, err)
				assert.Len(t, entries, 1)
			}
		}
		if code, _, _ := gstream("check", path); code != c.code {
			assert.Equal(t, c.code, code)
		}
		code, _, stderr := gstream("show", path)
		assert.Equal(t, exitOK, code, stderr) // the output is not written
	}
}
