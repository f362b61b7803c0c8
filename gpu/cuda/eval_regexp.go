package cuda

import (
	"unsafe"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/regex"
)

// deviceRegex is Regex of eval_regexp.cu.
type deviceRegex struct {
	ascii, bounds, ranges, reads, next, starts, live, first, follow uint64
	boundCount, classes, words, begin, where                        int32
	_                                                               int32
}

// automaton copies the tables of an automaton to the device, in one buffer after their addresses.
func (e *evaluation) automaton(a *regex.Automaton) *gpu.Buffer {
	r := deviceRegex{boundCount: int32(len(a.Bounds)), classes: int32(a.Classes), words: int32(a.Words),
		begin: int32(len(a.First) - 2), where: int32(a.Where)}
	image := make([]byte, unsafe.Sizeof(r))
	put := func(to *uint64, table []byte) {
		if len(table) > 0 {
			*to = uint64(len(image))
			image = append(image, table...)
			image = append(image, make([]byte, -len(image)&7)...)
		}
	}
	put(&r.ascii, gpu.BytesOf(a.ASCII[:]))
	put(&r.bounds, gpu.BytesOf(a.Bounds))
	put(&r.ranges, gpu.BytesOf(a.Ranges))
	put(&r.reads, gpu.BytesOf(a.Reads))
	put(&r.next, gpu.BytesOf(a.Next))
	put(&r.starts, a.Starts)
	put(&r.live, gpu.BytesOf(a.Live))
	put(&r.first, gpu.BytesOf(a.First))
	put(&r.follow, gpu.BytesOf(a.Follow))
	b := e.alloc(int64(len(image)))
	for _, at := range []*uint64{&r.ascii, &r.bounds, &r.ranges, &r.reads, &r.next, &r.starts, &r.live, &r.first,
		&r.follow} {
		if *at != 0 {
			*at += addr(b)
		}
	}
	copy(image, gpu.BytesOf([]deviceRegex{r}))
	e.write(b, 0, image)
	return b
}

// regexp runs the operations of regular expressions.
func (e *evaluation) regexp(in *gpu.Instr, args []*register) register {
	automaton, err := regex.Compile(in.Value.Str, regex.Options(in.N&0xff))
	if err != nil {
		e.fail(err)
		return register{}
	}
	out := e.result(in.Type, e.allValid(args...))
	a := e.args(&out, args...)
	set := e.automaton(automaton)
	a.set, a.p = addr(set), int64(in.N>>8)
	defer e.free(set)
	if in.Op == gpu.OpRegexp {
		e.rows("eval_regexp", a)
		return out
	}
	// The states at all positions of all strings.
	at := e.alloc(int64(e.n+1) * 8)
	e.rows("eval_text_sizes", evalArgs{x: a.x, valid: a.valid, at: addr(at), n: int64(e.n)})
	width := int64(2)
	if automaton.Next == nil {
		width = 4 * int64(automaton.Words)
	}
	states := e.alloc((e.positions(at) + int64(e.n)) * width)
	a.list, a.table = addr(at), addr(states)
	if in.Op == gpu.OpRegexpExtract {
		out.viewed = viewedBy(args[0])
		e.rows("eval_regexp_extract", a)
	} else {
		out = e.makeTexts("eval_regexp_replace", out, a)
	}
	e.free(at)
	e.free(states)
	return out
}
