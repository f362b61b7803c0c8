package cuda

import (
	"math"
	"math/rand/v2"

	"github.com/gstream/gstream/gpu"
)

// tableSeed is the seed of the hash tables of this process. No result depends on it.
var tableSeed = rand.Uint64()

// The kinds of keys of an index, named like their kernels.
const (
	exactKeys = "exact" // up to 32 bits
	wordKeys  = "words" // 64-bit words
	byteKeys  = "bytes" // strings
)

// index maps keys to dense ids 0, 1, 2 … in order of first appearance. index.cu explains it. store
// has the key of every id: words, or the offset of a string. The owner calls release.
type index struct {
	kind  string
	words int
	lease *gpu.Lease
	// nullKey makes null a key. Otherwise rows without a key get id -1.
	nullKey bool

	indexState
	bits, limit  int
	slots, store *gpu.Buffer
	// claimed has the counters of a batch, see index.cu, followed by two slots that restore uses.
	claimed *gpu.Buffer
	texts   *gpu.Buffer // bytes of the ids' strings; indexState.used of them are in use
	err     error
}

// indexState is the part of an index that changes as keys are added.
type indexState struct {
	n              int
	used           int64
	rows, lastRows int // rows assigned so far, and in the last batch
	lastNew        int // new ids in the last batch
}

// claimedBytes is the size of claimed.
const claimedBytes = 24

// maxIndexBits bounds the slots of an index to 1 << maxIndexBits.
const maxIndexBits = 30

// firstBatch is the number of rows of the first batch. Nothing is known about the keys yet, so the
// table is made for as many keys as rows.
const firstBatch = 1 << 16

func newIndex(kind string, words int, l *gpu.Lease, nullKey bool) *index {
	return &index{kind: kind, words: words, lease: l, nullKey: nullKey, indexState: indexState{lastRows: 1, lastNew: 1}}
}

func (x *index) release() {
	if x == nil {
		return
	}
	for _, b := range []*gpu.Buffer{x.slots, x.store, x.claimed, x.texts} {
		b.Release()
	}
	*x = index{lease: x.lease}
}

// keyWidth returns the bytes of a key in the store.
func (x *index) keyWidth() int64 {
	if x.kind == wordKeys {
		return int64(x.words) * 8
	}
	return 4
}

type texts struct{ offsets, bytes, codes uint64 }

// keyRows are the keys of a batch of rows, as addresses on the device.
type keyRows struct {
	n     int
	keys  uint64 // u32 or words
	texts texts
	valid uint64 // bitmap of the rows that have a key; 0: all rows
}

// slice returns rows [from, to); from is a multiple of 64.
func (r keyRows) slice(x *index, from, to int) keyRows {
	r.n = to - from
	switch {
	case x.kind != byteKeys:
		r.keys += uint64(from) * uint64(x.keyWidth())
	case r.texts.codes != 0:
		r.texts.codes += uint64(from) * 4
	default:
		r.texts.offsets += uint64(from) * 4
	}
	if r.valid != 0 {
		r.valid += uint64(from) / 8
	}
	return r
}

type indexArgs struct {
	slots, old, keys, store      uint64
	texts                        texts
	offsets, bytes, valid, ids   uint64
	counts, fresh, claimed, seed uint64
	n                            int64
	bits, oldBits, words, limit  int32
	groups, nullKey              int32
}

func (x *index) args(r keyRows, ids uint64) indexArgs {
	a := indexArgs{slots: addr(x.slots), keys: r.keys, store: addr(x.store), texts: r.texts, offsets: addr(x.store),
		bytes: addr(x.texts), valid: r.valid, ids: ids, claimed: addr(x.claimed), seed: tableSeed,
		n: int64(r.n), bits: int32(x.bits), words: int32(x.words), limit: int32(x.limit), groups: int32(x.n)}
	a.nullKey = flag(x.nullKey)
	return a
}

