package cuda

import (
	"errors"
	"fmt"
	"math"

	"github.com/gstream/gstream/gpu"
)

// vector is a growing array on the device with one element of state per group.
type vector struct {
	lease *gpu.Lease
	elem  int64 // bytes
	fill  byte  // byte that new elements are filled with
	buf   *gpu.Buffer
}

// grow makes room for n elements and fills the new ones. It submits this work at once,
// because work that is submitted later may be dropped after an error.
func (v *vector) grow(o *op, n int) {
	have := v.buf.Size()
	need := int64(n) * v.elem
	if need <= have {
		return
	}
	b := o.allocFrom(v.lease, max(need, min(2*have, have+maxGrowth)))
	o.copy(b, 0, v.buf, 0, have)
	o.fill(b, have, b.Size()-have, v.fill)
	if o.failed() {
		b.Release()
		return
	}
	v.buf.Release()
	v.buf = b
}

// maxGrowth bounds the bytes that a vector grows beyond the current need.
const maxGrowth = 256 << 20

// at is the address of element i.
func (v *vector) at(i int) uint64 {
	if v.buf == nil {
		return 0
	}
	return addr(v.buf) + uint64(i)*uint64(v.elem)
}

func (v *vector) release() {
	v.buf.Release()
	v.buf = nil
}

// batch has the rows of one update, as addresses on the device.
type batch struct {
	ids, values, valid uint64
	column             gpu.Column
	n, groups          int
	rest               int  // rows from the first one of this batch to the end of the update
	runs               bool // rows of a group are consecutive
}

// runRows is RUN_ROWS of accumulate.cu: the number of rows of a warp.
const runRows = 512

// maxBatch bounds the rows of a batch, so that sums of limbs fit 64 bits: 2^30 values below 2^33.
const maxBatch = 1 << 30

// state is the part of an accumulator that differs by aggregate and type.
type state interface {
	// update folds a batch into the state: all of it or, if memory is denied, nothing. It makes
	// room before it launches a kernel that writes the state.
	update(o *op, b batch)
	// write writes the values of groups [from, from+out.Len) to out.
	write(o *op, out *gpu.Column, from int)
	release()
}

// accumulator implements gpu.Accumulator over a state.
type accumulator struct {
	dev   *Device
	agg   gpu.Aggregate
	state state
	// seen tells which groups have had a value that is not null. It is empty until the
	// first null: all groups have had a value until then.
	seen   vector
	groups int
}

// NewAccumulator implements gpu.Queue.
func (q *queue) NewAccumulator(l *gpu.Lease, a gpu.Aggregate) (gpu.Accumulator, error) {
	if q.err != nil {
		return nil, q.err
	}
	x := &accumulator{dev: q.dev, agg: a, seen: vector{lease: l, elem: 1}}
	in := a.Input
	switch a.Kind {
	case gpu.CountAll, gpu.Count:
		x.state = newIntSum(l, "ones", 1)
	case gpu.Sum:
		switch {
		case in.IsFloat():
			x.state = newFloatSum(l, in)
		case in.Wide:
			x.state = newIntSum(l, "wide", 4)
		case in.IsInteger() || in.Kind == gpu.Decimal:
			x.state = newIntSum(l, sumNames[loadOf(in)], 1+in.Width()/8)
		default:
			return nil, fmt.Errorf("sum is not defined on %v", in)
		}
	case gpu.Min, gpu.Max:
		switch {
		case in.IsVar():
			x.state = &textExtreme{max: a.Kind == gpu.Max, lease: l, acc: x}
		default:
			x.state = newExtreme(l, a.Kind == gpu.Max, in)
		}
	case gpu.BitAnd, gpu.BitOr, gpu.BitXor:
		if !in.IsInteger() {
			return nil, fmt.Errorf("%v is not defined on %v", a.Kind, in)
		}
		x.state = newBitwise(l, a.Kind, in)
	default:
		return nil, fmt.Errorf("%v is not an aggregate of devices", a.Kind)
	}
	return x, nil
}

