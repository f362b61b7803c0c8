package jsontext

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Finder finds the values at paths. It keeps memory from one document to the next, and serves one goroutine.
type Finder struct {
	scanner
	level, below []string // values of a path with wildcards
}

// Check returns an error if a text is not JSON.
func (f *Finder) Check(doc string) error {
	_, _, err := f.Find(doc, &Path{})
	return err
}

// Find returns the value at a path without wildcards, as it is written. The error says why the document is not JSON,
// also where the path does not lead.
func (f *Finder) Find(doc string, p *Path) (value string, ok bool, err error) {
	c := &f.scanner
	if err := c.reset(doc); err != nil {
		return "", false, err
	}
	ok = true
	for i := range p.steps {
		if ok, err = c.step(&p.steps[i]); err != nil {
			return "", false, err
		}
		if !ok {
			break
		}
	}
	if ok {
		from := c.at
		if err := c.value(); err != nil {
			return "", false, err
		}
		value = doc[from:c.at]
	}
	return value, ok, c.end()
}

// step moves to a value in the value at the position, or behind that if there is none.
func (c *scanner) step(s *step) (ok bool, err error) {
	switch b := c.peek(); {
	case b == '{' && (s.kind == byKey || s.kind == byToken):
		c.enter()
		for first := true; ; first = false {
			key, more, err := c.member(first)
			if err != nil || !more {
				return false, err
			}
			if isKey(key, s.key) {
				return true, nil
			}
			if err := c.value(); err != nil {
				return false, err
			}
		}
	case b == '[' && (s.kind == byIndex || s.kind == byToken):
		index := s.index
		if index < 0 {
			n, err := c.count()
			if err != nil {
				return false, err
			}
			if index += n; index < 0 {
				index = beyond
			}
		}
		c.enter()
		for i := int64(0); ; i++ {
			more, err := c.next(i == 0)
			if err != nil || !more || i == index {
				return more, err
			}
			if err := c.value(); err != nil {
				return false, err
			}
		}
	}
	return false, c.value()
}

// count returns the number of elements of an array, and does not move.
func (c *scanner) count() (n int64, err error) {
	at, depth := c.at, len(c.open)
	c.enter()
	for {
		more, err := c.next(n == 0)
		if err != nil || !more {
			c.at, c.open = at, c.open[:depth]
			return n, err
		}
		if err := c.value(); err != nil {
			return 0, err
		}
		n++
	}
}

// isKey reports whether a name, as it is written, is another one.
func isKey(quoted, key string) bool {
	inside := quoted[1 : len(quoted)-1]
	if inside == key {
		return strings.IndexByte(key, '\\') < 0
	}
	return len(inside) > len(key) && strings.IndexByte(inside, '\\') >= 0 && string(AppendText(nil, quoted)) == key
}

// maxValues bounds the values on the way of a path with wildcards: $..*..*..* has the third power of those of a
// document.
const maxValues = 1 << 20

// All returns the values at a path with wildcards, level by level. They are valid until the next call. Time is at most
// the number of values, times their bytes, for each wildcard.
func (f *Finder) All(doc string, p *Path) ([]string, error) {
	value, _, err := f.Find(doc, &Path{})
	if err == nil {
		err = f.shallow()
	}
	if err != nil {
		return nil, err
	}
	f.level = append(f.level[:0], value)
	for _, s := range p.steps {
		f.below = f.below[:0]
		for _, v := range f.level {
			switch {
			case len(f.below) > maxValues:
			case s.kind == descend || s.kind == below:
				from := len(f.below)
				f.below = append(f.below, v)
				for i := from; i < len(f.below); i++ {
					f.below = appendChildren(f.below, f.below[i])
				}
				if s.kind == below {
					f.below = slices.Delete(f.below, from, from+1)
				}
			case s.kind == allKeys && v[0] == '{', s.kind == allElements && v[0] == '[':
				f.below = appendChildren(f.below, v)
			case s.kind == allKeys || s.kind == allElements:
			default:
				if v, ok, _ := f.Find(v, &Path{steps: []step{s}}); ok {
					f.below = append(f.below, v)
				}
			}
		}
		if len(f.below) > maxValues {
			return nil, fmt.Errorf("the path leads to more than %d values", maxValues)
		}
		f.level, f.below = f.below, f.level
	}
	return f.level, nil
}

// appendChildren appends the values of the members or elements of a value that is JSON.
func appendChildren(out []string, value string) []string {
	for _, v := range children(value) {
		out = append(out, v)
	}
	return out
}

// Children yields the names, as they are written, and the values of the members of an object, or the elements of an
// array, as Finder finds them. Other values have none.
func Children(value string) iter.Seq2[string, string] { return children(value) }

// children yields the names, as they are written, and the values of the members of an object or the elements of an
// array, in a value that is JSON.
func children(value string) func(yield func(key, value string) bool) {
	return func(yield func(key, value string) bool) {
		c := scanner{s: value}
		if b := c.peek(); b != '{' && b != '[' {
			return
		}
		c.enter()
		for first := true; ; first = false {
			var key string
			var more bool
			var err error
			if value[0] == '{' {
				key, more, err = c.member(first)
			} else {
				more, err = c.next(first)
			}
			from := c.at
			if err != nil || !more || c.value() != nil || !yield(key, value[from:c.at]) {
				return
			}
		}
	}
}

// memberOf returns the value of the first member of a name, "" without one.
func memberOf(object, key string) string {
	for k, v := range children(object) {
		if isKey(k, key) {
			return v
		}
	}
	return ""
}
