package window

import (
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
)

// calculation computes functions over the sorted rows of a part. Positions are INTEGER row ids, one
// for each row. Methods return borrowed columns. They keep the first error, and do nothing after
// it.
type calculation struct {
	partition []int
	order     []sort.Key
	task      operators.Task
	n         int
	cols      map[int]gpu.Column // sorted columns of the input
	// before is the number of rows of the partition that precede these rows. total is the number of
	// all of its rows, 0 if it has no others.
	before, total int64
	err           error

	made   map[string]gpu.Column // kept for all functions
	frames map[Frame][2]gpu.Column
	temps  []gpu.Column // of one function
}

// calculationOf returns the calculation of n rows, of which the caller sets the used columns.
func calculationOf(t operators.Task, partition []int, order []sort.Key, n int) *calculation {
	return &calculation{partition: partition, order: order, task: t, n: n, cols: map[int]gpu.Column{},
		made: map[string]gpu.Column{}, frames: map[Frame][2]gpu.Column{}}
}

// newCalculation gathers the used columns of rows in an order.
func newCalculation(t operators.Task, partition []int, order []sort.Key, rows *operators.Rows, used []int,
	ids gpu.Column) (*calculation, error) {
	c := calculationOf(t, partition, order, rows.N)
	cols, err := t.Queue.Gather(t.Lease, operators.Pick(rows.Cols, used), ids, false)
	if err != nil {
		return nil, err
	}
	for i, column := range used {
		c.cols[column] = cols[i]
	}
	return c, nil
}

// own keeps a column until the end of the function, and its error.
func (c *calculation) own(col gpu.Column, err error) gpu.Column {
	if c.err == nil {
		c.err = err
	}
	if err != nil {
		return gpu.Column{}
	}
	c.temps = append(c.temps, col)
	return col
}

// once returns the column of a name. The first time make makes it.
func (c *calculation) once(name string, make func() gpu.Column) gpu.Column {
	col, ok := c.made[name]
	if !ok {
		if col = make(); c.err == nil {
			c.made[name] = col.Retain()
		}
	}
	return col
}

// endFunction releases what one function has made.
func (c *calculation) endFunction() {
	gpu.ReleaseColumns(c.temps)
	c.temps = nil
}

func (c *calculation) release() {
	c.endFunction()
	for _, col := range c.made {
		col.Release()
	}
	for _, f := range c.frames {
		gpu.ReleaseColumns(f[:])
	}
	for _, col := range c.cols {
		col.Release()
	}
}

// eval evaluates one output of a program over all rows.
func (c *calculation) eval(p *program, out int, in ...gpu.Column) gpu.Column {
	return c.evalRows(p, out, c.n, in...)
}

func (c *calculation) evalRows(p *program, out, n int, in ...gpu.Column) gpu.Column {
	if c.err != nil {
		return gpu.Column{}
	}
	p.Outputs = []int{out}
	cols, err := c.task.Queue.Eval(c.task.Lease, &p.Program, in, n)
	if err != nil {
		return c.own(gpu.Column{}, err)
	}
	return c.own(cols[0], nil)
}

// rowIDs is a column of row ids without its validity. The program that made it leaves none null.
func rowIDs(ids gpu.Column) gpu.Column {
	ids.Valid = nil
	return ids
}

// gather gathers rows of a column. An id of -1 gives null.
func (c *calculation) gather(col, ids gpu.Column, outer bool) gpu.Column {
	if c.err != nil {
		return gpu.Column{}
	}
	cols, err := c.task.Queue.Gather(c.task.Lease, []gpu.Column{col}, ids, outer)
	if err != nil {
		return c.own(gpu.Column{}, err)
	}
	return c.own(cols[0], nil)
}

// rows has the number of each row.
func (c *calculation) rows() gpu.Column {
	return c.once("rows", func() gpu.Column { return c.own(allRows(c.task, c.n)) })
}

