package logical

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/source"
)

// sampled is numbers with rows, of which a sample has the values 0 to 99 ten times each.
type sampled struct {
	numbers
	reads *int
}

func (s sampled) Sample(ctx context.Context, _ *gpu.Lease, columns []int, _ int) (*gpu.Stride, error) {
	if *s.reads++; ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var values []gpu.Scalar
	for i := range 1000 {
		values = append(values, gpu.IntScalar(gpu.Of(gpu.Int64), int64(i%100)))
	}
	stride := &gpu.Stride{Rows: len(values)}
	for range columns {
		stride.Cols = append(stride.Cols, gpu.ColumnOf(gpu.Of(gpu.Int64), values))
	}
	return stride, nil
}

// filterOf binds and rewrites a filter of a table, which it returns.
func filterOf(t *testing.T, e *Estimator, table source.Table, condition string) rel.Node {
	q := Query{Sources: []string{"t"}, Steps: []job.Step{{Filter: condition}}, Text: sqlText("")}
	r, faults := Bind(e, q, map[string]source.Table{"t": table})
	require.Empty(t, faults)
	return Optimize(e, r.Output(), Options{}).Root
}

func TestRowsAreSampledOnceAndOnlyIfSomebodyAsks(t *testing.T) {
	reads := 0
	e := NewEstimator(t.Context())
	n := filterOf(t, e, sampled{reads: &reads}, "a % 10 = 3")
	require.Zero(t, reads, "a plan is bound and rewritten without a row")
	for range 2 {
		require.Equal(t, 100.0, e.Rows(n))
		require.Equal(t, 1000, e.Sampled(n.(*rel.Filter)))
		require.Equal(t, 1, reads)
	}
	require.Equal(t, 10.0, e.Rows(filterOf(t, e, sampled{reads: &reads}, "a = 3")), "by statistics")
	require.Equal(t, 1, reads)
	require.NoError(t, e.Err())
}

func TestTheContextEndsSamples(t *testing.T) {
	reads, gone := 0, errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	e := NewEstimator(ctx)
	n := filterOf(t, e, sampled{reads: &reads}, "a % 10 = 3")
	require.Equal(t, 1000*defaultSelectivity, e.Rows(n), "a guess")
	require.ErrorIs(t, e.Err(), context.Canceled)
	require.Equal(t, 1, reads)
}

func TestWhatRulesKnowGoesBeforeEstimates(t *testing.T) {
	m := &rel.Metadata{}
	e := NewEstimator(t.Context())
	scan := rel.NewScan(m, expr.Origin{Step: "t"}, numbers{})
	again, ids := rel.Renamed(scan, scan.Columns, "u")
	spec := rel.JoinSpec{Kind: join.Inner, LeftKeys: scan.Columns, RightKeys: ids, NullSafe: []bool{false}}
	j := rel.NewJoin(expr.Origin{Step: "j"}, scan, again, spec)
	e.Know(j, 7)
	require.Equal(t, 7.0, e.Rows(rel.NewSort(expr.Origin{Step: "s"}, j, nil, 0, -1)))
	g := rel.NewGroup(expr.Origin{Step: "g"}, scan, scan.Columns, nil, nil, "")
	require.Equal(t, 100.0, e.Rows(g))
	renamed := rel.NewGroup(expr.Origin{Step: "g"}, again, ids, nil, nil, "")
	e.Expect(ids, 12)
	e.Expect(scan.Columns, 0)
	require.Equal(t, 12.0, e.Rows(renamed))
	require.Equal(t, 12, e.GroupHint(renamed).Groups)
	require.Equal(t, 100.0, e.Rows(rel.NewGroup(expr.Origin{Step: "h"}, scan, scan.Columns, nil, nil, "")))
}

