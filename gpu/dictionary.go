package gpu

import "slices"

// InputPart is the part of a program that depends on one input only, so that where
// the input has a dictionary it can be evaluated once a value rather than once a
// row.
type InputPart struct {
	// Program computes the part over the one input.
	Program *Program
	Input   int // of the whole program
	// Registers of the whole program, ascending, that rows need; the outputs of
	// Program correspond to them.
	Registers []int
}

// What a register depends on, besides the number of an input that has parts.
const (
	dependsOnRows    = -1
	dependsOnNothing = -2
)

// InputParts returns the parts of a program, at most one an input, in order of
// inputs. has says which inputs may have a part; byRow, which instructions must be
// left to the rows.
func (p *Program) InputParts(has func(input int) bool, byRow func(instr int) bool) []InputPart {
	some := false
	for i := range p.Inputs {
		some = some || has(i)
	}
	if !some {
		return nil
	}
	depends := p.dependencies(has, byRow)
	// The results that rows need: used by something that depends on rows.
	wanted := make([]bool, len(depends))
	for i := range p.Code {
		if depends[len(p.Inputs)+i] == dependsOnRows {
			for _, a := range p.Code[i].Reads() {
				wanted[a] = true
			}
		}
	}
	for _, r := range p.Outputs {
		wanted[r] = true
	}
	var parts []InputPart
	for c := range p.Inputs {
		var registers []int
		for r := len(p.Inputs); r < len(depends); r++ {
			if wanted[r] && depends[r] == c {
				registers = append(registers, r)
			}
		}
		if len(registers) > 0 {
			parts = append(parts, InputPart{p.over(c, depends, registers), c, registers})
		}
	}
	return parts
}

// dependencies says what each register depends on.
func (p *Program) dependencies(has func(input int) bool, byRow func(instr int) bool) []int {
	depends := make([]int, len(p.Inputs)+len(p.Code))
	for i := range p.Inputs {
		depends[i] = dependsOnRows
		if has(i) {
			depends[i] = i
		}
	}
	for i := range p.Code {
		r := len(p.Inputs) + i
		depends[r] = dependsOnNothing
		for _, a := range p.Code[i].Reads() {
			switch d := depends[a]; {
			case d == dependsOnNothing || d == depends[r]:
			case depends[r] == dependsOnNothing:
				depends[r] = d
			default:
				depends[r] = dependsOnRows
			}
		}
		if byRow(i) {
			depends[r] = dependsOnRows
		}
	}
	return depends
}

// over is the program of what depends on input c or on nothing, with the given
// registers as outputs.
func (p *Program) over(c int, depends, registers []int) *Program {
	out := &Program{Inputs: []Type{p.Inputs[c]}}
	moved := make([]int, len(depends))
	for i, in := range p.Code {
		r := len(p.Inputs) + i
		if depends[r] != c && depends[r] != dependsOnNothing {
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
		moved[r] = 1 + len(out.Code)
		out.Code = append(out.Code, in)
	}
	for _, r := range registers {
		out.Outputs = append(out.Outputs, moved[r])
	}
	return out
}

// Reads returns the registers that the instruction reads: arguments and mask.
func (in *Instr) Reads() []int {
	if in.Mask < 0 {
		return in.Args
	}
	return append(slices.Clone(in.Args), in.Mask)
}
