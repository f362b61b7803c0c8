package expr

import (
	"errors"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// Values are the values that stand for parts of a text, such as ${day}. A part is the text of
// one value or literal: it is no syntax, whatever the value is.
type Values map[string]Value

// Value is the value of a part of a text.
type Value struct {
	SQL string // a literal, or the sign of a number and the number
	// Text is what errors must not show of the value, if Hidden: it is not shown in the text of
	// expressions either.
	Text   string
	Hidden bool
}

// Quote returns a text as an SQL literal.
func Quote(s string) string {
	var b strings.Builder
	writeString(&b, s)
	return b.String()
}

// Parse parses an SQL scalar expression in which values stand for parts of the text. The error is an *Error.
func (v Values) Parse(src string) (Node, error) {
	p, err := newParser(src, v)
	if err != nil {
		return nil, p.hide(err)
	}
	n, err := p.expression(bindNone)
	if err != nil {
		return nil, p.hide(err)
	}
	if t := p.peek(); t.kind != tokenEOF {
		return nil, p.hide(p.unexpected("an operator or the end of the expression"))
	}
	return n, nil
}

// at returns the part at the start of a text, "" if there is none.
func (v Values) at(s string) (part string) {
	for k := range v {
		if len(k) > len(part) && strings.HasPrefix(s, k) {
			part = k
		}
	}
	return part
}

// value reads the tokens of a value.
func (l *lexer) value(part string) ([]token, error) {
	v, start := l.values[part], l.pos
	l.pos += len(part)
	if v.Hidden && !slices.Contains(l.hidden, v) {
		l.hidden = append(l.hidden, v)
	}
	var tokens []token
	for in := (lexer{src: v.SQL}); ; {
		t, err := in.next()
		if err != nil {
			return nil, newError(l.src, start, "%s is no value", part)
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

// hidden has the values in a text that are not shown.
type hidden []Value

// shownAs stands for what is not shown.
const shownAs = "***"

// hide takes the values out of an error.
func (h hidden) hide(err error) error {
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

// Hide returns a message without the values that are not shown.
func (v Values) Hide(message string) string {
	for _, value := range v {
		if value.Hidden {
			message = value.hide(message)
		}
	}
	return message
}

func (v Value) hide(message string) string {
	for _, s := range []string{v.Text, strings.ReplaceAll(v.Text, "'", "''"), strings.ReplaceAll(v.Text, `"`, `\"`), v.SQL} {
		if s == "" {
			continue
		}
		message = strings.ReplaceAll(message, s, shownAs)
		for n := len(s) - 1; n >= 8; n-- { // messages cut long texts
			message = strings.ReplaceAll(message, s[:n], shownAs)
		}
	}
	return message
}

// hideIn marks the constants of an expression as ones that are not shown: what a function or
// a comparison makes of a value is not told from the others.
func (h hidden) hideIn(es ...*Expr) {
	if len(h) == 0 {
		return
	}
	for _, e := range es {
		if e != nil {
			e.walk(func(e *Expr) { e.hidden = e.hidden || e.op != opColumn })
		}
	}
}

// Hidden reports whether a constant of the expression is not shown.
func (e *Expr) Hidden() (yes bool) {
	e.walk(func(e *Expr) { yes = yes || e.hidden })
	return yes
}

// writeConstant writes a constant of an expression.
func (e *Expr) writeConstant(b *strings.Builder, v gpu.Scalar) {
	if e.hidden {
		b.WriteString(shownAs)
		return
	}
	writeScalar(b, v)
}

// expressions returns the expressions of a call, of which some may be nil.
func (c AggregateCall) expressions() []*Expr {
	list := []*Expr{c.Arg}
	if c.Registers != nil {
		list = append(list, c.Registers.Number, c.Registers.Least)
	}
	if c.Sorted != nil {
		list = append(list, c.Sorted.Key, c.Sorted.Filter)
		for _, k := range c.Sorted.Order {
			list = append(list, k.Expr)
		}
	}
	return list
}

// expressions returns the expressions of a call, of which some may be nil.
func (c WindowCall) expressions() []*Expr {
	list := append([]*Expr{c.Value, c.Offset, c.Default}, c.Partition...)
	for _, k := range c.Order {
		list = append(list, k.Expr)
	}
	for _, bound := range []WindowBound{c.Frame.From, c.Frame.To} {
		list = append(list, bound.Key, bound.Value)
	}
	return list
}
