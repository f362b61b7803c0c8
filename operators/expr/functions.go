package expr

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

func (b *binder) call(n *syntax.Call) (*Expr, error) {
	if n.Over != nil {
		return nil, b.misplacedWindow(n)
	}
	if _, ok := aggregates[n.Name]; ok {
		return nil,
			b.errorf(n, "the aggregate %s is not allowed here; aggregates belong into the output columns of a group-by",
				n.Name)
	}
	if _, ok := rankings[n.Name]; ok {
		return nil, b.misplacedWindow(n)
	}
	if isGrouping(n) {
		return b.grouping(n)
	}
	f, ok := functions[n.Name]
	if !ok {
		return nil, b.unknownFunction(n)
	}
	switch {
	case n.Star:
		return nil, b.errorf(n, "%s(*) is not possible: found *, expected arguments", n.Name)
	case n.Distinct:
		return nil, b.errorf(n, "DISTINCT is possible in aggregates only, and %s is not one", n.Name)
	case n.Filter != nil:
		return nil, b.errorf(n, "FILTER is possible after aggregates only, and %s is not one", n.Name)
	case len(n.Order) > 0 || n.IgnoreNulls:
		return nil,
			b.errorf(n,
				"ORDER BY and IGNORE NULLS are possible in aggregates and window functions only, and %s is neither",
				n.Name)
	}
	if lo, hi := f.arity(); len(n.Args) < lo || hi >= 0 && len(n.Args) > hi {
		return nil, b.errorf(n, "%s takes %s, found %d", n.Name, arity(lo, hi), len(n.Args))
	}
	if f.unbound {
		return f.bind(b, n, nil)
	}
	args := make([]*Expr, len(n.Args))
	for i, a := range n.Args {
		lazy := i > 0 && f.lazy
		if lazy {
			b.lazy++
		}
		e, err := b.bindAny(a)
		if err == nil && !f.intervals {
			e, err = b.whole(a, e)
		}
		if lazy {
			b.lazy--
		}
		if err != nil {
			return nil, err
		}
		args[i] = e
	}
	return f.bind(b, n, args)
}

func arity(lo, hi int) string {
	count := func(n int) string {
		switch n {
		case 0:
			return "no arguments"
		case 1:
			return "1 argument"
		}
		return fmt.Sprint(n, " arguments")
	}
	switch {
	case hi < 0:
		return "at least " + count(lo)
	case lo == hi:
		return count(lo)
	}
	return fmt.Sprint(lo, " to ", count(hi))
}

func (b *binder) binary(n *syntax.Binary) (*Expr, error) {
	x, err := b.bindAny(n.L)
	if err != nil {
		return nil, err
	}
	y, err := b.bindAny(n.R)
	if err != nil {
		return nil, err
	}
	if x.isInterval() || y.isInterval() {
		return b.intervalOperator(n, x, y)
	}
	return operators[n.Op].bind(b, n, x, y)
}

// numeric returns an error unless an argument is a number.
func (b *binder) numeric(n *syntax.Call, i int, e *Expr) (*Expr, error) {
	if e.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.Of(gpu.Int32))), nil
	}
	if e.literal == stringLiteral {
		return b.convert(n.Args[i], e, gpu.Of(gpu.Float64), false)
	}
	if !e.typ.IsNumeric() {
		return nil, b.errorf(n.Args[i], "%s needs a number, found %v", n.Name, e.typ)
	}
	return e, nil
}

func bindAbs(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x, err := b.numeric(n, 0, a[0])
	if err != nil || x.typ.IsUnsigned() {
		return x, err
	}
	return b.opposite(n, gpu.OpAbs, x)
}

func bindSignum(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x, err := b.numeric(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	return b.op(n, Expr{op: gpu.OpSign, typ: gpu.Of(gpu.Int8), nullable: x.nullable, rng: rangeOf(-1, 1)}, x)
}

// bindRound binds round. Integers and floats keep their type; the scale of decimals becomes lower.
func bindRound(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x, err := b.numeric(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	if x.typ.IsUnsigned() {
		// DuckDB rounds these in a signed type.
		t := gpu.Of(gpu.Int64)
		if x.typ.Kind == gpu.Uint64 {
			t = hugeint
		}
		if x, err = b.convert(n, x, t, false); err != nil {
			return nil, err
		}
	}
	digits := 0
	if len(a) == 2 {
		constant := false
		if digits, constant = b.digits(n, a[1]); !constant {
			return b.byColumn(n, x, a[1])
		}
	}
	if !x.typ.IsFloat() && digits >= int(x.typ.Scale) {
		return typed(x), nil
	}
	return b.rounded(n, gpu.OpRound, x, digits)
}

// rounded rounds a number. A decimal result has as many digits after the point as remain.
func (b *binder) rounded(n syntax.Node, op gpu.Op, x *Expr, digits int) (*Expr, error) {
	e := Expr{op: op, typ: x.typ, n: digits, nullable: x.nullable}
	if !x.typ.IsFloat() {
		if digits < 0 && x.typ.Kind == gpu.Decimal {
			precision := int(x.typ.Precision)
			if x.typ.Scale == 0 && -digits <= precision { // DECIMAL(2,0) holds 99 but not 100
				precision = min(precision+1, gpu.MaxPrecision)
			}
			e.typ = gpu.DecimalOf(precision, 0)
		}
		e.typ.Scale = uint8(max(digits, 0))
		e.rng = x.rng.rescaled(int(x.typ.Scale), int(e.typ.Scale))
		if digits < 0 {
			e.rng = nil
		}
		e.fails = !typeRange(e.typ).contains(e.rng)
		e.rng = e.rng.within(e.typ)
	}
	return b.op(n, e, x)
}

// bindTrunc binds trunc, which returns integers unchanged.
func bindTrunc(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if a[0].typ.IsInteger() {
		return typed(a[0]), nil
	}
	return whole(gpu.OpTrunc)(b, n, a)
}

// whole rounds to whole numbers: floor, ceil, trunc.
func whole(op gpu.Op) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x, err := b.numeric(n, 0, a[0])
		if err != nil {
			return nil, err
		}
		if x.typ.IsInteger() {
			// DuckDB's floor of an integer is a DOUBLE.
			return b.convert(n, x, gpu.Of(gpu.Float64), false)
		}
		if x.typ.Kind == gpu.Decimal && x.typ.Scale == 0 {
			return x, nil
		}
		return b.rounded(n, op, x, 0)
	}
}

