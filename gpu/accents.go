package gpu

import (
	_ "embed"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// accented has the code points that have a canonical decomposition in Unicode into another one
// and marks: a line has that one and then those.
//
//go:embed accents.txt
var accented string

var withoutAccents = sync.OnceValue(func() map[rune]rune {
	m := map[rune]rune{}
	for line := range strings.Lines(accented) {
		base, size := utf8.DecodeRuneInString(line)
		for _, r := range strings.TrimSpace(line[size:]) {
			m[r] = base
		}
	}
	return m
})

// WithoutAccent returns a code point without its accents for OpStripAccents, and -1 for an
// accent, which is a mark.
func WithoutAccent(r rune) rune {
	if base, ok := withoutAccents()[r]; ok {
		return base
	}
	if r >= 0x300 && unicode.Is(unicode.M, r) {
		return -1
	}
	return r
}
