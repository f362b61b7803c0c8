package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/pipeline"
)

// withoutDriver skips a test for machines without a driver on a machine with one.
func withoutDriver(t *testing.T) {
	t.Helper()
	if _, err := cuda.Count(""); err == nil {
		t.Skip("this machine has an NVIDIA driver")
	}
}

func TestDevicesSaysInOneLineThatThereIsNoGPU(t *testing.T) {
	withoutDriver(t)
	code, stdout, stderr := gstream("devices")
	require.Equal(t, exitOK, code, stderr)
	assert.Empty(t, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Len(t, lines, 2)
	assert.True(t, strings.HasPrefix(lines[0], "host: "), lines[0])
	assert.Equal(t, "no GPU: no NVIDIA driver: libcuda.so.1 cannot be opened", lines[1])
}

func TestNothingIsSaidOfAGPUThatNobodyAskedFor(t *testing.T) {
	withoutDriver(t)
	path, _ := jobFile(t, "  - limit: 1", "")
	code, stdout, stderr := gstream("run", path, "--progress", "none")
	assert.Equal(t, exitOK, code, stderr)
	assert.Empty(t, stdout+stderr)
}

func TestTheDeviceIsExplained(t *testing.T) {
	withoutDriver(t)
	path, _ := jobFile(t, "  - limit: 1", "")
	code, stdout, stderr := gstream("explain", path)
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "device host: no NVIDIA driver: libcuda.so.1 cannot be opened\n")
	for device, why := range map[string]string{"auto": "no NVIDIA driver: libcuda.so.1 cannot be opened",
		"host": "asked for"} {
		report := filepath.Join(t.TempDir(), "report.json")
		code, _, stderr = gstream("run", path, "--device", device, "--overwrite", "--report", report)
		require.Equal(t, exitOK, code, stderr)
		assert.NotContains(t, stderr, "device host", "nothing was chosen")
		text, err := os.ReadFile(report)
		require.NoError(t, err)
		var r pipeline.Report
		require.NoError(t, json.Unmarshal(text, &r))
		assert.Equal(t, &pipeline.Choice{Device: "host", Why: why}, r.Choice)
	}
}

func TestAGPUThatIsNotThereIsAJobError(t *testing.T) {
	withoutDriver(t)
	for _, command := range [][]string{{"run", "JOB"}, {"explain", "JOB", "--analyze"}, {"bench", "sort"}} {
		t.Run(command[0], func(t *testing.T) {
			path, _ := jobFile(t, "  - limit: 1", "")
			args := append([]string{}, command...)
			for i, a := range args {
				if a == "JOB" {
					args[i] = path
				}
			}
			code, stdout, stderr := gstream(append(args, "--device", "cuda")...)
			assert.Equal(t, exitJob, code)
			assert.Empty(t, stdout)
			assert.Equal(t,
				"gstream: no NVIDIA driver: libcuda.so.1 cannot be opened; install one, or run with --device host\n",
				stderr)
			leavesNothing(t, path)
		})
	}
}

func TestMemoryThatTheDriverRefusesIsAMemoryError(t *testing.T) {
	refused := &gpu.AllocError{Stage: "sort", Tier: "device", Size: 1 << 30,
		Err: &cuda.Error{Call: "cuMemAllocFromPoolAsync", Code: 2}}
	assert.Equal(t, exitMemory, exitCode(fmt.Errorf("run: %w", refused)))
	assert.Equal(t, exitDefect, exitCode(fmt.Errorf("run: %w", &cuda.Error{Call: "cuLaunchKernel", Code: 719})))
}

