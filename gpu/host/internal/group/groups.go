// Package group numbers the distinct keys of group-bys on CPU cores.
package group

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/codec"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/move"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// Groups assigns dense ids to keys. Keys are words of a codec. Rows with a null in a key column
// have a separate index, whose keys have the null mask as an additional word. The index of the
// other rows is direct (id by key) for a single string, whose words are codes, and for a single
// integer-like key as long as it is in the hinted range. Otherwise it is a hash index.
type Groups struct {
	lease *gpu.Lease
	types []gpu.Type
	codec *codec.Codec

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
	// followed bounds the values of a dictionary that keys follow and that groups keep, as a multiple of
	// the groups.
	followed = 64
	// slotsPerRow bounds the direct index of a dictionary that a string follows, in slots per row of the first
	// rows.
	slotsPerRow = 4
	// maxHint bounds the groups for which a new hash index has room. Beyond that, growing costs
	// little compared with the time to collect so many groups.
	maxHint = 1 << 18
)

// New returns groups without keys. The lease pays for their state.
func New(l *gpu.Lease, types []gpu.Type, hint gpu.GroupHint) (*Groups, error) {
	if len(types) > 60 {
		return nil, fmt.Errorf("%d group keys are more than 60", len(types))
	}
	g := &Groups{lease: l, types: types, codec: codec.NewNarrow(l, types)}
	g.words, g.store = make([][]uint64, g.codec.Words), make([]memory.Vector[uint64], g.codec.Words)
	g.index = newIndex(l, g.codec.Words)
	if len(types) == 1 && g.codec.Words == 1 && hint.Dense && !types[0].IsFloat() {
		if span := uint64(hint.Hi) - uint64(hint.Lo); span < maxDirect {
			g.lo = uint64(hint.Lo)
			if err := g.direct.Zeros(l, int(span+1)); err != nil {
				return nil, err
			}
		}
	}
	g.text = len(types) == 1 && types[0].IsVar()
	if g.direct.V == nil && len(types) > 0 && !g.text {
		if err := g.index.room(min(hint.Groups, maxHint)); err != nil {
			g.Release()
			return nil, err
		}
	}
	return g, nil
}

// Len returns the number of groups.
func (g *Groups) Len() int { return g.n }

// Release releases the state.
func (g *Groups) Release() {
	g.codec.Release()
	g.direct.Release()
	g.nulls.Release()
	for i := range g.store {
		g.store[i].Release()
	}
	g.index.release()
	g.masked.release()
	*g = Groups{lease: g.lease, codec: &codec.Codec{}, index: &index{}}
}

// Assign returns the group of each of n rows, and makes groups for new keys. After an error the
// groups are as before. The lease pays for the result and for scratch.
func (g *Groups) Assign(cores parallel.Cores, l *gpu.Lease, keys []gpu.Column, n int) (gpu.Column, error) {
	if len(keys) == len(g.types) { // otherwise assign returns an error
		if err := g.follow(l, keys); err != nil {
			return gpu.Column{}, err
		}
	}
	buf, err := l.Alloc(int64(n) * 4)
	if err != nil {
		return gpu.Column{}, err
	}
	before, strings := g.n, g.codec.Strings()
	if err := g.assign(cores, l, keys, gpu.Values[int32](buf, n)); err != nil {
		g.truncate(before, strings)
		buf.Release()
		return gpu.Column{}, err
	}
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: buf}, nil
}

// follow makes the codes of dictionaries of distinct values the words of strings, before there are groups,
// and interns the strings of all groups once a key has another dictionary or none. After an error the
// groups are as before.
func (g *Groups) follow(l *gpu.Lease, keys []gpu.Column) error {
	for i, k := range keys {
		if !g.types[i].IsVar() {
			continue
		}
		d := g.codec.Followed(i)
		switch {
		case d == nil && g.n == 0 && g.codec.Len(i) == 0 && k.Type == g.types[i] && k.Dict != nil && k.Dict.Distinct &&
			(!g.text || k.Dict.Values.Len <= max(1024, slotsPerRow*k.Len)):
			g.codec.Follow(i, k.Dict)
		case d != nil && k.Dict != d && !k.AllNull():
			null := func(id int) bool { return g.mask(id)>>i&1 != 0 }
			if err := g.codec.Renumber(l, i, g.keyWords(), null); err != nil {
				return err
			}
			g.codec.Follow(i, nil)
			g.reindex()
		}
	}
	return nil
}