// NewArgMinMax implements gpu.Queue.
func (q *queue) NewArgMinMax(*gpu.Lease, gpu.ArgMinMax) (gpu.ArgMinMaxState, error) {
	return nil, errors.New("a GPU has no state of arg_min and arg_max; sort the rows")
}

// sumNames maps the load kind of values to the name of the kernel that sums them.
var sumNames = map[int32]string{loadI8: "i8", loadI16: "i16", loadI32: "i32", loadI64: "i64",
	loadU8: "u8", loadU16: "u16", loadU32: "u32", loadU64: "u64", loadF32: "f32", loadF64: "f64"}

func (x *accumulator) counts() bool { return x.agg.Kind == gpu.CountAll || x.agg.Kind == gpu.Count }

// Update implements gpu.Accumulator.
func (x *accumulator) Update(gq gpu.Queue, a gpu.Assignment, values gpu.Column, groups int) (err error) {
	q, err := x.dev.queue(gq)
	if err != nil {
		return err
	}
	if values.Type != x.agg.Input && x.agg.Kind == gpu.Sum && x.agg.Takes(values.Type) {
		huge := &gpu.Program{Inputs: []gpu.Type{values.Type},
			Code: []gpu.Instr{{Op: gpu.OpCast, Type: x.agg.Input, Args: []int{0}, Mask: -1}}, Outputs: []int{1}}
		wide, err := q.Eval(x.seen.lease, huge, []gpu.Column{values}, values.Len)
		if err != nil {
			return err
		}
		values = wide[0]
		defer values.Release()
	}
	o := q.begin(x.agg.Kind.String(), x.seen.lease)
	defer end(o, new(struct{}), &err)
	ids := a.IDs()
	if o.takes(ids, values) != nil {
		return o.err
	}
	if x.agg.Kind == gpu.CountAll {
		values = gpu.Column{Len: ids.Len}
	} else if values.Type != x.agg.Input || values.Len != ids.Len {
		return fmt.Errorf("%v of %d rows of %v, planned for %v over %d rows", x.agg.Kind, values.Len, values.Type,
			x.agg.Input, ids.Len)
	}
	if values.Dict != nil && !values.Type.IsVar() {
		values = o.expand(values)
	}
	as, _ := a.(assignment)
	b := batch{ids: addr(ids.Data), values: addr(values.Data), valid: addr(values.Valid), column: values, n: ids.Len,
		groups: groups, rest: ids.Len, runs: as.runs}
	noted := !x.counts() && (b.valid != 0 || x.seen.buf != nil)
	if noted {
		x.growSeen(o, groups)
	}
	for from := 0; from < b.n || from == 0; from += maxBatch {
		x.state.update(o, b.slice(from, min(from+maxBatch, b.n)))
	}
	if noted {
		launch(o, "mark_seen", blocks(b.n, 256), 256, 0,
			seenArgs{ids: b.ids, valid: b.valid, seen: x.seen.at(0), n: int64(b.n)})
	}
	if !o.failed() {
		x.groups = groups
	}
	return nil
}

// slice returns rows [from, to); from is a multiple of 64.
func (b batch) slice(from, to int) batch {
	if from == 0 && to == b.n {
		return b
	}
	b.ids += uint64(from) * 4
	b.values += uint64(from) * uint64(b.column.Type.Width())
	if b.column.Type.Kind == gpu.Bool {
		b.values += uint64(from) / 8
	}
	if b.valid != 0 {
		b.valid += uint64(from) / 8
	}
	b.n, b.rest = to-from, b.n-from
	return b
}

type seenArgs struct {
	ids, valid, seen, bits uint64
	n                      int64
}

// growSeen makes room in seen for all groups. The first call marks all groups so far.
func (x *accumulator) growSeen(o *op, groups int) {
	first := x.seen.buf == nil
	x.seen.grow(o, groups)
	if first {
		o.fill(x.seen.buf, 0, min(int64(x.groups), x.seen.buf.Size()), 1)
		o.flush()
	}
}

