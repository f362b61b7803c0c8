package host

import (
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// array is a slice in memory of a lease. Its elements contain no Go pointers. The zero
// value is empty.
type array[T any] struct {
	v   []T
	buf *gpu.Buffer
}

// newArray returns n elements with unspecified contents.
func newArray[T any](l *gpu.Lease, n int) (a array[T], err error) {
	if n == 0 {
		return a, nil
	}
	var t T
	if a.buf, err = l.Alloc(int64(n) * int64(unsafe.Sizeof(t))); err == nil {
		a.v = gpu.Values[T](a.buf, n)
	}
	return a, err
}

// newZeros returns n elements that are zero.
func newZeros[T any](l *gpu.Lease, n int) (array[T], error) {
	a, err := newArray[T](l, n)
	clear(a.v)
	return a, err
}

// room makes room to append n elements. When it reallocates, the memory at least doubles.
func (a *array[T]) room(l *gpu.Lease, n int) error {
	if len(a.v)+n <= cap(a.v) {
		return nil
	}
	return a.grow(l, n)
}

func (a *array[T]) grow(l *gpu.Lease, n int) error {
	larger, err := newArray[T](l, max(len(a.v)+n, 2*cap(a.v)))
	if err != nil {
		return err
	}
	larger.v = larger.v[:copy(larger.v, a.v)]
	a.release()
	*a = larger
	return nil
}

func (a *array[T]) release() {
	a.buf.Release()
	*a = array[T]{}
}
