package pipeline

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/operators/expr/exprtest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// nestedDraw draws nested types and values, as SQL.
type nestedDraw struct {
	*rand.Rand
	signs bool // there are zeros with a sign, which DuckDB's aggregates of nested values lose
}

var nestedLeaves = []gpu.Type{gpu.Of(gpu.Bool), gpu.Of(gpu.Int8), gpu.Of(gpu.Int32), gpu.Of(gpu.Int64),
	gpu.Of(gpu.Uint16), gpu.Of(gpu.Uint64), gpu.Of(gpu.HugeInt), gpu.Of(gpu.Float32), gpu.Of(gpu.Float64),
	gpu.DecimalOf(9, 2), gpu.DecimalOf(30, 4), gpu.Of(gpu.Date), gpu.TimeOf(gpu.Microsecond),
	gpu.TimestampOf(gpu.Microsecond, false), gpu.Of(gpu.String), gpu.Of(gpu.String), gpu.Of(gpu.Binary)}

func (d nestedDraw) leaf() gpu.Type { return nestedLeaves[d.IntN(len(nestedLeaves))] }

// typ draws a type of at most that depth.
func (d nestedDraw) typ(depth int) gpu.Type {
	if depth == 0 {
		return d.leaf()
	}
	switch d.IntN(4) {
	case 0:
		fields := make([]gpu.Field, 1+d.IntN(3))
		for i := range fields {
			fields[i] = gpu.Field{Name: string(rune('a' + i)), Type: d.typ(d.IntN(depth))}
		}
		fields[d.IntN(len(fields))].Type = d.typ(depth - 1)
		return gpu.StructOf(fields...)
	case 1:
		return gpu.MapOf([]gpu.Type{gpu.Of(gpu.String), gpu.Of(gpu.Int64)}[d.IntN(2)], d.typ(depth-1))
	}
	return gpu.ListOf(d.typ(depth - 1))
}

