package exprtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// Generator draws expressions over the columns of a schema.
type Generator struct {
	r *rand.Rand
	// Columns are the names of the columns by class.
	Columns map[Class][]string
	// Tame leaves out most operations that fail on some rows: large constants, casts that
	// can fail, and divisions.
	Tame bool
}

// NewGenerator returns a generator of expressions over a schema.
func NewGenerator(r *rand.Rand, s *gpu.Schema) *Generator {
	g := &Generator{r: r, Columns: map[Class][]string{}}
	for _, f := range s.Fields {
		c := ClassOf(f.Type)
		g.Columns[c] = append(g.Columns[c], f.Name)
		if f.Type.IsInteger() {
			g.Columns[Integer] = append(g.Columns[Integer], f.Name)
		}
	}
	return g
}

// ClassOf returns the class of a type; integers are Numbers.
func ClassOf(t gpu.Type) Class {
	switch t.Kind {
	case gpu.Bool:
		return Bool
	case gpu.String:
		return Text
	case gpu.Binary:
		return Blob
	case gpu.Date:
		return Date
	case gpu.Time:
		return Time
	case gpu.Timestamp:
		return Timestamp
	}
	return Number
}

func (g *Generator) one(options ...string) string { return options[g.r.IntN(len(options))] }

// Any draws an expression of any class.
func (g *Generator) Any(depth int) *Node {
	return g.Of([]Class{Bool, Bool, Bool, Number, Number, Number, Number, Integer, Text, Text, Blob, Date, Time,
		Timestamp, Timestamp}[g.r.IntN(15)], depth)
}

// Of draws an expression of a class, of height depth at most.
func (g *Generator) Of(c Class, depth int) *Node {
	if depth <= 0 || g.r.IntN(12) == 0 {
		return g.leaf(c)
	}
	if g.r.IntN(6) == 0 {
		return g.choice(c, depth-1)
	}
	if g.r.IntN(7) == 0 {
		return g.cast(c, depth-1)
	}
	switch c {
	case Bool:
		return g.condition(depth - 1)
	case Number:
		return g.number(depth - 1)
	case Integer:
		return g.integer(depth - 1)
	case Text:
		return g.text(depth - 1)
	case Blob:
		return New(Blob, "(? || ?)", g.Of(Blob, depth-1), g.Of(Blob, depth-1))
	case Date:
		return g.date(depth - 1)
	case Time:
		if g.r.IntN(6) == 0 && !g.Tame {
			return New(Time, g.one("make_time(?::BIGINT, 30, 1.5)", "make_time(10, ?::BIGINT, 59.5)"), g.Of(Integer, 0))
		}
		return g.shifted(Time, Time, depth-1)
	}
	return g.timestamp(depth - 1)
}

func (g *Generator) leaf(c Class) *Node {
	columns := g.Columns[c]
	switch {
	case len(columns) > 0 && g.r.IntN(4) != 0:
		return Leaf(c, g.one(columns...))
	case g.r.IntN(15) == 0 && !g.Tame:
		return Leaf(c, "NULL")
	}
	return Leaf(c, g.literal(c))
}

// literal draws a constant.
func (g *Generator) literal(c Class) string {
	if g.Tame {
		switch c {
		case Integer:
			return g.one("0", "1", "2", "3", "7")
		case Number:
			return g.one("0", "1", "2", "3", "7", "0.5", "1.0", "1.5", "2.50", "1e0", "2.5e0", "100", "'nan'::DOUBLE",
				"3::HUGEINT", "1.25::DECIMAL(4,2)")
		case Date:
			return g.one("DATE '1994-09-03'", "DATE '1994-09-06'", "DATE '1994-08-01'")
		case Timestamp:
			return g.one("TIMESTAMP '1994-09-03 00:00:00'", "TIMESTAMP '1994-09-06 12:00:00'")
		case Text:
			return Quote(g.one("", "a", "A", "ab", "ß", "7", " 1", "e\u0301", "zz"))
		}
	}
	switch c {
	case Bool:
		return g.one("true", "false")
	case Integer:
		return g.one("0", "1", "2", "3", "(-1)", "(-2)", "7", "100", "1000", "2147483648", "(-9223372036854775808)",
			"9223372036854775807", "5::TINYINT", "3::UTINYINT", "7::BIGINT")
	case Number:
		return g.one("0", "1", "2", "(-1)", "7", "10", "100", "127", "255", "(-128)", "1000", "65536", "2147483647",
			"2147483648", "(-2147483649)", "9223372036854775807", "9223372036854775808", "(-9223372036854775808)",
			"18446744073709551615", "18446744073709551616", "99999999999999999999999999999999999999",
			"0.5", "1.0", "1.5", "2.50", "(-0.5)", ".25", "99.99", "0.001", "0.000001", "12345678901234567890.123",
			"9223372036854775807.5", "0.0", "1e0", "0e0", "(-0e0)", "2.5e0", "1e-3", "1e18", "1e300", "1e-320",
			"(-1e30)",
			"'nan'::DOUBLE", "'inf'::FLOAT", "'-inf'::DOUBLE", "1.5::FLOAT", "7::TINYINT", "7::UBIGINT",
			"200::UTINYINT", "3::HUGEINT", "1.25::DECIMAL(4,2)", "5::DECIMAL(38,0)", "0.5::DECIMAL(38,20)")
	case Text:
		if g.r.IntN(4) == 0 {
			return Quote(spellings[g.r.IntN(len(spellings))])
		}
		return Quote(texts[g.r.IntN(len(texts))])
	case Blob:
		return g.one(`'a'::BLOB`, `''::BLOB`, `'\x00\xFF'::BLOB`)
	case Date:
		return g.one("DATE '1994-01-31'", "DATE '2000-02-29'", "DATE '1970-01-01'", "DATE '0001-01-01'",
			"DATE '9999-12-31'", "DATE '1582-10-14'", "'infinity'::DATE", "'-infinity'::DATE", "DATE '5881580-07-10'",
			"DATE '0044-03-15 (BC)'")
	case Time:
		return g.one("TIME '00:00:00'", "TIME '10:11:12.5'", "('10:11:59.9999999'::TIME_NS)::TIME",
			"TIME '23:59:59.999999'", "TIME '24:00:00'")
	}
	return g.one("TIMESTAMP '1994-01-31 10:11:12.5'", "TIMESTAMP '1970-01-01 00:00:00'",
		"TIMESTAMP '1969-12-31 23:59:59.999999'", "'2013-05-21 01:02:03.123456789'::TIMESTAMP_NS",
		"'2024-12-31 23:59:59.999999999'::TIMESTAMP_NS", "'1969-12-31 23:59:59.9999995'::TIMESTAMP_NS",
		"'2013-05-21 01:02:03.5'::TIMESTAMP_S",
		"'2013-05-21 01:02:03.1239'::TIMESTAMP_MS", "'infinity'::TIMESTAMP", "'-infinity'::TIMESTAMP",
		"TIMESTAMP '290000-01-01 00:00:00'", "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMPTZ '2020-02-29 12:00:00+02'",
		"'infinity'::TIMESTAMP_NS")
}

