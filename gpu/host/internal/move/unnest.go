package move

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// Unnest returns the row of each element of rows [from, to) of lists, and the elements of each column of lists.
func Unnest(l *gpu.Lease, lists []gpu.Column, from, to int) (ids gpu.Column, elements []gpu.Column, err error) {
	defer func() {
		if err != nil {
			ids.Release()
			gpu.ReleaseColumns(elements)
			ids, elements = gpu.Column{}, nil
		}
	}()
	ends, n := make([]int32, to-from), int64(0)
	for i := range ends {
		n += gpu.CountNested(listAt(lists[0], from+i))
		if n > gpu.MaxRows {
			return ids, nil, gpu.TooManyRows(int(n))
		}
		ends[i] = int32(n)
	}
	ids = gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(n)}
	if ids.Data, err = l.Alloc(n * 4); err != nil {
		return ids, nil, err
	}
	rows, k := gpu.Values[int32](ids.Data, int(n)), int32(0)
	for i, end := range ends {
		for ; k < end; k++ {
			rows[k] = int32(from + i)
		}
	}
	for _, c := range lists {
		var out gpu.Column
		if out, err = elementsOf(l, c, from, ends, int(n)); err != nil {
			return ids, elements, err
		}
		elements = append(elements, out)
	}
	return ids, elements, nil
}

