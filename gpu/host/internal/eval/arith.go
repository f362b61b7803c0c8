package eval

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

type signed interface {
	~int8 | ~int16 | ~int32 | ~int64
}

type unsigned interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64
}

type float interface{ ~float32 | ~float64 }

// The kernels of the fast path compute all rows. They report whether any row, including nulls, may
// have overflowed or left [-limit, limit]; a limit of 0 means none. The checked path then decides
// row by row.

func addSigned[T signed](out, a, b []T, limit uint64) bool {
	var over T
	var size int64
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		r := a[i] + b[i]
		out[i] = r
		over |= (a[i] ^ r) & (b[i] ^ r)
		size |= magnitude(int64(r))
	}
	return over < 0 || limit != 0 && uint64(size) >= limit
}

func subSigned[T signed](out, a, b []T, limit uint64) bool {
	var over T
	var size int64
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		r := a[i] - b[i]
		out[i] = r
		over |= (a[i] ^ b[i]) & (a[i] ^ r)
		size |= magnitude(int64(r))
	}
	return over < 0 || limit != 0 && uint64(size) >= limit
}

// mulSigned multiplies in 64 bits. This is exact if the bits of both operands add up to less than
// 63.
func mulSigned[T signed](out, a, b []T, limit uint64) bool {
	var sizeA, sizeB, sizeR, lost int64
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		x, y := int64(a[i]), int64(b[i])
		r := x * y
		out[i] = T(r)
		sizeA |= magnitude(x)
		sizeB |= magnitude(y)
		sizeR |= magnitude(r)
		lost |= r ^ int64(T(r))
	}
	return bits.Len64(uint64(sizeA))+bits.Len64(uint64(sizeB)) > 62 || lost != 0 || limit != 0 && uint64(sizeR) >= limit
}

// magnitude returns x, or -x-1 for a negative x. It is at least limit for every x beyond
// [-limit, limit], and so is the OR of magnitudes that include such an x.
func magnitude(x int64) int64 { return x ^ x>>63 }

func addUnsigned[T unsigned](out, a, b []T) bool {
	over := false
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		r := a[i] + b[i]
		out[i] = r
		over = over || r < a[i]
	}
	return over
}

func subUnsigned[T unsigned](out, a, b []T) bool {
	over := false
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] - b[i]
		over = over || a[i] < b[i]
	}
	return over
}

func mulUnsigned[T unsigned](out, a, b []T) bool {
	over := false
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		hi, lo := bits.Mul64(uint64(a[i]), uint64(b[i]))
		out[i] = T(lo)
		over = over || hi != 0 || uint64(T(lo)) != lo
	}
	return over
}

func arithSigned[T signed](f *frame, s *instruction, v, a, b *vec, limit uint64) bool {
	out, x, y := dst[T](f, v), vals[T](a, f.n), vals[T](b, f.n)
	switch s.Op {
	case gpu.OpAdd:
		return addSigned(out, x, y, limit)
	case gpu.OpSub:
		return subSigned(out, x, y, limit)
	case gpu.OpMul:
		return mulSigned(out, x, y, limit)
	}
	return true
}

func arithUnsigned[T unsigned](f *frame, s *instruction, v, a, b *vec) bool {
	out, x, y := dst[T](f, v), vals[T](a, f.n), vals[T](b, f.n)
	switch s.Op {
	case gpu.OpAdd:
		return addUnsigned(out, x, y)
	case gpu.OpSub:
		return subUnsigned(out, x, y)
	case gpu.OpMul:
		return mulUnsigned(out, x, y)
	}
	return true
}

func arithFloat[T float](f *frame, s *instruction, v, a, b *vec) {
	out, x, y := dst[T](f, v), vals[T](a, f.n), vals[T](b, f.n)
	switch s.Op {
	case gpu.OpAdd:
		for i := range out {
			out[i] = x[i] + y[i]
		}
	case gpu.OpSub:
		for i := range out {
			out[i] = x[i] - y[i]
		}
	case gpu.OpMul:
		for i := range out {
			out[i] = x[i] * y[i]
		}
	case gpu.OpDiv, gpu.OpQuo:
		for i := range out {
			out[i] = x[i] / y[i]
		}
	case gpu.OpMod:
		for i := range out {
			out[i] = T(math.Mod(float64(x[i]), float64(y[i])))
		}
	case gpu.OpAtan2:
		for i := range out {
			out[i] = T(atan2(float64(x[i]), float64(y[i])))
		}
	case gpu.OpNextAfter:
		for i := range out {
			out[i] = nextAfter(x[i], y[i])
		}
	case gpu.OpPow:
		for i := range out {
			out[i] = T(pow(float64(x[i]), float64(y[i])))
		}
	}
}

