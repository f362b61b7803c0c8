package join

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/codec"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// Table is the hash table of a join's build side. It has one of three forms. The last two number
// the distinct keys.
//
//   - array: the row of each key, for a single integer-like key without duplicates whose values
//     are dense.
//   - direct: for a single integer-like key whose values span a range not much wider than their
//     number. A bitmap of the range says which keys exist, and its running count numbers them in
//     order. The bitmap takes two bits for each key of the range, so it mostly stays in the cache,
//     and clustered probe keys read clustered memory.
//   - hashed: slots of 16 bytes with the key, or the hash of a key of several words, and its number.
//     A key is in the first free slot from its home on: first the slots of the home's cache line,
//     then those of the next lines. Slots are at most five eighths full, and each has a 32-bit
//     filter of the keys that have it as home, so most lookups read one line.
//
// If the keys of all rows are distinct, the number of a hashed key is its row, and entries has the
// row of each direct key. Otherwise start has the first entry of each key, and entries has the rows
// by key. Building is stable, so pairs come in build order.
type Table struct {
	codec    *codec.Codec
	nullSafe []bool
	anySafe  bool
	rows     int
	lease    *gpu.Lease

	lo    uint64               // array and direct: the smallest key
	byKey memory.Array[int32]  // array: row + 1 by key, 0 for none, and a 0 at its end for all keys above
	ranks memory.Array[ranked] // direct: the range of keys, 64 per word

	slots memory.Array[tableSlot] // hashed
	words []memory.Array[uint64]  // hashed, keys of several words: the words of each build row

	start   memory.Array[int32]
	entries memory.Array[int32]
}

// tableSlot is a slot of a hashed table.
type tableSlot struct {
	key uint64
	id  int32 // number of the key + 1; 0 is empty
	// seen is the filter: it has a bit for each key with this home, numbered by the lowest bits of
	// the key's hash.
	seen uint32
}

// BuildTable returns the hash table of the rows of a build side. The table is an array or direct only
// if the range of the keys has at most ranks values.
func BuildTable(cores parallel.Cores, l *gpu.Lease, keys []gpu.Column, nullSafe []bool, ranks uint64) (*Table, error) {
	if len(keys) == 0 || len(nullSafe) != len(keys) {
		return nil, fmt.Errorf("a join table wants at least one key and a null rule for each, has %d and %d", len(keys),
			len(nullSafe))
	}
	t := &Table{nullSafe: nullSafe, lease: l}
	types := make([]gpu.Type, len(keys))
	for i, k := range keys {
		types[i] = k.Type
		t.anySafe = t.anySafe || nullSafe[i]
	}
	t.codec = codec.New(l, types)
	if err := t.build(cores, keys, ranks); err != nil {
		t.Release()
		return nil, err
	}
	t.codec.Forget() // probes look up strings in the interner itself
	return t, nil
}

// Rows returns the number of rows that can match.
func (t *Table) Rows() int { return t.rows }

// Release releases the table.
func (t *Table) Release() {
	t.codec.Release()
	t.byKey.Release()
	t.ranks.Release()
	t.start.Release()
	t.slots.Release()
	memory.ReleaseAll(t.words)
	t.entries.Release()
	*t = Table{lease: t.lease, codec: &codec.Codec{}}
}

// batch has the keys of some rows with their codes, and a bitmap of the rows that can match
// nothing.
type batch struct {
	codec.Keys
	words int
	dead  memory.Array[uint64]
}

func (b *batch) release() {
	b.Keys.Release()
	b.dead.Release()
}

// keyWords prepares the keys of all rows, and finds the rows that can match nothing. A table with
// null-safe keys has an additional word, the null mask. The lease pays for scratch, which the
// caller releases, even after an error.
func (t *Table) keyWords(cores parallel.Cores, l *gpu.Lease, keys []gpu.Column, n int, insert bool) (b batch,
	err error) {
	b.words = t.codec.Words
	if t.anySafe {
		b.words++
	}
	if b.Keys, err = t.codec.Prepare(cores, l, keys, n, insert); err == nil {
		b.dead, err = codec.NullRows(l, keys, func(i int) bool { return t.nullSafe[i] }, n)
	}
	return b, err
}

