package text

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
)

// appender appends the value of a row to a text.
type appender func(out []byte, row int) []byte

// encoder turns strides into text.
type encoder struct {
	opt    Options
	schema *gpu.Schema
	names  []string // of JSON, with quotes and a colon
}

func newEncoder(schema *gpu.Schema, opt Options) *encoder {
	e := &encoder{opt: opt, schema: schema}
	for i, f := range schema.Fields {
		name := appendJSON(nil, f.Name)
		e.names = append(e.names, string("{,"[min(i, 1)])+string(name)+":")
	}
	return e
}

// header appends the first line.
func (e *encoder) header(out []byte) []byte {
	if e.opt.Format != CSV || !e.opt.header() {
		return out
	}
	for i, f := range e.schema.Fields {
		if i > 0 {
			out = append(out, e.opt.delimiter())
		}
		out = e.appendField(out, []byte(f.Name))
	}
	return append(out, '\n')
}

// rows appends the rows of a stride.
func (e *encoder) rows(out []byte, s *gpu.Stride) []byte {
	columns := make([]appender, len(s.Cols))
	for i, c := range s.Cols {
		columns[i] = e.column(c)
	}
	if e.opt.Format == JSON {
		for row := range s.Rows {
			for i, c := range columns {
				out = append(out, e.names[i]...)
				if s.Cols[i].IsValid(row) {
					out = c(out, row)
				} else {
					out = append(out, "null"...)
				}
			}
			if len(columns) == 0 {
				out = append(out, '{')
			}
			out = append(out, "}\n"...)
		}
		return out
	}
	delimiter := e.opt.delimiter()
	for row := range s.Rows {
		for i, c := range columns {
			if i > 0 {
				out = append(out, delimiter)
			}
			if s.Cols[i].IsValid(row) {
				out = c(out, row)
			} else {
				out = append(out, e.opt.Null...)
			}
		}
		out = append(out, '\n')
	}
	return out
}

// column returns the appender of the values of a column that are not null.
func (e *encoder) column(c gpu.Column) appender {
	json := e.opt.Format == JSON
	plain := c.Dict == nil && c.CodeWidth == 0
	n := c.Len
	switch {
	case c.Type.Kind == gpu.String && json:
		return func(out []byte, row int) []byte { return appendJSON(out, string(c.VarValue(row))) }
	case c.Type.Kind == gpu.String:
		return func(out []byte, row int) []byte { return e.appendField(out, c.VarValue(row)) }
	case c.Type.Kind == gpu.Binary:
		return func(out []byte, row int) []byte {
			text := appendBlob(nil, c.VarValue(row))
			if json {
				return appendJSON(out, string(text))
			}
			return e.appendField(out, text)
		}
	case c.Type.IsNested() && json:
		return func(out []byte, row int) []byte { return appendValue(out, c.ScalarAt(row)) }
	case c.Type.Kind == gpu.Int64 && plain:
		values := gpu.Values[int64](c.Data, n)
		return func(out []byte, row int) []byte { return strconv.AppendInt(out, values[row], 10) }
	case c.Type.Kind == gpu.Int32 && plain:
		values := gpu.Values[int32](c.Data, n)
		return func(out []byte, row int) []byte { return strconv.AppendInt(out, int64(values[row]), 10) }
	case c.Type.Kind == gpu.Decimal && !c.Type.Wide && plain && c.Type.Precision > c.Type.Scale:
		values, scale := gpu.Values[int64](c.Data, n), int(c.Type.Scale)
		return func(out []byte, row int) []byte { return appendDecimal(out, values[row], scale) }
	case c.Type.Kind == gpu.Date && plain:
		values := gpu.Values[int32](c.Data, n)
		return func(out []byte, row int) []byte {
			if json {
				out = append(out, '"')
			}
			out = appendDate(out, values[row], c, row)
			if json {
				out = append(out, '"')
			}
			return out
		}
	}
	return func(out []byte, row int) []byte {
		v := c.ScalarAt(row)
		switch {
		case json:
			return appendValue(out, v)
		case isNumber(v):
			return append(out, v.String()...)
		}
		return e.appendField(out, []byte(v.String()))
	}
}

// isNumber reports whether the text of a value is a number or truth value of JSON.
func isNumber(v gpu.Scalar) bool {
	return v.Type.IsInteger() || v.Type.Kind == gpu.Bool || v.Type.Kind == gpu.Decimal ||
		v.Type.IsFloat() && !math.IsNaN(v.Float) && !math.IsInf(v.Float, 0)
}

