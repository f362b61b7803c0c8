package parquet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/sink"
)

// writeOnDevice writes a table whose strides are copied to a device first, but for the columns that it does not encode.
func (tab table) writeOnDevice(t *testing.T, d gpu.Device, path string, opt Options) (ofDevice int64) {
	t.Helper()
	return tab.writeWith(t, d, path, opt, func() {})
}

// writeWith is writeOnDevice, and calls copied once all strides have been copied to the device.
func (tab table) writeWith(t *testing.T, d gpu.Device, path string, opt Options, copied func()) (ofDevice int64) {
	t.Helper()
	l, h, up := d.Budget().Lease("output"), d.HostBudget().Lease("sink"), d.Budget().Lease("strides")
	q, err := d.NewQueue("up")
	require.NoError(t, err)
	opt.Lease, opt.Devices = h, []sink.OnDevice{{Device: d, Lease: l}}
	w, err := Create(path, tab.schema, opt)
	require.NoError(t, err)
	var strides []*gpu.Stride
	for _, s := range tab.strides {
		on, err := q.Upload(up, s.Retain())
		require.NoError(t, err)
		strides = append(strides, on)
	}
	copied()
	for i, s := range tab.strides {
		on := strides[i]
		kept := w.Keeps(on)
		for i := range on.Cols {
			if kept == nil || !kept[i] {
				on.Cols[i].Release()
				on.Cols[i] = s.Cols[i].Retain()
			}
		}
		require.NoError(t, w.Write(context.Background(), on))
	}
	require.NoError(t, w.Commit(context.Background()))
	require.NoError(t, q.Close())
	for _, lease := range []*gpu.Lease{l, h, up} {
		require.NoError(t, lease.Close())
	}
	return w.Stats().BytesOfDevice
}

// deviceTypes returns the types that a device encodes.
func deviceTypes() (out []gpu.Type) {
	for _, t := range everyType() {
		if c, err := newColumn(gpu.Field{Name: "c", Type: t}); err == nil && c.encodedByDevice(false) {
			out = append(out, t)
		}
	}
	return out
}

// deviceCompression returns the codecs that a device compresses with.
func deviceCompression() []string {
	return slices.DeleteFunc(slices.Sorted(slices.Values(codecNames)), func(name string) bool {
		_, forCPU := (&Options{Compression: name}).deviceCodec()
		return forCPU != "" || name == "none"
	})
}

// writeRefused is writeOnDevice, and refuses one reservation of memory of the device, or all of them if at is 0. Then
// the device encodes nothing. past says that there were fewer.
func (tab table) writeRefused(t *testing.T, d *cuda.Device, path string, opt Options, at int64) (past bool) {
	t.Helper()
	var calls atomic.Int64
	all := at == 0
	written := tab.writeWith(t, d, path, opt, func() {
		d.Budget().SetFault(func(bool) error {
			if n := calls.Add(1); n == at || all {
				return errors.New("not now")
			}
			return nil
		})
	})
	d.Budget().SetFault(nil)
	require.Equal(t, all, written == 0)
	return !all && calls.Load() < at
}

// encodeCase is an output that the CPU and a device write.
type encodeCase struct {
	codec, encoding, dictionary string
	nulls                       float64
	rows, distinct              int
	pageRows, pageBytes, group  int
	bloom                       bool
}

// table returns rows of the types that a device encodes, strings and UUIDs with and without a dictionary, and shapes.
func (c encodeCase) table(r *rand.Rand) table {
	tab := table{schema: &gpu.Schema{}}
	types := append(deviceTypes(), gpu.Of(gpu.String), gpu.Of(gpu.String), gpu.Of(gpu.Binary), gpu.Of(gpu.Binary))
	coded := map[int]bool{len(types) - 4: true, len(types) - 3: true, len(types) - 2: true, len(types) + 1: true}
	annotations := map[int]gpu.Annotation{len(types) - 1: gpu.Geometry(""), len(types): gpu.UUID,
		len(types) + 1: gpu.UUID}
	types = append(types, gpu.Of(gpu.Binary), gpu.Of(gpu.Binary))
	for i, t := range types {
		tab.schema.Fields = append(tab.schema.Fields, gpu.Field{Name: fmt.Sprintf("c%02d", i), Type: t,
			Nullable: c.nulls >= 0, Annotation: annotations[i]})
	}
	tab.values = make([][]gpu.Scalar, len(types))
	for left := c.rows; left > 0; {
		n := min(left, 1+r.IntN(c.rows))
		left -= n
		s := &gpu.Stride{Schema: tab.schema, Rows: n}
		for i, t := range types {
			col, v := randomColumn(r, t, n, c.distinct, max(c.nulls, 0), coded[i])
			if annotations[i] == gpu.UUID {
				col, v = randomUUIDs(r, n, c.distinct, max(c.nulls, 0), coded[i])
			}
			s.Cols = append(s.Cols, col)
			tab.values[i] = append(tab.values[i], v...)
		}
		tab.strides = append(tab.strides, s)
	}
	return tab
}

