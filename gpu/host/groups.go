package host

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// groups assigns dense ids to keys. Keys are words of a codec; rows with a null
// in some key column have their own index, whose keys have one word more, the
// null mask. The index is direct, id by key, while a single integer-like key
// stays inside the hinted range, and hashed else.
type groups struct {
	dev      *Device
	lease    *gpu.Lease
	reserved int64
	codec    *codec

	n     int              // groups
	words [][]uint64       // key words by group
	store []vector[uint64] // what words are views of
	nulls []uint64         // null mask by group; nil while no key had a null

	direct vector[int32] // id + 1 by key - lo; empty when not direct
	lo     uint64
	index  *index // of keys without nulls
	masked *index // of keys with nulls; nil until the first

	missing [][]int32 // scratch of assign, by piece
}

// maxDirect bounds the slots of a direct index.
const maxDirect = 1 << 28

// NewGroups implements gpu.Queue.
func (q *queue) NewGroups(l *gpu.Lease, types []gpu.Type, hint gpu.GroupHint) (gpu.Groups, error) {
	if q.err != nil {
		return nil, q.err
	}
	if len(types) > 60 {
		return nil, fmt.Errorf("%d group keys are more than 60", len(types))
	}
	g := &groups{dev: q.dev, lease: l, codec: newCodec(types)}
	g.words, g.store = make([][]uint64, g.codec.words), make([]vector[uint64], g.codec.words)
	g.index = newIndex(g.codec.words)
	if len(types) == 1 && g.codec.words == 1 && hint.Dense && !types[0].IsFloat() {
		if span := uint64(hint.Hi) - uint64(hint.Lo); span < maxDirect {
			g.lo = uint64(hint.Lo)
			if err := g.direct.room(l, int(span+1)); err != nil {
				return nil, q.fail(err)
			}
			g.direct.v = g.direct.v[:span+1] // untouched, so zero
		}
	}
	if err := g.account(); err != nil {
		g.Release()
		return nil, q.fail(err)
	}
	return g, nil
}

// account brings the reservation in line with the memory in use.
func (g *groups) account() error {
	use := int64(cap(g.nulls))*8 + g.index.bytes()
	if g.masked != nil {
		use += g.masked.bytes()
	}
	for _, in := range g.codec.interner {
		if in != nil {
			use += in.bytes()
		}
	}
	if use > g.reserved {
		if err := g.lease.Reserve(use - g.reserved); err != nil {
			return err
		}
	} else {
		g.lease.Unreserve(g.reserved - use)
	}
	g.reserved = use
	return nil
}

// Len implements gpu.Groups.
func (g *groups) Len() int { return g.n }

// Release implements gpu.Groups.
func (g *groups) Release() {
	g.lease.Unreserve(g.reserved)
	g.direct.release()
	for i := range g.store {
		g.store[i].release()
	}
	*g = groups{lease: g.lease}
}

// assignment is the group of every row.
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
	buf, err := l.Alloc(int64(n) * 4)
	if err != nil {
		return nil, q.fail(err)
	}
	a := assignment{gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: buf}}
	if err := g.assign(keys, gpu.Values[int32](buf, n)); err != nil {
		a.Release()
		return nil, q.fail(err)
	}
	return a, nil
}

