package parquet

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host/hosttest"
)

// floatKinds are floats in some order: those that are smaller as streams of bytes, those that are not, and those that
// have a dictionary.
var floatKinds = []struct {
	name     string
	encoding format.Encoding
	value    func(r *rand.Rand, row int) float64
}{
	{"ascending", format.ByteStreamSplit, func(r *rand.Rand, row int) float64 {
		return 1e6 + float64(row) + r.Float64()
	}},
	{"special", format.ByteStreamSplit, func(r *rand.Rand, row int) float64 {
		special := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1)}
		if row%50 == 0 && row > 300 {
			return special[row/50%len(special)]
		}
		return -1e6 - float64(row) - r.Float64()
	}},
	{"random", format.Plain, func(r *rand.Rand, _ int) float64 { return randomBits(r) }},
	{"few", format.RLEDictionary, func(r *rand.Rand, _ int) float64 { return float64(r.IntN(30)) / 3 }},
}

// randomBits returns a float whose bytes are random in FLOAT and in DOUBLE.
func randomBits(r *rand.Rand) float64 {
	high := math.Float32frombits(r.Uint32()&^(1<<30) | 1<<28) // neither infinite nor tiny
	return math.Float64frombits(math.Float64bits(float64(high)) | uint64(r.IntN(1<<29)))
}

// floatTable returns a column of FLOAT and one of DOUBLE for each kind, in strides of random lengths. With nulls, the
// rows of some pages are null.
func floatTable(r *rand.Rand, rows, pageRows int, nulls float64) table {
	tab := table{schema: &gpu.Schema{}}
	for _, k := range floatKinds {
		for _, typ := range []gpu.Type{gpu.Of(gpu.Float32), gpu.Of(gpu.Float64)} {
			values := make([]gpu.Scalar, rows)
			for row := range values {
				v := k.value(r, row)
				if typ.Width() == 4 {
					v = float64(float32(v))
				}
				values[row] = gpu.FloatScalar(typ, v)
				if nulls > 0 && row/pageRows%3 == 1 || r.Float64() < nulls {
					values[row] = gpu.Null(typ)
				}
			}
			tab.values = append(tab.values, values)
			tab.schema.Fields = append(tab.schema.Fields,
				gpu.Field{Name: fmt.Sprintf("%s %v", k.name, typ), Type: typ, Nullable: nulls >= 0})
		}
	}
	for from := 0; from < rows; {
		to := min(rows, from+1+r.IntN(rows))
		s := &gpu.Stride{Schema: tab.schema, Rows: to - from}
		for i, f := range tab.schema.Fields {
			s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, tab.values[i][from:to]))
		}
		tab.strides = append(tab.strides, s)
		from = to
	}
	return tab
}

// TestFloatsAreSplitWhereThatIsSmaller writes floats by the CPU and, where it has the codec, by a device. Both choose
// the same encodings, and write the same statistics and page indexes. TestPagesOfADeviceAreAsSmall compares sizes.
func TestFloatsAreSplitWhereThatIsSmaller(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
	for i, c := range []struct {
		codec                string
		nulls                float64
		rows, group, pageRow int
	}{
		{"snappy", -1, 12000, 9001, 8300}, // pages of two pieces
		{"snappy", 0.3, 5000, 3001, 500},
		{"lz4_raw", -1, 9000, 9000, 8300},
		{"lz4_raw", 0, 2000, 1501, 333},
		{"zstd", -1, 9000, 9000, 8300},
		{"zstd", 0.3, 3000, 2001, 500},
		{"gzip", 0.3, 3000, 2001, 500},
		{"brotli", -1, 3000, 2001, 500},
		{"none", 0.3, 3000, 2001, 500},
	} {
		t.Run(fmt.Sprintf("%s, nulls %v", c.codec, c.nulls), func(t *testing.T) {
			tab := floatTable(rand.New(rand.NewPCG(uint64(i), 3)), c.rows, c.pageRow, c.nulls)
			opt := Options{Compression: c.codec, RowGroupRows: c.group, PageRows: c.pageRow, Threads: 2}
			var want []format.Encoding
			for range (c.rows-1)/c.group + 1 {
				for _, k := range floatKinds {
					e := k.encoding
					if c.codec == "none" && e == format.ByteStreamSplit {
						e = format.Plain
					}
					want = append(want, e, e)
				}
			}
			cpu, device := filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "device")
			tab.write(t, cpu, opt)
			require.Equal(t, want, encodings(t, cpu))
			tab.requireRead(t, cpu, 777)
			if c.codec == "brotli" {
				return // a device has neither its encoder nor its decoder
			}
			tab.requireReadOnDevice(t, d, cpu)
			if c.codec == "gzip" {
				return
			}
			ofDevice := tab.writeOnDevice(t, d, device, opt)
			onCPU, onDevice := readFile(t, cpu), readFile(t, device)
			require.Equal(t, onDevice.columnBytes(), ofDevice)
			requireSameMetadata(t, onCPU.File, onDevice.File)
			tab.requireRead(t, device, 777)
			tab.requireReadOnDevice(t, d, device)
		})
	}
}

