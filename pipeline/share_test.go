package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/source"
	sourcetext "github.com/gstream/gstream/source/text"
)

// sharedFiles writes tables of several files and returns queries over them, by the names of the tables.
func sharedFiles(t testing.TB) (queries map[string]string) {
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for i := range 6 {
		var rows, objects strings.Builder
		for k := range 300 * i { // the first one is empty
			fmt.Fprintf(&rows, "%d,\"text\n%d\",%d-%02d-01\n", k, i, 2000+i, k%12+1)
			fmt.Fprintf(&objects, "{\"k\": %d, \"l\": [%d, null], \"s\": {\"t\": \"%d\"}}\n", k, i, k)
		}
		write(fmt.Sprintf("csv/%d.csv", i), "k,v,d\n"+rows.String())
		write(fmt.Sprintf("hive/y=%d/z=a b/%d.csv", 2000+i/2, i), "k,v,d\n"+rows.String())
		write(fmt.Sprintf("json/%d.json", 9-i), objects.String())
		write(fmt.Sprintf("wider/%d.csv", i), fmt.Sprintf("k,x%d,v\n1,2,3\n%d.5,text,0x\n", i, i))
		write(fmt.Sprintf("objects/%d.json", i), fmt.Sprintf("{\"k\": %d, \"x%d\": {\"a%d\": true}}\n{}\n", i, i, i))
		write(fmt.Sprintf("lists/%d.json", i), fmt.Sprintf("[{\"k\": %d}, {\"k\": null}]", i))
	}
	write("empty/0.csv", "k,v,d\n1,2,3\n")
	write("empty/1.csv", "")
	write("empty/2.csv", "k,v,d\n4,5,6")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "arrow"), 0o755))
	for i := range 3 {
		_, err := New("write").SQL(fmt.Sprintf("select k, 'text ' || k %% 7 as v, [k, null] as l from range(%d) t(k)",
			1000*i+1)).WriteWith(Output{Arrow: Path(filepath.Join(dir, "arrow", fmt.Sprint(i)+".arrow"))}).
			Run(t.Context(), RunOptions{Use: Host, StrideSize: 4096})
		require.NoError(t, err)
	}
	queries = map[string]string{}
	for name, from := range map[string]string{
		"CSV": "read_csv('csv/*.csv')", "folders": "read_csv('hive/*/*/*.csv')", "JSON": "read_json('json/*.json')",
		"CSV united":  "read_csv('wider/*.csv', union_by_name = true)",
		"JSON united": "read_json('objects/*.json', union_by_name = true)",
		"JSON lists":  "read_json('lists/*.json')", "empty files": "read_csv('empty/*.csv')",
		"types": "read_csv('csv/*.csv', types = {'d': 'VARCHAR'}, nullstr = '1')", "Arrow": "'arrow/*.arrow'",
		"one file of Arrow": "'arrow/2.arrow'",
	} {
		queries[name] = "select * from " + strings.Replace(from, "'", "'"+dir+"/", 1)
	}
	return queries
}

func TestTasksShareFilesOfAllFormats(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.parquet")
	opt := RunOptions{Use: Host, Threads: 1, HostMemory: 64 << 20, Exchanges: Always, Overwrite: true}
	for name, query := range sharedFiles(t) {
		for _, query := range []string{query, "select k, count(*) as n from (" + query + ") group by k order by k"} {
			p, err := New("job").SQL(query).Write(out, ParquetOptions{}).Plan()
			require.NoError(t, err, name)
			_, err = p.Run(t.Context(), opt)
			require.NoError(t, err, name)
			want := rowsOf(t, out)
			report, err := inTasks(t, p, opt, 4)
			require.NoError(t, err, name)
			require.Equal(t, want, rowsOf(t, out), name)
			require.NotContains(t, report.Tasks[0].Does, "in this process", name)
			require.Greater(t, report.Tasks[0].Tasks, 1, name)
			require.NoError(t, p.Close())
		}
	}
}

