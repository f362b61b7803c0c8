// Package intern numbers distinct strings, so that hash tables and dictionaries work on codes.
package intern

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// NoCode is the code of a string that a lookup did not find.
const NoCode = math.MaxUint32

// Interner maps equal byte strings to equal codes, dense from 0. Its slots have hashes and codes.
// The strings are in an array by code, short strings as words. Lookups work in blocks (see codes).
type Interner struct {
	lease *gpu.Lease
	slots memory.Array[uint64] // upper half of the hash << 32 | code + 1; 0 is empty
	texts memory.Vector[text]  // by code
	data  memory.Vector[byte]  // the bytes of long strings
	size  int64                // bytes of all strings
	// known caches the codes of the values of dictionaries seen before.
	known map[*gpu.Dictionary]memory.Array[uint32]
}

// text is a string of up to shortText bytes, followed by zeros, with its length in the highest
// byte. For a longer string it has the position of the bytes in data, their number, and longText in
// the highest byte; a string that is only looked up has no position.
type text [3]uint64

const (
	shortText = 23
	longText  = 0xff << 56
	noStart   = math.MaxUint64
)

// textOf returns a string as words, and its hash.
func textOf(b []byte) (w text, h uint32) {
	h = w.set(b)
	return w, h
}

// set sets w to the words of a string, and returns its hash.
func (w *text) set(b []byte) (h uint32) {
	n := uint64(len(b))
	var x, y, z uint64
	switch {
	case n > shortText:
		*w = text{noStart, n, longText}
		return uint32(word.HashBytes(b, word.TableSeed) >> 32)
	case n >= 16:
		x, y = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		z = binary.LittleEndian.Uint64(b[n-8:]) >> (8 * (24 - n))
	case n >= 8:
		x, y = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:])>>(8*(16-n))
	default:
		x = word.LoadShort(b)
	}
	z |= n << 56
	w[0], w[1], w[2] = x, y, z
	return uint32(word.TableMix(word.TableMix(word.TableMix(x)^y)^z) >> 32)
}

// isLong reports whether the bytes of the string are not in its words.
func (w *text) isLong() bool { return w[2] == longText }

// smallDictionary is the size up to which all values of a dictionary are interned at its first use.
// Values of larger dictionaries are interned when rows use them.
const smallDictionary = 1024

// largeDictionary bounds the size of dictionaries whose codes are cached for the next batch, as a
// multiple of the rows of a batch.
const largeDictionary = 4

// maxKnown bounds the number of dictionaries whose codes are cached, since a stream may bring new
// ones without end.
const maxKnown = 256

// Caches reports whether an interner should cache the codes of a dictionary (see Dictionary), which
// has a number of values, for batches of a number of rows.
func Caches(values, rows int) bool { return values <= max(smallDictionary, largeDictionary*rows) }

// New returns an interner without strings.
func New(l *gpu.Lease) *Interner {
	return &Interner{lease: l, known: map[*gpu.Dictionary]memory.Array[uint32]{}}
}

// Release releases the memory of an interner, which may be nil.
func (in *Interner) Release() {
	if in != nil {
		in.Forget()
		in.slots.Release()
		in.texts.Release()
		in.data.Release()
	}
}

// Forget drops the cached codes of dictionaries.
func (in *Interner) Forget() {
	if in == nil {
		return
	}
	for _, codes := range in.known {
		codes.Release()
	}
	clear(in.known)
}

// Len returns the number of strings.
func (in *Interner) Len() int { return len(in.texts.V) }

// value returns the string of a code. A short one is written to buf.
func (in *Interner) value(code uint32, buf *[24]byte) []byte {
	w := &in.texts.V[code]
	if w.isLong() {
		return in.data.V[w[0]:][:w[1]]
	}
	for i, x := range w {
		binary.LittleEndian.PutUint64(buf[8*i:], x)
	}
	return buf[:w[2]>>56]
}

// find returns the code of b, or NoCode and the slot where it belongs.
func (in *Interner) find(b []byte, w text, h uint32) (code uint32, slot int) {
	mask := len(in.slots.V) - 1
	if mask < 0 {
		return NoCode, 0
	}
	for s := int(h) & mask; ; s = (s + 1) & mask {
		v := in.slots.V[s]
		if v == 0 {
			return NoCode, s
		}
		if uint32(v>>32) != h {
			continue
		}
		c := uint32(v) - 1
		t := &in.texts.V[c]
		if t[1] == w[1] && t[2] == w[2] && (t[0] == w[0] || w.isLong() && bytes.Equal(in.data.V[t[0]:][:t[1]], b)) {
			return c, s
		}
	}
}

