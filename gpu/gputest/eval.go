package gputest

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// evalSizes are row counts around the boundaries of bitmap words and of the batches of rows that a
// device may evaluate at once.
var evalSizes = []int{0, 1, 63, 64, 65, 2047, 2048, 2049, 33001}

// testEval checks expression programs against row-by-row references.
func testEval(t *testing.T, open Open) {
	t.Run("Compare", func(t *testing.T) { testEvalCompare(t, open) })
	t.Run("Logic", func(t *testing.T) { testEvalLogic(t, open) })
	t.Run("Select", func(t *testing.T) { testEvalSelect(t, open) })
	t.Run("Arithmetic", func(t *testing.T) { testEvalArithmetic(t, open) })
	t.Run("Round", func(t *testing.T) { testEvalRound(t, open) })
	t.Run("Mask", func(t *testing.T) { testEvalMask(t, open) })
	t.Run("Like", func(t *testing.T) { testEvalLike(t, open) })
	t.Run("Edges", func(t *testing.T) { testEvalEdges(t, open) })
	t.Run("Outputs", func(t *testing.T) { testEvalOutputs(t, open) })
}

var boolean = gpu.Of(gpu.Bool)

// eval runs a program and returns the rows of its outputs.
func (b *bench) eval(p *gpu.Program, in []gpu.Column, n int) [][]gpu.Scalar {
	b.t.Helper()
	out, err := b.q.Eval(b.l, p, in, n)
	require.NoError(b.t, err)
	defer gpu.ReleaseColumns(out)
	rows := make([][]gpu.Scalar, len(out))
	for i, c := range out {
		require.Equal(b.t, n, c.Len)
		rows[i] = b.down(c)
	}
	return rows
}

// requireRows compares rows as SQL does, except that two nulls are equal.
func requireRows(t *testing.T, want, got []gpu.Scalar, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		same := want[i].Valid == got[i].Valid && want[i].Type == got[i].Type &&
			(!want[i].Valid || want[i].Compare(got[i]) == 0)
		if !same {
			require.Failf(t, "differs", "%s, row %d: %v, want %v", what, i, got[i], want[i])
		}
	}
}

// rowwise is the reference for an operation that is null where an argument is null.
func rowwise(n int, t gpu.Type, f func(i int) (gpu.Scalar, bool)) []gpu.Scalar {
	out := make([]gpu.Scalar, n)
	for i := range out {
		v, ok := f(i)
		if !ok {
			v = gpu.Null(t)
		}
		out[i] = v
	}
	return out
}

var comparisons = map[gpu.Op]func(c int) bool{
	gpu.OpEq: func(c int) bool { return c == 0 }, gpu.OpNe: func(c int) bool { return c != 0 },
	gpu.OpLt: func(c int) bool { return c < 0 }, gpu.OpLe: func(c int) bool { return c <= 0 },
	gpu.OpGt: func(c int) bool { return c > 0 }, gpu.OpGe: func(c int) bool { return c >= 0 },
}

