package parquet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
)

// folders writes a file with columns w, x and y of one row into each folder below a new one.
func folders(t *testing.T, names ...string) string {
	type row struct {
		W int64  `parquet:"w"`
		X string `parquet:"X"`
		Y int64  `parquet:"y"`
	}
	dir := t.TempDir()
	for i, name := range names {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		writeRows(t, filepath.Join(dir, name, "f.parquet"), row{int64(i), "in the file", 5})
	}
	return dir
}

func TestFoldersBecomeColumns(t *testing.T) {
	date, moment := gpu.Of(gpu.Date), gpu.TimestampOf(gpu.Microsecond, false)
	for _, c := range []struct {
		folders []string
		key     string
		want    []gpu.Scalar // in order of name
	}{
		{[]string{"k=1", "k=-20"}, "k", []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), -20),
			gpu.IntScalar(gpu.Of(gpu.Int64), 1)}},
		{[]string{"k=01", "k=2"}, "k", []gpu.Scalar{gpu.StringScalar("01"), gpu.StringScalar("2")}},
		{[]string{"k=1", "k=9223372036854775808"}, "k",
			[]gpu.Scalar{gpu.StringScalar("1"), gpu.StringScalar("9223372036854775808")}},
		{[]string{"k=1970-01-02", "k=__HIVE_DEFAULT_PARTITION__"}, "k",
			[]gpu.Scalar{gpu.IntScalar(date, 1), gpu.Null(date)}},
		{[]string{"k=1970-01-01 00%3A00%3A01", "k=1970-01-01T00:00:02"}, "k",
			[]gpu.Scalar{gpu.IntScalar(moment, 1e6), gpu.IntScalar(moment, 2e6)}},
		{[]string{"k=1970-01-02", "k=1970-01-02 10:00:00"}, "k",
			[]gpu.Scalar{gpu.StringScalar("1970-01-02"), gpu.StringScalar("1970-01-02 10:00:00")}},
		{[]string{"k=1970-02-31"}, "k", []gpu.Scalar{gpu.StringScalar("1970-02-31")}},
		{[]string{"k=null"}, "k", []gpu.Scalar{gpu.StringScalar("null")}},
		{[]string{"k=1", "k=NULL"}, "k", []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), 1),
			gpu.Null(gpu.Of(gpu.Int64))}},
		{[]string{"k=%5F_HIVE_DEFAULT_PARTITION__"}, "k", []gpu.Scalar{gpu.StringScalar(nullPartition)}},
		{[]string{"k=", "k=a%2Fb%3D%zz%"}, "k", []gpu.Scalar{gpu.StringScalar(""), gpu.StringScalar("a/b=%zz%")}},
		{[]string{"a%20b=x"}, "a b", []gpu.Scalar{gpu.StringScalar("x")}},
	} {
		dir := folders(t, c.folders...)
		got, _, err := scan(t, 0, []string{dir}, source.ScanOptions{})
		require.NoError(t, err)
		require.Equal(t, c.want, got[c.key], "%v", c.folders)
	}
}

func TestFoldersOfPartitionsAreNeverHidden(t *testing.T) {
	dir := folders(t, "_k=1", "_k=2/.j=3", "_other", ".other", "_k=2/_other", "_k=2/.j=3/.other")
	for path, want := range map[string][]string{
		dir:                        {"_k=1/f.parquet", "_k=2/.j=3/f.parquet"},
		dir + "/*/*.parquet":       {"_k=1/f.parquet", "_other/f.parquet"}, // as in DuckDB a pattern matches _
		dir + "/*/*/f.parquet":     {"_k=2/.j=3/f.parquet", "_k=2/_other/f.parquet"},
		dir + "/_k=2/**/*.parquet": {"_k=2/.j=3/f.parquet", "_k=2/_other/f.parquet"},
		dir + "/_k=2":              {"_k=2/.j=3/f.parquet"},
	} {
		got, err := Files(t.Context(), []string{path})
		require.NoError(t, err)
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], dir+"/")
		}
		require.Equal(t, want, got, path)
	}
	one := folders(t, "_k=1", "_k=2")
	got, _, err := scan(t, 0, []string{one}, source.ScanOptions{})
	require.NoError(t, err)
	bigint := gpu.Of(gpu.Int64)
	require.Equal(t, []gpu.Scalar{gpu.IntScalar(bigint, 1), gpu.IntScalar(bigint, 2)}, got["_k"])
}