// appendValue appends a value as JSON: lists as arrays, structs and maps as objects.
func appendValue(out []byte, v gpu.Scalar) []byte {
	switch {
	case !v.Valid:
		return append(out, "null"...)
	case v.Type.IsComposite():
		return appendNested(out, v)
	case isNumber(v):
		return append(out, v.String()...)
	case v.Type.Kind == gpu.Binary:
		return appendJSON(out, string(appendBlob(nil, []byte(v.Str))))
	}
	return appendJSON(out, v.String())
}

func appendNested(out []byte, v gpu.Scalar) []byte {
	children, ends := v.Type.Children(), "{}"
	if v.Type.Kind == gpu.List {
		ends = "[]"
	}
	out = append(out, ends[0])
	rest := gpu.ElementsNested(v.Str)
	for i := 0; ; i++ {
		value, more, ok := gpu.NextNested(rest)
		if !ok {
			return append(out, ends[1])
		}
		if rest = more; i > 0 {
			out = append(out, ',')
		}
		child := children[0]
		switch v.Type.Kind {
		case gpu.Struct:
			child = children[i]
			out = append(appendJSON(out, child.Name), ':')
		case gpu.Map:
			key, entry, _ := gpu.NextNested(gpu.ElementsNested(value))
			out = append(appendJSON(out, gpu.ScalarNested(key, child.Type).String()), ':')
			value, _, _ = gpu.NextNested(entry)
			child = children[1]
		}
		out = appendValue(out, gpu.ScalarNested(value, child.Type))
	}
}

// appendDecimal appends a decimal with digits after the point.
func appendDecimal(out []byte, v int64, scale int) []byte {
	if scale == 0 {
		return strconv.AppendInt(out, v, 10)
	}
	u := uint64(v)
	if v < 0 {
		out, u = append(out, '-'), -u
	}
	var digits [20]byte
	text := strconv.AppendUint(digits[:0], u, 10)
	if missing := scale + 1 - len(text); missing > 0 {
		text = append([]byte("0000000000000000000")[:missing], text...)
	}
	point := len(text) - scale
	return append(append(append(out, text[:point]...), '.'), text[point:]...)
}

// appendDate appends days since 1970-01-01 of row of a column.
func appendDate(out []byte, days int32, c gpu.Column, row int) []byte {
	if days < -719162 || days > 2932896 { // not of the years 1 to 9999
		return append(out, c.ScalarAt(row).String()...)
	}
	// The days are counted from 0000-03-01, so that the day of a leap year is the last one of a year.
	z := uint32(days + 719468)
	era := z / 146097
	day := z % 146097
	year := (day - day/1460 + day/36524 - day/146096) / 365
	day -= 365*year + year/4 - year/100
	year += 400 * era
	month := (5*day + 2) / 153
	day -= (153*month+2)/5 - 1
	if month += 3; month > 12 {
		month, year = month-12, year+1
	}
	digit := func(v uint32) byte { return '0' + byte(v%10) }
	return append(out, digit(year/1000), digit(year/100), digit(year/10), digit(year), '-', digit(month/10),
		digit(month), '-', digit(day/10), digit(day))
}

// appendField appends a text to CSV, in quotes if a reader would take it for something else without them.
func (e *encoder) appendField(out, text []byte) []byte {
	quoted := len(text) == len(e.opt.Null) && string(text) == e.opt.Null || len(text) > 0 &&
		(text[0] == ' ' || text[0] == '#' || text[len(text)-1] == ' ')
	delimiter := e.opt.delimiter()
	for i := 0; i < len(text) && !quoted; i++ {
		c := text[i]
		quoted = c == delimiter || c == '"' || c == '\n' || c == '\r'
	}
	if !quoted {
		return append(out, text...)
	}
	out = append(out, '"')
	for _, c := range text {
		if c == '"' {
			out = append(out, '"')
		}
		out = append(out, c)
	}
	return append(out, '"')
}

const hexDigits = "0123456789abcdef"

// appendJSON appends a text as a string of JSON. Bytes that are not UTF-8 become U+FFFD.
func appendJSON(out []byte, s string) []byte {
	out = append(out, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				out = append(append(out, s[from:i]...), "\ufffd"...)
				from = i + 1
			}
			i += n
			continue
		}
		out = append(out, s[from:i]...)
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\n':
			out = append(out, '\\', 'n')
		case '\r':
			out = append(out, '\\', 'r')
		case '\t':
			out = append(out, '\\', 't')
		default:
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(append(out, s[from:]...), '"')
}

// appendBlob appends bytes as a cast to VARCHAR writes them: what is not a plain character as \xHH.
func appendBlob(out, b []byte) []byte {
	for _, c := range b {
		if c < ' ' || c > '~' || c == '\\' || c == '\'' || c == '"' {
			out = append(out, '\\', 'x')
			out = append(out, strings.ToUpper(hexDigits[c>>4:c>>4+1]+hexDigits[c&15:c&15+1])...)
			continue
		}
		out = append(out, c)
	}
	return out
}
