package gpu

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
)

// A nested value (LIST, STRUCT or MAP) is a string of bytes, behind offsets as in a String column. Operators and
// devices therefore move, hash, compare and sort it like a Binary. The bytes are an encoding of the value that keeps
// the order: comparing bytes compares lists element by element, a shorter list before a longer one, and nulls last, as
// DuckDB does.
//
// The encoding of a value is a tag, and the value after it:
//
//	TagEnd         the end of a list, struct or map
//	TagFixed + k   2^k bytes of an integer, boolean, decimal, date or time, most significant first. The sign bit of
//	               a signed type is inverted.
//	TagFloat32, TagFloat64
//	               a float: with the sign bit inverted if it is positive, else with all bits inverted
//	TagBytes       a string: a zero byte is 0x00 0xFF, the end is 0x00 0x00
//	TagOpen        the encodings of all elements or fields, then TagEnd. An entry of a map is a struct of two fields.
//	TagNull        a null
//
// It tells where each value ends without knowing types.

// The tags.
const (
	TagEnd     = 0x00
	TagFixed   = 0x01
	TagFloat32 = 0x06
	TagFloat64 = 0x07
	TagBytes   = 0x08
	TagOpen    = 0x09
	TagNull    = 0xFF
)

// MaxNesting bounds the depth of a nested type.
const MaxNesting = 64

// PathElements stands in a path of names of fields for the elements of a list. A path has it only where the type is a
// list, so a field of the same name is another thing.
const PathElements = "[]"

// child is a Field of a nested type in the text of Type.Nested. Children is the text of its own type, which Type lacks.
type child struct {
	Name     string `json:",omitempty"`
	Type     Type
	Children json.RawMessage `json:",omitempty"`
}

// ListOf returns the type of lists of a type.
func ListOf(element Type) Type { return nested(List, Field{Type: element}) }

// StructOf returns the type of structs of fields, of which names and types count.
func StructOf(fields ...Field) Type { return nested(Struct, fields...) }

// MapOf returns the type of maps.
func MapOf(key, value Type) Type {
	return nested(Map, Field{Name: "key", Type: key}, Field{Name: "value", Type: value})
}

func nested(k Kind, fields ...Field) Type {
	children := make([]child, len(fields))
	for i, f := range fields {
		if f.Type.Kind == Decimal { // the encoding has the width of the SQL type
			f.Type.Wide = f.Type.Precision > MaxNarrowPrecision
		}
		children[i] = child{Name: f.Name, Type: f.Type}
		if f.Type.IsNested() {
			children[i].Type.Nested, children[i].Children = "", json.RawMessage(f.Type.Nested)
		}
	}
	text, err := json.Marshal(children)
	if err != nil {
		panic(err) // a Type consists of numbers and texts of this form
	}
	return Type{Kind: k, Nested: string(text)}
}

// childrenOf has the children of nested types that were asked for, by Type.Nested.
var childrenOf sync.Map

// Children returns the fields of a STRUCT or INTERVAL, the key and the value of a MAP, and the element of a LIST, which
// has no name. Other types have none. They are nullable, except those of an INTERVAL.
func (t Type) Children() []Field {
	switch {
	case t.Kind == Interval:
		return intervalFields
	case !t.IsNested():
		return nil
	}
	if c, ok := childrenOf.Load(t.Nested); ok {
		return c.([]Field)
	}
	var children []child
	if json.Unmarshal([]byte(t.Nested), &children) != nil {
		return nil
	}
	fields := make([]Field, len(children))
	for i, c := range children {
		c.Type.Nested = string(c.Children)
		fields[i] = Field{Name: c.Name, Type: c.Type, Nullable: true}
	}
	childrenOf.Store(t.Nested, fields)
	return fields
}

// Element returns the type of the elements of a LIST. An element of a MAP is a struct of a key and a value.
func (t Type) Element() Type {
	switch c := t.Children(); {
	case t.Kind == List && len(c) == 1:
		return c[0].Type
	case t.Kind == Map:
		return StructOf(c...)
	}
	return Type{}
}

// IsNested reports whether values are encodings of nested values: those of LIST, STRUCT, MAP and INTERVAL.
func (t Type) IsNested() bool { return t.Kind >= List }

