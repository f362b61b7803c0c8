package arrow

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
)

// Field is a field of a schema in Arrow's IPC format.
type Field struct {
	// Field has the type of the values, or of the dictionary that has them. The type is nil if there is none in
	// gstream, for the reason Why. Extensions have the type of their storage, and their metadata.
	arrow.Field
	Why      string
	kind     byte // number of the type in the format
	dict     int64
	encoded  bool // by the dictionary
	dense    bool // of a union
	children []Field
}

// The types of the format.
const (
	ipcNull            = 1
	ipcInt             = 2
	ipcFloat           = 3
	ipcBinary          = 4
	ipcUtf8            = 5
	ipcBool            = 6
	ipcDecimal         = 7
	ipcDate            = 8
	ipcTime            = 9
	ipcTimestamp       = 10
	ipcInterval        = 11
	ipcList            = 12
	ipcStruct          = 13
	ipcUnion           = 14
	ipcFixedSizeBinary = 15
	ipcFixedSizeList   = 16
	ipcMap             = 17
	ipcDuration        = 18
	ipcLargeBinary     = 19
	ipcLargeUtf8       = 20
	ipcLargeList       = 21
	ipcRunEndEncoded   = 22
	ipcBinaryView      = 23
	ipcUtf8View        = 24
	ipcListView        = 25
	ipcLargeListView   = 26
)

// The headers of messages.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerRecords    = 3
)

const (
	// maxFields bounds the fields of a schema, those in nested ones included, and maxDepth their nesting.
	maxFields, maxDepth = 1 << 16, 64
	// maxFixed bounds the bytes of a value of fixed size, and the values of a list of fixed size.
	maxFixed = 1 << 24
)

// DecodeSchema reads the fields of a schema that is encoded as a message in base64, as Parquet files have it. It
// returns nil if the schema is damaged.
func DecodeSchema(text string) []Field {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	m, err := messageIn(b)
	if err != nil || m.header != headerSchema {
		return nil
	}
	fields, err := m.schema()
	if err != nil {
		return nil
	}
	return fields
}

// message is the metadata of a message.
type message struct {
	*flat
	header  byte
	table   int // of the header
	version int
	body    int64 // bytes of the body
}

const continuation = 0xFFFFFFFF

// messageIn reads the metadata of a message, with the prefix that has its length.
func messageIn(b []byte) (*message, error) {
	if len(b) >= 8 && binary.LittleEndian.Uint32(b) == continuation {
		b = b[4:] // messages of old versions lack this prefix
	}
	if len(b) < 8 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, badf("the metadata of a message is cut off")
	}
	return messageOf(b[4:])
}

// messageOf reads the metadata of a message.
func messageOf(b []byte) (*message, error) {
	m := &message{flat: newFlat(b)}
	root := int(m.number(0))
	m.version = m.shortOr(root, 0, 0)
	m.header = m.byteAt(m.field(root, 1))
	m.table = m.flat.table(root, 2)
	m.body = m.longOf(root, 3)
	switch {
	case m.bad || m.table == 0 || m.body < 0:
		return nil, badf("the metadata of a message is damaged")
	case m.version < 3:
		return nil, badf("the message has version %d of Arrow's format, which is older than 0.8; write the file again "+
			"with a current version", m.version+1)
	}
	return m, nil
}

// schema returns the fields of a schema.
func (m *message) schema() ([]Field, error) {
	if m.header != headerSchema {
		return nil, badf("the first message is no schema")
	}
	if m.shortOr(m.table, 0, 0) != 0 {
		return nil, badf("the numbers are big-endian, which is not supported; write the file again on a " +
			"little-endian machine")
	}
	left := maxFields
	fields := m.fields(m.field(m.table, 1), 0, &left)
	if m.bad {
		return nil, badf("the schema is damaged, or has more than %d fields or %d levels", maxFields, maxDepth)
	}
	return fields, nil
}

func (m *message) fields(at, depth int, left *int) (out []Field) {
	for _, t := range m.tables(at) {
		if *left--; *left < 0 || depth > maxDepth {
			m.bad = true
		}
		if m.bad {
			return nil
		}
		out = append(out, m.oneField(t, depth, left))
	}
	return out
}

func (m *message) oneField(t, depth int, left *int) Field {
	f := Field{kind: m.byteAt(m.field(t, 2))}
	f.Name, f.Nullable = m.text(m.field(t, 0)), m.byteAt(m.field(t, 1)) != 0
	f.children = m.fields(m.field(t, 5), depth+1, left)
	f.Type, f.Why = m.typeOf(&f, m.flat.table(t, 3))
	if d := m.flat.table(t, 4); d > 0 {
		f.dict, f.encoded = m.longOf(d, 0), true
		index := m.flat.table(d, 1)
		it := intType(m.numberOr(index, 0, 32), index == 0 || m.byteAt(m.field(index, 1)) != 0)
		if it == nil {
			f.Type, f.Why = nil, "the indices of its dictionary have an unknown type"
		}
		if f.Type != nil {
			f.Type = &arrow.DictionaryType{IndexType: it, ValueType: f.Type, Ordered: m.byteAt(m.field(d, 2)) != 0}
		}
	}
	keys, values := []string{}, []string{}
	for _, kv := range m.tables(m.field(t, 6)) {
		if key := m.text(m.field(kv, 0)); key == "ARROW:extension:name" || key == "ARROW:extension:metadata" {
			keys, values = append(keys, key), append(values, m.text(m.field(kv, 1)))
		}
	}
	if len(keys) > 0 {
		f.Metadata = arrow.NewMetadata(keys, values)
	}
	return f
}