// value draws a value.
func (d nestedDraw) value(t gpu.Type) string {
	if d.IntN(6) == 0 {
		return "NULL"
	}
	list := func(element gpu.Type) string {
		elements := make([]string, d.IntN(4))
		for i := range elements {
			elements[i] = d.value(element)
		}
		return "[" + strings.Join(elements, ", ") + "]"
	}
	switch t.Kind {
	case gpu.List:
		return list(t.Element())
	case gpu.Struct:
		var fields []string
		for _, c := range t.Children() {
			fields = append(fields, "'"+c.Name+"': "+d.value(c.Type))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case gpu.Map:
		var entries []string
		for i := range d.IntN(3) {
			key := strconv.Itoa(10*i + d.IntN(10))
			if t.Children()[0].Type.IsVar() {
				key = "'k" + key + "'"
			}
			entries = append(entries, key+": "+d.value(t.Children()[1].Type))
		}
		return "MAP {" + strings.Join(entries, ", ") + "}"
	}
	return d.leafValue(t) + "::" + t.String()
}

func (d nestedDraw) leafValue(t gpu.Type) string {
	switch t.Kind {
	case gpu.Bool:
		return []string{"true", "false"}[d.IntN(2)]
	case gpu.Float32, gpu.Float64:
		zero := "0.0e0"
		if d.signs {
			zero = "-" + zero
		}
		return []string{"1.5e0", zero, "0.0e0", "'nan'", "'-inf'", "-2.25e3"}[d.IntN(6)]
	case gpu.Date:
		return fmt.Sprintf("'%04d-02-03'", 1900+d.IntN(200))
	case gpu.Time:
		return fmt.Sprintf("'12:34:%02d.5'", d.IntN(60))
	case gpu.Timestamp:
		return fmt.Sprintf("'%04d-02-03 04:05:06.789'", 1900+d.IntN(200))
	case gpu.String:
		return []string{"''", "'x'", "'a''b,c'", "'länger'", "'x" + strconv.Itoa(d.IntN(50)) + "'"}[d.IntN(5)]
	case gpu.Binary:
		return []string{"''", `'\x00'`, `'\x00\xFF\x00\x00'`, `'ab\x01'`}[d.IntN(4)]
	case gpu.Decimal:
		return fmt.Sprintf("%d.25", d.IntN(2000)-1000)
	case gpu.Int8:
		return strconv.Itoa(d.IntN(200) - 100)
	case gpu.HugeInt:
		return strconv.Itoa(d.IntN(1000)-500) + "00000000000000000000"
	case gpu.Uint16, gpu.Uint64:
		return strconv.Itoa(d.IntN(60000))
	}
	return strconv.Itoa(d.IntN(2000) - 1000)
}

// nestedFile writes a table with an id, a number, and nested columns c0, c1, … by DuckDB.
func nestedFile(t *testing.T, duck *exprtest.DuckDB, d nestedDraw, rows, columns, depth int) string {
	types := make([]gpu.Type, columns)
	for i := range types {
		types[i] = d.typ(1 + d.IntN(depth))
	}
	var values []string
	for i := range rows {
		row := []string{strconv.Itoa(i), strconv.Itoa(d.IntN(7))}
		for _, typ := range types {
			row = append(row, d.value(typ)+"::"+typ.String())
		}
		values = append(values, "("+strings.Join(row, ", ")+")")
	}
	names := []string{"id", "g"}
	for i := range types {
		names = append(names, fmt.Sprint("c", i))
	}
	file := filepath.Join(t.TempDir(), "in.parquet")
	options := []string{"", ", ROW_GROUP_SIZE 2048", ", PARQUET_VERSION V2", ", COMPRESSION zstd"}[d.IntN(4)]
	// Distinct rows are written many times, so that there are pages, row groups and dictionaries.
	duck.Run(fmt.Sprintf("COPY (SELECT v.* REPLACE (id + %d * r AS id) FROM (VALUES %s) v(%s), range(%d) t(r) "+
		"ORDER BY id) TO '%s' (FORMAT parquet%s)", rows, strings.Join(values, ", "), strings.Join(names, ", "),
		1+d.IntN(200), file, options))
	return file
}

// nestedQueries move nested columns through operators. In and Out are files.
var nestedQueries = []string{
	"SELECT * FROM 'IN'",
	"SELECT * FROM 'IN' WHERE id % 3 <> 1",
	"SELECT c0, id FROM 'IN' WHERE g = 2 ORDER BY id DESC",
	"SELECT * FROM 'IN' ORDER BY g, id LIMIT 500",
	"SELECT a.id, a.c0, b.c1 FROM 'IN' a JOIN 'IN' b ON a.id = b.id + 1",
	"SELECT a.id, b.c1, b.c0 FROM 'IN' a LEFT JOIN (FROM 'IN' WHERE g = 1) b ON a.id = b.id",
	"SELECT id, c0 FROM 'IN' UNION ALL SELECT -id, c0 FROM 'IN'",
	"SELECT id, CASE WHEN g < 3 THEN c1 END AS c1, coalesce(c0, lag(c0) OVER (ORDER BY id)) AS c FROM 'IN'",
	"SELECT g, arg_min(c1, id) AS c, first(c0 ORDER BY id) AS f FROM 'IN' GROUP BY g",
	"SELECT id, c0 IS NULL AS n, c1 IS NOT NULL AS m FROM 'IN'",
}

// TestNestedColumnsPassThroughQueriesAsInDuckDB writes the rows of queries over nested columns, and lets DuckDB compare
// them with its own. GSTREAM_NESTED sets the number of tables.
func TestNestedColumnsPassThroughQueriesAsInDuckDB(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	tables := 3
	if n, err := strconv.Atoi(os.Getenv("GSTREAM_NESTED")); err == nil {
		tables = n
	}
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("GSTREAM_NESTED_SEED"), 10, 64); err == nil {
		seed = n
	}
	gpu := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	for n := range tables {
		d := nestedDraw{rand.New(rand.NewPCG(seed, uint64(n))), n%2 == 0}
		in := nestedFile(t, duck, d, 1+d.IntN(60), 2+d.IntN(2), 6)
		queries := nestedQueries
		if tables < 10 {
			queries = []string{queries[0], queries[1+d.IntN(len(queries)-1)], queries[1+d.IntN(len(queries)-1)]}
		}
		for _, q := range queries {
			if d.signs && strings.Contains(q, "GROUP BY") {
				continue
			}
			q = strings.ReplaceAll(q, "IN", "\x00")
			q = strings.ReplaceAll(q, "'\x00'", "'"+in+"'")
			q = strings.ReplaceAll(q, "\x00", "IN")
			for k, opt := range []RunOptions{{Use: Host}, {Device: gpu}, {Use: Host, HostMemory: 24 << 20}} {
				out := filepath.Join(t.TempDir(), fmt.Sprint(k, ".parquet"))
				_, err := SQL(q, nil).Write(out, sinkparquet.Options{RowGroupRows: 3000}).Run(t.Context(), opt)
				require.NoError(t, err, "seed %d, table %d, options %d: %s", seed, n, k, q)
				requireSameRows(t, duck, q, out, fmt.Sprintf("seed %d, table %d, options %d: %s", seed, n, k, q))
			}
		}
	}
}

