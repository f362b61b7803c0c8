package operators_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/expand"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/limit"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/spill"
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

// cut splits rows into strides of at most size rows.
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

// run runs an operator in lanes and returns its rows as text, in order.
func run(t *testing.T, memory int64, op operators.Operator, strideRows int, build, input []*gpu.Stride,
	lanes int) ([]string, error) {
	t.Helper()
	rows, _, err := runWith(t, memory, nil, spill.Options{Dir: spill.None}, op, strideRows, build, input, lanes)
	return rows, err
}

// runWith also says which reservations fail and where rows go that do not fit memory, and
// returns what went there.
func runWith(t *testing.T, memory int64, fault func(bool) error, o spill.Options, op operators.Operator, strideRows int,
	build, input []*gpu.Stride, lanes int) ([]string, spill.Stats, error) {
	t.Helper()
	dev, err := host.Open(host.Options{Threads: lanes, Memory: memory})
	require.NoError(t, err)
	dev.Budget().SetFault(fault)
	l := dev.Budget().Lease("test")
	store := spill.NewStore(dev, o)
	ctx := context.Background()
	task := func() operators.Task {
		q, err := dev.NewLaneQueue("test")
		assert.NoError(t, err)
		return operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: strideRows, Lanes: lanes, Spill: store}
	}
	// out has the rows by the number of their morsel.
	out, mu := map[int][]string{}, sync.Mutex{}
	emit := func(number int) operators.Emit {
		return func(s *gpu.Stride) error {
			defer s.Release()
			assert.NoError(t, s.Check())
			assert.Positive(t, s.Rows, "no empty strides")
			mu.Lock()
			defer mu.Unlock()
			for r := range s.Rows {
				var row []string
				for _, c := range s.Cols {
					row = append(row, c.ScalarAt(r).String())
				}
				out[number] = append(out[number], strings.Join(row, "|"))
			}
			return nil
		}
	}
	// Lane i works on morsels i, i + lanes …, concurrently with the other lanes.
	inLanes := func(morsels int, open func(operators.Task) (work func(number int) error, end, close func() error,
		err error)) error {
		var wg errgroup.Group
		for i := range lanes {
			wg.Go(func() error {
				work, end, closing, err := open(task())
				if err != nil {
					return err
				}
				defer func() { assert.NoError(t, closing()) }()
				for n := i; n < morsels; n += lanes {
					if err := work(n); err != nil {
						return err
					}
				}
				return end()
			})
		}
		return wg.Wait()
	}
	collect := func(b operators.Blocking, strides []*gpu.Stride) error {
		err := inLanes(len(strides), func(task operators.Task) (func(int) error, func() error, func() error, error) {
			local, err := b.NewLocal(task)
			if err != nil {
				return nil, nil, nil, err
			}
			return func(n int) error { return local.Push(ctx, n, strides[n]) },
				func() error { return local.Combine(ctx) }, local.Close, nil
		})
		if err != nil {
			return err
		}
		return b.Finalize(ctx, task())
	}
	nothing := func() error { return nil }
	err = func() error {
		s, ok := op.(operators.Streaming)
		if !ok {
			if err := collect(op.(operators.Blocking), input); err != nil {
				return err
			}
			src := op.(operators.Source)
			return inLanes(src.Parts(), func(task operators.Task) (func(int) error, func() error, func() error, error) {
				return func(n int) error { return src.Emit(ctx, task, n, emit(n)) }, nothing, nothing, nil
			})
		}
		if b, ok := op.(operators.Blocking); ok {
			if err := collect(b, build); err != nil {
				return err
			}
		}
		if stop, ok := op.(operators.Stopper); ok {
			lane, err := s.NewLane(task())
			require.NoError(t, err)
			for n, s := range input {
				if stop.Done() {
					s.Release()
				} else if err := lane.Push(ctx, s, emit(n)); err != nil {
					return err
				}
			}
			if err := lane.Flush(ctx, emit(len(input))); err != nil {
				return err
			}
			return lane.Close()
		}
		err := inLanes(len(input), func(task operators.Task) (func(int) error, func() error, func() error, error) {
			lane, err := s.NewLane(task)
			if err != nil {
				return nil, nil, nil, err
			}
			return func(n int) error { return lane.Push(ctx, input[n], emit(n)) },
				func() error { return lane.Flush(ctx, emit(len(input))) }, lane.Close, nil
		})
		d, ok := op.(operators.Deferring)
		if err != nil || !ok || d.Deferred() == nil {
			return err
		}
		rest := d.Deferred()
		return inLanes(rest.Parts(), func(task operators.Task) (func(int) error, func() error, func() error, error) {
			return func(n int) error { return rest.Emit(ctx, task, n, emit(len(input)+1+n)) }, nothing, nothing, nil
		})
	}()
	require.NoError(t, op.Close())
	require.NoError(t, l.Close(), "the operator releases everything")
	require.Empty(t, dev.Budget().Leaks())
	require.NoError(t, store.Close())
	require.NoError(t, dev.Close())
	var all []string
	for _, n := range slices.Sorted(maps.Keys(out)) {
		all = append(all, out[n]...)
	}
	return all, store.Stats(l), err
}

