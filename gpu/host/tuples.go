package host

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

var (
	_ gpu.Experimental = (*queue)(nil)
	_ gpu.Interleaver  = (*Device)(nil)
)

// Interleave implements gpu.Device.
func (d *Device) Interleave(device, _ *gpu.Lease, n int64, _ float64) (*gpu.Buffer, error) {
	return device.Alloc(n)
}

// tuple is a key and a value.
type tuple[K any] struct{ key, value K }

// PartitionTuples implements gpu.Queue.
func (q *queue) PartitionTuples(l *gpu.Lease, to, key, value gpu.Column, d gpu.Digit,
	how gpu.TuplePass) (offsets []int, err error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if err := gpu.CheckTuples(q.dev, to, key, value, d, how); err != nil {
		return nil, err
	}
	if key.Type.Width() == 4 {
		offsets, err = partitionTuples[uint32](q.dev.cores, l, to, key, value, d)
	} else {
		offsets, err = partitionTuples[uint64](q.dev.cores, l, to, key, value, d)
	}
	return offsets, q.fail(err)
}

func partitionTuples[K uint32 | uint64](cores parallel.Cores, l *gpu.Lease, to, key, value gpu.Column,
	d gpu.Digit) ([]int, error) {
	n := key.Len
	keys, values, out := gpu.Values[K](key.Data, n), gpu.Values[K](value.Data, n), gpu.Values[tuple[K]](to.Data, n)
	at, offsets, err := partition(cores, l, keys, d)
	if err != nil {
		return nil, err
	}
	defer at.Release()
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		for i := lo; i < hi; i++ {
			out[at.V[i]] = tuple[K]{keys[i], values[i]}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return offsets, nil
}

// SplitTuples implements gpu.Queue.
func (q *queue) SplitTuples(l *gpu.Lease, tuples gpu.Column, key, value gpu.Type) (out []gpu.Column, err error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if err := gpu.CheckSplit(q.dev, tuples, key, value); err != nil {
		return nil, err
	}
	if key.Width() == 4 {
		out, err = splitTuples[uint32](q.dev.cores, l, tuples, key, value)
	} else {
		out, err = splitTuples[uint64](q.dev.cores, l, tuples, key, value)
	}
	return out, q.fail(err)
}

func splitTuples[K uint32 | uint64](cores parallel.Cores, l *gpu.Lease, tuples gpu.Column,
	key, value gpu.Type) ([]gpu.Column, error) {
	n := tuples.Len
	keys, err := memory.New[K](l, n)
	if err != nil {
		return nil, err
	}
	values, err := memory.New[K](l, n)
	if err == nil {
		in := gpu.Values[tuple[K]](tuples.Data, n)
		err = cores.For(n, parallel.Grain, func(lo, hi int) error {
			for i := lo; i < hi; i++ {
				keys.V[i], values.V[i] = in[i].key, in[i].value
			}
			return nil
		})
	}
	if err != nil {
		keys.Release()
		values.Release()
		return nil, err
	}
	return []gpu.Column{{Type: key, Len: n, Data: keys.Buf}, {Type: value, Len: n, Data: values.Buf}}, nil
}
