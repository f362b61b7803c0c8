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

func writeRows[T any](t *testing.T, path string, rows ...T) string {
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
	require.Equal(t, []gpu.Field{{Name: "id", Type: gpu.Of(gpu.Int64)}, {Name: "name", Type: gpu.Of(gpu.String), Nullable: true}, {Name: "rate", Type: gpu.Of(gpu.Float64)},
		{Name: "only", Type: gpu.Of(gpu.Bool), Nullable: true}, {Name: "new", Type: gpu.Of(gpu.Int16), Nullable: true}}, table.Schema().Fields)
	for _, rows := range []int{1, 2, 100} {
		got, _, err := scan(t, 0, paths, source.ScanOptions{StrideRows: rows})
		require.NoError(t, err)
		id := gpu.Of(gpu.Int64)
		require.Equal(t, []gpu.Scalar{gpu.IntScalar(id, 1), gpu.IntScalar(id, 2), gpu.IntScalar(id, 1<<40)}, got["id"])
		require.Equal(t, []gpu.Scalar{gpu.FloatScalar(gpu.Of(gpu.Float64), 0.5), gpu.FloatScalar(gpu.Of(gpu.Float64), 1.5), gpu.FloatScalar(gpu.Of(gpu.Float64), 2.25)}, got["rate"])
		require.Equal(t, []gpu.Scalar{gpu.BoolScalar(true), gpu.BoolScalar(false), gpu.Null(gpu.Of(gpu.Bool))}, got["only"])
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
	_, err := Open([]string{numbers, texts}, OpenOptions{})
	require.ErrorIs(t, err, source.ErrData)
	require.ErrorContains(t, err, texts+`: column "id" is VARCHAR, in `+numbers+` it is INTEGER, and these have no type in common; read the files as two sources`)
	_, err = Open([]string{numbers, lists}, OpenOptions{})
	require.ErrorContains(t, err, lists+`: column "id" is BIGINT[] and cannot be read (it is nested), in `+numbers+` it is INTEGER`)
}

func TestFilesAreCheckedAgainstAGivenSchema(t *testing.T) {
	paths := narrowAndWide(t)
	given := func(fields ...gpu.Field) OpenOptions { return OpenOptions{Schema: &gpu.Schema{Fields: fields}} }
	table, err := Open(paths, given(gpu.Field{Name: "new", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "id", Type: gpu.Of(gpu.Int64)}))
	require.NoError(t, err)
	require.Equal(t, []gpu.Field{{Name: "new", Type: gpu.Of(gpu.Int64), Nullable: true}, {Name: "id", Type: gpu.Of(gpu.Int64)}}, table.Schema().Fields)
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
	liar := rawFile(t, schemaElement(format.Int64, format.Required), countedRows+1, format.Uncompressed, v1Page(1, format.Plain, make([]byte, 8)))
	table, err := Open(append([]string{whole}, liar...), OpenOptions{})
	require.NoError(t, err)
	lease := hosttest.Budget(t, 0).Lease("scan")
	_, err = table.Scan(context.Background(), source.ScanOptions{Columns: []int{table.Schema().Index("ID")}, Lease: lease})
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
		{gpu.IntScalar(gpu.TimestampOf(gpu.Microsecond, false), math.MaxInt64/1000), gpu.TimestampOf(gpu.Nanosecond, false), true},
		{gpu.IntScalar(gpu.TimestampOf(gpu.Microsecond, false), math.MaxInt64/1000+1), gpu.TimestampOf(gpu.Nanosecond, false), false},
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
