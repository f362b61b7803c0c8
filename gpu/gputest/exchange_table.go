package gputest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// sentSide is a side that SendTuples has sent to regions, and how it arrives: where they are, with the marks of each.
type sentSide struct {
	keys, values [][]uint64
	runs, marks  []gpu.TupleRun
}

// arrives returns the regions as a receiver knows them.
func (s sentSide) arrives() gpu.ActiveSide {
	out := gpu.ActiveSide{Marks: s.marks}
	for _, r := range s.runs {
		r.Counts, r.Region = gpu.Column{}, 0
		out.Regions = append(out.Regions, r)
	}
	return out
}

// pairsOf returns the number of pairs of two sides, and the sum of their values.
func pairsOf(build, probe sentSide) (pairs, sum uint64) {
	type matches struct{ n, sum uint64 }
	byKey := map[uint64]matches{}
	for s, keys := range build.keys {
		for i, k := range keys {
			byKey[k] = matches{byKey[k].n + 1, byKey[k].sum + build.values[s][i]}
		}
	}
	for s, keys := range probe.keys {
		for i, k := range keys {
			m := byKey[k]
			pairs, sum = pairs+m.n, sum+m.sum+m.n*probe.values[s][i]
		}
	}
	return pairs, sum
}

// sendSide sends a side, and makes room for its marks.
func (b *bench) sendSide(x gpu.Exchanging, c sendCase, rows []int) (s sentSide) {
	for _, n := range rows {
		k, v := b.drawTuples(n, c)
		s.keys, s.values = append(s.keys, k), append(s.values, v)
	}
	s.runs, _, _ = b.send(x, c, s.keys, s.values, gpu.HeavyKeys{})
	n := gpu.TupleMarks(s.runs[0].Rows)
	marks, err := x.Zeros(b.l, gpu.TupleType(8), n*len(s.runs))
	require.NoError(b.t, err)
	b.t.Cleanup(marks.Release)
	for i := range s.runs {
		s.marks = append(s.marks, gpu.TupleRun{Tuples: marks, Start: i * n, Rows: n})
	}
	return s
}

// newTable returns an empty table.
func (b *bench) newTable(x gpu.Exchanging, rows int, d gpu.Digit) gpu.TupleTable {
	b.t.Helper()
	entries := b.tuples(8, 2*rows, "device")
	b.t.Cleanup(entries.Release)
	t, err := gpu.NewTupleTable(x, b.l, entries, d)
	require.NoError(b.t, err)
	b.t.Cleanup(t.Release)
	return t
}

// testTupleTables joins regions of SendTuples by a table: by calls for each part, and by a kernel that waits for them.
func testTupleTables(t *testing.T, open Open) {
	b := setUp(t, open)
	x, err := gpu.ExchangingOf(b.q)
	require.NoError(t, err)
	for _, c := range []sendCase{
		{sources: []int{0}, build: 0, distinct: 1, bits: 1, ways: 1, second: 2},
		{sources: []int{5000, 1, 4096}, build: 3000, distinct: 2500, bits: 7, ways: 3, second: 11},
		{sources: []int{12000}, build: 300, distinct: 300, bits: 3, ways: 1, second: 1},
		{sources: []int{700, 900}, build: 9000, distinct: 7, zipf: true, bits: 5, ways: 8, second: 13},
	} {
		if !b.takes() {
			continue
		}
		build, probe := b.sendSide(x, c, []int{c.build / 2, c.build - c.build/2}), b.sendSide(x, c, c.sources)
		pairs, sum := pairsOf(build, probe)
		want := []uint64{pairs, sum}
		table := b.newTable(x, c.build, c.last())
		result, err := x.Zeros(b.l, word, 2)
		require.NoError(t, err)
		b.t.Cleanup(result.Release)
		half := len(build.runs) / 2
		require.NoError(t, x.InsertTuples(b.l, table, build.runs[:half]))
		require.NoError(t, x.InsertTuples(b.l, table, build.runs[half:]))
		require.Equal(t, []uint64{uint64(c.build)}, b.wordsOf(table.Used))
		half = len(probe.runs) / 2
		require.NoError(t, x.ProbeTuples(b.l, table, probe.runs[:half], result))
		require.NoError(t, x.ProbeTuples(b.l, table, probe.runs[half:], result))
		require.Equal(t, want, b.wordsOf(result), "%+v", c)
		b.checkActive(x, c, build, probe, want)
		if c.build > 0 { // a table that is too small says so
			small := b.newTable(x, c.build-1, c.last())
			require.NoError(t, x.InsertTuples(b.l, small, build.runs))
			require.Equal(t, []uint64{uint64(c.build)}, b.wordsOf(small.Used))
		}
	}
	b.testTableMistakes(x)
}

