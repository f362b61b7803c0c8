package host

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/move"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// groups assigns dense ids to keys. Keys are words of a codec. Rows with a null in a key column
// have a separate index, whose keys have the null mask as an additional word. The index of the
// other rows is direct (id by key) for a single string, whose words are codes, and for a single
// integer-like key as long as it is in the hinted range. Otherwise it is a hash index.
type groups struct {
	dev   *Device
	lease *gpu.Lease
	codec *codec

	n     int                     // groups
	words [][]uint64              // key words by group
	store []memory.Vector[uint64] // vectors that words are views of
	nulls memory.Vector[uint64]   // null mask by group, once there is a masked index

	direct memory.Vector[int32] // id + 1 by key - lo, or by the code of a string; empty if the index is a hash index
	text   bool                 // the key is a single string
	lo     uint64
	index  *index // keys without nulls
	masked *index // keys with nulls; nil until the first

	nullKey [][]uint64 // scratch of insert: the words of a key with nulls
	columns [][]uint64 // scratch of masks
}

const (
	// maxDirect bounds the slots of a direct index.
	maxDirect = 1 << 28
	// maxHint bounds the groups for which a new hash index has room. Beyond that, growing costs
	// little compared with the time to collect so many groups.
	maxHint = 1 << 18
	// sparseSlots is the number of slots up to which an index is at most a third full: it still
	// fits a core's cache, and most keys are in their first slot.
	sparseSlots = 1 << 15
)

// NewGroups implements gpu.Queue.
func (q *queue) NewGroups(l *gpu.Lease, types []gpu.Type, hint gpu.GroupHint) (gpu.Groups, error) {
	if q.err != nil {
		return nil, q.err
	}
	if len(types) > 60 {
		return nil, fmt.Errorf("%d group keys are more than 60", len(types))
	}
	g := &groups{dev: q.dev.device(), lease: l, codec: newCodec(l, types)}
	if wide := g.codec.words; wide > 1 {
		if g.codec.layOut(true); g.codec.words == wide {
			g.codec.layOut(false)
		}
	}
	g.words, g.store = make([][]uint64, g.codec.words), make([]memory.Vector[uint64], g.codec.words)
	g.index = newIndex(l, g.codec.words)
	if len(types) == 1 && g.codec.words == 1 && hint.Dense && !types[0].IsFloat() {
		if span := uint64(hint.Hi) - uint64(hint.Lo); span < maxDirect {
			g.lo = uint64(hint.Lo)
			if err := g.direct.Zeros(l, int(span+1)); err != nil {
				return nil, q.fail(err)
			}
		}
	}
	g.text = len(types) == 1 && types[0].IsVar()
	if g.direct.V == nil && len(types) > 0 && !g.text {
		if err := g.index.room(min(hint.Groups, maxHint)); err != nil {
			g.Release()
			return nil, q.fail(err)
		}
	}
	return g, nil
}

// Len implements gpu.Groups.
func (g *groups) Len() int { return g.n }

// Release implements gpu.Groups.
func (g *groups) Release() {
	g.codec.release()
	g.direct.Release()
	g.nulls.Release()
	for i := range g.store {
		g.store[i].Release()
	}
	g.index.release()
	g.masked.release()
	*g = groups{lease: g.lease, codec: &codec{}, index: &index{}}
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
	buf, err := l.Alloc(int64(n) * 4)
	if err != nil {
		return nil, q.fail(err)
	}
	a := assignment{gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: buf}}
	before, strings := g.n, g.codec.strings()
	if err := g.assign(q.dev.cores, l, keys, gpu.Values[int32](buf, n)); err != nil {
		g.truncate(before, strings)
		a.Release()
		return nil, q.fail(err)
	}
	return a, nil
}

