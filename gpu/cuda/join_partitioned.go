package cuda

import (
	"fmt"
	"math"
	"math/bits"
	"os"

	"github.com/gstream/gstream/gpu"
)

// The layouts of join.cu.
type joinState struct {
	pairs, written           uint64
	items, taken, stopped, _ uint32
}

type joinLoad struct {
	src, rows uint64
	width, at uint32
	build     int32
	_         uint32
}

type joinOutput struct {
	src, dst      uint64
	width, stride uint32
	at, build     int32
}

const (
	joinLoads   = 16 // JOIN_LOADS of join.cu
	joinOutputs = 32 // JOIN_OUTPUTS
	joinAlign   = 32 // JOIN_ALIGN
	joinItem    = 16 // bytes of JoinItem
	joinPlace   = 32 // bytes of JoinPlace
)

type joinArgs struct {
	build, probe, buildValid, probeValid, items, state, places, matched, limit, mul uint64

	load                       [joinLoads]joinLoad
	output                     [joinOutputs]joinOutput
	loads, outputs             uint32
	capacity, bits, unique     uint32
	next, head, slots, slot, _ uint32
}

type joinPlanArgs struct {
	build, probe, items, state          uint64
	partitions, capacity, slice, unused uint32
}

const (
	// joinSlice is the probe rows of a work item; a skewed partition is cut into several.
	joinSlice = 1 << 16
	// joinLimit is the least number of pairs of a call: as many as a block of the kernel
	// reserves at a time, or more.
	joinLimit = 1 << 17
)

// joinShape is how a join kernel was compiled.
type joinShape struct{ threads, rows int }

func joinShapeOf(keyWidth int) joinShape {
	if e := os.Getenv("JOINSHAPE"); e != "" {
		var s joinShape
		fmt.Sscanf(e, "%dx%d", &s.threads, &s.rows)
		return s
	}
	if keyWidth == 4 {
		return joinShape{768, 3}
	}
	return joinShape{768, 2}
}

func (s joinShape) chunk() int { return s.threads * s.rows }

// joinColumn is a column of the pairs, before it is known where its rows are.
type joinColumn struct {
	src   *gpu.Buffer // nil: row numbers
	dst   *gpu.Buffer
	width int
	build bool
}

// partitionMatcher is the join of two partitioned sides. Blocks of the kernel remember
// where they stopped.
type partitionMatcher struct {
	dev          *Device
	lease        *gpu.Lease
	build, probe gpu.Partitioned
	capacity     int         // build rows of a table; 0 before the first call
	bits         uint        // of the number of buckets
	items        *gpu.Buffer // work items
	state        *gpu.Buffer
	places       *gpu.Buffer // by block
	running      int         // blocks
	done         bool
}

// newPartitionMatcher returns the matcher of two sides.
func (q *queue) newPartitionMatcher(l *gpu.Lease, build, probe gpu.Partitioned) *partitionMatcher {
	return &partitionMatcher{dev: q.dev, lease: l, build: build, probe: probe}
}

// Release gives back what the matcher holds.
func (m *partitionMatcher) Release() {
	for _, b := range []*gpu.Buffer{m.items, m.state, m.places} {
		b.Release()
	}
	m.items, m.state, m.places = nil, nil, nil
}

// partitionJoin is one call of a partitionMatcher.
type partitionJoin struct {
	*op
	*partitionMatcher
	width   int // bytes of the key
	args    joinArgs
	columns []joinColumn
	shared  int // bytes of a block
}

func (m *partitionMatcher) call(o *op) *partitionJoin {
	return &partitionJoin{op: o, partitionMatcher: m, width: m.build.Key.Type.Width()}
}

// add adds columns of the pairs: those of a side, in the order of cols, whose outputs have
// room for a number of pairs.
func (j *partitionJoin) add(src *gpu.Buffer, width int, build bool, room int) *gpu.Buffer {
	dst := j.alloc(int64(room) * int64(width))
	j.columns = append(j.columns, joinColumn{src, dst, width, build})
	return dst
}