// Result implements gpu.Accumulator.
func (x *accumulator) Result(gq gpu.Queue, l *gpu.Lease, from, to int) (out gpu.Column, err error) {
	q, err := x.dev.queue(gq)
	if err != nil {
		return out, err
	}
	o := q.begin(x.agg.Kind.String(), l)
	defer end(o, &out, &err)
	if err := gpu.CheckGroups(x.agg.Kind.String(), from, to, x.groups); err != nil {
		return out, err
	}
	out = gpu.Column{Type: x.agg.Output, Len: to - from}
	if x.seen.buf != nil {
		out.Valid = o.keep(o.alloc(gpu.BitmapBytes(out.Len)))
		launch(o, "seen_bits", blocks((out.Len+63)/64*64, 256), 256, 0,
			seenArgs{seen: x.seen.at(from), bits: addr(out.Valid), n: int64(out.Len)})
	}
	x.state.write(o, &out, from)
	return out, nil
}

// Release implements gpu.Accumulator.
func (x *accumulator) Release() {
	x.seen.release()
	x.state.release()
}

// sharedPlan says how a batch is folded in shared memory.
type sharedPlan struct{ copies, grid, block, bytes int }

// inShared plans to fold a batch in shared memory, into groups of so many bytes, with up to copies
// copies of each group for the lanes of a warp. ok is false if the groups do not fit, or are too
// many for the rows.
func (o *op) inShared(b batch, bytes, copies int) (p sharedPlan, ok bool) {
	props := &o.q.dev.props
	for copies > 1 && b.groups*copies*bytes > defaultShared {
		copies /= 2
	}
	p = sharedPlan{copies: copies, block: 512, bytes: b.groups * copies * bytes}
	perMulti := 4
	if p.bytes > defaultShared {
		p.block, perMulti = 1024, max(min(2, props.sharedPerBlock/(p.bytes+1024)), 1)
	}
	p.grid = min(props.multiprocessors*perMulti, blocks(b.n, p.block))
	return p, p.bytes <= props.sharedPerBlock && b.groups*p.grid <= max(b.n/2, 64)
}

type sumArgs struct {
	ids, values, valid, limbs, tops uint64
	n                               int64
	groups, copies                  int32
}

// add folds the rows of a batch into limbs.
func (o *op) add(name string, count int, b batch, limbs, tops uint64) {
	a := sumArgs{ids: b.ids, values: b.values, valid: b.valid, limbs: limbs, tops: tops, n: int64(b.n),
		groups: int32(b.groups)}
	if b.runs {
		launch(o, "sum_runs_"+name, blocks(b.n, runRows*8), 256, 0, a)
		return
	}
	if p, ok := o.inShared(b, 8*count, 32); ok {
		a.copies = int32(p.copies)
		launch(o, "sum_shared_"+name, p.grid, p.block, p.bytes, a)
		return
	}
	launch(o, "sum_"+name, blocks(b.n, 4*256), 256, 0, a)
}

// intSum sums integers and decimals exactly. It also counts.
type intSum struct {
	name   string
	count  int // limbs of a group
	limbs  vector
	base   vector // sums of folded limbs, 128 bits per group
	failed vector // see FoldArgs
	rows   int    // added since the limbs were folded
	groups int
}

func newIntSum(l *gpu.Lease, name string, limbs int) *intSum {
	return &intSum{name: name, count: limbs, limbs: vector{lease: l, elem: int64(limbs) * 8},
		base: vector{lease: l, elem: 16}, failed: vector{lease: l, elem: 8}}
}

type foldArgs struct {
	limbs, base, out, failed, mostLow, mostHigh uint64
	n                                           int64
	count, width                                int32
}

func (s *intSum) update(o *op, b batch) {
	s.limbs.grow(o, b.groups)
	if s.base.buf != nil || s.rows+b.rest > maxBatch {
		s.base.grow(o, b.groups)
		s.failed.grow(o, 1)
	}
	if o.failed() {
		return
	}
	if s.rows+b.n > maxBatch {
		s.fold(o)
	}
	s.groups = b.groups
	o.add(s.name, s.count, b, s.limbs.at(0), 0)
	s.rows += b.n
}

