package parquet

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
)

// writeGroups writes a file of row groups of one row, and calls a function before it ends.
func writeGroups(t *testing.T, columns, groups int, opt Options, before func()) (path string) {
	schema := &gpu.Schema{}
	for i := range columns {
		schema.Fields = append(schema.Fields, gpu.Field{Name: fmt.Sprintf("a%d", i), Type: gpu.Of(gpu.Int64),
			Nullable: true})
	}
	opt.Lease, opt.RowGroupRows, opt.Threads = hosttest.Budget(t, 0).Lease("sink"), 1, 1
	path = filepath.Join(t.TempDir(), "out.parquet")
	w, err := Create(path, schema, opt)
	require.NoError(t, err)
	for k := range groups {
		s := &gpu.Stride{Schema: schema, Rows: 1}
		for _, f := range schema.Fields {
			s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, []gpu.Scalar{gpu.IntScalar(f.Type, int64(k))}))
		}
		require.NoError(t, w.Write(t.Context(), s))
	}
	before()
	require.NoError(t, w.Commit(t.Context()))
	require.NoError(t, opt.Lease.Close())
	return path
}

func TestAFooterIsEncodedAsAWhole(t *testing.T) {
	for _, groups := range []int{0, 1, 14, 15, 200} {
		for _, metadata := range []map[string]string{nil, {"a": "1", "b": ""}} {
			b, err := os.ReadFile(writeGroups(t, 3, groups, Options{Metadata: metadata}, func() {}))
			require.NoError(t, err)
			size := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
			footer := b[len(b)-8-size : len(b)-8]
			var meta format.FileMetaData
			require.NoError(t, thrift.Unmarshal(new(thrift.CompactProtocol), footer, &meta))
			require.Len(t, meta.RowGroups, groups)
			require.Len(t, meta.KeyValueMetadata, len(metadata))
			require.Len(t, meta.ColumnOrders, 3)
			again, err := thrift.Marshal(new(thrift.CompactProtocol), &meta)
			require.NoError(t, err)
			require.Equal(t, again, footer)
			for _, g := range meta.RowGroups {
				for i := range g.Columns {
					c := &g.Columns[i]
					var columns format.ColumnIndex
					var offsets format.OffsetIndex
					require.NoError(t, thrift.Unmarshal(new(thrift.CompactProtocol),
						b[c.ColumnIndexOffset:][:c.ColumnIndexLength], &columns))
					require.NoError(t, thrift.Unmarshal(new(thrift.CompactProtocol),
						b[c.OffsetIndexOffset:][:c.OffsetIndexLength], &offsets))
					require.Equal(t, columns.MinValues[0], c.MetaData.Statistics.MinValue)
					require.Equal(t, offsets.PageLocations[0].Offset, c.MetaData.DataPageOffset)
				}
			}
		}
	}
}

// TestWrittenRowGroupsTakeLittleMemory holds what the end of a file says about its row groups, as
// files of partitions do until the last row has come.
func TestWrittenRowGroupsTakeLittleMemory(t *testing.T) {
	const columns, groups = 10, 600
	used := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := used()
	writeGroups(t, columns, groups, Options{}, func() {
		require.Less(t, used()-before, int64(columns*groups*500))
	})
}
