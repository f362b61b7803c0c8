package runner

import (
	"context"
	"errors"
	"io"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// morsel is a piece of the input of a pipeline that one lane takes at a time, as a
// rule one stride: it gives its strides to a lane. It is called once.
type morsel func(ctx context.Context, l *lane, emit operators.Emit) error

// feed is where the lanes of a pipeline take their morsels from.
type feed interface {
	// start begins what may run before the pipeline's own work, as decoding for a
	// device that still starts. It does not wait.
	start(ctx context.Context)
	// run does what must be over before the first morsel, on the caller's goroutine.
	run(ctx context.Context) error
	// take returns the next morsel, io.EOF after the last. One lane takes at a time.
	take(ctx context.Context) (morsel, error)
	// end stops the feed and releases what was not taken. No lane takes any more.
	end() error
}

// oneStride is the morsel of a stride.
func oneStride(s *gpu.Stride) morsel {
	return func(_ context.Context, _ *lane, emit operators.Emit) error { return emit(s) }
}

// channelFeed gives the strides of another pipeline, which runs at the same time.
type channelFeed struct {
	from  *pipelineRun
	ctx   context.Context
	stop  context.CancelCauseFunc
	ended chan struct{}
}

// start launches the other pipeline, unless it was launched before.
func (f *channelFeed) start(ctx context.Context) {
	if f.ended != nil {
		return
	}
	f.ctx, f.stop = context.WithCancelCause(ctx)
	f.ended = make(chan struct{})
	go func() {
		defer close(f.ended)
		defer f.from.out.close()
		if err := f.from.work(f.ctx); err != nil && context.Cause(f.ctx) != errStop {
			f.from.run.cancel(err)
		}
	}()
}

func (f *channelFeed) run(ctx context.Context) error {
	f.start(ctx)
	return nil
}

func (f *channelFeed) take(ctx context.Context) (morsel, error) {
	s, ok := f.from.out.receive(ctx)
	if !ok {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
	return oneStride(s), nil
}

func (f *channelFeed) end() error {
	if f.ended == nil {
		return nil
	}
	f.stop(errStop)
	f.from.out.stop(errStop)
	<-f.ended
	return nil
}

// resultFeed gives the parts of the result of a blocking operator, once the pipeline
// that ends in it has run.
type resultFeed struct {
	from *pipelineRun
	op   *opRun
	next int
}

func (f *resultFeed) start(ctx context.Context) { f.from.start(ctx) }

func (f *resultFeed) run(ctx context.Context) error { return f.from.work(ctx) }

func (f *resultFeed) take(ctx context.Context) (morsel, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	src, part := f.op.op.(operators.Source), f.next
	if part == src.Parts() {
		return nil, io.EOF
	}
	f.next++
	return func(ctx context.Context, l *lane, emit operators.Emit) error {
		defer l.turn(l.turn(f.op))
		return f.op.explain(src.Emit(ctx, l.task(f.op), part, emit))
	}, nil
}

// end closes the operator, whose rows are all taken.
func (f *resultFeed) end() error { return f.op.close() }

// unionFeed gives the morsels of its feeds one after the other, their columns
// rearranged. A feed may end while lanes still have morsels of it, as a scan or a
// channel may.
type unionFeed struct {
	op    *opRun
	feeds []feed

	ctx   context.Context
	at    int // the feed that gives now
	ready bool
}

// start starts the first feed: the others follow when it has ended.
func (f *unionFeed) start(ctx context.Context) { f.feeds[0].start(ctx) }

func (f *unionFeed) run(ctx context.Context) error {
	f.ctx = ctx // the feeds' too, which live longer than the lane that starts them
	return nil
}

func (f *unionFeed) take(ctx context.Context) (morsel, error) {
	for ; f.at < len(f.feeds); f.at++ {
		in, cols := f.feeds[f.at], f.op.Permutation[f.at]
		if !f.ready {
			if err := in.run(f.ctx); err != nil {
				return nil, err
			}
			f.ready = true
		}
		m, err := in.take(ctx)
		if err == io.EOF {
			if err := in.end(); err != nil {
				return nil, err
			}
			f.ready = false
			continue
		}
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, l *lane, emit operators.Emit) error {
			return m(ctx, l, func(s *gpu.Stride) error {
				f.op.rowsIn.Add(int64(s.Rows))
				return emit(rearrange(s, f.op.Schema, cols))
			})
		}, nil
	}
	return nil, io.EOF
}

func (f *unionFeed) end() error {
	var errs []error
	for ; f.at < len(f.feeds); f.at++ {
		errs = append(errs, f.feeds[f.at].end())
	}
	return errors.Join(errs...)
}

// rearrange puts columns of a stride into another order; columns that are not
// named are released.
func rearrange(s *gpu.Stride, schema *gpu.Schema, cols []int) *gpu.Stride {
	out := &gpu.Stride{Schema: schema, Rows: s.Rows, Cols: make([]gpu.Column, len(cols))}
	for i, c := range cols {
		out.Cols[i] = s.Cols[c].Retain()
	}
	s.Release()
	return out
}
