package join

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/codec"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// Match returns a matcher for probe rows.
func (t *Table) Match(cores parallel.Cores, l *gpu.Lease, keys []gpu.Column) (_ *Matcher, err error) {
	if len(keys) != len(t.nullSafe) {
		return nil, fmt.Errorf("probe with %d key columns of a table of %d", len(keys), len(t.nullSafe))
	}
	n := keys[0].Len
	if n > gpu.MaxRows {
		return nil, gpu.TooManyRows(n)
	}
	p := &probe{Table: t}
	if p.keys, err = t.keyWords(cores, l, keys, n, false); err == nil {
		err = p.lookUpValues(l)
	}
	if err != nil {
		p.release()
		return nil, err
	}
	return &Matcher{lookup: p, rows: n, to: n}, nil
}

// probe looks up rows in a table. It works in blocks, so that the independent loads of a block are
// in flight together.
type probe struct {
	*Table
	keys batch
	// first and last have the entries of each dictionary value, if the key is a single string with
	// a dictionary.
	first, last memory.Array[int32]
}

// lookUpValues looks up the values of a dictionary that has no more values than there are rows.
func (p *probe) lookUpValues(l *gpu.Lease) (err error) {
	codes := p.keys.Dict[0]
	if len(p.keys.Cols) > 1 || len(codes) == 0 || p.anySafe && p.keys.Cols[0].Valid != nil {
		return nil
	}
	if p.first, err = memory.New[int32](l, len(codes)); err != nil {
		return err
	}
	if p.last, err = memory.New[int32](l, len(codes)); err != nil {
		return err
	}
	words := codec.Block(p.keys.words)
	for at := 0; at < len(codes); at += word.Block {
		end := min(at+word.Block, len(codes))
		for i, code := range codes[at:end] {
			words[0][i] = uint64(code)
		}
		p.lookUp(words, p.first.V[at:end], p.last.V[at:end])
	}
	return nil
}

// block has the matching entries of the rows of a block: those from first to last. With unique
// keys, first is the matching row + 1.
type block struct {
	words       [][]uint64
	first, last [word.Block]int32
}

func (p *probe) release() {
	p.keys.release()
	p.first.Release()
	p.last.Release()
}

// unique reports whether each key of the table has one row.
func (p *probe) unique() bool { return p.start.V == nil }

// matches finds the entries of m rows from row at on.
func (p *probe) matches(b *block, at, m int) {
	first, last := b.first[:m], b.last[:m]
	switch {
	case p.first.V == nil:
		p.pack(p.keys.Keys, at, m, b.words)
		p.lookUp(b.words, first, last)
	case p.unique():
		ofValues(first, p.first.V, p.keys.Cols[0], at)
	default:
		ofValues(first, p.first.V, p.keys.Cols[0], at)
		ofValues(last, p.last.V, p.keys.Cols[0], at)
	}
	if dead := p.keys.dead.V; dead != nil {
		for i := range first {
			if r := at + i; dead[r/64]>>(r%64)&1 != 0 {
				first[i], last[i] = 0, 0
			}
		}
	}
}

// ofValues sets out to the entries of byValue for the dictionary codes of rows from row at on.
func ofValues(out, byValue []int32, c gpu.Column, at int) {
	for i, code := range gpu.Values[int32](c.Data, c.Len)[at:][:len(out)] {
		out[i] = gpu.Lookup(byValue, code)
	}
}