// testEvalCompare compares columns and constants of every type, plain and coded.
func testEvalCompare(t *testing.T, open Open) {
	for _, typ := range types {
		for _, coded := range codings(typ) {
			t.Run(fmt.Sprint(typ, " coded=", coded), func(t *testing.T) {
				b := setUp(t, open)
				for _, n := range upTo(2049, evalSizes) {
					d := distribution{distinct: 9, nulls: 0.2}
					if n%2 == 1 {
						d = distribution{}
					}
					x, y := b.random(typ, n, d), b.random(typ, n, d)
					c := b.random(typ, 1, distribution{distinct: 9})[0]
					in := b.up(column(typ, x, coded), column(typ, y, coded))
					p := &gpu.Program{Inputs: []gpu.Type{typ, typ},
						Code: []gpu.Instr{{Op: gpu.OpConst, Type: typ, Value: c, Mask: -1}}}
					var want [][]gpu.Scalar
					add := func(in gpu.Instr, rows []gpu.Scalar) {
						in.Type, in.Mask = boolean, -1
						p.Outputs = append(p.Outputs, 2+len(p.Code))
						p.Code = append(p.Code, in)
						want = append(want, rows)
					}
					for op, holds := range comparisons {
						add(gpu.Instr{Op: op, Args: []int{0, 1}}, rowwise(n, boolean, func(i int) (gpu.Scalar, bool) {
							return gpu.BoolScalar(holds(x[i].Compare(y[i]))), x[i].Valid && y[i].Valid
						}))
						add(gpu.Instr{Op: op, Args: []int{0, 2}}, rowwise(n, boolean, func(i int) (gpu.Scalar, bool) {
							return gpu.BoolScalar(holds(x[i].Compare(c))), x[i].Valid
						}))
					}
					add(gpu.Instr{Op: gpu.OpDistinct, Args: []int{0, 1}},
						rowwise(n, boolean, func(i int) (gpu.Scalar, bool) {
							same := x[i].Valid == y[i].Valid && (!x[i].Valid || x[i].Compare(y[i]) == 0)
							return gpu.BoolScalar(!same), true
						}))
					add(gpu.Instr{Op: gpu.OpIsNull, Args: []int{1}},
						rowwise(n, boolean, func(i int) (gpu.Scalar, bool) {
							return gpu.BoolScalar(!y[i].Valid), true
						}))
					for _, size := range []int{1, 20} {
						set := b.random(typ, size, distribution{distinct: 40})
						add(gpu.Instr{Op: gpu.OpIn, Args: []int{0}, Set: set},
							rowwise(n, boolean, func(i int) (gpu.Scalar, bool) {
								found := false
								for _, v := range set {
									found = found || x[i].Compare(v) == 0
								}
								return gpu.BoolScalar(found), x[i].Valid
							}))
					}
					got := b.eval(p, in, n)
					for i := range want {
						requireRows(t, want[i], got[i],
							fmt.Sprintf("operation %d over %d rows", p.Code[p.Outputs[i]-2].Op, n))
					}
				}
			})
		}
	}
}

// testEvalLogic checks AND, OR and NOT of random columns in three-valued logic.
func testEvalLogic(t *testing.T, open Open) {
	b := setUp(t, open)
	for _, n := range upTo(2049, evalSizes) {
		for _, nulls := range []float64{0, 0.3} {
			d := distribution{nulls: nulls}
			rows := [][]gpu.Scalar{b.random(boolean, n, d), b.random(boolean, n, d),
				b.random(boolean, n, distribution{})}
			in := b.up(gpu.ColumnOf(boolean, rows[0]), gpu.ColumnOf(boolean, rows[1]), gpu.ColumnOf(boolean, rows[2]))
			p := &gpu.Program{Inputs: []gpu.Type{boolean, boolean, boolean}, Outputs: []int{3, 4, 5}, Code: []gpu.Instr{
				{Op: gpu.OpAnd, Type: boolean, Args: []int{0, 1, 2}, Mask: -1},
				{Op: gpu.OpOr, Type: boolean, Args: []int{0, 1, 2}, Mask: -1},
				{Op: gpu.OpNot, Type: boolean, Args: []int{0}, Mask: -1},
			}}
			// decided is the reference of a connective: the value that decides it if an argument
			// has that value, else null if an argument is null.
			decided := func(i int, by uint64) (gpu.Scalar, bool) {
				known := true
				for _, r := range rows {
					if r[i].Valid && r[i].Int.Lo == by {
						return gpu.BoolScalar(by == 1), true
					}
					known = known && r[i].Valid
				}
				return gpu.BoolScalar(by == 0), known
			}
			got := b.eval(p, in, n)
			requireRows(t, rowwise(n, boolean, func(i int) (gpu.Scalar, bool) { return decided(i, 0) }), got[0], "AND")
			requireRows(t, rowwise(n, boolean, func(i int) (gpu.Scalar, bool) { return decided(i, 1) }), got[1], "OR")
			requireRows(t, rowwise(n, boolean, func(i int) (gpu.Scalar, bool) {
				return gpu.BoolScalar(rows[0][i].Int.Lo == 0), rows[0][i].Valid
			}), got[2], "NOT")
		}
	}
}

// testEvalSelect chooses between columns of every type.
func testEvalSelect(t *testing.T, open Open) {
	b := setUp(t, open)
	for _, typ := range types {
		for _, coded := range codings(typ) {
			for _, n := range upTo(2049, evalSizes) {
				d := distribution{distinct: 20, nulls: 0.2}
				cond, x, y := b.random(boolean, n, d), b.random(typ, n, d), b.random(typ, n, distribution{distinct: 20})
				in := b.up(gpu.ColumnOf(boolean, cond), column(typ, x, coded), column(typ, y, coded))
				p := &gpu.Program{Inputs: []gpu.Type{boolean, typ, typ}, Outputs: []int{3}, Code: []gpu.Instr{
					{Op: gpu.OpSelect, Type: typ, Args: []int{0, 1, 2}, Mask: -1}}}
				want := rowwise(n, typ, func(i int) (gpu.Scalar, bool) {
					if cond[i].Valid && cond[i].Int.Lo == 1 {
						return x[i], x[i].Valid
					}
					return y[i], y[i].Valid
				})
				requireRows(t, want, b.eval(p, in, n)[0], fmt.Sprint(typ, " coded=", coded, " rows=", n))
			}
		}
	}
}

