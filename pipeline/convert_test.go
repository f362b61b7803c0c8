package pipeline

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/operators/expr/exprtest"
)

// TestRandomPipelinesAsSQLHaveTheirRows converts pipelines to SQL, and compares the rows. Steps that only the next step
// reads lose their names, so that they become one SELECT where that is possible.
func TestRandomPipelinesAsSQLHaveTheirRows(t *testing.T) {
	t.Parallel()
	d := &pipelineDuel{t: t, dir: t.TempDir()}
	first, cases := gputest.SeedOr(t, 1), gputest.Cases(t, 150)
	converted, compared := 0, 0
	for seed := first; seed < first+uint64(cases); seed++ {
		c := drawCase(rand.New(rand.NewPCG(seed, 7)))
		b := New("random")
		for _, table := range c.tables {
			d.writeFile(table)
			b.Read(table.name, d.path(table))
		}
		for i := range c.steps {
			b.job.Steps = append(b.job.Steps, c.steps[i].job()...)
		}
		b.job.Steps = withoutNames(b.job.Steps)
		text, err := ToSQL(t.Context(), b.Job())
		if err != nil {
			continue
		}
		converted++
		var want, got collected
		opt := RunOptions{Use: Host, Threads: 2}
		if _, err := FromJob(b.Job()).WriteTo(&want).Run(context.Background(), opt); err != nil {
			continue
		}
		_, err = SQL(text, nil).WriteTo(&got).Run(context.Background(), opt)
		require.NoError(t, err, "GSTREAM_SEED=%d: %s", seed, text)
		last := c.steps[len(c.steps)-1].verb
		ordered := last == "sort" || last == "top"
		for _, col := range c.columns {
			ordered = ordered && col.exact
		}
		kind, differs := answersDiffer(answerOf(&want), &got, nil, ordered, c.columns)
		require.Empty(t, kind, "GSTREAM_SEED=%d: %s\n%s", seed, differs, text)
		compared++
	}
	t.Logf("%d of %d pipelines converted, rows of %d compared", converted, cases, compared)
	if cases >= 100 {
		require.Greater(t, compared, cases/3)
	}
}

// answerOf returns rows as those of DuckDB.
func answerOf(c *collected) (a exprtest.Answer) {
	for _, t := range c.types {
		name := t.String()
		if t.Kind == gpu.Timestamp && t.UTC {
			name = "TIMESTAMP WITH TIME ZONE"
		}
		a.Types = append(a.Types, name)
	}
	a.Rows = c.rows
	return a
}

// withoutNames removes the names of steps that only the next step reads.
func withoutNames(steps []Step) []Step {
	readers := map[string]int{}
	for _, s := range steps {
		readers[s.From]++
		if s.Join != nil {
			readers[s.Join.With]++
		}
		for _, u := range s.Union {
			readers[u]++
		}
	}
	for i := range steps[:len(steps)-1] {
		if s, next := &steps[i], &steps[i+1]; next.From == s.Name && readers[s.Name] == 1 {
			s.Name, next.From = "", ""
		}
	}
	return steps
}

