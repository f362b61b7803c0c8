package pipeline

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr/exprtest"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// The classes of the parts of a query. To shrink a query, a part takes the place of another one of its class.
const (
	queryClass  exprtest.Class = 100 + iota
	clauseClass                // may be left out
	sourceClass                // a table of FROM
	groupClass                 // GROUP BY and HAVING
)

// shortest are parts that stand for any others of their class.
var shortest = map[exprtest.Class][]string{clauseClass: {""}, exprtest.Bool: {"true", "NULL"}, exprtest.Integer: {"1"},
	exprtest.Number: {"1"}, exprtest.Text: {"'a'"}, queryClass: {"SELECT 1"}}

// queryColumn is an expression that the expressions of a query can use: a column, or a key of GROUP BY or an aggregate.
type queryColumn struct {
	sql   string
	class exprtest.Class
}

// queryScope is what the expressions of a query can use, and the queries around it.
type queryScope struct {
	outer   *queryScope
	columns []queryColumn
	// plain are the columns that subqueries can use; those of a query with a group-by are its keys.
	plain []queryColumn
}

// drawnQuery is a query, its columns, and an estimate of its rows.
type drawnQuery struct {
	node    *exprtest.Node
	names   []string
	classes []exprtest.Class
	rows    float64
	order   string // its ORDER BY and LIMIT, or ""
}

// tableOfCTE is a common table expression that queries can read.
type tableOfCTE struct {
	name string
	drawnQuery
}

// queryGenerator draws queries over the tables t0, t1 and t2, which have the same columns.
type queryGenerator struct {
	r      *rand.Rand
	tables []randomSource
	ctes   []tableOfCTE
	fresh  int
	budget int // of SELECTs
}

// queryTypes are the columns of all tables of random queries.
var queryTypes = []struct {
	name, typ string
	class     exprtest.Class
}{
	{"id", "BIGINT", exprtest.Integer}, {"k", "INTEGER", exprtest.Integer}, {"n", "BIGINT", exprtest.Integer},
	{"s", "VARCHAR", exprtest.Text}, {"d", "DECIMAL(12,2)", exprtest.Number}, {"f", "DOUBLE", exprtest.Number},
	{"p", "DATE", exprtest.Date}, {"b", "BOOLEAN", exprtest.Bool},
}

// drawQueryTables draws the tables of random queries. The first column is unique.
func drawQueryTables(r *rand.Rand) (tables []randomSource) {
	g := &caseGenerator{r: r}
	for i := range 3 {
		t := randomSource{name: fmt.Sprintf("t%d", i), schema: &gpu.Schema{}, byDuckDB: r.IntN(2) == 0}
		for _, c := range queryTypes {
			typ, err := syntax.ParseType(c.typ)
			if err != nil {
				panic(err)
			}
			t.schema.Fields = append(t.schema.Fields, gpu.Field{Name: c.name, Type: typ, Nullable: true})
		}
		for n := range []int{0, 1, 4, 8, 8, 12, 12, 20}[r.IntN(8)] {
			row := []gpu.Scalar{gpu.IntScalar(t.schema.Fields[0].Type, int64(n))}
			for _, f := range t.schema.Fields[1:] {
				v := g.value(f.Type)
				if r.IntN(8) == 0 {
					v = gpu.Null(f.Type)
				}
				row = append(row, v)
			}
			t.rows = append(t.rows, row)
		}
		tables = append(tables, t)
	}
	return tables
}

func (g *queryGenerator) one(options ...string) string { return options[g.r.IntN(len(options))] }
func (g *queryGenerator) in(n int) bool                { return g.r.IntN(n) == 0 }

func (g *queryGenerator) name(prefix string) string {
	g.fresh++
	return fmt.Sprintf("%s%d", prefix, g.fresh)
}

// expressions returns a generator of expressions over columns.
func (g *queryGenerator) expressions(columns []queryColumn) *exprtest.Generator {
	e := exprtest.NewGenerator(g.r, &gpu.Schema{})
	e.Tame = true
	for _, c := range columns {
		e.Columns[c.class] = append(e.Columns[c.class], c.sql)
		if c.class == exprtest.Integer {
			e.Columns[exprtest.Number] = append(e.Columns[exprtest.Number], c.sql)
		}
	}
	return e
}

// usual reports whether an expression has the same value everywhere. DuckDB has no aggregate inside of try, and does
// not treat a constant there as a literal. Hashes fit few types, and the sign of a zero may change among equal rows.
func usual(n *exprtest.Node) bool { return n.Exact() && !unusualCalls.MatchString(n.SQL()) }

// of returns the columns of a class. An integer is a number.
func of(columns []queryColumn, c exprtest.Class) (out []queryColumn) {
	for _, x := range columns {
		if x.class == c || c == exprtest.Number && x.class == exprtest.Integer {
			out = append(out, x)
		}
	}
	return out
}

// around returns the columns of the queries around a query: mostly those of the next one.
func (g *queryGenerator) around(s *queryScope) []queryColumn {
	o := s.outer
	for o != nil && o.outer != nil && (len(o.plain) == 0 || g.in(4)) {
		o = o.outer
	}
	if o == nil {
		return nil
	}
	return o.plain
}

// anyClass draws the class of a value.
func (g *queryGenerator) anyClass() exprtest.Class {
	return []exprtest.Class{exprtest.Integer, exprtest.Integer, exprtest.Integer, exprtest.Number, exprtest.Text,
		exprtest.Text, exprtest.Date, exprtest.Bool}[g.r.IntN(8)]
}

