package syntax

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is the class of a token.
type tokenKind uint8

const (
	tokenEOF       tokenKind = iota
	tokenIdent               // text as written, including keywords
	tokenQuoted              // "…", text without quotes
	tokenNumber              // text without underscores
	tokenString              // '…', E'…' and $$…$$, text decoded
	tokenBlob                // x'…', text decoded
	tokenSymbol              // operator or punctuation
	tokenParameter           // $1 and $name, text without the sign
)

// token is one lexical element of SQL.
type token struct {
	kind  tokenKind
	text  string
	pos   int  // byte offset
	end   int  // byte offset of the end
	query bool // the first token after this and other opening parentheses begins a query
	// hidden is the part of the text that the token replaces with a hidden value, or "".
	hidden string
}

// is reports whether the token is the given symbol, or the given keyword in upper case.
func (t token) is(word string) bool {
	switch t.kind {
	case tokenSymbol:
		return t.text == word
	case tokenIdent:
		return len(t.text) == len(word) && strings.EqualFold(t.text, word)
	}
	return false
}

// describe returns the token's description for an error.
func (t token) describe() string {
	if t.hidden != "" {
		return "the value of " + t.hidden
	}
	switch t.kind {
	case tokenEOF:
		return t.text
	case tokenString:
		return "the string '" + Cut(t.text, 30) + "'"
	case tokenNumber:
		return "the number " + Cut(t.text, 30)
	case tokenParameter:
		return "the parameter $" + Cut(t.text, 30)
	}
	return fmt.Sprintf("%q", Cut(t.text, 30))
}

// lexer splits SQL text into tokens.
type lexer struct {
	src    string
	pos    int
	values Values
	hidden Hidden // the hidden values so far
	end    string // what the end of the text is called
	sql    bool   // the text has statements, which have parameters
	marks  int    // the parameters ? of the statement so far
}

// symbols are the operators of two or more characters, longest first.
var symbols = []string{"!~~*", "!~~", "~~~", "~~*", "!~*", "->>", "!~", "<<", ">>", "^@", "::", "||", "<=", ">=", "<>",
	"!=", "==", "//", "**", "~~", "~*", "->", "@>", "<@", "&&"}

// next returns the next token. After the last one it always returns tokenEOF.
func (l *lexer) next() (token, error) {
	if err := l.skipSpace(); err != nil {
		return token{}, err
	}
	start := l.pos
	if start >= len(l.src) {
		return token{kind: tokenEOF, text: l.end, pos: start, end: start}, nil
	}
	rest := l.src[start:]
	c := rest[0]
	switch {
	case c == '\'':
		return l.quoted(tokenString, '\'', start, start+1)
	case c == '"':
		t, err := l.quoted(tokenQuoted, '"', start, start+1)
		if err == nil && t.text == "" {
			err = NewError(l.src, start, "an identifier in double quotes must not be empty")
		}
		return t, err
	case (c == 'e' || c == 'E') && strings.HasPrefix(rest[1:], "'"):
		return l.escaped(start)
	case (c == 'x' || c == 'X') && strings.HasPrefix(rest[1:], "'"):
		return l.blob(start)
	case c == '$':
		return l.dollar(start)
	case isDigit(c) || c == '.' && len(rest) > 1 && isDigit(rest[1]):
		return l.number(start)
	}
	if r, n := utf8.DecodeRuneInString(rest); isIdentStart(r) {
		for l.pos += n; l.pos < len(l.src); l.pos += n {
			r, n = utf8.DecodeRuneInString(l.src[l.pos:])
			if !isIdentStart(r) && !(r >= '0' && r <= '9') && r != '$' {
				break
			}
		}
		return l.take(tokenIdent, start, l.src[start:l.pos]), nil
	}
	for _, s := range symbols {
		if strings.HasPrefix(rest, s) {
			l.pos += len(s)
			return l.take(tokenSymbol, start, s), nil
		}
	}
	if strings.IndexByte("+-*/%^<>=(),.;[]{}:&|~#@!?", c) >= 0 {
		l.pos++
		return l.take(tokenSymbol, start, rest[:1]), nil
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return token{}, NewError(l.src, start, "unexpected character %q", r)
}

func (l *lexer) take(k tokenKind, start int, text string) token {
	return token{kind: k, text: text, pos: start, end: l.pos}
}

// skipSpace skips white space, -- comments and nested block comments.
func (l *lexer) skipSpace() error {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		switch {
		case strings.HasPrefix(rest, "--"):
			if i := strings.IndexByte(rest, '\n'); i >= 0 {
				l.pos += i + 1
			} else {
				l.pos = len(l.src)
			}
		case strings.HasPrefix(rest, "/*"):
			depth, i := 1, 2
			for depth > 0 {
				switch {
				case i >= len(rest):
					return unclosed(l.src, l.pos, "a comment is not closed: expected */")
				case strings.HasPrefix(rest[i:], "*/"):
					depth--
					i += 2
				case strings.HasPrefix(rest[i:], "/*"):
					depth++
					i += 2
				default:
					i++
				}
			}
			l.pos += i
		default:
			r, n := utf8.DecodeRuneInString(rest)
			if !unicode.IsSpace(r) {
				return nil
			}
			l.pos += n
		}
	}
	return nil
}

// quoted reads up to the closing quote. A doubled quote stands for one quote.
func (l *lexer) quoted(k tokenKind, quote byte, start, from int) (token, error) {
	var b strings.Builder
	for i := from; ; {
		j := strings.IndexByte(l.src[i:], quote)
		if j < 0 {
			return token{}, unclosed(l.src, start, "a quote is not closed: expected %c", quote)
		}
		b.WriteString(l.src[i : i+j])
		i += j + 1
		if i < len(l.src) && l.src[i] == quote {
			b.WriteByte(quote)
			i++
			continue
		}
		l.pos = i
		return l.take(k, start, b.String()), nil
	}
}

