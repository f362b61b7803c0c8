package window

import (
	"context"
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
)

// GroupFunction is an aggregate over the rows of a group, in an order.
type GroupFunction struct {
	Kind      Kind
	Aggregate gpu.AggregateKind
	// Value is the column of the argument: a VARCHAR for StringAgg, a number for quantiles, a
	// DOUBLE for VarSamp and the other variances. Key is the column that ArgMin and ArgMax compare;
	// for Mode and quantiles it is the weight of a row, a BIGINT. Both are -1 for none; the weight
	// is then 1.
	Value, Key int
	// Filter is the BOOLEAN column that selects the rows to aggregate, -1 for all rows.
	Filter      int
	Order       []sort.Key
	Distinct    bool
	IgnoreNulls bool
	// Fraction is the fraction of a quantile, from the greatest value if Descending. A decimal
	// fraction is also given exactly, as Numerator / Denominator; otherwise Denominator is 0.
	Fraction               float64
	Numerator, Denominator int64
	Descending             bool
	Separator              string
	Output                 gpu.Type
}

// GroupSpec describes a group-by whose aggregates need all rows of a group at once.
type GroupSpec struct {
	In        *gpu.Schema
	Keys      []int
	Functions []GroupFunction
	// Always has the keys of the groups of an input without rows.
	Always [][]gpu.Scalar
	// Out names the keys, then the functions.
	Out *gpu.Schema
}

// NewGroups returns the operator of a spec. It is the sort-based group-by (Wu et al., SIGMOD
// 2025, §3.2.2): a group is a run of rows with equal keys.
func NewGroups(s GroupSpec) (Window, error) {
	if s.Out.Len() != len(s.Keys)+len(s.Functions) {
		return nil, fmt.Errorf("group-by returns %d columns under %d names", len(s.Keys)+len(s.Functions), s.Out.Len())
	}
	if len(s.Keys) == 0 {
		s.Always = [][]gpu.Scalar{nil}
	}
	o := &groups{GroupSpec: s}
	o.collection = collection{in: s.In, out: s.Out, keys: s.Keys, compute: o.compute}
	return o, nil
}

type groups struct {
	GroupSpec
	collection
}

// Parts implements operators.Source. There may be groups even without rows.
func (o *groups) Parts() int {
	if len(o.parts) == 0 && len(o.Always) > 0 {
		return 1
	}
	return len(o.parts)
}

// Emit implements operators.Source.
func (o *groups) Emit(ctx context.Context, t operators.Task, i int, emit operators.Emit) error {
	if len(o.parts) > 0 {
		return o.collection.Emit(ctx, t, i, emit)
	}
	// The groups of no rows: counts are 0, all other aggregates are null.
	values := make([]gpu.Scalar, len(o.Functions))
	for i, f := range o.Functions {
		if values[i] = gpu.Null(f.Output); f.counts() {
			values[i] = gpu.IntScalar(f.Output, 0)
		}
	}
	return operators.EmitGroups(t, operators.PickFields(o.In, o.Keys), o.Always, values, o.Out, emit)
}

func (f GroupFunction) counts() bool {
	return f.Kind == Aggregate && (f.Aggregate == gpu.Count || f.Aggregate == gpu.CountAll)
}

// Columns returns the columns that a function needs.
func (f GroupFunction) Columns() (cols []int) {
	for _, c := range []int{f.Value, f.Key, f.Filter} {
		if c >= 0 {
			cols = append(cols, c)
		}
	}
	for _, k := range f.Order {
		cols = append(cols, k.Column)
	}
	return cols
}

// Remap returns the function over other positions of columns.
func (f GroupFunction) Remap(at func(int) int) GroupFunction {
	for _, c := range []*int{&f.Value, &f.Key, &f.Filter} {
		if *c >= 0 {
			*c = at(*c)
		}
	}
	f.Order = slices.Clone(f.Order)
	for i := range f.Order {
		f.Order[i].Column = at(f.Order[i].Column)
	}
	return f
}

