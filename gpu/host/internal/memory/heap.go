package memory

import "github.com/gstream/gstream/gpu"

// HeapLease returns a lease of at most limit bytes of the Go heap; 0 means no limit. The garbage
// collector frees memory that is not released.
func HeapLease(name string, limit int64) *gpu.Lease {
	return gpu.NewBudget("host", gpu.HostMemory, limit, heap{}).Lease(name)
}

// heap is the Go heap as an allocator. The garbage collector frees its memory.
type heap struct{}

func (heap) Allocate(n int64) ([]byte, uintptr, error) {
	return gpu.BytesOf(make([]uint64, (n+7)/8))[:n], 0, nil
}

func (heap) Free([]byte, uintptr, int64) {}
