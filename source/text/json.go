package text

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonKind is the kind of a value of JSON.
type jsonKind uint8

const (
	jsonNull jsonKind = 1 << iota
	jsonBool
	jsonInteger
	jsonFloat
	jsonString
	jsonObject
	jsonList
)

// jsonScanner scans a line with an object of JSON.
type jsonScanner struct {
	text []byte
	at   int
}

func (s *jsonScanner) space() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\t' || s.text[s.at] == '\r') {
		s.at++
	}
}

// next consumes a character after spaces.
func (s *jsonScanner) next(c byte) bool {
	s.space()
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// string scans a string whose quote is next. The field is what the quotes contain.
func (s *jsonScanner) string() (f field, ok bool) {
	if !s.next('"') {
		return f, false
	}
	f.from = s.at
	for ; ; s.at++ {
		s.ordinary()
		if s.at == len(s.text) {
			return f, false
		}
		switch c := s.text[s.at]; {
		case c == '"':
			f.to = s.at
			s.at++
			return f, true
		case c == '\\':
			f.escaped = true
			if s.at++; s.at >= len(s.text) || strings.IndexByte(`"\/bfnrtu`, s.text[s.at]) < 0 {
				return f, false
			}
			if s.text[s.at] == 'u' {
				if _, n := hexRune(s.text[s.at+1:]); n < 4 {
					return f, false
				}
			}
		case c < ' ':
			return f, false
		}
	}
}

// ordinary moves to the next quote, backslash or control character of a string, or to one of the last 8 bytes.
func (s *jsonScanner) ordinary() {
	for s.at+8 <= len(s.text) {
		w := binary.LittleEndian.Uint64(s.text[s.at:])
		// The lowest byte below a space is found; higher ones may be wrong.
		m := (^(differs(w^'"'*ones) & differs(w^'\\'*ones)) | (w-' '*ones)&^w) & (ones << 7)
		if m != 0 {
			s.at += bits.TrailingZeros64(m) / 8
			return
		}
		s.at += 8
	}
}

// maxNesting bounds the depth of a value.
const maxNesting = 1000

// value scans a value.
func (s *jsonScanner) value() (f field, kind jsonKind, ok bool) {
	s.space()
	if s.at == len(s.text) {
		return f, 0, false
	}
	switch c := s.text[s.at]; {
	case c == '"':
		f, ok = s.string()
		return f, jsonString, ok
	case c == '{' || c == '[':
		f.from = s.at
		ok = s.nested()
		if f.to = s.at; c == '{' {
			return f, jsonObject, ok
		}
		return f, jsonList, ok
	}
	f = s.word()
	switch word := s.text[f.from:f.to]; string(word) {
	case "null":
		return f, jsonNull, true
	case "true", "false":
		return f, jsonBool, true
	default:
		kind = numberKind(word)
		return f, kind, kind != 0
	}
}

// word scans a number or a name.
func (s *jsonScanner) word() (f field) {
	f.from = s.at
	for s.at < len(s.text) && !endsWord[s.text[s.at]] {
		s.at++
	}
	f.to = s.at
	return f
}

// endsWord has the characters after a number or a name.
var endsWord = [256]bool{',': true, '}': true, ']': true, ' ': true, '\t': true, '\r': true, '\n': true}

// numberKind returns the kind of a number, 0 if a text is none.
func numberKind(b []byte) jsonKind {
	digits := func() (n int) {
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			n++
		}
		b = b[n:]
		return n
	}
	b = bytes.TrimPrefix(b, []byte("-"))
	zero := len(b) > 0 && b[0] == '0'
	if n := digits(); n == 0 || zero && n > 1 {
		return 0
	}
	kind := jsonInteger
	if len(b) > 0 && b[0] == '.' {
		b, kind = b[1:], jsonFloat
		if digits() == 0 {
			return 0
		}
	}
	if len(b) > 0 && b[0]|0x20 == 'e' {
		b, kind = b[1:], jsonFloat
		if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		if digits() == 0 {
			return 0
		}
	}
	if len(b) > 0 {
		return 0
	}
	return kind
}

// nested scans an object or a list.
func (s *jsonScanner) nested() bool {
	var open []byte // what closes it
	// state: whether a value, or a key and a value, must follow.
	for {
		s.space()
		if s.at == len(s.text) {
			return false
		}
		switch c := s.text[s.at]; c {
		case '{', '[':
			if len(open) == maxNesting {
				return false
			}
			s.at++
			open = append(open, c+2) // the closing bracket
			if s.next(c + 2) {
				break // it is empty
			}
			if c == '{' && !s.key() {
				return false
			}
			continue
		default:
			if _, _, ok := s.value(); !ok {
				return false
			}
			if len(open) == 0 {
				return true
			}
			goto after
		}
		open = open[:len(open)-1]
	after:
		for {
			if len(open) == 0 {
				return true
			}
			last := open[len(open)-1]
			if s.next(',') {
				if last == '}' && !s.key() {
					return false
				}
				break
			}
			if !s.next(last) {
				return false
			}
			open = open[:len(open)-1]
		}
	}
}

// key scans a key and its colon.
func (s *jsonScanner) key() bool {
	_, ok := s.string()
	return ok && s.next(':')
}

