package arrow

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/gstream/gstream/gpu"
)

// Schema returns the Arrow schema of a gstream schema.
func Schema(s *gpu.Schema) *arrow.Schema {
	fields := make([]arrow.Field, s.Len())
	for i, f := range s.Fields {
		fields[i] = arrow.Field{Name: f.Name, Type: arrowType(f.Type), Nullable: f.Nullable}
	}
	return arrow.NewSchema(fields, nil)
}

var arrowTypes = map[gpu.Kind]arrow.DataType{
	gpu.Bool: arrow.FixedWidthTypes.Boolean,
	gpu.Int8: arrow.PrimitiveTypes.Int8, gpu.Int16: arrow.PrimitiveTypes.Int16, gpu.Int32: arrow.PrimitiveTypes.Int32,
	gpu.Int64: arrow.PrimitiveTypes.Int64,
	gpu.Uint8: arrow.PrimitiveTypes.Uint8, gpu.Uint16: arrow.PrimitiveTypes.Uint16,
	gpu.Uint32: arrow.PrimitiveTypes.Uint32, gpu.Uint64: arrow.PrimitiveTypes.Uint64,
	gpu.Float32: arrow.PrimitiveTypes.Float32, gpu.Float64: arrow.PrimitiveTypes.Float64,
	gpu.Interval: arrow.FixedWidthTypes.MonthDayNanoInterval,
	gpu.Date:     arrow.FixedWidthTypes.Date32, gpu.String: arrow.BinaryTypes.String,
	gpu.Binary: arrow.BinaryTypes.Binary,
}

var arrowUnits = map[gpu.Unit]arrow.TimeUnit{gpu.Second: arrow.Second, gpu.Millisecond: arrow.Millisecond,
	gpu.Microsecond: arrow.Microsecond, gpu.Nanosecond: arrow.Nanosecond}

// arrowType returns the Arrow type of a column. Decimals have 128 bits, whatever their storage.
// Times have 64 bits, except milliseconds and seconds, for which Arrow has only 32 bits.
// An ENUM is a dictionary of its texts, in their order.
func arrowType(t gpu.Type) arrow.DataType {
	if t.IsEnum() {
		return &arrow.DictionaryType{IndexType: arrowTypes[t.Kind], ValueType: arrow.BinaryTypes.String, Ordered: true}
	}
	switch t.Kind {
	case gpu.Decimal:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}
	case gpu.Time:
		if t.Unit <= gpu.Millisecond {
			return &arrow.Time32Type{Unit: arrowUnits[t.Unit]}
		}
		return &arrow.Time64Type{Unit: arrowUnits[t.Unit]}
	case gpu.Timestamp:
		ts := &arrow.TimestampType{Unit: arrowUnits[t.Unit]}
		if t.UTC {
			ts.TimeZone = "UTC"
		}
		return ts
	case gpu.List, gpu.Struct, gpu.Map:
		return nestedArrowType(t)
	}
	return arrowTypes[t.Kind]
}

// typeOfArrow returns the column type that holds the values of an Arrow type:
//
//	large and view strings                         strings
//	fixed-size binaries                            binaries
//	half floats                                    floats
//	intervals of all kinds, durations              intervals
//	nulls without a type                           integers
//	dictionaries, run-end encodings, extensions    the type of their values
//	large lists, list views, fixed-size lists      lists
func typeOfArrow(t arrow.DataType) (gpu.Type, error) {
	unit := func(u arrow.TimeUnit) gpu.Unit { return gpu.Unit(u) }
	if nested, ok, err := nestedTypeOfArrow(t); ok {
		return nested, err
	}
	switch t := t.(type) {
	case *arrow.Decimal128Type:
		if t.Scale < 0 || t.Scale > t.Precision || t.Precision < 1 || t.Precision > gpu.MaxPrecision {
			return gpu.Type{},
				fmt.Errorf("decimal of precision %d and scale %d; the scale must be between 0 and the precision, and "+
					"that at most 38", t.Precision, t.Scale)
		}
		return gpu.DecimalOf(int(t.Precision), int(t.Scale)), nil
	case *arrow.Time32Type:
		return gpu.TimeOf(unit(t.Unit)), nil
	case *arrow.Time64Type:
		return gpu.TimeOf(unit(t.Unit)), nil
	case *arrow.TimestampType:
		return gpu.TimestampOf(unit(t.Unit), t.TimeZone != ""), nil
	case *arrow.DictionaryType:
		return typeOfArrow(t.ValueType)
	case *arrow.RunEndEncodedType:
		return typeOfArrow(t.Encoded())
	case arrow.ExtensionType:
		return typeOfArrow(t.StorageType())
	case *arrow.Decimal256Type:
		if t.Precision > gpu.MaxPrecision {
			return gpu.Type{}, fmt.Errorf("decimal of precision %d; it must be at most %d", t.Precision,
				gpu.MaxPrecision)
		}
		return typeOfArrow(&arrow.Decimal128Type{Precision: t.Precision, Scale: t.Scale})
	}
	if isInterval(t) {
		return gpu.Of(gpu.Interval), nil
	}
	switch t.ID() {
	case arrow.NULL:
		return gpu.Of(gpu.Int32), nil
	case arrow.FLOAT16:
		return gpu.Of(gpu.Float32), nil
	case arrow.DATE64:
		return gpu.Of(gpu.Date), nil
	case arrow.LARGE_STRING, arrow.STRING_VIEW:
		return gpu.Of(gpu.String), nil
	case arrow.LARGE_BINARY, arrow.BINARY_VIEW, arrow.FIXED_SIZE_BINARY:
		return gpu.Of(gpu.Binary), nil
	}
	for kind, at := range arrowTypes {
		if arrow.TypeEqual(at, t) {
			return gpu.Of(kind), nil
		}
	}
	return gpu.Type{}, fmt.Errorf("type %v is not supported", t)
}

// SchemaOf returns the schema that holds records of an Arrow schema.
func SchemaOf(s *arrow.Schema) (*gpu.Schema, error) {
	out := &gpu.Schema{}
	for _, f := range s.Fields() {
		field, err := columnField(f)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		out.Fields = append(out.Fields, field)
	}
	return out, nil
}

// columnField returns the column that has the values of an Arrow field.
func columnField(f arrow.Field) (gpu.Field, error) {
	t, err := typeOfArrow(f.Type)
	field := gpu.Field{Name: f.Name, Type: t, Nullable: f.Nullable}
	if f.Type.ID() == arrow.NULL {
		field.Nullable, field.Annotation = true, gpu.AllNull
	}
	return field, err
}