// fold adds the limbs to the base.
func (s *intSum) fold(o *op) {
	launch(o, "sum_fold", blocks(s.groups, 256), 256, 0,
		foldArgs{limbs: s.limbs.at(0), base: s.base.at(0), failed: s.failed.at(0), n: int64(s.groups),
			count: int32(s.count)})
	s.rows = 0
}

func (s *intSum) write(o *op, out *gpu.Column, from int) {
	n, width := out.Len, out.Type.Width()
	out.Data = o.keep(o.alloc(int64(n) * int64(width)))
	failed := o.alloc(8)
	o.write(failed, 0, gpu.BytesOf([]int32{math.MaxInt32, 0}))
	if s.failed.buf != nil {
		o.copy(failed, 4, s.failed.buf, 4, 4)
	}
	most := gpu.Int128{Lo: math.MaxUint64, Hi: -1} // the largest unsigned value: no sum is above it
	if out.Type.Kind == gpu.Decimal {
		most = gpu.Pow10(int(out.Type.Precision))
	}
	a := foldArgs{limbs: s.limbs.at(from), base: s.base.at(from), out: addr(out.Data), failed: addr(failed),
		mostLow: most.Lo, mostHigh: uint64(most.Hi), n: int64(n), count: int32(s.count), width: int32(width)}
	launch(o, "sum_write", blocks(n, 256), 256, 0, a)
	var at [2]int32
	if out.Type.Kind == gpu.Int64 || !o.read(failed, 0, gpu.BytesOf(at[:])) {
		return // a count
	}
	switch {
	case at[1] != 0:
		o.fail(gpu.Failed("sum overflows 128 bits"))
	case at[0] != math.MaxInt32:
		a.limbs, a.base = s.limbs.at(from+int(at[0])), s.base.at(from+int(at[0]))
		o.fail(s.misfit(o, a, out.Type))
	}
}

// misfit returns the error for a sum that does not fit its type.
func (s *intSum) misfit(o *op, a foldArgs, t gpu.Type) error {
	value := o.alloc(16)
	a.out, a.n, a.width = addr(value), 1, 16
	launch(o, "sum_write", 1, 32, 0, a)
	var v [1]gpu.Int128
	if !o.read(value, 0, gpu.BytesOf(v[:])) {
		return o.err
	}
	return gpu.Failed("sum %s does not fit %v", v[0].Format(int(t.Scale)), t)
}

func (s *intSum) release() {
	s.limbs.release()
	s.base.release()
	s.failed.release()
}

// floatSum sums floats. The sum of a batch does not depend on the order of its rows.
type floatSum struct {
	name    string
	single  bool
	limbs   vector // of the batch, zero between batches
	tops    vector // largest exponents of the batch, zero between batches
	special vector
	sums    vector
}

func newFloatSum(l *gpu.Lease, t gpu.Type) *floatSum {
	return &floatSum{name: sumNames[loadOf(t)], single: t.Kind == gpu.Float32, limbs: vector{lease: l, elem: 24},
		tops: vector{lease: l, elem: 4}, special: vector{lease: l, elem: 4}, sums: vector{lease: l, elem: 16}}
}

type topArgs struct {
	ids, values, valid, tops, special uint64
	n                                 int64
	single                            int32
}

type floatArgs struct {
	ids, limbs, tops, special, sums, out uint64
	n                                    int64
}

func (s *floatSum) update(o *op, b batch) {
	for _, v := range []*vector{&s.limbs, &s.tops, &s.special, &s.sums} {
		v.grow(o, b.groups)
	}
	t := topArgs{ids: b.ids, values: b.values, valid: b.valid, tops: s.tops.at(0), special: s.special.at(0),
		n: int64(b.n)}
	t.single = flag(s.single)
	launch(o, "float_tops", blocks(b.n, 256), 256, 0, t)
	o.add(s.name, 3, b, s.limbs.at(0), s.tops.at(0))
	f := floatArgs{limbs: s.limbs.at(0), tops: s.tops.at(0), sums: s.sums.at(0), n: int64(b.groups)}
	if b.n < b.groups {
		f.ids, f.n = b.ids, int64(b.n)
	}
	launch(o, "float_fold", blocks(int(f.n), 256), 256, 0, f)
}

