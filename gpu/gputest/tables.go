package gputest

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// keyCase is a combination of key columns.
type keyCase struct {
	name  string
	types []gpu.Type
	coded []bool
	dists []distribution
}

func keyCases() []keyCase {
	few, nulls := distribution{distinct: 60}, distribution{distinct: 60, nulls: 0.15}
	var out []keyCase
	for _, t := range types {
		for _, coded := range codings(t) {
			out = append(out,
				keyCase{fmt.Sprint(t, " coded=", coded), []gpu.Type{t}, []bool{coded}, []distribution{few}},
				keyCase{fmt.Sprint(t, " coded=", coded, " nulls"), []gpu.Type{t}, []bool{coded}, []distribution{nulls}})
		}
	}
	i64, i32, str, dec := gpu.Of(gpu.Int64), gpu.Of(gpu.Int32), gpu.Of(gpu.String), gpu.DecimalOf(38, 2)
	return append(out,
		keyCase{"wide range", []gpu.Type{i64}, []bool{false}, []distribution{{}}},
		keyCase{"sorted", []gpu.Type{i64}, []bool{false}, []distribution{{sorted: true}}},
		keyCase{"zipf", []gpu.Type{i64}, []bool{false}, []distribution{{distinct: 300, zipf: true}}},
		keyCase{"equal", []gpu.Type{i64}, []bool{false}, []distribution{{distinct: 1}}},
		keyCase{"two in one word", []gpu.Type{i32, i32}, []bool{false, false}, []distribution{few, nulls}},
		keyCase{"two words", []gpu.Type{i64, i64}, []bool{false, false}, []distribution{few, few}},
		keyCase{"two words with nulls", []gpu.Type{i64, i64}, []bool{false, false}, []distribution{nulls, nulls}},
		keyCase{"text and number", []gpu.Type{str, i64}, []bool{false, false}, []distribution{few, nulls}},
		keyCase{"texts that are alike", []gpu.Type{str}, []bool{false}, []distribution{{alike: true, nulls: 0.05}}},
		keyCase{"two texts", []gpu.Type{str, str}, []bool{true, false}, []distribution{few, few}},
		keyCase{"five kinds", []gpu.Type{str, i32, dec, gpu.Of(gpu.Bool), gpu.Of(gpu.Float64)},
			[]bool{true, false, false, false, false},
			[]distribution{{distinct: 3}, {distinct: 3}, {distinct: 3, nulls: 0.1}, {}, {distinct: 20}}},
	)
}

// draw makes the rows of a key case: the columns, and the label of every row.
func (b *bench) draw(k keyCase, n int) (cols []gpu.Column, labels []string, nulls [][]bool) {
	parts := make([][]string, n)
	nulls = make([][]bool, n)
	for i, t := range k.types {
		values := b.random(t, n, k.dists[i])
		cols = append(cols, column(t, values, k.coded[i]))
		for r, v := range values {
			parts[r] = append(parts[r], label(v))
			nulls[r] = append(nulls[r], !v.Valid)
		}
	}
	labels = make([]string, n)
	for r := range labels {
		labels[r] = strings.Join(parts[r], "\x01")
	}
	return b.up(cols...), labels, nulls
}

// sideSizes are the row counts of the two sides of joins. Sides of an odd number of rows have small dictionaries.
func sideSizes() [][2]int {
	if Thin > 0 {
		return [][2]int{{0, 10}, {10, 0}, {1, 1}, {3, 131}, {40, 131}, {150, 65}}
	}
	return [][2]int{{0, 10}, {10, 0}, {1, 1}, {3, 131}, {40, 601}, {700, 300}}
}

func testJoin(t *testing.T, open Open) {
	for _, k := range keyCases() {
		t.Run(k.name, func(t *testing.T) {
			b := setUp(t, open)
			for _, n := range sideSizes() {
				for _, safe := range []bool{false, true} {
					b.checkJoin(k, n[0], n[1], safe)
				}
			}
		})
	}
	t.Run("large", func(t *testing.T) {
		b := setUp(t, open)
		i64 := gpu.Of(gpu.Int64)
		for _, d := range []distribution{{sorted: true}, {}, {distinct: 30000}} {
			b.checkJoin(keyCase{"", []gpu.Type{i64}, []bool{false}, []distribution{d}}, 50000, 70000, false)
		}
	})
	t.Run("a range", func(t *testing.T) { testJoinOfARange(t, open) })
	for _, k := range manyKeys(60000) {
		t.Run("many, "+k.name, func(t *testing.T) {
			setUp(t, open).checkJoin(k, 70000, 70000, false)
		})
	}
	// Most rows of the build side have one key, so the pairs of a few probe rows are more
	// than one block of a GPU writes.
	t.Run("one key matches most rows", func(t *testing.T) {
		b := setUp(t, open)
		i64 := gpu.Of(gpu.Int64)
		build, probe := make([]gpu.Scalar, 30_000), make([]gpu.Scalar, 100)
		at := map[int64][]int{}
		for i := range build {
			key := int64(max(i-29_000, 0))
			build[i], at[key] = gpu.IntScalar(i64, key), append(at[key], i)
		}
		var want [][2]int
		for i := range probe {
			key := int64(max(i-90, 0) * 50)
			probe[i] = gpu.IntScalar(i64, key)
			for _, m := range at[key] {
				want = append(want, [2]int{i, m})
			}
		}
		table, err := b.q.BuildTable(b.l, b.up(gpu.ColumnOf(i64, build)), []bool{false}, 1<<20)
		require.NoError(t, err)
		defer table.Release()
		keys := b.up(gpu.ColumnOf(i64, probe))
		b.checkMatcher(func() (gpu.Matcher, error) { return table.Match(b.q, b.l, keys) },
			pairing{len(probe), len(build), want, true}, "one key")
	})
}

