package exprtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
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
	case gpu.Interval:
		return Interval
	}
	return Number
}

func (g *Generator) one(options ...string) string { return options[g.r.IntN(len(options))] }

// Any draws an expression of any class.
func (g *Generator) Any(depth int) *Node {
	return g.Of([]Class{Bool, Bool, Bool, Number, Number, Number, Number, Integer, Text, Text, Blob, Date, Time,
		Timestamp, Timestamp, Interval}[g.r.IntN(16)], depth)
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
	switch {
	case c == Bool && g.r.IntN(2) == 0:
		return g.logic(depth - 1)
	case c == Interval && g.r.IntN(3) == 0:
		return g.interval(depth - 1)
	case c == Number && g.Tame && g.r.IntN(15) == 0:
		return g.divided(depth - 1)
	case c == Integer && !g.Tame && g.r.IntN(15) == 0:
		return g.nanoseconds(depth - 1)
	case composed[c] != nil && !g.Tame && g.r.IntN(15) == 0:
		return g.composition(c, depth-1)
	}
	return g.operation(c, depth-1)
}

func (g *Generator) leaf(c Class) *Node {
	columns := g.Columns[c]
	switch {
	case len(columns) > 0 && g.r.IntN(4) != 0:
		return Leaf(c, g.one(columns...))
	case g.r.IntN(15) == 0 && c == Interval:
		return Leaf(c, "NULL::INTERVAL")
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
	case Interval:
		switch g.r.IntN(3) {
		case 0:
			return "INTERVAL " + g.one("1", "3", "0", "100") + " " + g.one(units...)
		case 1:
			return "INTERVAL '" + g.one("1", "7", "-3", "36") + "' " + g.one(units...)
		}
		return "INTERVAL " + Quote(g.one("1 day", "-1 month", "1 year 2 months", "04:05:06.5", "1 day 02:03:04",
			"100 years", "3 weeks", "90 minutes", "-1 day 00:00:01", "0.5 days", "1.5 hours", "12 months 30 days"))
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
	case Interval:
		return Leaf(c, Quote(g.one("1 day", "-2 months", "1 year 3 days 04:05:06.5", "7", "2 d 3h ago", "x")))
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
	Text: {Bool, Number, Number, Blob, Date, Time, Timestamp, Interval}, Blob: {Text}, Date: {Timestamp, Text},
	Time: {Timestamp, Text, Time}, Timestamp: {Timestamp, Timestamp, Date, Text}, Interval: {Interval},
}

func (g *Generator) cast(c Class, depth int) *Node {
	from := castable[c][g.r.IntN(len(castable[c]))]
	if g.Tame && c == Time && from == Timestamp {
		from = Time // DuckDB has no TIME of a TIMESTAMP WITH TIME ZONE
	}
	x := g.Of(from, depth)
	if c == Interval && g.r.IntN(2) == 0 {
		x = New(Text, "(?::VARCHAR)", wrapped(x))
	}
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
	case Interval:
		return "INTERVAL"
	}
	if g.Tame {
		return "TIMESTAMP"
	}
	return g.one("TIMESTAMP", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ")
}

var units = []string{"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "WEEK", "QUARTER", "MILLISECOND",
	"MICROSECOND", "DECADE", "CENTURY"}

// logic draws a condition of which a row may need only some operands.
func (g *Generator) logic(depth int) *Node {
	c := g.comparable()
	switch g.r.IntN(8) {
	case 0, 1:
		return lazily(New(Bool, "(? AND ?)", g.Of(Bool, depth), g.Of(Bool, depth)), until("(NOT ?)"))
	case 2, 3:
		return lazily(New(Bool, "(? OR ?)", g.Of(Bool, depth), g.Of(Bool, depth)), until("?"))
	case 4:
		return New(Bool, "(? IS "+g.one("TRUE", "FALSE", "NOT TRUE", "NOT FALSE")+")", g.Of(Bool, depth))
	case 5, 6:
		return g.in(c, depth)
	}
	x, lo, hi := g.Of(c, depth), g.asText(c, depth), g.asText(c, depth)
	return lazily(New(Bool, "(? "+g.one("BETWEEN", "NOT BETWEEN")+" ? AND ?)", x, lo, hi),
		func(n *Node, holds func(*Node) bool) []int {
			if holds(New(Bool, "(? < ?)", n.args[0], n.args[1])) {
				return []int{0, 1}
			}
			return []int{0, 1, 2}
		})
}

// comparable draws the class of operands. Text and numbers have the most operators.
func (g *Generator) comparable() Class {
	return []Class{Number, Number, Number, Integer, Text, Text, Bool, Blob, Date, Time, Timestamp,
		Timestamp}[g.r.IntN(12)]
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

// operation draws an operation of the devices, or a row of the reference, whose result is of a class, and operands for
// it.
func (g *Generator) operation(c Class, depth int) *Node {
	all, tame := tables()
	of := all
	if g.Tame {
		of = tame
	}
	groups := of.rows[c]
	if g.r.IntN(2) == 0 {
		groups = of.ops[c]
	}
	if len(groups) == 0 {
		return g.leaf(c)
	}
	group := groups[g.r.IntN(len(groups))]
	s := group[g.r.IntN(len(group))]
	n := &Node{Class: s.class, parts: slices.Clone(s.parts), inexact: s.inexact}
	compares := s.op.Info().Opposite != gpu.OpConst && len(s.operands) == 2
	for i, o := range s.operands {
		switch {
		case o.literal:
			n.args = append(n.args, Leaf(o.class, g.literalFor(&s.holes[i])))
			continue
		case compares && i == 1 && o == s.operands[0] && g.r.IntN(10) == 0:
			n.args = append(n.args, n.args[0])
		case compares:
			n.args = append(n.args, g.asText(o.class, depth))
		default:
			n.args = append(n.args, g.Of(o.class, depth))
		}
		if o.cast != "" {
			n.args[i] = wrapped(n.args[i])
			n.parts[i+1] = o.cast + n.parts[i+1]
		}
		if last := n.parts[i]; strings.HasSuffix(last, "-") || strings.HasSuffix(last, "~") {
			n.args[i] = wrapped(n.args[i])
		}
	}
	return n
}

// pool is literals for arguments of a name. Only says that such arguments are not drawn from the columns.
type pool struct {
	only   bool
	values []string
	draw   func(g *Generator) string
}

// pools are the literals by the name of the argument in the reference, or by function and argument.
var pools = map[string]*pool{
	"part":                       {draw: func(g *Generator) string { return Quote(g.part()) }},
	"pattern":                    {draw: (*Generator).regexp},
	"like_escape.pattern":        {draw: (*Generator).pattern},
	"not_like_escape.pattern":    {draw: (*Generator).pattern},
	"ilike_escape.pattern":       {draw: (*Generator).pattern},
	"not_ilike_escape.pattern":   {draw: (*Generator).pattern},
	"like.pattern":               {draw: (*Generator).pattern},
	"like.escape":                {values: []string{`'\'`, "'a'", "''", "'!'"}},
	"escape":                     {values: []string{"'!'", "''", "'a'"}},
	"options":                    {values: []string{"'i'", "'s'", "'l'", "'ic'"}},
	"regexp_extract.group":       {values: []string{"0", "1", "2"}},
	"regexp_extract.options":     {values: []string{"'i'", "''", "'s'"}},
	"regexp_replace.options":     {values: []string{"'i'", "'g'", "'gs'"}},
	"regexp_replace.replacement": {values: []string{`'<\0>'`, `'\0\\'`, "'-'", "''"}},
	"digits": {values: []string{"0", "1", "2", "3", "5", "8", "9", "15", "17", "20", "22", "-1", "-2", "-3", "-9",
		"-19",
		"-20", "-309", "400", "-400", "-2147483648", "2147483647"}},
	"n":              {values: counts},
	"start":          {values: counts},
	"length":         {values: counts},
	"count":          {values: counts},
	"repeat.n":       {only: true, values: counts},
	"lpad.n":         {only: true, values: counts},
	"rpad.n":         {only: true, values: counts},
	"to_base.base":   {values: []string{"2", "7", "36"}},
	"to_base.length": {only: true, values: []string{"0", "1", "10", "64"}},
	"factorial.n":    {values: []string{"0", "1", "20", "33"}},
	"zone":           {values: []string{"'Europe/Berlin'", "'America/New_York'", "'UTC'"}},
	"trim":           {values: []string{"true", "false"}},
	"separator":      {values: []string{"'system'", "'both_slash'", "'forward_slash'", "'backslash'"}},
	"least":          {values: []string{"0", "0.6", "1"}},
	"width": {values: []string{"INTERVAL 15 MINUTE", "INTERVAL 2 DAY", "INTERVAL 10 DAY", "INTERVAL 7 MONTH",
		"INTERVAL 3 YEAR"}},
	"strftime.format":     {values: formats},
	"strptime.format":     {values: []string{"'%Y'", "'%d%m%y'", "'%Y-%m-%d %H:%M:%S'"}},
	"try_strptime.format": {values: []string{"'%Y'", "'%d%m%y'", "'%H:%M:%S.%f'", "'%Y-%m-%d'"}},
}

var counts = []string{"0", "1", "2", "3", "5", "(-1)", "(-2)", "(-3)", "100"}

var formats = []string{"'%Y-%m-%d %H:%M:%S.%f %j'", "'%a %A %b %B %-d %y %I %p %u %w'", "'%G-%V %U %W'", "'%c %f'"}

// literalFor draws a literal for a hole.
func (g *Generator) literalFor(h *hole) string {
	switch l := h.literals(); {
	case l == nil:
		return h.example
	case l.draw != nil:
		return l.draw(g)
	default:
		return g.one(l.values...)
	}
}

// part draws the name of a part of dates.
func (g *Generator) part() string {
	return strings.ToLower(syntax.DateParts[g.r.IntN(len(syntax.DateParts))].Name)
}

// pattern draws a pattern of LIKE.
func (g *Generator) pattern() string {
	pattern := ""
	for range 1 + g.r.IntN(4) {
		pattern += g.one("%", "%", "_", "a", "b", "abc", "ß", "e\u0301", `\%`, `\_`, "i", "İ", "👍", " ", "S", "1")
	}
	if g.Tame && strings.HasSuffix(pattern, "a") {
		pattern += "%" // a pattern that ends with its escape character is refused before there are rows
	}
	return Quote(pattern)
}

// regexp draws a regular expression.
func (g *Generator) regexp() string {
	pattern := ""
	for range 1 + g.r.IntN(4) {
		part := g.one("a", "b", "[a-c]", ".", "ß", "\u00e9", "[^a]", `\d`, `\w+`, "^", "$", `\b`, "(a|ab)", "(b)?",
			"(.*)", " ", "👍", `\pL`, "1+", "S", "[[:alpha:]]", `\.`)
		pattern += part
		if strings.HasSuffix(part, ")") || len(part) == 1 && part != "^" && part != "$" {
			pattern += g.one("", "", "", "*", "+?", "{1,2}")
		}
	}
	return Quote(pattern)
}

// composed are calls with operands of a form that they need, and calls in a syntax of their own, by the class of the
// result. The ? is an expression of a class.
var composed = map[Class][]composition{
	Text: {
		{Text, []string{"decode(encode(?))", "decode(from_hex(to_hex(?)))", "unhex(hex(?))::VARCHAR",
			"from_binary(bin(?))::VARCHAR", "from_base64(to_base64(encode(?)))::VARCHAR", "try(unhex(?))::VARCHAR",
			"try(from_base64(?))::VARCHAR", "parse_filename(? || '/b/c.d', true)", "parse_dirpath('a\\' || ?)",
			"parse_dirname('/' || ?)", "format('{:>7}{{', ?)", "format('{:.2}', ?)", "format('{0}{0:*^5}', ?)",
			"printf('%-5s|', ?)", "printf('%s%%', ?)", "overlay(? PLACING 'é' FROM 2 FOR 1)",
			"substring(? FROM 2 FOR 3)", "trim(BOTH FROM ?)"}},
		{Integer, []string{"format('{:,}', ?::BIGINT)", "format('{:08}', ?::BIGINT)", "format('{:+d}', ?::BIGINT)",
			"printf('%5d', ?::BIGINT)", "printf('%,d', ?::BIGINT)"}},
		{Date, []string{"strftime(strptime(strftime(?, '%y %B %-d %I %p'), '%y %B %d %I %p'), '%c')"}},
		{Timestamp, []string{"strftime(strptime(strftime(?, '%y %B %-d %I %p %f'), '%y %B %d %I %p %f'), '%c %f')"}},
	},
	Integer: {
		{Text, []string{"position('a' IN ?)"}},
		{Timestamp, []string{"extract(hour FROM ?)", "extract(year FROM ?)"}},
	},
	Number: {
		{Integer, []string{"round(gamma(? % 20), 3)", "round(lgamma(abs(? % 20)), 3)", "factorial((? % 34)::INTEGER)",
			"nextafter(? % 20, 1e0)"}},
	},
}

type composition struct {
	operand Class
	sql     []string
}

func (g *Generator) composition(c Class, depth int) *Node {
	s := composed[c][g.r.IntN(len(composed[c]))]
	n := New(c, s.sql[g.r.IntN(len(s.sql))], wrapped(g.Of(s.operand, depth)))
	n.inexact = strings.Contains(n.parts[0], "gamma(")
	return n
}

// divided draws a quotient by a constant, which does not fail.
func (g *Generator) divided(depth int) *Node {
	return New(Number, "(? "+g.one("// 3)", "% 4)", "// 2.5)", "% 1.5)", "/ 2)", "/ 7)"), g.Of(Number, depth))
}

// nanoseconds draws a part of a time with nanoseconds.
func (g *Generator) nanoseconds(depth int) *Node {
	part := g.one("hour", "minute", "second", "millisecond", "microsecond")
	if g.r.IntN(2) == 0 {
		t := wrapped(g.Of(Time, depth))
		return New(Integer, g.one(part+"(?::TIME_NS)", "nanosecond(?::TIME_NS)",
			"extract("+part+" FROM ?::TIME_NS)",
			"microsecond((?::TIME_NS)::TIME)", "epoch_ns(?::TIME_NS)", "epoch_us(?::TIME_NS)"), t)
	}
	t := wrapped(g.Of([]Class{Date, Timestamp}[g.r.IntN(2)], depth))
	return New(Integer, g.one(part+"(?::TIMESTAMP_NS)", "nanosecond(?::TIMESTAMP_NS)",
		"date_part('"+g.part()+"', ?::TIMESTAMP_NS)", "microsecond((?::TIMESTAMP_NS)::TIMESTAMP)",
		"epoch_ns(?::TIMESTAMP_NS)", "epoch_us(?::TIMESTAMP_NS)",
		"date_diff('"+part+"', ?::TIMESTAMP_NS, TIMESTAMP '2013-05-21 01:02:03.123457')"), t)
}

// interval draws a multiple of a unit.
func (g *Generator) interval(depth int) *Node {
	unit := g.one(units...)
	return New(Interval, g.one("(? * INTERVAL 1 "+unit+")", "INTERVAL (?) "+unit), g.Of(Integer, depth))
}
