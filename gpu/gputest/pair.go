package gputest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/regex"
)

// Pair is a device under test and a reference device whose evaluator is correct by
// definition. Programs run on both, over columns of random values.
type Pair struct {
	t                 *testing.T
	device, reference gpu.Device
	Rnd               *rand.Rand
	// nonzero keeps zeros out of the values: for divisors.
	nonzero bool
	cases   int // cases so far, run or not
}

// NewPair takes ownership of two devices. At the end of the test it closes them and checks for
// leaks.
func NewPair(t *testing.T, device, reference gpu.Device) *Pair {
	p := &Pair{t: t, device: device, reference: reference, Rnd: rand.New(rand.NewPCG(Seed(t), 1))}
	t.Cleanup(func() {
		for _, d := range []gpu.Device{device, reference} {
			require.Empty(t, d.Budget().Leaks())
			require.NoError(t, d.Close())
		}
	})
	return p
}

// testPrograms compares the evaluator of a device with the reference, one operation at a time. It
// covers the limits of dates, decimals, casts and strings, which the references within this suite
// do not.
func testPrograms(t *testing.T, open, reference Open) {
	for name, test := range map[string]func(*Pair){
		"Casts": testCasts, "Arithmetic": testArithmetic, "Comparisons": testComparisons, "Dates": testDates,
		"Strings": testStrings, "Nested": testNested, "Regexps": testRegexps,
	} {
		t.Run(name, func(t *testing.T) { test(NewPair(t, open(t, 0), reference(t, 0))) })
	}
}

// Right evaluates on the reference.
func (p *Pair) Right(prog *gpu.Program, in []gpu.Column, n int) ([]gpu.Column, error) {
	q, err := p.reference.NewQueue("reference")
	require.NoError(p.t, err)
	l := p.reference.Budget().Lease("reference")
	out, err := q.Eval(l, prog, in, n)
	p.t.Cleanup(func() {
		gpu.ReleaseColumns(out)
		require.NoError(p.t, l.Close())
	})
	return out, err
}

// onDevice uploads the inputs, evaluates, and downloads the results, which stay until
// release.
func (p *Pair) onDevice(prog *gpu.Program, in []gpu.Column, n int) (out []gpu.Column, release func(), err error) {
	q, err := p.device.NewQueue("test")
	require.NoError(p.t, err)
	defer func() { _ = q.Close() }()
	l, down := p.device.Budget().Lease("test"), p.device.HostBudget().Lease("test")
	s, err := q.Upload(l, stride(in, n))
	require.NoError(p.t, err)
	out, err = q.Eval(l, prog, s.Cols, n)
	s.Release()
	if err != nil {
		require.Equal(p.t, err, q.Close())
		require.NoError(p.t, l.Close(), "a failed evaluation left memory behind")
		require.NoError(p.t, down.Close())
		return nil, func() {}, err
	}
	s, err = q.Download(down, stride(out, n))
	require.NoError(p.t, err)
	gpu.ReleaseColumns(out)
	require.NoError(p.t, s.Check())
	require.NoError(p.t, q.Close())
	return s.Cols, func() {
		s.Release()
		require.NoError(p.t, l.Close(), "an evaluation left memory behind")
		require.NoError(p.t, down.Close())
	}, nil
}

func stride(cols []gpu.Column, n int) *gpu.Stride {
	fields := make([]gpu.Field, len(cols))
	for i, c := range cols {
		fields[i] = gpu.Field{Name: fmt.Sprint("c", i), Type: c.Type, Nullable: true}
		cols[i] = c.Retain()
	}
	return &gpu.Stride{Schema: gpu.NewSchema(fields...), Cols: cols, Rows: n}
}

// tolerance is by how much floats may differ: in units in the last place, or absolutely.
type tolerance struct {
	ulps     int64
	absolute float64
}

// toleranceOf returns by how much the results of a program may differ. The device's exp, log and
// cbrt differ from the host's. The host's binary logarithms are inexact near 1, and so are its
// large powers with fractional exponents.
func toleranceOf(prog *gpu.Program) (t tolerance) {
	fractions := false // in exponents
	for _, in := range prog.Code {
		fractions = fractions || in.Op == gpu.OpConst && in.Value.Float != math.Trunc(in.Value.Float)
		switch {
		case in.Op == gpu.OpMath && gpu.MathFunc(in.N) != gpu.MathSqrt:
			t.ulps = max(t.ulps, 4)
			if f := gpu.MathFunc(in.N); f == gpu.MathLog2 || f >= gpu.MathSin {
				t.absolute = 1e-15
				if f == gpu.MathTan {
					t.ulps = 8
				}
				if f >= gpu.MathGamma { // the host's is inexact near its poles and zeros
					t.ulps = 1024
				}
			}
		case in.Op == gpu.OpAtan2:
			t.ulps = max(t.ulps, 4)
		case in.Op == gpu.OpPow && (in.Args[1] < len(prog.Inputs) || fractions):
			t.ulps = 1024
		}
	}
	return t
}

