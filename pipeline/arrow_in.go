package pipeline

import (
	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"github.com/gstream/gstream/source"
	sourcearrow "github.com/gstream/gstream/source/arrow"
)

// ArrowTable returns a table of Arrow records for Builder.ReadTable. All records have the given
// schema. The table retains them until Close.
func ArrowTable(schema *arrow.Schema, records ...arrow.Record) (source.Table, error) {
	return sourcearrow.NewTable(schema, records...)
}

// ReadArrow returns a table of the records of a reader, like ArrowTable. It reads all records
// first, because a plan needs the number of rows. The caller releases the reader.
func ReadArrow(r array.RecordReader) (source.Table, error) { return sourcearrow.ReadTable(r) }
