package gputest

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// aggregationCase describes the rows of an AggregatePartitions.
type aggregationCase struct {
	name string
	n    int
	keys distribution
	bits uint // of the partitions, or noOffsets
	hint gpu.GroupHint
	// nulls is the share of nulls among the values.
	nulls float64
}

const noOffsets = ^uint(0)

// testAggregatePartitions aggregates by keys of every width, among them keys whose bits are all
// ones or all zeros.
func testAggregatePartitions(t *testing.T, open Open) {
	cases := []aggregationCase{
		{"nothing", 0, distribution{distinct: 1}, noOffsets, gpu.GroupHint{}, 0},
		{"nothing in partitions", 0, distribution{distinct: 1}, 3, gpu.GroupHint{Groups: 10}, 0},
		{"one row", 1, distribution{distinct: 1}, noOffsets, gpu.GroupHint{Groups: 1}, 0},
		{"one group", 9001, distribution{distinct: 1}, noOffsets, gpu.GroupHint{Groups: 1}, 0},
		{"few groups", 9001, distribution{distinct: 7}, noOffsets, gpu.GroupHint{Groups: 7}, 0},
		{"too many groups for copies", 20000, distribution{distinct: 300}, noOffsets,
			gpu.GroupHint{Groups: 300, Private: true}, 0},
		{"few groups, many are expected", 5000, distribution{distinct: 9}, noOffsets, gpu.GroupHint{Groups: 1000}, 0},
		{"more groups than are expected", 30000, distribution{distinct: 700}, noOffsets, gpu.GroupHint{Groups: 10}, 0},
		{"every row a group", 5000, distribution{}, noOffsets, gpu.GroupHint{}, 0},
		{"groups that take much of a block", 20000, distribution{distinct: 1000}, noOffsets,
			gpu.GroupHint{Groups: 1000}, 0},
		{"a dense key", 20000, distribution{distinct: 500}, noOffsets, gpu.GroupHint{Dense: true, Lo: 0, Hi: 499}, 0},
		{"a dense key that takes much of a block", 20000, distribution{distinct: 4000}, noOffsets,
			gpu.GroupHint{Dense: true, Lo: 0, Hi: 3999}, 0},
		{"a dense key that leaves its range", 20000, distribution{distinct: 500}, noOffsets,
			gpu.GroupHint{Dense: true, Lo: 20, Hi: 480}, 0},
		{"a key with a third of the rows", 30000, distribution{distinct: 8, zipf: true}, noOffsets,
			gpu.GroupHint{Groups: 900}, 0},
		{"a dense key with a third of the rows", 30000, distribution{distinct: 8, zipf: true}, noOffsets,
			gpu.GroupHint{Dense: true, Lo: 0, Hi: 1999}, 0},
		{"partitions", 30000, distribution{distinct: 5000}, 5, gpu.GroupHint{Groups: 5000}, 0},
		{"partitions of unknown groups", 30000, distribution{distinct: 5000}, 5, gpu.GroupHint{}, 0},
		{"one partition has all rows", 40000, distribution{distinct: 1}, 6, gpu.GroupHint{Groups: 10}, 0},
		{"partitions of skewed keys", 60000, distribution{distinct: 3000, zipf: true}, 6, gpu.GroupHint{Groups: 3000},
			0},
		{"partitions of one row", 3000, distribution{}, 9, gpu.GroupHint{Groups: 3000}, 0},
		{"partitions of more groups than are expected", 20000, distribution{distinct: 6000}, 1,
			gpu.GroupHint{Groups: 500}, 0},
		{"too many groups for tables", 60000, distribution{distinct: 60000}, noOffsets, gpu.GroupHint{Groups: 10}, 0},
		{"too many groups that are expected", 5000, distribution{distinct: 60000}, noOffsets,
			gpu.GroupHint{Groups: 1 << 20}, 0},
		{"too many groups for partitions", 60000, distribution{distinct: 60000}, 1, gpu.GroupHint{Groups: 10}, 0},
	}
	plain := []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint32), gpu.Of(gpu.Int64), gpu.Of(gpu.Uint64),
		gpu.DecimalOf(12, 2), gpu.Of(gpu.Date)}
	any := append([]gpu.Type{gpu.Of(gpu.HugeInt), gpu.DecimalOf(38, 4), gpu.Of(gpu.Float64), gpu.Of(gpu.Float32),
		gpu.Of(gpu.Int8), gpu.Of(gpu.Uint16)}, plain...)
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
				form := b.rnd.IntN(4) // 0 narrow, 1 of 4 and 8 bytes, else any
				values := plain
				if form > 1 {
					values = any
				}
				if form == 3 {
					c.nulls = 0.3
				}
				list := []gpu.Aggregate{{Kind: gpu.CountAll, Output: gpu.Of(gpu.Int64)}}
				for _, i := range b.rnd.Perm(len(values)) {
					v := values[i]
					if v.Width() == 8 && form == 0 {
						continue
					}
					for _, k := range []gpu.AggregateKind{gpu.Sum, gpu.Min, gpu.Max, gpu.Count} {
						a := gpu.Aggregate{Kind: k, Input: v, Output: aggregateOutput(k, v)}
						if k == gpu.Sum && v.Width() == 16 {
							a.Output = gpu.Of(gpu.HugeInt)
						}
						if gpu.CanAggregate(a) == nil && b.rnd.IntN(3) > 0 && len(list) < 6 {
							list = append(list, a)
						}
					}
				}
				b.checkAggregation(key, c, list)
			}
			b.checkAggregation(key, cases[15], nil) // distinct keys alone
			sum := gpu.Aggregate{Kind: gpu.Sum, Input: gpu.Of(gpu.Int32), Output: gpu.Of(gpu.HugeInt)}
			b.checkAggregation(key, aggregationCase{"a copy for each thread", 20000, distribution{distinct: 3},
				noOffsets, gpu.GroupHint{Groups: 4, Private: true}, 0}, []gpu.Aggregate{sum, sum})
			b.checkAggregation(key, aggregationCase{"groups whose keys and sums take more than a block has", 60000,
				distribution{distinct: 9000}, noOffsets, gpu.GroupHint{Groups: 9000}, 0}, []gpu.Aggregate{sum, sum})
			b.checkAggregation(key, aggregationCase{"few groups with nearly all rows", 60000,
				distribution{distinct: 20000, zipf: true}, noOffsets, gpu.GroupHint{Groups: 20000, Skewed: true}, 0},
				[]gpu.Aggregate{sum, sum})
			b.checkAggregation(key, aggregationCase{"a key with a third of the rows beside many", 60000,
				distribution{distinct: 8, zipf: true}, noOffsets, gpu.GroupHint{Groups: 9000}, 0},
				[]gpu.Aggregate{sum, sum})
			b.checkAggregation(key, aggregationCase{"a dense key that fits as bits", 60000,
				distribution{distinct: 15000}, noOffsets, gpu.GroupHint{Dense: true, Hi: 14999}, 0},
				[]gpu.Aggregate{sum, sum})
		})
	}
}

