package gpu

// Form is how SQL writes an operation.
type Form uint8

// The forms.
const (
	Special Form = iota // in a way of its own, such as CASE
	Infix               // x + y
	Prefix              // -x
	Postfix             // x IS NULL
	Call                // abs(x)
)

// Failing says for which rows an operation has no result.
type Failing uint8

// The rows that fail, besides those of OpCast and OpSelect, whose types tell.
const (
	NeverFails Failing = iota
	// OutOfRange is for results that do not fit the type, which floats do not have, and for a divisor of zero.
	OutOfRange
	// OfValues is for arguments without a result.
	OfValues
)

// Operation is the row of an Op in the table of operations. Whatever differs from operation to operation in names,
// numbers and laws comes from here: how expressions are printed, the names of kernels, what may fail, and what a
// rewrite of expressions may do. The functions and operators of SQL (package operators/expr) refer to these rows by
// their Op: they take their names from here, and add types, descriptions and examples. Which of them has an operation
// is a lookup there. Random expressions are drawn from both tables.
//
// To add an operation, add its row, its function to the table of the CPU (package gpu/host), its kernel, and the row of
// the SQL that has it. Tests fail for a row without its partner.
type Operation struct {
	Form Form
	// SQL is the operator, or the name of the function. Variants are the names of functions of one operation, by its N.
	SQL      string
	Variants []string
	// Internal says that no function of that name can be called: only rewrites make the operation.
	Internal bool
	// Least and Most are the numbers of arguments; a Most of -1 is any number.
	Least, Most int
	// SeesNulls says that the result may have a value where an argument is null.
	SeesNulls bool
	// NOT (x op y) is x Opposite y, and x op y is y Mirrored x: itself for an operation that is commutative. OpConst
	// is none.
	Opposite, Mirrored Op
	Fails              Failing
	// Bodies is the number of results of the program that runs over the elements of a list, 0 without one.
	Bodies  int
	Tries   bool // an N of 1 makes a row without a result null
	Inexact bool // devices may differ in the last digits
	// Host says that the operation has no kernels: a GPU copies its arguments to the CPU, and its result back.
	Host bool
	// Kernel is the middle part of the name of its kernels, as in eval_add_int; "" if Variants are.
	Kernel string
}

