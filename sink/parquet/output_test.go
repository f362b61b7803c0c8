package parquet

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/sink/staging"
	"github.com/stretchr/testify/require"
)

// newSmall returns a table of two parts of five rows, and options for a file or a folder
// of it.
func newSmall(t *testing.T, folder bool) (table, Options) {
	lease := hosttest.Budget(t, 0).Lease("sink")
	t.Cleanup(func() { require.NoError(t, lease.Close()) })
	opt := Options{Lease: lease}
	if folder {
		opt.RowsPerFile = 5
	}
	return randomTable(rand.New(rand.NewPCG(12, 12)), 10, 0), opt
}

// replace writes a table over the target at path.
func (tab table) replace(path string, opt Options) error {
	opt.Overwrite = true
	w, err := Create(path, tab.schema, opt)
	if err != nil {
		return err
	}
	return tab.tryWrite(w)
}

func requireNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	require.Equal(t, want, got)
}

func TestOnlyFilesAreReplacedByAFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o666))
	l, err := net.Listen("unix", at("socket"))
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, os.Mkdir(at("folder"), 0o777))
	require.NoError(t, os.Symlink(os.DevNull, at("null")))
	require.NoError(t, os.Symlink("null", at("null of null")))
	require.NoError(t, os.Symlink("pipe", at("link")))
	require.NoError(t, os.WriteFile(at("file"), nil, 0o666))
	for name, want := range map[string]string{
		"pipe": "named pipe", "socket": "socket", "folder": "rows_per_file", "null": "device", "null of null": "device",
		"link": "named pipe",
		"file": "rows_per_file",
	} {
		tab, opt := newSmall(t, name == "file")
		before, err := os.Lstat(at(name))
		require.NoError(t, err)
		require.ErrorContains(t, CheckTarget(at(name), opt), want, name)
		for _, opt.Overwrite = range []bool{false, true} {
			_, err = Create(at(name), tab.schema, opt)
			require.ErrorContains(t, err, want, name)
			require.ErrorContains(t, err, at(name))
		}
		after, err := os.Lstat(at(name))
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after), name)
		require.Equal(t, before.Mode(), after.Mode(), name)
	}
	info, err := os.Stat(os.DevNull)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeDevice)
	requireNames(t, dir, "file", "folder", "link", "null", "null of null", "pipe", "socket")
}

func TestTargetThatBecomesAPipeMeanwhileIsKept(t *testing.T) {
	tab, opt := newSmall(t, false)
	opt.Overwrite = true
	path := filepath.Join(t.TempDir(), "out")
	w, err := Create(path, tab.schema, opt)
	require.NoError(t, err)
	require.NoError(t, syscall.Mkfifo(path, 0o666))
	require.ErrorContains(t, tab.tryWrite(w), "named pipe")
	requireNames(t, filepath.Dir(path), "out")
}

func TestLinksAreFollowedAndKept(t *testing.T) {
	for name, folder := range map[string]bool{"file": false, "folder": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			tab, opt := newSmall(t, folder)
			require.NoError(t, os.MkdirAll(at("data/below"), 0o777))
			require.NoError(t, os.Symlink("data/below", at("folder")))
			require.NoError(t, os.Symlink("../out", at("data/below/link")))
			require.NoError(t, os.Symlink("data/below/link", at("chain")))
			for _, path := range []string{"folder/link", "chain"} { // the links dangle at first
				require.NoError(t, tab.replace(at(path), opt))
				tab.requireRead(t, at("data/out"), 100)
				requireNames(t, at("data"), "below", "out")
				requireNames(t, at("data/below"), "link")
			}
			requireNames(t, dir, "chain", "data", "folder")
			_, err := Create(at("chain"), tab.schema, opt)
			require.ErrorIs(t, err, os.ErrExist)
			require.ErrorContains(t, err, at("chain"))
			require.NoError(t, os.Symlink("loop", at("loop")))
			require.ErrorContains(t, tab.replace(at("loop"), opt), "too many levels of symbolic links")
		})
	}
}

