package parquet

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// column describes how a field is stored.
type column struct {
	field    gpu.Field
	physical format.Type
	width    int // bytes of a PLAIN value; 0 for Boolean and ByteArray
	// scale converts values in the field's unit to the file's unit. Parquet has no
	// seconds, so they are written as milliseconds.
	scale      int64
	dictionary bool // the column may have one
	bloom      bool // row groups have a Bloom filter of the column
	split      bool // floats that are not codes are streams of bytes; see chooseSplit
	// Of a leaf of a nested column: its path in the schema, and its greatest levels.
	path           []string
	maxDef, maxRep uint8
	interval       bool // of the bytes of an INTERVAL, which have no order
	// Of a nested column: its schema and its leaves.
	node   *node
	leaves []column
}

// newColumn maps a field to Parquet. Decimals are stored as DuckDB and Arrow expect them:
// INT32 up to 9 digits, INT64 up to 18, 16 bytes above.
func newColumn(f gpu.Field) (column, error) {
	c := column{field: f, scale: 1}
	set := func(p format.Type, width int) { c.physical, c.width = p, width }
	t := f.Type
	switch t.Kind {
	case gpu.Bool:
		set(format.Boolean, 0)
	case gpu.Int8, gpu.Int16, gpu.Int32, gpu.Uint8, gpu.Uint16, gpu.Uint32, gpu.Date:
		set(format.Int32, 4)
	case gpu.Int64, gpu.Uint64, gpu.Timestamp:
		set(format.Int64, 8)
	case gpu.Float32:
		set(format.Float, 4)
	case gpu.Float64:
		set(format.Double, 8)
	case gpu.Decimal:
		switch {
		case t.Precision <= 9:
			set(format.Int32, 4)
		case t.Precision <= 18:
			set(format.Int64, 8)
		default:
			set(format.FixedLenByteArray, 16)
		}
	case gpu.Time:
		set(format.Int64, 8)
		if t.Unit <= gpu.Millisecond {
			set(format.Int32, 4)
		}
	case gpu.String, gpu.Binary:
		set(format.ByteArray, 0)
		if c.isUUID() {
			set(format.FixedLenByteArray, 16)
		}
	case gpu.List, gpu.Struct, gpu.Map, gpu.Interval:
		var err error
		c.node, err = c.nestedNode(f, nil, 0, 0)
		return c, err
	default:
		return c, fmt.Errorf("column %q has type %v, which cannot be written to Parquet", f.Name, t)
	}
	if t.Unit == gpu.Second && (t.Kind == gpu.Time || t.Kind == gpu.Timestamp) {
		c.scale = 1000
	}
	return c, nil
}

func (c *column) isUUID() bool {
	return c.field.Type.Kind == gpu.Binary && c.field.Annotation == gpu.UUID
}

// unordered reports whether the format defines no order for the values, so that they have
// no bounds.
func (c *column) unordered() bool {
	_, shapes := c.field.Annotation.Geometry()
	_, _, globe := c.field.Annotation.Geography()
	return shapes || globe || c.interval
}

// element returns the schema element of the column, with the logical type and, for older
// readers, the converted type.
func (c *column) element() format.SchemaElement {
	e := format.SchemaElement{
		Type:           thrift.New(c.physical),
		RepetitionType: thrift.New(format.Required),
		Name:           c.field.Name,
	}
	if c.field.Nullable {
		e.RepetitionType = thrift.New(format.Optional)
	}
	if c.physical == format.FixedLenByteArray {
		e.TypeLength = thrift.New(int32(c.width))
	}
	mark := func(l format.LogicalTypeValue, converted deprecated.ConvertedType) {
		e.LogicalType.Value = l
		e.ConvertedType = thrift.New(converted)
	}
	t, a := c.field.Type, c.field.Annotation
	switch t.Kind {
	case gpu.String:
		switch a {
		case gpu.JSON:
			mark(new(format.JsonType), deprecated.Json)
		case gpu.Enum:
			mark(new(format.EnumType), deprecated.Enum)
		default:
			mark(new(format.StringType), deprecated.UTF8)
		}
	case gpu.Binary:
		if c.interval {
			e.ConvertedType = thrift.New(deprecated.Interval)
		}
		switch a {
		case gpu.UUID:
			e.LogicalType.Value = new(format.UUIDType)
		case gpu.BSON:
			// DuckDB rejects a file with the converted type BSON.
			e.LogicalType.Value = new(format.BsonType)
		}
		if crs, ok := a.Geometry(); ok {
			e.LogicalType.Value = &format.GeometryType{CRS: crs}
		}
		if algorithm, crs, ok := a.Geography(); ok {
			e.LogicalType.Value = &format.GeographyType{CRS: crs,
				Algorithm: format.EdgeInterpolationAlgorithm(algorithm)}
		}
	case gpu.Date:
		mark(new(format.DateType), deprecated.Date)
	case gpu.Decimal:
		mark(&format.DecimalType{Precision: int32(t.Precision), Scale: int32(t.Scale)}, deprecated.Decimal)
		e.Precision, e.Scale = thrift.New(int32(t.Precision)), thrift.New(int32(t.Scale))
	case gpu.Int8, gpu.Int16, gpu.Int32, gpu.Int64:
		if a == gpu.AllNull {
			e.LogicalType.Value = new(format.NullType)
			break
		}
		n := int(t.Kind - gpu.Int8)
		mark(&format.IntType{BitWidth: 8 << n, IsSigned: true}, deprecated.Int8+deprecated.ConvertedType(n))
	case gpu.Uint8, gpu.Uint16, gpu.Uint32, gpu.Uint64:
		n := int(t.Kind - gpu.Uint8)
		mark(&format.IntType{BitWidth: 8 << n}, deprecated.Uint8+deprecated.ConvertedType(n))
	case gpu.Time:
		mark(&format.TimeType{IsAdjustedToUTC: a == gpu.UTC, Unit: timeUnit(t.Unit)}, deprecated.TimeMillis)
		c.convertTime(&e, t, deprecated.TimeMillis, deprecated.TimeMicros, a == gpu.UTC)
	case gpu.Timestamp:
		mark(&format.TimestampType{IsAdjustedToUTC: t.UTC, Unit: timeUnit(t.Unit)}, deprecated.TimestampMillis)
		c.convertTime(&e, t, deprecated.TimestampMillis, deprecated.TimestampMicros, t.UTC)
	}
	return e
}

// convertTime sets the converted type of a time. Converted types mean UTC and have no
// nanoseconds, so other times get none.
func (c *column) convertTime(e *format.SchemaElement, t gpu.Type, millis, micros deprecated.ConvertedType, utc bool) {
	switch {
	case !utc || t.Unit == gpu.Nanosecond:
		e.ConvertedType.Reset()
	case t.Unit == gpu.Microsecond:
		e.ConvertedType = thrift.New(micros)
	default:
		e.ConvertedType = thrift.New(millis)
	}
}

func timeUnit(u gpu.Unit) format.TimeUnit {
	switch u {
	case gpu.Microsecond:
		return format.TimeUnit{Value: new(format.MicroSeconds)}
	case gpu.Nanosecond:
		return format.TimeUnit{Value: new(format.NanoSeconds)}
	}
	return format.TimeUnit{Value: new(format.MilliSeconds)}
}
