package gputest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// aggregationCase is the rows of an AggregatePartitions.
type aggregationCase struct {
	name string
	n    int
	keys distribution
	bits uint // of the partitions, or noOffsets
	hint gpu.GroupHint
}

const noOffsets = ^uint(0)

// testAggregatePartitions aggregates by keys of every width. Keys of all ones and of zero are
// among them.
func testAggregatePartitions(t *testing.T, open Open) {
	cases := []aggregationCase{
		{"nothing", 0, distribution{distinct: 1}, noOffsets, gpu.GroupHint{}},
		{"nothing in partitions", 0, distribution{distinct: 1}, 3, gpu.GroupHint{Groups: 10}},
		{"one row", 1, distribution{distinct: 1}, noOffsets, gpu.GroupHint{Groups: 1}},
		{"one group", 9001, distribution{distinct: 1}, noOffsets, gpu.GroupHint{Groups: 1}},
		{"few groups", 9001, distribution{distinct: 7}, noOffsets, gpu.GroupHint{Groups: 7}},
		{"too many groups for copies", 20000, distribution{distinct: 300}, noOffsets, gpu.GroupHint{Groups: 300, Private: true}},
		{"few groups, many are expected", 5000, distribution{distinct: 9}, noOffsets, gpu.GroupHint{Groups: 2000}},
		{"more groups than are expected", 30000, distribution{distinct: 700}, noOffsets, gpu.GroupHint{Groups: 10}},
		{"every row a group", 5000, distribution{}, noOffsets, gpu.GroupHint{}},
		{"groups for one block or two", 20000, distribution{distinct: 2000}, noOffsets, gpu.GroupHint{Groups: 2000}},
		{"a dense key", 20000, distribution{distinct: 500}, noOffsets, gpu.GroupHint{Dense: true, Lo: 0, Hi: 499}},
		{"a dense key of one block or two", 20000, distribution{distinct: 4000}, noOffsets, gpu.GroupHint{Dense: true, Lo: 0, Hi: 3999}},
		{"a dense key that leaves its range", 20000, distribution{distinct: 500}, noOffsets, gpu.GroupHint{Dense: true, Lo: 20, Hi: 480}},
		{"partitions", 30000, distribution{distinct: 5000}, 5, gpu.GroupHint{Groups: 5000}},
		{"partitions of unknown groups", 30000, distribution{distinct: 5000}, 5, gpu.GroupHint{}},
		{"one partition has all rows", 40000, distribution{distinct: 1}, 6, gpu.GroupHint{Groups: 10}},
		{"partitions of skewed keys", 60000, distribution{distinct: 3000, zipf: true}, 6, gpu.GroupHint{Groups: 3000}},
		{"partitions of one row", 3000, distribution{}, 9, gpu.GroupHint{Groups: 3000}},
		{"partitions of more groups than are expected", 20000, distribution{distinct: 6000}, 1, gpu.GroupHint{Groups: 500}},
		{"too many groups for tables", 60000, distribution{distinct: 60000}, noOffsets, gpu.GroupHint{Groups: 10}},
		{"too many groups that are expected", 5000, distribution{distinct: 60000}, noOffsets, gpu.GroupHint{Groups: 1 << 20}},
		{"too many groups for partitions", 60000, distribution{distinct: 60000}, 1, gpu.GroupHint{Groups: 10}},
	}
	values := []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint32), gpu.Of(gpu.Int64), gpu.Of(gpu.Uint64), gpu.DecimalOf(12, 2), gpu.Of(gpu.Date)}
	for _, key := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint64), gpu.DecimalOf(15, 2), gpu.Of(gpu.Date)} {
		t.Run(key.String(), func(t *testing.T) {
			b := setUp(t, open)
			for _, c := range cases {
				if c.keys.distinct == 0 && key.Width() == 4 {
					c.keys.distinct = 1 << 20
				}
				if !b.takes() {
					continue
				}
				narrow := b.rnd.IntN(2) == 0
				list := []gpu.Aggregate{{Kind: gpu.CountAll, Output: gpu.Of(gpu.Int64)}}
				for _, v := range values {
					if v.Width() == 8 && narrow {
						continue
					}
					for _, k := range []gpu.AggregateKind{gpu.Sum, gpu.Min, gpu.Max, gpu.Count} {
						if (k != gpu.Sum || v.IsNumeric()) && b.rnd.IntN(3) > 0 && len(list) < 8 {
							list = append(list, gpu.Aggregate{Kind: k, Input: v, Output: aggregateOutput(k, v)})
						}
					}
				}
				b.checkAggregation(key, c, list)
			}
			b.checkAggregation(key, cases[13], nil) // distinct keys alone
			sum := gpu.Aggregate{Kind: gpu.Sum, Input: gpu.Of(gpu.Int32), Output: gpu.Of(gpu.HugeInt)}
			b.checkAggregation(key, aggregationCase{"a copy for each thread", 20000, distribution{distinct: 3}, noOffsets, gpu.GroupHint{Groups: 4, Private: true}}, []gpu.Aggregate{sum, sum})
			b.checkAggregation(key, aggregationCase{"groups for two blocks", 60000, distribution{distinct: 9000}, noOffsets, gpu.GroupHint{Groups: 9000}}, []gpu.Aggregate{sum, sum})
			b.checkAggregation(key, aggregationCase{"a dense key of two blocks", 60000, distribution{distinct: 15000}, noOffsets, gpu.GroupHint{Dense: true, Hi: 14999}}, []gpu.Aggregate{sum, sum})
		})
	}
}