// randomUUIDs is randomColumn for UUIDs.
func randomUUIDs(r *rand.Rand, rows, distinct int, nulls float64, coded bool) (gpu.Column, []gpu.Scalar) {
	uuid := gpu.Of(gpu.Binary)
	entries, codes, values := []gpu.Scalar{}, make([]gpu.Scalar, rows), make([]gpu.Scalar, rows)
	for i := range values {
		values[i], codes[i] = gpu.Null(uuid), gpu.Null(gpu.Of(gpu.Int32))
		if r.Float64() >= nulls {
			seed := rand.New(rand.NewPCG(uint64(r.IntN(distinct)), 9))
			b := binary.BigEndian.AppendUint64(nil, seed.Uint64())
			b = binary.BigEndian.AppendUint64(b, seed.Uint64())
			values[i] = gpu.Scalar{Type: uuid, Valid: true, Str: string(b)}
			codes[i] = gpu.IntScalar(gpu.Of(gpu.Int32), int64(len(entries)))
			entries = append(entries, values[i])
		}
	}
	if !coded {
		return gpu.ColumnOf(uuid, values), values
	}
	c := gpu.ColumnOf(gpu.Of(gpu.Int32), codes)
	c.Type, c.Dict = uuid, &gpu.Dictionary{Values: gpu.ColumnOf(uuid, entries)}
	return c, values
}

// TestADeviceEncodesLikeTheCPU writes the same rows by the CPU and by a device. The values, metadata and indexes of the
// files are the same. Without compression and dictionaries, all bytes are.
func TestADeviceEncodesLikeTheCPU(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 30})
	thin, i := gputest.ThinOr(t, 31), 0
	for _, compressed := range []bool{false, true} {
		for _, encoding := range []string{"auto", "plain"} {
			for _, dictionary := range []string{"auto", "off"} {
				for _, nulls := range []float64{-1, 0, 0.3, 1} {
					for _, distinct := range []int{1, 2, 40, 1 << 30} {
						for _, rows := range []int{1, 7, 150, 1300} {
							if i++; !gputest.Takes(thin, i) {
								continue
							}
							codec := "none"
							if compressed {
								codec = deviceCompression()[i%len(deviceCompression())]
							}
							c := encodeCase{codec, encoding, dictionary, nulls, rows, distinct,
								[]int{max(8, rows/9), 500, 1 << 15}[i%3], []int{1 << 20, 700, 9000}[i%7%3],
								[]int{1 << 20, rows/2 + 1}[i%2], i%5 < 3}
							c.check(t, d, c.table(rand.New(rand.NewPCG(uint64(i), 5))))
						}
					}
				}
			}
		}
	}
}

func (c encodeCase) check(t *testing.T, d gpu.Device, tab table) {
	t.Helper()
	opt := Options{Compression: c.codec, Encoding: c.encoding, Dictionary: c.dictionary, PageRows: c.pageRows,
		PageBytes: c.pageBytes, RowGroupRows: c.group, Threads: 2}
	if c.bloom {
		opt.BloomFilters = filtered(tab.schema)
	}
	cpu, device := filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "device")
	tab.write(t, cpu, opt)
	ofDevice := tab.writeOnDevice(t, d, device, opt)
	want, got := readFile(t, cpu), readFile(t, device)
	require.Equal(t, got.columnBytes(), ofDevice, "%+v", c)
	requireSameMetadata(t, want.File, got.File)
	require.Equal(t, want.filters(), got.filters(), "%+v", c)
	if c.codec == "none" && (c.dictionary == "off" || c.distinct > c.rows) {
		require.True(t, bytes.Equal(want.bytes, got.bytes), "%+v", c)
		return
	}
	tab.requireRead(t, device, 0)
	if c.codec == "none" {
		// On a CPU with AVX2, parquet-go cuts runs of packed codes where both halves of eight codes are equal.
		require.InEpsilon(t, len(want.bytes), len(got.bytes), 0.02)
	}
}

