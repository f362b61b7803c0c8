package exprtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// NestedColumns are the columns of the table over which Nested draws expressions, with their types.
var NestedColumns = []string{"i INTEGER", "j INTEGER", "o BOOLEAN", "f DOUBLE", "s VARCHAR", "l INTEGER[]",
	"k INTEGER[]",
	"ls VARCHAR[]", "ll INTEGER[][]", "lf DOUBLE[]", "r STRUCT(a INTEGER, b VARCHAR[])", "m MAP(VARCHAR, INTEGER)"}

// NestedRows are the values of these columns, as SQL.
var NestedRows = [][]string{
	{"1", "-3", "true", "0.5", "'a b'", "[3, 1, NULL, 3]", "[1, 2]", "['x', 'a,b', NULL]", "[[1], [2, 3], NULL]",
		"[0.5, -0.0, 'nan'::DOUBLE]", "{'a': 1, 'b': ['q']}", "MAP {'x': 1, 'k': NULL}"},
	{"NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL"},
	{"0", "7", "false", "-0.0", "''", "[]", "[NULL]", "[]", "[]", "[]", "{'a': NULL, 'b': NULL}", "MAP {}"},
	{"5", "2", "true", "1e10", "'it''s, é'", "[5, -7, 12, 0, 5, 9]", "[5, 5]", "['', 'it''s', 'é', 'x']",
		"[[], [NULL], [4]]",
		"[1.5, 1.5, NULL, 0.0]", "{'a': 9, 'b': ['', NULL]}", "MAP {'é': 3, 'x': -2}"},
	{"-2", "4", "NULL", "2.25", "'x'", "[NULL, NULL]", "[]", "[NULL]", "[[7, 7]]", "[-1.0]", "{'a': 0, 'b': []}",
		"MAP {'': 0}"},
	{"3", "0", "false", "-1.5", "'NULL'", "[2]", "[3, 1, 2]", "['NULL', ' y ', '[z]']", "[NULL]", "[NULL]",
		"{'a': -4, 'b': ['x']}",
		"MAP {'x': 0}"},
}

// NestedTable returns the table over which Nested draws expressions.
func NestedTable(t testing.TB, fold expr.Fold) *Table {
	out := &Table{Schema: &gpu.Schema{}, Rows: len(NestedRows)}
	for c, text := range NestedColumns {
		name, typeName, _ := strings.Cut(text, " ")
		typ, err := syntax.ParseType(typeName)
		require.NoError(t, err)
		values := make([]gpu.Scalar, out.Rows)
		for i, row := range NestedRows {
			n, err := syntax.Parse("CAST(" + row[c] + " AS " + typeName + ")")
			require.NoError(t, err)
			e, err := expr.Bind(n, &expr.Scope{Schema: &gpu.Schema{}, Fold: fold})
			require.NoError(t, err, row[c])
			v, ok := e.Constant()
			require.True(t, ok, row[c])
			values[i] = v
		}
		out.Schema.Fields = append(out.Schema.Fields, gpu.Field{Name: name, Type: typ, Nullable: true})
		out.Values = append(out.Values, values)
	}
	return out
}

// Nested draws expressions over lists, structs and maps, with lambdas. It avoids operations that fail.
type Nested struct {
	r     *rand.Rand
	names map[string][]string // columns and parameters by type
	depth int                 // of lambdas
}

// The types of expressions of Nested.
const (
	integer = "INTEGER"
	truth   = "BOOLEAN"
	float   = "DOUBLE"
	varchar = "VARCHAR"
	ints    = "INTEGER[]"
	strs    = "VARCHAR[]"
	lists   = "INTEGER[][]"
	floats  = "DOUBLE[]"
	record  = "STRUCT(a INTEGER, b VARCHAR[])"
	entries = "MAP(VARCHAR, INTEGER)"
)

var nestedTypes = []string{integer, truth, float, varchar, ints, strs, lists, floats, record, entries}

// NewNested returns a source of expressions.
func NewNested(r *rand.Rand) *Nested {
	g := &Nested{r: r, names: map[string][]string{}}
	for _, c := range NestedColumns {
		name, t, _ := strings.Cut(c, " ")
		g.names[t] = append(g.names[t], name)
	}
	return g
}

// Any returns an expression of any type.
func (g *Nested) Any(depth int) string { return g.of(nestedTypes[g.r.IntN(len(nestedTypes))], depth) }

// Condition returns an expression that is a condition.
func (g *Nested) Condition(depth int) string { return g.of(truth, depth) }

// of returns an expression of a type.
func (g *Nested) of(t string, depth int) string {
	if depth <= 0 || g.r.IntN(8) == 0 {
		return g.leaf(t)
	}
	list := t + "[]"
	k := g.r.IntN(16)
	switch {
	case k == 0:
		return plain("CASE WHEN % THEN % ELSE % END", truth, t, t)(g, depth)
	case k == 1:
		return plain("coalesce(%, %)", t, t)(g, depth)
	case k == 2 && nestedForms[list] != nil:
		return plain("%[%]", list, integer)(g, depth)
	case k == 3 && nestedForms[list] != nil:
		return around("%[1]", over("list_filter", list, truth))(g, depth)
	}
	forms := nestedForms[t]
	return forms[g.r.IntN(len(forms))](g, depth)
}

func (g *Nested) leaf(t string) string {
	if names := g.names[t]; g.r.IntN(6) > 0 {
		return names[len(names)-1-g.r.IntN(1+g.r.IntN(len(names)))] // the inner parameters more often
	}
	literals := nestedLiterals[t]
	return literals[g.r.IntN(len(literals))]
}

var nestedLiterals = map[string][]string{
	integer: {"0", "1", "2", "-1", "5"},
	truth:   {"true", "false"},
	float:   {"0.5::DOUBLE", "-0.0::DOUBLE", "2.0::DOUBLE"},
	varchar: {"'x'", "''", "'b c'", "'NULL'"},
	ints:    {"[1, 2, NULL]", "[3]", "([]::INTEGER[])"},
	strs:    {"['x', NULL, 'y']", "['']", "([]::VARCHAR[])"},
	lists:   {"[[1, 2], [NULL]]", "([]::INTEGER[][])"},
	floats:  {"[0.5::DOUBLE, NULL]"},
	record:  {"{'a': 1, 'b': ['x']}"},
	entries: {"MAP {'x': 1}", "MAP {'k': NULL, 'q': 2}"},
}

// form draws an expression of a form.
type form func(g *Nested, depth int) string

// plain is a text in which each % is an expression of a type.
func plain(text string, types ...string) form {
	return func(g *Nested, depth int) string {
		out := text
		for _, t := range types {
			before, after, _ := strings.Cut(out, "%")
			out = before + strings.ReplaceAll(g.of(t, depth-1), "%", "\x00") + after
		}
		return strings.ReplaceAll(strings.ReplaceAll(out, "mod", "%"), "\x00", "%")
	}
}

// around is a text in which % is another form.
func around(text string, f form) form {
	return func(g *Nested, depth int) string { return strings.Replace(text, "%", f(g, depth), 1) }
}

// with returns an expression of a type with more names.
func (g *Nested) with(names, types []string, t string, depth int) string {
	for i, name := range names {
		g.names[types[i]] = append(g.names[types[i]], name)
	}
	out := g.of(t, depth)
	for _, t := range types {
		g.names[t] = g.names[t][:len(g.names[t])-1]
	}
	return out
}

// over is a function of a list and a lambda.
func over(function, list, body string) form {
	return func(g *Nested, depth int) string {
		of := g.of(list, depth-1)
		g.depth++
		p, q := fmt.Sprint("p", g.depth), fmt.Sprint("q", g.depth)
		params, names, types := p, []string{p}, []string{strings.TrimSuffix(list, "[]")}
		if g.r.IntN(3) == 0 {
			params += ", " + q
			names, types = append(names, q+"::INTEGER"), append(types, integer)
		}
		x := g.with(names, types, body, depth-1)
		g.depth--
		return fmt.Sprintf("%s(%s, lambda %s: %s)", function, of, params, x)
	}
}

// reduced is list_reduce of a list with a start; in the body % is an expression of the type of the result.
func reduced(list, t, body string) form {
	return func(g *Nested, depth int) string {
		of, start := g.of(list, depth-1), g.of(t, depth-1)
		g.depth++
		a, p := fmt.Sprint("a", g.depth), fmt.Sprint("p", g.depth)
		x := g.with([]string{a, p}, []string{t, strings.TrimSuffix(list, "[]")}, t, depth-1)
		g.depth--
		return fmt.Sprintf("list_reduce(%s, lambda %s, %s: %s, %s)", of, a, p, strings.Replace(body, "%", x, 1), start)
	}
}

// comprehension is a list comprehension.
func comprehension(list, t string) form {
	return func(g *Nested, depth int) string {
		of := g.of(list, depth-1)
		g.depth++
		p := fmt.Sprint("p", g.depth)
		types := []string{strings.TrimSuffix(list, "[]")}
		x, condition := g.with([]string{p}, types, t, depth-1), g.with([]string{p}, types, truth, depth-1)
		g.depth--
		return fmt.Sprintf("[%s FOR %s IN %s IF %s]", x, p, of, condition)
	}
}

// nestedForms are the forms of expressions of each type. init fills the map to avoid an initialization cycle.
var nestedForms map[string][]form

func init() {
	nestedForms = map[string][]form{
		integer: {plain("(% + %)", integer, integer), plain("(% * % mod 97)", integer, integer),
			plain("len(%)::INTEGER", ints), plain("%[%]", ints, integer), plain("len(%)::INTEGER", varchar),
			plain("list_position(%, %)", ints, integer), plain("%.a", record), plain("%[%]", entries, varchar),
			plain("list_min(%)", ints), plain("list_max(%)", ints), plain("list_first(%)", ints),
			plain("list_last(%)", ints), plain("list_any_value(%)", ints), plain("list_count(%)::INTEGER", strs),
			plain("(list_sum(%) mod 97)::INTEGER", ints), plain("list_unique(%)::INTEGER", strs),
			plain("list_unique(%)::INTEGER", floats), plain("list_bit_xor(%)", ints),
			plain("cardinality(%)::INTEGER", entries), plain("list_aggregate(%, 'quantile_disc', 0.25)", ints),
			reduced(ints, integer, "(%) % 97"), around("len(%)::INTEGER", over("list_filter", lists, truth))},
		truth: {plain("(% > %)", integer, integer), plain("(% = %)", varchar, varchar), plain("(% = %)", ints, ints),
			plain("(% < %)", strs, strs), plain("(% <= %)", floats, floats), plain("(% IS NULL)", integer),
			plain("(% IS NOT DISTINCT FROM %)", lists, lists), plain("(% IS NOT NULL)", ints),
			plain("list_contains(%, %)", ints, integer), plain("list_contains(%, %)", floats, float),
			plain("list_has_any(%, %)", ints, ints), plain("list_has_all(%, %)", strs, strs), plain("(NOT %)", truth),
			plain("(% AND %)", truth, truth), plain("(% OR %)", truth, truth), plain("(% = %)", record, record),
			plain("map_contains(%, %)", entries, varchar),
			around("list_bool_and(%)", over("list_transform", ints, truth)),
			around("list_bool_or(%)", over("list_transform", strs, truth))},
		float: {plain("list_avg(%)", ints), plain("list_median(%)", ints), plain("list_max(%)", floats),
			plain("list_min(%)", floats), plain("%[%]", floats, integer), plain("%::DOUBLE", integer),
			plain("round(list_stddev_pop(%), 6)", ints),
			around("round(list_var_samp(%::DOUBLE[]), 6)", over("list_transform", ints, integer))},
		varchar: {plain("upper(%)", varchar), plain("substring(% || %, 1, 9)", varchar, varchar),
			plain("%[%]", strs, integer), plain("%::VARCHAR", integer), plain("substring(%::VARCHAR, 1, 9)", ints),
			plain("substring(%::VARCHAR, 1, 9)", strs), plain("substring(%::VARCHAR, 1, 30)", record),
			plain("substring(%::VARCHAR, 1, 30)", entries), plain("substring(array_to_string(%, '-'), 1, 9)", strs),
			plain("list_max(%)", strs), reduced(strs, varchar, "substring(%, 1, 9)"),
			around("substring(list_aggregate(%, 'string_agg', ';'), 1, 9)", over("list_transform", ints, varchar))},
		ints: {plain("[%, %, NULL]", integer, integer), over("list_transform", ints, integer),
			over("list_transform", strs, integer), over("list_transform", lists, integer),
			over("list_filter", ints, truth), plain("list_concat(%, %)", ints, ints), plain("(% || %)", ints, ints),
			plain("list_sort(%)", ints), plain("list_sort(%, 'DESC', 'NULLS FIRST')", ints),
			plain("list_reverse_sort(%)", ints), plain("list_reverse(%)", ints),
			plain("list_sort(list_distinct(%))", ints), plain("list_sort(list_intersect(%, %))", ints, ints),
			plain("%[%:%]", ints, integer, integer), plain("%[1:-1:2]", ints), plain("%[:-:-1]", ints),
			plain("list_append(%, %)", ints, integer), plain("list_prepend(%, %)", integer, ints),
			plain("flatten(%)", lists), plain("map_values(%)", entries), comprehension(ints, integer),
			comprehension(strs, integer), reduced(lists, ints, "(%)[1:5]"),
			plain("(list_grade_up(%)::INTEGER[])", ints)},
		strs: {plain("[%, NULL, %]", varchar, varchar), plain("string_split(%, %)", varchar, varchar),
			plain("string_split(%, ' ')", varchar), over("list_transform", strs, varchar),
			over("list_transform", ints, varchar), over("list_filter", strs, truth), plain("list_sort(%)", strs),
			plain("map_keys(%)", entries), plain("list_concat(%, %)", strs, strs), plain("(%::VARCHAR[])", ints),
			plain("list_sort(list_distinct(%))", strs), plain("%::VARCHAR[]", lists), plain("%.b", record),
			plain("%[2:]", strs), plain("list_reverse(%)", strs), plain("string_split_regex(%, '[ ,]+')", varchar)},
		lists: {plain("[%, %]", ints, ints), over("list_transform", ints, ints), over("list_transform", lists, ints),
			over("list_filter", lists, truth), plain("list_sort(%)", lists), plain("list_sort(list_distinct(%))",
				lists),
			plain("list_concat(%, [%])", lists, ints), comprehension(ints, ints)},
		floats: {plain("[%, NULL]", float), over("list_transform", ints, float), plain("list_sort(%)", floats),
			over("list_filter", floats, truth), plain("%::DOUBLE[]", ints), plain("list_sort(%, 'DESC')", floats)},
		record: {plain("{'a': %, 'b': %}", integer, strs), plain("struct_update(%, a := %)", record, integer),
			plain("{'b': %, 'a': %}::STRUCT(a INTEGER, b VARCHAR[])", strs, truth)},
		entries: {plain("MAP {'x': %, 'k': %}", integer, integer), plain("map_concat(%, %)", entries, entries),
			plain("map_from_entries(list_transform(list_sort(list_distinct(%)), lambda t: {'k': t, 'v': len(t) + %}))",
				strs, integer)},
	}
}
