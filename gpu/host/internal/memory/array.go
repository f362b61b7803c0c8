package memory

import (
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// Array is a slice in memory of a lease. Its elements contain no Go pointers. The zero
// value is empty.
type Array[T any] struct {
	V   []T         // the elements
	Buf *gpu.Buffer // their memory; nil if there are none
}

// New returns n elements with unspecified contents.
func New[T any](l *gpu.Lease, n int) (a Array[T], err error) {
	if n == 0 {
		return a, nil
	}
	var t T
	if a.Buf, err = l.Alloc(int64(n) * int64(unsafe.Sizeof(t))); err == nil {
		a.V = gpu.Values[T](a.Buf, n)
	}
	return a, err
}

// Zeros returns n elements that are zero.
func Zeros[T any](l *gpu.Lease, n int) (Array[T], error) {
	a, err := New[T](l, n)
	clear(a.V)
	return a, err
}

// Reserve makes room to append n elements. When it reallocates, the memory at least doubles.
func (a *Array[T]) Reserve(l *gpu.Lease, n int) error {
	if len(a.V)+n <= cap(a.V) {
		return nil
	}
	return a.grow(l, n)
}

func (a *Array[T]) grow(l *gpu.Lease, n int) error {
	larger, err := New[T](l, max(len(a.V)+n, 2*cap(a.V)))
	if err != nil {
		return err
	}
	larger.V = larger.V[:copy(larger.V, a.V)]
	a.Release()
	*a = larger
	return nil
}

// Release releases the memory. The array is empty afterwards.
func (a *Array[T]) Release() {
	a.Buf.Release()
	*a = Array[T]{}
}

// ReleaseAll releases arrays.
func ReleaseAll[T any](arrays []Array[T]) {
	for i := range arrays {
		arrays[i].Release()
	}
}
