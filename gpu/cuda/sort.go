package cuda

import (
	"fmt"
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// The kinds of SortKind of sort.cu.
const (
	sortBits = iota
	sortI8
	sortI16
	sortI32
	sortI64
	sortU8
	sortU16
	sortU32
	sortU64
	sortF32
	sortF64
	sortHigh
	sortLow
	sortCodes
	sortNulls
)

// sortPart is SortPart of sort.cu: an unsigned integer per row that orders like a sort key or like
// half of one.
type sortPart struct {
	data, valid, ranks, base uint64
	kind, bits               int32
	descending               uint32
	codes                    int32
}

type sortRangeArgs struct {
	part   sortPart
	ranges uint64
	n      int64
}

// sortParts is SORT_PARTS of sort.cu.
const sortParts = 32

type sortPackArgs struct {
	part            [sortParts]sortPart
	low, high, rows uint64
	n               int64
	parts, lowBits  int32
}

type sortNumberArgs struct {
	out uint64
	n   int64
}

// Sort implements gpu.Queue. Keys become integers of as few bits as their values need,
// which are packed into words. A least-significant-digit radix sort of (word, row id)
// runs for every word, the last word first.
func (q *queue) Sort(l *gpu.Lease, keys []gpu.SortKey) (out gpu.Column, err error) {
	o := q.begin("sort", l)
	defer end(o, &out, &err)
	o.takes(gpu.KeyColumns(keys)...)
	if err := gpu.CheckSort(keys); err != nil {
		return out, err
	}
	n := keys[0].Column.Len
	if rows := o.orderPlain(keys); rows != nil {
		return gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: o.keep(rows)}, nil
	}
	var parts []sortPart
	for _, k := range keys {
		parts = append(parts, o.sortParts(k)...)
	}
	if o.failed() {
		return out, nil
	}
	o.compress(n, parts)
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: o.keep(o.order(n, parts))}, nil
}

// sortParts returns the parts of one sort key, the most significant first. Their ranges
// are not known yet.
func (o *op) sortParts(k gpu.SortKey) []sortPart {
	c := k.Column
	p := sortPart{data: addr(c.Data), valid: addr(c.Valid)}
	p.descending = uint32(flag(k.Descending))
	var out []sortPart
	if c.Valid != nil {
		nulls := sortPart{valid: p.valid, kind: sortNulls, bits: 1}
		if k.NullsFirst {
			nulls.descending = 1
		}
		// The bit is 1 where the validity equals the flag: see sort_pack.
		out = append(out, nulls)
	}
	switch {
	case c.Dict != nil && !c.Type.IsVar():
		o.fail(fmt.Errorf("sort by a dictionary of %v: only strings are dictionary-coded", c.Type))
	case c.Dict != nil && c.Dict.Values.Len <= c.Len:
		p.kind, p.codes = sortCodes, int32(c.Dict.Values.Len)
		p.ranks = addr(o.textRanks(c.Dict.Values))
	case c.Type.IsVar(): // also if the dictionary has more values than the column has rows
		p.kind, p.data = sortU32, addr(o.textRanks(c))
	case c.Type.Wide:
		high, low := p, p
		high.kind, low.kind = sortHigh, sortLow
		return append(out, high, low)
	default:
		p.kind = sortKind(c.Type)
	}
	return append(out, p)
}

// sortKind returns the kind of a plain column of fixed width.
func sortKind(t gpu.Type) int32 {
	switch t.Kind {
	case gpu.Bool:
		return sortBits
	case gpu.Float32:
		return sortF32
	case gpu.Float64:
		return sortF64
	}
	kind := map[int]int32{1: sortI8, 2: sortI16, 4: sortI32, 8: sortI64}[t.Width()]
	if t.IsUnsigned() {
		kind += sortU8 - sortI8
	}
	return kind
}