// testJoinOfARange joins by distinct build keys in a range with a constant gap, in any order, some
// of them null. Probe keys are inside the range, at both of its ends, and at the limits of 16 bits.
func testJoinOfARange(t *testing.T, open Open) {
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int16), gpu.Of(gpu.Int32), gpu.Of(gpu.Int64), gpu.Of(gpu.Uint32)} {
		for _, gap := range []int64{1, 4, 40} {
			for _, least := range []int64{-20, 0, 1, 20_000} {
				if least < 0 && typ.Kind == gpu.Uint32 {
					continue
				}
				b := setUp(t, open)
				build := make([]gpu.Scalar, 300)
				at := map[int64]int{}
				for i, n := range b.rnd.Perm(len(build)) {
					key := least + int64(n)*gap
					if build[i] = gpu.IntScalar(typ, key); n%50 == 7 {
						build[i] = gpu.Null(typ)
						continue
					}
					at[key] = i
				}
				most := least + int64(len(build)-1)*gap
				probe := []gpu.Scalar{gpu.IntScalar(typ, 0), gpu.IntScalar(typ, most), gpu.IntScalar(typ, most+1),
					gpu.IntScalar(typ, 32_767), gpu.Null(typ)}
				if typ.Kind != gpu.Uint32 {
					probe = append(probe, gpu.IntScalar(typ, -32_768), gpu.IntScalar(typ, least-1))
				}
				for range 700 {
					probe = append(probe, gpu.IntScalar(typ, least+b.rnd.Int64N(most-least)))
				}
				for _, nulls := range []bool{true, false} {
					if !nulls {
						probe = slices.DeleteFunc(probe, func(s gpu.Scalar) bool { return !s.Valid })
					}
					want := pairing{probes: len(probe), builds: len(build), ordered: true}
					for i, p := range probe {
						if m, ok := at[p.Int.Int64()]; ok && p.Valid {
							want.pairs = append(want.pairs, [2]int{i, m})
						}
					}
					table, err := b.q.BuildTable(b.l, b.up(gpu.ColumnOf(typ, build)), []bool{false}, 1<<20)
					require.NoError(t, err)
					keys := b.up(gpu.ColumnOf(typ, probe))
					b.checkMatcher(func() (gpu.Matcher, error) { return table.Match(b.q, b.l, keys) }, want,
						fmt.Sprintf("%v, keys %d apart from %d on, nulls %v", typ, gap, least, nulls))
					table.Release()
				}
			}
		}
	}
}

// manyKeys are keys with the given number of distinct values: numbers of 4 and 8 bytes and of a
// wide range, plain strings, coded strings, and several columns, some with nulls.
func manyKeys(distinct int) []keyCase {
	all, nulls := distribution{distinct: distinct, words: true},
		distribution{distinct: distinct, nulls: 0.025, words: true}
	i32, i64, str := gpu.Of(gpu.Int32), gpu.Of(gpu.Int64), gpu.Of(gpu.String)
	cases := []keyCase{
		{"int32", []gpu.Type{i32}, []bool{false}, []distribution{all}},
		{"int32 and null", []gpu.Type{i32}, []bool{false}, []distribution{nulls}},
		{"int64, any", []gpu.Type{i64}, []bool{false}, []distribution{{nulls: 0.025}}},
		{"decimal", []gpu.Type{gpu.DecimalOf(38, 2)}, []bool{false}, []distribution{nulls}},
		{"strings and null", []gpu.Type{str}, []bool{false}, []distribution{nulls}},
		{"strings by code", []gpu.Type{str}, []bool{true}, []distribution{all}},
		{"number and string", []gpu.Type{i64, str}, []bool{false, false},
			[]distribution{nulls, {distinct: 9, words: true}}},
	}
	if Thin > 1 {
		return cases[:1]
	}
	return cases
}

