package expr

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// stored returns a date or time as the stored BIGINT: days, or units of time. Infinities become
// null.
func (b *binder) stored(n syntax.Node, x *Expr) (*Expr, error) {
	e, err := b.op(n, Expr{op: gpu.OpCast, typ: gpu.Of(gpu.Int64), nullable: x.nullable, rng: x.rng}, x)
	if inf := x.typ.Infinity(); err == nil && inf != 0 && !finiteRange(x.typ).contains(x.rng) {
		e, err = b.expand(n, "nullif(nullif(_1, _2), -_2)", e, bigintOf(inf))
	}
	return e, err
}

// moment returns units since 1970-01-01 as a TIMESTAMP.
func (b *binder) moment(n syntax.Node, units *Expr, t gpu.Type) (*Expr, error) {
	zero := newConstant(gpu.IntScalar(t, 0))
	return b.op(n, Expr{op: gpu.OpAdd, typ: t, nullable: units.nullable, rng: typeRange(t), fails: true}, zero, units)
}

// floorDivision returns the SQL of x divided by a positive constant and rounded down.
func floorDivision(x string, by int64) string {
	if by == 1 {
		return x
	}
	return fmt.Sprintf("(%[1]s // %[2]d - CASE WHEN %[1]s %% %[2]d < 0 THEN 1 ELSE 0 END)", x, by)
}

// microseconds returns a date or time as microseconds, rounded down. Infinities become null.
func (b *binder) microseconds(n *syntax.Call, x *Expr) (*Expr, error) {
	switch {
	case x.literal == nullLiteral:
		return newConstant(gpu.Null(gpu.Of(gpu.Int64))), nil
	case x.isInterval():
		x, err := b.apart(n, x)
		if err != nil {
			return nil, err
		}
		return b.expand(n, "(_1 * 30 + _2) * 86400000000 + _3", x.args...)
	case (x.typ.Kind == gpu.Timestamp || x.typ.Kind == gpu.Time) && x.typ.Unit == gpu.Nanosecond:
		// A cast would round.
		x, err := b.stored(n, x)
		if err != nil {
			return nil, err
		}
		return b.expand(n, floorDivision("_1", 1000), x)
	case x.typ.Kind == gpu.Date, x.typ.Kind == gpu.Timestamp:
		t := gpu.TimestampOf(gpu.Microsecond, x.typ.UTC)
		x, err := b.convert(n.Args[0], x, t, false)
		if err != nil {
			return nil, err
		}
		return b.stored(n, x)
	case x.typ.Kind == gpu.Time:
		x, err := b.convert(n.Args[0], x, gpu.TimeOf(gpu.Microsecond), false)
		if err != nil {
			return nil, err
		}
		return b.stored(n, x)
	}
	return nil, b.errorf(n.Args[0], "%s needs a date, a time or an interval, found %v%s", n.Name, x.typ, dateHint(x))
}

func bindEpochMicros(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	return b.microseconds(n, a[0])
}

// bindEpochMillis binds epoch_ms: the milliseconds of a date or time, or the TIMESTAMP of an
// integer.
func bindEpochMillis(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if a[0].typ.IsInteger() {
		return b.fromUnits(n, a[0], gpu.TimestampOf(gpu.Microsecond, false), 1000)
	}
	x, err := b.microseconds(n, a[0])
	if err != nil {
		return nil, err
	}
	if a[0].typ.Kind == gpu.Time {
		return b.expand(n, "_1 // 1000", x)
	}
	return b.expand(n, "(_1 + CASE WHEN _1 < 0 THEN -500 ELSE 500 END) // 1000", x)
}

func bindEpochNanos(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if x := a[0]; !x.isInterval() && x.typ.Unit == gpu.Nanosecond {
		return b.stored(n, x)
	}
	x, err := b.microseconds(n, a[0])
	if err != nil {
		return nil, err
	}
	return b.expand(n, "_1 * 1000", x)
}

