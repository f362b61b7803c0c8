package expr

import (
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

const (
	microsPerSecond = 1_000_000
	microsPerDay    = 86400 * microsPerSecond
)

// datePartResult returns the type of a field of a date.
func datePartResult(p gpu.DatePart) string {
	if p == gpu.PartEpoch || p == gpu.PartJulian {
		return dbl
	}
	return bigint
}

func partName(p gpu.DatePart) string {
	return strings.ToLower(syntax.DateParts[slices.IndexFunc(syntax.DateParts,
		func(d syntax.DatePart) bool { return d.Part == p })].Name)
}

func dateHint(x *Expr) string {
	if x.typ.Kind == gpu.String {
		return "; write DATE '…' or cast it, as in x::DATE"
	}
	return ""
}

// dateArithmetic binds + and - if an operand is a date or a time. Otherwise done is false.
func (b *binder) dateArithmetic(n *syntax.Binary, x, y *Expr) (e *Expr, done bool, err error) {
	temporal := func(e *Expr) bool {
		return e.typ.Kind == gpu.Date || e.typ.Kind == gpu.Timestamp || e.typ.Kind == gpu.Time
	}
	if !temporal(x) && !temporal(y) {
		return nil, false, nil
	}
	op := operators[n.Op].op
	if op == gpu.OpAdd && !temporal(x) {
		x, y = y, x
	}
	if x.literal == nullLiteral && y.typ.Kind == gpu.Date {
		x = newConstant(gpu.Null(y.typ))
	}
	days := func(e *Expr) bool {
		return e.literal == nullLiteral || e.typ.IsInteger() && typeRange(gpu.Of(gpu.Int32)).contains(typeRange(e.typ))
	}
	switch {
	case (op == gpu.OpAdd || op == gpu.OpSub) && x.typ.Kind == gpu.Date && days(y):
		if y, err = b.convert(n, y, gpu.Of(gpu.Int32), false); err != nil {
			return nil, true, err
		}
		r := arithmeticRange(op, x.rng, y.rng)
		e = &Expr{op: op, typ: x.typ, nullable: x.nullable || y.nullable, rng: r.within(x.typ)}
		if !finiteRange(x.typ).contains(r) || !finiteRange(x.typ).contains(x.rng) {
			e.rng, e.fails = typeRange(x.typ), true // infinity stays infinite
		}
		e, err = b.op(n, *e, x, y)
		return e, true, err
	case op == gpu.OpSub && x.typ.Kind == gpu.Date && (y.typ.Kind == gpu.Date || y.literal == stringLiteral):
		if y, err = b.convert(n, y, x.typ, false); err != nil {
			return nil, true, err
		}
		number := func(e *Expr) (*Expr, error) {
			return b.op(n, Expr{op: gpu.OpCast, typ: gpu.Of(gpu.Int64), nullable: e.nullable, rng: e.rng}, e)
		}
		if x, err = number(x); err != nil {
			return nil, true, err
		}
		if y, err = number(y); err != nil {
			return nil, true, err
		}
		e, err = b.integerArithmetic(n, gpu.OpSub, x, y)
		return e, true, err
	case op == gpu.OpAdd && x.typ.Kind == gpu.Date && y.typ.Kind == gpu.Time:
		t := gpu.TimestampOf(gpu.Microsecond, false)
		if x, err = b.convert(n, x, t, false); err != nil {
			return nil, true, err
		}
		if y, err = b.convert(n, y, gpu.TimeOf(gpu.Microsecond), false); err != nil {
			return nil, true, err
		}
		if y, err = b.op(n, Expr{op: gpu.OpCast, typ: gpu.Of(gpu.Int64), nullable: y.nullable, rng: y.rng},
			y); err != nil {
			return nil, true, err
		}
		e, err = b.op(n, Expr{op: gpu.OpAdd, typ: t, nullable: x.nullable || y.nullable, rng: typeRange(t),
			fails: true}, x, y)
		return e, true, err
	}
	if moment := func(e *Expr) bool { return e.typ.Kind == gpu.Date || e.typ.Kind == gpu.Timestamp }; op == gpu.OpSub &&
		(moment(x) || x.literal == stringLiteral) && (moment(y) || y.literal == stringLiteral) {
		e, err = b.elapsed(n, x, y)
		return e, true, err
	}
	return nil, true, b.errorf(n, "no operator %s for %v and %v", n.Op, x.typ, y.typ)
}

// datePart resolves the name of a date part, which is a constant string.
func (b *binder) datePart(n syntax.Node, e *Expr) (gpu.DatePart, error) {
	v, ok := e.Constant()
	if !ok || e.literal != stringLiteral {
		return 0, b.errorf(n, "the part of a date must be a constant such as 'year', found %s",
			syntax.Cut(n.String(), 60))
	}
	p := syntax.DatePartNamed(v.Str)
	if p == nil {
		var names []string
		for _, p := range syntax.DateParts {
			names = append(names, strings.ToLower(p.Name))
		}
		return 0, b.errorf(n, "unknown part of a date %q%s", syntax.Cut(v.Str, 60), syntax.Suggest(v.Str, names))
	}
	return p.Part, nil
}

func (b *binder) extract(n syntax.Node, p gpu.DatePart, nx syntax.Node, x *Expr) (*Expr, error) {
	switch {
	case x.isInterval():
		return b.extractInterval(n, p, x)
	case x.literal == nullLiteral:
		return nil, b.errorf(nx, "the type of NULL is unknown here; cast it, as in NULL::DATE")
	case x.typ.Kind == gpu.Time:
		if p > gpu.PartHour && p != gpu.PartEpoch {
			return nil, b.errorf(n, "a TIME has no %s", partName(p))
		}
	case x.typ.Kind != gpu.Date && x.typ.Kind != gpu.Timestamp:
		return nil, b.errorf(nx, "expected a date or timestamp, found %v%s", x.typ, dateHint(x))
	}
	t := gpu.Of(gpu.Int64)
	if p == gpu.PartEpoch || p == gpu.PartJulian {
		t = gpu.Of(gpu.Float64)
	}
	// The fields of an infinite date are null.
	nullable := x.nullable || x.typ.Infinity() != 0
	return b.op(n, Expr{op: gpu.OpExtract, typ: t, n: int(p), nullable: nullable, rng: partRange(p, x)}, x)
}

// partRange bounds a date part, so that the ranges of arithmetic on it are narrow.
func partRange(p gpu.DatePart, x *Expr) *Range {
	switch p {
	case gpu.PartSecond, gpu.PartMinute:
		return rangeOf(0, 59)
	case gpu.PartHour:
		return rangeOf(0, 24)
	case gpu.PartDay, gpu.PartMonth, gpu.PartQuarter, gpu.PartWeek, gpu.PartDayOfWeek, gpu.PartISODayOfWeek,
		gpu.PartEra:
		return rangeOf(0, 53)
	case gpu.PartDayOfYear:
		return rangeOf(1, 366)
	case gpu.PartYear:
		if x.typ.Kind == gpu.Date && x.rng != nil {
			// A year has at least 365 days, so this is a bound on both sides of 1970.
			return rangeOf(yearFloor(x.rng.Lo.Int64()), yearFloor(x.rng.Hi.Int64())+1)
		}
	case gpu.PartEpoch, gpu.PartJulian:
		return nil
	}
	return typeRange(gpu.Of(gpu.Int64))
}

// yearFloor returns the year of a day, or the year before.
func yearFloor(days int64) int64 {
	y := 1970 + days*400/146097
	if days < 0 {
		y--
	}
	return y - 1
}

func (b *binder) dateTrunc(n syntax.Node, p gpu.DatePart, nx syntax.Node, x *Expr) (*Expr, error) {
	switch p {
	case gpu.PartDayOfWeek, gpu.PartISODayOfWeek, gpu.PartDayOfYear, gpu.PartJulian:
		p = gpu.PartDay
	case gpu.PartYearWeek:
		p = gpu.PartWeek
	case gpu.PartEpoch:
		p = gpu.PartSecond
	}
	if p > gpu.PartMillennium && p != gpu.PartISOYear {
		return nil, b.errorf(n, "cannot truncate to %s", partName(p))
	}
	if x.typ.Kind != gpu.Date && x.typ.Kind != gpu.Timestamp {
		return nil, b.errorf(nx, "expected a date or timestamp, found %v%s", x.typ, dateHint(x))
	}
	t := gpu.TimestampOf(gpu.Microsecond, x.typ.UTC)
	x, err := b.convert(nx, x, t, false)
	if err != nil {
		return nil, err
	}
	// The longest unit is a millennium.
	r, fails := shifted(x, rangeOf(-1001*366*microsPerDay, 0))
	if p == gpu.PartISOYear {
		// The first week contains January 4.
		e,
			err := b.expand(n,
			"CASE WHEN isfinite(_1) THEN date_trunc('week', make_date(isoyear(_1), 1, 4)) ELSE _1 END", x)
		if err != nil {
			return nil, err
		}
		return b.convert(n, e, t, false)
	}
	return b.op(n, Expr{op: gpu.OpDateTrunc, typ: t, n: int(p), nullable: x.nullable, rng: r, fails: fails}, x)
}

// shifted returns the range of timestamp x plus a value in range by, and whether the sum may fail:
// for infinities, and if it is out of range.
func shifted(x *Expr, by *Range) (r *Range, fails bool) {
	finite := finiteRange(x.typ)
	if r = arithmeticRange(gpu.OpAdd, x.rng, by); finite.contains(x.rng) && finite.contains(r) {
		return r, false
	}
	return typeRange(x.typ), true
}