// Require runs a program on both devices and requires the same values, or the same error.
func (p *Pair) Require(prog *gpu.Program, in []gpu.Column, n int, what string) {
	p.t.Helper()
	within := toleranceOf(prog)
	want, wantErr := p.Right(prog, in, n)
	got, release, err := p.onDevice(prog, append([]gpu.Column(nil), in...), n)
	defer release()
	if wantErr != nil {
		require.EqualError(p.t, err, wantErr.Error(), what)
		return
	}
	require.NoError(p.t, err, what)
	require.Len(p.t, got, len(want), what)
	for k := range want {
		require.Equal(p.t, want[k].Type, got[k].Type, what)
		for i := range n {
			x, y := want[k].ScalarAt(i), got[k].ScalarAt(i)
			if !sameValue(x, y, within) {
				args := make([]gpu.Scalar, len(in))
				for a := range in {
					args[a] = in[a].ScalarAt(i)
				}
				require.Failf(p.t, "differs", "%s: output %d, row %d: %v, want %v (%q) of %v", what, k, i, y, x, x.Str,
					args)
			}
		}
	}
}

// sameValue compares bits. All NaNs are equal.
func sameValue(x, y gpu.Scalar, within tolerance) bool {
	if x.Valid != y.Valid || !x.Valid {
		return x.Valid == y.Valid
	}
	if !x.Type.IsFloat() {
		return x.Int == y.Int && x.Str == y.Str
	}
	if math.IsNaN(x.Float) || math.IsNaN(y.Float) {
		return math.IsNaN(x.Float) && math.IsNaN(y.Float)
	}
	if within.absolute > 0 && math.Abs(x.Float-y.Float) <= within.absolute {
		return true
	}
	if math.Signbit(x.Float) != math.Signbit(y.Float) {
		return false
	}
	d := int64(math.Float64bits(x.Float)) - int64(math.Float64bits(y.Float))
	if x.Type.Kind == gpu.Float32 {
		d = int64(math.Float32bits(float32(x.Float))) - int64(math.Float32bits(float32(y.Float)))
	}
	return max(d, -d) <= within.ulps
}

func narrow(t gpu.Type) gpu.Type {
	t.Wide = false
	return t
}

var (
	textType     = gpu.Of(gpu.String)
	integerTypes = []gpu.Type{gpu.Of(gpu.Int8), gpu.Of(gpu.Int16), gpu.Of(gpu.Int32), gpu.Of(gpu.Int64),
		gpu.Of(gpu.Uint8), gpu.Of(gpu.Uint16), gpu.Of(gpu.Uint32), gpu.Of(gpu.Uint64), gpu.Of(gpu.HugeInt)}
	floatTypes   = []gpu.Type{gpu.Of(gpu.Float32), gpu.Of(gpu.Float64)}
	decimalTypes = []gpu.Type{gpu.DecimalOf(4, 1), gpu.DecimalOf(15, 2), gpu.DecimalOf(18, 0),
		narrow(gpu.DecimalOf(38, 2)),
		gpu.DecimalOf(38, 4), gpu.DecimalOf(38, 0), gpu.DecimalOf(38, 38)}
	timeTypes = []gpu.Type{gpu.TimeOf(gpu.Second), gpu.TimeOf(gpu.Millisecond), gpu.TimeOf(gpu.Microsecond),
		gpu.TimeOf(gpu.Nanosecond)}
	momentTypes = []gpu.Type{gpu.TimestampOf(gpu.Second, false), gpu.TimestampOf(gpu.Millisecond, true),
		gpu.TimestampOf(gpu.Microsecond, false), gpu.TimestampOf(gpu.Nanosecond, true)}
)

func join(lists ...[]gpu.Type) (all []gpu.Type) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Spread is the range of random values.
type Spread int

// The spreads of values.
const (
	Small Spread = iota // arithmetic rarely overflows
	Wild                // the whole range of the type, often its limits
)

// value draws a value of a type.
func (p *Pair) value(t gpu.Type, s Spread) gpu.Scalar {
	for {
		if v := p.anyValue(t, s); !p.nonzero || v.Int.Sign() != 0 || v.Float != 0 {
			return v
		}
	}
}

