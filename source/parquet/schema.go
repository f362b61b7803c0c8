package parquet

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// maxSchemaDepth bounds the nesting of a schema.
const maxSchemaDepth = 64

// leaf is a column of one file: its SQL type and its storage.
type leaf struct {
	field gpu.Field
	// as is the type of the column in the table. Values are widened to it.
	as gpu.Type
	// constant is the value of all rows if the column is not in the file, and nil otherwise.
	constant *gpu.Scalar
	leaf     int // number of the leaf in the file's schema
	physical format.Type
	length   int // bytes of a FIXED_LEN_BYTE_ARRAY value
	optional bool
	ordered  bool // the file states that bounds are in the order of the type
	// For a decimal in byte arrays that is read as DOUBLE.
	precision, scale int
	// The definition level of a value, and the number of lists around the leaf. They are 0 in a column that is not
	// optional, and 1 and 0 in an optional one.
	maxDef, maxRep uint8
	// node and parts, the leaves, are set in a nested column. It has no physical type.
	node  *nestedNode
	parts []leaf
	// path is set in a column inside of a nested one, which is not a column of the table of its own; see leaf.paths. It
	// begins with the name of the column of the table.
	path []string
}

// widens reports whether the column has another type in the table than in the file.
func (c leaf) widens() bool { return c.as != c.field.Type }

// isWideDecimal reports whether the column has decimals that are read as DOUBLE.
func (c leaf) isWideDecimal() bool { return c.precision > 0 }

// isHalf reports whether the column has 2-byte floats.
func (c leaf) isHalf() bool {
	return c.physical == format.FixedLenByteArray && c.field.Type.Kind == gpu.Float32
}

// signedOrder reports whether the column's type has the order of signed values. The deprecated min
// and max of statistics use this order.
func (c leaf) signedOrder() bool {
	switch c.physical {
	case format.Boolean, format.Int32, format.Int64, format.Float, format.Double:
		return !c.field.Type.IsUnsigned()
	}
	return false
}

// readSchema returns the columns of a schema, then those inside of nested ones, the top-level columns that cannot be
// read, and the number of leaves.
func readSchema(elements []format.SchemaElement) (columns []leaf, refused []source.Unreadable, leaves int, err error) {
	if len(elements) == 0 {
		return nil, nil, 0, badf("the footer has no schema")
	}
	w := schemaWalk{elements: elements, next: 1}
	top := int(elements[0].NumChildren.V)
	if top < 0 || top > len(elements)-1 {
		return nil, nil, 0, badf("the schema claims %d columns in %d elements", top, len(elements)-1)
	}
	names := topNames(elements)
	var inside []leaf
	for i := range top {
		if w.next >= len(elements) {
			return nil, nil, 0, badf("the schema ends early")
		}
		e := &elements[w.next]
		name := names[i]
		first, start := w.leaves, w.next
		if err := w.subtree(0); err != nil {
			return nil, nil, 0, err
		}
		c := leaf{leaf: first, physical: e.Type.V, length: int(e.TypeLength.V),
			optional: e.RepetitionType.V == format.Optional}
		if c.optional {
			c.maxDef = 1
		}
		var t gpu.Type
		var reason string
		nested := e.NumChildren.V > 0 || !e.Type.Valid || e.RepetitionType.V == format.Repeated
		if !nested {
			t, reason = columnType(e)
			nested = t.IsNested() // an INTERVAL
		}
		if nested {
			c, reason = nestedColumn(elements, start, first, name)
		}
		if reason != "" {
			refused = append(refused, source.Unreadable{Name: name, Type: typeName(elements[start:w.next]),
				Reason: reason})
			continue
		}
		if nested {
			columns = append(columns, c)
			inside = append(inside, c.paths()...)
			continue
		}
		c.field = gpu.Field{Name: name, Type: t, Nullable: c.optional, Annotation: annotation(e)}
		c.as = t
		if c.field.Annotation == gpu.AllNull {
			c = allNull(c)
		}
		c.ordered = isOrdered(e)
		if t.Kind == gpu.Float64 && c.physical != format.Double {
			c.precision, c.scale = decimalDigits(e)
		}
		columns = append(columns, c)
	}
	if w.next != len(elements) {
		return nil, nil, 0, badf("the schema has %d elements, its tree %d", len(elements), w.next)
	}
	return append(columns, inside...), refused, w.leaves, nil
}

// allNull returns a column that has only nulls. They are not read from the file.
func allNull(c leaf) leaf {
	c.field.Nullable = true
	n := constantLeaf(c.field, gpu.Null(c.field.Type))
	n.leaf, n.physical, n.length = c.leaf, c.physical, c.length
	return n
}

// namer makes the names of columns unique, as DuckDB does: of three columns a, the second becomes
// a_1 and the third a_2. It maps each name to its number of columns.
type namer map[string]int

func (n namer) name(s string) string {
	k, taken := n[s]
	n[s] = k + 1
	if !taken {
		return s
	}
	return n.name(fmt.Sprintf("%s_%d", s, k))
}