// next has the number of the row after each row.
func (c *calculation) next() gpu.Column {
	return c.once("next rows", func() gpu.Column {
		p := newProgram(int32Type)
		return c.eval(p, p.op(gpu.OpAdd, int32Type, 0, p.number(int32Type, 1)), c.rows())
	})
}

// constant has one number in each of n rows.
func (c *calculation) constant(v, n int) gpu.Column {
	p := newProgram()
	return c.evalRows(p, p.number(int32Type, int64(v)), n)
}

// runs is a kind of runs, by what consecutive rows have in common.
type runs string

const (
	partitions runs = "partition"
	peers      runs = "peers"
)

// keys returns the columns that are equal within a run. Without an order, all rows of a partition
// are peers.
func (c *calculation) keys(r runs) (cols []gpu.Column) {
	for _, k := range c.partition {
		cols = append(cols, c.cols[k])
	}
	if r == peers {
		for _, k := range c.order {
			cols = append(cols, c.cols[k.Column])
		}
	}
	return cols
}

// runOf has the number of the run of each row.
func (c *calculation) runOf(r runs) gpu.Column {
	c.startsOf(r)
	return c.made[string(r)]
}

// startsOf has the first row of each run, and then the number of rows.
func (c *calculation) startsOf(r runs) gpu.Column {
	if r == peers && len(c.order) == 0 {
		c.once(string(peers), func() gpu.Column { return c.runOf(partitions) })
		r = partitions
	}
	return c.once("starts of "+string(r), func() gpu.Column {
		q, l := c.task.Queue, c.task.Lease
		keys := c.keys(r)
		if len(keys) == 0 {
			c.once(string(r), func() gpu.Column { return c.constant(0, c.n) })
			return c.concat(c.constant(0, 1), c.constant(c.n, 1))
		}
		if c.err != nil {
			return gpu.Column{}
		}
		a, firsts, err := q.Runs(l, keys)
		if err != nil {
			return c.own(firsts, err)
		}
		defer a.Release()
		c.once(string(r), func() gpu.Column { return a.IDs() })
		return c.concat(c.own(firsts, nil), c.constant(c.n, 1))
	})
}

func (c *calculation) concat(parts ...gpu.Column) gpu.Column {
	if c.err != nil {
		return gpu.Column{}
	}
	return c.own(c.task.Queue.Concat(c.task.Lease, parts))
}

// start has for each row the first row of its run, and end the row after its run.
func (c *calculation) start(r runs) gpu.Column {
	return c.once("start of "+string(r), func() gpu.Column {
		if len(c.keys(r)) == 0 {
			return c.constant(0, c.n)
		}
		return c.gather(c.startsOf(r), c.runOf(r), false)
	})
}

func (c *calculation) end(r runs) gpu.Column {
	return c.once("end of "+string(r), func() gpu.Column {
		if len(c.keys(r)) == 0 {
			return c.constant(c.n, c.n)
		}
		starts := c.startsOf(r)
		if c.err != nil {
			return gpu.Column{}
		}
		ends := c.own(c.task.Queue.Slice(c.task.Lease, starts, 1, starts.Len))
		return c.gather(ends, c.runOf(r), false)
	})
}

// frame has for each row the first row of its frame, and the row after the frame, both within the
// partition. The second may be before the first. Rows that the frame excludes are among them.
func (c *calculation) frame(f Frame) (from, to gpu.Column) {
	f.Exclude = NoOthers
	if cols, ok := c.frames[f]; ok {
		return cols[0], cols[1]
	}
	from, to = c.bound(f.Unit, f.From, true), c.bound(f.Unit, f.To, false)
	c.setFrame(f, from, to)
	return from, to
}

// setFrame makes rows [from, to) the frame of each row.
func (c *calculation) setFrame(f Frame, from, to gpu.Column) {
	if c.err == nil {
		c.frames[f] = [2]gpu.Column{from.Retain(), to.Retain()}
	}
}

