package sqldriver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline"
	_ "github.com/gstream/gstream/pipeline/sqldriver"
)

const data = "../../examples/quickstart/data"

func open(t *testing.T, more string) *sql.DB {
	t.Helper()
	db, err := sql.Open("gstream", "device=host&threads=2&dir="+data+more)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestRowsStreamThroughDatabaseSQL(t *testing.T) {
	db := open(t, "&memory_limit=1GiB")
	require.NoError(t, db.Ping())
	var n int
	var sum string
	require.NoError(t, db.QueryRow("SELECT count(*), sum(o_totalprice) FROM 'orders.parquet' WHERE o_orderkey < ?",
		100).
		Scan(&n, &sum))
	require.Equal(t, 27, n)
	require.Equal(t, "3736487.75", sum)
	rows, err := db.QueryContext(t.Context(), "SELECT o_orderkey FROM 'orders.parquet' ORDER BY o_orderkey")
	require.NoError(t, err)
	count, last := 0, -1
	for rows.Next() {
		var key int
		require.NoError(t, rows.Scan(&key))
		require.Greater(t, key, last)
		count, last = count+1, key
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 15000, count)
	require.ErrorIs(t, db.QueryRow("SELECT 1 WHERE false").Scan(&n), sql.ErrNoRows)
}

func TestValuesHaveGoTypes(t *testing.T) {
	db := open(t, "")
	moment := time.Date(1969, 12, 31, 23, 59, 58, 500_000_000, time.UTC)
	for expression, c := range map[string]struct {
		value any
		name  string
		scan  reflect.Type
	}{
		"true":                          {true, "BOOLEAN", reflect.TypeFor[bool]()},
		"-5::TINYINT":                   {int64(-5), "TINYINT", reflect.TypeFor[int64]()},
		"18446744073709551615::UBIGINT": {uint64(math.MaxUint64), "UBIGINT", reflect.TypeFor[uint64]()},
		"0.5::FLOAT":                    {float32(0.5), "FLOAT", reflect.TypeFor[float32]()},
		"1e100":                         {1e100, "DOUBLE", reflect.TypeFor[float64]()},
		"-1.50":                         {"-1.50", "DECIMAL", reflect.TypeFor[string]()},
		"5::HUGEINT":                    {"5", "DECIMAL", reflect.TypeFor[string]()},
		"DATE '1969-12-31'": {time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC), "DATE",
			reflect.TypeFor[time.Time]()},
		"TIMESTAMP '1969-12-31 23:59:58.5'": {moment, "TIMESTAMP", reflect.TypeFor[time.Time]()},
		"TIMESTAMP 'infinity'":              {"infinity", "TIMESTAMP", reflect.TypeFor[time.Time]()},
		"TIME '01:02:03'":                   {"01:02:03", "TIME", reflect.TypeFor[string]()},
		"'it''s'":                           {"it's", "VARCHAR", reflect.TypeFor[string]()},
		"'\\x00\\xFF'::BLOB":                {[]byte{0, 255}, "BLOB", reflect.TypeFor[[]byte]()},
		"NULL::INTEGER":                     {nil, "INTEGER", reflect.TypeFor[sql.Null[int64]]()},
	} {
		rows, err := db.Query("SELECT " + expression + " AS v")
		require.NoError(t, err, expression)
		types, err := rows.ColumnTypes()
		require.NoError(t, err)
		require.Equal(t, "v", types[0].Name())
		require.Equal(t, c.name, types[0].DatabaseTypeName(), expression)
		require.Equal(t, c.scan, types[0].ScanType(), expression)
		nullable, ok := types[0].Nullable()
		require.True(t, ok)
		require.Equal(t, c.value == nil, nullable)
		precision, scale, ok := types[0].DecimalSize()
		require.Equal(t, c.name == "DECIMAL", ok)
		if c.value == "-1.50" {
			require.Equal(t, [2]int64{3, 2}, [2]int64{precision, scale})
		}
		_, ok = types[0].Length()
		require.Equal(t, c.name == "VARCHAR" || c.name == "BLOB", ok, expression)
		var got any
		require.True(t, rows.Next())
		require.NoError(t, rows.Scan(&got))
		require.Equal(t, c.value, got, expression)
		if c.value != nil && c.value != "infinity" {
			scanned := reflect.New(c.scan)
			require.NoError(t, rows.Scan(scanned.Interface()), expression)
			require.Equal(t, c.value, scanned.Elem().Interface())
		}
		require.False(t, rows.Next())
		require.NoError(t, rows.Close())
	}
}