func (p *Pair) anyValue(t gpu.Type, s Spread) gpu.Scalar {
	r := p.Rnd
	switch {
	case t.Kind == gpu.Bool:
		return gpu.BoolScalar(r.IntN(2) == 0)
	case t.IsFloat():
		special := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1e-320, 0.5, -1.5, 2.5,
			1e15, 1e16, 1e-4, 9.5e-5, 127.5, 1e300, 9223372036854775807, 1 << 62}
		f := float64(r.IntN(2000)-1000) / 8
		if t.Kind == gpu.Float32 && r.IntN(4) == 0 {
			f = r.Float64() * math.Pow(10, float64(r.IntN(14)-3)) // no more digits than a text shows
		} else if s == Wild {
			f = [...]float64{math.Float64frombits(r.Uint64()), float64(math.Float32frombits(r.Uint32())),
				special[r.IntN(len(special))],
				float64(r.Int64()-1<<62) / math.Pow(10, float64(r.IntN(20)))}[r.IntN(4)]
		}
		if t.Kind == gpu.Float32 {
			f = float64(float32(f))
		}
		return gpu.FloatScalar(t, f)
	case t.Kind == gpu.String:
		return gpu.StringScalar(p.text(s))
	case t.Kind == gpu.Binary:
		b := make([]byte, r.IntN(6))
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		return gpu.Scalar{Type: t, Valid: true, Str: string(b)}
	case t.IsNested():
		return gpu.Scalar{Type: t, Valid: true, Str: string(p.nested(t, s))}
	}
	if inf := t.Infinity(); inf != 0 && r.IntN(40) == 0 {
		return gpu.IntScalar(t, [...]int64{inf, -inf}[r.IntN(2)])
	}
	lo, hi := t.Bounds()
	if t.Kind == gpu.Time {
		lo, hi = gpu.Int128{}, gpu.Int128From(86400*t.Unit.PerSecond()-1)
	}
	v := gpu.Int128From(int64(r.IntN(21) - 10))
	if s == Wild || t.Kind == gpu.Time || t.Kind == gpu.Date || t.Kind == gpu.Timestamp {
		v = gpu.Int128{Lo: r.Uint64(), Hi: int64(r.Uint64())}
		shift := r.IntN(127)
		if shift >= 64 {
			v = gpu.Int128{Lo: uint64(v.Hi >> (shift - 64)), Hi: v.Hi >> 63}
		} else {
			v = gpu.Int128{Lo: v.Lo>>shift | uint64(v.Hi)<<(64-shift), Hi: v.Hi >> shift}
		}
	}
	if s == Wild && r.IntN(6) == 0 {
		v = [...]gpu.Int128{lo, hi}[r.IntN(2)]
	}
	if s == Small && (t.Kind == gpu.Date || t.Kind == gpu.Timestamp) {
		v = gpu.Int128From(int64(v.Lo) % (86400 * 365 * 60 * t.Unit.PerSecond()))
		if t.Kind == gpu.Date {
			v = gpu.Int128From(int64(v.Lo) % 40000)
		}
	}
	if v.Less(lo) || hi.Less(v) {
		span, _ := hi.Sub(lo)
		if span.Sign() <= 0 { // wider than 127 bits
			return gpu.Scalar{Type: t, Valid: true, Int: lo}
		}
		_, v = v.QuoRem(span)
		if v.Sign() < 0 {
			v = v.Neg()
		}
		v, _ = lo.Add(v)
	}
	return gpu.Scalar{Type: t, Valid: true, Int: v}
}

var snippets = []string{"", " ", "a", "ab", "abc", "ä", "ß", "İ", "ſ", "Σ", "ς", "😀", "日本", "%", "_", "\\", "x", "\xff",
	"\xe2\x82", "\u00a0", "\u2003", "Å", "\ufffd", "é", "\xc3"}

// text draws a string: words, or a number, date or time, sometimes damaged.
func (p *Pair) text(s Spread) string {
	r := p.Rnd
	if s == Small {
		out := ""
		for range r.IntN(6) {
			out += snippets[r.IntN(len(snippets))]
		}
		return out
	}
	kinds := join(integerTypes, floatTypes, decimalTypes, timeTypes, momentTypes, []gpu.Type{gpu.Of(gpu.Date), boolean})
	out := ""
	switch r.IntN(8) {
	case 0:
		out = []string{"true", "YES", "n", "0", "yeſ", "F", "nan", "-Infinity", "inf", "+1", "1e5", "-.5", "1_000",
			"1__0", "0x10", "1e", "12e-3",
			"2020-02-30", "2020-02-29 24:00:00", "2020-02-29T12:30", "0044-03-15 (BC)", "-1-1-1", "24:00:00",
			"23:59:60", "1:2:3.4567890129",
			"2021-01-01 00:00:00 +05:30", "2021-01-01 00:00:00Z", "2021/1/2", "\\x41b", "\\x4", "a\\\\",
			"99999999999999999999999999999999999999",
			"170141183460469231731687303715884105728", "0.00000000000000000000000000000000000000000001", "1e38",
			"1e-50", "5e-1",
			"-170141183460469231731687303715884105728", "0.00000000000000000000000000000009223372036854775807e50",
			"0b101", "0xfF_fF", "0xg", "0x_1",
			"infinity", "-inf", "Epoch", "2020 01 02", "2020\\1\\2 10:11", "2020-01-02T 10:11:12.9999999 +01:30:15",
			"10:11 Z", "2020-01-01 24:00:00",
			"1_0.5_0e1_0", "1_.5", "+nan", "-NaN", "2020-01-02 (bc) 1:2"}[r.IntN(56)]
	case 1:
		return p.text(Small)
	case 2:
		out = fmt.Sprintf("%d.%de%d", r.IntN(1000), r.Uint64(), r.IntN(60)-30)
	default:
		out = p.value(kinds[r.IntN(len(kinds))], Spread(r.IntN(2))).String()
	}
	switch r.IntN(10) {
	case 0:
		out = " " + out + "\t"
	case 1:
		out = "\u2003" + out
	case 2:
		if len(out) > 0 {
			k := r.IntN(len(out))
			out = out[:k] + snippets[r.IntN(len(snippets))] + out[k:]
		}
	}
	return out
}

