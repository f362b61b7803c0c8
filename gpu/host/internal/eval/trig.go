package eval

import (
	"math"
	"math/bits"
)

// sin, cos and tan are those of package math, except for large numbers: package math reduces these
// to a fraction of a turn with only 53 bits, too few near zeros and poles.

func sin(x float64) float64 {
	if !manyTurns(x) {
		return math.Sin(x)
	}
	switch q, r := quarterTurns(x); q {
	case 0:
		return math.Sin(r)
	case 1:
		return math.Cos(r)
	case 2:
		return -math.Sin(r)
	default:
		return -math.Cos(r)
	}
}

func cos(x float64) float64 {
	if !manyTurns(x) {
		return math.Cos(x)
	}
	switch q, r := quarterTurns(x); q {
	case 0:
		return math.Cos(r)
	case 1:
		return -math.Sin(r)
	case 2:
		return -math.Cos(r)
	default:
		return math.Sin(r)
	}
}

func tan(x float64) float64 {
	if !manyTurns(x) {
		return math.Tan(x)
	}
	q, r := quarterTurns(x)
	if q%2 == 1 {
		return -1 / math.Tan(r)
	}
	return math.Tan(r)
}

// manyTurns reports whether package math would lose digits of x, a finite number.
func manyTurns(x float64) bool { return math.Abs(x) >= 1<<20 && !math.IsInf(x, 0) }

// twoOverPi is the first 1,216 bits of the fraction 2/π, after 64 zeros.
var twoOverPi = [...]uint64{0,
	0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
	0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
	0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
	0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
	0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
}

// quarterTurns divides x, for which manyTurns is true, by π/2. It returns the nearest integer
// modulo 4, and the rest in radians, from -π/4 to π/4, accurate to about one unit in the last place
// (Payne and Hanek's reduction).
func quarterTurns(x float64) (quarters uint64, rest float64) {
	b := math.Float64bits(x)
	m := b&(1<<52-1) | 1<<52
	exponent := int(b>>52&0x7ff) - 1075 // |x| is m << exponent

	// Bits of 2/π with a weight of 4 or more after the shift by the exponent only add whole turns.
	// The next 192 bits times m are x / (π/2) modulo 4, with 190 bits after the point.
	first := exponent - 2 + 64
	word := func(i int) uint64 {
		i += first / 64
		return twoOverPi[i]<<(first%64) | twoOverPi[i+1]>>(64-first%64)
	}
	hi1, lo1 := bits.Mul64(m, word(1))
	hi2, _ := bits.Mul64(m, word(2))
	mid, carry := bits.Add64(lo1, hi2, 0)
	hi := m*word(0) + hi1 + carry

	quarters = hi >> 62
	hi, mid = hi<<2|mid>>62, mid<<2
	negative := x < 0
	if hi>>63 != 0 { // nearer to the next
		quarters++
		var borrow uint64
		mid, borrow = bits.Sub64(0, mid, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
		negative = !negative
	}
	rest = (float64(hi)*0x1p-64 + float64(mid)*0x1p-128) * (math.Pi / 2)
	if negative {
		rest = -rest
	}
	if x < 0 {
		quarters = -quarters
	}
	return quarters % 4, rest
}
