package host

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
)

// table is the hash table of a join's build side, in one of three forms:
//
//   - direct: a single integer-like key whose values span a range not too much
//     wider than their number. A bitmap of the range says which keys there are,
//     its running count numbers them, and the rows stand in order of key. The
//     bitmap takes two bits a key of the range, so it mostly stays in the
//     cache, and clustered probe keys hit clustered memory.
//   - direct with duplicates: the same, with offsets into the rows by number.
//   - hashed: offsets of buckets, one a row, into entries sorted by bucket,
//     each bucket word with a 16-bit Bloom filter, so that most probes without
//     a match end at their first memory access.
//
// All are made by stable partitioning, so pairs come in build order.
type table struct {
	dev      *Device
	codec    *codec
	nullSafe []bool
	anySafe  bool
	rows     int
	cols     []gpu.Column
	lease    *gpu.Lease
	reserved int64

	lo    uint64   // direct: smallest key
	ranks []ranked // direct: the range of keys, 64 a word
	start []int32  // direct with duplicates: where a key's rows begin

	bits    uint
	buckets []uint64   // hashed: Bloom filter << 48 | first entry
	words   [][]uint64 // hashed: key words of the entries
	entries []int32    // row ids in order of key or bucket
}

const bucketMask = 1<<48 - 1

// BuildTable implements gpu.Queue.
func (q *queue) BuildTable(l *gpu.Lease, keys []gpu.Column, nullSafe []bool) (gpu.Table, error) {
	if q.err != nil {
		return nil, q.err
	}
	if len(keys) == 0 || len(nullSafe) != len(keys) {
		return nil, fmt.Errorf("a join table wants at least one key and a null rule for each, has %d and %d", len(keys), len(nullSafe))
	}
	t := &table{dev: q.dev, nullSafe: nullSafe, lease: l}
	types := make([]gpu.Type, len(keys))
	for i, k := range keys {
		types[i] = k.Type
		t.anySafe = t.anySafe || nullSafe[i]
	}
	t.codec = newCodec(types)
	if err := t.build(keys); err != nil {
		t.Release()
		return nil, q.fail(err)
	}
	return t, nil
}

// reserve counts memory of the Go heap against the lease.
func (t *table) reserve(n int) error {
	if err := t.lease.Reserve(int64(n)); err != nil {
		return err
	}
	t.reserved += int64(n)
	return nil
}

// Rows implements gpu.Table.
func (t *table) Rows() int { return t.rows }

// Release implements gpu.Table.
func (t *table) Release() {
	t.lease.Unreserve(t.reserved)
	*t = table{lease: t.lease}
}

