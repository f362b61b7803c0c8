package parquet

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/gstream/gstream/gpu"
)

// maxDictionaryBytes bounds a dictionary, because a reader holds it while it reads the
// chunk.
const maxDictionaryBytes = 4 << 20

// maxEntries returns the maximum number of distinct values in a chunk of n values for which a
// dictionary pays off. With more, a code and its share of the dictionary are about as large as the
// compressed value.
func maxEntries(n int) int { return n / 5 }

// hashTable maps values to dense codes, with linear probing. A slot has the code plus
// one, so cleared memory is an empty table.
type hashTable struct {
	memory scratch
	slots  []uint32
	shift  uint
	limit  int // maximum number of codes
	sample int // number of values of which some must repeat
}

// fewRepeats is the number of values of a sample that must repeat: a quarter of the number expected
// for limit equally likely values.
const fewRepeats = 32

// full reports whether a dictionary does not pay off, by the number of distinct values among the
// values seen: there are too many, or will be, because too few of the sample repeat. (Of s values
// out of d, s²/2d repeat.)
func (h *hashTable) full(distinct, seen int) bool {
	return distinct == h.limit || distinct == h.sample-fewRepeats && seen < h.sample
}

// reset empties the table and allocates space for limit codes.
func (h *hashTable) reset(l *gpu.Lease, limit int) (err error) {
	log := uint(max(6, bits.Len(uint(2*limit))))
	if h.slots, err = take[uint32](l, &h.memory, 1<<log); err != nil {
		return err
	}
	clear(h.slots)
	h.shift, h.limit = 64-log, limit
	h.sample = int(math.Sqrt(8 * fewRepeats * float64(limit)))
	return nil
}

// multiplier is the odd factor of multiplicative hashing. It differs in every process, so nobody
// can choose values that all collide. Codes are assigned in order of appearance and do not depend
// on it.
var multiplier = rand.Uint64() | 1

// fixedDictionary assigns codes to the values, which have 8 bytes or are extended to 8. It returns
// the distinct values in order of first appearance, and false if a dictionary does not pay off.
func fixedDictionary[T uint32 | uint64](h *hashTable, in []T, codes []int32, distinct []T) ([]T, bool) {
	distinct = distinct[:0]
	mask := uint64(len(h.slots) - 1)
	for k, v := range in {
		i := uint64(v) * multiplier >> h.shift
		for {
			s := h.slots[i]
			if s == 0 {
				if h.full(len(distinct), k) {
					return distinct, false
				}
				distinct = append(distinct, v)
				h.slots[i] = uint32(len(distinct))
				codes[k] = int32(len(distinct) - 1)
				break
			}
			if distinct[s-1] == v {
				codes[k] = int32(s - 1)
				break
			}
			i = (i + 1) & mask
		}
	}
	return distinct, true
}

// wide is a 16-byte value.
type wide [2]uint64

func wideDictionary(h *hashTable, in []wide, codes []int32, distinct []wide) ([]wide, bool) {
	distinct = distinct[:0]
	mask := uint64(len(h.slots) - 1)
	for k, v := range in {
		i := (v[0]*multiplier ^ v[1]) * multiplier >> h.shift
		for {
			s := h.slots[i]
			if s == 0 {
				if h.full(len(distinct), k) {
					return distinct, false
				}
				distinct = append(distinct, v)
				h.slots[i] = uint32(len(distinct))
				codes[k] = int32(len(distinct) - 1)
				break
			}
			if distinct[s-1] == v {
				codes[k] = int32(s - 1)
				break
			}
			i = (i + 1) & mask
		}
	}
	return distinct, true
}

