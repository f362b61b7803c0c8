package parquet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/host/hosttest"
	reader "github.com/gstream/gstream/source/parquet"
)

// TestOutputsAdoptTheFilesOfOtherWriters writes an output in parts, of which some are lost or of no use.
func TestOutputsAdoptTheFilesOfOtherWriters(t *testing.T) {
	lease := hosttest.Budget(t, 0).Lease("sink")
	defer func() { require.NoError(t, lease.Close()) }()
	tab := numbered(5)
	for name, c := range map[string]struct {
		opt    Options
		change func(t *testing.T, folder string, first string) // between the parts and the output
		err    string
		files  int
	}{
		"a folder":       {files: 2},
		"rows of a file": {opt: Options{RowsPerFile: 3}, files: 4},
		"partitions":     {opt: Options{PartitionBy: []string{tab.schema.Fields[1].Name}, Sync: true}},
		"a lost file": {err: "no such file", change: func(t *testing.T, folder, first string) {
			require.NoError(t, os.Remove(filepath.Join(folder, first)))
		}},
		"a file that grows": {err: "bytes, and was written with", change: func(t *testing.T, folder, first string) {
			require.NoError(t, os.WriteFile(filepath.Join(folder, first), []byte("x"), 0o600))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			folder, out := filepath.Join(dir, "parts"), filepath.Join(dir, "out")+"/"
			require.NoError(t, os.Mkdir(folder, 0o700))
			c.opt.Lease, c.opt.RowGroupRows = lease, 2
			var files []Part
			for _, attempt := range []string{"00000000000a", "0000000000ff", "000000000001"} {
				w, err := CreateParts(PartOptions{Folder: folder, Attempt: attempt}, tab.schema, c.opt)
				require.NoError(t, err)
				if attempt == "0000000000ff" { // it is lost
					for _, s := range tab.cut(2) {
						require.NoError(t, w.Write(t.Context(), s))
					}
					require.NoError(t, w.Abort())
					continue
				}
				require.NoError(t, tab.tryWrite(w))
				files = append(files, w.Parts()...)
			}
			empty, err := CreateParts(PartOptions{Folder: folder, Attempt: "0000000000ee"}, tab.schema, c.opt)
			require.NoError(t, err)
			require.NoError(t, empty.Commit(t.Context()))
			require.Empty(t, empty.Parts())
			rows := int64(0)
			for _, f := range files {
				rows += f.Rows
			}
			require.EqualValues(t, 10, rows)
			if c.change != nil {
				c.change(t, folder, files[0].Name)
			}
			w, err := Create(out, tab.schema, c.opt)
			require.NoError(t, err)
			w.Adopt(folder, files)
			err = w.Commit(t.Context())
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				requireNames(t, dir, "parts")
				return
			}
			require.NoError(t, err)
			requireNames(t, dir, "out", "parts")
			require.EqualValues(t, 10, w.Stats().Rows)
			require.EqualValues(t, len(files), w.Stats().Files)
			if c.files > 0 {
				left, err := os.ReadDir(folder)
				require.NoError(t, err)
				require.Empty(t, left, "a lost part")
				var numbers []int
				for _, part := range rowNumbers(t, out) {
					numbers = append(numbers, part...)
				}
				require.Equal(t, ranges(0, 5, 0, 5), numbers)
				require.Len(t, files, c.files)
			}
			require.Len(t, readRows(t, out, reader.OpenOptions{}), 10)
		})
	}
}

func TestOutputsAdoptObjectsOfOtherWriters(t *testing.T) { inEachStore(t, adoptsObjects) }

func adoptsObjects(t *testing.T, _ string) {
	lease := hosttest.Budget(t, 0).Lease("sink")
	defer func() { require.NoError(t, lease.Close()) }()
	tab := numbered(40)
	for name, opt := range map[string]Options{"folder": {Append: true, RowsPerFile: 11}, "lost/": {},
		"partitions": {PartitionBy: []string{tab.schema.Fields[1].Name}}} {
		opt.Lease, opt.RowGroupRows = lease, 2
		path := lake + name
		rows := 0
		for run := range 2 { // the second time objects are added, or replaced
			first, err := FirstPart(t.Context(), path, opt)
			require.NoError(t, err)
			require.Equal(t, rows > 0 && opt.Append, first > 0)
			var files []Part
			for i, attempt := range []string{"00000a", "0000ff", "000001"} {
				w, err := CreateParts(PartOptions{Folder: path, Attempt: fmt.Sprintf("abcde%d%s", run, attempt),
					First: first, Number: i}, tab.schema, opt)
				require.NoError(t, err)
				require.NoError(t, tab.tryWrite(w))
				if i == 1 { // it came too late
					require.NoError(t, w.RemoveTemporary())
				} else {
					files = append(files, w.Parts()...)
				}
			}
			w, err := Create(path, tab.schema, opt)
			require.NoError(t, err)
			if w.Adopt("", files); name == "lost/" {
				upload, err := files[0].Upload.Upload()
				require.NoError(t, err)
				if err := upload.Abort(t.Context()); lake[:2] == "az" { // which has nothing to abort
					require.NoError(t, err)
					require.NoError(t, w.Abort())
					break
				}
				require.Error(t, w.Commit(t.Context()))
				found, uploads := namesOf(t, path)
				require.Empty(t, found)
				require.Zero(t, uploads)
				break
			}
			require.NoError(t, w.Commit(t.Context()))
			rows = len(readRows(t, path, reader.OpenOptions{}))
			opt.Overwrite = !opt.Append
		}
		found, uploads := namesOf(t, path)
		require.Zero(t, uploads)
		switch name {
		case "folder":
			require.Len(t, found, 17)
			var numbers []int
			slices.Sort(found)
			for _, file := range found[1:] { // behind the manifest
				var some []int
				for _, text := range readRows(t, path+file, reader.OpenOptions{}, "n") {
					n := 0
					_, err := fmt.Sscanf(text, "%d", &n)
					require.NoError(t, err)
					some = append(some, n)
				}
				slices.Sort(some)
				numbers = append(numbers, some...)
			}
			require.Equal(t, ranges(0, 40, 0, 40, 0, 40, 0, 40), numbers)
		case "partitions":
			require.Equal(t, 80, rows)
		}
	}
	// Those of a run whose output is not committed.
	to := PartOptions{Folder: lake + "left", Attempt: "abcdef000001"}
	w, err := CreateParts(to, tab.schema, Options{Lease: lease})
	require.NoError(t, err)
	require.NoError(t, tab.tryWrite(w))
	require.NoError(t, AbortParts(t.Context(), lake+"left/", "abcdef"))
	found, uploads := namesOf(t, lake+"left")
	require.Empty(t, found)
	require.Zero(t, uploads)
}
