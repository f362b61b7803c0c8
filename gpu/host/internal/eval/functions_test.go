package eval

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

func TestEveryOperationHasAFunction(t *testing.T) {
	for op := range gpu.Ops {
		// gpu.EvalBodies cuts programs at operations with bodies.
		require.Equal(t, op.Info().Bodies == 0, functions[op] != nil, "operation %d: %+v", op, op.Info())
	}
}
