package gpu

import (
	"fmt"
	"slices"
	"unicode"
)

// Program is a list of scalar expressions in the form that devices evaluate: straight-line
// instructions over registers, each assigned once. Register r < len(Inputs) is input r; a later
// register r is the result of instruction r - len(Inputs). Package operators/expr compiles SQL into
// Programs. The compiler checks types, and the Program is immutable.
type Program struct {
	Inputs  []Type
	Code    []Instr
	Outputs []int // registers, one for each output column
}

// Instr is one operation over whole columns, row by row.
type Instr struct {
	Op   Op
	Type Type  // of the result
	Args []int `json:",omitempty"` // registers
	// Mask is a Bool register, or -1 for none. On rows where the mask is false or null, an error is
	// ignored and the result is null. This makes CASE lazy.
	Mask int
	// Value is the operand of OpConst and the pattern of OpLike, OpILike and OpRegexp….
	Value Scalar `json:",omitzero"`
	// Set holds the operands of OpIn and OpStep. They are not null and have the type of
	// the argument.
	Set []Scalar `json:",omitempty"`
	// N is a small operand. Its meaning depends on the operation.
	N int `json:",omitempty"`
	// Body is the program of an operation over the elements of a list; see EvalBodies.
	Body *Program `json:",omitempty"`
	// Text is the source text of the expression, for errors.
	Text string `json:",omitempty"`
	// Message, unless it is empty, is the error of a row without a result, instead of one with Text and the reason.
	Message string `json:",omitempty"`
}

// Failed returns the error of a row without a result, for a reason.
func (in *Instr) Failed(reason string, args ...any) error {
	if in.Message != "" {
		return Failed("%s", in.Message)
	}
	return FailedIn(in.Text, reason, args...)
}

// Portable reports whether every device computes the same bits. Math functions may differ in the
// last digits.
func (p *Program) Portable() bool {
	return !slices.ContainsFunc(p.Code, func(in Instr) bool {
		return in.Op.Info().Inexact && (in.Op != OpMath || MathFunc(in.N) != MathSqrt) ||
			in.Body != nil && !in.Body.Portable()
	})
}

// Check returns an error if an instruction is no operation or has not as many arguments as it takes, if it reads a
// register before it is written, or if an output is not a register. It does not check types.
func (p *Program) Check() error {
	written := len(p.Inputs)
	for i, in := range p.Code {
		if in.Op >= Ops {
			return fmt.Errorf("instruction %d of a program is operation %d, which is not known", i, in.Op)
		}
		o := in.Op.Info()
		if n := len(in.Args); n < o.Least || o.Most >= 0 && n > o.Most {
			return fmt.Errorf("instruction %d of a program is operation %d, which takes no %d arguments", i, in.Op, n)
		}
		if o.Kernel == "" && o.Name(in.N) == "" {
			return fmt.Errorf("instruction %d of a program is operation %d, which has no function %d", i, in.Op, in.N)
		}
		for _, r := range in.Args {
			if r < 0 || r >= written {
				return fmt.Errorf("instruction %d of a program reads register %d, which is not written", i, r)
			}
		}
		if err := in.checkBody(); err != nil {
			return fmt.Errorf("instruction %d of a program: %w", i, err)
		}
		if in.Mask < -1 || in.Mask >= written {
			return fmt.Errorf("instruction %d of a program has the mask %d, which is not written", i, in.Mask)
		}
		written++
	}
	for _, r := range p.Outputs {
		if r < 0 || r >= written {
			return fmt.Errorf("a program returns register %d, which is not written", r)
		}
	}
	return nil
}

// Op is an operation of a Program. Unless an operation says otherwise:
//
//   - The result is null if an argument is null.
//   - Arguments have the same SQL type; decimals have the same scale. Each decimal, argument or
//     result, is stored in 64 or 128 bits independently.
//   - A value that does not fit the result's type or storage is an error, never a wrong value. A
//     device evaluates every row, but reports no error for a row whose result is null.
type Op uint8