// testEvalArithmetic adds, subtracts and multiplies, and compares with big integers. A
// result that fits is exact; any other result is an error.
func testEvalArithmetic(t *testing.T, open Open) {
	narrow38 := gpu.DecimalOf(38, 2)
	narrow38.Wide = false
	operands := []gpu.Type{gpu.Of(gpu.Int8), gpu.Of(gpu.Int16), gpu.Of(gpu.Int32), gpu.Of(gpu.Int64), gpu.Of(gpu.Uint8),
		gpu.Of(gpu.Uint16), gpu.Of(gpu.Uint32), gpu.Of(gpu.Uint64), gpu.Of(gpu.HugeInt),
		gpu.DecimalOf(15, 2), gpu.DecimalOf(18, 2), gpu.DecimalOf(38, 2), narrow38}
	testEvalLimits(t, open, operands)
	apply := map[gpu.Op]func(z, x, y *big.Int) *big.Int{gpu.OpAdd: (*big.Int).Add, gpu.OpSub: (*big.Int).Sub,
		gpu.OpMul: (*big.Int).Mul}
	b := setUp(t, open)
	for _, typ := range operands {
		for op, f := range apply {
			result := typ
			if op == gpu.OpMul && typ.Kind == gpu.Decimal {
				result.Scale *= 2
			}
			lo, hi := limits(result)
			for _, bits := range []uint{2, 7, 31, 33, 62, 120} {
				const n = 1100 // more than a block of threads has
				x, y := b.integers(typ, n, bits), b.integers(typ, n, bits)
				fits := true
				want := rowwise(n, result, func(i int) (gpu.Scalar, bool) {
					if !x[i].Valid || !y[i].Valid {
						return gpu.Scalar{}, false
					}
					r := f(new(big.Int), x[i].Int.Big(), y[i].Int.Big())
					if r.Cmp(lo) < 0 || r.Cmp(hi) > 0 {
						fits = false
						return gpu.Scalar{}, false
					}
					v, _ := gpu.Int128FromBig(r)
					return gpu.Scalar{Type: result, Valid: true, Int: v}, true
				})
				in := b.up(gpu.ColumnOf(typ, x), gpu.ColumnOf(typ, y))
				p := &gpu.Program{Inputs: []gpu.Type{typ, typ}, Outputs: []int{2}, Code: []gpu.Instr{
					{Op: op, Type: result, Args: []int{0, 1}, Mask: -1, Text: "x op y"}}}
				what := fmt.Sprintf("operation %d on %v (wide=%t), %d bits", op, typ, typ.Wide, bits)
				if fits {
					requireRows(t, want, b.eval(p, in, n)[0], what)
					continue
				}
				_, err := b.failing(p, in, n)
				require.ErrorContains(t, err, "x op y", what)
			}
		}
	}
}

// testEvalLimits computes the limits of each type, which fit, and the values one beyond them, which
// do not. Each row is evaluated alone, so that the outcome does not depend on another row.
func testEvalLimits(t *testing.T, open Open, types []gpu.Type) {
	b := setUp(t, open)
	for _, typ := range types {
		lo, hi := typ.Bounds()
		for _, c := range []struct {
			limit gpu.Int128
			op    gpu.Op
			back  int64
		}{{lo, gpu.OpSub, 1}, {hi, gpu.OpAdd, -1}} {
			inside, _ := c.limit.Add(gpu.Int128From(c.back))
			for _, x := range []gpu.Int128{inside, c.limit} {
				p := &gpu.Program{Inputs: []gpu.Type{typ, typ}, Outputs: []int{2}, Code: []gpu.Instr{
					{Op: c.op, Type: typ, Args: []int{0, 1}, Mask: -1, Text: "x op y"}}}
				in := b.up(gpu.ColumnOf(typ, []gpu.Scalar{{Type: typ, Valid: true, Int: x}}),
					gpu.ColumnOf(typ, []gpu.Scalar{gpu.IntScalar(typ, 1)}))
				what := fmt.Sprintf("operation %d on %v and 1 of %v (wide=%t)", c.op, x, typ, typ.Wide)
				if x == inside {
					requireRows(t, []gpu.Scalar{{Type: typ, Valid: true, Int: c.limit}}, b.eval(p, in, 1)[0], what)
					continue
				}
				_, err := b.failing(p, in, 1)
				require.ErrorContains(t, err, "x op y", what)
			}
		}
	}
}