func newGroupBy(t *testing.T, keys ...int) operators.Operator {
	sum := gpu.DecimalOf(38, 2)
	spec := groupby.Spec{In: schema, Keys: keys, Aggregates: []groupby.Aggregate{
		{Kind: gpu.CountAll, Input: -1, Output: gpu.Of(gpu.Int64)}, {Kind: gpu.Sum, Input: 2, Output: sum},
		{Kind: gpu.Max, Input: 1, Output: gpu.Of(gpu.String)}, {Kind: gpu.Avg, Input: 2, Output: gpu.Of(gpu.Float64)},
		{Kind: gpu.Count, Input: 2, Output: gpu.Of(gpu.Int64)}}}
	fields := operators.PickFields(schema, keys).Fields
	spec.Out = gpu.NewSchema(append(fields, gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "sum", Type: sum}, gpu.Field{Name: "max", Type: gpu.Of(gpu.String)},
		gpu.Field{Name: "avg", Type: gpu.Of(gpu.Float64)}, gpu.Field{Name: "count", Type: gpu.Of(gpu.Int64)})...)
	op, err := groupby.New(spec)
	require.NoError(t, err)
	return op
}

func newJoin(t *testing.T, kind join.Kind, keys ...int) operators.Operator {
	return newJoinIf(t, kind, false, keys...)
}

// newJoinIf also has a condition, if it is asked for: the price on the left is less.
func newJoinIf(t *testing.T, kind join.Kind, condition bool, keys ...int) operators.Operator {
	return newJoinBy(t, "", kind, condition, keys...)
}

// newJoinBy also forces an algorithm. Without keys the join is by a range, with the condition.
func newJoinBy(t *testing.T, algorithm string, kind join.Kind, condition bool, keys ...int) operators.Operator {
	spec := join.Spec{Algorithm: algorithm, Kind: kind, Probe: schema, Build: schema, ProbeKeys: keys, BuildKeys: keys,
		NullSafe: make([]bool, len(keys)), ProbeOut: []int{0, 2}}
	if kind.OfBuild() {
		spec.ProbeOut = nil
	}
	if kind.Pairs() || kind.OfBuild() {
		spec.BuildOut = []int{1, 2}
	}
	fields := operators.PickFields(schema, spec.ProbeOut).Fields
	fields = append(fields, operators.PickFields(schema, spec.BuildOut).Fields...)
	if kind == join.Mark {
		fields = append(fields, gpu.Field{Name: "match", Type: gpu.Of(gpu.Bool)})
	}
	if kind.KeepsBuild() {
		fields[0].Nullable = true
	}
	spec.Out = gpu.NewSchema(fields...)
	if len(keys) == 0 {
		spec.Range = &join.Range{Build: 0, Lower: 0, Upper: 0}
		condition = true
	}
	if condition {
		price := schema.Fields[2].Type
		spec.Residual = &join.Residual{Probe: []int{2}, Build: []int{2},
			Program: &gpu.Program{Inputs: []gpu.Type{price, price}, Outputs: []int{2},
				Code: []gpu.Instr{{Op: gpu.OpLt, Type: gpu.Of(gpu.Bool), Args: []int{0, 1}, Mask: -1}}}}
	}
	op, err := join.New(spec)
	require.NoError(t, err)
	return op
}

func newSort(t *testing.T, offset, limit int64, keys ...sort.Key) operators.Operator {
	op, err := sort.New(sort.Spec{In: schema, Keys: keys, Offset: offset, Limit: limit})
	require.NoError(t, err)
	return op
}

// newExpand has each row once without its kind, and once without its price.
func newExpand(t *testing.T) operators.Operator {
	var variants []expand.Variant
	for null := 1; null <= 2; null++ {
		var exprs []*expr.Expr
		for i, f := range schema.Fields {
			if i == null {
				exprs = append(exprs, expr.Null(f))
			} else {
				exprs = append(exprs, expr.Column(&expr.Scope{Schema: schema}, i))
			}
		}
		p, inputs, err := expr.Compile(schema, exprs...)
		require.NoError(t, err)
		variants = append(variants, expand.Variant{Program: p, Inputs: inputs})
	}
	return expand.New(schema, variants)
}