// residents returns the number of columns, in the order of widths, that shared memory has
// room for beside the keys, and the number of build rows that then fit.
//
// The layout of a block's shared memory: the table's columns, keys first; a link a build
// row; the heads of the buckets; two slots of probe rows; the pairs of a chunk.
type joinLayout struct {
	columns           []*joinColumn // in shared memory beside the keys
	capacity          int
	bits              uint
	next, head, slots int
	slot, shared      int
}

// layout places the columns of a table of capacity build rows.
func (j *partitionJoin) layout(columns []*joinColumn, capacity int, bits uint) joinLayout {
	chunk := joinShapeOf(j.width).chunk()
	table, slot := 0, 0
	for _, w := range j.widths(columns, true) {
		table += align16((capacity + 2*joinAlign) * w)
	}
	for _, w := range j.widths(columns, false) {
		slot += align16((chunk + joinAlign) * w)
	}
	// The second slot has the arrays of a table of runs: see Joiner in join.cu.
	half := capacity / 2
	slot = max(slot, align16(2*(half+2)+4*(chunk+1)+2*chunk))
	y := joinLayout{columns: columns, capacity: capacity, bits: bits, slot: slot}
	y.next = table
	y.head = y.next + align16(2*capacity+4*joinAlign+16)
	y.slots = y.head + 4<<bits
	y.shared = y.slots + 2*slot
	return y
}

func align16(n int) int { return (n + 15) &^ 15 }

// widths returns the widths of the columns of a side that are in shared memory, the key's
// first.
func (j *partitionJoin) widths(columns []*joinColumn, build bool) []int {
	w := []int{j.width}
	for _, c := range columns {
		if c.build == build {
			w = append(w, c.width)
		}
	}
	return w
}

// plan chooses the layout. A table has room for a partition of the average size and its
// usual spread. Payload columns are in shared memory as long as they fit: those of the
// probe side leave first, whose rows are read in order.
func (j *partitionJoin) plan() joinLayout {
	budget := j.q.dev.props.sharedPerBlock - 1024
	key := func(build bool) *gpu.Buffer {
		if build {
			return j.build.Key.Data
		}
		return j.probe.Key.Data
	}
	var columns []*joinColumn
	for _, build := range []bool{true, false} {
		for i := range j.columns {
			c := &j.columns[i]
			if c.build == build && c.src != nil && c.src != key(build) && c.width <= 8 && len(columns) < joinLoads-2 {
				columns = append(columns, c)
			}
		}
	}
	if j.capacity > 0 {
		for {
			if y := j.layout(columns, j.capacity, j.bits); y.shared <= budget || len(columns) == 0 {
				return y
			}
			columns = columns[:len(columns)-1]
		}
	}
	mean := j.build.Key.Len/max(len(j.build.Offsets)-1, 1) + 1
	want := mean + 6*int(math.Sqrt(float64(mean))) + joinAlign
	for {
		for capacity := want; ; capacity = capacity * 3 / 4 {
			logBuckets := uint(min(max(bits.Len(uint(capacity))-1, 8), 14))
			capacity = min(capacity, 3<<logBuckets/2, 1<<15) &^ 7
			y := j.layout(columns, capacity, logBuckets)
			if y.shared <= budget && (capacity >= mean || len(columns) == 0) {
				return y
			}
			if y.shared <= budget || capacity < mean && len(columns) > 0 {
				break
			}
		}
		columns = columns[:len(columns)-1]
	}
}

// start plans the work items, at the first call.
func (j *partitionJoin) start(y joinLayout) {
	if j.capacity > 0 || j.err != nil {
		return
	}
	partitions := len(j.build.Offsets) - 1
	most := partitions + j.build.Key.Len/y.capacity + j.probe.Key.Len/joinSlice + 1
	perMulti := max(1, min(2048/joinShapeOf(j.width).threads, (j.q.dev.props.sharedPerBlock+1024)/(y.shared+1024)))
	j.running = max(1, min(j.q.dev.props.multiprocessors*perMulti, most))
	j.items = j.allocFrom(j.partitionMatcher.lease, int64(most)*joinItem)
	j.state = j.allocFrom(j.partitionMatcher.lease, int64(len(gpu.BytesOf(make([]joinState, 1)))))
	j.places = j.allocFrom(j.partitionMatcher.lease, int64(j.running)*joinPlace)
	if j.err != nil {
		j.Release()
		return
	}
	offsets := func(at []int) *gpu.Buffer {
		v := make([]uint32, len(at))
		for i, x := range at {
			v[i] = uint32(x)
		}
		return upload(j.op, v)
	}
	j.fill(j.state, 0, j.state.Size(), 0)
	j.fill(j.places, 0, j.places.Size(), 0xff)
	launch(j.op, "join_plan", 1, 1024, 0, joinPlanArgs{build: addr(offsets(j.build.Offsets)), probe: addr(offsets(j.probe.Offsets)),
		items: addr(j.items), state: addr(j.state), partitions: uint32(partitions), capacity: uint32(y.capacity), slice: joinSlice})
	j.capacity, j.bits = y.capacity, y.bits
}