// order returns the order of the rows of a group that a function needs.
func (f GroupFunction) order() []sort.Key {
	switch {
	case f.Kind == QuantileCont || f.Kind == QuantileDisc:
		return []sort.Key{{Column: f.Value, Descending: f.Descending}}
	case f.Kind == Mode: // the first row of each value is its first row in the order
		return append([]sort.Key{{Column: f.Value}}, f.Order...)
	case f.Distinct && len(f.Order) == 0:
		return []sort.Key{{Column: f.Value}}
	}
	return f.Order
}

// stride is an output whose rows are computed.
type stride struct{ *gpu.Stride }

func (s stride) length() int { return s.Rows }

func (s stride) release() { s.Release() }

func (s stride) emit(t operators.Task, from, to int, emit operators.Emit) error {
	out, err := operators.SliceStride(t, s.Stride, from, to)
	if err != nil {
		return err
	}
	return emit(out)
}

// compute computes the groups of a part. Functions of one order share a sort.
func (o *groups) compute(t operators.Task, schema *gpu.Schema, strides []*gpu.Stride) (_ output, err error) {
	used := slices.Clone(o.Keys)
	for _, f := range o.Functions {
		used = append(used, f.Columns()...)
	}
	slices.Sort(used)
	used = slices.Compact(used)
	rows, err := operators.CollectRows(t, schema, strides, used)
	if err != nil {
		return nil, err
	}
	defer rows.Release()
	out := &gpu.Stride{Schema: o.Out, Cols: make([]gpu.Column, o.Out.Len())}
	defer func() {
		if err != nil {
			out.Release()
		}
	}()
	done := make([]bool, len(o.Functions))
	for first := 0; ; {
		order := []sort.Key(nil)
		if len(o.Functions) > 0 {
			order = o.Functions[first].order()
		}
		if err := o.inOrder(t, rows, used, order, done, out); err != nil {
			return nil, err
		}
		if first = slices.Index(done, false); first < 0 {
			return stride{out}, nil
		}
	}
}

// inOrder sorts the rows by the keys and an order, and computes the functions in this order.
func (o *groups) inOrder(t operators.Task, rows *operators.Rows, used []int, order []sort.Key, done []bool,
	out *gpu.Stride) error {
	ids, err := o.sorted(t, rows, order)
	if err != nil {
		return err
	}
	c, err := newCalculation(t, o.Keys, order, rows, used, ids)
	ids.Release()
	if err != nil {
		return err
	}
	defer c.release()
	g := &grouping{calculation: c}
	starts := c.startsOf(partitions)
	if c.err != nil {
		return c.err
	}
	g.m = starts.Len - 1
	g.low = c.once("low", func() gpu.Column { return c.own(t.Queue.Slice(t.Lease, starts, 0, g.m)) })
	g.high = c.once("high", func() gpu.Column { return c.own(t.Queue.Slice(t.Lease, starts, 1, g.m+1)) })
	if out.Rows == 0 {
		out.Rows = g.m
		for i, k := range o.Keys {
			out.Cols[i] = c.gather(c.cols[k], g.low, false).Retain()
		}
	}
	for i, f := range o.Functions {
		if done[i] || !slices.Equal(f.order(), order) {
			continue
		}
		done[i] = true
		col := g.function(f)
		if c.err != nil {
			return fmt.Errorf("%s: %w", o.Out.Fields[len(o.Keys)+i].Name, c.err)
		}
		out.Cols[len(o.Keys)+i] = col.Retain()
		c.endFunction()
	}
	return c.err
}

// grouping computes functions of m groups: the ranges [low, high) of sorted rows.
type grouping struct {
	*calculation
	m         int
	low, high gpu.Column
}

// evalGroups evaluates one output of a program over all groups.
func (g *grouping) evalGroups(p *program, out int, in ...gpu.Column) gpu.Column {
	return g.evalRows(p, out, g.m, in...)
}

