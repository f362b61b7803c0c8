package cuda

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
)

// partitionColumn is PartitionColumn of partition.cu.
type partitionColumn struct {
	src, dst      uint64
	width, stride int32
}

// partitionColumns is PARTITION_COLUMNS of partition.cu.
const partitionColumns = 16

type partitionArgs struct {
	key, base                    uint64
	column                       [partitionColumns]partitionColumn
	rows, chunk                  uint32
	columns                      int32
	bits, shift, widest, padding uint32
}

type partitionCountArgs struct {
	key, counts, segments, full uint64
	rows, chunk                 int64
	segmentCount                int32
	bits, shift, padding        uint32
}

type partitionOffsetsArgs struct {
	counts, offsets uint64
	digits, blocks  int32
}

type bitsArgs struct {
	src, dst uint64
	n        int64
}

// partitionThreads is the threads of a block of the partition kernels.
const partitionThreads = 512

// maxPartitionBits bounds the digit of Partition.
const maxPartitionBits = 16

// mover is a column of fixed width on its way through a radix partition. Without
// a source it is the row numbers, 4 bytes each.
type mover struct {
	src, dst *gpu.Buffer
	width    int // bytes: 1, 2, 4, 8 or 16
}

// Partition implements gpu.Queue: bitmaps move as bytes, strings after row ids.
func (q *queue) Partition(l *gpu.Lease, cols []gpu.Column, hash gpu.Column, shift, bits uint) (out []gpu.Column, offsets []int, err error) {
	o := q.begin("partition", l)
	defer end(o, &out, &err)
	width := hash.Type.Width()
	if !hash.Type.IsInteger() || width < 4 || hash.Dict != nil || hash.Valid != nil {
		return nil, nil, fmt.Errorf("partition by a column of %v: want a plain integer of 4 or 8 bytes without nulls", hash.Type)
	}
	if bits > maxPartitionBits || shift+bits > 8*uint(width) {
		return nil, nil, fmt.Errorf("partition by %d bits from bit %d of a column of %v: want at most %d that the column has", bits, shift, hash.Type, maxPartitionBits)
	}
	n := hash.Len
	out = make([]gpu.Column, len(cols))
	if bits == 0 || n == 0 {
		for i, c := range cols {
			out[i] = o.retainColumn(c)
		}
		offsets = make([]int, 1<<bits+1)
		offsets[1<<bits] = n
		return out, offsets, nil
	}
	var move []mover
	var packed []bitsArgs
	bitmap := func(b *gpu.Buffer) *gpu.Buffer {
		if b == nil {
			return nil
		}
		from, to := o.unpackBits(b, n), o.alloc(int64(n))
		move = append(move, mover{from, to, 1})
		dst := o.alloc(gpu.BitmapBytes(n))
		packed = append(packed, bitsArgs{src: addr(to), dst: addr(dst), n: int64(n)})
		return o.keep(dst)
	}
	var texts []gpu.Column
	var textAt []int
	for i, c := range cols {
		if c.Len != n {
			return nil, nil, fmt.Errorf("partition of a column of %d rows by a hash of %d", c.Len, n)
		}
		if c.Dict == nil && c.Type.IsVar() {
			texts, textAt = append(texts, c), append(textAt, i)
			continue
		}
		r := gpu.Column{Type: c.Type, Len: n, Dict: o.retainDict(c.Dict), Valid: bitmap(c.Valid)}
		if c.Dict == nil && c.Type.Kind == gpu.Bool {
			r.Data = bitmap(c.Data)
		} else {
			w := fixedWidth(c)
			r.Data = o.keep(o.alloc(int64(n) * int64(w)))
			move = append(move, mover{c.Data, r.Data, w})
		}
		out[i] = r
	}
	var ids *gpu.Buffer
	if len(texts) > 0 {
		ids = o.alloc(int64(n) * 4)
		move = append(move, mover{nil, ids, 4})
	}
	starts := o.radix(hash.Data, width, n, shift, bits, move, true)
	for _, p := range packed {
		launch(o, "bits_pack", blocks(n, 2048), 256, 0, p)
	}
	for k, c := range o.gather(texts, ids, n, false) {
		out[textAt[k]] = c
	}
	from := make([]uint32, 1<<bits+1)
	o.read(starts, 0, gpu.BytesOf(from))
	offsets = make([]int, len(from))
	for i, v := range from {
		offsets[i] = int(v)
	}
	return out, offsets, nil
}

