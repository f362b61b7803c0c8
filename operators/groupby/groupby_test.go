package groupby

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
)

// TestStridesOfFewRowsWaitForOthers pushes strides of few rows. Those with one dictionary
// are assigned to groups together.
func TestStridesOfFewRowsWaitForOthers(t *testing.T) {
	kind := gpu.Of(gpu.String)
	in := gpu.NewSchema(gpu.Field{Name: "kind", Type: kind})
	op,
		err := New(Spec{In: in, Keys: []int{0},
		Aggregates: []Aggregate{{Kind: gpu.CountAll, Input: -1, Output: gpu.Of(gpu.Int64)}},
		Out:        gpu.NewSchema(in.Fields[0], gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)})})
	require.NoError(t, err)
	dev, err := host.Open(host.Options{Threads: 2})
	require.NoError(t, err)
	q, err := dev.NewQueue("test")
	require.NoError(t, err)
	l := dev.Budget().Lease("test")
	ctx := context.Background()
	task := operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: 40, Lanes: 1}
	lane, err := op.NewLocal(task)
	require.NoError(t, err)

	text := func(values ...string) gpu.Column {
		var s []gpu.Scalar
		for _, v := range values {
			s = append(s, gpu.StringScalar(v))
		}
		return gpu.ColumnOf(kind, s)
	}
	ab, ba := &gpu.Dictionary{Values: text("a", "b")}, &gpu.Dictionary{Values: text("b", "a")}
	coded := func(d *gpu.Dictionary, codes ...gpu.Scalar) gpu.Column {
		c := gpu.ColumnOf(gpu.Of(gpu.Int32), codes)
		d.Values.Retain()
		return gpu.Column{Type: kind, Len: c.Len, Data: c.Data, Dict: d}
	}
	code := func(v int64) gpu.Scalar { return gpu.IntScalar(gpu.Of(gpu.Int32), v) }
	for i, push := range []struct {
		col  gpu.Column
		wait int // strides that wait after the push
	}{
		{coded(ab, code(0), code(0), code(1)), 1},
		{coded(ab, code(1), code(1), code(1)), 2},
		{coded(ba, code(0), code(1)), 1}, // the others were taken
		{coded(ba, code(1), code(1), code(1), code(1), code(1), code(1), code(1)), 2},
		{coded(ba, code(0)), 0}, // ten rows, a quarter of a stride
		{text("c"), 1},
		{coded(ab, code(0), code(0), code(0), code(0), code(0), code(0), code(0), code(0), code(0), code(0)), 0},
		{text("c"), 1},
		{text("a", "b", "a", "a", "c", "b", "c", "c", "c", "c"), 0}, // enough alone
		{text("c"), 1},
	} {
		require.NoError(t, lane.Push(ctx, i, &gpu.Stride{Schema: in, Cols: []gpu.Column{push.col}, Rows: push.col.Len}))
		require.Len(t, lane.(*local).pending, push.wait, "after stride %d", i)
	}
	got := map[string]string{}
	require.NoError(t, lane.Combine(ctx))
	require.NoError(t, lane.Close())
	require.NoError(t, op.Finalize(ctx, task))
	require.Equal(t, 1, op.Parts())
	require.NoError(t, op.Emit(ctx, task, 0, func(s *gpu.Stride) error {
		for r := range s.Rows {
			got[s.Cols[0].ScalarAt(r).String()] = s.Cols[1].ScalarAt(r).String()
		}
		s.Release()
		return nil
	}))
	require.Equal(t, map[string]string{"a": "23", "b": "8", "c": "8"}, got)
	require.NoError(t, op.Close())
	ab.Values.Release()
	ba.Values.Release()
	require.NoError(t, l.Close(), "the operator releases everything")
	require.NoError(t, dev.Close())
}

