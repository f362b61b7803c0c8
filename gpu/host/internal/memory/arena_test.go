package memory

import (
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// open returns an arena for a number of cores, and a budget of limit bytes.
func open(cores int, limit int64) (*Arena, *gpu.Budget) {
	a := NewArena(cores)
	b := gpu.NewBudget("test", gpu.HostMemory, limit, a)
	a.Register(b)
	return a, b
}

func TestFreeBlocksAreGivenBackToTheBudget(t *testing.T) {
	a, budget := open(1, 8<<20)
	l := budget.Lease("test")
	for _, size := range []int64{5 << 20, 10 << 10} { // a mapping of its own, and a part of a slab
		for range 3 {
			b, err := l.Alloc(size)
			require.NoError(t, err)
			b.Bytes()[size-1] = 1
			b.Release()
		}
	}
	kept, _ := a.Reclaimable()
	require.Positive(t, kept)
	used, _ := budget.Used()
	require.Zero(t, used, "what is free is not in use")
	b, err := l.Alloc(8 << 20)
	require.NoError(t, err)
	kept, _ = a.Reclaimable()
	require.Zero(t, kept, "all of the budget is in use")
	b.Release()
	kept, _ = a.Reclaimable()
	require.Zero(t, kept, "the budget had no room for a free block beside the one in use")
	b, err = l.Alloc(4 << 20)
	require.NoError(t, err)
	b.Release()
	kept, _ = a.Reclaimable()
	require.Equal(t, int64(4<<20), kept)
	require.NoError(t, l.Close())
	require.Empty(t, budget.Leaks())
	a.Close()
}

func TestSizeClassesHaveNumbersOfTheirOwn(t *testing.T) {
	of := map[int]int{}
	for e := range 47 {
		for _, n := range []int64{1<<e - 1, 1 << e, 1<<e + 1, 5 << e >> 2, 6 << e >> 2, 7 << e >> 2, 7<<e>>2 + 1} {
			c := class(n)
			require.GreaterOrEqual(t, int64(c), n)
			require.Less(t, numberOf(c), classes)
			other, ok := of[numberOf(c)]
			require.True(t, !ok || other == c, "classes of %d and %d bytes", c, other)
			require.Equal(t, c > small, numberOf(c) > numberOf(small))
			of[numberOf(c)] = c
		}
	}
}

// Many goroutines take and free blocks of a budget that keeps few of them.
func TestBlocksOfManyGoroutinesDoNotOverlap(t *testing.T) {
	a, budget := open(4, 64<<20)
	l := budget.Lease("test")
	var all sync.WaitGroup
	for g := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range 300 {
				size := int64(100) << (uint(i+g) % 15) // up to 1.6 MB
				b, err := l.Alloc(size)
				if !assert.NoError(t, err) {
					return
				}
				mem := b.Bytes()
				mem[0], mem[size-1] = byte(g), byte(g)
				runtime.Gosched()
				assert.Equal(t, []byte{byte(g), byte(g)}, []byte{mem[0], mem[size-1]})
				b.Release()
			}
		}()
	}
	all.Wait()
	require.Zero(t, a.out)
	require.Zero(t, a.coming)
	kept, _ := a.Reclaimable()
	require.LessOrEqual(t, kept, a.keep)
	require.Equal(t, kept, a.Reclaim(math.MaxInt64))
	require.NoError(t, l.Close())
	a.Close()
}
