package cuda

import (
	"fmt"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
)

// Eval implements gpu.Queue: one kernel per instruction over all rows. Registers are freed after
// the last instruction that reads them. Kernels record the rows that fail on the device; Eval
// checks them once, at the end.
//
// Results are the same as on the host bit for bit, with these exceptions. OpMath, except the square
// root, may differ by 4 units in the last place, and the binary logarithm also by 1e-15. OpPow with
// a fraction in the exponent differs by the error of the host, a relative 1e-13 for very large and
// very small results. The bits of a NaN are undefined.
func (q *queue) Eval(l *gpu.Lease, p *gpu.Program, in []gpu.Column, n int) ([]gpu.Column, error) {
	if p.FirstBody() >= 0 {
		return gpu.EvalBodies(q, l, p, in, n)
	}
	if at := p.FirstHosted(); at >= 0 {
		return gpu.EvalApart(q, l, p, in, n, at, hosted{q, l, &p.Code[at], n}.eval)
	}
	out, failed, err := q.evaluate(l, p, in, n)
	if failed == nil {
		return out, err
	}
	return nil, q.fail("evaluate", q.explain(l, p, in, *failed))
}

// evaluate runs a program. Rows that fail are not an error here: it returns the failure
// to report.
func (q *queue) evaluate(l *gpu.Lease, p *gpu.Program, in []gpu.Column,
	n int) (out []gpu.Column, failed *failure, err error) {
	o := q.begin("evaluate", l)
	defer end(o, &out, &err)
	o.takes(in...)
	if err := checkEval(p, in, n); err != nil {
		return nil, nil, err
	}
	e := newEvaluation(o, p, in, n)
	e.evalDictionaries()
	e.run()
	if failed = e.failure(); failed != nil || o.failed() {
		return nil, failed, o.err
	}
	made := map[int]gpu.Column{}
	for _, r := range p.Outputs {
		c, ok := made[r]
		if !ok {
			c = e.column(r)
			made[r] = c
		}
		out = append(out, o.retainColumn(c))
	}
	if o.failed() {
		return nil, nil, o.err
	}
	return out, nil, nil
}

// checkEval checks the arguments of Eval.
func checkEval(p *gpu.Program, in []gpu.Column, n int) error {
	if len(in) != len(p.Inputs) {
		return fmt.Errorf("evaluate: the program has %d inputs, got %d columns", len(p.Inputs), len(in))
	}
	if n > gpu.MaxRows {
		return fmt.Errorf("evaluate: %d rows at once, at most %d are possible", n, gpu.MaxRows)
	}
	for i, c := range in {
		if c.Type != p.Inputs[i] || c.Len != n {
			return fmt.Errorf("evaluate: input %d has %d rows of %v, the program wants %d of %v", i, c.Len, c.Type, n,
				p.Inputs[i])
		}
	}
	return nil
}

// layout is Layout of eval.cuh: the layout of values in memory.
type layout int32

const (
	layoutI8 layout = iota
	layoutI16
	layoutI32
	layoutI64
	layoutU8
	layoutU16
	layoutU32
	layoutU64
	layoutI128
	layoutF32
	layoutF64
	layoutBits
	layoutText
	layoutView
)

// layoutOf returns the layout of a column of a type.
func layoutOf(t gpu.Type) layout {
	switch t.Kind {
	case gpu.Bool:
		return layoutBits
	case gpu.Float32:
		return layoutF32
	case gpu.Float64:
		return layoutF64
	case gpu.String, gpu.Binary, gpu.List, gpu.Struct, gpu.Map, gpu.Interval:
		return layoutText
	case gpu.Uint8, gpu.Uint16, gpu.Uint32, gpu.Uint64:
		return rawLayout(t.Width())
	}
	return map[int]layout{1: layoutI8, 2: layoutI16, 4: layoutI32, 8: layoutI64, 16: layoutI128}[t.Width()]
}

// rawLayout returns the layout of values that are copied without interpretation.
func rawLayout(width int) layout {
	return map[int]layout{1: layoutU8, 2: layoutU16, 4: layoutU32, 8: layoutU64, 16: layoutI128}[width]
}

// register has the values of one register. A Bool is always a plain bitmap. A string is a
// column, a dictionary-coded column or an array of views. A constant has no buffer,
// except for the bytes of a string.
type register struct {
	typ    gpu.Type
	layout layout
	data   *gpu.Buffer
	// offsets belong to strings that are a column. codes, if set, give the value of each
	// row; valid, if set, the rows that are not null.
	offsets, codes, valid *gpu.Buffer
	// viewed are the buffers into which views point.
	viewed []*gpu.Buffer
	// dict is the dictionary of codes, if the register can be a result without a copy.
	dict     *gpu.Dictionary
	constant bool
	value    gpu.Scalar
}

