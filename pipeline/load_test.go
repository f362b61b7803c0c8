package pipeline

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source"
)

var update = flag.Bool("update", false, "write what the tests see into testdata")

const smallJob = `
name: small
vars:
  data: tables
  day:
  out: {default: "${data}/result.parquet", description: the result}
memory: {host: 2GiB}
sources:
  orders: ${data}/orders.parquet
  lines:
    parquet: [a.parquet, /abs/b.parquet]
steps:
  - name: recent
    from: orders
    filter: o_orderdate >= date '${day}'
  - join: {with: lines, on: [a = b, c = d], kind: left}
  - select: [a, "a + 1 as b", c: d * 2]
  - group:
      by: a
      aggregates: {n: count(*), total: sum(b)}
  - sort: [n desc]
  - limit: 10
output:
  parquet: ${out}
  compression: zstd
  level: 3
`

func TestParseFillsTheJob(t *testing.T) {
	j, err := Parse("dir/job.yaml", []byte(smallJob), LoadOptions{Set: map[string]string{"day": "1995-01-01"}})
	require.NoError(t, err)
	assert.Equal(t, "small", j.Name)
	assert.Equal(t, Size(2<<30), j.Memory.Host)
	assert.Equal(t, Paths{"dir/tables/orders.parquet"}, j.Sources["orders"].Parquet)
	assert.Equal(t, Paths{"dir/a.parquet", "/abs/b.parquet"}, j.Sources["lines"].Parquet)
	assert.Equal(t, "o_orderdate >= date '1995-01-01'", j.Steps[0].Filter)
	assert.Equal(t, &Join{With: "lines", On: []string{"a = b", "c = d"}, Kind: "left"}, j.Steps[1].Join)
	assert.Equal(t, Columns{{"", "a"}, {"", "a + 1 as b"}, {"c", "d * 2"}}, j.Steps[2].Select)
	assert.Equal(t, Columns{{"n", "count(*)"}, {"total", "sum(b)"}}, j.Steps[3].Group.Aggregates)
	assert.Equal(t, &Limit{Count: 10}, j.Steps[5].Limit)
	assert.Equal(t, Path("dir/tables/result.parquet"), j.Output.Parquet)
	assert.Equal(t, "zstd", j.Output.Compression)
	assert.Equal(t, 3, j.Output.Level)
}

func TestPathsFromOutsideAreRelativeToTheWorkingDirectory(t *testing.T) {
	env := func(name string) (string, bool) { return "from/env", name == "DATA" }
	src := "vars: {data: inside, other: '${env:DATA}'}\nsources: {a: '${data}/a', b: '${env:DATA}/b', c: '${other}/c', d: 'x/${data}'}\noutput: {parquet: out}"
	j, err := Parse("dir/job.yaml", []byte(src), LoadOptions{Set: map[string]string{"data": "given"}, LookupEnv: env})
	require.NoError(t, err)
	assert.Equal(t, Paths{"given/a"}, j.Sources["a"].Parquet)
	assert.Equal(t, Paths{"from/env/b"}, j.Sources["b"].Parquet)
	assert.Equal(t, Paths{"from/env/c"}, j.Sources["c"].Parquet)
	assert.Equal(t, Paths{"dir/x/given"}, j.Sources["d"].Parquet)
}

func TestVariablesAreExpandedOnceEach(t *testing.T) {
	// Each variable doubles the one before: without remembering, the last takes
	// 2^60 steps.
	src := "vars:\n  v0: ''\n"
	for i := range 60 {
		src += fmt.Sprintf("  v%d: '${v%d}${v%d}'\n", i+1, i, i)
	}
	src += "sources: {a: 'x${v60}'}\noutput: {parquet: out}"
	j, err := Parse("job.yaml", []byte(src), LoadOptions{})
	require.NoError(t, err)
	assert.Equal(t, Paths{"x"}, j.Sources["a"].Parquet)
}

func TestDollarDollarIsADollarSign(t *testing.T) {
	j, err := Parse("job.yaml", []byte("name: a$$b$${c}\nsources: {a: x}\noutput: {parquet: out}"), LoadOptions{})
	require.NoError(t, err)
	assert.Equal(t, "a$b${c}", j.Name)
}

// TestFaultsOfJobFiles compares every testdata/jobs/*.yaml with the faults in the
// .txt beside it; -update writes them.
func TestFaultsOfJobFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/jobs/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			job, err := Load(file, LoadOptions{Set: map[string]string{}, LookupEnv: func(string) (string, bool) { return "", false }})
			if err == nil {
				var p *Plan
				if p, err = NewPlan(job); err == nil {
					p.Close()
				}
			}
			require.Error(t, err)
			var faults Diagnostics
			require.True(t, errors.As(err, &faults), "%v", err)
			want := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(want, []byte(err.Error()+"\n"), 0o644))
			}
			text, readErr := os.ReadFile(want)
			require.NoError(t, readErr)
			assert.Equal(t, string(text), err.Error()+"\n")
		})
	}
}

func FuzzJob(f *testing.F) {
	f.Add([]byte(smallJob))
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, file := range files {
		if src, err := os.ReadFile(file); err == nil {
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		job, err := Parse("job.yaml", src, LoadOptions{LookupEnv: func(string) (string, bool) { return "", false }})
		if err != nil {
			require.ErrorIs(t, err, ErrJob)
			return
		}
		// Fuzzed paths must not touch the machine, so the tables are ours.
		own := map[string]source.Table{}
		for name := range job.Sources {
			own[name] = emptyTable(t)
		}
		p, err := newPlan(job, own, nil)
		var output *fs.PathError // a folder, or what else may have a fuzzed name
		if err != nil {
			require.True(t, errors.Is(err, ErrJob) || errors.As(err, &output), "%v", err)
			return
		}
		require.NotEmpty(t, p.Explain("host").String())
		require.NoError(t, p.Close())
	})
}

// emptyTable has the columns of the fuzzed jobs and no rows.
func emptyTable(t *testing.T) source.Table {
	var fields []arrow.Field
	for i, typ := range []arrow.DataType{arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32, &arrow.Decimal128Type{Precision: 15, Scale: 2}, arrow.BinaryTypes.String, arrow.FixedWidthTypes.Date32} {
		fields = append(fields, arrow.Field{Name: string(rune('a' + i)), Type: typ, Nullable: true})
	}
	table, err := ArrowTable(arrow.NewSchema(fields, nil))
	require.NoError(t, err)
	return table
}
