package parquet

import (
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/gstream/gstream/gpu"
)

// maxSystem bounds the description of a coordinate reference system that is kept with a column.
const maxSystem = 64 << 10

// annotation returns the annotation of a flat column.
func annotation(e *format.SchemaElement) gpu.Annotation {
	switch l := e.LogicalType.Value.(type) {
	case *format.UUIDType:
		if e.TypeLength.V == 16 {
			return gpu.UUID
		}
	case *format.BsonType:
		return gpu.BSON
	case *format.JsonType:
		return gpu.JSON
	case *format.EnumType:
		return gpu.Enum
	case *format.TimeType:
		if l.IsAdjustedToUTC {
			return gpu.UTC
		}
	case *format.GeometryType:
		if len(l.CRS) <= maxSystem {
			return gpu.Geometry(l.CRS)
		}
	case *format.GeographyType:
		if len(l.CRS) <= maxSystem {
			return gpu.Geography(int32(l.Algorithm), l.CRS)
		}
	case *format.NullType:
		return gpu.AllNull
	case nil:
		// The specification says that the converted types of times are in UTC too. But writers of
		// the time had no other type, and used them for every time.
		if e.ConvertedType.Valid {
			return convertedAnnotations[e.ConvertedType.V]
		}
	}
	return gpu.NoAnnotation
}

// convertedNull is the converted type by which old writers mark a column that has only nulls.
const convertedNull deprecated.ConvertedType = 24

var convertedAnnotations = map[deprecated.ConvertedType]gpu.Annotation{
	deprecated.Bson: gpu.BSON, deprecated.Json: gpu.JSON, deprecated.Enum: gpu.Enum, convertedNull: gpu.AllNull,
}
