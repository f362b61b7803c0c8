package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// content is the values of a scan by column name.
type content map[string][]gpu.Scalar

// scan is scanOnce. It also checks that encoded columns give the same values.
func scan(t testing.TB, limit int64, paths []string, opt source.ScanOptions,
	columns ...string) (content, source.Progress, error) {
	t.Helper()
	opt.Decode.Encoded = true
	encoded, _, encodedErr := scanOnce(t, limit, paths, opt, columns...)
	opt.Decode.Encoded = false
	got, p, err := scanOnce(t, limit, paths, opt, columns...)
	if limit == 0 {
		require.Equal(t, err, encodedErr)
		if decoder(t) != nil && gputest.Takes(gputest.ThinOr(t, 61), int(scans.Add(1))) {
			opt.Decode.Pages = true
			paged, _, pagedErr := scanOnce(t, limit, paths, opt, columns...)
			require.Equal(t, err, pagedErr)
			if err == nil {
				requireSame(t, got, paged)
			}
		}
	}
	if err == nil && encodedErr == nil {
		requireSame(t, got, encoded)
	}
	return got, p, err
}

// requireSame compares floats by their bits: a NaN equals itself, and -0 is not +0.
func requireSame(t testing.TB, want, got content) {
	t.Helper()
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	for name, w := range want {
		require.Len(t, got[name], len(w), name)
		for i, a := range w {
			b := got[name][i]
			same := math.Float64bits(a.Float) == math.Float64bits(b.Float)
			a.Float, b.Float = 0, 0
			if !same || a != b {
				require.Failf(t, "values differ", "%s, row %d: want %v, got %v", name, i, w[i], got[name][i])
			}
		}
	}
}

// scanOnce reads columns (all when nil). It checks the strides, that nothing is left of
// the lease, and that the progress adds up.
func scanOnce(t testing.TB, limit int64, paths []string, opt source.ScanOptions,
	columns ...string) (content, source.Progress, error) {
	budget := hosttest.Budget(t, limit)
	lease := budget.Lease("scan")
	defer func() { require.NoError(t, lease.Close()) }()
	table, err := Open(paths, OpenOptions{Threads: 2})
	if err != nil {
		return nil, source.Progress{}, err
	}
	if columns == nil {
		columns = table.Schema().Names()
	}
	for _, name := range columns {
		i := table.Schema().Index(name)
		require.GreaterOrEqual(t, i, 0, name)
		opt.Columns = append(opt.Columns, i)
	}
	opt.Lease = lease
	r, err := table.Scan(context.Background(), opt)
	if err != nil {
		require.Positive(t, limit, "a scan is refused only for its memory")
		return nil, source.Progress{}, err
	}
	defer r.Close()
	out := content{}
	for {
		s, err := r.Read(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_, again := r.Read(context.Background())
			require.Equal(t, err, again, "an error sticks")
			return nil, r.Progress(), err
		}
		require.NoError(t, s.Check())
		if opt.Decode.Pages {
			q, err := decoder(t).NewQueue("decode")
			require.NoError(t, err)
			countDecodes(s)
			if s, err = throughDevice(t, q, s); err != nil {
				return nil, r.Progress(), err
			}
		}
		if opt.StrideRows > 0 {
			require.LessOrEqual(t, s.Rows, opt.StrideRows)
		}
		for i, c := range s.Cols {
			for k := range s.Rows {
				out[s.Schema.Fields[i].Name] = append(out[s.Schema.Fields[i].Name], c.ScalarAt(k))
			}
		}
		s.Release()
	}
	p := r.Progress()
	require.Equal(t, p.RowsTotal, p.RowsRead)
	require.Equal(t, p.BytesTotal, p.BytesRead)
	requireReasons(t, opt, p)
	require.Equal(t, table.Rows(), p.RowsTotal+p.RowsSkipped+p.RowsFiltered)
	return out, p, nil
}

// requireReasons checks that a scan for a device names the reason of each column that the CPU decoded, and no others.
func requireReasons(t testing.TB, opt source.ScanOptions, p source.Progress) {
	require.Len(t, p.Columns, len(opt.Columns))
	for _, d := range p.Columns {
		require.Equal(t, opt.Decode.Pages && d.ByCPU > 0, d.Reason != "", "%+v", d)
		require.GreaterOrEqual(t, d.ByDevice, int64(0), "%+v", d)
	}
}

