package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSineOfLargeNumbers(t *testing.T) {
	// as the C library has them; the fifth is that nearest to a multiple of π/2
	for _, c := range []struct{ x, sin, cos, tan float64 }{
		{0x1p20, 0.3304931400217347, 0.943808393901312, 0.350169740126609},
		{1374766469.701408, 0.9999999860639474, 0.0001669494085764956, 5989.8384462125905},
		{1e22, -0.8522008497671888, 0.523214785395139, -1.6287782256068988},
		{1.1826751781680536e173, 1.3043216154310126e-06, -0.9999999999991493, -1.3043216154321222e-06},
		{6381956970095103 * 0x1p797, 1.0, -4.68716592425462761112e-19, -1 / 4.68716592425462761112e-19},
		{math.MaxFloat64, 0.004961954789184062, -0.9999876894265599, -0.004962015874444895},
		{math.Inf(1), math.NaN(), math.NaN(), math.NaN()},
		{math.NaN(), math.NaN(), math.NaN(), math.NaN()},
	} {
		for _, sign := range []float64{1, -1} {
			for name, pair := range map[string][2]float64{
				"sin": {sign * c.sin, sin(sign * c.x)},
				"cos": {c.cos, cos(sign * c.x)},
				"tan": {sign * c.tan, tan(sign * c.x)},
			} {
				if want, got := pair[0], pair[1]; math.IsNaN(want) {
					require.True(t, math.IsNaN(got), "%s(%v) = %v", name, sign*c.x, got)
				} else {
					require.InEpsilon(t, want, got, 1e-15, "%s(%v)", name, sign*c.x)
				}
			}
		}
	}
}
