package eval

import (
	"math"
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// cast runs OpCast.
func (f *frame) cast(s *instruction, v *vec) error {
	a := &f.vecs[s.Args[0]]
	v.valid = a.valid
	from, to := a.typ, v.typ
	switch {
	case from.Kind == gpu.String && to.Kind != gpu.String:
		return f.castFromString(s, v, a)
	case to.Kind == gpu.String:
		return f.castToString(s, v, a)
	case to.Kind == gpu.Bool:
		f.castToBool(v, a)
		return nil
	case from.IsFloat():
		return f.castFromFloat(s, v, a)
	case to.IsFloat():
		f.castToFloat(v, a)
		return nil
	}
	return f.castIntegers(s, v, a)
}

func (f *frame) castToBool(v, a *vec) {
	out := f.bitsOf(v)
	switch {
	case a.typ.Kind == gpu.Bool:
		copy(out, a.bits)
	case a.typ.IsFloat():
		x := f.floats(a)
		for w := range out {
			var word uint64
			for j, x := range x[w*64 : min(w*64+64, len(x))] {
				word |= b2u(x != 0) << (j & 63)
			}
			out[w] = word
		}
	default:
		compareWide(out, f.wide(a), make([]gpu.Int128, f.n), equal)
		for w := range out {
			out[w] = ^out[w]
		}
	}
}

// floats returns the values of a number as float64.
func (f *frame) floats(v *vec) []float64 {
	switch {
	case v.typ.Kind == gpu.Float64:
		return vals[float64](v, f.n)
	case v.typ.Kind == gpu.Float32:
		return convert(blockOf[float64](f), vals[float32](v, f.n))
	case v.typ.Kind == gpu.Uint64:
		return convert(blockOf[float64](f), vals[uint64](v, f.n))
	}
	out := blockOf[float64](f)
	scale := int(v.typ.Scale)
	switch {
	case v.typ.Wide:
		for i, x := range vals[gpu.Int128](v, f.n) {
			out[i] = x.Decimal(scale)
		}
	case scale == 0:
		convert(out, f.int64s(v))
	default:
		decimals(out, f.int64s(v), scale)
	}
	return out
}

// decimals writes the floats nearest to x / 10^scale.
func decimals(out []float64, x []int64, scale int) {
	const exact = 1 << 53 // up to here both operands are exact floats, so their quotient is the nearest float
	by := gpu.Pow10(scale).Float64()
	x = x[:len(out)]
	for i := range out {
		if scale <= 22 && x[i] >= -exact && x[i] <= exact {
			out[i] = float64(x[i]) / by
		} else {
			out[i] = gpu.Int128From(x[i]).Decimal(scale)
		}
	}
}

func (f *frame) castToFloat(v, a *vec) {
	switch {
	case v.typ.Kind == gpu.Float64:
		copy(dst[float64](f, v), f.floats(a))
	case a.typ.Kind == gpu.Uint64:
		convert(dst[float32](f, v), vals[uint64](a, f.n))
	case a.typ.IsInteger() && !a.typ.Wide:
		convert(dst[float32](f, v), f.int64s(a)) // via a double it would be rounded twice
	default:
		convert(dst[float32](f, v), f.floats(a))
	}
}

// castFromFloat rounds half to even for integers, and half away from zero for decimals,
// as DuckDB does.
func (f *frame) castFromFloat(s *instruction, v, a *vec) error {
	x := f.floats(a)
	if v.typ.IsFloat() {
		if v.typ.Kind == gpu.Float64 {
			copy(dst[float64](f, v), x)
			return nil
		}
		out := dst[float32](f, v)
		for i, x := range x {
			out[i] = float32(x)
			if math.IsInf(float64(out[i]), 0) && !math.IsInf(x, 0) {
				if err := f.fail(s, v, i, func() error { return f.doesNotFit(s, i) }); err != nil {
					return err
				}
			}
		}
		return nil
	}
	scale := gpu.Pow10(int(v.typ.Scale)).Float64()
	lo, hi := v.typ.Bounds()
	// A float below 10^p that rounds up to 10^p as a decimal has one digit too many.
	limit := math.Inf(1)
	if v.typ.Kind == gpu.Decimal {
		limit = gpu.Pow10(int(v.typ.Precision)).Float64()
	}
	out := blockOf[gpu.Int128](f)
	for i, x := range x {
		if v.typ.Kind == gpu.Decimal {
			x = math.Round(x * scale)
		} else {
			x = math.RoundToEven(x)
		}
		r, ok := int128FromFloat(x)
		if !ok || math.Abs(x) >= limit || r.Less(lo) || hi.Less(r) {
			if err := f.fail(s, v, i, func() error { return f.doesNotFit(s, i) }); err != nil {
				return err
			}
			r = gpu.Int128{}
		}
		out[i] = r
	}
	f.storeInts(v, out)
	return nil
}

// int128FromFloat converts a float that is an integer.
func int128FromFloat(x float64) (gpu.Int128, bool) {
	if !(math.Abs(x) < 1<<127) {
		return gpu.Int128{Hi: math.MinInt64}, x == -(1 << 127)
	}
	if math.Abs(x) < 1<<63 {
		return gpu.Int128From(int64(x)), true
	}
	m, e := math.Frexp(math.Abs(x))
	// x = (m·2^53)·2^(e-53), e > 63.
	lo := uint64(m * (1 << 53))
	shift := uint(e - 53)
	r := gpu.Int128{Lo: lo << shift, Hi: int64(lo >> (64 - shift))}
	if shift >= 64 {
		r = gpu.Int128{Hi: int64(lo << (shift - 64))}
	}
	if x < 0 {
		r = r.Neg()
	}
	return r, true
}

func (f *frame) doesNotFit(s *instruction, i int) error {
	a := &f.vecs[s.Args[0]]
	return failed(s, "the %v %s does not fit %v", a.typ, f.scalar(a, i), s.Type)
}

// rescaling returns how the stored integers of one type become those of another: they are
// multiplied, or divided and rounded. wrap says that a timestamp is first reduced to its
// time of day.
func rescaling(from, to gpu.Type) (mul, div gpu.Int128, wrap bool) {
	one := gpu.Int128From(1)
	mul, div = one, one
	ratio := func(from, to int64) {
		if to >= from {
			mul = gpu.Int128From(to / from)
		} else {
			div = gpu.Int128From(from / to)
		}
	}
	temporal := func(t gpu.Type) bool { return t.Kind == gpu.Time || t.Kind == gpu.Timestamp }
	switch {
	case from.Kind == gpu.Date && to.Kind == gpu.Timestamp:
		mul = gpu.Int128From(to.Unit.PerDay())
	case from.Kind == gpu.Timestamp && to.Kind == gpu.Date:
		div = gpu.Int128From(from.Unit.PerDay())
	case temporal(from) && temporal(to):
		ratio(from.Unit.PerSecond(), to.Unit.PerSecond())
		wrap = from.Kind == gpu.Timestamp && to.Kind == gpu.Time
	case to.Scale > from.Scale:
		mul = gpu.Pow10(int(to.Scale - from.Scale))
	case from.Scale > to.Scale:
		div = gpu.Pow10(int(from.Scale - to.Scale))
	}
	return mul, div, wrap
}

// castIntegers converts between types that are stored as integers: integers, decimals,
// booleans, dates and times.
func (f *frame) castIntegers(s *instruction, v, a *vec) error {
	mul, div, wrap := rescaling(a.typ, v.typ)
	one := gpu.Int128From(1)
	if div == one && !wrap && !a.typ.Wide && a.typ.Kind != gpu.Uint64 && mul.IsInt64() &&
		f.castNarrow(v, a, mul.Int64()) {
		return nil
	}
	op := gpu.OpCast
	if v.typ.Kind == gpu.Date {
		op = gpu.OpFloor
	}
	out, x := blockOf[gpu.Int128](f), f.wide(a)
	lo, hi := v.typ.Bounds()
	for i := range out {
		r := x[i]
		over := false
		if a.typ.IsInfinite(r.Int64()) && !v.typ.IsInteger() {
			if inf := v.typ.Infinity(); inf != 0 {
				out[i] = gpu.Int128From(inf * int64(r.Sign()))
				continue
			}
			over = true // an infinite timestamp has no time of day
		}
		if wrap {
			r = timeOfDay(r, a.typ.Unit)
		}
		if mul != one && !over {
			r, over = r.Mul(mul)
		} else if div != one {
			r = divideDecimal(op, r, div)
		}
		if over || r.Less(lo) || hi.Less(r) {
			if err := f.fail(s, v, i, func() error { return f.doesNotFit(s, i) }); err != nil {
				return err
			}
			r = gpu.Int128{}
		}
		out[i] = r
	}
	f.storeInts(v, out)
	return nil
}

// castNarrow casts by multiplication when all values fit 64 bits. It returns false when a
// row may not fit.
func (f *frame) castNarrow(v, a *vec, mul int64) bool {
	x := f.int64s(a)
	lo, hi := v.typ.Bounds()
	least, most := extremes(x)
	if from, to := a.typ.Infinity(), v.typ.Infinity(); from != 0 && to != 0 && (least <= -from || most >= from) {
		return false
	}
	size := bits.Len64(uint64(magnitude(least) | magnitude(most)))
	if size+bits.Len64(uint64(mul)) > 62 && mul != 1 ||
		gpu.Int128From(least*mul).Less(lo) || hi.Less(gpu.Int128From(most*mul)) {
		return false
	}
	if mul != 1 {
		y := blockOf[int64](f)
		for i := range y {
			y[i] = x[i] * mul
		}
		x = y
	}
	f.storeInt64s(v, x)
	return true
}
