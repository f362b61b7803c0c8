package cuda

import "github.com/gstream/gstream/gpu"

// mergeTile is MERGE_TILE of merge.cu.
const mergeTile = 2048

type mergeArgs struct {
	build, probe, keys, starts, cuts, numbers, flip uint64
	runs, rows, tiles                               int64
	count, _                                        int32
}

// MatchSorted implements gpu.Queue. Merge path finds the run of build rows that matches each probe
// row. The pairs are then written as for the matcher of a table whose numbers are the runs.
func (q *queue) MatchSorted(l *gpu.Lease, build, probe []gpu.SortKey, nullSafe []bool) (out gpu.Matcher, err error) {
	o := q.begin("merge match", l)
	defer end(o, &out, &err)
	o.takes(gpu.KeyColumns(build)...)
	o.takes(gpu.KeyColumns(probe)...)
	if err := gpu.CheckMerge(build, probe, nullSafe); err != nil {
		return nil, err
	}
	m := o.newMatcher(probe[0].Column.Len)
	n := build[0].Column.Len
	heads := o.runHeads(build)
	starts, runs := o.runStarts(heads, n)
	o.free(heads)
	if runs == n { // each row is a run
		o.free(starts)
		starts = nil
	} else {
		m.args.start, m.own = addr(starts), append(m.own, o.keep(starts))
	}
	o.mergeNumbers(m.args.numbers, build, probe, nullSafe, starts, runs)
	m.count(o, "probe_numbered", m.args)
	return m, nil
}

type boundArgs struct {
	keys, starts, numbers uint64
	builds, rows          int64
	lower, upper          int32
}

// MatchRange implements gpu.Queue. The matches of a probe row are one run of the build side. Row r
// has the number 2r, whose run begins at starts[2r] and ends at starts[2r+1].
func (q *queue) MatchRange(l *gpu.Lease, build gpu.Column, lower, upper *gpu.Bound) (out gpu.Matcher, err error) {
	o := q.begin("range match", l)
	defer end(o, &out, &err)
	bounds := gpu.BoundColumns(lower, upper)
	o.takes(build)
	o.takes(bounds...)
	if err := gpu.CheckRange(build, lower, upper); err != nil {
		return nil, err
	}
	n := bounds[0].Len
	m := o.newMatcher(n)
	starts := o.keep(o.alloc(int64(n) * 8))
	m.args.start, m.own = addr(starts), append(m.own, starts)
	keys := make([]orderKey, 2)
	of := func(k int, b *gpu.Bound) int32 {
		if b == nil {
			keys[k] = orderKeys([]gpu.SortKey{{Column: build}}, []gpu.SortKey{{Column: build}})[0]
			return rangeOpen
		}
		keys[k] = orderKeys([]gpu.SortKey{{Column: build}}, []gpu.SortKey{{Column: b.Column}})[0]
		if b.Strict {
			return rangeStrict
		}
		return rangeClosed
	}
	a := boundArgs{starts: addr(starts), numbers: m.args.numbers, builds: int64(build.Len), rows: int64(n),
		lower: of(0, lower), upper: of(1, upper)}
	a.keys = addr(upload(o, keys))
	launch(o, "range_find", blocks(n, 256), 256, 0, a)
	m.count(o, "probe_numbered", m.args)
	return m, nil
}

// rangeOpen and the others are the constants of merge.cu.
const (
	rangeOpen int32 = iota
	rangeClosed
	rangeStrict
)

// mergeNumbers writes for each probe row the run of the build side that equals it, or -1.
// starts has the first rows of the runs; nil means that every row is a run.
func (o *op) mergeNumbers(numbers uint64, build, probe []gpu.SortKey, nullSafe []bool, starts *gpu.Buffer, runs int) {
	rows := probe[0].Column.Len
	tiles := blocks(runs+rows, mergeTile)
	cuts := o.alloc(int64(tiles+1) * 4)
	a := mergeArgs{starts: addr(starts), cuts: addr(cuts), numbers: numbers,
		runs: int64(runs), rows: int64(rows), tiles: int64(tiles), count: int32(len(build))}
	kind := plainKey(build)
	if kind != plainKey(probe) {
		kind = "any"
	}
	if kind == "any" {
		keys := orderKeys(build, probe)
		for i := range keys {
			keys[i].nullSafe = flag(nullSafe[i])
		}
		a.keys = addr(upload(o, keys))
	} else {
		k := build[0]
		a.build, a.probe = addr(k.Column.Data), addr(probe[0].Column.Data)
		if !k.Column.Type.IsUnsigned() {
			a.flip = 1 << (8*k.Column.Type.Width() - 1)
		}
		if k.Descending {
			a.flip = ^a.flip
		}
	}
	launch(o, "merge_cut_"+kind, blocks(tiles+1, 256), 256, 0, a)
	launch(o, "merge_find_"+kind, tiles, 256, 0, a)
	o.free(cuts)
}
