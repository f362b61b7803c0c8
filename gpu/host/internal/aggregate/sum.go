package aggregate

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// intSum sums integers and decimals exactly: in 64 bits until a sum overflows, then in
// 128 bits.
type intSum struct {
	narrow memory.Vector[int64]
	wide   memory.Vector[gpu.Int128]
	isWide bool
	// bound is at least the absolute value of each narrow sum. If large is set, the sums or the
	// values are too large for bounds to help, and each step checks for overflow.
	bound uint64
	large bool
}

func (s *intSum) update(cores parallel.Cores, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if !s.isWide && (!c.Type.Wide || allNarrow(c)) {
		if err := s.narrow.Grow(l, groups, 0); err != nil {
			return err
		}
		if !s.large && len(s.narrow.V) > 1 && c.Type.Kind != gpu.Uint64 {
			if done, err := s.addBounded(cores, ids, c); done || err != nil {
				return err
			}
			s.large = true
		}
		s.bound = math.MaxInt64
		over, err := s.add(cores, ids, c, 0)
		if err != nil || !over {
			return err
		}
		// Subtraction also restores sums that have wrapped around.
		if _, err := s.add(cores, ids, c, -1); err != nil {
			return err
		}
	}
	if !s.isWide {
		if err := s.widen(l, groups); err != nil {
			return err
		}
	}
	if err := s.wide.Grow(l, groups, gpu.Int128{}); err != nil {
		return err
	}
	return s.addWide(ids, c)
}

// allNarrow reports whether all values of a column of 16 bytes that are not null fit 64 bits.
func allNarrow(c gpu.Column) bool {
	rest := int64(0)
	for i, v := range gpu.Values[gpu.Int128](c.Data, c.Len) {
		if c.Valid == nil || c.IsValid(i) {
			rest |= v.Hi ^ int64(v.Lo)>>63
		}
	}
	return rest == 0
}

// addBounded adds the values to the sums of 64 bits if their number and their size prove that no
// sum can overflow. Otherwise it leaves the sums unchanged.
func (s *intSum) addBounded(cores parallel.Cores, ids []int32, c gpu.Column) (bool, error) {
	size, err := s.addAll(cores, ids, c, false)
	if err != nil || s.fits(len(ids), size) {
		return true, err
	}
	if _, err := s.addAll(cores, ids, c, true); err != nil {
		return true, err
	}
	s.bound = 0
	for _, v := range s.narrow.V {
		s.bound |= uint64(v ^ v>>63)
	}
	s.bound++
	if !s.fits(len(ids), size) {
		return false, nil
	}
	_, err = s.addAll(cores, ids, c, false)
	return true, err
}

// fits reports whether no sum can overflow by so many more values, each at least -size-1 and at
// most size. If so, it raises the bound of the sums.
func (s *intSum) fits(rows int, size uint64) bool {
	high, more := bits.Mul64(uint64(rows), size+1)
	if size == math.MaxUint64 || high != 0 || more > math.MaxInt64 || s.bound+more > math.MaxInt64 {
		return false
	}
	s.bound += more
	return true
}

// addAll adds the values to the sums of 64 bits, or with undo subtracts them; sums wrap around. All
// values are at least -size-1 and at most size.
func (s *intSum) addAll(cores parallel.Cores, ids []int32, c gpu.Column, undo bool) (size uint64, err error) {
	var all atomic.Uint64
	err = fold(cores, ids, s.narrow.V, 0, func(st []int64, lo, hi int) {
		size := int64(0)
		eachBlock(c, lo, hi, func(at int, words []uint64) {
			rows := ids[at:][:len(words)]
			if undo {
				for i, w := range words {
					st[rows[i]] -= int64(w)
				}
				return
			}
			seen := size
			for i, w := range words {
				v := int64(w)
				seen |= v ^ v>>63
				st[rows[i]] += v
			}
			size = seen
		})
		all.Or(uint64(size))
	}, func(dst *int64, src int64) { *dst += src })
	return all.Load(), err
}

// add adds the values to the sums of 64 bits; a sign of -1 subtracts them. It reports whether a sum
// has wrapped around. The loop has no branch for this: the sign bit of over records it.
func (s *intSum) add(cores parallel.Cores, ids []int32, c gpu.Column, sign int64) (bool, error) {
	var wrapped atomic.Bool
	unsigned := int64(0)
	if c.Type.Kind == gpu.Uint64 {
		unsigned = -1 // a value with the highest bit set is too large
	}
	err := fold(cores, ids, s.narrow.V, 0, func(st []int64, lo, hi int) {
		over := int64(0)
		eachBlock(c, lo, hi, func(at int, words []uint64) {
			if len(st) == 1 {
				sum, wraps := sumBlock(words, unsigned)
				sum = (sum ^ sign) - sign
				next := st[0] + sum
				over |= (next^st[0])&(next^sum) | wraps
				st[0] = next
				return
			}
			rows := ids[at : at+len(words)]
			for i, w := range words {
				sum := &st[rows[i]]
				v := (int64(w) ^ sign) - sign
				next := *sum + v
				over |= (next^*sum)&(next^v) | int64(w)&unsigned
				*sum = next
			}
		})
		if over < 0 {
			wrapped.Store(true)
		}
	}, func(dst *int64, src int64) {
		next := *dst + src
		if (next^*dst)&(next^src) < 0 {
			wrapped.Store(true)
		}
		*dst = next
	})
	return wrapped.Load(), err
}