// asText sometimes draws a text literal for an operand of the class. The operator gives
// it the type of the other operand.
func (g *Generator) asText(c Class, depth int) *Node {
	if g.r.IntN(5) > 0 || c == Blob || g.Tame {
		return g.Of(c, depth)
	}
	switch c {
	case Number, Integer:
		return Leaf(c, Quote(g.one("1", "7", "-1", "1.5", "2.5", "1e3", "128", "300", "9223372036854775808", "nan",
			" 7 ", "abc", "0.1", "-129", "1e400")))
	case Bool:
		return Leaf(c, Quote(g.one("true", "false", "t", "0", "yes", "maybe")))
	case Date:
		return Leaf(c, Quote(g.one("1994-01-31", "2000-02-29", "2000-02-30", "infinity", "1582-10-15",
			"1994-01-31 10:00:00", "x")))
	case Time:
		return Leaf(c, Quote(g.one("10:11:12.5", "00:00:00", "24:00:00", "x")))
	case Timestamp:
		return Leaf(c, Quote(g.one("1994-01-31 10:11:12.5", "1994-01-31", "1994-01-31 10:11:12.123456789",
			"2013-05-21 01:02:03.1239", "-infinity", "1582-10-15", "x")))
	}
	return Leaf(c, Quote(texts[g.r.IntN(len(texts))]))
}

// choice draws an expression that takes the value of one of several.
func (g *Generator) choice(c Class, depth int) *Node {
	x, y := g.Of(c, depth), g.asText(c, depth)
	switch g.r.IntN(9) {
	case 0:
		return lazily(New(c, "CASE WHEN ? THEN ? ELSE ? END", g.Of(Bool, depth), x, y), branches)
	case 1:
		return lazily(New(c, "CASE WHEN ? THEN ? END", g.Of(Bool, depth), x), branches)
	case 2:
		return lazily(New(c, "CASE WHEN ? THEN ? WHEN ? THEN ? ELSE ? END", g.Of(Bool, depth), x, g.Of(Bool, depth),
			g.Of(c, depth), y), branches)
	case 3:
		k := Class(g.r.IntN(int(classes)))
		return lazily(New(c, "CASE ? WHEN ? THEN ? WHEN ? THEN ? ELSE ? END", g.Of(k, depth), g.asText(k, 0), x,
			g.Of(k, 0), g.Of(c, depth), y), cases)
	case 4:
		return lazily(New(c, "coalesce(?, ?)", x, y), until("(? IS NOT NULL)"))
	case 5:
		if g.r.IntN(3) > 0 {
			return New(c, g.one("greatest(?, ?, ?)", "least(?, ?, ?)"), x, g.Of(c, depth), y)
		}
		return lazily(New(c, "coalesce(?, ?, ?)", x, g.Of(c, depth), y), until("(? IS NOT NULL)"))
	case 6:
		return New(c, "nullif(?, ?)", x, y)
	case 7:
		if g.r.IntN(3) > 0 {
			return New(c, g.one("greatest(?, ?)", "least(?, ?)"), x, y)
		}
		return lazily(New(c, "ifnull(?, ?)", x, y), until("(? IS NOT NULL)"))
	}
	return lazily(New(c, "if(?, ?, ?)", g.Of(Bool, depth), x, y), branches)
}

// lazily sets which arguments of a node a row needs.
func lazily(n *Node, needs func(*Node, func(*Node) bool) []int) *Node {
	n.needs = needs
	return n
}

// until needs the arguments up to the first for which a condition holds.
func until(condition string) func(*Node, func(*Node) bool) []int {
	return func(n *Node, holds func(*Node) bool) (out []int) {
		for i, a := range n.args {
			out = append(out, i)
			if holds(New(Bool, condition, a)) {
				break
			}
		}
		return out
	}
}

