package expr

import (
	_ "embed"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/regex"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// function is a row of the table of scalar functions. The binder and the reference use it. A function that is an
// operation of the devices refers to its row in the table of operations, which has its name.
type function struct {
	op            gpu.Op // OpConst for a function of several operations
	n             int    // of the operation, as its N
	name, aliases string // the name is that of the operation unless it is set; aliases are separated by spaces
	// args are the arguments as the reference shows them: "x", "x, y", "x[, y]", "x, …".
	args string
	// bind has the rules for types. Without it the operation has arguments of the kinds of takes (see macro) and a
	// result of type gives.
	bind  func(b *binder, n *syntax.Call, args []*Expr) (*Expr, error)
	takes string
	gives gpu.Type
	// result is the type of the result, about says what the function does. nulls says when the
	// result is null; "" means if an argument is null. examples are lines of "expression → result",
	// with the result as text.
	result, about, nulls, examples string
	// lazy says that arguments after the first may not be evaluated.
	lazy bool
	// intervals says that arguments may be intervals.
	intervals bool
	// unbound says that bind binds the arguments itself.
	unbound bool
}

// complete sets the fields that follow from others.
func (f *function) complete() {
	if f.name == "" {
		f.name = f.op.Info().Name(f.n)
	}
	if f.bind != nil {
		return
	}
	f.result = f.gives.String()
	f.bind = func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		args, err := b.arguments(n, f.takes, a)
		if err != nil {
			return nil, err
		}
		// A text can exceed the offsets of a column.
		e := Expr{op: f.op, typ: f.gives, n: f.n, rng: typeRange(f.gives), fails: f.op == gpu.OpReplace || f.op ==
			gpu.OpRepeat}
		for _, x := range args {
			e.nullable = e.nullable || x.nullable
		}
		return b.op(n, e, args...)
	}
}

// arity returns the least and the greatest number of arguments; -1 means any number.
func (f *function) arity() (lo, hi int) {
	if f.args == "" {
		return 0, 0
	}
	required, optional, _ := strings.Cut(f.args, "[")
	lo = strings.Count(required, ",") + 1
	if strings.HasPrefix(f.args, "[") { // all but the last are optional
		return 1, strings.Count(f.args, ",") + 1
	}
	if strings.HasSuffix(f.args, "…") {
		return lo - 1, -1
	}
	return lo, lo + strings.Count(optional, ",")
}

// chapter is a part of the reference.
type chapter struct {
	title     string
	functions []function
}

// functions are the scalar functions by name and alias. init fills the map to avoid an
// initialization cycle, since binding a call reads it.
var functions map[string]*function

// chapters has all scalar functions.
var chapters []chapter

func init() {
	chapters = []chapter{
		{"Numbers", numberFunctions()},
		{"Text", textFunctions()},
		{"Dates and times", dateFunctions()},
		{"Any type", anyFunctions()},
		{"Lists, structs and maps", nestedFunctions()},
		{"JSON", jsonFunctions()},
	}
	functions = map[string]*function{listFunction: {name: listFunction, args: "x", bind: bindAggregatedList},
		zipFunction:              {name: zipFunction, args: "x, y, …", bind: bindZip},
		syntax.ListComprehension: {args: "list, lambda[, condition]", bind: bindTransform, unbound: true}}
	for _, c := range chapters {
		for i := range c.functions {
			f := &c.functions[i]
			f.complete()
			functions[f.name] = f
			for _, alias := range strings.Fields(f.aliases) {
				functions[alias] = f
			}
		}
	}
}

const (
	likeX   = "that of x"
	bigint  = "BIGINT"
	dbl     = "DOUBLE"
	varchar = "VARCHAR"
	boolean = "BOOLEAN"
)

var text, truth, float, long = gpu.Of(gpu.String), gpu.Of(gpu.Bool), gpu.Of(gpu.Float64), gpu.Of(gpu.Int64)

