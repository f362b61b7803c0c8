package eval

import "github.com/gstream/gstream/gpu"

// ordered are the types whose < in Go is the order of SQL.
type ordered interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~string
}

// relation is one of the three comparisons that kernels implement. The other comparisons are their
// negations and mirror images.
type relation uint8

const (
	less relation = iota
	lessEqual
	equal
)

func b2u(b bool) uint64 {
	var u uint64
	if b {
		u = 1
	}
	return u
}

// compareConst sets bit i of out where a[i] is in relation to c.
func compareConst[T ordered](out []uint64, a []T, c T, rel relation) {
	full := len(a) / 64
	switch rel {
	case less:
		for w := range full {
			var word uint64
			for k := 0; k < 64; k += 8 {
				x := a[w*64+k : w*64+k+8 : w*64+k+8]
				word |= (b2u(x[0] < c) | b2u(x[1] < c)<<1 | b2u(x[2] < c)<<2 | b2u(x[3] < c)<<3 |
					b2u(x[4] < c)<<4 | b2u(x[5] < c)<<5 | b2u(x[6] < c)<<6 | b2u(x[7] < c)<<7) << k
			}
			out[w] = word
		}
	case lessEqual:
		for w := range full {
			var word uint64
			for k := 0; k < 64; k += 8 {
				x := a[w*64+k : w*64+k+8 : w*64+k+8]
				word |= (b2u(x[0] <= c) | b2u(x[1] <= c)<<1 | b2u(x[2] <= c)<<2 | b2u(x[3] <= c)<<3 |
					b2u(x[4] <= c)<<4 | b2u(x[5] <= c)<<5 | b2u(x[6] <= c)<<6 | b2u(x[7] <= c)<<7) << k
			}
			out[w] = word
		}
	case equal:
		for w := range full {
			var word uint64
			for k := 0; k < 64; k += 8 {
				x := a[w*64+k : w*64+k+8 : w*64+k+8]
				word |= (b2u(x[0] == c) | b2u(x[1] == c)<<1 | b2u(x[2] == c)<<2 | b2u(x[3] == c)<<3 |
					b2u(x[4] == c)<<4 | b2u(x[5] == c)<<5 | b2u(x[6] == c)<<6 | b2u(x[7] == c)<<7) << k
			}
			out[w] = word
		}
	}
	if rest := a[full*64:]; len(rest) > 0 {
		var word uint64
		for j, x := range rest {
			word |= (b2u(rel == less && x < c) | b2u(rel == lessEqual && x <= c) | b2u(rel == equal &&
				x == c)) << (j & 63)
		}
		out[full] = word
	}
}

// compareValues sets bit i of out where a[i] is in relation to b[i].
func compareValues[T ordered](out []uint64, a, b []T, rel relation) {
	for w := range out {
		var word uint64
		x := a[w*64 : min(w*64+64, len(a))]
		y := b[w*64:][:len(x)]
		switch rel {
		case less:
			for j := range x {
				word |= b2u(x[j] < y[j]) << (j & 63)
			}
		case lessEqual:
			for j := range x {
				word |= b2u(x[j] <= y[j]) << (j & 63)
			}
		case equal:
			for j := range x {
				word |= b2u(x[j] == y[j]) << (j & 63)
			}
		}
		out[w] = word
	}
}

// compareFloats compares floats in the order of gpu.CompareFloat.
func compareFloats[T float32 | float64](out []uint64, a, b []T, rel relation) {
	for w := range out {
		var word uint64
		x := a[w*64 : min(w*64+64, len(a))]
		y := b[w*64:][:len(x)]
		switch rel {
		case less:
			for j := range x {
				word |= b2u(x[j] < y[j] || y[j] != y[j] && x[j] == x[j]) << (j & 63)
			}
		case lessEqual:
			for j := range x {
				word |= b2u(x[j] <= y[j] || y[j] != y[j]) << (j & 63)
			}
		case equal:
			for j := range x {
				word |= b2u(x[j] == y[j] || x[j] != x[j] && y[j] != y[j]) << (j & 63)
			}
		}
		out[w] = word
	}
}

