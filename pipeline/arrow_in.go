package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// ArrowTable returns a table of Arrow records for Builder.ReadTable. All records have the given
// schema. The table retains them until Close.
func ArrowTable(schema *arrow.Schema, records ...arrow.Record) (source.Table, error) {
	s, err := schemaOfArrow(schema)
	if err != nil {
		return nil, err
	}
	t := &arrowTable{schema: s}
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
func (t *arrowTable) add(r arrow.Record) error {
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

// ReadArrow returns a table of the records of a reader, like ArrowTable. It reads all records
// first, because a plan needs the number of rows. The caller releases the reader.
func ReadArrow(r array.RecordReader) (source.Table, error) {
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
	return ArrowTable(r.Schema(), records...)
}

type arrowTable struct {
	schema  *gpu.Schema
	records []arrow.Record
	rows    int64
	closed  atomic.Bool
}

func (t *arrowTable) Schema() *gpu.Schema          { return t.schema }
func (t *arrowTable) Rows() int64                  { return t.rows }
func (t *arrowTable) Stats(int) source.ColumnStats { return source.ColumnStats{Nulls: -1} }

// Unreadable implements source.Table. It is empty, because schemaOfArrow rejects such columns.
func (t *arrowTable) Unreadable() []source.Unreadable { return nil }

func (t *arrowTable) Describe() string {
	return fmt.Sprintf("%d Arrow records, %d rows", len(t.records), t.rows)
}

// LeastMemory implements source.Table. It assumes that strings are short.
func (t *arrowTable) LeastMemory(opt source.ScanOptions) int64 {
	read := &gpu.Schema{}
	for _, c := range opt.Columns {
		read.Fields = append(read.Fields, t.schema.Fields[c])
	}
	return min(int64(opt.StrideRows), t.rows) * int64(read.RowBytes())
}

func (t *arrowTable) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	for _, r := range t.records {
		r.Release()
	}
	return nil
}

func (t *arrowTable) Scan(_ context.Context, opt source.ScanOptions) (source.Reader, error) {
	if t.closed.Load() {
		return nil, errors.New("the Arrow table is closed")
	}
	r := &arrowReader{table: t, opt: opt, schema: &gpu.Schema{}}
	for _, c := range opt.Columns {
		r.schema.Fields = append(r.schema.Fields, t.schema.Fields[c])
	}
	return r, nil
}

// Sample implements source.Sampler. It returns the first rows of the largest record.
func (t *arrowTable) Sample(ctx context.Context, lease *gpu.Lease, columns []int, rows int) (*gpu.Stride, error) {
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
	r := &arrowReader{table: t, opt: opt, schema: &gpu.Schema{}, record: largest}
	for _, c := range columns {
		r.schema.Fields = append(r.schema.Fields, t.schema.Fields[c])
	}
	return r.Read(ctx)
}

// arrowReader copies records into strides of at most StrideRows rows.
type arrowReader struct {
	table  *arrowTable
	opt    source.ScanOptions
	schema *gpu.Schema
	record int   // index of the next record
	row    int64 // index of its next row
	read   atomic.Int64
	err    error
}

func (r *arrowReader) Schema() *gpu.Schema { return r.schema }
func (r *arrowReader) Close() error        { return nil }

func (r *arrowReader) Progress() source.Progress {
	n := r.read.Load()
	return source.Progress{RowsRead: n, RowsTotal: r.table.rows, BytesRead: n, BytesTotal: r.table.rows}
}

func (r *arrowReader) Read(ctx context.Context) (*gpu.Stride, error) {
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

// columnOfArrow copies rows [from, from+n) of an array into a column.
func columnOfArrow(l *gpu.Lease, t gpu.Type, a arrow.Array, from, n int) (c gpu.Column, err error) {
	c = gpu.Column{Type: t, Len: n}
	defer func() {
		if err != nil {
			c.Release()
		}
	}()
	if valid := validRows(a); valid != nil {
		if c.Valid, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
			return c, err
		}
		setBits(c.Valid.Bytes(), n, func(i int) bool { return valid(from + i) })
	}
	if t.IsNested() {
		return c, copyNested(l, &c, a, from, n)
	}
	if t.IsVar() {
		return c, copyBytes(l, &c, a, from, n)
	}
	if t.Kind == gpu.Bool {
		if c.Data, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
			return c, err
		}
		if b, ok := a.(*array.Boolean); ok {
			bitutil.CopyBitmap(b.Data().Buffers()[1].Bytes(), b.Data().Offset()+from, n, c.Data.Bytes(), 0)
			return c, nil
		}
	} else if c.Data, err = l.Alloc(int64(n) * int64(t.Width())); err != nil {
		return c, err
	}
	return c, copyFixed(l, c, a, from, n)
}

// validRows returns a function that reports whether a row is not null, or nil if no row is null. A
// row of a dictionary array is also null if its dictionary value is null.
func validRows(a arrow.Array) func(int) bool {
	if d, ok := a.(*array.Dictionary); ok && d.Dictionary().NullN() > 0 {
		return func(i int) bool { return d.IsValid(i) && d.Dictionary().IsValid(d.GetValueIndex(i)) }
	}
	if a.NullN() == 0 {
		return nil
	}
	return a.IsValid
}

