package parquet

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
)

func writeRows[T any](t testing.TB, path string, rows ...T) string {
	t.Helper()
	require.NoError(t, parquet.WriteFile(path, rows))
	return path
}

type narrowRow struct {
	ID   int32   `parquet:"id"`
	Name string  `parquet:"name,optional"`
	Rate float32 `parquet:"rate"`
	Only bool    `parquet:"only"`
}

type wideRow struct {
	Rate float64 `parquet:"rate"`
	ID   int64   `parquet:"ID"`
	Name string  `parquet:"name"`
	New  int16   `parquet:"new,optional"`
}

func narrowAndWide(t *testing.T) []string {
	dir := t.TempDir()
	return []string{
		writeRows(t, filepath.Join(dir, "1.parquet"), narrowRow{1, "a", 0.5, true}, narrowRow{2, "", 1.5, false}),
		writeRows(t, filepath.Join(dir, "2.parquet"), wideRow{2.25, 1 << 40, "c", 7}),
	}
}

func TestColumnsOfSeveralFilesAreUnified(t *testing.T) {
	paths := narrowAndWide(t)
	table, err := Open(paths, OpenOptions{})
	require.NoError(t, err)
	require.Equal(t, []gpu.Field{{Name: "id", Type: gpu.Of(gpu.Int64)},
		{Name: "name", Type: gpu.Of(gpu.String), Nullable: true}, {Name: "rate", Type: gpu.Of(gpu.Float64)},
		{Name: "only", Type: gpu.Of(gpu.Bool), Nullable: true}, {Name: "new", Type: gpu.Of(gpu.Int16), Nullable: true}},
		table.Schema().Fields)
	for _, rows := range []int{1, 2, 100} {
		got, _, err := scan(t, 0, paths, source.ScanOptions{StrideRows: rows})
		require.NoError(t, err)
		id := gpu.Of(gpu.Int64)
		require.Equal(t, []gpu.Scalar{gpu.IntScalar(id, 1), gpu.IntScalar(id, 2), gpu.IntScalar(id, 1<<40)}, got["id"])
		require.Equal(t, []gpu.Scalar{gpu.FloatScalar(gpu.Of(gpu.Float64), 0.5),
			gpu.FloatScalar(gpu.Of(gpu.Float64), 1.5), gpu.FloatScalar(gpu.Of(gpu.Float64), 2.25)}, got["rate"])
		require.Equal(t, []gpu.Scalar{gpu.BoolScalar(true), gpu.BoolScalar(false), gpu.Null(gpu.Of(gpu.Bool))},
			got["only"])
		require.False(t, got["new"][1].Valid)
		require.EqualValues(t, 7, got["new"][2].Int.Int64())
	}
	stats := table.Stats(0)
	require.Equal(t, gpu.IntScalar(gpu.Of(gpu.Int64), 1), stats.Min)
	require.Equal(t, gpu.IntScalar(gpu.Of(gpu.Int64), 1<<40), stats.Max)
	require.EqualValues(t, 2, table.Stats(4).Nulls, "a column that a file lacks is null in its rows")
}

func TestPredicatesSkipFilesByWhatTheirColumnsBecome(t *testing.T) {
	paths := narrowAndWide(t)
	for _, c := range []struct {
		column  string
		op      source.Op
		value   gpu.Scalar
		skipped int64
	}{
		{"id", source.Gt, gpu.IntScalar(gpu.Of(gpu.Int64), 5), 1},
		{"id", source.Lt, gpu.IntScalar(gpu.Of(gpu.Int64), 5), 1},
		{"rate", source.Lt, gpu.FloatScalar(gpu.Of(gpu.Float64), 2), 1},
		{"rate", source.Gt, gpu.FloatScalar(gpu.Of(gpu.Float64), 3), 0}, // a NaN is above all numbers
		{"new", source.Eq, gpu.IntScalar(gpu.Of(gpu.Int16), 7), 1},
		{"only", source.IsNotNull, gpu.Scalar{}, 1},
		{"only", source.IsNull, gpu.Scalar{}, 1},
	} {
		table, err := Open(paths, OpenOptions{})
		require.NoError(t, err)
		p := source.Predicate{Column: table.Schema().Index(c.column), Op: c.op}
		if c.value.Type.Kind != gpu.Invalid {
			p.Values = []gpu.Scalar{c.value}
		}
		_, progress, err := scan(t, 0, paths, source.ScanOptions{Prune: []source.Predicate{p}})
		require.NoError(t, err)
		require.Equal(t, c.skipped, progress.Skipped, "%s %v", c.column, c.op)
	}
}

