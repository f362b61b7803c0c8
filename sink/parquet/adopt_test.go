package parquet

import (
	"os"
	"path/filepath"
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
				w, err := CreateParts(folder, attempt, tab.schema, c.opt)
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
			empty, err := CreateParts(folder, "0000000000ee", tab.schema, c.opt)
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