// keyWords packs all rows, and returns the bitmap of those whose key can match
// nothing. A table with null-safe keys has one word more, the nulls.
func (t *table) keyWords(keys []gpu.Column, n int, insert bool) (k coded, words int, dead []uint64, err error) {
	k, err = t.codec.prepare(t.dev, keys, n, insert)
	words = t.codec.words
	if t.anySafe {
		words++
	}
	return k, words, nullRows(keys, func(i int) bool { return t.nullSafe[i] }, n), err
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

func (t *table) build(keys []gpu.Column) error {
	n := keys[0].Len
	if n > gpu.MaxRows {
		return fmt.Errorf("%d build rows are more than the %d that row ids can address", n, gpu.MaxRows)
	}
	if len(keys) > 60 {
		return fmt.Errorf("%d join keys are more than 60", len(keys))
	}
	k, words, dead, err := t.keyWords(keys, n, true)
	if err != nil {
		return err
	}
	for _, in := range t.codec.interner {
		if in != nil {
			if err := t.reserve(int(in.bytes())); err != nil {
				return err
			}
		}
	}
	// Key words and row ids of the rows that can match.
	if err := t.reserve(n * (8*words + 4)); err != nil {
		return err
	}
	w := make([][]uint64, words)
	for i := range w {
		w[i] = make([]uint64, n)
	}
	err = t.dev.parallel(n, grain, func(lo, hi int) error {
		part := make([][]uint64, words)
		for i := range w {
			part[i] = w[i][lo:hi]
		}
		t.pack(k, lo, hi-lo, part)
		return nil
	})
	if err != nil {
		return err
	}
	if dead != nil {
		m := 0
		rows := make([]int32, 0, n)
		for i := range n {
			if dead[i/64]>>(i%64)&1 == 0 {
				for _, col := range w {
					col[m] = col[i]
				}
				rows = append(rows, int32(i))
				m++
			}
		}
		for i := range w {
			w[i] = w[i][:m]
		}
		t.entries = rows
	}
	t.rows = len(w[0])
	if words == 1 && !keys[0].Type.IsFloat() && len(keys) == 1 {
		if ok, err := t.buildDirect(w[0]); ok || err != nil {
			return err
		}
	}
	return t.buildHashed(w)
}

// ranked is 64 keys of a range: which of them there are, and how many there are
// before them.
type ranked struct{ bits, before uint64 }

// rank returns the number of a slot's key among the keys there are.
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

// maxSpread is how many times wider than the number of keys the range of a
// direct table may be: 16 bytes a key, less than an entry of a hashed one.
const maxSpread = 64

// buildDirect makes the direct forms where the range of keys allows it.
func (t *table) buildDirect(keys []uint64) (bool, error) {
	n := len(keys)
	lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
	for _, k := range keys {
		lo, hi = min(lo, int64(k)), max(hi, int64(k))
	}
	if n == 0 {
		lo, hi = 0, 0
	}
	span := uint64(hi) - uint64(lo)
	if span > uint64(maxSpread*n+1<<16) {
		return false, nil
	}
	size := int(span/64) + 1
	if err := t.reserve(size*16 + n*4); err != nil {
		return false, err
	}
	ranks := make([]ranked, size)
	unique := true
	for _, k := range keys {
		slot := k - uint64(lo)
		w := &ranks[slot/64]
		unique = unique && w.bits>>(slot%64)&1 == 0
		w.bits |= 1 << (slot % 64)
	}
	distinct := uint64(0)
	for i := range ranks {
		ranks[i].before = distinct
		distinct += uint64(bits.OnesCount64(ranks[i].bits))
	}
	t.lo, t.ranks = uint64(lo), ranks
	entries := make([]int32, n)
	if unique {
		for i, k := range keys {
			r, _ := rank(ranks, k-uint64(lo))
			entries[r] = t.rowID(i)
		}
		t.entries = entries
		return true, nil
	}
	if err := t.reserve(int(distinct+2) * 4); err != nil {
		return false, err
	}
	start := make([]int32, distinct+1, distinct+2)
	for _, k := range keys {
		r, _ := rank(ranks, k-uint64(lo))
		start[r+1]++
	}
	for i := 1; i < len(start); i++ {
		start[i] += start[i-1]
	}
	for i := n - 1; i >= 0; i-- {
		r, _ := rank(ranks, keys[i]-uint64(lo))
		start[r+1]--
		entries[start[r+1]] = t.rowID(i)
	}
	// start[r+1] is now where key r begins; its end is where the next begins.
	t.start, t.entries = append(start[1:], int32(n)), entries
	return true, nil
}

// rowID is the build row of the i-th row that can match.
func (t *table) rowID(i int) int32 {
	if t.entries != nil {
		return t.entries[i]
	}
	return int32(i)
}

// buildHashed sorts the entries by bucket: a partition by the upper bits makes
// ranges of buckets that fit the cache, and each is then counted and placed.
func (t *table) buildHashed(w [][]uint64) error {
	n := len(w[0])
	t.bits = max(log2ceil(n), 6)
	size := 1 << t.bits
	if err := t.reserve(size*8 + n*8*(len(w)+2)); err != nil {
		return err
	}
	hash := make([]uint64, n)
	err := t.dev.parallel(n, grain, func(lo, hi int) error {
		for i := lo; i < hi; i++ {
			hash[i] = hashKey(w, i)
		}
		return nil
	})
	if err != nil {
		return err
	}
	partBits := min(max(t.bits, 14)-14, 12)
	order, offsets, err := t.dev.partition(hash, 64-partBits, partBits)
	if err != nil {
		return err
	}
	t.buckets = make([]uint64, size+1)
	t.buckets[size] = uint64(n)
	t.words = make([][]uint64, len(w))
	for i := range w {
		t.words[i] = make([]uint64, n)
	}
	entries := make([]int32, n)
	per := size >> partBits
	err = t.dev.parallel(1<<partBits, 1, func(p, _ int) error {
		rows := order[offsets[p]:offsets[p+1]]
		buckets := t.buckets[p*per : (p+1)*per]
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
				t.words[i][e] = w[i][r]
			}
			entries[e] = t.rowID(int(r))
		}
		// Every bucket word now points at its end: take the begin back.
		begin := uint64(offsets[p])
		for b, v := range buckets {
			buckets[b] = v&^bucketMask | begin
			begin = v & bucketMask
		}
		return nil
	})
	t.entries = entries
	t.lease.Unreserve(int64(n * 8 * (len(w) + 1)))
	t.reserved -= int64(n * 8 * (len(w) + 1))
	return err
}

