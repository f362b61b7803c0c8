// Package regex compiles regular expressions to automata that CPU and GPU run. They find
// leftmost-first matches, as RE2 and Go's regexp do, in time linear in the text, without
// backtracking and without the thread list of a Pike VM.
//
// A text is read twice: first from its end to its beginning. The state at a position is the set of
// the pattern's steps from which the rest of the text leads to a match. A deterministic automaton
// over sets computes it with one look-up per code point. The state says whether a match can begin
// at its position. From the leftmost such position the text is read forwards: at each position the
// search takes the first step, in order of preference, that is in the set, so it never backtracks
// (Frisch and Cardelli: Greedy Regular Expression Matching, ICALP 2004).
package regex

import (
	"errors"
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"sort"
	"sync"
	"unicode"

	"github.com/gstream/gstream/gpu"
)

// Options change what a pattern means.
type Options int

// The options, which may be combined.
const (
	Fold    Options = 1 << iota // letters match without regard to case
	DotAll                      // . also matches the end of a line
	Literal                     // the pattern is plain text
	Full                        // a match is the whole text
)

// Slots is the number of positions that a match sets: the beginning and the end of the match and
// of groups 1 to 9.
const Slots = 20

// The limits of an automaton keep the cost of a pattern below some megabytes and a second. A
// pattern beyond them has no deterministic automaton, or is rejected.
const (
	maxChoices = 1 << 16
	maxStates  = 1 << 14
	maxTable   = 1 << 22 // bytes
	maxWork    = 1 << 26 // look-ups while the automaton is made
	// MaxWords is the greatest number of Words without a deterministic automaton.
	MaxWords = 32
)

// Automaton is a compiled pattern. It is immutable. Devices copy its tables.
type Automaton struct {
	Groups int    // capturing groups of the pattern
	Where  uint16 // conditions of the pattern; see Choice

	// ASCII has the class of each code point below 128. Any other code point is in the first range
	// i with Bounds[i] above the code point, and has the class Ranges[i].
	ASCII   [128]uint16
	Bounds  []uint32
	Ranges  []uint16
	Classes int

	// Words is the number of words of a set of steps: bit s is step s. Reads has the set of the
	// steps that read a code point of each class.
	Words int
	Reads []uint32
	// Next has the state before a code point, by the state after it and the class of the code
	// point. State 0 is the state at the end of a text. Without a deterministic automaton Next,
	// Starts and Live are nil.
	Next []uint16
	// Starts has bits for each state. Bit k: a match can begin here, after a code point of kind k.
	// Dead: no match can begin here or before.
	Starts []uint8
	// Live has the set of each state: the steps that lead to a match, among them always step 0.
	Live []uint32

	// moves has Next and Starts in one look-up. It is indexed as Next. A value is 256 times the
	// index in Next of the state before, plus the Starts of that state.
	moves []uint32

	// Step s is followed by one of Follow[First[s]:First[s+1]], in order of preference. Step 0 is
	// the end of a match. The choices at the beginning of a match are those after the last step.
	First  []uint32
	Follow []Choice
}

// Choice is a step that may be taken at a position.
type Choice struct {
	Step  uint16
	Where uint16 // the conditions, of type syntax.EmptyOp, that must hold there
	Slots uint32 // the slots that are set to the position
}

// Dead is a bit of Starts.
const Dead = 1 << 7

// Kinds of code points next to a position.
const (
	kindNone    = iota // the text ends
	kindNewline        // \n
	kindWord           // [0-9A-Za-z_]
	kindOther
	kinds
)

func kindOf(r rune) int {
	switch {
	case r == '\n':
		return kindNewline
	case syntax.IsWordChar(r):
		return kindWord
	}
	return kindOther
}

// holds returns the conditions that hold between code points of two kinds.
func holds(before, after int) syntax.EmptyOp {
	var w syntax.EmptyOp
	if before == kindNone {
		w |= syntax.EmptyBeginText | syntax.EmptyBeginLine
	}
	if before == kindNewline {
		w |= syntax.EmptyBeginLine
	}
	if after == kindNone {
		w |= syntax.EmptyEndText | syntax.EmptyEndLine
	}
	if after == kindNewline {
		w |= syntax.EmptyEndLine
	}
	if (before == kindWord) != (after == kindWord) {
		return w | syntax.EmptyWordBoundary
	}
	return w | syntax.EmptyNoWordBoundary
}

