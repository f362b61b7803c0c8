package gpu

import "fmt"

// Column is a typed view of buffers in the Arrow layout. It is a value. Its buffers are
// reference-counted: the owner of a Column has one reference to each buffer until Release.
type Column struct {
	Type Type
	Len  int
	// Data holds the values: Len × Type.Width() bytes, a bitmap for Bool, the bytes of all values
	// for String and Binary, int32 codes if Dict is set.
	Data *Buffer
	// Offsets holds Len+1 int32 offsets into Data for String and Binary
	// without Dict, and is nil otherwise.
	Offsets *Buffer
	// Valid is the validity bitmap; nil means that no value is null.
	Valid *Buffer
	// Dict, if set, holds the values that Data's codes index. It has the column's Type and is
	// itself plain. It may contain duplicates and values that no row uses. The code of a null row
	// is unspecified and may be out of range: Lookup accepts such codes.
	Dict *Dictionary
	// CodeWidth is set in an encoded column. With a Dict, Data has unsigned codes of CodeWidth
	// bytes (1, 2 or 4), and the type is any but Bool. Without a Dict, the type has 8 bytes and is
	// not a float, all values fit int32, Data has them as int32, and CodeWidth is 4. Scans make
	// encoded columns on request, because these are quick to decode and to copy. Queue.Upload turns
	// them into ordinary columns; no other primitive accepts them.
	CodeWidth int
	// Pages is set in a column that is still encoded as in a Parquet file: Data has the bytes of pages.
	Pages *Pages
}

// DataWidth returns the bytes of a value or of a code in Data. It is 0 for Bool (bits),
// and for String and Binary without a dictionary.
func (c Column) DataWidth() int {
	switch {
	case c.CodeWidth != 0:
		return c.CodeWidth
	case c.Dict != nil:
		return 4
	}
	return c.Type.Width()
}

// Code returns the code of row i of a host-addressable column with a dictionary.
func (c Column) Code(i int) int {
	switch c.CodeWidth {
	case 1:
		return int(Values[uint8](c.Data, c.Len)[i])
	case 2:
		return int(Values[uint16](c.Data, c.Len)[i])
	}
	return int(Values[int32](c.Data, c.Len)[i])
}

// Lookup returns the value of a code. For a code out of range, which a null row may have, it
// returns the zero value.
func Lookup[T any](values []T, code int32) (v T) {
	if uint(code) < uint(len(values)) {
		v = values[code]
	}
	return v
}

// Dictionary holds the values that dictionary-coded columns share. Distinct says that no two of them
// are equal, so that equal codes mean equal values and unequal codes unequal ones; a dictionary need
// not say so.
type Dictionary struct {
	Values   Column
	Distinct bool
}

// Retain adds a reference to every buffer and returns c.
func (c Column) Retain() Column {
	c.Data.Retain()
	c.Offsets.Retain()
	c.Valid.Retain()
	if c.Dict != nil {
		c.Dict.Values.Retain()
	}
	return c
}

// Release drops a reference to every buffer.
func (c Column) Release() {
	c.Data.Release()
	c.Offsets.Release()
	c.Valid.Release()
	if c.Dict != nil {
		c.Dict.Values.Release()
	}
}

// Bytes returns the size of the column's buffers, without its dictionary, which other
// columns may share.
func (c Column) Bytes() int64 { return c.Data.Size() + c.Offsets.Size() + c.Valid.Size() }

// ReleaseColumns releases every column of a list.
func ReleaseColumns(cols []Column) {
	for _, c := range cols {
		c.Release()
	}
}

// BitmapBytes returns the bytes of a bitmap of n bits, in whole 64-bit words.
func BitmapBytes(n int) int64 { return int64((n + 63) / 64 * 8) }

// Bit returns bit i of a bitmap.
func Bit(bitmap []byte, i int) bool { return bitmap[i>>3]>>(i&7)&1 != 0 }

// Words views a bitmap buffer of n bits as 64-bit words; nil for a nil buffer.
func Words(b *Buffer, n int) []uint64 {
	if b == nil {
		return nil
	}
	return Values[uint64](b, (n+63)/64)
}

// IsValid reports whether row i of a host-addressable column is not null.
func (c Column) IsValid(i int) bool { return c.Valid == nil || Bit(c.Valid.Bytes(), i) }

// AllNull reports whether a column has rows and all are null, as far as the host can address the validity. It
// stops at the first value.
func (c Column) AllNull() bool {
	if c.Len == 0 || c.Valid.Bytes() == nil {
		return false
	}
	words := Words(c.Valid, c.Len)
	for i, w := range words {
		if n := c.Len - i*64; n < 64 {
			w &= 1<<n - 1
		}
		if w != 0 {
			return false
		}
	}
	return true
}

