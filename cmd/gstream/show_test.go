package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/sink/parquet"
)

var update = flag.Bool("update", false, "write what the tests see into testdata")

// golden compares a text with a file of testdata. -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// tableFile writes a Parquet file with the rows of a JSON array of arrays.
func tableFile(t *testing.T, name string, fields []arrow.Field, rows string) string {
	t.Helper()
	schema := arrow.NewSchema(fields, nil)
	var arrays [][]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(rows), &arrays))
	objects := make([]map[string]json.RawMessage, len(arrays))
	for i, row := range arrays {
		objects[i] = map[string]json.RawMessage{}
		for c, v := range row {
			objects[i][fields[c].Name] = v
		}
	}
	text, err := json.Marshal(objects)
	require.NoError(t, err)
	r, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, bytes.NewReader(text))
	require.NoError(t, err)
	table, err := pipeline.ArrowTable(schema, r)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name)
	_, err = pipeline.New("make").ReadTable("t", table).Write(path, parquet.Options{}).Run(t.Context(),
		pipeline.RunOptions{Use: pipeline.Host})
	require.NoError(t, err)
	return path
}

// shown runs gstream show and returns what it prints.
func shown(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := gstream(append([]string{"show", "--device", "host"}, args...)...)
	require.Equal(t, exitOK, code, stderr)
	assert.Empty(t, stderr)
	return stdout
}

// hostile has names and strings that a terminal or a format could take for something else.
func hostile(t *testing.T) string {
	text := func(name string) arrow.Field {
		return arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true}
	}
	return tableFile(t, "hostile.parquet", []arrow.Field{
		text("esc\x1b[31m\n"), text(`a "b", |c|`), text(""), text("日本"),
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "u", Type: arrow.PrimitiveTypes.Uint64, Nullable: true},
		{Name: "d", Type: &arrow.Decimal128Type{Precision: 38, Scale: 2}, Nullable: true},
		{Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "b", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
		{Name: "bytes", Type: arrow.BinaryTypes.Binary, Nullable: true},
	}, `[
		["\u001b[2J\u0007", "NULL", "", "東京\u202e", "-9223372036854775808", "18446744073709551615", "999999999999999999999999999999999999.99", 0.1, true, "2024-02-29", "AP8="],
		["two\r\nlines\t|", "'NULL'", " a,b ", "\u0085\u200b", "9007199254740993", 0, "-0.01", -2.5e-300, false, "0001-01-01", ""],
		[null, null, null, null, null, null, null, null, null, null, null],
		["*x* <b> & \\", "null", "say \"hi\"", "é", 0, "9007199254740993", "100.00", 1e20, null, null, null]
	]`)
}

func TestShowPrintsHostileValues(t *testing.T) {
	path := hostile(t)
	var all strings.Builder
	for _, args := range [][]string{{"--width", "-1"}, {"--width", "80"}, {"--width", "40"}, {"--width", "1"},
		{"--format", "csv"}, {"--format", "json"}, {"--format", "markdown"}} {
		out := shown(t, append([]string{path}, args...)...)
		fmt.Fprintf(&all, "%s\n%s\n", strings.Join(args, " "), out)
		if args[1] == "csv" {
			continue // its values are as they are
		}
		for _, r := range out {
			require.True(t, r == '\n' || r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f) && r != '\u202e' &&
				r != '\u200b', "%v prints %q", args, r)
		}
	}
	golden(t, "show_hostile.txt", all.String())
}

func TestShowPrintsWholeValues(t *testing.T) {
	path := hostile(t)
	records, err := csv.NewReader(strings.NewReader(shown(t, path, "--format", "csv"))).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 5)
	assert.Equal(t, []string{"esc\x1b[31m\n", `a "b", |c|`, "C2", "日本", "n", "u", "d", "f", "b", "day", "bytes"},
		records[0])
	assert.Equal(t, []string{"\x1b[2J\a", "NULL", "", "東京\u202e", "-9223372036854775808", "18446744073709551615",
		"999999999999999999999999999999999999.99", "0.1", "true", "2024-02-29", `\x00ff`}, records[1])

	var rows []map[string]any
	d := json.NewDecoder(strings.NewReader(shown(t, path, "--format", "json")))
	d.UseNumber()
	require.NoError(t, d.Decode(&rows))
	require.Len(t, rows, 4)
	assert.Equal(t, json.Number("-9223372036854775808"), rows[0]["n"])
	assert.Equal(t, json.Number("18446744073709551615"), rows[0]["u"])
	assert.Equal(t, json.Number("999999999999999999999999999999999999.99"), rows[0]["d"])
	assert.Equal(t, json.Number("-0.01"), rows[1]["d"])
	assert.Equal(t, json.Number("1e+20"), rows[3]["f"])
	assert.Equal(t, "東京\u202e", rows[0]["日本"])
	assert.Equal(t, "two\r\nlines\t|", rows[1]["esc\x1b[31m\n"])
	assert.Equal(t, `say "hi"`, rows[3]["C2"])
	assert.Contains(t, rows[2], "n")
	assert.Nil(t, rows[2]["n"])
}

