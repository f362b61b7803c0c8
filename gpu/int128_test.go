package gpu_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// interesting returns 128-bit integers around every border of the arithmetic.
func interesting() []gpu.Int128 {
	out := []gpu.Int128{{}, {Lo: 1}, {Lo: math.MaxUint64, Hi: -1}, {Hi: math.MinInt64},
		{Lo: math.MaxUint64, Hi: math.MaxInt64}, {Lo: math.MaxUint64}, {Hi: 1}, {Lo: 1 << 63}, {Lo: 1 << 63, Hi: -1}}
	for _, n := range []int{1, 2, 9, 18, 19, 20, 37, 38} {
		p := gpu.Pow10(n)
		out = append(out, p, p.Neg())
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		out = append(out, gpu.Int128{Lo: rnd.Uint64(), Hi: int64(rnd.Uint64()) >> rnd.IntN(64)},
			gpu.Int128From(int64(rnd.Uint64())>>rnd.IntN(64)))
	}
	return out
}

func TestInt128AgreesWithBigIntegers(t *testing.T) {
	fits := func(b *big.Int) bool { _, ok := gpu.Int128FromBig(b); return ok }
	for _, a := range interesting() {
		back, ok := gpu.Int128FromBig(a.Big())
		require.True(t, ok)
		require.Equal(t, a, back)
		require.Equal(t, a.Big().Sign(), a.Sign())
		require.Equal(t, a.Big().IsInt64(), a.IsInt64())
		for _, b := range interesting() {
			require.Equal(t, a.Big().Cmp(b.Big()), a.Cmp(b))
			require.Equal(t, a.Cmp(b) < 0, a.Less(b))
			for _, op := range []struct {
				name string
				big  func(z, x, y *big.Int) *big.Int
				ours func(x, y gpu.Int128) (gpu.Int128, bool)
			}{
				{"+", (*big.Int).Add, gpu.Int128.Add},
				{"-", (*big.Int).Sub, gpu.Int128.Sub},
				{"*", (*big.Int).Mul, gpu.Int128.Mul},
			} {
				want := op.big(new(big.Int), a.Big(), b.Big())
				got, over := op.ours(a, b)
				require.Equal(t, !fits(want), over, "%v %s %v overflows", a, op.name, b)
				if !over {
					require.Equal(t, want.String(), got.String(), "%v %s %v", a, op.name, b)
				}
			}
			if b.Sign() == 0 || a == (gpu.Int128{Hi: math.MinInt64}) && b == (gpu.Int128{Lo: math.MaxUint64, Hi: -1}) {
				continue
			}
			q, r := a.QuoRem(b)
			wantQ, wantR := new(big.Int).QuoRem(a.Big(), b.Big(), new(big.Int))
			require.Equal(t, wantQ.String(), q.String(), "%v / %v", a, b)
			require.Equal(t, wantR.String(), r.String(), "%v %% %v", a, b)
		}
	}
}

func TestInt128FormatsWithAScale(t *testing.T) {
	for want, v := range map[string]gpu.Int128{
		"0.00": {}, "-0.01": gpu.Int128From(-1), "123.45": gpu.Int128From(12345), "-1.00": gpu.Int128From(-100),
	} {
		require.Equal(t, want, v.Format(2))
	}
	require.True(t, gpu.Pow10(5).FitsPrecision(6))
	require.False(t, gpu.Pow10(5).FitsPrecision(5))
}
