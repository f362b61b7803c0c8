package arrow

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/gstream/gstream/gpu"
)

// nestedArrowType returns the Arrow type of a LIST, STRUCT or MAP.
func nestedArrowType(t gpu.Type) arrow.DataType {
	children := t.Children()
	switch t.Kind {
	case gpu.List:
		return arrow.ListOfField(arrow.Field{Name: "element", Type: arrowType(children[0].Type), Nullable: true})
	case gpu.Map:
		return arrow.MapOf(arrowType(children[0].Type), arrowType(children[1].Type))
	}
	fields := make([]arrow.Field, len(children))
	for i, c := range children {
		fields[i] = arrow.Field{Name: c.Name, Type: arrowType(c.Type), Nullable: true}
	}
	return arrow.StructOf(fields...)
}

// nestedTypeOfArrow returns the type of lists, structs and maps. ok is false for other types.
func nestedTypeOfArrow(t arrow.DataType) (out gpu.Type, ok bool, err error) {
	switch t := t.(type) {
	case *arrow.StructType:
		fields := make([]gpu.Field, t.NumFields())
		for i, f := range t.Fields() {
			fields[i].Name = f.Name
			if fields[i].Type, err = typeOfArrow(f.Type); err != nil {
				return out, true, fmt.Errorf("field %q: %w", f.Name, err)
			}
		}
		if len(fields) == 0 {
			return out, true, fmt.Errorf("type %v has no fields", t)
		}
		return gpu.StructOf(fields...), true, nil
	case *arrow.MapType:
		key, err := typeOfArrow(t.KeyType())
		if err != nil {
			return out, true, fmt.Errorf("key: %w", err)
		}
		value, err := typeOfArrow(t.ItemType())
		return gpu.MapOf(key, value), true, err
	case arrow.ListLikeType:
		element, err := typeOfArrow(t.Elem())
		if err != nil {
			err = fmt.Errorf("element: %w", err)
		}
		return gpu.ListOf(element), true, err
	}
	return out, false, nil
}

// nestedArray copies a column of nested values.
func nestedArray(c gpu.Column, validity *memory.Buffer, nulls int) arrow.Array {
	children := c.Type.Children()
	values := make([][]gpu.Scalar, len(children))
	offsets := make([]int32, 1, c.Len+1)
	// add adds the fields of a struct, or of an entry of a map.
	add := func(rest string) {
		for k := range children {
			var value string
			value, rest, _ = gpu.NextNested(rest)
			values[k] = append(values[k], gpu.ScalarNested(value, children[k].Type))
		}
	}
	for i := range c.Len {
		rest := ""
		if c.IsValid(i) {
			rest = gpu.ElementsNested(string(c.VarValue(i)))
		}
		if c.Type.Kind == gpu.Struct {
			add(rest)
			continue
		}
		for {
			element, more, ok := gpu.NextNested(rest)
			if !ok {
				break
			}
			if rest = more; c.Type.Kind == gpu.Map {
				add(gpu.ElementsNested(element))
			} else {
				add(element)
			}
		}
		offsets = append(offsets, int32(len(values[0])))
	}
	parts := make([]arrow.ArrayData, len(children))
	for k, f := range children {
		a := arrowArray(gpu.ColumnOf(f.Type, values[k]))
		defer a.Release()
		parts[k] = a.Data()
	}
	t := arrowType(c.Type)
	buffers := []*memory.Buffer{validity}
	if c.Type.Kind != gpu.Struct {
		buffers = append(buffers, memory.NewBufferBytes(gpu.BytesOf(offsets)))
	}
	if c.Type.Kind == gpu.Map {
		entries := array.NewData(t.(*arrow.MapType).Elem(), len(values[0]), []*memory.Buffer{nil}, parts, 0, 0)
		defer entries.Release()
		parts = []arrow.ArrayData{entries}
	}
	return array.MakeFromData(array.NewData(t, c.Len, buffers, parts, nulls, 0))
}

// nestedValues appends the encodings of values of an array.
type nestedValues func(b []byte, row int) []byte

