package text

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

// Dialect says how rows and fields are separated.
type Dialect struct {
	Delimiter byte
	// Quote is the character around fields that contain delimiters, quotes or line breaks. It is 0 if no field is
	// quoted.
	Quote byte
	// Escape is the character before a quote within a quoted field. It may be the quote itself.
	Escape byte
	// Newline ends rows: '\n', which may have '\r' before it, or '\r'.
	Newline byte
	// JSON means lines of JSON: there is no delimiter and no quote, and strings have the escapes of JSON.
	JSON bool
}

// maxRow bounds the bytes of a row. It bounds the memory of a damaged file: a quote that is not closed makes one row of
// all that follows.
const maxRow = 16 << 20

// maxColumns bounds the columns of a file.
const maxColumns = 1 << 14

// NamedJSON reports whether the name of a file is that of JSON lines: it ends in .jsonl, .ndjson or .json, also before
// .gz or .zst.
func NamedJSON(path string) bool { return hasEnd(path, ".jsonl", ".ndjson", ".json") }

// Named reports whether the name of a file is that of a CSV file: it ends in .csv or .tsv, also before .gz or .zst.
func Named(path string) bool {
	return hasEnd(path, ".csv", ".tsv")
}

func hasEnd(path string, ends ...string) bool {
	path = strings.ToLower(path)
	if s := store.Scheme(path); s == "http" || s == "https" {
		path, _, _ = strings.Cut(path, "?") // a query
	}
	for _, compression := range []string{".gz", ".zst"} {
		path = strings.TrimSuffix(path, compression)
	}
	return slices.Contains(ends, filepath.Ext(path))
}

// badf returns an error about the content of a file.
func badf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", source.ErrData, fmt.Sprintf(format, args...))
}

// field is a part of a text, as the tokenizer and the splitter find it.
type field struct {
	from, to int
	escaped  bool // it contains escapes
}

// defects of rows.
type defect uint8

const (
	sound        defect = iota
	fewColumns          // fewer fields than columns
	manyColumns         // more fields than columns
	afterQuote          // text between a closing quote and the delimiter
	unterminated        // a quoted field has no end
	notAnObject         // a line of JSON is another value
	badJSON             // a line is no JSON
	unknownKey          // a key of an object is no column
	twiceKey            // an object has a key twice
)

// split finds the fields of the row at the start of text, and where the next row begins. The tokenizer finds the same
// fields faster; this function is for samples, headers and errors. A text without a line break at its end is one row.
func (d Dialect) split(text []byte, fields []field) (_ []field, next int, what defect) {
	at := 0
	for {
		f, end, bad := d.field(text, at)
		if fields = append(fields, f); bad != sound {
			what = bad
		}
		switch {
		case end == len(text):
			return fields, end, what
		case text[end] == d.Delimiter:
			at = end + 1
			continue
		}
		// A line break; \r of \r\n is not part of the last field.
		if last := &fields[len(fields)-1]; d.Newline == '\n' && last.to == end && last.to > last.from &&
			text[end-1] == '\r' {
			last.to--
		}
		return fields, end + 1, what
	}
}

// field finds the field at an offset, and the offset of the delimiter or line break after it.
func (d Dialect) field(text []byte, at int) (f field, end int, what defect) {
	start := at
	if d.Quote != 0 {
		for d.Delimiter != ' ' && start < len(text) && text[start] == ' ' {
			start++
		}
		if start < len(text) && text[start] == d.Quote {
			closed, escaped := d.closing(text, start+1)
			if closed < 0 {
				return field{start + 1, len(text), escaped}, len(text), unterminated
			}
			f = field{start + 1, closed, escaped}
			end = closed + 1
			for end < len(text) && text[end] == ' ' && d.Delimiter != ' ' {
				end++
			}
			if end < len(text) && text[end] == '\r' && d.Newline == '\n' &&
				(end+1 == len(text) || text[end+1] == '\n') {
				end++
			}
			if end == len(text) || text[end] == d.Delimiter || text[end] == d.Newline {
				return f, end, sound
			}
			return f, d.plain(text, end), afterQuote
		}
	}
	end = d.plain(text, at)
	return field{from: at, to: end}, end, sound
}

// plain returns the offset of the delimiter or line break after an offset, or the length of the text.
func (d Dialect) plain(text []byte, at int) int {
	for at < len(text) && text[at] != d.Delimiter && text[at] != d.Newline {
		at++
	}
	return at
}

// closing returns the offset of the quote that closes a field which begins at an offset, or -1.
func (d Dialect) closing(text []byte, at int) (closed int, escaped bool) {
	if d.Escape == d.Quote {
		for {
			i := bytes.IndexByte(text[at:], d.Quote)
			if i < 0 {
				return -1, escaped
			}
			if at += i + 1; at == len(text) || text[at] != d.Quote {
				return at - 1, escaped
			}
			escaped = true
			at++
		}
	}
	for ; at < len(text); at++ {
		switch text[at] {
		case d.Escape:
			escaped = true
			at++
		case d.Quote:
			return at, escaped
		}
	}
	return -1, escaped
}

// unescape appends a field to out without its escapes. An escape before anything but a quote or an escape stays.
func (d Dialect) unescape(out, text []byte) []byte {
	if d.JSON {
		return unescapeJSON(out, text)
	}
	for i := 0; i < len(text); i++ {
		if text[i] == d.Escape && i+1 < len(text) && (text[i+1] == d.Quote || text[i+1] == d.Escape) {
			i++
		}
		out = append(out, text[i])
	}
	return out
}

// value returns the text of a field.
func (d Dialect) value(text []byte, f field) string {
	if f.escaped {
		return string(d.unescape(nil, text[f.from:f.to]))
	}
	return string(text[f.from:f.to])
}

// cut returns the offset behind the last row of a text that is complete. The text begins with a row. It is 0 if no row
// is complete.
func (d Dialect) cut(text []byte) int {
	at, last := 0, 0
	for {
		q := -1
		if d.Quote != 0 {
			q = bytes.IndexByte(text[at:], d.Quote)
		}
		until := len(text)
		if q >= 0 {
			until = at + q
		}
		if i := bytes.LastIndexByte(text[at:until], d.Newline); i >= 0 {
			last = at + i + 1
		}
		if q < 0 {
			return last
		}
		if !d.opens(text, at, until) {
			at = until + 1
			continue
		}
		closed, _ := d.closing(text, until+1)
		if closed < 0 || closed == len(text)-1 { // what looks like its end may be the first half of an escape
			return last
		}
		at = closed + 1
	}
}

// opens reports whether the quote at offset q opens a field. after is the offset behind the quote before it.
func (d Dialect) opens(text []byte, after, q int) bool {
	for q--; q >= after && text[q] == ' ' && d.Delimiter != ' '; q-- {
	}
	if q < after {
		return after == 0
	}
	return text[q] == d.Delimiter || text[q] == d.Newline
}

// describe returns the words of an error about a row.
func (w defect) describe(fields, columns int) string {
	switch w {
	case fewColumns, manyColumns:
		return fmt.Sprintf("the row has %s, and the file has %d", plural(fields, "column"), columns)
	case afterQuote:
		return "there is text between a closing quote and the delimiter"
	case notAnObject:
		return "it is no object {…} of JSON"
	case badJSON:
		return "it is no JSON"
	case unknownKey:
		return "the object has a key that the sample of the file has not; give all columns (schema)"
	case twiceKey:
		return "the object has a key twice"
	}
	return "a quote is not closed"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// quoted returns the start of a text for an error.
func quoted(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