// operations has the row of each Op.
var operations = [...]Operation{
	OpConst: {Kernel: "set_bits"},
	OpCast:  {Least: 1, Most: 1, Tries: true, Kernel: "cast"},

	OpAdd:  {Form: Infix, SQL: "+", Least: 2, Most: 2, Mirrored: OpAdd, Fails: OutOfRange, Kernel: "add"},
	OpSub:  {Form: Infix, SQL: "-", Least: 2, Most: 2, Fails: OutOfRange, Kernel: "sub"},
	OpMul:  {Form: Infix, SQL: "*", Least: 2, Most: 2, Mirrored: OpMul, Fails: OutOfRange, Kernel: "mul"},
	OpDiv:  {Form: Infix, SQL: "/", Least: 2, Most: 2, Kernel: "div"},
	OpQuo:  {Form: Infix, SQL: "//", Least: 2, Most: 2, Fails: OutOfRange, Kernel: "quo"},
	OpMod:  {Form: Infix, SQL: "%", Least: 2, Most: 2, Fails: OutOfRange, Kernel: "mod"},
	OpNeg:  {Form: Prefix, SQL: "-", Least: 1, Most: 1, Fails: OutOfRange, Kernel: "neg"},
	OpAbs:  {Form: Call, SQL: "abs", Least: 1, Most: 1, Fails: OutOfRange, Kernel: "abs"},
	OpSign: {Form: Call, SQL: "sign", Least: 1, Most: 1, Kernel: "sign"},
	OpPow:  {Form: Infix, SQL: "^", Least: 2, Most: 2, Inexact: true, Kernel: "pow"},
	OpMath: {Form: Call, Least: 1, Most: 1, Inexact: true, Variants: []string{MathSqrt: "sqrt", MathCbrt: "cbrt",
		MathExp: "exp", MathLn: "ln", MathLog2: "log2", MathLog10: "log10", MathSin: "sin", MathCos: "cos",
		MathTan: "tan", MathAsin: "asin", MathAcos: "acos", MathAtan: "atan", MathSinh: "sinh", MathCosh: "cosh",
		MathTanh: "tanh", MathAsinh: "asinh", MathAcosh: "acosh", MathAtanh: "atanh", MathGamma: "gamma",
		MathLgamma: "lgamma"}},

	OpRound: {Form: Call, SQL: "round", Least: 1, Most: 2, Fails: OutOfRange, Kernel: "round"},
	OpFloor: {Form: Call, SQL: "floor", Least: 1, Most: 1, Fails: OutOfRange, Kernel: "floor"},
	OpCeil:  {Form: Call, SQL: "ceil", Least: 1, Most: 1, Fails: OutOfRange, Kernel: "ceil"},
	OpTrunc: {Form: Call, SQL: "trunc", Least: 1, Most: 1, Fails: OutOfRange, Kernel: "trunc"},

	OpEq: {Form: Infix, SQL: "=", Least: 2, Most: 2, Opposite: OpNe, Mirrored: OpEq, Kernel: "compare"},
	OpNe: {Form: Infix, SQL: "<>", Least: 2, Most: 2, Opposite: OpEq, Mirrored: OpNe, Kernel: "compare"},
	OpLt: {Form: Infix, SQL: "<", Least: 2, Most: 2, Opposite: OpGe, Mirrored: OpGt, Kernel: "compare"},
	OpLe: {Form: Infix, SQL: "<=", Least: 2, Most: 2, Opposite: OpGt, Mirrored: OpGe, Kernel: "compare"},
	OpGt: {Form: Infix, SQL: ">", Least: 2, Most: 2, Opposite: OpLe, Mirrored: OpLt, Kernel: "compare"},
	OpGe: {Form: Infix, SQL: ">=", Least: 2, Most: 2, Opposite: OpLt, Mirrored: OpLe, Kernel: "compare"},
	OpDistinct: {Form: Infix, SQL: "IS DISTINCT FROM", Least: 2, Most: 2, SeesNulls: true, Opposite: OpNotDistinct,
		Mirrored: OpDistinct, Kernel: "compare"},
	OpNotDistinct: {Form: Infix, SQL: "IS NOT DISTINCT FROM", Least: 2, Most: 2, SeesNulls: true, Opposite: OpDistinct,
		Mirrored: OpNotDistinct, Kernel: "compare"},
	OpIn: {Least: 1, Most: 1, Kernel: "in"},

	OpAnd: {Form: Infix, SQL: "AND", Least: 2, Most: -1, SeesNulls: true, Mirrored: OpAnd, Kernel: "and"},
	OpOr:  {Form: Infix, SQL: "OR", Least: 2, Most: -1, SeesNulls: true, Mirrored: OpOr, Kernel: "or"},
	OpNot: {Form: Prefix, SQL: "NOT ", Least: 1, Most: 1, Kernel: "not"},
	OpIsNull: {Form: Postfix, SQL: " IS NULL", Least: 1, Most: 1, SeesNulls: true, Opposite: OpIsNotNull,
		Kernel: "is_null"},
	OpIsNotNull: {Form: Postfix, SQL: " IS NOT NULL", Least: 1, Most: 1, SeesNulls: true, Opposite: OpIsNull,
		Kernel: "is_not_null"},
	OpSelect: {Least: 3, Most: 3, SeesNulls: true, Kernel: "select"},

	OpExtract:   {SQL: "date_part", Least: 1, Most: 1, Kernel: "extract"},
	OpDateTrunc: {SQL: "date_trunc", Least: 1, Most: 1, Fails: OfValues, Kernel: "date_trunc"},
	OpAddMonths: {Form: Call, SQL: "add_months", Internal: true, Least: 2, Most: 2, Fails: OfValues,
		Kernel: "add_months"},

	OpLike:         {SQL: "LIKE", Least: 1, Most: 2, Kernel: "like"},
	OpILike:        {SQL: "ILIKE", Least: 1, Most: 2, Kernel: "like"},
	OpLength:       {Form: Call, SQL: "length", Least: 1, Most: 1, Kernel: "length"},
	OpLower:        {Form: Call, SQL: "lower", Least: 1, Most: 1, Kernel: "case"},
	OpUpper:        {Form: Call, SQL: "upper", Least: 1, Most: 1, Kernel: "case"},
	OpReverse:      {Form: Call, SQL: "reverse", Least: 1, Most: 1, Kernel: "reverse"},
	OpStripAccents: {Form: Call, SQL: "strip_accents", Least: 1, Most: 1, Kernel: "case"},
	OpSubstring:    {Form: Call, SQL: "substring", Least: 2, Most: 3, Kernel: "substring"},
	OpTrim: {Form: Call, Least: 2, Most: 2, Kernel: "trim", Variants: []string{TrimLeft: "ltrim", TrimRight: "rtrim",
		TrimLeft | TrimRight: "trim"}},
	OpConcat:     {Form: Infix, SQL: "||", Least: 2, Most: -1, Kernel: "concat"},
	OpReplace:    {Form: Call, SQL: "replace", Least: 3, Most: 3, Kernel: "replace"},
	OpPosition:   {Form: Call, SQL: "strpos", Least: 2, Most: 2, Kernel: "position"},
	OpStartsWith: {Form: Call, SQL: "starts_with", Least: 2, Most: 2, Kernel: "starts_with"},
	OpEndsWith:   {Form: Call, SQL: "ends_with", Least: 2, Most: 2, Kernel: "ends_with"},
	OpContains:   {Form: Call, SQL: "contains", Least: 2, Most: 2, Kernel: "contains"},
	OpSplitPart:  {Form: Call, SQL: "split_part", Least: 3, Most: 3, Kernel: "split_part"},
	OpRepeat:     {Form: Call, SQL: "repeat", Least: 2, Most: 2, Kernel: "repeat"},
	OpTranslate:  {Form: Call, SQL: "translate", Least: 3, Most: 3, Kernel: "translate"},
	OpChr:        {Form: Call, SQL: "chr", Least: 1, Most: 1, Kernel: "chr"},
	OpCodePoint:  {SQL: "ascii", Least: 1, Most: 1, Kernel: "code_point"},
	OpDigest: {Form: Call, Least: 1, Most: 1,
		Variants: []string{MD5: "md5", SHA1: "sha1", SHA256: "sha256"}},
	OpRegexp:        {SQL: "regexp_matches", Least: 1, Most: 1, Kernel: "regexp"},
	OpRegexpExtract: {SQL: "regexp_extract", Least: 1, Most: 1, Kernel: "regexp_extract"},
	OpRegexpReplace: {SQL: "regexp_replace", Least: 2, Most: 2, Kernel: "regexp_replace"},

	OpEncode: {Form: Call, Least: 1, Most: 1, Kernel: "encode", Variants: []string{Raw: "raw", Hex: "hex",
		FromHex: "unhex", Bits: "bin", FromBits: "unbin", Base64: "to_base64", FromBase64: "from_base64",
		URL: "url_encode", FromURL: "url_decode"}},
	OpDigits: {SQL: "to_base", Least: 1, Most: 1, Kernel: "digits"},
	OpDistance: {Form: Call, Least: 2, Most: 2, Kernel: "distance", Variants: []string{Levenshtein: "levenshtein",
		DamerauLevenshtein: "damerau_levenshtein", Hamming: "hamming", Jaccard: "jaccard", Jaro: "jaro_similarity",
		JaroWinkler: "jaro_winkler_similarity"}},
	OpHash: {Form: Call, SQL: "hash", Least: 1, Most: 2, SeesNulls: true, Kernel: "hash"},

	OpBitAnd:   {Form: Infix, SQL: "&", Least: 2, Most: 2, Mirrored: OpBitAnd, Kernel: "bit_and"},
	OpBitOr:    {Form: Infix, SQL: "|", Least: 2, Most: 2, Mirrored: OpBitOr, Kernel: "bit_or"},
	OpBitXor:   {Form: Call, SQL: "xor", Least: 2, Most: 2, Mirrored: OpBitXor, Kernel: "bit_xor"},
	OpBitCount: {Form: Call, SQL: "bit_count", Least: 1, Most: 1, Kernel: "bit_count"},
	OpShiftLeft: {Form: Infix, SQL: "<<", Least: 2, Most: 2, Fails: OutOfRange,
		Kernel: "shift_left"},
	OpShiftRight: {Form: Infix, SQL: ">>", Least: 2, Most: 2, Kernel: "shift_right"},
	OpGCD:        {Form: Call, SQL: "gcd", Least: 2, Most: 2, Mirrored: OpGCD, Fails: OutOfRange, Kernel: "gcd"},

	OpAtan2:     {Form: Call, SQL: "atan2", Least: 2, Most: 2, Inexact: true, Kernel: "atan2"},
	OpNextAfter: {Form: Call, SQL: "nextafter", Least: 2, Most: 2, Kernel: "nextafter"},
	OpMakeDate:  {Form: Call, SQL: "make_date", Least: 3, Most: 3, Fails: OfValues, Kernel: "make_date"},
	OpParseTime: {Variants: []string{"strptime", "try_strptime"}, Least: 1, Most: 1, Fails: OfValues, Tries: true,
		Kernel: "strptime"},
	OpStep:   {Form: Call, SQL: "offset", Internal: true, Least: 1, Most: 1, Kernel: "step"},
	OpAssert: {Form: Call, SQL: "assert", Internal: true, Least: 1, Most: 2, Fails: OfValues, Kernel: "assert"},

	OpNest:          {Form: Call, SQL: "nest", Internal: true, Least: 1, Most: 1, SeesNulls: true, Kernel: "nest"},
	OpElement:       {Form: Call, SQL: "element", Internal: true, Least: 2, Most: 2, Kernel: "element"},
	OpCountElements: {Form: Call, SQL: "len", Internal: true, Least: 1, Most: 1, Kernel: "count_elements"},
	OpFindElement:   {Form: Call, SQL: "find_element", Internal: true, Least: 2, Most: 2, Kernel: "find_element"},
	OpSliceElements: {Form: Call, SQL: "list_slice", Internal: true, Least: 3, Most: 3, Kernel: "slice_elements"},
	OpPluckElements: {Form: Call, SQL: "pluck", Internal: true, Least: 1, Most: 1, Kernel: "pluck_elements"},
	OpFlattenElements: {Form: Call, SQL: "flatten", Internal: true, Least: 1, Most: 1,
		Kernel: "flatten_elements"},
	OpJoinElements: {Form: Call, SQL: "list_concat", Internal: true, Least: 2, Most: 2, Kernel: "join_elements"},
	OpZipElements:  {Form: Call, SQL: "zip_elements", Internal: true, Least: 2, Most: 2, Kernel: "zip_elements"},
	OpCanonical:    {Form: Call, SQL: "canonical", Internal: true, Least: 1, Most: 1, Kernel: "canonical"},
	OpJSON: {Form: Call, Internal: true, Least: 1, Most: 2, Fails: OfValues, Host: true, Variants: []string{
		JSONExtract: "json_extract",
		JSONText:    "json_extract_string", JSONScalar: "json_value", JSONExists: "json_exists", JSONType: "json_type",
		JSONLength: "json_array_length", JSONKeys: "json_keys", JSONValid: "json_valid", JSONCheck: "json_check",
		JSONTryCheck: "json_try_check", JSONContains: "json_contains", JSONMerge: "json_merge_patch",
		JSONStructure: "json_structure", JSONPretty: "json_pretty", JSONTransform: "json_transform",
		JSONTransformStrict: "json_transform_strict", JSONCast: "json_cast", JSONTryCast: "json_try_cast"}},
	OpParseNested: {Form: Call, SQL: "parse_nested", Internal: true, Least: 1, Most: 1, Fails: OfValues, Tries: true,
		Host: true},
	OpEachElement: {Form: Call, SQL: "each_element", Internal: true, Least: 1, Most: -1, SeesNulls: true, Bodies: 1,
		Kernel: "elements"},
	OpSortElements: {Form: Call, SQL: "sort_elements", Internal: true, Least: 1, Most: -1, SeesNulls: true, Bodies: 2,
		Kernel: "elements"},
	OpFoldElements: {Form: Call, SQL: "fold_elements", Internal: true, Least: 1, Most: -1, SeesNulls: true, Bodies: 1,
		Kernel: "elements"},
	OpReduceElements: {Form: Call, SQL: "reduce_elements", Internal: true, Least: 2, Most: -1, SeesNulls: true,
		Bodies: 1, Kernel: "elements"},
}