// newWindow numbers the rows of a partition, and adds up to 3 prices.
func newWindow(t *testing.T) operators.Operator {
	sum := gpu.DecimalOf(38, 2)
	frame := window.Frame{Unit: window.Rows, From: window.Bound{Kind: window.Preceding, Offset: 2},
		To: window.Bound{Kind: window.CurrentRow}}
	op, err := window.New(window.Spec{In: schema, Partition: []int{1}, Order: []sort.Key{{Column: 0}},
		Keep: []int{2, 1}, Functions: []window.Function{
			{Kind: window.RowNumber, Value: -1, Offset: -1, Default: -1, Output: gpu.Of(gpu.Int64)},
			{Kind: window.Aggregate, Aggregate: gpu.Sum, Value: 2, Offset: -1, Default: -1, Frame: frame, Output: sum}},
		Out: gpu.NewSchema(append(operators.PickFields(schema, []int{2, 1}).Fields,
			gpu.Field{Name: "number", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "sum", Type: sum, Nullable: true})...)})
	require.NoError(t, err)
	return op
}

// newWindowOverAll adds up prices and selects kinds in one sequence of all rows, which an order may
// sort: of rows up to a row, near it, up to one near it, and without an order from it on and of all rows.
func newWindowOverAll(t *testing.T, order ...sort.Key) operators.Operator {
	sum := gpu.DecimalOf(38, 2)
	first, here, last := window.Bound{Kind: window.UnboundedPreceding}, window.Bound{Kind: window.CurrentRow},
		window.Bound{Kind: window.UnboundedFollowing}
	near := window.Frame{Unit: window.Rows, From: window.Bound{Kind: window.Preceding, Offset: 300},
		To: window.Bound{Kind: window.Following, Offset: 2}}
	total := window.Frame{Unit: window.Rows, From: first, To: last}
	far := window.Frame{Unit: window.Rows, From: here, To: last}
	if len(order) > 0 {
		total = window.Frame{Unit: window.Range, From: first, To: here}
		far = window.Frame{Unit: window.Rows, From: first, To: window.Bound{Kind: window.Preceding, Offset: 3}}
	}
	op, err := window.New(window.Spec{In: schema, Order: order, Keep: []int{2, 0}, Functions: []window.Function{
		{Kind: window.RowNumber, Value: -1, Offset: -1, Default: -1, Output: gpu.Of(gpu.Int64)},
		{Kind: window.Aggregate, Aggregate: gpu.Max, Value: 1, Offset: -1, Default: -1,
			Frame: window.Frame{Unit: window.Rows, From: first, To: here}, Output: schema.Fields[1].Type},
		{Kind: window.Aggregate, Aggregate: gpu.Sum, Value: 2, Offset: -1, Default: -1, Frame: near, Output: sum},
		{Kind: window.Lead, Value: 1, Offset: -1, Default: -1, Output: schema.Fields[1].Type},
		{Kind: window.Lag, Value: 1, Offset: -1, Default: -1, IgnoreNulls: true, Output: schema.Fields[1].Type},
		{Kind: window.ArgMax, Value: 1, Offset: 2, Default: -1, Frame: far, Output: schema.Fields[1].Type},
		{Kind: window.Aggregate, Aggregate: gpu.Avg, Value: 2, Offset: -1, Default: -1, Frame: total,
			Output: gpu.Of(gpu.Float64)}},
		Out: gpu.NewSchema(append(operators.PickFields(schema, []int{2, 0}).Fields,
			gpu.Field{Name: "number", Type: gpu.Of(gpu.Int64)},
			gpu.Field{Name: "most", Type: schema.Fields[1].Type, Nullable: true},
			gpu.Field{Name: "sum", Type: sum, Nullable: true},
			gpu.Field{Name: "next", Type: schema.Fields[1].Type, Nullable: true},
			gpu.Field{Name: "known", Type: schema.Fields[1].Type, Nullable: true},
			gpu.Field{Name: "best", Type: schema.Fields[1].Type, Nullable: true},
			gpu.Field{Name: "mean", Type: gpu.Of(gpu.Float64), Nullable: true})...)})
	require.NoError(t, err)
	return op
}

// newSortedGroups has the price of the first row of a group, and the last kind by price.
func newSortedGroups(t *testing.T) operators.Operator {
	fields := operators.PickFields(schema, []int{0, 2, 1}).Fields
	for i := range fields {
		fields[i].Nullable = true
	}
	op, err := window.NewGroups(window.GroupSpec{In: schema, Keys: []int{0}, Functions: []window.GroupFunction{
		{Kind: window.FirstValue, Value: 2, Key: -1, Filter: -1, Output: schema.Fields[2].Type},
		{Kind: window.LastValue, Value: 1, Key: -1, Filter: -1, Order: []sort.Key{{Column: 2}},
			Output: gpu.Of(gpu.String)}}, Out: gpu.NewSchema(fields...)})
	require.NoError(t, err)
	return op
}

