package parquet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/source"
)

// TestADeviceReadsMutantsLikeTheCPU damages pages of all types, encodings and codecs: their values and levels before
// they are compressed, their compressed bytes, and their headers. A device must give the rows of the CPU, or its error,
// which names the place.
//
//	GSTREAM_MUTANTS=80s GSTREAM_SEED=17 ./parquet.test -test.run Mutants -test.v
//
// runs for that time with the seeds 17, 18, …; GSTREAM_MUTANTS=5000 runs until it has as many. A failure names the
// seed that repeats it, with GSTREAM_MUTANTS=1. The test needs no files, so that its binary runs on a machine with a
// GPU and nothing else.
func TestADeviceReadsMutantsLikeTheCPU(t *testing.T) {
	most, limit, text := 250, time.Duration(0), os.Getenv("GSTREAM_MUTANTS")
	if text != "" {
		var err error
		if most, err = strconv.Atoi(text); err != nil {
			most = math.MaxInt
			limit, err = time.ParseDuration(text)
			require.NoError(t, err, "GSTREAM_MUTANTS is a number or a duration")
		}
	}
	d, err := cuda.Open(cuda.Options{Library: cudatest.Library(t), Memory: 1 << 30, HostMemory: 512 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	for _, b := range []*gpu.Budget{d.Budget(), d.HostBudget()} {
		b.SetPatience(time.Millisecond) // a page that claims too much waits for nobody
	}
	m := &mutants{T: t, dev: d, dir: t.TempDir(), many: text != "", counts: map[string]*mutantCounts{}}
	begin := time.Now()
	for seed := gputest.Seed(t); m.total() < most && (limit == 0 || time.Since(begin) < limit) && m.wrong < 10; seed++ {
		m.batch(seed)
	}
	t.Logf("%d mutants in %.1f s", m.total(), time.Since(begin).Seconds())
	for _, codec := range slices.Sorted(maps.Keys(m.counts)) {
		t.Logf("%s: %+v", codec, *m.counts[codec])
	}
}

// mutantCounts counts mutants by who has found what.
type mutantCounts struct {
	Mutants int
	Decoded int // by the device
	Left    int // by the CPU, to which the device has left them
	Kept    int // by the CPU, because of the headers of pages
	Found   int // errors that the device has found
	Seen    int // errors that were seen before the device had the pages
	Memory  int // errors because of memory
}

// mutants are files whose pages are damaged.
type mutants struct {
	*testing.T
	dev    *cuda.Device
	dir    string
	counts map[string]*mutantCounts
	many   bool // GSTREAM_MUTANTS is set
	wrong  int  // number of mutants that the device does not read like the CPU
}

func (m *mutants) total() (n int) {
	for _, c := range m.counts {
		n += c.Mutants
	}
	return n
}

// mutant is a column with damaged pages, which waits for the device.
type mutant struct {
	what   string
	bad    int // number of damaged pages
	table  *Table
	reader source.Reader
	column gpu.Column
	want   []gpu.Scalar
	err    error // of the CPU
	left   bool  // to the CPU
	again  error // of the CPU, after the device has left the column to it
}

// packers compress bodies of pages as writers do.
var packers = []struct {
	codec format.CompressionCodec
	pack  func(r *rand.Rand, raw []byte) []byte
}{
	{format.Uncompressed, func(_ *rand.Rand, raw []byte) []byte { return raw }},
	{format.Snappy, func(_ *rand.Rand, raw []byte) []byte { return snappy.Encode(nil, raw) }},
	{format.Lz4Raw, func(_ *rand.Rand, raw []byte) []byte { return packLz4(raw) }},
	{format.Lz4, packHadoopLz4},
	{format.Zstd, func(r *rand.Rand, raw []byte) []byte { return zstdPackers[r.IntN(len(zstdPackers))](raw) }},
	{format.Gzip, func(r *rand.Rand, raw []byte) []byte {
		var b bytes.Buffer
		w := gzipPackers[r.IntN(len(gzipPackers))]
		w.Reset(&b)
		_, _ = w.Write(raw)
		_ = w.Close()
		return b.Bytes()
	}},
}

var (
	zstdPackers []func(raw []byte) []byte
	gzipPackers []*gzip.Writer
)

func init() {
	for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault, zstd.SpeedBetterCompression} {
		zstdPackers = append(zstdPackers, zstdBench(level))
	}
	for _, level := range []int{gzip.HuffmanOnly, 1, 6} {
		w, err := gzip.NewWriterLevel(nil, level)
		if err != nil {
			panic(err) // the levels are constants
		}
		gzipPackers = append(gzipPackers, w)
	}
}

func packLz4(raw []byte) []byte {
	out := make([]byte, lz4.CompressBlockBound(len(raw)))
	n, err := new(lz4.Compressor).CompressBlock(raw, out)
	if err != nil {
		panic(err) // there is room for any block
	}
	return out[:n]
}

// packHadoopLz4 makes one frame of one or two blocks, none of them empty, or a block without a frame.
func packHadoopLz4(r *rand.Rand, raw []byte) []byte {
	blocks := min(r.IntN(3), len(raw))
	if blocks == 0 {
		return packLz4(raw)
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(len(raw)))
	for k := range blocks {
		b := packLz4(raw[len(raw)*k/blocks : len(raw)*(k+1)/blocks])
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(b))), b...)
	}
	return out
}

