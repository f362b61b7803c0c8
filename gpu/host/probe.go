package host

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// Match implements gpu.Table.
func (t *table) Match(gq gpu.Queue, l *gpu.Lease, keys []gpu.Column) (gpu.Matcher, error) {
	q, err := t.dev.queue(gq, keys)
	if err != nil {
		return nil, err
	}
	if len(keys) != len(t.nullSafe) {
		return nil, fmt.Errorf("probe with %d key columns of a table of %d", len(keys), len(t.nullSafe))
	}
	n := keys[0].Len
	if n > gpu.MaxRows {
		return nil, fmt.Errorf("%d probe rows are more than the %d that row ids can address", n, gpu.MaxRows)
	}
	k, err := t.keyWords(q.dev, l, keys, n, false)
	if err != nil {
		k.release()
		return nil, q.fail(err)
	}
	return &matcher{dev: t.dev, lookup: &probe{t, k}, rows: n, to: n}, nil
}

// probe looks rows up in a table. It does so in blocks, so that the independent loads of
// a block are in flight together.
type probe struct {
	*table
	keys batch
}

const probeBlock = 512

// block is the entries of the rows of a block that match: those from first to last. With
// unique keys, first is the matching row + 1.
type block struct {
	words       [][]uint64
	first, last [probeBlock]int32
}

func (p *probe) release() { p.keys.release() }

// unique reports whether each key of the table has one row.
func (p *probe) unique() bool { return p.start.v == nil }

// matches finds the entries of m rows from row at on.
func (p *probe) matches(b *block, at, m int) {
	first, last := b.first[:m], b.last[:m]
	p.pack(p.keys.coded, at, m, b.words)
	p.find(b.words, first)
	if dead := p.keys.dead.v; dead != nil {
		for i := range first {
			if r := at + i; dead[r/64]>>(r%64)&1 != 0 {
				first[i] = -1
			}
		}
	}
	// A number of -1, for no match, is all ones as a mask.
	start, entries := p.start.v, p.entries.v
	switch {
	case p.rows == 0:
		clear(first)
		clear(last)
	case !p.unique():
		for i, number := range first {
			at := max(number, 0)
			first[i], last[i] = start[at]&^(number>>31), start[at+1]&^(number>>31)
		}
	case p.ranks.v != nil:
		for i, number := range first {
			first[i] = (entries[max(number, 0)] + 1) &^ (number >> 31)
		}
	default:
		for i := range first {
			first[i]++
		}
	}
}

func (p *probe) pairs(out *pairs, lo, hi, limit int) (next int, err error) {
	if err := out.room(min(hi-lo, limit+probeBlock)); err != nil { // most rows have one pair at most
		return 0, err
	}
	b := block{words: blockWords(p.keys.words)}
	for at := lo; at < hi; at += probeBlock {
		m := min(probeBlock, hi-at)
		p.matches(&b, at, m)
		if p.unique() {
			out.addUnique(b.first[:m], at)
			if out.len() >= limit {
				return at + m, nil
			}
			continue
		}
		for i := range m {
			first, last := b.first[i], b.last[i]
			if first == last {
				continue
			}
			if err := out.room(int(last - first)); err != nil {
				return 0, err
			}
			for e := first; e < last; e++ {
				out.add(int32(at+i), p.entries.v[e])
			}
			if out.len() >= limit {
				return at + i + 1, nil
			}
		}
	}
	return hi, nil
}

// addUnique appends the matches of a block of rows, given as row + 1, for which there is
// room.
func (p *pairs) addUnique(rows []int32, at int) {
	probe, build := p.probe.v, p.build.v
	to, match := probe[len(probe):len(probe)+len(rows)], build[len(build):len(build)+len(rows)]
	k := 0
	for i, r := range rows {
		to[k], match[k] = int32(at+i), r-1
		if r != 0 {
			k++
		}
	}
	p.probe.v, p.build.v = probe[:len(probe)+k], build[:len(build)+k]
}

func (p *probe) matched(lo, hi int, bits []uint64) {
	b := block{words: blockWords(p.keys.words)}
	unique := p.unique()
	for at := lo; at < hi; at += probeBlock {
		m := min(probeBlock, hi-at)
		p.matches(&b, at, m)
		for i := range m {
			first, last := b.first[i], b.last[i]
			if unique {
				last = 0 // first is 0 without a match
			}
			if first != last {
				bits[(at+i)/64] |= 1 << ((at + i) % 64)
			}
		}
	}
}
