package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline"
)

const data = "../../examples/quickstart/data"

// gstream runs a command line and returns its exit code and output.
func gstream(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(context.Background(), args, &out, &err, &leftovers{})
	return code, out.String(), err.String()
}

// jobFile writes a job over the example's tables. The steps and the output's options are
// YAML.
func jobFile(t *testing.T, steps, options string) (path, out string) {
	dir := t.TempDir()
	abs, err := filepath.Abs(data)
	require.NoError(t, err)
	path = filepath.Join(dir, "job.yaml")
	text := "vars: {data: " + abs + "}\nsources: {orders: '${data}/orders.parquet'}\nsteps:\n" + steps +
		"\noutput: {parquet: out.parquet" + options + "}\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path, filepath.Join(dir, "out.parquet")
}

// leavesNothing checks that a failed job has left only its job file.
func leavesNothing(t *testing.T, path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	for _, e := range entries {
		assert.Equal(t, filepath.Base(path), e.Name())
	}
}

func TestRunWritesTheOutputAndReports(t *testing.T) {
	path, out := jobFile(t, "  - filter: o_custkey < 100", "")
	report := filepath.Join(t.TempDir(), "report.json")
	code, stdout, stderr := gstream("run", path, "--report", report, "--threads", "2")
	require.Equal(t, exitOK, code, stderr)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "orders (scan)")
	assert.Contains(t, stderr, "to "+out)
	assert.FileExists(t, out)
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	var r pipeline.Report
	require.NoError(t, json.Unmarshal(text, &r))
	assert.True(t, r.Done)
	assert.Equal(t, int64(15000), r.Stages[0].RowsOut)
	assert.Equal(t, r.Stages[1].RowsOut, r.Output.Rows)
}

func TestExistingOutputNeedsOverwrite(t *testing.T) {
	path, out := jobFile(t, "  - limit: 1", "")
	require.NoError(t, os.WriteFile(out, []byte("mine"), 0o644))
	code, _, stderr := gstream("run", path)
	assert.Equal(t, exitIO, code, stderr)
	assert.Contains(t, stderr, out)
	assert.Contains(t, stderr, "--overwrite")
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text))
	code, _, stderr = gstream("run", path, "--overwrite")
	assert.Equal(t, exitOK, code, stderr)
}

func TestExitCodesAndMessages(t *testing.T) {
	damaged := filepath.Join(t.TempDir(), "orders.parquet")
	require.NoError(t, os.WriteFile(damaged, []byte("PAR1 this is no Parquet file PAR1"), 0o644))
	for name, c := range map[string]struct {
		steps, options string
		args           []string
		code           int
		message        string
	}{
		"unknown key": {steps: "  - fliter: true", code: exitJob,
			message: `unknown key "fliter" (did you mean "filter"?)`},
		"unknown column": {steps: "  - filter: o_custky = 1", code: exitJob, message: "job.yaml:4:13"},
		"unknown variable": {steps: "  - limit: 1", args: []string{"--set", "dta=x"}, code: exitJob,
			message: `did you mean "data"?`},
		"malformed set": {steps: "  - limit: 1", args: []string{"--set", "data"}, code: exitJob,
			message: "name=value"},
		"unknown flag": {steps: "  - limit: 1", args: []string{"--treads=2"}, code: exitJob, message: "--treads"},
		"unknown device": {steps: "  - limit: 1", args: []string{"--device", "tpu"}, code: exitJob,
			message: "--device tpu"},
		"no number of a GPU": {steps: "  - limit: 1", args: []string{"--device", "cuda:x"}, code: exitJob,
			message: "--device cuda:x: must be auto, host, cuda or"},
		"unknown progress": {steps: "  - limit: 1", args: []string{"--progress", "loud"}, code: exitJob,
			message: "--progress loud"},
		"no size": {steps: "  - limit: 1", args: []string{"--host-memory", "lots"}, code: exitJob,
			message: "512MiB"},
		"output option": {steps: "  - limit: 1", options: ", compression: zip", code: exitJob, message: "zip"},
		"damaged file": {steps: "  - limit: 1", args: []string{"--set", "data=" + filepath.Dir(damaged)},
			code: exitData, message: damaged},
		"missing file": {steps: "  - limit: 1", args: []string{"--set", "data=/nowhere"}, code: exitIO,
			message: "/nowhere/orders.parquet"},
		"value out of range": {steps: "  - select: [cast(o_orderkey as tinyint) as x]", code: exitData,
			message: "select 1"},
		"budget": {steps: "  - sort: o_comment", args: []string{"--host-memory", "2MiB"}, code: exitMemory,
			message: "--host-memory"},
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := jobFile(t, c.steps, c.options)
			code, stdout, stderr := gstream(append([]string{"run", path}, c.args...)...)
			assert.Equal(t, c.code, code, stderr)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, c.message)
			assert.True(t, strings.HasPrefix(stderr, "gstream: "), stderr)
			leavesNothing(t, path)
		})
	}
}