// IsComposite reports whether the type is LIST, STRUCT or MAP, whose values consist of others.
func (t Type) IsComposite() bool { return t.IsNested() && t.Kind != Interval }

// Depth returns the number of nested types in each other, 0 for a type that is not nested.
func (t Type) Depth() (n int) {
	for _, c := range t.Children() {
		n = max(n, c.Type.Depth())
	}
	if t.IsComposite() {
		n++
	}
	return n
}

// TypicalBytes guesses the bytes of a value, to compare types.
func (t Type) TypicalBytes() (n int) {
	switch {
	case t.IsNested():
		for _, c := range t.Children() {
			n += c.Type.TypicalBytes()
		}
		if t.Kind != Struct {
			n *= 4
		}
		return n
	case t.IsVar():
		return 16
	}
	return max(t.Width(), 1)
}

// HasFloats reports whether the type is a float, or has one inside.
func (t Type) HasFloats() bool {
	for _, c := range t.Children() {
		if c.Type.HasFloats() {
			return true
		}
	}
	return t.IsFloat()
}

// nestedName returns the SQL name of a nested type.
func (t Type) nestedName() string {
	c := t.Children()
	switch {
	case t.Kind == List && len(c) == 1:
		return c[0].Type.String() + "[]"
	case t.Kind == Map && len(c) == 2:
		return fmt.Sprintf("MAP(%v, %v)", c[0].Type, c[1].Type)
	}
	var b strings.Builder
	b.WriteString("STRUCT(")
	for i, f := range c {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %v", fieldName(f.Name), f.Type)
	}
	return b.String() + ")"
}

// fieldName returns the name of a field, in quotes unless it consists of small letters, digits and underscores. The
// fields of an entry of a map are keywords of DuckDB, which has them in quotes.
func fieldName(name string) string {
	plain := name != "" && name != "key" && name != "value"
	for i, c := range []byte(name) {
		plain = plain && (c == '_' || c >= 'a' && c <= 'z' || i > 0 && c >= '0' && c <= '9')
	}
	if plain {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// OpenNested begins the encoding of a list, struct or map. The encodings of its elements and CloseNested follow.
func OpenNested(b []byte) []byte { return append(b, TagOpen) }

// CloseNested ends the encoding of a list, struct or map.
func CloseNested(b []byte) []byte { return append(b, TagEnd) }

// AppendNull appends the encoding of a null.
func AppendNull(b []byte) []byte { return append(b, TagNull) }

// AppendFixed appends the encoding of a value of a type of fixed width that is not a float. A Bool has 1 byte.
func AppendFixed(b []byte, t Type, v Int128) []byte {
	width := max(t.Width(), 1)
	if !t.IsUnsigned() && t.Kind != Bool {
		if width == 16 {
			v.Hi ^= math.MinInt64
		} else {
			v.Lo ^= 1 << (8*width - 1)
		}
	}
	switch width {
	case 1:
		return append(b, TagFixed, byte(v.Lo))
	case 2:
		return binary.BigEndian.AppendUint16(append(b, TagFixed+1), uint16(v.Lo))
	case 4:
		return binary.BigEndian.AppendUint32(append(b, TagFixed+2), uint32(v.Lo))
	case 8:
		return binary.BigEndian.AppendUint64(append(b, TagFixed+3), v.Lo)
	}
	b = binary.BigEndian.AppendUint64(append(b, TagFixed+4), uint64(v.Hi))
	return binary.BigEndian.AppendUint64(b, v.Lo)
}

// AppendFloat32 appends the encoding of a float. All NaNs have the same one.
func AppendFloat32(b []byte, v float32) []byte {
	bits := math.Float32bits(v)
	switch {
	case v != v:
		bits = 0x7FC00000 | 1<<31
	case bits>>31 != 0:
		bits = ^bits
	default:
		bits |= 1 << 31
	}
	return binary.BigEndian.AppendUint32(append(b, TagFloat32), bits)
}

// AppendFloat64 is AppendFloat32 of a DOUBLE.
func AppendFloat64(b []byte, v float64) []byte {
	bits := math.Float64bits(v)
	switch {
	case v != v:
		bits = 0x7FF8<<48 | 1<<63
	case bits>>63 != 0:
		bits = ^bits
	default:
		bits |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(append(b, TagFloat64), bits)
}

// AppendBytes appends the encoding of a String or Binary.
func AppendBytes[T string | []byte](b []byte, s T) []byte {
	b = append(b, TagBytes)
	for {
		i := zero(s)
		if i < 0 {
			return append(append(b, s...), 0, 0)
		}
		b = append(append(b, s[:i+1]...), 0xFF)
		s = s[i+1:]
	}
}

// AppendScalar appends the encoding of a value or null.
func AppendScalar(b []byte, s Scalar) []byte {
	switch t := s.Type; {
	case !s.Valid:
		return AppendNull(b)
	case t.IsNested():
		return append(b, s.Str...)
	case t.IsVar():
		return AppendBytes(b, s.Str)
	case t.Kind == Float32:
		return AppendFloat32(b, float32(s.Float))
	case t.Kind == Float64:
		return AppendFloat64(b, s.Float)
	default:
		return AppendFixed(b, t, s.Int)
	}
}

// AppendStored appends the bytes that a column of fixed width has for a value. A Bool has 1 byte.
func AppendStored(b []byte, s Scalar) []byte {
	switch s.Type.Kind {
	case Float32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(s.Float)))
	case Float64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(s.Float))
	}
	var all [16]byte
	binary.LittleEndian.PutUint64(all[:], s.Int.Lo)
	binary.LittleEndian.PutUint64(all[8:], uint64(s.Int.Hi))
	return append(b, all[:max(s.Type.Width(), 1)]...)
}