func numberFunctions() []function {
	return []function{
		{op: gpu.OpAbs, args: "x", bind: bindAbs, result: likeX, about: "The absolute value.",
			examples: "abs(-7) → 7"},
		{op: gpu.OpSign, args: "x", bind: bindSignum, result: "TINYINT", about: "-1, 0 or 1; 0 for NaN.",
			examples: "sign(-0.5) → -1"},
		{op: gpu.OpRound, args: "x[, digits]", bind: bindRound,
			result: "that of x; a DECIMAL keeps as many digits after the point as remain",
			about: "Rounds half away from zero to a number of digits after the point, or before it if negative. For " +
				"decimals it is constant. The exact value of a float decides, and the result is the float nearest to " +
				"the decimal that remains.",
			examples: "round(2.345, 2) → 2.35\nround(1250, -2) → 1300\nround(2.675e0, 2) → 2.67"},
		{op: gpu.OpFloor, args: "x", bind: whole(gpu.OpFloor),
			result:   "that of x without digits after the point; DOUBLE for integers",
			about:    "The greatest whole number that is not above x.",
			examples: "floor(-1.5) → -2"},
		{op: gpu.OpCeil, aliases: "ceiling", args: "x", bind: whole(gpu.OpCeil),
			result:   "that of x without digits after the point; DOUBLE for integers",
			about:    "The least whole number that is not below x.",
			examples: "ceil(1.2) → 2"},
		{op: gpu.OpTrunc, args: "x[, digits]", bind: bindTruncate,
			result:   "that of x; a DECIMAL keeps as many digits after the point as remain",
			about:    "Drops digits after the point, all or all but some, or before it if digits is negative.",
			examples: "trunc(-1.9) → -1\ntrunc(1.259, 2) → 1.25"},
		{name: "mod", args: "x, y", bind: func(b *binder, n *syntax.Call, a []*Expr) (*Expr,
			error) {
			return b.arithmetic(n, gpu.OpMod, a[0], a[1])
		},
			result: "that of x % y", about: "The remainder of x / y, with the sign of x.", examples: "mod(-7, 3) → -1"},
		{name: "add", args: "x, y", bind: between("_1 + _2"), result: "that of x + y", about: "x + y, for x.add(y).",
			examples: "add(1, 2) → 3"},
		{name: "subtract", args: "x, y", bind: between("_1 - _2"), result: "that of x - y", about: "x - y.",
			examples: "subtract(1, 2) → -1"},
		{name: "multiply", args: "x, y", bind: between("_1 * _2"), result: "that of x * y", about: "x * y.",
			examples: "multiply(3, 2) → 6"},
		{name: "divide", args: "x, y", bind: between("_1 // _2"), result: "that of x // y", about: "x // y.",
			examples: "divide(7, 2) → 3"},
		{name: "power", aliases: "pow", args: "x, y",
			bind:   func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) { return b.power(n, a[0], a[1]) },
			result: dbl, about: "x to the power of y.", examples: "power(2, 10) → 1024.0"},
		{op: gpu.OpMath, n: int(gpu.MathSqrt), args: "x", takes: "f", gives: float,
			about: "The square root; NaN for negative numbers.", examples: "sqrt(2.25) → 1.5"},
		{op: gpu.OpMath, n: int(gpu.MathCbrt), args: "x", takes: "f", gives: float, about: "The cube root.",
			examples: "cbrt(8) → 2.0"},
		{op: gpu.OpMath, n: int(gpu.MathExp), args: "x", takes: "f", gives: float, about: "e to the power of x.",
			examples: "exp(0) → 1.0"},
		{op: gpu.OpMath, n: int(gpu.MathLn), args: "x", takes: "f", gives: float,
			about: "The natural logarithm; -Infinity for 0, NaN for negative numbers.", examples: "ln(1) → 0.0"},
		{op: gpu.OpMath, n: int(gpu.MathLog2), args: "x", takes: "f", gives: float, about: "The binary logarithm.",
			examples: "log2(8) → 3.0"},
		{op: gpu.OpMath, n: int(gpu.MathLog10), args: "x", takes: "f", gives: float, about: "The decimal logarithm.",
			examples: "log10(1000) → 3.0"},
		{name: "log", args: "[base, ]x", bind: bindLog, result: dbl,
			about: "The logarithm to a base; the decimal one without.", examples: "log(1000) → 3.0\nlog(2, 8) → 3.0"},
		{op: gpu.OpMath, n: int(gpu.MathSin), args: "x", takes: "f", gives: float, about: "The sine of radians.",
			examples: "sin(0) → 0.0"},
		{op: gpu.OpMath, n: int(gpu.MathCos), args: "x", takes: "f", gives: float, about: "The cosine of radians.",
			examples: "cos(0) → 1.0"},
		{op: gpu.OpMath, n: int(gpu.MathTan), args: "x", takes: "f", gives: float, about: "The tangent of radians.",
			examples: "tan(0) → 0.0"},
		{name: "cot", args: "x", bind: macro("f", "1 / tan(_1)"), result: dbl, about: "The cotangent of radians.",
			examples: "round(cot(1), 9) → 0.642092616"},
		{op: gpu.OpMath, n: int(gpu.MathAsin), args: "x", takes: "f", gives: float,
			about: "The inverse sine; NaN above 1.", examples: "asin(0) → 0.0"},
		{op: gpu.OpMath, n: int(gpu.MathAcos), args: "x", takes: "f", gives: float,
			about: "The inverse cosine; NaN above 1.", examples: "acos(1) → 0.0"},
		{op: gpu.OpMath, n: int(gpu.MathAtan), args: "x", takes: "f", gives: float, about: "The inverse tangent.",
			examples: "atan(0) → 0.0"},
		{op: gpu.OpAtan2, args: "y, x", takes: "f", gives: float, about: "The angle of the point (x, y).",
			examples: "round(atan2(1, -1), 9) → 2.35619449"},
		{op: gpu.OpMath, n: int(gpu.MathSinh), args: "x", takes: "f", gives: float, about: "The hyperbolic sine.",
			examples: "sinh(0) → 0.0"},
		{op: gpu.OpMath, n: int(gpu.MathCosh), args: "x", takes: "f", gives: float, about: "The hyperbolic cosine.",
			examples: "cosh(0) → 1.0"},
		{op: gpu.OpMath, n: int(gpu.MathTanh), args: "x", takes: "f", gives: float, about: "The hyperbolic tangent.",
			examples: "tanh(0) → 0.0"},
		{op: gpu.OpMath, n: int(gpu.MathAsinh), args: "x", takes: "f", gives: float,
			about: "The inverse hyperbolic sine.", examples: "asinh(0) → 0.0"},
		{op: gpu.OpMath, n: int(gpu.MathAcosh), args: "x", takes: "f", gives: float,
			about: "The inverse hyperbolic cosine; NaN below 1.", examples: "acosh(1) → 0.0"},
		{op: gpu.OpMath, n: int(gpu.MathAtanh), args: "x", takes: "f", gives: float,
			about: "The inverse hyperbolic tangent; NaN above 1.", examples: "atanh(0) → 0.0"},
		{op: gpu.OpMath, n: int(gpu.MathGamma), args: "x", takes: "f", gives: float, about: "The gamma function.",
			examples: "gamma(5) → 24.0"},
		{op: gpu.OpMath, n: int(gpu.MathLgamma), args: "x", takes: "f", gives: float,
			about:    "The logarithm of the absolute value of the gamma function.",
			examples: "round(lgamma(10), 9) → 12.80182748"},
		{name: "factorial", args: "n", bind: bindFactorial, result: "HUGEINT",
			about: "The product of the numbers from 1 to n, which is at most 33.", examples: "factorial(5) → 120"},
		{op: gpu.OpNextAfter, args: "x, y", bind: bindNextAfter,
			result: "DOUBLE; FLOAT if an argument is a FLOAT and none a DOUBLE",
			about:  "The float next to x in the direction of y.", examples: "nextafter(1e0, 2) → 1.0000000000000002"},
		{name: "pi", bind: constantFloat(math.Pi), result: dbl, about: "π.", nulls: "never",
			examples: "pi() → 3.141592653589793"},
		{name: "degrees", args: "x", bind: macro("f", "_1 * (180 / "+piSQL+")"), result: dbl,
			about: "Radians as degrees.", examples: "degrees(pi()) → 180.0"},
		{name: "radians", args: "x", bind: macro("f", "_1 * ("+piSQL+" / 180)"), result: dbl,
			about: "Degrees as radians.", examples: "radians(180) → 3.141592653589793"},
		{op: gpu.OpGCD, aliases: "greatest_common_divisor", args: "x, y", bind: bindGCD,
			result: "BIGINT; HUGEINT for HUGEINT", about: "The greatest common divisor.", examples: "gcd(12, -18) → 6"},
		{name: "lcm", aliases: "least_common_multiple", args: "x, y", bind: bindLCM,
			result: "BIGINT; HUGEINT for HUGEINT", about: "The least common multiple.", examples: "lcm(4, 6) → 12"},
		{name: "even", args: "x",
			bind: macro("f", "CASE WHEN _1 >= 0 THEN ceil(_1 / 2) * 2 ELSE floor(_1 / 2) * 2 END"), result: dbl,
			about: "The next even number away from zero.", examples: "even(2.5) → 4.0\neven(-3) → -4.0"},
		{name: "fdiv", args: "x, y", bind: macro("n", "floor(_1::DOUBLE / _2::DOUBLE)"), result: dbl,
			about: "x / y, rounded down.", examples: "fdiv(-5, 2) → -3.0"},
		{name: "fmod", args: "x, y",
			bind: macro("f",
				"CASE WHEN _1 % _2 = 0 THEN 0e0 WHEN (_1 % _2 < 0) <> (_2 < 0) AND _1 % _2 <> 'nan'::DOUBLE THEN _1 "+
					"% _2 + _2 ELSE _1 % _2 END"), result: dbl,
			about:    "The remainder of x / y rounded down, which is exact and has the sign of y.",
			examples: "fmod(-5.5, 2) → 0.5\nfmod(1e18, 7) → 1.0"},
		{name: "isfinite", args: "x", bind: bindFinite("abs(_1) < 'inf'::DOUBLE",
			"_1 <> 'infinity' AND _1 <> '-infinity'"), result: boolean,
			about:    "Whether a number or date is neither infinite nor NaN.",
			examples: "isfinite('inf'::DOUBLE) → false\nisfinite(DATE '2024-03-15') → true"},
		{name: "isinf", args: "x", bind: bindFinite("abs(_1) = 'inf'::DOUBLE", "_1 = 'infinity' OR _1 = '-infinity'"),
			result: boolean, about: "Whether a number or date is infinite.",
			examples: "isinf('-infinity'::DATE) → true"},
		{name: "isnan", args: "x", bind: bindFinite("_1 = 'nan'::DOUBLE", ""), result: boolean,
			about: "Whether a number is NaN.", examples: "isnan('nan'::DOUBLE) → true"},
		{name: "signbit", args: "x", bind: macro("f", "_1 < 0 OR _1 = 0 AND 1 / _1 < 0"), result: boolean,
			about: "Whether a number has a minus sign, as -0.0 has.", examples: "signbit(-0e0) → true"},
		{op: gpu.OpBitCount, args: "x", bind: bindBitCount, result: "TINYINT; SMALLINT for UBIGINT and HUGEINT",
			about: "The number of bits of an integer that are 1.", examples: "bit_count(5) → 2"},
		{op: gpu.OpBitXor, args: "x, y", bind: bindXor, result: "the common type",
			about: "The bits that are set in exactly one of two integers.", examples: "xor(5, 3) → 6"},
	}
}

