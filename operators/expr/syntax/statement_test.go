package syntax

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatementsPrintAsTextThatParsesToThem compares the printed text of the tree, and of the tree of that text.
func TestStatementsPrintAsTextThatParsesToThem(t *testing.T) {
	for _, c := range []struct{ text, printed string }{
		{"from t", "SELECT * FROM t"},
		{"select a, b from t,", "SELECT a, b FROM t"},
		{"select distinct on (a) a b from t order by b desc nulls first limit 10% offset 2",
			"SELECT DISTINCT ON (a) a AS b FROM t ORDER BY b DESC NULLS FIRST LIMIT 10% OFFSET 2"},
		{"select * exclude a replace (b + 1 as b) rename c as d, t.*, columns('x.*') from t",
			"SELECT * EXCLUDE (a) REPLACE ((b + 1) AS b) RENAME (c AS d), t.*, COLUMNS('x.*') FROM t"},
		{"with recursive a as (select 1), b(x) as not materialized (from a) from b",
			"WITH RECURSIVE a AS (SELECT 1), b(x) AS NOT MATERIALIZED (SELECT * FROM a) SELECT * FROM b"},
		{"select 1 union all by name select 2 intersect values (3) except (select 4 limit 1)",
			"SELECT 1 UNION ALL BY NAME SELECT 2 INTERSECT VALUES (3) EXCEPT (SELECT 4 LIMIT 1)"},
		{"select ((select 1) + 2), ((select 1) union (select 2)), (1, (select 2))",
			"SELECT ((SELECT 1) + 2), ((SELECT 1) UNION (SELECT 2)), (1, (SELECT 2))"},
		{"select a not in (from t), (a, b) >= some (table t), not exists (from t), a in ((select 1), 2)",
			"SELECT (a <> ALL (SELECT * FROM t)), ((a, b) >= ANY (SELECT * FROM t)), (NOT EXISTS (SELECT * FROM t)), " +
				"(a IN ((SELECT 1), 2))"},
		{"from a join b join c on x on y natural left join d, e asof join f using (g)",
			"SELECT * FROM a INNER JOIN (b INNER JOIN c ON x) ON y NATURAL LEFT JOIN d, e ASOF INNER JOIN f USING (g)"},
		{"from ((select 1) a cross join b) x, lateral (select 2) y(c), 'f.parquet' tablesample 5 percent",
			"SELECT * FROM ((SELECT 1) AS a CROSS JOIN b) AS x, LATERAL (SELECT 2) AS y(c), " +
				"'f.parquet' TABLESAMPLE (5 PERCENT)"},
		{"from read_parquet(['a', 'b'], filename = true, x := 1, y => 2)",
			"SELECT * FROM read_parquet(['a', 'b'], filename := TRUE, x := 1, y := 2)"},
		{"select a from t group by rollup (a, (b, c)), grouping sets ((), a, cube (b)), (d, e)",
			"SELECT a FROM t GROUP BY ROLLUP (a, (b, c)), GROUPING SETS ((), a, CUBE (b)), (d, e)"},
		{"select sum(a) over (w rows 1 preceding exclude ties), rank() over w from t window w as (order by b) " +
			"qualify c",
			"SELECT sum(a) OVER (w ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES), rank() OVER w FROM t " +
				"WINDOW w AS (ORDER BY b) QUALIFY c"},
		{"select ? + $7 + ?, x: $3", "SELECT (($1 + $7) + $2), $3 AS x"},
	} {
		list, err := ParseStatements(c.text)
		require.NoError(t, err, c.text)
		require.Len(t, list, 1)
		require.Equal(t, c.printed, list[0].String())
		again, err := ParseStatements(c.printed)
		require.NoError(t, err, c.printed)
		require.Equal(t, c.printed, again[0].String())
	}
}

func TestReplaceReachesExpressionsOfStatements(t *testing.T) {
	list, err := ParseStatements(`SELECT * REPLACE (x AS a), (x, x) IN (SELECT x), COLUMNS('a' || x),
		f() OVER (ROWS BETWEEN x PRECEDING AND x FOLLOWING)`)
	require.NoError(t, err)
	for i, want := range []string{"* REPLACE (y AS a)", "((y, y) = ANY (SELECT x))", "COLUMNS(('a' || y))",
		"f() OVER (ROWS BETWEEN y PRECEDING AND y FOLLOWING)"} {
		n, err := Replace(list[0].(*Query).Body.(*Select).Items[i].X, func(n Node) (Node, error) {
			if name, ok := n.(*Name); ok && name.Parts[0] == "x" {
				return &Name{Base: At(name), Parts: []string{"y"}}, nil
			}
			return nil, nil
		})
		require.NoError(t, err)
		require.Equal(t, want, n.String())
	}
}

func TestExpressionsRefuseSubqueries(t *testing.T) {
	for _, text := range []string{"a + (SELECT 1)", "a IN (FROM t)", "EXISTS (SELECT 1)"} {
		_, err := Parse(text)
		require.ErrorContains(t, err, "a step with the key sql can", text)
	}
}

func TestHiddenValuesOfStatements(t *testing.T) {
	values := Values{"${path}": {SQL: "'secret/x'", Text: "secret/x", Hidden: true}}
	for text, printed := range map[string]string{
		"FROM ${path} t":             "SELECT * FROM ${path} AS t",
		"COPY t TO ${path}":          "COPY (SELECT * FROM t) TO ${path}",
		"FROM t WHERE a = ${path}":   "SELECT * FROM t WHERE (a = ${path})",
		"FROM read_parquet(${path})": "SELECT * FROM read_parquet(${path})",
	} {
		statements, err := values.ParseStatements(text)
		require.NoError(t, err, text)
		require.Equal(t, printed, statements[0].String())
	}
	for _, text := range []string{"SELECT a AS ${path}", "FROM t AS ${path}", "FROM t ${path}", "SELECT ${path} b c"} {
		_, err := values.ParseStatements(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "secret")
	}
}