// function computes a function. The result is borrowed.
func (g *grouping) function(f GroupFunction) gpu.Column {
	value, key, low, high := g.cols[f.Value], g.cols[f.Key], g.low, g.high
	list, all := g.counting(f)
	row := func(at gpu.Column) gpu.Column { return at }
	if !all {
		// The list of the aggregated rows has those of a group next to each other.
		none, end := g.constants(0), g.constants(list.Len)
		rank := func(rows gpu.Column) gpu.Column {
			if g.err != nil {
				return gpu.Column{}
			}
			return g.own(g.task.Queue.Search(g.task.Lease, gpu.SortKey{Column: list}, rows, false, none, end))
		}
		low, high = rank(low), rank(high)
		if f.Value >= 0 {
			value = g.gather(value, list, false)
		}
		if f.Key >= 0 {
			key = g.gather(key, list, false)
		}
		row = func(at gpu.Column) gpu.Column { return rowIDs(g.gather(list, at, false)) }
	}
	if g.err != nil {
		return gpu.Column{}
	}
	switch f.Kind {
	case Aggregate:
		return g.aggregateOf(f, value, low, high)
	case FirstValue, LastValue:
		return g.gather(value, g.edge(f.Kind, low, high), true)
	case ArgMin, ArgMax:
		return g.argument(value, key, f.Kind, rowRange{low, high}) // of all rows
	case QuantileCont, QuantileDisc:
		return g.quantile(f, value, key, low, high)
	case Mode:
		return g.mode(f, value, key, low, high, row)
	case StringAgg:
		return g.concatenation(f, value, low, high)
	}
	return g.variance(f, value, low, high)
}

// constants has one number for each group.
func (g *grouping) constants(v int) gpu.Column { return g.constant(v, g.m) }

// counting returns the list of the rows that a function aggregates; all says that these are all
// rows.
func (g *grouping) counting(f GroupFunction) (list gpu.Column, all bool) {
	value := g.cols[f.Value]
	p := &program{}
	var in []gpu.Column
	var conditions []int
	need := func(c gpu.Column) int {
		in = append(in, c)
		p.Inputs = append(p.Inputs, c.Type)
		return len(in) - 1
	}
	nulls := (f.IgnoreNulls || f.Distinct && f.Kind != FirstValue && f.Kind != LastValue) && value.Valid != nil
	var at []int
	if nulls {
		at = append(at, need(value))
	}
	if f.Filter >= 0 {
		conditions = append(conditions, need(g.cols[f.Filter]))
	}
	if f.Distinct {
		conditions = append(conditions, need(g.firstsOf(f)))
	}
	for _, v := range at {
		conditions = append(conditions, p.op(gpu.OpIsNotNull, boolType, v))
	}
	switch {
	case g.err != nil || len(conditions) == 0:
		return list, true
	case len(conditions) == 1:
		conditions = append(conditions, conditions[0])
	}
	pred := g.eval(p, p.op(gpu.OpAnd, boolType, conditions...), in...)
	if g.err != nil {
		return list, true
	}
	return g.own(g.task.Queue.Select(g.task.Lease, pred, true)), false
}

// firstsOf marks the first row of each value of a group, among the rows that pass the filter. The
// rows of one value are adjacent.
func (g *grouping) firstsOf(f GroupFunction) gpu.Column {
	keys := append(g.keys(partitions), g.cols[f.Value])
	if f.Filter >= 0 {
		keys = append(keys, g.cols[f.Filter])
	}
	q, l := g.task.Queue, g.task.Lease
	a, firsts, err := q.Runs(l, keys)
	if err != nil {
		return g.own(firsts, err)
	}
	a.Release()
	g.own(firsts, nil)
	firstRows := g.own(q.NewBitmap(l, g.n))
	if g.err == nil {
		g.err = q.SetBits(l, firstRows, firsts)
	}
	return firstRows
}

// aggregateOf computes an aggregate of the rows [low, high) of a list of values.
func (g *grouping) aggregateOf(f GroupFunction, value, low, high gpu.Column) gpu.Column {
	was := g.cols[-2]
	g.cols[-2] = value
	defer func() { g.cols[-2] = was }()
	n := g.n
	g.n = g.m // the ranges
	defer func() { g.n = n }()
	return g.aggregate(Function{Kind: Aggregate, Aggregate: f.Aggregate, Value: -2, Output: f.Output},
		rowRange{low, high})
}