type parquetFile struct {
	*pq.File
	bytes []byte
}

// columnBytes returns the bytes of all column chunks, with their Bloom filters.
func (f parquetFile) columnBytes() (n int64) {
	for _, g := range f.Metadata().RowGroups {
		for _, c := range g.Columns {
			n += c.MetaData.TotalCompressedSize + int64(c.MetaData.BloomFilterLength)
		}
	}
	return n
}

// filters returns the Bloom filters of all column chunks, with their headers.
func (f parquetFile) filters() (out [][]byte) {
	for _, g := range f.Metadata().RowGroups {
		for _, c := range g.Columns {
			at := c.MetaData.BloomFilterOffset
			out = append(out, f.bytes[at:at+int64(c.MetaData.BloomFilterLength)])
		}
	}
	return out
}

func readFile(t *testing.T, path string) parquetFile {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	p, err := pq.OpenFile(f, int64(len(b)))
	require.NoError(t, err)
	return parquetFile{p, b}
}

// requireSameMetadata compares all of the metadata of two files but sizes of compressed pages and what follows from
// them.
func requireSameMetadata(t *testing.T, a, b *pq.File) {
	t.Helper()
	require.Equal(t, a.ColumnIndexes(), b.ColumnIndexes())
	require.Equal(t, len(a.OffsetIndexes()), len(b.OffsetIndexes()))
	for i, x := range a.OffsetIndexes() {
		y := b.OffsetIndexes()[i]
		require.Equal(t, len(x.PageLocations), len(y.PageLocations))
		for k := range x.PageLocations {
			require.Equal(t, x.PageLocations[k].FirstRowIndex, y.PageLocations[k].FirstRowIndex)
		}
	}
	var x, y = a.Metadata().RowGroups, b.Metadata().RowGroups
	require.Equal(t, len(x), len(y))
	for i := range x {
		require.Equal(t, x[i].NumRows, y[i].NumRows)
		for k := range x[i].Columns {
			m, n := x[i].Columns[k].MetaData, y[i].Columns[k].MetaData
			require.Equal(t, m.Encoding, n.Encoding)
			require.Equal(t, m.Statistics, n.Statistics)
			require.Equal(t, m.Codec, n.Codec)
		}
	}
}

// oneColumn returns a table of one column and one stride.
func oneColumn(name string, values []gpu.Scalar) table {
	tab := table{schema: gpu.NewSchema(gpu.Field{Name: name, Type: values[0].Type}), values: [][]gpu.Scalar{values}}
	tab.strides = []*gpu.Stride{{Schema: tab.schema, Rows: len(values),
		Cols: []gpu.Column{gpu.ColumnOf(values[0].Type, values)}}}
	return tab
}