func TestShowFitsTheTerminal(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	var fields []arrow.Field
	var row []string
	for i := range 300 {
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("column_number_%d", i), Type: arrow.BinaryTypes.String})
		row = append(row, fmt.Sprintf(`"%s"`, strings.Repeat("wide 寬 ", i)))
	}
	path := tableFile(t, "wide.parquet", fields, "[["+strings.Join(row, ",")+"]]")
	for _, width := range []int{1, 2, 3, 4, 10, 13, 15, 16, 17, 28, 29, 30, 40, 80, 120, 4000} {
		for i, line := range strings.Split(strings.TrimRight(shown(t, path, "--width", fmt.Sprint(width)), "\n"),
			"\n") {
			if i < 4 { // names, types, the rule, and the row
				require.LessOrEqual(t, textWidth(line), max(width, 4), "width %d: %s", width, line)
			}
		}
	}
	golden(t, "show_wide.txt", shown(t, path, "--width", "40"))
	assert.Contains(t, shown(t, path, "--width", "-1"), "1 row; 300 columns\n")
	assert.NotContains(t, shown(t, path, "--width", "-1"), "…")
	assert.Equal(t, 300, strings.Count(shown(t, path, "--format", "json"), `"column_number_`))
}

func TestShowOfAnEmptyTableHasItsColumns(t *testing.T) {
	path := tableFile(t, "empty.parquet", []arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64},
		{Name: "b", Type: arrow.BinaryTypes.String}}, "[]")
	assert.Equal(t, "     a  b\nBIGINT  VARCHAR\n──────  ───────\n\n0 rows; 2 columns\n", shown(t, path))
	assert.Equal(t, "a,b\n", shown(t, path, "--format", "csv"))
	assert.Equal(t, "[]\n", shown(t, path, "--format", "json"))
	assert.Equal(t, "| a<br>BIGINT | b<br>VARCHAR |\n|---:|---|\n", shown(t, path, "--format", "markdown"))
}

func TestShowOfAJobWritesNoFile(t *testing.T) {
	path,
		out := jobFile(t,
		"  - {name: few, filter: o_custkey < 100}\n  - {name: keys, select: [o_orderkey, o_orderdate]}\n  - sort: "+
			"o_orderkey desc", "")
	require.NoError(t, os.WriteFile(out, []byte("mine"), 0o644)) // a run would refuse it
	assert.Equal(t, "o_orderkey,o_orderdate\n59809,1995-03-09\n", shown(t, path, "--rows", "1", "--format", "csv"))
	assert.Contains(t, shown(t, path, "--rows", "2"), "\nfirst 2 rows, and there are more; 2 columns\n")
	assert.Contains(t, shown(t, path, "--step", "few", "--rows", "1", "--width", "-1"), "o_comment")
	assert.Contains(t, shown(t, path, "--step", "keys"), "o_orderkey  o_orderdate\n")
	assert.Contains(t, shown(t, path, "--step", "orders"), "\nfirst 10 of 15,000 rows; ")
	assert.Contains(t, shown(t, path, "--step", "sort 3", "--rows", "0"),
		"\nfirst 0 rows, and there are more; 2 columns\n")
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, entries, 2)
}

func TestShowOfAStepNeedsNoStepAfterIt(t *testing.T) {
	path, _ := jobFile(t, "  - {name: few, filter: o_custkey < 100}\n  - filter: no_such_column = 1", "")
	assert.Contains(t, shown(t, path, "--step", "few"), "o_orderkey")
	code, stdout, stderr := gstream("show", path)
	assert.Equal(t, exitJob, code)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "no_such_column")
}

func TestShowTellsColumnsOfOneNameApart(t *testing.T) {
	path,
		_ := jobFile(t, "  - {name: both, join: {with: orders, as: again, using: o_orderkey, kind: left}}\n  - "+
		"select: [orders.o_custkey]", "")
	out := shown(t, path, "--step", "both", "--rows", "1", "--format", "csv")
	assert.Contains(t, out, "orders.o_custkey")
	assert.Contains(t, out, "again.o_custkey")
}

func TestShowLeavesOutWhatCannotBeRead(t *testing.T) {
	code, stdout, stderr := gstream("show", "../../source/parquet/testdata/unreadable.parquet")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, " of 20 rows; 2 columns\n")
	assert.Contains(t, stderr, `left out: column "span"`)
	code, stdout, stderr = gstream("show", "../../source/parquet/testdata/only-unreadable.parquet")
	assert.Equal(t, exitJob, code)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, `column "span"`)
}

