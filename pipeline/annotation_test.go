package pipeline

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	sourceparquet "github.com/gstream/gstream/source/parquet"
)

// annotated are columns of every annotation, and of every unit and zone of time.
var annotated = []gpu.Field{
	{Name: "u", Type: gpu.Of(gpu.Binary), Annotation: gpu.UUID, Nullable: true},
	{Name: "b", Type: gpu.Of(gpu.Binary), Annotation: gpu.BSON},
	{Name: "j", Type: gpu.Of(gpu.String), Annotation: gpu.JSON},
	{Name: "e", Type: gpu.Of(gpu.String), Annotation: gpu.Enum},
	{Name: "tz", Type: gpu.TimeOf(gpu.Microsecond), Annotation: gpu.UTC},
	{Name: "tm", Type: gpu.TimeOf(gpu.Millisecond), Annotation: gpu.UTC},
	{Name: "tn", Type: gpu.TimeOf(gpu.Nanosecond)},
	{Name: "ms", Type: gpu.TimestampOf(gpu.Millisecond, false)},
	{Name: "us", Type: gpu.TimestampOf(gpu.Microsecond, true)},
	{Name: "ns", Type: gpu.TimestampOf(gpu.Nanosecond, true)},
	{Name: "g", Type: gpu.Of(gpu.Binary), Annotation: gpu.Geometry("EPSG:2056"), Nullable: true},
	{Name: "gd", Type: gpu.Of(gpu.Binary), Annotation: gpu.Geometry("")},
	{Name: "gg", Type: gpu.Of(gpu.Binary), Annotation: gpu.Geography(1, "OGC:CRS83")},
	{Name: "n", Type: gpu.Of(gpu.Int64)},
}

// annotatedValue returns row i of a column. The bytes of UUIDs have the sign bit set.
func annotatedValue(f gpu.Field, i int) gpu.Scalar {
	switch f.Annotation {
	case gpu.UUID:
		if i == 3 {
			return gpu.Null(f.Type)
		}
		return gpu.Scalar{Type: f.Type, Valid: true, Str: strings.Repeat(string([]byte{byte(i * 37)}), 16)}
	case gpu.BSON:
		return gpu.Scalar{Type: f.Type, Valid: true, Str: "\x05\x00\x00\x00\x00"}
	case gpu.JSON:
		return gpu.StringScalar(fmt.Sprintf(`{"a": %d}`, i))
	case gpu.Enum:
		return gpu.StringScalar([]string{"red", "green"}[i%2])
	}
	if f.Type.Kind == gpu.Binary { // a point in WKB
		return gpu.Scalar{Type: f.Type, Valid: true,
			Str: "\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00" + string([]byte{0xf0 + byte(i%8), 0x3f}) +
				"\x00\x00\x00\x00\x00\x00\x00\x40"}
	}
	return gpu.IntScalar(f.Type, int64(i)*1000)
}

func writeAnnotated(t *testing.T, path string, rows int) {
	schema := gpu.NewSchema(annotated...)
	s := &gpu.Stride{Schema: schema, Rows: rows}
	for _, f := range annotated {
		values := make([]gpu.Scalar, rows)
		for i := range values {
			values[i] = annotatedValue(f, i)
		}
		s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, values))
	}
	d, err := OpenDevice(RunOptions{Use: Host})
	require.NoError(t, err)
	lease := d.HostBudget().Lease("test")
	w, err := sinkparquet.Create(path, schema, sinkparquet.Options{Lease: lease, RowGroupRows: 3})
	require.NoError(t, err)
	require.NoError(t, w.Write(context.Background(), s))
	require.NoError(t, w.Commit(context.Background()))
	require.NoError(t, lease.Close())
	require.NoError(t, d.Close())
}

// typesOf returns the columns of a file with their types.
func typesOf(t *testing.T, path string) map[string]string {
	table, err := sourceparquet.Open([]string{path}, sourceparquet.OpenOptions{})
	require.NoError(t, err)
	types := map[string]string{}
	for _, f := range table.Schema().Fields {
		types[f.Name] = f.TypeName()
	}
	return types
}

