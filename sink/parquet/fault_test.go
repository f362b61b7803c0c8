package parquet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// failing is a disk on which operation number n, and all later writes, fail.
type failing struct {
	disk
	left       atomic.Int64
	err        error
	noExchange bool
}

func (f *failing) fail(path string) error {
	if f.left.Add(-1) == 0 {
		return &os.PathError{Op: "write", Path: path, Err: f.err}
	}
	return nil
}

func (f *failing) stage(target string, folder bool) (string, outFile, error) {
	if err := f.fail(target); err != nil {
		return "", nil, err
	}
	path, lock, err := f.disk.stage(target, folder)
	return path, &failingLock{failingFile{lock, f, path}}, err
}

func (f *failing) exchange(a, b string) error {
	if f.noExchange {
		return errors.ErrUnsupported
	}
	if err := f.fail(b); err != nil {
		return err
	}
	return f.disk.exchange(a, b)
}

func (f *failing) create(path string) (outFile, error) {
	if err := f.fail(path); err != nil {
		return nil, err
	}
	file, err := f.disk.create(path)
	if err != nil {
		return nil, err
	}
	return &failingFile{file, f, path}, nil
}

func (f *failing) mkdir(path string) error {
	if err := f.fail(path); err != nil {
		return err
	}
	return f.disk.mkdir(path)
}

func (f *failing) rename(from, to string, replace bool) error {
	if err := f.fail(to); err != nil {
		return err
	}
	return f.disk.rename(from, to, replace)
}

func (f *failing) syncDir(path string) error {
	if err := f.fail(path); err != nil {
		return err
	}
	return f.disk.syncDir(path)
}

func (f *failing) finish(temporary, target string) error {
	if err := f.fail(target); err != nil {
		return err
	}
	return f.disk.finish(temporary, target)
}

type failingFile struct {
	outFile
	disk *failing
	path string
}

func (f *failingFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.disk.fail(f.path); err != nil {
		return 0, err
	}
	return f.outFile.WriteAt(p, off)
}

func (f *failingFile) Sync() error {
	if err := f.disk.fail(f.path); err != nil {
		return err
	}
	return f.outFile.Sync()
}

func (f *failingFile) Close() error {
	err := f.outFile.Close()
	return errors.Join(err, f.disk.fail(f.path))
}

// failingLock is a file that is closed to unlock it.
type failingLock struct{ failingFile }

func (f *failingLock) Close() error { return f.outFile.Close() }

func (tab table) tryWrite(w *Writer) error {
	for _, s := range tab.strides {
		kept := &gpu.Stride{Schema: s.Schema, Rows: s.Rows}
		for _, c := range s.Cols {
			kept.Cols = append(kept.Cols, c.Retain())
		}
		if err := w.Write(context.Background(), kept); err != nil {
			return errors.Join(err, w.Abort())
		}
	}
	return w.Commit(context.Background())
}

func TestEveryFailingOperationLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t)
	// One column for each way to encode: failures do not depend on the type.
	tab := randomTable(rand.New(rand.NewPCG(5, 5)), 300, 0.2, gpu.Of(gpu.Int64), gpu.Of(gpu.String), gpu.Of(gpu.Bool))
	old := randomTable(rand.New(rand.NewPCG(6, 6)), 10, 0, gpu.Of(gpu.Int64))
	for name, opt := range map[string]Options{
		"file":           {Sync: true, RowGroupRows: 100},
		"directory":      {Sync: true, RowGroupRows: 60, RowsPerFile: 120},
		"replaced":       {Sync: true, RowGroupRows: 100, Overwrite: true},
		"directory over": {Sync: true, RowsPerFile: 120, Overwrite: true},
		"by two renames": {Sync: true, RowsPerFile: 120, Overwrite: true},
		"partitions":     {Sync: true, RowGroupRows: 60, PartitionBy: []string{"c02"}},
		"files in turn":  {Sync: true, RowGroupRows: 75, Files: 3, Threads: 4},
		"sorted files":   {Sync: true, RowGroupRows: 75, Files: 3, Threads: 4, Sorted: func() int64 { return 300 }},
		"slash":          {Sync: true, RowGroupRows: 75, Threads: 4},
		"new parents":    {Sync: true, RowGroupRows: 100},
		"replaced below": {Sync: true, RowGroupRows: 100, Overwrite: true},
	} {
		t.Run(name, func(t *testing.T) {
			succeeded := false
			for n := 1; !succeeded; n++ {
				require.Less(t, n, 2000)
				dir := t.TempDir()
				path := filepath.Join(dir, "out")
				before := 0
				budget := hosttest.Budget(t, 0)
				opt.Lease = budget.Lease("sink")
				if name == "new parents" || name == "replaced below" {
					path = filepath.Join(dir, "a", "b", "out")
				} else if opt.Overwrite {
					before = 1
					if opt.RowsPerFile > 0 {
						w, err := Create(path, old.schema, Options{Lease: opt.Lease, RowsPerFile: 5})
						require.NoError(t, err)
						require.NoError(t, old.tryWrite(w))
					} else {
						require.NoError(t, os.WriteFile(path, []byte("old"), 0o666))
					}
				}
				f := &failing{err: syscall.ENOSPC, noExchange: name == "by two renames"}
				f.left.Store(int64(n))
				if name == "slash" {
					path += "/"
				}
				w, err := create(f, path, tab.schema, opt)
				if err == nil {
					w.fileBytes = min(w.fileBytes, 1)
					err = tab.tryWrite(w)
				}
				require.NoError(t, opt.Lease.Close())
				entries, readErr := os.ReadDir(dir)
				require.NoError(t, readErr)
				if succeeded = f.left.Load() > 0; succeeded {
					require.NoError(t, err)
					require.Len(t, entries, 1)
					continue
				}
				require.ErrorIs(t, err, syscall.ENOSPC, "operation %d", n)
				require.ErrorContains(t, err, dir)
				require.Len(t, entries, before, "operation %d left %v", n, entries)
				if before > 0 && opt.RowsPerFile > 0 {
					old.requireRead(t, path, 100)
				}
			}
		})
	}
}