// lookUp finds the entries of a block of keys.
func (p *probe) lookUp(words [][]uint64, first, last []int32) {
	if byKey := p.byKey.V; byKey != nil {
		none := uint64(len(byKey) - 1)
		for i, key := range words[0][:len(first)] {
			first[i] = byKey[min(key-p.lo, none)]
		}
		return
	}
	p.find(words, first)
	// The number -1, which means no match, is all ones as a mask.
	start, entries := p.start.V, p.entries.V
	switch {
	case p.rows == 0:
		clear(first)
		clear(last)
	case !p.unique():
		for i, number := range first {
			at := max(number, 0)
			first[i], last[i] = start[at]&^(number>>31), start[at+1]&^(number>>31)
		}
	case p.ranks.V != nil:
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
	if err := out.room(min(hi-lo, limit+word.Block)); err != nil { // most rows have at most one pair
		return 0, err
	}
	b := block{words: codec.Block(p.keys.words)}
	unhashed := p.unique() && p.first.V == nil && p.keys.dead.V == nil && (p.byKey.V != nil || p.ranks.V != nil)
	for at := lo; at < hi; at += word.Block {
		m := min(word.Block, hi-at)
		if unhashed {
			p.addMatches(out, b.words, at, m)
		} else if p.matches(&b, at, m); p.unique() {
			out.addUnique(b.first[:m], at)
		}
		if p.unique() {
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
				out.add(int32(at+i), p.entries.V[e])
			}
			if out.len() >= limit {
				return at + i + 1, nil
			}
		}
	}
	return hi, nil
}

// addUnique appends the matches of a block of rows, given as row + 1. There must be room for them.
func (p *pairs) addUnique(rows []int32, at int) {
	probe, build := p.probe.V, p.build.V
	to, match := probe[len(probe):len(probe)+len(rows)], build[len(build):len(build)+len(rows)]
	k := 0
	for i, r := range rows {
		to[k], match[k] = int32(at+i), r-1
		if r != 0 {
			k++
		}
	}
	p.probe.V, p.build.V = probe[:len(probe)+k], build[:len(build)+k]
}

// addMatches looks m rows from row at on up in an array, or in the direct form, of distinct keys, and appends the
// matches, for which there is room. Keys of 4 and 8 bytes are read where they are: the time is that of the
// instructions.
func (p *probe) addMatches(out *pairs, words [][]uint64, at, m int) {
	probe, build := out.probe.V, out.build.V
	to, match := probe[len(probe):len(probe)+m], build[len(build):len(build)+m]
	n := 0
	switch key := p.keys.Cols[0]; {
	case p.rows == 0:
	case key.Dict == nil && key.Type.Width() == 4:
		n = matchDistinct(p.Table, gpu.Values[uint32](key.Data, key.Len)[at:at+m], to, match)
	case key.Dict == nil && key.Type.Width() == 8:
		n = matchDistinct(p.Table, gpu.Values[uint64](key.Data, key.Len)[at:at+m], to, match)
	default:
		p.pack(p.keys.Keys, at, m, words)
		n = matchDistinct(p.Table, words[0][:m], to, match)
	}
	for i := range to[:n] {
		to[i] += int32(at)
	}
	out.probe.V, out.build.V = probe[:len(probe)+n], build[:len(build)+n]
}

func matchDistinct[K uint32 | uint64](t *Table, keys []K, to, match []int32) int {
	if t.byKey.V != nil {
		return matchArray(keys, t.lo, t.byKey.V, to, match)
	}
	return matchRanks(keys, t.lo, t.ranks.V, t.entries.V, to, match)
}

// matchArray writes the positions of the keys that an array, which begins with key lo, contains,
// and their rows. It returns their number. No branch depends on whether a key exists. It is not
// inlined, since it would then lack registers.
//
//go:noinline
func matchArray[K uint32 | uint64](keys []K, lo uint64, byKey, to, match []int32) (n int) {
	none := uint64(len(byKey) - 1)
	match = match[:len(to)]
	for i, key := range keys {
		row := byKey[min(uint64(key)-lo, none)]
		to[n], match[n] = int32(i), row-1
		n += int(uint32(-row) >> 31)
	}
	return n
}

// matchRanks is matchArray for the direct form.
//
//go:noinline
func matchRanks[K uint32 | uint64](keys []K, lo uint64, ranks []ranked, entries, to, match []int32) (n int) {
	match = match[:len(to)]
	for i, key := range keys {
		slot := uint64(key) - lo
		if slot >= uint64(len(ranks))*64 {
			continue
		}
		entry, there := ranks[slot/64].number(slot)
		to[n], match[n] = int32(i), entries[entry&-there]
		n += int(there)
	}
	return n
}

func (p *probe) matched(lo, hi int, bits []uint64) {
	b := block{words: codec.Block(p.keys.words)}
	unique := p.unique()
	for at := lo; at < hi; at += word.Block {
		m := min(word.Block, hi-at)
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
