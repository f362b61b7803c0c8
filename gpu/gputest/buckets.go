package gputest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// testPartitionBuckets partitions keys into buckets, and joins sides in buckets.
func testPartitionBuckets(t *testing.T, open Open) {
	for i, typ := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint64), gpu.DecimalOf(15, 2)} {
		t.Run(typ.String(), func(t *testing.T) {
			b := setUp(t, open)
			ways := b.ways()
			if Thin > 0 && i > 1 { // kernels know two widths
				t.Skip("another width stands for it")
			}
			for _, c := range []struct {
				build, probe int
				d            distribution
				bits         uint
				factor       uint64
			}{
				{0, 10, distribution{}, 2, 0}, {10, 0, distribution{}, 2, 0}, {1, 1, distribution{distinct: 1}, 0, 0},
				{700, 3000, distribution{distinct: 400, nulls: 0.1}, 3, 0x9E3779B97F4A7C15},
				{5000, 9000, distribution{distinct: 3000}, 9, 0x9E3779B97F4A7C15},
				{2048, 4096, distribution{distinct: 2000}, 0, 0},
				{300, 20001, distribution{distinct: 1000, zipf: true}, 2, 0x9E3779B97F4A7C15},
			} {
				d := gpu.Digit{Shift: uint(8*typ.Width()) - c.bits, Bits: c.bits, Factor: c.factor}
				some := ways
				if Thin > 0 { // no plan chooses this algorithm, so one variant suffices
					k := b.rnd.IntN(len(ways))
					some = ways[k : k+1]
				}
				b.checkBuckets(typ, c.build, c.probe, c.d, d, some)
			}
		})
	}
}

// bucketSide has keys in buckets, and the keys that are expected.
type bucketSide struct {
	gpu.Buckets
	keys []gpu.Scalar
	rows []int // by slot: the row, -1 for none
}

// inBuckets partitions n keys, and requires that each row with a key is in one slot of a bucket of
// its partition.
func (b *bench) inBuckets(typ gpu.Type, n int, dist distribution, d gpu.Digit) bucketSide {
	t := b.t
	t.Helper()
	s := bucketSide{keys: b.random(typ, n, dist)}
	key := b.up(gpu.ColumnOf(typ, s.keys))[0]
	var err error
	s.Buckets, err = experimental(b.q).PartitionBuckets(b.l, key, d)
	require.NoError(t, err)
	t.Cleanup(s.Buckets.Release)
	slots := s.Key.Len
	require.Equal(t, typ, s.Key.Type)
	require.Equal(t, []int{slots, slots / gpu.BucketRows, 1<<d.Bits + 1}, []int{s.Rows.Len, s.Chain.Len, s.Offsets.Len})
	require.LessOrEqual(t, s.Chain.Len, gpu.MostBuckets(n, d.Bits))
	rows, chain, at := b.ints(s.Rows), b.ints(s.Chain), b.ints(s.Offsets)
	require.Equal(t, []int{0, slots}, []int{at[0], at[len(at)-1]})
	found := map[int]bool{}
	keys := b.down(s.Key)
	s.rows = make([]int, slots)
	for p := range 1 << d.Bits {
		require.Zero(t, (at[p+1]-at[p])%gpu.BucketRows)
		for place := at[p]; place < at[p+1]; place++ {
			slot := chain[place/gpu.BucketRows]*gpu.BucketRows + place%gpu.BucketRows
			s.rows[slot] = -1
			if !keys[slot].Valid {
				continue
			}
			r := rows[slot]
			s.rows[slot] = r
			require.False(t, found[r], "row %d comes twice", r)
			found[r] = true
			require.Zero(t, s.keys[r].Compare(keys[slot]))
			require.Equal(t, p, digitOf(typ, s.keys[r], d), "the partition of %v", s.keys[r])
		}
	}
	for r, k := range s.keys {
		require.Equal(t, k.Valid, found[r], "row %d", r)
	}
	return s
}

// digitOf returns the partition of a key.
func digitOf(typ gpu.Type, k gpu.Scalar, d gpu.Digit) int {
	word := k.Int.Lo * max(d.Factor, 1)
	if typ.Width() == 4 {
		word = uint64(uint32(word))
	}
	return int(word >> d.Shift & (1<<d.Bits - 1))
}

func (b *bench) checkBuckets(typ gpu.Type, nBuild, nProbe int, dist distribution, d gpu.Digit, ways []gpu.Probing) {
	build, probe := b.inBuckets(typ, nBuild, dist, d), b.inBuckets(typ, nProbe, dist, d)
	at := map[string][]int{}
	for slot, r := range build.rows {
		if r >= 0 {
			at[label(build.keys[r])] = append(at[label(build.keys[r])], slot)
		}
	}
	want := pairing{probes: probe.Key.Len, builds: build.Key.Len}
	for slot, r := range probe.rows {
		if r >= 0 {
			for _, m := range at[label(probe.keys[r])] {
				want.pairs = append(want.pairs, [2]int{slot, m})
			}
		}
	}
	slices.SortFunc(want.pairs, func(x, y [2]int) int { return cmp.Or(x[0]-y[0], x[1]-y[1]) })
	for _, how := range ways {
		b.checkMatcher(func() (gpu.Matcher, error) {
			return b.q.MatchPartitions(b.l, build.Partitioned, probe.Partitioned, how)
		}, want,
			fmt.Sprintf("the match of %d and %d rows of %v in buckets, %+v", nBuild, nProbe, dist, how))
	}
}
