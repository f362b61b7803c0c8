package pipeline

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/sink/staging"
)

// killedRun is the environment variable with a number, the name of a job and a folder: the test binary runs the job in
// the folder, and kills itself before the operation of that number that changes the file system.
const killedRun = "GSTREAM_TEST_KILLED_RUN"

// allKills is the environment variable that makes the test kill at every operation.
const allKills = "GSTREAM_ALL_KILLS"

func TestMain(m *testing.M) {
	if arguments := strings.SplitN(os.Getenv(killedRun), " ", 3); len(arguments) == 3 {
		n, err := strconv.Atoi(arguments[0])
		if err == nil {
			err = os.Chdir(arguments[2])
		}
		if err == nil {
			staging.Before = func(string, string) error {
				if n--; n == 0 {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
					select {}
				}
				return nil
			}
			jobs, ok := killedJobs[arguments[1]]
			if !ok {
				jobs = builders{inStores(2, true)}
			}
			err = jobs.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// nightly is a job over 90 rows: k counts them, of three days and two kinds.
func nightly(path string, opt ParquetOptions) *Builder {
	return New("nightly").SQL("select k, k % 3 as day, k % 2 as kind, 'row ' || k as name from range(90) t(k)").
		Write(path, opt)
}

type builders []*Builder

// run runs jobs in the working directory.
func (list builders) run() error {
	for _, b := range list {
		if _, err := b.Run(context.Background(), RunOptions{Use: Host, Threads: 1}); err != nil {
			return err
		}
	}
	return nil
}

var (
	byDay = ParquetOptions{PartitionBy: []string{"day"}, RowsPerFile: 10}
	// killedJobs are jobs that are killed. Before each, "before" has run.
	killedJobs = map[string]builders{
		"before": {nightly("a.parquet", ParquetOptions{}), nightly("lines", byDay), nightly("kinds/", ParquetOptions{}),
			nightly("others", byDay)},
		"outputs": {New("outputs").SQL("select * from 'lines' where day < 2").As("few").
			Expect(Expectation{Unique: []string{"k"}}).Group([]string{"day"}, "count(*) as n").
			WriteAll(Output{From: "few", Parquet: "a.parquet", Options: ParquetOptions{Overwrite: true}},
				Output{CSV: "new/counts.csv"}, Output{From: "few", Parquet: "kinds/",
					Options: ParquetOptions{Overwrite: true, PartitionBy: []string{"kind"}}})},
		"append": {New("append").SQL("select k + 90 as k, day + 1 as day, kind, name from 'kinds'").
			Write("lines", ParquetOptions{PartitionBy: []string{"day"}, Append: true, Sync: true})},
		"partitions": {New("partitions").SQL("select k, day + 1 as day, kind, name from 'kinds' where day > 0").
			Write("lines", ParquetOptions{PartitionBy: []string{"day"}, OverwritePartitions: true})},
		"compact": {New("compact").SQL("select * from 'lines'").Write("lines",
			ParquetOptions{PartitionBy: []string{"day"}, Overwrite: true})},
		"compact-others": {New("compact").SQL("select * from 'others' where day = 1").Write("others",
			ParquetOptions{PartitionBy: []string{"day"}, OverwritePartitions: true})},
		"together": {New("together").SQL("select * from 'others' where day = 2").As("rest").
			SQL("select * from 'kinds' where kind = 1").As("odd").Filter("k < 10").WriteAll(
			Output{Parquet: "a.parquet", Options: ParquetOptions{Overwrite: true}},
			Output{From: "odd", Parquet: "lines", Options: ParquetOptions{PartitionBy: []string{"day"}, Append: true}},
			Output{From: "rest", Parquet: "others",
				Options: ParquetOptions{PartitionBy: []string{"day"}, OverwritePartitions: true}})},
		"replace-sources": {New("replace").SQL("select * from 'others' where k > 3").Write("others",
			ParquetOptions{PartitionBy: []string{"kind"}, Overwrite: true, OverwriteSources: true})},
	}
)

// tree returns the hashes of the files of a folder by their names, and the hidden files besides manifests.
func tree(t *testing.T, dir string) (files map[string]string, hidden []string) {
	files = map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		name, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		if strings.HasPrefix(e.Name(), ".") && e.Name() != staging.LockName && path != dir {
			hidden = append(hidden, name)
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !e.IsDir() {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			files[name] = fmt.Sprintf("%d bytes %.8x", len(data), sha256.Sum256(data))
		}
		return nil
	}))
	return files, hidden
}

// runKilled runs a job in a folder, in a process that is killed before an operation. It reports whether it was.
func runKilled(t *testing.T, n int, name, dir string) bool {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedRun+"="+fmt.Sprintf("%d %s %s", n, name, dir))
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorContains(t, err, "killed", "operation %d: %s", n, out)
	}
	return err != nil
}

func TestARunThatIsKilledLeavesTheOldOrTheNewOutputs(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	before := t.TempDir()
	t.Chdir(before)
	require.NoError(t, killedJobs["before"].run())
	require.NoError(t, os.Remove("others/"+staging.LockName))
	require.NoError(t, os.WriteFile("others/day=1/_SUCCESS", nil, 0o666))
	for name := range killedJobs {
		if name == "before" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			fresh := func() string {
				dir := t.TempDir()
				require.NoError(t, os.CopyFS(dir, os.DirFS(before)))
				return dir
			}
			old, hidden := tree(t, before)
			require.Empty(t, hidden)
			whole, operations := fresh(), 0
			t.Chdir(whole)
			staging.Before = func(string, string) error {
				operations++
				return nil
			}
			err := killedJobs[name].run()
			staging.Before = nil
			require.NoError(t, err)
			after, hidden := tree(t, whole)
			require.Empty(t, hidden)
			require.NotEqual(t, old, after)
			step := 1
			if os.Getenv(allKills) == "" {
				step = 13
			}
			undone, made := 0, 0
			for n := 1 + len(name)%step; n <= operations; n += step {
				dir := fresh()
				require.True(t, runKilled(t, n, name, dir), "operation %d", n)
				files, _ := tree(t, dir)
				for file, hash := range files { // each is whole
					require.Contains(t, []string{old[file], after[file]}, hash, "%s, operation %d", file, n)
				}
				for _, folder := range []string{dir, filepath.Join(dir, "new")} {
					require.NoError(t, staging.Sweep(folder))
				}
				files, hidden := tree(t, dir)
				require.Empty(t, hidden, "operation %d", n)
				if fmt.Sprint(files) == fmt.Sprint(old) {
					undone++
				} else {
					made++
					require.Equal(t, after, files, "operation %d", n)
				}
			}
			t.Logf("%d operations: %d kills left the old state, %d the new one", operations, undone, made)
			require.Positive(t, undone)
		})
	}
}
