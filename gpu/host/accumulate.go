package host

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/gstream/gstream/gpu"
)

// fewGroups is the number of groups up to which every core folds into a private
// copy of the state; above, copies would cost more than they gain.
const fewGroups = 512

// fold runs f over rows [0, n): on private copies of the state in parallel,
// merged in any order, when the groups are few, and in place otherwise.
func fold[S any](d *Device, n int, state []S, zero S, f func(st []S, lo, hi int), merge func(dst *S, src S)) error {
	if len(state) > fewGroups || n <= grain || d.threads == 1 {
		f(state, 0, n)
		return nil
	}
	var mu sync.Mutex
	return d.parallel(n, grain, func(lo, hi int) error {
		own := make([]S, len(state))
		for i := range own {
			own[i] = zero
		}
		f(own, lo, hi)
		mu.Lock()
		defer mu.Unlock()
		for i, s := range own {
			merge(&state[i], s)
		}
		return nil
	})
}

// presence remembers which groups have had a value that is not null. While no
// null was seen there is nothing to remember: every group has had one.
type presence struct {
	seen   vector[uint8]
	groups int
}

func (p *presence) update(l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if c.Valid == nil && p.seen.v == nil {
		p.groups = groups
		return nil
	}
	if p.seen.v == nil {
		if err := p.seen.grow(l, p.groups, 1); err != nil {
			return err
		}
	}
	if err := p.seen.grow(l, groups, 0); err != nil {
		return err
	}
	p.groups = groups
	for i, id := range ids {
		if c.IsValid(i) {
			p.seen.v[id] = 1
		}
	}
	return nil
}

// valid returns the bitmap of groups [from, to), nil when all have a value.
func (p *presence) valid(l *gpu.Lease, from, to int) (*gpu.Buffer, error) {
	if p.seen.v == nil || bytes.IndexByte(p.seen.v[from:to], 0) < 0 {
		return nil, nil
	}
	buf, err := l.Alloc(gpu.BitmapBytes(to - from))
	if err != nil {
		return nil, err
	}
	words := gpu.Words(buf, to-from)
	clear(words)
	for i, s := range p.seen.v[from:to] {
		words[i/64] |= uint64(s) << (i % 64)
	}
	return buf, nil
}