// Column draws a column. A coded column has a dictionary with some values that no row
// uses.
func (p *Pair) Column(t gpu.Type, n int, s Spread, nulls float64, coded bool) gpu.Column {
	values := make([]gpu.Scalar, n)
	if coded {
		dict := make([]gpu.Scalar, 1+n/8)
		for i := range dict {
			dict[i] = p.value(t, s)
		}
		codes, valid := make([]int32, n), make([]gpu.Scalar, n)
		for i := range codes {
			codes[i] = int32(p.Rnd.IntN(len(dict)))
			valid[i] = p.value(t, s)
			if valid[i].Valid = p.Rnd.Float64() >= nulls; !valid[i].Valid {
				codes[i] = nullCode(p.Rnd.Uint64())
			}
		}
		return gpu.Column{Type: t, Len: n, Data: gpu.WrapBytes(gpu.BytesOf(codes)), Valid: gpu.ColumnOf(t, valid).Valid,
			Dict: &gpu.Dictionary{Values: gpu.ColumnOf(t, dict)}}
	}
	for i := range values {
		values[i] = p.value(t, s)
		values[i].Valid = p.Rnd.Float64() >= nulls
	}
	return gpu.ColumnOf(t, values)
}

// check runs one instruction over random columns of the given types: with small and wild values,
// with nulls, coded, with a constant, and under a mask.
func (p *Pair) check(in gpu.Instr, types ...gpu.Type) {
	p.t.Helper()
	if p.cases++; !Takes(Thin, p.cases) {
		return
	}
	in.Mask, in.Text = -1, "the test"
	n := []int{1, 65, 300, 2500}[p.Rnd.IntN(4)]
	for variant := range 6 {
		s, coded := Spread(variant%2), variant == 2 || variant == 3
		prog := &gpu.Program{Inputs: append([]gpu.Type{boolean}, types...)}
		cols := []gpu.Column{p.Column(boolean, n, s, 0.2, false)}
		in.Args = nil
		for k, t := range types {
			cols = append(cols, p.Column(t, n, s, 0.2*float64(variant/2%2), coded))
			in.Args = append(in.Args, 1+k)
		}
		if variant == 4 {
			in.Mask = 0
		}
		if variant == 5 {
			prog.Code = append(prog.Code, gpu.Instr{Op: gpu.OpConst, Type: types[len(types)-1],
				Value: p.value(types[len(types)-1], s), Mask: -1})
			in.Args[len(types)-1] = len(prog.Inputs)
		}
		prog.Outputs = []int{len(prog.Inputs) + len(prog.Code)}
		prog.Code = append(prog.Code, in)
		p.Require(prog, cols, n, fmt.Sprintf("operation %d (N=%d, value %q) on %v to %v (wide=%t), variant %d, %d rows",
			in.Op, in.N, in.Value.Str, types, in.Type, in.Type.Wide, variant, n))
		in.Mask = -1
	}
}

func testCasts(p *Pair) {
	basic := join(integerTypes, floatTypes, decimalTypes, []gpu.Type{boolean})
	temporal := join(timeTypes, momentTypes, []gpu.Type{gpu.Of(gpu.Date)})
	cast := func(from, to gpu.Type) {
		for try := range 2 {
			p.check(gpu.Instr{Op: gpu.OpCast, Type: to, N: try}, from)
		}
	}
	for _, from := range basic {
		for _, to := range basic {
			if from != to {
				cast(from, to)
			}
		}
	}
	for _, typ := range join(basic, temporal, []gpu.Type{gpu.Of(gpu.Binary)}) {
		cast(typ, textType)
		cast(textType, typ)
	}
	for _, from := range temporal {
		for _, to := range temporal {
			switch {
			case from.Kind == gpu.Date && to.Kind != gpu.Timestamp, from.Kind == gpu.Time && to.Kind != gpu.Time,
				from == to:
			default:
				cast(from, to)
			}
		}
		cast(from, gpu.Of(gpu.Int64))
	}
}

