package eval

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// likePattern is a LIKE pattern prepared for matching: the runs of text between the %
// signs. A run is plain text, or has _ in it and is matched rune by rune.
type likePattern struct {
	runs               []likeRun
	openLeft, openEnd  bool // begins with %, ends with %
	fold               bool
	matchesAll, simple bool // simple: every run is plain text
}

type likeRun struct {
	text string
	any  []bool // by rune of text: the rune is _; nil for plain text
}

// compileLike prepares a pattern. escape 0 means none.
func compileLike(pattern string, escape rune, fold bool) *likePattern {
	p := &likePattern{fold: fold, simple: true}
	var b strings.Builder
	var wild []bool
	special, started, escaped := false, false, false
	flush := func() {
		if b.Len() > 0 {
			r := likeRun{text: b.String()}
			if special {
				r.any = wild
				p.simple = false
			}
			p.runs = append(p.runs, r)
		}
		b.Reset()
		wild, special = nil, false
	}
	for len(pattern) > 0 {
		r, n := utf8.DecodeRuneInString(pattern)
		char := pattern[:n]
		pattern = pattern[n:]
		p.openEnd = false
		switch {
		case escaped:
			escaped = false
		case escape != 0 && r == escape:
			escaped = true
			continue
		case r == '%':
			flush()
			p.openEnd = true
			if !started {
				p.openLeft = true
			}
			started = true
			continue
		case r == '_':
			special = true
			wild = append(wild, true)
			b.WriteByte('_')
			started = true
			continue
		}
		started = true
		wild = append(wild, false)
		if fold {
			b.WriteRune(unicode.ToLower(r))
		} else {
			b.WriteString(char)
		}
	}
	flush()
	p.matchesAll = len(p.runs) == 0 && p.openEnd
	return p
}

// match reports whether all of s matches the pattern. It uses the leftmost match of each run, which
// is correct because the text between runs is arbitrary.
func (p *likePattern) match(s string) bool {
	if p.fold {
		s = lowerForMatch(s)
	}
	runs := p.runs
	if len(runs) == 0 {
		return p.openEnd || s == ""
	}
	if !p.openLeft {
		n := runs[0].prefix(s)
		if n < 0 {
			return false
		}
		s, runs = s[n:], runs[1:]
		if len(runs) == 0 {
			return p.openEnd || s == ""
		}
	}
	last := len(runs)
	if !p.openEnd {
		last--
	}
	for _, r := range runs[:last] {
		end := r.find(s)
		if end < 0 {
			return false
		}
		s = s[end:]
	}
	return p.openEnd || runs[last].suffix(s)
}

// prefix returns the number of bytes at the start of s that the run matches, or -1.
func (r *likeRun) prefix(s string) int {
	if r.any == nil {
		if strings.HasPrefix(s, r.text) {
			return len(r.text)
		}
		return -1
	}
	text, at := r.text, 0
	for _, any := range r.any {
		if at >= len(s) {
			return -1
		}
		_, n := utf8.DecodeRuneInString(s[at:])
		_, m := utf8.DecodeRuneInString(text)
		if !any && s[at:at+n] != text[:m] {
			return -1
		}
		at, text = at+n, text[m:]
	}
	return at
}

// find returns the end of the first match of the run in s, or -1.
func (r *likeRun) find(s string) int {
	if r.any == nil {
		i := strings.Index(s, r.text)
		if i < 0 {
			return -1
		}
		return i + len(r.text)
	}
	for at := 0; at <= len(s); {
		if n := r.prefix(s[at:]); n >= 0 {
			return at + n
		}
		if at == len(s) {
			break
		}
		_, n := utf8.DecodeRuneInString(s[at:])
		at += n
	}
	return -1
}

// suffix reports whether the run matches the end of s.
func (r *likeRun) suffix(s string) bool {
	if r.any == nil {
		return strings.HasSuffix(s, r.text)
	}
	at := len(s)
	for range r.any {
		if at == 0 {
			return false
		}
		_, n := utf8.DecodeLastRuneInString(s[:at])
		at -= n
	}
	return r.prefix(s[at:]) == len(s)-at
}

// lowerForMatch returns the text that ILIKE compares: lower case, rune by rune. It does not copy
// text that is already in lower case.
func lowerForMatch(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf {
			return strings.Map(unicode.ToLower, s)
		}
	}
	return s
}
