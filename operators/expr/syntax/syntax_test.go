package syntax

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTreesPrintAsTextThatParsesToThem(t *testing.T) {
	for _, c := range []struct{ text, printed string }{
		{"a+b*c", "(a + (b * c))"},
		{"a - b - c", "((a - b) - c)"},
		{"-2 ^ 2", "((- 2) ^ 2)"},
		{"a or b and not c", "(a OR (b AND (NOT c)))"},
		{"t.a != 1", "(t.a <> 1)"},
		{`"A b".select_ == x'0aFF'`, `("A b".select_ = x'0AFF')`},
		{"a not between 1 and 2 and b", "((a NOT BETWEEN 1 AND 2) AND b)"},
		{"a in (1, 'it''s', null)", "(a IN (1, 'it''s', NULL))"},
		{"a !~~ 'x%'", "(a NOT LIKE 'x%')"},
		{"a ilike 'x' escape '!'", "(a ILIKE 'x' ESCAPE '!')"},
		{"a is not distinct from b", "(a IS NOT DISTINCT FROM b)"},
		{"case a when 1 then 2 else 3 end", "CASE a WHEN 1 THEN 2 ELSE 3 END"},
		{"a::decimal(9,2)", "CAST(a AS DECIMAL(9,2))"},
		{"date '2024-02-29' + interval 3 mins", "(CAST('2024-02-29' AS DATE) + INTERVAL (3) MINUTE)"},
		{"extract(year from d)", "date_part('year', d)"},
		{"count(distinct a order by b desc) filter (where c)", "count(DISTINCT a ORDER BY b DESC) FILTER (WHERE c)"},
		{"sum(a) over (partition by b order by c rows 2 preceding)",
			"sum(a) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"},
	} {
		n, err := Parse(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, c.printed, n.String())
		again, err := Parse(c.printed)
		require.NoError(t, err, c.printed)
		require.Equal(t, c.printed, again.String())
	}
}

func TestReplaceReachesEveryNode(t *testing.T) {
	for _, text := range []string{
		"x", "-x", "x + x", "x AND x OR x", "x BETWEEN x AND x", "x IN (x, x)", "x LIKE x ESCAPE x",
		"x IS DISTINCT FROM x",
		"CASE x WHEN x THEN x ELSE x END", "x::INTEGER", "interval (x) day", "f(x, x ORDER BY x) FILTER (WHERE x)",
		"f(x) OVER (PARTITION BY x ORDER BY x)",
	} {
		n, err := Parse(text)
		require.NoError(t, err)
		before := n.String()
		with, err := Replace(n, func(n Node) (Node, error) {
			if name, ok := n.(*Name); ok {
				return &Name{Base: At(name), Parts: []string{"y"}}, nil
			}
			return nil, nil
		})
		require.NoError(t, err)
		require.Equal(t, strings.ReplaceAll(before, "x", "y"), with.String())
		require.Equal(t, before, n.String(), "the tree itself was changed")
	}
}

func TestMistakesHaveTheirLocation(t *testing.T) {
	for _, c := range []struct {
		text      string
		line, col int
		message   string
	}{
		{"a +", 1, 4, "the end of the expression"},
		{"a\n+ é)", 2, 4, `")"`},
		{"'open", 1, 1, "a quote is not closed"},
		{"a = b = c", 1, 7, "cannot be chained"},
		{"a::nothing", 1, 4, "unknown type"},
	} {
		_, err := Parse(c.text)
		var mistake *Error
		require.ErrorAs(t, err, &mistake, c.text)
		require.Equal(t, [2]int{c.line, c.col}, [2]int{mistake.Line, mistake.Col}, c.text)
		require.Contains(t, mistake.Msg, c.message)
	}
}

func TestSplitAlias(t *testing.T) {
	values := Values{"${flag}": {SQL: "true"}, "${text}": {SQL: "'x'"}}
	for src, want := range map[string][2]string{
		" a + 1 ":               {"a + 1", ""},
		"a + 1 as b":            {"a + 1", "b"},
		"a AS \"B \"\"c\"\"\" ": {"a", `B "c"`},
		"a as größe":            {"a", "größe"},
		"a /* x */ as b -- c":   {"a /* x */", "b"},
		"'it as x'":             {"'it as x'", ""},
		"a -- as b":             {"a -- as b", ""},
		"cast(a as int)":        {"cast(a as int)", ""},
		"cast(a as int) as b":   {"cast(a as int)", "b"},
		"as b":                  {"as b", ""},
		"a as 1":                {"a as 1", ""},
		"a as ${flag}":          {"a as ${flag}", ""},
		"${text} as b":          {"${text}", "b"},
		"'open as b":            {"'open as b", ""},
	} {
		text, name := values.SplitAlias(src)
		require.Equal(t, want, [2]string{text, name}, src)
	}
}
