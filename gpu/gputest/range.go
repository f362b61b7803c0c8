package gputest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// rangeLimits says which bounds a range has, and which of them are strict.
type rangeLimits struct{ lower, upper, lowerStrict, upperStrict bool }

func (l rangeLimits) String() string {
	return fmt.Sprintf("bounds below %v (strict %v) and above %v (strict %v)", l.lower, l.lowerStrict, l.upper,
		l.upperStrict)
}

// allLimits are all rangeLimits with a bound.
func allLimits() (out []rangeLimits) {
	for _, lower := range []rangeLimits{{}, {lower: true}, {lower: true, lowerStrict: true}} {
		for _, upper := range []rangeLimits{{}, {upper: true}, {upper: true, upperStrict: true}} {
			if lower.lower || upper.upper {
				out = append(out, rangeLimits{lower.lower, upper.upper, lower.lowerStrict, upper.upperStrict})
			}
		}
	}
	return out
}

// testMatchRange matches sorted keys of all types with all kinds of bounds. The bounds are in any
// order, so some ranges are empty.
func testMatchRange(t *testing.T, open Open) {
	for _, k := range keyCases() {
		if len(k.types) > 1 {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			b := setUp(t, open)
			all := allLimits()
			for _, n := range [][2]int{{0, 10}, {10, 0}, {1, 1}, {40, 130}, {150, 65}} {
				for range 2 {
					draw := func(n int) []gpu.Scalar { return b.random(k.types[0], n, k.dists[0]) }
					b.checkRangeMatch(k.types[0], k.coded[0], draw(n[0]), draw(n[1]), draw(n[1]),
						all[b.rnd.IntN(len(all))])
				}
			}
		})
	}
	floats := func(t gpu.Type) (out []gpu.Scalar) {
		for _, f := range []float64{math.NaN(), math.Copysign(0, -1), math.Inf(1), 1, 0, math.Inf(-1), -1, math.NaN(),
			-2, math.Copysign(0, -1), 2} {
			out = append(out, gpu.FloatScalar(t, f))
		}
		return append(out, gpu.Null(t))
	}
	texts := []gpu.Scalar{gpu.Null(gpu.Of(gpu.String))}
	for _, s := range []string{"", "a", "a\x00", "ab", "b", "ÿ", "aaaaaaaab", "aaaaaaaa"} {
		texts = append(texts, gpu.StringScalar(s))
	}
	wide, date := gpu.DecimalOf(38, 2), gpu.Of(gpu.Date)
	for name, values := range map[string][]gpu.Scalar{
		"reals": floats(gpu.Of(gpu.Float32)), "doubles": floats(gpu.Of(gpu.Float64)), "texts": texts,
		"decimals": {gpu.IntScalar(wide, -1), gpu.IntScalar(wide, 0), gpu.Null(wide),
			gpu.IntScalar(wide, math.MaxInt64), gpu.IntScalar(wide, math.MinInt64)},
		"dates": {gpu.IntScalar(date, -1), gpu.IntScalar(date, math.MinInt32+1), gpu.Null(date),
			gpu.IntScalar(date, math.MaxInt32), gpu.IntScalar(date, 7)},
	} {
		t.Run(name, func(t *testing.T) {
			b := setUp(t, open)
			var lower, upper []gpu.Scalar // all pairs of values
			for _, x := range values {
				lower, upper = append(lower, slices.Repeat([]gpu.Scalar{x}, len(values))...), append(upper, values...)
			}
			for _, l := range allLimits() {
				b.checkRangeMatch(values[0].Type, false, slices.Concat(values, values), lower, upper, l)
			}
		})
	}
	i64, i32 := gpu.Of(gpu.Int64), gpu.Of(gpu.Int32)
	for name, c := range map[string]struct {
		d            distribution
		build, probe int
		l            rangeLimits
	}{
		"many probes":           {distribution{distinct: 5000}, 20, 9000, rangeLimits{lower: true, upper: true}},
		"many builds":           {distribution{distinct: 5000}, 30000, 5, rangeLimits{upper: true}},
		"one key, many matches": {distribution{distinct: 1}, 20001, 2, rangeLimits{lower: true, upper: true}},
		"one key, no match": {distribution{distinct: 1}, 700, 3000,
			rangeLimits{lower: true, upper: true, upperStrict: true}},
		"narrow ranges":            {distribution{}, 3000, 5000, rangeLimits{lower: true, upper: true}},
		"nulls, without a maximum": {distribution{distinct: 50, nulls: 0.9}, 500, 2100, rangeLimits{lower: true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := setUp(t, open)
			lower := b.random(i64, c.probe, c.d)
			upper := lower
			if name != "narrow ranges" {
				upper = b.random(i64, c.probe, c.d)
			}
			b.checkRangeMatch(i64, false, b.random(i64, c.build, c.d), lower, upper, c.l)
		})
	}
	t.Run("more pairs than ids", func(t *testing.T) {
		b := setUp(t, open)
		const n = 1 << 16 // n² pairs are more than ids can address
		key := b.ids(make([]int32, n))
		m, err := b.q.MatchRange(b.l, key, &gpu.Bound{Column: key}, nil)
		require.NoError(t, err)
		defer m.Release()
		b.requireRowsOfAll(m, n)
	})
	t.Run("refuses", func(t *testing.T) {
		bound := func(t gpu.Type, n int) *gpu.Bound { return &gpu.Bound{Column: gpu.Column{Type: t, Len: n}} }
		for want, c := range map[string]struct {
			build        gpu.Column
			lower, upper *gpu.Bound
		}{
			"without bounds":                     {gpu.Column{Type: i64}, nil, nil},
			"keys of BIGINT with a bound of INT": {gpu.Column{Type: i64}, bound(i64, 0), bound(i32, 0)},
			"key columns of 0 and 3":             {gpu.Column{Type: i64}, bound(i64, 0), bound(i64, 3)},
			"a dictionary of BIGINT":             {gpu.Column{Type: i64, Dict: &gpu.Dictionary{}}, bound(i64, 0), nil},
			"more than the 2147483646 t":         {gpu.Column{Type: i64, Len: gpu.MaxRows + 1}, bound(i64, 0), nil},
			"at most 1073741824":                 {gpu.Column{Type: i64}, nil, bound(i64, gpu.MaxRangeRows+1)},
		} {
			b := setUp(t, open)
			_, err := b.q.MatchRange(b.l, c.build, c.lower, c.upper)
			require.ErrorContains(t, err, want)
		}
	})
}

