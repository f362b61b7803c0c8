package sort_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/spill"
)

// TestRunsOfFewKeys sorts rows of few keys in runs: many pages of a run, of one morsel, begin with
// equal keys, and each must be in the range of its rows. Whatever memory a range asks for, it waits when the output
// holds all of it for a moment.
func TestRunsOfFewKeys(t *testing.T) {
	const rows, strides, keys = 6000, 5, 4
	schema := gpu.NewSchema(gpu.Field{Name: "key", Type: gpu.Of(gpu.Int32)},
		gpu.Field{Name: "row", Type: gpu.Of(gpu.Int32)})
	onHost, err := host.Open(host.Options{Threads: 1, Memory: 2 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, onHost.Close()) })
	onGPU := cudatest.Open(t, cuda.Options{Memory: 2 << 20, HostMemory: 8 << 20})
	for _, c := range []struct {
		name  string
		dev   gpu.Device
		lanes int
	}{{"CPU, one lane", onHost, 1}, {"CPU, a lane of three", onHost, 3}, {"GPU", onGPU, 1}} {
		t.Run(c.name, func(t *testing.T) {
			d := c.dev
			ctx := context.Background()
			q, err := d.NewQueue("sort")
			require.NoError(t, err)
			store := spill.NewStore(d, spill.Options{Dir: t.TempDir(), Always: true})
			l, h := d.Budget().Lease("sort"), d.HostBudget().Lease("rows")
			task := operators.Task{Device: d, Queue: q, Lease: l, StrideRows: 700, Lanes: c.lanes, Spill: store}
			o, err := sort.New(sort.Spec{In: schema, Keys: []sort.Key{{Column: 0}}, Limit: -1})
			require.NoError(t, err)
			local, err := o.NewLocal(task)
			require.NoError(t, err)
			var want []int32
			for k := range keys {
				for i := k; i < strides*rows; i += keys {
					want = append(want, int32(i))
				}
			}
			for s := range strides {
				st := &gpu.Stride{Schema: schema, Rows: rows}
				for c := range schema.Fields {
					b, err := h.Alloc(rows * 4)
					require.NoError(t, err)
					values := gpu.Values[int32](b, rows)
					for i := range values {
						if values[i] = int32(s*rows + i); c == 0 {
							values[i] %= keys
						}
					}
					st.Cols = append(st.Cols, gpu.Column{Type: schema.Fields[c].Type, Len: rows, Data: b})
				}
				up, err := q.Upload(l, st)
				require.NoError(t, err)
				require.NoError(t, local.Push(ctx, 0, up)) // of one morsel
			}
			require.NoError(t, local.Combine(ctx))
			require.NoError(t, local.Close())
			require.NoError(t, o.Finalize(ctx, task))
			require.Greater(t, o.Parts(), 1)
			output := d.Budget().Lease("output")
			d.Budget().SetPatience(time.Minute)
			var got []int32
			for part := range o.Parts() {
				// The output takes what is left before the sort asks for it, and gives it back soon.
				var asked atomic.Int64
				d.Budget().SetFault(func(bool) error {
					if asked.Add(1) == int64(1+part%40) {
						if left := output.Available(); output.Reserve(left) == nil {
							time.AfterFunc(time.Millisecond, func() { output.Unreserve(left) })
						}
					}
					return nil
				})
				require.NoError(t, o.Emit(ctx, task, part, func(s *gpu.Stride) error {
					down, err := q.Download(h, s)
					require.NoError(t, err)
					got = append(got, gpu.Values[int32](down.Cols[1].Data, down.Rows)...)
					down.Release()
					return nil
				}))
			}
			d.Budget().SetFault(nil)
			require.Equal(t, want, got)
			require.Eventually(t, func() bool { used, _ := output.Used(); return used == 0 }, time.Minute,
				time.Millisecond)
			require.NoError(t, output.Close())
			require.NoError(t, o.Close())
			require.NoError(t, store.Close())
			require.NoError(t, q.Close())
			require.NoError(t, l.Close())
			require.NoError(t, h.Close())
		})
	}
}

// sortCounter counts the sorts of a queue.
type sortCounter struct {
	gpu.Queue
	sorts int
}

