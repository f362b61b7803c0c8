package text

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/sink/ordered"
)

// stride makes a stride of scalars.
func stride(schema *gpu.Schema, rows ...[]gpu.Scalar) *gpu.Stride {
	s := &gpu.Stride{Schema: schema, Rows: len(rows)}
	for i, f := range schema.Fields {
		var values []gpu.Scalar
		for _, r := range rows {
			values = append(values, r[i])
		}
		s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, values))
	}
	return s
}

// valueOf parses a text as a value, as NULL for a null.
func valueOf(t *testing.T, text string, typ gpu.Type) gpu.Scalar {
	if text == "NULL" {
		return gpu.Null(typ)
	}
	v, ok := host.ParseText(text, typ)
	require.True(t, ok, text)
	return v
}

func TestValuesAreWritten(t *testing.T) {
	for _, c := range []struct {
		typ             gpu.Type
		text, csv, json string
	}{
		{gpu.Of(gpu.Int64), "-9223372036854775808", "-9223372036854775808", "-9223372036854775808"},
		{gpu.Of(gpu.Int32), "NULL", "", "null"},
		{gpu.Of(gpu.Uint8), "255", "255", "255"},
		{gpu.Of(gpu.HugeInt), "-170141183460469231731687303715884105728", "-170141183460469231731687303715884105728",
			"-170141183460469231731687303715884105728"},
		{gpu.Of(gpu.Bool), "true", "true", "true"},
		{gpu.Of(gpu.Float64), "0.1", "0.1", "0.1"},
		{gpu.Of(gpu.Float64), "nan", "nan", `"nan"`},
		{gpu.DecimalOf(5, 2), "-0.05", "-0.05", "-0.05"},
		{gpu.DecimalOf(5, 2), "123.4", "123.40", "123.40"},
		{gpu.DecimalOf(18, 0), "7", "7", "7"},
		{gpu.DecimalOf(38, 3), "1.5", "1.500", "1.500"},
		{gpu.Of(gpu.Date), "2020-02-29", "2020-02-29", `"2020-02-29"`},
		{gpu.Of(gpu.Date), "0001-01-01", "0001-01-01", `"0001-01-01"`},
		{gpu.Of(gpu.Date), "9999-12-31", "9999-12-31", `"9999-12-31"`},
		{gpu.Of(gpu.Date), "infinity", "infinity", `"infinity"`},
		{gpu.Of(gpu.Date), "10000-01-01", "10000-01-01", `"10000-01-01"`},
		{gpu.TimestampOf(gpu.Microsecond, false), "2020-01-02 03:04:05.5", "2020-01-02 03:04:05.5",
			`"2020-01-02 03:04:05.5"`},
		{gpu.Of(gpu.String), "", `""`, `""`},
		{gpu.Of(gpu.String), "plain", "plain", `"plain"`},
		{gpu.Of(gpu.String), "a,b", `"a,b"`, `"a,b"`},
		{gpu.Of(gpu.String), "a\"b\n", "\"a\"\"b\n\"", `"a\"b\n"`},
		{gpu.Of(gpu.String), " a", `" a"`, `" a"`},
		{gpu.Of(gpu.String), "#a", `"#a"`, `"#a"`},
		{gpu.Of(gpu.String), "ü\x01\\", "ü\x01\\", `"ü\u0001\\"`},
		{gpu.Of(gpu.String), "a\xffb", "a\xffb", "\"a\ufffdb\""},
		{gpu.Of(gpu.Binary), `a\x00\xFF`, `a\x00\xFF`, `"a\\x00\\xFF"`},
	} {
		schema := gpu.NewSchema(gpu.Field{Name: "a b", Type: c.typ})
		for format, want := range map[Format]string{CSV: "a b\n" + c.csv + "\n", JSON: `{"a b":` + c.json + "}\n"} {
			e := newEncoder(schema, Options{Format: format})
			got := string(e.rows(e.header(nil), stride(schema, []gpu.Scalar{valueOf(t, c.text, c.typ)})))
			require.Equal(t, want, got)
		}
	}
	for days := int32(-719200); days < 2932900; days += 97 {
		c := gpu.ColumnOf(gpu.Of(gpu.Date), []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Date), int64(days))})
		require.Equal(t, gpu.FormatDate(int64(days)), string(appendDate(nil, days, c, 0)))
	}
}

func TestRowsKeepTheirOrderAndAppearAtTheEnd(t *testing.T) {
	schema := gpu.NewSchema(gpu.Field{Name: "a", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "b", Type: gpu.Of(gpu.String)})
	for _, name := range []string{"x.csv", "x.csv.gz", "x.csv.zst"} {
		path := filepath.Join(t.TempDir(), name)
		lease := host.HeapLease("test", 1<<20)
		opt := Options{Format: CSV, Null: "NA", Delimiter: "|", Options: ordered.Options{Lease: lease, Threads: 3}}
		w, err := Create(path, schema, opt)
		require.NoError(t, err)
		want := "a|b\n"
		for i := range 200 {
			text := []string{"NA", "x|y", strings.Repeat("z", i)}[i%3]
			require.NoError(t, w.Write(context.Background(), stride(schema,
				[]gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), int64(i)), gpu.StringScalar(text)},
				[]gpu.Scalar{gpu.Null(gpu.Of(gpu.Int64)), gpu.Null(gpu.Of(gpu.String))})))
			if i%3 < 2 {
				text = `"` + text + `"`
			}
			want += fmt.Sprintf("%d|%s\nNA|NA\n", i, text)
		}
		require.NoFileExists(t, path)
		require.NoError(t, w.Commit(context.Background()))
		require.NoError(t, w.Abort()) // does nothing
		require.EqualValues(t, 400, w.Stats().Rows)
		f, err := os.Open(path)
		require.NoError(t, err)
		var r io.Reader = f
		switch filepath.Ext(name) {
		case ".gz":
			r, err = gzip.NewReader(f)
		case ".zst":
			r, err = zstd.NewReader(f)
		}
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		require.NoError(t, f.Close())
		used, _ := lease.Used()
		require.Zero(t, used)

		_, err = Create(path, schema, opt)
		require.ErrorIs(t, err, os.ErrExist)
		opt.Overwrite = true
		w, err = Create(path, schema, opt)
		require.NoError(t, err)
		require.NoError(t, w.Write(context.Background(), stride(schema)))
		require.NoError(t, w.Abort())
		entries, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, entries, 1) // the earlier output, and no temporary
		require.Error(t, w.Write(context.Background(), stride(schema)))
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, opt := range []Options{{Delimiter: "ab"}, {Delimiter: `"`}, {Null: "a,b"}, {Null: "x\n"}} {
		require.Error(t, opt.Check())
	}
	require.ErrorContains(t, ordered.CheckTarget(t.TempDir()), "it is a folder")
	require.ErrorContains(t, ordered.CheckTarget("/dev/null"), "it is not a file and is never replaced")
	require.NoError(t, ordered.CheckTarget(ordered.Standard))
	require.Equal(t, []Format{CSV, CSV, JSON, JSON, ""}, []Format{FormatOf("x.CSV"), FormatOf("x.tsv.gz"),
		FormatOf("x.jsonl.zst"), FormatOf("x.json"), FormatOf("x.parquet")})
}
