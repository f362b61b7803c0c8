package gputest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// tuple is a key and a value.
type tuple struct{ key, value uint64 }

// exchanging is a device of a group under test.
type exchanging struct {
	*bench
	q    gpu.Exchanging
	own  []tuple
	cols gpu.Column // own, in memory of the device
}

// upTuples copies tuples to the device. They are released at the end of the test.
func (b *exchanging) upTuples(list []tuple) gpu.Column {
	words := make([]uint64, 0, 2*len(list))
	for _, x := range list {
		words = append(words, x.key, x.value)
	}
	return b.up(gpu.Column{Type: gpu.TupleType(8), Len: len(list), Data: gpu.WrapBytes(gpu.BytesOf(words))})[0]
}

// room returns memory of the device for tuples.
func (b *exchanging) room(n int) gpu.Column {
	c := b.tuples(8, n, "device")
	b.t.Cleanup(c.Release)
	return c
}

// downTuples returns the tuples of a column.
func (b *exchanging) downTuples(c gpu.Column) []tuple {
	b.t.Helper()
	s, err := b.bench.q.Download(b.h, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type}),
		Cols: []gpu.Column{c.Retain()}, Rows: c.Len})
	require.NoError(b.t, err)
	defer s.Release()
	words := gpu.Values[uint64](s.Cols[0].Data, 2*c.Len)
	out := make([]tuple, c.Len)
	for i := range out {
		out[i] = tuple{words[2*i], words[2*i+1]}
	}
	return out
}

// copy copies tuples, for which a device waits.
func (b *exchanging) copy(waits *exchanging, copies ...gpu.TupleCopy) {
	b.t.Helper()
	arrival, err := b.q.CopyTuples(b.l, copies)
	require.NoError(b.t, err)
	defer arrival.Release()
	require.NoError(b.t, arrival.Await(waits.bench.q))
}

// Exchange tests the primitives of gpu.Exchanging on the devices of a group.
func Exchange(t *testing.T, devices []gpu.Device) {
	r := rand.New(rand.NewPCG(Seed(t), 1))
	var all []*exchanging
	for i, d := range devices {
		q, err := d.NewQueue(t.Name())
		require.NoError(t, err)
		x, err := gpu.ExchangingOf(q)
		require.NoError(t, err)
		b := &exchanging{bench: &bench{t: t, dev: d, q: q, l: d.Budget().Lease(t.Name()),
			h: d.HostBudget().Lease(t.Name()), rnd: r}, q: x}
		t.Cleanup(func() {
			require.NoError(t, q.Close())
			require.NoError(t, b.l.Close())
			require.NoError(t, b.h.Close())
		})
		b.own = make([]tuple, 1+r.IntN(3000))
		for k := range b.own {
			b.own[k] = tuple{r.Uint64N(500) * 0x9E3779B97F4A7C15, uint64(i)<<32 | uint64(k)}
		}
		b.cols = b.upTuples(b.own)
		all = append(all, b)
	}
	for i, b := range all {
		b.testCopies(all, i)
	}
	for i, b := range all {
		b.testLateTuples(all[(i+1)%len(all)])
		b.testPartitions(r)
		b.testExchangeMistakes()
	}
}

// testCopies copies a part of each device's tuples here, and then all of them to the next device.
func (b *exchanging) testCopies(all []*exchanging, at int) {
	var want []tuple
	var copies []gpu.TupleCopy
	n := 0
	for _, from := range all {
		n += len(from.own)
	}
	to := b.room(n)
	for _, from := range all {
		part := gpu.TupleRun{Tuples: from.cols, Start: len(from.own) / 3, Rows: len(from.own) / 2}
		copies = append(copies, gpu.TupleCopy{To: to, At: len(want), TupleRun: part})
		want = append(want, from.own[part.Start:part.Start+part.Rows]...)
	}
	b.copy(b, copies...)
	require.Equal(b.t, want, b.downTuples(to)[:len(want)])
	next := all[(at+1)%len(all)]
	there := next.room(len(want) + 5)
	b.copy(next, gpu.TupleCopy{To: there, At: 5, TupleRun: gpu.TupleRun{Tuples: to, Rows: len(want)}})
	require.Equal(b.t, want, next.downTuples(there)[5:])
	b.copy(b)
}

