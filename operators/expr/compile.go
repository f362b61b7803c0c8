package expr

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/gstream/gstream/gpu"
)

// Compile translates expressions over a schema into a program with one output for each expression.
// The program computes a repeated subexpression once. inputs[i] is the schema position of
// p.Inputs[i]. The output of a bare column is the register of the input.
func Compile(s *gpu.Schema, exprs ...*Expr) (p *gpu.Program, inputs []int, err error) {
	c := newCompiler(map[*Expr][]*Expr{})
	used := map[int]bool{}
	for _, e := range exprs {
		e.walk(func(e *Expr) {
			if e.op == opColumn {
				used[e.column] = true
			}
		})
	}
	for i, f := range s.Fields {
		if used[i] {
			c.inputs[i] = len(inputs)
			inputs = append(inputs, i)
			c.p.Inputs = append(c.p.Inputs, f.Type)
			delete(used, i)
		}
	}
	for i := range used {
		return nil, nil, fmt.Errorf("an expression uses column %d of a schema of %d columns", i, s.Len())
	}
	for _, e := range exprs {
		c.p.Outputs = append(c.p.Outputs, c.compile(e, -1))
	}
	return &c.p, inputs, nil
}

type compiler struct {
	p         gpu.Program
	inputs    map[int]int       // register by schema position
	params    map[parameter]int // register of the parameters of lambdas
	open      map[*Expr][]*Expr // see variables
	hoisted   map[*Expr]int     // register of parts of a body that are evaluated outside of it
	registers map[string]int    // register by the instruction that computes it, in the form of appendInstr
	key       []byte            // scratch memory of emit
	done      map[visit]int     // register by expression: shared nodes are visited once
	within    map[int]int       // the wider mask that a mask narrows
}

func newCompiler(open map[*Expr][]*Expr) *compiler {
	return &compiler{registers: map[string]int{}, done: map[visit]int{}, within: map[int]int{}, inputs: map[int]int{},
		params: map[parameter]int{}, open: open}
}

type visit struct {
	e    *Expr
	mask int
}

// compile returns the register of an expression. mask is the register of the rows that
// are needed, or -1 for all rows.
func (c *compiler) compile(e *Expr, mask int) int {
	if r, ok := c.hoisted[e]; ok {
		return r
	}
	if e.op == opColumn {
		return c.inputs[e.column]
	}
	if e.op == opParam {
		return c.parameter(e)
	}
	if !e.fails {
		mask = -1
	}
	// A result for a wider mask can be reused.
	for m := mask; ; m = c.within[m] {
		if r, ok := c.done[visit{e, m}]; ok {
			return r
		}
		if m < 0 {
			break
		}
	}
	if e.op == opTry {
		never := c.emit(gpu.Instr{Op: gpu.OpConst, Type: gpu.Of(gpu.Bool), Mask: -1, Value: gpu.BoolScalar(false)})
		c.within[never] = -1
		return c.compile(e.args[0], never)
	}
	in := gpu.Instr{Op: e.op, Type: e.typ, Mask: -1, Value: e.value, Set: e.set, N: e.n}
	switch {
	case e.op == gpu.OpSelect:
		in.Args = c.compileSelect(e, mask)
	case e.op == gpu.OpAnd || e.op == gpu.OpOr:
		in.Args = c.compileLogic(e, mask)
	case e.bodies() > 0:
		in.Args, in.Body = c.compileBody(e, mask)
	default:
		for _, a := range e.args {
			in.Args = append(in.Args, c.compile(a, mask))
		}
		in.Mask = mask
	}
	if in.Message = e.message; len(e.args) > 0 {
		in.Text = e.text(maxText)
	}
	r := c.emit(in)
	c.done[visit{e, mask}] = r
	return r
}

