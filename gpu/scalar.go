package gpu

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Scalar is one typed value. The zero Scalar is a null of the Invalid type.
type Scalar struct {
	Type  Type
	Valid bool
	// Int holds Bool (0 or 1), integers, codes of an ENUM, Decimal (unscaled), Date, Time and
	// Timestamp values.
	Int Int128
	// Float holds Float32 and Float64 values.
	Float float64
	// Str holds String, Binary and nested values.
	Str string
}

// Null returns the null of a type.
func Null(t Type) Scalar { return Scalar{Type: t} }

// IntScalar returns an integral value of type t.
func IntScalar(t Type, v int64) Scalar { return Scalar{Type: t, Valid: true, Int: Int128From(v)} }

// FloatScalar returns a floating-point value of type t.
func FloatScalar(t Type, v float64) Scalar { return Scalar{Type: t, Valid: true, Float: v} }

// StringScalar returns a String value.
func StringScalar(v string) Scalar { return Scalar{Type: Of(String), Valid: true, Str: v} }

// BoolScalar returns a Bool value.
func BoolScalar(v bool) Scalar {
	s := IntScalar(Of(Bool), 0)
	if v {
		s.Int.Lo = 1
	}
	return s
}

// Compare orders two values of the same type as SQL does: NaN equals NaN and is above every number,
// and -0 equals +0. Neither value may be null.
func (s Scalar) Compare(t Scalar) int {
	switch {
	case s.Type.IsFloat():
		return CompareFloat(s.Float, t.Float)
	case s.Type.IsVar():
		switch {
		case s.Str < t.Str:
			return -1
		case s.Str > t.Str:
			return 1
		}
		return 0
	}
	return s.Int.Cmp(t.Int)
}

// CompareFloat compares floats in SQL's total order: NaN equals NaN and is greatest.
func CompareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return 0
	case math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a):
		return 1
	}
	return -1
}

// String formats the value as DuckDB prints it.
func (s Scalar) String() string {
	if !s.Valid {
		return "NULL"
	}
	if s.Type.IsEnum() {
		return s.Type.EnumText(s.Int.Int64())
	}
	switch s.Type.Kind {
	case Bool:
		return strconv.FormatBool(s.Int.Lo != 0)
	case Float32:
		return formatFloat(s.Float, 32)
	case Float64:
		return formatFloat(s.Float, 64)
	case Decimal:
		return s.Int.FormatDecimal(int(s.Type.Precision), int(s.Type.Scale))
	case Date, Timestamp:
		return formatMoment(s.Int.Int64(), s.Type)
	case Time:
		return formatTime(s.Int.Int64(), s.Type.Unit)
	case String:
		return s.Str
	case Binary:
		return fmt.Sprintf("\\x%x", s.Str)
	case Interval:
		return PartsOfInterval(s.Str).String()
	case List, Struct, Map:
		var b strings.Builder
		formatNested(&b, s)
		return b.String()
	}
	return s.Int.String()
}

// formatMoment formats a Date or Timestamp.
func formatMoment(v int64, t Type) string {
	switch inf := t.Infinity(); {
	case v == inf:
		return "infinity"
	case v == -inf:
		return "-infinity"
	case t.Kind == Date:
		return FormatDate(v)
	}
	perDay := t.Unit.PerDay()
	day := floorDiv(v, perDay)
	out := FormatDate(day) + " " + formatTime(v-day*perDay, t.Unit)
	if t.UTC {
		out += "+00"
	}
	return out
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func formatFloat(f float64, bits int) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if bits == 32 && ambiguous(float32(math.Abs(f))) {
		bits = 64
	}
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if a := math.Abs(f); a >= 1e-4 && a < 1e16 || f == 0 {
		s = strconv.FormatFloat(f, 'f', -1, bits)
		if f == math.Trunc(f) {
			s += ".0"
		}
	}
	return s
}

// ambiguous reports whether the shortest text of a positive float fails to identify it: the text is
// not strictly between the ends of the interval that rounds to the float, or another text of the
// same length is equally near. DuckDB then prints all digits of the float.
func ambiguous(f float32) bool {
	word := math.Float32bits(f)
	m, q := uint64(word&(1<<23-1)), int(word>>23)-150
	halfBelow := uint64(2) // in quarters of the unit in the last place
	switch {
	case q == -150:
		q++
	case m == 0 && q > -149:
		halfBelow = 1
		fallthrough
	default:
		m |= 1 << 23
	}
	short, k := decimalText(f)
	// The float is halfway between two such strings: it has one digit more, a 5.
	if d, at, ok := decimalOf(m, q); ok && d%10 == 5 && at == k-1 && (d/10 == short || d/10+1 == short) {
		return true
	}
	for _, end := range [2]uint64{4*m - halfBelow, 4*m + 2} {
		d, at, ok := decimalOf(end, q-2)
		if ok && (d == short && at == k || d < short && digitsOf(d) < digitsOf(short)) {
			return true
		}
	}
	return false
}

// decimalText returns the shortest text of a float as d·10^k, where d does not end in 0.
func decimalText(f float32) (d uint64, k int) {
	var buf [32]byte
	text := strconv.AppendFloat(buf[:0], float64(f), 'e', -1, 32)
	for i, c := range text {
		switch {
		case c == 'e':
			e, _ := strconv.Atoi(string(text[i+1:]))
			return d, k + e
		case c != '.':
			d = d*10 + uint64(c-'0')
			if i > 0 {
				k--
			}
		}
	}
	return d, k
}