// decodesAgain counts the columns in pages that a device left to the CPU.
var decodesAgain atomic.Int64

func countDecodes(s *gpu.Stride) {
	for _, c := range s.Cols {
		if p := c.Pages; p != nil {
			decode := p.Decode
			p.Decode = func(reason string) (gpu.Column, error) {
				decodesAgain.Add(1)
				return decode(reason)
			}
		}
	}
}

// scans counts calls of scan.
var scans atomic.Int64

// decoder returns a GPU or the emulator, which decodes pages. It returns nil under the race detector, which does not
// see kernels.
func decoder(t testing.TB) *cuda.Device {
	if gputest.Race {
		return nil
	}
	sharedDevice.Do(func() {
		d, err := cuda.Open(cuda.Options{Library: cudatest.Library(t), HostMemory: 1 << 30})
		require.NoError(t, err)
		sharedDevice.Device = d
	})
	return sharedDevice.Device
}

var sharedDevice struct {
	sync.Once
	*cuda.Device
}

// exceptDevice ignores the goroutine of the GPU, which all tests share.
var exceptDevice = goleak.IgnoreTopFunction("github.com/gstream/gstream/gpu/cuda.(*Device).reap")

// throughDevice copies a stride to a device, which decodes its pages, and back. It takes the stride over.
func throughDevice(t testing.TB, q gpu.Queue, s *gpu.Stride) (*gpu.Stride, error) {
	l := q.Device().Budget().Lease("decode")
	host := q.Device().HostBudget().Lease("decoded")
	defer func() {
		require.NoError(t, q.Close()) // it lets go of dictionaries
		require.NoError(t, l.Close())
		require.NoError(t, host.Close())
	}()
	up, err := q.Upload(l, s)
	if err != nil {
		sharedDevice.Settle() // the copies that were made keep the columns
		s.Release()
		return nil, err
	}
	down, err := q.Download(host, up)
	require.NoError(t, err)
	defer down.Release()
	out := &gpu.Stride{Schema: down.Schema, Rows: down.Rows}
	for _, c := range down.Cols {
		values := make([]gpu.Scalar, c.Len)
		for i := range values {
			values[i] = c.ScalarAt(i)
		}
		out.Cols = append(out.Cols, gpu.ColumnOf(c.Type, values))
	}
	return out, nil
}

func fixture(name string) []string { return []string{filepath.Join("testdata", name)} }

func mustScan(t *testing.T, name string, strideRows int, columns ...string) content {
	t.Helper()
	got, _, err := scan(t, 0, fixture(name),
		source.ScanOptions{StrideRows: strideRows, Decode: source.DecodeOptions{Threads: 2}}, columns...)
	require.NoError(t, err)
	return got
}

// oneOfEachVersion has a file of each version of pages. The other files differ from these only in how pages are
// compressed, which does not change where strides begin.
var oneOfEachVersion = map[string]bool{"encodings-v1-zstd.parquet": true, "encodings-v2-snappy.parquet": true}

func TestEveryEncodingGivesTheValuesOfPlain(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	defer goleak.VerifyNone(t, exceptDevice)
	files, err := filepath.Glob("testdata/encodings-*.parquet")
	require.NoError(t, err)
	require.Len(t, files, 6)
	var first content
	for _, f := range files {
		for _, rows := range []int{1, 37, 110, 100000} {
			if rows == 1 && !oneOfEachVersion[filepath.Base(f)] {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(f), rows), func(t *testing.T) {
				got := mustScan(t, filepath.Base(f), rows)
				compared := 0
				for name, values := range got {
					base, _, encoded := strings.Cut(name, ".")
					require.Len(t, values, 260)
					if encoded {
						require.Equal(t, got[base], values, name)
						compared++
					}
				}
				require.Equal(t, 21, compared)
				for i, v := range got["required"] {
					require.EqualValues(t, i, v.Int.Int64())
				}
				if first == nil {
					first = got
				}
				require.Equal(t, first, got)
			})
		}
	}
}

