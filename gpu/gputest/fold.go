package gputest

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// rowRanges are the ranges of a frame over rows.
type rowRanges struct {
	name string
	draw func(b *bench, rows, i int) (from, to int)
}

// frames are the shapes of ranges in window functions, and ranges in any order.
var frames = []rowRanges{
	{"any", func(b *bench, rows, _ int) (int, int) { return b.rnd.IntN(rows + 1), b.rnd.IntN(rows + 1) }},
	{"running", func(_ *bench, _, i int) (int, int) { return 0, i + 1 }},
	{"running in parts", func(_ *bench, _, i int) (int, int) { return i / 700 * 700, i + 1 }},
	{"to the end", func(_ *bench, rows, i int) (int, int) { return i, rows }},
	{"all", func(_ *bench, rows, _ int) (int, int) { return 0, rows }},
	{"narrow", func(_ *bench, rows, i int) (int, int) { return max(0, i-3), min(rows, i+2) }},
	{"wide", func(_ *bench, rows, i int) (int, int) { return max(0, i-900), min(rows, i+100) }},
	{"behind", func(_ *bench, rows, i int) (int, int) { return min(rows, i+5), min(rows, i+300) }},
	{"parts", func(_ *bench, rows, i int) (int, int) { return i / 90 * 90, min(rows, i/90*90+90) }},
}

// ranges draws the ranges of a frame, one for each row.
func (b *bench) ranges(f rowRanges, rows int) (from, to []int32) {
	for i := range rows {
		lo, hi := f.draw(b, rows, i)
		from, to = append(from, int32(lo)), append(to, int32(hi))
	}
	return from, to
}

// foldSizes are row counts of a fold: around the fan-out and the leaf size of trees.
func foldSizes() []int { return upTo(5000, []int{0, 1, 2, 15, 16, 17, 64, 65, 257, 4097, 40001}) }

// foldKinds are the aggregates of Fold by input type.
func foldKinds(t gpu.Type) (out []gpu.Aggregate) {
	out = append(out, gpu.Aggregate{Kind: gpu.Count, Input: t, Output: gpu.Of(gpu.Int64)})
	if t.IsNumeric() {
		out = append(out, gpu.Aggregate{Kind: gpu.Sum, Input: t, Output: gpu.SumType(t)})
	}
	if t.Kind == gpu.Float64 {
		out = append(out, gpu.Aggregate{Kind: gpu.Product, Input: t, Output: t})
	}
	if t.IsInteger() {
		for _, k := range bitKinds {
			out = append(out, gpu.Aggregate{Kind: k, Input: t, Output: t})
		}
	}
	return out
}

