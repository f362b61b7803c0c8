package parquet

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

type versionRow struct {
	A int64 `parquet:"a"`
	B int64 `parquet:"b"`
}

// writeVersion writes a file of eight row groups, whose values begin at a number.
func writeVersion(t *testing.T, path string, from int64) {
	var rows []versionRow
	for i := range int64(800) {
		rows = append(rows, versionRow{from + i, from - i})
	}
	require.NoError(t, parquet.WriteFile(path, rows, parquet.MaxRowsPerRowGroup(100),
		parquet.BloomFilters(parquet.SplitBlockFilter(10, "a"))))
	// The clock of a file system may be coarser than this test.
	past := time.Now().Add(-time.Duration(from) * time.Second)
	require.NoError(t, os.Chtimes(path, past, past))
}

// writeOther writes other values of the same size next to a file.
func writeOther(t *testing.T, path string) (other string) {
	info, err := os.Stat(path)
	require.NoError(t, err)
	other = path + ".new"
	for from := int64(1 << 21); ; from++ { // the checksums of pages have different lengths
		writeVersion(t, other, from)
		if o, err := os.Stat(other); err != nil || o.Size() == info.Size() {
			require.NoError(t, err)
			return other
		}
	}
}

// changes are what another process may do to a file.
var changes = map[string]func(t *testing.T, path string){
	"another file is renamed to it": func(t *testing.T, path string) {
		other := writeOther(t, path)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Chtimes(other, info.ModTime(), info.ModTime()))
		require.NoError(t, os.Rename(other, path))
	},
	"it is written in place": func(t *testing.T, path string) {
		b, err := os.ReadFile(writeOther(t, path))
		require.NoError(t, err)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.Write(b)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	},
	"it is truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 1000)) },
	"it grows": func(t *testing.T, path string) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, info.Size()+1000))
	},
}

func TestAFileThatChangesGivesRowsOfOneVersionOrAnErrorOfItsOwn(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	defer func(n int) { readAhead = n }(readAhead)
	readAhead = 512
	one := source.Predicate{Column: 0, Op: source.Gt, Values: []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), 1<<20+250)}}
	for name, change := range changes {
		for _, strides := range []int{0, 1, 4, 8} { // read before the change
			for _, threads := range []int{1, 4} {
				for _, prune := range [][]source.Predicate{nil, {one}} {
					t.Run(fmt.Sprintf("%s/%d/%d/%d", name, strides, threads, len(prune)), func(t *testing.T) {
						path := filepath.Join(t.TempDir(), "x.parquet")
						writeVersion(t, path, 1<<20)
						table, err := Open([]string{path}, OpenOptions{})
						require.NoError(t, err)
						lease := hosttest.Budget(t, 0).Lease("scan")
						defer func() { require.NoError(t, lease.Close()) }()
						opt := source.ScanOptions{Columns: []int{0, 1}, StrideRows: 30, Lease: lease, Prune: prune,
							Decode: source.DecodeOptions{Threads: threads, Inflight: 1}}
						if strides == 0 {
							change(t, path)
						}
						r, err := table.Scan(context.Background(), opt)
						require.NoError(t, err)
						defer r.Close()
						first, rows := int64(0), int64(0)
						if len(prune) > 0 {
							first = 200 // the first row of a row group
						}
						for n := 1; err == nil; n++ {
							var s *gpu.Stride
							if s, err = r.Read(context.Background()); err != nil {
								break
							}
							for k := range s.Rows {
								row := first + rows + int64(k)
								require.EqualValues(t, 1<<20+row, s.Cols[0].ScalarAt(k).Int.Int64())
								require.EqualValues(t, 1<<20-row, s.Cols[1].ScalarAt(k).Int.Int64())
							}
							rows += int64(s.Rows)
							s.Release()
							if n == strides {
								change(t, path)
							}
						}
						if err != io.EOF || strides == 0 {
							require.ErrorIs(t, err, source.ErrChanged)
							require.NotErrorIs(t, err, source.ErrData)
							require.ErrorContains(t, err, path)
						}
					})
				}
			}
		}
	}
}

func TestSamplesAndMetadataOfAChangedFileAreRefused(t *testing.T) {
	for name, change := range changes {
		path := filepath.Join(t.TempDir(), "x.parquet")
		writeVersion(t, path, 1<<20)
		table, err := Open([]string{path}, OpenOptions{})
		require.NoError(t, err)
		file := table.files[0]
		change(t, path)
		lease := hosttest.Budget(t, 0).Lease("sample")
		_, err = table.Sample(t.Context(), lease, []int{0}, 10)
		require.ErrorIs(t, err, source.ErrChanged, name)
		require.NoError(t, lease.Close())
		chunk := file.groups[0].chunks[0]
		_, err = file.someInBloom(t.Context(), chunk.bloom, nil)
		require.ErrorIs(t, err, source.ErrChanged, name)
		var index struct{}
		require.ErrorIs(t, file.readStructure(t.Context(), chunk.columnIndex, &index), source.ErrChanged, name)
	}
}

func TestAFileThatIsWrittenWhileItsFooterIsReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.parquet")
	writeVersion(t, path, 1<<20)
	f, err := store.Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer f.Close()
	changes["it is written in place"](t, path)
	_, err = readMetadata(readerAt{t.Context(), f}, f.Version().Size, false)
	require.ErrorIs(t, err, source.ErrChanged)
}