// assign assigns groups to rows. After an error some of the new groups may exist. The lease pays
// for scratch.
func (g *groups) assign(cores parallel.Cores, l *gpu.Lease, keys []gpu.Column, ids []int32) error {
	n := len(ids)
	if len(keys) != len(g.codec.types) {
		return fmt.Errorf("%d key columns, planned for %d", len(keys), len(g.codec.types))
	}
	if len(keys) == 0 {
		clear(ids)
		if n > 0 {
			g.n = 1
		}
		return nil
	}
	k, err := g.codec.prepare(cores, l, keys, n, true)
	defer k.release()
	if err != nil {
		return err
	}
	if !g.codec.fits(keys) {
		if err := g.widen(); err != nil {
			return err
		}
	}
	if g.text {
		if err := g.direct.Grow(g.lease, g.codec.interner[0].Len(), 0); err != nil {
			return err
		}
	}
	nullBits, err := nullRows(l, keys, nil, n)
	if err != nil {
		return err
	}
	defer nullBits.Release()
	null := nullBits.V
	if err := g.room(n, null != nil); err != nil {
		return err
	}
	if cores.Threads == 1 && g.codec.words == 1 && null == nil {
		return g.assignWords(k, ids)
	}
	// Rows with known keys are looked up in parallel. The other rows follow one by one. Those of a
	// task are listed from the task's first row on.
	missing, err := memory.New[int32](l, n)
	if err != nil {
		return err
	}
	defer missing.Release()
	counts := make([]int, (n+parallel.Grain-1)/parallel.Grain)
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		words := blockWords(g.codec.words)
		miss := missing.V[lo:lo:hi]
		for at := lo; at < hi; at += word.Block {
			m := min(word.Block, hi-at)
			g.codec.pack(k, at, m, words)
			out := ids[at : at+m]
			if direct := g.direct.V; direct != nil {
				for i, key := range words[0][:m] {
					out[i] = -1
					if slot := key - g.lo; slot < uint64(len(direct)) {
						out[i] = direct[slot] - 1
					}
				}
			} else {
				g.index.find(words, out, g.words)
			}
			known := int32(0) // negative if an id is negative
			for _, id := range out {
				known |= id
			}
			if known >= 0 && null == nil {
				continue
			}
			for i, id := range out {
				if id < 0 || null != nil && null[(at+i)/64]>>((at+i)%64)&1 != 0 {
					miss = append(miss, int32(at+i))
				}
			}
		}
		counts[lo/parallel.Grain] = len(miss)
		return nil
	})
	if err != nil {
		return err
	}
	words := blockWords(g.codec.words)
	for task, count := range counts {
		miss := missing.V[task*parallel.Grain:][:count]
		for len(miss) > 0 {
			// The keys of nearby rows are packed together.
			from := int(miss[0])
			m := 1
			for m < len(miss) && m < word.Block && int(miss[m]) < from+word.Block {
				m++
			}
			span := int(miss[m-1]) - from + 1
			g.codec.pack(k, from, span, words)
			if g.direct.V != nil && null == nil {
				if m, err = g.insertDirect(words[0], miss[:m], from, ids); err != nil {
					return err
				}
			} else {
				if err := g.insertRows(words, miss[:m], from, keys, null, ids); err != nil {
					return err
				}
			}
			miss = miss[m:]
		}
	}
	if g.n > gpu.MaxRows {
		return errTooManyGroups()
	}
	return nil
}

// assignWords assigns groups to rows without nulls, for keys of one word, on one core. One pass
// handles known and new keys.
func (g *groups) assignWords(k coded, ids []int32) error {
	var plain []uint64
	if len(k.cols) == 1 {
		plain = plainWords(k.cols[0])
	}
	words := blockWords(1)
	for at := 0; at < len(ids); at += word.Block {
		out := ids[at:min(at+word.Block, len(ids))]
		keys := words[0][:len(out)]
		if plain != nil {
			keys = plain[at:][:len(out)]
		} else {
			g.codec.pack(k, at, len(out), words)
		}
		before, done := g.n, 0
		if g.direct.V != nil {
			if done = g.assignDirect(keys, out); done < len(out) { // the hint was wrong
				if err := g.hashDirect(); err != nil {
					return err
				}
			}
		}
		if done < len(out) {
			if err := g.index.room(len(out)); err != nil {
				return err
			}
			g.words[0] = g.index.assign(keys[done:], out[done:], g.words[0])
			g.n = len(g.words[0])
		}
		if g.masked != nil {
			g.nulls.V = g.nulls.V[:g.n]
			clear(g.nulls.V[before:])
		}
	}
	if g.n > gpu.MaxRows {
		return errTooManyGroups()
	}
	return nil
}