// TestPagesOfADeviceAreAsSmall writes pages of several pieces. Their sizes are those of the CPU's encoder, or smaller,
// or not much larger.
func TestPagesOfADeviceAreAsSmall(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
	const rows = 20000
	r := rand.New(rand.NewPCG(3, 5))
	var words []string
	for range 600 {
		word := make([]byte, 3+r.IntN(8))
		for k := range word {
			word[k] = "etaoinshrdlucmfwypvbgkqjxz"[r.IntN(1+r.IntN(26))]
		}
		words = append(words, string(word))
	}
	text := func() string {
		var b strings.Builder
		for n := 10 + r.IntN(34); b.Len() < n; {
			b.WriteString(words[r.IntN(len(words))] + " ")
		}
		return b.String()
	}
	columns := map[string]func(i int) any{
		"ascending":  func(i int) any { return int64(i)*4 + r.Int64N(4) },
		"keys":       func(int) any { return r.Int64N(1e6) },
		"prices":     func(int) any { return 90000 + r.Int64N(1e7) },
		"random":     func(int) any { return int64(r.Uint64()) },
		"few":        func(int) any { return r.Int64N(7) },
		"runs":       func(i int) any { return int64(i / 300) },
		"timestamps": func(i int) any { return int64(1.7e15) + int64(i)*1e6 + r.Int64N(1e6) },
		"comments":   func(int) any { return text() },
		"names":      func(i int) any { return fmt.Sprintf("Customer#%09d", i) },
		// These are split, in whole pages.
		"measurements": func(i int) any { return 20 + math.Sin(float64(i)/500) + 0.01*r.NormFloat64() },
		"distances":    func(i int) any { return float64(i)*0.37 + r.Float64() },
	}
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		_, split := columns[name](0).(float64)
		n := rows
		if split {
			n = splitRows
		}
		values := make([]gpu.Scalar, n)
		for i := range values {
			switch v := columns[name](i).(type) {
			case int64:
				values[i] = gpu.IntScalar(gpu.Of(gpu.Int64), v)
			case string:
				values[i] = gpu.StringScalar(v)
			case float64:
				values[i] = gpu.FloatScalar(gpu.Of(gpu.Float64), v)
			}
		}
		for _, codec := range deviceCompression() {
			opt := Options{Compression: codec, Encoding: "plain", Dictionary: "off"}
			tab, most := oneColumn(name, values), 1.02
			switch {
			case split:
				opt.Encoding = "auto"
			case codec != "snappy": // the CPU's encoders remember 16 times as many positions
				if slices.Contains([]string{"ascending", "prices", "runs"}, name) {
					continue // these take time, and find nothing that the others do not
				}
				tab, most = oneColumn(name, values[:9000]), 1.12
			}
			cpu, device := filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "device")
			tab.write(t, cpu, opt)
			require.Positive(t, tab.writeOnDevice(t, d, device, opt))
			tab.requireRead(t, device, 0)
			want, got := readFile(t, cpu), readFile(t, device)
			require.Equal(t, split, slices.Contains(encodings(t, cpu), format.ByteStreamSplit))
			require.Equal(t, split, slices.Contains(encodings(t, device), format.ByteStreamSplit))
			t.Logf("%s, %s: %d bytes by the CPU, %d by the device", name, codec, len(want.bytes), len(got.bytes))
			require.LessOrEqual(t, float64(len(got.bytes)), most*float64(len(want.bytes)), "%s, %s", name, codec)
		}
	}
}

// TestADeviceCompressesBodiesOfAnyShape writes a page for each string: bodies of a few bytes, of one piece or some more
// or fewer bytes, of pieces with and without matches, in several orders, and of literals with codes of all lengths.
func TestADeviceCompressesBodiesOfAnyShape(t *testing.T) {
	const piece = 64 << 10
	d := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
	r := rand.New(rand.NewPCG(7, 5))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	}
	same, repeated, half := func(n int) string { return strings.Repeat("a", n) }, random(100), random(piece/2+100)
	bodies := []string{random(3 * piece), same(2*piece + 5), random(100) + same(piece) + random(2*piece) + same(200),
		same(piece-4-100) + repeated + repeated, repeated + random(piece) + repeated, random(2*piece-4) + same(14),
		same(piece) + random(piece-8), half + half + half + half}
	for n := range 30 {
		bodies = append(bodies, same(n), random(n/2)+same(n/2), random(n))
	}
	for n := -6; n <= 16; n += 2 { // after the length of the string
		bodies = append(bodies, random(piece/2)+same(piece/2-4+n))
	}
	skewed := func(n, alphabet int) string { // small numbers are more frequent
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.IntN(1 + r.IntN(alphabet)))
		}
		return string(b)
	}
	for _, alphabet := range []int{2, 5, 20, 130, 256} { // codes of few and of many literals
		for _, n := range []int{40, 300, 1400, 20000} {
			bodies = append(bodies, skewed(n, alphabet))
		}
	}
	halves := make([]byte, piece-5) // each byte is half as frequent as the one before: codes have all lengths
	for i := range halves {
		halves[i] = byte(bits.TrailingZeros32(r.Uint32()))
	}
	bodies = append(bodies, string(halves))
	var values []gpu.Scalar
	for _, b := range bodies {
		values = append(values, gpu.Scalar{Type: gpu.Of(gpu.Binary), Valid: true, Str: b})
	}
	tab := oneColumn("b", values)
	for _, codec := range deviceCompression() {
		t.Run(codec, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "device")
			opt := Options{Compression: codec, Dictionary: "off", PageRows: 1}
			ofDevice := tab.writeOnDevice(t, d, path, opt)
			require.Equal(t, readFile(t, path).columnBytes(), ofDevice)
			tab.requireRead(t, path, 0)
		})
	}
}

