package aggregate

import (
	"bytes"
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// extreme is min or max of values of at most 8 bytes, as ordered words.
type extreme struct {
	max  bool
	flip func([]uint64)
	best memory.Vector[uint64]
}

func (s *extreme) worst() uint64 {
	if s.max {
		return 0
	}
	return math.MaxUint64
}

func (s *extreme) better(dst *uint64, v uint64) {
	if s.max {
		*dst = max(*dst, v)
	} else {
		*dst = min(*dst, v)
	}
}

func (s *extreme) update(cores parallel.Cores, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if err := s.best.Grow(l, groups, s.worst()); err != nil {
		return err
	}
	return fold(cores, ids, s.best.V, s.worst(), func(st []uint64, lo, hi int) {
		var words [word.Block]uint64
		for at := lo; at < hi; at += len(words) {
			w := words[:min(len(words), hi-at)]
			word.Load(w, c, at)
			s.flip(w)
			for i, id := range ids[at : at+len(w)] {
				if c.IsValid(at + i) {
					s.better(&st[id], w[i])
				}
			}
		}
	}, s.better)
}

func (s *extreme) write(l *gpu.Lease, out *gpu.Column, from, to int) error {
	if err := allocValues(l, out); err != nil {
		return err
	}
	n := out.Len
	if out.Type.Kind == gpu.Bool {
		words := gpu.Words(out.Data, n)
		clear(words)
		for i, v := range s.best.V[from:to] {
			words[i/64] |= v & 1 << (i % 64)
		}
		return nil
	}
	for i, v := range s.best.V[from:to] {
		word.Store(*out, i, word.FromOrdered(out.Type, v))
	}
	return nil
}

func (s *extreme) release() { s.best.Release() }

// extremeWide is min or max of 16-byte values.
type extremeWide struct {
	max  bool
	best memory.Vector[gpu.Int128]
}

func (s *extremeWide) update(cores parallel.Cores, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	worst := gpu.Int128{Lo: math.MaxUint64, Hi: math.MaxInt64}
	if s.max {
		worst = gpu.Int128{Hi: math.MinInt64}
	}
	if err := s.best.Grow(l, groups, worst); err != nil {
		return err
	}
	values := gpu.Values[gpu.Int128](c.Data, c.Len)
	for i, id := range ids {
		if c.IsValid(i) && s.best.V[id].Less(values[i]) == s.max {
			s.best.V[id] = values[i]
		}
	}
	return nil
}

func (s *extremeWide) write(l *gpu.Lease, out *gpu.Column, from, to int) error {
	if err := allocValues(l, out); err != nil {
		return err
	}
	copy(gpu.Values[gpu.Int128](out.Data, out.Len), s.best.V[from:to])
	return nil
}

func (s *extremeWide) release() { s.best.Release() }

// extremeBytes is min or max of strings and binaries, by bytes.
type extremeBytes struct {
	max  bool
	best texts
}

// beats reports whether a value with some prefix replaces the value of a group.
func (s *extremeBytes) beats(v []byte, first uint64, id int32) bool {
	b := &s.best.slots.V[id]
	switch {
	case b.n < 0:
		return true
	case first != b.first:
		return first > b.first == s.max
	}
	order := bytes.Compare(s.best.value(int(id)), v)
	return order < 0 && s.max || order > 0 && !s.max
}

func (s *extremeBytes) update(cores parallel.Cores, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if err := s.best.grow(l, groups); err != nil {
		return err
	}
	winners, err := memory.New[int32](l, len(ids)) // rows whose values replace those of their groups
	if err != nil {
		return err
	}
	defer winners.Release()
	rows, need := winners.V[:0], 0
	in, codes := c, []int32(nil)
	if c.Dict != nil {
		in, codes = c.Dict.Values, gpu.Values[int32](c.Data, c.Len)
	}
	offsets, data := gpu.Values[int32](in.Offsets, in.Len+1), in.Data.Bytes()
	var values [word.Block][]byte
	var prefixes [word.Block]uint64
	for at := 0; at < len(ids); at += len(values) {
		block := ids[at:min(at+len(values), len(ids))]
		for k := range block {
			i := at + k
			if values[k] = nil; c.IsValid(i) {
				if codes != nil {
					i = int(codes[i])
				}
				values[k] = data[offsets[i]:offsets[i+1]]
			}
		}
		for k := range block { // values of a dictionary may be anywhere; these loads are independent of each other
			prefixes[k] = word.Prefix(values[k])
		}
		for k, id := range block {
			if c.IsValid(at+k) && s.beats(values[k], prefixes[k], id) {
				rows = append(rows, int32(at+k))
				need += s.best.need(int(id), len(values[k]))
			}
		}
	}
	if err := s.best.room(l, need); err != nil {
		return err
	}
	for _, i := range rows {
		if v := c.VarValue(int(i)); s.beats(v, word.Prefix(v), ids[i]) {
			s.best.put(int(ids[i]), v)
		}
	}
	return nil
}

func (s *extremeBytes) write(l *gpu.Lease, out *gpu.Column, from, to int) error {
	return s.best.write(l, out, from, to, s.best.has)
}

func (s *extremeBytes) release() { s.best.release() }

// texts has a string for each group. data has their slots. A value that outgrows its slot gets a
// new slot of twice the size, and the old slot stays unused. So a group uses at most four times the
// bytes of its longest value.
type texts struct {
	slots memory.Vector[textSlot]
	data  memory.Vector[byte]
}

// textSlot is the part of data that has the value of a group.
type textSlot struct {
	at      int64
	n, room int32  // bytes used, and size of the slot; n is -1 without a value
	first   uint64 // prefix of the value
}

func (s *texts) grow(l *gpu.Lease, groups int) error { return s.slots.Grow(l, groups, textSlot{n: -1}) }

func (s *texts) has(id int) bool { return s.slots.V[id].n >= 0 }

func (s *texts) value(id int) []byte {
	b := s.slots.V[id]
	return s.data.V[b.at:][:b.n]
}

// need returns the size of the new slot for a value of n bytes, 0 if the value fits the slot of its
// group.
func (s *texts) need(id, n int) int {
	if n <= int(s.slots.V[id].room) {
		return 0
	}
	return roomFor(n)
}

// roomFor returns the size of a slot for n bytes.
func roomFor(n int) int { return min(1<<word.Log2Ceil(n), math.MaxInt32) }

// room makes room for so many bytes of new slots.
func (s *texts) room(l *gpu.Lease, need int) error { return s.data.Reserve(l, len(s.data.V)+need) }

// put sets the value of a group. There must be room for a new slot.
func (s *texts) put(id int, v []byte) {
	b := &s.slots.V[id]
	if len(v) > int(b.room) {
		b.at, b.room = int64(len(s.data.V)), int32(roomFor(len(v)))
		s.data.V = s.data.V[:len(s.data.V)+int(b.room)]
	}
	b.n, b.first = int32(len(v)), word.Prefix(v)
	copy(s.value(id), v)
}

// write writes the values of groups [from, to). Groups without a value get empty strings.
func (s *texts) write(l *gpu.Lease, out *gpu.Column, from, to int, there func(id int) bool) (err error) {
	total := int64(0)
	for id := from; id < to; id++ {
		if there(id) {
			total += int64(s.slots.V[id].n)
		}
	}
	if total > math.MaxInt32 {
		return gpu.TooManyBytes(total, to-from)
	}
	if out.Offsets, err = l.Alloc(int64(to-from+1) * 4); err != nil {
		return err
	}
	if out.Data, err = l.Alloc(total); err != nil {
		return err
	}
	off, at := gpu.Values[int32](out.Offsets, to-from+1), int32(0)
	off[0] = 0
	for i := range to - from {
		if there(from+i) && s.slots.V[from+i].n > 0 {
			at += int32(copy(out.Data.Bytes()[at:], s.value(from+i)))
		}
		off[i+1] = at
	}
	return nil
}

func (s *texts) release() {
	s.slots.Release()
	s.data.Release()
}
