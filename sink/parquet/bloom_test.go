package parquet

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	pq "github.com/parquet-go/parquet-go"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
)

// filtered returns the columns of a schema that can have a Bloom filter.
func filtered(s *gpu.Schema) (names []string) {
	for _, f := range s.Fields {
		if f.Type.Kind != gpu.Bool {
			names = append(names, f.Name)
		}
	}
	return names
}

func TestBloomFiltersHaveAllValues(t *testing.T) {
	for _, opt := range []Options{{}, {Dictionary: "off", PageBytes: 500}} {
		for _, nulls := range []float64{0, 0.3, 1} {
			tab := randomTable(rand.New(rand.NewPCG(8, 8)), 2000, nulls)
			opt.BloomFilters, opt.RowGroupRows = filtered(tab.schema), 700
			path := filepath.Join(t.TempDir(), "t.parquet")
			tab.write(t, path, opt)
			checked := 0
			for _, group := range openByParquetGo(t, path).RowGroups() {
				for c, chunk := range group.ColumnChunks() {
					filter := chunk.BloomFilter()
					if tab.schema.Fields[c].Type.Kind == gpu.Bool {
						require.Nil(t, filter)
						continue
					}
					require.NotNil(t, filter, tab.schema.Fields[c].Name)
					pages := chunk.Pages()
					for {
						page, err := pages.ReadPage()
						if err == io.EOF {
							break
						}
						require.NoError(t, err)
						values := make([]pq.Value, page.NumValues())
						n, err := page.Values().ReadValues(values)
						require.True(t, err == nil || err == io.EOF, err)
						for _, v := range values[:n] {
							if v.IsNull() {
								continue
							}
							ok, err := filter.Check(v)
							require.NoError(t, err)
							require.True(t, ok, "%s: %v", tab.schema.Fields[c].Name, v)
							checked++
						}
					}
					require.NoError(t, pages.Close())
				}
			}
			require.Equal(t, nulls < 1, checked > 0)
		}
	}
}

// numbersTable has the even numbers below 2n, shuffled, as integers and as text.
func numbersTable(n int) table {
	numbers, texts := make([]gpu.Scalar, n), make([]gpu.Scalar, n)
	for k, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		numbers[k] = gpu.Scalar{Type: gpu.Of(gpu.Int64), Valid: true, Int: gpu.Int128From(int64(2 * i))}
		texts[k] = gpu.Scalar{Type: gpu.Of(gpu.String), Valid: true, Str: fmt.Sprint(2 * i)}
	}
	schema := gpu.NewSchema(gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "s", Type: gpu.Of(gpu.String)})
	stride := &gpu.Stride{Schema: schema, Rows: n,
		Cols: []gpu.Column{gpu.ColumnOf(gpu.Of(gpu.Int64), numbers), gpu.ColumnOf(gpu.Of(gpu.String), texts)}}
	return table{schema: schema, strides: []*gpu.Stride{stride}, values: [][]gpu.Scalar{numbers, texts}}
}

func TestBloomFiltersRuleOutMostOtherValues(t *testing.T) {
	const n = 5000
	path := filepath.Join(t.TempDir(), "t.parquet")
	numbersTable(n).write(t, path, Options{BloomFilters: []string{"n", "s"}})
	for _, chunk := range openByParquetGo(t, path).RowGroups()[0].ColumnChunks() {
		taken := 0
		for i := range n {
			v := pq.ValueOf(int64(2*i + 1))
			if chunk.Type().Kind() == pq.ByteArray {
				v = pq.ValueOf(fmt.Sprint(2*i + 1))
			}
			ok, err := chunk.BloomFilter().Check(v)
			require.NoError(t, err)
			if ok {
				taken++
			}
		}
		require.Less(t, taken, n*3/100)
		require.LessOrEqual(t, chunk.BloomFilter().Size(), int64(n*bloomBits/8+64))
	}
}

func TestDuckDBUsesBloomFilters(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON does not name a Python with duckdb")
	}
	path := filepath.Join(t.TempDir(), "t.parquet")
	numbersTable(5000).write(t, path, Options{BloomFilters: []string{"n", "s"}})
	out, err := exec.Command(python, "-c", `
import duckdb, sys
for column, values in (("n", range(0, 400)), ("s", map(str, range(0, 400)))):
    for v in values:
        (excluded,) = duckdb.execute(f"select bloom_filter_excludes from parquet_bloom_probe('{sys.argv[1]}', '{column}', ?)", [v]).fetchone()
        print("x" if excluded else ".", end="")
    print()`, path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		for i := 0; i < len(line); i += 2 {
			require.Equal(t, byte('.'), line[i], "%d is in the file", i)
		}
		require.Greater(t, strings.Count(line, "x"), 190)
	}
}

func TestBloomFiltersOfWrongColumnsAreRefused(t *testing.T) {
	s := gpu.NewSchema(gpu.Field{Name: "b", Type: gpu.Of(gpu.Bool)}, gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)})
	require.NoError(t, CheckColumns(s, Options{BloomFilters: []string{"n"}}))
	require.ErrorContains(t, CheckColumns(s, Options{BloomFilters: []string{"x"}}), `names "x", which is not a column`)
	require.ErrorContains(t, CheckColumns(s, Options{BloomFilters: []string{"b"}}), `names "b", a BOOLEAN`)
}
