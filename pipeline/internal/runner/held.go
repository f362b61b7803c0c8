package runner

import (
	"context"
	"sync"

	"github.com/gstream/gstream/operators/hold"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// held is the rows of a step that several pipelines read. The first of them that runs has the
// rows computed, on a goroutine of their own: others need the rows also when it stops early.
type held struct {
	run  *run
	from *pipelineRun // that collects the rows
	op   *opRun       // that holds them

	begin   sync.Once
	stop    context.CancelCauseFunc
	done    chan struct{} // closed when they are computed; nil before
	err     error         // set then
	mu      sync.Mutex
	readers int // that have not ended
}

// heldOf returns the rows that a stage holds.
func (r *run) heldOf(st *physical.Stage) *held {
	if r.held == nil {
		r.held = map[*physical.Stage]*held{}
	}
	h := r.held[st]
	if h == nil {
		h = &held{run: r}
		r.held[st] = h
	}
	return h
}

// reader returns a pipeline that reads the rows. The operator counts those that it passes on.
func (h *held) reader(o *opRun) *pipelineRun {
	h.readers++
	return &pipelineRun{run: h.run, feed: &heldFeed{held: h, parts: parts{op: o}}, from: o}
}

// compute has the rows computed.
func (h *held) compute() {
	h.begin.Do(func() {
		var ctx context.Context
		ctx, h.stop = context.WithCancelCause(h.run.ctx)
		h.done = make(chan struct{})
		go func() {
			defer close(h.done)
			h.err = h.from.work(ctx)
		}()
	})
}

// close is called by each reader. The last gives the rows back.
func (h *held) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers--; h.readers > 0 {
		return nil
	}
	h.end()
	return h.op.close()
}

// end waits until nobody computes the rows any more.
func (h *held) end() {
	if h.begin.Do(func() {}); h.done != nil {
		h.stop(errStop)
		<-h.done
	}
}

// heldFeed returns the strides that are held.
type heldFeed struct {
	*held
	parts parts
	rows  *hold.Reader // once they are computed
	ended bool
}

func (f *heldFeed) start(context.Context) {}

func (f *heldFeed) run(ctx context.Context) error {
	f.compute()
	select {
	case <-f.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if f.err != nil {
		return f.err
	}
	f.rows = f.op.op.(*hold.Hold).Reader()
	f.parts.src = f.rows
	return nil
}

func (f *heldFeed) take(ctx context.Context) (morsel, error) { return f.parts.take(ctx) }

// end is called once no lane takes any more, and may be called before the feed has run.
func (f *heldFeed) end() error {
	if f.ended {
		return nil
	}
	f.ended = true
	if f.rows != nil {
		f.rows.Close()
	}
	return f.close()
}