// The operations. Each has a row in the table of operations.
const (
	// OpConst is Value on every row.
	OpConst Op = iota
	// OpCast converts its argument to Type. N = 1 means TRY_CAST: the result is null where the
	// conversion fails. Decimals round half away from zero; floats to integers round half to even.
	// Dates and times convert to integers as their numbers of units, and infinite dates to infinite
	// timestamps and back. A float result is the float nearest to the argument.
	OpCast

	// Arithmetic on integers, decimals and floats. The result has the type of the
	// arguments; a decimal result has their scale, or for OpMul the sum of their scales.
	// OpAdd and OpSub also take Date and Int32 (days), Timestamp and Int64 (units), Time
	// and Int64 (units; a Time wraps at midnight). Infinite dates stay infinite; finite
	// dates stay finite or fail.
	OpAdd
	OpSub
	OpMul
	OpDiv // floats only, IEEE 754: x/0 is an infinity or NaN
	OpQuo // integers, toward zero; floats like OpDiv; a divisor of zero is an error
	OpMod // sign of the dividend; a divisor of zero is an error, but NaN for floats unless N is ZeroFails
	OpNeg
	OpAbs
	OpSign // Int8: -1, 0 or 1; NaN gives 0
	OpPow  // floats
	OpMath // floats: function N (a MathFunc); NaN outside its domain

	// Rounding of numbers. OpRound rounds half away from zero to N digits after the point; N may be
	// negative. With a second argument, an Int64, that is the number of digits. The scale of a
	// decimal result says how many digits are kept. For a float, the exact decimal value is
	// rounded, and the result is the float nearest to the rounded decimal. The others round to
	// integers.
	OpRound
	OpFloor
	OpCeil
	OpTrunc

	// Comparisons; the result is Bool. Floats compare in the total order of CompareFloat, strings
	// by bytes. The last two treat null as a value and never return null.
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpDistinct
	OpNotDistinct
	// OpIn tells whether the argument is in Set.
	OpIn

	// Three-valued logic over Bool: OpAnd and OpOr of two or more arguments.
	OpAnd
	OpOr
	OpNot
	OpIsNull
	OpIsNotNull
	// OpSelect returns its second argument where the first, a Bool, is true, and its third argument
	// elsewhere. Both have the SQL type of Type.
	OpSelect

	// OpExtract is field N (a DatePart) of a Date, Time or Timestamp: an Int64, or a
	// Float64 for PartEpoch and PartJulian. It is null for an infinite date.
	OpExtract
	// OpDateTrunc truncates a Timestamp to the unit N (a DatePart).
	OpDateTrunc
	// OpAddMonths adds an Int64 of months to a Timestamp. A day past the end of the month
	// becomes the last day of the month.
	OpAddMonths

	// Strings. Positions and lengths count UTF-8 code points from 1 and are Int64.
	// Patterns and sets of characters are arguments like any other.
	// OpLike matches the pattern in Value: % is any run, _ any one code point; N is the escape
	// rune, 0 for none. With a second argument that is the pattern, which has no escapes.
	OpLike
	OpILike  // OpLike without regard to case
	OpLength // code points of a String, bytes of a Binary, or of a String if N is 1
	OpLower
	OpUpper
	OpReverse
	OpStripAccents
	OpSubstring  // (s, start[, length]); a negative start counts from the end
	OpTrim       // (s, characters); N & TrimLeft, N & TrimRight
	OpConcat     // two or more arguments
	OpReplace    // (s, from, to)
	OpPosition   // (s, part): position of the first occurrence, 0 without one
	OpStartsWith // (s, part) Bool
	OpEndsWith
	OpContains
	// (s, separator, n): part n of s, from the end if negative, '' without one; an empty separator cuts at code points
	OpSplitPart
	OpRepeat    // (s, n)
	OpTranslate // (s, from, to): each code point of from becomes the one at its position in to, or is dropped
	OpChr       // the String of one code point, an Int64
	OpCodePoint // the first code point as an Int32, N for an empty string
	OpDigest    // the hexadecimal Digest N of a String or Binary
	// Regular expressions. Value is the pattern, which package regex compiles. The low byte of N
	// has the regex.Options, and the bits above them are K.
	OpRegexp        // whether the pattern matches
	OpRegexpExtract // group K of the first match, "" without one
	OpRegexpReplace // (s, replacement): the first match replaced, or all if K is 1; see regex.Search.Replace

	OpEncode // a String or Binary in the Encoding N
	// OpDigits returns the digits of an Int64, Uint64 or HugeInt in base N, 2 to 36, as a String. A
	// negative number is printed as its bits.
	OpDigits
	OpDistance // (x, y): the Distance N of the code points of two Strings
	// OpHash is DuckDB's hash of a value or null as a Uint64, never null. With a second argument,
	// the hash of the preceding values, which has no nulls, both are combined.
	OpHash

	// Bits of integers. Arguments and result have the same type, except that OpBitCount returns an
	// Int8 or an Int16. A shift to the right by less than 0, or by at least the bits of the type,
	// returns 0. Such a shift to the left is an error, unless 0 is shifted; so is a negative
	// operand.
	OpBitAnd
	OpBitOr
	OpBitXor
	OpBitCount
	OpShiftLeft
	OpShiftRight
	OpGCD // the greatest common divisor, not negative

	OpAtan2     // floats
	OpNextAfter // (x, y), floats: the float next to x, toward y
	// OpMakeDate is the Date of a year, month and day, which are Int64.
	OpMakeDate
	// OpParseTime reads a Timestamp from a String in the format in Value; see ParseTimeFormat. With
	// N = 1 the result is null where the text has another form.
	OpParseTime
	// OpStep is a step function of an Int64. Set has the N ascending values at which it steps,
	// followed by its N + 1 results, the first for arguments below all steps.
	OpStep
	// OpAssert returns its argument, a Bool. Where it is false, that is an error with the message
	// Value, or that of a second argument, a String.
	OpAssert

	// Nested values, in the encoding of nested.go. Positions are Int64. They count from 1, and from the end if they
	// are negative.
	OpNest          // the encoding of a value of any type or of a null, as a Binary; never null
	OpElement       // (x, position): element or field of x, in its type; null without one
	OpCountElements // the number of elements
	// OpFindElement (x, encoding) is the position of the first element with that encoding, or if N is not 0 of the
	// first one whose field N has it; 0 without one.
	OpFindElement
	OpSliceElements   // (x, from, to): the list of the elements from one position to another
	OpPluckElements   // the list of field N of each element
	OpFlattenElements // the list of the elements of all elements
	OpJoinElements    // (x, y): the list of the elements of both
	OpZipElements     // (x, y): the list of structs of an element of each, null behind the end of the shorter list
	OpCanonical       // x with zeros without a sign, so that equal values have equal encodings

	// Operations that run on the CPU, also for another device; see Operation.Host.
	// OpJSON is the JSONFunc N of a String, which has a document, and of another String; see jsontext.Function.
	OpJSON
	// OpParseNested reads a nested value from its text. The result has the type of Value, with strings in place of all
	// values that are not nested; see Type.OfTexts. With N = 1 a value that cannot be read is null.
	OpParseNested

	// Operations with a Body, which EvalBodies evaluates over the elements of the first argument, a list. A null list
	// has no elements.
	// OpEachElement (list, values of the row…) joins the strings that Body returns for the elements of a row.
	OpEachElement
	// OpSortElements is OpEachElement whose strings are in the order of a first result of Body, a key. N has SortFlags.
	OpSortElements
	// OpFoldElements is the AggregateKind N of the results of Body, null if they all are.
	OpFoldElements
	// OpReduceElements (list, start, values of the row…) is the last of the results of Body, which also reads the one
	// before it, first start. N elements are left out. Without an element it is start.
	OpReduceElements
)

