package groupby

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// SGB-STRIDE is SGB-TR for inputs larger than memory: the sorted groups of a stride are merged with
// those of the strides before, so that the result is sorted.

// mergeSorted merges two sides of rows of partial aggregates, each with distinct keys. It takes
// ownership of both, unless there is an error.
func (o *hashGroupBy) mergeSorted(t operators.Task, a, b *gpu.Stride) (*gpu.Stride, error) {
	all, err := operators.ConcatStrides(t, o.partials, []*gpu.Stride{a.Retain(), b.Retain()})
	if err != nil {
		return nil, err
	}
	defer all.Release()
	x, err := o.newMerge(t, gpu.GroupHint{}, true)
	if err != nil {
		return nil, err
	}
	defer x.release()
	keys := make([]gpu.SortKey, len(o.Keys))
	for i := range keys {
		keys[i].Column = all.Cols[i]
	}
	experimental, err := gpu.ExperimentalOf(t.Queue)
	if err != nil {
		return nil, err
	}
	ids, err := experimental.MergeSort(t.Lease, keys)
	if err != nil {
		return nil, err
	}
	defer ids.Release()
	sorted := &gpu.Stride{Schema: o.partials, Rows: all.Rows}
	if sorted.Cols, err = t.Queue.Gather(t.Lease, all.Cols, ids, false); err != nil {
		return nil, err
	}
	defer sorted.Release()
	runs, firsts, err := t.Queue.Runs(t.Lease, sorted.Cols[:len(o.Keys)])
	if err != nil {
		return nil, err
	}
	defer runs.Release()
	defer firsts.Release()
	if failed, err := x.update(t, sorted, runs, firsts.Len); err != nil {
		return nil, o.naming(failed, err)
	}
	out := &gpu.Stride{Schema: o.partials, Rows: firsts.Len}
	if out.Cols, err = t.Queue.Gather(t.Lease, sorted.Cols[:len(o.Keys)], firsts, false); err != nil {
		return nil, err
	}
	if err := o.addPartialAggregates(t, out, x); err != nil {
		return nil, err
	}
	a.Release()
	b.Release()
	return out, nil
}