// edge has the first or the last row of [low, high), -1 if there is none.
func (g *grouping) edge(kind Kind, low, high gpu.Column) gpu.Column {
	p := newProgram(int32Type, int32Type)
	id := p.long(0)
	if kind == LastValue {
		id = p.minus(p.long(1), p.number(int64Type, 1))
	}
	return rowIDs(g.evalGroups(p, p.within(id, p.long(0), p.long(1)), low, high))
}

// places has for each row, and for the end of the rows, the sum of the weights of the rows before.
func (g *grouping) places(times gpu.Column) gpu.Column {
	n := times.Len + 1
	ends := g.own(allRows(g.task, n))
	sums := g.fold(gpu.Sum, times, gpu.SumType(int64Type), rowRange{g.constant(0, n), ends})
	p := newProgram(gpu.SumType(int64Type))
	some := p.op(gpu.OpIsNotNull, boolType, 0)
	return g.evalRows(p, p.choose(int64Type, some, p.long(0), p.number(int64Type, 0)), n, sums)
}

// quantile has the value at a fraction of the sorted values [low, high), or a value between the two
// values next to it. value has no nulls. times has the weights: a value of weight n is n values.
func (g *grouping) quantile(f GroupFunction, value, times, low, high gpu.Column) gpu.Column {
	from, to, place := low, high, (*program).within
	rowsAt := rowIDs
	if f.Key >= 0 {
		places := g.places(times)
		from, to, place = g.gather(places, low, false), g.gather(places, high, false), (*program).inside
		rowsAt = func(at gpu.Column) gpu.Column { return g.rowsAt(places, at, low, high) }
	}
	if g.err != nil {
		return gpu.Column{}
	}
	p := newProgram(from.Type, to.Type)
	first, n := p.long(0), p.minus(p.long(1), p.long(0))
	one := p.number(int64Type, 1)
	fraction := p.double(f.Fraction)
	if f.Kind == QuantileDisc {
		// ⌈n·q⌉ - 1, and at least the first value.
		up := 0
		if f.Denominator > 0 {
			num, den := p.number(int64Type, f.Numerator), p.number(int64Type, f.Denominator)
			up = p.op(gpu.OpQuo, int64Type, p.plus(p.op(gpu.OpMul, int64Type, n, num), p.minus(den, one)), den)
		} else {
			of := p.cast(doubleType, n)
			rest := p.op(gpu.OpSub, doubleType, of, p.op(gpu.OpMul, doubleType, of, fraction))
			up = p.minus(n, p.long(p.op(gpu.OpFloor, doubleType, rest)))
		}
		at := p.plus(first, p.minus(p.greatest(up, one), one))
		return g.gather(value, rowsAt(g.evalGroups(p, place(p, at, first, p.long(1)), from, to)), true)
	}
	// (n - 1)·q rows after the first one, which may be between two rows.
	at := p.op(gpu.OpMul, doubleType, p.cast(doubleType, p.minus(n, one)), fraction)
	whole := p.op(gpu.OpFloor, doubleType, at)
	share := p.op(gpu.OpSub, doubleType, at, whole)
	below := p.plus(first, p.long(whole))
	above := p.choose(int64Type, p.op(gpu.OpEq, boolType, share, p.double(0)), below, p.plus(below, one))
	if g.err != nil {
		return gpu.Column{}
	}
	p.Outputs = []int{place(p, below, first, p.long(1)), place(p, above, first, p.long(1)), share}
	cols, err := g.task.Queue.Eval(g.task.Lease, &p.Program, []gpu.Column{from, to}, g.m)
	if err != nil {
		return g.own(gpu.Column{}, err)
	}
	for _, c := range cols {
		g.own(c, nil)
	}
	x, y := g.gather(value, rowsAt(cols[0]), true), g.gather(value, rowsAt(cols[1]), true)
	return g.between(f.Output, x, y, cols[2])
}