// testFold folds ranges of values of all types.
func testFold(t *testing.T, open Open) {
	for _, typ := range types {
		t.Run(typ.String(), func(t *testing.T) {
			b := setUp(t, open)
			for _, rows := range foldSizes() {
				for k, f := range frames {
					if !b.takes() || rows > 1000 && (rows+k)%3 > 0 {
						continue
					}
					nulls := []float64{0, 0.3, 0.98}[(rows+k)%3]
					values := b.foldable(typ, rows, nulls)
					from, to := b.ranges(f, rows)
					for _, a := range foldKinds(typ) {
						if quick := a.Kind == gpu.Count || a.Kind == gpu.Sum && !typ.IsFloat(); !quick && rows > 300 &&
							f.name != "narrow" && f.name != "parts" && (f.name != "wide" || rows > 5000) {
							continue // the reference is quadratic
						}
						b.checkFold(a, values, from, to, fmt.Sprintf("%v of %d rows, %s", a.Kind, rows, f.name))
					}
				}
			}
		})
	}
	huge, wide := gpu.Of(gpu.HugeInt), gpu.DecimalOf(38, 2)
	scalars := func(t gpu.Type, v ...gpu.Int128) (out []gpu.Scalar) {
		for _, x := range v {
			out = append(out, gpu.Scalar{Type: t, Valid: true, Int: x})
		}
		return out
	}
	t.Run("sums beyond 128 bits", func(t *testing.T) {
		b := setUp(t, open)
		most, least := gpu.Of(gpu.HugeInt).Bounds()
		sum := gpu.Aggregate{Kind: gpu.Sum, Input: huge, Output: huge}
		// Running sums overflow 128 bits within a node of the tree.
		var values []gpu.Scalar
		for range 40 {
			values = append(values, scalars(huge, most, most, least, least)...)
		}
		n := int32(len(values))
		b.checkFold(sum, values, []int32{0, 1, 4, 0, 2}, []int32{n, 3, n, 1, 2}, "sums that cancel")
		cols := b.up(gpu.ColumnOf(huge, values))
		for _, r := range [][2]int32{{0, 2}, {2, 4}, {0, n - 2}} {
			_, err := b.q.Fold(b.l, sum, cols[0], b.ids([]int32{0, r[0]}), b.ids([]int32{1, r[1]}))
			require.ErrorContains(t, err, "sum overflows 128 bits")
			require.True(t, gpu.IsFailure(err))
			require.NoError(t, b.reopen())
		}
	})
	t.Run("sums beyond 38 digits", func(t *testing.T) {
		for _, sign := range []int64{1, -1} {
			b := setUp(t, open)
			most, _ := gpu.MulInt64(sign, 1).Mul(gpu.Pow10(38).Neg())
			most, _ = most.Add(gpu.Int128From(sign))
			one := gpu.Int128From(-sign)
			sum := gpu.Aggregate{Kind: gpu.Sum, Input: wide, Output: wide}
			values := scalars(wide, most, one)
			b.checkFold(sum, values, []int32{0, 1}, []int32{1, 2}, "the largest decimal")
			_, err := b.q.Fold(b.l, sum, b.up(gpu.ColumnOf(wide, values))[0], b.ids([]int32{0}), b.ids([]int32{2}))
			require.ErrorContains(t, err, "does not fit DECIMAL(38,2)")
			require.NoError(t, b.reopen())
		}
	})
	t.Run("infinite sums", func(t *testing.T) {
		b := setUp(t, open)
		double := gpu.Of(gpu.Float64)
		var values []gpu.Scalar
		for _, f := range []float64{1, math.Inf(1), 2, math.Inf(-1), math.NaN(), 1e300, 1, -1e300} {
			values = append(values, gpu.FloatScalar(double, f))
		}
		from, to := []int32{0, 0, 0, 3, 4, 5, 5, 2, 6}, []int32{2, 3, 4, 4, 6, 8, 7, 3, 7}
		b.checkFold(gpu.Aggregate{Kind: gpu.Sum, Input: double, Output: double}, values, from, to, "infinities")
	})
	t.Run("refuses", func(t *testing.T) {
		b := setUp(t, open)
		i64, text := gpu.Of(gpu.Int64), gpu.Of(gpu.String)
		ids := gpu.Column{Type: gpu.Of(gpu.Int32)}
		for want, c := range map[string]struct {
			a                gpu.Aggregate
			values, from, to gpu.Column
		}{
			"sum of ranges is not defined on VARCHAR": {gpu.Aggregate{Kind: gpu.Sum, Input: text, Output: text},
				gpu.Column{Type: text}, ids, ids},
			"min of ranges is not defined on BIGINT": {gpu.Aggregate{Kind: gpu.Min, Input: i64, Output: i64},
				gpu.Column{Type: i64}, ids, ids},
			"sum of BIGINT is HUGEINT, not BIGINT": {gpu.Aggregate{Kind: gpu.Sum, Input: i64, Output: i64},
				gpu.Column{Type: i64}, ids, ids},
			"bit_and of VARCHAR, planned for BIGINT": {gpu.Aggregate{Kind: gpu.BitAnd, Input: i64, Output: i64},
				gpu.Column{Type: text}, ids, ids},
			"not BIGINT": {gpu.Aggregate{Kind: gpu.Count, Input: i64, Output: i64},
				gpu.Column{Type: i64}, ids, gpu.Column{Type: i64}},
			"ranges with 0 first rows and 3 ends": {gpu.Aggregate{Kind: gpu.Count, Input: i64, Output: i64},
				gpu.Column{Type: i64}, ids, gpu.Column{Type: gpu.Of(gpu.Int32), Len: 3}},
			"2147483647 rows are more than": {gpu.Aggregate{Kind: gpu.Count, Input: i64, Output: i64},
				gpu.Column{Type: i64, Len: gpu.MaxRows + 1}, ids, ids},
		} {
			_, err := b.q.Fold(b.l, c.a, c.values, c.from, c.to)
			require.ErrorContains(t, err, want)
		}
	})
}

// reopen closes a queue that stays failed, and opens another one.
func (b *bench) reopen() (err error) {
	if err := b.q.Close(); !gpu.IsFailure(err) {
		return fmt.Errorf("a failure does not stick: %v", err)
	}
	b.q, err = b.dev.NewQueue(b.t.Name())
	return err
}

// foldable draws values whose sums and products are finite.
func (b *bench) foldable(t gpu.Type, rows int, nulls float64) []gpu.Scalar {
	values := b.random(t, rows, distribution{nulls: nulls})
	for i, v := range values {
		if v.Valid && t.IsFloat() {
			values[i].Float = []float64{1, -1, 2, 0.5, -0.25, 4}[b.rnd.IntN(6)]
		}
	}
	return values
}

