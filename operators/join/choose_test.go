package join

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
)

// aGPU has the caches of the GPU that was measured.
var aGPU = gpu.Properties{Capabilities: gpu.Capabilities{PartitionedJoins: true, PairOutputs: true, SortedTables: true},
	L2: 60 << 20, Shared: 227 << 10}

// wide is an inner join by a key of 4 bytes, with two payloads of 4 bytes on each side.
func wide(build, probe int64) Spec { return withPayloads(build, probe, 2) }

func withPayloads(build, probe int64, payloads int) Spec {
	fields := slices.Repeat([]gpu.Field{{Type: gpu.Of(gpu.Int32)}}, 1+2*payloads)
	side := gpu.NewSchema(fields[:1+payloads]...)
	s := Spec{Probe: side, Build: side, ProbeKeys: []int{0}, BuildKeys: []int{0}, NullSafe: []bool{false},
		UniqueBuild: true, AnyOrder: true,
		ProbeOut: []int{0}, Out: gpu.NewSchema(fields...), BuildRows: build, ProbeRows: probe}
	for i := range payloads {
		s.ProbeOut, s.BuildOut = append(s.ProbeOut, i+1), append(s.BuildOut, i+1)
	}
	return s
}

// TestTheCostModelAgreesWithMeasurements compares it with times of an H200 in milliseconds.
func TestTheCostModelAgreesWithMeasurements(t *testing.T) {
	for build, ms := range map[int64][3]float64{1 << 20: {5.8, 2.70, 12.1}, 1 << 22: {8.3, 3.27, 13},
		1 << 26: {27.7, 5.20, 21}, 1 << 27: {38.9, 6.58, 23.9}} {
		s := wide(build, 1<<27)
		require.InEpsilon(t, ms[0], measured.npj(&s)/1e6, 0.2, build)
		require.InEpsilon(t, ms[1], measured.phj(&s, circumstances{device: aGPU}, true)/1e6, 0.2, build)
		require.InEpsilon(t, ms[2], measured.phj(&s, circumstances{device: aGPU}, false)/1e6, 0.2, build)
	}
}

// TestTheCostModelOfFewMatches compares it with times of 2^27 ⋈ 2^27 rows, of which a part
// has a match, by PHJ-TR and PHJ-UR. The faster one is chosen.
func TestTheCostModelOfFewMatches(t *testing.T) {
	for _, c := range []struct {
		payloads, oneIn int
		tr, ur          float64
	}{{2, 4, 7.3, 10.6}, {2, 8, 7.2, 7.8}, {2, 16, 7.04, 6.56}, {6, 4, 17.2, 16.4}, {6, 8, 16.7, 10.9}} {
		s := withPayloads(1<<27, 1<<27, c.payloads)
		s.PairRows = 1 << 27 / int64(c.oneIn)
		tr, ur := measured.phj(&s, circumstances{device: aGPU}, true)/1e6,
			measured.phj(&s, circumstances{device: aGPU}, false)/1e6
		require.InEpsilon(t, c.tr, tr, 0.2, c)
		require.InEpsilon(t, c.ur, ur, 0.2, c)
		taken := c.tr
		if ur < tr {
			taken = c.ur
		}
		require.LessOrEqual(t, taken, 1.1*min(c.tr, c.ur), "%+v: %.3g and %.3g ms", c, tr, ur)
	}
}

func TestTheChoiceOfAnAlgorithm(t *testing.T) {
	text := gpu.Field{Type: gpu.Of(gpu.String)}
	change := func(f func(*Spec)) Spec {
		s := wide(1<<26, 1<<27)
		f(&s)
		return s
	}
	for name, c := range map[string]struct {
		spec      Spec
		device    gpu.Properties
		algorithm string
		why       string
	}{
		"large build side": {wide(1<<26, 1<<27), aGPU, "phj-tr", "the build side of about 1.0 GiB takes about"},
		"a GPU that is not open": {wide(1<<26, 1<<27), gpu.Properties{Capabilities: aGPU.Capabilities}, "phj-tr",
			"with one table"},
		"in the cache":       {wide(1<<20, 1<<27), aGPU, "npj", "the build side of about 16 MiB fits the L2 cache"},
		"few probe rows":     {wide(1<<27, 1<<20), aGPU, "phj-ur", ""},
		"few matches":        {change(func(s *Spec) { s.PairRows = 1 << 20 }), aGPU, "phj-ur", ""},
		"unknown probe side": {wide(1<<26, 0), aGPU, "npj", "the rows of the probe side are not known"},
		"unknown build side": {wide(0, 1<<20), aGPU, "npj", "the build side is empty, or its rows are not known"},
		"order": {change(func(s *Spec) { s.AnyOrder = false }), aGPU, "npj",
			"it keeps the order of the rows"},
		"two keys": {change(func(s *Spec) { s.ProbeKeys, s.BuildKeys = []int{0, 1}, []int{0, 1} }), aGPU,
			"npj", "not one number"},
		"texts": {change(func(s *Spec) {
			s.Probe, s.Build = gpu.NewSchema(text, text, text),
				gpu.NewSchema(text, text, text)
		}), aGPU, "npj", "not one number"},
		"CPU": {change(func(s *Spec) { s.KeyRange = 1 << 40 }), gpu.Properties{}, "npj",
			"one table is fastest on the CPU"},
		"CPU, narrow range": {change(func(s *Spec) { s.KeyRange = 1 << 31 }), gpu.Properties{}, "npj",
			"a direct table: the keys are in a range of 2.1G"},
		"CPU, unknown range": {wide(1<<23, 1<<24), gpu.Properties{}, "npj", "one table is fastest"},
		"forced":             {change(func(s *Spec) { s.Algorithm = "smj-ur" }), aGPU, "smj-ur", "the job says so"},
	} {
		got := c.spec.Plan(c.device)
		require.Equal(t, c.algorithm, got.Algorithm, "%s: %v", name, got)
		require.Contains(t, got.Why, c.why, name)
	}
	// Batches that are small compared with the build side make partitions pay it many times.
	s := wide(1<<26, 1<<27)
	require.Equal(t, "npj", s.choose(circumstances{device: aGPU, memory: 256 << 20, lanes: 1}).Algorithm)
	require.Equal(t, "phj-tr", s.choose(circumstances{device: aGPU, memory: 100 << 30, lanes: 1}).Algorithm)
}

func TestPartitionsFitFastMemory(t *testing.T) {
	for _, c := range []struct {
		rows, bytes int
		bits        uint
	}{{0, 12, 0}, {1, 12, 0}, {8192, 12, 0}, {1 << 14, 12, 1}, {1 << 27, 12, 14}, {1 << 27, 24, 15},
		{1 << 30, 24, 16}} {
		require.Equal(t, c.bits, partitionBits(aGPU, c.rows, c.bytes), c)
	}
	require.Equal(t, uint(4), partitionBits(gpu.Properties{L2: 1 << 20}, 500_000, 12))
}

// TestABatchIsAsLargeAsTheBuildSideIfMemoryAllows has three times the batch in a quarter of
// the budget.
func TestABatchIsAsLargeAsTheBuildSideIfMemoryAllows(t *testing.T) {
	s := wide(0, 0)
	require.Equal(t, 1000, s.batch(grant.JoinBatch.Among(1<<30, 1), 1000))
	require.Equal(t, 1000, s.batch(grant.JoinBatch.Among(12*12*1000, 1), 1<<20))
	require.Equal(t, 250, s.batch(grant.JoinBatch.Among(12*12*1000, 4), 1<<20))
	require.Equal(t, 1, s.batch(grant.JoinBatch.Among(1, 1), 1<<20))
}
