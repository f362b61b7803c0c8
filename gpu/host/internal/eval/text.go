package eval

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
)

// chr runs OpChr.
func (f *frame) chr(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	v.str = f.texts()[:f.n]
	for i, r := range vals[int64](&f.vecs[s.Args[0]], f.n) {
		from := len(f.pool.bytes)
		if r >= 0 && r <= unicode.MaxRune && (v.valid == nil || v.valid[i>>6]>>(i&63)&1 != 0) {
			f.pool.bytes = utf8.AppendRune(f.pool.bytes, rune(r))
		}
		v.str[i] = f.text(from)
	}
	return nil
}

// likeColumn reports whether s matches a pattern without escapes. After a mismatch the text matched
// by the last % grows by a code point.
func likeColumn(s, pattern string, fold bool) bool {
	if fold {
		s, pattern = lowerForMatch(s), lowerForMatch(pattern)
	}
	i, j, star, mark := 0, 0, -1, 0
	for i < len(s) {
		if j < len(pattern) {
			if pattern[j] == '%' {
				j++
				star, mark = j, i
				continue
			}
			_, n := utf8.DecodeRuneInString(s[i:])
			if pattern[j] == '_' {
				i, j = i+n, j+1
				continue
			}
			if _, m := utf8.DecodeRuneInString(pattern[j:]); pattern[j:j+m] == s[i:i+n] {
				i, j = i+n, j+n
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, n := utf8.DecodeRuneInString(s[mark:])
		mark += n
		i, j = mark, star
	}
	return strings.Trim(pattern[j:], "%") == ""
}

// splitPart returns part n of s, counted from the end if n is negative.
func splitPart(s, separator string, n int64) string {
	if n < 0 {
		parts := int64(strings.Count(s, separator)) + 1
		if separator == "" {
			parts = int64(utf8.RuneCountInString(s))
		}
		n += parts + 1
	}
	for ; n > 0; n-- {
		var end, next int
		if separator == "" {
			_, end = utf8.DecodeRuneInString(s)
			next = end
		} else if end = strings.Index(s, separator); end < 0 {
			if n == 1 {
				return s
			}
			return ""
		} else {
			next = end + len(separator)
		}
		if n == 1 {
			return s[:end]
		}
		if s = s[next:]; separator == "" && s == "" {
			return ""
		}
	}
	return ""
}

// translate appends s, with the code points in from replaced by those in to.
func translate(out []byte, s, from, to string) []byte {
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		char := s[:n]
		s = s[n:]
		f, t, found := from, to, false
		for len(f) > 0 && !found {
			_, m := utf8.DecodeRuneInString(f)
			_, k := utf8.DecodeRuneInString(t)
			if found = f[:m] == char; found {
				char = t[:k]
			}
			f, t = f[m:], t[k:]
		}
		out = append(out, char...)
	}
	return out
}

// repeat appends s n times.
func (f *frame) repeat(s *instruction, x string, n int64) error {
	if n <= 0 || x == "" {
		return nil
	}
	if n > batchBytes || int64(len(x))*n+int64(len(f.pool.bytes)) > batchBytes {
		return gpu.Exceeded("in %s: the strings of %d rows take more than 2 GiB", s.Text, f.n)
	}
	for range n {
		f.pool.bytes = append(f.pool.bytes, x...)
	}
	return nil
}

// digest appends the hexadecimal digits of a hash of s.
func digest(out []byte, d gpu.Digest, s string) []byte {
	switch d {
	case gpu.MD5:
		sum := md5.Sum([]byte(s))
		return hex.AppendEncode(out, sum[:])
	case gpu.SHA1:
		sum := sha1.Sum([]byte(s))
		return hex.AppendEncode(out, sum[:])
	}
	sum := sha256.Sum256([]byte(s))
	return hex.AppendEncode(out, sum[:])
}