// checkFold compares the folds of ranges with those of scalars.
func (b *bench) checkFold(a gpu.Aggregate, values []gpu.Scalar, from, to []int32, msg string) {
	t := b.t
	t.Helper()
	want := make([]gpu.Scalar, len(from))
	// Prefix sums give the sum and the count of any range.
	sums, counts := []*big.Int{new(big.Int)}, []int64{0}
	for _, v := range values {
		sum, n := new(big.Int).Set(sums[len(sums)-1]), counts[len(counts)-1]
		if v.Valid {
			n++
			if !a.Input.IsFloat() && !a.Input.IsVar() {
				sum.Add(sum, v.Int.Big())
			}
		}
		sums, counts = append(sums, sum), append(counts, n)
	}
	for i := range from {
		lo, hi := int(from[i]), max(int(from[i]), int(to[i]))
		n := counts[hi] - counts[lo]
		switch {
		case a.Kind == gpu.Count:
			want[i] = gpu.IntScalar(a.Output, n)
			continue
		case n == 0:
			want[i] = gpu.Null(a.Output)
			continue
		case a.Kind == gpu.Sum && !a.Input.IsFloat():
			v, ok := gpu.Int128FromBig(new(big.Int).Sub(sums[hi], sums[lo]))
			require.True(t, ok)
			want[i] = gpu.Scalar{Type: a.Output, Valid: true, Int: v}
			continue
		}
		want[i] = foldScalars(a, values[lo:hi])
	}
	cols := b.up(gpu.ColumnOf(a.Input, values))
	got, err := b.q.Fold(b.l, a, cols[0], b.ids(from), b.ids(to))
	require.NoError(t, err, msg)
	defer got.Release()
	requireSame(t, want, b.down(got), msg)
}

// foldScalars folds values of which one at least is not null.
func foldScalars(a gpu.Aggregate, values []gpu.Scalar) gpu.Scalar {
	out := gpu.Scalar{Type: a.Output, Valid: true}
	switch a.Kind {
	case gpu.Product:
		out.Float = 1
	case gpu.BitAnd:
		out.Int = gpu.Int128From(-1)
	}
	exact := new(big.Float).SetPrec(2200) // the sum of few doubles, which may cancel
	for _, v := range values {
		if !v.Valid {
			continue
		}
		switch x := v.Int; a.Kind {
		case gpu.Sum:
			if out.Float += v.Float; len(values) < 10 && !math.IsNaN(out.Float) && !math.IsInf(out.Float, 0) {
				out.Float, _ = exact.Add(exact, big.NewFloat(v.Float)).Float64()
			}
		case gpu.Product:
			out.Float *= v.Float
		case gpu.BitAnd:
			out.Int.Lo, out.Int.Hi = out.Int.Lo&x.Lo, out.Int.Hi&x.Hi
		case gpu.BitOr:
			out.Int.Lo, out.Int.Hi = out.Int.Lo|x.Lo, out.Int.Hi|x.Hi
		default:
			out.Int.Lo, out.Int.Hi = out.Int.Lo^x.Lo, out.Int.Hi^x.Hi
		}
	}
	return out
}

// testExtreme finds the extreme rows of ranges of keys of all types, in all orders.
func testExtreme(t *testing.T, open Open) {
	for _, typ := range types {
		for _, coded := range codings(typ) {
			t.Run(fmt.Sprintf("%v, coded %v", typ, coded), func(t *testing.T) {
				b := setUp(t, open)
				for _, rows := range foldSizes() {
					for k, f := range frames {
						// the reference is quadratic
						if !b.takes() || rows > 300 && (rows+k)%4 > 0 ||
							rows > 5000 && f.name != "narrow" && f.name != "running in parts" {
							continue
						}
						d := distributions[(rows+k)%len(distributions)]
						b.checkExtreme(typ, coded, b.random(typ, rows, d), k%4, k%3 == 0, f)
					}
				}
			})
		}
	}
	t.Run("refuses", func(t *testing.T) {
		b := setUp(t, open)
		i64, ids := gpu.Column{Type: gpu.Of(gpu.Int64)}, gpu.Column{Type: gpu.Of(gpu.Int32)}
		_, err := b.q.Extreme(b.l, gpu.SortKey{Column: i64}, false, ids, i64)
		require.ErrorContains(t, err, "not BIGINT")
		_, err = b.q.Extreme(b.l, gpu.SortKey{Column: gpu.Column{Type: i64.Type, Dict: &gpu.Dictionary{}}}, false, ids,
			ids)
		require.ErrorContains(t, err, "dictionary of BIGINT")
	})
}

