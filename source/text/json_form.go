package text

import (
	"bytes"
	"io"
)

// jsonForm says where the objects of a file of JSON are.
type jsonForm uint8

const (
	jsonLines        jsonForm = iota // an object on each line
	jsonArray                        // the elements of one list
	jsonUnstructured                 // one behind the other, each on any lines
	jsonAuto
)

// The formats of JSON, by DuckDB's names.
const (
	JSONLines        = "newline_delimited"
	JSONArray        = "array"
	JSONUnstructured = "unstructured"
)

// jsonForms are the formats by their names.
var jsonForms = map[string]jsonForm{"": jsonAuto, "auto": jsonAuto, JSONLines: jsonLines, "nd": jsonLines,
	JSONArray: jsonArray, JSONUnstructured: jsonUnstructured}

// unit returns what is counted in errors about rows.
func (f jsonForm) unit() string {
	if f == jsonLines {
		return "line"
	}
	return "object"
}

// findForm returns the format of a name, or that of a sample: of a list, of an object that ends on another line than it
// begins on or has another one behind it on its line, or of lines.
func findForm(name string, sample []byte) jsonForm {
	if f := jsonForms[name]; f != jsonAuto {
		return f
	}
	sample = bytes.TrimLeft(sample, " \t\r\n")
	switch {
	case len(sample) == 0 || sample[0] != '{' && sample[0] != '[':
		return jsonLines
	case sample[0] == '[':
		return jsonArray
	}
	line, _, _ := bytes.Cut(sample, []byte("\n"))
	if s := (jsonScanner{text: line}); s.nested() {
		if s.space(); s.at < len(line) && line[s.at] == '{' {
			return jsonUnstructured
		}
		return jsonLines
	}
	// The first object ends on another line, or there is a mistake in it.
	objects, _ := jsonUnstructured.lines(sample, true)
	first, _, _ := bytes.Cut(objects, []byte("\n"))
	if s := (jsonScanner{text: first}); s.nested() {
		return jsonUnstructured
	}
	return jsonLines
}

// lines returns the begin of a text, or all of it, as lines of JSON.
func (f jsonForm) lines(text []byte, whole bool) ([]byte, error) {
	l := jsonLiner{form: f}
	out, err := l.convert(make([]byte, 0, len(text)), text)
	if err == nil && whole {
		out, err = l.finish(out)
	}
	return out, err
}

// jsonLiner makes lines of JSON of the objects of a file, by looking at brackets, quotes and commas. Whether a line is
// an object is left to those who read it.
type jsonLiner struct {
	form     jsonForm
	depth    int  // brackets that are open in the value
	quoted   bool // within a string
	escaped  bool // after a backslash
	some     bool // the line has a part of a value
	comma    bool // a comma is before the line
	begun    bool // the list has begun
	ended    bool // the list has ended
	finished int64
}

// convert appends the lines of a part of the file.
func (l *jsonLiner) convert(out, text []byte) ([]byte, error) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if l.quoted {
			// The rest of the string, or up to an escape.
			from := i
			for i < len(text) && (l.escaped || text[i] != '"' && text[i] != '\\' && text[i] != '\n') {
				l.escaped = false
				i++
			}
			out = append(out, text[from:i]...)
			if i == len(text) {
				break
			}
			switch c = text[i]; c {
			case '"':
				l.quoted = false
			case '\\':
				l.escaped = true
			default:
				c = 1 // a line break is as wrong in a string, and would end the line
			}
			out = append(out, c)
			continue
		}
		if l.depth > 0 {
			switch c {
			case '"':
				l.quoted = true
			case '{', '[':
				l.depth++
			case '}', ']':
				l.depth--
			case '\n', '\r':
				c = ' '
			}
			out = append(out, c)
			if l.depth == 0 && l.form == jsonUnstructured {
				out = l.end(out)
			}
			continue
		}
		switch {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			if l.some {
				out = append(out, ' ')
			}
			continue
		case l.form == jsonArray && !l.begun:
			if c != '[' {
				return out, badf("the file does not begin with a list [{…}, {…}] of JSON; give its format")
			}
			l.begun = true
			continue
		case l.ended:
			return out, badf("there is text behind the list of JSON")
		case l.form == jsonArray && (c == ',' || c == ']'):
			if !l.some && (c == ',' || l.comma) {
				return out, badf("object %d of the list of JSON is missing", l.finished+1)
			}
			if l.some {
				out = l.end(out)
			}
			l.comma, l.ended = c == ',', c == ']'
			continue
		}
		l.some = true
		switch c {
		case '{', '[':
			l.depth = 1
		case '"':
			l.quoted = true
		}
		out = append(out, c)
	}
	return out, nil
}

// end ends a line.
func (l *jsonLiner) end(out []byte) []byte {
	l.some = false
	l.finished++
	return append(out, '\n')
}

// finish appends the last line.
func (l *jsonLiner) finish(out []byte) ([]byte, error) {
	if l.form == jsonArray && l.begun && !l.ended {
		return out, badf("the list of JSON has no end; the file is cut off behind object %d", l.finished)
	}
	if l.some {
		out = l.end(out)
	}
	return out, nil
}

// lineReader reads the lines that a jsonLiner makes of a file.
type lineReader struct {
	jsonLiner
	in   io.Reader
	text []byte // of the file
	out  []byte
	at   int // in out
	err  error
}

func newLineReader(form jsonForm, in io.Reader) *lineReader {
	return &lineReader{jsonLiner: jsonLiner{form: form}, in: in, text: make([]byte, inputBuffer)}
}

func (r *lineReader) Read(p []byte) (int, error) {
	for r.at == len(r.out) {
		if r.err != nil {
			return 0, r.err
		}
		var n int
		n, r.err = r.in.Read(r.text)
		var wrong error
		if r.out, wrong = r.convert(r.out[:0], r.text[:n]); wrong == nil && r.err == io.EOF {
			r.out, wrong = r.finish(r.out)
		}
		if r.at = 0; wrong != nil {
			r.err = wrong
		}
	}
	n := copy(p, r.out[r.at:])
	r.at += n
	return n, nil
}
