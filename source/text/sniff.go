package text

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

const (
	// sampleBytes and sampleRows bound the sample of a file, which decides what is not given.
	sampleBytes = 4 << 20
	sampleRows  = 20480
	// dialectRows is the number of rows of the sample that are split with each dialect that is possible.
	dialectRows = 512
)

var (
	delimiters = []byte{',', '|', ';', '\t'}
	// candidates are the types that the sample of a column may have, the most specific one first. Nine of ten columns
	// are one of the numbers or a text.
	candidates = []gpu.Type{gpu.Of(gpu.Bool), gpu.TimeOf(gpu.Microsecond), gpu.Of(gpu.Date),
		gpu.TimestampOf(gpu.Microsecond, false), gpu.TimestampOf(gpu.Microsecond, true), gpu.Of(gpu.Int64),
		gpu.Of(gpu.HugeInt), gpu.Of(gpu.Float64)}
)

// sniffer decides about a sample.
type sniffer struct {
	opt   Options
	text  []byte // complete rows
	whole bool   // the sample is the whole file
	d     Dialect
	form  jsonForm
	rows  [][]string
	ratio float64 // bytes of text for a byte of a compressed file
	// sampled is the number of rows of JSON, and defects whether some are none.
	sampled int64
	defects bool
	nulls   nullTexts
	// dates and times are the given formats, or nil.
	dates, times *timeFormat
}

// findDialect chooses the dialect with which the most rows have the same number of columns.
func (s *sniffer) findDialect() {
	newline := byte('\n')
	if !strings.Contains(string(s.text), "\n") && strings.Contains(string(s.text), "\r") {
		newline = '\r'
	}
	type shape struct {
		d               Dialect
		same, bad, wide float64
	}
	var best shape
	for _, delimiter := range s.delimiters() {
		for _, quotes := range s.quotes() {
			d := Dialect{Delimiter: delimiter, Quote: quotes[0], Escape: quotes[1], Newline: newline}
			widths, bad, rows := map[int]int{}, 0, 0
			at := 0
			var fields []field
			for at < len(s.text) && rows < dialectRows {
				var what defect
				var next int
				fields, next, what = d.split(s.text[at:], fields[:0])
				if len(fields) == 1 && fields[0].from == fields[0].to {
					at += next
					continue // an empty line
				}
				at += next
				rows++
				if what != sound {
					bad++
				}
				widths[len(fields)]++
			}
			mode, most := 1, 0
			for w, n := range widths {
				if s.opt.NullPadding {
					// Rows may be shorter than the longest one.
					if mode = max(mode, w); w > 1 {
						most += n
					}
				} else if n > most || n == most && w > mode {
					mode, most = w, n
				}
			}
			if s.opt.NullPadding && 2*most > rows {
				most = rows
			}
			all := float64(max(rows, 1))
			next := shape{d, float64(most) / all, float64(bad) / all, float64(mode)}
			better := false
			switch {
			case best.d == Dialect{}:
				better = true
			case next.bad != best.bad:
				better = next.bad < best.bad
			case (next.wide > 1 && next.same > 0.5) != (best.wide > 1 && best.same > 0.5):
				better = next.wide > 1 && next.same > 0.5
			case next.wide == 1:
			case next.same != best.same:
				better = next.same > best.same
			default:
				better = next.wide > best.wide
			}
			if better {
				best = next
			}
		}
	}
	s.d = best.d
}

func (s *sniffer) delimiters() []byte {
	if s.opt.Delimiter != "" {
		return []byte{s.opt.Delimiter[0]}
	}
	return delimiters
}

// quotes returns the pairs of quotes and escapes that are possible.
func (s *sniffer) quotes() (list [][2]byte) {
	switch {
	case s.opt.Quote == "none":
		return [][2]byte{{0, 0}}
	case s.opt.Quote != "":
		list = [][2]byte{{s.opt.Quote[0], s.opt.Quote[0]}, {s.opt.Quote[0], '\\'}}
	default:
		list = [][2]byte{{'"', '"'}, {'"', '\\'}, {'\'', '\''}}
	}
	if s.opt.Escape != "" {
		for i := range list {
			list[i][1] = s.opt.Escape[0]
		}
	}
	return list
}

// split splits the rows of the sample.
func (s *sniffer) split() {
	at := 0
	var fields []field
	for at < len(s.text) && len(s.rows) <= sampleRows {
		text := s.text[at:]
		var next int
		var what defect
		fields, next, what = s.d.split(text, fields[:0])
		at += next
		if len(fields) > maxColumns {
			s.rows = append(s.rows, make([]string, len(fields)))
			return
		}
		empty := len(fields) == 1 && fields[0].from == fields[0].to
		if what != sound && len(s.rows) > 0 || empty && len(s.rows) > 0 && len(s.rows[0]) > 1 {
			continue // a scan will report the defect
		}
		row := make([]string, len(fields))
		for i, f := range fields {
			row[i] = s.d.value(text, f)
		}
		s.rows = append(s.rows, row)
	}
	if at < len(s.text) {
		s.text, s.whole = s.text[:at], false // the size of a row is that of the sampled ones
	}
}

// possible has a bit for each of the candidates.
type possible uint16

const anything = 1<<8 - 1

// narrow removes the types that have no such value.
func (p possible) narrow(v string) possible {
	for i := range candidates {
		if p>>i&1 != 0 && !looksLike(v, i) {
			p &^= 1 << i
		}
	}
	return p
}

// typ returns the most specific type, VARCHAR if none is left.
func (p possible) typ() gpu.Type {
	for i, t := range candidates {
		if p>>i&1 != 0 {
			return t
		}
	}
	return gpu.Of(gpu.String)
}

// looksLike reports whether a text is written like a value of candidate i, as DuckDB decides it.
func looksLike(v string, i int) bool {
	t := candidates[i]
	trimmed := strings.TrimSpace(v)
	if trimmed == "" {
		return false
	}
	c := trimmed[0]
	digit := c >= '0' && c <= '9'
	switch t.Kind {
	case gpu.Bool:
		return strings.EqualFold(v, "true") || strings.EqualFold(v, "false") || strings.EqualFold(v, "t") ||
			strings.EqualFold(v, "f")
	case gpu.Int64, gpu.HugeInt:
		return isInteger(trimmed) && parses(trimmed, t)
	case gpu.Float64:
		return isNumber(v) || strings.EqualFold(v, "nan")
	case gpu.Time:
		at := strings.IndexByte(trimmed, ':')
		return digit && (at == 1 || at == 2) && parses(trimmed, t)
	case gpu.Date:
		return isDate(trimmed) && parses(trimmed, t) || strings.EqualFold(trimmed, "infinity") ||
			strings.EqualFold(trimmed, "-infinity")
	}
	if !digit || len(trimmed) < len("2020-1-1 0:0") || yearDigits(trimmed) < 4 || !parses(trimmed, t) {
		return false
	}
	clock := strings.IndexByte(trimmed, ':')
	if clock < 0 {
		return false
	}
	zone := strings.ContainsAny(trimmed[clock:], "+-Z")
	return t.UTC || !zone
}

func parses(v string, t gpu.Type) bool {
	_, ok := host.ParseText(v, t)
	return ok
}

// isInteger reports whether a text is an integer without superfluous zeros.
func isInteger(v string) bool {
	v = strings.TrimPrefix(v, "-")
	return v != "" && strings.Trim(v, "0123456789") == "" && (v[0] != '0' || len(v) == 1)
}

// isNumber reports whether a text is a number with a point or an exponent, or an integer.
func isNumber(v string) bool {
	v = strings.TrimPrefix(v, "-")
	if v == "" || v[0] != '.' && (v[0] < '0' || v[0] > '9') || v == "." {
		return false
	}
	if len(v) > 1 && v[0] == '0' && v[1] >= '0' && v[1] <= '9' || strings.ContainsAny(v, "_xXiI") {
		return false
	}
	return parses(v, gpu.Of(gpu.Float64))
}

// isDate reports whether a text is a date of a year with four digits or more, without a time.
func isDate(v string) bool {
	n := yearDigits(v)
	return n >= 4 && n < len(v) && strings.IndexByte(v, ':') < 0
}

// yearDigits returns the number of digits at the beginning, which are a year. 96-03-27 is not of the year 96.
func yearDigits(v string) (n int) {
	for n < len(v) && v[n] >= '0' && v[n] <= '9' {
		n++
	}
	return n
}

