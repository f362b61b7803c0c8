package syntax

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Error is a mistake in the text of an expression.
type Error struct {
	Pos       int    // byte offset in Src
	Line, Col int    // from 1; Col counts code points
	Src       string // the whole text
	Msg       string // what was found and what was expected
	// Missing is the name that was not found, if that is the mistake.
	Missing *Missing
	// Unclosed says that the text ends in a string, a name in quotes or a comment.
	Unclosed bool
}

// Missing is a name for which a scope has no column.
type Missing struct {
	Name []string // its parts; the last one is the column
	// NoTable means that the table is unknown. Otherwise the table has no such column.
	NoTable bool
}

// Error returns the message, its position, and the line with a caret under the position.
func (e *Error) Error() string {
	start := strings.LastIndexByte(e.Src[:e.Pos], '\n') + 1
	end := len(e.Src)
	if i := strings.IndexByte(e.Src[e.Pos:], '\n'); i >= 0 {
		end = e.Pos + i
	}
	line := hideQueries(e.Src[start:end])
	before, after := line[:e.Pos-start], line[e.Pos-start:]
	const window = 60
	if n := len(before); n > window {
		before = "…" + cutLeft(before, window)
	}
	if len(after) > window {
		after = Cut(after, window) + "…"
	}
	pad := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, before)
	return fmt.Sprintf("line %d, column %d: %s\n    %s%s\n    %s^", e.Line, e.Col, e.Msg, before, after, pad)
}

// addressQuery is the part of an address that may be a key: a user with a password, or the query.
var addressQuery = regexp.MustCompile(`(?i)https?://([^/\s'"?#]*@)?[^\s'"?#]*([?#][^\s'"]*)?`)

// hideQueries replaces the bytes of addresses that may be a key by as many asterisks.
func hideQueries(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	b := []byte(text)
	for _, m := range addressQuery.FindAllStringSubmatchIndex(text, -1) {
		for k := 2; k < len(m); k += 2 {
			for i := m[k] + 1; m[k] >= 0 && i < m[k+1]; i++ {
				b[i] = '*'
			}
		}
	}
	return string(b)
}

func cutLeft(s string, n int) string {
	s = s[len(s)-n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}

// Cut returns at most the first n bytes of a text, without splitting a code point.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// unclosed returns the mistake of a text that ends before something is closed.
func unclosed(src string, pos int, format string, args ...any) *Error {
	err := NewError(src, pos, format, args...)
	err.Unclosed = true
	return err
}

// NewError returns a mistake at a byte offset of a text.
func NewError(src string, pos int, format string, args ...any) *Error {
	pos = min(max(pos, 0), len(src))
	start := strings.LastIndexByte(src[:pos], '\n') + 1
	return &Error{
		Pos: pos, Src: src, Msg: hideQueries(fmt.Sprintf(format, args...)),
		Line: strings.Count(src[:pos], "\n") + 1,
		Col:  utf8.RuneCountInString(src[start:pos]) + 1,
	}
}

// Suggest returns `; did you mean "x"?` for the closest candidate, or "" if none is close.
func Suggest(name string, candidates []string) string {
	if best := Nearest(name, candidates); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// Nearest returns the candidate that a misspelled name most likely means, or "" if none is close.
func Nearest(name string, candidates []string) string {
	best, bestDistance := "", max(1, len(name)/3)+1
	if len(name) > 64 {
		return ""
	}
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(name), strings.ToLower(c), bestDistance); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance returns the optimal string alignment distance: insertions, deletions,
// substitutions and swaps of neighbours each cost one. It returns at most limit.
func editDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return min(prev[len(b)], limit)
}