func compareWide(out []uint64, a, b []gpu.Int128, rel relation) {
	for w := range out {
		var word uint64
		x := a[w*64 : min(w*64+64, len(a))]
		y := b[w*64:][:len(x)]
		switch rel {
		case less:
			for j := range x {
				word |= b2u(x[j].Less(y[j])) << (j & 63)
			}
		case lessEqual:
			for j := range x {
				word |= b2u(!y[j].Less(x[j])) << (j & 63)
			}
		case equal:
			for j := range x {
				word |= b2u(x[j] == y[j]) << (j & 63)
			}
		}
		out[w] = word
	}
}

func compareBits(out, a, b []uint64, rel relation) {
	for w := range out {
		switch rel {
		case less:
			out[w] = ^a[w] & b[w]
		case lessEqual:
			out[w] = ^a[w] | b[w]
		case equal:
			out[w] = ^(a[w] ^ b[w])
		}
	}
}

// compare runs the comparisons, including the null-safe ones.
func (f *frame) compare(s *instruction, v *vec) error {
	a, b := s.Args[0], s.Args[1]
	rel, negate := equal, false
	switch s.Op {
	case gpu.OpNe, gpu.OpDistinct:
		negate = true
	case gpu.OpLt:
		rel = less
	case gpu.OpLe:
		rel = lessEqual
	case gpu.OpGt:
		rel, negate = lessEqual, true
	case gpu.OpGe:
		rel, negate = less, true
	}
	out := f.bitsOf(v)
	f.relate(out, &f.vecs[a], &f.vecs[b], rel)
	if negate {
		for w := range out {
			out[w] = ^out[w]
		}
	}
	if s.Op != gpu.OpDistinct && s.Op != gpu.OpNotDistinct {
		v.valid = f.bothValid(s.Args)
		return nil
	}
	va, vb := f.vecs[a].valid, f.vecs[b].valid
	if va == nil && vb == nil {
		return nil
	}
	for w := range out {
		x, y := ^uint64(0), ^uint64(0)
		if va != nil {
			x = va[w]
		}
		if vb != nil {
			y = vb[w]
		}
		if s.Op == gpu.OpDistinct {
			out[w] = out[w]&x&y | (x ^ y)
		} else {
			out[w] = out[w]&x&y | ^(x | y)
		}
	}
	return nil
}

// relate compares two registers of one SQL type.
func (f *frame) relate(out []uint64, a, b *vec, rel relation) {
	n := f.n
	switch kind := a.typ.Kind; {
	case kind == gpu.Bool:
		compareBits(out, a.bits, b.bits, rel)
	case a.typ.IsVar():
		if b.constant {
			compareConst(out, a.str[:n], b.value.Str, rel)
		} else {
			compareValues(out, a.str[:n], b.str[:n], rel)
		}
	case kind == gpu.Float32:
		compareFloats(out, vals[float32](a, n), vals[float32](b, n), rel)
	case kind == gpu.Float64:
		compareFloats(out, vals[float64](a, n), vals[float64](b, n), rel)
	case a.typ.Wide || b.typ.Wide:
		compareWide(out, f.wide(a), f.wide(b), rel)
	case kind == gpu.Int8:
		relateAs[int8](out, a, b, n, rel)
	case kind == gpu.Int16:
		relateAs[int16](out, a, b, n, rel)
	case kind == gpu.Uint8:
		relateAs[uint8](out, a, b, n, rel)
	case kind == gpu.Uint16:
		relateAs[uint16](out, a, b, n, rel)
	case kind == gpu.Uint32:
		relateAs[uint32](out, a, b, n, rel)
	case kind == gpu.Uint64:
		relateAs[uint64](out, a, b, n, rel)
	case a.typ.Width() == 4:
		relateAs[int32](out, a, b, n, rel)
	default:
		relateAs[int64](out, a, b, n, rel)
	}
}

func relateAs[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](out []uint64, a, b *vec, n int,
	rel relation) {
	if b.constant {
		compareConst(out, vals[T](a, n), vals[T](b, n)[0], rel)
		return
	}
	compareValues(out, vals[T](a, n), vals[T](b, n), rel)
}