// testEvalRound rounds floats to digits after and before the decimal point, and compares with exact
// fractions. The floats are decimals and the floats next to them, ties, whole numbers and the
// limits.
func testEvalRound(t *testing.T, open Open) {
	b := setUp(t, open)
	digits := []int64{1, 2, 3, 8, 15, 20, 22, 23, 40, 308, 323, 324, 1074, math.MaxInt64, 0, -1, -2, -16, -18, -19, -22,
		-23, -100, -308, -309, math.MinInt64}
	long := gpu.Of(gpu.Int64)
	for _, typ := range []gpu.Type{gpu.Of(gpu.Float64), gpu.Of(gpu.Float32)} {
		values := []float64{2.675, 1.005, 39292760.7, 0.5, 2.5, 0.125, 0.49999999999999994, 1 << 52, 1<<52 - 0.5,
			1<<53 - 1, 1 << 63, 1e22, 1e23, 8.42e9, 50, 5e17,
			math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-320, 1.7e308, 9e307, math.MaxFloat32, 0,
			math.Copysign(0, -1), math.Inf(1), math.NaN()}
		for range 40 {
			x := math.Ldexp(1+b.rnd.Float64(), b.rnd.IntN(120)-60)
			decimal, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', b.rnd.IntN(9), 64), 64)
			require.NoError(t, err)
			values = append(values, x, decimal, math.Nextafter(decimal, 0), math.Round(x*8)/8)
		}
		for range 8 {
			values = append(values, math.Float64frombits(b.rnd.Uint64()))
		}
		x, n, want := []gpu.Scalar{}, []gpu.Scalar{}, []gpu.Scalar{}
		for _, v := range values {
			if b.rnd.IntN(2) == 0 {
				v = -v
			}
			as := func(v float64) gpu.Scalar {
				if typ.Kind == gpu.Float32 {
					v = float64(float32(v))
				}
				return gpu.FloatScalar(typ, v)
			}
			v := as(v)
			for _, d := range digits {
				x, n, want = append(x, v), append(n, gpu.IntScalar(long, d)), append(want, as(roundedTo(v.Float, d)))
			}
		}
		p := &gpu.Program{Inputs: []gpu.Type{typ, long}, Outputs: []int{2},
			Code: []gpu.Instr{{Op: gpu.OpRound, Type: typ, Args: []int{0, 1}, Mask: -1}}}
		got := b.eval(p, b.up(gpu.ColumnOf(typ, x), gpu.ColumnOf(long, n)), len(x))[0]
		for i := range want {
			require.Equal(t, math.Float64bits(want[i].Float), math.Float64bits(got[i].Float),
				"round(%v, %v) of %v: %v, want %v", x[i].Float, n[i], typ, got[i], want[i])
		}
		p = &gpu.Program{Inputs: []gpu.Type{typ}}
		for _, d := range digits[:len(digits)-1] {
			p.Outputs = append(p.Outputs, 1+len(p.Code))
			p.Code = append(p.Code, gpu.Instr{Op: gpu.OpRound, Type: typ, Args: []int{0},
				N: int(min(max(d, -400), 400)), Mask: -1})
		}
		for k, rows := range b.eval(p, b.up(gpu.ColumnOf(typ, x)), len(x)) {
			for i := k; i < len(x); i += len(digits) {
				require.Equal(t, math.Float64bits(want[i].Float), math.Float64bits(rows[i].Float),
					"round(%v, %d) of %v: %v, want %v", x[i].Float, digits[k], typ, rows[i], want[i])
			}
		}
	}
}