func TestAnOptionalSourceWithoutFilesHasNoRows(t *testing.T) {
	dir := folders(t, "k=1", "empty")
	require.NoError(t, os.Remove(filepath.Join(dir, "empty", "f.parquet")))
	schema := gpu.NewSchema(gpu.Field{Name: "w", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "k", Type: gpu.Of(gpu.Int32)})
	opt := OpenOptions{Optional: true, Schema: schema, Partitions: []gpu.Field{{Name: "k", Type: gpu.Of(gpu.Int32)}}}
	for _, path := range []string{dir + "/empty", dir + "/none", dir + "/none/*.parquet", dir + "/none.parquet"} {
		table, err := Open([]string{path, path}, opt)
		require.NoError(t, err)
		require.EqualValues(t, 0, table.Rows())
		require.Equal(t, []string{"w", "k"}, table.Schema().Names())
		require.True(t, table.Schema().Fields[0].Nullable)
		require.Contains(t, table.Describe(), "no files")
		lease := hosttest.Budget(t, 0).Lease("scan")
		got, err := readAll(table, source.ScanOptions{Lease: lease, Columns: []int{0, 1},
			Prune: []source.Predicate{{Column: 0, Op: source.IsNull}}})
		require.NoError(t, err)
		require.Empty(t, got)
		s, err := table.Sample(t.Context(), lease, []int{0, 1}, 100)
		require.NoError(t, err)
		require.Zero(t, s.Rows)
		s.Release()
		require.NoError(t, lease.Close())

		_, err = Open([]string{path}, OpenOptions{Schema: schema})
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = Open([]string{path}, OpenOptions{Optional: true})
		require.ErrorContains(t, err, "no schema says which columns")
		table, err = Open([]string{path, dir + "/k=1"}, opt)
		require.NoError(t, err)
		require.EqualValues(t, 1, table.Rows())
	}
	_, err := Open([]string{dir + "/k=1/f.parquet/x"}, opt)
	require.ErrorContains(t, err, "not a directory", "nobody knows whether it is missing")
}

func TestTheValueInThePathReplacesTheColumnOfTheFile(t *testing.T) {
	dir := folders(t, "x=7", "x=8")
	table, err := Open([]string{dir}, OpenOptions{})
	require.NoError(t, err)
	require.Equal(t, []gpu.Field{{Name: "w", Type: gpu.Of(gpu.Int64)}, {Name: "X", Type: gpu.Of(gpu.Int64)},
		{Name: "y", Type: gpu.Of(gpu.Int64)}}, table.Schema().Fields)
	got, _, err := scan(t, 0, []string{dir}, source.ScanOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 7, got["X"][0].Int.Int64())
	table, err = Open([]string{dir}, OpenOptions{NoPartitions: true})
	require.NoError(t, err)
	require.Equal(t, gpu.Of(gpu.String), table.Schema().Fields[1].Type)
}

func TestPartitionColumnsHaveTheGivenTypes(t *testing.T) {
	dir := folders(t, "k=01/l=1.5", "k=2/l=2")
	given := []gpu.Field{{Name: "k", Type: gpu.Of(gpu.Int8)}, {Name: "L", Type: gpu.DecimalOf(4, 2)}}
	l, err := List([]string{dir}, OpenOptions{Partitions: given})
	require.NoError(t, err)
	require.Equal(t, gpu.IntScalar(gpu.Of(gpu.Int8), 1), l.Partitions[0].Values[0])
	require.Equal(t, gpu.IntScalar(gpu.DecimalOf(4, 2), 150), l.Partitions[1].Values[0])
	table, err := Open([]string{dir},
		OpenOptions{Schema: &gpu.Schema{Fields: []gpu.Field{given[0], {Name: "w", Type: gpu.Of(gpu.Int64)}}}})
	require.NoError(t, err)
	require.Equal(t, []string{"k", "w"}, table.Schema().Names())
	require.Equal(t, given[0].Type, table.Schema().Fields[0].Type)
	_, err = List([]string{dir}, OpenOptions{Partitions: []gpu.Field{{Name: "l", Type: gpu.Of(gpu.Date)}}})
	require.ErrorIs(t, err, source.ErrData)
	require.ErrorContains(t, err, `f.parquet: the value "1.5" of the partition column l is no DATE`)
	_, err = List([]string{dir}, OpenOptions{Partitions: []gpu.Field{{Name: "m", Type: gpu.Of(gpu.Date)}}})
	require.ErrorContains(t, err, "is named m=")
}

