package cuda

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda/emulator"
	"github.com/gstream/gstream/gpu/cuda/internal/manifest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
)

// library returns the driver under test: the machine's if it has a GPU, else the
// emulator.
func library(t *testing.T) string {
	if n, err := Count(""); err == nil && n > 0 && os.Getenv("GSTREAM_EMULATOR") == "" {
		return ""
	}
	return emulator.Build(t)
}

// openTest opens a device with little page-locked memory: the suite opens hundreds of
// devices, and page-locking takes longer than most tests.
func openTest(t *testing.T, memory int64) *Device { return openWith(t, memory, 16<<20) }

func openWith(t *testing.T, memory, hostMemory int64) *Device {
	d, err := Open(Options{Library: library(t), Memory: memory, HostMemory: hostMemory})
	require.NoError(t, err)
	if os.Getenv("GSTREAM_KERNELS") != "" {
		d.props.major = min(d.props.major, 8)
	}
	return d
}

// GSTREAM_KERNELS is a directory with kernels for GPUs before Hopper, compiled for the
// GPU at hand. They replace ours of the same name: compute-sanitizer's initcheck does not
// see what bulk copies write.
func init() {
	if dir := os.Getenv("GSTREAM_KERNELS"); dir != "" {
		fatbins = overlay{os.DirFS(dir), fatbins}
	}
}

// overlay has the files of both file systems. The first wins where both have a file.
type overlay [2]fs.FS

func (o overlay) Open(name string) (fs.File, error) {
	if f, err := o[0].Open(filepath.Base(name)); err == nil {
		return f, nil
	}
	return o[1].Open(name)
}

func TestConformance(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	keep := openTest(t, 0) // keeps the context, so that it is made once
	defer func() { require.NoError(t, keep.Close()) }()
	thin := 0
	if library(t) != "" {
		thin = 601
	}
	gputest.Thin = gputest.ThinOr(t, thin)
	t.Logf("on %s, %s", keep.Properties().Name, keep.Properties().Details)
	files, err := fatbinOf()
	require.NoError(t, err)
	for name := range files {
		_, err := keep.kernels.find(name)
		require.NoError(t, err)
	}
	gputest.Run(t, func(t *testing.T, memory int64) gpu.Device {
		d := openTest(t, memory)
		// Loading takes longer than most tests of the suite under compute-sanitizer.
		d.kernels.byName = keep.kernels.byName
		return d
	}, func(t *testing.T, memory int64) gpu.Device {
		h, err := host.Open(host.Options{Threads: 1, Memory: memory})
		require.NoError(t, err)
		return h
	})
}

func TestEveryKernelIsInTheFatbinThatIsSaidToHaveIt(t *testing.T) {
	dev := openTest(t, 1<<26)
	files, err := fatbinOf()
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for name := range files {
		_, err := dev.kernels.find(name)
		require.NoError(t, err)
	}
	_, err = dev.kernels.find("no_such_kernel")
	require.ErrorContains(t, err, "no kernel is named no_such_kernel")
	require.NoError(t, dev.Close())
}

func TestFatbinsMatchTheirSources(t *testing.T) {
	if _, err := os.Stat("kernels"); err != nil {
		t.Skip("the sources are not here: a test binary away from its tree")
	}
	stale, err := manifest.Stale("kernels")
	require.NoError(t, err)
	require.Empty(t, stale, "run go generate ./gpu/cuda")

	// resources.txt lists the kernels of these fatbins.
	list, err := os.ReadFile("kernels/resources.txt")
	require.NoError(t, err)
	var listed []string
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if len(fields) == 2 {
			fatbin, err := os.ReadFile(filepath.Join("kernels", fields[0]))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("%x", sha256.Sum256(fatbin)), fields[1],
				"%s has changed: run go generate ./gpu/cuda", fields[0])
			continue
		}
		require.Len(t, fields, 3, line)
		listed = append(listed, fields[0])
	}
	files, err := fatbinOf()
	require.NoError(t, err)
	require.ElementsMatch(t, slices.Collect(maps.Keys(files)), listed)
}