// compileSelect compiles each branch for the rows that choose it.
func (c *compiler) compileSelect(e *Expr, mask int) []int {
	cond := c.compile(e.args[0], mask)
	then, otherwise := mask, mask
	if e.args[1].fails {
		then = c.both(mask, cond)
	}
	if e.args[2].fails {
		otherwise = c.both(mask, c.isNot(cond, true))
	}
	return []int{cond, c.compile(e.args[1], then), c.compile(e.args[2], otherwise)}
}

// compileLogic compiles each operand for the rows that earlier operands have not decided. So a
// condition protects the operands after it from rows on which they would fail.
func (c *compiler) compileLogic(e *Expr, mask int) []int {
	var args []int
	for i, a := range e.args {
		m := mask
		if a.fails {
			for _, before := range args[:min(i, 4)] {
				m = c.both(m, c.isNot(before, e.op == gpu.OpOr))
			}
		}
		args = append(args, c.compile(a, m))
	}
	return args
}

// isNot returns the register of r IS DISTINCT FROM v.
func (c *compiler) isNot(r int, v bool) int {
	constant := c.emit(gpu.Instr{Op: gpu.OpConst, Type: gpu.Of(gpu.Bool), Mask: -1, Value: gpu.BoolScalar(v)})
	return c.emit(gpu.Instr{Op: gpu.OpDistinct, Type: gpu.Of(gpu.Bool), Args: []int{r, constant}, Mask: -1})
}

func (c *compiler) both(mask, r int) int {
	if mask < 0 {
		c.within[r] = -1
		return r
	}
	m := c.emit(gpu.Instr{Op: gpu.OpAnd, Type: gpu.Of(gpu.Bool), Args: []int{mask, r}, Mask: -1})
	c.within[m] = mask
	return m
}

// emit appends an instruction unless the program has it already. A result for all rows is reused
// where only some rows are needed.
func (c *compiler) emit(in gpu.Instr) int {
	for _, mask := range []int{-1, in.Mask} {
		c.key = appendInstr(c.key[:0], in, mask)
		if r, ok := c.registers[string(c.key)]; ok {
			return r
		}
	}
	r := len(c.p.Inputs) + len(c.p.Code)
	c.p.Code = append(c.p.Code, in)
	c.registers[string(c.key)] = r
	return r
}

// appendInstr appends what tells an instruction from others, except its text.
func appendInstr(key []byte, in gpu.Instr, mask int) []byte {
	number := func(v int) { key = binary.AppendVarint(key, int64(v)) }
	typ := func(t gpu.Type) {
		key = append(key, byte(t.Kind), byte(t.Unit), t.Precision, t.Scale)
		key = strconv.AppendBool(strconv.AppendBool(key, t.UTC), t.Wide)
		number(len(t.Nested))
		key = append(key, t.Nested...)
		number(len(t.Enum))
		key = append(key, t.Enum...)
	}
	value := func(v gpu.Scalar) {
		typ(v.Type)
		key = strconv.AppendBool(key, v.Valid)
		key = binary.LittleEndian.AppendUint64(key, v.Int.Lo)
		key = binary.LittleEndian.AppendUint64(key, uint64(v.Int.Hi))
		key = binary.LittleEndian.AppendUint64(key, math.Float64bits(v.Float))
		number(len(v.Str))
		key = append(key, v.Str...)
	}
	number(mask)
	number(int(in.Op))
	number(in.N)
	typ(in.Type)
	number(len(in.Args))
	for _, a := range in.Args {
		number(a)
	}
	number(len(in.Message))
	key = append(key, in.Message...)
	if in.Body != nil {
		for _, t := range in.Body.Inputs {
			typ(t)
		}
		for _, inner := range in.Body.Code {
			key = appendInstr(key, inner, inner.Mask)
		}
		for _, r := range in.Body.Outputs {
			number(r)
		}
	}
	value(in.Value)
	for _, v := range in.Set {
		value(v)
	}
	return key
}

// maxText bounds the text of an instruction, approximately, in bytes.
const maxText = 200
