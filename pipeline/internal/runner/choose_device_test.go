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
// the tables of tpchgen-cli. It is proportional to the scale factor.
var workOf = map[string]work{
	"filter":         {scanned: 161, rows: 6, values: 27.2, encoded: 20.4, written: 150},
	"join":           {scanned: 160, rows: 7.96, values: 12.3, encoded: 10.9, written: 80.1},
	"aggregate":      {scanned: 84.4, values: 24, grouped: 6, encoded: 24, written: 288},
	"join_aggregate": {scanned: 108, rows: 7.5, values: 42, grouped: 6, encoded: 0.45, written: 4.8},
	"sort":           {scanned: 377, sorted: 96, encoded: 96, written: 912},
	"q01":            {scanned: 79.7, rows: 6, values: 104},
	"q03":            {scanned: 122, rows: 11.7, values: 14.4},
	"q05":            {scanned: 127, rows: 8.02, values: 1.05},
	"q06":            {scanned: 74.3, rows: 6, values: 0.296},
	"q10":            {scanned: 138, rows: 8.42, values: 3.25, grouped: 0.023},
	"q12":            {scanned: 69.3, rows: 7.51, values: 0.062},
	"q14":            {scanned: 121, rows: 6.27, values: 0.713},
	"q19":            {scanned: 120, rows: 6.27, values: 0.289},
}

func (w work) times(f float64) work {
	return work{w.scanned * f, w.rows * f, w.values * f, w.grouped * f, w.sorted * f, w.encoded * f, w.written * f}
}

// atLeastGPU is the time of a process that only starts and ends a GPU. If the CPU is
// faster than that, the GPU was not measured.
const atLeastGPU = 0.27

// measured has seconds of whole processes on both devices, measured by
// examples/bench/devices.py. When a device has become faster, new figures replace the old
// ones and the constants are fitted again; with -v the test prints the estimate for each.
var measured = []struct {
	job         string
	scale       float64
	cores, gpus int
	host, cuda  float64
}{
	// examples/bench/devices.md
	{"filter", 30, 16, 1, 2.464, 2.701},
	{"join", 30, 16, 1, 1.781, 1.834},
	{"aggregate", 30, 16, 1, 1.692, 1.400},
	{"join_aggregate", 30, 16, 1, 2.007, 1.108},
	{"q01", 30, 16, 1, 1.200, 0.966},
	{"q03", 30, 16, 1, 0.977, 1.014},
	{"q05", 30, 16, 1, 1.253, 1.220},
	{"q06", 30, 16, 1, 0.523, 0.784},
	{"q10", 30, 16, 1, 1.712, 1.316},
	{"q12", 30, 16, 1, 0.659, 0.789},
	{"q14", 30, 16, 1, 0.658, 0.905},
	{"q19", 30, 16, 1, 0.955, 1.039},
	{"filter", 10, 16, 1, 0.814, 1.114},
	{"join", 10, 16, 1, 0.593, 0.812},
	{"aggregate", 10, 16, 1, 0.559, 0.696},
	{"join_aggregate", 10, 16, 1, 0.650, 0.555},
	{"q01", 10, 16, 1, 0.400, 0.544},
	{"q03", 10, 16, 1, 0.340, 0.596},
	{"q05", 10, 16, 1, 0.386, 0.659},
	{"q06", 10, 16, 1, 0.181, 0.528},
	{"q10", 10, 16, 1, 0.518, 0.728},
	{"q12", 10, 16, 1, 0.294, 0.578},
	{"q14", 10, 16, 1, 0.271, 0.593},
	{"q19", 10, 16, 1, 0.375, 0.650},
	{"filter", 1, 16, 1, 0.102, 0.437},
	{"join", 1, 16, 1, 0.104, 0.391},
	{"aggregate", 1, 16, 1, 0.097, 0.419},
	{"join_aggregate", 1, 16, 1, 0.105, 0.394},
	{"q01", 1, 16, 1, 0.063, 0.384},
	{"q03", 1, 16, 1, 0.072, 0.427},
	{"q05", 1, 16, 1, 0.077, 0.410},
	{"q06", 1, 16, 1, 0.039, 0.377},
	{"q10", 1, 16, 1, 0.127, 0.422},
	{"q12", 1, 16, 1, 0.064, 0.413},
	{"q14", 1, 16, 1, 0.045, 0.368},
	{"q19", 1, 16, 1, 0.058, 0.401},
	{"sort", 1, 16, 1, 0.638, 0.843},
	{"filter", 30, 64, 4, 1.271, 1.684},
	{"join", 30, 64, 4, 0.922, 1.214},
	{"aggregate", 30, 64, 4, 0.807, 0.986},
	{"join_aggregate", 30, 64, 4, 0.898, 0.725},
	{"q01", 30, 64, 4, 0.468, 0.702},
	{"q03", 30, 64, 4, 0.613, 0.710},
	{"q05", 30, 64, 4, 0.461, 0.790},
	{"q06", 30, 64, 4, 0.247, 0.669},
	{"q10", 30, 64, 4, 0.968, 1.001},
	{"q12", 30, 64, 4, 0.340, 0.692},
	{"q14", 30, 64, 4, 0.300, 0.683},
	{"q19", 30, 64, 4, 0.375, 0.764},
	{"filter", 10, 64, 4, 0.442, 0.804},
	{"join", 10, 64, 4, 0.346, 0.659},
	{"aggregate", 10, 64, 4, 0.308, 0.651},
	{"join_aggregate", 10, 64, 4, 0.372, 0.598},
	{"q01", 10, 64, 4, 0.180, 0.549},
	{"q03", 10, 64, 4, 0.218, 0.561},
	{"q05", 10, 64, 4, 0.193, 0.633},
	{"q06", 10, 64, 4, 0.107, 0.493},
	{"q10", 10, 64, 4, 0.347, 0.726},
	{"q12", 10, 64, 4, 0.148, 0.554},
	{"q14", 10, 64, 4, 0.143, 0.571},
	{"q19", 10, 64, 4, 0.173, 0.597},
	{"filter", 1, 64, 4, 0.080, 0.478},
	{"join", 1, 64, 4, 0.080, 0.468},
	{"aggregate", 1, 64, 4, 0.063, 0.444},
	{"join_aggregate", 1, 64, 4, 0.096, 0.460},
	{"q01", 1, 64, 4, 0.056, 0.462},
	{"q03", 1, 64, 4, 0.075, 0.493},
	{"q05", 1, 64, 4, 0.076, 0.499},
	{"q06", 1, 64, 4, 0.038, 0.453},
	{"q10", 1, 64, 4, 0.129, 0.504},
	{"q12", 1, 64, 4, 0.067, 0.463},
	{"q14", 1, 64, 4, 0.044, 0.496},
	{"q19", 1, 64, 4, 0.060, 0.448},
	{"sort", 1, 64, 4, 0.468, 0.820},
	// Results to a disk, 2026-11-22
	{"sort", 10, 16, 1, 4.920, 3.332},
	{"sort", 30, 16, 1, 16.857, 9.640},
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
	{"join", 1, 2, 1, 0.220, atLeastGPU},
	{"join_aggregate", 1, 2, 1, 0.180, atLeastGPU},
	{"q01", 1, 2, 1, 0.174, atLeastGPU},
	{"q03", 1, 2, 1, 0.125, atLeastGPU},
	{"q05", 1, 2, 1, 0.143, atLeastGPU},
	{"q06", 1, 2, 1, 0.075, atLeastGPU},
	{"q10", 1, 2, 1, 0.253, atLeastGPU},
	{"q12", 1, 2, 1, 0.093, atLeastGPU},
	{"q14", 1, 2, 1, 0.102, atLeastGPU},
	{"q19", 1, 2, 1, 0.140, atLeastGPU},
}