func TestMissingJobFileIsAnInputError(t *testing.T) {
	code, _, stderr := gstream("run", "nowhere.yaml")
	assert.Equal(t, exitIO, code)
	assert.Contains(t, stderr, "nowhere.yaml")
}

func TestCommandsThatPrintData(t *testing.T) {
	path, _ := jobFile(t, "  - filter: o_custkey < 100", "")
	for name, args := range map[string][]string{
		"explain": {"explain", path, "--format", "json"},
		"inspect": {"inspect", data + "/orders.parquet", "--format", "json"},
		"devices": {"devices", "--format", "json"},
		"schema":  {"schema"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := gstream(args...)
			assert.Equal(t, exitOK, code)
			assert.Empty(t, stderr)
			assert.True(t, json.Valid([]byte(stdout)), stdout)
		})
	}
	for name, want := range map[string]string{"explain": "skips row groups without: o_custkey < 100",
		"inspect": "o_orderkey BIGINT"} {
		arg := path
		if name == "inspect" {
			arg = data + "/orders.parquet"
		}
		code, stdout, _ := gstream(name, arg)
		assert.Equal(t, exitOK, code)
		assert.Contains(t, stdout, want)
	}
	code, stdout, _ := gstream("version")
	assert.Equal(t, exitOK, code)
	assert.True(t, strings.HasPrefix(stdout, "gstream "))
}

func TestLintIsSilentAboutAGoodJob(t *testing.T) {
	path, _ := jobFile(t, "  - filter: o_custkey < 100", "")
	code, stdout, stderr := gstream("lint", path)
	assert.Equal(t, exitOK, code)
	assert.Empty(t, stdout+stderr)
}

func TestShellsCompleteJobFilesAndValues(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, stdout, stderr := gstream("completion", shell)
		assert.Equal(t, exitOK, code, stderr)
		assert.Contains(t, stdout, "gstream")
	}
	_, stdout, _ := gstream("__complete", "run", "--progress", "")
	assert.Contains(t, stdout, "plain\n")
	_, stdout, _ = gstream("__complete", "run", "")
	assert.Contains(t, stdout, "yaml\n")
}

func TestUnknownCommandSuggestsOneThatExists(t *testing.T) {
	code, _, stderr := gstream("lnt", "job.yaml")
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, `did you mean "lint"?`)
	code, stdout, _ := gstream()
	assert.Equal(t, exitOK, code)
	assert.Contains(t, stdout, "Usage:")
}

func TestFolderIsNotReplacedByAFile(t *testing.T) {
	path, out := jobFile(t, "  - limit: 1", "")
	require.NoError(t, os.Mkdir(out, 0o755))
	code, _, stderr := gstream("run", path, "--overwrite")
	assert.Equal(t, exitIO, code, stderr)
	assert.Contains(t, stderr, out)
	require.DirExists(t, out)
}