func (t *Table) pack(k codec.Keys, lo, n int, out [][]uint64) {
	t.codec.Pack(k, lo, n, out[:t.codec.Words])
	if !t.anySafe {
		return
	}
	nulls := out[t.codec.Words][:n]
	clear(nulls)
	for i, c := range k.Cols {
		if t.nullSafe[i] && c.Valid != nil {
			for r := range nulls {
				if !c.IsValid(lo + r) {
					nulls[r] |= 1 << i
				}
			}
		}
	}
}

func (t *Table) build(cores parallel.Cores, keys []gpu.Column, ranks uint64) error {
	n := keys[0].Len
	if n > gpu.MaxRows {
		return gpu.TooManyRows(n)
	}
	if len(keys) > 60 {
		return fmt.Errorf("%d join keys are more than 60", len(keys))
	}
	k, err := t.keyWords(cores, t.lease, keys, n, true)
	defer k.release()
	if err != nil {
		return err
	}
	t.rows = n
	for _, x := range k.dead.V {
		t.rows -= bits.OnesCount64(x)
	}
	rows := &buildRows{n: n, dead: k.dead.V}
	if k.words == 1 {
		rows.keys = func(at int, out []uint64) { t.pack(k.Keys, at, len(out), [][]uint64{out}) }
		if !keys[0].Type.IsFloat() && len(keys) == 1 {
			if ok, err := t.buildDirect(cores, rows, ranks); ok || err != nil {
				return err
			}
		}
		return t.buildHashed(cores, rows)
	}
	t.words = make([]memory.Array[uint64], k.words)
	w := make([][]uint64, k.words)
	for i := range w {
		if t.words[i], err = memory.New[uint64](t.lease, n); err != nil {
			return err
		}
		w[i] = t.words[i].V
	}
	err = cores.For(n, parallel.Grain, func(lo, hi int) error {
		part := make([][]uint64, len(w))
		for i := range w {
			part[i] = w[i][lo:hi]
		}
		t.pack(k.Keys, lo, hi-lo, part)
		return nil
	})
	if err != nil {
		return err
	}
	rows.keys = func(at int, out []uint64) {
		for i := range out {
			out[i] = codec.HashKey(w, at+i)
		}
	}
	return t.buildHashed(cores, rows)
}

// buildRows are the rows of a build side while its table is built.
type buildRows struct {
	n    int
	dead []uint64 // bitmap of the rows that can match nothing; nil if there are none
	// keys writes the keys of the rows from at on, or the hashes of keys of several words.
	keys func(at int, out []uint64)
}

// eachBlock calls f for blocks of the rows [lo, hi), with their keys. f may change the keys.
func (b *buildRows) eachBlock(lo, hi int, f func(at int, keys []uint64)) {
	var block [word.Block]uint64
	for at := lo; at < hi; at += word.Block {
		keys := block[:min(word.Block, hi-at)]
		b.keys(at, keys)
		f(at, keys)
	}
}

// isDead reports whether a row can match nothing.
func (b *buildRows) isDead(row int) bool { return b.dead != nil && b.dead[row/64]>>(row%64)&1 != 0 }

// keyed is a build row with its key, or the hash of its key of several words.
type keyed struct {
	key         uint64
	row, number int32
}

