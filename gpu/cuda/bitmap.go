package cuda

import "github.com/gstream/gstream/gpu"

type bitmapArgs struct {
	ids, bitmap uint64
	n           int64
}

// NewBitmap implements gpu.Queue.
func (q *queue) NewBitmap(l *gpu.Lease, n int) (out gpu.Column, err error) {
	o := q.begin("marks", l)
	defer end(o, &out, &err)
	if err := gpu.CheckBitmapRows(n); err != nil {
		return out, err
	}
	bits := o.alloc(gpu.BitmapBytes(n))
	o.fill(bits, 0, gpu.BitmapBytes(n), 0)
	return gpu.Column{Type: gpu.Of(gpu.Bool), Len: n, Data: o.keep(bits)}, nil
}

// SetBits implements gpu.Queue. See scatter.cu.
func (q *queue) SetBits(l *gpu.Lease, bitmap, ids gpu.Column) (err error) {
	o := q.begin("mark", l)
	var none struct{}
	defer end(o, &none, &err)
	o.takes(bitmap, ids)
	if err := gpu.CheckSetBits(bitmap, ids); err != nil {
		return err
	}
	launch(o, "mark_rows", blocks(ids.Len, 256), 256, 0, bitmapArgs{addr(ids.Data), addr(bitmap.Data), int64(ids.Len)})
	return nil
}

type unmatchedArgs struct {
	probe, build, rest, toProbe, toBuild uint64
	pairs, rests                         int64
}

// AddUnmatched implements gpu.Queue. See scatter.cu.
func (q *queue) AddUnmatched(l *gpu.Lease, probe, build, rest gpu.Column) (outProbe, outBuild gpu.Column, err error) {
	o := q.begin("add unmatched", l)
	var out [2]gpu.Column
	defer func() { outProbe, outBuild = out[0], out[1] }()
	defer end(o, &out, &err)
	o.takes(probe, build, rest)
	if err := gpu.CheckUnmatched(probe, build, rest); err != nil {
		return outProbe, outBuild, err
	}
	n := probe.Len + rest.Len
	for i := range out {
		out[i] = gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: o.keep(o.alloc(int64(n) * 4))}
	}
	launch(o, "add_unmatched", blocks(n, 256), 256, 0,
		unmatchedArgs{addr(probe.Data), addr(build.Data), addr(rest.Data),
			addr(out[0].Data), addr(out[1].Data), int64(probe.Len), int64(rest.Len)})
	return out[0], out[1], nil
}
