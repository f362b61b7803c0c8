package expr

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
)

// opInterval is an interval apart: an expression over its months, days and microseconds, each a BIGINT.
// It exists only while a tree is bound; no device sees it. Columns and the operands of other operations are intervals
// in one piece, the values of gpu.Interval.
const opInterval gpu.Op = 254

func (e *Expr) isInterval() bool { return e.typ.Kind == gpu.Interval }

// ConstantInterval returns the parts of a tree that is an INTERVAL of constants; ok is false for other trees.
func ConstantInterval(n syntax.Node, s *Scope) (months, days, micros int64, ok bool, err error) {
	b := &binder{scope: s, src: n.Source()}
	e, err := b.bindAny(n)
	if err == nil && e.isInterval() {
		e, err = b.apart(n, e)
	}
	if err != nil || !e.isInterval() {
		return 0, 0, 0, false, err
	}
	var parts [3]int64
	for i, part := range e.args {
		v, constant := part.Constant()
		if !constant || !v.Valid {
			return 0, 0, 0, false, b.errorf(n, "the interval must be a constant")
		}
		parts[i] = v.Int.Int64()
	}
	return parts[0], parts[1], parts[2], true, nil
}

func newInterval(months, days, micros *Expr) *Expr {
	return &Expr{op: opInterval, typ: gpu.Of(gpu.Interval), args: []*Expr{months, days, micros}, column: -1,
		nullable: months.nullable || days.nullable || micros.nullable,
		fails:    months.fails || days.fails || micros.fails}
}

// apart returns an interval as opInterval.
func (b *binder) apart(n syntax.Node, x *Expr) (*Expr, error) {
	if x.op == opInterval {
		return x, nil
	}
	if c, ok := x.Constant(); ok {
		if !c.Valid {
			null := newConstant(gpu.Null(gpu.Of(gpu.Int64)))
			return newInterval(null, null, null), nil
		}
		v := gpu.PartsOfInterval(c.Str)
		return newInterval(bigintOf(int64(v.Months)), bigintOf(int64(v.Days)), bigintOf(v.Micros)), nil
	}
	return eachPart(func(i int) (*Expr, error) {
		part, err := b.intervalField(n, x, gpu.IntervalMonths+i)
		if err != nil {
			return nil, err
		}
		return b.convert(n, part, gpu.Of(gpu.Int64), false)
	})
}

// intervalField returns a field of an interval in one piece, by its position.
func (b *binder) intervalField(n syntax.Node, x *Expr, field int) (*Expr, error) {
	e, err := b.element(n, x, position(int64(field)), x.typ.Children()[field-1].Type)
	if err == nil && e.op == gpu.OpElement {
		e.nullable = x.nullable
	}
	return e, err
}

// lengthOf returns the length of an interval, by which intervals are compared. It returns other values unchanged.
func (b *binder) lengthOf(n syntax.Node, x *Expr) (*Expr, error) {
	switch {
	case !x.isInterval():
		return x, nil
	case x.op == opInterval:
		return b.expand(n, intervalLength, x.args...)
	}
	return b.intervalField(n, x, gpu.IntervalLength)
}

// LengthOf is the length of an interval, in microseconds, by which intervals are compared, grouped and joined. It is a
// HUGEINT.
func LengthOf(x *Expr) *Expr {
	return made(func(b *binder, n syntax.Node) (*Expr, error) { return b.lengthOf(n, x) })
}

// PartsOf is a BIGINT that tells intervals of one length apart: their months and days. It is less for fewer months.
func PartsOf(x *Expr) *Expr {
	return made(func(b *binder, n syntax.Node) (*Expr, error) {
		x, err := b.apart(n, x)
		if err != nil {
			return nil, err
		}
		return b.expand(n, "_1 * 4294967296 + _2 + 2147483648", x.args...)
	})
}

// IntervalOf is the interval of a length, LengthOf, and its parts, PartsOf.
func IntervalOf(length, parts *Expr) *Expr {
	return made(func(b *binder, n syntax.Node) (*Expr, error) {
		values := []*Expr{length, parts} // _1 and _2
		for _, body := range []string{
			"(_2 % 4294967296 + 4294967296) % 4294967296", // _3
			"(_2 - _3) // 4294967296",                     // _4: months
			"_3 - 2147483648",                             // _5: days
			"(_1 - (_4::HUGEINT * 30 + _5) * 86400000000)::BIGINT",
		} {
			e, err := b.expand(n, body, values...)
			if err != nil {
				return nil, err
			}
			values = append(values, e)
		}
		return b.whole(n, newInterval(values[3], values[4], values[5]))
	})
}