// nextAfter returns the float of the type next to x, toward y.
func nextAfter[T float](x, y T) T {
	if x == y { // 0 and -0 are different
		return y
	}
	if _, single := any(x).(float32); single {
		return T(math.Nextafter32(float32(x), float32(y)))
	}
	return T(math.Nextafter(float64(x), float64(y)))
}

func lgamma(x float64) float64 {
	if math.IsInf(x, -1) { // as in C
		return math.Inf(1)
	}
	if a := math.Abs(x); a > 0 && a < smallestNormal {
		return -ln(a)
	}
	v, _ := math.Lgamma(x)
	return v
}

// arithmetic runs the binary operations on numbers, dates and times.
func (f *frame) arithmetic(s *instruction, v *vec) error {
	a, b := &f.vecs[s.Args[0]], &f.vecs[s.Args[1]]
	v.valid = f.bothValid(s.Args)
	switch v.typ.Kind {
	case gpu.Float32:
		arithFloat[float32](f, s, v, a, b)
		return divisors[float32](f, s, v, b)
	case gpu.Float64:
		arithFloat[float64](f, s, v, a, b)
		return divisors[float64](f, s, v, b)
	}
	if !f.arithFast(s, v, a, b) {
		return nil
	}
	return f.arithChecked(s, v, a, b)
}