// bindNanosecond binds the nanoseconds of the minute.
func bindNanosecond(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x := a[0]
	micros, err := b.extract(n, gpu.PartMicrosecond, n.Args[0], x)
	if err != nil {
		return nil, err
	}
	if x.typ.Unit != gpu.Nanosecond {
		return b.expand(n, "_1 * 1000", micros)
	}
	units, err := b.stored(n, x)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "_1 * 1000 + (_2 % 1000 + 1000) % 1000", micros, units)
}

// fromUnits returns x as a timestamp of type t. A unit of x is times units of t.
func (b *binder) fromUnits(n *syntax.Call, x *Expr, t gpu.Type, times int64) (*Expr, error) {
	x, err := b.count(n, 0, x)
	if err == nil {
		x, err = b.scaled(n, x, times)
	}
	if err != nil {
		return nil, err
	}
	return b.moment(n, x, t)
}

func timestampOf(t gpu.Type, times int64) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) { return b.fromUnits(n, a[0], t, times) }
}

// bindToTimestamp binds to_timestamp of seconds, which may have a fraction.
func bindToTimestamp(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	args, err := b.arguments(n, "f", a)
	if err != nil {
		return nil, err
	}
	micros, err := b.expand(n, "(_1 * 1000000)::BIGINT", args...)
	if err != nil {
		return nil, err
	}
	return b.moment(n, micros, gpu.TimestampOf(gpu.Microsecond, true))
}

// microsPer are the microseconds of the units that all dates and times have.
var microsPer = map[gpu.DatePart]int64{
	gpu.PartMicrosecond: 1, gpu.PartMillisecond: 1000, gpu.PartSecond: microsPerSecond, gpu.PartEpoch: microsPerSecond,
	gpu.PartMinute: 60 * microsPerSecond, gpu.PartHour: 3600 * microsPerSecond,
}

// sameMoments converts two dates or times to a common type: TIMESTAMP, unless both are DATE or
// TIME.
func (b *binder) sameMoments(n *syntax.Call, x, y *Expr) (*Expr, *Expr, error) {
	if x.literal != notLiteral && y.literal == notLiteral {
		x, y = y, x
		y, x, err := b.sameMoments(n, x, y)
		return x, y, err
	}
	var t gpu.Type
	switch {
	case x.typ.Kind == gpu.Time && (y.typ.Kind == gpu.Time || y.literal != notLiteral):
		t = gpu.TimeOf(gpu.Microsecond)
	case x.typ.Kind == gpu.Date && (y.typ.Kind == gpu.Date || y.literal == stringLiteral || y.literal == nullLiteral):
		t = x.typ
	case (x.typ.Kind == gpu.Date || x.typ.Kind == gpu.Timestamp) &&
		(y.literal == stringLiteral || y.literal == nullLiteral || y.typ.Kind == gpu.Date ||
			y.typ.Kind == gpu.Timestamp):
		t = gpu.TimestampOf(gpu.Microsecond, x.typ.UTC || y.typ.UTC)
	default:
		return nil, nil, b.errorf(n, "%s needs two dates, timestamps or times, found %v and %v", n.Name, x.typ, y.typ)
	}
	for _, e := range []**Expr{&x, &y} {
		var err error
		if *e, err = b.convert(n, *e, t, false); err != nil {
			return nil, nil, err
		}
	}
	return x, y, nil
}

