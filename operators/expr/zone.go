package expr

import (
	"fmt"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // zones if the system has none

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// zoneSteps are the offsets of a time zone from UTC as a step function, in microseconds: offsets[k]
// applies from starts[k-1] on.
type zoneSteps struct{ starts, local, offsets []int64 }

// lastZoneYear is the year up to which the transitions of zones are listed.
const lastZoneYear = 2500

var zones sync.Map // of *zoneSteps by name

// loadZone finds a time zone by its name in the IANA database.
func loadZone(name string) (*zoneSteps, error) {
	if z, ok := zones.Load(name); ok {
		return z.(*zoneSteps), nil
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		location, err = time.LoadLocation(titled(name))
	}
	if err != nil || name == "" || strings.EqualFold(name, "local") {
		return nil, fmt.Errorf("unknown time zone %q; zones have names such as UTC, Europe/Berlin and Etc/GMT-2",
			syntax.Cut(name, 60))
	}
	z := &zoneSteps{}
	t := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).In(location)
	for {
		_, offset := t.Zone()
		if n := len(z.offsets); n == 0 || z.offsets[n-1] != int64(offset)*microsPerSecond {
			if n > 0 {
				z.starts = append(z.starts, t.UnixMicro())
				// A local time that occurs twice means the later moment. One that is skipped has
				// the offset before the transition.
				z.local = append(z.local, t.UnixMicro()+int64(offset)*microsPerSecond)
			}
			z.offsets = append(z.offsets, int64(offset)*microsPerSecond)
		}
		_, end := t.ZoneBounds()
		if end.IsZero() || end.Year() > lastZoneYear {
			break
		}
		if !end.After(t) { // at the end of a leap year beyond the database
			end = t.Add(24 * time.Hour)
		}
		t = end
	}
	zones.Store(name, z)
	return z, nil
}

// titled capitalizes a name like the database: the words of names with a slash, and all letters of
// other names.
func titled(name string) string {
	out := []byte(strings.ToLower(name))
	start := true
	for i, c := range out {
		if start && c >= 'a' && c <= 'z' {
			out[i] -= 'a' - 'A'
		}
		start = c == '/' || c == '_' || c == '-'
	}
	if !strings.Contains(name, "/") {
		return strings.ToUpper(name)
	}
	return string(out)
}

// bindTimezone binds timezone(zone, moment): the moment in UTC of a local time, and the
// local time of a moment.
func bindTimezone(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	name, ok := a[0].Constant()
	if !ok || a[0].typ.Kind != gpu.String {
		return nil, b.errorf(n.Args[0], "the time zone must be a constant text such as 'Europe/Berlin'")
	}
	x := a[1]
	switch {
	case x.literal == nullLiteral:
		return newConstant(gpu.Null(gpu.TimestampOf(gpu.Microsecond, true))), nil
	case x.typ.Kind != gpu.Date && x.typ.Kind != gpu.Timestamp:
		return nil, b.errorf(n.Args[1], "AT TIME ZONE needs a date or timestamp, found %v%s", x.typ, dateHint(x))
	}
	z, err := loadZone(name.Str)
	if err != nil {
		return nil, b.errorf(n.Args[0], "%v", err)
	}
	from, to := gpu.TimestampOf(gpu.Microsecond, x.typ.UTC), gpu.TimestampOf(gpu.Microsecond, !x.typ.UTC)
	starts, sign := z.starts, int64(1)
	if !from.UTC {
		starts, sign = z.local, -1
	}
	if x, err = b.convert(n.Args[1], x, from, false); err != nil {
		return nil, err
	}
	t := gpu.Of(gpu.Int64)
	at, err := b.op(n, Expr{op: gpu.OpCast, typ: t, nullable: x.nullable, rng: x.rng}, x)
	if err != nil {
		return nil, err
	}
	var set []gpu.Scalar
	for _, v := range starts {
		set = append(set, gpu.IntScalar(t, v))
	}
	for _, v := range z.offsets {
		set = append(set, gpu.IntScalar(t, sign*v))
	}
	offset, err := b.op(n, Expr{op: gpu.OpStep, typ: t, n: len(starts), set: set, nullable: at.nullable,
		rng: rangeOf(-2*microsPerDay, 2*microsPerDay)}, at)
	if err != nil {
		return nil, err
	}
	// The type is changed before the offset is added, because this conversion keeps the value.
	if x, err = b.convert(n, x, to, false); err != nil {
		return nil, err
	}
	return b.op(n, Expr{op: gpu.OpAdd, typ: to, nullable: x.nullable, rng: typeRange(to), fails: true}, x, offset)
}
