// Package examples has jobs to read and to run. Its tests compare their results with
// DuckDB's answers.
package examples

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/parquet"
)

// answer is DuckDB's answer, as testdata/answers.py writes it.
type answer struct {
	Columns []struct{ Name, Type string }
	Rows    int
	Hash    string
	Values  [][]*string
}

func TestREADMEShowsTheQuickstart(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(readme), "```yaml\n")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "```")
	shown, err := pipeline.Parse("quickstart/job.yaml", []byte(text), pipeline.LoadOptions{})
	require.NoError(t, err)
	job, err := pipeline.Load("quickstart/job.yaml", pipeline.LoadOptions{})
	require.NoError(t, err)
	assert.Equal(t, job.Name, shown.Name)
	assert.Equal(t, job.Vars, shown.Vars)
	assert.Equal(t, job.Sources, shown.Sources)
	assert.Equal(t, job.Steps, shown.Steps)
	assert.Equal(t, job.Output, shown.Output)
}

func TestREADMEListsEveryExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	jobs, err := filepath.Glob("*/*.yaml")
	require.NoError(t, err)
	require.Greater(t, len(jobs), 14)
	for _, job := range jobs {
		assert.Contains(t, string(readme), "("+job+")")
	}
}

func TestJobsGiveDuckDBsAnswers(t *testing.T) {
	text, err := os.ReadFile("testdata/answers.json")
	require.NoError(t, err)
	var answers map[string]answer
	require.NoError(t, json.Unmarshal(text, &answers))
	require.Len(t, answers, 15)
	device := cudatest.Open(t, cuda.Options{})
	for job, want := range answers {
		check := func(t *testing.T, run func(t *testing.T, job, out string)) {
			out := filepath.Join(t.TempDir(), "out.parquet")
			run(t, job+".yaml", out)
			schema, rows := read(t, out)
			var columns []struct{ Name, Type string }
			for i, f := range schema.Fields {
				columns = append(columns, struct{ Name, Type string }{f.Name, f.Type.String()})
				if want.Columns[i].Type == "HUGEINT" {
					want.Columns[i].Type = "DECIMAL(38,0)"
				}
			}
			require.Equal(t, want.Columns, columns)
			require.Len(t, rows, want.Rows)
			if want.Values != nil {
				for i, row := range want.Values {
					for c, v := range row {
						equal(t, v, rows[i][c], columns[c].Name)
					}
				}
				return
			}
			assert.Equal(t, want.Hash, hash(rows))
			if job == "etl/sort" {
				order := [2]int{schema.Index("l_shipdate"), schema.Index("l_orderkey")}
				assert.True(t, slices.IsSortedFunc(rows, func(a, b []gpu.Scalar) int {
					if c := a[order[0]].Compare(b[order[0]]); c != 0 {
						return c
					}
					return a[order[1]].Compare(b[order[1]])
				}), "the rows are not in order")
			}
		}
		with := func(opt pipeline.RunOptions) func(t *testing.T, job, out string) {
			return func(t *testing.T, job, out string) { run(t, job, map[string]string{"out": out}, opt) }
		}
		t.Run(job+" on the CPU", func(t *testing.T) { check(t, with(pipeline.RunOptions{Use: pipeline.Host})) })
		t.Run(job+" on the GPU", func(t *testing.T) { check(t, with(pipeline.RunOptions{Device: device})) })
		t.Run(job+" in another process", func(t *testing.T) { check(t, runElsewhere) })
		t.Run(job+" in tasks", func(t *testing.T) { check(t, runTasks) })
	}
}

// encodedPlan is the environment variable with the file of a plan that the test program runs in place of tests.
const encodedPlan = "GSTREAM_TEST_ENCODED_PLAN"