// requireSameRows checks that a file has the types and rows of a query, in any order.
func requireSameRows(t *testing.T, duck *exprtest.DuckDB, query, file, what string) {
	t.Helper()
	types := "SELECT string_agg(column_name || ' ' || column_type, ', ') FROM (DESCRIBE "
	answers := duck.Ask(exprtest.Question{SQL: types + query + ")"},
		exprtest.Question{SQL: types + "FROM '" + file + "')"})
	for i, a := range answers {
		require.Empty(t, a.Error, "%s: question %d", what, i)
	}
	require.Equal(t, answers[0].Rows, answers[1].Rows, what)
	requireRowsOf(t, duck, query, file, what)
}

// requireRowsOf checks the rows alone. Which of 0.0 and -0.0 stands for a group depends on the order of its rows.
func requireRowsOf(t *testing.T, duck *exprtest.DuckDB, query, file, what string) {
	t.Helper()
	row := "t::VARCHAR"
	if strings.Contains(query, "GROUP BY") || strings.Contains(query, "DISTINCT") {
		row = `regexp_replace(t::VARCHAR, '-0\.0\b', '0.0', 'g')`
	}
	rows := "SELECT md5(string_agg(x, ';' ORDER BY x)), count(*) FROM (SELECT " + row + " AS x FROM "
	answers := duck.Ask(exprtest.Question{SQL: rows + "(" + query + ") t)"},
		exprtest.Question{SQL: rows + "'" + file + "' t)"})
	for i, a := range answers {
		require.Empty(t, a.Error, "%s: question %d", what, i)
	}
	if reflect.DeepEqual(answers[0].Rows, answers[1].Rows) {
		return
	}
	text := "SELECT " + row + " FROM "
	both := duck.Ask(exprtest.Question{SQL: text + "(" + query + ") t ORDER BY ALL"},
		exprtest.Question{SQL: text + "'" + file + "' t ORDER BY ALL"})
	for i := range min(len(both[0].Rows), len(both[1].Rows)) {
		require.Equal(t, *both[0].Rows[i][0], *both[1].Rows[i][0], what)
	}
	require.Len(t, both[1].Rows, len(both[0].Rows), what)
}

