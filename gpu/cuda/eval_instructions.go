package cuda

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
)

// execute computes the result of instruction i.
func (e *evaluation) execute(i int) register {
	in := &e.p.Code[i]
	args := make([]*register, len(in.Args))
	for k, r := range in.Args {
		args[k] = &e.regs[r]
	}
	switch in.Op {
	case gpu.OpConst:
		return e.constant(in.Value)
	case gpu.OpCast:
		return e.cast(i, args[0])
	case gpu.OpAdd, gpu.OpSub, gpu.OpMul, gpu.OpDiv, gpu.OpQuo, gpu.OpMod, gpu.OpPow, gpu.OpNeg, gpu.OpAbs, gpu.OpSign,
		gpu.OpMath,
		gpu.OpAtan2, gpu.OpNextAfter, gpu.OpBitAnd, gpu.OpBitOr, gpu.OpBitXor, gpu.OpShiftLeft, gpu.OpShiftRight,
		gpu.OpGCD:
		return e.arithmetic(i, args)
	case gpu.OpRound, gpu.OpFloor, gpu.OpCeil, gpu.OpTrunc:
		return e.round(i, args)
	case gpu.OpEq, gpu.OpNe, gpu.OpLt, gpu.OpLe, gpu.OpGt, gpu.OpGe, gpu.OpDistinct, gpu.OpNotDistinct:
		return e.compare(in, args)
	case gpu.OpIn:
		return e.member(in, args[0])
	case gpu.OpAnd, gpu.OpOr, gpu.OpNot, gpu.OpIsNull, gpu.OpIsNotNull:
		return e.logic(in, args)
	case gpu.OpSelect:
		return e.choose(i, args)
	case gpu.OpExtract, gpu.OpDateTrunc, gpu.OpAddMonths, gpu.OpMakeDate:
		return e.dates(i, args)
	case gpu.OpLike, gpu.OpILike:
		if len(args) == 2 {
			return e.examine(in, args)
		}
		return e.like(in, args[0])
	case gpu.OpRegexp, gpu.OpRegexpExtract, gpu.OpRegexpReplace:
		return e.regexp(in, args)
	case gpu.OpAssert:
		return e.assert(i, args[0])
	case gpu.OpHash:
		return e.hashValues(in, args)
	case gpu.OpDistance:
		return e.distance(in, args)
	case gpu.OpParseTime:
		return e.parseTime(i, args[0])
	case gpu.OpStep:
		return e.step(in, args[0])
	case gpu.OpBitCount:
		return e.examine(in, args)
	case gpu.OpLength, gpu.OpPosition, gpu.OpStartsWith, gpu.OpEndsWith, gpu.OpContains, gpu.OpCodePoint:
		return e.examine(in, args)
	case gpu.OpSubstring, gpu.OpTrim, gpu.OpSplitPart:
		return e.view(in, args)
	case gpu.OpLower, gpu.OpUpper, gpu.OpStripAccents, gpu.OpReverse, gpu.OpConcat, gpu.OpReplace, gpu.OpRepeat,
		gpu.OpTranslate, gpu.OpChr, gpu.OpDigest, gpu.OpEncode, gpu.OpDigits, gpu.OpSliceElements, gpu.OpPluckElements,
		gpu.OpFlattenElements, gpu.OpJoinElements, gpu.OpZipElements, gpu.OpCanonical:
		return e.make(in, args)
	case gpu.OpNest:
		return e.nest(in, args[0])
	case gpu.OpElement:
		return e.element(i, args)
	case gpu.OpCountElements, gpu.OpFindElement:
		return e.examine(in, args)
	}
	e.fail(fmt.Errorf("evaluate: operation %d is not known", in.Op))
	return register{}
}

// constant returns a register of one value. It has memory only for a Bool, a string or a
// null.
func (e *evaluation) constant(c gpu.Scalar) register {
	r := register{typ: c.Type, layout: layoutOf(c.Type), constant: true, value: c}
	if !c.Valid {
		r.valid = e.alloc(gpu.BitmapBytes(e.n))
		words(e, "eval_set_bits", setBits{out: addr(r.valid), n: int64(e.n)})
	}
	switch {
	case c.Type.Kind == gpu.Bool:
		r.constant, r.data = false, e.alloc(gpu.BitmapBytes(e.n))
		words(e, "eval_set_bits", setBits{out: addr(r.data), n: int64(e.n), value: int64(c.Int.Lo)})
	case c.Type.IsVar():
		r.data = e.upload([]byte(c.Str))
	}
	return r
}

