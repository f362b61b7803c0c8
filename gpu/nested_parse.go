package gpu

import (
	"errors"
	"fmt"
	"strings"
)

// OfTexts returns a nested type with strings in place of all types that are not nested, and String for these.
func (t Type) OfTexts() Type {
	fields := make([]Field, len(t.Children()))
	for i, f := range t.Children() {
		fields[i] = Field{Name: f.Name, Type: f.Type.OfTexts()}
	}
	switch t.Kind {
	case List, Struct, Map:
		return nested(t.Kind, fields...)
	}
	return Of(String)
}

// ErrTwice is the error of a map with a key that occurs twice.
var ErrTwice = errors.New("a key of the map occurs twice")

// unread is the error of a text that is no value of a type.
type unread struct {
	text string
	typ  Type
}

func (e *unread) Error() string {
	form := "[1, 2]"
	switch e.typ.Kind {
	case Struct:
		form = "{name: value} or (value, …)"
	case Map:
		form = "{key=value}"
	}
	return fmt.Sprintf("cannot read %.60q as %v, which is written %s", e.text, e.typ, form)
}

// AppendParsed appends the encoding of a value of t.OfTexts() whose text is that of a nested value, as DuckDB reads it:
// [a, b], {name: a, …} or (a, …), and {key=a, …}. A value is in quotes or not; outside of them NULL is a null. If try
// is set a value that cannot be read becomes null.
func AppendParsed(b []byte, text string, t Type, try bool) ([]byte, error) {
	from := len(b)
	p := parsedText{text: text, try: try}
	b, err := p.value(b, t)
	if err != nil && try {
		return AppendNull(b[:from]), nil
	}
	return b, err
}

// parsedText reads one nested value from its text.
type parsedText struct {
	text string
	at   int
	try  bool
}

func (p *parsedText) value(b []byte, t Type) ([]byte, error) {
	p.space()
	open, close := byte('['), byte(']')
	if t.Kind != List {
		open, close = '{', '}'
	}
	if t.Kind == Struct && p.at < len(p.text) && p.text[p.at] == '(' {
		return p.tuple(b, t)
	}
	bad := &unread{p.text, t}
	if p.at == len(p.text) || p.text[p.at] != open {
		return b, bad
	}
	p.at++
	c := t.Children()
	names, values := make([]string, 0, 8), make([]element, 0, 8)
	for more := true; ; {
		if p.space(); len(values) == 0 && p.at < len(p.text) && p.text[p.at] == close {
			p.at++
			break
		}
		if !more {
			break
		}
		var name element
		var ok bool
		switch t.Kind {
		case Struct:
			name, ok = p.until(":")
			if !ok || name.plain() == "" {
				return b, bad
			}
		case Map:
			name, ok = p.until("=")
			if !ok || name.null {
				return b, bad
			}
		}
		if t.Kind != List {
			p.at++
			names = append(names, name.raw)
		}
		end := "," + string(close)
		v, ok := p.until(end)
		if !ok {
			return b, bad
		}
		values = append(values, v)
		more = p.text[p.at] == ','
		p.at++
	}
	if p.space(); p.at < len(p.text) {
		return b, bad
	}
	switch t.Kind {
	case Struct:
		return p.fields(b, t, names, values, bad)
	case Map:
		return p.entries(b, c, names, values)
	}
	b = OpenNested(b)
	for _, v := range values {
		var err error
		if b, err = p.element(b, v, c[0].Type); err != nil {
			return b, err
		}
	}
	return CloseNested(b), nil
}

// fields appends a struct of values with names.
func (p *parsedText) fields(b []byte, t Type, names []string, values []element, bad error) ([]byte, error) {
	c := t.Children()
	of := make([]*element, len(c))
	for i, raw := range names {
		name := (element{raw: raw}).plain()
		k := 0
		for k < len(c) && c[k].Name != name {
			k++
		}
		if k == len(c) || of[k] != nil {
			return b, bad
		}
		of[k] = &values[i]
	}
	b = OpenNested(b)
	for k, v := range of {
		var err error
		if v == nil {
			b = AppendNull(b)
		} else if b, err = p.element(b, *v, c[k].Type); err != nil {
			return b, err
		}
	}
	return CloseNested(b), nil
}