// branches are pairs of a condition and a value, and a value after them.
func branches(n *Node, holds func(*Node) bool) (out []int) {
	return pairs(n, 0, func(c *Node) bool { return holds(c) })
}

// cases are an operand, then pairs of a value to compare it with and a result.
func cases(n *Node, holds func(*Node) bool) []int {
	return append(pairs(n, 1, func(v *Node) bool { return holds(New(Bool, "(? = ?)", n.args[0], v)) }), 0)
}

func pairs(n *Node, from int, chosen func(*Node) bool) (out []int) {
	i := from
	for ; i+1 < len(n.args); i += 2 {
		out = append(out, i)
		if chosen(n.args[i]) {
			return append(out, i+1)
		}
	}
	if i < len(n.args) {
		out = append(out, i)
	}
	return out
}

// castable says which classes can be cast to a class.
var castable = map[Class][]Class{
	Bool: {Number, Text}, Number: {Number, Number, Number, Text, Bool}, Integer: {Number, Number, Text, Bool},
	Text: {Bool, Number, Number, Blob, Date, Time, Timestamp}, Blob: {Text}, Date: {Timestamp, Text},
	Time: {Timestamp, Text, Time}, Timestamp: {Timestamp, Timestamp, Date, Text},
}

func (g *Generator) cast(c Class, depth int) *Node {
	from := castable[c][g.r.IntN(len(castable[c]))]
	if g.Tame && c == Time && from == Timestamp {
		from = Time // DuckDB has no TIME of a TIMESTAMP WITH TIME ZONE
	}
	x := g.Of(from, depth)
	if from == Text && g.r.IntN(2) == 0 && len(g.Columns[Text]) > 0 {
		x = g.leaf(Text)
	}
	t := g.typeName(c)
	way := g.r.IntN(3)
	if g.Tame {
		way = 2
	}
	switch way {
	case 0:
		return New(c, "CAST(? AS "+t+")", x)
	case 1:
		return New(c, "?::"+t, wrapped(x))
	}
	return New(c, "TRY_CAST(? AS "+t+")", x)
}

// wrapped parenthesises an expression that is not a column or a call.
func wrapped(n *Node) *Node {
	if len(n.args) == 0 && !strings.HasPrefix(n.parts[0], "CASE") {
		return n
	}
	if strings.HasPrefix(n.parts[0], "(") {
		return n
	}
	m := *n
	m.parts = append([]string(nil), n.parts...)
	m.parts[0] = "(" + m.parts[0]
	m.parts[len(m.parts)-1] += ")"
	return &m
}