func TestJobsAsSQL(t *testing.T) {
	dir := t.TempDir()
	text := "SELECT i, i % 3 AS k, 'text ' || i AS s FROM range(10) t(i)"
	path := filepath.Join(dir, "t.parquet")
	_, err := SQL(text, nil).Write(path, ParquetOptions{}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	t.Setenv("SECRET", "s3")
	for _, c := range []struct{ name, job, want string }{
		{"one SELECT", `
vars: {least: 2}
memory: {host: 3GiB, spill: {dir: none}}
steps:
  - filter: i >= ${least}
  - filter: k = 1 or k = 2
  - group: {by: [k as key], aggregates: {n: count(*), most: max(s)}}
  - filter: n > 1
  - sort: key desc
  - limit: {count: 5, offset: 1}
output: {parquet: out/, files: 2, compression: zstd, bloom_filters: [key, n], overwrite: true}
`, `SET host_memory = '3GiB';
SET spill_dir = 'none';
COPY (
  SELECT k as key, count(*) AS n, max(s) AS most
  FROM '$/t.parquet' AS t
  WHERE i >= 2
    AND (k = 1 or k = 2)
  GROUP BY ALL
  HAVING n > 1
  ORDER BY key desc
  LIMIT 5 OFFSET 1
) TO '$/out/' (COMPRESSION zstd, BLOOM_FILTERS (key, n), FILES 2, OVERWRITE);
`},
		{"a condition on a column that hides one of the input", `
steps:
  - group: {by: [k], aggregates: {i: sum(i)}}
  - filter: i > 10
  - select: [i + 1 as i, k]
  - sort: i + 1
`, `SELECT *
FROM (
  SELECT i + 1 as i, k
  FROM (
    SELECT k, sum(i) AS i
    FROM '$/t.parquet' AS t
    GROUP BY ALL
  ) AS rows
  WHERE i > 10
) AS rows
ORDER BY i + 1;
`},
		{"grouping sets", `
steps:
  - group: {by: [k, i % 2 as odd], sets: [[k, odd], [odd], []], aggregates: {n: count(*), g: "grouping(k, odd)"}}
  - group: {by: [k % 2 as k, n], cube: true, aggregates: {c: count(*)}}
`, `SELECT k % 2 as k, n, count(*) AS c
FROM (
  SELECT k, i % 2 as odd, count(*) AS n, grouping(k, odd) AS g
  FROM '$/t.parquet' AS t
  GROUP BY GROUPING SETS ((k, odd), (odd), ())
) AS rows
GROUP BY CUBE (k % 2, n);
`},
		{"joins", `
steps:
  - {name: few, from: t, filter: i < 3}
  - {from: t, filter: i > 0}
  - join: {with: few, as: f, kind: left, on: [t.k = f.k, t.i > f.i], algorithm: npj}
  - select: [t.i, t.s, f.s as fs]
  - {join: {with: few, as: g, kind: full, using: i}}
  - select: [i, fs, g.s as gs]
`, `-- left out, since SQL does not say it: algorithm: npj of the join of step "join 3"
WITH few AS (
  SELECT *
  FROM '$/t.parquet' AS t
  WHERE i < 3
)
SELECT i, fs, g.s as gs
FROM (
  SELECT t.i, t.s, f.s as fs
  FROM (
    SELECT *
    FROM '$/t.parquet' AS t
    WHERE i > 0
  ) AS t
  LEFT JOIN few AS f ON t.k = f.k AND t.i > f.i
) AS rows
FULL JOIN few AS g USING (i);
`},
		{"a query as a step", `
steps:
  - sql: SELECT k, count(*) AS n FROM t GROUP BY k;
  - sort: n
`, `WITH t AS (FROM '$/t.parquet')
SELECT *
FROM (
  SELECT k, count(*) AS n FROM t GROUP BY k
) AS rows
ORDER BY n;
`},
		{"no steps", "output: {parquet: out.parquet}\n", `COPY (
  SELECT *
  FROM '$/t.parquet' AS t
) TO '$/out.parquet';
`},
		{"a mark join", "steps:\n  - {from: t, join: {with: t, as: u, kind: mark, on: t.i = u.i}}\n",
			"job.yaml:3:5: join 1: a mark join has no form in SQL"},
		{"a value from the environment", "steps:\n  - filter: s = ${env:SECRET}\n",
			"job.yaml:3:5: filter 1: ${env:SECRET} is a value from the environment"},
		{"a position", "steps:\n  - group: {by: [2], aggregates: {n: count(*)}}\n",
			"the key 2 is the position of a column"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, "job.yaml")
			require.NoError(t, os.WriteFile(file, []byte("sources: {t: t.parquet}\n"+strings.TrimPrefix(c.job, "\n")),
				0o600))
			j, err := Load(file, LoadOptions{})
			require.NoError(t, err)
			got, err := ToSQL(t.Context(), j)
			if !strings.HasSuffix(c.want, ";\n") {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, strings.ReplaceAll(got, dir, "$"))
		})
	}
}
