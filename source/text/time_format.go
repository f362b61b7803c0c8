package text

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

// timeFormat is a format of strptime in which a column has its dates or times.
type timeFormat struct {
	*gpu.TimeFormat
	text string
}

// newTimeFormat reads a format. It is nil if the text is empty.
func newTimeFormat(text string) (*timeFormat, error) {
	if text == "" {
		return nil, nil
	}
	f, err := gpu.ParseTimeFormat(text)
	if err == nil && f.Zone {
		err = errors.New("it has %z; columns with offsets are read as VARCHAR, and strptime makes times of them")
	}
	if err != nil {
		return nil, err
	}
	return &timeFormat{&f, text}, nil
}

// parse parses a text as a DATE or TIMESTAMP. A DATE has no time of day.
func (f *timeFormat) parse(s string, t gpu.Type) (gpu.Scalar, bool) {
	at := t
	if t.Kind == gpu.Date {
		at = gpu.TimestampOf(gpu.Second, false)
	}
	v, ok := host.ParseTime(f.TimeFormat, s, at)
	if !ok || t.Kind != gpu.Date {
		return gpu.IntScalar(t, v), ok
	}
	switch {
	case v == at.Infinity():
		return gpu.IntScalar(t, t.Infinity()), true
	case v == -at.Infinity():
		return gpu.IntScalar(t, -t.Infinity()), true
	}
	days := v / 86400
	if v%86400 < 0 {
		days--
	}
	return gpu.IntScalar(t, days), v%86400 == 0
}

// checkTimeFormat returns what is wrong with the format of an option.
func checkTimeFormat(option, text string) error {
	if _, err := newTimeFormat(text); err != nil {
		return fmt.Errorf("%s: %w", option, err)
	}
	return nil
}

// datePattern finds what may be a date in another form than 2020-12-31, with a time after it: numbers with one
// separator, of which the first or the last one is the year.
var datePattern = regexp.MustCompile(`^(\d{1,4})([-/. ])(\d{1,2})([-/. ])(\d{1,4})( \d{1,2}:\d{1,2}:\d{1,2}( [AaPp][Mm])?)?$`)

// formatsOf returns the formats that a text may have. Years of two digits stand among days and months of two digits.
func formatsOf(s string) (formats []string) {
	m := datePattern.FindStringSubmatch(s)
	if m == nil || m[2] != m[4] {
		return nil
	}
	sep := m[2]
	order := func(letters ...string) string { return strings.Join(letters, sep) }
	var dates []string // the orders in which the day or the year is first, then those with the month first
	var american []string
	switch {
	case len(m[1]) == 4 && len(m[5]) <= 2:
		dates = []string{order("%Y", "%m", "%d")}
	case len(m[1]) <= 2 && len(m[5]) == 4:
		dates, american = []string{order("%d", "%m", "%Y")}, []string{order("%m", "%d", "%Y")}
	case len(m[1]) == 2 && len(m[3]) == 2 && len(m[5]) == 2:
		dates = []string{order("%y", "%m", "%d"), order("%d", "%m", "%y")}
		american = []string{order("%m", "%d", "%y")}
	}
	clock, half := m[6] != "", m[7] != ""
	switch {
	case !clock:
		return append(dates, american...)
	case half:
		dates = american
	}
	for _, d := range dates {
		if half {
			formats = append(formats, d+" %I:%M:%S %p")
		} else {
			formats = append(formats, d+" %H:%M:%S")
		}
	}
	return formats
}

// findFormat returns the one format in which all values of a sample are dates or times, and their type. It is nil if
// there is none, or if several fit: whether 01/02/2020 is in January or in February is not guessed.
func findFormat(values func(yield func(string) bool)) (t gpu.Type, found *timeFormat) {
	var left []*timeFormat
	first := true
	values(func(v string) bool {
		v = strings.TrimSpace(v)
		possible := formatsOf(v)
		if first {
			first, t = false, gpu.Of(gpu.Date)
			for _, text := range possible {
				if f, err := newTimeFormat(text); err == nil {
					left = append(left, f)
				}
				if strings.Contains(text, ":") {
					t = gpu.TimestampOf(gpu.Microsecond, false)
				}
			}
		}
		left = slices.DeleteFunc(left, func(f *timeFormat) bool {
			_, ok := f.parse(v, t)
			return !ok || !slices.Contains(possible, f.text)
		})
		return len(left) > 0
	})
	if len(left) != 1 {
		return t, nil
	}
	return t, left[0]
}
