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
