package window

import (
	"context"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/materialize"
	"github.com/gstream/gstream/operators/sort"
)

// A window without partition keys has all rows in one sequence. If they exceed the memory, they go
// through an external sort, or without an order through a hold, and come back stride by stride.
// Functions are then computed batch by batch. The rows that a function needs besides those of a
// batch are its span. These rows are reduced to a state: a value that is merged with the values of
// the batch, or the rows that the function may still select, which it sees in addition to the
// batch.

// span is the rows that a function sees, in a window over all rows.
type span uint8

const (
	// anywhere: rows at any distance. All rows must be in memory.
	anywhere span = iota
	// upToHere: the rows up to the current row or its peers. The rows before a batch have a state.
	upToHere
	// nearby: rows within a distance of the current row. A batch keeps the rows before it that its
	// frames see, and leaves its last rows to the next batch.
	nearby
	// all: all rows. A first pass computes their state.
	all
	// fromHere: the rows from the current row, its peers or a nearby row to the end. A first pass
	// computes the state of the rows after each stride.
	fromHere
	// upToNear: the rows up to a nearby row. A batch keeps rows as for nearby. The rows that it
	// does not keep have a state.
	upToNear
)

// streamed returns a function of a spec without partition keys in the form in which batches compute
// it, and its span. A function without a frame gets a frame of the rows that it needs.
func (s *Spec) streamed(f Function) (Function, span) {
	switch f.Kind {
	case RowNumber, Ntile:
		return f, upToHere
	case Rank, DenseRank, PercentRank, CumeDist:
		if len(s.Order) > 0 {
			return f, upToHere
		}
		f.Frame = rowFrame // all rows are peers, so any rows give the ranks
		return f, nearby
	case Lag, Lead:
		back, ahead, ok := f.reach()
		switch {
		case !ok:
			return f, anywhere
		case !f.IgnoreNulls || back == 0 && ahead == 0:
			f.Frame = Frame{Unit: Rows, From: Bound{Kind: Preceding, Offset: back},
				To: Bound{Kind: Following, Offset: ahead}}
			return f, nearby
		case ahead == 0:
			f.Frame = Frame{Unit: Rows, From: Bound{Kind: UnboundedPreceding}, To: Bound{Kind: CurrentRow}}
			return f, upToHere
		case back == 0:
			f.Frame = Frame{Unit: Rows, From: Bound{Kind: CurrentRow}, To: Bound{Kind: UnboundedFollowing}}
			return f, fromHere
		}
		return f, anywhere
	}
	from, to := f.Frame.From.Kind, f.Frame.To.Kind
	switch {
	case from != UnboundedPreceding && to != UnboundedFollowing:
		return f, nearby
	case f.Kind == NthValue && !f.Bounded, f.Frame.Exclude != NoOthers:
		return f, anywhere
	case f.Frame.Whole(len(s.Order) > 0):
		return f, all
	case to == UnboundedFollowing && f.Frame.Unit == Rows && !f.IgnoreNulls &&
		(f.Kind == FirstValue || f.Kind == NthValue):
		ahead := f.nth() - 1
		if from == Following {
			ahead += min(f.Frame.From.Offset, gpu.MaxRows)
		}
		f.Frame.To = Bound{Kind: Following, Offset: ahead}
		return f, nearby
	case to == UnboundedFollowing:
		return f, fromHere
	case to == CurrentRow:
		return f, upToHere
	}
	return f, upToNear
}

// reach returns the maximum number of rows that lag or lead looks back and ahead; ok says that it
// is known.
func (f Function) reach() (back, ahead int64, ok bool) {
	least, most := int64(1), int64(1)
	if f.Offset >= 0 {
		if least, most = f.Least, f.Most; !f.Bounded {
			return 0, 0, false
		}
	}
	if f.Kind == Lead {
		least, most = -most, -least
	}
	return max(most, 0), max(-least, 0), true
}

// nth returns the maximum row number in a frame that first_value or nth_value selects, 1 at least.
func (f Function) nth() int64 {
	if f.Kind == NthValue {
		return max(f.Most, 1)
	}
	return 1
}

// stream has the functions of a window over all rows, in the form in which batches compute them.
type stream struct {
	// functions are the functions of the spec, then a count for each average that is merged.
	functions []Function
	spans     []span
	counts    []int // for each function of the spec the count of its average, or -1
}

