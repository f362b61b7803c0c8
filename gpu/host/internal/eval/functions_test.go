package eval

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

func TestEveryOperationHasAFunction(t *testing.T) {
	for op := range gpu.Ops {
		require.NotNil(t, functions[op], "operation %d: %+v", op, op.Info())
	}
}
