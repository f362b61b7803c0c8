package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
)

// partitionColumn is PartitionColumn of partition.cu.
type partitionColumn struct {
	src, dst, rest uint64
	width, stride  int32
}

// unorderedRows is LooseRows of partition.cu.
type unorderedRows struct {
	starts, taken, rests, full, segments, ends, before, blocks uint64
	count, chunk                                               uint32
}

// partitionColumns is PARTITION_COLUMNS of partition.cu.
const partitionColumns = 16

type partitionArgs struct {
	key, base, bounds            uint64
	column                       [partitionColumns]partitionColumn
	rows, perBlock               uint32
	columns                      int32
	bits, shift, flip, widest, _ uint32
	mul                          uint64
	counters, _                  uint32
	unordered                    unorderedRows
}

type partitionSampleArgs struct {
	key, counts, starts, mul, step      uint64
	rows, sampled, most, bits, shift, _ uint32
}

type partitionRestsArgs struct {
	column    [partitionColumns]partitionColumn
	unordered unorderedRows
	ends      uint64
	columns   int32
	bits      uint32
}

type partitionCountArgs struct {
	key, counts, segments, full, narrow, ranges, rangeFlip uint64
	rows, perBlock                                         int64
	segmentCount                                           int32
	bits, shift, flip, narrowShift, low                    uint32
	mul, pairs                                             uint64
}

type partitionSecondArgs struct {
	pairs, begin, counts, bounds, full            uint64
	segments, rows, perBlock, low, high, perDigit uint32
}

type partitionOffsetsArgs struct {
	counts, offsets uint64
	digits, blocks  int32
}

type bitsArgs struct {
	src, dst uint64
	n        int64
}

const (
	// partitionThreads is the number of threads of a block of the partition kernels.
	partitionThreads = 512
	// partitionCounters is the number of blocks that count the rows that one block moves.
	partitionCounters = 2
	// pairBits bounds the bits of two digits that one block counts in shared memory.
	pairBits = 14
	// An unordered pass samples at most unorderedSample rows, or unorderedDigit for each digit, and at most
	// 1/unorderedShare of the rows. 32 digits then get 5 % more space than they need, 256 get 13 %, and
	// 8,192 get 30 %.
	unorderedSample, unorderedDigit, unorderedShare = 1 << 19, 1 << 9, 8
	// unorderedBlocks is the minimum number of blocks per multiprocessor in a second unordered pass, so
	// that few are idle at the end. Each block has rows of only one segment, so the number of
	// blocks exceeds this by up to the number of segments.
	unorderedBlocks = 4
	// secondRows is the minimum number of rows of a partition for two unordered passes: with fewer,
	// most of the space would be unused.
	secondRows = 1 << 9
)

// errPartitionFull says that a partition has more rows than its space can hold.
var errPartitionFull = errors.New("a partition has more rows than room")

// mover is a column of fixed width in a radix partition. Without a source it has the row numbers, 4
// bytes each.
type mover struct {
	src, dst *gpu.Buffer
	width    int // bytes: 1, 2, 4, 8 or 16
}

// Partition implements gpu.Queue. Bitmaps move as one byte a row. Strings are gathered by
// the row ids, which move with the other columns.
func (q *queue) Partition(l *gpu.Lease, cols []gpu.Column, key gpu.Column,
	d gpu.Digit) (out []gpu.Column, offsets gpu.Column, err error) {
	all, err := q.partition(l, cols, key, d, false)
	if err != nil {
		return nil, offsets, err
	}
	return all[2:], all[0], nil
}

// PartitionUnordered implements gpu.Queue. If all columns fit shared memory, it makes one or two
// passes, by the bits of the digit, without counting. If a partition exceeds the space estimated
// from the sample, or if memory is denied, the rows are partitioned in order instead.
func (q *queue) PartitionUnordered(l *gpu.Lease, cols []gpu.Column, key gpu.Column,
	d gpu.Digit) (out []gpu.Column, offsets, ends gpu.Column, err error) {
	all, err := q.partition(l, cols, key, d, true)
	if errors.Is(err, errPartitionFull) || gpu.IsOutOfMemory(err) { // in order they need less memory
		all, err = q.partition(l, cols, key, d, false)
	}
	if err != nil {
		return nil, offsets, ends, err
	}
	return all[2:], all[0], all[1], nil
}

