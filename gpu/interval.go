package gpu

import (
	"fmt"
	"math"
	"strings"
)

// An INTERVAL has months, days and microseconds. It is stored as a nested value of four fields: its length, with months
// of 30 days and days of 24 hours, then the three parts. So the order of its bytes is the order of lengths, and the
// fields are taken out as those of a STRUCT are. Intervals of one length are equal in SQL, though their bytes may
// differ: 1 month and 30 days. Comparisons and keys therefore use the length alone.

// IntervalParts is the value of an INTERVAL.
type IntervalParts struct {
	Months, Days int32
	Micros       int64
}

// The positions of the fields of an INTERVAL, from 1.
const (
	IntervalLength = 1 + iota
	IntervalMonths
	IntervalDays
	IntervalMicros
)

// intervalFields are the fields of an INTERVAL.
var intervalFields = []Field{{Name: "length", Type: Of(HugeInt)}, {Name: "months", Type: Of(Int32)},
	{Name: "days", Type: Of(Int32)}, {Name: "micros", Type: Of(Int64)}}

// IntervalBytes is the length of the encoding of an interval.
const IntervalBytes = 1 + 17 + 5 + 5 + 9 + 1

// DaysPerMonth is the number of days that comparisons take a month for.
const DaysPerMonth = 30

// Length returns the microseconds of the interval.
func (v IntervalParts) Length() Int128 {
	days := int64(v.Months)*DaysPerMonth + int64(v.Days)
	length, _ := Int128From(days).Mul(Int128From(Microsecond.PerDay()))
	length, _ = length.Add(Int128From(v.Micros))
	return length
}

// AppendInterval appends the encoding of an interval.
func AppendInterval(b []byte, v IntervalParts) []byte {
	b = AppendFixed(OpenNested(b), intervalFields[0].Type, v.Length())
	b = AppendFixed(b, intervalFields[1].Type, Int128From(int64(v.Months)))
	b = AppendFixed(b, intervalFields[2].Type, Int128From(int64(v.Days)))
	return CloseNested(AppendFixed(b, intervalFields[3].Type, Int128From(v.Micros)))
}

// IntervalScalar returns an INTERVAL.
func IntervalScalar(v IntervalParts) Scalar {
	return Scalar{Type: Of(Interval), Valid: true, Str: string(AppendInterval(nil, v))}
}

// PartsOfInterval returns the value of the encoding of an interval. Bytes that are not one have the value 0.
func PartsOfInterval(value string) (v IntervalParts) {
	if len(value) < IntervalBytes {
		return v
	}
	part := func(from, width int, t Type) int64 { return fixedOf(value[from:from+width], t).Int64() }
	return IntervalParts{Months: int32(part(19, 4, Of(Int32))), Days: int32(part(24, 4, Of(Int32))),
		Micros: part(29, 8, Of(Int64))}
}

// String formats the interval as DuckDB prints it: 1 year 2 months 3 days 04:05:06.5.
func (v IntervalParts) String() string {
	var b strings.Builder
	for _, part := range [3]struct {
		n    int32
		name string
	}{{v.Months / 12, "year"}, {v.Months % 12, "month"}, {v.Days, "day"}} {
		if part.n == 0 {
			continue
		}
		fmt.Fprintf(&b, "%d %s", part.n, part.name)
		if part.n != 1 && part.n != -1 {
			b.WriteByte('s')
		}
		b.WriteByte(' ')
	}
	switch {
	case v.Micros == 0 && b.Len() > 0:
		return strings.TrimSuffix(b.String(), " ")
	case v.Micros == math.MinInt64:
		b.WriteString("-2562047788:00:54.775808")
	case v.Micros < 0:
		b.WriteString("-" + formatTime(-v.Micros, Microsecond))
	default:
		b.WriteString(formatTime(v.Micros, Microsecond))
	}
	return b.String()
}