// VarValue returns the bytes of row i of a host-addressable String or Binary column,
// looked up in its dictionary if it has one. The result aliases the buffer.
func (c Column) VarValue(i int) []byte {
	if c.Dict != nil {
		i = c.Code(i)
		c = c.Dict.Values
	}
	off := Values[int32](c.Offsets, c.Len+1)
	return c.Data.Bytes()[off[i]:off[i+1]]
}

// Stride is a batch of rows: one column for each field of the schema, all of the same length. It
// has exactly one owner; passing it on transfers the ownership.
type Stride struct {
	Schema *Schema
	Cols   []Column
	Rows   int
	// Ready is the point at which the kernels that produced the stride have finished, if SetReady was
	// called.
	Ready Event
}

// Event is a point in a device's work. The zero value means no point.
type Event uint64

// EventRecorder is a Device whose copies to the host wait for kernels. RecordEvent returns the point at which
// all kernels launched so far have finished.
type EventRecorder interface {
	Device
	RecordEvent() Event
}

// SetReady records that all kernels that produce the stride have been launched. A copy to the host
// then waits for these kernels, and not for later ones. It must be called before a stride is kept,
// or passed on, for others to copy; after the call the stride must not change.
func (s *Stride) SetReady(d Device) {
	if m, ok := d.(EventRecorder); ok {
		s.Ready = m.RecordEvent()
	}
}

// Retain returns a stride that shares the columns of s, with references of its own.
func (s *Stride) Retain() *Stride {
	out := &Stride{Schema: s.Schema, Cols: make([]Column, len(s.Cols)), Rows: s.Rows}
	for i, c := range s.Cols {
		out.Cols[i] = c.Retain()
	}
	return out
}

// Release drops the stride's references. The stride must not be used afterwards.
func (s *Stride) Release() {
	ReleaseColumns(s.Cols)
	s.Cols = nil
}

// ChargeTo moves the charge for the stride's buffers to another lease: from the operator that made
// the stride to the one that keeps it, so that a budget error names the operator that fills the
// budget. The charge for shared buffers, and for buffers of another budget, does not move.
func (s *Stride) ChargeTo(l *Lease) {
	for _, c := range s.Cols {
		c.Data.chargeTo(l)
		c.Offsets.chargeTo(l)
		c.Valid.chargeTo(l)
		if c.Dict != nil {
			d := c.Dict.Values
			d.Data.chargeTo(l)
			d.Offsets.chargeTo(l)
			d.Valid.chargeTo(l)
		}
	}
}

// Bytes returns the size of the stride's buffers, without dictionaries.
func (s *Stride) Bytes() int64 {
	var n int64
	for _, c := range s.Cols {
		n += c.Bytes()
	}
	return n
}

// Check verifies the stride against its schema: number of columns, types, lengths and buffer sizes,
// but not contents. It is for strides from outside of gstream.
func (s *Stride) Check() error {
	if len(s.Cols) != s.Schema.Len() {
		return fmt.Errorf("stride has %d columns, its schema %d", len(s.Cols), s.Schema.Len())
	}
	for i, c := range s.Cols {
		f := s.Schema.Fields[i]
		if c.Type != f.Type {
			return fmt.Errorf("column %q has type %v, its schema says %v", f.Name, c.Type, f.Type)
		}
		if c.Len != s.Rows {
			return fmt.Errorf("column %q has %d rows, its stride %d", f.Name, c.Len, s.Rows)
		}
		if err := c.check(); err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
	}
	return nil
}

func (c Column) check() error {
	need := int64(c.Len) * int64(c.DataWidth())
	switch {
	case c.Pages != nil:
		return c.Pages.check(c)
	case c.Dict != nil:
		if c.Dict.Values.Dict != nil || c.Dict.Values.Type != c.Type {
			return fmt.Errorf("dictionary of type %v under a column of type %v", c.Dict.Values.Type, c.Type)
		}
		if err := c.Dict.Values.check(); err != nil {
			return fmt.Errorf("dictionary: %w", err)
		}
	case c.Type.Kind == Bool:
		need = BitmapBytes(c.Len)
	case c.Type.IsVar():
		need = 0
		if c.Offsets.Size() < int64(c.Len+1)*4 {
			return fmt.Errorf("offsets hold %d bytes, want %d", c.Offsets.Size(), (c.Len+1)*4)
		}
	}
	if c.Data.Size() < need {
		return fmt.Errorf("data holds %d bytes, want %d", c.Data.Size(), need)
	}
	if c.Valid != nil && c.Valid.Size() < BitmapBytes(c.Len) {
		return fmt.Errorf("validity holds %d bytes, want %d", c.Valid.Size(), BitmapBytes(c.Len))
	}
	return nil
}