// bindDateDiff binds the number of boundaries of a part between two moments.
func bindDateDiff(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	p, err := b.datePart(n.Args[0], a[0])
	if err != nil {
		return nil, err
	}
	x, y, err := b.sameMoments(n, a[1], a[2])
	if err != nil {
		return nil, err
	}
	args := []*Expr{x, y, nil, nil}
	for i, e := range args[:2] {
		if args[2+i], err = b.stored(n, e); err != nil {
			return nil, err
		}
	}
	difference := func(part string) string {
		return strings.ReplaceAll(part, "#", "_2") + " - (" + strings.ReplaceAll(part, "#", "_1") + ")"
	}
	days := func(i int) string {
		number := fmt.Sprint("_", 3+i)
		if x.typ.Kind == gpu.Date {
			return number
		}
		return floorDivision(number, microsPerDay)
	}
	body := ""
	micros, short := microsPer[p]
	switch {
	case short && x.typ.Kind == gpu.Date:
		body = fmt.Sprintf("(_4 - _3) * %d", microsPerDay/micros)
	case short:
		body = floorDivision("_4", micros) + " - " + floorDivision("_3", micros)
	case x.typ.Kind == gpu.Time:
		return nil, b.errorf(n, "a TIME has no %s", partName(p))
	default:
		switch p {
		case gpu.PartDay, gpu.PartDayOfWeek, gpu.PartISODayOfWeek, gpu.PartDayOfYear, gpu.PartJulian:
			body = days(1) + " - " + days(0)
		case gpu.PartWeek, gpu.PartYearWeek:
			body = "(" + days(1) + " - " + days(0) + ") // 7" // complete weeks, as in DuckDB
		case gpu.PartMonth:
			body = difference("year(#) * 12 + month(#)")
		case gpu.PartQuarter:
			body = difference("year(#) * 4 + quarter(#)")
		case gpu.PartYear:
			body = difference("year(#)")
		case gpu.PartISOYear:
			body = difference("isoyear(#)")
		case gpu.PartDecade:
			body = difference("year(#) // 10")
		case gpu.PartCentury:
			body = difference("year(#) // 100")
		case gpu.PartMillennium:
			body = difference("year(#) // 1000")
		default:
			return nil, b.errorf(n.Args[0], "%s does not count the part %s", n.Name, partName(p))
		}
	}
	return b.expand(n, body, args...)
}

// wholeMonths is the number of complete months from _1 to _2, for _1 <= _2. A day past the
// end of the month counts as its last one.
const wholeMonths = `(year(_2) - year(_1)) * 12 + month(_2) - month(_1)
	- CASE WHEN least(day(_1), days_in_month(_2)) * 86400000000 + _3 > day(_2) * 86400000000 + _4 THEN 1 ELSE 0 END`

// clock is the microseconds since midnight.
const clock = "hour(_1) * 3600000000 + minute(_1) * 60000000 + microsecond(_1)"

const monthDays = `CASE WHEN month(_1) <> 2 THEN 31 - (month(_1) - 1) % 7 % 2
	WHEN year(_1) % 4 = 0 AND (year(_1) % 100 <> 0 OR year(_1) % 400 = 0) THEN 29 WHEN month(_1) = 2 THEN 28 END`

