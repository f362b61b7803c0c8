package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr/exprtest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// families are lists of types that unify with each other, with an SQL expression of a value
// of each from a whole number n.
var families = [][]string{
	{"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "BOOLEAN"},
	{"INTEGER", "BIGINT", "DECIMAL(9,2)", "DECIMAL(4,1)", "DECIMAL(18,3)", "DECIMAL(30,5)", "UBIGINT", "TINYINT",
		"BOOLEAN"},
	{"SMALLINT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9,2)", "DECIMAL(25,3)", "UBIGINT", "BOOLEAN"},
	{"DATE", "TIMESTAMP", "TIMESTAMP_MS", "TIMESTAMP_NS"},
	{"VARCHAR", "BLOB"}, {"VARCHAR"}, {"TIME"}, {"BOOLEAN"},
}

// valueOf returns an SQL expression of a type over a number n.
func valueOf(t string) string {
	switch {
	case t == "VARCHAR":
		return "'v' || n"
	case t == "BLOB":
		return "('b' || n)::BLOB"
	case t == "BOOLEAN":
		return "n % 2 = 0"
	case t == "DATE":
		return "DATE '2020-01-01' + n::INTEGER"
	case t == "TIME":
		return "TIME '00:00:00' + to_seconds(n)"
	case strings.HasPrefix(t, "TIMESTAMP"):
		return "(TIMESTAMP '2020-01-01' + to_milliseconds(n * 1001))::" + t
	case strings.HasPrefix(t, "DECIMAL"), t == "FLOAT", t == "DOUBLE":
		return "(n / 4)::" + t
	}
	return "n::" + t
}

// TestFilesOfSeveralSchemasGiveDuckDBsRows reads files with other columns, types and cases
// of names as one table, on both devices, and compares it with DuckDB's union by name.
func TestFilesOfSeveralSchemasGiveDuckDBsRows(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	library := cudatest.Library(t)
	first, cases := gputest.Seed(t), gputest.Cases(t, 40)
	compared := 0
	for seed := first; seed < first+uint64(cases); seed++ {
		r := rand.New(rand.NewPCG(seed, 23))
		dir := t.TempDir()
		var columns [][]string // a family of each column
		for range 2 + r.IntN(4) {
			columns = append(columns, families[r.IntN(len(families))])
		}
		var paths, quoted []string
		about := fmt.Sprintf("GSTREAM_SEED=%d", seed)
		for k := range 2 + r.IntN(3) {
			path := filepath.Join(dir, fmt.Sprintf("%d.parquet", k))
			fields := []string{}
			for i, family := range columns {
				name := string(rune('a' + i))
				if r.IntN(4) == 0 {
					name = strings.ToUpper(name)
				}
				typ, few := family[r.IntN(len(family))], []int{3, 50, 100}[r.IntN(3)]
				if k == 0 && family[0] == "DATE" {
					typ = "TIMESTAMP" // DuckDB reads milliseconds alone as microseconds
				} else if i > 0 && r.IntN(4) == 0 {
					continue
				}
				value := fmt.Sprintf("(select %s from (select (i * %d %% %d)::BIGINT as n))", valueOf(typ),
					1+r.IntN(50), few)
				switch r.IntN(4) {
				case 0:
					value = fmt.Sprintf("case when i %% %d <> 1 then %s end", 2+r.IntN(4), value)
				case 1:
					value = fmt.Sprintf("case when i < %d then %s end", r.IntN(3000), value)
				}
				fields = append(fields, fmt.Sprintf("%s as %s", value, name))
			}
			r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
			copied := fmt.Sprintf("COPY (SELECT %s FROM range(%d) t(i)) TO '%s' (FORMAT parquet, ROW_GROUP_SIZE %d)",
				strings.Join(fields, ", "), r.IntN(5)*r.IntN(1000), path, 2048)
			about += "\n" + copied
			duck.Run(copied)
			paths, quoted = append(paths, path), append(quoted, "'"+path+"'")
		}
		union := fmt.Sprintf("SELECT * FROM read_parquet([%s], union_by_name = true)", strings.Join(quoted, ", "))
		table, err := New("t").Read("t", paths...).WriteTo(&collected{}).Plan()
		require.NoError(t, err, about)
		types := table.Schema().Fields
		require.NoError(t, table.Close())
		condition := ""
		if f := types[r.IntN(len(types))]; r.IntN(3) > 0 {
			switch f.Type.Kind {
			case gpu.String, gpu.Binary, gpu.Time, gpu.Bool:
				condition = f.Name + " is not null"
			case gpu.Date, gpu.Timestamp:
				condition = f.Name + []string{" > ", " <= "}[r.IntN(2)] +
					fmt.Sprintf("TIMESTAMP '2020-01-01 00:00:%02d'", r.IntN(60))
			default:
				condition = f.Name + []string{" > ", " = ", " <= "}[r.IntN(3)] + fmt.Sprint(r.IntN(30))
			}
			if r.IntN(5) == 0 {
				condition = f.Name + " is null"
			}
			union += " WHERE " + condition
		}
		about += "\n" + union
		answer := duck.Ask(exprtest.Question{SQL: union})[0]
		for _, library := range []string{"", library} {
			var d gpu.Device
			if library == "" {
				d, err = host.Open(host.Options{Threads: 1 + r.IntN(3), Memory: 1 << 28})
			} else {
				d, err = cuda.Open(cuda.Options{Memory: 1 << 28, HostMemory: 64 << 20, Library: library})
			}
			require.NoError(t, err)
			var out collected
			b := New("t").Read("t", paths...).WriteTo(&out)
			if condition != "" {
				b.Filter(condition)
			}
			_, err = b.Run(context.Background(),
				RunOptions{Device: smallStrides{d, []int{100, 1000, 10000}[r.IntN(3)]}})
			require.NoError(t, d.Close())
			if answer.Error != "" {
				require.Error(t, err, about)
				continue
			}
			require.NoError(t, err, about)
			rounded := false // where digits do not fit, DuckDB drops some behind the point
			for i, typ := range out.types {
				if rounded = rounded || typ.Precision == gpu.MaxPrecision && answer.Types[i] != typ.String() &&
					typ.Scale > 0; !rounded && typ.Kind != gpu.HugeInt && typ != gpu.DecimalOf(38, 0) {
					require.Equal(t, answer.Types[i], typ.String(), about)
				}
			}
			if rounded {
				continue
			}
			want, got := normalized(answer.Rows, out.types), normalized(out.rows, out.types)
			slices.SortFunc(want, slices.Compare)
			slices.SortFunc(got, slices.Compare)
			require.Equal(t, want, got, about)
			compared += len(got)
		}
	}
	require.Greater(t, compared, cases*100)
}

// TestPartitionsThatDuckDBWroteGiveItsRows filters by partition columns, on both devices.
func TestPartitionsThatDuckDBWroteGiveItsRows(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	library := cudatest.Library(t)
	dir := t.TempDir()
	duck.Run(fmt.Sprintf(`COPY (SELECT i, i %% 7 AS v, DATE '2024-01-01' + (i %% 5)::INTEGER AS d, CASE WHEN i %% 4 <> 3 THEN i %% 4 END AS n, 'a/b=%%' || i %% 3 AS s FROM range(3000) t(i))
		TO '%s' (FORMAT parquet, PARTITION_BY (d, n, s))`, dir))
	all := "hive_types = {'d': DATE, 'n': BIGINT, 's': VARCHAR}"
	for _, c := range []struct {
		filter string
		opened int // of 60 files
	}{
		{"true", 60}, {"n = 2", 15}, {"n is null and s = 'a/b=%1'", 5}, {"d >= date '2024-01-04' and v < 3", 24},
		{"n + 1 > 2 and s like '%2'", 5},
		{"n = 77", 0}, {"n = 1 or v = 2", 60}, {"i < 100 and coalesce(n, 9) = 9", 15},
		{"1 / (n - 1) > 0 and n = 2", 15},
	} {
		answer := duck.Ask(exprtest.Question{SQL: fmt.Sprintf("SELECT i, v, d, n, s FROM "+
			"read_parquet('%s/**/*.parquet', %s) WHERE %s", dir, all, c.filter), Optimize: true})[0]
		require.Empty(t, answer.Error, c.filter)
		for _, library := range []string{"", library} {
			d, err := host.Open(host.Options{Threads: 2, Memory: 1 << 28})
			device := gpu.Device(d)
			if library != "" {
				require.NoError(t, d.Close())
				device, err = cuda.Open(cuda.Options{Memory: 1 << 28, HostMemory: 64 << 20, Library: library})
			}
			require.NoError(t, err)
			var out collected
			report, err := New("t").Read("t", dir).Filter(c.filter).Select("i", "v", "d", "n",
				"s").WriteTo(&out).Run(context.Background(), RunOptions{Device: smallStrides{device, 100}})
			require.NoError(t, device.Close())
			require.NoError(t, err, c.filter)
			want, got := normalized(answer.Rows, out.types), normalized(out.rows, out.types)
			slices.SortFunc(want, slices.Compare)
			slices.SortFunc(got, slices.Compare)
			require.Equal(t, want, got, c.filter)
			for _, s := range report.Stages {
				if s.Scan != nil {
					require.EqualValues(t, 60, s.Scan.Files)
					require.EqualValues(t, 60-c.opened, s.Scan.FilesRuled, c.filter)
				}
			}
		}
	}
}

// TestDuckDBReadsThePartitionsThatAreWritten writes partitions from both devices.
func TestDuckDBReadsThePartitionsThatAreWritten(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	library := cudatest.Library(t)
	dir := t.TempDir()
	duck.Run(fmt.Sprintf(`COPY (SELECT i, i %% 7 AS v, DATE '2024-01-01' + (i %% 5)::INTEGER AS d, CASE WHEN i %% 4 <> 3 THEN 'a/b=%% ü' || i %% 4 END AS s FROM range(5000) t(i)) TO '%s/in.parquet' (FORMAT parquet)`, dir))
	want := duck.Ask(exprtest.Question{SQL: fmt.Sprintf("SELECT i, v, d, s FROM '%s/in.parquet' ORDER BY i", dir),
		Optimize: true})[0]
	for device, library := range map[string]string{"host": "", "cuda": library} {
		d, err := host.Open(host.Options{Threads: 2, Memory: 1 << 28})
		run := gpu.Device(d)
		if library != "" {
			require.NoError(t, d.Close())
			run, err = cuda.Open(cuda.Options{Memory: 1 << 28, HostMemory: 64 << 20, Library: library})
		}
		require.NoError(t, err)
		out := filepath.Join(dir, device)
		report, err := New("t").Read("t", filepath.Join(dir, "in.parquet")).Write(out,
			sinkparquet.Options{PartitionBy: []string{"d", "s"}, RowGroupRows: 100}).Run(context.Background(),
			RunOptions{Device: smallStrides{run, 300}})
		require.NoError(t, run.Close())
		require.NoError(t, err)
		require.EqualValues(t, 5000, report.Output.Rows)
		got := duck.Ask(exprtest.Question{SQL: fmt.Sprintf("SELECT i, v, d, s FROM read_parquet('%s/**/*.parquet', "+
			"hive_types = {'d': DATE, 's': VARCHAR}) ORDER BY i", out), Optimize: true})[0]
		require.Empty(t, got.Error)
		require.Equal(t, want.Rows, got.Rows, device)
	}
}
