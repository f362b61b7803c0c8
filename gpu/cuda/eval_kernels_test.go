package cuda

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// TestEveryOperationHasAKernel finds the kernels of the table of operations among those that are compiled.
func TestEveryOperationHasAKernel(t *testing.T) {
	compiled, err := fatbinOf()
	require.NoError(t, err)
	names := slices.Sorted(maps.Keys(compiled))
	for op := range gpu.Ops {
		if op.Info().Host {
			continue
		}
		for n := range max(len(op.Info().Variants), 1) {
			kernel := "eval_" + (&gpu.Instr{Op: op, N: n}).Kernel()
			if kernel == "eval_" {
				continue // a number that no function has
			}
			assert.True(t, slices.ContainsFunc(names, func(name string) bool {
				return name == kernel || strings.HasPrefix(name, kernel+"_")
			}), "operation %d has no kernel %s", op, kernel)
		}
	}
}