func TestMissingParentsAreMadeAndRemovedByAbort(t *testing.T) {
	tab := randomTable(rand.New(rand.NewPCG(11, 11)), 10, 0)
	for _, perFile := range []int64{0, 5} {
		t.Run(fmt.Sprint("rows per file ", perFile), func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a", "b", "out")
			lease := hosttest.Budget(t, 0).Lease("sink")
			opt := Options{Lease: lease, RowsPerFile: perFile}
			w, err := Create(path, tab.schema, opt)
			require.NoError(t, err)
			require.NoError(t, w.Abort())
			require.NoDirExists(t, filepath.Join(dir, "a"))

			w, err = Create(path, tab.schema, opt)
			require.NoError(t, err)
			other := filepath.Join(dir, "a", "other")
			require.NoError(t, os.WriteFile(other, nil, 0o666))
			require.NoError(t, w.Abort())
			require.FileExists(t, other, "what others put there stays")
			require.NoDirExists(t, filepath.Join(dir, "a", "b"))

			w, err = Create(path, tab.schema, opt)
			require.NoError(t, err)
			require.NoError(t, tab.tryWrite(w))
			tab.requireRead(t, path, 100)

			_, err = Create(filepath.Join(other, "b", "out"), tab.schema, opt)
			require.ErrorIs(t, err, syscall.ENOTDIR)
			require.ErrorContains(t, err, other)
			require.NoError(t, lease.Close())
		})
	}
}

func TestBudgetThatIsTooSmallIsReportedAndLeavesNothing(t *testing.T) {
	tab := randomTable(rand.New(rand.NewPCG(6, 6)), 2000, 0)
	dir := t.TempDir()
	lease := hosttest.Budget(t, 1<<10).Lease("sink")
	w, err := Create(filepath.Join(dir, "out.parquet"), tab.schema, Options{Lease: lease})
	require.NoError(t, err)
	err = tab.tryWrite(w)
	require.ErrorIs(t, err, gpu.ErrBudget)
	require.NoError(t, lease.Close())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// The memory of an output is that of its values, however many columns they are in.
func TestColumnsOfFewBytesTakeLittle(t *testing.T) {
	const columns, rows = 500, 100
	i64 := gpu.Of(gpu.Int64)
	values := make([]gpu.Scalar, rows)
	for i := range values {
		values[i] = gpu.IntScalar(i64, int64(i)*1e6)
	}
	s := &gpu.Stride{Rows: rows}
	var fields []gpu.Field
	for i := range columns {
		fields = append(fields, gpu.Field{Name: fmt.Sprint("c", i), Type: i64})
		s.Cols = append(s.Cols, gpu.ColumnOf(i64, values))
	}
	s.Schema = gpu.NewSchema(fields...)
	budget := hosttest.Budget(t, 3<<20)
	lease := budget.Lease("sink")
	w, err := Create(filepath.Join(t.TempDir(), "out.parquet"), s.Schema, Options{Lease: lease})
	require.NoError(t, err)
	require.NoError(t, w.Write(t.Context(), s))
	require.NoError(t, w.Commit(t.Context()))
	require.NoError(t, lease.Close())
}

func TestExistingTargetIsRefusedAtCreateAndAtCommit(t *testing.T) {
	tab := randomTable(rand.New(rand.NewPCG(7, 7)), 10, 0)
	for _, perFile := range []int64{0, 5} {
		t.Run(fmt.Sprint("rows per file ", perFile), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out")
			lease := hosttest.Budget(t, 0).Lease("sink")
			opt := Options{Lease: lease, RowsPerFile: perFile}
			w, err := Create(path, tab.schema, opt)
			require.NoError(t, err)
			file := path
			if perFile > 0 {
				require.NoError(t, os.Mkdir(path, 0o777))
				file = filepath.Join(path, "file")
			}
			require.NoError(t, os.WriteFile(file, []byte("precious"), 0o666))
			_, err = Create(path, tab.schema, opt)
			require.ErrorIs(t, err, os.ErrExist)
			require.ErrorContains(t, err, "or use Overwrite")
			require.ErrorIs(t, tab.tryWrite(w), os.ErrExist)
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, "precious", string(b))
			require.NoError(t, lease.Close())
		})
	}
}

