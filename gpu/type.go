package gpu

import (
	"fmt"
	"math"
	"strings"
)

// MaxRows is the largest number of rows that 32-bit row ids can address. It bounds the
// rows of a stride, of a join's build side and of the input of Sort, and the groups of a
// group-by.
const MaxRows = math.MaxInt32 - 1

// Kind is the family of a column type.
type Kind uint8

// The kinds of column types.
const (
	Invalid   Kind = iota
	Bool           // bitmap
	Int8           // 1 byte, two's complement
	Int16          // 2 bytes
	Int32          // 4 bytes
	Int64          // 8 bytes
	Uint8          // 1 byte
	Uint16         // 2 bytes
	Uint32         // 4 bytes
	Uint64         // 8 bytes
	HugeInt        // 16 bytes, two's complement; DECIMAL(38,0) in Parquet and Arrow
	Float32        // IEEE 754 binary32
	Float64        // IEEE 754 binary64
	Decimal        // scaled integer, 8 bytes, or 16 when Type.Wide is set
	Date           // int32 days since 1970-01-01
	Time           // int64 units since midnight
	Timestamp      // int64 units since 1970-01-01T00:00:00
	String         // UTF-8 bytes behind int32 offsets
	Binary         // bytes behind int32 offsets
	List           // values of one type; the bytes of an encoding, as all nested types (nested.go)
	Struct         // a value of each of its fields
	Map            // pairs of a key and a value
	Interval       // months, days and microseconds; a nested value too (interval.go)
)

// Unit is the resolution of a Time or Timestamp.
type Unit uint8

// The resolutions, coarsest first.
const (
	Second Unit = iota
	Millisecond
	Microsecond
	Nanosecond
)

// PerSecond returns the number of units in a second.
func (u Unit) PerSecond() int64 {
	return [...]int64{1, 1e3, 1e6, 1e9}[u]
}

// PerDay returns the number of units in a day.
func (u Unit) PerDay() int64 { return 86400 * u.PerSecond() }

// Digits returns the number of digits of a fraction of a second.
func (u Unit) Digits() int { return 3 * int(u) }

// MaxNarrowPrecision is the largest decimal precision for which every value fits 8 bytes.
const MaxNarrowPrecision = 18

// MaxPrecision is the largest decimal precision.
const MaxPrecision = 38

// Type is the type of a column. Types for which SameSQL holds are the same SQL type. Types that are
// equal with == also have the same layout.
type Type struct {
	Kind Kind
	// Unit is the resolution of Time and Timestamp, Second otherwise.
	Unit Unit `json:",omitzero"`
	// UTC marks a Timestamp as an instant (TIMESTAMP WITH TIME ZONE) rather
	// than a local date and time.
	UTC bool `json:",omitzero"`
	// Precision is the number of digits of a decimal, Scale the number of those after the
	// point.
	Precision uint8 `json:",omitzero"`
	Scale     uint8 `json:",omitzero"`
	// Wide says that values take 16 bytes. A HugeInt is always wide. For a Decimal, Wide is a
	// property of the storage and not of the SQL type: the planner stores a decimal of more than 18
	// digits in 8 bytes if it can prove that its values fit.
	Wide bool `json:",omitzero"`
	// Nested describes the children of a LIST, STRUCT or MAP; see Children. The same children have the same text.
	Nested string `json:",omitzero"`
	// Enum lists the texts of an ENUM, whose Kind is that of its codes; see EnumOf.
	Enum string `json:",omitzero"`
}

// Of returns the type of a kind that needs no parameters.
func Of(k Kind) Type { return Type{Kind: k, Wide: k == HugeInt} }

// DecimalOf returns DECIMAL(precision, scale), stored in 8 bytes up to 18
// digits and in 16 bytes above.
func DecimalOf(precision, scale int) Type {
	return Type{Kind: Decimal, Precision: uint8(precision), Scale: uint8(scale), Wide: precision > MaxNarrowPrecision}
}

// TimestampOf returns a timestamp of the given resolution.
func TimestampOf(u Unit, utc bool) Type { return Type{Kind: Timestamp, Unit: u, UTC: utc} }

// TimeOf returns a time of day of the given resolution.
func TimeOf(u Unit) Type { return Type{Kind: Time, Unit: u} }

// Width returns the bytes of one value, 0 for Bool (bits), String, Binary and nested types.
func (t Type) Width() int {
	switch t.Kind {
	case Int8, Uint8:
		return 1
	case Int16, Uint16:
		return 2
	case Int32, Uint32, Float32, Date:
		return 4
	case Int64, Uint64, Float64, Time, Timestamp:
		return 8
	case HugeInt:
		return 16
	case Decimal:
		if t.Wide {
			return 16
		}
		return 8
	}
	return 0
}

// IsInteger reports whether the type is one of the nine integer types. An ENUM is not.
func (t Type) IsInteger() bool { return t.Kind >= Int8 && t.Kind <= HugeInt && !t.IsEnum() }

// IsSigned reports whether the type is a signed integer type.
func (t Type) IsSigned() bool { return t.Kind >= Int8 && t.Kind <= Int64 || t.Kind == HugeInt }

// IsUnsigned reports whether values are stored as unsigned integers: those of these types, and of an ENUM.
func (t Type) IsUnsigned() bool { return t.Kind >= Uint8 && t.Kind <= Uint64 }

// IsFloat reports whether the type is a floating-point type.
func (t Type) IsFloat() bool { return t.Kind == Float32 || t.Kind == Float64 }

// IsNumeric reports whether arithmetic is defined on the type.
func (t Type) IsNumeric() bool { return t.IsInteger() || t.IsFloat() || t.Kind == Decimal }