func testArithmetic(p *Pair) {
	for _, typ := range join(integerTypes, decimalTypes) {
		for _, op := range []gpu.Op{gpu.OpAdd, gpu.OpSub, gpu.OpMul, gpu.OpQuo, gpu.OpMod} {
			result := typ
			if op == gpu.OpMul {
				result.Scale = min(2*typ.Scale, gpu.MaxPrecision)
			}
			p.check(gpu.Instr{Op: op, Type: result}, typ, typ)
			p.nonzero = true
			p.check(gpu.Instr{Op: op, Type: result}, typ, typ)
			p.nonzero = false
		}
		for _, op := range []gpu.Op{gpu.OpNeg, gpu.OpAbs} {
			p.check(gpu.Instr{Op: op, Type: typ}, typ)
		}
		p.check(gpu.Instr{Op: gpu.OpSign, Type: gpu.Of(gpu.Int8)}, typ)
	}
	for _, typ := range integerTypes {
		for op := gpu.OpBitAnd; op <= gpu.OpGCD; op++ {
			if op == gpu.OpBitCount {
				p.check(gpu.Instr{Op: op, Type: gpu.Of(gpu.Int16)}, typ)
			} else {
				p.check(gpu.Instr{Op: op, Type: typ}, typ, typ)
			}
		}
		for _, n := range []int{-1, -2, -20, -39} {
			p.check(gpu.Instr{Op: gpu.OpRound, Type: typ, N: n}, typ)
		}
	}
	for _, typ := range decimalTypes {
		for _, op := range []gpu.Op{gpu.OpRound, gpu.OpFloor, gpu.OpCeil, gpu.OpTrunc} {
			for _, n := range []int{0, 1, 2, -1, -3, -20} {
				result := typ
				result.Scale = uint8(min(max(n, 0), int(typ.Scale)))
				p.check(gpu.Instr{Op: op, Type: result, N: n}, typ)
			}
		}
	}
	for _, typ := range floatTypes {
		for _, op := range []gpu.Op{gpu.OpAdd, gpu.OpSub, gpu.OpMul, gpu.OpDiv, gpu.OpQuo, gpu.OpMod} {
			p.check(gpu.Instr{Op: op, Type: typ}, typ, typ)
		}
		p.check(gpu.Instr{Op: gpu.OpMod, Type: typ, N: gpu.ZeroFails}, typ, typ)
		p.nonzero = true
		p.check(gpu.Instr{Op: gpu.OpQuo, Type: typ}, typ, typ)
		p.check(gpu.Instr{Op: gpu.OpMod, Type: typ, N: gpu.ZeroFails}, typ, typ)
		p.nonzero = false
		p.check(gpu.Instr{Op: gpu.OpPow, Type: typ}, typ, typ)
		p.check(gpu.Instr{Op: gpu.OpAtan2, Type: typ}, typ, typ)
		p.check(gpu.Instr{Op: gpu.OpNextAfter, Type: typ}, typ, typ)
		for _, power := range []float64{-3, 2, 7, 100} {
			p.checkPower(typ, power)
		}
		p.check(gpu.Instr{Op: gpu.OpSign, Type: gpu.Of(gpu.Int8)}, typ)
		for _, op := range []gpu.Op{gpu.OpNeg, gpu.OpAbs, gpu.OpFloor, gpu.OpCeil, gpu.OpTrunc} {
			p.check(gpu.Instr{Op: op, Type: typ}, typ)
		}
		for _, n := range []int{0, 2, -2, 17, -308, -309, -400, 400} {
			p.check(gpu.Instr{Op: gpu.OpRound, Type: typ, N: n}, typ)
		}
		for f := gpu.MathSqrt; f <= gpu.MathLgamma; f++ {
			p.check(gpu.Instr{Op: gpu.OpMath, Type: typ, N: int(f)}, typ)
		}
	}
}

// checkPower raises values to a whole power. All bits must be equal.
func (p *Pair) checkPower(typ gpu.Type, power float64) {
	prog := &gpu.Program{Inputs: []gpu.Type{typ}, Outputs: []int{2}, Code: []gpu.Instr{
		{Op: gpu.OpConst, Type: typ, Value: gpu.FloatScalar(typ, power), Mask: -1},
		{Op: gpu.OpPow, Type: typ, Args: []int{0, 1}, Mask: -1}}}
	const n = 300
	p.Require(prog, []gpu.Column{p.Column(typ, n, Wild, 0, false)}, n, fmt.Sprint("power ", power))
	p.Require(prog, []gpu.Column{p.Column(typ, n, Small, 0, false)}, n, fmt.Sprint("power ", power))
}