// TestTheFirstRowGroupDecidesWhetherFloatsAreSplit writes two row groups by the CPU and by a device. All of the first
// one counts, or runs of rows of all its parts, and nothing of the second one.
func TestTheFirstRowGroupDecidesWhetherFloatsAreSplit(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 64 << 20})
	ascending, random := floatKinds[0].value, floatKinds[2].value
	nulls := func(*rand.Rand, int) float64 { return math.NaN() }
	type values func(*rand.Rand, int) float64
	for name, c := range map[string]struct {
		rows  int // of a row group
		first func(row int) values
		then  values
		opt   Options
		split bool
	}{
		"ascending first": {400, func(int) values { return ascending }, random, Options{}, true},
		"random first":    {400, func(int) values { return random }, ascending, Options{}, false},
		"nulls first":     {400, func(int) values { return nulls }, ascending, Options{}, false},
		"plain":           {400, func(int) values { return ascending }, ascending, Options{Encoding: "plain"}, false},
		"one row":         {1, func(int) values { return ascending }, ascending, Options{}, false},
		"a random head": {40000, func(row int) values {
			if row < 10000 {
				return random
			}
			return ascending
		}, random, Options{}, true},
		"an ascending head": {40000, func(row int) values {
			if row < 10000 {
				return ascending
			}
			return random
		}, ascending, Options{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			double := gpu.Of(gpu.Float64)
			tab := table{schema: gpu.NewSchema(gpu.Field{Name: "x", Type: double, Nullable: true})}
			var column []gpu.Scalar
			for row := range 2 * c.rows {
				v := c.then
				if row < c.rows {
					v = c.first(row)
				}
				column = append(column, gpu.FloatScalar(double, v(r, row)))
				if math.IsNaN(column[row].Float) {
					column[row] = gpu.Null(double)
				}
			}
			tab.values = [][]gpu.Scalar{column}
			for from := 0; from < len(column); { // a row group is in several strides
				to := min(len(column), from+c.rows*2/5+1)
				tab.strides = append(tab.strides, &gpu.Stride{Schema: tab.schema, Rows: to - from,
					Cols: []gpu.Column{gpu.ColumnOf(double, column[from:to])}})
				from = to
			}
			want := []format.Encoding{format.Plain, format.Plain}
			if c.split {
				want = []format.Encoding{format.ByteStreamSplit, format.ByteStreamSplit}
			}
			c.opt.RowGroupRows, c.opt.Threads = c.rows, 2
			cpu, device := filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "device")
			tab.write(t, cpu, c.opt)
			require.Equal(t, want, encodings(t, cpu))
			require.Positive(t, tab.writeOnDevice(t, d, device, c.opt))
			require.Equal(t, want, encodings(t, device))
			tab.requireRead(t, device, 0)
		})
	}
}

// TestAColumnWithoutMemoryForItsSampleStaysPlain denies the first reservation, which is for the first column's sample.
func TestAColumnWithoutMemoryForItsSampleStaysPlain(t *testing.T) {
	tab := floatTable(rand.New(rand.NewPCG(5, 5)), 200, 50, 0.2)
	path := filepath.Join(t.TempDir(), "out")
	budget := hosttest.Budget(t, 0)
	lease := budget.Lease("sink")
	w, err := Create(path, tab.schema, Options{Lease: lease})
	require.NoError(t, err)
	var denied atomic.Bool
	budget.SetFault(func(bool) error {
		if denied.Swap(true) {
			return nil
		}
		return errors.New("not now")
	})
	require.NoError(t, tab.tryWrite(w))
	require.NoError(t, lease.Close())
	require.Equal(t, []format.Encoding{format.Plain, format.ByteStreamSplit}, encodings(t, path)[:2])
	tab.requireRead(t, path, 0)
}
