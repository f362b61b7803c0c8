package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/materialize"
	"github.com/gstream/gstream/operators/recursive"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// A recursion runs its step again and again. Each iteration is a run of its own, with operators and pipelines of its
// own, that has the device, the budgets and the spill store of the run around it. Operators need not be restartable
// this way, and nothing of an iteration is left when it has ended but the rows that it adds. The first iteration is
// prepared with the plan, so that the list of operators of the plan is complete before the run; in later iterations a
// stage counts in the same account. An iteration of one row takes some 50 µs on the CPU.
//
// What does not depend on the working table is a materialized stage of the run around the recursion, which computes it
// once.

// recursion is a recursive stage in a run.
type recursion struct {
	run    *run // around the iterations
	stage  *physical.Stage
	spec   *physical.Recursive
	op     *opRun
	rows   *recursive.Recursion                   // the operator
	anchor *pipelineRun                           // collects the anchor
	next   *iteration                             // nil if it is not prepared
	last   *workingTable                          // rows of the last iteration; nil at the end
	held   []*materialized                        // that iterations read
	kept   map[*physical.Stage]operators.Operator // joins whose build sides all iterations use
	number int64                                  // of the iteration
	ended  bool
}

// iteration is one computation of the step of a recursion.
type iteration struct {
	*recursion
	run  *run
	step *pipelineRun // collects the rows
}

// workingTable has the rows that an iteration has added. The last of its users closes it.
type workingTable struct {
	*materialize.Rows
	users atomic.Int32
}

func (w *workingTable) release() error {
	if w.users.Add(-1) > 0 {
		return nil
	}
	return w.Rows.Close()
}

func (r *run) prepareRecursion(st *physical.Stage, spec *physical.Recursive) (*pipelineRun, error) {
	anchor, err := r.prepare(st.Inputs[0])
	if err != nil {
		return nil, err
	}
	rec := &recursion{run: r, stage: st, spec: spec}
	r.recursions = append(r.recursions, rec)
	if rec.next, err = rec.prepare(); err != nil {
		return nil, err
	}
	if rec.op, err = r.newOp(st); err != nil {
		return nil, err
	}
	rec.rows = rec.op.op.(*recursive.Recursion)
	rec.anchor = r.collect(anchor, rec.op)
	rec.next.collect()
	return &pipelineRun{run: r, feed: &recursionFeed{recursion: rec}, from: rec.op}, nil
}

// prepare cuts the step into pipelines.
func (rec *recursion) prepare() (_ *iteration, err error) {
	r := rec.run
	it := &iteration{recursion: rec}
	it.run = &run{plan: r.plan, opt: r.opt, device: r.device, started: r.started,
		spill: r.spill, frugal: r.frugal, denied: r.denied, slots: r.slots, loops: r.loops, iteration: it}
	it.step, err = it.run.prepare(rec.stage.Inputs[1])
	return it, err
}

// collect makes the step end in the operator of the recursion.
func (it *iteration) collect() { it.step = it.run.collect(it.step, it.op) }

// around returns the run around that of an iteration, nil for the run of a plan.
func (r *run) around() *run {
	if r.iteration == nil {
		return nil
	}
	return r.iteration.recursion.run
}

// whole returns the run of the plan.
func (r *run) whole() *run {
	for r.iteration != nil {
		r = r.around()
	}
	return r
}

// within returns the recursion of a run around in whose iterations this run is.
func (r *run) within(around *run) *recursion {
	for r.around() != around {
		r = r.around()
	}
	return r.iteration.recursion
}

// owner returns the run that computes the rows of a stage: the iteration of the innermost recursion on which they
// depend, or the run of the plan.
func (r *run) owner(st *physical.Stage) *run {
	for r.iteration != nil && !r.loops[st][r.iteration.stage] {
		r = r.around()
	}
	return r
}

// prepareWorking returns a pipeline that reads a working table.
func (r *run) prepareWorking(st *physical.Stage, spec *physical.Working) (*pipelineRun, error) {
	for at := r; at.iteration != nil; at = at.around() {
		if rec := at.iteration.recursion; rec.stage == spec.Of {
			o, err := r.newOp(st)
			if err != nil {
				return nil, err
			}
			return &pipelineRun{run: r, feed: &workingFeed{recursion: rec, parts: parts{op: o}}, from: o}, nil
		}
	}
	return nil, fmt.Errorf("%s: it is not in the step of its recursion", st.Name())
}

// workingFeed returns the rows of the last iteration.
type workingFeed struct {
	*recursion
	parts parts
	rows  *materialize.Reader
}

func (f *workingFeed) start(context.Context) {}

func (f *workingFeed) run(context.Context) error {
	f.rows = f.last.Reader()
	f.parts.src = f.rows
	return nil
}

func (f *workingFeed) take(ctx context.Context) (morsel, error) { return f.parts.take(ctx) }

func (f *workingFeed) end() error {
	if f.rows != nil {
		f.rows.Close()
	}
	return nil
}

// strides returns the number of strides that the feed returns, 0 if it is not known yet.
func (f *workingFeed) strides() int {
	if f.last == nil {
		return 0
	}
	return max(f.last.Reader().Parts(), 1)
}

// work computes an iteration.
func (it *iteration) work(ctx context.Context) (err error) {
	r := it.run
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	it.rows.Begin(it.spec.Step)
	if err = it.step.work(r.ctx); err == nil {
		err = context.Cause(r.ctx)
	}
	return with(err, it.end())
}

