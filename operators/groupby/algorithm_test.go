package groupby

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/operators"
)

// skewed is a number of groups of which 20 have nearly all rows.
const skewed = 1 << 16

// TestAWrongEstimateIsRevised pushes strides of other numbers of groups than the planner says, on a
// GPU. Each stride has an algorithm that takes it, and all rows are counted.
func TestAWrongEstimateIsRevised(t *testing.T) {
	defer func(rows int) { fewRows = rows }(fewRows)
	fewRows = 1 << 17
	in := gpu.NewSchema(gpu.Field{Name: "k", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "v", Type: gpu.Of(gpu.Int64), Nullable: true},
		gpu.Field{Name: "w", Type: gpu.Of(gpu.Int64)})
	count, sum := gpu.Of(gpu.Int64), gpu.SumType(gpu.Of(gpu.Int64))
	for _, c := range []struct {
		estimate int
		groups   []int // of the strides; a negative number has nulls among the values
		want     string
		forced   string // an algorithm; w may have nulls then, and has none
	}{
		{0, []int{50, 60}, "algorithm hgb: an unknown number of groups fit tables of blocks", ""},
		{10, []int{30_000}, "algorithm pgb-tr: more groups than were expected", ""},
		{1 << 20, []int{100, 100}, "algorithm hgb: about 100 groups fit tables of blocks", ""},
		{1 << 20, []int{100, 30_000},
			"algorithm hgb: about 100 groups fit tables of blocks; algorithm pgb-tr: more groups than were expected",
			""},
		{1 << 20, []int{100_000, 100, 100},
			"algorithm pgb-tr: about 1,048,576 groups in 256 partitions; algorithm hgb: about 100 groups fit " +
				"tables of blocks", ""},
		{1 << 20, []int{skewed, 60_000},
			"algorithm hgb: about 1,532 groups fit tables of blocks; algorithm pgb-tr: more groups than were expected",
			""},
		{10, []int{10, -10}, "algorithm hgb-g: about 10 groups of values with nulls", ""},
		{30_000, []int{30_000, 30_000}, "algorithm pgb-tr: the job says so", pgbTR},
	} {
		t.Run(fmt.Sprint(c.estimate, " estimated, ", c.groups), func(t *testing.T) {
			in := gpu.NewSchema(slices.Clone(in.Fields)...)
			in.Fields[1].Nullable = slices.Min(c.groups) < 0
			in.Fields[2].Nullable = c.forced != ""
			dev := cudatest.Open(t, cuda.Options{Memory: 256 << 20})
			q, err := dev.NewQueue("test")
			require.NoError(t, err)
			l := dev.Budget().Lease("test")
			host := dev.HostBudget().Lease("test")
			op, err := New(Spec{In: in, Keys: []int{0}, Hint: gpu.GroupHint{Groups: c.estimate}, Algorithm: c.forced,
				Aggregates: []Aggregate{{Kind: gpu.CountAll, Input: -1, Output: count},
					{Kind: gpu.Sum, Input: 1, Output: sum}, {Kind: gpu.Count, Input: 2, Output: count}},
				Out: gpu.NewSchema(in.Fields[0], gpu.Field{Name: "n", Type: count},
					gpu.Field{Name: "s", Type: sum, Nullable: true}, gpu.Field{Name: "w", Type: count})})
			require.NoError(t, err)
			ctx := context.Background()
			task := operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: fewRows, Lanes: 1}
			lane, err := op.NewLocal(task)
			require.NoError(t, err)
			counts, sums := map[int64]int64{}, map[int64]int64{}
			for i, groups := range c.groups {
				nulls := groups < 0
				groups = max(groups, -groups)
				buf, values := make([]gpu.Scalar, fewRows), make([]gpu.Scalar, fewRows)
				for r := range buf {
					k, v := int64(r%groups)*7-20, int64(r)<<40
					if groups == skewed && r%97 > 0 {
						k = int64(r % 20)
					}
					buf[r], values[r] = gpu.IntScalar(in.Fields[0].Type, k), gpu.IntScalar(in.Fields[1].Type, v)
					counts[k]++
					if nulls && r == 5 {
						values[r] = gpu.Null(in.Fields[1].Type)
						continue
					}
					sums[k] += v >> 40
				}
				s, err := q.Upload(l, &gpu.Stride{Schema: in, Rows: fewRows,
					Cols: []gpu.Column{gpu.ColumnOf(in.Fields[0].Type, buf), gpu.ColumnOf(in.Fields[1].Type, values),
						gpu.ColumnOf(in.Fields[2].Type, buf)}})
				require.NoError(t, err)
				require.NoError(t, lane.Push(ctx, i, s))
			}
			require.NoError(t, lane.Combine(ctx))
			require.NoError(t, lane.Close())
			require.NoError(t, op.Finalize(ctx, task))
			require.Equal(t, c.want, op.(operators.Choosing).Choice())
			found := 0
			for part := range op.Parts() {
				require.NoError(t, op.Emit(ctx, task, part, func(s *gpu.Stride) error {
					s, err := q.Download(host, s)
					require.NoError(t, err)
					for r := range s.Rows {
						k := s.Cols[0].ScalarAt(r).Int.Int64()
						require.Equal(t, fmt.Sprint(counts[k]), s.Cols[1].ScalarAt(r).String(), "count of %d", k)
						require.Equal(t, fmt.Sprint(counts[k]), s.Cols[3].ScalarAt(r).String(),
							"count of %d without nulls", k)
						want := gpu.IntScalar(sum, sums[k])
						got := s.Cols[2].ScalarAt(r).Int.Big()
						require.Equal(t, want.Int.Big().String(), got.Rsh(got, 40).String(), "sum of %d", k)
						found++
					}
					s.Release()
					return nil
				}))
			}
			require.Equal(t, len(counts), found)
			require.NoError(t, op.Close())
			require.NoError(t, q.Close())
			require.NoError(t, l.Close())
			require.NoError(t, host.Close())
		})
	}
}

// TestFewKeysWithNearlyAllRows decides for many groups after a sample of a stride.
func TestFewKeysWithNearlyAllRows(t *testing.T) {
	in := gpu.NewSchema(gpu.Field{Name: "k", Type: gpu.Of(gpu.Int32)}, gpu.Field{Name: "v", Type: gpu.Of(gpu.Int32)})
	s := Spec{In: in, Keys: []int{0},
		Aggregates: []Aggregate{{Kind: gpu.Sum, Input: 1, Output: gpu.SumType(in.Fields[1].Type)}}, Out: in,
		Hint: gpu.GroupHint{Groups: 1 << 20}}
	op, err := New(s)
	require.NoError(t, err)
	o := op.(*hashGroupBy)
	gpus := gpu.Properties{Capabilities: gpu.Capabilities{BlockTables: true}}
	require.Equal(t, "algorithm pgb-tr: about 1,048,576 groups in 256 partitions",
		o.decide(gpus, fewRows, o.planned()).String())
	o.skewed.Store(true)
	c := o.decide(gpus, fewRows, o.planned())
	require.Equal(t, "algorithm hgb: few have nearly all rows, of about 1,048,576 groups", c.String())
	require.True(t, hgb{o}.hint(key{}).Skewed)
	require.Equal(t, pgbTR, o.fallback(c, 1<<28, gpu.ErrManyGroups).Algorithm)
	require.False(t, o.skewed.Load())
	require.NoError(t, op.Close())
}
