package move

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// PartitionBuckets returns the rows that have a key in buckets, by a digit of the key. The buckets
// of a partition are consecutive.
func PartitionBuckets(cores parallel.Cores, l *gpu.Lease, key gpu.Column, d gpu.Digit) (out gpu.Buckets, err error) {
	if key.Type.Width() == 4 {
		out, err = bucketsOf[uint32](cores, l, key, d)
	} else {
		out, err = bucketsOf[uint64](cores, l, key, d)
	}
	if err != nil {
		out.Release()
		return gpu.Buckets{}, err
	}
	return out, nil
}

// bucketsOf is PartitionBuckets for a type of keys. After an error the caller releases what there is.
func bucketsOf[K uint32 | uint64](cores parallel.Cores, l *gpu.Lease, key gpu.Column,
	d gpu.Digit) (out gpu.Buckets, err error) {
	keys := gpu.Values[K](key.Data, key.Len)
	positions, at, err := partition(cores, l, keys, d)
	if err != nil {
		return out, err
	}
	order, err := orderOf(cores, l, positions.V)
	positions.Release()
	defer order.Release()
	if err != nil {
		return out, err
	}
	partitions := len(at) - 1
	offsets, err := memory.New[int32](l, partitions+1)
	if err != nil {
		return out, err
	}
	ids := gpu.Of(gpu.Int32)
	out.Offsets = gpu.Column{Type: ids, Len: partitions + 1, Data: offsets.Buf}
	// rows returns the rows of a partition that have a key.
	rows := func(p int) (n int) {
		for _, r := range order.V[at[p]:at[p+1]] {
			if key.IsValid(int(r)) {
				n++
			}
		}
		return n
	}
	err = cores.For(partitions, 1, func(p, _ int) error {
		offsets.V[p] = int32((rows(p) + gpu.BucketRows - 1) / gpu.BucketRows)
		return nil
	})
	if err != nil {
		return out, err
	}
	buckets := 0
	for p := range partitions {
		buckets, offsets.V[p] = buckets+int(offsets.V[p]), int32(buckets*gpu.BucketRows)
	}
	slots := buckets * gpu.BucketRows
	offsets.V[partitions] = int32(slots)
	chain, err := memory.New[int32](l, buckets)
	if err != nil {
		return out, err
	}
	out.Chain = gpu.Column{Type: ids, Len: buckets, Data: chain.Buf}
	for i := range chain.V {
		chain.V[i] = int32(i)
	}
	to, err := memory.Zeros[K](l, slots)
	if err != nil {
		return out, err
	}
	out.Key = gpu.Column{Type: key.Type, Len: slots, Data: to.Buf}
	toRows, err := memory.Zeros[int32](l, slots)
	if err != nil {
		return out, err
	}
	out.Rows = gpu.Column{Type: ids, Len: slots, Data: toRows.Buf}
	valid, err := memory.Zeros[uint64](l, (slots+63)/64)
	if err != nil {
		return out, err
	}
	out.Key.Valid = valid.Buf
	return out, cores.For(partitions, 1, func(p, _ int) error {
		slot := int(offsets.V[p])
		for _, r := range order.V[at[p]:at[p+1]] {
			if key.IsValid(int(r)) {
				to.V[slot], toRows.V[slot] = keys[r], r
				valid.V[slot/64] |= 1 << (slot % 64)
				slot++
			}
		}
		return nil
	})
}
