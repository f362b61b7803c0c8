package parquet

import (
	"strings"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// maxTypeName bounds the length of the names of nested types.
const maxTypeName = 100

// typeName returns the type of the next subtree of a checked schema in DuckDB's notation. It also
// does so for columns that cannot be read.
func typeName(elements []format.SchemaElement) string {
	w := typeWriter{schemaWalk: schemaWalk{elements: elements}}
	w.write()
	if s := w.b.String(); len(s) <= maxTypeName {
		return s
	}
	return strings.ToValidUTF8(w.b.String()[:maxTypeName], "") + "…"
}

// typeWriter writes types while it walks a schema. After maxTypeName bytes it continues the walk
// without writing.
type typeWriter struct {
	schemaWalk
	b strings.Builder
}

func (w *typeWriter) text(s string) {
	if w.b.Len() <= maxTypeName {
		w.b.WriteString(s)
	}
}

// write writes the type of the next subtree.
func (w *typeWriter) write() {
	e := &w.elements[w.next]
	w.next++
	switch {
	case e.NumChildren.V <= 0:
		w.text(leafName(e))
	case isA(e, new(format.ListType), deprecated.List) && e.NumChildren.V == 1:
		w.item()
	case isA(e, new(format.MapType), deprecated.Map) && e.NumChildren.V == 1 && w.elements[w.next].NumChildren.V == 2:
		w.next++
		w.children(2, "MAP(", false)
	default:
		w.children(int(e.NumChildren.V), "STRUCT(", true)
	}
	if e.RepetitionType.V == format.Repeated {
		w.text("[]")
	}
}

// item writes the element type of a list. The one child of the list is repeated: it is the element
// itself, or a group around the element.
func (w *typeWriter) item() {
	if w.elements[w.next].NumChildren.V != 1 {
		w.write()
		return
	}
	w.next++
	w.write()
	w.text("[]")
}

func (w *typeWriter) children(n int, open string, named bool) {
	w.text(open)
	for i := range n {
		if i > 0 {
			w.text(", ")
		}
		if named {
			w.text(w.elements[w.next].Name + " ")
		}
		w.write()
	}
	w.text(")")
}

func isA(e *format.SchemaElement, l format.LogicalTypeValue, c deprecated.ConvertedType) bool {
	if v := e.LogicalType.Value; v != nil {
		return v.String() == l.String()
	}
	return e.ConvertedType.Valid && e.ConvertedType.V == c
}

// leafName returns the name of a leaf's type, or of a group without children.
func leafName(e *format.SchemaElement) string {
	if !e.Type.Valid {
		return "STRUCT()"
	}
	if t, reason := columnType(e); reason == "" {
		return t.String()
	}
	if l := e.LogicalType.Value; l != nil {
		return l.String()
	}
	if e.ConvertedType.Valid && e.ConvertedType.V == deprecated.Interval {
		return "INTERVAL"
	}
	return e.Type.V.String()
}