// rowsAt has for each group the row of [low, high) whose weights include place at, -1 for a place
// of -1.
func (g *grouping) rowsAt(places, at, low, high gpu.Column) gpu.Column {
	if g.err != nil {
		return gpu.Column{}
	}
	q, l := g.task.Queue, g.task.Lease
	ends := g.own(q.Slice(l, places, 1, places.Len))
	if g.err != nil {
		return gpu.Column{}
	}
	rows := g.own(q.Search(l, gpu.SortKey{Column: ends}, at, true, low, high))
	p := newProgram(int32Type, int64Type)
	none := p.op(gpu.OpLt, boolType, 1, p.number(int64Type, 0))
	return rowIDs(g.evalGroups(p, p.choose(int32Type, none, p.number(int32Type, -1), 0), rows, at))
}

// between interpolates between the values x and y. Values other than floats are integers of their
// units, and the result is truncated to whole units.
func (g *grouping) between(t gpu.Type, x, y, share gpu.Column) gpu.Column {
	switch {
	case t.IsFloat():
		return g.betweenFloats(t, x, y, share)
	case t.Kind == gpu.Decimal:
		// A decimal is computed as the integer of its digits.
		unit := int64Type
		if t.Wide {
			unit = gpu.Of(gpu.HugeInt)
		}
		x.Type, y.Type = unit, unit
		p := newProgram(unit, unit, doubleType)
		out := g.evalGroups(p, p.cast(unit, p.between(0, 1, 2, t.Precision > gpu.MaxNarrowPrecision)), x, y, share)
		out.Type = t
		return out
	}
	p := newProgram(x.Type, y.Type, doubleType)
	low, high := p.long(0), p.long(1)
	step := p.op(gpu.OpSub, gpu.Of(gpu.HugeInt), p.between(low, high, 2, false), p.cast(gpu.Of(gpu.HugeInt), low))
	same := p.op(gpu.OpEq, boolType, low, high) // such as infinite dates
	return g.evalGroups(p, p.choose(t, same, 0, p.op(gpu.OpAdd, t, 0, p.long(step))), x, y, share)
}

// between is x + (y - x)·share of integers, truncated to a HUGEINT: either the exact sum is
// truncated, or, if added is set, the term added to x, as in DuckDB for decimals of more than 18
// digits.
func (p *program) between(x, y, share int, added bool) int {
	huge := gpu.Of(gpu.HugeInt)
	low, high := p.cast(huge, x), p.cast(huge, y)
	step := p.op(gpu.OpMul, doubleType, p.cast(doubleType, p.op(gpu.OpSub, huge, high, low)), share)
	if added {
		return p.op(gpu.OpAdd, huge, low, p.cast(huge, p.op(gpu.OpTrunc, doubleType, step)))
	}
	whole := p.op(gpu.OpFloor, doubleType, step)
	sum := p.op(gpu.OpAdd, huge, low, p.cast(huge, whole))
	// A negative sum with a fraction is rounded up.
	zero, one := p.number(huge, 0), p.number(huge, 1)
	up := p.op(gpu.OpAnd, boolType, p.op(gpu.OpLt, boolType, sum, zero), p.op(gpu.OpGt, boolType, step, whole))
	return p.choose(huge, up, p.op(gpu.OpAdd, huge, sum, one), sum)
}

// betweenFloats interpolates as DuckDB does: DOUBLEs as x·(1 - share) + y·share, FLOATs as x + (y -
// x)·share, which differ for infinities.
func (g *grouping) betweenFloats(t gpu.Type, x, y, share gpu.Column) gpu.Column {
	p := newProgram(x.Type, y.Type, doubleType)
	low, high := p.cast(doubleType, 0), p.cast(doubleType, 1)
	arith := func(op gpu.Op, x, y int) int { return p.op(op, doubleType, x, y) }
	sum := arith(gpu.OpAdd, arith(gpu.OpMul, low, arith(gpu.OpSub, p.double(1), 2)), arith(gpu.OpMul, high, 2))
	if t != doubleType {
		sum = arith(gpu.OpAdd, low, arith(gpu.OpMul, arith(gpu.OpSub, high, low), 2))
	}
	exact := p.op(gpu.OpEq, boolType, 2, p.double(0))
	return g.evalGroups(p, p.cast(t, p.choose(doubleType, exact, low, sum)), x, y, share)
}

