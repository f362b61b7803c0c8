package pipeline

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// inTasks runs a plan in tasks of this process, each on a device of its own, and checks that nothing is left.
func inTasks(t testing.TB, p *Plan, opt RunOptions, workers int) (*Report, error) {
	folder := filepath.Join(t.TempDir(), "tasks")
	r, err := p.RunTasks(t.Context(), opt, TaskOptions{Engine: &InProcess{opt}, Workers: workers, Folder: folder,
		LeastBytes: 1})
	_, missing := os.Stat(folder)
	require.ErrorIs(t, missing, os.ErrNotExist)
	return r, err
}
