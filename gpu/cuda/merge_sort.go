package cuda

import "github.com/gstream/gstream/gpu"

// sortTile is SORT_TILE of merge_sort.cu.
const sortTile = 2048

type mergeSortArgs struct {
	key, rows, toKey, toRows, keys, cuts, flip uint64
	n, run, tiles                              int64
	count, _                                   int32
}

// MergeSort implements gpu.Queue. Plain keys move with the row ids; other keys stay, and rows
// are compared.
func (q *queue) MergeSort(l *gpu.Lease, keys []gpu.SortKey) (out gpu.Column, err error) {
	o := q.begin("merge sort", l)
	defer end(o, &out, &err)
	o.takes(gpu.KeyColumns(keys)...)
	if err := gpu.CheckSort(keys); err != nil {
		return out, err
	}
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: keys[0].Column.Len, Data: o.keep(o.mergeSort(keys))}, nil
}

// mergeSort returns the order of the rows by keys. It takes two launches for each doubling of sortTile rows, whatever
// the keys are.
func (o *op) mergeSort(keys []gpu.SortKey) *gpu.Buffer {
	c := keys[0].Column
	n, kind := c.Len, plainKey(keys)
	a := mergeSortArgs{n: int64(n), run: sortTile, tiles: int64(blocks(n, sortTile)), count: int32(len(keys))}
	width := 0
	if kind == "any" {
		a.keys = addr(upload(o, orderKeys(keys, keys)))
	} else {
		width = c.Type.Width()
		a.key = addr(c.Data)
		if !c.Type.IsUnsigned() {
			a.flip = 1 << (8*width - 1)
		}
		if keys[0].Descending {
			a.flip = ^a.flip
		}
	}
	// Rows move back and forth between two buffers.
	var moved, rows [2]*gpu.Buffer
	for i := range rows {
		moved[i], rows[i] = o.alloc(int64(n)*int64(width)), o.alloc(int64(n)*4)
	}
	cuts := o.alloc(a.tiles * 4)
	a.cuts = addr(cuts)
	a.toKey, a.toRows = addr(moved[0]), addr(rows[0])
	tiles := int(a.tiles)
	launch(o, "merge_sort_blocks_"+kind, tiles, 256, 0, a)
	at := 0
	for ; a.run < a.n; a.run *= 2 {
		a.key, a.rows, a.toKey, a.toRows = addr(moved[at]), addr(rows[at]), addr(moved[1-at]), addr(rows[1-at])
		launch(o, "merge_sort_cut_"+kind, blocks(tiles, 256), 256, 0, a)
		launch(o, "merge_sort_merge_"+kind, tiles, 256, 0, a)
		at = 1 - at
	}
	return rows[at]
}