type operatorUnderTest struct {
	name    string
	ordered bool
	spills  bool
	make    func(t *testing.T) operators.Operator
}

// reorders reports whether rows that have spilled come in another order, as those of a join do.
func (o operatorUnderTest) reorders() bool { return !o.ordered || strings.Contains(o.name, "join") }

const windowOverAll = "window over all rows"

// operatorsUnderTest are the operators. ordered means that the order of the rows
// matters, spills that the operator holds these rows where they can spill.
var operatorsUnderTest = []operatorUnderTest{
	{"group-by", false, false, func(t *testing.T) operators.Operator { return newGroupBy(t, 1) }},
	{"group-by of two keys", false, true, func(t *testing.T) operators.Operator { return newGroupBy(t, 1, 0) }},
	{"group-by without keys", false, false, func(t *testing.T) operators.Operator { return newGroupBy(t) }},
	{"inner join", true, true, func(t *testing.T) operators.Operator { return newJoin(t, join.Inner, 0) }},
	{"inner join on two keys", true, true,
		func(t *testing.T) operators.Operator { return newJoin(t, join.Inner, 1, 2) }},
	{"left join", true, true, func(t *testing.T) operators.Operator { return newJoin(t, join.Left, 0, 1) }},
	{"semi join", true, true, func(t *testing.T) operators.Operator { return newJoin(t, join.Semi, 0) }},
	{"anti join", true, true, func(t *testing.T) operators.Operator { return newJoin(t, join.Anti, 2) }},
	{"right join", true, true, func(t *testing.T) operators.Operator { return newJoin(t, join.Right, 0) }},
	{"full join with a condition", true, true,
		func(t *testing.T) operators.Operator { return newJoinIf(t, join.Full, true, 0) }},
	{"inner join with a condition", true, true,
		func(t *testing.T) operators.Operator { return newJoinIf(t, join.Inner, true, 0) }},
	{"anti join with a condition", true, true,
		func(t *testing.T) operators.Operator { return newJoinIf(t, join.Anti, true, 1, 0) }},
	{"inner join by a range", true, true, func(t *testing.T) operators.Operator { return newJoin(t, join.Inner) }},
	{"full join by a range", true, true, func(t *testing.T) operators.Operator { return newJoin(t, join.Full) }},
	{"mark join by a range", true, true, func(t *testing.T) operators.Operator { return newJoin(t, join.Mark) }},
	{"mark join", true, true, func(t *testing.T) operators.Operator { return newJoin(t, join.Mark, 0) }},
	{"sort", true, true, func(t *testing.T) operators.Operator {
		return newSort(t, 0, -1, sort.Key{Column: 1}, sort.Key{Column: 2, Descending: true, NullsFirst: true})
	}},
	{"sort of which rows are skipped", true, true, func(t *testing.T) operators.Operator {
		return newSort(t, 777, 1<<20, sort.Key{Column: 0, Descending: true})
	}},
	{"window", false, true, newWindow},
	{windowOverAll, true, true, func(t *testing.T) operators.Operator { return newWindowOverAll(t) }},
	{"window over all rows in an order", true, true, func(t *testing.T) operators.Operator {
		return newWindowOverAll(t, sort.Key{Column: 1}, sort.Key{Column: 2, Descending: true})
	}},
	{"sorted groups", false, true, newSortedGroups},
	{"top-k", true, false, func(t *testing.T) operators.Operator { return newSort(t, 3, 20, sort.Key{Column: 0}) }},
	{"expand", false, false, func(t *testing.T) operators.Operator { return newExpand(t) }},
	{"limit", true, false, func(*testing.T) operators.Operator { return limit.New(schema, 100, 333) }},
}

func init() {
	for _, algorithm := range join.AlgorithmsOn(host.Unopened()) {
		add := func(kind join.Kind, condition bool, keys ...int) {
			operatorsUnderTest = append(operatorsUnderTest,
				operatorUnderTest{fmt.Sprintf("%v join by %s, condition %v, keys %v", kind, algorithm, condition, keys),
					false, true,
					func(t *testing.T) operators.Operator { return newJoinBy(t, algorithm, kind, condition, keys...) }})
		}
		add(join.Inner, false, 0)
		add(join.Full, true, 0)
		add(join.Left, false, 1, 0)
		add(join.Semi, false, 0)
		add(join.Mark, true, 1, 2)
	}
}

