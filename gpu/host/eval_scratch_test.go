package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// TestTheScratchOfALargeProgramIsNotChargedToASmallBudget puts scratch memory where programs leave
// theirs for the next one.
func TestTheScratchOfALargeProgramIsNotChargedToASmallBudget(t *testing.T) {
	d, err := Open(Options{Threads: 1, Memory: 256 << 10})
	require.NoError(t, err)
	q, err := d.NewQueue("test")
	require.NoError(t, err)
	l := d.Budget().Lease("test")
	integer := gpu.Of(gpu.Int64)
	in := gpu.ColumnOf(integer, []gpu.Scalar{gpu.IntScalar(integer, 1), gpu.IntScalar(integer, 2),
		gpu.IntScalar(integer, 3)})
	p := &gpu.Program{Inputs: []gpu.Type{in.Type}, Outputs: []int{1},
		Code: []gpu.Instr{{Op: gpu.OpAdd, Type: in.Type, Args: []int{0, 0}, Mask: -1}}}
	for range 100 { // a pool may lose what it has
		large := &scratch{}
		for range 40 {
			large.blocks = append(large.blocks, make([]uint64, 2*evalRows))
		}
		require.Greater(t, large.size(), d.Budget().Limit())
		scratches.Put(large)
		out, err := q.Eval(l, p, []gpu.Column{in}, 3)
		require.NoError(t, err)
		require.Equal(t, []int64{2, 4, 6}, gpu.Values[int64](out[0].Data, 3))
		gpu.ReleaseColumns(out)
	}
	require.NoError(t, l.Close())
	require.NoError(t, q.Close())
	require.NoError(t, d.Close())
}
