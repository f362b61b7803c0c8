package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilesOfOtherFormatsAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.orc")
	require.NoError(t, os.WriteFile(path, []byte("a,b\n1,2\n"), 0o600))
	for command, want := range map[string]string{
		"show":    "gstream reads Parquet, CSV, JSON lines and Arrow, and job files in YAML",
		"run":     "this command takes a job file, in YAML; gstream init writes one",
		"explain": "takes a job file", "lint": "takes a job file", "check": "takes a job file",
	} {
		code, _, stderr := gstream(command, path)
		require.Equal(t, exitJob, code, stderr)
		require.Contains(t, stderr, path+": ")
		require.Contains(t, stderr, want)
	}
	path = filepath.Join(t.TempDir(), "x.csv")
	require.NoError(t, os.WriteFile(path, []byte("a,b\n1,2\n"), 0o600))
	for _, path := range []string{data + "/nation.parquet", path} {
		code, _, stderr := gstream("run", path)
		require.Equal(t, exitJob, code, stderr)
		require.Contains(t, stderr, "takes a job file")
	}
	require.Contains(t, shown(t, path, "--format", "csv"), "1,2")
}

func TestTooManyOpenFilesHaveAdvice(t *testing.T) {
	err := fmt.Errorf("a stage: %w", &os.PathError{Op: "open", Path: "x", Err: syscall.EMFILE})
	require.Equal(t, "a stage: open x: too many open files; allow more open files (ulimit -n), or use fewer --threads",
		message(err))
	require.Equal(t, exitIO, exitCode(err))
}
