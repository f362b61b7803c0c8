package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// Annotation says what the values of a column mean beyond their type, as the file declares it. It
// is copied with a column from file to file. Operators and devices ignore it.
type Annotation string

// The annotations, each with the kind of column that it applies to.
const (
	NoAnnotation Annotation = ""
	UUID         Annotation = "UUID"    // Binary of 16 bytes per value
	BSON         Annotation = "BSON"    // Binary
	JSON         Annotation = "JSON"    // String
	Enum         Annotation = "ENUM"    // String
	UTC          Annotation = "UTC"     // Time, adjusted to UTC
	AllNull      Annotation = "ALLNULL" // Int32 that contains only nulls, whose type is unknown
)

const (
	geometry  = "GEOMETRY:"
	geography = "GEOGRAPHY:"
)

// Geometry is the annotation of a Binary of shapes in the plane of a coordinate system; "" means
// the default of the format.
func Geometry(crs string) Annotation { return Annotation(geometry + crs) }

// Geography is the annotation of a Binary of shapes on an ellipsoid, whose edges are drawn by
// an algorithm that the format numbers.
func Geography(algorithm int32, crs string) Annotation {
	return Annotation(fmt.Sprintf("%s%d:%s", geography, algorithm, crs))
}

// Geometry returns the coordinate system of Geometry. ok is false for other annotations.
func (a Annotation) Geometry() (crs string, ok bool) {
	return strings.CutPrefix(string(a), geometry)
}

// Geography returns the arguments of Geography. ok is false for other annotations.
func (a Annotation) Geography() (algorithm int32, crs string, ok bool) {
	rest, ok := strings.CutPrefix(string(a), geography)
	number, crs, _ := strings.Cut(rest, ":")
	n, err := strconv.ParseInt(number, 10, 32)
	return int32(n), crs, ok && err == nil
}

// TypeName returns the SQL name of the column's type, with its annotation.
func (f Field) TypeName() string {
	switch f.Annotation {
	case UUID:
		return "UUID"
	case BSON:
		return "BSON"
	case JSON:
		return "JSON"
	case Enum:
		return "ENUM"
	case AllNull:
		return "NULL"
	case UTC:
		return f.Type.String() + " WITH TIME ZONE"
	}
	if _, ok := f.Annotation.Geometry(); ok {
		return "GEOMETRY"
	}
	if _, _, ok := f.Annotation.Geography(); ok {
		return "GEOGRAPHY"
	}
	return f.Type.String()
}
