package cuda

import (
	"fmt"
	"math"

	"github.com/gstream/gstream/gpu"
)

type copyBitsArgs struct {
	src, dst    uint64
	from, to, n int64
}

type widenArgs struct {
	src, dst uint64
	n        int64
}

type shiftArgs struct {
	src, dst      uint64
	n             int64
	add, relative int32
}

type endsArgs struct {
	values, out uint64
	n           int64
}

type maskArgs struct {
	codes, valid, ids uint64
	n                 int64
}

// copyPart mirrors CopyPart of move.cu.
type copyPart struct {
	src, dst     uint64
	bytes, first uint32
}

type copyPartsArgs struct {
	parts [170]copyPart
	n     int64
}

const (
	// copyChunk is the number of bytes that a block of copy_parts copies, mostCopied the maximum
	// bytes of a part.
	copyChunk  = 32768
	mostCopied = 1 << 31

	copyPartsKernel, copyPartsThreads = "copy_parts", 256
)

// copies is a list of byte ranges that copy_parts copies.
type copies []copyPart

func (c *copies) add(dst, src uint64, n int64) {
	for n > 0 {
		m := min(n, mostCopied)
		*c = append(*c, copyPart{src: src, dst: dst, bytes: uint32(m)})
		src, dst, n = src+uint64(m), dst+uint64(m), n-m
	}
}

// launches calls do with the arguments of each launch. A launch has as many ranges as fit its
// arguments.
func (c copies) launches(do func(chunks int, a copyPartsArgs)) {
	for len(c) > 0 {
		var a copyPartsArgs
		a.n = int64(copy(a.parts[:], c))
		c = c[a.n:]
		chunks := uint32(0)
		for i := range a.n {
			a.parts[i].first = chunks
			chunks += (a.parts[i].bytes + copyChunk - 1) / copyChunk
		}
		do(int(chunks), a)
	}
}

// copyParts copies byte ranges.
func (o *op) copyParts(list copies) {
	list.launches(func(chunks int, a copyPartsArgs) { launch(o, copyPartsKernel, chunks, copyPartsThreads, 0, a) })
}

// copyBits copies n bits of a bitmap to bits of dst that are zero. A nil bitmap is all
// ones.
func (o *op) copyBits(dst *gpu.Buffer, to int, src *gpu.Buffer, from, n int) {
	if n == 0 {
		return
	}
	words := (to+n+31)/32 - to/32
	launch(o, "copy_bits", blocks(words, 256), 256, 0,
		copyBitsArgs{src: addr(src), dst: addr(dst), from: int64(from), to: int64(to), n: int64(n)})
}

// bitmap returns a kept bitmap of n zero bits.
func (o *op) bitmap(n int) *gpu.Buffer {
	b := o.alloc(gpu.BitmapBytes(n))
	o.fill(b, 0, b.Size(), 0)
	return o.keep(b)
}

// Slice implements gpu.Queue.
func (q *queue) Slice(l *gpu.Lease, c gpu.Column, from, to int) (out gpu.Column, err error) {
	o := q.begin("slice", l)
	defer end(o, &out, &err)
	o.takes(c)
	if from < 0 || from > to || to > c.Len {
		return out, fmt.Errorf("slice [%d, %d) of a column of %d rows", from, to, c.Len)
	}
	var list copies
	out = o.slice(c, from, to, &list)
	o.copyParts(list)
	return out, nil
}

// Cut implements gpu.Queue.
func (q *queue) Cut(l *gpu.Lease, cols []gpu.Column, bounds []int) (parts [][]gpu.Column, err error) {
	o := q.begin("slice", l)
	defer end(o, &parts, &err)
	o.takes(cols...)
	if err := gpu.CheckBounds(cols, bounds); err != nil {
		return nil, err
	}
	var list copies
	for i := range len(bounds) - 1 {
		part := make([]gpu.Column, len(cols))
		for k, c := range cols {
			part[k] = o.slice(c, bounds[i], bounds[i+1], &list)
		}
		parts = append(parts, part)
	}
	o.copyParts(list)
	return parts, nil
}

