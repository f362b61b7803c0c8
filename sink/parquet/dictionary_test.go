package parquet

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"
)

// largeDictionary is like the result of a join: codes into the whole build side. Most of
// its values are not used, and many are equal. The strides share one dictionary. Every
// eleventh row is null.
func largeDictionary(t gpu.Type, strides, rows, entries, distinct int) table {
	values := make([]gpu.Scalar, entries)
	for i := range values {
		values[i] = gpu.StringScalar(fmt.Sprintf("value %06d", i%distinct))
		if t.Kind == gpu.Int64 {
			values[i] = gpu.IntScalar(t, int64(i%distinct)*1e9)
		}
	}
	dict := &gpu.Dictionary{Values: gpu.ColumnOf(t, values)}
	tab := table{schema: gpu.NewSchema(gpu.Field{Name: "v", Type: t, Nullable: true}), values: make([][]gpu.Scalar, 1)}
	for n := range strides {
		codes := make([]gpu.Scalar, rows)
		for i := range codes {
			if i%11 == 10 {
				codes[i] = gpu.Null(gpu.Of(gpu.Int32))
				tab.values[0] = append(tab.values[0], gpu.Null(t))
				continue
			}
			k := (n*rows + i) * 7919 % entries
			codes[i] = gpu.IntScalar(gpu.Of(gpu.Int32), int64(k))
			tab.values[0] = append(tab.values[0], values[k])
		}
		c := gpu.ColumnOf(gpu.Of(gpu.Int32), codes)
		c.Type, c.Dict = t, dict
		tab.strides = append(tab.strides, &gpu.Stride{Schema: tab.schema, Rows: rows, Cols: []gpu.Column{c}})
	}
	return tab
}

func TestCodesIntoALargeDictionaryAreWrittenWithTheValuesThatAreUsed(t *testing.T) {
	for _, typ := range []gpu.Type{gpu.Of(gpu.String), gpu.Of(gpu.Int64)} {
		for _, c := range []struct {
			entries, distinct, written int // written: values of the dictionary page, 0 without one
		}{
			{50, 50, 50},
			{15000, 300, 300},
			{150000, 100, 100},
			{15000, 15000, 0},
			{150000, 150000, 0},
		} {
			t.Run(fmt.Sprintf("%v/%d values, %d distinct", typ, c.entries, c.distinct), func(t *testing.T) {
				tab := largeDictionary(typ, 4, 3000, c.entries, c.distinct)
				path := filepath.Join(t.TempDir(), "t.parquet")
				tab.write(t, path, Options{RowGroupRows: 10000})
				tab.requireRead(t, path, 2500)
				in := openByParquetGo(t, path)
				meta := in.Metadata().RowGroups[0].Columns[0].MetaData
				require.Equal(t, c.written > 0, meta.Encoding[0] == format.RLEDictionary, "%v", meta.Encoding)
				if c.written > 0 {
					pages := in.RowGroups()[0].ColumnChunks()[0].Pages()
					page, err := pages.ReadPage()
					require.NoError(t, err)
					require.Equal(t, c.written, page.Dictionary().Len())
					require.NoError(t, pages.Close())
				}
			})
		}
	}
}