func (b *binder) power(n syntax.Node, x, y *Expr) (*Expr, error) {
	for _, e := range []**Expr{&x, &y} {
		if (*e).literal != nullLiteral && !(*e).typ.IsNumeric() {
			return nil, b.errorf(n, "a power needs numbers, found %v", (*e).typ)
		}
		var err error
		if *e, err = b.convert(n, *e, gpu.Of(gpu.Float64), false); err != nil {
			return nil, err
		}
	}
	return b.op(n, Expr{op: gpu.OpPow, typ: x.typ, nullable: x.nullable || y.nullable}, x, y)
}

func bindCoalesce(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if err := b.unifyLazily(n.Args, a, "the arguments of "+n.Name); err != nil {
		return nil, err
	}
	e := a[len(a)-1]
	for i := len(a) - 2; i >= 0; i-- {
		there, err := b.isNull(n, a[i], true)
		if err != nil {
			return nil, err
		}
		nullable := e.nullable && a[i].nullable
		if e, err = b.choose(n, there, a[i], e); err != nil {
			return nil, err
		}
		if e.op == gpu.OpSelect {
			e.nullable = nullable
		}
	}
	return e, nil
}

func bindNullIf(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	equal, err := b.compare(n, gpu.OpEq, n.Args[0], a[0], n.Args[1], a[1])
	if err != nil {
		return nil, err
	}
	x := a[0]
	if x.literal == nullLiteral {
		return x, nil
	}
	if x, err = newCast(b.scope.Fold, x, x.typ, false); err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	null := newConstant(gpu.Null(x.typ))
	null.typ, null.value.Type = x.typ, x.typ
	return b.choose(n, equal, null, x)
}

// extreme is greatest (OpGe) or least (OpLe). Nulls are ignored.
func extreme(op gpu.Op) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		if err := b.unify(n.Args, a, "the arguments of "+n.Name); err != nil {
			return nil, err
		}
		e := a[0]
		for i, x := range a[1:] {
			first, err := b.compare(n, op, n, e, n.Args[i+1], x)
			if err != nil {
				return nil, err
			}
			if x.nullable {
				none, err := b.isNull(n, x, false)
				if err != nil {
					return nil, err
				}
				first = newLogic(gpu.OpOr, []*Expr{first, none})
			}
			if e, err = b.choose(n, first, e, x); err != nil {
				return nil, err
			}
		}
		return e, nil
	}
}

func bindIf(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	cond, err := b.boolean(n.Args[0], a[0], "if")
	if err != nil {
		return nil, err
	}
	if err := b.unifyLazily(n.Args[1:], a[1:], "the branches of if"); err != nil {
		return nil, err
	}
	return b.choose(n, cond, a[1], a[2])
}

func bindDatePart(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if v, ok := a[0].Constant(); ok && a[0].literal == stringLiteral && zoneParts[strings.ToLower(v.Str)] {
		return b.extractZone(n.Args[1], v.Str, a[1])
	}
	p, err := b.datePart(n.Args[0], a[0])
	if err != nil {
		return nil, err
	}
	return b.extract(n, p, n.Args[1], a[1])
}

func bindDateTrunc(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	p, err := b.datePart(n.Args[0], a[0])
	if err != nil {
		return nil, err
	}
	return b.dateTrunc(n, p, n.Args[1], a[1])
}

// zoneParts are the parts of the offset from UTC.
var zoneParts = map[string]bool{"timezone": true, "timezone_hour": true, "timezone_minute": true}

// extractZone binds a part of the offset from UTC, which is 0, of x, whose node is n.
func (b *binder) extractZone(n syntax.Node, part string, x *Expr) (*Expr, error) {
	switch {
	case x.isInterval() || x.literal != notLiteral || x.typ.Kind != gpu.Time && x.typ.Kind != gpu.Timestamp:
		return nil, b.errorf(n, "%s is a part of a timestamp or a time, found %v%s", strings.ToLower(part),
			x.typ, dateHint(x))
	case x.typ.Kind == gpu.Time:
		return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN 0::BIGINT END", x)
	}
	return b.expand(n, "CASE WHEN isfinite(_1) THEN 0::BIGINT END", x)
}

// bindZonePart binds the function that is named as a part of the offset from UTC.
func bindZonePart(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	return b.extractZone(n.Args[0], n.Name, a[0])
}

// CheckForm checks the syntax of an expression, and that the functions that it calls exist. Values
// replace parts of the text. The error is a *syntax.Error.
func CheckForm(src string, values syntax.Values) error {
	n, err := values.Parse(src)
	if err != nil {
		return err
	}
	b := &binder{scope: &Scope{}, src: src}
	_, err = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		c, ok := n.(*syntax.Call)
		if !ok {
			return nil, nil
		}
		_, isAggregate := aggregates[c.Name]
		_, isRanking := rankings[c.Name]
		if functions[c.Name] == nil && !isAggregate && !isRanking && !isGrouping(c) {
			return nil, b.unknownFunction(c)
		}
		return nil, nil
	})
	return err
}
