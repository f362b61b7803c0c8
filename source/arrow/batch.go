package arrow

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/gstream/gstream/source"
)

func badf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", source.ErrData, fmt.Sprintf(format, args...))
}

// extent is where a buffer is in the body of a message.
type extent struct{ offset, bytes int64 }

// layout is the metadata of a record batch: of its arrays in depth-first order, and of their buffers.
type layout struct {
	version  int
	rows     int64
	codec    int // -1 for none
	lengths  []int64
	nulls    []int64
	buffers  []extent
	variadic []int64
	columns  []span // of the fields of the schema
}

// span is where the arrays, the buffers and the counts of variadic buffers of a column begin.
type span struct{ array, buffer, variadic int }

// The codecs of the format.
const (
	codecNone = -1
	codecLZ4  = 0
	codecZSTD = 1
)

// maxRows bounds the values of an array.
const maxRows = math.MaxInt32

// layoutOf reads the metadata of a record batch from a table, and finds the columns of fields in it.
func (m *message) layoutOf(table int, fields []Field) (*layout, error) {
	l := &layout{version: m.version, rows: m.longOf(table, 0), codec: codecNone}
	at, n := m.structs(m.field(table, 1), 16)
	l.lengths, l.nulls = make([]int64, n), make([]int64, n)
	for i := range n {
		l.lengths[i], l.nulls[i] = m.long(at+16*i), m.long(at+16*i+8)
		if l.lengths[i] < 0 || l.lengths[i] > maxRows || l.nulls[i] < 0 || l.nulls[i] > l.lengths[i] {
			return nil, badf("an array has %d values with %d nulls", l.lengths[i], l.nulls[i])
		}
	}
	at, n = m.structs(m.field(table, 2), 16)
	l.buffers = make([]extent, n)
	for i := range n {
		e := extent{m.long(at + 16*i), m.long(at + 16*i + 8)}
		if e.offset < 0 || e.bytes < 0 || e.offset > m.body || e.bytes > m.body-e.offset {
			return nil, badf("a buffer of %d bytes at %d is not inside of the message, which has %d", e.bytes, e.offset,
				m.body)
		}
		l.buffers[i] = e
	}
	at, n = m.structs(m.field(table, 4), 8)
	for i := range n {
		k := m.long(at + 8*i)
		if k < 0 || k > int64(len(l.buffers)) {
			return nil, badf("an array has %d buffers", k)
		}
		l.variadic = append(l.variadic, k)
	}
	if c := m.flat.table(table, 3); c > 0 {
		if l.codec = int(m.byteAt(m.field(c, 0))); l.codec > codecZSTD || m.byteAt(m.field(c, 1)) != 0 {
			return nil, badf("the buffers have an unknown compression")
		}
	}
	if m.bad || l.rows < 0 || l.rows > maxRows {
		return nil, badf("the metadata of a record batch is damaged")
	}
	var s span
	for i := range fields {
		l.columns = append(l.columns, s)
		if !l.skip(&fields[i], &s) {
			return nil, badf("the record batch has %d arrays and %d buffers, which is less than the schema says",
				len(l.lengths), len(l.buffers))
		}
	}
	l.columns = append(l.columns, s)
	return l, nil
}

// skip moves a span behind the arrays of a field. It reports whether they exist.
func (l *layout) skip(f *Field, s *span) bool {
	s.array++
	children := f.children
	switch {
	case f.encoded:
		s.buffer += 2
		children = nil
	default:
		switch f.kind {
		case ipcNull, ipcRunEndEncoded:
		case ipcStruct, ipcFixedSizeList:
			s.buffer++
		case ipcBinary, ipcUtf8, ipcLargeBinary, ipcLargeUtf8, ipcListView, ipcLargeListView:
			s.buffer += 3
		case ipcBinaryView, ipcUtf8View:
			if s.variadic >= len(l.variadic) {
				return false
			}
			s.buffer += 2 + int(l.variadic[s.variadic])
			s.variadic++
		case ipcUnion:
			if s.buffer++; f.dense {
				s.buffer++
			}
			if l.version < 4 {
				s.buffer++ // validity
			}
		default:
			s.buffer += 2
		}
	}
	for i := range children {
		if !l.skip(&children[i], s) {
			return false
		}
	}
	return s.array <= len(l.lengths) && s.buffer <= len(l.buffers)
}

// bytes returns the bytes of the buffers of a column.
func (l *layout) bytes(column int) (n int64) {
	for _, e := range l.buffers[l.columns[column].buffer:l.columns[column+1].buffer] {
		n += e.bytes
	}
	return n
}

