package move

import (
	"math"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// Elements returns the row of each element of lists, and a list of each element.
func Elements(l *gpu.Lease, lists gpu.Column) (ids, elements gpu.Column, err error) {
	value := func(i int) string {
		b := lists.VarValue(i)
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	n, bytes := int64(0), int64(0)
	for i := range lists.Len {
		if lists.IsValid(i) {
			v := value(i)
			k := gpu.CountNested(v)
			n += k
			bytes += max(int64(len(v))-2, 0) + 2*k
		}
	}
	if n > gpu.MaxRows {
		return ids, elements, gpu.TooManyRows(int(n))
	}
	if bytes > math.MaxInt32 {
		return ids, elements, gpu.TooManyBytes(bytes, int(n))
	}
	ids, elements = gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(n)}, gpu.Column{Type: lists.Type, Len: int(n)}
	defer func() {
		if err != nil {
			ids.Release()
			elements.Release()
			ids, elements = gpu.Column{}, gpu.Column{}
		}
	}()
	if ids.Data, err = l.Alloc(n * 4); err != nil {
		return ids, elements, err
	}
	if elements.Offsets, err = l.Alloc((n + 1) * 4); err != nil {
		return ids, elements, err
	}
	if elements.Data, err = l.Alloc(bytes); err != nil {
		return ids, elements, err
	}
	rows, offsets := gpu.Values[int32](ids.Data, int(n)), gpu.Values[int32](elements.Offsets, int(n)+1)
	out := elements.Data.Bytes()[:0:bytes]
	k := 0
	offsets[0] = 0
	for i := range lists.Len {
		if !lists.IsValid(i) {
			continue
		}
		rest := gpu.ElementsNested(value(i))
		for {
			one, more, ok := gpu.NextNested(rest)
			if !ok {
				break
			}
			out = gpu.CloseNested(append(gpu.OpenNested(out), one...))
			rows[k], offsets[k+1], rest = int32(i), int32(len(out)), more
			k++
		}
	}
	return ids, elements, nil
}
