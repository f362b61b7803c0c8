package cuda

import (
	"sync"
	"unsafe"
)

const (
	// readbackBytes is the size of a slot.
	readbackBytes = 4 << 10
	readbackSlots = 32
	// eventNoTiming makes an event for which a thread waits by spinning.
	eventNoTiming = 2
)

// readback is page-locked memory into which a kernel copies results for which the host waits:
// counts, totals, offsets of partitions. A copy by the driver would wait for the copies down of all
// streams, since they share an engine: 0.6 ms for a copy of 32 MB.
type readback struct {
	mu   sync.Mutex
	base uintptr
	free []*readSlot
	all  []*readSlot
}

// readSlot is memory for one read, and the event of its end.
type readSlot struct {
	addr uintptr
	mem  []byte
	done event
}

func (r *readback) open(d *Device) error {
	if err := d.ctx.do(cuMemHostAlloc, uintptr(unsafe.Pointer(&r.base)), readbackBytes*readbackSlots, 0); err != nil {
		return err
	}
	for i := range readbackSlots {
		s := &readSlot{addr: r.base + uintptr(i*readbackBytes)}
		s.mem = unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&s.addr))), readbackBytes)
		if err := d.ctx.do(cuEventCreate, uintptr(unsafe.Pointer(&s.done)), eventNoTiming); err != nil {
			return err
		}
		r.all = append(r.all, s)
	}
	r.free = append(r.free, r.all...)
	return nil
}

// take returns a slot for n bytes, or nil if there is none.
func (r *readback) take(n int) *readSlot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > readbackBytes || len(r.free) == 0 {
		return nil
	}
	s := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	return s
}

func (r *readback) give(s *readSlot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(r.free, s)
}

func (r *readback) close(d *Device) (first error) {
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	for _, s := range r.all {
		note(d.ctx.do(cuEventDestroy, uintptr(s.done)))
	}
	if r.base != 0 {
		note(d.ctx.do(cuMemFreeHost, r.base))
	}
	r.all, r.free, r.base = nil, nil, 0
	return first
}
