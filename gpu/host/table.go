package host

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
)

// table is the hash table of a join's build side, in one of three forms:
//
//   - direct: for a single integer-like key whose values span a range not much wider than
//     their number. A bitmap of the range says which keys there are, its running count
//     numbers them, and the rows are in order of key. The bitmap takes two bits for each key
//     of the range, so it mostly stays in the cache, and clustered probe keys read clustered
//     memory.
//   - direct with duplicates: the same, with offsets into the rows by number.
//   - hashed: offsets of buckets, one a row, into entries sorted by bucket. Each bucket word
//     has a 16-bit Bloom filter, so most probes without a match end after their first access
//     to memory.
//
// All forms are made by stable partitioning, so pairs come in build order.
type table struct {
	dev      *Device
	codec    *codec
	nullSafe []bool
	anySafe  bool
	rows     int
	lease    *gpu.Lease

	lo    uint64        // direct: the smallest key
	ranks array[ranked] // direct: the range of keys, 64 a word
	start array[int32]  // direct with duplicates: the first entry of each key

	bits    uint
	buckets array[uint64]   // hashed: Bloom filter << 48 | first entry
	words   []array[uint64] // hashed: key words of the entries
	entries array[int32]    // row ids in order of key or bucket
}

const bucketMask = 1<<48 - 1

// BuildTable implements gpu.Queue.
func (q *queue) BuildTable(l *gpu.Lease, keys []gpu.Column, nullSafe []bool) (gpu.Table, error) {
	if err := q.check(keys); err != nil {
		return nil, err
	}
	if len(keys) == 0 || len(nullSafe) != len(keys) {
		return nil, fmt.Errorf("a join table wants at least one key and a null rule for each, has %d and %d", len(keys), len(nullSafe))
	}
	t := &table{dev: q.dev.device(), nullSafe: nullSafe, lease: l}
	types := make([]gpu.Type, len(keys))
	for i, k := range keys {
		types[i] = k.Type
		t.anySafe = t.anySafe || nullSafe[i]
	}
	t.codec = newCodec(l, types)
	if err := t.build(q.dev, keys); err != nil {
		t.Release()
		return nil, q.fail(err)
	}
	for _, in := range t.codec.interner {
		in.forget() // probes look strings up in the interner itself
	}
	return t, nil
}

// Rows implements gpu.Table.
func (t *table) Rows() int { return t.rows }

// Release implements gpu.Table.
func (t *table) Release() {
	t.codec.release()
	t.ranks.release()
	t.start.release()
	t.buckets.release()
	releaseArrays(t.words)
	t.entries.release()
	*t = table{lease: t.lease, codec: &codec{}}
}

func releaseArrays[T any](arrays []array[T]) {
	for i := range arrays {
		arrays[i].release()
	}
}

// batch is the keys of some rows with their codes, and a bitmap of the rows that can
// match nothing.
type batch struct {
	coded
	words int
	dead  array[uint64]
}

func (b *batch) release() {
	b.coded.release()
	b.dead.release()
}

// keyWords prepares the keys of all rows, and finds the rows that can match nothing. A
// table with null-safe keys has one word more, the null mask. The lease pays for scratch,
// which the caller releases, also after an error.
func (t *table) keyWords(d *Device, l *gpu.Lease, keys []gpu.Column, n int, insert bool) (b batch, err error) {
	b.words = t.codec.words
	if t.anySafe {
		b.words++
	}
	if b.coded, err = t.codec.prepare(d, l, keys, n, insert); err == nil {
		b.dead, err = nullRows(l, keys, func(i int) bool { return t.nullSafe[i] }, n)
	}
	return b, err
}

func (t *table) pack(k coded, lo, n int, out [][]uint64) {
	t.codec.pack(k, lo, n, out[:t.codec.words])
	if !t.anySafe {
		return
	}
	nulls := out[t.codec.words][:n]
	clear(nulls)
	for i, c := range k.cols {
		if t.nullSafe[i] && c.Valid != nil {
			for r := range nulls {
				if !c.IsValid(lo + r) {
					nulls[r] |= 1 << i
				}
			}
		}
	}
}