// arrange returns the rows that are not dead, ordered by a digit of their keys, and the
// first position of each digit. The order is stable. digit returns a digit of at most bits
// bits. The caller releases the rows.
func (t *Table) arrange(cores parallel.Cores, in *buildRows, bits uint,
	digit func(key uint64) uint64) (rows memory.Array[keyed], offsets []int, err error) {
	fanout := 1 << bits
	size := max(parallel.Grain, (in.n/(4*cores.Threads)+63)/64*64)
	tasks := (in.n + size - 1) / size
	nexts, err := memory.Zeros[int32](t.lease, tasks*fanout)
	if err != nil {
		return rows, nil, err
	}
	defer nexts.Release()
	err = cores.For(in.n, size, func(lo, hi int) error {
		count := nexts.V[lo/size*fanout:][:fanout]
		in.eachBlock(lo, hi, func(at int, keys []uint64) {
			for i, k := range keys {
				if !in.isDead(at + i) {
					count[digit(k)]++
				}
			}
		})
		return nil
	})
	if err == nil {
		rows, err = memory.New[keyed](t.lease, t.rows)
	}
	if err != nil {
		return rows, nil, err
	}
	offsets = make([]int, fanout+1)
	at := int32(0)
	for p := range fanout {
		offsets[p] = int(at)
		for k := range tasks {
			next := &nexts.V[k*fanout+p]
			at, *next = at+*next, at
		}
	}
	offsets[fanout] = t.rows
	err = cores.For(in.n, size, func(lo, hi int) error {
		next := nexts.V[lo/size*fanout:][:fanout]
		in.eachBlock(lo, hi, func(at int, keys []uint64) {
			for i, k := range keys {
				if !in.isDead(at + i) {
					to := &next[digit(k)]
					rows.V[*to] = keyed{key: k, row: int32(at + i)}
					*to++
				}
			}
		})
		return nil
	})
	if err != nil {
		rows.Release()
	}
	return rows, offsets, err
}

// ranked has 64 keys of a range: bits says which of them exist, and before is the number of
// existing keys before them.
type ranked struct{ bits, before uint64 }

// rank returns the number of the key at a slot. ok is false if there is no such key.
func rank(ranks []ranked, slot uint64) (n int, ok bool) {
	if slot >= uint64(len(ranks))*64 {
		return 0, false
	}
	number, there := ranks[slot/64].number(slot)
	return int(number), there == 1
}

// number returns the number of the key at a slot of the word, and 1 if there is such a key or 0 if there is none. It
// has no branch.
func (w *ranked) number(slot uint64) (n, there uint64) {
	return w.before + uint64(bits.OnesCount64(w.bits&(1<<(slot%64)-1))), w.bits >> (slot % 64) & 1
}

// maxArray bounds the bytes of an array, as a multiple of the ranks and entries that it replaces.
const maxArray = 4