func textFunctions() []function {
	return []function{
		{op: gpu.OpLength, aliases: "len char_length character_length", args: "s", bind: bindLength, result: bigint,
			about: "The number of code points.", examples: "length('Äpfel') → 5"},
		{name: "octet_length", args: "blob", bind: bindOctets, result: bigint, about: "The bytes of a BLOB.",
			examples: "octet_length('abc'::BLOB) → 3"},
		{op: gpu.OpLower, aliases: "lcase", args: "s", takes: "s", gives: text,
			about: "Lower case.", examples: "lower('ÄB') → äb"},
		{op: gpu.OpUpper, aliases: "ucase", args: "s", takes: "s", gives: text,
			about: "Upper case.", examples: "upper('äb') → ÄB"},
		{op: gpu.OpReverse, args: "s", takes: "s", gives: text,
			about: "The code points in reverse order.", examples: "reverse('abc') → cba"},
		{op: gpu.OpStripAccents, args: "s", takes: "s", gives: text,
			about: "Letters without their accents.", examples: "strip_accents('Ärger über Łódź') → Arger uber Łodz"},
		{op: gpu.OpReplace, args: "s, from, to", takes: "s", gives: text,
			about: "Replaces all occurrences of a text.", examples: "replace('hello', 'l', '-') → he--o"},
		{op: gpu.OpPosition, aliases: "position instr", args: "s, part", takes: "s", gives: long,
			about: "The position of the first occurrence of a text, counted from 1; 0 without one. Also " +
				"position(part IN s).", examples: "strpos('hello', 'l') → 3\nposition('x' IN 'hello') → 0"},
		{op: gpu.OpStartsWith, aliases: "prefix", args: "s, part", takes: "s", gives: truth,
			about: "Whether s begins with part.", examples: "starts_with('hello', 'he') → true"},
		{op: gpu.OpEndsWith, aliases: "suffix", args: "s, part", takes: "s", gives: truth,
			about: "Whether s ends with part.", examples: "ends_with('hello', 'he') → false"},
		{op: gpu.OpContains, args: "s, part", bind: bindContainsAny, result: boolean,
			about:    "Whether part occurs in s. Also whether a LIST has a value, or a MAP a key; so does x IN list.",
			examples: "contains('hello', 'ell') → true\ncontains([1, 2], 2) → true\n2 IN [1, 2] → true"},
		{op: gpu.OpSubstring, aliases: "substr", args: "s, start[, length]", bind: bindSubstring, result: varchar,
			about: "Code points from a position on, counted from 1, or from the end if negative. A negative length " +
				"takes those before. Also substring(s FROM start FOR length).",
			examples: "substring('hello', 2, 3) → ell\nsubstring('hello', -3) → llo"},
		{name: "left", args: "s, n", bind: bindLeft, result: varchar,
			about:    "The first n code points; all but the last -n if n is negative.",
			examples: "left('hello', 2) → he\nleft('hello', -2) → hel"},
		{name: "right", args: "s, n", bind: bindRight, result: varchar,
			about:    "The last n code points; all but the first -n if n is negative.",
			examples: "right('hello', 2) → lo"},
		{op: gpu.OpLength, n: 1, name: "strlen", args: "s", takes: "s", gives: long,
			about: "The bytes of a text.", examples: "strlen('Äpfel') → 6"},
		{name: "bit_length", args: "s", bind: macro("s", "strlen(_1) * 8"), result: bigint,
			about: "The bits of a text.", examples: "bit_length('ab') → 16"},
		{op: gpu.OpCodePoint, args: "s", takes: "s", gives: gpu.Of(gpu.Int32),
			about: "The number of the first code point; 0 for an empty text.", examples: "ascii('ä') → 228"},
		{op: gpu.OpCodePoint, n: -1, name: "unicode", aliases: "ord", args: "s", takes: "s", gives: gpu.Of(gpu.Int32),
			about:    "The number of the first code point; -1 for an empty text.",
			examples: "unicode('ä') → 228\nord('') → -1"},
		{op: gpu.OpChr, args: "n", bind: bindChr, result: varchar, about: "The code point of a number.",
			examples: "chr(8364) → €"},
		{op: gpu.OpSplitPart, args: "s, separator, n", takes: "ssi", gives: text,
			about: "Part n of s between separators, from the end if n is negative; an empty text if there is none. " +
				"An empty separator cuts between code points.",
			examples: "split_part('a,b,c', ',', 2) → b\nsplit_part('a,b,c', ',', -1) → c"},
		{name: "format", args: "format, …", bind: bindFormat((*formatter).braces), result: varchar,
			about: "The arguments in place of {} in a constant format, or {0}, {1}, … by number. {:>10}, {:<10} " +
				"and {:^10} are widths with an alignment, {:05} has zeros, {:,} separates thousands, and x X o b are " +
				"digits of other bases. A precision for floats is not supported: use round.",
			examples: "format('{} is {}', 'a', 1) → a is 1\nformat('{:05d} {:,} {:>4}', 42, 1234567, 'x') → 00042 " +
				"1,234,567    x"},
		{name: "printf", args: "format, …", bind: bindFormat((*formatter).percents), result: varchar,
			about: "format with placeholders as in C: %s for text, %d %x %X %o for integers, with widths as " +
				"%5d %-5s %05d.",
			examples: "printf('%s: %05d', 'a', 42) → a: 00042"},
		{op: gpu.OpEncode, n: int(gpu.Hex), aliases: "to_hex", args: "x", bind: bindDigits(16, gpu.Hex),
			result: varchar,
			about: "The hexadecimal digits of an integer, of a text or of a BLOB. A negative number is that of its " +
				"64 or 128 bits.", examples: "hex(255) → FF\nhex('abc') → 616263"},
		{op: gpu.OpEncode, n: int(gpu.FromHex), aliases: "from_hex", args: "s",
			bind:   bindDecode(gpu.FromHex, "[0-9A-Fa-f]*", "found something else than hexadecimal digits"),
			result: "BLOB", about: "The bytes of hexadecimal digits.", examples: "unhex('616263') → abc"},
		{op: gpu.OpEncode, n: int(gpu.Bits), aliases: "to_binary", args: "x", bind: bindDigits(2, gpu.Bits),
			result:   varchar,
			about:    "The binary digits of an integer, or of the bytes of a text.",
			examples: "bin(10) → 1010\nbin('a') → 01100001"},
		{op: gpu.OpEncode, n: int(gpu.FromBits), aliases: "from_binary", args: "s",
			bind: bindDecode(gpu.FromBits, "[01]*", "found something else than binary digits"), result: "BLOB",
			about: "The bytes of binary digits.", examples: "unbin('01100001') → a"},
		{op: gpu.OpDigits, args: "n, base[, length]", bind: bindToBase, result: varchar,
			about: "The digits of a number that is not negative in a constant base from 2 to 36, with zeros before " +
				"them up to a length.", examples: "to_base(42, 16) → 2A\nto_base(42, 2, 8) → 00101010"},
		{op: gpu.OpEncode, n: int(gpu.Base64), aliases: "base64", args: "blob", bind: bindBase64, result: varchar,
			about: "A BLOB in base64.", examples: "to_base64('ab'::BLOB) → YWI="},
		{op: gpu.OpEncode, n: int(gpu.FromBase64), args: "s",
			bind: bindDecode(gpu.FromBase64, "(?:[0-9A-Za-z+/]{4})*(?:[0-9A-Za-z+/]{2}==|[0-9A-Za-z+/]{3}=)?",
				"found something else than base64, in groups of 4 digits"), result: "BLOB",
			about: "The bytes of a text in base64.", examples: "from_base64('YWI=') → ab"},
		{op: gpu.OpEncode, n: int(gpu.Raw), name: "encode", args: "s",
			bind: bindEncode(gpu.Raw, gpu.Of(gpu.Binary), false), result: "BLOB",
			about: "The bytes of a text.", examples: "encode('ä') → \\xC3\\xA4"},
		{name: "decode", args: "blob", bind: bindDecodeText, result: varchar,
			about: "The text of bytes, which must be UTF-8.", examples: "decode('a\\xC3\\xA4'::BLOB) → aä"},
		{op: gpu.OpEncode, n: int(gpu.URL), args: "s", bind: bindEncode(gpu.URL, text, false), result: varchar,
			about: "Encodes all characters but letters, digits and - . _ ~ as %HH.", examples: "url_encode('a " +
				"b/c') → a%20b%2Fc"},
		{op: gpu.OpEncode, n: int(gpu.FromURL), args: "s", bind: bindDecodeURL, result: varchar,
			about: "The text whose url_encode is s.", examples: "url_decode('a%20b%2Fc') → a b/c"},
		{op: gpu.OpDistance, n: int(gpu.Levenshtein), aliases: "editdist3", args: "s, t",
			bind: bindDistance(gpu.Levenshtein), result: bigint,
			about:    "The least number of code points to insert, delete or replace that turn one text into the other.",
			examples: "levenshtein('kitten', 'sitting') → 3\nlevenshtein('é', 'e') → 1"},
		{op: gpu.OpDistance, n: int(gpu.DamerauLevenshtein), args: "s, t", bind: bindDistance(gpu.DamerauLevenshtein),
			result:   bigint,
			about:    "levenshtein that may also swap two neighbours.",
			examples: "damerau_levenshtein('abc', 'acb') → 1"},
		{op: gpu.OpDistance, n: int(gpu.Hamming), aliases: "mismatches", args: "s, t", bind: bindDistance(gpu.Hamming),
			result:   bigint,
			about:    "The number of positions at which two texts of equal length differ.",
			examples: "hamming('duck', 'luck') → 1"},
		{op: gpu.OpDistance, n: int(gpu.Jaccard), args: "s, t", bind: bindDistance(gpu.Jaccard), result: dbl,
			about:    "The number of distinct code points in both texts, divided by the number in either.",
			examples: "jaccard('duck', 'luck') → 0.6"},
		{op: gpu.OpDistance, n: int(gpu.Jaro), args: "s, t[, least]", bind: bindDistance(gpu.Jaro), result: dbl,
			about:    "The Jaro similarity of the code points, from 0 to 1; 0 below the least.",
			examples: "jaro_similarity('duck', 'duckdb') → 0.8888888888888888"},
		{op: gpu.OpDistance, n: int(gpu.JaroWinkler), args: "s, t[, least]", bind: bindDistance(gpu.JaroWinkler),
			result:   dbl,
			about:    "The Jaro-Winkler similarity, which favours a common prefix.",
			examples: "jaro_winkler_similarity('duck', 'duckdb') → 0.9333333333333333"},
		{name: "overlay", args: "s, text, start[, count]", bind: bindOverlay, result: varchar,
			about: "Replaces count code points from a position on; without a count, as many as text has. Also " +
				"overlay(s PLACING text FROM start FOR count).",
			examples: "overlay('hello', 'XX', 2, 3) → hXXo\noverlay('hello' PLACING 'XX' FROM 2) → hXXlo"},
		{name: "parse_filename", args: "path[, trim, separator]", bind: bindPath(func(sep string, trim bool) string {
			body := "regexp_extract(_1, '[^" + sep + "]*$')"
			if trim {
				body = "regexp_replace(" + body + `, '\.[^.]*$', '')`
			}
			return body
		}), result: varchar,
			about: "The part after the last separator of a path; with trim = true without its extension. The " +
				"separator is 'both_slash' (the default), 'forward_slash', 'backslash' or 'system'.",
			examples: "parse_filename('/data/a.csv') → a.csv\nparse_filename('/data/a.csv', true) → a"},
		{name: "parse_dirname", args: "path[, separator]", bind: bindPath(func(sep string, _ bool) string {
			return "regexp_extract(_1, '^([^" + sep + "]+)[" + sep + "]', 1) || regexp_extract(_1, '^[" + sep + "]')"
		}), result: varchar, about: "The first directory of a path.", examples: "parse_dirname('data/x/a.csv') → data"},
		{name: "parse_dirpath", args: "path[, separator]", bind: bindPath(func(sep string, _ bool) string {
			return "CASE WHEN regexp_full_match(_1, '[" + sep + "]') THEN _1 ELSE regexp_extract(_1, '^(.*)[" + sep +
				"]', 1, 's') END"
		}), result: varchar, about: "The part before the last separator of a path.",
			examples: "parse_dirpath('/data/x/a.csv') → /data/x"},
		{name: "formatreadablesize", aliases: "format_bytes", args: "n",
			bind: bindReadable(readable(1024, "KiB", "MiB", "GiB", "TiB", "PiB")), result: varchar,
			about: "A number of bytes in KiB, MiB, …", examples: "formatReadableSize(1234567) → 1.1 MiB"},
		{name: "formatreadabledecimalsize", args: "n", bind: bindReadable(readable(1000, "kB", "MB", "GB", "TB", "PB")),
			result: varchar, about: "A number of bytes in kB, MB, …",
			examples: "formatReadableDecimalSize(1234567) → 1.2 MB"},
		{name: "like_escape", args: "s, pattern, escape", bind: bindEscape(false, false), unbound: true,
			result: boolean, about: "s LIKE pattern ESCAPE escape.",
			examples: "like_escape('50%', '50!%', '!') → true"},
		{name: "not_like_escape", args: "s, pattern, escape", bind: bindEscape(true, false), unbound: true,
			result: boolean, about: "s NOT LIKE pattern ESCAPE escape.",
			examples: "not_like_escape('50%', '50!%', '!') → false"},
		{name: "ilike_escape", args: "s, pattern, escape", bind: bindEscape(false, true), unbound: true,
			result: boolean, about: "s ILIKE pattern ESCAPE escape.",
			examples: "ilike_escape('A%', 'a!%', '!') → true"},
		{name: "not_ilike_escape", args: "s, pattern, escape", bind: bindEscape(true, true), unbound: true,
			result: boolean, about: "s NOT ILIKE pattern ESCAPE escape.",
			examples: "not_ilike_escape('A%', 'a!%', '!') → false"},
		{op: gpu.OpRegexp, args: "s, pattern[, options]", bind: bindRegexp(0), result: boolean,
			about: "Whether a regular expression matches a part of s. The pattern is constant, in the syntax of RE2. " +
				"Options are letters: i ignores case, s lets . match line ends too, l takes the pattern as plain " +
				"text. Also s ~ pattern.",
			examples: "regexp_matches('hello', 'l+') → true\nregexp_matches('Hello', '^h', 'i') → true"},
		{name: "regexp_full_match", args: "s, pattern[, options]", bind: bindRegexp(regex.Full), result: boolean,
			about:    "Whether a regular expression matches all of s. Also s SIMILAR TO pattern.",
			examples: "regexp_full_match('hello', 'h.*o') → true\nregexp_full_match('hello', 'l+') → false"},
		{op: gpu.OpRegexpExtract, args: "s, pattern[, group, options]", bind: bindRegexpExtract, result: varchar,
			about: "The first match of a regular expression, or a group of it; an empty text if there is none.",
			examples: "regexp_extract('2024-03-15', '[0-9]+') → 2024\nregexp_extract('2024-03-15', " +
				"'-(\\d+)-', 1) → 03"},
		{op: gpu.OpRegexpReplace, args: "s, pattern, replacement[, options]", bind: bindRegexpReplace, result: varchar,
			about: "Replaces the first match of a regular expression; with option g all of them. In the replacement " +
				"\\0 is the match, \\1 to \\9 are groups, and \\\\ is a backslash.",
			examples: "regexp_replace('hello', 'l', '-') → he-lo\nregexp_replace('hello', '(.)l', '\\1L', " +
				"'g') → heLlo"},
		{name: "regexp_escape", args: "s",
			bind: macro("s",
				`replace(regexp_replace(_1, '([^0-9A-Za-z_\x{80}-\x{10ffff}\x00])', '\\\1', 'g'), chr(0), '\x00')`),
			result: varchar, about: "A regular expression that matches s itself.",
			examples: "regexp_escape('a.b') → a\\.b"},
		{op: gpu.OpRepeat, args: "s, n", bind: bindRepeat, result: "that of s",
			about: "s n times, or the elements of a list.", examples: "repeat('ab', 3) → ababab\n" +
				"repeat([1, 2], 2) → [1, 2, 1, 2]"},
		{op: gpu.OpTranslate, args: "s, from, to", takes: "sss", gives: text,
			about: "Replaces each code point of from by the one at the same position in to, or drops it if " +
				"there is none.",
			examples: "translate('12345', '143', 'ax') → a2x5"},
		{name: "lpad", args: "s, n, padding", bind: pad("_1 || _2"), result: varchar,
			about: "s padded on the left, or cut, to n code points.", examples: "lpad('7', 3, '0') → 007"},
		{name: "rpad", args: "s, n, padding", bind: pad("_2 || _1"), result: varchar,
			about: "s padded on the right, or cut, to n code points.", examples: "rpad('ab', 5, 'xy') → abxyx"},
		{name: "concat_ws", args: "separator, x, …", bind: bindConcatWS, result: varchar,
			about: "Joins the texts of the arguments, and of the elements of lists, that are not null, with a " +
				"separator between them.",
			nulls: "if the separator is", examples: "concat_ws(', ', 'a', NULL, 3) → a, 3"},
		{name: "array_slice", aliases: "list_slice", args: "s, from, to[, step]", bind: bindSlice, result: varchar,
			about: "The code points from one position to another, which counts from the end if negative. Also " +
				"s[from:to], s[from:], s[:to].",
			examples: "array_slice('hello', 2, 3) → el\n'hello'[2:-2] → ell\n'hello'[:2] → he"},
		{name: "array_extract", aliases: "list_extract", args: "s, n", bind: bindExtract,
			result: varchar, about: "Code point n, from the end if n is negative. Also s[n].",
			examples: "array_extract('hello', 2) → e\n'hello'[-1] → o"},
		{op: gpu.OpDigest, n: int(gpu.MD5), args: "s", takes: "v", gives: text,
			about:    "The MD5 hash of a text or BLOB in hexadecimal digits.",
			examples: "md5('a') → 0cc175b9c0f1b6a831c399e269772661"},
		{op: gpu.OpDigest, n: int(gpu.SHA1), args: "s", takes: "v", gives: text, about: "The SHA-1 hash.",
			examples: "sha1('a') → 86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"},
		{op: gpu.OpDigest, n: int(gpu.SHA256), args: "s", takes: "v", gives: text, about: "The SHA-256 hash.",
			examples: "sha256('a') → ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"},
		{name: "concat", args: "x, …", bind: bindConcat, result: varchar,
			about: "Joins the texts of its arguments, or lists.",
			nulls: "never; a null is an empty text", examples: "concat('a', 1, NULL, true) → a1true"},
		{op: gpu.OpTrim, n: gpu.TrimLeft | gpu.TrimRight, args: "s[, characters]",
			bind: trim(gpu.TrimLeft | gpu.TrimRight), result: varchar,
			about:    "Drops the given characters, or spaces, at both ends. Also trim(BOTH characters FROM s).",
			examples: "trim('  a ') → a\ntrim('xxaxx', 'x') → a"},
		{op: gpu.OpTrim, n: gpu.TrimLeft, args: "s[, characters]", bind: trim(gpu.TrimLeft), result: varchar,
			about: "trim at the beginning.", examples: "ltrim('xxaxx', 'x') → axx"},
		{op: gpu.OpTrim, n: gpu.TrimRight, args: "s[, characters]", bind: trim(gpu.TrimRight), result: varchar,
			about:    "trim at the end.",
			examples: "rtrim('xxaxx', 'x') → xxa"},
	}
}

