package join

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// chains are the sides of a join in chains of buckets. Its lookup works with positions in the order of
// the chains, which stand for rows.
type chains struct {
	build, probe []int32
	keys         []gpu.Column // of the sides, in the order of the chains
}

// toRows replaces positions of a chain by rows. Without a chain the row is the position.
func toRows(chain []int32, ids gpu.Column) {
	if len(chain) == 0 {
		return
	}
	rows := gpu.Values[int32](ids.Data, ids.Len)
	for i, at := range rows {
		rows[i] = chain[at/gpu.BucketRows]*gpu.BucketRows + at%gpu.BucketRows
	}
}

// matchChains is matchPartitions for sides in chains: it first orders their keys.
func matchChains[K uint32 | uint64](cores parallel.Cores, l *gpu.Lease, build, probe gpu.Partitioned) (_ *Matcher,
	err error) {
	c := &chains{}
	defer func() {
		if err != nil {
			gpu.ReleaseColumns(c.keys)
		}
	}()
	for _, s := range []*gpu.Partitioned{&build, &probe} {
		chain := gpu.Values[int32](s.Chain.Data, s.Chain.Len)
		c.build, c.probe = c.probe, chain
		if len(chain) == 0 {
			continue
		}
		key, err := inOrder[K](cores, l, s.Key, chain)
		if err != nil {
			return nil, err
		}
		s.Key = key
		c.keys = append(c.keys, key)
	}
	m, err := matchPartitions[K](cores, l, build, probe)
	if err != nil {
		return nil, err
	}
	m.chains = c
	return m, nil
}

// inOrder returns the key of a side in the order of its chain.
func inOrder[K uint32 | uint64](cores parallel.Cores, l *gpu.Lease, key gpu.Column, chain []int32) (gpu.Column, error) {
	out := gpu.Column{Type: key.Type, Len: key.Len}
	to, err := memory.New[K](l, key.Len)
	if err != nil {
		return out, err
	}
	out.Data = to.Buf
	from := gpu.Values[K](key.Data, key.Len)
	var bits, inBits []uint64
	if key.Valid != nil {
		valid, err := memory.New[uint64](l, (key.Len+63)/64)
		if err != nil {
			out.Release()
			return out, err
		}
		out.Valid, bits, inBits = valid.Buf, valid.V, gpu.Words(key.Valid, key.Len)
	}
	err = cores.For(len(chain), 16, func(lo, hi int) error {
		for i := lo; i < hi; i++ {
			at, b := i*gpu.BucketRows, int(chain[i])*gpu.BucketRows
			copy(to.V[at:at+gpu.BucketRows], from[b:])
			if bits != nil {
				copy(bits[at/64:(at+gpu.BucketRows)/64], inBits[b/64:])
			}
		}
		return nil
	})
	if err != nil {
		out.Release()
	}
	return out, err
}

// matched returns a bitmap of the positions of the probe side as one of its rows.
func (c *chains) matched(l *gpu.Lease, positions gpu.Column) (gpu.Column, error) {
	out, err := memory.New[uint64](l, (positions.Len+63)/64)
	if err != nil {
		return gpu.Column{}, err
	}
	from := gpu.Words(positions.Data, positions.Len)
	for i, b := range c.probe {
		copy(out.V[int(b)*gpu.BucketRows/64:][:gpu.BucketRows/64], from[i*gpu.BucketRows/64:])
	}
	return gpu.Column{Type: gpu.Of(gpu.Bool), Len: positions.Len, Data: out.Buf}, nil
}