func TestStridesDecodedInAnyOrderGiveTheSameRows(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	defer func(f func(int) int) { nextTask = f }(nextTask)
	random := rand.New(rand.NewPCG(1, 2)) // used under the lock of a scan, by one scan at a time
	nextTask = random.IntN
	files, err := filepath.Glob("testdata/*.parquet")
	require.NoError(t, err)
	for i, f := range files {
		name := filepath.Base(f)
		if gputest.Race && i%3 > 0 || strings.HasPrefix(name, "encodings-") && !oneOfEachVersion[name] {
			continue // the same goroutines
		}
		table, err := Open([]string{f}, OpenOptions{})
		require.NoError(t, err)
		for _, column := range table.Schema().Names() {
			// All tasks of a row group are in one chunk.
			opt := source.ScanOptions{StrideRows: 7, Decode: source.DecodeOptions{Threads: 8, Inflight: 9}}
			got, _, err := scan(t, 0, []string{f}, opt, column)
			require.NoError(t, err)
			opt.Decode.Threads = 1
			want, _, err := scan(t, 0, []string{f}, opt, column)
			require.NoError(t, err)
			require.Equal(t, want, got, "%s of %s", column, f)
		}
	}
}

func TestAllThreadsDecodeOneColumnOfOneRowGroup(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	table, err := Open(fixture("no-statistics.parquet"), OpenOptions{})
	require.NoError(t, err)
	require.Len(t, table.files[0].groups, 1)
	const threads = 8
	lease := hosttest.Budget(t, 0).Lease("scan")
	var decoded atomic.Int32
	all := make(chan struct{})
	r, err := table.Scan(context.Background(), source.ScanOptions{Columns: []int{0}, StrideRows: 10, Lease: lease,
		Decode: source.DecodeOptions{Threads: threads, Trace: func(string, time.Time) {
			if decoded.Add(1) == threads {
				close(all)
			}
			<-all // each thread has one
		}}})
	require.NoError(t, err)
	select {
	case <-all:
	case <-time.After(10 * time.Second):
		t.Errorf("%d of %d threads have work", decoded.Load(), threads)
		close(all)
	}
	require.NoError(t, r.Close())
	require.NoError(t, lease.Close())
}

func TestDictionaryThatIsGivenUpInsideOfAStrideIsExpanded(t *testing.T) {
	unannounced := edited(t, "fallback.parquet", footer(func(m *format.FileMetaData) {
		for g := range m.RowGroups {
			for c := range m.RowGroups[g].Columns {
				require.NotEmpty(t, chunkOf(m, g, c).EncodingStats)
				chunkOf(m, g, c).EncodingStats = nil
			}
		}
	}))
	for k, rows := range []int{10, 250, 100000, 10, 250, 100000} {
		paths := fixture("fallback.parquet")
		if k < 3 {
			paths = unannounced
		}
		content, _, err := scan(t, 0, paths,
			source.ScanOptions{StrideRows: rows, Decode: source.DecodeOptions{Threads: 2}})
		require.NoError(t, err)
		for i, v := range content["n"] {
			want, valid := i*1e9, i >= 20 && i%11 != 0
			if i < 300 {
				want = i % 7
			}
			require.Equal(t, valid, v.Valid, "row %d", i)
			if valid {
				require.EqualValues(t, want, v.Int.Int64(), "row %d", i)
			}
		}
		got := content["s"]
		require.Len(t, got, 700)
		for i, v := range got {
			want := fmt.Sprintf("value %d", i%7)
			if i >= 300 {
				want = fmt.Sprintf("long value number %d", i-300)
			}
			require.Equal(t, want, v.Str, "row %d", i)
		}
	}
}

