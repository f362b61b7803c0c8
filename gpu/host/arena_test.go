package host

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFreeBlocksAreGivenBackToTheBudget(t *testing.T) {
	d, err := Open(Options{Threads: 1, Memory: 8 << 20})
	require.NoError(t, err)
	l := d.Budget().Lease("test")
	for _, size := range []int64{5 << 20, 10 << 10} { // a mapping of its own, and a part of a slab
		for range 3 {
			b, err := l.Alloc(size)
			require.NoError(t, err)
			b.Bytes()[size-1] = 1
			b.Release()
		}
	}
	kept, _ := d.arena.Reclaimable()
	require.Positive(t, kept)
	used, _ := d.Budget().Used()
	require.Zero(t, used, "what is free is not in use")
	b, err := l.Alloc(8 << 20)
	require.NoError(t, err)
	kept, _ = d.arena.Reclaimable()
	require.Zero(t, kept, "all of the budget is in use")
	b.Release()
	kept, _ = d.arena.Reclaimable()
	require.Zero(t, kept, "the budget had no room for a free block beside the one in use")
	b, err = l.Alloc(4 << 20)
	require.NoError(t, err)
	b.Release()
	kept, _ = d.arena.Reclaimable()
	require.Equal(t, int64(4<<20), kept)
	require.NoError(t, l.Close())
	require.Empty(t, d.Budget().Leaks())
	require.NoError(t, d.Close())
}