func testComparisons(p *Pair) {
	all := join(integerTypes, floatTypes, decimalTypes, timeTypes, momentTypes,
		[]gpu.Type{gpu.Of(gpu.Date), boolean, textType, gpu.Of(gpu.Binary)})
	for _, typ := range all {
		for op := gpu.OpEq; op <= gpu.OpNotDistinct; op++ {
			p.check(gpu.Instr{Op: op, Type: boolean}, typ, typ)
		}
		p.check(gpu.Instr{Op: gpu.OpSelect, Type: typ}, boolean, typ, typ)
		p.check(gpu.Instr{Op: gpu.OpIsNull, Type: boolean}, typ)
		p.check(gpu.Instr{Op: gpu.OpIsNotNull, Type: boolean}, typ)
		for _, size := range []int{0, 1, 9, 100} {
			set := make([]gpu.Scalar, size)
			for i := range set {
				set[i] = p.value(typ, Small)
			}
			p.check(gpu.Instr{Op: gpu.OpIn, Type: boolean, Set: set}, typ)
		}
	}
	wide, slim := gpu.DecimalOf(38, 2), narrow(gpu.DecimalOf(38, 2))
	p.check(gpu.Instr{Op: gpu.OpLt, Type: boolean}, wide, slim)
	for _, result := range []gpu.Type{wide, slim} {
		p.check(gpu.Instr{Op: gpu.OpSelect, Type: result}, boolean, wide, slim)
		p.check(gpu.Instr{Op: gpu.OpSelect, Type: result}, boolean, slim, wide)
	}
	for _, op := range []gpu.Op{gpu.OpAnd, gpu.OpOr} {
		p.check(gpu.Instr{Op: op, Type: boolean}, boolean, boolean)
		p.check(gpu.Instr{Op: op, Type: boolean}, boolean, boolean, boolean, boolean)
	}
	p.check(gpu.Instr{Op: gpu.OpNot, Type: boolean}, boolean)
}

func testDates(p *Pair) {
	date, days := gpu.Of(gpu.Date), gpu.Of(gpu.Int32)
	for _, op := range []gpu.Op{gpu.OpAdd, gpu.OpSub} {
		p.check(gpu.Instr{Op: op, Type: date}, date, days)
		for _, typ := range join(timeTypes, momentTypes) {
			p.check(gpu.Instr{Op: op, Type: typ}, typ, gpu.Of(gpu.Int64))
		}
	}
	for part := gpu.PartMicrosecond; part <= gpu.PartJulian; part++ {
		result := gpu.Of(gpu.Int64)
		if part >= gpu.PartEpoch {
			result = gpu.Of(gpu.Float64)
		}
		for _, typ := range join(timeTypes, momentTypes, []gpu.Type{date}) {
			p.check(gpu.Instr{Op: gpu.OpExtract, Type: result, N: int(part)}, typ)
		}
		if part <= gpu.PartMillennium {
			for _, typ := range momentTypes {
				p.check(gpu.Instr{Op: gpu.OpDateTrunc, Type: typ, N: int(part)}, typ)
			}
		}
	}
	p.check(gpu.Instr{Op: gpu.OpMakeDate, Type: date}, gpu.Of(gpu.Int64), gpu.Of(gpu.Int64), gpu.Of(gpu.Int64))
	for range 12 {
		testParseTime(p)
	}
	p.check(gpu.Instr{Op: gpu.OpAssert, Type: boolean, Value: gpu.StringScalar("the message")}, boolean)
	p.check(gpu.Instr{Op: gpu.OpAssert, Type: boolean}, boolean, gpu.Of(gpu.String))
	for _, typ := range momentTypes {
		p.check(gpu.Instr{Op: gpu.OpAddMonths, Type: typ}, typ, gpu.Of(gpu.Int64))
	}
}

// nested draws the encoding of a nested value.
func (p *Pair) nested(t gpu.Type, s Spread) []byte {
	fields := t.Children()
	if t.Kind != gpu.Struct {
		element := gpu.Field{Type: t.Element()}
		fields = make([]gpu.Field, p.Rnd.IntN(4))
		for i := range fields {
			fields[i] = element
		}
	}
	b := gpu.OpenNested(nil)
	for _, f := range fields {
		v := gpu.Null(f.Type)
		if p.Rnd.IntN(5) > 0 {
			v = p.value(f.Type, s)
		}
		b = gpu.AppendScalar(b, v)
	}
	return gpu.CloseNested(b)
}

func testNested(p *Pair) {
	position, encoding := gpu.Of(gpu.Int64), gpu.Of(gpu.Binary)
	for _, typ := range join(integerTypes, floatTypes, decimalTypes, timeTypes, momentTypes,
		[]gpu.Type{gpu.Of(gpu.Date), boolean, textType, encoding, gpu.ListOf(textType)}) {
		p.check(gpu.Instr{Op: gpu.OpNest, Type: encoding}, typ)
		list := gpu.ListOf(typ)
		p.check(gpu.Instr{Op: gpu.OpElement, Type: gpu.Nestable(typ)}, list, position)
		p.check(gpu.Instr{Op: gpu.OpCanonical, Type: list}, list)
		p.check(gpu.Instr{Op: gpu.OpCountElements, Type: position}, list)
		p.check(gpu.Instr{Op: gpu.OpSliceElements, Type: list}, list, position, position)
		p.check(gpu.Instr{Op: gpu.OpJoinElements, Type: list}, list, list)
		p.check(gpu.Instr{Op: gpu.OpFlattenElements, Type: list}, gpu.ListOf(list))
		entry := gpu.StructOf(gpu.Field{Name: "key", Type: textType}, gpu.Field{Name: "value", Type: typ})
		p.check(gpu.Instr{Op: gpu.OpPluckElements, Type: list, N: 2}, gpu.ListOf(entry))
		prog := &gpu.Program{Inputs: []gpu.Type{gpu.MapOf(typ, textType), typ}, Outputs: []int{3, 4}, Code: []gpu.Instr{
			{Op: gpu.OpNest, Type: encoding, Args: []int{1}, Mask: -1},
			{Op: gpu.OpFindElement, Type: position, Args: []int{0, 2}, Mask: -1, N: 1},
			{Op: gpu.OpFindElement, Type: position, Args: []int{0, 2}, Mask: -1}}}
		p.Require(prog, []gpu.Column{p.Column(prog.Inputs[0], 700, Small, 0.2, false),
			p.Column(typ, 700, Small, 0.2, true)}, 700, fmt.Sprint("an element of a map from ", typ))
	}
}

