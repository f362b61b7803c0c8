package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/operators/expr/exprtest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// enumQueries are queries of ENUM columns. T has k, the mood m, the mood n of other texts, w with codes of two bytes,
// and the text s. MOOD is the type of m.
var enumQueries = []string{
	"SELECT k, m, n, w, [m, NULL] AS l, {'m': m, 'k': k} AS r FROM T",
	"SELECT k, m < 'ok' AS a, m = 'ok' AS b, m <> 'none' AS c, m > s AS d, m = n AS e, m < n AS f, s = m AS g, " +
		"m < 'ok'::MOOD AS h, m IS DISTINCT FROM 'sad' AS i, m IN ('ok', 'happy') AS j, m IN ('none', s) AS o, " +
		"m BETWEEN 'a' AND 'p' AS p, w >= 'v7' AS q, w < w::VARCHAR || '0' AS t FROM T",
	"SELECT k FROM T WHERE m > 'sad'::MOOD AND w <> 'v3'",
	"SELECT m, count(*) AS c, min(w) AS lo, max(w) AS hi, count(DISTINCT n) AS d, arg_max(n, k) AS a, " +
		"string_agg(m, ',') AS t FROM T GROUP BY m",
	"SELECT m, n, count(*) AS c FROM T GROUP BY CUBE (m, n)",
	"SELECT w, min(m) AS m FROM T GROUP BY w HAVING max(n) = 'zzz'",
	"SELECT a.k, b.k AS other FROM T a JOIN T b ON a.m = b.m AND a.w = b.w AND a.k < b.k",
	"SELECT a.k, b.k AS other FROM T a LEFT JOIN (SELECT * FROM T WHERE k % 40 = 1) b ON a.m = b.n",
	"SELECT k FROM T WHERE m IN (SELECT s FROM T WHERE k % 3 = 0)",
	"SELECT k, m FROM T ORDER BY w DESC NULLS LAST, k LIMIT 20",
	"SELECT DISTINCT m, w FROM T",
	"SELECT m AS x FROM T UNION SELECT n FROM T",
	"SELECT m AS x FROM T WHERE k < 50 INTERSECT SELECT m FROM T WHERE k > 100",
	"SELECT k, rank() OVER (ORDER BY m) AS r, lag(w) OVER (ORDER BY k) AS l, max(m) OVER (PARTITION BY n) AS x FROM T",
	"SELECT k, enum_code(m) AS a, enum_code(w) AS b, enum_range(m) AS c, enum_first(n) AS d, enum_last(w) AS e, " +
		"enum_range_boundary(m, NULL) AS f, enum_range_boundary('sad'::MOOD, m) AS g FROM T WHERE m IS NOT NULL",
	"SELECT k, length(m) AS a, upper(w) AS b, m || '!' AS c, concat(m, n, k) AS d, m LIKE '%a%' AS e, " +
		"substring(w, 2, 1) AS f, m::VARCHAR AS g, TRY_CAST(w AS INTEGER) AS h, coalesce(m, n) AS i, coalesce(m, s) " +
		"AS j, nullif(m, 'ok') AS o, greatest(m, 'ok') AS p, replace(m, 'a', w) AS q, m::BLOB AS t, " +
		"starts_with(m, 's') AS u FROM T",
	"SELECT k, CASE WHEN k % 2 = 0 THEN m END AS a, CASE m WHEN 'ok' THEN w END AS b, " +
		"TRY_CAST(m AS ENUM('ok', 'zzz')) AS c, TRY_CAST(s AS MOOD) AS d, [m, 'ok'::MOOD]::VARCHAR AS e, " +
		"{'m': m}::VARCHAR AS f, list_sort([m, 'ok'::MOOD, 'sad'::MOOD])::VARCHAR AS g, " +
		"to_json({'m': m})::VARCHAR AS h FROM T",
	"SELECT k, unnest([m, 'happy'::MOOD]) AS u, list_contains([m], 'ok') AS c FROM T",
	"SELECT l, count(*) AS c FROM (SELECT [m, NULL] AS l FROM T) GROUP BY l",
	"SELECT k, ['sad', s]::VARCHAR[]::VARCHAR AS a, TRY_CAST(['sad', s] AS MOOD[])::VARCHAR AS b FROM T",
}

