package cuda

import (
	"math"

	"github.com/gstream/gstream/gpu"
)

// mergeTile is MERGE_TILE of merge.cu.
const mergeTile = 2048

type mergeArgs struct {
	build, probe, keys, starts, cuts, numbers, flip uint64
	runs, rows, tiles                               int64
	count, _                                        int32
}

// MatchSorted implements gpu.Queue. Merge path finds the run of build rows that matches
// each probe row. The pairs are then counted and written like those of a probe of a table
// whose numbers are the runs.
func (q *queue) MatchSorted(l *gpu.Lease, build, probe []gpu.SortKey, nullSafe []bool, kind gpu.JoinKind) (probeIDs, buildIDs gpu.Column, err error) {
	o := q.begin("merge match", l)
	var out [2]gpu.Column
	defer func() { probeIDs, buildIDs = out[0], out[1] }()
	defer end(o, &out, &err)
	o.takes(gpu.KeyColumns(build)...)
	o.takes(gpu.KeyColumns(probe)...)
	if err := gpu.CheckMerge(build, probe, nullSafe); err != nil {
		return probeIDs, buildIDs, err
	}
	var t table
	runs := build[0].Column.Len
	if kind == gpu.Inner || kind == gpu.Left { // Semi and Anti need one match only, so every build row is a run
		n := runs
		heads := o.runHeads(build)
		var starts *gpu.Buffer
		if starts, runs = o.runStarts(heads, n); runs < n {
			t.start = starts
		}
		o.free(heads)
	}
	a := probeArgs{start: addr(t.start), n: int64(probe[0].Column.Len), limit: math.MaxInt64, kind: int32(kind)}
	a.numbers = addr(o.mergeNumbers(build, probe, nullSafe, t.start, runs))
	found := t.look(o, "probe_numbered", &a)
	if found[0] > gpu.MaxRows {
		return probeIDs, buildIDs, gpu.ErrTooManyPairs(found[0])
	}
	out[0], out[1] = t.pairs(o, a, found)
	return out[0], out[1], nil
}

// mergeNumbers returns for each probe row the run of the build side that equals it, or
// -1. starts has the first rows of the runs; nil means that every row is a run.
func (o *op) mergeNumbers(build, probe []gpu.SortKey, nullSafe []bool, starts *gpu.Buffer, runs int) *gpu.Buffer {
	rows := probe[0].Column.Len
	tiles := blocks(runs+rows, mergeTile)
	numbers, cuts := o.alloc(int64(rows)*4), o.alloc(int64(tiles+1)*4)
	a := mergeArgs{starts: addr(starts), cuts: addr(cuts), numbers: addr(numbers),
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
	return numbers
}
