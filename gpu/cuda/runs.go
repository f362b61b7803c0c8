package cuda

import "github.com/gstream/gstream/gpu"

type headArgs struct {
	data, keys, heads uint64
	n                 int64
	count, _          int32
}

type runArgs struct {
	heads, counts, ids uint64
	n                  int64
}

// runsOf has the results of Runs.
type runsOf struct {
	assignment
	firsts gpu.Column
}

// Runs implements gpu.Queue.
func (q *queue) Runs(l *gpu.Lease, keys []gpu.Column) (runs gpu.Assignment, firsts gpu.Column, err error) {
	r, err := q.runs(l, keys)
	if err != nil {
		return nil, firsts, err
	}
	return r.assignment, r.firsts, nil
}

func (q *queue) runs(l *gpu.Lease, keys []gpu.Column) (out runsOf, err error) {
	o := q.begin("runs", l)
	defer end(o, &out, &err)
	o.takes(keys...)
	if err := gpu.CheckKeys(keys); err != nil {
		return out, err
	}
	sorted := make([]gpu.SortKey, len(keys))
	for i, c := range keys {
		sorted[i].Column = c
	}
	n := keys[0].Len
	heads := o.runHeads(sorted)
	starts, runs := o.runStarts(heads, n)
	out.firsts = gpu.Column{Type: gpu.Of(gpu.Int32), Len: runs, Data: o.keep(starts)}
	words := blocks(n, 32)
	counts, ids := o.alloc(int64(words)*4), o.alloc(int64(n)*4)
	a := runArgs{heads: addr(heads), counts: addr(counts), ids: addr(ids), n: int64(words)}
	launch(o, "run_counts", blocks(words, 256), 256, 0, a)
	o.scan(counts, words, false)
	a.n = int64(n)
	launch(o, "run_ids", blocks(n, 256), 256, 0, a)
	out.assignment = assignment{ids: gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: o.keep(ids)}, runs: true}
	return out, nil
}

// runHeads returns a bitmap of the rows that differ from the previous row, with one more bit set
// after the last row. It returns nil if there are no rows.
func (o *op) runHeads(keys []gpu.SortKey) *gpu.Buffer {
	n := keys[0].Column.Len
	if n == 0 {
		return nil
	}
	heads := o.alloc(gpu.BitmapBytes(n + 1))
	a := headArgs{heads: addr(heads), n: int64(n), count: int32(len(keys))}
	kind := plainKey(keys)
	if kind == "any" {
		a.keys = addr(upload(o, orderKeys(keys, keys)))
	} else {
		a.data = addr(keys[0].Column.Data)
	}
	launch(o, "run_heads_"+kind, blocks((n+64)/64*64, 256), 256, 0, a)
	return heads
}

// runStarts returns the first rows of the runs of n rows, followed by n, and the number
// of runs.
func (o *op) runStarts(heads *gpu.Buffer, n int) (starts *gpu.Buffer, runs int) {
	if n == 0 {
		return nil, 0
	}
	starts, found := o.selectRows(heads, nil, n+1, true)
	return starts, int(found) - 1
}
