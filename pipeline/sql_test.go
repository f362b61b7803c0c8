package pipeline

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr/exprtest"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// sqlTables makes the tables of testdata/queries.sql: t and u with nulls, and e without rows.
func sqlTables(duck *exprtest.DuckDB, dir string) map[string]string {
	paths, statements := map[string]string{}, []string{
		`CREATE TABLE t AS SELECT i::INT AS a, CASE WHEN i % 3 = 0 THEN NULL ELSE i % 5 END::INT AS b,
			CASE WHEN i % 4 = 0 THEN NULL ELSE 's' || (i % 6) END AS s, (i * 7 % 11)::DECIMAL(10, 2) / 3 AS d,
			DATE '2020-01-01' + (i % 9)::INT AS dt FROM range(40) r(i)`,
		`CREATE TABLE u AS SELECT (i % 17)::INT AS a, CASE WHEN i % 5 = 0 THEN NULL ELSE i % 4 END::INT AS b,
			's' || (i % 8) AS s, i AS n FROM range(25) r(i)`,
		`CREATE TABLE e (a INT, b INT, s VARCHAR)`}
	for _, name := range []string{"t", "u", "e"} {
		paths[name] = filepath.Join(dir, name+".parquet")
		statements = append(statements, fmt.Sprintf("COPY %s TO '%s' (FORMAT parquet)", name, paths[name]))
	}
	duck.Run(statements...)
	return paths
}

// sqlPlan plans a query over tables, and checks the tree after each rule.
func sqlPlan(t *testing.T, query string, paths map[string]string, out Target) (*Plan, error) {
	p, faults, err := checkedPlan(t.Context(), query, paths, out)
	require.Empty(t, faults, query)
	return p, err
}

// checkedPlan plans a query over tables, and returns faults of the tree after a rule.
func checkedPlan(ctx context.Context, query string, paths map[string]string, out Target) (p *Plan, faults string,
	err error) {
	b := New("sql")
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		b.Read(name, paths[name])
	}
	j := b.SQL(query).Job()
	checked := func(r logical.Rule, before, after rel.Output) {
		err := rel.Check(after)
		if err == nil {
			err = rel.SameRows(before, after)
		}
		if err != nil && faults == "" {
			faults = fmt.Sprintf("%v after %s:\n%s\nbefore:\n%s", err, r.Name, rel.Print(after.Root),
				rel.Print(before.Root))
		}
	}
	p, err = newPlanOf(ctx, j, nil, out, nil, PlanOptions{applied: checked})
	return p, faults, err
}

// TestSQLGivesDuckDBsRows runs the queries of testdata/queries.sql, in short strides and with spilling on the CPU, and
// some on the GPU.
func TestSQLGivesDuckDBsRows(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	t.Parallel()
	duck := exprtest.StartDuckDB(t)
	paths := sqlTables(duck, t.TempDir())
	text, err := os.ReadFile("testdata/queries.sql")
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(gputest.SeedOr(t, 1), 12))
	device := cudatest.Open(t, cuda.Options{Memory: 64 << 20})
	queries := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Greater(t, len(queries), 100)
	for i, query := range queries {
		answer := duck.Ask(exprtest.Question{SQL: query, Optimize: true})[0]
		require.Empty(t, answer.Error, query)
		var out collected
		p, err := sqlPlan(t, query, paths, &out)
		require.NoError(t, err, query)
		dev, err := host.Open(host.Options{Threads: 2, Memory: 1 << 28})
		require.NoError(t, err)
		runs := []RunOptions{{Device: smallStrides{dev, 1 + r.IntN(30)}, Threads: 1 + r.IntN(3), SpillDir: t.TempDir(),
			SpillAlways: r.IntN(3) == 0}}
		if gputest.Takes(gputest.ThinOr(t, 6), i) {
			runs = append(runs, RunOptions{Device: device})
		}
		for _, opt := range runs {
			_, err = p.Run(t.Context(), opt)
			require.NoError(t, err, query)
			sameRows(t, query, answer.Rows, &out)
		}
		if gputest.Takes(gputest.ThinOr(t, 6), i+1) {
			_, err = inTasks(t, p, RunOptions{Use: Host, Threads: 1, HostMemory: 1 << 28}, 4)
			require.NoError(t, err, query)
			sameRows(t, query, answer.Rows, &out)
		}
		require.NoError(t, p.Close())
		require.NoError(t, dev.Close())
	}
}