// enumTable writes a table of texts, and returns a function that replaces T and MOOD in a query.
func enumTable(t *testing.T, duck *exprtest.DuckDB, rows int) func(query string) string {
	in := filepath.Join(t.TempDir(), "in.parquet")
	duck.Run(fmt.Sprintf(`COPY (SELECT i AS k, CASE i %% 7 WHEN 0 THEN 'sad' WHEN 1 THEN NULL WHEN 2 THEN 'happy'
		WHEN 3 THEN 'it''s, "x"' ELSE 'ok' END AS m, CASE WHEN i %% 5 < 2 THEN 'zzz' WHEN i %% 11 > 0 THEN 'ok' END
		AS n,
		'v' || i * 37 %% 300 AS w, CASE i %% 3 WHEN 0 THEN 'ok' WHEN 1 THEN 'tired' END AS s
		FROM range(%d) t(i)) TO '%s' (FORMAT parquet, ROW_GROUP_SIZE 2048)`, rows, in))
	var texts []string
	for i := range 300 {
		texts = append(texts, fmt.Sprintf("'v%d'", i))
	}
	return strings.NewReplacer("FROM T", "FROM (SELECT k, m::MOOD AS m, n::ENUM('ok', 'zzz') AS n, w::ENUM("+
		strings.Join(texts, ", ")+") AS w, s FROM '"+in+"')", "JOIN T", "JOIN (SELECT k, m::MOOD AS m, w::ENUM("+
		strings.Join(texts, ", ")+") AS w FROM '"+in+"')").Replace
}

const mood = `ENUM('sad', 'ok', 'happy', 'it''s, "x"')`

func TestEnumsGiveDuckDBsRows(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	table := enumTable(t, duck, 200)
	gpu := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	for _, q := range enumQueries {
		q = strings.ReplaceAll(table(q), "MOOD", mood)
		for k, opt := range []RunOptions{{Use: Host}, {Device: gpu}} {
			out := filepath.Join(t.TempDir(), "out.parquet")
			_, err := SQL(q, nil).Write(out, sinkparquet.Options{}).Run(t.Context(), opt)
			require.NoError(t, err, "options %d: %s", k, q)
			requireRowsOf(t, duck, q, out, fmt.Sprintf("options %d: %s", k, q))
		}
	}
}

// TestEnumsSpill groups, joins and sorts rows with codes as keys and payload in less memory than they take.
func TestEnumsSpill(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	table := enumTable(t, duck, 3000)
	dir, spilled := t.TempDir(), int64(0)
	gpu := cudatest.Open(t, cuda.Options{Memory: 16 << 20})
	for _, q := range []string{
		"SELECT w, m, count(*) AS c, max(n) AS x FROM T GROUP BY w, m",
		"SELECT a.k, a.m, b.k AS other FROM T a JOIN T b ON a.w = b.w AND a.m = b.m AND a.k % 9 = 0",
		"SELECT k, m, n FROM T ORDER BY w, k",
	} {
		q = strings.ReplaceAll(table(q), "MOOD", mood)
		for k, opt := range []RunOptions{{Use: Host}, {Device: gpu}} {
			out := filepath.Join(t.TempDir(), "out.parquet")
			opt.SpillDir, opt.SpillAlways = dir, true
			report, err := SQL(q, nil).Write(out, sinkparquet.Options{}).Run(t.Context(), opt)
			require.NoError(t, err, "options %d: %s", k, q)
			spilled += report.Spill.Host.In + report.Spill.Disk.In
			requireRowsOf(t, duck, q, out, fmt.Sprintf("options %d: %s", k, q))
		}
	}
	require.Positive(t, spilled)
}

