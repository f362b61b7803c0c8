package join

import (
	"sort"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// MatchPartitions returns a matcher for the rows of two sides with the same key, partition by
// partition. Each partition has an open-addressing hash table that fits the cache. Cores build and
// probe different partitions.
func MatchPartitions(cores parallel.Cores, l *gpu.Lease, build, probe gpu.Partitioned) (*Matcher, error) {
	wide := build.Key.Type.Width() == 8
	switch chained := build.Chain.Len > 0 || probe.Chain.Len > 0; {
	case chained && wide:
		return matchChains[uint64](cores, l, build, probe)
	case chained:
		return matchChains[uint32](cores, l, build, probe)
	case !wide:
		return matchPartitions[uint32](cores, l, build, probe)
	}
	return matchPartitions[uint64](cores, l, build, probe)
}

func matchPartitions[K uint32 | uint64](cores parallel.Cores, l *gpu.Lease,
	build, probe gpu.Partitioned) (*Matcher, error) {
	p := &partitions[K]{build: newSide[K](build), probe: newSide[K](probe)}
	if err := p.make(cores, l); err != nil {
		p.release()
		return nil, err
	}
	at := p.probe.at
	return &Matcher{lookup: p, rows: probe.Key.Len, at: int(at[0]), to: int(at[len(at)-1])}, nil
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
	tables       []partTable         // by partition
	head         memory.Array[int32] // by slot: 1 + the first row of a key, within its partition; 0 is empty
	next         memory.Array[int32] // by build row: the next row + 1 of its key, or 0
}

// partTable has the position of a partition's slots in head, and the number of bits that number
// them. A key is in the first free slot from its home on; the first slot follows the last.
type partTable struct {
	at   int
	bits uint
}

func (t partTable) home(k uint64) int { return t.at + int(word.TableMix(k)>>(63-t.bits)>>1) }

func (t partTable) after(slot int) int { return t.at + (slot-t.at+1)&(1<<t.bits-1) }

func (p *partitions[K]) release() {
	p.head.Release()
	p.next.Release()
}

func (p *partitions[K]) make(cores parallel.Cores, l *gpu.Lease) (err error) {
	slots := 0
	p.tables = make([]partTable, len(p.build.at)-1)
	for i := range p.tables {
		rows := int(p.build.at[i+1] - p.build.at[i])
		p.tables[i] = partTable{slots, word.Log2Ceil(rows/5*8 + rows%5 + 1)} // more than rows
		slots += 1 << p.tables[i].bits
	}
	if p.head, err = memory.Zeros[int32](l, slots); err != nil {
		return err
	}
	if p.next, err = memory.New[int32](l, len(p.build.keys)); err != nil {
		return err
	}
	head, next := p.head.V, p.next.V
	return cores.For(len(p.tables), 1, func(i, _ int) error {
		first, table := p.build.at[i], p.tables[i]
		for r := p.build.at[i+1] - 1; r >= first; r-- { // so that the rows of a key are in order
			if !p.build.col.IsValid(int(r)) {
				continue
			}
			k := p.build.keys[r]
			s := table.home(uint64(k))
			for head[s] != 0 && p.build.keys[first+head[s]-1] != k {
				s = table.after(s)
			}
			next[r], head[s] = head[s], r-first+1
		}
		return nil
	})
}

// find looks up the keys of a block in the table of a build partition: out[i] is 1 + the first row
// of key i, counted from the partition's first row, or 0. Like table.findSlots it works in rounds.
func (p *partitions[K]) find(part int, keys []K, out []int32) {
	if p.build.at[part] == p.build.at[part+1] {
		clear(out)
		return
	}
	var at [word.Block]int
	var open [word.Block]int32
	head, build, table := p.head.V, p.build.keys[p.build.at[part]:p.build.at[part+1]], p.tables[part]
	for i, k := range keys {
		at[i] = table.home(uint64(k))
		open[i] = int32(i)
	}
	for n := len(keys); n > 0; {
		still := 0
		for _, i := range open[:n] {
			link := head[at[i]]
			out[i] = link
			at[i] = table.after(at[i])
			open[still] = i
			still += int(differ(uint64(link), 0) & differ(uint64(build[max(link-1, 0)]), uint64(keys[i])))
		}
		n = still
	}
}

// eachBlock calls f for blocks of the rows in [lo, hi), each within one partition: with the first
// row of the block, the first row of its build partition, and for each row 1 + its first match,
// counted from that build row, or 0. It stops when f returns false.
func (p *partitions[K]) eachBlock(lo, hi int, f func(row int, first int32, links []int32) bool) {
	var block [word.Block]int32
	at := p.probe.at
	part := sort.Search(len(p.tables), func(i int) bool { return int(at[i+1]) > lo })
	hi = min(hi, int(at[len(at)-1]))
	for r := max(lo, int(at[0])); r < hi; {
		for int(at[part+1]) <= r {
			part++
		}
		end := min(hi, int(at[part+1]), r+word.Block)
		links := block[:end-r]
		p.find(part, p.probe.keys[r:end], links)
		if p.probe.col.Valid != nil {
			for i := range links {
				if !p.probe.col.IsValid(r + i) {
					links[i] = 0
				}
			}
		}
		if !f(r, p.build.at[part], links) {
			return
		}
		r = end
	}
}

func (p *partitions[K]) pairs(out *pairs, lo, hi, limit int) (next int, err error) {
	if err := out.room(min(hi-lo, limit)); err != nil { // most rows have at most one match
		return 0, err
	}
	next = hi
	p.eachBlock(lo, hi, func(row int, first int32, links []int32) bool {
		for i, link := range links {
			for ; link != 0; link = p.next.V[first+link-1] {
				if err = out.room(1); err != nil {
					return false
				}
				out.add(int32(row+i), first+link-1)
			}
			if out.len() >= limit {
				next = row + i + 1
				return false
			}
		}
		return true
	})
	return next, err
}

func (p *partitions[K]) matched(lo, hi int, bits []uint64) {
	p.eachBlock(lo, hi, func(row int, _ int32, links []int32) bool {
		for i, link := range links {
			if link != 0 {
				bits[(row+i)/64] |= 1 << ((row + i) % 64)
			}
		}
		return true
	})
}