// sameRows compares rows, whatever their order.
func sameRows(t *testing.T, query string, theirs [][]*string, out *collected) {
	t.Helper()
	want, got := normalized(theirs, out.types), normalized(out.rows, out.types)
	slices.SortFunc(want, slices.Compare)
	slices.SortFunc(got, slices.Compare)
	same := slices.EqualFunc(want, got, func(x, y []string) bool {
		for k := range x {
			if !near(x[k], y[k], out.types[k], nil, k) {
				return false
			}
		}
		return true
	})
	assert.True(t, same, "%s\n%s", query, diffRows(want, got))
}

// TestSQLIsRefusedAtItsPlace has mistakes, and the words of their messages.
func TestSQLIsRefusedAtItsPlace(t *testing.T) {
	dir := t.TempDir()
	table := func(columns ...gpu.Field) declaredTable { return declaredTable{&gpu.Schema{Fields: columns}} }
	number := func(name string) gpu.Field { return gpu.Field{Name: name, Type: gpu.Of(gpu.Int32), Nullable: true} }
	for query, want := range map[string]string{
		"SELECT x FROM t":                             `column 8: there is no column "x"`,
		"SELECT a FROM tt":                            `there is no table "tt" (did you mean "t"?)`,
		"SELECT a, sum(b) FROM t":                     `column "a" is neither a key of GROUP BY`,
		"SELECT * FROM t GROUP BY a":                  `column "b" is neither a key of GROUP BY`,
		"SELECT sum(a), entropies(b) FROM t":          `there is no function "entropies"`,
		"SELECT (SELECT a, b FROM t)":                 "must have one column, and this one has 2",
		"SELECT a FROM t, t":                          `there are two tables "t"`,
		"SELECT a FROM t UNION SELECT a, b FROM t":    "as many columns on both sides",
		"SELECT (SELECT max(b) FROM range(2)) FROM t": "an aggregate of columns of the query around",
		"SELECT a FROM t ORDER BY 2":                  "ORDER BY 2 is out of range",
		"SELECT a FROM t WHERE sum(a) > 1":            "sum",
		"SELECT sum(a) OVER w FROM t":                 `there is no window "w"`,
		"CREATE MACRO m(x) AS (SELECT max(b) FROM t WHERE a = x); SELECT m(a) FROM t": "its arguments are constants",

		"PIVOT range(2001) ON range USING count(*)":    "column 22: PIVOT makes more than 2000 columns",
		"PIVOT t ON b IN (1, '1') USING sum(a)":        "column 21: the value 1 is there twice",
		"SELECT (PIVOT (SELECT t.a) ON a) FROM t":      "needs its values",
		"SELECT a AS x, x + y AS y FROM t":             "uses itself",
		"SELECT * FROM range(1, 2, 0)":                 "cannot be 0",
		"SELECT a FROM t LIMIT -1":                     "LIMIT cannot be negative",
		"SELECT a FROM t LIMIT (SELECT 1) + a":         `column 36: there is no column "a"`,
		"SELECT a FROM t LIMIT 101%":                   "column 23: LIMIT in percent is between 0 and 100",
		"CREATE MACRO f(x) AS x + 1; SELECT f(1, 2)":   "has 1 parameters, found 2 arguments",
		"SELECT 1; SELECT 2":                           "has no effect",
		"SELECT a FROM t WHERE (a, b) = (1, 2, 3)":     "a row of as many values",
		"SELECT t.a FROM t ASOF JOIN t u ON t.a = u.a": "an ASOF join needs an inequality",
	} {
		b := New("sql").ReadTable("t", table(number("a"), number("b"))).SQL(query).Write(filepath.Join(dir, "x"),
			ParquetOptions{})
		_, err := b.Plan()
		if assert.Error(t, err, query) {
			assert.Contains(t, err.Error(), want, query)
		}
	}
}

