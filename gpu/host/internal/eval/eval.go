// Package eval evaluates programs, the compiled form of expressions, over columns on CPU cores.
package eval

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/jsontext"
	"github.com/gstream/gstream/gpu/regex"
)

const (
	// batchRows is the number of rows of a batch over which a program runs; a multiple of 64. The
	// registers of a batch stay in the first two cache levels, and the cost of dispatching an
	// instruction is negligible.
	batchRows  = 2048
	batchWords = batchRows / 64
	// grain is the number of rows that a core takes at a time.
	grain = 16 * batchRows
)

// evaluation is one call of Run. It is read-only while batches run.
type evaluation struct {
	cores  parallel.Cores
	lease  *gpu.Lease
	p      *gpu.Program
	in     []gpu.Column
	n      int
	code   []instruction // the instructions that batches run
	needed []bool        // registers that batches compute
	loaded []bool        // inputs whose values batches read
	dicts  dictResults
	outs   []output
	frames []*frame // one for each worker, made at its first batch
}

// instruction is an instruction of the program, with data that is prepared once per call.
type instruction struct {
	*gpu.Instr
	result int
	like   *likePattern
	regexp *regex.Automaton
	format *gpu.TimeFormat // of OpParseTime
	set    any             // the set of OpIn, by the type of its argument
}