// compress finds the range of every part over n rows, and the bits that it needs.
func (o *op) compress(n int, parts []sortPart) {
	ranges := make([][2]uint64, len(parts))
	for i := range ranges {
		ranges[i] = [2]uint64{^uint64(0), 0}
	}
	found := o.alloc(int64(len(parts)) * 16)
	o.write(found, 0, gpu.BytesOf(ranges))
	for i, p := range parts {
		if p.kind != sortNulls {
			launch(o, "sort_range", o.grid(n), 256, 0,
				sortRangeArgs{part: p, ranges: addr(found) + uint64(16*i), n: int64(n)})
		}
	}
	if !o.read(found, 0, gpu.BytesOf(ranges)) {
		return
	}
	o.free(found)
	for i, r := range ranges {
		p := &parts[i]
		if p.kind == sortNulls {
			continue
		}
		lo, hi := r[0], r[1]
		if lo > hi { // the part has no value
			lo, hi = 0, 0
		}
		p.bits, p.base = int32(bits.Len64(hi-lo)), lo
		if p.descending != 0 {
			p.base = hi
		}
	}
}

// grid returns the number of blocks of 256 threads for a kernel with a grid-stride loop over n
// rows.
func (o *op) grid(n int) int { return min(blocks(n, 256), 16*o.q.dev.props.multiprocessors) }

// order returns the permutation of n rows that orders them by compressed parts, the most
// significant first. It is stable.
func (o *op) order(n int, parts []sortPart) *gpu.Buffer {
	var rows *gpu.Buffer
	for end := len(parts); end > 0; {
		at, width := end, int32(0)
		for at > 0 && width+parts[at-1].bits <= 64 && end-at < sortParts {
			at--
			width += parts[at].bits
		}
		if width > 0 {
			rows = o.orderByWord(n, parts[at:end], uint(width), rows)
		}
		end = at
	}
	if rows == nil {
		rows = o.alloc(int64(n) * 4)
		launch(o, "sort_number", o.grid(n), 256, 0, sortNumberArgs{addr(rows), int64(n)})
	}
	return rows
}

// orderByWord reorders rows by parts that together are one word of wordBits bits. rows nil means
// the order of the input. A word of more than 32 bits moves in two halves; the lower half is
// dropped once its digits are sorted.
func (o *op) orderByWord(n int, parts []sortPart, wordBits uint, rows *gpu.Buffer) *gpu.Buffer {
	word := func() *gpu.Buffer { return o.alloc(int64(n) * 4) }
	lowBits := max(wordBits, 32) - 32
	pack := sortPackArgs{rows: addr(rows), n: int64(n), parts: int32(len(parts)), lowBits: int32(lowBits)}
	copy(pack.part[:], parts)
	high := word()
	pack.high = addr(high)
	if lowBits == 0 {
		launch(o, "sort_pack", o.grid(n), 256, 0, pack)
	} else {
		low, moved, ids := word(), word(), word()
		pack.low = addr(low)
		launch(o, "sort_pack", o.grid(n), 256, 0, pack)
		o.radix(radixKey{buf: low, width: 4, bits: lowBits}, n, []mover{{high, moved, 4}, {rows, ids, 4}}, nil, false)
		o.free(low, high, rows)
		high, rows = moved, ids
	}
	out := word()
	o.radix(radixKey{buf: high, width: 4, bits: wordBits - lowBits}, n, []mover{{rows, out, 4}}, nil, false)
	o.free(high, rows)
	return out
}