// checked completes the arguments of an instruction whose rows may fail, or may be null
// although no argument is. The kernel then writes the validity of the result.
func (e *evaluation) checked(i int, out *register, a *evalArgs, makesNull bool) {
	in := &e.p.Code[i]
	try := in.Tries()
	if !try {
		a.failed = e.failureSlot(i)
	}
	if in.Mask >= 0 && !try {
		mask := &e.regs[in.Mask]
		a.mask, a.maskValid = addr(mask.data), addr(mask.valid)
	}
	if try || makesNull || in.Mask >= 0 {
		out.valid = e.alloc(gpu.BitmapBytes(e.n))
		a.nulls = addr(out.valid)
	}
}

// arithmetic runs the operations on numbers, dates and times.
func (e *evaluation) arithmetic(i int, args []*register) register {
	in := &e.p.Code[i]
	out := e.result(in.Type, e.allValid(args...))
	a := e.args(&out, args...)
	if args[0].typ.IsFloat() {
		if in.ZeroFails() {
			a.mode = 1
			e.checked(i, &out, &a, false)
		}
		e.rows("eval_"+in.Kernel()+"_float", a)
		return out
	}
	if in.Type.Kind == gpu.Time {
		a.q = in.Type.Unit.PerDay()
	}
	if in.Op == gpu.OpShiftLeft || in.Op == gpu.OpShiftRight {
		a.p = int64(8 * in.Type.Width())
	}
	e.checked(i, &out, &a, false)
	e.rows("eval_"+in.Kernel()+"_int", a)
	return out
}

// rounding is Rounding of eval_int128.cuh.
type rounding int32

const (
	toZero rounding = iota
	halfAway
	down
	up
)

// round runs OpRound, OpFloor, OpCeil and OpTrunc.
func (e *evaluation) round(i int, args []*register) register {
	in, x := &e.p.Code[i], args[0]
	out := e.result(in.Type, e.allValid(args...))
	a := e.args(&out, args...)
	if x.typ.IsFloat() {
		a.p, a.mode = int64(in.N), int32(len(args)-1)
		e.rows("eval_"+in.Kernel()+"_float", a)
		return out
	}
	// A decimal is divided so that only the remaining digits are left. If digits is negative, it is
	// then multiplied to whole units.
	a.p = int64(x.typ.Scale) - int64(in.Type.Scale)
	if in.Op == gpu.OpRound && in.N < 0 {
		a.p, a.q = a.p-int64(in.N), -int64(in.N)
	}
	a.mode = int32(map[gpu.Op]rounding{gpu.OpRound: halfAway, gpu.OpFloor: down, gpu.OpCeil: up,
		gpu.OpTrunc: toZero}[in.Op])
	e.checked(i, &out, &a, false)
	e.rows("eval_round_int", a)
	return out
}

// class returns the part of a kernel's name for the values that it compares.
func class(t gpu.Type) string {
	switch {
	case t.IsFloat():
		return "float"
	case t.IsVar():
		return "text"
	}
	return "int"
}

// The outcomes for which a comparison is true: bits of the mode of eval_compare.
const (
	whenLess    = 1
	whenEqual   = 2
	whenGreater = 4
)

var comparisonModes = map[gpu.Op]int32{gpu.OpEq: whenEqual, gpu.OpNe: whenLess | whenGreater, gpu.OpLt: whenLess,
	gpu.OpLe: whenLess | whenEqual, gpu.OpGt: whenGreater, gpu.OpGe: whenGreater | whenEqual,
	gpu.OpDistinct: whenLess | whenGreater, gpu.OpNotDistinct: whenEqual}