func (r *register) buffers() []*gpu.Buffer {
	all := append([]*gpu.Buffer{r.data, r.offsets, r.codes, r.valid}, r.viewed...)
	return slices.DeleteFunc(all, func(b *gpu.Buffer) bool { return b == nil })
}

// evaluation is one run of a program over n rows.
type evaluation struct {
	*op
	p    *gpu.Program
	in   []gpu.Column
	n    int
	regs []register
	// needed are the registers that must be computed. done are those that were computed
	// over dictionaries in advance.
	needed, done []bool
	// last is the last instruction that reads a register. users counts the registers in
	// use that have a buffer.
	last  []int
	users map[*gpu.Buffer]int
	// failures has, for each instruction, the first row that failed. It is nil if no instruction
	// can fail.
	failures *gpu.Buffer
}

func newEvaluation(o *op, p *gpu.Program, in []gpu.Column, n int) *evaluation {
	registers := len(in) + len(p.Code)
	return &evaluation{op: o, p: p, in: in, n: n, regs: make([]register, registers), needed: make([]bool, registers),
		done: make([]bool, registers), last: make([]int, registers), users: map[*gpu.Buffer]int{}}
}

func (e *evaluation) typeOf(r int) gpu.Type {
	if r < len(e.in) {
		return e.p.Inputs[r]
	}
	return e.p.Code[r-len(e.in)].Type
}

// plan finds the registers that must be computed, and the last instruction that reads
// each.
func (e *evaluation) plan() {
	for r := range e.last {
		e.last[r] = -1
	}
	use := func(r, at int) {
		e.needed[r] = true
		e.last[r] = max(e.last[r], at)
	}
	for _, r := range e.p.Outputs {
		use(r, math.MaxInt)
	}
	for i := len(e.p.Code) - 1; i >= 0; i-- {
		r := len(e.in) + i
		if !e.needed[r] || e.done[r] {
			continue
		}
		for _, a := range e.p.Code[i].Reads() {
			use(a, i)
		}
	}
}

// run computes the registers.
func (e *evaluation) run() {
	e.plan()
	for r := range e.in {
		if e.needed[r] {
			e.set(r, e.load(e.in[r]))
		}
	}
	e.expectFailures()
	for i := range e.p.Code {
		r := len(e.in) + i
		if !e.needed[r] || e.done[r] {
			continue
		}
		e.set(r, e.execute(i))
		for _, a := range e.p.Code[i].Reads() {
			if e.last[a] == i {
				e.drop(a)
			}
		}
		if e.err != nil {
			return
		}
	}
}

// set gives a register its values.
func (e *evaluation) set(r int, v register) {
	e.regs[r] = v
	for _, b := range v.buffers() {
		e.users[b]++
	}
}

// drop forgets a register and frees its buffers that no other register uses. A second
// call does nothing.
func (e *evaluation) drop(r int) {
	for _, b := range e.regs[r].buffers() {
		if e.users[b]--; e.users[b] == 0 {
			e.free(b)
		}
	}
	e.regs[r] = register{}
}

// load makes a register from an input.
func (e *evaluation) load(c gpu.Column) register {
	r := register{typ: c.Type, layout: layoutOf(c.Type), data: c.Data, offsets: c.Offsets, valid: c.Valid}
	if c.Dict == nil {
		return r
	}
	v := c.Dict.Values
	if v.Len == 0 { // every row is null
		r.constant, r.data = true, nil
		r.value = gpu.Scalar{Type: c.Type, Valid: true}
	} else {
		r.data, r.offsets, r.codes, r.dict = v.Data, v.Offsets, c.Data, c.Dict
	}
	return e.plainBits(r)
}

// plainBits turns a Bool that has codes or is constant into a bitmap.
func (e *evaluation) plainBits(r register) register {
	if r.typ.Kind != gpu.Bool || r.codes == nil && !r.constant {
		return r
	}
	out := register{typ: r.typ, layout: layoutBits, data: e.alloc(gpu.BitmapBytes(e.n)), valid: r.valid}
	a := e.args(&out, &r)
	e.rows("eval_move_bits", a)
	return out
}

// operand is Operand of eval.cuh.
type operand struct {
	data, offsets, codes, valid uint64
	lo                          uint64
	hi                          int64
	layout                      layout
	constant                    int32
}

func (r *register) operand() operand {
	x := operand{data: addr(r.data), offsets: addr(r.offsets), codes: addr(r.codes), valid: addr(r.valid),
		layout: r.layout}
	if !r.constant {
		return x
	}
	x.constant = 1
	switch {
	case r.typ.IsVar():
		x.lo = uint64(len(r.value.Str))
	case r.typ.IsFloat():
		x.lo = math.Float64bits(r.value.Float)
	default:
		x.lo, x.hi = r.value.Int.Lo, r.value.Int.Hi
	}
	return x
}

