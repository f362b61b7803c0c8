package parquet

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unsafe"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/format"
)

// conversion converts n PLAIN values of fixed width to the values of a column. dst has space for n
// values of the column's type. src has n values of the physical type.
type conversion func(dst, src []byte, n int) error

// physicalWidth returns the bytes of a PLAIN value, 0 for Boolean and ByteArray.
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

// conversion returns the conversion of the PLAIN values of a fixed-width column. It is not for
// decimals in byte arrays: decimalBytes converts these. The result must not be used concurrently.
func (c leaf) conversion() conversion {
	decode := c.decoding()
	if !c.widens() {
		return decode
	}
	from, width := c.field.Type.Width(), c.physicalWidth()
	return c.widened(func(dst []byte, at, n int, src []byte) error {
		return decode(dst[:n*from], src[at*width:(at+n)*width], n)
	})
}

// widened returns the conversion to the type of the table via the file's type. decode writes
// n values of the file's type, from position at of src on.
func (c leaf) widened(decode func(dst []byte, at, n int, src []byte) error) conversion {
	const block = 1024
	stored := make([]byte, block*max(c.field.Type.Width(), 1))
	convert, to := widen(c.field.Type, c.as), c.as.Width()
	return func(dst, src []byte, n int) error {
		for at := 0; at < n; at += block {
			k := min(block, n-at)
			if err := decode(stored, at, k, src); err != nil {
				return err
			}
			if err := convert(dst[at*to:], stored, k); err != nil {
				return err
			}
		}
		return nil
	}
}

// decoding returns the conversion to values of the file's type.
func (c leaf) decoding() conversion {
	t := c.field.Type
	switch {
	case c.isHalf():
		return convertHalf
	case c.physical == format.FixedLenByteArray:
		return func(dst, src []byte, n int) error {
			for i := range n {
				if err := c.putDecimal(dst, i, src[i*c.length:(i+1)*c.length]); err != nil {
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
	case t.Kind == gpu.Time && c.physical == format.Int32:
		return func(dst, src []byte, n int) error { return times(dst, typed[int32](src, n), t) }
	case t.Kind == gpu.Time:
		return func(dst, src []byte, n int) error { return times(dst, typed[int64](src, n), t) }
	case t.Kind == gpu.Int8:
		return narrow[int8]
	case t.Kind == gpu.Int16:
		return narrow[int16]
	case t.Kind == gpu.Uint8:
		return narrow[uint8]
	case t.Kind == gpu.Uint16:
		return narrow[uint16]
	}
	return func(dst, src []byte, n int) error {
		w := t.Width()
		copy(dst[:n*w], src[:n*w])
		return nil
	}
}

// typed views the first n values of b, which need not be aligned: gstream's platforms
// load and store at any address.
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

// times converts times of day. The largest is 24:00.
func times[T int32 | int64](dst []byte, src []T, t gpu.Type) error {
	d := typed[int64](dst, len(src))
	last := uint64(t.Unit.PerDay())
	for i, v := range src {
		if uint64(v) > last {
			return badf("a TIME of %d is outside of a day, which has %d of its units", v, last)
		}
		d[i] = int64(v)
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

// putDecimal stores a big-endian two's complement value of any length as value i of a
// decimal column.
func (c leaf) putDecimal(dst []byte, i int, b []byte) error {
	if c.isWideDecimal() {
		v, err := c.wideDecimal(b)
		binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(v))
		return err
	}
	t := c.field.Type
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

// bigEndian parses a two's complement integer and reports whether it fits 128 bits.
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

// julianUnixEpoch is the Julian day of 1970-01-01.
const julianUnixEpoch = 2440588

// convertInt96 converts the old timestamps of Impala, Hive and Spark to microseconds since 1970.
// They hold the nanoseconds of the day and the Julian day. Nanoseconds since 1970 would not do:
// they cover only 1677 to 2262, and these timestamps are often outside.
func convertInt96(dst, src []byte, n int) error {
	d := typed[int64](dst, n)
	for i := range n {
		nanos := int64(binary.LittleEndian.Uint64(src[12*i:]))
		day := int64(int32(binary.LittleEndian.Uint32(src[12*i+8:]))) - julianUnixEpoch
		micros := nanos / 1000
		if nanos%1000 < 0 {
			micros--
		}
		v, over := gpu.MulInt64(day, 86400e6).Add(gpu.Int128From(micros))
		if over || !v.IsInt64() {
			return badf("an INT96 timestamp of %d days since 1970 and %d ns is outside of what a TIMESTAMP can be", day,
				nanos)
		}
		d[i] = v.Int64()
	}
	return nil
}

// convertHalf widens 2-byte floats, which is exact.
func convertHalf(dst, src []byte, n int) error {
	d := typed[uint32](dst, n)
	for i := range n {
		d[i] = math.Float32bits(halfFloat(binary.LittleEndian.Uint16(src[2*i:])))
	}
	return nil
}

func halfFloat(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&1023)
	switch exponent {
	case 0: // zero or subnormal
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)/(1<<24)))
	case 31: // infinity or NaN
		exponent = 255
	default:
		exponent += 127 - 15
	}
	return math.Float32frombits(sign | exponent<<23 | fraction<<13)
}

// wideDecimal returns the DOUBLE nearest to a decimal with more digits than our decimals
// have.
func (c leaf) wideDecimal(b []byte) (float64, error) {
	// A byte has more than two decimal digits, so this check rejects only values with too many
	// digits. It bounds the work.
	for len(b) > 1 && b[0] == byte(int8(b[1])>>7) {
		b = b[1:]
	}
	if len(b) > c.precision/2+1 {
		return 0, badf("a decimal value of %d bytes has more than %d digits", len(b), c.precision)
	}
	v := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]>>7 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	// ParseFloat returns infinity for a value out of range.
	f, _ := strconv.ParseFloat(fmt.Sprintf("%de-%d", v, c.scale), 64)
	return f, nil
}
