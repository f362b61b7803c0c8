package cuda

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// table is the hash table of a join's build side. Each distinct key has a number: its rank in a
// range of integers, its row, or its entry in an index. Rows with the same number are consecutive,
// in the order of the build side. See table.cu.
type table struct {
	dev      *Device
	codec    *codec
	nullSafe []bool
	rows     int // number of rows that have a key

	// With ranks: the range of the keys, and a bitmap of the keys in it. The bitmap is nil if every
	// integer of the range is a key.
	ranked bool
	low    int64
	span   uint64
	ranks  *gpu.Buffer

	// With unique keys of 8 bytes: the slots of the table, and the keys of the build side.
	slots, keys *gpu.Buffer
	buckets     int
	length      int // number of rows of the build side

	index     *index      // set if there are neither ranks nor unique keys of 8 bytes
	start     *gpu.Buffer // position of the first entry of each number; nil if each number has one row
	entries   *gpu.Buffer // rows of the build side, ordered by number; nil if the numbers are the rows
	entriesAt uint64      // byte offset of the first entry in entries
}

// BuildTable implements gpu.Queue.
func (q *queue) BuildTable(l *gpu.Lease, keys []gpu.Column, nullSafe []bool, ranks uint64) (out gpu.Table, err error) {
	o := q.begin("build table", l)
	defer end(o, &out, &err)
	o.takes(keys...)
	if len(keys) == 0 || len(nullSafe) != len(keys) {
		return nil, fmt.Errorf("a join table wants at least one key and a null rule for each, has %d and %d", len(keys),
			len(nullSafe))
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("%d join keys are more than %d", len(keys), maxKeys)
	}
	n := keys[0].Len
	if n > gpu.MaxRows {
		return nil, gpu.TooManyRows(n)
	}
	types := make([]gpu.Type, len(keys))
	for i, k := range keys {
		types[i] = k.Type
	}
	t := &table{dev: q.dev, nullSafe: nullSafe, codec: newCodec(types, nullSafe, l)}
	if err := t.codec.check(keys, n); err != nil {
		return nil, err
	}
	t.build(o, l, keys, n, ranks)
	if o.failed() {
		t.codec.release()
		t.index.release()
		return nil, nil
	}
	return t, nil
}

// Rows implements gpu.Table.
func (t *table) Rows() int { return t.rows }

// Release implements gpu.Table.
func (t *table) Release() {
	t.codec.release()
	t.index.release()
	for _, b := range []*gpu.Buffer{t.ranks, t.slots, t.keys, t.start, t.entries} {
		b.Release()
	}
	t.ranks, t.slots, t.keys, t.start, t.entries = nil, nil, nil, nil, nil
}

// keyRows packs the keys of rows. A row has no key if it has a null that matches nothing.
func (t *table) keyRows(o *op, keys []gpu.Column, n int, insert bool) keyRows {
	r := t.codec.pack(o, keys, n, insert)
	r.valid = addr(o.rowsWithKey(keys, t.nullSafe, n))
	return r
}

// integerLoad returns how the keys are loaded as integers. ok is true for a single column of
// integers, packed or not.
func (t *table) integerLoad() (load int32, ok bool) {
	k := t.codec.types[0]
	if len(t.codec.types) > 1 || t.nullSafe[0] || k.IsFloat() || k.Wide {
		return 0, false
	}
	switch load = loadOf(k); load {
	case loadI32, loadI64, loadU64:
		return load, true
	}
	return loadU32, true // packed
}

type keyRange struct {
	low, high      int64
	rows, unsorted int32
}

type rangeArgs struct {
	keys, valid, found uint64
	n                  int64
	load, _            int32
}

func (t *table) build(o *op, l *gpu.Lease, keys []gpu.Column, n int, ranks uint64) {
	r := t.keyRows(o, keys, n, true)
	found := []keyRange{{low: math.MaxInt64, high: math.MinInt64}}
	seen := upload(o, found)
	args := rangeArgs{keys: r.keys, valid: r.valid, found: addr(seen), n: int64(n)}
	load, integer := t.integerLoad()
	switch {
	case integer:
		args.load = load
		launch(o, "key_range", o.grid(n), 256, 0, args)
	case r.valid != 0:
		launch(o, "count_rows", o.grid(blocks(n, 32)), 256, 0, args)
	default:
		found[0].rows = int32(n)
	}
	if (integer || r.valid != 0) && !o.read(seen, 0, gpu.BytesOf(found)) {
		return
	}
	t.rows = int(found[0].rows)
	if t.rows == 0 { // a range without keys matches nothing
		t.ranked = true
		return
	}
	t.low, t.span = found[0].low, uint64(found[0].high)-uint64(found[0].low)+1
	if integer && t.span-1 < ranks {
		t.ranked = true
		t.rank(o, r, load, n, found[0].unsorted == 0)
		return
	}
	if integer && (load == loadI64 || load == loadU64) {
		if unique := t.byRow(o, keys[0], r); unique || o.failed() {
			return
		}
	}
	t.index = newIndex(t.codec.kind, t.codec.words, l, false)
	numbers := o.alloc(int64(n) * 4)
	t.index.assign(o, r, numbers)
	// IDs are assigned in order of first appearance. If there are no duplicates and all rows have a
	// key, the IDs are the rows.
	t.orderRows(o, numbers, n, t.index.n, t.index.n == n)
}

