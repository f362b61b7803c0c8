package parquet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// hostileBudget is plenty for the fixtures, and little for a file that claims too much.
const hostileBudget = 64 << 20

// edited writes a modified copy of a fixture and returns its path.
func edited(t testing.TB, name string, change func(b []byte) []byte) []string {
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.parquet")
	require.NoError(t, os.WriteFile(path, change(b), 0o666))
	return []string{path}
}

// footer modifies the metadata of a file.
func footer(change func(m *format.FileMetaData)) func(b []byte) []byte {
	return func(b []byte) []byte {
		n := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
		var m format.FileMetaData
		if _, err := unmarshalCompact(b[len(b)-8-n:len(b)-8], &m); err != nil {
			panic(err)
		}
		change(&m)
		f, err := thrift.Marshal(new(thrift.CompactProtocol), &m)
		if err != nil {
			panic(err)
		}
		b = append(b[:len(b)-8-n:len(b)-8-n], f...)
		return append(binary.LittleEndian.AppendUint32(b, uint32(len(f))), magic...)
	}
}

func chunkOf(m *format.FileMetaData, g, c int) *format.ColumnMetaData {
	return &m.RowGroups[g].Columns[c].MetaData
}

func TestDamagedFilesAreErrorsThatNameTheFile(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	for _, c := range []struct {
		name, file, says string
		change           func(b []byte) []byte
	}{
		{"empty", "duckdb.parquet", "empty", func(b []byte) []byte { return nil }},
		{"short", "duckdb.parquet", "too few", func(b []byte) []byte { return b[:9] }},
		{"truncated", "duckdb.parquet", "truncated", func(b []byte) []byte { return b[:len(b)/2] }},
		{"wrong magic at the start", "duckdb.parquet", "not a Parquet file",
			func(b []byte) []byte { b[0] = 'X'; return b }},
		{"wrong magic at the end", "duckdb.parquet", "truncated or damaged",
			func(b []byte) []byte { b[len(b)-1] = 'X'; return b }},
		{"encrypted", "duckdb.parquet", "encrypted", func(b []byte) []byte { b[len(b)-1] = 'E'; return b }},
		{"footer longer than the file", "duckdb.parquet", "the footer claims",
			func(b []byte) []byte { b[len(b)-5] = 0x7f; return b }},
		{"footer that is no thrift", "duckdb.parquet", "footer", func(b []byte) []byte {
			n := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
			for i := len(b) - 8 - n; i < len(b)-8; i++ {
				b[i] = 0xff
			}
			return b
		}},
		{"byte changed in a page", "encodings-v1-zstd.parquet", "checksum",
			func(b []byte) []byte { b[200] ^= 1; return b }},
		{"more rows than row groups have", "duckdb.parquet", "rows",
			footer(func(m *format.FileMetaData) { m.NumRows++ })},
		{"row group with fewer rows than pages", "no-statistics.parquet", "row group 0",
			footer(func(m *format.FileMetaData) {
				m.NumRows--
				m.RowGroups[0].NumRows--
				chunkOf(m, 0, 0).NumValues--
			})},
		{"row group with more rows than pages", "no-statistics.parquet", `row group 0, column "n"`,
			footer(func(m *format.FileMetaData) {
				m.NumRows++
				m.RowGroups[0].NumRows++
				chunkOf(m, 0, 0).NumValues++
			})},
		{"impossibly many rows", "no-statistics.parquet", `column "n"`, footer(func(m *format.FileMetaData) {
			m.NumRows = 1 << 40
			m.RowGroups[0].NumRows = 1 << 40
			chunkOf(m, 0, 0).NumValues = 1 << 40
		})},
		{"chunk behind the end", "no-statistics.parquet", "offset", footer(func(m *format.FileMetaData) {
			chunkOf(m, 0, 0).DataPageOffset = 1 << 40
			chunkOf(m, 0, 0).DictionaryPageOffset = 0
		})},
		{"chunk of negative size", "no-statistics.parquet", "claims",
			footer(func(m *format.FileMetaData) { chunkOf(m, 0, 0).TotalCompressedSize = -5 })},
		{"chunk larger than the file", "no-statistics.parquet", "claims",
			footer(func(m *format.FileMetaData) { chunkOf(m, 0, 0).TotalCompressedSize = 1 << 50 })},
		{"other physical type", "no-statistics.parquet", "its type is",
			footer(func(m *format.FileMetaData) { chunkOf(m, 0, 0).Type = format.Double })},
		{"column missing in a row group", "duckdb.parquet", "columns",
			footer(func(m *format.FileMetaData) { m.RowGroups[0].Columns = m.RowGroups[0].Columns[:2] })},
		{"unknown codec", "no-statistics.parquet", "not supported",
			footer(func(m *format.FileMetaData) { chunkOf(m, 0, 0).Codec = format.LZO })},
		{"wrong codec", "no-statistics.parquet", "row group 0",
			footer(func(m *format.FileMetaData) { chunkOf(m, 0, 0).Codec = format.Zstd })},
		{"schema without columns", "duckdb.parquet", "schema",
			footer(func(m *format.FileMetaData) { m.Schema = m.Schema[:0] })},
		{"schema that claims more", "duckdb.parquet", "schema",
			footer(func(m *format.FileMetaData) { m.Schema[0].NumChildren.Set(1000) })},
		{"decimal with more digits than its type", "decimals.parquet", "digits", footer(func(m *format.FileMetaData) {
			m.Schema[1].LogicalType.Value = &format.DecimalType{Precision: 20, Scale: 5}
		})},
		{"string that is not UTF-8", "dictionaries.parquet", "UTF-8", func(b []byte) []byte {
			for i := range b[:40] {
				if b[i] == 'g' && b[i+1] == 'r' {
					b[i+1] = 0xff
				}
			}
			return b
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := edited(t, c.file, c.change)
			_, _, err := scan(t, hostileBudget, path, source.ScanOptions{Decode: source.DecodeOptions{Threads: 2}})
			require.ErrorIs(t, err, source.ErrData)
			require.ErrorContains(t, err, path[0])
			require.ErrorContains(t, err, c.says)
		})
	}
}