// assign writes the ids of all rows, with new ids for new keys. It waits for the device once per
// batch; batches grow fast while only a few keys are new. After an error the index must be restored
// before its next use.
func (x *index) assign(o *op, r keyRows, ids *gpu.Buffer) {
	if x.err != nil {
		o.fail(x.err)
	}
	batch := max(firstBatch, 4*x.rows)
	for from := 0; from < r.n && !o.failed(); batch = max(batch, 4*x.rows) {
		to := min(r.n, from+batch&^63)
		x.batch(o, r.slice(x, from, to), addr(ids)+uint64(from)*4)
		from = to
	}
}

// restore resets the index to an earlier state after an error. It fills the slots again from the
// store. It allocates nothing, so only the size of the index may differ after memory was denied.
// Any other error sticks to the index.
func (x *index) restore(o *op, s indexState) {
	x.indexState = s
	if !gpu.IsOutOfMemory(o.err) {
		x.err = o.err
	}
	if x.err != nil || x.slots == nil {
		return
	}
	r := o.q.begin(o.name, o.lease)
	var null [1]uint64
	r.read(x.slots, 8<<x.bits, gpu.BytesOf(null[:]))
	if uint32(null[0]) > uint32(x.n) { // its id, or its row, belongs to the failed batch
		null[0] = 0
	}
	r.write(x.claimed, 0, gpu.BytesOf([]uint64{uint64(x.n), 0, null[0]}))
	r.fill(x.slots, 0, 8<<x.bits, 0)
	a := x.args(keyRows{n: x.n}, 0)
	a.old, a.oldBits = addr(x.claimed)+8, 0
	launch(r, "index_rehash_"+x.kind, max(blocks(x.n, 256), 1), 256, 0, a)
	if r.failed() {
		x.err = r.err
	}
}

// batch assigns one batch, with a table as large as needed.
func (x *index) batch(o *op, r keyRows, ids uint64) {
	// The estimate uses the share of new keys in the last batch, and adds a few.
	x.reserve(o, x.n+int(int64(r.n)*int64(x.lastNew)/int64(x.lastRows))+min(r.n, x.n/16)+1)
	counts := o.alloc(int64(blocks(r.n, indexTile)) * 4)
	for !o.failed() {
		var fresh *gpu.Buffer
		if x.kind == byteKeys {
			fresh = o.alloc(int64(min(r.n, x.limit-x.n)) * 4)
		}
		found, ok := x.try(o, r, ids, counts, fresh)
		if !ok {
			x.reserve(o, min(4*x.limit, x.n+r.n+1))
			continue
		}
		if x.kind == byteKeys {
			x.append(o, r, fresh, found-x.n)
		}
		x.rows, x.lastRows, x.lastNew = x.rows+r.n, r.n, found-x.n
		x.n = found
		return
	}
}

// indexTile is TILE of index.cu.
const indexTile = 2048

// try inserts the keys of a batch and returns the number of keys afterwards. ok is false if the
// table was too small: the batch must then be repeated with a larger table.
func (x *index) try(o *op, r keyRows, ids uint64, counts, fresh *gpu.Buffer) (found int, ok bool) {
	a := x.args(r, ids)
	a.counts, a.fresh = addr(counts), addr(fresh)
	tiles := blocks(r.n, indexTile)
	launch(o, "index_insert_"+x.kind, blocks(r.n, 256), 256, 0, a)
	launch(o, "index_first", tiles, 256, 0, a)
	o.scan(counts, tiles, false)
	launch(o, "index_number_"+x.kind, tiles, 256, 0, a)
	launch(o, "index_resolve", o.grid(r.n), 256, 0, a)
	var claimed [2]int32
	if !o.read(x.claimed, 0, gpu.BytesOf(claimed[:])) {
		return 0, false
	}
	if claimed[1] != 0 || int(claimed[0]) > x.limit {
		return 0, false
	}
	return int(claimed[0]), true
}