// nestedExpressions are queries over functions of nested values. IN is a table of shop orders.
var nestedExpressions = []string{
	"SELECT id, s.a, s.c.d AS d, s.c.e[1] AS e, l[1] AS f, l[-1] AS g, len(l) AS n, m['k3'] AS k FROM 'IN'",
	"SELECT id FROM 'IN' WHERE s.a % 5 = 2 AND s.c.d < 600",
	"SELECT s.b, count(*) AS n, max(s.a) AS a FROM 'IN' GROUP BY s.b",
	"SELECT s, s.c FROM 'IN' WHERE s.c.d > 1400",
	"SELECT a.s.a, b.s.b FROM 'IN' a JOIN 'IN' b ON a.s.a = b.s.a + 1 WHERE b.s.b IS NOT NULL",
	"SELECT id, map_keys(m) AS k, map_values(m) AS v, cardinality(m) AS n, flatten(ll) AS f FROM 'IN'",
	"SELECT id, l[2:] AS a, l[:2] AS b, l[-2:-1] AS c, l || [id] AS d, list_append(l, 7) AS e FROM 'IN'",
	"SELECT id, list_contains(l, 3) AS a, list_position(l, id) AS b, ls[1].q[1] AS c FROM 'IN'",
	"SELECT id, {'x': id, 'y': l, 'z': {'s': s.b}} AS st, [id, NULL, id + 1] AS li, MAP {'k': l} AS ma FROM 'IN'",
	"SELECT id % 7 AS g, list(id ORDER BY id) AS a, list(s.b ORDER BY id DESC) FILTER (WHERE id % 2 = 0) AS b, " +
		"array_agg(l ORDER BY id) AS c FROM 'IN' GROUP BY ALL",
	"SELECT l, count(*) AS n FROM (SELECT [id % 3, NULL] AS l FROM 'IN') GROUP BY l",
	"SELECT DISTINCT [s.a % 4] AS k, {'b': s.a % 2} AS st FROM 'IN'",
	"SELECT a.id, b.id AS other FROM 'IN' a JOIN 'IN' b ON a.l = b.l AND a.id < b.id",
	"SELECT id FROM 'IN' WHERE l = [1, NULL, 2] OR s = {'a': 3, 'b': NULL, 'c': {'d': 4.5, 'e': [3, NULL]}}",
	"SELECT id, l < [500] AS a, l IS NOT DISTINCT FROM NULL AS b, [s.c.d * 0e0] = [-0e0] AS c FROM 'IN'",
	"SELECT id, min(l) OVER (ORDER BY id ROWS 3 PRECEDING) AS a FROM 'IN'",
	"SELECT id, unnest(l) AS x FROM 'IN'",
	"SELECT s.b, unnest(ls).q[1] AS q, l FROM 'IN' WHERE id % 2 = 0",
	"SELECT x, count(*) AS n FROM (SELECT unnest(flatten(ll)) AS x FROM 'IN' WHERE id < 700) GROUP BY x",
	"SELECT id, x, y FROM 'IN' AS t, unnest(t.ll) AS u(x), unnest(x) AS v(y) WHERE y IS NOT NULL AND id > 3",
	"SELECT a.id, u.x.p AS p FROM 'IN' a CROSS JOIN unnest(a.ls) AS u(x) JOIN 'IN' b ON b.id = a.id WHERE b.s.a < 90",
	"SELECT g, list(x ORDER BY x DESC, id) AS l FROM (SELECT id, id % 5 AS g, unnest(l) AS x FROM 'IN') GROUP BY g",
	"SELECT x FROM unnest([1, NULL, 3]) AS u(x)",
	"SELECT k, m[k] AS v FROM 'IN', unnest(map_keys(m)) AS u(k)",
	"SELECT id, list_transform(l, lambda x, i: x + i * s.a) AS a, [y.p || s.b FOR y IN ls] AS b FROM 'IN'",
	"SELECT id FROM 'IN' WHERE list_count(list_filter(l, lambda x: x % 3 = id % 2)) > 0 OR list_sum(l) > 1900",
	"SELECT list_sort(list_transform(l, lambda x: x % 4), 'DESC') AS k, count(*) AS n, max(list_max(l)) AS m FROM " +
		"'IN' " +
		"GROUP BY list_sort(list_transform(l, lambda x: x % 4), 'DESC')",
	"SELECT a.id, b.id AS other FROM 'IN' a JOIN 'IN' b ON a.id = list_reduce(b.l, lambda c, x: x, 5) WHERE b.id < 70",
	"SELECT id, unnest(list_filter(flatten(ll), lambda x: x IS NOT NULL)) AS x FROM 'IN'",
	"SELECT id % 5 AS g, list_transform(list(id ORDER BY id), lambda x: x % 9)[1:7] AS a, list_avg(list(id)) AS b " +
		"FROM " +
		"'IN' GROUP BY ALL",
	"SELECT id, CASE WHEN id % 3 > 0 THEN list_transform([id, 3], lambda x: x // (id % 3)) END AS a FROM 'IN'",
	"SELECT y, list_transform(l, lambda x: x + y[1]) AS z FROM (SELECT l, list_transform(l, lambda x: x * 2) AS y " +
		"FROM " +
		"'IN')",
	"SELECT string_split(s.b, '1') AS a, map_entries(m) AS b, s::VARCHAR AS c, ll::VARCHAR AS d FROM 'IN'",
	"SELECT id, list_transform(l, lambda id: id + 1) AS z FROM 'IN' ORDER BY list_min(l), id LIMIT 50",
	"SELECT id, unnest(l) AS a, unnest(ls).p AS b, unnest([id, 7, 8]) AS c, unnest(l) + 1 AS d FROM 'IN'",
	"SELECT id % 4 AS g, unnest(list(id)) AS x, max(id) AS m FROM 'IN' GROUP BY id % 4 HAVING count(*) > 1",
	"SELECT unnest(flatten(ll)) AS u, count(*) AS n FROM 'IN' GROUP BY u",
	"SELECT id, x FROM 'IN' t LEFT JOIN unnest(t.l) u(x) ON x % 3 = t.id % 3",
	"SELECT id, json_group_array(s)::VARCHAR AS a, json_group_object(s.b, l)::VARCHAR AS b FROM 'IN' WHERE s.b <> '' " +
		"GROUP BY id",
	"SELECT json_group_array(id) IS NULL AS a, json_group_object(id, id) IS NULL AS b FROM 'IN' WHERE id < 0",
	"SELECT id, e.p FROM 'IN' LEFT JOIN unnest(ls) u(e) ON u.e.p > 5 AND id < 800",
	"SELECT k, count(*) AS n FROM (SELECT [CASE WHEN id % 3 = 0 THEN 0e0 ELSE -0e0 END] AS k FROM 'IN') GROUP BY k",
	"SELECT id, rank() OVER (ORDER BY [CASE WHEN id % 3 = 0 THEN 0e0 ELSE -0e0 END, id % 5]) AS r FROM 'IN'",
	"SELECT count(DISTINCT {'a': CASE WHEN id % 3 = 0 THEN 0e0 ELSE -0e0 END}) AS n FROM 'IN'",
	"SELECT id, list_resize(l, 3, id) AS a, repeat(l, id % 3) AS b, l[:-:nullif(id % 5 - 2, 0)] AS c, " +
		"list_mode(l) AS d, list_histogram(list_transform(l[:9], lambda x: x % 4)) AS e FROM 'IN'",
	"SELECT id, x, n FROM 'IN' LEFT JOIN unnest(l) WITH ORDINALITY AS u(x, n) ON true WHERE n IS NULL OR n > 2",
	"SELECT a.id, u.x, b.id AS other FROM 'IN' a JOIN unnest(a.l) AS u(x) ON x > a.id JOIN 'IN' b ON b.id = x",
	"SELECT id, o.k AS k, x.y AS y FROM (SELECT id, o, unnest(o.x) AS x FROM (SELECT id, unnest(lo) AS o FROM 'IN'))",
	"SELECT x.z, count(*) AS n, max(o.s.w) AS w FROM 'IN' AS t, unnest(t.lo) AS a(o), unnest(o.x) AS b(x) WHERE " +
		"o.s.v[1] > 40 GROUP BY x.z",
	"SELECT id, len(lo) AS n, len(lo[1].x) AS m, lo[1].x[1].y AS y, lo[-1].s.w AS w, lo[2].k AS k, lo IS NULL AS b, " +
		"lo[id % 5].x[-1].z AS z FROM 'IN'",
	"SELECT id, count(*) AS n FROM (SELECT id, unnest(lo) AS o FROM 'IN') GROUP BY id",
	"SELECT id, count(x) FROM (SELECT id, unnest(o.x) AS x FROM (SELECT id, unnest(lo) AS o FROM 'IN')) GROUP BY 1",
	"SELECT o.k, o FROM (SELECT unnest(lo) AS o FROM 'IN' WHERE id % 3 = 0)",
	"SELECT o.k, o.x, len(o.x) AS n FROM (SELECT unnest(lo) AS o FROM 'IN' WHERE id % 3 = 0) WHERE o.s IS NOT NULL",
	"WITH e AS (SELECT id, unnest(lo) AS o FROM 'IN') SELECT a.id, a.o.k, b.o.s.w FROM e a JOIN e b ON a.id = b.id " +
		"+ 1 AND a.o.k > b.o.k UNION ALL SELECT id, o.k, NULL FROM e",
	"SELECT id, [id % 99 - 3] = [(id % 5)::UTINYINT] AS a, list_contains([(id % 5)::UTINYINT], id - 4) AS b, " +
		"(INTERVAL 0 SECOND * CASE WHEN id % 2 = 0 THEN id END) <= INTERVAL 1 SECOND AS c FROM 'IN'",
	"SELECT id, id = ANY (l) AS a, id < ALL (l) AS b, id IN l AS c, id NOT IN ARRAY[3, id % 7] AS d, 'k9' IN m AS e, " +
		"concat(l, [id], NULL) AS f, concat_ws('-', ll[1], s.b, l, []) AS g, contains(l, id + 1) AS h FROM 'IN'",
	"SELECT id, TRY_CAST(MAP {s.b: id, 'x': 2} AS MAP(INTEGER, BIGINT)) AS a, " +
		"TRY_CAST(MAP {id::VARCHAR: 1, '07': 2} AS MAP(INTEGER, INTEGER)) AS b FROM 'IN' WHERE s.b <> 'x'",
	"SELECT t.id, u.k, u.n FROM 'IN' t LEFT JOIN (SELECT o.k, len(o.x) AS n FROM (SELECT unnest(lo) AS o FROM 'IN')) " +
		"u ON t.id = u.k + 1",
}

