package cuda

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tables that are larger than the driver copies from pageable memory are written and read by page-locked memory, which
// is registered in pieces.
func TestLargeTablesAreCopiedAcrossPieces(t *testing.T) {
	d := openWith(t, 0, 2*segmentSize)
	defer func() { require.NoError(t, d.Close()) }()
	lease := d.Budget().Lease("tables")
	q, err := d.NewQueue("tables")
	require.NoError(t, err)
	for _, n := range []int{1, pageableMost, pageableMost + 1, segmentSize + 12_345} {
		want := bytes.Repeat([]byte{byte(n), 1, 2, 3, 5, 7, 11}, n/7+1)[:n]
		want[rand.IntN(n)]++
		got := make([]byte, n)
		o := q.(*queue).begin("table", lease)
		b := o.alloc(int64(n))
		o.write(b, 0, want)
		o.read(b, 0, got)
		end(o, &got, &err)
		require.NoError(t, err, n)
		require.True(t, bytes.Equal(want, got), n)
	}
	require.NoError(t, q.Close())
	require.NoError(t, lease.Close())
}