func TestStridesAndLanesDoNotChangeTheRows(t *testing.T) {
	build, input := rows(1, 300), rows(2, 1500)
	thin, cases := gputest.ThinOr(t, 25), 0
	for _, o := range operatorsUnderTest {
		t.Run(o.name, func(t *testing.T) {
			var want []string
			for _, lanes := range []int{1, 2, 7} {
				for _, size := range []int{5000, 1, 64, 999} {
					for _, pushed := range []int{size, size/9 + 1} {
						if cases++; !gputest.Takes(thin, cases) {
							continue
						}
						got, err := run(t, 0, o.make(t), size, cut(build, size), cut(input, pushed), lanes)
						require.NoError(t, err)
						if !o.ordered {
							slices.Sort(got)
						}
						if want == nil {
							require.NotEmpty(t, got)
							want = got
						}
						require.Equal(t, want, got, "%d lanes, strides of %d of %d rows", lanes, pushed, size)
					}
				}
			}
		})
	}
}

func TestRowsThatSpillComeBack(t *testing.T) {
	build, input := rows(1, 3000), rows(2, 9000)
	thin, cases := gputest.ThinOr(t, 33), 0
	for _, o := range operatorsUnderTest {
		if !o.spills {
			continue
		}
		passes := int64(1)
		if o.name == windowOverAll { // the first pass adds up all rows
			passes = 2
		}
		t.Run(o.name, func(t *testing.T) {
			for _, lanes := range []int{1, 3} {
				var want []string
				for _, compress := range []bool{false, true} {
					if cases++; !gputest.Takes(thin, cases) {
						continue
					}
					var err error
					if want == nil {
						want, err = run(t, 0, o.make(t), 512, cut(build, 512), cut(input, 512), lanes)
						require.NoError(t, err)
					}
					got, stats, err := runWith(t, 0, nil,
						spill.Options{Dir: t.TempDir(), Always: true, Compress: compress}, o.make(t), 512,
						cut(build, 512), cut(input, 512), lanes)
					require.NoError(t, err)
					if o.reorders() {
						slices.Sort(got)
						slices.Sort(want)
					}
					require.Equal(t, want, got, "%d lanes", lanes)
					require.Positive(t, stats.Disk.In)
					require.Equal(t, passes*stats.Disk.In, stats.Disk.Out)
					require.Zero(t, stats.Disk.Now)
				}
			}
		})
	}
}

// TestABuildSideOfOneKeyThatDoesNotFit joins by a key that nearly all rows have.
func TestABuildSideOfOneKeyThatDoesNotFit(t *testing.T) {
	oneKey := func(seed uint64, n int) [][]gpu.Scalar {
		table := rows(seed, n)
		for i := range table {
			if i%50 > 0 {
				table[i][0] = gpu.IntScalar(gpu.Of(gpu.Int64), 7)
			}
		}
		return table
	}
	const stride = 2000
	build, input := oneKey(1, 60_000), oneKey(2, 12)
	thin, cases := gputest.ThinOr(t, 7), 0
	for _, kind := range []join.Kind{join.Inner, join.Left, join.Right, join.Full, join.Semi, join.Anti, join.Mark,
		join.RightSemi, join.RightAnti} {
		for keys, text := range map[string]string{"": "many rows of one key", "a condition": "many rows of one key",
			"a range": "; joined block by block"} {
			if cases++; !gputest.Takes(thin, cases) {
				continue
			}
			t.Run(fmt.Sprint(kind, keys), func(t *testing.T) {
				newJoin := func() operators.Operator {
					if keys == "a range" {
						return newJoin(t, kind)
					}
					return newJoinIf(t, kind, keys != "", 0)
				}
				want, err := run(t, 0, newJoin(), stride, cut(build, stride), cut(input, 5), 2)
				require.NoError(t, err)
				op := newJoin()
				got, stats, err := runWith(t, 1<<20, nil, spill.Options{Dir: t.TempDir(), Always: true}, op, stride,
					cut(build, stride), cut(input, 5), 2)
				require.NoError(t, err)
				require.Contains(t, op.(operators.Choosing).Choice(), text)
				slices.Sort(want)
				slices.Sort(got)
				require.Equal(t, want, got)
				require.Positive(t, stats.Disk.In)
			})
		}
	}
}

