package main

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline"
)

func TestRunRemovesWhatAKilledOneHasLeft(t *testing.T) {
	for _, options := range []string{"", ", rows_per_file: 100000"} {
		path := endlessJob(t, options)
		folder := filepath.Dir(path) + "/new/folder"
		require.NoError(t, os.MkdirAll(folder, 0o777))
		var stderr bytes.Buffer
		cmd := start(t, &stderr, "run", path, "--report", folder+"/report.json", "--timeline", folder+"/timeline.html")
		hidden := func() []string {
			names, _ := filepath.Glob(folder + "/.*")
			return names
		}
		written := func() bool { // so it is locked
			for _, pattern := range []string{"/.out.*.tmp", "/.out.*.tmp/part-*"} {
				names, _ := filepath.Glob(folder + pattern)
				for _, n := range names {
					if info, err := os.Stat(n); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
						return true
					}
				}
			}
			return false
		}
		require.Eventually(t, func() bool { return len(hidden()) == 3 && written() }, time.Minute, 5*time.Millisecond)

		other, _ := jobFile(t, "  - limit: 1", "")
		text, err := os.ReadFile(other)
		require.NoError(t, err)
		require.NoError(t,
			os.WriteFile(other, []byte(strings.ReplaceAll(string(text), "out.parquet", folder+"/other.parquet")),
				0o644))
		code, _, errs := gstream("run", other)
		require.Equal(t, exitOK, code, errs)
		assert.Len(t, hidden(), 3, "they belong to a process that runs")

		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		assert.Len(t, hidden(), 3)
		code, _, errs = gstream("run", other, "--overwrite")
		require.Equal(t, exitOK, code, errs)
		assert.Empty(t, hidden())
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		assert.Len(t, entries, 1)
	}
}

// A path that ends with a slash is a folder of files, relative to the job file or not, and files makes one too.
func TestOutputsThatAreFoldersOfFiles(t *testing.T) {
	abs, err := filepath.Abs(data)
	require.NoError(t, err)
	for _, output := range []string{"out/", "new/out/, overwrite: true", "ABS/out/", "link/", "out, files: 3",
		"out, files: 3, row_group_rows: 500"} {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o777))
		require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
		path := filepath.Join(dir, "job.yaml")
		require.NoError(t, os.WriteFile(path, []byte("sources: {orders: "+abs+"/orders.parquet}\nsteps:\n"+
			"  - select: [o_orderkey, o_totalprice]\n  - sort: o_totalprice desc\n  - select: [o_totalprice]\n"+
			"output: {parquet: "+strings.ReplaceAll(output, "ABS", dir)+"}\n"), 0o666))
		for _, arguments := range [][]string{{"lint"}, {"explain"}, {"check"}, {"explain", "--analyze"},
			{"run", "--overwrite"}, {"run", "--overwrite"}} {
			code, _, stderr := gstream(append(arguments, path)...)
			require.Equal(t, exitOK, code, "%s: %v: %s", output, arguments, stderr)
			if arguments[0] == "run" {
				assert.Equal(t, strings.Contains(output, "500"), strings.Contains(stderr, "KiB, 3 files) to "), stderr)
			}
		}
		folder := filepath.Join(dir, strings.Trim(strings.NewReplacer("ABS/", "", "link/", "real").Replace(
			strings.Split(output, ",")[0]), "/"))
		info, err := os.Lstat(filepath.Join(dir, "link"))
		require.NoError(t, err)
		assert.NotZero(t, info.Mode()&os.ModeSymlink, "a link stays")
		entries, err := filepath.Glob(folder + "/part-*")
		require.NoError(t, err)
		files := 1
		if strings.Contains(output, "500") {
			files = 3
		}
		assert.Len(t, entries, files, output)
		code, stdout, stderr := gstream("show", folder, "--format", "csv", "--rows", "100000")
		require.Equal(t, exitOK, code, stderr)
		prices := strings.Fields(stdout)[1:]
		require.Greater(t, len(prices), 4000)
		assert.True(t, slices.IsSortedFunc(prices, func(a, b string) int {
			return cmp.Or(len(b)-len(a), strings.Compare(b, a))
		}), output)
	}
}