func TestEncodedColumnsKeepTheirCodesWhereThoseAreSmaller(t *testing.T) {
	for _, c := range []struct {
		file   string
		rows   int
		widths [][2]int // for s and n, stride by stride
	}{
		// the footer says that the dictionary was given up
		{"fallback.parquet", 250, [][2]int{{0, 0}, {0, 0}}},
		// the last stride has 10 rows
		{"dictionaries.parquet", 50, [][2]int{{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 4}}},
		// a stride has several dictionaries
		{"dictionaries.parquet", 150, [][2]int{{1, 1}, {1, 1}}},
		{"many-dictionaries.parquet", 400, [][2]int{{1, 1}, {1, 1}}},
		{"many-dictionaries.parquet", 4000, [][2]int{{2, 2}}},
		{"page-index.parquet", 4000, [][2]int{{4, 0}}}, // integers that fit 4 bytes, and strings
	} {
		table, err := Open(fixture(c.file), OpenOptions{})
		require.NoError(t, err)
		lease := hosttest.Budget(t, 0).Lease("scan")
		r, err := table.Scan(context.Background(),
			source.ScanOptions{Columns: []int{0, 1}, StrideRows: c.rows, Lease: lease,
				Decode: source.DecodeOptions{Encoded: true}})
		require.NoError(t, err)
		for i, want := range c.widths {
			s, err := r.Read(context.Background())
			require.NoError(t, err)
			require.NoError(t, s.Check())
			require.Equal(t, want, [2]int{s.Cols[0].CodeWidth, s.Cols[1].CodeWidth}, "stride %d of %s by %d", i, c.file,
				c.rows)
			s.Release()
		}
		require.NoError(t, r.Close())
		require.NoError(t, lease.Close())
	}
}

func TestStatisticsThatLieLoseNoDigit(t *testing.T) {
	// By the statistics all values fit 4 bytes, but from row 300 on they do not.
	lying := edited(t, "fallback.parquet", footer(func(m *format.FileMetaData) {
		for g := range m.RowGroups {
			s := &chunkOf(m, g, 1).Statistics
			s.MinValue, s.MaxValue = make([]byte, 8), make([]byte, 8)
		}
	}))
	for _, rows := range []int{10, 250, 100000} {
		want, _, err := scan(t, 0, fixture("fallback.parquet"), source.ScanOptions{StrideRows: rows})
		require.NoError(t, err)
		got, _, err := scan(t, 0, lying, source.ScanOptions{StrideRows: rows})
		require.NoError(t, err)
		require.Equal(t, want, got, "strides of %d rows", rows)
	}
}

func TestAStrideOfFilesThatStoreAColumnDifferentlyHasItsValues(t *testing.T) {
	integers, bytes := "testdata/price-integer.parquet", "testdata/price-bytes.parquet"
	for _, paths := range [][]string{{integers, bytes}, {bytes, integers}, {integers, bytes, integers}} {
		got, _, err := scan(t, 0, paths, source.ScanOptions{})
		require.NoError(t, err)
		require.Len(t, got["price"], 100*len(paths))
		for i, v := range got["price"] {
			require.EqualValues(t, i%100*7919, v.Int.Int64(), "row %d of %v", i, paths)
		}
	}
}

func TestManyDictionariesInAStrideGiveTheirOwnValues(t *testing.T) {
	for _, rows := range []int{7, 400, 900, 4000} {
		got := mustScan(t, "many-dictionaries.parquet", rows)
		require.Len(t, got["s"], 4000)
		for i := range 4000 {
			require.Equal(t, fmt.Sprintf("group %d value %d", i/400, i%90), got["s"][i].Str, "row %d", i)
			require.Equal(t, i%13 != 5, got["n"][i].Valid, "row %d", i)
			if got["n"][i].Valid {
				require.EqualValues(t, i/400*1000000+i%90, got["n"][i].Int.Int64(), "row %d", i)
			}
		}
	}
}

func TestARowGroupOfNullsWithoutADictionaryFollowsCodedOnes(t *testing.T) {
	for _, rows := range []int{700, 3000, 5000, 100000} {
		got := mustScan(t, "null-group.parquet", rows)
		require.Len(t, got["i"], 6144)
		for i := range 6144 {
			for name, want := range map[string]string{
				"s": fmt.Sprint("value ", i%5),
				"n": fmt.Sprint(int64(i%7) * 1e12),
				"f": fmt.Sprint(float64(i%7) / 4),
				"d": fmt.Sprintf("%d.00", i%3),
				"t": fmt.Sprintf("2020-01-%02d", 1+i%9),
				"b": fmt.Sprint(i%2 == 0),
			} {
				v := got[name][i]
				require.Equal(t, i/2048 != 1, v.Valid, "%s of row %d, strides of %d", name, i, rows)
				if v.Valid && v.Type.IsFloat() {
					require.Equal(t, want, fmt.Sprint(v.Float))
				} else if v.Valid {
					require.Equal(t, want, v.String(), "%s of row %d, strides of %d", name, i, rows)
				}
			}
		}
	}
}

