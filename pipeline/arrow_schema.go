package pipeline

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
)

// arrowKey is the metadata key of a file's Arrow schema: a message of Arrow's IPC format in base64,
// with the fields of the file in their order.
const arrowKey = "ARROW:schema"

// arrowField is what the Arrow schema of a file says about a column beyond its Parquet type.
type arrowField struct {
	name     string
	typ      byte   // number of the type in the format
	zone     string // of a timestamp
	index    arrow.DataType
	ordered  bool           // with an index
	metadata arrow.Metadata // of an extension
}

// The types of the format that matter.
const (
	arrowBinary      = 4
	arrowUtf8        = 5
	arrowTimestamp   = 10
	arrowLargeBinary = 19
	arrowLargeUtf8   = 20
)

// arrowFields reads the fields of an encoded Arrow schema. It returns nil if the schema is damaged.
// It allocates nothing for a count that exceeds the text.
func arrowFields(text string) []arrowField {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	if len(b) >= 8 && binary.LittleEndian.Uint32(b) == 0xFFFFFFFF {
		b = b[4:] // messages of old versions lack this prefix
	}
	if len(b) < 8 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil
	}
	f := &flat{b: b[4:], left: 1 << 20}
	message := int(f.number(0))
	if header := f.field(message, 1); header == 0 || f.byteAt(header) != 1 {
		return nil // not a schema
	}
	schema := f.follow(f.field(message, 2))
	var out []arrowField
	for _, t := range f.tables(f.field(schema, 1)) {
		out = append(out, f.arrowField(t))
	}
	if f.bad {
		return nil
	}
	return out
}

func (f *flat) arrowField(t int) arrowField {
	out := arrowField{name: f.text(f.field(t, 0)), typ: f.byteAt(f.field(t, 2))}
	if typ := f.follow(f.field(t, 3)); out.typ == arrowTimestamp {
		out.zone = f.text(f.field(typ, 1))
	}
	if d := f.follow(f.field(t, 4)); d > 0 {
		index := f.follow(f.field(d, 1))
		signed := index == 0 || f.byteAt(f.field(index, 1)) != 0
		bits := uint32(32)
		if at := f.field(index, 0); at > 0 {
			bits = f.number(at)
		}
		out.index = indexType(bits, signed)
		out.ordered = f.byteAt(f.field(d, 2)) != 0
	}
	keys, values := []string{}, []string{}
	for _, kv := range f.tables(f.field(t, 6)) {
		if key := f.text(f.field(kv, 0)); key == "ARROW:extension:name" || key == "ARROW:extension:metadata" {
			keys, values = append(keys, key), append(values, f.text(f.field(kv, 1)))
		}
	}
	if len(keys) > 0 {
		out.metadata = arrow.NewMetadata(keys, values)
	}
	return out
}

func indexType(bits uint32, signed bool) arrow.DataType {
	types := map[uint32]arrow.DataType{8: arrow.PrimitiveTypes.Uint8, 16: arrow.PrimitiveTypes.Uint16,
		32: arrow.PrimitiveTypes.Uint32, 64: arrow.PrimitiveTypes.Uint64}
	if signed {
		types = map[uint32]arrow.DataType{8: arrow.PrimitiveTypes.Int8, 16: arrow.PrimitiveTypes.Int16,
			32: arrow.PrimitiveTypes.Int32, 64: arrow.PrimitiveTypes.Int64}
	}
	return types[bits]
}

// apply adds to an output field what the source field says beyond its type, and reports whether
// there is anything. It ignores types that do not match: the values may have been read as another
// type, or be stored in another way.
func (a *arrowField) apply(f *arrow.Field) bool {
	plain := f.Type
	switch t := f.Type.(type) {
	case *arrow.TimestampType:
		if a.typ == arrowTimestamp && a.zone != "" && t.TimeZone != "" {
			f.Type = &arrow.TimestampType{Unit: t.Unit, TimeZone: a.zone}
		}
	case *arrow.StringType:
		if a.typ != arrowUtf8 && a.typ != arrowLargeUtf8 {
			return false
		}
		if a.typ == arrowLargeUtf8 {
			f.Type = arrow.BinaryTypes.LargeString
		}
		f.Metadata = a.metadata
	case *arrow.BinaryType:
		if a.typ != arrowBinary && a.typ != arrowLargeBinary {
			return false
		}
		if a.typ == arrowLargeBinary {
			f.Type = arrow.BinaryTypes.LargeBinary
		}
		f.Metadata = a.metadata
	default:
		return false
	}
	if a.index != nil && f.Type.ID() != arrow.TIMESTAMP {
		f.Type = &arrow.DictionaryType{IndexType: a.index, ValueType: f.Type, Ordered: a.ordered}
	}
	return f.Metadata.Len() > 0 || !arrow.TypeEqual(plain, f.Type)
}

// arrow returns the Arrow schema of an output. It is the schema of the source if all columns reach
// the output unchanged; otherwise it has what that schema says about the columns that do. It is ""
// if that is nothing, or if the schema is damaged.
func (c *carried) arrow(text string) string {
	fields := arrowFields(text)
	same := func(f arrowField, name string) bool { return f.name == name }
	if c.whole && slices.EqualFunc(fields, c.from, same) {
		return text
	}
	out := ArrowSchema(c.schema).Fields()
	said := false
	for i := range out {
		k := slices.IndexFunc(fields, func(f arrowField) bool { return f.name == c.origin[i] })
		if k < 0 || c.origin[i] == "" {
			continue
		}
		said = fields[k].apply(&out[i]) || said
	}
	if !said {
		return ""
	}
	var b bytes.Buffer
	if ipc.NewWriter(&b, ipc.WithSchema(arrow.NewSchema(out, nil))).Close() != nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// flat reads a FlatBuffer. Anything that is missing has position 0, where no table or value can be.
type flat struct {
	b    []byte
	left int // elements of vectors that may be read
	bad  bool
}

func (f *flat) inside(at, n int) bool {
	if at < 0 || n > len(f.b)-at {
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

// byteAt returns the byte at the position of a field, 0 if the field is missing.
func (f *flat) byteAt(at int) byte {
	if at == 0 || !f.inside(at, 1) {
		return 0
	}
	return f.b[at]
}

// follow returns the position to which a field points, 0 if the field is missing.
func (f *flat) follow(at int) int {
	if at == 0 {
		return 0
	}
	return at + int(f.number(at))
}

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
	if !f.inside(at+4, n) {
		return ""
	}
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
