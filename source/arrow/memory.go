package arrow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// NewTable returns a table of Arrow records. All records have the given schema. The table retains them until Close.
func NewTable(schema *arrow.Schema, records ...arrow.Record) (source.Table, error) {
	s, err := SchemaOf(schema)
	if err != nil {
		return nil, err
	}
	t := &memoryTable{schema: s}
	for i, r := range records {
		if !r.Schema().Equal(schema) {
			return nil, fmt.Errorf("record %d has the schema %v, the table %v", i, r.Schema(), schema)
		}
		if err := t.add(r); err != nil {
			t.Close()
			return nil, fmt.Errorf("record %d: %w", i, err)
		}
	}
	return t, nil
}

// add adds the rows of a record.
func (t *memoryTable) add(r arrow.Record) error {
	columns := make([]arrow.Array, 0, len(t.schema.Fields))
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	fields := make([]arrow.Field, len(t.schema.Fields))
	for i, f := range t.schema.Fields {
		c, err := plainArray(r.Column(i))
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		columns = append(columns, c)
		fields[i] = arrow.Field{Name: f.Name, Type: c.DataType(), Nullable: f.Nullable}
		// The planner turns count(x) of a column that is not nullable into count(*).
		if n := nulls(c); n > 0 && !f.Nullable {
			return fmt.Errorf("column %q has %d nulls, but its schema says that it has none", f.Name, n)
		}
	}
	t.records = append(t.records, array.NewRecord(arrow.NewSchema(fields, nil), columns, r.NumRows()))
	t.rows += r.NumRows()
	return nil
}

// nulls counts the null rows of an array, including those whose dictionary value is null.
func nulls(a arrow.Array) (n int) {
	valid := validRows(a)
	if _, dictionary := a.(*array.Dictionary); !dictionary || valid == nil {
		return a.NullN()
	}
	for i := range a.Len() {
		if !valid(i) {
			n++
		}
	}
	return n
}

// ReadTable returns a table of the records of a reader, like NewTable. It reads all records first, because a plan needs
// the number of rows. The caller releases the reader.
func ReadTable(r array.RecordReader) (source.Table, error) {
	var records []arrow.Record
	defer func() {
		for _, rec := range records {
			rec.Release()
		}
	}()
	for r.Next() {
		rec := r.Record()
		rec.Retain()
		records = append(records, rec)
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("read Arrow records: %w", err)
	}
	return NewTable(r.Schema(), records...)
}

type memoryTable struct {
	schema  *gpu.Schema
	records []arrow.Record
	rows    int64
	closed  atomic.Bool
}

func (t *memoryTable) Schema() *gpu.Schema          { return t.schema }
func (t *memoryTable) Rows() int64                  { return t.rows }
func (t *memoryTable) Stats(int) source.ColumnStats { return source.ColumnStats{Nulls: -1} }

// Unreadable implements source.Table. It is empty, because SchemaOf rejects such columns.
func (t *memoryTable) Unreadable() []source.Unreadable { return nil }

func (t *memoryTable) Describe() string {
	return fmt.Sprintf("%d Arrow records, %d rows", len(t.records), t.rows)
}

// LeastMemory implements source.Table. It assumes that strings are short.
func (t *memoryTable) LeastMemory(opt source.ScanOptions) int64 {
	read := &gpu.Schema{}
	for _, c := range opt.Columns {
		read.Fields = append(read.Fields, t.schema.Fields[c])
	}
	return min(int64(opt.StrideRows), t.rows) * int64(read.RowBytes())
}

func (t *memoryTable) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	for _, r := range t.records {
		r.Release()
	}
	return nil
}

func (t *memoryTable) Scan(_ context.Context, opt source.ScanOptions) (source.Reader, error) {
	if t.closed.Load() {
		return nil, errors.New("the Arrow table is closed")
	}
	r := &memoryReader{table: t, opt: opt, schema: &gpu.Schema{}}
	for _, c := range opt.Columns {
		r.schema.Fields = append(r.schema.Fields, t.schema.Fields[c])
	}
	return r, nil
}

// Sample implements source.Sampler. It returns the first rows of the largest record.
func (t *memoryTable) Sample(ctx context.Context, lease *gpu.Lease, columns []int, rows int) (*gpu.Stride, error) {
	if t.closed.Load() || t.rows == 0 {
		return nil, errors.New("the Arrow table has no rows")
	}
	largest := 0
	for i, r := range t.records {
		if r.NumRows() > t.records[largest].NumRows() {
			largest = i
		}
	}
	opt := source.ScanOptions{Columns: columns, StrideRows: rows, Lease: lease}
	r := &memoryReader{table: t, opt: opt, schema: &gpu.Schema{}, record: largest}
	for _, c := range columns {
		r.schema.Fields = append(r.schema.Fields, t.schema.Fields[c])
	}
	return r.Read(ctx)
}

// memoryReader copies records into strides of at most StrideRows rows.
type memoryReader struct {
	table  *memoryTable
	opt    source.ScanOptions
	schema *gpu.Schema
	record int   // index of the next record
	row    int64 // index of its next row
	read   atomic.Int64
	err    error
}

func (r *memoryReader) Schema() *gpu.Schema { return r.schema }
func (r *memoryReader) Close() error        { return nil }

func (r *memoryReader) Progress() source.Progress {
	n := r.read.Load()
	return source.Progress{RowsRead: n, RowsTotal: r.table.rows, BytesRead: n, BytesTotal: r.table.rows}
}

func (r *memoryReader) Read(ctx context.Context) (*gpu.Stride, error) {
	if r.err != nil {
		return nil, r.err
	}
	if r.err = ctx.Err(); r.err != nil {
		return nil, r.err
	}
	for r.record < len(r.table.records) && r.row == r.table.records[r.record].NumRows() {
		r.record, r.row = r.record+1, 0
	}
	if r.record == len(r.table.records) {
		r.err = io.EOF
		return nil, r.err
	}
	rec := r.table.records[r.record]
	n := min(rec.NumRows()-r.row, int64(max(r.opt.StrideRows, 1)))
	s := &gpu.Stride{Schema: r.schema, Rows: int(n)}
	for _, c := range r.opt.Columns {
		col, err := columnOfArrow(r.opt.Lease, r.table.schema.Fields[c].Type, rec.Column(c), int(r.row), int(n))
		if err != nil {
			s.Release()
			r.err = fmt.Errorf("record %d, column %q: %w", r.record, r.table.schema.Fields[c].Name, err)
			return nil, r.err
		}
		s.Cols = append(s.Cols, col)
	}
	r.row += n
	r.read.Add(n)
	return s, nil
}
