package arrow

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// columnOfArrow copies rows [from, from+n) of an array into a column.
func columnOfArrow(l *gpu.Lease, t gpu.Type, a arrow.Array, from, n int) (c gpu.Column, err error) {
	c = gpu.Column{Type: t, Len: n}
	defer func() {
		if err != nil {
			c.Release()
		}
	}()
	if valid := validRows(a); valid != nil {
		if c.Valid, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
			return c, err
		}
		setBits(c.Valid.Bytes(), n, func(i int) bool { return valid(from + i) })
	}
	if t.IsNested() {
		return c, copyNested(l, &c, a, from, n)
	}
	if t.IsVar() {
		return c, copyBytes(l, &c, a, from, n)
	}
	if t.Kind == gpu.Bool {
		if c.Data, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
			return c, err
		}
		if b, ok := a.(*array.Boolean); ok {
			bitutil.CopyBitmap(b.Data().Buffers()[1].Bytes(), b.Data().Offset()+from, n, c.Data.Bytes(), 0)
			return c, nil
		}
	} else if c.Data, err = l.Alloc(int64(n) * int64(t.Width())); err != nil {
		return c, err
	}
	return c, copyFixed(l, c, a, from, n)
}

// validRows returns a function that reports whether a row is not null, or nil if no row is null. A
// row of a dictionary array is also null if its dictionary value is null.
func validRows(a arrow.Array) func(int) bool {
	if d, ok := a.(*array.Dictionary); ok && d.Dictionary().NullN() > 0 {
		return func(i int) bool { return d.IsValid(i) && d.Dictionary().IsValid(d.GetValueIndex(i)) }
	}
	if a.NullN() == 0 {
		return nil
	}
	return a.IsValid
}

// copyFixed copies fixed-width values. Values that already have our layout are copied in bulk.
// Dictionary values are looked up; 32-bit times and narrow decimals are converted.
func copyFixed(l *gpu.Lease, c gpu.Column, a arrow.Array, from, n int) error {
	switch a := a.(type) {
	case *array.Dictionary:
		return copyDictionary(l, c, a, from, n)
	case *array.Decimal128:
		values := a.Values()[from : from+n]
		if c.Type.Wide {
			out := gpu.Values[gpu.Int128](c.Data, n)
			for i, v := range values {
				out[i] = gpu.Int128{Lo: v.LowBits(), Hi: v.HighBits()}
			}
			return nil
		}
		out := gpu.Values[int64](c.Data, n)
		for i, v := range values {
			w := gpu.Int128{Lo: v.LowBits(), Hi: v.HighBits()}
			if !w.IsInt64() && a.IsValid(from+i) {
				return fmt.Errorf("row %d: %s does not fit %v: %w", from+i, w.Format(int(c.Type.Scale)), c.Type,
					source.ErrData)
			}
			out[i] = w.Int64()
		}
		return nil
	case *array.Time32:
		out := gpu.Values[int64](c.Data, n)
		for i, v := range a.Time32Values()[from : from+n] {
			out[i] = int64(v)
		}
		return nil
	}
	w := c.Type.Width()
	at := (a.Data().Offset() + from) * w
	copy(c.Data.Bytes(), a.Data().Buffers()[1].Bytes()[at:at+n*w])
	return nil
}

// copyDictionary looks up and copies the values of a dictionary array. It ignores entries that no
// row uses, which may be invalid.
func copyDictionary(l *gpu.Lease, c gpu.Column, a *array.Dictionary, from, n int) error {
	values := a.Dictionary()
	if d, ok := values.(*array.Decimal128); ok && !c.Type.Wide {
		out := gpu.Values[int64](c.Data, n)
		for i := range n {
			out[i] = 0
			if !a.IsValid(from+i) || !d.IsValid(a.GetValueIndex(from+i)) {
				continue
			}
			v := d.Value(a.GetValueIndex(from + i))
			w := gpu.Int128{Lo: v.LowBits(), Hi: v.HighBits()}
			if !w.IsInt64() {
				return fmt.Errorf("row %d: %s does not fit %v: %w", from+i, w.Format(int(c.Type.Scale)), c.Type,
					source.ErrData)
			}
			out[i] = w.Int64()
		}
		return nil
	}
	plain, err := columnOfArrow(l, c.Type, values, 0, values.Len())
	if err != nil {
		return err
	}
	defer plain.Release()
	if c.Type.Kind == gpu.Bool {
		setBits(c.Data.Bytes(), n, func(i int) bool {
			return a.IsValid(from+i) && gpu.Bit(plain.Data.Bytes(), a.GetValueIndex(from+i))
		})
		return nil
	}
	w := c.Type.Width()
	for i := range n {
		if a.IsValid(from + i) {
			at := a.GetValueIndex(from+i) * w
			copy(c.Data.Bytes()[i*w:], plain.Data.Bytes()[at:at+w])
		}
	}
	return nil
}

// valueBytes returns a function that returns the bytes of a row of an array of strings or
// binaries.
func valueBytes(a arrow.Array) (func(int) []byte, error) {
	switch a := a.(type) {
	case *array.String:
		return func(i int) []byte { return stringBytes(a.Value(i)) }, nil
	case *array.LargeString:
		return func(i int) []byte { return stringBytes(a.Value(i)) }, nil
	case *array.StringView:
		return func(i int) []byte { return stringBytes(a.Value(i)) }, nil
	case *array.Binary:
		return a.Value, nil
	case *array.LargeBinary:
		return a.Value, nil
	case *array.BinaryView:
		return a.Value, nil
	case *array.FixedSizeBinary:
		return a.Value, nil
	case *array.Dictionary:
		value, err := valueBytes(a.Dictionary())
		return func(i int) []byte { return value(a.GetValueIndex(i)) }, err
	}
	return nil, fmt.Errorf("cannot read values of type %v as bytes", a.DataType())
}

// copyBytes copies strings or binaries. It copies the offsets first, since they tell the size.
func copyBytes(l *gpu.Lease, c *gpu.Column, a arrow.Array, from, n int) (err error) {
	value, err := valueBytes(a)
	if err != nil {
		return err
	}
	if c.Offsets, err = l.Alloc(int64(n+1) * 4); err != nil {
		return err
	}
	offsets := gpu.Values[int32](c.Offsets, n+1)
	total := int64(0)
	offsets[0] = 0
	for i := range n {
		if a.IsValid(from + i) {
			total += int64(len(value(from + i)))
		}
		if total > math.MaxInt32 {
			return gpu.Exceeded("%d rows hold more than 2 GiB of text; feed smaller records", n)
		}
		offsets[i+1] = int32(total)
	}
	if c.Data, err = l.Alloc(total); err != nil {
		return err
	}
	for i := range n {
		if a.IsValid(from + i) {
			copy(c.Data.Bytes()[offsets[i]:], value(from+i))
		}
	}
	return nil
}

// stringBytes views a string as bytes, which must not be modified.
func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func setBits(bitmap []byte, n int, bit func(int) bool) {
	clear(bitmap)
	for i := range n {
		if bit(i) {
			bitmap[i>>3] |= 1 << (i & 7)
		}
	}
}