// partition returns the offsets, the ends if the partition is unordered, and the partitioned
// columns.
func (q *queue) partition(l *gpu.Lease, cols []gpu.Column, key gpu.Column, d gpu.Digit,
	unordered bool) (out []gpu.Column, err error) {
	o := q.begin("partition", l)
	defer end(o, &out, &err)
	o.takes(cols...)
	o.takes(key)
	if err := d.Check(key); err != nil {
		return nil, err
	}
	n, bits := key.Len, d.Bits
	for _, c := range cols {
		if c.Len != n {
			return nil, fmt.Errorf("partition of a column of %d rows by a key of %d", c.Len, n)
		}
	}
	out = make([]gpu.Column, 2+len(cols))
	offsets := func(starts *gpu.Buffer) {
		out[0] = gpu.Column{Type: gpu.Of(gpu.Int32), Len: 1<<bits + 1, Data: o.keep(starts)}
	}
	if bits == 0 || n == 0 {
		for i, c := range cols {
			if out[2+i] = o.retainColumn(c); c.IsRowNumbers() {
				out[2+i].Data = o.keep(o.alloc(int64(n) * 4))
				launch(o, "sort_number", o.grid(n), 256, 0, sortNumberArgs{addr(out[2+i].Data), int64(n)})
			}
		}
		starts := make([]int32, 1<<bits+1)
		starts[1<<bits] = int32(n)
		offsets(upload(o, starts))
		return out, nil
	}
	by := radixKey{buf: key.Data, width: key.Type.Width(), shift: d.Shift, bits: bits, mul: d.Factor}
	room := n // of the result
	var ends []uint
	if unordered {
		ends = o.unorderedDigits(by, n, cols)
	}
	if unordered = ends != nil; unordered {
		room = unorderedRoom(n, bits)
	}
	var move []mover
	var packed []bitsArgs
	bitmap := func(b *gpu.Buffer) *gpu.Buffer {
		if b == nil {
			return nil
		}
		from, to := o.unpackBits(b, n), o.alloc(int64(room))
		if unordered { // the slack belongs to the columns, too
			o.fill(to, 0, int64(room), 0)
		}
		move = append(move, mover{from, to, 1})
		dst := o.alloc(gpu.BitmapBytes(room))
		packed = append(packed, bitsArgs{src: addr(to), dst: addr(dst), n: int64(room)})
		return o.keep(dst)
	}
	var texts []gpu.Column
	var textAt []int
	for i, c := range cols {
		if c.Dict == nil && c.Type.IsVar() {
			texts, textAt = append(texts, c), append(textAt, 2+i)
			continue
		}
		r := gpu.Column{Type: c.Type, Len: room, Dict: o.retainDict(c.Dict), Valid: bitmap(c.Valid)}
		if c.Dict == nil && c.Type.Kind == gpu.Bool {
			r.Data = bitmap(c.Data)
		} else {
			w := c.DataWidth()
			r.Data = o.keep(o.alloc(int64(room) * int64(w)))
			move = append(move, mover{c.Data, r.Data, w})
		}
		out[2+i] = r
	}
	var ids *gpu.Buffer
	if len(texts) > 0 {
		ids = o.alloc(int64(n) * 4)
		move = append(move, mover{nil, ids, 4})
	}
	var starts *gpu.Buffer
	if unordered {
		var last *gpu.Buffer
		starts, last = o.unordered(by, n, ends, move)
		out[1] = gpu.Column{Type: gpu.Of(gpu.Int32), Len: 1 << bits, Data: o.keep(last)}
	} else {
		starts = o.radix(by, n, move, nil, true)
	}
	for _, p := range packed {
		launch(o, "bits_pack", blocks(room, 2048), 256, 0, p)
	}
	for k, c := range o.gather(texts, ids, n, false) {
		out[textAt[k]] = c
	}
	offsets(starts)
	return out, nil
}