// checkActive joins a side by a kernel that waits for its tuples.
func (b *bench) checkActive(x gpu.Exchanging, c sendCase, build, probe sentSide, want []uint64) {
	t := b.t
	table := b.newTable(x, c.build, c.last())
	j, err := x.NewActiveJoin(b.l, table, build.arrives(), probe.arrives())
	require.NoError(t, err)
	defer j.Release()
	poll := func() (s gpu.ActiveState) {
		b.wordsOf(table.Used) // Poll does not wait for what the queue has launched
		for range 3 {         // a block of a GPU may have ended before another one had done its part
			s, err = j.Poll(b.q)
			require.NoError(t, err)
			require.Zero(t, s.Mismatches, "%+v", c)
		}
		return s
	}
	require.Zero(t, poll().Done, "%+v", c)
	require.NoError(t, x.MarkTuples(b.l, probe.runs, probe.marks))
	require.Zero(t, poll().Done, "the build side comes first: %+v", c)
	require.NoError(t, x.MarkTuples(b.l, build.runs[1:], build.marks[1:]))
	require.LessOrEqual(t, poll().Done, (len(build.marks)-1)*build.marks[0].Rows, "%+v", c)
	require.NoError(t, x.MarkTuples(b.l, build.runs[:1], build.marks[:1]))
	s := poll()
	require.Equal(t, s.All, s.Done, "%+v", c)
	require.Equal(t, want, []uint64{s.Pairs, s.Sum}, "%+v", c)
}

// testLateTuples sends marks to another device before the tuples, as a network may.
func (b *exchanging) testLateTuples(to *exchanging) {
	t := b.t
	c := sendCase{bits: 4, ways: 2, second: 8, distinct: 300}
	build, probe := b.sendSide(b.q, c, []int{700}), b.sendSide(b.q, c, []int{5000, 9})
	pairs, sum := pairsOf(build, probe)
	var sides [2]gpu.ActiveSide
	var marks, tuples []gpu.TupleCopy
	for i, s := range []sentSide{build, probe} {
		require.NoError(t, b.q.MarkTuples(b.l, s.runs, s.marks))
		for k, r := range s.runs {
			there, err := to.q.Zeros(to.l, gpu.TupleType(8), r.Rows+s.marks[k].Rows)
			require.NoError(t, err)
			to.t.Cleanup(there.Release)
			at := gpu.TupleRun{Tuples: there, Rows: r.Rows}
			mark := gpu.TupleRun{Tuples: there, Start: r.Rows, Rows: s.marks[k].Rows}
			sides[i].Regions, sides[i].Marks = append(sides[i].Regions, at), append(sides[i].Marks, mark)
			marks = append(marks, gpu.TupleCopy{To: there, At: mark.Start, TupleRun: s.marks[k]})
			tuples = append(tuples, gpu.TupleCopy{To: there, TupleRun: gpu.TupleRun{Tuples: r.Tuples, Start: r.Start,
				Rows: r.Rows}})
		}
	}
	table := to.newTable(to.q, 700, c.last())
	j, err := to.q.NewActiveJoin(to.l, table, sides[0], sides[1])
	require.NoError(t, err)
	defer j.Release()
	to.wordsOf(table.Used) // the memory is zero
	b.copy(to, marks...)
	to.wordsOf(table.Used)
	s, err := j.Poll(to.bench.q)
	require.NoError(t, err)
	require.Less(t, s.Done, s.All)
	require.Positive(t, s.Mismatches)
	require.Zero(t, s.Pairs)
	b.copy(to, tuples...)
	to.wordsOf(table.Used)
	for range 3 { // a block of a GPU may have ended with a piece of the build side
		s, err = j.Poll(to.bench.q)
		require.NoError(t, err)
	}
	require.Equal(t, []uint64{uint64(s.All), pairs, sum}, []uint64{uint64(s.Done), s.Pairs, s.Sum})
}

// testTableMistakes makes mistakes, after which other calls work.
func (b *bench) testTableMistakes(x gpu.Exchanging) {
	t := b.t
	tuples, marks := b.tuples(8, 2*gpu.SendTail, "device"), b.tuples(8, 1, "device")
	defer tuples.Release()
	defer marks.Release()
	digit := gpu.Digit{Shift: 40, Bits: 4}
	table := b.newTable(x, 10, digit)
	run, mark := gpu.TupleRun{Tuples: tuples, Rows: 2 * gpu.SendTail}, gpu.TupleRun{Tuples: marks, Rows: 1}
	_, err := gpu.NewTupleTable(x, b.l, tuples, gpu.Digit{Shift: 40, Bits: 32})
	require.ErrorContains(t, err, "want 1 to 31 bits")
	long := run
	long.Rows++
	require.ErrorContains(t, x.InsertTuples(b.l, table, []gpu.TupleRun{long}), "run 0 has rows")
	require.ErrorContains(t, x.ProbeTuples(b.l, table, nil, b.words([]uint64{1})), "result of a probe has 1 rows")
	other := table
	other.Digit.Bits++
	require.ErrorContains(t, x.InsertTuples(b.l, other, nil), "NewTupleTable makes it")
	require.ErrorContains(t, x.MarkTuples(b.l, []gpu.TupleRun{run}, nil), "0 marks of 1 regions")
	require.ErrorContains(t, x.MarkTuples(b.l, []gpu.TupleRun{run}, []gpu.TupleRun{mark}), "0 counts and 1 marks")
	short := gpu.ActiveSide{Regions: []gpu.TupleRun{run}, Marks: []gpu.TupleRun{{Tuples: marks}}}
	_, err = x.NewActiveJoin(b.l, table, short, short)
	require.ErrorContains(t, err, "with 0 counts and 0 marks")
	_, err = x.Zeros(b.l, gpu.Of(gpu.String), 1)
	require.ErrorContains(t, err, "want a type of fixed width")
	require.NoError(t, x.InsertTuples(b.l, table, nil))
}