func TestFilesOfDifferentLayoutsAreRefusedByBothPaths(t *testing.T) {
	for _, names := range [][]string{{"a=1", "b"}, {"a=1", "b=1"}, {"a=1/b=2", "a=2"}} {
		dir := folders(t, names...)
		_, err := Open([]string{dir}, OpenOptions{})
		require.ErrorIs(t, err, source.ErrData)
		for _, name := range names {
			require.ErrorContains(t, err, filepath.Join(dir, name, "f.parquet"))
		}
		require.ErrorContains(t, err, "partitions: none")
		_, err = Open([]string{dir}, OpenOptions{NoPartitions: true})
		require.NoError(t, err)
	}
	_, err := Open([]string{folders(t, "a=1/A=2")}, OpenOptions{})
	require.ErrorContains(t, err, "two folders of the path are named A=")
}

func TestFilesThatAreNotKeptAreNotOpened(t *testing.T) {
	dir := folders(t, "k=1", "k=2", "k=3")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "k=2", "f.parquet"), []byte("no Parquet"), 0o644))
	l, err := List([]string{dir}, OpenOptions{})
	require.NoError(t, err)
	table, err := l.Open(func(i int) bool { return i == 2 }, OpenOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, table.Rows())
	require.Contains(t, table.Describe(), "2 of 3 files not opened")
	table, err = l.Open(func(int) bool { return false }, OpenOptions{})
	require.NoError(t, err)
	require.Zero(t, table.Rows())
	require.Equal(t, []string{"w", "X", "y", "k"}, table.Schema().Names())
	_, err = l.Open(nil, OpenOptions{})
	require.ErrorIs(t, err, source.ErrData)
}

// TestPredicatesOnPartitionsSkipFiles: those of a join's build side are known in the run.
func TestPredicatesOnPartitionsSkipFiles(t *testing.T) {
	dir := folders(t, "k=1", "k=2", "k="+nullPartition)
	p := source.Predicate{Column: 3, Op: source.Eq, Values: []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), 2)}}
	got, progress, err := scan(t, 0, []string{dir}, source.ScanOptions{Prune: []source.Predicate{p}})
	require.NoError(t, err)
	require.EqualValues(t, 2, progress.Skipped)
	require.Len(t, got["k"], 1)
}

func FuzzFolderNames(f *testing.F) {
	for _, s := range []string{"y=2024/m=03", "a=b=c/=d/e=", "k=%41%zz%/k=2", "%ff=1", "x=__HIVE_DEFAULT_PARTITION__",
		"a=-0/b=2024-1-1", "é=\xff"} {
		f.Add(s, "1")
	}
	f.Fuzz(func(t *testing.T, path, other string) {
		values, err := folderValues(path + "/x.parquet")
		if err != nil {
			return
		}
		for _, v := range values {
			require.NotEmpty(t, v.key)
			require.True(t, utf8.ValidString(v.key))
			p := Partition{Field: gpu.Field{Name: v.key}}
			texts := []gpu.Scalar{v.value, gpu.StringScalar(strings.ToValidUTF8(other, "?"))}
			require.NoError(t, p.read([]string{path, path}, texts, OpenOptions{}))
			for i := range texts {
				if texts[i].Valid && !p.Values[i].Valid {
					require.True(t, strings.EqualFold(texts[i].Str, "null"))
					continue
				}
				if p.Field.Type.Kind == gpu.String || p.Field.Type.Kind == gpu.Int64 {
					require.Equal(t, texts[i].String(), p.Values[i].String(), "no digit is lost")
				}
			}
		}
	})
}
