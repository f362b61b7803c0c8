package syntax

import (
	"strings"

	"github.com/gstream/gstream/gpu"
)

// DatePart is a row of the table of date fields. Aliases are other names, and Functions are the
// functions that return the field, both separated by spaces. Example follows the name of such a
// function.
type DatePart struct {
	Part                     gpu.DatePart
	Name, Aliases, Functions string
	About, Example           string
}

// DateParts are the fields of a date.
var DateParts = []DatePart{
	{gpu.PartEra, "ERA", "", "ERA", "1, or 0 before the year 1.", "(DATE '2024-03-15') → 1"},
	{gpu.PartMillennium, "MILLENNIUM", "MIL MILS MILLENNIA", "MILLENNIUM",
		"The millennium, which begins with the year 1.", "(DATE '2024-03-15') → 3"},
	{gpu.PartCentury, "CENTURY", "C CENT CENTURIES", "CENTURY", "The century, which begins with the year 1.",
		"(DATE '2024-03-15') → 21"},
	{gpu.PartDecade, "DECADE", "DEC DECS", "DECADE", "The year divided by 10.", "(DATE '2024-03-15') → 202"},
	{gpu.PartYear, "YEAR", "Y YR YRS", "YEAR", "The year.", "(DATE '2024-03-15') → 2024"},
	{gpu.PartQuarter, "QUARTER", "", "QUARTER", "The quarter of the year, 1 to 4.", "(DATE '2024-03-15') → 1"},
	{gpu.PartMonth, "MONTH", "MON MONS", "MONTH", "The month, 1 to 12.", "(DATE '2024-03-15') → 3"},
	{gpu.PartDay, "DAY", "D DAYOFMONTH", "DAY DAYOFMONTH", "The day of the month.", "(DATE '2024-03-15') → 15"},
	{gpu.PartHour, "HOUR", "H HR HRS", "HOUR", "The hour, 0 to 23.", "(TIMESTAMP '2024-03-15 10:30:45.5') → 10"},
	{gpu.PartMinute, "MINUTE", "M MIN MINS", "MINUTE", "The minute.", "(TIMESTAMP '2024-03-15 10:30:45.5') → 30"},
	{gpu.PartSecond, "SECOND", "S SEC SECS", "SECOND", "The second, without its fraction.",
		"(TIMESTAMP '2024-03-15 10:30:45.5') → 45"},
	{gpu.PartMillisecond, "MILLISECOND", "MS MSEC MSECS", "MILLISECOND", "The milliseconds of the minute.",
		"(TIMESTAMP '2024-03-15 10:30:45.5') → 45500"},
	{gpu.PartMicrosecond, "MICROSECOND", "US USEC USECS", "MICROSECOND", "The microseconds of the minute.",
		"(TIMESTAMP '2024-03-15 10:30:45.5') → 45500000"},
	{gpu.PartWeek, "WEEK", "W WEEKOFYEAR", "WEEK WEEKOFYEAR", "The week of ISO 8601, 1 to 53.",
		"(DATE '2024-03-15') → 11"},
	{gpu.PartISOYear, "ISOYEAR", "", "ISOYEAR", "The year of the week of ISO 8601.", "(DATE '2024-12-31') → 2025"},
	{gpu.PartYearWeek, "YEARWEEK", "", "YEARWEEK", "ISO year × 100 + week.", "(DATE '2024-12-31') → 202501"},
	{gpu.PartDayOfWeek, "DOW", "WEEKDAY DAYOFWEEK", "DAYOFWEEK WEEKDAY", "The day of the week, 0 for Sunday.",
		"(DATE '2024-03-15') → 5"},
	{gpu.PartISODayOfWeek, "ISODOW", "", "ISODOW", "The day of the week, 1 for Monday and 7 for Sunday.",
		"(DATE '2024-03-17') → 7"},
	{gpu.PartDayOfYear, "DOY", "DAYOFYEAR", "DAYOFYEAR", "The day of the year, from 1.", "(DATE '2024-03-15') → 75"},
	{gpu.PartEpoch, "EPOCH", "", "EPOCH", "The seconds since 1970-01-01, or since midnight.",
		"(TIMESTAMP '1970-01-02 00:00:00.5') → 86400.5"},
	{gpu.PartJulian, "JULIAN", "", "JULIAN", "The Julian day.", "(TIMESTAMP '2024-03-15 12:00:00') → 2460385.5"},
}

// namedParts are the fields of a date by their names and aliases.
var namedParts = map[string]*DatePart{}

func init() {
	for i := range DateParts {
		p := &DateParts[i]
		for _, name := range append(strings.Fields(p.Aliases), p.Name) {
			namedParts[name] = p
		}
	}
}

// DatePartNamed returns the date field with a name or alias, regardless of case. The name may be in
// the plural. It returns nil if there is none.
func DatePartNamed(name string) *DatePart {
	u := strings.ToUpper(name)
	if p, ok := namedParts[u]; ok {
		return p
	}
	if p := namedParts[strings.TrimSuffix(u, "S")]; p != nil && p.Name+"S" == u {
		return p
	}
	return nil
}

// IntervalUnits are the months, days and microseconds of the units of an interval.
var IntervalUnits = map[string][3]int64{
	"MICROSECOND": {0, 0, 1}, "MILLISECOND": {0, 0, 1000}, "SECOND": {0, 0, 1_000_000},
	"MINUTE": {0, 0, 60_000_000}, "HOUR": {0, 0, 3_600_000_000},
	"DAY": {0, 1, 0}, "WEEK": {0, 7, 0},
	"MONTH": {1, 0, 0}, "QUARTER": {3, 0, 0}, "YEAR": {12, 0, 0},
	"DECADE": {120, 0, 0}, "CENTURY": {1200, 0, 0}, "MILLENNIUM": {12000, 0, 0},
}

// IntervalUnit returns the standard name of an interval's unit.
func IntervalUnit(name string) (string, bool) {
	if p := DatePartNamed(name); p != nil {
		_, ok := IntervalUnits[p.Name]
		return p.Name, ok
	}
	return "", false
}
