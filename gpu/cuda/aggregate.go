package cuda

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// The layouts of aggregate.cu.
type (
	aggregateColumn struct {
		src, out, flip, valid, outValid uint64

		fold        int32
		word, far   uint32
		load        int32
		seen, upper uint32

		carry uint32
		part  int32
	}
	aggregateState struct {
		groups        uint64
		items, tables uint32
		_, full       uint32
		failed        uint32
		largest       uint32
	}
	aggregateArgs struct {
		key, outKey, offsets, ends, state, items, farKeys, farWords uint64

		column                   [aggregateColumns]aggregateColumn
		ids, dictionary          uint64
		low, mul, most           uint64
		rows, partitions, slice  uint32
		columns, words, farCount uint32
		slots, copies            uint32
		farSlots, keySlots       uint32
		mostItems, _             uint32
	}
	floatRangeArgs struct {
		src, valid, exponents, offsets, ends uint64
		n                                    int64
		load                                 int32
		partitions                           uint32
	}
)

const (
	aggregateColumns = 16 // AGGREGATE_COLUMNS of aggregate.cu
	aggregateItem    = 16 // bytes of AggregateItem
	// A partition with more than aggregateSpread times the average number of rows is cut.
	aggregateSpread = 4
	// aggregateSlice is the minimum number of rows of a slice.
	aggregateSlice = 1 << 14
	// aggregateLeast is the minimum number of slots of a hash table: more than the positions that a
	// row checks before it searches.
	aggregateLeast = 8
	// aggregateIDs is the number of dictionary slots per key, times 4: with fewer, keys are often
	// not in their first slot.
	aggregateIDs = 6
	// aggregateHot is the number of cells that the slot of a heavy hitter has besides its own:
	// HOT_CELLS of aggregate.cu.
	aggregateHot = 32
)

// The loads of aggregate.cu besides those of keys.cuh.
const (
	loadHalf = loadText + 1 + iota
	loadF32Low
	loadF32High
	loadF64Low
	loadF64High
)

// mostFloatSpread is the largest difference of exponents of floats that are added as 128-bit
// integers: a value takes 53 bits, the number of rows 31, and the sign one.
const mostFloatSpread = 128 - 53 - 31 - 1

// The folds of aggregate.cu.
const (
	foldCount = iota
	foldSumI32
	foldSumU32
	foldSumI64
	foldSumU64
	foldMin32
	foldMin64
)

// The part of a word in shared memory that the carries of a sum use.
const (
	wholeWord = iota
	lowerHalf
	upperHalf
)

// foldWidth has the number of words of a fold: 32-bit words in shared memory, and 64-bit words in
// device memory. Sums also have carries in shared memory.
var foldWidth = [...]struct{ words, far uint32 }{
	foldCount: {1, 1}, foldSumI32: {1, 1}, foldSumU32: {1, 1}, foldSumI64: {2, 3}, foldSumU64: {2, 3},
	foldMin32: {1, 1}, foldMin64: {2, 1}}

