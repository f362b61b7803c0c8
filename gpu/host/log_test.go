package host

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLogarithmsOfSubnormalNumbers(t *testing.T) {
	for x, want := range map[float64]float64{1e-310: -713.8013788281542, 5e-324: -744.4400719213812, 1.7122e-308: -708.6584295488398} {
		require.InEpsilon(t, want, ln(x), 1e-15)
		require.InEpsilon(t, want/math.Ln10, log10(x), 1e-15)
		require.InEpsilon(t, -want, lgamma(x), 1e-15)
		require.InEpsilon(t, -want, lgamma(-x), 1e-15)
	}
	require.Equal(t, math.Log(3), ln(3))
	require.True(t, math.IsInf(ln(0), -1))
	require.True(t, math.IsNaN(log10(-1)))
}
