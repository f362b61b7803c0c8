package cuda

import (
	stdcontext "context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// op is one call of a primitive on a queue. It records its allocations, so an error anywhere leaves
// nothing behind. It records its first error, after which its methods do nothing: a primitive
// launches kernel after kernel and checks the error once, at the end.
type op struct {
	q     *queue
	name  string
	lease *gpu.Lease
	err   error
	held  []held

	pending  []func() error // calls that put work on the stream, see enqueue
	launches int64          // number of kernel launches in pending
	phase    string         // phase of the primitive that pending belongs to; "" for all phases
	freed    []*gpu.Buffer  // buffers that pending uses, released once the calls are made
	waste    int64          // number of bytes of freed
}

// maxWaste bounds the freed bytes of an op before it flushes.
const maxWaste = 64 << 20

// held is a buffer to which the op has a reference. keep says that the caller receives it.
type held struct {
	buf  *gpu.Buffer
	keep bool
}

// begin starts a primitive. The name appears in errors and reports. end must follow.
func (q *queue) begin(name string, l *gpu.Lease) *op {
	o := &op{q: q, name: name, lease: l, err: q.err}
	if o.err == nil && q.ctx != nil && q.ctx.Err() != nil {
		o.err = stdcontext.Cause(q.ctx)
	}
	return o
}

// takes checks that the input columns of a primitive are memory of the device, and
// returns the op's error.
func (o *op) takes(cols ...gpu.Column) error {
	if o.err == nil {
		o.err = gpu.CheckMemory(o.q.dev, cols)
	}
	return o.err
}

// enqueue defers a call that puts work on the stream of kernels until the op flushes. All deferred
// calls are then submitted together: no work of another queue comes between them, and the device
// does not wait for allocations. So the time from the first to the last call is device time.
func (o *op) enqueue(call func() error) {
	if o.err == nil {
		o.pending = append(o.pending, call)
	}
}

// flush makes the calls that were enqueued and measures them as one span of the device's
// work. After an error it makes none.
func (o *op) flush() {
	if o.err == nil && len(o.pending) > 0 {
		o.fail(o.q.dev.submit(o))
	}
	for _, b := range o.freed {
		b.Release()
	}
	o.pending, o.launches, o.freed, o.waste = o.pending[:0], 0, o.freed[:0], 0
}

// submit makes the pending calls of an op without any other work between them.
func (d *Device) submit(o *op) error {
	d.computing.Lock()
	defer d.computing.Unlock()
	start, err := d.record(d.compute)
	if err != nil {
		return err
	}
	for _, call := range o.pending {
		if err := call(); err != nil {
			d.recycle(start)
			return err
		}
	}
	d.trace.ran(o, start)
	return nil
}

// begins ends a phase of the primitive and names the next one, which is measured as a
// span of its own.
func (o *op) begins(phase string) {
	o.flush()
	o.phase = phase
}

// span returns the name of the current phase in reports.
func (o *op) span() string {
	if o.phase == "" {
		return o.name
	}
	return o.name + ", " + o.phase
}

// end ends the primitive. It sets err to the op's first error unless err is set, and releases all
// buffers that the caller does not receive. After an error the result is its zero value.
func end[T any](o *op, result *T, err *error) {
	o.flush()
	if *err == nil {
		*err = o.err
	}
	for _, h := range o.held {
		if !h.keep || *err != nil {
			h.buf.Release()
		}
	}
	if *err != nil {
		*err = o.q.fail(o.name, *err)
		*result = *new(T)
	}
}

// failed flushes and reports whether there is an error.
func (o *op) failed() bool {
	o.flush()
	return o.err != nil
}

// fail sets the op's error unless it has one.
func (o *op) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// alloc returns n bytes of device memory with unspecified contents. end releases them
// unless they are kept. It returns nil for n = 0 and after an error.
func (o *op) alloc(n int64) *gpu.Buffer {
	b := o.allocFrom(o.lease, n)
	if b != nil {
		o.held = append(o.held, held{buf: b})
	}
	return b
}

// allocFrom returns n bytes that the caller owns. The lease that pays may differ from the op's. It
// returns nil for n = 0 and after an error.
func (o *op) allocFrom(l *gpu.Lease, n int64) *gpu.Buffer {
	if o.err != nil || n == 0 {
		return nil
	}
	b, err := l.Alloc(n)
	if errors.Is(err, gpu.ErrBudget) && o.waste > 0 {
		o.flush()
		b, err = l.Alloc(n)
	}
	o.fail(err)
	return b
}

// keep marks a buffer of the op as the caller's and returns it.
func (o *op) keep(b *gpu.Buffer) *gpu.Buffer {
	for i := range o.held {
		if o.held[i].buf == b {
			o.held[i].keep = true
		}
	}
	return b
}

// free releases scratch before the end of the op, once the kernels that use it are
// launched. It ignores buffers that are kept or are not the op's.
func (o *op) free(bufs ...*gpu.Buffer) {
	for _, b := range bufs {
		if i := slices.IndexFunc(o.held, func(h held) bool { return h.buf == b && !h.keep }); b != nil && i >= 0 {
			o.held = slices.Delete(o.held, i, i+1)
			o.freed = append(o.freed, b)
			o.waste += b.Size()
		}
	}
	if o.waste > maxWaste {
		o.flush()
	}
}

// retain returns an input's buffer with another reference for the caller. It returns nil for nil
// and after an error.
func (o *op) retain(b *gpu.Buffer) *gpu.Buffer {
	if o.err != nil || b == nil {
		return nil
	}
	o.held = append(o.held, held{buf: b.Retain(), keep: true})
	return b
}

type readBytesArgs struct {
	src, dst uint64
	n        int64
}

// read copies device memory to dst and waits for the copy. It reports whether dst has the
// bytes: false after an error.
func (o *op) read(b *gpu.Buffer, off int64, dst []byte) bool {
	d := o.q.dev
	if o.err != nil || len(dst) == 0 {
		o.flush()
		return o.err == nil
	}
	if s := d.readback.take(len(dst)); s != nil {
		defer d.readback.give(s)
		launch(o, "read_bytes", 1, 256, 0, readBytesArgs{src: addr(b) + uint64(off), dst: uint64(s.addr),
			n: int64(len(dst))})
		o.enqueue(func() error { return d.ctx.do(cuEventRecord, uintptr(s.done), uintptr(d.compute)) })
		if o.flush(); o.err == nil {
			o.fail(d.wait(s.done))
		}
		copy(dst, s.mem)
		return o.err == nil
	}
	if o.readLarge(b, off, dst) {
		return o.err == nil
	}
	if o.flush(); o.err == nil {
		// dst is pageable, so the call returns only after the bytes have arrived.
		o.fail(d.ctx.do(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), b.Addr()+uintptr(off),
			uintptr(len(dst)), uintptr(d.compute)))
		runtime.KeepAlive(dst)
	}
	return o.err == nil
}