// columnsOf returns how an aggregate of values is folded: as one column, or as two for values of 16
// bytes and sums of floats.
func columnsOf(a gpu.Aggregate, values gpu.Column, any bool) []aggregateColumn {
	t := a.Input
	wide, unsigned := t.Width() == 8, t.IsUnsigned()
	c := aggregateColumn{src: addr(values.Data), valid: addr(values.Valid), load: loadOf(t)}
	switch {
	case a.Kind == gpu.CountAll || a.Kind == gpu.Count:
		return []aggregateColumn{{fold: foldCount, valid: c.valid}}
	case a.Kind == gpu.Sum && (t.Wide || t.IsFloat()):
		low, high := c, c
		low.fold, high.fold, high.upper = foldSumU64, foldSumI64, 1
		switch t.Kind {
		case gpu.Float32:
			low.load, high.load = loadF32Low, loadF32High
		case gpu.Float64:
			low.load, high.load = loadF64Low, loadF64High
		default:
			low.load, high.load, high.src = loadHalf, loadHalf, c.src+8
		}
		return []aggregateColumn{low, high}
	case a.Kind == gpu.Sum && !wide && unsigned:
		c.fold = foldSumU32
	case a.Kind == gpu.Sum && !wide:
		c.fold = foldSumI32
	case a.Kind == gpu.Sum && unsigned:
		c.fold = foldSumU64
	case a.Kind == gpu.Sum:
		c.fold = foldSumI64
	case any: // of words in order
		if c.fold = foldMin64; a.Kind == gpu.Max {
			c.flip = ^uint64(0)
		}
	default:
		if !unsigned {
			c.flip = 1 << (8*t.Width() - 1)
		}
		if a.Kind == gpu.Max {
			c.flip = ^c.flip
		}
		if c.fold = foldMin64; !wide {
			c.fold, c.flip = foldMin32, c.flip&(1<<32-1)
		}
	}
	return []aggregateColumn{c}
}

// plainValues reports whether all values are integers of 4 or 8 bytes without nulls, and whether
// some have 8 bytes.
func plainValues(list []gpu.Aggregate, values []gpu.Column) (plain, wide bool) {
	for i, a := range list {
		t := a.Input
		switch {
		case a.Kind == gpu.CountAll:
		case values[i].Valid != nil:
			return false, false
		case a.Kind == gpu.Count:
		case t.IsFloat() || t.Width() != 4 && t.Width() != 8:
			return false, false
		default:
			wide = wide || t.Width() == 8
		}
	}
	return true, wide
}

// aggregation is a call of AggregatePartitions.
type aggregation struct {
	*op
	rows   gpu.Partitioned
	list   []gpu.Aggregate
	hint   gpu.GroupHint
	kernel string // suffix of the kernels
	args   aggregateArgs
	folds  uint32 // words without carries
	at     []int  // of the column of each aggregate that writes it
	state  *gpu.Buffer
	out    []gpu.Column
}

// AggregatePartitions implements gpu.Queue.
func (q *queue) AggregatePartitions(l *gpu.Lease, rows gpu.Partitioned, list []gpu.Aggregate, values []gpu.Column,
	hint gpu.GroupHint) (out []gpu.Column, err error) {
	o := q.begin("aggregate", l)
	defer end(o, &out, &err)
	if err := gpu.CheckAggregation(rows, list, values); err != nil {
		return nil, err
	}
	o.takes(rows.Key, rows.Offsets, rows.Ends)
	for i, v := range values {
		if list[i].Kind != gpu.CountAll {
			o.takes(v)
		}
	}
	if o.err != nil {
		return nil, o.err
	}
	x := &aggregation{op: o, rows: rows, list: list, hint: hint}
	if err := x.describe(values); err != nil || o.err != nil {
		return nil, err
	}
	if rows.Key.Len == 0 {
		x.room(0)
		return x.out, nil
	}
	return x.run()
}

// describe lays out the words of the aggregates. Those of minima of 8 bytes come first. Values with
// nulls are also counted.
func (x *aggregation) describe(values []gpu.Column) error {
	a := &x.args
	plain, wide := plainValues(x.list, values)
	var columns []aggregateColumn
	counts := map[uint64]int{}
	for i, g := range x.list {
		of := columnsOf(g, values[i], !plain)
		if g.Kind == gpu.Count {
			counts[of[0].valid] = len(columns)
		}
		columns = append(columns, of...)
		x.at = append(x.at, len(columns)-1)
	}
	for i, at := range x.at {
		if v := columns[at].valid; v != 0 && x.list[i].Kind != gpu.Count {
			if _, ok := counts[v]; !ok {
				counts[v] = len(columns)
				columns = append(columns, aggregateColumn{fold: foldCount, valid: v})
			}
			columns[at].seen = uint32(counts[v])
		}
	}
	if len(columns) > aggregateColumns {
		return gpu.Unfit("%d columns of aggregates, more than %d", len(columns), aggregateColumns)
	}
	for _, first := range []bool{true, false} {
		for i := range columns {
			if c := &columns[i]; (c.fold == foldMin64) == first {
				c.word, c.far = a.words, a.farCount
				a.words += foldWidth[c.fold].words
				a.farCount += foldWidth[c.fold].far
			}
		}
	}
	a.columns = uint32(copy(a.column[:], columns))
	x.folds = a.words
	x.carryIn(false)
	a.key, a.rows, a.mul = addr(x.rows.Key.Data), uint32(x.rows.Key.Len), rand.Uint64()|1
	suffix := "any"
	if plain {
		suffix = map[bool]string{false: "w4", true: "w0"}[wide]
	}
	x.kernel = fmt.Sprintf("_k%d_%s", x.width(), suffix)
	return x.floatUnits(values)
}