// mode has the most frequent of the sorted values [low, high). Of several it is the first one in
// the order, then the least. value has no nulls; row has the rows of the values.
func (g *grouping) mode(f GroupFunction, value, times, low, high gpu.Column,
	row func(gpu.Column) gpu.Column) gpu.Column {
	q, l := g.task.Queue, g.task.Lease
	// Runs of equal values within a group: a run ends where the value or the group does.
	rows := newProgram()
	ofRow := g.evalRows(rows, rows.number(int32Type, 0), value.Len)
	if g.err != nil {
		return gpu.Column{}
	}
	group := g.own(q.Search(l, gpu.SortKey{Column: high}, g.own(allRows(g.task, value.Len)), true, ofRow,
		g.constant(g.m, value.Len)))
	if g.err != nil {
		return gpu.Column{}
	}
	a, firsts, err := q.Runs(l, []gpu.Column{group, value})
	if err != nil {
		return g.own(firsts, err)
	}
	a.Release()
	g.own(firsts, nil)
	ends := g.concat(firsts, g.constant(value.Len, 1))
	if g.err != nil {
		return gpu.Column{}
	}
	ends = g.own(q.Slice(l, ends, 1, ends.Len))
	from, to := firsts, ends
	if f.Key >= 0 {
		places := g.places(times)
		from, to = g.gather(places, from, false), g.gather(places, to, false)
	}
	if g.err != nil {
		return gpu.Column{}
	}
	p := newProgram(from.Type, to.Type)
	lengths := g.evalRows(p, p.op(gpu.OpSub, from.Type, 1, 0), firsts.Len, from, to)
	none, all := g.constants(0), g.constants(firsts.Len)
	runAt := func(rows gpu.Column) gpu.Column {
		if g.err != nil {
			return gpu.Column{}
		}
		return g.own(q.Search(l, gpu.SortKey{Column: firsts}, rows, false, none, all))
	}
	from, to = runAt(low), runAt(high)
	if g.err != nil {
		return gpu.Column{}
	}
	longest := gpu.Column{}
	if len(f.Order) == 0 {
		longest = g.own(q.Extreme(l, gpu.SortKey{Column: lengths, Descending: true}, false, from, to))
	} else {
		// The sort keeps the runs of a group next to each other.
		keys := []gpu.SortKey{{Column: g.gather(group, firsts, false)}, {Column: lengths, Descending: true}}
		at := row(firsts)
		for _, k := range f.Order {
			keys = append(keys, gpu.SortKey{Column: g.gather(g.cols[k.Column], at, false), Descending: k.Descending,
				NullsFirst: k.NullsFirst})
		}
		if g.err != nil {
			return gpu.Column{}
		}
		runs := g.own(q.Sort(l, keys))
		longest = g.gatherIDs(runs, g.edge(FirstValue, from, to))
	}
	return g.gather(value, g.gatherIDs(firsts, longest), true)
}

// gatherIDs gathers ids. A position of -1 gives -1.
func (g *grouping) gatherIDs(ids, at gpu.Column) gpu.Column {
	found := g.gather(ids, at, true)
	p := newProgram(int32Type)
	there := p.op(gpu.OpIsNotNull, boolType, 0)
	return rowIDs(g.evalGroups(p, p.choose(int32Type, there, 0, p.number(int32Type, -1)), found))
}

