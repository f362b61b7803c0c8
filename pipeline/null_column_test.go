package pipeline

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	sourcearrow "github.com/gstream/gstream/source/arrow"
)

// writeNulls writes a file with a column x of Parquet's NULL type.
func writeNulls(t *testing.T, path string) {
	d, err := OpenDevice(RunOptions{Use: Host})
	require.NoError(t, err)
	lease := d.HostBudget().Lease("test")
	schema := gpu.NewSchema(gpu.Field{Name: "x", Type: gpu.Of(gpu.Int32), Nullable: true, Annotation: gpu.AllNull},
		gpu.Field{Name: "i", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "s", Type: gpu.Of(gpu.String)})
	w, err := sinkparquet.Create(path, schema, sinkparquet.Options{Lease: lease})
	require.NoError(t, err)
	null := gpu.Null(gpu.Of(gpu.Int32))
	require.NoError(t, w.Write(context.Background(),
		&gpu.Stride{Schema: schema, Rows: 3, Cols: []gpu.Column{gpu.ColumnOf(null.Type, []gpu.Scalar{null, null, null}),
			gpu.ColumnOf(gpu.Of(gpu.Int64), []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), 1),
				gpu.IntScalar(gpu.Of(gpu.Int64), 2), gpu.IntScalar(gpu.Of(gpu.Int64), 3)}),
			gpu.ColumnOf(gpu.Of(gpu.String), []gpu.Scalar{gpu.StringScalar("a"), gpu.StringScalar("b"),
				gpu.StringScalar("c")})}}))
	require.NoError(t, w.Commit(context.Background()))
	require.NoError(t, lease.Close())
	require.NoError(t, d.Close())
}

func TestAnArrowColumnOfNothingButNullsIsOne(t *testing.T) {
	schema, err := sourcearrow.SchemaOf(arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.Null}}, nil))
	require.NoError(t, err)
	require.Equal(t, gpu.Field{Name: "x", Type: gpu.Of(gpu.Int32), Nullable: true, Annotation: gpu.AllNull},
		schema.Fields[0])
}

func TestAColumnOfNothingButNullsFitsEveryType(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "nulls.parquet")
	writeNulls(t, path)
	require.Equal(t, map[string]string{"x": "NULL", "i": "BIGINT", "s": "VARCHAR"}, typesOf(t, path))
	rows := func(name string, b *Builder) (out []map[string]any) {
		var c Collector
		_, err := b.WriteTo(&c).Run(context.Background(), RunOptions{Use: Host})
		require.NoError(t, err, name)
		for _, r := range c.Records() {
			text, err := r.MarshalJSON()
			require.NoError(t, err)
			var part []map[string]any
			require.NoError(t, json.Unmarshal(text, &part))
			out = append(out, part...)
		}
		return out
	}
	read := func() *Builder { return New("nulls").Read("t", path).Read("o", path) }
	for expression, want := range map[string]any{ // of the first row
		"x = 'abc'": nil, "x in ('a', s)": nil, "x || s": nil, "x like 'a%'": nil, "coalesce(x, s)": "a",
		"length(x)":             nil,
		"x > DATE '2020-01-01'": nil, "x + INTERVAL 1 DAY": nil, "coalesce(x, DATE '2020-01-01')": "2020-01-01",
		"x + i": nil, "x AND true": nil, "x IS NULL": true,
		"t.x = i": nil, "CASE WHEN i = 1 THEN s ELSE x END": "a", "CASE i WHEN 1 THEN x ELSE s END": nil,
		"x IS DISTINCT FROM s": true, "x": nil, "upper(x)": nil,
		"nullif(s, x)": "a", "lag(s, 1, x) over (order by i)": nil, "CAST(x AS TIMESTAMP)": nil,
		"x between i and length(s)": nil,
	} {
		got := rows(expression, read().Select("i", expression+" as r").Sort("i"))
		require.Len(t, got, 3)
		require.Equal(t, want, got[0]["r"], expression)
	}
	one := []map[string]any{{"n": 0.0}}
	for name, b := range map[string]*Builder{
		"filter":    read().Filter("x = 'a'").Group(nil, "count(*) as n"),
		"join":      read().Join("o", "t.x = o.s").Group(nil, "count(*) as n"),
		"join both": read().Join("o", "t.x = o.x").Group(nil, "count(*) as n"),
		"semi": read().JoinWith(Join{With: "o", Kind: "semi", On: []string{"t.x = o.s"}}).Group(nil,
			"count(*) as n"),
		"aggregates": read().Group(nil, "count(x) as n"),
		"distinct":   read().Group(nil, "count(distinct x) as n"),
		"using": read().Select("i as k",
			"s as x").As("r").From("t").JoinWith(Join{With: "r", Using: []string{"x"}}).Group(nil, "count(*) as n"),
		"on parts": read().Join("o", "t.x = o.s", "t.i = o.i").Group(nil, "count(*) as n"),
		"anti of none": read().JoinWith(Join{With: "o", Kind: "anti", On: []string{"t.x = o.s"}}).Group(nil,
			"count(*) - 3 as n"),
		"left": read().JoinWith(Join{With: "o", Kind: "left", On: []string{"t.x = o.s"}}).Group(nil,
			"count(*) - 3 as n"),
		"full": read().JoinWith(Join{With: "o", Kind: "full", On: []string{"t.x = o.s"}}).Group(nil,
			"count(*) - 6 as n"),
		"sort": read().Sort("x", "upper(x)").Filter("i > 3").Group(nil, "count(*) as n"),
	} {
		require.Equal(t, one, rows(name, b), name)
	}
	require.Equal(t, []map[string]any{{"n": nil, "m": nil, "f": nil, "a": nil}},
		rows("aggregates", read().Group(nil, "max(x) as n", "sum(x) as m", "string_agg(x, ',') as f",
			"arg_max(s, x) as a")))
	require.Equal(t, []map[string]any{{"x": nil, "n": 3.0}},
		rows("group", read().Group([]string{"x"}, "count(*) as n")))
	require.Equal(t, []map[string]any{{"k": nil, "n": 3.0}},
		rows("group", read().Group([]string{"x || 'a' as k"}, "count(*) as n")))
	texts := []map[string]any{{"s": "a"}, {"s": "b"}, {"s": "c"}, {"s": nil}, {"s": nil}, {"s": nil}}
	require.Equal(t, texts, rows("union", read().Select("x").As("u").From("t").Select("s").Union("u").Sort("s")))
	for i := range texts {
		texts[i] = map[string]any{"x": texts[i]["s"]}
	}
	require.Equal(t, texts, rows("union", read().Select("s").As("u").From("t").Select("x").Union("u").Sort("x")))

	out := filepath.Join(dir, "out.parquet")
	_, err := read().Select("x", "x as y", "s").Write(out, sinkparquet.Options{}).Run(context.Background(),
		RunOptions{Use: Host})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"x": "NULL", "y": "NULL", "s": "VARCHAR"}, typesOf(t, out))
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON does not name a Python with duckdb and pyarrow")
	}
	text, err := exec.Command(python, "-c", `
import sys, duckdb, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
assert [str(f.type) for f in table.schema] == ["null", "null", "string"], table.schema
assert table["x"].null_count == 3
assert duckdb.sql(f"select x = 'a', coalesce(y, s) from '{sys.argv[1]}'").fetchall() == [(None, "a"), (None, "b"), (None, "c")]
`, out).CombinedOutput()
	require.NoError(t, err, "%s", text)
}