// slice returns rows [from, to) of a column, kept. It adds ranges to the list, which the caller
// must copy with a kernel. That is faster than the driver's copy, which takes 28 µs for 4 MB on an
// H200.
func (o *op) slice(c gpu.Column, from, to int, list *copies) gpu.Column {
	if from == 0 && to == c.Len {
		return o.retainColumn(c)
	}
	n := to - from
	out := gpu.Column{Type: c.Type, Len: n, Dict: o.retainDict(c.Dict)}
	if c.Valid != nil {
		out.Valid = o.bitmap(n)
		o.copyBits(out.Valid, 0, c.Valid, from, n)
	}
	switch {
	case c.Dict == nil && c.Type.Kind == gpu.Bool:
		out.Data = o.bitmap(n)
		o.copyBits(out.Data, 0, c.Data, from, n)
	case c.Dict == nil && c.Type.IsVar():
		var ends [2]int32
		o.read(c.Offsets, int64(from)*4, gpu.BytesOf(ends[:1]))
		o.read(c.Offsets, int64(to)*4, gpu.BytesOf(ends[1:]))
		out.Offsets = o.keep(o.alloc(int64(n+1) * 4))
		launch(o, "shift", blocks(n+1, 256), 256, 0,
			shiftArgs{src: addr(c.Offsets) + uint64(from)*4, dst: addr(out.Offsets), n: int64(n + 1), relative: 1})
		out.Data = o.keep(o.alloc(int64(ends[1] - ends[0])))
		o.copy(out.Data, 0, c.Data, int64(ends[0]), out.Data.Size())
	default:
		width := int64(c.DataWidth())
		out.Data = o.keep(o.alloc(int64(n) * width))
		if o.err == nil && n > 0 {
			list.add(addr(out.Data), addr(c.Data)+uint64(int64(from)*width), int64(n)*width)
		}
	}
	return out
}

// Concat implements gpu.Queue.
func (q *queue) Concat(l *gpu.Lease, parts []gpu.Column) (out gpu.Column, err error) {
	o := q.begin("concat", l)
	defer end(o, &out, &err)
	o.takes(parts...)
	if len(parts) == 0 {
		return out, fmt.Errorf("concat of no columns has no type")
	}
	return o.concat(parts), nil
}

// concat returns the rows of columns, one column after the other. The result is kept.
func (o *op) concat(parts []gpu.Column) gpu.Column {
	if len(parts) == 1 {
		return o.retainColumn(parts[0])
	}
	out := gpu.Column{Type: parts[0].Type}
	nulls := false
	var filled []gpu.Column
	for _, p := range parts {
		if p.Type != out.Type {
			o.fail(fmt.Errorf("concat of %v and %v", out.Type, p.Type))
			return out
		}
		out.Len += p.Len
		nulls = nulls || p.Valid != nil
		if p.Len > 0 {
			filled = append(filled, p)
		}
	}
	if len(filled) == 0 {
		return o.retainColumn(parts[0])
	}
	if out.Len > gpu.MaxRows {
		o.fail(gpu.TooManyRows(out.Len))
		return out
	}
	parts, out.Dict = o.oneCoding(filled, out.Len)
	if nulls {
		out.Valid = o.bitmap(out.Len)
		o.eachPart(parts, func(p gpu.Column, at int) { o.copyBits(out.Valid, at, p.Valid, 0, p.Len) })
	}
	switch {
	case out.Dict == nil && out.Type.IsVar():
		o.concatTexts(&out, parts)
	case out.Dict == nil && out.Type.Kind == gpu.Bool:
		out.Data = o.bitmap(out.Len)
		o.eachPart(parts, func(p gpu.Column, at int) { o.copyBits(out.Data, at, p.Data, 0, p.Len) })
	default:
		width := int64(out.DataWidth())
		out.Data = o.keep(o.alloc(int64(out.Len) * width))
		var list copies
		o.eachPart(parts, func(p gpu.Column, at int) {
			list.add(addr(out.Data)+uint64(int64(at)*width), addr(p.Data), int64(p.Len)*width)
		})
		o.copyParts(list)
	}
	return out
}

// eachPart calls do with each part and the number of rows before it.
func (o *op) eachPart(parts []gpu.Column, do func(p gpu.Column, at int)) {
	at := 0
	for _, p := range parts {
		do(p, at)
		at += p.Len
	}
}