func (g *groups) assign(keys []gpu.Column, ids []int32) error {
	n := len(ids)
	if len(keys) == 0 {
		clear(ids)
		if n > 0 {
			g.n = 1
		}
		return nil
	}
	if len(keys) != len(g.codec.types) {
		return fmt.Errorf("%d key columns for groups of %d", len(keys), len(g.codec.types))
	}
	k, err := g.codec.prepare(g.dev, keys, n, true)
	if err != nil {
		return err
	}
	null := nullRows(keys, nil, n)
	for i := range g.store { // room for every row to be a new group
		if err := g.store[i].room(g.lease, g.n+n); err != nil {
			return err
		}
		g.words[i] = g.store[i].v[:g.n]
	}
	// Rows whose key is known find it side by side; the others come after.
	missing := g.scratch((n + grain - 1) / grain)
	err = g.dev.parallel(n, grain, func(lo, hi int) error {
		words := blockWords(g.codec.words)
		miss := missing[lo/grain]
		for at := lo; at < hi; at += probeBlock {
			m := min(probeBlock, hi-at)
			g.codec.pack(k, at, m, words)
			out := ids[at : at+m]
			if direct := g.direct.v; direct != nil {
				for i, key := range words[0][:m] {
					out[i] = -1
					if slot := key - g.lo; slot < uint64(len(direct)) {
						out[i] = direct[slot] - 1
					}
				}
			} else {
				g.index.find(words, out, g.words)
			}
			for i, id := range out {
				if id < 0 || null != nil && null[(at+i)/64]>>((at+i)%64)&1 != 0 {
					miss = append(miss, int32(at+i))
				}
			}
		}
		missing[lo/grain] = miss
		return nil
	})
	if err != nil {
		return err
	}
	words := blockWords(g.codec.words)
	for _, miss := range missing {
		for len(miss) > 0 {
			// A run of consecutive rows is packed at once.
			from := int(miss[0])
			m := 1
			for m < len(miss) && m < probeBlock && int(miss[m]) < from+probeBlock {
				m++
			}
			span := int(miss[m-1]) - from + 1
			g.codec.pack(k, from, span, words)
			if g.direct.v != nil && null == nil {
				m = g.insertDirect(words[0], miss[:m], from, ids)
			} else {
				for _, r := range miss[:m] {
					ids[r] = g.insert(words, int(r)-from, nullMask(keys, null, int(r)))
				}
			}
			miss = miss[m:]
		}
	}
	if g.n > gpu.MaxRows {
		return fmt.Errorf("more groups than the %d that ids can address", gpu.MaxRows)
	}
	return g.account()
}

// insertDirect gives the rows of a block, whose first is row from, their groups
// by the direct index. It returns how many it did before a key outside of it.
func (g *groups) insertDirect(keys []uint64, rows []int32, from int, ids []int32) int {
	direct, n, stored := g.direct.v, int32(g.n), g.words[0]
	done := len(rows)
	for j, r := range rows {
		key := keys[int(r)-from]
		slot := key - g.lo
		if slot >= uint64(len(direct)) {
			ids[r] = -1
			done = j
			break
		}
		id := direct[slot]
		if id == 0 {
			n++
			id = n
			direct[slot] = id
			stored = append(stored, key)
		}
		ids[r] = id - 1
	}
	if g.nulls != nil {
		g.nulls = append(g.nulls, make([]uint64, int(n)-g.n)...)
	}
	g.n, g.words[0] = int(n), stored
	if done == 0 { // the hint was wrong
		g.hashDirect()
	}
	return done
}

// hashDirect gives up the direct index: the groups so far are hashed.
func (g *groups) hashDirect() {
	g.direct.release()
	for id := range g.n {
		if g.nulls == nil || g.nulls[id] == 0 {
			g.index.insert(g.words, id, int32(id), g.words)
		}
	}
}

// scratch returns empty lists for the rows that pieces find missing.
func (g *groups) scratch(pieces int) [][]int32 {
	for len(g.missing) < pieces {
		g.missing = append(g.missing, make([]int32, 0, grain))
	}
	for i := range g.missing {
		g.missing[i] = g.missing[i][:0]
	}
	return g.missing[:pieces]
}

func blockWords(n int) [][]uint64 {
	all := make([]uint64, n*probeBlock)
	words := make([][]uint64, n)
	for i := range words {
		words[i] = all[i*probeBlock:][:probeBlock]
	}
	return words
}

// nullMask returns the bit mask of the key columns that are null in a row.
func nullMask(keys []gpu.Column, null []uint64, row int) (mask uint64) {
	if null == nil || null[row/64]>>(row%64)&1 == 0 {
		return 0
	}
	for i, c := range keys {
		if !c.IsValid(row) {
			mask |= 1 << i
		}
	}
	return mask
}

