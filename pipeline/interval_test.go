package pipeline

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/operators/expr/exprtest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// intervalQueries are queries of intervals as columns. IN has k, the moments ts and te, the interval d, of which some
// are equal but have other parts, and the text s.
var intervalQueries = []string{
	"SELECT k, d, te - ts AS e, {'d': d, 'l': [d, NULL]} AS n FROM 'IN' WHERE te >= ts",
	"SELECT count(*) AS n, min(k) AS k, avg(d) = min(d) AS a FROM 'IN' GROUP BY d",
	"SELECT count(DISTINCT d) AS n, epoch(min(d)) AS lo, epoch(max(d)) AS hi, round(epoch(avg(d)), 3) AS a FROM 'IN'",
	"SELECT k % 7 AS g, round(epoch(avg(d)), 3) AS a, round(epoch(avg(-d) FILTER (WHERE k % 3 = 0)), 3) AS b, " +
		"arg_min(k, d) AS m FROM 'IN' GROUP BY g",
	"SELECT epoch(d) AS e, k % 2 AS h, count(*) AS n FROM 'IN' GROUP BY ROLLUP (d, h)",
	"SELECT a.k, b.k AS other FROM 'IN' a JOIN 'IN' b ON a.d = b.d AND a.k < b.k",
	"SELECT k, other FROM 'IN' JOIN (SELECT k AS other, d FROM 'IN' WHERE k % 9 = 0) USING (d)",
	"SELECT k FROM 'IN' WHERE d NOT IN (SELECT d FROM 'IN' WHERE k % 5 = 1 AND d IS NOT NULL)",
	"SELECT k FROM 'IN' WHERE d > (SELECT avg(d) FROM 'IN')",
	"SELECT k, d FROM 'IN' ORDER BY d DESC NULLS LAST, k LIMIT 9",
	"SELECT k, rank() OVER (ORDER BY d) AS r, count(*) OVER (PARTITION BY d) AS c, lag(d) OVER (ORDER BY k) AS l, " +
		"max(d) OVER (ORDER BY k ROWS 3 PRECEDING) >= d AS m FROM 'IN'",
	"SELECT epoch(d) AS e FROM (SELECT d FROM 'IN' WHERE k < 50 UNION SELECT d FROM 'IN' WHERE k > 40)",
	"SELECT epoch(d) AS e FROM (SELECT d FROM 'IN' WHERE k < 50 INTERSECT SELECT d FROM 'IN' WHERE k > 40)",
	"SELECT DISTINCT epoch(d) AS e FROM (SELECT DISTINCT d FROM 'IN')",
	"SELECT k, ts + d AS a, ts::DATE - d AS b, extract(day FROM d) AS p, (d * 3)::VARCHAR AS q, (d / 7)::VARCHAR AS " +
		"r, d BETWEEN '1 day' AND INTERVAL 40 DAY AS s, d IN ('30 days', INTERVAL 1 HOUR) AS t FROM 'IN'",
	"SELECT k, CAST(s AS INTERVAL)::VARCHAR AS a, TRY_CAST('x' || s AS INTERVAL) AS b, coalesce(d, '1 day') AS c, " +
		"nullif(d, '30 days') AS e, d IS DISTINCT FROM '1 month' AS g FROM 'IN'",
	"SELECT k, unnest([d, INTERVAL 1 MONTH]) AS u, to_json(d)::VARCHAR AS j, [d]::VARCHAR AS v FROM 'IN'",
}

func TestIntervalsGiveDuckDBsRows(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	in := filepath.Join(t.TempDir(), "in.parquet")
	duck.Run(`COPY (SELECT *, (d - INTERVAL 2 DAY * (k % 3))::VARCHAR AS s FROM (SELECT i AS k,
		TIMESTAMP '2024-01-31 10:00:00' + to_days(i) AS ts, TIMESTAMP '2024-02-01' + to_hours(i * 37 % 2000) AS te,
		CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN to_months(i % 4) WHEN 2 THEN to_days(i % 4 * 30)
			WHEN 3 THEN to_hours(i % 4 * 720) ELSE to_months(i % 2) + to_milliseconds(i * 1001) END AS d
		FROM range(300) t(i))) TO '` + in + `' (FORMAT parquet, ROW_GROUP_SIZE 100)`)
	requireDuckDBsRows(t, duck, in, intervalQueries...)
}

// TestIntervalsSpill groups, joins and sorts rows with intervals as keys and payload in less memory than they take.
func TestIntervalsSpill(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	dir := t.TempDir()
	in := filepath.Join(dir, "in.parquet")
	duck.Run(`COPY (SELECT i AS k, to_days(i * 7 % 9973) AS d, to_months(i % 13) + to_seconds(i) AS e FROM range(12000) ` +
		`t(i)) TO '` + in + `' (FORMAT parquet)`)
	gpu := cudatest.Open(t, cuda.Options{Memory: 16 << 20})
	spilled := int64(0)
	for i, q := range []string{
		"SELECT d, count(*) AS n, max(epoch(e)) AS m FROM 'IN' GROUP BY d",
		"SELECT a.k, a.e, b.e AS f FROM 'IN' a JOIN 'IN' b ON a.d = b.d AND a.k % 3 = 0",
		"SELECT k, e FROM 'IN' ORDER BY d, k",
	} {
		q = strings.ReplaceAll(q, "'IN'", "'"+in+"'")
		for k, opt := range []RunOptions{{Use: Host}, {Device: gpu}} {
			out := filepath.Join(dir, fmt.Sprint(i, k, ".parquet"))
			opt.SpillDir, opt.SpillAlways = dir, true
			report, err := SQL(q, nil).Write(out, sinkparquet.Options{}).Run(t.Context(), opt)
			require.NoError(t, err, "options %d: %s", k, q)
			spilled += report.Spill.Host.In + report.Spill.Disk.In
			requireSameRows(t, duck, q, out, fmt.Sprintf("options %d: %s", k, q))
		}
	}
	require.Positive(t, spilled)
}

func TestIntervalsThatParquetCannotStoreAreRefused(t *testing.T) {
	for sql, want := range map[string]string{
		"SELECT INTERVAL '1.000001 seconds' AS d":                     "and this one has microseconds",
		"SELECT [-INTERVAL 1 MONTH] AS d":                             `column "d" has the interval -1 month, which Parquet cannot store`,
		"SELECT sum(x - x) FROM (SELECT TIMESTAMP '2024-01-01' AS x)": "there is no sum of intervals",
		"SELECT '1 day' || x::TIMETZ FROM (SELECT 'a' AS x)":          "there is no TIME WITH TIME ZONE",
	} {
		_, err := SQL(sql, nil).Write(filepath.Join(t.TempDir(), "out.parquet"), sinkparquet.Options{}).Run(t.Context(),
			RunOptions{Use: Host})
		require.ErrorContains(t, err, want, sql)
	}
}