func (e *evaluation) compare(in *gpu.Instr, args []*register) register {
	nullSafe := in.Op.Info().SeesNulls
	var valid *gpu.Buffer
	if !nullSafe {
		valid = e.allValid(args...)
	}
	out := e.result(in.Type, valid)
	a := e.args(&out, args...)
	a.mode = comparisonModes[in.Op]
	if nullSafe {
		a.p = 1
	}
	e.rows("eval_compare_"+class(args[0].typ), a)
	return out
}

// member runs OpIn. The set is sorted, and searched by bisection.
func (e *evaluation) member(in *gpu.Instr, x *register) register {
	out := e.result(in.Type, x.valid)
	a := e.args(&out, x)
	if x.typ.IsVar() {
		texts := make([]string, len(in.Set))
		for k, v := range in.Set {
			texts[k] = v.Str
		}
		slices.Sort(texts)
		offsets := make([]int64, len(texts)+1)
		var bytes []byte
		for k, s := range texts {
			bytes = append(bytes, s...)
			offsets[k+1] = int64(len(bytes))
		}
		table, set := e.upload(bytes), e.upload(gpu.BytesOf(offsets))
		a.table, a.set, a.p = addr(table), addr(set), int64(len(texts))
		e.rows("eval_in_text", a)
		e.free(table)
		e.free(set)
		return out
	}
	values := make([]gpu.Int128, len(in.Set))
	for k, v := range in.Set {
		values[k] = v.Int
		if x.typ.IsFloat() {
			values[k] = gpu.Int128FromUint(floatKey(v.Float))
		}
	}
	slices.SortFunc(values, gpu.Int128.Cmp)
	set := e.upload(gpu.BytesOf(values))
	a.set, a.p, a.q = addr(set), int64(len(values)), int64(floatKey(math.NaN()))
	e.rows("eval_in_"+class(x.typ), a)
	e.free(set)
	return out
}

// floatKey returns the same value for all floats that are equal in SQL, and different values for
// others.
func floatKey(x float64) uint64 {
	if x != x {
		return math.Float64bits(math.NaN())
	}
	return math.Float64bits(x + 0) // -0 + 0 is +0
}

// logic runs three-valued logic on bitmaps.
func (e *evaluation) logic(in *gpu.Instr, args []*register) register {
	x := args[0]
	b := bitmaps{x: addr(x.data), xValid: addr(x.valid), n: int64(e.n)}
	switch in.Op {
	case gpu.OpNot, gpu.OpIsNull, gpu.OpIsNotNull:
		out := e.result(in.Type, nil)
		b.out = addr(out.data)
		if in.Op == gpu.OpNot {
			out.valid = x.valid
		}
		words(e, "eval_"+in.Kernel(), b)
		return out
	}
	out := *x
	for k, y := range args[1:] {
		next := e.result(in.Type, nil)
		if out.valid != nil || y.valid != nil {
			next.valid = e.alloc(gpu.BitmapBytes(e.n))
		}
		words(e, "eval_"+in.Kernel(), bitmaps{x: addr(out.data), xValid: addr(out.valid), y: addr(y.data),
			yValid: addr(y.valid), out: addr(next.data), outValid: addr(next.valid), n: int64(e.n)})
		if k > 0 {
			e.free(out.data)
			e.free(out.valid)
		}
		out = next
	}
	return out
}

// choose runs OpSelect.
func (e *evaluation) choose(i int, args []*register) register {
	in := &e.p.Code[i]
	cond, x, y := args[0], args[1], args[2]
	var valid *gpu.Buffer
	if x.valid != nil || y.valid != nil {
		valid = e.alloc(gpu.BitmapBytes(e.n))
	}
	out := e.result(in.Type, valid)
	b := bitmaps{x: addr(cond.data), xValid: addr(cond.valid), y: addr(x.data), yValid: addr(x.valid),
		z: addr(y.data), zValid: addr(y.valid), outValid: addr(valid), n: int64(e.n)}
	if in.Type.Kind == gpu.Bool {
		b.out = addr(out.data)
		words(e, "eval_select_bits", b)
		return out
	}
	if valid != nil {
		words(e, "eval_select_bits", b)
	}
	a := e.args(&out, args...)
	if in.Type.IsVar() {
		e.rows("eval_select_text", a)
		out.viewed = viewedBy(x, y)
		return out
	}
	if (x.typ.Wide || y.typ.Wide) && !in.Type.Wide {
		e.checked(i, &out, &a, false)
	} else {
		a.y, a.z, a.layout = x.raw(), y.raw(), rawLayout(in.Type.Width())
		a.loLow, a.loHigh, a.hiLow, a.hiHigh = 0, math.MinInt64, math.MaxUint64, math.MaxInt64
		a.valid = 0
	}
	if in.Type.Wide { // a narrow operand is widened
		a.y, a.z = x.operand(), y.operand()
	}
	e.rows("eval_select", a)
	return out
}

