package staging

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const helper = "GSTREAM_TEST_STAGE"

// TestMain turns the test binary into a process that makes temporaries in a folder and
// waits, if the environment says so.
func TestTargetsHaveNamesAsLongAsTheSystemAllows(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{strings.Repeat("x", 229), strings.Repeat("x", 230), strings.Repeat("x", 255),
		strings.Repeat("ü", 127), "k=" + strings.Repeat("a=", 120)} {
		target := filepath.Join(dir, name)
		f, err := File(target)
		require.NoError(t, err)
		require.Regexp(t, temporary, filepath.Base(f.Name()))
		require.True(t, utf8.ValidString(f.Name()))
		require.NoError(t, os.Rename(f.Name(), target))
		require.NoError(t, f.Close())
		require.NoError(t, os.Remove(target))
		path, lock, err := Folder(target)
		require.NoError(t, err)
		require.NoError(t, lock.Close())
		require.NoError(t, Sweep(dir))
		require.NoDirExists(t, path)
		require.LessOrEqual(t, len(filepath.Base(Sibling(target, ".discarded-1"))), 255)
	}
}

func TestMain(m *testing.M) {
	if arguments := os.Getenv(killed); arguments != "" {
		commitOrDie(arguments)
		return
	}
	dir := os.Getenv(helper)
	if dir == "" {
		os.Exit(m.Run())
	}
	if _, err := File(filepath.Join(dir, "file")); err != nil {
		panic(err)
	}
	path, _, err := Folder(filepath.Join(dir, "folder"))
	if err == nil {
		err = os.WriteFile(filepath.Join(path, Part(0)), nil, 0o666)
	}
	if err != nil {
		panic(err)
	}
	fmt.Println("made")
	time.Sleep(time.Minute)
}

// stageIn starts a process that has temporaries in a folder.
func stageIn(t *testing.T, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helper+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "made\n", line)
	return cmd
}

func temporaries(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestTemporariesOfAKilledProcessAreSweptAndThoseOfALivingOneAreNot(t *testing.T) {
	dir := t.TempDir()
	first, second := stageIn(t, dir), stageIn(t, dir)
	require.NoError(t, Sweep(dir))
	require.Len(t, temporaries(t, dir), 4)
	for i, cmd := range []*exec.Cmd{first, second} {
		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		_ = cmd.Wait()
		require.NoError(t, Sweep(dir))
		require.Len(t, temporaries(t, dir), 2-2*i)
	}
}

func TestSweepLeavesWhatIsNotATemporary(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	require.NoError(t, os.WriteFile(outside, nil, 0o666))
	sub := filepath.Join(dir, "sub")
	require.NoError(t, os.Mkdir(sub, 0o777))
	for _, name := range []string{"a.parquet", ".a", ".a.gstream-0123456789ab.old", "a.gstream-0123456789ab.tmp",
		".a.gstream-xyz.tmp"} {
		require.NoError(t, os.WriteFile(filepath.Join(sub, name), nil, 0o666))
	}
	require.NoError(t, os.Symlink(outside, filepath.Join(sub, ".l.gstream-0123456789ab.tmp")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(sub, ".p.gstream-0123456789ab.tmp"), 0o666))
	kept := filepath.Join(sub, ".f.gstream-0123456789ab.tmp")
	require.NoError(t, os.Mkdir(kept, 0o777))
	for _, name := range []string{LockName, Part(0), "of others"} {
		require.NoError(t, os.WriteFile(filepath.Join(kept, name), nil, 0o666))
	}
	require.NoError(t, os.Mkdir(filepath.Join(sub, ".e.gstream-0123456789ab.tmp"), 0o777))
	require.NoError(t, Sweep(sub))
	entries, err := os.ReadDir(sub)
	require.NoError(t, err)
	require.Len(t, entries, 8, "only the empty folder went: %v", entries)
	require.FileExists(t, outside)
	require.FileExists(t, filepath.Join(kept, "of others"))
	require.NoError(t, Sweep(filepath.Join(dir, "none")))
}

func TestTemporaryThatGotItsNameIsNotSwept(t *testing.T) {
	dir := t.TempDir()
	f, err := File(filepath.Join(dir, "out"))
	require.NoError(t, err)
	require.NoError(t, os.Rename(f.Name(), filepath.Join(dir, "out")))
	require.NoError(t, f.Close())
	require.NoError(t, Sweep(dir))
	require.FileExists(t, filepath.Join(dir, "out"))
}

func TestProcessesThatStageAndSweepDoNotDisturbEachOther(t *testing.T) {
	dir := t.TempDir()
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			errs <- func() error {
				for range 50 {
					f, err := File(filepath.Join(dir, "out"))
					if err != nil {
						return err
					}
					path, lock, err := Folder(filepath.Join(dir, "out"))
					if err != nil {
						return err
					}
					if err := Sweep(dir); err != nil {
						return err
					}
					for _, kept := range []string{f.Name(), lock.Name()} {
						if _, err := os.Stat(kept); err != nil {
							return err
						}
					}
					f.Close()
					lock.Close()
					if err := Remove(f.Name()); err != nil {
						return err
					}
					if err := Remove(path); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	require.Empty(t, temporaries(t, dir))
}
