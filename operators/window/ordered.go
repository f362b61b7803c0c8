package window

import (
	"context"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// A window without partition keys has all rows in one order. If they do not fit memory, a sort out
// of core takes them, and gives them back in order. Functions of a row and those before it are
// then computed batch by batch: what the rows before have come to is added to the values of a
// batch. A batch ends where the order has another value, so peers stay together.

// carries reports whether the functions can be computed so.
func (o *windows) carries() bool {
	return len(o.Partition) == 0 && len(o.Order) > 0 && !slices.ContainsFunc(o.Functions, func(f Function) bool {
		switch f.Kind {
		case RowNumber, Rank, DenseRank:
			return false
		case Aggregate:
			if f.Frame.From.Kind != UnboundedPreceding || f.Frame.To.Kind != CurrentRow {
				return true
			}
			switch f.Aggregate {
			case gpu.CountAll, gpu.Count, gpu.Min, gpu.Max:
				return false
			case gpu.Sum:
				return f.Output.Kind == gpu.Float64 // the order of additions would show
			}
		}
		return true
	})
}

// pushSorted hands collected strides, which it takes over, also on error, to the sort.
func (l *local) pushSorted(ctx context.Context, own []cut) (err error) {
	if l.sorting == nil {
		l.sorting, err = l.sorter.NewLocal(l.task)
	}
	for _, c := range own {
		if err == nil {
			err = l.sorting.Push(ctx, c.number, c.rows)
		} else {
			c.rows.Release()
		}
	}
	return err
}

// finalizeSorted sorts all rows, those that lanes still hold too.
func (o *collection) finalizeSorted(ctx context.Context, t operators.Task) error {
	held := o.held
	o.held = nil
	slices.SortStableFunc(held, func(a, b cut) int { return a.number - b.number })
	l := &local{collection: o, task: t}
	defer l.Close()
	err := l.pushSorted(ctx, held)
	if err == nil {
		err = l.sorting.Combine(ctx)
	}
	if err == nil {
		err = o.sorter.Finalize(ctx, t)
	}
	o.parts = []part{{}}
	return err
}

// emitSorted emits all rows in order.
func (o *windows) emitSorted(ctx context.Context, t operators.Task, emit operators.Emit) error {
	c := &carry{windows: o, task: t, emit: emit}
	defer c.release()
	for i := range o.sorter.Parts() {
		if err := o.sorter.Emit(ctx, t, i, c.push); err != nil {
			return err
		}
	}
	return c.compute(true)
}

// carry computes functions batch by batch.
type carry struct {
	*windows
	task operators.Task
	emit operators.Emit
	// waiting are strides that are not emitted, of which the first has the rows of one value of the
	// order, if there was a batch before.
	waiting []*gpu.Stride
	before  int64        // rows that were emitted
	last    []gpu.Column // the functions of the last of them, one row each
}

func (c *carry) release() {
	for _, s := range c.waiting {
		s.Release()
	}
	gpu.ReleaseColumns(c.last)
}

// push takes a stride over. It computes a batch when half of its rows are new.
func (c *carry) push(s *gpu.Stride) error {
	rows := s.Rows
	for _, w := range c.waiting[min(1, len(c.waiting)):] {
		rows += w.Rows
	}
	c.waiting = append(c.waiting, s)
	if rows < c.waiting[0].Rows {
		return nil
	}
	return c.compute(false)
}

// compute emits the rows that wait, without those of the last value of the order unless they are
// the end.
func (c *carry) compute(end bool) (err error) {
	if len(c.waiting) == 0 {
		return nil
	}
	t, used := c.task, c.used()
	strides := c.waiting
	c.waiting = nil
	rows, err := operators.CollectRows(t, c.In, strides, used)
	if err != nil {
		return err
	}
	r := &result{windows: c.windows, rows: rows}
	defer r.release()
	if r.ids, err = allRows(t, rows.N); err != nil {
		return err
	}
	calc, err := newCalculation(t, nil, c.Order, rows, used, r.ids)
	if err != nil {
		return err
	}
	defer calc.release()
	n := rows.N
	if !end {
		if n, err = calc.lastPeers(); err != nil {
			return err
		}
		tail, err := rows.GatherRange(t, r.ids, n, rows.N)
		if err != nil {
			return err
		}
		if c.waiting = append(c.waiting, tail); n == 0 {
			return nil
		}
	}
	var last []gpu.Column
	defer func() { gpu.ReleaseColumns(last) }()
	for i, f := range c.Functions {
		out, err := calc.function(f)
		if err == nil {
			out, err = c.add(calc, i, out)
		}
		if err != nil {
			return err
		}
		r.functions = append(r.functions, out)
		one, err := t.Queue.Slice(t.Lease, out, n-1, n)
		if err != nil {
			return err
		}
		last = append(last, one)
	}
	c.last, last = last, c.last
	c.before += int64(n)
	rows.Keep(c.Keep, &gpu.Schema{Fields: c.Out.Fields[:len(c.Keep)]})
	for from := 0; from < n; from += c.stride {
		if err := r.emit(t, from, min(from+c.stride, n), c.emit); err != nil {
			return err
		}
	}
	return nil
}

// lastPeers returns the first of the rows that are peers of the last.
func (c *calculation) lastPeers() (int, error) {
	defer c.endFunction()
	starts := c.startsOf(peers)
	if c.err != nil {
		return 0, c.err
	}
	at, err := c.task.Queue.Slice(c.task.Lease, starts, starts.Len-2, starts.Len-1)
	if err != nil {
		return 0, err
	}
	defer at.Release()
	first, err := operators.Ints(c.task, at)
	if err != nil {
		return 0, err
	}
	return int(first[0]), nil
}

// add returns the values of function i with what the rows before the batch have come to. It takes
// the column over.
func (c *carry) add(calc *calculation, i int, out gpu.Column) (gpu.Column, error) {
	if c.before == 0 {
		return out, nil
	}
	defer out.Release()
	defer calc.endFunction()
	f, kind := c.Functions[i], out.Type
	if f.Kind == RowNumber || f.Kind == Rank {
		p := newProgram(kind)
		sum := calc.eval(p, p.plus(0, p.number(kind, c.before)), out)
		return sum.Retain(), calc.err
	}
	p := newProgram(kind, kind)
	there := func(x, y, both int) int {
		return p.choose(kind, p.op(gpu.OpIsNotNull, boolType, x), p.choose(kind, p.op(gpu.OpIsNotNull, boolType, y), both, x), y)
	}
	var total int
	switch less := func() int { return p.op(gpu.OpLt, boolType, 0, 1) }; {
	case f.Kind == Aggregate && f.Aggregate == gpu.Min:
		total = there(0, 1, p.choose(kind, less(), 0, 1))
	case f.Kind == Aggregate && f.Aggregate == gpu.Max:
		total = there(0, 1, p.choose(kind, less(), 1, 0))
	default:
		total = there(0, 1, p.op(gpu.OpAdd, kind, 0, 1))
	}
	before := calc.gather(c.last[i], calc.constant(0, out.Len), false)
	sum := calc.eval(p, total, out, before)
	return sum.Retain(), calc.err
}