func (s *floatSum) write(o *op, out *gpu.Column, from int) {
	out.Data = o.keep(o.alloc(int64(out.Len) * 8))
	launch(o, "float_write", blocks(out.Len, 256), 256, 0,
		floatArgs{special: s.special.at(from), sums: s.sums.at(from), out: addr(out.Data), n: int64(out.Len)})
}

func (s *floatSum) release() {
	for _, v := range []*vector{&s.limbs, &s.tops, &s.special, &s.sums} {
		v.release()
	}
}

// extreme is min or max of values of fixed width, as words with the order of the values; or a bit
// aggregate of integers, whose bits are loaded without a sign.
type extreme struct {
	name string // of the kernels: min, max, bit_and and so on
	load int32
	bits bool
	best vector // words; the high words of 16-byte values
	low  vector // low words of 16-byte values
}

func newExtreme(l *gpu.Lease, largest bool, t gpu.Type) *extreme {
	s := &extreme{name: "min", load: loadOf(t), best: vector{lease: l, elem: 8, fill: 0xff}}
	if largest {
		s.name, s.best.fill = "max", 0
	}
	s.low = s.best
	return s
}

func newBitwise(l *gpu.Lease, kind gpu.AggregateKind, t gpu.Type) *extreme {
	s := newExtreme(l, kind != gpu.BitAnd, t)
	s.name, s.bits = kind.String(), true
	if s.load != loadWide {
		s.load = map[int]int32{1: loadU8, 2: loadU16, 4: loadU32, 8: loadU64}[t.Width()]
	}
	return s
}

type extremeArgs struct {
	ids, values, valid, best uint64
	n                        int64
	groups, load             int32
}

type wideExtremeArgs struct {
	ids, values, valid, high, low, before uint64
	n                                     int64
}

func (s *extreme) update(o *op, b batch) {
	s.best.grow(o, b.groups)
	if s.load == loadWide {
		s.wide(o, b)
		return
	}
	a := extremeArgs{ids: b.ids, values: b.values, valid: b.valid, best: s.best.at(0), n: int64(b.n),
		groups: int32(b.groups), load: s.load}
	if b.runs {
		launch(o, "extreme_runs_"+s.name, blocks(b.n, runRows*8), 256, 0, a)
		return
	}
	if p, ok := o.inShared(b, 8, 1); ok {
		launch(o, "extreme_shared_"+s.name, p.grid, p.block, p.bytes, a)
		return
	}
	launch(o, "extreme_"+s.name, blocks(b.n, 256), 256, 0, a)
}

func (s *extreme) wide(o *op, b batch) {
	s.low.grow(o, b.groups)
	a := wideExtremeArgs{ids: b.ids, values: b.values, valid: b.valid, high: s.best.at(0), low: s.low.at(0),
		n: int64(b.n)}
	if s.bits {
		launch(o, "wide_"+s.name, blocks(b.n, 256), 256, 0, a)
		return
	}
	before := o.alloc(int64(b.groups) * 8)
	if o.failed() {
		return
	}
	o.copy(before, 0, s.best.buf, 0, before.Size())
	a.before = addr(before)
	launch(o, "wide_high_"+s.name, blocks(b.n, 256), 256, 0, a)
	g := a
	g.n = int64(b.groups)
	launch(o, "wide_anew_"+s.name, blocks(b.groups, 256), 256, 0, g)
	launch(o, "wide_low_"+s.name, blocks(b.n, 256), 256, 0, a)
}

type extremeWriteArgs struct {
	best, low, out uint64
	n              int64
	load, width    int32
}