// launch runs a kernel over the items that are left.
func (j *partitionJoin) launch(kernel string, limit int) (state joinState) {
	y := j.plan()
	j.start(y)
	if j.err != nil {
		return state
	}
	a := &j.args
	*a = joinArgs{build: addr(j.build.Key.Data), probe: addr(j.probe.Key.Data), buildValid: addr(j.build.Key.Valid), probeValid: addr(j.probe.Key.Valid),
		items: addr(j.items), state: addr(j.state), places: addr(j.places), matched: a.matched, limit: uint64(limit), mul: 0xd6e8feb86659fd93,
		capacity: uint32(j.capacity), bits: uint32(j.bits), next: uint32(y.next), head: uint32(y.head), slots: uint32(y.slots), slot: uint32(y.slot)}
	if os.Getenv("JOINUNIQUE") != "" {
		a.unique = 1
	}
	if j.width == 4 {
		a.mul = 0x85ebca6b
	}
	at := map[*joinColumn]int{}
	load := func(src *gpu.Buffer, rows, width int, build bool, offset int) {
		a.load[a.loads] = joinLoad{src: addr(src), rows: uint64(rows), width: uint32(width), at: uint32(offset), build: flag(build)}
		a.loads++
	}
	for _, build := range []bool{true, false} {
		side, rows := j.probe, joinShapeOf(j.width).chunk()+joinAlign
		if build {
			side, rows = j.build, y.capacity+2*joinAlign
		}
		load(side.Key.Data, side.Key.Len, j.width, build, 0)
		offset := align16(rows * j.width)
		for _, c := range y.columns {
			if c.build == build {
				load(c.src, side.Key.Len, c.width, build, offset)
				at[c] = offset
				offset += align16(rows * c.width)
			}
		}
	}
	for i := range j.columns {
		c := &j.columns[i]
		offset, resident := at[c]
		switch {
		case c.src != nil && (c.src == j.build.Key.Data && c.build || c.src == j.probe.Key.Data && !c.build):
			offset = 0
		case !resident:
			offset = -1
		}
		parts := (c.width + 7) / 8
		for k := range parts {
			out := joinOutput{dst: addr(c.dst) + uint64(8*k), width: uint32(c.width / parts), stride: uint32(parts), at: int32(offset), build: flag(c.build)}
			if c.src != nil {
				out.src = addr(c.src) + uint64(8*k)
			}
			a.output[a.outputs] = out
			a.outputs++
		}
	}
	j.fill(j.state, 0, 8, 0)
	j.fill(j.state, 8, 8, 0xff)
	j.fill(j.state, 24, 4, 0)
	launch(j.op, fmt.Sprintf("%s_k%d_%dx%d", kernel, j.width, joinShapeOf(j.width).threads, joinShapeOf(j.width).rows), j.running, joinShapeOf(j.width).threads, y.shared, *a)
	found := make([]joinState, 1)
	j.read(j.state, 0, gpu.BytesOf(found))
	return found[0]
}