// raw returns the operand of a number that is copied without interpretation.
func (r *register) raw() operand {
	x := r.operand()
	if w := r.typ.Width(); w > 0 && r.typ.Kind != gpu.Decimal {
		x.layout = rawLayout(w)
	}
	if r.constant && r.typ.Kind == gpu.Float32 {
		x.lo = uint64(math.Float32bits(float32(r.value.Float)))
	}
	return x
}

// evalArgs is Args of eval.cuh.
type evalArgs struct {
	x, y, z                operand
	list, out, nulls       uint64
	valid, mask, maskValid uint64
	failed                 uint64
	set, table             uint64
	loLow, hiLow           uint64
	loHigh, hiHigh         int64
	p, q                   int64
	scale                  float64
	infinityX, infinity    int64
	at, bytes              uint64
	n                      int64
	layout                 layout
	mode                   int32
}

// args returns the arguments of a kernel from up to three registers to one. The type of
// the result bounds whole numbers.
func (e *evaluation) args(out *register, in ...*register) evalArgs {
	a := evalArgs{out: addr(out.data), valid: addr(out.valid), n: int64(e.n), layout: out.layout}
	a.infinity = out.typ.Infinity()
	for i, x := range []*operand{&a.x, &a.y, &a.z}[:min(len(in), 3)] {
		*x = in[i].operand()
	}
	if len(in) > 0 {
		a.infinityX = in[0].typ.Infinity()
	}
	if t := out.typ; t.Width() > 0 && !t.IsFloat() {
		lo, hi := t.Bounds()
		a.loLow, a.loHigh, a.hiLow, a.hiHigh = lo.Lo, lo.Hi, hi.Lo, hi.Hi
	}
	return a
}

const evalThreads = 256

// rows launches a kernel with one thread per row.
func (e *evaluation) rows(kernel string, a evalArgs) {
	launch(e.op, kernel, blocks(int(a.n), evalThreads), evalThreads, 0, a)
}

// bitmaps is Bitmaps of eval_compare.cu.
type bitmaps struct {
	x, xValid, y, yValid, z, zValid, out, outValid uint64
	n                                              int64
}

// setBits is SetBits of eval_compare.cu.
type setBits struct {
	_, out   uint64 // the first field is the bits to copy instead of value
	n, value int64
}

// words launches a kernel with one thread for every 32 rows.
func words[A any](e *evaluation, kernel string, a A) {
	launch(e.op, kernel, blocks(blocks(e.n, 64)*2, evalThreads), evalThreads, 0, a)
}

// result returns a register of type t with memory for its values.
func (e *evaluation) result(t gpu.Type, valid *gpu.Buffer) register {
	r := register{typ: t, layout: layoutOf(t), valid: valid}
	switch {
	case t.Kind == gpu.Bool:
		r.data = e.alloc(gpu.BitmapBytes(e.n))
	case t.IsVar():
		r.layout = layoutView
		r.data = e.alloc(int64(e.n) * 16)
	default:
		r.data = e.alloc(int64(e.n) * int64(t.Width()))
	}
	return r
}

// allValid returns the validity of a result that is null where an argument is null.
func (e *evaluation) allValid(args ...*register) *gpu.Buffer {
	var out *gpu.Buffer
	for _, r := range args {
		switch {
		case r.valid == nil || r.valid == out:
		case out == nil:
			out = r.valid
		default:
			both := e.alloc(gpu.BitmapBytes(e.n))
			words(e, "eval_and_bits", bitmaps{x: addr(out), y: addr(r.valid), out: addr(both), n: int64(e.n)})
			out = both
		}
	}
	return out
}

// column returns the column of a register. Its buffers belong to the evaluation and to
// the inputs.
func (e *evaluation) column(r int) gpu.Column {
	if r < len(e.in) {
		return e.in[r]
	}
	v := &e.regs[r]
	c := gpu.Column{Type: v.typ, Len: e.n, Data: v.data, Offsets: v.offsets, Valid: v.valid}
	switch {
	case v.codes != nil && v.dict != nil && v.typ.IsVar():
		c.Data, c.Offsets, c.Dict = v.codes, nil, v.dict
	case v.typ.IsVar() && (v.layout == layoutView || v.codes != nil || v.constant):
		c.Data, c.Offsets = e.joinTexts(v)
	case v.codes != nil || v.constant:
		out := e.result(v.typ, v.valid)
		a := e.args(&out, v)
		a.x, a.layout = v.raw(), rawLayout(v.typ.Width())
		e.rows("eval_move", a)
		c.Data = out.data
	}
	return c
}
