package gpu

import (
	"fmt"
	"slices"
)

// Elements are the elements of a column of lists.
type Elements struct {
	Rows      Column // the row of each element, ascending: Int32
	Positions Column // the position of each element in its list, from 1: Int64
	Values    Column // a list of each element alone, of the type of the lists
	Starts    Column // the first element of each row, then the number of elements: Int32
}

// Release releases the columns.
func (e Elements) Release() { ReleaseColumns([]Column{e.Rows, e.Positions, e.Values, e.Starts}) }

// checkBody returns an error if the instruction lacks a body, or has one that does not fit its arguments.
func (in *Instr) checkBody() error {
	results := in.Op.Info().Bodies
	if in.Body == nil || results == 0 {
		if in.Body != nil || results != 0 {
			return fmt.Errorf("operation %d has %d results for an element, and no program for them", in.Op, results)
		}
		return nil
	}
	want := len(in.Args) + 1 // the list becomes an element and its position
	if len(in.Body.Inputs) != want || len(in.Body.Outputs) != results {
		return fmt.Errorf("operation %d over elements has a program of %d inputs and %d results, not %d and %d", in.Op,
			len(in.Body.Inputs), len(in.Body.Outputs), want, results)
	}
	return in.Body.Check()
}

// FirstHosted returns the first instruction of a program whose operation has no kernels, or -1; see Operation.Host.
func (p *Program) FirstHosted() int {
	return slices.IndexFunc(p.Code, func(in Instr) bool { return in.Op.Info().Host })
}