func TestTheBuiltSideHasAReason(t *testing.T) {
	m := &rel.Metadata{}
	e := NewEstimator(t.Context())
	scan := rel.NewScan(m, expr.Origin{Step: "t"}, numbers{})
	few := rel.NewLimit(expr.Origin{Step: "few"}, scan, 0, 10)
	again, ids := rel.Renamed(scan, scan.Columns, "u")
	build := func(spec rel.JoinSpec, left rel.Node) rel.Build {
		spec.LeftKeys, spec.RightKeys, spec.NullSafe = scan.Columns, ids, []bool{false}
		return e.Build(rel.NewJoin(expr.Origin{Step: "j"}, left, again, spec))
	}
	require.Equal(t, rel.Build{Side: rel.LeftSide, Reason: rel.FewerRows, BuildRows: 10, ProbeRows: 1000},
		build(rel.JoinSpec{}, few))
	require.Equal(t, rel.Build{Side: rel.RightSide, Reason: rel.FewerRows, BuildRows: 1000, ProbeRows: 1000},
		build(rel.JoinSpec{}, scan))
	for _, kind := range []join.Kind{join.Semi, join.Anti} {
		require.Equal(t, rel.Build{Side: rel.LeftSide, Reason: rel.FewerRows, BuildRows: 10, ProbeRows: 1000},
			build(rel.JoinSpec{Kind: kind}, few))
		require.Equal(t, rel.Build{Side: rel.RightSide, Reason: rel.StreamsLeft}, build(rel.JoinSpec{Kind: kind}, scan))
		// 200 rows have 2,000 pairs.
		many := rel.NewLimit(expr.Origin{Step: "many"}, scan, 0, 200)
		require.Equal(t, rel.StreamsLeft, build(rel.JoinSpec{Kind: kind}, many).Reason)
		k := scan.Expr(scan.Columns[0])
		onPairs := rel.JoinSpec{Kind: kind, Residual: []*expr.Expr{expr.Equal(k, k, false)}}
		require.Equal(t, rel.FewerRows, build(onPairs, many).Reason)
	}
	require.Equal(t, rel.Build{Side: rel.RightSide, Reason: rel.StreamsLeft}, build(rel.JoinSpec{Kind: join.Mark}, few))
	for _, asked := range []rel.Build{{Side: rel.LeftSide, Reason: rel.AskedFor},
		{Side: rel.RightSide, Reason: rel.RowPerPartition}} {
		require.Equal(t, asked, build(rel.JoinSpec{Build: asked}, scan))
	}
	ranged := rel.JoinSpec{Range: &rel.Range{Key: ids[0], Lower: scan.Columns[0], Upper: rel.None}}
	require.Equal(t, rel.Build{Side: rel.RightSide, Reason: rel.RangeKey, BuildRows: 1000, ProbeRows: 10},
		build(ranged, few))
}

func TestEstimatesOfLongChainsStayFinite(t *testing.T) {
	m := &rel.Metadata{}
	e := NewEstimator(t.Context())
	var n rel.Node = rel.NewScan(m, expr.Origin{Step: "t"}, numbers{})
	for range 1100 {
		out := m.Add(m.Column(n.Rel().Columns[0]))
		from := [][]rel.ID{n.Rel().Columns, n.Rel().Columns}
		n = rel.NewUnion(expr.Origin{Step: "u"}, []rel.Node{n, n}, from, []rel.ID{out})
	}
	require.Equal(t, mostRows, e.Rows(n))
	e.Know(n, math.Inf(1))
	require.Equal(t, mostRows, e.Rows(n))
}

func TestColumnsThatFiltersDoNotCompareAreRememberedOnce(t *testing.T) {
	m := &rel.Metadata{}
	e := NewEstimator(t.Context())
	left := rel.NewScan(m, expr.Origin{Step: "l"}, numbers{})
	right := rel.NewScan(m, expr.Origin{Step: "r"}, numbers{})
	a, b := left.Columns[0], right.Columns[0]
	var n rel.Node = rel.NewJoin(expr.Origin{Step: "j"}, left, right, rel.JoinSpec{AllPairs: true})
	for range 100 {
		n = rel.NewFilter(expr.Origin{Step: "f"}, n, []*expr.Expr{expr.Equal(n.Rel().Expr(a), n.Rel().Expr(b), false)})
		n = rel.NewSort(expr.Origin{Step: "s"}, n, nil, 0, -1)
		n = rel.NewLimit(expr.Origin{Step: "k"}, n, 0, 1e6)
	}
	other, ids := rel.Renamed(right, right.Columns, "o")
	n = rel.NewJoin(expr.Origin{Step: "j"}, n, other, rel.JoinSpec{AllPairs: true})
	for range 100 {
		n = rel.NewFilter(expr.Origin{Step: "f"}, n, []*expr.Expr{expr.Equal(n.Rel().Expr(a), n.Rel().Expr(a), true)})
		require.Equal(t, 100.0, e.Column(n, ids[0]).distinct)
	}
	remembered := 0
	for of := range e.columns {
		if of.id == ids[0] {
			remembered++
		}
	}
	require.Less(t, remembered, 5)
}

