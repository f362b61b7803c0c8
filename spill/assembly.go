package spill

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/gstream/gstream/gpu"
)

// errDamaged is the error of a block that is not as it was written.
var errDamaged = errors.New("the data are damaged: they are not what was written there")

// extent is the sizes of rows before they are read.
type extent struct {
	rows  int64
	bytes []int64 // of each column's strings; 0 for other columns
}

func (e *extent) add(o extent) {
	e.rows += o.rows
	if e.bytes == nil {
		e.bytes = make([]int64, len(o.bytes))
	}
	for i, n := range o.bytes {
		e.bytes[i] += n
	}
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

// assembly is a stride in host memory to which blocks are added.
type assembly struct {
	stride *gpu.Stride           // with room for all rows
	rows   int                   // so far
	bytes  []int                 // of strings, by column, so far
	skip   func(number int) bool // leaves the blocks of some strides out
}

// newAssembly allocates a stride for rows of some extent.
func newAssembly(l *gpu.Lease, lay *layout, e extent) (_ *assembly, err error) {
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
	for i, f := range lay.schema.Fields {
		c := gpu.Column{Type: f.Type, Len: n}
		switch {
		case lay.dicts[i] != nil:
			c.Dict = lay.dicts[i]
			c.Dict.Values.Retain()
			c.Data = alloc(int64(n) * 4)
		case f.Type.IsVar():
			c.Offsets, c.Data = alloc(int64(n+1)*4), alloc(e.bytes[i])
			if err == nil {
				gpu.Values[int32](c.Offsets, n+1)[0] = 0
			}
		case f.Type.Kind == gpu.Bool:
			if c.Data = alloc(gpu.BitmapBytes(n)); err == nil {
				clear(c.Data.Bytes())
			}
		default:
			c.Data = alloc(int64(n) * int64(f.Type.Width()))
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
