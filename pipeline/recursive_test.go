package pipeline

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
)

// recursiveRows runs a query over the table of a thousand rows on a device, and returns its rows and report.
func recursiveRows(t *testing.T, ctx context.Context, query string, opt RunOptions) ([]string, *Report, error) {
	t.Helper()
	var out Collector
	r, err := SQL(query, nil).ReadTable("t", thousand(t)).WriteTo(&out).Run(ctx, opt)
	if err != nil {
		return nil, r, err
	}
	return textOf(&out), r, nil
}

// stagesOf returns the stages of a kind.
func stagesOf(r *Report, kind string) (out []StageReport) {
	for _, s := range r.Stages {
		if s.Kind == kind {
			out = append(out, s)
		}
	}
	return out
}

// TestTenThousandIterationsTakeASecondOrSo also counts what the stages of the step do in all iterations.
func TestTenThousandIterationsTakeASecondOrSo(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	defer goleak.VerifyNone(t)
	for _, union := range []string{"UNION ALL", "UNION"} {
		begin := time.Now()
		rows, r, err := recursiveRows(t, t.Context(), fmt.Sprintf("WITH RECURSIVE r(n) AS (SELECT 1 %s SELECT n + 1 "+
			"FROM r WHERE n < 10000) SELECT count(*), max(n) FROM r", union), RunOptions{Use: Host, Threads: 2})
		require.NoError(t, err)
		require.Equal(t, []string{"10000|10000"}, rows)
		require.Less(t, time.Since(begin), 20*time.Second)
		t.Logf("%s: %v for each iteration", union, time.Since(begin)/10000)
		recursions, filters := stagesOf(r, "recursion"), stagesOf(r, "filter")
		require.Len(t, recursions, 1)
		require.EqualValues(t, 10000, recursions[0].Iterations)
		require.EqualValues(t, 10000, recursions[0].RowsOut)
		require.Len(t, filters, 1)
		require.EqualValues(t, 9999, filters[0].RowsOut)
		require.Contains(t, r.String(), "10,000 iterations")
	}
}

// TestWhatARecursionReadsBesidesItselfIsComputedOnce joins a table in each of many iterations, and in two nested
// recursions.
func TestWhatARecursionReadsBesidesItselfIsComputedOnce(t *testing.T) {
	for query, want := range map[string]string{
		"WITH RECURSIVE r(k, i) AS (SELECT 0, 1 UNION ALL SELECT t.k, i + 1 FROM t JOIN r ON t.k = r.k + 20) " +
			"SELECT count(*), max(k), max(i) FROM r": "50|980|50",
		"WITH RECURSIVE r(k) AS (SELECT k FROM t WHERE k = 1 UNION SELECT t.k FROM t JOIN r ON t.k % 40 = r.k + 1) " +
			"SELECT count(*), min(k), max(k) FROM r": "951|1|999",
		"WITH RECURSIVE m AS (SELECT g, max(k) AS k FROM t GROUP BY g), r(g, k) AS (SELECT 0::BIGINT, 0::BIGINT " +
			"UNION ALL SELECT m.g, m.k FROM m JOIN r ON m.g = r.g + 1) SELECT sum(r.k), sum(m.k) FROM r JOIN m " +
			"USING (g)": "8955|9945",
		"WITH RECURSIVE r(k) AS (SELECT 1::BIGINT UNION ALL SELECT (WITH RECURSIVE q(k) AS (SELECT r.k UNION ALL " +
			"SELECT t.k FROM t JOIN q ON t.k = q.k + 1 AND t.k % 100 > 0) SELECT max(k) + 1 FROM q) FROM r WHERE " +
			"k < 300) SELECT count(*), max(k) FROM r": "4|300",
	} {
		for _, always := range []bool{false, true} {
			rows, r, err := recursiveRows(t, t.Context(), query, RunOptions{Use: Host, Threads: 2, SpillAlways: always,
				SpillDir: t.TempDir()})
			require.NoError(t, err, query)
			require.Equal(t, []string{want}, rows, query)
			scanned := int64(0)
			for _, s := range stagesOf(r, "scan") {
				scanned += s.RowsOut
			}
			require.LessOrEqual(t, scanned, int64(2000), query)
			for _, s := range stagesOf(r, "hold") {
				if s.RowsIn == 1000 && !always { // one table for all iterations
					require.LessOrEqual(t, s.RowsOut, int64(2000), query)
				}
			}
		}
	}
}