func TestExpressionsOfNestedValuesGiveDuckDBsRows(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	in := filepath.Join(t.TempDir(), "in.parquet")
	duck.Run(`COPY (SELECT i AS id, {'a': i, 'b': CASE WHEN i % 3 <> 0 THEN 'x' || (i % 10) END,
		'c': {'d': i * 1.5::DOUBLE, 'e': [i, NULL]}} AS s,
		CASE WHEN i % 5 = 0 THEN NULL WHEN i % 4 = 0 THEN [] ELSE [i, NULL, i + 1] END AS l,
		CASE WHEN i % 7 <> 0 THEN MAP {'k' || i: i, 'z': NULL} END AS m,
		CASE WHEN i % 6 <> 0 THEN [{'p': i, 'q': ['s' || i, NULL]}, NULL] END AS ls,
		CASE WHEN i % 6 <> 0 THEN [[i], [], NULL, [NULL, 2]] END AS ll,
		CASE WHEN i % 9 = 1 THEN NULL WHEN i % 9 = 2 THEN [] ELSE [{'k': i, 'x': [{'y': i, 'z': 'z' || (i % 7)}, NULL],
			's': {'v': [i], 'w': i * 2}}, NULL, {'k': NULL, 'x': NULL, 's': NULL}, {'k': -i, 'x': [], 's': {'v': NULL,
			'w': NULL}}] END AS lo
		FROM range(1000) t(i)) TO '` + in + `' (FORMAT parquet, ROW_GROUP_SIZE 300)`)
	requireDuckDBsRows(t, duck, in, nestedExpressions...)
}

