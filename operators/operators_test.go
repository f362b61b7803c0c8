package operators_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/limit"
	"github.com/gstream/gstream/operators/sort"
)

var schema = gpu.NewSchema(
	gpu.Field{Name: "id", Type: gpu.Of(gpu.Int64)},
	gpu.Field{Name: "kind", Type: gpu.Of(gpu.String), Nullable: true},
	gpu.Field{Name: "price", Type: gpu.DecimalOf(15, 2), Nullable: true})

// rows draws n rows of the schema.
func rows(seed uint64, n int) [][]gpu.Scalar {
	rnd := rand.New(rand.NewPCG(seed, 0))
	out := make([][]gpu.Scalar, n)
	for i := range out {
		kind := gpu.StringScalar(fmt.Sprint("kind ", rnd.IntN(9)))
		if rnd.IntN(10) == 0 {
			kind = gpu.Null(kind.Type)
		}
		price := gpu.IntScalar(gpu.DecimalOf(15, 2), rnd.Int64N(500))
		if rnd.IntN(7) == 0 {
			price = gpu.Null(price.Type)
		}
		out[i] = []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), rnd.Int64N(400)), kind, price}
	}
	return out
}

// cut makes strides of at most size rows.
func cut(table [][]gpu.Scalar, size int) []*gpu.Stride {
	var out []*gpu.Stride
	for part := range slices.Chunk(table, size) {
		s := &gpu.Stride{Schema: schema, Rows: len(part)}
		for c, f := range schema.Fields {
			values := make([]gpu.Scalar, len(part))
			for r := range part {
				values[r] = part[r][c]
			}
			s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, values))
		}
		out = append(out, s)
	}
	return out
}

// run runs an operator and returns its rows as text, in order.
func run(t *testing.T, memory int64, op operators.Operator, strideRows int, build, input []*gpu.Stride) ([]string, error) {
	t.Helper()
	dev, err := host.Open(host.Options{Threads: 2, Memory: memory})
	require.NoError(t, err)
	q, err := dev.NewQueue("test")
	require.NoError(t, err)
	l := dev.Budget().Lease("test")
	var out []string
	emit := func(s *gpu.Stride) error {
		require.NoError(t, s.Check())
		require.Positive(t, s.Rows, "no empty strides")
		for r := range s.Rows {
			var row []string
			for _, c := range s.Cols {
				row = append(row, c.ScalarAt(r).String())
			}
			out = append(out, strings.Join(row, "|"))
		}
		s.Release()
		return nil
	}
	err = func() error {
		ctx := context.Background()
		if err := op.Open(operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: strideRows}); err != nil {
			return err
		}
		if b, ok := op.(operators.Builder); ok {
			for _, s := range build {
				if err := b.PushBuild(ctx, s); err != nil {
					return err
				}
			}
			if err := b.FinishBuild(ctx); err != nil {
				return err
			}
		}
		for _, s := range input {
			if stop, ok := op.(operators.Stopper); ok && stop.Done() {
				s.Release()
				continue
			}
			if err := op.Push(ctx, s, emit); err != nil {
				return err
			}
		}
		return op.Finish(ctx, emit)
	}()
	require.NoError(t, op.Close())
	require.NoError(t, l.Close(), "the operator releases everything")
	require.Empty(t, dev.Budget().Leaks())
	require.NoError(t, dev.Close())
	return out, err
}

func newGroupBy(t *testing.T, keys ...int) operators.Operator {
	sum := gpu.DecimalOf(38, 2)
	spec := groupby.Spec{In: schema, Keys: keys, Aggregates: []groupby.Aggregate{
		{Kind: gpu.CountAll, Input: -1, Output: gpu.Of(gpu.Int64)}, {Kind: gpu.Sum, Input: 2, Output: sum}, {Kind: gpu.Max, Input: 1, Output: gpu.Of(gpu.String)}, {Kind: gpu.Avg, Input: 2, Output: gpu.Of(gpu.Float64)}, {Kind: gpu.Count, Input: 2, Output: gpu.Of(gpu.Int64)}}}
	fields := operators.PickFields(schema, keys).Fields
	spec.Out = gpu.NewSchema(append(fields, gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "sum", Type: sum}, gpu.Field{Name: "max", Type: gpu.Of(gpu.String)}, gpu.Field{Name: "avg", Type: gpu.Of(gpu.Float64)}, gpu.Field{Name: "count", Type: gpu.Of(gpu.Int64)})...)
	op, err := groupby.New(spec)
	require.NoError(t, err)
	return op
}