func TestOverwriteReplacesOnlyAtCommit(t *testing.T) {
	tab := randomTable(rand.New(rand.NewPCG(8, 8)), 10, 0)
	path := filepath.Join(t.TempDir(), "out.parquet")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o666))
	lease := hosttest.Budget(t, 0).Lease("sink")
	w, err := Create(path, tab.schema, Options{Lease: lease, Overwrite: true})
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(b))
	require.NoError(t, tab.tryWrite(w))
	tab.requireRead(t, path, 100)
	require.NoError(t, w.Abort(), "after Commit it does nothing")
	tab.requireRead(t, path, 100)
	require.NoError(t, lease.Close())
}

func TestCancelledWriteLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	tab := randomTable(rand.New(rand.NewPCG(9, 9)), 1000, 0)
	dir := t.TempDir()
	lease := hosttest.Budget(t, 0).Lease("sink")
	w, err := Create(filepath.Join(dir, "out.parquet"), tab.schema, Options{Lease: lease, RowGroupRows: 50})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, s := range tab.strides {
		err = errors.Join(err, w.Write(ctx, s))
	}
	require.ErrorIs(t, errors.Join(err, w.Commit(ctx)), context.Canceled)
	require.NoError(t, lease.Close())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestOptionsReportEveryFaultAtOnce(t *testing.T) {
	opt := Options{Compression: "rar", RowGroupRows: -1, PageRows: -2, PageBytes: -3, Dictionary: "maybe",
		RowsPerFile: -4}
	opt.EnsureDefaults()
	err := opt.Validate()
	for _, part := range []string{"rar", "row_group_rows", "page_rows", "page_bytes", "maybe", "rows_per_file"} {
		require.ErrorContains(t, err, part)
	}
	for _, c := range []struct {
		opt  Options
		want string
	}{
		{Options{Files: -1}, "files -1 is out of range"},
		{Options{Files: 257}, "rows_per_file writes any number"},
		{Options{Files: 2, RowsPerFile: 3}, "files and rows_per_file"},
		{Options{Files: 2, PartitionBy: []string{"k"}}, "not for an output with partition_by"},
	} {
		c.opt.EnsureDefaults()
		require.ErrorContains(t, c.opt.Validate(), c.want)
	}
	opt = Options{Level: 3}
	opt.EnsureDefaults()
	require.ErrorContains(t, opt.Validate(), "snappy has no levels")
}

func TestNullInAColumnWithoutNullsIsAnError(t *testing.T) {
	schema := gpu.NewSchema(gpu.Field{Name: "n", Type: gpu.Of(gpu.Int32)})
	s := &gpu.Stride{Schema: schema, Rows: 1,
		Cols: []gpu.Column{gpu.ColumnOf(gpu.Of(gpu.Int32), []gpu.Scalar{gpu.Null(gpu.Of(gpu.Int32))})}}
	lease := hosttest.Budget(t, 0).Lease("sink")
	w, err := Create(filepath.Join(t.TempDir(), "x"), schema, Options{Lease: lease})
	require.NoError(t, err)
	require.NoError(t, w.Write(context.Background(), s))
	require.ErrorContains(t, w.Commit(context.Background()), `column "n" has 1 nulls`)
	require.NoError(t, lease.Close())
}

func TestRowGroupsAreQueuedForEveryWorkerAsFarAsThereIsMemory(t *testing.T) {
	lease := hosttest.Budget(t, 1<<30).Lease("row groups")
	defer func() { require.NoError(t, lease.Close()) }()
	limit := lease.Limit() / 8
	for _, c := range []struct {
		threads, columns, want int
		bytes                  int64
	}{
		{16, 16, 17, limit / 100},
		{16, 16, 8, limit / 8},
		{16, 16, 2, limit},
		{16, 4, 5, limit},
		{16, 4, 1, 10 * limit}, // there is no memory to encode a second row group
		{2, 100, 3, 1},
	} {
		w := &Writer{opt: Options{Threads: c.threads, Lease: lease}, columns: make([]column, c.columns)}
		g := &group{bytes: c.bytes}
		for w.room(g) {
			w.queue = append(w.queue, g)
		}
		require.Len(t, w.queue, c.want, "%+v", c)
	}
}