// compiled keeps the automata of patterns, because every stride needs them.
var compiled struct {
	sync.Mutex
	automata map[key]*Automaton
	bytes    int
}

type key struct {
	pattern string
	options Options
}

// maxCompiled bounds the bytes of the automata that are kept.
const maxCompiled = 64 << 20

// bytes estimates the memory of an automaton.
func (a *Automaton) bytes() int {
	return 6*len(a.Next) + 4*(len(a.Live)+len(a.Reads)+len(a.Bounds)) + 8*len(a.Follow) + 1<<10
}

// Compile returns the automaton of a pattern in RE2's syntax. If the pattern is wrong, or its
// automaton too large, the error names the part at fault.
func Compile(pattern string, o Options) (*Automaton, error) {
	k := key{pattern, o}
	compiled.Lock()
	a := compiled.automata[k]
	compiled.Unlock()
	if a != nil {
		return a, nil
	}
	a, err := compile(pattern, o)
	if err != nil {
		return nil, err
	}
	compiled.Lock()
	if compiled.bytes += a.bytes(); compiled.bytes > maxCompiled || compiled.automata == nil {
		compiled.automata, compiled.bytes = map[key]*Automaton{}, a.bytes()
	}
	compiled.automata[k] = a
	compiled.Unlock()
	return a, nil
}

// parse returns the syntax tree of a pattern.
func parse(pattern string, o Options) (*syntax.Regexp, error) {
	flags := syntax.Perl
	if o&Fold != 0 {
		flags |= syntax.FoldCase
	}
	if o&DotAll != 0 {
		flags |= syntax.DotNL
	}
	if o&Literal != 0 {
		flags |= syntax.Literal
	}
	re, err := syntax.Parse(pattern, flags)
	if err != nil {
		if e := (*syntax.Error)(nil); errors.As(err, &e) {
			return nil, fmt.Errorf("%v: %.60s", e.Code, e.Expr)
		}
		return nil, err
	}
	if o&Full != 0 {
		re = &syntax.Regexp{Op: syntax.OpConcat,
			Sub: []*syntax.Regexp{{Op: syntax.OpBeginText}, re, {Op: syntax.OpEndText}}}
	}
	return re, nil
}

var errTooComplex = errors.New("its automaton is too large; use fewer or smaller repetitions, or split the pattern")

func compile(pattern string, o Options) (*Automaton, error) {
	re, err := parse(pattern, o)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	m := &maker{prog: prog, steps: map[uint32]uint16{}}
	m.Groups = re.MaxCap()
	if err := m.follow(); err != nil {
		return nil, err
	}
	if err := m.classify(); err != nil {
		return nil, err
	}
	if m.determinize() {
		m.moves = make([]uint32, len(m.Next))
		for i, state := range m.Next {
			m.moves[i] = uint32(state)*uint32(m.Classes)<<8 | uint32(m.Starts[state])
		}
	} else {
		m.Next, m.Starts, m.Live = nil, nil, nil
		if m.Words > MaxWords {
			return nil, errTooComplex
		}
	}
	return &m.Automaton, nil
}

// maker makes an automaton.
type maker struct {
	Automaton
	prog  *syntax.Prog
	steps map[uint32]uint16 // the step of each instruction that reads a code point
	insts []uint32          // the instruction of each step, from step 1 on
	kind  []int             // of the code points of each class
	work  int
}

// follow finds the choices after each step: the threads that a Pike VM would add to its list, in
// the same order.
func (m *maker) follow() error {
	for pc, i := range m.prog.Inst {
		switch i.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			m.insts = append(m.insts, uint32(pc))
			m.steps[uint32(pc)] = uint16(len(m.insts))
		}
	}
	if len(m.insts) > maxStates {
		return errTooComplex
	}
	m.First = []uint32{0, 0}
	for _, pc := range m.insts {
		if err := m.choices(m.prog.Inst[pc].Out); err != nil {
			return err
		}
	}
	return m.choices(uint32(m.prog.Start))
}

