package cuda

import (
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// likeRun is the part of a pattern between two % signs: its code points as tokens, and
// its bytes when it is plain text.
type likeRun struct {
	tokens []uint32
	text   []byte
	wild   bool // it contains _
}

// Tokens that are not code points: _, and a byte that is not part of a code point.
const (
	tokenAny     = ^uint32(0)
	tokenRawByte = uint32(1) << 31
)

// likePattern is a pattern, split at its % signs.
type likePattern struct {
	runs              []likeRun
	openLeft, openEnd bool // begins with %, ends with %
}

// compileLike prepares a pattern. escape 0 means none. With fold the tokens are in lower
// case.
func compileLike(pattern string, escape rune, fold bool) likePattern {
	var p likePattern
	var run likeRun
	started, escaped := false, false
	flush := func() {
		if len(run.tokens) > 0 {
			p.runs = append(p.runs, run)
		}
		run = likeRun{}
	}
	for len(pattern) > 0 {
		r, n := utf8.DecodeRuneInString(pattern)
		char := pattern[:n]
		pattern = pattern[n:]
		p.openEnd = false
		token := uint32(r)
		switch {
		case escaped:
			escaped = false
		case escape != 0 && r == escape:
			escaped = true
			continue
		case r == '%':
			flush()
			p.openEnd = true
			p.openLeft = p.openLeft || !started
			started = true
			continue
		case r == '_':
			run.wild, token = true, tokenAny
		}
		started = true
		switch {
		case token == tokenAny:
		case fold:
			token = uint32(unicode.ToLower(r))
		case r == utf8.RuneError && n == 1:
			token = tokenRawByte | uint32(char[0])
		}
		run.tokens, run.text = append(run.tokens, token), append(run.text, char...)
	}
	flush()
	return p
}

// deviceRun is Run of eval_strings.cu.
type deviceRun struct {
	text   uint64
	size   int64
	tokens uint64
	count  int64
}

// Properties of a pattern besides its runs: bits of the mode of eval_like.
const (
	likeOpenLeft = 1
	likeOpenEnd  = 2
)

// like runs OpLike and OpILike.
func (e *evaluation) like(in *gpu.Instr, x *register) register {
	fold := in.Op == gpu.OpILike
	p := compileLike(in.Value.Str, rune(in.N), fold)
	out := e.result(in.Type, x.valid)
	a := e.args(&out, x)
	// A single buffer has the runs, then the tokens, then the bytes.
	var tokens []uint32
	var text []byte
	runs := make([]deviceRun, len(p.runs))
	for k, r := range p.runs {
		runs[k] = deviceRun{text: uint64(len(text)), size: int64(len(r.text)), tokens: uint64(len(tokens)),
			count: int64(len(r.tokens))}
		tokens, text = append(tokens, r.tokens...), append(text, r.text...)
	}
	tokensAt := len(runs) * int(unsafe.Sizeof(deviceRun{}))
	textAt := tokensAt + 4*len(tokens)
	set := e.alloc(int64(textAt + len(text)))
	for k, r := range p.runs {
		runs[k].text += addr(set) + uint64(textAt)
		runs[k].tokens = addr(set) + uint64(tokensAt) + 4*runs[k].tokens
		if !r.wild && !fold {
			runs[k].tokens = 0 // compare bytes
		}
	}
	e.write(set, 0, append(append(append([]byte(nil), gpu.BytesOf(runs)...), gpu.BytesOf(tokens)...), text...))
	a.set, a.p = addr(set), int64(len(runs))
	if fold {
		a.table, a.q = e.lowerCase(), int64(caseTableSize)
	}
	if p.openLeft {
		a.mode |= likeOpenLeft
	}
	if p.openEnd {
		a.mode |= likeOpenEnd
	}
	e.rows("eval_like", a)
	e.free(set)
	return out
}