func dateFunctions() []function {
	list := []function{
		{op: gpu.OpExtract, aliases: "datepart", args: "part, d", bind: bindDatePart, intervals: true,
			result: "BIGINT; DOUBLE for epoch and julian", nulls: "if d is null or infinite",
			about: "A part of a date or time. Also extract(part FROM d).",
			examples: "date_part('month', DATE '2024-03-15') → 3\nextract(hour FROM TIMESTAMP '2024-03-15 " +
				"10:30:00') → 10"},
		{op: gpu.OpDateTrunc, aliases: "datetrunc", args: "part, d", bind: bindDateTrunc,
			result: "TIMESTAMP, WITH TIME ZONE as d", about: "The first moment of the part in which d is.",
			examples: "date_trunc('month', TIMESTAMP '2024-03-15 10:30:00') → 2024-03-01 00:00:00"},
	}
	moments := "DATE '2024-01-31', TIMESTAMP '2024-03-15 10:00:00'"
	list = append(list, []function{
		{name: "date_diff", aliases: "datediff", args: "part, from, to", bind: bindDateDiff, result: bigint,
			about: "The number of boundaries of the part between two dates or times; for weeks, the number of " +
				"complete weeks.",
			nulls: "if a date is null or infinite",
			examples: "date_diff('month', " + moments +
				") → 2\ndate_diff('hour', TIME '10:59:00', TIME '11:00:00') → 1"},
		{name: "date_sub", aliases: "datesub", args: "part, from, to", bind: bindDateSub, result: bigint,
			about: "The number of complete parts between two dates or times.", nulls: "if a date is null or infinite",
			examples: "date_sub('month', " + moments + ") → 1"},
		{name: "date_add", args: "d, interval", bind: bindDateAdd, intervals: true, result: "that of d + interval",
			about: "d + interval.", examples: "date_add(DATE '2024-01-31', INTERVAL 1 MONTH) → 2024-02-29 00:00:00"},
		{name: "age", args: "to[, from]", bind: bindAge, intervals: true, result: "INTERVAL",
			about: "The time between two moments in years, months, days and the rest; with one argument from " +
				"it to today.", nulls: "if an argument is null or infinite",
			examples: "age(TIMESTAMP '2024-03-15 10:00:00', TIMESTAMP '2023-03-31 12:30:00')::VARCHAR → 11 months 14 " +
				"days 21:30:00"},
		{name: "last_day", args: "d", bind: macro("d", "make_date(year(_1), month(_1), days_in_month(_1))"),
			result: "DATE", about: "The last day of the month.", examples: "last_day(DATE '2024-02-03') → 2024-02-29"},
		{name: "days_in_month", args: "d", bind: macro("d", monthDays), result: bigint, about: "The days of the month.",
			examples: "days_in_month(DATE '2024-02-03') → 29"},
		{name: "monthname", args: "d", bind: nameOf("month", monthNames), result: varchar,
			about: "The name of the month in English.", examples: "monthname(DATE '2024-03-15') → March"},
		{name: "dayname", args: "d", bind: nameOf("isodow", weekdayNames), result: varchar,
			about: "The name of the day of the week in English.", examples: "dayname(DATE '2024-03-15') → Friday"},
		{name: "time_bucket", args: "width, d[, offset or origin]", bind: bindTimeBucket, intervals: true,
			result: "that of d",
			about: "The beginning of the bucket that contains d. width is a constant INTERVAL. Buckets begin at " +
				"2000-01-03, or at 2000-01-01 if width is in months; at an origin; or later by an offset, which is " +
				"an INTERVAL.",
			examples: "time_bucket(INTERVAL 15 MINUTE, TIMESTAMP '2024-03-15 10:50:00') → 2024-03-15 " +
				"10:45:00\ntime_bucket(INTERVAL 1 WEEK, DATE '2024-03-15') → 2024-03-11"},
		{name: "epoch_us", args: "d", bind: bindEpochMicros, intervals: true, result: bigint,
			about: "The microseconds since 1970-01-01 or midnight, or of an INTERVAL.",
			nulls: "if d is null or infinite", examples: "epoch_us(TIMESTAMP '1970-01-01 00:00:01.5') → 1500000"},
		{name: "epoch_ms", args: "d", bind: bindEpochMillis, intervals: true,
			result: "BIGINT; TIMESTAMP for an integer",
			about: "The milliseconds since 1970-01-01, rounded, or since midnight. Of an integer, the TIMESTAMP " +
				"with so many milliseconds.", nulls: "if d is null or infinite",
			examples: "epoch_ms(DATE '1970-01-02') → 86400000\nepoch_ms(1500) → 1970-01-01 00:00:01.5"},
		{name: "epoch_ns", args: "d", bind: bindEpochNanos, intervals: true, result: bigint,
			about: "The nanoseconds since 1970-01-01 or midnight.", nulls: "if d is null or infinite",
			examples: "epoch_ns(TIMESTAMP_NS '1970-01-01 00:00:00.000000007') → 7"},
		{op: gpu.OpMakeDate, args: "[year, month, ]day", bind: bindMakeDate, result: "DATE",
			about: "The date of a year, month and day, which must exist; of one number, the day so many days " +
				"after 1970-01-01.", examples: "make_date(2024, 2, 29) → 2024-02-29\nmake_date(19000) → 2022-01-08"},
		{name: "make_time", args: "hour, minute, second", bind: bindMakeTime, result: "TIME",
			about:    "The time of an hour, a minute and seconds, which may have a fraction.",
			examples: "make_time(10, 30, 59.5) → 10:30:59.5"},
		{name: "make_timestamp", args: "[year, month, day, hour, minute, ]second", bind: bindMakeTimestamp("TIMESTAMP"),
			result: "TIMESTAMP",
			about:  "The moment of its parts; of one number, the moment so many microseconds after 1970-01-01.",
			examples: "make_timestamp(2024, 2, 29, 10, 30, 1.5) → 2024-02-29 10:30:01.5\nmake_timestamp(1500000) → " +
				"1970-01-01 00:00:01.5"},
		{name: "make_timestamptz", args: "[year, month, day, hour, minute, ]second",
			bind: bindMakeTimestamp("TIMESTAMPTZ"), result: "TIMESTAMPTZ", about: "make_timestamp in UTC.",
			examples: "make_timestamptz(2024, 2, 29, 10, 30, 1.5) → 2024-02-29 10:30:01.5+00"},
		{name: "nanosecond", args: "d", bind: bindNanosecond, result: bigint, about: "The nanoseconds of the minute.",
			nulls:    "if d is null or infinite",
			examples: "nanosecond(TIMESTAMP_NS '2024-03-15 10:30:01.000000007') → 1000000007"},
		{name: "strftime", args: "d, format", bind: bindStrftime, result: varchar,
			about: "A date as text in a constant format: %Y %m %d %H %M %S, %f microseconds, %g milliseconds, %n " +
				"nanoseconds, %j day of the year, %a %A and %b %B names of days and months, %p with %I for twelve " +
				"hours, %y, %u and %w days of the week, %U and %W weeks from the first Sunday or Monday, %G %V ISO " +
				"weeks, %c %x %X. A minus, as in %-d, leaves leading zeros out.",
			examples: "strftime(TIMESTAMP '2024-03-05 14:07:09', '%d.%m.%Y %H:%M') → 05.03.2024 14:07\nstrftime(DATE " +
				"'2024-03-05', '%a %-d %B') → Tue 5 March"},
		{name: "ago", args: "interval", bind: bindAgo, intervals: true, result: "TIMESTAMPTZ",
			about: "now() - interval.", examples: "ago(INTERVAL 1 DAY) < now() → true"},
		{name: "timezone_hour", args: "d", bind: bindZonePart, result: bigint,
			about: "The hours of the offset from UTC, which is 0.", nulls: "if d is null or infinite",
			examples: "timezone_hour(TIMESTAMPTZ '2024-03-15 10:00:00+02') → 0"},
		{name: "timezone_minute", args: "d", bind: bindZonePart, result: bigint,
			about: "The minutes of the offset from UTC, which is 0.", nulls: "if d is null or infinite",
			examples: "timezone_minute(TIMESTAMPTZ '2024-03-15 10:00:00+02') → 0"},
		{op: gpu.OpParseTime, args: "s, format", bind: bindStrptime(0),
			result: "TIMESTAMP; TIMESTAMPTZ with %z; TIMESTAMP_NS with %n",
			about: "The date and time of a text in a constant format, that of strftime. %z is an offset as +02:00, " +
				"%n nanoseconds. Missing parts are those of 1900-01-01 00:00:00. Numbers may have fewer digits, %b " +
				"%B %a %A and %p any case.",
			examples: "strptime('05.03.2024 14:07', '%d.%m.%Y %H:%M') → 2024-03-05 14:07:00\nstrptime('Mar 5 2024 2 " +
				"PM', '%b %d %Y %I %p') → 2024-03-05 14:00:00"},
		{op: gpu.OpParseTime, n: 1, args: "s, format", bind: bindStrptime(1), result: "that of strptime",
			about: "strptime that returns null where the text has another form.", nulls: "if s is, or has another form",
			examples: "try_strptime('tomorrow', '%Y-%m-%d') → NULL"},
		{name: "timezone", args: "zone, d", bind: bindTimezone, result: "TIMESTAMPTZ; TIMESTAMP for a TIMESTAMPTZ",
			about: "The moment at which clocks of a time zone show d; of a moment, the time that they show then. " +
				"Also d AT TIME ZONE zone. The zone is a constant name of the IANA database.",
			examples: "TIMESTAMP '2024-07-01 12:00:00' AT TIME ZONE 'Europe/Berlin' → 2024-07-01 " +
				"10:00:00+00\ntimezone('America/New_York', TIMESTAMPTZ '2024-07-01 12:00:00+00') → " +
				"2024-07-01 08:00:00"},
		{name: "to_timestamp", args: "seconds", bind: bindToTimestamp, result: "TIMESTAMPTZ",
			about:    "The moment so many seconds after 1970-01-01.",
			examples: "to_timestamp(1.5) → 1970-01-01 00:00:01.5+00"},
		{name: "make_timestamp_ms", args: "ms", bind: timestampOf(gpu.TimestampOf(gpu.Microsecond, false), 1000),
			result: "TIMESTAMP", about: "The TIMESTAMP so many milliseconds after 1970-01-01.",
			examples: "make_timestamp_ms(1500) → 1970-01-01 00:00:01.5"},
		{name: "make_timestamp_ns", args: "ns", bind: timestampOf(gpu.TimestampOf(gpu.Nanosecond, false), 1),
			result: "TIMESTAMP_NS", about: "The TIMESTAMP_NS so many nanoseconds after 1970-01-01.",
			examples: "make_timestamp_ns(7) → 1970-01-01 00:00:00.000000007"},
		{name: "current_date", aliases: "today", bind: atPlanning("DATE"), result: "DATE",
			about: "The day in UTC, the same in a whole run. current_date also without parentheses.", nulls: "never",
			examples: "current_date > DATE '2024-01-01' → true"},
		{name: "now", aliases: "current_timestamp get_current_timestamp transaction_timestamp",
			bind: atPlanning("TIMESTAMPTZ"), result: "TIMESTAMPTZ",
			about: "The time, the same in a whole run. current_timestamp also without parentheses.", nulls: "never",
			examples: "now() > TIMESTAMPTZ '2024-01-01' → true"},
		{name: "localtimestamp", bind: atPlanning("TIMESTAMP"), result: "TIMESTAMP",
			about: "The time in UTC, the same in a whole run. Also without parentheses.", nulls: "never",
			examples: "localtimestamp > TIMESTAMP '2024-01-01' → true"},
	}...)
	for _, u := range []string{"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND",
		"MICROSECOND", "DECADE", "CENTURY", "MILLENNIUM"} {
		plural := map[string]string{"CENTURY": "centuries", "MILLENNIUM": "millennia"}[u]
		if plural == "" {
			plural = strings.ToLower(u) + "s"
		}
		list = append(list, function{name: "to_" + plural, args: "n", bind: toInterval(u), result: "INTERVAL",
			about: "INTERVAL (n) " + u + ".", examples: "to_" + plural + "(2) = INTERVAL 2 " + u + " → true"})
	}
	for _, p := range syntax.DateParts {
		if p.Example == "" {
			continue // only as a part
		}
		names := strings.Fields(strings.ToLower(p.Functions))
		part := p.Part
		list = append(list, function{intervals: true, name: names[0], aliases: strings.Join(names[1:], " "), args: "d",
			result: datePartResult(p.Part), nulls: "if d is null or infinite", about: p.About,
			examples: names[0] + p.Example,
			bind: func(b *binder, n *syntax.Call, a []*Expr) (*Expr,
				error) {
				return b.extract(n, part, n.Args[0], a[0])
			}})
	}
	return list
}