func (t *table) build(d *Device, keys []gpu.Column) error {
	n := keys[0].Len
	if n > gpu.MaxRows {
		return fmt.Errorf("%d build rows are more than the %d that row ids can address", n, gpu.MaxRows)
	}
	if len(keys) > 60 {
		return fmt.Errorf("%d join keys are more than 60", len(keys))
	}
	k, err := t.keyWords(d, t.lease, keys, n, true)
	defer k.release()
	if err != nil {
		return err
	}
	// Key words and row ids of the rows that can match.
	words := make([]array[uint64], k.words)
	defer releaseArrays(words)
	w := make([][]uint64, k.words)
	for i := range w {
		if words[i], err = newArray[uint64](t.lease, n); err != nil {
			return err
		}
		w[i] = words[i].v
	}
	err = d.parallel(n, grain, func(lo, hi int) error {
		part := make([][]uint64, len(w))
		for i := range w {
			part[i] = w[i][lo:hi]
		}
		t.pack(k.coded, lo, hi-lo, part)
		return nil
	})
	if err != nil {
		return err
	}
	var rows array[int32] // empty when every row can match
	defer func() { rows.release() }()
	if dead := k.dead.v; dead != nil {
		if rows, err = newArray[int32](t.lease, n); err != nil {
			return err
		}
		m := 0
		for i := range n {
			if dead[i/64]>>(i%64)&1 == 0 {
				for _, col := range w {
					col[m] = col[i]
				}
				rows.v[m] = int32(i)
				m++
			}
		}
		for i := range w {
			w[i] = w[i][:m]
		}
	}
	t.rows = len(w[0])
	if k.words == 1 && !keys[0].Type.IsFloat() && len(keys) == 1 {
		if ok, err := t.buildDirect(d, w[0], rows.v); ok || err != nil {
			return err
		}
	}
	return t.buildHashed(d, w, rows.v)
}

// ranked is 64 keys of a range: bits says which of them there are, before counts those
// before them.
type ranked struct{ bits, before uint64 }

// rank returns the number of the key at a slot. It is not ok when there is no such key.
func rank(ranks []ranked, slot uint64) (n int, ok bool) {
	if slot >= uint64(len(ranks))*64 {
		return 0, false
	}
	w := &ranks[slot/64]
	if w.bits>>(slot%64)&1 == 0 {
		return 0, false
	}
	return int(w.before) + bits.OnesCount64(w.bits&(1<<(slot%64)-1)), true
}

// maxSpread is the greatest width of the range of a direct table as a multiple of the
// number of keys. It amounts to 16 bytes a key, less than an entry of a hashed table.
const maxSpread = 64

