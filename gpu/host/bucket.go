package host

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// chained is the matcher of sides in chains of buckets. Its lookup works with positions in the
// order of the chains, which the matcher translates to rows.
type chained struct {
	*matcher
	build, probe []int32 // the chains
	keys         []gpu.Column
}

// row returns the row at a position of a chain. Without a chain the row is the position.
func row(chain []int32, place int32) int32 {
	if len(chain) == 0 {
		return place
	}
	return chain[place/gpu.BucketRows]*gpu.BucketRows + place%gpu.BucketRows
}

// matchChained is MatchPartitions for sides in chains: it first orders their keys.
func matchChained[K uint32 | uint64](q *queue, l *gpu.Lease, build, probe gpu.Partitioned) (_ gpu.Matcher, err error) {
	m := &chained{}
	defer func() {
		if err != nil {
			gpu.ReleaseColumns(m.keys)
		}
	}()
	for _, s := range []*gpu.Partitioned{&build, &probe} {
		chain := gpu.Values[int32](s.Chain.Data, s.Chain.Len)
		m.build, m.probe = m.probe, chain
		if len(chain) == 0 {
			continue
		}
		key, err := inOrder[K](q.dev.cores, l, s.Key, chain)
		if err != nil {
			return nil, q.fail(err)
		}
		s.Key = key
		m.keys = append(m.keys, key)
	}
	of, err := matchPartitions[K](q, l, build, probe)
	if err != nil {
		return nil, err
	}
	m.matcher = of.(*matcher)
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

// Next implements gpu.Matcher.
func (m *chained) Next(q gpu.Queue, l *gpu.Lease, limit int) (probe, build gpu.Column, more bool, err error) {
	probe, build, more, err = m.matcher.Next(q, l, limit)
	for _, s := range []struct {
		ids   gpu.Column
		chain []int32
	}{{probe, m.probe}, {build, m.build}} {
		for i, p := range gpu.Values[int32](s.ids.Data, s.ids.Len) {
			gpu.Values[int32](s.ids.Data, s.ids.Len)[i] = row(s.chain, p)
		}
	}
	return probe, build, more, err
}

// Join implements gpu.Matcher.
func (m *chained) Join(q gpu.Queue, l *gpu.Lease, probe, build []gpu.Column,
	limit int) ([]gpu.Column, int, bool, error) {
	at := m.at
	cols, rows, more, err := gpu.NextAndGather(m, q, l, probe, build, limit)
	if err != nil {
		m.at = at
	}
	return cols, rows, more, err
}

// Matched implements gpu.Matcher.
func (m *chained) Matched(gq gpu.Queue, l *gpu.Lease) (gpu.Column, error) {
	places, err := m.matcher.Matched(gq, l)
	if err != nil || len(m.probe) == 0 {
		return places, err
	}
	defer places.Release()
	out, err := memory.New[uint64](l, (m.rows+63)/64)
	if err != nil {
		return gpu.Column{}, gq.(*queue).fail(err)
	}
	from := gpu.Words(places.Data, m.rows)
	for i, b := range m.probe {
		copy(out.V[int(b)*gpu.BucketRows/64:][:gpu.BucketRows/64], from[i*gpu.BucketRows/64:])
	}
	return gpu.Column{Type: gpu.Of(gpu.Bool), Len: m.rows, Data: out.Buf}, nil
}

// Release implements gpu.Matcher.
func (m *chained) Release() {
	m.matcher.Release()
	gpu.ReleaseColumns(m.keys)
}