// Code returns the code of b, and makes one if b is new. If memory is denied, the interner is
// unchanged.
func (in *Interner) Code(b []byte) (uint32, error) {
	w, h := textOf(b)
	return in.internText(b, w, h)
}

func (in *Interner) internText(b []byte, w text, h uint32) (uint32, error) {
	code, slot := in.find(b, w, h)
	if code != NoCode {
		return code, nil
	}
	n := in.Len()
	if n*8 >= len(in.slots.V)*5 {
		if err := in.grow(); err != nil {
			return 0, err
		}
		_, slot = in.find(b, w, h)
	}
	if err := in.texts.Reserve(in.lease, n+1); err != nil {
		return 0, err
	}
	if w.isLong() {
		start := len(in.data.V)
		if err := in.data.Reserve(in.lease, start+len(b)); err != nil {
			return 0, err
		}
		in.data.V = append(in.data.V, b...)
		w[0] = uint64(start)
	}
	in.texts.V = append(in.texts.V, w)
	in.size += int64(len(b))
	in.slots.V[slot] = uint64(h)<<32 | uint64(n+1)
	return uint32(n), nil
}

// grow doubles the slots.
func (in *Interner) grow() error {
	larger, err := memory.Zeros[uint64](in.lease, max(64, 2*len(in.slots.V)))
	if err != nil {
		return err
	}
	for _, v := range in.slots.V {
		if v != 0 {
			seatText(larger.V, v)
		}
	}
	in.slots.Release()
	in.slots = larger
	return nil
}

// seatText writes a slot's value to its first empty slot.
func seatText(slots []uint64, v uint64) {
	mask := len(slots) - 1
	s := int(v>>32) & mask
	for slots[s] != 0 {
		s = (s + 1) & mask
	}
	slots[s] = v
}

// Truncate resets the interner to n strings.
func (in *Interner) Truncate(n int) {
	in.Forget() // they may have codes above n
	if n == in.Len() {
		return
	}
	for i := in.Len() - 1; i >= n; i-- {
		w := &in.texts.V[i]
		if !w.isLong() {
			in.size -= int64(w[2] >> 56)
			continue
		}
		in.size -= int64(w[1])
		in.data.V = in.data.V[:w[0]]
	}
	in.texts.V = in.texts.V[:n]
	clear(in.slots.V)
	var buf [24]byte
	for c := range n {
		_, h := textOf(in.value(uint32(c), &buf))
		seatText(in.slots.V, uint64(h)<<32|uint64(c+1))
	}
}

// Dictionary interns the dictionary values that the column uses, and returns the interner's codes
// by dictionary code. Values that no column has used yet have NoCode. A dictionary may be far
// larger than a stride: a join passes on its whole build side as a dictionary.
func (in *Interner) Dictionary(c gpu.Column) ([]uint32, error) {
	values := c.Dict.Values
	known, ok := in.known[c.Dict]
	if !ok {
		if len(in.known) >= maxKnown { // forget old dictionaries
			in.Forget()
		}
		var err error
		if known, err = memory.New[uint32](in.lease, values.Len); err != nil {
			return nil, err
		}
		for i := range known.V {
			known.V[i] = NoCode
		}
		in.known[c.Dict] = known
	}
	codes := known.V
	intern := func(v int) (err error) {
		codes[v], err = in.Code(values.VarValue(v))
		return err
	}
	if len(codes) <= smallDictionary {
		for i := 0; i < len(codes) && !ok; i++ {
			if err := intern(i); err != nil {
				return nil, err
			}
		}
		return codes, nil
	}
	for i, v := range gpu.Values[int32](c.Data, c.Len) {
		if c.IsValid(i) && codes[v] == NoCode {
			if err := intern(int(v)); err != nil {
				return nil, err
			}
		}
	}
	return codes, nil
}