// TestOutOfMemoryWhileRowsSpill denies the n-th reservation of memory. The run gives the rows, or
// is denied it and releases everything.
func TestOutOfMemoryWhileRowsSpill(t *testing.T) {
	build, input := rows(1, 500), rows(2, 900)
	for _, o := range operatorsUnderTest {
		if !o.spills || strings.Contains(o.name, " by ") && !strings.Contains(o.name, "full join by npj") {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			want, err := run(t, 0, o.make(t), 256, cut(build, 256), cut(input, 256), 1)
			require.NoError(t, err)
			slices.Sort(want)
			denied := 0
			for n := int64(1); ; n += 1 + n/gputest.StepOr(6, 2) {
				require.Less(t, n, int64(1<<20), "never succeeds")
				var calls atomic.Int64
				fault := func(bool) error {
					if calls.Add(1) == n {
						return errors.New("no memory")
					}
					return nil
				}
				got, _, err := runWith(t, 0, fault, spill.Options{Dir: t.TempDir(), Always: true}, o.make(t), 256,
					cut(build, 256), cut(input, 256), 2)
				if err != nil {
					require.True(t, gpu.IsOutOfMemory(err), "%v", err)
					denied++
				} else {
					slices.Sort(got)
					require.Equal(t, want, got, "reservation %d", n)
				}
				if calls.Load() < n {
					break
				}
			}
			require.Positive(t, denied)
		})
	}
}

func TestEveryBudgetGivesTheRowsOrARefusal(t *testing.T) {
	build, input := rows(1, 300), rows(2, 600)
	for _, o := range operatorsUnderTest {
		t.Run(o.name, func(t *testing.T) {
			for _, lanes := range []int{1, 3} {
				want, err := run(t, 0, o.make(t), 128, cut(build, 128), cut(input, 128), lanes)
				require.NoError(t, err)
				for budget := int64(64); ; budget += budget / gputest.StepOr(2, 1) {
					require.Less(t, budget, int64(1<<28), "never succeeds")
					got, err := run(t, budget, o.make(t), 128, cut(build, 128), cut(input, 128), lanes)
					if err == nil {
						if o.reorders() {
							slices.Sort(want)
							slices.Sort(got)
						}
						require.Equal(t, want, got)
						break
					}
					require.ErrorIs(t, err, gpu.ErrBudget)
					require.ErrorContains(t, err, "raise it with HostMemory")
				}
			}
		})
	}
}

func TestAggregatesOverNoRowsAreOneRowOnlyWithoutKeys(t *testing.T) {
	got, err := run(t, 0, newGroupBy(t), 100, nil, nil, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"0|NULL|NULL|NULL|0"}, got)
	got, err = run(t, 0, newGroupBy(t, 0), 100, nil, nil, 2)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestAnAverageLeavesNullsOutOfItsCount(t *testing.T) {
	null, kind := gpu.Null(gpu.DecimalOf(15, 2)), gpu.StringScalar("k")
	price := func(v int64) gpu.Scalar { return gpu.IntScalar(null.Type, v) }
	id := func(v int64) gpu.Scalar { return gpu.IntScalar(gpu.Of(gpu.Int64), v) }
	got, err := run(t, 0, newGroupBy(t, 0), 2, nil, cut([][]gpu.Scalar{
		{id(1), kind, price(100)}, {id(1), kind, null}, {id(1), kind, price(250)}, {id(2), kind, null}}, 3), 2)
	require.NoError(t, err)
	slices.Sort(got)
	require.Equal(t, []string{"1|3|3.50|k|1.75|2", "2|1|NULL|k|NULL|0"}, got)
}

func TestAnExpansionHasEachRowOnceForEachVariant(t *testing.T) {
	input := rows(3, 3)
	got, err := run(t, 0, newExpand(t), 10, nil, cut(input, 2), 1)
	require.NoError(t, err)
	var want []string
	for _, part := range [][][]gpu.Scalar{input[:2], input[2:]} {
		for _, r := range part {
			want = append(want, fmt.Sprintf("%v|NULL|%v", r[0], r[2]))
		}
		for _, r := range part {
			want = append(want, fmt.Sprintf("%v|%v|NULL", r[0], r[1]))
		}
	}
	require.Equal(t, want, got)
}

func TestJoinsWithAnEmptyBuildSide(t *testing.T) {
	input := rows(3, 50)
	for kind, want := range map[join.Kind]int{join.Inner: 0, join.Left: 50, join.Right: 0, join.Full: 50, join.Semi: 0,
		join.Anti: 50, join.Mark: 50, join.RightSemi: 0, join.RightAnti: 0} {
		got, err := run(t, 0, newJoin(t, kind, 0), 16, nil, cut(input, 16), 2)
		require.NoError(t, err)
		require.Len(t, got, want, "%v join", kind)
	}
}

