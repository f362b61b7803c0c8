package runner

import (
	"context"
	"sync"

	"github.com/gstream/gstream/operators/hold"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// held has the rows of a step that several pipelines read. The first of these pipelines that runs
// starts the computation, on its own goroutine, because the others need the rows even if the first
// stops early.
type held struct {
	run  *run
	from *pipelineRun // pipeline that collects the rows
	op   *opRun       // operator that holds the rows

	begin   sync.Once
	stop    context.CancelCauseFunc
	done    chan struct{} // closed when the rows are computed; nil before the computation starts
	err     error         // error of the computation
	mu      sync.Mutex
	readers int // number of readers that have not ended
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

// reader returns a pipeline that reads the rows. o counts the rows that it passes on.
func (h *held) reader(o *opRun) *pipelineRun {
	h.readers++
	return &pipelineRun{run: h.run, feed: &heldFeed{held: h, parts: parts{op: o}}, from: o}
}

// compute computes the rows.
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

// close is called by each reader. The last call releases the rows.
func (h *held) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers--; h.readers > 0 {
		return nil
	}
	h.end()
	return h.op.close()
}

// end waits until the computation of the rows has ended.
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
	rows  *hold.Reader // set once the rows are computed
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

// end is called once no lane takes morsels any more. It may be called before the feed has run.
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
