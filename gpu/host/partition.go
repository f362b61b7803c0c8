package host

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// Partition implements gpu.Queue. Every task makes a histogram, a scan over
// (partition, task) turns the counts into output offsets, and every task writes the ids
// of its rows there. Then the columns are gathered. Reduce-then-scan makes it stable.
func (q *queue) Partition(l *gpu.Lease, cols []gpu.Column, hash gpu.Column, shift, bits uint) ([]gpu.Column, gpu.Column, error) {
	if err := q.check(cols, []gpu.Column{hash}); err != nil {
		return nil, gpu.Column{}, err
	}
	width := hash.Type.Width()
	if !hash.Type.IsInteger() || width < 4 || hash.Dict != nil || hash.Valid != nil {
		return nil, gpu.Column{}, fmt.Errorf("partition by a column of %v: want a plain integer of 4 or 8 bytes without nulls", hash.Type)
	}
	if bits > 16 || shift+bits > 8*uint(width) {
		return nil, gpu.Column{}, fmt.Errorf("partition by %d bits from bit %d of a column of %v: want at most 16 that the column has", bits, shift, hash.Type)
	}
	for _, c := range cols {
		if c.Len != hash.Len {
			return nil, gpu.Column{}, fmt.Errorf("partition of a column of %d rows by a hash of %d", c.Len, hash.Len)
		}
	}
	var order array[int32]
	var offsets []int
	var err error
	if width == 4 {
		order, offsets, err = partition(q.dev, l, gpu.Values[uint32](hash.Data, hash.Len), shift, bits)
	} else {
		order, offsets, err = partition(q.dev, l, gpu.Values[uint64](hash.Data, hash.Len), shift, bits)
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
	out, err := q.dev.gather(l, cols, order.v, false)
	if err != nil {
		starts.release()
		return nil, gpu.Column{}, q.fail(err)
	}
	return out, gpu.Column{Type: gpu.Of(gpu.Int32), Len: len(starts.v), Data: starts.buf}, nil
}

// partition returns the stable permutation that orders rows by a digit of their hash, and
// the first position of each digit. The caller releases the permutation.
func partition[K uint32 | uint64](d *Device, l *gpu.Lease, hash []K, shift, bits uint) (order array[int32], offsets []int, err error) {
	n, fanout := len(hash), 1<<bits
	mask := K(fanout - 1)
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
		for _, h := range hash[lo:hi] {
			count[h>>shift&mask]++
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
		for i, h := range hash[lo:hi] {
			p := h >> shift & mask
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