// copyFixed copies fixed-width values. Values that already have our layout are copied in bulk.
// Dictionary values are looked up; 32-bit times and narrow decimals are converted.
func copyFixed(l *gpu.Lease, c gpu.Column, a arrow.Array, from, n int) error {
	switch a := a.(type) {
	case *array.Dictionary:
		return copyDictionary(l, c, a, from, n)
	case *array.Decimal128:
		values := a.Values()[from : from+n]
		if c.Type.Wide {
			out := gpu.Values[gpu.Int128](c.Data, n)
			for i, v := range values {
				out[i] = gpu.Int128{Lo: v.LowBits(), Hi: v.HighBits()}
			}
			return nil
		}
		out := gpu.Values[int64](c.Data, n)
		for i, v := range values {
			w := gpu.Int128{Lo: v.LowBits(), Hi: v.HighBits()}
			if !w.IsInt64() && a.IsValid(from+i) {
				return fmt.Errorf("row %d: %s does not fit %v: %w", from+i, w.Format(int(c.Type.Scale)), c.Type,
					source.ErrData)
			}
			out[i] = w.Int64()
		}
		return nil
	case *array.Time32:
		out := gpu.Values[int64](c.Data, n)
		for i, v := range a.Time32Values()[from : from+n] {
			out[i] = int64(v)
		}
		return nil
	}
	w := c.Type.Width()
	at := (a.Data().Offset() + from) * w
	copy(c.Data.Bytes(), a.Data().Buffers()[1].Bytes()[at:at+n*w])
	return nil
}

// copyDictionary looks up and copies the values of a dictionary array. It ignores entries that no
// row uses, which may be invalid.
func copyDictionary(l *gpu.Lease, c gpu.Column, a *array.Dictionary, from, n int) error {
	values := a.Dictionary()
	if d, ok := values.(*array.Decimal128); ok && !c.Type.Wide {
		out := gpu.Values[int64](c.Data, n)
		for i := range n {
			out[i] = 0
			if !a.IsValid(from+i) || !d.IsValid(a.GetValueIndex(from+i)) {
				continue
			}
			v := d.Value(a.GetValueIndex(from + i))
			w := gpu.Int128{Lo: v.LowBits(), Hi: v.HighBits()}
			if !w.IsInt64() {
				return fmt.Errorf("row %d: %s does not fit %v: %w", from+i, w.Format(int(c.Type.Scale)), c.Type,
					source.ErrData)
			}
			out[i] = w.Int64()
		}
		return nil
	}
	plain, err := columnOfArrow(l, c.Type, values, 0, values.Len())
	if err != nil {
		return err
	}
	defer plain.Release()
	if c.Type.Kind == gpu.Bool {
		setBits(c.Data.Bytes(), n, func(i int) bool {
			return a.IsValid(from+i) && gpu.Bit(plain.Data.Bytes(), a.GetValueIndex(from+i))
		})
		return nil
	}
	w := c.Type.Width()
	for i := range n {
		if a.IsValid(from + i) {
			at := a.GetValueIndex(from+i) * w
			copy(c.Data.Bytes()[i*w:], plain.Data.Bytes()[at:at+w])
		}
	}
	return nil
}

// valueBytes returns a function that returns the bytes of a row of an array of strings or
// binaries.
func valueBytes(a arrow.Array) (func(int) []byte, error) {
	switch a := a.(type) {
	case *array.String:
		return func(i int) []byte { return stringBytes(a.Value(i)) }, nil
	case *array.LargeString:
		return func(i int) []byte { return stringBytes(a.Value(i)) }, nil
	case *array.StringView:
		return func(i int) []byte { return stringBytes(a.Value(i)) }, nil
	case *array.Binary:
		return a.Value, nil
	case *array.LargeBinary:
		return a.Value, nil
	case *array.BinaryView:
		return a.Value, nil
	case *array.FixedSizeBinary:
		return a.Value, nil
	case *array.Dictionary:
		value, err := valueBytes(a.Dictionary())
		return func(i int) []byte { return value(a.GetValueIndex(i)) }, err
	}
	return nil, fmt.Errorf("cannot read values of type %v as bytes", a.DataType())
}

// copyBytes copies strings or binaries. It copies the offsets first, since they tell the size.
func copyBytes(l *gpu.Lease, c *gpu.Column, a arrow.Array, from, n int) (err error) {
	value, err := valueBytes(a)
	if err != nil {
		return err
	}
	if c.Offsets, err = l.Alloc(int64(n+1) * 4); err != nil {
		return err
	}
	offsets := gpu.Values[int32](c.Offsets, n+1)
	total := int64(0)
	offsets[0] = 0
	for i := range n {
		if a.IsValid(from + i) {
			total += int64(len(value(from + i)))
		}
		if total > math.MaxInt32 {
			return gpu.Exceeded("%d rows hold more than 2 GiB of text; feed smaller records", n)
		}
		offsets[i+1] = int32(total)
	}
	if c.Data, err = l.Alloc(total); err != nil {
		return err
	}
	for i := range n {
		if a.IsValid(from + i) {
			copy(c.Data.Bytes()[offsets[i]:], value(from+i))
		}
	}
	return nil
}

// stringBytes views a string as bytes, which must not be modified.
func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func setBits(bitmap []byte, n int, bit func(int) bool) {
	clear(bitmap)
	for i := range n {
		if bit(i) {
			bitmap[i>>3] |= 1 << (i & 7)
		}
	}
}
