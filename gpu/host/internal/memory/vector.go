package memory

import (
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// Vector is a growing array of state. A small vector is a block of memory that at least doubles
// when it is full. A large vector reserves a range of addresses far beyond its length, whose pages
// the system supplies when they are touched. It grows without a copy, and the lease is charged for
// the part in use.
type Vector[S any] struct {
	V        []S         // the elements; the capacity is that of the block or range
	buf      *gpu.Buffer // block of a small vector
	reserved []byte      // range of a large vector
	lease    *gpu.Lease  // pays for the range
	counted  int64       // bytes charged for the range
}

const (
	// smallVector bounds the bytes of a block. Blocks are reused, so their pages are already
	// mapped. Otherwise a table that is flushed or merged part by part would spend most of its time
	// on fresh pages.
	smallVector = 4 << 20
	// firstRange is the size of the first range of a vector in bytes. countUnit is the
	// unit in which its use is charged.
	firstRange = 1 << 30
	countUnit  = 1 << 16
)

// Grow lengthens the vector to n elements. New elements are set to zero.
func (x *Vector[S]) Grow(l *gpu.Lease, n int, zero S) error {
	old := len(x.V)
	if n <= old {
		return nil
	}
	if err := x.Reserve(l, n); err != nil {
		return err
	}
	x.V = x.V[:n]
	for i := old; i < n; i++ {
		x.V[i] = zero
	}
	return nil
}

// Zeros makes an empty vector n zero elements long. It does not touch the pages of a
// large vector.
func (x *Vector[S]) Zeros(l *gpu.Lease, n int) error {
	if err := x.Reserve(l, n); err != nil {
		return err
	}
	x.V = x.V[:n]
	if x.reserved == nil {
		clear(x.V)
	}
	return nil
}

// Reserve makes room for n elements and charges the lease for them. If memory is denied, the vector
// is unchanged. The elements never change.
func (x *Vector[S]) Reserve(l *gpu.Lease, n int) error {
	var s S
	size := int64(unsafe.Sizeof(s))
	if x.reserved == nil && int64(n)*size <= smallVector {
		if n <= cap(x.V) {
			return nil
		}
		bytes := min(max(int64(n), 2*int64(cap(x.V)))*size, smallVector)
		buf, err := l.Alloc(bytes)
		if err != nil {
			return err
		}
		x.move(gpu.Values[S](buf, int(bytes/size)))
		x.buf = buf
		return nil
	}
	if use := (int64(n)*size + countUnit - 1) / countUnit * countUnit; use > x.counted {
		if err := l.Reserve(use - x.counted); err != nil {
			return err
		}
		x.lease, x.counted = l, use
	}
	if x.reserved != nil && n <= cap(x.V) {
		return nil
	}
	bytes := max(firstRange, 2*int64(n)*size)
	mem, err := mapMemory(int(bytes), true)
	if err != nil {
		return &gpu.AllocError{Stage: l.Name(), Tier: "host", Size: bytes, Err: err}
	}
	x.move(unsafe.Slice((*S)(unsafe.Pointer(unsafe.SliceData(mem))), bytes/size))
	x.reserved = mem
	return nil
}

// move copies the elements to other memory and releases their old memory.
func (x *Vector[S]) move(to []S) {
	to = to[:len(x.V)]
	copy(to, x.V)
	x.V = to
	x.buf.Release()
	x.buf = nil
	if x.reserved != nil {
		unmap(x.reserved)
	}
}

// Release releases the memory. The vector is empty afterwards.
func (x *Vector[S]) Release() {
	x.V = nil
	x.move(nil)
	if x.lease != nil {
		x.lease.Unreserve(x.counted)
	}
	*x = Vector[S]{}
}