// typeName draws the name of a type of the class.
func (g *Generator) typeName(c Class) string {
	switch c {
	case Bool:
		return "BOOLEAN"
	case Integer:
		return g.one("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
			"BIGINT", "INTEGER")
	case Number:
		if g.r.IntN(3) == 0 {
			precision := 1 + g.r.IntN(38)
			return fmt.Sprintf("DECIMAL(%d,%d)", precision, g.r.IntN(precision+1))
		}
		return g.one("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
			"HUGEINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(18,3)", "DECIMAL(38,10)", "DECIMAL(38,0)",
			"DECIMAL(15,2)")
	case Text:
		return "VARCHAR"
	case Blob:
		return "BLOB"
	case Date:
		return "DATE"
	case Time:
		return "TIME"
	}
	if g.Tame {
		return "TIMESTAMP"
	}
	return g.one("TIMESTAMP", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ")
}

func (g *Generator) condition(depth int) *Node {
	// Text and numbers have the most operators.
	c := []Class{Number, Number, Number, Integer, Text, Text, Bool, Blob, Date, Time, Timestamp,
		Timestamp}[g.r.IntN(12)]
	switch g.r.IntN(12) {
	case 0, 1:
		return lazily(New(Bool, "(? AND ?)", g.Of(Bool, depth), g.Of(Bool, depth)), until("(NOT ?)"))
	case 2, 3:
		return lazily(New(Bool, "(? OR ?)", g.Of(Bool, depth), g.Of(Bool, depth)), until("?"))
	case 4:
		return New(Bool, "(NOT ?)", g.Of(Bool, depth))
	case 10:
		if !g.Tame && g.r.IntN(3) == 0 {
			return New(Bool, g.one("isfinite(?)", "isinf(?)"),
				g.Of([]Class{Number, Date, Timestamp}[g.r.IntN(3)], depth))
		}
		if !g.Tame && g.r.IntN(3) == 0 {
			return New(Bool, g.one("isnan(?)", "signbit(?)"), g.Of(Number, depth))
		}
	case 5:
		return New(Bool, "(? "+g.one("IS NULL", "IS NOT NULL")+")", g.Of(c, depth))
	case 6:
		return New(Bool, "(? IS "+g.one("TRUE", "FALSE", "NOT TRUE", "NOT FALSE")+")", g.Of(Bool, depth))
	case 7:
		return g.in(c, depth)
	case 8:
		x, lo, hi := g.Of(c, depth), g.asText(c, depth), g.asText(c, depth)
		return lazily(New(Bool, "(? "+g.one("BETWEEN", "NOT BETWEEN")+" ? AND ?)", x, lo, hi),
			func(n *Node, holds func(*Node) bool) []int {
				if holds(New(Bool, "(? < ?)", n.args[0], n.args[1])) {
					return []int{0, 1}
				}
				return []int{0, 1, 2}
			})
	case 9:
		return g.textCondition(depth)
	}
	x, y := g.Of(c, depth), g.asText(c, depth)
	if g.r.IntN(10) == 0 {
		y = x
	}
	if c == Date && g.r.IntN(3) == 0 {
		y = g.Of(Timestamp, depth)
	}
	if g.r.IntN(2) == 0 {
		x, y = y, x
	}
	return New(Bool, "(? "+g.one("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")+" ?)", x,
		y)
}

func (g *Generator) in(c Class, depth int) *Node {
	args := []*Node{g.Of(c, depth)}
	for range 1 + g.r.IntN(4) {
		switch g.r.IntN(12) {
		case 0, 1, 2, 3:
			args = append(args, g.Of(c, depth))
		case 4:
			args = append(args, args[0])
		case 5:
			args = append(args, Leaf(c, "NULL"))
		default:
			args = append(args, g.asText(c, 0))
		}
	}
	return lazily(New(Bool, "(? "+g.one("IN", "NOT IN")+" (?"+strings.Repeat(", ?", len(args)-2)+"))", args...),
		members)
}

// members are an operand and the list to search for it, constants first.
func members(n *Node, holds func(*Node) bool) []int {
	out := []int{0}
	var late []int
	for i, a := range n.args[1:] {
		if len(a.args) == 0 {
			out = append(out, i+1)
		} else {
			late = append(late, i+1)
		}
	}
	found := func(i int) bool { return holds(New(Bool, "(? = ?)", n.args[0], n.args[i])) }
	if slices.ContainsFunc(out[1:], found) {
		return out
	}
	for _, i := range late {
		out = append(out, i)
		if found(i) {
			break
		}
	}
	return out
}

func (g *Generator) textCondition(depth int) *Node {
	x := g.Of(Text, depth)
	if g.r.IntN(2) == 0 {
		return New(Bool, g.one("contains", "starts_with", "ends_with", "prefix", "suffix")+"(?, ?)", x,
			g.Of(Text, depth))
	}
	pattern := ""
	for range 1 + g.r.IntN(4) {
		pattern += g.one("%", "%", "_", "a", "b", "abc", "ß", "e\u0301", `\%`, `\_`, "i", "İ", "👍", " ", "S", "1")
	}
	if g.r.IntN(5) == 0 && !g.Tame {
		return New(Bool, "(? "+g.one("LIKE", "ILIKE", "^@")+" ?)", x, g.Of(Text, depth))
	}
	if g.r.IntN(8) == 0 {
		return New(Bool, g.one("regexp_matches", "regexp_full_match")+"(?, ?, "+g.one("'i'", "'s'", "'l'", "'ic'")+")",
			x, g.regexp())
	}
	if g.r.IntN(6) == 0 {
		return New(Bool, "(? "+g.one("~", "!~", "~*", "!~*", "SIMILAR TO", "NOT SIMILAR TO")+" ?)", x, g.regexp())
	}
	like := g.one("LIKE", "LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE")
	if g.r.IntN(12) == 0 {
		if g.Tame && strings.HasSuffix(pattern, "a") {
			pattern += "%" // a pattern that ends with its escape character is refused before there are rows
		}
		return New(Bool, g.one("like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape")+"(?, "+
			Quote(pattern)+", "+g.one("'!'", "''", "'a'")+")", x)
	}
	escape := ""
	if g.r.IntN(4) == 0 && !g.Tame {
		escape = g.one(` ESCAPE '\'`, " ESCAPE 'a'", " ESCAPE ''")
	}
	return New(Bool, "(? "+like+" "+Quote(pattern)+escape+")", x)
}

func (g *Generator) number(depth int) *Node {
	switch g.r.IntN(17) {
	case 16:
		if !g.Tame {
			return New(Number, g.one("round(gamma(? % 20), 3)", "round(lgamma(abs(? % 20)), 3)",
				"factorial((? % 34)::INTEGER)", "nextafter(? % 20, 1e0)",
				"timezone_hour(TIMESTAMP '2024-01-01 00:00:00' + to_seconds(? % 20))",
				"timezone_minute(TIMESTAMP '2024-01-01 00:00:00' + to_seconds(? % 20))"), g.Of(Integer, 0))
		}
	case 0, 1, 2, 3, 4, 5, 6:
		if g.Tame {
			return New(Number, "(? "+g.one("+ ?)", "- ?)", "* ?)", "/ ?)", "- ?)"), g.Of(Number, depth),
				g.Of(Number, depth))
		}
		return New(Number, "(? "+g.one("+", "-", "*", "/", "//", "%")+" ?)", g.Of(Number, depth), g.Of(Number, depth))
	case 7:
		return New(Number, g.one("(-?)", "(+?)", "abs(?)", "sign(?)"), wrapped(g.Of(Number, depth)))
	case 8, 9:
		return New(Number, g.one("round(?)", "floor(?)", "ceil(?)", "ceiling(?)", "trunc(?)"), g.Of(Number, depth))
	case 10:
		if g.Tame {
			return New(Number, "round(?, "+g.one("0", "1", "2", "-1")+")", g.Of(Number, depth))
		}
		return New(Number, fmt.Sprintf("round(?, %s)",
			g.one("0", "1", "2", "-1", "-2", "5", "20", "-20", "-309", "400", "-400", "9")), g.Of(Number, depth))
	case 11:
		if g.Tame {
			return New(Number, "(? "+g.one("// 3)", "% 4)", "// 2.5)", "% 1.5)", "/ 2)", "/ 7)"), g.Of(Number, depth))
		}
		return New(Number, "mod(?, ?)", g.Of(Number, depth), g.Of(Number, depth))
	case 12:
		if g.r.IntN(2) == 0 {
			return New(Number, g.one("power(?, ?)", "(? ^ ?)", "pow(?, ?)"), g.Of(Number, depth), g.Of(Number, depth))
		}
		return New(Number, g.one("sqrt(?)", "cbrt(?)", "exp(?)", "ln(?)", "log2(?)", "log10(?)", "log(?)"),
			g.Of(Number, depth))
	case 14:
		if !g.Tame {
			return g.function(depth)
		}
	case 13:
		return New(Number, g.one("epoch(?)", "julian(?)", "date_part('epoch', ?)"),
			g.Of([]Class{Date, Timestamp}[g.r.IntN(2)], depth))
	}
	return g.integer(depth)
}

// function draws a function of numbers.
func (g *Generator) function(depth int) *Node {
	whole := func() *Node { return g.Of(Integer, depth) }
	switch g.r.IntN(9) {
	case 7:
		digits := g.one("0", "1", "2", "3", "5", "8", "15", "17", "22", "-1", "-2", "-3", "-9", "-19", "-2147483648",
			"2147483647")
		if g.r.IntN(3) == 0 {
			return New(Number, g.one("round", "trunc")+"(?::DOUBLE, ?::INTEGER)", wrapped(g.Of(Number, depth)),
				wrapped(g.Of(Integer, 0)))
		}
		return New(Number, "round(?::"+g.one("DOUBLE", "DOUBLE", "FLOAT")+", "+digits+")", wrapped(g.Of(Number, depth)))
	case 0, 1:
		return New(Integer, "(? "+g.one("&", "|", "<<", ">>", ">>")+" ?)", whole(), whole())
	case 2:
		return New(Integer, g.one("xor(?, ?)", "gcd(?, ?)", "lcm(?, ?)", "greatest_common_divisor(?, ?)",
			"least_common_multiple(?, ?)"), whole(), whole())
	case 3:
		return New(Integer, g.one("(~?)", "bit_count(?)"), wrapped(whole()))
	case 4:
		return New(Number, "trunc(?, "+g.one("0", "1", "2", "-1", "-2", "5", "20", "-20")+")", g.Of(Number, depth))
	case 5:
		return New(Number, g.one("fdiv(?, ?)", "fmod(?, ?)", "atan2(?, ?)", "log(?, ?)"), g.Of(Number, depth),
			g.Of(Number, depth))
	case 6:
		if g.r.IntN(2) == 0 {
			return New(Number, "try(?)", g.Of(Number, depth))
		}
		return New(Number, g.one("even(?)", "degrees(?)", "radians(?)", "(pi() * ?)"), g.Of(Number, depth))
	}
	return New(Number, g.one("sin", "cos", "tan", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
		"acosh", "atanh")+"(?)", g.Of(Number, depth))
}

var dateParts = []string{"year", "month", "quarter", "week", "day", "dayofmonth", "dayofweek", "weekday", "isodow",
	"dayofyear", "weekofyear", "isoyear", "yearweek", "decade", "century", "millennium", "era"}
var timeParts = []string{"hour", "minute", "second", "millisecond", "microsecond"}

func (g *Generator) integer(depth int) *Node {
	switch g.r.IntN(8) {
	case 0:
		return New(Integer, g.one("length(?)", "len(?)", "char_length(?)", "character_length(?)"), g.Of(Text, depth))
	case 1:
		return New(Integer, g.one("strpos(?, ?)", "instr(?, ?)", "position(? IN ?)"), g.Of(Text, depth),
			g.Of(Text, depth))
	case 2:
		if g.r.IntN(2) == 0 && !g.Tame {
			return New(Integer, g.one("strlen(?)", "bit_length(?)", "ascii(?)", "ord(?)", "unicode(?)",
				"nanosecond(TIMESTAMP '2020-01-01 00:00:00' + to_days(length(?)::INTEGER))"), g.Of(Text, depth))
		}
		return New(Integer, "octet_length(?)", g.Of(Blob, depth))
	case 3:
		if g.r.IntN(2) == 0 || g.Tame {
			return New(Integer, "(? - ?)", g.Of(Date, depth), g.Of(Date, depth))
		}
		return g.elapsed(depth)
	case 4, 5:
		c := []Class{Date, Timestamp, Timestamp, Time}[g.r.IntN(4)]
		part := g.one(timeParts...)
		if !g.Tame && g.r.IntN(4) == 0 {
			return g.nanoseconds(depth)
		}
		if c != Time && g.r.IntN(3) > 0 {
			part = g.one(dateParts...)
		}
		return New(Integer, g.one(part+"(?)", part+"(?)", "date_part('"+part+"', ?)", "extract("+part+" FROM ?)",
			"datepart('"+part+"', ?)"), g.Of(c, depth))
	}
	if g.Tame {
		return New(Integer, "(? "+g.one("+", "-", "*")+" ?)", g.Of(Integer, 0), g.Of(Integer, 0))
	}
	return New(Integer, "(? "+g.one("+", "-", "*", "//", "%")+" ?)", g.Of(Integer, depth), g.Of(Integer, depth))
}

// nanoseconds draws a part of a time with nanoseconds.
func (g *Generator) nanoseconds(depth int) *Node {
	part := g.one(timeParts...)
	if g.r.IntN(2) == 0 {
		t := wrapped(g.Of(Time, depth))
		return New(Integer, g.one(part+"(?::TIME_NS)", "nanosecond(?::TIME_NS)", "extract("+part+" FROM ?::TIME_NS)",
			"microsecond((?::TIME_NS)::TIME)", "epoch_ns(?::TIME_NS)", "epoch_us(?::TIME_NS)"), t)
	}
	t := wrapped(g.Of([]Class{Date, Timestamp}[g.r.IntN(2)], depth))
	return New(Integer, g.one(part+"(?::TIMESTAMP_NS)", "nanosecond(?::TIMESTAMP_NS)",
		"date_part('"+g.one(dateParts...)+"', ?::TIMESTAMP_NS)", "microsecond((?::TIMESTAMP_NS)::TIMESTAMP)",
		"epoch_ns(?::TIMESTAMP_NS)", "epoch_us(?::TIMESTAMP_NS)",
		"date_diff('"+part+"', ?::TIMESTAMP_NS, TIMESTAMP '2013-05-21 01:02:03.123457')"), t)
}

// words draws a function that makes or cuts text.
func (g *Generator) words(depth int) *Node {
	x := g.Of(Text, depth)
	n := Leaf(Integer, g.one("0", "1", "2", "3", "5", "(-1)", "(-3)", "i8"))
	switch g.r.IntN(11) {
	case 9:
		return New(Text, "regexp_extract(?, ?, "+g.one("0", "1", "2")+", "+g.one("'i'", "''", "'s'")+")", x, g.regexp())
	case 10:
		return New(Text, "regexp_replace(?, ?, "+g.one(`'<\0>'`, `'\0\\'`, "'-'", "''")+", "+g.one("'i'", "'g'",
			"'gs'")+")", x, g.regexp())
	case 0:
		return New(Text, "split_part(?, ?, ?)", x, g.Of(Text, 0), n)
	case 1:
		return New(Text, "repeat(?, ?)", x, n)
	case 2:
		return New(Text, "translate(?, ?, ?)", x, g.Of(Text, depth), g.Of(Text, 0))
	case 3:
		return New(Text, g.one("lpad", "rpad")+"(?, ?::INTEGER, ?)", x, n, g.Of(Text, 0))
	case 4:
		return New(Text, "concat_ws(?, ?, ?)", g.Of(Text, 0), x, g.Of(Class(g.r.IntN(int(classes))), depth))
	case 5:
		return New(Text, g.one("left", "right", "array_extract", "list_extract")+"(?, ?)", x, n)
	case 6:
		return New(Text, g.one("array_slice", "list_slice")+"(?, ?, ?)", x, n,
			Leaf(Integer, g.one("0", "1", "3", "(-1)", "(-2)", "100")))
	case 7:
		return New(Text, g.one("md5(?)", "sha1(?)", "sha256(?)"), g.Of([]Class{Text, Blob}[g.r.IntN(2)], depth))
	}
	return New(Text, g.one("chr(?::INTEGER)", "typeof(?)", "regexp_escape(?::VARCHAR)"), g.Of(Integer, 0))
}

// codec draws text in another form, or the distance of two.
func (g *Generator) codec(depth int) *Node {
	x := g.Of(Text, depth)
	n := Leaf(Integer, g.one("0", "1", "2", "3", "5", "(-1)", "(-3)", "i8"))
	switch g.r.IntN(10) {
	case 9:
		if g.r.IntN(2) == 0 {
			return New(Text, g.one("format('<{}>', ?)", "format('{:>7}{{', ?)", "format('{:.2}', ?)",
				"format('{0}{0:*^5}', ?)", "printf('%s%%', ?)", "printf('%-5s|', ?)"), x)
		}
		return New(Text, g.one("format('{:,}', ?)", "format('{:08}', ?)", "format('{:+d}', ?)", "printf('%5d', ?)",
			"printf('%05d', ?)", "printf('%,d', ?)"), New(Integer, "(?::BIGINT)", g.Of(Integer, 0)))
	case 0:
		return New(Text, g.one("hex(?)", "to_hex(?)", "bin(?)", "to_binary(?)"),
			g.Of([]Class{Text, Integer}[g.r.IntN(2)], depth))
	case 1:
		return New(Text, g.one("url_encode(?)", "url_decode(?)", "decode(encode(?))", "unhex(hex(?))::VARCHAR",
			"decode(from_hex(to_hex(?)))", "from_binary(bin(?))::VARCHAR", "unbin(bin(?))::VARCHAR",
			"base64(encode(?))", "from_base64(to_base64(encode(?)))::VARCHAR", "try(unhex(?))::VARCHAR",
			"try(from_base64(?))::VARCHAR"), x)
	case 2:
		return New(Text, g.one("overlay(?, ?, ?)", "overlay(?, ?, 2, ?)", "overlay(? PLACING ? FROM ? FOR 1)"), x,
			g.Of(Text, 0), n)
	case 3:
		return New(Text, g.one("parse_filename(?)", "parse_filename(?, true)", "parse_filename(?, false, 'backslash')",
			"parse_dirname(?)", "parse_dirpath(?)", "parse_dirpath(?, 'system')"),
			New(Text, g.one("? || '/'", "'a\\' || ?", "'/' || ?", "? || '.b/c.d'"), x))
	case 4:
		return New(Text, g.one("hash(?)", "hash(?, 'a')", "hash(NULL, ?)")+"::VARCHAR",
			g.Of([]Class{Text, Integer, Bool, Date, Time, Timestamp, Blob}[g.r.IntN(7)], depth))
	case 5:
		return New(Text, g.one("to_base(?, 7)", "to_base(?, 36, 10)", "formatReadableSize(?)", "format_bytes(?)",
			"formatReadableDecimalSize(?)"), New(Integer, "(?::BIGINT)", g.Of(Integer, 0)))
	case 6:
		y := g.Of(Text, depth)
		if g.r.IntN(2) == 0 { // characters of several bytes, and of several code points
			y = Leaf(Text,
				Quote(g.one("é", "e\u0301", "ß", "Äöü %_y", "日本", "👍🏽", "👍🏽x", "İstanbul", "straße", "ǄﬁΐÄ", "ab")))
		}
		return New(Text, g.one("levenshtein(?, ?)", "editdist3(?, ?)", "damerau_levenshtein(?, ?)", "hamming(?, ?)",
			"mismatches(?, ?)", "jaccard(?, ?)", "jaro_similarity(?, ?)", "jaro_winkler_similarity(?, ?)",
			"jaro_similarity(?, ?, 0.6)")+"::VARCHAR", x, y)
	case 7, 8:
		return New(Text, g.one("try_strptime(?, '%Y')", "try_strptime(?, '%d%m%y')", "try_strptime(?, '%H:%M:%S.%f')")+
			"::VARCHAR", g.Of(Text, depth))
	}
	return x
}

// regexp draws a regular expression.
func (g *Generator) regexp() *Node {
	pattern := ""
	for range 1 + g.r.IntN(4) {
		part := g.one("a", "b", "[a-c]", ".", "ß", "\u00e9", "[^a]", `\d`, `\w+`, "^", "$", `\b`, "(a|ab)", "(b)?",
			"(.*)", " ", "👍", `\pL`, "1+", "S", "[[:alpha:]]", `\.`)
		pattern += part
		if strings.HasSuffix(part, ")") || len(part) == 1 && part != "^" && part != "$" {
			pattern += g.one("", "", "", "*", "+?", "{1,2}")
		}
	}
	return Leaf(Text, Quote(pattern))
}

// elapsed draws a number that two dates or a duration give.
func (g *Generator) elapsed(depth int) *Node {
	moment := func() *Node { return g.Of([]Class{Date, Timestamp}[g.r.IntN(2)], depth) }
	part := g.one("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond",
		"decade", "century", "millennium", "isoyear")
	switch g.r.IntN(6) {
	case 0, 1:
		return New(Integer, g.one("date_diff", "datediff", "date_sub", "datesub")+"('"+part+"', ?, ?)", moment(),
			moment())
	case 2:
		return New(Integer, g.one("date_diff", "date_sub")+"('"+g.one(timeParts...)+"', ?, ?)", g.Of(Time, depth),
			g.Of(Time, depth))
	case 3:
		return New(Integer, g.one("epoch_us(?)", "epoch_ms(?)", "epoch_ns(?)", "days_in_month(?)",
			"epoch_us(? - TIMESTAMP '2000-01-01 12:00:00')"), g.Of(Timestamp, depth))
	case 4:
		return New(Integer, "extract("+g.one("year", "month", "day", "hour", "second", "microsecond")+
			" FROM age(?, ?))", moment(), moment())
	}
	return New(Integer, "extract("+g.one("day", "hour", "minute", "second")+" FROM ? - ?)", g.Of(Timestamp, depth),
		g.Of(Timestamp, depth))
}

func (g *Generator) text(depth int) *Node {
	x := g.Of(Text, depth)
	small := func() *Node {
		if g.r.IntN(2) == 0 || g.Tame {
			return Leaf(Integer, g.one("0", "1", "2", "3", "5", "(-1)", "(-3)", "100"))
		}
		return g.Of(Integer, depth)
	}
	switch g.r.IntN(14) {
	case 13:
		if !g.Tame {
			return g.codec(depth)
		}
	case 0, 1:
		c := []Class{Text, Text, Text, Number, Date, Bool, Timestamp}[g.r.IntN(7)]
		return New(Text, "(? || ?)", x, g.Of(c, depth))
	case 2:
		return New(Text, "concat(?, ?)", g.Of(Class(g.r.IntN(int(classes))), depth), x)
	case 3:
		return New(Text, g.one("lower(?)", "upper(?)", "lcase(?)", "ucase(?)", "strip_accents(?)"), x)
	case 4:
		if g.Tame {
			return New(Text, "lower(?)", x)
		}
		return New(Text, "reverse(?)", x)
	case 5:
		return New(Text, "replace(?, ?, ?)", x, g.Of(Text, depth), g.Of(Text, depth))
	case 6:
		return New(Text, g.one("substring(?, ?, ?)", "substr(?, ?, ?)", "substring(? FROM ? FOR ?)"), x, small(),
			small())
	case 7:
		return New(Text, "substring(?, ?)", x, small())
	case 8:
		return New(Text, g.one("left", "right")+"(?, "+g.one("0", "1", "2", "3", "-1", "-2", "100")+")", x)
	case 11:
		if !g.Tame && g.r.IntN(4) > 0 {
			return g.words(depth)
		}
		if !g.Tame {
			return New(Text, g.one("monthname(?)", "dayname(?)", "strftime(?, '%Y-%m-%d %H:%M:%S.%f %j')",
				"strftime(?, '%a %A %b %B %-d %y %I %p %u %w')",
				"strftime(strptime(strftime(?, '%y %B %-d %I %p %f'), '%y %B %d %I %p %f'), '%c %f')"),
				g.Of([]Class{Date, Timestamp}[g.r.IntN(2)], depth))
		}
	case 9:
		return New(Text, g.one("trim(?)", "ltrim(?)", "rtrim(?)", "trim(BOTH FROM ?)"), x)
	case 10:
		return New(Text, g.one("trim(?, ?)", "ltrim(?, ?)", "rtrim(?, ?)"), x, g.Of(Text, depth))
	}
	return New(Text, "?::VARCHAR", wrapped(g.Of(Class(g.r.IntN(int(classes))), depth)))
}

// interval draws an interval: SQL with at most one argument.
func (g *Generator) interval(depth int) (string, []*Node) {
	unit := g.one("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "WEEK", "QUARTER", "MILLISECOND", "MICROSECOND",
		"DECADE", "CENTURY")
	switch g.r.IntN(5) {
	case 0:
		return "INTERVAL " + g.one("1", "3", "0", "100") + " " + unit, nil
	case 1:
		return "INTERVAL " + Quote(g.one("1 day", "-1 month", "1 year 2 months", "04:05:06.5", "1 day 02:03:04",
			"100 years", "3 weeks", "90 minutes", "-1 day 00:00:01", "0.5 days", "1.5 hours", "12 months 30 days")), nil
	case 2:
		return "(? * INTERVAL 1 " + unit + ")", []*Node{g.Of(Integer, depth)}
	case 3:
		return "INTERVAL '" + g.one("1", "7", "-3", "36") + "' " + unit, nil
	}
	return "INTERVAL (?) " + unit, []*Node{g.Of(Integer, depth)}
}

// shifted draws a date or time plus or minus an interval.
func (g *Generator) shifted(c, from Class, depth int) *Node {
	interval, args := g.interval(depth)
	return New(c, "(? "+g.one("+", "-")+" "+interval+")", append([]*Node{g.Of(from, depth)}, args...)...)
}

func (g *Generator) date(depth int) *Node {
	if g.r.IntN(12) == 0 && !g.Tame {
		return New(Date, g.one("make_date(?::BIGINT, 2, 28)", "make_date(2024, ?::BIGINT, 28)",
			"make_date(2023, 2, ?::BIGINT)", "make_date(?::INTEGER)"), g.Of(Integer, 0))
	}
	if g.r.IntN(8) == 0 && !g.Tame {
		return New(Date, g.one("last_day(?)", "time_bucket(INTERVAL 10 DAY, ?)", "time_bucket(INTERVAL 5 MONTH, ?)"),
			g.Of(Date, depth))
	}
	if g.r.IntN(4) == 0 {
		return New(Date, "?::DATE", wrapped(g.Of(Timestamp, depth)))
	}
	return New(Date, "(? "+g.one("+", "-")+" ?)", g.Of(Date, depth),
		Leaf(Integer, g.one("1", "30", "365", "0", "(-1)", "100000000")))
}

func (g *Generator) timestamp(depth int) *Node {
	from := []Class{Timestamp, Timestamp, Date}[g.r.IntN(3)]
	switch g.r.IntN(6) {
	case 0, 1:
		part := g.one(append(append([]string{}, dateParts[:5]...), "decade", "century", "millennium", "hour", "minute",
			"second", "millisecond", "microsecond")...)
		return New(Timestamp, g.one("date_trunc", "datetrunc")+"('"+part+"', ?)", g.Of(from, depth))
	case 2:
		return New(Timestamp, "(? + ?)", g.Of(Date, depth), g.Of(Time, depth))
	case 3:
		if g.Tame {
			break
		}
		switch g.r.IntN(4) {
		case 0:
			return New(Timestamp, g.one("epoch_ms(?::BIGINT)", "make_timestamp_ms(?::BIGINT)",
				"make_timestamp_ns(?::BIGINT)"), g.Of(Integer, 0))
		case 1:
			return New(Timestamp, g.one("to_timestamp(?)", "make_timestamp(2024, ?::BIGINT, 28, 10, 30, 1.5)",
				"make_timestamp(?::BIGINT)", "make_timestamptz(2024, 2, length(?::VARCHAR), 10, 30, 1.5)"),
				g.Of(Integer, 0))
		case 2:
			return New(Timestamp, "time_bucket("+g.one("INTERVAL 15 MINUTE", "INTERVAL 2 DAY", "INTERVAL 7 MONTH",
				"INTERVAL 3 YEAR")+", ?)", g.Of(Timestamp, depth))
		}
		if g.r.IntN(3) == 0 {
			return New(Timestamp, g.one("timezone('Europe/Berlin', ?)", "timezone('America/New_York', ?)"),
				g.Of(Timestamp, depth))
		}
		unit := g.one("years", "quarters", "months", "weeks", "days", "hours", "minutes", "seconds", "milliseconds",
			"microseconds", "decades", "centuries", "millennia")
		return New(Timestamp, "date_add(?, to_"+unit+"(?::INTEGER))", g.Of(Timestamp, depth), g.Of(Integer, 0))
	}
	return g.shifted(Timestamp, from, depth)
}
