package syntax

import "strings"

// BinaryOperator is an operator with two plain operands: its name, and other spellings of it,
// separated by spaces.
type BinaryOperator struct {
	Name, Spellings string
	power           int // binding power
}

// BinaryOperators are the operators with two plain operands, those of highest precedence first.
var BinaryOperators = []BinaryOperator{
	{"^", "**", bindPow},
	{"*", "", bindMul},
	{"/", "", bindMul},
	{"//", "", bindMul},
	{"%", "", bindMul},
	{"+", "", bindAdd},
	{"-", "", bindAdd},
	{"&", "", bindBits},
	{"|", "", bindBits},
	{"<<", "", bindBits},
	{">>", "", bindBits},
	{"||", "", bindOther},
	{"^@", "", bindOther},
	{"@>", "", bindOther},
	{"<@", "", bindOther},
	{"&&", "", bindOther},
	{"->>", "", bindOther},
	{"->", "", bindOther}, // of its left side; see parser.arrow
	{"=", "==", bindCompare},
	{"<>", "!=", bindCompare},
	{"<", "", bindCompare},
	{"<=", "", bindCompare},
	{">", "", bindCompare},
	{">=", "", bindCompare},
}

// binaryPower has the binding power of each operator. spellings maps other spellings to operators.
var binaryPower, spellings = map[string]int{}, map[string]string{}

func init() {
	for _, o := range BinaryOperators {
		binaryPower[o.Name] = o.power
		for _, s := range strings.Fields(o.Spellings) {
			spellings[s] = o.Name
		}
	}
}
