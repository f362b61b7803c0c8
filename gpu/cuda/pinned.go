package cuda

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
)

const (
	// pinnedAlign is the unit of page-locked blocks, in bytes.
	pinnedAlign = 256
	// slabSize is the number of bytes mapped at a time, unless more is needed or the budget is
	// smaller.
	slabSize = 128 << 20
	// segmentSize is the number of bytes page-locked at a time. Locking them takes 0.8 ms, during
	// which the driver launches no kernels; earlier copies continue. Smaller segments take longer
	// in total.
	segmentSize = 32 << 20
	hugePage    = 2 << 20
	// registerPortable makes page-locked memory known to all GPUs.
	registerPortable = 1
	// hostTier is the name of page-locked memory in out-of-budget errors.
	hostTier = "page-locked host"
	// smallPinned is the size up to which freed blocks are kept by size, recentPinned bounds the
	// bytes of all of them. Pages of Parquet files use such blocks briefly.
	smallPinned  = 1 << 20
	recentPinned = 64 << 20
)

// pinned allocates page-locked host memory. Page-locking fresh memory costs 0.37 s per GB,
// page-locking touched memory 0.025 s per GB. So memory is mapped in large slabs, touched by all
// cores, locked at its first copy, and kept until the device is closed. The kept memory is not
// charged, but bounded: before more is mapped than the budget has, slabs that are entirely free are
// unmapped.
type pinned struct {
	dev *Device

	mu      sync.Mutex
	grown   sync.Cond // a slab was added, or growing ended
	growing bool      // a goroutine is adding a slab
	slabs   []*slab   // sorted by address
	free    []extent  // sorted by address; no two are adjacent
	spare   int64     // bytes of free
	// recent has free small blocks by size, the one that was freed last at the end. They
	// are not in free.
	recent      map[int64][]uintptr
	recentBytes int64

	premapping sync.WaitGroup
	hungry     sync.Cond // there are fewer spare bytes than premap wants, or premap must stop
	need       int64     // bytes for which an allocation waits
	stopped    bool
}

// slab is memory from one mapping. The mapping has an additional huge page, so that the slab begins
// at a huge page, and so that blocks of two slabs are never adjacent and never merged.
type slab struct {
	mapped   []byte
	mem      []byte
	segments []segment
}

// segment is the part of a slab that is page-locked at once. A copy of the driver must lie
// within one segment.
type segment struct {
	mem    []byte
	mu     sync.Mutex // held while the segment is locked
	locked atomic.Bool
}

func (c *slab) base() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(c.mem))) }
func (c *slab) size() int64   { return int64(len(c.mem)) }

// segment returns the segment that contains an address.
func (c *slab) segment(addr uintptr) *segment { return &c.segments[(addr-c.base())/segmentSize] }

func (s *segment) addr() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s.mem))) }

// extent is a range of free bytes in a slab.
type extent struct {
	addr uintptr
	size int64
	in   *slab
}

func newPinned(d *Device) *pinned {
	p := &pinned{dev: d, recent: map[int64][]uintptr{}}
	p.grown.L, p.hungry.L = &p.mu, &p.mu
	return p
}

// pinnedSize rounds a size up to that of its block. Small blocks have one of eight sizes per power
// of two.
func pinnedSize(size int64) int64 {
	unit := int64(pinnedAlign)
	if size <= smallPinned {
		unit = max(unit, 1<<bits.Len64(uint64(size-1))>>4)
	}
	return (size + unit - 1) &^ (unit - 1)
}