// The SortFlags of OpSortElements.
const (
	SortDescending = 1 << iota
	SortNullsFirst
	// SortOnce keeps the order of the list, and has the string of the first element of each key only.
	SortOnce
)

// Encoding is an encoding of bytes, or its inverse, for OpEncode.
type Encoding int

// The encodings and their inverses. For text that is not in an encoding the result is unspecified.
const (
	Raw        Encoding = iota // the bytes themselves, as another type
	Hex                        // two hexadecimal digits per byte
	FromHex                    // the first byte may have one digit
	Bits                       // eight binary digits per byte
	FromBits                   // the last byte may have fewer
	Base64                     // RFC 4648
	FromBase64                 //
	URL                        // all but letters, digits and - . _ ~ as %HH
	FromURL                    // a % without two hexadecimal digits remains
)

// Distance is a measure of OpDistance.
type Distance int

// The measures. Up to Hamming the result is an Int64, then a Float64 from 0 to 1.
const (
	Levenshtein Distance = iota
	DamerauLevenshtein
	Hamming // of strings of equal length
	Jaccard
	Jaro
	JaroWinkler
)

// JSONFunc is a function of OpJSON.
type JSONFunc int

// The functions. Those with a path take it from Value, if that is not null, else from a second argument, if there is
// one; else it is the whole document. With wildcards in the path the result is a list. What is not JSON is an error.
const (
	JSONExtract   JSONFunc = iota // the value at a path, without white space
	JSONText                      // the same; the text of a string, and null for null
	JSONScalar                    // the same; null for objects, arrays and null
	JSONExists                    // whether there is one, a Bool
	JSONType                      // its type
	JSONLength                    // the number of elements, a Uint64
	JSONKeys                      // the list of names of its members
	JSONValid                     // whether the String is JSON, a Bool
	JSONCheck                     // the String itself
	JSONTryCheck                  // the same, or null
	JSONContains                  // whether it contains the second document, a Bool
	JSONMerge                     // what the second document makes of it
	JSONStructure                 // the types of its values
	JSONPretty                    // with a line for each value
	// JSONTransform is the value as the type of Value, with texts of its values (Type.OfTexts). What does not fit is
	// null.
	JSONTransform
	JSONTransformStrict // the same; what does not fit is an error
	JSONCast            // the same; so are members that the type does not have
	JSONTryCast         // JSONCast, null where it would fail
)

// Digest is a hash function of OpDigest.
type Digest int

// The functions of OpDigest.
const (
	MD5 Digest = iota
	SHA1
	SHA256
)

// Upper returns the upper case of a code point for OpUpper: that of Unicode, except ẞ for
// ß, which Unicode leaves alone. DuckDB does the same.
func Upper(r rune) rune {
	if r == 'ß' {
		return 'ẞ'
	}
	return unicode.ToUpper(r)
}

// ZeroFails is the N that makes a divisor of zero an error in OpMod of floats.
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
	MathSin
	MathCos
	MathTan
	MathAsin
	MathAcos
	MathAtan
	MathSinh
	MathCosh
	MathTanh
	MathAsinh
	MathAcosh
	MathAtanh
	MathGamma
	MathLgamma // the logarithm of the absolute value of gamma
)

// DatePart is a field of a date or time.
type DatePart int

// The date parts. Weeks are those of ISO 8601.
const (
	PartMicrosecond DatePart = iota // of the minute, including its seconds
	PartMillisecond                 // of the minute, including its seconds
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
	PartEra      // 0 before year 1, else 1
	PartEpoch    // seconds since 1970, Float64
	PartJulian   // Julian day, Float64
)
