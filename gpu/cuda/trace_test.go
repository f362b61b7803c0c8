package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

func TestTheNewestSpansAreKept(t *testing.T) {
	kept := maxSpans
	maxSpans = 3
	defer func() { maxSpans = kept }()
	d := openTest(t, 1<<26)
	old, young := d.budget.Lease("old"), d.budget.Lease("young")
	for _, l := range []*gpu.Lease{old, old, young, old, young} {
		d.trace.add(leaseSpan{gpu.Span{Lane: laneUp, Bytes: 1}, l}, 0)
	}
	counts := func(of ...*gpu.Lease) (n int) {
		for _, s := range d.Spans(of...) {
			if s.Lane == laneUp {
				n++
			}
		}
		return n
	}
	require.Equal(t, []int{3, 1, 2}, []int{counts(), counts(old), counts(young)})
	require.Equal(t, int64(5), d.Activity().BytesUp)
	require.Equal(t, []int64{3, 2}, []int64{old.Activity().BytesUp, young.Activity().BytesUp})
	require.NoError(t, old.Close())
	require.NoError(t, young.Close())
	require.NoError(t, d.Close())
}

// TestFewNumbersAreNotCopiedDown has few row ids in a buffer with room for many: a kernel reads them, so that they
// do not wait for large copies.
func TestFewNumbersAreNotCopiedDown(t *testing.T) {
	const rows = 100_000
	d := openTest(t, 1<<26)
	q, err := d.NewQueue("select")
	require.NoError(t, err)
	l, h := d.Budget().Lease("select"), d.HostBudget().Lease("rows")
	truth, err := h.Alloc(gpu.BitmapBytes(rows))
	require.NoError(t, err)
	clear(truth.Bytes())
	truth.Bytes()[rows/16] = 1 << 2
	schema := gpu.NewSchema(gpu.Field{Name: "truth", Type: gpu.Of(gpu.Bool)})
	up, err := q.Upload(l, &gpu.Stride{Schema: schema, Rows: rows,
		Cols: []gpu.Column{{Type: gpu.Of(gpu.Bool), Len: rows, Data: truth}}})
	require.NoError(t, err)
	ids, err := q.Select(l, up.Cols[0], true)
	require.NoError(t, err)
	require.Greater(t, ids.Data.Size(), int64(readbackBytes))
	down, err := q.Download(h, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "id", Type: ids.Type}), Rows: ids.Len,
		Cols: []gpu.Column{ids}})
	require.NoError(t, err)
	require.Equal(t, []int32{rows/2 + 2}, gpu.Values[int32](down.Cols[0].Data, down.Rows))
	for _, s := range d.Spans() {
		require.NotEqual(t, laneDown, s.Lane)
	}
	down.Release()
	up.Release()
	require.NoError(t, q.Close())
	require.NoError(t, l.Close())
	require.NoError(t, h.Close())
	require.NoError(t, d.Close())
}
