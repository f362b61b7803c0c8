package jsontext

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// malformed is the error of bytes that are not JSON.
type malformed struct {
	at  int
	why string
}

func (e *malformed) Error() string { return fmt.Sprintf("malformed JSON at byte %d: %s", e.at, e.why) }

const (
	unexpected  = "unexpected character"
	endOfData   = "unexpected end of data"
	badLiteral  = "invalid literal"
	badEscape   = "invalid escape sequence in a string"
	badUnicode  = "invalid UTF-8 in a string"
	badControl  = "a control character in a string is not escaped"
	badHigh     = "a low surrogate has no high one before it"
	badLow      = "a high surrogate has no low one after it"
	leadingZero = "a number begins with a superfluous 0"
	noDigit     = "a digit is missing in a number"
)

// scanner moves over a document and checks what it passes.
type scanner struct {
	s    string
	at   int
	open []byte // { or [ of each container around at

	deepest int // most containers that were open
	keyEnd  int // see keyFrom
}

// MaxDepth is the greatest depth of documents that functions take apart again and again.
const MaxDepth = 1000

// shallow returns an error unless the document that was passed is at most MaxDepth levels deep.
func (c *scanner) shallow() error {
	if c.deepest > MaxDepth {
		return fmt.Errorf("the JSON is nested more than %d levels deep", MaxDepth)
	}
	return nil
}

// reset moves to the first byte of the value of a document.
func (c *scanner) reset(s string) error {
	c.s, c.at, c.open, c.deepest = s, 0, c.open[:0], 0
	if strings.HasPrefix(s, "\ufeff") {
		return &malformed{0, "a byte order mark is not allowed"}
	}
	if c.space(); c.at == len(s) {
		return &malformed{0, "the text is empty"}
	}
	return nil
}

func (c *scanner) fail(why string) error {
	if c.at >= len(c.s) {
		return &malformed{len(c.s), endOfData}
	}
	return &malformed{c.at, why}
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// space moves over white space.
func (c *scanner) space() {
	for c.at < len(c.s) && isSpace(c.s[c.at]) {
		c.at++
	}
}

// peek returns the next byte, 0 at the end.
func (c *scanner) peek() byte {
	if c.at < len(c.s) {
		return c.s[c.at]
	}
	return 0
}

// value moves over a value.
func (c *scanner) value() error { return c.run(len(c.open), false) }

// end moves behind the document, from behind a value in it.
func (c *scanner) end() error {
	if err := c.run(0, true); err != nil {
		return err
	}
	if c.space(); c.at < len(c.s) {
		return &malformed{c.at, "unexpected content after the document"}
	}
	return nil
}

// run moves from a value, or from behind one if after is set, until base containers are open. This is the loop that
// most bytes pass, so it has the position in a variable.
func (c *scanner) run(base int, after bool) (err error) {
	s, i := c.s, c.at
	for {
		if !after {
			switch b := byteAt(s, i); {
			case b == '"':
				if i, err = c.textFrom(i); err != nil {
					return err
				}
			case b == '{' || b == '[':
				c.at = i
				c.enter()
				if i = spaceFrom(s, i+1); byteAt(s, i) == b+2 { // the other bracket
					c.open = c.open[:len(c.open)-1]
					i++
				} else if b == '[' {
					continue
				} else if i, err = c.keyFrom(i); err != nil {
					return err
				} else {
					continue
				}
			case b >= '1' && b <= '9':
				for i++; i < len(s) && isDigit(s[i]); i++ {
				}
				if b := byteAt(s, i); b == '.' || b|32 == 'e' {
					c.at = i
					if err := c.fraction(); err != nil {
						return err
					}
					i = c.at
				}
			default:
				c.at = i
				if err := c.scalar(); err != nil {
					return err
				}
				i = c.at
			}
		}
		for after = true; after; {
			if len(c.open) == base {
				c.at = i
				return nil
			}
			open := c.open[len(c.open)-1]
			i = spaceFrom(s, i)
			comma := byteAt(s, i) == ','
			if comma {
				i = spaceFrom(s, i+1)
			}
			switch {
			case byteAt(s, i) == open+2:
				c.open = c.open[:len(c.open)-1]
				i++
			case !comma || i == len(s):
				c.at = i
				return c.fail(unexpected)
			case open == '{':
				if i, err = c.keyFrom(i); err != nil {
					return err
				}
				after = false
			default:
				after = false
			}
		}
	}
}

// byteAt returns a byte, 0 at the end.
func byteAt(s string, i int) byte {
	if i < len(s) {
		return s[i]
	}
	return 0
}

// spaceFrom returns the position behind white space.
func spaceFrom(s string, i int) int {
	for i < len(s) && s[i] <= ' ' && isSpace(s[i]) {
		i++
	}
	return i
}

// enter moves into a container, whose members next and member then visit.
func (c *scanner) enter() {
	c.open = append(c.open, c.s[c.at])
	c.deepest = max(c.deepest, len(c.open))
	c.at++
}

// next moves from behind an element, or from the start of an array, to the next element, or behind the array.
func (c *scanner) next(first bool) (more bool, err error) { return c.separator(']', first) }

// separator moves over a comma, or the end of the innermost container.
func (c *scanner) separator(end byte, first bool) (more bool, err error) {
	c.space()
	if !first && c.peek() == ',' {
		c.at++
		c.space()
		first = true
	}
	switch b := c.peek(); {
	case b == end:
		c.at++
		c.open = c.open[:len(c.open)-1]
		return false, nil
	case first && c.at < len(c.s):
		return true, nil
	}
	return false, c.fail(unexpected)
}

// member moves from behind a member, or from the start of an object, to the value of the next one, or behind the
// object. key is the name as it is written, with its quotes.
func (c *scanner) member(first bool) (key string, more bool, err error) {
	if more, err = c.separator('}', first); !more {
		return "", false, err
	}
	from := c.at
	if c.at, err = c.keyFrom(from); err != nil {
		return "", false, err
	}
	return c.s[from:c.keyEnd], true, nil
}

// keyFrom returns the position of the value of a member whose name is at a position. keyEnd is behind the name.
func (c *scanner) keyFrom(i int) (_ int, err error) {
	s := c.s
	if byteAt(s, i) == '"' {
		if i, err = c.textFrom(i); err != nil {
			return 0, err
		}
		c.keyEnd = i
		if i = spaceFrom(s, i); byteAt(s, i) == ':' {
			if i = spaceFrom(s, i+1); i < len(s) {
				return i, nil
			}
		}
	}
	c.at = i
	return 0, c.fail(unexpected)
}

// textFrom returns the position behind a string.
func (c *scanner) textFrom(i int) (int, error) {
	s, k := c.s, i+1
	for k < len(s) && plain[s[k]] {
		k++
	}
	if byteAt(s, k) == '"' {
		return k + 1, nil
	}
	c.at = i
	err := c.text()
	return c.at, err
}

// plain says which bytes of a string need no look at what follows them.
var plain = func() (t [256]bool) {
	for b := ' '; b < utf8.RuneSelf; b++ {
		t[b] = b != '"' && b != '\\'
	}
	return t
}()

// text moves over a string.
func (c *scanner) text() error {
	s, i := c.s, c.at+1
	for {
		for i < len(s) && plain[s[i]] {
			i++
		}
		if c.at = i; i == len(s) {
			return c.fail(endOfData)
		}
		switch b := s[i]; {
		case b == '"':
			c.at = i + 1
			return nil
		case b == '\\':
			n, why := escapeLength(s[i:])
			if why != "" {
				return c.fail(why)
			}
			i += n
		case b < ' ':
			return c.fail(badControl)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				return c.fail(badUnicode)
			}
			i += n
		}
	}
}

