package host

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gstream/gstream/gpu"
)

// vector is a growing array of state. A lease is charged for the part in use. The vector
// takes a range of addresses far beyond its length, whose pages the system supplies as
// they are touched, so it grows without a copy.
type vector[S any] struct {
	v        []S // elements in use; the capacity is the range
	counted  int64
	lease    *gpu.Lease
	reserved []byte
	huge     bool
}

const (
	// firstRange is the size of the first range of a vector in bytes. countStep is the
	// unit in which its use is counted. Huge pages begin at smallVector: a vector of a
	// few groups should not take one.
	firstRange  = 1 << 30
	countStep   = 1 << 16
	smallVector = 2 * hugePage
)

// grow lengthens the vector to n elements. New elements are set to zero.
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

// room makes room for n elements and charges the lease for them. A refusal leaves the
// vector as it was. The elements never change.
func (x *vector[S]) room(l *gpu.Lease, n int) error {
	var s S
	size := int64(unsafe.Sizeof(s))
	if use := (int64(n)*size + countStep - 1) / countStep * countStep; use > x.counted {
		if err := l.Reserve(use - x.counted); err != nil {
			return err
		}
		x.lease, x.counted = l, use
	}
	if x.counted > smallVector && !x.huge && x.reserved != nil {
		x.huge = true
		_ = unix.Madvise(x.reserved[smallVector:], unix.MADV_HUGEPAGE) // this is only advice
	}
	if n <= cap(x.v) {
		return nil
	}
	bytes := max(firstRange, 2*int64(n)*size)
	mem, err := mapMemory(int(bytes), false)
	if err != nil {
		return &gpu.AllocError{Stage: l.Name(), Tier: "host", Size: bytes, Err: err}
	}
	v := unsafe.Slice((*S)(unsafe.Pointer(unsafe.SliceData(mem))), bytes/size)[:len(x.v)]
	copy(v, x.v)
	if x.reserved != nil {
		unmap(x.reserved)
	}
	x.v, x.reserved, x.huge = v, mem, false
	return nil
}

func (x *vector[S]) release() {
	if x.reserved != nil {
		unmap(x.reserved)
	}
	if x.lease != nil {
		x.lease.Unreserve(x.counted)
	}
	*x = vector[S]{}
}
