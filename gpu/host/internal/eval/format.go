package eval

import (
	"strconv"

	"github.com/gstream/gstream/gpu"
)

// castToString formats values as DuckDB prints them.
func (f *frame) castToString(s *instruction, v, a *vec) error {
	n := f.n
	if a.typ.Kind == gpu.String {
		v.str = a.str[:n]
		return nil
	}
	v.str = f.texts()[:n]
	var wide []gpu.Int128
	var ints []int64
	switch {
	case a.typ.IsVar() || a.typ.IsFloat():
	case a.typ.Wide || a.typ.Kind == gpu.Uint64:
		wide = f.wide(a)
	default:
		ints = f.int64s(a)
	}
	for i := range v.str {
		from := len(f.pool.bytes)
		b := f.pool.bytes
		switch kind := a.typ.Kind; {
		case kind == gpu.Binary:
			b = appendEscaped(b, a.str[i])
		case kind == gpu.Bool:
			b = strconv.AppendBool(b, ints[i] != 0)
		case a.typ.IsFloat():
			b = append(b, f.scalar(a, i)...)
		case a.typ.Infinity() != 0 && a.typ.IsInfinite(ints[i]):
			b = append(b, f.scalar(a, i)...)
		case kind == gpu.Date:
			b = appendDate(b, ints[i])
		case kind == gpu.Time:
			b = appendClock(b, ints[i], a.typ.Unit)
		case kind == gpu.Timestamp:
			b = appendTimestamp(b, ints[i], a.typ)
		case wide != nil && !wide[i].IsInt64():
			b = append(b, wide[i].FormatDecimal(int(a.typ.Precision), int(a.typ.Scale))...)
		case wide != nil:
			b = appendDecimal(b, wide[i].Int64(), a.typ)
		default:
			b = appendDecimal(b, ints[i], a.typ)
		}
		f.pool.bytes = b
		v.str[i] = f.text(from)
	}
	if len(f.pool.bytes) > batchBytes {
		return gpu.Exceeded("in %s: the strings of %d rows take more than 2 GiB", s.Text, n)
	}
	return nil
}

// appendEscaped appends a string, with bytes that are not printable ASCII as \xHH.
func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' || c == '\'' || c == '"' {
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// appendDecimal appends an integer or a decimal, given as its stored integer, in the form of
// gpu.Int128.FormatDecimal.
func appendDecimal(b []byte, x int64, t gpu.Type) []byte {
	scale := int(t.Scale)
	if scale == 0 {
		return strconv.AppendInt(b, x, 10)
	}
	u := uint64(x)
	if x < 0 {
		b = append(b, '-')
		u = -u
	}
	var digits [40]byte
	at := len(digits)
	for n := 0; u > 0 || n <= scale; n++ {
		if n == scale {
			at--
			digits[at] = '.'
			if u == 0 && t.Precision == t.Scale {
				break // the type has no digit before the point
			}
		}
		at--
		digits[at] = byte('0' + u%10)
		u /= 10
	}
	return append(b, digits[at:]...)
}

// appendPadded appends v ≥ 0 with leading zeros up to a width.
func appendPadded(b []byte, v int64, width int) []byte {
	for limit := int64(10); width > 1; width-- {
		if v < limit {
			b = append(b, '0')
		}
		limit *= 10
	}
	return strconv.AppendInt(b, v, 10)
}

func appendDate(b []byte, days int64) []byte {
	y, m, d := civil(days)
	bc := y <= 0
	if bc {
		y = 1 - y
	}
	b = append(appendPadded(b, y, 4), '-')
	b = append(appendPadded(b, m, 2), '-')
	b = appendPadded(b, d, 2)
	if bc {
		b = append(b, " (BC)"...)
	}
	return b
}

func appendClock(b []byte, v int64, u gpu.Unit) []byte {
	per := u.PerSecond()
	sec := v / per
	b = append(appendPadded(b, sec/3600, 2), ':')
	b = append(appendPadded(b, sec/60%60, 2), ':')
	b = appendPadded(b, sec%60, 2)
	if fraction := v % per; fraction != 0 {
		b = append(b, '.')
		b = appendPadded(b, fraction, u.Digits())
		for b[len(b)-1] == '0' {
			b = b[:len(b)-1]
		}
	}
	return b
}

func appendTimestamp(b []byte, v int64, t gpu.Type) []byte {
	day := floorDiv(v, t.Unit.PerDay())
	b = append(appendDate(b, day), ' ')
	b = appendClock(b, v-day*t.Unit.PerDay(), t.Unit)
	if t.UTC {
		b = append(b, "+00"...)
	}
	return b
}
