package expr

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// Cast converts an expression to exactly type t, including its storage. It returns an expression
// that already has this type unchanged, and folds constants.
func Cast(e *Expr, t gpu.Type, fold Fold) (*Expr, error) { return newCast(fold, e, t, false) }

// stored returns t in the storage that the values of x need after the cast: a decimal of more than
// 18 digits is stored in 64 bits if their range allows it.
func stored(t gpu.Type, x *Expr) gpu.Type {
	if t.Kind != gpu.Decimal {
		return t
	}
	t.Wide = t.Precision > gpu.MaxNarrowPrecision
	narrowSource := !x.typ.Wide && (x.typ.IsInteger() && x.typ.Kind != gpu.Uint64 || x.typ.Kind == gpu.Decimal)
	if t.Wide && narrowSource && castRange(x, t).fitsInt64() {
		t.Wide = false
	}
	return t
}

// castRange returns the range of x's values as values of t. It may exceed t, since it ignores the
// check of the cast. For dates it is the range of the finite dates.
func castRange(x *Expr, t gpu.Type) *Range {
	scale := func(t gpu.Type) (int, bool) {
		return int(t.Scale), t.IsInteger() || t.Kind == gpu.Decimal
	}
	from, ok1 := scale(x.typ)
	to, ok2 := scale(t)
	switch {
	case ok1 && ok2:
		return x.rng.rescaled(from, to)
	case x.typ.Kind == gpu.Date && t.Kind == gpu.Timestamp && x.rng != nil:
		perDay := gpu.Int128From(t.Unit.PerDay())
		return combine(x.rng.clip(finiteRange(x.typ)), &Range{perDay, perDay}, gpu.Int128.Mul)
	}
	return nil
}

// typed returns x as a value of its type, no longer as a literal, whose type depends on the other
// operand.
func typed(x *Expr) *Expr {
	if x.literal == notLiteral {
		return x
	}
	e := *x
	e.literal = notLiteral
	return &e
}

func newCast(fold Fold, x *Expr, t gpu.Type, try bool) (*Expr, error) {
	if x.literal == nullLiteral {
		return newConstant(gpu.Null(t)), nil
	}
	if x.literal == errorLiteral {
		return failureOf(x.args[0], t, notLiteral), nil
	}
	if x.typ == t {
		return typed(x), nil
	}
	if x.isJSON() && t.Kind != gpu.String {
		return castJSON(fold, x, t, try)
	}
	if x.typ.IsEnum() || t.IsEnum() {
		return castEnum(fold, x, t, try)
	}
	if x.typ.Kind == gpu.String && t.Kind == gpu.Interval {
		return intervalOfText(fold, x, try)
	}
	if x.typ.Kind == gpu.String && t.IsNested() {
		return parseNested(fold, x, t, try)
	}
	if x.typ.IsNested() && (t.Kind == gpu.String || t.IsNested() && !x.typ.SameSQL(t)) {
		return castNested(fold, x, t, try)
	}
	if !castable(x.typ, t) {
		return nil, fmt.Errorf("cannot cast %v to %v", x.typ, t)
	}
	if x.typ.Kind == gpu.Timestamp && x.typ.Unit == gpu.Nanosecond &&
		(t.Kind == gpu.Date || t.Kind == gpu.Time && t.Unit < gpu.Nanosecond) {
		// DuckDB rounds to microseconds first, which may move the value to the next day.
		var err error
		if x, err = newCast(fold, x, gpu.TimestampOf(gpu.Microsecond, x.typ.UTC), try); err != nil {
			return nil, err
		}
	}
	if v := x.value; fold != nil && x.op == gpu.OpConst && v.Valid && x.typ.IsInteger() && t.IsInteger() &&
		typeRange(t).contains(&Range{v.Int, v.Int}) { // without a program: most literals are cast
		v.Type = t
		c := newConstant(v)
		c.hidden = x.hidden
		return c, nil
	}
	e := Expr{op: gpu.OpCast, typ: t, nullable: x.nullable, rng: castRange(x, t)}
	e.fails = castFails(x, t)
	if try && e.fails {
		e.n, e.fails, e.nullable = 1, false, true
	}
	e.rng = e.rng.within(t)
	if x.typ.Kind == gpu.Date && !finiteRange(x.typ).contains(x.rng) {
		e.rng = typeRange(t) // including infinities
	}
	return newOp(fold, e, x)
}

func lazyCast(x *Expr, t gpu.Type) *Expr {
	return &Expr{op: gpu.OpCast, typ: t, nullable: x.nullable, rng: typeRange(t), fails: true, args: []*Expr{x},
		column: -1}
}

// castable reports whether there is any cast between two types.
func castable(from, to gpu.Type) bool {
	basic := func(t gpu.Type) bool { return t.IsNumeric() || t.Kind == gpu.Bool }
	switch {
	case from.IsEnum():
		return castable(gpu.Of(gpu.String), to)
	case to.IsEnum():
		return from.Kind == gpu.String
	case from.IsNested():
		return from.SameSQL(to) || to.Kind == gpu.String || to.Kind == from.Kind
	case to.IsNested():
		return from.Kind == gpu.String
	case from.SameSQL(to), from.Kind == gpu.String, to.Kind == gpu.String:
		return true
	case basic(from) && basic(to):
		return true
	case from.Kind == gpu.Date:
		return to.Kind == gpu.Timestamp
	case from.Kind == gpu.Timestamp:
		return to.Kind == gpu.Date || to.Kind == gpu.Timestamp || to.Kind == gpu.Time
	case from.Kind == gpu.Time:
		return to.Kind == gpu.Time
	}
	return false
}

// castFails reports whether the cast of a value of x to t may fail.
func castFails(x *Expr, t gpu.Type) bool {
	from := x.typ
	switch {
	case t.Kind == gpu.String:
		return from.Kind == gpu.Binary
	case t.Kind == gpu.Float32 && from.Kind == gpu.Float64:
		return true
	case t.Kind == gpu.Bool, t.IsFloat(), t.Kind == gpu.Binary:
		return from.Kind == gpu.String
	case from.Kind == gpu.Bool:
		return t.Kind == gpu.Decimal && t.Precision == t.Scale
	case t.IsInteger(), t.Kind == gpu.Decimal:
		r := castRange(x, t)
		fits := typeRange(t).contains(r)
		if t.Kind == gpu.Decimal && !t.Wide {
			fits = fits && r.fitsInt64()
		}
		return !fits
	case from.Kind == gpu.Timestamp && t.Kind == gpu.Date, from.Kind == gpu.Time && t.Kind == gpu.Time:
		return false
	case from.Kind == gpu.Date:
		return !finiteRange(t).contains(castRange(x, t))
	}
	return true
}

// sameStorage widens the narrower of two decimals of one SQL type.
func sameStorage(fold Fold, x, y *Expr) (*Expr, *Expr, error) {
	var err error
	switch {
	case x.typ == y.typ:
	case x.typ.Wide:
		y, err = newCast(fold, y, x.typ, false)
	default:
		x, err = newCast(fold, x, y.typ, false)
	}
	return x, y, err
}