// carryIn lays out the carries of sums in half words or in whole words. Half words take less
// memory, but a row waits to see whether they are full, which takes a sixth longer.
func (x *aggregation) carryIn(halves bool) {
	x.args.words = x.folds
	n := 0
	for i := range x.args.columns {
		c := &x.args.column[i]
		switch {
		case c.fold < foldSumI32 || c.fold > foldSumU64:
			continue
		case halves && n%2 == 1:
			c.carry, c.part = x.args.words-1, upperHalf
		case halves:
			c.carry, c.part = x.args.words, lowerHalf
			x.args.words++
		default:
			c.carry, c.part = x.args.words, wholeWord
			x.args.words++
		}
		n++
	}
}

// floatUnits finds the unit of the sums of each column of floats, by its least exponent.
func (x *aggregation) floatUnits(values []gpu.Column) error {
	var of []int
	for i, g := range x.list {
		if g.Kind == gpu.Sum && g.Input.IsFloat() && values[i].Len > 0 {
			of = append(of, i)
		}
	}
	if len(of) == 0 {
		return nil
	}
	found := make([][2]uint32, len(of))
	for i := range found {
		found[i] = [2]uint32{^uint32(0), 0}
	}
	exponents := upload(x.op, found)
	a := floatRangeArgs{partitions: uint32(x.rows.Ends.Len)}
	if a.partitions > 0 { // rows outside of partitions are unspecified
		a.offsets, a.ends = addr(x.rows.Offsets.Data), addr(x.rows.Ends.Data)
	}
	for i, k := range of {
		v := values[k]
		a.src, a.valid, a.exponents, a.n, a.load = addr(v.Data), addr(v.Valid), addr(exponents)+uint64(8*i),
			int64(v.Len), loadOf(v.Type)
		launch(x.op, "float_range", x.grid(v.Len), 256, 0, a)
	}
	if !x.read(exponents, 0, gpu.BytesOf(found)) {
		return nil
	}
	x.free(exponents)
	for i, k := range of {
		lo, hi := found[i][0], found[i][1]
		if hi == 0 { // no value but 0
			lo = 1
		} else if hi == 0x7ff {
			return gpu.Unfit("sums of floats that are infinite or NaN")
		} else if hi-lo > mostFloatSpread {
			return gpu.Unfit("sums of floats whose sizes differ by more than a factor of 2^%d", mostFloatSpread)
		}
		x.args.column[x.at[k]-1].flip, x.args.column[x.at[k]].flip = uint64(lo), uint64(lo)
	}
	return nil
}

// width returns the bytes of a key.
func (x *aggregation) width() int { return x.rows.Key.Type.Width() }

// slotBytes returns the bytes of a slot in shared memory.
func (x *aggregation) slotBytes(copies int) int { return x.width() + 4*int(x.args.words)*copies }

// hotBytes returns the bytes of the cells of a hot slot.
func (x *aggregation) hotBytes() int { return aggregateHot * 4 * int(x.args.words) }

// shared returns the bytes of shared memory of a block.
func (x *aggregation) shared(slots, copies int) int {
	return (slots+2)*x.slotBytes(copies) + x.hotBytes()
}