func (b *bench) checkExtreme(typ gpu.Type, coded bool, values []gpu.Scalar, flags int, last bool, f rowRanges) {
	t := b.t
	t.Helper()
	from, to := b.ranges(f, len(values))
	keys := [][]gpu.Scalar{values}
	want := make([]int, len(from))
	better := func(r, best int) bool {
		c := compareRows(keys, []int{flags}, r, best)
		return c < 0 || c == 0 && last
	}
	lo, hi, best := 0, 0, -1 // best is the row of [lo, hi)
	for i := range from {
		a, e := int(from[i]), int(to[i])
		if a < lo || e < hi || best < a || a >= e {
			lo, hi, best = a, a, -1
		}
		for ; hi < e; hi++ {
			if values[hi].Valid && (best < 0 || better(hi, best)) {
				best = hi
			}
		}
		lo, want[i] = a, best
	}
	key := gpu.SortKey{Column: b.up(column(typ, values, coded))[0], Descending: flags&1 != 0, NullsFirst: flags&2 != 0}
	got, err := b.q.Extreme(b.l, key, last, b.ids(from), b.ids(to))
	require.NoError(t, err)
	if len(want) == 0 {
		want = []int{}
	}
	require.Equal(t, want, append([]int{}, b.ints(got)...), "%d rows, flags %d, last %v, %s", len(values), flags, last,
		f.name)
	got.Release()
}

// testSearch searches sorted ranges of keys of all types.
func testSearch(t *testing.T, open Open) {
	for _, typ := range types {
		for _, coded := range codings(typ) {
			t.Run(fmt.Sprintf("%v, coded %v", typ, coded), func(t *testing.T) {
				b := setUp(t, open)
				for k, rows := range foldSizes() {
					if rows > 5000 {
						continue
					}
					for flags := range 4 {
						if b.takes() {
							d := distributions[(k+flags)%len(distributions)]
							b.checkSearch(typ, coded, b.random(typ, rows, d), b.random(typ, rows, d), flags, k%2 == 0)
						}
					}
				}
			})
		}
	}
	t.Run("refuses", func(t *testing.T) {
		b := setUp(t, open)
		i64, ids := gpu.Column{Type: gpu.Of(gpu.Int64)}, gpu.Column{Type: gpu.Of(gpu.Int32)}
		_, err := b.q.Search(b.l, gpu.SortKey{Column: i64}, ids, false, ids, ids)
		require.ErrorContains(t, err, "BIGINT for bounds of INTEGER")
		_, err = b.q.Search(b.l, gpu.SortKey{Column: ids}, gpu.Column{Type: ids.Type, Len: 2}, false, ids, ids)
		require.ErrorContains(t, err, "0 ranges for 2 bounds")
		_, err = b.q.Search(b.l, gpu.SortKey{Column: i64}, i64, false, ids, i64)
		require.ErrorContains(t, err, "not BIGINT")
	})
}

// checkSearch searches parts of 90 rows, each of which is sorted, and ranges within them.
func (b *bench) checkSearch(typ gpu.Type, coded bool, values, bounds []gpu.Scalar, flags int, after bool) {
	t := b.t
	t.Helper()
	const part = 90
	var sorted []gpu.Scalar
	for lo := 0; lo < len(values); lo += part {
		sorted = append(sorted, sortRows([][]gpu.Scalar{values[lo:min(lo+part, len(values))]}, []int{flags})[0]...)
	}
	var from, to []int32
	want := []int{}
	for i := range bounds {
		lo := i / part * part
		hi := min(lo+part, len(values))
		lo += b.rnd.IntN(hi - lo + 1)
		hi -= b.rnd.IntN(hi - lo + 1)
		from, to = append(from, int32(lo)), append(to, int32(hi))
		at := lo
		for ; at < hi; at++ {
			c := compareRows([][]gpu.Scalar{{sorted[at], bounds[i]}}, []int{flags}, 0, 1)
			if c > 0 || c == 0 && !after {
				break
			}
		}
		want = append(want, at)
	}
	key := gpu.SortKey{Column: b.up(column(typ, sorted, coded))[0], Descending: flags&1 != 0, NullsFirst: flags&2 != 0}
	got, err := b.q.Search(b.l, key, b.up(column(typ, bounds, false))[0], after, b.ids(from), b.ids(to))
	require.NoError(t, err)
	require.Equal(t, want, append([]int{}, b.ints(got)...), "%d rows, flags %d, after %v", len(values), flags, after)
	got.Release()
}