// TestRunsOfSortedKeysPassByTheTable gives a lane sorted keys, three rows each. The table
// has as many groups as there are runs, so the next strides bypass it.
func TestRunsOfSortedKeysPassByTheTable(t *testing.T) {
	in := gpu.NewSchema(gpu.Field{Name: "k", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "v", Type: gpu.Of(gpu.Int32)})
	sum := gpu.SumType(gpu.Of(gpu.Int32))
	op,
		err := New(Spec{In: in, Keys: []int{0},
		Aggregates: []Aggregate{{Kind: gpu.CountAll, Input: -1, Output: gpu.Of(gpu.Int64)},
			{Kind: gpu.Sum, Input: 1, Output: sum}},
		Out: gpu.NewSchema(in.Fields[0], gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)},
			gpu.Field{Name: "sum", Type: sum})})
	require.NoError(t, err)
	dev, err := host.Open(host.Options{Threads: 2})
	require.NoError(t, err)
	q, err := dev.NewLaneQueue("test")
	require.NoError(t, err)
	l := dev.Budget().Lease("test")
	ctx := context.Background()
	const strideRows, strides = 50_000, 9
	task := operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: strideRows, Lanes: 2}
	lane, err := op.NewLocal(task)
	require.NoError(t, err)
	passed := 0
	for n := range strides {
		keys, values := make([]gpu.Scalar, strideRows), make([]gpu.Scalar, strideRows)
		for i := range keys {
			row := int64(n*strideRows + i)
			keys[i], values[i] = gpu.IntScalar(in.Fields[0].Type, row/3*7), gpu.IntScalar(in.Fields[1].Type, row%5)
		}
		before, flushed := lane.(*local).passing, lane.(*local).flushed
		require.NoError(t, lane.Push(ctx, n, &gpu.Stride{Schema: in, Rows: strideRows,
			Cols: []gpu.Column{gpu.ColumnOf(in.Fields[0].Type, keys), gpu.ColumnOf(in.Fields[1].Type, values)}}))
		if before > 0 {
			passed++
			require.InDelta(t, strideRows/3, lane.(*local).flushed-flushed, 2, "a row of partial aggregates for a run")
		}
	}
	require.GreaterOrEqual(t, passed, 3)
	require.NoError(t, lane.Combine(ctx))
	require.NoError(t, lane.Close())
	require.NoError(t, op.Finalize(ctx, task))
	got := map[int64][2]string{}
	for part := range op.Parts() {
		require.NoError(t, op.Emit(ctx, task, part, func(s *gpu.Stride) error {
			for r := range s.Rows {
				got[s.Cols[0].ScalarAt(r).Int.Int64()] = [2]string{s.Cols[1].ScalarAt(r).String(),
					s.Cols[2].ScalarAt(r).String()}
			}
			s.Release()
			return nil
		}))
	}
	require.Len(t, got, strideRows*strides/3)
	for k, v := range got {
		first := k / 7 * 3
		require.Equal(t, [2]string{"3", fmt.Sprint(first%5 + (first+1)%5 + (first+2)%5)}, v, "key %d", k)
	}
	require.NoError(t, op.Close())
	require.NoError(t, q.Close())
	require.NoError(t, l.Close(), "the operator releases everything")
	require.NoError(t, dev.Close())
}

