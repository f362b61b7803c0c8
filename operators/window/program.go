package window

import (
	"math"

	"github.com/gstream/gstream/gpu"
)

var (
	int32Type  = gpu.Of(gpu.Int32)
	int64Type  = gpu.Of(gpu.Int64)
	doubleType = gpu.Of(gpu.Float64)
	boolType   = gpu.Of(gpu.Bool)
)

// program builds a gpu.Program. Its methods return registers.
type program struct{ gpu.Program }

func newProgram(inputs ...gpu.Type) *program { return &program{gpu.Program{Inputs: inputs}} }

func (p *program) op(op gpu.Op, t gpu.Type, args ...int) int {
	return p.add(gpu.Instr{Op: op, Type: t, Args: args})
}

func (p *program) add(in gpu.Instr) int {
	in.Mask = -1
	if in.Text == "" {
		in.Text = "window function"
	}
	p.Code = append(p.Code, in)
	return len(p.Inputs) + len(p.Code) - 1
}

// number is a constant integer.
func (p *program) number(t gpu.Type, v int64) int {
	return p.add(gpu.Instr{Op: gpu.OpConst, Type: t, Value: gpu.IntScalar(t, v)})
}

// double is a constant DOUBLE.
func (p *program) double(v float64) int {
	return p.add(gpu.Instr{Op: gpu.OpConst, Type: doubleType, Value: gpu.FloatScalar(doubleType, v)})
}

// null is a constant null.
func (p *program) null(t gpu.Type) int {
	return p.add(gpu.Instr{Op: gpu.OpConst, Type: t, Value: gpu.Null(t)})
}

func (p *program) cast(t gpu.Type, x int) int { return p.op(gpu.OpCast, t, x) }

// choose is x where cond is true, and y elsewhere.
func (p *program) choose(t gpu.Type, cond, x, y int) int { return p.op(gpu.OpSelect, t, cond, x, y) }

// least and greatest are those of two BIGINTs.
func (p *program) least(x, y int) int {
	return p.choose(int64Type, p.op(gpu.OpLt, boolType, x, y), x, y)
}

func (p *program) greatest(x, y int) int {
	return p.choose(int64Type, p.op(gpu.OpLt, boolType, x, y), y, x)
}

// long is x as BIGINT.
func (p *program) long(x int) int { return p.cast(int64Type, x) }

// plus and minus are of BIGINTs.
func (p *program) plus(x, y int) int  { return p.op(gpu.OpAdd, int64Type, x, y) }
func (p *program) minus(x, y int) int { return p.op(gpu.OpSub, int64Type, x, y) }

// bounded clamps a BIGINT that counts rows to ±math.MaxInt32, because there cannot be more rows.
func (p *program) bounded(x int) int {
	return p.greatest(p.least(x, p.number(int64Type, math.MaxInt32)), p.number(int64Type, -math.MaxInt32))
}

// within is a BIGINT as INTEGER if it is in [low, high), and otherwise or if it is null -1.
func (p *program) within(x, low, high int) int { return p.cast(int32Type, p.inside(x, low, high)) }

// inside is within as BIGINT.
func (p *program) inside(x, low, high int) int {
	in := p.op(gpu.OpAnd, boolType, p.op(gpu.OpGe, boolType, x, low), p.op(gpu.OpLt, boolType, x, high))
	return p.choose(int64Type, in, x, p.number(int64Type, -1))
}
