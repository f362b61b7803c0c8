package runner

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/source"
	sourceparquet "github.com/gstream/gstream/source/parquet"
)

// workOf is the work of the example jobs at scale factor 1, in millions, by plans over
// the tables of tpchgen-cli. It is proportional to the scale factor. "brotli" writes all rows of
// lineitem with that codec.
var workOf = map[string]work{
	"filter":         {pages: 161, rows: 6, values: 27.2, encoded: 20.4},
	"join":           {pages: 160, rows: 7.96, values: 12.3, encoded: 10.9},
	"aggregate":      {pages: 84.4, values: 24, grouped: 6, encoded: 24},
	"join_aggregate": {pages: 108, rows: 7.5, values: 42, grouped: 6, encoded: 0.45},
	"sort":           {pages: 377, sorted: 96, encoded: 96},
	"partition":      {pages: 377, values: 6, divided: 6, encoded: 102},
	"brotli":         {pages: 377, rows: 6, values: 96, left: 96},
	"q01":            {pages: 79.7, rows: 6, values: 104},
	"q03":            {pages: 122, rows: 11.8, values: 16.2, grouped: 0.316},
	"q05":            {pages: 127, rows: 8.15, values: 1.64},
	"q06":            {pages: 74.3, rows: 6, values: 0.296},
	"q10":            {pages: 138, rows: 9.28, values: 6.17},
	"q12":            {pages: 69.3, rows: 7.53, values: 0.262},
	"q14":            {pages: 121, rows: 6.27, values: 0.713},
	"q19":            {pages: 120, rows: 6.33, values: 0.504},
}

func (w work) times(f float64) work {
	return work{w.pages * f, w.decoded * f, w.rows * f, w.values * f, w.grouped * f, w.sorted * f, w.divided * f,
		w.dividedByCPU * f, w.encoded * f, w.left * f}
}

// atLeastGPU is the time of a process that only starts and ends a GPU. If the CPU is
// faster than that, the GPU was not measured.
const atLeastGPU = 0.27

// atLeastFour is the same with the first of four GPUs, whose driver takes 0.054 s more.
const atLeastFour = atLeastGPU + 0.054

