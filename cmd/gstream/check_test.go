package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline"
)

// linesJob is a job over a step "lines", which has all lines of the example's orders eight times.
// The other steps are YAML.
func linesJob(t *testing.T, steps string) string {
	abs, err := filepath.Abs(data)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "job.yaml")
	const columns = "{name: part, from: lineitem, select: [l_orderkey, l_partkey, l_suppkey, l_quantity, " +
		"l_extendedprice, l_discount, l_tax, l_shipdate]}"
	text := "sources: {lineitem: " + abs + "/lineitem.parquet, orders: " + abs + "/orders.parquet}\nsteps:\n  - " +
		columns +
		"\n  - {name: lines, from: part, union: [part, part, part, part, part, part, part]}\n" + steps +
		"\noutput: {parquet: out.parquet}\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

const (
	sortedLines = "  - sort: [l_extendedprice, l_partkey]"
	// The supplier may be of any line before or behind.
	farSupplier = `
  - {from: lines, select: {before: "lag(l_suppkey, l_partkey - 1000 ignore nulls) over (order by l_shipdate)", l_tax: l_tax, l_partkey: l_partkey, l_quantity: l_quantity}}`
)

// check runs gstream check and returns what it says, and its exit code.
func check(t *testing.T, path string, flags ...string) (int, pipeline.Check, string) {
	args := append([]string{"check", path, "--device", "host", "--threads", "2", "--spill-dir", t.TempDir()}, flags...)
	code, text, stderr := gstream(args...)
	require.Empty(t, stderr)
	jsonCode, stdout, stderr := gstream(append(args, "--format", "json")...)
	require.Empty(t, stderr)
	require.Equal(t, code, jsonCode)
	var c pipeline.Check
	require.NoError(t, json.Unmarshal([]byte(stdout), &c), stdout)
	return code, c, text
}

func TestCheckSaysWhatARunThenSpills(t *testing.T) {
	path := linesJob(t, sortedLines)
	code, c, text := check(t, path, "--host-memory", "20MiB")
	require.Equal(t, exitOK, code, text)
	require.True(t, c.Finishes)
	require.Empty(t, c.Problems)
	require.Len(t, c.Stages, 1)
	sort := c.Stages[0]
	assert.Equal(t, "sort", sort.Kind)
	assert.Zero(t, sort.Fixed)
	assert.Zero(t, sort.Host, "the CPU has one memory")
	require.Len(t, c.Tiers, 2)
	assert.EqualValues(t, 20<<20, c.Tiers[0].Limit)
	assert.Greater(t, c.Tiers[0].Needs, c.Tiers[0].Limit)
	assert.GreaterOrEqual(t, c.Tiers[0].Spilled, sort.Disk)
	assert.Equal(t, pipeline.TierDisk, c.Tiers[1].Tier)
	assert.Contains(t, text, "The run will finish, by estimates of rows; it may need more or less.")
	assert.Contains(t, text, "host memory: needs ")

	report := filepath.Join(t.TempDir(), "report.json")
	code, _, stderr := gstream("run", path, "--device", "host", "--threads", "2", "--spill-dir", t.TempDir(),
		"--host-memory", "20MiB", "--spill-compression", "none", "--report", report)
	require.Equal(t, exitOK, code, stderr)
	written, err := os.ReadFile(report)
	require.NoError(t, err)
	var r pipeline.Report
	require.NoError(t, json.Unmarshal(written, &r))
	did := r.Stages[len(r.Stages)-1]
	require.Equal(t, "sort", did.Kind)
	assert.InEpsilon(t, sort.Disk, did.Spill.Disk.In, 0.25)
}

func TestCheckOfAJobThatFits(t *testing.T) {
	code, c, text := check(t, linesJob(t, sortedLines), "--host-memory", "1GiB")
	require.Equal(t, exitOK, code, text)
	require.True(t, c.Finishes)
	for _, s := range c.Stages {
		assert.Positive(t, s.Holds, s.Step)
		assert.Zero(t, s.Disk, s.Step)
	}
	assert.Less(t, c.Tiers[0].Needs, c.Tiers[0].Limit)
	assert.Zero(t, c.Tiers[0].Spilled)
	assert.Zero(t, c.Tiers[1].Needs)
	assert.Positive(t, c.Tiers[1].Limit)
}

func TestCheckRefusesWhatCannotSpill(t *testing.T) {
	path := linesJob(t, farSupplier)
	code, c, text := check(t, path, "--host-memory", "3MiB")
	require.Equal(t, exitMemory, code, text)
	require.False(t, c.Finishes)
	require.Len(t, c.Problems, 1)
	r := c.Problems[0]
	assert.Equal(t, pipeline.TierHost, r.Tier)
	assert.Contains(t, r.Stage, "window")
	assert.Greater(t, r.Needs, r.Limit)
	assert.Contains(t, r.Hint, "raise --host-memory to more than ")
	assert.Contains(t, text, r.Why)
	assert.Contains(t, text, "The run would fail")
	code, _, text = check(t, path, "--host-memory", "64MiB")
	require.Equal(t, exitOK, code, text)
}

func TestCheckRefusesAScanWithoutRoomForAStride(t *testing.T) {
	path, _ := jobFile(t, "  - sort: o_comment", "")
	code, c, text := check(t, path, "--host-memory", "2MiB")
	require.Equal(t, exitMemory, code, text)
	require.Len(t, c.Problems, 1)
	assert.Equal(t, "orders: scan", c.Problems[0].Stage)
	assert.Contains(t, text, "the least for a stride")
}

func TestCheckRefusesMoreThanTheDiskHolds(t *testing.T) {
	path := linesJob(t, sortedLines)
	for want, flags := range map[string][]string{
		"before compression; ":               {"--spill-limit", "1MiB"},
		"--spill-dir is none":                {"--spill-dir", "none"},
		"--spill-dir cannot be used: statfs": {"--spill-dir", ""}, // the default
	} {
		if flags[1] == "" {
			t.Setenv("TMPDIR", "/nowhere")
		}
		code, c, text := check(t, path, append(flags, "--host-memory", "20MiB")...)
		require.Equal(t, exitMemory, code, text)
		require.Len(t, c.Problems, 1)
		assert.Equal(t, pipeline.TierDisk, c.Problems[0].Tier)
		assert.Contains(t, c.Problems[0].Why, want)
		code, _, text = check(t, path, append(flags, "--host-memory", "1GiB")...)
		assert.Equal(t, exitOK, code, text)
	}
}
