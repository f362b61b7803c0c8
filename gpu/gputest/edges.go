package gputest

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// testEvalEdges tests operations at the limits of their types: infinite dates, the least 128-bit
// integer, division by zero, numbers between two floats, text that is almost a number.
func testEvalEdges(t *testing.T, open Open) {
	date, time, text := gpu.Of(gpu.Date), gpu.TimeOf(gpu.Microsecond), gpu.Of(gpu.String)
	micros, nanos, seconds := gpu.TimestampOf(gpu.Microsecond, false), gpu.TimestampOf(gpu.Nanosecond, false),
		gpu.TimestampOf(gpu.Second, false)
	i64, i32, huge, f64, f32 := gpu.Of(gpu.Int64), gpu.Of(gpu.Int32), gpu.Of(gpu.HugeInt), gpu.Of(gpu.Float64),
		gpu.Of(gpu.Float32)
	least, greatest := huge.Bounds()
	is := func(t gpu.Type, v gpu.Int128) gpu.Scalar { return gpu.Scalar{Type: t, Valid: true, Int: v} }
	n := gpu.IntScalar
	inf := func(t gpu.Type, sign int64) gpu.Scalar { return n(t, sign*t.Infinity()) }
	str := gpu.StringScalar
	decimal := func(precision, scale int, digits string) gpu.Scalar {
		b, ok := new(big.Int).SetString(digits, 10)
		require.True(t, ok)
		v, _ := gpu.Int128FromBig(b)
		return is(gpu.DecimalOf(precision, scale), v)
	}
	fails := gpu.Scalar{}
	cast := gpu.Instr{Op: gpu.OpCast}
	op := func(o gpu.Op) gpu.Instr { return gpu.Instr{Op: o} }
	part := func(p gpu.DatePart) gpu.Instr { return gpu.Instr{Op: gpu.OpExtract, N: int(p)} }
	for _, c := range []struct {
		in     gpu.Instr
		result gpu.Type
		want   gpu.Scalar // an Invalid type: the operation fails
		args   []gpu.Scalar
	}{
		{cast, micros, inf(micros, 1), []gpu.Scalar{inf(date, 1)}},
		{cast, seconds, inf(seconds, -1), []gpu.Scalar{inf(date, -1)}},
		{cast, date, inf(date, -1), []gpu.Scalar{inf(micros, -1)}},
		{cast, nanos, inf(nanos, 1), []gpu.Scalar{inf(micros, 1)}},
		{cast, micros, inf(micros, 1), []gpu.Scalar{inf(seconds, 1)}},
		{cast, nanos, fails, []gpu.Scalar{n(micros, math.MaxInt64-1)}},
		{cast, time, fails, []gpu.Scalar{inf(micros, 1)}},
		{cast, text, str("infinity"), []gpu.Scalar{inf(date, 1)}},
		{cast, text, str("-infinity"), []gpu.Scalar{inf(nanos, -1)}},
		{cast, date, inf(date, 1), []gpu.Scalar{str(" Infinity\n")}},
		{cast, nanos, inf(nanos, -1), []gpu.Scalar{str("-inf")}},
		{cast, date, fails, []gpu.Scalar{str("5881580-07-11")}},
		{cast, i64, n(i64, math.MaxInt32), []gpu.Scalar{inf(date, 1)}},
		{op(gpu.OpAdd), date, inf(date, 1), []gpu.Scalar{inf(date, 1), n(i32, -5)}},
		{op(gpu.OpSub), date, inf(date, -1), []gpu.Scalar{inf(date, -1), n(i32, 5)}},
		{op(gpu.OpAdd), date, fails, []gpu.Scalar{n(date, math.MaxInt32-1), n(i32, 1)}},
		{op(gpu.OpSub), date, fails, []gpu.Scalar{n(date, 1-math.MaxInt32), n(i32, 1)}},
		{op(gpu.OpSub), date, n(date, 1-math.MaxInt32), []gpu.Scalar{n(date, 2-math.MaxInt32), n(i32, 1)}},
		{op(gpu.OpAdd), micros, inf(micros, 1), []gpu.Scalar{inf(micros, 1), n(i64, 1)}},
		{op(gpu.OpAdd), nanos, fails, []gpu.Scalar{n(nanos, math.MaxInt64-1), n(i64, 1)}},
		{op(gpu.OpAddMonths), micros, inf(micros, -1), []gpu.Scalar{inf(micros, -1), n(i64, math.MaxInt64)}},
		{gpu.Instr{Op: gpu.OpDateTrunc, N: int(gpu.PartYear)}, micros, inf(micros, 1), []gpu.Scalar{inf(micros, 1)}},
		{part(gpu.PartYear), i64, gpu.Null(i64), []gpu.Scalar{inf(date, 1)}},
		{part(gpu.PartHour), i64, gpu.Null(i64), []gpu.Scalar{inf(nanos, -1)}},
		{part(gpu.PartEpoch), f64, gpu.Null(f64), []gpu.Scalar{inf(micros, 1)}},
		{part(gpu.PartJulian), f64, gpu.Null(f64), []gpu.Scalar{inf(date, -1)}},

		{op(gpu.OpQuo), i32, fails, []gpu.Scalar{n(i32, 1), n(i32, 0)}},
		{op(gpu.OpMod), i32, fails, []gpu.Scalar{n(i32, 1), n(i32, 0)}},
		{op(gpu.OpMod), i64, n(i64, 0), []gpu.Scalar{n(i64, math.MinInt64), n(i64, -1)}},
		{op(gpu.OpQuo), i64, fails, []gpu.Scalar{n(i64, math.MinInt64), n(i64, -1)}},
		{op(gpu.OpQuo), huge, fails, []gpu.Scalar{is(huge, least), n(huge, -1)}},
		{op(gpu.OpQuo), f64, fails, []gpu.Scalar{gpu.FloatScalar(f64, 1), gpu.FloatScalar(f64, math.Copysign(0, -1))}},
		{op(gpu.OpQuo), f32, gpu.FloatScalar(f32, 2.75),
			[]gpu.Scalar{gpu.FloatScalar(f32, 5.5), gpu.FloatScalar(f32, 2)}},
		{op(gpu.OpDiv), f64, gpu.FloatScalar(f64, math.Inf(-1)),
			[]gpu.Scalar{gpu.FloatScalar(f64, -1), gpu.FloatScalar(f64, 0)}},
		{op(gpu.OpPow), f64, gpu.FloatScalar(f64, 1e-320),
			[]gpu.Scalar{gpu.FloatScalar(f64, 1e-320), gpu.FloatScalar(f64, 1)}},
		{part(gpu.PartEpoch), f64, gpu.FloatScalar(f64, -9223372022399.998),
			[]gpu.Scalar{n(gpu.TimestampOf(gpu.Millisecond, false), -9223372022399999)}},
		{op(gpu.OpNeg), huge, fails, []gpu.Scalar{is(huge, least)}},
		{op(gpu.OpAbs), huge, fails, []gpu.Scalar{is(huge, least)}},
		{op(gpu.OpNeg), huge, is(huge, greatest.Neg()), []gpu.Scalar{is(huge, greatest)}},
		{op(gpu.OpSign), gpu.Of(gpu.Int8), n(gpu.Of(gpu.Int8), -1), []gpu.Scalar{is(huge, least)}},
		{gpu.Instr{Op: gpu.OpRound, N: -2}, i32, n(i32, -200), []gpu.Scalar{n(i32, -150)}},
		{gpu.Instr{Op: gpu.OpRound, N: -1}, i32, fails, []gpu.Scalar{n(i32, math.MaxInt32)}},
		{gpu.Instr{Op: gpu.OpRound, N: -309}, f64, gpu.FloatScalar(f64, 0),
			[]gpu.Scalar{gpu.FloatScalar(f64, -1.7e308)}},
		{gpu.Instr{Op: gpu.OpRound, N: -308}, f64, gpu.FloatScalar(f64, 1.7e308),
			[]gpu.Scalar{gpu.FloatScalar(f64, 1.7e308)}},
		{gpu.Instr{Op: gpu.OpRound, N: -309}, f64, gpu.FloatScalar(f64, math.Inf(1)),
			[]gpu.Scalar{gpu.FloatScalar(f64, math.Inf(1))}},

		{cast, f64, gpu.FloatScalar(f64, 90071992547409.93), []gpu.Scalar{decimal(18, 2, "9007199254740993")}},
		{cast, f64, gpu.FloatScalar(f64, 9007199254740994), []gpu.Scalar{decimal(18, 1, "90071992547409931")}},
		{cast, f64, gpu.FloatScalar(f64, 9007199254740992), []gpu.Scalar{decimal(18, 1, "90071992547409930")}},
		{cast, f64, gpu.FloatScalar(f64, 0.3), []gpu.Scalar{decimal(38, 38, "30000000000000000000000000000000000000")}},
		{cast, f64, gpu.FloatScalar(f64, -1e-38), []gpu.Scalar{decimal(38, 38, "-1")}},
		{cast, f64, gpu.FloatScalar(f64, 1.7014118346046923e38), []gpu.Scalar{is(huge, greatest)}},
		{cast, f64, gpu.FloatScalar(f64, -0x1p127), []gpu.Scalar{is(huge, least)}},
		{cast, huge, is(huge, least), []gpu.Scalar{gpu.FloatScalar(f64, -0x1p127)}},
		{cast, huge, fails, []gpu.Scalar{gpu.FloatScalar(f64, 0x1p127)}},
		// its last digit decides between two floats
		{cast, f32, gpu.FloatScalar(f32, 9007200328482816), []gpu.Scalar{n(i64, 9007199791611905)}},
		{cast, f32, fails, []gpu.Scalar{gpu.FloatScalar(f64, 1e300)}},
		{cast, gpu.DecimalOf(34, 34), fails, []gpu.Scalar{gpu.FloatScalar(f64, 1)}},
		{cast, gpu.DecimalOf(19, 0), decimal(19, 0, "-9223372036854775808"), []gpu.Scalar{n(i64, math.MinInt64)}},

		{cast, text, str("119043504.0"), []gpu.Scalar{gpu.FloatScalar(f32, 119043504)}},
		{cast, text, str("2748897.75"), []gpu.Scalar{gpu.FloatScalar(f32, 2748897.75)}},
		{cast, text, str("463061060.0"), []gpu.Scalar{gpu.FloatScalar(f32, 463061056)}},
		{cast, text, str(".50"), []gpu.Scalar{decimal(2, 2, "50")}},
		{cast, text, str("-.05"), []gpu.Scalar{decimal(2, 2, "-5")}},
		{cast, text, str("0.5"), []gpu.Scalar{decimal(2, 1, "5")}},
		{cast, text, str("-170141183460469231731687303715884105728"), []gpu.Scalar{is(huge, least)}},
		{cast, huge, is(huge, least), []gpu.Scalar{str("-170141183460469231731687303715884105728")}},
		{cast, huge, fails, []gpu.Scalar{str("170141183460469231731687303715884105728")}},
		{cast, i64, n(i64, math.MaxInt64),
			[]gpu.Scalar{str("0.00000000000000000000000000000009223372036854775807e50")}},
		{cast, i64, n(i64, 255), []gpu.Scalar{str("0xf_f")}},
		{cast, i64, n(i64, 255), []gpu.Scalar{str("0xFf")}},
		{cast, i64, n(i64, 5), []gpu.Scalar{str("0b101")}},
		{cast, i64, fails, []gpu.Scalar{str(" 0xff")}},
		{cast, i64, fails, []gpu.Scalar{str("0x1:")}}, // the character behind 9
		{cast, huge, fails, []gpu.Scalar{str("0x?")}},
		{cast, i64, fails, []gpu.Scalar{str("0x1@")}}, // the character before A
		{cast, i64, fails, []gpu.Scalar{str("0xg")}},
		{cast, i64, fails, []gpu.Scalar{str("0x/")}}, // the character before 0
		{cast, i64, fails, []gpu.Scalar{str("0b2")}},
		{cast, i64, fails, []gpu.Scalar{str("\u00a05")}},
		{cast, f64, gpu.FloatScalar(f64, 1000), []gpu.Scalar{str("1_000")}},
		{cast, f64, fails, []gpu.Scalar{str("1__000")}},
		{cast, boolean, fails, []gpu.Scalar{str(" true")}},
		{cast, seconds, n(seconds, 1), []gpu.Scalar{str("1970-01-01 00:00:00.5")}},
		{cast, time, n(time, 3723e6), []gpu.Scalar{str("2020-01-01T01:02:03+05")}},
		{op(gpu.OpUpper), text, str("STRAẞE"), []gpu.Scalar{str("straße")}},
	} {
		t.Run(fmt.Sprint(c.in.Op, " ", c.in.N, " ", c.args, " to ", c.result), func(t *testing.T) {
			b := setUp(t, open)
			p := &gpu.Program{}
			var cols []gpu.Column
			c.in.Type, c.in.Mask, c.in.Text = c.result, -1, "the operation"
			for i, a := range c.args {
				p.Inputs, c.in.Args = append(p.Inputs, a.Type), append(c.in.Args, i)
				cols = append(cols, gpu.ColumnOf(a.Type, []gpu.Scalar{a}))
			}
			p.Code, p.Outputs = []gpu.Instr{c.in}, []int{len(p.Inputs)}
			in := b.up(cols...)
			if c.want.Type.Kind != gpu.Invalid {
				requireRows(t, []gpu.Scalar{c.want}, b.eval(p, in, 1)[0], "the row")
				return
			}
			_, err := b.failing(p, in, 1)
			require.ErrorContains(t, err, "in the operation: ")
			if c.in.Op == gpu.OpCast { // TRY_CAST makes it null
				p.Code[0].N = 1
				requireRows(t, []gpu.Scalar{gpu.Null(c.result)}, b.eval(p, in, 1)[0], "the row")
			}
		})
	}
}