// logic runs three-valued logic, 64 rows at a time.
func (f *frame) logic(s *instruction, v *vec) error {
	a := &f.vecs[s.Args[0]]
	out := f.bitsOf(v)
	switch s.Op {
	case gpu.OpNot:
		for w := range out {
			out[w] = ^a.bits[w]
		}
		v.valid = a.valid
		return nil
	case gpu.OpIsNull, gpu.OpIsNotNull:
		var flip uint64
		if s.Op == gpu.OpIsNull {
			flip = ^flip
		}
		for w := range out {
			x := ^uint64(0)
			if a.valid != nil {
				x = a.valid[w]
			}
			out[w] = x ^ flip
		}
		return nil
	}
	// AND over the rows that are certainly true and those that are certainly false. OR is
	// the AND of the negations.
	var flip uint64
	if s.Op == gpu.OpOr {
		flip = ^flip
	}
	nulls := false
	for _, r := range s.Args {
		nulls = nulls || f.vecs[r].valid != nil
	}
	if !nulls {
		for w := range out {
			x := a.bits[w] ^ flip
			for _, r := range s.Args[1:] {
				x &= f.vecs[r].bits[w] ^ flip
			}
			out[w] = x ^ flip
		}
		return nil
	}
	valid := f.bitmap()[:f.words()]
	for w := range out {
		yes, no := ^uint64(0), uint64(0)
		for _, r := range s.Args {
			x, ok := f.vecs[r].bits[w]^flip, ^uint64(0)
			if f.vecs[r].valid != nil {
				ok = f.vecs[r].valid[w]
			}
			yes &= x & ok
			no |= ^x & ok
		}
		out[w], valid[w] = yes^flip, yes|no
	}
	v.valid, v.owned = valid, true
	return nil
}

// choose runs OpSelect.
func (f *frame) choose(s *instruction, v *vec) error {
	cond, a, b := &f.vecs[s.Args[0]], &f.vecs[s.Args[1]], &f.vecs[s.Args[2]]
	take := cond.bits
	if cond.valid != nil {
		take = f.bitmap()[:f.words()]
		for w := range take {
			take[w] = cond.bits[w] & cond.valid[w]
		}
	}
	if a.valid != nil || b.valid != nil {
		v.valid, v.owned = f.bitmap()[:f.words()], true
		for w := range v.valid {
			x, y := ^uint64(0), ^uint64(0)
			if a.valid != nil {
				x = a.valid[w]
			}
			if b.valid != nil {
				y = b.valid[w]
			}
			v.valid[w] = x&take[w] | y&^take[w]
		}
	}
	switch {
	case v.typ.Kind == gpu.Bool:
		out := f.bitsOf(v)
		for w := range out {
			out[w] = a.bits[w]&take[w] | b.bits[w]&^take[w]
		}
	case v.typ.IsVar():
		v.str = f.texts()[:f.n]
		chooseValues(v.str, a.str, b.str, take)
	case v.typ.Wide:
		chooseValues(dst[gpu.Int128](f, v), f.wide(a), f.wide(b), take)
	case a.typ.Wide || b.typ.Wide:
		wide := blockOf[gpu.Int128](f)
		chooseValues(wide, f.wide(a), f.wide(b), take)
		return f.narrow(s, v, wide)
	default:
		switch v.typ.Width() {
		case 1:
			chooseValues(dst[uint8](f, v), vals[uint8](a, f.n), vals[uint8](b, f.n), take)
		case 2:
			chooseValues(dst[uint16](f, v), vals[uint16](a, f.n), vals[uint16](b, f.n), take)
		case 4:
			chooseValues(dst[uint32](f, v), vals[uint32](a, f.n), vals[uint32](b, f.n), take)
		case 8:
			chooseValues(dst[uint64](f, v), vals[uint64](a, f.n), vals[uint64](b, f.n), take)
		}
	}
	return nil
}

func chooseValues[T any](out, a, b []T, take []uint64) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		x := b[i]
		if take[i>>6]>>(i&63)&1 != 0 {
			x = a[i]
		}
		out[i] = x
	}
}
