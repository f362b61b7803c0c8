package host

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
)

const (
	// smallest is the size of the smallest block. Blocks of up to carve bytes are cut
	// from mappings of slab bytes.
	smallest = 1 << 8
	slab     = 2 * hugePage
	carve    = 1 << 20
	// small is the size up to which free blocks always stay in memory. Larger free blocks
	// stay as long as they have at most leastKept bytes in total, or keptPerCore for
	// every core if that is more, and the budget has room for them.
	small       = 1 << 13
	leastKept   = 32 << 20
	keptPerCore = 32 << 20
	// refault is the cost of touching memory anew, in seconds a GiB.
	refault = 0.25
)

// arena gives out blocks of memory outside the Go heap. It keeps free blocks for reuse,
// because pages that were touched before are several times faster than fresh pages. It
// rounds sizes up to one of four classes a power of two. Free blocks that stay in memory
// count against the budget, which gets them back when it needs them.
type arena struct {
	keep       int64 // upper bound of kept
	lease      *gpu.Lease
	unregister func()

	mu     sync.Mutex
	free   map[int][][]byte // by class size
	cold   map[int][][]byte // free blocks of slabs whose pages were given back, by size class
	kept   int64            // bytes of free blocks larger than small
	takes  int64            // calls of take
	taken  map[int]int64    // by size class: the value of takes at its last call
	out    int              // blocks given out
	slabs  [][]byte
	carved []byte // the unused rest of the newest slab
}

func newArena(cores int) *arena {
	return &arena{keep: max(leastKept, int64(cores)*keptPerCore), free: map[int][][]byte{}, cold: map[int][][]byte{}, taken: map[int]int64{}}
}

// register makes the arena known to its budget.
func (a *arena) register(b *gpu.Budget) {
	a.lease, a.unregister = b.CacheLease("free blocks"), b.Register(a)
}

// class returns the size class of a size: the size of its block.
func class(n int64) int {
	if n <= smallest {
		return smallest
	}
	unit := int64(1) << (bits.Len64(uint64(n-1)) - 3)
	return int((n + unit - 1) / unit * unit)
}

// Allocate implements gpu.Allocator.
func (a *arena) Allocate(size int64) ([]byte, uintptr, error) {
	if size == 0 {
		return nil, 0, nil
	}
	if size < 0 || size > 1<<46 {
		return nil, 0, fmt.Errorf("impossible size %d", size)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	mem, err := a.take(class(size))
	if err != nil {
		return nil, 0, err
	}
	a.out++
	return mem[:size], uintptr(unsafe.Pointer(unsafe.SliceData(mem))), nil
}

// take returns a block of size class c.
func (a *arena) take(c int) ([]byte, error) {
	a.takes++
	a.taken[c] = a.takes
	if list := a.free[c]; len(list) > 0 {
		a.free[c] = list[:len(list)-1]
		if c > small {
			a.kept -= int64(c)
			a.lease.Unreserve(int64(c))
		}
		return list[len(list)-1], nil
	}
	if list := a.cold[c]; len(list) > 0 {
		a.cold[c] = list[:len(list)-1]
		return list[len(list)-1], nil
	}
	if c > carve {
		return mapMemory(c, true)
	}
	if len(a.carved) < c {
		mem, err := mapMemory(slab, true)
		if err != nil {
			return nil, err
		}
		a.slabs = append(a.slabs, mem)
		a.carved = mem
	}
	mem := a.carved[:c:c]
	a.carved = a.carved[c:]
	return mem, nil
}

// Free implements gpu.Allocator.
func (a *arena) Free(mem []byte, _ uintptr, size int64) {
	if size == 0 {
		return
	}
	c := class(size)
	mem = mem[:c]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.out--
	if c > small {
		for a.kept+int64(c) > a.keep && a.dropOlder(c) {
		}
		if a.kept+int64(c) > a.keep || a.lease.Reserve(int64(c)) != nil {
			a.drop(c, mem)
			return
		}
		a.kept += int64(c)
	}
	a.free[c] = append(a.free[c], mem)
}

// dropOlder drops a free block of the size class that was not asked for the longest, if
// that is longer than for c. Otherwise the blocks of an earlier operator would fill what
// is kept, and blocks in use now would lose their pages whenever they are free for a
// moment.
func (a *arena) dropOlder(c int) bool {
	oldest := c
	for o, list := range a.free {
		if o > small && len(list) > 0 && a.taken[o] < a.taken[oldest] {
			oldest = o
		}
	}
	if oldest == c {
		return false
	}
	list := a.free[oldest]
	a.free[oldest] = list[:len(list)-1]
	a.kept -= int64(oldest)
	a.lease.Unreserve(int64(oldest))
	a.drop(oldest, list[len(list)-1])
	return true
}

// drop gives the pages of a free block back to the system.
func (a *arena) drop(c int, mem []byte) {
	if c > carve {
		unmap(mem)
		return
	}
	forget(mem)
	a.cold[c] = append(a.cold[c], mem)
}

// Reclaimable implements gpu.Reclaimer.
func (a *arena) Reclaimable() (bytes int64, cost float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept, refault
}

// Reclaim implements gpu.Reclaimer.
func (a *arena) Reclaim(want int64) (given int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c, list := range a.free {
		for c > small && len(list) > 0 && given < want {
			a.drop(c, list[len(list)-1])
			list = list[:len(list)-1]
			given += int64(c)
		}
		a.free[c] = list
	}
	a.kept -= given
	a.lease.Unreserve(given)
	return given
}

// close unmaps all memory, unless a buffer is still in use.
func (a *arena) close() {
	a.unregister()
	a.Reclaim(math.MaxInt64)
	_ = a.lease.Close() // nothing is reserved
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out == 0 {
		for _, mem := range a.slabs {
			unmap(mem)
		}
		a.free, a.cold, a.slabs, a.carved = map[int][][]byte{}, map[int][][]byte{}, nil, nil
	}
}

// hugePage is the size and alignment of a huge page. It costs one fault and one TLB entry
// instead of 512.
const hugePage = 2 << 20

// mapMemory maps n bytes: in huge pages if huge is set and n is at least one huge page.
func mapMemory(n int, huge bool) ([]byte, error) {
	extra := 0
	if huge && n >= hugePage {
		extra = hugePage
	}
	mem, err := unix.MmapPtr(-1, 0, nil, uintptr(n+extra), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	if extra == 0 {
		return unsafe.Slice((*byte)(mem), n), nil
	}
	// Unmap both ends. An end that cannot be unmapped stays mapped and is never used.
	lead := -uintptr(mem) & (hugePage - 1)
	if lead > 0 {
		_ = unix.MunmapPtr(mem, lead)
	}
	size := (n + 4095) &^ 4095
	if tail := uintptr(n+extra) - lead - uintptr(size); tail > 4096 {
		_ = unix.MunmapPtr(unsafe.Add(mem, int(lead)+size), tail&^4095)
	}
	mem = unsafe.Add(mem, int(lead))
	out := unsafe.Slice((*byte)(mem), n)
	_ = unix.Madvise(out, unix.MADV_HUGEPAGE)
	return out, nil
}

// forget gives the whole pages of a block back to the system and keeps the addresses. If
// that fails, the pages stay in use: nothing needs to be undone.
func forget(mem []byte) {
	const page = 4096
	lead := int(-uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & (page - 1))
	if n := (len(mem) - lead) &^ (page - 1); n > 0 {
		_ = unix.Madvise(mem[lead:lead+n], unix.MADV_DONTNEED)
	}
}

// unmap gives memory back to the system. If that fails, it stays mapped: nothing needs to
// be undone.
func unmap(mem []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}
