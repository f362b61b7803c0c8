package host

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/intern"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// Keys of joins and group-bys become rows of 64-bit words, which are equal if and only if the keys
// are. Values are packed next to each other at their width, floats in a canonical form, strings and
// binaries as codes of an interner. So hash tables handle only words, and no key is compared twice.

// codec packs the key columns of one table or group-by into words.
type codec struct {
	types    []gpu.Type
	interner []*intern.Interner // by column; nil for types of fixed width
	bits     []int              // by column
	word     []int              // by column: the word in which it begins
	shift    []uint             // by column: its lowest bit in that word
	words    int                // words of a key
	narrow   bool               // integers of 8 bytes have 32 bits, with a sign
}

func newCodec(l *gpu.Lease, types []gpu.Type) *codec {
	c := &codec{types: types, interner: make([]*intern.Interner, len(types))}
	for i, t := range types {
		if t.IsVar() {
			c.interner[i] = intern.New(l)
		}
	}
	c.layOut(false)
	return c
}

// layOut assigns bits to each column.
func (c *codec) layOut(narrow bool) {
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
	c.words = max((bit+63)/64, 1)
}

// narrows reports whether values of a type may have fewer bits than the type.
func narrows(t gpu.Type) bool { return packedBits(t) == 64 && !t.IsFloat() }

// fits reports whether the values of a batch fit the bits that their columns have.
func (c *codec) fits(cols []gpu.Column) bool {
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

func (c *codec) release() {
	for _, in := range c.interner {
		in.Release()
	}
}

// strings returns the number of strings of each interner, for truncate.
func (c *codec) strings() []int {
	n := make([]int, len(c.interner))
	for i, in := range c.interner {
		if in != nil {
			n[i] = in.Len()
		}
	}
	return n
}

// truncate resets the interners to their earlier numbers of strings.
func (c *codec) truncate(strings []int) {
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

// coded is a batch of keys with the codes of its strings.
type coded struct {
	cols []gpu.Column
	// dict maps a dictionary's codes to the interner's codes. plain has the interner's
	// code of each row.
	dict, plain [][]uint32
	scratch     []memory.Array[uint32] // those arrays among them that interners do not own
}

func (k *coded) release() {
	for _, a := range k.scratch {
		a.Release()
	}
	k.scratch = nil
}

// prepare finds the codes of the string columns. With insert, new strings get codes; otherwise they
// have intern.NoCode. The lease pays for scratch, which the caller releases, even after an error. After an
// error an interner may have more strings than before.
func (c *codec) prepare(cores parallel.Cores, l *gpu.Lease, cols []gpu.Column, n int, insert bool) (coded, error) {
	k := coded{cols: cols, dict: make([][]uint32, len(cols)), plain: make([][]uint32, len(cols))}
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
		if col.Dict != nil && insert && intern.Caches(col.Dict.Values.Len, n) {
			var err error
			if k.dict[i], err = in.Dictionary(col); err != nil {
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
			k.dict[i] = codes.V
		}
	}
	return k, nil
}

// plainWords returns the values of a key of 8 bytes without nulls and codes, if equal values have
// equal bits; otherwise nil.
func plainWords(c gpu.Column) []uint64 {
	if c.Type.IsVar() || c.Type.IsFloat() || c.Type.Width() != 8 || c.Dict != nil || c.Valid != nil {
		return nil
	}
	return gpu.Values[uint64](c.Data, c.Len)
}

// pack writes the keys of rows [lo, lo+n) as words: out[w][i] is word w of row lo+i.
// Values under a null are zero.
func (c *codec) pack(k coded, lo, n int, out [][]uint64) {
	if len(k.cols) == 1 && c.words == 1 && !k.cols[0].Type.IsVar() && k.cols[0].Dict == nil && k.cols[0].Valid == nil {
		words, col := out[0][:n], k.cols[0]
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
	if len(k.cols) == 1 && len(k.dict[0]) > 0 && k.cols[0].Valid == nil {
		words, codes := out[0][:n], k.dict[0]
		for r, code := range gpu.Values[int32](k.cols[0].Data, k.cols[0].Len)[lo:][:len(words)] {
			words[r] = uint64(codes[code])
		}
		return
	}
	var tmp [512]uint64
	for w := range out {
		clear(out[w][:n])
	}
	for i, col := range k.cols {
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
			case len(k.dict[i]) > 0:
				codes := k.dict[i]
				for r, code := range gpu.Values[int32](col.Data, col.Len)[lo+at : lo+at+m] {
					tmp[r] = uint64(gpu.Lookup(codes, code))
				}
			case len(k.plain[i]) > 0:
				for r, code := range k.plain[i][lo+at : lo+at+m] {
					tmp[r] = uint64(code)
				}
			case col.Type.IsVar(): // the dictionary is empty: all rows are null
				clear(tmp[:m])
			default:
				word.Load(tmp[:m], col, lo+at)
			}
			dst := out[w][at : at+m]
			if col.Valid != nil {
				for r := range dst {
					if col.IsValid(lo + at + r) {
						dst[r] |= tmp[r] & mask << shift
					}
				}
				continue
			}
			for r := range dst {
				dst[r] |= tmp[r] & mask << shift
			}
		}
	}
}

// nullRows returns the bitmap of the rows with a null in one of the columns that are not
// skipped. It is empty when there is none. The caller releases it.
func nullRows(l *gpu.Lease, cols []gpu.Column, skip func(i int) bool, n int) (out memory.Array[uint64], err error) {
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

// hashKey hashes one key of several words.
func hashKey(words [][]uint64, i int) uint64 {
	h := uint64(0)
	for _, w := range words {
		h = word.TableMix(h ^ w[i])
	}
	return h
}