func testStrings(p *Pair) {
	length := gpu.Of(gpu.Int64)
	for range 3 {
		for _, op := range []gpu.Op{gpu.OpLower, gpu.OpUpper, gpu.OpReverse, gpu.OpStripAccents} {
			p.check(gpu.Instr{Op: op, Type: textType}, textType)
		}
		p.check(gpu.Instr{Op: gpu.OpLength, Type: length}, textType)
		p.check(gpu.Instr{Op: gpu.OpLength, Type: length}, gpu.Of(gpu.Binary))
		p.check(gpu.Instr{Op: gpu.OpPosition, Type: length}, textType, textType)
		for op := gpu.OpStartsWith; op <= gpu.OpContains; op++ {
			p.check(gpu.Instr{Op: op, Type: boolean}, textType, textType)
		}
		p.check(gpu.Instr{Op: gpu.OpSubstring, Type: textType}, textType, length)
		p.check(gpu.Instr{Op: gpu.OpSubstring, Type: textType}, textType, length, length)
		for sides := range 4 {
			p.check(gpu.Instr{Op: gpu.OpTrim, Type: textType, N: sides}, textType, textType)
		}
		p.check(gpu.Instr{Op: gpu.OpConcat, Type: textType}, textType, textType)
		p.check(gpu.Instr{Op: gpu.OpConcat, Type: textType}, textType, textType, textType, textType)
		p.check(gpu.Instr{Op: gpu.OpReplace, Type: textType}, textType, textType, textType)
		p.check(gpu.Instr{Op: gpu.OpTranslate, Type: textType}, textType, textType, textType)
		p.check(gpu.Instr{Op: gpu.OpSplitPart, Type: textType}, textType, textType, length)
		p.check(gpu.Instr{Op: gpu.OpChr, Type: textType}, length)
		p.check(gpu.Instr{Op: gpu.OpLength, Type: length, N: 1}, textType)
		p.check(gpu.Instr{Op: gpu.OpCodePoint, Type: gpu.Of(gpu.Int32), N: -1}, textType)
		for d := gpu.MD5; d <= gpu.SHA256; d++ {
			p.check(gpu.Instr{Op: gpu.OpDigest, Type: textType, N: int(d)}, textType)
			p.check(gpu.Instr{Op: gpu.OpDigest, Type: textType, N: int(d)}, gpu.Of(gpu.Binary))
		}
		for _, op := range []gpu.Op{gpu.OpLike, gpu.OpILike} {
			p.check(gpu.Instr{Op: op, Type: boolean}, textType, textType)
		}
		for e := gpu.Raw; e <= gpu.FromURL; e++ {
			for _, to := range []gpu.Type{textType, gpu.Of(gpu.Binary)} {
				p.check(gpu.Instr{Op: gpu.OpEncode, Type: to, N: int(e)}, textType)
				p.check(gpu.Instr{Op: gpu.OpEncode, Type: to, N: int(e)}, gpu.Of(gpu.Binary))
			}
		}
		for d := gpu.Levenshtein; d <= gpu.JaroWinkler; d++ {
			result := length
			if d > gpu.Hamming {
				result = gpu.Of(gpu.Float64)
			}
			p.check(gpu.Instr{Op: gpu.OpDistance, Type: result, N: int(d)}, textType, textType)
		}
		for _, base := range []int{2, 7, 16, 36} {
			for _, typ := range []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.Uint64), gpu.Of(gpu.HugeInt)} {
				p.check(gpu.Instr{Op: gpu.OpDigits, Type: textType, N: base}, typ)
			}
		}
	}
	hash := gpu.Of(gpu.Uint64)
	for _, typ := range join(integerTypes, floatTypes, decimalTypes, timeTypes, momentTypes,
		[]gpu.Type{gpu.Of(gpu.Date), boolean, textType, gpu.Of(gpu.Binary)}) {
		p.check(gpu.Instr{Op: gpu.OpHash, Type: hash}, typ)
		prog := &gpu.Program{Inputs: []gpu.Type{typ, typ}, Outputs: []int{3}, Code: []gpu.Instr{
			{Op: gpu.OpHash, Type: hash, Args: []int{0}, Mask: -1},
			{Op: gpu.OpHash, Type: hash, Args: []int{1, 2}, Mask: -1}}}
		p.Require(prog, []gpu.Column{p.Column(typ, 700, Wild, 0.2, true), p.Column(typ, 700, Small, 0.2, false)}, 700,
			fmt.Sprint("hash of two ", typ))
	}
	for range 150 {
		pattern := ""
		for range p.Rnd.IntN(6) {
			pattern += append(snippets, "%", "%", "_", "%")[p.Rnd.IntN(len(snippets)+4)]
		}
		escape := []int{0, '\\', 'x'}[p.Rnd.IntN(3)]
		for _, op := range []gpu.Op{gpu.OpLike, gpu.OpILike} {
			p.check(gpu.Instr{Op: op, Type: boolean, Value: gpu.StringScalar(pattern), N: escape}, textType)
		}
	}
}