// bindDateSub binds the number of complete parts between two moments.
func bindDateSub(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	p, err := b.datePart(n.Args[0], a[0])
	if err != nil {
		return nil, err
	}
	x, y, err := b.sameMoments(n, a[1], a[2])
	if err != nil {
		return nil, err
	}
	t := x.typ
	if t.Kind == gpu.Date {
		t = gpu.TimestampOf(gpu.Microsecond, false)
	}
	args := []*Expr{x, y, nil, nil}
	for i := range args[:2] {
		if args[i], err = b.convert(n, args[i], t, false); err != nil {
			return nil, err
		}
		if args[2+i], err = b.stored(n, args[i]); err != nil {
			return nil, err
		}
	}
	if micros, ok := microsPer[p]; ok {
		return b.expand(n, fmt.Sprintf("(_4 - _3) // %d", micros), args...)
	}
	if t.Kind == gpu.Time {
		return nil, b.errorf(n, "a TIME has no %s", partName(p))
	}
	months := int64(0)
	switch p {
	case gpu.PartDay, gpu.PartDayOfWeek, gpu.PartISODayOfWeek, gpu.PartDayOfYear, gpu.PartJulian:
		return b.expand(n, fmt.Sprintf("(_4 - _3) // %d", int64(microsPerDay)), args...)
	case gpu.PartWeek, gpu.PartYearWeek:
		return b.expand(n, fmt.Sprintf("(_4 - _3) // %d", int64(7*microsPerDay)), args...)
	case gpu.PartMonth:
		months = 1
	case gpu.PartQuarter:
		months = 3
	case gpu.PartYear, gpu.PartISOYear:
		months = 12
	case gpu.PartDecade:
		months = 120
	case gpu.PartCentury:
		months = 1200
	case gpu.PartMillennium:
		months = 12000
	default:
		return nil, b.errorf(n.Args[0], "%s does not count the part %s", n.Name, partName(p))
	}
	lo, err := b.expand(n, "CASE WHEN _1 <= _2 THEN _1 ELSE _2 END", x, y)
	if err != nil {
		return nil, err
	}
	hi, err := b.expand(n, "CASE WHEN _1 <= _2 THEN _2 ELSE _1 END", x, y)
	if err != nil {
		return nil, err
	}
	from, err := b.expand(n, clock, lo)
	if err != nil {
		return nil, err
	}
	to, err := b.expand(n, clock, hi)
	if err != nil {
		return nil, err
	}
	count, err := b.expand(n, wholeMonths, lo, hi, from, to)
	if err != nil {
		return nil, err
	}
	return b.expand(n, fmt.Sprintf("CASE WHEN _1 <= _2 THEN _3 ELSE -_3 END // %d", months), x, y, count)
}

// bindTimeBucket binds the beginning of the bucket, of a constant width, that contains a date.
func bindTimeBucket(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	width, d := a[0], a[1]
	if d.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.TimestampOf(gpu.Microsecond, false))), nil
	}
	if !width.isInterval() || d.isInterval() || d.typ.Kind != gpu.Date && d.typ.Kind != gpu.Timestamp {
		return nil, b.errorf(n, "%s needs an INTERVAL and a date or timestamp%s", n.Name, dateHint(d))
	}
	width, err := b.apart(n.Args[0], width)
	if err != nil {
		return nil, err
	}
	var parts [3]int64
	for i, e := range width.args {
		c, ok := e.Constant()
		if !ok || !c.Valid {
			return nil, b.errorf(n.Args[0], "the width of a bucket must be a constant")
		}
		parts[i] = c.Int.Int64()
	}
	months, micros := parts[0], parts[1]*microsPerDay+parts[2]
	result := d.typ
	if result.Kind == gpu.Timestamp {
		result = gpu.TimestampOf(gpu.Microsecond, d.typ.UTC)
	}
	t := gpu.TimestampOf(gpu.Microsecond, d.typ.UTC)
	switch {
	case months != 0 && micros != 0:
		return nil, b.errorf(n.Args[0], "the width of a bucket is a number of months, or of days and less, not both")
	case months <= 0 && micros <= 0:
		return nil, b.errorf(n.Args[0], "the width of a bucket must be positive")
	}
	ts, err := b.convert(n.Args[1], d, t, false)
	if err != nil {
		return nil, err
	}
	// Buckets of months begin at 2000-01-01, other buckets at Monday, 2000-01-03.
	origin, offset := newConstant(gpu.IntScalar(t, 946684800*microsPerSecond)), (*Expr)(nil)
	if months == 0 {
		origin = newConstant(gpu.IntScalar(t, 946857600*microsPerSecond))
	}
	if len(a) == 3 {
		if a[2].isInterval() {
			offset = a[2]
			negative, err := b.oppositeInterval(n, offset)
			if err != nil {
				return nil, err
			}
			if ts, err = b.addInterval(n, n, ts, negative); err != nil {
				return nil, err
			}
		} else if origin, err = b.convert(n.Args[2], a[2], t, false); err != nil {
			return nil, err
		}
	}
	var e *Expr
	if months > 0 {
		count := "(year(_1) * 12 + month(_1) - year(_2) * 12 - month(_2))"
		e, err = b.expand(n, fmt.Sprintf("date_trunc('month', _2) + INTERVAL (%s * %d) MONTH",
			floorDivision(count, months), months), ts, origin)
	} else {
		var from, at *Expr
		if at, err = b.stored(n, ts); err != nil {
			return nil, err
		}
		if from, err = b.stored(n, origin); err != nil {
			return nil, err
		}
		var past *Expr // since the bucket began
		if past, err = b.expand(n, fmt.Sprintf("(_1 %% %[1]d - _2 %% %[1]d) %% %[1]d", micros), at, from); err != nil {
			return nil, err
		}
		if at, err = b.expand(n, fmt.Sprintf("_1 - CASE WHEN _2 < 0 THEN _2 + %d ELSE _2 END", micros), at,
			past); err != nil {
			return nil, err
		}
		e, err = b.moment(n, at, t)
	}
	if err == nil && ts.typ.Infinity() != 0 && !finiteRange(t).contains(ts.rng) {
		e, err = b.expand(n, "CASE WHEN _2 = 'infinity' OR _2 = '-infinity' THEN _2 ELSE _1 END", e, ts)
	}
	if err == nil && offset != nil {
		e, err = b.addInterval(n, n, e, offset)
	}
	if err != nil {
		return nil, err
	}
	return b.convert(n, e, result, false)
}

