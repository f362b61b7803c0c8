package eval

import (
	"math"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// castFromString parses text as values of another type.
func (f *frame) castFromString(s *instruction, v, a *vec) error {
	bad := func(i int) error {
		return f.fail(s, v, i, func() error {
			return failed(s, "cannot read %.60q as %v%s", a.str[i], v.typ, v.typ.ExpectedText())
		})
	}
	x := a.str[:f.n]
	switch {
	case v.typ.Kind == gpu.Binary:
		v.str = f.texts()[:f.n]
		for i, x := range x {
			b, ok := x, true
			if strings.IndexByte(x, '\\') >= 0 || !isASCII(x) {
				from := len(f.pool.bytes)
				f.pool.bytes, ok = appendBlob(f.pool.bytes, x)
				b = f.text(from)
			}
			if v.str[i] = b; !ok {
				if err := bad(i); err != nil {
					return err
				}
			}
		}
		return nil
	case v.typ.Kind == gpu.Bool:
		out := f.bitsOf(v)
		clear(out)
		for i, x := range x {
			b, ok := parseBool(x)
			if !ok {
				if err := bad(i); err != nil {
					return err
				}
			}
			out[i>>6] |= b2u(b) << (i & 63)
		}
		return nil
	case v.typ.IsFloat():
		size := 8 * v.typ.Width()
		for i, x := range x {
			y, ok := parseFloat(x, size)
			if !ok {
				if err := bad(i); err != nil {
					return err
				}
			}
			if size == 32 {
				dst[float32](f, v)[i] = float32(y)
			} else {
				dst[float64](f, v)[i] = y
			}
		}
		return nil
	}
	lo, hi := v.typ.Bounds()
	out := blockOf[gpu.Int128](f)
	for i, x := range x {
		if inf, ok := parseInfinity(x, v.typ); ok {
			out[i] = gpu.Int128From(inf)
			continue
		}
		y, ok := parseInteger(x, v.typ)
		if !ok || y.Less(lo) || hi.Less(y) {
			if err := bad(i); err != nil {
				return err
			}
			y = gpu.Int128{}
		}
		out[i] = y
	}
	f.storeInts(v, out)
	return nil
}

// appendBlob appends text in which bytes may be escaped as \xHH.
func appendBlob(out []byte, s string) ([]byte, bool) {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+3 < len(s) && s[i+1] == 'x':
			b, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
			if err != nil {
				return out, false
			}
			out = append(out, byte(b))
			i += 3
		case s[i] == '\\' || s[i] >= 0x80:
			return out, false
		default:
			out = append(out, s[i])
		}
	}
	return out, true
}

func parseBool(s string) (value, ok bool) {
	for _, word := range [...]string{"true", "t", "yes", "y", "1"} {
		if strings.EqualFold(s, word) {
			return true, true
		}
	}
	for _, word := range [...]string{"false", "f", "no", "n", "0"} {
		if strings.EqualFold(s, word) {
			return false, true
		}
	}
	return false, false
}

// trimSpace removes the characters around a number that DuckDB treats as white space.
func trimSpace(s string) string { return strings.Trim(s, " \t\n\v\f\r") }

// parseInteger parses a value of type t as its stored integer.
func parseInteger(s string, t gpu.Type) (gpu.Int128, bool) {
	if t.IsInteger() && len(s) > 2 && s[0] == '0' {
		switch s[1] | 0x20 {
		case 'x':
			return parseBase(s[2:], 16)
		case 'b':
			return parseBase(s[2:], 2)
		}
	}
	s = trimSpace(s)
	switch t.Kind {
	case gpu.Date:
		if strings.EqualFold(s, "epoch") {
			return gpu.Int128{}, true
		}
		days, rest, ok := parseDate(s)
		if ok && rest != "" {
			// A time of day may follow. It is checked and dropped.
			_, ok = parseTimestamp(s, gpu.Second, false)
		}
		return gpu.Int128From(days), ok
	case gpu.Timestamp:
		if strings.EqualFold(s, "epoch") {
			return gpu.Int128{}, true
		}
		if t.Unit >= gpu.Microsecond {
			return parseTimestamp(s, t.Unit, t.UTC)
		}
		// Coarser timestamps are rounded from microseconds.
		v, ok := parseTimestamp(s, gpu.Microsecond, t.UTC)
		return divideDecimal(gpu.OpRound, v, gpu.Int128From(gpu.Microsecond.PerSecond()/t.Unit.PerSecond())), ok
	case gpu.Time:
		return parseTime(s, t.Unit)
	}
	return parseDecimal(s, int(t.Scale))
}

// parseInfinity parses [-]inf[inity] as an infinite date or timestamp.
func parseInfinity(s string, t gpu.Type) (v int64, ok bool) {
	v = t.Infinity()
	if v == 0 || !strings.ContainsAny(s, "iI") {
		return 0, false
	}
	s = trimSpace(s)
	name := strings.TrimPrefix(s, "-")
	if name != s {
		v = -v
	}
	return v, strings.EqualFold(name, "infinity") || strings.EqualFold(name, "inf")
}

