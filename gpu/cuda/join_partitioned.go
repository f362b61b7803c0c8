package cuda

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// The layouts of join.cu.
type (
	joinState struct {
		pairs, written                            uint64
		_, taken, late, lateTaken, stopped, wrong uint32
	}
	joinLoad struct {
		src, rows uint64
		width, at uint32
	}
	joinOutput struct {
		src, dst      uint64
		width, stride uint32
		at, build     int32
	}
	joinArgs struct {
		build, probe, buildValid, probeValid, items, late, state, places, matched, limit, mul uint64

		load                                         [joinLoads]joinLoad
		output                                       [joinOutputs]joinOutput
		loads, outputs, builds                       uint32
		capacity, bits, unique, most                 uint32
		next, head, slots, slot, payload, list, flat uint32
	}
	joinPlanArgs struct {
		build, probe, items, state        uint64
		partitions, capacity, slice, most uint32
		buildRows, probeRows              int64
	}
)

const (
	joinLoads   = 16 // JOIN_LOADS of join.cu
	joinOutputs = 32 // JOIN_OUTPUTS
	joinAlign   = 32 // JOIN_ALIGN
	joinThreads = 768
	joinItem    = 16 // bytes of JoinItem
	joinPlace   = 16 // bytes of JoinPlace

	// joinSlice is the number of probe rows of a work item; a skewed partition is cut into several.
	joinSlice = 1 << 17
	// joinLimit is the minimum limit of pairs of a launch. A block reserves space for at most so
	// many pairs at a time.
	joinLimit = 1 << 17
)

// joinRows returns the number of probe rows that a thread handles at a time, by the width of the
// key.
func joinRows(width int) int {
	if width == 4 {
		return 3
	}
	return 2
}

// partitionMatcher is the matcher of two partitioned sides. The device plans the work items. Blocks
// of the kernel record where they stopped, so that the next call continues there.
type partitionMatcher struct {
	partitionedSides
	width       int    // bytes of the key
	mul         uint64 // odd; makes buckets of keys
	capacity    int    // build rows of a table
	blocks      int
	most        int // items of each list
	items, late *gpu.Buffer
	work        *gpu.Buffer // JoinState, then for both kernels a JoinPlace a block
	partitionProgress
}

// partitionProgress is the progress of a partitionMatcher.
type partitionProgress struct {
	chained   bool   // all items have been joined, but the late ones
	lateItems uint32 // that are left for join_runs
	done      bool
}

// MatchPartitions implements gpu.Queue.
func (q *queue) MatchPartitions(l *gpu.Lease, build, probe gpu.Partitioned,
	how gpu.Probing) (out gpu.Matcher, err error) {
	o := q.begin("join partitions", l)
	defer end(o, &out, &err)
	o.takes(build.Key, build.Offsets, build.Chain, probe.Key, probe.Offsets, probe.Chain)
	if err := gpu.CheckPartitions(build, probe); err != nil {
		return nil, err
	}
	if how.Output != gpu.PairsFused || build.Chain.Len > 0 || probe.Chain.Len > 0 {
		return o.matchRadix(build, probe, how), nil
	}
	m := &partitionMatcher{partitionedSides: partitionedSides{q.dev, build, probe}, width: build.Key.Type.Width(),
		mul: rand.Uint64() | 1}
	m.plan(o, how.Whole)
	return m, nil
}