// bloom is the bit of a hash in the filter of its bucket.
func bloom(h uint64) uint64 { return 1 << (48 + h&15) }

// probeGrain is the rows of a piece of a probe.
const probeGrain = 1 << 13

// pairs are the matches of one piece.
type pairs struct {
	probe, build []int32
	next         int // first row not probed
}

// Probe implements gpu.Table.
func (t *table) Probe(gq gpu.Queue, l *gpu.Lease, keys []gpu.Column, kind gpu.JoinKind, from, limit int) (probe, build gpu.Column, next int, err error) {
	q := gq.(*queue)
	if q.err != nil {
		return probe, build, 0, q.err
	}
	probe, build, next, err = t.probe(l, keys, kind, from, limit)
	return probe, build, next, q.fail(err)
}

func (t *table) probe(l *gpu.Lease, keys []gpu.Column, kind gpu.JoinKind, from, limit int) (probe, build gpu.Column, next int, err error) {
	if len(keys) != len(t.nullSafe) {
		return probe, build, 0, fmt.Errorf("probe with %d key columns of a table of %d", len(keys), len(t.nullSafe))
	}
	n := keys[0].Len
	k, words, dead, err := t.keyWords(keys, n, false)
	if err != nil {
		return probe, build, 0, err
	}
	rest := n - from
	found := make([]pairs, (rest+probeGrain-1)/probeGrain)
	withBuild := kind == gpu.Inner || kind == gpu.Left
	var stop atomic.Int64 // pieces from here on are not wanted in this call
	stop.Store(math.MaxInt64)
	err = t.dev.parallel(rest, probeGrain, func(lo, hi int) error {
		piece := lo / probeGrain
		if int64(piece) >= stop.Load() {
			return nil
		}
		s := t.newScan(words, hi-lo, kind, limit)
		s.run(k, from+lo, hi-lo, dead)
		found[piece] = s.out
		if s.out.next < from+hi {
			for {
				old := stop.Load()
				if old <= int64(piece+1) || stop.CompareAndSwap(old, int64(piece+1)) {
					break
				}
			}
		}
		return nil
	})
	if err != nil {
		return probe, build, 0, err
	}
	next = n
	total := 0
	for i := range found {
		total += len(found[i].probe)
		end := min(from+(i+1)*probeGrain, n)
		if found[i].next < end || total >= limit {
			next = found[i].next
			found = found[:i+1]
			break
		}
	}
	column := func(pick func(p *pairs) []int32) (gpu.Column, error) {
		buf, err := l.Alloc(int64(total) * 4)
		if err != nil {
			return gpu.Column{}, err
		}
		out := gpu.Values[int32](buf, total)
		for i := range found {
			out = out[copy(out, pick(&found[i])):]
		}
		return gpu.Column{Type: gpu.Of(gpu.Int32), Len: total, Data: buf}, nil
	}
	if probe, err = column(func(p *pairs) []int32 { return p.probe }); err != nil {
		return probe, build, 0, err
	}
	if withBuild {
		if build, err = column(func(p *pairs) []int32 { return p.build }); err != nil {
			probe.Release()
			return gpu.Column{}, build, 0, err
		}
	}
	return probe, build, next, nil
}

// scan probes one piece, block by block: independent loads of a whole block are
// in flight together.
type scan struct {
	t     *table
	kind  gpu.JoinKind
	limit int
	out   pairs
	words [][]uint64
}

const probeBlock = 512

