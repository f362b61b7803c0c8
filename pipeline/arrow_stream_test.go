package pipeline

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/source"
)

var streamSchema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64},
	{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)

// streamRecord returns a record of rows n, n+1 …
func streamRecord(n, rows int) arrow.Record {
	b := array.NewRecordBuilder(memory.DefaultAllocator, streamSchema)
	defer b.Release()
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(n + i))
		if i%7 == 0 {
			b.Field(1).AppendNull()
		} else {
			b.Field(1).(*array.StringBuilder).Append("some text")
		}
	}
	return b.NewRecord()
}

// streamOf returns a stream of records, and how many have been asked for.
func streamOf(t *testing.T, records, rows int) (source.Table, *atomic.Int64) {
	asked := &atomic.Int64{}
	table, err := StreamRecords(streamSchema, func(context.Context) iter.Seq2[arrow.Record, error] {
		return func(yield func(arrow.Record, error) bool) {
			for i := range records {
				asked.Add(1)
				r := streamRecord(i*rows, rows)
				more := yield(r, nil)
				r.Release()
				if !more {
					return
				}
			}
		}
	}, StreamOptions{RecordRows: rows})
	require.NoError(t, err)
	return table, asked
}

func sumOfRecords(records iter.Seq2[arrow.Record, error]) (sum, rows int64, err error) {
	for r, err := range records {
		if err != nil {
			return sum, rows, err
		}
		for _, v := range r.Column(0).(*array.Int64).Int64Values() {
			sum += v
		}
		rows += r.NumRows()
	}
	return sum, rows, nil
}

func TestAStreamOfRecordsIsReadWithinTheBudget(t *testing.T) {
	defer goleak.VerifyNone(t)
	// 10,000,000 rows of 17 bytes, in memory for some of them.
	const records, rows = 1000, 10_000
	table, _ := streamOf(t, records, rows)
	report, err := New("stream").ReadTable("t", table).Group(nil, "sum(n) as n", "count(s) as s", "count(*) as c").
		WriteTo(RecordFunc(func(_ context.Context, r arrow.Record) error {
			require.EqualValues(t, records*rows, r.Column(2).(*array.Int64).Value(0))
			require.EqualValues(t, records*(rows-rows/7-1), r.Column(1).(*array.Int64).Value(0))
			return nil
		})).Run(t.Context(), RunOptions{Use: Host, HostMemory: 16 << 20})
	require.NoError(t, err)
	require.Less(t, report.PeakHost, int64(16<<20))
	require.EqualValues(t, 1, report.Output.Rows)
}

func TestAStreamIsAskedForNoMoreThanIsTaken(t *testing.T) {
	defer goleak.VerifyNone(t)
	table, asked := streamOf(t, 100_000, 1000)
	taken := int64(0)
	for r, err := range New("stream").ReadTable("t", table).Filter("n >= 0").Records(t.Context(),
		RunOptions{Use: Host, Threads: 1}) {
		require.NoError(t, err)
		if taken += r.NumRows(); taken >= 20_000 {
			time.Sleep(20 * time.Millisecond) // the run continues as far as it can
			break
		}
	}
	require.Less(t, asked.Load(), int64(200))
	require.GreaterOrEqual(t, asked.Load(), int64(20))
}

func TestRecordsHaveTheRowsOfTheRunInOrder(t *testing.T) {
	defer goleak.VerifyNone(t)
	table, _ := streamOf(t, 20, 5000)
	last := int64(-1)
	for r, err := range New("stream").ReadTable("t", table).Sort("n").Records(t.Context(), RunOptions{Use: Host}) {
		require.NoError(t, err)
		for _, v := range r.Column(0).(*array.Int64).Int64Values() {
			require.Equal(t, last+1, v)
			last = v
		}
	}
	require.EqualValues(t, 99_999, last)
}