// sharedDense is shared for dense keys, for which a slot has one bit.
func (x *aggregation) sharedDense(slots, copies int) int {
	return blocks(slots+2, 64)*8 + (slots+2)*4*int(x.args.words)*copies + x.hotBytes()
}

// budget returns the shared memory that a block may use if a multiprocessor runs perMulti blocks.
// Each block needs 1 KiB more, and some memory for its variables.
func (x *aggregation) budget(perMulti int) int {
	return (x.q.dev.props.sharedPerBlock+1024)/perMulti - 1024 - 256
}

// mostSlots returns the slots of the largest table if a multiprocessor runs perMulti blocks.
func (x *aggregation) mostSlots(perMulti int) int {
	return ((x.budget(perMulti)-x.hotBytes())/x.slotBytes(1) - 2) &^ 3
}

// room allocates the result for n groups.
func (x *aggregation) room(n int) {
	for _, c := range x.out {
		x.free(c.Data, c.Valid)
	}
	x.out = []gpu.Column{{Type: x.rows.Key.Type}}
	for _, g := range x.list {
		t := g.Output
		if g.Kind == gpu.Count || g.Kind == gpu.CountAll {
			t = gpu.Of(gpu.Int64)
		}
		x.out = append(x.out, gpu.Column{Type: t})
	}
	for i := range x.out {
		c := &x.out[i]
		c.Data = x.alloc(int64(n) * int64(c.Type.Width()))
		if i == 0 {
			continue
		}
		to := &x.args.column[x.at[i-1]]
		to.out = addr(c.Data)
		if to.fold != foldCount && to.valid != 0 {
			c.Valid = x.alloc(gpu.BitmapBytes(n))
			x.fill(c.Valid, 0, c.Valid.Size(), 0)
			to.outValid = addr(c.Valid)
		}
	}
	x.args.outKey, x.args.most = addr(x.out[0].Data), uint64(n)
}

// run aggregates. It repeats this if there are more groups than the hint says.
func (x *aggregation) run() ([]gpu.Column, error) {
	n := x.rows.Key.Len
	x.state = x.alloc(int64(unsafe.Sizeof(aggregateState{})))
	x.args.state = addr(x.state)
	most := min(n, max(x.hint.Groups+x.hint.Groups/8, 1<<12))
	for {
		x.room(most)
		var found int
		var err error
		if x.rows.Offsets.Len > 2 || x.rows.Ends.Len > 0 {
			found, err = x.partitions()
		} else {
			found, err = x.single()
		}
		if err != nil || x.err != nil {
			return nil, err
		}
		if found <= most {
			for i := range x.out {
				c := &x.out[i]
				c.Len, c.Data = found, x.shrink(c.Data, int64(found)*int64(c.Type.Width()))
				if c.Valid != nil {
					c.Valid = x.shrink(c.Valid, gpu.BitmapBytes(found))
				}
			}
			return x.out, nil
		}
		most = found
	}
}