// TestADeviceTakesTheRowGroupsOfAStrideTogether writes a stride of many row groups, which are one call of the device.
func TestADeviceTakesTheRowGroupsOfAStrideTogether(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
	col, v := randomColumn(rand.New(rand.NewPCG(4, 4)), gpu.Of(gpu.Int32), 1200, 1<<20, 0, false)
	tab := table{schema: gpu.NewSchema(gpu.Field{Name: "n", Type: col.Type}), values: [][]gpu.Scalar{v}}
	tab.strides = []*gpu.Stride{{Schema: tab.schema, Rows: len(v), Cols: []gpu.Column{col}}}
	var calls atomic.Int64
	path := filepath.Join(t.TempDir(), "device")
	tab.writeOnDevice(t, d, path, Options{Threads: 2, RowGroupRows: 30, Trace: func(what string, _ time.Time) {
		if what == "encode on the device" {
			calls.Add(1)
		}
	}})
	require.EqualValues(t, 1, calls.Load())
	tab.requireRead(t, path, 0)
}

// TestADeviceWithoutMemoryLeavesTheColumnsToTheCPU denies each reservation of device memory in turn, and all of them.
func TestADeviceWithoutMemoryLeavesTheColumnsToTheCPU(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
	c := encodeCase{nulls: 0.2, rows: 200, distinct: 50}
	var numbers []gpu.Scalar
	for i := range c.rows {
		numbers = append(numbers, gpu.IntScalar(gpu.Of(gpu.Int64), int64(i)))
	}
	for _, codec := range deviceCompression() {
		tab := oneColumn("n", numbers)
		if codec == "snappy" {
			tab = c.table(rand.New(rand.NewPCG(1, 2)))
		}
		for at, past := int64(0), false; !past; at++ {
			opt := Options{Threads: 2, RowGroupRows: 90, Compression: codec}
			path := filepath.Join(t.TempDir(), "device")
			past = tab.writeRefused(t, d, path, opt, at)
			tab.requireRead(t, path, 0)
		}
	}
}

// TestAValueThatDoesNotFitIsTheErrorOfTheCPU writes seconds that Parquet, which has milliseconds, has no room for, a
// decimal of too many digits, a UUID of another length, and nulls in columns that may have none.
func TestAValueThatDoesNotFitIsTheErrorOfTheCPU(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 64 << 20})
	seconds := gpu.TimestampOf(gpu.Second, false)
	wide := gpu.Type{Kind: gpu.Decimal, Precision: 9, Scale: 2, Wide: true}
	text, huge := gpu.Of(gpu.String), gpu.DecimalOf(38, 2)
	number := func(t gpu.Type, v gpu.Int128) gpu.Scalar { return gpu.Scalar{Type: t, Valid: true, Int: v} }
	for _, c := range []struct {
		want string
		a, b gpu.Scalar
		of   gpu.Annotation
	}{
		{"out of the range", gpu.IntScalar(seconds, 1), gpu.IntScalar(seconds, 1<<60), ""},
		{"1 nulls", gpu.IntScalar(seconds, 1), gpu.Null(seconds), ""},
		{"1 nulls", gpu.StringScalar("a"), gpu.Null(text), ""},
		{"1 nulls", number(huge, gpu.Int128From(1)), gpu.Null(huge), ""},
		{"1 nulls", number(gpu.Of(gpu.Bool), gpu.Int128From(1)), gpu.Null(gpu.Of(gpu.Bool)), ""},
		{"more digits", number(wide, gpu.Int128From(1)), number(wide, gpu.Int128{Hi: 1}), ""},
		{"more digits", number(wide, gpu.Int128From(1)), number(wide, gpu.Int128From(1<<32)), ""},
		{"a UUID has 16 bytes", gpu.Scalar{Type: gpu.Of(gpu.Binary), Valid: true, Str: "sixteen bytes..."},
			gpu.Scalar{Type: gpu.Of(gpu.Binary), Valid: true, Str: "seventeen bytes.."}, gpu.UUID},
	} {
		column := gpu.ColumnOf(c.a.Type, []gpu.Scalar{c.a, c.b})
		l, h := d.Budget().Lease("output"), d.HostBudget().Lease("sink")
		q, err := d.NewQueue("up")
		require.NoError(t, err)
		schema := gpu.NewSchema(gpu.Field{Name: "c", Type: c.a.Type, Annotation: c.of})
		w, err := Create(filepath.Join(t.TempDir(), "out"), schema,
			Options{Lease: h, Devices: []sink.OnDevice{{Device: d, Lease: l}}})
		require.NoError(t, err)
		s, err := q.Upload(l, &gpu.Stride{Schema: schema, Rows: 2, Cols: []gpu.Column{column}})
		require.NoError(t, err)
		require.Equal(t, []bool{true}, w.Keeps(s))
		require.NoError(t, w.Write(context.Background(), s))
		require.ErrorContains(t, w.Commit(context.Background()), c.want)
		require.NoError(t, q.Close())
		require.NoError(t, l.Close())
		require.NoError(t, h.Close())
	}
}

