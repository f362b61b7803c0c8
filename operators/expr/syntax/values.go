package syntax

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Values maps parts of a text, such as ${day}, to the values that replace them. A part stands for
// one value or literal. Nothing in the value is syntax.
type Values map[string]Value

// Value is the value of a part of a text.
type Value struct {
	SQL string // a literal, or the sign of a number and the number
	// Text is the text of the value that neither errors nor expressions may show, if Hidden.
	Text   string
	Hidden bool
}

// Parse parses an SQL scalar expression with values. The error is an *Error.
func (v Values) Parse(src string) (Node, error) {
	p, err := newParser(src, v)
	if err != nil {
		return nil, p.Hide(err)
	}
	n, err := p.expression(bindNone)
	if err != nil {
		return nil, p.Hide(err)
	}
	if t := p.peek(); t.kind != tokenEOF {
		return nil, p.Hide(p.unexpected("an operator or the end of the expression"))
	}
	return n, nil
}

// SplitAlias returns the expression and the name of a text such as "expression AS name", and a text without a name as
// it is, with the name "".
func (v Values) SplitAlias(src string) (text, name string) {
	text = strings.TrimSpace(src)
	p, err := newParser(text, v)
	n := len(p.tokens) - 3
	if err != nil || n < 1 || !p.tokens[n].is("AS") {
		return text, ""
	}
	switch last := p.tokens[n+1]; {
	case last.kind == tokenQuoted, last.kind == tokenIdent && last.text == text[last.pos:last.end]: // not a value
		return strings.TrimSpace(text[:p.tokens[n].pos]), last.text
	}
	return text, ""
}

// ParameterKey returns the key in Values of the parameter $name. That of $1 and of the first ? of a statement has the
// name 1. Case does not count.
func ParameterKey(name string) string { return "$" + strings.ToLower(name) }

// isParameter reports whether a key is that of a parameter.
func isParameter(key string) bool {
	return strings.HasPrefix(key, "$") && !strings.HasPrefix(key, "${")
}

// Parameters returns the names of the parameters in a text of statements, in the order of their first appearance. The
// error is an *Error.
func Parameters(src string) (names []string, err error) {
	for l := (lexer{src: src, sql: true}); ; {
		t, err := l.next()
		if err != nil || t.kind == tokenEOF {
			return names, err
		}
		if name := l.parameter(t); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
}

// parameter returns the name of the parameter that a token is, in lower case, or "". It counts the marks of a
// statement.
func (l *lexer) parameter(t token) string {
	switch {
	case !l.sql:
	case t.is(";"):
		l.marks = 0
	case t.is("?"):
		l.marks++
		return strconv.Itoa(l.marks)
	case t.kind == tokenParameter:
		return strings.ToLower(t.text)
	}
	return ""
}

// at returns the part of v at the start of a text, "" if there is none.
func (v Values) at(s string) (part string) {
	for k := range v {
		if len(k) > len(part) && strings.HasPrefix(s, k) && !isParameter(k) {
			part = k
		}
	}
	return part
}

// value reads the tokens of the value that replaces a part of the text, whose key in Values is given.
func (l *lexer) value(part, key string) ([]token, error) {
	v, start := l.values[key], l.pos
	l.pos += len(part)
	if v.Hidden && !slices.Contains(l.hidden, v) {
		l.hidden = append(l.hidden, v)
	}
	var tokens []token
	for in := (lexer{src: v.SQL}); ; {
		t, err := in.next()
		if err != nil {
			return nil, NewError(l.src, start, "%s is no value", part)
		}
		if t.kind == tokenEOF {
			return tokens, nil
		}
		t.pos, t.end = start, l.pos
		if v.Hidden {
			t.hidden = part
		}
		tokens = append(tokens, t)
	}
}

// Hidden has the values in a text that messages must not show.
type Hidden []Value

// Mask is shown instead of a hidden value.
const Mask = "***"

// Hide returns an error whose message does not show the values.
func (h Hidden) Hide(err error) error {
	var e *Error
	if len(h) == 0 || !errors.As(err, &e) {
		return err
	}
	shown := *e
	for _, v := range h {
		shown.Msg = v.hide(shown.Msg)
	}
	return &shown
}

// Hide returns a message with hidden values replaced by Mask.
func (v Values) Hide(message string) string {
	for _, value := range v {
		if value.Hidden {
			message = value.hide(message)
		}
	}
	return message
}

func (v Value) hide(message string) string {
	for _, s := range []string{v.Text, strings.ReplaceAll(v.Text, "'", "''"), strings.ReplaceAll(v.Text, `"`, `\"`),
		v.SQL} {
		if s == "" {
			continue
		}
		message = strings.ReplaceAll(message, s, Mask)
		for n := len(s) - 1; n >= 8; n-- { // messages truncate long texts
			message = strings.ReplaceAll(message, s[:n], Mask)
		}
	}
	return message
}