// made returns what a function binds without folding, so that nothing fails.
func made(f func(*binder, syntax.Node) (*Expr, error)) *Expr {
	e, err := f(&binder{scope: &Scope{Schema: gpu.NewSchema()}}, &syntax.WordLiteral{Word: "NULL"})
	if err != nil {
		panic(fmt.Sprintf("expr: an expression of intervals: %v", err))
	}
	return e
}

// intervalLength is the length of an interval of _1 months, _2 days and _3 microseconds.
const intervalLength = "(_1::HUGEINT * 30 + _2) * 86400000000 + _3"

// whole returns a value in one piece, as columns and operations have it.
func (b *binder) whole(n syntax.Node, x *Expr) (*Expr, error) {
	if x.op != opInterval {
		return x, nil
	}
	fields := make([]*Expr, 4)
	var err error
	if fields[0], err = b.lengthOf(n, x); err != nil {
		return nil, err
	}
	for i, part := range x.args {
		if fields[1+i], err = b.convert(n, part, x.typ.Children()[1+i].Type, false); err != nil {
			return nil, err
		}
	}
	e, err := b.assemble(n, x.typ, fields)
	if err != nil || !x.nullable {
		return e, err
	}
	known, err := b.expand(n, "_1 IS NOT NULL AND _2 IS NOT NULL AND _3 IS NOT NULL", x.args...)
	if err != nil {
		return nil, err
	}
	return b.choose(n, known, e, newConstant(gpu.Null(x.typ)))
}

func bigintOf(v int64) *Expr { return newConstant(gpu.IntScalar(gpu.Of(gpu.Int64), v)) }

// is reports whether an expression is an integer constant with value v.
func (e *Expr) is(v int64) bool {
	c, ok := e.Constant()
	return ok && c.Valid && c.Int == gpu.Int128From(v)
}

// scaled returns x times k.
func (b *binder) scaled(n syntax.Node, x *Expr, k int64) (*Expr, error) {
	switch {
	case k == 1:
		return x, nil
	case k == 0 || x.is(0):
		return bigintOf(0), nil
	}
	if c, ok := x.Constant(); ok && c.Valid {
		r, over := c.Int.Mul(gpu.Int128From(k))
		if over || !r.IsInt64() {
			return nil, b.errorf(n, "the interval is too long")
		}
		return bigintOf(r.Int64()), nil
	}
	return b.integerArithmetic(n, gpu.OpMul, x, bigintOf(k))
}

// eachPart makes an interval of the three parts that f returns.
func eachPart(f func(part int) (*Expr, error)) (*Expr, error) {
	var out [3]*Expr
	for i := range out {
		var err error
		if out[i], err = f(i); err != nil {
			return nil, err
		}
	}
	return newInterval(out[0], out[1], out[2]), nil
}

// bigint converts an integer to a BIGINT. It converts a constant even without folding.
func (b *binder) bigint(n syntax.Node, x *Expr) (*Expr, error) {
	if c, ok := x.Constant(); ok && c.Valid && c.Int.IsInt64() {
		return bigintOf(c.Int.Int64()), nil
	}
	return b.convert(n, x, gpu.Of(gpu.Int64), false)
}

// unitsOf returns x units, where x is an integer.
func (b *binder) unitsOf(n syntax.Node, x *Expr, unit string) (*Expr, error) {
	if x.literal != nullLiteral && !x.typ.IsInteger() {
		return nil, b.errorf(n, "the length of an interval must be an integer, found %v", x.typ)
	}
	x, err := b.bigint(n, x)
	if err != nil {
		return nil, err
	}
	return eachPart(func(i int) (*Expr, error) { return b.scaled(n, x, syntax.IntervalUnits[unit][i]) })
}

// elapsed returns the interval between two moments, in days and microseconds.
func (b *binder) elapsed(n syntax.Node, x, y *Expr) (*Expr, error) {
	micros, err := b.expand(n, "epoch_us(_1::TIMESTAMP) - epoch_us(_2::TIMESTAMP)", x, y)
	if err != nil {
		return nil, err
	}
	days, err := b.integerArithmetic(n, gpu.OpQuo, micros, bigintOf(microsPerDay))
	if err != nil {
		return nil, err
	}
	micros, err = b.integerArithmetic(n, gpu.OpMod, micros, bigintOf(microsPerDay))
	if err != nil {
		return nil, err
	}
	return newInterval(bigintOf(0), days, micros), nil
}