// roundedTo is the reference for OpRound of floats.
func roundedTo(x float64, digits int64) float64 {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return x
	case digits < -308:
		return 0
	case digits > 1074:
		return x
	}
	exact, _ := new(big.Rat).SetString(fmt.Sprint("1e", digits))
	scaled := new(big.Rat).Mul(new(big.Rat).SetFloat64(math.Abs(x)), exact)
	scaled.Add(scaled, big.NewRat(1, 2))
	whole := new(big.Rat).SetInt(new(big.Int).Quo(scaled.Num(), scaled.Denom()))
	out, _ := whole.Quo(whole, exact).Float64()
	if math.IsInf(out, 0) {
		return x
	}
	return math.Copysign(out, x)
}

// failing evaluates on a queue of its own, because a queue on which an evaluation failed stays
// failed.
func (b *bench) failing(p *gpu.Program, in []gpu.Column, n int) ([]gpu.Column, error) {
	q, err := b.dev.NewQueue("failing")
	require.NoError(b.t, err)
	out, err := q.Eval(b.l, p, in, n)
	require.True(b.t, gpu.IsFailure(err), "%v", err)
	_, again := q.Hash(b.l, nil, 1)
	require.Equal(b.t, err, again)
	require.Equal(b.t, err, q.Close())
	return out, err
}

func limits(t gpu.Type) (lo, hi *big.Int) {
	one := big.NewInt(1)
	if t.Kind == gpu.Decimal {
		hi = new(big.Int).Sub(gpu.Pow10(int(t.Precision)).Big(), one)
		if !t.Wide && !hi.IsInt64() {
			hi = new(big.Int).Sub(new(big.Int).Lsh(one, 63), one)
		}
		return new(big.Int).Neg(hi), hi
	}
	bits := uint(8 * t.Width())
	if t.IsUnsigned() {
		return new(big.Int), new(big.Int).Sub(new(big.Int).Lsh(one, bits), one)
	}
	hi = new(big.Int).Sub(new(big.Int).Lsh(one, bits-1), one)
	return new(big.Int).Sub(new(big.Int).Neg(hi), one), hi
}

// integers draws values of at most bits bits that fit their type, and some nulls.
func (b *bench) integers(t gpu.Type, n int, bits uint) []gpu.Scalar {
	lo, hi := limits(t)
	return rowwise(n, t, func(int) (gpu.Scalar, bool) {
		v := new(big.Int).SetUint64(b.rnd.Uint64())
		v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(b.rnd.Uint64()))
		v.Rsh(v, 128-bits)
		if b.rnd.IntN(2) == 0 {
			v.Neg(v)
		}
		for v.Cmp(lo) < 0 || v.Cmp(hi) > 0 {
			v.Rsh(v.Abs(v), 1)
		}
		i, _ := gpu.Int128FromBig(v)
		return gpu.Scalar{Type: t, Valid: true, Int: i}, b.rnd.IntN(20) > 0
	})
}

// testEvalMask makes one row overflow: an error, unless the row is null or its mask is false or
// null.
func testEvalMask(t *testing.T, open Open) {
	typ := gpu.Of(gpu.Int32)
	for _, n := range upTo(2048, []int{1, 2048, 40001}) {
		for name, c := range map[string]struct {
			mask  gpu.Scalar
			value gpu.Scalar
			fails bool
		}{
			"mask is true":  {gpu.BoolScalar(true), gpu.IntScalar(typ, 1<<31-1), true},
			"mask is false": {gpu.BoolScalar(false), gpu.IntScalar(typ, 1<<31-1), false},
			"mask is null":  {gpu.Null(boolean), gpu.IntScalar(typ, 1<<31-1), false},
			"row is null":   {gpu.BoolScalar(true), gpu.Scalar{Type: typ, Int: gpu.Int128From(1<<31 - 1)}, false},
		} {
			b := setUp(t, open)
			mask, x := make([]gpu.Scalar, n), make([]gpu.Scalar, n)
			for i := range x {
				mask[i], x[i] = gpu.BoolScalar(true), gpu.IntScalar(typ, int64(i))
			}
			mask[n/2], x[n/2] = c.mask, c.value
			in := b.up(gpu.ColumnOf(boolean, mask), gpu.ColumnOf(typ, x))
			p := &gpu.Program{Inputs: []gpu.Type{boolean, typ}, Outputs: []int{3}, Code: []gpu.Instr{
				{Op: gpu.OpConst, Type: typ, Value: gpu.IntScalar(typ, 1), Mask: -1},
				{Op: gpu.OpAdd, Type: typ, Args: []int{1, 2}, Mask: 0, Text: "x + 1"}}}
			if c.fails {
				_, err := b.failing(p, in, n)
				require.ErrorContains(t, err, "x + 1", name)
				continue
			}
			got := b.eval(p, in, n)[0]
			want := rowwise(n, typ, func(i int) (gpu.Scalar, bool) { return gpu.IntScalar(typ, int64(i)+1), i != n/2 })
			requireRows(t, want, got, name)
		}
	}
}

