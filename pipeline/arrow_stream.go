package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
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

// StreamArrow returns a table of records that are produced while a run reads them, for Builder.ReadTable. open starts
// a reading; each scan of the table calls it once, and releases the reader at its end. A step that several steps read
// may scan the table several times, also at the same time.
//
// The run asks for the next record when it can take it: one record at a time is held, which the caller's memory pays
// for, and its rows are copied into strides within the budget of the run. ctx ends with the scan; a reader that waits
// must return then.
//
// An error of open or of the reader is the cause of the error of the run, without a class. A record with another
// schema is an ErrData.
func StreamArrow(schema *arrow.Schema, open func(ctx context.Context) (array.RecordReader, error), opt StreamOptions) (
	source.Table, error) {
	return StreamRecords(schema, func(ctx context.Context) iter.Seq2[arrow.Record, error] {
		return func(yield func(arrow.Record, error) bool) {
			r, err := open(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			defer r.Release()
			for r.Next() {
				if !yield(r.Record(), nil) {
					return
				}
			}
			if err := r.Err(); err != nil {
				yield(nil, err)
			}
		}
	}, opt)
}

// Once returns the function for StreamArrow that opens a reader which can be read once. A second scan is an error that
// advises ReadArrow.
func Once(r array.RecordReader) func(context.Context) (array.RecordReader, error) {
	var taken atomic.Bool
	return func(context.Context) (array.RecordReader, error) {
		if taken.Swap(true) {
			return nil, errors.New("the stream of records can be read once, and the plan reads it again; collect it " +
				"by ReadArrow, or open it anew for each scan")
		}
		return r, nil
	}
}

// StreamRecords is StreamArrow for an iterator. The records belong to the iterator, until it is asked for the next one.
// It is iterated on one goroutine.
func StreamRecords(schema *arrow.Schema, records func(ctx context.Context) iter.Seq2[arrow.Record, error],
	opt StreamOptions) (source.Table, error) {
	s, err := schemaOfArrow(schema)
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
	r := &streamReader{table: t, opt: opt, schema: &gpu.Schema{}, one: &arrowTable{schema: t.schema},
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

	one    *arrowTable // with the current record
	reader *arrowReader
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
		r.reader = &arrowReader{table: r.one, opt: r.opt, schema: r.schema}
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

// RecordFunc is a target that receives the rows of a result as Arrow records while the run continues, in order. The run
// waits for the function, and keeps no more rows than its budget has. The records are on the Go heap and need no
// Release. An error of the function ends the run, and is the cause of its error. Unlike an output, the records of a run
// that fails later have arrived.
type RecordFunc func(ctx context.Context, r arrow.Record) error

// Create implements Target.
func (f RecordFunc) Create(*gpu.Schema, TargetOptions) (sink.Sink, error) {
	return &recordSink{f: f}, nil
}

// Describe implements Target.
func (f RecordFunc) Describe() string { return "Arrow records, as they come" }

// recordSink calls a RecordFunc.
type recordSink struct {
	f           RecordFunc
	rows, bytes atomic.Int64
}

func (s *recordSink) Write(ctx context.Context, st *gpu.Stride) error {
	defer st.Release()
	if err := s.f(ctx, ArrowRecord(st)); err != nil {
		return err
	}
	s.rows.Add(int64(st.Rows))
	s.bytes.Add(st.Bytes())
	return nil
}

func (s *recordSink) Commit(context.Context) error { return nil }
func (s *recordSink) Abort() error                 { return nil }
func (s *recordSink) Stats() sink.Stats {
	return sink.Stats{Rows: s.rows.Load(), Bytes: s.bytes.Load()}
}

// Records runs the pipeline, which has no output of its own, and returns its rows as they come, to be ranged over. The
// run waits for the loop, and ends when the loop does. The last pair has the error of the run, if there is one.
func (b *Builder) Records(ctx context.Context, opt RunOptions) iter.Seq2[arrow.Record, error] {
	return func(yield func(arrow.Record, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		records, ended := make(chan arrow.Record), make(chan error, 1)
		target := RecordFunc(func(ctx context.Context, r arrow.Record) error {
			select {
			case records <- r:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		go func() {
			defer close(records)
			_, err := b.WriteTo(target).Run(ctx, opt)
			ended <- err
		}()
		defer func() {
			cancel(errScanEnded)
			for range records { // until the run has ended
			}
		}()
		for r := range records {
			if !yield(r, nil) {
				return
			}
		}
		if err := <-ended; err != nil {
			yield(nil, err)
		}
	}
}