// requirePairs compares pairs and their order. Printing all pairs would take megabytes.
func requirePairs(t *testing.T, want, got [][2]int, what string) {
	t.Helper()
	require.Equal(t, len(want), len(got), what)
	for i := range want {
		if want[i] != got[i] {
			require.Equal(t, want[i], got[i], "pair %d of %s", i, what)
		}
	}
}

func (b *bench) checkJoin(k keyCase, nBuild, nProbe int, safe bool) {
	t := b.t
	t.Helper()
	build, buildLabels, buildNulls := b.draw(k, nBuild)
	probe, probeLabels, probeNulls := b.draw(k, nProbe)
	nullSafe := make([]bool, len(k.types))
	for i := range nullSafe {
		nullSafe[i] = safe && i%2 == 0
	}
	dead := func(nulls []bool) bool {
		for i, n := range nulls {
			if n && !nullSafe[i] {
				return true
			}
		}
		return false
	}
	at := map[string][]int{}
	rows := 0
	for r, l := range buildLabels {
		if !dead(buildNulls[r]) {
			at[l] = append(at[l], r)
			rows++
		}
	}
	table, err := b.q.BuildTable(b.l, build, nullSafe, []uint64{0, 1 << 23}[b.rnd.IntN(2)])
	require.NoError(t, err)
	defer table.Release()
	require.Equal(t, rows, table.Rows())
	want := pairing{probes: nProbe, builds: nBuild, ordered: true}
	for r, l := range probeLabels {
		if !dead(probeNulls[r]) {
			for _, m := range at[l] {
				want.pairs = append(want.pairs, [2]int{r, m})
			}
		}
	}
	b.checkMatcher(func() (gpu.Matcher, error) { return table.Match(b.q, b.l, probe) }, want,
		fmt.Sprintf("the match of %d and %d rows, null-safe %v", nBuild, nProbe, safe))
}

// testMatchPartitions joins sides that are partitioned by a hash or by bits of the key, into
// partitions of all sizes.
func testMatchPartitions(t *testing.T, open Open) {
	for i, typ := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint64), gpu.Of(gpu.Date), gpu.DecimalOf(15, 2),
		gpu.TimestampOf(gpu.Second, false)} {
		t.Run(typ.String(), func(t *testing.T) {
			b := setUp(t, open)
			ways := b.ways()
			if Thin > 0 && i > 1 { // kernels know two widths
				t.Skip("another type of its width stands for it")
			}
			for k, c := range []struct {
				build, probe int
				d            distribution
				bits         uint
			}{
				{0, 10, distribution{}, 2}, {10, 0, distribution{}, 2}, {1, 1, distribution{distinct: 1}, 0},
				{700, 3000, distribution{distinct: 400, nulls: 0.1}, 3},
				{5000, 40000, distribution{sorted: true}, 6},
				{20000, 3000, distribution{distinct: 15000}, 0},
				{19000, 70, distribution{distinct: 2}, 1},
				{300, 70001, distribution{distinct: 1000, zipf: true}, 2},
			} {
				if Takes(min(Thin, 2), i+k) {
					b.checkJoinPartitions(typ, c.build, c.probe, c.d, c.bits, ways)
				}
			}
		})
	}
	t.Run("refuses", func(t *testing.T) {
		for _, typ := range []gpu.Type{gpu.Of(gpu.Float64), gpu.Of(gpu.Int16), gpu.Of(gpu.String)} {
			b := setUp(t, open)
			s := gpu.Partitioned{Key: b.up(gpu.ColumnOf(typ, b.random(typ, 3, distribution{})))[0],
				Offsets: b.ids([]int32{0, 3})}
			_, err := b.q.MatchPartitions(b.l, s, s, gpu.Probing{})
			require.ErrorContains(t, err, typ.String())
		}
	})
}

func (b *bench) checkJoinPartitions(typ gpu.Type, nBuild, nProbe int, d distribution, bits uint, ways []gpu.Probing) {
	t := b.t
	t.Helper()
	side := func(n int) (gpu.Partitioned, []int, []gpu.Scalar) {
		cols := b.up(gpu.ColumnOf(typ, b.random(typ, n, d)))
		hash, err := b.q.Hash(b.l, cols, hashSeed)
		require.NoError(t, err)
		defer hash.Release()
		out, offsets, err := b.q.Partition(b.l, cols, hash, gpu.Digit{Shift: 64 - bits, Bits: bits})
		require.NoError(t, err)
		t.Cleanup(out[0].Release)
		t.Cleanup(offsets.Release)
		return gpu.Partitioned{Key: out[0], Offsets: offsets}, b.ints(offsets), b.down(out[0])
	}
	build, buildAt, buildKeys := side(nBuild)
	probe, probeAt, probeKeys := side(nProbe)
	for _, parts := range [][2]int{{0, 1 << bits}, {(1 << bits) / 2, 1 << bits}} { // all partitions, and the upper half
		build, probe := build, probe
		for _, offsets := range []*gpu.Column{&build.Offsets, &probe.Offsets} {
			part, err := b.q.Slice(b.l, *offsets, parts[0], parts[1]+1)
			require.NoError(t, err)
			defer part.Release()
			*offsets = part
		}
		at := map[string][]int{}
		for r := buildAt[parts[0]]; r < nBuild; r++ {
			if buildKeys[r].Valid {
				at[label(buildKeys[r])] = append(at[label(buildKeys[r])], r)
			}
		}
		want := pairing{probes: nProbe, builds: nBuild}
		for r := probeAt[parts[0]]; r < nProbe; r++ {
			for _, m := range at[label(probeKeys[r])] {
				want.pairs = append(want.pairs, [2]int{r, m})
			}
		}
		for _, how := range ways {
			b.checkMatcher(func() (gpu.Matcher, error) { return b.q.MatchPartitions(b.l, build, probe, how) }, want,
				fmt.Sprintf("the match of %d and %d rows of %v in %d partitions, %+v", nBuild, nProbe, d,
					parts[1]-parts[0], how))
		}
	}
}

