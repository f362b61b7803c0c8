package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTasksWriteTheFilesOfOutputs writes outputs by one process, and by tasks.
func TestTasksWriteTheFilesOfOutputs(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.parquet")
	_, err := New("in").SQL("select k, k % 3 as d, k * 7 % 1000 as v, 'row ' || k % 13 as s from range(6000) t(k)").
		Write(in, ParquetOptions{RowGroupRows: 1000}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	const sorted, filtered = "select * from t order by v desc, k", "select k, v, d from t where k % 10 < 9"
	opt := RunOptions{Use: Host, Threads: 1, HostMemory: 64 << 20, Exchanges: Always}
	for name, c := range map[string]struct {
		query   string
		opt     ParquetOptions
		times   int // that the job runs
		files   int // at least
		here    bool
		discard bool
	}{
		"sorted":               {query: sorted, files: 2},
		"filtered":             {query: filtered, files: 4},
		"groups":               {query: "select d, s, sum(v) as v from t group by d, s", files: 2},
		"no rows":              {query: "select * from t where v < 0", files: 1},
		"rows of a file":       {query: sorted, opt: ParquetOptions{RowsPerFile: 500, Sync: true}, files: 12},
		"folders":              {query: sorted, opt: ParquetOptions{PartitionBy: []string{"d"}}, files: 6},
		"folders without rows": {query: "select * from t where v < 0", opt: ParquetOptions{PartitionBy: []string{"d"}}},
		"added":                {query: filtered, opt: ParquetOptions{Append: true}, times: 2, files: 8},
		"replaced":             {query: filtered, opt: ParquetOptions{Overwrite: true}, times: 2, files: 4},
		"replaced folders": {query: filtered, times: 2, files: 6,
			opt: ParquetOptions{PartitionBy: []string{"d"}, OverwritePartitions: true}},
		"discarded":     {query: sorted, discard: true},
		"several files": {query: sorted, opt: ParquetOptions{Files: 3}, here: true},
		"one row":       {query: "select max(v) as v from t", here: true},
		"few rows":      {query: sorted + " limit 10", here: true},
	} {
		t.Run(name, func(t *testing.T) {
			var rows [][]string
			for _, workers := range []int{0, 4} {
				parent := filepath.Join(dir, name, fmt.Sprint(workers))
				out := filepath.Join(parent, "out") + "/"
				opt := opt
				opt.Discard = c.discard
				for range max(c.times, 1) {
					p, err := New("job").Read("t", in).SQL(c.query).Write(out, c.opt).Plan()
					require.NoError(t, err)
					if workers == 0 {
						_, err = p.Run(t.Context(), opt)
						require.NoError(t, err)
					} else {
						r, err := inTasks(t, p, opt, workers)
						require.NoError(t, err)
						last := r.Tasks[len(r.Tasks)-1]
						require.Equal(t, !c.here, strings.Contains(last.Does, "into the output"), last.Does)
						if !c.here {
							require.Equal(t, last.Rows, r.Output.Rows)
							require.GreaterOrEqual(t, int(r.Output.Files), c.files/max(c.times, 1))
							for _, s := range r.Stages {
								require.Zero(t, s.RowsOut, "this process has rows")
							}
						}
					}
					require.NoError(t, p.Close())
				}
				left, err := os.ReadDir(parent)
				if c.discard {
					require.ErrorIs(t, err, os.ErrNotExist)
					return
				}
				require.NoError(t, err)
				require.Len(t, left, 1, "something is left next to the output")
				var files []string
				err = filepath.WalkDir(out, func(path string, e os.DirEntry, err error) error {
					if err == nil && !e.IsDir() && !strings.Contains(path, "manifest") {
						require.Regexp(t, `^part-\d{5}\.parquet$`, e.Name())
						files = append(files, path)
					}
					return err
				})
				require.NoError(t, err)
				if workers > 0 {
					require.GreaterOrEqual(t, len(files), c.files)
				}
				slices.Sort(files)
				rows = append(rows, rowsOf(t, out))
				if strings.Contains(c.query, "group by") {
					slices.Sort(rows[len(rows)-1])
				}
			}
			require.Equal(t, rows[0], rows[1])
		})
	}
}

// TestOutputsOfTasksAppearTogether writes two outputs, one in tasks, and none if an expectation is not met or a file is
// in the way.
func TestOutputsOfTasksAppearTogether(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.parquet"), filepath.Join(dir, "out")
	_, err := New("in").SQL("select k, k % 7 as g from range(5000) t(k)").
		Write(in, ParquetOptions{RowGroupRows: 500}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	opt := RunOptions{Use: Host, Threads: 1, HostMemory: 64 << 20, Exchanges: Always}
	run := func(least string) (*Report, error) {
		p, err := New("job").Read("t", in).SQL("select * from t where g < 5").As("few").
			Expect(Expectation{Where: "k >= " + least}).
			SQL("select g, count(*) as n from few group by g order by g").As("groups").
			WriteAll(Output{From: "few", Parquet: Path(out + "/parts/")},
				Output{From: "groups", CSV: Path(out + "/groups.csv")}).Plan()
		require.NoError(t, err)
		defer p.Close()
		return inTasks(t, p, opt, 3)
	}
	_, err = run("1")
	require.ErrorIs(t, err, ErrExpectation)
	require.NoDirExists(t, out)
	r, err := run("0")
	require.NoError(t, err)
	require.EqualValues(t, []int64{3572, 5}, []int64{r.Outputs[0].Rows, r.Outputs[1].Rows})
	require.Len(t, rowsOf(t, out+"/parts"), 3572)
	names := func() (names []string) {
		entries, err := os.ReadDir(out)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	require.Equal(t, []string{"groups.csv", "parts"}, names())
	_, err = run("0")
	require.ErrorIs(t, err, os.ErrExist)
	require.Equal(t, []string{"groups.csv", "parts"}, names())
	require.Len(t, rowsOf(t, out+"/parts"), 3572)
}

// TestFilesOfTasksAreChecked changes what tasks say about the files of an output.
func TestFilesOfTasksAreChecked(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.parquet"), filepath.Join(dir, "out")
	_, err := New("in").SQL("select k from range(5000) t(k)").
		Write(in, ParquetOptions{RowGroupRows: 500}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	opt := RunOptions{Use: Host, Threads: 1, HostMemory: 64 << 20}
	for name, change := range map[string]func(r *TaskResult){
		"a file is missing":         func(r *TaskResult) { r.Files = nil },
		"a file has fewer rows":     func(r *TaskResult) { r.Files[0].Rows--; r.Parts[0].Rows-- },
		"the task has written more": func(r *TaskResult) { r.Parts[0].Rows++ },
		"a file is shorter":         func(r *TaskResult) { r.Files[0].Bytes-- },
		"a file is elsewhere":       func(r *TaskResult) { r.Files[0].Name = "../../in.parquet" },
		"a file is another one":     func(r *TaskResult) { r.Files[0].Name = "part-00009.parquet" },
	} {
		p, err := New("job").Read("t", in).Filter("k % 2 = 0").Write(out+"/", ParquetOptions{}).Plan()
		require.NoError(t, err)
		e := &scriptedEngine{InProcess: InProcess{opt}, attempts: map[string]int{},
			script: func(path string, _ int, run func() (*TaskResult, error)) (*TaskResult, error) {
				r, err := run()
				if err == nil && path == "1-2.task.json" {
					change(r)
				}
				return r, err
			}}
		_, err = p.RunTasks(t.Context(), opt, TaskOptions{Engine: e, Workers: 3, Folder: t.TempDir(), LeastBytes: 1})
		require.ErrorContains(t, err, "file", name)
		require.NoError(t, p.Close())
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, left, 1, name)
	}
	_, err = os.Stat(in)
	require.NoError(t, err)
}

func TestWrongOutputsOfTasks(t *testing.T) {
	good := partsDocument{Path: "out/", Folder: "/x", Attempts: "0123ab"}
	require.NoError(t, good.check())
	for what, change := range map[string]func(d *partsDocument){
		"no folder":     func(d *partsDocument) { d.Folder = "" },
		"no attempts":   func(d *partsDocument) { d.Attempts = "" },
		"a path":        func(d *partsDocument) { d.Attempts = "../../" },
		"no number":     func(d *partsDocument) { d.Number = -1 },
		"a wrong codec": func(d *partsDocument) { d.Options.Compression = "best" },
	} {
		wrong := good
		change(&wrong)
		require.Error(t, wrong.check(), what)
	}
}
