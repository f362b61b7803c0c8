package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// killed is the environment variable with the folder in which the test binary commits, and the number of the operation
// before which it kills itself.
const killed = "GSTREAM_TEST_KILLED_COMMIT"

// stagedChanges makes a folder with earlier outputs and the temporaries of new ones: a new file, a replaced file, a
// replaced folder in another folder, a replaced partition and a file that goes.
func stagedChanges(dir string) (changes []Change, err error) {
	write := func(path, text string) {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666))
	}
	for _, old := range []string{"a/replaced", "b/folder/part-00000.parquet", "b/lines/y=1/part-00000.parquet",
		"b/lines/y=2/part-00000.parquet", "b/gone"} {
		write(filepath.Join(dir, old), "old "+old)
	}
	if err != nil {
		return nil, err
	}
	file := func(target string) string {
		f, wrong := File(filepath.Join(dir, target))
		if err = errors.Join(err, wrong); wrong != nil {
			return ""
		}
		_, wrong = f.WriteString("new " + target)
		err = errors.Join(err, wrong)
		return f.Name()
	}
	changes = append(changes, Change{Temporary: file("a/new"), Target: filepath.Join(dir, "a/new")},
		Change{Temporary: file("a/replaced"), Target: filepath.Join(dir, "a/replaced"), Replace: true})
	for _, folder := range []string{"b/folder", "b/lines"} {
		path, _, wrong := Folder(filepath.Join(dir, folder))
		if err = errors.Join(err, wrong); err != nil {
			return nil, err
		}
		if folder == "b/lines" {
			write(filepath.Join(path, "y=1", Part(0)), "new "+folder+"/y=1/"+Part(0))
			changes = append(changes, Change{Temporary: filepath.Join(path, "y=1"),
				Target: filepath.Join(dir, folder, "y=1"), Replace: true},
				Change{Temporary: filepath.Join(path, "gone"), Target: filepath.Join(dir, "b/gone"), Remove: true})
			continue
		}
		write(filepath.Join(path, Part(0)), "new "+folder+"/"+Part(0))
		changes = append(changes, Change{Temporary: path, Target: filepath.Join(dir, folder), Replace: true})
	}
	return changes, err
}

// seen returns the texts of all files that are not hidden, and the names of hidden ones.
func seen(t *testing.T, dir string) (texts map[string]string, hidden []string) {
	texts = map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		if strings.HasPrefix(e.Name(), ".gstream-") || strings.HasSuffix(e.Name(), ".tmp") {
			if e.Name() != LockName {
				hidden = append(hidden, path)
			}
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !e.IsDir() {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			name, err := filepath.Rel(dir, path)
			require.NoError(t, err)
			texts[filepath.ToSlash(name)] = string(text)
		}
		return nil
	}))
	return texts, hidden
}

var (
	oldState = map[string]string{"a/replaced": "old a/replaced", "b/gone": "old b/gone",
		"b/folder/part-00000.parquet":    "old b/folder/part-00000.parquet",
		"b/lines/y=1/part-00000.parquet": "old b/lines/y=1/part-00000.parquet",
		"b/lines/y=2/part-00000.parquet": "old b/lines/y=2/part-00000.parquet"}
	newState = map[string]string{"a/replaced": "new a/replaced", "a/new": "new a/new",
		"b/folder/part-00000.parquet":    "new b/folder/part-00000.parquet",
		"b/lines/y=1/part-00000.parquet": "new b/lines/y=1/part-00000.parquet",
		"b/lines/y=2/part-00000.parquet": "old b/lines/y=2/part-00000.parquet"}
)