// mutantColumns are the columns of large pages: of each way to store values, and of strings of several lengths.
var mutantColumns = []string{"int8", "int32", "int64", "double", "bool", "string", "prefixed", "uuid", "dec30", "int96",
	"bytes9", "half", "time"}

// batch draws a file, and makes mutants of each of its columns. All that the host hands to the device are in one
// stride.
func (m *mutants) batch(seed uint64) {
	hangs := time.AfterFunc(2*time.Minute, func() { panic(fmt.Sprintf("GSTREAM_SEED=%d does not end", seed)) })
	defer hangs.Stop()
	r := rand.New(rand.NewPCG(seed, 3))
	c := pagesCase{codec: &pq.Uncompressed, version: 1 + r.IntN(2), bytes: []int{60, 300, 2000, 20000}[r.IntN(4)],
		nulls: []float64{-1, 0, 0.2, 0.9}[r.IntN(4)], distinct: []int{1, 20, 3000}[r.IntN(3)], rows: 60 + r.IntN(200)}
	if r.IntN(8) == 0 {
		c.rows *= 8
	}
	if m.many && r.IntN(3) == 0 {
		// Pages that several blocks decompress and decode. A few columns have as many bytes as all others.
		c.rows, c.bytes, c.columns = 30_000+r.IntN(30_000), 1<<20, slices.Clone(mutantColumns)
		r.Shuffle(len(c.columns), func(i, j int) { c.columns[i], c.columns[j] = c.columns[j], c.columns[i] })
		c.columns = c.columns[:3]
	}
	kind := r.IntN(3)
	c.dictionary, c.encoded = kind == 1, kind == 2
	path := filepath.Join(m.dir, "base.parquet")
	c.write(m, path)
	whole, err := os.ReadFile(path)
	require.NoError(m, err)
	n := int(binary.LittleEndian.Uint32(whole[len(whole)-8:]))
	var base format.FileMetaData
	_, err = unmarshalCompact(whole[len(whole)-8-n:len(whole)-8], &base)
	require.NoError(m, err)
	packer := packers[r.IntN(len(packers))]
	counts := m.counts[packer.codec.String()]
	if counts == nil {
		counts = new(mutantCounts)
		m.counts[packer.codec.String()] = counts
	}
	lease := m.dev.HostBudget().Lease("pages")
	defer func() { require.NoError(m, lease.Close()) }()
	var waiting []*mutant
	for column, element := range base.Schema[1:] {
		var groups [][]rawPage
		var bodies [][]byte
		for g := range base.RowGroups {
			pages := pagesOfChunk(m, whole, chunkOf(&base, g, column))
			groups = append(groups, pages)
			for _, p := range pages {
				bodies = append(bodies, p.body)
			}
		}
		for k := range 4 {
			x := &mutant{what: fmt.Sprintf("GSTREAM_SEED=%d GSTREAM_MUTANTS=1: %s, column %s, mutant %d, %v", seed,
				packer.codec, element.Name, k, c)}
			counts.Mutants++
			var b mutated
			b, x.bad = mutate(r, groups, bodies, func(raw []byte) []byte { return packer.pack(r, raw) })
			path := filepath.Join(m.dir, fmt.Sprint(column, "-", k, ".parquet"))
			require.NoError(m, os.WriteFile(path, b.file(m, &base, column, packer.codec), 0o666))
			if m.prepare(x, path, lease, counts) {
				waiting = append(waiting, x)
			}
		}
	}
	m.decode(waiting, counts)
	for _, x := range waiting {
		require.NoError(m, x.reader.Close(), x.what)
		require.NoError(m, x.table.Close(), x.what)
	}
}