// Ops is the number of operations. They are the Ops below it.
const Ops = Op(len(operations))

// Info returns the row of an operation.
func (o Op) Info() *Operation { return &operations[o] }

// Name returns the name of the function of an operation with its N, "" if it has none.
func (o *Operation) Name(n int) string {
	if o.Variants == nil {
		return o.SQL
	}
	if n < 0 || n >= len(o.Variants) {
		return ""
	}
	return o.Variants[n]
}

// Kernel returns the middle part of the name of the kernels of an instruction.
func (in *Instr) Kernel() string {
	o := in.Op.Info()
	if o.Kernel != "" {
		return o.Kernel
	}
	return o.Name(in.N)
}

// Tries reports whether a row without a result is null instead of an error.
func (in *Instr) Tries() bool { return in.N == 1 && in.Op.Info().Tries }

// ZeroFails reports whether an operation on floats fails for a divisor of zero.
func (in *Instr) ZeroFails() bool { return in.Op == OpQuo || in.Op == OpMod && in.N == ZeroFails }

// CanFail reports whether there may be rows without a result. typeOf returns the type of a register.
func (in *Instr) CanFail(typeOf func(register int) Type) bool {
	arg := func(k int) Type { return typeOf(in.Args[k]) }
	switch {
	case in.Tries():
		return false
	case in.Op == OpCast:
		return castCanFail(arg(0), in.Type)
	case in.Op == OpSelect:
		return !in.Type.Wide && (arg(1).Wide || arg(2).Wide)
	case in.Op.Info().Fails == OutOfRange:
		return !arg(0).IsFloat() || in.ZeroFails()
	}
	return in.Op.Info().Fails == OfValues
}

func castCanFail(from, to Type) bool {
	switch {
	case to.Kind == String:
		return false
	case from.Kind == String:
		return true
	case to.IsFloat():
		return from.Kind == Float64 && to.Kind == Float32
	}
	return to.Kind != Bool
}