func (q *sortCounter) Sort(l *gpu.Lease, keys []gpu.SortKey) (gpu.Column, error) {
	q.sorts++
	return q.Queue.Sort(l, keys)
}

// TestRunsHaveManyRows sorts strides of few rows, all of which spill, and rows of which a run has few.
// Runs of a stride each, or pages of a row, would take a sort a stride, or most of the rows in memory.
// A limit that drops too few rows makes runs, too.
func TestRunsHaveManyRows(t *testing.T) {
	schema := gpu.NewSchema(gpu.Field{Name: "key", Type: gpu.Of(gpu.Int32)},
		gpu.Field{Name: "text", Type: gpu.Of(gpu.String)})
	for _, c := range []struct {
		name                  string
		strides, rows, length int // of a stride and a text
		memory                int64
		always                bool
		sorts                 int // at most
		offset, limit         int64
		lanes                 int
	}{
		{"strides of few rows", 600, 10, 8, 16 << 20, true, 8, 0, -1, 1},
		{"long rows", 400, 10, 4 << 10, 4 << 20, false, 200, 0, -1, 1},
		{"long rows up to a limit", 400, 10, 4 << 10, 4 << 20, false, 200, 700, 2500, 1},
		{"long rows up to a limit, a lane of three", 400, 10, 4 << 10, 8 << 20, false, 400, 0, 3900, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			d, err := host.Open(host.Options{Threads: 1, Memory: c.memory})
			require.NoError(t, err)
			plain, err := d.NewQueue("sort")
			require.NoError(t, err)
			q := &sortCounter{Queue: plain}
			store := spill.NewStore(d, spill.Options{Dir: t.TempDir(), Always: c.always})
			l, h := d.Budget().Lease("sort"), d.HostBudget().Lease("rows")
			task := operators.Task{Device: d, Queue: q, Lease: l, StrideRows: c.rows, Lanes: c.lanes, Spill: store}
			o, err := sort.New(sort.Spec{In: schema, Keys: []sort.Key{{Column: 0}}, Offset: c.offset, Limit: c.limit})
			require.NoError(t, err)
			local, err := o.NewLocal(task)
			require.NoError(t, err)
			total := c.strides * c.rows
			for s := range c.strides {
				keys, err := l.Alloc(int64(c.rows) * 4)
				require.NoError(t, err)
				offsets, err := l.Alloc(int64(c.rows+1) * 4)
				require.NoError(t, err)
				text, err := l.Alloc(int64(c.rows * c.length))
				require.NoError(t, err)
				for i := range c.rows {
					gpu.Values[int32](keys, c.rows)[i] = int32((s*c.rows + i) * 7919 % total)
				}
				for i := range c.rows + 1 {
					gpu.Values[int32](offsets, c.rows+1)[i] = int32(i * c.length)
				}
				require.NoError(t, local.Push(ctx, s, &gpu.Stride{Schema: schema, Rows: c.rows, Cols: []gpu.Column{
					{Type: schema.Fields[0].Type, Len: c.rows, Data: keys},
					{Type: schema.Fields[1].Type, Len: c.rows, Data: text, Offsets: offsets}}}))
			}
			require.NoError(t, local.Combine(ctx))
			require.NoError(t, local.Close())
			require.NoError(t, o.Finalize(ctx, task))
			next := int32(c.offset)
			for part := range o.Parts() {
				require.NoError(t, o.Emit(ctx, task, part, func(s *gpu.Stride) error {
					for _, v := range gpu.Values[int32](s.Cols[0].Data, s.Rows) {
						require.Equal(t, next, v)
						next++
					}
					s.Release()
					return nil
				}))
			}
			if c.limit >= 0 {
				total = int(c.offset + c.limit)
			}
			require.EqualValues(t, total, next)
			require.LessOrEqual(t, q.sorts, c.sorts)
			require.NotZero(t, store.Stats(l).Disk.In+store.Stats(l).Host.In)
			require.NoError(t, o.Close())
			require.NoError(t, store.Close())
			require.NoError(t, q.Close())
			require.NoError(t, l.Close())
			require.NoError(t, h.Close())
			require.NoError(t, d.Close())
		})
	}
}