func newJoin(t *testing.T, kind gpu.JoinKind, keys ...int) operators.Operator {
	spec := join.Spec{Kind: kind, Probe: schema, Build: schema, ProbeKeys: keys, BuildKeys: keys, NullSafe: make([]bool, len(keys)), ProbeOut: []int{0, 2}}
	if kind == gpu.Inner || kind == gpu.Left {
		spec.BuildOut = []int{1, 2}
	}
	fields := operators.PickFields(schema, spec.ProbeOut).Fields
	spec.Out = gpu.NewSchema(append(fields, operators.PickFields(schema, spec.BuildOut).Fields...)...)
	op, err := join.New(spec)
	require.NoError(t, err)
	return op
}

func newSort(t *testing.T, offset, limit int64, keys ...sort.Key) operators.Operator {
	op, err := sort.New(sort.Spec{In: schema, Keys: keys, Offset: offset, Limit: limit})
	require.NoError(t, err)
	return op
}

// operatorsUnderTest are the operators; ordered says that the order of rows is
// part of the result.
var operatorsUnderTest = []struct {
	name    string
	ordered bool
	make    func(t *testing.T) operators.Operator
}{
	{"group-by", false, func(t *testing.T) operators.Operator { return newGroupBy(t, 1) }},
	{"group-by of two keys", false, func(t *testing.T) operators.Operator { return newGroupBy(t, 1, 0) }},
	{"group-by without keys", false, func(t *testing.T) operators.Operator { return newGroupBy(t) }},
	{"inner join", true, func(t *testing.T) operators.Operator { return newJoin(t, gpu.Inner, 0) }},
	{"inner join on two keys", true, func(t *testing.T) operators.Operator { return newJoin(t, gpu.Inner, 1, 2) }},
	{"left join", true, func(t *testing.T) operators.Operator { return newJoin(t, gpu.Left, 0, 1) }},
	{"semi join", true, func(t *testing.T) operators.Operator { return newJoin(t, gpu.Semi, 0) }},
	{"anti join", true, func(t *testing.T) operators.Operator { return newJoin(t, gpu.Anti, 2) }},
	{"sort", true, func(t *testing.T) operators.Operator {
		return newSort(t, 0, -1, sort.Key{Column: 1}, sort.Key{Column: 2, Descending: true, NullsFirst: true})
	}},
	{"top-k", true, func(t *testing.T) operators.Operator { return newSort(t, 3, 20, sort.Key{Column: 0}) }},
	{"limit", true, func(*testing.T) operators.Operator { return limit.New(schema, 100, 333) }},
}

func TestTheStrideSizeDoesNotChangeTheRows(t *testing.T) {
	build, input := rows(1, 300), rows(2, 1500)
	for _, o := range operatorsUnderTest {
		t.Run(o.name, func(t *testing.T) {
			var want []string
			for i, size := range []int{5000, 1, 64, 999} {
				got, err := run(t, 0, o.make(t), size, cut(build, size), cut(input, size))
				require.NoError(t, err)
				if !o.ordered {
					slices.Sort(got)
				}
				if i == 0 {
					require.NotEmpty(t, got)
					want = got
				}
				require.Equal(t, want, got, "strides of %d rows", size)
				few, err := run(t, 0, o.make(t), size, cut(build, size), cut(input, size/9+1))
				require.NoError(t, err)
				if !o.ordered {
					slices.Sort(few)
				}
				require.Equal(t, want, few, "strides of a ninth of %d rows", size)
			}
		})
	}
}

func TestEveryBudgetGivesTheRowsOrARefusal(t *testing.T) {
	build, input := rows(1, 300), rows(2, 600)
	for _, o := range operatorsUnderTest {
		t.Run(o.name, func(t *testing.T) {
			want, err := run(t, 0, o.make(t), 128, cut(build, 128), cut(input, 128))
			require.NoError(t, err)
			for budget := int64(64); ; budget += budget / 4 {
				require.Less(t, budget, int64(1<<28), "never succeeds")
				got, err := run(t, budget, o.make(t), 128, cut(build, 128), cut(input, 128))
				if err == nil {
					require.Equal(t, want, got)
					break
				}
				require.ErrorIs(t, err, gpu.ErrBudget)
				require.ErrorContains(t, err, "--host-memory")
			}
		})
	}
}