// bound has one end of the frames: the first row, or the row after the last.
func (c *calculation) bound(unit Unit, b Bound, first bool) gpu.Column {
	switch {
	case b.Kind == UnboundedPreceding:
		return c.start(partitions)
	case b.Kind == UnboundedFollowing:
		return c.end(partitions)
	case b.Kind == CurrentRow && unit == Rows && first:
		return c.rows()
	case b.Kind == CurrentRow && unit == Rows:
		return c.next()
	case b.Kind == CurrentRow && first:
		return c.start(peers)
	case b.Kind == CurrentRow:
		return c.end(peers)
	case unit == Range:
		return c.rangeBound(b, first)
	}
	// The offset counts rows, or groups of peers, from the row itself, and stops at the ends of the
	// partition. It is cut to the greatest INTEGER, because there cannot be more rows.
	offset := min(b.Offset, math.MaxInt32)
	if b.Kind == Preceding {
		offset = -offset
	}
	p := newProgram(int32Type, int32Type, int32Type)
	at := func(own int) int {
		from, to := p.long(1), p.long(2)
		return p.cast(int32Type, p.least(p.greatest(p.plus(p.long(own), p.number(int64Type, offset)), from), to))
	}
	if unit == Rows {
		own := c.rows()
		if !first {
			own = c.next()
		}
		return c.eval(p, at(0), own, c.start(partitions), c.end(partitions))
	}
	// Groups of peers have numbers; starts has their first rows.
	group := c.runOf(peers)
	own, low := group, c.gather(group, c.start(partitions), false)
	behind := newProgram(int32Type)
	last := behind.op(gpu.OpSub, int32Type, 0, behind.number(int32Type, 1))
	high := c.gather(group, c.eval(behind, last, c.end(partitions)), false)
	plusOne := func(col gpu.Column) gpu.Column {
		p := newProgram(int32Type)
		return c.eval(p, p.op(gpu.OpAdd, int32Type, 0, p.number(int32Type, 1)), col)
	}
	if !first {
		own = plusOne(own)
	}
	return c.gather(c.startsOf(peers), c.eval(p, at(0), own, low, plusOne(high)), false)
}

// rangeBound has the position of a value in the order of the partition.
func (c *calculation) rangeBound(b Bound, first bool) gpu.Column {
	start, end := c.start(partitions), c.end(partitions)
	if c.err != nil {
		return gpu.Column{}
	}
	k := gpu.SortKey{Column: c.cols[b.Key], Descending: c.order[0].Descending, NullsFirst: c.order[0].NullsFirst}
	return c.own(c.task.Queue.Search(c.task.Lease, k, c.cols[b.Value], !first, start, end))
}

// function computes a function. The caller owns the result.
func (c *calculation) function(f Function) (gpu.Column, error) {
	defer c.endFunction()
	var out gpu.Column
	switch f.Kind {
	case Aggregate:
		out = c.aggregate(f, c.ranges(f.Frame)...)
	case Lag, Lead, FirstValue, LastValue, NthValue:
		out = c.value(f)
	case ArgMin, ArgMax:
		out = c.argument(c.cols[f.Value], c.cols[f.Offset], f.Kind, c.ranges(f.Frame)...)
	default:
		out = c.rank(f)
	}
	if c.err != nil {
		return gpu.Column{}, c.err
	}
	return out.Retain(), nil
}