// newStream returns the functions of a spec, or nil if they cannot be computed batch by batch.
func newStream(s *Spec) *stream {
	if len(s.Partition) > 0 {
		return nil
	}
	st := &stream{}
	for _, f := range s.Functions {
		f, of := s.streamed(f)
		if of == anywhere {
			return nil
		}
		st.functions, st.spans, st.counts = append(st.functions, f), append(st.spans, of), append(st.counts, -1)
	}
	for i, f := range s.Functions {
		if f.Kind != Aggregate || f.Aggregate != gpu.Avg || st.spans[i] == nearby {
			continue
		}
		st.functions[i].Aggregate, st.functions[i].Output = gpu.Sum, gpu.SumType(s.In.Fields[f.Value].Type)
		f.Aggregate, f.Output = gpu.Count, gpu.Of(gpu.Int64)
		st.counts[i] = len(st.functions)
		st.functions, st.spans = append(st.functions, f), append(st.spans, st.spans[i])
	}
	return st
}

// newSequence returns the operator that keeps the rows of a spec when they spill.
func newSequence(s *Spec) (operators.Blocking, error) {
	if len(s.Order) == 0 {
		return materialize.New(s.In), nil
	}
	return sort.New(sort.Spec{In: s.In, Keys: s.Order, Limit: -1})
}

// pushSequence takes ownership of collected strides, also on error, and pushes them to the
// sequence.
func (l *local) pushSequence(ctx context.Context, own []cut) (err error) {
	if l.sequenced == nil {
		l.sequenced, err = l.sequence.NewLocal(l.task)
	}
	for _, c := range own {
		if err == nil {
			err = l.sequenced.Push(ctx, c.number, c.rows)
		} else {
			c.rows.Release()
		}
	}
	return err
}

// finalizeSequence puts all rows in sequence, including those that lanes still hold.
func (o *collection) finalizeSequence(ctx context.Context, t operators.Task) error {
	held := o.held
	o.held = nil
	slices.SortStableFunc(held, func(a, b cut) int { return a.number - b.number })
	l := &local{collection: o, task: t}
	defer l.Close()
	err := l.pushSequence(ctx, held)
	if err == nil {
		err = l.sequenced.Combine(ctx)
	}
	if err == nil {
		err = o.sequence.Finalize(ctx, t)
	}
	o.parts = []part{{}}
	return err
}

// emitSequence emits all rows in sequence.
func (o *windows) emitSequence(ctx context.Context, t operators.Task, emit operators.Emit) error {
	n := len(o.stream.functions)
	b := &batches{windows: o, task: t, emit: emit, last: make([]state, n), behind: make([][]state, n)}
	defer b.release()
	each := func(take operators.Emit) error { return eachPart(ctx, t, o.sequence.(operators.Source), take) }
	held, ok := o.sequence.(*materialize.Rows)
	twice := slices.Contains(o.stream.spans, all) || slices.Contains(o.stream.spans, fromHere)
	if !ok && twice { // a sort emits its rows only once
		held = materialize.New(b.In)
		defer held.Close()
		if err := fill(ctx, t, held, each); err != nil {
			return err
		}
	}
	if held != nil {
		each = func(take operators.Emit) error {
			r, lane := held.Reader(), t
			defer r.Close()
			lane.Lanes = 1 // this lane reads all parts
			return eachPart(ctx, lane, r, take)
		}
	}
	if twice {
		if err := each(b.total); err != nil {
			return err
		}
		if err := b.joinBehind(); err != nil {
			return err
		}
	}
	if err := each(b.push); err != nil {
		return err
	}
	return b.compute(true)
}

func eachPart(ctx context.Context, t operators.Task, source operators.Source, take operators.Emit) error {
	for i := range source.Parts() {
		if err := source.Emit(ctx, t, i, take); err != nil {
			return err
		}
	}
	return nil
}

// fill puts strides into a hold, in their order.
func fill(ctx context.Context, t operators.Task, h *materialize.Rows, each func(operators.Emit) error) error {
	l, err := h.NewLocal(t)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := each(func(s *gpu.Stride) error { return l.Push(ctx, 0, s) }); err != nil {
		return err
	}
	if err := l.Combine(ctx); err != nil {
		return err
	}
	return h.Finalize(ctx, t)
}

