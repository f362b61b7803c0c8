package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/source/store/storetest"
)

// folder is an empty folder with the tables of the quickstart in data, and becomes the current one.
func folder(t *testing.T) string {
	t.Helper()
	abs, err := filepath.Abs(data)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(abs, filepath.Join(dir, "data")))
	t.Chdir(dir)
	return dir
}

// lake starts an object store with the tables that the docs name, and returns the address of the same files on a web
// server.
func lake(t *testing.T, dir string) (web string) {
	bucket := t.TempDir()
	for _, path := range []string{"orders/2026-01.parquet", "orders/y=2026/m=1/a.parquet", "data/orders.parquet"} {
		path = filepath.Join(bucket, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.Symlink(filepath.Join(dir, "data", "orders.parquet"), path))
	}
	endpoint := storetest.Folder(t, bucket)
	storetest.Use(t, endpoint)
	return endpoint + "/web/"
}

// word is a word of a command line, with or without quotes.
var word = regexp.MustCompile(`"([^"]*)"|(\S+)`)

// commandsOf returns the command lines of a text: indented lines that begin with a program's name,
// without their comments.
func commandsOf(text, program string) (out [][]string) {
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(line, "    "+program+" ")
		if !ok {
			continue
		}
		line, _, _ = strings.Cut(line, " #")
		var args []string
		for _, m := range word.FindAllStringSubmatch(line, -1) {
			args = append(args, m[1]+m[2])
		}
		out = append(out, args)
	}
	return out
}

// TestCommandsOfTheDocs runs what the README and the docs tell a user to run, in their order.
func TestCommandsOfTheDocs(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	require.NoError(t, err)
	pages = append([]string{filepath.Join(root, "README.md"), filepath.Join(root, "examples/README.md")}, pages...)
	dir := folder(t)
	web := lake(t, dir)
	script(t, launcherPath(t), "srun", srun) // and the processes of tasks run this program
	commands := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, args := range commandsOf(string(text), "gstream") {
			if strings.Contains(strings.Join(args, " "), "temporal://") {
				continue // there is no server
			}
			commands++
			for i, a := range args {
				if a == "/nvme" || a == "/shared/work" {
					args[i] = t.TempDir()
				}
				args[i] = strings.Replace(args[i], "https://example.com/", web, 1)
			}
			switch args[0] {
			case "run": // the docs show one run in several ways
				args = append(args, "--overwrite")
			case "bench": // of little data, which takes little time
				args = append(args, "--rows", "2000", "--runs", "1", "--host-memory", "128MiB")
			}
			code, _, stderr := gstream(args...)
			if code != exitOK && strings.Contains(strings.Join(args, " "), "--device cuda") &&
				strings.Contains(stderr, "no NVIDIA driver") {
				continue
			}
			assert.Equal(t, exitOK, code, "%s: gstream %s: %s", filepath.Base(page), strings.Join(args, " "), stderr)
		}
		for _, args := range commandsOf(string(text), "go run ./cmd/gstream") {
			commands++
			t.Chdir(root)
			code, _, stderr := gstream(args...)
			assert.Equal(t, exitOK, code, "%s: gstream %s: %s", filepath.Base(page), strings.Join(args, " "), stderr)
			t.Chdir(dir)
		}
	}
	assert.Greater(t, commands, 15)
}

// sqlOfPage returns the blocks of SQL of a page.
func sqlOfPage(t *testing.T, page string) (blocks []string, text string) {
	b, err := os.ReadFile(filepath.Join("../..", page))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(b), -1) {
		blocks = append(blocks, m[1])
	}
	require.NotEmpty(t, blocks)
	return blocks, string(b)
}

// TestSQLOfTheDocs runs the SQL of the docs, and what they say is not there. The SQL of the README has the rows of the
// job of the README.
func TestSQLOfTheDocs(t *testing.T) {
	blocks, page := sqlOfPage(t, "docs/sql.md")
	others, _ := sqlOfPage(t, "docs/coming-from.md")
	readme, _ := sqlOfPage(t, "README.md")
	require.Len(t, readme, 1)
	job, err := filepath.Abs("../../examples/quickstart/job.yaml")
	require.NoError(t, err)
	dir := folder(t)
	for _, text := range slices.Concat(blocks, others, readme) {
		code, _, stderr := gstream("sql", "--device", "host", text)
		assert.Equal(t, exitOK, code, "%s: %s", text, stderr)
	}
	_, list, ok := strings.Cut(page, "### What is not there\n")
	require.True(t, ok)
	examples := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(list, -1)
	require.Greater(t, len(examples), 5)
	for _, m := range examples {
		code, _, stderr := gstream("sql", "--device", "host", m[1])
		assert.Equal(t, exitJob, code, "%s: %s", m[1], stderr)
	}
	code, _, stderr := gstream("run", job, "--device", "host", "--set", "data="+filepath.Join(dir, "data"), "--set",
		"out="+filepath.Join(dir, "job.parquet"))
	require.Equal(t, exitOK, code, stderr)
	_, want, _ := gstream("sql", "FROM 'job.parquet'", "--format", "csv")
	_, got, _ := gstream("sql", "FROM 'out/revenue.parquet'", "--format", "csv")
	require.NotEmpty(t, want)
	require.Equal(t, want, got)
}