// testEvalLike matches patterns against a recursive reference.
func testEvalLike(t *testing.T, open Open) {
	text := gpu.Of(gpu.String)
	var matches func(s, p []rune) bool
	matches = func(s, p []rune) bool {
		switch {
		case len(p) == 0:
			return len(s) == 0
		case p[0] == '%':
			return matches(s, p[1:]) || len(s) > 0 && matches(s[1:], p)
		}
		return len(s) > 0 && (p[0] == '_' || p[0] == s[0]) && matches(s[1:], p[1:])
	}
	for _, coded := range []bool{false, true} {
		b := setUp(t, open)
		const n = 2500
		alphabet := []rune("abä")
		x := rowwise(n, text, func(int) (gpu.Scalar, bool) {
			s := ""
			for range b.rnd.IntN(7) {
				s += string(alphabet[b.rnd.IntN(3)])
			}
			return gpu.StringScalar(s), b.rnd.IntN(10) > 0
		})
		in := b.up(column(text, x, coded))
		for range 60 {
			pattern := ""
			for range b.rnd.IntN(6) {
				pattern += string([]rune("abä%_")[b.rnd.IntN(5)])
			}
			p := &gpu.Program{Inputs: []gpu.Type{text}, Outputs: []int{1}, Code: []gpu.Instr{
				{Op: gpu.OpLike, Type: boolean, Args: []int{0}, Value: gpu.StringScalar(pattern), Mask: -1}}}
			want := rowwise(n, boolean, func(i int) (gpu.Scalar, bool) {
				return gpu.BoolScalar(matches([]rune(x[i].Str), []rune(pattern))), x[i].Valid
			})
			requireRows(t, want, b.eval(p, in, n)[0], pattern)
		}
	}
}

// testEvalOutputs checks outputs that are inputs, constants or repeated registers, and computed
// strings.
func testEvalOutputs(t *testing.T, open Open) {
	text, length := gpu.Of(gpu.String), gpu.Of(gpu.Int64)
	for _, coded := range []bool{false, true} {
		b := setUp(t, open)
		for _, n := range upTo(2049, evalSizes) {
			x := b.random(text, n, distribution{distinct: 30, nulls: 0.2})
			y := b.random(text, n, distribution{distinct: 30})
			in := b.up(column(text, x, coded), column(text, y, coded))
			p := &gpu.Program{Inputs: []gpu.Type{text, text}, Outputs: []int{0, 2, 3, 3, 4, 5, 0}, Code: []gpu.Instr{
				{Op: gpu.OpConst, Type: text, Value: gpu.StringScalar("constant"), Mask: -1},
				{Op: gpu.OpConcat, Type: text, Args: []int{0, 1}, Mask: -1},
				{Op: gpu.OpReverse, Type: text, Args: []int{0}, Mask: -1},
				{Op: gpu.OpLength, Type: length, Args: []int{3}, Mask: -1},
			}}
			joined := rowwise(n, text, func(i int) (gpu.Scalar, bool) {
				return gpu.StringScalar(x[i].Str + y[i].Str),
					x[i].Valid
			})
			got := b.eval(p, in, n)
			requireRows(t, x, got[0], "input")
			requireRows(t, rowwise(n, text, func(int) (gpu.Scalar, bool) { return gpu.StringScalar("constant"), true }),
				got[1], "constant")
			requireRows(t, joined, got[2], "concat")
			requireRows(t, joined, got[3], "concat again")
			requireRows(t, rowwise(n, text, func(i int) (gpu.Scalar, bool) {
				r := []byte(x[i].Str)
				for j, k := 0, len(r)-1; j < k; j, k = j+1, k-1 {
					r[j], r[k] = r[k], r[j]
				}
				return gpu.StringScalar(string(r)), x[i].Valid
			}), got[4], "reverse")
			requireRows(t, rowwise(n, length, func(i int) (gpu.Scalar, bool) {
				return gpu.IntScalar(length, int64(len(x[i].Str)+len(y[i].Str))), x[i].Valid
			}), got[5], "length")
			requireRows(t, x, got[6], "input again")
		}
	}
}