// loader makes the arrays of columns of a record batch, and checks them.
type loader struct {
	*layout
	at    span
	bytes func(extent) ([]byte, error) // of a buffer in the message
	pay   func(n int64) error          // for memory of decompressed buffers
	dicts map[int64]*dictionary
}

// column makes the array of a column.
func (l *loader) column(fields []Field, i int) (arrow.ArrayData, error) {
	l.at = l.columns[i]
	d, err := l.load(fields[i].Type, &fields[i])
	if err == nil && int64(d.Len()) != l.rows {
		err = badf("the column has %d values, and the record batch %d rows", d.Len(), l.rows)
	}
	return d, err
}

// raw returns the bytes of the next buffer.
func (l *loader) raw() ([]byte, error) {
	e := l.buffers[l.at.buffer]
	l.at.buffer++
	if e.bytes == 0 {
		return nil, nil
	}
	b, err := l.bytes(e)
	if err != nil {
		return nil, err
	}
	if l.codec != codecNone {
		if len(b) < 8 {
			return nil, badf("a compressed buffer has %d bytes", len(b))
		}
		n := int64(binary.LittleEndian.Uint64(b))
		if b = b[8:]; n != -1 { // -1 means that it is not compressed
			if b, err = decompress(l.codec, b, n, l.pay); err != nil {
				return nil, err
			}
		}
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 { // the views of Arrow need aligned numbers
		if err := l.pay(int64(len(b))); err != nil {
			return nil, err
		}
		aligned := make([]byte, len(b)+8)
		skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(aligned)))) & 7
		b = aligned[skip : skip+copy(aligned[skip:], b)]
	}
	return b, nil
}

// buffer returns the next buffer, which must have some bytes.
func (l *loader) buffer(least int64) ([]byte, error) {
	b, err := l.raw()
	if err == nil && int64(len(b)) < least {
		err = badf("a buffer has %d bytes in place of %d", len(b), least)
	}
	return b, err
}

// next returns the length of the next array, and its validity if it has one: the buffer, nil for no nulls, and the
// number of nulls.
func (l *loader) next(hasValidity bool) (n int, valid []byte, nulls int, err error) {
	n = int(l.lengths[l.at.array])
	nulls = int(l.nulls[l.at.array])
	l.at.array++
	switch {
	case !hasValidity:
	case nulls == 0:
		l.at.buffer++
	default:
		if valid, err = l.buffer(int64(n+7) / 8); err == nil {
			nulls = n - ones(valid, n)
		}
	}
	return n, valid, nulls, err
}

// ones counts the bits that are set among the first n.
func ones(b []byte, n int) (count int) {
	for _, x := range b[:n/8] {
		count += bits.OnesCount8(x)
	}
	if n%8 != 0 {
		count += bits.OnesCount8(b[n/8] & (1<<(n%8) - 1))
	}
	return count
}

func isValid(valid []byte, i int) bool { return valid == nil || valid[i>>3]>>(i&7)&1 != 0 }

// view returns bytes as numbers, as far as they are whole.
func view[T int16 | int32 | int64](b []byte) []T {
	size := int(unsafe.Sizeof(T(0)))
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/size)
}

func wrap(buffers ...[]byte) []*memory.Buffer {
	out := make([]*memory.Buffer, len(buffers))
	for i, b := range buffers {
		if i > 0 || b != nil {
			out[i] = memory.NewBufferBytes(b)
		}
	}
	return out
}