// buildDirect makes an array or the direct form if the range of keys has at most most values. The
// range is split into enough parts to keep all cores busy, and the rows are ordered by part, so
// that no two cores write to the same part.
func (t *Table) buildDirect(cores parallel.Cores, in *buildRows, most uint64) (_ bool, err error) {
	lo, hi, err := in.extent(cores)
	if err != nil {
		return false, err
	}
	span := uint64(hi) - uint64(lo)
	if span >= most {
		return false, nil
	}
	t.lo = uint64(lo)
	size := int(span/64) + 1
	digits := uint(0)
	if cores.Threads > 1 && t.rows > parallel.Grain {
		digits = word.Log2Ceil(4 * cores.Threads)
	}
	shift := max(word.Log2Ceil(64*size), 6+digits) - digits
	rows, offsets, err := t.arrange(cores, in, digits, func(key uint64) uint64 { return (key - t.lo) >> shift })
	if err != nil {
		return false, err
	}
	defer rows.Release()
	parts := len(offsets) - 1
	if 4*(span+2) <= maxArray*(16*uint64(size)+4*uint64(t.rows)) {
		if ok, err := t.buildArray(cores, span, rows.V, offsets); ok || err != nil {
			return ok, err
		}
	}
	if t.ranks, err = memory.Zeros[ranked](t.lease, size); err != nil {
		return false, err
	}
	if t.entries, err = memory.New[int32](t.lease, t.rows); err != nil {
		return false, err
	}
	ranks, entries := t.ranks.V, t.entries.V
	var twice atomic.Bool
	err = cores.For(parts, 1, func(part, _ int) error {
		again := false
		for _, r := range rows.V[offsets[part]:offsets[part+1]] {
			slot := r.key - t.lo
			w := &ranks[slot/64]
			again = again || w.bits>>(slot%64)&1 != 0
			w.bits |= 1 << (slot % 64)
		}
		if again {
			twice.Store(true)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	distinct := uint64(0)
	for i := range ranks {
		ranks[i].before = distinct
		distinct += uint64(bits.OnesCount64(ranks[i].bits))
	}
	if !twice.Load() {
		return true, cores.For(parts, 1, func(part, _ int) error {
			for _, r := range rows.V[offsets[part]:offsets[part+1]] {
				n, _ := rank(ranks, r.key-t.lo)
				entries[n] = r.row
			}
			return nil
		})
	}
	if t.start, err = memory.Zeros[int32](t.lease, int(distinct)+1); err != nil {
		return false, err
	}
	start := t.start.V
	start[distinct] = int32(t.rows)
	return true, cores.For(parts, 1, func(part, _ int) error {
		first := distinct // number of the first key of the part
		if slot := uint64(part) << shift; slot < uint64(64*size) {
			first = ranks[slot/64].before
		}
		last := distinct
		if slot := uint64(part+1) << shift; part+1 < parts && slot < uint64(64*size) {
			last = ranks[slot/64].before
		}
		own := rows.V[offsets[part]:offsets[part+1]]
		for i := range own {
			n, _ := rank(ranks, own[i].key-t.lo)
			own[i].number = int32(n)
		}
		t.group(own, start[first:last], int32(first), int32(offsets[part]))
		return nil
	})
}

// buildArray makes an array of rows that are ordered by parts of the range of keys. It returns
// false if two rows have the same key.
func (t *Table) buildArray(cores parallel.Cores, span uint64, rows []keyed, offsets []int) (bool, error) {
	var err error
	if t.byKey, err = memory.Zeros[int32](t.lease, int(span)+2); err != nil {
		return false, err
	}
	byKey := t.byKey.V
	var twice atomic.Bool
	err = cores.For(len(offsets)-1, 1, func(part, _ int) error {
		for _, r := range rows[offsets[part]:offsets[part+1]] {
			to := &byKey[r.key-t.lo]
			if *to != 0 {
				twice.Store(true)
				return nil
			}
			*to = r.row + 1
		}
		return nil
	})
	if err != nil || twice.Load() {
		t.byKey.Release()
		return false, err
	}
	return true, nil
}

// group orders the rows of a part by the number of their key. start receives the starts of the
// part's keys, whose numbers begin at first, and must be zero. at is the part's first entry.
func (t *Table) group(rows []keyed, start []int32, first, at int32) {
	for _, r := range rows {
		start[r.number-first]++
	}
	begin := at
	for n, count := range start {
		start[n] = at
		at += count
	}
	for _, r := range rows {
		to := &start[r.number-first]
		t.entries.V[*to] = r.row
		*to++
	}
	// Every start is now the end of its key: shift them back.
	for n, end := range start {
		start[n], begin = begin, end
	}
}

// extent returns the smallest and the largest key that is not dead, as signed integers, or zeros if
// there are no keys.
func (b *buildRows) extent(cores parallel.Cores) (lo, hi int64, err error) {
	var mu sync.Mutex
	lo, hi = math.MaxInt64, math.MinInt64
	err = cores.For(b.n, parallel.Grain, func(from, to int) error {
		least, most := int64(math.MaxInt64), int64(math.MinInt64)
		b.eachBlock(from, to, func(at int, keys []uint64) {
			for i, k := range keys {
				if !b.isDead(at + i) {
					least, most = min(least, int64(k)), max(most, int64(k))
				}
			}
		})
		mu.Lock()
		defer mu.Unlock()
		lo, hi = min(lo, least), max(hi, most)
		return nil
	})
	if lo > hi {
		return 0, 0, err
	}
	return lo, hi, err
}

// maxPartBits bounds the number of parts in which slots are filled, and partSlots is the number of
// slots of a part that fit the L2 cache.
const (
	maxPartBits = 12
	partSlots   = 1 << 16
)

// buildHashed makes the hashed form. Rows are ordered by the upper bits of their hash, so that the
// homes of each part of the rows are in one part of the slots. Cores fill different parts. Keys
// that find no free slot before the end of their part are inserted last.
func (t *Table) buildHashed(cores parallel.Cores, in *buildRows) error {
	size := max(t.rows/5*8, 64)
	partBits := min(word.Log2Ceil((size+partSlots-1)/partSlots), maxPartBits)
	rows, offsets, err := t.arrange(cores, in, partBits,
		func(key uint64) uint64 { return t.hash(key) >> (63 - partBits) >> 1 })
	if err != nil {
		return err
	}
	defer rows.Release()
	per := (size>>partBits + lineSlots) / lineSlots * lineSlots
	if t.slots, err = memory.New[tableSlot](t.lease, per<<partBits); err != nil {
		return err
	}
	unique, err := t.fill(cores, rows.V, offsets, per)
	if unique || err != nil {
		return err
	}
	// Number the keys of each part from its first row on.
	if t.entries, err = memory.New[int32](t.lease, t.rows); err != nil {
		return err
	}
	if t.start, err = memory.Zeros[int32](t.lease, t.rows+1); err != nil {
		return err
	}
	if _, err = t.fill(cores, rows.V, offsets, per); err != nil {
		return err
	}
	t.start.V[t.rows] = int32(t.rows)
	return cores.For(len(offsets)-1, 1, func(p, _ int) error {
		from, to := int32(offsets[p]), int32(offsets[p+1])
		own, end := rows.V[from:to], from
		for _, r := range own {
			end = max(end, r.number+1)
		}
		t.group(own, t.start.V[from:end], from, from)
		if end < to {
			t.start.V[end] = to
		}
		return nil
	})
}

// fill inserts the keys of arranged rows into the slots, with per slots for each part. Without
// starts the number of a key is its row, and fill stops at the second row of a key. With starts the
// keys of each part are numbered from its first row on, and the rows receive these numbers; until
// then entries has the first row of each key.
func (t *Table) fill(cores parallel.Cores, rows []keyed, offsets []int, per int) (unique bool, err error) {
	parts := len(offsets) - 1
	numbers := make([]int32, parts)    // of the next key of each part
	overflow := make([][]int32, parts) // rows whose keys have no slot in their part
	var twice atomic.Bool
	// put inserts a row into the first free slot in [s, end), and reports whether there was one.
	put := func(r *keyed, s, end uint64, number *int32) bool {
		for step := uint64(1); s < end; s, step = nextSlot(s, step), step+1 {
			e := &t.slots.V[s]
			if e.id == 0 {
				r.number = r.row
				if t.start.V != nil {
					r.number = *number
					t.entries.V[*number] = r.row
					*number++
				}
				e.key, e.id = r.key, r.number+1
				t.slots.V[t.home(r.key)].seen |= 1 << (t.hash(r.key) % 32)
				return true
			}
			if e.key == r.key && t.sameRow(e.id-1, r.row) {
				r.number = e.id - 1
				if t.start.V == nil {
					twice.Store(true)
				}
				return true
			}
		}
		return false
	}
	err = cores.For(parts, 1, func(p, _ int) error {
		end := uint64(p+1) * uint64(per)
		clear(t.slots.V[p*per : end])
		numbers[p] = int32(offsets[p])
		own := rows[offsets[p]:offsets[p+1]]
		for i := range own {
			if !put(&own[i], t.home(own[i].key), end, &numbers[p]) {
				overflow[p] = append(overflow[p], int32(i))
			}
			if i%parallel.Grain == 0 && twice.Load() {
				return nil
			}
		}
		return nil
	})
	if err != nil || twice.Load() {
		return false, err
	}
	for p, list := range overflow {
		for _, i := range list {
			r := &rows[offsets[p]+int(i)]
			low, size := t.home(r.key)%lineSlots, uint64(len(t.slots.V))
			if !put(r, uint64(p+1)*uint64(per)+low, size, &numbers[p]) {
				put(r, low, size, &numbers[p])
			}
		}
	}
	return !twice.Load() && t.start.V == nil, nil
}

// lineSlots is the number of slots of a cache line.
const lineSlots = 4

// nextSlot returns the slot after slot s, which is the step-th from a home. It may be beyond the
// last slot; the caller then wraps it around.
func nextSlot(s, step uint64) uint64 {
	next := s&^(lineSlots-1) | (s+1)&(lineSlots-1)
	if step%lineSlots == 0 {
		next += lineSlots
	}
	return next
}

// hash returns the hash of a key. For a key of several words, key is the hash already.
func (t *Table) hash(key uint64) uint64 {
	if len(t.words) == 0 {
		return word.TableMix(key)
	}
	return key
}

// home returns the first slot for a key, or for the hash of a key of several words.
func (t *Table) home(key uint64) uint64 {
	s, _ := bits.Mul64(t.hash(key), uint64(len(t.slots.V)))
	return s
}

// sameRow reports whether a row has the key with a number, given that their slots' keys are equal.
// It works only during the build.
func (t *Table) sameRow(number, row int32) bool {
	if len(t.words) == 0 {
		return true
	}
	if t.start.V != nil {
		number = t.entries.V[number]
	}
	for _, w := range t.words {
		if w.V[number] != w.V[row] {
			return false
		}
	}
	return true
}

// find looks up the keys of a block: out[i] is the number of key i, or -1. There are at most
// word.Block keys.
func (t *Table) find(words [][]uint64, out []int32) {
	switch {
	case t.ranks.V != nil:
		ranks := t.ranks.V
		for i, key := range words[0][:len(out)] {
			slot := key - t.lo
			if slot >= uint64(len(ranks))*64 {
				out[i] = -1
				continue
			}
			// No branch depends on whether the key exists.
			n, there := ranks[slot/64].number(slot)
			out[i] = int32(n) | (int32(there) - 1)
		}
	case len(words) == 1:
		t.findSlots(words[0][:len(out)], out)
	default:
		var hashes [word.Block]uint64
		for i := range out {
			hashes[i] = codec.HashKey(words, i)
		}
		t.findSlots(hashes[:len(out)], out)
		for i, n := range out {
			if n >= 0 && !t.same(n, words, i) {
				out[i] = t.findNext(hashes[i], words, i)
			}
		}
	}
}

// findSlots looks up keys of one word, or hashes of keys of several words. It works in rounds. The
// first round reads the home of every key, and each further round reads the next slot of those keys
// that are not yet found and may be elsewhere. So no branches depend on the keys, and many loads
// are in flight.
func (t *Table) findSlots(keys []uint64, out []int32) {
	slots := t.slots.V
	var at [word.Block]uint64
	var bit [word.Block]uint8
	var open [word.Block]int32
	n := 0
	for i, k := range keys {
		h := t.hash(k)
		at[i], _ = bits.Mul64(h, uint64(len(slots)))
		bit[i] = uint8(h % 32)
	}
	touch(slots, at[:len(keys)])
	for i, k := range keys {
		e := &slots[at[i]]
		other := differ(e.key, k)
		out[i] = (e.id - 1) | -int32(other) // -1 for another key, and for an empty slot
		open[n] = int32(i)
		n += int(other & uint64(e.seen>>(bit[i]%32)))
	}
	for step := uint64(1); n > 0; step++ {
		still := 0
		for _, i := range open[:n] {
			s := nextSlot(at[i], step)
			if s >= uint64(len(slots)) {
				s -= uint64(len(slots))
			}
			at[i] = s
			e := &slots[s]
			out[i] = e.id - 1
			open[still] = i
			still += int(differ(e.key, keys[i]) & differ(uint64(e.id), 0))
		}
		n = still
	}
}

// touch loads slots into the cache. It does nothing else, so that more loads are in flight than in
// a loop that uses the slots.
//
//go:noinline
func touch(slots []tableSlot, at []uint64) (sum uint64) {
	for _, s := range at {
		sum += slots[s].key
	}
	return sum
}

// differ returns 1 if two numbers differ, otherwise 0.
func differ(a, b uint64) uint64 {
	x := a ^ b
	return (x | -x) >> 63
}

// same reports whether row i of a block has the key with a number.
func (t *Table) same(number int32, words [][]uint64, i int) bool {
	if t.start.V != nil {
		number = t.entries.V[t.start.V[number]]
	}
	for w, col := range t.words {
		if col.V[number] != words[w][i] {
			return false
		}
	}
	return true
}

// findNext is find for a key of several words whose hash several keys share.
func (t *Table) findNext(hash uint64, words [][]uint64, i int) int32 {
	for s, step := t.home(hash), uint64(1); ; s, step = nextSlot(s, step)%uint64(len(t.slots.V)), step+1 {
		e := t.slots.V[s]
		if e.id == 0 || e.key == hash && t.same(e.id-1, words, i) {
			return e.id - 1
		}
	}
}
