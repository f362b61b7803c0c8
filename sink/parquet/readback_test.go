package parquet

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	pq "github.com/parquet-go/parquet-go"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/stretchr/testify/require"
)

// canonical returns a value in the form that testdata/readback.py compares.
func canonical(s gpu.Scalar) any {
	switch {
	case !s.Valid:
		return nil
	case s.Type.Kind == gpu.Time || s.Type.Kind == gpu.Timestamp:
		v, _ := s.Int.Mul(gpu.Int128From(1e9 / s.Type.Unit.PerSecond()))
		return v.String()
	case s.Type.IsVar():
		return hex.EncodeToString([]byte(s.Str))
	case s.Type.IsFloat() && math.IsNaN(s.Float):
		return "nan"
	case s.Type.IsFloat():
		return fmt.Sprint(math.Float64bits(s.Float))
	}
	return s.Int.String()
}

// TestDuckDBAndPyArrowReadWhatIsWritten needs an interpreter with both. GSTREAM_PYTHON
// names it.
func TestDuckDBAndPyArrowReadWhatIsWritten(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON does not name a Python with duckdb and pyarrow")
	}
	dir := t.TempDir()
	args := []string{"testdata/readback.py"} // a single process, because it takes a while to start
	expect := func(path string, tab table) {
		expected := map[string][]any{}
		for c, f := range tab.schema.Fields {
			for _, v := range tab.values[c] {
				expected[f.Name] = append(expected[f.Name], canonical(v))
			}
		}
		b, err := json.Marshal(expected)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path+".json", b, 0o666))
		args = append(args, path+".parquet")
	}
	write := func(name string, tab table, opt Options) {
		path := filepath.Join(dir, name)
		tab.write(t, path+".parquet", opt)
		expect(path, tab)
	}
	for i, opt := range []Options{
		{},
		{Compression: "zstd", Level: 3, RowGroupRows: 700, PageRows: 64},
		{Compression: "none", Dictionary: "off", PageBytes: 500},
		{Compression: "gzip"},
		{Compression: "brotli", Level: 4},
		{Compression: "lz4_raw"},
	} {
		for _, nulls := range []float64{0, 0.3, 1} {
			if i > 2 && nulls != 0.3 {
				continue // a codec does not see nulls
			}
			write(fmt.Sprintf("options %d, nulls %v", i, nulls),
				randomTable(rand.New(rand.NewPCG(uint64(i), 9)), 1000, nulls), opt)
		}
	}
	filters := randomTable(rand.New(rand.NewPCG(7, 9)), 1000, 0.3)
	write("Bloom filters", filters, Options{BloomFilters: filtered(filters.schema), RowGroupRows: 400})
	write("large dictionary", largeDictionary(gpu.Of(gpu.String), 2, 1000, 15000, 200), Options{})
	write("large dictionary, plain", largeDictionary(gpu.Of(gpu.Int64), 2, 1000, 15000, 15000), Options{})
	for _, last := range []int{1, 128, deltaRows} {
		for _, nulls := range []bool{false, true} {
			write(fmt.Sprintf("differences, %d rows, nulls %v", last, nulls), deltaTable(last, nulls), deltaOptions())
		}
	}
	d := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
	for i, codec := range codecNames {
		opt := Options{Compression: codec, RowGroupRows: 1201, PageRows: 300}
		name, tab := "floats, "+codec, floatTable(rand.New(rand.NewPCG(uint64(i), 13)), 1500, 300, 0.2*float64(i%3)-0.2)
		write(name, tab, opt)
		if slices.Contains(deviceCompression(), codec) {
			path := filepath.Join(dir, name+", device")
			tab.writeOnDevice(t, d, path+".parquet", opt)
			expect(path, tab)
		}
	}
	for i, c := range []encodeCase{{codec: "snappy", nulls: 0.3, distinct: 40},
		{codec: "snappy", nulls: -1, distinct: 1 << 30}, {codec: "none", nulls: 1, distinct: 1},
		{codec: "snappy", nulls: 0, distinct: 1 << 30, encoding: "plain"},
		{codec: "lz4_raw", nulls: 0.3, distinct: 40}, {codec: "lz4_raw", distinct: 1 << 30, encoding: "plain"},
		{codec: "zstd", nulls: 0.3, distinct: 40}, {codec: "zstd", distinct: 1 << 30, encoding: "plain"}} {
		c.rows = 700
		path, tab := filepath.Join(dir, fmt.Sprint("device ", i)), c.table(rand.New(rand.NewPCG(uint64(i), 11)))
		for f := range tab.schema.Fields {
			if tab.schema.Fields[f].Annotation != gpu.UUID {
				tab.schema.Fields[f].Annotation = gpu.NoAnnotation // random bytes are no shapes
			}
		}
		tab.writeOnDevice(t, d, path+".parquet", Options{Compression: c.codec, Encoding: c.encoding, PageRows: 300,
			RowGroupRows: 500})
		expect(path, tab)
	}
	out, err := exec.Command(python, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// openByParquetGo opens a file until the end of the test.
func openByParquetGo(t *testing.T, path string) *pq.File {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	require.NoError(t, err)
	in, err := pq.OpenFile(f, info.Size())
	require.NoError(t, err)
	return in
}

// TestParquetGoReadsWhatIsWritten checks page indexes, statistics and counts as another Go
// reader sees them.
func TestParquetGoReadsWhatIsWritten(t *testing.T) {
	tab := randomTable(rand.New(rand.NewPCG(4, 4)), 3000, 0.3)
	path := filepath.Join(t.TempDir(), "t.parquet")
	tab.write(t, path, Options{RowGroupRows: 1000, PageRows: 100})
	in := openByParquetGo(t, path)
	require.EqualValues(t, 3000, in.NumRows())
	require.Len(t, in.ColumnIndexes(), 3*tab.schema.Len())
	require.Len(t, in.OffsetIndexes(), 3*tab.schema.Len())
	for g, group := range in.RowGroups() {
		for c, chunk := range group.ColumnChunks() {
			index, err := chunk.OffsetIndex()
			require.NoError(t, err)
			nulls, row := 0, 0
			pages := chunk.Pages()
			for n := 0; ; n++ {
				page, err := pages.ReadPage()
				if err == io.EOF {
					require.Equal(t, index.NumPages(), n)
					break
				}
				require.NoError(t, err)
				require.EqualValues(t, row, index.FirstRowIndex(n))
				row += int(page.NumRows())
				nulls += int(page.NumNulls())
			}
			require.NoError(t, pages.Close())
			require.Equal(t, 1000, row)
			want := 0
			for _, v := range tab.values[c][1000*g : 1000*(g+1)] {
				if !v.Valid {
					want++
				}
			}
			require.Equal(t, want, nulls, "column %s of row group %d", tab.schema.Fields[c].Name, g)
		}
	}
}
