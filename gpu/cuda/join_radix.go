package cuda

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// The layouts of join_radix.cu.
type (
	radixState struct {
		join  joinState
		holes uint32
		_     [5]uint32 // for the kernels
	}
	radixArgs struct {
		build, probe, buildValid, probeValid, buildChain, probeChain, items, state, places, threads, tables, counts,
		matched, outProbe, outBuild, holes,
		limit, base, mul uint64
		capacity, bits, unique, page, next, head, shared, _ uint32
	}
	radixStartsArgs struct {
		counts uint64
		n      int64
	}
	radixGapsArgs struct {
		probe, build, holes, to, from, state, pairs uint64
		n, _                                        uint32
	}
)

const (
	radixThreads = 512  // RADIX_THREADS of join_radix.cu
	radixSpan    = 2048 // RADIX_SPAN
	radixThread  = 8    // bytes of RadixThread
	radixPage    = 4    // pairs of a page
)

// radixMatcher is the matcher of partitioned sides with one of the output strategies of Rui & Tu.
// Blocks and threads of its kernels record where they stopped, so that the next call continues
// there.
type radixMatcher struct {
	partitionedSides
	way          string // of the kernels: "exact", "pages" or "direct"
	args         radixArgs
	shared       int
	blocks, most int
	items        *gpu.Buffer
	work         *gpu.Buffer // radixState, a JoinPlace a block, a RadixThread a thread, a table a block
	counts       *gpu.Buffer // exact: pairs before each item, and the total behind them
	total        int64       // exact: number of pairs; -1 if not read yet
	at           int64       // pairs that have been returned
	done         bool
}

// matchRadix makes the matcher of MatchPartitions that writes pairs of row ids.
func (o *op) matchRadix(build, probe gpu.Partitioned, how gpu.Probing) *radixMatcher {
	m := &radixMatcher{partitionedSides: partitionedSides{o.q.dev, build, probe}, total: -1,
		way: map[gpu.PairOutput]string{gpu.PairsFused: "direct", gpu.PairsDirect: "direct",
			gpu.PairsCounted: "exact", gpu.PairsPaged: "pages"}[how.Output]}
	partitions := build.Offsets.Len - 1
	mean := build.Key.Len/max(partitions, 1) + 1
	capacity := mean + 6*int(math.Sqrt(float64(mean))) + joinAlign
	if build.Chain.Len > 0 {
		capacity += gpu.BucketRows
	}
	width := build.Key.Type.Width()
	layout := func() int {
		b := min(max(bits.Len(uint(capacity))-1, 8), 14)
		next := align16(capacity * width)
		head := next + align16(2*capacity)
		m.args.capacity, m.args.bits, m.args.next, m.args.head = uint32(capacity), uint32(b), uint32(next), uint32(head)
		return head + 4<<b
	}
	for m.shared = layout(); m.shared > o.q.dev.props.sharedPerBlock-1024; m.shared = layout() {
		capacity = capacity * 3 / 4
	}
	slice := joinSlice
	if how.Whole {
		slice = math.MaxInt32
	}
	m.most = max(partitions+build.Key.Len/capacity+probe.Key.Len/slice, 1)
	perMulti := max(1, min(2048/radixThreads, (o.q.dev.props.sharedPerBlock+1024)/(m.shared+2048)))
	m.blocks = min(m.most, perMulti*o.q.dev.props.multiprocessors)
	m.items = o.keep(o.alloc(int64(m.most) * joinItem))
	m.work = o.keep(o.alloc(m.tablesAt() + int64(m.blocks)*int64(m.shared)))
	if m.way == "exact" {
		m.counts = o.keep(o.alloc(int64(m.most+1) * 8))
	}
	if o.err != nil {
		return m
	}
	a := &m.args
	a.build, a.probe, a.buildValid, a.probeValid = addr(build.Key.Data), addr(probe.Key.Data), addr(build.Key.Valid),
		addr(probe.Key.Valid)
	a.buildChain, a.probeChain = addr(build.Chain.Data), addr(probe.Chain.Data)
	a.items, a.state, a.places, a.threads = addr(m.items), addr(m.work),
		addr(m.work)+uint64(unsafe.Sizeof(radixState{})), addr(m.work)+uint64(m.threadsAt())
	a.tables, a.shared = addr(m.work)+uint64(m.tablesAt()), uint32(m.shared)
	a.counts, a.mul, a.unique, a.page = addr(m.counts), rand.Uint64()|1, uint32(flag(build.Distinct)), radixPage
	o.fill(m.work, 0, m.work.Size(), 0) // next copies all of it
	m.begin(o)
	launch(o, "join_plan", 1, 1024, 0, joinPlanArgs{build: addr(build.Offsets.Data), probe: addr(probe.Offsets.Data),
		items: a.items, state: a.state,
		partitions: uint32(max(partitions, 0)), capacity: a.capacity, slice: uint32(slice), most: uint32(m.most),
		buildRows: int64(build.Key.Len), probeRows: int64(probe.Key.Len)})
	if m.counts != nil {
		o.fill(m.counts, 0, m.counts.Size(), 0)
		m.launch(o, "count", *a)
		launch(o, "radix_starts", 1, 1024, 0, radixStartsArgs{counts: a.counts, n: int64(m.most)})
		m.begin(o)
	}
	return m
}