// bindAge binds the interval from the second moment to the first, in calendar months, days and the
// rest.
func bindAge(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	var err error
	if len(a) == 1 {
		a = append([]*Expr{newConstant(gpu.IntScalar(gpu.TimestampOf(gpu.Microsecond, false),
			b.scope.Now.UnixMicro()/microsPerDay*microsPerDay))}, a...)
	}
	x, y, err := b.sameMoments(n, a[0], a[1])
	if err != nil {
		return nil, err
	}
	t := gpu.TimestampOf(gpu.Microsecond, x.typ.UTC)
	args := []*Expr{x, y}
	for i := range args {
		if args[i].typ.Kind == gpu.Time {
			return nil, b.errorf(n, "%s needs two dates or timestamps", n.Name)
		}
		if args[i], err = b.convert(n, args[i], t, false); err != nil {
			return nil, err
		}
	}
	// From the earlier to the later one.
	for _, body := range []string{"CASE WHEN _1 <= _2 THEN _1 ELSE _2 END", "CASE WHEN _1 <= _2 THEN _2 ELSE _1 END",
		"CASE WHEN _1 >= _2 THEN 1 ELSE -1 END"} {
		e, err := b.expand(n, body, args[0], args[1])
		if err != nil {
			return nil, err
		}
		args = append(args, e)
	}
	lo, hi, sign := args[2], args[3], args[4]
	// The times of day. If that of the later moment is smaller, a day is borrowed.
	values := []*Expr{lo, hi}
	for _, body := range []string{
		strings.ReplaceAll(clock, "_1", "_2") + " - (" + clock + ")",
		"CASE WHEN _3 < 0 THEN 1 ELSE 0 END",
		"day(_2) - day(_1) - _4",
		"(year(_2) - year(_1)) * 12 + month(_2) - month(_1) - CASE WHEN _5 < 0 THEN 1 ELSE 0 END",
		"CASE WHEN _5 < 0 THEN _5 + days_in_month(_1) ELSE _5 END",
		"_3 + _4 * 86400000000",
	} {
		e, err := b.expand(n, body, values...)
		if err != nil {
			return nil, err
		}
		values = append(values, e)
	}
	return eachPart(func(i int) (*Expr, error) { return b.expand(n, "_1 * _2", values[5+i], sign) })
}

// bindDateAdd is date + interval.
func bindDateAdd(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if !a[1].isInterval() && a[0].typ.Kind == gpu.Date {
		return b.expand(n, "_1 + _2", a...)
	}
	if !a[1].isInterval() {
		return nil, b.errorf(n.Args[1], "%s needs an INTERVAL, as in %s(d, INTERVAL 1 DAY)", n.Name, n.Name)
	}
	return b.addInterval(n, n.Args[0], a[0], a[1])
}