// fixedDictionary builds the dictionary of PLAIN fixed-width values, and returns the codes. It is
// not ok if a dictionary does not pay off.
func (e *encoder) fixedDictionary(plain []byte, n, width int) (codes []int32, ok bool, err error) {
	limit := maxEntries(n)
	if err = e.table.reset(e.lease, limit); err != nil {
		return nil, false, err
	}
	if codes, err = take[int32](e.lease, &e.codes, n); err != nil {
		return nil, false, err
	}
	entries, err := take[byte](e.lease, &e.fixedEntries, limit*width)
	if err != nil {
		return nil, false, err
	}
	switch width {
	case 4:
		d, ok := fixedDictionary(&e.table, view[uint32](plain, n), codes, view[uint32](entries, limit))
		e.entries, e.distinct = entries[:len(d)*width], len(d)
		return codes, ok, nil
	case 8:
		d, ok := fixedDictionary(&e.table, view[uint64](plain, n), codes, view[uint64](entries, limit))
		e.entries, e.distinct = entries[:len(d)*width], len(d)
		return codes, ok, nil
	}
	d, ok := wideDictionary(&e.table, view[wide](plain, n), codes, view[wide](entries, limit))
	e.entries, e.distinct = entries[:len(d)*width], len(d)
	return codes, ok, nil
}

var hashSeed = maphash.MakeSeed()

// varDictionary builds the dictionary of a String or Binary column: e.entries has the
// distinct values in PLAIN encoding, e.starts the start of each. Codes of the columns'
// own dictionaries are translated; each is looked up once.
func (e *encoder) varDictionary(ranges []rowRange, count int) (codes []int32, ok bool, err error) {
	limit := maxEntries(count)
	if err = e.table.reset(e.lease, limit); err != nil {
		return nil, false, err
	}
	if codes, err = take[int32](e.lease, &e.codes, count); err != nil {
		return nil, false, err
	}
	codes = codes[:0]
	e.entries, e.starts, e.distinct = e.varEntries[:0], e.starts[:0], 0
	defer func() { e.varEntries = e.entries }()
	var translated *gpu.Dictionary // the dictionary that table translates
	var table []int32
	for _, p := range ranges {
		n := p.to - p.from
		v := p.col
		var own, translate []int32
		if v.Dict != nil {
			own = values[int32](v.Data, p.from, n)
			v = v.Dict.Values
			switch {
			case p.col.Dict == translated:
				translate = table
			case v.Len <= 4*count: // with a larger dictionary it is faster to look up the rows
				if table, err = take[int32](e.lease, &e.translate, v.Len); err != nil {
					return nil, false, err
				}
				translated, translate = p.col.Dict, table
				for i := range translate {
					translate[i] = -1
				}
			}
		}
		offsets := gpu.Values[int32](v.Offsets, v.Len+1)
		chars := v.Data.Bytes()
		var valid []byte
		if p.col.Valid != nil {
			valid = p.col.Valid.Bytes()
		}
		for k := range n {
			if valid != nil && !gpu.Bit(valid, p.from+k) {
				continue
			}
			i := int32(p.from + k)
			if own != nil {
				i = own[k]
			}
			if translate != nil && translate[i] >= 0 {
				codes = append(codes, translate[i])
				continue
			}
			code, ok := e.lookup(chars[offsets[i]:offsets[i+1]], len(codes))
			if !ok {
				return nil, false, nil
			}
			if translate != nil {
				translate[i] = code
			}
			codes = append(codes, code)
		}
	}
	return codes, true, nil
}

// entry returns distinct value i.
func (e *encoder) entry(i int) []byte {
	at := e.starts[i]
	n := binary.LittleEndian.Uint32(e.entries[at:])
	return e.entries[at+4 : at+4+int(n)]
}

// lookup returns the code of a value, a new code if it is new. seen is the number of values before
// it. lookup returns false if a dictionary does not pay off.
func (e *encoder) lookup(v []byte, seen int) (int32, bool) {
	h := &e.table
	i := maphash.Bytes(hashSeed, v) >> h.shift
	for {
		s := h.slots[i]
		if s == 0 {
			break
		}
		if string(e.entry(int(s-1))) == string(v) {
			return int32(s - 1), true
		}
		i = (i + 1) & uint64(len(h.slots)-1)
	}
	if h.full(e.distinct, seen) || len(e.entries)+len(v) > maxDictionaryBytes {
		return 0, false
	}
	e.starts = append(e.starts, len(e.entries))
	e.entries = binary.LittleEndian.AppendUint32(e.entries, uint32(len(v)))
	e.entries = append(e.entries, v...)
	e.distinct++
	h.slots[i] = uint32(e.distinct)
	return int32(e.distinct - 1), true
}
