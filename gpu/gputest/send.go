package gputest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// exchangeFactor makes a hash of keys.
const exchangeFactor = 0x9e3779b97f4a7c15

// sendCase is an exchange of one side, and its join with another one.
type sendCase struct {
	sources       []int // rows of the probe side
	build         int
	distinct      int
	zipf          bool
	bits          uint // of the first digit
	ways          int  // regions of a source
	second        uint // bits of the second digit
	heavy         int  // keys
	room          int  // tuples of a region; 0 for enough
	withoutOthers bool // all keys are heavy
	ranges        bool // regions are ranges of keys
	width         int  // bytes of a tuple; 0 for 16
}

// testSend sends tuples to regions, partitions them again, and joins them. All regions are in memory of one device.
func testSend(t *testing.T, open Open) {
	b := setUp(t, open)
	for _, c := range []sendCase{
		{sources: []int{0}, build: 0, distinct: 1, bits: 1, ways: 1, second: 2},
		{sources: []int{1}, build: 1, distinct: 1, bits: 7, ways: 128, second: 2},
		{sources: []int{4096}, build: 500, distinct: 500, bits: 5, ways: 32, second: 3},
		{sources: []int{4097}, build: 1000, distinct: 900, bits: 7, ways: 2, second: 4},
		{sources: []int{30000}, build: 9000, distinct: 6000, bits: 7, ways: 3, second: 2},
		{sources: []int{2011}, build: 300, distinct: 7, bits: 4, ways: 5, second: 9},
		{sources: []int{5000, 0, 9001, 4096}, build: 2000, distinct: 1500, bits: 7, ways: 8, second: 5},
		{sources: []int{700, 800, 900, 1000, 1100, 1200, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3000}, build: 600, distinct: 600,
			bits: 3, ways: 8, second: 2},
		{sources: []int{30000}, build: 500, distinct: 400, zipf: true, bits: 6, ways: 64, second: 2, heavy: 20},
		{sources: []int{9000, 12000}, build: 3000, distinct: 256, bits: 5, ways: 4, second: 2, heavy: 256,
			withoutOthers: true},
		{sources: []int{30000, 500}, build: 700, distinct: 600, bits: 7, ways: 3, second: 2, ranges: true},
		{sources: []int{50000}, build: 10, distinct: 60000, bits: 1, ways: 1, second: 2},
		{sources: []int{30000}, build: 10, distinct: 1, bits: 7, ways: 2, second: 2, room: gpu.SendTail + 512},
		{sources: []int{5000, 0, 4097}, build: 900, distinct: 700, bits: 6, ways: 5, second: 2, width: 8},
		{sources: []int{9000}, build: 900, distinct: 700, bits: 7, ways: 128, second: 6, width: 8},
		{sources: []int{5000, 2049}, build: 900, distinct: 700, bits: 7, ways: 64, second: 2, width: 32},
		{sources: []int{1025, 3000}, build: 500, distinct: 400, bits: 5, ways: 3, second: 9, width: 64},
		{sources: []int{4000}, build: 500, distinct: 400, zipf: true, bits: 6, ways: 64, second: 3, heavy: 20,
			width: 64},
		{sources: []int{9000}, build: 10, distinct: 1, bits: 7, ways: 2, second: 2, room: gpu.SendTail + 512,
			width: 32},
	} {
		if b.takes() {
			b.checkSend(c)
		}
	}
}

// exchangeKey returns key number n. The first one has all bits.
func exchangeKey(n int) uint64 { return uint64(n)*0x2545f4914f6cdd1d - 1 }

// word is the type of keys and values.
var word = gpu.Of(gpu.Uint64)

// words uploads a column.
func (b *bench) words(v []uint64) gpu.Column {
	return b.up(gpu.Column{Type: word, Len: len(v), Data: gpu.WrapBytes(gpu.BytesOf(v))})[0]
}

// wordsOf returns the values of a column.
func (b *bench) wordsOf(c gpu.Column) []uint64 {
	b.t.Helper()
	s, err := b.q.Download(b.h, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type}),
		Cols: []gpu.Column{c.Retain()}, Rows: c.Len})
	require.NoError(b.t, err)
	defer s.Release()
	return slices.Clone(gpu.Values[uint64](s.Cols[0].Data, c.Len))
}

