package eval

import (
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// nest runs OpNest.
func (f *frame) nest(s *instruction, v *vec) error {
	x := &f.vecs[s.Args[0]]
	t := x.typ
	v.str = f.texts()[:f.n]
	for i := range f.n {
		from := len(f.pool.bytes)
		b := f.pool.bytes
		switch {
		case x.valid != nil && x.valid[i>>6]>>(i&63)&1 == 0:
			b = gpu.AppendNull(b)
		case t.IsNested():
			b = append(b, x.str[i]...)
		case t.IsVar():
			b = gpu.AppendBytes(b, x.str[i])
		case t.Kind == gpu.Bool:
			b = gpu.AppendFixed(b, t, gpu.Int128{Lo: x.bits[i>>6] >> (i & 63) & 1})
		case t.Kind == gpu.Float32:
			b = gpu.AppendFloat32(b, vals[float32](x, f.n)[i])
		case t.Kind == gpu.Float64:
			b = gpu.AppendFloat64(b, vals[float64](x, f.n)[i])
		default:
			b = gpu.AppendFixed(b, gpu.Nestable(t), wholeOf(x, f.n, i))
		}
		f.pool.bytes = b
		v.str[i] = f.text(from)
		if err := f.madeText(s); err != nil {
			return err
		}
	}
	return nil
}

// madeText counts the bytes of the strings that were made.
func (f *frame) madeText(s *instruction) error {
	if f.count(); f.err != nil {
		return f.err
	}
	if len(f.pool.bytes) > batchBytes {
		return gpu.Exceeded("in %s: the values of %d rows take more than 2 GiB", s.Text, f.n)
	}
	return nil
}

// wholeOf returns value i of a register of a type that is stored as integers.
func wholeOf(x *vec, n, i int) gpu.Int128 {
	switch t := x.typ; {
	case t.Width() == 16:
		return vals[gpu.Int128](x, n)[i]
	case t.Kind == gpu.Uint64:
		return gpu.Int128FromUint(vals[uint64](x, n)[i])
	case t.Width() == 8:
		return gpu.Int128From(vals[int64](x, n)[i])
	case t.Kind == gpu.Uint32:
		return gpu.Int128From(int64(vals[uint32](x, n)[i]))
	case t.Width() == 4:
		return gpu.Int128From(int64(vals[int32](x, n)[i]))
	case t.Kind == gpu.Uint16:
		return gpu.Int128From(int64(vals[uint16](x, n)[i]))
	case t.Width() == 2:
		return gpu.Int128From(int64(vals[int16](x, n)[i]))
	case t.Kind == gpu.Uint8:
		return gpu.Int128From(int64(vals[uint8](x, n)[i]))
	}
	return gpu.Int128From(int64(vals[int8](x, n)[i]))
}

// element runs OpElement.
func (f *frame) element(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	x, at, t := f.vecs[s.Args[0]].str, vals[int64](&f.vecs[s.Args[1]], f.n), s.Type
	var out []byte
	switch {
	case t.IsVar():
		v.str = f.texts()[:f.n]
	case t.Kind == gpu.Bool:
		clear(f.bitsOf(v))
	default:
		out = unsafe.Slice((*byte)(f.raw(v)), f.n*t.Width())
	}
	valid := v.valid
	for i := range f.n {
		value := ""
		if valid == nil || valid[i>>6]>>(i&63)&1 != 0 {
			value = gpu.ElementNested(x[i], at[i])
		}
		e := gpu.ScalarNested(value, t)
		if !e.Valid {
			e = gpu.Scalar{Type: t}
			f.setNull(v, i)
		}
		switch {
		case t.IsVar():
			v.str[i] = e.Str
		case t.Kind == gpu.Bool:
			v.bits[i>>6] |= e.Int.Lo & 1 << (i & 63)
		default:
			gpu.AppendStored(out[i*t.Width():i*t.Width():(i+1)*t.Width()], e)
		}
	}
	return nil
}

// elements runs the operations that return a number about a nested value.
func (f *frame) elements(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	out := dst[int64](f, v)
	for i, x := range f.vecs[s.Args[0]].str[:f.n] {
		if s.Op == gpu.OpCountElements {
			out[i] = gpu.CountNested(x)
		} else {
			out[i] = gpu.FindNested(x, f.vecs[s.Args[1]].str[i], s.N)
		}
	}
	return nil
}

// makeNested runs the operations that make nested values of others.
func (f *frame) makeNested(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	v.str = f.texts()[:f.n]
	for i, x := range f.vecs[s.Args[0]].str[:f.n] {
		if v.valid != nil && v.valid[i>>6]>>(i&63)&1 == 0 {
			v.str[i] = ""
			continue
		}
		from, b := len(f.pool.bytes), f.pool.bytes
		switch s.Op {
		case gpu.OpSliceElements:
			b = gpu.AppendSlice(b, x, vals[int64](&f.vecs[s.Args[1]], f.n)[i], vals[int64](&f.vecs[s.Args[2]], f.n)[i])
		case gpu.OpPluckElements:
			b = gpu.AppendPlucked(b, x, s.N)
		case gpu.OpFlattenElements:
			b = gpu.AppendFlat(b, x)
		case gpu.OpJoinElements:
			b = gpu.AppendJoined(b, x, f.vecs[s.Args[1]].str[i])
		case gpu.OpZipElements:
			b = gpu.AppendZipped(b, x, f.vecs[s.Args[1]].str[i])
		case gpu.OpCanonical:
			b = gpu.AppendCanonical(b, x)
		}
		f.pool.bytes = b
		v.str[i] = f.text(from)
		if err := f.madeText(s); err != nil {
			return err
		}
	}
	return nil
}