// keyWords returns the key words of all groups.
func (g *Groups) keyWords() [][]uint64 {
	for i := range g.words {
		g.words[i] = g.words[i][:g.n]
	}
	return g.words
}

// assign assigns groups to rows. After an error some of the new groups may exist. The lease pays
// for scratch.
func (g *Groups) assign(cores parallel.Cores, l *gpu.Lease, keys []gpu.Column, ids []int32) error {
	n := len(ids)
	if len(keys) != len(g.types) {
		return fmt.Errorf("%d key columns, planned for %d", len(keys), len(g.types))
	}
	if len(keys) == 0 {
		clear(ids)
		if n > 0 {
			g.n = 1
		}
		return nil
	}
	k, err := g.codec.Prepare(cores, l, keys, n, true)
	defer k.Release()
	if err != nil {
		return err
	}
	if !g.codec.Fits(keys) {
		if err := g.widen(); err != nil {
			return err
		}
	}
	if g.text {
		if err := g.direct.Grow(g.lease, g.codec.Len(0), 0); err != nil {
			return err
		}
	}
	nullBits, err := codec.NullRows(l, keys, nil, n)
	if err != nil {
		return err
	}
	defer nullBits.Release()
	null := nullBits.V
	if err := g.room(n, null != nil); err != nil {
		return err
	}
	if cores.Threads == 1 && g.codec.Words == 1 && null == nil {
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
		words := codec.Block(g.codec.Words)
		miss := missing.V[lo:lo:hi]
		for at := lo; at < hi; at += word.Block {
			m := min(word.Block, hi-at)
			g.codec.Pack(k, at, m, words)
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
	words := codec.Block(g.codec.Words)
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
			g.codec.Pack(k, from, span, words)
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
func (g *Groups) assignWords(k codec.Keys, ids []int32) error {
	plain := k.PlainWords()
	words := codec.Block(1)
	for at := 0; at < len(ids); at += word.Block {
		out := ids[at:min(at+word.Block, len(ids))]
		keys := words[0][:len(out)]
		if plain != nil {
			keys = plain[at:][:len(out)]
		} else {
			g.codec.Pack(k, at, len(out), words)
		}
		before, done := g.n, 0
		if g.direct.V != nil {
			if done = g.assignDirect(keys, out); done < len(out) { // the hint was wrong
				g.unmasked(before)
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
		g.unmasked(before)
	}
	if g.n > gpu.MaxRows {
		return errTooManyGroups()
	}
	return nil
}

// assignDirect assigns groups to the keys of a block by the direct index. It returns the number of
// keys before the first one outside of the index.
func (g *Groups) assignDirect(keys []uint64, out []int32) int {
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
func (g *Groups) room(n int, nulls bool) error {
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
func (g *Groups) widen() (err error) {
	narrow, wide := g.codec.Words, g.codec.Wide()
	w := Groups{lease: g.lease, codec: wide, n: g.n, nulls: g.nulls, words: make([][]uint64, wide.Words),
		store: make([]memory.Vector[uint64], wide.Words)}
	w.index = newIndex(g.lease, wide.Words)
	if g.masked != nil {
		w.masked = newIndex(g.lease, wide.Words+1)
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
	g.codec.Repack(wide, w.words, g.words, g.n)
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
		g.nullKey = append(g.nullKey, codec.Block(wide.Words-narrow)...)
	}
	return nil
}

// truncate resets the map to n groups, and the interners to their earlier numbers of strings. It
// inserts all remaining keys again, and runs only after an error. It does not release memory.
func (g *Groups) truncate(n int, strings []int) {
	g.codec.Truncate(strings)
	if n == g.n {
		return
	}
	g.n = n
	for i := range g.words {
		g.words[i] = g.words[i][:n]
	}
	if g.masked != nil {
		g.nulls.V = g.nulls.V[:n]
	}
	g.reindex()
}

// reindex inserts the keys of all groups again. The indexes have room for them.
func (g *Groups) reindex() {
	g.index.clear()
	if g.masked != nil {
		g.masked.clear()
	}
	clear(g.direct.V)
	for id := range g.n {
		switch {
		case g.mask(id) != 0:
			g.masked.put(g.masks(), id, int32(id))
		case g.direct.V == nil:
			g.index.put(g.words, id, int32(id))
		default:
			g.direct.V[g.words[0][id]-g.lo] = int32(id) + 1
		}
	}
}

// mask returns the null mask of a group.
func (g *Groups) mask(id int) uint64 {
	if g.masked == nil {
		return 0
	}
	return g.nulls.V[id]
}

// unmasked gives the groups from a number on, which have no null, their masks.
func (g *Groups) unmasked(from int) {
	if g.masked != nil {
		g.nulls.V = g.nulls.V[:g.n]
		clear(g.nulls.V[from:])
	}
}

// masks returns the key words of the groups, followed by their null masks. The list lives
// until the next call.
func (g *Groups) masks() [][]uint64 {
	g.columns = append(append(g.columns[:0], g.words...), g.nulls.V)
	return g.columns
}

// insertDirect assigns groups to rows of a block by the direct index. The block begins with row
// from. It returns the number of rows before the first key outside of the index.
func (g *Groups) insertDirect(keys []uint64, rows []int32, from int, ids []int32) (int, error) {
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
	before := g.n
	g.n, g.words[0] = int(n), stored
	g.unmasked(before)
	if done == 0 { // the hint was wrong
		return 0, g.hashDirect()
	}
	return done, nil
}

// insertRows assigns groups to rows of a block that begins with row from. Consecutive rows with the
// same key, as in sorted input, are looked up once.
func (g *Groups) insertRows(words [][]uint64, rows []int32, from int, keys []gpu.Column, null []uint64,
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
func (g *Groups) hashDirect() error {
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
func (g *Groups) insert(words [][]uint64, i int, mask uint64) (int32, error) {
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
func (g *Groups) add(words [][]uint64, i int, mask uint64) {
	for w := range g.words {
		g.words[w] = append(g.words[w], words[w][i])
	}
	if g.masked != nil {
		g.nulls.V = append(g.nulls.V, mask)
	}
	g.n++
}

// Keys returns the keys of groups [from, to).
func (g *Groups) Keys(cores parallel.Cores, l *gpu.Lease, from, to int) ([]gpu.Column, error) {
	if err := gpu.CheckGroups("keys", from, to, g.n); err != nil {
		return nil, err
	}
	var cols []gpu.Column
	for i := range g.types {
		c, err := g.key(cores, l, i, from, to)
		if err != nil {
			gpu.ReleaseColumns(cols)
			return nil, err
		}
		cols = append(cols, c)
	}
	return cols, nil
}

// key unpacks key column i of groups [from, to).
func (g *Groups) key(cores parallel.Cores, l *gpu.Lease, i, from, to int) (gpu.Column, error) {
	t, n := g.types[i], to-from
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
	if err = g.codec.Unpack(l, &out, i, g.words, from); err != nil {
		return fail(err)
	}
	if !t.IsVar() {
		return out, nil
	}
	// Strings keep the dictionary while groups share values, and one that they follow unless nearly all of
	// it is unused.
	values := out.Dict.Values.Len
	if values <= g.n/2 || values <= 1024 || g.codec.Followed(i) != nil && values <= followed*g.n {
		return out, nil
	}
	plain, err := move.Expand(cores, l, out)
	out.Release()
	return plain, err
}