// Allocate implements gpu.Allocator. The device address of the memory is its host
// address.
func (p *pinned) Allocate(size int64) ([]byte, uintptr, error) {
	if size == 0 {
		return nil, 0, nil
	}
	if size < 0 || size > 1<<46 {
		return nil, 0, fmt.Errorf("impossible size %d", size)
	}
	need := pinnedSize(size)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if addr, ok := p.take(need); ok {
			return p.view(addr, size), addr, nil
		}
		if p.flushRecent() {
			continue
		}
		if p.growing {
			p.need = max(p.need, need)
			p.hungry.Signal()
			p.grown.Wait()
			continue
		}
		p.growing = true
		p.mu.Unlock()
		err := p.grow(need)
		p.mu.Lock()
		p.growing = false
		p.grown.Broadcast()
		if err != nil {
			return nil, 0, err
		}
	}
}

// grow adds a slab with room for n bytes.
func (p *pinned) grow(n int64) error {
	if err := p.dev.Wait(); err != nil {
		return err
	}
	defer p.dev.setsUp("more page-locked memory")()
	size := max(n, min(slabSize, p.dev.host.Limit()))
	if err := p.trim(p.dev.host.Limit() - size); err != nil {
		return err
	}
	c, err := mapSlab(size)
	if err != nil {
		return err
	}
	for i := range c.segments {
		if err := p.lock(&c.segments[i]); err != nil {
			_ = p.unmap(c)
			return err
		}
	}
	p.add(c)
	return nil
}

// trim unmaps free slabs until the remaining ones have at most limit bytes, or until there are no
// more free slabs.
func (p *pinned) trim(limit int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	mapped := int64(0)
	for _, c := range p.slabs {
		mapped += c.size()
	}
	for i := 0; i < len(p.free) && mapped > limit; {
		e := p.free[i]
		if e.size < e.in.size() {
			i++
			continue
		}
		p.free = slices.Delete(p.free, i, i+1)
		p.slabs = slices.DeleteFunc(p.slabs, func(c *slab) bool { return c == e.in })
		p.spare -= e.size
		mapped -= e.size
		if err := p.unmap(e.in); err != nil {
			return err
		}
	}
	return nil
}

// add makes a slab's memory free to use.
func (p *pinned) add(c *slab) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slabs = slices.Insert(p.slabs, p.behind(c.base()), c)
	p.put(extent{c.base(), c.size(), c})
	p.grown.Broadcast()
}

// behind returns the position of the first slab that begins after an address.
func (p *pinned) behind(addr uintptr) int {
	return sort.Search(len(p.slabs), func(i int) bool { return p.slabs[i].base() > addr })
}

// at returns the slab that contains an address, or nil.
func (p *pinned) at(addr uintptr) *slab {
	if i := p.behind(addr) - 1; i >= 0 && addr-p.slabs[i].base() < uintptr(p.slabs[i].size()) {
		return p.slabs[i]
	}
	return nil
}

// view returns the memory at an address in a slab.
func (p *pinned) view(addr uintptr, size int64) []byte {
	c := p.at(addr)
	from := int64(addr - c.base())
	return c.mem[from : from+size : from+size]
}

// eachLocked calls do for each part of [addr, addr+n) within one segment, after it has page-locked
// the segment. Memory outside of slabs, such as small constants, is not locked: do is called once
// for all of it, with locked false. If the driver cannot lock a segment, the error is an
// out-of-budget error of the lease. A copy of unlocked memory would be slower and would block its
// caller, for no visible reason.
func (p *pinned) eachLocked(l *gpu.Lease, addr uintptr, n int64,
	do func(addr uintptr, n int64, locked bool) error) error {
	p.mu.Lock()
	c := p.at(addr)
	p.mu.Unlock()
	if c == nil {
		return do(addr, n, false)
	}
	for n > 0 {
		part := min(n, segmentSize-int64(addr-c.base())%segmentSize)
		s := c.segment(addr)
		if err := p.lock(s); err != nil {
			if p.dev.ctx.broken.Load() != nil {
				return err
			}
			return &gpu.AllocError{Stage: l.Name(), Tier: hostTier, Size: int64(len(s.mem)), Err: err}
		}
		if err := do(addr, part, true); err != nil {
			return err
		}
		addr, n = addr+uintptr(part), n-part
	}
	return nil
}

