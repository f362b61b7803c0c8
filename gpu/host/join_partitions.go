package host

import (
	"sort"

	"github.com/gstream/gstream/gpu"
)

// MatchPartitions implements gpu.Queue. Each partition has a chained hash table, small
// enough for the cache. Cores build and probe different partitions.
func (q *queue) MatchPartitions(l *gpu.Lease, build, probe gpu.Partitioned) (gpu.Matcher, error) {
	if err := q.check([]gpu.Column{build.Key, build.Offsets, probe.Key, probe.Offsets}); err != nil {
		return nil, err
	}
	if err := gpu.CheckPartitions(build, probe); err != nil {
		return nil, err
	}
	if build.Key.Type.Width() == 4 {
		return matchPartitions[uint32](q, l, build, probe)
	}
	return matchPartitions[uint64](q, l, build, probe)
}

func matchPartitions[K uint32 | uint64](q *queue, l *gpu.Lease, build, probe gpu.Partitioned) (gpu.Matcher, error) {
	p := &partitions[K]{build: newSide[K](build), probe: newSide[K](probe)}
	if err := p.make(q.dev, l); err != nil {
		p.release()
		return nil, q.fail(err)
	}
	at := p.probe.at
	return &matcher{dev: q.dev.device(), lookup: p, rows: probe.Key.Len, at: int(at[0]), to: int(at[len(at)-1])}, nil
}

// side is one side of a partitioned join.
type side[K uint32 | uint64] struct {
	col  gpu.Column
	keys []K
	at   []int32 // where partitions begin, and the end
}

func newSide[K uint32 | uint64](p gpu.Partitioned) side[K] {
	return side[K]{p.Key, gpu.Values[K](p.Key.Data, p.Key.Len), gpu.Values[int32](p.Offsets.Data, p.Offsets.Len)}
}

// partitions looks rows up in a hash table for each partition.
type partitions[K uint32 | uint64] struct {
	build, probe side[K]
	tables       []chains     // by partition
	head         array[int32] // by bucket: the first row + 1, counted from the partition's first
	next         array[int32] // by build row: the next row + 1 of its bucket
}

// chains is where the buckets of a partition begin in head, and how many bits number
// them.
type chains struct {
	at   int
	bits uint
}

func (c chains) bucket(k uint64) int { return c.at + int(mix(k, tableSeed)>>(63-c.bits)>>1) }

func (p *partitions[K]) release() {
	p.head.release()
	p.next.release()
}

func (p *partitions[K]) make(d *Device, l *gpu.Lease) (err error) {
	buckets := 0
	p.tables = make([]chains, len(p.build.at)-1)
	for i := range p.tables {
		p.tables[i] = chains{buckets, log2ceil(int(p.build.at[i+1] - p.build.at[i]))}
		buckets += 1 << p.tables[i].bits
	}
	if p.head, err = newZeros[int32](l, buckets); err != nil {
		return err
	}
	if p.next, err = newArray[int32](l, len(p.build.keys)); err != nil {
		return err
	}
	head, next := p.head.v, p.next.v
	return d.parallel(len(p.tables), 1, func(i, _ int) error {
		first := p.build.at[i]
		for r := p.build.at[i+1] - 1; r >= first; r-- { // rows of a bucket are then in order
			if p.build.col.IsValid(int(r)) {
				b := p.tables[i].bucket(uint64(p.build.keys[r]))
				next[r], head[b] = head[b], r-first+1
			}
		}
		return nil
	})
}

// match returns the first match of a key from a link of a chain on as row + 1, counted
// from the partition's first row, or 0.
func (p *partitions[K]) match(first, link int32, k K) int32 {
	for link != 0 && p.build.keys[first+link-1] != k {
		link = p.next.v[first+link-1]
	}
	return link
}

// each calls f for the rows in [lo, hi) with a match: with the first row of their build
// partition, and their first match in it. It stops at a row for which f is false, and
// returns the row after it.
func (p *partitions[K]) each(lo, hi int, f func(row int, first, link int32) bool) (next int) {
	at := p.probe.at
	part := sort.Search(len(p.tables), func(i int) bool { return int(at[i+1]) > lo })
	for r := max(lo, int(at[0])); r < min(hi, int(at[len(at)-1])); r++ {
		for int(at[part+1]) <= r {
			part++
		}
		if !p.probe.col.IsValid(r) {
			continue
		}
		k, first := p.probe.keys[r], p.build.at[part]
		if link := p.match(first, p.head.v[p.tables[part].bucket(uint64(k))], k); link != 0 && !f(r, first, link) {
			return r + 1
		}
	}
	return hi
}

func (p *partitions[K]) pairs(out *pairs, lo, hi, limit int) (next int, err error) {
	if err := out.room(hi - lo); err != nil { // most rows have one match at most
		return 0, err
	}
	next = p.each(lo, hi, func(r int, first, link int32) bool {
		for ; link != 0; link = p.match(first, p.next.v[first+link-1], p.probe.keys[r]) {
			if err = out.room(1); err != nil {
				return false
			}
			out.add(int32(r), first+link-1)
		}
		return out.len() < limit
	})
	return next, err
}

func (p *partitions[K]) matched(lo, hi int, bits []uint64) {
	p.each(lo, hi, func(r int, _, _ int32) bool {
		bits[r/64] |= 1 << (r % 64)
		return true
	})
}
