package eval

import (
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// text returns the frame's bytes from a position on as a string. It stays valid until the
// batch is stored.
func (f *frame) text(from int) string {
	b := f.pool.bytes[from:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// batchBytes bounds the bytes of strings made in one batch, so that nested concatenations cannot
// take all memory before the result is denied memory.
const batchBytes = 1 << 31

// strings runs the operations on text.
func (f *frame) strings(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	n := f.n
	a := f.vecs[s.Args[0]].str[:n]
	var b, c []string
	if len(s.Args) > 1 && f.vecs[s.Args[1]].typ.IsVar() {
		b = f.vecs[s.Args[1]].str[:n]
	}
	if len(s.Args) > 2 && f.vecs[s.Args[2]].typ.IsVar() {
		c = f.vecs[s.Args[2]].str[:n]
	}
	switch s.Op {
	case gpu.OpLike, gpu.OpILike:
		if len(s.Args) == 2 {
			test(f.bitsOf(v), a, b, func(x, pattern string) bool { return likeColumn(x, pattern, s.Op == gpu.OpILike) })
			break
		}
		like(f.bitsOf(v), a, s.like)
	case gpu.OpCodePoint:
		out := dst[int32](f, v)
		for i, x := range a {
			out[i] = int32(s.N)
			if x != "" {
				r, _ := utf8.DecodeRuneInString(x)
				out[i] = r
			}
		}
	case gpu.OpStartsWith:
		test(f.bitsOf(v), a, b, strings.HasPrefix)
	case gpu.OpEndsWith:
		test(f.bitsOf(v), a, b, strings.HasSuffix)
	case gpu.OpContains:
		test(f.bitsOf(v), a, b, strings.Contains)
	case gpu.OpLength:
		out := dst[int64](f, v)
		for i, x := range a {
			if s.N == 1 || f.vecs[s.Args[0]].typ.Kind == gpu.Binary {
				out[i] = int64(len(x))
			} else {
				out[i] = int64(utf8.RuneCountInString(x))
			}
		}
	case gpu.OpPosition:
		out := dst[int64](f, v)
		for i, x := range a {
			out[i] = 0
			if k := strings.Index(x, b[i]); k >= 0 {
				out[i] = int64(utf8.RuneCountInString(x[:k])) + 1
			}
		}
	default:
		v.str = f.texts()[:n]
		return f.makeStrings(s, v, a, b, c)
	}
	return nil
}

func like(out []uint64, a []string, p *likePattern) {
	switch {
	case p.matchesAll:
		fill(out, ^uint64(0))
	case p.simple && !p.fold && len(p.runs) == 1 && p.openLeft && p.openEnd:
		text := p.runs[0].text
		for w := range out {
			var word uint64
			for j, x := range a[w*64 : min(w*64+64, len(a))] {
				word |= b2u(strings.Contains(x, text)) << (j & 63)
			}
			out[w] = word
		}
	default:
		for w := range out {
			var word uint64
			for j, x := range a[w*64 : min(w*64+64, len(a))] {
				word |= b2u(p.match(x)) << (j & 63)
			}
			out[w] = word
		}
	}
}

func test(out []uint64, a, b []string, holds func(s, part string) bool) {
	for w := range out {
		var word uint64
		for j, x := range a[w*64 : min(w*64+64, len(a))] {
			word |= b2u(holds(x, b[w*64+j])) << (j & 63)
		}
		out[w] = word
	}
}

// makeStrings runs the operations whose results are strings. Substrings of arguments are
// views; new strings are appended to the frame's bytes.
func (f *frame) makeStrings(s *instruction, v *vec, a, b, c []string) error {
	p := f.pool
	switch s.Op {
	case gpu.OpSubstring:
		start := vals[int64](&f.vecs[s.Args[1]], f.n)
		for i, x := range a {
			length := int64(1) << 40
			if len(s.Args) == 3 {
				length = vals[int64](&f.vecs[s.Args[2]], f.n)[i]
			}
			v.str[i] = substring(x, start[i], length)
		}
		return nil
	case gpu.OpSplitPart:
		part := vals[int64](&f.vecs[s.Args[2]], f.n)
		for i, x := range a {
			v.str[i] = splitPart(x, b[i], part[i])
		}
		return nil
	case gpu.OpTrim:
		for i, x := range a {
			if s.N&gpu.TrimLeft != 0 {
				x = strings.TrimLeft(x, b[i])
			}
			if s.N&gpu.TrimRight != 0 {
				x = strings.TrimRight(x, b[i])
			}
			v.str[i] = x
		}
		return nil
	}
	for i, x := range a {
		from := len(p.bytes)
		if v.valid != nil && v.valid[i>>6]>>(i&63)&1 == 0 {
			v.str[i] = ""
			continue
		}
		switch s.Op {
		case gpu.OpLower:
			p.bytes = mapRunes(p.bytes, x, unicode.ToLower)
		case gpu.OpUpper:
			p.bytes = mapRunes(p.bytes, x, gpu.Upper)
		case gpu.OpStripAccents:
			p.bytes = mapRunes(p.bytes, x, gpu.WithoutAccent)
		case gpu.OpReverse:
			for len(x) > 0 {
				_, n := utf8.DecodeLastRuneInString(x)
				p.bytes = append(p.bytes, x[len(x)-n:]...)
				x = x[:len(x)-n]
			}
		case gpu.OpConcat:
			for _, r := range s.Args {
				p.bytes = append(p.bytes, f.vecs[r].str[i]...)
			}
		case gpu.OpRepeat:
			if err := f.repeat(s, x, vals[int64](&f.vecs[s.Args[1]], f.n)[i]); err != nil {
				return err
			}
		case gpu.OpTranslate:
			p.bytes = translate(p.bytes, x, b[i], c[i])
		case gpu.OpEncode:
			p.bytes = encode(p.bytes, gpu.Encoding(s.N), x)
		case gpu.OpDigest:
			p.bytes = digest(p.bytes, gpu.Digest(s.N), x)
		case gpu.OpReplace:
			p.bytes = replace(p.bytes, x, b[i], c[i])
		}
		if f.count(); f.err != nil {
			return f.err
		}
		if len(p.bytes) > batchBytes {
			return gpu.Exceeded("in %s: the strings of %d rows take more than 2 GiB", s.Text, f.n)
		}
		v.str[i] = f.text(from)
	}
	return nil
}

// mapRunes appends a text with each code point mapped by f, or dropped if that is negative.
func mapRunes(out []byte, s string, f func(rune) rune) []byte {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			out = append(out, byte(f(rune(c))))
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			out = append(out, s[i])
		} else if r = f(r); r >= 0 {
			out = utf8.AppendRune(out, r)
		}
		i += n
	}
	return out
}

func replace(out []byte, s, from, to string) []byte {
	if from == "" {
		return append(out, s...)
	}
	for {
		i := strings.Index(s, from)
		if i < 0 {
			return append(out, s...)
		}
		out = append(append(out, s[:i]...), to...)
		s = s[i+len(from):]
	}
}

// substring returns length characters from start on. start counts from 1, or from the end if
// negative. A negative length returns the characters before start.
func substring(s string, start, length int64) string {
	const far = 1 << 40
	start, length = min(max(start, -far), far), min(max(length, -far), far)
	runes := int64(len(s))
	ascii := isASCII(s)
	if !ascii {
		runes = int64(utf8.RuneCountInString(s))
	}
	switch {
	case start > 0:
		start--
	case start < 0:
		start += runes
	default:
		start--
	}
	end := start + length
	if length < 0 {
		start, end = end, start
	}
	start, end = max(start, 0), min(end, runes)
	if start >= end {
		return ""
	}
	if ascii {
		return s[start:end]
	}
	from := runeOffset(s, start)
	return s[from : from+runeOffset(s[from:], end-start)]
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// runeOffset returns the byte offset of the n-th rune.
func runeOffset(s string, n int64) int {
	at := 0
	for ; n > 0; n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}
