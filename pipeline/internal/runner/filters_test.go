package runner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// TestAFilterThatDropsLittleEnds has a filter of one key, and strides in which every third
// row has another one, or every second.
func TestAFilterThatDropsLittleEnds(t *testing.T) {
	d, err := host.Open(host.Options{Threads: 1})
	require.NoError(t, err)
	l := d.Budget().Lease("test")
	q, err := d.NewQueue("test")
	require.NoError(t, err)
	task := operators.Task{Device: d, Queue: q, Lease: l, Lanes: 1, Filter: operators.BloomFilter}
	column := func(rows, every int) gpu.Column {
		buf, err := l.Alloc(int64(rows) * 4)
		require.NoError(t, err)
		for i, v := 0, gpu.Values[int32](buf, rows); i < rows; i++ {
			v[i] = 7
			if i%every == every-1 {
				v[i] = 1 << 20
			}
		}
		return gpu.Column{Type: gpu.Of(gpu.Int32), Len: rows, Data: buf}
	}
	build := column(1, 2)
	keys, err := operators.NewKeyFilter(task, []gpu.Column{build}, 1)
	require.NoError(t, err)
	schema := gpu.NewSchema(gpu.Field{Name: "k", Type: gpu.Of(gpu.Int32)})
	const rows = trialRows / 2
	for _, c := range []struct {
		every  int
		always bool
		ends   bool
	}{{2, false, false}, {5, false, true}, {5, true, false}} {
		f := &scanFilter{JoinFilter: &physical.JoinFilter{Columns: []int{0}}, keys: keys,
			scan:   &opRun{account: &account{}},
			always: c.always}
		for range 3 {
			out, err := f.apply(task, &gpu.Stride{Schema: schema, Cols: []gpu.Column{column(rows, c.every)},
				Rows: rows})
			require.NoError(t, err)
			ended := c.ends && f.tested.Load() == trialRows && out.Rows == rows
			if !ended {
				require.Equal(t, rows-rows/c.every, out.Rows)
			}
			out.Release()
		}
		require.Equal(t, c.ends, f.tested.Load() == trialRows)
		require.Equal(t, f.dropped.Load(), f.scan.dropped.Load())
	}
	build.Release()
	keys.Release()
	require.NoError(t, q.Close())
	require.NoError(t, l.Close())
	require.NoError(t, d.Close())
}