// Hosted returns the names of the operations without kernels, also those in bodies.
func (p *Program) Hosted() (names []string) {
	for _, in := range p.Code {
		switch o := in.Op.Info(); {
		case o.Host:
			names = append(names, o.Name(in.N))
		case in.Body != nil:
			names = append(names, in.Body.Hosted()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// FirstBody returns the first instruction of a program that has a Body, or -1.
func (p *Program) FirstBody() int {
	for i := range p.Code {
		if p.Code[i].Body != nil {
			return i
		}
	}
	return -1
}

// EvalBodies is Queue.Eval of a program with operations over the elements of lists (Instr.Body), which queues do not
// have themselves. It is a composition of their primitives: the program is cut at the first such operation. What comes
// before is evaluated. The lists are taken apart (Elements), the body is evaluated over their elements, and its results
// become one value for each row. What comes after is evaluated with that value as one more input.
//
// A Body has these inputs: a list of the element alone, its position, and the values of the row, of the types of the
// other arguments. Strings of the row reach it as a dictionary, so that they are not copied for each element, and what
// depends on one of them alone is evaluated once a row. The body of OpReduceElements has the result before in the place
// of start.
//
// Errors: those of Eval; more than MaxRows elements.
//
// Cost: that of Elements, of Eval over the elements, and of one Gather. OpSortElements adds a Sort, OpFoldElements a
// Fold or Extreme. OpReduceElements evaluates as often as the longest list has elements, each time over the lists that
// have so many.
func EvalBodies(q Queue, l *Lease, p *Program, in []Column, n int) ([]Column, error) {
	at := p.FirstBody()
	if at < 0 {
		return q.Eval(l, p, in, n)
	}
	return EvalApart(q, l, p, in, n, at, bodies{q, l, &p.Code[at], n}.eval)
}

// EvalApart is Queue.Eval of a program one of whose instructions, at, another function evaluates, and then Queue.Eval
// of what comes before and after it. The function gets the registers that the instruction reads (Instr.Reads).
func EvalApart(q Queue, l *Lease, p *Program, in []Column, n, at int, eval func(args []Column) (Column, error)) (
	[]Column, error) {
	if len(in) != len(p.Inputs) {
		return nil, fmt.Errorf("evaluate: the program has %d inputs, got %d columns", len(p.Inputs), len(in))
	}
	before, after, args := p.cut(at)
	var cols []Column
	if len(before.Outputs) > 0 {
		var err error
		if cols, err = q.Eval(l, before, in, n); err != nil {
			return nil, err
		}
		defer ReleaseColumns(cols)
	}
	inputs := append(append(make([]Column, 0, len(in)+len(cols)+1), in...), cols...)
	values := make([]Column, len(args))
	for i, a := range args {
		values[i] = inputs[a]
	}
	value, err := eval(values)
	if err != nil {
		return nil, err
	}
	defer value.Release()
	return q.Eval(l, after, append(inputs, value), n)
}

// cut returns the instructions before instruction at as a program, and those after it. The inputs of the latter are
// those of the whole program, the results of the former, and the result of the instruction. args are the arguments of
// the instruction among these inputs.
func (p *Program) cut(at int) (before, after *Program, args []int) {
	first := len(p.Inputs) + at
	needed := make([]bool, len(p.Inputs)+len(p.Code))
	for _, r := range p.Outputs {
		needed[r] = true
	}
	for i := len(p.Code) - 1; i > at; i-- {
		if needed[len(p.Inputs)+i] {
			for _, r := range p.Code[i].Reads() {
				needed[r] = true
			}
		}
	}
	before = &Program{Inputs: p.Inputs, Code: p.Code[:at]}
	after = &Program{Inputs: append(make([]Type, 0, len(p.Inputs)+1), p.Inputs...)}
	moved := make([]int, len(needed))
	for r := range p.Inputs {
		moved[r] = r
	}
	argument := make([]bool, first)
	for _, r := range p.Code[at].Reads() {
		argument[r] = true
	}
	var constants []int
	for i := range p.Code[:at] {
		r := len(p.Inputs) + i
		switch constant := p.Code[i].Op == OpConst; {
		case argument[r] || needed[r] && !constant:
			moved[r] = len(after.Inputs)
			after.Inputs = append(after.Inputs, p.Code[i].Type)
			before.Outputs = append(before.Outputs, r)
		case needed[r]:
			constants = append(constants, i)
		}
	}
	for _, r := range p.Code[at].Reads() {
		args = append(args, moved[r])
	}
	moved[first] = len(after.Inputs)
	after.Inputs = append(after.Inputs, p.Code[at].Type)
	add := func(i int) {
		in := p.Code[i]
		in.Args = make([]int, len(p.Code[i].Args))
		for k, r := range p.Code[i].Args {
			in.Args[k] = moved[r]
		}
		if in.Mask >= 0 {
			in.Mask = moved[in.Mask]
		}
		moved[len(p.Inputs)+i] = len(after.Inputs) + len(after.Code)
		after.Code = append(after.Code, in)
	}
	for _, i := range constants {
		add(i)
	}
	for i := at + 1; i < len(p.Code); i++ {
		if needed[len(p.Inputs)+i] {
			add(i)
		}
	}
	for _, r := range p.Outputs {
		after.Outputs = append(after.Outputs, moved[r])
	}
	return before, after, args
}

// bodies evaluates one instruction with a body over n rows.
type bodies struct {
	q  Queue
	l  *Lease
	in *Instr
	n  int
}

// eval returns the value of each row. args are the arguments of the instruction.
func (b bodies) eval(args []Column) (out Column, err error) {
	e, err := b.q.Elements(b.l, args[0])
	if err != nil {
		return out, err
	}
	defer e.Release()
	if b.in.Op == OpReduceElements {
		return b.reduce(e, args[1], args[2:])
	}
	inputs := []Column{e.Values, e.Positions}
	for _, c := range args[1:] {
		c, err := b.spread(c, e.Rows)
		if err != nil {
			return out, err
		}
		defer c.Release()
		inputs = append(inputs, c)
	}
	results, err := b.q.Eval(b.l, b.in.Body, inputs, e.Rows.Len)
	if err != nil {
		return out, err
	}
	defer ReleaseColumns(results)
	switch b.in.Op {
	case OpFoldElements:
		return b.fold(results[0], e)
	case OpSortElements:
		return b.sort(results[0], results[1], e, args[0])
	}
	return b.join(results[0], e, args[0])
}

// spread returns the value of the row of each element.
func (b bodies) spread(c, rows Column) (Column, error) {
	if !c.Type.IsVar() || c.Dict != nil || c.Len == 0 {
		cols, err := b.q.Gather(b.l, []Column{c}, rows, false)
		if err != nil {
			return Column{}, err
		}
		return cols[0], nil
	}
	out := Column{Type: c.Type, Len: rows.Len, Data: rows.Data}
	if c.Valid != nil {
		valid, err := b.q.Gather(b.l, []Column{{Type: Of(Bool), Len: c.Len, Data: c.Valid}}, rows, false)
		if err != nil {
			return Column{}, err
		}
		defer ReleaseColumns(valid)
		out.Valid = valid[0].Data
	}
	c.Valid = nil
	out.Dict = &Dictionary{Values: c}
	return out.Retain(), nil
}

// join joins the strings of the elements of each row, which are consecutive: only their offsets change.
func (b bodies) join(texts Column, e Elements, lists Column) (Column, error) {
	if texts.Dict != nil {
		return Column{}, fmt.Errorf("evaluate: the strings of elements have a dictionary")
	}
	offsets := Column{Type: Of(Int32), Len: texts.Len + 1, Data: texts.Offsets}
	starts, err := b.q.Gather(b.l, []Column{offsets}, e.Starts, false)
	if err != nil {
		return Column{}, err
	}
	return Column{Type: b.in.Type, Len: b.n, Data: texts.Data.Retain(), Offsets: starts[0].Data,
		Valid: lists.Valid.Retain()}, nil
}

// sort is join of the strings in the order of a key.
func (b bodies) sort(key, texts Column, e Elements, lists Column) (out Column, err error) {
	order, err := b.q.Sort(b.l, []SortKey{{Column: e.Rows}, {Column: key, Descending: b.in.N&SortDescending != 0,
		NullsFirst: b.in.N&SortNullsFirst != 0}})
	if err != nil {
		return out, err
	}
	defer order.Release()
	if b.in.N&SortOnce == 0 {
		sorted, err := b.q.Gather(b.l, []Column{texts}, order, false)
		if err != nil {
			return out, err
		}
		defer ReleaseColumns(sorted)
		return b.join(sorted[0], e, lists)
	}
	keys, err := b.q.Gather(b.l, []Column{e.Rows, key}, order, false)
	if err != nil {
		return out, err
	}
	defer ReleaseColumns(keys)
	runs, firsts, err := b.q.Runs(b.l, keys)
	if err != nil {
		return out, err
	}
	runs.Release()
	defer firsts.Release()
	ids, err := b.q.Gather(b.l, []Column{order}, firsts, false)
	if err != nil {
		return out, err
	}
	defer ReleaseColumns(ids)
	kept, err := b.q.NewBitmap(b.l, texts.Len)
	if err != nil {
		return out, err
	}
	defer kept.Release()
	if err := b.q.SetBits(b.l, kept, ids[0]); err != nil {
		return out, err
	}
	some, err := b.q.Eval(b.l, &Program{Inputs: []Type{kept.Type, texts.Type}, Outputs: []int{3}, Code: []Instr{
		{Op: OpConst, Type: texts.Type, Value: Scalar{Type: texts.Type, Valid: true}, Mask: -1},
		{Op: OpSelect, Type: texts.Type, Args: []int{0, 1, 2}, Mask: -1}}}, []Column{kept, texts}, texts.Len)
	if err != nil {
		return out, err
	}
	defer ReleaseColumns(some)
	return b.join(some[0], e, lists)
}

// ranges returns the first element of each row, and the element after its last one.
func (b bodies) ranges(e Elements) (from, to Column, err error) {
	if from, err = b.q.Slice(b.l, e.Starts, 0, b.n); err != nil {
		return from, to, err
	}
	if to, err = b.q.Slice(b.l, e.Starts, 1, b.n+1); err != nil {
		from.Release()
	}
	return from, to, err
}

// fold aggregates values of elements.
func (b bodies) fold(values Column, e Elements) (out Column, err error) {
	from, to, err := b.ranges(e)
	if err != nil {
		return out, err
	}
	defer from.Release()
	defer to.Release()
	kind := AggregateKind(b.in.N)
	if kind != Min && kind != Max {
		return b.q.Fold(b.l, Aggregate{Kind: kind, Input: values.Type, Output: b.in.Type}, values, from, to)
	}
	ids, err := b.q.Extreme(b.l, SortKey{Column: values, Descending: kind == Max}, false, from, to)
	if err != nil {
		return out, err
	}
	defer ids.Release()
	cols, err := b.q.Gather(b.l, []Column{values}, ids, true)
	if err != nil {
		return out, err
	}
	return cols[0], nil
}

// step is the program of one step of reduce over the next and the last element of each row: whether there is one, and
// the one after it.
var step = &Program{Inputs: []Type{Of(Int32), Of(Int32)}, Outputs: []int{3, 4}, Code: []Instr{
	{Op: OpConst, Type: Of(Int32), Value: IntScalar(Of(Int32), 1), Mask: -1},
	{Op: OpLt, Type: Of(Bool), Args: []int{0, 1}, Mask: -1},
	{Op: OpAdd, Type: Of(Int32), Args: []int{0, 2}, Mask: -1, Text: "reduce"}}}

// always is the program that selects all rows.
var always = &Program{Outputs: []int{0}, Code: []Instr{
	{Op: OpConst, Type: Of(Bool), Value: BoolScalar(true), Mask: -1}}}

// reduce runs the body over the first elements of all lists, then over the second ones, and so on. A list leaves when
// it has no more elements.
func (b bodies) reduce(e Elements, start Column, values []Column) (out Column, err error) {
	from, to, err := b.ranges(e)
	if err != nil {
		return out, err
	}
	all, err := b.q.Eval(b.l, always, nil, b.n)
	if err != nil {
		ReleaseColumns([]Column{from, to})
		return out, err
	}
	rows, err := b.q.Select(b.l, all[0], true)
	ReleaseColumns(all)
	if err != nil {
		ReleaseColumns([]Column{from, to})
		return out, err
	}
	// The state of the lists that have elements: their rows, results, next and last elements, and values.
	state := []Column{rows, start.Retain(), from, to}
	for _, c := range values {
		state = append(state, c.Retain())
	}
	var done [][]Column // rows and results of the lists that have none
	defer func() {
		ReleaseColumns(state)
		for _, d := range done {
			ReleaseColumns(d)
		}
	}()
	for range b.in.N {
		next, err := b.q.Eval(b.l, step, state[2:4], b.n)
		if err != nil {
			return out, err
		}
		next[0].Release()
		state[2].Release()
		state[2] = next[1]
	}
	for {
		next, err := b.q.Eval(b.l, step, state[2:4], state[0].Len)
		if err != nil {
			return out, err
		}
		over, err := b.some(state[:2], next[0], false)
		if err == nil {
			done = append(done, over)
			over, err = b.some(append(state, next[1]), next[0], true)
		}
		ReleaseColumns(next)
		if err != nil {
			return out, err
		}
		ReleaseColumns(state)
		after := over[len(state)]
		state = over[:len(state)]
		if state[0].Len == 0 {
			after.Release()
			break
		}
		err = b.once(e, state)
		state[2].Release()
		state[2] = after
		if err != nil {
			return out, err
		}
	}
	if len(done) == 1 && done[0][0].Len == b.n {
		return done[0][1].Retain(), nil
	}
	return b.rejoin(done)
}

// once runs the body over the next element of each list.
func (b bodies) once(e Elements, state []Column) error {
	element, err := b.q.Gather(b.l, []Column{e.Values, e.Positions}, state[2], false)
	if err != nil {
		return err
	}
	defer ReleaseColumns(element)
	inputs := append([]Column{element[0], element[1], state[1]}, state[4:]...)
	results, err := b.q.Eval(b.l, b.in.Body, inputs, state[0].Len)
	if err != nil {
		return err
	}
	state[1].Release()
	state[1] = results[0]
	return nil
}

// some returns the rows of columns where a condition is as wanted, or all of them.
func (b bodies) some(cols []Column, cond Column, want bool) ([]Column, error) {
	ids, err := b.q.Select(b.l, cond, want)
	if err != nil {
		return nil, err
	}
	defer ids.Release()
	return b.q.Gather(b.l, cols, ids, false)
}

// rejoin returns the results in the order of their rows.
func (b bodies) rejoin(done [][]Column) (out Column, err error) {
	var both [2]Column
	for k := range both {
		parts := make([]Column, len(done))
		for i, d := range done {
			parts[i] = d[k]
		}
		if both[k], err = b.q.Concat(b.l, parts); err != nil {
			return out, err
		}
		defer both[k].Release()
	}
	cols, err := b.q.Scatter(b.l, both[1:], both[0], b.n)
	if err != nil {
		return out, err
	}
	return cols[0], nil
}