// measured has seconds of whole processes on both devices, measured by
// examples/bench/devices.py. When a device has become faster, new figures replace the old
// ones and the constants are fitted again; with -v the test prints the estimate for each.
var measured = []struct {
	job         string
	scale       float64
	cores, gpus int
	host, cuda  float64
}{
	// examples/bench/devices.md, 2026-11-27 at 377e5982
	{"q01", 10, 16, 1, 0.321, 0.398},
	{"q03", 10, 16, 1, 0.270, 0.436},
	{"q05", 10, 16, 1, 0.277, 0.449},
	{"q06", 10, 16, 1, 0.144, 0.356},
	{"q10", 10, 16, 1, 0.420, 0.423},
	{"q12", 10, 16, 1, 0.224, 0.423},
	{"q14", 10, 16, 1, 0.219, 0.410},
	{"q19", 10, 16, 1, 0.308, 0.459},
	{"aggregate", 10, 16, 1, 0.423, 0.452},
	{"join_aggregate", 10, 16, 1, 0.519, 0.434},
	{"join", 10, 16, 1, 0.427, 0.525},
	{"filter", 10, 16, 1, 0.528, 0.608},
	{"sort", 10, 16, 1, 4.253, 1.303},
	{"brotli", 10, 16, 1, 2.891, 2.804},
	{"q01", 1, 16, 1, 0.054, 0.334},
	{"q03", 1, 16, 1, 0.063, 0.365},
	{"q05", 1, 16, 1, 0.066, 0.343},
	{"q06", 1, 16, 1, 0.035, 0.311},
	{"q10", 1, 16, 1, 0.131, 0.378},
	{"q12", 1, 16, 1, 0.052, 0.340},
	{"q14", 1, 16, 1, 0.042, 0.368},
	{"q19", 1, 16, 1, 0.055, 0.314},
	{"aggregate", 1, 16, 1, 0.086, 0.362},
	{"join_aggregate", 1, 16, 1, 0.095, 0.327},
	{"join", 1, 16, 1, 0.080, 0.338},
	{"filter", 1, 16, 1, 0.075, 0.365},
	{"sort", 1, 16, 1, 0.469, 0.454},
	{"q01", 10, 4, 1, 1.057, 0.407},
	{"q06", 10, 4, 1, 0.455, 0.373},
	{"q10", 10, 4, 1, 1.250, 0.468},
	{"filter", 10, 4, 1, 1.710, 0.628},
	{"sort", 10, 4, 1, 10.845, 1.293},
	{"q01", 1, 2, 1, 0.210, 0.311},
	{"q06", 1, 2, 1, 0.074, 0.308},
	{"q12", 1, 2, 1, 0.107, 0.307},
	{"join", 1, 2, 1, 0.239, 0.352},
	{"filter", 1, 2, 1, 0.311, 0.357},
	{"sort", 1, 2, 1, 2.069, 0.564},
	// The CPU by devices.md at 06c29c0, the GPU by decode.md
	{"filter", 30, 16, 1, 2.464, 1.031},
	{"join", 30, 16, 1, 1.781, 1.112},
	{"aggregate", 30, 16, 1, 1.692, 0.802},
	{"join_aggregate", 30, 16, 1, 2.007, 0.598},
	{"q01", 30, 16, 1, 1.200, 0.554},
	{"q03", 30, 16, 1, 0.977, 0.609},
	{"q05", 30, 16, 1, 1.253, 0.632},
	{"q06", 30, 16, 1, 0.523, 0.441},
	{"q10", 30, 16, 1, 1.712, 0.669},
	{"q12", 30, 16, 1, 0.659, 0.546},
	{"q14", 30, 16, 1, 0.658, 0.533},
	{"q19", 30, 16, 1, 0.955, 0.590},
	{"sort", 30, 16, 1, 16.857, 2.5},
	// 64 cores and four GPUs, where the CPU takes less than the start of a GPU
	{"q06", 30, 64, 4, 0.247, atLeastFour},
	{"q14", 30, 64, 4, 0.300, atLeastFour},
	{"aggregate", 10, 64, 4, 0.308, atLeastFour},
	{"q01", 10, 64, 4, 0.180, atLeastFour},
	{"q03", 10, 64, 4, 0.218, atLeastFour},
	{"q05", 10, 64, 4, 0.193, atLeastFour},
	{"q06", 10, 64, 4, 0.107, atLeastFour},
	{"q12", 10, 64, 4, 0.148, atLeastFour},
	{"q14", 10, 64, 4, 0.143, atLeastFour},
	{"q19", 10, 64, 4, 0.173, atLeastFour},
	{"filter", 1, 64, 4, 0.080, atLeastFour},
	{"join", 1, 64, 4, 0.080, atLeastFour},
	{"aggregate", 1, 64, 4, 0.063, atLeastFour},
	{"join_aggregate", 1, 64, 4, 0.096, atLeastFour},
	{"q01", 1, 64, 4, 0.056, atLeastFour},
	{"q03", 1, 64, 4, 0.075, atLeastFour},
	{"q05", 1, 64, 4, 0.076, atLeastFour},
	{"q06", 1, 64, 4, 0.038, atLeastFour},
	{"q10", 1, 64, 4, 0.129, atLeastFour},
	{"q12", 1, 64, 4, 0.067, atLeastFour},
	{"q14", 1, 64, 4, 0.044, atLeastFour},
	{"q19", 1, 64, 4, 0.060, atLeastFour},
	// An earlier machine with 16 cores and an H200, 2026-11-22
	{"filter", 0.01, 16, 1, 0.016, 0.274},
	{"join", 0.01, 16, 1, 0.017, 0.293},
	{"aggregate", 0.01, 16, 1, 0.016, 0.313},
	{"join_aggregate", 0.01, 16, 1, 0.012, 0.303},
	{"sort", 0.01, 16, 1, 0.037, 0.309},
	{"q01", 0.01, 16, 1, 0.015, 0.286},
	{"q03", 0.01, 16, 1, 0.015, 0.288},
	{"q05", 0.01, 16, 1, 0.017, 0.292},
	{"q06", 0.01, 16, 1, 0.012, 0.274},
	{"q10", 0.01, 16, 1, 0.020, 0.291},
	{"q12", 0.01, 16, 1, 0.144, 0.308},
	{"q14", 0.01, 16, 1, 0.056, 0.425},
	{"q19", 0.01, 16, 1, 0.122, 0.393},
	// 2 cores of an Intel Xeon, 2026-11-22
	{"join_aggregate", 1, 2, 1, 0.180, atLeastGPU},
	{"q03", 1, 2, 1, 0.125, atLeastGPU},
	{"q05", 1, 2, 1, 0.143, atLeastGPU},
	{"q10", 1, 2, 1, 0.253, atLeastGPU},
	{"q14", 1, 2, 1, 0.102, atLeastGPU},
	{"q19", 1, 2, 1, 0.140, atLeastGPU},
}

