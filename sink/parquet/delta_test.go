package parquet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// deltaRows is the rows of a page of a deltaTable: one block of differences and a part of
// another.
const deltaRows = 136

// deltaOptions make a sink write packed differences.
func deltaOptions() Options { return Options{Dictionary: "off", PageRows: deltaRows} }

// deltaTable returns integers. The first page has small differences, so that the chunk is
// packed; the other pages have differences of every kind. The last page has last rows.
// With nulls, some values and one whole page are null.
func deltaTable(last int, nulls bool) table {
	r := rand.New(rand.NewPCG(uint64(last), 5))
	kinds := []func(lo, hi int64, i int) int64{
		func(lo, hi int64, i int) int64 { return int64(i) },
		func(lo, hi int64, i int) int64 { return []int64{lo, hi}[i%2] },
		func(lo, hi int64, i int) int64 { return []int64{hi, lo, 0, -1, 1, hi, hi, lo, lo}[i%9] },
		func(lo, hi int64, i int) int64 { return int64(r.Uint64()) },
		func(lo, hi int64, i int) int64 { return hi },
		func(lo, hi int64, i int) int64 { return lo },
		func(lo, hi int64, i int) int64 { return hi - int64(i) },
		func(lo, hi int64, i int) int64 { return lo + int64(i)*(hi/64) }, // differences that wrap around
		func(lo, hi int64, i int) int64 { return []int64{1, -1}[i%2] * int64(i) },
		func(lo, hi int64, i int) int64 { return []int64{lo, hi, lo + 1}[i%3] },
	}
	tab := table{schema: &gpu.Schema{}}
	rows := deltaRows*(len(kinds)-1) + last
	s := &gpu.Stride{Schema: tab.schema, Rows: rows}
	for _, c := range []struct {
		typ    gpu.Type
		lo, hi int64
	}{
		{gpu.Of(gpu.Int8), math.MinInt8, math.MaxInt8},
		{gpu.Of(gpu.Int32), math.MinInt32, math.MaxInt32}, {gpu.Of(gpu.Uint32), 0, math.MaxUint32},
		{gpu.Of(gpu.Int64), math.MinInt64, math.MaxInt64}, {gpu.Of(gpu.Uint64), 0, -1},
	} {
		values := make([]gpu.Scalar, rows)
		for i := range values {
			page := i / deltaRows
			if nulls && (page == 3 || page > 0 && i%5 == 0) {
				values[i] = gpu.Null(c.typ)
				continue
			}
			v := kinds[page](c.lo, c.hi, i%deltaRows)
			shift := 64 - 8*c.typ.Width()
			values[i] = gpu.IntScalar(c.typ, v<<shift>>shift)
			if c.typ.IsUnsigned() {
				values[i].Int = gpu.Int128FromUint(uint64(v) << shift >> shift)
			}
		}
		tab.schema.Fields = append(tab.schema.Fields, gpu.Field{Name: fmt.Sprint(c.typ), Type: c.typ, Nullable: nulls})
		tab.values = append(tab.values, values)
		s.Cols = append(s.Cols, gpu.ColumnOf(c.typ, values))
	}
	tab.strides = []*gpu.Stride{s}
	return tab
}

// encodings returns the encoding of the values of each column chunk of a file.
func encodings(t *testing.T, path string) []format.Encoding {
	t.Helper()
	in := openByParquetGo(t, path)
	var out []format.Encoding
	for _, g := range in.Metadata().RowGroups {
		for _, c := range g.Columns {
			out = append(out, c.MetaData.Encoding[0])
		}
	}
	return out
}

func TestPackedDifferencesOfAnyIntegersAreReadBack(t *testing.T) {
	for _, nulls := range []bool{false, true} {
		for _, last := range []int{1, 2, 31, 32, 33, 64, 127, 128, 129, 130, deltaRows} {
			t.Run(fmt.Sprintf("nulls %v, %d rows", nulls, last), func(t *testing.T) {
				tab := deltaTable(last, nulls)
				path := filepath.Join(t.TempDir(), "t.parquet")
				tab.write(t, path, deltaOptions())
				for i, e := range encodings(t, path) {
					require.Equal(t, format.DeltaBinaryPacked, e, tab.schema.Fields[i].Name)
				}
				tab.requireRead(t, path, 100)
			})
		}
	}
}

func TestIntegersAreNotPackedWhereThatIsNotSmaller(t *testing.T) {
	int64s := gpu.Of(gpu.Int64)
	for name, values := range map[string][]int64{
		"one row": {math.MinInt64},
		"alternating extremes": {math.MinInt64 / 2, math.MaxInt64 / 2, math.MinInt64 / 3, math.MaxInt64 / 5, 7,
			math.MaxInt64, 3, math.MinInt64},
	} {
		t.Run(name, func(t *testing.T) {
			rows := make([]gpu.Scalar, len(values))
			for i, v := range values {
				rows[i] = gpu.IntScalar(int64s, v)
			}
			tab := table{schema: gpu.NewSchema(gpu.Field{Name: "a", Type: int64s}), values: [][]gpu.Scalar{rows}}
			tab.strides = []*gpu.Stride{{Schema: tab.schema, Rows: len(rows),
				Cols: []gpu.Column{gpu.ColumnOf(int64s, rows)}}}
			path := filepath.Join(t.TempDir(), "t.parquet")
			tab.write(t, path, deltaOptions())
			require.Equal(t, []format.Encoding{format.Plain}, encodings(t, path))
			tab.requireRead(t, path, 100)
		})
	}
}

func TestOldReadersCanHavePlainIntegers(t *testing.T) {
	tab := deltaTable(5, true)
	path := filepath.Join(t.TempDir(), "t.parquet")
	opt := deltaOptions()
	opt.Encoding = "plain"
	tab.write(t, path, opt)
	for _, e := range encodings(t, path) {
		require.Equal(t, format.Plain, e)
	}
	tab.requireRead(t, path, 100)
}