// parseBase parses digits of a base, with single underscores between them.
func parseBase(s string, base int64) (v gpu.Int128, ok bool) {
	for i := 0; i < len(s); i++ {
		digit := base // not a digit
		switch c := s[i] | 0x20; {
		case s[i] == '_' && i > 0 && i+1 < len(s) && s[i-1] != '_':
			continue
		case s[i] >= '0' && s[i] <= '9':
			digit = int64(s[i] - '0')
		case c >= 'a' && c <= 'f':
			digit = int64(c-'a') + 10
		}
		var over bool
		if v, over = v.Mul(gpu.Int128From(base)); over || digit >= base {
			return v, false
		}
		v, _ = v.Add(gpu.Int128From(digit)) // the added bits are zero
	}
	return v, true
}

// parseDecimal parses digits[.digits][e±digits], scaled and rounded half away from zero.
func parseDecimal(s string, scale int) (gpu.Int128, bool) {
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg, s = s[0] == '-', s[1:]
	}
	var v gpu.Int128 // negated digits: the range of 128 bits reaches one further below zero
	exponent, any, point, full := 0, false, false, false
	ten := gpu.Int128From(10)
	i := 0
scan:
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			any = true
			if !full {
				next, over := v.Mul(ten)
				if !over {
					next, over = next.Sub(gpu.Int128From(int64(c - '0')))
				}
				if full = over; !full {
					v = next
				}
			}
			// A digit after the point shifts the scale, and so does one that does not fit.
			if point && !full {
				exponent--
			} else if full && !point {
				exponent++
			}
		case c == '.' && !point:
			point = true
		case c == '_' && i > 0 && i+1 < len(s) && isDigit(s[i-1]) && isDigit(s[i+1]):
		default:
			break scan
		}
	}
	if !any {
		return v, false
	}
	if i < len(s) {
		if s[i] != 'e' && s[i] != 'E' || i+1 == len(s) {
			return v, false
		}
		e, err := strconv.ParseInt(s[i+1:], 10, 16)
		if err != nil {
			return v, false
		}
		exponent += int(e)
	}
	shift := exponent + scale
	switch {
	case v == gpu.Int128{}:
	case full && shift >= 0: // significant digits are lost
		return v, false
	case shift > gpu.MaxPrecision:
		return v, false
	case shift > 0:
		var over bool
		if v, over = v.Mul(gpu.Pow10(shift)); over {
			return v, false
		}
	case shift < -gpu.MaxPrecision:
		v = gpu.Int128{}
	case shift < 0:
		v = divideDecimal(gpu.OpRound, v, gpu.Pow10(-shift))
	}
	if !neg {
		v = v.Neg()
		return v, v.Sign() >= 0
	}
	return v, true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// readDigits parses up to most digits.
func readDigits(s string, most int) (v int64, rest string, n int) {
	for n < len(s) && n < most && isDigit(s[n]) {
		v = v*10 + int64(s[n]-'0')
		n++
	}
	return v, s[n:], n
}

// parseDate parses [-]Y…-M-D[ (BC)] and returns the rest. Slashes, backslashes and spaces
// are separators too.
func parseDate(s string) (days int64, rest string, ok bool) {
	neg := strings.HasPrefix(s, "-")
	if neg {
		s = s[1:]
	}
	y, s, n := readDigits(s, 7)
	if n == 0 || s == "" || strings.IndexByte(`-/\ `, s[0]) < 0 {
		return 0, s, false
	}
	sep := s[0]
	m, s, n := readDigits(s[1:], 2)
	if n == 0 || s == "" || s[0] != sep || m < 1 || m > 12 {
		return 0, s, false
	}
	d, s, n := readDigits(s[1:], 2)
	if len(s) >= 5 && strings.EqualFold(s[:5], " (BC)") {
		if y == 0 { // before the year 1 is the year 1 (BC)
			return 0, s, false
		}
		y, s = 1-y, s[5:]
	}
	if neg {
		y = -y
	}
	if n == 0 || d < 1 || d > daysInMonth(y, m) {
		return 0, s, false
	}
	days = daysOf(y, m, d)
	return days, s, days >= math.MinInt32 && days <= math.MaxInt32
}

// parseClock parses H:M[:S[.fraction]]. It drops digits beyond the unit.
func parseClock(s string, u gpu.Unit) (v int64, rest string, ok bool) {
	h, s, n := readDigits(s, 2)
	if n == 0 || !strings.HasPrefix(s, ":") {
		return 0, s, false
	}
	m, s, n := readDigits(s[1:], 2)
	if n == 0 || m > 59 {
		return 0, s, false
	}
	var sec, fraction int64
	per := u.PerSecond()
	if strings.HasPrefix(s, ":") {
		if sec, s, n = readDigits(s[1:], 2); n == 0 || sec > 59 {
			return 0, s, false
		}
		if strings.HasPrefix(s, ".") {
			s = s[1:]
			unit := per
			for ; s != "" && isDigit(s[0]); s = s[1:] {
				unit /= 10
				fraction += int64(s[0]-'0') * unit
			}
		}
	}
	v = (h*3600+m*60+sec)*per + fraction
	return v, s, v <= 86400*per
}

