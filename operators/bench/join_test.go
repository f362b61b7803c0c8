package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/join"
)

func openHost(t *testing.T) gpu.Device {
	d, err := host.Open(host.Options{Threads: 2, Memory: 256 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func openGPU(t *testing.T) gpu.Device { return cudatest.Open(t, cuda.Options{Memory: 256 << 20}) }

// opened is a bench on a device, which has everything back at the end of the test.
func opened(t *testing.T, d gpu.Device) *bench {
	b := &bench{ctx: context.Background(), dev: d, name: "test", runs: 1, each: func(Result) {}}
	require.NoError(t, b.open())
	t.Cleanup(func() {
		require.NoError(t, b.close())
		require.Empty(t, d.Budget().Leaks())
		require.Empty(t, d.HostBudget().Leaks())
	})
	return b
}

func TestOrder(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 64, 1000, 1025} {
		o, seen := newOrder(orderR, n), make([]bool, n)
		for i := range n {
			seen[o.at(i)] = true
		}
		require.NotContains(t, seen, false, n)
	}
}

func TestZipf(t *testing.T) {
	const n, rows = 50, 200_000
	for _, s := range []float64{0.5, 1, 1.5, 2} {
		z, counts, total := newZipf(n, s), make([]float64, n), 0.0
		for i := range rows {
			counts[z.number(i)]++
		}
		for k := range n {
			total += math.Pow(float64(k+1), -s)
		}
		for k, got := range counts {
			want := rows * math.Pow(float64(k+1), -s) / total
			require.InDelta(t, want, got, 6*math.Sqrt(want)+1, "exponent %v, key number %d", s, k)
		}
	}
}

// TestTheAnswersAreThoseOfAJoin joins the drawn rows by a map.
func TestTheAnswersAreThoseOfAJoin(t *testing.T) {
	b := opened(t, openHost(t))
	cases, err := chosenWorkloads([]string{"all"}, 1000)
	require.NoError(t, err)
	for _, w := range cases {
		d := newData(w)
		rows := map[uint64][]int{}
		for i := range d.build {
			k := d.buildValue(0, i)
			rows[k] = append(rows[k], i)
		}
		require.Len(t, rows, d.distinct, w.name())
		var pairs [][2]int
		keys := map[uint64]int{}
		for i := range d.probe {
			k := d.probeValue(0, i)
			keys[k]++
			for _, r := range rows[k] {
				pairs = append(pairs, [2]int{i, r})
			}
		}
		if w.zipf == 0 {
			share := float64(len(pairs)) / (float64(d.probe) * float64(d.build) / float64(d.distinct))
			require.InDelta(t, 1/float64(w.oneIn), share, 0.06, w.name())
		} else {
			require.Greater(t, keys[d.keyOf(0)], d.probe/d.distinct*2, w.name())
		}
		sum, err := b.newChecksum()
		require.NoError(t, err)
		out := &gpu.Stride{Schema: w.spec(Chosen).Out, Rows: len(pairs)}
		for c, f := range out.Schema.Fields {
			col, err := b.values(out.Rows, f.Type.Width(), func(i int) uint64 {
				if c <= d.payloads {
					return d.probeValue(c, pairs[i][0])
				}
				return d.buildValue(c-d.payloads, pairs[i][1])
			})
			require.NoError(t, err)
			out.Cols = append(out.Cols, col)
		}
		if out.Rows > 0 {
			require.NoError(t, sum.add(out))
		}
		out.Release()
		total, err := sum.total()
		require.NoError(t, err)
		sum.release()
		got, err := b.answer(d, out.Schema)
		require.NoError(t, err)
		require.Equal(t, answer{int64(len(pairs)), total}, got, w.name())
	}
}

// TestAChecksumSeesRows moves the values of one column to other rows.
func TestAChecksumSeesRows(t *testing.T) {
	b := opened(t, openHost(t))
	var totals []string
	for _, shift := range []int{0, 1} {
		sum, err := b.newChecksum()
		require.NoError(t, err)
		s := &gpu.Stride{Schema: workload{key: 4, payload: 4, payloads: 1}.schema("r"), Rows: 10}
		for c := range 2 {
			col, err := b.values(10, 4, func(i int) uint64 { return uint64((i + c*shift) % 10) })
			require.NoError(t, err)
			s.Cols = append(s.Cols, col)
		}
		require.NoError(t, sum.add(s))
		total, err := sum.total()
		require.NoError(t, err)
		totals = append(totals, total)
		s.Release()
		sum.release()
	}
	require.NotEqual(t, totals[0], totals[1])
}

func TestAWrongResultIsAnError(t *testing.T) {
	b := opened(t, openHost(t))
	w := workload{build: 100, probe: 200, distinct: 100, oneIn: 2, payloads: 1, key: 4, payload: 8}
	d := newData(w)
	j := &joined{bench: b, workload: w}
	defer j.release()
	require.NoError(t, j.draw(d))
	var err error
	j.want, err = b.answer(d, w.spec(Chosen).Out)
	require.NoError(t, err)
	require.EqualValues(t, 100, j.want.pairs)
	require.NoError(t, j.measure("npj", &Result{}))
	right := j.want
	j.want.sum += "1"
	err = j.measure("npj", &Result{})
	require.ErrorContains(t, err, "wrong result: 100 pairs with the checksum "+right.sum)
	require.ErrorIs(t, err, ErrWrong)
	j.want = right
	j.want.pairs++
	require.ErrorContains(t, j.measure("npj", &Result{}), "wrong result: 100 pairs, want 101")
}

// TestJoinsOfAllCases runs all cases by all algorithms. Each result is compared with its
// answer in the benchmark.
func TestJoinsOfAllCases(t *testing.T) {
	thin := gputest.ThinOr(t, 25)
	for device, open := range map[string]func(*testing.T) gpu.Device{"CPU": openHost, "GPU": openGPU} {
		for i, strideRows := range []int{0, 300} {
			t.Run(fmt.Sprintf("%s, strides of %d", device, strideRows), func(t *testing.T) {
				d := open(t)
				opt := Options{Rows: 5000, Runs: 1, Cases: []string{"all"}, Algorithms: []string{"all"},
					StrideRows: strideRows}
				if device == "GPU" { // an emulator is slow
					opt.Rows, opt.Cases = 1000,
						[]string{"widths", "zipf 1.5", "many to many, distinct keys: 2^24", "match: 1/4"}
					if thin > 1 {
						opt.Cases = opt.Cases[2*i+1 : 2*i+2]
					}
				}
				algorithms := append([]string{Chosen}, join.AlgorithmsOn(d.Properties())...)
				cases, err := chosenWorkloads(opt.Cases, opt.Rows)
				require.NoError(t, err)
				count := 0
				require.NoError(t, Run(context.Background(), d, "join", opt, func(r Result) {
					w := cases[count/len(algorithms)]
					what := r.Case + ", " + r.Join.Algorithm
					require.Equal(t, w.name()+", "+algorithms[count%len(algorithms)], what)
					count++
					require.Empty(t, r.Join.Error, what)
					require.Positive(t, r.Time, what)
					require.Positive(t, r.Join.Memory, what)
					if r.Join.Algorithm != Chosen {
						require.Equal(t, "algorithm "+r.Join.Algorithm+": the job says so", r.Join.Choice)
					}
					require.Equal(t, r.Time, r.Join.Build+r.Join.Probe, what)
					if device == "GPU" {
						require.Equal(t, r.Time, r.Join.Transform+r.Join.Match+r.Join.Materialise, what)
						require.Positive(t, r.Join.Match, what)
					}
				}))
				require.Equal(t, len(cases)*len(algorithms), count)
				require.Empty(t, d.Budget().Leaks())
				require.Empty(t, d.HostBudget().Leaks())
			})
		}
	}
}

// TestAWorkloadOfSeveralChartsIsMeasuredOnce has the same time in both, as a point of each.
func TestAWorkloadOfSeveralChartsIsMeasuredOnce(t *testing.T) {
	var same []Result
	require.NoError(t, Run(t.Context(), openHost(t), "join",
		Options{Rows: 1000, Runs: 1, Cases: []string{"acceptance", "widths"}}, func(r Result) {
			if r.Case == "1000 ⋈ 1000, 2+2 payloads, 4/4 bytes" {
				same = append(same, r)
			}
		}))
	require.Len(t, same, 2)
	require.Equal(t, []string{"acceptance", "widths"}, []string{same[0].Join.Family, same[1].Join.Family})
	require.Equal(t, []string{"|R| = |S|", "4/4"}, []string{same[0].Join.At, same[1].Join.At})
	require.Equal(t, same[0].Time, same[1].Time)
}

// TestACaseThatDoesNotFitIsReported measures the other cases all the same.
func TestACaseThatDoesNotFitIsReported(t *testing.T) {
	d, err := host.Open(host.Options{Threads: 2, Memory: 3 << 20})
	require.NoError(t, err)
	defer d.Close()
	var failed, worked int
	err = Run(context.Background(), d, "join", Options{Rows: 30_000, Runs: 1, Cases: []string{"payloads", "rui"}},
		func(r Result) {
			if r.Join.Error != "" {
				failed++
				require.Zero(t, r.RowsPerSecond())
			} else {
				worked++
			}
		})
	require.True(t, gpu.IsOutOfMemory(err), err)
	require.Positive(t, failed)
	require.Positive(t, worked)
	require.Empty(t, d.Budget().Leaks())
}

func TestChoiceOfCases(t *testing.T) {
	count := func(names ...string) int {
		t.Helper()
		w, err := chosenWorkloads(names, full)
		require.NoError(t, err)
		return len(w)
	}
	require.Equal(t, 9, count())
	require.Equal(t, 13, count("sizes"))
	require.Equal(t, 20, count("zipf", "acceptance"))
	require.Equal(t, len(workloads()), count("all"))
	require.Equal(t, 2, count("8/8 BYTES"), "acceptance and widths have such a case")
	require.Equal(t, 1, count("widths:8/8 BYTES"))
	w, err := chosenWorkloads([]string{"16"}, full)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(w,
		func(w workload) bool { return w.name() == "2^25 ⋈ 2^25, 1+1 payloads, 4/4 bytes, 2^21 distinct keys" }))
	for want, opt := range map[string]Options{
		`no case of the benchmark join is named "zip code"`: {Cases: []string{"zip code"}},
		`no join algorithm is named "fast"`:                 {Algorithms: []string{"fast"}},
		"more than 2147483646 rows a side: lower --rows":    {Cases: []string{"sizes"}, Rows: gpu.MaxRows},
		"rows are between 0 and 2147483646":                 {StrideRows: -1},
	} {
		require.ErrorContains(t, opt.Check("join"), want)
	}
	require.NoError(t, Options{}.Check("join"))
}

func TestStepsOfAJoin(t *testing.T) {
	before := transform
	for _, s := range [][2]string{
		{"sort", transform}, {"gather", transform}, {"hash", transform}, {"partition, move", transform},
		{"concat", transform},
		{"merge match", match}, {"join pairs", match}, {"gather", materialise}, {"gather", materialise},
		{"partition, count", transform}, {"gather", transform}, {"join partitions", match},
		{"join partitions, materialise", materialise}, {"scatter", materialise},
	} {
		before = step(s[0], before)
		require.Equal(t, s[1], before, s[0])
	}
}