// requireDuckDBsRows runs queries over a file, IN, on the CPU and the emulator, and compares the rows.
func requireDuckDBsRows(t *testing.T, duck *exprtest.DuckDB, in string, queries ...string) {
	gpu := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	for _, q := range queries {
		q = strings.ReplaceAll(q, "'IN'", "'"+in+"'")
		for k, opt := range []RunOptions{{Use: Host}, {Device: gpu}} {
			out := filepath.Join(t.TempDir(), "out.parquet")
			_, err := SQL(q, nil).Write(out, sinkparquet.Options{}).Run(t.Context(), opt)
			require.NoError(t, err, "options %d: %s", k, q)
			requireSameRows(t, duck, q, out, fmt.Sprintf("options %d: %s", k, q))
		}
	}
}

// randomNestedQueries are queries of random expressions: X and Y of any type, C and D conditions.
var randomNestedQueries = []string{
	"SELECT n, X AS x, Y AS y FROM 'IN' WHERE C",
	"SELECT X AS x, count(*) AS c, min(Y) AS y FROM 'IN' GROUP BY X",
	"SELECT x, n FROM (SELECT n, X AS x, C AS c FROM 'IN' WHERE D) WHERE c",
	"SELECT a.n, b.m FROM (SELECT n, X AS x FROM 'IN' WHERE C) a LEFT JOIN (SELECT n AS m, X AS x FROM 'IN') b ON " +
		"a.x = b.x",
	"SELECT DISTINCT X AS x, CASE WHEN C THEN Y END AS y FROM 'IN'",
	"SELECT n, x FROM (SELECT n, X AS x FROM 'IN') ORDER BY x, n LIMIT 4",
}

