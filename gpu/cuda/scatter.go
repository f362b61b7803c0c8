package cuda

import "github.com/gstream/gstream/gpu"

type invertArgs struct {
	ids, inverse uint64
	rows, n      int64
}

// Scatter implements gpu.Queue: a gather by the inverse of the ids. See scatter.cu.
func (q *queue) Scatter(l *gpu.Lease, cols []gpu.Column, ids gpu.Column, n int) (out []gpu.Column, err error) {
	o := q.begin("scatter", l)
	defer end(o, &out, &err)
	o.takes(cols...)
	o.takes(ids)
	if err := gpu.CheckIDs(ids); err != nil {
		return nil, err
	}
	if err := gpu.CheckScatter(cols, ids, n); err != nil {
		return nil, err
	}
	inverse := o.alloc(int64(n) * 4)
	o.fill(inverse, 0, int64(n)*4, 0xff) // -1
	launch(o, "scatter_invert", blocks(ids.Len, 256), 256, 0,
		invertArgs{ids: addr(ids.Data), inverse: addr(inverse), rows: int64(ids.Len), n: int64(n)})
	return o.gather(cols, inverse, n, true), nil
}
