package expr

import (
	"fmt"
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// integers converts two integers to their common type, as arithmetic does.
func (b *binder) integers(n syntax.Node, what string, x, y *Expr) (*Expr, *Expr, error) {
	of := gpu.Of(gpu.Int64)
	if y.literal != nullLiteral {
		of = y.typ
	}
	if x.literal == nullLiteral {
		x = newConstant(gpu.Null(of))
	}
	if y.literal == nullLiteral {
		y = newConstant(gpu.Null(x.typ))
	}
	if !x.typ.IsInteger() || !y.typ.IsInteger() {
		return nil, nil, b.errorf(n, "%s needs integers, found %v and %v", what, x.typ, y.typ)
	}
	var err error
	if x, err = literalAs(b.scope.Fold, x, y); err != nil {
		return nil, nil, b.errorf(n, "%v", err)
	}
	if y, err = literalAs(b.scope.Fold, y, x); err != nil {
		return nil, nil, b.errorf(n, "%v", err)
	}
	t := gpu.CommonInteger(x.typ, y.typ)
	if t.Kind != x.typ.Kind && t.Kind != y.typ.Kind && t != hugeint {
		t = gpu.Of(gpu.Int64)
	}
	if x, err = b.convert(n, x, t, false); err != nil {
		return nil, nil, err
	}
	y, err = b.convert(n, y, t, false)
	return x, y, err
}

// bitwise binds an operation on the bits of two integers.
func (b *binder) bitwise(n syntax.Node, what string, op gpu.Op, x, y *Expr) (*Expr, error) {
	x, y, err := b.integers(n, what, x, y)
	if err != nil {
		return nil, err
	}
	rng := typeRange(x.typ)
	for _, side := range []*Expr{x, y} {
		if r := side.rng; op == gpu.OpBitAnd && r != nil && r.Lo.Sign() >= 0 {
			rng = rng.clip(&Range{Hi: r.Hi})
		}
	}
	return b.op(n, Expr{op: op, typ: x.typ, nullable: x.nullable || y.nullable, rng: rng, fails: op == gpu.OpShiftLeft},
		x, y)
}

func bitOperator(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error) {
	return b.bitwise(n, n.Op, operators[n.Op].op, x, y)
}

func bindXor(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	return b.bitwise(n, n.Name, gpu.OpBitXor, a[0], a[1])
}

// complement binds ~x.
func (b *binder) complement(n syntax.Node, x *Expr) (*Expr, error) {
	if x.literal == nullLiteral {
		x = newConstant(gpu.Null(gpu.Of(gpu.Int32)))
	}
	if !x.typ.IsInteger() {
		return nil, b.errorf(n, "~ needs an integer, found %v", x.typ)
	}
	ones := gpu.Int128From(-1)
	if x.typ.IsUnsigned() {
		_, ones = x.typ.Bounds()
	}
	x = typed(x)
	return b.op(n, Expr{op: gpu.OpBitXor, typ: x.typ, nullable: x.nullable, rng: typeRange(x.typ)}, x,
		newConstant(gpu.Scalar{Type: x.typ, Valid: true, Int: ones}))
}

func bindBitCount(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x := a[0]
	if x.literal == nullLiteral {
		x = newConstant(gpu.Null(gpu.Of(gpu.Int32)))
	}
	if !x.typ.IsInteger() {
		return nil, b.errorf(n.Args[0], "%s needs an integer, found %v", n.Name, x.typ)
	}
	t := gpu.Of(gpu.Int8)
	if x.typ.Kind == gpu.Uint64 || x.typ == hugeint {
		t = gpu.Of(gpu.Int16)
	}
	return b.op(n, Expr{op: gpu.OpBitCount, typ: t, nullable: x.nullable, rng: rangeOf(0, int64(8*x.typ.Width()))},
		typed(x))
}

func bindGCD(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	t := gpu.Of(gpu.Int64)
	args := make([]*Expr, 2)
	for i, x := range a {
		switch {
		case x.literal != nullLiteral && !x.typ.IsInteger():
			return nil, b.errorf(n.Args[i], "%s needs an integer, found %v", n.Name, x.typ)
		case x.typ == hugeint || x.typ.Kind == gpu.Uint64:
			t = hugeint
		}
	}
	for i, x := range a {
		var err error
		if args[i], err = b.convert(n.Args[i], x, t, false); err != nil {
			return nil, err
		}
	}
	return b.op(n, Expr{op: gpu.OpGCD, typ: t, nullable: args[0].nullable || args[1].nullable, rng: typeRange(t),
		fails: true}, args...)
}

// bindLCM binds the least common multiple.
func bindLCM(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	g, err := bindGCD(b, n, a)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _1 = 0 AND _2 IS NOT NULL OR _2 = 0 AND _1 IS NOT NULL THEN 0 ELSE abs(_1 // "+
		"nullif(_3, 0) * _2) END", a[0], a[1], g)
}

func bindLog(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if len(a) == 1 {
		return macro("f", "log10(_1)")(b, n, a)
	}
	return macro("f", "log10(_2) / log10(_1)")(b, n, a)
}

// digits returns the constant number of digits of round and trunc.
func (b *binder) digits(n *syntax.Call, e *Expr) (int, bool) {
	c, ok := e.Constant()
	if !ok || !e.typ.IsInteger() || !c.Valid || !c.Int.IsInt64() {
		return 0, false
	}
	return int(min(max(c.Int.Int64(), -400), 400)), true
}

// truncatedByColumn is SQL that truncates a float _1 to _2 digits, where _2 is a column and _3 is
// 10^_2: it moves the point, truncates, and moves the point back. With too many digits the value
// stays.
const truncatedByColumn = `CASE WHEN _2 < 0 AND isfinite(trunc(_1 / _3) * _3) THEN trunc(_1 / _3) * _3
	WHEN _2 >= 0 AND isfinite(trunc(_1 * _3) / _3) THEN trunc(_1 * _3) / _3 WHEN _2 IS NOT NULL THEN _1 END`

// byColumn rounds or truncates x to a number of digits that is a column.
func (b *binder) byColumn(n *syntax.Call, x, digits *Expr) (*Expr, error) {
	if digits.literal != nullLiteral && !digits.typ.IsInteger() {
		return nil, b.errorf(n.Args[1], "the digits of %s must be an integer, found %v", n.Name, digits.typ)
	}
	switch {
	case x.typ.IsFloat() && n.Name == "round":
		// More digits change no float.
		d, err := b.expand(n, "CASE WHEN _1 < -400 THEN -400 WHEN _1 > 400 THEN 400 ELSE _1 END::BIGINT", digits)
		if err != nil {
			return nil, err
		}
		return b.op(n, Expr{op: gpu.OpRound, typ: x.typ, nullable: x.nullable || d.nullable}, x, d)
	case x.typ.IsFloat():
		power, err := b.expand(n, "('1e' || abs(_1::HUGEINT))::DOUBLE", digits)
		if err != nil {
			return nil, err
		}
		e, err := b.expand(n, truncatedByColumn, x, digits, power)
		if err != nil {
			return nil, err
		}
		return b.convert(n, e, x.typ, false)
	case x.typ.IsInteger():
		// In HUGEINT, with the power of ten of the digits that are dropped.
		dividend := "(_1::HUGEINT + sign(_1) * _3 // 2)"
		if n.Name == "trunc" {
			dividend = "_1::HUGEINT"
		}
		body := "CASE WHEN _2 >= 0 THEN _1::HUGEINT WHEN _2 < -38 AND _1 IS NOT NULL THEN 0 WHEN _2 < 0 THEN " +
			dividend + " // _3 * _3 END"
		power, err := b.expand(n, "('1e' || least(greatest(-_1, 0), 38))::HUGEINT", digits)
		if err != nil {
			return nil, err
		}
		e, err := b.expand(n, body, x, digits, power)
		if err != nil {
			return nil, err
		}
		return b.convert(n, e, x.typ, false)
	}
	return nil, b.errorf(n.Args[1], "the digits of %s must be constant for a %v; cast the number to DOUBLE", n.Name,
		x.typ)
}

// bindTruncate binds trunc(x, digits).
func bindTruncate(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if len(a) == 1 {
		return bindTrunc(b, n, a)
	}
	x, err := b.numeric(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	digits, constant := b.digits(n, a[1])
	switch {
	case !constant:
		return b.byColumn(n, x, a[1])
	case x.typ.IsInteger() && digits >= 0, x.typ.Kind == gpu.Decimal && digits >= int(x.typ.Scale):
		return typed(x), nil
	case x.typ.IsFloat() && digits >= 0:
		e,
			err := b.expand(n,
			fmt.Sprintf("CASE WHEN isfinite(trunc(_1 * %[1]s) / %[1]s) THEN trunc(_1 * %[1]s) / %[1]s ELSE _1 END",
				powerOf10(digits)), x)
		if err != nil {
			return nil, err
		}
		return b.convert(n, e, x.typ, false)
	case x.typ.IsFloat():
		e,
			err := b.expand(n,
			fmt.Sprintf("CASE WHEN isfinite(trunc(_1 / %[1]s) * %[1]s) THEN trunc(_1 / %[1]s) * %[1]s ELSE _1 END",
				powerOf10(-digits)), x)
		if err != nil {
			return nil, err
		}
		return b.convert(n, e, x.typ, false)
	case digits >= 0:
		return b.rounded(n, gpu.OpTrunc, x, digits)
	}
	t := x.typ
	if t.Kind == gpu.Decimal {
		t = gpu.DecimalOf(int(t.Precision), 0)
	}
	if x, err = b.expand(n, "trunc(_1)", x); err != nil {
		return nil, err
	}
	body := "_1 - _1"
	if -digits <= 38 {
		body = fmt.Sprintf("_1 - _1 %% 1e%d::HUGEINT", -digits)
		if t.Kind == gpu.Decimal && -digits < gpu.MaxPrecision {
			body = fmt.Sprintf("_1 - _1 %% 1e%d::DECIMAL(%d,0)", -digits, -digits+1)
		}
	}
	e, err := b.expand(n, body, typed(x))
	if err != nil {
		return nil, err
	}
	return b.convert(n, e, t, false)
}

func powerOf10(digits int) string {
	if digits > 308 {
		return "'inf'::DOUBLE"
	}
	return fmt.Sprintf("1e%d", digits)
}

// bindFinite binds isfinite, isinf and isnan of numbers, and isfinite and isinf of dates.
func bindFinite(number, moment string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x := a[0]
		if x.literal == nullLiteral {
			return newConstant(gpu.Null(gpu.Of(gpu.Bool))), nil
		}
		if moment != "" && (x.typ.Kind == gpu.Date || x.typ.Kind == gpu.Timestamp) {
			return b.expand(n, moment, x)
		}
		args, err := b.arguments(n, "f", a)
		if err != nil {
			return nil, err
		}
		return b.expand(n, number, args...)
	}
}

// bindTypeof binds typeof, a constant. Its argument is never evaluated.
func bindTypeof(b *binder, n *syntax.Call, _ []*Expr) (*Expr, error) {
	b.lazy++
	x, err := b.bindAny(n.Args[0])
	b.lazy--
	if err != nil {
		return nil, err
	}
	name := x.typ.String()
	switch {
	case x.isInterval():
		name = "INTERVAL"
	case x.literal == nullLiteral:
		name = `"NULL"`
	case x.typ == gpu.TimestampOf(gpu.Microsecond, true):
		name = "TIMESTAMP WITH TIME ZONE"
	}
	return newConstant(gpu.StringScalar(name)), nil
}

// require returns x where a condition is true or null, and fails where it is false.
func (b *binder) require(n syntax.Node, condition, x *Expr, message string) (*Expr, error) {
	holds, err := b.op(n, Expr{op: gpu.OpAssert, typ: gpu.Of(gpu.Bool), value: gpu.StringScalar(message),
		nullable: condition.nullable, fails: true}, condition)
	if err != nil {
		return nil, err
	}
	null := newConstant(gpu.Null(x.typ))
	null.typ, null.value.Type = x.typ, x.typ
	return b.choose(n, holds, x, null)
}

func constantFloat(v float64) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
		return newConstant(gpu.FloatScalar(gpu.Of(gpu.Float64), v)), nil
	}
}