// valuesOfArrow returns the values of rows [from, from+n) of an array. The lease pays for copies of leaves, which are
// added to the columns that the caller releases.
func valuesOfArrow(l *gpu.Lease, t gpu.Type, a arrow.Array, from, n int, columns *[]gpu.Column) (nestedValues, error) {
	if e, ok := a.(array.ExtensionArray); ok {
		a = e.Storage()
	}
	if !t.IsNested() {
		plain, err := plainArray(a)
		if err != nil {
			return nil, err
		}
		defer plain.Release()
		c, err := columnOfArrow(l, t, plain, from, n)
		if err != nil {
			return nil, err
		}
		*columns = append(*columns, c)
		return func(b []byte, row int) []byte { return gpu.AppendScalar(b, c.ScalarAt(row-from)) }, nil
	}
	if t.Kind == gpu.Interval {
		return intervalsOfArrow(a)
	}
	children := t.Children()
	orNull := func(value nestedValues) nestedValues {
		return func(b []byte, row int) []byte {
			if a.IsNull(row) {
				return gpu.AppendNull(b)
			}
			return gpu.CloseNested(value(gpu.OpenNested(b), row))
		}
	}
	if s, ok := a.(*array.Struct); ok {
		fields := make([]nestedValues, len(children))
		for k, c := range children {
			var err error
			if fields[k], err = valuesOfArrow(l, c.Type, s.Field(k), from, n, columns); err != nil {
				return nil, fmt.Errorf("field %q: %w", c.Name, err)
			}
		}
		return orNull(func(b []byte, row int) []byte {
			for _, f := range fields {
				b = f(b, row)
			}
			return b
		}), nil
	}
	list, ok := a.(array.ListLike)
	if !ok {
		return nil, fmt.Errorf("cannot read an array of type %v as %v", a.DataType(), t)
	}
	first, last := int64(0), int64(0)
	for row := from; row < from+n; row++ {
		if start, end := list.ValueOffsets(row); start < end && a.IsValid(row) {
			if first == last {
				first, last = start, end
			}
			first, last = min(first, start), max(last, end)
		}
	}
	value, err := valuesOfArrow(l, t.Element(), list.ListValues(), int(first), int(last-first), columns)
	if err != nil {
		return nil, fmt.Errorf("element: %w", err)
	}
	return orNull(func(b []byte, row int) []byte {
		start, end := list.ValueOffsets(row)
		for i := start; i < end; i++ {
			b = value(b, int(i))
		}
		return b
	}), nil
}

// copyNested copies rows of an array of nested values.
func copyNested(l *gpu.Lease, c *gpu.Column, a arrow.Array, from, n int) (err error) {
	var leaves []gpu.Column
	defer func() { gpu.ReleaseColumns(leaves) }()
	value, err := valuesOfArrow(l, c.Type, a, from, n, &leaves)
	if err != nil {
		return err
	}
	if c.Offsets, err = l.Alloc(int64(n+1) * 4); err != nil {
		return err
	}
	offsets := gpu.Values[int32](c.Offsets, n+1)
	offsets[0] = 0
	var one []byte
	used := 0
	for i := range n {
		if one = one[:0]; a.IsValid(from + i) {
			one = value(one, from+i)
		}
		if int64(used)+int64(len(one)) > int64(1<<31-1) {
			return gpu.Exceeded("%d rows hold more than 2 GiB of nested values; feed smaller records", n)
		}
		if need := used + len(one); c.Data == nil || int64(need) > c.Data.Size() {
			buf, err := l.Alloc(int64(max(need, min(2*need, 1<<31-1), 1<<12)))
			if err != nil {
				return err
			}
			copy(buf.Bytes(), c.Data.Bytes()[:used])
			c.Data.Release()
			c.Data = buf
		}
		used += copy(c.Data.Bytes()[used:], one)
		offsets[i+1] = int32(used)
	}
	if c.Data == nil {
		c.Data, err = l.Alloc(0)
	}
	return err
}
