package regex

import (
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Match reports whether a text contains a match. It reads the text once, from its end.
func (a *Automaton) Match(s string) bool {
	if a.Next == nil {
		return a.matchSets(s)
	}
	moves, at := a.moves, uint32(a.Starts[0])
	for p := len(s); ; {
		if starts := uint8(at); starts != 0 {
			if starts>>kindBefore(s, p)&1 != 0 {
				return true
			}
			if starts&Dead != 0 {
				return false
			}
		}
		if p == 0 {
			return false
		}
		class := uint16(0)
		if c := s[p-1]; c < utf8.RuneSelf {
			class = a.ASCII[c]
			p--
		} else {
			var size int
			class, size = a.before(s, p)
			p -= size
		}
		at = moves[at>>8+uint32(class)]
	}
}

// matchSets is Match without a deterministic automaton.
func (a *Automaton) matchSets(s string) bool {
	var sets [2][MaxWords]uint32
	live, next := sets[0][:a.Words], sets[1][:a.Words]
	live[0] = 1
	for p := len(s); ; {
		if a.choose(len(a.First)-2, live, a.where(s, p)) >= 0 {
			return true
		}
		if p == 0 {
			return false
		}
		p -= a.back(s, p, live, next)
		live, next = next, live
	}
}

// back computes the set before the code point that ends at position p, from the set after it, and
// returns the size of the code point in bytes.
func (a *Automaton) back(s string, p int, live, before []uint32) int {
	class, size := a.before(s, p)
	holds := a.where(s, p)
	for w := range before {
		before[w] = 0
		for steps := a.Reads[int(class)*a.Words+w]; steps != 0; steps &= steps - 1 {
			if step := 32*w + bits.TrailingZeros32(steps); a.choose(step, live, holds) >= 0 {
				before[w] |= 1 << (step % 32)
			}
		}
	}
	before[0] |= 1
	return size
}

// where returns the conditions of the pattern that hold at a position.
func (a *Automaton) where(s string, p int) uint16 {
	if a.Where == 0 {
		return 0
	}
	return uint16(holds(kindBefore(s, p), kindAfter(s, p)))
}

// before returns the class of the code point before a position and its size in bytes.
func (a *Automaton) before(s string, p int) (class uint16, size int) {
	if c := s[p-1]; c < utf8.RuneSelf {
		return a.ASCII[c], 1
	}
	r, size := utf8.DecodeLastRuneInString(s[:p])
	return a.Ranges[a.rangeOf(r)], size
}

func kindBefore(s string, p int) int {
	if p == 0 {
		return kindNone
	}
	// The bytes of a code point above ASCII are neither newlines nor word characters.
	return kindOf(rune(s[p-1]))
}

func kindAfter(s string, p int) int {
	if p == len(s) {
		return kindNone
	}
	return kindOf(rune(s[p]))
}

// Search finds the matches of a text in order. It reuses its memory for the next text.
type Search struct {
	a    *Automaton
	text string
	// states has the state at each position where a code point begins; sets has the set instead, if
	// there is no deterministic automaton.
	states []uint16
	sets   []uint32
	// Slots are the positions of the last match, -1 for a group that did not match.
	Slots [Slots]int
}

// NewSearch returns a search by an automaton.
func (a *Automaton) NewSearch() *Search { return &Search{a: a} }

// Reset reads a text. For each byte of the text it takes 2 bytes of memory; without a deterministic
// automaton, 4 bytes per 32 steps of the pattern.
func (s *Search) Reset(text string) {
	s.text = text
	a, n := s.a, len(text)+1
	if a.Next == nil {
		s.sets = slices.Grow(s.sets[:0], n*a.Words)[:n*a.Words]
		live := s.sets[len(text)*a.Words:][:a.Words]
		clear(live)
		live[0] = 1
		for p := len(text); p > 0; {
			_, size := a.before(text, p)
			before := s.sets[(p-size)*a.Words:][:a.Words]
			a.back(text, p, live, before)
			live, p = before, p-size
		}
		return
	}
	s.states = slices.Grow(s.states[:0], n)[:n]
	state := uint16(0)
	for p := len(text); ; {
		s.states[p] = state
		if p == 0 {
			return
		}
		class, size := a.before(text, p)
		p -= size
		state = a.Next[int(state)*a.Classes+int(class)]
	}
}

// Bytes returns the memory that the search holds.
func (s *Search) Bytes() int64 { return 2*int64(cap(s.states)) + 4*int64(cap(s.sets)) }

// live returns the set at a position.
func (s *Search) live(p int) []uint32 {
	if s.a.Next == nil {
		return s.sets[p*s.a.Words:][:s.a.Words]
	}
	return s.a.Live[int(s.states[p])*s.a.Words:][:s.a.Words]
}

// begins reports whether a match begins at a position.
func (s *Search) begins(p int) bool {
	if s.a.Next == nil {
		return s.a.choose(len(s.a.First)-2, s.live(p), s.a.where(s.text, p)) >= 0
	}
	starts := s.a.Starts[s.states[p]]
	return starts != 0 && starts>>kindBefore(s.text, p)&1 != 0
}

// Next finds the first match that begins at position from or later; a code point begins at from. It
// sets Slots, and reports whether there is a match.
func (s *Search) Next(from int) bool {
	p := from
	for ; !s.begins(p); p += s.size(p) {
		if p == len(s.text) {
			return false
		}
	}
	s.walk(p)
	return true
}

// size returns the size in bytes of the code point at a position.
func (s *Search) size(p int) int {
	if s.text[p] < utf8.RuneSelf {
		return 1
	}
	_, size := utf8.DecodeRuneInString(s.text[p:])
	return size
}

// walk takes the steps of the match that begins at a position.
func (s *Search) walk(p int) {
	a := s.a
	for i := range s.Slots {
		s.Slots[i] = -1
	}
	s.Slots[0] = p
	step := len(a.First) - 2
	for {
		c := a.Follow[a.choose(step, s.live(p), s.a.where(s.text, p))]
		for k := 2; c.Slots>>k != 0; k++ {
			if c.Slots>>k&1 != 0 {
				s.Slots[k] = p
			}
		}
		if c.Step == 0 {
			s.Slots[1] = p
			return
		}
		step = int(c.Step)
		p += s.size(p)
	}
}

// Group returns the text of a group of the last match, "" if the group did not match.
func (s *Search) Group(k int) string {
	if 2*k+1 >= Slots || s.Slots[2*k] < 0 || s.Slots[2*k+1] < 0 {
		return ""
	}
	return s.text[s.Slots[2*k]:s.Slots[2*k+1]]
}

// Replace appends the text with its first match, or all of them, replaced. In the replacement \0 is
// the match, \1 to \9 are groups and \\ is a backslash. Replace stops and returns false after a
// replacement that ends beyond limit bytes.
func (s *Search) Replace(out []byte, replacement string, all bool, limit int) ([]byte, bool) {
	p, last := 0, -1
	for s.Next(p) {
		begin, end := s.Slots[0], s.Slots[1]
		out = append(out, s.text[p:begin]...)
		if begin == last && end == begin { // an empty match right after another match does not count
			if begin == len(s.text) {
				return out, true
			}
			size := s.size(begin)
			out = append(out, s.text[begin:begin+size]...)
			p = begin + size
			continue
		}
		for i := 0; i < len(replacement); i++ {
			c := replacement[i]
			if c == '\\' && i+1 < len(replacement) {
				i++
				if c = replacement[i]; c >= '0' && c <= '9' {
					out = append(out, s.Group(int(c-'0'))...)
					continue
				}
			}
			out = append(out, c)
		}
		if len(out) > limit {
			return out, false
		}
		p, last = end, end
		if !all {
			break
		}
	}
	return append(out, s.text[p:]...), true
}