// ways returns the device's algorithms to match partitions.
func (b *bench) ways() []gpu.Probing {
	if !b.dev.Properties().PairOutputs {
		return probings[:1]
	}
	return probings
}

var probings = []gpu.Probing{{}, {Whole: true}, {Output: gpu.PairsCounted}, {Output: gpu.PairsPaged},
	{Output: gpu.PairsDirect}, {Output: gpu.PairsDirect, Whole: true}}

func testGroups(t *testing.T, open Open) {
	for _, k := range keyCases() {
		t.Run(k.name, func(t *testing.T) {
			b := setUp(t, open)
			b.checkGroups(k, gpu.GroupHint{}, 0, 1, 500, 3000, 64)
		})
	}
	i64 := gpu.Of(gpu.Int64)
	for name, hint := range map[string]gpu.GroupHint{
		"hint":           {Dense: true, Lo: 0, Hi: 99, Groups: 100},
		"hint too low":   {Dense: true, Lo: 0, Hi: 40, Groups: 40},
		"hint elsewhere": {Dense: true, Lo: -500, Hi: -400},
	} {
		t.Run(name, func(t *testing.T) {
			b := setUp(t, open)
			b.checkGroups(keyCase{"", []gpu.Type{i64}, []bool{false}, []distribution{{distinct: 100, nulls: 0.05}}},
				hint, 1000, 2000)
		})
	}
	t.Run("hint too low after nulls", func(t *testing.T) {
		k := keyCase{"", []gpu.Type{i64}, []bool{false}, []distribution{{distinct: 20, nulls: 0.2}}}
		more := k
		more.dists = []distribution{{sorted: true}} // new keys come before the first one beyond the hint
		setUp(t, open).checkGroupsOf([]keyCase{k, more, k}, gpu.GroupHint{Dense: true, Lo: 0, Hi: 40, Groups: 40},
			[]int{50, 300, 50})
	})
	t.Run("many", func(t *testing.T) {
		b := setUp(t, open)
		rows := 20_000
		if Thin > 0 {
			rows = 4000 // the tests of growth have as many
		}
		b.checkGroups(keyCase{"", []gpu.Type{i64}, []bool{false}, []distribution{{}}}, gpu.GroupHint{}, 3*rows, 2*rows)
		b.checkGroups(keyCase{"", []gpu.Type{gpu.Of(gpu.String)}, []bool{false}, []distribution{{}}}, gpu.GroupHint{},
			rows*3/2, rows)
	})
	// The batches are far larger than the first one, and all have new keys: the index grows by
	// every code path.
	for _, k := range manyKeys(70_000) {
		t.Run("growth, "+k.name, func(t *testing.T) {
			setUp(t, open).checkGroups(k, gpu.GroupHint{}, 100, 144_900, 5000)
		})
	}
	// Integers are packed into few bits until a value needs more.
	for name, nulls := range map[string]float64{"integers that grow": 0, "integers that grow, with nulls": 0.1} {
		t.Run(name, func(t *testing.T) {
			b := setUp(t, open)
			small, large := distribution{distinct: 20, nulls: nulls}, distribution{nulls: nulls}
			for _, types := range [][]gpu.Type{{i64, gpu.Of(gpu.Uint64)},
				{gpu.Of(gpu.String), gpu.DecimalOf(15, 2), gpu.Of(gpu.Bool)},
				{i64, gpu.Of(gpu.HugeInt), gpu.DecimalOf(9, 1), gpu.Of(gpu.Float64), gpu.Of(gpu.Int16),
					gpu.TimestampOf(gpu.Microsecond, false)}} {
				for at := range types {
					k := keyCase{"", types, make([]bool, len(types)), slices.Repeat([]distribution{small}, len(types))}
					later := k
					later.dists = slices.Clone(k.dists)
					later.dists[at] = large
					b.checkGroupsOf([]keyCase{k, k, later, later}, gpu.GroupHint{}, []int{300, 400, 500, 10})
				}
			}
		})
	}
	t.Run("dictionaries of distinct values", func(t *testing.T) { testGroupsOfDistinct(t, open) })
	t.Run("no keys", func(t *testing.T) {
		b := setUp(t, open)
		g, err := b.q.NewGroups(b.l, nil, gpu.GroupHint{})
		require.NoError(t, err)
		defer g.Release()
		a, err := g.Assign(b.q, b.l, nil, 0)
		require.NoError(t, err)
		a.Release()
		require.Equal(t, 0, g.Len())
		a, err = g.Assign(b.q, b.l, nil, 3)
		require.NoError(t, err)
		require.Equal(t, []int{0, 0, 0}, b.ints(a.IDs()))
		a.Release()
		require.Equal(t, 1, g.Len())
	})
}

