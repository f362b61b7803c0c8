package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// joinItem is JoinItem of join.cu.
type joinItem struct{ buildFrom, buildTo, probeFrom, probeTo uint32 }

type joinArgs struct {
	build, probe, buildValid, probeValid, items, counts, probeIDs, buildIDs, matched uint64
}

const (
	joinThreads = 1024
	joinBuild   = 9216    // JOIN_BUILD of join.cu: rows of a table
	joinProbe   = 1 << 16 // probe rows of an item; a skewed partition is split into several
)

// joinShared returns the size of JoinTable of join.cu in bytes.
func joinShared(width int) int {
	if width == 4 {
		return joinBuild*(4+2) + 4<<13
	}
	return joinBuild*(8+2) + 4<<12
}

// MatchPartitions implements gpu.Queue. It counts the pairs of all work items, and writes
// those of some items at a time.
func (q *queue) MatchPartitions(l *gpu.Lease, build, probe gpu.Partitioned) (out gpu.Matcher, err error) {
	o := q.begin("join partitions", l)
	defer end(o, &out, &err)
	o.takes(build.Key, build.Offsets, probe.Key, probe.Offsets)
	if err := gpu.CheckPartitions(build, probe); err != nil {
		return nil, err
	}
	m := &partitionMatcher{dev: q.dev, width: build.Key.Type.Width(), rows: probe.Key.Len, args: joinArgs{build: addr(build.Key.Data), probe: addr(probe.Key.Data),
		buildValid: addr(build.Key.Valid), probeValid: addr(probe.Key.Valid)}}
	ends := func(c gpu.Column) []int32 {
		at := make([]int32, c.Len)
		o.read(c.Data, 0, gpu.BytesOf(at))
		return at
	}
	m.plan(ends(build.Offsets), ends(probe.Offsets))
	m.left = m.count(o, m.all)
	return m, nil
}

// partitionMatcher is the matcher of partitioned sides.
type partitionMatcher struct {
	dev   *Device
	width int // bytes of the key
	rows  int // of the probe side
	args  joinArgs
	all   []joinItem
	left  []countedItem // whose pairs have not been returned
}

type countedItem struct {
	joinItem
	pairs int64
}

// plan splits the partitions into work items. A build partition that is too large for one
// table takes several tables. A partition with many probe rows is built by several
// blocks.
func (m *partitionMatcher) plan(build, probe []int32) {
	for p := range len(build) - 1 {
		for b := int(build[p]); b < int(build[p+1]); b += joinBuild {
			for r := int(probe[p]); r < int(probe[p+1]); r += joinProbe {
				m.all = append(m.all, joinItem{uint32(b), uint32(min(b+joinBuild, int(build[p+1]))), uint32(r), uint32(min(r+joinProbe, int(probe[p+1])))})
			}
		}
	}
}

func (m *partitionMatcher) launch(o *op, kernel string, items []joinItem, args joinArgs) {
	args.items = addr(upload(o, items))
	launch(o, fmt.Sprintf("%s_k%d", kernel, m.width), len(items), joinThreads, joinShared(m.width), args)
}

// count counts the pairs of items.
func (m *partitionMatcher) count(o *op, items []joinItem) (out []countedItem) {
	if len(items) == 0 {
		return nil
	}
	buf, counts, args := o.alloc(int64(len(items))*8), make([]int64, len(items)), m.args
	args.counts = addr(buf)
	m.launch(o, "join_count", items, args)
	o.read(buf, 0, gpu.BytesOf(counts))
	o.free(buf)
	for i, item := range items {
		if counts[i] > 0 {
			out = append(out, countedItem{item, counts[i]})
		}
	}
	return out
}

// split cuts items off the front of the first item that is left, until it has at most
// limit pairs or a single probe row.
func (m *partitionMatcher) split(o *op, limit int64) {
	for !o.failed() && m.left[0].pairs > limit && m.left[0].probeTo-m.left[0].probeFrom > 1 {
		whole := m.left[0].joinItem
		rows := int64(whole.probeTo - whole.probeFrom)
		first, rest := whole, whole
		first.probeTo = whole.probeFrom + uint32(max(1, rows*limit/m.left[0].pairs))
		rest.probeFrom = first.probeTo
		if parts := m.count(o, []joinItem{first, rest}); !o.failed() {
			m.left = append(parts, m.left[1:]...)
		}
	}
}

// Next implements gpu.Matcher.
func (m *partitionMatcher) Next(gq gpu.Queue, l *gpu.Lease, limit int) (probe, build gpu.Column, more bool, err error) {
	q, err := m.dev.queue(gq)
	if err != nil {
		return probe, build, false, err
	}
	out, items, err := m.next(q, l, int64(max(1, min(limit, gpu.MaxRows))))
	if err != nil {
		return probe, build, false, err
	}
	m.left = m.left[items:]
	return out[0], out[1], len(m.left) > 0, nil
}

func (m *partitionMatcher) next(q *queue, l *gpu.Lease, limit int64) (out [2]gpu.Column, n int, err error) {
	o := q.begin("join partitions, pairs", l)
	defer end(o, &out, &err)
	var items []joinItem
	var starts []int64
	total := int64(0)
	if len(m.left) > 0 {
		m.split(o, limit)
	}
	for n < len(m.left) && (n == 0 || total+m.left[n].pairs <= limit) {
		items, starts = append(items, m.left[n].joinItem), append(starts, total)
		total += m.left[n].pairs
		n++
	}
	for i := range out {
		out[i] = gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(total), Data: o.keep(o.alloc(total * 4))}
	}
	if n > 0 {
		args := m.args
		args.probeIDs, args.buildIDs, args.counts = addr(out[0].Data), addr(out[1].Data), addr(upload(o, starts))
		m.launch(o, "join_write", items, args)
	}
	return out, n, nil
}

// Join implements gpu.Matcher.
func (m *partitionMatcher) Join(q gpu.Queue, l *gpu.Lease, probe, build []gpu.Column, limit int) ([]gpu.Column, int, bool, error) {
	left := m.left
	cols, rows, more, err := gpu.NextAndGather(m, q, l, probe, build, limit)
	if err != nil {
		m.left = left
	}
	return cols, rows, more, err
}

// Matched implements gpu.Matcher.
func (m *partitionMatcher) Matched(gq gpu.Queue, l *gpu.Lease) (out gpu.Column, err error) {
	q, err := m.dev.queue(gq)
	if err != nil {
		return out, err
	}
	o := q.begin("matched", l)
	defer end(o, &out, &err)
	bits := o.alloc(gpu.BitmapBytes(m.rows))
	o.fill(bits, 0, gpu.BitmapBytes(m.rows), 0)
	args := m.args
	args.matched = addr(bits)
	m.launch(o, "join_mark", m.all, args)
	return gpu.Column{Type: gpu.Of(gpu.Bool), Len: m.rows, Data: o.keep(bits)}, nil
}

// Release implements gpu.Matcher.
func (m *partitionMatcher) Release() {}
