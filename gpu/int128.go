package gpu

import (
	"math"
	"math/big"
	"math/bits"
)

// Int128 is a two's complement 128-bit integer, laid out as the 16 bytes of an
// Arrow decimal128.
type Int128 struct {
	Lo uint64
	Hi int64
}

// Int128From converts a signed integer.
func Int128From(v int64) Int128 { return Int128{uint64(v), v >> 63} }

// Int128FromUint converts an unsigned integer.
func Int128FromUint(v uint64) Int128 { return Int128{v, 0} }

// Add returns a + b and reports whether the sum overflowed.
func (a Int128) Add(b Int128) (Int128, bool) {
	lo, c := bits.Add64(a.Lo, b.Lo, 0)
	hi, _ := bits.Add64(uint64(a.Hi), uint64(b.Hi), c)
	h := int64(hi)
	return Int128{lo, h}, (a.Hi >= 0) == (b.Hi >= 0) && (h >= 0) != (a.Hi >= 0)
}

// Sub returns a - b and reports whether the difference overflowed.
func (a Int128) Sub(b Int128) (Int128, bool) {
	lo, c := bits.Sub64(a.Lo, b.Lo, 0)
	hi, _ := bits.Sub64(uint64(a.Hi), uint64(b.Hi), c)
	h := int64(hi)
	return Int128{lo, h}, (a.Hi >= 0) != (b.Hi >= 0) && (h >= 0) != (a.Hi >= 0)
}

// Neg returns -a; the most negative value is its own negation.
func (a Int128) Neg() Int128 {
	lo, c := bits.Sub64(0, a.Lo, 0)
	hi, _ := bits.Sub64(0, uint64(a.Hi), c)
	return Int128{lo, int64(hi)}
}

// Abs returns the magnitude of a as an unsigned 128-bit pair (high, low).
func (a Int128) Abs() (hi, lo uint64) {
	if a.Hi < 0 {
		a = a.Neg()
	}
	return uint64(a.Hi), a.Lo
}

// Mul returns a * b and reports whether the product overflowed.
func (a Int128) Mul(b Int128) (Int128, bool) {
	if a.IsInt64() && b.IsInt64() {
		return MulInt64(int64(a.Lo), int64(b.Lo)), false
	}
	ah, al := a.Abs()
	bh, bl := b.Abs()
	if ah != 0 && bh != 0 {
		return Int128{}, true
	}
	hi, lo := bits.Mul64(al, bl)
	h1, m1 := bits.Mul64(ah, bl)
	h2, m2 := bits.Mul64(al, bh)
	hi, c1 := bits.Add64(hi, m1, 0)
	hi, c2 := bits.Add64(hi, m2, 0)
	neg := (a.Hi < 0) != (b.Hi < 0)
	over := h1 != 0 || h2 != 0 || c1 != 0 || c2 != 0
	if hi>>63 != 0 && !(neg && hi == 1<<63 && lo == 0) {
		over = true
	}
	r := Int128{lo, int64(hi)}
	if neg {
		r = r.Neg()
	}
	return r, over
}

// MulInt64 returns the exact product of two 64-bit integers.
func MulInt64(a, b int64) Int128 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	h := int64(hi) - (a >> 63 & b) - (b >> 63 & a)
	return Int128{lo, h}
}

// Cmp returns -1, 0 or 1 as a is less than, equal to or greater than b.
func (a Int128) Cmp(b Int128) int {
	switch {
	case a.Hi < b.Hi:
		return -1
	case a.Hi > b.Hi:
		return 1
	case a.Lo < b.Lo:
		return -1
	case a.Lo > b.Lo:
		return 1
	}
	return 0
}

// Less reports whether a < b.
func (a Int128) Less(b Int128) bool { return a.Hi < b.Hi || a.Hi == b.Hi && a.Lo < b.Lo }

// Sign returns -1, 0 or 1.
func (a Int128) Sign() int {
	if a.Hi < 0 {
		return -1
	}
	if a.Hi == 0 && a.Lo == 0 {
		return 0
	}
	return 1
}

// IsInt64 reports whether a fits an int64.
func (a Int128) IsInt64() bool { return a.Hi == int64(a.Lo)>>63 }

// Int64 returns the low 64 bits, which are the value if IsInt64.
func (a Int128) Int64() int64 { return int64(a.Lo) }

// QuoRem divides, truncating toward zero. The remainder has the sign of a. The divisor
// must not be zero.
func (a Int128) QuoRem(b Int128) (q, r Int128) {
	if a.IsInt64() && b.IsInt64() && !(int64(b.Lo) == -1) {
		x, y := int64(a.Lo), int64(b.Lo)
		return Int128From(x / y), Int128From(x % y)
	}
	ah, al := a.Abs()
	bh, bl := b.Abs()
	var qh, ql, rh, rl uint64
	if bh == 0 {
		qh = ah / bl
		ql, rl = bits.Div64(ah%bl, al, bl)
	} else {
		// The quotient fits 64 bits: normalise, estimate, correct.
		s := uint(bits.LeadingZeros64(bh))
		n := bh<<s | bl>>(64-s)
		if s == 0 {
			n = bh
		}
		u1h, u1l := ah>>1, ah<<63|al>>1
		est, _ := bits.Div64(u1h, u1l, n)
		est >>= 63 - s
		if est != 0 {
			est--
		}
		ph, pl := bits.Mul64(est, bl)
		ph += est * bh
		rl, c := bits.Sub64(al, pl, 0)
		rh, _ = bits.Sub64(ah, ph, c)
		if rh > bh || rh == bh && rl >= bl {
			est++
			rl, c = bits.Sub64(rl, bl, 0)
			rh, _ = bits.Sub64(rh, bh, c)
		}
		ql = est
		return signed(0, ql, (a.Hi < 0) != (b.Hi < 0)), signed(rh, rl, a.Hi < 0)
	}
	return signed(qh, ql, (a.Hi < 0) != (b.Hi < 0)), signed(rh, rl, a.Hi < 0)
}