// distinctCodes returns a column of n rows whose codes belong to a dictionary of distinct values.
func (b *bench) distinctCodes(n, values int, nulls bool) gpu.Column {
	text := gpu.Of(gpu.String)
	rows, codes := make([]gpu.Scalar, n), make([]int32, n)
	for i := range rows {
		codes[i] = int32(b.rnd.IntN(values))
		if rows[i] = gpu.StringScalar(fmt.Sprint("text ", codes[i])); nulls && b.rnd.IntN(7) == 0 {
			rows[i], codes[i] = gpu.Null(text), nullCode(uint64(i))
		}
	}
	c := gpu.ColumnOf(text, rows)
	c.Offsets, c.Data = nil, gpu.WrapBytes(gpu.BytesOf(codes))
	c.Dict = &gpu.Dictionary{Distinct: true, Values: gpu.ColumnOf(text,
		generate(values, func(i int) gpu.Scalar { return gpu.StringScalar(fmt.Sprint("text ", i)) }))}
	return b.up(c)[0]
}

// testGroupsOfDistinct groups by texts of one dictionary of distinct values, and then by the same texts in
// other forms: nulls without a dictionary, another dictionary, no dictionary, and the first dictionary again.
func testGroupsOfDistinct(t *testing.T, open Open) {
	text, i64 := gpu.Of(gpu.String), gpu.Of(gpu.Int64)
	const rows = 700
	for _, nulls := range []bool{false, true} {
		for _, values := range []int{90, 2000} {
			b := setUp(t, open)
			first := b.distinctCodes(2*rows, values, nulls)
			slice := func(from int) gpu.Column {
				c, err := b.q.Slice(b.l, first, from, from+rows)
				require.NoError(t, err)
				t.Cleanup(c.Release)
				return c
			}
			none := b.up(gpu.ColumnOf(text, slices.Repeat([]gpu.Scalar{gpu.Null(text)}, rows)))[0]
			other, plain := b.distinctCodes(rows, values+10, nulls), b.up(gpu.ColumnOf(text, b.down(slice(100))))[0]
			batches := []gpu.Column{slice(0), slice(rows), none, slice(5), other, plain, slice(0)}
			for stop := 2; stop <= len(batches); stop++ {
				b.checkGroupsOfColumns([]gpu.Type{text}, stop, func(i int) []gpu.Column { return batches[i : i+1] })
				b.checkGroupsOfColumns([]gpu.Type{text, i64, text}, stop, func(i int) []gpu.Column {
					number := gpu.ColumnOf(i64, b.random(i64, rows, distribution{distinct: 3, nulls: 0.1}))
					return []gpu.Column{batches[i], b.up(number)[0], batches[(i+1)%stop]}
				})
			}
		}
	}
}

// checkGroupsOfColumns assigns groups to batches of key columns.
func (b *bench) checkGroupsOfColumns(types []gpu.Type, batches int, keys func(batch int) []gpu.Column) {
	b.t.Helper()
	b.checkGroupsOfRows(types, gpu.GroupHint{}, batches, func(i int) ([]gpu.Column, []string) {
		cols := keys(i)
		labels := make([]string, cols[0].Len)
		for at, c := range cols {
			for r, v := range b.down(c) {
				if at > 0 {
					labels[r] += "\x01"
				}
				labels[r] += label(v)
			}
		}
		return cols, labels
	})
}

func (b *bench) checkGroups(k keyCase, hint gpu.GroupHint, batches ...int) {
	b.t.Helper()
	b.checkGroupsOf(slices.Repeat([]keyCase{k}, len(batches)), hint, batches)
}

// checkGroupsOf assigns groups to batches of rows. Each batch has its own case; the types are the
// same.
func (b *bench) checkGroupsOf(cases []keyCase, hint gpu.GroupHint, batches []int) {
	b.t.Helper()
	b.checkGroupsOfRows(cases[0].types, hint, len(batches), func(i int) ([]gpu.Column, []string) {
		cols, labels, _ := b.draw(cases[i], batches[i])
		return cols, labels
	})
}

