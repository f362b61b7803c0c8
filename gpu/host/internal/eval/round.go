package eval

import (
	"math"
	"math/big"
	"strconv"
)

// exactPowers are the powers of ten that a float64 represents exactly.
var exactPowers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
	1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// maxDigits bounds the digits of a rounding: so far before the point, a float64 has only zeros, and
// rounding so far after the point changes no float64.
const maxDigits = 400

// roundDigits rounds x half away from zero to a number of digits after the point, or before it if
// negative. It rounds the exact decimal value of x, and returns the float64 nearest to the rounded
// decimal. If that is beyond the greatest float64, it returns x.
func roundDigits(x float64, digits int) float64 {
	size := math.Abs(x)
	switch {
	case digits == 0:
		return math.Round(x)
	case !(size < math.Inf(1)):
		return x
	case digits < -308:
		return 0
	case size == 0:
		return x
	case digits > 0 && size >= 1<<52:
		return x // a whole number
	case digits > 0 && digits < len(exactPowers):
		// The sum of the product and its rounding error is exact.
		power := exactPowers[digits]
		if product := size * power; product < 1<<52 {
			whole := math.Floor(product)
			if rest := product - whole; rest > 0.5 || rest == 0.5 && math.FMA(size, power, -product) >= 0 {
				whole++
			}
			return math.Copysign(whole/power, x)
		}
	case digits < 0 && digits >= -18 && size < 1<<63:
		// Half of the unit is an integer, so a fraction does not matter.
		unit := uint64(exactPowers[-digits])
		return math.Copysign(float64((uint64(size)+unit/2)/unit*unit), x)
	}
	return math.Copysign(roundExactly(size, digits), x)
}

// roundExactly is roundDigits of a positive number, with big integers.
func roundExactly(size float64, digits int) float64 {
	m, e := math.Frexp(size)
	mantissa, e := int64(math.Ldexp(m, 53)), e-53
	if float64(-digits)*math.Log2(10) < float64(max(e, -1074))-1.5 {
		return size // the unit is less than half of the last place
	}
	// In twice units: size · 10^digits · 2.
	n, d := big.NewInt(2*mantissa), big.NewInt(1)
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(digits, -digits))), nil)
	if digits > 0 {
		n.Mul(n, power)
	} else {
		d.Mul(d, power)
	}
	if e > 0 {
		n.Lsh(n, uint(e))
	} else {
		d.Lsh(d, uint(-e))
	}
	units := n.Add(n, d).Quo(n, d.Lsh(d, 1))
	r, err := strconv.ParseFloat(units.String()+"e"+strconv.Itoa(-digits), 64)
	if err != nil {
		return size
	}
	return r
}

// roundFloatsByColumn rounds each float to its own number of digits.
func roundFloatsByColumn[T float](out, x []T, digits []int64) {
	for i := range out {
		out[i] = T(roundDigits(float64(x[i]), int(min(max(digits[i], -maxDigits), maxDigits))))
	}
}
