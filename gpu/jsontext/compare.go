package jsontext

import "strings"

// Contains reports whether a document contains another one: they are equal; an object has all members of the other
// one, and an array all elements, where values may contain the others; or a value in the document contains it. Time is
// at most the product of their bytes, times their depth.
func (f *Finder) Contains(doc, part string) (bool, error) {
	var values [2]string
	for i, s := range []string{doc, part} {
		var err error
		if values[i], _, err = f.Find(s, &Path{}); err == nil {
			err = f.shallow()
		}
		if err != nil {
			return false, err
		}
	}
	// Values with one form of numbers and strings are equal if their bytes are, except for the order of members.
	return contains(string(AppendJSON(nil, values[0])), string(AppendJSON(nil, values[1]))), nil
}

func contains(value, part string) bool {
	if covers(value, part) {
		return true
	}
	for _, v := range children(value) {
		if contains(v, part) {
			return true
		}
	}
	return false
}

// covers reports whether a value itself has what another one has.
func covers(value, part string) bool {
	if value == part {
		return true
	}
	if value[0] != part[0] || value[0] != '{' && value[0] != '[' {
		return false
	}
	for key, p := range children(part) {
		found := false
		for k, v := range children(value) {
			if found = (value[0] == '[' || k == key) && covers(v, p); found || value[0] == '{' && k == key {
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// Merge appends a document that a second one has changed (RFC 7396): members that the second has replace others, and a
// null removes one.
func (f *Finder) Merge(out []byte, doc, patch string) ([]byte, error) {
	var values [2]string
	for i, s := range []string{doc, patch} {
		var err error
		if values[i], _, err = f.Find(s, &Path{}); err == nil {
			err = f.shallow()
		}
		if err != nil {
			return out, err
		}
	}
	if values[0][0] != '{' {
		return AppendJSON(out, values[1]), nil
	}
	return merge(out, values[0], values[1]), nil
}

func merge(out []byte, value, patch string) []byte {
	if patch[0] != '{' {
		return AppendJSON(out, patch)
	}
	if value == "" || value[0] != '{' {
		value = "{}"
	}
	out = append(out, '{')
	from := len(out)
	add := func(key string) {
		if len(out) > from {
			out = append(out, ',')
		}
		out = append(appendString(out, key), ':')
	}
	for key, v := range children(value) {
		if memberOf(patch, string(AppendText(nil, key))) == "" {
			add(key)
			out = AppendJSON(out, v)
		}
	}
	for key, p := range children(patch) {
		if p != "null" {
			add(key)
			out = merge(out, memberOf(value, string(AppendText(nil, key))), p)
		}
	}
	return append(out, '}')
}

// AppendStructure appends the structure of a document: the types of its values.
func (f *Finder) AppendStructure(out []byte, doc string) ([]byte, error) {
	value, _, err := f.Find(doc, &Path{})
	if err == nil {
		err = f.shallow()
	}
	if err != nil {
		return out, err
	}
	return structureOf(value).append(out), nil
}

// structure is the type of values. A kind of "" is that of no value.
type structure struct {
	kind    string
	keys    []string // as they are written in one form
	members []structure
	element *structure
}

func structureOf(value string) structure {
	s := structure{kind: kindOf(value)}
	switch s.kind {
	case "ARRAY":
		s.element = &structure{}
		for _, v := range children(value) {
			s.element.add(structureOf(v))
		}
	case "OBJECT":
		for k, v := range children(value) {
			key := string(appendString(nil, k))
			s.member(key).add(structureOf(v))
		}
	}
	return s
}

// member returns the structure of a member, which it makes if there is none.
func (s *structure) member(key string) *structure {
	for i, k := range s.keys {
		if k == key {
			return &s.members[i]
		}
	}
	s.keys, s.members = append(s.keys, key), append(s.members, structure{})
	return &s.members[len(s.members)-1]
}

// add makes it the type of more values.
func (s *structure) add(other structure) {
	integer := func(kind string) bool { return kind == "UBIGINT" || kind == "BIGINT" || kind == "HUGEINT" }
	number := func(kind string) bool { return integer(kind) || kind == "DOUBLE" }
	switch a, b := s.kind, other.kind; {
	case b == "" || b == "NULL" && a != "":
	case a == "" || a == "NULL":
		*s = other
	case a == "ARRAY" && b == "ARRAY":
		s.element.add(*other.element)
	case a == "OBJECT" && b == "OBJECT":
		for i, k := range other.keys {
			s.member(k).add(other.members[i])
		}
	case a == b:
	case integer(a) && integer(b):
		*s = structure{kind: "HUGEINT"}
	case number(a) && number(b):
		*s = structure{kind: "DOUBLE"}
	default:
		*s = structure{kind: "JSON"}
	}
}

func (s structure) append(out []byte) []byte {
	switch s.kind {
	case "":
		return append(out, `"NULL"`...)
	case "ARRAY":
		return append(s.element.append(append(out, '[')), ']')
	case "OBJECT":
		if len(s.keys) == 0 {
			return append(out, `"JSON"`...)
		}
		open := byte('{')
		for i, k := range s.keys {
			out = append(append(append(out, open), k...), ':')
			out = s.members[i].append(out)
			open = ','
		}
		return append(out, '}')
	}
	return append(append(append(out, '"'), s.kind...), '"')
}

// TextOf returns the text of a string or name as it is written.
func TextOf(quoted string) string {
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	return string(AppendText(nil, quoted))
}