// TestEnumsInFiles checks that an ENUM is annotated and dictionary-encoded in Parquet, a dictionary in Arrow, and text
// elsewhere.
func TestEnumsInFiles(t *testing.T) {
	dir := t.TempDir()
	query := "SELECT m::ENUM('sad', 'ok') AS m, [m::ENUM('sad', 'ok')] AS l FROM (VALUES ('ok'), (NULL), ('sad')) t(m)"
	var c Collector
	_, err := SQL(query, nil).WriteTo(&c).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.Equal(t, []string{`ok|["ok"]`, "(null)|[null]", `sad|["sad"]`}, textOf(&c))
	d := c.Schema().Field(0).Type.(*arrow.DictionaryType)
	require.True(t, d.Ordered)
	require.Equal(t, arrow.PrimitiveTypes.Uint8, d.IndexType)
	records, err := c.Reader()
	require.NoError(t, err)
	var again Collector
	in, err := ReadArrow(records)
	require.NoError(t, err)
	_, err = New("again").ReadTable("t", in).Select("m", "m = 'ok' AS x").WriteTo(&again).
		Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.Equal(t, []string{"ok|true", "(null)|(null)", "sad|false"}, textOf(&again))

	text := filepath.Join(dir, "out.csv")
	_, err = SQL(query, nil).WriteWith(Output{CSV: Path(text)}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	got, err := os.ReadFile(text)
	require.NoError(t, err)
	require.Equal(t, "m,l\nok,[ok]\n,[NULL]\nsad,[sad]\n", string(got))

	duck := exprtest.StartDuckDB(t)
	out := filepath.Join(dir, "out.parquet")
	_, err = SQL("SELECT m FROM ("+query+"), range(300)", nil).Write(out, sinkparquet.Options{}).
		Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	answers := duck.Ask(exprtest.Question{SQL: "SELECT converted_type, logical_type FROM parquet_schema('" + out +
		"') WHERE name = 'm'"}, exprtest.Question{SQL: "SELECT encodings FROM parquet_metadata('" + out +
		"') WHERE path_in_schema = 'm'"})
	require.Equal(t, "ENUM", *answers[0].Rows[0][0])
	require.Contains(t, *answers[1].Rows[0][0], "DICTIONARY")
}

func TestMistakesWithEnumsAreSaid(t *testing.T) {
	for sql, want := range map[string]string{
		"SELECT x::ENUM('a', 'b') AS y FROM (SELECT 'c' AS x)":               "there is no 'c' in ENUM('a', 'b')",
		"SELECT ['c']::ENUM('a', 'b')[] AS y":                                "there is no 'c' in ENUM('a', 'b')",
		"SELECT CASE WHEN x THEN 'c'::ENUM('a') END FROM (SELECT true AS x)": "there is no 'c' in ENUM('a')",
		"SELECT 'a'::ENUM('a', 'a')":                                         `the ENUM has "a" twice`,
		"SELECT 'a'::ENUM()":                                                 "expected a text of the ENUM",
		"SELECT 1::ENUM('a')":                                                "cannot cast INTEGER to ENUM('a')",
		"SELECT 'a'::ENUM('a') + 1":                                          "no operator + for ENUM('a') and INTEGER",
		"SELECT sum('a'::ENUM('a'))":                                         "sum needs a number, found ENUM('a')",
		"SELECT 'a'::ENUM('a') = 1":                                          "cannot compare ENUM('a') with INTEGER",
		"SELECT enum_code('a')":                                              "enum_code needs an ENUM, found VARCHAR",
		"SELECT enum_range_boundary('a'::ENUM('a'), 'b'::ENUM('b'))":         "needs two values of one ENUM",
	} {
		var c Collector
		_, err := SQL(sql, nil).WriteTo(&c).Run(t.Context(), RunOptions{Use: Host})
		require.ErrorContains(t, err, want, sql)
	}
	var c Collector
	_, err := SQL("SELECT CASE WHEN x THEN 'c'::ENUM('a') END AS y FROM (SELECT false AS x)", nil).WriteTo(&c).
		Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
}

func TestCreatedTypes(t *testing.T) {
	var s Session
	for _, x := range []struct{ sql, want string }{
		{"CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE VIEW v AS SELECT 'ok'::Mood AS m", ""},
		{"SELECT m, m < 'sad'::mood AS b, ['sad'::\"mood\"] AS l FROM v", `ok|false|["sad"]`},
		{"CREATE TYPE IF NOT EXISTS mood AS INTEGER; SELECT typeof('sad'::mood) AS t", "ENUM('sad', 'ok')"},
		{"CREATE TYPE mood AS INTEGER", `there is a type "mood" already; CREATE OR REPLACE replaces it`},
		{"CREATE OR REPLACE TYPE mood AS ENUM ('ok')", ""},
		{"SELECT typeof('ok'::mood) AS a, typeof(m) AS b FROM v", "ENUM('ok')|ENUM('sad', 'ok')"},
		{"SELECT 1::moods", `unknown type "moods"`},
		{"CREATE TYPE x ('a')", "expected AS and a type"},
	} {
		list, err := s.Parse("", x.sql, nil)
		if err != nil {
			require.NotEmpty(t, x.want)
			require.ErrorContains(t, err, x.want)
			continue
		}
		for _, st := range list {
			require.NoError(t, st.Apply(t.Context()), x.sql)
			if st.Kind != QueryStatement {
				continue
			}
			j, err := st.Job()
			require.NoError(t, err, x.sql)
			var c Collector
			p, err := NewPlanWith(t.Context(), j, PlanOptions{Target: &c})
			require.NoError(t, err, x.sql)
			_, err = p.Run(t.Context(), RunOptions{Use: Host})
			require.NoError(t, err, x.sql)
			require.NoError(t, p.Close())
			require.Equal(t, []string{x.want}, textOf(&c), x.sql)
		}
	}
}
