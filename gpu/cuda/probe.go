package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

const (
	probeTile  = 2048 // PROBE_TILE of table.cu
	probeChunk = 8192 // PROBE_CHUNK of table.cu
)

type probeArgs struct {
	index                                                 indexArgs
	ranks                                                 rankArgs
	rows                                                  rowTableArgs
	numbers, start, entries, pairs, probe, build, matched uint64
	n, from, to                                           int64
	tiles, _                                              int32
}

// Match implements gpu.Table. It does not wait for the device.
func (t *table) Match(gq gpu.Queue, l *gpu.Lease, keys []gpu.Column) (out gpu.Matcher, err error) {
	q, err := t.dev.queue(gq)
	if err != nil {
		return nil, err
	}
	o := q.begin("probe", l)
	defer end(o, &out, &err)
	o.takes(keys...)
	if len(keys) != len(t.nullSafe) {
		return nil, fmt.Errorf("probe with %d key columns of a table of %d", len(keys), len(t.nullSafe))
	}
	n := keys[0].Len
	if err := t.codec.check(keys, n); err != nil {
		return nil, err
	}
	if n > gpu.MaxRows {
		return nil, gpu.TooManyRows(n)
	}
	r := t.keyRows(o, keys, n, false)
	m := o.newMatcher(n)
	m.args.start = addr(t.start)
	if t.entries != nil {
		m.args.entries = addr(t.entries) + t.entriesAt
	}
	a := m.args
	switch {
	case t.ranked:
		load, _ := t.integerLoad()
		a.ranks = rankArgs{keys: r.keys, valid: r.valid, ranks: addr(t.ranks), low: t.low, span: t.span, load: load}
		m.count(o, "probe_ranks", a)
	case t.slots != nil:
		a.rows = t.rowArgs(r)
		m.count(o, "probe_rows", a)
	default:
		a.index = t.index.args(r, 0)
		m.count(o, "probe_"+t.codec.kind, a)
	}
	return m, nil
}

// matcher returns the pairs of probe rows with known numbers: each number stands for a build row,
// or for a run of build rows. Pairs are counted by tile, so any range of them can be written. See
// table.cu.
type matcher struct {
	dev   *Device
	args  probeArgs
	own   []*gpu.Buffer // released with the matcher
	pairs *gpu.Buffer   // pairs before each tile
	total int64         // number of pairs, once it is read
	known bool
	at    int64 // the first pair that has not been returned
}

// newMatcher returns a matcher of n probe rows without numbers.
func (o *op) newMatcher(n int) *matcher {
	tiles := blocks(n, probeTile)
	numbers, pairs := o.keep(o.alloc(int64(n)*4)), o.keep(o.alloc(int64(tiles+1)*8))
	return &matcher{dev: o.q.dev, own: []*gpu.Buffer{numbers, pairs}, pairs: pairs,
		args: probeArgs{numbers: addr(numbers), pairs: addr(pairs), n: int64(n), tiles: int32(tiles)}}
}

// count numbers the rows with a kernel and counts their pairs.
func (m *matcher) count(o *op, kernel string, a probeArgs) {
	launch(o, kernel, int(a.tiles), 256, 0, a)
	launch(o, "probe_starts", 1, 1024, 0, a)
}

// Next implements gpu.Matcher. Only the first call waits for the device.
func (m *matcher) Next(gq gpu.Queue, l *gpu.Lease, limit int) (probe, build gpu.Column, more bool, err error) {
	q, err := m.dev.queue(gq)
	if err != nil {
		return probe, build, false, err
	}
	out, err := m.next(q, l, int64(max(1, min(limit, gpu.MaxRows))))
	if err != nil {
		return probe, build, false, err
	}
	m.at += int64(out[0].Len)
	return out[0], out[1], m.at < m.total, nil
}

func (m *matcher) next(q *queue, l *gpu.Lease, limit int64) (out [2]gpu.Column, err error) {
	o := q.begin("join pairs", l)
	defer end(o, &out, &err)
	if !m.known {
		var total [1]int64
		if !o.read(m.pairs, int64(m.args.tiles)*8, gpu.BytesOf(total[:])) {
			return out, nil
		}
		m.total, m.known = total[0], true
	}
	a := m.args
	a.from, a.to = m.at, min(m.at+limit, m.total)
	n := a.to - a.from
	for i := range out {
		out[i] = gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(n), Data: o.keep(o.alloc(n * 4))}
	}
	a.probe, a.build = addr(out[0].Data), addr(out[1].Data)
	switch {
	case n == 0:
	case a.start == 0:
		launch(o, "probe_write", int(a.tiles), 256, 0, a)
	default:
		launch(o, "probe_write_many", blocks(int(n), probeChunk), 256, 0, a)
	}
	return out, nil
}

// Join implements gpu.Matcher.
func (m *matcher) Join(q gpu.Queue, l *gpu.Lease, probe, build []gpu.Column,
	limit int) ([]gpu.Column, int, bool, error) {
	at := m.at
	cols, rows, more, err := gpu.NextAndGather(m, q, l, probe, build, limit)
	if err != nil {
		m.at = at
	}
	return cols, rows, more, err
}

// Matched implements gpu.Matcher.
func (m *matcher) Matched(gq gpu.Queue, l *gpu.Lease) (out gpu.Column, err error) {
	q, err := m.dev.queue(gq)
	if err != nil {
		return out, err
	}
	o := q.begin("matched", l)
	defer end(o, &out, &err)
	a := m.args
	bits := o.alloc(gpu.BitmapBytes(int(a.n)))
	a.matched = addr(bits)
	launch(o, "probe_matched", blocks(int(a.n), 256), 256, 0, a)
	return gpu.Column{Type: gpu.Of(gpu.Bool), Len: int(a.n), Data: o.keep(bits)}, nil
}

// Release implements gpu.Matcher.
func (m *matcher) Release() {
	for _, b := range m.own {
		b.Release()
	}
	m.own = nil
}