// load makes the next array. Everything that code reads later without a check is checked here.
func (l *loader) load(t arrow.DataType, f *Field) (arrow.ArrayData, error) {
	if d, ok := t.(*arrow.DictionaryType); ok {
		return l.encoded(d, f)
	}
	switch f.kind {
	case ipcNull:
		n, _, _, err := l.next(false)
		return array.NewData(t, n, []*memory.Buffer{nil}, nil, n, 0), err
	case ipcRunEndEncoded:
		return l.runs(t.(*arrow.RunEndEncodedType), f)
	}
	n, valid, nulls, err := l.next(true)
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case *arrow.BinaryType, *arrow.StringType:
		return l.strings(t, n, valid, nulls, 4)
	case *arrow.LargeBinaryType, *arrow.LargeStringType:
		return l.strings(t, n, valid, nulls, 8)
	case arrow.BinaryViewDataType:
		return l.views(t, n, valid, nulls)
	case *arrow.ListType, *arrow.MapType:
		return l.lists(t, f, n, valid, nulls, 4)
	case *arrow.LargeListType:
		return l.lists(t, f, n, valid, nulls, 8)
	case *arrow.ListViewType:
		return l.listViews(t, f, n, valid, nulls, 4)
	case *arrow.LargeListViewType:
		return l.listViews(t, f, n, valid, nulls, 8)
	case *arrow.FixedSizeListType:
		child, err := l.load(t.Elem(), &f.children[0])
		if err == nil && int64(child.Len()) < int64(n)*int64(t.Len()) {
			err = badf("%d lists of %d elements have %d in all", n, t.Len(), child.Len())
		}
		if err != nil {
			return nil, err
		}
		return array.NewData(t, n, wrap(valid), []arrow.ArrayData{child}, nulls, 0), nil
	case *arrow.StructType:
		children := make([]arrow.ArrayData, t.NumFields())
		for i := range children {
			if children[i], err = l.load(t.Field(i).Type, &f.children[i]); err != nil {
				return nil, err
			}
			if children[i].Len() != n {
				return nil, badf("%d structs have %d values of the field %q", n, children[i].Len(), t.Field(i).Name)
			}
		}
		return array.NewData(t, n, wrap(valid), children, nulls, 0), nil
	case arrow.FixedWidthDataType:
		data, err := l.buffer((int64(n)*int64(t.BitWidth()) + 7) / 8)
		return array.NewData(t, n, wrap(valid, data), nil, nulls, 0), err
	}
	return nil, fmt.Errorf("type %v is not supported", t)
}

// encoded makes an array of codes of a dictionary.
func (l *loader) encoded(t *arrow.DictionaryType, f *Field) (arrow.ArrayData, error) {
	n, valid, nulls, err := l.next(true)
	if err != nil {
		return nil, err
	}
	width := t.IndexType.(arrow.FixedWidthDataType).BitWidth() / 8
	data, err := l.buffer(int64(n) * int64(width))
	if err != nil {
		return nil, err
	}
	d := l.dicts[f.dict]
	if d == nil {
		return nil, badf("there is no dictionary with the number %d", f.dict)
	}
	if !arrow.TypeEqual(d.values.DataType(), t.ValueType) {
		return nil, badf("dictionary %d has values of type %v in place of %v", f.dict, d.values.DataType(), t.ValueType)
	}
	out := array.NewDataWithDictionary(t, n, wrap(valid, data), nulls, 0, d.values.Data().(*array.Data))
	codes := array.NewDictionaryData(out)
	defer codes.Release()
	for i := range n {
		if !isValid(valid, i) {
			continue
		}
		if k := codes.GetValueIndex(i); k < 0 || k >= d.values.Len() {
			return nil, badf("row %d has the code %d of a dictionary with %d values", i, k, d.values.Len())
		}
	}
	return out, nil
}

// offsetsOf returns the offsets of n values, which rise and end within limit.
func (l *loader) offsetsOf(n, width int) (raw []byte, at func(i int) int64, err error) {
	if raw, err = l.raw(); err != nil {
		return nil, nil, err
	}
	if n == 0 && len(raw) < width { // writers may leave out the only offset
		raw = make([]byte, 8)
	}
	if int64(len(raw)) < int64(n+1)*int64(width) {
		return nil, nil, badf("%d values have %d bytes of offsets", n, len(raw))
	}
	if width == 4 {
		numbers := view[int32](raw)
		at = func(i int) int64 { return int64(numbers[i]) }
	} else {
		numbers := view[int64](raw)
		at = func(i int) int64 { return numbers[i] }
	}
	last := int64(0)
	for i := range n + 1 {
		next := at(i)
		if next < last {
			return nil, nil, badf("value %d ends at %d and begins at %d", i-1, next, last)
		}
		last = next
	}
	return raw, at, nil
}

func isText(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		return true
	}
	return false
}

func notText(row int) error { return badf("the text of row %d is not UTF-8", row) }

func (l *loader) strings(t arrow.DataType, n int, valid []byte, nulls, width int) (arrow.ArrayData, error) {
	raw, at, err := l.offsetsOf(n, width)
	if err != nil {
		return nil, err
	}
	data, err := l.buffer(at(n))
	if err != nil {
		return nil, err
	}
	if isText(t) {
		sound := utf8.Valid(data[at(0):at(n)])
		for i := range n {
			from, to := at(i), at(i+1)
			if !isValid(valid, i) || from == to || sound && utf8.RuneStart(data[from]) &&
				(to == at(n) || utf8.RuneStart(data[to])) {
				continue
			}
			if !utf8.Valid(data[from:to]) {
				return nil, notText(i)
			}
		}
	}
	return array.NewData(t, n, wrap(valid, raw, data), nil, nulls, 0), nil
}