// unorderedDigits returns the ends of the digits of one or two unordered passes over all columns, or
// nil if the rows must be partitioned in order. Each pass must be a single launch, because each
// launch has another order. A second pass needs the key among the columns.
func (o *op) unorderedDigits(key radixKey, n int, cols []gpu.Column) []uint {
	var move []mover
	for _, c := range cols {
		if c.Dict == nil && c.Type.IsVar() {
			return nil
		}
		if c.Valid != nil {
			move = append(move, mover{nil, nil, 1})
		}
		w := c.DataWidth()
		if c.Dict == nil && c.Type.Kind == gpu.Bool {
			w = 1
		}
		move = append(move, mover{c.Data, nil, w})
	}
	if len(move) == 0 {
		return nil
	}
	ends := equalParts(0, key.bits, o.digitBits(key.width, move, usualDigit))
	if len(ends) > 1 && (len(ends) > 2 || n < secondRows<<key.bits || key.bits > pairBits || keyIn(key, move) < 0) {
		return nil
	}
	from := uint(0)
	for _, end := range ends {
		if len(o.partitionLaunches(key.digit(from, end), move)) != 1 {
			return nil
		}
		from = end
	}
	return ends
}

// keyIn returns the position of the key among the columns, or -1.
func keyIn(key radixKey, cols []mover) int {
	return slices.IndexFunc(cols, func(m mover) bool { return m.src == key.buf && m.width == key.width })
}

// unorderedSampled returns how many of n rows an unordered pass samples.
func unorderedSampled(n int, bits uint) int {
	return min(blocks(n, unorderedShare), max(unorderedSample, unorderedDigit<<bits))
}

// unorderedRoom returns the number of rows of the result of an unordered pass: the maximum that
// partition_room may assign, a multiple of 8.
func unorderedRoom(n int, bits uint) int {
	digits, sampled := float64(int(1)<<bits), float64(unorderedSampled(n, bits))
	more := 6*math.Sqrt(digits*sampled) + 16*digits
	return min(n+int(math.Ceil(more/sampled*float64(n)))+16<<bits, gpu.MaxRows) &^ 7
}

// unordered moves n rows to the partitions of a digit of their key, in any order, in passes over digits
// with the given ends, high bits first. The result columns have unorderedRoom rows, which a sample
// distributes to the partitions. unordered returns the starts and the ends of the partitions.
func (o *op) unordered(key radixKey, n int, digits []uint, cols []mover) (starts, ends *gpu.Buffer) {
	full := o.alloc(8) // by pass; 1 if a partition has more rows than space
	o.fill(full, 0, 8, 0)
	if len(digits) == 1 {
		starts, ends = o.unorderedPass(key, key, n, cols, unorderedRows{full: addr(full)})
	} else {
		high := key.digit(digits[0], key.bits)
		room := unorderedRoom(n, high.bits)
		first, second := slices.Clone(cols), slices.Clone(cols)
		for i, c := range cols {
			first[i].dst = o.alloc(int64(room) * int64(c.width))
			second[i].src = first[i].dst
		}
		segments, segmentEnds := o.unorderedPass(high, high, n, first, unorderedRows{full: addr(full)})
		low := key.digit(0, digits[0])
		low.buf = second[keyIn(key, cols)].src
		starts, ends = o.unorderedPass(low, key, n, second,
			unorderedRows{full: addr(full) + 4, segments: addr(segments), ends: addr(segmentEnds), before: addr(full)})
		o.free(segments, segmentEnds)
		for _, c := range first {
			o.free(c.dst)
		}
	}
	found := make([]uint32, 2)
	if o.read(full, 0, gpu.BytesOf(found)) && found[0]+found[1] != 0 {
		o.fail(errPartitionFull)
	}
	o.free(full)
	return starts, ends
}