// intervalOperator binds an operator with an interval as an operand.
func (b *binder) intervalOperator(n *syntax.Binary, x, y *Expr) (*Expr, error) {
	var err error
	op := operators[n.Op].op
	compares := op.Info().Opposite != gpu.OpConst
	for i, e := range []**Expr{&x, &y} {
		// A string next to an interval is an interval, unless the operator requires a date there.
		if other := []*Expr{y, x}[i]; (*e).literal == stringLiteral && other.isInterval() &&
			(compares || n.Op == "-" && i == 1) {
			if *e, err = b.intervalText(n, (*e).value.Str, ""); err != nil {
				return nil, err
			}
		}
	}
	both := x.isInterval() && y.isInterval()
	if compares {
		return b.compare(n, op, n.L, x, n.R, y)
	}
	for _, e := range []**Expr{&x, &y} {
		if (*e).isInterval() {
			if *e, err = b.apart(n, *e); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case (n.Op == "+" || n.Op == "-") && both:
		return eachPart(func(i int) (*Expr, error) {
			if y.args[i].is(0) {
				return x.args[i], nil
			}
			return b.integerArithmetic(n, op, x.args[i], y.args[i])
		})
	case n.Op == "*" && !both:
		if y.isInterval() {
			x, y = y, x
		}
		if y.typ.IsFloat() || y.typ.Kind == gpu.Decimal {
			return b.timesFraction(n, x, y)
		}
		if y.literal != nullLiteral && !y.typ.IsInteger() {
			return nil, b.errorf(n, "no operator * for an INTERVAL and %v", y.typ)
		}
		if y, err = b.bigint(n, y); err != nil {
			return nil, err
		}
		none := x.args[0].is(0) && x.args[1].is(0) && x.args[2].is(0)
		return eachPart(func(i int) (*Expr, error) {
			if c, ok := x.args[i].Constant(); ok && c.Valid && !none { // if none, the parts are null where y is
				return b.scaled(n, y, c.Int.Int64())
			}
			return b.integerArithmetic(n, gpu.OpMul, x.args[i], y)
		})
	case n.Op == "/" && !y.isInterval() && (y.typ.IsNumeric() || y.literal == nullLiteral):
		return b.timesFraction(n, x, y)
	case n.Op == "+" && y.isInterval(), n.Op == "-" && y.isInterval() && !both:
		if n.Op == "-" {
			if y, err = b.oppositeInterval(n, y); err != nil {
				return nil, err
			}
		}
		return b.addInterval(n, n.L, x, y)
	case n.Op == "+":
		return b.addInterval(n, n.R, y, x)
	}
	other := x
	if x.isInterval() {
		other = y
	}
	if other.isInterval() {
		return nil, b.errorf(n, "no operator %s for two INTERVALs", n.Op)
	}
	return nil, b.errorf(n, "no operator %s for an INTERVAL and %v", n.Op, other.typ)
}

// timesFraction multiplies an interval by a number with a fraction, or divides it, as DuckDB and
// PostgreSQL do. The fraction of a month becomes days, 30 to a month, and the fraction of a day
// becomes microseconds. Both fractions are rounded to six digits.
func (b *binder) timesFraction(n *syntax.Binary, x, y *Expr) (*Expr, error) {
	by := newConstant(gpu.Null(gpu.Of(gpu.Float64)))
	var err error
	if y.literal != nullLiteral {
		if by, err = b.convert(n, y, gpu.Of(gpu.Float64), false); err != nil {
			return nil, err
		}
	}
	if n.Op == "/" {
		differs, err := b.expand(n, "_1 <> 0", by)
		if err != nil {
			return nil, err
		}
		if by, err = b.require(n, differs, by, "division by zero"); err != nil {
			return nil, err
		}
	}
	values := append([]*Expr{}, x.args...) // _1 to _3
	for _, body := range []string{
		"_1::DOUBLE " + n.Op + " _4",                                // _5: months
		"_2::DOUBLE " + n.Op + " _4",                                // _6: days
		"((_5 - trunc(_5)) * 30 * 1e6)::BIGINT / 1e6",               // _7: days of the fraction of a month
		"((_6 - trunc(_6) + _7 - trunc(_7)) * 86400e6)::BIGINT",     // _8: microseconds of the fractions of days
		"trunc(_5)::BIGINT",                                         // _9
		"trunc(_6)::BIGINT + trunc(_7)::BIGINT + _8 // 86400000000", // _10
		"(_3::DOUBLE " + n.Op + " _4 + _8 % 86400000000)::BIGINT",   // _11
	} {
		if len(values) == 3 {
			values = append(values, by)
		}
		e, err := b.expand(n, body, values...)
		if err != nil {
			return nil, err
		}
		values = append(values, e)
	}
	return newInterval(values[8], values[9], values[10]), nil
}

func (b *binder) oppositeInterval(n syntax.Node, x *Expr) (*Expr, error) {
	x, err := b.apart(n, x)
	if err != nil {
		return nil, err
	}
	return eachPart(func(i int) (*Expr, error) { return b.scaled(n, x.args[i], -1) })
}

// addInterval returns x, a date or a time, plus an interval. The result is a TIMESTAMP, even for a
// DATE; a TIMESTAMP_NS stays one. Days have 24 hours, because times have no zones.
func (b *binder) addInterval(n, nx syntax.Node, x, v *Expr) (*Expr, error) {
	if x.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.TimestampOf(gpu.Microsecond, false))), nil
	}
	v, err := b.apart(n, v)
	if err != nil {
		return nil, err
	}
	t := gpu.TimestampOf(gpu.Microsecond, x.typ.UTC)
	switch x.typ.Kind {
	case gpu.Timestamp:
		if x.typ.Unit == gpu.Nanosecond {
			return b.addToNanoseconds(n, nx, x, v)
		}
	case gpu.Date:
	case gpu.Time:
		t = gpu.TimeOf(gpu.Microsecond)
	default:
		return nil, b.errorf(n, "an INTERVAL can be added to a date or timestamp, found %v%s", x.typ, dateHint(x))
	}
	if x, err = b.convert(nx, x, t, false); err != nil {
		return nil, err
	}
	months, days, micros := v.args[0], v.args[1], v.args[2]
	if t.Kind == gpu.Time {
		// Months and days do not change a time of day. But null months or days make it null, and
		// any months or days turn 24:00:00 into 00:00:00.
		if micros, err = b.integerArithmetic(n, gpu.OpMod, micros, bigintOf(microsPerDay)); err != nil {
			return nil, err
		}
		for _, part := range []*Expr{months, days} {
			if c, ok := part.Constant(); ok && c.Valid {
				continue
			}
			if micros, err = b.expand(n, "_1 + _2 % 1", micros, part); err != nil {
				return nil, err
			}
		}
		months, days = bigintOf(0), bigintOf(0)
	}
	if days, err = b.scaled(n, days, microsPerDay); err != nil {
		return nil, err
	}
	switch {
	case days.is(0):
	case micros.is(0):
		micros = days
	default:
		if micros, err = b.integerArithmetic(n, gpu.OpAdd, days, micros); err != nil {
			return nil, err
		}
	}
	add := func(op gpu.Op, count *Expr) error {
		r, fails := typeRange(t), true
		if t.Kind == gpu.Timestamp {
			by := count.rng
			if op == gpu.OpAddMonths { // each has 28 to 31 days
				by = arithmeticRange(gpu.OpMul, by, rangeOf(28*microsPerDay, 31*microsPerDay))
			}
			r, fails = shifted(x, by)
		}
		x, err = b.op(n, Expr{op: op, typ: t, nullable: x.nullable || count.nullable, rng: r, fails: fails}, x, count)
		return err
	}
	if !months.is(0) {
		if err := add(gpu.OpAddMonths, months); err != nil {
			return nil, err
		}
	}
	if !micros.is(0) || t.Kind == gpu.Time {
		if err := add(gpu.OpAdd, micros); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// addToNanoseconds returns x, a TIMESTAMP_NS, plus an interval. An interval has whole microseconds.
// So it is added to the whole microseconds of x, and then the remaining nanoseconds of x are added.
func (b *binder) addToNanoseconds(n, nx syntax.Node, x, v *Expr) (*Expr, error) {
	stored, err := b.stored(n, x)
	if err != nil {
		return nil, err
	}
	rest, err := b.expand(n, "coalesce((_1 % 1000 + 1000) % 1000, 0)", stored) // 0 for an infinity
	if err != nil {
		return nil, err
	}
	add := func(to, nanos *Expr) (*Expr, error) {
		return b.op(n, Expr{op: gpu.OpAdd, typ: x.typ, nullable: to.nullable, rng: typeRange(x.typ), fails: true}, to,
			nanos)
	}
	negative, err := b.scaled(n, rest, -1)
	if err != nil {
		return nil, err
	}
	whole, err := add(x, negative)
	if err != nil {
		return nil, err
	}
	if whole, err = b.convert(nx, whole, gpu.TimestampOf(gpu.Microsecond, x.typ.UTC), false); err != nil {
		return nil, err
	}
	sum, err := b.addInterval(n, nx, whole, v)
	if err != nil {
		return nil, err
	}
	if sum, err = b.convert(n, sum, x.typ, false); err != nil {
		return nil, err
	}
	return add(sum, rest)
}

// intervalParts are the parts of an interval of _1 months, _2 days and _3 microseconds.
var intervalParts = map[gpu.DatePart]string{
	gpu.PartMillennium: "_1 // 12000", gpu.PartCentury: "_1 // 1200", gpu.PartDecade: "_1 // 120",
	gpu.PartYear:    "_1 // 12",
	gpu.PartQuarter: "_1 % 12 // 3 + 1", gpu.PartMonth: "_1 % 12", gpu.PartDay: "_2",
	gpu.PartHour: "_3 // 3600000000", gpu.PartMinute: "_3 % 3600000000 // 60000000",
	gpu.PartSecond:      "_3 % 60000000 // 1000000",
	gpu.PartMillisecond: "_3 % 60000000 // 1000", gpu.PartMicrosecond: "_3 % 60000000",
	// A year has 365.25 days here, the months after it 30 days.
	gpu.PartEpoch: "((_1 // 12 * 31557600 + _1 % 12 * 2592000 + _2 * 86400)::HUGEINT * 1000000 + _3)::DOUBLE / 1e6",
}

func (b *binder) extractInterval(n syntax.Node, p gpu.DatePart, x *Expr) (*Expr, error) {
	body, ok := intervalParts[p]
	if !ok {
		return nil, b.errorf(n, "an INTERVAL has no %s", partName(p))
	}
	x, err := b.apart(n, x)
	if err != nil {
		return nil, err
	}
	// A null in one part makes the result null.
	return b.expand(n, "CASE WHEN _1 IS NOT NULL AND _2 IS NOT NULL AND _3 IS NOT NULL THEN "+body+" END", x.args...)
}

// intervalAsText returns an interval as DuckDB writes it: 1 year 2 months 3 days 04:05:06.5.
func (b *binder) intervalAsText(n syntax.Node, x *Expr) (*Expr, error) {
	x, err := b.apart(n, x)
	if err != nil {
		return nil, err
	}
	part := func(value, name string) string {
		return fmt.Sprintf("CASE WHEN %[1]s = 0 THEN '' ELSE ' ' || %[1]s || CASE WHEN abs(%[1]s) = 1 THEN ' %[2]s' "+
			"ELSE ' %[2]ss' END END", value, name)
	}
	pad := func(value string) string {
		return fmt.Sprintf("CASE WHEN %[1]s < 10 THEN '0' || %[1]s ELSE %[1]s::VARCHAR END", value)
	}
	date := part("(_1 // 12)", "year") + " || " + part("(_1 % 12)", "month") + " || " + part("_2", "day")
	clock := "CASE WHEN _1 < 0 THEN ' -' ELSE ' ' END || " + pad("(abs(_1) // 3600000000)") + " || ':' || " +
		pad("(abs(_1) // 60000000 % 60)") + " || ':' || " + pad("(abs(_1) // 1000000 % 60)") +
		" || CASE WHEN _1 % 1000000 = 0 THEN '' ELSE '.' || rtrim(substring((1000000 + abs(_1) % 1000000)::VARCHAR, " +
		"2), '0') END"
	d, err := b.expand(n, date, x.args...)
	if err != nil {
		return nil, err
	}
	c, err := b.expand(n, clock, x.args[2])
	if err != nil {
		return nil, err
	}
	return b.expand(n, "substring(_1 || CASE WHEN _3 = 0 AND _1 <> '' THEN '' ELSE _2 END, 2)", d, c, x.args[2])
}

// intervalLiteral binds INTERVAL value [unit].
func (b *binder) intervalLiteral(n *syntax.Interval) (*Expr, error) {
	if s, ok := n.Value.(*syntax.StringLiteral); ok {
		return b.intervalText(n.Value, s.Text, n.Unit)
	}
	x, err := b.bind(n.Value)
	if err != nil {
		return nil, err
	}
	if x.literal == nullLiteral || !x.typ.IsFloat() && x.typ.Kind != gpu.Decimal {
		return b.unitsOf(n.Value, x, n.Unit)
	}
	if splits(n.Unit) {
		e, err := b.expand(n.Value, fmt.Sprintf("(_1::DOUBLE * %d)::BIGINT", syntax.IntervalUnits[n.Unit][2]), x)
		if err != nil {
			return nil, err
		}
		return newInterval(bigintOf(0), bigintOf(0), e), nil
	}
	if x, err = b.expand(n.Value, "trunc(_1::DOUBLE)::BIGINT", x); err != nil {
		return nil, err
	}
	return b.unitsOf(n.Value, x, n.Unit)
}

// splits reports whether the number before a unit may have a fraction. With other units the number
// is truncated.
func splits(unit string) bool { return unit == "SECOND" || unit == "MILLISECOND" }

// intervalText binds the text of an interval: numbers and units, or one number before the given unit.
func (b *binder) intervalText(n syntax.Node, text, given string) (*Expr, error) {
	v, err := parseInterval(text, given)
	if err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	return newInterval(bigintOf(v[0]), bigintOf(v[1]), bigintOf(v[2])), nil
}

// parseInterval returns the months, days and microseconds of a text: clocks, and numbers with units. A number without a
// unit has the given one, or is one of seconds if it is all of the text.
func parseInterval(text, given string) (v [3]int64, err error) {
	if given != "" {
		if len(strings.Fields(text)) != 1 {
			return v, fmt.Errorf("found '%s', expected one number before %s", syntax.Cut(text, 40), given)
		}
		text += " " + given
	}
	rest := strings.TrimLeft(text, intervalSpace)
	if after, ok := strings.CutPrefix(rest, "@"); ok {
		rest = strings.TrimLeft(after, intervalSpace)
	}
	if rest == "" {
		return v, fmt.Errorf("found an empty interval, expected one such as '3 days'")
	}
	sums := [3]*big.Rat{new(big.Rat), new(big.Rat), new(big.Rat)}
	for first := true; rest != ""; first = false {
		if !first && strings.EqualFold(strings.TrimRight(rest, intervalSpace), "ago") {
			for _, sum := range sums {
				sum.Neg(sum)
			}
			break
		}
		word, more := cutWhere(rest, func(c byte) bool { return strings.IndexByte("-.:", c) < 0 && !isDecimal(c) })
		if strings.Contains(word, ":") {
			clock, ok := clockMicros(word)
			if !ok {
				return v, fmt.Errorf("found %q in an interval, expected a clock such as 12:30:00", syntax.Cut(word, 40))
			}
			sums[2].Add(sums[2], new(big.Rat).SetInt64(clock))
			rest = strings.TrimLeft(more, intervalSpace)
			continue
		}
		value, ok := intervalNumber(word)
		if !ok {
			return v, fmt.Errorf("found %q in an interval, expected a number and a unit, as in '3 days'",
				syntax.Cut(strings.Fields(rest)[0], 40))
		}
		unit, more := cutWhere(strings.TrimLeft(more, intervalSpace), func(c byte) bool {
			return strings.IndexByte(intervalSpace, c) >= 0 || isDecimal(c) || c == '-'
		})
		rest = strings.TrimLeft(more, intervalSpace)
		u, ok := syntax.IntervalUnit(unit)
		switch {
		case unit == "" && rest == "" && first:
			u = "SECOND"
		case !ok:
			return v, fmt.Errorf("found %q in an interval, expected a unit: year, month, day, hour …",
				syntax.Cut(unit, 40))
		case given != "" && !splits(u):
			value.SetInt(new(big.Int).Quo(value.Num(), value.Denom()))
		case given != "":
			// In microseconds, rounded as a DOUBLE.
			f, _ := value.Float64()
			value.SetFrac(big.NewInt(int64(math.RoundToEven(f*float64(syntax.IntervalUnits[u][2])))),
				big.NewInt(syntax.IntervalUnits[u][2]))
		}
		// The fraction of a month becomes days, and the fraction of a day hours. As in DuckDB, years are rounded to
		// months and quarters to days.
		carry, last := new(big.Rat), 2
		switch months := syntax.IntervalUnits[u][0]; {
		case months > 0 && months%12 == 0:
			last = 0
		case u == "QUARTER":
			last = 1
		}
		for i, one := range syntax.IntervalUnits[u] {
			part := new(big.Rat).Add(carry, new(big.Rat).Mul(value, new(big.Rat).SetInt64(one)))
			whole := new(big.Rat).SetInt(new(big.Int).Quo(part.Num(), part.Denom()))
			if i == last {
				whole.SetString(part.FloatString(0)) // rounded
				part.Set(whole)
			}
			sums[i].Add(sums[i], whole)
			carry.Sub(part, whole)
			carry.Mul(carry, new(big.Rat).SetInt64([...]int64{gpu.DaysPerMonth, microsPerDay, 0}[i]))
		}
	}
	for i, sum := range sums {
		if !sum.Num().IsInt64() || i < 2 && int64(int32(sum.Num().Int64())) != sum.Num().Int64() {
			return v, fmt.Errorf("the interval is too long")
		}
		v[i] = sum.Num().Int64()
	}
	return v, nil
}

// intervalSpace is the space between the words of an interval.
const intervalSpace = " \t\n\v\f\r"

// cutWhere cuts a text in front of the first byte for which f is true.
func cutWhere(s string, f func(c byte) bool) (before, after string) {
	for i := range len(s) {
		if f(s[i]) {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// intervalNumber parses [-]digits[.[digits]] of at most 20 bytes.
func intervalNumber(s string) (*big.Rat, bool) {
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	value, ok := new(big.Rat).SetString(s)
	if whole == "" || strings.Trim(whole+fraction, "0123456789") != "" || len(s) > 20 || !ok {
		return nil, false
	}
	return value, true
}

// clockMicros parses [-]h…:m[m][:s[s][.fraction]]. It drops digits beyond microseconds,
// like the text of a timestamp.
func clockMicros(s string) (int64, bool) {
	sign := int64(1)
	if strings.HasPrefix(s, "-") {
		sign, s = -1, s[1:]
	}
	s, fraction, _ := strings.Cut(s, ".")
	fields := strings.Split(s, ":")
	if len(fields) < 2 || len(fields) > 3 || len(fields) == 2 && fraction != "" {
		return 0, false
	}
	var seconds int64
	for i, field := range fields {
		digits := 2
		if i == 0 {
			digits = 9
		}
		v, err := strconv.ParseUint(field, 10, 32)
		if err != nil || len(field) > digits || i > 0 && v > 59 {
			return 0, false
		}
		seconds = seconds*60 + int64(v)
	}
	if len(fields) == 2 {
		seconds *= 60
	}
	micros := seconds * microsPerSecond
	for i, unit := 0, int64(microsPerSecond/10); i < len(fraction); i, unit = i+1, unit/10 {
		if !isDecimal(fraction[i]) {
			return 0, false
		}
		micros += int64(fraction[i]-'0') * unit
	}
	return sign * micros, true
}

// intervalPattern matches the text of an interval as it is printed, with hours, minutes and seconds as units too. The
// groups of time are the hours, minutes and seconds with units; then the sign, hours, minutes, seconds and fraction of
// a clock.
var intervalPattern = func() (p struct{ all, date, time string }) {
	const date = `^\s*(?:(-?[0-9]{1,10})\s*years?)?\s*(?:(-?[0-9]{1,10})\s*(?:months?|mons?))?\s*` +
		`(?:(-?[0-9]{1,10})\s*days?)?`
	const time = `\s*(?:(-?[0-9]{1,10})\s*hours?)?\s*(?:(-?[0-9]{1,10})\s*minutes?)?\s*(?:(-?[0-9]{1,10})\s*seconds?)?` +
		`\s*(?:(-?)([0-9]{1,10}):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]*))?)?\s*$`
	ungrouped := strings.NewReplacer("(-", "(?:-", "([", "(?:[")
	p.date, p.time = "'"+date+"'", "'"+ungrouped.Replace(date)+time+"'"
	p.all = "'" + ungrouped.Replace(date+time) + "'"
	return p
}()

// intervalOfText casts text to an interval. Constants may have all forms of parseInterval, columns that of
// intervalPattern.
func intervalOfText(fold Fold, x *Expr, try bool) (*Expr, error) {
	if c, ok := x.Constant(); ok {
		v, err := parseInterval(c.Str, "")
		switch {
		case !c.Valid, err != nil && try:
			return newConstant(gpu.Null(gpu.Of(gpu.Interval))), nil
		case err != nil:
			return nil, err
		}
		return newConstant(gpu.IntervalScalar(gpu.IntervalParts{Months: int32(v[0]), Days: int32(v[1]),
			Micros: v[2]})), nil
	}
	b := &binder{scope: &Scope{Schema: gpu.NewSchema(), Fold: fold}}
	n := &syntax.WordLiteral{Word: "NULL"}
	body := "CASE WHEN regexp_matches(_1, " + intervalPattern.all + ") AND regexp_matches(_1, '[0-9]') THEN _1 END"
	if !try {
		body = strings.Replace(body, "END", "ELSE error('cannot read ''' || _1 || ''' as an INTERVAL') END", 1)
	}
	x, err := b.expand(n, body, x)
	if err != nil {
		return nil, err
	}
	group := func(of string, k int) string { return fmt.Sprintf("regexp_extract(_1, %s, %d)", of, k) }
	number := func(of string, k int) string { return "coalesce(TRY_CAST(" + group(of, k) + " AS HUGEINT), 0)" }
	time := func(hours int) string {
		return number(intervalPattern.time, hours) + " * 3600000000 + " + number(intervalPattern.time, hours+1) +
			" * 60000000 + " + number(intervalPattern.time, hours+2) + " * 1000000"
	}
	parts := [3]string{number(intervalPattern.date, 1) + " * 12 + " + number(intervalPattern.date, 2),
		number(intervalPattern.date, 3), time(1) + " + CASE WHEN " + group(intervalPattern.time, 4) +
			" = '-' THEN -1 ELSE 1 END * (" + time(5) + " + substring(" + group(intervalPattern.time, 8) +
			" || '000000', 1, 6)::INTEGER)"}
	cast := "CAST"
	if try {
		cast = "TRY_CAST"
	}
	e, err := eachPart(func(i int) (*Expr, error) {
		to := [3]string{"INTEGER", "INTEGER", "BIGINT"}[i]
		return b.expand(n, fmt.Sprintf("CASE WHEN _1 IS NOT NULL THEN %s(%s AS %s)::BIGINT END", cast, parts[i], to), x)
	})
	if err != nil {
		return nil, err
	}
	return b.whole(n, e)
}

// intervalAverage replaces the average of intervals by sums of their parts and a count, and returns the tree; nil for
// other arguments. The rest of the months becomes days, and that of the days microseconds. call returns the node that
// replaces one of the aggregates.
func (b *binder) intervalAverage(n *syntax.Call, f aggregate,
	call func(*syntax.Call) (syntax.Node, error)) (syntax.Node, error) {
	if f.kind != gpu.Avg && f.kind != gpu.Sum || f.sorted != window.Aggregate || n.Star || len(n.Args) != 1 ||
		aggregateIn(n.Args[0]) != nil {
		return nil, nil
	}
	b.lazy++ // the argument is not evaluated on rows that FILTER excludes
	defer func() { b.lazy-- }()
	x, err := b.bindAny(n.Args[0])
	switch {
	case err != nil || !x.isInterval():
		return nil, nil // what is wrong is found again
	case f.kind == gpu.Sum:
		return nil, b.errorf(n, "there is no %s of intervals; write avg(x) * count(x), or sum(epoch_us(x))", n.Name)
	case n.Distinct:
		return nil, b.errorf(n, "DISTINCT is not possible in %s of intervals", n.Name)
	}
	if x, err = b.whole(n.Args[0], x); err == nil {
		x, err = b.apart(n.Args[0], x)
	}
	if err != nil {
		return nil, err
	}
	var names []any
	for i, name := range []string{"count", "sum", "sum", "sum"} {
		arg := &syntax.Resolved{Base: syntax.At(n.Args[0]), Value: x.args[max(i-1, 0)]}
		column, err := call(&syntax.Call{Base: syntax.At(n, arg), Name: name, Args: []syntax.Node{arg},
			Filter: n.Filter, Over: n.Over})
		if err != nil {
			return nil, err
		}
		names = append(names, column.String())
	}
	names[0] = fmt.Sprintf("nullif(%v, 0)", names[0])
	names = append(names, fmt.Sprintf("(%[2]s %% %[1]s * 30)", names...)) // days of the rest of the months
	return syntax.Parse(fmt.Sprintf("to_months((%[2]s // %[1]s)::BIGINT) + "+
		"to_days((%[3]s // %[1]s + %[5]s // %[1]s)::BIGINT) + "+
		"to_microseconds(((%[4]s + (%[3]s %% %[1]s + %[5]s %% %[1]s) * 86400000000) // %[1]s)::BIGINT)", names...))
}
