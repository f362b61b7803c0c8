package parquet

import (
	"math"

	"github.com/gstream/gstream/gpu"
)

// widening converts n values of one fixed-width type to values of another. dst must not overlap
// src.
type widening func(dst, src []byte, n int) error

// widen returns the conversion from a type to the common type (gpu.CommonType) with another. A Bool
// takes one byte. The conversion takes a few nanoseconds a value, and longer for 16-byte values.
func widen(from, to gpu.Type) widening {
	switch {
	case from.Kind == gpu.Float32 && to.Kind == gpu.Float64:
		return func(dst, src []byte, n int) error {
			d := typed[float64](dst, n)
			for i, v := range typed[float32](src, n) {
				d[i] = float64(v)
			}
			return nil
		}
	case to.IsFloat():
		return func(dst, src []byte, n int) error {
			for i := range n {
				if to.Kind == gpu.Float64 {
					typed[float64](dst, n)[i] = widenScalar(gpu.Scalar{Type: from, Valid: true,
						Int: wholeAt(src, from, i)}, to).Float
				} else {
					typed[float32](dst,
						n)[i] = float32(widenScalar(gpu.Scalar{Type: from, Valid: true, Int: wholeAt(src, from, i)},
						to).Float)
				}
			}
			return nil
		}
	}
	by := factor(from, to)
	if !from.Wide && from.Kind != gpu.Uint64 && by.IsInt64() && to.Width() == 8 {
		return func(dst, src []byte, n int) error { return widenNarrow(dst, src, n, from, to, by.Int64()) }
	}
	return func(dst, src []byte, n int) error { return widenEach(dst, src, n, from, to) }
}

// widenEach converts value by value.
func widenEach(dst, src []byte, n int, from, to gpu.Type) error {
	for i := range n {
		s := widenScalar(gpu.Scalar{Type: from, Valid: true, Int: wholeAt(src, from, i)}, to)
		if !s.Valid {
			return badf("the %v %s does not fit %v, to which the types of the files unify", from,
				gpu.Scalar{Type: from, Valid: true, Int: wholeAt(src, from, i)}, to)
		}
		switch to.Width() {
		case 1:
			dst[i] = byte(s.Int.Lo)
		case 2:
			typed[uint16](dst, n)[i] = uint16(s.Int.Lo)
		case 4:
			typed[uint32](dst, n)[i] = uint32(s.Int.Lo)
		case 8:
			typed[uint64](dst, n)[i] = s.Int.Lo
		default:
			typed[gpu.Int128](dst, n)[i] = s.Int
		}
	}
	return nil
}

// widenNarrow multiplies values of at most 8 bytes by a factor. The results have 8 bytes.
func widenNarrow(dst, src []byte, n int, from, to gpu.Type, by int64) error {
	if n == 0 {
		return nil
	}
	d := typed[int64](dst, n)
	switch from.Kind {
	case gpu.Bool, gpu.Uint8:
		spreadInts(d, typed[uint8](src, n))
	case gpu.Int8:
		spreadInts(d, typed[int8](src, n))
	case gpu.Int16:
		spreadInts(d, typed[int16](src, n))
	case gpu.Uint16:
		spreadInts(d, typed[uint16](src, n))
	case gpu.Int32, gpu.Date:
		spreadInts(d, typed[int32](src, n))
	case gpu.Uint32:
		spreadInts(d, typed[uint32](src, n))
	default:
		copy(d, typed[int64](src, n))
	}
	least, most := d[0], d[0]
	for _, v := range d {
		least, most = min(least, v), max(most, v)
	}
	lo, hi := to.Bounds()
	if from.IsInfinite(least) || from.IsInfinite(most) || gpu.MulInt64(least, by).Less(lo) ||
		hi.Less(gpu.MulInt64(most, by)) {
		return widenEach(dst, src, n, from, to) // it keeps infinities, and names a value that does not fit
	}
	if by != 1 {
		for i := range d {
			d[i] *= by
		}
	}
	return nil
}

func spreadInts[T int8 | int16 | int32 | uint8 | uint16 | uint32](dst []int64, src []T) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = int64(v)
	}
}

// wholeAt returns value i of a column whose type is stored as integers.
func wholeAt(b []byte, t gpu.Type, i int) gpu.Int128 {
	switch t.Kind {
	case gpu.Bool, gpu.Uint8:
		return gpu.Int128From(int64(b[i]))
	case gpu.Int8:
		return gpu.Int128From(int64(int8(b[i])))
	case gpu.Int16:
		return gpu.Int128From(int64(typed[int16](b, i+1)[i]))
	case gpu.Uint16:
		return gpu.Int128From(int64(typed[uint16](b, i+1)[i]))
	case gpu.Int32, gpu.Date:
		return gpu.Int128From(int64(typed[int32](b, i+1)[i]))
	case gpu.Uint32:
		return gpu.Int128From(int64(typed[uint32](b, i+1)[i]))
	case gpu.Uint64:
		return gpu.Int128FromUint(typed[uint64](b, i+1)[i])
	}
	if t.Width() == 16 {
		return typed[gpu.Int128](b, i+1)[i]
	}
	return gpu.Int128From(typed[int64](b, i+1)[i])
}

// factor is the number by which the stored integers of a type are multiplied to convert them to a
// wider type.
func factor(from, to gpu.Type) gpu.Int128 {
	switch {
	case from.Kind == gpu.Date && to.Kind == gpu.Timestamp:
		return gpu.Int128From(to.Unit.PerDay())
	case from.Kind == gpu.Time || from.Kind == gpu.Timestamp:
		return gpu.Int128From(to.Unit.PerSecond() / from.Unit.PerSecond())
	}
	return gpu.Pow10(int(to.Scale) - int(from.Scale))
}

// widenScalar converts a value to a wider type. The result is null if the value does not fit. The
// conversion is monotonic, so it may be applied to bounds.
func widenScalar(s gpu.Scalar, to gpu.Type) gpu.Scalar {
	from := s.Type
	out := gpu.Scalar{Type: to, Valid: true, Int: s.Int, Float: s.Float, Str: s.Str}
	switch {
	case from.IsFloat() || from.IsVar() || from == to:
		return out
	case to.IsFloat():
		out.Float, out.Int = s.Int.Decimal(int(from.Scale)), gpu.Int128{}
		switch {
		case to.Kind == gpu.Float64:
		case from.IsInteger() && s.Int.IsInt64():
			out.Float = float64(float32(s.Int.Int64())) // rounded once; via a double it would be rounded twice
		case from.IsInteger() && s.Int.Hi == 0:
			out.Float = float64(float32(s.Int.Lo))
		default:
			out.Float = float64(float32(out.Float))
		}
		return out
	case from.Infinity() != 0 && to.Infinity() != 0 && s.Int.IsInt64() && from.IsInfinite(s.Int.Int64()):
		out.Int = gpu.Int128From(to.Infinity() * int64(s.Int.Sign()))
		return out
	}
	lo, hi := to.Bounds()
	if to.Kind == gpu.Time {
		lo, hi = gpu.Int128{}, gpu.Int128From(math.MaxInt64)
	}
	v, over := s.Int.Mul(factor(from, to))
	if over || v.Less(lo) || hi.Less(v) {
		return gpu.Null(to)
	}
	out.Int = v
	return out
}