// divisors fails the rows with a divisor of zero in OpQuo, and in OpMod if N is
// ZeroFails.
func divisors[T float](f *frame, s *instruction, v, b *vec) error {
	if s.Op != gpu.OpQuo && (s.Op != gpu.OpMod || s.N != gpu.ZeroFails) {
		return nil
	}
	for i, y := range vals[T](b, f.n) {
		if y == 0 {
			if err := f.fail(s, v, i, func() error { return f.zeroDivisor(s, i) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// arithFast computes all rows at the width of the operands. It reports whether the
// checked path must compute them again.
func (f *frame) arithFast(s *instruction, v, a, b *vec) bool {
	if s.Op == gpu.OpQuo || s.Op == gpu.OpMod || v.typ.Kind == gpu.Time {
		return true
	}
	if v.typ.Wide || a.typ.Wide || b.typ.Wide {
		return !(v.typ.Wide && s.Op == gpu.OpMul && !a.typ.Wide && !b.typ.Wide && v.typ.Precision == gpu.MaxPrecision &&
			f.mulWiden(v, a, b))
	}
	var limit uint64
	if inf := v.typ.Infinity(); inf != 0 {
		if infinite(f.int64s(a), inf) {
			return true
		}
		lo, _ := v.typ.Bounds() // magnitude returns at most the upper bound for it
		limit = lo.Neg().Lo
	}
	if v.typ.Kind == gpu.Decimal {
		_, hi := v.typ.Bounds()
		limit = hi.Lo
	}
	switch v.typ.Kind {
	case gpu.Int8:
		return arithSigned[int8](f, s, v, a, b, 0)
	case gpu.Int16:
		return arithSigned[int16](f, s, v, a, b, 0)
	case gpu.Int32, gpu.Date:
		return arithSigned[int32](f, s, v, a, b, limit)
	case gpu.Uint8:
		return arithUnsigned[uint8](f, s, v, a, b)
	case gpu.Uint16:
		return arithUnsigned[uint16](f, s, v, a, b)
	case gpu.Uint32:
		return arithUnsigned[uint32](f, s, v, a, b)
	case gpu.Uint64:
		return arithUnsigned[uint64](f, s, v, a, b)
	}
	return arithSigned[int64](f, s, v, a, b, limit)
}

// mulWiden multiplies two narrow decimals to a wide one of 38 digits, which holds every
// product of two 64-bit integers.
func (f *frame) mulWiden(v, a, b *vec) bool {
	out, x, y := dst[gpu.Int128](f, v), vals[int64](a, f.n), vals[int64](b, f.n)
	for i := range out {
		out[i] = gpu.MulInt64(x[i], y[i])
	}
	return true
}

// infinite reports whether a value is infinite or beyond infinity.
func infinite(x []int64, inf int64) bool {
	least, most := extremes(x)
	return least <= -inf || most >= inf
}

// extremes returns the least and the greatest value.
func extremes(x []int64) (least, most int64) {
	least, most = math.MaxInt64, math.MinInt64
	for _, x := range x {
		least, most = min(least, x), max(most, x)
	}
	return least, most
}

// arithChecked computes in 128 bits, row by row, and fails the rows without a result.
func (f *frame) arithChecked(s *instruction, v, a, b *vec) error {
	out, x, y := blockOf[gpu.Int128](f), f.wide(a), f.wide(b)
	lo, hi := v.typ.Bounds()
	for i := range out {
		var r gpu.Int128
		var over bool
		switch s.Op {
		case gpu.OpAdd:
			r, over = x[i].Add(y[i])
		case gpu.OpSub:
			r, over = x[i].Sub(y[i])
		case gpu.OpMul:
			r, over = x[i].Mul(y[i])
		case gpu.OpQuo, gpu.OpMod:
			if y[i] == (gpu.Int128{}) {
				if err := f.fail(s, v, i, func() error { return f.zeroDivisor(s, i) }); err != nil {
					return err
				}
				out[i] = gpu.Int128{}
				continue
			}
			q, rest := x[i].QuoRem(y[i])
			if r = q; s.Op == gpu.OpMod {
				r = rest
			}
			// The least HUGEINT divided by -1 is one more than the greatest.
			over = s.Op == gpu.OpQuo && r.Sign() < 0 && x[i].Sign() < 0 && y[i].Sign() < 0
		}
		switch {
		case v.typ.Kind == gpu.Time:
			r = timeOfDay(r, v.typ.Unit)
		case v.typ.IsInfinite(x[i].Int64()):
			out[i] = x[i]
			continue
		}
		if over || r.Less(lo) || hi.Less(r) {
			if err := f.fail(s, v, i, func() error { return f.overflow(s, i) }); err != nil {
				return err
			}
			r = gpu.Int128{}
		}
		out[i] = r
	}
	f.storeInts(v, out)
	return nil
}

// timeOfDay wraps units since midnight into one day.
func timeOfDay(r gpu.Int128, u gpu.Unit) gpu.Int128 {
	day := gpu.Int128From(u.PerDay())
	_, r = r.QuoRem(day)
	if r.Sign() < 0 {
		r, _ = r.Add(day)
	}
	return r
}

// zeroDivisor returns the error of a division by zero.
func (f *frame) zeroDivisor(s *instruction, i int) error {
	return failed(s, "%s is divided by zero; with nullif(divisor, 0) the result is null",
		f.scalar(&f.vecs[s.Args[0]], i))
}

// overflow returns the error of an operation whose result does not fit its type.
func (f *frame) overflow(s *instruction, i int) error {
	t := s.Type
	what := t.String()
	if t.Kind == gpu.Decimal && !t.Wide && t.Precision > gpu.MaxNarrowPrecision {
		return failed(s,
			"the result for %s does not fit 64 bits, although the column statistics of the file promised so: the "+
				"file is damaged or its statistics are wrong", f.operands(s, i))
	}
	return failed(s, "the result for %s is out of the range of %s; cast an operand to a larger type", f.operands(s, i),
		what)
}

// operands formats the arguments of an instruction on one row.
func (f *frame) operands(s *instruction, i int) string {
	text := ""
	for k, r := range s.Args {
		if k > 0 {
			text += " and "
		}
		text += f.scalar(&f.vecs[r], i)
	}
	return text
}

// scalar formats row i of a register.
func (f *frame) scalar(v *vec, i int) string {
	x := gpu.Scalar{Type: v.typ, Valid: true}
	switch {
	case v.typ.IsVar():
		return fmt.Sprintf("%.60q", v.str[i])
	case v.typ.Kind == gpu.Bool:
		x.Int.Lo = v.bits[i>>6] >> (i & 63) & 1
	case v.typ.Kind == gpu.Float32:
		x.Float = float64(vals[float32](v, f.n)[i])
	case v.typ.Kind == gpu.Float64:
		x.Float = vals[float64](v, f.n)[i]
	default:
		x.Int = f.wide(v)[i]
	}
	return x.String()
}

// unary runs negation, absolute value, sign and the functions of floats.
func (f *frame) unary(s *instruction, v *vec) error {
	a := &f.vecs[s.Args[0]]
	v.valid = a.valid
	switch a.typ.Kind {
	case gpu.Float32:
		unaryFloat(f, s, v, vals[float32](a, f.n))
		return nil
	case gpu.Float64:
		unaryFloat(f, s, v, vals[float64](a, f.n))
		return nil
	}
	out, x := blockOf[gpu.Int128](f), f.wide(a)
	lo, hi := v.typ.Bounds()
	for i := range out {
		r, over := x[i], false
		switch {
		case s.Op == gpu.OpSign:
			r = gpu.Int128From(int64(r.Sign()))
		case s.Op == gpu.OpNeg || r.Sign() < 0:
			r = r.Neg()
			over = r.Sign() < 0 && x[i].Sign() < 0 // of the least HUGEINT
		}
		if over || r.Less(lo) || hi.Less(r) {
			if err := f.fail(s, v, i, func() error { return f.overflow(s, i) }); err != nil {
				return err
			}
			r = gpu.Int128{}
		}
		out[i] = r
	}
	f.storeInts(v, out)
	return nil
}

func unaryFloat[T float](f *frame, s *instruction, v *vec, x []T) {
	if s.Op == gpu.OpSign {
		out := dst[int8](f, v)
		for i, x := range x {
			out[i] = int8(b2u(x > 0)) - int8(b2u(x < 0))
		}
		return
	}
	out := dst[T](f, v)
	switch s.Op {
	case gpu.OpNeg:
		for i, x := range x {
			out[i] = -x
		}
	case gpu.OpAbs:
		for i, x := range x {
			out[i] = T(math.Abs(float64(x)))
		}
	default:
		fn := [...]func(float64) float64{gpu.MathSqrt: math.Sqrt, gpu.MathCbrt: math.Cbrt, gpu.MathExp: math.Exp,
			gpu.MathLn: ln, gpu.MathLog2: math.Log2, gpu.MathLog10: log10,
			gpu.MathSin: sin, gpu.MathCos: cos, gpu.MathTan: tan, gpu.MathAsin: math.Asin, gpu.MathAcos: math.Acos,
			gpu.MathAtan: math.Atan,
			gpu.MathSinh: sinh, gpu.MathCosh: cosh, gpu.MathTanh: math.Tanh, gpu.MathAsinh: math.Asinh,
			gpu.MathAcosh: math.Acosh, gpu.MathAtanh: math.Atanh, gpu.MathGamma: math.Gamma,
			gpu.MathLgamma: lgamma}[s.N]
		for i, x := range x {
			out[i] = T(fn(float64(x)))
		}
	}
}

// Numbers below smallestNormal are subnormal. Scaled by 2^54 they are normal.
const (
	smallestNormal = 0x1p-1022
	scaledUp       = 0x1p54
)

// sinh and cosh are those of package math, except for numbers whose exponential is infinite, but half of it is not.
func sinh(x float64) float64 {
	if math.Abs(x) > 709 {
		return math.Copysign(cosh(x), x)
	}
	return math.Sinh(x)
}

func cosh(x float64) float64 {
	if x = math.Abs(x); x > 709 {
		root := math.Exp(x / 2)
		return root / 2 * root
	}
	return math.Cosh(x)
}

// ln, pow and lgamma are those of package math, except for subnormal numbers: on some processors
// the logarithm of package math uses their stored exponent.
func ln(x float64) float64 {
	if x > 0 && x < smallestNormal {
		return math.Log(x*scaledUp) - 54*math.Ln2
	}
	return math.Log(x)
}

func pow(x, y float64) float64 {
	if x > 0 && x < smallestNormal && y != math.Trunc(y) {
		return math.Pow(x*scaledUp, y) * math.Pow(scaledUp, -y)
	}
	return math.Pow(x, y)
}

// The decimal logarithms of 2 and of e, each in two parts. The product of the first part of
// log10(2) with any exponent is exact.
const (
	log10OfTwoHigh = 0x1.34413508p-2
	log10OfTwoLow  = 0x1.f79fef311f12bp-34
	log10OfEHigh   = 0.4342944819032518
	log10OfELow    = 1.098319650216765e-17
)

// log10 adds the logarithms of the exponent and of a fraction between √½ and √2. Package math
// returns 14.999999999999998 for 1e15, and does not return the nearest float for 28 % of numbers;
// here this is 0.5 %.
func log10(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) {
		return math.Log10(x)
	}
	fraction, exponent := math.Frexp(x)
	if fraction < math.Sqrt2/2 {
		fraction, exponent = 2*fraction, exponent-1
	}
	n, l := float64(exponent), math.Log(fraction)
	whole, product := n*log10OfTwoHigh, l*log10OfEHigh
	rest := math.FMA(l, log10OfEHigh, -product) + l*log10OfELow + n*log10OfTwoLow
	sum := whole + product
	return sum + (product - (sum - whole) + rest)
}

// atan2 is that of package math, which loses the sign of y if y / x is too small.
func atan2(y, x float64) float64 { return math.Copysign(math.Atan2(y, x), y) }

// round runs OpRound, OpFloor, OpCeil and OpTrunc.
func (f *frame) round(s *instruction, v *vec) error {
	a := &f.vecs[s.Args[0]]
	v.valid = a.valid
	if len(s.Args) > 1 {
		v.valid = f.bothValid(s.Args)
		if digits := vals[int64](&f.vecs[s.Args[1]], f.n); a.typ.Kind == gpu.Float32 {
			roundFloatsByColumn(dst[float32](f, v), vals[float32](a, f.n), digits)
		} else {
			roundFloatsByColumn(dst[float64](f, v), vals[float64](a, f.n), digits)
		}
		return nil
	}
	switch a.typ.Kind {
	case gpu.Float32:
		roundFloats(s, dst[float32](f, v), vals[float32](a, f.n))
		return nil
	case gpu.Float64:
		roundFloats(s, dst[float64](f, v), vals[float64](a, f.n))
		return nil
	}
	// A decimal is divided so that only the remaining digits are left. If digits is negative, it is
	// then multiplied to whole units.
	drop := int(a.typ.Scale) - int(v.typ.Scale)
	up := 0
	if s.Op == gpu.OpRound && s.N < 0 {
		drop, up = drop-s.N, -s.N
	}
	out, x := blockOf[gpu.Int128](f), f.wide(a)
	lo, hi := v.typ.Bounds()
	for i := range out {
		var r gpu.Int128
		over := false
		if drop <= gpu.MaxPrecision {
			r = divideDecimal(s.Op, x[i], gpu.Pow10(drop))
			r, over = r.Mul(gpu.Pow10(up))
		}
		if over || r.Less(lo) || hi.Less(r) {
			if err := f.fail(s, v, i, func() error { return f.overflow(s, i) }); err != nil {
				return err
			}
			r = gpu.Int128{}
		}
		out[i] = r
	}
	f.storeInts(v, out)
	return nil
}

// divideDecimal divides by a power of ten and rounds as the operation requires.
func divideDecimal(op gpu.Op, x, by gpu.Int128) gpu.Int128 {
	q, r := x.QuoRem(by)
	up := int64(0) // what rounding adds
	switch op {
	case gpu.OpFloor:
		up = -int64(b2u(r.Sign() < 0))
	case gpu.OpCeil:
		up = int64(b2u(r.Sign() > 0))
	case gpu.OpRound, gpu.OpCast:
		if r.Sign() == 0 {
			return q
		}
		if twice, over := r.Add(r); over || !absLess(twice, by) {
			up = int64(x.Sign())
		}
	}
	q, _ = q.Add(gpu.Int128From(up))
	return q
}

func absLess(a, b gpu.Int128) bool {
	ah, al := a.Abs()
	bh, bl := b.Abs()
	return ah < bh || ah == bh && al < bl
}

func roundFloats[T float](s *instruction, out, x []T) {
	switch s.Op {
	case gpu.OpFloor:
		for i := range out {
			out[i] = T(math.Floor(float64(x[i])))
		}
	case gpu.OpCeil:
		for i := range out {
			out[i] = T(math.Ceil(float64(x[i])))
		}
	case gpu.OpTrunc:
		for i := range out {
			out[i] = T(math.Trunc(float64(x[i])))
		}
	default:
		for i := range out {
			out[i] = T(roundDigits(float64(x[i]), s.N))
		}
	}
}