func TestFolderIsReplacedOnlyWhenAllInItIsOfAnEarlierOutput(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string) error
		want   string // empty when it is replaced
	}{
		"as it was":        {func(string) error { return nil }, ""},
		"a part is gone":   {func(dir string) error { return os.Remove(dir + "/part-00001.parquet") }, ""},
		"a file of others": {func(dir string) error { return os.WriteFile(dir+"/notes.txt", nil, 0o666) }, "notes.txt"},
		"a hidden file":    {func(dir string) error { return os.WriteFile(dir+"/.notes", nil, 0o666) }, ".notes"},
		"a folder":         {func(dir string) error { return os.Mkdir(dir+"/2026", 0o777) }, "2026"},
		"a part of others": {func(dir string) error { return os.WriteFile(dir+"/part-00002.parquet", nil, 0o666) },
			"part-00002.parquet"},
		"a changed part": {func(dir string) error {
			return os.WriteFile(dir+"/part-00001.parquet", []byte("x"),
				0o666)
		}, "part-00001.parquet"},
		"a linked part": {func(dir string) error {
			part := dir + "/part-00001.parquet"
			return errors.Join(os.Rename(part, dir+"/../moved.parquet"), os.Symlink("../moved.parquet", part))
		}, "part-00001.parquet"},
		"no manifest": {func(dir string) error { return os.Remove(dir + "/.gstream-manifest.json") },
			"without the file .gstream-manifest.json"},
		"another manifest": {func(dir string) error {
			return os.WriteFile(dir+"/.gstream-manifest.json", []byte("x"),
				0o666)
		}, "without the file"},
		"many": {func(dir string) error {
			for _, n := range "abcdefgh" {
				if err := os.WriteFile(dir+"/"+string(n), nil, 0o666); err != nil {
					return err
				}
			}
			return nil
		}, "a, b, c, d, e and 3 more"},
	} {
		for _, late := range []bool{false, true} {
			tab, opt := newSmall(t, true)
			dir := filepath.Join(t.TempDir(), "out")
			tab.write(t, dir, Options{RowsPerFile: 5})
			opt.Overwrite = true
			if !late {
				require.NoError(t, c.change(dir))
			}
			w, err := Create(dir, tab.schema, opt)
			if err == nil {
				if late {
					require.NoError(t, c.change(dir))
				}
				err = tab.tryWrite(w)
			}
			requireNames(t, filepath.Dir(dir),
				map[bool][]string{true: {"moved.parquet", "out"}, false: {"out"}}[name == "a linked part"]...)
			if c.want == "" {
				require.NoError(t, err, name)
				tab.requireRead(t, dir, 100)
				requireNames(t, dir, ".gstream-manifest.json", "part-00000.parquet", "part-00001.parquet")
				continue
			}
			require.ErrorContains(t, err, c.want, name)
			require.ErrorContains(t, err, dir)
			require.FileExists(t, dir+"/part-00000.parquet")
		}
	}
}

func TestEmptyFolderIsReplaced(t *testing.T) {
	tab, opt := newSmall(t, true)
	dir := t.TempDir()
	require.NoError(t, tab.replace(dir, opt))
	tab.requireRead(t, dir, 100)
}

// meddling is a disk on which somebody puts a file into a folder at the moment it is
// replaced.
type meddling struct {
	disk
	dir        string
	noExchange bool
}

func (m *meddling) exchange(a, b string) error {
	if b == m.dir {
		if err := os.WriteFile(filepath.Join(m.dir, "precious"), nil, 0o666); err != nil {
			return err
		}
		m.dir = ""
	}
	if m.noExchange {
		return errors.ErrUnsupported
	}
	return m.disk.exchange(a, b)
}

func TestFileThatComesIntoAFolderWhileItIsReplacedIsKept(t *testing.T) {
	for _, noExchange := range []bool{false, true} {
		tab, opt := newSmall(t, true)
		dir := filepath.Join(t.TempDir(), "out")
		tab.write(t, dir, opt)
		opt.Overwrite = true
		w, err := create(&meddling{dir: dir, noExchange: noExchange}, dir, tab.schema, opt)
		require.NoError(t, err)
		require.ErrorContains(t, tab.tryWrite(w), "precious")
		requireNames(t, dir, ".gstream-manifest.json", "part-00000.parquet", "part-00001.parquet", "precious")
		requireNames(t, filepath.Dir(dir), "out")
	}
}

func TestFolderThatAnotherProcessReplacesIsRefused(t *testing.T) {
	tab, opt := newSmall(t, true)
	dir := filepath.Join(t.TempDir(), "out")
	tab.write(t, dir, opt)
	f, err := os.Open(filepath.Join(dir, staging.LockName))
	require.NoError(t, err)
	require.NoError(t, staging.Lock(f))
	require.ErrorContains(t, tab.replace(dir, opt), "is being written by another process")
	require.NoError(t, f.Close())
	require.NoError(t, tab.replace(dir, opt))
	requireNames(t, filepath.Dir(dir), "out")
}

func TestAnotherRunningOutputIsNotSwept(t *testing.T) {
	for _, folder := range []bool{false, true} {
		tab, opt := newSmall(t, folder)
		path := filepath.Join(t.TempDir(), "out")
		first, err := Create(path, tab.schema, opt)
		require.NoError(t, err)
		tab.write(t, path+" of another", opt)
		require.NoError(t, tab.tryWrite(first))
		tab.requireRead(t, path, 100)
		requireNames(t, filepath.Dir(path), "out", "out of another")
	}
}

func TestReadersOfFoldersPassOverTheManifest(t *testing.T) {
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON does not name a Python with duckdb and pyarrow")
	}
	tab, opt := newSmall(t, true)
	dir := filepath.Join(t.TempDir(), "out")
	tab.write(t, dir, opt)
	out, err := exec.Command(python, "-c", `
import sys, duckdb, pyarrow.dataset, pyarrow.parquet
d = sys.argv[1]
for path in (d, d + '/*.parquet', d + '/**/*.parquet'):
    print(duckdb.sql('select count(*) from read_parquet($p)', params={'p': path}).fetchall()[0][0])
print(pyarrow.dataset.dataset(d).count_rows(), pyarrow.parquet.read_table(d).num_rows)`, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "10\n10\n10\n10 10\n", string(out))
}
