package text

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/source"
)

// BenchmarkScan reads all columns of the file that CSV_BENCH names.
func BenchmarkScan(b *testing.B) {
	path := os.Getenv("CSV_BENCH")
	if path == "" {
		b.Skip("CSV_BENCH names no file")
	}
	info, err := os.Stat(path)
	require.NoError(b, err)
	b.SetBytes(info.Size())
	table, err := Open([]string{path}, Options{JSON: NamedJSON(path)})
	require.NoError(b, err)
	b.Log(types(table))
	for b.Loop() {
		opt := source.ScanOptions{Lease: host.HeapLease("test", 0)}
		for i := range table.Schema().Fields {
			opt.Columns = append(opt.Columns, i)
		}
		r, err := table.Scan(context.Background(), opt)
		require.NoError(b, err)
		for {
			s, err := r.Read(context.Background())
			if err == io.EOF {
				break
			}
			require.NoError(b, err)
			s.Release()
		}
		require.NoError(b, r.Close())
	}
}
