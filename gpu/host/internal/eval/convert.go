package eval

import "github.com/gstream/gstream/gpu"

// int64s views or converts a register that is stored as integers as int64, except wide
// decimals. An unsigned 64-bit integer keeps its bits.
func (f *frame) int64s(v *vec) []int64 {
	n := f.n
	if v.typ.Kind == gpu.Bool {
		out := blockOf[int64](f)
		for i := range out {
			out[i] = int64(v.bits[i>>6] >> (i & 63) & 1)
		}
		return out
	}
	switch v.typ.Kind {
	case gpu.Int8:
		return convert(blockOf[int64](f), vals[int8](v, n))
	case gpu.Int16:
		return convert(blockOf[int64](f), vals[int16](v, n))
	case gpu.Uint8:
		return convert(blockOf[int64](f), vals[uint8](v, n))
	case gpu.Uint16:
		return convert(blockOf[int64](f), vals[uint16](v, n))
	case gpu.Uint32:
		return convert(blockOf[int64](f), vals[uint32](v, n))
	case gpu.Int32, gpu.Date:
		return convert(blockOf[int64](f), vals[int32](v, n))
	}
	return vals[int64](v, n)
}

type number interface {
	signed | unsigned | float
}

func convert[T, U number](out []T, in []U) []T {
	in = in[:len(out)]
	for i := range out {
		out[i] = T(in[i])
	}
	return out
}

// wide returns the values of a register that is stored as integers in 128 bits. It is
// always a copy, so the caller may write to it.
func (f *frame) wide(v *vec) []gpu.Int128 {
	out := blockOf[gpu.Int128](f)
	switch {
	case v.typ.Wide:
		copy(out, vals[gpu.Int128](v, f.n))
	case v.typ.Kind == gpu.Uint64:
		for i, x := range vals[uint64](v, f.n) {
			out[i] = gpu.Int128FromUint(x)
		}
	default:
		for i, x := range f.int64s(v) {
			out[i] = gpu.Int128From(x)
		}
	}
	return out
}

// storeInts writes values, which fit, to the result v.
func (f *frame) storeInts(v *vec, in []gpu.Int128) {
	switch {
	case v.typ.Wide:
		copy(dst[gpu.Int128](f, v), in)
	case v.typ.Width() == 1:
		storeLow(dst[uint8](f, v), in)
	case v.typ.Width() == 2:
		storeLow(dst[uint16](f, v), in)
	case v.typ.Width() == 4:
		storeLow(dst[uint32](f, v), in)
	default:
		storeLow(dst[uint64](f, v), in)
	}
}

func storeLow[T unsigned](out []T, in []gpu.Int128) {
	for i := range out {
		out[i] = T(in[i].Lo)
	}
}

// storeInt64s is storeInts for values that fit 64 bits.
func (f *frame) storeInt64s(v *vec, in []int64) {
	switch {
	case v.typ.Wide:
		out := dst[gpu.Int128](f, v)
		for i := range out {
			out[i] = gpu.Int128From(in[i])
		}
	case v.typ.Width() == 1:
		convert(dst[int8](f, v), in)
	case v.typ.Width() == 2:
		convert(dst[int16](f, v), in)
	case v.typ.Width() == 4:
		convert(dst[int32](f, v), in)
	default:
		copy(dst[int64](f, v), in)
	}
}

// narrow checks that values fit the result and writes them.
func (f *frame) narrow(s *instruction, v *vec, in []gpu.Int128) error {
	lo, hi := v.typ.Bounds()
	for i, x := range in {
		if x.Less(lo) || hi.Less(x) {
			if err := f.fail(s, v, i, func() error {
				return failed(s, "%v does not fit %v", x.Format(int(v.typ.Scale)), v.typ)
			}); err != nil {
				return err
			}
			in[i] = gpu.Int128{}
		}
	}
	f.storeInts(v, in)
	return nil
}
