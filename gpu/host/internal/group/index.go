package group

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/codec"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// index is an open-addressing hash table from keys of a fixed number of words to ids. Keys of one
// word are in the slots. Wider keys are in the caller's columns, by id, and slots have their
// hashes. It is at most five eighths full.
type index struct {
	lease *gpu.Lease
	words int
	n     int
	slots memory.Array[slot] // their number is a power of two, or 0
}

type slot struct {
	key uint64
	id  int32 // id + 1; 0 is empty
	_   int32
}

const (
	// firstSlots is the number of slots of a new index.
	firstSlots = 1 << 10
	// sparseSlots is the number of slots up to which an index is at most a third full: it still
	// fits a core's cache, and most keys are in their first slot.
	sparseSlots = 1 << 15
)

func newIndex(l *gpu.Lease, words int) *index { return &index{lease: l, words: words} }

func (x *index) release() {
	if x != nil {
		x.slots.Release()
	}
}

// clear removes all keys.
func (x *index) clear() {
	clear(x.slots.V)
	x.n = 0
}

// find looks up the keys of a block: out[i] is the id of key i, or -1. It only reads, so
// several blocks may be looked up in parallel.
func (x *index) find(words [][]uint64, out []int32, stored [][]uint64) {
	if x.n == 0 {
		for i := range out {
			out[i] = -1
		}
		return
	}
	slots := x.slots.V
	mask := uint64(len(slots) - 1)
	if x.words == 1 {
		var at [word.Block]uint64
		keys := words[0][:len(out)]
		for i, k := range keys {
			at[i] = word.TableMix(k) >> 32 & mask
		}
		for i, k := range keys {
			s := at[i]
			for slots[s].id != 0 && slots[s].key != k {
				s = (s + 1) & mask
			}
			out[i] = slots[s].id - 1
		}
		return
	}
	for i := range out {
		out[i] = slots[x.slot(words, i, codec.HashKey(words, i), stored)].id - 1
	}
}

// assign looks up the keys of a block of at most word.Block keys of one word, and assigns the next
// ids to new keys. stored has the keys by id; assign returns it with the new keys. There must be
// room for all keys in the index and in stored. Keys that are not in their first slot are handled
// in a second pass, so that no branch of the first pass depends on a key.
func (x *index) assign(keys []uint64, out []int32, stored []uint64) []uint64 {
	slots := x.slots.V
	mask := uint64(len(slots) - 1)
	var homes [word.Block]uint64
	var rest [word.Block]uint16
	out = out[:len(keys)]
	n := 0
	for i, k := range keys {
		home := word.TableMix(k) >> 32 & mask
		homes[i&(word.Block-1)] = home
		e := slots[home]
		out[i] = e.id - 1
		other := e.key ^ k | uint64(int64(e.id-1)>>63)
		rest[n&(word.Block-1)] = uint16(i)
		n += int((other | -other) >> 63)
	}
	for _, r := range rest[:n] {
		i := int(r)
		k, s := keys[i], homes[i]
		for slots[s].id != 0 && slots[s].key != k {
			s = (s + 1) & mask
		}
		if slots[s].id == 0 {
			stored = append(stored, k)
			slots[s] = slot{key: k, id: int32(len(stored))}
			x.n++
		}
		out[i] = slots[s].id - 1
	}
	return stored
}

// slot returns the slot of key i of several words: the slot that has it, or the empty slot where it
// belongs.
func (x *index) slot(words [][]uint64, i int, h uint64, stored [][]uint64) uint64 {
	slots := x.slots.V
	mask := uint64(len(slots) - 1)
	for s := h >> 32 & mask; ; s = (s + 1) & mask {
		id := slots[s].id - 1
		if id < 0 {
			return s
		}
		if slots[s].key != h {
			continue
		}
		same := true
		for w := range stored {
			same = same && stored[w][id] == words[w][i]
		}
		if same {
			return s
		}
	}
}

// insert returns the id of key i, which is next if the key is new. If memory is denied, the index
// is unchanged.
func (x *index) insert(words [][]uint64, i int, next int32, stored [][]uint64) (id int32, fresh bool, err error) {
	if err := x.room(1); err != nil {
		return 0, false, err
	}
	slots := x.slots.V
	mask := uint64(len(slots) - 1)
	var s uint64
	key := words[0][i]
	if x.words == 1 {
		s = word.TableMix(key) >> 32 & mask
		for slots[s].id != 0 && slots[s].key != key {
			s = (s + 1) & mask
		}
	} else {
		key = codec.HashKey(words, i)
		s = x.slot(words, i, key, stored)
	}
	if slots[s].id != 0 {
		return slots[s].id - 1, false, nil
	}
	slots[s] = slot{key: key, id: next + 1}
	x.n++
	return next, true, nil
}

// put inserts key i, which the index does not have. There must be room for it.
func (x *index) put(words [][]uint64, i int, id int32) {
	key := words[0][i]
	if x.words > 1 {
		key = codec.HashKey(words, i)
	}
	seat(x.slots.V, x.words, slot{key: key, id: id + 1})
	x.n++
}

// seat writes an entry to its first empty slot.
func seat(slots []slot, words int, e slot) {
	h, mask := e.key, uint64(len(slots)-1)
	if words == 1 {
		h = word.TableMix(h)
	}
	s := h >> 32 & mask
	for slots[s].id != 0 {
		s = (s + 1) & mask
	}
	slots[s] = e
}

// room makes room for n more keys.
func (x *index) room(n int) error {
	size := max(len(x.slots.V), firstSlots)
	for x.n+n > size/8*5 || x.n+n > size/3 && size < sparseSlots {
		size *= 2
	}
	if size == len(x.slots.V) {
		return nil
	}
	larger, err := memory.Zeros[slot](x.lease, size)
	if err != nil {
		return err
	}
	for _, e := range x.slots.V {
		if e.id != 0 {
			seat(larger.V, x.words, e)
		}
	}
	x.slots.Release()
	x.slots = larger
	return nil
}
