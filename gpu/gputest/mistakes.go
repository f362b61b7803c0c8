package gputest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// testMistakes calls primitives with wrong types, lengths and ranges. Each call returns an error,
// changes no state and leaves the queue usable.
func testMistakes(t *testing.T, open Open) {
	b := setUp(t, open)
	const n, distinct = 100, 7
	i32, i64, text := gpu.Of(gpu.Int32), gpu.Of(gpu.Int64), gpu.Of(gpu.String)
	ids := b.ids(make([]int32, n))
	cols := b.up(
		gpu.ColumnOf(i64, generate(n, func(i int) gpu.Scalar { return gpu.IntScalar(i64, int64(i%distinct)) })),
		gpu.ColumnOf(text, generate(n, func(i int) gpu.Scalar { return gpu.StringScalar(fmt.Sprint(i)) })))
	longs, texts := cols[0], cols[1]
	short := b.up(gpu.ColumnOf(i64, []gpu.Scalar{gpu.IntScalar(i64, 1)}))[0]
	many := make([]gpu.Column, 61)
	for i := range many {
		many[i] = longs
	}
	keys := func(cols ...gpu.Column) []gpu.Column { return cols }
	order := func(cols ...gpu.Column) (keys []gpu.SortKey) {
		for _, c := range cols {
			keys = append(keys, gpu.SortKey{Column: c})
		}
		return keys
	}
	fails := func(want string, err error) {
		t.Helper()
		require.ErrorContains(t, err, want)
		require.False(t, gpu.IsFailure(err) || gpu.IsOutOfMemory(err), "%v", err)
		hash, err := b.q.Hash(b.l, keys(longs), 1)
		require.NoError(t, err, "the error sticks")
		hash.Release()
	}

	program := &gpu.Program{Inputs: []gpu.Type{i64}, Outputs: []int{0}}
	for want, in := range map[string][]gpu.Column{
		"1 inputs, got 0": nil, "100 rows of INTEGER": {ids}, "1 rows of BIGINT": {short},
	} {
		_, err := b.q.Eval(b.l, program, in, n)
		fails(want, err)
	}
	_, err := b.q.Select(b.l, longs, true)
	fails("not BIGINT", err)
	_, err = b.q.NewBitmap(b.l, -1)
	fails("bitmap of -1 rows", err)
	fails("column of BIGINT", b.q.SetBits(b.l, longs, ids))
	bitmap, err := b.q.NewBitmap(b.l, n)
	require.NoError(t, err)
	defer bitmap.Release()
	fails("not BIGINT", b.q.SetBits(b.l, bitmap, longs))
	_, _, err = b.q.AddUnmatched(b.l, ids, ids, longs)
	fails("not BIGINT", err)
	_, _, err = b.q.AddUnmatched(b.l, ids, b.ids([]int32{1}), ids)
	fails("100 probe rows and 1 build rows", err)
	_, err = b.q.Gather(b.l, keys(texts), longs, false)
	fails("not BIGINT", err)
	_, err = b.q.GatherParts(b.l, nil, ids)
	fails("columns of bytes", err)
	_, err = b.q.Scatter(b.l, keys(short), ids, n)
	fails("1 rows by 100 ids", err)
	_, err = b.q.Concat(b.l, nil)
	fails("no columns", err)
	_, err = b.q.Concat(b.l, keys(longs, texts))
	fails("BIGINT and VARCHAR", err)
	half := gpu.Column{Type: i64, Len: gpu.MaxRows/2 + 1}
	_, err = b.q.Concat(b.l, keys(half, half))
	fails("more than the 2147483646 that row ids can address", err)
	require.ErrorIs(t, err, gpu.ErrLimit)
	for _, r := range [][2]int{{-1, 1}, {2, 1}, {0, n + 1}} {
		_, err = b.q.Slice(b.l, longs, r[0], r[1])
		fails("of a column of 100 rows", err)
	}
	for _, bounds := range [][]int{nil, {1}, {-1, 1}, {2, 1}} {
		_, err = b.q.Cut(b.l, keys(longs), bounds)
		fails("not the bounds of parts", err)
	}
	_, err = b.q.Cut(b.l, keys(longs), []int{0, n + 1})
	fails("row 101 of a column of 100 rows", err)
	for _, c := range []struct {
		want      string
		cols, key gpu.Column
		d         gpu.Digit
	}{
		{"by a column of VARCHAR", longs, texts, gpu.Digit{Bits: 2}}, {"by 17 bits", longs, longs, gpu.Digit{Bits: 17}},
		{"from bit 30", ids, ids, gpu.Digit{Shift: 30, Bits: 3}},
		{"even factor 6", ids, ids, gpu.Digit{Bits: 3, Factor: 6}},
		{"1 rows by a key of 100", short, longs, gpu.Digit{Bits: 2}},
		{"1 rows by a key of 100", short, longs, gpu.Digit{}},
	} {
		_, _, err = b.q.Partition(b.l, keys(c.cols), c.key, c.d)
		fails(c.want, err)
	}
	for _, sort := range []func(*gpu.Lease, []gpu.SortKey) (gpu.Column, error){b.q.Sort, experimental(b.q).MergeSort} {
		_, err = sort(b.l, nil)
		fails("at least one key", err)
		_, err = sort(b.l, order(longs, short))
		fails("100 and 1 rows", err)
	}
	for _, c := range []struct {
		want   string
		rows   gpu.Partitioned
		list   []gpu.Aggregate
		values gpu.Column
	}{
		{"by a key of VARCHAR", gpu.Partitioned{Key: texts}, nil, ids},
		{"1 aggregates of 0 columns", gpu.Partitioned{Key: longs}, []gpu.Aggregate{{Kind: gpu.CountAll}}, gpu.Column{}},
		{"by offsets", gpu.Partitioned{Key: ids, Offsets: longs}, nil, ids},
		{"by 1 offset", gpu.Partitioned{Key: ids, Offsets: short}, nil, ids},
		{"by 100 offsets and 1 ends", gpu.Partitioned{Key: ids, Offsets: ids, Ends: short}, nil, ids},
		{"min of VARCHAR", gpu.Partitioned{Key: ids}, []gpu.Aggregate{{Kind: gpu.Min, Input: texts.Type}}, texts},
		{"max of a column of 1 values", gpu.Partitioned{Key: ids}, []gpu.Aggregate{{Kind: gpu.Max, Input: short.Type}},
			short},
	} {
		var values []gpu.Column
		if len(c.list) > 0 && c.values.Len > 0 {
			values = []gpu.Column{c.values}
		}
		_, err = b.q.AggregatePartitions(b.l, c.rows, c.list, values, gpu.GroupHint{})
		fails(c.want, err)
	}
	_, err = b.q.SampleKeys(b.l, texts)
	fails("sample of a key of VARCHAR", err)
	tuples := b.tuples(8, n, "device")
	defer tuples.Release()
	for _, c := range []struct {
		want           string
		to, key, value gpu.Column
		bits           uint
	}{
		{"by a column of VARCHAR", tuples, texts, longs, 2}, {"a value of VARCHAR", tuples, longs, texts, 2},
		{"a value of INTEGER", tuples, longs, ids, 2},
		{"by 12 bits: 11 is the most", tuples, longs, longs, 12}, {"by 65 bits", tuples, longs, longs, 65},
		{"into a column of BIGINT", longs, longs, longs, 2},
		{"of 100 keys and 1 values", tuples, longs, short, 2}, {"values into a column of 100", tuples, short, short, 2},
	} {
		_, err = experimental(b.q).PartitionTuples(b.l, c.to, c.key, c.value, gpu.Digit{Bits: c.bits}, gpu.TuplePass{})
		fails(c.want, err)
	}
	_, err = experimental(b.q).SplitTuples(b.l, tuples, ids.Type, ids.Type)
	fails("tuples of HUGEINT have no keys of INTEGER", err)
	_, err = experimental(b.q).SplitTuples(b.l, longs, longs.Type, longs.Type)
	fails("tuples of BIGINT have no keys of BIGINT", err)
	_, err = experimental(b.q).PartitionBuckets(b.l, texts, gpu.Digit{Bits: 2})
	fails("by a key of VARCHAR", err)
	_, err = experimental(b.q).PartitionBuckets(b.l, longs, gpu.Digit{Bits: 17})
	fails("by 17 bits", err)
	for _, c := range []struct {
		want string
		keys []gpu.Column
		safe int
	}{
		{"at least one key", nil, 0}, {"has 1 and 2", keys(longs), 2}, {"61 join keys", many, 61},
		{"has 1 rows", keys(longs, short), 2},
	} {
		_, err = b.q.BuildTable(b.l, c.keys, make([]bool, c.safe), 1<<20)
		fails(c.want, err)
	}
	side := gpu.Partitioned{Key: longs, Offsets: longs}
	_, err = b.q.MatchPartitions(b.l, side, side, gpu.Probing{})
	fails("not BIGINT", err)
	_, err = b.q.MatchPartitions(b.l, gpu.Partitioned{Key: longs, Offsets: b.ids([]int32{0, n})},
		gpu.Partitioned{Key: longs, Offsets: ids}, gpu.Probing{})
	fails("2 and 100 offsets", err)
	chain := gpu.Partitioned{Key: longs, Offsets: b.ids([]int32{0, n}), Chain: b.ids([]int32{0})}
	_, err = b.q.MatchPartitions(b.l, chain, chain, gpu.Probing{})
	fails("a chain of 1 buckets with a key of 100 rows", err)
	_, err = experimental(b.q).MatchSorted(b.l, order(longs), order(texts), make([]bool, 1))
	fails("BIGINT with VARCHAR", err)
	_, err = b.q.MatchRange(b.l, longs, nil, &gpu.Bound{Column: texts})
	fails("BIGINT with a bound of VARCHAR", err)
	_, err = b.q.MatchRange(b.l, longs, &gpu.Bound{Column: longs}, &gpu.Bound{Column: short})
	fails("100 and 1 rows", err)
	_, _, err = b.q.Runs(b.l, nil)
	fails("no key columns", err)
	count := gpu.Aggregate{Kind: gpu.Count, Input: i64, Output: i64}
	_, err = b.q.Fold(b.l, count, texts, ids, ids)
	fails("count of VARCHAR, planned for BIGINT", err)
	_, err = b.q.Fold(b.l, count, longs, ids, b.ids([]int32{1}))
	fails("100 first rows and 1 ends", err)
	_, err = b.q.Extreme(b.l, gpu.SortKey{Column: longs}, false, longs, ids)
	fails("not BIGINT", err)
	_, err = b.q.Search(b.l, gpu.SortKey{Column: longs}, texts, false, ids, ids)
	fails("BIGINT for bounds of VARCHAR", err)
	_, err = b.q.NewGroups(b.l, make([]gpu.Type, 61), gpu.GroupHint{})
	fails("61 group keys", err)
	_, err = b.q.NewPacking(b.l, make([]gpu.Type, 61))
	fails("61 group keys", err)
	_, err = b.q.NewAccumulator(b.l, gpu.Aggregate{Kind: gpu.Sum, Input: text, Output: text})
	fails("not defined on VARCHAR", err)
	_, err = b.q.NewAccumulator(b.l, gpu.Aggregate{Kind: gpu.Avg, Input: i64, Output: i64})
	fails("avg is not", err)

	table, err := b.q.BuildTable(b.l, keys(longs, texts), []bool{false, false}, 1<<20)
	require.NoError(t, err)
	defer table.Release()
	for _, c := range []struct {
		want string
		keys []gpu.Column
	}{
		{"probe with 1 key columns", keys(longs)}, {"key column 1 has type BIGINT", keys(longs, longs)},
		{"key column 1 has 0 rows", keys(longs, gpu.Column{Type: text})},
	} {
		_, err = table.Match(b.q, b.l, c.keys)
		fails(c.want, err)
	}
	match, err := table.Match(b.q, b.l, keys(longs, texts))
	require.NoError(t, err)
	defer match.Release()
	for _, limit := range []int{-5, 0} { // as 1
		probe, build, more, err := match.Next(b.q, b.l, limit)
		require.NoError(t, err)
		require.True(t, more)
		require.Equal(t, []int{1, 1}, []int{probe.Len, build.Len})
		probe.Release()
		build.Release()
	}

	groups, err := b.q.NewGroups(b.l, []gpu.Type{i64}, gpu.GroupHint{})
	require.NoError(t, err)
	defer groups.Release()
	packing, err := b.q.NewPacking(b.l, []gpu.Type{i64})
	require.NoError(t, err)
	defer packing.Release()
	packed, err := packing.Pack(b.q, b.l, keys(longs), n)
	require.NoError(t, err)
	defer packed.Release()
	a, err := groups.Assign(b.q, b.l, keys(longs), n)
	require.NoError(t, err)
	defer a.Release()
	for want, k := range map[string][]gpu.Column{
		"0 key columns": nil, "2 key columns": keys(longs, longs), "has type VARCHAR": keys(texts),
		"has 1 rows": keys(short),
	} {
		_, err = groups.Assign(b.q, b.l, k, n)
		fails(want, err)
		require.Equal(t, distinct, groups.Len())
		_, err = packing.Pack(b.q, b.l, k, n)
		fails(want, err)
	}
	_, err = packed.Unpack(b.q, b.l, longs)
	fails("unpack of a key of BIGINT", err)
	ranges := [][2]int{{-1, 1}, {2, 1}, {0, distinct + 1}, {distinct + 1, distinct + 1}}
	for _, r := range ranges {
		_, err = groups.Keys(b.q, b.l, r[0], r[1])
		fails(fmt.Sprintf("keys of groups [%d, %d) of 7", r[0], r[1]), err)
	}

	for _, agg := range []gpu.Aggregate{
		{Kind: gpu.CountAll, Output: i64}, {Kind: gpu.Count, Input: i64, Output: i64},
		{Kind: gpu.Sum, Input: i64, Output: gpu.SumType(i64)},
		{Kind: gpu.Sum, Input: gpu.Of(gpu.Float64), Output: gpu.Of(gpu.Float64)},
		{Kind: gpu.Min, Input: i32, Output: i32},
		{Kind: gpu.Max, Input: gpu.Of(gpu.HugeInt), Output: gpu.Of(gpu.HugeInt)},
		{Kind: gpu.Max, Input: text, Output: text},
		{Kind: gpu.BitAnd, Input: i64, Output: i64},
	} {
		x, err := b.q.NewAccumulator(b.l, agg)
		require.NoError(t, err)
		defer x.Release()
		_, err = x.Result(b.q, b.l, 0, 1)
		fails("groups [0, 1) of 0", err)
		var values gpu.Column
		if agg.Kind != gpu.CountAll {
			fails("0 rows of "+agg.Input.String(), x.Update(b.q, a, gpu.Column{Type: agg.Input}, distinct))
			fails("100 rows of BOOLEAN", x.Update(b.q, a, gpu.Column{Type: boolean, Len: n}, distinct))
			values = b.up(gpu.ColumnOf(agg.Input,
				generate(n, func(i int) gpu.Scalar { return value(agg.Input, uint64(i), false) })))[0]
		}
		require.NoError(t, x.Update(b.q, a, values, distinct))
		want, err := x.Result(b.q, b.l, 0, distinct)
		require.NoError(t, err)
		for _, r := range ranges {
			_, err = x.Result(b.q, b.l, r[0], r[1])
			fails(fmt.Sprintf("%v of groups [%d, %d) of 7", agg.Kind, r[0], r[1]), err)
		}
		got, err := x.Result(b.q, b.l, 0, distinct)
		require.NoError(t, err)
		requireSame(t, b.down(want), b.down(got), agg)
		want.Release()
		got.Release()
	}
}
