package parquet

import (
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
)

// nullFile writes a column c of Parquet's NULL type with two rows.
func nullFile(t *testing.T, physical format.Type, mark func(e *format.SchemaElement)) string {
	e := schemaElement(physical, format.Optional)
	mark(&e)
	return rawFile(t, e, 2, format.Uncompressed, v1Page(2, format.Plain, []byte{2, 0, 0, 0, 2 << 1, 0}))[0]
}

func TestAColumnOfNothingButNullsTakesTheTypeOfOtherFiles(t *testing.T) {
	type text struct {
		C string `parquet:"C"`
	}
	type truth struct {
		C bool `parquet:"c"`
	}
	type day struct {
		C int32 `parquet:"c,date"`
	}
	type fixed struct {
		C [16]byte `parquet:"c,uuid"`
	}
	dir := t.TempDir()
	for path, want := range map[string]gpu.Field{
		writeRows(t, filepath.Join(dir, "text"), text{"x"}):    {Type: gpu.Of(gpu.String)},
		writeRows(t, filepath.Join(dir, "truth"), truth{true}): {Type: gpu.Of(gpu.Bool)},
		writeRows(t, filepath.Join(dir, "day"), day{7}):        {Type: gpu.Of(gpu.Date)},
		writeRows(t, filepath.Join(dir, "uuid"), fixed{}):      {Type: gpu.Of(gpu.Binary), Annotation: gpu.UUID},
	} {
		for _, physical := range []format.Type{format.Int32, format.ByteArray, format.Boolean} {
			for _, mark := range []func(e *format.SchemaElement){
				func(e *format.SchemaElement) { e.LogicalType.Value = new(format.NullType) },
				func(e *format.SchemaElement) { e.ConvertedType = thrift.New(convertedNull) },
			} {
				null := nullFile(t, physical, mark)
				table, err := Open([]string{null}, OpenOptions{})
				require.NoError(t, err)
				require.Equal(t, "NULL", table.Schema().Fields[0].TypeName())
				for _, order := range [][]string{{null, path}, {path, null}, {null, path, null}} {
					table, err := Open(order, OpenOptions{})
					require.NoError(t, err)
					f := table.Schema().Fields[0]
					want.Name, want.Nullable = f.Name, true
					require.Equal(t, want, f)
					got, _, err := scan(t, 0, order, source.ScanOptions{StrideRows: 2})
					require.NoError(t, err)
					require.Len(t, got[f.Name], 2*len(order)-1)
					for i, v := range got[f.Name] {
						require.Equal(t, order[0] == path && i == 0 || order[0] == null && i == 2, v.Valid)
						require.Equal(t, want.Type, v.Type)
					}
					_, progress, err := scan(t, 0, order,
						source.ScanOptions{Prune: []source.Predicate{{Column: 0, Op: source.IsNotNull}}})
					require.NoError(t, err)
					require.EqualValues(t, 2*len(order)-2, progress.RowsSkipped)
				}
				given := gpu.NewSchema(gpu.Field{Name: "c", Type: gpu.TimeOf(gpu.Microsecond)})
				table, err = Open([]string{null, null}, OpenOptions{Schema: given})
				require.NoError(t, err)
				require.Equal(t, gpu.Field{Name: "c", Type: gpu.TimeOf(gpu.Microsecond), Nullable: true},
					table.Schema().Fields[0])
				if want.Type.Kind != gpu.String { // whose name differs
					_, err = Open([]string{path, null}, OpenOptions{Strict: true})
					require.ErrorContains(t, err, `column "c" is NULL`)
				}
			}
		}
	}
}

func TestRowsOfAFileOfNothingButNullsAreCounted(t *testing.T) {
	e := schemaElement(format.Int32, format.Optional)
	e.LogicalType.Value = new(format.NullType)
	liar := rawFile(t, e, countedRows+1, format.Uncompressed, v1Page(2, format.Plain, []byte{2, 0, 0, 0, 2 << 1, 0}))
	table, err := Open(liar, OpenOptions{})
	require.NoError(t, err)
	lease := hosttest.Budget(t, 0).Lease("scan")
	_, err = readAll(table, source.ScanOptions{Columns: []int{0}, Lease: lease})
	require.ErrorIs(t, err, source.ErrData)
	require.NoError(t, lease.Close())
}
