package jsontext

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Path is the way from a document to values in it.
type Path struct {
	steps []step
	many  bool
}

type stepKind uint8

const (
	byKey   stepKind = iota // the member with a name
	byIndex                 // an element; from the end if the index is negative
	byToken                 // of a JSON pointer: a member, or an element
	allKeys
	allElements
	descend // the value and all values in it, level by level
	below   // all values in it
)

type step struct {
	kind  stepKind
	key   string
	index int64
}

// beyond is the index of no element.
const beyond = math.MaxInt64

// ParsePath parses a path: one that begins with $, a JSON pointer that begins with /, the name of a member, or
// nothing, which is the whole document.
func ParsePath(text string) (*Path, error) {
	switch {
	case text == "":
		return &Path{}, nil
	case text[0] == '/':
		return pointer(text), nil
	case text[0] == '$':
		p := &Path{}
		return p, p.parse(text)
	case strings.Contains(text, `"`):
		return pointer("/" + text), nil
	}
	return &Path{steps: []step{{kind: byKey, key: text}}}, nil
}

// IndexPath is the path of an element, from the end if the index is negative.
func IndexPath(index int64) string { return "$[" + strconv.FormatInt(index, 10) + "]" }

// Many reports whether the path has wildcards and leads to a list of values.
func (p *Path) Many() bool { return p.many }

// pointer parses a JSON pointer (RFC 6901).
func pointer(text string) *Path {
	p := &Path{}
	for _, token := range strings.Split(text[1:], "/") {
		s := step{kind: byToken, index: beyond}
		if n, err := strconv.ParseUint(token, 10, 62); err == nil && (token == "0" || token[0] != '0') {
			s.index = int64(n)
		}
		plain := strings.NewReplacer("~0", "", "~1", "").Replace(token)
		if strings.Contains(plain, "~") { // no other escape has a meaning
			s.kind, s.index = byIndex, beyond
		}
		s.key = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		p.steps = append(p.steps, s)
	}
	return p
}

// parse parses a path that begins with $.
func (p *Path) parse(text string) error {
	for rest := text[1:]; rest != ""; {
		n := 0
		var s step
		switch {
		case strings.HasPrefix(rest, "..["):
			p.steps, p.many = append(p.steps, step{kind: descend}), true
			rest = rest[2:]
			continue
		case strings.HasPrefix(rest, ".."):
			s, n = member(rest[2:])
			switch {
			case n == 0:
			case s.kind != allKeys:
				p.steps = append(p.steps, step{kind: descend})
			case rest[2+n:] == "":
				s.kind = below
			default:
				s.kind = descend
			}
			if n > 0 {
				p.many = true
				n += 2
			}
		case rest[0] == '.':
			if s, n = member(rest[1:]); n > 0 {
				n++
			}
		case rest[0] == '[':
			s, n = element(rest)
		}
		if n == 0 {
			return fmt.Errorf("the JSON path '%.60s' is wrong at '%.60s'", text, rest)
		}
		p.steps, p.many = append(p.steps, s), p.many || s.kind == allKeys || s.kind == allElements
		rest = rest[n:]
	}
	return nil
}

// member parses a name, one in quotes, or a star. It returns the number of bytes, 0 if there is none.
func member(s string) (step, int) {
	switch {
	case s == "":
		return step{}, 0
	case s[0] == '*':
		return step{kind: allKeys}, 1
	case s[0] != '"':
		n := strings.IndexAny(s, ".[")
		if n < 0 {
			n = len(s)
		}
		return step{kind: byKey, key: s[:n]}, n
	}
	var key strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"' && key.Len() == 0:
			return step{}, 0
		case s[i] == '"':
			return step{kind: byKey, key: key.String()}, i + 1
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
		}
		key.WriteByte(s[i])
	}
	return step{}, 0
}

// element parses [n], [-n], [#-n], [#] or [*].
func element(s string) (step, int) {
	inside, _, ok := strings.Cut(s[1:], "]")
	n := len(inside) + 2
	if !ok || inside == "" {
		return step{}, 0
	}
	if inside == "*" {
		return step{kind: allElements}, n
	}
	if inside == "#" {
		return step{kind: byIndex, index: beyond}, n
	}
	digits, negative := strings.CutPrefix(strings.TrimPrefix(inside, "#"), "-")
	if !negative && inside[0] == '#' {
		return step{}, 0
	}
	index, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return step{}, 0
	}
	at := int64(min(index, beyond))
	if negative {
		at = -at
	}
	return step{kind: byIndex, index: at}, n
}