// unpackBits makes bytes of a bitmap.
func (o *op) unpackBits(b *gpu.Buffer, n int) *gpu.Buffer {
	to := o.alloc(int64(n))
	launch(o, "bits_unpack", blocks(n, 2048), 256, 0, bitsArgs{src: addr(b), dst: addr(to), n: int64(n)})
	return to
}

// radix moves n rows into the order of bits [shift, shift+bits) of a key of width
// 4 or 8 bytes, stably: passes over digits of equal size, the lowest bits first.
// With offsets it returns where each of the 1<<bits values begins, as uint32,
// and n at the end.
func (o *op) radix(key *gpu.Buffer, width, n int, shift, bits uint, cols []mover, offsets bool) *gpu.Buffer {
	passes := int(blocks(int(bits), o.digitBits(width, cols)))
	keyAt := slices.IndexFunc(cols, func(m mover) bool { return m.src == key && m.width == width })
	work := slices.Clone(cols)
	if keyAt < 0 && passes > 1 {
		keyAt = len(work)
		work = append(work, mover{src: key, width: width})
	}
	spare := make([]*gpu.Buffer, len(work))
	for i, m := range work {
		if passes > 1 {
			spare[i] = o.alloc(int64(n) * int64(m.width))
		}
		if i == len(cols) && passes > 2 {
			work[i].dst = o.alloc(int64(n) * int64(m.width))
		}
	}
	from := slices.Clone(work)
	var starts *gpu.Buffer
	for p := range passes {
		at, end := bits*uint(p)/uint(passes), bits*uint(p+1)/uint(passes)
		last := (passes-1-p)%2 == 0
		now := slices.Clone(from)
		if p == passes-1 {
			now = now[:len(cols)]
		}
		for i := range now {
			now[i].dst = spare[i]
			if last {
				now[i].dst = work[i].dst
			}
		}
		starts = o.radixPass(key, width, n, shift+at, end-at, now, starts, 1<<at, offsets)
		for i := range now {
			from[i].src = now[i].dst
		}
		if keyAt >= 0 {
			key = from[keyAt].src
		}
	}
	o.free(spare...)
	for _, m := range work[len(cols):] {
		o.free(m.dst)
	}
	return starts
}

// radixPass is one pass of radix: count, places, move. segments, when set, are
// where the values of the digits sorted so far begin.
func (o *op) radixPass(key *gpu.Buffer, width, n int, shift, bits uint, cols []mover, segments *gpu.Buffer, segmentCount int, offsets bool) *gpu.Buffer {
	launches := o.partitionLaunches(key, width, 1<<bits, cols)
	digits := 1 << bits
	grid := min(o.q.dev.props.multiprocessors, blocks(n, launches[0].shape.tile()))
	chunk := (blocks(n, grid) + 127) / 128 * 128
	grid = blocks(n, chunk)

	counts := o.alloc(int64(digits*grid+4) * 4)
	starts := o.alloc(int64(digits+1) * 4)
	count := partitionCountArgs{key: addr(key), counts: addr(counts), rows: int64(n), chunk: int64(chunk),
		segmentCount: int32(segmentCount), bits: uint32(bits), shift: uint32(shift)}
	var full *gpu.Buffer
	if offsets && segments != nil {
		full = o.alloc(int64(digits*segmentCount+1) * 4)
		o.fill(full, 0, full.Size(), 0)
		count.segments, count.full = addr(segments), addr(full)
	}
	launch(o, fmt.Sprintf("partition_count_k%d", width), grid, 1024, 32*4*digits, count)
	launch(o, "partition_offsets", 1, 1024, 0, partitionOffsetsArgs{addr(counts), addr(starts), int32(digits), int32(grid)})
	for _, p := range launches {
		args := partitionArgs{key: addr(key), base: addr(counts), rows: uint32(n), chunk: uint32(chunk),
			columns: int32(len(p.cols)), bits: uint32(bits), shift: uint32(shift), widest: uint32(p.widest)}
		copy(args.column[:], p.cols)
		launch(o, p.shape.kernel, grid, partitionThreads, p.shared, args)
	}
	o.free(counts)
	if full == nil {
		return starts
	}
	o.free(starts)
	o.scan(full, digits*segmentCount, true)
	return full
}