// viewedBy returns the buffers into which views of the given strings point.
func viewedBy(texts ...*register) []*gpu.Buffer {
	var all []*gpu.Buffer
	for _, r := range texts {
		if r.layout == layoutView {
			all = append(all, r.viewed...)
		} else if r.data != nil {
			all = append(all, r.data)
		}
	}
	slices.SortFunc(all, func(a, b *gpu.Buffer) int { return cmp.Compare(a.Addr(), b.Addr()) })
	return slices.Compact(all)
}

// temporal is Temporal of eval_dates.cu.
var temporal = map[gpu.Kind]int32{gpu.Date: 0, gpu.Time: 1, gpu.Timestamp: 2}

// dates runs the operations on dates and times.
func (e *evaluation) dates(i int, args []*register) register {
	in := &e.p.Code[i]
	out := e.result(in.Type, e.allValid(args...))
	a := e.args(&out, args...)
	a.p, a.q, a.mode = int64(in.N), args[0].typ.Unit.PerSecond(), temporal[args[0].typ.Kind]
	kernel := "eval_" + in.Kernel()
	switch {
	case in.Op != gpu.OpExtract:
		e.checked(i, &out, &a, false)
	case a.infinityX != 0:
		e.checked(i, &out, &a, true)
	}
	if in.Op == gpu.OpExtract && in.Type.IsFloat() {
		kernel += "_float"
	}
	e.rows(kernel, a)
	return out
}

// step runs OpStep.
func (e *evaluation) step(in *gpu.Instr, x *register) register {
	out := e.result(in.Type, x.valid)
	a := e.args(&out, x)
	values := make([]int64, len(in.Set))
	for k, v := range in.Set {
		values[k] = v.Int.Int64()
	}
	set := e.upload(gpu.BytesOf(values))
	a.set, a.p = addr(set), int64(in.N)
	e.rows("eval_step", a)
	e.free(set)
	return out
}

// assert runs OpAssert.
func (e *evaluation) assert(i int, x *register) register {
	out := e.result(e.p.Code[i].Type, x.valid)
	a := e.args(&out, x)
	e.checked(i, &out, &a, false)
	e.rows("eval_assert", a)
	return out
}

// examine runs the operations that return a number or a truth value about strings.
func (e *evaluation) examine(in *gpu.Instr, args []*register) register {
	out := e.result(in.Type, e.allValid(args...))
	a := e.args(&out, args...)
	kernel := in.Kernel()
	switch in.Op {
	case gpu.OpLength:
		if in.N == 1 || args[0].typ.Kind == gpu.Binary {
			a.mode = 1
		}
	case gpu.OpCodePoint:
		a.p = int64(in.N)
	case gpu.OpFindElement:
		a.mode = int32(in.N)
	case gpu.OpBitCount:
		a.p = int64(8 * args[0].typ.Width())
	case gpu.OpLike, gpu.OpILike:
		kernel += "_column"
		if in.Op == gpu.OpILike {
			a.table, a.q = e.lowerCase(), int64(caseTableSize)
		}
	}
	e.rows("eval_"+kernel, a)
	return out
}

// view runs the operations whose results are substrings of an argument.
func (e *evaluation) view(in *gpu.Instr, args []*register) register {
	out := e.result(in.Type, e.allValid(args...))
	out.viewed = viewedBy(args[0])
	a := e.args(&out, args...)
	switch {
	case in.Op == gpu.OpTrim:
		a.mode = int32(in.N)
	case in.Op == gpu.OpSubstring && len(args) == 3:
		a.mode = 1
	}
	e.rows("eval_"+in.Kernel(), a)
	return out
}