// commitOrDie commits in a folder, and is killed before an operation.
func commitOrDie(arguments string) {
	at, dir, _ := strings.Cut(arguments, " ")
	n, err := strconv.Atoi(at)
	if err != nil {
		panic(err)
	}
	changes, err := stagedChanges(dir)
	if err != nil {
		panic(err)
	}
	Before = func(string, string) error {
		if n--; n == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	if err := Commit(changes); err != nil {
		panic(err)
	}
}

func TestACommitThatIsKilledAtAnyOperationIsMadeOrUndone(t *testing.T) {
	undone, made := 0, 0
	for n := 1; ; n++ {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killed+"="+fmt.Sprintf("%d %s", n, dir))
		out, err := cmd.CombinedOutput()
		if err == nil {
			require.Greater(t, undone, 3)
			require.Greater(t, made, 10)
			return
		}
		require.ErrorContains(t, err, "killed", "%s", out)
		folders := []string{"a", "b"}
		require.NoError(t, Sweep(filepath.Join(dir, folders[n%2])))
		texts, _ := seen(t, dir)
		if texts["a/new"] == "" {
			undone++
			require.Equal(t, oldState, texts, "operation %d", n)
		} else {
			made++
			require.Equal(t, newState, texts, "operation %d", n)
		}
		for _, folder := range folders {
			require.NoError(t, Sweep(filepath.Join(dir, folder)))
		}
		again, hidden := seen(t, dir)
		require.Equal(t, texts, again)
		require.Empty(t, hidden, "operation %d", n)
	}
}

func TestACommitThatFailsIsUndone(t *testing.T) {
	for _, wrong := range []string{"another file", "not verified", "exists"} {
		dir := t.TempDir()
		changes, err := stagedChanges(dir)
		require.NoError(t, err)
		switch wrong {
		case "another file": // gets the name in the middle
			Before = func(operation, path string) error {
				if operation == "rename" && strings.HasSuffix(path, "y=1") {
					Before = nil
					require.NoError(t, os.Rename(path, path+".moved"))
					require.NoError(t, os.Mkdir(path, 0o777))
				}
				return nil
			}
			changes[3].Verify = func(string) error { return errors.New("it is another folder") }
		case "not verified":
			changes[2].Verify = func(replaced string) error {
				text, err := os.ReadFile(filepath.Join(replaced, Part(0)))
				require.NoError(t, err)
				require.Equal(t, "old b/folder/part-00000.parquet", string(text))
				return errors.New("it has other files")
			}
		case "exists":
			changes[0].Target = changes[1].Target + "2"
			require.NoError(t, os.WriteFile(changes[0].Target, []byte("mine"), 0o666))
		}
		err = Commit(changes)
		Before = nil
		require.Error(t, err, wrong)
		if wrong == "exists" {
			require.ErrorIs(t, err, fs.ErrExist)
			require.NoError(t, os.Remove(changes[0].Target))
		}
		if wrong == "another file" {
			require.NoError(t, os.Remove(filepath.Join(dir, "b/lines/y=1")))
			require.NoError(t, os.Rename(filepath.Join(dir, "b/lines/y=1.moved"), filepath.Join(dir, "b/lines/y=1")))
		}
		texts, _ := seen(t, dir)
		require.Equal(t, oldState, texts, wrong)
		journals, err := filepath.Glob(filepath.Join(dir, "*/.gstream-*"))
		require.NoError(t, err)
		require.Empty(t, journals, wrong)
	}
}

