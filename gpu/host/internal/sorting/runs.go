package sorting

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// Runs returns the number of the run of equal keys to which each row belongs, and the first
// row of each run. Each task counts the runs that begin in its rows, then numbers its rows.
func Runs(cores parallel.Cores, l *gpu.Lease, keys []gpu.Column) (ids, firsts gpu.Column, err error) {
	n, changes := keys[0].Len, make([]changing, len(keys))
	for i, c := range keys {
		changes[i] = changesOf(c)
	}
	ids = gpu.Column{Type: gpu.Of(gpu.Int32), Len: n}
	if ids.Data, err = l.Alloc(int64(n) * 4); err != nil {
		return gpu.Column{}, firsts, err
	}
	// at first has the number of runs that begin in the row's task, up to the row.
	at := gpu.Values[int32](ids.Data, n)
	before := make([]int32, (n+parallel.Grain-1)/parallel.Grain+1)
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		run := int32(0)
		var differs [word.Block]uint8
		for first := lo; first < hi; first += word.Block {
			block := differs[:min(word.Block, hi-first)]
			clear(block)
			if first == 0 {
				block[0] = 1
			}
			for _, mark := range changes {
				mark(first, block)
			}
			for i, changed := range block {
				run += int32(changed)
				at[first+i] = run
			}
		}
		before[lo/parallel.Grain+1] = run
		return nil
	})
	for p := 1; p < len(before); p++ {
		before[p] += before[p-1]
	}
	firsts = gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(before[len(before)-1])}
	if err == nil {
		firsts.Data, err = l.Alloc(int64(firsts.Len) * 4)
	}
	if err != nil {
		ids.Release()
		return gpu.Column{}, gpu.Column{}, err
	}
	rows := gpu.Values[int32](firsts.Data, firsts.Len)
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		base, seen := before[lo/parallel.Grain]-1, int32(0)
		for i, run := range at[lo:hi] {
			at[lo+i] = base + run
			if run > seen {
				seen, rows[base+run] = run, int32(lo+i)
			}
		}
		return nil
	})
	if err != nil {
		ids.Release()
		firsts.Release()
		return gpu.Column{}, gpu.Column{}, err
	}
	return ids, firsts, nil
}

// changing sets the flags, from row first on, of the rows that differ from the previous row. It
// skips row 0.
type changing func(first int, differs []uint8)

// changesOf returns a function for the values of a column. Nulls are equal.
func changesOf(c gpu.Column) changing {
	key := gpu.SortKey{Column: c}
	compare := CompareKey(key, c)
	each := func(first int, differs []uint8, differ func(i int) bool) {
		for i := range differs {
			if first+i > 0 && differ(first+i) {
				differs[i] = 1
			}
		}
	}
	switch {
	case c.Dict != nil && c.Type.IsVar() && !c.Dict.Distinct && c.Valid == nil:
		codes := gpu.Values[int32](c.Data, c.Len)
		return func(first int, differs []uint8) {
			each(first, differs, func(i int) bool { return codes[i-1] != codes[i] && compare(i-1, i) != 0 })
		}
	case c.Dict != nil && c.Type.IsVar() && c.Dict.Distinct: // equal codes are equal values
		c.Type, c.Dict = gpu.Of(gpu.Int32), nil
	case c.Dict != nil || c.Type.IsVar() || c.Type.Wide:
		return func(first int, differs []uint8) {
			each(first, differs, func(i int) bool { return compare(i-1, i) != 0 })
		}
	}
	valid := gpu.Words(c.Valid, c.Len)
	return func(first int, differs []uint8) {
		var words [word.Block + 1]uint64
		if first == 0 {
			word.Load(words[1:][:len(differs)], c, 0)
			words[0] = words[1]
		} else {
			word.Load(words[:len(differs)+1], c, first-1)
		}
		for i, w := range words[1:][:len(differs)] {
			other := w ^ words[i]
			differ := uint8((other | -other) >> 63)
			if row := uint(first + i); valid != nil && row > 0 { // a null differs from values only
				x, y := uint8(valid[(row-1)/64]>>((row-1)%64)&1), uint8(valid[row/64]>>(row%64)&1)
				differ = (differ & x & y) | (x ^ y)
			}
			differs[i] |= differ
		}
	}
}
