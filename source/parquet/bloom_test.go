package parquet

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/source"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// bloomScan scans bloom.parquet, or a modified copy, for rows in which a column has one
// of the values.
func bloomScan(t *testing.T, paths []string, column string, values ...gpu.Scalar) (content, source.Progress) {
	t.Helper()
	table, err := Open(paths, OpenOptions{})
	require.NoError(t, err)
	op := source.Eq
	if len(values) != 1 {
		op = source.In
	}
	p := source.Predicate{Column: table.Schema().Index(column), Op: op, Values: values}
	got, progress, err := scan(t, 0, paths, source.ScanOptions{Prune: []source.Predicate{p}})
	require.NoError(t, err)
	return got, progress
}

// The first row group has the multiples of 4 up to 196, the second the other even numbers
// up to 198. So the statistics rule out neither.
func TestBloomFiltersRuleOutRowGroups(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	defer goleak.VerifyNone(t, exceptDevice)
	path := fixture("bloom.parquet")
	all := mustScan(t, "bloom.parquet", 5000)
	for _, column := range []string{"i", "n", "s", "f", "d", "t", "u"} {
		value := func(k int) gpu.Scalar {
			for row, v := range all["i"] {
				if v.Int.Int64() == int64(k) {
					return all[column][row]
				}
			}
			v := all[column][0] // the value of k = 0
			switch {
			case v.Type.IsVar():
				v.Str = fmt.Sprint("key ", k)
			case v.Type.IsFloat():
				v.Float = float64(k)
			case v.Type.Kind == gpu.Decimal:
				v.Int = gpu.Int128From(int64(100 * k))
			default:
				v.Int, _ = v.Int.Add(gpu.Int128From(int64(k)))
			}
			return v
		}
		skipped := int64(0)
		for k := 1; k < 198; k++ {
			got, p := bloomScan(t, path, column, value(k))
			skipped += p.Skipped
			if k%2 == 0 {
				require.LessOrEqual(t, p.Skipped, int64(1))
				require.Contains(t, got[column], value(k))
			}
		}
		// Both row groups for 99 odd values, and one for 98 even values. A filter has one
		// false positive in a hundred values.
		require.Greater(t, skipped, int64((2*99+98)*95/100), column)
		_, one := bloomScan(t, path, column, value(1))
		_, p := bloomScan(t, path, column, value(1), gpu.Null(value(1).Type))
		require.Equal(t, one.Skipped, p.Skipped, column)
		_, p = bloomScan(t, path, column, value(4), value(6))
		require.Zero(t, p.Skipped, column)
	}
	_, p := bloomScan(t, path, "h", gpu.Scalar{Type: all["h"][0].Type, Valid: true, Int: gpu.Int128From(5)})
	require.Zero(t, p.Skipped, "it has no filter")
}

func TestBloomFilterOfFloatsIsNotAskedForZero(t *testing.T) {
	for _, zero := range []float64{0, math.Copysign(0, -1)} {
		got, _ := bloomScan(t, fixture("bloom.parquet"), "f",
			gpu.Scalar{Type: gpu.Of(gpu.Float64), Valid: true, Float: zero})
		require.Contains(t, got["f"], gpu.Scalar{Type: gpu.Of(gpu.Float64), Valid: true})
	}
}

func TestDamagedBloomFilterIsNotUsed(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	table, err := Open(fixture("bloom.parquet"), OpenOptions{})
	require.NoError(t, err)
	at := table.files[0].groups[0].chunks[0].bloom.start
	value := gpu.IntScalar(gpu.Of(gpu.Int64), 100)
	for i := range int64(16) { // bytes of the header
		for _, b := range []byte{0, 0x15, 0x7f, 0xff} {
			path := edited(t, "bloom.parquet", func(file []byte) []byte { file[at+i] = b; return file })
			bloomScan(t, path, "i", value) // no error and no panic
		}
	}
	path := edited(t, "bloom.parquet", func(file []byte) []byte { file[at] = 0xff; return file })
	got, p := bloomScan(t, path, "i", value)
	require.Contains(t, got["i"], value)
	require.EqualValues(t, 1, p.Skipped, "the filter of the other row group")
}

func TestThousandsOfFilesAreReadWithFewOpenAtATime(t *testing.T) {
	defer goleak.VerifyNone(t, exceptDevice)
	const files = 2000
	b, err := os.ReadFile("testdata/int64.parquet")
	require.NoError(t, err)
	dir := t.TempDir()
	for i := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.parquet", i)), b, 0o666))
	}
	// The process has a few open files already. The scan gets 40 more.
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	low := limit
	low.Cur = uint64(len(open) + 40)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) }()

	one := mustScan(t, "int64.parquet", 1000)["t"]
	for _, rows := range []int{64, 1 << 17} {
		got, _, err := scan(t, 0, []string{dir},
			source.ScanOptions{StrideRows: rows, Decode: source.DecodeOptions{Threads: 4}})
		require.NoError(t, err)
		require.Len(t, got["t"], files*len(one))
		for i := range files {
			require.Equal(t, one, got["t"][i*len(one):(i+1)*len(one)])
		}
	}
}