// insert returns the group of the i-th key of a block, a new one if need be.
func (g *groups) insert(words [][]uint64, i int, mask uint64) int32 {
	if mask != 0 {
		if g.masked == nil {
			g.masked = newIndex(len(g.words) + 1)
			g.nulls = make([]uint64, g.n)
		}
		key := make([][]uint64, 0, len(words)+1)
		for _, w := range words {
			key = append(key, w[i:i+1])
		}
		key = append(key, []uint64{mask})
		id, fresh := g.masked.insert(key, 0, int32(g.n), append(g.words[:len(g.words):len(g.words)], g.nulls))
		if fresh {
			g.add(words, i, mask)
		}
		return id
	}
	if direct := g.direct.v; direct != nil {
		key := words[0][i]
		slot := key - g.lo
		if slot < uint64(len(direct)) {
			id := direct[slot] - 1
			if id < 0 {
				id = int32(g.n)
				direct[slot] = id + 1
				g.add(words, i, 0)
			}
			return id
		}
		g.hashDirect()
	}
	id, fresh := g.index.insert(words, i, int32(g.n), g.words)
	if fresh {
		g.add(words, i, 0)
	}
	return id
}

func (g *groups) add(words [][]uint64, i int, mask uint64) {
	for w := range g.words {
		g.words[w] = append(g.words[w], words[w][i])
	}
	if g.nulls != nil {
		g.nulls = append(g.nulls, mask)
	}
	g.n++
}

// Keys implements gpu.Groups.
func (g *groups) Keys(gq gpu.Queue, l *gpu.Lease, from, to int) ([]gpu.Column, error) {
	q, err := g.dev.queue(gq)
	if err != nil {
		return nil, err
	}
	b := builder{lease: l}
	for i := range g.codec.types {
		c, err := g.key(l, i, from, to)
		if err != nil {
			_, err = b.fail(err)
			return nil, q.fail(err)
		}
		b.cols = append(b.cols, c)
	}
	return b.cols, nil
}

// key unpacks key column i of groups [from, to).
func (g *groups) key(l *gpu.Lease, i, from, to int) (gpu.Column, error) {
	t, n := g.codec.types[i], to-from
	w, shift := g.words[g.codec.word[i]][from:to], g.codec.shift[i]
	out := gpu.Column{Type: t, Len: n}
	fail := func(err error) (gpu.Column, error) {
		out.Release()
		return gpu.Column{}, err
	}
	var err error
	if g.nulls != nil {
		if out.Valid, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
			return fail(err)
		}
		valid := gpu.Words(out.Valid, n)
		clear(valid)
		nulls := false
		for r, mask := range g.nulls[from:to] {
			bit := ^mask >> i & 1
			valid[r/64] |= bit << (r % 64)
			nulls = nulls || bit == 0
		}
		if !nulls {
			out.Valid.Release()
			out.Valid = nil
		}
	}
	width := int64(t.Width())
	switch {
	case t.IsVar():
		width = 4
	case t.Kind == gpu.Bool:
		if out.Data, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
			return fail(err)
		}
		bits := gpu.Words(out.Data, n)
		clear(bits)
		for r, v := range w {
			bits[r/64] |= v >> shift & 1 << (r % 64)
		}
		return out, nil
	}
	if out.Data, err = l.Alloc(int64(n) * width); err != nil {
		return fail(err)
	}
	switch width {
	case 1:
		unpack(gpu.Values[uint8](out.Data, n), w, shift)
	case 2:
		unpack(gpu.Values[uint16](out.Data, n), w, shift)
	case 4:
		unpack(gpu.Values[uint32](out.Data, n), w, shift)
	case 8:
		copy(gpu.Values[uint64](out.Data, n), w)
	case 16:
		hi := g.words[g.codec.word[i]+1][from:to]
		dst := gpu.Values[gpu.Int128](out.Data, n)
		for r := range dst {
			dst[r] = gpu.Int128{Lo: w[r], Hi: int64(hi[r])}
		}
	}
	if !t.IsVar() {
		return out, nil
	}
	// Codes of the interner: a dictionary while its values are shared.
	values, err := g.codec.interner[i].values(l, t)
	if err != nil {
		return fail(err)
	}
	out.Dict = &gpu.Dictionary{Values: values}
	if values.Len == 0 {
		clear(gpu.Values[int32](out.Data, n))
	}
	if values.Len <= g.n/2 || values.Len <= 1024 {
		return out, nil
	}
	plain, err := g.dev.expand(l, out)
	out.Release()
	return plain, err
}