// TestALargeWorkingTableSpills doubles rows until they do not fit memory, on both devices.
func TestALargeWorkingTableSpills(t *testing.T) {
	for union, more := range map[string]int64{"UNION ALL": 0, "UNION": 1 << 19} { // more memory for distinct rows
		for device, c := range map[string]struct {
			most int // iterations, each of eight times the rows of the one before
			open func(t *testing.T) gpu.Device
		}{
			"host": {5, func(t *testing.T) gpu.Device {
				d, err := host.Open(host.Options{Threads: 2, Memory: 6 << 20})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, d.Close()) })
				return d
			}},
			"cuda": {4, func(t *testing.T) gpu.Device {
				return cudatest.Open(t, cuda.Options{Memory: 1<<20 + more, HostMemory: 12 << 20})
			}},
		} {
			t.Run(union+"/"+device, func(t *testing.T) {
				rows, r, err := recursiveRows(t, t.Context(), fmt.Sprintf("WITH RECURSIVE r(i, n, s) AS (SELECT 0, 1, "+
					"repeat('x', 200) || 1 %s SELECT i + 1, 8 * n + b, repeat('x', 200) || (8 * n + b) FROM r, "+
					"range(8) v(b) WHERE i < %d) SELECT count(*), sum(n), sum(length(s)) > 200 * count(*), "+
					"max(i) FROM r", union, c.most),
					RunOptions{Device: smallStrides{c.open(t), 300}, Use: CUDA + WithHost, Threads: 2,
						SpillDir: t.TempDir()})
				require.NoError(t, err)
				n, sum := int64(0), int64(0)
				for k := int64(1); k <= 1<<(3*c.most); k *= 8 {
					n, sum = n+k, sum+k*(3*k-1)/2 // from k to 2k - 1
				}
				require.Equal(t, []string{fmt.Sprintf("%d|%d|true|%d", n, sum, c.most)}, rows)
				recursions := stagesOf(r, "recursion")
				require.Len(t, recursions, 1)
				require.Positive(t, recursions[0].Spill.Disk.In+recursions[0].Spill.Host.In)
			})
		}
	}
}

// TestARecursionWithoutEndIsStopped by a limit, by its caller, and by the budgets.
func TestARecursionWithoutEndIsStopped(t *testing.T) {
	defer goleak.VerifyNone(t)
	rows, _, err := recursiveRows(t, t.Context(), "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "+
		"SELECT n FROM r LIMIT 3 OFFSET 100", RunOptions{Use: Host, Threads: 2})
	require.NoError(t, err)
	require.Equal(t, []string{"101", "102", "103"}, rows)

	for _, query := range []string{
		"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r) SELECT count(*) FROM r",
		"WITH RECURSIVE r(n) AS (SELECT 1::BIGINT UNION SELECT n + 1 FROM r) SELECT count(*) FROM r",
		"WITH RECURSIVE r(k) AS (SELECT k FROM t UNION ALL SELECT t.k FROM r JOIN t USING (k)) SELECT count(*) FROM r",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begin := time.Now()
		_, _, err := recursiveRows(t, ctx, query, RunOptions{Use: Host, Threads: 2})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, query)
		require.Less(t, time.Since(begin), 10*time.Second, query)
	}
	for union, dir := range map[string]string{"UNION ALL": t.TempDir(), "UNION": "none"} {
		_, _, err = recursiveRows(t, t.Context(), fmt.Sprintf("WITH RECURSIVE r(n) AS (SELECT 1::BIGINT %s SELECT "+
			"2 * n + b FROM r, (VALUES (0), (1)) v(b)) SELECT count(*) FROM r", union), RunOptions{Use: Host,
			Threads: 2, HostMemory: 4 << 20, SpillDir: dir, SpillLimit: 4 << 20})
		require.True(t, gpu.IsOutOfMemory(err), err)
		require.ErrorContains(t, err, "of a recursive query, with")
		require.ErrorContains(t, err, "add a condition that ends it")
	}
}

// TestARecursionThatIsDeniedMemoryEnds refuses each reservation in turn.
func TestARecursionThatIsDeniedMemoryEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	const query = "WITH RECURSIVE r(k, c) AS (SELECT k, 0 FROM t WHERE k < 5 UNION (SELECT t.k, (SELECT " +
		"count(*)::INT FROM r) FROM t JOIN r ON t.k = r.k + 7 WHERE r.k < 40)) SELECT count(*), sum(a.k) FROM r a " +
		"JOIN r b USING (k)"
	for _, always := range []bool{false, true} {
		for n := int64(0); ; n += 1 + n/8 {
			d, err := host.Open(host.Options{Threads: 2, Memory: 64 << 20})
			require.NoError(t, err)
			d.Budget().SetPatience(1)
			var at atomic.Int64
			d.Budget().SetFault(func(bool) error {
				if at.Add(1) > n {
					return errors.New("no memory")
				}
				return nil
			})
			rows, _, err := recursiveRows(t, context.Background(), query, RunOptions{
				Device: onlyLane{smallStrides{d, 300}}, Threads: 1, SpillDir: t.TempDir(), SpillAlways: always})
			d.Budget().SetFault(nil)
			require.Empty(t, d.Budget().Leaks(), "%d: %v", n, err)
			require.NoError(t, d.Close())
			if err == nil {
				require.Equal(t, []string{"35|805"}, rows)
				require.Greater(t, n, int64(20))
				break
			}
			require.True(t, gpu.IsOutOfMemory(err), "%d: %v", n, err)
		}
	}
}