func signed(hi, lo uint64, neg bool) Int128 {
	r := Int128{lo, int64(hi)}
	if neg {
		return r.Neg()
	}
	return r
}

// Float64 returns the nearest float64, ties to even.
func (a Int128) Float64() float64 {
	if a.IsInt64() {
		return float64(int64(a.Lo))
	}
	hi, lo := a.Abs()
	shift := bits.Len64(hi)
	top := hi<<(64-shift) | lo>>shift
	if lo<<(64-shift) != 0 {
		top |= 1 // a sticky bit below half of the last bit that is kept
	}
	f := math.Ldexp(float64(top), shift)
	if a.Hi < 0 {
		return -f
	}
	return f
}

// pow5 holds the powers of five up to 5^38, of at most 89 bits.
var pow5 = func() (p [39]Int128) {
	p[0] = Int128{Lo: 1}
	for i := 1; i < len(p); i++ {
		p[i], _ = p[i-1].Mul(Int128{Lo: 5})
	}
	return
}()

// Decimal returns the float64 nearest to a / 10^scale, ties to even; 0 ≤ scale ≤ 38.
func (a Int128) Decimal(scale int) float64 {
	const exact = 1 << 53 // integers up to this, and powers of ten up to 10^22, are exact floats
	if v := int64(a.Lo); scale == 0 || a.IsInt64() && scale <= 22 && v >= -exact && v <= exact {
		return a.Float64() / pow10[scale].Float64()
	}
	if a == (Int128{}) {
		return 0
	}
	// The quotient by 5^scale with at least 64 bits. Its last bit is set if the division left a
	// remainder.
	hi, lo := a.Abs()
	n, exponent := Int128{lo >> 1, int64(hi >> 1)}, 1 // -2^127 is even
	if hi>>63 == 0 {
		up := uint(bits.LeadingZeros64(hi)) - 1
		if hi == 0 {
			up = uint(bits.LeadingZeros64(lo)) + 63
		}
		n, exponent = Int128{lo, int64(hi)}.shl(up), -int(up)
	}
	q, r := n.QuoRem(pow5[scale])
	if q.Hi == 0 {
		const more = 32
		var low Int128
		low, r = r.shl(more).QuoRem(pow5[scale])
		q = q.shl(more)
		q.Lo |= low.Lo
		exponent -= more
	}
	if r != (Int128{}) {
		q.Lo |= 1
	}
	f := math.Ldexp(q.Float64(), exponent-scale)
	if a.Hi < 0 {
		return -f
	}
	return f
}

// shl shifts left by n < 128 bits.
func (a Int128) shl(n uint) Int128 {
	if n >= 64 {
		return Int128{0, int64(a.Lo << (n - 64))}
	}
	return Int128{a.Lo << n, int64(uint64(a.Hi)<<n | a.Lo>>(64-n))}
}

// Big returns the value as a big integer.
func (a Int128) Big() *big.Int {
	b := big.NewInt(a.Hi)
	b.Lsh(b, 64)
	return b.Or(b, new(big.Int).SetUint64(a.Lo))
}

// Int128FromBig converts b and reports whether it fits 128 bits.
func Int128FromBig(b *big.Int) (Int128, bool) {
	if b.BitLen() > 127 && !(b.Sign() < 0 && b.BitLen() == 128 && b.TrailingZeroBits() == 127) {
		return Int128{}, false
	}
	m := new(big.Int).Abs(b)
	lo := new(big.Int).And(m, new(big.Int).SetUint64(^uint64(0))).Uint64()
	hi := new(big.Int).Rsh(m, 64).Uint64()
	return signed(hi, lo, b.Sign() < 0), true
}

// pow10 holds the powers of ten up to 10^38.
var pow10 = func() (p [39]Int128) {
	p[0] = Int128{Lo: 1}
	for i := 1; i < len(p); i++ {
		p[i], _ = p[i-1].Mul(Int128{Lo: 10})
	}
	return
}()

// Pow10 returns 10 to the n, 0 ≤ n ≤ 38.
func Pow10(n int) Int128 { return pow10[n] }

// FitsPrecision reports whether |a| < 10^precision.
func (a Int128) FitsPrecision(precision int) bool {
	hi, lo := a.Abs()
	p := pow10[precision]
	return hi < uint64(p.Hi) || hi == uint64(p.Hi) && lo < p.Lo
}

// Format returns a as a decimal number with scale digits after the point.
func (a Int128) Format(scale int) string {
	s := a.Big().String()
	if scale == 0 {
		return s
	}
	neg := s[0] == '-'
	if neg {
		s = s[1:]
	}
	for len(s) <= scale {
		s = "0" + s
	}
	s = s[:len(s)-scale] + "." + s[len(s)-scale:]
	if neg {
		s = "-" + s
	}
	return s
}

// FormatDecimal returns a as DuckDB prints a DECIMAL(precision, scale): without a zero before the
// point if the type has no digit there.
func (a Int128) FormatDecimal(precision, scale int) string {
	s := a.Format(scale)
	if scale == 0 || precision > scale {
		return s
	}
	if neg := s[0] == '-'; neg {
		return "-" + s[2:]
	}
	return s[1:]
}

// String returns a in base ten.
func (a Int128) String() string { return a.Format(0) }
