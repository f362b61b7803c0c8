package expr

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// Registers estimate a number of distinct values as those of HyperLogLog do (Flajolet et al., AofA 2007): the
// low bits of the hash of a value are the number of its register, which keeps the least of the other bits. A
// register is a row of a group-by here, so it keeps all 32 of them rather than their leading zeros, and the
// estimate is that of Lumbroso (AofA 2010), which needs no table of corrections.
//
// Of n values a register has n/m on average, for m registers. The least of their hashes, as parts of 1, is
// distributed exponentially with this rate, cut off at 1 where there is none. The estimate is the most likely one:
// m times the number of registers with a value, divided by the sum of the least hashes, with 1 for each
// of the others. Its standard error is 1/√m for many values, 1.6 %. Up to some hundreds only values that share a
// register count for it, so that of 100 values it is 1, and below 20 it is mostly 0.
type Registers struct {
	Number *Expr // an INTEGER, of 0 … 4095, never null
	Least  *Expr // a UINTEGER whose minimum a register keeps, null for a null
}

// registers returns the registers of an argument.
func (b *binder) registers(n syntax.Node, x *Expr) (*Registers, error) {
	t := gpu.Of(gpu.Uint64)
	hash, err := b.op(n, Expr{op: gpu.OpHash, typ: t, rng: typeRange(t)}, typed(x))
	if err != nil {
		return nil, err
	}
	number, err := b.expand(n, "CAST(_1 & 4095 AS INTEGER)", hash)
	if err != nil {
		return nil, err
	}
	least, err := b.expand(n, "CASE WHEN _2 IS NOT NULL THEN CAST(_1 >> 32 AS UINTEGER) END", hash, x)
	if err != nil {
		return nil, err
	}
	return &Registers{number, least}, nil
}

// Estimate is the format of the number of distinct values by their registers, as an expression over two columns: how
// many have a value, and the sum of what these keep. Half is added to each, which is cut off to a whole number.
const Estimate = "CAST(round(4096 * 4294967296e0 * %[1]s / (coalesce(CAST(%[2]s AS DOUBLE), 0e0) + %[1]s / 2 + (4096 " +
	"- %[1]s) * 4294967296e0)) AS BIGINT)"