// pagesOfChunk returns the pages of a chunk.
func pagesOfChunk(t testing.TB, file []byte, k *format.ColumnMetaData) (pages []rawPage) {
	at := k.DataPageOffset
	if k.DictionaryPageOffset > 0 {
		at = min(at, k.DictionaryPageOffset)
	}
	for end := at + k.TotalCompressedSize; at < end; {
		var p rawPage
		n, err := unmarshalCompact(file[at:end], &p.header)
		require.NoError(t, err)
		at += int64(n)
		p.raw = int(p.header.UncompressedPageSize)
		p.body = file[at:][:p.raw]
		at += int64(p.raw)
		pages = append(pages, p)
	}
	return pages
}

// mutated are the pages of a column by row group, with sizes and checksums.
type mutated [][]rawPage

// mutate compresses pages, and damages one or two of them, or none of one in ten columns.
func mutate(r *rand.Rand, groups [][]rawPage, bodies [][]byte, pack func(raw []byte) []byte) (out mutated, bad int) {
	out = make(mutated, len(groups))
	damage := map[[2]int]int{}
	for range 1 + r.IntN(5)/4 {
		g := r.IntN(len(groups))
		damage[[2]int{g, r.IntN(len(groups[g]))}] = r.IntN(10)
	}
	if bad = len(damage); r.IntN(10) == 0 {
		damage, bad = nil, 0
	}
	for g, pages := range groups {
		for i, p := range pages {
			how, found := damage[[2]int{g, i}]
			if !found {
				how = -1
			}
			out[g] = append(out[g], mutatePage(r, p, how, bodies[r.IntN(len(bodies))], pack))
		}
	}
	return out, bad
}

// mutatePage compresses a page, and damages it: its content before (0 to 4) or after it is compressed (5 to 7), or its
// header (8, 9). The checksum is that of the damaged page, that of the page before, or absent.
func mutatePage(r *rand.Rand, p rawPage, how int, other []byte, pack func(raw []byte) []byte) rawPage {
	raw, levels := p.body, 0
	if h := &p.header.DataPageHeaderV2; h.Valid {
		levels = int(h.V.DefinitionLevelsByteLength)
		h.V.IsCompressed = thrift.Null[bool]{V: true, Valid: r.IntN(2) == 0} // the default
	}
	if how >= 0 && how <= 4 {
		raw = damaged(r, raw, other)
		if levels = min(levels, len(raw)); r.IntN(8) > 0 {
			p.raw = len(raw)
		}
		if p.header.DataPageHeaderV2.Valid && r.IntN(8) > 0 {
			p.header.DataPageHeaderV2.V.DefinitionLevelsByteLength = int32(levels)
		}
	}
	p.body = append(raw[:levels:levels], pack(raw[levels:])...)
	sum := crc32.ChecksumIEEE(p.body)
	if how >= 5 && how <= 7 {
		p.body = append(p.body[:levels:levels], damaged(r, p.body[levels:], pack(other))...)
	}
	p.header.CompressedPageSize, p.header.UncompressedPageSize = int32(len(p.body)), int32(p.raw)
	if how == 8 || how == 9 {
		mutateHeader(r, &p.header)
	}
	switch r.IntN(8) {
	case 0:
		p.header.CRC = int32(sum)
	case 1, 2, 3:
		p.header.CRC = int32(crc32.ChecksumIEEE(p.body))
	default:
		p.header.CRC = 0
	}
	return p
}