// TestAPlanWithARecursionIsEncoded runs the decoded plan, and refuses one that reads a working table elsewhere.
func TestAPlanWithARecursionIsEncoded(t *testing.T) {
	dir := t.TempDir()
	_, err := New("t").ReadTable("t", thousand(t)).Write(filepath.Join(dir, "t.parquet"),
		ParquetOptions{}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	p, err := SQL("WITH RECURSIVE r(k) AS (SELECT k FROM t WHERE k = 3 UNION ALL SELECT t.k FROM t JOIN r ON "+
		"t.k = r.k + 300) SELECT * FROM r", nil).Read("t", filepath.Join(dir, "t.parquet")).Write(filepath.Join(dir,
		"out.parquet"), ParquetOptions{}).Plan()
	require.NoError(t, err)
	defer p.Close()
	check, err := p.Check(RunOptions{Use: Host})
	require.NoError(t, err)
	require.True(t, check.Finishes)
	data, err := p.Encode()
	require.NoError(t, err)
	again, err := DecodePlan(data)
	require.NoError(t, err)
	defer again.Close()
	r, err := again.Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.EqualValues(t, 4, r.Output.Rows)

	text := string(data)
	for _, swap := range [][2]string{{`"Of":`, `"Of":9`}, {`"Of":`, `"Of":-`},
		{`"Does":"recursion"`, `"Does":"union"`}} {
		require.Contains(t, text, swap[0])
		_, err := DecodePlan([]byte(strings.Replace(text, swap[0], swap[1], 1)))
		require.Error(t, err, swap[1])
	}
}

// TestRecursiveQueriesAreRefusedAtTheirPlace has mistakes, and the words of their messages.
func TestRecursiveQueriesAreRefusedAtTheirPlace(t *testing.T) {
	const r = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT "
	for _, c := range []struct{ query, want string }{
		{r + "n, n FROM r) FROM r",
			`column 34: the recursive query "r" has 1 columns before UNION and 2 after it`},
		{r + "DATE '2020-01-01' FROM r) FROM r",
			`column 51: column "n" of the recursive query "r" is INTEGER, as before UNION: cannot cast DATE`},
		{"WITH RECURSIVE r(n) AS (SELECT NULL UNION SELECT 1.5 FROM r) FROM r",
			`column 50: column "n" of the recursive query "r" is NULL before UNION, and DECIMAL(2,1) after it; write`},
		{"WITH RECURSIVE r(n, m) AS (SELECT 1 UNION SELECT n FROM r) FROM r",
			`"r" has 1 columns, and 2 names are given`},
		{"WITH r(n) AS (SELECT 1 UNION SELECT n FROM r) FROM r",
			`"r" reads itself, which needs WITH RECURSIVE`},
		{"WITH RECURSIVE r(n) AS (SELECT n FROM r UNION SELECT 1) FROM r",
			`column 39: "r" can read itself only after its last UNION`},
		{"WITH RECURSIVE r(n) AS (SELECT 1 EXCEPT SELECT n FROM r) FROM r",
			`"r" can read itself only after its last UNION`},
		{r + "n FROM r UNION SELECT 2) FROM r", "parentheses around several parts"},
		{r + "n FROM r ORDER BY n) FROM r", "ORDER BY of the recursive query"},
		{r + "n FROM r LIMIT 3) FROM r", "LIMIT and OFFSET of the recursive query"},
		{r + "n FROM recurring.r) FROM r", "read r, the rows of the last iteration"},
		{r + "n FROM b), b AS (SELECT 1 UNION SELECT n FROM r) FROM b", `"b" and "r" read each other`},
		{"WITH RECURSIVE a(n) AS (FROM b), b AS (FROM a) FROM b", `"b" and "a" read each other`},
		{"WITH RECURSIVE r(n) USING KEY (n) AS (SELECT 1 UNION SELECT n FROM r) FROM r", "USING KEY is not possible"},
		{"CREATE RECURSIVE VIEW r AS SELECT 1 UNION SELECT 2; FROM r", "write CREATE VIEW name AS WITH RECURSIVE name"},
		{"WITH RECURSIVE r(n) AS (SELECT 1::TINYINT UNION SELECT n + 200 FROM r) FROM r",
			"the INTEGER 201 does not fit TINYINT"},
	} {
		_, _, err := recursiveRows(t, t.Context(), c.query, RunOptions{Use: Host, Threads: 1})
		if assert.Error(t, err, c.query) {
			assert.Contains(t, err.Error(), c.want, c.query)
		}
	}
}