// state is the part of an accumulator that differs by aggregate and type.
type state interface {
	update(d *Device, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error
	// write fills out, whose Data holds room for groups [from, to).
	write(out gpu.Column, from, to int) error
	release()
}

// accumulator implements gpu.Accumulator over a state.
type accumulator struct {
	dev      *Device
	lease    *gpu.Lease
	agg      gpu.Aggregate
	presence presence
	state    state
}

// NewAccumulator implements gpu.Queue.
func (q *queue) NewAccumulator(l *gpu.Lease, a gpu.Aggregate) (gpu.Accumulator, error) {
	if q.err != nil {
		return nil, q.err
	}
	x := &accumulator{dev: q.dev, lease: l, agg: a}
	in := a.Input
	switch a.Kind {
	case gpu.CountAll, gpu.Count:
		x.state = &countState{all: a.Kind == gpu.CountAll}
	case gpu.Sum:
		switch {
		case in.IsFloat():
			x.state = &floatSum{}
		case in.IsInteger() || in.Kind == gpu.Decimal:
			x.state = &intSum{}
		default:
			return nil, fmt.Errorf("sum is not defined on %v", in)
		}
	case gpu.Min, gpu.Max:
		switch {
		case in.IsVar():
			x.state = &extremeBytes{max: a.Kind == gpu.Max, lease: l}
		case in.Wide:
			x.state = &extremeWide{max: a.Kind == gpu.Max}
		default:
			x.state = &extreme{max: a.Kind == gpu.Max, flip: orderFlip(in)}
		}
	default:
		return nil, fmt.Errorf("%v is not an aggregate of devices", a.Kind)
	}
	return x, nil
}

// Update implements gpu.Accumulator.
func (x *accumulator) Update(gq gpu.Queue, a gpu.Assignment, values gpu.Column, groups int) error {
	q := gq.(*queue)
	if q.err != nil {
		return q.err
	}
	ids := a.IDs()
	rows := gpu.Values[int32](ids.Data, ids.Len)
	counting := x.agg.Kind == gpu.CountAll || x.agg.Kind == gpu.Count
	if x.agg.Kind != gpu.CountAll && (values.Type != x.agg.Input || values.Len != len(rows)) {
		return q.fail(fmt.Errorf("%v of %d rows of %v, planned for %v over %d rows", x.agg.Kind, values.Len, values.Type, x.agg.Input, len(rows)))
	}
	if !counting && values.Dict != nil && !values.Type.IsVar() {
		plain, err := x.dev.expand(x.lease, values)
		if err != nil {
			return q.fail(err)
		}
		defer plain.Release()
		values = plain
	}
	if !counting {
		if err := x.presence.update(x.lease, rows, values, groups); err != nil {
			return q.fail(err)
		}
	}
	return q.fail(x.state.update(x.dev, x.lease, rows, values, groups))
}

// Result implements gpu.Accumulator.
func (x *accumulator) Result(gq gpu.Queue, l *gpu.Lease, from, to int) (gpu.Column, error) {
	q := gq.(*queue)
	if q.err != nil {
		return gpu.Column{}, q.err
	}
	n := to - from
	out := gpu.Column{Type: x.agg.Output, Len: n}
	err := func() (err error) {
		if out.Valid, err = x.presence.valid(l, from, to); err != nil {
			return err
		}
		if b, ok := x.state.(*extremeBytes); ok {
			out.Data, out.Offsets, err = b.columns(l, from, to)
			return err
		}
		size := int64(n) * int64(out.Type.Width())
		if out.Type.Kind == gpu.Bool {
			size = gpu.BitmapBytes(n)
		}
		if out.Data, err = l.Alloc(size); err != nil {
			return err
		}
		return x.state.write(out, from, to)
	}()
	if err != nil {
		out.Release()
		return gpu.Column{}, q.fail(err)
	}
	return out, nil
}

// Release implements gpu.Accumulator.
func (x *accumulator) Release() {
	x.presence.seen.release()
	x.state.release()
}

// countState counts rows, or values that are not null.
type countState struct {
	all bool
	n   vector[int64]
}

func (s *countState) update(d *Device, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if err := s.n.grow(l, groups, 0); err != nil {
		return err
	}
	return fold(d, len(ids), s.n.v, 0, func(st []int64, lo, hi int) {
		if s.all || c.Valid == nil {
			if len(st) == 1 {
				st[0] += int64(hi - lo)
				return
			}
			for _, id := range ids[lo:hi] {
				st[id]++
			}
			return
		}
		valid := gpu.Words(c.Valid, c.Len)
		for i := lo; i < hi; i++ {
			st[ids[i]] += int64(valid[i/64] >> (i % 64) & 1)
		}
	}, func(dst *int64, src int64) { *dst += src })
}

func (s *countState) write(out gpu.Column, from, to int) error {
	copy(gpu.Values[int64](out.Data, out.Len), s.n.v[from:to])
	return nil
}

func (s *countState) release() { s.n.release() }

// intSum sums integers and decimals exactly: in 64 bits as long as the
// magnitudes seen prove that no sum can leave them, then in 128.
type intSum struct {
	narrow vector[int64]
	wide   vector[gpu.Int128]
	isWide bool
	bound  uint64 // no group's magnitude is above this
}

func (s *intSum) update(d *Device, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if !s.isWide {
		if over, err := s.overflows(d, c); err != nil {
			return err
		} else if over {
			if err := s.widen(l); err != nil {
				return err
			}
		}
	}
	if !s.isWide {
		if err := s.narrow.grow(l, groups, 0); err != nil {
			return err
		}
		return fold(d, len(ids), s.narrow.v, 0, func(st []int64, lo, hi int) {
			eachBlock(c, lo, hi, func(at int, words []uint64) {
				rows := ids[at : at+len(words)]
				if len(st) == 1 {
					var sum int64
					for _, v := range words {
						sum += int64(v)
					}
					st[0] += sum
					return
				}
				for i, id := range rows {
					st[id] += int64(words[i])
				}
			})
		}, func(dst *int64, src int64) { *dst += src })
	}
	if err := s.wide.grow(l, groups, gpu.Int128{}); err != nil {
		return err
	}
	unsigned := c.Type.Kind == gpu.Uint64
	var values []gpu.Int128
	if c.Type.Wide {
		values = gpu.Values[gpu.Int128](c.Data, c.Len)
	}
	add := func(dst *gpu.Int128, v gpu.Int128) {
		sum, over := dst.Add(v)
		if over {
			panic(overflow{})
		}
		*dst = sum
	}
	return catchOverflow(func() error {
		if values != nil {
			for i, id := range ids {
				if c.IsValid(i) {
					add(&s.wide.v[id], values[i])
				}
			}
			return nil
		}
		eachBlock(c, 0, len(ids), func(at int, words []uint64) {
			for i, id := range ids[at : at+len(words)] {
				v := gpu.Int128From(int64(words[i]))
				if unsigned {
					v.Hi = 0
				}
				add(&s.wide.v[id], v)
			}
		})
		return nil
	})
}

type overflow struct{}

func catchOverflow(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(overflow); !ok {
				panic(r)
			}
			err = fmt.Errorf("sum overflows 128 bits")
		}
	}()
	return f()
}

