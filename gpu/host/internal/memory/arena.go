// Package memory has the memory of the CPU device: an arena of blocks outside of the Go heap, and
// arrays and vectors in the memory of leases.
package memory

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/internal/spin"
)

const (
	// smallest is the size of the smallest block. Blocks of up to small bytes are cut from mappings
	// of smallSlab bytes. Blocks of up to carve bytes, which are whole pages, are cut from mappings
	// of slab bytes. If each column of a stride had a mapping of its own, the cores of a large
	// machine would wait for the system.
	smallest  = 1 << 8
	smallSlab = 2 * hugePage
	carve     = 8 << 20
	slab      = 4 * carve
	page      = 1 << 12
	// classes bounds the numbers of size classes.
	classes = 48 * 4
	// mostRests bounds the unused rests of slabs of a kind.
	mostRests = 64
	// small is the size up to which free blocks always stay in memory. Larger free blocks stay as
	// long as they have at most leastKept bytes in total, plus keptPerCore for every core above
	// two, and fit the budget. The cores of a large machine wait for each other when they touch
	// fresh memory.
	small       = page / 2
	leastKept   = 32 << 20
	keptPerCore = 64 << 20
	// refault is the cost of touching fresh memory, in seconds per GiB.
	refault = 0.25
)

// Arena allocates blocks of memory outside of the Go heap. It keeps free blocks for reuse, because
// pages that were touched before are several times faster than fresh pages. It rounds sizes up to
// one of four classes per power of two. Free blocks that stay in memory count against the budget,
// which reclaims them when it needs them.
type Arena struct {
	keep       int64 // upper bound of kept
	lease      *gpu.Lease
	unregister func()

	mu     spin.Mutex
	blocks [classes]blocks
	kept   int64 // bytes of free blocks larger than small
	coming int64 // bytes of free blocks that are about to be kept
	takes  int64 // calls of take
	out    int   // blocks in use
	slabs  [][]byte
	rests  [2][][]byte // unused rests of slabs: of small blocks, and of whole pages
}

// blocks are the free blocks of a size class.
type blocks struct {
	free  [][]byte
	cold  [][]byte // of slabs, whose pages were returned to the system
	taken int64    // the value of takes at the last call of take for the class
}

// NewArena returns an arena for a number of cores. Register it before it is used.
func NewArena(cores int) *Arena {
	return &Arena{keep: leastKept + int64(max(cores-2, 0))*keptPerCore}
}

