package parquet

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	reader "github.com/gstream/gstream/source/parquet"
)

// numbered returns a table whose column n has the numbers of its rows.
func numbered(rows int) table {
	return partitioned(rand.New(rand.NewPCG(21, 21)), rows, gpu.Of(gpu.Int32), 5)
}

// rowNumbers returns the row numbers in each part of a folder, and checks that there are no other files.
func rowNumbers(t *testing.T, folder string) (parts [][]int) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Equal(t, ".gstream-manifest.json", entries[0].Name())
	for i, e := range entries[1:] {
		require.Equal(t, fmt.Sprintf("part-%05d.parquet", i), e.Name())
		rows := []int{}
		for _, text := range readRows(t, filepath.Join(folder, e.Name()), reader.OpenOptions{}) {
			n := 0
			_, err := fmt.Sscanf(text, "%d", &n)
			require.NoError(t, err)
			rows = append(rows, n)
		}
		parts = append(parts, rows)
	}
	return parts
}

// ranges returns the numbers of the rows of ranges, such as 0, 10 and 20, 25.
func ranges(bounds ...int) []int {
	rows := []int{}
	for i := 0; i < len(bounds); i += 2 {
		for n := bounds[i]; n < bounds[i+1]; n++ {
			rows = append(rows, n)
		}
	}
	return rows
}

func TestRowsGoToParts(t *testing.T) {
	sorted := func(rows int64) func() int64 { return func() int64 { return rows } }
	for name, c := range map[string]struct {
		opt  Options
		want [][]int
	}{
		"in turn": {Options{Files: 3}, [][]int{ranges(0, 100, 300, 400, 600, 700), ranges(100, 200, 400, 500, 700, 750),
			ranges(200, 300, 500, 600)}},
		"one file":               {Options{Files: 1}, [][]int{ranges(0, 750)}},
		"more files than groups": {Options{Files: 9, RowGroupRows: 400}, [][]int{ranges(0, 400), ranges(400, 750)}},
		"sorted": {Options{Files: 3, Sorted: sorted(750)}, [][]int{ranges(0, 250), ranges(250, 500),
			ranges(500, 750)}},
		"sorted, estimate too low": {Options{Files: 3, Sorted: sorted(300)}, [][]int{ranges(0, 100), ranges(100, 200),
			ranges(200, 750)}},
		"sorted, estimate too high": {Options{Files: 3, Sorted: sorted(1500)},
			[][]int{ranges(0, 500), ranges(500, 750)}},
		"sorted, unknown":  {Options{Files: 2, Sorted: sorted(0)}, [][]int{ranges(0, 100), ranges(100, 750)}},
		"sorted, no bound": {Options{Files: 2, Sorted: sorted(math.MaxInt64 - 750)}, [][]int{ranges(0, 750)}},
		"sorted, less than a group": {Options{Files: 3, RowGroupRows: 1000, Sorted: sorted(750)},
			[][]int{ranges(0, 750)}},
		"rows of a file": {Options{RowsPerFile: 290, Sorted: sorted(750)}, [][]int{ranges(0, 290), ranges(290, 580),
			ranges(580, 750)}},
		"a folder": {Options{}, [][]int{ranges(0, 750)}},
	} {
		t.Run(name, func(t *testing.T) {
			tab, path := numbered(750), filepath.Join(t.TempDir(), "out")
			if c.opt.RowGroupRows == 0 {
				c.opt.RowGroupRows = 100
			}
			tab.write(t, path+"/", c.opt)
			require.Equal(t, c.want, rowNumbers(t, path))
			c.opt.Overwrite = true
			numbered(0).write(t, path+"/", c.opt)
			require.Equal(t, [][]int{{}}, rowNumbers(t, path), "an output without rows has a file without rows")
		})
	}
}

func TestAFolderHasPartsOfAboutTheSameSize(t *testing.T) {
	tab, path := numbered(750), filepath.Join(t.TempDir(), "out")
	lease := hosttest.Budget(t, 0).Lease("sink")
	w, err := Create(path+"/", tab.schema, Options{Lease: lease, RowGroupRows: 10})
	require.NoError(t, err)
	require.EqualValues(t, partBytes, w.fileBytes)
	w.fileBytes = 3000
	require.NoError(t, tab.tryWrite(w))
	require.NoError(t, lease.Close())
	parts := rowNumbers(t, path)
	require.Greater(t, len(parts), 3)
	all := []int{}
	for i, rows := range parts {
		all = append(all, rows...)
		info, err := os.Stat(filepath.Join(path, fmt.Sprintf("part-%05d.parquet", i)))
		require.NoError(t, err)
		if i < len(parts)-1 {
			require.Greater(t, info.Size(), int64(3000))
		}
		require.Less(t, len(rows), 300)
		require.Zero(t, (len(rows)%10)*(len(parts)-1-i), "a part ends with a row group")
	}
	require.Equal(t, ranges(0, 750), all)
}

// meeting is a disk whose files wait, at their first chunk, for those of a number of other files. It counts the
// chunks of a file that are written at a time.
type meeting struct {
	disk
	files   atomic.Int64
	all     chan struct{} // closed when chunks of all files wait
	crowded atomic.Bool
}

type meetingFile struct {
	outFile
	of      *meeting
	came    bool
	writers atomic.Int64
}

func (m *meeting) create(path string) (outFile, error) {
	f, err := m.disk.create(path)
	return &meetingFile{outFile: f, of: m}, err
}

func (f *meetingFile) WriteAt(p []byte, off int64) (int, error) {
	if f.writers.Add(1) > 1 {
		f.of.crowded.Store(true)
	}
	defer f.writers.Add(-1)
	if off > int64(len(magic)) && !f.came {
		f.came = true
		if f.of.files.Add(-1) == 0 {
			close(f.of.all)
		}
		select {
		case <-f.of.all:
		case <-time.After(10 * time.Second):
			return 0, errors.New("no other file is written at this time")
		}
	}
	return f.outFile.WriteAt(p, off)
}

// The system lets one thread at a time write to a file. So each file has one worker, and several files are written at
// a time.
func TestPartsAreWrittenAtTheSameTimeByOneWorkerEach(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, opt := range map[string]Options{
		"in turn":        {Files: 4, RowGroupRows: 50},
		"sorted":         {Files: 4, RowGroupRows: 50, Sorted: func() int64 { return 800 }},
		"rows of a file": {RowsPerFile: 200, RowGroupRows: 50},
		"a folder":       {RowGroupRows: 50},
	} {
		t.Run(name, func(t *testing.T) {
			tab, path := numbered(800), filepath.Join(t.TempDir(), "out")
			opt.Threads, opt.Lease = 4, hosttest.Budget(t, 1<<30).Lease("sink")
			m := &meeting{all: make(chan struct{})}
			m.files.Store(4)
			w, err := create(m, path+"/", tab.schema, opt)
			require.NoError(t, err)
			w.fileBytes = min(w.fileBytes, 3000)
			require.NoError(t, tab.tryWrite(w))
			require.NoError(t, opt.Lease.Close())
			require.GreaterOrEqual(t, len(rowNumbers(t, path)), 4)
			require.False(t, m.crowded.Load(), "two workers write to a file")
		})
	}
}