type appendArgs struct {
	texts                       texts
	fresh, offsets, kept, bytes uint64
	n                           int64
	base, _                     int32
}

// append stores the strings of n new ids.
func (x *index) append(o *op, r keyRows, fresh *gpu.Buffer, n int) {
	if n == 0 {
		return
	}
	offsets := o.alloc(int64(n+1) * 4)
	a := appendArgs{texts: r.texts, fresh: addr(fresh), offsets: addr(offsets), kept: addr(x.store) + uint64(x.n)*4,
		n: int64(n), base: int32(x.used)}
	launch(o, "append_lengths", blocks(n, 256), 256, 0, a)
	total := o.scanTotal(offsets, n, true)
	if x.used+total > math.MaxInt32 {
		o.fail(gpu.TooManyBytes(x.used+total, x.n+n))
		return
	}
	if need := x.used + total; need > x.texts.Size() {
		x.texts = o.grow(x.lease, x.texts, x.used, min(max(need, 2*x.texts.Size()), math.MaxInt32))
	}
	a.bytes = addr(x.texts) + uint64(x.used)
	if total > 0 {
		launch(o, "append_bytes", blocks(n, 256), 256, 0, a)
	}
	launch(o, "append_offsets", blocks(n+1, 256), 256, 0, a)
	if o.err == nil {
		x.used += total
	}
}

// grow returns a buffer of n bytes with the first used bytes of old, and releases old.
// After an error it returns old.
func (o *op) grow(l *gpu.Lease, old *gpu.Buffer, used, n int64) *gpu.Buffer {
	b := o.allocFrom(l, n)
	if b == nil {
		return old
	}
	o.copy(b, 0, old, 0, min(used, old.Size()))
	if o.failed() {
		b.Release()
		return old
	}
	old.Release()
	return b
}

// reserve makes the table large enough for want ids.
func (x *index) reserve(o *op, want int) {
	if want <= x.limit || o.failed() {
		return
	}
	bits := max(x.bits, 6)
	for limitOf(bits) < want && bits < maxIndexBits {
		bits++
	}
	if limitOf(bits) == x.limit {
		o.fail(gpu.Exceeded("more than %d distinct keys are more than a hash table on the GPU holds", x.limit))
		return
	}
	limit := limitOf(bits)
	slots := o.allocFrom(x.lease, 8<<bits+8)
	o.fill(slots, 0, slots.Size(), 0)
	if x.claimed == nil {
		x.claimed = o.allocFrom(x.lease, claimedBytes)
	}
	o.write(x.claimed, 0, gpu.BytesOf([]int32{int32(x.n), 0}))
	width := x.keyWidth()
	used := x.n
	if x.kind == byteKeys && used > 0 {
		used++ // the end of the last string
	}
	x.store = o.grow(x.lease, x.store, int64(used)*width, int64(limit+1)*width)
	if o.failed() {
		slots.Release()
		return
	}
	if x.slots != nil {
		a := x.args(keyRows{n: x.n}, 0)
		a.slots, a.old, a.bits, a.oldBits = addr(slots), addr(x.slots), int32(bits), int32(x.bits)
		launch(o, "index_rehash_"+x.kind, max(blocks(x.n, 256), 1), 256, 0, a)
		o.flush()
		x.slots.Release()
	}
	x.slots, x.bits, x.limit = slots, bits, limit
}

// limitOf returns the maximum number of ids of a table of 1 << bits slots: five eighths of the
// slots.
func limitOf(bits int) int { return (5 << bits) / 8 }

// find writes the ids of all rows, and -1 for unknown keys.
func (x *index) find(o *op, r keyRows, ids *gpu.Buffer) {
	if x.err != nil {
		o.fail(x.err)
	}
	if x.slots == nil { // there are no keys yet
		o.fill(ids, 0, int64(r.n)*4, 0xff)
		return
	}
	launch(o, "index_find_"+x.kind, blocks(r.n, 256), 256, 0, x.args(r, addr(ids)))
}