func TestColumnsThatCannotBeUnifiedNameFilesAndTypes(t *testing.T) {
	dir := t.TempDir()
	type text struct {
		ID string `parquet:"id"`
	}
	type list struct {
		ID []int64 `parquet:"id"`
	}
	numbers := writeRows(t, filepath.Join(dir, "numbers.parquet"), narrowRow{ID: 1})
	texts := writeRows(t, filepath.Join(dir, "texts.parquet"), text{"x"})
	lists := writeRows(t, filepath.Join(dir, "lists.parquet"), list{[]int64{1}})
	for _, c := range []struct {
		paths          []string
		columns        []string
		typ, reason    string
		given, refused string // with a schema
	}{
		{[]string{numbers, texts}, []string{"name", "rate", "only"}, "INTEGER or VARCHAR",
			"it is INTEGER in " + numbers + " and VARCHAR in " + texts +
				", and these have no type in common; list the columns that you need under schema:",
			"name", texts + `: column "id" is VARCHAR, and the schema of the source says INTEGER`},
		{[]string{texts, numbers, texts}, []string{"name", "rate", "only"}, "VARCHAR or INTEGER",
			"it is VARCHAR in " + texts + " and INTEGER in " + numbers, "only", texts + `: column "id" is VARCHAR`},
		{[]string{numbers, lists}, []string{"name", "rate", "only"}, "INTEGER or BIGINT[]",
			"it is INTEGER in " + numbers + " and BIGINT[] in " + lists,
			"rate", lists + `: column "id" is BIGINT[], and the schema of the source says INTEGER`},
		{[]string{lists, numbers}, []string{"name", "rate", "only"}, "BIGINT[] or INTEGER",
			"it is BIGINT[] in " + lists + " and INTEGER in " + numbers,
			"rate", lists + `: column "id" is BIGINT[], and the schema of the source says INTEGER`},
	} {
		table, err := Open(c.paths, OpenOptions{})
		require.NoError(t, err)
		require.Equal(t, c.columns, table.Schema().Names())
		require.Len(t, table.Unreadable(), 1)
		u := table.Unreadable()[0]
		require.Equal(t, []string{"id", c.typ}, []string{u.Name, u.Type})
		require.Contains(t, u.Reason, c.reason)
		got, _, err := scan(t, 0, c.paths, source.ScanOptions{}, "rate")
		require.NoError(t, err)
		require.Len(t, got["rate"], len(c.paths))
		id := gpu.Field{Name: "id", Type: gpu.Of(gpu.Int32)}
		wanted := gpu.Field{Name: c.given, Type: table.Schema().Fields[table.Schema().Index(c.given)].Type}
		_, err = Open(c.paths, OpenOptions{Schema: gpu.NewSchema(wanted)})
		require.NoError(t, err)
		_, err = Open(c.paths, OpenOptions{Schema: gpu.NewSchema(wanted, id)})
		require.ErrorIs(t, err, source.ErrData)
		require.ErrorContains(t, err, c.refused)
		_, err = Open(c.paths, OpenOptions{Strict: true})
		require.ErrorIs(t, err, source.ErrData)
	}
}

func TestTextBesideBytesIsBytes(t *testing.T) {
	dir := t.TempDir()
	type text struct {
		C string `parquet:"c"`
	}
	type blob struct {
		C []byte `parquet:"c"`
	}
	type uuid struct {
		C [16]byte `parquet:"c,uuid"`
	}
	texts := writeRows(t, filepath.Join(dir, "texts.parquet"), text{`é\x`}, text{"b"}, text{"b"})
	blobs := writeRows(t, filepath.Join(dir, "blobs.parquet"), blob{[]byte("\xff")}, blob{[]byte("b")})
	for _, paths := range [][]string{{texts, blobs}, {blobs, texts}} {
		got, _, err := scan(t, 0, paths, source.ScanOptions{StrideRows: 100})
		require.NoError(t, err)
		var values []string
		for _, v := range got["c"] {
			require.Equal(t, gpu.Of(gpu.Binary), v.Type)
			values = append(values, v.Str)
		}
		require.ElementsMatch(t, []string{`é\x`, "b", "b", "\xff", "b"}, values)
		above := source.Predicate{Op: source.Gt,
			Values: []gpu.Scalar{{Type: gpu.Of(gpu.Binary), Valid: true, Str: "\xf0"}}}
		got, p, err := scan(t, 0, paths, source.ScanOptions{Prune: []source.Predicate{above}})
		require.NoError(t, err)
		require.EqualValues(t, 1, p.Skipped, "by the bounds of the texts")
		require.Len(t, got["c"], 2)
	}
	table, err := Open([]string{texts, writeRows(t, filepath.Join(dir, "uuids.parquet"), uuid{})}, OpenOptions{})
	require.NoError(t, err)
	require.Equal(t, "VARCHAR or UUID", table.Unreadable()[0].Type)
}

