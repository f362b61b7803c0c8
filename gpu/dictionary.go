package gpu

import "slices"

// InputPart is the part of a program that depends on a single input. If that input has a
// dictionary, the part can be evaluated once per value instead of once per row.
type InputPart struct {
	// Program computes the part from the one input.
	Program *Program
	Input   int // number of the input in the whole program
	// Registers are the registers of the whole program, ascending, that instructions outside of the
	// part need. They correspond to the outputs of Program.
	Registers []int
}

// The dependency of a register is the number of an input with a part, or one of these.
const (
	dependsOnRows    = -1
	dependsOnNothing = -2
)

// InputParts returns the parts of a program, at most one for each input, in the order of inputs.
// has reports whether an input may have a part. byRow reports whether an instruction must run on
// rows.
func (p *Program) InputParts(has func(input int) bool, byRow func(instr int) bool) []InputPart {
	some := false
	for i := range p.Inputs {
		some = some || has(i)
	}
	if !some {
		return nil
	}
	depends := p.dependencies(has, byRow)
	// The results that an instruction which runs on rows reads.
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

// dependencies returns what each register depends on.
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

// over returns the program of the instructions that depend on input c or on no input. Its
// outputs are the given registers.
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

// Reads returns the registers that the instruction reads: its arguments and its mask.
func (in *Instr) Reads() []int {
	if in.Mask < 0 {
		return in.Args
	}
	return append(slices.Clone(in.Args), in.Mask)
}