// decimalOf returns m·2^q as d·10^k, where d does not end in 0. ok is false if d has more than
// about 17 digits.
func decimalOf(m uint64, q int) (d uint64, k int, ok bool) {
	for ; m != 0 && m&1 == 0; m >>= 1 {
		q++
	}
	for ; q > 0 && m%5 == 0 && m != 0; m /= 5 {
		k++
		q--
	}
	if q > 0 {
		return m << min(q, 63), k, q+bits.Len64(m) < 57
	}
	for ; q < 0; q++ {
		if m > 1<<57/5 {
			return 0, 0, false
		}
		m *= 5
		k--
	}
	return m, k, true
}

func digitsOf(d uint64) (n int) {
	for ; d > 0; d /= 10 {
		n++
	}
	return n
}

// FormatDate formats days since 1970-01-01 as YYYY-MM-DD.
func FormatDate(days int64) string {
	t := time.Unix(days*86400, 0).UTC()
	y := t.Year()
	if y <= 0 {
		return fmt.Sprintf("%04d-%02d-%02d (BC)", 1-y, t.Month(), t.Day())
	}
	return fmt.Sprintf("%04d-%02d-%02d", y, t.Month(), t.Day())
}

func formatTime(v int64, u Unit) string {
	per := u.PerSecond()
	s, f := v/per, v%per
	out := fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
	if f != 0 {
		digits := u.Digits()
		frac := fmt.Sprintf("%0*d", digits, f)
		for frac[len(frac)-1] == '0' {
			frac = frac[:len(frac)-1]
		}
		out += "." + frac
	}
	return out
}

// ScalarAt returns row i of a host-addressable column.
func (c Column) ScalarAt(i int) Scalar {
	if !c.IsValid(i) {
		return Null(c.Type)
	}
	if c.Type.IsVar() {
		return Scalar{Type: c.Type, Valid: true, Str: string(c.VarValue(i))}
	}
	if c.Dict != nil {
		return c.Dict.Values.ScalarAt(c.Code(i))
	}
	n := i + 1
	s := Scalar{Type: c.Type, Valid: true}
	if c.CodeWidth != 0 {
		v := int64(Values[int32](c.Data, n)[i])
		s.Int = Int128From(v)
		if c.Type.IsUnsigned() {
			s.Int = Int128FromUint(uint64(v))
		}
		return s
	}
	switch c.Type.Kind {
	case Bool:
		if Bit(c.Data.Bytes(), i) {
			s.Int.Lo = 1
		}
	case Int8:
		s.Int = Int128From(int64(Values[int8](c.Data, n)[i]))
	case Int16:
		s.Int = Int128From(int64(Values[int16](c.Data, n)[i]))
	case Int32, Date:
		s.Int = Int128From(int64(Values[int32](c.Data, n)[i]))
	case Uint8:
		s.Int = Int128FromUint(uint64(Values[uint8](c.Data, n)[i]))
	case Uint16:
		s.Int = Int128FromUint(uint64(Values[uint16](c.Data, n)[i]))
	case Uint32:
		s.Int = Int128FromUint(uint64(Values[uint32](c.Data, n)[i]))
	case Uint64:
		s.Int = Int128FromUint(Values[uint64](c.Data, n)[i])
	case Float32:
		s.Float = float64(Values[float32](c.Data, n)[i])
	case Float64:
		s.Float = Values[float64](c.Data, n)[i]
	case HugeInt:
		s.Int = Values[Int128](c.Data, n)[i]
	case Decimal:
		if c.Type.Wide {
			s.Int = Values[Int128](c.Data, n)[i]
		} else {
			s.Int = Int128From(Values[int64](c.Data, n)[i])
		}
	default:
		s.Int = Int128From(Values[int64](c.Data, n)[i])
	}
	return s
}

// ColumnOf builds a column of type t from scalars. It is on the Go heap, and no lease pays for it:
// for constants, tests and small tables.
func ColumnOf(t Type, values []Scalar) Column {
	n := len(values)
	c := Column{Type: t, Len: n}
	valid := make([]byte, BitmapBytes(n))
	nulls := false
	for i, v := range values {
		if v.Valid {
			valid[i>>3] |= 1 << (i & 7)
		} else {
			nulls = true
		}
	}
	if nulls {
		c.Valid = WrapBytes(valid)
	}
	if t.IsVar() {
		offsets := make([]int32, n+1)
		var data []byte
		for i, v := range values {
			data = append(data, v.Str...)
			offsets[i+1] = int32(len(data))
		}
		c.Data, c.Offsets = WrapBytes(data), WrapBytes(BytesOf(offsets))
		return c
	}
	if t.Kind == Bool {
		data := make([]byte, BitmapBytes(n))
		for i, v := range values {
			data[i>>3] |= byte(v.Int.Lo&1) << (i & 7)
		}
		c.Data = WrapBytes(data)
		return c
	}
	w := t.Width()
	// The memory is allocated as 128-bit words, so a view of any width is aligned.
	data := BytesOf(make([]Int128, (n*w+15)/16))
	for i, v := range values {
		x := v.Int
		switch t.Kind {
		case Float32:
			x = Int128{Lo: uint64(math.Float32bits(float32(v.Float)))}
		case Float64:
			x = Int128{Lo: math.Float64bits(v.Float)}
		}
		copy(data[i*w:(i+1)*w], BytesOf([]Int128{x}))
	}
	c.Data = WrapBytes(data)
	return c
}
