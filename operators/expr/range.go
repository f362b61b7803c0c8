package expr

import (
	"math"

	"github.com/gstream/gstream/gpu"
)

// Range bounds the values of an expression that are not null: integers, dates and times as stored,
// decimals unscaled. Lo ≤ Hi.
type Range struct{ Lo, Hi gpu.Int128 }

func rangeOf(lo, hi int64) *Range {
	return &Range{gpu.Int128From(lo), gpu.Int128From(hi)}
}

// typeRange returns the range of all values of a type, or nil for types that are not
// stored as integers.
func typeRange(t gpu.Type) *Range {
	switch t.Kind {
	case gpu.Int8:
		return rangeOf(math.MinInt8, math.MaxInt8)
	case gpu.Int16:
		return rangeOf(math.MinInt16, math.MaxInt16)
	case gpu.Int32, gpu.Date:
		return rangeOf(math.MinInt32, math.MaxInt32)
	case gpu.Int64, gpu.Timestamp, gpu.Time:
		return rangeOf(math.MinInt64, math.MaxInt64)
	case gpu.Uint8:
		return rangeOf(0, math.MaxUint8)
	case gpu.Uint16:
		return rangeOf(0, math.MaxUint16)
	case gpu.Uint32:
		return rangeOf(0, math.MaxUint32)
	case gpu.Uint64:
		return &Range{gpu.Int128{}, gpu.Int128FromUint(math.MaxUint64)}
	case gpu.HugeInt:
		return finiteRange(t)
	case gpu.Decimal:
		p := gpu.Pow10(int(t.Precision))
		one := gpu.Int128From(1)
		hi, _ := p.Sub(one)
		return &Range{hi.Neg(), hi}
	}
	return nil
}

// finiteRange is typeRange without the infinities of dates and timestamps.
func finiteRange(t gpu.Type) *Range {
	lo, hi := t.Bounds()
	return &Range{lo, hi}
}

// within returns the part of r that fits type t, or all of t if r is unknown or outside of t.
func (r *Range) within(t gpu.Type) *Range {
	whole := typeRange(t)
	if r == nil || whole == nil {
		return whole
	}
	return r.clip(whole)
}

// clip returns the intersection of r and s, or s if the intersection is empty.
func (r *Range) clip(s *Range) *Range {
	c := *r
	if c.Lo.Less(s.Lo) {
		c.Lo = s.Lo
	}
	if s.Hi.Less(c.Hi) {
		c.Hi = s.Hi
	}
	if c.Hi.Less(c.Lo) {
		return s
	}
	return &c
}

// contains reports whether every value of s is in r.
func (r *Range) contains(s *Range) bool {
	return r != nil && s != nil && r.Lo.Cmp(s.Lo) <= 0 && s.Hi.Cmp(r.Hi) <= 0
}

func (r *Range) fitsInt64() bool {
	return r != nil && r.Lo.IsInt64() && r.Hi.IsInt64()
}

// union returns a range that contains r and s.
func (r *Range) union(s *Range) *Range {
	if r == nil || s == nil {
		return nil
	}
	u := *r
	if s.Lo.Less(u.Lo) {
		u.Lo = s.Lo
	}
	if u.Hi.Less(s.Hi) {
		u.Hi = s.Hi
	}
	return &u
}

// combine applies a monotonic or bilinear operation to the ends of two ranges. It returns nil if a
// result does not fit 128 bits.
func combine(r, s *Range, f func(a, b gpu.Int128) (gpu.Int128, bool)) *Range {
	if r == nil || s == nil {
		return nil
	}
	var out *Range
	for _, a := range [2]gpu.Int128{r.Lo, r.Hi} {
		for _, b := range [2]gpu.Int128{s.Lo, s.Hi} {
			v, over := f(a, b)
			if over {
				return nil
			}
			if out == nil {
				out = &Range{v, v}
			}
			out = out.union(&Range{v, v})
		}
	}
	return out
}

// arithmeticRange returns the range of the exact result of an operation.
func arithmeticRange(op gpu.Op, r, s *Range) *Range {
	switch op {
	case gpu.OpAdd:
		return combine(r, s, gpu.Int128.Add)
	case gpu.OpSub:
		return combine(r, s, gpu.Int128.Sub)
	case gpu.OpMul:
		return combine(r, s, gpu.Int128.Mul)
	case gpu.OpNeg:
		zero := gpu.Int128{}
		return combine(&Range{zero, zero}, r, gpu.Int128.Sub)
	case gpu.OpAbs:
		neg := arithmeticRange(gpu.OpNeg, r, nil)
		switch {
		case r == nil || r.Lo.Sign() >= 0:
			return r
		case neg == nil: // the least HUGEINT has no opposite
			return nil
		case r.Hi.Sign() <= 0:
			return neg
		}
		u := r.union(neg)
		u.Lo = gpu.Int128{}
		return u
	case gpu.OpMod:
		// The remainder has the sign of the dividend. It is smaller than the divisor and not larger than
		// the dividend.
		u := r.union(rangeOf(0, 0))
		if u == nil || !s.fitsInt64() {
			return u
		}
		one := gpu.Int128From(1)
		most, _ := s.Hi.Sub(one)
		below, _ := s.Lo.Add(one)
		if most.Less(below.Neg()) {
			most = below.Neg()
		}
		if most.Sign() < 0 { // by zero
			most = gpu.Int128{}
		}
		return u.clip(&Range{most.Neg(), most})
	}
	return nil
}

// rescaled returns the range of decimals of one scale in another scale, with rounding.
func (r *Range) rescaled(from, to int) *Range {
	if r == nil || from == to {
		return r
	}
	if to > from {
		k := gpu.Pow10(to - from)
		return combine(r, &Range{k, k}, gpu.Int128.Mul)
	}
	k := gpu.Pow10(from - to)
	lo, _ := r.Lo.QuoRem(k)
	hi, _ := r.Hi.QuoRem(k)
	one := gpu.Int128From(1)
	lo, _ = lo.Sub(one)
	hi, _ = hi.Add(one)
	return &Range{lo, hi}
}