// Join implements gpu.Matcher.
func (m *partitionMatcher) Join(gq gpu.Queue, l *gpu.Lease, probe, build []gpu.Column, limit int) (out []gpu.Column, rows int, more bool, err error) {
	q, err := m.dev.queue(gq)
	if err != nil {
		return nil, 0, false, err
	}
	o := q.begin("join partitions", l)
	defer end(o, &out, &err)
	o.takes(probe...)
	o.takes(build...)
	if m.done {
		limit = 0
	}
	room := min(max(limit, joinLimit), max(m.probe.Key.Len, joinLimit), gpu.MaxRows)
	j := m.call(o)
	type sink struct {
		col         gpu.Column
		src         gpu.Column
		build       bool
		bits, valid *gpu.Buffer // one byte a row
	}
	var texts []int
	sinks := make([]sink, 0, len(probe)+len(build))
	unpacked := map[*gpu.Buffer]*gpu.Buffer{}
	bytes := func(b *gpu.Buffer, n int) *gpu.Buffer {
		if unpacked[b] == nil {
			unpacked[b] = o.unpackBits(b, n)
		}
		return unpacked[b]
	}
	for i, c := range append(append([]gpu.Column{}, probe...), build...) {
		s := sink{src: c, build: i >= len(probe), col: gpu.Column{Type: c.Type}}
		switch {
		case c.Dict == nil && c.Type.IsVar() || len(j.columns)+3 > joinOutputs-4:
			texts = append(texts, i)
		default:
			s.col.Dict = o.retainDict(c.Dict)
			if c.Valid != nil {
				s.valid = j.add(bytes(c.Valid, c.Len), 1, s.build, room)
			}
			if c.Dict == nil && c.Type.Kind == gpu.Bool {
				s.bits = j.add(bytes(c.Data, c.Len), 1, s.build, room)
			} else {
				s.col.Data = j.add(c.Data, c.DataWidth(), s.build, room)
			}
		}
		sinks = append(sinks, s)
	}
	var ids [2]*gpu.Buffer
	for _, i := range texts {
		side := 0
		if sinks[i].build {
			side = 1
		}
		if ids[side] == nil {
			ids[side] = j.add(nil, 4, sinks[i].build, room)
		}
	}
	state := j.launch("join_pairs", room)
	if o.err != nil {
		return nil, 0, false, nil
	}
	rows = int(min(state.pairs, state.written))
	more = state.stopped != 0
	pack := func(b *gpu.Buffer) *gpu.Buffer {
		if b == nil {
			return nil
		}
		to := o.alloc(gpu.BitmapBytes(rows))
		launch(o, "bits_pack", blocks(rows, 2048), 256, 0, bitsArgs{src: addr(b), dst: addr(to), n: int64(rows)})
		return o.keep(to)
	}
	for i := range sinks {
		s := &sinks[i]
		s.col.Len = rows
		s.col.Valid = pack(s.valid)
		if s.bits != nil {
			s.col.Data = pack(s.bits)
		} else if s.col.Data != nil {
			s.col.Data = o.shrink(s.col.Data, int64(rows)*int64(s.col.DataWidth()))
		}
		out = append(out, s.col)
	}
	for side, b := range ids {
		var cols []gpu.Column
		var at []int
		for _, i := range texts {
			if sinks[i].build == (side == 1) {
				cols, at = append(cols, sinks[i].src), append(at, i)
			}
		}
		if b != nil {
			for k, c := range o.gather(cols, b, rows, false) {
				out[at[k]] = c
			}
		}
	}
	return out, rows, more, nil
}

// shrink keeps the first n bytes of a buffer, in a smaller one when that saves half.
func (o *op) shrink(b *gpu.Buffer, n int64) *gpu.Buffer {
	if b.Size() < 2*n || b.Size() < 1<<20 {
		return o.keep(b)
	}
	to := o.alloc(n)
	o.copy(to, 0, b, 0, n)
	o.free(b)
	return o.keep(to)
}

// Next implements gpu.Matcher.
func (m *partitionMatcher) Next(gq gpu.Queue, l *gpu.Lease, limit int) (probe, build gpu.Column, more bool, err error) {
	q, err := m.dev.queue(gq)
	if err != nil {
		return probe, build, false, err
	}
	o := q.begin("join partitions", l)
	var out [2]gpu.Column
	defer func() { probe, build = out[0], out[1] }()
	defer end(o, &out, &err)
	room := min(max(limit, joinLimit), max(m.probe.Key.Len, joinLimit), gpu.MaxRows)
	j := m.call(o)
	for side := range out {
		out[side] = gpu.Column{Type: gpu.Of(gpu.Int32), Data: j.add(nil, 4, side == 1, room)}
	}
	state := j.launch("join_pairs", room)
	rows := int(min(state.pairs, state.written))
	for side := range out {
		out[side].Len = rows
		if o.err == nil {
			out[side].Data = o.shrink(out[side].Data, int64(rows)*4)
		}
	}
	return out[0], out[1], state.stopped != 0, nil
}

