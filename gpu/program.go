package gpu

import "unicode"

// Program is a list of scalar expressions in the form that devices evaluate:
// straight-line instructions over registers that are each assigned once.
// Register r is input r while r < len(Inputs), and the result of instruction
// r - len(Inputs) after that. Package operators/expr compiles SQL into it; a
// Program is type-checked by its maker and immutable.
type Program struct {
	Inputs  []Type
	Code    []Instr
	Outputs []int // registers, one an output column
}

// Instr is one operation over whole columns, row by row.
type Instr struct {
	Op   Op
	Type Type  // of the result
	Args []int // registers
	// Mask is the Bool register of the rows on which the operation may fail, or
	// -1: an error on a row where the mask is false or null is ignored and the
	// row's result is null. It makes CASE lazy.
	Mask int
	// Value is the operand of OpConst and the pattern of OpLike and OpILike.
	Value Scalar
	// Set holds the operands of OpIn: not null, of the type of the argument.
	Set []Scalar
	// N is a small operand; the operation says what it means.
	N int
	// Text is the source text of the expression, for errors.
	Text string
}

// Op is an operation of a Program. Unless said otherwise a null argument gives a
// null result, arguments have one SQL type (decimals one scale), and each
// decimal, arguments and result alike, is narrow or wide on its own. Whatever
// does not fit the result's type or storage is an error, never a wrong value.
// A device evaluates every row even under a null, but reports no error there.
type Op uint8

// The operations.
const (
	// OpConst is Value on every row.
	OpConst Op = iota
	// OpCast converts its argument to Type. N = 1 is TRY_CAST: null where the
	// conversion fails. Decimals round half away from zero, floats to integers
	// half to even. Dates and times convert to integers as the number of units
	// they are stored as, infinite dates to infinite timestamps and back. Floats
	// are the nearest to the number that is converted.
	OpCast

	// Arithmetic on integers, decimals and floats. The result's type is that of
	// the arguments; for decimals its scale, and of OpMul the sum of scales.
	// OpAdd and OpSub also take Date and Int32 (days), Timestamp and Int64, Time
	// and Int64 (units; a Time wraps at midnight). Infinite dates stay infinite,
	// finite ones stay finite or fail.
	OpAdd
	OpSub
	OpMul
	OpDiv // floats only, IEEE 754: x/0 is an infinity or NaN
	OpQuo // of integers, toward zero; of floats OpDiv; a divisor of zero is an error
	OpMod // sign of the dividend; a divisor of zero is an error, NaN for floats unless N is ZeroFails
	OpNeg
	OpAbs
	OpSign // Int8 -1, 0, 1; NaN gives 0
	OpPow  // floats
	OpMath // floats, function N (a MathFunc); outside its domain NaN

	// Rounding of numbers. OpRound rounds half away from zero to N
	// digits after the point, which may be negative; the scale of a decimal
	// result says how many are kept. The others round to whole numbers.
	OpRound
	OpFloor
	OpCeil
	OpTrunc

	// Comparisons, Bool. Floats in the total order of CompareFloat, strings by
	// bytes. The last two treat null as a value and are never null.
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpDistinct
	OpNotDistinct
	// OpIn says whether the argument is in Set.
	OpIn

	// Three-valued logic over Bool: OpAnd and OpOr of two or more arguments.
	OpAnd
	OpOr
	OpNot
	OpIsNull
	OpIsNotNull
	// OpSelect is the second argument where the first, a Bool, is true, and the
	// third where it is false or null. Branches have Type's SQL type.
	OpSelect

	// OpExtract is field N (a DatePart) of a Date, Time or Timestamp: Int64, or
	// Float64 for PartEpoch and PartJulian; null for an infinite one.
	OpExtract
	// OpDateTrunc cuts a Timestamp down to its unit N (a DatePart).
	OpDateTrunc
	// OpAddMonths adds an Int64 of months to a Timestamp; a day past the end of
	// the month becomes its last day.
	OpAddMonths

	// Strings. Positions and lengths count UTF-8 code points from 1 and are
	// Int64. Patterns and sets of characters are arguments like any other.
	OpLike   // Value is the pattern; % any run, _ any one; N the escape rune, 0 none
	OpILike  // OpLike without regard to case
	OpLength // code points of a String, bytes of a Binary
	OpLower
	OpUpper
	OpReverse
	OpSubstring  // (s, start[, length]); a negative start counts from the end
	OpTrim       // (s, characters); N & TrimLeft, N & TrimRight
	OpConcat     // two or more arguments
	OpReplace    // (s, from, to)
	OpPosition   // (s, part): where part first occurs, 0 when nowhere
	OpStartsWith // (s, part) Bool
	OpEndsWith
	OpContains
)

// Upper is the upper case of a code point for OpUpper: that of Unicode, and ẞ for
// ß, which has none there, as in DuckDB.
func Upper(r rune) rune {
	if r == 'ß' {
		return 'ẞ'
	}
	return unicode.ToUpper(r)
}

// ZeroFails makes a divisor of zero an error in OpMod of floats.
const ZeroFails = 1

// The sides of OpTrim.
const (
	TrimLeft  = 1
	TrimRight = 2
)

// MathFunc is a function of OpMath.
type MathFunc int

// The functions of OpMath.
const (
	MathSqrt MathFunc = iota
	MathCbrt
	MathExp
	MathLn
	MathLog2
	MathLog10
)

// DatePart is a field of a date or time.
type DatePart int

// The date parts. Weeks are those of ISO 8601.
const (
	PartMicrosecond DatePart = iota // of the minute, seconds counted in
	PartMillisecond                 // of the minute, seconds counted in
	PartSecond
	PartMinute
	PartHour
	PartDay
	PartWeek
	PartMonth
	PartQuarter
	PartYear
	PartDecade
	PartCentury
	PartMillennium
	PartDayOfWeek    // 0 is Sunday
	PartISODayOfWeek // 1 is Monday
	PartDayOfYear
	PartISOYear
	PartYearWeek // ISO year × 100 + week
	PartEra      // 0 before year 1, 1 from then on
	PartEpoch    // seconds since 1970, Float64
	PartJulian   // Julian day, Float64
)