// escapeLength returns the bytes of the escape at the start of s, 12 of a pair of surrogates, or why it is none.
func escapeLength(s string) (n int, why string) {
	if len(s) < 2 {
		return 0, endOfData
	}
	if s[1] != 'u' {
		if strings.IndexByte(`"\/bfnrt`, s[1]) < 0 {
			return 0, badEscape
		}
		return 2, ""
	}
	r, ok := hex4(s[2:])
	switch {
	case !ok:
		return 0, badEscape
	case r&0xFC00 == 0xDC00:
		return 0, badHigh
	case r&0xFC00 != 0xD800:
		return 6, ""
	}
	if len(s) > 7 && s[6] == '\\' && s[7] == 'u' {
		if low, ok := hex4(s[8:]); ok && low&0xFC00 == 0xDC00 {
			return 12, ""
		}
	}
	return 0, badLow
}

// hex4 returns the number of four hexadecimal digits.
func hex4(s string) (r rune, ok bool) {
	if len(s) < 4 {
		return 0, false
	}
	for _, b := range []byte(s[:4]) {
		switch {
		case b >= '0' && b <= '9':
			r = r<<4 | rune(b-'0')
		case b|32 >= 'a' && b|32 <= 'f':
			r = r<<4 | rune(b|32-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// scalar moves over a number or a word.
func (c *scanner) scalar() error {
	if b := c.peek(); b != '-' && !isDigit(b) {
		return c.literal()
	}
	if c.peek() == '-' {
		if c.at++; c.at < len(c.s) && strings.IndexByte("iInN", c.s[c.at]) >= 0 {
			return c.literal()
		}
	}
	if c.peek() == '0' && c.at+1 < len(c.s) && isDigit(c.s[c.at+1]) {
		return c.fail(leadingZero)
	}
	if err := c.digits(); err != nil {
		return err
	}
	return c.fraction()
}

// fraction moves over the fraction and the exponent of a number, if it has them.
func (c *scanner) fraction() error {
	if c.peek() == '.' {
		c.at++
		if err := c.digits(); err != nil {
			return err
		}
	}
	if c.peek()|32 == 'e' {
		c.at++
		if b := c.peek(); b == '+' || b == '-' {
			c.at++
		}
		return c.digits()
	}
	return nil
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// digits moves over one or more digits.
func (c *scanner) digits() error {
	from := c.at
	for c.at < len(c.s) && isDigit(c.s[c.at]) {
		c.at++
	}
	if c.at == from {
		return c.fail(noDigit)
	}
	return nil
}

// literal moves over a word: true, false and null, and NaN and infinity in any case.
func (c *scanner) literal() error {
	rest := c.s[c.at:]
	for _, word := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(rest, word) {
			c.at += len(word)
			return nil
		}
	}
	for _, word := range [...]string{"infinity", "inf", "nan"} {
		if len(rest) >= len(word) && strings.EqualFold(rest[:len(word)], word) {
			c.at += len(word)
			return nil
		}
	}
	if b := c.peek(); b != 0 && strings.IndexByte("tfniIN", b) >= 0 {
		return c.fail(badLiteral)
	}
	return c.fail(unexpected)
}