// TestRowsPassByTheTableAsTheyAre gives a lane rows of so many keys that no table would make them fewer, by a
// text with a large dictionary of each stride or without one, and wants what a table of all rows gives.
func TestRowsPassByTheTableAsTheyAre(t *testing.T) {
	long, short, single, money := gpu.Of(gpu.Int64), gpu.Of(gpu.Int32), gpu.Of(gpu.Float32), gpu.DecimalOf(9, 2)
	in := gpu.NewSchema(gpu.Field{Name: "k", Type: gpu.Of(gpu.String)},
		gpu.Field{Name: "a", Type: short, Nullable: true},
		gpu.Field{Name: "b", Type: single}, gpu.Field{Name: "c", Type: money})
	spec := Spec{In: in, Keys: []int{0}, Out: operators.PickFields(in, []int{0})}
	add := func(kind gpu.AggregateKind, input int, output gpu.Type) {
		spec.Aggregates = append(spec.Aggregates, Aggregate{Kind: kind, Input: input, Output: output})
		spec.Out.Fields = append(spec.Out.Fields,
			gpu.Field{Name: fmt.Sprint("x", len(spec.Aggregates)), Type: output, Nullable: true})
	}
	add(gpu.Min, 1, short)
	add(gpu.CountAll, -1, long)
	add(gpu.Count, 1, long)
	for i := 1; i < 4; i++ {
		add(gpu.Sum, i, gpu.SumType(in.Fields[i].Type))
		add(gpu.Avg, i, gpu.Of(gpu.Float64))
	}
	add(gpu.Max, 3, money)
	for _, k := range []gpu.AggregateKind{gpu.BitAnd, gpu.BitOr, gpu.BitXor} {
		add(k, 1, short)
	}
	const strideRows, strides, keys = 70_000, 5, 200_000
	stride := func(n int) *gpu.Stride {
		cols := make([][]gpu.Scalar, 5) // the text, its code, and the values
		for i := range strideRows {
			k := (n*strideRows + i) * 48271 % keys
			a := gpu.IntScalar(short, int64(k%1000-500))
			if i%7 == 0 {
				a = gpu.Null(short)
			}
			for c, v := range []gpu.Scalar{gpu.StringScalar(fmt.Sprint("key number ", k)),
				gpu.IntScalar(short, int64(i)), a,
				{Type: single, Valid: true, Float: float64(k%64) / 4}, gpu.IntScalar(money, int64(k*n))} {
				cols[c] = append(cols[c], v)
			}
		}
		s := &gpu.Stride{Schema: in, Rows: strideRows}
		text := gpu.ColumnOf(in.Fields[0].Type, cols[0])
		if n%2 == 0 {
			more := gpu.ColumnOf(text.Type, append(cols[0], gpu.StringScalar("of no row")))
			text = gpu.Column{Type: text.Type, Len: strideRows, Data: gpu.ColumnOf(short, cols[1]).Data,
				Dict: &gpu.Dictionary{Values: more}}
		}
		s.Cols = []gpu.Column{text, gpu.ColumnOf(short, cols[2]), gpu.ColumnOf(single, cols[3]),
			gpu.ColumnOf(money, cols[4])}
		return s
	}
	group := func(lanes int) map[string]string {
		op, err := New(spec)
		require.NoError(t, err)
		dev, err := host.Open(host.Options{Threads: 1})
		require.NoError(t, err)
		q, err := dev.NewLaneQueue("test")
		require.NoError(t, err)
		l, ctx := dev.Budget().Lease("test"), context.Background()
		task := operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: strideRows, Lanes: lanes}
		lane, err := op.NewLocal(task)
		require.NoError(t, err)
		for n := range strides {
			require.NoError(t, lane.Push(ctx, n, stride(n)))
			require.Equal(t, lanes > 1, lane.(*local).passing > 0)
		}
		require.NoError(t, lane.Combine(ctx))
		require.NoError(t, lane.Close())
		require.NoError(t, op.Finalize(ctx, task))
		got := map[string]string{}
		for part := range op.Parts() {
			require.NoError(t, op.Emit(ctx, task, part, func(s *gpu.Stride) error {
				for r := range s.Rows {
					row := ""
					for _, c := range s.Cols[1:] {
						row += c.ScalarAt(r).String() + " "
					}
					got[s.Cols[0].ScalarAt(r).String()] = row
				}
				s.Release()
				return nil
			}))
		}
		require.NoError(t, op.Close())
		require.NoError(t, q.Close())
		require.NoError(t, l.Close(), "the operator releases everything")
		require.NoError(t, dev.Close())
		return got
	}
	want := group(1)
	require.Len(t, want, keys)
	require.Equal(t, want, group(2))
}
