package eval

import (
	"slices"
	"unsafe"
)

// reuseAbove is the number of instructions above which a program frees the memory of registers that
// no later instruction reads. Shorter programs keep every register: they need little memory, and
// the bookkeeping would cost time.
var reuseAbove = 64 // less in tests

// reuse tracks the memory of a frame's registers. Several registers may share a piece of memory,
// such as the validity of a result and of its argument.
type reuse struct {
	last    [][]int // by instruction: the registers that no later instruction reads
	pieces  map[unsafe.Pointer]*piece
	taken   []*piece // by the current instruction
	blocks  []*piece // free
	bitmaps []*piece // free
	texts   []*piece // free
}

// piece is a block, a bitmap or strings of a scratch.
type piece struct {
	words []uint64
	texts []string
	users int // registers
}

// newReuse returns the reuse of a program, or nil if it is short.
func newReuse(e *evaluation) *reuse {
	if len(e.code) <= reuseAbove {
		return nil
	}
	u := &reuse{last: make([][]int, len(e.code)), pieces: map[unsafe.Pointer]*piece{}}
	read := make([]bool, len(e.needed))
	for _, r := range e.p.Outputs {
		read[r] = true // at the end of the batch
	}
	for i, s := range slices.Backward(e.code) {
		for _, r := range append(slices.Clone(s.Args), s.Mask) {
			if r >= 0 && !read[r] {
				read[r] = true
				u.last[i] = append(u.last[i], r)
			}
		}
	}
	return u
}

// restart forgets all pieces.
func (u *reuse) restart() {
	if u != nil {
		clear(u.pieces)
		u.taken, u.blocks, u.bitmaps, u.texts = nil, nil, nil, nil
	}
}

// pop takes a free piece of a list, or returns nil.
func (u *reuse) pop(list *[]*piece) *piece {
	n := len(*list)
	if n == 0 {
		return nil
	}
	p := (*list)[n-1]
	*list = (*list)[:n-1]
	u.taken = append(u.taken, p)
	return p
}

// add records new memory that the current instruction takes.
func (u *reuse) add(p *piece) {
	u.pieces[p.address()] = p
	u.taken = append(u.taken, p)
}

func (p *piece) address() unsafe.Pointer {
	if p.texts != nil {
		return unsafe.Pointer(unsafe.SliceData(p.texts))
	}
	return unsafe.Pointer(unsafe.SliceData(p.words))
}

// users changes the number of registers that use the memory of a register.
func (u *reuse) users(v *vec, by int) {
	for _, at := range [...]unsafe.Pointer{v.raw, unsafe.Pointer(unsafe.SliceData(v.bits)),
		unsafe.Pointer(unsafe.SliceData(v.valid)), unsafe.Pointer(unsafe.SliceData(v.str))} {
		if p := u.pieces[at]; at != nil && p != nil {
			if p.users += by; p.users == 0 {
				u.put(p)
			}
		}
	}
}

// put makes a piece free.
func (u *reuse) put(p *piece) {
	switch {
	case p.texts != nil:
		u.texts = append(u.texts, p)
	case len(p.words) == batchWords:
		u.bitmaps = append(u.bitmaps, p)
	default:
		u.blocks = append(u.blocks, p)
	}
}

// executed frees the memory that an instruction has taken besides its result, and the registers
// that no later instruction reads.
func (f *frame) executed(i int) {
	u := f.reuse
	if u == nil {
		return
	}
	u.users(&f.vecs[f.e.code[i].result], 1)
	for _, p := range u.taken {
		if p.users == 0 {
			u.put(p)
		}
	}
	u.taken = u.taken[:0]
	for _, r := range u.last[i] {
		v := &f.vecs[r]
		u.users(v, -1)
		v.raw, v.bits, v.str, v.valid = nil, nil, nil, nil
	}
}