// entries appends a map.
func (p *parsedText) entries(b []byte, c []Field, names []string, values []element) ([]byte, error) {
	b = OpenNested(b)
	seen := make(map[string]bool, len(names))
	for i, raw := range names {
		b = OpenNested(b)
		from := len(b)
		var err error
		if b, err = p.element(b, element{raw: raw}, c[0].Type); err != nil {
			return b, err
		}
		if key := string(b[from:]); seen[key] {
			return b, ErrTwice
		} else {
			seen[key] = true
		}
		if b, err = p.element(b, values[i], c[1].Type); err != nil {
			return b, err
		}
		b = CloseNested(b)
	}
	return CloseNested(b), nil
}

// tuple reads (a, b), the fields of a struct without their names.
func (p *parsedText) tuple(b []byte, t Type) ([]byte, error) {
	c := t.Children()
	bad := &unread{p.text, t}
	p.at++
	b = OpenNested(b)
	n := 0
	for more := true; more; n++ {
		if p.space(); p.at < len(p.text) && p.text[p.at] == ')' {
			p.at++
			break
		}
		v, ok := p.until(",)")
		if !ok || n == len(c) {
			return b, bad
		}
		more = p.text[p.at] == ','
		p.at++
		var err error
		if b, err = p.element(b, v, c[n].Type); err != nil {
			return b, err
		}
	}
	if p.space(); p.at < len(p.text) {
		return b, bad
	}
	for ; n < len(c); n++ {
		b = AppendNull(b)
	}
	return CloseNested(b), nil
}

// element is a part of the text without the space around it.
type element struct {
	raw  string
	null bool
}

func (p *parsedText) space() {
	for p.at < len(p.text) && isSpace(p.text[p.at]) {
		p.at++
	}
}

// until reads up to one of the ends, which is not in quotes or brackets. ok is false if there is none.
func (p *parsedText) until(ends string) (e element, ok bool) {
	p.space()
	from := p.at
	var open []byte
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '\\':
			if p.at+1 < len(p.text) && strings.IndexByte(`"'\`, p.text[p.at+1]) >= 0 {
				p.at++
			}
		case c == '"' || c == '\'':
			if !p.quotes() {
				return e, false
			}
			continue
		case len(open) > 0 && c == open[len(open)-1]:
			open = open[:len(open)-1]
		case closing(c) != 0:
			open = append(open, closing(c))
		case len(open) == 0 && strings.IndexByte(ends, c) >= 0:
			end := p.at
			for end > from && isSpace(p.text[end-1]) {
				end--
			}
			e.raw = p.text[from:end]
			e.null = strings.EqualFold(e.raw, "null")
			return e, true
		}
		p.at++
	}
	return e, false
}

// quotes moves behind the text in quotes at the position. It returns false if it does not end.
func (p *parsedText) quotes() bool {
	quote := p.text[p.at]
	for p.at++; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '\\':
			p.at++
		case quote:
			p.at++
			return true
		}
	}
	return false
}

// plain returns the text of an element without quotes, except for those in brackets.
func (e element) plain() string {
	if !strings.ContainsAny(e.raw, `"'\`) {
		return e.raw
	}
	out := make([]byte, 0, len(e.raw))
	quote := byte(0)
	for i := 0; i < len(e.raw); i++ {
		c := e.raw[i]
		switch {
		case c == '\\' && i+1 < len(e.raw) && (quote != 0 || e.raw[i+1] == '"' || e.raw[i+1] == '\''):
			i++
			out = append(out, e.raw[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && closing(c) != 0:
			p := parsedText{text: e.raw, at: i + 1}
			p.until(string(closing(c)))
			end := min(p.at+1, len(e.raw))
			out = append(out, e.raw[i:end]...)
			i = end - 1
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

// closing returns the bracket that ends what another one begins, 0 for other characters.
func closing(c byte) byte {
	switch c {
	case '[':
		return ']'
	case '{':
		return '}'
	case '(':
		return ')'
	}
	return 0
}

// element appends an element.
func (p *parsedText) element(b []byte, e element, t Type) ([]byte, error) {
	switch {
	case e.null:
		return AppendNull(b), nil
	case t.IsComposite():
		if e.raw != "" && (e.raw[0] == '"' || e.raw[0] == '\'') {
			e.raw = e.plain()
		}
		return AppendParsed(b, e.raw, t, p.try)
	}
	return AppendBytes(b, e.plain()), nil
}
