package aggregate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// open returns a budget and a lease. All memory must have been released by the end of the test.
func open(t *testing.T) (*gpu.Budget, *gpu.Lease) {
	a := memory.NewArena(1)
	b := gpu.NewBudget("test", gpu.HostMemory, 1<<30, a)
	a.Register(b)
	t.Cleanup(a.Close)
	l := b.Lease("test")
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return b, l
}

var oneCore = parallel.Cores{Threads: 1}

// TestArgMinMaxSelectsTheFirstRows compares the selected rows of random rows, update by update,
// with those of a search through all rows.
func TestArgMinMaxSelectsTheFirstRows(t *testing.T) {
	_, l := open(t)
	long, text, double, wide, truth := gpu.Of(gpu.Int64), gpu.Of(gpu.String), gpu.Of(gpu.Float64), gpu.Of(gpu.HugeInt),
		gpu.Of(gpu.Bool)
	draw := func(r *rand.Rand, typ gpu.Type) gpu.Scalar {
		if r.IntN(6) == 0 {
			return gpu.Null(typ)
		}
		switch typ {
		case text:
			return gpu.StringScalar(strings.Repeat("long prefix", r.IntN(2)) + fmt.Sprint(r.IntN(5)))
		case double:
			return gpu.FloatScalar(typ, []float64{-1, 0, math.Copysign(0, -1), 2.5, math.Inf(1), math.NaN()}[r.IntN(6)])
		case truth:
			return gpu.BoolScalar(r.IntN(2) == 0)
		case gpu.Of(gpu.Uint16):
			return gpu.IntScalar(typ, int64(65530+r.IntN(6)))
		}
		return gpu.IntScalar(typ, int64(r.IntN(6)-3))
	}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		spec := gpu.ArgMinMax{Columns: []gpu.Type{long}, Last: r.IntN(2) == 0}
		for range r.IntN(3) {
			spec.Order = append(spec.Order, gpu.Direction{Descending: r.IntN(2) == 0, NullsFirst: r.IntN(2) == 0})
		}
		for range len(spec.Order) + r.IntN(3) {
			spec.Columns = append(spec.Columns, []gpu.Type{long, gpu.Of(gpu.Int8), gpu.Of(gpu.Uint16), text, double,
				wide, truth}[r.IntN(7)])
		}
		x, err := NewArgMinMax(l, spec)
		require.NoError(t, err)
		best := map[int32][]gpu.Scalar{}
		groups, at := 0, r.Perm(1000)
		for range 5 {
			groups += r.IntN(4)
			n := 0
			if groups > 0 {
				n = r.IntN(100)
			}
			ids, cols := make([]int32, n), make([][]gpu.Scalar, len(spec.Columns))
			for i := range n {
				id := int32(r.IntN(groups))
				ids[i] = id
				row := []gpu.Scalar{gpu.IntScalar(long, int64(at[0]))}
				if at = at[1:]; r.IntN(5) == 0 {
					row[0] = gpu.Null(long)
				}
				for _, typ := range spec.Columns[1:] {
					row = append(row, draw(r, typ))
				}
				for c, v := range row {
					cols[c] = append(cols[c], v)
				}
				if was, ok := best[id]; row[0].Valid && (!ok || comesBefore(spec, row, was)) {
					best[id] = row
				}
			}
			var in []gpu.Column
			for c, typ := range spec.Columns {
				in = append(in, gpu.ColumnOf(typ, cols[c]))
			}
			require.NoError(t, x.Update(oneCore, ids, in, groups))
			for c, typ := range spec.Columns {
				got, err := x.Result(l, c, 0, groups)
				require.NoError(t, err)
				for id := range groups {
					want := gpu.Null(typ).String()
					if row, ok := best[int32(id)]; ok {
						want = row[c].String()
					}
					require.Equal(t, want, got.ScalarAt(id).String(), "seed %d, column %d of group %d", seed, c, id)
				}
				got.Release()
			}
		}
		x.Release()
	}
}

// comesBefore reports whether a row is selected before another one.
func comesBefore(spec gpu.ArgMinMax, a, b []gpu.Scalar) bool {
	for k, by := range spec.Order {
		x, y := a[1+k], b[1+k]
		switch {
		case x.Valid != y.Valid:
			return x.Valid != by.NullsFirst
		case !x.Valid:
			continue
		}
		if order := x.Compare(y); order != 0 {
			return order < 0 != by.Descending
		}
	}
	return a[0].Int.Int64() < b[0].Int.Int64() != spec.Last
}

// TestArgMinMaxIsAsBeforeWithoutMemory refuses memory for an update.
func TestArgMinMaxIsAsBeforeWithoutMemory(t *testing.T) {
	budget, l := open(t)
	x, err := NewArgMinMax(l, gpu.ArgMinMax{Columns: []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.String)}, Last: true})
	require.NoError(t, err)
	update := func(position int64, text string) error {
		return x.Update(oneCore, []int32{0},
			[]gpu.Column{gpu.ColumnOf(gpu.Of(gpu.Int64), []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), position)}),
				gpu.ColumnOf(gpu.Of(gpu.String), []gpu.Scalar{gpu.StringScalar(text)})}, 1)
	}
	value := func() string {
		c, err := x.Result(l, 1, 0, 1)
		require.NoError(t, err)
		defer c.Release()
		return c.ScalarAt(0).Str
	}
	require.NoError(t, update(1, "short"))
	limit := budget.Limit()
	budget.SetLimit(1)
	require.True(t, gpu.IsOutOfMemory(update(2, strings.Repeat("x", 10_000))))
	budget.SetLimit(limit)
	require.Equal(t, "short", value())
	require.NoError(t, update(3, "other"))
	require.Equal(t, "other", value())
	x.Release()
}
