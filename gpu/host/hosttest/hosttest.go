// Package hosttest has host memory for tests: a device, and budgets without a device. A
// test must give all of it back by its end.
package hosttest

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

// Open returns a device of two threads with a budget of 1 MiB.
func Open(t testing.TB) gpu.Device {
	d, err := host.Open(host.Options{Threads: 2, Memory: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.Empty(t, d.Budget().Leaks())
		used, _ := d.Budget().Used()
		assert.Zero(t, used)
		assert.NoError(t, d.Close())
	})
	return d
}

// Budget returns a budget of limit bytes; 0 is no limit.
func Budget(t testing.TB, limit int64) *gpu.Budget {
	return budget(t, limit, func() {})
}

// ShrinkingBudget returns a budget that refuses every allocation after the k-th until
// regrow is called. It calls shrunk at the first denied allocation.
func ShrinkingBudget(t testing.TB, k int, shrunk func()) (b *gpu.Budget, regrow func()) {
	const limit = 1 << 30
	var mu sync.Mutex
	n := 0
	b = budget(t, limit, func() {
		mu.Lock()
		defer mu.Unlock()
		if n++; n == k {
			used, _ := b.Used()
			b.SetLimit(used)
			shrunk()
		}
	})
	return b, func() { b.SetLimit(limit) }
}

func budget(t testing.TB, limit int64, each func()) *gpu.Budget {
	b := gpu.NewBudget("host", gpu.HostMemory, limit, &memory{each: each, free: map[int64][][]byte{}})
	t.Cleanup(func() { require.Empty(t, b.Leaks()) })
	return b
}

// memory is an allocator on the Go heap that keeps blocks for reuse, as the allocators of
// devices do. So a test notices reads of memory that was not written since its last use.
type memory struct {
	each func() // called before every allocation
	mu   sync.Mutex
	free map[int64][][]byte
}

func (m *memory) Allocate(n int64) ([]byte, uintptr, error) {
	m.each()
	m.mu.Lock()
	defer m.mu.Unlock()
	class := classOf(n)
	var b []byte
	if list := m.free[class]; len(list) > 0 {
		m.free[class], b = list[:len(list)-1], list[len(list)-1]
	} else {
		b = make([]byte, class)
	}
	return b[:n], uintptr(unsafe.Pointer(unsafe.SliceData(b))), nil
}

func (m *memory) Free(b []byte, _ uintptr, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	class := classOf(n)
	m.free[class] = append(m.free[class], b[:class])
}

// classOf returns the size of the block for n bytes.
func classOf(n int64) int64 { return (n + 1<<16 - 1) >> 16 << 16 }