// Run evaluates a program over n rows of its inputs, as gpu.Queue.Eval does. It runs all
// instructions over one batch of rows, then over the next. Cores share the batches.
func Run(cores parallel.Cores, l *gpu.Lease, p *gpu.Program, in []gpu.Column,
	n int) (cols []gpu.Column, err error) {
	e := &evaluation{cores: cores, lease: l, p: p, in: in, n: n, frames: make([]*frame, max(cores.Threads, 1))}
	if err := e.check(); err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range e.frames {
			if f != nil {
				f.release()
			}
		}
		e.dicts.release()
		if err != nil {
			e.releaseOutputs()
		}
	}()
	if err := e.evalDictionaries(); err != nil {
		return nil, err
	}
	if err := e.plan(); err != nil {
		return nil, err
	}
	if err := e.openOutputs(); err != nil {
		return nil, err
	}
	if e.batchesNeeded() {
		err = cores.ForWorkers(n, grain, func(worker, lo, hi int) error {
			f := e.frames[worker]
			if f == nil {
				f = newFrame(e)
				e.frames[worker] = f // even if it was denied memory
			}
			if f.err != nil {
				return f.err
			}
			for ; lo < hi; lo += batchRows {
				if err := f.run(lo, min(batchRows, hi-lo)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return e.closeOutputs()
}

// check checks the arguments of eval.
func (e *evaluation) check() error {
	if len(e.in) != len(e.p.Inputs) {
		return fmt.Errorf("evaluate: the program has %d inputs, got %d columns", len(e.p.Inputs), len(e.in))
	}
	if e.n > gpu.MaxRows {
		return fmt.Errorf("evaluate: %d rows at once, at most %d are possible", e.n, gpu.MaxRows)
	}
	for i, c := range e.in {
		if c.Type != e.p.Inputs[i] || c.Len != e.n {
			return fmt.Errorf("evaluate: input %d has %d rows of %v, the program wants %d of %v", i, c.Len, c.Type, e.n,
				e.p.Inputs[i])
		}
	}
	return nil
}

// plan finds the registers that batches must compute and prepares the instructions.
func (e *evaluation) plan() error {
	first := len(e.in)
	e.needed = make([]bool, first+len(e.p.Code))
	e.loaded = make([]bool, first)
	need := func(r int) {
		e.needed[r] = true
		if r < first {
			e.loaded[r] = true
		}
	}
	for _, r := range e.p.Outputs {
		if r >= first && !e.dicts.isString(r) {
			e.needed[r] = true
		}
	}
	for i := len(e.p.Code) - 1; i >= 0; i-- {
		r := first + i
		if !e.needed[r] || e.dicts.has(r) {
			continue
		}
		in := &e.p.Code[i]
		for _, a := range in.Args {
			need(a)
		}
		if in.Mask >= 0 {
			need(in.Mask)
		}
	}
	for i := range e.p.Code {
		r := first + i
		if !e.needed[r] || e.dicts.has(r) {
			continue
		}
		s := instruction{Instr: &e.p.Code[i], result: r}
		switch s.Op {
		case gpu.OpLike, gpu.OpILike:
			if len(s.Args) > 1 {
				break
			}
			s.like = compileLike(s.Value.Str, rune(s.N), s.Op == gpu.OpILike)
		case gpu.OpRegexp, gpu.OpRegexpExtract, gpu.OpRegexpReplace:
			a, err := regex.Compile(s.Value.Str, regex.Options(s.N&0xff))
			if err != nil {
				return fmt.Errorf("in %s: the pattern: %w", s.Text, err)
			}
			s.regexp = a
		case gpu.OpParseTime:
			f, err := gpu.ParseTimeFormat(s.Value.Str)
			if err != nil {
				return fmt.Errorf("in %s: %w", s.Text, err)
			}
			s.format = &f
		case gpu.OpIn:
			s.set = newSet(s.Set, e.typeOf(s.Args[0]))
		}
		e.code = append(e.code, s)
	}
	return nil
}

func (e *evaluation) batchesNeeded() bool {
	for i := range e.outs {
		if e.outs[i].register >= 0 {
			return true
		}
	}
	return false
}

func (e *evaluation) typeOf(r int) gpu.Type {
	if r < len(e.in) {
		return e.p.Inputs[r]
	}
	return e.p.Code[r-len(e.in)].Type
}

// vec is the values of one register over the rows of a batch.
type vec struct {
	typ gpu.Type
	// raw points to the first value of a type of fixed width, bits is the bitmap of a Bool, str has
	// the values of a String or Binary.
	raw  unsafe.Pointer
	bits []uint64
	str  []string
	// valid is the validity bitmap, nil if no row is null.
	valid []uint64
	// owned says that no other register shares valid, so it may be written.
	owned bool
	// constant says that the register has a single value, which is in value, and also in all rows.
	constant bool
	value    gpu.Scalar
}

// vals views the first n values of a register.
func vals[T any](v *vec, n int) []T { return unsafe.Slice((*T)(v.raw), n) }

// frame has the registers and the working memory of one worker.
type frame struct {
	e     *evaluation
	vecs  []vec
	n     int // rows of the batch
	lo    int // first row of the batch
	pool  *scratch
	reuse *reuse // nil for a short program
	// codes has the dictionary codes of the batch for each input; nil until they are needed.
	codes [][]int32
	// functions are those of instructions with gpu.OpJSON and gpu.OpParseNested, by their results.
	functions map[int]*jsontext.Function
	// searched is the memory of searches by regular expressions.
	searched int64
	// reserved is the memory of the lease that is charged for the pool. err is the denial of a
	// larger reservation: the pool grows once more after it, and then the batch ends.
	reserved int64
	err      error
	// fresh is vecs at the start of a batch, with only the constants set. The marks count
	// the parts of the pool that the constants use.
	fresh                          []vec
	markBlocks, markBits, markText int
}

// scratch is working memory. It is on the Go heap, because it contains strings. It is reused from
// call to call. During a call it counts against the call's lease; keptScratch bounds the memory
// that each core keeps between calls. Strings made in a batch are in bytes. When bytes is
// reallocated, strings in the old block stay valid, because they refer to it.
type scratch struct {
	blocks  [][]uint64 // of 2 * batchRows words: any fixed-width register
	bitmaps [][]uint64 // of batchWords words
	strings [][]string // of batchRows strings
	bytes   []byte

	usedBlocks, usedBitmaps, usedStrings int
}

// keptScratch bounds the bytes of a scratch that is kept for the next call.
const keptScratch = 4 << 20

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// size returns the bytes of a scratch.
func (s *scratch) size() int64 {
	return int64(len(s.blocks))*2*batchRows*8 + int64(len(s.bitmaps))*batchWords*8 +
		int64(len(s.strings))*batchRows*16 +
		int64(cap(s.bytes))
}

// count raises the reservation to the size of the pool.
func (f *frame) count() {
	more := f.pool.size() + f.searched - f.reserved
	if more <= 0 || f.err != nil {
		return
	}
	if f.err = f.e.lease.Reserve(more); f.err == nil {
		f.reserved += more
	}
}

func (f *frame) block() []uint64 {
	u := f.reuse
	if u != nil {
		if p := u.pop(&u.blocks); p != nil {
			return p.words
		}
	}
	s := f.pool
	if s.usedBlocks == len(s.blocks) {
		s.blocks = append(s.blocks, make([]uint64, 2*batchRows))
		f.count()
	}
	s.usedBlocks++
	b := s.blocks[s.usedBlocks-1]
	if u != nil {
		u.add(&piece{words: b})
	}
	return b
}

func (f *frame) bitmap() []uint64 {
	u := f.reuse
	if u != nil {
		if p := u.pop(&u.bitmaps); p != nil {
			return p.words
		}
	}
	s := f.pool
	if s.usedBitmaps == len(s.bitmaps) {
		s.bitmaps = append(s.bitmaps, make([]uint64, batchWords))
		f.count()
	}
	s.usedBitmaps++
	b := s.bitmaps[s.usedBitmaps-1]
	if u != nil {
		u.add(&piece{words: b})
	}
	return b
}

func (f *frame) texts() []string {
	u := f.reuse
	if u != nil {
		if p := u.pop(&u.texts); p != nil {
			return p.texts
		}
	}
	s := f.pool
	if s.usedStrings == len(s.strings) {
		s.strings = append(s.strings, make([]string, batchRows))
		f.count()
	}
	s.usedStrings++
	b := s.strings[s.usedStrings-1]
	if u != nil {
		u.add(&piece{texts: b})
	}
	return b
}

// newFrame makes a frame, with its constants filled in. For a long program constants are filled in
// for each batch, when they are needed.
func newFrame(e *evaluation) *frame {
	f := &frame{e: e, vecs: make([]vec, len(e.in)+len(e.p.Code)), pool: scratches.Get().(*scratch), n: batchRows,
		codes: make([][]int32, len(e.in)), functions: map[int]*jsontext.Function{}}
	if f.count(); f.err != nil { // the scratch of an earlier program may exceed the budget of this one
		f.pool, f.err = &scratch{}, nil
	}
	for r := range f.vecs {
		f.vecs[r].typ = e.typeOf(r)
	}
	f.reuse = newReuse(e)
	for _, s := range e.code {
		if s.Op == gpu.OpConst && f.reuse == nil {
			f.constant(&f.vecs[s.result], s.Value)
		}
	}
	f.fresh = slices.Clone(f.vecs)
	f.markBlocks, f.markBits, f.markText = f.pool.usedBlocks, f.pool.usedBitmaps, f.pool.usedStrings
	return f
}

func (f *frame) release() {
	s := f.pool
	for _, v := range s.strings[:s.usedStrings] {
		clear(v) // they may point to released memory
	}
	s.usedBlocks, s.usedBitmaps, s.usedStrings = 0, 0, 0
	if cap(s.bytes) > 1<<20 {
		s.bytes = nil
	}
	s.bytes = s.bytes[:0]
	f.e.lease.Unreserve(f.reserved)
	if s.size() <= keptScratch {
		scratches.Put(s)
	}
}

// run computes the outputs' rows [lo, lo+n).
func (f *frame) run(lo, n int) error {
	f.lo, f.n = lo, n
	s := f.pool
	s.usedBlocks, s.usedBitmaps, s.usedStrings = f.markBlocks, f.markBits, f.markText
	s.bytes = s.bytes[:0]
	clear(f.codes)
	f.reuse.restart()
	copy(f.vecs, f.fresh)
	for r, ok := range f.e.loaded {
		if ok {
			f.load(r)
		}
	}
	for _, r := range f.e.dicts.registers {
		if f.e.needed[r] {
			f.mapCodes(r)
		}
	}
	// Outputs are computed directly in the memory of their columns.
	for i := range f.e.outs {
		f.computeInto(&f.e.outs[i])
	}
	f.reuse.restart() // inputs are kept until the end of the batch
	for i := range f.e.code {
		err := f.execute(&f.e.code[i])
		if f.count(); f.err != nil { // report denied memory rather than its consequences
			return f.err
		}
		if err != nil {
			return err
		}
		f.executed(i)
	}
	for i := range f.e.outs {
		if err := f.store(&f.e.outs[i]); err != nil {
			return err
		}
	}
	return nil
}

// load loads rows of an input into its register.
func (f *frame) load(r int) {
	c, v := &f.e.in[r], &f.vecs[r]
	v.valid = wordsFrom(c.Valid, f.lo, f.n, c.Len)
	switch {
	case c.Dict != nil:
		f.gather(v, &c.Dict.Values, gpu.Values[int32](c.Data, c.Len)[f.lo:f.lo+f.n])
	case c.Type.Kind == gpu.Bool:
		v.bits = wordsFrom(c.Data, f.lo, f.n, c.Len)
	case c.Type.IsVar():
		v.str = f.texts()[:f.n]
		offsets := gpu.Values[int32](c.Offsets, c.Len+1)[f.lo : f.lo+f.n+1]
		views(v.str, offsets, c.Data.Bytes())
	default:
		v.raw = unsafe.Pointer(&c.Data.Bytes()[f.lo*c.Type.Width()])
	}
}

func wordsFrom(b *gpu.Buffer, lo, n, total int) []uint64 {
	if b == nil {
		return nil
	}
	return gpu.Words(b, total)[lo/64 : (lo+n+63)/64]
}

func views(out []string, offsets []int32, data []byte) {
	for i := range out {
		out[i] = view(data, offsets[i], offsets[i+1])
	}
}

// view returns the string data[from:to] without a copy.
func view(data []byte, from, to int32) string {
	b := data[from:to]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// raw returns the memory for a result of fixed width.
func (f *frame) raw(v *vec) unsafe.Pointer {
	if v.raw == nil {
		v.raw = unsafe.Pointer(unsafe.SliceData(f.block()))
	}
	return v.raw
}

// blockOf returns working memory for the values of a batch.
func blockOf[T any](f *frame) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(f.block()))), f.n)
}

// dst returns the memory for a result as n values.
func dst[T any](f *frame, v *vec) []T { return unsafe.Slice((*T)(f.raw(v)), f.n) }

func (f *frame) words() int { return (f.n + 63) / 64 }

// bitsOf returns the bitmap of a Bool result.
func (f *frame) bitsOf(v *vec) []uint64 {
	if v.bits == nil {
		v.bits = f.bitmap()[:f.words()]
	}
	return v.bits
}

// bothValid returns the validity of a result that is null where an argument is null.
func (f *frame) bothValid(args []int) []uint64 {
	var out []uint64
	owned := false
	for _, a := range args {
		v := f.vecs[a].valid
		switch {
		case v == nil:
		case out == nil:
			out = v
		case !owned:
			owned = true
			w := f.bitmap()[:f.words()]
			for i := range w {
				w[i] = out[i] & v[i]
			}
			out = w
		default:
			for i := range out {
				out[i] &= v[i]
			}
		}
	}
	return out
}

// live reports whether an error on row i of an instruction counts: no argument is null there, and
// the mask, if any, is true.
func (f *frame) live(s *instruction, valid []uint64, i int) bool {
	if valid != nil && valid[i>>6]>>(i&63)&1 == 0 {
		return false
	}
	if s.Mask < 0 {
		return true
	}
	m := &f.vecs[s.Mask]
	return m.bits[i>>6]>>(i&63)&1 != 0 && (m.valid == nil || m.valid[i>>6]>>(i&63)&1 != 0)
}

// setNull makes row i of a result null.
func (f *frame) setNull(v *vec, i int) {
	if v.valid == nil {
		v.valid = f.bitmap()[:f.words()]
		for j := range v.valid {
			v.valid[j] = math.MaxUint64
		}
	} else if !v.owned {
		w := f.bitmap()[:f.words()]
		copy(w, v.valid)
		v.valid = w
	}
	v.owned = true
	v.valid[i>>6] &^= 1 << (i & 63)
}

// failed returns the error of an instruction for one value.
func failed(s *instruction, format string, args ...any) error {
	return s.Failed(format, args...)
}

// fail handles a row without a result. The row is an error if it is live and the instruction does
// not turn failures into nulls; otherwise it becomes null.
func (f *frame) fail(s *instruction, v *vec, i int, err func() error) error {
	if s.Tries() || !f.live(s, v.valid, i) {
		f.setNull(v, i)
		return nil
	}
	return err()
}

// functions has the function of each operation.
var functions = [gpu.Ops]func(*frame, *instruction, *vec) error{
	gpu.OpConst: (*frame).refill,
	gpu.OpCast:  (*frame).cast,
	gpu.OpAdd:   (*frame).arithmetic, gpu.OpSub: (*frame).arithmetic, gpu.OpMul: (*frame).arithmetic,
	gpu.OpDiv: (*frame).arithmetic, gpu.OpQuo: (*frame).arithmetic, gpu.OpMod: (*frame).arithmetic,
	gpu.OpPow: (*frame).arithmetic, gpu.OpAtan2: (*frame).arithmetic, gpu.OpNextAfter: (*frame).arithmetic,
	gpu.OpNeg: (*frame).unary, gpu.OpAbs: (*frame).unary, gpu.OpSign: (*frame).unary, gpu.OpMath: (*frame).unary,
	gpu.OpRound: (*frame).round, gpu.OpFloor: (*frame).round, gpu.OpCeil: (*frame).round,
	gpu.OpTrunc: (*frame).round,
	gpu.OpEq:    (*frame).compare, gpu.OpNe: (*frame).compare, gpu.OpLt: (*frame).compare, gpu.OpLe: (*frame).compare,
	gpu.OpGt: (*frame).compare, gpu.OpGe: (*frame).compare, gpu.OpDistinct: (*frame).compare,
	gpu.OpNotDistinct: (*frame).compare,
	gpu.OpIn:          (*frame).in,
	gpu.OpAnd:         (*frame).logic, gpu.OpOr: (*frame).logic, gpu.OpNot: (*frame).logic,
	gpu.OpIsNull: (*frame).logic, gpu.OpIsNotNull: (*frame).logic,
	gpu.OpSelect:  (*frame).choose,
	gpu.OpExtract: (*frame).dates, gpu.OpDateTrunc: (*frame).dates, gpu.OpAddMonths: (*frame).dates,
	gpu.OpMakeDate: (*frame).makeDate, gpu.OpParseTime: (*frame).parseTime,
	gpu.OpLike: (*frame).strings, gpu.OpILike: (*frame).strings, gpu.OpLength: (*frame).strings,
	gpu.OpLower: (*frame).strings, gpu.OpUpper: (*frame).strings, gpu.OpReverse: (*frame).strings,
	gpu.OpStripAccents: (*frame).strings, gpu.OpSubstring: (*frame).strings, gpu.OpTrim: (*frame).strings,
	gpu.OpConcat: (*frame).strings, gpu.OpReplace: (*frame).strings, gpu.OpPosition: (*frame).strings,
	gpu.OpStartsWith: (*frame).strings, gpu.OpEndsWith: (*frame).strings, gpu.OpContains: (*frame).strings,
	gpu.OpSplitPart: (*frame).strings, gpu.OpRepeat: (*frame).strings, gpu.OpTranslate: (*frame).strings,
	gpu.OpCodePoint: (*frame).strings, gpu.OpDigest: (*frame).strings, gpu.OpEncode: (*frame).strings,
	gpu.OpChr: (*frame).chr, gpu.OpDigits: (*frame).digits, gpu.OpDistance: (*frame).distance,
	gpu.OpRegexp: (*frame).regexp, gpu.OpRegexpExtract: (*frame).regexp, gpu.OpRegexpReplace: (*frame).regexp,
	gpu.OpHash:   (*frame).sqlHash,
	gpu.OpBitAnd: (*frame).bits, gpu.OpBitOr: (*frame).bits, gpu.OpBitXor: (*frame).bits,
	gpu.OpBitCount: (*frame).bits, gpu.OpShiftLeft: (*frame).bits, gpu.OpShiftRight: (*frame).bits,
	gpu.OpGCD:  (*frame).bits,
	gpu.OpStep: (*frame).step, gpu.OpAssert: (*frame).assert,
	gpu.OpNest: (*frame).nest, gpu.OpElement: (*frame).element, gpu.OpCountElements: (*frame).elements,
	gpu.OpFindElement: (*frame).elements, gpu.OpSliceElements: (*frame).makeNested,
	gpu.OpPluckElements: (*frame).makeNested, gpu.OpFlattenElements: (*frame).makeNested,
	gpu.OpJoinElements: (*frame).makeNested, gpu.OpZipElements: (*frame).makeNested,
	gpu.OpCanonical: (*frame).makeNested,
	gpu.OpJSON:      (*frame).hosted, gpu.OpParseNested: (*frame).hosted,
}

// execute runs one instruction.
func (f *frame) execute(s *instruction) error { return functions[s.Op](f, s, &f.vecs[s.result]) }

// refill fills the register of a constant again, if registers share memory.
func (f *frame) refill(s *instruction, v *vec) error {
	if f.reuse != nil {
		f.constant(v, s.Value)
	}
	return nil
}

// constant fills a register with one value.
func (f *frame) constant(v *vec, c gpu.Scalar) {
	v.constant, v.value = true, c
	if !c.Valid {
		v.valid = f.bitmap()[:f.words()]
		clear(v.valid)
	}
	switch {
	case c.Type.Kind == gpu.Bool:
		fill(f.bitsOf(v), -c.Int.Lo&math.MaxUint64)
	case c.Type.IsVar():
		v.str = f.texts()[:f.n]
		fill(v.str, c.Str)
	case c.Type.Kind == gpu.Float32:
		fill(dst[float32](f, v), float32(c.Float))
	case c.Type.Kind == gpu.Float64:
		fill(dst[float64](f, v), c.Float)
	default:
		switch c.Type.Width() {
		case 1:
			fill(dst[uint8](f, v), uint8(c.Int.Lo))
		case 2:
			fill(dst[uint16](f, v), uint16(c.Int.Lo))
		case 4:
			fill(dst[uint32](f, v), uint32(c.Int.Lo))
		case 8:
			fill(dst[uint64](f, v), c.Int.Lo)
		case 16:
			fill(dst[gpu.Int128](f, v), c.Int)
		}
	}
}

func fill[T any](out []T, v T) {
	for i := range out {
		out[i] = v
	}
}
