// Package codec turns keys of joins and group-bys into rows of 64-bit words, which are equal if and
// only if the keys are. Values are packed next to each other at their width, floats in a canonical
// form, strings and binaries as codes of an interner. So hash tables handle only words, and no key is
// compared twice.
package codec

import (
	"fmt"
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/intern"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// Codec packs the key columns of one table or group-by into words.
type Codec struct {
	types    []gpu.Type
	interner []*intern.Interner // by column; nil for types of fixed width
	// dictionary has, by column, the dictionary whose codes are those of the strings, instead of the
	// interner's; nil for most.
	dictionary []*gpu.Dictionary
	bits       []int  // by column
	word       []int  // by column: the word in which it begins
	shift      []uint // by column: its lowest bit in that word
	Words      int    // words of a key
	narrow     bool   // integers of 8 bytes have 32 bits, with a sign
}

// New returns a codec for key columns of some types. The lease pays for its strings.
func New(l *gpu.Lease, types []gpu.Type) *Codec {
	c := &Codec{types: types, interner: make([]*intern.Interner, len(types)),
		dictionary: make([]*gpu.Dictionary, len(types))}
	for i, t := range types {
		if t.IsVar() {
			c.interner[i] = intern.New(l)
		}
	}
	c.layOut(false)
	return c
}

// NewNarrow returns a codec whose integers of 8 bytes have 32 bits, if its keys then have fewer
// words. Keys that it does not fit (see Fits) need the codec that Wide returns.
func NewNarrow(l *gpu.Lease, types []gpu.Type) *Codec {
	c := New(l, types)
	if wide := c.Words; wide > 1 {
		if c.layOut(true); c.Words == wide {
			c.layOut(false)
		}
	}
	return c
}

// Wide returns the codec with the same interners in which columns have all of their bits.
func (c *Codec) Wide() *Codec {
	w := *c
	w.layOut(false)
	return &w
}

// Repack adds the words of n keys to words of the wide codec, which are zero.
func (c *Codec) Repack(wide *Codec, to, from [][]uint64, n int) {
	for i, t := range c.types {
		out, at := to[wide.word[i]], wide.shift[i]
		mask := ^uint64(0) >> (64 - min(wide.bits[i], 64))
		for id, v := range from[c.word[i]][:n] {
			if v >>= c.shift[i]; narrows(t) {
				v = uint64(int64(int32(v)))
			}
			out[id] |= v & mask << at
		}
		if wide.bits[i] > 64 {
			copy(to[wide.word[i]+1], from[c.word[i]+1][:n])
		}
	}
}

// layOut assigns bits to each column.
func (c *Codec) layOut(narrow bool) {
	n := len(c.types)
	c.bits, c.word, c.shift, c.narrow = make([]int, n), make([]int, n), make([]uint, n), narrow
	bit := 0
	for i, t := range c.types {
		w := packedBits(t)
		if narrow && narrows(t) {
			w = 32
		}
		if bit%64+min(w, 64) > 64 {
			bit = (bit + 63) / 64 * 64
		}
		c.bits[i], c.word[i], c.shift[i] = w, bit/64, uint(bit%64)
		bit += w
	}
	c.Words = max((bit+63)/64, 1)
}

// narrows reports whether values of a type may have fewer bits than the type.
func narrows(t gpu.Type) bool { return packedBits(t) == 64 && !t.IsFloat() }

// Fits reports whether the values of a batch fit the bits that their columns have.
func (c *Codec) Fits(cols []gpu.Column) bool {
	for i, col := range cols {
		if !c.narrow || !narrows(c.types[i]) {
			continue
		}
		values, more := gpu.Values[int64](col.Data, col.Len), int64(0)
		for _, v := range values {
			more |= v ^ int64(int32(v))
		}
		if more == 0 {
			continue
		}
		for r, v := range values {
			if v != int64(int32(v)) && col.IsValid(r) {
				return false
			}
		}
	}
	return true
}

// Release releases the strings.
func (c *Codec) Release() {
	for _, in := range c.interner {
		in.Release()
	}
	for i := range c.dictionary {
		c.Follow(i, nil)
	}
}

// Len returns the number of strings of a column.
func (c *Codec) Len(column int) int {
	if d := c.dictionary[column]; d != nil {
		return d.Values.Len
	}
	return c.interner[column].Len()
}

// Follow makes the codes of a dictionary of distinct values those of a column of strings. All columns
// then have this dictionary, or only nulls, until Follow of nil ends it.
func (c *Codec) Follow(column int, d *gpu.Dictionary) {
	if d != nil {
		d.Values.Retain()
	}
	if old := c.dictionary[column]; old != nil {
		old.Values.Release()
	}
	c.dictionary[column] = d
}

// Followed returns the dictionary that a column follows, or nil.
func (c *Codec) Followed(column int) *gpu.Dictionary { return c.dictionary[column] }

// Renumber replaces the codes of the dictionary that a column follows by the interner's, in the words of
// keys; skip reports whether a key has a null in the column. After an error the keys are as before.
// The lease pays for scratch.
func (c *Codec) Renumber(l *gpu.Lease, column int, words [][]uint64, skip func(key int) bool) error {
	word, shift := words[c.word[column]], c.shift[column]
	codes, err := memory.New[uint32](l, len(word))
	if err != nil {
		return err
	}
	defer codes.Release()
	values := c.dictionary[column].Values
	for i, w := range word {
		if !skip(i) {
			if codes.V[i], err = c.interner[column].Code(values.VarValue(int(uint32(w >> shift)))); err != nil {
				return err
			}
		}
	}
	for i, code := range codes.V {
		if !skip(i) {
			word[i] = word[i]&^(math.MaxUint32<<shift) | uint64(code)<<shift
		}
	}
	return nil
}

// Forget drops the cached codes of dictionaries.
func (c *Codec) Forget() {
	for _, in := range c.interner {
		in.Forget()
	}
}

// Strings returns the number of strings of each interner, for Truncate.
func (c *Codec) Strings() []int {
	n := make([]int, len(c.interner))
	for i, in := range c.interner {
		if in != nil {
			n[i] = in.Len()
		}
	}
	return n
}

// Truncate resets the interners to their earlier numbers of strings.
func (c *Codec) Truncate(strings []int) {
	for i, in := range c.interner {
		if in != nil {
			in.Truncate(strings[i])
		}
	}
}

func packedBits(t gpu.Type) int {
	switch {
	case t.IsVar():
		return 32
	case t.Kind == gpu.Bool:
		return 8
	}
	return t.Width() * 8
}

// Keys has the key columns of a batch of rows, with the codes of their strings.
type Keys struct {
	Cols []gpu.Column
	// dict maps a dictionary's codes to the interner's codes. plain has the interner's
	// code of each row.
	Dict, plain [][]uint32
	scratch     []memory.Array[uint32] // those arrays among them that interners do not own
}

// Release releases the codes.
func (k *Keys) Release() {
	for _, a := range k.scratch {
		a.Release()
	}
	k.scratch = nil
}

// Prepare finds the codes of the string columns. With insert, new strings get codes; otherwise they
// have intern.NoCode. The lease pays for scratch, which the caller releases, even after an error. After an
// error an interner may have more strings than before.
func (c *Codec) Prepare(cores parallel.Cores, l *gpu.Lease, cols []gpu.Column, n int, insert bool) (Keys, error) {
	k := Keys{Cols: cols, Dict: make([][]uint32, len(cols)), plain: make([][]uint32, len(cols))}
	for i, col := range cols {
		if col.Type != c.types[i] {
			return k, fmt.Errorf("key column %d has type %v, the table's has %v", i, col.Type, c.types[i])
		}
		if col.Len != n {
			return k, fmt.Errorf("key column %d has %d rows, others %d", i, col.Len, n)
		}
		in := c.interner[i]
		if in == nil {
			continue
		}
		if d := c.dictionary[i]; d != nil {
			if col.Dict == d {
				k.plain[i] = gpu.Values[uint32](col.Data, n)
			}
			continue
		}
		if col.Dict != nil && insert && intern.Caches(col.Dict.Values.Len, n) {
			var err error
			if k.Dict[i], err = in.Dictionary(col); err != nil {
				return k, err
			}
			continue
		}
		// The codes of every value of a small dictionary, or of every row. They are not cached: if
		// the rows use only a small part of a dictionary, that costs more than finding the codes
		// again.
		values, rows := col, n
		var at []int32
		switch {
		case col.Dict != nil && col.Dict.Values.Len <= n:
			values, rows = col.Dict.Values, col.Dict.Values.Len
		case col.Dict != nil:
			values, at = col.Dict.Values, gpu.Values[int32](col.Data, n)
		}
		codes, err := memory.New[uint32](l, rows)
		if err != nil {
			return k, err
		}
		k.scratch = append(k.scratch, codes)
		if err := in.Codes(cores, values, at, codes.V, insert, col.IsValid); err != nil {
			return k, err
		}
		if at != nil || col.Dict == nil {
			k.plain[i] = codes.V
		} else {
			k.Dict[i] = codes.V
		}
	}
	return k, nil
}

// PlainWords returns the values of a single key of 8 bytes without nulls and codes, if equal values
// have equal bits, as words of keys; otherwise nil.
func (k *Keys) PlainWords() []uint64 {
	if len(k.Cols) != 1 {
		return nil
	}
	c := k.Cols[0]
	if c.Type.IsVar() || c.Type.IsFloat() || c.Type.Width() != 8 || c.Dict != nil || c.Valid != nil {
		return nil
	}
	return gpu.Values[uint64](c.Data, c.Len)
}

// Pack writes the keys of rows [lo, lo+n) as words: out[w][i] is word w of row lo+i.
// Values under a null are zero.
func (c *Codec) Pack(k Keys, lo, n int, out [][]uint64) {
	if len(k.Cols) == 1 && c.Words == 1 && !k.Cols[0].Type.IsVar() && k.Cols[0].Dict == nil && k.Cols[0].Valid == nil {
		words, col := out[0][:n], k.Cols[0]
		bits := packedBits(col.Type)
		if bits == 32 && !col.Type.IsFloat() {
			for r, v := range gpu.Values[uint32](col.Data, col.Len)[lo:][:len(words)] {
				words[r] = uint64(v)
			}
			return
		}
		word.Load(words, col, lo)
		if bits < 64 {
			for r := range words {
				words[r] &= 1<<bits - 1
			}
		}
		return
	}
	if len(k.Cols) == 1 && len(k.Dict[0]) > 0 && k.Cols[0].Valid == nil {
		words, codes := out[0][:n], k.Dict[0]
		for r, code := range gpu.Values[int32](k.Cols[0].Data, k.Cols[0].Len)[lo:][:len(words)] {
			words[r] = uint64(codes[code])
		}
		return
	}
	var tmp [512]uint64
	for w := range out {
		clear(out[w][:n])
	}
	for i, col := range k.Cols {
		w, shift := c.word[i], c.shift[i]
		bits := c.bits[i]
		if col.Type.Wide {
			for r, v := range gpu.Values[gpu.Int128](col.Data, col.Len)[lo : lo+n] {
				if col.Valid == nil || col.IsValid(lo+r) {
					out[w][r], out[w+1][r] = v.Lo, uint64(v.Hi)
				}
			}
			continue
		}
		if bits == 64 && col.Valid == nil && !col.Type.IsFloat() {
			copy(out[w][:n], gpu.Values[uint64](col.Data, col.Len)[lo:lo+n])
			continue
		}
		mask := ^uint64(0) >> (64 - bits)
		if narrows(col.Type) && col.Valid == nil {
			dst := out[w][:n]
			for r, v := range gpu.Values[uint64](col.Data, col.Len)[lo:][:len(dst)] {
				dst[r] |= v & mask << shift
			}
			continue
		}
		for at := 0; at < n; at += len(tmp) {
			m := min(len(tmp), n-at)
			switch {
			case len(k.Dict[i]) > 0:
				codes := k.Dict[i]
				for r, code := range gpu.Values[int32](col.Data, col.Len)[lo+at : lo+at+m] {
					tmp[r] = uint64(gpu.Lookup(codes, code))
				}
			case len(k.plain[i]) > 0:
				for r, code := range k.plain[i][lo+at : lo+at+m] {
					tmp[r] = uint64(code)
				}
			case col.Type.IsVar(): // all rows are null
				clear(tmp[:m])
			default:
				word.Load(tmp[:m], col, lo+at)
			}
			dst := out[w][at : at+m]
			if col.Valid != nil {
				valid := gpu.Words(col.Valid, col.Len)
				for r := range dst {
					i := uint(lo + at + r)
					dst[r] |= tmp[r] & mask & -(valid[i/64] >> (i % 64) & 1) << shift
				}
				continue
			}
			for r := range dst {
				dst[r] |= tmp[r] & mask << shift
			}
		}
	}
}

// Unpack sets the values of out to key column i of rows of words from row from on. Strings get the
// interner's strings as their dictionary. After an error the caller releases what there is.
func (c *Codec) Unpack(l *gpu.Lease, out *gpu.Column, i int, words [][]uint64, from int) (err error) {
	t, n := out.Type, out.Len
	w, shift := words[c.word[i]][from:from+n], c.shift[i]
	width := int64(t.Width())
	switch {
	case t.IsVar():
		width = 4
	case t.Kind == gpu.Bool:
		if out.Data, err = l.Alloc(gpu.BitmapBytes(n)); err != nil {
			return err
		}
		bits := gpu.Words(out.Data, n)
		clear(bits)
		for r, v := range w {
			bits[r/64] |= v >> shift & 1 << (r % 64)
		}
		return nil
	}
	if out.Data, err = l.Alloc(int64(n) * width); err != nil {
		return err
	}
	switch width {
	case 1:
		unpackWords(gpu.Values[uint8](out.Data, n), w, shift)
	case 2:
		unpackWords(gpu.Values[uint16](out.Data, n), w, shift)
	case 4:
		unpackWords(gpu.Values[uint32](out.Data, n), w, shift)
	case 8:
		dst := gpu.Values[uint64](out.Data, n)
		if c.bits[i] == 64 {
			copy(dst, w)
			break
		}
		for r, v := range w {
			dst[r] = uint64(int64(int32(v >> shift)))
		}
	case 16:
		hi := words[c.word[i]+1][from : from+n]
		dst := gpu.Values[gpu.Int128](out.Data, n)
		for r := range dst {
			dst[r] = gpu.Int128{Lo: w[r], Hi: int64(hi[r])}
		}
	}
	if !t.IsVar() {
		return nil
	}
	if out.Dict = c.dictionary[i]; out.Dict != nil {
		out.Dict.Values.Retain()
	} else {
		values, err := c.interner[i].Values(l, t)
		if err != nil {
			return err
		}
		out.Dict = &gpu.Dictionary{Values: values, Distinct: true}
	}
	if out.Dict.Values.Len == 0 {
		clear(gpu.Values[int32](out.Data, n))
	}
	return nil
}

// unpackWords writes the bits of words from bit shift on as values.
func unpackWords[T uint8 | uint16 | uint32](dst []T, words []uint64, shift uint) {
	for i, w := range words {
		dst[i] = T(w >> shift)
	}
}

// NullRows returns the bitmap of the rows with a null in one of the columns that are not
// skipped. It is empty when there is none. The caller releases it.
func NullRows(l *gpu.Lease, cols []gpu.Column, skip func(i int) bool, n int) (out memory.Array[uint64], err error) {
	some := uint64(0)
	for i, c := range cols {
		if c.Valid == nil || skip != nil && skip(i) {
			continue
		}
		if out.V == nil {
			if out, err = memory.Zeros[uint64](l, (n+63)/64); err != nil {
				return out, err
			}
		}
		for w, v := range gpu.Words(c.Valid, n) {
			out.V[w] |= ^v
		}
	}
	if out.V != nil && n%64 != 0 {
		out.V[len(out.V)-1] &= 1<<(n%64) - 1
	}
	for _, w := range out.V {
		some |= w
	}
	if some == 0 {
		out.Release()
	}
	return out, nil
}

// HashKey hashes one key of several words.
func HashKey(words [][]uint64, i int) uint64 {
	h := uint64(0)
	for _, w := range words {
		h = word.TableMix(h ^ w[i])
	}
	return h
}

// Block returns n columns of word.Block words each, for a block of keys.
func Block(n int) [][]uint64 {
	all := make([]uint64, n*word.Block)
	words := make([][]uint64, n)
	for i := range words {
		words[i] = all[i*word.Block:][:word.Block]
	}
	return words
}