func (m *radixMatcher) threadsAt() int64 {
	return int64(unsafe.Sizeof(radixState{})) + int64(m.blocks)*joinPlace
}

func (m *radixMatcher) tablesAt() int64 {
	return m.threadsAt() + int64(m.blocks)*radixThreads*radixThread
}

// begin resets all blocks to the position before the first item.
func (m *radixMatcher) begin(o *op) {
	o.fill(m.work, int64(unsafe.Offsetof(joinState{}.taken)), 4, 0)
	o.fill(m.work, int64(unsafe.Sizeof(radixState{})), m.threadsAt()-int64(unsafe.Sizeof(radixState{})), 0xff)
}

func (m *radixMatcher) launch(o *op, way string, a radixArgs) {
	launch(o, fmt.Sprintf("radix_%s_k%d", way, m.build.Key.Type.Width()), m.blocks, radixThreads, m.shared, a)
}

// Release implements gpu.Matcher.
func (m *radixMatcher) Release() {
	m.items.Release()
	m.work.Release()
	m.counts.Release()
	m.items, m.work, m.counts = nil, nil, nil
}

// gaps returns the maximum number of slots without a pair among so many slots.
func (m *radixMatcher) gaps(slots int) int {
	if m.way == "pages" {
		return m.blocks * radixThreads * radixPage
	}
	return m.blocks*radixSpan + 32*(slots/radixSpan+2)
}

// state reads the state, and fails when the offsets of the sides are wrong.
func (m *radixMatcher) state(o *op) radixState {
	found := make([]radixState, 1)
	o.read(m.work, 0, gpu.BytesOf(found))
	m.wrong(o, found[0].join)
	return found[0]
}

// next finds about limit more pairs, and f makes the result from them. If memory is denied after
// the kernels ran, the blocks are reset to their previous positions.
func (m *radixMatcher) next(o *op, limit int, f func(ids [2]*gpu.Buffer, rows int)) (more bool) {
	if m.done {
		f([2]*gpu.Buffer{}, 0)
		return false
	}
	if m.counts != nil && m.total < 0 {
		var total [1]int64
		if m.state(o); !o.read(m.counts, int64(m.most)*8, gpu.BytesOf(total[:])) {
			return false
		}
		m.total = total[0]
	}
	limit = max(1, min(limit, gpu.MaxRows))
	before := o.alloc(m.work.Size())
	if o.failed() {
		return false
	}
	o.copy(before, 0, m.work, 0, m.work.Size())
	o.flush() // even if memory is denied before the kernels run
	var ids [2]*gpu.Buffer
	var rows int
	var done bool
	if m.counts != nil {
		ids, rows = m.counted(o, int(min(int64(limit), m.total-m.at)))
		done = m.at+int64(rows) == m.total
	} else {
		// Every block gets enough slots for a call to make progress.
		slots := max(limit, joinLimit)
		ids, rows, done = m.direct(o, min(slots, max(m.probe.Key.Len+m.gaps(min(slots, m.probe.Key.Len)), joinLimit),
			gpu.MaxRows))
	}
	if !o.failed() {
		f(ids, rows)
	}
	if o.failed() {
		if gpu.IsOutOfMemory(o.err) {
			o.restore(m.work, before)
		}
		return false
	}
	m.at, m.done = m.at+int64(rows), done
	return !done
}