func TestStridesAreDecodedAheadWithinTheirBytes(t *testing.T) {
	table, err := Open(fixture("page-index.parquet"), OpenOptions{})
	require.NoError(t, err)
	for bytes, decoded := range map[int64]int{0: 4, 1: minInflight, 1 << 30: 26} {
		lease := hosttest.Budget(t, 0).Lease("scan")
		opened := make(chan struct{}, 1000)
		r, err := table.Scan(context.Background(),
			source.ScanOptions{Columns: []int{0}, StrideRows: 10, Lease: lease,
				Decode: source.DecodeOptions{Threads: 1, Inflight: 4, InflightBytes: bytes,
					Trace: func(string, time.Time) { opened <- struct{}{} }}})
		require.NoError(t, err)
		for range decoded {
			<-opened
		}
		require.NoError(t, r.Close())
		require.Empty(t, opened)
		require.NoError(t, lease.Close())
	}
}

func TestDictionariesOfSeveralRowGroupsMakeOne(t *testing.T) {
	table, err := Open(fixture("dictionaries.parquet"), OpenOptions{})
	require.NoError(t, err)
	lease := hosttest.Budget(t, 0).Lease("scan")
	r, err := table.Scan(context.Background(), source.ScanOptions{Columns: []int{0}, StrideRows: 150, Lease: lease})
	require.NoError(t, err)
	at, strides := 0, 0
	for {
		s, err := r.Read(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.NotNil(t, s.Cols[0].Dict)
		for k := range s.Rows {
			require.Equal(t, fmt.Sprintf("group %d value %d", at/50, at%5), string(s.Cols[0].VarValue(k)))
			at++
		}
		strides++
		s.Release()
	}
	require.Equal(t, 260, at)
	require.Equal(t, 2, strides)
	require.NoError(t, r.Close())
	require.NoError(t, lease.Close())
}

func TestInt96IsMicroseconds(t *testing.T) {
	old, now := mustScan(t, "int96.parquet", 30)["t"], mustScan(t, "int64.parquet", 30)["t"]
	require.Equal(t, gpu.TimestampOf(gpu.Microsecond, false), old[0].Type)
	for i := range now {
		require.EqualValues(t, now[i].Int.Int64()/1000, old[i].Int.Int64())
	}
}

func TestDecimalsOfEveryStorageAreEqual(t *testing.T) {
	got := mustScan(t, "decimals.parquet", 30, "fixed", "int")
	require.Equal(t, gpu.DecimalOf(38, 5), got["fixed"][1].Type)
	require.False(t, got["fixed"][0].Valid)
	require.Equal(t, "-10000000000000000000000000.00001", got["fixed"][1].String())
	require.Equal(t, got["fixed"], mustScan(t, "decimals.parquet", 30, "large")["large"])
	require.Equal(t, "0.99", got["int"][99].String())
}

func TestNestedColumnsAreRead(t *testing.T) {
	table, err := Open(fixture("nested.parquet"), OpenOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"id", "list", "after", "struct", "half"}, table.Schema().Names())
	require.Equal(t, "BIGINT[]", table.Schema().Fields[1].Type.String())
	require.Equal(t, "STRUCT(a BIGINT, b STRUCT(c VARCHAR))", table.Schema().Fields[3].Type.String())
	require.Empty(t, table.Unreadable())
	got := mustScan(t, "nested.parquet", 7)
	for i := range 20 {
		require.EqualValues(t, i, got["id"][i].Int.Int64())
		require.Equal(t, fmt.Sprint(i), got["after"][i].Str)
		require.EqualValues(t, 0.5, got["half"][i].Float)
	}
}

func TestFilesAndRowGroupsWithoutRowsAreRead(t *testing.T) {
	require.Empty(t, mustScan(t, "no-rows.parquet", 10))
	got := mustScan(t, "empty-groups.parquet", 10)["n"]
	require.Len(t, got, 40)
	require.EqualValues(t, 29, got[39].Int.Int64())
}