func anyFunctions() []function {
	return []function{
		{name: "coalesce", args: "x, …", bind: bindCoalesce, lazy: true, result: "the common type",
			about: "The first argument that is not null.", nulls: "if all arguments are",
			examples: "coalesce(NULL, 2, 3) → 2"},
		{name: "ifnull", args: "x, y", bind: bindCoalesce, lazy: true, result: "the common type",
			about: "x, or y where x is null.", nulls: "if both arguments are", examples: "ifnull(NULL, 'none') → none"},
		{name: "nullif", args: "x, y", bind: bindNullIf, result: likeX, about: "x, or null where x equals y.",
			nulls: "if x is null or equals y", examples: "nullif(5, 5) → NULL\nnullif(5, 0) → 5"},
		{name: "greatest", args: "x, …", bind: extreme(gpu.OpGe), result: "the common type",
			about: "The greatest of the arguments that are not null.", nulls: "if all arguments are",
			examples: "greatest(3, NULL, 7) → 7"},
		{name: "least", args: "x, …", bind: extreme(gpu.OpLe), result: "the common type",
			about: "The least of the arguments that are not null.", nulls: "if all arguments are",
			examples: "least(3, NULL, 7) → 3"},
		{op: gpu.OpHash, args: "x, …", bind: bindHash, result: "UBIGINT",
			about: "A hash of values, that of DuckDB 2.0. All NaNs have one.", nulls: "never",
			examples: "hash(1) → 4717996019076358352\nhash('a', NULL) → 12149695185283952434"},
		{name: "try", args: "x", bind: bindTry, unbound: true, result: likeX,
			about: "x, or null where an operation in it fails.", nulls: "if x is null or fails",
			examples: "try(1 // 0) → NULL\ntry('42'::INTEGER) → 42"},
		{name: "error", args: "text", bind: bindError, result: "that of the other operands",
			about: "Fails with the text on each row for which it is evaluated, and the run with it, also where " +
				"nobody needs the value.", nulls: "if text is null",
			examples: "CASE WHEN 1 < 2 THEN 'fine' ELSE error('1 is not less') END → fine"},
		{name: "assert_true", args: "condition[, text]", bind: bindAssert, result: "that of the other operands",
			about: "Null. Where the condition is not true, the run fails with the text, also where nobody needs " +
				"the value.", nulls: "always", examples: "assert_true(1 < 2, '1 is not less') → NULL"},
		{name: "typeof", args: "x", bind: bindTypeof, unbound: true, result: varchar,
			about: "The name of the type of x.", nulls: "never", examples: "typeof(1.5) → DECIMAL(2,1)"},
		{name: "enum_code", args: "x", bind: bindEnumCode, result: "UTINYINT, USMALLINT or UINTEGER",
			about:    "The position of the value of an ENUM in its list, from 0.",
			examples: "enum_code('b'::ENUM('a', 'b')) → 1"},
		{name: "enum_range", args: "x", bind: enumTexts(listOfTexts), result: "VARCHAR[]", nulls: "never",
			about: "The texts of the ENUM that x is of.", examples: "enum_range(NULL::ENUM('a', 'b')) → [a, b]"},
		{name: "enum_first", args: "x", bind: enumTexts(firstText), result: varchar, nulls: "never",
			about: "The first text of the ENUM that x is of.", examples: "enum_first(NULL::ENUM('a', 'b')) → a"},
		{name: "enum_last", args: "x", bind: enumTexts(lastText), result: varchar, nulls: "never",
			about: "The last text of the ENUM that x is of.", examples: "enum_last(NULL::ENUM('a', 'b')) → b"},
		{name: "enum_range_boundary", args: "from, to", bind: bindEnumBoundary, result: "VARCHAR[]", nulls: "never",
			about:    "The texts of an ENUM from one value to another. NULL is the first or the last one.",
			examples: "enum_range_boundary(NULL, 'b'::ENUM('a', 'b', 'c')) → [a, b]"},
		{name: "if", args: "condition, x, y", bind: bindIf, lazy: true, result: "the common type of x and y",
			about: "x where the condition is true, y elsewhere.", nulls: "if the chosen argument is",
			examples: "if(1 < 2, 'yes', 'no') → yes"},
	}
}