// A kernel's static shared memory counts towards what needs permission and towards the most that a block can have.
func TestLaunchesCountStaticSharedMemory(t *testing.T) {
	for _, shared := range []int{0, defaultShared - 264, defaultShared - 16, defaultShared, defaultShared + 16,
		96 << 10} {
		d := openTest(t, 0) // permissions last as long as the device
		dq, err := d.NewQueue("test")
		require.NoError(t, err)
		l := d.Budget().Lease("test")
		o := dq.(*queue).begin("test", l)
		sums := o.alloc(8)
		launch(o, "scan_sums", 1, 256, shared, scanArgs{sums: addr(sums), tiles: 1}) // has 264 static bytes
		sum := make([]byte, 8)
		require.True(t, o.read(sums, 0, sum), "%d bytes: %v", shared, o.err)
		require.Equal(t, make([]byte, 8), sum)
		var none struct{}
		end(o, &none, &err)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.NoError(t, dq.Close())
		require.NoError(t, d.Close())
	}
}

func uintptrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// TestEqualDictionariesGoUpOnce copies up strides whose dictionaries come and go like
// those of row groups.
func TestEqualDictionariesGoUpOnce(t *testing.T) {
	d := openTest(t, 1<<28)
	q, err := d.NewQueue("test")
	require.NoError(t, err)
	l := d.Budget().Lease("test")
	up := func(texts ...string) *gpu.Dictionary {
		values := make([]gpu.Scalar, len(texts))
		for i, s := range texts {
			values[i] = gpu.StringScalar(s)
		}
		last := []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int32), int64(len(texts)-1))}
		c := gpu.Column{Type: gpu.Of(gpu.String), Len: 1, Data: gpu.ColumnOf(gpu.Of(gpu.Int32), last).Data,
			Dict: &gpu.Dictionary{Values: gpu.ColumnOf(gpu.Of(gpu.String), values)}}
		s, err := q.Upload(l, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type}),
			Cols: []gpu.Column{c}, Rows: 1})
		require.NoError(t, err)
		defer s.Release()
		h := d.HostBudget().Lease("down")
		down, err := q.Download(h, &gpu.Stride{Schema: s.Schema, Cols: []gpu.Column{s.Cols[0].Retain()}, Rows: 1})
		require.NoError(t, err)
		require.Equal(t, texts[len(texts)-1], down.Cols[0].ScalarAt(0).Str)
		down.Release()
		return s.Cols[0].Dict
	}
	long := strings.Repeat("x", fewBytes)
	first, second := up("a", "b"), up("b", "a")
	require.NotSame(t, first, second)
	require.Same(t, first, up("a", "b"))
	require.Same(t, second, up("b", "a"))
	require.NotSame(t, first, up("a", "c"))
	require.NotSame(t, first, up("ab", ""))
	require.NotSame(t, up(long), up(long))
	require.NotSame(t, first, up("a", "b"), "a long one replaces all")
	for i := range 2 * keptDicts {
		up(strings.Repeat("y", i), "z")
	}
	require.LessOrEqual(t, len(q.(*queue).upDicts[0]), keptDicts)
	require.NoError(t, q.Close())
	require.NoError(t, l.Close())
	require.Empty(t, d.Budget().Leaks())
	require.NoError(t, d.Close())
}

// The launches of a sort do not grow with the length of strings: those that are equal, or equal for long, are compared.
func TestLongTextsTakeFewLaunches(t *testing.T) {
	text := gpu.Of(gpu.String)
	launches := func(length int) int64 {
		d := openTest(t, 1<<28)
		q, err := d.NewQueue("test")
		require.NoError(t, err)
		l := d.Budget().Lease("test")
		values := make([]gpu.Scalar, 300)
		for i := range values {
			values[i] = gpu.StringScalar(strings.Repeat("x", length) + fmt.Sprint(i%7))
		}
		c := gpu.ColumnOf(text, values)
		s, err := q.Upload(l, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: text}),
			Cols: []gpu.Column{c}, Rows: c.Len})
		require.NoError(t, err)
		ids, err := q.Sort(l, []gpu.SortKey{{Column: s.Cols[0]}})
		require.NoError(t, err)
		ids.Release()
		s.Release()
		require.NoError(t, q.Close())
		require.NoError(t, l.Close())
		require.NoError(t, d.Close()) // waits for the counts
		return d.Activity().Launches
	}
	short := launches(100)
	require.Positive(t, short)
	require.Equal(t, short, launches(3000))
}