// testRegexps runs the operations with random regular expressions. The last patterns have no
// deterministic automaton.
func testRegexps(p *Pair) {
	parts := append([]string{".", "[a-cä]", "[^x]", "^", "$", `\b`, "(a|ab)", "(b*)", "|", "(?:x|é)+", "1?", `\pL{1,2}`,
		"", "*?", "(?m:$)", "[ab]{20}b", "^.{13,}Y?.{20}"}, snippets...)
	for range 60 {
		pattern := ""
		for range 1 + p.Rnd.IntN(5) {
			pattern += parts[p.Rnd.IntN(len(parts))]
		}
		options := p.Rnd.IntN(16)
		if _, err := regex.Compile(pattern, regex.Options(options)); err != nil {
			continue
		}
		v := gpu.StringScalar(pattern)
		p.check(gpu.Instr{Op: gpu.OpRegexp, Type: boolean, Value: v, N: options}, textType)
		p.check(gpu.Instr{Op: gpu.OpRegexpExtract, Type: textType, Value: v, N: options | p.Rnd.IntN(3)<<8}, textType)
		p.check(gpu.Instr{Op: gpu.OpRegexpReplace, Type: textType, Value: v, N: options | p.Rnd.IntN(2)<<8}, textType,
			textType)
	}
}

// testParseTime parses text by a random format. Half of the text is in that format.
func testParseTime(p *Pair) {
	specs := [][2]string{{"%Y", "2024"}, {"%Y", "0"}, {"%y", "68"}, {"%m", "2"}, {"%m", "12"}, {"%d", "29"},
		{"%j", "366"}, {"%H", "7"}, {"%I", "12"}, {"%p", "pm"}, {"%p", "Am"},
		{"%M", "59"}, {"%S", "60"}, {"%f", "5"}, {"%g", "123"}, {"%n", "123456789"}, {"%b", "feb"}, {"%B", "March"},
		{"%a", "Mon"}, {"%A", "friday"}, {"%z", "+02"}, {"%z", "-0230"}, {"%z", "+01:30:15"}, {" ", "  "}, {"T", "T"},
		{"%%", "%"}}
	format := ""
	var values []gpu.Scalar
	var spellings []string
	for range 1 + p.Rnd.IntN(5) {
		s := specs[p.Rnd.IntN(len(specs))]
		format += s[0] + "-"
		spellings = append(spellings, s[1])
	}
	if _, err := gpu.ParseTimeFormat(format); err != nil {
		return
	}
	for k := range 700 {
		text := ""
		for _, s := range spellings {
			text += s + "-"
		}
		switch {
		case k%5 == 0:
			text = []string{"infinity", " -Infinity ", "epoch", "epoch 1", "", "2024-"}[p.Rnd.IntN(6)]
		case k%2 == 0:
			at := p.Rnd.IntN(len(text))
			text = text[:at] + []string{"", "9", " ", "x", "-", "\xff"}[p.Rnd.IntN(6)] + text[at+p.Rnd.IntN(2):]
		}
		values = append(values, gpu.StringScalar(text))
	}
	for _, typ := range []gpu.Type{gpu.TimestampOf(gpu.Microsecond, false), gpu.TimestampOf(gpu.Nanosecond, false),
		gpu.TimestampOf(gpu.Microsecond, true)} {
		for try := range 2 {
			prog := &gpu.Program{Inputs: []gpu.Type{textType}, Outputs: []int{1}, Code: []gpu.Instr{
				{Op: gpu.OpParseTime, Type: typ, N: try, Args: []int{0}, Value: gpu.StringScalar(format), Mask: -1,
					Text: "strptime(x)"}}}
			p.Require(prog, []gpu.Column{gpu.ColumnOf(textType, values)}, len(values), "format "+format)
		}
	}
}
