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
	// from mappings of slab bytes: those of up to small bytes, and others, which are whole pages.
	smallest = 1 << 8
	slab     = 2 * hugePage
	carve    = 1 << 20
	page     = 1 << 12
	// small is the size up to which free blocks always stay in memory. Larger free blocks
	// stay as long as they have at most leastKept bytes in total, and keptPerCore more for
	// every core above two, and the budget has room for them. The cores of a large machine wait
	// for each other when they touch memory anew.
	small       = page / 2
	leastKept   = 32 << 20
	keptPerCore = 64 << 20
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
	carved [2][]byte // the unused rests of slabs: of small blocks, and of whole pages
}

func newArena(cores int) *arena {
	return &arena{keep: leastKept + int64(max(cores-2, 0))*keptPerCore, free: map[int][][]byte{}, cold: map[int][][]byte{}, taken: map[int]int64{}}
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
	if n > small {
		unit = max(unit, page)
	}
	return int((n + unit - 1) / unit * unit)
}

// kind returns the kind of slabs from which blocks of a size class are cut.
func kind(c int) int {
	if c > small {
		return 1
	}
	return 0
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
	mem := a.take(c)
	if mem == nil {
		var err error
		if mem, err = mapMemory(max(c, slabOf(c)), true); err != nil {
			return nil, 0, err
		}
		mem = a.enter(c, mem)
	}
	return mem[:size], uintptr(unsafe.Pointer(unsafe.SliceData(mem))), nil
}

// slabOf returns the size of the mapping from which blocks of a size class are cut, 0 if they have a
// mapping of their own.
func slabOf(c int) int {
	if c > carve {
		return 0
	}
	return slab
}

// take returns a block of size class c that is mapped already, or nil.
func (a *arena) take(c int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.takes++
	a.taken[c] = a.takes
	if list := a.free[c]; len(list) > 0 {
		a.free[c] = list[:len(list)-1]
		if c > small {
			a.kept -= int64(c)
			a.lease.Unreserve(int64(c))
		}
		a.out++
		return list[len(list)-1]
	}
	if list := a.cold[c]; len(list) > 0 {
		a.cold[c] = list[:len(list)-1]
		a.out++
		return list[len(list)-1]
	}
	rest := a.carved[kind(c)]
	if c > carve || len(rest) < c {
		return nil
	}
	a.out++
	a.carved[kind(c)] = rest[c:]
	return rest[:c:c]
}

// enter returns a block of size class c of a new mapping.
func (a *arena) enter(c int, mem []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.out++
	if c > carve {
		return mem
	}
	a.slabs = append(a.slabs, mem)
	if rest := mem[c:]; len(rest) > len(a.carved[kind(c)]) { // others may have mapped a slab meanwhile
		a.carved[kind(c)] = rest
	}
	return mem[:c:c]
}

// Free implements gpu.Allocator.
func (a *arena) Free(mem []byte, _ uintptr, size int64) {
	if size == 0 {
		return
	}
	c := class(size)
	mem = mem[:c]
	a.drop(a.keepFree(c, mem))
	a.mu.Lock()
	a.out--
	a.mu.Unlock()
}

// keepFree takes a free block of size class c, and returns the blocks to be dropped for it.
func (a *arena) keepFree(c int, mem []byte) (dropped [][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c > small {
		for a.kept+int64(c) > a.keep {
			old := a.older(c)
			if old == nil {
				break
			}
			dropped = append(dropped, old)
		}
		if a.kept+int64(c) > a.keep || a.lease.Reserve(int64(c)) != nil {
			return append(dropped, mem)
		}
		a.kept += int64(c)
	}
	a.free[c] = append(a.free[c], mem)
	return dropped
}

// older removes a free block of the size class that was not asked for the longest, if
// that is longer than for c. Otherwise the blocks of an earlier operator would fill what
// is kept, and blocks in use now would lose their pages whenever they are free for a
// moment. The caller holds the lock.
func (a *arena) older(c int) []byte {
	oldest := c
	for o, list := range a.free {
		if o > small && len(list) > 0 && a.taken[o] < a.taken[oldest] {
			oldest = o
		}
	}
	if oldest == c {
		return nil
	}
	list := a.free[oldest]
	a.free[oldest] = list[:len(list)-1]
	a.kept -= int64(oldest)
	a.lease.Unreserve(int64(oldest))
	return list[len(list)-1]
}

// drop gives the pages of free blocks back to the system. That takes long, so nobody holds the lock.
func (a *arena) drop(blocks [][]byte) {
	for _, mem := range blocks {
		if cap(mem) > carve {
			unmap(mem)
			continue
		}
		forget(mem)
		a.mu.Lock()
		a.cold[cap(mem)] = append(a.cold[cap(mem)], mem)
		a.mu.Unlock()
	}
}

// Reclaimable implements gpu.Reclaimer.
func (a *arena) Reclaimable() (bytes int64, cost float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept, refault
}

// Reclaim implements gpu.Reclaimer.
func (a *arena) Reclaim(want int64) (given int64) {
	var dropped [][]byte
	a.mu.Lock()
	for c, list := range a.free {
		for c > small && len(list) > 0 && given < want {
			dropped = append(dropped, list[len(list)-1])
			list = list[:len(list)-1]
			given += int64(c)
		}
		a.free[c] = list
	}
	a.kept -= given
	a.mu.Unlock()
	a.drop(dropped)
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
		a.free, a.cold, a.slabs, a.carved = map[int][][]byte{}, map[int][][]byte{}, nil, [2][]byte{}
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
	size := (n + page - 1) &^ (page - 1)
	if tail := uintptr(n+extra) - lead - uintptr(size); tail > page {
		_ = unix.MunmapPtr(unsafe.Add(mem, int(lead)+size), tail&^(page-1))
	}
	mem = unsafe.Add(mem, int(lead))
	out := unsafe.Slice((*byte)(mem), n)
	_ = unix.Madvise(out, unix.MADV_HUGEPAGE)
	return out, nil
}

// forget gives the pages of a block back to the system and keeps the addresses. If that fails,
// the pages stay in use: nothing needs to be undone.
func forget(mem []byte) { _ = unix.Madvise(mem, unix.MADV_DONTNEED) }

// unmap gives memory back to the system. If that fails, it stays mapped: nothing needs to
// be undone.
func unmap(mem []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}