// sumBlock returns the sum of at most 2^31 values. wraps is negative if it has wrapped around, or
// if a value has the highest bit and unsigned is -1. The halves of the values are summed
// separately, so that no step has to check for overflow.
func sumBlock(words []uint64, unsigned int64) (sum, wraps int64) {
	low, high, all := uint64(0), int64(0), uint64(0)
	for _, w := range words {
		low += w & math.MaxUint32
		high += int64(w) >> 32
		all |= w
	}
	wraps = int64(all) & unsigned
	if carried := high + int64(low>>32); carried != int64(int32(carried)) {
		wraps = -1
	}
	return high<<32 + int64(low), wraps
}

// addWide adds the values to the sums of 128 bits.
func (s *intSum) addWide(ids []int32, c gpu.Column) error {
	add := func(dst *gpu.Int128, v gpu.Int128) {
		sum, over := dst.Add(v)
		if over {
			panic(overflow{})
		}
		*dst = sum
	}
	return catchOverflow(func() error {
		if c.Type.Wide {
			values := gpu.Values[gpu.Int128](c.Data, c.Len)
			for i, id := range ids {
				if c.Valid == nil || c.IsValid(i) {
					add(&s.wide.V[id], values[i])
				}
			}
			return nil
		}
		unsigned := c.Type.Kind == gpu.Uint64
		eachBlock(c, 0, len(ids), func(at int, words []uint64) {
			for i, id := range ids[at : at+len(words)] {
				v := gpu.Int128From(int64(words[i]))
				if unsigned {
					v.Hi = 0
				}
				add(&s.wide.V[id], v)
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
			err = gpu.Failed("sum overflows 128 bits")
		}
	}()
	return f()
}

// widen changes the state to 128 bits, with room for groups groups.
func (s *intSum) widen(l *gpu.Lease, groups int) error {
	if err := s.wide.Grow(l, max(len(s.narrow.V), groups), gpu.Int128{}); err != nil {
		return err
	}
	for i, v := range s.narrow.V {
		s.wide.V[i] = gpu.Int128From(v)
	}
	s.narrow.Release()
	s.isWide = true
	return nil
}

func (s *intSum) at(i int) gpu.Int128 {
	if s.isWide {
		return s.wide.V[i]
	}
	return gpu.Int128From(s.narrow.V[i])
}

func (s *intSum) write(l *gpu.Lease, out *gpu.Column, from, to int) error {
	if err := allocValues(l, out); err != nil {
		return err
	}
	if !s.isWide && out.Type.Kind == gpu.HugeInt {
		dst := gpu.Values[gpu.Int128](out.Data, out.Len)
		for i, v := range s.narrow.V[from:to] {
			dst[i] = gpu.Int128From(v)
		}
		return nil
	}
	for i := range to - from {
		v := s.at(from + i)
		if out.Type.Kind == gpu.Decimal && !v.FitsPrecision(int(out.Type.Precision)) {
			return gpu.Failed("sum %s does not fit %v", v.Format(int(out.Type.Scale)), out.Type)
		}
		if out.Type.Wide {
			gpu.Values[gpu.Int128](out.Data, out.Len)[i] = v
		} else {
			gpu.Values[int64](out.Data, out.Len)[i] = v.Int64()
		}
	}
	return nil
}

func (s *intSum) release() { s.narrow.Release(); s.wide.Release() }

// eachBlock calls f with blocks of rows [lo, hi) of a column, as words: the lower halves of values of 16
// bytes. A null is zero.
func eachBlock(c gpu.Column, lo, hi int, f func(at int, words []uint64)) {
	eachHalf(c, lo, hi, false, 0, f)
}

// eachHalf is eachBlock with the upper halves of values of 16 bytes, if upper is set, and null for nulls.
func eachHalf(c gpu.Column, lo, hi int, upper bool, null uint64, f func(at int, words []uint64)) {
	var tmp [word.Block]uint64
	direct := c.Type.Width() == 8 && !c.Type.IsFloat() && c.Valid == nil
	for at := lo; at < hi; at += len(tmp) {
		n := min(len(tmp), hi-at)
		if direct {
			f(at, gpu.Values[uint64](c.Data, c.Len)[at:at+n])
			continue
		}
		if c.Type.Wide {
			for i, v := range gpu.Values[gpu.Int128](c.Data, c.Len)[at : at+n] {
				if tmp[i] = v.Lo; upper {
					tmp[i] = uint64(v.Hi)
				}
			}
		} else {
			word.Load(tmp[:n], c, at)
		}
		if c.Valid != nil {
			for i := range tmp[:n] {
				if !c.IsValid(at + i) {
					tmp[i] = null
				}
			}
		}
		f(at, tmp[:n])
	}
}

// twofold is a float sum and its accumulated rounding error.
type twofold struct{ hi, lo float64 }

// add is Knuth's two-sum. hi + lo is the exact sum to about 106 bits, so the order of the
// rows changes the result by at most an ulp, unless terms cancel beyond that.
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
	return t.hi // the sum is infinite: the error term is NaN
}

// floatSum sums floats. The order of the rows changes the result by at most an ulp.
type floatSum struct{ sum memory.Vector[twofold] }

func (s *floatSum) update(cores parallel.Cores, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if err := s.sum.Grow(l, groups, twofold{}); err != nil {
		return err
	}
	single := c.Type.Kind == gpu.Float32
	return fold(cores, ids, s.sum.V, twofold{}, func(st []twofold, lo, hi int) {
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

func (s *floatSum) write(l *gpu.Lease, out *gpu.Column, from, to int) error {
	if err := allocValues(l, out); err != nil {
		return err
	}
	for i := range to - from {
		gpu.Values[float64](out.Data, out.Len)[i] = s.sum.V[from+i].value()
	}
	return nil
}

func (s *floatSum) release() { s.sum.Release() }