// orderPlain returns the order by a single key of 4-byte integers without nulls, whose bits are
// sorted without packing. It returns nil for other keys, and if packing saves a pass. The first
// digit is counted in the pass that finds the range.
func (o *op) orderPlain(keys []gpu.SortKey) *gpu.Buffer {
	c := keys[0].Column
	if len(keys) > 1 || c.Len == 0 || c.Valid != nil || c.Dict != nil || c.Type.Width() != 4 || c.Type.IsFloat() {
		return nil
	}
	n, key := c.Len, radixKey{buf: c.Data, width: 4}
	if !c.Type.IsUnsigned() {
		key.flip = 1 << 31
	}
	if keys[0].Descending {
		key.flip ^= 1<<32 - 1
	}
	out := o.alloc(int64(n) * 4)
	cols := []mover{{nil, out, 4}}
	digit := o.digitBits(4, cols, usualDigit)
	key.bits = digit
	first := o.newPass(key, n, cols)
	ranges := [2]uint64{^uint64(0), 0}
	found := o.alloc(16)
	o.write(found, 0, gpu.BytesOf(ranges[:]))
	count := first.counting(key)
	count.ranges, count.rangeFlip = addr(found), key.flip
	first.count("partition_count_k4", 32*4<<key.bits, count)
	if !o.read(found, 0, gpu.BytesOf(ranges[:])) {
		return nil
	}
	o.free(found)
	key.bits = uint(bits.Len64(ranges[0] ^ ranges[1]))
	if passes := parts(key.bits, digit); passes == 0 || passes > parts(uint(bits.Len64(ranges[1]-ranges[0])), digit) {
		o.free(first.counts, out)
		return nil
	}
	o.radix(key, n, cols, first, false)
	return out
}

// textWord is TEXT_CHUNK of sort.cu: the number of bytes of a string in a word.
const textWord = 8

type textWordsArgs struct {
	offsets, bytes, codes, rows, words, lengths uint64
	n, depth                                    int64
	values, _                                   int32
}

type textSplitArgs struct {
	order, groups, words, lengths, rows, positions, sorted, heads, whole, wholeHeads uint64
	n                                                                                int64
}

type textKeepArgs struct {
	order, lengths, heads, keep uint64
	n                           int64
}

type textCompactArgs struct {
	keep, heads, sorted, positions, rows, nextPositions, groups uint64
	n                                                           int64
}

type textRanksArgs struct {
	whole, heads, ranks uint64
	n                   int64
}

type textCodesArgs struct {
	codes, rows, out uint64
	n                int64
}

type textFinishArgs struct {
	keys, order, rows, positions, whole, wholeHeads uint64
	n                                               int64
	count, _                                        int32
}

// textRounds bounds the rounds of a sort of strings. Strings that are still equal after them are
// sorted by comparisons, so that the number of launches does not grow with the length of equal
// strings or of a common prefix.
const textRounds = 8

// textRanks returns a uint32 for each row of a column of bytes, plain or coded: the number of
// distinct values that are smaller. It sorts in rounds of eight bytes. A round has only the strings
// that are equal to another one so far and have more bytes. After textRounds rounds a merge sort
// compares the rest.
func (o *op) textRanks(c gpu.Column) *gpu.Buffer {
	n := c.Len
	values := c
	args := textWordsArgs{}
	if c.Dict != nil {
		values, args.codes = c.Dict.Values, addr(c.Data)
	}
	args.offsets, args.bytes, args.values = addr(values.Offsets), addr(values.Data), int32(values.Len)

	whole, heads := o.alloc(int64(n)*4), o.alloc(int64(n+1)*4)
	launch(o, "sort_number", o.grid(n), 256, 0, sortNumberArgs{addr(whole), int64(n)})
	o.fill(heads, 0, int64(n)*4, 0)
	if n > 0 {
		o.write(heads, 0, gpu.BytesOf([]int32{1}))
	}
	t := textSort{op: o, n: n, whole: whole, heads: heads}
	for range textRounds {
		if t.n <= 1 || o.failed() {
			break
		}
		t.round(args)
		args.depth += textWord
	}
	if t.n > 1 {
		t.compare(values, args.codes)
	}
	o.scan(heads, n, true)
	ranks := o.alloc(int64(n) * 4)
	launch(o, "text_ranks", o.grid(n), 256, 0, textRanksArgs{addr(whole), addr(heads), addr(ranks), int64(n)})
	o.free(whole, heads, t.rows, t.positions, t.groups)
	return ranks
}