// mutateHeader changes a field of a header.
func mutateHeader(r *rand.Rand, h *format.PageHeader) {
	number := func(v *int32) {
		switch r.IntN(6) {
		case 0:
			*v = 0
		case 1:
			*v = int32(r.Uint32())
		case 2:
			*v = -*v
		case 3:
			*v = *v*2 + 1
		default:
			*v += int32(r.IntN(19) - 9)
		}
	}
	encoding := format.Encoding(r.IntN(11)) // 1 and 10 are none
	if r.IntN(4) == 0 {
		number([]*int32{&h.CompressedPageSize, &h.UncompressedPageSize}[r.IntN(2)])
		return
	}
	switch {
	case h.DictionaryPageHeader.Valid:
		if d := &h.DictionaryPageHeader.V; r.IntN(3) == 0 {
			d.Encoding = encoding
		} else {
			number(&d.NumValues)
		}
	case h.DataPageHeader.Valid:
		switch d := &h.DataPageHeader.V; r.IntN(3) {
		case 0:
			d.Encoding = encoding
		case 1:
			d.DefinitionLevelEncoding = encoding
		default:
			number(&d.NumValues)
		}
	case h.DataPageHeaderV2.Valid:
		switch d := &h.DataPageHeaderV2.V; r.IntN(7) {
		case 0:
			d.Encoding = encoding
		case 1:
			d.IsCompressed = thrift.New(r.IntN(2) == 0)
		case 2:
			number(&d.NumRows)
		case 3:
			number(&d.DefinitionLevelsByteLength)
		case 4:
			number(&d.RepetitionLevelsByteLength)
		case 5:
			number(&d.NumNulls)
		default:
			number(&d.NumValues)
		}
	}
}

// file returns a file with a column of the base file, made of these pages.
func (x mutated) file(t testing.TB, base *format.FileMetaData, column int, codec format.CompressionCodec) []byte {
	b := []byte(magic)
	root := format.SchemaElement{Name: "schema"}
	root.NumChildren.Set(1)
	m := format.FileMetaData{Version: 1, Schema: []format.SchemaElement{root, base.Schema[1+column]},
		NumRows: base.NumRows}
	for g, pages := range x {
		k := *chunkOf(base, g, column)
		k.Codec, k.DataPageOffset, k.DictionaryPageOffset, k.BloomFilterOffset, k.BloomFilterLength = codec, 0, 0, 0, 0
		from := len(b)
		for _, p := range pages {
			head, err := thrift.Marshal(new(thrift.CompactProtocol), &p.header)
			require.NoError(t, err)
			if p.header.Type == format.DictionaryPage {
				k.DictionaryPageOffset = int64(len(b))
			} else if k.DataPageOffset == 0 {
				k.DataPageOffset = int64(len(b))
			}
			b = append(append(b, head...), p.body...)
		}
		k.TotalCompressedSize = int64(len(b) - from)
		m.RowGroups = append(m.RowGroups, format.RowGroup{NumRows: base.RowGroups[g].NumRows,
			Columns: []format.ColumnChunk{{MetaData: k}}})
	}
	f, err := thrift.Marshal(new(thrift.CompactProtocol), &m)
	require.NoError(t, err)
	return append(binary.LittleEndian.AppendUint32(append(b, f...), uint32(len(f))), magic...)
}

// prepare reads a mutant on the CPU, and its pages for a device. It returns false if the device does not see them.
func (m *mutants) prepare(x *mutant, path string, lease *gpu.Lease, counts *mutantCounts) bool {
	var err error
	x.table, err = Open([]string{path}, OpenOptions{Threads: 1})
	require.NoError(m, err, x.what)
	opt := source.ScanOptions{Columns: []int{0}, Lease: lease, Decode: source.DecodeOptions{Threads: 1}}
	scan := func() (*gpu.Stride, error) {
		x.reader, err = x.table.Scan(context.Background(), opt)
		if err != nil {
			return nil, err
		}
		return x.reader.Read(context.Background())
	}
	s, err := scan()
	if x.err = err; err != nil && x.bad == 0 {
		m.differ(x, "a file without damage: %v", err)
	}
	if err == nil {
		require.NoError(m, s.Check(), x.what)
		require.EqualValues(m, x.table.Rows(), s.Rows, x.what)
		for i := range s.Rows {
			x.want = append(x.want, s.Cols[0].ScalarAt(i))
		}
		s.Release()
	}
	require.NoError(m, x.reader.Close(), x.what)
	opt.Decode.Pages = true
	if s, err = scan(); err == nil && s.HasPages() {
		x.column = s.Cols[0]
		decode := x.column.Pages.Decode
		x.column.Pages.Decode = func(reason string) (gpu.Column, error) {
			x.left = true
			c, err := decode(reason)
			if x.again = err; err != nil {
				return gpu.ColumnOf(x.column.Type, make([]gpu.Scalar, x.column.Len)), nil
			}
			return c, nil
		}
		return true
	}
	if err == nil {
		counts.Kept++
		m.same(x, s.Cols[0])
		s.Release()
	} else if m.sameError(x, err) {
		counts.Seen++
	} else {
		counts.Memory++
	}
	require.NoError(m, x.reader.Close(), x.what)
	require.NoError(m, x.table.Close(), x.what)
	return false
}

