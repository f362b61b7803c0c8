package gputest

import (
	"fmt"
	"math"
	"math/big"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// sortRows sorts rows of keys in the order that flags say.
func sortRows(keys [][]gpu.Scalar, flags []int) [][]gpu.Scalar {
	order := make([]int, len(keys[0]))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return compareRows(keys, flags, order[i], order[j]) < 0 })
	out := make([][]gpu.Scalar, len(keys))
	for k, values := range keys {
		out[k] = make([]gpu.Scalar, len(order))
		for i, r := range order {
			out[k][i] = values[r]
		}
	}
	return out
}

// testMatchSorted matches sides of all key types, sorted in all orders. The sides are empty, have
// the rows of a tile of the merge path or one row less or more, or differ greatly in size.
func testMatchSorted(t *testing.T, open Open) {
	for _, k := range keyCases() {
		t.Run(k.name, func(t *testing.T) {
			b := setUp(t, open)
			for _, n := range sideSizes() {
				flags := make([]int, len(k.types))
				for i := range flags {
					flags[i] = b.rnd.IntN(4)
				}
				for _, safe := range []bool{false, true} {
					b.checkMergeMatch(k, flags, n[0], n[1], safe)
				}
			}
		})
	}
	i64, i32 := gpu.Of(gpu.Int64), gpu.Of(gpu.Int32)
	for name, c := range map[string]struct {
		typ          gpu.Type
		d            distribution
		build, probe int
	}{
		"half a tile each":      {i64, distribution{sorted: true}, 1024, 1024},
		"a tile":                {i32, distribution{}, 2048, 0},
		"a tile less one":       {i64, distribution{distinct: 900}, 1000, 1047},
		"a tile and one":        {i32, distribution{distinct: 900}, 1000, 1049},
		"large, distinct":       {i32, distribution{sorted: true}, 9000, 20000},
		"large, many to many":   {i64, distribution{distinct: 2000}, 7000, 9000},
		"large, skewed":         {i32, distribution{distinct: 1000, zipf: true}, 2000, 9000},
		"one key":               {i32, distribution{distinct: 1}, 700, 800},
		"one key, many matches": {i64, distribution{distinct: 1}, 70001, 2},
		"few builds":            {i32, distribution{distinct: 5000}, 3, 20000},
		"few probes":            {gpu.Of(gpu.Uint32), distribution{distinct: 5000}, 20000, 3},
		"unsigned":              {gpu.Of(gpu.Uint64), distribution{}, 3000, 3000},
		"nulls":                 {i32, distribution{distinct: 50, nulls: 0.3}, 500, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			b := setUp(t, open)
			for _, flags := range []int{0, 3} {
				b.checkMergeMatch(keyCase{"", []gpu.Type{c.typ}, []bool{false}, []distribution{c.d}}, []int{flags},
					c.build, c.probe, false)
			}
		})
	}
	t.Run("more pairs than ids", func(t *testing.T) {
		b := setUp(t, open)
		const n = 1 << 16 // n² pairs are more than ids can address
		key := []gpu.SortKey{{Column: b.ids(make([]int32, n))}}
		m, err := experimental(b.q).MatchSorted(b.l, key, key, []bool{false})
		require.NoError(t, err)
		defer m.Release()
		b.requireRowsOfAll(m, n)
	})
	t.Run("refuses", func(t *testing.T) {
		for _, c := range []struct {
			build, probe []gpu.SortKey
			want         string
		}{
			{nil, nil, "0 build keys"},
			{make([]gpu.SortKey, 1), make([]gpu.SortKey, 2), "2 probe keys"},
			{[]gpu.SortKey{{Column: gpu.Column{Type: i64}}}, []gpu.SortKey{{Column: gpu.Column{Type: i32}}},
				"BIGINT with INTEGER"},
			{[]gpu.SortKey{{Descending: true}}, make([]gpu.SortKey, 1), "sorted differently"},
			{[]gpu.SortKey{{NullsFirst: true}}, make([]gpu.SortKey, 1), "sorted differently"},
		} {
			b := setUp(t, open)
			_, err := experimental(b.q).MatchSorted(b.l, c.build, c.probe, make([]bool, len(c.build)))
			require.ErrorContains(t, err, c.want)
		}
	})
}