// unorderedPass moves n rows to the partitions of a digit, or the rows of each segment to separate
// partitions. The partitions of all segments together are those of the sampled digit.
func (o *op) unorderedPass(key, sampled radixKey, n int, cols []mover, rows unorderedRows) (starts, ends *gpu.Buffer) {
	partitions := 1 << sampled.bits
	p := &radixPass{op: o, key: key, n: n, launches: o.partitionLaunches(key, cols)}
	p.size()
	rows.count = uint32(p.grid)
	var segmentBlocks *gpu.Buffer
	if segments := partitions >> key.bits; rows.segments != 0 {
		least := unorderedBlocks * o.q.dev.props.multiprocessors
		segmentBlocks = o.alloc(int64(segments+1) * 4)
		rows.count, rows.chunk = uint32(segments), uint32(blocks(n, least))
		p.grid = least + segments
	}
	l := p.launches[0]
	counts := o.alloc(int64(2*partitions) * 4) // of the sample, followed by the granules in use
	starts, ends = o.alloc(int64(partitions+1)*4), o.alloc(int64(partitions)*4)
	rests := o.alloc(int64(p.grid) * 4 << key.bits)
	most := int64(p.grid) * 8 << key.bits // maximum number of rows that blocks may still have at the end
	carried := o.alloc(most * int64(l.rowBytes()))
	if o.err != nil {
		return nil, nil
	}
	rows.starts, rows.taken, rows.rests, rows.blocks = addr(starts), addr(counts)+uint64(4*partitions), addr(rests),
		addr(segmentBlocks)
	args := p.args(l)
	args.unordered = rows
	at := addr(carried)
	for i := range l.cols {
		args.column[i].rest = at
		at += uint64(most) * uint64(l.cols[i].width)
	}
	o.fill(counts, 0, counts.Size(), 0)
	o.begins("sample")
	looks := unorderedSampled(n, sampled.bits)
	sample := partitionSampleArgs{key: addr(sampled.buf), counts: addr(counts), starts: addr(starts), mul: key.factor(),
		step: gpu.SampleStep(n, looks), rows: uint32(n),
		sampled: uint32(looks), most: uint32(unorderedRoom(n, sampled.bits)), bits: uint32(sampled.bits),
		shift: uint32(sampled.shift)}
	launch(o, fmt.Sprintf("partition_sample_k%d", key.width), min(o.q.dev.props.multiprocessors, blocks(looks, 4096)),
		1024, 4*partitions, sample)
	launch(o, "partition_room", 1, 1024, 0, sample)
	o.begins("move")
	if segmentBlocks != nil {
		launch(o, "partition_blocks", 1, 1024, 0, rows)
	}
	launch(o, l.shape.kernel(true), p.grid, partitionThreads, l.shared, args)
	launch(o, "partition_rests", partitions, 256, 0,
		partitionRestsArgs{column: args.column, unordered: rows, ends: addr(ends), columns: args.columns,
			bits: uint32(key.bits)})
	o.begins("")
	o.free(counts, rests, carried, segmentBlocks)
	return starts, ends
}

// unpackBits expands a bitmap to one byte per row.
func (o *op) unpackBits(b *gpu.Buffer, n int) *gpu.Buffer {
	to := o.alloc(int64(n))
	launch(o, "bits_unpack", blocks(n, 2048), 256, 0, bitsArgs{src: addr(b), dst: addr(to), n: int64(n)})
	return to
}

// radixKey is bits [shift, shift+bits) of a key of 4 or 8 bytes. The bits that are set in
// flip are inverted. With mul they are the bits of the product of the key and mul.
type radixKey struct {
	buf         *gpu.Buffer
	width       int
	shift, bits uint
	flip, mul   uint64
}

// digit returns bits [at, end) of the key's bits as a key.
func (k radixKey) digit(at, end uint) radixKey {
	k.shift, k.bits = k.shift+at, end-at
	return k
}

// factor returns the factor by which the key is multiplied.
func (k radixKey) factor() uint64 { return max(k.mul, 1) }

func (k radixKey) digitFlip() uint32 { return uint32(k.flip >> k.shift & (1<<k.bits - 1)) }