func toInterval(unit string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		if a[0].typ.IsFloat() || a[0].typ.Kind == gpu.Decimal {
			if micros := syntax.IntervalUnits[unit][2]; micros > 0 {
				e, err := b.expand(n, fmt.Sprintf("(_1::DOUBLE * %d)::BIGINT", micros), a[0])
				if err != nil {
					return nil, err
				}
				return newInterval(bigintOf(0), bigintOf(0), e), nil
			}
		}
		return b.unitsOf(n.Args[0], a[0], unit)
	}
}

// nameAt returns the name of the _1-th of some words, from 1.
func nameAt(words string) string {
	list := strings.Fields(words)
	width := 0
	for _, w := range list {
		width = max(width, len(w))
	}
	all := ""
	for _, w := range list {
		all += fmt.Sprintf("%-*s", width, w)
	}
	return fmt.Sprintf("rtrim(substring('%s', %d * _1 - %d, %d))", all, width, width-1, width)
}

const (
	monthNames    = "January February March April May June July August September October November December"
	weekdayNames  = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
	shortMonths   = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
	shortWeekdays = "Mon Tue Wed Thu Fri Sat Sun"
)

// nameOf binds the name of a part of a date.
func nameOf(part, words string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return macro("d", strings.ReplaceAll(nameAt(words), "_1", part+"(_1)"))
}

// atPlanning binds functions that return the time at which the job is planned, as the given type.
func atPlanning(typ string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, _ []*Expr) (*Expr, error) {
		if b.scope.Now.IsZero() {
			return nil, b.errorf(n, "%s has no value here", n.Name)
		}
		t := gpu.TimestampOf(gpu.Microsecond, true)
		now := newConstant(gpu.IntScalar(t, b.scope.Now.UnixMicro()))
		return b.expand(n, "CAST(_1 AS "+typ+")", now)
	}
}

func bindMakeDate(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	args, err := b.arguments(n, "i", a)
	if err != nil {
		return nil, err
	}
	switch len(args) {
	case 1:
		return b.expand(n, "DATE '1970-01-01' + _1::INTEGER", args...)
	case 3:
		t := gpu.Of(gpu.Date)
		return b.op(n, Expr{op: gpu.OpMakeDate, typ: t, nullable: args[0].nullable || args[1].nullable ||
			args[2].nullable, rng: typeRange(t), fails: true}, args...)
	}
	return nil, b.errorf(n, "%s takes 1 or 3 arguments, found %d", n.Name, len(a))
}

func bindMakeTime(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	args, err := b.arguments(n, "iif", a)
	if err != nil {
		return nil, err
	}
	return b.unlessNull(n, args, func() (*Expr, error) { return b.timeOf(n, args) })
}

// timeOf returns the time of an hour, a minute and a second, which must exist.
func (b *binder) timeOf(n *syntax.Call, args []*Expr) (*Expr, error) {
	micros, err := b.expand(n, "_1 * 3600000000 + _2 * 60000000 + round(_3 * 1000000)::BIGINT", args...)
	if err != nil {
		return nil, err
	}
	valid,
		err := b.expand(n, "_1 BETWEEN 0 AND 24 AND _2 BETWEEN 0 AND 59 AND _3 BETWEEN 0 AND 60 AND _4 <= 86400000000",
		append(args, micros)...)
	if err != nil {
		return nil, err
	}
	t := gpu.TimeOf(gpu.Microsecond)
	e, err := b.op(n, Expr{op: gpu.OpAdd, typ: t, nullable: micros.nullable, rng: typeRange(t), fails: true},
		newConstant(gpu.IntScalar(t, 0)), micros)
	if err != nil {
		return nil, err
	}
	if e, err = b.expand(n, "CASE WHEN _2 = 86400000000 THEN TIME '24:00:00' ELSE _1 END", e, micros); err != nil {
		return nil, err
	}
	return b.require(n, valid, e, "there is no time of this hour, minute and second")
}