// checkMergeMatch sorts both sides and compares their match with that of the labels. The
// order of the pairs matters.
func (b *bench) checkMergeMatch(k keyCase, flags []int, nBuild, nProbe int, safe bool) {
	t := b.t
	t.Helper()
	nullSafe := make([]bool, len(k.types))
	for i := range nullSafe {
		nullSafe[i] = safe && i%2 == 0
	}
	side := func(n int) (keys []gpu.SortKey, labels []string, dead []bool) {
		values := make([][]gpu.Scalar, len(k.types))
		for i, typ := range k.types {
			values[i] = b.random(typ, n, k.dists[i])
		}
		labels, dead = make([]string, n), make([]bool, n)
		for i, values := range sortRows(values, flags) {
			keys = append(keys, gpu.SortKey{Column: b.up(column(k.types[i], values, k.coded[i]))[0],
				Descending: flags[i]&1 != 0, NullsFirst: flags[i]&2 != 0})
			for r, v := range values {
				labels[r] += label(v) + "\x01"
				dead[r] = dead[r] || !v.Valid && !nullSafe[i]
			}
		}
		return keys, labels, dead
	}
	build, buildLabels, buildDead := side(nBuild)
	probe, probeLabels, probeDead := side(nProbe)
	at := map[string][]int{}
	for r, l := range buildLabels {
		if !buildDead[r] {
			at[l] = append(at[l], r)
		}
	}
	want := pairing{probes: nProbe, builds: nBuild, ordered: true}
	for r, l := range probeLabels {
		if !probeDead[r] {
			for _, m := range at[l] {
				want.pairs = append(want.pairs, [2]int{r, m})
			}
		}
	}
	b.checkMatcher(func() (gpu.Matcher, error) { return experimental(b.q).MatchSorted(b.l, build, probe, nullSafe) },
		want,
		fmt.Sprintf("the match of %d and %d rows, flags %v, null-safe %v", nBuild, nProbe, flags, nullSafe))
}

// requireInts is require.Equal for long lists, which require.Equal would print in full.
func requireInts(t *testing.T, want, got []int, what string) {
	t.Helper()
	require.Equal(t, len(want), len(got), what)
	for i := range want {
		if want[i] != got[i] {
			require.Failf(t, what, "at %d: want %d, got %d", i, want[i], got[i])
		}
	}
}

func testRuns(t *testing.T, open Open) {
	for _, k := range keyCases() {
		t.Run(k.name, func(t *testing.T) {
			b := setUp(t, open)
			for _, n := range upTo(600, []int{0, 1, 2, 31, 32, 63, 64, 65, 511, 3000}) {
				values := make([][]gpu.Scalar, len(k.types))
				for i, typ := range k.types {
					values[i] = b.random(typ, n, k.dists[i])
				}
				if b.takes() {
					b.checkRuns(k, values)
				}
				if b.takes() {
					b.checkRuns(k, sortRows(values, make([]int, len(values))))
				}
			}
		})
	}
	for _, d := range []distribution{{name: "one run", distinct: 1}, {name: "runs of one", sorted: true},
		{name: "short runs", distinct: 9000}, {name: "long runs", distinct: 5}} {
		t.Run(d.name, func(t *testing.T) {
			b := setUp(t, open)
			for _, typ := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint64), gpu.Of(gpu.Float64)} {
				for _, n := range []int{16383, 16384, 16385, 40001} {
					b.checkRuns(keyCase{"", []gpu.Type{typ}, []bool{false}, nil},
						sortRows([][]gpu.Scalar{b.random(typ, n, d)}, []int{0}))
				}
			}
		})
	}
	t.Run("distinct codes", func(t *testing.T) {
		b := setUp(t, open)
		for _, nulls := range []bool{false, true} {
			texts, more := b.distinctCodes(3000, 2, nulls), b.distinctCodes(3000, 3, nulls)
			b.checkRunsOf([]gpu.Column{texts}, [][]gpu.Scalar{b.down(texts)})
			b.checkRunsOf([]gpu.Column{texts, more}, [][]gpu.Scalar{b.down(texts), b.down(more)})
		}
	})
	i64 := gpu.Of(gpu.Int64)
	t.Run("refuses", func(t *testing.T) {
		for want, keys := range map[string][]gpu.Column{
			"no key columns":             nil,
			"key columns of 0 and 3":     {{Type: i64}, {Type: i64, Len: 3}},
			"a dictionary of BIGINT":     {{Type: i64, Dict: &gpu.Dictionary{}}},
			"more than the 2147483646 t": {{Type: i64, Len: gpu.MaxRows + 1}},
		} {
			b := setUp(t, open)
			_, _, err := b.q.Runs(b.l, keys)
			require.ErrorContains(t, err, want)
		}
	})
}

// checkRuns numbers the runs of rows in their given order.
func (b *bench) checkRuns(k keyCase, values [][]gpu.Scalar) {
	b.t.Helper()
	var cols []gpu.Column
	for i, v := range values {
		cols = append(cols, column(k.types[i], v, k.coded[i]))
	}
	b.checkRunsOf(b.up(cols...), values)
}

// checkRunsOf checks the runs of columns with some values.
func (b *bench) checkRunsOf(cols []gpu.Column, values [][]gpu.Scalar) {
	t := b.t
	t.Helper()
	flags := make([]int, len(values))
	var ids, firsts []int
	for r := range values[0] {
		if r == 0 || compareRows(values, flags, r-1, r) != 0 {
			firsts = append(firsts, r)
		}
		ids = append(ids, len(firsts)-1)
	}
	a, first, err := b.q.Runs(b.l, cols)
	require.NoError(t, err)
	requireInts(t, firsts, b.ints(first), "first rows")
	requireInts(t, ids, b.ints(a.IDs()), "runs of rows")
	a.Release()
	first.Release()
}

