package parquet

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/gstream/gstream/gpu"
	"github.com/stretchr/testify/require"
)

// testMemory is an allocator on the Go heap that keeps blocks for reuse.
type testMemory struct {
	mu   sync.Mutex
	free map[int64][][]byte
}

func (m *testMemory) Allocate(n int64) ([]byte, uintptr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	class := (n + 1<<16 - 1) >> 16 << 16
	if list := m.free[class]; len(list) > 0 {
		m.free[class] = list[:len(list)-1]
		b := list[len(list)-1][:n]
		return b, uintptr(unsafe.Pointer(unsafe.SliceData(b))), nil
	}
	b := make([]byte, class)[:n]
	return b, uintptr(unsafe.Pointer(unsafe.SliceData(b))), nil
}

func (m *testMemory) Free(b []byte, _ uintptr, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	class := (n + 1<<16 - 1) >> 16 << 16
	m.free[class] = append(m.free[class], b[:class])
}

// newBudget returns a budget that must be without leaks at the end of the test.
func newBudget(t testing.TB, limit int64) *gpu.Budget {
	b := gpu.NewBudget("host", "--host-memory", limit, &testMemory{free: map[int64][][]byte{}})
	t.Cleanup(func() { require.Empty(t, b.Leaks()) })
	return b
}