// radix moves n rows into the order of a key. It is stable. It makes passes over digits of nearly
// equal size, lowest bits first. If first is not nil, it is a first pass whose digit is already
// counted; its key has the width of that digit. With offsets, radix returns the first row of each
// of the 1<<bits values as uint32, followed by n.
func (o *op) radix(key radixKey, n int, cols []mover, first *radixPass, offsets bool) (starts *gpu.Buffer) {
	widest := o.digitBits(key.width, cols, usualDigit)
	if wide := o.digitBits(key.width, cols, wideDigit); parts(key.bits, wide) < parts(key.bits, widest) {
		widest = wide
	}
	ends := equalParts(0, key.bits, widest)
	if first != nil {
		ends = []uint{min(first.key.bits, key.bits)}
		ends = append(ends, equalParts(ends[0], key.bits, widest)...)
	}
	passes := len(ends)
	counted := key // the form of the key that the next pass counts
	all := cols
	keyAt := keyIn(key, cols)
	if keyAt < 0 && passes > 1 { // the remaining bits of the key move too, except in the last pass
		if key.width == 8 && key.bits <= 32 {
			key = radixKey{buf: o.alloc(int64(n) * 4), width: 4, bits: key.bits, flip: key.flip >> key.shift}
		}
		keyAt = len(cols)
		all = append(slices.Clone(cols), mover{src: key.buf, width: key.width})
	}
	sides, scratch := o.twoSides(n, all, passes)
	from := slices.Clone(all)
	at := uint(0)
	var before *radixPass
	var pairs *gpu.Buffer // count of each pair of digits of two passes, by block
	for p, end := range ends {
		now := slices.Clone(from)
		if p == passes-1 {
			now = now[:len(cols)]
		}
		for i := range now {
			now[i].dst = sides[(passes-1-p)%2][i]
		}
		pass := first
		if p > 0 || first == nil {
			pass = o.newPass(key.digit(at, end), n, now)
		} else {
			pass.launches = o.partitionLaunches(pass.key, now)
		}
		count := pass.counting(counted.digit(at, end))
		if counted.buf != key.buf {
			count.narrow, count.narrowShift = addr(key.buf), uint32(counted.shift)
		}
		var full *gpu.Buffer
		if offsets && p > 0 {
			full = o.alloc((int64(1)<<end + 1) * 4)
		}
		o.begins("count")
		switch {
		case pass == first:
		case pairs != nil:
			pass.second(before, pairs, full)
		case p == 0 && pass.countsPairs(ends):
			pairs = o.alloc(pass.pairs(ends[1]) * 4)
			scratch = append(scratch, pairs)
			count.bits, count.flip = uint32(ends[1]), counted.digit(0, ends[1]).digitFlip()
			count.pairs, count.low = addr(pairs), uint32(end)
			pass.count(fmt.Sprintf("partition_count_pairs_k%d", counted.width), (1<<ends[1]+1<<(ends[1]-end))*4, count)
		default:
			if full != nil {
				o.fill(full, 0, 4<<end, 0)
				count.segments, count.full, count.segmentCount = addr(starts), addr(full), 1<<at
			}
			pass.count(fmt.Sprintf("partition_count_k%d", counted.width), 32*4<<pass.key.bits, count)
		}
		last := starts
		if starts = pass.move(); full != nil {
			o.scan(full, 1<<end, true)
			o.free(last, starts)
			starts = full
		}
		for i := range now {
			from[i].src = now[i].dst
		}
		if keyAt >= 0 {
			key.buf = from[keyAt].src
		}
		scratch = append(scratch, pass.counts, pass.bounds)
		before, counted, at = pass, key, end
	}
	o.free(scratch...)
	return starts
}

// equalParts splits bits [from, to) into as few digits as possible, of nearly equal size,
// and returns their ends.
func equalParts(from, to, widest uint) []uint {
	ends := make([]uint, parts(to-from, widest))
	for i := range ends {
		ends[i] = from + (to-from)*uint(i+1)/uint(len(ends))
	}
	return ends
}

// parts returns the number of digits of so many bits.
func parts(bits, widest uint) int { return blocks(int(bits), int(widest)) }

// twoSides returns the destinations of the columns: sides[0] for the last pass and the passes an
// even number before it, sides[1] for the others.
func (o *op) twoSides(n int, cols []mover, passes int) (sides [2][]*gpu.Buffer, scratch []*gpu.Buffer) {
	for side := range sides {
		for _, m := range cols {
			to := m.dst
			if side == 1 || to == nil {
				to = nil
				if passes > 1+(1-side) {
					to = o.alloc(int64(n) * int64(m.width))
					scratch = append(scratch, to)
				}
			}
			sides[side] = append(sides[side], to)
		}
	}
	return sides, scratch
}