func TestBooleansBesideNumbersAreNumbers(t *testing.T) {
	dir := t.TempDir()
	type truth struct {
		C bool `parquet:"c"`
	}
	type double struct {
		C float64 `parquet:"c"`
	}
	type float struct {
		C float32 `parquet:"c"`
	}
	type decimal struct {
		C int64 `parquet:"c,decimal(2:9)"`
	}
	type fraction struct {
		C int64 `parquet:"c,decimal(2:2)"`
	}
	truths := writeRows(t, filepath.Join(dir, "truths.parquet"), truth{true}, truth{false})
	for path, want := range map[string]gpu.Type{
		writeRows(t, filepath.Join(dir, "double.parquet"), double{2.5}):  gpu.Of(gpu.Float64),
		writeRows(t, filepath.Join(dir, "float.parquet"), float{2.5}):    gpu.Of(gpu.Float32),
		writeRows(t, filepath.Join(dir, "decimal.parquet"), decimal{50}): gpu.DecimalOf(9, 2),
		writeRows(t, filepath.Join(dir, "part.parquet"), fraction{50}):   gpu.DecimalOf(3, 2),
	} {
		for _, paths := range [][]string{{truths, path}, {path, truths}} {
			got, _, err := scan(t, 0, paths, source.ScanOptions{StrideRows: 100})
			require.NoError(t, err)
			var values []string
			for _, v := range got["c"] {
				require.True(t, want.SameSQL(v.Type), "%v", v.Type)
				values = append(values, v.String())
			}
			zero, one, other := "0.00", "1.00", "0.50"
			if want.IsFloat() {
				zero, one, other = "0.0", "1.0", "2.5"
			}
			require.ElementsMatch(t, []string{zero, one, other}, values)
		}
	}
}

func TestFilesAreCheckedAgainstAGivenSchema(t *testing.T) {
	paths := narrowAndWide(t)
	given := func(fields ...gpu.Field) OpenOptions { return OpenOptions{Schema: &gpu.Schema{Fields: fields}} }
	table, err := Open(paths, given(gpu.Field{Name: "new", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "id", Type: gpu.Of(gpu.Int64)}))
	require.NoError(t, err)
	require.Equal(t, []gpu.Field{{Name: "new", Type: gpu.Of(gpu.Int64), Nullable: true},
		{Name: "id", Type: gpu.Of(gpu.Int64)}}, table.Schema().Fields)
	_, err = Open(paths, given(gpu.Field{Name: "id", Type: gpu.Of(gpu.Int32)}))
	require.ErrorContains(t, err, `2.parquet: column "ID" is BIGINT, and the schema of the source says INTEGER`)
	_, err = Open(paths, given(gpu.Field{Name: "ids", Type: gpu.Of(gpu.Int64)}))
	require.ErrorContains(t, err, `no file has a column "ids"`)
	require.ErrorContains(t, err, `1.parquet has id, name, rate, only`)
}

// TestRowsOfAFileWithoutTheColumnsAreCounted: a damaged file cannot make up rows of nulls.
func TestRowsOfAFileWithoutTheColumnsAreCounted(t *testing.T) {
	dir := t.TempDir()
	type row struct {
		C  int64 `parquet:"c"`
		ID int64
	}
	whole := writeRows(t, filepath.Join(dir, "whole.parquet"), row{ID: 1})
	liar := rawFile(t, schemaElement(format.Int64, format.Required), countedRows+1, format.Uncompressed,
		v1Page(1, format.Plain, make([]byte, 8)))
	table, err := Open(append([]string{whole}, liar...), OpenOptions{})
	require.NoError(t, err)
	lease := hosttest.Budget(t, 0).Lease("scan")
	_, err = table.Scan(context.Background(), source.ScanOptions{Columns: []int{table.Schema().Index("ID")},
		Lease: lease})
	require.ErrorIs(t, err, source.ErrData)
	require.NoError(t, lease.Close())
}

func TestWidenedValuesThatDoNotFitAreErrors(t *testing.T) {
	wide := gpu.DecimalOf(38, 10)
	for _, c := range []struct {
		from gpu.Scalar
		to   gpu.Type
		ok   bool
	}{
		{gpu.Scalar{Type: gpu.DecimalOf(38, 0), Valid: true, Int: gpu.Pow10(27)}, wide, true},
		{gpu.Scalar{Type: gpu.DecimalOf(38, 0), Valid: true, Int: gpu.Pow10(28)}, wide, false},
		{gpu.IntScalar(gpu.TimestampOf(gpu.Microsecond, false), math.MaxInt64/1000),
			gpu.TimestampOf(gpu.Nanosecond, false), true},
		{gpu.IntScalar(gpu.TimestampOf(gpu.Microsecond, false), math.MaxInt64/1000+1),
			gpu.TimestampOf(gpu.Nanosecond, false), false},
		{gpu.IntScalar(gpu.Of(gpu.Date), math.MaxInt32), gpu.TimestampOf(gpu.Nanosecond, false), true}, // infinity
	} {
		out := widenScalar(c.from, c.to)
		require.Equal(t, c.ok, out.Valid, "%v", c.from)
		w := c.from.Type.Width()
		src, dst := make([]byte, 16), make([]byte, 16)
		typed[gpu.Int128](src, 1)[0] = c.from.Int
		err := widen(c.from.Type, c.to)(dst, src[:w], 1)
		require.Equal(t, c.ok, err == nil, "%v: %v", c.from, err)
		if c.ok {
			require.Equal(t, out.Int, wholeAt(dst, c.to, 0))
		} else {
			require.ErrorContains(t, err, "does not fit "+c.to.String())
		}
	}
}
