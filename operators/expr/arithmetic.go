package expr

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

var hugeint = gpu.Of(gpu.HugeInt)

// literalAs converts an integer literal to the type of the other operand if its value fits, as
// DuckDB does: TINYINT + 1 is a TINYINT. A text literal next to a UUID becomes a UUID.
func literalAs(fold Fold, x, other *Expr) (*Expr, error) {
	if x.literal == stringLiteral && other.annotation == gpu.UUID {
		return uuidLiteral(x)
	}
	if x.takes(other) {
		return newCast(fold, x, other.typ, false)
	}
	return x, nil
}

// takes reports whether an expression is an integer literal that takes the type of another one.
func (e *Expr) takes(other *Expr) bool {
	return e.literal == integerLiteral && other.literal != integerLiteral && other.typ.IsInteger() &&
		typeRange(other.typ).contains(e.rng)
}

// arithmetic binds + - * / // % on numbers.
func (b *binder) arithmetic(n syntax.Node, op gpu.Op, x, y *Expr) (*Expr, error) {
	var err error
	for i, e := range []**Expr{&x, &y} {
		// A text literal takes the type of the number next to it.
		if other := []*Expr{y, x}[i]; (*e).literal == stringLiteral && other.typ.IsNumeric() &&
			other.literal == notLiteral {
			if *e, err = b.convert(n, *e, other.typ, false); err != nil {
				return nil, err
			}
		}
	}
	if x.literal == nullLiteral {
		x, y = y, x
	}
	if x.literal == nullLiteral {
		x = newConstant(gpu.Null(gpu.Of(gpu.Int32)))
	}
	if y.literal == nullLiteral {
		y = newConstant(gpu.Null(x.typ))
	}
	if !x.typ.IsNumeric() || !y.typ.IsNumeric() {
		return nil, b.errorf(n, "no operator %s for %v and %v%s", op.Info().SQL, x.typ, y.typ, castHint(x, y))
	}
	if x, err = literalAs(b.scope.Fold, x, y); err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	if y, err = literalAs(b.scope.Fold, y, x); err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	decimal := x.typ.Kind == gpu.Decimal || y.typ.Kind == gpu.Decimal
	floats := x.typ.IsFloat() || y.typ.IsFloat()
	switch {
	case floats && op != gpu.OpDiv && op != gpu.OpQuo, op == gpu.OpDiv, op == gpu.OpQuo && (decimal || floats):
		return b.floatArithmetic(n, op, x, y)
	case decimal:
		return b.decimalArithmetic(n, op, x, y)
	}
	return b.integerArithmetic(n, op, x, y)
}

func castHint(x, y *Expr) string {
	for _, e := range []*Expr{x, y} {
		if e.typ.Kind == gpu.String {
			return "; cast the text, as in x::DOUBLE"
		}
	}
	return ""
}

func (b *binder) floatArithmetic(n syntax.Node, op gpu.Op, x, y *Expr) (*Expr, error) {
	t := gpu.Of(gpu.Float64)
	exact := !x.typ.IsFloat() && !y.typ.IsFloat()
	if !exact {
		t = gpu.CommonFloat(x.typ, y.typ)
	}
	x, err := b.convert(n, x, t, false)
	if err != nil {
		return nil, err
	}
	if y, err = b.convert(n, y, t, false); err != nil {
		return nil, err
	}
	e := Expr{op: op, typ: t, nullable: x.nullable || y.nullable}
	if exact && op == gpu.OpMod {
		e.n = gpu.ZeroFails // as for decimals
	}
	e.fails = (op == gpu.OpQuo || e.n == gpu.ZeroFails) && maybeZero(y)
	return b.op(n, e, x, y)
}

// maybeZero reports whether a divisor can be zero. It trusts only a constant: ranges come
// from statistics, which may be wrong.
func maybeZero(y *Expr) bool {
	v, ok := y.Constant()
	return !ok || v.Valid && v.Int.Sign() == 0 && v.Float == 0
}

func (b *binder) integerArithmetic(n syntax.Node, op gpu.Op, x, y *Expr) (*Expr, error) {
	t := gpu.CommonInteger(x.typ, y.typ)
	if t.Kind != x.typ.Kind && t.Kind != y.typ.Kind && t != hugeint {
		// Neither type holds the other's values: DuckDB computes in BIGINT.
		t = gpu.Of(gpu.Int64)
	}
	x, err := b.convert(n, x, t, false)
	if err != nil {
		return nil, err
	}
	if y, err = b.convert(n, y, t, false); err != nil {
		return nil, err
	}
	r := arithmeticRange(op, x.rng, y.rng)
	e := Expr{op: op, typ: t, nullable: x.nullable || y.nullable, rng: r.within(t)}
	switch op {
	case gpu.OpQuo:
		e.rng = typeRange(t)
		c, constant := y.Constant()
		// The most negative value divided by -1 fails too.
		e.fails = maybeZero(y) || t.IsSigned() && !(constant && c.Int != gpu.Int128From(-1))
	case gpu.OpMod:
		e.fails = maybeZero(y)
	default:
		e.fails = !typeRange(t).contains(r)
	}
	return b.op(n, e, x, y)
}

// decimalArithmetic follows DuckDB's result types. A result is stored in 8 bytes if the operands
// are and their ranges prove that it fits.
func (b *binder) decimalArithmetic(n syntax.Node, op gpu.Op, x, y *Expr) (*Expr, error) {
	dx, dy := x.typ.Digits(), y.typ.Digits()
	p1, s1, p2, s2 := int(dx.Precision), int(dx.Scale), int(dy.Precision), int(dy.Scale)
	var p, s int
	switch op {
	case gpu.OpMul:
		p, s = p1+p2, s1+s2
		if s > gpu.MaxPrecision {
			return nil,
				b.errorf(n,
					"the product of %v and %v needs %d digits after the point, more than the %d of a decimal; cast "+
						"an operand to fewer, or to DOUBLE", dx, dy, s, gpu.MaxPrecision)
		}
		if p > gpu.MaxNarrowPrecision && max(p1, p2) <= gpu.MaxNarrowPrecision && s < gpu.MaxNarrowPrecision {
			p = gpu.MaxNarrowPrecision
		}
	case gpu.OpMod:
		s = max(s1, s2)
		p = max(p1-s1, p2-s2) + s
	default:
		s = max(s1, s2)
		p = max(p1-s1, p2-s2) + s + 1
	}
	if op == gpu.OpMod && p > gpu.MaxPrecision {
		return b.floatArithmetic(n, op, x, y)
	}
	p = min(p, gpu.MaxPrecision)
	if op != gpu.OpMul {
		// Both operands get the result's scale.
		dx, dy = gpu.DecimalOf(min(p1-s1+s, gpu.MaxPrecision), s), gpu.DecimalOf(min(p2-s2+s, gpu.MaxPrecision), s)
	}
	x, err := b.convert(n, x, dx, false)
	if err != nil {
		return nil, err
	}
	if y, err = b.convert(n, y, dy, false); err != nil {
		return nil, err
	}
	t := gpu.DecimalOf(p, s)
	r := arithmeticRange(op, x.rng, y.rng)
	if t.Wide && r.fitsInt64() && !x.typ.Wide && !y.typ.Wide {
		t.Wide = false
	}
	e := Expr{op: op, typ: t, nullable: x.nullable || y.nullable, rng: r.within(t),
		fails: !typeRange(t).contains(r) || op == gpu.OpMod && maybeZero(y)}
	return b.op(n, e, x, y)
}