func TestAnalyzeShowsRowsAndLeavesNoOutput(t *testing.T) {
	path, _ := jobFile(t, "  - filter: o_custkey < 100", "")
	code, stdout, stderr := gstream("explain", path, "--analyze", "--device", "host")
	require.Equal(t, exitOK, code, stderr)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "actual: 15,000 rows in, 1,")
	assert.Regexp(t, `wrote 1,\d\d\d rows`, stdout)
	assert.Regexp(t, `(?m)^    busy: .*\n    what limits the run: .+$`, stdout)
	leavesNothing(t, path)

	code, stdout, stderr = gstream("explain", path, "--analyze", "--device", "host", "--format", "json")
	require.Equal(t, exitOK, code, stderr)
	var e pipeline.Explanation
	require.NoError(t, json.Unmarshal([]byte(stdout), &e))
	require.NotNil(t, e.Actual)
	require.NotNil(t, e.Root.Actual)
	assert.Equal(t, int64(15000), e.Root.Actual.RowsIn)
	assert.Equal(t, e.Actual.Output.Rows, e.Root.Actual.RowsOut)
	leavesNothing(t, path)
}

func TestAnalyzeLeavesAnExistingOutputAlone(t *testing.T) {
	path, out := jobFile(t, "  - limit: 1", ", overwrite: true")
	require.NoError(t, os.WriteFile(out, []byte("mine"), 0o644))
	code, _, stderr := gstream("explain", path, "--analyze", "--device", "host")
	require.Equal(t, exitOK, code, stderr)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text))
	entries, err := os.ReadDir(filepath.Dir(out))
	require.NoError(t, err)
	assert.Len(t, entries, 2)
}

func TestTimelineIsAPageWithAllWork(t *testing.T) {
	path, _ := jobFile(t, "  - filter: o_custkey < 100", "")
	page := filepath.Join(t.TempDir(), "timeline.html")
	code, _, stderr := gstream("run", path, "--device", "host", "--timeline", page)
	require.Equal(t, exitOK, code, stderr)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), "<!doctype html>"))
	assert.Contains(t, string(text), `"orders: scan"`)
	assert.Contains(t, string(text), `"output: row groups"`)
	assert.NotRegexp(t, `(src|href)="?https?:`, string(text), "the page opens without a network")
}

func TestStrideSizeIsTakenAndChecked(t *testing.T) {
	rows := map[string]int64{}
	for _, size := range []string{"8KiB", "1MiB"} {
		path, out := jobFile(t, "  - filter: o_custkey < 100", "")
		code, _, stderr := gstream("run", path, "--device", "host", "--stride-size", size)
		require.Equal(t, exitOK, code, stderr)
		code, stdout, stderr := gstream("inspect", out, "--format", "json")
		require.Equal(t, exitOK, code, stderr)
		var file struct{ Rows int64 }
		require.NoError(t, json.Unmarshal([]byte(stdout), &file))
		require.Positive(t, file.Rows)
		rows[size] = file.Rows
	}
	assert.Equal(t, rows["8KiB"], rows["1MiB"])
	path, _ := jobFile(t, "  - limit: 1", "")
	code, _, stderr := gstream("run", path, "--stride-size", "long")
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, "--stride-size")
	code, _, stderr = gstream("run", path, "--join-filters", "often")
	assert.Equal(t, exitJob, code)
	assert.Contains(t, stderr, "--join-filters")
	leavesNothing(t, path)
}

func TestBenchMeasuresEveryPrimitiveOfTheCPU(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	dir := t.TempDir()
	results, picture := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.svg")
	code, stdout, stderr := gstream("bench", "all", "--device", "host", "--rows", "2000", "--runs", "1",
		"--host-memory", "128MiB", "--json", results, "--plot", picture)
	require.Equal(t, exitOK, code, stderr)
	text, err := os.ReadFile(results)
	require.NoError(t, err)
	var r benchReport
	require.NoError(t, json.Unmarshal(text, &r))
	measured := map[string]bool{}
	for _, x := range r.Results {
		measured[x.Benchmark] = true
		assert.Positive(t, x.Time, x.Case)
		assert.Positive(t, x.BoundRate, x.Case)
		assert.Contains(t, stdout, x.Case)
	}
	for _, name := range []string{"partition", "sort", "select", "gather", "join", "groupby"} {
		assert.True(t, measured[name], name)
	}
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	points := 0
	for _, x := range r.Results {
		if x.Point() != nil {
			points++
		}
	}
	assert.Equal(t, 9+11, points, "of joins and group-bys")
	// Points of a chart are circles on a scale, and bars otherwise.
	assert.Equal(t, points, strings.Count(string(svg), "<circle")+strings.Count(string(svg), `<rect class="bar"`))
	assert.Equal(t, len(r.Results)-points, strings.Count(string(svg), "<rect x"))
}