// IsVar reports whether values are bytes behind offsets: strings, BLOBs and nested values.
func (t Type) IsVar() bool { return t.Kind >= String }

// SameSQL reports whether two types are the same SQL type, whatever their storage.
func (t Type) SameSQL(u Type) bool {
	t.Wide, u.Wide = false, false
	return t == u
}

// Bounds returns the least and the greatest value of an integer-like type: integers,
// decimals, and finite dates and times as numbers of units.
func (t Type) Bounds() (lo, hi Int128) {
	switch t.Kind {
	case Decimal:
		hi, _ = Pow10(int(t.Precision)).Sub(Int128From(1))
		if !t.Wide && !hi.IsInt64() {
			return Int128From(math.MinInt64), Int128From(math.MaxInt64)
		}
		return hi.Neg(), hi
	case Uint8, Uint16, Uint32, Uint64:
		return Int128{}, Int128FromUint(math.MaxUint64 >> (64 - 8*t.Width()))
	case HugeInt:
		return Int128{Hi: math.MinInt64}, Int128{Lo: math.MaxUint64, Hi: math.MaxInt64}
	case Date, Timestamp:
		hi = Int128From(t.Infinity() - 1)
		if lo = hi.Neg(); t.Kind == Timestamp && t.Unit == Microsecond {
			lo = Int128From(-9_223_372_022_400_000_000) // DuckDB's first whole day
		}
		return lo, hi
	}
	lo = Int128From(math.MinInt64 >> (64 - 8*t.Width()))
	hi, _ = Int128From(-1).Sub(lo)
	return lo, hi
}

// Infinity returns the number that stands for 'infinity' in a Date or Timestamp, as in
// DuckDB. Its negative is '-infinity'. For other types it is 0: they have no infinity.
func (t Type) Infinity() int64 {
	switch t.Kind {
	case Date:
		return math.MaxInt32
	case Timestamp:
		return math.MaxInt64
	}
	return 0
}

// HashBits returns the width of the integers that represent the values of a type in DuckDB, from
// which OpHash computes. It is at least 32.
func (t Type) HashBits() int {
	switch {
	case t.Kind == Decimal && t.Precision <= 9:
		return 32
	case t.Kind == Decimal && t.Precision > MaxNarrowPrecision:
		return 128
	case t.Kind == Decimal:
		return 64
	}
	return max(8*t.Width(), 32)
}

// IsInfinite reports whether v is 'infinity' or '-infinity' as a value of the type.
func (t Type) IsInfinite(v int64) bool {
	inf := t.Infinity()
	return inf != 0 && (v == inf || v == -inf)
}

// ExpectedText returns the end of an error about the text of a date or time: the expected form. It
// is empty for other types.
func (t Type) ExpectedText() string {
	switch t.Kind {
	case Date:
		return ", expected YYYY-MM-DD"
	case Timestamp:
		return ", expected YYYY-MM-DD HH:MM:SS"
	case Time:
		return ", expected HH:MM:SS"
	}
	return ""
}

// String returns the SQL name of the type.
func (t Type) String() string {
	if t.IsEnum() {
		return t.enumName()
	}
	switch t.Kind {
	case Bool:
		return "BOOLEAN"
	case Int8:
		return "TINYINT"
	case Int16:
		return "SMALLINT"
	case Int32:
		return "INTEGER"
	case Int64:
		return "BIGINT"
	case Uint8:
		return "UTINYINT"
	case Uint16:
		return "USMALLINT"
	case Uint32:
		return "UINTEGER"
	case Uint64:
		return "UBIGINT"
	case HugeInt:
		return "HUGEINT"
	case Float32:
		return "FLOAT"
	case Float64:
		return "DOUBLE"
	case Decimal:
		return fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale)
	case Date:
		return "DATE"
	case Time:
		return "TIME" + t.Unit.suffix()
	case Timestamp:
		if t.UTC {
			return "TIMESTAMP" + t.Unit.suffix() + " WITH TIME ZONE"
		}
		return "TIMESTAMP" + t.Unit.suffix()
	case String:
		return "VARCHAR"
	case Binary:
		return "BLOB"
	case Interval:
		return "INTERVAL"
	case List, Struct, Map:
		return t.nestedName()
	}
	return "INVALID"
}

func (u Unit) suffix() string {
	return [...]string{"_S", "_MS", "", "_NS"}[u]
}

// Field is a named column of a schema.
type Field struct {
	Name       string
	Type       Type
	Nullable   bool
	Annotation Annotation
}

// Schema is an ordered list of fields. It is immutable once it is shared.
type Schema struct{ Fields []Field }

// NewSchema returns a schema of the given fields.
func NewSchema(fields ...Field) *Schema { return &Schema{Fields: fields} }

// Len returns the number of columns.
func (s *Schema) Len() int { return len(s.Fields) }

// RowBytes returns the width of a row. Strings count as 16 bytes, a Bool as 0.
func (s *Schema) RowBytes() (n int) {
	for _, f := range s.Fields {
		if f.Type.IsVar() {
			n += 16
		}
		n += f.Type.Width()
	}
	return n
}

// Index returns the position of the column with the given name, or -1. An exact match has priority
// over one that differs in ASCII case, as in DuckDB.
func (s *Schema) Index(name string) int {
	for i, f := range s.Fields {
		if f.Name == name {
			return i
		}
	}
	for i, f := range s.Fields {
		if strings.EqualFold(f.Name, name) {
			return i
		}
	}
	return -1
}

// Names returns the column names in order.
func (s *Schema) Names() []string {
	names := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		names[i] = f.Name
	}
	return names
}