// choices appends the choices that an instruction leads to.
func (m *maker) choices(from uint32) error {
	seen := map[uint32][]syntax.EmptyOp{}
	done := false // the end of a match is possible, so nothing after it is chosen
	var visit func(pc uint32, where syntax.EmptyOp, slots uint32)
	visit = func(pc uint32, where syntax.EmptyOp, slots uint32) {
		if done || len(m.Follow) > maxChoices || m.work > maxWork {
			return
		}
		m.work++
		for _, w := range seen[pc] {
			if w&^where == 0 {
				return
			}
		}
		seen[pc] = append(seen[pc], where)
		i := m.prog.Inst[pc]
		switch i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			visit(i.Out, where, slots)
			visit(i.Arg, where, slots)
		case syntax.InstCapture:
			if i.Arg < Slots {
				slots |= 1 << i.Arg
			}
			visit(i.Out, where, slots)
		case syntax.InstEmptyWidth:
			m.Where |= uint16(i.Arg)
			visit(i.Out, where|syntax.EmptyOp(i.Arg), slots)
		case syntax.InstNop:
			visit(i.Out, where, slots)
		case syntax.InstMatch:
			m.Follow = append(m.Follow, Choice{0, uint16(where), slots})
			done = where == 0
		case syntax.InstFail:
		default:
			m.Follow = append(m.Follow, Choice{m.steps[pc], uint16(where), slots})
		}
	}
	visit(from, 0, 0)
	if len(m.Follow) > maxChoices || m.work > maxWork {
		return errTooComplex
	}
	m.First = append(m.First, uint32(len(m.Follow)))
	return nil
}

// ranges returns the code points that an instruction reads as pairs.
func ranges(i *syntax.Inst) []rune {
	switch {
	case i.Op == syntax.InstRuneAny:
		return []rune{0, unicode.MaxRune}
	case i.Op == syntax.InstRuneAnyNotNL:
		return []rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}
	case len(i.Rune) == 1:
		r := i.Rune[0]
		out := []rune{r, r}
		if syntax.Flags(i.Arg)&syntax.FoldCase != 0 {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				out = append(out, f, f)
			}
		}
		return out
	}
	return i.Rune
}

// classify divides code points into classes that no step and no condition distinguishes.
func (m *maker) classify() error {
	ends := map[uint32]bool{}
	cut := func(lo, hi rune) { ends[uint32(lo)], ends[uint32(hi)+1] = true, true }
	cut(0, unicode.MaxRune)
	if m.Where != 0 {
		cut('\n', '\n')
		cut('0', '9')
		cut('A', 'Z')
		cut('_', '_')
		cut('a', 'z')
	}
	sets := make([][]rune, len(m.insts))
	for k, pc := range m.insts {
		sets[k] = ranges(&m.prog.Inst[pc])
		for r := sets[k]; len(r) > 1; r = r[2:] {
			cut(r[0], r[1])
		}
	}
	delete(ends, 0)
	m.Bounds = slices.Sorted(maps.Keys(ends))
	m.Words = len(m.insts)/32 + 1
	if m.work += len(m.Bounds) * m.Words; len(m.Bounds)*m.Words*4 > maxTable {
		return errTooComplex
	}
	reads := make([][]uint32, len(m.Bounds))
	for i := range reads {
		reads[i] = make([]uint32, m.Words)
	}
	for k, set := range sets {
		for ; len(set) > 1; set = set[2:] {
			for i := m.rangeOf(set[0]); i < len(m.Bounds) && m.Bounds[i] <= uint32(set[1])+1; i++ {
				reads[i][(k+1)/32] |= 1 << ((k + 1) % 32)
			}
		}
	}
	// Ranges of one kind that the same steps read are one class.
	type class struct {
		reads string
		kind  int
	}
	classes := map[class]uint16{}
	lo := uint32(0)
	for i, end := range m.Bounds {
		k := class{string(gpu.BytesOf(reads[i])), m.reduced(kindOf(rune(lo)))}
		id, ok := classes[k]
		if !ok {
			id = uint16(len(classes))
			classes[k] = id
			m.Reads, m.kind = append(m.Reads, reads[i]...), append(m.kind, k.kind)
		}
		m.Ranges = append(m.Ranges, id)
		lo = end
	}
	m.Classes = len(classes)
	for r := range m.ASCII {
		m.ASCII[r] = m.Ranges[m.rangeOf(rune(r))]
	}
	return nil
}