// concatTexts concatenates the bytes and the offsets of plain columns.
func (o *op) concatTexts(out *gpu.Column, parts []gpu.Column) {
	ends := make([]uint64, 0, 2*len(parts))
	for _, p := range parts {
		ends = append(ends, addr(p.Offsets), addr(p.Offsets)+uint64(p.Len)*4)
	}
	list, values := o.alloc(int64(len(ends))*8), o.alloc(int64(len(ends))*4)
	o.write(list, 0, gpu.BytesOf(ends))
	launch(o, "ends", blocks(len(ends), 256), 256, 0,
		endsArgs{values: addr(list), out: addr(values), n: int64(len(ends))})
	at := make([]int32, len(ends))
	if !o.read(values, 0, gpu.BytesOf(at)) {
		return
	}
	var total int64
	for i := range parts {
		total += int64(at[2*i+1] - at[2*i])
	}
	if total > math.MaxInt32 {
		o.fail(gpu.TooManyBytes(total, out.Len))
		return
	}
	out.Offsets, out.Data = o.keep(o.alloc(int64(out.Len+1)*4)), o.keep(o.alloc(total))
	var bytes int64
	row := 0
	for i, p := range parts {
		n := int64(at[2*i+1] - at[2*i])
		// The last offset of a part is the first of the next part. Both kernels write the
		// same value.
		launch(o, "shift", blocks(p.Len+1, 256), 256, 0,
			shiftArgs{src: addr(p.Offsets), dst: addr(out.Offsets) + uint64(row)*4, n: int64(p.Len + 1),
				add: int32(bytes), relative: 1})
		o.copy(out.Data, bytes, p.Data, int64(at[2*i]), n)
		bytes += n
		row += p.Len
	}
}

// oneCoding returns the parts with one common dictionary, if all have dictionaries and the distinct
// ones have few values compared with the rows; otherwise it returns them without dictionaries. The
// common dictionary, which is kept, is the concatenation of the others, so codes only shift.
func (o *op) oneCoding(parts []gpu.Column, rows int) ([]gpu.Column, *gpu.Dictionary) {
	starts := map[*gpu.Dictionary]int{}
	var dicts []gpu.Column
	values, coded := 0, true
	for _, p := range parts {
		if p.Dict == nil {
			coded = false
			continue
		}
		if _, ok := starts[p.Dict]; !ok {
			starts[p.Dict] = values
			values += p.Dict.Values.Len
			dicts = append(dicts, p.Dict.Values)
		}
	}
	if coded && len(dicts) == 1 {
		return parts, o.retainDict(parts[0].Dict)
	}
	if !coded || values > rows/2 {
		out := make([]gpu.Column, len(parts))
		for i, p := range parts {
			out[i] = o.expand(p)
		}
		return out, nil
	}
	out := make([]gpu.Column, len(parts))
	for i, p := range parts {
		codes := o.alloc(int64(p.Len) * 4)
		launch(o, "shift", blocks(p.Len, 256), 256, 0,
			shiftArgs{src: addr(p.Data), dst: addr(codes), n: int64(p.Len), add: int32(starts[p.Dict])})
		out[i] = gpu.Column{Type: p.Type, Len: p.Len, Data: codes, Valid: p.Valid}
	}
	dict := &gpu.Dictionary{Values: o.concat(dicts)}
	for i := range out {
		out[i].Dict = dict
	}
	return out, dict
}

// expand returns a column without its dictionary, as scratch of the op.
func (o *op) expand(c gpu.Column) gpu.Column {
	if c.Dict == nil {
		return c
	}
	return o.drop(o.decode(c))
}

// decode returns the values of a dictionary-coded column, kept.
func (o *op) decode(c gpu.Column) gpu.Column {
	ids, outer := c.Data, false
	if c.Valid != nil {
		ids, outer = o.alloc(int64(c.Len)*4), true
		launch(o, "mask_codes", blocks(c.Len, 256), 256, 0,
			maskArgs{codes: addr(c.Data), valid: addr(c.Valid), ids: addr(ids), n: int64(c.Len)})
	}
	return o.gather([]gpu.Column{c.Dict.Values}, ids, c.Len, outer)[0]
}

// drop turns a kept column into scratch.
func (o *op) drop(c gpu.Column) gpu.Column {
	for i := range o.held {
		if b := o.held[i].buf; b == c.Data || b == c.Offsets || b == c.Valid {
			o.held[i].keep = false
		}
	}
	return c
}
