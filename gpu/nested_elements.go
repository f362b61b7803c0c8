package gpu

import (
	"errors"
	"iter"
	"slices"
)

// ErrUneven means that lists that belong together have different numbers of elements in a row.
var ErrUneven = errors.New("the lists of a row have different numbers of elements: the file that they come from is " +
	"damaged")

// SameElements returns ErrUneven unless the elements of a row end at the end of the rest, and at the number end.
func SameElements(rest string, at, end int) error {
	if at != end || rest != "" && rest[0] != TagEnd {
		return ErrUneven
	}
	return nil
}

// Nestable returns a type in the storage that it has inside a nested value.
func Nestable(t Type) Type {
	if t.Kind == Decimal {
		t.Wide = t.Precision > MaxNarrowPrecision
	}
	return t
}

// eachNested yields the encodings of the elements of a list, struct or map.
func eachNested(value string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest := ElementsNested(value); ; {
			first, more, ok := NextNested(rest)
			if !ok || !yield(first) {
				return
			}
			rest = more
		}
	}
}

// CountNested returns the number of elements of a list, struct or map.
func CountNested(value string) (n int64) {
	for range eachNested(value) {
		n++
	}
	return n
}

// ElementNested returns the encoding of element k, which counts from 1, or from the end if it is negative. It is empty
// if there is none.
func ElementNested(value string, k int64) string {
	if k < 0 {
		k += CountNested(value) + 1
	}
	if k > 0 {
		for element := range eachNested(value) {
			if k--; k == 0 {
				return element
			}
		}
	}
	return ""
}

// FindNested returns the position of the first element whose encoding is that of what, or whose field is, unless field
// is 0. It returns 0 if there is none.
func FindNested(value, what string, field int) int64 {
	k := int64(0)
	for part := range eachNested(value) {
		k++
		if field > 0 {
			part = fieldNested(part, field)
		}
		if part == what {
			return k
		}
	}
	return 0
}

// fieldNested returns the encoding of a field, which counts from 1, or that of the last one before it.
func fieldNested(value string, field int) (part string) {
	for part = range eachNested(value) {
		if field--; field == 0 {
			break
		}
	}
	return part
}

// AppendSlice appends the list of elements from to to, which count from 1, or from the end if they are negative.
func AppendSlice(b []byte, value string, from, to int64) []byte {
	if from < 0 || to < 0 {
		n := CountNested(value)
		if from < 0 {
			from += n + 1
		}
		if to < 0 {
			to += n + 1
		}
	}
	b = OpenNested(b)
	k := int64(0)
	for element := range eachNested(value) {
		if k++; k > to {
			break
		}
		if k >= from {
			b = append(b, element...)
		}
	}
	return CloseNested(b)
}

// AppendPlucked appends the list of a field, which counts from 1, of each element.
func AppendPlucked(b []byte, value string, field int) []byte {
	b = OpenNested(b)
	for element := range eachNested(value) {
		if part := ElementNested(element, int64(field)); part != "" {
			b = append(b, part...)
		} else {
			b = AppendNull(b)
		}
	}
	return CloseNested(b)
}

// AppendFlat appends the list of the elements of all elements.
func AppendFlat(b []byte, value string) []byte {
	b = OpenNested(b)
	for element := range eachNested(value) {
		b = appendElements(b, element)
	}
	return CloseNested(b)
}

// AppendJoined appends the list of the elements of two lists.
func AppendJoined(b []byte, x, y string) []byte {
	return CloseNested(appendElements(appendElements(OpenNested(b), x), y))
}

// AppendZipped appends the list of structs of an element of each of two lists. It is null behind the end of a list.
func AppendZipped(b []byte, x, y string) []byte {
	part := func(rest *string) (string, bool) {
		one, more, ok := NextNested(*rest)
		if !ok {
			return string(AppendNull(nil)), false
		}
		*rest = more
		return one, true
	}
	b = OpenNested(b)
	for x, y = ElementsNested(x), ElementsNested(y); ; {
		first, ok := part(&x)
		second, also := part(&y)
		if !ok && !also {
			return CloseNested(b)
		}
		b = CloseNested(append(append(OpenNested(b), first...), second...))
	}
}

func appendElements(b []byte, value string) []byte {
	for element := range eachNested(value) {
		b = append(b, element...)
	}
	return b
}

// AppendCanonical appends a value whose zeros have no sign. Values that are equal in SQL then have equal encodings.
func AppendCanonical(b []byte, value string) []byte {
	from := len(b)
	b = append(b, value...)
	for at := from; at < len(b); {
		tag, size := b[at], 1
		if tag != TagEnd && tag != TagOpen {
			size = SkipNested(b[at:])
		}
		if v := b[at+1 : at+size]; tag == TagFloat32 && len(v) == 4 || tag == TagFloat64 && len(v) == 8 {
			if v[0] == 0x7F && !slices.ContainsFunc(v[1:], func(c byte) bool { return c != 0xFF }) { // -0
				clear(v)
				v[0] = 0x80
			}
		}
		at += size
	}
	return b
}