func (s *extreme) write(o *op, out *gpu.Column, from int) {
	size := int64(out.Len) * int64(out.Type.Width())
	if out.Type.Kind == gpu.Bool {
		size = gpu.BitmapBytes(out.Len)
	}
	out.Data = o.keep(o.alloc(size))
	load := s.load
	if s.bits {
		load = loadU64 // the words are not ordered
	}
	launch(o, "extreme_write", blocks((out.Len+63)/64*64, 256), 256, 0,
		extremeWriteArgs{best: s.best.at(from), low: s.low.at(from),
			out: addr(out.Data), n: int64(out.Len), load: load, width: int32(out.Type.Width())})
}

func (s *extreme) release() {
	s.best.release()
	s.low.release()
}

// textExtreme is min or max of strings and binaries, by bytes.
type textExtreme struct {
	max            bool
	lease          *gpu.Lease
	acc            *accumulator
	groups         int // groups that have an entry in offsets
	offsets, bytes *gpu.Buffer
}

type textExtremeArgs struct {
	ids                                 uint64
	values                              texts
	valid                               uint64
	kept                                texts
	seen, refs, changed, lengths, bytes uint64
	n                                   int64
	had, max                            int32
}

func (s *textExtreme) update(o *op, b batch) {
	refs, changed := o.alloc(int64(b.groups)*4), o.alloc(4)
	o.fill(refs, 0, refs.Size(), 0xff)
	o.fill(changed, 0, 4, 0)
	a := textExtremeArgs{ids: b.ids, values: textsOf(b.column), valid: b.valid,
		kept: texts{offsets: addr(s.offsets), bytes: addr(s.bytes)},
		seen: s.acc.seen.at(0), refs: addr(refs), changed: addr(changed), n: int64(b.n), had: int32(s.groups)}
	a.max = flag(s.max)
	launch(o, "text_extreme", blocks(b.n, 256), 256, 0, a)
	var some [1]int32
	if !o.read(changed, 0, gpu.BytesOf(some[:])) || some[0] == 0 && b.groups == s.groups {
		return
	}
	s.rebuild(o, a, b.groups)
}

// rebuild computes the values after a batch from the values before it and the values of the batch.
func (s *textExtreme) rebuild(o *op, a textExtremeArgs, groups int) {
	offsets := o.allocFrom(s.lease, int64(groups+1)*4)
	a.lengths, a.n = addr(offsets), int64(groups)
	launch(o, "text_lengths", blocks(groups, 256), 256, 0, a)
	total := o.scanTotal(offsets, groups, true)
	if total > math.MaxInt32 {
		o.fail(gpu.TooManyBytes(total, groups))
	}
	bytes := o.allocFrom(s.lease, total)
	a.bytes = addr(bytes)
	if total > 0 {
		launch(o, "text_bytes", blocks(groups, 256), 256, 0, a)
	}
	if o.failed() {
		offsets.Release()
		bytes.Release()
		return
	}
	s.release()
	s.offsets, s.bytes, s.groups = offsets, bytes, groups
}

func (s *textExtreme) write(o *op, out *gpu.Column, from int) {
	if out.Len == 0 {
		out.Offsets = o.keep(o.alloc(4))
		o.fill(out.Offsets, 0, 4, 0)
		return
	}
	var ends [2]int32
	o.read(s.offsets, int64(from)*4, gpu.BytesOf(ends[:1]))
	o.read(s.offsets, int64(from+out.Len)*4, gpu.BytesOf(ends[1:]))
	out.Offsets = o.keep(o.alloc(int64(out.Len+1) * 4))
	launch(o, "shift", blocks(out.Len+1, 256), 256, 0,
		shiftArgs{src: addr(s.offsets) + uint64(from)*4, dst: addr(out.Offsets), n: int64(out.Len + 1), relative: 1})
	out.Data = o.keep(o.alloc(int64(ends[1] - ends[0])))
	o.copy(out.Data, 0, s.bytes, int64(ends[0]), out.Data.Size())
}

func (s *textExtreme) release() {
	s.offsets.Release()
	s.bytes.Release()
	s.offsets, s.bytes = nil, nil
}