// overflows adds the column to the bound and says whether 64 bits may not do.
func (s *intSum) overflows(d *Device, c gpu.Column) (bool, error) {
	if c.Type.Wide {
		return true, nil
	}
	var mu sync.Mutex
	var all uint64
	unsigned := c.Type.Kind == gpu.Uint64
	err := d.parallel(c.Len, grain, func(lo, hi int) error {
		var or uint64
		eachBlock(c, lo, hi, func(_ int, words []uint64) {
			if unsigned {
				for _, v := range words {
					or |= v
				}
				return
			}
			for _, v := range words {
				or |= v ^ uint64(int64(v)>>63)
			}
		})
		mu.Lock()
		all |= or
		mu.Unlock()
		return nil
	})
	if err != nil {
		return false, err
	}
	width := bits.Len64(all)
	if width >= 63 {
		return true, nil
	}
	hi, lo := bits.Mul64(1<<width, uint64(c.Len))
	bound, carry := bits.Add64(s.bound, lo, 0)
	s.bound = bound
	return hi != 0 || carry != 0 || bound > math.MaxInt64, nil
}

func (s *intSum) widen(l *gpu.Lease) error {
	if err := s.wide.grow(l, len(s.narrow.v), gpu.Int128{}); err != nil {
		return err
	}
	for i, v := range s.narrow.v {
		s.wide.v[i] = gpu.Int128From(v)
	}
	s.narrow.release()
	s.isWide = true
	return nil
}

func (s *intSum) at(i int) gpu.Int128 {
	if s.isWide {
		return s.wide.v[i]
	}
	return gpu.Int128From(s.narrow.v[i])
}

func (s *intSum) write(out gpu.Column, from, to int) error {
	for i := range to - from {
		v := s.at(from + i)
		if !v.FitsPrecision(int(out.Type.Precision)) {
			return fmt.Errorf("sum %s does not fit %v", v.Format(int(out.Type.Scale)), out.Type)
		}
		if out.Type.Wide {
			gpu.Values[gpu.Int128](out.Data, out.Len)[i] = v
		} else {
			gpu.Values[int64](out.Data, out.Len)[i] = v.Int64()
		}
	}
	return nil
}

func (s *intSum) release() { s.narrow.release(); s.wide.release() }

// eachBlock gives f the rows [lo, hi) of a column of at most 8 bytes a value as
// words, block by block, a null counting as zero.
func eachBlock(c gpu.Column, lo, hi int, f func(at int, words []uint64)) {
	var tmp [probeBlock]uint64
	direct := c.Type.Width() == 8 && !c.Type.IsFloat() && c.Valid == nil
	for at := lo; at < hi; at += len(tmp) {
		n := min(len(tmp), hi-at)
		if direct {
			f(at, gpu.Values[uint64](c.Data, c.Len)[at:at+n])
			continue
		}
		loadWords(tmp[:n], c, at)
		if c.Valid != nil {
			for i := range tmp[:n] {
				if !c.IsValid(at + i) {
					tmp[i] = 0
				}
			}
		}
		f(at, tmp[:n])
	}
}