// IsNullNested reports whether an encoding is that of a null.
func IsNullNested(value string) bool { return value != "" && value[0] == TagNull }

// zero returns the position of the first zero byte, or -1.
func zero[T string | []byte](s T) int {
	switch s := any(s).(type) {
	case []byte:
		return bytes.IndexByte(s, 0)
	case string:
		return strings.IndexByte(s, 0)
	}
	return -1
}

// SkipNested returns the length of the encoding at the start of b. It is len(b) if the encoding does not end, so that
// wrong bytes lead to wrong values and not to a panic.
func SkipNested[T string | []byte](b T) int {
	depth := 0
	for i := 0; i < len(b); {
		tag := b[i]
		i++
		switch {
		case tag == TagEnd:
			depth--
		case tag < TagFloat32:
			i += 1 << (tag - TagFixed)
		case tag == TagFloat32:
			i += 4
		case tag == TagFloat64:
			i += 8
		case tag == TagBytes:
			for {
				k := zero(b[min(i, len(b)):])
				if k < 0 {
					return len(b)
				}
				if i += k + 2; i > len(b) || b[i-1] == 0 {
					break
				}
			}
		case tag == TagOpen:
			depth++
		}
		if depth <= 0 {
			return min(i, len(b))
		}
	}
	return len(b)
}

// NextNested returns the encoding of the first element of the elements of a list, struct or map, and the rest. ok is
// false if there is none. The elements of a value are what follows its first byte.
func NextNested(elements string) (first, rest string, ok bool) {
	if elements == "" || elements[0] == TagEnd {
		return "", "", false
	}
	n := SkipNested(elements)
	return elements[:n], elements[n:], true
}

// ElementsNested returns the elements of the encoding of a list, struct or map, for NextNested.
func ElementsNested(value string) string {
	if value == "" || value[0] != TagOpen {
		return ""
	}
	return value[1:]
}

// ScalarNested returns the value of an encoding, which has that type.
func ScalarNested(value string, t Type) Scalar {
	if value == "" || value[0] == TagNull || value[0] == TagEnd {
		return Null(t)
	}
	s := Scalar{Type: t, Valid: true}
	tag, rest := value[0], value[1:]
	switch {
	case t.IsNested():
		s.Str = value[:SkipNested(value)]
	case tag == TagBytes:
		s.Str = BytesNested(rest)
	case tag == TagFloat32 && len(rest) >= 4:
		s.Float = float64(float32Of(binary.BigEndian.Uint32([]byte(rest[:4]))))
	case tag == TagFloat64 && len(rest) >= 8:
		s.Float = float64Of(binary.BigEndian.Uint64([]byte(rest[:8])))
	case tag >= TagFixed && tag < TagFloat32 && len(rest) >= 1<<(tag-TagFixed):
		s.Int = fixedOf(rest[:1<<(tag-TagFixed)], t)
	}
	return s
}