// testAggregatesOfRuns folds rows in runs of several lengths.
func testAggregatesOfRuns(t *testing.T, open Open) {
	shapes := map[string]func(b *bench) int{
		"one run":     func(*bench) int { return math.MaxInt },
		"runs of one": func(*bench) int { return 1 },
		"short runs":  func(b *bench) int { return 1 + b.rnd.IntN(6) },
		"mixed runs":  func(b *bench) int { return 1 + int(math.Pow(900, b.rnd.Float64())) },
	}
	for _, typ := range types {
		for _, coded := range codings(typ) {
			t.Run(fmt.Sprint(typ, " coded=", coded), func(t *testing.T) {
				b := setUp(t, open)
				for shape, length := range shapes {
					for _, nulls := range []float64{0, 0.4} {
						for _, n := range []int{0, 1, 513, 2500} {
							b.checkAggregatesOfRuns(typ, coded, n, length, nulls, shape)
						}
					}
				}
			})
		}
	}
	t.Run("large", func(t *testing.T) {
		b := setUp(t, open)
		for _, typ := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Float64)} {
			b.checkAggregatesOfRuns(typ, false, 40001, shapes["mixed runs"], 0.1, "mixed runs")
			// too many groups for private copies
			b.checkAggregatesOfRuns(typ, false, 40001, shapes["short runs"], 0, "short runs")
		}
	})
	t.Run("sums are exact beyond 64 bits", func(t *testing.T) {
		b := setUp(t, open)
		typ := gpu.Of(gpu.Int64)
		const n = 600
		keys, values := make([]gpu.Scalar, n), make([]gpu.Scalar, n)
		want := [2]*big.Int{new(big.Int), new(big.Int)}
		for i := range n {
			run := i / 301
			keys[i] = gpu.IntScalar(typ, int64(run))
			values[i] = gpu.IntScalar(typ, []int64{math.MaxInt64, math.MinInt64}[run])
			want[run].Add(want[run], values[i].Int.Big())
		}
		got := b.aggregateRuns(gpu.Aggregate{Kind: gpu.Sum, Input: typ, Output: gpu.SumType(typ)}, keys, values, false)
		require.Equal(t, want[0].String(), got[0].Int.String())
		require.Equal(t, want[1].String(), got[1].Int.String())
	})
}

func (b *bench) checkAggregatesOfRuns(typ gpu.Type, coded bool, n int, length func(*bench) int, nulls float64,
	shape string) {
	t := b.t
	t.Helper()
	values := b.random(typ, n, distribution{nulls: nulls})
	keys := make([]gpu.Scalar, n)
	var byRun [][]gpu.Scalar
	for i, left := 0, 0; i < n; i, left = i+1, left-1 {
		if left == 0 {
			left = length(b)
			byRun = append(byRun, nil)
		}
		run := len(byRun) - 1
		keys[i] = gpu.IntScalar(gpu.Of(gpu.Int64), int64(run%2)) // only neighbours differ
		byRun[run] = append(byRun[run], values[i])
	}
	for _, kind := range accumulated(typ) {
		if !b.takes() {
			continue
		}
		a := gpu.Aggregate{Kind: kind, Input: typ, Output: aggregateOutput(kind, typ)}
		got := b.aggregateRuns(a, keys, values, coded)
		require.Len(t, got, len(byRun))
		for run, values := range byRun {
			want := reference(a, values)
			equal := same(want, got[run])
			if want.Valid && typ.IsFloat() && kind == gpu.Sum {
				equal = close(want.Float, got[run].Float)
			}
			require.True(t, equal, "%v of %v, run %d of %d, %s: want %v, got %v", kind, typ, run, len(byRun), shape,
				want, got[run])
		}
	}
}

// aggregateRuns folds values by the runs of keys.
func (b *bench) aggregateRuns(a gpu.Aggregate, keys, values []gpu.Scalar, coded bool) []gpu.Scalar {
	t := b.t
	t.Helper()
	runs, firsts, err := b.q.Runs(b.l, b.up(gpu.ColumnOf(gpu.Of(gpu.Int64), keys)))
	require.NoError(t, err)
	defer runs.Release()
	defer firsts.Release()
	acc, err := b.q.NewAccumulator(b.l, a)
	require.NoError(t, err)
	defer acc.Release()
	var col gpu.Column
	if a.Kind != gpu.CountAll {
		col = b.up(column(a.Input, values, coded))[0]
	}
	require.NoError(t, acc.Update(b.q, runs, col, firsts.Len))
	out, err := acc.Result(b.q, b.l, 0, firsts.Len)
	require.NoError(t, err)
	defer out.Release()
	require.Equal(t, a.Output, out.Type)
	return b.down(out)
}
