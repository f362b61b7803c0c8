package expr

import (
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// operator is a row of the table of operators with two plain operands. The binder and the reference
// use it. Package syntax has their spellings and precedence, and the table of operations their names.
type operator struct {
	op   gpu.Op // OpConst for an operator that calls a function
	name string // that of the operation unless it is set
	bind func(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error)
	// See function.
	result, about, nulls, examples string
}

// operators are the operators by name.
var operators = map[string]*operator{}

func init() {
	for i := range operatorTable {
		o := &operatorTable[i]
		if o.name == "" {
			o.name = o.op.Info().SQL
		}
		operators[o.name] = o
	}
	for i := range formTable {
		if f := &formTable[i]; f.name == "" {
			f.name = strings.TrimSpace(f.ops[0].Info().SQL)
		}
	}
}

// operatorTable has a row for each of syntax.BinaryOperators.
var operatorTable = []operator{
	{op: gpu.OpPow, bind: func(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error) { return b.power(n, x, y) },
		result: dbl, about: "x to the power of y.", examples: "2 ^ 10 → 1024.0"},
	{op: gpu.OpMul, bind: calculate, result: "the common type; a DECIMAL has the digits of both",
		about: "The product. An INTERVAL is multiplied by an integer.", examples: "6 * 7 → 42\n1.5 * 1.5 → 2.25"},
	{op: gpu.OpDiv, bind: calculate, result: dbl, about: "The quotient; Infinity or NaN for a divisor of 0.",
		examples: "7 / 2 → 3.5"},
	{op: gpu.OpQuo, bind: calculate, result: "the common type; DOUBLE for decimals and floats",
		about:    "The quotient, for integers without its fraction. A divisor of 0 is an error.",
		examples: "-7 // 2 → -3"},
	{op: gpu.OpMod, bind: calculate, result: "the common type",
		about:    "The remainder, with the sign of x. A divisor of 0 is an error, except for floats.",
		examples: "-7 % 2 → -1"},
	{op: gpu.OpAdd, bind: calculate, result: "the common type; a DECIMAL has one digit more",
		about: "The sum. Also DATE + days, DATE + TIME, and dates and times + INTERVAL, which are TIMESTAMPs; " +
			"TIMESTAMP_NS keeps its nanoseconds.",
		examples: "1 + 2.5 → 3.5\nDATE '2024-02-28' + 2 → 2024-03-01\nDATE '2024-01-31' + INTERVAL 1 MONTH → " +
			"2024-02-29 00:00:00\nTIMESTAMP_NS '2024-01-31 10:30:00.000000007' + INTERVAL 1 MONTH → 2024-02-29 " +
			"10:30:00.000000007"},
	{op: gpu.OpSub, bind: calculate, result: "the common type; BIGINT for DATE - DATE",
		about:    "The difference. Also DATE - days, DATE - DATE, which is days, and dates and times - INTERVAL.",
		examples: "5 - 7 → -2\nDATE '2024-03-01' - DATE '2024-02-01' → 29"},
	{op: gpu.OpBitAnd, bind: bitOperator, result: "the common type",
		about: "The bits that are set in both integers. ~x inverts all bits of x.", examples: "5 & 3 → 1\n~5 → -6"},
	{op: gpu.OpBitOr, bind: bitOperator, result: "the common type",
		about:    "The bits that are set in at least one of two integers; xor(x, y) has those set in exactly one.",
		examples: "5 | 3 → 7"},
	{op: gpu.OpShiftLeft, bind: bitOperator, result: "the common type",
		about:    "x shifted left by y bits. A lost bit is an error, and so are negative operands.",
		examples: "1 << 3 → 8"},
	{op: gpu.OpShiftRight, bind: bitOperator, result: "the common type",
		about: "x shifted right by y bits; 0 if y is negative or too large.", examples: "-8 >> 1 → -4"},
	{op: gpu.OpConcat, bind: func(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error) {
		return b.concat(n, []syntax.Node{n.L, n.R}, []*Expr{x, y})
	}, result: "VARCHAR; BLOB for BLOBs", about: "Joins two texts. An operand of another type becomes text.",
		examples: "'a' || 1 → a1"},
	{name: "^@", bind: func(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error) {
		return b.expand(n, "starts_with(_1, _2)", x, y)
	}, result: boolean, about: "Whether x begins with y.", examples: "'hello' ^@ 'he' → true"},
	{name: "@>", bind: ofLists("list_has_all(_1, _2)"), result: boolean,
		about:    "Whether a list has all elements of another one, as list_has_all. It compares each with each.",
		examples: "[1, 2, 3] @> [3, 1] → true"},
	{name: "<@", bind: ofLists("list_has_all(_2, _1)"), result: boolean,
		about: "Whether another list has all elements of a list.", examples: "[1] <@ [1, 2] → true"},
	{name: "&&", bind: ofLists("list_has_any(_1, _2)"), result: boolean,
		about:    "Whether two lists have an element in common, as list_has_any. It compares each with each.",
		examples: "[1, 2] && [2, 3] → true"},
	{name: "->>", bind: bindArrow(gpu.JSONText), result: "VARCHAR, or a list of those",
		about:    "The text of the value at a path in JSON, as json_extract_string.",
		examples: "'{\"a\": \"x\"}' ->> 'a' → x"},
	{name: "->", bind: bindArrow(gpu.JSONExtract), result: "JSON, or a list of those",
		about: "The value at a path in JSON, as json_extract. On its right side is all that follows, up to another " +
			"arrow: d -> 'a' = 'x' is d -> ('a' = 'x').",
		examples: "'{\"a\": \"x\"}' -> 'a' → \"x\""},
	{op: gpu.OpEq, bind: comparison, result: boolean, about: "Equal. NaN equals NaN, -0 equals 0.",
		examples: "1 = 1.0 → true"},
	{op: gpu.OpNe, bind: comparison, result: boolean, about: "Not equal.", examples: "'a' <> 'A' → true"},
	{op: gpu.OpLt, bind: comparison, result: boolean, about: "Less. Texts compare by bytes; NaN is above all numbers.",
		examples: "'Z' < 'a' → true"},
	{op: gpu.OpLe, bind: comparison, result: boolean, about: "Less or equal.", examples: "2 <= 1 → false"},
	{op: gpu.OpGt, bind: comparison, result: boolean, about: "Greater.",
		examples: "DATE '2024-03-15' > '2024-01-01' → true"},
	{op: gpu.OpGe, bind: comparison, result: boolean, about: "Greater or equal.", examples: "2 >= NULL → NULL"},
}

// ofLists binds an operator that is a function of lists.
func ofLists(body string) func(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error) {
		for _, e := range []**Expr{&x, &y} {
			other := x
			if e == &x {
				other = y
			}
			if (*e).literal == stringLiteral && other.typ.Kind == gpu.List {
				var err error
				if *e, err = b.convert(n, *e, other.typ, false); err != nil {
					return nil, err
				}
			}
		}
		return b.expand(n, body, x, y)
	}
}