func TestMain(m *testing.M) {
	path := os.Getenv(encodedPlan)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := runEncoded(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runEncoded(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	p, err := pipeline.DecodePlan(data)
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = p.Run(context.Background(), pipeline.RunOptions{Use: pipeline.Host})
	return err
}

// runElsewhere plans a job here and runs the plan in another process, from another folder.
func runElsewhere(t *testing.T, path, out string) {
	job, err := pipeline.Load(path, pipeline.LoadOptions{Set: map[string]string{"out": out}})
	require.NoError(t, err)
	p, err := pipeline.NewPlan(job)
	require.NoError(t, err)
	data, err := p.Encode()
	require.NoError(t, err)
	require.NoError(t, p.Close())
	plan := filepath.Join(t.TempDir(), "plan.json")
	require.NoError(t, os.WriteFile(plan, data, 0o600))
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self)
	c.Dir, c.Env = t.TempDir(), append(os.Environ(), encodedPlan+"="+plan)
	text, err := c.CombinedOutput()
	require.NoError(t, err, string(text))
}

// runTasks runs a job in tasks, four at a time.
func runTasks(t *testing.T, path, out string) {
	job, err := pipeline.Load(path, pipeline.LoadOptions{Set: map[string]string{"out": out}})
	require.NoError(t, err)
	p, err := pipeline.NewPlan(job)
	require.NoError(t, err)
	defer p.Close()
	opt := pipeline.RunOptions{Use: pipeline.Host, HostMemory: 1 << 30}
	report, err := p.RunTasks(t.Context(), opt, pipeline.TaskOptions{Engine: &pipeline.InProcess{Options: opt},
		Workers: 4, Folder: t.TempDir(), LeastBytes: 32 << 10})
	require.NoError(t, err)
	tasks := 0
	for _, f := range report.Tasks {
		tasks += f.Ended
	}
	require.Greater(t, tasks, 1)
}

func TestAppendedMonthsAreCompacted(t *testing.T) {
	lines := filepath.Join(t.TempDir(), "lines")
	opt := pipeline.RunOptions{Use: pipeline.Host}
	files := func() []string {
		list, err := filepath.Glob(filepath.Join(lines, "month=*/*.parquet"))
		require.NoError(t, err)
		return list
	}
	var rows int64
	for _, month := range []string{"1995-03-01", "1995-04-01", "1995-03-01"} {
		rows += run(t, "etl/append.yaml", map[string]string{"out": lines, "month": month}, opt).Output.Rows
	}
	require.Len(t, files(), 3)
	report := run(t, "etl/compact.yaml", map[string]string{"lines": lines, "from": "1995-01-01"}, opt)
	require.Len(t, files(), 2)
	require.Equal(t, rows, report.Output.Rows)
}

func TestTheOutputsOfTheSameLinesAppearTogether(t *testing.T) {
	for name, opt := range map[string]pipeline.RunOptions{"host": {Use: pipeline.Host},
		"cuda": {Device: cudatest.Open(t, cuda.Options{})}} {
		out := filepath.Join(t.TempDir(), name)
		report := run(t, "etl/outputs.yaml", map[string]string{"out": out}, opt)
		require.Len(t, report.Expectations, 7)
		for _, e := range report.Expectations {
			assert.Zero(t, e.Rows, e.Expects)
		}
		_, suppliers := read(t, filepath.Join(out, "revenue.parquet"))
		assert.Len(t, suppliers, 100)
		text, err := os.ReadFile(filepath.Join(out, "revenue.csv"))
		require.NoError(t, err)
		assert.Equal(t, 101, strings.Count(string(text), "\n"))
		assert.EqualValues(t, 60175, report.Outputs[0].Rows)
		years, err := filepath.Glob(filepath.Join(out, "lines/year=*"))
		require.NoError(t, err)
		assert.Len(t, years, 7)
	}
}

func TestTheLinesOfAMonthAreReadFromTheirFolder(t *testing.T) {
	dir := t.TempDir()
	for name, opt := range map[string]pipeline.RunOptions{"host": {Use: pipeline.Host},
		"cuda": {Device: cudatest.Open(t, cuda.Options{})}} {
		lines, out := filepath.Join(dir, name), filepath.Join(dir, name+".parquet")
		run(t, "etl/partition.yaml", map[string]string{"out": lines}, opt)
		report := run(t, "etl/month.yaml", map[string]string{"lines": lines, "out": out}, opt)
		var scan *source.Progress
		for _, s := range report.Stages {
			if s.Scan != nil {
				scan = s.Scan
			}
		}
		require.NotNil(t, scan)
		assert.EqualValues(t, 83, scan.Files)
		assert.EqualValues(t, 82, scan.FilesRuled)
		_, rows := read(t, out)
		n := int64(0)
		for _, row := range rows {
			n += row[2].Int.Int64()
		}
		assert.EqualValues(t, scan.RowsTotal, n)
		assert.EqualValues(t, 769, n) // as many as SELECT count(*) … WHERE l_shipdate BETWEEN … finds
	}
}

func TestQuickstartRunsTwice(t *testing.T) {
	out := filepath.Join(t.TempDir(), "revenue.parquet")
	for range 2 {
		run(t, "quickstart/job.yaml", map[string]string{"out": out}, pipeline.RunOptions{})
	}
	_, rows := read(t, out)
	assert.NotEmpty(t, rows)
}

func run(t *testing.T, path string, set map[string]string, opt pipeline.RunOptions) *pipeline.Report {
	job, err := pipeline.Load(path, pipeline.LoadOptions{Set: set})
	require.NoError(t, err)
	p, err := pipeline.NewPlan(job)
	require.NoError(t, err)
	defer p.Close()
	report, err := p.Run(context.Background(), opt)
	require.NoError(t, err)
	return report
}

// equal compares a value with DuckDB's text of it. Floats may differ by the rounding of
// sums in another order.
func equal(t *testing.T, want *string, got gpu.Scalar, column string) {
	if want == nil {
		assert.False(t, got.Valid, column)
		return
	}
	if got.Type.IsFloat() {
		f, err := strconv.ParseFloat(*want, 64)
		require.NoError(t, err)
		assert.LessOrEqual(t, math.Abs(got.Float-f), 1e-12*math.Abs(f), column)
		return
	}
	assert.Equal(t, *want, got.String(), column)
}

// hash returns the sum of the hashes of the rows' texts.
func hash(rows [][]gpu.Scalar) string {
	var sum uint64
	for _, row := range rows {
		texts := make([]string, len(row))
		for i, v := range row {
			texts[i] = v.String()
		}
		h := md5.Sum([]byte(strings.Join(texts, "|")))
		sum += binary.LittleEndian.Uint64(h[:])
	}
	return fmt.Sprintf("%016x", sum)
}

// read returns all rows of a Parquet file.
func read(t *testing.T, path string) (*gpu.Schema, [][]gpu.Scalar) {
	table, err := parquet.Open([]string{path}, parquet.OpenOptions{})
	require.NoError(t, err)
	defer table.Close()
	d, err := host.Open(host.Options{})
	require.NoError(t, err)
	defer d.Close()
	lease := d.HostBudget().Lease("test")
	defer lease.Close()
	all := make([]int, table.Schema().Len())
	for i := range all {
		all[i] = i
	}
	r, err := table.Scan(context.Background(), source.ScanOptions{Columns: all, StrideRows: 1 << 16, Lease: lease})
	require.NoError(t, err)
	defer r.Close()
	var rows [][]gpu.Scalar
	for {
		s, err := r.Read(context.Background())
		if err == io.EOF {
			return table.Schema(), rows
		}
		require.NoError(t, err)
		for i := range s.Rows {
			row := make([]gpu.Scalar, len(s.Cols))
			for c, col := range s.Cols {
				row[c] = col.ScalarAt(i)
			}
			rows = append(rows, row)
		}
		s.Release()
	}
}