// matched returns a bitmap of the probe rows with a match.
func (m *partitionMatcher) matched(o *op) *gpu.Buffer {
	matched := o.alloc(gpu.BitmapBytes(m.probe.Key.Len))
	if matched != nil {
		o.fill(matched, 0, matched.Size(), 0)
		// The items of a matcher of its own, all of them, whatever Next has returned.
		all := partitionMatcher{dev: m.dev, lease: o.lease, build: m.build, probe: m.probe}
		defer all.Release()
		j := all.call(o)
		j.args.matched = addr(matched)
		j.launch("join_mark", 0)
	}
	return matched
}

// MatchPartitions implements gpu.Queue.
func (q *queue) MatchPartitions(l *gpu.Lease, build, probe gpu.Partitioned, kind gpu.JoinKind) (probeIDs, buildIDs gpu.Column, err error) {
	if err := gpu.CheckPartitions(build, probe); err != nil {
		return probeIDs, buildIDs, q.fail("join partitions", err)
	}
	if err := gpu.CheckMemory(q.dev, []gpu.Column{build.Key, probe.Key}); err != nil {
		return probeIDs, buildIDs, q.fail("join partitions", err)
	}
	m := q.newPartitionMatcher(l, build, probe)
	defer m.Release()
	var pairs [2][]gpu.Column
	defer func() {
		gpu.ReleaseColumns(pairs[0])
		gpu.ReleaseColumns(pairs[1])
	}()
	if kind == gpu.Inner || kind == gpu.Left {
		for more := true; more; {
			var p, b gpu.Column
			if p, b, more, err = m.Next(q, l, 0); err != nil {
				return probeIDs, buildIDs, err
			}
			pairs[0], pairs[1] = append(pairs[0], p), append(pairs[1], b)
		}
	}
	if kind != gpu.Inner {
		o := q.begin("join partitions", l)
		var rest gpu.Column
		func() {
			defer end(o, &rest, &err)
			bits := m.matched(o)
			if kind != gpu.Semi {
				n := probe.Key.Len
				inverted := make([]byte, bits.Size())
				o.read(bits, 0, inverted)
				for i := range inverted {
					inverted[i] ^= 0xff
				}
				for r := range n {
					if r < probe.Offsets[0] || r >= probe.Offsets[len(probe.Offsets)-1] {
						inverted[r/8] &^= 1 << (r % 8)
					}
				}
				o.write(bits, 0, inverted)
			}
			ids, n := o.selectRows(bits, nil, probe.Key.Len)
			rest = gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(n), Data: o.keep(ids)}
		}()
		if err != nil {
			return probeIDs, buildIDs, err
		}
		pairs[0] = append(pairs[0], rest)
		if kind == gpu.Left {
			o := q.begin("join partitions", l)
			none := gpu.Column{Type: gpu.Of(gpu.Int32), Len: rest.Len}
			func() {
				defer end(o, &none, &err)
				none.Data = o.keep(o.alloc(int64(rest.Len) * 4))
				o.fill(none.Data, 0, int64(rest.Len)*4, 0xff)
			}()
			if err != nil {
				return probeIDs, buildIDs, err
			}
			pairs[1] = append(pairs[1], none)
		}
	}
	if probeIDs, err = q.Concat(l, pairs[0]); err != nil {
		return probeIDs, buildIDs, err
	}
	if len(pairs[1]) > 0 {
		buildIDs, err = q.Concat(l, pairs[1])
	}
	return probeIDs, buildIDs, err
}

// Partitioned makes the matcher of two sides.
func (q *queue) Partitioned(l *gpu.Lease, build, probe gpu.Partitioned) interface {
	Join(gpu.Queue, *gpu.Lease, []gpu.Column, []gpu.Column, int) ([]gpu.Column, int, bool, error)
	Release()
} {
	return q.newPartitionMatcher(l, build, probe)
}
