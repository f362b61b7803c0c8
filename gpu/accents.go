package gpu

import (
	_ "embed"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// accented has the code points whose canonical decomposition in Unicode is a base code point
// followed by marks. A line has the base and then all code points with this base.
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

// WithoutAccent returns a code point without its accents for OpStripAccents, and -1 for an accent
// itself.
func WithoutAccent(r rune) rune {
	if base, ok := withoutAccents()[r]; ok {
		return base
	}
	if r >= 0x300 && unicode.Is(unicode.M, r) {
		return -1
	}
	return r
}
