package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/dustin/go-humanize"
)

// pool is the device's stream-ordered memory pool. It keeps freed memory, and allocates it again
// without asking the driver for more.
type pool struct {
	dev    *Device
	handle uintptr
}

// poolProps is the driver's CUmemPoolProps.
type poolProps struct {
	allocType    int32 // 1: pinned to its location
	handleTypes  int32
	locationType int32 // 1: a device
	locationID   int32
	security     uintptr
	maxSize      uint64
	usage        uint16
	reserved     [54]byte
}

const poolReleaseThreshold = 4 // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

// open creates the pool. The context must exist.
func (p *pool) open() error {
	props := poolProps{allocType: 1, locationType: 1, locationID: int32(p.dev.props.ordinal)}
	if err := p.dev.ctx.do(cuMemPoolCreate, uintptr(unsafe.Pointer(&p.handle)),
		uintptr(unsafe.Pointer(&props))); err != nil {
		return err
	}
	keep := uint64(math.MaxUint64)
	return p.dev.ctx.do(cuMemPoolSetAttribute, p.handle, poolReleaseThreshold, uintptr(unsafe.Pointer(&keep)))
}

// Allocate implements gpu.Allocator. The memory is for the stream of kernels.
func (p *pool) Allocate(size int64) ([]byte, uintptr, error) {
	addr, err := p.take(size, p.dev.compute)
	return nil, addr, err
}

// Free implements gpu.Allocator. Work that is launched later may use the memory. If the
// driver fails to free it, the memory is lost, and the next call reports the error.
func (p *pool) Free(_ []byte, addr uintptr, _ int64) { _ = p.free(addr) }

func (p *pool) take(size int64, s stream) (uintptr, error) {
	if size == 0 {
		return 0, nil
	}
	if size < 0 || size > 1<<46 {
		return 0, fmt.Errorf("impossible size %d", size)
	}
	var addr uintptr
	err := p.dev.ctx.do(cuMemAllocFromPoolAsync, uintptr(unsafe.Pointer(&addr)), uintptr(size), p.handle, uintptr(s))
	return addr, err
}

func (p *pool) free(addr uintptr) error {
	if addr == 0 {
		return nil
	}
	return p.dev.ctx.do(cuMemFreeAsync, addr, uintptr(p.dev.compute))
}

// prepare makes the pool take size bytes from the driver in advance. A failure is not an error: a
// later allocation reports it.
func (p *pool) prepare(size int64) {
	defer p.dev.setsUp("device memory")()
	if addr, err := p.take(size, p.dev.up); err == nil {
		_ = p.dev.ctx.do(cuMemFreeAsync, addr, uintptr(p.dev.up))
	}
}

func (p *pool) close() error {
	if p.handle == 0 {
		return nil
	}
	return p.dev.ctx.do(cuMemPoolDestroy, p.handle)
}

// streamPool is the pool for memory that another stream than that of kernels writes first. Such memory need not wait
// for kernels.
type streamPool struct {
	*pool
	first stream
}

// Allocate implements gpu.Allocator.
func (p streamPool) Allocate(size int64) ([]byte, uintptr, error) {
	addr, err := p.take(size, p.first)
	return nil, addr, err
}

// bytesText formats a number of bytes for people.
func bytesText(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
