package eval

import "github.com/gstream/gstream/gpu"

// regexp runs the operations of regular expressions.
func (f *frame) regexp(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	texts := f.vecs[s.Args[0]].str[:f.n]
	if s.Op == gpu.OpRegexp {
		test(f.bitsOf(v), texts, texts, func(x, _ string) bool { return s.regexp.Match(x) })
		return nil
	}
	v.str = f.texts()[:f.n]
	p, search := f.pool, s.regexp.NewSearch()
	defer func() { f.searched = 0 }()
	for i, x := range texts {
		v.str[i] = ""
		if v.valid != nil && v.valid[i>>6]>>(i&63)&1 == 0 {
			continue
		}
		search.Reset(x)
		if more := search.Bytes(); more > f.searched {
			f.searched = more
		}
		if f.count(); f.err != nil {
			return f.err
		}
		if s.Op == gpu.OpRegexpExtract {
			if search.Next(0) {
				v.str[i] = search.Group(s.N >> 8)
			}
			continue
		}
		from, fits := len(p.bytes), false
		if p.bytes, fits = search.Replace(p.bytes, f.vecs[s.Args[1]].str[i], s.N>>8 == 1, batchBytes); !fits {
			return gpu.Exceeded("in %s: the strings of %d rows take more than 2 GiB", s.Text, f.n)
		}
		v.str[i] = f.text(from)
	}
	return nil
}
