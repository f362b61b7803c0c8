package arrow

import (
	"bytes"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/gstream/gstream/gpu"
)

// Record copies a host-addressable stride into a record on the Go heap.
func Record(s *gpu.Stride) arrow.Record {
	cols := make([]arrow.Array, len(s.Cols))
	for i, c := range s.Cols {
		cols[i] = arrowArray(c)
	}
	return array.NewRecord(Schema(s.Schema), cols, int64(s.Rows))
}

// arrowArray copies a column without its dictionary.
func arrowArray(c gpu.Column) arrow.Array {
	var validity *memory.Buffer
	if c.Valid != nil {
		validity = memory.NewBufferBytes(bytes.Clone(c.Valid.Bytes()[:(c.Len+7)/8]))
	}
	nulls := array.UnknownNullCount
	if c.Valid == nil {
		nulls = 0
	}
	if c.Type.Kind == gpu.Interval {
		return intervalArray(c, validity, nulls)
	}
	if c.Type.IsNested() {
		return nestedArray(c, validity, nulls)
	}
	buffers := []*memory.Buffer{validity}
	switch {
	case c.Type.IsVar():
		offsets, data := varValues(c)
		buffers = append(buffers, memory.NewBufferBytes(gpu.BytesOf(offsets)), memory.NewBufferBytes(data))
	default:
		buffers = append(buffers, memory.NewBufferBytes(fixedValues(c)))
	}
	data := array.NewData(arrowType(c.Type), c.Len, buffers, nil, nulls, 0)
	if c.Type.IsEnum() {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		b.AppendValues(c.Type.EnumValues(), nil)
		texts := b.NewArray()
		data.SetDictionary(texts.Data())
	}
	return array.MakeFromData(data)
}

// varValues returns the offsets and bytes of strings or binaries. Nulls are empty.
func varValues(c gpu.Column) (offsets []int32, data []byte) {
	offsets = make([]int32, c.Len+1)
	for i := range c.Len {
		if c.IsValid(i) {
			data = append(data, c.VarValue(i)...)
		}
		offsets[i+1] = int32(len(data))
	}
	return offsets, data
}

// fixedValues returns the values in Arrow's layout: decimals widened, times in seconds or
// milliseconds narrowed to 32 bits.
func fixedValues(c gpu.Column) []byte {
	data := c.Data.Bytes()
	if c.Dict != nil {
		data = lookUp(c)
	}
	n := c.Len
	if c.Type.Kind == gpu.Bool {
		return bytes.Clone(data[:(n+7)/8])
	}
	data = data[:n*c.Type.Width()]
	view := gpu.WrapBytes(data)
	switch {
	case c.Type.Kind == gpu.Decimal && !c.Type.Wide:
		out := make([]gpu.Int128, n)
		for i, v := range gpu.Values[int64](view, n) {
			out[i] = gpu.Int128From(v)
		}
		return gpu.BytesOf(out)
	case c.Type.Kind == gpu.Time && c.Type.Unit <= gpu.Millisecond:
		out := make([]int32, n)
		for i, v := range gpu.Values[int64](view, n) {
			out[i] = int32(v)
		}
		return gpu.BytesOf(out)
	}
	return bytes.Clone(data)
}

// lookUp returns the values of a fixed-width column of codes.
func lookUp(c gpu.Column) []byte {
	codes := gpu.Values[int32](c.Data, c.Len)
	values := c.Dict.Values
	if c.Type.Kind == gpu.Bool {
		out := make([]byte, gpu.BitmapBytes(c.Len))
		setBits(out, c.Len, func(i int) bool { return c.IsValid(i) && gpu.Bit(values.Data.Bytes(), int(codes[i])) })
		return out
	}
	w := c.Type.Width()
	out := gpu.BytesOf(make([]gpu.Int128, (c.Len*w+15)/16))
	for i, code := range codes {
		if c.IsValid(i) {
			copy(out[i*w:(i+1)*w], values.Data.Bytes()[int(code)*w:])
		}
	}
	return out
}
