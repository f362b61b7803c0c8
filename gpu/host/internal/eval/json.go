package eval

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/jsontext"
)

// hosted runs the operations of package jsontext.
func (f *frame) hosted(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	fn := f.functions[s.result]
	if fn == nil {
		var err error
		if fn, err = jsontext.New(s.Instr); err != nil {
			return err
		}
		f.functions[s.result] = fn
	}
	x := f.vecs[s.Args[0]].str[:f.n]
	var y []string
	if len(s.Args) > 1 {
		y = f.vecs[s.Args[1]].str[:f.n]
	}
	var numbers []uint64
	switch {
	case s.Type.IsVar():
		v.str = f.texts()[:f.n]
	case s.Type.Kind == gpu.Bool:
		clear(f.bitsOf(v))
	default:
		numbers = dst[uint64](f, v)
	}
	other := ""
	for i, text := range x {
		var number uint64
		from, valid := len(f.pool.bytes), v.valid == nil || v.valid[i>>6]>>(i&63)&1 != 0
		if valid {
			if y != nil {
				other = y[i]
			}
			var err error
			if f.pool.bytes, number, valid, err = fn.Row(f.pool.bytes, text, other); err != nil {
				if err := f.fail(s, v, i, func() error { return failed(s, "%v", err) }); err != nil {
					return err
				}
			} else if !valid {
				f.setNull(v, i)
			}
			if !valid {
				f.pool.bytes = f.pool.bytes[:from]
			}
		}
		switch {
		case v.str != nil:
			v.str[i] = f.text(from)
		case numbers != nil:
			numbers[i] = number
		default:
			v.bits[i>>6] |= number & 1 << (i & 63)
		}
		if err := f.madeText(s); err != nil {
			return err
		}
	}
	return nil
}