// testAggregateExtremes sums values at the limits of their types: sums that take all bits of the
// result, sums that overflow, and floats of very different magnitude.
func testAggregateExtremes(t *testing.T, open Open) {
	huge := gpu.Of(gpu.HugeInt)
	least := gpu.Scalar{Type: huge, Valid: true, Int: gpu.Int128{Hi: math.MinInt64}}
	most := gpu.Scalar{Type: huge, Valid: true, Int: gpu.Int128{Lo: math.MaxUint64, Hi: math.MaxInt64}}
	one := gpu.IntScalar(huge, 1)
	for _, c := range []struct {
		name   string
		values []gpu.Scalar
		want   gpu.Scalar // not valid: the sum overflows
	}{
		{"the least", []gpu.Scalar{least}, least},
		{"the greatest", []gpu.Scalar{most}, most},
		{"both", []gpu.Scalar{most, least, most, least, one}, gpu.IntScalar(huge, -1)},
		{"one too many", []gpu.Scalar{most, one}, gpu.Scalar{}},
		{"far too many", slices.Repeat([]gpu.Scalar{least}, 5000), gpu.Scalar{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := setUp(t, open)
			cols := b.up(gpu.ColumnOf(gpu.Of(gpu.Int32),
				slices.Repeat([]gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int32), 7)}, len(c.values))),
				gpu.ColumnOf(huge, c.values))
			out, err := b.q.AggregatePartitions(b.l, gpu.Partitioned{Key: cols[0]},
				[]gpu.Aggregate{{Kind: gpu.Sum, Input: huge, Output: huge}}, cols[1:], gpu.GroupHint{Groups: 1})
			if !c.want.Valid {
				require.ErrorContains(t, err, "sum overflows 128 bits")
				require.True(t, gpu.IsFailure(err))
				require.NoError(t, b.reopen())
				return
			}
			require.NoError(t, err)
			defer gpu.ReleaseColumns(out)
			require.Equal(t, c.want.String(), b.down(out[1])[0].String())
		})
	}
	double := gpu.Of(gpu.Float64)
	for _, values := range [][]float64{
		{0, 0}, {1, -1}, {5e-324, 5e-324}, {1e300, 1e290, -1e300}, {0.1, 0.2, 1e9}, {1, 1e-300}, {1, math.Inf(1)},
		{math.NaN()}, {math.Copysign(0, -1)},
	} {
		t.Run(fmt.Sprint(values), func(t *testing.T) {
			b := setUp(t, open)
			var keys, floats []gpu.Scalar
			for i := range 300 {
				keys, floats = append(keys, gpu.IntScalar(gpu.Of(gpu.Int64), 1<<40)),
					append(floats, gpu.FloatScalar(double, values[i%len(values)]))
			}
			sum := gpu.Aggregate{Kind: gpu.Sum, Input: double, Output: double}
			cols := b.up(gpu.ColumnOf(gpu.Of(gpu.Int64), keys), gpu.ColumnOf(double, floats))
			out, err := b.q.AggregatePartitions(b.l, gpu.Partitioned{Key: cols[0]}, []gpu.Aggregate{sum}, cols[1:],
				gpu.GroupHint{Groups: 1})
			if errors.Is(err, gpu.ErrUnfit) {
				why := map[string]string{"[1 1e-300]": "sizes differ", "[1 +Inf]": "infinite or NaN",
					"[NaN]": "infinite or NaN"}[fmt.Sprint(values)]
				require.NotEmpty(t, why)
				require.ErrorContains(t, err, why)
				return
			}
			require.NoError(t, err)
			defer gpu.ReleaseColumns(out)
			want, got := reference(sum, floats).Float, b.down(out[1])[0].Float
			require.True(t, want == got || math.Abs(want-got) <= 1e-15*math.Abs(want) ||
				math.IsNaN(want) && math.IsNaN(got), "want %v, got %v", want, got)
		})
	}
}