func (t *table) newScan(words, rows int, kind gpu.JoinKind, limit int) *scan {
	s := &scan{t: t, kind: kind, limit: limit, words: make([][]uint64, words)}
	all := make([]uint64, words*probeBlock)
	for i := range s.words {
		s.words[i] = all[i*probeBlock:][:probeBlock]
	}
	s.out.probe = make([]int32, 0, rows)
	if kind == gpu.Inner || kind == gpu.Left {
		s.out.build = make([]int32, 0, rows)
	}
	return s
}

func (s *scan) run(k coded, lo, n int, dead []uint64) {
	t := s.t
	unique := t.ranks != nil && t.start == nil
	var first, last [probeBlock]int32 // entries, or row and row+1 for a unique table
	for at := 0; at < n; at += probeBlock {
		m := min(probeBlock, n-at)
		t.pack(k, lo+at, m, s.words)
		switch {
		case unique:
			for i, key := range s.words[0][:m] {
				first[i] = 0
				if r, ok := rank(t.ranks, key-t.lo); ok {
					first[i] = t.entries[r] + 1
				}
			}
		case t.ranks != nil:
			for i, key := range s.words[0][:m] {
				first[i], last[i] = 0, 0
				if r, ok := rank(t.ranks, key-t.lo); ok {
					first[i], last[i] = t.start[r], t.start[r+1]
				}
			}
		default:
			for i := range m {
				h := hashKey(s.words, i)
				b := t.buckets[h>>(64-t.bits)]
				first[i], last[i] = 0, 0
				if b&bloom(h) != 0 {
					first[i], last[i] = int32(b&bucketMask), int32(t.buckets[h>>(64-t.bits)+1]&bucketMask)
				}
			}
		}
		if dead != nil {
			for i := range m {
				if r := lo + at + i; dead[r/64]>>(r%64)&1 != 0 {
					first[i], last[i] = 0, 0
				}
			}
		}
		if unique {
			s.emitUnique(first[:m], lo+at)
			s.out.next = lo + at + m
			if len(s.out.probe) >= s.limit {
				return
			}
			continue
		}
		for i := range m {
			s.emit(i, lo+at+i, int(first[i]), int(last[i]))
			if len(s.out.probe) >= s.limit {
				s.out.next = lo + at + i + 1
				return
			}
		}
		s.out.next = lo + at + m
	}
}

// emitUnique appends the matches of a block of rows, given as row id + 1.
func (s *scan) emitUnique(rows []int32, at int) {
	probe, build := s.out.probe, s.out.build
	switch s.kind {
	case gpu.Inner:
		p, b := probe[len(probe):len(probe)+len(rows)], build[len(build):len(build)+len(rows)]
		k := 0
		for i, r := range rows {
			p[k], b[k] = int32(at+i), r-1
			if r != 0 {
				k++
			}
		}
		s.out.probe, s.out.build = probe[:len(probe)+k], build[:len(build)+k]
		return
	case gpu.Left:
		for i, r := range rows {
			probe, build = append(probe, int32(at+i)), append(build, r-1)
		}
	case gpu.Semi:
		for i, r := range rows {
			if r != 0 {
				probe = append(probe, int32(at+i))
			}
		}
	case gpu.Anti:
		for i, r := range rows {
			if r == 0 {
				probe = append(probe, int32(at+i))
			}
		}
	}
	s.out.probe, s.out.build = probe, build
}

// emit appends the matches of one row among entries [first, last). i is the
// row's place in the block.
func (s *scan) emit(i, row, first, last int) {
	t, matched := s.t, false
	for e := first; e < last; e++ {
		if t.ranks == nil && !s.equal(i, e) {
			continue
		}
		matched = true
		if s.kind == gpu.Semi || s.kind == gpu.Anti {
			break
		}
		s.out.probe = append(s.out.probe, int32(row))
		s.out.build = append(s.out.build, t.entries[e])
	}
	switch {
	case s.kind == gpu.Semi && matched, s.kind == gpu.Anti && !matched:
		s.out.probe = append(s.out.probe, int32(row))
	case s.kind == gpu.Left && !matched:
		s.out.probe = append(s.out.probe, int32(row))
		s.out.build = append(s.out.build, -1)
	}
}

func (s *scan) equal(i, e int) bool {
	for w, col := range s.t.words {
		if col[e] != s.words[w][i] {
			return false
		}
	}
	return true
}