// escaped reads E'…' with its backslash escapes.
func (l *lexer) escaped(start int) (token, error) {
	var b strings.Builder
	for i := start + 2; i < len(l.src); i++ {
		switch c := l.src[i]; c {
		case '\'':
			if i+1 < len(l.src) && l.src[i+1] == '\'' {
				b.WriteByte('\'')
				i++
				continue
			}
			l.pos = i + 1
			if !utf8.ValidString(b.String()) {
				return token{}, NewError(l.src, start, "the escapes of the string give bytes that are not UTF-8")
			}
			return l.take(tokenString, start, b.String()), nil
		case '\\':
			char, n := escape(l.src[i+1:])
			if char == 0 && n > 0 {
				return token{}, NewError(l.src, i, "a string must not contain the character 0")
			}
			b.WriteByte(char)
			i += n
		default:
			b.WriteByte(c)
		}
	}
	return token{}, unclosed(l.src, start, "a quote is not closed: expected '")
}

// escape returns the byte that the characters after a backslash stand for, and the number of these characters: b, f, n,
// r and t, x with up to two hexadecimal digits, up to three octal digits. Other characters stand for themselves.
func escape(s string) (byte, int) {
	if s == "" {
		return 0, 0
	}
	if k := strings.IndexByte("bfnrt", s[0]); k >= 0 {
		return "\b\f\n\r\t"[k], 1
	}
	digits, base, from, most := "01234567", 8, 0, 3
	if s[0] == 'x' {
		digits, base, from, most = "0123456789abcdef", 16, 1, 3
	}
	value, n := 0, from
	for ; n < min(len(s), most); n++ {
		d := strings.IndexByte(digits, lower(s[n]))
		if d < 0 {
			break
		}
		value = value*base + d
	}
	if n == from {
		return s[0], 1
	}
	return byte(value), n
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c | 0x20
	}
	return c
}

// blob reads x'…', pairs of hexadecimal digits.
func (l *lexer) blob(start int) (token, error) {
	t, err := l.quoted(tokenBlob, '\'', start, start+2)
	if err != nil {
		return t, err
	}
	b, ok := decodeHex(t.text)
	if !ok {
		return t, NewError(l.src, start, "x'…' must hold pairs of hexadecimal digits")
	}
	t.text = b
	return t, nil
}

func decodeHex(s string) (string, bool) {
	if len(s)%2 != 0 {
		return "", false
	}
	b := make([]byte, len(s)/2)
	for i := range b {
		hi := strings.IndexByte("0123456789abcdef", s[2*i]|0x20)
		lo := strings.IndexByte("0123456789abcdef", s[2*i+1]|0x20)
		if hi < 0 || lo < 0 {
			return "", false
		}
		b[i] = byte(hi<<4 | lo)
	}
	return string(b), true
}

// dollar reads $tag$…$tag$.
func (l *lexer) dollar(start int) (token, error) {
	rest := l.src[start:]
	n := 1
	for n < len(rest) && rest[n] != '$' && (isDigit(rest[n]) && n > 1 ||
		isIdentStart(rune(rest[n])) && rest[n] < utf8.RuneSelf) {
		n++
	}
	if n >= len(rest) || rest[n] != '$' {
		if name := parameterName(rest[1:]); l.sql && name != "" {
			l.pos += 1 + len(name)
			return l.take(tokenParameter, start, name), nil
		}
		return token{}, NewError(l.src, start, "unexpected character '$'; a variable of a job is ${name}")
	}
	tag := rest[:n+1]
	i := strings.Index(rest[len(tag):], tag)
	if i < 0 {
		return token{}, unclosed(l.src, start, "a quote is not closed: expected %s", tag)
	}
	l.pos = start + i + 2*len(tag)
	return l.take(tokenString, start, rest[len(tag):len(tag)+i]), nil
}

// parameterName returns the digits or the name at the start of a text.
func parameterName(s string) string {
	n := 0
	for n < len(s) && (isDigit(s[n]) || !isDigit(s[0]) && s[n] < utf8.RuneSelf && isIdentStart(rune(s[n]))) {
		n++
	}
	return s[:n]
}

// number reads digits[.digits][e[±]digits], with underscores allowed between digits.
func (l *lexer) number(start int) (token, error) {
	digits := func() {
		for l.pos < len(l.src) && (isDigit(l.src[l.pos]) ||
			l.src[l.pos] == '_' && l.pos > start && isDigit(l.src[l.pos-1]) && l.pos+1 < len(l.src) &&
				isDigit(l.src[l.pos+1])) {
			l.pos++
		}
	}
	digits()
	if l.pos < len(l.src) && l.src[l.pos] == '.' {
		l.pos++
		digits()
	}
	if l.pos < len(l.src) && (l.src[l.pos] == 'e' || l.src[l.pos] == 'E') {
		mark := l.pos
		l.pos++
		if l.pos < len(l.src) && (l.src[l.pos] == '+' || l.src[l.pos] == '-') {
			l.pos++
		}
		from := l.pos
		digits()
		if l.pos == from {
			l.pos = mark
		}
	}
	if r, _ := utf8.DecodeRuneInString(l.src[l.pos:]); isIdentStart(r) {
		return token{}, NewError(l.src, l.pos, "a number must not run into %q", r)
	}
	return l.take(tokenNumber, start, strings.ReplaceAll(l.src[start:l.pos], "_", "")), nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isIdentStart(r rune) bool {
	return r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' ||
		r >= utf8.RuneSelf && r != utf8.RuneError && unicode.IsLetter(r)
}