// topNames returns the names of the top-level columns of a schema. A column with an empty name is
// called C and its position, as in DuckDB, because SQL cannot refer to an empty name.
func topNames(elements []format.SchemaElement) (out []string) {
	names, unnamed := namer{}, -1
	next := func(at int) int { // returns the position after a subtree
		for left := 1; left > 0 && at < len(elements); at++ {
			left += int(max(elements[at].NumChildren.V, 0)) - 1
		}
		return at
	}
	for at := 1; at < len(elements); at = next(at) {
		name := names.name(elements[at].Name)
		if name == "" {
			unnamed = len(out)
		}
		out = append(out, name)
	}
	if unnamed >= 0 {
		out[unnamed] = names.name(fmt.Sprintf("C%d", unnamed))
	}
	return out
}

// schemaWalk counts the leaves of a schema tree in depth-first order.
type schemaWalk struct {
	elements     []format.SchemaElement
	next, leaves int
}

func (w *schemaWalk) subtree(depth int) error {
	if w.next >= len(w.elements) {
		return badf("the schema ends early")
	}
	if depth > maxSchemaDepth {
		return badf("the schema is nested more than %d levels deep", maxSchemaDepth)
	}
	e := &w.elements[w.next]
	w.next++
	n := int(e.NumChildren.V)
	if n < 0 || n > len(w.elements)-w.next {
		return badf("column %q claims %d children", e.Name, n)
	}
	if n == 0 {
		// A group without children has no leaf, so it is not a column.
		if e.Type.Valid {
			w.leaves++
		}
		return nil
	}
	for range n {
		if err := w.subtree(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

// columnType returns the type of a flat column, or the reason why it cannot be read. The logical
// type takes precedence over the older converted type, and both over the physical type.
func columnType(e *format.SchemaElement) (t gpu.Type, reason string) {
	physical := e.Type.V
	if l := e.LogicalType.Value; l != nil {
		return logicalType(l, physical, int(e.TypeLength.V))
	}
	if e.ConvertedType.Valid {
		return convertedType(e, physical)
	}
	return physicalType(physical, int(e.TypeLength.V))
}

// isOrdered reports whether the format defines an order for a column.
func isOrdered(e *format.SchemaElement) bool {
	switch e.LogicalType.Value.(type) {
	case *format.GeometryType, *format.GeographyType:
		return false
	}
	return e.Type.V != format.Int96
}

// decimalDigits returns the precision and scale of a decimal column.
func decimalDigits(e *format.SchemaElement) (precision, scale int) {
	if l, ok := e.LogicalType.Value.(*format.DecimalType); ok {
		return int(l.Precision), int(l.Scale)
	}
	return int(e.Precision.V), int(e.Scale.V)
}

// physicalType returns the type of a column that has only a physical type.
func physicalType(physical format.Type, length int) (t gpu.Type, reason string) {
	switch physical {
	case format.Boolean:
		return gpu.Of(gpu.Bool), ""
	case format.Int32:
		return gpu.Of(gpu.Int32), ""
	case format.Int64:
		return gpu.Of(gpu.Int64), ""
	case format.Int96:
		return gpu.TimestampOf(gpu.Microsecond, false), ""
	case format.Float:
		return gpu.Of(gpu.Float32), ""
	case format.Double:
		return gpu.Of(gpu.Float64), ""
	case format.ByteArray:
		return gpu.Of(gpu.Binary), ""
	case format.FixedLenByteArray:
		return fixedBinary(length)
	}
	return t, fmt.Sprintf("its physical type %d is unknown", physical)
}

func fixedBinary(length int) (gpu.Type, string) {
	if length <= 0 || length > 1<<24 {
		return gpu.Type{}, fmt.Sprintf("its values have an impossible length of %d bytes", length)
	}
	return gpu.Of(gpu.Binary), ""
}

func logicalType(l format.LogicalTypeValue, physical format.Type, length int) (gpu.Type, string) {
	mismatch := fmt.Sprintf("%v is not stored as %v", l, physical)
	switch l := l.(type) {
	case *format.StringType, *format.EnumType, *format.JsonType:
		if physical == format.ByteArray {
			return gpu.Of(gpu.String), ""
		}
	case *format.NullType:
		return gpu.Of(gpu.Int32), "" // all values are null
	case *format.Float16Type:
		if physical == format.FixedLenByteArray && length == 2 {
			return gpu.Of(gpu.Float32), ""
		}
	case *format.BsonType, *format.GeometryType, *format.GeographyType:
		if physical == format.ByteArray {
			return gpu.Of(gpu.Binary), ""
		}
	case *format.UUIDType:
		if physical == format.FixedLenByteArray {
			return fixedBinary(length)
		}
	case *format.DateType:
		if physical == format.Int32 {
			return gpu.Of(gpu.Date), ""
		}
	case *format.DecimalType:
		return decimalType(int(l.Precision), int(l.Scale), physical, length)
	case *format.IntType:
		if t, ok := intType(int(l.BitWidth), l.IsSigned); ok && (physical == format.Int64) == (l.BitWidth == 64) &&
			(physical == format.Int32 || physical == format.Int64) {
			return t, ""
		}
	case *format.TimeType:
		if u, ok := unit(l.Unit.Value); ok && (physical == format.Int32 && u == gpu.Millisecond ||
			physical == format.Int64 && u != gpu.Millisecond) {
			return gpu.TimeOf(u), ""
		}
	case *format.TimestampType:
		if u, ok := unit(l.Unit.Value); ok && physical == format.Int64 {
			return gpu.TimestampOf(u, l.IsAdjustedToUTC), ""
		}
	default:
		return gpu.Type{}, fmt.Sprintf("its type %v is not supported", l)
	}
	return gpu.Type{}, mismatch
}

func unit(u format.TimeUnitValue) (gpu.Unit, bool) {
	switch u.(type) {
	case *format.MilliSeconds:
		return gpu.Millisecond, true
	case *format.MicroSeconds:
		return gpu.Microsecond, true
	case *format.NanoSeconds:
		return gpu.Nanosecond, true
	}
	return 0, false
}

func intType(bits int, signed bool) (gpu.Type, bool) {
	kinds := map[int]gpu.Kind{8: gpu.Int8, 16: gpu.Int16, 32: gpu.Int32, 64: gpu.Int64}
	k, ok := kinds[bits]
	if ok && !signed {
		k += gpu.Uint8 - gpu.Int8
	}
	return gpu.Of(k), ok
}

// maxDecimalDigits bounds the precision of decimals that are read. Decimals of more than
// gpu.MaxPrecision digits are read as DOUBLE.
const maxDecimalDigits = 1000

func decimalType(precision, scale int, physical format.Type, length int) (gpu.Type, string) {
	if precision < 1 || precision > maxDecimalDigits || scale < 0 || scale > precision {
		return gpu.Type{}, fmt.Sprintf("DECIMAL(%d,%d) is out of range: at most %d digits", precision, scale,
			maxDecimalDigits)
	}
	switch physical {
	case format.FixedLenByteArray:
		if _, reason := fixedBinary(length); reason != "" {
			return gpu.Type{}, reason
		}
	case format.ByteArray:
	default:
		if precision > gpu.MaxPrecision || physical != format.Int32 && physical != format.Int64 {
			return gpu.Type{}, fmt.Sprintf("DECIMAL(%d,%d) is not stored as %v", precision, scale, physical)
		}
	}
	if precision > gpu.MaxPrecision {
		return gpu.Of(gpu.Float64), ""
	}
	return gpu.DecimalOf(precision, scale), ""
}

// convertedType maps converted types, the annotations of files that predate logical types. By the
// specification their times and timestamps are in UTC.
func convertedType(e *format.SchemaElement, physical format.Type) (gpu.Type, string) {
	c := e.ConvertedType.V
	var l format.LogicalTypeValue
	micros := format.TimeUnit{Value: new(format.MicroSeconds)}
	millis := format.TimeUnit{Value: new(format.MilliSeconds)}
	switch c {
	case convertedNull:
		l = new(format.NullType)
	case deprecated.UTF8:
		l = new(format.StringType)
	case deprecated.Enum:
		l = new(format.EnumType)
	case deprecated.Json:
		l = new(format.JsonType)
	case deprecated.Bson:
		l = new(format.BsonType)
	case deprecated.Date:
		l = new(format.DateType)
	case deprecated.Decimal:
		l = &format.DecimalType{Precision: e.Precision.V, Scale: e.Scale.V}
	case deprecated.TimeMillis:
		l = &format.TimeType{Unit: millis}
	case deprecated.TimeMicros:
		l = &format.TimeType{Unit: micros}
	case deprecated.TimestampMillis:
		l = &format.TimestampType{IsAdjustedToUTC: true, Unit: millis}
	case deprecated.TimestampMicros:
		l = &format.TimestampType{IsAdjustedToUTC: true, Unit: micros}
	case deprecated.Uint8, deprecated.Uint16, deprecated.Uint32, deprecated.Uint64:
		l = &format.IntType{BitWidth: 8 << (c - deprecated.Uint8)}
	case deprecated.Int8, deprecated.Int16, deprecated.Int32, deprecated.Int64:
		l = &format.IntType{BitWidth: 8 << (c - deprecated.Int8), IsSigned: true}
	case deprecated.Interval:
		if physical != format.FixedLenByteArray || e.TypeLength.V != storedInterval {
			return gpu.Type{}, fmt.Sprintf("an INTERVAL is not stored as %v of %d bytes", physical, e.TypeLength.V)
		}
		return gpu.Of(gpu.Interval), ""
	default:
		return gpu.Type{}, fmt.Sprintf("its converted type %d is not supported", c)
	}
	return logicalType(l, physical, int(e.TypeLength.V))
}
