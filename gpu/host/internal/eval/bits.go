package eval

import (
	"math/bits"
	"sort"

	"github.com/gstream/gstream/gpu"
)

// bits runs the operations on the bits of integers, and OpGCD.
func (f *frame) bits(s *instruction, v *vec) error {
	a := &f.vecs[s.Args[0]]
	v.valid = f.bothValid(s.Args)
	if s.Op == gpu.OpBitCount {
		out, x, width := blockOf[int64](f), f.wide(a), 8*a.typ.Width()
		for i := range out {
			lo, hi := x[i].Lo, uint64(x[i].Hi)
			if width < 64 {
				lo &= 1<<width - 1
			}
			if width <= 64 {
				hi = 0
			}
			out[i] = int64(bits.OnesCount64(lo) + bits.OnesCount64(hi))
		}
		f.storeInt64s(v, out)
		return nil
	}
	out, x, y := blockOf[gpu.Int128](f), f.wide(a), f.wide(&f.vecs[s.Args[1]])
	lo, hi := v.typ.Bounds()
	width := gpu.Int128From(int64(8 * v.typ.Width()))
	for i := range out {
		var r gpu.Int128
		over := false
		switch s.Op {
		case gpu.OpBitAnd:
			r = gpu.Int128{Lo: x[i].Lo & y[i].Lo, Hi: x[i].Hi & y[i].Hi}
		case gpu.OpBitOr:
			r = gpu.Int128{Lo: x[i].Lo | y[i].Lo, Hi: x[i].Hi | y[i].Hi}
		case gpu.OpBitXor:
			r = gpu.Int128{Lo: x[i].Lo ^ y[i].Lo, Hi: x[i].Hi ^ y[i].Hi}
		case gpu.OpShiftLeft:
			outside := y[i].Sign() < 0 || y[i].Cmp(width) >= 0
			switch {
			case x[i].Sign() < 0 || y[i].Sign() < 0 || outside && x[i].Sign() != 0:
				over = true
			case x[i].Sign() == 0:
			case y[i].Lo == 127:
				over = true
			default:
				one := uint64(1)
				by := gpu.Int128{Lo: one << y[i].Lo}
				if y[i].Lo >= 64 {
					by = gpu.Int128{Hi: int64(one << (y[i].Lo - 64))}
				}
				r, over = x[i].Mul(by)
			}
		case gpu.OpShiftRight:
			if y[i].Sign() >= 0 && y[i].Cmp(width) < 0 {
				if n := y[i].Lo; n >= 64 {
					r = gpu.Int128{Lo: uint64(x[i].Hi >> (n - 64)), Hi: x[i].Hi >> 63}
				} else {
					r = gpu.Int128{Lo: x[i].Lo>>n | uint64(x[i].Hi)<<(64-n), Hi: x[i].Hi >> n}
				}
			}
		case gpu.OpGCD:
			r = x[i]
			for d := y[i]; d != (gpu.Int128{}); {
				_, rest := r.QuoRem(d)
				r, d = d, rest
			}
			if r.Sign() < 0 {
				r = r.Neg()
				over = r.Sign() < 0 // the least HUGEINT
			}
		}
		if over || r.Less(lo) || hi.Less(r) {
			if err := f.fail(s, v, i, func() error { return f.overflow(s, i) }); err != nil {
				return err
			}
			r = gpu.Int128{}
		}
		out[i] = r
	}
	f.storeInts(v, out)
	return nil
}

// assert runs OpAssert.
func (f *frame) assert(s *instruction, v *vec) error {
	a := &f.vecs[s.Args[0]]
	v.valid = a.valid
	out := f.bitsOf(v)
	copy(out, a.bits[:f.words()])
	for i := range f.n {
		if out[i>>6]>>(i&63)&1 == 0 {
			if err := f.fail(s, v, i, func() error {
				if len(s.Args) > 1 {
					return failed(s, "%s", f.vecs[s.Args[1]].str[i])
				}
				return failed(s, "%s", s.Value.Str)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeDate runs OpMakeDate.
func (f *frame) makeDate(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	out := dst[int32](f, v)
	y, m, d := vals[int64](&f.vecs[s.Args[0]], f.n), vals[int64](&f.vecs[s.Args[1]], f.n),
		vals[int64](&f.vecs[s.Args[2]], f.n)
	lo, hi := v.typ.Bounds()
	const years = 6_000_000 // beyond all dates, in both directions
	for i := range out {
		ok := y[i] >= -years && y[i] <= years && m[i] >= 1 && m[i] <= 12 && d[i] >= 1 && d[i] <= daysInMonth(y[i], m[i])
		if ok {
			days := daysOf(y[i], m[i], d[i])
			out[i] = int32(days)
			ok = days >= lo.Int64() && days <= hi.Int64()
		}
		if !ok {
			out[i] = 0
			if err := f.fail(s, v, i,
				func() error {
					return failed(s, "there is no date of the year, month and day %s",
						f.operands(s, i))
				}); err != nil {
				return err
			}
		}
	}
	return nil
}

// step runs OpStep.
func (f *frame) step(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	out := dst[int64](f, v)
	steps, results := s.Set[:s.N], s.Set[s.N:]
	for i, x := range vals[int64](&f.vecs[s.Args[0]], f.n) {
		k := sort.Search(len(steps), func(k int) bool { return steps[k].Int.Int64() > x })
		out[i] = results[k].Int.Int64()
	}
	return nil
}