func comparison(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error) {
	return b.compare(n, operators[n.Op].op, n.L, x, n.R, y)
}

// calculate binds arithmetic on numbers, dates and times.
func calculate(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error) {
	if x.typ.Kind == gpu.Timestamp && n.Op == "+" && y.literal == stringLiteral {
		length, err := b.intervalText(n.R, y.value.Str, "")
		if err != nil {
			return nil, err
		}
		return b.addInterval(n, n.L, x, length)
	}
	if e, done, err := b.dateArithmetic(n, x, y); done {
		return e, err
	}
	return b.arithmetic(n, operators[n.Op].op, x, y)
}

// form is a row of the table of expressions that are neither functions nor binary
// operators, for the reference.
type form struct {
	ops []gpu.Op // that it writes; the first has its name unless it is set

	name, syntax, result, about, nulls, examples string
}

var formTable = []form{
	{[]gpu.Op{gpu.OpNot}, "", "NOT x", boolean, "True where x is false.", "", "NOT (1 = 2) → true"},
	{[]gpu.Op{gpu.OpAnd}, "", "x AND y",
		boolean, "True where both are. An operand that does not decide the result cannot fail.",
		"if neither is false and one is null", "true AND NULL → NULL\nfalse AND NULL → false"},
	{[]gpu.Op{gpu.OpOr}, "", "x OR y",
		boolean, "True where one is.", "if neither is true and one is null", "true OR NULL → true"},
	{[]gpu.Op{gpu.OpIsNull, gpu.OpIsNotNull}, "", "x IS [NOT] NULL",
		boolean, "Whether x is null. Also x ISNULL, x NOTNULL.", "never",
		"NULL IS NULL → true"},
	{nil, "IS TRUE", "x IS [NOT] TRUE, FALSE, UNKNOWN", boolean, "Compares a condition; UNKNOWN is null.", "never",
		"(1 = NULL) IS NOT TRUE → true"},
	{[]gpu.Op{gpu.OpDistinct, gpu.OpNotDistinct}, "", "x IS [NOT] DISTINCT FROM y",
		boolean, "`<>` that treats a null as a value.", "never",
		"NULL IS DISTINCT FROM 1 → true"},
	{nil, "BETWEEN", "x [NOT] BETWEEN y AND z", boolean, "x >= y AND x <= z.", "", "5 BETWEEN 1 AND 10 → true"},
	{[]gpu.Op{gpu.OpIn}, "IN", "x [NOT] IN (y, …)", boolean, "Whether x equals one of the list.",
		"if x is null, or no value is equal and one is null", "2 IN (1, 2, 3) → true\n4 IN (1, NULL) → NULL"},
	{[]gpu.Op{gpu.OpLike}, "", "s [NOT] LIKE pattern [ESCAPE c]", boolean,
		"Whether the whole text fits the pattern, in which % is any text and _ any code point. Only a constant " +
			"pattern has ESCAPE. Also s ~~ pattern.", "",
		"'hello' LIKE 'h%o' → true\n'50%' LIKE '5_!%' ESCAPE '!' → true\n'hello' LIKE lower('H') || '%' → true"},
	{[]gpu.Op{gpu.OpILike}, "", "s [NOT] ILIKE pattern [ESCAPE c]",
		boolean, "LIKE without regard to case. Also s ~~* pattern.", "",
		"'HELLO' ILIKE 'h%o' → true"},
	{nil, "~", "s ~ pattern", boolean,
		"Whether a regular expression matches a part of s, as regexp_matches. Also s !~ pattern for its opposite, " +
			"and ~* and !~* without regard to case.", "",
		"'hello' ~ 'l+' → true\n'hello' ~* '^H' → true\n'hello' !~ 'x' → true"},
	{nil, "SIMILAR TO", "s [NOT] SIMILAR TO pattern", boolean,
		"Whether a regular expression matches all of s, as regexp_full_match.", "", "'hello' SIMILAR TO 'h.*o' → true"},
	{[]gpu.Op{gpu.OpSelect}, "CASE", "CASE [x] WHEN y THEN z … [ELSE w] END", "the common type of the results",
		"The result of the first condition that is true, or of the first y that equals x.",
		"if the chosen result is, or nothing is chosen and there is no ELSE",
		"CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END → b\nCASE 3 WHEN 3 THEN 'three' END → three"},
	{[]gpu.Op{gpu.OpCast}, "CAST", "CAST(x AS type), x::type", "the type", "Converts x, or fails.", "",
		"CAST('42' AS INTEGER) → 42\n2.5::INTEGER → 3"},
	{[]gpu.Op{gpu.OpCast}, "TRY_CAST", "TRY_CAST(x AS type)", "the type", "CAST that returns null where it would fail.",
		"if x is, or cannot be converted", "TRY_CAST('x' AS INTEGER) → NULL"},
	{nil, "INTERVAL", "INTERVAL n unit, INTERVAL '…'", "INTERVAL",
		"A length of time, to be added to a date or time, or subtracted. n may be an expression in parentheses.", "",
		"TIMESTAMP '2024-01-01 00:00:00' + INTERVAL '1 day 02:30:00' → 2024-01-02 02:30:00\nDATE '2024-03-15' - " +
			"INTERVAL (1 + 1) WEEK → 2024-03-01 00:00:00"},
	{[]gpu.Op{gpu.OpNeg}, "", "-x, +x", "that of x", "The opposite.", "", "-(2 + 3) → -5"},
}