// single aggregates one partition: all blocks have slices of it.
func (x *aggregation) single() (int, error) {
	a, sms, n := &x.args, x.q.dev.props.multiprocessors, x.rows.Key.Len
	want := x.hint.Groups
	span := uint64(x.hint.Hi) - uint64(x.hint.Lo)
	dense := false
	if x.hint.Dense && span < gpu.MaxRows {
		fits := func() bool { return x.sharedDense(int(span)+1, 1) <= x.budget(1) }
		if dense = fits(); !dense {
			x.carryIn(true)
			if dense = fits(); !dense {
				x.carryIn(false)
			}
		}
	}
	shared, fit := x.shared, x.mostSlots(1)/2 // the number of groups for which a table is fast
	if dense {
		want, a.low = int(span)+1, uint64(x.hint.Lo)
		shared, fit = x.sharedDense, want
	}
	far := 1 << 14 // the minimum number of groups of the table in device memory
	if x.hint.Skewed && want > fit {
		far, want = max(far, want), fit
	}
	if want > fit {
		return x.ids(want)
	}
	need := max(want, 32)
	if x.hint.Private {
		need = max(want, 2)
	}
	if want == 0 {
		need = fit
	}
	if !dense {
		need = max(2*need, aggregateLeast)
	}
	need = (need + 3) &^ 3
	perMulti := 1
	if dense && shared(need, 1) <= x.budget(2) || 2*need <= x.mostSlots(2) {
		perMulti = 2
	}
	// Free slots make it likely that a key is in its first slot: with 3 slots per group a row takes
	// 1.2 times as long as with 6. Copies make it unlikely that another lane uses the same slot.
	slots := need
	if !dense {
		slots = max(slots, min(4*need, x.mostSlots(perMulti)))
	}
	copies, mostCopies := 1, 32
	if x.hint.Private {
		slots, mostCopies = need, 1024/perMulti
	}
	for copies < mostCopies && shared(slots, 2*copies) <= x.budget(perMulti) {
		copies *= 2
	}
	if x.hint.Private && copies < mostCopies {
		return 0, gpu.ErrManyGroups
	}
	grid := max(1, min(sms*perMulti, blocks(n, 4096)))
	a.slots, a.copies = uint32(slots), uint32(copies)
	a.slice = uint32(blocks(blocks(n, grid), 32) * 32)
	a.mostItems = uint32(blocks(n, int(a.slice)))
	x.fill(x.state, 0, x.state.Size(), 0)
	kernel := "aggregate_slices"
	if dense {
		kernel = "aggregate_dense"
	}
	x.slices(kernel, 1, grid, 1024/perMulti, shared(slots, copies), max(slots, far))
	return x.found()
}

// ids aggregates one partition whose aggregates fit a block only without the keys, if the keys
// alone fit a block, too.
func (x *aggregation) ids(want int) (int, error) {
	a, sms, n := &x.args, x.q.dev.props.multiprocessors, x.rows.Key.Len
	plain := !strings.HasSuffix(x.kernel, "any")
	ranks := func(slots int) int { return 8 * (slots/32 + 1) }
	keys := min(x.budget(1)/x.width()*32/34-64, 1<<16-4) &^ 3
	room := func() int { return (x.budget(1)-ranks(keys)-x.hotBytes())/(4*max(int(a.words), 1)) - 2 }
	if want > room() {
		x.carryIn(true)
	}
	slots := room()
	if !plain || want > slots || 4*keys < aggregateIDs*want {
		return 0, gpu.ErrManyGroups
	}
	grid := max(1, min(sms, blocks(n, 4096)))
	a.slots, a.copies, a.keySlots = uint32(slots), 1, uint32(keys)
	a.slice = uint32(blocks(blocks(n, grid), 32) * 32)
	grid = blocks(n, int(a.slice))
	rows, dictionary := x.alloc(2*int64(n)), x.alloc(int64(grid)*int64(slots)*int64(x.width()))
	a.ids, a.dictionary = addr(rows), addr(dictionary)
	x.fill(x.state, 0, x.state.Size(), 0)
	x.slices("aggregate_ids", 1, grid, 1024,
		max(ranks(keys)+(keys+2)*x.width(), ranks(keys)+(slots+2)*4*int(a.words)+x.hotBytes()), slots)
	x.free(rows, dictionary)
	return x.found()
}