// plan chooses the size of a table, for a partition of the average size plus its usual deviation.
// Then it plans the work items.
func (m *partitionMatcher) plan(o *op, whole bool) {
	partitions := m.build.Offsets.Len - 1
	mean := m.build.Key.Len/max(partitions, 1) + 1
	m.capacity = min(mean+6*int(math.Sqrt(float64(mean)))+joinAlign, 3<<14/2) &^ 7
	for max(m.layout(nil, m.capacity).shared, m.runsLayout().shared) > m.budget() {
		m.capacity = m.capacity * 3 / 4 &^ 7
	}
	slice := joinSlice
	if whole {
		slice = math.MaxInt32
	}
	m.most = max(partitions+m.build.Key.Len/m.capacity+m.probe.Key.Len/slice, 1)
	m.blocks = min(m.dev.props.multiprocessors*(2048/joinThreads), m.most)
	m.items, m.late = o.keep(o.alloc(int64(m.most)*joinItem)), o.keep(o.alloc(int64(m.most)*joinItem))
	m.work = o.keep(o.alloc(int64(unsafe.Sizeof(joinState{})) + 2*int64(m.blocks)*joinPlace))
	if o.err != nil {
		return
	}
	o.fill(m.work, 0, m.work.Size(), 0)
	m.begin(o, 0)
	m.begin(o, 1)
	launch(o, "join_plan", 1, 1024, 0, joinPlanArgs{build: addr(m.build.Offsets.Data),
		probe: addr(m.probe.Offsets.Data), items: addr(m.items), state: addr(m.work),
		partitions: uint32(max(partitions, 0)), capacity: uint32(m.capacity), slice: uint32(slice),
		most:      uint32(m.most),
		buildRows: int64(m.build.Key.Len), probeRows: int64(m.probe.Key.Len)})
}

// places returns the offset and the bytes of the places of the blocks of a kernel: 0 for
// the chains, 1 for the runs.
func (m *partitionMatcher) places(kernel int) (at, bytes int64) {
	bytes = int64(m.blocks) * joinPlace
	return int64(unsafe.Sizeof(joinState{})) + int64(kernel)*bytes, bytes
}

// begin resets the blocks of a kernel to the position before its first item.
func (m *partitionMatcher) begin(o *op, kernel int) {
	at, bytes := m.places(kernel)
	o.fill(m.work, at, bytes, 0xff)
}

// budget returns the shared memory of a block.
func (m *partitionMatcher) budget() int { return m.dev.props.sharedPerBlock - 1024 }

// Release implements gpu.Matcher.
func (m *partitionMatcher) Release() {
	m.items.Release()
	m.late.Release()
	m.work.Release()
	m.items, m.late, m.work = nil, nil, nil
}

// joinColumn is a column of the pairs. Without a source it is row numbers.
type joinColumn struct {
	src, dst *gpu.Buffer
	width    int // bytes: 1, 2, 4, 8 or 16
	build    bool
}

// joinLayout is the layout of the shared memory of a block: the columns of a table, keys first; a
// link per build row; the heads of the buckets; two slots for keys and two for payload columns of
// the probe rows; and a list of pairs.
type joinLayout struct {
	columns                                        []*joinColumn // payload columns in it
	bits                                           uint          // of the number of buckets
	next, head, slots, slot, payload, list, shared int
}

func (m *partitionMatcher) layout(columns []*joinColumn, capacity int) joinLayout {
	y := joinLayout{columns: columns, bits: uint(min(max(bits.Len(uint(capacity))-1, 8), 14))}
	rows, chunk := m.rows(true, capacity), m.rows(false, capacity)
	y.next = align16(rows * m.width)
	for _, c := range columns {
		if c.build {
			y.next += align16(rows * c.width)
		} else {
			y.slot += chunk * c.width
		}
	}
	y.head = y.next + align16(2*rows+16)
	y.slots = y.head + 4<<y.bits
	y.payload = y.slots + 2*chunk*m.width
	y.list = y.payload + 2*y.slot
	y.shared = y.list + 4*chunk
	return y
}

// rows returns the number of rows of a side that fit a block.
func (m *partitionMatcher) rows(build bool, capacity int) int {
	if build {
		return capacity + 2*joinAlign
	}
	return joinThreads * joinRows(m.width)
}

func align16(n int) int { return (n + 15) &^ 15 }

// key returns the key column of a side.
func (m *partitionMatcher) key(build bool) *gpu.Buffer {
	if build {
		return m.build.Key.Data
	}
	return m.probe.Key.Data
}

// runsLayout is the shared memory of a block of join_runs.
func (m *partitionMatcher) runsLayout() joinLayout {
	rows := m.capacity + 2
	y := m.layout(nil, m.capacity)
	y.next = 0
	y.head = align16(4 * rows)
	y.slots = y.head + 4<<y.bits
	y.slot = y.slots + align16(2*rows)
	y.shared = y.slot + align16(6*(joinThreads+2))
	return y
}

