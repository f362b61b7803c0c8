package host

import (
	"fmt"
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// packing implements gpu.Packing: a packed key is the group id of the keys.
type packing struct{ *groups }

// NewPacking implements gpu.Queue.
func (q *queue) NewPacking(l *gpu.Lease, types []gpu.Type) (gpu.Packing, error) {
	g, err := q.NewGroups(l, types, gpu.GroupHint{})
	if err != nil {
		return nil, err
	}
	return packing{g.(*groups)}, nil
}

// Pack implements gpu.Packing.
func (p packing) Pack(q gpu.Queue, l *gpu.Lease, keys []gpu.Column, n int) (gpu.PackedKeys, error) {
	a, err := p.Assign(q, l, keys, n)
	if err != nil {
		return nil, err
	}
	return packedKeys{a, p.groups, bits.Len(uint(max(p.Len()-1, 0)))}, nil
}

// packedKeys implements gpu.PackedKeys.
type packedKeys struct {
	gpu.Assignment
	groups *groups
	bits   int
}

// Key implements gpu.PackedKeys.
func (p packedKeys) Key() gpu.Column {
	c := p.IDs()
	c.Type = gpu.Of(gpu.Uint32)
	return c
}

// Bits implements gpu.PackedKeys.
func (p packedKeys) Bits() int { return p.bits }

// Unpack implements gpu.PackedKeys.
func (p packedKeys) Unpack(q gpu.Queue, l *gpu.Lease, key gpu.Column) ([]gpu.Column, error) {
	if want := p.Key().Type; key.Type != want || key.Valid != nil || key.Dict != nil {
		return nil, fmt.Errorf("unpack of a key of %v, packed as %v", key.Type, want)
	}
	all, err := p.groups.Keys(q, l, 0, p.groups.Len())
	if err != nil {
		return nil, err
	}
	defer gpu.ReleaseColumns(all)
	key.Type = gpu.Of(gpu.Int32)
	return q.Gather(l, all, key, false)
}