// batches computes functions batch by batch.
type batches struct {
	*windows
	task operators.Task
	emit operators.Emit
	// waiting are strides with rows to be emitted. Their first seen rows are emitted already, and
	// kept for later frames.
	waiting []*gpu.Stride
	seen    int
	before  int64 // rows that were emitted
	// last has for each function the state of the rows before a batch; with the span all, the state
	// of all rows.
	last []state
	// behind has for functions with the span fromHere, for each stride, the state of its rows and
	// all later rows.
	behind [][]state
	pushed int // strides so far
}

// state has what a function needs of some rows, as columns. For a function that is merged, it is
// one row with its value over these rows. For a function that selects a row, it is the arguments of
// the rows that it may select, or one row of nulls if there are none. It is nil before the first
// rows.
type state []gpu.Column

func (s state) rows() int {
	if s == nil {
		return 0
	}
	return s[0].Len
}

func (b *batches) release() {
	for _, s := range b.waiting {
		s.Release()
	}
	for _, s := range b.last {
		gpu.ReleaseColumns(s)
	}
	for _, states := range b.behind {
		for _, s := range states {
			gpu.ReleaseColumns(s)
		}
	}
}

// push takes ownership of a stride, and computes a batch if at least half of its rows are new.
func (b *batches) push(s *gpu.Stride) error {
	rows := s.Rows
	for _, w := range b.waiting[min(1, len(b.waiting)):] {
		rows += w.Rows
	}
	b.waiting = append(b.waiting, s)
	b.pushed++
	if rows < b.waiting[0].Rows {
		return nil
	}
	return b.compute(false)
}

// total takes ownership of the next stride of the first pass, and adds its rows to the states of
// the functions with the spans all and fromHere.
func (b *batches) total(s *gpu.Stride) error {
	rows, err := operators.CollectRows(b.task, b.In, []*gpu.Stride{s}, b.used(all, fromHere))
	if err != nil {
		return err
	}
	defer rows.Release()
	return b.add(rows, rows.N, all, fromHere)
}