// Codes finds the codes of the rows of a string column, or of its rows at the given
// positions. With insert it makes codes for new strings of rows that are valid; otherwise
// new strings have NoCode.
func (in *Interner) Codes(cores parallel.Cores, values gpu.Column, at []int32, codes []uint32, insert bool,
	valid func(r int) bool) error {
	x := textRows{off: gpu.Values[int32](values.Offsets, values.Len+1), data: values.Data.Bytes(), at: at}
	if cores.Threads == 1 {
		return in.blocks(&x, 0, codes, insert, valid)
	}
	err := cores.For(len(codes), parallel.Grain, func(lo, hi int) error {
		return in.blocks(&x, lo, codes[lo:hi], false, valid)
	})
	for r := 0; insert && r < len(codes) && err == nil; r++ {
		if codes[r] == NoCode && valid(r) {
			block := codes[r:min(r+word.Block, len(codes))]
			err = in.blocks(&x, r, block, true, valid)
			r += len(block) - 1
		}
	}
	return err
}

// textRows are the rows of a string column, or those at some positions.
type textRows struct {
	off  []int32
	data []byte
	at   []int32
}

func (x *textRows) value(r int) []byte {
	if x.at != nil {
		if r = int(x.at[r]); uint(r) >= uint(len(x.off)-1) { // the code of a null
			return nil
		}
	}
	return x.data[x.off[r]:x.off[r+1]]
}

// blocks is codes for the rows from row from on, on one core. The strings of a block are hashed,
// then their slots are read, and then the strings of the slots are compared: no read of one row
// waits for that of another row. New strings and long strings are handled last.
func (in *Interner) blocks(x *textRows, from int, codes []uint32, insert bool, valid func(r int) bool) error {
	var words [word.Block]text
	var hashes [word.Block]uint32
	var slots [word.Block]uint64
	var rest [word.Block]uint16
	for ; len(codes) > 0; codes, from = codes[min(word.Block, len(codes)):], from+word.Block {
		out := codes[:min(word.Block, len(codes))]
		if x.at != nil {
			for i := range out {
				hashes[i&(word.Block-1)] = words[i&(word.Block-1)].set(x.value(from + i))
			}
		} else {
			start := x.off[from]
			for i, end := range x.off[from+1 : from+1+len(out)] {
				hashes[i&(word.Block-1)] = words[i&(word.Block-1)].set(x.data[start:end])
				start = end
			}
		}
		n := 0
		if last := in.Len() - 1; last < 0 {
			for i := range out {
				out[i], rest[i&(word.Block-1)] = NoCode, uint16(i)
			}
			n = len(out)
		} else {
			mask, all := uint32(len(in.slots.V)-1), in.slots.V
			for i, h := range hashes[:len(out)] {
				slots[i] = all[h&mask]
			}
			for i, h := range hashes[:len(out)] {
				v := slots[i]
				for s := h & mask; v != 0 && uint32(v>>32) != h; v = all[s] {
					s = (s + 1) & mask
				}
				slots[i] = v
			}
			texts := in.texts.V
			for i, v := range slots[:len(out)] {
				c := uint32(v) - 1
				t, w := &texts[min(int(c), last)], &words[i]
				out[i] = c
				other := t[0] ^ w[0] | t[1] ^ w[1] | t[2] ^ w[2] | (v-1)>>63
				rest[n&(word.Block-1)] = uint16(i)
				n += int((other | -other) >> 63)
			}
		}
		for _, r := range rest[:n] {
			i := int(r)
			b := x.value(from + i)
			if !insert || !valid(from+i) {
				out[i], _ = in.find(b, words[i], hashes[i])
				continue
			}
			code, err := in.internText(b, words[i], hashes[i])
			if err != nil {
				return err
			}
			out[i] = code
		}
	}
	return nil
}

// Values returns the interned strings, in order of code, as a column.
func (in *Interner) Values(l *gpu.Lease, t gpu.Type) (gpu.Column, error) {
	n := in.Len()
	if in.size > math.MaxInt32 {
		return gpu.Column{}, gpu.TooManyBytes(in.size, n)
	}
	off, err := l.Alloc(int64(n+1) * 4)
	if err != nil {
		return gpu.Column{}, err
	}
	data, err := l.Alloc(in.size)
	if err != nil {
		off.Release()
		return gpu.Column{}, err
	}
	o, to := gpu.Values[int32](off, n+1), data.Bytes()
	end := 0
	o[0] = 0
	var buf [24]byte
	for c := range n {
		end += copy(to[end:], in.value(uint32(c), &buf))
		o[c+1] = int32(end)
	}
	return gpu.Column{Type: t, Len: n, Data: data, Offsets: off}, nil
}
