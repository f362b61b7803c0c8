package pipeline

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// inTasks runs a plan in tasks of this process, each on a device of its own, and checks that nothing is left.
func inTasks(t testing.TB, p *Plan, opt RunOptions, workers int) (*Report, error) {
	folder := t.TempDir()
	r, err := p.RunTasks(t.Context(), opt, TaskOptions{Engine: &InProcess{opt}, Workers: workers, Folder: folder,
		LeastBytes: 1})
	left, wrong := os.ReadDir(folder)
	require.NoError(t, wrong)
	require.Empty(t, left)
	return r, err
}