type rowTableArgs struct {
	slots, keys, rows, valid, duplicate, seed uint64
	n                                         int64
	buckets, rowBits                          uint32
}

const (
	bucketSlots = 8 // BUCKET of table.cu
	// A bucket has bucketRows rows on average, which is eight tenths of its slots. One row in 15
	// finds its bucket full.
	bucketRows = 6.4
)

// rowArgs returns the kernel arguments for rows to insert or look up.
func (t *table) rowArgs(r keyRows) rowTableArgs {
	return rowTableArgs{slots: addr(t.slots), keys: addr(t.keys), rows: r.keys, valid: r.valid, seed: tableSeed,
		n: int64(r.n), buckets: uint32(t.buckets), rowBits: uint32(bits.Len(uint(t.length)))}
}

// byRow builds the table of rows of a key column, if its keys are unique. The table keeps the
// column.
func (t *table) byRow(o *op, key gpu.Column, r keyRows) (unique bool) {
	t.keys, t.length, t.buckets = key.Data, key.Len, int(float64(t.rows)/bucketRows)+1
	slots, seen := o.alloc(int64(t.buckets)*bucketSlots*4), o.alloc(4)
	o.fill(slots, 0, slots.Size(), 0)
	o.fill(seen, 0, 4, 0)
	t.slots = slots
	a := t.rowArgs(r)
	a.duplicate = addr(seen)
	launch(o, "rows_insert", blocks(r.n, 256), 256, 0, a)
	var duplicate [1]int32
	if o.read(seen, 0, gpu.BytesOf(duplicate[:])); o.failed() || duplicate[0] != 0 {
		o.free(slots)
		t.slots, t.keys = nil, nil
		return false
	}
	t.slots, t.keys = o.keep(slots), o.retain(key.Data)
	return true
}

type rankArgs struct {
	keys, valid, ranks, counts, numbers uint64
	low                                 int64
	span                                uint64
	n                                   int64
	load, _                             int32
}

// rank assigns numbers to the keys of a range. sorted means that the keys are unique and ascending,
// so that the numbers are the rows.
func (t *table) rank(o *op, r keyRows, load int32, n int, sorted bool) {
	if sorted && t.span == uint64(n) {
		return
	}
	words := int((t.span + 31) / 32)
	ranks, counts := o.alloc(int64(words)*8), o.alloc(int64(words)*4)
	o.fill(ranks, 0, ranks.Size(), 0)
	a := rankArgs{keys: r.keys, valid: r.valid, ranks: addr(ranks), counts: addr(counts), low: t.low, span: t.span,
		n: int64(n), load: load}
	launch(o, "rank_bits", blocks(n, 256), 256, 0, a)
	w := a
	w.n = int64(words)
	launch(o, "rank_counts", blocks(words, 256), 256, 0, w)
	distinct := int(o.scanTotal(counts, words, false))
	if uint64(distinct) == t.span {
		a.ranks = 0
	} else {
		launch(o, "rank_before", blocks(words, 256), 256, 0, w)
		t.ranks = o.keep(ranks)
	}
	if sorted {
		return
	}
	numbers := o.alloc(int64(n) * 4)
	a.numbers = addr(numbers)
	launch(o, "rank_numbers", blocks(n, 256), 256, 0, a)
	t.orderRows(o, numbers, n, distinct, false)
}

type rowsArgs struct {
	numbers, entries, start uint64
	n                       int64
	_, _                    int32
}

// orderRows orders the rows by number.
func (t *table) orderRows(o *op, numbers *gpu.Buffer, n, distinct int, same bool) {
	if same || o.failed() {
		return
	}
	a := rowsArgs{numbers: addr(numbers), n: int64(n)}
	if distinct == t.rows {
		t.entries = o.keep(o.alloc(int64(t.rows) * 4))
		a.entries = addr(t.entries)
		launch(o, "rows_unique", blocks(n, 256), 256, 0, a)
		return
	}
	parts := []sortPart{{data: a.numbers, kind: sortI32}}
	o.compress(n, parts)
	if o.failed() {
		return
	}
	// Rows without a key have the number -1 and come first.
	t.entries, t.entriesAt = o.keep(o.order(n, parts)), uint64(n-t.rows)*4
	t.start = o.keep(o.alloc(int64(distinct+1) * 4))
	a.entries, a.start, a.n = addr(t.entries)+t.entriesAt, addr(t.start), int64(t.rows)
	launch(o, "rows_start", blocks(t.rows, 256), 256, 0, a)
}
