package expr

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// opInterval is an interval: an expression over its months, days and microseconds, each a BIGINT.
// It exists only while a tree is bound: no column can hold one, and no device sees it.
const opInterval gpu.Op = 254

func (e *Expr) isInterval() bool { return e.op == opInterval }

// ConstantInterval returns the parts of a tree that is an INTERVAL of constants; ok is false for other trees.
func ConstantInterval(n syntax.Node, s *Scope) (months, days, micros int64, ok bool, err error) {
	b := &binder{scope: s, src: n.Source()}
	e, err := b.bindAny(n)
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
	return &Expr{op: opInterval, args: []*Expr{months, days, micros}, column: -1, nullable: months.nullable ||
		days.nullable || micros.nullable,
		fails: months.fails || days.fails || micros.fails}
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
	switch {
	case compares && both:
		for _, e := range []**Expr{&x, &y} {
			if *e, err = b.expand(n, "(_1::HUGEINT * 30 + _2) * 86400000000 + _3", (*e).args...); err != nil {
				return nil, err
			}
		}
		return b.compare(n, op, n.L, x, n.R, y)
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
	return eachPart(func(i int) (*Expr, error) { return b.scaled(n, x.args[i], -1) })
}

// addInterval returns x, a date or a time, plus an interval. The result is a TIMESTAMP, even for a
// DATE; a TIMESTAMP_NS stays one. Days have 24 hours, because times have no zones.
func (b *binder) addInterval(n, nx syntax.Node, x, v *Expr) (*Expr, error) {
	if x.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.TimestampOf(gpu.Microsecond, false))), nil
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
	x, err := b.convert(nx, x, t, false)
	if err != nil {
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
	// A null in one part makes the result null.
	return b.expand(n, "CASE WHEN _1 IS NOT NULL AND _2 IS NOT NULL AND _3 IS NOT NULL THEN "+body+" END", x.args...)
}

// intervalAsText returns an interval as DuckDB writes it: 1 year 2 months 3 days 04:05:06.5.
func (b *binder) intervalAsText(n syntax.Node, x *Expr) (*Expr, error) {
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

// intervalText parses an interval: numbers and units, or one number before the given unit.
func (b *binder) intervalText(n syntax.Node, text, given string) (*Expr, error) {
	fields := strings.Fields(text)
	if given != "" {
		if len(fields) != 1 {
			return nil, b.errorf(n, "found '%s', expected one number before %s", syntax.Cut(text, 40), given)
		}
		fields = append(fields, given)
	}
	if len(fields) == 0 {
		return nil, b.errorf(n, "found an empty interval, expected one such as '3 days'")
	}
	sums := [3]*big.Rat{new(big.Rat), new(big.Rat), new(big.Rat)}
	for len(fields) > 0 {
		unit := ""
		if len(fields) > 1 {
			unit = fields[1]
		}
		u, ok := syntax.IntervalUnit(unit)
		value, isNumber := new(big.Rat).SetString(fields[0])
		switch {
		case len(fields[0]) > 20 || !isNumber || strings.ContainsAny(fields[0], "eEpPxX/_"):
			if clock, ok := clockMicros(fields[0]); ok {
				sums[2].Add(sums[2], new(big.Rat).SetInt64(clock))
				fields = fields[1:]
				continue
			}
			return nil, b.errorf(n, "found %q in an interval, expected a number and a unit, as in '3 days'",
				syntax.Cut(fields[0], 40))
		case given != "" && !splits(u):
			value.SetInt(new(big.Int).Quo(value.Num(), value.Denom()))
		case given != "":
			// In microseconds, rounded as a DOUBLE.
			f, _ := value.Float64()
			value.SetFrac(big.NewInt(int64(math.RoundToEven(f*float64(syntax.IntervalUnits[u][2])))),
				big.NewInt(syntax.IntervalUnits[u][2]))
		case !ok:
			return nil, b.errorf(n, "found %q in an interval, expected a unit: year, month, day, hour …",
				syntax.Cut(unit, 40))
		}
		for i, one := range syntax.IntervalUnits[u] {
			v := new(big.Rat).Mul(value, new(big.Rat).SetInt64(one))
			if i == 1 && !v.IsInt() { // the fraction of a day becomes hours
				whole := new(big.Rat).SetInt(new(big.Int).Quo(v.Num(), v.Denom()))
				rest := new(big.Rat).Sub(v, whole)
				sums[2].Add(sums[2], rest.Mul(rest, new(big.Rat).SetInt64(microsPerDay)))
				v = whole
			}
			sums[i].Add(sums[i], v)
		}
		fields = fields[2:]
	}
	return eachPart(func(i int) (*Expr, error) {
		switch v := sums[i]; {
		case !v.IsInt():
			return nil, b.errorf(n, "the interval '%s' is no whole number of months or microseconds",
				syntax.Cut(text, 40))
		case !v.Num().IsInt64():
			return nil, b.errorf(n, "the interval is too long")
		default:
			return bigintOf(v.Num().Int64()), nil
		}
	})
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