// unlessNull binds a function whose result is null where an argument is, even if it fails for the other arguments.
func (b *binder) unlessNull(n syntax.Node, args []*Expr, bind func() (*Expr, error)) (*Expr, error) {
	var there []*Expr
	for _, a := range args {
		if a.nullable {
			e, err := b.isNull(n, a, true)
			if err != nil {
				return nil, err
			}
			there = append(there, e)
		}
	}
	if len(there) == 0 {
		return bind()
	}
	b.lazy++
	defer func() { b.lazy-- }()
	e, err := bind()
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _1 THEN _2 END", And(there...), e)
}

func bindMakeTimestamp(typ string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		switch len(a) {
		case 1:
			return timestampOf(gpu.TimestampOf(gpu.Microsecond, typ == "TIMESTAMPTZ"), 1)(b, n, a)
		case 6:
			args, err := b.arguments(n, "iiiiif", a)
			if err != nil {
				return nil, err
			}
			return b.unlessNull(n, args, func() (*Expr, error) {
				return b.expand(n, "CAST(make_date(_1, _2, _3) + make_time(_4, _5, _6) AS "+typ+")", args...)
			})
		}
		return nil, b.errorf(n, "%s takes 1 or 6 arguments, found %d", n.Name, len(a))
	}
}

// twoDigits has the numbers 00 to 99.
var twoDigits = func() string {
	all := ""
	for i := range 100 {
		all += fmt.Sprintf("%02d", i)
	}
	return all
}()

func padded(value string) string {
	return "substring('" + twoDigits + "', 2 * (" + value + ") + 1, 2)"
}

// formats are the specifiers of strftime as SQL over the date _1. Those with a minus have no
// leading zeros.
var formats = map[string]string{
	"a": strings.ReplaceAll(nameAt(shortWeekdays), "_1", "isodow(_1)"), "A": "dayname(_1)",
	"b": strings.ReplaceAll(nameAt(shortMonths), "_1", "month(_1)"), "B": "monthname(_1)",
	"d": padded("day(_1)"), "-d": "day(_1)::VARCHAR", "m": padded("month(_1)"), "-m": "month(_1)::VARCHAR",
	"y": padded("abs(year(_1)) % 100"), "-y": "(abs(year(_1)) % 100)::VARCHAR",
	"Y": "CASE WHEN year(_1) BETWEEN 0 AND 999 THEN substring((10000 + year(_1))::VARCHAR, 2) ELSE " +
		"year(_1)::VARCHAR END",
	"H": padded("hour(_1)"), "-H": "hour(_1)::VARCHAR",
	"I": padded("(hour(_1) + 11) % 12 + 1"), "-I": "((hour(_1) + 11) % 12 + 1)::VARCHAR",
	"p": "CASE WHEN hour(_1) < 12 THEN 'AM' ELSE 'PM' END",
	"M": padded("minute(_1)"), "-M": "minute(_1)::VARCHAR", "S": padded("second(_1)"), "-S": "second(_1)::VARCHAR",
	"f": "substring((1000000 + microsecond(_1) % 1000000)::VARCHAR, 2)",
	"g": "substring((1000 + millisecond(_1) % 1000)::VARCHAR, 2)",
	"j": "substring((1000 + dayofyear(_1))::VARCHAR, 2)", "-j": "dayofyear(_1)::VARCHAR",
	"u": "isodow(_1)::VARCHAR", "w": "dayofweek(_1)::VARCHAR", "V": padded("week(_1)"), "G": "isoyear(_1)::VARCHAR",
	"U": padded("(dayofyear(_1) + 6 - dayofweek(_1)) // 7"), "W": padded("(dayofyear(_1) + 7 - isodow(_1)) // 7"),
	"n": "substring((1000000000 + nanosecond(_1) % 1000000000)::VARCHAR, 2)",
	"%": "'%'",
}

