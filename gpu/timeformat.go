package gpu

import (
	"fmt"
	"strings"
)

// TimeItem is a part of the format of a date or time that OpParseTime reads from text.
type TimeItem struct {
	Kind  TimeItemKind
	Field TimeField // of numbers and names
	Width int       // of numbers: the maximum number of digits
	Lo    int64     // of numbers: the bounds
	Hi    int64
	Text  string // the literal, or the names with spaces between them
}

// TimeItemKind says how an item is read.
type TimeItemKind int32

// The kinds of items.
const (
	TimeLiteral  TimeItemKind = iota // the text itself; spaces stand for any spaces
	TimeNumber                       // digits
	TimeFraction                     // the first digits of a fraction
	TimeName                         // one of the names, without regard to case; its number counts from Lo
	TimeHalf                         // AM or PM
	TimeOffset                       // ±HH, ±HHMM, ±HH:MM or ±HH:MM:SS, east of UTC
)

// TimeField is what an item sets.
type TimeField int32

// The fields. A date has a year, and either a month and a day or the day of the year.
const (
	TimeYear TimeField = iota
	TimeYearOfCentury
	TimeMonth
	TimeDay
	TimeHour
	TimeMinute
	TimeSecond
	TimeNanos
	TimeDayOfYear
	TimeNothing // the day of the week
	TimeFields
)

// TimeFormat is a format of strptime.
type TimeFormat struct {
	Items       []TimeItem
	Nanos, Zone bool // it has %n; it has %z
	// ByDayOfYear says that the day of the year is used instead of the month and the day.
	ByDayOfYear bool
}

const (
	monthNames    = "January February March April May June July August September October November December"
	weekdayNames  = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
	shortMonths   = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
	shortWeekdays = "Mon Tue Wed Thu Fri Sat Sun"
)

// timeItems are the items of specifiers. Specifiers with an optional - have one item.
var timeItems = map[byte]TimeItem{
	'Y': {TimeNumber, TimeYear, 4, 0, 9999, ""}, 'y': {TimeNumber, TimeYearOfCentury, 2, 0, 99, "-"},
	'm': {TimeNumber, TimeMonth, 2, 1, 12, "-"}, 'd': {TimeNumber, TimeDay, 2, 1, 31, "-"},
	'j': {TimeNumber, TimeDayOfYear, 3, 1, 366, "-"},
	'H': {TimeNumber, TimeHour, 2, 0, 23, "-"}, 'I': {TimeNumber, TimeHour, 2, 1, 12, "-"},
	'M': {TimeNumber, TimeMinute, 2, 0, 59, "-"}, 'S': {TimeNumber, TimeSecond, 2, 0, 59, "-"},
	'f': {TimeFraction, TimeNanos, 6, 0, 999999, ""}, 'g': {TimeFraction, TimeNanos, 3, 0, 999, ""},
	'n': {TimeFraction, TimeNanos, 9, 0, 999999999, ""},
	'b': {TimeName, TimeMonth, 0, 1, 0, shortMonths}, 'B': {TimeName, TimeMonth, 0, 1, 0, monthNames},
	'a': {TimeName, TimeNothing, 0, 1, 0, shortWeekdays}, 'A': {TimeName, TimeNothing, 0, 1, 0, weekdayNames},
	'p': {Kind: TimeHalf, Field: TimeNothing}, 'z': {Kind: TimeOffset, Field: TimeNothing},
}

// TimeCompounds are specifiers that stand for others.
var TimeCompounds = strings.NewReplacer("%%", "%%", "%c", "%Y-%m-%d %H:%M:%S", "%x", "%Y-%m-%d", "%X", "%H:%M:%S", "%T",
	"%H:%M:%S")

// UnreadableTime returns the error for a text that does not have a format.
func UnreadableTime(text, format string) string {
	return fmt.Sprintf("cannot read %.60q in the format '%.60s'; try_strptime is null there", text, format)
}

// maxTimeFormat bounds the bytes of a format.
const maxTimeFormat = 1 << 12

// ParseTimeFormat reads a format of strptime.
func ParseTimeFormat(format string) (f TimeFormat, err error) {
	if format == "" || len(format) > maxTimeFormat {
		return f, fmt.Errorf("the format has %d bytes, expected 1 to %d", len(format), maxTimeFormat)
	}
	literal := ""
	flush := func() {
		if literal != "" {
			f.Items = append(f.Items, TimeItem{Kind: TimeLiteral, Field: TimeNothing, Text: literal})
		}
		literal = ""
	}
	byMonth, byYear := false, false
	for rest := TimeCompounds.Replace(format); rest != ""; {
		if rest[0] != '%' {
			literal, rest = literal+rest[:1], rest[1:]
			continue
		}
		if strings.HasPrefix(rest, "%%") {
			literal, rest = literal+"%", rest[2:]
			continue
		}
		spec := strings.TrimPrefix(rest[1:], "-")
		if spec == "" {
			return f, fmt.Errorf("%s at the end stands for nothing; %%%% is a %%", rest)
		}
		item, ok := timeItems[spec[0]]
		if !ok || len(spec) < len(rest)-1 && item.Text != "-" {
			return f,
				fmt.Errorf("there is no %s; there are %%Y %%y %%m %%d %%j %%b %%B %%a %%A %%H %%I %%p %%M %%S %%f "+
					"%%g %%n %%z %%c %%x %%X %%T and %%%%", rest[:len(rest)-len(spec)+1])
		}
		if item.Text == "-" {
			item.Text = ""
		}
		if byYear && item.Field == TimeDayOfYear {
			return f, fmt.Errorf("%%j is there twice")
		}
		flush()
		f.Items = append(f.Items, item)
		f.Nanos = f.Nanos || spec[0] == 'n'
		f.Zone = f.Zone || spec[0] == 'z'
		byMonth = byMonth || item.Kind == TimeNumber && (item.Field == TimeMonth || item.Field == TimeDay)
		byYear = byYear || item.Field == TimeDayOfYear
		rest = spec[1:]
	}
	flush()
	f.ByDayOfYear = byYear && !byMonth
	return f, nil
}
