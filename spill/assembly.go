package spill

import (
	"encoding/binary"
	"math"
	"slices"
	"syscall"

	"github.com/gstream/gstream/gpu"
)

// errDamaged is the error of a block that differs from what was written.
var errDamaged error = damaged{}

// damaged is an error of the disk.
type damaged struct{}

func (damaged) Error() string        { return "the data are damaged: they are not what was written there" }
func (damaged) Is(target error) bool { return target == syscall.EIO }

// extent has the sizes of rows before they are read.
type extent struct {
	rows  int64
	raw   int64   // bytes, an estimate of their size in memory
	bytes []int64 // of the strings of each column of layout.texts
}

// fits reports whether the rows fit one stride.
func (e *extent) fits() bool {
	for _, n := range e.bytes {
		if n > math.MaxInt32 {
			return false
		}
	}
	return e.rows <= gpu.MaxRows
}

// assembly is a stride in host memory to which blocks or strides are added.
type assembly struct {
	stride *gpu.Stride           // with space for all rows
	rows   int                   // so far
	bytes  []int                 // of strings, by column, so far
	skip   func(number int) bool // says which strides' blocks are left out
}

// newAssembly allocates a stride for rows of an extent. parts are strides in memory. The values of
// their columns are not copied but joined (gpu.Joined), where they can be.
func newAssembly(l *gpu.Lease, lay *layout, e extent, parts []*gpu.Stride) (_ *assembly, err error) {
	n := int(e.rows)
	a := &assembly{stride: &gpu.Stride{Schema: lay.schema, Rows: n}, bytes: make([]int, lay.schema.Len())}
	defer func() {
		if err != nil {
			a.stride.Release()
		}
	}()
	alloc := func(size int64) (b *gpu.Buffer) {
		if err == nil {
			b, err = l.Alloc(size)
		}
		return b
	}
	texts := e.bytes
	if texts == nil { // no rows
		texts = make([]int64, len(lay.texts))
	}
	for i, f := range lay.schema.Fields {
		c := gpu.Column{Type: f.Type, Len: n}
		values := func(size int64) *gpu.Buffer {
			if lay.together(parts, i) {
				return joined(parts, i)
			}
			return alloc(size)
		}
		switch {
		case lay.dicts[i] != nil:
			c.Dict = lay.dicts[i]
			c.Dict.Values.Retain()
			c.Data = values(int64(n) * 4)
		case f.Type.IsVar():
			c.Offsets, c.Data = alloc(int64(n+1)*4), values(texts[0])
			texts = texts[1:]
			if err == nil {
				gpu.Values[int32](c.Offsets, n+1)[0] = 0
			}
		case f.Type.Kind == gpu.Bool:
			if c.Data = alloc(gpu.BitmapBytes(n)); err == nil {
				clear(c.Data.Bytes())
			}
		default:
			c.Data = values(int64(n) * int64(f.Type.Width()))
		}
		if lay.valid[i] {
			if c.Valid = alloc(gpu.BitmapBytes(n)); err == nil {
				clear(c.Valid.Bytes())
			}
		}
		a.stride.Cols = append(a.stride.Cols, c)
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

// add adds the rows of a block.
func (a *assembly) add(lay *layout, data []byte, rows int) error {
	if rows > a.stride.Rows-a.rows {
		return errDamaged
	}
	next := func(n int) []byte {
		if n > len(data) {
			return nil
		}
		out := data[:n:n]
		data = data[n:]
		return out
	}
	for i, c := range a.stride.Cols {
		switch {
		case lay.dicts[i] != nil:
			from := next(4 * rows)
			if from == nil && rows > 0 {
				return errDamaged
			}
			copy(c.Data.Bytes()[4*a.rows:], from)
		case c.Type.IsVar():
			lengths := next(4 * rows)
			if lengths == nil && rows > 0 {
				return errDamaged
			}
			offsets := gpu.Values[int32](c.Offsets, c.Len+1)[a.rows:]
			at, begin := int64(a.bytes[i]), a.bytes[i]
			for r := range rows {
				at += int64(binary.LittleEndian.Uint32(lengths[4*r:]))
				if at > c.Data.Size() {
					return errDamaged
				}
				offsets[r+1] = int32(at)
			}
			from := next(int(at) - begin)
			if from == nil && int(at) > begin {
				return errDamaged
			}
			copy(c.Data.Bytes()[begin:at], from)
			a.bytes[i] = int(at)
		case c.Type.Kind == gpu.Bool:
			if !addBits(c.Data, a.rows, next((rows+7)/8), rows) {
				return errDamaged
			}
		default:
			w := c.Type.Width()
			from := next(w * rows)
			if from == nil && rows > 0 {
				return errDamaged
			}
			copy(c.Data.Bytes()[w*a.rows:], from)
		}
		if lay.valid[i] && !addBits(c.Valid, a.rows, next((rows+7)/8), rows) {
			return errDamaged
		}
	}
	if len(data) > 0 {
		return errDamaged
	}
	a.rows += rows
	return nil
}

// together reports whether the values of column i of strides in memory can be joined without a
// copy. Bits, and codes of several dictionaries, cannot.
func (lay *layout) together(parts []*gpu.Stride, i int) bool {
	return len(parts) > 0 && lay.schema.Fields[i].Type.Kind != gpu.Bool && lay.codes[i] == nil &&
		(lay.dicts[i] != nil || !slices.ContainsFunc(parts, func(s *gpu.Stride) bool { return s.Cols[i].Dict != nil }))
}

// joined returns the values of column i of strides.
func joined(parts []*gpu.Stride, i int) *gpu.Buffer {
	var pieces []*gpu.Buffer
	for _, s := range parts {
		c := s.Cols[i]
		n := int64(c.Len) * int64(c.DataWidth())
		if c.Offsets != nil {
			n = int64(gpu.Values[int32](c.Offsets, c.Len+1)[c.Len])
		}
		if n > 0 {
			pieces = append(pieces, c.Data.View(0, n))
		}
	}
	return gpu.Joined(pieces)
}

// copyColumn copies a column in host memory to column i from a row on, except values that are
// joined. All earlier rows have been copied.
func (a *assembly) copyColumn(lay *layout, i int, from gpu.Column, row int) {
	c, n := a.stride.Cols[i], from.Len
	joined := c.Data.Pieces() != nil
	switch {
	case joined && c.Offsets == nil:
	case lay.codes[i] != nil:
		codes, to := lay.codes[i][from.Dict], gpu.Values[int32](c.Data, c.Len)[row:]
		for r, code := range gpu.Values[int32](from.Data, n) {
			if to[r] = 0; from.IsValid(r) { // the code of a null is unspecified
				to[r] = codes[code]
			}
		}
	case lay.dicts[i] != nil:
		copy(c.Data.Bytes()[4*row:], from.Data.Bytes()[:4*n])
	case c.Type.IsVar():
		offsets := gpu.Values[int32](c.Offsets, c.Len+1)[row:]
		at := int(offsets[0])
		if from.Dict == nil {
			ends := gpu.Values[int32](from.Offsets, n+1)
			for r, end := range ends[1:] {
				offsets[r+1] = int32(at) + end
			}
			if !joined {
				copy(c.Data.Bytes()[at:], from.Data.Bytes()[:ends[n]])
			}
			break
		}
		texts, bytes := codedTextOf(from), c.Data.Bytes()
		for r := range n {
			at += copy(bytes[at:], texts.at(r))
			offsets[r+1] = int32(at)
		}
	case c.Type.Kind == gpu.Bool:
		gpu.AppendBits(c.Data.Bytes(), row, from.Data.Bytes(), 0, n)
	default:
		appendColumn(c.Data.Bytes()[:c.Type.Width()*row], from, 0, n, false) // the buffer is large enough
	}
	if !lay.valid[i] {
		return
	}
	if from.Valid == nil {
		gpu.SetBits(c.Valid.Bytes(), row, n)
	} else {
		gpu.AppendBits(c.Valid.Bytes(), row, from.Valid.Bytes(), 0, n)
	}
}

// addBits adds n bits to a bitmap whose later bits are zero.
func addBits(dst *gpu.Buffer, at int, src []byte, n int) bool {
	if n > 8*len(src) {
		return false
	}
	gpu.AppendBits(dst.Bytes(), at, src, 0, n)
	return true
}

// done returns the stride of the rows that have been added.
func (a *assembly) done() *gpu.Stride {
	a.stride.Rows = a.rows
	for i := range a.stride.Cols {
		a.stride.Cols[i].Len = a.rows
	}
	return a.stride
}