func TestAnnotationsGoFromFileToFile(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.parquet")
	writeAnnotated(t, in, 7)
	all := map[string]string{}
	for _, f := range annotated {
		all[f.Name] = f.TypeName()
	}
	require.Equal(t, all, typesOf(t, in))
	some := func(names ...string) map[string]string {
		out := map[string]string{}
		for _, n := range names {
			old, name, _ := strings.Cut(n, " as ")
			if name == "" {
				name = old
			}
			if typ, ok := all[old]; ok {
				old = typ
			}
			out[name] = old
		}
		return out
	}
	read := func() *Builder { return New("annotations").Read("t", in).Read("o", in) }
	var files []string
	for name, c := range map[string]struct {
		job  *Builder
		want map[string]string
	}{
		"copy":   {New("copy").Read("t", in), all},
		"filter": {read().Filter("n >= 2000 or u is null").Limit(5), all},
		"select": {read().Select("u as id", "j", "tz", "ms", "e").Filter("id is not null"),
			some("u as id", "j", "tz", "ms", "e")},
		"sort": {read().Sort("u desc", "n % 2"), all},
		"join": {read().Join("o", "t.u = o.u").Select("o.u", "t.j", "o.tz", "t.e", "o.b"),
			some("u", "j", "tz", "e", "b")},
		"left": {read().JoinWith(Join{With: "o", Using: []string{"u", "n"}, Kind: "left"}).Select("u", "o.j",
			"t.tm"), some("u", "j", "tm")},
		"full": {read().JoinWith(Join{With: "o", Using: []string{"u", "n"}, Kind: "full"}).Select("u", "o.j",
			"t.tm", "t.b"), some("u", "j", "tm", "b")},
		"group": {read().Group([]string{"u", "e as k"}, "max(j) as j", "min(tz) as tz", "count(u) as n",
			"max(us) as us"), some("u", "e as k", "j", "tz", "n", "us")},
		"min": {read().Group(nil, "min(u) as lo", "max(u) as hi"), some("u as lo", "u as hi")},
		"filtered": {read().Group([]string{"e"}, "min(u) filter (where n > 0) as lo", "max(j) as j",
			"count(distinct n) as n", "sum(distinct n) as s", "count(distinct tz) as c"),
			map[string]string{"e": all["e"], "lo": all["u"], "j": all["j"], "n": "BIGINT", "s": "DECIMAL(38,0)",
				"c": "BIGINT"}},
		"distinct": {read().Distinct("u as id", "j", "tz"), some("u as id", "j", "tz")},
		"union":    {read().Union("o"), all},
		"expression": {read().Select("j || '' as j", "case when n > 0 then u end as u", "tz"),
			map[string]string{"j": "VARCHAR", "u": "BLOB", "tz": all["tz"]}},
		"mixed": {read().Select("u", "j").As("x").From("t").Select("b", "e").Union("x"),
			map[string]string{"b": "BLOB", "e": "VARCHAR"}},
	} {
		out := filepath.Join(dir, name+".parquet")
		_, err := c.job.Write(out, sinkparquet.Options{}).Run(context.Background(), RunOptions{Use: Host})
		require.NoError(t, err, name)
		require.Equal(t, c.want, typesOf(t, out), name)
		files = append(files, out)
	}
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON does not name a Python with duckdb and pyarrow")
	}
	out, err := exec.Command(python, append([]string{"testdata/annotations.py", in}, files...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestCoordinateSystemsGoFromFileToFile(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.parquet"), filepath.Join(dir, "out.parquet")
	writeAnnotated(t, in, 7)
	_, err := New("shapes").Read("t", in).Filter("n > 2000").Select("g as shape", "gd", "gg", "g || gg as both",
		"n").Sort("n desc").Write(out, sinkparquet.Options{}).Run(context.Background(), RunOptions{Use: Host})
	require.NoError(t, err)
	table, err := sourceparquet.Open([]string{out}, sourceparquet.OpenOptions{})
	require.NoError(t, err)
	var got []gpu.Annotation
	for _, f := range table.Schema().Fields[:4] {
		got = append(got, f.Annotation)
	}
	require.Equal(t, []gpu.Annotation{gpu.Geometry("EPSG:2056"), gpu.Geometry(""), gpu.Geography(1, "OGC:CRS83"),
		gpu.NoAnnotation}, got)
	info, err := sourceparquet.Inspect(t.Context(), out)
	require.NoError(t, err)
	for i, c := range info.RowGroups[0].Chunks {
		require.Equal(t, i >= 3, c.Min != nil && c.PageIndex, "%s: shapes have no order", c.Column)
	}
}

func TestAnnotationThatNotAllFilesHaveIsDropped(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.parquet")
	writeAnnotated(t, in, 4)
	other := filepath.Join(dir, "other.parquet")
	columns := make([]string, len(annotated))
	for i, f := range annotated {
		columns[i] = f.Name
		switch f.Annotation {
		case gpu.UUID:
			columns[i] = "case when n >= 0 then u end as u"
		case gpu.JSON:
			columns[i] = "j || '' as j"
		}
	}
	_, err := New("other").Read("t", in).Select(columns...).Write(other,
		sinkparquet.Options{}).Run(context.Background(), RunOptions{Use: Host})
	require.NoError(t, err)
	both := filepath.Join(dir, "both.parquet")
	for _, order := range [][]string{{in, other}, {other, in}} {
		_, err = New("both").Read("t", order...).Write(both,
			sinkparquet.Options{Overwrite: true}).Run(context.Background(), RunOptions{Use: Host})
		require.NoError(t, err)
		types := typesOf(t, both)
		require.Equal(t, []string{"BLOB", "VARCHAR", "ENUM"}, []string{types["u"], types["j"], types["e"]})
	}
}

func TestUUIDsAreFilteredByTheirText(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.parquet")
	writeAnnotated(t, in, 7) // u: 00…, 2525…, 4a4a…, null, 9494…, b9b9…, dede…
	for condition, want := range map[string]string{
		"u = '25252525-2525-2525-2525-252525252525'": `[{"n": 1000}]`,
		"u >= '{949494949494949494949494949494A0}'":  `[{"n": 5000}, {"n": 6000}]`,
		"u in ('00000000-0000-0000-0000-000000000000', 'dededede-dede-dede-dede-dededededede', " +
			"'00000000-0000-0000-0000-000000000001')": `[{"n": 0}, {"n": 6000}]`,
		"n > 4000 or u = '4a4a4a4a-4a4a-4a4a-4a4a-4a4a4a4a4a4a'": `[{"n": 2000}, {"n": 5000}, {"n": 6000}]`,
	} {
		var c Collector
		report, err := New("uuid").Read("t",
			in).Filter(condition).Select("n").Sort("n").WriteTo(&c).Run(context.Background(), RunOptions{Use: Host})
		require.NoError(t, err)
		text, err := c.Records()[0].MarshalJSON()
		require.NoError(t, err)
		require.JSONEq(t, want, string(text), condition)
		if strings.HasPrefix(condition, "u = ") {
			require.EqualValues(t, 2, report.Stages[0].Scan.Skipped, "row groups whose bounds rule it out")
		}
	}
}