// members calls f with the keys and values of an object that is the whole text.
func (s *jsonScanner) members(f func(key, value field, kind jsonKind) bool) defect {
	if !s.next('{') {
		return notAnObject
	}
	if !s.next('}') {
		for {
			key, ok := s.string()
			if !ok || !s.next(':') {
				return badJSON
			}
			value, kind, ok := s.value()
			if !ok {
				return badJSON
			}
			if !f(key, value, kind) {
				return unknownKey
			}
			if s.next(',') {
				continue
			}
			if !s.next('}') {
				return badJSON
			}
			break
		}
	}
	if s.space(); s.at < len(s.text) {
		return badJSON
	}
	return sound
}

// elements calls f with the elements of a list that is the whole text, and has been scanned.
func (s *jsonScanner) elements(f func(value field, kind jsonKind) bool) {
	if !s.next('[') || s.next(']') {
		return
	}
	for {
		if value, kind, ok := s.value(); !ok || !f(value, kind) || !s.next(',') {
			return
		}
	}
}

// unescapeJSON appends a string without its escapes.
func unescapeJSON(out, text []byte) []byte {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			continue
		}
		i++
		switch c := text[i]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, n := hexRune(text[i+1:])
			i += n
			if utf16.IsSurrogate(r) {
				low, n := rune(0), 0
				if bytes.HasPrefix(text[i+1:], []byte(`\u`)) {
					low, n = hexRune(text[i+3:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 2 + n
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
	}
	return out
}

// hexRune parses four hexadecimal digits, and returns how many bytes it has taken.
func hexRune(b []byte) (r rune, n int) {
	for ; n < 4 && n < len(b); n++ {
		c := b[n]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return utf8.RuneError, n
		}
		r = r<<4 | rune(c)
	}
	if n < 4 {
		r = utf8.RuneError
	}
	return r, n
}

// nullMark is the text of a null of JSON, and of a column that a row of CSV lacks. It is the first byte of the padding,
// and in no text, because it is not UTF-8.
const nullMark = "\xff"

// jsonKeys says which columns the keys of objects are.
type jsonKeys struct {
	names   []string
	columns map[string]int
	order   []int // the column of the n-th member of the row before
	others  bool  // keys that are no columns are left out
}

// tokenizeJSON is tokenize for lines of JSON.
func (t *tokenizer) tokenizeJSON(text []byte, at int, stop bool) int {
	null := newToken(field{from: len(text), to: len(text) + 1})
	t.count = 0
	seen := make([]int, t.columns)
	for at < len(text) && t.count < t.rows {
		end := at + bytes.IndexByte(text[at:], '\n')
		line := text[at:end]
		start := at
		at = end + 1
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		row := t.count
		for _, base := range t.base {
			t.fields[base+row] = null
		}
		member, number := 0, start+1
		var what defect
		s := jsonScanner{text: line}
		structure := s.members(func(key, value field, kind jsonKind) bool {
			column := t.columnOf(line, key, member)
			member++
			if column < 0 {
				return t.keys.others
			}
			if seen[column] == number {
				what = twiceKey
			}
			seen[column] = number
			if kind != jsonNull {
				value.from, value.to = value.from+start, value.to+start
				t.fields[t.base[column]+row] = newToken(value)
			}
			return true
		})
		if structure != sound {
			what = structure
		}
		if what != sound {
			t.bad = append(t.bad, badRow{from: start, to: end, what: what})
			if stop {
				return at
			}
			continue
		}
		t.starts[row] = int32(start)
		t.count++
	}
	return at
}

// columnOf returns the column of a key, -1 if there is none. Most rows have their keys in the same order.
func (t *tokenizer) columnOf(line []byte, key field, member int) int {
	name := line[key.from:key.to]
	if member < len(t.keys.order) && !key.escaped {
		if c := t.keys.order[member]; c >= 0 && string(name) == t.keys.names[c] {
			return c
		}
	}
	if key.escaped {
		name = unescapeJSON(nil, name)
	}
	c, ok := t.keys.columns[string(name)]
	if !ok {
		c = -1
	}
	if member < maxColumns {
		for len(t.keys.order) <= member {
			t.keys.order = append(t.keys.order, -1)
		}
		t.keys.order[member] = c
	}
	return c
}

// sniffJSON adds the keys of a sample to a node, and finds the first line with a defect.
func (s *sniffer) sniffJSON(root *jsonNode) (rows int, what defect, line int) {
	at, first := 0, 0
	for ; at < len(s.text) && rows < sampleRows; line++ {
		end := bytes.IndexByte(s.text[at:], '\n')
		if end < 0 {
			end = len(s.text) - at
		}
		text := s.text[at : at+end]
		if at += end + 1; len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		scanner := jsonScanner{text: text}
		bad := scanner.members(func(key, value field, kind jsonKind) bool {
			root.key(string(unescapeJSON(nil, text[key.from:key.to]))).observe(text, value, kind, 0)
			return len(root.names) <= maxColumns
		})
		if rows++; bad != sound && what == sound {
			what, first = bad, line
		}
	}
	if at < len(s.text) {
		s.text, s.whole = s.text[:at], false
	}
	return rows, what, first
}
