package host

import (
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// vector is a growing array of state. A small one is a block of memory that at least
// doubles when it is full. A large one takes a range of addresses far beyond its length,
// whose pages the system supplies as they are touched: it grows without a copy, and is
// counted against the lease by what is in use.
type vector[S any] struct {
	v        []S         // in use; its capacity is that of the block or range
	buf      *gpu.Buffer // the block of a small one
	reserved []byte      // the range of a large one
	lease    *gpu.Lease  // that the range is counted against
	counted  int64       // bytes of the range
}

const (
	// smallVector is the bytes up to which a vector is a block. Blocks are used again,
	// so that their pages are there; a table that is flushed or merged part by part
	// would spend most of its time on fresh ones.
	smallVector = 4 << 20
	// firstRange is the size of the first range of a vector in bytes, countStep
	// the step in which its use is counted.
	firstRange = 1 << 30
	countStep  = 1 << 16
)

// grow lengthens the vector to n elements, new ones set to zero.
func (x *vector[S]) grow(l *gpu.Lease, n int, zero S) error {
	old := len(x.v)
	if n <= old {
		return nil
	}
	if err := x.room(l, n); err != nil {
		return err
	}
	x.v = x.v[:n]
	for i := old; i < n; i++ {
		x.v[i] = zero
	}
	return nil
}

// zeros gives an empty vector n elements that are zero, without touching the pages of a
// large one.
func (x *vector[S]) zeros(l *gpu.Lease, n int) error {
	if err := x.room(l, n); err != nil {
		return err
	}
	x.v = x.v[:n]
	if x.reserved == nil {
		clear(x.v)
	}
	return nil
}

// room makes sure that the vector can hold n elements, and counts them. Refused, it
// holds what it did; the elements are the same in any case.
func (x *vector[S]) room(l *gpu.Lease, n int) error {
	var s S
	size := int64(unsafe.Sizeof(s))
	if x.reserved == nil && int64(n)*size <= smallVector {
		if n <= cap(x.v) {
			return nil
		}
		bytes := min(max(int64(n), 2*int64(cap(x.v)))*size, smallVector)
		buf, err := l.Alloc(bytes)
		if err != nil {
			return err
		}
		x.move(gpu.Values[S](buf, int(bytes/size)))
		x.buf = buf
		return nil
	}
	if use := (int64(n)*size + countStep - 1) / countStep * countStep; use > x.counted {
		if err := l.Reserve(use - x.counted); err != nil {
			return err
		}
		x.lease, x.counted = l, use
	}
	if x.reserved != nil && n <= cap(x.v) {
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

// move copies the elements into other memory and gives back that they were in.
func (x *vector[S]) move(to []S) {
	to = to[:len(x.v)]
	copy(to, x.v)
	x.v = to
	x.buf.Release()
	x.buf = nil
	if x.reserved != nil {
		unmap(x.reserved)
	}
}

func (x *vector[S]) release() {
	x.v = nil
	x.move(nil)
	if x.lease != nil {
		x.lease.Unreserve(x.counted)
	}
	*x = vector[S]{}
}