func TestParametersOfDatabaseSQL(t *testing.T) {
	db := open(t, "")
	var a, b string
	require.NoError(t, db.QueryRow("SELECT ?, ?", "x", 5).Scan(&a, &b))
	require.Equal(t, "x5", a+b)
	require.NoError(t, db.QueryRow("SELECT $b, $a", sql.Named("a", 1.5), sql.Named("b", true)).Scan(&a, &b))
	require.Equal(t, "true1.5", a+b)
	st, err := db.Prepare("SELECT $2::DATE + 1, $1")
	require.NoError(t, err)
	defer st.Close()
	for _, v := range []any{uint64(math.MaxUint64), []byte("ab"), nil, time.Unix(0, 0)} {
		var day time.Time
		var got any
		require.NoError(t, st.QueryRow(v, "2026-01-31").Scan(&day, &got), v)
		require.Equal(t, "2026-02-01", day.Format(time.DateOnly))
		if v == nil {
			require.Nil(t, got)
		}
	}
	require.ErrorContains(t, st.QueryRow(1).Scan(&a, &b), "expected 2 arguments, got 1")
	require.ErrorContains(t, db.QueryRow("SELECT ?").Scan(&a), "the parameter ? has no value")
	require.ErrorContains(t, db.QueryRow("SELECT ?", 1, 2).Scan(&a), "the text has no parameter $2")
}

func TestStatementsOfDatabaseSQL(t *testing.T) {
	db := open(t, "")
	out := filepath.Join(t.TempDir(), "out.parquet")
	_, err := db.Exec("CREATE VIEW few AS SELECT * FROM 'nation.parquet' WHERE n_regionkey = 1; SET threads = 1")
	require.NoError(t, err)
	result, err := db.Exec("COPY few TO '" + out + "' (COMPRESSION zstd)")
	require.NoError(t, err)
	n, err := result.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	_, err = result.LastInsertId()
	require.Error(t, err)
	_, err = db.Exec("COPY few TO '" + out + "'")
	require.ErrorIs(t, err, pipeline.ErrOutput)
	var name, kind, null, plan string
	require.NoError(t, db.QueryRow("DESCRIBE few").Scan(&name, &kind, &null))
	require.Equal(t, "n_nationkey", name)
	require.NoError(t, db.QueryRow("EXPLAIN FROM few").Scan(&plan))
	require.Contains(t, plan, "filter")
	require.NoError(t, db.QueryRow("EXPLAIN ANALYZE COPY few TO '"+out+"x'").Scan(&plan))
	require.Contains(t, plan, "wrote 5 rows")
	require.NoFileExists(t, out+"x")
	_, err = db.Exec("CREATE VIEW bad AS SELECT nothing FROM few")
	require.ErrorContains(t, err, "line 1, column 27: there is no column \"nothing\"")
	require.ErrorIs(t, err, pipeline.ErrJob)
	require.ErrorContains(t, db.QueryRow("FROM bad").Scan(&name), "there is no table \"bad\"")
	_, err = db.Begin()
	require.ErrorContains(t, err, "gstream has no transactions")
	rows, err := db.Query("SET threads = 2")
	require.NoError(t, err)
	require.False(t, rows.Next())
	require.NoError(t, rows.Close())
	var of *os.PathError
	require.ErrorAs(t, db.QueryRow("FROM 'nowhere.parquet'").Scan(&name), &of)
	for dsn, want := range map[string]string{"device=tpu": "device", "threads=x": "is no number of CPU cores",
		"nothing=1": "there is no such setting", "%zz": "data source name"} {
		_, err := sql.Open("gstream", dsn)
		require.ErrorContains(t, err, want)
	}
}

func TestAnErrorBehindRowsReachesTheReader(t *testing.T) {
	db := open(t, "")
	rows, err := db.Query("SELECT 1 // (o_orderkey - 60000) FROM 'orders.parquet'")
	require.NoError(t, err)
	for rows.Next() {
	}
	require.ErrorIs(t, rows.Err(), pipeline.ErrData)
	require.ErrorContains(t, rows.Err(), "divided by zero")
}

func TestContextsAndCloseEndARun(t *testing.T) {
	db := open(t, "")
	const many = "SELECT a.o_orderkey, b.o_orderkey FROM 'orders.parquet' a, 'orders.parquet' b"
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	rows, err := db.QueryContext(ctx, many)
	require.NoError(t, err)
	require.True(t, rows.Next())
	cancel()
	for rows.Next() {
	}
	require.ErrorIs(t, rows.Err(), context.Canceled)
	rows, err = db.Query(many)
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.NoError(t, rows.Close())
	rows, err = db.Query(many) // closed before a row is read
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = db.ExecContext(ctx, "SELECT count(*) FROM 'orders.parquet' a, 'orders.parquet' b WHERE a.o_clerk < "+
		"b.o_clerk")
	require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, 10*time.Second, time.Millisecond)
}

// TestGoroutinesShareADatabase has queries and definitions on several connections at the same time.
func TestGoroutinesShareADatabase(t *testing.T) {
	db := open(t, "")
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			view := fmt.Sprintf("v%d", i)
			_, err := db.Exec("CREATE OR REPLACE VIEW "+view+" AS FROM 'nation.parquet' WHERE n_regionkey = $1", i)
			if err != nil {
				t.Error(err)
				return
			}
			for range 3 {
				var n int
				if err := db.QueryRow("SELECT count(*) FROM " + view).Scan(&n); err != nil || n != 5 {
					t.Error(n, err)
				}
			}
		}()
	}
	wait.Wait()
}
