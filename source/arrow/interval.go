package arrow

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

// isInterval reports whether the values of an Arrow type become intervals: all kinds of intervals, and durations.
func isInterval(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.INTERVAL_MONTH_DAY_NANO, arrow.INTERVAL_MONTHS, arrow.INTERVAL_DAY_TIME, arrow.DURATION:
		return true
	}
	return false
}

// plainIntervals returns intervals of other kinds, and durations, as months, days and nanoseconds.
func plainIntervals(a arrow.Array) (arrow.Array, error) {
	b := array.NewMonthDayNanoIntervalBuilder(memory.DefaultAllocator)
	defer b.Release()
	return built(b, a, func(i int) error {
		switch a := a.(type) {
		case *array.MonthInterval:
			b.Append(arrow.MonthDayNanoInterval{Months: int32(a.Value(i))})
		case *array.DayTimeInterval:
			v := a.Value(i)
			b.Append(arrow.MonthDayNanoInterval{Days: v.Days, Nanoseconds: int64(v.Milliseconds) * 1e6})
		case *array.Duration:
			v, t := int64(a.Value(i)), a.DataType().(*arrow.DurationType)
			by := gpu.Nanosecond.PerSecond() / gpu.Unit(t.Unit).PerSecond()
			if v > math.MaxInt64/by || v < math.MinInt64/by {
				return fmt.Errorf("row %d: %d%v are more than 292 years: %w", i, v, t.Unit, source.ErrData)
			}
			b.Append(arrow.MonthDayNanoInterval{Nanoseconds: v * by})
		}
		return nil
	})
}

// intervalsOfArrow returns the values of an array. Nanoseconds beyond microseconds are dropped, as in DuckDB.
func intervalsOfArrow(a arrow.Array) (nestedValues, error) {
	plain, err := plainArray(a)
	if err != nil {
		return nil, err
	}
	values, ok := plain.(*array.MonthDayNanoInterval)
	if !ok {
		return nil, fmt.Errorf("cannot read an array of type %v as INTERVAL", a.DataType())
	}
	return func(b []byte, row int) []byte {
		if values.IsNull(row) {
			return gpu.AppendNull(b)
		}
		v := values.Value(row)
		return gpu.AppendInterval(b, gpu.IntervalParts{Months: v.Months, Days: v.Days, Micros: v.Nanoseconds / 1000})
	}, nil
}

// intervalArray copies a column of intervals as months, days and nanoseconds. Microseconds that are more than 292 years
// become days.
func intervalArray(c gpu.Column, validity *memory.Buffer, nulls int) arrow.Array {
	const most = math.MaxInt64 / 1000
	perDay := gpu.Microsecond.PerDay()
	data := make([]byte, 0, 16*c.Len)
	for i := range c.Len {
		var v gpu.IntervalParts
		if c.IsValid(i) {
			v = gpu.PartsOfInterval(string(c.VarValue(i)))
		}
		if v.Micros > most || v.Micros < -most {
			days := int64(v.Days) + v.Micros/perDay
			v.Micros %= perDay
			if int64(int32(days)) != days {
				v.Months, days = v.Months+int32(days/gpu.DaysPerMonth), days%gpu.DaysPerMonth
			}
			v.Days = int32(days)
		}
		data = binary.LittleEndian.AppendUint32(data, uint32(v.Months))
		data = binary.LittleEndian.AppendUint32(data, uint32(v.Days))
		data = binary.LittleEndian.AppendUint64(data, uint64(v.Micros*1000))
	}
	return array.MakeFromData(array.NewData(arrowType(c.Type), c.Len,
		[]*memory.Buffer{validity, memory.NewBufferBytes(data)}, nil, nulls, 0))
}
