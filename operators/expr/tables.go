package expr

import (
	"slices"
	"strings"
)

// Tables is a list of the table names that can qualify a column, the preferred one first. nil is
// the empty list. Lists share common tails.
type Tables struct {
	name string
	rest *Tables
}

// With returns a list with a name before those of t.
func (t *Tables) With(name string) *Tables { return &Tables{name, t} }

// TablesOf returns a list of names.
func TablesOf(names ...string) (t *Tables) {
	for i := len(names) - 1; i >= 0; i-- {
		t = t.With(names[i])
	}
	return t
}

// First returns the preferred name, "" if the list is empty.
func (t *Tables) First() string {
	if t == nil {
		return ""
	}
	return t.name
}

// Older returns the list without its first name.
func (t *Tables) Older() *Tables { return t.rest }

// Without returns the list without some names. It shares the tail behind the last of them with t.
func (t *Tables) Without(drop func(name string) bool) *Tables {
	tail := t
	for at := t; at != nil; at = at.rest {
		if drop(at.name) {
			tail = at.rest
		}
	}
	var kept []string // before the tail
	for at := t; at != tail; at = at.rest {
		if !drop(at.name) {
			kept = append(kept, at.name)
		}
	}
	for _, name := range slices.Backward(kept) {
		tail = tail.With(name)
	}
	return tail
}

// Has reports whether a name is in the list, in any case.
func (t *Tables) Has(name string) bool {
	for ; t != nil; t = t.rest {
		if strings.EqualFold(t.name, name) {
			return true
		}
	}
	return false
}

// Names returns all names.
func (t *Tables) Names() (names []string) {
	for ; t != nil; t = t.rest {
		names = append(names, t.name)
	}
	return names
}