func TestErrorsOfStreamsAndTargetsEndTheRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	broken := errors.New("the queue is gone")
	records := func(last arrow.Record, err error) source.Table {
		table, wrong := StreamRecords(streamSchema, func(ctx context.Context) iter.Seq2[arrow.Record, error] {
			return func(yield func(arrow.Record, error) bool) {
				for i := range 3 {
					if !yield(streamRecord(i*10, 10), nil) {
						return
					}
				}
				yield(last, err)
			}
		}, StreamOptions{})
		require.NoError(t, wrong)
		return table
	}
	_, _, err := sumOfRecords(New("s").ReadTable("t", records(nil, broken)).Records(t.Context(), RunOptions{Use: Host}))
	require.ErrorIs(t, err, broken)
	narrow := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int32}}, nil)
	other := array.NewRecord(narrow, []arrow.Array{
		array.NewInt32Data(array.NewData(arrow.PrimitiveTypes.Int32, 0, []*memory.Buffer{nil, nil}, nil, 0, 0))}, 0)
	_, _, err = sumOfRecords(New("s").ReadTable("t", records(other, nil)).Records(t.Context(), RunOptions{Use: Host}))
	require.ErrorIs(t, err, ErrData)
	table, err := StreamRecords(streamSchema, func(context.Context) iter.Seq2[arrow.Record, error] { panic("oh") },
		StreamOptions{})
	require.NoError(t, err)
	_, _, err = sumOfRecords(New("s").ReadTable("t", table).Records(t.Context(), RunOptions{Use: Host}))
	require.ErrorContains(t, err, "panicked: oh")
	_, err = New("s").ReadTable("t", records(streamRecord(30, 10), nil)).WriteTo(RecordFunc(
		func(context.Context, arrow.Record) error { return broken })).Run(t.Context(), RunOptions{Use: Host})
	require.ErrorIs(t, err, broken)
	// A stream that waits ends with the context.
	ctx, cancel := context.WithCancel(t.Context())
	table, err = StreamRecords(streamSchema, func(ctx context.Context) iter.Seq2[arrow.Record, error] {
		return func(yield func(arrow.Record, error) bool) {
			cancel()
			<-ctx.Done()
			yield(nil, context.Cause(ctx))
		}
	}, StreamOptions{})
	require.NoError(t, err)
	_, _, err = sumOfRecords(New("s").ReadTable("t", table).Records(ctx, RunOptions{Use: Host}))
	require.ErrorIs(t, err, ErrCancelled)
}

func TestReadersOfRecordsAreReadOnceOrAgain(t *testing.T) {
	defer goleak.VerifyNone(t)
	open := func(context.Context) (array.RecordReader, error) {
		return array.NewRecordReader(streamSchema, []arrow.Record{streamRecord(0, 10), streamRecord(10, 10)})
	}
	twice := func(t *testing.T, table source.Table) (int64, error) {
		sum, _, err := sumOfRecords(New("s").ReadShared("t", table).SQL(
			"SELECT a.n FROM t a JOIN t b ON a.n = b.n").Records(t.Context(), RunOptions{Use: Host}))
		return sum, err
	}
	table, err := StreamArrow(streamSchema, open, StreamOptions{Rows: 20})
	require.NoError(t, err)
	for range 2 {
		sum, err := twice(t, table)
		require.NoError(t, err)
		require.EqualValues(t, 190, sum)
	}
	r, err := open(t.Context())
	require.NoError(t, err)
	table, err = StreamArrow(streamSchema, Once(r), StreamOptions{})
	require.NoError(t, err)
	sum, err := twice(t, table)
	require.NoError(t, err, "a plan keeps the rows for its second reader")
	require.EqualValues(t, 190, sum)
	_, err = twice(t, table)
	require.ErrorContains(t, err, "collect it by ReadArrow")
	kept, err := ArrowTable(streamSchema, streamRecord(0, 20))
	require.NoError(t, err)
	for range 2 {
		sum, err := twice(t, kept)
		require.NoError(t, err)
		require.EqualValues(t, 190, sum)
	}
	require.NoError(t, kept.Close())
	_, err = twice(t, kept)
	require.ErrorContains(t, err, "closed")
}