func intType(bits int, signed bool) arrow.DataType {
	types := map[int]arrow.DataType{8: arrow.PrimitiveTypes.Uint8, 16: arrow.PrimitiveTypes.Uint16,
		32: arrow.PrimitiveTypes.Uint32, 64: arrow.PrimitiveTypes.Uint64}
	if signed {
		types = map[int]arrow.DataType{8: arrow.PrimitiveTypes.Int8, 16: arrow.PrimitiveTypes.Int16,
			32: arrow.PrimitiveTypes.Int32, 64: arrow.PrimitiveTypes.Int64}
	}
	return types[bits]
}

// plainTypes are the types without parameters.
var plainTypes = map[byte]arrow.DataType{ipcNull: arrow.Null, ipcBinary: arrow.BinaryTypes.Binary,
	ipcUtf8: arrow.BinaryTypes.String, ipcBool: arrow.FixedWidthTypes.Boolean,
	ipcLargeBinary: arrow.BinaryTypes.LargeBinary, ipcLargeUtf8: arrow.BinaryTypes.LargeString,
	ipcBinaryView: arrow.BinaryTypes.BinaryView, ipcUtf8View: arrow.BinaryTypes.StringView}

// typeOf returns the type of a field, whose parameters are in a table, or why there is none.
func (m *message) typeOf(f *Field, t int) (_ arrow.DataType, why string) {
	if plain := plainTypes[f.kind]; plain != nil {
		return plain, ""
	}
	unit := func(i, or int) arrow.TimeUnit { return arrow.TimeUnit(m.shortOr(t, i, or) & 3) }
	for i := range f.children {
		if c := &f.children[i]; c.Type == nil {
			return nil, fmt.Sprintf("field %q: %s", c.Name, c.Why)
		}
	}
	child := func(i int) arrow.DataType { return f.children[i].Type }
	unknown := fmt.Sprintf("its type (number %d of Arrow's format) is unknown or damaged", f.kind)
	children := map[byte]int{ipcList: 1, ipcLargeList: 1, ipcListView: 1, ipcLargeListView: 1, ipcFixedSizeList: 1,
		ipcMap: 1, ipcRunEndEncoded: 2}
	if n, ok := children[f.kind]; ok && len(f.children) != n {
		return nil, unknown
	}
	switch f.kind {
	case ipcInt:
		if it := intType(m.numberOr(t, 0, 0), m.byteAt(m.field(t, 1)) != 0); it != nil {
			return it, ""
		}
	case ipcFloat:
		if p := m.shortOr(t, 0, 0); p <= 2 {
			return []arrow.DataType{arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32,
				arrow.PrimitiveTypes.Float64}[p], ""
		}
	case ipcDecimal:
		precision, scale := m.numberOr(t, 0, 0), m.numberOr(t, 1, 0)
		switch m.numberOr(t, 2, 128) {
		case 128:
			return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(scale)}, ""
		case 256:
			return &arrow.Decimal256Type{Precision: int32(precision), Scale: int32(scale)}, ""
		}
	case ipcDate:
		if m.shortOr(t, 0, 1) == 0 {
			return arrow.FixedWidthTypes.Date32, ""
		}
		return arrow.FixedWidthTypes.Date64, ""
	case ipcTime:
		switch u := unit(0, 1); {
		case u <= arrow.Millisecond && m.numberOr(t, 1, 32) == 32:
			return &arrow.Time32Type{Unit: u}, ""
		case u > arrow.Millisecond && m.numberOr(t, 1, 32) == 64:
			return &arrow.Time64Type{Unit: u}, ""
		}
	case ipcTimestamp:
		return &arrow.TimestampType{Unit: unit(0, 0), TimeZone: m.text(m.field(t, 1))}, ""
	case ipcDuration:
		return &arrow.DurationType{Unit: unit(0, 1)}, ""
	case ipcInterval:
		if u := m.shortOr(t, 0, 0); u <= 2 {
			return []arrow.DataType{arrow.FixedWidthTypes.MonthInterval, arrow.FixedWidthTypes.DayTimeInterval,
				arrow.FixedWidthTypes.MonthDayNanoInterval}[u], ""
		}
	case ipcFixedSizeBinary:
		if n := m.numberOr(t, 0, 0); n >= 0 && n <= maxFixed {
			return &arrow.FixedSizeBinaryType{ByteWidth: n}, ""
		}
	case ipcStruct:
		fields := make([]arrow.Field, len(f.children))
		for i, c := range f.children {
			fields[i] = c.Field
		}
		return arrow.StructOf(fields...), ""
	case ipcList:
		return arrow.ListOfField(f.children[0].Field), ""
	case ipcLargeList:
		return arrow.LargeListOfField(f.children[0].Field), ""
	case ipcListView:
		return arrow.ListViewOfField(f.children[0].Field), ""
	case ipcLargeListView:
		return arrow.LargeListViewOfField(f.children[0].Field), ""
	case ipcFixedSizeList:
		if n := m.numberOr(t, 0, 0); n > 0 && n <= maxFixed {
			return arrow.FixedSizeListOfField(int32(n), f.children[0].Field), ""
		}
		return nil, "its lists have no elements"
	case ipcMap:
		if s, ok := child(0).(*arrow.StructType); ok && s.NumFields() == 2 {
			out := arrow.MapOfWithMetadata(s.Field(0).Type, s.Field(0).Metadata, s.Field(1).Type, s.Field(1).Metadata)
			out.KeysSorted = m.byteAt(m.field(t, 0)) != 0
			return out, ""
		}
	case ipcRunEndEncoded:
		switch child(0).ID() {
		case arrow.INT16, arrow.INT32, arrow.INT64:
			return arrow.RunEndEncodedOf(child(0), child(1)), ""
		}
	case ipcUnion:
		f.dense = m.shortOr(t, 0, 0) == 1
		return nil, "unions are not supported"
	}
	return nil, unknown
}