// twofold is a float sum and the rounding error it has gathered.
type twofold struct{ hi, lo float64 }

// add is Knuth's two-sum: hi + lo stays the exact sum to about 106 bits, so the
// order of the rows moves the result by an ulp at most unless terms cancel
// beyond that.
func (t *twofold) add(v float64) {
	s := t.hi + v
	b := s - t.hi
	t.lo += (t.hi - (s - b)) + (v - b)
	t.hi = s
}

func (t twofold) value() float64 {
	if v := t.hi + t.lo; !math.IsNaN(v) {
		return v
	}
	return t.hi // infinite: the error term is not a number
}

// floatSum sums floats independently of their order, within an ulp.
type floatSum struct{ sum vector[twofold] }

func (s *floatSum) update(d *Device, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if err := s.sum.grow(l, groups, twofold{}); err != nil {
		return err
	}
	single := c.Type.Kind == gpu.Float32
	return fold(d, len(ids), s.sum.v, twofold{}, func(st []twofold, lo, hi int) {
		eachBlock(c, lo, hi, func(at int, words []uint64) {
			for i, id := range ids[at : at+len(words)] {
				v := math.Float64frombits(words[i])
				if single {
					v = float64(math.Float32frombits(uint32(words[i])))
				}
				st[id].add(v)
			}
		})
	}, func(dst *twofold, src twofold) {
		dst.add(src.hi)
		dst.lo += src.lo
	})
}

func (s *floatSum) write(out gpu.Column, from, to int) error {
	for i := range to - from {
		gpu.Values[float64](out.Data, out.Len)[i] = s.sum.v[from+i].value()
	}
	return nil
}

func (s *floatSum) release() { s.sum.release() }

// orderFlip returns how the words of a type become unsigned integers of the
// same order.
func orderFlip(t gpu.Type) func(words []uint64) {
	switch {
	case t.Kind == gpu.Float32:
		return func(words []uint64) {
			for i, w := range words {
				words[i] = w ^ (uint64(int64(w<<32)>>63)>>32 | 1<<31)
			}
		}
	case t.Kind == gpu.Float64:
		return func(words []uint64) {
			for i, w := range words {
				words[i] = w ^ (uint64(int64(w)>>63) | 1<<63)
			}
		}
	case t.IsUnsigned() || t.Kind == gpu.Bool:
		return func([]uint64) {}
	}
	return func(words []uint64) {
		for i, w := range words {
			words[i] = w ^ 1<<63
		}
	}
}

// orderUnflip undoes orderFlip for one word.
func orderUnflip(t gpu.Type, w uint64) uint64 {
	switch {
	case t.Kind == gpu.Float32:
		return w ^ (uint64(int64(^w<<32)>>63)>>32 | 1<<31)
	case t.Kind == gpu.Float64:
		return w ^ (uint64(int64(^w)>>63) | 1<<63)
	case t.IsUnsigned() || t.Kind == gpu.Bool:
		return w
	}
	return w ^ 1<<63
}

// extreme is min or max of values of at most 8 bytes, as ordered words.
type extreme struct {
	max  bool
	flip func([]uint64)
	best vector[uint64]
}

func (s *extreme) worst() uint64 {
	if s.max {
		return 0
	}
	return math.MaxUint64
}

func (s *extreme) better(dst *uint64, v uint64) {
	if s.max {
		*dst = max(*dst, v)
	} else {
		*dst = min(*dst, v)
	}
}

func (s *extreme) update(d *Device, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if err := s.best.grow(l, groups, s.worst()); err != nil {
		return err
	}
	return fold(d, len(ids), s.best.v, s.worst(), func(st []uint64, lo, hi int) {
		var words [probeBlock]uint64
		for at := lo; at < hi; at += len(words) {
			w := words[:min(len(words), hi-at)]
			loadWords(w, c, at)
			s.flip(w)
			for i, id := range ids[at : at+len(w)] {
				if c.IsValid(at + i) {
					s.better(&st[id], w[i])
				}
			}
		}
	}, s.better)
}