func TestTheChoiceIsRightWhereBothDevicesWereMeasured(t *testing.T) {
	for _, m := range measured {
		w, ok := workOf[m.job]
		require.True(t, ok, m.job)
		gpus := cuda.Census{Installed: m.gpus, Visible: m.gpus, Counted: true}
		c := w.times(m.scale*1e6).choose(m.cores, starts(gpus, true))
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
		require.InEpsilon(t, m.took, workOf[m.job].times(m.scale*1e6).onHost(m.cores).Seconds(), 0.4, "%+v", m)
	}
}

func TestMoreCoresTakeLess(t *testing.T) {
	w := workOf["q01"].times(30e6)
	for cores := 1; cores < 64; cores *= 2 {
		require.Less(t, w.onHost(2*cores), w.onHost(cores))
		require.Less(t, w.onGPU(2*cores, gpuStart), w.onGPU(cores, gpuStart))
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
		return planWork(p)
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
	w := planWork(p)
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
	require.Equal(t, bytes("l_orderkey")+bytes("l_quantity")+bytes("o_orderkey")+bytes("o_custkey"), w.scanned)
	// The filter keeps all lines, and the join finds one order for each.
	near := func(want, got float64) { t.Helper(); require.InEpsilon(t, want, got, 0.05) }
	near(lines+lines+orders, w.rows)
	near(2*lines+2*lines+lines, w.values)
	near(2*lines, w.sorted)
	near(2*lines, w.encoded)
	near(float64(p.Schema.RowBytes())*lines, w.written)
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
	c := work{scanned: 1e12}.choose(4, gpuStart)
	require.Equal(t, execution.CUDA, c.Device)
	require.Less(t, c.CUDA, c.Host)
	require.Regexp(t,
		`^device cuda: about [\d.e+]+ s on the GPU, 0.41 s to start and end it among them; about [\d.e+]+ s on 4 cores$`, c.String())
	c = work{scanned: 1e6}.choose(4, gpuStart)
	require.Equal(t, execution.Host, c.Device)
	require.Less(t, c.Host, time.Second)
}

// TestTheStartOfAGPUIsKnown compares the starts of drivers that were measured (see examples/bench/devices.md).
func TestTheStartOfAGPUIsKnown(t *testing.T) {
	for _, m := range []struct {
		installed, visible int
		driver             float64
	}{{1, 1, 0.105}, {4, 1, 0.16}, {4, 2, 0.38}, {4, 4, 0.78}, {8, 1, 0.36}, {8, 2, 0.57}, {8, 4, 1.09}, {8, 8, 2.52}} {
		all := cuda.Census{Installed: m.installed, Visible: m.visible, Counted: true}
		require.InDelta(t, m.driver, starts(all, false)-gpuStart+driverStart, 0.17, "%+v", m)
		one := cuda.Census{Installed: m.installed, Visible: 1, Counted: true}
		require.Equal(t, starts(one, false), starts(all, true), "the others are hidden")
	}
	require.Equal(t, gpuStart, starts(cuda.Census{}, false), "nothing is known")
	require.Equal(t, starts(cuda.Census{Installed: 8, Visible: 8, Counted: true}, false),
		starts(cuda.Census{Installed: 8}, true), "none can be hidden")
	require.Less(t, starts(cuda.Census{Installed: 8, Visible: 8, Counted: true, Started: true}, false), gpuStart)
}