// pageFile makes a file of one INT64 column whose chunk is the given bytes.
func pageFile(t testing.TB, rows int64, codec format.CompressionCodec, h format.PageHeader, body []byte) []string {
	head, err := thrift.Marshal(new(thrift.CompactProtocol), &h)
	require.NoError(t, err)
	return edited(t, "no-statistics.parquet", func(b []byte) []byte {
		return footer(func(m *format.FileMetaData) {
			m.NumRows, m.RowGroups[0].NumRows = rows, rows
			k := chunkOf(m, 0, 0)
			k.NumValues, k.Codec = rows, codec
			k.DataPageOffset, k.DictionaryPageOffset = 4, 0
			k.TotalCompressedSize = int64(len(head) + len(body))
			m.Schema[1].RepetitionType.Set(format.Required)
		})(append(append([]byte(magic), head...), append(body, b[4:]...)...))
	})
}

func dataPage(values int32, e format.Encoding, size, raw int) format.PageHeader {
	h := format.PageHeader{Type: format.DataPage, CompressedPageSize: int32(size), UncompressedPageSize: int32(raw)}
	h.DataPageHeader = thrift.New(format.DataPageHeader{NumValues: values, Encoding: e,
		DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE})
	return h
}

func TestPagesThatLieAreErrors(t *testing.T) {
	bomb := append([]byte{0x80, 0x80, 0x80, 0x80, 0x04}, 0xfe, 0, 0) // snappy: one GiB follows
	checksum := compressed(t, &pq.Gzip, make([]byte, 8))
	checksum[len(checksum)-5] ^= 1 // the length follows
	for _, c := range []struct {
		name, says string
		rows       int64
		codec      format.CompressionCodec
		header     format.PageHeader
		body       []byte
	}{
		{"page larger than its header says", "decompresses", 1, format.Snappy, dataPage(1, format.Plain, len(bomb), 8),
			bomb},
		{"page that claims too much", "", 1, format.Snappy, dataPage(1, format.Plain, len(bomb), 1<<30), bomb},
		{"gzip page that does not match its checksum", "checksum", 1, format.Gzip,
			dataPage(1, format.Plain, len(checksum), 8), checksum},
		{"negative size", "claims", 1, format.Snappy, dataPage(1, format.Plain, -1, 8), nil},
		{"fewer values than promised", "promises", 3, format.Uncompressed, dataPage(3, format.Plain, 16, 16),
			make([]byte, 16)},
		{"more values than rows", "left", 1, format.Uncompressed, dataPage(2, format.Plain, 16, 16), make([]byte, 16)},
		{"negative values", "rows", 1, format.Uncompressed, dataPage(-2, format.Plain, 16, 16), make([]byte, 16)},
		{"codes without a dictionary", "dictionary", 1, format.Uncompressed, dataPage(1, format.RLEDictionary, 3, 3),
			[]byte{1, 2, 0}},
		{"delta page that claims other values", "claims", 5, format.Uncompressed,
			dataPage(5, format.DeltaBinaryPacked, 6, 6), []byte{128, 1, 4, 9, 0, 0}},
		{"delta page of a gigantic block", "blocks", 5, format.Uncompressed,
			dataPage(5, format.DeltaBinaryPacked, 7, 7), []byte{128, 128, 128, 8, 4, 5, 0}},
		{"delta page that ends early", "ends early", 500, format.Uncompressed,
			dataPage(500, format.DeltaBinaryPacked, 6, 6), []byte{128, 1, 4, 244, 3, 0}},
		{"split page of the wrong size", "BYTE_STREAM_SPLIT", 2, format.Uncompressed,
			dataPage(2, format.ByteStreamSplit, 15, 15), make([]byte, 15)},
		{"unknown encoding", "not supported", 2, format.Uncompressed, dataPage(2, format.BitPacked, 16, 16),
			make([]byte, 16)},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := pageFile(t, c.rows, c.codec, c.header, c.body)
			_, _, err := scan(t, hostileBudget, path, source.ScanOptions{Decode: source.DecodeOptions{Threads: 1}})
			require.ErrorIs(t, err, source.ErrData)
			require.ErrorContains(t, err, path[0]+`: row group 0, column "n"`)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestPagesBehindTheLastRowAreAnError(t *testing.T) {
	page := func(b []byte, rows int32) []byte {
		h := dataPage(rows, format.Plain, 8*int(rows), 8*int(rows))
		head, err := thrift.Marshal(new(thrift.CompactProtocol), &h)
		require.NoError(t, err)
		return append(append(b, head...), make([]byte, 8*rows)...)
	}
	first := dataPage(2, format.Plain, 16, 16)
	for _, c := range []struct {
		behind []byte
		fails  bool
	}{
		{page(nil, 1), true},
		{page(page(nil, 0), 3), true},
		{page(nil, 0), false},
		{make([]byte, 100), false},
		{[]byte("room that some writer left"), false},
	} {
		path := pageFile(t, 2, format.Uncompressed, first, append(make([]byte, 16), c.behind...))
		_, _, err := scan(t, hostileBudget, path,
			source.ScanOptions{StrideRows: 1, Decode: source.DecodeOptions{Threads: 1}})
		if !c.fails {
			require.NoError(t, err, "%x", c.behind)
			continue
		}
		require.ErrorIs(t, err, source.ErrData, "%x", c.behind)
		require.ErrorContains(t, err, "more than the 2 rows")
	}
}

func TestClaimedRowsTakeNoMemory(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	const rows = 1 << 40 // the most that a file of its size may have
	path := edited(t, "page-index.parquet", footer(func(m *format.FileMetaData) {
		m.NumRows, m.RowGroups, m.RowGroups[0].NumRows = rows, m.RowGroups[:1], rows
		m.RowGroups[0].Columns = m.RowGroups[0].Columns[:1]
		m.Schema = m.Schema[:2]
		m.Schema[0].NumChildren.Set(1)
		k := chunkOf(m, 0, 0)
		k.NumValues, k.TotalCompressedSize, k.Statistics = rows, 5000, format.Statistics{NullCount: 1}
	}))
	for _, columns := range [][]int{{0}, nil} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		table, err := Open(path, OpenOptions{})
		require.NoError(t, err)
		lease := hosttest.Budget(t, 0).Lease("scan")
		r, err := table.Scan(context.Background(),
			source.ScanOptions{Columns: columns, StrideRows: 1 << 15, Lease: lease})
		for err == nil {
			var s *gpu.Stride
			if s, err = r.Read(context.Background()); err == nil {
				s.Release()
			}
		}
		require.ErrorIs(t, err, source.ErrData)
		require.ErrorContains(t, err, path[0]+`: row group 0, column "n"`)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
		if r != nil {
			require.NoError(t, r.Close())
		}
		require.NoError(t, lease.Close())
	}
}

func TestStridesKeepTheirRowsWhereAnUncompressedSizeIsAClaim(t *testing.T) {
	for _, name := range []string{"no-statistics.parquet", "encodings-v1-none.parquet", "encodings-v1-zstd.parquet"} {
		path := edited(t, name, footer(func(m *format.FileMetaData) {
			for g := range m.RowGroups {
				for c := range m.RowGroups[g].Columns {
					chunkOf(m, g, c).TotalUncompressedSize = math.MaxInt64
				}
			}
		}))
		table, err := Open(path, OpenOptions{})
		require.NoError(t, err)
		cut, total, err := table.planScan(t.Context(), source.ScanOptions{Columns: []int{0}}, 1)
		require.NoError(t, err)
		require.EqualValues(t, table.Rows(), total.RowsTotal)
		strides := 0
		for cut.next().rows > 0 {
			strides++
		}
		require.LessOrEqual(t, strides, 10, name)
	}
}

func TestAnyChangedByteIsAnErrorOrHarmless(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	defer goleak.VerifyNone(t, exceptDevice)
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"encodings-v2-snappy.parquet", "duckdb.parquet", "fallback.parquet",
		"page-index.parquet", "decimals.parquet", "nested.parquet", "levels.parquet"} {
		for range 150 {
			path := edited(t, name, func(b []byte) []byte {
				for range 1 + r.IntN(3) {
					b[r.IntN(len(b))] = byte(r.Uint32())
				}
				return b
			})
			requireHarmless(t, path)
		}
	}
}

