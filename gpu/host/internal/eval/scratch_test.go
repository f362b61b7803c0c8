package eval

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
)

// TestTheScratchOfALargeProgramIsNotChargedToASmallBudget puts scratch memory where programs leave
// theirs for the next one.
func TestTheScratchOfALargeProgramIsNotChargedToASmallBudget(t *testing.T) {
	const limit = 256 << 10
	l := memory.HeapLease("test", limit)
	integer := gpu.Of(gpu.Int64)
	in := gpu.ColumnOf(integer, []gpu.Scalar{gpu.IntScalar(integer, 1), gpu.IntScalar(integer, 2),
		gpu.IntScalar(integer, 3)})
	p := &gpu.Program{Inputs: []gpu.Type{in.Type}, Outputs: []int{1},
		Code: []gpu.Instr{{Op: gpu.OpAdd, Type: in.Type, Args: []int{0, 0}, Mask: -1}}}
	for range 100 { // a pool may lose what it has
		large := &scratch{}
		for range 40 {
			large.blocks = append(large.blocks, make([]uint64, 2*batchRows))
		}
		require.Greater(t, large.size(), int64(limit))
		scratches.Put(large)
		out, err := Run(oneCore, l, p, []gpu.Column{in}, 3)
		require.NoError(t, err)
		require.Equal(t, []int64{2, 4, 6}, gpu.Values[int64](out[0].Data, 3))
		gpu.ReleaseColumns(out)
	}
	require.NoError(t, l.Close())
}
