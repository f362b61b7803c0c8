package eval

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLogarithmsOfSubnormalNumbers(t *testing.T) {
	for x, want := range map[float64]float64{1e-310: -713.8013788281542, 5e-324: -744.4400719213812,
		1.7122e-308: -708.6584295488398} {
		require.InEpsilon(t, want, ln(x), 1e-15)
		require.InEpsilon(t, want/math.Ln10, log10(x), 1e-15)
		require.InEpsilon(t, -want, lgamma(x), 1e-15)
		require.InEpsilon(t, -want, lgamma(-x), 1e-15)
	}
	require.Equal(t, math.Log(3), ln(3))
	require.True(t, math.IsInf(log10(0), -1))
	require.True(t, math.IsInf(log10(math.Inf(1)), 1))
	require.True(t, math.IsNaN(log10(math.NaN())))
	require.True(t, math.IsInf(ln(0), -1))
	require.True(t, math.IsNaN(log10(-1)))
}

func TestDecimalLogarithms(t *testing.T) {
	for k := -307; k <= 308; k++ {
		power, err := strconv.ParseFloat(fmt.Sprintf("1e%d", k), 64)
		require.NoError(t, err)
		require.Equal(t, float64(k), log10(power))
	}
	for x, want := range map[float64]float64{1: 0, 2: 0.30102999566398120, 3: 0.47712125471966244,
		7: 0.84509804001425681, 1.0000000000000002: 9.64327466553287e-17, 0.5: -0.30102999566398120,
		123456789: 8.0915149771692704} {
		require.Equal(t, want, log10(x), "%v", x)
	}
}

func TestHyperbolicFunctionsNearTheGreatestNumber(t *testing.T) {
	for x, want := range map[float64]float64{709.5: 6.774931596573164e307, 709.82666015625: 9.392292691516671e307,
		710.25: 1.4342530302495126e308} {
		for _, x := range []float64{x, -x} {
			require.InEpsilon(t, want, cosh(x), 1e-15)
			require.InEpsilon(t, math.Copysign(want, x), sinh(x), 1e-15)
		}
	}
	require.True(t, math.IsInf(cosh(-711), 1))
	require.True(t, math.IsInf(sinh(-711), -1))
	require.True(t, math.IsNaN(cosh(math.NaN())))
	require.Equal(t, math.Sinh(0.5), sinh(0.5))
}
