package window

import (
	"context"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/hold"
	"github.com/gstream/gstream/operators/sort"
)

// A window without partition keys has all rows in one sequence. If they do not fit memory, a sort
// out of core takes them, or without an order a hold, and gives them back one stride after the
// other. Functions are then computed batch by batch. What a function needs besides the rows of a
// batch is its span. What other rows have come to is their state: a value, which is merged with
// those of the batch, or the rows that a function may still select, which it sees besides the batch.

// span says which rows a function sees, in a window over all rows.
type span uint8

const (
	// anywhere is rows at any distance: all must be in memory.
	anywhere span = iota
	// upToHere is the rows up to the current one or its peers. Those before a batch have a state.
	upToHere
	// nearby is rows near the current one: a batch keeps the rows before it that its frames see,
	// and leaves its last rows to the next one.
	nearby
	// all is the same rows for each row: a first pass makes their state.
	all
	// fromHere is the rows from the current one, its peers or one near by up to the end. A first pass makes the state
	// of the rows behind each stride.
	fromHere
	// upToNear is the rows up to one near the current one. A batch keeps rows as for nearby. Those that it does not
	// keep have a state.
	upToNear
)

// streamed returns a function of the spec, which has no partition keys, in the form in which batches compute it, and
// its span. The frame of a function without one becomes the rows that it needs.
func (s *Spec) streamed(f Function) (Function, span) {
	switch f.Kind {
	case RowNumber, Ntile:
		return f, upToHere
	case Rank, DenseRank, PercentRank, CumeDist:
		if len(s.Order) > 0 {
			return f, upToHere
		}
		f.Frame = rowFrame // all rows are peers, so any of them give the ranks
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
	case f.Kind == NthValue && !f.Bounded:
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

// reach returns how many rows lag or lead looks back and ahead at most, if that is known.
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

// nth returns the most that first_value or nth_value counts from the start of a frame, 1 at least.
func (f Function) nth() int64 {
	if f.Kind == NthValue {
		return max(f.Most, 1)
	}
	return 1
}

// stream is the functions of a window over all rows, in the form in which batches compute them.
type stream struct {
	// functions are those of the spec, then a count for each average that is merged.
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

// newSequence returns the operator that takes the rows of a spec when they spill.
func newSequence(s *Spec) (operators.Blocking, error) {
	if len(s.Order) == 0 {
		return hold.New(s.In), nil
	}
	return sort.New(sort.Spec{In: s.In, Keys: s.Order, Limit: -1})
}

// pushSequence hands collected strides, which it takes over, also on error, to the sequence.
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

// finalizeSequence puts all rows in sequence, those that lanes still hold too.
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
	held, ok := o.sequence.(*hold.Hold)
	twice := slices.Contains(o.stream.spans, all) || slices.Contains(o.stream.spans, fromHere)
	if !ok && twice { // the rows of a sort come once
		held = hold.New(b.In)
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

// fill puts strides into a hold, in the order in which they come.
func fill(ctx context.Context, t operators.Task, h *hold.Hold, each func(operators.Emit) error) error {
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
	// waiting are strides with rows that are not emitted. The first rows, seen of them, are: later
	// frames see them.
	waiting []*gpu.Stride
	seen    int
	before  int64 // rows that were emitted
	// last is what the rows before those of a batch have come to, for each function; of the span all, all rows.
	last []state
	// behind is, for functions of the span fromHere, what the rows of each stride and of those behind it come to.
	behind [][]state
	pushed int // strides
}

// state is what some rows have come to: the rows among them that a function may select, with the columns of its
// arguments, or one of nulls if there are none; or the value of a function that is merged, in one row. It is nil before
// the first rows.
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

// push takes a stride over. It computes a batch when half of its rows are new.
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

// total computes the functions that see all rows, or all rows from a stride on, of the next stride, which it takes
// over.
func (b *batches) total(s *gpu.Stride) error {
	rows, err := operators.CollectRows(b.task, b.In, []*gpu.Stride{s}, b.used(all, fromHere))
	if err != nil {
		return err
	}
	defer rows.Release()
	return b.add(rows, rows.N, all, fromHere)
}

// add adds the first n rows to what functions of some spans have come to. For those of the span fromHere each stride is
// kept apart, for joinBehind.
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

// joinBehind makes of the states of each stride those of the stride and all behind it.
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

// stateOf returns what the rows of a calculation come to in function i.
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

// valueAt returns the state of a function that is merged.
func (b *batches) valueAt(values gpu.Column, row int) (state, error) {
	value, err := b.task.Queue.Slice(b.task.Lease, values, row, row+1)
	if err != nil {
		return nil, err
	}
	return state{value}, nil
}

// join returns what some rows and rows behind these come to in function i. It takes both states over, also on error.
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

// rest returns what the rows behind all batches so far come to in function i, if it sees them.
func (b *batches) rest(i int) state {
	if b.pushed < len(b.behind[i]) {
		return b.behind[i][b.pushed]
	}
	return nil
}

// selected computes function i, which selects the value of a row, over the rows of a calculation between those of its
// states. The caller owns the result.
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
	case all: // nth_value, whose offset may be one of the row
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

// calculate returns the calculation of rows [from, to), which are in order, for functions of some spans.
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

// used returns the columns that distinguish peers, and those that functions of some spans use, ascending.
func (b *batches) used(of ...span) []int {
	var functions []Function
	for i, f := range b.stream.functions {
		if slices.Contains(of, b.stream.spans[i]) {
			functions = append(functions, f)
		}
	}
	return usedColumns(nil, b.peerKeys(), functions)
}

// compute emits the rows that wait, but not those whose functions may see rows that are still to
// come. There are none of these at the end.
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

// complete returns the first row of a batch whose functions may see rows behind the batch, and the
// first row that this and later rows see, at most that row.
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

// near returns a frame with all rows that function i may see one by one, if there are any.
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

// firstAtEnd returns the first row whose frame ends at the end of all rows; the last row, if there
// is none.
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

// functions returns the functions of rows [from, to) of a batch. whole calculates all of its rows,
// and part these.
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
	case of == all && f.Kind != NthValue: // a row that is selected has the value first
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

// selects reports whether the value of a function is one of a row that it selects. The rows that it may select,
// whatever comes before or behind, are kept of rows that are gone.
func (f Function) selects() bool { return f.PassesValues() }

// settled reports whether no rows behind those of a state change the value of a function.
func (f Function) settled(s state) bool { return f.Kind == FirstValue && !f.IgnoreNulls && s != nil }

// merges reports whether values of rows before a batch are merged with those of the batch. Places
// are counted from the rows before.
func (f Function) merges() bool {
	return f.Kind == Aggregate && !f.selects() || f.Kind == DenseRank
}

// merge returns the values of function i over some rows and over rows behind these. It takes both columns over, also on
// error. One may be a single value for all values of the other.
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
	kind := after.Type
	p := newProgram(kind, kind)
	both := p.op(mergeOps[b.stream.functions[i].Aggregate], kind, 0, 1)
	merged := p.choose(kind, p.op(gpu.OpIsNotNull, boolType, 0),
		p.choose(kind, p.op(gpu.OpIsNotNull, boolType, 1), both, 0), 1)
	return c.evalRows(p, merged, n, rows(before), rows(after)).Retain(), c.err
}

// mergeOps merge two values of an aggregate. Counts of groups of peers are merged as those of rows.
var mergeOps = map[gpu.AggregateKind]gpu.Op{gpu.CountAll: gpu.OpAdd, gpu.Count: gpu.OpAdd, gpu.Sum: gpu.OpAdd,
	gpu.Product: gpu.OpMul,
	gpu.BitAnd:  gpu.OpBitAnd, gpu.BitOr: gpu.OpBitOr, gpu.BitXor: gpu.OpBitXor}