// checkGroupsOfRows assigns groups to batches of rows with a label each, which is equal for equal keys.
func (b *bench) checkGroupsOfRows(types []gpu.Type, hint gpu.GroupHint, batches int,
	rows func(batch int) ([]gpu.Column, []string)) {
	t := b.t
	t.Helper()
	g, err := b.q.NewGroups(b.l, types, hint)
	require.NoError(t, err)
	defer g.Release()
	byLabel := map[string]int{}
	byID := map[int]string{}
	for i := range batches {
		cols, labels := rows(i)
		a, err := g.Assign(b.q, b.l, cols, len(labels))
		require.NoError(t, err)
		for r, id := range b.ints(a.IDs()) {
			if old, ok := byLabel[labels[r]]; ok {
				require.Equal(t, old, id, "equal keys share a group")
				continue
			}
			if other, ok := byID[id]; ok {
				require.Failf(t, "different keys share a group", "group %d: %q and %q", id, other, labels[r])
			}
			require.Equal(t, len(byID), id, "groups are numbered as they appear")
			byLabel[labels[r]], byID[id] = id, labels[r]
		}
		a.Release()
		require.Equal(t, len(byID), g.Len(), "ids are dense")
	}
	for _, r := range [][2]int{{0, g.Len()}, {g.Len() / 3, g.Len() / 2}} {
		keys, err := g.Keys(b.q, b.l, r[0], r[1])
		require.NoError(t, err)
		values := make([][]gpu.Scalar, len(keys))
		for i, c := range keys {
			values[i] = b.down(c)
		}
		for id := r[0]; id < r[1]; id++ {
			var parts []string
			for i := range values {
				parts = append(parts, label(values[i][id-r[0]]))
			}
			require.Equal(t, byID[id], strings.Join(parts, "\x01"), "key of group %d", id)
		}
		gpu.ReleaseColumns(keys)
	}
}

var bitKinds = []gpu.AggregateKind{gpu.BitAnd, gpu.BitOr, gpu.BitXor}

// accumulated are the aggregates that have accumulators for values of a type.
func accumulated(t gpu.Type) []gpu.AggregateKind {
	out := []gpu.AggregateKind{gpu.CountAll, gpu.Count, gpu.Min, gpu.Max}
	if t.IsNumeric() {
		out = append(out, gpu.Sum)
	}
	if t.IsInteger() {
		out = append(out, bitKinds...)
	}
	return out
}

// aggregateOutput is the type that the binder gives an aggregate.
func aggregateOutput(kind gpu.AggregateKind, in gpu.Type) gpu.Type {
	switch {
	case kind == gpu.CountAll || kind == gpu.Count:
		return gpu.Of(gpu.Int64)
	case kind == gpu.Sum:
		return gpu.SumType(in)
	}
	return in
}

