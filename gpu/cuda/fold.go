package cuda

import (
	"math"

	"github.com/gstream/gstream/gpu"
)

// treeFan and treeLevels are FAN and LEVELS of fold.cu.
const (
	treeFan    = 16
	treeLevels = 8
)

type treeArgs struct {
	values, valid, key       uint64
	levels                   [treeLevels]uint64
	from, to                 uint64
	out, outValid, failed    uint64
	rows, ranges             int64
	limitLow, limitHigh      int64
	count, level, load, last int32
}

// Fold implements gpu.Queue.
func (q *queue) Fold(l *gpu.Lease, a gpu.Aggregate, values, from, to gpu.Column) (out gpu.Column, err error) {
	o := q.begin("fold", l)
	defer end(o, &out, &err)
	o.takes(values, from, to)
	if err := gpu.CheckFold(a, values, from, to); err != nil {
		return out, err
	}
	x := treeArgs{values: addr(values.Data), valid: addr(values.Valid), load: loadOf(values.Type)}
	name, state := a.Kind.String(), int64(24)
	switch {
	case a.Kind == gpu.Count:
		state = 8
	case a.Kind == gpu.Sum && values.Type.IsFloat():
		name = "double"
	case a.Kind == gpu.Sum:
		state = 32
	case a.Kind == gpu.Product:
		state = 16
	}
	out = gpu.Column{Type: a.Output, Len: from.Len, Data: o.keep(o.alloc(int64(from.Len) * int64(a.Output.Width())))}
	x.out = addr(out.Data)
	if a.Kind != gpu.Count {
		out.Valid = o.keep(o.alloc(gpu.BitmapBytes(from.Len)))
		x.outValid = addr(out.Valid)
	}
	exact := name == "sum"
	var failed *gpu.Buffer
	if exact {
		limit := gpu.Int128{Lo: math.MaxUint64, Hi: math.MaxInt64}
		if a.Output.Kind == gpu.Decimal {
			_, limit = a.Output.Bounds()
		}
		x.limitLow, x.limitHigh = int64(limit.Lo), limit.Hi
		failed = o.alloc(8)
		o.fill(failed, 0, 8, 0xff)
		x.failed = addr(failed)
	}
	o.foldRanges(name, state, values.Len, from, to, x)
	if !exact || from.Len == 0 {
		return out, nil
	}
	var at [2]uint32 // the row of a sum of more than 128 bits, and of one that does not fit its type
	if !o.read(failed, 0, gpu.BytesOf(at[:])) {
		return out, o.err
	}
	var v [1]gpu.Int128
	switch {
	case at[0] != math.MaxUint32:
		return out, gpu.Failed("sum overflows 128 bits")
	case at[1] != math.MaxUint32 && o.read(out.Data, int64(at[1])*16, gpu.BytesOf(v[:])):
		return out, gpu.Failed("sum %s does not fit %v", v[0].Format(int(a.Output.Scale)), a.Output)
	}
	return out, nil
}

// foldRanges builds the levels of a tree over the rows, and folds the ranges with it. state is the
// number of bytes of a node.
func (o *op) foldRanges(name string, state int64, rows int, from, to gpu.Column, a treeArgs) {
	a.from, a.to, a.rows, a.ranges = addr(from.Data), addr(to.Data), int64(rows), int64(from.Len)
	for n := rows; n > treeFan; a.count++ {
		n = blocks(n, treeFan)
		a.level, a.levels[a.count] = a.count, addr(o.alloc(int64(n)*state))
		launch(o, "fold_level_"+name, blocks(n, 256), 256, 0, a)
	}
	launch(o, "fold_ranges_"+name, blocks((from.Len+63)/64*64, 256), 256, 0, a)
}

// Extreme implements gpu.Queue.
func (q *queue) Extreme(l *gpu.Lease, key gpu.SortKey, last bool, from, to gpu.Column) (out gpu.Column, err error) {
	o := q.begin("extreme", l)
	defer end(o, &out, &err)
	o.takes(key.Column, from, to)
	if err := gpu.CheckExtreme(key, from, to); err != nil {
		return out, err
	}
	keys := []gpu.SortKey{key}
	out = gpu.Column{Type: gpu.Of(gpu.Int32), Len: from.Len, Data: o.keep(o.alloc(int64(from.Len) * 4))}
	x := treeArgs{valid: addr(key.Column.Valid), key: addr(upload(o, orderKeys(keys, keys))), out: addr(out.Data),
		last: flag(last)}
	o.foldRanges("extreme", 4, key.Column.Len, from, to, x)
	return out, nil
}

type searchArgs struct {
	key, from, to, out uint64
	n                  int64
	after, _           int32
}

// Search implements gpu.Queue.
func (q *queue) Search(l *gpu.Lease, key gpu.SortKey, bound gpu.Column, after bool,
	from, to gpu.Column) (out gpu.Column, err error) {
	o := q.begin("search", l)
	defer end(o, &out, &err)
	o.takes(key.Column, bound, from, to)
	if err := gpu.CheckSearch(key, bound, from, to); err != nil {
		return out, err
	}
	n := from.Len
	out = gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: o.keep(o.alloc(int64(n) * 4))}
	keys := upload(o, orderKeys([]gpu.SortKey{key}, []gpu.SortKey{{Column: bound}}))
	launch(o, "search_ranges", blocks(n, 256), 256, 0,
		searchArgs{key: addr(keys), from: addr(from.Data), to: addr(to.Data), out: addr(out.Data), n: int64(n),
			after: flag(after)})
	return out, nil
}
