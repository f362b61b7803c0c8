package host

import (
	"bytes"
	"math"

	"github.com/gstream/gstream/gpu"
)

// orderFlip returns a function that turns the words of a type into unsigned integers with the same
// order.
func orderFlip(t gpu.Type) func(words []uint64) {
	switch {
	case t.Kind == gpu.Float32:
		return func(words []uint64) {
			for i, w := range words {
				words[i] = w ^ (uint64(int64(w<<32)>>63)>>32 | 1<<31)
			}
		}
	case t.Kind == gpu.Float64:
		return func(words []uint64) {
			for i, w := range words {
				words[i] = w ^ (uint64(int64(w)>>63) | 1<<63)
			}
		}
	case t.IsUnsigned() || t.Kind == gpu.Bool:
		return func([]uint64) {}
	}
	return func(words []uint64) {
		for i, w := range words {
			words[i] = w ^ 1<<63
		}
	}
}

// orderUnflip undoes orderFlip for one word.
func orderUnflip(t gpu.Type, w uint64) uint64 {
	switch {
	case t.Kind == gpu.Float32:
		return w ^ (uint64(int64(^w<<32)>>63)>>32 | 1<<31)
	case t.Kind == gpu.Float64:
		return w ^ (uint64(int64(^w)>>63) | 1<<63)
	case t.IsUnsigned() || t.Kind == gpu.Bool:
		return w
	}
	return w ^ 1<<63
}

// extreme is min or max of values of at most 8 bytes, as ordered words.
type extreme struct {
	max  bool
	flip func([]uint64)
	best vector[uint64]
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

func (s *extreme) update(d *Device, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if err := s.best.grow(l, groups, s.worst()); err != nil {
		return err
	}
	return fold(d, ids, s.best.v, s.worst(), func(st []uint64, lo, hi int) {
		var words [probeBlock]uint64
		for at := lo; at < hi; at += len(words) {
			w := words[:min(len(words), hi-at)]
			loadWords(w, c, at)
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
		for i, v := range s.best.v[from:to] {
			words[i/64] |= v & 1 << (i % 64)
		}
		return nil
	}
	for i, v := range s.best.v[from:to] {
		storeWord(*out, i, orderUnflip(out.Type, v))
	}
	return nil
}

// storeWord stores a value of at most 8 bytes of a column.
func storeWord(out gpu.Column, i int, v uint64) {
	switch n := out.Len; out.Type.Width() {
	case 1:
		gpu.Values[uint8](out.Data, n)[i] = uint8(v)
	case 2:
		gpu.Values[uint16](out.Data, n)[i] = uint16(v)
	case 4:
		gpu.Values[uint32](out.Data, n)[i] = uint32(v)
	case 8:
		gpu.Values[uint64](out.Data, n)[i] = v
	}
}

func (s *extreme) release() { s.best.release() }

// extremeWide is min or max of 16-byte values.
type extremeWide struct {
	max  bool
	best vector[gpu.Int128]
}

func (s *extremeWide) update(_ *Device, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	worst := gpu.Int128{Lo: math.MaxUint64, Hi: math.MaxInt64}
	if s.max {
		worst = gpu.Int128{Hi: math.MinInt64}
	}
	if err := s.best.grow(l, groups, worst); err != nil {
		return err
	}
	values := gpu.Values[gpu.Int128](c.Data, c.Len)
	for i, id := range ids {
		if c.IsValid(i) && s.best.v[id].Less(values[i]) == s.max {
			s.best.v[id] = values[i]
		}
	}
	return nil
}

func (s *extremeWide) write(l *gpu.Lease, out *gpu.Column, from, to int) error {
	if err := allocValues(l, out); err != nil {
		return err
	}
	copy(gpu.Values[gpu.Int128](out.Data, out.Len), s.best.v[from:to])
	return nil
}

func (s *extremeWide) release() { s.best.release() }

// extremeBytes is min or max of strings and binaries, by bytes.
type extremeBytes struct {
	max  bool
	best texts
}

// beats reports whether a value with some prefix replaces the value of a group.
func (s *extremeBytes) beats(v []byte, first uint64, id int32) bool {
	b := &s.best.slots.v[id]
	switch {
	case b.n < 0:
		return true
	case first != b.first:
		return first > b.first == s.max
	}
	order := bytes.Compare(s.best.value(int(id)), v)
	return order < 0 && s.max || order > 0 && !s.max
}

func (s *extremeBytes) update(_ *Device, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if err := s.best.grow(l, groups); err != nil {
		return err
	}
	winners, err := newArray[int32](l, len(ids)) // rows whose values replace those of their groups
	if err != nil {
		return err
	}
	defer winners.release()
	rows, need := winners.v[:0], 0
	in, codes := c, []int32(nil)
	if c.Dict != nil {
		in, codes = c.Dict.Values, gpu.Values[int32](c.Data, c.Len)
	}
	offsets, data := gpu.Values[int32](in.Offsets, in.Len+1), in.Data.Bytes()
	var values [probeBlock][]byte
	var prefixes [probeBlock]uint64
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
			prefixes[k] = prefix(values[k])
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
		if v := c.VarValue(int(i)); s.beats(v, prefix(v), ids[i]) {
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
	slots vector[textSlot]
	data  vector[byte]
}

// textSlot is the part of data that has the value of a group.
type textSlot struct {
	at      int64
	n, room int32  // bytes used, and size of the slot; n is -1 without a value
	first   uint64 // prefix of the value
}

func (s *texts) grow(l *gpu.Lease, groups int) error { return s.slots.grow(l, groups, textSlot{n: -1}) }

func (s *texts) has(id int) bool { return s.slots.v[id].n >= 0 }

func (s *texts) value(id int) []byte {
	b := s.slots.v[id]
	return s.data.v[b.at:][:b.n]
}

// need returns the size of the new slot for a value of n bytes, 0 if the value fits the slot of its
// group.
func (s *texts) need(id, n int) int {
	if n <= int(s.slots.v[id].room) {
		return 0
	}
	return roomFor(n)
}

// roomFor returns the size of a slot for n bytes.
func roomFor(n int) int { return min(1<<log2ceil(n), math.MaxInt32) }

// room makes room for so many bytes of new slots.
func (s *texts) room(l *gpu.Lease, need int) error { return s.data.room(l, len(s.data.v)+need) }

// put sets the value of a group. There must be room for a new slot.
func (s *texts) put(id int, v []byte) {
	b := &s.slots.v[id]
	if len(v) > int(b.room) {
		b.at, b.room = int64(len(s.data.v)), int32(roomFor(len(v)))
		s.data.v = s.data.v[:len(s.data.v)+int(b.room)]
	}
	b.n, b.first = int32(len(v)), prefix(v)
	copy(s.value(id), v)
}

// write writes the values of groups [from, to). Groups without a value get empty strings.
func (s *texts) write(l *gpu.Lease, out *gpu.Column, from, to int, there func(id int) bool) (err error) {
	total := int64(0)
	for id := from; id < to; id++ {
		if there(id) {
			total += int64(s.slots.v[id].n)
		}
	}
	if total > math.MaxInt32 {
		return errTooManyBytes(total, to-from)
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
		if there(from+i) && s.slots.v[from+i].n > 0 {
			at += int32(copy(out.Data.Bytes()[at:], s.value(from+i)))
		}
		off[i+1] = at
	}
	return nil
}

func (s *texts) release() {
	s.slots.release()
	s.data.release()
}