// make runs the operations that make new strings.
func (e *evaluation) make(in *gpu.Instr, args []*register) register {
	out := e.result(in.Type, e.allValid(args...))
	a := e.args(&out, args...)
	switch in.Op {
	case gpu.OpEncode:
		a.mode = int32(in.N)
	case gpu.OpPluckElements:
		a.p = int64(in.N)
	case gpu.OpDigits:
		a.p, a.q = int64(in.N), int64(8*args[0].typ.Width())
	case gpu.OpLower:
		a.table, a.p = e.lowerCase(), int64(caseTableSize)
	case gpu.OpUpper:
		a.table, a.p = e.upperCase(), int64(caseTableSize)
	case gpu.OpStripAccents:
		a.table, a.p = e.table("without accents", accentTable), accentTableSize
	case gpu.OpConcat:
		operands := make([]operand, len(args))
		for k, r := range args {
			operands[k] = r.operand()
		}
		list := e.upload(gpu.BytesOf(operands))
		defer e.free(list)
		a.list, a.p = addr(list), int64(len(args))
	}
	return e.makeTexts("eval_"+in.Kernel(), out, a)
}

// nest runs OpNest.
func (e *evaluation) nest(in *gpu.Instr, x *register) register {
	out := e.result(in.Type, nil)
	a := e.args(&out, x)
	t := gpu.Nestable(x.typ)
	a.p = int64(max(t.Width(), 1))
	if t.Kind != gpu.Bool && !t.IsUnsigned() {
		a.q = 1
	}
	kernel := class(t)
	if t.IsNested() {
		kernel = "nested"
	}
	return e.makeTexts("eval_"+in.Kernel()+"_"+kernel, out, a)
}

// element runs OpElement.
func (e *evaluation) element(i int, args []*register) register {
	in := &e.p.Code[i]
	t := in.Type
	out := e.result(t, e.allValid(args...))
	a := e.args(&out, args...)
	e.checked(i, &out, &a, true)
	if !t.IsUnsigned() {
		a.q = 1
	}
	kernel := class(t)
	switch {
	case t.Kind == gpu.Bool:
		kernel = "bits"
	case t.IsNested():
		kernel = "nested"
		out.viewed = viewedBy(args[0])
	case t.IsVar():
		return e.makeTexts("eval_"+in.Kernel()+"_text", out, a)
	}
	e.rows("eval_"+in.Kernel()+"_"+kernel, a)
	return out
}

// hashValues runs OpHash.
func (e *evaluation) hashValues(in *gpu.Instr, args []*register) register {
	x := args[0]
	out := e.result(in.Type, nil)
	a := e.args(&out, args...)
	kernel := "int"
	switch {
	case x.typ.IsVar():
		kernel = "text"
	case x.typ.IsFloat():
		kernel, a.p = "float", int64(8*x.typ.Width())
	default:
		a.p = 32
		if x.typ.Kind != gpu.Bool {
			a.p = int64(x.typ.HashBits())
		}
	}
	if len(args) > 1 {
		a.mode = 1
	}
	e.rows("eval_hash_"+kernel, a)
	return out
}

// distance runs OpDistance.
func (e *evaluation) distance(in *gpu.Instr, args []*register) register {
	out := e.result(in.Type, e.allValid(args...))
	a := e.args(&out, args...)
	a.mode = int32(in.N)
	// Rows of a matrix with a column for each code point of y.
	switch gpu.Distance(in.N) {
	case gpu.Levenshtein, gpu.Jaro, gpu.JaroWinkler:
		a.p = 1
	case gpu.DamerauLevenshtein:
		a.p = 4
	}
	var at, memory *gpu.Buffer
	if gpu.Distance(in.N) != gpu.Hamming {
		at = e.alloc(int64(e.n+1) * 8)
		sizes := a
		sizes.at = addr(at)
		e.rows("eval_distance_sizes", sizes)
		memory = e.alloc(e.positions(at) * 4)
		defer func() {
			e.free(at)
			e.free(memory)
		}()
	}
	a.list, a.table = addr(at), addr(memory)
	e.rows("eval_distance", a)
	return out
}
