package cuda

import (
	"fmt"
	"math"

	"github.com/gstream/gstream/gpu"
)

type gatherArgs struct {
	src, dst, ids uint64
	n             int64
	outer         int32
}

type gatherBytesArgs struct {
	src, offsets, valid, ids, dst, out uint64
	n                                  int64
}

// Gather implements gpu.Queue.
func (q *queue) Gather(l *gpu.Lease, cols []gpu.Column, ids gpu.Column, outer bool) (out []gpu.Column, err error) {
	o := q.begin("gather", l)
	defer o.end(&err)
	if ids.Type.Kind != gpu.Int32 || ids.Valid != nil || ids.Dict != nil {
		return nil, fmt.Errorf("row ids must be a plain INTEGER column without nulls, not %v", ids.Type)
	}
	return o.gather(cols, ids.Data, ids.Len, outer), nil
}

// gather gathers n rows of columns; the results are kept.
func (o *op) gather(cols []gpu.Column, ids *gpu.Buffer, n int, outer bool) []gpu.Column {
	out := make([]gpu.Column, len(cols))
	var texts []int // columns of bytes
	for i, c := range cols {
		r := gpu.Column{Type: c.Type, Len: n}
		if c.Valid != nil || outer {
			r.Valid = o.gatherBits(c.Valid, ids, n)
		}
		switch {
		case c.Dict != nil:
			r.Dict = o.retainDict(c.Dict)
			r.Data = o.gatherFixed(c, 4, ids, n, outer)
		case c.Type.Kind == gpu.Bool:
			r.Data = o.gatherBits(c.Data, ids, n)
		case c.Type.IsVar():
			texts = append(texts, i)
		default:
			r.Data = o.gatherFixed(c, c.Type.Width(), ids, n, outer)
		}
		out[i] = r
	}
	o.gatherTexts(out, cols, texts, ids, n)
	return out
}

// retainDict hands a dictionary on; nil for nil and after an error.
func (o *op) retainDict(d *gpu.Dictionary) *gpu.Dictionary {
	if d == nil || o.failed() {
		return nil
	}
	o.retain(d.Values.Data)
	o.retain(d.Values.Offsets)
	o.retain(d.Values.Valid)
	return d
}

// retainColumn hands a whole column on.
func (o *op) retainColumn(c gpu.Column) gpu.Column {
	return gpu.Column{Type: c.Type, Len: c.Len, Data: o.retain(c.Data), Offsets: o.retain(c.Offsets), Valid: o.retain(c.Valid), Dict: o.retainDict(c.Dict)}
}

func (o *op) gatherFixed(c gpu.Column, width int, ids *gpu.Buffer, n int, outer bool) *gpu.Buffer {
	dst := o.alloc(int64(n) * int64(width))
	args := gatherArgs{src: addr(c.Data), dst: addr(dst), ids: addr(ids), n: int64(n)}
	if outer {
		args.outer = 1
	}
	launch(o, fmt.Sprintf("gather_w%d", width), blocks(n, 4*256), 256, 0, args)
	return o.keep(dst)
}

// gatherBits gathers a bitmap; nil is all ones, and id -1 gives 0.
func (o *op) gatherBits(src, ids *gpu.Buffer, n int) *gpu.Buffer {
	dst := o.alloc(gpu.BitmapBytes(n))
	launch(o, "gather_bits", blocks((n+63)/64*64, 256), 256, 0, gatherArgs{src: addr(src), dst: addr(dst), ids: addr(ids), n: int64(n)})
	return o.keep(dst)
}

// gatherTexts gathers the columns of bytes at the given positions: lengths,
// offsets, then, when the totals are known, bytes.
func (o *op) gatherTexts(out, cols []gpu.Column, at []int, ids *gpu.Buffer, n int) {
	if len(at) == 0 {
		return
	}
	totals := o.alloc(int64(len(at)) * 8)
	args := make([]gatherBytesArgs, len(at))
	for k, i := range at {
		c := cols[i]
		offsets := o.alloc(int64(n+1) * 4)
		out[i].Offsets = o.keep(offsets)
		args[k] = gatherBytesArgs{src: addr(c.Data), offsets: addr(c.Offsets), valid: addr(c.Valid), ids: addr(ids), out: addr(offsets), n: int64(n)}
		launch(o, "gather_lengths", blocks(n, 256), 256, 0, args[k])
		sums, off := o.scan(offsets, n, true)
		o.copy(totals, int64(k)*8, sums, off, 8)
	}
	bytes := make([]int64, len(at))
	if !o.read(totals, 0, gpu.BytesOf(bytes)) {
		return
	}
	for k, i := range at {
		if bytes[k] > math.MaxInt32 {
			o.fail(errTooManyBytes(bytes[k], n))
			return
		}
		data := o.alloc(bytes[k])
		out[i].Data = o.keep(data)
		args[k].dst = addr(data)
		if bytes[k] > 0 {
			launch(o, "gather_bytes", blocks(n, 256), 256, 0, args[k])
		}
	}
}

func errTooManyBytes(total int64, rows int) error {
	return fmt.Errorf("a column of %d rows holds %d bytes of text, above the limit of 2 GiB a stride: lower the stride size", rows, total)
}