// drawTuples returns keys and values.
func (b *bench) drawTuples(n int, c sendCase) (keys, values []uint64) {
	keys, values = make([]uint64, n), make([]uint64, n)
	for i := range keys {
		k := b.rnd.IntN(c.distinct)
		if c.zipf {
			k = min(k, b.rnd.IntN(c.distinct)*k/c.distinct)
		}
		keys[i], values[i] = exchangeKey(k), b.rnd.Uint64()
		if c.width == 8 {
			keys[i], values[i] = keys[i]&math.MaxUint32, values[i]&math.MaxUint32
		}
	}
	return keys, values
}

// send sends the tuples of a side, and returns its runs: by way and source.
func (b *bench) send(x gpu.Exchanging, c sendCase, keys, values [][]uint64, heavy gpu.HeavyKeys) (runs []gpu.TupleRun,
	ways []int, lost int) {
	t := b.t
	t.Helper()
	var sources []gpu.TupleSource
	most := 0
	for i, k := range keys {
		sources = append(sources, b.source(c, k, values[i]))
		most = max(most, len(k))
	}
	room := c.room
	if room == 0 {
		room = (most+gpu.SendTail)/gpu.TupleLine*gpu.TupleLine + gpu.TupleLine
	}
	n := len(sources) * c.ways
	to := b.tuples(8, c.columnLen(n*room), "device")
	b.t.Cleanup(to.Release)
	var regions []gpu.TupleRun
	for i := range n {
		regions = append(regions, gpu.TupleRun{Tuples: to, Start: i * room, Rows: room, Width: c.width})
	}
	by := gpu.TupleRoute{Digit: c.first(), Heavy: heavy}
	if c.ranges {
		by.Splitters = b.words(c.splitters())
	}
	counts, err := x.SendTuples(b.l, sources, by, regions)
	require.NoError(t, err)
	b.t.Cleanup(counts.Release)
	lost, err = x.Overruns(b.l, []gpu.Column{counts})
	require.NoError(t, err)
	for w := range c.ways {
		for s := range sources {
			at := s*c.ways + w
			runs = append(runs, gpu.TupleRun{Tuples: to, Start: at * room, Rows: room, Counts: counts, Region: at,
				Width: c.width})
			ways = append(ways, w)
		}
	}
	return runs, ways, lost
}

// source makes rows of tuples with keys and sums of values.
func (b *bench) source(c sendCase, keys, values []uint64) gpu.TupleSource {
	if c.width == 8 {
		narrow := func(v []uint64) gpu.Column {
			out := make([]uint32, len(v))
			for i := range v {
				out[i] = uint32(v[i])
			}
			return b.up(gpu.Column{Type: gpu.Of(gpu.Uint32), Len: len(v), Data: gpu.WrapBytes(gpu.BytesOf(out))})[0]
		}
		return gpu.TupleSource{Key: narrow(keys), Value: narrow(values)}
	}
	out, rest := gpu.TupleSource{Key: b.words(keys)}, slices.Clone(values)
	for range max(c.width, 16)/8 - 2 {
		more := make([]uint64, len(keys))
		for i := range more {
			more[i] = b.rnd.Uint64()
			rest[i] -= more[i]
		}
		out.More = append(out.More, b.words(more))
	}
	out.Value = b.words(rest)
	return out
}

// columnLen returns the length of a column with so many tuples.
func (c sendCase) columnLen(tuples int) int { return (tuples*cmp.Or(c.width, 16) + 15) / 16 }

func (c sendCase) first() gpu.Digit {
	return gpu.Digit{Shift: 64 - c.bits, Bits: c.bits, Factor: exchangeFactor}
}

// last is the digit of the second pass, which is apart from that of the first one.
func (c sendCase) last() gpu.Digit {
	return gpu.Digit{Shift: 64 - c.bits - c.second, Bits: c.second, Factor: exchangeFactor}
}

// splitters divides the keys into ranges, some of which are empty.
func (c sendCase) splitters() []uint64 {
	out := make([]uint64, 1<<c.bits-1)
	for i := range out {
		out[i] = uint64(i/2) << (65 - c.bits)
	}
	return out
}