// TestTheDocsAddUpTheShares compares the sums of docs/spilling.md with those of the table of grants.
func TestTheDocsAddUpTheShares(t *testing.T) {
	text, err := os.ReadFile("../../docs/spilling.md")
	require.NoError(t, err)
	percent := func(sum float64) string { return fmt.Sprintf("%.0f %%", 100*sum) }
	sums := map[string][2]float64{}
	gpu := 0.0
	for _, p := range grant.Phases() {
		of := sums[p.Name]
		switch {
		case p.Memory == grant.OfGPU:
			gpu = max(gpu, p.Sum())
			continue
		case p.Memory != grant.OfCPU:
			continue
		case p.Frugal:
			of[1] = p.Sum()
		default:
			of[0] = p.Sum()
		}
		sums[p.Name] = of
	}
	for name, of := range sums {
		assert.Contains(t, string(text), fmt.Sprintf("| %s | %s | %s |\n", name, percent(of[0]), percent(of[1])))
	}
	assert.Contains(t, string(text), "at most "+percent(gpu)+" of the GPU's budget")
}

// TestFirstTenMinutes does what a new user does: looks at a file, gets a job, runs it, looks at the
// result, changes the job, makes a mistake, mends it, and runs it again.
func TestFirstTenMinutes(t *testing.T) {
	dir := folder(t)
	step := func(want int, args ...string) string {
		t.Helper()
		code, stdout, stderr := gstream(args...)
		require.Equal(t, want, code, "gstream %s: %s%s", strings.Join(args, " "), stdout, stderr)
		return stdout + stderr
	}
	edit := func(old, with string) {
		t.Helper()
		text, err := os.ReadFile("job.yaml")
		require.NoError(t, err)
		require.Contains(t, string(text), old)
		require.NoError(t, os.WriteFile("job.yaml", []byte(strings.Replace(string(text), old, with, 1)), 0o644))
	}
	assert.Contains(t, step(exitOK, "--help"), "gstream run")
	assert.Contains(t, step(exitOK, "show", "data/orders.parquet", "--rows", "3"), "o_totalprice")
	assert.Contains(t, step(exitOK, "inspect", "data/orders.parquet"), "15,000 rows")
	assert.Contains(t, step(exitOK, "init", "data/orders.parquet", "data/customer.parquet"), "job.yaml")
	step(exitOK, "lint", "job.yaml")
	assert.Contains(t, step(exitOK, "show", "job.yaml"), "o_orderkey")
	assert.Contains(t, step(exitOK, "run", "job.yaml"), "wrote 15,000 rows")
	assert.Contains(t, step(exitIO, "run", "job.yaml"), "--overwrite")

	edit("  # - filter: o_orderkey is not null", "  - filter: o_totalprise > 100000")
	assert.Contains(t, step(exitJob, "run", "job.yaml", "--overwrite"), `did you mean "o_totalprice"?`)
	edit("o_totalprise", "o_totalprice")
	edit("  # - join: {with: customer, on: orders.o_custkey = customer.c_custkey}",
		"  - join: {with: customer, on: orders.o_custkey = customer.c_custkey}")
	edit("  # - group: {by: [o_orderkey], aggregates: {number: count(*)}}",
		"  - group: {by: ['strftime(o_orderdate, ''%Y-%m'') as month'], aggregates: {number: count(*), total: "+
			"sum(o_totalprice)}}")
	edit("  # - sort: [o_orderkey desc]", "  - sort: [month]")
	assert.Contains(t, step(exitOK, "functions", "strftime"), "strftime")
	assert.Contains(t, step(exitOK, "explain", "job.yaml"), "group")
	step(exitOK, "check", "job.yaml")
	step(exitOK, "run", "job.yaml", "--overwrite")
	assert.Contains(t, step(exitOK, "show", filepath.Join(dir, "_out/result.parquet"), "--rows", "2", "--format",
		"csv"), "1992-01")
	step(exitOK, "doctor")
}

// TestVariablesOfTheEnvironmentAreDocumented looks for each variable next to its flag, in the help and in the docs.
func TestVariablesOfTheEnvironmentAreDocumented(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	var docs strings.Builder
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		docs.Write(text)
	}
	for _, command := range []string{"run", "sql", "check", "explain", "show"} {
		code, help, _ := gstream("help", command)
		require.Equal(t, exitOK, code)
		for flag, env := range variables {
			require.Regexp(t, "--"+flag+" .*also "+env+`\b`, help)
			require.True(t, strings.Contains(docs.String(), "`"+env+"`"), env)
		}
	}
}