// args returns the arguments of a kernel for columns of the pairs. Payload columns are in shared
// memory as long as they fit, those of the build side first, since the rows of the probe side are
// read in order anyway.
func (m *partitionMatcher) args(columns []joinColumn, limit int, runs bool) (a joinArgs, shared int) {
	var near []*joinColumn
	for _, build := range []bool{true, false} {
		for i := range columns {
			c := &columns[i]
			if !runs && c.build == build && c.src != nil && c.src != m.key(build) && c.width <= 8 &&
				len(near) < joinLoads-2 {
				near = append(near, c)
			}
		}
	}
	for m.layout(near, m.capacity).shared > m.budget() {
		near = near[:len(near)-1]
	}
	y := m.layout(near, m.capacity)
	places, _ := m.places(0)
	if runs {
		y = m.runsLayout()
		places, _ = m.places(1)
	}
	a = joinArgs{build: addr(m.build.Key.Data), probe: addr(m.probe.Key.Data), buildValid: addr(m.build.Key.Valid),
		probeValid: addr(m.probe.Key.Valid),
		items:      addr(m.items), late: addr(m.late), state: addr(m.work), places: addr(m.work) + uint64(places),
		limit: uint64(limit), mul: m.mul,
		capacity: uint32(m.capacity), bits: uint32(y.bits), unique: uint32(flag(m.build.Distinct)),
		most: uint32(m.most),
		next: uint32(y.next), head: uint32(y.head), slots: uint32(y.slots), slot: uint32(y.slot),
		payload: uint32(y.payload), list: uint32(y.list)}
	at := map[*joinColumn]int{}
	load := func(build bool, src *gpu.Buffer, width, offset int) int {
		n := m.probe.Key.Len
		if build {
			n = m.build.Key.Len
			a.builds++
		}
		a.load[a.loads] = joinLoad{src: addr(src), rows: uint64(n), width: uint32(width), at: uint32(offset)}
		a.loads++
		return offset + align16(m.rows(build, m.capacity)*width)
	}
	for _, build := range []bool{true, false} {
		offset := load(build, m.key(build), m.width, 0)
		if !build {
			offset = 0 // their payload columns have slots of their own
		}
		for _, c := range near {
			if c.build == build {
				at[c] = offset
				offset = load(build, c.src, c.width, offset)
			}
		}
	}
	a.flat = 1
	for i := range columns {
		c := &columns[i]
		offset, resident := at[c]
		switch {
		case runs:
			offset = -1
		case c.src != nil && c.src == m.key(false) && !c.build:
			offset = -2
		case !resident && (c.src == nil || c.src != m.key(c.build)):
			offset = -1
		}
		if offset == -1 || c.width != m.width {
			a.flat = 0
		}
		parts := (c.width + 7) / 8
		for k := range parts {
			out := joinOutput{dst: addr(c.dst) + uint64(8*k), width: uint32(c.width / parts), stride: uint32(parts),
				at: int32(offset), build: flag(c.build)}
			if c.src != nil {
				out.src = addr(c.src) + uint64(8*k)
			}
			a.output[a.outputs] = out
			a.outputs++
		}
	}
	return a, y.shared
}

// run launches a kernel over its remaining items, and returns the state after it.
func (m *partitionMatcher) run(o *op, kernel string, a joinArgs, shared int) joinState {
	o.fill(m.work, int64(unsafe.Offsetof(joinState{}.stopped)), 4, 0)
	perMulti := max(1, min(2048/joinThreads, (m.dev.props.sharedPerBlock+1024)/(shared+2048)))
	launch(o, fmt.Sprintf("%s_k%d", kernel, m.width), min(m.blocks, m.dev.props.multiprocessors*perMulti), joinThreads,
		shared, a)
	found := make([]joinState, 1)
	o.read(m.work, 0, gpu.BytesOf(found))
	m.wrong(o, found[0])
	return found[0]
}

