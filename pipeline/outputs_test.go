package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/source"
	sourceparquet "github.com/gstream/gstream/source/parquet"
)

// onBothDevices runs a test on the CPU and on a GPU or its emulator.
func onBothDevices(t *testing.T, run func(t *testing.T, opt RunOptions)) {
	t.Run("host", func(t *testing.T) { run(t, RunOptions{Use: Host}) })
	t.Run("cuda", func(t *testing.T) { run(t, RunOptions{Device: cudatest.Open(t, cuda.Options{})}) })
}

// rowsIn counts the rows of Parquet files.
func rowsIn(t *testing.T, path string) int64 {
	table, err := sourceparquet.Open([]string{path}, sourceparquet.OpenOptions{})
	require.NoError(t, err)
	defer table.Close()
	return table.Rows()
}

func TestOutputsShareTheirStepsAndAppearTogether(t *testing.T) {
	onBothDevices(t, func(t *testing.T, opt RunOptions) {
		dir := t.TempDir()
		at := func(name string) Path { return Path(filepath.Join(dir, name)) }
		report, err := ranked(t).Filter("n <= 2").As("first").
			From("numbered").Group([]string{"g"}, "sum(n) as s").As("sums").Sort("g").As("sorted").
			WriteAll(Output{From: "first", Parquet: at("parts/first"),
				Options: ParquetOptions{PartitionBy: []string{"n"}}},
				Output{CSV: at("sums.csv")}, Output{From: "sums", JSON: at("sums.jsonl.gz")},
				Output{From: "t", Parquet: at("all.parquet")}).
			Run(t.Context(), opt)
		require.NoError(t, err)
		windows := 0
		for _, s := range report.Stages {
			if s.Kind == "window" {
				windows++
			}
		}
		require.Equal(t, 1, windows, "a step that two outputs read is computed once")
		require.Len(t, report.Outputs, 4)
		require.EqualValues(t, 20, report.Outputs[0].Rows)
		require.EqualValues(t, 2, report.Outputs[0].Files)
		require.EqualValues(t, 1040, report.Output.Rows)
		require.Contains(t, report.String(), "output "+string(at("sums.csv")))
		require.EqualValues(t, 20, rowsIn(t, string(at("parts/first"))))
		require.EqualValues(t, 1000, rowsIn(t, string(at("all.parquet"))))
		text, err := os.ReadFile(string(at("sums.csv")))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "g,s\n0,5050\n1,5050\n"), "%s", text)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 4, "nothing hidden is left")
	})
}

func TestOneOutputThatFailsLeavesNone(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) Path { return Path(filepath.Join(dir, name)) }
	require.NoError(t, os.WriteFile(string(at("b.csv")), []byte("mine"), 0o666))
	outputs := func(b *Builder) *Builder {
		return b.Filter("k < 5").As("five").WriteAll(Output{Parquet: at("a.parquet")}, Output{CSV: at("b.csv")},
			Output{From: "t", Parquet: at("new/c")})
	}
	_, err := outputs(New("exists").ReadTable("t", thousand(t))).Run(t.Context(), RunOptions{Use: Host})
	require.ErrorIs(t, err, os.ErrExist)
	require.ErrorIs(t, err, ErrOutput)
	_, err = New("fails").ReadTable("t", thousand(t)).Filter("k < 5").As("five").
		Select("cast(name as integer) as x").As("wrong").
		WriteAll(Output{From: "five", Parquet: at("a.parquet")}, Output{CSV: at("c.csv")},
			Output{From: "t", CSV: at("b.csv"), Options: ParquetOptions{Overwrite: true}}).
		Run(t.Context(), RunOptions{Use: Host})
	require.ErrorIs(t, err, ErrData)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "only the file of before")
	text, err := os.ReadFile(string(at("b.csv")))
	require.NoError(t, err)
	require.Equal(t, "mine", string(text))
}

func TestMistakesInOutputs(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"outputs: [{parquet: a}, {csv: a}]":                              "is, or is in, another output",
		"outputs: [{parquet: a/, from: x}, {csv: a/b.csv}]":              "is, or is in, another output",
		"outputs: [{csv: a.csv}, {csv: '-'}]":                            "standard output cannot be one of several",
		"outputs: [{csv: a.csv}]\noutput: {csv: b.csv}":                  "the job has output and outputs",
		"outputs: [{csv: a.csv, from: y}]":                               `there is no source or step named "y"`,
		"outputs: [{csv: a.csv, from: x}]":                               "no output has the rows of this step",
		"outputs: [{from: x}, {csv: a.csv}]":                             "the output has no path",
		"outputs: [{csv: a.csv, rows_per_file: 1}]":                      "rows_per_file is for an output of Parquet",
		"outputs: [{csv: a.csv}, {parquet: b, partition_by: [nothing]}]": `partition_by names "nothing"`,
	} {
		j, err := Parse(filepath.Join(dir, "job.yaml"), []byte("sources: {t: t.parquet}\nsteps:\n- {name: x, "+
			"filter: k > 1}\n- {name: z, filter: k > 2}\n"+text+"\n"), LoadOptions{})
		require.NoError(t, err, text)
		table := thousand(t)
		_, err = newPlan(t.Context(), j, map[string]source.Table{"t": table}, nil)
		require.ErrorContains(t, err, want, text)
		require.ErrorIs(t, err, ErrJob)
	}
}

func TestPlansOfSeveralOutputsAreEncoded(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) Path { return Path(filepath.Join(dir, name)) }
	_, err := New("t").ReadTable("t", thousand(t)).Write(string(at("t.parquet")), ParquetOptions{}).
		Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	p, err := New("job").Read("t", string(at("t.parquet"))).Group([]string{"g"}, "count(*) as n").As("groups").
		Expect(Expectation{Unique: []string{"g"}}).Sort("n").
		WriteAll(Output{Parquet: at("a")}, Output{From: "groups", Parquet: at("b/")}).Plan()
	require.NoError(t, err)
	defer p.Close()
	require.Contains(t, p.Explain(Host).String(), "expect unique: [g]; the rows that do not meet it:")
	data, err := p.Encode()
	require.NoError(t, err)
	decoded, err := DecodePlan(data)
	require.NoError(t, err)
	defer decoded.Close()
	report, err := decoded.Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.Len(t, report.Expectations, 1)
	require.EqualValues(t, 10, rowsIn(t, string(at("a"))))
	require.EqualValues(t, 10, rowsIn(t, string(at("b"))))
	check, err := p.Check(RunOptions{Use: Host})
	require.NoError(t, err)
	require.True(t, check.Finishes)
}

func TestAStreamWithSeveralReadersIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) Path { return Path(filepath.Join(dir, name)) }
	schema := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64}}, nil)
	record, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[{"k":1},{"k":2}]`))
	require.NoError(t, err)
	reader, err := array.NewRecordReader(schema, []arrow.Record{record})
	require.NoError(t, err)
	stream, err := StreamArrow(schema, Once(reader), StreamOptions{})
	require.NoError(t, err)
	report, err := New("stream").ReadTable("t", stream).Filter("k > 1").As("some").
		Expect(Expectation{NotNull: []string{"k"}}, Expectation{Unique: []string{"k"}}).
		WriteAll(Output{CSV: at("some.csv")}, Output{From: "t", CSV: at("all.csv")}).
		Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.EqualValues(t, 1, report.Outputs[0].Rows)
	require.EqualValues(t, 2, report.Outputs[1].Rows)
}