// testPartitions partitions and joins the device's tuples.
func (b *exchanging) testPartitions(r *rand.Rand) {
	t := b.t
	for _, bits := range []uint{2, 6, 9} {
		d := gpu.Digit{Shift: 64 - bits - uint(r.IntN(20)), Bits: bits, Factor: r.Uint64() | 1}
		digit := func(x tuple) int { return int(x.key*d.Factor>>d.Shift) & (1<<d.Bits - 1) }
		// Two parts of two runs each, of which one is empty.
		var parts []gpu.PartitionedRuns
		cut := r.IntN(len(b.own) + 1)
		for _, runs := range [][]gpu.TupleRun{
			{{Tuples: b.cols, Rows: cut}, {Tuples: b.cols, Start: cut}},
			{{Tuples: b.cols, Start: cut, Rows: (len(b.own) - cut) / 2}, {Tuples: b.cols,
				Start: cut + (len(b.own)-cut)/2, Rows: len(b.own) - cut - (len(b.own)-cut)/2}},
		} {
			out, err := b.q.PartitionRuns(b.l, b.room(gpu.TupleRoom(runs, bits)), runs, d)
			require.NoError(t, err)
			defer out.Release()
			parts = append(parts, out)
			tuples, starts, counts := b.downTuples(out.Tuples), b.ints(out.Starts), b.ints(out.Counts)
			for i, run := range runs {
				left := map[tuple]int{}
				for _, x := range b.own[run.Start : run.Start+run.Rows] {
					left[x]++
				}
				for p := range 1 << bits {
					at := i<<bits | p
					for _, x := range tuples[starts[at] : starts[at]+counts[at]] {
						require.Equal(t, p, digit(x))
						left[x]--
						require.GreaterOrEqual(t, left[x], 0)
						if left[x] == 0 {
							delete(left, x)
						}
					}
				}
				require.Empty(t, left, "a run has all its tuples")
			}
		}
		// The tuples before the cut are the build side.
		var pairs, sum uint64
		for _, x := range b.own[:cut] {
			for _, y := range b.own[cut:] {
				if x.key == y.key {
					pairs, sum = pairs+1, sum+x.value+y.value
				}
			}
		}
		gotPairs, gotSum, err := b.q.CountMatches(b.l, parts[:1], parts[1:], 2, d)
		require.NoError(t, err)
		require.Equal(t, []uint64{pairs, sum}, []uint64{gotPairs, gotSum}, "%+v", d)
		b.testSums(cut, d, digit)
	}
}

// testSums adds up tuples, all of which should have one digit.
func (b *exchanging) testSums(cut int, d gpu.Digit, digit func(tuple) int) {
	var keys, values, wrong uint64
	digits := []int{1, digit(b.own[len(b.own)-1])}
	for i, x := range b.own {
		keys, values = keys+x.key, values+x.value
		want := digits[0]
		if i >= cut {
			want = digits[1]
		}
		if digit(x) != want {
			wrong++
		}
	}
	runs := []gpu.TupleRun{{Tuples: b.cols, Rows: cut}, {Tuples: b.cols, Start: cut, Rows: len(b.own) - cut}}
	gotKeys, gotValues, gotWrong, err := b.q.SumTuples(b.l, runs, digits, 1<<d.Bits, d)
	require.NoError(b.t, err)
	require.Equal(b.t, []uint64{keys, values, wrong}, []uint64{gotKeys, gotValues, gotWrong})
}

