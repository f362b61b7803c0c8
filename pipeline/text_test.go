package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
)

// TestBothDevicesReadText groups rows of CSV and of JSON lines on both devices, in short strides.
func TestBothDevicesReadText(t *testing.T) {
	library := cudatest.Library(t)
	dir := t.TempDir()
	var csv, lines strings.Builder
	csv.WriteString("k,x,s\n")
	for i := range 5000 {
		fmt.Fprintf(&csv, "%d,%d.5,\"text\n%d\"\n", i%7, i, i%3)
		fmt.Fprintf(&lines, "{\"k\": %d, \"x\": %d.5, \"s\": \"text\\n%d\"}\n", i%7, i, i%3)
	}
	paths := []string{filepath.Join(dir, "x.csv"), filepath.Join(dir, "x.jsonl")}
	require.NoError(t, os.WriteFile(paths[0], []byte(csv.String()), 0o644))
	require.NoError(t, os.WriteFile(paths[1], []byte(lines.String()), 0o644))
	var want [][]*string
	for _, path := range paths {
		for _, library := range []string{"", library} {
			var d gpu.Device
			var err error
			if library == "" {
				d, err = host.Open(host.Options{Threads: 2, Memory: 1 << 28})
			} else {
				d, err = cuda.Open(cuda.Options{Memory: 1 << 28, HostMemory: 64 << 20, Library: library})
			}
			require.NoError(t, err)
			var out collected
			_, err = New("t").Read("t", path).Group([]string{"k", "s"}, "sum(x) as x", "count(*) as n").Sort("k", "s").
				WriteTo(&out).Run(context.Background(), RunOptions{Device: smallStrides{d, 500}})
			require.NoError(t, err)
			require.NoError(t, d.Close())
			require.Len(t, out.rows, 21)
			if want == nil {
				want = out.rows
			}
			require.Equal(t, want, out.rows)
		}
	}
}