// pageableMost is the largest copy from or to pageable memory. Before a larger one the driver waits for all kernels of
// the stream, and lets nobody launch others meanwhile.
const pageableMost = 64 << 10

// block returns page-locked memory for a copy of n bytes. It returns none for a copy that is short, and if there is no
// memory.
func (o *op) block(n int) (x pinnedBlock) {
	if n <= pageableMost || o.err != nil {
		return x
	}
	p := o.q.dev.pinned
	x, err := p.block(int64(n))
	if err == nil {
		err = p.lockAt(o.lease, x.addr, int64(n))
	}
	if err != nil {
		x.release()
	}
	return x
}

// copyBlock copies the bytes of page-locked memory from or to device memory, by a call of the driver for each piece
// that is registered. It returns the end of the copies, or 0 after an error, when no copy is running.
func (o *op) copyBlock(x pinnedBlock, copyPiece func(host, offset, n uintptr) error) (end event) {
	d := o.q.dev
	o.enqueue(func() (err error) {
		err = d.pinned.eachLocked(o.lease, x.addr, int64(len(x.mem)), func(at uintptr, n int64, _ bool) error {
			return copyPiece(at, at-x.addr, uintptr(n))
		})
		if err == nil {
			end, err = d.record(d.compute)
		}
		return err
	})
	if o.flush(); end == 0 {
		_ = d.ctx.do(cuStreamSynchronize, uintptr(d.compute)) // some may have begun
	}
	return end
}

// readLarge is read by page-locked memory. It returns false if there is none.
func (o *op) readLarge(b *gpu.Buffer, off int64, dst []byte) bool {
	d := o.q.dev
	x := o.block(len(dst))
	if x.mem == nil {
		return false
	}
	defer x.release()
	end := o.copyBlock(x, func(host, at, n uintptr) error {
		return d.ctx.do(cuMemcpyDtoHAsync, host, b.Addr()+uintptr(off)+at, n, uintptr(d.compute))
	})
	if end != 0 {
		o.fail(d.wait(end))
		d.recycle(end)
		copy(dst, x.mem)
	}
	return true
}

