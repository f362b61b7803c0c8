package syntax

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
)

// TestLargeStatementsTakeLinearTime parses large and deep texts. Each takes at most 0.5 s; the bound of 10 s is for a
// busy machine, and still tells a quadratic or exponential parser.
func TestLargeStatementsTakeLinearTime(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	repeat := func(n int, s string) string { return strings.Repeat(s, n) }
	list := func(n int, format, sep string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(parts, sep)
	}
	for name, c := range map[string]struct{ text, mistake string }{
		"columns":                {"SELECT " + list(5000, "c%[1]d + 1 AS x%[1]d", ", ") + " FROM t", ""},
		"set operations":         {list(2000, "SELECT %d", " UNION ALL "), ""},
		"intersections":          {list(2000, "SELECT %d", " INTERSECT "), ""},
		"joins":                  {"FROM t" + list(2000, " JOIN t%d USING (a)", ""), ""},
		"too many joins":         {"FROM t" + list(20_000, " CROSS JOIN t%d", ""), "set operations and joins"},
		"too many unions":        {list(20_000, "SELECT %d", " UNION "), "more than 10000 set operations"},
		"queries":                {"WITH " + list(5000, "q%d AS (SELECT 1)", ", ") + " SELECT 1", ""},
		"statements":             {list(20_000, "SELECT %d;", "\n"), ""},
		"rows":                   {"VALUES " + list(50_000, "(%d, 'x')", ", "), ""},
		"conditions":             {"FROM t WHERE " + list(50_000, "a = %d", " OR "), ""},
		"a long list":            {"FROM t WHERE a IN (" + list(100_000, "%d", ", ") + ")", ""},
		"types as functions":     {"SELECT " + repeat(25_000, "decimal(a), date(b), ") + "1", ""},
		"a comment":              {"/*" + repeat(1<<19, "/*") + repeat(1<<19, "*/") + "*/ SELECT 1", ""},
		"a string":               {"SELECT '" + repeat(1<<19, "''") + "'", ""},
		"parentheses":            {"SELECT " + repeat(10_000, "(") + "1" + repeat(10_000, ")"), "nested more than"},
		"queries in parentheses": {repeat(10_000, "(") + "SELECT 1" + repeat(10_000, ")"), "nested more than"},
		"scalar subqueries":      {repeat(10_000, "SELECT (") + "1" + repeat(10_000, ")"), "nested more than"},
		"subqueries that could be expressions": {
			"SELECT " + repeat(10_000, "(") + "SELECT 1" + repeat(10_000, ")"), "nested more than"},
		"subqueries that are expressions": {
			"SELECT " + repeat(300, "(") + "(SELECT 1)" + repeat(300, " + 1)"), ""},
		"subqueries that are unions": {
			"SELECT " + repeat(300, "(") + "(SELECT 1)" + repeat(300, " UNION SELECT 2)"), ""},
		"tables in parentheses": {"FROM " + repeat(10_000, "(") + "t" + repeat(10_000, " CROSS JOIN t)"),
			"nested more than"},
		"tables that could be queries": {
			"FROM " + repeat(300, "(") + "(SELECT 1)" + repeat(300, " t CROSS JOIN u)"), ""},
		"tables in FROM":        {repeat(10_000, "FROM (") + "t" + repeat(10_000, ")"), "nested more than"},
		"joins without ON":      {"FROM t" + repeat(10_000, " JOIN t"), "nested more than"},
		"grouping sets":         {"FROM t GROUP BY " + repeat(10_000, "GROUPING SETS ("), "nested more than"},
		"open parentheses":      {"SELECT " + repeat(1<<20, "("), "nested more than"},
		"parentheses in a list": {"SELECT " + repeat(5000, repeat(100, "(")+"1"+repeat(100, ")")+", ") + "1", ""},
		"operators":             {"SELECT 1" + repeat(100_000, " + 1"), "nested more than"},
		"signs":                 {"SELECT " + repeat(100_000, "- ") + "1", "nested more than"},
		"NOT":                   {"SELECT " + repeat(100_000, "NOT ") + "a", "nested more than"},
		"CASE":                  {"SELECT " + repeat(100_000, "CASE WHEN ") + "a", "nested more than"},
		"periods":               {"SELECT a" + repeat(100_000, ".a") + " FROM t", ""},
		"pivots":                {"FROM t" + repeat(20_000, " PIVOT (f(a) FOR b IN (1))"), "more than 10000"},
		"EXPLAIN":               {repeat(100_000, "EXPLAIN "), "found EXPLAIN after EXPLAIN"},
		"semicolons":            {repeat(1<<18, ";"), ""},
		"too many words":        {repeat(maxTokens+1, "a "), "words and signs"},
		"too long":              {repeat(MaxText+1, " "), "bytes, more than"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			statements, err := ParseStatements(c.text)
			if c.mistake != "" {
				require.ErrorContains(t, err, c.mistake)
			} else {
				require.NoError(t, err)
			}
			for _, s := range statements {
				require.NotEmpty(t, s.String())
			}
			took := time.Since(start)
			t.Log(took)
			require.Less(t, took, 10*time.Second)
		})
	}
}
