package eval

import (
	"encoding/base64"
	"math/bits"
	"strings"

	"github.com/gstream/gstream/gpu"
)

const (
	upperHex = "0123456789ABCDEF"
	// unreserved are the bytes besides letters and digits that a URL does not escape.
	unreserved = "-._~"
)

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c|32 >= 'a' && c|32 <= 'z'
}

// nibble returns the value of a hexadecimal digit, 0 for another byte.
func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|32 >= 'a' && c|32 <= 'f':
		return c | 32 - 'a' + 10
	}
	return 0
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|32 >= 'a' && c|32 <= 'f' }

// encode appends a text in an encoding.
func encode(out []byte, e gpu.Encoding, s string) []byte {
	switch e {
	case gpu.Hex:
		for i := range len(s) {
			out = append(out, upperHex[s[i]>>4], upperHex[s[i]&15])
		}
	case gpu.FromHex:
		if len(s)%2 == 1 {
			out, s = append(out, nibble(s[0])), s[1:]
		}
		for ; len(s) > 1; s = s[2:] {
			out = append(out, nibble(s[0])<<4|nibble(s[1]))
		}
	case gpu.Bits:
		for i := range len(s) {
			for k := 7; k >= 0; k-- {
				out = append(out, '0'+s[i]>>k&1)
			}
		}
	case gpu.FromBits:
		for len(s) > 0 {
			n, c := (len(s)-1)%8+1, byte(0)
			for i := range n {
				c = c<<1 | s[i]&1
			}
			out, s = append(out, c), s[n:]
		}
	case gpu.Base64:
		return base64.StdEncoding.AppendEncode(out, []byte(s))
	case gpu.FromBase64:
		// Rows that do not have this form fail elsewhere.
		if decoded, err := base64.StdEncoding.DecodeString(s); err == nil && !strings.ContainsAny(s, "\r\n") {
			return append(out, decoded...)
		}
	case gpu.URL:
		for i := range len(s) {
			if c := s[i]; isAlphanumeric(c) || c == unreserved[0] || c == unreserved[1] || c == unreserved[2] ||
				c == unreserved[3] {
				out = append(out, c)
			} else {
				out = append(out, '%', upperHex[c>>4], upperHex[c&15])
			}
		}
	case gpu.FromURL:
		for len(s) > 0 {
			if s[0] == '%' && len(s) > 2 && isHex(s[1]) && isHex(s[2]) {
				out, s = append(out, nibble(s[1])<<4|nibble(s[2])), s[3:]
			} else {
				out, s = append(out, s[0]), s[1:]
			}
		}
	default:
		return append(out, s...)
	}
	return out
}

// digits runs OpDigits.
func (f *frame) digits(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	v.str = f.texts()[:f.n]
	x := &f.vecs[s.Args[0]]
	for i := range f.n {
		from := len(f.pool.bytes)
		var hi, lo uint64
		switch x.typ.Width() {
		case 16:
			n := vals[gpu.Int128](x, f.n)[i]
			hi, lo = uint64(n.Hi), n.Lo
		default:
			lo = vals[uint64](x, f.n)[i]
		}
		f.pool.bytes = appendDigits(f.pool.bytes, hi, lo, uint64(s.N))
		v.str[i] = f.text(from)
	}
	return nil
}

// appendDigits appends a number of 128 bits in a base.
func appendDigits(out []byte, hi, lo, base uint64) []byte {
	var digits [128]byte
	at := len(digits)
	for hi != 0 || lo != 0 || at == len(digits) {
		var rest uint64
		hi, rest = hi/base, hi%base
		lo, rest = bits.Div64(rest, lo, base)
		at--
		if digits[at] = byte('0' + rest); rest > 9 {
			digits[at] = byte('A' + rest - 10)
		}
	}
	return append(out, digits[at:]...)
}