func unpack[T uint8 | uint16 | uint32](dst []T, words []uint64, shift uint) {
	for i, w := range words {
		dst[i] = T(w >> shift)
	}
}

// index is an open-addressing hash table from keys of some words to ids. Keys of
// one word stand in the slots; wider ones in the caller's columns by id, with
// their hash in the slot.
type index struct {
	words int
	n     int
	slots []slot
}

type slot struct {
	key uint64
	id  int32 // id + 1; 0 is empty
}

func newIndex(words int) *index { return &index{words: words, slots: make([]slot, 1<<10)} }

func (x *index) bytes() int64 { return int64(cap(x.slots)) * 16 }

// find looks up the keys of a block: out[i] is the id of key i, or -1. It only
// reads, so blocks may be looked up in parallel.
func (x *index) find(words [][]uint64, out []int32, stored [][]uint64) {
	mask := uint64(len(x.slots) - 1)
	if x.words == 1 {
		var at [probeBlock]uint64
		keys := words[0][:len(out)]
		for i, k := range keys {
			at[i] = mix(k, tableSeed) >> 32 & mask
		}
		for i, k := range keys {
			s := at[i]
			for x.slots[s].id != 0 && x.slots[s].key != k {
				s = (s + 1) & mask
			}
			out[i] = x.slots[s].id - 1
		}
		return
	}
	for i := range out {
		out[i] = x.slots[x.slot(words, i, hashKey(words, i), stored)].id - 1
	}
}

// slot returns where key i of several words is, or the empty slot it belongs in.
func (x *index) slot(words [][]uint64, i int, h uint64, stored [][]uint64) uint64 {
	mask := uint64(len(x.slots) - 1)
	for s := h >> 32 & mask; ; s = (s + 1) & mask {
		id := x.slots[s].id - 1
		if id < 0 {
			return s
		}
		if x.slots[s].key != h {
			continue
		}
		same := true
		for w := range stored {
			same = same && stored[w][id] == words[w][i]
		}
		if same {
			return s
		}
	}
}

// insert returns the id of key i, which is next when the key is new.
func (x *index) insert(words [][]uint64, i int, next int32, stored [][]uint64) (id int32, fresh bool) {
	if x.n >= len(x.slots)/8*5 {
		x.grow()
	}
	mask := uint64(len(x.slots) - 1)
	var s uint64
	key := words[0][i]
	if x.words == 1 {
		s = mix(key, tableSeed) >> 32 & mask
		for x.slots[s].id != 0 && x.slots[s].key != key {
			s = (s + 1) & mask
		}
	} else {
		key = hashKey(words, i)
		s = x.slot(words, i, key, stored)
	}
	if x.slots[s].id != 0 {
		return x.slots[s].id - 1, false
	}
	x.slots[s] = slot{key, next + 1}
	x.n++
	return next, true
}

func (x *index) grow() {
	old := x.slots
	x.slots = make([]slot, len(old)*2)
	mask := uint64(len(x.slots) - 1)
	for _, e := range old {
		if e.id == 0 {
			continue
		}
		h := e.key
		if x.words == 1 {
			h = mix(h, tableSeed)
		}
		s := h >> 32 & mask
		for x.slots[s].id != 0 {
			s = (s + 1) & mask
		}
		x.slots[s] = e
	}
}
