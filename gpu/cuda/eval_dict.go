package cuda

import (
	"slices"

	"github.com/gstream/gstream/gpu"
)

// evalDictionaries computes the parts of the program that depend on one dictionary-coded input once
// per value instead of once per row, if the dictionary has fewer values than rows. Operations that
// can fail run on rows: perhaps no row has the value that fails.
func (e *evaluation) evalDictionaries() {
	for _, part := range e.p.InputParts(e.overDictionary, e.canFail) {
		e.evalDictionary(part)
	}
}

// overDictionary reports whether an input has a dictionary with fewer values than rows.
func (e *evaluation) overDictionary(input int) bool {
	d := e.in[input].Dict
	return d != nil && d.Values.Len > 0 && d.Values.Len < e.n
}

// evalDictionary evaluates a part of the program over the values of its input's
// dictionary, and over a null if the input has nulls.
func (e *evaluation) evalDictionary(part gpu.InputPart) {
	p := part.Program
	input := e.in[part.Input]
	values, codes := input.Dict.Values, input.Data
	if input.Valid != nil {
		codes = e.alloc(int64(e.n) * 4)
		a := evalArgs{x: operand{data: addr(input.Data), valid: addr(input.Valid)}, out: addr(codes),
			p: int64(values.Len), n: int64(e.n)}
		e.rows("eval_null_codes", a)
		values = e.withNull(values)
	}
	over := newEvaluation(e.op, p, []gpu.Column{values}, values.Len)
	over.run()
	for i, r := range part.Registers {
		e.set(r, e.mapped(over.column(p.Outputs[i]), codes))
		e.done[r] = true
	}
	for r := range over.regs {
		if !slices.Contains(p.Outputs, r) {
			over.drop(r)
		}
	}
}

// mapped returns a register whose codes index a column of results.
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

// withNull returns the values of a dictionary followed by a null.
func (e *evaluation) withNull(c gpu.Column) gpu.Column {
	n := c.Len
	out := gpu.Column{Type: c.Type, Len: n + 1, Valid: e.alloc(gpu.BitmapBytes(n + 1))}
	// Ones for n rows. The kernel writes whole words and clears the bits after the last row.
	ones := gpu.BitmapBytes(n)
	launch(e.op, "eval_set_bits", blocks(int(ones/4), evalThreads), evalThreads, 0,
		setBits{out: addr(out.Valid), n: int64(n), value: 1})
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
