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
	src := "vars: {data: inside, other: '${env:DATA}'}\nsources: {a: '${data}/a', b: '${env:DATA}/b', c: " +
		"'${other}/c', d: 'x/${data}'}\noutput: {parquet: out}"
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

func TestAVariableOfTheEnvironmentMayHaveADefault(t *testing.T) {
	env := func(name string) (string, bool) { return map[string]string{"SET": "given"}[name], name != "UNSET" }
	src := "name: '${env:UNSET:-a: b} ${env:SET:-x} ${env:EMPTY:-y}'\nsources: {a: " +
		"'${env:UNSET:-tables}/a'}\noutput: {parquet: out}"
	j, err := Parse("dir/job.yaml", []byte(src), LoadOptions{LookupEnv: env})
	require.NoError(t, err)
	assert.Equal(t, "a: b given y", j.Name)
	assert.Equal(t, Paths{"dir/tables/a"}, j.Sources["a"].Parquet, "a default is of the job file")
	_, err = Parse("job.yaml", []byte("name: '${env:UNSET}'\nsources: {a: x}\noutput: {parquet: out}"),
		LoadOptions{LookupEnv: env})
	require.ErrorContains(t, err, "${env:UNSET:-VALUE} has a default")
}

func TestAByteOrderMarkIsNoText(t *testing.T) {
	j, err := Parse("job.yaml", []byte("\ufeffname: n\nsources: {a: x}\noutput: {parquet: out}"), LoadOptions{})
	require.NoError(t, err)
	assert.Equal(t, "n", j.Name)
}

func TestAliasesStandForTheirAnchors(t *testing.T) {
	src := `
sources: {a: x, b: y}
steps:
  - &first {from: a, filter: &f a > 1}
  - {<<: *first, from: b}
  - filter: *f
  - &last
    name: end
    distinct: true
output: {parquet: out}`
	j, err := Parse("job.yaml", []byte(src), LoadOptions{})
	require.NoError(t, err)
	assert.Equal(t, Step{From: "a", Filter: "a > 1"}, j.Steps[0])
	assert.Equal(t, Step{From: "b", Filter: "a > 1"}, j.Steps[1])
	assert.Equal(t, Step{Filter: "a > 1"}, j.Steps[2])
	assert.Equal(t, Step{Name: "end", Distinct: Columns{{"", "*"}}}, j.Steps[3])
	_, err = Parse("job.yaml", []byte("steps: [*nobody]"), LoadOptions{})
	require.ErrorContains(t, err, "job.yaml:1:9: there is no anchor &nobody")
	_, err = Parse("job.yaml", []byte("steps: &a [*a]"), LoadOptions{})
	require.ErrorContains(t, err, "there is no anchor &a")

	// Each anchor has the one before ten times.
	src = "a0: &a0 [x]\n"
	for i := range 30 {
		src += fmt.Sprintf("a%d: &a%[1]d [*a%[2]d, *a%[2]d, *a%[2]d, *a%[2]d, *a%[2]d, *a%[2]d, *a%[2]d, *a%[2]d, "+
			"*a%[2]d, *a%[2]d]\n", i+1, i)
	}
	_, err = Parse("job.yaml", []byte(src), LoadOptions{})
	require.ErrorContains(t, err, "stand for more than 100000 values")
}

func TestAnExpressionThatYAMLCutsAtItsCommaIsToBeQuoted(t *testing.T) {
	for steps, want := range map[string]string{
		`[{group: {by: [date_trunc('month', d) as m]}}]`:              `quote it: ["date_trunc('month', d) as m"]`,
		`[{group: {by: [a, round(x, 2), b]}}]`:                        `quote it: ["round(x, 2)"]`,
		`[{sort: [coalesce(a, b, (c)) desc, d]}]`:                     `quote it: ["coalesce(a, b, (c)) desc"]`,
		`[{select: {m: "'a'", n: round(x, 2), o: b}}]`:                `quote it: {n: "round(x, 2)"}`,
		`[{group: {aggregates: {n: coalesce(sum(x), round(y, 2))}}}]`: `quote it: {n: "coalesce(sum(x), round(y, 2))"}`,
		`[{join: {with: b, on: [a.x = round(b.y, 1)]}}]`:              `quote it: ["a.x = round(b.y, 1)"]`,
	} {
		_, err := Parse("job.yaml", []byte("sources: {a: x}\nsteps: "+steps+"\noutput: {parquet: out}"), LoadOptions{})
		require.ErrorContains(t, err, want, steps)
	}
	j, err := Parse("job.yaml",
		[]byte("sources: {a: x}\nsteps: [{select: [\"round(x, 2)\", ' (', 'b)']}]\noutput: {parquet: out}"),
		LoadOptions{})
	require.NoError(t, err)
	assert.Len(t, j.Steps[0].Select, 3)
}

func TestTheSchemaOfASourceIsARuleOrColumns(t *testing.T) {
	j, err := Parse("job.yaml",
		[]byte("sources:\n  a: {parquet: a, schema: strict}\n  b: {parquet: b, schema: unify}\n  c: {parquet: c, "+
			"schema: {x: BIGINT, y: 'DECIMAL(12,2)'}}\noutput: {parquet: out}"), LoadOptions{})
	require.NoError(t, err)
	assert.Equal(t, Schema{Strict: true}, j.Sources["a"].Schema)
	assert.Equal(t, Schema{}, j.Sources["b"].Schema)
	assert.Equal(t, Schema{Columns: []SchemaColumn{{"x", "BIGINT"}, {"y", "DECIMAL(12,2)"}}}, j.Sources["c"].Schema)
	for text, want := range map[string]string{
		"strikt": `sources.a.schema is "strikt"; it must be unify, strict, or a mapping of column names to types (did you mean "strict"?)`,
		"{}":     "sources.a.schema names no columns", "[x]": "must be a mapping",
		"{x: DECIMAL(12, 2)}": `quote it: {x: "DECIMAL(12, 2)"}`,
	} {
		_, err := Parse("job.yaml", []byte("sources: {a: {parquet: a, schema: "+text+"}}\noutput: {parquet: out}"),
			LoadOptions{})
		assert.ErrorContains(t, err, want)
	}
}
