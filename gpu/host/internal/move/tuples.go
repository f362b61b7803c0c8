package move

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// tuple is a key and a value.
type tuple[K any] struct{ key, value K }

// PartitionTuples writes keys and values as tuples, in the stable order of rows by a digit of their
// key, and returns the first row of each digit.
func PartitionTuples(cores parallel.Cores, l *gpu.Lease, to, key, value gpu.Column, d gpu.Digit) ([]int, error) {
	if key.Type.Width() == 4 {
		return tuplesOf[uint32](cores, l, to, key, value, d)
	}
	return tuplesOf[uint64](cores, l, to, key, value, d)
}

func tuplesOf[K uint32 | uint64](cores parallel.Cores, l *gpu.Lease, to, key, value gpu.Column,
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

// SplitTuples returns the keys and the values of tuples as columns.
func SplitTuples(cores parallel.Cores, l *gpu.Lease, tuples gpu.Column, key, value gpu.Type) ([]gpu.Column, error) {
	if key.Width() == 4 {
		return splitOf[uint32](cores, l, tuples, key, value)
	}
	return splitOf[uint64](cores, l, tuples, key, value)
}

func splitOf[K uint32 | uint64](cores parallel.Cores, l *gpu.Lease, tuples gpu.Column,
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
