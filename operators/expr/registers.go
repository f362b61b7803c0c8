package expr

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// Registers estimate a number of distinct values like those of HyperLogLog (Flajolet et al., AofA
// 2007). The low bits of a value's hash are the number of its register. The register keeps the
// minimum of the other bits. Here a register is a row of a group-by, so it keeps all 32 bits
// instead of counting their leading zeros. The estimate is that of Lumbroso (AofA 2010), which
// needs no table of corrections.
//
// With n values and m registers, a register receives n/m values on average. Its minimum, as a
// fraction of 1, is distributed exponentially with this rate, and is 1 if it has no value. The
// estimate is the most likely n: m times the number of registers with a value, divided by the sum
// of all minima. Its standard error for many values is 1/√m, 1.6 %. Up to some hundreds of values
// only values that share a register cause an error: for 100 values it is 1, below 20 values mostly
// 0.
type Registers struct {
	Number *Expr // an INTEGER, of 0 … 4095, never null
	Least  *Expr // a UINTEGER whose minimum a register keeps, null for a null
}

// registers returns the registers of an argument.
func (b *binder) registers(n syntax.Node, x *Expr) (*Registers, error) {
	x, err := b.lengthOf(n, x)
	if err != nil {
		return nil, err
	}
	t := gpu.Of(gpu.Uint64)
	if x.typ.IsNested() {
		return nil, b.errorf(n, "approx_count_distinct of a %v is not possible; count(DISTINCT …) is", x.typ)
	}
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

// Estimate is the format of an expression that estimates the number of distinct values from two
// columns: the number of registers that have a value, and the sum of their minima. It adds half to
// each minimum, because minima are truncated to whole numbers.
const Estimate = "CAST(round(4096 * 4294967296e0 * %[1]s / (coalesce(CAST(%[2]s AS DOUBLE), 0e0) + %[1]s / 2 + (4096 " +
	"- %[1]s) * 4294967296e0)) AS BIGINT)"
