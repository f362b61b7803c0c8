package cuda

import (
	"fmt"
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// packing implements gpu.Packing. Values are packed as Sort packs its keys. Strings are packed as
// codes of an interner, which stay the same from batch to batch.
type packing struct {
	dev      *Device
	types    []gpu.Type
	interner []*interner // by column; nil for types of fixed width
}

// The layouts of sort.cu.
type (
	packWordsArgs struct {
		part        [sortParts]sortPart
		out         uint64
		n           int64
		parts, wide int32
	}
	unpackWordsArgs struct {
		words, out, valid, base uint64
		n                       int64
		wide, kind, shift, bits int32
		nulls, _                int32
	}
)

// NewPacking implements gpu.Queue.
func (q *queue) NewPacking(l *gpu.Lease, types []gpu.Type) (gpu.Packing, error) {
	if q.err != nil {
		return nil, q.err
	}
	if len(types) > maxKeys {
		return nil, fmt.Errorf("%d group keys are more than %d", len(types), maxKeys)
	}
	p := &packing{dev: q.dev, types: types, interner: make([]*interner, len(types))}
	for i, t := range types {
		if t.IsVar() {
			p.interner[i] = newInterner(l)
		}
	}
	return p, nil
}

// Release implements gpu.Packing.
func (p *packing) Release() {
	for _, in := range p.interner {
		if in != nil {
			in.release()
		}
	}
}

// packed implements gpu.PackedKeys.
type packed struct {
	*packing
	key    gpu.Column
	parts  []sortPart // the most significant first
	column []int      // the column of each part
	bits   int
}

// Key implements gpu.PackedKeys.
func (p *packed) Key() gpu.Column { return p.key }

// Bits implements gpu.PackedKeys.
func (p *packed) Bits() int { return p.bits }

// Release implements gpu.PackedKeys.
func (p *packed) Release() { p.key.Release() }

// Pack implements gpu.Packing.
func (p *packing) Pack(gq gpu.Queue, l *gpu.Lease, keys []gpu.Column, n int) (out gpu.PackedKeys, err error) {
	q, err := p.dev.queue(gq)
	if err != nil {
		return nil, err
	}
	o := q.begin("pack keys", l)
	defer end(o, &out, &err)
	if o.takes(keys...) != nil {
		return nil, o.err
	}
	if err := (&codec{types: p.types}).check(keys, n); err != nil {
		return nil, err
	}
	x := &packed{packing: p}
	before := make([]indexState, len(p.interner))
	for i, in := range p.interner {
		if in != nil {
			before[i] = in.indexState
		}
	}
	var measured []int // parts whose range is not known
	for i, c := range keys {
		for _, part := range p.partsOf(o, i, c) {
			if part.kind != sortNulls && part.bits < 0 {
				measured = append(measured, len(x.parts))
			}
			x.parts, x.column = append(x.parts, part), append(x.column, i)
		}
	}
	if o.failed() {
		for i, in := range p.interner {
			if in != nil {
				in.forget()
				in.index.restore(o, before[i])
			}
		}
		return nil, nil
	}
	if len(measured) > 0 {
		parts := make([]sortPart, len(measured))
		for i, at := range measured {
			parts[i] = x.parts[at]
		}
		o.compress(n, parts)
		for i, at := range measured {
			x.parts[at] = parts[i]
		}
	}
	for _, part := range x.parts {
		x.bits += int(part.bits)
	}
	if o.err == nil && x.bits > 64 {
		return nil, gpu.Unfit("keys of %d bits, more than 64", x.bits)
	}
	if o.err == nil && len(x.parts) > sortParts {
		return nil, gpu.Unfit("%d parts of keys, more than %d", len(x.parts), sortParts)
	}
	a := packWordsArgs{n: int64(n), parts: int32(len(x.parts))}
	copy(a.part[:], x.parts)
	x.key = gpu.Column{Type: gpu.Of(gpu.Uint32), Len: n}
	if x.bits > 32 {
		x.key.Type, a.wide = gpu.Of(gpu.Uint64), 1
	}
	x.key.Data = o.keep(o.alloc(int64(n) * int64(x.key.Type.Width())))
	a.out = addr(x.key.Data)
	launch(o, "pack_words", o.grid(n), 256, 0, a)
	return x, nil
}

// partsOf returns the parts of a key column. If their bits depend on the values, these are not set.
func (p *packing) partsOf(o *op, i int, c gpu.Column) (parts []sortPart) {
	if p.interner[i] == nil {
		parts = o.sortParts(gpu.SortKey{Column: c})
		for k := range parts {
			switch parts[k].kind {
			case sortNulls:
			case sortBits:
				parts[k].bits = 1
			default:
				parts[k].bits = -1
			}
		}
		return parts
	}
	if c.Valid != nil {
		parts = append(parts, sortPart{valid: addr(c.Valid), kind: sortNulls, bits: 1})
	}
	codes, byValue := p.interner[i].codes(o, c, true)
	part := sortPart{valid: addr(c.Valid), kind: sortU32, data: addr(codes)}
	if byValue {
		part = sortPart{valid: addr(c.Valid), kind: sortCodes, data: addr(c.Data), ranks: addr(codes),
			codes: int32(c.Dict.Values.Len)}
	}
	part.bits = int32(bits.Len(uint(max(p.interner[i].n-1, 0))))
	return append(parts, part)
}

// Unpack implements gpu.PackedKeys.
func (p *packed) Unpack(gq gpu.Queue, l *gpu.Lease, key gpu.Column) (out []gpu.Column, err error) {
	q, err := p.dev.queue(gq)
	if err != nil {
		return nil, err
	}
	o := q.begin("unpack keys", l)
	defer end(o, &out, &err)
	if o.takes(key) != nil {
		return nil, o.err
	}
	if key.Type != p.key.Type || key.Valid != nil || key.Dict != nil {
		return nil, fmt.Errorf("unpack of a key of %v, packed as %v", key.Type, p.key.Type)
	}
	out = make([]gpu.Column, len(p.types))
	shift, n := p.bits, key.Len
	for at, part := range p.parts {
		shift -= int(part.bits)
		c := &out[p.column[at]]
		if part.kind == sortNulls {
			c.Valid = o.keep(o.alloc(gpu.BitmapBytes(n)))
			continue
		}
		t := p.types[p.column[at]]
		if c.Data == nil {
			size := int64(n) * int64(max(t.Width(), 4))
			if t.Kind == gpu.Bool {
				size = gpu.BitmapBytes(n)
			}
			c.Type, c.Len, c.Data = t, n, o.keep(o.alloc(size))
		}
		a := unpackWordsArgs{words: addr(key.Data), out: addr(c.Data), valid: addr(c.Valid), base: part.base,
			n:    int64(n),
			wide: flag(p.key.Type.Width() == 8), kind: part.kind, shift: int32(shift), bits: part.bits,
			nulls: int32(shift) + part.bits}
		if part.kind == sortLow { // the upper half came with the nulls
			a.valid = 0
		}
		launch(o, "unpack_words", blocks((n+63)/64*64, 256), 256, 0, a)
	}
	for i, in := range p.interner {
		if in != nil {
			out[i] = in.strings(o, out[i], n)
		}
	}
	return out, nil
}