func TestEachOfSeveralJobsHasItsOwnBudgets(t *testing.T) {
	const sort = "  - sort: o_totalprice"
	first, _ := jobFile(t, sort, "")
	second, _ := jobFile(t, sort, "")
	for path, budget := range map[string]string{first: "1GiB", second: "100KiB"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append([]byte("memory: {host: "+budget+"}\n"), text...), 0o666))
	}
	for _, device := range []string{pipeline.Host, pipeline.Auto} {
		code, _, stderr := gstream("run", first, first, second, "--overwrite", "--device", device)
		assert.Equal(t, exitMemory, code, stderr)
		assert.Contains(t, stderr, "the budget of 100 KiB")
		assert.Equal(t, 2, strings.Count(stderr, "wrote 15,000 rows"), stderr)
	}
}

func TestAFolderAsOutputNeedsASlash(t *testing.T) {
	path, out := jobFile(t, "  - limit: 1", "")
	require.NoError(t, os.Mkdir(out, 0o777))
	code, _, stderr := gstream("run", path, "--overwrite")
	assert.Equal(t, exitIO, code)
	assert.Contains(t, stderr, "end the path with /")
	require.NoError(t, os.Remove(out))
	require.NoError(t, os.WriteFile(out, nil, 0o666))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	folder := strings.Replace(string(text), "out.parquet", "out.parquet/", 1)
	require.NoError(t, os.WriteFile(path, []byte(folder), 0o666))
	for _, command := range []string{"lint", "run"} {
		code, _, stderr = gstream(command, path)
		assert.Equal(t, exitIO, code)
		assert.Contains(t, stderr, "is not replaced by the folder that")
	}
}

func TestDeviceAsOutputIsRefusedBeforeAnything(t *testing.T) {
	path, out := jobFile(t, "  - limit: 1", "")
	require.NoError(t, os.Symlink(os.DevNull, out))
	for _, command := range [][]string{{"run", path}, {"run", path, "--overwrite"}, {"lint", path}, {"explain", path}} {
		code, stdout, stderr := gstream(command...)
		assert.Equal(t, exitIO, code, command)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "job.yaml:")
		assert.Contains(t, stderr, out+": it is a device, which is never replaced")
	}
	link, err := os.Readlink(out)
	require.NoError(t, err)
	assert.Equal(t, os.DevNull, link)
}

func TestReportIsWrittenThroughALink(t *testing.T) {
	path, _ := jobFile(t, "  - limit: 1", "")
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.json"), filepath.Join(dir, "link.json")
	require.NoError(t, os.Symlink("real.json", link))
	for range 2 { // the link dangles once
		code, _, stderr := gstream("run", path, "--overwrite", "--report", link)
		require.Equal(t, exitOK, code, stderr)
		target, err := os.Readlink(link)
		require.NoError(t, err)
		assert.Equal(t, "real.json", target)
		require.FileExists(t, real)
	}
}

func TestReplacedReportsAndJobsKeepTheirMode(t *testing.T) {
	path, _ := jobFile(t, "  - limit: 1", "")
	report := filepath.Join(t.TempDir(), "report.json")
	require.NoError(t, os.WriteFile(report, nil, 0o600))
	require.NoError(t, os.Chmod(report, 0o600))
	code, _, stderr := gstream("run", path, "--report", report)
	require.Equal(t, exitOK, code, stderr)
	job := filepath.Join(t.TempDir(), "new.yaml")
	require.NoError(t, os.WriteFile(job, nil, 0o640))
	require.NoError(t, os.Chmod(job, 0o640))
	code, _, stderr = gstream("init", filepath.Join(data, "nation.parquet"), "--out", job, "--overwrite")
	require.Equal(t, exitOK, code, stderr)
	for name, mode := range map[string]os.FileMode{report: 0o600, job: 0o640} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode())
		assert.Positive(t, info.Size())
	}
}

func TestRowsGoToStandardOutputAndTheReportDoesNot(t *testing.T) {
	code, stdout, stderr := gstream("sql", "--device", "host", "COPY (SELECT 1 AS a, 'x,y' AS b) TO '-' (FORMAT csv)")
	require.Equal(t, exitOK, code, stderr)
	require.NotContains(t, stdout, "wrote")
	require.Contains(t, stderr, "wrote 1 row")
	require.Contains(t, stderr, "to standard output")
}
