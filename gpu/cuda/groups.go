package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// groups assigns dense ids to keys, in the order of first appearance. The null of a single key
// column has its own slot in the index. Several columns have null bits in their packed key.
type groups struct {
	dev   *Device
	lease *gpu.Lease
	codec *codec
	index *index
	nulls []bool // columns that have had a validity bitmap
	one   bool   // there are no key columns, and a row has been seen
}

// maxHint bounds the number of groups that the first table is made for, whatever the hint says.
const maxHint = 1 << 20

// NewGroups implements gpu.Queue.
func (q *queue) NewGroups(l *gpu.Lease, types []gpu.Type, hint gpu.GroupHint) (out gpu.Groups, err error) {
	o := q.begin("new groups", l)
	defer end(o, &out, &err)
	if len(types) > maxKeys {
		return nil, fmt.Errorf("%d group keys are more than %d", len(types), maxKeys)
	}
	g := &groups{dev: q.dev, lease: l, nulls: make([]bool, len(types))}
	withNull := make([]bool, len(types))
	for i := range withNull {
		withNull[i] = len(types) > 1
	}
	g.codec = newCodec(types, withNull, l)
	g.index = newIndex(g.codec.kind, g.codec.words, l, true)
	if hint.Groups > 0 {
		g.index.reserve(o, min(hint.Groups, maxHint))
	}
	if o.failed() {
		g.Release()
		return nil, nil
	}
	return g, nil
}

// Len implements gpu.Groups.
func (g *groups) Len() int {
	if g.one {
		return 1
	}
	return g.index.n
}

// Release implements gpu.Groups.
func (g *groups) Release() {
	g.codec.release()
	g.index.release()
}

// assignment has the group of every row.
type assignment struct {
	ids  gpu.Column
	runs bool // rows of a group are consecutive
}

// IDs implements gpu.Assignment.
func (a assignment) IDs() gpu.Column { return a.ids }

// Release implements gpu.Assignment.
func (a assignment) Release() { a.ids.Release() }

// Assign implements gpu.Groups. It waits for the device once per batch of rows; most calls are one
// batch.
func (g *groups) Assign(gq gpu.Queue, l *gpu.Lease, keys []gpu.Column, n int) (out gpu.Assignment, err error) {
	q, err := g.dev.queue(gq)
	if err != nil {
		return nil, err
	}
	o := q.begin("assign groups", l)
	defer end(o, &out, &err)
	if o.takes(keys...) != nil {
		return nil, o.err
	}
	if err := g.codec.check(keys, n); err != nil {
		return nil, err
	}
	ids := o.alloc(int64(n) * 4)
	if len(keys) == 0 {
		o.fill(ids, 0, int64(n)*4, 0)
		if !o.failed() {
			g.one = g.one || n > 0
		}
	} else {
		before, strings := g.index.indexState, g.codec.strings()
		r := g.codec.pack(o, keys, n, true)
		if len(keys) == 1 {
			r.valid = addr(keys[0].Valid)
		}
		g.index.assign(o, r, ids)
		if o.failed() {
			g.codec.restore(o, strings)
			g.index.restore(o, before)
			return nil, nil
		}
		for i, c := range keys {
			g.nulls[i] = g.nulls[i] || c.Valid != nil
		}
	}
	return assignment{ids: gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: o.keep(ids)}}, nil
}

// Keys implements gpu.Groups.
func (g *groups) Keys(gq gpu.Queue, l *gpu.Lease, from, to int) (out []gpu.Column, err error) {
	q, err := g.dev.queue(gq)
	if err != nil {
		return nil, err
	}
	o := q.begin("group keys", l)
	defer end(o, &out, &err)
	if err := gpu.CheckGroups("keys", from, to, g.Len()); err != nil {
		return nil, err
	}
	out = make([]gpu.Column, len(g.codec.types))
	for i := range out {
		out[i] = g.key(o, i, from, to)
	}
	return out, nil
}

type unpackArgs struct {
	store, null, out, valid  uint64
	from, n                  int64
	exact, words             int32
	word, shift, width, nbit int32
}

// key unpacks key column i of groups [from, to).
func (g *groups) key(o *op, i, from, to int) gpu.Column {
	t, n, p := g.codec.types[i], to-from, g.codec.fields[i]
	out := gpu.Column{Type: t, Len: n}
	a := unpackArgs{store: addr(g.index.store), from: int64(from), n: int64(n), words: int32(g.index.words),
		word: int32(p.word), shift: int32(p.shift), width: int32(t.Width()), nbit: int32(p.null)}
	if g.codec.kind == exactKeys {
		a.exact = 1
	}
	if len(g.codec.types) == 1 && n > 0 {
		a.null = addr(g.index.slots) + 8<<g.index.bits
	}
	size := int64(n) * int64(t.Width())
	switch {
	case t.IsVar():
		a.width, size = 4, int64(n)*4
	case t.Kind == gpu.Bool:
		size = gpu.BitmapBytes(n)
	}
	out.Data = o.keep(o.alloc(size))
	if g.nulls[i] {
		out.Valid = o.keep(o.alloc(gpu.BitmapBytes(n)))
	}
	a.out, a.valid = addr(out.Data), addr(out.Valid)
	launch(o, "unpack_key", blocks((n+63)/64*64, 256), 256, 0, a)
	if t.IsVar() {
		return g.codec.interner[i].strings(o, out, g.index.n)
	}
	return out
}

// strings replaces codes of the interner by their strings: with a dictionary as long as keys share
// values, otherwise without one. keys is the number of keys.
func (in *interner) strings(o *op, codes gpu.Column, keys int) gpu.Column {
	values := in.values(codes.Type)
	if values.Len > keys/2 && values.Len > smallDictionary {
		codes.Dict = &gpu.Dictionary{Values: values}
		o.drop(codes)
		plain := o.expand(codes)
		return o.keepColumn(plain)
	}
	copied := gpu.Column{Type: values.Type, Len: values.Len}
	bytes := in.used
	copied.Offsets, copied.Data = o.keep(o.alloc(int64(values.Len+1)*4)), o.keep(o.alloc(bytes))
	if values.Len == 0 {
		o.fill(copied.Offsets, 0, 4, 0)
	} else {
		o.copy(copied.Offsets, 0, values.Offsets, 0, copied.Offsets.Size())
	}
	o.copy(copied.Data, 0, values.Data, 0, bytes)
	codes.Dict = &gpu.Dictionary{Values: copied}
	return codes
}

// keepColumn marks the buffers of a plain column of the op as the caller's.
func (o *op) keepColumn(c gpu.Column) gpu.Column {
	o.keep(c.Data)
	o.keep(c.Offsets)
	o.keep(c.Valid)
	return c
}