// days is a dimension of 9000 rows: its number is its key, 30 of them are a month.
type days struct{ numbers }

func (days) Rows() int64 { return 9000 }
func (days) Schema() *gpu.Schema {
	number := gpu.Of(gpu.Int64)
	return gpu.NewSchema(gpu.Field{Name: "day", Type: number}, gpu.Field{Name: "month", Type: number})
}

func rangeStats(lo, hi int64) source.ColumnStats {
	t := gpu.Of(gpu.Int64)
	return source.ColumnStats{HasRange: true, Min: gpu.IntScalar(t, lo), Max: gpu.IntScalar(t, hi)}
}

func (days) Stats(column int) source.ColumnStats {
	return []source.ColumnStats{rangeStats(0, 8999), rangeStats(0, 299)}[column]
}

func (days) Sample(_ context.Context, _ *gpu.Lease, columns []int, most int) (*gpu.Stride, error) {
	stride := &gpu.Stride{Rows: min(most, 9000)}
	for _, c := range columns {
		var values []gpu.Scalar
		for i := range stride.Rows {
			values = append(values, gpu.IntScalar(gpu.Of(gpu.Int64), int64([]int{i, i / 30}[c])))
		}
		stride.Cols = append(stride.Cols, gpu.ColumnOf(gpu.Of(gpu.Int64), values))
	}
	return stride, nil
}

// sales has 1,000,000 rows of 300 of the days.
type sales struct{ numbers }

func (sales) Rows() int64                  { return 1e6 }
func (sales) Stats(int) source.ColumnStats { return rangeStats(6000, 6299) }

// TestTheRowsOfASmallTableTellWhichKeysPassAFilter joins sales with the days of some months.
func TestTheRowsOfASmallTableTellWhichKeysPassAFilter(t *testing.T) {
	for condition, want := range map[string]float64{
		"month = 200":                 1e5, // 30 of the 300 days
		"month between 190 and 204":   5e5, // a third of these days have sales
		"month in (200, 209)":         2e5,
		"month % 10 = 3":              1e5, // everywhere
		"month = 205 and day % 2 = 0": 5e4,
		"month = 100":                 1e6 / 300, // no day with sales counts as one
	} {
		e := NewEstimator(t.Context())
		q := Query{Sources: []string{"s", "d"}, Text: sqlText(""), Steps: []job.Step{{From: "s",
			Join: &job.Join{With: "d", On: []string{"a = day"}}}, {Filter: condition}}}
		r, faults := Bind(e, q, map[string]source.Table{"s": sales{}, "d": days{}})
		require.Empty(t, faults)
		root := Optimize(e, r.Output(), Options{}).Root
		require.InEpsilon(t, want, e.Rows(root), 0.1, "%s: %s", condition, rel.Print(root))
	}
}

func TestKeysOfOneTableHaveAtMostItsRows(t *testing.T) {
	items, days := &sample{rows: 1000}, &sample{rows: 70}
	name, brand := ColumnStats{sample: items}, ColumnStats{sample: items, distinct: 20}
	year, month := ColumnStats{sample: days, distinct: 5}, ColumnStats{sample: days, distinct: 12}
	for _, c := range []struct {
		what string
		keys []ColumnStats
		want float64
	}{
		{"no keys", nil, 1},
		{"texts whose values nobody has counted", []ColumnStats{name, brand}, 1001},
		{"few values and null", []ColumnStats{brand}, 21},
		{"values of two columns of a table of fewer rows", []ColumnStats{year, month}, 71},
		{"two tables", []ColumnStats{name, year, brand}, 1001 * 6},
		{"a computed value", []ColumnStats{name, {distinct: 3}}, 1001 * 4},
		{"a computed value that nobody has counted", []ColumnStats{name, {}}, 0},
	} {
		require.InDelta(t, c.want, mostGroups(c.keys), 1e-9, c.what)
	}
}