func TestDuckDBFileIsRead(t *testing.T) {
	got := mustScan(t, "duckdb.parquet", 64)
	for i := range 200 {
		require.Equal(t, fmt.Sprintf("name %d", i%20), got["s"][i].Str)
		require.Equal(t, fmt.Sprintf("%d.00", i), got["d"][i].String())
		require.Equal(t, gpu.DecimalOf(38, 0), got["h"][i].Type)
		require.EqualValues(t, i, got["h"][i].Int.Int64())
		require.Equal(t, fmt.Sprint(i%3 == 0), got["b"][i].String())
		require.Equal(t, gpu.TimestampOf(gpu.Microsecond, true), got["t"][i].Type)
		require.EqualValues(t, 1577836800e6+int64(i)*3600e6, got["t"][i].Int.Int64())
		require.EqualValues(t, i, got["u"][i].Int.Int64())
	}
}

func TestScanWithoutColumnsCountsRows(t *testing.T) {
	table, err := Open(fixture("duckdb.parquet"), OpenOptions{})
	require.NoError(t, err)
	lease := hosttest.Budget(t, 0).Lease("scan")
	r, err := table.Scan(context.Background(), source.ScanOptions{StrideRows: 70, Lease: lease})
	require.NoError(t, err)
	rows := 0
	for {
		s, err := r.Read(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		rows += s.Rows
		s.Release()
	}
	require.Equal(t, 200, rows)
	require.NoError(t, r.Close())
	require.NoError(t, lease.Close())
}

func TestStatisticsBoundTheColumns(t *testing.T) {
	table, err := Open(fixture("duckdb.parquet"), OpenOptions{})
	require.NoError(t, err)
	for name, want := range map[string][2]string{"i": {"0", "199"}, "s": {"name 0", "name 9"}, "d": {"0.00", "199.00"},
		"u": {"0", "199"}} {
		s := table.Stats(table.Schema().Index(name))
		require.True(t, s.HasRange, name)
		require.Equal(t, want, [2]string{s.Min.String(), s.Max.String()}, name)
	}
	none, err := Open(fixture("no-statistics.parquet"), OpenOptions{})
	require.NoError(t, err)
	require.False(t, none.Stats(0).HasRange)
}

func TestRowGroupsThatCannotMatchAreSkipped(t *testing.T) {
	integer := func(v int64) gpu.Scalar { return gpu.IntScalar(gpu.Of(gpu.Int64), v) }
	for _, c := range []struct {
		op      source.Op
		values  []gpu.Scalar
		skipped int64
	}{
		{source.Eq, []gpu.Scalar{integer(50)}, 1},
		{source.Eq, []gpu.Scalar{integer(500)}, 2},
		{source.Lt, []gpu.Scalar{integer(130)}, 1},
		{source.Le, []gpu.Scalar{integer(130)}, 0},
		{source.Gt, []gpu.Scalar{integer(129)}, 1},
		{source.Ge, []gpu.Scalar{integer(129)}, 0},
		{source.In, []gpu.Scalar{integer(-1), integer(150)}, 1},
		{source.In, []gpu.Scalar{gpu.Null(gpu.Of(gpu.Int64))}, 2},
		{source.IsNotNull, nil, 0},
	} {
		opt := source.ScanOptions{Prune: []source.Predicate{{Column: 0, Op: c.op, Values: c.values}}}
		_, p, err := scan(t, 0, fixture("page-index.parquet"), opt, "n")
		require.NoError(t, err)
		require.Equal(t, c.skipped, p.Skipped, "%v %v", c.op, c.values)
	}
}

func TestDirectoriesAndGlobsNameFilesInOrder(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile("testdata/no-statistics.parquet")
	require.NoError(t, err)
	for _, name := range []string{"b.parquet", "a.parquet", "sub/k=1/c.parquet", "_tmp/d.parquet", ".e.parquet",
		"f.txt"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o666))
	}
	table, err := Open([]string{dir}, OpenOptions{NoPartitions: true})
	require.NoError(t, err)
	require.EqualValues(t, 3*260, table.Rows())
	require.Contains(t, table.Describe(), "a.parquet and 2 more files")
	table, err = Open([]string{filepath.Join(dir, "[ab].parquet")}, OpenOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2*260, table.Rows())
	for _, missing := range []string{filepath.Join(dir, "x*.parquet"), filepath.Join(dir, "none.parquet"),
		filepath.Join(dir, "_tmp2")} {
		_, err = Open([]string{missing}, OpenOptions{})
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, missing)
		require.NotErrorIs(t, err, source.ErrData)
	}
}