// lockAt page-locks the memory at an address before a copy.
func (p *pinned) lockAt(l *gpu.Lease, addr uintptr, n int64) error {
	return p.eachLocked(l, addr, n, func(uintptr, int64, bool) error { return nil })
}

// lockColumn page-locks the memory of a column before a copy.
func (p *pinned) lockColumn(l *gpu.Lease, c gpu.Column) error {
	parts := []*gpu.Buffer{c.Data, c.Offsets, c.Valid}
	if pieces := c.Data.Pieces(); pieces != nil {
		parts = append(parts[1:], pieces...)
	}
	for _, b := range parts {
		if err := p.lockAt(l, b.Addr(), b.Size()); err != nil {
			return err
		}
	}
	if c.Dict != nil {
		return p.lockColumn(l, c.Dict.Values)
	}
	return nil
}

// take returns the most recently freed block of n bytes, which is probably in the core's cache. If
// there is none, it cuts n bytes from the smallest free extent that is large enough. It prefers
// extents that begin page-locked, because locking takes half as long as copying.
func (p *pinned) take(n int64) (uintptr, bool) {
	if list := p.recent[n]; len(list) > 0 {
		p.recent[n] = list[:len(list)-1]
		p.recentBytes -= n
		return list[len(list)-1], true
	}
	best, bestLocked := -1, false
	for i, e := range p.free {
		if e.size < n {
			continue
		}
		locked := e.in.segment(e.addr).locked.Load()
		if best < 0 || locked && !bestLocked || locked == bestLocked && e.size < p.free[best].size {
			best, bestLocked = i, locked
		}
	}
	if best < 0 {
		return 0, false
	}
	e := &p.free[best]
	addr := e.addr
	e.addr += uintptr(n)
	e.size -= n
	if e.size == 0 {
		p.free = slices.Delete(p.free, best, best+1)
	}
	p.spare -= n
	p.hungry.Signal()
	return addr, true
}

// Free implements gpu.Allocator.
func (p *pinned) Free(_ []byte, addr uintptr, size int64) {
	if size == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := pinnedSize(size)
	if n <= smallPinned && p.recentBytes+n <= recentPinned {
		p.recent[n] = append(p.recent[n], addr)
		p.recentBytes += n
		return
	}
	p.put(extent{addr, n, p.at(addr)})
}

// pinnedBlock is page-locked memory for which no lease pays, because it is small and brief.
type pinnedBlock struct {
	of   *pinned
	mem  []byte
	addr uintptr
}

// block returns n bytes.
func (p *pinned) block(n int64) (pinnedBlock, error) {
	mem, addr, err := p.Allocate(n)
	return pinnedBlock{p, mem, addr}, err
}

// release frees the block, if there is one.
func (b *pinnedBlock) release() {
	if b.mem != nil {
		b.of.Free(b.mem, b.addr, int64(len(b.mem)))
		b.mem = nil
	}
}

// flushRecent adds the recent blocks to the free extents. It reports whether there were
// any. The caller holds the lock.
func (p *pinned) flushRecent() bool {
	had := p.recentBytes > 0
	for n, list := range p.recent {
		for _, addr := range list {
			p.put(extent{addr, n, p.at(addr)})
		}
	}
	clear(p.recent)
	p.recentBytes = 0
	return had
}

// put adds a free extent and merges it with its neighbours.
func (p *pinned) put(e extent) {
	p.spare += e.size
	i := sort.Search(len(p.free), func(i int) bool { return p.free[i].addr > e.addr })
	if i < len(p.free) && e.addr+uintptr(e.size) == p.free[i].addr {
		e.size += p.free[i].size
		p.free = slices.Delete(p.free, i, i+1)
	}
	if i > 0 && p.free[i-1].addr+uintptr(p.free[i-1].size) == e.addr {
		p.free[i-1].size += e.size
		return
	}
	p.free = slices.Insert(p.free, i, e)
}