// radixPass is one pass: count the digits, compute the output offsets, move the rows.
type radixPass struct {
	*op
	key            radixKey
	n              int
	launches       []partitionLaunch
	grid, perBlock int // blocks that move rows, and rows of each block
	counts         *gpu.Buffer
	counters       int         // blocks that count the rows of a block
	bounds         *gpu.Buffer // first row of each block, and n; nil for equal chunks
}

func (o *op) newPass(key radixKey, n int, cols []mover) *radixPass {
	p := &radixPass{op: o, key: key, n: n, launches: o.partitionLaunches(key, cols), counters: partitionCounters}
	p.size()
	p.counts = o.alloc(int64(partitionCounters*p.grid<<key.bits+4) * 4)
	return p
}

// size gives each block rows to move.
func (p *radixPass) size() {
	p.grid = max(1, min(p.q.dev.props.multiprocessors, blocks(p.n, p.launches[0].shape.tile())))
	p.perBlock = blocks(blocks(p.n, p.grid), 128) * 128
	p.grid = blocks(p.n, p.perBlock)
}

// counting returns the arguments to count the digits of a key. The key may be another form of the
// key by which the rows move.
func (p *radixPass) counting(key radixKey) partitionCountArgs {
	return partitionCountArgs{key: addr(key.buf), counts: addr(p.counts), rows: int64(p.n),
		perBlock:     int64(p.perBlock / partitionCounters),
		segmentCount: 1, bits: uint32(key.bits), shift: uint32(key.shift), flip: key.digitFlip(), mul: key.factor()}
}

func (p *radixPass) count(kernel string, shared int, args partitionCountArgs) {
	launch(p.op, kernel, p.counters*p.grid, 1024, shared, args)
}

// pairs returns how many pairs of digits, of bits together, all blocks count.
func (p *radixPass) pairs(bits uint) int64 { return int64(p.counters*p.grid) << bits }

// countsPairs reports whether a first pass also counts the digit of the second and last pass: if
// all pairs fit shared memory, and if writing and reading the counts of all blocks costs little
// compared with reading the keys once more.
func (p *radixPass) countsPairs(ends []uint) bool {
	return len(ends) == 2 && ends[1] <= pairBits && 8<<ends[1] <= p.q.dev.props.sharedPerBlock &&
		int64(p.n) >= 4*p.pairs(ends[1])
}

// second computes the counts of a second pass from the pairs that the first pass has counted. If
// full is not nil, it receives the number of rows of each value of both digits.
func (p *radixPass) second(before *radixPass, pairs, full *gpu.Buffer) {
	p.counters, p.bounds = 1, p.alloc(int64(p.grid+1)*4)
	of := before.counters * before.grid
	launch(p.op, "partition_second", p.grid, 1024, 4096,
		partitionSecondArgs{pairs: addr(pairs), begin: addr(before.counts), counts: addr(p.counts),
			bounds: addr(p.bounds),
			full:   addr(full), segments: uint32(of << before.key.bits), rows: uint32(p.n),
			perBlock: uint32(p.perBlock),
			low:      uint32(before.key.bits), high: uint32(p.key.bits),
			perDigit: uint32(of)})
}

// move turns the counts into output offsets, moves the rows and returns the first row of
// each digit. The counts become the first output row of each digit in each block.
func (p *radixPass) move() *gpu.Buffer {
	digits := 1 << p.key.bits
	starts := p.alloc(int64(digits+1) * 4)
	launch(p.op, "partition_offsets", 1, 1024, 0,
		partitionOffsetsArgs{addr(p.counts), addr(starts), int32(digits), int32(p.counters * p.grid)})
	p.begins("move")
	for _, l := range p.launches {
		args := p.args(l)
		args.base, args.bounds, args.counters = addr(p.counts), addr(p.bounds), uint32(p.counters)
		launch(p.op, l.shape.kernel(false), p.grid, partitionThreads, l.shared, args)
	}
	p.begins("")
	return starts
}

// args returns the arguments to move the columns of a launch.
func (p *radixPass) args(l partitionLaunch) partitionArgs {
	args := partitionArgs{key: addr(p.key.buf), rows: uint32(p.n), perBlock: uint32(p.perBlock),
		columns: int32(len(l.cols)),
		bits:    uint32(p.key.bits), shift: uint32(p.key.shift), flip: p.key.digitFlip(), widest: uint32(l.widest),
		mul: p.key.factor()}
	copy(args.column[:], l.cols)
	return args
}