// column draws a column of a class, or a constant.
func (g *queryGenerator) column(columns []queryColumn, c exprtest.Class) *exprtest.Node {
	if list := of(columns, c); len(list) > 0 {
		return exprtest.Leaf(c, list[g.r.IntN(len(list))].sql)
	}
	return g.expressions(nil).Of(c, 0)
}

// value draws a value of a class for each row of a scope.
func (g *queryGenerator) value(s *queryScope, c exprtest.Class, depth int) *exprtest.Node {
	switch g.r.IntN(10) {
	case 0, 1:
		if n := g.expressions(s.columns).Of(c, 1+g.r.IntN(2)); usual(n) {
			return n
		}
	case 2:
		if columns := g.around(s); len(columns) > 0 {
			return g.column(columns, c)
		}
	case 3, 4:
		if depth > 0 && g.budget > 0 {
			return exprtest.New(c, "(?)", g.scalar(s, c, depth-1))
		}
	case 5:
		if depth > 0 {
			return exprtest.New(c, "CASE WHEN ? THEN ? ELSE ? END", g.condition(s, depth-1), g.value(s, c, depth-1),
				g.value(s, c, depth-1))
		}
	}
	return g.column(s.columns, c)
}

// scalar draws a query of one column that has one row at most; now and then it has more.
func (g *queryGenerator) scalar(s *queryScope, c exprtest.Class, depth int) *exprtest.Node {
	switch g.r.IntN(12) {
	case 0, 1, 2: // the first row
		q := g.selectOf(s, depth, []exprtest.Class{c}, plainSelect)
		return exprtest.New(queryClass, "? ORDER BY 1"+g.one("", " DESC", " NULLS FIRST", " DESC NULLS LAST")+
			" LIMIT 1"+g.one("", "", " OFFSET 1"), q.node)
	case 3: // a row by its unique column
		t, a := g.tables[g.r.IntN(len(g.tables))], g.name("u")
		inner := &queryScope{outer: s, columns: columnsOf(a)}
		return exprtest.New(queryClass, "SELECT ? FROM "+t.name+" "+a+" WHERE "+a+".id = ?",
			g.column(inner.columns, c), g.column(append(s.plain, g.around(s)...), exprtest.Integer))
	case 4:
		if g.in(3) { // any rows
			return g.query(s, depth, []exprtest.Class{c}).node
		}
	case 5: // no FROM
		return exprtest.New(queryClass, "SELECT ?", g.value(&queryScope{outer: s}, c, depth))
	}
	return g.selectOf(s, depth, []exprtest.Class{c}, aggregatedSelect).node
}

