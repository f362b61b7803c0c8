package source

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
)

// NewValues returns a table of constants. Each row has a value of its type for each column of the schema.
func NewValues(schema *gpu.Schema, rows [][]gpu.Scalar) Table { return &values{schema, rows} }

type values struct {
	schema *gpu.Schema
	rows   [][]gpu.Scalar
}

func (t *values) Schema() *gpu.Schema      { return t.schema }
func (t *values) Unreadable() []Unreadable { return nil }
func (t *values) Rows() int64              { return int64(len(t.rows)) }
func (t *values) Describe() string         { return fmt.Sprintf("%d rows of constants", len(t.rows)) }
func (t *values) Close() error             { return nil }

// Stats implements Table. Whoever makes constants knows them.
func (t *values) Stats(int) ColumnStats { return ColumnStats{Nulls: -1} }

// LeastMemory implements Table: the strides are on the Go heap, as the constants are.
func (t *values) LeastMemory(ScanOptions) int64 { return 0 }

func (t *values) Scan(_ context.Context, opt ScanOptions) (Reader, error) {
	r := &valuesReader{table: t, opt: opt, schema: &gpu.Schema{}}
	for _, c := range opt.Columns {
		r.schema.Fields = append(r.schema.Fields, t.schema.Fields[c])
	}
	return r, nil
}

// valuesReader returns strides of at most opt.StrideRows rows.
type valuesReader struct {
	table  *values
	opt    ScanOptions
	schema *gpu.Schema
	read   atomic.Int64
}

func (r *valuesReader) Schema() *gpu.Schema { return r.schema }
func (r *valuesReader) Close() error        { return nil }

func (r *valuesReader) Progress() Progress {
	n, all := r.read.Load(), r.table.Rows()
	return Progress{RowsRead: n, RowsTotal: all, BytesRead: n, BytesTotal: all}
}

func (r *valuesReader) Read(ctx context.Context) (*gpu.Stride, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	from := r.read.Load()
	rows := r.table.rows[from:]
	if len(rows) == 0 {
		return nil, io.EOF
	}
	rows = rows[:min(len(rows), max(r.opt.StrideRows, 1))]
	s := &gpu.Stride{Schema: r.schema, Rows: len(rows)}
	for i, c := range r.opt.Columns {
		column := make([]gpu.Scalar, len(rows))
		for k, row := range rows {
			column[k] = row[c]
		}
		s.Cols = append(s.Cols, gpu.ColumnOf(r.schema.Fields[i].Type, column))
	}
	r.read.Add(int64(len(rows)))
	return s, nil
}