// assignDirect assigns groups to the keys of a block by the direct index. It returns the number of
// keys before the first one outside of the index.
func (g *groups) assignDirect(keys []uint64, out []int32) int {
	direct, lo := g.direct.V, g.lo
	out = out[:len(keys)]
	for i, key := range keys {
		slot := key - lo
		if slot >= uint64(len(direct)) {
			return i
		}
		id := direct[slot]
		if id == 0 {
			g.n++
			id = int32(g.n)
			direct[slot] = id
			g.words[0] = append(g.words[0], key)
		}
		out[i] = id - 1
	}
	return len(keys)
}

func errTooManyGroups() error {
	return gpu.Exceeded("more groups than the %d that ids can address", gpu.MaxRows)
}

// room makes room for the keys of n more groups, and for null masks once there are nulls.
// The indexes grow as they are filled, because they grow with new keys only.
func (g *groups) room(n int, nulls bool) error {
	for i := range g.store {
		g.store[i].V = g.words[i]
		if err := g.store[i].Reserve(g.lease, g.n+n); err != nil {
			return err
		}
		g.words[i] = g.store[i].V
	}
	if g.masked == nil && !nulls {
		return nil
	}
	if err := g.nulls.Reserve(g.lease, g.n+n); err != nil {
		return err
	}
	if g.masked == nil {
		g.masked = newIndex(g.lease, len(g.words)+1)
		for range len(g.words) + 1 {
			g.nullKey = append(g.nullKey, make([]uint64, 1))
		}
		g.nulls.V = g.nulls.V[:g.n]
		clear(g.nulls.V)
	}
	return nil
}

// widen makes integers of 8 bytes use all of their bits. It inserts all keys again. If memory is
// denied, the groups are unchanged.
func (g *groups) widen() (err error) {
	old, wide := *g.codec, *g.codec
	wide.layOut(false)
	w := groups{lease: g.lease, codec: &wide, n: g.n, nulls: g.nulls, words: make([][]uint64, wide.words),
		store: make([]memory.Vector[uint64], wide.words)}
	w.index = newIndex(g.lease, wide.words)
	if g.masked != nil {
		w.masked = newIndex(g.lease, wide.words+1)
	}
	defer func() {
		if err != nil {
			for i := range w.store {
				w.store[i].Release()
			}
			w.index.release()
			w.masked.release()
		}
	}()
	for i := range w.store {
		if err := w.store[i].Grow(g.lease, g.n, 0); err != nil {
			return err
		}
		w.words[i] = w.store[i].V
	}
	for i := range old.types {
		to, at := w.words[wide.word[i]], wide.shift[i]
		mask := ^uint64(0) >> (64 - min(wide.bits[i], 64))
		for id, v := range g.words[old.word[i]][:g.n] {
			if v >>= old.shift[i]; narrows(old.types[i]) {
				v = uint64(int64(int32(v)))
			}
			to[id] |= v & mask << at
		}
		if wide.bits[i] > 64 {
			copy(w.words[wide.word[i]+1], g.words[old.word[i]+1][:g.n])
		}
	}
	for id := range g.n {
		if w.mask(id) == 0 {
			if err := w.index.room(1); err != nil {
				return err
			}
			w.index.put(w.words, id, int32(id))
			continue
		}
		if err := w.masked.room(1); err != nil {
			return err
		}
		w.masked.put(w.masks(), id, int32(id))
	}
	for i := range g.store {
		g.store[i].Release()
	}
	g.index.release()
	g.masked.release()
	g.codec, g.words, g.store, g.index, g.masked = w.codec, w.words, w.store, w.index, w.masked
	if g.masked != nil {
		g.nullKey = append(g.nullKey, blockWords(wide.words-old.words)...)
	}
	return nil
}

