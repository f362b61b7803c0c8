package runner

import (
	"context"
	"errors"
	"io"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/materialize"
)

// morsel is the part of a pipeline's input that one lane takes at a time, usually one
// stride. It passes its strides to a lane. It is called once.
type morsel func(ctx context.Context, l *lane, emit operators.Emit) error

// feed is the origin of the morsels of a pipeline.
type feed interface {
	// start starts work that may run before the pipeline does, such as decoding while the
	// device still starts. It does not wait.
	start(ctx context.Context)
	// run does the work that must be finished before the first morsel, on the caller's goroutine.
	run(ctx context.Context) error
	// take returns the next morsel, io.EOF after the last. One lane takes at a time.
	take(ctx context.Context) (morsel, error)
	// end stops the feed and releases morsels that were not taken. No lane may take morsels any
	// more.
	end() error
}

// oneStride returns the morsel of one stride.
func oneStride(s *gpu.Stride, order int) morsel {
	return func(_ context.Context, l *lane, emit operators.Emit) error {
		l.order = order
		return emit(s)
	}
}

// channelFeed returns the strides of another pipeline, which runs at the same time.
type channelFeed struct {
	from  *pipelineRun
	ctx   context.Context
	stop  context.CancelCauseFunc
	ended chan struct{}
}

// start starts the other pipeline, unless it was started before.
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
			f.from.run.fail(err)
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
	return oneStride(s.Stride, s.order), nil
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

// resultFeed returns the parts of a blocking operator's result, after the pipeline that
// ends in the operator.
type resultFeed struct {
	from *pipelineRun
	parts
}

// parts returns the parts of a source one by one. op counts them.
type parts struct {
	src  operators.Source
	op   *opRun
	next int
}

func (f *resultFeed) start(ctx context.Context) { f.from.start(ctx) }

func (f *resultFeed) run(ctx context.Context) error { return f.from.work(ctx) }

func (p *parts) take(ctx context.Context) (morsel, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	part := p.next
	if part == p.src.Parts() {
		return nil, io.EOF
	}
	p.next++
	return func(ctx context.Context, l *lane, emit operators.Emit) error {
		l.order = p.order(l, part)
		defer l.turn(l.turn(p.op))
		return p.op.explain(p.src.Emit(ctx, l.task(p.op), part, emit))
	}, nil
}

// partBits is the number of bits of a position for the part of a result. Higher ones have the device.
const partBits = inputBits - 6

// order returns the position of a part among those of all devices. In an ordered result all parts of a device come
// before those of the next one.
func (p *parts) order(l *lane, part int) int {
	if rows, ok := p.src.(*materialize.Reader); ok {
		return rows.Number(part)
	}
	if !p.op.Distribution.Ordered {
		return 0
	}
	return l.pipelineRun.run.at<<partBits | part
}

// take returns the next part, or all of them in one morsel if other processors may help.
func (f *resultFeed) take(ctx context.Context) (morsel, error) {
	if f.op.crew == nil || f.next == f.src.Parts() {
		return f.parts.take(ctx)
	}
	next := f.next - 1
	f.next = f.src.Parts()
	return func(ctx context.Context, l *lane, emit operators.Emit) error {
		defer l.turn(l.turn(f.op))
		l.end() // each part is a morsel
		defer l.begin()
		return f.op.explain(l.share(ctx, -1, f.op, f.src, emit, func() int { next++; return next }))
	}, nil
}

// end closes the operator. All its rows have been taken.
func (f *resultFeed) end() error { return f.op.close() }

// inputBits is the number of bits of a position in the order of one scan. Higher bits have the number of the scan in a
// union.
const inputBits = 40

// unionFeed returns the morsels of its feeds, one feed after another, with rearranged columns. As
// with a scan or a channel, lanes may still work on morsels of a feed after it has ended.
type unionFeed struct {
	op      *opRun
	feeds   []feed
	columns [][]int // of each feed, in the order of the union
	before  []int   // of each feed: how many ordered inputs come before

	ctx   context.Context
	at    int // the current feed
	ready bool
}

// start starts the first feed. Each other feed starts when the one before it has ended.
func (f *unionFeed) start(ctx context.Context) { f.feeds[0].start(ctx) }

func (f *unionFeed) run(ctx context.Context) error {
	f.ctx = ctx // also for the other feeds, which outlive the lane that starts them
	return nil
}

func (f *unionFeed) take(ctx context.Context) (morsel, error) {
	for ; f.at < len(f.feeds); f.at++ {
		in, cols := f.feeds[f.at], f.columns[f.at]
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
		before := f.before[f.at]
		return func(ctx context.Context, l *lane, emit operators.Emit) error {
			return m(ctx, l, func(s *gpu.Stride) error {
				f.op.rowsIn.Add(int64(s.Rows))
				at := l.order
				defer func() { l.order = at }()
				l.order += before << inputBits
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

// rearrange changes the order of a stride's columns. It releases the columns that are not
// in cols.
func rearrange(s *gpu.Stride, schema *gpu.Schema, cols []int) *gpu.Stride {
	out := &gpu.Stride{Schema: schema, Rows: s.Rows, Cols: make([]gpu.Column, len(cols))}
	for i, c := range cols {
		out.Cols[i] = s.Cols[c].Retain()
	}
	s.Release()
	return out
}
