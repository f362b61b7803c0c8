package gpu

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
)

// An ENUM is an unsigned integer type whose values are positions in a list of texts. Its columns have codes of 1, 2 or
// 4 bytes, so operators and devices move, hash, compare and sort it like the integer. The list is in the type, and
// types of the same list are equal.

// EnumOf returns the type of an ENUM of the given texts, of which no two may be equal and at least one is needed. As in
// DuckDB, codes have 1 byte for up to 255 texts, 2 bytes for up to 65,535, and else 4.
func EnumOf(values ...string) Type {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // any list of texts has a form in JSON
	}
	k := Uint8
	switch {
	case len(values) > math.MaxUint16:
		k = Uint32
	case len(values) > math.MaxUint8:
		k = Uint16
	}
	return Type{Kind: k, Enum: string(text)}
}

// IsEnum reports whether the type is an ENUM.
func (t Type) IsEnum() bool { return t.Enum != "" }

// CodeType returns the integer type of the codes of an ENUM.
func (t Type) CodeType() Type { return Of(t.Kind) }

// enumValues has the texts of types that were asked for, by Type.Enum.
var enumValues sync.Map

// EnumValues returns the texts of an ENUM in their order. The caller must not change them.
func (t Type) EnumValues() []string {
	if v, ok := enumValues.Load(t.Enum); ok {
		return v.([]string)
	}
	var values []string
	if json.Unmarshal([]byte(t.Enum), &values) != nil {
		return nil
	}
	enumValues.Store(t.Enum, values)
	return values
}

// EnumText returns the text of a code, or "" for a code that the ENUM does not have.
func (t Type) EnumText(code int64) string {
	if values := t.EnumValues(); code >= 0 && code < int64(len(values)) {
		return values[code]
	}
	return ""
}

// WithoutEnums returns the type with VARCHAR in place of each ENUM.
func (t Type) WithoutEnums() Type {
	switch {
	case t.IsEnum():
		return Of(String)
	case !t.IsComposite() || !t.hasEnums():
		return t
	}
	fields := slices.Clone(t.Children())
	for i := range fields {
		fields[i].Type = fields[i].Type.WithoutEnums()
	}
	return nested(t.Kind, fields...)
}

func (t Type) hasEnums() bool {
	return t.IsEnum() || slices.ContainsFunc(t.Children(), func(f Field) bool { return f.Type.hasEnums() })
}

// enumName returns the SQL name of an ENUM.
func (t Type) enumName() string {
	var b strings.Builder
	b.WriteString("ENUM(")
	for i, v := range t.EnumValues() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("'" + strings.ReplaceAll(v, "'", "''") + "'")
	}
	return b.String() + ")"
}