// join joins the remaining items until there is no room for more pairs. It returns the number of
// pairs, and whether all items are done.
func (m *partitionMatcher) join(o *op, columns []joinColumn, room int) (rows int, done bool) {
	o.fill(m.work, int64(unsafe.Offsetof(joinState{}.pairs)), 8, 0)
	o.fill(m.work, int64(unsafe.Offsetof(joinState{}.written)), 8, 0xff)
	for {
		state := joinState{written: math.MaxUint64}
		if !m.chained {
			a, shared := m.args(columns, room, false)
			state = m.run(o, "join_pairs", a, shared)
			m.chained, m.lateItems = state.stopped == 0, state.late
		}
		if m.lateItems > 0 && state.written == math.MaxUint64 { // there is room
			a, shared := m.args(columns, room, true)
			if state = m.run(o, "join_runs", a, shared); state.stopped == 0 {
				m.lateItems = 0
				o.fill(m.work, int64(unsafe.Offsetof(joinState{}.late)), 4, 0)
				o.fill(m.work, int64(unsafe.Offsetof(joinState{}.lateTaken)), 4, 0)
				m.begin(o, 1)
			}
		}
		if o.failed() {
			return 0, false
		}
		if done = m.chained && m.lateItems == 0; done || state.written != math.MaxUint64 {
			return int(min(state.pairs, state.written)), done
		}
	}
}

// next joins the remaining items until about limit pairs are found. f makes the result. If memory
// is denied after the kernels ran, the blocks are reset to their previous positions.
func (m *partitionMatcher) next(o *op, columns []joinColumn, room int, f func(rows int)) (more bool) {
	if m.done {
		f(0)
		return false
	}
	before, progress := o.alloc(m.work.Size()), m.partitionProgress
	if o.failed() {
		return false
	}
	o.copy(before, 0, m.work, 0, m.work.Size())
	rows, done := m.join(o, columns, room)
	if o.failed() {
		return false
	}
	if f(rows); o.failed() {
		if gpu.IsOutOfMemory(o.err) {
			o.restore(m.work, before)
			m.partitionProgress = progress
		}
		return false
	}
	m.done = done
	return !done
}

// restore copies one buffer into another of its size although the op has failed.
func (o *op) restore(dst, src *gpu.Buffer) {
	if err := o.q.dev.ctx.do(cuMemcpyDtoDAsync, dst.Addr(), src.Addr(), uintptr(dst.Size()),
		uintptr(o.q.dev.compute)); err != nil {
		o.err = errors.Join(o.err, err)
	}
}

// room returns the number of pairs of a call: the limit, but not many more than there are probe
// rows, since memory is allocated for all of them.
func (m *partitionMatcher) room(limit int) int {
	if m.done {
		return 0
	}
	return min(max(limit, joinLimit), max(m.probe.Key.Len, joinLimit), gpu.MaxRows)
}

// Next implements gpu.Matcher.
func (m *partitionMatcher) Next(q gpu.Queue, l *gpu.Lease, limit int) (probe, build gpu.Column, more bool, err error) {
	return m.pairs(q, l, func(o *op, f func(ids [2]*gpu.Buffer, rows int)) (more bool) {
		room := m.room(limit)
		ids := o.pairsOf(room)
		return m.next(o, []joinColumn{{dst: ids[0], width: 4}, {dst: ids[1], width: 4, build: true}}, room,
			func(rows int) { f(ids, rows) })
	})
}

// Join implements gpu.Matcher: match and materialise in one kernel. Bitmaps are written as one byte
// per row, then packed. Strings are gathered by row ids.
func (m *partitionMatcher) Join(q gpu.Queue, l *gpu.Lease, probe, build []gpu.Column,
	limit int) (out []gpu.Column, rows int, more bool, err error) {
	more, err = m.columns(q, l, probe, build, &out, func(o *op) (more bool) {
		j := materialiser{op: o, room: m.room(limit), unpacked: map[*gpu.Buffer]*gpu.Buffer{}}
		for i, c := range slices.Concat(probe, build) {
			j.add(c, i >= len(probe))
		}
		return m.next(o, j.columns, j.room, func(n int) {
			rows = n
			out = j.result(n)
		})
	})
	return out, rows, more, err
}

