package materialize

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/spill"
)

// Rows is the operator. It keeps its rows as they arrived, in device memory or spilled, until it is
// closed.
type Rows struct {
	schema *gpu.Schema
	// Sample, if set, samples the rows, which have one reader. It releases them as it reads them. The sample outlives
	// the operator.
	Sample *sort.Sample

	mu      sync.Mutex
	rows    *spill.Partitions // a stride is a partition
	strides []stride
}

// stride is one stride that is kept.
type stride struct {
	number    int // of its morsel
	partition int
}

// New returns the operator.
func New(schema *gpu.Schema) *Rows { return &Rows{schema: schema} }

// Schema implements operators.Operator.
func (o *Rows) Schema() *gpu.Schema { return o.schema }

// NewLocal implements operators.Blocking.
func (o *Rows) NewLocal(t operators.Task) (operators.Local, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rows == nil {
		o.rows = t.Spill.NewPartitions(t.Lease.Name(), t.Lease, o.schema, 0)
		o.rows.Ordered = true
	}
	return &local{o, t}, nil
}

// local passes the rows of a lane to the operator.
type local struct {
	*Rows
	task operators.Task
}

func (l *local) Push(_ context.Context, number int, s *gpu.Stride) error {
	if l.Sample != nil {
		if err := l.Sample.Add(l.task, s); err != nil {
			s.Release()
			return err
		}
	}
	n := l.rows.Grow()
	l.mu.Lock()
	l.strides = append(l.strides, stride{number, n})
	l.mu.Unlock()
	return l.rows.Append(s, n, []int{0, s.Rows})
}

func (l *local) Combine(context.Context) error { return nil }
func (l *local) Close() error                  { return nil }

// Finalize implements operators.Blocking. It orders the strides like the input. Strides of one
// morsel arrived in order.
func (o *Rows) Finalize(context.Context, operators.Task) error {
	slices.SortFunc(o.strides, func(a, b stride) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.partition, b.partition))
	})
	return nil
}

// Reader returns a reader of the rows, once the operator is finalised. Several readers may read
// concurrently. Each must be closed before the operator.
func (o *Rows) Reader() *Reader { return &Reader{Rows: o} }

// Len returns the number of rows.
func (o *Rows) Len() int64 {
	if o.rows == nil {
		return 0
	}
	return o.rows.Rows(0, o.rows.Len())
}

// Close implements operators.Operator.
func (o *Rows) Close() error { return o.rows.Close() }

// Demand implements operators.Demanding: all rows.
func (o *Rows) Demand(e operators.Expected) operators.Demand {
	return operators.Demand{Bytes: e.Bytes,
		Spilled: func(room float64) float64 { return max(0, e.Bytes-spill.Room(room)) }}
}

// Reader is a source of the rows. Its parts are the strides, in the order of the input.
type Reader struct {
	*Rows
	ahead *spill.Reader // of one lane, which emits the parts in order
	read  []spill.Span  // that are to be released
}

// dropped is the number of times that the rows of a sample are released while they are read: each takes a pass over all
// strides.
const dropped = 64

// Parts implements operators.Source.
func (r *Reader) Parts() int { return len(r.strides) }

// Number returns the number of the morsel of a part.
func (r *Reader) Number(part int) int { return r.strides[part].number }

// Emit implements operators.Source.
func (r *Reader) Emit(ctx context.Context, t operators.Task, part int, emit operators.Emit) error {
	err := r.emit(ctx, t, part, emit)
	if err == nil && r.Sample != nil {
		n := r.strides[part].partition
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.read = append(r.read, spill.Span{From: n, To: n + 1}); len(r.read) > len(r.strides)/dropped {
			r.rows.DropSpans(r.read)
			r.read = nil
		}
	}
	return err
}

func (r *Reader) emit(ctx context.Context, t operators.Task, part int, emit operators.Emit) error {
	take := func(s *gpu.Stride, _ int) error { return emit(s) }
	if t.Lanes > 1 {
		n := r.strides[part].partition
		return r.rows.Each(ctx, t.Queue, t.Lease, n, n+1, take)
	}
	if r.ahead == nil {
		ranges := make([]spill.Range, len(r.strides))
		for i, s := range r.strides {
			ranges[i] = spill.Range{Partitions: r.rows, Span: spill.Span{From: s.partition, To: s.partition + 1}}
		}
		r.ahead = spill.NewReader(ctx, t.Lease, ranges)
	}
	return r.ahead.Next(t.Queue, take)
}

// Close ends the reader.
func (r *Reader) Close() { r.ahead.Close() }