func TestATopKIsTheHeadOfTheSort(t *testing.T) {
	input := rows(4, 3000)
	keys := []sort.Key{{Column: 2, Descending: true}, {Column: 1, NullsFirst: true}}
	all, err := run(t, 0, newSort(t, 0, -1, keys...), 100, nil, cut(input, 100), 2)
	require.NoError(t, err)
	for _, c := range [][2]int64{{0, 0}, {0, 1}, {0, 99}, {7, 250}, {2990, 100}, {5000, 10}, {10, 2 << 20}} {
		got, err := run(t, 0, newSort(t, c[0], c[1], keys...), 100, nil, cut(input, 100), 2)
		require.NoError(t, err)
		want := all[min(c[0], 3000):min(c[0]+c[1], 3000)]
		require.Equal(t, len(want), len(got))
		if len(want) > 0 {
			require.Equal(t, want, got, "offset %d, limit %d", c[0], c[1])
		}
	}
}

func TestAJoinOfMismatchedKeysIsRefused(t *testing.T) {
	_, err := join.New(join.Spec{Probe: schema, Build: schema, ProbeKeys: []int{0}, BuildKeys: []int{1},
		NullSafe: []bool{false}, Out: gpu.NewSchema()})
	require.EqualError(t, err, `join key "id" is BIGINT, but "kind" is VARCHAR`)
}

func TestSumsThatOverflowNameTheColumn(t *testing.T) {
	op, err := groupby.New(groupby.Spec{In: gpu.NewSchema(gpu.Field{Name: "v", Type: gpu.DecimalOf(38, 0)}),
		Aggregates: []groupby.Aggregate{{Kind: gpu.Sum, Output: gpu.DecimalOf(38, 0)}},
		Out:        gpu.NewSchema(gpu.Field{Name: "total", Type: gpu.DecimalOf(38, 0)})})
	require.NoError(t, err)
	v := gpu.Scalar{Type: gpu.DecimalOf(38, 0), Valid: true, Int: gpu.Int128{Lo: math.MaxUint64, Hi: math.MaxInt64}}
	_, err = run(t, 0, op, 10, nil,
		[]*gpu.Stride{{Schema: gpu.NewSchema(gpu.Field{Name: "v", Type: v.Type}),
			Cols: []gpu.Column{gpu.ColumnOf(v.Type, []gpu.Scalar{v, v})}, Rows: 2}}, 2)
	require.EqualError(t, err, "total: sum overflows 128 bits")
}

// TestLanesMergeManyGroups has more groups than a lane's table holds. So lanes flush, and
// the flushed groups are merged by partition. When groups have few rows, rows pass by the
// tables.
func TestLanesMergeManyGroups(t *testing.T) {
	in := gpu.NewSchema(gpu.Field{Name: "k", Type: gpu.Of(gpu.Int64), Nullable: true},
		gpu.Field{Name: "s", Type: gpu.Of(gpu.String)},
		gpu.Field{Name: "v", Type: gpu.Of(gpu.Int32)}, gpu.Field{Name: "d", Type: gpu.DecimalOf(12, 2), Nullable: true},
		gpu.Field{Name: "f", Type: gpu.Of(gpu.Float32)})
	const strides, strideRows = 9, 20_000
	for _, groups := range []int64{20_000, 400_000} {
		if gputest.Race && groups > 20_000 {
			continue // the same goroutines
		}
		rnd := rand.New(rand.NewPCG(uint64(groups), 7))
		type total struct {
			rows, sum, count, cents int64
			floats                  float64
			least                   int64
		}
		want := map[string]*total{}
		input := func() (out []*gpu.Stride) {
			clear(want)
			for range strides {
				cols := make([][]gpu.Scalar, in.Len())
				for range strideRows {
					k, v := rnd.Int64N(groups), rnd.Int64N(1000)
					row := []gpu.Scalar{gpu.IntScalar(in.Fields[0].Type, k),
						gpu.StringScalar(fmt.Sprint("text ", k%1000)), gpu.IntScalar(in.Fields[2].Type, v),
						gpu.IntScalar(in.Fields[3].Type, v-500), gpu.FloatScalar(in.Fields[4].Type, float64(v)/4)}
					if k == 0 {
						row[0] = gpu.Null(row[0].Type)
					}
					name := row[0].String() + "|" + row[1].String()
					w := want[name]
					if w == nil {
						w = &total{least: math.MaxInt64}
						want[name] = w
					}
					w.rows++
					w.sum += v
					w.floats += float64(v) / 4
					if v%7 == 0 {
						row[3] = gpu.Null(row[3].Type)
					} else {
						w.count++
						w.cents += v - 500
						w.least = min(w.least, v-500)
					}
					for c := range cols {
						cols[c] = append(cols[c], row[c])
					}
				}
				s := &gpu.Stride{Schema: in, Rows: strideRows}
				for c, f := range in.Fields {
					s.Cols = append(s.Cols, gpu.ColumnOf(f.Type, cols[c]))
				}
				out = append(out, s)
			}
			return out
		}
		for _, lanes := range []int{1, 3} {
			aggregates := []groupby.Aggregate{{Kind: gpu.CountAll, Input: -1, Output: gpu.Of(gpu.Int64)},
				{Kind: gpu.Sum, Input: 2, Output: gpu.Of(gpu.HugeInt)},
				{Kind: gpu.Avg, Input: 2, Output: gpu.Of(gpu.Float64)},
				{Kind: gpu.Count, Input: 3, Output: gpu.Of(gpu.Int64)},
				{Kind: gpu.Sum, Input: 3, Output: gpu.DecimalOf(38, 2)},
				{Kind: gpu.Sum, Input: 4, Output: gpu.Of(gpu.Float64)},
				{Kind: gpu.Min, Input: 3, Output: in.Fields[3].Type}}
			out := gpu.NewSchema(in.Fields[0], in.Fields[1])
			for _, a := range aggregates {
				out.Fields = append(out.Fields, gpu.Field{Name: a.Kind.String(), Type: a.Output})
			}
			op, err := groupby.New(groupby.Spec{In: in, Keys: []int{0, 1}, Aggregates: aggregates, Out: out})
			require.NoError(t, err)
			got, err := run(t, 0, op, strideRows, nil, input(), lanes)
			require.NoError(t, err)
			require.Len(t, got, len(want))
			for _, row := range got {
				i := strings.Index(row, "|text ")
				i += 1 + strings.Index(row[i+1:], "|")
				w := want[row[:i]]
				require.NotNil(t, w, row)
				cents, least := gpu.Null(gpu.DecimalOf(38, 2)), gpu.Null(in.Fields[3].Type)
				if w.count > 0 {
					cents, least = gpu.IntScalar(cents.Type, w.cents), gpu.IntScalar(least.Type, w.least)
				}
				double := func(v float64) gpu.Scalar { return gpu.FloatScalar(gpu.Of(gpu.Float64), v) }
				require.Equal(t, fmt.Sprintf("%s|%d|%d|%s|%d|%s|%s|%s", row[:i], w.rows, w.sum,
					double(float64(w.sum)/float64(w.rows)), w.count, cents, double(w.floats), least), row)
			}
		}
	}
}