// writeLarge is write by page-locked memory. It returns false if there is none.
func (o *op) writeLarge(b *gpu.Buffer, off int64, src []byte) bool {
	d := o.q.dev
	x := o.block(len(src))
	if x.mem == nil {
		return false
	}
	copy(x.mem, src)
	end := o.copyBlock(x, func(host, at, n uintptr) error {
		return d.ctx.do(cuMemcpyHtoDAsync, b.Addr()+uintptr(off)+at, host, n, uintptr(d.compute))
	})
	after(d.later.kernels, end, func(error) {
		x.release()
		d.recycle(end)
	})
	return true
}

// write copies src to device memory. src has been copied when write returns.
func (o *op) write(b *gpu.Buffer, off int64, src []byte) {
	if len(src) == 0 || o.writeLarge(b, off, src) {
		return
	}
	o.enqueue(func() error {
		defer runtime.KeepAlive(src)
		return o.q.dev.ctx.do(cuMemcpyHtoDAsync, b.Addr()+uintptr(off), uintptr(unsafe.Pointer(unsafe.SliceData(src))),
			uintptr(len(src)), uintptr(o.q.dev.compute))
	})
	o.flush()
}

// fill sets n bytes to v.
func (o *op) fill(b *gpu.Buffer, off, n int64, v byte) {
	if n == 0 {
		return
	}
	o.enqueue(func() error {
		return o.q.dev.ctx.do(cuMemsetD8Async, b.Addr()+uintptr(off), uintptr(v), uintptr(n), uintptr(o.q.dev.compute))
	})
}

// copy copies n bytes within device memory.
func (o *op) copy(dst *gpu.Buffer, dstOff int64, src *gpu.Buffer, srcOff, n int64) {
	if n == 0 {
		return
	}
	o.enqueue(func() error {
		return o.q.dev.ctx.do(cuMemcpyDtoDAsync, dst.Addr()+uintptr(dstOff), src.Addr()+uintptr(srcOff), uintptr(n),
			uintptr(o.q.dev.compute))
	})
}

// table returns the device address of a constant table; see Device.table.
func (o *op) table(name string, make func() []byte) uint64 {
	if o.err != nil {
		return 0
	}
	addr, err := o.q.dev.table(name, make)
	if err != nil {
		o.fail(err)
	}
	return uint64(addr)
}

// launch enqueues a kernel over a one-dimensional grid with shared bytes of dynamic
// shared memory. args mirrors the kernel's argument struct; one of another size is an error. A grid of 0 blocks does
// nothing.
func launch[A any](o *op, name string, grid, block, shared int, args A) {
	if o.err != nil || grid == 0 {
		return
	}
	if grid < 0 || grid > 1<<31-1 {
		o.fail(fmt.Errorf("kernel %s: a grid of %d blocks is impossible", name, grid))
		return
	}
	k := o.q.dev.kernels
	f, err := taking[A](k, name)
	if err == nil && shared > 0 {
		err = k.allow(f, shared)
	}
	if err != nil {
		o.fail(err)
		return
	}
	o.launches++
	o.enqueue(func() error { return start(k, f, k.dev.compute, name, grid, block, shared, args) })
}

// start puts a kernel on a stream.
func start[A any](k *kernels, f *kernel, on stream, name string, grid, block, shared int, args A) error {
	params := [1]unsafe.Pointer{unsafe.Pointer(&args)}
	defer runtime.KeepAlive(&args)
	err := k.dev.ctx.do(cuLaunchKernel, f.handle, uintptr(grid), 1, 1, uintptr(block), 1, 1, uintptr(shared),
		uintptr(on), uintptr(unsafe.Pointer(&params)), 0)
	if err != nil {
		return fmt.Errorf("kernel %s: %w", name, err)
	}
	return nil
}

// addr returns a buffer's device address as an argument of a kernel, 0 for nil.
func addr(b *gpu.Buffer) uint64 { return uint64(b.Addr()) }

// blocks returns the number of blocks of perBlock items that n items need.
func blocks(n, perBlock int) int { return (n + perBlock - 1) / perBlock }

// flag converts a bool to an argument of a kernel.
func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
