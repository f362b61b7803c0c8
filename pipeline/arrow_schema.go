package pipeline

import (
	"bytes"
	"encoding/base64"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	sourcearrow "github.com/gstream/gstream/source/arrow"
)

// arrowKey is the metadata key of a file's Arrow schema: a message of Arrow's IPC format in base64,
// with the fields of the file in their order.
const arrowKey = "ARROW:schema"

// annotate adds to an output field what the source field says beyond its type, and reports whether
// there is anything. It ignores types that do not match: the values may have been read as another
// type, or be stored in another way.
func annotate(f *arrow.Field, from sourcearrow.Field) bool {
	plain, said := f.Type, from.Type
	index, encoded := said.(*arrow.DictionaryType)
	if encoded {
		said = index.ValueType
	}
	switch t := f.Type.(type) {
	case *arrow.TimestampType:
		if ts, ok := said.(*arrow.TimestampType); ok && ts.TimeZone != "" && t.TimeZone != "" {
			f.Type = &arrow.TimestampType{Unit: t.Unit, TimeZone: ts.TimeZone}
		}
		return !arrow.TypeEqual(plain, f.Type)
	case *arrow.StringType:
		if said != arrow.BinaryTypes.String && said != arrow.BinaryTypes.LargeString {
			return false
		}
	case *arrow.BinaryType:
		if said != arrow.BinaryTypes.Binary && said != arrow.BinaryTypes.LargeBinary {
			return false
		}
	default:
		return false
	}
	if f.Type, f.Metadata = said, from.Metadata; encoded {
		f.Type = index
	}
	return f.Metadata.Len() > 0 || !arrow.TypeEqual(plain, f.Type)
}

// arrow returns the Arrow schema of an output. It is the schema of the source if all columns reach
// the output unchanged; otherwise it has what that schema says about the columns that do. It is ""
// if that is nothing, or if the schema is damaged.
func (c *carried) arrow(text string) string {
	fields := sourcearrow.DecodeSchema(text)
	same := func(f sourcearrow.Field, name string) bool { return f.Name == name }
	if c.whole && slices.EqualFunc(fields, c.from, same) {
		return text
	}
	out := ArrowSchema(c.schema).Fields()
	said := false
	for i := range out {
		k := slices.IndexFunc(fields, func(f sourcearrow.Field) bool { return f.Name == c.origin[i] })
		if k < 0 || c.origin[i] == "" {
			continue
		}
		said = annotate(&out[i], fields[k]) || said
	}
	if !said {
		return ""
	}
	var b bytes.Buffer
	if ipc.NewWriter(&b, ipc.WithSchema(arrow.NewSchema(out, nil))).Close() != nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}