func (s *extreme) write(out gpu.Column, from, to int) error {
	n := out.Len
	if out.Type.Kind == gpu.Bool {
		words := gpu.Words(out.Data, n)
		clear(words)
		for i, v := range s.best.v[from:to] {
			words[i/64] |= v & 1 << (i % 64)
		}
		return nil
	}
	for i, v := range s.best.v[from:to] {
		v = orderUnflip(out.Type, v)
		switch out.Type.Width() {
		case 1:
			gpu.Values[uint8](out.Data, n)[i] = uint8(v)
		case 2:
			gpu.Values[uint16](out.Data, n)[i] = uint16(v)
		case 4:
			gpu.Values[uint32](out.Data, n)[i] = uint32(v)
		case 8:
			gpu.Values[uint64](out.Data, n)[i] = v
		}
	}
	return nil
}

func (s *extreme) release() { s.best.release() }

// extremeWide is min or max of 16-byte decimals.
type extremeWide struct {
	max  bool
	best vector[gpu.Int128]
}

func (s *extremeWide) update(_ *Device, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	worst := gpu.Int128{Lo: math.MaxUint64, Hi: math.MaxInt64}
	if s.max {
		worst = gpu.Int128{Hi: math.MinInt64}
	}
	if err := s.best.grow(l, groups, worst); err != nil {
		return err
	}
	values := gpu.Values[gpu.Int128](c.Data, c.Len)
	for i, id := range ids {
		if c.IsValid(i) && s.best.v[id].Less(values[i]) == s.max {
			s.best.v[id] = values[i]
		}
	}
	return nil
}

func (s *extremeWide) write(out gpu.Column, from, to int) error {
	copy(gpu.Values[gpu.Int128](out.Data, out.Len), s.best.v[from:to])
	return nil
}

func (s *extremeWide) release() { s.best.release() }

// extremeBytes is min or max of strings and binaries, by bytes.
type extremeBytes struct {
	max      bool
	lease    *gpu.Lease
	reserved int64
	best     [][]byte
}

func (s *extremeBytes) update(_ *Device, _ *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	need := int64(0)
	if groups > len(s.best) {
		need = int64(groups-len(s.best)) * 24
		s.best = append(s.best, make([][]byte, groups-len(s.best))...)
	}
	for i, id := range ids {
		if !c.IsValid(i) {
			continue
		}
		v, old := c.VarValue(i), s.best[id]
		if old == nil || bytes.Compare(old, v) < 0 == s.max && !bytes.Equal(old, v) {
			need += int64(max(len(v)-cap(old), 0))
			s.best[id] = append(old[:0], v...)
			if s.best[id] == nil {
				s.best[id] = []byte{}
			}
		}
	}
	if err := s.lease.Reserve(need); err != nil {
		return err
	}
	s.reserved += need
	return nil
}

func (s *extremeBytes) write(gpu.Column, int, int) error { return nil }

// columns returns the bytes and offsets of groups [from, to).
func (s *extremeBytes) columns(l *gpu.Lease, from, to int) (data, offsets *gpu.Buffer, err error) {
	total := int64(0)
	for _, b := range s.best[from:to] {
		total += int64(len(b))
	}
	if total > math.MaxInt32 {
		return nil, nil, errTooManyBytes(total, to-from)
	}
	if offsets, err = l.Alloc(int64(to-from+1) * 4); err != nil {
		return nil, nil, err
	}
	if data, err = l.Alloc(total); err != nil {
		return nil, offsets, err
	}
	off, at := gpu.Values[int32](offsets, to-from+1), int32(0)
	off[0] = 0
	for i, b := range s.best[from:to] {
		copy(data.Bytes()[at:], b)
		at += int32(len(b))
		off[i+1] = at
	}
	return data, offsets, nil
}

func (s *extremeBytes) release() {
	s.lease.Unreserve(s.reserved)
	s.reserved, s.best = 0, nil
}