// parseTime parses a time of day, with a date before it or not. It ignores a zone after
// it. A date and 24:00 are the next day at 0:00.
func parseTime(s string, u gpu.Unit) (gpu.Int128, bool) {
	if strings.EqualFold(s, "epoch") {
		return gpu.Int128{}, true
	}
	day := int64(86400) * u.PerSecond()
	limit := day + 1
	if _, rest, ok := parseDate(s); ok {
		limit = day
		if rest == "" {
			return gpu.Int128{}, true
		}
		if s, ok = afterDate(rest); !ok {
			return gpu.Int128{}, false
		}
	}
	v, s, ok := parseClock(s, u)
	if ok {
		_, ok = parseZone(s)
	}
	return gpu.Int128From(v % limit), ok
}

// afterDate skips the separator between a date and a time.
func afterDate(s string) (string, bool) {
	rest := strings.TrimLeft(strings.TrimPrefix(s, "T"), " ")
	return rest, rest != s
}

// parseTimestamp parses a date, and a time and a zone if they follow. The zone is used only for UTC
// timestamps.
func parseTimestamp(s string, u gpu.Unit, utc bool) (gpu.Int128, bool) {
	days, s, ok := parseDate(s)
	if !ok {
		return gpu.Int128{}, false
	}
	per := u.PerSecond()
	v := gpu.MulInt64(days, 86400*per)
	if s == "" {
		return v, true
	}
	if s, ok = afterDate(s); !ok {
		return v, false
	}
	clock, s, ok := parseClock(s, u)
	if !ok {
		return v, false
	}
	offset, ok := parseZone(s)
	if utc {
		clock -= offset * per
	}
	v, _ = v.Add(gpu.Int128From(clock))
	return v, ok
}

// parseZone parses nothing, Z, UTC, or ±HH[[:]MM[:SS]], after spaces, and returns the
// seconds east of UTC.
func parseZone(s string) (int64, bool) {
	s = strings.TrimLeft(s, " ")
	if s == "" || s == "Z" || strings.EqualFold(s, "UTC") {
		return 0, true
	}
	sign := int64(1)
	switch s[0] {
	case '-':
		sign = -1
	case '+':
	default:
		return 0, false
	}
	h, s, n := readDigits(s[1:], 2)
	if n != 2 || h > 15 {
		return 0, false
	}
	var m, sec int64
	if s != "" {
		if m, s, n = readDigits(strings.TrimPrefix(s, ":"), 2); n != 2 || m > 59 {
			return 0, false
		}
	}
	if s != "" {
		if sec, s, n = readDigits(strings.TrimPrefix(s, ":"), 2); n != 2 || sec > 59 || s != "" {
			return 0, false
		}
	}
	return sign * (h*3600 + m*60 + sec), true
}

// parseFloat parses a float. A number that is too large becomes infinite.
func parseFloat(s string, size int) (float64, bool) {
	s = trimSpace(s)
	if strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	if strings.IndexByte(s, '_') >= 0 {
		for i := range len(s) {
			if s[i] == '_' && (i == 0 || i+1 == len(s) || !isDigit(s[i-1]) || !isDigit(s[i+1])) {
				return 0, false
			}
		}
		s = strings.ReplaceAll(s, "_", "")
	}
	if len(s) == 4 && (s[0] == '-' || s[0] == '+') && strings.EqualFold(s[1:], "nan") {
		s = s[1:]
	}
	v, err := strconv.ParseFloat(s, size)
	return v, err == nil || math.IsInf(v, 0)
}

// ParseText parses text as a value of a type, as a cast of VARCHAR does. It returns false if the text has no such
// value.
func ParseText(s string, t gpu.Type) (v gpu.Scalar, ok bool) {
	v = gpu.Scalar{Type: t, Valid: true}
	switch {
	case t.Kind == gpu.String:
		v.Str = s
		return v, true
	case t.Kind == gpu.Binary:
		b, ok := appendBlob(nil, s)
		v.Str = string(b)
		return v, ok
	case t.Kind == gpu.Bool:
		b, ok := parseBool(s)
		v.Int = gpu.Int128FromUint(b2u(b))
		return v, ok
	case t.IsFloat():
		v.Float, ok = parseFloat(s, 8*t.Width())
		return v, ok
	}
	if inf, ok := parseInfinity(s, t); ok {
		v.Int = gpu.Int128From(inf)
		return v, true
	}
	lo, hi := t.Bounds()
	v.Int, ok = parseInteger(s, t)
	return v, ok && !v.Int.Less(lo) && !hi.Less(v.Int)
}