func TestStrictFilesWithDifferentSchemasAreRefusedByFileAndColumn(t *testing.T) {
	_, err := Open(append(fixture("int64.parquet"), fixture("duckdb.parquet")...), OpenOptions{Strict: true})
	require.ErrorIs(t, err, source.ErrData)
	require.ErrorContains(t, err,
		`duckdb.parquet: column "t" is TIMESTAMP WITH TIME ZONE, in testdata/int64.parquet it is TIMESTAMP_NS`)
	require.ErrorContains(t, err, `duckdb.parquet has a column "s"`)
}

func TestInspectShowsNestedColumnsAndStatistics(t *testing.T) {
	info, err := Inspect(t.Context(), "testdata/nested.parquet")
	require.NoError(t, err)
	require.Equal(t, "list", info.Columns[1].Name)
	require.Equal(t, "BIGINT[]", info.Columns[1].Type)
	require.Empty(t, info.Columns[1].Unreadable)
	require.Equal(t, "struct.b.c", info.RowGroups[0].Chunks[4].Column)
	require.Equal(t, "0", *info.RowGroups[0].Chunks[0].Min)
	require.Equal(t, "19", *info.RowGroups[0].Chunks[0].Max)
	require.Equal(t, "SNAPPY", info.RowGroups[0].Chunks[0].Codec)
	index, err := Inspect(t.Context(), "testdata/page-index.parquet")
	require.NoError(t, err)
	require.True(t, index.RowGroups[0].Chunks[0].PageIndex)
}

func TestCloseInTheMiddleAndCancelLeaveNothing(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	for _, read := range []int{0, 1, 3} {
		table, err := Open(fixture("encodings-v1-none.parquet"), OpenOptions{})
		require.NoError(t, err)
		lease := hosttest.Budget(t, 0).Lease("scan")
		ctx, cancel := context.WithCancel(context.Background())
		r, err := table.Scan(ctx, source.ScanOptions{Columns: []int{0, 1, 2, 3}, StrideRows: 20, Lease: lease})
		require.NoError(t, err)
		for range read {
			s, err := r.Read(ctx)
			require.NoError(t, err)
			s.Release()
		}
		if read == 1 {
			cancel()
			_, err = r.Read(ctx)
			require.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, r.Close())
		require.NoError(t, r.Close())
		require.NoError(t, lease.Close())
		cancel()
	}
}

func TestBudgetErrorOfAScanIsReturnedAsItIs(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	_, _, err := scan(t, 20<<10, fixture("encodings-v1-none.parquet"), source.ScanOptions{})
	var budget *gpu.BudgetError
	require.ErrorAs(t, err, &budget)
	require.Equal(t, "scan", budget.Stage)
}

func TestPagesThatCannotMatchAreSkippedAndNoRowIsLost(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	all := mustScan(t, "page-index.parquet", 1000)
	for _, column := range []string{"n", "s", "u"} {
		for v := range 260 {
			value := all[column][v]
			table, err := Open(fixture("page-index.parquet"), OpenOptions{})
			require.NoError(t, err)
			p := source.Predicate{Column: table.Schema().Index(column), Op: source.Eq, Values: []gpu.Scalar{value}}
			got, progress, err := scan(t, 0, fixture("page-index.parquet"),
				source.ScanOptions{Prune: []source.Predicate{p}, StrideRows: 17})
			require.NoError(t, err)
			if column != "u" {
				require.LessOrEqual(t, progress.RowsTotal, int64(25), "one page of %s", column)
			}
			found := -1
			for i := range got[column] {
				if got[column][i] == value {
					found = i
				}
			}
			require.GreaterOrEqual(t, found, 0, "%s = %v", column, value)
			for _, other := range []string{"n", "s", "u"} {
				require.Equal(t, all[other][v], got[other][found])
			}
		}
	}
}