// way returns the region of a source to which a key belongs.
func (c sendCase) way(key uint64) int {
	d := int(key * exchangeFactor >> (64 - c.bits))
	if s := c.splitters(); c.ranges {
		d = sort.Search(len(s), func(i int) bool { return s[i] > key })
	}
	return d * c.ways >> c.bits
}

func (b *bench) checkSend(c sendCase) {
	t := b.t
	t.Helper()
	what := fmt.Sprintf("%+v", c)
	x, err := gpu.ExchangingOf(b.q)
	require.NoError(t, err)
	var keys, values [][]uint64
	for _, n := range c.sources {
		k, v := b.drawTuples(n, c)
		keys, values = append(keys, k), append(values, v)
	}
	buildKeys, buildValues := b.drawTuples(c.build, c)
	var heavy gpu.HeavyKeys
	hot := map[uint64]bool{}
	if c.heavy > 0 {
		list := make([]uint64, c.heavy)
		for i := range list {
			list[i] = exchangeKey(i)
			hot[list[i]] = true
		}
		heavy = gpu.HeavyKeys{Keys: b.words(list), Own: b.words(make([]uint64, 2*c.heavy))}
	}
	// The build side comes from as many sources as the probe side, so that both have as many runs of a bin.
	bk, bv := make([][]uint64, len(keys)), make([][]uint64, len(keys))
	for i := range keys {
		from, to := i*c.build/len(keys), (i+1)*c.build/len(keys)
		bk[i], bv[i] = buildKeys[from:to], buildValues[from:to]
	}
	build, _, lost := b.send(x, c, bk, bv, heavy)
	require.Zero(t, lost, what)
	if c.heavy > 0 {
		heavy.All, heavy.Result = []gpu.Column{heavy.Own}, b.words(make([]uint64, 2))
	}
	probe, ways, lost := b.send(x, c, keys, values, heavy)

	// The reference.
	type sum struct{ n, values uint64 }
	type matches struct {
		sum
		all []uint64
	}
	byKey := map[uint64]matches{}
	for i, k := range buildKeys {
		m := byKey[k]
		byKey[k] = matches{sum{m.n + 1, m.values + buildValues[i]}, append(m.all, buildValues[i])}
	}
	var sent, sentKeys, sentValues uint64
	var pairs, hotPairs sum
	rows := map[[3]uint64]int{} // pairs that are not heavy
	keyOf := map[uint64]uint64{}
	groups := map[uint64]sum{}
	for s, list := range keys {
		for i, k := range list {
			m := byKey[k]
			found := sum{m.n, m.values + m.n*values[s][i]}
			pairs = sum{pairs.n + found.n, pairs.values + found.values}
			if hot[k] {
				hotPairs = sum{hotPairs.n + found.n, hotPairs.values + found.values}
				continue
			}
			sent, sentKeys, sentValues = sent+1, sentKeys+k, sentValues+values[s][i]
			keyOf[values[s][i]] = k
			groups[k] = sum{groups[k].n + 1, groups[k].values + values[s][i]}
			for _, v := range byKey[k].all {
				rows[[3]uint64{k, v, values[s][i]}]++
			}
		}
	}
	if c.room > 0 {
		require.Positive(t, lost, what)
		require.LessOrEqual(t, uint64(lost), sent, what)
		return
	}
	require.Zero(t, lost, what)
	if c.heavy > 0 {
		require.Equal(t, []uint64{hotPairs.n, hotPairs.values}, b.wordsOf(heavy.Result), what)
		require.Equal(t, c.withoutOthers, sent == 0, what)
	}
	if c.width == 0 {
		b.checkSent(x, c, probe, ways, keyOf, [3]uint64{sentKeys, sentValues, sent}, what)
	}
	if c.ranges { // the passes that follow are by hash
		return
	}
	var sides [2]gpu.PartitionedRuns
	for i, runs := range [][]gpu.TupleRun{build, probe} {
		to := b.tuples(8, c.columnLen(gpu.TupleRoom(runs, c.second)), "device")
		defer to.Release()
		sides[i], err = x.PartitionRuns(b.l, to, runs, c.last())
		require.NoError(t, err, what)
		defer sides[i].Release()
	}
	want := sum{pairs.n - hotPairs.n, pairs.values - hotPairs.values}
	n, total, err := x.CountMatches(b.l, sides[:1], sides[1:], len(c.sources), c.last())
	require.NoError(t, err, what)
	require.Equal(t, want, sum{n, total}, what)
	b.checkPairs(x, c, sides, rows, want.n, what)
	if c.width > 0 {
		return
	}
	for _, room := range []int{len(groups), len(groups) / 2} {
		out := b.threeWords(room)
		n, err := x.GroupTuples(b.l, sides[1:], len(c.sources), c.last(), out[0], out[1], out[2])
		require.NoError(t, err, what)
		require.Equal(t, len(groups), n, what)
		if room == n {
			got := map[uint64]sum{}
			sums, counts := b.wordsOf(out[1]), b.wordsOf(out[2])
			for i, k := range b.wordsOf(out[0]) {
				got[k] = sum{counts[i], sums[i]}
			}
			require.Equal(t, groups, got, what)
		}
		gpu.ReleaseColumns(out)
	}
}

