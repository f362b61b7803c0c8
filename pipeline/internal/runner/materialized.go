package runner

import (
	"context"
	"slices"
	"sync"

	"github.com/gstream/gstream/operators/materialize"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// materialized has the rows of a step that several pipelines read. The first of these pipelines that runs
// starts the computation, on its own goroutine, because the others need the rows even if the first
// stops early.
type materialized struct {
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

// materializedOf returns the rows that a stage holds.
func (r *run) materializedOf(st *physical.Stage) *materialized {
	r = r.owner(st)
	if r.materialized == nil {
		r.materialized = map[*physical.Stage]*materialized{}
	}
	h := r.materialized[st]
	if h == nil {
		h = &materialized{run: r}
		r.materialized[st] = h
	}
	return h
}

// prepareMaterialize returns the first pipeline that reads the rows that a stage holds.
func (r *run) prepareMaterialize(st *physical.Stage) (*pipelineRun, error) {
	h := r.materializedOf(st)
	if h.from == nil {
		p, err := h.run.prepare(st.Inputs[0])
		if err != nil {
			return nil, err
		}
		if h.op, err = h.run.newOp(st); err != nil {
			return nil, err
		}
		h.from = h.run.collect(p, h.op)
	}
	return h.readIn(r, h.op), nil
}

// readIn returns a pipeline of a run that reads the rows. o counts the rows that it passes on. A recursion is a reader
// until it ends, and its iterations are none.
func (h *materialized) readIn(r *run, o *opRun) *pipelineRun {
	f := &materializedFeed{materialized: h, parts: parts{op: o}, borrowed: r != h.run}
	if !f.borrowed {
		h.readers++
	} else if rec := r.within(h.run); !slices.Contains(rec.held, h) {
		rec.held = append(rec.held, h)
		h.readers++
	}
	return &pipelineRun{run: r, feed: f, from: o, inputs: o.OrderedInputs()}
}

// compute computes the rows.
func (h *materialized) compute() {
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
func (h *materialized) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers--; h.readers > 0 {
		return nil
	}
	h.end()
	return h.op.close()
}

// end waits until the computation of the rows has ended.
func (h *materialized) end() {
	if h.begin.Do(func() {}); h.done != nil {
		h.stop(errStop)
		<-h.done
	}
}

// materializedFeed returns the strides that are held.
type materializedFeed struct {
	*materialized
	parts    parts
	rows     *materialize.Reader // set once the rows are computed
	ended    bool
	borrowed bool // the rows are those of a run around
}

func (f *materializedFeed) start(context.Context) {}

func (f *materializedFeed) run(ctx context.Context) error {
	f.compute()
	select {
	case <-f.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if f.err != nil {
		return f.err
	}
	f.rows = f.op.op.(*materialize.Rows).Reader()
	f.parts.src = f.rows
	return nil
}

func (f *materializedFeed) take(ctx context.Context) (morsel, error) { return f.parts.take(ctx) }

// end is called once no lane takes morsels any more. It may be called before the feed has run.
func (f *materializedFeed) end() error {
	if f.ended {
		return nil
	}
	f.ended = true
	if f.rows != nil {
		f.rows.Close()
	}
	if f.borrowed {
		return nil
	}
	return f.close()
}