// buildDirect makes the direct forms if the range of keys allows it. rows has the rows of
// the keys; nil means that key i is of row i. The range is split into enough parts to
// keep all cores busy, and the keys are ordered by part, so that no two cores write to
// one part.
func (t *table) buildDirect(d *Device, keys []uint64, rows []int32) (_ bool, err error) {
	n := len(keys)
	lo, hi, err := extent(d, keys)
	if err != nil {
		return false, err
	}
	span := uint64(hi) - uint64(lo)
	if span > uint64(maxSpread*n+1<<16) {
		return false, nil
	}
	t.lo = uint64(lo)
	size := int(span/64) + 1
	if t.ranks, err = newZeros[ranked](t.lease, size); err != nil {
		return false, err
	}
	if t.entries, err = newArray[int32](t.lease, n); err != nil {
		return false, err
	}
	ranks, entries := t.ranks.v, t.entries.v
	var order array[int32] // of the keys by part; empty for one part
	defer func() { order.release() }()
	offsets, shift := []int{0, n}, uint(63)
	if d.threads > 1 && n > grain {
		err := d.parallel(n, grain, func(from, to int) error {
			for i := range keys[from:to] {
				keys[from+i] -= t.lo
			}
			return nil
		})
		if err != nil {
			return false, err
		}
		digits := log2ceil(4 * d.threads)
		shift = max(log2ceil(64*size), 6+digits) - digits
		if order, offsets, err = partition(d, t.lease, keys, gpu.Digit{Shift: shift, Bits: digits}); err != nil {
			return false, err
		}
	} else {
		for i := range keys {
			keys[i] -= t.lo
		}
	}
	// each calls f for the keys of a part, with the index and the slot of each key.
	each := func(part int, f func(i int, slot uint64)) {
		if order.v == nil {
			for i, slot := range keys {
				f(i, slot)
			}
			return
		}
		for _, i := range order.v[offsets[part]:offsets[part+1]] {
			f(int(i), keys[i])
		}
	}
	parts := len(offsets) - 1
	var twice atomic.Bool
	err = d.parallel(parts, 1, func(part, _ int) error {
		again := false
		each(part, func(_ int, slot uint64) {
			w := &ranks[slot/64]
			again = again || w.bits>>(slot%64)&1 != 0
			w.bits |= 1 << (slot % 64)
		})
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
		return true, d.parallel(parts, 1, func(part, _ int) error {
			each(part, func(i int, slot uint64) {
				r, _ := rank(ranks, slot)
				entries[r] = rowID(rows, i)
			})
			return nil
		})
	}
	if t.start, err = newZeros[int32](t.lease, int(distinct)+1); err != nil {
		return false, err
	}
	start := t.start.v
	start[distinct] = int32(n)
	return true, d.parallel(parts, 1, func(part, _ int) error {
		first := distinct // number of the first key of the part
		if slot := uint64(part) << shift; slot < uint64(64*size) {
			first = ranks[slot/64].before
		}
		last := distinct
		if slot := uint64(part+1) << shift; part+1 < parts && slot < uint64(64*size) {
			last = ranks[slot/64].before
		}
		own := start[first:last]
		each(part, func(_ int, slot uint64) {
			r, _ := rank(ranks, slot)
			start[r]++
		})
		at := int32(offsets[part])
		for r, count := range own {
			own[r] = at
			at += count
		}
		each(part, func(i int, slot uint64) {
			r, _ := rank(ranks, slot)
			entries[start[r]] = rowID(rows, i)
			start[r]++
		})
		// Every start is now the end of its key: shift them back.
		begin := int32(offsets[part])
		for r, end := range own {
			own[r], begin = begin, end
		}
		return nil
	})
}

// extent returns the smallest and the largest of the keys as signed integers, or zeros
// without keys.
func extent(d *Device, keys []uint64) (lo, hi int64, err error) {
	if len(keys) == 0 {
		return 0, 0, nil
	}
	var mu sync.Mutex
	lo, hi = math.MaxInt64, math.MinInt64
	err = d.parallel(len(keys), grain, func(from, to int) error {
		least, most := int64(math.MaxInt64), int64(math.MinInt64)
		for _, k := range keys[from:to] {
			least, most = min(least, int64(k)), max(most, int64(k))
		}
		mu.Lock()
		defer mu.Unlock()
		lo, hi = min(lo, least), max(hi, most)
		return nil
	})
	return lo, hi, err
}

// rowID returns the build row of the i-th row that can match.
func rowID(rows []int32, i int) int32 {
	if rows != nil {
		return rows[i]
	}
	return int32(i)
}

// buildHashed sorts the entries by bucket. A partition by the upper bits makes ranges of
// buckets that fit the cache. Each range is then counted and written.
func (t *table) buildHashed(d *Device, w [][]uint64, ids []int32) (err error) {
	n := len(w[0])
	t.bits = max(log2ceil(n), 6)
	size := 1 << t.bits
	hashes, err := newArray[uint64](t.lease, n)
	if err != nil {
		return err
	}
	defer hashes.release()
	hash := hashes.v
	err = d.parallel(n, grain, func(lo, hi int) error {
		for i := lo; i < hi; i++ {
			hash[i] = hashKey(w, i)
		}
		return nil
	})
	if err != nil {
		return err
	}
	partBits := min(max(t.bits, 14)-14, 12)
	order, offsets, err := partition(d, t.lease, hash, gpu.Digit{Shift: 64 - partBits, Bits: partBits})
	if err != nil {
		return err
	}
	defer order.release()
	if t.buckets, err = newZeros[uint64](t.lease, size+1); err != nil {
		return err
	}
	t.words = make([]array[uint64], len(w))
	for i := range w {
		if t.words[i], err = newArray[uint64](t.lease, n); err != nil {
			return err
		}
	}
	if t.entries, err = newArray[int32](t.lease, n); err != nil {
		return err
	}
	t.buckets.v[size] = uint64(n)
	per := size >> partBits
	return d.parallel(1<<partBits, 1, func(p, _ int) error {
		rows := order.v[offsets[p]:offsets[p+1]]
		buckets := t.buckets.v[p*per : (p+1)*per]
		for _, r := range rows {
			buckets[hash[r]>>(64-t.bits)-uint64(p*per)]++
		}
		at := uint64(offsets[p])
		for b, c := range buckets {
			buckets[b] = at
			at += c
		}
		for _, r := range rows {
			h := hash[r]
			b := &buckets[h>>(64-t.bits)-uint64(p*per)]
			e := *b & bucketMask
			*b = (*b + 1) | bloom(h)
			for i := range w {
				t.words[i].v[e] = w[i][r]
			}
			t.entries.v[e] = rowID(ids, int(r))
		}
		// Every bucket word is now its end: shift them back.
		begin := uint64(offsets[p])
		for b, v := range buckets {
			buckets[b] = v&^bucketMask | begin
			begin = v & bucketMask
		}
		return nil
	})
}

// bloom returns the bit of a hash in the filter of its bucket.
func bloom(h uint64) uint64 { return 1 << (48 + h&15) }