// checkSent compares the tuples of regions with those that were sent: sent has the sums of keys and of values, and the
// number.
func (b *bench) checkSent(x gpu.Exchanging, c sendCase, probe []gpu.TupleRun, ways []int, keyOf map[uint64]uint64,
	sent [3]uint64, what string) {
	t := b.t
	t.Helper()
	at := 0
	for w := range c.ways { // the tuples of a way come from all sources
		of := probe[at : at+len(c.sources)]
		at += len(c.sources)
		keys, values, err := x.CollectTuples(b.l, of)
		require.NoError(t, err, what)
		k, v := b.wordsOf(keys), b.wordsOf(values)
		gpu.ReleaseColumns([]gpu.Column{keys, values})
		for i := range k {
			require.Equal(t, w, c.way(k[i]), what)
			require.Equal(t, k[i], keyOf[v[i]], what)
			delete(keyOf, v[i])
		}
	}
	require.Empty(t, keyOf, what)
	if c.ranges { // the passes that follow are by hash
		return
	}
	k, v, wrong, err := x.SumTuples(b.l, probe, ways, c.ways, c.first())
	require.NoError(t, err, what)
	require.Equal(t, []uint64{sent[0], sent[1], 0}, []uint64{k, v, wrong}, what)
	if c.ways > 1 && sent[2] > 0 { // runs of others are noticed
		other := make([]int, len(ways))
		for i, w := range ways {
			other[i] = (w + 1) % c.ways
		}
		_, _, wrong, err = x.SumTuples(b.l, probe, other, c.ways, c.first())
		require.NoError(t, err, what)
		require.Equal(t, sent[2], wrong, what)
	}
}

// threeWords returns columns for results.
func (b *bench) threeWords(rows int) (out []gpu.Column) {
	b.t.Helper()
	for range 3 {
		buf, err := b.l.Alloc(int64(rows) * 8)
		require.NoError(b.t, err)
		out = append(out, gpu.Column{Type: word, Len: rows, Data: buf})
	}
	return out
}

// checkPairs joins two sides, and compares the pairs: with room for all, and with less.
func (b *bench) checkPairs(x gpu.Exchanging, c sendCase, sides [2]gpu.PartitionedRuns, want map[[3]uint64]int,
	pairs uint64, what string) {
	t := b.t
	t.Helper()
	for _, rows := range []int{int(pairs), int(pairs) / 2} {
		out := b.threeWords(rows)
		n, _, err := x.CountMatches(b.l, sides[:1], sides[1:], len(c.sources), c.last(), out...)
		require.NoError(t, err, what)
		require.Equal(t, pairs, n, what)
		if rows == int(pairs) {
			got := map[[3]uint64]int{}
			left, right := b.wordsOf(out[1]), b.wordsOf(out[2])
			for i, k := range b.wordsOf(out[0]) {
				got[[3]uint64{k, left[i], right[i]}]++
			}
			require.Equal(t, want, got, what)
		}
		gpu.ReleaseColumns(out)
	}
}
