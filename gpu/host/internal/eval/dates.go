package eval

import "github.com/gstream/gstream/gpu"

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// civil returns the proleptic Gregorian date of a day counted from 1970-01-01. (Howard
// Hinnant, chrono-Compatible Low-Level Date Algorithms: civil_from_days.)
func civil(days int64) (year, month, day int64) {
	days += 719468
	era := floorDiv(days, 146097)
	doe := days - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = doy - (153*mp+2)/5 + 1
	month = mp + 3
	if month > 12 {
		month -= 12
	}
	year = yoe + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}

// daysOf is the inverse of civil: days_from_civil of the same source.
func daysOf(year, month, day int64) int64 {
	if month <= 2 {
		year--
	}
	era := floorDiv(year, 400)
	yoe := year - era*400
	doy := (153*((month+9)%12)+2)/5 + day - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146097 + doe - 719468
}

func isLeap(year int64) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

func daysInMonth(year, month int64) int64 {
	if month == 2 && isLeap(year) {
		return 29
	}
	return [...]int64{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[month-1]
}

// isoDay returns the day of the week, 1 for Monday.
func isoDay(days int64) int64 { return days + 3 - floorDiv(days+3, 7)*7 + 1 }

// isoWeek returns the year and week of ISO 8601: those of the week's Thursday.
func isoWeek(days int64) (year, week int64) {
	thursday := days - isoDay(days) + 4
	year, _, _ = civil(thursday)
	return year, (thursday-daysOf(year, 1, 1))/7 + 1
}

// dates runs the operations on dates and times.
func (f *frame) dates(s *instruction, v *vec) error {
	a := &f.vecs[s.Args[0]]
	v.valid = f.bothValid(s.Args)
	x := f.int64s(a)
	switch s.Op {
	case gpu.OpExtract:
		f.extract(v, a.typ, gpu.DatePart(s.N), x)
		return nil
	case gpu.OpDateTrunc:
		out := dst[int64](f, v)
		for i, x := range x {
			r, ok := truncate(x, a.typ.Unit.PerSecond(), gpu.DatePart(s.N))
			if a.typ.IsInfinite(x) {
				r = x
			} else if !ok || a.typ.IsInfinite(r) {
				if err := f.fail(s, v, i, func() error { return f.overflow(s, i) }); err != nil {
					return err
				}
			}
			out[i] = r
		}
		return nil
	}
	months := f.int64s(&f.vecs[s.Args[1]])
	out := dst[int64](f, v)
	for i, x := range x {
		r, ok := addMonths(x, a.typ.Unit.PerSecond(), months[i])
		if a.typ.IsInfinite(x) {
			r = x
		} else if !ok || a.typ.IsInfinite(r) {
			if err := f.fail(s, v, i, func() error { return f.overflow(s, i) }); err != nil {
				return err
			}
		}
		out[i] = r
	}
	return nil
}

// extract splits values into days and units within the day, and returns a part of them.
// Infinite values have none.
func (f *frame) extract(v *vec, t gpu.Type, p gpu.DatePart, x []int64) {
	if inf := t.Infinity(); inf != 0 && infinite(x, inf) {
		for i, x := range x {
			if t.IsInfinite(x) {
				f.setNull(v, i)
			}
		}
	}
	per := t.Unit.PerSecond()
	if t.Kind == gpu.Date {
		per = 1
	}
	if v.typ.Kind == gpu.Float64 {
		out := dst[float64](f, v)
		for i, x := range x {
			switch {
			case t.Kind == gpu.Date && p == gpu.PartEpoch:
				out[i] = float64(x) * 86400
			case t.Kind == gpu.Date:
				out[i] = float64(x) + 2440588
			case p == gpu.PartEpoch:
				out[i] = epoch(x, t.Unit)
			default:
				day := floorDiv(x, 86400*per)
				out[i] = float64(day) + 2440588 + float64(x-day*86400*per)/float64(86400*per)
			}
		}
		return
	}
	out := dst[int64](f, v)
	switch {
	case t.Kind == gpu.Date && p >= gpu.PartDay:
		// Years, the common case, have their own loop.
		if p == gpu.PartYear {
			for i, x := range x {
				out[i], _, _ = civil(x)
			}
			return
		}
		for i, x := range x {
			out[i] = dayPart(p, x)
		}
	case t.Kind == gpu.Date:
		clear(out)
	default:
		for i, x := range x {
			day := floorDiv(x, 86400*per)
			if t.Kind == gpu.Time {
				day = 0
			}
			if p >= gpu.PartDay {
				out[i] = dayPart(p, day)
			} else {
				out[i] = clockPart(p, x-day*86400*per, per)
			}
		}
	}
}

// epoch returns a number of units in seconds. Like DuckDB, it first converts milliseconds and
// nanoseconds to microseconds, rounded down.
func epoch(x int64, u gpu.Unit) float64 {
	switch u {
	case gpu.Millisecond:
		return gpu.MulInt64(x, 1000).Float64() / 1e6
	case gpu.Nanosecond:
		return float64(floorDiv(x, 1000)) / 1e6
	}
	return float64(x) / float64(u.PerSecond())
}

// clockPart returns a part of the units since midnight.
func clockPart(p gpu.DatePart, v, per int64) int64 {
	switch p {
	case gpu.PartHour:
		return v / (3600 * per)
	case gpu.PartMinute:
		return v / (60 * per) % 60
	case gpu.PartSecond:
		return v / per % 60
	}
	want := int64(1_000_000)
	if p == gpu.PartMillisecond {
		want = 1000
	}
	v %= 60 * per
	if per >= want {
		return v / (per / want)
	}
	return v * (want / per)
}

// dayPart returns a part of the date of a day.
func dayPart(p gpu.DatePart, days int64) int64 {
	switch p {
	case gpu.PartDayOfWeek:
		return isoDay(days) % 7
	case gpu.PartISODayOfWeek:
		return isoDay(days)
	case gpu.PartWeek:
		_, week := isoWeek(days)
		return week
	case gpu.PartISOYear:
		year, _ := isoWeek(days)
		return year
	case gpu.PartYearWeek:
		year, week := isoWeek(days)
		if year <= 0 {
			return year*100 - week
		}
		return year*100 + week
	}
	y, m, d := civil(days)
	switch p {
	case gpu.PartDay:
		return d
	case gpu.PartMonth:
		return m
	case gpu.PartQuarter:
		return (m + 2) / 3
	case gpu.PartYear:
		return y
	case gpu.PartDecade:
		return y / 10
	case gpu.PartCentury:
		return centuries(y, 100)
	case gpu.PartMillennium:
		return centuries(y, 1000)
	case gpu.PartDayOfYear:
		return days - daysOf(y, 1, 1) + 1
	case gpu.PartEra:
		return int64(b2u(y > 0))
	}
	return 0
}

// centuries counts up from 1, and down from -1 before the year 1.
func centuries(year, length int64) int64 {
	if year > 0 {
		return (year-1)/length + 1
	}
	return year/length - 1
}

// truncate truncates a timestamp to a unit. ok is false when the result is before the
// first timestamp.
func truncate(v, per int64, p gpu.DatePart) (r int64, ok bool) {
	if p < gpu.PartDay {
		unit := int64(1)
		switch p {
		case gpu.PartHour:
			unit = 3600 * per
		case gpu.PartMinute:
			unit = 60 * per
		case gpu.PartSecond:
			unit = per
		case gpu.PartMillisecond:
			unit = max(per/1000, 1)
		case gpu.PartMicrosecond:
			unit = max(per/1_000_000, 1)
		}
		return scaleUnits(floorDiv(v, unit), unit)
	}
	day := floorDiv(v, 86400*per)
	y, m, _ := civil(day)
	switch p {
	case gpu.PartWeek:
		day -= isoDay(day) - 1
	case gpu.PartMonth:
		day = daysOf(y, m, 1)
	case gpu.PartQuarter:
		day = daysOf(y, (m-1)/3*3+1, 1)
	case gpu.PartYear:
		day = daysOf(y, 1, 1)
	case gpu.PartDecade:
		day = daysOf(y/10*10, 1, 1)
	case gpu.PartCentury:
		day = daysOf(y/100*100, 1, 1)
	case gpu.PartMillennium:
		day = daysOf(y/1000*1000, 1, 1)
	}
	return scaleUnits(day, 86400*per)
}

// scaleUnits returns n units. ok is false if they do not fit 64 bits.
func scaleUnits(n, unit int64) (int64, bool) {
	r := gpu.MulInt64(n, unit)
	return r.Int64(), r.IsInt64()
}

// addMonths moves a timestamp by calendar months. A day past the end of the month becomes
// its last day.
func addMonths(v, per, months int64) (int64, bool) {
	// 2^63 seconds are less than 2^39 years. More months always leave the range.
	if months > 1<<40 || months < -1<<40 {
		return 0, false
	}
	day := floorDiv(v, 86400*per)
	clock := v - day*86400*per
	y, m, d := civil(day)
	month := y*12 + m - 1 + months
	y = floorDiv(month, 12)
	m = month - y*12 + 1
	day = daysOf(y, m, min(d, daysInMonth(y, m)))
	midnight, ok := scaleUnits(day, 86400*per)
	r := midnight + clock
	return r, ok && r >= midnight
}