// viewInline is the most bytes of a value that a view itself has.
const viewInline = 12

func (l *loader) views(t arrow.DataType, n int, valid []byte, nulls int) (arrow.ArrayData, error) {
	raw, err := l.buffer(16 * int64(n))
	if err != nil {
		return nil, err
	}
	buffers := [][]byte{valid, raw}
	count := l.variadic[l.at.variadic]
	l.at.variadic++
	for range count {
		b, err := l.raw()
		if err != nil {
			return nil, err
		}
		buffers = append(buffers, b)
	}
	for i := range n {
		if !isValid(valid, i) {
			continue
		}
		v := raw[16*i : 16*i+16]
		size := int64(int32(binary.LittleEndian.Uint32(v)))
		var value []byte
		if size >= 0 && size <= viewInline {
			value = v[4 : 4+size]
		} else {
			k, from := int32(binary.LittleEndian.Uint32(v[8:])), int64(int32(binary.LittleEndian.Uint32(v[12:])))
			if size < 0 || k < 0 || int64(k) >= count || from < 0 || from+size > int64(len(buffers[2+k])) {
				return nil, badf("row %d has %d bytes at %d of buffer %d, which do not exist", i, size, from, k)
			}
			value = buffers[2+k][from : from+size]
		}
		if isText(t) && !utf8.Valid(value) {
			return nil, notText(i)
		}
	}
	return array.NewData(t, n, wrap(buffers...), nil, nulls, 0), nil
}

func (l *loader) lists(t arrow.DataType, f *Field, n int, valid []byte, nulls, width int) (arrow.ArrayData, error) {
	raw, at, err := l.offsetsOf(n, width)
	if err != nil {
		return nil, err
	}
	child, err := l.load(t.(arrow.ListLikeType).Elem(), &f.children[0])
	if err != nil {
		return nil, err
	}
	if at(n) > int64(child.Len()) {
		return nil, badf("lists end at element %d of %d", at(n), child.Len())
	}
	if t.ID() == arrow.MAP && child.Children()[0].NullN() > 0 {
		return nil, badf("a key of a map is null")
	}
	return array.NewData(t, n, wrap(valid, raw), []arrow.ArrayData{child}, nulls, 0), nil
}

func (l *loader) listViews(t arrow.DataType, f *Field, n int, valid []byte, nulls, width int) (arrow.ArrayData,
	error) {
	offsets, err := l.buffer(int64(n) * int64(width))
	if err != nil {
		return nil, err
	}
	sizes, err := l.buffer(int64(n) * int64(width))
	if err != nil {
		return nil, err
	}
	child, err := l.load(t.(arrow.ListLikeType).Elem(), &f.children[0])
	if err != nil {
		return nil, err
	}
	for i := range n {
		var from, size int64
		if width == 4 {
			from, size = int64(view[int32](offsets)[i]), int64(view[int32](sizes)[i])
		} else {
			from, size = view[int64](offsets)[i], view[int64](sizes)[i]
		}
		if from < 0 || size < 0 || from > int64(child.Len()) || size > int64(child.Len())-from {
			return nil, badf("the list of row %d has %d elements from %d, of %d", i, size, from, child.Len())
		}
	}
	return array.NewData(t, n, wrap(valid, offsets, sizes), []arrow.ArrayData{child}, nulls, 0), nil
}

func (l *loader) runs(t *arrow.RunEndEncodedType, f *Field) (arrow.ArrayData, error) {
	n, _, _, err := l.next(false)
	if err != nil {
		return nil, err
	}
	ends, err := l.load(t.RunEnds(), &f.children[0])
	if err != nil {
		return nil, err
	}
	values, err := l.load(t.Encoded(), &f.children[1])
	if err != nil {
		return nil, err
	}
	last, raw := int64(0), ends.Buffers()[1].Bytes()
	for i := range ends.Len() {
		var end int64
		switch t.RunEnds().ID() {
		case arrow.INT16:
			end = int64(view[int16](raw)[i])
		case arrow.INT32:
			end = int64(view[int32](raw)[i])
		default:
			end = view[int64](raw)[i]
		}
		if end <= last {
			return nil, badf("run %d ends at row %d, and the run before it at %d", i, end, last)
		}
		last = end
	}
	if ends.NullN() != 0 || last < int64(n) || values.Len() < ends.Len() {
		return nil, badf("%d runs with %d values end at row %d of %d", ends.Len(), values.Len(), last, n)
	}
	return array.NewData(t, n, []*memory.Buffer{nil}, []arrow.ArrayData{ends, values}, 0, 0), nil
}