// checkRangeMatch sorts the build side, and compares its match with comparisons of the values.
func (b *bench) checkRangeMatch(typ gpu.Type, coded bool, build, lower, upper []gpu.Scalar, l rangeLimits) {
	t := b.t
	t.Helper()
	build = sortRows([][]gpu.Scalar{build}, []int{0})[0]
	up := func(values []gpu.Scalar) gpu.Column { return b.up(column(typ, values, coded))[0] }
	key := up(build)
	var below, above *gpu.Bound
	if l.lower {
		below = &gpu.Bound{Column: up(lower), Strict: l.lowerStrict}
	}
	if l.upper {
		above = &gpu.Bound{Column: up(upper), Strict: l.upperStrict}
	}
	want := pairing{probes: len(lower), builds: len(build), ordered: true}
	for p := range lower {
		for r, k := range build {
			in := k.Valid
			if in && l.lower {
				in = lower[p].Valid && (k.Compare(lower[p]) > 0 || k.Compare(lower[p]) == 0 && !l.lowerStrict)
			}
			if in && l.upper {
				in = upper[p].Valid && (k.Compare(upper[p]) < 0 || k.Compare(upper[p]) == 0 && !l.upperStrict)
			}
			if in {
				want.pairs = append(want.pairs, [2]int{p, r})
			}
		}
	}
	b.checkMatcher(func() (gpu.Matcher, error) { return b.q.MatchRange(b.l, key, below, above) }, want,
		fmt.Sprintf("the match of %d and %d rows, %v", len(build), len(lower), l))
}
