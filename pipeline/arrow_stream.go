package pipeline

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
	"github.com/gstream/gstream/source"
	sourcearrow "github.com/gstream/gstream/source/arrow"
)

// StreamOptions describe a stream of records to the planner.
type StreamOptions = sourcearrow.StreamOptions

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
	return sourcearrow.StreamRecords(schema, records, opt)
}

var errLoopEnded = errors.New("the loop over the records has ended")

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

// Irrevocable implements Irrevocable.
func (f RecordFunc) Irrevocable() bool { return true }

// recordSink calls a RecordFunc.
type recordSink struct {
	f           RecordFunc
	rows, bytes atomic.Int64
}

func (s *recordSink) Write(ctx context.Context, st *gpu.Stride) error {
	defer st.Release()
	if err := s.f(ctx, sourcearrow.Record(st)); err != nil {
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
			cancel(errLoopEnded)
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