func TestTheChoiceIsRightWhereBothDevicesWereMeasured(t *testing.T) {
	for _, m := range measured {
		w, ok := workOf[m.job]
		require.True(t, ok, m.job)
		gpus := cuda.Census{Installed: m.gpus, Visible: m.gpus, Counted: true}
		c := w.times(m.scale*1e6).choose(m.cores, starts(gpus, 1, true))
		took := m.host
		if c.Device == execution.CUDA {
			took = m.cuda
		}
		t.Logf("%-14s SF %-5v %2d cores, GPUs %d: measured %.2f and %.2f s, estimated %.2f and %.2f s", m.job, m.scale,
			m.cores, m.gpus, m.host, m.cuda, c.Host.Seconds(), c.CUDA.Seconds())
		require.LessOrEqual(t, took, 1.1*min(m.host, m.cuda), "%s at scale factor %v on %d cores: %v", m.job, m.scale,
			m.cores, c)
	}
}

// TestEstimatesOfManyCoresAreNearWhatWasMeasured: examples/bench/many-cores.md.
func TestEstimatesOfManyCoresAreNearWhatWasMeasured(t *testing.T) {
	for _, m := range []struct {
		job   string
		scale float64
		cores int
		took  float64
	}{
		{"q01", 30, 16, 0.907}, {"q01", 30, 32, 0.597}, {"q01", 30, 64, 0.502}, {"q01", 10, 64, 0.204},
		{"join_aggregate", 30, 16, 1.484}, {"join_aggregate", 30, 32, 1.080}, {"join_aggregate", 30, 64, 1.089},
		{"join_aggregate", 10, 64, 0.401},
	} {
		parts := workOf[m.job].times(m.scale*1e6).on(hostRates, m.cores)
		require.InEpsilon(t, m.took, estimate(parts).Seconds(), 0.4, "%+v", m)
	}
}

func TestMoreCoresTakeLess(t *testing.T) {
	w := workOf["q01"].times(30e6)
	for cores := 1; cores < 64; cores *= 2 {
		require.Less(t, estimate(w.on(hostRates, 2*cores)), estimate(w.on(hostRates, cores)))
		require.Less(t, estimate(w.on(gpuRates(gpuStart), 2*cores)), estimate(w.on(gpuRates(gpuStart), cores)))
	}
}

// quickstart returns two tables of an example.
func quickstart(t *testing.T) map[string]source.Table {
	tables := map[string]source.Table{}
	for _, name := range []string{"lineitem", "orders"} {
		table, err := sourceparquet.Open([]string{"../../../examples/quickstart/data/" + name + ".parquet"},
			sourceparquet.OpenOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { table.Close() })
		tables[name] = table
	}
	return tables
}

