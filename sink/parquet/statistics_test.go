package parquet

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	reader "github.com/gstream/gstream/source/parquet"
	"github.com/stretchr/testify/require"
)

// statisticsOf writes a column in row groups of two values and pages of one. It returns
// the least and the greatest value of each row group, or "none".
func statisticsOf(t *testing.T, opt Options, values ...gpu.Scalar) (out [][2]string, path string) {
	t.Helper()
	schema := gpu.NewSchema(gpu.Field{Name: "c", Type: values[0].Type, Nullable: true})
	tab := table{schema: schema, values: [][]gpu.Scalar{values}}
	tab.strides = []*gpu.Stride{{Schema: schema, Rows: len(values),
		Cols: []gpu.Column{gpu.ColumnOf(values[0].Type, values)}}}
	path = filepath.Join(t.TempDir(), "t.parquet")
	opt.RowGroupRows, opt.PageRows = 2, 1
	tab.write(t, path, opt)
	tab.requireRead(t, path, 100)
	info, err := reader.Inspect(t.Context(), path)
	require.NoError(t, err)
	for _, g := range info.RowGroups {
		bounds := [2]string{"none", "none"}
		for i, v := range []*string{g.Chunks[0].Min, g.Chunks[0].Max} {
			if v != nil {
				bounds[i] = *v
			}
		}
		out = append(out, bounds)
	}
	return out, path
}

func TestAnEmptyTextIsALowerBound(t *testing.T) {
	for _, dictionary := range []string{"auto", "off"} {
		for _, typ := range []gpu.Type{gpu.Of(gpu.String), gpu.Of(gpu.Binary)} {
			text := func(s string) gpu.Scalar { return gpu.Scalar{Type: typ, Valid: true, Str: s} }
			got, path := statisticsOf(t, Options{Dictionary: dictionary}, text(""), text("x"), text(""), text(""),
				gpu.Null(typ), gpu.Null(typ), gpu.Null(typ), text("y"))
			if typ.Kind == gpu.String {
				require.Equal(t, [][2]string{{"", "x"}, {"", ""}, {"none", "none"}, {"y", "y"}}, got)
			}
			in := openByParquetGo(t, path)
			require.Len(t, in.ColumnIndexes(), 4)
			for _, g := range in.Metadata().RowGroups[:2] {
				require.NotNil(t, g.Columns[0].MetaData.Statistics.MinValue)
			}
		}
	}
}

func TestNoRangeIsWrittenWhereThereIsNaN(t *testing.T) {
	for _, dictionary := range []string{"auto", "off"} {
		for _, typ := range []gpu.Type{gpu.Of(gpu.Float32), gpu.Of(gpu.Float64)} {
			float := func(v float64) gpu.Scalar { return gpu.Scalar{Type: typ, Valid: true, Float: v} }
			got, _ := statisticsOf(t, Options{Dictionary: dictionary},
				float(1), float(2), float(math.NaN()), float(3), float(4), float(math.NaN()), float(math.NaN()),
				float(math.NaN()), gpu.Null(typ), float(5))
			none := [2]string{"none", "none"}
			require.Equal(t, [][2]string{{"1.0", "2.0"}, none, none, none, {"5.0", "5.0"}}, got)
		}
	}
}

func TestColumnNamesThatAreNotUTF8AreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.parquet")
	lease := hosttest.Budget(t, 0).Lease("sink")
	_, err := Create(path, gpu.NewSchema(gpu.Field{Name: "caf\xe9", Type: gpu.Of(gpu.Int64)}), Options{Lease: lease})
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, `"caf\xe9"`)
	require.ErrorContains(t, err, "UTF-8")
	require.NoFileExists(t, path)
	w, err := Create(path, gpu.NewSchema(gpu.Field{Name: "café", Type: gpu.Of(gpu.Int64)}), Options{Lease: lease})
	require.NoError(t, err)
	require.NoError(t, w.Commit(context.Background()))
	require.NoError(t, lease.Close())
}
