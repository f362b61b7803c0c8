package pipeline

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/operators/expr/exprtest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

func TestAMillionElementsInOneList(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	in := filepath.Join(t.TempDir(), "in.parquet")
	duck.Run("COPY (SELECT 1 AS id, list({'a': i, 'b': CASE WHEN i % 5 > 0 THEN 's' || i % 9 END} ORDER BY i) AS l, " +
		"NULL AS m FROM range(1 << 16) t(i) UNION ALL SELECT 2, [], (SELECT list(i ORDER BY i) FROM range(1 << 20) " +
		"t(i)) UNION ALL SELECT 3, [NULL, {'a': 1, 'b': 'x'}], [NULL]) TO '" + in + "'")
	copied := filepath.Join(t.TempDir(), "copied.parquet")
	_, err := SQL("FROM '"+in+"'", nil).Write(copied, sinkparquet.Options{}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	q := "SELECT id, x.b, count(*) AS n, sum(x.a)::BIGINT AS a FROM (SELECT id, unnest(l) AS x FROM 'IN') GROUP BY ALL"
	requireDuckDBsRows(t, duck, in, q, "SELECT id, len(l) AS n, l[-1].a AS a, len(m) AS k FROM 'IN'",
		"SELECT id, x % 7 AS g, count(*) AS n FROM (SELECT id, unnest(m) AS x FROM 'IN') GROUP BY ALL")
	require.Equal(t, duck.Ask(exprtest.Question{SQL: strings.ReplaceAll(q, "'IN'", "'"+in+"'") + " ORDER BY ALL"}),
		duck.Ask(exprtest.Question{SQL: strings.ReplaceAll(q, "'IN'", "'"+copied+"'") + " ORDER BY ALL"}))
}

// TestPyArrowsDeepNesting reads lists, structs and maps six levels deep, with nulls and empty lists at each level.
func TestPyArrowsDeepNesting(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	in := filepath.Join(t.TempDir(), "in.parquet")
	script := `
import random, sys, pyarrow as pa, pyarrow.parquet as pq
random.seed(7)
inner = pa.struct([("b", pa.list_(pa.int32())), ("c", pa.string())])
levels = pa.list_(pa.struct([("a", pa.list_(pa.map_(pa.string(), inner))), ("d", pa.float64())]))
def maybe(make): return None if random.random() < 0.2 else make()
def some(make): return [make() for _ in range(random.randrange(4))]
def struct(): return {"b": maybe(lambda: some(lambda: maybe(lambda: random.randrange(100)))), "c": maybe(lambda: "x")}
def entries(): return [("k%d" % i, maybe(struct)) for i in range(random.randrange(3))]
def top(): return {"a": maybe(lambda: some(lambda: maybe(entries))), "d": maybe(random.random)}
rows = [maybe(lambda: some(lambda: maybe(top))) for _ in range(600)]
table = pa.table({"id": pa.array(range(len(rows))), "v": pa.array(rows, levels)})
pq.write_table(table, sys.argv[1], row_group_size=250, data_page_size=512, data_page_version=sys.argv[2])`
	for _, version := range []string{"1.0", "2.0"} {
		message, err := exec.Command(os.Getenv("GSTREAM_PYTHON"), "-c", script, in, version).CombinedOutput()
		require.NoError(t, err, string(message))
		requireDuckDBsRows(t, duck, in, "FROM 'IN'",
			"SELECT id, x.d, len(x.a) AS n FROM (SELECT id, unnest(v) AS x FROM 'IN')",
			"SELECT id, x.d, m['k1'].b[1] AS b, map_keys(m) AS k FROM (SELECT id, x, unnest(x.a) AS m FROM "+
				"(SELECT id, unnest(v) AS x FROM 'IN'))",
			"SELECT id, v[1].a[-1] AS a, v[2].d AS d FROM 'IN' WHERE len(v) > 0")
	}
}