// TestAJoinByARangeCostsItsSearchesAndItsPairs compares the work of joins by a range with
// that of all pairs.
func TestAJoinByARangeCostsItsSearchesAndItsPairs(t *testing.T) {
	tables := quickstart(t)
	const lines, orders = 60175, 15000
	rows := func(algorithm string, on ...string) work {
		e := logical.NewEstimator(t.Context())
		last, faults := logical.Bind(e, logical.Query{Sources: []string{"lineitem", "orders"}, Text: &job.Job{},
			Steps: []job.Step{
				{From: "lineitem", Join: &job.Join{With: "orders", Kind: "semi", On: on, Algorithm: algorithm}},
			}}, tables)
		require.Empty(t, faults)
		p, err := physical.Lower("work", e, logical.Optimize(e, last.Output(), logical.Options{}))
		require.NoError(t, err)
		return planWork(p, []execution.Target{nil})
	}
	const below, other = "l_partkey < o_orderkey", "l_orderkey <> o_custkey"
	searches := lines * math.Log2(orders+1)
	require.InEpsilon(t, lines*orders, rows("npj", below).rows, 0.01)
	require.InEpsilon(t, lines+orders+searches, rows("", below).rows, 0.01)
	require.EqualValues(t, orders, rows("", below).sorted)
	require.EqualValues(t, 2*orders, rows("", below, other).sorted)
	both := rows("", below, other).rows
	require.Greater(t, both, 0.01*lines*orders)
	require.Less(t, both, 0.5*lines*orders)
}

// encodesFirst is a partitioned target of which devices encode the first column, unless none.
type encodesFirst struct {
	execution.Target
	none bool
}

func (encodesFirst) Divides() bool { return true }

func (encodesFirst) FromOneDevice(bool) bool { return true }

func (e encodesFirst) EncodedByDevice(s *gpu.Schema) []bool {
	out := make([]bool, s.Len())
	out[0] = !e.none
	return out
}

func TestWorkIsThatOfThePlan(t *testing.T) {
	tables := quickstart(t)
	e := logical.NewEstimator(t.Context())
	last, faults := logical.Bind(e, logical.Query{Sources: []string{"lineitem", "orders"}, Text: &job.Job{},
		Steps: []job.Step{
			{From: "lineitem", Filter: "l_quantity < 100"},
			{Join: &job.Join{With: "orders", On: []string{"l_orderkey = o_orderkey"}}},
			{Select: job.Columns{{Expr: "o_custkey"}, {Expr: "l_quantity * 2", Name: "q"}}},
			{Sort: []string{"o_custkey"}},
		}}, tables)
	require.Empty(t, faults)
	p, err := physical.Lower("work", e, logical.Optimize(e, last.Output(), logical.Options{}))
	require.NoError(t, err)
	const lines, orders = 60175, 15000
	w := planWork(p, []execution.Target{nil})
	bytes := func(name string) float64 {
		for _, table := range tables {
			for i, n := range table.Schema().Names() {
				if n == name {
					return float64(table.Stats(i).Bytes)
				}
			}
		}
		return 0
	}
	require.EqualValues(t, lines, tables["lineitem"].Rows())
	require.EqualValues(t, orders, tables["orders"].Rows())
	require.Equal(t, bytes("l_orderkey")+bytes("l_quantity")+bytes("o_orderkey")+bytes("o_custkey"), w.pages)
	require.Zero(t, w.decoded)
	// The filter keeps all lines, and the join finds one order for each.
	near := func(want, got float64) { t.Helper(); require.InEpsilon(t, want, got, 0.05) }
	near(lines+lines+orders, w.rows)
	near(2*lines+2*lines+lines, w.values)
	near(2*lines, w.sorted)
	// Nobody knows what this output does with the rows.
	near(2*lines, w.left)
	require.Zero(t, w.encoded)
	require.Zero(t, w.divided)
	w = planWork(p, []execution.Target{encodesFirst{}})
	near(lines, w.divided)
	require.Zero(t, w.dividedByCPU)
	near(lines, planWork(p, []execution.Target{encodesFirst{none: true}}).dividedByCPU)
	near(lines, w.encoded)
	near(lines, w.left)
}

func TestAJoinWithoutAnEqualityCostsItsPairs(t *testing.T) {
	side := &physical.Stage{Spec: &physical.Union{}, Rows: 1000, Schema: &gpu.Schema{}}
	w := work{}
	w.add(&physical.Stage{Spec: &physical.Join{}, Rows: 10, Pairs: 1e6, Schema: &gpu.Schema{},
		Inputs: []*physical.Stage{side, side}})
	require.Equal(t, 1e6+2000, w.rows)
	w.add(&physical.Stage{Spec: &physical.Join{}, Rows: 10, Sorted: 5000, Schema: &gpu.Schema{},
		Inputs: []*physical.Stage{side, side}})
	require.Equal(t, 5000.0, w.sorted)
}

