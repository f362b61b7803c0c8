package host

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// smallest is the size of the smallest block; blocks up to slab are carved
	// from mappings of slab bytes.
	smallest = 1 << 8
	slab     = 1 << 20
	// keep bounds the bytes of free blocks that are kept for reuse.
	keep = 128 << 20
)

// arena hands out blocks of memory outside the Go heap and keeps returned ones
// for reuse: pages that were touched once are several times faster than fresh
// ones. Sizes are rounded up to one of four steps a power of two.
type arena struct {
	mu     sync.Mutex
	free   map[int][]block // by class size
	kept   int64           // bytes in free blocks larger than slab
	carved []byte          // rest of the current slab
}

type block struct {
	mem []byte
}

func newArena() *arena { return &arena{free: map[int][]block{}} }

// class rounds a size up to the size of its block.
func class(n int64) int {
	if n <= smallest {
		return smallest
	}
	step := int64(1) << (bits.Len64(uint64(n-1)) - 3)
	return int((n + step - 1) / step * step)
}

// Allocate implements gpu.Allocator.
func (a *arena) Allocate(size int64) ([]byte, uintptr, error) {
	if size == 0 {
		return nil, 0, nil
	}
	if size < 0 || size > 1<<46 {
		return nil, 0, fmt.Errorf("impossible size %d", size)
	}
	c := class(size)
	a.mu.Lock()
	defer a.mu.Unlock()
	if list := a.free[c]; len(list) > 0 {
		b := list[len(list)-1]
		a.free[c] = list[:len(list)-1]
		if c > slab {
			a.kept -= int64(c)
		}
		return a.view(b.mem, size)
	}
	if c <= slab {
		if len(a.carved) < c {
			mem, err := mapMemory(slab)
			if err != nil {
				return nil, 0, err
			}
			a.carved = mem
		}
		mem := a.carved[:c:c]
		a.carved = a.carved[c:]
		return a.view(mem, size)
	}
	mem, err := mapMemory(c)
	if err != nil {
		return nil, 0, err
	}
	return a.view(mem, size)
}

func (a *arena) view(mem []byte, size int64) ([]byte, uintptr, error) {
	return mem[:size], uintptr(unsafe.Pointer(unsafe.SliceData(mem))), nil
}

// Free implements gpu.Allocator.
func (a *arena) Free(mem []byte, _ uintptr, size int64) {
	if size == 0 {
		return
	}
	c := class(size)
	mem = mem[:c]
	a.mu.Lock()
	if c > slab && a.kept+int64(c) > keep {
		a.mu.Unlock()
		// An unmapping that fails leaves the block mapped: nothing to undo.
		_ = unix.Munmap(mem)
		return
	}
	a.free[c] = append(a.free[c], block{mem})
	if c > slab {
		a.kept += int64(c)
	}
	a.mu.Unlock()
}

// trim unmaps the large free blocks until at most limit bytes are kept.
func (a *arena) trim(limit int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c, list := range a.free {
		if c <= slab {
			continue
		}
		for len(list) > 0 && a.kept > limit {
			_ = unix.Munmap(list[len(list)-1].mem)
			list = list[:len(list)-1]
			a.kept -= int64(c)
		}
		a.free[c] = list
	}
}

func mapMemory(n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	if n >= 2<<20 {
		// Advice only: without huge pages the memory is merely slower.
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	return mem, nil
}
