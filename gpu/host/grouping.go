package host

import (
	"fmt"
	"math/bits"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/codec"
	"github.com/gstream/gstream/gpu/host/internal/group"
)

// Hash implements gpu.Queue.
func (q *queue) Hash(l *gpu.Lease, keys []gpu.Column, seed uint64) (gpu.Column, error) {
	if err := q.check(keys); err != nil {
		return gpu.Column{}, err
	}
	out, err := codec.Hash(q.dev.cores, l, keys, seed)
	return out, q.fail(err)
}

// groups implements gpu.Groups.
type groups struct {
	dev *Device
	*group.Groups
}

// NewGroups implements gpu.Queue.
func (q *queue) NewGroups(l *gpu.Lease, types []gpu.Type, hint gpu.GroupHint) (gpu.Groups, error) {
	if q.err != nil {
		return nil, q.err
	}
	g, err := group.New(l, types, hint)
	if err != nil {
		return nil, q.fail(err)
	}
	return &groups{q.dev.device(), g}, nil
}

// assignment has the group of every row.
type assignment struct{ ids gpu.Column }

// IDs implements gpu.Assignment.
func (a assignment) IDs() gpu.Column { return a.ids }

// Release implements gpu.Assignment.
func (a assignment) Release() { a.ids.Release() }

// Assign implements gpu.Groups.
func (g *groups) Assign(gq gpu.Queue, l *gpu.Lease, keys []gpu.Column, n int) (gpu.Assignment, error) {
	q, err := g.dev.queue(gq, keys)
	if err != nil {
		return nil, err
	}
	ids, err := g.Groups.Assign(q.dev.cores, l, keys, n)
	if err != nil {
		return nil, q.fail(err)
	}
	return assignment{ids}, nil
}

// Keys implements gpu.Groups.
func (g *groups) Keys(gq gpu.Queue, l *gpu.Lease, from, to int) ([]gpu.Column, error) {
	q, err := g.dev.queue(gq)
	if err != nil {
		return nil, err
	}
	out, err := g.Groups.Keys(q.dev.cores, l, from, to)
	return out, q.fail(err)
}

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