func TestBenchMeasuresJoinsByAlgorithms(t *testing.T) {
	dir := t.TempDir()
	results, picture := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.svg")
	code, stdout, stderr := gstream("bench", "join", "--device", "host", "--rows", "2000", "--runs", "1",
		"--host-memory", "128MiB", "--stride-rows", "700",
		"--cases", "match,widths", "--algorithm", "chosen,npj", "--json", results, "--plot", picture)
	require.Equal(t, exitOK, code, stderr)
	text, err := os.ReadFile(results)
	require.NoError(t, err)
	var r benchReport
	require.NoError(t, json.Unmarshal(text, &r))
	require.Len(t, r.Results, 2*(5+5+3))
	assert.Contains(t, stdout, "2000 ⋈ 2000, 2+2 payloads, 4/4 bytes, 1/16 match")
	assert.EqualValues(t, 125, r.Results[8].Join.Pairs)
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	assert.Equal(t, 2*(5+5+3), strings.Count(string(svg), "<circle"))
	assert.Equal(t, 2*3, strings.Count(string(svg), "<polyline"), "a line for each algorithm in each chart")
	assert.NotContains(t, string(svg), "NaN")
}

func TestBenchReportsJoinsThatDoNotFit(t *testing.T) {
	results := filepath.Join(t.TempDir(), "r.json")
	code, stdout, stderr := gstream("bench", "join", "--device", "host", "--rows", "30000", "--runs", "1",
		"--host-memory", "3MiB", "--cases", "payloads,rui", "--json", results)
	assert.Equal(t, exitMemory, code, stderr)
	assert.Contains(t, stderr, "6+6 payloads, 4/4 bytes, chosen")
	assert.Contains(t, stdout, "failed")
	text, err := os.ReadFile(results)
	require.NoError(t, err)
	var r benchReport
	require.NoError(t, json.Unmarshal(text, &r))
	assert.Len(t, r.Results, 6+4+7, "the others are measured all the same")
}

func TestBenchSaysWhatItCannotMeasure(t *testing.T) {
	for args, want := range map[string]string{
		"bench transfer --device host":  "the CPU has no link to measure",
		"bench":                         "partition, sort",
		"bench srt":                     `no benchmark is named "srt"`,
		"bench sort --rows -1":          "--rows",
		"bench sort --runs 0":           "--runs",
		"bench sort --device tpu":       "--device tpu",
		"bench sort --host-memory much": "--host-memory",
		"bench sort --cases zipf":       "--cases applies only to the benchmarks join, groupby, spill",
		"bench join --cases skew":       `no case of the benchmark join is named "skew"`,
		"bench join --algorithm fast":   "no join algorithm is named \"fast\": name all, chosen, npj",
		"bench join --stride-rows -1":   "--stride-rows",
		"bench groupby --cases skew":    `no case of the benchmark groupby is named "skew"`,
		"bench groupby --algorithm npj": "no group-by algorithm is named \"npj\": name all, chosen, hgb-g",
	} {
		code, stdout, stderr := gstream(strings.Fields(args)...)
		assert.Equal(t, exitJob, code, args)
		assert.Contains(t, stderr, want, args)
		assert.NotContains(t, stdout, " copy ", args)
	}
}