// pairsOf allocates row ids of both sides.
func (o *op) pairsOf(n int) (ids [2]*gpu.Buffer) {
	for i := range ids {
		ids[i] = o.alloc(int64(n) * 4)
	}
	return ids
}

// counted writes the next n pairs, which have been counted.
func (m *radixMatcher) counted(o *op, n int) ([2]*gpu.Buffer, int) {
	ids := o.pairsOf(n)
	if n > 0 && !o.failed() {
		a := m.args
		a.outProbe, a.outBuild, a.limit, a.base = addr(ids[0]), addr(ids[1]), uint64(n), uint64(m.at)
		m.launch(o, m.way, a)
	}
	return ids, n
}

// direct writes pairs into the slots, and closes the gaps between them.
func (m *radixMatcher) direct(o *op, slots int) (ids [2]*gpu.Buffer, rows int, done bool) {
	ids = o.pairsOf(slots)
	holes := o.alloc(int64(m.gaps(slots)) * 4)
	if o.failed() {
		return ids, 0, false
	}
	o.fill(m.work, int64(unsafe.Offsetof(joinState{}.pairs)), 8, 0)
	o.fill(m.work, int64(unsafe.Offsetof(joinState{}.stopped)), 4, 0)
	o.fill(m.work, int64(unsafe.Offsetof(radixState{}.holes)), 12, 0)
	a := m.args
	a.outProbe, a.outBuild, a.holes, a.limit = addr(ids[0]), addr(ids[1]), addr(holes), uint64(slots)
	m.launch(o, m.way, a)
	state := m.state(o)
	n := int(state.holes)
	rows = int(min(state.join.pairs, uint64(slots))) - n
	if n > 0 {
		lists := o.pairsOf(n)
		g := radixGapsArgs{probe: addr(ids[0]), build: addr(ids[1]), holes: addr(holes), to: addr(lists[0]),
			from: addr(lists[1]), state: addr(m.work),
			pairs: uint64(rows), n: uint32(n)}
		launch(o, "radix_gaps", blocks(n, 256), 256, 0, g)
		launch(o, "radix_close", blocks(n, 256), 256, 0, g)
		o.free(lists[:]...)
	}
	return ids, rows, state.join.stopped == 0
}

// Next implements gpu.Matcher.
func (m *radixMatcher) Next(q gpu.Queue, l *gpu.Lease, limit int) (probe, build gpu.Column, more bool, err error) {
	return m.pairs(q, l, func(o *op, f func(ids [2]*gpu.Buffer, rows int)) (more bool) { return m.next(o, limit, f) })
}

// Join implements gpu.Matcher.
func (m *radixMatcher) Join(q gpu.Queue, l *gpu.Lease, probe, build []gpu.Column,
	limit int) (out []gpu.Column, rows int, more bool, err error) {
	more, err = m.columns(q, l, probe, build, &out, func(o *op) (more bool) {
		return m.next(o, limit, func(ids [2]*gpu.Buffer, n int) {
			o.begins("materialise")
			rows = n
			out = append(o.gather(probe, ids[0], n, false), o.gather(build, ids[1], n, false)...)
		})
	})
	return out, rows, more, err
}

// Matched implements gpu.Matcher.
func (m *radixMatcher) Matched(q gpu.Queue, l *gpu.Lease) (gpu.Column, error) {
	return m.marked(q, l, m.work, func(o *op, matched uint64) {
		m.begin(o)
		a := m.args
		a.matched = matched
		m.launch(o, "mark", a)
		m.state(o)
	})
}