// partitionShape describes how a partition kernel was compiled.
type partitionShape struct {
	key, width, stages int  // bytes of the key and of each column, 0 for any; number of stage buffers
	items              int  // rows of a thread
	bulk               bool // it writes with bulk copies
}

// partitionShapes are the kernels at the end of partition.cu, the faster ones first.
var partitionShapes = []partitionShape{
	{key: 4, width: 4, stages: 2, items: 28, bulk: true}, {key: 4, width: 4, stages: 1, items: 28, bulk: true},
	{key: 4, stages: 1, items: 12},
	{key: 8, width: 4, stages: 1, items: 16, bulk: true}, {key: 8, width: 8, stages: 1, items: 16, bulk: true},
	{key: 8, stages: 1, items: 12},
}

// kernel returns the kernel of an ordered or an unordered pass.
func (s partitionShape) kernel(unordered bool) string {
	pass := "partition"
	if unordered {
		pass += "_loose"
	}
	return fmt.Sprintf("%s_k%d_w%d_s%d", pass, s.key, s.width, s.stages)
}

func (s partitionShape) tile() int { return partitionThreads * s.items }

// shared returns the size of PartitionShared of partition.cu in bytes.
func (s partitionShape) shared(digits, widest, rowBytes int) int {
	const warps = partitionThreads / 32
	slots := s.tile() + (14*digits+32)/16*16
	aligned := (digits + 3) / 4 * 4
	targets := (slots/8 + 3) / 4 * 4
	if s.bulk {
		targets = 2 * aligned
	}
	words := 4 + 5*aligned + targets + warps*(digits+8)/2
	buffer := max(slots*widest, warps*(digits/4*4+4)*4)
	return 4*words + s.stages*buffer + digits*8*rowBytes
}

// partitionShape chooses the kernel for columns and a key of some width and bits: the fastest one
// with shared memory for two columns.
func (o *op) partitionShape(key int, bits uint, cols []mover) (shape partitionShape, fits bool) {
	same, widest := cols[0].width, 0
	for _, c := range cols {
		if c.width != same || c.src == nil && c.width != 4 {
			same = 0
		}
		widest = max(widest, min(c.width, 8))
	}
	for _, s := range partitionShapes {
		if s.key == key && (s.width == 0 || s.width == same) {
			s.bulk = s.bulk && o.q.dev.props.major >= 9
			shape, fits = s, s.shared(1<<bits, widest, 2*widest) <= o.q.dev.props.sharedPerBlock
			if fits {
				break
			}
		}
	}
	return shape, fits
}

// partitionLaunch is one launch: as many columns as fit shared memory.
type partitionLaunch struct {
	shape          partitionShape
	cols           []partitionColumn
	widest, shared int
}

// rowBytes returns the bytes of a row.
func (l partitionLaunch) rowBytes() (bytes int) {
	for _, c := range l.cols {
		bytes += int(c.width)
	}
	return bytes
}

func (o *op) partitionLaunches(key radixKey, cols []mover) []partitionLaunch {
	shape, _ := o.partitionShape(key.width, key.bits, cols)
	digits := 1 << key.bits
	// If the first column is the key, it is read only once.
	cols = slices.Clone(cols)
	if at := keyIn(key, cols); at > 0 {
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
			p.cols = append(p.cols, partitionColumn{src: addr(m.src) + uint64(8*k), dst: addr(m.dst) + uint64(8*k),
				width: int32(stored), stride: int32(parts)})
		}
	}
	return out
}

// Digits have at most usualDigit bits, or wideDigit if this saves a pass. A pass over 4-byte
// columns takes 0.94 ms with 6 bits, 1.12 with 8, and 1.40 with 9.
const (
	usualDigit = 8
	wideDigit  = 9
)

// digitBits returns the widest digit that fits shared memory: most bits on data-centre GPUs.
func (o *op) digitBits(key int, cols []mover, most uint) uint {
	for bits := most; bits > 1; bits-- {
		if shape, fits := o.partitionShape(key, bits, cols); fits && (bits <= usualDigit || shape.width == 4) {
			return bits
		}
	}
	return 1
}