// TestACommitOnAFullDiskIsOldOrNew fails an operation, or all from one on but those that remove. What a writer does
// after an error follows: it removes its temporaries.
func TestACommitOnAFullDiskIsOldOrNew(t *testing.T) {
	defer func() { Before, exchanges = nil, swap }()
	for _, mode := range []string{"once", "from then on", "without an exchange of names"} {
		undone, stopped, made := 0, 0, 0
		for n := 1; ; n++ {
			require.Less(t, n, 200)
			dir := t.TempDir()
			changes, err := stagedChanges(dir)
			require.NoError(t, err)
			changes[0].Sync = true
			if exchanges = swap; mode == "without an exchange of names" {
				exchanges = func(string, string) error { return errors.ErrUnsupported }
			}
			at := 0
			Before = func(operation, path string) error {
				if at++; at == n || at > n && mode != "once" && operation != "remove" {
					return &fs.PathError{Op: operation, Path: path, Err: syscall.ENOSPC}
				}
				return nil
			}
			err = Commit(changes)
			Before, exchanges = nil, swap
			for _, c := range changes {
				require.NoError(t, Remove(c.Temporary))
			}
			switch {
			case err == nil:
				made++
			case errors.Is(err, errStopped):
				stopped++
				require.ErrorContains(t, err, "gstream recover "+dir)
			}
			if err != nil {
				require.ErrorIs(t, err, syscall.ENOSPC)
			}
			for _, folder := range []string{"a", "b"} {
				require.NoError(t, Recover(filepath.Join(dir, folder)), "%s, operation %d: %v", mode, n, err)
			}
			texts, _ := seen(t, dir)
			if texts["a/new"] == "" {
				undone++
				require.Error(t, err)
				require.Equal(t, oldState, texts, "%s, operation %d: %v", mode, n, err)
			} else {
				require.Equal(t, newState, texts, "%s, operation %d: %v", mode, n, err)
			}
			journals, globErr := filepath.Glob(filepath.Join(dir, "*/.gstream-*.[jc]o*"))
			require.NoError(t, globErr)
			require.Empty(t, journals, "%s, operation %d: %v", mode, n, err)
			if at < n {
				break
			}
		}
		require.Greater(t, undone, 6, mode)
		require.Positive(t, made, mode)
		require.Equal(t, mode != "once", stopped > 0, mode)
	}
}

func TestWithoutAnExchangeOfNamesTwoRenamesReplace(t *testing.T) {
	exchanges = func(string, string) error { return errors.ErrUnsupported }
	defer func() { exchanges = swap }()
	dir := t.TempDir()
	changes, err := stagedChanges(dir)
	require.NoError(t, err)
	require.NoError(t, Commit(changes))
	texts, _ := seen(t, dir)
	require.Equal(t, newState, texts)

	dir = t.TempDir()
	changes, err = stagedChanges(dir)
	require.NoError(t, err)
	changes[3].Verify = func(string) error { return errors.New("no") }
	require.ErrorContains(t, Commit(changes), "no")
	texts, _ = seen(t, dir)
	require.Equal(t, oldState, texts)
}

func TestJournalsOfOthersAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o666))
	temporary := filepath.Join(dir, ".x.gstream-0123456789ab.tmp")
	require.NoError(t, os.WriteFile(temporary, []byte("theirs"), 0o666))
	inode := func(path string) *inode {
		n, err := inodeOf(path)
		require.NoError(t, err)
		return n
	}
	path := filepath.Join(dir, ".gstream-0123456789ab.commit")
	write := func(mode os.FileMode, edit func(*journal)) {
		j := &journal{Decides: strings.TrimSuffix(path, ".commit"), Folders: []string{dir},
			Changes: []change{{Temporary: temporary, Target: victim, New: inode(temporary), Old: inode(victim)}}}
		edit(j)
		text, err := json.Marshal(j)
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(path))
		require.NoError(t, os.WriteFile(path, text, 0o600))
		require.NoError(t, os.Chmod(path, mode))
	}
	kept := func(why string) {
		require.NoError(t, Recover(dir), why)
		text, err := os.ReadFile(victim)
		require.NoError(t, err)
		require.Equal(t, "mine", string(text), why)
	}
	write(0o666, func(*journal) {})
	kept("anybody can write it")
	if os.Geteuid() == 0 {
		write(0o600, func(*journal) {})
		require.NoError(t, os.Chown(path, 12345, -1))
		kept("it is of another user")
	}
	for _, edit := range []func(*journal){
		func(j *journal) { j.Folders = nil },
		func(j *journal) { j.Folders = []string{"/elsewhere"} },
		func(j *journal) { j.Decides = "relative" },
		func(j *journal) { j.Changes[0].Temporary = victim },
		func(j *journal) { j.Changes[0].Target = "victim" },
	} {
		write(0o600, edit)
		kept("it is none")
	}
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	kept("it is none")

	write(0o600, func(*journal) {})
	f, err := os.Open(path)
	require.NoError(t, err)
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	kept("its process lives")
	require.NoError(t, Sweep(dir))
	require.FileExists(t, temporary)
	require.NoError(t, f.Close())
	require.NoError(t, Recover(dir))
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "theirs", string(text))
}
