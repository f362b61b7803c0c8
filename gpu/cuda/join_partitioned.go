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
	src       uint64
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
	joinThreads = 768
	joinTeams   = 2                     // JOIN_TEAMS
	joinItem    = 16                    // bytes of JoinItem
	joinPlace   = 4 * (6 + 2*joinTeams) // bytes of JoinPlace
)

type joinArgs struct {
	build, probe, buildValid, probeValid, items, state, places, matched, limit, mul, buildRows, probeRows uint64

	load                    [joinLoads]joinLoad
	output                  [joinOutputs]joinOutput
	loads, outputs          uint32
	capacity, bits, unique  uint32
	next, head, slots, slot uint32
	_                       uint32
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

// joinRows returns the probe rows of a thread at a time.
func joinRows(keyWidth int) int {
	if keyWidth == 4 {
		return 3
	}
	return 2
}

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

// joinLayout is the shared memory of a block: the columns of a table, its keys first, a
// link a build row, the heads of the buckets, and for each team two slots of probe rows.
type joinLayout struct {
	columns                         []*joinColumn // payload columns in it
	capacity                        int
	bits                            uint
	next, head, slots, slot, shared int
}

func (j *partitionJoin) layout(columns []*joinColumn, capacity int) joinLayout {
	y := joinLayout{columns: columns, capacity: capacity, bits: uint(min(max(bits.Len(uint(capacity))-1, 8), 14))}
	rows := capacity + 2*joinAlign
	y.next, y.slot = align16(rows*j.width), align16(j.chunk()*j.width)
	for _, c := range columns {
		if c.build {
			y.next += align16(rows * c.width)
		} else {
			y.slot += align16(j.chunk() * c.width)
		}
	}
	y.head = y.next + align16(2*rows+16)
	y.slots = y.head + 4<<y.bits
	// A table of runs has its rows in the slots, and what it needs for a probe row a thread.
	y.shared = y.slots + max(2*joinTeams*y.slot, align16(capacity+16+6*(joinThreads+2)))
	return y
}

// chunk returns the probe rows that a team joins at a time.
func (j *partitionJoin) chunk() int { return joinThreads / joinTeams * joinRows(j.width) }

func align16(n int) int { return (n + 15) &^ 15 }

// plan chooses the layout. A table has room for a partition of the average size and its
// usual spread. Payload columns are in shared memory as long as they fit, those of the
// build side first: the rows of the probe side are read in order anyway.
func (j *partitionJoin) plan() joinLayout {
	budget := j.q.dev.props.sharedPerBlock - 1024
	var columns []*joinColumn
	for _, build := range []bool{true, false} {
		for i := range j.columns {
			c := &j.columns[i]
			if c.build == build && c.src != nil && c.src != j.key(build) && c.width <= 8 && len(columns) < joinLoads-2 {
				columns = append(columns, c)
			}
		}
	}
	capacity := j.capacity
	if capacity == 0 {
		mean := j.build.Key.Len/max(len(j.build.Offsets)-1, 1) + 1
		capacity = min(mean+6*int(math.Sqrt(float64(mean)))+joinAlign, 3<<14/2) &^ 7
		for j.layout(nil, capacity).shared > budget {
			capacity = capacity * 3 / 4 &^ 7
		}
	}
	for j.layout(columns, capacity).shared > budget {
		columns = columns[:len(columns)-1]
	}
	return j.layout(columns, capacity)
}

// key returns the key column of a side.
func (j *partitionJoin) key(build bool) *gpu.Buffer {
	if build {
		return j.build.Key.Data
	}
	return j.probe.Key.Data
}

// start plans the work items, at the first call.
func (j *partitionJoin) start(y joinLayout) {
	if j.capacity > 0 || j.err != nil {
		return
	}
	partitions := len(j.build.Offsets) - 1
	most := partitions + j.build.Key.Len/y.capacity + j.probe.Key.Len/joinSlice + 1
	perMulti := max(1, min(2048/joinThreads, (j.q.dev.props.sharedPerBlock+1024)/(y.shared+1024)))
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
	j.capacity = y.capacity
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
		buildRows: uint64(j.build.Key.Len), probeRows: uint64(j.probe.Key.Len), capacity: uint32(y.capacity), bits: uint32(y.bits),
		next: uint32(y.next), head: uint32(y.head), slots: uint32(y.slots), slot: uint32(y.slot)}
	if os.Getenv("JOINUNIQUE") != "" {
		a.unique = 1
	}
	if j.width == 4 {
		a.mul = 0x85ebca6b
	}
	at := map[*joinColumn]int{}
	for _, build := range []bool{true, false} {
		rows, offset := j.chunk(), 0
		if build {
			rows = y.capacity + 2*joinAlign
		}
		load := func(src *gpu.Buffer, width int) {
			a.load[a.loads] = joinLoad{src: addr(src), width: uint32(width), at: uint32(offset), build: flag(build)}
			a.loads++
			offset += align16(rows * width)
		}
		load(j.key(build), j.width)
		for _, c := range y.columns {
			if c.build == build {
				at[c] = offset
				load(c.src, c.width)
			}
		}
	}
	for i := range j.columns {
		c := &j.columns[i]
		offset, resident := at[c]
		if !resident && (c.src == nil || c.src != j.key(c.build)) {
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
	launch(j.op, fmt.Sprintf("%s_k%d", kernel, j.width), j.running, joinThreads, y.shared, *a)
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
