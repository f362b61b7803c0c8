package jsontext

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Functions of this file take values that are JSON, as Finder returns them.

// AppendJSON appends a value without white space, its numbers and strings in DuckDB's form.
func AppendJSON(out []byte, value string) []byte {
	for i := 0; i < len(value); {
		switch b := value[i]; {
		case b == '"':
			n := textLength(value[i:])
			out = appendString(out, value[i:i+n])
			i += n
		case b == '-' || isDigit(b):
			n := tokenLength(value[i:])
			out = appendNumber(out, value[i:i+n])
			i += n
		case isSpace(b):
			i++
		case b == ',':
			for i++; isSpace(value[i]); i++ {
			}
			if value[i] != ']' && value[i] != '}' {
				out = append(out, ',')
			}
		default:
			out = append(out, b)
			i++
		}
	}
	return out
}

// textLength returns the length of the string at the start of s, with its quotes.
func textLength(s string) int {
	for i := 1; ; i++ {
		switch s[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}

// tokenLength returns the length of the number or word at the start of s.
func tokenLength(s string) int {
	for i := range len(s) {
		if b := s[i]; b == ',' || b == ']' || b == '}' || b == ':' || isSpace(b) {
			return i
		}
	}
	return len(s)
}

// AppendQuoted appends a text as a JSON string.
func AppendQuoted(out []byte, text string) []byte {
	out = append(out, '"')
	from := 0
	for i := range len(text) {
		if b := text[i]; b < ' ' || b == '"' || b == '\\' {
			out = append(out, text[from:i]...)
			out = appendEscaped(out, b)
			from = i + 1
		}
	}
	return append(append(out, text[from:]...), '"')
}

// appendEscaped appends the escape of a control character, a quote or a backslash.
func appendEscaped(out []byte, b byte) []byte {
	const hex = "0123456789ABCDEF"
	if i := strings.IndexByte("\b\f\n\r\t\"\\", b); i >= 0 {
		return append(out, '\\', `bfnrt"\`[i])
	}
	return append(out, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
}

// appendString appends a JSON string with its characters as such, unless they must be escaped.
func appendString(out []byte, quoted string) []byte {
	if strings.IndexByte(quoted, '\\') < 0 {
		return append(out, quoted...)
	}
	return AppendQuoted(out, string(AppendText(nil, quoted)))
}

// AppendText appends the text of a JSON string.
func AppendText(out []byte, quoted string) []byte {
	s := quoted[1 : len(quoted)-1]
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			return append(out, s...)
		}
		out = append(out, s[:i]...)
		n, _ := escapeLength(s[i:])
		switch b := s[i+1]; {
		case n == 12:
			high, _ := hex4(s[i+2:])
			low, _ := hex4(s[i+8:])
			out = utf8.AppendRune(out, (high-0xD800)<<10+(low-0xDC00)+0x10000)
		case n == 6:
			r, _ := hex4(s[i+2:])
			out = utf8.AppendRune(out, r)
		default:
			if k := strings.IndexByte("bfnrt", b); k >= 0 {
				b = "\b\f\n\r\t"[k]
			}
			out = append(out, b)
		}
		s = s[i+n:]
	}
}

// isReal reports whether a number is no integer.
func isReal(number string) bool { return strings.ContainsAny(number, ".eEnNiI") }

// isLarge reports whether an integer does not fit 64 bits.
func isLarge(number string) bool {
	if number[0] == '-' {
		_, err := strconv.ParseInt(number, 10, 64)
		return err != nil
	}
	_, err := strconv.ParseUint(number, 10, 64)
	return err != nil
}

// usualDigits are the digits that a DOUBLE keeps whatever they are.
const usualDigits = 15

// appendNumber appends a number: an integer with its digits, another one as the shortest text of its DOUBLE. Numbers
// that have none, and infinity and NaN, stay as they are.
func appendNumber(out []byte, number string) []byte {
	if !isReal(number) {
		if number == "-0" {
			number = "0"
		}
		return append(out, number...)
	}
	if last := number[len(number)-1]; len(number) <= usualDigits && last != '0' && number[0] != '-' &&
		number[0] != '0' && strings.IndexByte(number, '.') > 0 && !strings.ContainsAny(number, "eE") {
		return append(out, number...) // it is the shortest one
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return append(out, number...)
	}
	return appendFloat(out, v)
}

// appendFloat appends the shortest text of a finite float, which has a point or an exponent.
func appendFloat(out []byte, v float64) []byte {
	size := math.Abs(v)
	if size != 0 && (size < 1e-6 || size >= 1e21) {
		out = strconv.AppendFloat(out, v, 'e', -1, 64)
		// 1e-07 becomes 1e-7, and 1e+21 becomes 1e21.
		mark := len(out) - 1
		for out[mark] != 'e' {
			mark--
		}
		exponent := strings.TrimLeft(strings.TrimPrefix(string(out[mark+1:]), "+"), "0")
		if rest, ok := strings.CutPrefix(exponent, "-"); ok {
			exponent = "-" + strings.TrimLeft(rest, "0")
		}
		return append(out[:mark+1], exponent...)
	}
	from := len(out)
	out = strconv.AppendFloat(out, v, 'f', -1, 64)
	if strings.IndexByte(string(out[from:]), '.') < 0 {
		out = append(out, ".0"...)
	}
	return out
}

// kindOf returns DuckDB's name of the type of a value.
func kindOf(value string) string {
	switch b := value[0]; {
	case b == '{':
		return "OBJECT"
	case b == '[':
		return "ARRAY"
	case b == '"':
		return "VARCHAR"
	case b == 't' || b == 'f':
		return "BOOLEAN"
	case value == "null":
		return "NULL"
	case isReal(value) || isLarge(value):
		return "DOUBLE"
	case b == '-':
		return "BIGINT"
	}
	return "UBIGINT"
}

// AppendPretty appends a value with a line for each member and element.
func AppendPretty(out []byte, value string) []byte {
	compact := string(AppendJSON(nil, value))
	depth := 0
	line := func() {
		out = append(out, '\n')
		for range depth {
			out = append(out, "    "...)
		}
	}
	for i := 0; i < len(compact); i++ {
		switch b := compact[i]; b {
		case '"':
			n := textLength(compact[i:])
			out = append(out, compact[i:i+n]...)
			i += n - 1
		case '{', '[':
			out = append(out, b)
			if end := compact[i+1]; end == '}' || end == ']' {
				out = append(out, end)
				i++
				break
			}
			depth++
			line()
		case '}', ']':
			depth--
			line()
			out = append(out, b)
		case ',':
			out = append(out, b)
			line()
		case ':':
			out = append(out, ": "...)
		default:
			out = append(out, b)
		}
	}
	return out
}
