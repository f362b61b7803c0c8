package cuda

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// TestCountsBecomePositions scans as many counts as a large GPU has blocks, which is more
// than the emulated GPU launches.
func TestCountsBecomePositions(t *testing.T) {
	d := openTest(t, 0)
	defer func() { require.NoError(t, d.Close()) }()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][2]int{{2, 1}, {2, 3}, {4, 1}, {8, 129}, {64, 264}, {128, 33}, {256, 264}, {256, 401}} {
		digits, blocks := shape[0], shape[1]
		counts := make([]uint32, digits*blocks+4) // room at the end, with arbitrary contents
		for i := range counts {
			counts[i] = rnd.Uint32N(1000)
		}
		positions := make([]uint32, digits*blocks+1)
		for i := range positions[1:] {
			positions[i+1] = positions[i] + counts[i]
		}
		want := make([]uint32, digits+1)
		for i := range want {
			want[i] = positions[i*blocks]
		}
		gotPositions, got := countsToPositions(t, d, counts, digits, blocks)
		require.Equal(t, want, got, "%d digits, %d blocks", digits, blocks)
		require.Equal(t, positions[:digits*blocks], gotPositions, "%d digits, %d blocks", digits, blocks)
	}
	require.Empty(t, d.Budget().Leaks())
}

func countsToPositions(t *testing.T, d *Device, counts []uint32, digits, blocks int) (positions, offsets []uint32) {
	q, err := d.NewQueue("counts")
	require.NoError(t, err)
	l := d.Budget().Lease("counts")
	o := q.(*queue).begin("counts", l)
	positions, offsets = make([]uint32, digits*blocks), make([]uint32, digits+1)
	from, to := o.alloc(int64(len(counts))*4), o.alloc(int64(len(offsets))*4)
	o.write(from, 0, gpu.BytesOf(counts))
	launch(o, "partition_offsets", 1, 1024, 0, partitionOffsetsArgs{addr(from), addr(to), int32(digits), int32(blocks)})
	o.read(from, 0, gpu.BytesOf(positions))
	o.read(to, 0, gpu.BytesOf(offsets))
	end(o, &offsets, &err)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, q.Close())
	return positions, offsets
}
