package parquet

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
)

// accessOf returns the modes of everything in a folder or of a file, which all belong to one
// user and group.
func accessOf(t *testing.T, path string, uid, gid int) map[string]fs.FileMode {
	out := map[string]fs.FileMode{}
	require.NoError(t, filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		name, err := filepath.Rel(path, at)
		require.NoError(t, err)
		out[name] = info.Mode().Perm()
		s := info.Sys().(*syscall.Stat_t)
		require.Equal(t, []uint32{uint32(uid), uint32(gid)}, []uint32{s.Uid, s.Gid}, at)
		return nil
	}))
	return out
}

func TestAReplacedOutputKeepsItsModeAndOwner(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	for _, opt := range []Options{{}, {RowsPerFile: 20}, {PartitionBy: []string{"k"}}} {
		for _, mode := range []fs.FileMode{0o600, 0o640, 0o444, 0o666} {
			tab := partitioned(rand.New(rand.NewPCG(1, 1)), 50, gpu.Of(gpu.Int8), 3)
			path := filepath.Join(t.TempDir(), "out")
			tab.write(t, path, opt)
			uid, gid := os.Getuid(), os.Getgid()
			before := accessOf(t, path, uid, gid)
			if opt.Directory(path) {
				require.EqualValues(t, 0o755, before["."])
			} else {
				require.EqualValues(t, 0o644, before["."])
			}
			if uid == 0 {
				uid, gid = 1234, 4321
			}
			require.NoError(t, filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
				require.NoError(t, err)
				of := mode
				if e.IsDir() {
					of |= 0o700 | mode&0o444>>2
				}
				require.NoError(t, os.Chown(at, uid, gid))
				return os.Chmod(at, of)
			}))
			want := accessOf(t, path, uid, gid)
			if m, ok := want[".gstream-manifest.json"]; ok {
				want[".gstream-manifest.json"] = m | 0o200 // the next run locks it
			}

			opt.Overwrite, opt.Lease, opt.Threads = true, hosttest.Budget(t, 0).Lease("sink"), 1
			link := filepath.Join(t.TempDir(), "link")
			require.NoError(t, os.Symlink(path, link))
			w, err := Create(link, tab.schema, opt)
			require.NoError(t, err)
			temporaries, err := filepath.Glob(filepath.Dir(path) + "/.out.*")
			require.NoError(t, err)
			require.Len(t, temporaries, 1)
			info, err := os.Stat(temporaries[0])
			require.NoError(t, err)
			require.Equal(t, want["."]|0o200, info.Mode().Perm(), "nobody else reads it while it is written")
			require.NoError(t, tab.tryWrite(w))
			require.NoError(t, opt.Lease.Close())
			require.Equal(t, want, accessOf(t, path, uid, gid))
		}
	}
}

func TestAnEarlierOutputWithAForeignManifestIsNotLookedAtElsewhere(t *testing.T) {
	tab, opt := newSmall(t, true)
	dir := filepath.Join(t.TempDir(), "out")
	tab.write(t, dir, opt)
	text, err := os.ReadFile(filepath.Join(dir, ".gstream-manifest.json"))
	require.NoError(t, err)
	changed := strings.Replace(string(text), "part-00000.parquet", "../../secret", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".gstream-manifest.json"), []byte(changed), 0o666))
	opt.Overwrite = true
	require.ErrorContains(t, tab.replace(dir, opt), "part-00000.parquet")
}