// TestADeviceEncodesStrings writes strings, and codes of strings: those that repeat with a dictionary, and those that
// do not, or not enough of them, or that are longer than a dictionary may be, without one. All bytes are those of the
// CPU.
func TestADeviceEncodesStrings(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 30})
	// The first values repeat, the others are in order.
	cases := map[string]struct{ distinct, length, rows, repeats int }{
		"short":              {40, 3, 1000, 1000},
		"long":               {40, 200, 1000, 1000},
		"distinct":           {1000, 8, 1000, 0},
		"distinct later":     {1000, 8, 1000, 500},
		"too long":           {5, 1 << 19, 40, 40},
		"longer than a page": {7, 3000, 40, 40},
	}
	for name, c := range cases {
		for _, coded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, coded %v", name, coded), func(t *testing.T) {
				var values, entries, codes []gpu.Scalar
				for i := range c.distinct {
					text := fmt.Sprintf("%d%s%d", i%7, strings.Repeat("é", c.length), i)
					entries = append(entries, gpu.StringScalar(text))
				}
				entries = append(entries, entries[0], gpu.StringScalar("")) // twice, and empty
				for i := range c.rows {
					code := i * 7919 % len(entries)
					if i >= c.repeats {
						code = i % len(entries)
					} else if c.repeats < c.rows {
						code %= 10
					}
					codes = append(codes, gpu.IntScalar(gpu.Of(gpu.Int32), int64(code)))
					values = append(values, entries[code])
				}
				column := gpu.ColumnOf(gpu.Of(gpu.String), values)
				if coded {
					column = gpu.ColumnOf(gpu.Of(gpu.Int32), codes)
					column.Type = gpu.Of(gpu.String)
					column.Dict = &gpu.Dictionary{Values: gpu.ColumnOf(gpu.Of(gpu.String), entries)}
				}
				tab := table{schema: gpu.NewSchema(gpu.Field{Name: "s", Type: column.Type}),
					values: [][]gpu.Scalar{values}}
				tab.strides = []*gpu.Stride{{Schema: tab.schema, Rows: c.rows, Cols: []gpu.Column{column}}}
				cpu, device := filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "device")
				opt := Options{Compression: "none", PageRows: 128, PageBytes: 1700}
				tab.write(t, cpu, opt)
				require.Positive(t, tab.writeOnDevice(t, d, device, opt))
				require.True(t, bytes.Equal(readFile(t, cpu).bytes, readFile(t, device).bytes))
			})
		}
	}
}

// TestTheOptionsTellWhatADeviceEncodes writes with each codec, since the choice of the device asks the options.
func TestTheOptionsTellWhatADeviceEncodes(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{})
	tab := encodeCase{rows: 50, distinct: 9}.table(rand.New(rand.NewPCG(1, 1)))
	options := []Options{{Compression: "zstd", Level: mostDeviceLevel},
		{Compression: "zstd", Level: mostDeviceLevel + 1}}
	for _, codec := range codecNames {
		options = append(options, Options{Compression: codec})
	}
	for _, opt := range options {
		encoded := tab.writeOnDevice(t, d, filepath.Join(t.TempDir(), "out.parquet"), opt)
		for _, told := range opt.EncodedByDevice(tab.schema) {
			require.Equal(t, encoded > 0, told, "%s, level %d", opt.Compression, opt.Level)
		}
	}
}