// mapSlab maps and touches a slab of at least n bytes.
func mapSlab(n int64) (*slab, error) {
	size := (n + hugePage - 1) &^ (hugePage - 1)
	mapped, err := unix.Mmap(-1, 0, int(size+hugePage), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %s of host memory: %w", bytesText(size), err)
	}
	_ = unix.Madvise(mapped, unix.MADV_HUGEPAGE) // small pages work too
	ahead := -uintptr(unsafe.Pointer(unsafe.SliceData(mapped))) & (hugePage - 1)
	c := &slab{mapped: mapped, mem: mapped[ahead : int64(ahead)+size]}
	touch(c.mem)
	c.segments = make([]segment, blocks(len(c.mem), segmentSize))
	for i := range c.segments {
		c.segments[i].mem = c.mem[i*segmentSize : min((i+1)*segmentSize, len(c.mem))]
	}
	return c, nil
}

// lock page-locks a segment, unless it is locked.
func (p *pinned) lock(s *segment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locked.Load() {
		return nil
	}
	if err := p.dev.Wait(); err != nil { // another GPU of a group may have started earlier
		return err
	}
	defer p.dev.setsUp("page-lock")()
	// Never between the launches of a primitive, which would wait.
	p.dev.computing.Lock()
	err := p.dev.ctx.do(cuMemHostRegister, s.addr(), uintptr(len(s.mem)), registerPortable)
	p.dev.computing.Unlock()
	if err != nil {
		return fmt.Errorf("page-lock %s of host memory: %w", bytesText(int64(len(s.mem))), err)
	}
	s.locked.Store(true)
	return nil
}

// unmap unmaps a slab.
func (p *pinned) unmap(c *slab) error {
	var first error
	for i := range c.segments {
		if s := &c.segments[i]; s.locked.Load() {
			if err := p.dev.ctx.do(cuMemHostUnregister, s.addr()); err != nil && first == nil {
				first = err
			}
		}
	}
	if err := unix.Munmap(c.mapped); err != nil && first == nil {
		first = err
	}
	return first
}

// premap maps and touches slabs of at most size bytes in total, in the background, before there is
// a context to lock them. It stays only a little ahead of the memory in use, so that small jobs
// take little. The slabs can be used immediately. Allocations that need more wait for them.
func (p *pinned) premap(size int64) {
	p.growing = true
	p.premapping.Add(1)
	go func() {
		defer p.premapping.Done()
		for size > 0 {
			n := p.short(size)
			if n == 0 {
				break
			}
			end := p.dev.setsUp("touch host memory")
			c, err := mapSlab(n)
			end()
			if err != nil {
				break // the goroutine that needs the memory will report the error
			}
			p.add(c)
			size -= n
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.growing = false
		p.grown.Broadcast()
	}()
}

// short waits until premap has to map more, and returns the number of bytes, at most limit. It
// returns 0 if premap has to stop, or if an allocation needs more than limit.
func (p *pinned) short(limit int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.spare >= aheadSpare && p.need == 0 && !p.stopped {
		p.hungry.Wait()
	}
	n := max(min(slabSize, limit), p.need)
	p.need = 0
	if p.stopped || n > limit {
		return 0
	}
	return n
}

// stop ends premap.
func (p *pinned) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.hungry.Signal()
}

// touch makes the system back memory with pages, on all cores.
func touch(mem []byte) {
	const part = 4 << 20
	inParallel(blocks(len(mem), part), func(k int) {
		for i := k * part; i < min((k+1)*part, len(mem)); i += 4096 {
			mem[i] = 0
		}
	})
}

// inParallel calls do for the numbers below n, on all cores.
func inParallel(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

func (p *pinned) close() error {
	p.stop()
	p.premapping.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var first error
	for _, c := range p.slabs {
		if err := p.unmap(c); err != nil && first == nil {
			first = err
		}
	}
	p.slabs, p.free = nil, nil
	return first
}