// partitionShape is what a partition kernel was compiled for.
type partitionShape struct {
	kernel        string
	items, stages int // rows a thread, buffers of the stage
}

func (s partitionShape) tile() int { return partitionThreads * s.items }

// shared is PartitionShared of partition.cu, in bytes.
func (s partitionShape) shared(digits, widest, rowBytes int) int {
	slots := s.tile() + (14*digits+32)/16*16
	words := 4 + 5*((digits+3)/4*4) + (slots/8+3)/4*4 + 2*partitionThreads/32*(digits+1)
	return 4*words + s.stages*slots*widest + digits*8*rowBytes
}

// shapeFor chooses the kernel for a key and columns.
func shapeFor(key int, cols []mover) partitionShape {
	same := cols[0].width
	for _, c := range cols {
		if c.width != same {
			same = 0
		}
	}
	switch {
	case same == 4 && key == 4:
		return partitionShape{"partition_k4_w4", 24, 2}
	case key == 8 && (same == 4 || same == 8 && !slices.ContainsFunc(cols, func(m mover) bool { return m.src == nil })):
		return partitionShape{fmt.Sprintf("partition_k8_w%d", same), 16, 1}
	}
	return partitionShape{fmt.Sprintf("partition_k%d_w0", key), 12, 1}
}

// partitionLaunch is one launch: as many columns as shared memory has room for.
type partitionLaunch struct {
	shape          partitionShape
	cols           []partitionColumn
	widest, shared int
}

func (o *op) partitionLaunches(key *gpu.Buffer, width, digits int, cols []mover) []partitionLaunch {
	shape := shapeFor(width, cols)
	// A first column that is the key is not read twice.
	cols = slices.Clone(cols)
	if at := slices.IndexFunc(cols, func(m mover) bool { return m.src == key && m.width == width }); at > 0 {
		cols[0], cols[at] = cols[at], cols[0]
	}
	var out []partitionLaunch
	bytes := 0
	for _, m := range cols {
		stored := min(m.width, 8)
		parts := m.width / stored
		n := len(out)
		if n == 0 || len(out[n-1].cols)+parts > partitionColumns ||
			shape.shared(digits, max(out[n-1].widest, stored), bytes+m.width) > o.q.dev.props.sharedPerBlock {
			out, bytes = append(out, partitionLaunch{shape: shape}), 0
			n++
		}
		p := &out[n-1]
		bytes += m.width
		p.widest = max(p.widest, stored)
		p.shared = shape.shared(digits, p.widest, bytes)
		for k := range parts {
			p.cols = append(p.cols, partitionColumn{addr(m.src) + uint64(8*k), addr(m.dst) + uint64(8*k), int32(stored), int32(parts)})
		}
	}
	return out
}

// digitBits is the widest digit for which shared memory has room, 8 on data-centre
// GPUs.
func (o *op) digitBits(key int, cols []mover) int {
	shape := shapeFor(key, cols)
	widest := 0
	for _, m := range cols {
		widest = max(widest, min(m.width, 8))
	}
	bits := 8
	for bits > 1 && shape.shared(1<<bits, widest, 2*widest) > o.q.dev.props.sharedPerBlock {
		bits--
	}
	return bits
}