// TestAJobReadsAndWritesText has a job file whose source and output are text, and one with each mistake.
func TestAJobReadsAndWritesText(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.csv"), []byte("a|b\n1|x\nNA|'y'\nbad|z\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "y.jsonl"), []byte(`{"a": 1, "c": 2.5}`), 0o644))
	const text = `
sources:
  x: {csv: x.csv, delimiter: "|", quote: "'", header: true, nulls: [NA], types: {a: INTEGER}, rejects: bad.csv}
  y: y.jsonl
steps:
  - {from: x, join: {with: y, using: [a], kind: left}}
output: {csv: out/o.csv, delimiter: ";", nulls: nothing}
`
	run := func(text string) error {
		j, err := Parse(filepath.Join(dir, "job.yaml"), []byte(text), LoadOptions{})
		if err != nil {
			return err
		}
		p, err := NewPlan(j)
		if err != nil {
			return err
		}
		_, err = p.Run(context.Background(), RunOptions{Use: Host})
		require.NoError(t, p.Close())
		return err
	}
	require.NoError(t, run(text))
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(b)
	}
	require.Equal(t, "a;b;c\n1;x;2.5\nnothing;y;nothing\n", read("out/o.csv"))
	require.Contains(t, read("bad.csv"), `,4,1,a,"""bad"" is no INTEGER",bad|z`)
	require.ErrorIs(t, run(text), os.ErrExist)
	for _, c := range [][2]string{
		{"nulls: nothing → nulls: 'a;b'",
			"the text of a null is \"a;b\""},
		{"csv: out/o.csv → parquet: o.parquet",
			"delimiter is for an output of CSV"},
		{"csv: out/o.csv → json: o.jsonl",
			"delimiter is for an output of CSV"},
		{"csv: out/o.csv → csv: o.csv, json: o.jsonl",
			"the output has csv and json"},
		{"nulls: nothing → files: 3",
			"files is for an output of Parquet"},
		{"csv: out/o.csv → csv: https://b/o.csv",
			"a file cannot be written to a web server"},
		{"csv: x.csv, → json: x.jsonl,",
			"delimiter is for files of CSV, and these are of JSON"},
		{"csv: x.csv, → parquet: x.csv, ",
			"delimiter is for files of CSV, and these are of Parquet"},
		{"csv: x.csv, → csv: x.csv, json: y.jsonl,",
			"the source has csv and json"},
		{"y: y.jsonl → y: {parquet: y.jsonl}",
			"has the name of a file of JSON lines; name it with json: PATH"},
		{"y: y.jsonl → y: {json: y.jsonl, optional: true, schema: {a: BIGINT}}",
			"files of JSON cannot be optional"},
		{"y: y.jsonl → y: {json: y.jsonl, schema: strict}",
			"leave schema: strict out"},
		{"y: y.jsonl → y: {json: ., types: {a: BIGINT}}",
			"a folder of such files is read by a pattern"},
		{"types: {a: INTEGER} → types: {b: WRONG}",
			"unknown type \"WRONG\""},
		{"types: {a: INTEGER} → types: text",
			"must be a mapping of column names to types"},
		{"header: true → header: maybe",
			"must be true or false"},
		{"rejects: bad.csv → rejects: x.csv",
			"cannot be a file that is read"},
	} {
		change, want := c[0], c[1]
		from, to, _ := strings.Cut(change, " → ")
		require.Contains(t, text, from)
		err := run(strings.Replace(text, from, to, 1))
		require.ErrorContains(t, err, want, change)
	}
	require.NoFileExists(t, filepath.Join(dir, "o.parquet"))
	b := New("t").Read("t", filepath.Join(dir, "y.jsonl")).WriteWith(Output{JSON: Path(filepath.Join(dir, "z.jsonl"))})
	_, err := b.Run(context.Background(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.Equal(t, "{\"a\":1,\"c\":2.5}\n", read("z.jsonl"))
}

// TestSourcesOfTextHaveFoldersAndOtherColumns has the keys in a job, in Go, and in the SQL that a job becomes.
func TestSourcesOfTextHaveFoldersAndOtherColumns(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"y=1/x.csv": "a,b\n1\n2,3\n", "y=2/x.csv": "c,a\nz,4\n",
		"l.json": "[{\"a\": 1},\n{\"a\":\n2}]"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	csv := Source{CSV: Paths{Path(dir + "/*/x.csv")},
		Partitions: Partitions{Types: []SchemaColumn{{Name: "y", Type: "TINYINT"}}},
		CSVOptions: CSVOptions{NullPadding: true, UnionByName: true}}
	list := Source{JSON: Paths{Path(dir + "/l.json")}, CSVOptions: CSVOptions{Format: "array"}}
	b := New("t").ReadWith("t", csv).ReadWith("l", list).From("t").Sort("a")
	const want = `[{"a":1,"b":null,"c":null,"y":1}
,{"a":2,"b":3,"c":null,"y":1}
,{"a":4,"b":null,"c":"z","y":2}
]`
	require.Equal(t, want, jsonOf(t, b))
	_, err := ToSQL(t.Context(), b.Job())
	require.ErrorContains(t, err, "the types of partitions of a source have no form in SQL")
	csv.Partitions.Types = nil
	b = New("t").ReadWith("t", csv).ReadWith("l", list).From("t").Sort("a")
	text, err := ToSQL(t.Context(), b.Job())
	require.NoError(t, err)
	require.Contains(t, text, "null_padding = true, union_by_name = true")
	require.Equal(t, want, sqlRows(t, text, nil))
	csv.Partitions.None = true
	require.NotContains(t, jsonOf(t, New("t").ReadWith("t", csv)), `"y"`)
	require.Equal(t, "[{\"a\":1}\n,{\"a\":2}\n]", jsonOf(t, New("t").ReadWith("l", list)))
}

// jsonOf returns the rows of a pipeline.
func jsonOf(t *testing.T, b *Builder) (out string) {
	var c Collector
	_, err := b.WriteTo(&c).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	for _, r := range c.Records() {
		json, err := r.MarshalJSON()
		require.NoError(t, err)
		out += string(json)
	}
	return out
}
