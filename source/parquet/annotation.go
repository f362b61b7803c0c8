package parquet

import (
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/gstream/gstream/gpu"
)

// maxSystem bounds the description of a coordinate system that is passed on with a column.
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
		// By the specification the converted types of times are in UTC too. But writers
		// that had no other type used them for every time.
		if e.ConvertedType.Valid {
			return convertedAnnotations[e.ConvertedType.V]
		}
	}
	return gpu.NoAnnotation
}

// convertedNull is how old writers mark a column of nothing but nulls.
const convertedNull deprecated.ConvertedType = 24

var convertedAnnotations = map[deprecated.ConvertedType]gpu.Annotation{
	deprecated.Bson: gpu.BSON, deprecated.Json: gpu.JSON, deprecated.Enum: gpu.Enum, convertedNull: gpu.AllNull,
}