func TestShowRefusesWhatItCannotShow(t *testing.T) {
	path, _ := jobFile(t, "  - {name: few, filter: o_custkey < 100}", "")
	text := filepath.Join(t.TempDir(), "notes.parquet")
	require.NoError(t, os.WriteFile(text, []byte("these are notes"), 0o644))
	orders := filepath.Join(data, "orders.parquet")
	for name, c := range map[string]struct {
		args    []string
		code    int
		message string
	}{
		"no file":    {[]string{"nowhere.parquet"}, exitIO, "gstream: stat nowhere.parquet: no such file"},
		"no job":     {[]string{"nowhere.yaml"}, exitIO, "nowhere.yaml"},
		"no Parquet": {[]string{text}, exitData, "notes.parquet"},
		"no step": {[]string{path, "--step", "fw"}, exitJob,
			`the job has no step or source named "fw" (did you mean "few"?); it has "few", "orders"`},
		"step of a file": {[]string{orders, "--step", "few"}, exitJob, "--step works only with a job file"},
		"set of a file":  {[]string{orders, "--set", "a=b"}, exitJob, "--set works only with a job file"},
		"format": {[]string{orders, "--format", "xml"}, exitJob,
			"--format xml: must be table, csv, json or markdown"},
		"rows":            {[]string{orders, "--rows", "-1"}, exitJob, "--rows -1"},
		"two files":       {[]string{orders, orders}, exitJob, "takes one file"},
		"the folder":      {[]string{t.TempDir()}, exitIO, "there is no *.parquet"},
		"a store":         {[]string{"ftp://bucket/a.parquet"}, exitJob, "are not supported"},
		"a pattern":       {[]string{"nowhere-*"}, exitIO, "no file matches"},
		"mistake in rows": {[]string{path, "--set", "data=/nowhere"}, exitIO, "/nowhere/orders.parquet"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := gstream(append([]string{"show"}, c.args...)...)
			assert.Equal(t, c.code, code, stderr)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, c.message)
		})
	}
}

func TestShowTakesFilesOfAnyName(t *testing.T) {
	orders, err := os.ReadFile(filepath.Join(data, "nation.parquet"))
	require.NoError(t, err)
	folder := t.TempDir()
	path := filepath.Join(folder, "nation")
	require.NoError(t, os.WriteFile(path, orders, 0o644))
	assert.Contains(t, shown(t, path), "first 10 of 25 rows; 4 columns")
	job := filepath.Join(folder, "job")
	require.NoError(t,
		os.WriteFile(job, []byte("sources: {n: nation}\nsteps: [{limit: 3}]\noutput: {parquet: out.parquet}\n"), 0o644))
	assert.Contains(t, shown(t, job), "\n3 rows; 4 columns\n")
	assert.Contains(t, shown(t, filepath.Join(folder, "nat*")), "first 10 of 25 rows; 4 columns")
}

func TestShowReadsLittle(t *testing.T) {
	var rows []string
	for i := range 100000 {
		rows = append(rows, fmt.Sprintf(`[%d]`, i))
	}
	path := tableFile(t, "long.parquet", []arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}},
		"["+strings.Join(rows, ",")+"]")
	job, err := pipeline.Parse("job.yaml",
		[]byte("sources: {long: "+path+"}\nsteps: [{filter: a >= 5}]\noutput: {parquet: out}\n"),
		pipeline.LoadOptions{})
	require.NoError(t, err)
	var c pipeline.Collector
	p, err := pipeline.NewPreview(t.Context(), job, "", 3, &c)
	require.NoError(t, err)
	defer p.Close()
	assert.Equal(t, int64(-1), p.Rows)
	r, err := p.Run(t.Context(), pipeline.RunOptions{Use: pipeline.Host, Threads: 1, StrideSize: previewStride})
	require.NoError(t, err)
	require.Len(t, c.Records(), 1)
	assert.Equal(t, int64(3), c.Records()[0].NumRows())
	assert.LessOrEqual(t, r.Stages[0].RowsOut, int64(3*8192))
}

func TestREADMEShowsTheResultOfTheQuickstart(t *testing.T) {
	out := filepath.Join(t.TempDir(), "revenue.parquet")
	code, _, stderr := gstream("run", "../../examples/quickstart/job.yaml", "--set", "out="+out, "--device", "host")
	require.Equal(t, exitOK, code, stderr)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	rows := strings.TrimSuffix(shown(t, out, "--rows", "3"), "\n")
	assert.Contains(t, string(readme), "    "+strings.ReplaceAll(strings.ReplaceAll(rows, "\n", "\n    "), "\n    \n",
		"\n\n")+"\n")
}