// types returns the types of columns from the rows of the sample from one on, and the formats of dates and times that
// are not written as a cast reads them.
func (s *sniffer) types(from, columns int) ([]gpu.Type, []*timeFormat) {
	types, formats := make([]gpu.Type, columns), make([]*timeFormat, columns)
	for c := range types {
		left, some := possible(anything), false
		for _, row := range s.rows[min(from, len(s.rows)):] {
			if c >= len(row) || s.nulls.has([]byte(row[c])) {
				continue
			}
			if some, left = true, left.narrow(row[c]); left == 0 {
				break
			}
		}
		if types[c] = left.typ(); !some {
			types[c] = gpu.Of(gpu.String)
		} else if t, f := s.formatted(from, c, types[c].Kind == gpu.String); f != nil {
			types[c], formats[c] = t, f
		}
	}
	return types, formats
}

// formatted returns the type of a column whose values have one of the given formats, or with find, for a column of
// texts, a format that is found. The format is nil for other columns.
func (s *sniffer) formatted(from, c int, find bool) (gpu.Type, *timeFormat) {
	values := func(yield func(string) bool) {
		for _, row := range s.rows[min(from, len(s.rows)):] {
			if c < len(row) && !s.nulls.has([]byte(row[c])) && !yield(row[c]) {
				return
			}
		}
	}
	for i, f := range []*timeFormat{s.dates, s.times} {
		if f == nil {
			continue
		}
		t, all := []gpu.Type{gpu.Of(gpu.Date), gpu.TimestampOf(gpu.Microsecond, false)}[i], true
		for v := range values {
			if _, all = f.parse(v, t); !all {
				break
			}
		}
		if all {
			return t, f
		}
	}
	if !find {
		return gpu.Type{}, nil
	}
	t, f := findFormat(values)
	if t.Kind == gpu.Date && s.dates != nil || t.Kind == gpu.Timestamp && s.times != nil {
		return t, nil
	}
	return t, f
}

// hasHeader decides whether the first row has the names of the columns. It has if a value in it is none of the type of
// the rows below it, or if all columns are texts.
func (s *sniffer) hasHeader(columns int) bool {
	if len(s.rows) == 0 {
		return false
	}
	first := s.rows[0]
	if len(s.rows) == 1 {
		for _, v := range first {
			if possible(anything).narrow(v) != 0 {
				return false
			}
		}
		return true
	}
	texts := true
	types, formats := s.types(1, columns)
	for c, t := range types {
		if t.Kind == gpu.String {
			continue
		}
		texts = false
		if c < len(first) && !s.nulls.has([]byte(first[c])) && !fits(first[c], t, formats[c]) {
			return true
		}
	}
	return texts
}

// fits reports whether a text looks like a value of one of the candidates, or has a format.
func fits(v string, t gpu.Type, f *timeFormat) bool {
	if f != nil {
		_, ok := f.parse(v, t)
		return ok
	}
	for i, c := range candidates {
		if c == t {
			return looksLike(v, i)
		}
	}
	return true
}

// width returns the number of columns that most rows have.
func (s *sniffer) width() int {
	widths, mode, most := map[int]int{}, 0, 0
	for _, row := range s.rows {
		widths[len(row)]++
		if s.opt.NullPadding {
			mode = max(mode, len(row))
		} else if n := widths[len(row)]; n > most {
			mode, most = len(row), n
		}
	}
	return mode
}

// columnNames makes names of a header: without spaces around them, columnN for one that is empty, and with a number for
// one that occurs before, whatever the case.
func columnNames(header []string) []string {
	names, seen := make([]string, len(header)), map[string]int{}
	for i, name := range header {
		name = strings.TrimSpace(name)
		if name == "" {
			name = fmt.Sprintf("column%0*d", digitsOf(len(header)-1), i)
		}
		names[i] = name
		for n, ok := seen[strings.ToLower(names[i])]; ok; _, ok = seen[strings.ToLower(names[i])] {
			names[i] = fmt.Sprintf("%s_%d", name, n)
			n++
			seen[strings.ToLower(name)] = n
		}
		if _, ok := seen[strings.ToLower(names[i])]; !ok {
			seen[strings.ToLower(names[i])] = 1
		}
	}
	return names
}

// madeNames are the names of columns without a header.
func madeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("column%0*d", digitsOf(n-1), i)
	}
	return names
}

func digitsOf(n int) int { return len(fmt.Sprint(n)) }

// one checks an option that is one character.
func one(name, v string, none bool) error {
	if v == "" || none && v == "none" || len(v) == 1 && v[0] < utf8.RuneSelf && v != "\n" && v != "\r" && v != "\x00" {
		return nil
	}
	return fmt.Errorf("%s is %q; it must be one ASCII character, and no line break", name, v)
}