func (b *bench) checkAggregation(typ gpu.Type, c aggregationCase, list []gpu.Aggregate) {
	t := b.t
	t.Helper()
	what := fmt.Sprintf("%s, %v by %v", c.name, list, typ)
	keys := b.random(typ, c.n, c.keys)
	for i := range keys { // what a table has in a slot without a key, and the least key
		if i%97 == 13 && c.keys.distinct != 1 {
			ones := ^uint64(0)
			if typ.Width() == 4 {
				ones = 1<<32 - 1
			}
			if !typ.IsUnsigned() {
				keys[i] = gpu.IntScalar(typ, -1)
			} else {
				keys[i].Int.Lo = ones
			}
		}
	}
	raw := make([][]gpu.Scalar, len(list))
	move := []gpu.Column{gpu.ColumnOf(typ, keys)}
	for i, a := range list {
		if a.Kind == gpu.CountAll {
			continue
		}
		raw[i] = b.random(a.Input, c.n, distribution{})
		for r := range raw[i] { // long carries
			if r%5 == 0 {
				raw[i][r] = raw[i][0]
			}
		}
		move = append(move, gpu.ColumnOf(a.Input, raw[i]))
	}
	cols := b.up(move...)
	rows := gpu.Partitioned{}
	if c.bits != noOffsets {
		digits := cols[0]
		digits.Type = gpu.Of(gpu.Uint32)
		if typ.Width() == 8 {
			digits.Type = gpu.Of(gpu.Uint64)
		}
		parted, offsets, err := b.q.Partition(b.l, cols, digits, gpu.Digit{Shift: uint(8*typ.Width()) - c.bits, Bits: c.bits, Factor: 0x9E3779B97F4A7C15})
		require.NoError(t, err)
		defer gpu.ReleaseColumns(append(parted, offsets))
		cols, rows.Offsets = parted, offsets
	}
	rows.Key = cols[0]
	values := make([]gpu.Column, len(list))
	next := 1
	for i, a := range list {
		if a.Kind != gpu.CountAll {
			values[i] = cols[next]
			next++
		}
	}
	out, err := b.q.AggregatePartitions(b.l, rows, list, values, c.hint)
	if errors.Is(err, gpu.ErrManyGroups) {
		require.Contains(t, c.name, "too many groups", what)
		require.Empty(t, out)
		return
	}
	require.NoError(t, err, what)
	defer gpu.ReleaseColumns(out)
	require.Len(t, out, 1+len(list))
	byKey := map[string][]int{}
	for r, k := range keys {
		byKey[label(k)] = append(byKey[label(k)], r)
	}
	require.Equal(t, len(byKey), out[0].Len, "groups of %s", what)
	require.Equal(t, typ, out[0].Type)
	got := b.down(out[0])
	seen := map[string]bool{}
	for _, k := range got {
		require.False(t, seen[label(k)], "%v comes twice: %s", k, what)
		seen[label(k)] = true
		require.NotEmpty(t, byKey[label(k)], "key %v of %s", k, what)
	}
	for i, a := range list {
		require.Equal(t, len(got), out[1+i].Len)
		require.Equal(t, a.Output, out[1+i].Type)
		for g, v := range b.down(out[1+i]) {
			var of []gpu.Scalar
			for _, r := range byKey[label(got[g])] {
				if a.Kind == gpu.CountAll {
					of = append(of, gpu.Scalar{})
				} else {
					of = append(of, raw[i][r])
				}
			}
			require.True(t, same(reference(a, of), v), "%v of %v, group %v: want %v, got %v: %s", a.Kind, a.Input, got[g], reference(a, of), v, what)
		}
	}
}
