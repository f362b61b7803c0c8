package host

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Scatter implements gpu.Queue. It inverts the ids in order, so that the last row with an
// id counts, and gathers the rows by the inverse on all cores.
func (q *queue) Scatter(l *gpu.Lease, cols []gpu.Column, ids gpu.Column, n int) ([]gpu.Column, error) {
	if err := q.check(cols, []gpu.Column{ids}); err != nil {
		return nil, err
	}
	out, err := scatter(q.dev.cores, l, cols, ids, n)
	return out, q.fail(err)
}

func scatter(cores parallel.Cores, l *gpu.Lease, cols []gpu.Column, ids gpu.Column, n int) ([]gpu.Column, error) {
	if err := gpu.CheckIDs(ids); err != nil {
		return nil, err
	}
	if err := gpu.CheckScatter(cols, ids, n); err != nil {
		return nil, err
	}
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
	return gather(cores, l, cols, inverse, true)
}
