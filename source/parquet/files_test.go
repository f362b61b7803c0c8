package parquet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
)

// tree makes empty files in a folder, and links written as "name -> target".
func tree(t *testing.T, names ...string) string {
	dir := t.TempDir()
	for _, n := range names {
		name, target, link := strings.Cut(n, " -> ")
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		if link {
			require.NoError(t, os.Symlink(target, path))
		} else {
			require.NoError(t, os.WriteFile(path, nil, 0o666))
		}
	}
	return dir
}

var globTree = []string{
	"t1.parquet", "T2.PARQUET", "note.txt", ".h.parquet", "_u.parquet", "{x}.parquet", "file.parquet -> ext/e.parquet",
	"a/1.parquet", "a/-.parquet", "a/x[1].parquet", "a/b/2.parquet", "a/b/c/3.parquet", "d.parquet/in.parquet",
	".hid/h.parquet", "_und/u.parquet", "ext/e.parquet", "ext/deep/e2.parquet", "link -> ext", "a/loop -> ..",
}

func TestPatternsAndFoldersNameFiles(t *testing.T) {
	dir := tree(t, globTree...)
	t.Chdir(dir)
	for pattern, want := range map[string]string{
		"*.parquet": "_u.parquet d.parquet/in.parquet file.parquet t1.parquet {x}.parquet",
		"**/*.parquet": "_u.parquet file.parquet t1.parquet {x}.parquet _und/u.parquet a/-.parquet a/1.parquet " +
			"a/x[1].parquet a/b/2.parquet a/b/c/3.parquet d.parquet/in.parquet ext/e.parquet ext/deep/e2.parquet",
		"a/**/*.parquet":     "a/-.parquet a/1.parquet a/x[1].parquet a/b/2.parquet a/b/c/3.parquet",
		"a/**":               "a/-.parquet a/1.parquet a/x[1].parquet a/b/2.parquet a/b/c/3.parquet",
		"**/b/*.parquet":     "a/b/2.parquet",
		"**/b/**/*.parquet":  "a/b/2.parquet a/b/c/3.parquet",
		"**/**/c/*":          "a/b/c/3.parquet",
		"a**/*.parquet":      "a/-.parquet a/1.parquet a/x[1].parquet",
		"*/e*.parquet":       "ext/e.parquet link/e.parquet",
		"link/**/*.parquet":  "link/e.parquet link/deep/e2.parquet",
		"link":               "link/deep/e2.parquet link/e.parquet",
		"l*":                 "link/deep/e2.parquet link/e.parquet",
		".*.parquet":         ".h.parquet",
		".hid/*.parquet":     ".hid/h.parquet",
		".hid":               ".hid/h.parquet",
		"_und":               "_und/u.parquet",
		"[a-z]?.parquet":     "t1.parquet",
		"a/[0-9].parquet":    "a/1.parquet",
		"a/[!0-9].parquet":   "a/-.parquet",
		"a/x[1].parquet":     "a/x[1].parquet",
		"{x}.parquet":        "{x}.parquet",
		"a//b/../1.parquet":  "a//b/../1.parquet",
		"a//b/../?.parquet":  "a/-.parquet a/1.parquet",
		dir + "/a/?.parquet": dir + "/a/-.parquet " + dir + "/a/1.parquet",
		"a":                  "a/-.parquet a/1.parquet a/b/2.parquet a/b/c/3.parquet a/x[1].parquet",
		"d.parquet":          "d.parquet/in.parquet",
		"note.txt":           "note.txt",
	} {
		got, err := Files(t.Context(), []string{pattern})
		require.NoError(t, err, pattern)
		require.Equal(t, strings.Fields(want), got, pattern)
	}
	require.NoError(t, os.Mkdir("empty", 0o777))
	for path, want := range map[string]string{
		"none*.parquet":      "no file matches this pattern",
		"{t1,a}*.parquet":    "no file matches this pattern",
		"t1.parquet/**":      "no file matches this pattern",
		"none/*.parquet":     "no file matches this pattern",
		"empty":              "no *.parquet in this folder",
		"none.parquet":       "no such file",
		"t1.parquet/x":       "not a directory",
		"x[1.parquet":        "a [ has no ]",
		os.DevNull:           "neither a file nor a folder",
		filepath.Dir("/n/*"): "no such file",
	} {
		_, err := Files(t.Context(), []string{path})
		require.ErrorContains(t, err, want, path)
		require.ErrorContains(t, err, path)
	}
	_, err := Files(t.Context(), []string{"t1.parquet", "none*"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestPatternsMatchAsInDuckDB(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON names no Python with DuckDB")
	}
	t.Chdir(tree(t, globTree...))
	patterns := []string{
		"[a-z]*.parquet", "a/**/*.parquet", "**/b/*.parquet", "a/**", "a**/*.parquet", "*/e*.parquet",
		"link/**/*.parquet",
		"[a-z]?.parquet", "a/[!0-9].parquet", "a/[0-9].parquet", "a/x[1].parquet", "{x}*.parquet", "**/[0-9].parquet",
		".h*.parquet", "a/b/../?.parquet",
	}
	out, err := exec.Command(python, append([]string{"-c", "import duckdb, sys\nfor p in sys.argv[1:]: " +
		"print(*[r[0] for r in duckdb.sql('select file from glob($p)', params={'p': p}).fetchall()])"},
		patterns...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	require.Len(t, answers, len(patterns))
	for i, pattern := range patterns {
		got, err := Files(t.Context(), []string{pattern})
		require.NoError(t, err, pattern)
		var files []string // DuckDB does not read matching folders
		for _, f := range got {
			if ok, _ := filepath.Match("d.parquet/*", f); !ok {
				files = append(files, filepath.Clean(f))
			}
		}
		var want []string
		for _, f := range strings.Fields(answers[i]) {
			want = append(want, filepath.Clean(f))
		}
		require.ElementsMatch(t, want, files, pattern)
	}
}

func TestPipeAsASourceIsRefusedAndNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "x.parquet")
	require.NoError(t, syscall.Mkfifo(pipe, 0o666))
	for _, path := range []string{pipe, dir, dir + "/*"} {
		done := make(chan error, 1)
		go func() {
			_, err := Open([]string{path}, OpenOptions{})
			done <- err
		}()
		select {
		case err := <-done:
			require.ErrorContains(t, err, pipe+": neither a file nor a folder")
		case <-time.After(10 * time.Second):
			require.Fail(t, "still waiting", path)
		}
	}
}