var comparisons = []string{"=", "=", "=", "<>", "<", "<=", ">", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM"}

// condition draws a condition on the rows of a scope.
func (g *queryGenerator) condition(s *queryScope, depth int) *exprtest.Node {
	boolean := func(sql string, args ...*exprtest.Node) *exprtest.Node {
		return exprtest.New(exprtest.Bool, sql, args...)
	}
	c := g.anyClass()
	if depth <= 0 || g.in(4) {
		if n := g.expressions(s.columns).Of(exprtest.Bool, 1+g.r.IntN(2)); g.in(3) && usual(n) {
			return n
		}
		return boolean("(? "+g.one(comparisons...)+" ?)", g.column(s.columns, c), g.value(s, c, 0))
	}
	if g.budget > 0 && g.in(2) {
		switch g.r.IntN(8) {
		case 0, 1:
			return boolean(g.one("EXISTS (?)", "(NOT EXISTS (?))"), g.query(s, depth-1, nil).node)
		case 2, 3, 4:
			return boolean(g.one("(? IN (?))", "(? NOT IN (?))"), g.value(s, c, depth-1),
				g.query(s, depth-1, []exprtest.Class{c}).node)
		case 5, 6:
			return boolean("(? "+g.one("=", "<>", "<", "<=", ">", ">=")+" "+g.one("ANY", "ALL")+" (?))",
				g.value(s, c, depth-1), g.query(s, depth-1, []exprtest.Class{c}).node)
		}
		d := g.anyClass()
		var none *queryScope // DuckDB does not have it with outer columns
		return boolean(g.one("((?, ?) IN (?))", "((?, ?) NOT IN (?))"), g.value(s, c, depth-1), g.value(s, d, depth-1),
			g.query(none, depth-1, []exprtest.Class{c, d}).node)
	}
	switch g.r.IntN(9) {
	case 0, 1:
		return boolean(g.one("(? AND ?)", "(? OR ?)"), g.condition(s, depth-1), g.condition(s, depth-1))
	case 2:
		return boolean("(NOT ?)", g.condition(s, depth-1))
	case 3:
		return boolean(g.one("(? IS NULL)", "(? IS NOT NULL)"), g.value(s, c, depth))
	case 4:
		return boolean("(? BETWEEN ? AND ?)", g.value(s, c, depth-1), g.value(s, c, depth-1), g.value(s, c, depth-1))
	}
	return boolean("(? "+g.one(comparisons...)+" ?)", g.value(s, c, depth), g.value(s, c, depth-1))
}

// correlation draws a condition on a column of a query and one of the queries around it.
func (g *queryGenerator) correlation(s *queryScope) *exprtest.Node {
	outer := g.around(s)
	if len(outer) == 0 || len(s.columns) == 0 {
		return nil
	}
	o := outer[g.r.IntN(len(outer))]
	c := o.class
	x, y := g.column(s.columns, c), exprtest.Leaf(c, o.sql)
	if g.in(6) {
		if n := g.expressions(s.columns).Of(c, 1); usual(n) {
			x = n
		}
	}
	if g.in(3) {
		x, y = y, x
	}
	op := "="
	if g.in(2) {
		op = g.one(comparisons...)
	}
	return exprtest.New(exprtest.Bool, "(? "+op+" ?)", x, y)
}

// columnsOf returns the columns of a table by another name.
func columnsOf(as string) (columns []queryColumn) {
	for _, c := range queryTypes {
		columns = append(columns, queryColumn{as + "." + c.name, c.class})
	}
	return columns
}

// maxQueryRows bounds the estimate of the rows of a query.
const maxQueryRows = 1500

// source draws a table of FROM: a table, a common table expression or a query. left are the columns before it, which
// LATERAL uses.
func (g *queryGenerator) source(s *queryScope, depth int, left []queryColumn) (n *exprtest.Node, columns []queryColumn,
	rows float64, lateral bool) {
	if depth > 0 && g.budget > 0 && g.in(4) {
		around, text := s.outer, "(?) AS "
		if len(left) > 0 && g.in(2) {
			around, text, lateral = &queryScope{outer: s.outer, columns: left, plain: left}, "LATERAL (?) AS ", true
		}
		q := g.query(around, depth-1, nil)
		a, names := g.name("q"), q.names
		if g.in(4) {
			names = nil
			for range q.classes {
				names = append(names, g.name("y"))
			}
			text += a + "(" + strings.Join(names, ", ") + ")"
		} else {
			text += a
		}
		for i, c := range q.classes {
			columns = append(columns, queryColumn{a + "." + names[i], c})
		}
		return exprtest.New(sourceClass, text, q.node), columns, q.rows, lateral
	}
	if len(g.ctes) > 0 && g.in(2) {
		t, a := g.ctes[g.r.IntN(len(g.ctes))], g.name("c")
		for i, c := range t.classes {
			columns = append(columns, queryColumn{a + "." + t.names[i], c})
		}
		return exprtest.Leaf(sourceClass, t.name+" AS "+a), columns, t.rows, false
	}
	t, a := g.tables[g.r.IntN(len(g.tables))], g.name("a")
	return exprtest.Leaf(sourceClass, t.name+" "+a), columnsOf(a), float64(len(t.rows)), false
}

// from draws a FROM, whose columns it gives to the scope.
func (g *queryGenerator) from(s *queryScope, depth int) (n *exprtest.Node, rows float64) {
	n, columns, rows, _ := g.source(s, depth, nil)
	comma := false
	for range []int{0, 0, 1, 1, 2}[g.r.IntN(5)] {
		right, more, count, lateral := g.source(s, depth, columns)
		both := slices.Concat(columns, more)
		if rows*count > maxQueryRows || len(both) > 30 {
			break
		}
		kind := g.one("", "", "LEFT ", "LEFT ", "RIGHT ", "FULL ", "SEMI ", "ANTI ", "CROSS ", ",", "USING", "NATURAL",
			"ASOF")
		switch {
		case lateral:
			kind = g.one("", "LEFT ", "CROSS ", ",")
		case kind == "ASOF" && !(isTable(more) && len(of(columns, exprtest.Integer)) > 0):
			kind = ""
		case (kind == "USING" || kind == "NATURAL") && !(isTable(columns) && isTable(more)):
			kind = ""
		}
		if comma = comma || kind == ","; comma { // JOIN sees no table before the comma
			kind = ","
		}
		switch kind {
		case "CROSS ":
			n = exprtest.New(sourceClass, "? CROSS JOIN ?", n, right)
		case ",":
			n = exprtest.New(sourceClass, "?, ?", n, right)
		case "ASOF": // by the column id, which is unique. DuckDB 2.0.1 does not end some queries of other kinds.
			kind = g.one("", "LEFT ")
			on := g.column(of(columns, exprtest.Integer), exprtest.Integer).SQL() +
				g.one(" >= ", " > ", " <= ", " < ") +
				more[0].sql
			for _, c := range more[1:] {
				if x := of(columns, c.class); len(x) > 0 && g.in(8) {
					on += " AND " + g.column(x, c.class).SQL() + g.one(" = ", " IS NOT DISTINCT FROM ") + c.sql
				}
			}
			n = exprtest.New(sourceClass, "? ASOF "+kind+"JOIN ? ON "+on, n, right)
		case "NATURAL":
			n = exprtest.New(sourceClass, "? NATURAL JOIN ?", n, right)
			both = columns
		case "USING":
			var list []string
			for _, name := range []string{"id", "k", "k", "n", "s", "d", "p"} {
				if g.in(4) && !slices.Contains(list, name) {
					list = append(list, name)
				}
			}
			if len(list) == 0 {
				list = []string{"k"}
			}
			kind = g.one("", "", "LEFT ", "RIGHT ", "SEMI ", "ANTI ")
			n = exprtest.New(sourceClass, "? "+kind+"JOIN ? USING ("+strings.Join(list, ", ")+")", n, right)
			// The column of the side whose rows are all kept has the value.
			if kind == "RIGHT " {
				both = slices.Concat(without(columns, list), more)
			} else {
				both = slices.Concat(columns, without(more, list))
			}
		default:
			on := &queryScope{outer: s.outer, columns: both, plain: both}
			inside := 0
			if !lateral && (kind == "" || g.in(2)) { // DuckDB refuses them with LATERAL
				inside = min(depth, 1) // subqueries
			}
			condition := g.condition(on, inside)
			c := g.anyClass()
			if x, y := of(columns, c), of(more, c); len(x) > 0 && len(y) > 0 && !g.in(4) {
				pair := exprtest.New(exprtest.Bool, "(? "+g.one("=", "=", "=", "<", "IS NOT DISTINCT FROM", "<>")+" ?)",
					g.column(x, c), g.column(y, c))
				if condition = exprtest.New(exprtest.Bool, g.one("(? AND ?)", "(? OR ?)"), pair, condition); g.in(2) {
					condition = pair
				}
			}
			n = exprtest.New(sourceClass, "? "+kind+"JOIN ? ON ?", n, right, condition)
		}
		if kind == "SEMI " || kind == "ANTI " {
			both = columns
		} else {
			rows = max(rows, count, rows*count/2)
		}
		columns = both
	}
	s.columns, s.plain = columns, columns
	return n, rows
}

// isTable reports whether columns are those of one table.
func isTable(columns []queryColumn) bool {
	return len(columns) == len(queryTypes) && strings.HasSuffix(columns[0].sql, ".id")
}

// without leaves out columns by their names.
func without(columns []queryColumn, names []string) (out []queryColumn) {
	for _, c := range columns {
		if _, name, _ := strings.Cut(c.sql, "."); !slices.Contains(names, name) {
			out = append(out, c)
		}
	}
	return out
}

// The kinds of SELECT.
const (
	plainSelect = iota
	distinctSelect
	aggregatedSelect // one row
	groupedSelect
	windowSelect
	selects
)

// selectOf draws a SELECT of columns of some classes.
func (g *queryGenerator) selectOf(outer *queryScope, depth int, want []exprtest.Class, kind int) drawnQuery {
	g.budget--
	s := &queryScope{outer: outer}
	from, rows := g.from(s, depth)
	if kind == windowSelect && (len(s.columns) > 20 || rows > 200) {
		kind = plainSelect
	}
	var conditions []*exprtest.Node
	if n := g.correlation(s); n != nil && !g.in(3) {
		conditions = append(conditions, n)
	}
	if g.in(2) {
		conditions = append(conditions, g.condition(s, depth))
	}
	where := exprtest.Leaf(clauseClass, "")
	switch len(conditions) {
	case 1:
		where = exprtest.New(clauseClass, " WHERE ?", conditions[0])
	case 2:
		where = exprtest.New(clauseClass, " WHERE ? AND ?", conditions...)
	}
	distinct, tail := "", exprtest.Leaf(clauseClass, "")
	var items []*exprtest.Node
	out := drawnQuery{classes: want, rows: rows}
	switch kind {
	case plainSelect, distinctSelect:
		for _, c := range want {
			items = append(items, g.value(s, c, depth))
		}
		if kind == distinctSelect {
			distinct = "DISTINCT "
		}
	case aggregatedSelect:
		out.rows = 1
		after := &queryScope{outer: outer, columns: g.aggregates(s)}
		if len(want) == 1 && g.in(2) {
			items = append(items, g.column(after.columns, want[0]))
			break
		}
		for _, c := range want {
			items = append(items, g.value(after, c, depth))
		}
		if g.in(6) {
			tail = exprtest.New(clauseClass, " HAVING ?", g.condition(after, depth))
		}
	case groupedSelect:
		items, tail = g.grouped(s, depth, want)
	case windowSelect:
		functions := g.windows(s)
		for _, c := range want {
			if list := of(functions, c); len(list) > 0 && g.in(2) {
				items = append(items, exprtest.Leaf(c, list[g.r.IntN(len(list))].sql))
				continue
			}
			items = append(items, g.value(s, c, depth))
		}
		if g.in(2) {
			both := &queryScope{outer: outer, columns: slices.Concat(s.columns, functions, functions), plain: s.plain}
			tail = exprtest.New(clauseClass, " QUALIFY ?", g.condition(both, 0))
			if !strings.Contains(tail.SQL(), " OVER ") { // as DuckDB wants it
				tail = exprtest.New(clauseClass, " QUALIFY ("+functions[0].sql+" IS NOT NULL OR ?)",
					g.condition(both, 0))
			}
		}
	}
	text, args := "SELECT "+distinct, []*exprtest.Node{}
	for i, n := range items {
		out.names = append(out.names, g.name("x"))
		text += []string{"", ", "}[min(i, 1)] + "? AS " + out.names[i]
		args = append(args, n)
	}
	out.node = exprtest.New(queryClass, text+" FROM ???", append(args, from, where, tail)...)
	return out
}

// aggregates draws aggregates of the rows of a scope, some of each class.
func (g *queryGenerator) aggregates(s *queryScope) (out []queryColumn) {
	filter := func(sql string) string {
		if g.in(5) {
			// With outer columns only, the aggregate would be one of the query around.
			return sql + " FILTER (WHERE " + g.condition(&queryScope{columns: s.columns}, 0).SQL() + ")"
		}
		return sql
	}
	argument := func(c exprtest.Class) string {
		if list := of(s.columns, c); len(list) > 0 {
			return list[g.r.IntN(len(list))].sql
		}
		return ""
	}
	out = append(out, queryColumn{filter("count(*)"), exprtest.Integer})
	for _, c := range []exprtest.Class{exprtest.Integer, exprtest.Number, exprtest.Text, exprtest.Date, exprtest.Bool} {
		x := argument(c)
		if x == "" {
			continue
		}
		out = append(out, queryColumn{filter(g.one("min(", "max(", "min(DISTINCT ", "max(") + x + ")"), c},
			queryColumn{filter(g.one("count(", "count(DISTINCT ") + x + ")"), exprtest.Integer})
		switch {
		case c == exprtest.Integer:
			if o := g.around(s); len(of(o, c)) > 0 && g.in(5) {
				x = "(" + x + " + " + g.column(o, c).SQL() + ")"
			}
			out = append(out, queryColumn{filter(g.one("sum(", "sum(", "sum(DISTINCT ", "avg(") + x + ")"),
				exprtest.Number})
		case c == exprtest.Number:
			out = append(out, queryColumn{filter(g.one("sum(", "avg(") + x + ")"), exprtest.Number})
		case c == exprtest.Bool:
			out = append(out, queryColumn{filter(g.one("bool_and(", "bool_or(") + x + ")"), c})
		}
	}
	return out
}

// grouped draws a list of a SELECT with a group-by, and its GROUP BY and HAVING.
func (g *queryGenerator) grouped(s *queryScope, depth int, want []exprtest.Class) (items []*exprtest.Node,
	tail *exprtest.Node) {
	var keys []queryColumn
	for range 1 + g.r.IntN(3) {
		c := g.anyClass()
		n := g.column(s.columns, c)
		if list := of(s.columns, c); len(list) == 0 {
			continue
		} else if slices.ContainsFunc(keys, func(k queryColumn) bool { return k.sql == n.SQL() }) {
			continue
		}
		keys = append(keys, queryColumn{n.SQL(), c})
	}
	if len(keys) == 0 {
		keys = append(keys, s.columns[0])
	}
	var names []string
	for _, k := range keys {
		names = append(names, k.sql)
	}
	text := " GROUP BY " + strings.Join(names, ", ")
	after := &queryScope{outer: s.outer, columns: slices.Concat(keys, keys, g.aggregates(s)), plain: keys}
	if g.in(3) {
		sets, lists := drawSets(g.r, names)
		text = groupBy(sets, names, lists)
		after.columns = append(after.columns, queryColumn{drawGrouping(g.r, names), exprtest.Integer})
	}
	for _, c := range want {
		items = append(items, g.value(after, c, depth))
	}
	having := exprtest.Leaf(clauseClass, "")
	if g.in(3) {
		having = exprtest.New(clauseClass, " HAVING ?", g.condition(after, depth))
	}
	return items, exprtest.New(groupClass, text+"?", having)
}

// windows draws window functions, of which rows that are equal in all columns may exchange the values.
func (g *queryGenerator) windows(s *queryScope) (out []queryColumn) {
	column := func() queryColumn { return s.columns[g.r.IntN(len(s.columns))] }
	for range 1 + g.r.IntN(3) {
		over, frame := "", ""
		if g.in(2) {
			over = "PARTITION BY " + column().sql + " "
		}
		total := g.in(2)
		if total || g.in(2) {
			over += "ORDER BY " + column().sql + g.one("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
			if total {
				for _, c := range s.columns {
					over += ", " + c.sql
				}
				frame = g.one("", "", " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
					" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING", " ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING")
			} else {
				frame = g.one("", "", " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
					" GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW")
			}
			if frame != "" {
				frame += g.one("", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES")
			}
		}
		c := column()
		f := queryColumn{"count(*)", exprtest.Integer}
		ordered := strings.Contains(over, "ORDER")
		switch k := g.r.IntN(8); {
		case k == 0 && ordered:
			f.sql, frame = g.one("rank()", "dense_rank()"), ""
		case k == 1 && total:
			f.sql, frame = "row_number()", ""
		case k == 2 && total:
			f = queryColumn{g.one("lag(", "lead(") + c.sql + g.one(")", ", 2)"), c.class}
			frame = ""
		case k == 3 && total:
			f = queryColumn{g.one("first_value(", "last_value(") + c.sql + ")", c.class}
		case k <= 5:
			f = queryColumn{g.one("min(", "max(") + c.sql + ")", c.class}
		case k == 6 && c.class == exprtest.Integer:
			f = queryColumn{"sum(" + c.sql + ")", exprtest.Number}
		case k == 6:
			f = queryColumn{"count(" + c.sql + ")", exprtest.Integer}
		case k == 7 && !ordered && c.class == exprtest.Integer && g.in(2):
			f = queryColumn{g.one("median(", "sum(DISTINCT ") + c.sql + ")", exprtest.Number}
		case k == 7 && !ordered:
			f = queryColumn{"count(DISTINCT " + c.sql + ")", exprtest.Integer}
		}
		f.sql += " OVER (" + over + frame + ")"
		out = append(out, f)
	}
	return out
}

// query draws a query of columns of some classes, nil for any.
func (g *queryGenerator) query(outer *queryScope, depth int, want []exprtest.Class) drawnQuery {
	if want == nil {
		for range 1 + g.r.IntN(3) {
			want = append(want, g.anyClass())
		}
	}
	ctes := g.ctes
	defer func() { g.ctes = ctes }()
	var with []*exprtest.Node
	text, recursive := "", ""
	for depth > 0 && g.budget > 1 && g.in(5) && len(with) < 2 {
		t := tableOfCTE{name: g.name("w")}
		repeats, named := g.in(3), g.in(4)
		if repeats {
			t.drawnQuery = g.recursion(outer, t.name, depth-1)
			recursive = "RECURSIVE "
		} else {
			t.drawnQuery = g.query(outer, depth-1, nil)
		}
		q := t.drawnQuery
		text += []string{"", ", "}[min(len(with), 1)] + t.name
		if named && !repeats {
			t.names = nil
			for range q.classes {
				t.names = append(t.names, g.name("z"))
			}
		}
		if named || repeats {
			text += "(" + strings.Join(t.names, ", ") + ")"
		}
		text += " AS " + g.one("", "", "MATERIALIZED ", "NOT MATERIALIZED ") + "(?)"
		with = append(with, q.node)
		g.ctes = append(slices.Clone(g.ctes), t, t)
	}
	q := g.body(outer, depth, want)
	order, limit := "", ""
	if g.in(4) { // by all columns, so that only equal rows have no order
		at := g.r.Perm(len(want))
		for i, k := range at {
			order += []string{" ORDER BY ", ", "}[min(i, 1)] + fmt.Sprint(k+1) + g.one("", " DESC", " NULLS FIRST",
				" DESC NULLS LAST")
		}
		if g.in(2) {
			n := g.r.IntN(8)
			limit = fmt.Sprintf(" LIMIT %d", n) + g.one("", "", " OFFSET 1", " OFFSET 3")
			q.rows = min(q.rows, float64(n))
		}
	}
	if text == "" && order == "" {
		return q
	}
	if text != "" {
		text = "WITH " + recursive + text + " "
	}
	q.order = order + limit
	q.node = exprtest.New(queryClass, text+"???", append(with, q.node, exprtest.Leaf(clauseClass, order),
		exprtest.Leaf(clauseClass, limit))...)
	return q
}

// recursion draws the body of a recursive query. Its first column counts the iterations, of which there are three at
// most.
func (g *queryGenerator) recursion(outer *queryScope, name string, depth int) drawnQuery {
	anchor := g.query(outer, depth, nil)
	as := g.name("r")
	out := drawnQuery{classes: append([]exprtest.Class{exprtest.Integer}, anchor.classes...), rows: 3 * anchor.rows}
	s := &queryScope{outer: outer}
	for _, c := range out.classes {
		out.names = append(out.names, g.name("z"))
		s.columns = append(s.columns, queryColumn{as + "." + out.names[len(out.names)-1], c})
	}
	s.plain = s.columns
	ctes := g.ctes
	defer func() { g.ctes = ctes }()
	g.ctes = append(slices.Clone(g.ctes), tableOfCTE{name, out})
	from := exprtest.Leaf(clauseClass, "")
	if g.in(2) {
		n, columns, rows, lateral := g.source(s, 0, nil)
		if !lateral && anchor.rows*rows*rows <= maxQueryRows {
			s.columns = slices.Concat(s.columns, columns)
			s.plain = s.columns
			from = exprtest.New(clauseClass, g.one(" JOIN", " LEFT JOIN", " SEMI JOIN", " ANTI JOIN")+" ? ON ?", n,
				g.condition(s, 0))
			if strings.Contains(from.SQL(), "I JOIN") {
				s.columns = s.columns[:len(out.classes)]
				s.plain = s.columns
			}
			out.rows *= rows
		}
	}
	text, args := "SELECT 0, q.* FROM (?) AS q "+g.one("UNION ALL", "UNION")+" SELECT ? + 1",
		[]*exprtest.Node{anchor.node, exprtest.Leaf(exprtest.Integer, s.columns[0].sql)}
	for _, c := range anchor.classes {
		text += ", ?"
		args = append(args, g.value(s, c, depth))
	}
	out.node = exprtest.New(queryClass, text+" FROM "+name+" AS "+as+"? WHERE "+s.columns[0].sql+" < 2 AND ?",
		append(args, from, g.condition(s, depth))...)
	return out
}

// body draws a SELECT, VALUES or a set operation.
func (g *queryGenerator) body(outer *queryScope, depth int, want []exprtest.Class) drawnQuery {
	switch k := g.r.IntN(14); {
	case k <= 1 && depth > 0 && g.budget > 1:
		left, right := g.body(outer, depth-1, want), g.body(outer, depth-1, want)
		op := g.one("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
		left.node = exprtest.New(queryClass, "(?) "+op+" (?)", left.node, right.node)
		left.rows += right.rows
		return left
	case k == 2:
		var rows []string
		s := &queryScope{outer: outer}
		n := 1 + g.r.IntN(4)
		for range n {
			var row []string
			for _, c := range want {
				x := g.expressions(nil).Of(c, 0).SQL()
				if len(rows) > 0 && g.in(4) { // a column of nothing but NULL has a type of its own
					x = "NULL"
				} else if columns := of(g.around(s), c); len(columns) > 0 && g.in(5) {
					x = columns[0].sql
				}
				row = append(row, x)
			}
			rows = append(rows, "("+strings.Join(row, ", ")+")")
		}
		a := g.name("v")
		q := drawnQuery{classes: want, rows: float64(n)}
		for range want {
			q.names = append(q.names, g.name("x"))
		}
		q.node = exprtest.Leaf(queryClass, "SELECT * FROM (VALUES "+strings.Join(rows, ", ")+") AS "+a+"("+
			strings.Join(q.names, ", ")+")")
		return q
	}
	return g.selectOf(outer, depth, want, []int{plainSelect, plainSelect, plainSelect, distinctSelect,
		aggregatedSelect, groupedSelect, groupedSelect, windowSelect}[g.r.IntN(8)])
}

// sqlDuel compares queries with DuckDB.
type sqlDuel struct {
	pipelineDuel
	device   gpu.Device
	paths    map[string]string
	outcomes map[string]int
	refusals map[string][]uint64 // seeds
}

// outcome of a query, and what differs.
type outcome struct{ kind, text string }

func (o outcome) differs() bool { return strings.HasPrefix(o.kind, "differs") }

var (
	unusualCalls = regexp.MustCompile(`\b(try|hash|signbit)\(`)
	refusedTexts = regexp.MustCompile(`(line [0-9]+, )?column [0-9]+: |"[^"]*"|[0-9]+`)
	numberTypes  = regexp.MustCompile(`U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DOUBLE|FLOAT`)
	overflowText = regexp.MustCompile(`out of the range of|does not fit|is divided by zero`)
	// unboundByDuckDB are classes of errors of DuckDB about queries that it does not have, or that are none.
	unboundByDuckDB = []string{"BinderException", "NotImplementedException", "ParserException", "CatalogException",
		"InternalException", "FatalException"}
)

// compare runs a query on both sides. DuckDB also answers without its optimizer; a query for which its answers differ
// is skipped.
func (d *sqlDuel) compare(sql, order string, seed uint64) (o outcome) {
	defer func() {
		if v := recover(); v != nil {
			o = outcome{"differs: panic", fmt.Sprint(v)}
		}
	}()
	r := rand.New(rand.NewPCG(seed, 5))
	answers := d.duck.Ask(exprtest.Question{SQL: sql, Optimize: true}, exprtest.Question{SQL: sql})
	if slices.Contains(unboundByDuckDB, answers[0].Class) || slices.Contains(unboundByDuckDB, answers[1].Class) {
		return outcome{kind: "DuckDB refuses", text: answers[0].Error + answers[1].Error}
	}
	var out collected
	p, faults, err := checkedPlan(d.t.Context(), sql, d.paths, &out)
	switch {
	case faults != "":
		return outcome{"differs: faulty plan", faults}
	case err != nil:
		return outcome{"refused", refusedTexts.ReplaceAllString(strings.Split(err.Error(), "\n")[0], "")}
	}
	defer func() { require.NoError(d.t, p.Close()) }()
	dev := someHosts(d.t, r, 1+r.IntN(30))
	defer func() { require.NoError(d.t, dev.Close()) }()
	runs := []RunOptions{{Device: dev, Exchanges: someExchanges(r), Threads: 1 + r.IntN(3), SpillDir: d.t.TempDir(),
		SpillAlways: r.IntN(3) == 0}}
	if seed%uint64(gputest.ThinOr(d.t, 30)) == 0 {
		runs = append(runs, RunOptions{Device: d.device})
	}
	for _, opt := range runs {
		_, err := p.Run(d.t.Context(), opt)
		var found []outcome
		for _, a := range answers {
			var o outcome
			o.kind, o.text = answersDiffer(a, &out, err, order != "" && strings.HasSuffix(sql, order), nil)
			if o.kind == "" || knownDifference(o.kind, o.text) {
				found = nil
				break
			}
			found = append(found, o)
		}
		switch {
		case found == nil:
			continue
		case found[0].kind == "only DuckDB fails" && strings.Contains(found[0].text, "More than one row"):
			return outcome{kind: "only DuckDB computes a subquery for rows that another condition drops"}
		case found[0].kind == "only gstream fails" && overflowText.MatchString(found[0].text):
			return outcome{kind: "only gstream computes a value that fails and is not needed"}
		case found[0].kind == "type" && len(numberTypes.FindAllString(found[0].text, -1)) == 2:
			return outcome{"another type of numbers", found[0].text}
		}
		return outcome{"differs: " + found[0].kind, found[0].text}
	}
	if answers[0].Error != "" {
		return outcome{kind: "fails on both sides", text: answers[0].Error}
	}
	d.rows += len(out.rows)
	d.full += min(len(out.rows), 1)
	return outcome{kind: "equal"}
}

// sameAnswers reports whether two answers of DuckDB have the same rows in any order.
func sameAnswers(x, y exprtest.Answer) bool {
	types := make([]gpu.Type, len(x.Types))
	a, b := normalized(x.Rows, types), normalized(y.Rows, types)
	slices.SortFunc(a, slices.Compare)
	slices.SortFunc(b, slices.Compare)
	return slices.EqualFunc(a, b, slices.Equal)
}

// write makes the tables on both sides.
func (d *sqlDuel) write(tables []randomSource) {
	d.pipelineDuel.write(&randomCase{tables: tables})
	d.paths = map[string]string{}
	for _, t := range tables {
		d.paths[t.name] = d.path(t)
	}
}

// shrink searches for a smaller query and smaller tables that differ in the same way.
func (d *sqlDuel) shrink(q *exprtest.Node, tables []randomSource, o outcome, order string,
	seed uint64) (*exprtest.Node, []randomSource, outcome) {
	differs := func(n *exprtest.Node) bool {
		found := d.compare(n.SQL(), order, seed)
		if found.kind != o.kind || o.kind[9] == 'o' && form(found.text) != form(o.text) {
			return false
		}
		o = found
		return true
	}
	for range 4 {
		before := q.Size()
		if q = q.Shrink(shortest, differs); q.Size() == before {
			break
		}
	}
	for i := range tables {
		for n := len(tables[i].rows); n > 0; n /= 2 {
			for from := 0; from < len(tables[i].rows); {
				smaller := slices.Clone(tables)
				rows := slices.Clone(tables[i].rows)
				smaller[i].rows = slices.Delete(rows, from, min(from+n, len(rows)))
				d.write(smaller)
				if differs(q) {
					tables = smaller
				} else {
					from += n
				}
			}
		}
	}
	d.write(tables)
	return q, tables, o
}

// TestRandomQueriesGiveDuckDBsRows draws queries over tables with duplicates, nulls and without rows, and compares the
// types and rows of their results with DuckDB's. It shrinks queries that differ. A query that DuckDB or gstream refuses
// is counted.
//
//	GSTREAM_PYTHON=… GSTREAM_CASES=1000 go test ./pipeline -run RandomQueriesGiveDuckDBs
//
// runs more of them. GSTREAM_SEED=17 GSTREAM_CASES=1 runs one again.
func TestRandomQueriesGiveDuckDBsRows(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	t.Parallel()
	d := &sqlDuel{pipelineDuel: pipelineDuel{t: t, duck: exprtest.StartDuckDB(t), dir: t.TempDir()},
		device:   cudatest.Open(t, cuda.Options{Memory: 64 << 20}),
		outcomes: map[string]int{}, refusals: map[string][]uint64{}}
	first, cases := gputest.SeedOr(t, 1), gputest.Cases(t, 150)
	var tables []randomSource
	last := uint64(0)
	for seed := first; seed < first+uint64(cases); seed++ {
		if group := seed/8 + 1; group != last { // several queries for each set of tables
			tables = drawQueryTables(rand.New(rand.NewPCG(group, 3)))
			d.write(tables)
			last = group
		}
		r := rand.New(rand.NewPCG(seed, 7))
		g := &queryGenerator{r: r, tables: tables, budget: 1 + r.IntN(8)}
		q := g.query(nil, 1+r.IntN(3), nil)
		o := d.compare(q.node.SQL(), q.order, seed)
		d.outcomes[o.kind]++
		switch {
		case o.differs():
			n, small, o := d.shrink(q.node, tables, o, q.order, seed)
			t.Errorf("GSTREAM_SEED=%d: %s: %s\n%s%s", seed, o.kind, o.text, tablesText(n.SQL(), small), n.SQL())
			last = 0
		case o.kind != "equal":
			o.text, _, _ = strings.Cut(o.text, "\n")
			text := o.kind + ": " + o.text
			d.refusals[text] = append(d.refusals[text], seed)
		}
	}
	t.Logf("%d rows of %d results compared: %v", d.rows, d.full, d.outcomes)
	for _, text := range slices.Sorted(maps.Keys(d.refusals)) {
		t.Logf("%d, first GSTREAM_SEED=%d: %s", len(d.refusals[text]), d.refusals[text][0], text)
	}
	require.LessOrEqual(t, d.outcomes["refused"]*8, cases, "too many queries are refused")
}

// TestRandomConditionsPartitionRows draws conditions, also with subqueries: the rows for which a condition is true,
// false or null are all rows (ternary logic partitioning). The answers need no other engine; DuckDB writes some tables.
func TestRandomConditionsPartitionRows(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	t.Parallel()
	d := &sqlDuel{pipelineDuel: pipelineDuel{t: t, duck: exprtest.StartDuckDB(t), dir: t.TempDir()}}
	first, cases := gputest.SeedOr(t, 1), gputest.Cases(t, 60)
	var tables []randomSource
	last, failed, rows := uint64(0), 0, 0
	for seed := first; seed < first+uint64(cases); seed++ {
		if group := seed/8 + 1; group != last {
			tables = drawQueryTables(rand.New(rand.NewPCG(group, 3)))
			d.write(tables)
			last = group
		}
		r := rand.New(rand.NewPCG(seed, 9))
		g := &queryGenerator{r: r, tables: tables, budget: 1 + r.IntN(6)}
		s := &queryScope{}
		n, _ := g.from(s, 1+r.IntN(2))
		c := g.condition(s, 1+r.IntN(3)).SQL()
		var list []string
		for i, x := range s.columns {
			list = append(list, fmt.Sprintf("%s AS x%d", x.sql, i))
		}
		all := "SELECT " + strings.Join(list, ", ") + " FROM " + n.SQL()
		parts := fmt.Sprintf("%[1]s WHERE (%[2]s) UNION ALL %[1]s WHERE NOT (%[2]s) UNION ALL "+
			"%[1]s WHERE (%[2]s) IS NULL", all, c)
		want, err := d.rowsOf(all, seed)
		if err == nil {
			var got collected
			if got, err = d.rowsOf(parts, seed); err == nil {
				rows += len(got.rows)
				sameRows(t, fmt.Sprintf("GSTREAM_SEED=%d: %s", seed, parts), want.rows, &got)
			}
		}
		if err != nil { // such as a subquery with two rows
			failed++
			require.NotContains(t, err.Error(), "internal error", "GSTREAM_SEED=%d: %s", seed, parts)
		}
	}
	t.Logf("%d rows; %d of %d queries failed", rows, failed, cases)
	require.Less(t, failed*5, cases)
}

// rowsOf runs a query on the CPU.
func (d *sqlDuel) rowsOf(sql string, seed uint64) (out collected, err error) {
	p, faults, err := checkedPlan(d.t.Context(), sql, d.paths, &out)
	if err != nil {
		return out, err
	}
	require.Empty(d.t, faults, sql)
	defer func() { require.NoError(d.t, p.Close()) }()
	r := rand.New(rand.NewPCG(seed, 5))
	dev, err := host.Open(host.Options{Threads: 1 + r.IntN(3), Memory: 1 << 28})
	require.NoError(d.t, err)
	defer func() { require.NoError(d.t, dev.Close()) }()
	_, err = p.Run(d.t.Context(), RunOptions{Device: smallStrides{dev, 1 + r.IntN(30)}, SpillDir: d.t.TempDir(),
		SpillAlways: r.IntN(3) == 0})
	return out, err
}

// tablesText lists the columns of tables that a query uses.
func tablesText(sql string, tables []randomSource) string {
	var b strings.Builder
	for _, t := range tables {
		if !strings.Contains(sql, t.name) {
			continue
		}
		fmt.Fprintf(&b, "%s (by DuckDB: %t):", t.name, t.byDuckDB)
		for i, f := range t.schema.Fields {
			if !regexp.MustCompile(`\b` + f.Name + `\b`).MatchString(sql) {
				continue
			}
			fmt.Fprintf(&b, " %s %v [", f.Name, f.Type)
			for _, row := range t.rows {
				fmt.Fprintf(&b, " %v", row[i])
			}
			b.WriteString(" ]")
		}
		fmt.Fprintf(&b, " %d rows\n", len(t.rows))
	}
	return b.String()
}
