package host

import "github.com/gstream/gstream/gpu"

// Runs implements gpu.Queue. Each task counts the runs that begin in its rows, then
// numbers its rows.
func (q *queue) Runs(l *gpu.Lease, keys []gpu.Column) (gpu.Assignment, gpu.Column, error) {
	if err := q.check(keys); err != nil {
		return nil, gpu.Column{}, err
	}
	ids, firsts, err := q.dev.runs(l, keys)
	if err != nil {
		return nil, gpu.Column{}, q.fail(err)
	}
	return assignment{ids}, firsts, nil
}

func (d *Device) runs(l *gpu.Lease, keys []gpu.Column) (ids, firsts gpu.Column, err error) {
	if err := gpu.CheckKeys(keys); err != nil {
		return ids, firsts, err
	}
	sorted := make([]gpu.SortKey, len(keys))
	for i, c := range keys {
		sorted[i].Column = c
	}
	n, compare := keys[0].Len, compareRows(sorted, sorted)
	var words []uint64 // a single key whose equal values have equal bits
	if len(keys) == 1 {
		words = plainWords(keys[0])
	}
	ids = gpu.Column{Type: gpu.Of(gpu.Int32), Len: n}
	if ids.Data, err = l.Alloc(int64(n) * 4); err != nil {
		return gpu.Column{}, firsts, err
	}
	// at first has the number of runs that begin in the row's task, up to the row.
	at := gpu.Values[int32](ids.Data, n)
	before := make([]int32, (n+grain-1)/grain+1)
	err = d.parallel(n, grain, func(lo, hi int) error {
		run := int32(0)
		if words != nil {
			last := words[max(lo, 1)-1]
			if lo == 0 {
				run = 1
			}
			for i, w := range words[lo:hi] {
				other := w ^ last
				run += int32((other | -other) >> 63)
				at[lo+i], last = run, w
			}
			before[lo/grain+1] = run
			return nil
		}
		for i := lo; i < hi; i++ {
			if i == 0 || compare(i-1, i) != 0 {
				run++
			}
			at[i] = run
		}
		before[lo/grain+1] = run
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
	err = d.parallel(n, grain, func(lo, hi int) error {
		base, seen := before[lo/grain]-1, int32(0)
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
