package gpu

// Annotation says what the values of a column mean beyond their type, as the file
// declares it. It goes with a column from file to file. Operators and devices ignore it.
type Annotation uint8

// The annotations, each with the kind of column that it applies to.
const (
	NoAnnotation Annotation = iota
	UUID                    // Binary of 16 bytes a value
	BSON                    // Binary
	JSON                    // String
	Enum                    // String
	UTC                     // Time, adjusted to UTC
	AllNull                 // Int32 of nothing but nulls, whose type nobody knows
)

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
	return f.Type.String()
}