// BytesNested returns the string whose encoding, without its tag, is at the start of a text. The result shares the
// memory of the text unless it has zero bytes.
func BytesNested(rest string) string {
	i := strings.IndexByte(rest, 0)
	if i < 0 || i+1 >= len(rest) || rest[i+1] == 0 {
		return rest[:max(i, 0)]
	}
	var b strings.Builder
	for i >= 0 && i+1 < len(rest) && rest[i+1] != 0 {
		b.WriteString(rest[:i+1])
		rest = rest[i+2:]
		i = strings.IndexByte(rest, 0)
	}
	b.WriteString(rest[:max(i, 0)])
	return b.String()
}

func fixedOf(b string, t Type) Int128 {
	var v Int128
	for i := range len(b) {
		v.Hi = v.Hi<<8 | int64(v.Lo>>56)
		v.Lo = v.Lo<<8 | uint64(b[i])
	}
	if t.IsUnsigned() || t.Kind == Bool {
		return v
	}
	if len(b) == 16 {
		v.Hi ^= math.MinInt64
		return v
	}
	shift := 64 - 8*len(b)
	return Int128From(int64((v.Lo^1<<(8*len(b)-1))<<shift) >> shift)
}

func float32Of(bits uint32) float32 {
	if bits>>31 != 0 {
		return math.Float32frombits(bits &^ (1 << 31))
	}
	return math.Float32frombits(^bits)
}

func float64Of(bits uint64) float64 {
	if bits>>63 != 0 {
		return math.Float64frombits(bits &^ (1 << 63))
	}
	return math.Float64frombits(^bits)
}

// formatNested appends the text of a nested value, as DuckDB prints it.
func formatNested(b *strings.Builder, s Scalar) {
	children := s.Type.Children()
	open, end := "[", "]"
	switch s.Type.Kind {
	case Struct, Map:
		open, end = "{", "}"
	}
	b.WriteString(open)
	rest := ElementsNested(s.Str)
	for i := 0; ; i++ {
		var value string
		var ok bool
		if value, rest, ok = NextNested(rest); !ok {
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		switch {
		case s.Type.Kind == Struct && i < len(children):
			b.WriteString("'" + strings.ReplaceAll(children[i].Name, "'", "\\'") + "': ")
			formatElement(b, ScalarNested(value, children[i].Type))
		case s.Type.Kind == Map && len(children) == 2:
			key, entry, _ := NextNested(ElementsNested(value))
			formatElement(b, ScalarNested(key, children[0].Type))
			b.WriteByte('=')
			value, _, _ = NextNested(entry)
			formatElement(b, ScalarNested(value, children[1].Type))
		case s.Type.Kind == List && len(children) == 1:
			formatElement(b, ScalarNested(value, children[0].Type))
		}
	}
	b.WriteString(end)
}

// formatElement appends the text of a value inside of a nested one. A text with special characters is in quotes.
func formatElement(b *strings.Builder, s Scalar) {
	if s.Type.IsComposite() && s.Valid {
		formatNested(b, s)
		return
	}
	text := s.String()
	if s.Valid && s.Type.Kind == Binary {
		text = blobText(s.Str)
	}
	if !s.Valid || !quotesElement(text) {
		b.WriteString(text)
		return
	}
	b.WriteByte('\'')
	for i := range len(text) {
		if text[i] == '\'' || text[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	b.WriteByte('\'')
}

// blobText returns the text of bytes: what is not a plain character as \xHH.
func blobText(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '\\' || c == '\'' || c == '"' {
			fmt.Fprintf(&b, "\\x%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func quotesElement(text string) bool {
	return text == "" || strings.EqualFold(text, "null") || strings.ContainsAny(text, "\"'(),:=[]{}\\") ||
		isSpace(text[0]) || isSpace(text[len(text)-1])
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
