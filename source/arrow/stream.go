package arrow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// StreamOptions describe a stream of records to the planner.
type StreamOptions struct {
	// Rows estimates the number of rows; 0 means a million. The order of joins depends on it, no result does.
	Rows int64
	// RecordRows bounds the rows of a record, for the check of memory before a run; 0 means 65,536. Larger records are
	// accepted, and cut.
	RecordRows int
}

// StreamRecords returns a table of records that an iterator yields while a scan reads them. The records belong to the
// iterator, until it is asked for the next one. It is iterated on one goroutine.
func StreamRecords(schema *arrow.Schema, records func(ctx context.Context) iter.Seq2[arrow.Record, error],
	opt StreamOptions) (source.Table, error) {
	s, err := SchemaOf(schema)
	if err != nil {
		return nil, err
	}
	if opt.Rows <= 0 {
		opt.Rows = 1e6
	}
	if opt.RecordRows <= 0 {
		opt.RecordRows = 1 << 16
	}
	return &arrowStream{schema: s, arrow: schema, records: records, opt: opt}, nil
}

// arrowStream is a source.Table.
type arrowStream struct {
	schema  *gpu.Schema
	arrow   *arrow.Schema
	records func(ctx context.Context) iter.Seq2[arrow.Record, error]
	opt     StreamOptions
}

func (t *arrowStream) Schema() *gpu.Schema             { return t.schema }
func (t *arrowStream) Rows() int64                     { return t.opt.Rows }
func (t *arrowStream) RowsExact() bool                 { return false }
func (t *arrowStream) IsStream() bool                  { return true }
func (t *arrowStream) Stats(int) source.ColumnStats    { return source.ColumnStats{Nulls: -1} }
func (t *arrowStream) Unreadable() []source.Unreadable { return nil }
func (t *arrowStream) Describe() string                { return "a stream of Arrow records" }
func (t *arrowStream) Close() error                    { return nil }

// LeastMemory implements source.Table. It assumes that strings are short.
func (t *arrowStream) LeastMemory(opt source.ScanOptions) int64 {
	read := &gpu.Schema{}
	for _, c := range opt.Columns {
		read.Fields = append(read.Fields, t.schema.Fields[c])
	}
	return int64(min(opt.StrideRows, t.opt.RecordRows)) * int64(read.RowBytes())
}

func (t *arrowStream) Scan(ctx context.Context, opt source.ScanOptions) (source.Reader, error) {
	if err := source.CheckMemory(t, opt); err != nil {
		return nil, err
	}
	r := &streamReader{table: t, opt: opt, schema: &gpu.Schema{}, one: &memoryTable{schema: t.schema},
		records: make(chan streamed), next: make(chan struct{}), ended: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	for _, c := range opt.Columns {
		r.schema.Fields = append(r.schema.Fields, t.schema.Fields[c])
	}
	go r.iterate()
	return r, nil
}

// streamReader reads strides from the records of an iterator, which runs on a goroutine of its own.
type streamReader struct {
	table   *arrowStream
	opt     source.ScanOptions
	schema  *gpu.Schema
	ctx     context.Context
	cancel  context.CancelCauseFunc
	records chan streamed
	next    chan struct{} // the last record is not needed any more
	ended   chan struct{} // closed when the iterator has ended

	one    *memoryTable // with the current record
	reader *memoryReader
	number int // of records
	read   atomic.Int64
	decode atomic.Int64
	done   atomic.Bool
	err    error
}

type streamed struct {
	record arrow.Record
	err    error
}

var errScanEnded = errors.New("the scan has ended")

// iterate hands the records over, one at a time.
func (r *streamReader) iterate() {
	defer close(r.ended)
	defer close(r.records)
	defer func() {
		if p := recover(); p != nil {
			r.hand(streamed{err: fmt.Errorf("the iterator of records panicked: %v", p)})
		}
	}()
	for rec, err := range r.table.records(r.ctx) {
		if !r.hand(streamed{rec, err}) || err != nil {
			return
		}
		select {
		case <-r.next:
		case <-r.ctx.Done():
			return
		}
	}
}

func (r *streamReader) hand(s streamed) bool {
	select {
	case r.records <- s:
		return true
	case <-r.ctx.Done():
		return false
	}
}

func (r *streamReader) Schema() *gpu.Schema { return r.schema }

func (r *streamReader) Progress() source.Progress {
	n := r.read.Load()
	p := source.Progress{RowsRead: n, RowsTotal: max(n, r.table.opt.Rows), BytesRead: n, BytesTotal: max(n,
		r.table.opt.Rows), Decode: time.Duration(r.decode.Load())}
	if r.done.Load() {
		p.RowsTotal, p.BytesTotal = n, n
	}
	return p
}

func (r *streamReader) Read(ctx context.Context) (*gpu.Stride, error) {
	for {
		if r.err != nil {
			return nil, r.err
		}
		if r.reader != nil {
			begin := time.Now()
			var s *gpu.Stride
			err := r.opt.Lease.Patiently(ctx, func() (err error) {
				s, err = r.reader.Read(ctx)
				if errors.Is(err, gpu.ErrBudget) {
					r.reader.err = nil // it may be asked again
				}
				return err
			})
			r.decode.Add(int64(time.Since(begin)))
			if err == nil {
				r.read.Add(int64(s.Rows))
				return s, nil
			}
			if err != io.EOF {
				r.err = err
				continue
			}
			r.drop()
			select {
			case r.next <- struct{}{}:
			case <-r.ended:
			case <-ctx.Done():
			}
		}
		r.err = r.take(ctx)
	}
}

// take waits for the next record.
func (r *streamReader) take(ctx context.Context) error {
	select {
	case s, ok := <-r.records:
		switch {
		case !ok:
			if r.ctx.Err() != nil {
				return context.Cause(r.ctx)
			}
			r.done.Store(true)
			return io.EOF
		case s.err != nil:
			return fmt.Errorf("read the stream of Arrow records: %w", s.err)
		case s.record == nil || !s.record.Schema().Equal(r.table.arrow):
			return fmt.Errorf("%w: record %d of a stream of Arrow records has another schema than the stream",
				source.ErrData, r.number)
		}
		if err := r.one.add(s.record); err != nil {
			return fmt.Errorf("%w: record %d of a stream of Arrow records: %w", source.ErrData, r.number, err)
		}
		r.reader = &memoryReader{table: r.one, opt: r.opt, schema: r.schema}
		r.number++
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drop releases the current record.
func (r *streamReader) drop() {
	for _, rec := range r.one.records {
		rec.Release()
	}
	r.one.records, r.one.rows, r.reader = nil, 0, nil
}

// Close implements source.Reader. It waits for the iterator.
func (r *streamReader) Close() error {
	r.cancel(errScanEnded)
	<-r.ended
	r.drop()
	if r.err == nil {
		r.err = errScanEnded
	}
	return nil
}