// materialiser makes columns of pairs.
type materialiser struct {
	*op
	room     int // pairs
	outputs  []joinResult
	columns  []joinColumn
	ids      [2]*gpu.Buffer // row ids of the probe and of the build side, for strings
	unpacked map[*gpu.Buffer]*gpu.Buffer
}

// joinResult is a column of the result: its values and validity, as far as the kernel
// writes them.
type joinResult struct {
	src         gpu.Column
	side        int
	data, valid *gpu.Buffer
}

// add adds a column to the result. Columns beyond those that a kernel writes are
// gathered, as strings are.
func (j *materialiser) add(c gpu.Column, build bool) {
	r := joinResult{src: c}
	if build {
		r.side = 1
	}
	width := c.DataWidth()
	switch {
	case c.Dict == nil && c.Type.IsVar(), j.parts()+2+(width+7)/8 > joinOutputs-2:
		if j.ids[r.side] == nil {
			j.ids[r.side] = j.output(nil, 4, build)
		}
	default:
		if c.Valid != nil {
			r.valid = j.output(j.bytes(c.Valid, c.Len), 1, build)
		}
		if c.Dict == nil && c.Type.Kind == gpu.Bool {
			r.data = j.output(j.bytes(c.Data, c.Len), 1, build)
		} else {
			r.data = j.output(c.Data, width, build)
		}
	}
	j.outputs = append(j.outputs, r)
}

// parts returns the outputs of the kernel so far: values of 16 bytes take two.
func (j *materialiser) parts() (n int) {
	for _, c := range j.columns {
		n += (c.width + 7) / 8
	}
	return n
}

func (j *materialiser) output(src *gpu.Buffer, width int, build bool) *gpu.Buffer {
	dst := j.alloc(int64(j.room) * int64(width))
	j.columns = append(j.columns, joinColumn{src, dst, width, build})
	return dst
}

// bytes returns a bitmap as one byte per row.
func (j *materialiser) bytes(bitmap *gpu.Buffer, n int) *gpu.Buffer {
	if j.unpacked[bitmap] == nil {
		j.unpacked[bitmap] = j.unpackBits(bitmap, n)
	}
	return j.unpacked[bitmap]
}

// result returns the columns of n pairs.
func (j *materialiser) result(n int) []gpu.Column {
	out := make([]gpu.Column, len(j.outputs))
	var far [2][]gpu.Column
	for i, r := range j.outputs {
		if r.data == nil {
			far[r.side] = append(far[r.side], r.src)
			continue
		}
		c := gpu.Column{Type: r.src.Type, Len: n, Dict: j.retainDict(r.src.Dict), Valid: j.pack(r.valid, n)}
		if r.src.Dict == nil && r.src.Type.Kind == gpu.Bool {
			c.Data = j.pack(r.data, n)
		} else {
			c.Data = j.shrink(r.data, int64(n)*int64(r.src.DataWidth()))
		}
		out[i] = c
	}
	for side, cols := range far {
		if len(cols) == 0 {
			continue
		}
		cols = j.gather(cols, j.ids[side], n, false)
		for i, r := range j.outputs {
			if r.data == nil && r.side == side {
				out[i], cols = cols[0], cols[1:]
			}
		}
	}
	return out
}

// pack returns bytes as a bitmap, nil for nil.
func (j *materialiser) pack(bytes *gpu.Buffer, n int) *gpu.Buffer {
	if bytes == nil {
		return nil
	}
	bitmap := j.alloc(gpu.BitmapBytes(n))
	launch(j.op, "bits_pack", blocks(n, 2048), 256, 0, bitsArgs{src: addr(bytes), dst: addr(bitmap), n: int64(n)})
	return j.keep(bitmap)
}

