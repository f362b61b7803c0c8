package eval

import (
	"strings"

	"github.com/gstream/gstream/gpu"
)

// parseTime runs OpParseTime.
func (f *frame) parseTime(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	out := dst[int64](f, v)
	for i, x := range f.vecs[s.Args[0]].str[:f.n] {
		t, ok := ParseTime(s.format, x, v.typ)
		out[i] = t
		if !ok {
			if err := f.fail(s, v, i,
				func() error { return failed(s, "%s", gpu.UnreadableTime(x, s.Value.Str)) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func isTimeSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// specialTimes are strings that every format accepts.
var specialTimes = []string{"infinity", "-infinity", "epoch"}

// ParseTime reads a date and time in a format.
func ParseTime(f *gpu.TimeFormat, s string, t gpu.Type) (int64, bool) {
	for s != "" && isTimeSpace(s[0]) {
		s = s[1:]
	}
	for k, special := range specialTimes {
		if len(s) >= len(special) && strings.EqualFold(s[:len(special)], special) {
			return []int64{t.Infinity(), -t.Infinity(), 0}[k], onlySpaces(s[len(special):])
		}
	}
	fields := [gpu.TimeFields]int64{gpu.TimeYear: 1900, gpu.TimeMonth: 1, gpu.TimeDay: 1, gpu.TimeDayOfYear: 1}
	half, offset := byte(0), int64(0)
	for i := range f.Items {
		item := &f.Items[i]
		ok := false
		switch item.Kind {
		case gpu.TimeLiteral:
			s, ok = timeLiteral(s, item.Text)
		case gpu.TimeNumber, gpu.TimeFraction:
			n, digits := int64(0), 0
			for ; digits < item.Width && digits < len(s) && s[digits] >= '0' && s[digits] <= '9'; digits++ {
				n = 10*n + int64(s[digits]-'0')
			}
			s, ok = s[digits:], digits > 0 && n >= item.Lo && n <= item.Hi
			field := item.Field
			if item.Kind == gpu.TimeFraction {
				for ; digits < 9; digits++ {
					n *= 10
				}
			}
			if field == gpu.TimeYearOfCentury {
				field = gpu.TimeYear
				if n += 1900; n < 1969 {
					n += 100
				}
			}
			fields[field] = n
		case gpu.TimeName:
			n := item.Lo
			for name := range strings.FieldsSeq(item.Text) {
				if ok = len(s) >= len(name) && strings.EqualFold(s[:len(name)], name); ok {
					fields[item.Field] = n
					s = s[len(name):]
					break
				}
				n++
			}
		case gpu.TimeHalf:
			if ok = len(s) >= 2 && (s[0]|32 == 'a' || s[0]|32 == 'p') && s[1]|32 == 'm'; ok {
				half, s = s[0]|32, s[2:]
			}
		case gpu.TimeOffset:
			offset, s, ok = timeOffset(s)
		}
		if !ok {
			return 0, false
		}
	}
	if !onlySpaces(s) {
		return 0, false
	}
	hour := fields[gpu.TimeHour]
	if half != 0 {
		if hour > 12 {
			return 0, false
		}
		hour %= 12
		if half == 'p' {
			hour += 12
		}
	}
	year, month, day := fields[gpu.TimeYear], fields[gpu.TimeMonth], fields[gpu.TimeDay]
	days := int64(0)
	if f.ByDayOfYear {
		if days = daysOf(year, 1, 1) + fields[gpu.TimeDayOfYear] - 1; days >= daysOf(year+1, 1, 1) {
			return 0, false
		}
	} else {
		if day > daysInMonth(year, month) {
			return 0, false
		}
		days = daysOf(year, month, day)
	}
	seconds := days*86400 + hour*3600 + fields[gpu.TimeMinute]*60 + fields[gpu.TimeSecond] - offset
	v, _ := gpu.Int128From(seconds).Mul(gpu.Int128From(t.Unit.PerSecond()))
	v, _ = v.Add(gpu.Int128From(fields[gpu.TimeNanos] / (1e9 / t.Unit.PerSecond())))
	lo, hi := t.Bounds()
	if v.Less(lo) || hi.Less(v) {
		return 0, false
	}
	return v.Int64(), true
}

func onlySpaces(s string) bool {
	for i := range len(s) {
		if !isTimeSpace(s[i]) {
			return false
		}
	}
	return true
}

// timeLiteral reads a literal. Any number of spaces matches any number of spaces.
func timeLiteral(s, literal string) (rest string, ok bool) {
	for literal != "" {
		if s == "" {
			return s, false
		}
		if isTimeSpace(literal[0]) {
			if !isTimeSpace(s[0]) {
				return s, false
			}
			for s != "" && isTimeSpace(s[0]) {
				s = s[1:]
			}
			for literal != "" && isTimeSpace(literal[0]) {
				literal = literal[1:]
			}
			continue
		}
		if s[0] != literal[0] {
			return s, false
		}
		s, literal = s[1:], literal[1:]
	}
	return s, true
}

// timeOffset reads the seconds east of UTC.
func timeOffset(s string) (seconds int64, rest string, ok bool) {
	two := func(s string) (int64, bool) {
		if len(s) < 2 || s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9' {
			return 0, false
		}
		return int64(s[0]-'0')*10 + int64(s[1]-'0'), true
	}
	if s == "" || s[0] != '+' && s[0] != '-' {
		return 0, s, false
	}
	sign := int64(1)
	if s[0] == '-' {
		sign = -1
	}
	n, ok := two(s[1:])
	if !ok {
		return 0, s, false
	}
	seconds, s = n*3600, s[3:]
	if n, ok := two(s); ok {
		return sign * (seconds + n*60), s[2:], true
	}
	if len(s) > 1 && s[0] >= '0' && s[0] <= '9' { // a single digit at the end belongs to the next item
		return 0, s, false
	}
	for unit := int64(60); unit > 0 && s != "" && s[0] == ':'; unit /= 60 {
		n, ok := two(s[1:])
		if !ok {
			return 0, s, false
		}
		seconds, s = seconds+n*unit, s[3:]
	}
	return sign * seconds, s, true
}