// concatenation joins the strings [low, high) with a separator. It prefixes each string with the
// separator, except the first of its group, so that the bytes of a group are contiguous. value has
// no nulls.
func (g *grouping) concatenation(f GroupFunction, value, low, high gpu.Column) gpu.Column {
	q, l := g.task.Queue, g.task.Lease
	first := g.own(q.NewBitmap(l, value.Len))
	p := newProgram(int32Type, int32Type)
	there := g.evalGroups(p, p.op(gpu.OpLt, boolType, 0, 1), low, high)
	if g.err != nil {
		return gpu.Column{}
	}
	some := g.own(q.Select(l, there, true))
	starts := g.gather(low, some, false)
	if g.err == nil {
		g.err = q.SetBits(l, first, starts)
	}
	text := value.Type // a VARCHAR, or a BLOB for lists
	p = newProgram(boolType, text)
	constant := func(s string) int {
		return p.add(gpu.Instr{Op: gpu.OpConst, Type: text, Value: gpu.Scalar{Type: text, Valid: true, Str: s}})
	}
	before := p.choose(text, 0, constant(""), constant(f.Separator))
	texts := g.evalRows(p, p.op(gpu.OpConcat, text, before, 1), value.Len, first, value)
	if g.err != nil {
		return gpu.Column{}
	}
	if texts.Dict != nil {
		g.err = fmt.Errorf("string_agg: strings in a dictionary")
		return gpu.Column{}
	}
	there.Valid = nil
	// The offsets of the groups are those of their first strings.
	if value.Len == 0 {
		none := g.gather(texts, g.constants(-1), true)
		none.Type = f.Output
		return none
	}
	offsets := gpu.Column{Type: int32Type, Len: value.Len + 1, Data: texts.Offsets}
	ends := g.gather(offsets, g.concat(low, g.constant(value.Len, 1)), false)
	if g.err != nil {
		return gpu.Column{}
	}
	return gpu.Column{Type: f.Output, Len: g.m, Data: texts.Data, Offsets: ends.Data, Valid: there.Data}
}

// variance has a variance or a standard deviation of the values [low, high), by their differences
// from the mean.
func (g *grouping) variance(f GroupFunction, value, low, high gpu.Column) gpu.Column {
	mean := g.aggregateOf(GroupFunction{Aggregate: gpu.Avg, Output: doubleType}, value, low, high)
	n := g.aggregateOf(GroupFunction{Aggregate: gpu.Count, Output: int64Type}, value, low, high)
	if g.err != nil {
		return gpu.Column{}
	}
	q, l := g.task.Queue, g.task.Lease
	rows := g.own(allRows(g.task, value.Len))
	group := gpu.Column{}
	if g.err == nil {
		group = g.own(q.Search(l, gpu.SortKey{Column: high}, rows, true, g.constant(0, value.Len),
			g.constant(g.m, value.Len)))
	}
	p := newProgram(doubleType, doubleType)
	d := p.op(gpu.OpSub, doubleType, 0, 1)
	squares := g.evalRows(p, p.op(gpu.OpMul, doubleType, d, d), value.Len, value, g.gather(mean, group, false))
	sum := g.aggregateOf(GroupFunction{Aggregate: gpu.Sum, Output: doubleType}, squares, low, high)
	p = newProgram(doubleType, int64Type)
	by := p.cast(doubleType, 1)
	if f.Kind == VarSamp || f.Kind == StddevSamp {
		by = p.op(gpu.OpSub, doubleType, by, p.double(1))
	}
	out := p.op(gpu.OpDiv, doubleType, 0, by)
	if f.Kind == StddevSamp || f.Kind == StddevPop {
		out = p.add(gpu.Instr{Op: gpu.OpMath, Type: doubleType, Args: []int{out}, N: int(gpu.MathSqrt)})
	}
	// The variance of one value is 0, even if the value is infinite.
	alone := p.op(gpu.OpAnd, boolType, p.op(gpu.OpEq, boolType, 1, p.number(int64Type, 1)),
		p.op(gpu.OpEq, boolType, by, p.double(1)))
	out = p.choose(doubleType, alone, p.double(0), out)
	return g.evalGroups(p, p.choose(doubleType, p.op(gpu.OpLt, boolType, p.double(0), by), out, p.null(doubleType)),
		sum, n)
}
