package job

import (
	_ "embed"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/small.yaml
var smallJob []byte

func TestParseFillsTheJob(t *testing.T) {
	j, err := Parse("dir/job.yaml", smallJob, LoadOptions{Set: map[string]string{"day": "1995-01-01"}})
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
	// Each variable doubles the one before. Without memoisation the last one takes 2^60
	// steps.
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