func TestTablesThatTasksDoNotShare(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"0.csv", "1.csv"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("k\n1\nx\n2\n"), 0o600))
	}
	for _, from := range []string{"read_csv('%s/1.csv')", "read_csv('%s/*.csv', types = {'k': 'INT'}, " +
		"ignore_errors = true)"} {
		var out Collector
		p, err := New("job").SQL("select k, count(*) as n from " + fmt.Sprintf(from, dir) + " group by k").
			WriteTo(&out).Plan()
		require.NoError(t, err)
		report, err := inTasks(t, p, RunOptions{Use: Host, Threads: 1, HostMemory: 64 << 20, Exchanges: Always}, 2)
		require.NoError(t, err)
		require.Contains(t, report.Tasks[0].Does, "in this process", from)
		require.NoError(t, p.Close())
	}
}

// sharedDocuments returns the tables of queries in JSON, as in the document of a task.
func sharedDocuments(t testing.TB) (out [][]byte) {
	for _, query := range sharedFiles(t) {
		p, err := New("job").SQL(query).WriteTo(&Collector{}).Plan()
		require.NoError(t, err)
		for _, table := range p.tables {
			shared, err := shareTable(table)
			require.NoError(t, err)
			shared.take(1, 3)
			text, err := json.Marshal(shared)
			require.NoError(t, err)
			out = append(out, text)
		}
		require.NoError(t, p.Close())
	}
	return out
}

// scanShared opens a table of a document, whatever it says, and reads its rows.
func scanShared(text []byte) error {
	var shared *sharedTable
	if err := json.Unmarshal(text, &shared); err != nil {
		return err
	}
	table, err := shared.open(context.Background())
	if err != nil {
		return err
	}
	defer table.Close()
	opt := source.ScanOptions{Lease: host.HeapLease("test", 64<<20), StrideRows: 100,
		Decode: source.DecodeOptions{Threads: 1}}
	for i := range table.Schema().Fields {
		opt.Columns = append(opt.Columns, i)
	}
	table.Describe()
	r, err := table.Scan(context.Background(), opt)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		s, err := r.Read(context.Background())
		if err != nil {
			return err
		}
		s.Release()
	}
}

// TestChangedTablesOfTasksAreRefusedOrRead changes each kind of value in the tables of documents.
func TestChangedTablesOfTasksAreRefusedOrRead(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	changed := map[string]bool{}
	for _, data := range sharedDocuments(t) {
		require.ErrorContains(t, scanShared(data), "EOF")
		eachChange(t, data, changed, gputest.ThinOr(t, 1), func(path string, data []byte) {
			require.NotPanics(t, func() {
				err := scanShared(data)
				require.NotErrorIs(t, err, ErrDefect, "%s: %s", path, data)
			}, "%s: %s", path, data)
		})
	}
	require.Greater(t, len(changed), 40)
}

func TestWrongTablesOfTasks(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i := range 3 {
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)+".csv"))
		require.NoError(t, os.WriteFile(paths[i], []byte("k\n1\n"), 0o600))
	}
	table, err := sourcetext.Open(paths, sourcetext.Options{})
	require.NoError(t, err)
	shared, err := shareTable(table)
	require.NoError(t, err)
	shared.take(0, 2)
	text, err := json.Marshal(shared)
	require.NoError(t, err)
	for change, want := range map[string]string{
		`"Of":2 "Of":-2`:                           "no share 0 of -2",
		`"Of":2 "Share":2,"Of":2`:                  "no share 2 of 2",
		`"IgnoreErrors":false "IgnoreErrors":true`: "a table that leaves rows out has no shares",
		`"UnionByName":false "UnionByName":true`:   "lacks the columns that are united by name",
		`"Partitions":null "Partitions":[{}]`:      "has 1 partition columns and the values of 0",
		`"Delimiter":"" "Delimiter":"::"`:          "delimiter",
		`"Size":4 "Size":5`:                        source.ErrChanged.Error(),
		`{"Text" {"Other"`:                         "the table has no files",
	} {
		from, to, _ := strings.Cut(change, " ")
		require.True(t, bytes.Contains(text, []byte(from)), "%s: %s", from, text)
		require.ErrorContains(t, scanShared(bytes.Replace(text, []byte(from), []byte(to), 1)), want, change)
	}
	require.NoError(t, os.WriteFile(paths[0], []byte("k\n10\n"), 0o600))
	require.ErrorIs(t, scanShared(text), source.ErrChanged)
}

// Whatever a document says about a table, its rows are read, or there is an error.
func FuzzTablesOfTasks(f *testing.F) {
	for _, data := range sharedDocuments(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { _ = scanShared(data) })
}
