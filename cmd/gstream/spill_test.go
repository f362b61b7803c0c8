package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestASpillFolderIsCheckedAtTheStart names folders of which no job makes use.
func TestASpillFolderIsCheckedAtTheStart(t *testing.T) {
	path, _ := jobFile(t, "  - limit: 1", "")
	closed := filepath.Join(t.TempDir(), "closed")
	require.NoError(t, os.Mkdir(closed, 0o500))
	folders := map[string]string{"/nowhere": "no such file or directory", path: "not a directory"}
	if os.Geteuid() != 0 {
		folders[closed] = "permission denied"
	}
	for dir, why := range folders {
		for _, command := range []string{"run", "check"} {
			code, _, stderr := gstream(command, path, "--device", "host", "--spill-dir", dir)
			require.Equal(t, exitIO, code, stderr)
			require.Contains(t, stderr, "spill to "+dir+": "+why+"; choose another folder with --spill-dir")
		}
	}
	t.Setenv("GSTREAM_SPILL_DIR", "/nowhere")
	code, _, stderr := gstream("run", path, "--device", "host")
	require.Equal(t, exitIO, code, stderr)
	t.Setenv("GSTREAM_SPILL_DIR", "")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(text, "memory: {spill: {dir: /nowhere}}\n"...), 0o600))
	code, _, stderr = gstream("run", path, "--device", "host")
	require.Equal(t, exitIO, code, stderr)
	code, _, stderr = gstream("run", path, "--device", "host", "--spill-dir", "none")
	require.Equal(t, exitOK, code, stderr)
}

// TestTheDefaultSpillFolderIsNeededAtTheFirstSpill has a folder by default that is not there.
func TestTheDefaultSpillFolderIsNeededAtTheFirstSpill(t *testing.T) {
	path := linesJob(t, sortedLines)
	few, _ := jobFile(t, "  - limit: 1", "")
	t.Setenv("TMPDIR", "/nowhere")
	code, _, stderr := gstream("run", path, "--device", "host", "--threads", "1", "--host-memory", "20MiB")
	require.Equal(t, exitIO, code, stderr)
	require.Contains(t, stderr,
		"gstream: spill to /nowhere: no such file or directory; choose another folder with --spill-dir (")
	code, _, stderr = gstream("run", few, "--device", "host")
	require.Equal(t, exitOK, code, stderr)
}
