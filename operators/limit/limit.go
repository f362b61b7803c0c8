// Package limit passes on a range of rows and then reports that it is done.
package limit

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// limit is also its own lane, since it has only one.
type limit struct {
	operators.NoFlush
	schema      *gpu.Schema
	skip, count int64
	task        operators.Task
}

// New returns the operator that skips offset rows and then passes on count rows. It is an
// operators.Stopper.
func New(in *gpu.Schema, offset, count int64) operators.Streaming {
	return &limit{schema: in, skip: offset, count: count}
}

func (o *limit) Schema() *gpu.Schema { return o.schema }

func (o *limit) NewLane(t operators.Task) (operators.Lane, error) {
	o.task = t
	return o, nil
}

// Done implements operators.Stopper.
func (o *limit) Done() bool { return o.count == 0 }

func (o *limit) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	from := min(o.skip, int64(s.Rows))
	to := from + min(o.count, int64(s.Rows)-from)
	o.skip -= from
	o.count -= to - from
	switch {
	case from == to:
		s.Release()
		return nil
	case from == 0 && to == int64(s.Rows):
		return emit(s)
	}
	out, err := operators.SliceStride(o.task, s, int(from), int(to))
	s.Release()
	if err != nil {
		return err
	}
	return emit(out)
}

func (o *limit) Close() error { return nil }