func TestAggregatesOverNoRowsAreOneRowOnlyWithoutKeys(t *testing.T) {
	got, err := run(t, 0, newGroupBy(t), 100, nil, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"0|NULL|NULL|NULL|0"}, got)
	got, err = run(t, 0, newGroupBy(t, 0), 100, nil, nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestAnAverageLeavesNullsOutOfItsCount(t *testing.T) {
	null, kind := gpu.Null(gpu.DecimalOf(15, 2)), gpu.StringScalar("k")
	price := func(v int64) gpu.Scalar { return gpu.IntScalar(null.Type, v) }
	id := func(v int64) gpu.Scalar { return gpu.IntScalar(gpu.Of(gpu.Int64), v) }
	got, err := run(t, 0, newGroupBy(t, 0), 2, nil, cut([][]gpu.Scalar{
		{id(1), kind, price(100)}, {id(1), kind, null}, {id(1), kind, price(250)}, {id(2), kind, null}}, 3))
	require.NoError(t, err)
	require.Equal(t, []string{"1|3|3.50|k|1.75|2", "2|1|NULL|k|NULL|0"}, got)
}

func TestJoinsWithAnEmptyBuildSide(t *testing.T) {
	input := rows(3, 50)
	for kind, want := range map[gpu.JoinKind]int{gpu.Inner: 0, gpu.Left: 50, gpu.Semi: 0, gpu.Anti: 50} {
		got, err := run(t, 0, newJoin(t, kind, 0), 16, nil, cut(input, 16))
		require.NoError(t, err)
		require.Len(t, got, want, "%v join", kind)
	}
}

func TestATopKIsTheHeadOfTheSort(t *testing.T) {
	input := rows(4, 3000)
	keys := []sort.Key{{Column: 2, Descending: true}, {Column: 1, NullsFirst: true}}
	all, err := run(t, 0, newSort(t, 0, -1, keys...), 100, nil, cut(input, 100))
	require.NoError(t, err)
	for _, c := range [][2]int64{{0, 0}, {0, 1}, {0, 99}, {7, 250}, {2990, 100}, {5000, 10}, {10, 2 << 20}} {
		got, err := run(t, 0, newSort(t, c[0], c[1], keys...), 100, nil, cut(input, 100))
		require.NoError(t, err)
		want := all[min(c[0], 3000):min(c[0]+c[1], 3000)]
		require.Equal(t, len(want), len(got))
		if len(want) > 0 {
			require.Equal(t, want, got, "offset %d, limit %d", c[0], c[1])
		}
	}
}

func TestAJoinOfMismatchedKeysIsRefused(t *testing.T) {
	_, err := join.New(join.Spec{Probe: schema, Build: schema, ProbeKeys: []int{0}, BuildKeys: []int{1}, NullSafe: []bool{false}, Out: gpu.NewSchema()})
	require.EqualError(t, err, `join key "id" is BIGINT, but "kind" is VARCHAR`)
}

func TestSumsThatOverflowNameTheColumn(t *testing.T) {
	op, err := groupby.New(groupby.Spec{In: gpu.NewSchema(gpu.Field{Name: "v", Type: gpu.DecimalOf(38, 0)}), Aggregates: []groupby.Aggregate{{Kind: gpu.Sum, Output: gpu.DecimalOf(38, 0)}},
		Out: gpu.NewSchema(gpu.Field{Name: "total", Type: gpu.DecimalOf(38, 0)})})
	require.NoError(t, err)
	v := gpu.Scalar{Type: gpu.DecimalOf(38, 0), Valid: true, Int: gpu.Int128{Lo: math.MaxUint64, Hi: math.MaxInt64}}
	_, err = run(t, 0, op, 10, nil, []*gpu.Stride{{Schema: gpu.NewSchema(gpu.Field{Name: "v", Type: v.Type}), Cols: []gpu.Column{gpu.ColumnOf(v.Type, []gpu.Scalar{v, v})}, Rows: 2}})
	require.EqualError(t, err, "total: sum overflows 128 bits")
}