//go:embed duckdb_functions.txt
var duckdbFunctions string

// refused says why functions of DuckDB are not in the table and will not be.
var refused = map[string]string{
	"random":           "its values would differ between runs, devices and strides",
	"md5_number":       "it is a UHUGEINT, and there is no such type; md5 has the digits",
	"get_current_time": "it is a TIME WITH TIME ZONE, and there is no such type; use localtimestamp::TIME",
	"alias":            "an expression has no name within the job",
}

// WhyMissing returns why a function of DuckDB will stay missing, "" if it may still be added.
func WhyMissing(name string) string { return refused[name] }

// MissingFunctions returns the names of DuckDB's scalar functions that are not in the table. The
// list of DuckDB's functions excludes functions of types that gstream does not have, of DuckDB's
// catalog and of its extensions.
func MissingFunctions() []string {
	var names []string
	for _, name := range strings.Fields(duckdbFunctions) {
		if functions[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// FunctionNames returns the names of all functions, aggregates and window functions, in order.
func FunctionNames() []string {
	var names []string
	for _, list := range []iter.Seq[string]{maps.Keys(functions), maps.Keys(aggregates), maps.Keys(rankings)} {
		names = slices.AppendSeq(names, list)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// KnownFunction returns an error if no function and no aggregate has the name of a call.
func KnownFunction(n *syntax.Call) error {
	_, function := functions[n.Name]
	_, aggregate := aggregates[n.Name]
	_, ranking := rankings[n.Name]
	if function || aggregate || ranking || isGrouping(n) {
		return nil
	}
	return (&binder{src: n.Source()}).unknownFunction(n)
}

// unknownFunction returns the error of a call of a function that is not in the table.
func (b *binder) unknownFunction(n *syntax.Call) error {
	if why := refused[n.Name]; why != "" {
		return b.errorf(n, "gstream does not have DuckDB's function %s: %s", n.Name, why)
	}
	if slices.Contains(MissingFunctions(), n.Name) {
		return b.errorf(n, "gstream does not have DuckDB's function %s yet; gstream functions lists those that it has",
			n.Name)
	}
	if instead := elsewhere[n.Name]; instead != "" {
		return b.errorf(n, "there is no function %q; %s", n.Name, instead)
	}
	names := slices.Sorted(maps.Keys(functions))
	return b.errorf(n, "there is no function %q%s", syntax.Cut(n.Name, 60), syntax.Suggest(n.Name, names))
}

// elsewhere suggests what to use in place of functions of other systems.
var elsewhere = map[string]string{
	"nvl": "coalesce(x, y) does that", "isnull": "write x IS NULL, or coalesce(x, y)",
	"nvl2": "if(x IS NOT NULL, y, z) does that", "iff": "if(condition, x, y) does that",
	"decode": "CASE x WHEN … THEN … END does that", "zeroifnull": "coalesce(x, 0) does that",
	"to_char":    "strftime(x, format) makes text of a date, x::VARCHAR of anything else",
	"to_varchar": "x::VARCHAR does that", "date_format": "strftime(x, format) does that",
	"to_date":          "strptime(text, format)::DATE or text::DATE does that",
	"to_timestamp_ntz": "strptime(text, format) does that", "str_to_date": "strptime(text, format)::DATE does that",
	"to_number": "cast the text, as in text::DECIMAL(18,2)", "getdate": "now() does that", "sysdate": "now() does that",
	"charindex": "strpos(text, part) does that",
	"dateadd":   "add an interval, as in d + INTERVAL 3 DAY", "date_add": "add an interval, as in d + INTERVAL 3 DAY",
	"listagg":      "string_agg(x, separator ORDER BY y) does that",
	"unnest":       "unnest(list) is an output of a SELECT, or stands in FROM",
	"collect_list": "list(x) does that",
	"explode":      "unnest(x) does that",
	"convert":      "CAST(x AS type) does that",
}