func testAggregates(t *testing.T, open Open) {
	for _, typ := range types {
		for _, coded := range codings(typ) {
			t.Run(fmt.Sprint(typ, " coded=", coded), func(t *testing.T) {
				b := setUp(t, open)
				for _, groups := range []int{1, 5, 2000} {
					for _, batches := range [][]float64{{0}, {0, 0.4, 0}, {1, 0.2}} {
						for _, kind := range accumulated(typ) {
							if b.takes() {
								b.checkAggregate(kind, typ, coded, groups, batches)
							}
						}
					}
				}
			})
		}
	}
	t.Run("sums overflow loudly", func(t *testing.T) {
		b := setUp(t, open)
		typ := gpu.DecimalOf(38, 0)
		huge := gpu.Scalar{Type: typ, Valid: true, Int: gpu.Pow10(37)}
		values := make([]gpu.Scalar, 20) // 2·10^38 does not fit 128 bits
		for i := range values {
			values[i] = huge
		}
		for _, n := range []int{10, 20} { // 10^38 has 39 digits
			_, err := b.aggregate(gpu.Aggregate{Kind: gpu.Sum, Input: typ, Output: typ}, [][]gpu.Scalar{values[:n]},
				[][]gpu.Scalar{make([]gpu.Scalar, n)}, 1, false)
			require.Error(t, err)
			if n == 10 {
				require.ErrorContains(t, err, "sum 1"+strings.Repeat("0", 38)+" does not fit "+typ.String())
			}
			require.Error(t, b.q.Close(), "the error sticks")
			b.q, err = b.dev.NewQueue("fresh")
			require.NoError(t, err)
		}
		// HUGEINT holds 17·10^37, which has 39 digits.
		typ = gpu.Of(gpu.HugeInt)
		for i := range values {
			values[i].Type = typ
		}
		sum := gpu.Aggregate{Kind: gpu.Sum, Input: typ, Output: gpu.SumType(typ)}
		got, err := b.aggregate(sum, [][]gpu.Scalar{values[:17]}, [][]gpu.Scalar{make([]gpu.Scalar, 17)}, 1, false)
		require.NoError(t, err)
		require.Equal(t, "17"+strings.Repeat("0", 37), got[0].String())
		_, err = b.aggregate(sum, [][]gpu.Scalar{values}, [][]gpu.Scalar{make([]gpu.Scalar, 20)}, 1, false)
		require.ErrorContains(t, err, "128 bits")
		require.Error(t, b.q.Close())
		b.q, err = b.dev.NewQueue("fresh")
		require.NoError(t, err)
	})
	t.Run("sums of 128 bits take integers of any type", func(t *testing.T) {
		b := setUp(t, open)
		for _, groups := range []int{1, 300} {
			var batches, ids [][]gpu.Scalar
			byGroup := make([][]gpu.Scalar, groups)
			for _, kind := range []gpu.Kind{gpu.Int64, gpu.Int16, gpu.HugeInt, gpu.Uint64, gpu.Uint8, gpu.Int64} {
				values := b.random(gpu.Of(kind), 2*groups, distribution{nulls: 0.2})
				keys := make([]gpu.Scalar, len(values))
				for r, v := range values {
					keys[r] = gpu.IntScalar(gpu.Of(gpu.Int64), int64(r%groups))
					byGroup[r%groups] = append(byGroup[r%groups], v)
				}
				batches, ids = append(batches, values), append(ids, keys)
			}
			sum := gpu.Aggregate{Kind: gpu.Sum, Input: gpu.Of(gpu.HugeInt), Output: gpu.Of(gpu.HugeInt)}
			got, err := b.aggregate(sum, batches, ids, groups, false)
			require.NoError(t, err)
			for id, values := range byGroup {
				require.True(t, same(reference(sum, values), got[id]), "group %d of %d", id, groups)
			}
		}
	})
	// A GPU sums in shared memory with copies for lanes and without, and in device
	// memory.
	t.Run("sums of few and many groups", func(t *testing.T) {
		for _, typ := range []gpu.Type{gpu.Of(gpu.Int8), gpu.Of(gpu.Uint32), gpu.Of(gpu.Int64), gpu.Of(gpu.Uint64),
			gpu.Of(gpu.HugeInt), gpu.DecimalOf(18, 3), gpu.DecimalOf(38, 4)} {
			b := setUp(t, open)
			for _, shape := range [][2]int{{1, 10_000}, {40, 10_000}, {7000, 60_000}, {9000, 10_000}} {
				// HUGEINT always runs: its kernel has the most registers, and 7000 groups the
				// largest blocks.
				if b.takes() || typ.Kind == gpu.HugeInt && shape[0] == 7000 {
					b.checkAggregateRows(gpu.Sum, typ, false, shape[0], shape[1], []float64{0.02, 0.02})
				}
			}
		}
	})
	// A GPU folds bits in shared memory and in device memory, and a CPU in copies of the state and in place.
	t.Run("bits of few and many groups", func(t *testing.T) {
		for _, typ := range []gpu.Type{gpu.Of(gpu.Int8), gpu.Of(gpu.Uint16), gpu.Of(gpu.Int32), gpu.Of(gpu.Uint64),
			gpu.Of(gpu.HugeInt)} {
			b := setUp(t, open)
			for _, kind := range bitKinds {
				for _, shape := range [][2]int{{1, 10_000}, {40, 10_000}, {9000, 10_000}} {
					if b.takes() {
						b.checkAggregateRows(kind, typ, false, shape[0], shape[1], []float64{0, 0.02})
					}
				}
			}
		}
	})
	t.Run("64-bit extremes sum exactly", func(t *testing.T) {
		b := setUp(t, open)
		typ := gpu.Of(gpu.Int64)
		batches := [][]gpu.Scalar{}
		ids := [][]gpu.Scalar{}
		want := new(big.Int)
		for _, v := range []int64{5, math.MaxInt64, math.MaxInt64, math.MinInt64, math.MaxInt64} {
			batches = append(batches, []gpu.Scalar{gpu.IntScalar(typ, v)})
			ids = append(ids, []gpu.Scalar{{}})
			want.Add(want, big.NewInt(v))
		}
		got, err := b.aggregate(gpu.Aggregate{Kind: gpu.Sum, Input: typ, Output: gpu.SumType(typ)}, batches, ids, 1,
			false)
		require.NoError(t, err)
		require.Equal(t, want.String(), got[0].Int.String())
	})
}