// rank computes a function of the position of the rows in their partition.
func (c *calculation) rank(f Function) gpu.Column {
	p := newProgram(int32Type, int32Type, int32Type)
	start, end := c.start(partitions), c.end(partitions)
	one := p.number(int64Type, 1)
	switch f.Kind {
	case RowNumber:
		return c.eval(p, p.plus(c.place(p), one), c.rows(), start, end)
	case Rank:
		return c.eval(p, p.plus(c.place(p), one), c.start(peers), start, end)
	case DenseRank:
		group := c.runOf(peers)
		return c.eval(p, p.plus(p.long(p.op(gpu.OpSub, int32Type, 0, 1)), one), group, c.gather(group, start, false),
			end)
	case PercentRank:
		others := p.minus(c.size(p), one)
		share := p.op(gpu.OpDiv, doubleType, p.cast(doubleType, c.place(p)), p.cast(doubleType, others))
		alone := p.op(gpu.OpLt, boolType, others, one)
		return c.eval(p, p.choose(doubleType, alone, p.double(0), share), c.start(peers), start, end)
	case CumeDist:
		return c.eval(p, p.op(gpu.OpDiv, doubleType, p.cast(doubleType, c.place(p)), p.cast(doubleType, c.size(p))),
			c.end(peers), start, end)
	}
	return c.ntile(f, start, end)
}

// place is the number of rows of the partition that precede the row in the first input of a
// program. The second input is the first row of the partition.
func (c *calculation) place(p *program) int {
	return p.plus(p.long(p.op(gpu.OpSub, int32Type, 0, 1)), p.number(int64Type, c.before))
}

// size is the number of rows in the partition. The second input of a program is its first row, and
// the third input the row after its last.
func (c *calculation) size(p *program) int {
	if c.total > 0 {
		return p.number(int64Type, c.total)
	}
	return p.long(p.op(gpu.OpSub, int32Type, 2, 1))
}

// ntile numbers buckets. If the rows cannot be divided evenly, the first buckets have one more row.
func (c *calculation) ntile(f Function, start, end gpu.Column) gpu.Column {
	p := newProgram(int32Type, int32Type, int32Type, int64Type)
	row, rows := c.place(p), c.size(p)
	one, zero := p.number(int64Type, 1), p.number(int64Type, 0)
	const text = "ntile, whose argument must be greater than zero"
	quo := func(x, y int) int {
		return p.add(gpu.Instr{Op: gpu.OpQuo, Type: int64Type, Args: []int{x, y}, Text: text})
	}
	// A number of buckets that is not positive fails as a divisor of zero.
	buckets := p.greatest(p.least(3, rows), zero)
	size := quo(rows, buckets)
	large := p.minus(rows, p.op(gpu.OpMul, int64Type, buckets, size))
	behind := p.op(gpu.OpMul, int64Type, large, p.plus(size, one)) // the first row of a smaller bucket
	inLarge := quo(row, p.plus(size, one))
	inSmall := p.plus(large, quo(p.minus(row, behind), size))
	return c.eval(p, p.plus(p.choose(int64Type, p.op(gpu.OpLt, boolType, row, behind), inLarge, inSmall), one),
		c.rows(), start, end, c.cols[f.Offset])
}

// aggregate computes an aggregate of the rows of ranges.
func (c *calculation) aggregate(f Function, rows ...rowRange) gpu.Column {
	value := c.cols[f.Value]
	switch f.Aggregate {
	case gpu.CountAll, gpu.Count:
		return c.count(f, rows...)
	case gpu.Min, gpu.Max:
		return c.gather(value, c.extremeRow(value, f.Aggregate == gpu.Max, rows...), true)
	case gpu.Avg:
		return c.quotient(c.fold(gpu.Sum, value, gpu.SumType(value.Type), rows...), c.count(f, rows...))
	}
	return c.fold(f.Aggregate, value, f.Output, rows...)
}

// quotient is the averages of sums by counts.
func (c *calculation) quotient(sum, count gpu.Column) gpu.Column {
	p := newProgram(sum.Type, int64Type)
	return c.eval(p, p.op(gpu.OpDiv, doubleType, p.cast(doubleType, 0), p.cast(doubleType, 1)), sum, count)
}

// argument has the value of the first of the rows of ranges with the least or the greatest key.
// Rows with a null key or value are ignored.
func (c *calculation) argument(value, key gpu.Column, kind Kind, rows ...rowRange) gpu.Column {
	return c.gather(value, c.extremeRow(c.keyOfValue(value, key), kind == ArgMax, rows...), true)
}