// rangeOf returns the range of a code point.
func (a *Automaton) rangeOf(r rune) int {
	return sort.Search(len(a.Bounds), func(i int) bool { return uint32(r) < a.Bounds[i] })
}

// reduced returns kindOther for a kind that the conditions of the pattern do not distinguish from
// it.
func (m *maker) reduced(kind int) int {
	switch {
	case kind == kindWord && syntax.EmptyOp(m.Where)&(syntax.EmptyWordBoundary|syntax.EmptyNoWordBoundary) == 0,
		kind == kindNewline && syntax.EmptyOp(m.Where)&(syntax.EmptyBeginLine|syntax.EmptyEndLine) == 0,
		m.Where == 0:
		return kindOther
	}
	return kind
}

// determinize finds the states and their successors. It returns false if there are too many.
func (m *maker) determinize() bool {
	type state struct {
		live  string
		after int // the kind of the code point after the position
	}
	ahead := syntax.EmptyOp(m.Where)&^(syntax.EmptyBeginText|syntax.EmptyBeginLine) != 0
	states := map[state]uint16{}
	var kindsAfter []int
	add := func(live []uint32, after int) uint16 {
		if !ahead {
			after = kindOther
		}
		k := state{string(gpu.BytesOf(live)), after}
		id, ok := states[k]
		if !ok {
			id = uint16(len(states))
			states[k] = id
			m.Live, kindsAfter = append(m.Live, live...), append(kindsAfter, after)
		}
		return id
	}
	set := make([]uint32, m.Words)
	set[0] = 1 // the end of a match is always possible
	add(set, m.reduced(kindNone))
	for s := 0; s < len(states); s++ {
		if len(states) > maxStates || len(states)*max(m.Classes*2, m.Words*4) > maxTable || m.work > maxWork {
			return false
		}
		live := m.Live[s*m.Words : (s+1)*m.Words]
		starts := uint8(0)
		for before := range kinds {
			if m.leads(len(m.insts)+1, live, holds(before, kindsAfter[s])) {
				starts |= 1 << before
			}
		}
		var leading [kinds][]uint32 // steps that lead to a match, by the kind of the code point they read
		dead := starts == 0
		for c := range m.Classes {
			if leading[m.kind[c]] == nil {
				there := make([]uint32, m.Words)
				where := holds(m.kind[c], kindsAfter[s])
				for k := range m.insts {
					if m.leads(k+1, live, where) {
						there[(k+1)/32] |= 1 << ((k + 1) % 32)
					}
				}
				leading[m.kind[c]] = there
			}
			for w := range set {
				set[w] = leading[m.kind[c]][w] & m.Reads[c*m.Words+w]
			}
			m.work += m.Words
			set[0] |= 1
			next := add(set, m.kind[c])
			dead = dead && int(next) == s
			m.Next = append(m.Next, next)
			live = m.Live[s*m.Words : (s+1)*m.Words]
		}
		if dead {
			starts |= Dead
		}
		m.Starts = append(m.Starts, starts)
	}
	return true
}

func (m *maker) leads(step int, live []uint32, where syntax.EmptyOp) bool {
	m.work += int(m.First[step+1] - m.First[step])
	return m.choose(step, live, uint16(where)) >= 0
}

// choose returns the first choice after a step that is in a set, or -1.
func (a *Automaton) choose(step int, live []uint32, where uint16) int {
	for i := a.First[step]; i < a.First[step+1]; i++ {
		if c := a.Follow[i]; live[c.Step/32]>>(c.Step%32)&1 != 0 && c.Where&^where == 0 {
			return int(i)
		}
	}
	return -1
}