// TestLanesMergeDenseKeys groups by one key whose range is known, correctly or not.
// Partitions are ranges of the key. The table of a single lane is not indexed by the key if the range is too wide for
// its memory.
func TestLanesMergeDenseKeys(t *testing.T) {
	const strides, strideRows, groups, lo = 8, 5_000, 20_000, -7_000
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Int64), gpu.Of(gpu.Date), gpu.DecimalOf(15, 2)} {
		if gputest.Race && typ.Kind != gpu.Int64 {
			continue // the same goroutines
		}
		in := gpu.NewSchema(gpu.Field{Name: "k", Type: typ})
		for _, c := range []struct {
			hint   gpu.GroupHint
			memory int64 // with little memory, lanes have no slot for each key
			lanes  int
		}{
			{gpu.GroupHint{Dense: true, Lo: lo, Hi: lo + groups - 1}, 0, 3},
			{gpu.GroupHint{Dense: true, Lo: 0, Hi: 5000}, 100 << 20, 3},
			{gpu.GroupHint{Dense: true, Lo: -1 << 40, Hi: 1 << 40}, 0, 3},
			{gpu.GroupHint{Dense: true, Lo: 3, Hi: 3}, 100 << 20, 3},
			{gpu.GroupHint{Dense: true, Lo: lo, Hi: lo + 1<<20, Groups: groups}, 3 << 20, 1},
		} {
			rnd := rand.New(rand.NewPCG(1, 1))
			want := map[string]int{}
			var input []*gpu.Stride
			for range strides {
				var keys []gpu.Scalar
				for range strideRows {
					k := gpu.IntScalar(typ, lo+rnd.Int64N(groups))
					keys = append(keys, k)
					want[k.String()]++
				}
				input = append(input, &gpu.Stride{Schema: in, Rows: strideRows,
					Cols: []gpu.Column{gpu.ColumnOf(typ, keys)}})
			}
			op, err := groupby.New(groupby.Spec{In: in, Keys: []int{0},
				Aggregates: []groupby.Aggregate{{Kind: gpu.CountAll, Input: -1, Output: gpu.Of(gpu.Int64)}},
				Out:        gpu.NewSchema(in.Fields[0], gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)}), Hint: c.hint})
			require.NoError(t, err)
			got, _, err := runWith(t, c.memory, nil, spill.Options{Dir: t.TempDir()}, op, strideRows, nil, input,
				c.lanes)
			require.NoError(t, err)
			require.Len(t, got, len(want))
			for _, row := range got {
				k, n, _ := strings.Cut(row, "|")
				require.Equal(t, fmt.Sprint(want[k]), n, row)
			}
		}
	}
}