// keyOfValue has the keys of the rows whose value is not null.
func (c *calculation) keyOfValue(value, key gpu.Column) gpu.Column {
	if value.Valid == nil {
		return key
	}
	p := newProgram(value.Type, key.Type)
	return c.eval(p, p.choose(key.Type, p.op(gpu.OpIsNotNull, boolType, 0), 1, p.null(key.Type)), value, key)
}

// extremeRow has the first of the rows of ranges with the least or the greatest key, -1 if all are
// null.
func (c *calculation) extremeRow(key gpu.Column, greatest bool, rows ...rowRange) (best gpu.Column) {
	for i, r := range rows {
		if c.err != nil {
			return gpu.Column{}
		}
		k := gpu.SortKey{Column: key, Descending: greatest}
		row := c.own(c.task.Queue.Extreme(c.task.Lease, k, false, r.from, r.to))
		if i == 0 {
			best = row
			continue
		}
		p := newProgram(int32Type, int32Type, key.Type, key.Type)
		first, second := 3, 2 // in the order of the keys
		if greatest {
			first, second = 2, 3
		}
		found := p.op(gpu.OpLt, boolType, 0, p.number(int32Type, 0))
		later := p.choose(int32Type, p.op(gpu.OpLt, boolType, first, second), 1, p.choose(int32Type, found, 1, 0))
		best = rowIDs(c.evalRows(p, later, best.Len, best, row, c.gather(key, best, true), c.gather(key, row, true)))
	}
	return best
}

// selectable has the rows that a function may select in frames that include further rows before the
// first row or after the last; -1 if there are none.
func (c *calculation) selectable(f Function) gpu.Column {
	whole := rowRange{c.constant(0, 1), c.constant(c.n, 1)}
	n, last := f.nth(), false
	switch f.Kind {
	case Aggregate:
		return c.extremeRow(c.cols[f.Value], f.Aggregate == gpu.Max, whole)
	case ArgMin, ArgMax:
		return c.extremeRow(c.keyOfValue(c.cols[f.Value], c.cols[f.Offset]), f.Kind == ArgMax, whole)
	case Lag, Lead:
		back, ahead, _ := f.reach()
		n, last = max(back, ahead), back > 0
	case LastValue:
		last = true
	}
	rows := c.rows()
	if f.IgnoreNulls {
		rows = c.withValue(c.cols[f.Value])
	}
	if c.err != nil {
		return gpu.Column{}
	}
	if rows.Len == 0 {
		return c.constant(-1, 1)
	}
	from, to := 0, int(min(n, int64(rows.Len)))
	if last {
		from, to = rows.Len-to, rows.Len
	}
	return c.own(c.task.Queue.Slice(c.task.Lease, rows, from, to))
}

// fold folds the values of the rows of ranges.
func (c *calculation) fold(kind gpu.AggregateKind, value gpu.Column, output gpu.Type,
	rows ...rowRange) (folded gpu.Column) {
	for i, r := range rows {
		if c.err != nil {
			return gpu.Column{}
		}
		a := gpu.Aggregate{Kind: kind, Input: value.Type, Output: output}
		part := c.own(c.task.Queue.Fold(c.task.Lease, a, value, r.from, r.to))
		if i > 0 {
			part = c.merged(kind, folded, part)
		}
		folded = part
	}
	return folded
}

// count counts the rows of ranges, or their values that are not null.
func (c *calculation) count(f Function, rows ...rowRange) gpu.Column {
	if f.Aggregate != gpu.CountAll && c.cols[f.Value].Valid != nil {
		return c.fold(gpu.Count, c.cols[f.Value], int64Type, rows...)
	}
	p := &program{}
	sum, bounds := p.sizes(rows)
	return c.eval(p, sum, bounds...)
}

