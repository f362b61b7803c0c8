package cuda

import (
	"slices"

	"github.com/gstream/gstream/gpu"
)

// domains of a register, besides the number of a dictionary-coded input.
const (
	domainRows     = -1 // depends on rows
	domainConstant = -2
)

// evalDictionaries computes what depends on one dictionary-coded input only once
// a value rather than once a row, where the dictionary is smaller than the rows.
// What can fail is left to the rows: no row may have the value that fails.
func (e *evaluation) evalDictionaries() {
	domain := e.domains()
	// The results that rows need: used by something that depends on rows.
	wanted := make([]bool, len(domain))
	for i := range e.p.Code {
		if domain[len(e.in)+i] == domainRows {
			for _, a := range e.arguments(i) {
				wanted[a] = true
			}
		}
	}
	for _, r := range e.p.Outputs {
		wanted[r] = true
	}
	for c := range e.in {
		var registers []int
		for r := len(e.in); r < len(domain); r++ {
			if wanted[r] && domain[r] == c {
				registers = append(registers, r)
			}
		}
		if len(registers) > 0 {
			e.evalDictionary(c, domain, registers)
		}
	}
}

// domains says what each register depends on.
func (e *evaluation) domains() []int {
	domain := make([]int, len(e.in)+len(e.p.Code))
	for i, c := range e.in {
		domain[i] = domainRows
		if c.Dict != nil && c.Dict.Values.Len > 0 && c.Dict.Values.Len < e.n {
			domain[i] = i
		}
	}
	for i := range e.p.Code {
		r := len(e.in) + i
		domain[r] = domainConstant
		for _, a := range e.arguments(i) {
			switch d := domain[a]; {
			case d == domainConstant || d == domain[r]:
			case domain[r] == domainConstant:
				domain[r] = d
			default:
				domain[r] = domainRows
			}
		}
		if e.canFail(i) {
			domain[r] = domainRows
		}
	}
	return domain
}

// evalDictionary evaluates registers over the values of input c's dictionary, and
// over a null if the input has some.
func (e *evaluation) evalDictionary(c int, domain, registers []int) {
	p := &gpu.Program{Inputs: []gpu.Type{e.p.Inputs[c]}}
	moved := make([]int, len(domain))
	for i, in := range e.p.Code {
		r := len(e.in) + i
		if domain[r] != c && domain[r] != domainConstant {
			continue
		}
		args := make([]int, len(in.Args))
		for j, a := range in.Args {
			args[j] = moved[a] // 0 for the input itself
		}
		in.Args = args
		if in.Mask >= 0 {
			in.Mask = moved[in.Mask]
		}
		moved[r] = 1 + len(p.Code)
		p.Code = append(p.Code, in)
	}
	for _, r := range registers {
		p.Outputs = append(p.Outputs, moved[r])
	}
	input := e.in[c]
	values, codes := input.Dict.Values, input.Data
	if input.Valid != nil {
		codes = e.alloc(int64(e.n) * 4)
		a := evalArgs{x: operand{data: addr(input.Data), valid: addr(input.Valid)}, out: addr(codes), p: int64(values.Len), n: int64(e.n)}
		e.rows("eval_null_codes", a)
		values = e.withNull(values)
	}
	over := newEvaluation(e.op, p, []gpu.Column{values}, values.Len)
	over.run()
	for i, r := range registers {
		e.set(r, e.mapped(over.column(p.Outputs[i]), codes))
		e.done[r] = true
	}
	for r := range over.regs {
		if !slices.Contains(p.Outputs, r) {
			over.drop(r)
		}
	}
}

// mapped is the register of the rows whose codes point into a column of results.
func (e *evaluation) mapped(c gpu.Column, codes *gpu.Buffer) register {
	r := register{typ: c.Type, layout: layoutOf(c.Type), data: c.Data, offsets: c.Offsets, codes: codes}
	if c.Valid != nil {
		bits := register{typ: gpu.Of(gpu.Bool), layout: layoutBits, data: c.Valid, codes: codes}
		r.valid = e.plainBits(bits).data
	}
	dict := c
	dict.Valid = nil
	r.dict = &gpu.Dictionary{Values: dict}
	return e.plainBits(r)
}

// withNull is a dictionary's values and a null behind them.
func (e *evaluation) withNull(c gpu.Column) gpu.Column {
	n := c.Len
	out := gpu.Column{Type: c.Type, Len: n + 1, Valid: e.alloc(gpu.BitmapBytes(n + 1))}
	// Ones for n rows; whole words are written, the rest of the last is zero.
	ones := gpu.BitmapBytes(n)
	launch(e.op, "eval_set_bits", blocks(int(ones/4), evalThreads), evalThreads, 0, setBits{out: addr(out.Valid), n: int64(n), value: 1})
	e.fill(out.Valid, ones, gpu.BitmapBytes(n+1)-ones, 0)
	if c.Type.IsVar() {
		out.Data, out.Offsets = c.Data, e.alloc(int64(n+2)*4)
		e.copy(out.Offsets, 0, c.Offsets, 0, int64(n+1)*4)
		e.copy(out.Offsets, int64(n+1)*4, c.Offsets, int64(n)*4, 4)
		return out
	}
	used, size := int64(n)*int64(c.Type.Width()), int64(n+1)*int64(c.Type.Width())
	if c.Type.Kind == gpu.Bool {
		used, size = gpu.BitmapBytes(n), gpu.BitmapBytes(n+1)
	}
	out.Data = e.alloc(size)
	e.copy(out.Data, 0, c.Data, 0, used)
	e.fill(out.Data, used, size-used, 0)
	return out
}
