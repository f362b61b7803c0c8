package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// probeTile is PROBE_TILE of table.cu.
const probeTile = 2048

// firstWindow is the least number of rows that a probe looks at, even if the limit is
// lower.
const firstWindow = 1 << 16

type probeArgs struct {
	index                                                       indexArgs
	ranks                                                       rankArgs
	numbers, start, entries, pairs, items, result, probe, build uint64
	from, n, limit                                              int64
	tiles, kind                                                 int32
}

// Probe implements gpu.Table. It waits for the device once, or more often when few of the
// rows match and the limit is below the number of rows that are left.
func (t *table) Probe(gq gpu.Queue, l *gpu.Lease, keys []gpu.Column, kind gpu.JoinKind, from, limit int) (probe, build gpu.Column, next int, err error) {
	q, err := t.dev.queue(gq)
	if err != nil {
		return probe, build, 0, err
	}
	m, err := t.probe(q, l, keys, kind, from, limit)
	return m.probe, m.build, m.next, err
}

// matched has the results of a probe.
type matched struct {
	probe, build gpu.Column
	next         int
}

func (t *table) probe(q *queue, l *gpu.Lease, keys []gpu.Column, kind gpu.JoinKind, from, limit int) (out matched, err error) {
	o := q.begin("probe", l)
	defer end(o, &out, &err)
	o.takes(keys...)
	if len(keys) != len(t.nullSafe) {
		return out, fmt.Errorf("probe with %d key columns of a table of %d", len(keys), len(t.nullSafe))
	}
	n := keys[0].Len
	if err := t.codec.check(keys, n); err != nil {
		return out, err
	}
	if from < 0 || from > n {
		return out, fmt.Errorf("probe from row %d of %d", from, n)
	}
	a, kernel := t.probeArgs(t.keyRows(o, keys, n, false))
	a.from, a.limit, a.kind = int64(from), int64(max(limit, 1)), int32(kind)
	// Look at as many rows as the limit has pairs, and at more if few of them match.
	var found [3]int64
	for window := max(limit, firstWindow); ; window *= 8 {
		window = min(window, n-from)
		a.n = int64(window)
		a.numbers = addr(o.alloc(a.n * 4))
		if found = t.look(o, kernel, &a); o.failed() || found[0] >= a.limit || window == n-from {
			break
		}
	}
	if found[0] > gpu.MaxRows {
		return out, fmt.Errorf("one row matches too many others: %d pairs are more than the %d rows of a stride", found[0], gpu.MaxRows)
	}
	if !o.failed() {
		out.next = from + int(found[1])
		out.probe, out.build = t.pairs(o, a, found)
	}
	return out, nil
}

// probeArgs returns the arguments that look up keys, and the kernel that does.
func (t *table) probeArgs(r keyRows) (a probeArgs, kernel string) {
	a.start = addr(t.start)
	if t.entries != nil {
		a.entries = addr(t.entries) + t.entriesAt
	}
	if t.ranked {
		load, _ := t.integerLoad()
		a.ranks = rankArgs{keys: r.keys, valid: r.valid, ranks: addr(t.ranks), low: t.low, span: t.span, load: load}
		return a, "probe_ranks"
	}
	a.index = t.index.args(r, 0)
	return a, "probe_" + t.codec.kind
}

// look finds the pairs of a window of rows. It returns the number of pairs up to the
// limit, the number of rows that they belong to, and the number of work items that write
// them. a.numbers has room for the numbers of the rows.
func (t *table) look(o *op, kernel string, a *probeArgs) (found [3]int64) {
	n := int(a.n)
	tiles := blocks(n, probeTile)
	a.tiles = int32(tiles)
	pairs, result := o.alloc(int64(tiles)*8), o.alloc(24)
	a.pairs, a.result = addr(pairs), addr(result)
	if t.start != nil {
		a.items = addr(o.alloc(int64(tiles) * 8))
	}
	launch(o, kernel, tiles, 256, 0, *a)
	block := 1024
	if tiles <= 256 {
		block = 256
	}
	launch(o, "probe_cut", 1, block, 0, *a)
	o.read(result, 0, gpu.BytesOf(found[:]))
	return found
}

// pairs writes the pairs that look found.
func (t *table) pairs(o *op, a probeArgs, found [3]int64) (probe, build gpu.Column) {
	column := func() gpu.Column {
		return gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(found[0]), Data: o.keep(o.alloc(found[0] * 4))}
	}
	probe = column()
	a.probe, a.n = addr(probe.Data), found[1]
	kind := gpu.JoinKind(a.kind)
	if kind == gpu.Inner || kind == gpu.Left {
		build = column()
		a.build = addr(build.Data)
	}
	kernel := "probe_write"
	if t.start != nil {
		kernel = "probe_write_many"
		a.tiles = int32(blocks(int(found[1]), probeTile))
	}
	launch(o, kernel, int(found[2]), 256, 0, a)
	return probe, build
}