// requireHarmless scans a file that may be damaged, in full and with filters.
func requireHarmless(t testing.TB, path []string) {
	opts := []source.ScanOptions{{}}
	if table, err := Open(path, OpenOptions{}); err == nil {
		fields := table.Schema().Fields
		for i, f := range fields[:min(3, len(fields))] {
			equal := source.Predicate{Column: i, Op: source.Eq, Values: []gpu.Scalar{{Type: f.Type, Valid: true}}}
			opts = append(opts, source.ScanOptions{Prune: []source.Predicate{equal}},
				source.ScanOptions{Prune: []source.Predicate{{Column: i, Op: source.IsNull}}})
		}
	}
	for _, opt := range opts {
		opt.StrideRows, opt.Decode.Threads = 1<<16, 2
		_, _, err := scan(t, hostileBudget, path, opt)
		if err != nil && !errors.Is(err, source.ErrData) && !errors.Is(err, gpu.ErrBudget) {
			require.NoError(t, err)
		}
	}
}

func TestUnreadablePathIsNotBadData(t *testing.T) {
	_, err := Open([]string{"testdata/none.parquet"}, OpenOptions{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, source.ErrData)
	require.ErrorContains(t, err, "testdata/none.parquet")
}

func TestThriftListsAreNotAllocatedByTheirClaim(t *testing.T) {
	// Field 2 of a struct: a list that claims to have 2^31 - 1 structs.
	b := []byte{0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0}
	_, err := unmarshalCompact(b, new(format.FileMetaData))
	require.Error(t, err)
	deep := make([]byte, 1000)
	for i := range deep {
		deep[i] = 0x1c // a struct in a struct in a struct …
	}
	_, err = unmarshalCompact(deep, new(format.FileMetaData))
	require.ErrorIs(t, err, errCompact)
}

// FuzzDecompress decompresses arbitrary bytes for a page of any size with every codec
// that this program reads.
func FuzzDecompress(f *testing.F) {
	for _, c := range codecs {
		b, err := c.Encode(nil, text(100))
		require.NoError(f, err)
		f.Add(int(c.CompressionCodec()), 100, b)
	}
	f.Add(int(format.Lz4), 8, append([]byte{0, 0, 0, 8, 0, 0, 0, 9, 8 << 4}, make([]byte, 8)...))
	f.Fuzz(func(t *testing.T, codec, size int, b []byte) {
		if size < 0 || size > 1<<16 {
			return
		}
		dst := make([]byte, size)
		if err := decompress(format.CompressionCodec(codec), dst, b); err != nil {
			require.ErrorIs(t, err, source.ErrData)
		}
	})
}

func FuzzOpenRead(f *testing.F) {
	for _, name := range []string{"duckdb", "fallback", "dictionaries", "many-dictionaries", "int96", "decimals",
		"nested", "empty-groups", "page-index", "bloom", "statistics", "types", "duplicates"} {
		b, err := os.ReadFile(fmt.Sprintf("testdata/%s.parquet", name))
		require.NoError(f, err)
		f.Add(b)
	}
	b, err := os.ReadFile("testdata/types.parquet")
	require.NoError(f, err)
	f.Add(footer(func(m *format.FileMetaData) {
		m.NumRows = 0
		m.Schema[1].Name = ""
		m.Schema[2].LogicalType.Value = new(format.NullType)
		m.KeyValueMetadata = []format.KeyValue{{Key: "geo", Value: `{"columns": {"half": {}}}`},
			{Key: "pandas", Value: "{"}}
	})(b))
	type rate struct{ Rate float32 }
	nan := writeRows(f, filepath.Join(f.TempDir(), "nan.parquet"), rate{1}, rate{float32(math.NaN())})
	b, err = os.ReadFile(nan)
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		path := filepath.Join(t.TempDir(), "x.parquet")
		require.NoError(t, os.WriteFile(path, b, 0o666))
		table, err := Open([]string{path}, OpenOptions{})
		if err != nil {
			require.ErrorIs(t, err, source.ErrData)
			return
		}
		if table.Rows() > 1<<22 {
			return // many rows in few bytes are valid, but slow to count
		}
		_, err = Inspect(t.Context(), path)
		require.NoError(t, err)
		requireHarmless(t, []string{path})
	})
}