// listAt returns a list, or an empty text for a null.
func listAt(c gpu.Column, i int) string {
	if !c.IsValid(i) {
		return ""
	}
	b := c.VarValue(i)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// elementsOf returns the n elements of lists from a row on. ends has their number up to each of the rows.
func elementsOf(l *gpu.Lease, lists gpu.Column, from int, ends []int32, n int) (out gpu.Column, err error) {
	out = gpu.Column{Type: lists.Type.Element(), Len: n}
	defer func() {
		if err != nil {
			out.Release()
			out = gpu.Column{}
		}
	}()
	t := out.Type
	size := int64(n * t.Width())
	switch {
	case t.IsVar():
		if size, err = elementBytes(lists, from, from+len(ends), n); err != nil {
			return out, err
		}
		if out.Offsets, err = l.Alloc(int64(n+1) * 4); err != nil {
			return out, err
		}
	case t.Kind == gpu.Bool:
		size = gpu.BitmapBytes(n)
	}
	if out.Data, err = l.Alloc(size); err != nil {
		return out, err
	}
	w := elementWriter{lists: lists, from: from, ends: ends, valid: make([]uint64, (n+63)/64)}
	for i := range w.valid {
		w.valid[i] = math.MaxUint64
	}
	signed := !t.IsUnsigned()
	switch {
	case t.IsVar():
		err = w.texts(t, out.Data.Bytes(), gpu.Values[int32](out.Offsets, n+1))
	case t.Kind == gpu.Bool:
		words := gpu.Words(out.Data, n)
		clear(words)
		err = w.each(gpu.TagFixed, 1, func(k int, b string) { words[k>>6] |= uint64(b[0]&1) << (k & 63) })
	case t.Kind == gpu.Float32:
		err = numbers(&w, gpu.Values[uint32](out.Data, n), gpu.TagFloat32, signed)
	case t.Kind == gpu.Float64:
		err = numbers(&w, gpu.Values[uint64](out.Data, n), gpu.TagFloat64, signed)
	case t.Width() == 16:
		to := gpu.Values[gpu.Int128](out.Data, n)
		flip := int64(0)
		if signed {
			flip = math.MinInt64
		}
		err = w.each(gpu.TagFixed+4, 16, func(k int, b string) {
			to[k] = gpu.Int128{Lo: bigEndian[uint64](b[8:]), Hi: int64(bigEndian[uint64](b)) ^ flip}
		})
	case t.Width() == 8:
		err = numbers(&w, gpu.Values[uint64](out.Data, n), gpu.TagFixed+3, signed)
	case t.Width() == 4:
		err = numbers(&w, gpu.Values[uint32](out.Data, n), gpu.TagFixed+2, signed)
	case t.Width() == 2:
		err = numbers(&w, gpu.Values[uint16](out.Data, n), gpu.TagFixed+1, signed)
	default:
		err = numbers(&w, gpu.Values[uint8](out.Data, n), gpu.TagFixed, signed)
	}
	if err == nil && w.nulls {
		if out.Valid, err = l.Alloc(gpu.BitmapBytes(n)); err == nil {
			copy(gpu.Words(out.Valid, n), w.valid)
		}
	}
	return out, err
}

// elementBytes bounds the bytes of the elements of some rows of lists.
func elementBytes(lists gpu.Column, from, to, n int) (size int64, err error) {
	for i := from; i < to; i++ {
		size += int64(len(listAt(lists, i)))
	}
	if size > math.MaxInt32 {
		err = gpu.TooManyBytes(size, n)
	}
	return size, err
}

// elementWriter passes lists whose rows have a known number of elements.
type elementWriter struct {
	lists gpu.Column
	from  int     // the first row
	ends  []int32 // number of elements up to each row
	valid []uint64
	nulls bool
}

// row returns the elements of a row, which have the numbers from at to end.
func (w *elementWriter) row(i int) (elements string, at, end int) {
	if i > 0 {
		at = int(w.ends[i-1])
	}
	return gpu.ElementsNested(listAt(w.lists, w.from+i)), at, int(w.ends[i])
}

func (w *elementWriter) null(k int) {
	w.valid[k>>6] &^= 1 << (k & 63)
	w.nulls = true
}

// each calls put for the values of elements that have a tag and a width. Other elements are null.
func (w *elementWriter) each(tag byte, width int, put func(k int, value string)) error {
	for i := range w.ends {
		rest, k, end := w.row(i)
		for ; k < end && rest != "" && rest[0] != gpu.TagEnd; k++ {
			if rest[0] == tag && len(rest) > width {
				put(k, rest[1:])
				rest = rest[1+width:]
				continue
			}
			w.null(k)
			rest = rest[gpu.SkipNested(rest):]
		}
		if err := gpu.SameElements(rest, k, end); err != nil {
			return err
		}
	}
	return nil
}

// numbers is each for numbers of up to 8 bytes.
func numbers[T uint8 | uint16 | uint32 | uint64](w *elementWriter, out []T, tag byte, signed bool) error {
	width, sign := int(unsafe.Sizeof(T(0))), T(1)<<(8*unsafe.Sizeof(T(0))-1)
	flip := T(0)
	if signed {
		flip = sign
	}
	float := tag == gpu.TagFloat32 || tag == gpu.TagFloat64
	for i := range w.ends {
		rest, k, end := w.row(i)
		for ; k < end && rest != "" && rest[0] != gpu.TagEnd; k++ {
			if rest[0] == tag && len(rest) > width {
				v := bigEndian[T](rest[1:])
				if float && v&sign == 0 {
					v = ^v ^ sign
				}
				out[k], rest = v^flip, rest[1+width:]
				continue
			}
			w.null(k)
			out[k], rest = 0, rest[gpu.SkipNested(rest):]
		}
		if err := gpu.SameElements(rest, k, end); err != nil {
			return err
		}
	}
	return nil
}

// bigEndian reads a number. The text is long enough.
func bigEndian[T uint8 | uint16 | uint32 | uint64](b string) T {
	p := unsafe.Pointer(unsafe.StringData(b))
	switch unsafe.Sizeof(T(0)) {
	case 8:
		return T(bits.ReverseBytes64(*(*uint64)(p)))
	case 4:
		return T(bits.ReverseBytes32(*(*uint32)(p)))
	case 2:
		return T(bits.ReverseBytes16(*(*uint16)(p)))
	}
	return T(b[0])
}

// texts is each for strings and nested values.
func (w *elementWriter) texts(t gpu.Type, data []byte, offsets []int32) error {
	to := data[:0]
	offsets[0] = 0
	for i := range w.ends {
		rest, k, end := w.row(i)
		for ; k < end && rest != "" && rest[0] != gpu.TagEnd; k++ {
			n := gpu.SkipNested(rest)
			switch one := rest[:n]; {
			case t.IsNested() && one[0] == gpu.TagOpen:
				to = append(to, one...)
			case !t.IsNested() && one[0] == gpu.TagBytes:
				to = append(to, gpu.BytesNested(one[1:])...)
			default:
				w.null(k)
			}
			offsets[k+1], rest = int32(len(to)), rest[n:]
		}
		if err := gpu.SameElements(rest, k, end); err != nil {
			return err
		}
	}
	return nil
}
