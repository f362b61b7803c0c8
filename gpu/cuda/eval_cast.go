package cuda

import "github.com/gstream/gstream/gpu"

// cast runs OpCast.
func (e *evaluation) cast(i int, x *register) register {
	from, to := x.typ, e.p.Code[i].Type
	switch {
	case from.Kind == gpu.String && to.Kind == gpu.String, from.Kind == gpu.Bool && to.Kind == gpu.Bool:
		return *x
	case from.Kind == gpu.String:
		return e.parse(i, x)
	case to.Kind == gpu.String:
		return e.format(i, x)
	}
	out := e.result(to, x.valid)
	a := e.args(&out, x)
	switch {
	case to.Kind == gpu.Bool && from.IsFloat():
		e.rows("eval_cast_float_to_bool", a)
	case to.Kind == gpu.Bool:
		e.rows("eval_move_bits", a)
	case from.IsFloat() && to.IsFloat():
		e.checked(i, &out, &a, false)
		e.rows("eval_cast_float", a)
	case from.IsFloat():
		a.scale = gpu.Pow10(int(to.Scale)).Float64()
		if to.Kind == gpu.Decimal {
			a.mode = 1
		}
		e.checked(i, &out, &a, false)
		e.rows("eval_cast_float_to_int", a)
	case to.IsFloat():
		a.p = int64(from.Scale)
		if to.Kind == gpu.Float32 && from.IsInteger() && !from.Wide {
			a.mode = 1
		}
		e.rows("eval_cast_int_to_float", a)
	default:
		e.rescale(from, to, &a)
		e.checked(i, &out, &a, false)
		e.rows("eval_cast_int", a)
	}
	return out
}

// The operations of eval_cast_int on its ratio.
const (
	multiply = 1
	divide   = 2
)

// rescale sets how eval_cast_int converts the stored integers of one type to those of
// another: it multiplies them, or divides and rounds. For a cast of a timestamp to a time
// it first takes the time of day.
func (e *evaluation) rescale(from, to gpu.Type, a *evalArgs) {
	mul, div := gpu.Int128From(1), gpu.Int128From(1)
	temporal := func(t gpu.Type) bool { return t.Kind == gpu.Time || t.Kind == gpu.Timestamp }
	a.mode = int32(halfAway)
	switch {
	case from.Kind == gpu.Date && to.Kind == gpu.Timestamp:
		mul = gpu.Int128From(to.Unit.PerDay())
	case from.Kind == gpu.Timestamp && to.Kind == gpu.Date:
		div = gpu.Int128From(from.Unit.PerDay())
		a.mode = int32(down)
	case temporal(from) && temporal(to):
		fine, coarse := to.Unit.PerSecond(), from.Unit.PerSecond()
		mul, div = gpu.Int128From(max(fine/coarse, 1)), gpu.Int128From(max(coarse/fine, 1))
		if from.Kind == gpu.Timestamp && to.Kind == gpu.Time {
			a.q = from.Unit.PerDay()
		}
	case to.Scale > from.Scale:
		mul = gpu.Pow10(int(to.Scale - from.Scale))
	case from.Scale > to.Scale:
		div = gpu.Pow10(int(from.Scale - to.Scale))
	}
	one := gpu.Int128From(1)
	switch {
	case mul != one:
		a.p, a.y.lo, a.y.hi = multiply, mul.Lo, mul.Hi
	case div != one:
		a.p, a.y.lo, a.y.hi = divide, div.Lo, div.Hi
	}
}

// parse converts text to values of another type.
func (e *evaluation) parse(i int, x *register) register {
	to := e.p.Code[i].Type
	out := e.result(to, x.valid)
	a := e.args(&out, x)
	e.checked(i, &out, &a, false)
	a.q = to.Unit.PerSecond()
	switch {
	case to.Kind == gpu.Binary:
		return e.makeTexts("eval_parse_blob", out, a)
	case to.Kind == gpu.Bool:
		e.rows("eval_parse_bool", a)
	case to.IsFloat():
		a.table = e.powers()
		if to.Kind == gpu.Float32 {
			a.mode = 1
		}
		e.rows("eval_parse_float", a)
	case to.Kind == gpu.Date:
		e.rows("eval_parse_date", a)
	case to.Kind == gpu.Time:
		e.rows("eval_parse_time", a)
	case to.Kind == gpu.Timestamp:
		if to.UTC {
			a.mode = 1
		}
		e.rows("eval_parse_timestamp", a)
	default:
		a.q = int64(to.Scale)
		if to.IsInteger() {
			a.mode = 1
		}
		e.rows("eval_parse_int", a)
	}
	return out
}

// The maximum bytes of the text of a value of each kind. Years have up to 12 digits, and the time
// of day in a damaged file may be far below zero.
const (
	boolBytes    = 8
	numberBytes  = 24
	decimalBytes = 48
	clockBytes   = 48
	dateBytes    = 24
	momentBytes  = 64
)

// format converts values to text.
func (e *evaluation) format(i int, x *register) register {
	from := x.typ
	out := e.result(e.p.Code[i].Type, x.valid)
	a := e.args(&out, x)
	a.q = from.Unit.PerSecond()
	kernel, size := "int", int64(numberBytes)
	switch {
	case from.Kind == gpu.Binary:
		return e.makeTexts("eval_escape", out, a)
	case from.Kind == gpu.Bool:
		kernel, size = "bool", boolBytes
	case from.IsFloat():
		kernel, a.table = "float", e.powers()
		if from.Kind == gpu.Float32 {
			a.mode = 1
		}
	case from.Kind == gpu.Date:
		kernel, size = "date", dateBytes
	case from.Kind == gpu.Time:
		kernel, size = "time", clockBytes
	case from.Kind == gpu.Timestamp:
		kernel, size = "timestamp", momentBytes
		if from.UTC {
			a.mode = 1
		}
	default:
		a.q = int64(from.Scale)
		if from.Kind == gpu.Decimal || from.Wide {
			size = decimalBytes
		}
		if from.Scale > 0 && from.Scale == from.Precision {
			a.mode = 1
		}
	}
	bytes := e.alloc(int64(e.n) * size)
	a.bytes, a.p = addr(bytes), size
	e.rows("eval_format_"+kernel, a)
	if bytes != nil {
		out.viewed = []*gpu.Buffer{bytes}
	}
	return out
}
