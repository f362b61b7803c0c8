package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// copyOf copies a table of the example to a path in a folder.
func copyOf(t *testing.T, table, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, table+".parquet"))
	require.NoError(t, err)
	path := filepath.Join(folder, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, text, 0o644))
	return path
}

// initialized runs gstream init for a job in a folder, runs the job, and returns its text.
func initialized(t *testing.T, folder string, files ...string) string {
	t.Helper()
	job := filepath.Join(folder, "job.yaml")
	code, stdout, stderr := gstream(append([]string{"init", "--out", job}, files...)...)
	require.Equal(t, exitOK, code, stderr)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "wrote "+job)
	text, err := os.ReadFile(job)
	require.NoError(t, err)
	code, _, stderr = gstream("run", job, "--device", "host")
	require.Equal(t, exitOK, code, "%s\n%s", stderr, text)
	return string(text)
}

func TestInitWritesAJobThatRuns(t *testing.T) {
	folder := t.TempDir()
	for _, table := range []string{"orders", "customer"} {
		copyOf(t, table, folder, "data/"+table+".parquet")
	}
	job := initialized(t, folder, filepath.Join(folder, "data/orders.parquet"),
		filepath.Join(folder, "data/customer.parquet"))
	golden(t, "init.yaml", strings.ReplaceAll(job, folder, "/folder"))

	t.Chdir(folder)
	code, stdout, stderr := gstream("init", "--out", "-", "data/orders.parquet")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "\n  orders: data/orders.parquet  # 15,000 rows\n")
	assert.Contains(t, stdout, "\n  parquet: _out/result-2.parquet\n")
	require.NoError(t, os.Mkdir("jobs", 0o755))
	code, _, stderr = gstream("init", "--out", "jobs/new.yaml", "data/orders.parquet")
	require.Equal(t, exitOK, code, stderr)
	assert.Equal(t, "wrote jobs/new.yaml for 1 source; next: gstream show jobs/new.yaml, gstream run jobs/new.yaml\n",
		stderr)
	assert.Contains(t, shown(t, "jobs/new.yaml"), "o_orderkey")
}

func TestInitTakesHostileNames(t *testing.T) {
	text := func(name string) arrow.Field { return arrow.Field{Name: name, Type: arrow.BinaryTypes.String} }
	names := []string{"", "order", "Select", "a as b", "x: y # z", "${data}", `we"ird`, "it's", "tab\there",
		"esc\x1b[2J", "日本", "a,b", "null", "- dash", "*", "t.*", "1", "a\nb", " lead", "yes", "{a}", "[b]", "&c", "!d",
		"@e", "`f", "%g", "id", "ID", `\`, "~"}
	var fields []arrow.Field
	var row []string
	for _, n := range names {
		fields, row = append(fields, text(n)), append(row, `"v"`)
	}
	source := tableFile(t, "source.parquet", fields, "[["+strings.Join(row, ",")+"]]")
	bytes, err := os.ReadFile(source)
	require.NoError(t, err)
	folder := t.TempDir()
	path := filepath.Join(folder, "a 'b' $c: #d\x1b[0m [e] 日本.parquet")
	require.NoError(t, os.WriteFile(path, bytes, 0o644))
	job := initialized(t, folder, path)
	assert.NotContains(t, job, "\x1b")
	assert.Contains(t, job, "\n  a_b_c_d_0m_e: ")
	out := shown(t, filepath.Join(folder, "_out", "result.parquet"), "--format", "csv")
	assert.Equal(t, shown(t, source, "--format", "csv"), out)
}

func TestInitTellsSourcesApart(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "Shop")
	files := []string{
		copyOf(t, "nation", folder, "new/orders.parquet"), copyOf(t, "orders", folder, "old/orders.parquet"),
		copyOf(t, "orders", folder, "x/old/orders.parquet"),
		copyOf(t, "region", folder, "2024-01.parquet"), copyOf(t, "region", folder, "select.parquet"),
		copyOf(t, "region", folder, "???.parquet"), copyOf(t, "region", folder, "null.parquet"),
		filepath.Join(folder, "old"), filepath.Join(folder, "new", "*.parquet"),
	}
	job := initialized(t, folder, files...)
	for _, want := range []string{"\n  new_orders: ", "\n  old_orders: ", "\n  old_orders_2: ", "\n  t_2024_01: ",
		"\n  t_select: ", "\n  shop: ", "\n  t_null: ", "\n  old: ", "\n  new: "} {
		assert.Contains(t, job, want)
	}
	assert.Contains(t, job, "\n  - from: new_orders\n")
	assert.Contains(t, job, "\n  # The columns of old_orders_2:\n")
}

func TestInitOfFolderAroundTheJobDoesNotReadItsOutput(t *testing.T) {
	folder := t.TempDir()
	copyOf(t, "nation", folder, "nation.parquet")
	initialized(t, folder, folder)
	code, _, stderr := gstream("run", filepath.Join(folder, "job.yaml"), "--overwrite")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, shown(t, filepath.Join(folder, "_out/result.parquet")), "of 25 rows")
}

func TestInitReplacesNothingUnasked(t *testing.T) {
	folder := t.TempDir()
	job := filepath.Join(folder, "mine.yaml")
	nation := copyOf(t, "nation", folder, "nation.parquet")
	require.NoError(t, os.WriteFile(job, []byte("mine"), 0o644))
	code, _, stderr := gstream("init", nation, "--out", job)
	assert.Equal(t, exitIO, code)
	assert.Contains(t, stderr, "mine.yaml: file already exists; --overwrite replaces it")
	text, err := os.ReadFile(job)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text))
	code, _, stderr = gstream("init", nation, "--out", job, "--overwrite")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, shown(t, job), "n_nationkey")
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Len(t, entries, 2)
	code, stdout, stderr := gstream("init", nation, "--out", "-")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "\n      - n_nationkey  # BIGINT\n")
}

func TestInitRefusesWhatIsNoTable(t *testing.T) {
	folder := t.TempDir()
	nation := copyOf(t, "nation", folder, "nation.parquet")
	unreadable := "../../source/parquet/testdata/only-unreadable.parquet"
	notes := filepath.Join(folder, "notes.parquet")
	require.NoError(t, os.WriteFile(notes, []byte("these are notes"), 0o644))
	out := filepath.Join(folder, "job.yaml")
	for name, c := range map[string]struct {
		args    []string
		code    int
		message string
	}{
		"nothing":    {nil, exitJob, "takes one or more files"},
		"no file":    {[]string{filepath.Join(folder, "none.parquet")}, exitIO, "none.parquet: no such file"},
		"no Parquet": {[]string{notes}, exitData, "notes.parquet"},
		"no column":  {[]string{unreadable}, exitData, "no column of"},
		"twice":      {[]string{nation, nation}, exitJob, "is given twice"},
		"no UTF-8":   {[]string{"a\xff.parquet"}, exitJob, `"a\xff.parquet"`},
		"a store":    {[]string{"ftp://bucket/a.parquet"}, exitJob, "are not supported"},
		"no folder": {[]string{nation, "--out", filepath.Join(folder, "none", "job.yaml")}, exitIO,
			"write the job: open"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := gstream(append([]string{"init", "--out", out}, c.args...)...)
			assert.Equal(t, c.code, code, stderr)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, c.message)
			assert.NoFileExists(t, out)
		})
	}
}

func TestInitSaysWhatCannotBeRead(t *testing.T) {
	path, err := filepath.Abs("../../source/parquet/testdata/unreadable.parquet")
	require.NoError(t, err)
	assert.Contains(t, initialized(t, t.TempDir(), path), "\n      # spans  ")
}