var piSQL = fmt.Sprintf("%.20f::DOUBLE", math.Pi)

// opTry is TRY(x). It is not an instruction: the operations of x run under a mask that is false, so
// that they return nulls instead of failing.
const opTry gpu.Op = 253

// failsWith reports whether e fails only where x fails: it compares x with operands that cannot
// fail.
func failsWith(e, x *Expr) bool {
	return !e.fails || e.Equal(x) || e.op == gpu.OpEq && failsWith(e.args[0], x) && failsWith(e.args[1], x)
}

func bindTry(b *binder, n *syntax.Call, _ []*Expr) (*Expr, error) {
	b.lazy++
	x, err := b.bind(n.Args[0])
	b.lazy--
	if err != nil {
		return nil, err
	}
	if x.Asserts() {
		return nil, b.errorf(n, "TRY of error or assert is not possible; take it out of TRY")
	}
	if x.literal != notLiteral || !x.fails {
		return x, nil
	}
	unsafe := false
	x.walk(func(e *Expr) {
		for i, a := range e.args {
			// Where its condition fails, require chooses a null. Where x of nullif(x, y) fails, x
			// is chosen.
			unsafe = unsafe || a.fails && e.seesNulls() &&
				(e.op != gpu.OpSelect || i == 0 && a.op != gpu.OpAssert && !failsWith(a, e.args[2]))
		}
	})
	if unsafe {
		return nil,
			b.errorf(n, "TRY of a condition that may fail is not possible, as the null would not reach the result; "+
				"put TRY around the operation itself")
	}
	e := Expr{op: opTry, typ: x.typ, nullable: true, rng: x.rng}
	if x.isJSON() {
		e.annotation = gpu.JSON
	}
	e.args, e.column = []*Expr{x}, -1
	if b.scope.Fold == nil || len(x.Columns()) > 0 {
		return &e, nil
	}
	p, _, err := Compile(gpu.NewSchema(), &e)
	if err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	v, err := b.scope.Fold(p)
	if err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	v[0].Type = x.typ
	c := newConstant(v[0])
	c.typ, c.annotation = x.typ, e.annotation
	return c, nil
}