// add adds the first n rows to the states of functions with the given spans. For fromHere it keeps
// one state per stride, for joinBehind.
func (b *batches) add(rows *operators.Rows, n int, spans ...span) error {
	c, err := b.calculate(rows, 0, n, spans...)
	if err != nil {
		return err
	}
	defer c.release()
	for i := range b.stream.functions {
		of := b.stream.spans[i]
		if !slices.Contains(spans, of) {
			continue
		}
		s, err := b.stateOf(c, i)
		if err == nil && of == fromHere {
			b.behind[i] = append(b.behind[i], s)
			continue
		}
		if err == nil {
			b.last[i], err = b.join(i, b.last[i], s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// joinBehind joins the states of each stride with those of all later strides.
func (b *batches) joinBehind() (err error) {
	for i, states := range b.behind {
		for at := len(states) - 2; at >= 0; at-- {
			behind := slices.Clone(states[at+1])
			for _, col := range behind {
				col.Retain()
			}
			if states[at], err = b.join(i, states[at], behind); err != nil {
				return err
			}
		}
	}
	return nil
}

// stateOf returns the state of the rows of a calculation, for function i.
func (b *batches) stateOf(c *calculation, i int) (state, error) {
	f := b.stream.functions[i]
	if !f.selects() {
		f.Frame = wholeFrame
		values, err := c.function(f)
		if err != nil {
			return nil, err
		}
		defer values.Release()
		return b.valueAt(values, 0)
	}
	defer c.endFunction()
	ids := c.selectable(f)
	if c.err != nil {
		return nil, c.err
	}
	var cols []gpu.Column
	for _, column := range f.arguments() {
		cols = append(cols, c.cols[column])
	}
	return b.task.Queue.Gather(b.task.Lease, cols, ids, true)
}

// valueAt returns a value as the state of a function that is merged.
func (b *batches) valueAt(values gpu.Column, row int) (state, error) {
	value, err := b.task.Queue.Slice(b.task.Lease, values, row, row+1)
	if err != nil {
		return nil, err
	}
	return state{value}, nil
}

// join returns the state of function i over the rows of two states, before and after. It takes
// ownership of both, also on error.
func (b *batches) join(i int, before, after state) (state, error) {
	f := b.stream.functions[i]
	switch {
	case before == nil:
		return after, nil
	case f.settled(before):
		gpu.ReleaseColumns(after)
		return before, nil
	}
	defer gpu.ReleaseColumns(before)
	defer gpu.ReleaseColumns(after)
	if !f.selects() {
		c := calculationOf(b.task, nil, nil, 1)
		defer c.release()
		value, err := b.merge(c, i, before[0].Retain(), after[0].Retain())
		if err != nil {
			return nil, err
		}
		return state{value}, nil
	}
	c := calculationOf(b.task, nil, nil, before.rows()+after.rows())
	defer c.release()
	for k, column := range f.arguments() {
		col, err := b.task.Queue.Concat(b.task.Lease, []gpu.Column{before[k], after[k]})
		if err != nil {
			return nil, err
		}
		c.cols[column] = col
	}
	return b.stateOf(c, i)
}

// rest returns the state of the rows after all batches so far, if function i sees them.
func (b *batches) rest(i int) state {
	if b.pushed < len(b.behind[i]) {
		return b.behind[i][b.pushed]
	}
	return nil
}

// selected computes function i, which selects the value of a row, over the rows of the state
// before, of a calculation and of the state after. The caller owns the result.
func (b *batches) selected(c *calculation, i int) (gpu.Column, error) {
	f, of := b.stream.functions[i], b.stream.spans[i]
	before, after := b.last[i], b.rest(i)
	n := before.rows()
	e := calculationOf(b.task, nil, nil, n+c.n+after.rows())
	defer e.release()
	for k, column := range f.arguments() {
		parts := []gpu.Column{c.cols[column]}
		if before != nil {
			parts = slices.Insert(parts, 0, before[k])
		}
		if after != nil {
			parts = append(parts, after[k])
		}
		col, err := b.task.Queue.Concat(b.task.Lease, parts)
		if err != nil {
			return gpu.Column{}, err
		}
		e.cols[column] = col
	}
	defer c.endFunction()
	from, to := c.frame(f.Frame)
	if c.err != nil {
		return gpu.Column{}, c.err
	}
	switch of {
	case all: // nth_value, whose offset may differ by row
		from, to = e.constant(0, c.n), e.constant(n, c.n)
	case fromHere:
		to = e.constant(e.n, c.n)
	default:
		p := newProgram(int32Type)
		from, to = e.constant(0, c.n), e.evalRows(p, p.op(gpu.OpAdd, int32Type, 0, p.number(int32Type, int64(n))), c.n,
			to)
	}
	e.setFrame(f.Frame, e.concat(e.constant(0, n), from, e.constant(0, after.rows())),
		e.concat(e.constant(0, n), to, e.constant(0, after.rows())))
	values, err := e.function(f)
	if err != nil {
		return gpu.Column{}, err
	}
	defer values.Release()
	return b.task.Queue.Slice(b.task.Lease, values, n, n+c.n)
}

// calculate returns the calculation of rows [from, to), which are in order, for functions with the
// given spans.
func (b *batches) calculate(rows *operators.Rows, from, to int, of ...span) (*calculation, error) {
	c := calculationOf(b.task, nil, b.Order, to-from)
	for _, column := range b.used(of...) {
		col, err := b.task.Queue.Slice(b.task.Lease, rows.Cols[column], from, to)
		if err != nil {
			c.release()
			return nil, err
		}
		c.cols[column] = col
	}
	return c, nil
}

// used returns the columns by which peers are found, and those that functions with the given spans
// use, ascending.
func (b *batches) used(of ...span) []int {
	var functions []Function
	for i, f := range b.stream.functions {
		if slices.Contains(of, b.stream.spans[i]) {
			functions = append(functions, f)
		}
	}
	return usedColumns(nil, b.peerKeys(), functions)
}

// compute emits the waiting rows, except those whose functions may see later rows. end says that
// there are no later rows.
func (b *batches) compute(end bool) (err error) {
	if len(b.waiting) == 0 {
		return nil
	}
	t := b.task
	strides := b.waiting
	n := int64(0)
	for _, s := range strides {
		n += int64(s.Rows)
	}
	if n > gpu.MaxRows {
		return tooMany(n)
	}
	b.waiting = nil
	rows, err := operators.CollectRows(t, b.In, strides, b.windows.used())
	if err != nil {
		return err
	}
	r := &result{windows: b.windows, rows: rows}
	defer r.release()
	whole, err := b.calculate(rows, 0, rows.N, nearby, fromHere, upToNear)
	if err != nil {
		return err
	}
	defer whole.release()
	ids, err := allRows(t, rows.N)
	if err != nil {
		return err
	}
	defer ids.Release()
	from, to, keep := b.seen, rows.N, rows.N
	if !end {
		if to, keep, err = b.complete(whole); err != nil {
			return err
		}
		if to <= from {
			to, keep = from, 0
		}
		if keep < rows.N {
			tail, err := rows.GatherRange(t, ids, keep, rows.N)
			if err != nil {
				return err
			}
			b.waiting = append(b.waiting, tail)
		}
		b.seen = to - keep
	}
	if to == from {
		return nil
	}
	part, err := b.calculate(rows, from, to, upToHere, all)
	if err != nil {
		return err
	}
	defer part.release()
	part.before, part.total = b.before, b.rows
	if r.functions, err = b.functions(whole, part, from, to); err != nil {
		return err
	}
	b.before += int64(to - from)
	if keep > 0 && !end && slices.Contains(b.stream.spans, upToNear) {
		if err := b.add(rows, keep, upToNear); err != nil {
			return err
		}
	}
	if r.ids, err = t.Queue.Slice(t.Lease, ids, from, to); err != nil {
		return err
	}
	rows.Keep(b.Keep, &gpu.Schema{Fields: b.Out.Fields[:len(b.Keep)]})
	for at := 0; at < to-from; at += b.stride {
		if err := r.emit(t, at, min(at+b.stride, to-from), b.emit); err != nil {
			return err
		}
	}
	return nil
}

// complete returns the first row of a batch whose functions may see rows after the batch, and the
// first row that this row and later rows see, at most to.
func (b *batches) complete(c *calculation) (to, keep int, err error) {
	to = c.n
	for i := range b.stream.functions {
		f, ok := b.stream.near(i)
		if !ok {
			continue
		}
		at, err := c.firstAtEnd(f)
		if err != nil {
			return 0, 0, err
		}
		to = min(to, at)
	}
	if len(b.peerKeys()) > 0 { // peers stay together
		if to, err = c.rowAt(c.start(peers), min(to, c.n-1)); err != nil {
			return 0, 0, err
		}
	}
	keep = to
	for i := range b.stream.functions {
		f, ok := b.stream.near(i)
		if !ok || to == c.n {
			continue
		}
		from, _ := c.frame(f)
		at, err := c.rowAt(from, to)
		if err != nil {
			return 0, 0, err
		}
		if b.stream.spans[i] == upToNear { // so that each later frame has a row of the batch
			at = max(at-1, 0)
		}
		keep = min(keep, at)
	}
	return to, keep, nil
}

// near returns a frame with the nearby rows on which function i depends, if any.
func (s *stream) near(i int) (Frame, bool) {
	f := s.functions[i]
	switch s.spans[i] {
	case nearby:
		return f.Frame, true
	case fromHere:
		return Frame{Unit: f.Frame.Unit, From: f.Frame.From, To: f.Frame.From}, true
	case upToNear:
		return Frame{Unit: f.Frame.Unit, From: f.Frame.To, To: f.Frame.To}, true
	}
	return Frame{}, false
}

// rowAt returns the value of a column of rows at one of them.
func (c *calculation) rowAt(col gpu.Column, row int) (int, error) {
	defer c.endFunction()
	if c.err != nil {
		return 0, c.err
	}
	at, err := c.task.Queue.Slice(c.task.Lease, col, row, row+1)
	if err != nil {
		return 0, err
	}
	defer at.Release()
	value, err := operators.Ints(c.task, at)
	if err != nil {
		return 0, err
	}
	return int(value[0]), nil
}

// firstAtEnd returns the first row whose frame ends at the end of all rows, or the last row.
func (c *calculation) firstAtEnd(f Frame) (int, error) {
	defer c.endFunction()
	_, to := c.frame(f)
	if c.err != nil {
		return 0, c.err
	}
	first := c.own(c.task.Queue.Search(c.task.Lease, gpu.SortKey{Column: to}, c.constant(c.n, 1), false,
		c.constant(0, 1), c.constant(c.n-1, 1)))
	return c.rowAt(first, 0)
}

// functions returns the functions of rows [from, to) of a batch. whole is the calculation of all of
// its rows, part that of rows [from, to).
func (b *batches) functions(whole, part *calculation, from, to int) (_ []gpu.Column, err error) {
	st := b.stream
	values := make([]gpu.Column, len(st.functions))
	defer func() { gpu.ReleaseColumns(values) }()
	for i, f := range st.functions {
		of := st.spans[i]
		if of == upToHere || of == all {
			values[i], err = b.values(part, i, 0, part.n)
		} else {
			values[i], err = b.values(whole, i, from, to)
		}
		if err == nil && of == upToHere {
			var s state
			switch {
			case f.selects():
				if s, err = b.stateOf(part, i); err == nil {
					b.last[i], err = b.join(i, b.last[i], s)
				}
			case f.merges():
				if s, err = b.valueAt(values[i], part.n-1); err == nil {
					gpu.ReleaseColumns(b.last[i])
					b.last[i] = s
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	for i, count := range st.counts {
		if count >= 0 {
			sum := values[i]
			values[i], err = part.average(sum, values[count])
			sum.Release()
			if err != nil {
				return nil, err
			}
		}
	}
	out := values[:len(st.counts)]
	values = values[len(st.counts):]
	return out, nil
}

// values returns function i of rows [from, to) of a calculation.
func (b *batches) values(c *calculation, i, from, to int) (out gpu.Column, err error) {
	f, of := b.stream.functions[i], b.stream.spans[i]
	switch {
	case of == all && f.Kind != NthValue: // the first column of a selected row is its value
		return c.repeat(b.last[i][0])
	case f.settled(b.last[i]):
		out, err = c.repeat(b.last[i][0])
	case of != nearby && f.selects():
		out, err = b.selected(c, i)
	default:
		out, err = c.function(f)
	}
	if err != nil {
		return out, err
	}
	values, err := b.task.Queue.Slice(b.task.Lease, out, from, to)
	out.Release()
	if err != nil || !f.merges() {
		return values, err
	}
	if before := b.last[i]; before != nil {
		if values, err = b.merge(c, i, before[0].Retain(), values); err != nil {
			return values, err
		}
	}
	if after := b.rest(i); after != nil {
		values, err = b.merge(c, i, values, after[0].Retain())
	}
	return values, err
}

// repeat returns a column of one value. The caller owns it.
func (c *calculation) repeat(value gpu.Column) (gpu.Column, error) {
	defer c.endFunction()
	return c.gather(value, c.constant(0, c.n), false).Retain(), c.err
}

// average divides sums by counts. The caller owns the result.
func (c *calculation) average(sum, count gpu.Column) (gpu.Column, error) {
	defer c.endFunction()
	return c.quotient(sum, count).Retain(), c.err
}

// selects reports whether a function returns a value of a row that it selects. Its states have the
// rows that it may select, whatever rows come before or after.
func (f Function) selects() bool { return f.PassesValues() }

// settled reports whether later rows than those of a state cannot change the value of a function.
func (f Function) settled(s state) bool { return f.Kind == FirstValue && !f.IgnoreNulls && s != nil }

// merges reports whether the value over the rows before a batch is merged with the values of the
// batch. Other functions of positions need only the number of rows before.
func (f Function) merges() bool {
	return f.Kind == Aggregate && !f.selects() || f.Kind == DenseRank
}

// merge merges values of function i over rows and over later rows. It takes ownership of both
// columns, also on error. One may have a single value for all values of the other.
func (b *batches) merge(c *calculation, i int, before, after gpu.Column) (gpu.Column, error) {
	defer before.Release()
	defer after.Release()
	defer c.endFunction()
	n := max(before.Len, after.Len)
	rows := func(col gpu.Column) gpu.Column {
		if col.Len == n {
			return col
		}
		return c.gather(col, c.constant(0, n), false)
	}
	merged := c.merged(b.stream.functions[i].Aggregate, rows(before), rows(after))
	return merged.Retain(), c.err
}

// merged merges values of an aggregate. A null is the value of no rows.
func (c *calculation) merged(kind gpu.AggregateKind, before, after gpu.Column) gpu.Column {
	t := after.Type
	p := newProgram(t, t)
	both := p.op(mergeOps[kind], t, 0, 1)
	merged := p.choose(t, p.op(gpu.OpIsNotNull, boolType, 0),
		p.choose(t, p.op(gpu.OpIsNotNull, boolType, 1), both, 0), 1)
	return c.evalRows(p, merged, after.Len, before, after)
}

// mergeOps merge two values of an aggregate. Counts of groups of peers are merged as counts of rows
// are.
var mergeOps = map[gpu.AggregateKind]gpu.Op{gpu.CountAll: gpu.OpAdd, gpu.Count: gpu.OpAdd, gpu.Sum: gpu.OpAdd,
	gpu.Product: gpu.OpMul,
	gpu.BitAnd:  gpu.OpBitAnd, gpu.BitOr: gpu.OpBitOr, gpu.BitXor: gpu.OpBitXor}