// textSort is the state of a sort of strings between two rounds. n strings have no final position
// yet: rows has their rows, positions their positions in the whole order, and groups the numbers of
// their groups of equal strings. nil means all rows, all positions and a single group.
type textSort struct {
	*op
	n                       int
	rows, positions, groups *gpu.Buffer
	whole, heads            *gpu.Buffer
}

// compare sorts the remaining strings by comparisons. All of them have more bytes than the rounds
// have read, so none is null. codes are the codes of the rows if values belongs to a dictionary.
func (t *textSort) compare(values gpu.Column, codes uint64) {
	n := t.n
	own := t.alloc(int64(n) * 4)
	launch(t.op, "text_codes", t.grid(n), 256, 0,
		textCodesArgs{codes: codes, rows: addr(t.rows), out: addr(own), n: int64(n)})
	texts := gpu.Column{Type: values.Type, Len: n, Data: own, Dict: &gpu.Dictionary{Values: values}}
	keys := []gpu.SortKey{{Column: gpu.Column{Type: gpu.Of(gpu.Uint32), Len: n, Data: t.groups}}, {Column: texts}}
	if t.groups == nil {
		keys = keys[1:]
	}
	order := t.mergeSort(keys)
	launch(t.op, "text_finish", t.grid(n), 256, 0,
		textFinishArgs{keys: addr(upload(t.op, orderKeys(keys, keys))), order: addr(order), rows: addr(t.rows),
			positions: addr(t.positions), whole: addr(t.whole), wholeHeads: addr(t.heads), n: int64(n),
			count: int32(len(keys))})
	t.free(own, order)
}

// round sorts by the next bytes.
func (t *textSort) round(args textWordsArgs) {
	n := t.n
	words, lengths := t.alloc(int64(n)*8), t.alloc(int64(n))
	args.rows, args.words, args.lengths, args.n = addr(t.rows), addr(words), addr(lengths), int64(n)
	launch(t.op, "text_words", t.grid(n), 256, 0, args)
	parts := []sortPart{{data: addr(t.groups), kind: sortU32}, {data: addr(words), kind: sortU64},
		{data: addr(lengths), kind: sortU8}}
	if t.groups == nil {
		parts = parts[1:]
	}
	t.compress(n, parts)
	if t.failed() {
		return
	}
	next := parts[len(parts)-2:]
	if next[0].bits == 0 && next[1].bits == 0 { // the next bytes of all remaining strings are equal
		if next[1].base <= textWord {
			t.n = 0
		}
		t.free(words, lengths)
		return
	}
	order := t.order(n, parts)
	sorted, heads, keep := t.alloc(int64(n)*4), t.alloc(int64(n+1)*4), t.alloc(int64(n+1)*4)
	launch(t.op, "text_split", t.grid(n), 256, 0,
		textSplitArgs{order: addr(order), groups: addr(t.groups), words: addr(words), lengths: addr(lengths),
			rows: addr(t.rows), positions: addr(t.positions), sorted: addr(sorted), heads: addr(heads),
			whole: addr(t.whole), wholeHeads: addr(t.heads), n: int64(n)})
	launch(t.op, "text_keep", t.grid(n), 256, 0,
		textKeepArgs{addr(order), addr(lengths), addr(heads), addr(keep), int64(n)})
	t.scan(heads, n, true)
	left := t.scanTotal(keep, n, true)
	rows, positions, groups := t.alloc(left*4), t.alloc(left*4), t.alloc(left*4)
	if left > 0 {
		launch(t.op, "text_compact", t.grid(n), 256, 0,
			textCompactArgs{addr(keep), addr(heads), addr(sorted), addr(t.positions),
				addr(rows), addr(positions), addr(groups), int64(n)})
	}
	t.free(words, lengths, order, sorted, heads, keep, t.rows, t.positions, t.groups)
	t.n, t.rows, t.positions, t.groups = int(left), rows, positions, groups
}
