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

// textPart is TextPart of move.cu.
type textPart struct {
	bytes, offsets, valid, codes uint64
	start                        int64
}

type gatherTextArgs struct {
	parts, ids, dst, out, valid uint64
	n                           int64
	count                       int32
}

// Gather implements gpu.Queue.
func (q *queue) Gather(l *gpu.Lease, cols []gpu.Column, ids gpu.Column, outer bool) (out []gpu.Column, err error) {
	o := q.begin("gather", l)
	defer end(o, &out, &err)
	o.takes(cols...)
	o.takes(ids)
	if err := gpu.CheckIDs(ids); err != nil {
		return nil, err
	}
	return o.gather(cols, ids.Data, ids.Len, outer), nil
}

// GatherParts implements gpu.Queue.
func (q *queue) GatherParts(l *gpu.Lease, parts []gpu.Column, ids gpu.Column) (out gpu.Column, err error) {
	o := q.begin("gather", l)
	defer end(o, &out, &err)
	o.takes(parts...)
	o.takes(ids)
	if err := gpu.CheckIDs(ids); err != nil {
		return out, err
	}
	if len(parts) == 0 || !parts[0].Type.IsVar() {
		return out, fmt.Errorf("gather from parts wants columns of bytes")
	}
	return o.gatherTexts([][]gpu.Column{parts}, ids.Data, ids.Len, false)[0], nil
}

// gather gathers n rows of columns. The results are kept.
func (o *op) gather(cols []gpu.Column, ids *gpu.Buffer, n int, outer bool) []gpu.Column {
	out := make([]gpu.Column, len(cols))
	var texts [][]gpu.Column
	var at []int
	for i, c := range cols {
		if c.Dict == nil && c.Type.IsVar() {
			texts, at = append(texts, cols[i:i+1]), append(at, i)
			continue
		}
		r := gpu.Column{Type: c.Type, Len: n, Dict: o.retainDict(c.Dict)}
		if c.Valid != nil || outer {
			r.Valid = o.gatherBits(c.Valid, ids, n)
		}
		if c.Type.Kind == gpu.Bool {
			r.Data = o.gatherBits(c.Data, ids, n)
		} else {
			r.Data = o.gatherFixed(c, c.DataWidth(), ids, n, outer)
		}
		out[i] = r
	}
	for k, c := range o.gatherTexts(texts, ids, n, outer) {
		out[at[k]] = c
	}
	return out
}

// retainDict adds references to a dictionary for the caller. It returns nil for nil and
// after an error.
func (o *op) retainDict(d *gpu.Dictionary) *gpu.Dictionary {
	if d == nil || o.err != nil {
		return nil
	}
	o.retain(d.Values.Data)
	o.retain(d.Values.Offsets)
	o.retain(d.Values.Valid)
	return d
}

// retainColumn adds references to a column for the caller.
func (o *op) retainColumn(c gpu.Column) gpu.Column {
	return gpu.Column{Type: c.Type, Len: c.Len, Data: o.retain(c.Data), Offsets: o.retain(c.Offsets),
		Valid: o.retain(c.Valid), Dict: o.retainDict(c.Dict)}
}

func (o *op) gatherFixed(c gpu.Column, width int, ids *gpu.Buffer, n int, outer bool) *gpu.Buffer {
	dst := o.alloc(int64(n) * int64(width))
	args := gatherArgs{src: addr(c.Data), dst: addr(dst), ids: addr(ids), n: int64(n)}
	args.outer = flag(outer)
	launch(o, fmt.Sprintf("gather_w%d", width), blocks(n, 4*256), 256, 0, args)
	return o.keep(dst)
}

// gatherBits gathers a bitmap. A nil bitmap is all ones, and id -1 gives 0.
func (o *op) gatherBits(src, ids *gpu.Buffer, n int) *gpu.Buffer {
	dst := o.alloc(gpu.BitmapBytes(n))
	launch(o, "gather_bits", blocks(n, 4*256), 256, 0,
		gatherArgs{src: addr(src), dst: addr(dst), ids: addr(ids), n: int64(n)})
	return o.keep(dst)
}

// gatherTexts gathers columns of bytes, each of which consists of parts. It first gathers the
// lengths, then computes the offsets, and copies the bytes once the totals are known.
func (o *op) gatherTexts(cols [][]gpu.Column, ids *gpu.Buffer, n int, outer bool) []gpu.Column {
	if len(cols) == 0 {
		return nil
	}
	out := make([]gpu.Column, len(cols))
	totals := o.alloc(int64(len(cols)) * 8)
	args := make([]gatherTextArgs, len(cols))
	for k, parts := range cols {
		list, nulls := o.textParts(parts)
		offsets := o.alloc(int64(n+1) * 4)
		out[k] = gpu.Column{Type: parts[0].Type, Len: n, Offsets: o.keep(offsets)}
		args[k] = gatherTextArgs{parts: addr(list), ids: addr(ids), out: addr(offsets), n: int64(n),
			count: int32(len(parts))}
		if nulls || outer {
			out[k].Valid = o.keep(o.alloc(gpu.BitmapBytes(n)))
			args[k].valid = addr(out[k].Valid)
		}
		launch(o, "gather_lengths", blocks((n+63)/64*64, 256), 256, 0, args[k])
		sums, off := o.scan(offsets, n, true)
		o.copy(totals, int64(k)*8, sums, off, 8)
	}
	bytes := make([]int64, len(cols))
	if !o.read(totals, 0, gpu.BytesOf(bytes)) {
		return out
	}
	for k := range out {
		if bytes[k] > math.MaxInt32 {
			o.fail(gpu.TooManyBytes(bytes[k], n))
			return out
		}
		data := o.alloc(bytes[k])
		out[k].Data = o.keep(data)
		args[k].dst = addr(data)
		if bytes[k] > 0 {
			launch(o, "gather_bytes", blocks(n, 256), 256, 0, args[k])
		}
	}
	return out
}

// textParts writes the list of a column's parts to the device, and reports whether a part
// has nulls.
func (o *op) textParts(parts []gpu.Column) (list *gpu.Buffer, nulls bool) {
	rows := int64(0)
	all := make([]textPart, len(parts))
	for i, p := range parts {
		text := p
		if p.Dict != nil {
			text = p.Dict.Values
			all[i].codes = addr(p.Data)
		}
		all[i].bytes, all[i].offsets, all[i].valid, all[i].start = addr(text.Data), addr(text.Offsets), addr(p.Valid),
			rows
		rows += int64(p.Len)
		nulls = nulls || p.Valid != nil
	}
	list = o.alloc(int64(len(all)) * 40)
	o.write(list, 0, gpu.BytesOf(all))
	return list, nulls
}