// aggregate folds batches of values into groups. ids[b][i].Int is the key of a row.
func (b *bench) aggregate(a gpu.Aggregate, batches, ids [][]gpu.Scalar, groups int, coded bool) ([]gpu.Scalar, error) {
	g, err := b.q.NewGroups(b.l, []gpu.Type{gpu.Of(gpu.Int64)}, gpu.GroupHint{})
	require.NoError(b.t, err)
	defer g.Release()
	acc, err := b.q.NewAccumulator(b.l, a)
	require.NoError(b.t, err)
	defer acc.Release()
	for i, values := range batches {
		keys := make([]gpu.Scalar, len(values))
		for r := range keys {
			keys[r] = gpu.IntScalar(gpu.Of(gpu.Int64), ids[i][r].Int.Int64())
		}
		as, err := g.Assign(b.q, b.l, b.up(gpu.ColumnOf(gpu.Of(gpu.Int64), keys)), len(values))
		require.NoError(b.t, err)
		var col gpu.Column
		if a.Kind != gpu.CountAll {
			col = b.up(column(values[0].Type, values, coded))[0]
		}
		err = acc.Update(b.q, as, col, g.Len())
		as.Release()
		if err != nil {
			return nil, err
		}
	}
	keys, err := g.Keys(b.q, b.l, 0, g.Len())
	if err != nil {
		return nil, err
	}
	order := b.ints(keys[0])
	gpu.ReleaseColumns(keys)
	out := make([]gpu.Scalar, groups)
	half := g.Len() / 2
	for _, r := range [][2]int{{0, half}, {half, g.Len()}} {
		c, err := acc.Result(b.q, b.l, r[0], r[1])
		if err != nil {
			return nil, err
		}
		require.Equal(b.t, a.Output, c.Type)
		for i, v := range b.down(c) {
			out[order[r[0]+i]] = v
		}
		c.Release()
	}
	return out, nil
}

func (b *bench) checkAggregate(kind gpu.AggregateKind, typ gpu.Type, coded bool, groups int, nullShare []float64) {
	b.t.Helper()
	b.checkAggregateRows(kind, typ, coded, groups, max(2*groups, 300), nullShare)
}

// checkAggregateRows is checkAggregate with n rows per batch.
func (b *bench) checkAggregateRows(kind gpu.AggregateKind, typ gpu.Type, coded bool, groups, n int,
	nullShare []float64) {
	t := b.t
	t.Helper()
	a := gpu.Aggregate{Kind: kind, Input: typ, Output: aggregateOutput(kind, typ)}
	var batches, ids [][]gpu.Scalar
	byGroup := make([][]gpu.Scalar, groups)
	for _, nulls := range nullShare {
		values := b.random(typ, n, distribution{nulls: nulls})
		keys := make([]gpu.Scalar, n)
		for r := range keys {
			id := r % groups
			keys[r] = gpu.IntScalar(gpu.Of(gpu.Int64), int64(id))
			byGroup[id] = append(byGroup[id], values[r])
		}
		batches, ids = append(batches, values), append(ids, keys)
	}
	got, err := b.aggregate(a, batches, ids, groups, coded)
	require.NoError(t, err)
	for id, values := range byGroup {
		want := reference(a, values)
		if want.Valid && want.Type.IsFloat() && !(kind == gpu.Min || kind == gpu.Max) {
			require.True(t, close(want.Float, got[id].Float), "%v of %v, group %d: want %v, got %v", kind, typ, id,
				want, got[id])
			continue
		}
		require.True(t, same(want, got[id]), "%v of %v, group %d of %d: want %v, got %v", kind, typ, id, groups, want,
			got[id])
	}
}

// close reports whether float sums agree: to one part in 10^12. The contract allows ten units in
// the last place of the sum of the magnitudes.
func close(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-12*max(math.Abs(a), math.Abs(b))
}

// reference computes an aggregate by its definition, in arbitrary precision.
func reference(a gpu.Aggregate, values []gpu.Scalar) gpu.Scalar {
	n := int64(0)
	sum := new(big.Int)
	fsum := new(big.Float).SetPrec(2200)
	special := 0.0
	var best gpu.Scalar
	for _, v := range values {
		if !v.Valid {
			continue
		}
		n++
		switch {
		case a.Kind != gpu.Sum:
		case !a.Input.IsFloat():
			sum.Add(sum, v.Int.Big())
		case math.IsInf(v.Float, 0) || math.IsNaN(v.Float):
			special += v.Float
		default:
			fsum.Add(fsum, big.NewFloat(v.Float))
		}
		if c := v.Compare(best); !best.Valid || a.Kind == gpu.Min && c < 0 || a.Kind == gpu.Max && c > 0 {
			best = v
		}
	}
	total, _ := fsum.Float64()
	total += special
	if special != 0 || math.IsNaN(special) {
		total = special
	}
	switch a.Kind {
	case gpu.CountAll:
		return gpu.IntScalar(a.Output, int64(len(values)))
	case gpu.Count:
		return gpu.IntScalar(a.Output, n)
	}
	if n == 0 {
		return gpu.Null(a.Output)
	}
	switch a.Kind {
	case gpu.BitAnd, gpu.BitOr, gpu.BitXor:
		return foldScalars(a, values)
	case gpu.Sum:
		if a.Input.IsFloat() {
			return gpu.FloatScalar(a.Output, total)
		}
		s, _ := gpu.Int128FromBig(sum)
		return gpu.Scalar{Type: a.Output, Valid: true, Int: s}
	}
	return best
}
