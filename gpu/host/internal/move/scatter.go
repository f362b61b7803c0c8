package move

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Scatter returns n rows, with row i of the columns at ids[i], and nulls elsewhere. It inverts the
// ids in order, so that the last row with an id counts, and gathers the rows by the inverse on all
// cores.
func Scatter(cores parallel.Cores, l *gpu.Lease, cols []gpu.Column, ids gpu.Column, n int) ([]gpu.Column, error) {
	buf, err := l.Alloc(int64(n) * 4)
	if err != nil {
		return nil, err
	}
	defer buf.Release()
	inverse := gpu.Values[int32](buf, n)
	for i := range inverse {
		inverse[i] = -1
	}
	for i, id := range gpu.Values[int32](ids.Data, ids.Len) {
		if uint(id) < uint(n) {
			inverse[id] = int32(i)
		}
	}
	return Gather(cores, l, cols, inverse, true)
}