// shrink keeps the first n bytes of a buffer. If the buffer is large and less than half full, they
// are moved to a smaller one.
func (o *op) shrink(b *gpu.Buffer, n int64) *gpu.Buffer {
	if n == 0 {
		return nil
	}
	if b.Size() < 2*n || b.Size() < 1<<20 {
		return o.keep(b)
	}
	to := o.alloc(n)
	o.copy(to, 0, b, 0, n)
	o.free(b)
	return o.keep(to)
}

// Matched implements gpu.Matcher.
func (m *partitionMatcher) Matched(q gpu.Queue, l *gpu.Lease) (gpu.Column, error) {
	return m.marked(q, l, m.work, func(o *op, matched uint64) {
		o.fill(m.work, int64(unsafe.Offsetof(joinState{}.taken)), 4, 0)
		m.begin(o, 0)
		a, shared := m.args(nil, joinLimit, false)
		a.matched = matched
		m.run(o, "join_mark", a, shared)
	})
}

// partitionedSides are the sides of a matcher of partitions, with the methods that such matchers
// share.
type partitionedSides struct {
	dev          *Device
	build, probe gpu.Partitioned
}

// pairs returns the row ids of the pairs that next finds. f takes their buffers.
func (s *partitionedSides) pairs(gq gpu.Queue, l *gpu.Lease,
	next func(o *op, f func(ids [2]*gpu.Buffer, rows int)) (more bool)) (probe, build gpu.Column, more bool,
	err error) {
	q, err := s.dev.queue(gq)
	if err != nil {
		return probe, build, false, err
	}
	var out [2]gpu.Column
	func() {
		o := q.begin("join partitions, pairs", l)
		defer end(o, &out, &err)
		more = next(o, func(ids [2]*gpu.Buffer, rows int) {
			for i := range out {
				out[i] = gpu.Column{Type: gpu.Of(gpu.Int32), Len: rows, Data: o.shrink(ids[i], int64(rows)*4)}
			}
		})
	}()
	return out[0], out[1], more, err
}

// columns runs next, which makes out of columns of the sides.
func (s *partitionedSides) columns(gq gpu.Queue, l *gpu.Lease, probe, build []gpu.Column, out *[]gpu.Column,
	next func(o *op) (more bool)) (more bool, err error) {
	q, err := s.dev.queue(gq)
	if err != nil {
		return false, err
	}
	o := q.begin("join partitions", l)
	defer end(o, out, &err)
	o.takes(probe...)
	o.takes(build...)
	for side, cols := range [][]gpu.Column{probe, build} {
		for _, c := range cols {
			if n := []int{s.probe.Key.Len, s.build.Key.Len}[side]; c.Len != n {
				return false, fmt.Errorf("partitioned join: a column of %d rows of a side of %d", c.Len, n)
			}
		}
	}
	return next(o), nil
}

// marked returns the bitmap of the probe rows with a match. mark restarts the blocks and sets the
// bits at an address. Then the blocks are reset to their previous positions, which are in work.
func (s *partitionedSides) marked(gq gpu.Queue, l *gpu.Lease, work *gpu.Buffer,
	mark func(o *op, matched uint64)) (out gpu.Column, err error) {
	q, err := s.dev.queue(gq)
	if err != nil {
		return out, err
	}
	o := q.begin("matched", l)
	defer end(o, &out, &err)
	n := gpu.BitmapBytes(s.probe.Key.Len)
	matched, before := o.alloc(n), o.alloc(work.Size())
	if o.failed() {
		return out, nil
	}
	o.fill(matched, 0, n, 0)
	o.copy(before, 0, work, 0, work.Size())
	mark(o, addr(matched))
	o.copy(work, 0, before, 0, work.Size())
	return gpu.Column{Type: gpu.Of(gpu.Bool), Len: s.probe.Key.Len, Data: o.keep(matched)}, nil
}

// wrong fails if a kernel has found that the offsets of the sides are wrong.
func (s *partitionedSides) wrong(o *op, state joinState) {
	if state.wrong != 0 {
		o.fail(fmt.Errorf("partitioned join: offsets descend or leave the key of %d build rows and %d probe rows",
			s.build.Key.Len, s.probe.Key.Len))
	}
}
