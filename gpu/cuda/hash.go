package cuda

import "github.com/gstream/gstream/gpu"

type hashArgs struct {
	values                          uint64
	texts                           texts
	hashes, codes, valid, out, seed uint64
	n                               int64
	load, first                     int32
}

// Hash implements gpu.Queue: one kernel per column, and one more over the values of a dictionary
// that has at most as many values as the column has rows.
func (q *queue) Hash(l *gpu.Lease, keys []gpu.Column, seed uint64) (out gpu.Column, err error) {
	o := q.begin("hash", l)
	defer end(o, &out, &err)
	o.takes(keys...)
	out.Type = gpu.Of(gpu.Uint64)
	if len(keys) == 0 {
		return out, nil
	}
	out.Len = keys[0].Len
	out.Data = o.keep(o.alloc(int64(out.Len) * 8))
	for i, c := range keys {
		o.hashColumn(c, out.Data, i == 0, seed)
	}
	return out, nil
}

// hashColumn writes the hashes of a column's rows, or combines them with those in out.
func (o *op) hashColumn(c gpu.Column, out *gpu.Buffer, first bool, seed uint64) {
	a := hashArgs{values: addr(c.Data), valid: addr(c.Valid), out: addr(out), seed: seed, n: int64(c.Len),
		load: loadOf(c.Type)}
	a.first = flag(first)
	kernel := "hash_words"
	switch {
	case c.Dict != nil && c.Dict.Values.Len <= c.Len && c.Dict.Values.Len > 0:
		kernel = "hash_codes"
		hashes := o.alloc(int64(c.Dict.Values.Len) * 8)
		o.hashColumn(c.Dict.Values, hashes, true, seed)
		a.hashes, a.codes = addr(hashes), addr(c.Data)
	case c.Type.IsVar():
		kernel = "hash_texts"
		a.texts = textsOf(c)
	case c.Type.Wide:
		kernel = "hash_wide"
	}
	launch(o, kernel, blocks(c.Len, 256), 256, 0, a)
}