func TestTheChoiceSaysWhatEitherDeviceTakes(t *testing.T) {
	c := work{pages: 1e12, left: 1e9}.choose(4, gpuStart)
	require.Equal(t, execution.CUDA, c.Device)
	require.Less(t, c.CUDA, c.Host)
	require.Regexp(t, `^device cuda: about [\d.e+]+ s on the GPU \(decoding [\d.e+]+ s, encoding that only the CPU does `+
		`[\d.e+]+ s\); about [\d.e+]+ s on 4 cores \(decoding [\d.e+]+ s\)$`, c.String())
	c = work{pages: 1e6, decoded: 1e7}.choose(4, gpuStart)
	require.Equal(t, execution.Host, c.Device)
	require.Less(t, c.Host, time.Second)
	require.Regexp(t, `^about [\d.]+ s on 4 cores \(start and end [\d.]+ s, decoding that only the CPU does [\d.]+ s\); `+
		`about [\d.]+ s on the GPU \(start and end [\d.]+ s\)$`, c.Why)
}

// TestTheStartOfAGPUIsKnown compares the starts of drivers that were measured (see examples/bench/devices.md).
func TestTheStartOfAGPUIsKnown(t *testing.T) {
	for _, m := range []struct {
		installed, visible int
		driver             float64
	}{{1, 1, 0.105}, {4, 1, 0.16}, {4, 2, 0.38}, {4, 4, 0.78}, {8, 1, 0.36}, {8, 2, 0.57}, {8, 4, 1.09}, {8, 8, 2.52}} {
		all := cuda.Census{Installed: m.installed, Visible: m.visible, Counted: true}
		require.InDelta(t, m.driver, starts(all, 1, false)-gpuStart+driverStart, 0.17, "%+v", m)
		one := cuda.Census{Installed: m.installed, Visible: 1, Counted: true}
		require.Equal(t, starts(one, 1, false), starts(all, 1, true), "the others are hidden")
	}
	require.Equal(t, gpuStart, starts(cuda.Census{}, 1, false), "nothing is known")
	require.Equal(t, starts(cuda.Census{Installed: 8, Visible: 8, Counted: true}, 1, false),
		starts(cuda.Census{Installed: 8}, 1, true), "none can be hidden")
	require.Less(t, starts(cuda.Census{Installed: 8, Visible: 8, Counted: true, Started: true}, 1, false), gpuStart)
}

// TestASecondGPUMustPay: two H200 took 0.25 s longer for jobs at scale factor 30 (examples/bench/gpus.md). They pay
// where they save more than their start.
func TestASecondGPUMustPay(t *testing.T) {
	gpus := cuda.Census{Installed: 8, Visible: 8, Counted: true}
	choose := func(w work, sent float64) *execution.Choice {
		c := w.choose(16, starts(gpus, 1, true))
		c.Device = execution.CUDA
		w.chooseGPUs(c, 8, 16, func(n int) (start, exchange float64) {
			return starts(gpus, n, true), sent / exchangeRate
		})
		return c
	}
	for _, job := range []string{"q01", "q03", "q05", "q06", "q10", "q19"} {
		c := choose(workOf[job].times(30e6), 0)
		require.Zero(t, c.GPUs, job)
		require.Contains(t, c.Why, " on the GPU (", job)
		require.Contains(t, c.Why, " on 2 GPUs (start and end ", job)
	}
	large := work{encoded: 1e10}
	c := choose(large, 1e9)
	require.Greater(t, c.GPUs, 1)
	require.Regexp(t, `^about [\d.]+ s on 4 GPUs \(.*\); about [\d.]+ s on the GPU `, c.Why)
	require.Zero(t, choose(large, 1e12).GPUs, "exchanges take longer")
	require.InDelta(t, 0.25, starts(cuda.Census{Installed: 2, Visible: 2, Counted: true}, 2, true)-
		starts(cuda.Census{Installed: 2, Visible: 2, Counted: true}, 1, true), 0.05)
}
