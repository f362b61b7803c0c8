package cuda

import (
	"math/rand/v2"
	"slices"
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

// TestUnorderedPartitionsWithoutRoom partitions by keys of which a sample sees none but one: the rows come in order
// then, and no row is lost. Keys that are as the sample says are not partitioned again. Of two passes either finds no
// room.
func TestUnorderedPartitionsWithoutRoom(t *testing.T) {
	d := openTest(t, 0)
	defer func() { require.NoError(t, d.Close()) }()
	q, err := d.NewQueue("unordered")
	require.NoError(t, err)
	l := d.Budget().Lease("unordered")
	for _, c := range []struct {
		n      int
		bits   uint
		hidden int32 // the key of rows that the sample does not see; 0 is none
	}{{70_000, 3, 0}, {70_000, 3, 5}, {secondRows << 9, 9, 0}, {secondRows << 9, 9, 5}, {secondRows << 9, 9, 5 << 4}} {
		n, hidden := c.n, c.hidden != 0
		keys := make([]int32, n)
		for i := range keys {
			if keys[i] = int32(i % (1<<c.bits - 1)); hidden {
				keys[i] = c.hidden
			}
		}
		for i := range unorderedSampled(n, c.bits) {
			if hidden {
				keys[gpu.SampledRow(i, gpu.SampleStep(n, unorderedSampled(n, c.bits)))] = 2
			}
		}
		key := gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: gpu.WrapBytes(gpu.BytesOf(keys))}
		s, err := q.Upload(l, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "k", Type: key.Type}),
			Cols: []gpu.Column{key}, Rows: n})
		require.NoError(t, err)
		out, offsets, ends, err := q.PartitionUnordered(l, []gpu.Column{s.Cols[0], gpu.RowNumbers(n)}, s.Cols[0],
			gpu.Digit{Bits: c.bits})
		require.NoError(t, err)
		require.Equal(t, !hidden, ends.Len > 0)
		down := func(c gpu.Column) []int32 {
			host, err := q.Download(d.HostBudget().Lease("unordered"),
				&gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type}), Cols: []gpu.Column{c},
					Rows: c.Len})
			require.NoError(t, err)
			defer host.Release()
			return slices.Clone(gpu.Values[int32](host.Cols[0].Data, c.Len))
		}
		from := down(offsets)
		to := from[1:]
		if ends.Len > 0 {
			to = down(ends)
		}
		var ids []int32 // other rows hold anything
		for p, end := range to {
			for r := from[p]; r < end; r++ {
				ids = append(ids, r)
			}
		}
		require.Len(t, ids, n)
		host := gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: gpu.WrapBytes(gpu.BytesOf(ids))}
		places, err := q.Upload(l, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "id", Type: host.Type}),
			Cols: []gpu.Column{host}, Rows: n})
		require.NoError(t, err)
		there, err := q.Gather(l, out, places.Cols[0], false)
		require.NoError(t, err)
		gpu.ReleaseColumns(out)
		places.Release()
		moved, rows := down(there[0]), down(there[1])
		seen := make([]bool, n)
		for i, r := range rows {
			require.Equal(t, keys[r], moved[i])
			require.False(t, seen[r])
			seen[r] = true
			require.GreaterOrEqual(t, ids[i], from[keys[r]])
			require.Less(t, ids[i], to[keys[r]])
		}
		s.Release()
	}
	require.NoError(t, l.Close())
	require.NoError(t, q.Close())
	require.Empty(t, d.Budget().Leaks())
}