// bindStrftime binds the text of a date in a constant format.
func bindStrftime(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	d, format, at := a[0], a[1], n.Args[1]
	if d.typ.Kind == gpu.String && format.typ.Kind != gpu.String {
		d, format, at = format, d, n.Args[0]
	}
	if d.literal == nullLiteral || format.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.Of(gpu.String))), nil
	}
	f, ok := format.Constant()
	if !ok || format.typ.Kind != gpu.String {
		return nil, b.errorf(at, "the format of %s must be a constant text", n.Name)
	}
	if d.typ.Kind != gpu.Date && d.typ.Kind != gpu.Timestamp {
		return nil, b.errorf(n, "%s needs a date or timestamp, found %v%s", n.Name, d.typ, dateHint(d))
	}
	var parts []*Expr
	var nodes []syntax.Node
	add := func(e *Expr) { parts, nodes = append(parts, e), append(nodes, n) }
	for rest := gpu.TimeCompounds.Replace(f.Str); rest != ""; {
		plain, spec, found := strings.Cut(rest, "%")
		if plain != "" {
			add(newConstant(gpu.StringScalar(plain)))
		}
		if !found {
			break
		}
		size := min(1, len(spec))
		if strings.HasPrefix(spec, "-") {
			size = min(2, len(spec))
		}
		body, ok := formats[spec[:size]]
		if !ok {
			return nil,
				b.errorf(at,
					"%s does not have %%%s; it has %%Y %%m %%d %%H %%M %%S %%f %%g %%n %%j %%a %%A %%b %%B %%p %%I "+
						"%%y %%u %%w %%U %%W %%G %%V %%c %%x %%X and %%%%", n.Name, syntax.Cut(spec, 4))
		}
		e, err := b.expand(n, body, d)
		if err != nil {
			return nil, err
		}
		add(e)
		rest = spec[size:]
	}
	e := newConstant(gpu.StringScalar(""))
	var err error
	switch len(parts) {
	case 0:
	case 1:
		e = parts[0]
	default:
		if e, err = b.concat(n, nodes, parts); err != nil {
			return nil, err
		}
	}
	body := "CASE WHEN _1 IS NOT NULL THEN _2 END"
	if !finiteRange(d.typ).contains(d.rng) {
		body = "CASE WHEN _1 = 'infinity' THEN 'infinity' WHEN _1 = '-infinity' THEN '-infinity' WHEN _1 IS NOT " +
			"NULL THEN _2 END"
	}
	return b.expand(n, body, d, e)
}

// bindStrptime binds the date and time of a text in a constant format.
func bindStrptime(try int) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x, err := b.str(n, 0, a[0])
		if err != nil {
			return nil, err
		}
		format, constant := a[1].Constant()
		switch {
		case a[1].literal == nullLiteral || constant && !format.Valid:
			return newConstant(gpu.Null(gpu.TimestampOf(gpu.Microsecond, false))), nil
		case !constant || a[1].typ.Kind != gpu.String:
			return nil, b.errorf(n.Args[1], "the format of %s must be a constant text", n.Name)
		}
		f, err := gpu.ParseTimeFormat(format.Str)
		if err == nil && f.Nanos && f.Zone {
			err = fmt.Errorf("there is no type of %%n with %%z")
		}
		if err != nil {
			return nil, b.errorf(n.Args[1], "%s: %v", n.Name, err)
		}
		t := gpu.TimestampOf(gpu.Microsecond, f.Zone)
		if f.Nanos {
			t = gpu.TimestampOf(gpu.Nanosecond, false)
		}
		return b.op(n, Expr{op: gpu.OpParseTime, typ: t, value: format, n: try, nullable: x.nullable || try == 1,
			fails: try == 0, rng: typeRange(t)}, x)
	}
}
