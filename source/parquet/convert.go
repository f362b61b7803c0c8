package parquet

import (
	"encoding/binary"
	"unsafe"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/format"
)

// conversion turns n PLAIN values of fixed width into the values of a column;
// dst holds n × width bytes of the type, src n values of the physical type.
type conversion func(dst, src []byte, n int) error

// physicalWidth is the bytes of a PLAIN value, 0 for Boolean and ByteArray.
func (c leaf) physicalWidth() int {
	switch c.physical {
	case format.Int32, format.Float:
		return 4
	case format.Int64, format.Double:
		return 8
	case format.Int96:
		return 12
	case format.FixedLenByteArray:
		return c.length
	}
	return 0
}

// conversion chooses how the PLAIN values of a fixed-width column are
// converted; columns of decimals in byte arrays use decimalBytes instead.
func (c leaf) conversion() conversion {
	t := c.field.Type
	switch {
	case t.Kind == gpu.Decimal && c.physical == format.FixedLenByteArray:
		return func(dst, src []byte, n int) error {
			for i := range n {
				if err := putDecimal(dst, i, src[i*c.length:(i+1)*c.length], t); err != nil {
					return err
				}
			}
			return nil
		}
	case t.Kind == gpu.Decimal && c.physical == format.Int32:
		return func(dst, src []byte, n int) error { return decimals(dst, typed[int32](src, n), t) }
	case t.Kind == gpu.Decimal:
		return func(dst, src []byte, n int) error { return decimals(dst, typed[int64](src, n), t) }
	case c.physical == format.Int96:
		return convertInt96
	case t.Kind == gpu.Int8:
		return narrow[int8]
	case t.Kind == gpu.Int16:
		return narrow[int16]
	case t.Kind == gpu.Uint8:
		return narrow[uint8]
	case t.Kind == gpu.Uint16:
		return narrow[uint16]
	case t.Width() == 8 && c.physical == format.Int32:
		return func(dst, src []byte, n int) error {
			d := typed[int64](dst, n)
			for i, v := range typed[int32](src, n) {
				d[i] = int64(v)
			}
			return nil
		}
	}
	return func(dst, src []byte, n int) error {
		w := t.Width()
		copy(dst[:n*w], src[:n*w])
		return nil
	}
}

// typed views the first n values of b, which need not be aligned: the platforms
// that gstream runs on load and store at any address.
func typed[T any](b []byte, n int) []T {
	if n == 0 {
		return nil
	}
	var t T
	_ = b[n*int(unsafe.Sizeof(t))-1]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func int32s(b []byte) []int32 { return typed[int32](b, len(b)/4) }

func narrow[T int8 | int16 | uint8 | uint16](dst, src []byte, n int) error {
	d := typed[T](dst, n)
	lost := int32(0)
	for i, v := range typed[int32](src, n) {
		d[i] = T(v)
		lost |= int32(d[i]) ^ v
	}
	if lost != 0 {
		return badf("a value does not fit the 8 or 16 bits of the column's type")
	}
	return nil
}

// decimals converts unscaled values that are stored as integers.
func decimals[T int32 | int64](dst []byte, src []T, t gpu.Type) error {
	if len(src) == 0 {
		return nil
	}
	lo, hi := src[0], src[0]
	if t.Wide {
		d := typed[gpu.Int128](dst, len(src))
		for i, v := range src {
			d[i] = gpu.Int128From(int64(v))
			lo, hi = min(lo, v), max(hi, v)
		}
	} else {
		d := typed[int64](dst, len(src))
		for i, v := range src {
			d[i] = int64(v)
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	for _, v := range [2]T{lo, hi} {
		if x := gpu.Int128From(int64(v)); !x.FitsPrecision(int(t.Precision)) {
			return badf("the value %s has more than %d digits", x.Format(int(t.Scale)), t.Precision)
		}
	}
	return nil
}

// putDecimal stores a big-endian two's complement value of any length as value
// i of a decimal column.
func putDecimal(dst []byte, i int, b []byte, t gpu.Type) error {
	v, ok := bigEndian(b)
	if !ok || !v.FitsPrecision(int(t.Precision)) {
		return badf("the decimal value 0x%x has more than %d digits", b[:min(len(b), 32)], t.Precision)
	}
	if t.Wide {
		binary.LittleEndian.PutUint64(dst[16*i:], v.Lo)
		binary.LittleEndian.PutUint64(dst[16*i+8:], uint64(v.Hi))
	} else {
		binary.LittleEndian.PutUint64(dst[8*i:], v.Lo)
	}
	return nil
}

// bigEndian reads a two's complement integer and says whether it fits 128 bits.
func bigEndian(b []byte) (v gpu.Int128, ok bool) {
	if len(b) == 0 {
		return v, true
	}
	sign := byte(int8(b[0]) >> 7)
	for len(b) > 16 {
		if b[0] != sign {
			return v, false
		}
		b = b[1:]
	}
	var full [16]byte
	for i := range full[:16-len(b)] {
		full[i] = sign
	}
	copy(full[16-len(b):], b)
	if full[0]>>7 != sign&1 {
		return v, false
	}
	return gpu.Int128{Hi: int64(binary.BigEndian.Uint64(full[:])), Lo: binary.BigEndian.Uint64(full[8:])}, true
}

// perDay is the units of a day, which is also the last TIME: 24:00.
func perDay(t gpu.Type) int64 { return 86400 * t.Unit.PerSecond() }

// julianUnixEpoch is the Julian day of 1970-01-01.
const julianUnixEpoch = 2440588

// convertInt96 converts the old timestamps of Impala and Hive, nanoseconds of
// the day and the Julian day, to nanoseconds since 1970.
func convertInt96(dst, src []byte, n int) error {
	d := typed[int64](dst, n)
	for i := range n {
		nanos := int64(binary.LittleEndian.Uint64(src[12*i:]))
		day := int64(binary.LittleEndian.Uint32(src[12*i+8:])) - julianUnixEpoch
		v := gpu.MulInt64(day, 86400e9)
		v, over := v.Add(gpu.Int128From(nanos))
		if over || !v.IsInt64() {
			return badf("an INT96 timestamp is outside of the years 1677 to 2262")
		}
		d[i] = v.Int64()
	}
	return nil
}