// value gathers the values of other rows.
func (c *calculation) value(f Function) gpu.Column {
	offset := gpu.Column{}
	if f.Offset >= 0 {
		offset = c.cols[f.Offset]
	} else {
		offset = c.once("one", func() gpu.Column {
			p := newProgram()
			return c.eval(p, p.number(int64Type, 1))
		})
	}
	ids := c.target(f, offset)
	out := c.gather(c.cols[f.Value], ids, true)
	if f.Default < 0 {
		return out
	}
	p := newProgram(int32Type, out.Type, c.cols[f.Default].Type, int64Type)
	outside := p.op(gpu.OpAnd, boolType, p.op(gpu.OpLt, boolType, 0, p.number(int32Type, 0)),
		p.op(gpu.OpIsNotNull, boolType, 3))
	return c.eval(p, p.choose(f.Output, outside, 2, 1), ids, out, c.cols[f.Default], offset)
}

// target has the row whose value a function returns, -1 for none. A null offset gives -1.
func (c *calculation) target(f Function, offset gpu.Column) gpu.Column {
	if f.Kind != Lag && f.Kind != Lead {
		return c.inFrame(f, offset)
	}
	low, high := c.start(partitions), c.end(partitions)
	if f.IgnoreNulls {
		return c.targetWithValue(f, offset, low, high)
	}
	p := newProgram(int32Type, int32Type, int32Type, int64Type) // row, low, high, offset
	id := p.plus(p.long(0), p.bounded(3))
	if f.Kind == Lag {
		id = p.minus(p.long(0), p.bounded(3))
	}
	return rowIDs(c.eval(p, p.within(id, p.long(1), p.long(2)), c.rows(), low, high, offset))
}

// withValue has the rows whose value is not null.
func (c *calculation) withValue(value gpu.Column) gpu.Column {
	p := newProgram(value.Type)
	there := c.eval(p, p.op(gpu.OpIsNotNull, boolType, 0), value)
	if c.err != nil {
		return gpu.Column{}
	}
	return c.own(c.task.Queue.Select(c.task.Lease, there, true))
}

// rankIn has the number of rows of a list before each row.
func (c *calculation) rankIn(list, row gpu.Column) gpu.Column {
	none, all := c.constant(0, c.n), c.constant(list.Len, c.n)
	if c.err != nil {
		return gpu.Column{}
	}
	return c.own(c.task.Queue.Search(c.task.Lease, gpu.SortKey{Column: list}, row, false, none, all))
}

// targetWithValue is the target of lag and lead among the rows whose value is not null. It lists
// these rows.
func (c *calculation) targetWithValue(f Function, offset, low, high gpu.Column) gpu.Column {
	list := c.withValue(c.cols[f.Value])
	p := newProgram(int32Type, int32Type, int64Type) // ranks of the row and of the next one, offset
	back := p.bounded(2)
	if f.Kind == Lead {
		back = p.minus(p.number(int64Type, 0), back)
	}
	ahead := p.minus(p.minus(p.long(1), back), p.number(int64Type, 1))
	at := p.choose(int64Type, p.op(gpu.OpLt, boolType, back, p.number(int64Type, 0)), ahead, p.minus(p.long(0), back))
	found := rowIDs(c.eval(p, p.within(at, p.number(int64Type, 0), p.number(int64Type, int64(list.Len))),
		c.rankIn(list, c.rows()), c.rankIn(list, c.next()), offset))
	ids := c.gather(list, found, true)
	// An offset of 0 is the row itself.
	p = newProgram(int32Type, int32Type, int64Type)
	ids = c.eval(p, p.choose(int32Type, p.op(gpu.OpEq, boolType, 2, p.number(int64Type, 0)), 1, 0), ids, c.rows(),
		offset)
	p = newProgram(int32Type, int32Type, int32Type)
	return rowIDs(c.eval(p, p.within(p.long(0), p.long(1), p.long(2)), ids, low, high))
}
