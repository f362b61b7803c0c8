package gpu

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// NestedWidth returns the bytes of the encoding of a value of fixed width that is not null.
func NestedWidth(t Type) int { return 1 + max(t.Width(), 1) }

// EncodeNested writes the encodings of values of fixed width, NestedWidth bytes each, to the start of dst. data holds
// values of a column without codes, from on. None of them is null.
func EncodeNested(dst []byte, t Type, data *Buffer, from, n int) {
	signed := !t.IsUnsigned()
	switch {
	case t.Kind == Bool:
		for i := range n {
			dst[2*i], dst[2*i+1] = TagFixed, data.Bytes()[(from+i)>>3]>>((from+i)&7)&1
		}
	case t.Kind == Float32:
		encodeFloats(dst, Values[uint32](data, from+n)[from:], TagFloat32, uint32(0xFF)<<23)
	case t.Kind == Float64:
		encodeFloats(dst, Values[uint64](data, from+n)[from:], TagFloat64, uint64(0x7FF)<<52)
	case t.Width() == 16:
		for i, v := range Values[Int128](data, from+n)[from:] {
			if signed {
				v.Hi ^= math.MinInt64
			}
			b := dst[17*i : 17*i+17]
			b[0] = TagFixed + 4
			binary.BigEndian.PutUint64(b[1:], uint64(v.Hi))
			binary.BigEndian.PutUint64(b[9:], v.Lo)
		}
	case t.Width() == 8:
		encodeNumbers(dst, Values[uint64](data, from+n)[from:], TagFixed+3, signed)
	case t.Width() == 4:
		encodeNumbers(dst, Values[uint32](data, from+n)[from:], TagFixed+2, signed)
	case t.Width() == 2:
		encodeNumbers(dst, Values[uint16](data, from+n)[from:], TagFixed+1, signed)
	default:
		encodeNumbers(dst, Values[uint8](data, from+n)[from:], TagFixed, signed)
	}
}

func encodeNumbers[T uint8 | uint16 | uint32 | uint64](dst []byte, values []T, tag byte, signed bool) {
	flip, width := T(0), 1+int(unsafe.Sizeof(T(0)))
	if signed {
		flip = 1 << (8*unsafe.Sizeof(T(0)) - 1)
	}
	for i, v := range values {
		b := dst[i*width : (i+1)*width]
		b[0] = tag
		putBigEndian(b[1:], v^flip)
	}
}

// encodeFloats is encodeNumbers for the bits of floats. infinity has those of infinity.
func encodeFloats[T uint32 | uint64](dst []byte, values []T, tag byte, infinity T) {
	width, sign := 1+int(unsafe.Sizeof(T(0))), T(1)<<(8*unsafe.Sizeof(T(0))-1)
	for i, v := range values {
		switch {
		case v&^sign > infinity: // NaN
			v = sign | infinity | (infinity>>1)&^infinity
		case v&sign != 0:
			v = ^v
		default:
			v |= sign
		}
		b := dst[i*width : (i+1)*width]
		b[0] = tag
		putBigEndian(b[1:], v)
	}
}

func putBigEndian[T uint8 | uint16 | uint32 | uint64](b []byte, v T) {
	switch unsafe.Sizeof(v) {
	case 8:
		binary.BigEndian.PutUint64(b, uint64(v))
	case 4:
		binary.BigEndian.PutUint32(b, uint32(v))
	case 2:
		binary.BigEndian.PutUint16(b, uint16(v))
	default:
		b[0] = byte(v)
	}
}