// end closes what is left of an iteration.
func (it *iteration) end() error {
	errs := it.run.closeRows()
	for _, o := range it.run.ops {
		errs = append(errs, o.close())
	}
	return errors.Join(errs...)
}

// closeRows ends the computations of rows that several pipelines or iterations of the run read.
func (r *run) closeRows() (errs []error) {
	for _, rec := range r.recursions {
		errs = append(errs, rec.end())
	}
	for _, h := range r.materialized {
		h.end()
	}
	return errs
}

// iterate computes the next iteration and makes its rows the last ones.
func (rec *recursion) iterate(ctx context.Context) (err error) {
	it := rec.next
	if rec.next = nil; it == nil {
		if it, err = rec.prepare(); err != nil {
			return with(err, it.end())
		}
		it.collect()
	}
	rec.number++
	rec.op.iterations.Add(1)
	if err := it.work(ctx); err != nil {
		return err
	}
	return rec.replace(rec.rows.Take())
}

// replace makes the rows of an iteration the last ones. Without rows, the recursion has ended.
func (rec *recursion) replace(rows *materialize.Rows) (err error) {
	if rec.last != nil {
		err = rec.last.release()
	}
	if rec.last = nil; rows == nil || rows.Len() == 0 && rec.number > 0 {
		if rows != nil {
			err = with(err, rows.Close())
		}
		return err
	}
	rec.last = &workingTable{Rows: rows}
	rec.last.users.Store(1)
	return err
}

// explain adds to an error of memory or disk how far the recursion got.
func (rec *recursion) explain(err error) error {
	if !errors.Is(err, gpu.ErrBudget) && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	hint := ""
	if rec.spec.All {
		hint = ", or write UNION in place of UNION ALL to drop rows that come again"
	}
	return fmt.Errorf("%w; it was iteration %s of a recursive query, with %s rows so far: if it does not end, add "+
		"a condition that ends it%s", err, humanize.Comma(rec.number), humanize.Comma(rec.op.rowsIn.Load()), hint)
}

// end closes what is left of a recursion.
func (rec *recursion) end() (err error) {
	if rec.ended {
		return nil
	}
	rec.ended = true
	if rec.next != nil {
		err = rec.next.end()
	}
	err = with(err, rec.replace(nil))
	for _, op := range rec.kept {
		err = with(err, op.Close())
	}
	for _, h := range rec.held {
		err = with(err, h.close())
	}
	if rec.op != nil {
		err = with(err, rec.op.close())
	}
	return err
}

// keeper returns the recursion that keeps the operator of a join for later iterations, because they would build the
// same: nil if there is none. A frugal run keeps nothing, since tables cannot spill.
func (r *run) keeper(st *physical.Stage) *recursion {
	if _, ok := st.Spec.(*physical.Join); !ok || r.iteration == nil || r.frugal {
		return nil
	}
	if owner := r.owner(st.Inputs[1]); owner != r {
		return r.within(owner)
	}
	return nil
}

// keeps returns the operator that the recursion keeps for a stage, nil if there is none.
func (rec *recursion) keeps(st *physical.Stage) operators.Operator {
	if rec == nil {
		return nil
	}
	return rec.kept[st]
}

// keep keeps the operator of a pipeline that has ended, and reports whether it does so.
func (rec *recursion) keep(o *opRun) bool {
	if rec == nil || rec.ended {
		return false
	}
	if op, ok := o.op.(operators.Reusable); !ok || !op.Reusable() {
		return false
	}
	if rec.kept == nil {
		rec.kept = map[*physical.Stage]operators.Operator{}
	}
	rec.kept[o.Stage] = o.op
	return true
}

// recursionFeed returns the rows of the anchor, and then those of each iteration. An iteration runs when a lane has
// taken the rows of the one before, so that a limit ends a recursion that has no end.
type recursionFeed struct {
	*recursion
	parts *parts // of the last rows; morsels that lanes have taken keep those of earlier ones
	from  *materialize.Reader
	err   error
}

func (f *recursionFeed) start(ctx context.Context) { f.anchor.start(ctx) }

func (f *recursionFeed) run(ctx context.Context) error {
	f.rows.Begin(f.spec.Anchor)
	if err := f.anchor.work(ctx); err != nil {
		return err
	}
	return f.added(f.replace(f.rows.Take()))
}

// added begins to return the rows that were added last.
func (f *recursionFeed) added(err error) error {
	if f.from = nil; f.last != nil {
		f.from = f.last.Reader()
		f.parts = &parts{src: f.from, op: f.op}
	}
	return err
}

func (f *recursionFeed) take(ctx context.Context) (morsel, error) {
	for f.err == nil && f.from != nil {
		m, err := f.parts.take(ctx)
		if err == nil {
			return f.using(m), nil
		}
		if err != io.EOF {
			return nil, err
		}
		f.from.Close()
		f.err = f.explain(f.added(f.iterate(ctx)))
	}
	if f.err != nil {
		return nil, f.err
	}
	return nil, io.EOF
}

// using returns a morsel of the last rows that keeps them until it has ended.
func (f *recursionFeed) using(m morsel) morsel {
	rows := f.last
	rows.users.Add(1)
	return func(ctx context.Context, l *lane, emit operators.Emit) error {
		return with(m(ctx, l, emit), rows.release())
	}
}

func (f *recursionFeed) end() error {
	if f.from != nil {
		f.from.Close()
	}
	return f.recursion.end()
}
