package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRowsOfOperations checks that no row of the table lacks a field, and that its laws agree with each other.
func TestRowsOfOperations(t *testing.T) {
	written := map[string]Op{}
	for op := range Ops {
		o := op.Info()
		name := o.SQL
		if name == "" && o.Variants != nil {
			name = o.Variants[len(o.Variants)-1]
		}
		switch op {
		case OpConst, OpCast, OpIn, OpSelect: // written in ways of their own
		default:
			assert.NotEmpty(t, name, "operation %d has no name", op)
		}
		assert.False(t, o.SQL != "" && o.Variants != nil, "%s has two names", name)
		assert.True(t, o.Kernel != "" || o.Variants != nil || o.Host, "%s has no kernel", name)
		assert.True(t, op == OpConst || o.Least > 0, "%s takes no arguments", name)
		assert.True(t, o.Most < 0 || o.Most >= o.Least, "%s takes at least %d and at most %d arguments", name, o.Least,
			o.Most)
		switch o.Form {
		case Infix:
			assert.True(t, o.Least == 2 && (o.Most == 2 || o.Most == -1), "%s is written between two arguments", name)
		case Prefix, Postfix:
			assert.True(t, o.Least == 1 && o.Most == 1, "%s is written next to one argument", name)
		}
		if o.Form != Special && o.SQL != "" {
			key := o.SQL
			if o.Form == Prefix {
				key += "x"
			}
			before, twice := written[key]
			assert.False(t, twice, "%s is operation %d and %d", name, before, op)
			written[key] = op
		}
		if p := o.Opposite; p != OpConst {
			assert.Equal(t, op, p.Info().Opposite, "the opposite of the opposite of %s", name)
			assert.Equal(t, o.SeesNulls, p.Info().SeesNulls, name)
		}
		if m := o.Mirrored; m != OpConst {
			assert.Equal(t, op, m.Info().Mirrored, "%s mirrored twice", name)
			assert.True(t, o.Least == 2 && o.Most != 1, name)
		}
		assert.True(t, !o.Tries || o.Fails != NeverFails || op == OpCast, "%s cannot fail", name)
	}
}

func TestProgramsOfUnknownOperationsAreRefused(t *testing.T) {
	long := Of(Int64)
	program := func(in Instr) *Program {
		in.Mask = -1
		return &Program{Inputs: []Type{long, long, long}, Code: []Instr{in}, Outputs: []int{3}}
	}
	for want, in := range map[string]Instr{
		"":                                 {Op: OpAdd, Type: long, Args: []int{0, 1}},
		"which is not known":               {Op: Ops, Type: long},
		"which takes no 3 arguments":       {Op: OpAdd, Type: long, Args: []int{0, 1, 2}},
		"which takes no 1 arguments":       {Op: OpAnd, Type: Of(Bool), Args: []int{0}},
		"which has no function 99":         {Op: OpMath, Type: Of(Float64), Args: []int{0}, N: 99},
		"reads register 7, which is not w": {Op: OpNeg, Type: long, Args: []int{7}},
	} {
		if err := program(in).Check(); want == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, want)
		}
	}
}