// truncate resets the map to n groups, and the interners to their earlier numbers of strings. It
// inserts all remaining keys again, and runs only after an error. It does not release memory.
func (g *groups) truncate(n int, strings []int) {
	g.codec.truncate(strings)
	if n == g.n {
		return
	}
	for id := n; id < g.n && g.direct.V != nil; id++ {
		if g.mask(id) == 0 {
			g.direct.V[g.words[0][id]-g.lo] = 0
		}
	}
	g.n = n
	for i := range g.words {
		g.words[i] = g.words[i][:n]
	}
	g.index.clear()
	if g.masked != nil {
		g.nulls.V = g.nulls.V[:n]
		g.masked.clear()
	}
	for id := range n {
		switch {
		case g.mask(id) != 0:
			g.masked.put(g.masks(), id, int32(id))
		case g.direct.V == nil:
			g.index.put(g.words, id, int32(id))
		}
	}
}

// mask returns the null mask of a group.
func (g *groups) mask(id int) uint64 {
	if g.masked == nil {
		return 0
	}
	return g.nulls.V[id]
}

// masks returns the key words of the groups, followed by their null masks. The list lives
// until the next call.
func (g *groups) masks() [][]uint64 {
	g.columns = append(append(g.columns[:0], g.words...), g.nulls.V)
	return g.columns
}

// insertDirect assigns groups to rows of a block by the direct index. The block begins with row
// from. It returns the number of rows before the first key outside of the index.
func (g *groups) insertDirect(keys []uint64, rows []int32, from int, ids []int32) (int, error) {
	direct, n, stored := g.direct.V, int32(g.n), g.words[0]
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
	if g.masked != nil {
		g.nulls.V = g.nulls.V[:n]
		clear(g.nulls.V[g.n:])
	}
	g.n, g.words[0] = int(n), stored
	if done == 0 { // the hint was wrong
		return 0, g.hashDirect()
	}
	return done, nil
}

// insertRows assigns groups to rows of a block that begins with row from. Consecutive rows with the
// same key, as in sorted input, are looked up once.
func (g *groups) insertRows(words [][]uint64, rows []int32, from int, keys []gpu.Column, null []uint64,
	ids []int32) (err error) {
	last := int32(-1) // the previous row, unless it has a null
	for _, r := range rows {
		i, mask := int(r)-from, nullMask(keys, null, int(r))
		if last >= 0 && mask == 0 {
			same := true
			for _, w := range words {
				same = same && w[i] == w[int(last)-from]
			}
			if same {
				ids[r] = ids[last]
				continue
			}
		}
		if ids[r], err = g.insert(words, i, mask); err != nil {
			return err
		}
		if last = r; mask != 0 {
			last = -1
		}
	}
	return nil
}

// hashDirect replaces the direct index by a hash index of the groups so far.
func (g *groups) hashDirect() error {
	if err := g.index.room(g.n); err != nil {
		return err
	}
	g.direct.Release()
	for id := range g.n {
		if g.mask(id) == 0 {
			g.index.put(g.words, id, int32(id))
		}
	}
	return nil
}