// Register registers the arena with its budget.
func (a *Arena) Register(b *gpu.Budget) {
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

// numberOf returns the number of a size class.
func numberOf(c int) int {
	e := bits.Len(uint(c - 1))
	return 4*e + (c-1)>>(e-3)&3
}

// kind returns the kind of slabs from which blocks of a size class are cut.
func kind(c int) int {
	if c > small {
		return 1
	}
	return 0
}

// Allocate implements gpu.Allocator.
func (a *Arena) Allocate(size int64) ([]byte, uintptr, error) {
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

// slabOf returns the size of the mapping from which blocks of a size class are cut, or 0 if each
// has its own mapping.
func slabOf(c int) int {
	switch {
	case c <= small:
		return smallSlab
	case c <= carve:
		return slab
	}
	return 0
}

// take returns a block of size class c that is mapped already, or nil.
func (a *Arena) take(c int) []byte {
	mem, kept := a.find(c)
	if kept {
		a.lease.Unreserve(int64(c))
	}
	return mem
}

// find is take. It also reports whether the block was a kept one, for which the lease pays.
func (a *Arena) find(c int) (mem []byte, kept bool) {
	b := &a.blocks[numberOf(c)]
	a.mu.Lock()
	defer a.mu.Unlock()
	a.takes++
	b.taken = a.takes
	switch {
	case len(b.free) > 0:
		mem, kept = pop(&b.free), c > small
		if kept {
			a.kept -= int64(c)
		}
	case len(b.cold) > 0:
		mem = pop(&b.cold)
	case c <= carve:
		mem = a.cut(c)
	}
	if mem != nil {
		a.out++
	}
	return mem, kept
}

func pop(list *[][]byte) []byte {
	last := len(*list) - 1
	mem := (*list)[last]
	*list = (*list)[:last]
	return mem
}

// cut cuts a block of size class c from the rest of a slab, or returns nil. The caller holds the lock.
func (a *Arena) cut(c int) []byte {
	rests := &a.rests[kind(c)]
	for i := len(*rests) - 1; i >= 0; i-- {
		if rest := (*rests)[i]; len(rest) >= c {
			(*rests)[i] = rest[c:]
			if len(rest) == c {
				*rests = slices.Delete(*rests, i, i+1)
			}
			return rest[:c:c]
		}
	}
	return nil
}

// enter returns a block of size class c from a new mapping.
func (a *Arena) enter(c int, mem []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.out++
	if c > carve {
		return mem
	}
	a.slabs = append(a.slabs, mem)
	rests := &a.rests[kind(c)]
	if *rests = append(*rests, mem[c:]); len(*rests) > mostRests {
		shortest := 0
		for i, rest := range *rests {
			if len(rest) < len((*rests)[shortest]) {
				shortest = i
			}
		}
		*rests = slices.Delete(*rests, shortest, shortest+1)
	}
	return mem[:c:c]
}

// Free implements gpu.Allocator.
func (a *Arena) Free(mem []byte, _ uintptr, size int64) {
	if size == 0 {
		return
	}
	c := class(size)
	mem = mem[:c]
	a.drop(a.keepFree(c, mem))
}

// keepFree keeps a free block of size class c, and returns the blocks to drop for it.
func (a *Arena) keepFree(c int, mem []byte) (dropped [][]byte) {
	keeps, pays := true, c > small
	if pays {
		dropped, keeps = a.makeRoom(c)
		for _, old := range dropped {
			a.lease.Unreserve(int64(cap(old)))
		}
		keeps = keeps && a.lease.Reserve(int64(c)) == nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.out--
	if pays {
		a.coming -= int64(c)
	}
	if !keeps {
		return append(dropped, mem)
	}
	if pays {
		a.kept += int64(c)
	}
	b := &a.blocks[numberOf(c)]
	b.free = append(b.free, mem)
	return dropped
}

// makeRoom removes free blocks until a block of size class c may be kept, and reports whether it
// may. It adds the block to coming. Budgets have their own locks, so the reservation for kept
// blocks is made without the arena's lock.
func (a *Arena) makeRoom(c int) (dropped [][]byte, room bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	full := func() bool { return a.kept+a.coming+int64(c) > a.keep }
	for full() {
		old := a.older(c)
		if old == nil {
			break
		}
		dropped = append(dropped, old)
	}
	room = !full()
	a.coming += int64(c)
	return dropped, room
}

// older removes a free block of the least recently requested size class, if that is older than
// class c. Otherwise the blocks of an earlier operator would occupy the kept memory, and blocks in
// use now would lose their pages whenever they are free for a moment. The caller holds the lock.
func (a *Arena) older(c int) []byte {
	oldest := &a.blocks[numberOf(c)]
	least := oldest
	for i := numberOf(small) + 1; i < classes; i++ {
		if b := &a.blocks[i]; len(b.free) > 0 && b.taken < oldest.taken {
			oldest = b
		}
	}
	if oldest == least {
		return nil
	}
	mem := pop(&oldest.free)
	a.kept -= int64(cap(mem))
	return mem
}

// drop returns the pages of free blocks to the system. This is slow, so the lock must not be held.
func (a *Arena) drop(blocks [][]byte) {
	for _, mem := range blocks {
		if cap(mem) > carve {
			unmap(mem)
			continue
		}
		forget(mem)
		a.mu.Lock()
		b := &a.blocks[numberOf(cap(mem))]
		b.cold = append(b.cold, mem)
		a.mu.Unlock()
	}
}

// Reclaimable implements gpu.Reclaimer.
func (a *Arena) Reclaimable() (bytes int64, cost float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept, refault
}

// Reclaim implements gpu.Reclaimer.
func (a *Arena) Reclaim(want int64) (given int64) {
	var dropped [][]byte
	a.mu.Lock()
	for i := numberOf(small) + 1; i < classes; i++ {
		for b := &a.blocks[i]; len(b.free) > 0 && given < want; {
			dropped = append(dropped, pop(&b.free))
			given += int64(cap(dropped[len(dropped)-1]))
		}
	}
	a.kept -= given
	a.mu.Unlock()
	a.drop(dropped)
	a.lease.Unreserve(given)
	return given
}

// Close unmaps all memory, unless a buffer is still in use.
func (a *Arena) Close() {
	a.unregister()
	a.Reclaim(math.MaxInt64)
	_ = a.lease.Close() // nothing is reserved
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out == 0 {
		for _, mem := range a.slabs {
			unmap(mem)
		}
		a.blocks, a.slabs, a.rests = [classes]blocks{}, nil, [2][][]byte{}
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
	mem, err := unix.MmapPtr(-1, 0, nil, uintptr(n+extra), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
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

// forget returns the pages of a block to the system and keeps the addresses. If that fails, the
// pages stay in use: nothing needs to be undone.
func forget(mem []byte) { _ = unix.Madvise(mem, unix.MADV_DONTNEED) }

// unmap returns memory to the system. If that fails, it stays mapped: nothing needs to be undone.
func unmap(mem []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}