// sameError checks that an error names the place that the CPU's names. Of several defects it may name another one,
// because a scan for a device looks at the headers and checksums of all pages first. sameError returns false if there
// was no memory for the sizes that a mutant claims, which the device and the CPU need at different times.
func (m *mutants) sameError(x *mutant, err error) bool {
	m.Helper()
	if errors.Is(err, gpu.ErrBudget) || errors.Is(x.err, gpu.ErrBudget) {
		return false
	}
	place := func(err error) string {
		text, _, _ := strings.Cut(err.Error(), ": "+source.ErrData.Error())
		return text
	}
	switch {
	case x.err == nil:
		m.differ(x, "only the device finds an error: %v", err)
	case !errors.Is(x.err, source.ErrData) || !errors.Is(err, source.ErrData):
		m.differ(x, "not an error of the data: %v and %v", x.err, err)
	case x.bad == 1 && place(x.err) != place(err):
		m.differ(x, "errors at two places: %v and %v", x.err, err)
	}
	return true
}

// differ reports a mutant that the device does not read like the CPU.
func (m *mutants) differ(x *mutant, format string, args ...any) {
	m.Helper()
	m.wrong++
	m.Errorf("%s: %s", x.what, fmt.Sprintf(format, args...))
}

// same checks that a column has the rows of the CPU.
func (m *mutants) same(x *mutant, c gpu.Column) {
	m.Helper()
	if x.err != nil {
		m.differ(x, "only the CPU finds an error: %v", x.err)
		return
	}
	for i, a := range x.want {
		b := c.ScalarAt(i)
		same := math.Float64bits(a.Float) == math.Float64bits(b.Float)
		a.Float, b.Float = 0, 0
		if !same || a != b {
			m.differ(x, "row %d: want %v, got %v", i, x.want[i], c.ScalarAt(i))
			return
		}
	}
}

// decode decodes the columns of mutants on the device.
func (m *mutants) decode(waiting []*mutant, counts *mutantCounts) {
	if len(waiting) == 0 {
		return
	}
	s := &gpu.Stride{Schema: &gpu.Schema{}, Rows: waiting[0].column.Len}
	for i, x := range waiting {
		s.Cols = append(s.Cols, x.column)
		s.Schema.Fields = append(s.Schema.Fields, gpu.Field{Name: fmt.Sprint(i), Type: x.column.Type})
	}
	q, err := m.dev.NewQueue("mutants")
	require.NoError(m, err, waiting[0].what)
	l, host := m.dev.Budget().Lease("mutants"), m.dev.HostBudget().Lease("decoded")
	up, err := q.Upload(l, s)
	require.NoError(m, err, waiting[0].what)
	down, err := q.Download(host, up)
	require.NoError(m, err, waiting[0].what)
	for i, x := range waiting {
		switch {
		case x.again != nil && m.sameError(x, x.again):
			counts.Found++
		case x.again != nil:
			counts.Memory++
		default:
			if m.same(x, down.Cols[i]); x.left {
				counts.Left++
			} else {
				counts.Decoded++
			}
		}
	}
	down.Release()
	require.NoError(m, q.Close())
	require.NoError(m, l.Close())
	require.NoError(m, host.Close())
	m.dev.Settle()
}
