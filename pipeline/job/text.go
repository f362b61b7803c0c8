package job

import (
	"strings"
	"unicode/utf8"
)

// origin tells from which scalar a value of the job file was made, so that a position in the value
// can be located in the file.
type origin struct {
	raw      string // the scalar with its variables
	value    string // the scalar with its variables expanded
	segments []segment
}

// segment is a part of the value. It begins at offset value in the value, and comes from offset raw
// in the scalar: the same text, or the text of a variable.
type segment struct {
	value, raw int
	variable   bool
}

// rawOffset returns the offset in the scalar of the byte at an offset of the value. For
// the text of a variable it is the offset of the variable.
func (o *origin) rawOffset(offset int) int {
	at := 0
	for _, p := range o.segments {
		if p.value > offset {
			break
		}
		if at = p.raw; !p.variable {
			at += offset - p.value
		}
	}
	return min(at, len(o.raw))
}

// LocationIn returns the location of a byte of text, which is part of the value at path. It is known
// only if the file has the value unchanged, except for quotes, indentation and line breaks.
func (j *Job) LocationIn(path, text string, offset int) (Location, bool) {
	if j.sql != nil && path == StepPath(0)+".sql" {
		return j.sql.locationIn(offset)
	}
	o, ok := j.origins[path]
	if !ok {
		return Location{}, false
	}
	if at := strings.Index(o.value, text); at > 0 {
		offset += at
	} else if at < 0 {
		offset -= max(strings.Index(text, o.value), 0) // the condition of an expectation is a part of its filter
	}
	start := j.locations[path]
	lines := strings.SplitAfter(j.source, "\n")
	if start.Line < 1 || start.Line > len(lines) {
		return Location{}, false
	}
	s := scalarScanner{text: strings.Join(lines[start.Line-1:], ""), line: start.Line, column: 1}
	for s.column < start.Column {
		if !s.skip() {
			return Location{}, false
		}
	}
	s.open()
	if !s.match(o.raw[:o.rawOffset(offset)]) {
		return Location{}, false
	}
	if rest := o.raw[o.rawOffset(offset):]; rest != "" && !isSpace(rest[0]) {
		s.space()
	}
	return Location{s.line, s.column}, true
}

// scalarScanner scans a scalar in the text of a YAML file.
type scalarScanner struct {
	text         string
	line, column int
	quote        byte // ' or " of a quoted scalar
}

// skip skips one code point.
func (s *scalarScanner) skip() bool {
	r, n := utf8.DecodeRuneInString(s.text)
	if n == 0 {
		return false
	}
	s.text = s.text[n:]
	s.column++
	if r == '\n' {
		s.line, s.column = s.line+1, 1
	}
	return true
}

func (s *scalarScanner) space() (some bool) {
	for s.text != "" && isSpace(s.text[0]) {
		some = s.skip()
	}
	return some
}

// open skips the start of a scalar before its text: a quote, or the marker of a block.
func (s *scalarScanner) open() {
	switch {
	case s.text == "":
	case s.text[0] == '\'' || s.text[0] == '"':
		s.quote = s.text[0]
		s.skip()
	case s.text[0] == '|' || s.text[0] == '>':
		for s.text != "" && s.text[0] != '\n' {
			s.skip()
		}
		s.space()
	}
}

// match skips text of the scalar. It returns false if the file has the text in another form.
func (s *scalarScanner) match(raw string) bool {
	for raw != "" {
		if isSpace(raw[0]) {
			raw = strings.TrimLeft(raw, " \t\r\n")
			if !s.space() {
				return false
			}
			continue
		}
		s.space()
		if s.quote == '\'' && strings.HasPrefix(s.text, "''") || s.quote == '"' && strings.HasPrefix(s.text, `\`) {
			s.skip()
		}
		_, n := utf8.DecodeRuneInString(raw)
		if !strings.HasPrefix(s.text, raw[:n]) {
			return false
		}
		s.skip()
		raw = raw[n:]
	}
	return true
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }
