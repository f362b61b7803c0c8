package expr_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
)

func money(lo, hi int64) *expr.Range {
	return &expr.Range{Lo: gpu.Int128From(lo), Hi: gpu.Int128From(hi)}
}

func TestDecimalsAreNarrowWhereRangesProveIt(t *testing.T) {
	wideMoney := gpu.DecimalOf(38, 2)
	narrow := wideMoney
	narrow.Wide = false
	s := gpu.NewSchema(gpu.Field{Name: "p", Type: gpu.DecimalOf(15, 2)}, gpu.Field{Name: "n", Type: narrow},
		gpu.Field{Name: "w", Type: wideMoney}, gpu.Field{Name: "b", Type: gpu.Of(gpu.Int64)})
	known := []*expr.Range{money(0, 10_000_000), money(0, 1_000_000), money(0, 1_000_000), money(0, 100)}
	for _, c := range []struct {
		src    string
		ranges []*expr.Range
		wide   bool
	}{
		{"p * (1 - p)", nil, false}, // DECIMAL(18,4)
		{"p * b", known, false},
		{"p * b", nil, true},
		{"n * n", known, false},
		{"n + n", known, false},
		{"n * n", nil, true},
		{"w * 2", known, true},
		{"n::decimal(38,4)", known, false},
		{"case when b > 1 then n else 0 end", known, false},
		{"case when b > 1 then n else w end", known, true},
	} {
		e, err := bind(c.src, &expr.Scope{Schema: s, Range: expr.RangeOf(c.ranges)})
		require.NoError(t, err)
		assert.Equal(t, c.wide, e.Type().Wide, "%s as %v", c.src, e.Type())
	}
}

// TestATextAmongBranchesDoesNotHideALiteralsType binds branches in which a text literal comes before
// a number that does not fit the column after it. The types are DuckDB's.
func TestATextAmongBranchesDoesNotHideALiteralsType(t *testing.T) {
	s := gpu.NewSchema(gpu.Field{Name: "j", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "i", Type: gpu.Of(gpu.Int32)},
		gpu.Field{Name: "d", Type: gpu.DecimalOf(9, 2)})
	for src, want := range map[string]string{
		"case when i = 1 then 99999999999999999999999999999999999999 when i = 2 then j else '2.5' end": "HUGEINT",
		"case when i = 1 then 18446744073709551615 when i = 2 then d else '7' end":                     "DECIMAL(38,2)",
		"case when i = 1 then 3000000000 when i = 2 then i else '7' end":                               "BIGINT",
		"coalesce('7', 3000000000, i)":        "BIGINT",
		"greatest('7', 1.5, i)":               "DECIMAL(11,1)",
		"if(i = 1, '7', 3)":                   "INTEGER",
		"case when i = 1 then '7' else i end": "INTEGER",
		"round(i::uinteger, 1)":               "BIGINT",
		"round(i::uinteger, i)":               "BIGINT",
		"round(i::ubigint, i)":                "HUGEINT",
		"trunc(i::utinyint, i)":               "UTINYINT",
	} {
		e, err := bind(src, &expr.Scope{Schema: s, Fold: host.Fold})
		require.NoError(t, err, src)
		assert.Equal(t, want, e.Type().String(), src)
	}
}

func TestTheRangeOfARemainder(t *testing.T) {
	s := gpu.NewSchema(gpu.Field{Name: "x", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "u", Type: gpu.Of(gpu.Uint32)},
		gpu.Field{Name: "y", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "d", Type: gpu.DecimalOf(9, 2)})
	known := []*expr.Range{nil, nil, money(-7, 3), nil}
	for src, want := range map[string]*expr.Range{
		"x % 10": money(-9, 9), "x % -10": money(-9, 9), "u % 10": money(0, 9), "y % 10": money(-7, 3),
		"x % y": money(-6, 6), "y % y": money(-6, 3),
		"x % 1": money(0, 0), "x % 0": money(0, 0), "d % 1.5": money(-149, 149), "mod(x, 3)": money(-2, 2),
	} {
		e, err := bind(src, &expr.Scope{Schema: s, Range: expr.RangeOf(known)})
		require.NoError(t, err)
		assert.Equal(t, want, e.Range(), src)
	}
}

func TestStatisticsThatLieAreAnErrorNotAWrongNumber(t *testing.T) {
	tab := newTable(t, []string{"p decimal(15,2)", "1", "9999999999999.99"},
		[]string{"b bigint", "2", "9223372036854775807"})
	ranges := []*expr.Range{money(0, 100), money(0, 100)}
	for src, want := range map[string][]string{
		"p * b":          {"in (p * CAST(b AS DECIMAL(19,0))): ", "9999999999999.99", "statistics"},
		"b::tinyint + 1": {"in CAST(b AS TINYINT): ", "9223372036854775807 does not fit TINYINT"},
	} {
		e, err := bind(src, &expr.Scope{Schema: tab.schema, Range: expr.RangeOf(ranges)})
		require.NoError(t, err)
		require.False(t, e.Type().Wide)
		_, err = evaluate(t, tab.schema, tab.cols, tab.rows, e)
		for _, w := range want {
			require.ErrorContains(t, err, w)
		}
	}
}

// TestAnIndexFindsTheSameNames looks names up with and without an index. Kelvin and long s equal letters of ASCII but
// for their case, and a dotted capital I does not.
func TestAnIndexFindsTheSameNames(t *testing.T) {
	names := []string{"a", "A", "ab", "aB", "aB", "k", "\u212a", "s", "\u017f", "i", "I", "\u0130", "\u0131", "ß", "ẞ",
		"θ", "ϴ", "\xff", "\ufffd", ""}
	fields := make([]gpu.Field, len(names))
	for i, name := range names {
		fields[i] = gpu.Field{Name: name, Type: gpu.Of(gpu.Int64)}
	}
	plain := &expr.Scope{Schema: gpu.NewSchema(fields...)}
	indexed := *plain
	indexed.Names = &expr.NameIndex{}
	for range 3 {
		for _, name := range append(names, "AB", "Ab", "K", "S", "ϑ", "x") {
			assert.Equal(t, plain.Named(name), indexed.Named(name), "%q", name)
		}
	}
	other := indexed
	other.Schema = gpu.NewSchema(append(fields, gpu.Field{Name: "x"})...)
	assert.Equal(t, []int{len(names)}, other.Named("x"))
	assert.Empty(t, indexed.Named("x"))
}

// TestCastsOfIntegersFoldLikePrograms folds literals at the ends of each type.
func TestCastsOfIntegersFoldLikePrograms(t *testing.T) {
	programs := 0
	fold := func(p *gpu.Program) ([]gpu.Scalar, error) {
		programs++
		return host.Fold(p)
	}
	values := []string{"-128", "127", "128", "255", "256", "-32768", "65535", "2147483647", "4294967295",
		"9223372036854775807", "-9223372036854775808", "18446744073709551615",
		"170141183460469231731687303715884105727"}
	for _, name := range []string{"TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER", "BIGINT",
		"UBIGINT", "HUGEINT"} {
		for _, v := range values {
			src := fmt.Sprintf("CAST(%s AS %s)", v, name)
			n, err := syntax.Parse(src)
			require.NoError(t, err)
			lazy, err := expr.Bind(n, &expr.Scope{Schema: &gpu.Schema{}})
			require.NoError(t, err)
			program, _, err := expr.Compile(&gpu.Schema{}, lazy)
			require.NoError(t, err)
			want, failed := host.Fold(program)
			before := programs
			e, err := expr.Bind(n, &expr.Scope{Schema: &gpu.Schema{}, Fold: fold})
			if failed != nil {
				require.ErrorContains(t, err, "does not fit "+name, src)
				continue
			}
			require.NoError(t, err, src)
			got, constant := e.Constant()
			require.True(t, constant, src)
			require.Equal(t, want[0], got, src)
			require.Equal(t, before, programs, "%s needs no program", src)
		}
	}
}

func TestANameThatIsNotFoundIsPartOfTheError(t *testing.T) {
	s := &expr.Scope{Schema: gpu.NewSchema(gpu.Field{Name: "a", Type: gpu.Of(gpu.Int64)}),
		Qualifiers: []*expr.Tables{expr.TablesOf("t")}}
	for src, want := range map[string]*syntax.Missing{
		"a + b":         {Name: []string{"b"}},
		"t.b":           {Name: []string{"t", "b"}},
		`"x.y"."z ""b"`: {Name: []string{"x.y", `z "b`}, NoTable: true},
		"lower(a)":      nil,
		"a +":           nil,
	} {
		_, err := bind(src, s)
		var mistake *syntax.Error
		require.ErrorAs(t, err, &mistake, src)
		require.Equal(t, want, mistake.Missing, src)
	}
}

func TestErrorsPointAtTheMistakeAndSayWhatWasExpected(t *testing.T) {
	s := &expr.Scope{Schema: duckTable(t).schema, Qualifiers: make([]*expr.Tables, 21)}
	for i := range s.Qualifiers {
		s.Qualifiers[i] = expr.TablesOf("orders")
	}
	for src, want := range map[string]string{
		"": "line 1, column 1: found the end of the expression, expected a column, a " +
			"value or a function",
		"i32 +":                          "line 1, column 6: found the end of the expression",
		"i32 i64":                        "line 1, column 5: found \"i64\", expected an operator or the end",
		"1 = 1 = true":                   "comparisons cannot be chained",
		"i23 + 1":                        "line 1, column 1: there is no column \"i23\"; did you mean \"i32\"?",
		"i32 +\n  zzzzzz":                "line 2, column 3: there is no column",
		"oders.i32":                      "there is no table \"oders\"; did you mean \"orders\"?",
		"orders.i23":                     "table \"orders\" has no column \"i23\"; did you mean",
		"uper(s)":                        "there is no function \"uper\"; did you mean \"upper\"?",
		"lower()":                        "lower takes 1 argument, found 0",
		"lower(i32)":                     "lower needs text (VARCHAR), found INTEGER",
		"i32 + s":                        "no operator + for INTEGER and VARCHAR",
		"s < 1":                          "cannot compare VARCHAR with INTEGER",
		"bo + 1":                         "no operator + for BOOLEAN and INTEGER",
		"dt and bo":                      "AND needs a condition (BOOLEAN), found DATE",
		"not dt":                         "NOT needs a condition",
		"case when dt then 1 end":        "WHEN needs a condition",
		"case when bo then 1 else s end": "the branches of CASE must have one type",
		"i32::intt":                      "unknown type \"intt\"; did you mean",
		"i32::decimal(39,2)":             "between 1 and 38, is 39",
		"i32::decimal(3,4)":              "at most its precision",
		"dt::integer":                    "cannot cast DATE to INTEGER",
		"'abc'::integer":                 "cannot read \"abc\" as INTEGER",
		"dt > 'tomorrow'":                "cannot read \"tomorrow\" as DATE, expected YYYY-MM-DD",
		"dt + i64":                       "no operator + for DATE and BIGINT",
		"sum(ts - ts)":                   "the aggregate sum is not allowed here",
		"s::timetz":                      "there is no TIME WITH TIME ZONE",
		"s::time with time zone":         "a time of day is a TIME",
		"'1 day, 2 hours'::interval":     "found \"day,\" in an interval",
		"i32::interval":                  "cannot cast INTEGER to INTERVAL",
		"dt + interval 'x' year":         "expected a number and a unit",
		"dt + interval '1 yeer'":         "expected a unit",
		"datediff('day', null, null)":    "datediff needs two dates, timestamps or times",
		"datesub('day', '2020-01-01', '2020-02-01')": "datesub needs two dates, timestamps or times, found VARCHAR",
		"dt + to_seconds(1e300)":                     "the DOUBLE 1e+306 does not fit BIGINT",
		"dt + interval 1e300 second":                 "the DOUBLE 1e+306 does not fit BIGINT",
		"extract(yeer from dt)":                      "unknown part of a date \"yeer\"; did you mean \"year\"?",
		"s like i32":                                 "LIKE needs text",
		"s like 'a$' escape '$'":                     "must not end with its escape",
		"sum(i32) + 1":                               "the aggregate sum is not allowed here",
		"2147483647 + 1":                             "out of the range of INTEGER",
		"'abc":                                       "a quote is not closed",
		"i32 in ()":                                  "found \")\", expected a column",
		"i32 between 1":                              "expected AND",
		"€ + 1":                                      "unexpected character '€'",
		"1e999":                                      "outside the range of DOUBLE",
		"100000000000000000000000000000000000000 + 1 + ": "found the end",
	} {
		_, err := bind(src, s)
		require.ErrorContains(t, err, want, src)
		var e *syntax.Error
		require.ErrorAs(t, err, &e, src)
		require.Contains(t, e.Error(), "^")
	}
	_, err := bind("i32 +\n  zzzzzz * 2", s)
	require.Regexp(t, `(?s)\n      zzzzzz \* 2\n      \^$`, err.Error())
}

func TestRunTimeErrorsNameTheExpressionAndTheValues(t *testing.T) {
	tab := duckTable(t)
	for src, want := range map[string][]string{
		"i32 + 1000000000":                   {"(i32 + 1000000000)", "2000000000 and 1000000000", "INTEGER"},
		"s::integer":                         {"CAST(s AS INTEGER)", `"abc"`},
		"i64::tinyint":                       {"-5000000000", "TINYINT"},
		"dt + i32 + i32":                     {"2000000000", "DATE"},
		"d15 * d15":                          {"DECIMAL(18,4)", "12345678.90"},
		"f64::integer":                       {"DOUBLE", "INTEGER"},
		"'2021-02-3' || s":                   nil,
		"(s || '-x')::date":                  {"abc-x", "YYYY-MM-DD"},
		"ts + interval (i64 * 1000000) year": {"out of the range"},
	} {
		e, err := bind(src, &expr.Scope{Schema: tab.schema})
		require.NoError(t, err, src)
		_, err = evaluate(t, tab.schema, tab.cols, tab.rows, e)
		if want == nil {
			require.NoError(t, err)
		}
		for _, w := range want {
			require.ErrorContains(t, err, w, src)
		}
	}
}

func TestBranchesThatAreNotTakenDoNotFail(t *testing.T) {
	tab := newTable(t, []string{"s varchar", "12", "abc", `\N`, "7"},
		[]string{"n integer", "1", "2147483647", "0", `\N`})
	for src, want := range map[string][]string{
		"case when s <> 'abc' then s::integer else -1 end": {"12", "-1", "-1", "7"},
		"case when n < 10 then n + 2147483000 else n end": {"2147483001", "2147483647", "2147483000",
			"NULL"},
		"coalesce(nullif(s, 'abc'), '5')::integer":                      {"12", "5", "5", "7"},
		"s <> 'abc' and s::integer > 8":                                 {"true", "false", "NULL", "false"},
		"s = 'abc' or s::integer > 8":                                   {"true", "true", "NULL", "false"},
		"case when n > 1 then 'x' when n + 2147483646 > 0 then 'y' end": {"y", "x", "y", "NULL"},
		"case when false then 'abc'::integer else n end":                {"1", "2147483647", "0", "NULL"},
	} {
		e, err := bind(src, &expr.Scope{Schema: tab.schema})
		require.NoError(t, err, src)
		got, err := evaluate(t, tab.schema, tab.cols, tab.rows, e)
		require.NoError(t, err, src)
		for i := range want {
			assert.Equal(t, want[i], got[0][i].String(), "%s row %d", src, i)
		}
	}
}

func TestThreeValuedLogic(t *testing.T) {
	tab := newTable(t,
		[]string{"a boolean", "true", "true", "true", "false", "false", "false", `\N`, `\N`, `\N`},
		[]string{"b boolean", "true", "false", `\N`, "true", "false", `\N`, "true", "false", `\N`})
	const yes, no, null = "true", "false", "NULL"
	for src, want := range map[string][]string{
		"a and b":                           {yes, no, null, no, no, no, null, no, null},
		"a or b":                            {yes, yes, yes, yes, no, null, yes, null, null},
		"not a":                             {no, no, no, yes, yes, yes, null, null, null},
		"a = b":                             {yes, no, null, no, yes, null, null, null, null},
		"a < b":                             {no, no, null, yes, no, null, null, null, null},
		"a is distinct from b":              {no, yes, yes, yes, no, yes, yes, yes, no},
		"a is not distinct from b":          {yes, no, no, no, yes, no, no, no, yes},
		"a is true":                         {yes, yes, yes, no, no, no, no, no, no},
		"b is not false":                    {yes, no, yes, yes, no, yes, yes, no, yes},
		"a is unknown":                      {no, no, no, no, no, no, yes, yes, yes},
		"a and b and true":                  {yes, no, null, no, no, no, null, no, null},
		"a or b or null":                    {yes, yes, yes, yes, null, null, yes, null, null},
		"case when a then b else not b end": {yes, no, null, no, yes, null, no, yes, null},
	} {
		e, err := bind(src, &expr.Scope{Schema: tab.schema})
		require.NoError(t, err, src)
		got, err := evaluate(t, tab.schema, tab.cols, tab.rows, e)
		require.NoError(t, err, src)
		for i := range want {
			assert.Equal(t, want[i], got[0][i].String(), "%s row %d", src, i)
		}
	}
}

func TestConjunctsAgainstConstantsBecomeComparisons(t *testing.T) {
	s := &expr.Scope{Schema: duckTable(t).schema, Fold: host.Fold}
	show := func(src string) (out []string) {
		e, err := bind(src, s)
		require.NoError(t, err, src)
		for _, c := range expr.Conjuncts(e) {
			for _, p := range expr.Comparisons(c) {
				text := s.Schema.Fields[p.Column].Name + " " + [...]string{"=", "<", "<=", ">", ">=", "in", "is null",
					"is not null"}[p.Op]
				for _, v := range p.Values {
					require.True(t, v.Type.SameSQL(s.Schema.Fields[p.Column].Type))
					text += " " + v.String()
				}
				out = append(out, text)
			}
		}
		return out
	}
	for src, want := range map[string][]string{
		"i32 = 7 and 3 < i64":                           {"i32 = 7", "i64 > 3"},
		"dt between date '1994-01-01' and '1995-01-01'": {"dt >= 1994-01-01", "dt <= 1995-01-01"},
		"dt < date '1994-01-01' + interval '1' year":    {"dt < 1995-01-01"},
		"dt <= timestamp '1994-01-01 12:00:00'":         {"dt <= 1994-01-01"},
		"dt > timestamp '1994-01-01 12:00:00'":          {"dt > 1994-01-01"},
		"d15 < 24 and d15 >= 0.05":                      {"d15 < 24.00", "d15 >= 0.05"},
		"d15 < 1.005":                                   {"d15 <= 1.00"},
		"i64 > 1.5":                                     {"i64 > 1"},
		"i8 < 1000":                                     nil,
		"s in ('a', 'b')":                               {"s in a b"},
		"i32 in (1, 2.5)":                               {"i32 in 1"},
		"s like 'ab%c'":                                 {"s >= ab", "s < ac"},
		"s like '%c'":                                   nil,
		"i32 is null":                                   {"i32 is null"},
		"i32 is not null":                               {"i32 is not null"},
		"not (i32 < 5)":                                 {"i32 >= 5"},
		"i32 < i64":                                     nil,
		"i32 = 1 or i32 = 2":                            nil,
		"f64 > 1":                                       {"f64 > 1.0"},
	} {
		assert.Equal(t, want, show(src), src)
	}
}

func TestADisjunctionHasEachTermOnceAndOneSetAColumn(t *testing.T) {
	s := &expr.Scope{Schema: duckTable(t).schema, Fold: host.Fold}
	for want, terms := range map[string][]string{
		"(i32 = 1)":                                {"i32 = 1", "i32 = 1 or i32 = 1"},
		"(i32 IN (1, 2, 3))":                       {"i32 = 1", "i32 in (2, 1)", "i32 = 3"},
		"((i32 IN (1, 2)) OR (i64 IN (1, 2)))":     {"i32 = 1", "i64 = 1", "i32 = 2 or i64 = 2"},
		"((i32 < 1) OR (s IN ('a', 'b')))":         {"i32 < 1", "s = 'a'", "i32 < 1", "s = 'b'"},
		"(((i32 = 1) AND (i64 = 2)) OR (s = 'a'))": {"i32 = 1 and i64 = 2", "s = 'a'", "i32 = 1 and i64 = 2"},
		"TRUE": {"i32 = 1", "true"},
	} {
		var list []*expr.Expr
		for _, src := range terms {
			e, err := bind(src, s)
			require.NoError(t, err, src)
			list = append(list, e)
		}
		assert.Equal(t, want, expr.Or(list...).String(), terms)
	}
}

func TestConstantsInThePlaceOfColumnsFold(t *testing.T) {
	s := &expr.Scope{Schema: duckTable(t).schema, Fold: host.Fold}
	for src, want := range map[string]string{
		"i32 = 7 and s = 'a'":             "(s = 'a')",
		"i32 = 8 and s = 'a'":             "FALSE",
		"i32 = 8 or s = 'a'":              "(s = 'a')",
		"i32 + 1 = i64":                   "(8 = i64)",
		"i32 + 2147483647 = 0 or s = 'a'": "(((7 + 2147483647) = 0) OR (s = 'a'))",
	} {
		e, err := bind(src, s)
		require.NoError(t, err, src)
		seven := expr.Literal(gpu.IntScalar(gpu.Of(gpu.Int32), 7))
		e = e.Substitute(func(column int) *expr.Expr {
			if column == s.Schema.Index("i32") {
				return seven
			}
			return nil
		})
		assert.Equal(t, want, e.Folded(host.Fold).String(), src)
	}
}

func TestAggregatesAreFoundAndReplaced(t *testing.T) {
	s := &expr.Scope{Schema: duckTable(t).schema, Fold: host.Fold}
	n,
		err := syntax.Parse("100.0 * sum(d15 * (1 - d4)) / sum(d15) + avg(i32) - min(f32) * count(*) + sum(d15) + " +
		"count(s) + s")
	require.NoError(t, err)
	calls, post, err := expr.BindAggregates(n, s)
	require.NoError(t, err)
	want := []struct {
		kind gpu.AggregateKind
		arg  string
		typ  gpu.Type
	}{
		{gpu.Sum, "(d15 * (1 - d4))", gpu.DecimalOf(38, 4)},
		{gpu.Sum, "d15", gpu.DecimalOf(38, 2)},
		{gpu.Avg, "i32", gpu.Of(gpu.Float64)},
		{gpu.Min, "f32", gpu.Of(gpu.Float32)},
		{gpu.CountAll, "", gpu.Of(gpu.Int64)},
		{gpu.Count, "s", gpu.Of(gpu.Int64)},
	}
	require.Len(t, calls, len(want))
	for i, w := range want {
		assert.Equal(t, w.kind, calls[i].Kind)
		assert.Equal(t, w.typ, calls[i].Output)
		if w.arg != "" && i > 0 {
			assert.Equal(t, w.arg, calls[i].Arg.String())
		}
	}
	assert.Equal(t, `(((((((100.0 * "$agg0") / "$agg1") + "$agg2") - ("$agg3" * "$agg4")) + "$agg1") + "$agg5") + s)`,
		post.String())
	for src, want := range map[string]string{
		"sum(1 + sum(i32))":                    "column 9: the aggregate sum is not allowed inside another one",
		"sum(i32) filter (where 1 < count(*))": "column 28: the aggregate count is not allowed in FILTER",
		"sum(s)":                               "sum needs a number, found VARCHAR",
		"avg(bo)":                              "avg needs a number, found BOOLEAN",
		"fsum(bo)":                             "fsum needs a number, found BOOLEAN",
		"bool_and(i32)":                        "bool_and needs a condition (BOOLEAN), found INTEGER",
		"count_if(s)":                          "count_if needs a condition (BOOLEAN), found VARCHAR",
		"count_if()":                           "count_if takes 1 argument, found 0",
		"sum(*)":                               "sum takes 1 argument, found *",
		"max(i32, 2)":                          "max takes 1 argument, found 2",
		"count(distinct i32, i64)":             "count takes 1 argument, found 2",
		"count_star(i32)":                      "count_star takes no arguments, found 1",
		"count(*) filter (where dt)":           "FILTER needs a condition (BOOLEAN), found DATE",
		"count(*) + abs(i32) filter (where bo)": "column 12: FILTER is possible after " +
			"aggregates only, and abs is not one",
		"count(*) + abs(distinct i32)": "column 12: DISTINCT is possible in " +
			"aggregates only, and abs is not one",
		"count(distinct *)":                        `column 16: found "*" after DISTINCT, expected a column or an expression`,
		"count(distinct)":                          `column 15: found ")" after DISTINCT, expected a column or an expression`,
		"count(i32) filter (bo) filter (where bo)": `column 24: found "filter", expected an operator`,
		"count(i32) filter bo":                     `column 12: found "filter", expected an operator`,
		"count(i32) filter (where bo":              "found the end of the expression, expected )",
	} {
		n, err := syntax.Parse(src)
		if err == nil {
			_, n, err = expr.BindAggregates(n, s)
		}
		if err == nil {
			_,
				err = expr.Bind(n,
				&expr.Scope{Schema: gpu.NewSchema(gpu.Field{Name: expr.AggregateColumn(0), Type: gpu.Of(gpu.Int64)}),
					Fold: host.Fold})
		}
		require.ErrorContains(t, err, want, src)
	}
}

func TestAggregatesOfSomeRowsAndOfDistinctValues(t *testing.T) {
	s := &expr.Scope{Schema: duckTable(t).schema, Fold: host.Fold}
	for src, want := range map[string]string{
		"count(distinct i32)":                "count distinct i32 BIGINT",
		"count(all i32)":                     "count i32 BIGINT",
		"approx_count_distinct(i32)":         "approx_count_distinct i32 BIGINT",
		"sum(distinct d15)":                  "sum distinct d15 DECIMAL(38,2)",
		"min(distinct s)":                    "min s VARCHAR",
		"bool_or(distinct bo)":               "max bo BOOLEAN",
		"bool_and(bo)":                       "min bo BOOLEAN",
		"bool_and('true')":                   "min TRUE BOOLEAN",
		"count_if(bo)":                       "sum CAST(bo AS INTEGER) HUGEINT",
		"countif(distinct bo)":               "sum distinct CAST(bo AS INTEGER) HUGEINT",
		"sum(bo)":                            "sum CAST(bo AS INTEGER) HUGEINT",
		"fsum(i32)":                          "sum CAST(i32 AS DOUBLE) DOUBLE",
		"kahan_sum(f64)":                     "sum f64 DOUBLE",
		"favg(d4)":                           "avg CAST(d4 AS DOUBLE) DOUBLE",
		"count(*) filter (where i32 > 3)":    "count CASE WHEN (i32 > 3) THEN TRUE ELSE NULL END BIGINT",
		"count(*) filter (i32 > 3)":          "count CASE WHEN (i32 > 3) THEN TRUE ELSE NULL END BIGINT",
		"count(i32) filter (where true)":     "count i32 BIGINT",
		"max(s) filter (where null)":         "max NULL VARCHAR",
		"sum(distinct d4) filter (where bo)": "sum distinct CASE WHEN bo THEN d4 ELSE NULL END DECIMAL(38,2)",
		"avg(1 // 0) filter (where bo and i32 > 0)": "avg CASE WHEN (bo AND (i32 > 0)) " +
			"THEN (1 // 0) ELSE NULL END DOUBLE",
	} {
		n, err := syntax.Parse(src)
		require.NoError(t, err, src)
		calls, _, err := expr.BindAggregates(n, s)
		require.NoError(t, err, src)
		require.Len(t, calls, 1, src)
		assert.Equal(t, want, fmt.Sprint(calls[0], " ", calls[0].Output), src)
	}
}

func TestExpressionsOfTwoTablesDiffer(t *testing.T) {
	integer := gpu.Field{Name: "x", Type: gpu.Of(gpu.Int64), Nullable: true}
	s := &expr.Scope{Schema: gpu.NewSchema(integer, integer),
		Qualifiers: []*expr.Tables{expr.TablesOf("a"), expr.TablesOf("b")}, Fold: host.Fold}
	bind := func(src string) *expr.Expr {
		n, err := syntax.Parse(src)
		require.NoError(t, err)
		e, err := expr.Bind(n, s)
		require.NoError(t, err)
		return e
	}
	for _, c := range []struct {
		e, f string
		same bool
	}{
		{"a.x + 1", "b.x + 1", false}, {"a.x + 1", "a.x  +  1", true}, {"a.x + 1", "a.x + 2", false},
		{"a.x + 1", "a.x - 1", false},
		{"a.x in (1, 2)", "a.x in (1, 3)", false}, {"a.x in (1, 2)", "a.x in (1, 2)", true},
		{"a.x * 0e0", "a.x * -0e0", false},
		{"round(a.x / 3, 1)", "round(a.x / 3, 2)", false}, {"coalesce(a.x, b.x)", "coalesce(a.x, a.x)", false},
		{"a.x::varchar", "a.x::double", false},
	} {
		require.Equal(t, c.same, bind(c.e).Equal(bind(c.f)), "%s and %s", c.e, c.f)
	}
}

func TestDeepExpressionsAreRefused(t *testing.T) {
	for _, open := range []string{"(", "- ", "not ", "1 + (", "case when true then ", "abs("} {
		_, err := syntax.Parse(strings.Repeat(open, 50_000) + "1")
		require.ErrorContains(t, err, "nested more than", open)
	}
	_, err := syntax.Parse("1" + strings.Repeat("+1", 100_000))
	require.ErrorContains(t, err, "nested more than")
}

func TestLongConjunctionsAndSharedBranchesStaySmall(t *testing.T) {
	tab := duckTable(t)
	src, nested := "i32 > 0", "i32"
	for range 2000 {
		src += " and i32 < 100"
	}
	for range 60 {
		nested = "greatest(" + nested + ", abs(i16))"
	}
	for _, src := range []string{src, nested} {
		e, err := bind(src, &expr.Scope{Schema: tab.schema})
		require.NoError(t, err)
		require.Equal(t, e.Columns(), e.Remap(func(i int) int { return i }).Columns())
		_, err = evaluate(t, tab.schema, tab.cols, tab.rows, e)
		require.NoError(t, err)
	}
}

func TestCompileComputesSharedPartsOnceAndPassesColumnsThrough(t *testing.T) {
	s := duckTable(t).schema
	var exprs []*expr.Expr
	for _, src := range []string{"d15 * (1 - d4)", "d15 * (1 - d4) * (1 + d4)", "d15"} {
		e, err := bind(src, &expr.Scope{Schema: s})
		require.NoError(t, err)
		exprs = append(exprs, e)
	}
	p, inputs, err := expr.Compile(s, exprs...)
	require.NoError(t, err)
	require.Equal(t, []int{s.Index("d4"), s.Index("d15")}, inputs)
	require.Equal(t, 1, p.Outputs[2])
	muls := 0
	for _, in := range p.Code {
		if in.Op == gpu.OpMul {
			muls++
		}
	}
	require.Equal(t, 2, muls)
}