// TestRandomNestedQueriesGiveDuckDBsRows draws expressions over lists, structs and maps into queries.
//
//	GSTREAM_PYTHON=… GSTREAM_CASES=1000 go test ./pipeline -run RandomNested
func TestRandomNestedQueriesGiveDuckDBsRows(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	in := filepath.Join(t.TempDir(), "in.parquet")
	var rows []string
	for i, row := range exprtest.NestedRows {
		rows = append(rows, fmt.Sprintf("(%d, %s)", i, strings.Join(row, ", ")))
	}
	duck.Run("CREATE TABLE t (n INTEGER, "+strings.Join(exprtest.NestedColumns, ", ")+")",
		"INSERT INTO t VALUES "+strings.Join(rows, ", "), "COPY t TO '"+in+"' (FORMAT parquet)")
	gpu := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	first, n := gputest.SeedOr(t, 1), gputest.Cases(t, 8)
	for seed := first; seed < first+uint64(n); seed++ {
		r := rand.New(rand.NewPCG(seed, 29))
		g, depth := exprtest.NewNested(r), 1+r.IntN(3)
		q := strings.NewReplacer("X", g.Any(depth), "Y", g.Any(depth), "C", g.Condition(depth), "D", g.Condition(depth),
			"'IN'", "'"+in+"'", "SELECT", "SELECT", "DISTINCT", "DISTINCT", "JOIN", "JOIN", "CASE", "CASE", "BY", "BY",
			"ORDER", "ORDER", "AND", "AND", "END", "END").Replace(randomNestedQueries[r.IntN(len(randomNestedQueries))])
		if a := duck.Ask(exprtest.Question{SQL: q}); a[0].Error != "" {
			continue // such as an overflow
		}
		for k, opt := range []RunOptions{{Use: Host}, {Device: gpu}} {
			if k == 1 && n > 100 && seed%10 > 0 {
				continue
			}
			out := filepath.Join(t.TempDir(), "out.parquet")
			_, err := SQL(q, nil).Write(out, sinkparquet.Options{}).Run(t.Context(), opt)
			require.NoError(t, err, "GSTREAM_SEED=%d, options %d: %s", seed, k, q)
			requireSameRows(t, duck, q, out, fmt.Sprintf("GSTREAM_SEED=%d, options %d: %s", seed, k, q))
		}
	}
}