func blockWords(n int) [][]uint64 {
	all := make([]uint64, n*word.Block)
	words := make([][]uint64, n)
	for i := range words {
		words[i] = all[i*word.Block:][:word.Block]
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

// insert returns the group of the i-th key of a block, and makes a group if the key is new.
func (g *groups) insert(words [][]uint64, i int, mask uint64) (int32, error) {
	if mask != 0 {
		for c, w := range words {
			g.nullKey[c][0] = w[i]
		}
		g.nullKey[len(words)][0] = mask
		id, fresh, err := g.masked.insert(g.nullKey, 0, int32(g.n), g.masks())
		if fresh {
			g.add(words, i, mask)
		}
		return id, err
	}
	if direct := g.direct.V; direct != nil {
		key := words[0][i]
		slot := key - g.lo
		if slot < uint64(len(direct)) {
			id := direct[slot] - 1
			if id < 0 {
				id = int32(g.n)
				direct[slot] = id + 1
				g.add(words, i, 0)
			}
			return id, nil
		}
		if err := g.hashDirect(); err != nil {
			return 0, err
		}
	}
	id, fresh, err := g.index.insert(words, i, int32(g.n), g.words)
	if fresh {
		g.add(words, i, 0)
	}
	return id, err
}

// add appends the i-th key of a block. There must be room for it.
func (g *groups) add(words [][]uint64, i int, mask uint64) {
	for w := range g.words {
		g.words[w] = append(g.words[w], words[w][i])
	}
	if g.masked != nil {
		g.nulls.V = append(g.nulls.V, mask)
	}
	g.n++
}

// Keys implements gpu.Groups.
func (g *groups) Keys(gq gpu.Queue, l *gpu.Lease, from, to int) ([]gpu.Column, error) {
	q, err := g.dev.queue(gq)
	if err != nil {
		return nil, err
	}
	if err := gpu.CheckGroups("keys", from, to, g.n); err != nil {
		return nil, err
	}
	var cols []gpu.Column
	for i := range g.codec.types {
		c, err := g.key(q.dev.cores, l, i, from, to)
		if err != nil {
			gpu.ReleaseColumns(cols)
			return nil, q.fail(err)
		}
		cols = append(cols, c)
	}
	return cols, nil
}

// key unpacks key column i of groups [from, to).
func (g *groups) key(cores parallel.Cores, l *gpu.Lease, i, from, to int) (gpu.Column, error) {
	t, n := g.codec.types[i], to-from
	w, shift := g.words[g.codec.word[i]][from:to], g.codec.shift[i]
	out := gpu.Column{Type: t, Len: n}
	fail := func(err error) (gpu.Column, error) {
		out.Release()
		return gpu.Column{}, err
	}
	var err error
	if g.masked != nil {
		if out.Valid, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
			return fail(err)
		}
		valid := gpu.Words(out.Valid, n)
		clear(valid)
		nulls := false
		for r, mask := range g.nulls.V[from:to] {
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
		dst := gpu.Values[uint64](out.Data, n)
		if g.codec.bits[i] == 64 {
			copy(dst, w)
			break
		}
		for r, v := range w {
			dst[r] = uint64(int64(int32(v >> shift)))
		}
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
	// The codes of the interner: with a dictionary while groups share values.
	values, err := g.codec.interner[i].Values(l, t)
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
	plain, err := move.Expand(cores, l, out)
	out.Release()
	return plain, err
}

func unpack[T uint8 | uint16 | uint32](dst []T, words []uint64, shift uint) {
	for i, w := range words {
		dst[i] = T(w >> shift)
	}
}

// index is an open-addressing hash table from keys of a fixed number of words to ids. Keys of one
// word are in the slots. Wider keys are in the caller's columns, by id, and slots have their
// hashes. It is at most five eighths full.
type index struct {
	lease *gpu.Lease
	words int
	n     int
	slots memory.Array[slot] // their number is a power of two, or 0
}

type slot struct {
	key uint64
	id  int32 // id + 1; 0 is empty
	_   int32
}

// firstSlots is the number of slots of a new index.
const firstSlots = 1 << 10

func newIndex(l *gpu.Lease, words int) *index { return &index{lease: l, words: words} }

func (x *index) release() {
	if x != nil {
		x.slots.Release()
	}
}

// clear removes all keys.
func (x *index) clear() {
	clear(x.slots.V)
	x.n = 0
}

// find looks up the keys of a block: out[i] is the id of key i, or -1. It only reads, so
// several blocks may be looked up in parallel.
func (x *index) find(words [][]uint64, out []int32, stored [][]uint64) {
	if x.n == 0 {
		for i := range out {
			out[i] = -1
		}
		return
	}
	slots := x.slots.V
	mask := uint64(len(slots) - 1)
	if x.words == 1 {
		var at [word.Block]uint64
		keys := words[0][:len(out)]
		for i, k := range keys {
			at[i] = word.TableMix(k) >> 32 & mask
		}
		for i, k := range keys {
			s := at[i]
			for slots[s].id != 0 && slots[s].key != k {
				s = (s + 1) & mask
			}
			out[i] = slots[s].id - 1
		}
		return
	}
	for i := range out {
		out[i] = slots[x.slot(words, i, hashKey(words, i), stored)].id - 1
	}
}

// assign looks up the keys of a block of at most word.Block keys of one word, and assigns the next
// ids to new keys. stored has the keys by id; assign returns it with the new keys. There must be
// room for all keys in the index and in stored. Keys that are not in their first slot are handled
// in a second pass, so that no branch of the first pass depends on a key.
func (x *index) assign(keys []uint64, out []int32, stored []uint64) []uint64 {
	slots := x.slots.V
	mask := uint64(len(slots) - 1)
	var homes [word.Block]uint64
	var rest [word.Block]uint16
	out = out[:len(keys)]
	n := 0
	for i, k := range keys {
		home := word.TableMix(k) >> 32 & mask
		homes[i&(word.Block-1)] = home
		e := slots[home]
		out[i] = e.id - 1
		other := e.key ^ k | uint64(int64(e.id-1)>>63)
		rest[n&(word.Block-1)] = uint16(i)
		n += int((other | -other) >> 63)
	}
	for _, r := range rest[:n] {
		i := int(r)
		k, s := keys[i], homes[i]
		for slots[s].id != 0 && slots[s].key != k {
			s = (s + 1) & mask
		}
		if slots[s].id == 0 {
			stored = append(stored, k)
			slots[s] = slot{key: k, id: int32(len(stored))}
			x.n++
		}
		out[i] = slots[s].id - 1
	}
	return stored
}

// slot returns the slot of key i of several words: the slot that has it, or the empty slot where it
// belongs.
func (x *index) slot(words [][]uint64, i int, h uint64, stored [][]uint64) uint64 {
	slots := x.slots.V
	mask := uint64(len(slots) - 1)
	for s := h >> 32 & mask; ; s = (s + 1) & mask {
		id := slots[s].id - 1
		if id < 0 {
			return s
		}
		if slots[s].key != h {
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

// insert returns the id of key i, which is next if the key is new. If memory is denied, the index
// is unchanged.
func (x *index) insert(words [][]uint64, i int, next int32, stored [][]uint64) (id int32, fresh bool, err error) {
	if err := x.room(1); err != nil {
		return 0, false, err
	}
	slots := x.slots.V
	mask := uint64(len(slots) - 1)
	var s uint64
	key := words[0][i]
	if x.words == 1 {
		s = word.TableMix(key) >> 32 & mask
		for slots[s].id != 0 && slots[s].key != key {
			s = (s + 1) & mask
		}
	} else {
		key = hashKey(words, i)
		s = x.slot(words, i, key, stored)
	}
	if slots[s].id != 0 {
		return slots[s].id - 1, false, nil
	}
	slots[s] = slot{key: key, id: next + 1}
	x.n++
	return next, true, nil
}

// put inserts key i, which the index does not have. There must be room for it.
func (x *index) put(words [][]uint64, i int, id int32) {
	key := words[0][i]
	if x.words > 1 {
		key = hashKey(words, i)
	}
	seat(x.slots.V, x.words, slot{key: key, id: id + 1})
	x.n++
}

// seat writes an entry to its first empty slot.
func seat(slots []slot, words int, e slot) {
	h, mask := e.key, uint64(len(slots)-1)
	if words == 1 {
		h = word.TableMix(h)
	}
	s := h >> 32 & mask
	for slots[s].id != 0 {
		s = (s + 1) & mask
	}
	slots[s] = e
}

// room makes room for n more keys.
func (x *index) room(n int) error {
	size := max(len(x.slots.V), firstSlots)
	for x.n+n > size/8*5 || x.n+n > size/3 && size < sparseSlots {
		size *= 2
	}
	if size == len(x.slots.V) {
		return nil
	}
	larger, err := memory.Zeros[slot](x.lease, size)
	if err != nil {
		return err
	}
	for _, e := range x.slots.V {
		if e.id != 0 {
			seat(larger.V, x.words, e)
		}
	}
	x.slots.Release()
	x.slots = larger
	return nil
}
