package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
)

// TestAlgorithmsForGPUsAreRefusedOnTheCPU forces each of them, in commands that plan a run.
func TestAlgorithmsForGPUsAreRefusedOnTheCPU(t *testing.T) {
	onCPU := host.Unopened()
	steps := map[string]string{}
	for _, a := range groupby.Algorithms() {
		if !slices.Contains(groupby.AlgorithmsOn(onCPU), a) {
			steps[a] = "  - group: {by: o_custkey, aggregates: {n: count(*)}, algorithm: " + a + "}"
		}
	}
	for _, a := range join.Algorithms() {
		if !slices.Contains(join.AlgorithmsOn(onCPU), a) {
			steps[a] = "  - join: {with: orders, as: o, kind: semi, on: orders.o_orderkey = o.o_orderkey, algorithm: " +
				a + "}"
		}
	}
	require.Len(t, steps, 8)
	for algorithm, step := range steps {
		path, _ := jobFile(t, step, "")
		for _, command := range []string{"run", "check", "explain"} {
			if command == "explain" && algorithm != "hgb" {
				continue
			}
			code, stdout, stderr := gstream(command, path, "--device", "host")
			require.Equal(t, exitJob, code, "%s %s: %s", command, algorithm, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, "job.yaml:4:5: ")
			require.Contains(t, stderr, "algorithm "+algorithm+" ")
			require.Contains(t, stderr, "--device cuda")
		}
		leavesNothing(t, path)
	}
}
