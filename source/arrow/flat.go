package arrow

import "encoding/binary"

// flat reads a FlatBuffer. Anything that is missing has position 0, where no table or value can be.
type flat struct {
	b    []byte
	left int // elements of vectors that may be read
	bad  bool
}

func newFlat(b []byte) *flat { return &flat{b: b, left: 1 << 20} }

func (f *flat) inside(at, n int) bool {
	if at < 0 || n < 0 || n > len(f.b)-at {
		f.bad = true
		return false
	}
	return true
}

func (f *flat) number(at int) uint32 {
	if !f.inside(at, 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(f.b[at:])
}

func (f *flat) short(at int) int {
	if !f.inside(at, 2) {
		return 0
	}
	return int(binary.LittleEndian.Uint16(f.b[at:]))
}

func (f *flat) long(at int) int64 {
	if !f.inside(at, 8) {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(f.b[at:]))
}

// byteAt returns the byte at the position of a field, 0 if the field is missing.
func (f *flat) byteAt(at int) byte {
	if at == 0 || !f.inside(at, 1) {
		return 0
	}
	return f.b[at]
}

// numberOr returns the 32-bit number of field i of a table, or a default.
func (f *flat) numberOr(table, i, or int) int {
	if at := f.field(table, i); at > 0 {
		return int(int32(f.number(at)))
	}
	return or
}

// shortOr returns the 16-bit number of field i of a table, or a default.
func (f *flat) shortOr(table, i, or int) int {
	if at := f.field(table, i); at > 0 {
		return f.short(at)
	}
	return or
}

// longOf returns the 64-bit number of field i of a table, 0 if it is missing.
func (f *flat) longOf(table, i int) int64 {
	if at := f.field(table, i); at > 0 {
		return f.long(at)
	}
	return 0
}

// follow returns the position to which a field points, 0 if the field is missing.
func (f *flat) follow(at int) int {
	if at == 0 {
		return 0
	}
	return at + int(f.number(at))
}

// table returns the table at field i of a table, 0 if it is missing.
func (f *flat) table(table, i int) int { return f.follow(f.field(table, i)) }

// field returns the position of field i of a table, 0 if it is missing.
func (f *flat) field(table, i int) int {
	if table == 0 {
		return 0
	}
	layout := table - int(int32(f.number(table)))
	if 4+2*i+2 > f.short(layout) {
		return 0
	}
	at := f.short(layout + 4 + 2*i)
	if at == 0 {
		return 0
	}
	return table + at
}

// text returns the text at a field.
func (f *flat) text(at int) string {
	if at == 0 {
		return ""
	}
	at = f.follow(at)
	n := int(f.number(at))
	if n > f.left || !f.inside(at+4, n) {
		f.bad = true
		return ""
	}
	f.left -= n
	return string(f.b[at+4 : at+4+n])
}

// tables returns the positions of the tables in the vector at a field.
func (f *flat) tables(at int) (out []int) {
	if at == 0 {
		return nil
	}
	at = f.follow(at)
	n := int(f.number(at))
	if n > f.left || !f.inside(at+4, 4*n) {
		f.bad = true
		return nil
	}
	f.left -= n
	for i := range n {
		out = append(out, f.follow(at+4+4*i))
	}
	return out
}

// structs returns the position of the first of the structs in the vector at a field, and their number.
func (f *flat) structs(at, size int) (first, n int) {
	if at == 0 {
		return 0, 0
	}
	at = f.follow(at)
	n = int(f.number(at))
	if n > len(f.b)/size || !f.inside(at+4, size*n) {
		f.bad = true
		return 0, 0
	}
	return at + 4, n
}
