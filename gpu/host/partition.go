package host

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
)

// Partition implements gpu.Queue. Every task makes a histogram, a scan over
// (partition, task) turns the counts into output offsets, and every task writes the ids
// of its rows there. Then the columns are gathered. Reduce-then-scan makes it stable.
func (q *queue) Partition(l *gpu.Lease, cols []gpu.Column, key gpu.Column, d gpu.Digit) ([]gpu.Column, gpu.Column, error) {
	if err := q.check(cols, []gpu.Column{key}); err != nil {
		return nil, gpu.Column{}, err
	}
	if err := d.Check(key); err != nil {
		return nil, gpu.Column{}, err
	}
	for _, c := range cols {
		if c.Len != key.Len {
			return nil, gpu.Column{}, fmt.Errorf("partition of a column of %d rows by a key of %d", c.Len, key.Len)
		}
	}
	var order array[int32]
	var offsets []int
	var err error
	if key.Type.Width() == 4 {
		order, offsets, err = partition(q.dev, l, gpu.Values[uint32](key.Data, key.Len), d)
	} else {
		order, offsets, err = partition(q.dev, l, gpu.Values[uint64](key.Data, key.Len), d)
	}
	if err != nil {
		return nil, gpu.Column{}, q.fail(err)
	}
	defer order.release()
	starts, err := newArray[int32](l, len(offsets))
	if err != nil {
		return nil, gpu.Column{}, q.fail(err)
	}
	for p, at := range offsets {
		starts.v[p] = int32(at)
	}
	values := slices.DeleteFunc(slices.Clone(cols), gpu.Column.IsRowNumbers)
	out, err := q.dev.gather(l, values, order.v, false)
	if err != nil {
		starts.release()
		return nil, gpu.Column{}, q.fail(err)
	}
	for i, c := range cols {
		if c.IsRowNumbers() { // the row numbers in the new order are the order
			c.Data = order.buf.Retain()
			out = slices.Insert(out, i, c)
		}
	}
	return out, gpu.Column{Type: gpu.Of(gpu.Int32), Len: len(starts.v), Data: starts.buf}, nil
}

// partition returns the stable permutation that orders rows by a digit of their key, and
// the first position of each digit. The caller releases the permutation.
func partition[K uint32 | uint64](d *Device, l *gpu.Lease, key []K, digit gpu.Digit) (order array[int32], offsets []int, err error) {
	n, fanout := len(key), 1<<digit.Bits
	mask, factor, shift := K(fanout-1), K(max(digit.Factor, 1)), digit.Shift
	size := max(grain, (n/(4*d.threads)+63)/64*64)
	tasks := (n + size - 1) / size
	nexts, err := newZeros[int32](l, tasks*fanout)
	if err != nil {
		return order, nil, err
	}
	defer nexts.release()
	next := nexts.v
	err = d.parallel(n, size, func(lo, hi int) error {
		count := next[lo/size*fanout:][:fanout]
		for _, k := range key[lo:hi] {
			count[k*factor>>shift&mask]++
		}
		return nil
	})
	if err == nil {
		order, err = newArray[int32](l, n)
	}
	if err != nil {
		return order, nil, err
	}
	offsets = make([]int, fanout+1)
	at := int32(0)
	for p := range fanout {
		offsets[p] = int(at)
		for k := range tasks {
			at, next[k*fanout+p] = at+next[k*fanout+p], at
		}
	}
	offsets[fanout] = n
	err = d.parallel(n, size, func(lo, hi int) error {
		to := next[lo/size*fanout:][:fanout]
		for i, k := range key[lo:hi] {
			p := k * factor >> shift & mask
			order.v[to[p]] = int32(lo + i)
			to[p]++
		}
		return nil
	})
	if err != nil {
		order.release()
	}
	return order, offsets, err
}
