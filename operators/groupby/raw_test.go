package groupby

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// TestRawRowsAreMergedInBlocks spills rows of keys that come twice, far from each other. A sample tells that a table
// would have less than two rows per group, so all of them are raw, and tables of blocks aggregate the parts.
func TestRawRowsAreMergedInBlocks(t *testing.T) {
	const n, strides = 1 << 16, 4
	long := gpu.Of(gpu.Int64)
	amount := gpu.DecimalOf(12, 2)
	for _, c := range []struct {
		name   string
		spec   Spec
		blocks bool
	}{
		{"one key", Spec{Keys: []int{0}}, true},
		{"two keys", Spec{Keys: []int{0, 1}}, true},
		{"forced table", Spec{Keys: []int{0}, Algorithm: hgbG}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := gpu.NewSchema(gpu.Field{Name: "k", Type: long},
				gpu.Field{Name: "k2", Type: gpu.Of(gpu.Int32), Nullable: true},
				gpu.Field{Name: "v", Type: long, Nullable: true},
				gpu.Field{Name: "d", Type: amount})
			spec := c.spec
			spec.In = in
			spec.Aggregates = []Aggregate{{Kind: gpu.CountAll, Input: -1, Output: long},
				{Kind: gpu.Sum, Input: 2, Output: gpu.SumType(long)},
				{Kind: gpu.Min, Input: 2, Output: long}, {Kind: gpu.Sum, Input: 3, Output: gpu.SumType(amount)}}
			out := []gpu.Field{}
			for _, k := range spec.Keys {
				out = append(out, in.Fields[k])
			}
			for _, a := range spec.Aggregates {
				out = append(out, gpu.Field{Name: a.Kind.String(), Type: a.Output, Nullable: true})
			}
			spec.Out = gpu.NewSchema(out...)
			g, err := New(spec)
			require.NoError(t, err)
			o := g.(*hashGroupBy)
			d := cudatest.Open(t, cuda.Options{Memory: 24 << 20, HostMemory: 64 << 20})
			q, err := d.NewQueue("group-by")
			require.NoError(t, err)
			l, h := d.Budget().Lease("group-by"), d.HostBudget().Lease("rows")
			store := spill.NewStore(d, spill.Options{Dir: t.TempDir()})
			task := operators.Task{Device: d, Queue: q, Lease: l, StrideRows: n / 4, Lanes: 1, Spill: store}
			ctx := context.Background()
			lane, err := o.NewLocal(task)
			require.NoError(t, err)
			for at := range strides {
				st := &gpu.Stride{Schema: in, Rows: n}
				keys, seconds, values, amounts := make([]int64, n), make([]int32, n), make([]int64, n), make([]int64, n)
				valid := make([]byte, gpu.BitmapBytes(n))
				for i := range n {
					row := int64(at*n + i)
					group := row % (strides * n / 2)
					keys[i], seconds[i], values[i], amounts[i] = group*7919, int32(group%5), row, 2*row
					if row%3 > 0 {
						valid[i/8] |= 1 << (i % 8)
					}
				}
				for i, b := range [][]byte{gpu.BytesOf(keys), gpu.BytesOf(seconds), gpu.BytesOf(values),
					gpu.BytesOf(amounts)} {
					column := gpu.Column{Type: in.Fields[i].Type, Len: n, Data: gpu.WrapBytes(b)}
					if i == 2 {
						column.Valid = gpu.WrapBytes(valid)
					}
					st.Cols = append(st.Cols, column)
				}
				up, err := q.Upload(l, st)
				require.NoError(t, err)
				require.NoError(t, lane.Push(ctx, at, up))
			}
			require.NoError(t, lane.Combine(ctx))
			require.NoError(t, lane.Close())
			require.NoError(t, o.Finalize(ctx, task))
			require.Greater(t, o.Parts(), 1)
			if c.blocks {
				require.Zero(t, o.held.Rows(0, o.held.Len()), "all rows are raw")
			}
			seen := map[int64]bool{}
			for part := range o.Parts() {
				require.NoError(t, o.Emit(ctx, task, part, func(s *gpu.Stride) error {
					down, err := q.Download(h, s)
					require.NoError(t, err)
					defer down.Release()
					at := len(spec.Keys)
					for r := range down.Rows {
						key := int64(down.Cols[0].ScalarAt(r).Int.Lo)
						group := key / 7919
						require.False(t, seen[group])
						seen[group] = true
						var sum, least, total int64
						least = -1
						for _, row := range []int64{group, group + strides*n/2} {
							total += 2 * row
							if row%3 > 0 {
								sum += row
								if least < 0 {
									least = row
								}
							}
						}
						if at == 2 {
							require.Equal(t, group%5, int64(down.Cols[1].ScalarAt(r).Int.Lo))
						}
						require.Equal(t, uint64(2), down.Cols[at].ScalarAt(r).Int.Lo)
						require.Equal(t, sum, int64(down.Cols[at+1].ScalarAt(r).Int.Lo))
						require.Equal(t, least, int64(down.Cols[at+2].ScalarAt(r).Int.Lo))
						require.Equal(t, total, int64(down.Cols[at+3].ScalarAt(r).Int.Lo))
					}
					return nil
				}))
			}
			require.Len(t, seen, strides*n/2)
			if c.blocks {
				require.Positive(t, o.ofRaw.expected())
				require.Nil(t, o.ofRaw.unfit.Load())
			} else {
				require.Nil(t, o.ofRaw)
			}
			require.NoError(t, o.Close())
			require.NoError(t, store.Close())
			require.NoError(t, q.Close())
			require.NoError(t, l.Close())
			require.NoError(t, h.Close())
		})
	}
}