// testAggregateCarries sums the greatest or the least value of a type in a group, so that all
// carries have one sign.
func testAggregateCarries(t *testing.T, open Open) {
	const rows, keys = 150_000, 5
	huge, key := gpu.Of(gpu.HugeInt), gpu.Of(gpu.Int32)
	numbers := make([]gpu.Scalar, rows)
	for i := range numbers {
		numbers[i] = gpu.IntScalar(key, int64(max(0, i%100-100+keys))) // nearly all are 0
	}
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint32), gpu.Of(gpu.Int64), gpu.Of(gpu.Uint64)} {
		lo, hi := typ.Bounds()
		for _, v := range []gpu.Int128{lo, hi, gpu.Int128From(0)} {
			for name, hint := range map[string]gpu.GroupHint{"a table": {Groups: 2000},
				"dense keys": {Dense: true, Hi: 5000}, "ids": {Groups: 9000}, "partitions": {}} {
				t.Run(fmt.Sprint(typ, v, name), func(t *testing.T) {
					b := setUp(t, open)
					if !b.takes() {
						return
					}
					value := gpu.Scalar{Type: typ, Valid: true, Int: v}
					cols := b.up(gpu.ColumnOf(key, numbers),
						gpu.ColumnOf(typ, slices.Repeat([]gpu.Scalar{value}, rows)),
						gpu.ColumnOf(typ, slices.Repeat([]gpu.Scalar{value}, rows)))
					parts := gpu.Partitioned{}
					if name == "partitions" {
						digits := cols[0]
						digits.Type = gpu.Of(gpu.Uint32)
						parted, offsets, err := b.q.Partition(b.l, cols, digits, gpu.Digit{Shift: 0, Bits: 1})
						require.NoError(t, err)
						defer gpu.ReleaseColumns(append(parted, offsets))
						cols, parts.Offsets = parted, offsets
					}
					parts.Key = cols[0]
					sum := gpu.Aggregate{Kind: gpu.Sum, Input: typ, Output: huge}
					out, err := b.q.AggregatePartitions(b.l, parts,
						[]gpu.Aggregate{sum, {Kind: gpu.CountAll, Output: gpu.Of(gpu.Int64)}, sum},
						[]gpu.Column{cols[1], {}, cols[2]}, hint)
					require.NoError(t, err)
					defer gpu.ReleaseColumns(out)
					require.Equal(t, keys, out[0].Len)
					first, counts, second := b.down(out[1]), b.down(out[2]), b.down(out[3])
					for g, n := range counts {
						want := new(big.Int).Mul(v.Big(), n.Int.Big())
						require.Equal(t, want.String(), first[g].Int.Big().String())
						require.Equal(t, want.String(), second[g].Int.Big().String())
					}
				})
			}
		}
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
		raw[i] = b.random(a.Input, c.n, distribution{nulls: c.nulls})
		if a.Input.IsFloat() && a.Kind == gpu.Sum {
			for r, v := range raw[i] { // of sizes that add up exactly
				if v.Valid {
					raw[i][r] = gpu.FloatScalar(a.Input, float64(b.rnd.IntN(1<<16)-1<<15)/8)
				}
			}
		}
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
		digit := gpu.Digit{Shift: uint(8*typ.Width()) - c.bits, Bits: c.bits, Factor: 0x9E3779B97F4A7C15}
		var parted []gpu.Column
		var err error
		if b.rnd.IntN(2) == 0 {
			parted, rows.Offsets, err = b.q.Partition(b.l, cols, digits, digit)
		} else {
			parted, rows.Offsets, rows.Ends, err = b.q.PartitionUnordered(b.l, cols, digits, digit)
		}
		require.NoError(t, err)
		defer gpu.ReleaseColumns(append(parted, rows.Offsets, rows.Ends))
		cols = parted
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
	// Each call draws a hash function. With about one in 200 of them small keys collide so much
	// that a key finds no slot.
	for again := 0; again < 3 && errors.Is(err, gpu.ErrManyGroups) &&
		!strings.Contains(c.name, "too many groups"); again++ {
		out, err = b.q.AggregatePartitions(b.l, rows, list, values, c.hint)
	}
	if errors.Is(err, gpu.ErrManyGroups) {
		require.Contains(t, c.name, "too many groups", what)
		require.Empty(t, out)
		return
	}
	if b.q.Device().Properties().BlockTables && errors.Is(err, gpu.ErrUnfit) {
		require.Empty(t, out)
		require.Greater(t, len(list), 5, what)
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
		key := label(k)
		if seen[key] || len(byKey[key]) == 0 {
			require.Failf(t, "wrong groups", "key %v comes twice or from nowhere: %s", k, what)
		}
		seen[key] = true
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
			if want := reference(a, of); !same(want, v) {
				require.Failf(t, "wrong aggregate", "%v of %v, group %v: want %v, got %v: %s", a.Kind, a.Input, got[g],
					want, v, what)
			}
		}
	}
}