// testExchangeMistakes makes mistakes, after which other calls work.
func (b *exchanging) testExchangeMistakes() {
	t := b.t
	run := gpu.TupleRun{Tuples: b.cols, Rows: len(b.own)}
	long := run
	long.Rows++
	digit := gpu.Digit{Shift: 40, Bits: 4}
	_, err := b.q.CopyTuples(b.l, []gpu.TupleCopy{{To: b.cols, TupleRun: long}})
	require.ErrorContains(t, err, "copy of tuples: run 0 has rows")
	_, err = b.q.PartitionRuns(b.l, b.room(gpu.TupleRoom([]gpu.TupleRun{run}, 4)-1), []gpu.TupleRun{run}, digit)
	require.ErrorContains(t, err, "partition of runs into a column of")
	source := gpu.TupleSource{Key: b.words([]uint64{1, 2}), Value: b.words([]uint64{3, 4})}
	region := gpu.TupleRun{Tuples: b.room(2 * gpu.SendTail), Rows: 2 * gpu.SendTail}
	for _, c := range []struct {
		want    string
		sources []gpu.TupleSource
		by      gpu.TupleRoute
		regions []gpu.TupleRun
	}{
		{"want 1 to 16 sources", nil, gpu.TupleRoute{Digit: digit}, []gpu.TupleRun{region}},
		{"want 1 to 7 bits", []gpu.TupleSource{source}, gpu.TupleRoute{Digit: gpu.Digit{Bits: 8}},
			[]gpu.TupleRun{region}},
		{"want equally many of", []gpu.TupleSource{{Key: source.Key, Value: b.words([]uint64{3})}},
			gpu.TupleRoute{Digit: digit}, []gpu.TupleRun{region}},
		{"want more than 1536", []gpu.TupleSource{source}, gpu.TupleRoute{Digit: digit},
			[]gpu.TupleRun{{Tuples: region.Tuples, Rows: gpu.SendTail}}},
		{"want more than 1536 from a multiple of 8", []gpu.TupleSource{source}, gpu.TupleRoute{Digit: digit},
			[]gpu.TupleRun{{Tuples: region.Tuples, Start: 1, Rows: gpu.SendTail + 1}}},
		{"of 16 bytes to region 0 of tuples of 32", []gpu.TupleSource{source}, gpu.TupleRoute{Digit: digit},
			[]gpu.TupleRun{{Tuples: region.Tuples, Rows: gpu.SendTail + 8, Width: 32}}},
		{"send tuples of 3 columns", []gpu.TupleSource{{Key: source.Key, Value: source.Value,
			More: []gpu.Column{source.Key}}}, gpu.TupleRoute{Digit: digit}, []gpu.TupleRun{region}},
		{"by 2 splitters", []gpu.TupleSource{source}, gpu.TupleRoute{Digit: digit, Splitters: source.Key},
			[]gpu.TupleRun{region}},
		{"sums of 2 heavy keys", []gpu.TupleSource{source}, gpu.TupleRoute{Digit: digit,
			Heavy: gpu.HeavyKeys{Keys: source.Key, Own: source.Key}}, []gpu.TupleRun{region}},
	} {
		_, err = b.q.SendTuples(b.l, c.sources, c.by, c.regions)
		require.ErrorContains(t, err, c.want)
	}
	for _, bits := range []uint{0, 1, 10} {
		_, err = b.q.PartitionRuns(b.l, b.room(1<<16), []gpu.TupleRun{run}, gpu.Digit{Shift: 40, Bits: bits})
		require.ErrorContains(t, err, "want 2 to 9 bits")
	}
	_, _, err = b.q.CountMatches(b.l, nil, nil, 1, digit)
	require.ErrorContains(t, err, "want at least one")
	wide := run
	wide.Rows, wide.Width = len(b.own)/2, 32
	_, _, _, err = b.q.SumTuples(b.l, []gpu.TupleRun{wide}, []int{0}, 16, digit)
	require.ErrorContains(t, err, "tuples of 32 bytes: want 16")
	wide.Rows++
	_, err = b.q.CopyTuples(b.l, []gpu.TupleCopy{{To: b.cols, TupleRun: wide}})
	require.ErrorContains(t, err, "copy of tuples: run 0 has rows")
	_, _, _, err = b.q.SumTuples(b.l, []gpu.TupleRun{run}, nil, 16, digit)
	require.ErrorContains(t, err, "sums of 1 runs of 0 regions")
	_, _, _, err = b.q.SumTuples(b.l, []gpu.TupleRun{run}, []int{0}, 16, digit)
	require.NoError(t, err)
}