// slices aggregates the slices of large partitions with a kernel, and writes their groups. Each of
// these partitions has a table in device memory for so many groups; shared is the shared memory of
// a block.
func (x *aggregation) slices(kernel string, tables, grid, threads, shared, groups int) {
	a := &x.args
	a.farSlots = 1 << bits.Len(uint(2*groups-1))
	keys := x.alloc(int64(tables) * int64(a.farSlots+1) * int64(x.width()))
	words := x.alloc(int64(tables) * int64(a.farSlots+1) * int64(max(a.farCount, 1)) * 8)
	if x.err != nil {
		return
	}
	x.op.fill(keys, 0, keys.Size(), 0xff)
	x.op.fill(words, 0, words.Size(), 0)
	a.farKeys, a.farWords = addr(keys), addr(words)
	launch(x.op, kernel+x.kernel, grid, threads, shared, *a)
	launch(x.op, "aggregate_far"+x.kernel, tables*(int(a.farSlots)/(8*256)+1), 256, 0, *a)
	x.free(keys, words)
}

// found returns the number of groups.
func (x *aggregation) found() (int, error) {
	s := make([]aggregateState, 1)
	if !x.read(x.state, 0, gpu.BytesOf(s)) {
		return 0, nil
	}
	if s[0].failed != 0 {
		return 0, gpu.Failed("sum overflows 128 bits")
	}
	if s[0].full != 0 || s[0].groups > gpu.MaxRows {
		return 0, gpu.ErrManyGroups
	}
	return int(s[0].groups), nil
}

// partitions aggregates partitions, one per block, and then the slices of large partitions.
func (x *aggregation) partitions() (int, error) {
	a, sms, n := &x.args, x.q.dev.props.multiprocessors, x.rows.Key.Len
	a.offsets, a.partitions, a.copies = addr(x.rows.Offsets.Data), uint32(x.rows.Offsets.Len-1), 1
	if a.ends = a.offsets + 4; x.rows.Ends.Len > 0 {
		a.ends = addr(x.rows.Ends.Data)
	}
	mean := blocks(n, int(a.partitions))
	groups := blocks(x.hint.Groups, int(a.partitions))
	if groups == 0 {
		groups = mean
	}
	perMulti := 1
	for perMulti < 8 && 8*groups <= 3*x.mostSlots(2*perMulti) {
		perMulti *= 2
	}
	slots := x.mostSlots(perMulti)
	a.slots = uint32(slots)
	a.slice = uint32(blocks(max(aggregateSpread*mean, aggregateSlice), 32) * 32)
	// blocks would wait
	if rounds := blocks(int(a.partitions), sms*perMulti); rounds*sms*perMulti > int(a.partitions)*10/9 {
		a.slice = uint32(blocks(max(blocks(n, 4*sms), aggregateSlice), 32) * 32)
	}
	most := 2*blocks(n, int(a.slice)) + int(a.partitions)
	a.mostItems = uint32(most)
	items := x.alloc(int64(most) * aggregateItem)
	a.items = addr(items)
	x.fill(x.state, 0, x.state.Size(), 0)
	launch(x.op, "aggregate_partitions"+x.kernel, min(sms*perMulti, int(a.partitions)), 1024/perMulti,
		x.shared(slots, 1), *a)
	s := make([]aggregateState, 1)
	if !x.read(x.state, 0, gpu.BytesOf(s)) {
		return 0, nil
	}
	if s[0].tables == 0 {
		return x.found()
	}
	if int(s[0].items) > most || int(s[0].tables) > max(4*sms, int(a.partitions)/8) {
		return 0, gpu.ErrManyGroups
	}
	// A partition with many more rows than others has heavy hitters. These find their slots first,
	// and in copies lanes conflict less often: with 3 slots for 2 groups, rows by Zipf take half
	// the time, and uniform rows twice the time.
	slots, copies := 4*groups, 1
	if int(s[0].largest) > 2*mean {
		slots = groups * 3 / 2
	}
	slots = min(max(slots, 1<<11), x.mostSlots(1))
	for copies < 32 && x.shared(slots, 2*copies) <= x.budget(1) {
		copies *= 2
	}
	a.slots, a.copies, a.mostItems = uint32(slots)&^3, uint32(copies), s[0].items
	x.slices("aggregate_slices", int(s[0].tables), min(sms, int(s[0].items)), 1024, x.shared(int(a.slots), copies),
		slots)
	x.free(items)
	return x.found()
}