// TestPivotReadsItsValues pivots a folder of which a plan opens the files that it needs, and a source that is missing.
func TestPivotReadsItsValues(t *testing.T) {
	dir := t.TempDir()
	run := func(query string) [][]*string {
		var out collected
		_, err := SQL(query, nil).WriteTo(&out).Run(t.Context(), RunOptions{Use: Host})
		require.NoError(t, err, query)
		return out.rows
	}
	text := fmt.Sprintf("COPY (SELECT range AS v, range %% 3 AS y FROM range(9)) TO '%s/t/' (PARTITION_BY (y))", dir)
	_, err := SQL(text, nil).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	values := func(row []*string) (list []string) {
		for _, v := range row {
			list = append(list, *v)
		}
		return list
	}
	rows := run(fmt.Sprintf(`SELECT "0", "1", "2" FROM (PIVOT '%s/t' ON y USING sum(v))`, dir))
	require.Len(t, rows, 1)
	require.Equal(t, []string{"9", "12", "15"}, values(rows[0]))
	rows = run("PIVOT (FROM '" + dir + "/t' WHERE y > 1) ON v IN (SELECT range * 5 FROM range(2)) USING count(*)")
	require.Len(t, rows, 1)
	require.Equal(t, []string{"2", "0", "1"}, values(rows[0]))

	job := func(query string) error {
		path := filepath.Join(dir, "job.yaml")
		require.NoError(t, os.WriteFile(path, []byte("sources: {s: {parquet: none.parquet, schema: {a: INTEGER, b: "+
			"VARCHAR}}}\nsteps:\n- sql: "+query+"\noutput: {parquet: out.parquet}\n"), 0o600))
		j, err := Load(path, LoadOptions{})
		require.NoError(t, err)
		return Lint(j, LintOptions{})
	}
	require.NoError(t, job("SELECT x FROM (PIVOT s ON b USING sum(a))"))
	require.ErrorContains(t, job("SELECT x FROM (PIVOT s ON c USING sum(a))"), `there is no column "c"`)
}

// TestASubqueryOfSeveralRowsFails where a row needs its value. The message has its place.
func TestASubqueryOfSeveralRowsFails(t *testing.T) {
	for query, column := range map[string]int{
		"SELECT (SELECT range FROM range(3))": 8,
		"SELECT range FROM range(5) r WHERE range = (SELECT s.range FROM range(9) s WHERE s.range > r.range)": 44,
		"SELECT range FROM range(5) WHERE (range, 1) = (SELECT range, 1 FROM range(2))":                       47,
		"SELECT 1 FROM range(4) r WHERE range > 3 OR range = (SELECT range FROM range(2))":                    53,
		"SELECT 1 FROM range(9) r WHERE range > 3 AND (SELECT 1 FROM range(9) s WHERE s.range > 2) = 1":       46,
	} {
		for _, opt := range []RunOptions{{Use: Host}, {Device: cudatest.Open(t, cuda.Options{Memory: 64 << 20})}} {
			_, err := SQL("\n"+query, nil).WriteTo(&collected{}).Run(t.Context(), opt)
			require.ErrorIs(t, err, ErrData, query)
			require.ErrorContains(t, err, fmt.Sprintf("line 2, column %d: a subquery that is a value has more "+
				"than one row", column), query)
			require.ErrorContains(t, err, "^", query)
		}
	}
}

// TestASampleIsTheSameInEachRun takes samples with a seed, on one thread and on several.
func TestASampleIsTheSameInEachRun(t *testing.T) {
	rows := func(query string, threads int) [][]string {
		var out collected
		d, err := host.Open(host.Options{Threads: threads, Memory: 1 << 28})
		require.NoError(t, err)
		_, err = SQL(query, nil).WriteTo(&out).Run(t.Context(), RunOptions{Device: smallStrides{d, 7},
			Threads: threads})
		require.NoError(t, err, query)
		require.NoError(t, d.Close())
		list := normalized(out.rows, out.types)
		slices.SortFunc(list, slices.Compare)
		return list
	}
	for query, want := range map[string]struct{ least, most int }{
		"FROM range(2000) USING SAMPLE 10 PERCENT (bernoulli, 42)":                          {150, 250},
		"SELECT * FROM range(2000) t TABLESAMPLE reservoir(100 ROWS) REPEATABLE (7)":        {100, 100},
		"SELECT * FROM range(2000) WHERE range < 1000 USING SAMPLE 100 ROWS (reservoir, 1)": {20, 80},
		"FROM range(50) USING SAMPLE 100 ROWS (reservoir, 1)":                               {50, 50},
		"FROM range(50) USING SAMPLE 0 PERCENT (bernoulli, 1)":                              {0, 0},
	} {
		one := rows(query, 1)
		require.GreaterOrEqual(t, len(one), want.least, query)
		require.LessOrEqual(t, len(one), want.most, query)
		require.Equal(t, one, rows(query, 3), query)
	}
	require.NotEqual(t, rows("FROM range(2000) USING SAMPLE 10 PERCENT (bernoulli, 1)", 1),
		rows("FROM range(2000) USING SAMPLE 10 PERCENT (bernoulli, 2)", 1))
}
