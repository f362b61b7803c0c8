package move

import (
	"math"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// Elements takes lists apart.
func Elements(l *gpu.Lease, lists gpu.Column) (e gpu.Elements, err error) {
	value := func(i int) string {
		if !lists.IsValid(i) {
			return ""
		}
		b := lists.VarValue(i)
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	n, bytes := int64(0), int64(0)
	for i := range lists.Len {
		v := value(i)
		k := gpu.CountNested(v)
		n += k
		bytes += max(int64(len(v))-2, 0) + 2*k
	}
	if n > gpu.MaxRows {
		return e, gpu.TooManyRows(int(n))
	}
	if bytes > math.MaxInt32 {
		return e, gpu.TooManyBytes(bytes, int(n))
	}
	number := gpu.Of(gpu.Int32)
	e = gpu.Elements{Rows: gpu.Column{Type: number, Len: int(n)},
		Positions: gpu.Column{Type: gpu.Of(gpu.Int64), Len: int(n)}, Values: gpu.Column{Type: lists.Type, Len: int(n)},
		Starts: gpu.Column{Type: number, Len: lists.Len + 1}}
	for _, part := range []struct {
		of    **gpu.Buffer
		bytes int64
	}{{&e.Rows.Data, n * 4}, {&e.Positions.Data, n * 8}, {&e.Values.Offsets, (n + 1) * 4}, {&e.Values.Data, bytes},
		{&e.Starts.Data, int64(lists.Len+1) * 4}} {
		if *part.of, err = l.Alloc(part.bytes); err != nil {
			e.Release()
			return gpu.Elements{}, err
		}
	}
	rows, positions := gpu.Values[int32](e.Rows.Data, int(n)), gpu.Values[int64](e.Positions.Data, int(n))
	offsets, starts := gpu.Values[int32](e.Values.Offsets, int(n)+1), gpu.Values[int32](e.Starts.Data, lists.Len+1)
	out := e.Values.Data.Bytes()[:0:bytes]
	k := 0
	offsets[0] = 0
	for i := range lists.Len {
		starts[i] = int32(k)
		rest := gpu.ElementsNested(value(i))
		for at := int64(1); ; at++ {
			one, more, ok := gpu.NextNested(rest)
			if !ok {
				break
			}
			out = gpu.CloseNested(append(gpu.OpenNested(out), one...))
			rows[k], positions[k], offsets[k+1], rest = int32(i), at, int32(len(out)), more
			k++
		}
	}
	starts[lists.Len] = int32(k)
	return e, nil
}
